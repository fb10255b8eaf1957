//! Commands against a server that follows a script: what is asked, shown, and returned.

use super::*;
use crate::cli::{Command, CommandLine};
use clap::Parser;
use clap::error::ErrorKind;
use dwell_testkit::{Script, ScriptedServer, free_port};

fn parsed(words: &[&str]) -> Result<McArguments, clap::Error> {
    let all = ["dwell", "mc"].iter().chain(words);
    match CommandLine::try_parse_from(all)?.command {
        Command::Mc(arguments) => Ok(arguments),
        other => panic!("not mc: {other:?}"),
    }
}

/// The end of a command: its exit status, its output and its errors.
#[derive(Debug, PartialEq)]
struct Ended(u8, String, String);

/// Runs a command with these words and this standard input.
fn mc(words: &[&str], input: &[u8]) -> Ended {
    let arguments = parsed(words).expect("the words are right");
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let status = status(&arguments, input, &mut out, &mut errors);
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    Ended(status, text(out), text(errors))
}

/// Runs a command against servers that follow these scripts. Waits until each has ended.
fn mc_with(scripts: Vec<Script>, words: &[&str], input: &[u8]) -> Ended {
    let servers: Vec<_> = scripts
        .into_iter()
        .map(|script| ScriptedServer::start([script]))
        .collect();
    let addresses: Vec<_> = servers.iter().map(|it| it.address().to_string()).collect();
    let mut all = vec!["--timeout", "20s"];
    for address in &addresses {
        all.extend(["--server", address]);
    }
    all.extend(words);
    let mut ended = mc(&all, input);
    for (index, address) in addresses.iter().enumerate() {
        for text in [&mut ended.1, &mut ended.2] {
            *text = text.replace(address, &format!("server-{index}"));
        }
    }
    servers.into_iter().for_each(ScriptedServer::finish);
    ended
}

/// A reply to one request, word for word.
fn reply(request: &str, reply: &str) -> Script {
    Script::new().expect(request).send(reply)
}

/// A row: the words, what the server is sent, its reply, the exit status, and the output.
type Row = (&'static str, &'static str, &'static str, u8, &'static str);

#[track_caller]
fn check(rows: &[Row]) {
    for (words, request, answer, status, out) in rows {
        let words: Vec<_> = words.split(' ').collect();
        let ended = mc_with(vec![reply(request, answer)], &words, b"\0piped\n");
        let expected = Ended(*status, (*out).to_owned(), String::new());
        assert_eq!(ended, expected, "{words:?}");
    }
}

#[test]
fn values_are_shown_and_misses_are_not() {
    check(&[
        (
            "get a",
            "get a\r\n",
            "VALUE a 0 2\r\n12\r\nEND\r\n",
            0,
            "12\n",
        ),
        ("get a", "get a\r\n", "END\r\n", 1, ""),
        (
            "get --raw a",
            "get a\r\n",
            "VALUE a 0 2\r\n12\r\nEND\r\n",
            0,
            "12",
        ),
        ("get --raw a", "get a\r\n", "END\r\n", 1, ""),
        (
            "gets a",
            "gets a\r\n",
            "VALUE a 5 1 77\r\nx\r\nEND\r\n",
            0,
            "flags 5, cas unique 77\nx\n",
        ),
        ("gets a", "gets a\r\n", "END\r\n", 1, ""),
        (
            "meta a",
            "me a\r\n",
            "ME a exp=-1 la=2 cas=3\r\n",
            0,
            "exp -1\nla 2\ncas 3\n",
        ),
        ("meta a", "me a\r\n", "EN\r\n", 1, ""),
    ]);
}

#[test]
fn values_are_stored_as_the_flags_want() {
    check(&[
        ("set a 1", "set a 0 0 1\r\n1\r\n", "STORED\r\n", 0, ""),
        (
            "set a -",
            "set a 0 0 7\r\n\0piped\n\r\n",
            "STORED\r\n",
            0,
            "",
        ),
        (
            "set a 1 --ttl 1m --flags 9",
            "set a 9 60 1\r\n1\r\n",
            "STORED\r\n",
            0,
            "",
        ),
        (
            "set a 1 --ttl 0s",
            "set a 0 0 1\r\n1\r\n",
            "STORED\r\n",
            0,
            "",
        ),
        ("add a 1", "add a 0 0 1\r\n1\r\n", "STORED\r\n", 0, ""),
        (
            "add a -",
            "add a 0 0 7\r\n\0piped\n\r\n",
            "NOT_STORED\r\n",
            1,
            "",
        ),
        (
            "replace a 1",
            "replace a 0 0 1\r\n1\r\n",
            "STORED\r\n",
            0,
            "",
        ),
        (
            "replace a 1",
            "replace a 0 0 1\r\n1\r\n",
            "NOT_STORED\r\n",
            1,
            "",
        ),
    ]);
}

