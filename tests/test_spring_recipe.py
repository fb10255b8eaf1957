"""The recipe for Spring Boot: the classes that need the JDK alone."""

import shutil
import subprocess
import tomllib

import pytest

from support import recipe
from support.process import Process

PAGE = "spring.md"

# Each line is a path and the value to store there.
PUT = """
import java.net.URI;
import java.util.Scanner;

public final class Put {
    public static void main(String[] arguments) {
        Keys keys = new Keys(URI.create(arguments[0]), arguments[1]);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", 2);
            try {
                keys.put(words[0], words[1]);
                System.out.println("stored");
            } catch (RuntimeException error) {
                System.out.println(error.getMessage());
            }
        }
    }
}
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """The folder with the compiled classes."""
    if shutil.which("javac") is None:
        pytest.skip("no JDK is installed")
    folder = tmp_path_factory.mktemp("java")
    recipe.write(PAGE, folder, {})
    (folder / "Put.java").write_text(PUT)
    arguments = ["javac", "-Xlint:all", "-Werror", "Keys.java", "Put.java", "Follow.java"]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def dwell(start_dwell):
    settings = tomllib.loads(recipe.files(PAGE)["spring.toml"])
    del settings["upstream"]
    return start_dwell(**settings)


class Putter:
    """A program that stores what it is told to."""

    def __init__(self, folder, dwell, token, cleanup):
        arguments = ["java", "-cp", folder, "Put", dwell.url(""), token]
        self.child = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        cleanup.callback(self.child.wait, 30)
        cleanup.callback(self.child.stdin.close)

    def put(self, path, value):
        self.child.stdin.write(f"{path} {value}\n")
        return self.child.stdout.readline().rstrip("\n")


def test_a_value_that_is_put_ends_a_wait_over_a_restart_too(classes, dwell, tmp_path, cleanup):
    token = tomllib.loads(recipe.files(PAGE)["spring.toml"])["publish"]["token"]
    putter = Putter(classes, dwell, token, cleanup)
    target = "/poll/inbox/alice"
    assert putter.put(target, "[]") == "stored"
    follower = Process(
        ["java", "-cp", classes, "Follow", dwell.url(target)], tmp_path / "follow.log"
    )
    cleanup.callback(follower.stop)
    follower.start()
    follower.await_output("[]\n")
    dwell.await_waiters(1)
    assert putter.put(target, '["lunch?"]') == "stored"
    follower.await_output('["lunch?"]\n')
    assert follower.output() == '[]\n["lunch?"]\n'
    assert dwell.get(target).field("Content-Type") == "application/json"

    dwell.kill()
    dwell.start_ready()
    # The connection of before is dead.
    assert putter.put(target, '["lunch?","yes"]') == "stored"
    follower.await_output('["lunch?","yes"]\n')


def test_a_wrong_token_is_reported(classes, dwell, cleanup):
    putter = Putter(classes, dwell, "x" * 16, cleanup)
    assert putter.put("/poll/inbox/alice", "[]").startswith("401: ")
