use super::super::codec::{Codec, MemcachedPeer, OneOrMany};
use super::super::{
    AccessTarget, EmptyAnswer, LogFormat, LogLevel, MemcachedServer, OnDelete, example_file,
};
use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn flag(flag: &str, option: &str, values: &[&str]) -> FlagValue {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    FlagValue {
        flag: flag.to_owned(),
        option: option.to_owned(),
        values,
    }
}

fn errors(text: &str, flags: &[FlagValue]) -> String {
    parse("dwell.toml", text, flags)
        .expect_err("the configuration is wrong")
        .to_string()
}

#[test]
fn nothing_written_is_the_default() {
    assert_eq!(parse("dwell.toml", "", &[]), Ok(Config::default()));
    assert_eq!(load(None, &[]), Ok(Config::default()));
}

#[test]
fn every_kind_of_value_is_read() {
    let text = r#"
        log = { level = "debug", format = "json", access = "-" }
        [server]
        listen = ["0.0.0.0:80", "[::1]:8080", "localhost:8081"]
        admin = "off"
        pollers = 4
        [limits]
        head_bytes_max = 4096
        body_bytes_max = "2m"
        idle_timeout = "1m30s"
        target_bytes_max = "1KiB"
        [memcached]
        servers = ["a:1", "b:2=3", { address = "[::1]:3", weight = 2 }]
        [upstream]
        url = "http://app.internal"
        [[route]]
        prefix = "/a/"
        [[route]]
        prefix = "/a/longer/"
        key = "user:{cookie.id}"
        content_type = "application/json"
        methods = ["POST"]
        wait_default = "25s"
        empty = "204"
        coalesce_post = true
        on_delete = "keep-waiting"
    "#;
    let config = parse("dwell.toml", text, &[]).expect("the configuration is right");
    let listen: Vec<String> = config
        .server
        .listen
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(listen, ["0.0.0.0:80", "[::1]:8080", "127.0.0.1:8081"]);
    assert_eq!((config.server.admin, config.server.loops()), (None, 4));
    assert_eq!(config.limits.head_bytes_max, 4096);
    assert_eq!(config.limits.body_bytes_max, 2 << 20);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(90));
    let shown = OneOrMany(MemcachedPeer, 0).show(&config.memcached.servers);
    let expected =
        r#"["a:1", { address = "b:2", weight = 3 }, { address = "[::1]:3", weight = 2 }]"#;
    assert_eq!(shown, expected);
    assert!(!config.uses_embedded_store());
    let url = config.upstream.url.first().expect("an upstream is named");
    assert_eq!(url.to_string(), "http://app.internal:80");
    assert_eq!(config.log.level, LogLevel::Debug);
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.log.access, AccessTarget::Stdout);
    let route = config
        .route("/a/longer/x")
        .expect("the longest prefix wins");
    assert_eq!(route.key.to_string(), "user:{cookie.id}");
    assert_eq!(
        (route.empty, route.on_delete),
        (EmptyAnswer::NoContent, OnDelete::KeepWaiting)
    );
    assert!(route.methods.allows("POST") && !route.methods.allows("GET"));
    assert_eq!(route.methods.allow_field(), "POST");
    assert_eq!(config.route("/a/b").expect("a route").prefix, "/a/");
    assert_eq!(config.route("/b"), None);
}

#[test]
fn an_error_shows_file_line_column_and_what_would_be_right() {
    let text = "[server]\nlisten = \"127.0.0.1:8080\"\n\n[limits]\nidle_timout = \"3s\"\n";
    let expected = "\
error: unknown option: `limits.idle_timout`
 --> dwell.toml:5:1
  |
5 | idle_timout = \"3s\"
  | ^^^^^^^^^^^
  |
  = help: did you mean `idle_timeout`?";
    assert_eq!(errors(text, &[]), expected);
}

