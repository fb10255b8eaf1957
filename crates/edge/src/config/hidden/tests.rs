use super::*;
use crate::config::{FlagValue, parse};

/// A piece of every secret of these tests.
const PIECE: &str = "hunter";

/// Everything that a report may show of a text and its flags; empty if there is no mistake.
fn shown(text: &str, flags: &[FlagValue]) -> String {
    let Err(error) = parse("dwell.toml", text, flags) else {
        return String::new();
    };
    let mistakes: Vec<_> = error.mistakes().collect();
    format!(
        "{}
{mistakes:?}",
        error.render(false)
    )
}

/// Checks that there is a mistake, and that its report has no secret.
fn is_kept(text: &str, flags: &[FlagValue]) {
    let shown = is_kept_if_wrong(text, flags);
    assert!(!shown.is_empty(), "{text}\n{flags:?}");
}

fn is_kept_if_wrong(text: &str, flags: &[FlagValue]) -> String {
    let shown = shown(text, flags);
    assert!(!shown.contains(PIECE), "{text}\n{flags:?}\n{shown}");
    shown
}

/// The section and name of every secret option.
fn secrets() -> Vec<(&'static str, &'static str)> {
    let once = single_options().filter(|spec| spec.is_secret);
    let once = once.map(|spec| (spec.section, spec.name));
    let of_routes = ROUTE_OPTIONS.iter().filter(|spec| spec.is_secret);
    let all: Vec<_> = once
        .chain(of_routes.map(|spec| (spec.section, spec.name)))
        .collect();
    assert!(all.len() >= 2);
    all
}

/// The options that have an address in which somebody may write a password.
fn addresses() -> Vec<(&'static str, &'static str)> {
    let once = single_options().filter(|spec| (spec.describe)().contains("host:port"));
    let all: Vec<_> = once.map(|spec| (spec.section, spec.name)).collect();
    assert!(all.len() >= 6);
    all
}

/// Values of which none is right.
const WRONG_SECRETS: &[&str] = &[
    "\"hunter2\"",
    "\"hunter2 hunter2 hunter2 hunter2\"",
    "[\"hunter2\"]",
    "[\"0123456789abcdef\", \"hunter2\"]",
    "[\n  \"hunter2\",\n  \"0123456789abcdef\"\n]",
    "[\"0123456789abcdef\", \"0123456789hunter2\", 3]",
    "{ value = \"hunter2\" }",
    "[{ value = \"hunter2\" }]",
    "'hunter2'",
    "\"\"\"\nhunter2\"\"\"",
    "hunter2",
    "\"hunter2",
    "\"0123456789hunter2\" x",
    "\"0123456789hunter2\"\ntoken = \"0123456789hunter2\"\nwebhook_token = 1\nwebhook_token = 1",
    "[\n  \"0123456789hunter2\",\n  \"abc=hunter2=\n]",
];

#[test]
fn no_mistake_shows_a_secret_of_the_file() {
    for (section, name) in secrets() {
        for value in WRONG_SECRETS {
            let full = format!("[{section}]\n{name} = {value}\n");
            assert!(!shown(&full, &[]).is_empty(), "{full}");
            is_kept(&full, &[]);
            is_kept(&format!("{section} = {{ x = 1, {name} = {value} }}\n"), &[]);
            is_kept(
                &format!("{section}.{name} = {value}\n{section}.x = 1\n"),
                &[],
            );
            is_kept(&format!("[server]\nlisten = 3\n{name} = {value}\n"), &[]);
            is_kept(&format!("{name} = {value}\n"), &[]);
            is_kept(&format!("[[{section}]]\n{name} = {value}\n"), &[]);
            is_kept(&format!("nothing.{section}.{name} = {value}\n"), &[]);
            is_kept(&format!("[route]\n{name} = {value}\n"), &[]);
        }
    }
}

#[test]
fn no_mistake_shows_the_secret_of_a_misspelt_option() {
    let mut names: Vec<String> = ["password", "passwd", "PASSWORD", "webhook_pass", "secret"]
        .map(str::to_owned)
        .to_vec();
    for (_, name) in secrets() {
        for at in 0..name.len() {
            names.push(format!("{}{}", &name[..at], &name[at + 1..]));
            names.push(format!("{}x{}", &name[..at], &name[at..]));
        }
    }
    for section in ["publish", "presence", "jwt", "redis", "route", "nothing"] {
        for name in names.iter().filter(|name| !name.is_empty()) {
            is_kept(&format!("[{section}]\n{name} = \"hunter2\"\n"), &[]);
            is_kept(&format!("{section}.{name} = \"hunter2\"\n"), &[]);
            is_kept(&format!("[[{section}]]\n{name} = \"hunter2\"\n"), &[]);
            is_kept(
                "",
                &[flag("--set", &format!("{section}.{name}"), "hunter2")],
            );
        }
    }
}

