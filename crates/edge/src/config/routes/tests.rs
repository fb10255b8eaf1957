use super::*;
use crate::config;

fn routes(prefixes: &[&str]) -> Config {
    let route = |prefix: &&str| Arc::new(RouteConfig::new(prefix));
    Config {
        routes: prefixes.iter().map(route).collect(),
        ..Config::default()
    }
}

fn replace(table: &mut Routes, prefixes: &[&str], held: &[RouteId]) {
    let in_use = table.in_use(held.iter().copied());
    table.replace(&routes(prefixes), in_use);
}

fn prefix(table: &Routes, id: RouteId) -> &str {
    &table.get(id).prefix
}

#[test]
fn the_routes_of_the_configuration_are_named_in_its_order() {
    let mut table = Routes::new(&routes(&["/long/", "/a/", "/b/"]));
    replace(&mut table, &["/other/", "/b/", "/a/"], &[]);
    for (index, expected) in ["/other/", "/b/", "/a/"].into_iter().enumerate() {
        assert_eq!(prefix(&table, table.id(index)), expected);
    }
    assert_eq!(table.by_id.len(), 3, "/other/ has the place of /long/");
}

#[test]
fn a_prefix_keeps_its_id_and_takes_its_new_options() {
    let mut table = Routes::new(&routes(&["/a/", "/b/"]));
    let (a, b) = (table.id(0), table.id(1));
    let mut changed = RouteConfig::new("/b/");
    changed.content_type = "a/b".to_owned();
    let in_use = table.in_use([a, b]);
    let mut config = routes(&[]);
    config.routes.push(Arc::new(changed));
    table.replace(&config, in_use);
    assert_eq!(table.id(0), b);
    assert_eq!(table.get(b).content_type, "a/b");
    assert_eq!((prefix(&table, a), table.is_current(a)), ("/a/", false));
    assert!(table.is_current(b));
}

#[test]
fn a_route_that_a_request_is_held_under_stays_until_the_last_is_gone() {
    let mut table = Routes::new(&routes(&["/a/", "/b/"]));
    let a = table.id(0);
    for name in ["/1/", "/2/", "/3/"] {
        replace(&mut table, &["/b/", name], &[a]);
        assert_eq!((prefix(&table, a), table.is_current(a)), ("/a/", false));
        assert_eq!(table.by_id.len(), 3);
    }
    replace(&mut table, &["/a/", "/b/"], &[a, a]);
    assert_eq!(table.id(0), a, "it is back");
    replace(&mut table, &["/b/"], &[a]);
    replace(&mut table, &["/b/", "/4/"], &[]);
    assert_eq!(table.id(1), a, "another route has its place");
}