/// A mistake, a word of its message, and a word of its help.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "listen = \"x\"",
        "unknown section: `listen`",
        "`server.listen` or `tls.listen` or `store.listen`",
    ),
    (
        "[limit]",
        "unknown section: `limit`",
        "did you mean `limits`?",
    ),
    (
        "[quic]",
        "unknown section: `quic`",
        "server, tls, route, store",
    ),
    ("server = 3", "`server` is a section", "[server]"),
    (
        "[route]\nprefix = \"/a/\"",
        "`route` is a list of tables",
        "[[route]]",
    ),
    ("route = []", "`route` is a list of tables", "[[route]]"),
    (
        "[[route]]\nempty = \"204\"",
        "the route has no prefix",
        "prefix = \"/poll/\"",
    ),
    (
        "[limits]\nmax_connections = 1",
        "limits.max_connections",
        "`connections_max`",
    ),
    (
        "[server]\nidle_timeout = \"1s\"",
        "server.idle_timeout",
        "limits.idle_timeout",
    ),
    (
        "[server]\nxyzzy = 1",
        "server.xyzzy",
        "listen, admin, admin_hosts, pollers",
    ),
    (
        "[server]\nlisten = 8080",
        "found a whole number",
        "\"127.0.0.1:8080\"",
    ),
    (
        "[server]\nlisten = \":8080\"",
        "not an address",
        "\"127.0.0.1:8080\"",
    ),
    (
        "[server]\nlisten = \"8080\"",
        "not an address",
        "\"127.0.0.1:8080\"",
    ),
    (
        "[server]\nlisten = \"127.0.0.1\"",
        "not an address",
        "[::1]:8080",
    ),
    ("[server]\nlisten = []", "the list is empty", "at least one"),
    (
        "[server]\nlisten = [\"127.0.0.1:1\", \"x\"]",
        "dwell.toml:2:26",
        "IP address",
    ),
    (
        "[server]\npollers = -1",
        "must be 0 to 1024: -1",
        "whole number",
    ),
    (
        "[server]\npollers = 1.5",
        "found a number with a point",
        "whole number",
    ),
    (
        "[server]\npollers = \"4\"",
        "found a string",
        "whole number",
    ),
    (
        "[store]\nallow_remote = \"yes\"",
        "expected true or false",
        "without quotes",
    ),
    (
        "[store]\nbytes_max = \"64 MiB\"",
        "unknown unit of size",
        "\"1024GiB\"",
    ),
    (
        "[store]\nbytes_max = \"1k\"",
        "must be 1MiB to 1024GiB: 1KiB",
        "\"1MiB\"",
    ),
    ("[store]\nbytes_max = -5", "not a size: -5", "\"1MiB\""),
    (
        "[store]\nlisten = \"0.0.0.0:11211\"",
        "without a password",
        "store.allow_remote = true",
    ),
    ("[limits]\nheader_timeout = 10", "needs a unit", "\"10s\""),
    (
        "[limits]\nheader_timeout = \"10\"",
        "needs a unit",
        "\"10ms\"",
    ),
    (
        "[limits]\nheader_timeout = \"0s\"",
        "must be 10ms to 1h: 0s",
        "\"1h\"",
    ),
    (
        "[limits]\ntarget_bytes_max = \"32k\"",
        "exceeds 16KiB: 32KiB",
        "part of the head",
    ),
    (
        "[store]\nitem_bytes_max = \"40m\"",
        "exceeds 32MiB: 40MiB",
        "at most half",
    ),
    (
        "[redis]\nurl = \"redis://a\"\n[publish]\ntoken = \"a-token-of-thirty-two-characters\"\n\
         value_bytes_max = \"20MiB\"",
        "exceeds 16MiB: 20MiB",
        "has to be read again",
    ),
    (
        "[memcached]\nservers = \"a\"",
        "no port",
        "\"cache-1:11211\"",
    ),
    (
        "[memcached]\nservers = \"a:0\"",
        "1 to 65535: `0`",
        "\"cache-1:11211\"",
    ),
    (
        "[memcached]\nservers = \"a:1=0\"",
        "not a number from 1 to 1000",
        "host:port=2",
    ),
    (
        "[memcached]\nservers = [{ weight = 2 }]",
        "no address",
        "address = \"host:port\"",
    ),
    (
        "[memcached]\nservers = [\"a:1\", \"a:1\"]",
        "named twice",
        "weight",
    ),
    (
        "[memcached]\nservers = [{ adress = \"a:1\" }]",
        "`adress`",
        "`address` and `weight`",
    ),
    (
        "[upstream]\nurl = \"127.0.0.1:3000\"",
        "no scheme",
        "\"http://127.0.0.1:3000\"",
    ),
    (
        "[upstream]\nurl = \"ftp://a\"",
        "neither http nor https: `ftp`",
        "http://",
    ),
    (
        "[upstream]\nurl = \"http://a\"\ntls_ca = \"a.pem\"",
        "`upstream.tls_ca` has no effect",
        "https://",
    ),
    (
        "[upstream]\nurl = \"https://a\"\ntls_key = \"a.pem\"",
        "`upstream.tls_certificate` and `upstream.tls_key` need one another",
        "its private key",
    ),
    (
        "[presence]\nwebhook_tls_server_name = \"a\"",
        "`presence.webhook_tls_server_name` has no effect",
        "https://",
    ),
    (
        "[upstream]\nurl = \"http://a/path\"",
        "ends after the port",
        "http://127.0.0.1:3000",
    ),
    (
        "[upstream]\nurl = \"http://localhost:8080/\"",
        "own `server.listen`",
        "different ports",
    ),
    (
        "[upstream]\nheader_timeout = \"2m\"",
        "exceeds 1m: 2m",
        "whole exchange",
    ),
    (
        "[server]\nadmin = \"127.0.0.1:8080\"",
        "both 127.0.0.1:8080",
        "its own port",
    ),
    (
        "[[route]]\nprefix = \"a/\"",
        "starts with a slash",
        "\"/a/\"",
    ),
    (
        "[[route]]\nprefix = \"/a?b\"",
        "no request path",
        "percent-encoded",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\nkey = \"x\"",
        "nothing of the request",
        "{path}",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\nmethods = [\"PUT\"]",
        "`PUT`",
        "\"HEAD\"",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\nmethods = []",
        "the list is empty",
        "\"HEAD\"",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\nempty = 204",
        "found a whole number",
        "\"204\"",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\nempty = \"205\"",
        "unknown value: `205`",
        "\"204\"",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\ncontent_type = \"text\"",
        "not a media type",
        "text/plain",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\nwait_default = \"1m\"",
        "exceeds 55s: 1m",
        "wait_max",
    ),
    (
        "[[route]]\nprefix = \"/a/\"\n[[route]]\nprefix = \"/a/\"",
        "two routes",
        "one of them",
    ),
    (
        "[log]\nlevel = \"verbose\"",
        "unknown value: `verbose`",
        "\"debug\"",
    ),
    (
        "[redis]\ncluster = \"redis://a\"\nurl = \"redis://a\"",
        "redis.url and redis.cluster exclude one another",
        "remove one of them",
    ),
    (
        "[redis]\ncluster = \"redis://a\"\nurl = \"unix:///a\"",
        "redis.url and redis.cluster exclude one another",
        "remove one of them",
    ),
    (
        "[redis]\ncluster = \"redis://a\"\nsentinels = \"redis://b\"\nsentinel_name = \"m\"",
        "redis.sentinels and redis.cluster exclude one another",
        "remove one of them",
    ),
    (
        "[redis]\ncluster = [\"redis://a\", \"unix:///a\"]",
        "no unix socket",
        "write a url such as",
    ),
    (
        "[redis]\ncluster = \"redis://a\"\ndatabase = 3",
        "a cluster has database 0 alone, not 3",
        "remove redis.database",
    ),
    (
        "[redis]\ncluster = [\"redis://a\", \"rediss://b\"]",
        "some servers of redis.cluster are reached under TLS",
        "rediss:// for all",
    ),
    (
        "[redis]\nsentinels = [\"redis://a\", \"rediss://b\"]\nsentinel_name = \"m\"\n\
         tls_server_name = \"r\"",
        "some servers of redis.sentinels are reached under TLS",
        "rediss:// for all",
    ),
    (
        "[redis]\ncluster = [\"redis://a\", \"rediss://b\"]\ntls_server_name = \"r\"",
        "some servers of redis.cluster are reached under TLS",
        "rediss:// for all",
    ),
    (
        "[redis]\ncluster = \"rediss://a\"",
        "under TLS `redis.cluster` needs `redis.tls_server_name`",
        "name what the certificates",
    ),
    ("[log]\naccess = \"\"", "the path is empty", "\"off\""),
];