#[test]
fn no_broken_file_shows_a_secret() {
    for (section, name) in secrets() {
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:1\"\n[{section}]\n{name} = [\n  \
             \"hunter-hunter-one\",\n  \"hunter-hunter-two=\" ]\n[limits]\nwaiters_max = 3\n"
        );
        for at in 0..text.len() {
            is_kept_if_wrong(&text[..at], &[]);
            is_kept_if_wrong(&format!("{}{}", &text[..at], &text[at + 1..]), &[]);
            for added in ["\"", "\n"] {
                is_kept_if_wrong(&format!("{}{added}{}", &text[..at], &text[at..]), &[]);
            }
        }
    }
}

#[test]
fn no_mistake_shows_a_secret_of_a_flag_or_variable() {
    for (section, name) in secrets() {
        let option = format!("{section}.{name}");
        for value in ["hunter2", "hunter2 hunter2 hunter2", "[hunter2", ""] {
            for from in ["--set", "DWELL_SOMETHING", "--token"] {
                let flags = [flag(from, &option, value)];
                assert!(!shown("", &flags).is_empty(), "{option}");
                is_kept("", &flags);
            }
        }
        // It is right, and another option wrong.
        let (secret, wrong) = ("0123456789-hunter2", flag("--set", "server.listen", "x"));
        is_kept("", &[flag("--set", &option, secret), wrong]);
    }
}

#[test]
fn no_mistake_shows_the_password_of_a_url() {
    for (section, name) in addresses() {
        for url in [
            "redis://user:hunter2@cache:6379",
            "redis://:hunter2@cache",
            "redis://:hunt@hunter2@cache",
            "http://user:hunter2@app/path",
            "http://user:hun/hunter2@app",
            "ftp://user:hunter2@app:x",
            "rediss://user:hunter2 hunter2@cache",
            "unix://user:hunter2@/run/redis.sock",
            "user:hunter2@cache:11211",
            "user:hunter2@cache",
            ":hunter2@cache:11211",
            "http://hunter2@app",
            "redis://user:ab`hunter2@cache",
        ] {
            for quoted in [format!("\"{url}\""), format!("'{url}'"), url.to_owned()] {
                let one = format!("[{section}]\n{name} = {quoted}\n");
                assert!(!shown(&one, &[]).is_empty(), "{one}");
                is_kept(&one, &[]);
                is_kept(&format!("[{section}]\n{name} = [{quoted}, 3]\n"), &[]);
                let table = format!("[{section}]\n{name} = {{ address = {quoted} }}\n");
                is_kept(&table, &[]);
                is_kept(&format!("[{section}]\nx = 1\n{name} = {quoted} x\n"), &[]);
            }
            for from in ["--set", "--redis", "DWELL_REDIS_URL"] {
                is_kept("", &[flag(from, &format!("{section}.{name}"), url)]);
            }
        }
    }
}

#[test]
fn no_mistake_shows_the_token_in_a_query() {
    let paths = [
        ("presence", "webhook_path"),
        ("upstream", "health_path"),
        ("route", "prefix"),
    ];
    for (section, name) in addresses().into_iter().chain(paths) {
        for url in [
            "http://app/hook?token=hunter2",
            "http://app?a=1&token=hunter2 hunter2",
            "ftp://app/hook?x-key=hunter'2",
            "hook?token=hunter2",
            "/hook?token=hunter2#\u{e9}",
            "/hook?v2&token=hunter2",
            "/hook?hunter2",
            "/hook?\u{e9}hunter2",
            "/hook?a+b=hunter2",
            "/hook?a:b=hunter2",
            "/hook?? token=hunter2",
            "/hook?\\u0074oken=hunter2",
            "/hook\\u003Ftoken=hunter2",
            "/hook?a\\nhunter2",
            "/hook?\\\"hunter2",
            "/it's?token=ab'hunter2",
            "/it's'?token=ab'hunter2",
            "/i`t?token=ab`hunter2",
            "/it\"s?token=ab\"hunter2",
            "'/it's?token=ab'hunter2",
        ] {
            for quoted in [
                format!("\"{url}\""),
                format!("'{url}'"),
                format!("\"\"\"{url}\"\"\""),
                format!("\"\"\"\n{url}\"\"\""),
                url.to_owned(),
            ] {
                let header = if section == "route" {
                    "[[route]]"
                } else {
                    &format!("[{section}]")
                };
                is_kept(&format!("{header}\n{name} = {quoted}\n"), &[]);
                is_kept(&format!("{header}\n{name} = [{quoted}, 3]\n"), &[]);
                is_kept(&format!("{header}\n{name} = [\n{quoted},\n[]]\n"), &[]);
                is_kept(&format!("{header}\nx = 1\n{name} = {quoted} x\n"), &[]);
            }
            for from in ["--set", "--upstream", "DWELL_PRESENCE_WEBHOOK_PATH"] {
                is_kept("", &[flag(from, &format!("{section}.{name}"), url)]);
            }
        }
    }
}