#[test]
fn the_table_holds_no_more_than_is_in_use() {
    let mut table = Routes::new(&routes(&["/poll/"]));
    let mut held = vec![table.id(0)];
    for round in 0..100 {
        let names: Vec<String> = (0..=round % 7).map(|n| format!("/{round}.{n}/")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        replace(&mut table, &names, &held);
        assert!(table.by_id.len() <= 7 + 7 + held.len(), "{table:?}");
        assert_eq!(prefix(&table, held[0]), "/poll/");
        held.truncate(1);
        held.push(table.id(round % names.len()));
    }
    replace(&mut table, &["/poll/"], &[]);
    assert_eq!((table.by_id.len(), table.id(0)), (1, held[0]));
}

/// The index of the route for a path.
fn routed(text: &str, path: &str) -> Result<Option<usize>, Ambiguous> {
    let config = config::parse("test.toml", text, &[]).unwrap();
    let chosen = Routes::new(&config).choose(path)?;
    Ok(chosen.map(RouteId::index))
}

fn refused(text: &str, path: &str) -> bool {
    routed(text, path).is_err()
}

const GUARDED: &str = "[[route]]\nprefix = \"/me/\"\nrate_per_address = \"9/s\"\n\
                       [[route]]\nprefix = \"/poll/\"\n";

#[test]
fn a_path_that_may_be_read_as_a_guarded_one_is_refused() {
    for path in [
        "/%6de/x",
        "//me/x",
        "/x/../me/x",
        "/poll/..%2fme/x",
        "/poll/..;/me/x",
        "/poll\\..\\me\\x",
        // A guard that the application does not read is none.
        "/me/%2e%2e/x",
        "/me/..%2fpoll/x",
    ] {
        assert!(refused(GUARDED, path), "{path}");
    }
    let ambiguous = routed(GUARDED, "/poll/..%2fme/x").unwrap_err();
    assert_eq!(ambiguous.reading.as_deref(), Some("/me/x"));
    assert_eq!(ambiguous.prefix.as_deref(), Some("/me/"));
    let ambiguous = routed(GUARDED, "/me/%2e%2e/x").unwrap_err();
    assert_eq!(
        (ambiguous.reading.as_deref(), ambiguous.prefix),
        (Some("/x"), None)
    );
}

#[test]
fn a_path_that_stays_where_it_is_goes_there() {
    // The longest prefix is the first.
    for (path, route) in [
        ("/me/x", Some(1)),
        ("/me/a%2Fb//c/../d;v=1", Some(1)),
        ("/poll/%E4%BD%A0", Some(0)),
        ("/poll/./a", Some(0)),
        ("/x%2Fy/..", None),
        ("//x/y", None),
        ("*", None),
    ] {
        assert_eq!(routed(GUARDED, path), Ok(route), "{path}");
    }
}

#[test]
fn without_a_guard_every_path_goes_where_its_bytes_lead() {
    let open = "[[route]]\nprefix = \"/poll/\"\n[[route]]\nprefix = \"/poll/x/\"\n";
    for path in ["/poll/../x", "/%70oll/", "/poll/x%2f", "/poll/%00"] {
        assert!(!refused(open, path), "{path}");
    }
}

#[test]
fn whatever_a_route_asks_or_grants_is_a_guard() {
    let token = "[publish]\ntoken = \"3c1f0c5e9f6b4d1a\"\n";
    let keys = "[jwt]\nsecret_file = \"/dev/null\"\n[upstream]\nurl = \"http://127.0.0.1:1\"\n";
    for guard in [
        "jwt = true",
        "auth = \"/may\"",
        "rate_per_address = \"1/s\"",
        "rate_per_key = \"1/s\"",
        "rate_per_publisher = \"1/s\"\npublish = true",
        "publish = true",
        "cors_origins = \"*\"",
        "allowed_origins = [\"https://a.example\"]",
        "websocket_publish = true",
        "methods = [\"GET\"]",
    ] {
        let text = format!("{token}{keys}[[route]]\nprefix = \"/me/\"\n{guard}\n");
        assert!(refused(&text, "/%6de/x"), "{guard}");
    }
    let text = "[[route]]\nprefix = \"/me/\"\nwait_max = \"1s\"\n";
    assert!(!refused(text, "/%6de/x"));
}

#[test]
fn a_key_that_is_named_stays_below_its_route() {
    let text = "[[route]]\nprefix = \"/poll/\"\n[[route]]\nprefix = \"/poll/own/\"\n";
    let config = config::parse("test.toml", text, &[]).unwrap();
    let table = Routes::new(&config);
    let poll = table.choose("/poll/a").unwrap().unwrap();
    for path in [
        "/poll/a",
        "/poll/a%2Fb",
        "/poll//a",
        "/poll/a;b",
        "/poll/...",
        "/poll/%25",
    ] {
        assert_eq!(table.stays_below(poll, path), Ok(()), "{path}");
    }
    for path in [
        "/poll/own/a",
        "/poll/own%2fa",
        "/poll//own/a",
        "/poll/%6fwn/a",
        "/me",
    ] {
        assert_eq!(table.stays_below(poll, path), Err(OTHER_ROUTE), "{path}");
    }
    for path in [
        "/poll/../a",
        "/poll/a/..%2fb",
        "/poll/%2E/a",
        "/poll/a\\..\\b",
        "/poll/..",
    ] {
        assert_eq!(table.stays_below(poll, path), Err(DOT_SEGMENT), "{path}");
    }
}

#[test]
fn a_gone_route_goes_by_the_application_that_there_is_now() {
    let mut table = Routes::new(&routes(&["/a/", "/b/"]));
    let (a, b) = (table.id(0), table.id(1));
    assert!(!table.get(a).rules.has_upstream);
    let text = "[upstream]\nurl = \"http://127.0.0.1:1\"\n[[route]]\nprefix = \"/b/\"\n";
    let config = config::parse("test.toml", text, &[]).unwrap();
    let in_use = table.in_use([a, b]);
    table.replace(&config, in_use);
    assert!(table.get(a).rules.has_upstream && table.get(b).rules.has_upstream);
}