#[test]
fn values_are_changed_only_where_they_are_what_was_meant() {
    check(&[
        (
            "append a bc",
            "append a 0 0 2\r\nbc\r\n",
            "STORED\r\n",
            0,
            "",
        ),
        (
            "append a bc",
            "append a 0 0 2\r\nbc\r\n",
            "NOT_STORED\r\n",
            1,
            "",
        ),
        (
            "prepend a bc",
            "prepend a 0 0 2\r\nbc\r\n",
            "STORED\r\n",
            0,
            "",
        ),
        ("cas 77 a 1", "cas a 0 0 1 77\r\n1\r\n", "STORED\r\n", 0, ""),
        ("cas 77 a 1", "cas a 0 0 1 77\r\n1\r\n", "EXISTS\r\n", 1, ""),
        (
            "cas 77 a 1",
            "cas a 0 0 1 77\r\n1\r\n",
            "NOT_FOUND\r\n",
            1,
            "",
        ),
    ]);
}

#[test]
fn items_are_counted_touched_and_deleted() {
    check(&[
        ("incr a 4", "incr a 4\r\n", "5\r\n", 0, "5\n"),
        ("incr a", "incr a 1\r\n", "2\r\n", 0, "2\n"),
        ("incr a", "incr a 1\r\n", "NOT_FOUND\r\n", 1, ""),
        ("decr a 4", "decr a 4\r\n", "0\r\n", 0, "0\n"),
        ("decr a", "decr a 1\r\n", "NOT_FOUND\r\n", 1, ""),
        ("touch a 60s", "touch a 60\r\n", "TOUCHED\r\n", 0, ""),
        ("touch a 0s", "touch a 0\r\n", "NOT_FOUND\r\n", 1, ""),
        ("delete a", "delete a\r\n", "DELETED\r\n", 0, ""),
        ("delete a", "delete a\r\n", "NOT_FOUND\r\n", 1, ""),
    ]);
}

#[test]
fn servers_are_shown_with_their_names() {
    check(&[
        (
            "version",
            "version\r\n",
            "VERSION 1.6.1\r\n",
            0,
            "server-0\t1.6.1\n",
        ),
        (
            "stats",
            "stats\r\n",
            "STAT pid 7\r\nSTAT uptime 8\r\nEND\r\n",
            0,
            "server-0\tpid\t7\nserver-0\tuptime\t8\n",
        ),
        (
            "stats items",
            "stats items\r\n",
            "STAT items:1:number 2\r\nEND\r\n",
            0,
            "server-0\titems:1:number\t2\n",
        ),
        (
            "flush-all",
            "flush_all\r\n",
            "OK\r\n",
            0,
            "server-0\tflushed\n",
        ),
        (
            "flush-all 1m",
            "flush_all 60\r\n",
            "OK\r\n",
            0,
            "server-0\tflushed\n",
        ),
    ]);
    let Ended(status, out, errors) = mc_with(
        vec![reply("version\r\n", "VERSION 1.6.1\r\n")],
        &["ping"],
        b"",
    );
    assert_eq!((status, &*errors), (0, ""));
    let time = out.strip_prefix("server-0\t1.6.1\t").expect("a server");
    let time = time.strip_suffix(" us\n").expect("a time");
    assert!(time.parse::<u64>().is_ok(), "{out}");
}

#[test]
fn a_server_that_fails_does_not_hide_the_others() {
    let scripts = vec![
        reply("version\r\n", "SERVER_ERROR no\r\n"),
        reply("version\r\n", "VERSION 1.6.1\r\n"),
    ];
    let Ended(status, out, errors) = mc_with(scripts, &["version"], b"");
    assert_eq!((status, &*out), (3, "server-1\t1.6.1\n"));
    assert!(
        errors.contains("server-0") && errors.contains("SERVER_ERROR no"),
        "{errors}"
    );
}

#[test]
fn several_keys_are_shown_with_their_names() {
    let found = "VALUE b 0 1\r\n5\r\nVALUE a 0 1\r\n6\r\nEND\r\n";
    check(&[
        ("get b none a", "get b none a\r\n", found, 1, "b\t5\na\t6\n"),
        ("get b a", "get b a\r\n", found, 0, "b\t5\na\t6\n"),
        ("get none n", "get none n\r\n", "END\r\n", 1, ""),
    ]);
}

#[test]
fn an_error_is_one_line_with_its_causes() {
    let refused = |reply: &'static str| {
        let script = Script::new().expect("get a\r\n").send(reply);
        mc_with(vec![script], &["get", "a"], b"")
    };
    let Ended(status, out, errors) = refused("SERVER_ERROR out of memory\r\n");
    assert_eq!((status, &*out), (3, ""));
    assert!(errors.starts_with("dwell mc: get on server-0"), "{errors}");
    assert!(errors.ends_with("SERVER_ERROR out of memory\n"), "{errors}");
    assert_eq!(errors.lines().count(), 1);
    let address = format!("127.0.0.1:{}", free_port());
    for words in [&["get", "a"][..], &["get", "a", "b"], &["set", "a", "1"]] {
        let words = [&["--server", &*address], words].concat();
        let Ended(status, out, errors) = mc(&words, b"");
        assert_eq!((status, &*out, errors.lines().count()), (3, "", 1));
        assert!(errors.starts_with("dwell mc: "), "{errors}");
        assert!(
            errors.contains("Connection refused"),
            "the cause of causes: {errors}"
        );
    }
    let long = "a".repeat(251);
    assert_eq!(mc(&["--server", &address, "get", &long], b"").0, 3);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    struct Full;

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::Error::other("no space is left"))
        }
    }

    let arguments = parsed(&["where", "a"]).expect("the words are right");
    let mut errors = Vec::new();
    assert_eq!(status(&arguments, io::empty(), Full, &mut errors), 3);
    assert_eq!(errors, b"dwell mc: no space is left\n");
}