#[test]
fn each_mistake_is_named_with_its_remedy() {
    for (text, message, help) in MISTAKES {
        let error = parse("dwell.toml", text, &[]).expect_err(text);
        let shown = error.to_string();
        assert_eq!(error.count(), 1, "{text}\n{shown}");
        assert!(shown.contains(message), "`{message}` is not in\n{shown}");
        let (_, remedy) = shown
            .rsplit_once("help: ")
            .expect("every mistake has a remedy");
        assert!(remedy.contains(help), "`{help}` is not in\n{shown}");
        assert!(shown.contains("--> dwell.toml:"), "{shown}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "[server]\npolers = 1\nadmin = 3\n[log]\nlevel = \"loud\"\n[[route]]\nkey = \"{\"\n";
    let flags = [flag("--upstream", "upstream.url", &["app:80"])];
    let error = parse("dwell.toml", text, &flags).expect_err("all of it is wrong");
    assert_eq!(error.count(), 6, "{error}");
    let shown = error.to_string();
    let places = [
        "toml:2:1",
        "toml:3:9",
        "toml:5:9",
        "toml:6:1",
        "toml:7:7",
        "--upstream app:80",
    ];
    let found: Vec<_> = places.iter().map(|place| shown.find(place)).collect();
    assert!(
        found.iter().all(Option::is_some) && found.is_sorted(),
        "{found:?}\n{shown}"
    );
}

#[test]
fn broken_toml_is_reported_with_the_mistakes_of_other_lines() {
    let text = "[server]\npollers = \n[limits]\nidle_timout = \"3s\"\n";
    let error = parse("dwell.toml", text, &[]).expect_err("all of it is wrong");
    let shown = error.to_string();
    assert_eq!(error.count(), 2, "{shown}");
    assert!(
        shown.contains("error: not TOML: ") && shown.contains("dwell.toml:2:"),
        "{shown}"
    );
    assert!(shown.contains("did you mean `idle_timeout`?"), "{shown}");
}

#[test]
fn a_flag_wins_over_the_file_and_replaces_a_list() {
    let text = "[server]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\npollers = 2\n";
    let flags = [
        flag("--listen", "server.listen", &["127.0.0.1:3"]),
        flag("--set", "server.pollers", &["8"]),
        flag("--set", "store.allow_remote", &["true"]),
        flag("--set", "limits.idle_timeout", &["5s"]),
        flag("--memcached", "memcached.servers", &["a:1", "b:2=5"]),
        flag("--access-log", "log.access", &["7"]),
    ];
    let config = parse("dwell.toml", text, &flags).expect("the configuration is right");
    assert_eq!(config.server.listen.len(), 1);
    assert_eq!(config.server.listen[0].port(), 3);
    assert_eq!(config.server.pollers, 8);
    assert!(config.store.allow_remote);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(5));
    let weights = config
        .memcached
        .servers
        .iter()
        .map(|server: &MemcachedServer| server.weight);
    assert_eq!(weights.collect::<Vec<_>>(), [1, 5]);
    assert_eq!(config.log.access, AccessTarget::File("7".into()));
}

#[test]
fn a_wrong_flag_is_named() {
    let shown = |option: &str, value: &str| errors("", &[flag("--set", option, &[value])]);
    let expected = "error: --set server.poller=9: unknown option: `server.poller`\n\
                    help: did you mean `server.pollers`?";
    assert_eq!(
        errors("", &[flag("--set", "server.poller", &["9"])]),
        expected
    );
    assert!(shown("route.key", "x").contains("set in a file"));
    assert!(shown("server.pollers", "many").contains("expected a whole number"));
    assert!(shown("nonsense", "1").contains("the sections are"));
    assert!(shown("limits.foo.bar", "1").contains("unknown option"));
    let exposed = errors("", &[flag("--store", "store.listen", &["0.0.0.0:11211"])]);
    assert!(
        exposed.starts_with("error: --store 0.0.0.0:11211: other machines"),
        "{exposed}"
    );
}

#[test]
fn prefixes_on_the_command_line_replace_routes_but_keep_their_options() {
    let text = "[[route]]\nprefix = \"/a/\"\nempty = \"204\"\n[[route]]\nprefix = \"/b/\"\n";
    let flags = [flag("--poll-prefix", "route.prefix", &["/c/", "/a/"])];
    let config = parse("dwell.toml", text, &flags).expect("the configuration is right");
    let routes: Vec<_> = config
        .routes
        .iter()
        .map(|route| (route.prefix.as_str(), route.empty))
        .collect();
    assert_eq!(
        routes,
        [("/c/", EmptyAnswer::Ok), ("/a/", EmptyAnswer::NoContent)]
    );
    let twice = [flag("--poll-prefix", "route.prefix", &["/c/", "/c/"])];
    assert!(errors(text, &twice).contains("--poll-prefix /c/: two routes"));
    let wrong = [flag("--poll-prefix", "route.prefix", &["c"])];
    assert!(errors(text, &wrong).contains("help: write \"/c\""));
}

#[test]
fn a_mistake_of_a_kept_route_keeps_its_place() {
    let text = "[[route]]\nprefix = \"/b/\"\n[[route]]\nprefix = \"/a/\"\nwait_default = \"1m\"\n";
    let flags = [flag("--poll-prefix", "route.prefix", &["/a/"])];
    assert!(errors(text, &flags).contains("dwell.toml:5:16"));
}

#[test]
fn a_conflict_with_an_unreadable_value_is_not_reported() {
    let text = "[[route]]\nprefix = \"/a/\"\nwait_default = \"1m\"\nwait_max = \"2x\"\n";
    let error = parse("dwell.toml", text, &[]).expect_err("wait_max is wrong");
    assert_eq!(error.count(), 1, "{error}");
}

#[test]
fn external_servers_leave_the_store_out_of_the_checks() {
    let text = "[store]\nlisten = \"0.0.0.0:8080\"\n[memcached]\nservers = \"a:1\"\n";
    assert!(parse("dwell.toml", text, &[]).is_ok());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load(Some(Path::new("no/such.toml")), &[]).expect_err("there is no such file");
    assert!(
        error
            .to_string()
            .starts_with("error: cannot read no/such.toml: "),
        "{error}"
    );
}

proptest! {
    #[test]
    fn no_text_panics(
        text in "(\\[{1,2}[a-z]{0,6}\\]{1,2}|[a-z_]{1,9} ?= ?.{0,9}|.{0,9}|\n){0,9}",
    ) {
        if let Err(error) = parse("dwell.toml", &text, &[]) {
            prop_assert!(error.count() > 0 && !error.render(true).is_empty());
        }
    }

    #[test]
    fn no_damage_to_a_good_file_panics(
        cut in 0_usize..5000,
        length in 0_usize..40,
        put in ".{0,3}",
    ) {
        let mut text = example_file();
        let (start, end) = (cut.min(text.len()), (cut + length).min(text.len()));
        text.replace_range(start..end, &put);
        if let Err(error) = parse("dwell.toml", &text, &[]) {
            prop_assert!(error.count() > 0 && !error.to_string().is_empty());
        }
    }
}