#[test]
fn what_is_beside_a_query_is_shown() {
    for (line, shown) in [
        (
            "\"/hook?token=hunter2\"  # why?",
            "\"/hook?(hidden)\"  # why?",
        ),
        (
            "\"/it's?a=b'c\"  # why? because",
            "\"/it's?(hidden)\"  # why? because",
        ),
        (
            "\"/a?b\\\"c\"  # it's why? ok",
            "\"/a?(hidden)\"  # it's why? ok",
        ),
        (
            "'/a\"?b\"c'  # \"why\"? ok",
            "'/a\"?(hidden)'  # \"why\"? ok",
        ),
    ] {
        let text = format!("[presence]\nwebhook_path = {line}\n");
        let error = parse("dwell.toml", &text, &[]).expect_err("it has a query");
        let (error, shown) = (error.to_string(), format!("webhook_path = {shown}\n"));
        assert!(error.contains(&shown), "{error}");
    }
    let text = "[[route]]\nprefix = \"/a?hunter2\"\n";
    let error = parse("dwell.toml", text, &[]).expect_err("it has a query");
    let expected = "no request path starts with `/a?(hidden)`\n";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn the_rest_of_the_line_is_shown() {
    let expected = "\
error: a token has 16 to 256 characters
 --> dwell.toml:2:9
  |
2 | token = (hidden)  # short
  |         ^^^^^^^^
  |
  = help: `openssl rand -hex 32` makes one";
    let text = "[publish]\ntoken = \"hunter2\"  # short\n";
    let error = parse("dwell.toml", text, &[]).expect_err("it is too short");
    assert_eq!(error.to_string(), expected);

    let text = "[redis]\nurl = \"redis://user:hunter2@cache\"\n";
    let error = parse("dwell.toml", text, &[]).expect_err("it has a password");
    let rendered = error.to_string();
    assert!(
        rendered.contains("2 | url = \"redis://(hidden)@cache\"\n"),
        "{rendered}"
    );
    assert!(
        rendered.contains("  |       ^^^^^^^^^^^^^^^^^^^^^^^^\n"),
        "{rendered}"
    );

    let flags = [flag("--redis", "redis.url", "redis://user:hunter2@cache")];
    let error = parse("dwell.toml", "", &flags).expect_err("it has a password");
    let rendered = error.to_string();
    assert!(
        rendered.contains("--redis redis://(hidden)@cache: "),
        "{rendered}"
    );
}

#[test]
fn a_value_that_is_no_secret_is_shown() {
    for text in [
        "[server]\nlistn = \"127.0.0.1:80\"\n",
        "listen = \"127.0.0.1:80\"\n",
        "[server]\nlisten = 127.0.0.1:80\n",
        "[publish]\nclients = \"127.0.0.1:80\"\n",
        "[server]\nadmin_hosts = \"a@127.0.0.1:80 /\"\n",
    ] {
        let shown = shown(text, &[]);
        assert!(shown.contains("127.0.0.1:80"), "{text}\n{shown}");
    }
}

#[test]
fn marks_move_with_what_is_hidden_before_them() {
    let text = "x\nabc SECRET def SECRETS ghi\n";
    let mut hidden = HiddenParts::default();
    hidden.spans.extend([6..12, 17..24, 8..12]);
    let line = |mark: Range<usize>| {
        let line = hidden.line(text, &mark).expect("a part is hidden");
        assert_eq!(
            (line.number, line.text.as_str()),
            (2, "abc (hidden) def (hidden) ghi")
        );
        line.text[line.mark].to_owned()
    };
    assert_eq!(line(2..5), "abc");
    assert_eq!(line(13..16), "def");
    assert_eq!(line(25..28), "ghi");
    assert_eq!(line(6..12), "(hidden)");
    assert_eq!(line(8..10), "(hidden)");
    assert_eq!(line(14..20), "ef (hidden)");
    assert_eq!(hidden.line(text, &(0..1)), None);
}

fn flag(flag: &str, option: &str, value: &str) -> FlagValue {
    FlagValue {
        flag: flag.to_owned(),
        option: option.to_owned(),
        values: vec![value.to_owned()],
    }
}