#[test]
fn no_server_is_asked_where_a_key_is() {
    let servers = ["127.0.0.1:1=1", "127.0.0.1:2=3"];
    let keys = ["a", "b", "c", "d", "e", "f"];
    let ask = |ring: &str| {
        let mut words = vec!["--distribution", ring];
        for server in servers {
            words.extend(["--server", server]);
        }
        words.push("where");
        words.extend(keys);
        let Ended(status, out, errors) = mc(&words, b"");
        assert_eq!((status, &*errors), (0, ""));
        let lines: Vec<_> = out
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .collect();
        assert_eq!(lines.iter().map(|line| line.0).collect::<Vec<_>>(), keys);
        let count = |name| lines.iter().filter(|line| line.1.starts_with(name)).count();
        let counts = (count("127.0.0.1:1"), count("127.0.0.1:2"));
        assert_eq!(counts.0 + counts.1, keys.len(), "{out}");
        counts
    };
    assert_ne!(
        ask("modula"),
        ask("ketama_weighted"),
        "each ring is another"
    );
}

#[test]
fn the_words_reach_the_client() {
    let debug = |words: &[&str]| format!("{:?}", parsed(words).expect("the words are right"));
    let default = debug(&["version"]);
    assert!(default.contains("timeout: 500ms"), "{default}");
    for (words, field) in [
        (&["-t", "2s", "version"][..], "timeout: 2s"),
        (&["--timeouts", "strict", "version"], "timeouts: Strict"),
        (&["--timeouts", "reaper", "version"], "timeouts: Reaper"),
        (&["--protocol", "meta", "version"], "protocol: Meta"),
        (
            &["bench", "-n", "8", "--threads", "2"],
            "operations: 8, threads: 2",
        ),
    ] {
        assert!(
            debug(words).contains(field) && !default.contains(field),
            "{words:?}"
        );
    }
    let script = Script::new().expect("mg a ").read_until("\r\n");
    let words = ["--protocol", "meta", "get", "a"];
    let miss = Ended(1, String::new(), String::new());
    assert_eq!(mc_with(vec![script.send("EN\r\n")], &words, b""), miss);
}

#[test]
fn wrong_words_are_refused() {
    for (words, kind) in [
        (&["get"][..], ErrorKind::MissingRequiredArgument),
        (&["set", "a"], ErrorKind::MissingRequiredArgument),
        (&["get", "--none", "a"], ErrorKind::UnknownArgument),
        (&["none"], ErrorKind::InvalidSubcommand),
        (&["incr", "a", "x"], ErrorKind::ValueValidation),
        (&["touch", "a", "soon"], ErrorKind::ValueValidation),
        (&["--timeout", "5", "version"], ErrorKind::ValueValidation),
        (
            &["--server", "host:port", "version"],
            ErrorKind::ValueValidation,
        ),
        (
            &["--distribution", "round", "version"],
            ErrorKind::ValueValidation,
        ),
        (
            &["--protocol", "binary", "version"],
            ErrorKind::InvalidValue,
        ),
        (&["bench", "--threads", "0"], ErrorKind::ValueValidation),
    ] {
        let error = parsed(words).expect_err("the words are wrong");
        assert_eq!((error.kind(), error.exit_code()), (kind, 2), "{words:?}");
    }
}

#[test]
fn a_bench_sets_and_gets_by_turns_and_fails_with_its_server() {
    let work = Script::new()
        .expect("set dwell-mc-bench:0:0 0 60 2\r\nxx\r\n")
        .send("STORED\r\n")
        .expect("get dwell-mc-bench:0:0\r\n")
        .send("VALUE dwell-mc-bench:0:0 0 2\r\nxx\r\nEND\r\n")
        .expect("set dwell-mc-bench:0:1 0 60 2\r\nxx\r\n");
    let words = ["bench", "--operations", "4", "--value-bytes", "2"];
    let well = work
        .clone()
        .send("STORED\r\n")
        .expect("get dwell-mc-bench:0:1\r\n");
    let Ended(status, out, errors) = mc_with(vec![well.send("END\r\n")], &words, b"");
    assert_eq!((status, &*errors), (0, ""));
    assert!(out.starts_with("operations\t4\nper second\t"), "{out}");
    let ill = work.send("SERVER_ERROR out of memory\r\n");
    let Ended(status, out, errors) = mc_with(vec![ill], &words, b"");
    assert_eq!((status, &*out), (3, ""));
    assert!(errors.contains("out of memory"), "{errors}");
}
