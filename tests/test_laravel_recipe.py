"""The recipe for Laravel: its store and its class, with the cache of Laravel that Debian has."""

import json
import pathlib
import shutil
import subprocess

import pytest

from support import recipe

PAGE = "laravel.md"
FILES = recipe.files(PAGE)
LARAVEL = pathlib.Path("/usr/share/php/Illuminate")

# What an application has around the files of the page. The model is played.
FRAME = """<?php
foreach (['Container', 'Config', 'Support', 'Cache'] as $part) {
    require_once "LARAVEL/$part/autoload.php";
}
eval('namespace App\\Models; class Message {
    public static array $texts = [];
    public static function where($field, $name) { return new self($name); }
    public function __construct(private string $name) {}
    public function orderBy($field) { return $this; }
    public function pluck($field) { return collect(self::$texts[$this->name] ?? []); }
}');
require __DIR__ . '/Inbox.php';

$app = new Illuminate\\Container\\Container;
$memcached = ['driver' => 'memcached', 'servers' => [
    ['host' => '127.0.0.1', 'port' => PORT, 'weight' => 100]]];
$stores = ['memcached' => $memcached, POLLS];
$app->instance('config', new Illuminate\\Config\\Repository(['cache' => [
    'default' => 'memcached', 'prefix' => 'laravel_cache', 'stores' => $stores]]));
$app->bind('memcached.connector', fn () => new Illuminate\\Cache\\MemcachedConnector);
$app->singleton('cache', fn ($app) => new Illuminate\\Cache\\CacheManager($app));
Illuminate\\Support\\Facades\\Facade::setFacadeApplication($app);

foreach (json_decode(stream_get_contents(STDIN), true) as $name => $texts) {
    App\\Models\\Message::$texts[$name] = $texts;
    echo App\\Polls\\Inbox::store($name), "\\n";
}
// As Laravel does it by default.
Illuminate\\Support\\Facades\\Cache::forever('/poll/inbox/default', str_repeat('a', 3000));
"""


@pytest.fixture
def store_inboxes(lone_edge, tmp_path):
    """Stores inboxes by the class of the page; returns what it returned."""
    if shutil.which("php") is None or not (LARAVEL / "Cache").exists():
        pytest.skip("PHP and php-illuminate-cache are not installed")
    port = str(lone_edge.store_address[1])
    frame = FRAME.replace("LARAVEL", str(LARAVEL)).replace("PORT", port)
    polls = FILES["polls.php"].replace("11211", port).strip()
    (tmp_path / "frame.php").write_text(frame.replace("POLLS", polls))
    (tmp_path / "Inbox.php").write_text("<?php\n" + FILES["Inbox.php"])

    def store(inboxes):
        done = subprocess.run(
            ["php", "frame.php"],
            cwd=tmp_path,
            input=json.dumps(inboxes),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout.splitlines()

    return store


def test_every_file_is_php():
    if shutil.which("php") is None:
        pytest.skip("PHP is not installed")
    names = ["polls.php", "Inbox.php", "Message.php", "routes.php"]
    assert [name for name in FILES if name.endswith(".php")] == names
    for name in names:
        text = FILES[name] if name != "polls.php" else f"return [{FILES[name]}];"
        done = subprocess.run(
            ["php", "-l"], input=f"<?php\n{text}", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stdout}"


def test_a_value_is_plain_text_under_the_path(lone_edge, store_inboxes):
    long = ["lunch?"] * 400
    returned = store_inboxes({"alice": ["lunch?"], "a b": [], "long": long})
    assert returned[:2] == ['["lunch?"]', "[]"]
    for target, texts in {"alice": ["lunch?"], "a%20b": [], "long": long}.items():
        assert json.loads(lone_edge.get(f"/poll/inbox/{target}").body) == texts
    # The default store has another key, and compresses.
    assert lone_edge.get("/poll/inbox/default").status == 404
    stored = lone_edge.store().get("laravel_cache:/poll/inbox/default")
    assert stored is not None
    assert len(stored) < 3000


def test_a_store_ends_a_wait(lone_edge, store_inboxes):
    with lone_edge.connect() as waiting:
        waiting.ask("/poll/inbox/alice?wait=50")
        lone_edge.await_waiters(1)
        store_inboxes({"alice": ["lunch?"]})
        assert waiting.answer().body == b'["lunch?"]'
