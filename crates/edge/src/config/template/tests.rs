//! Templates of keys, as they are written and rendered.

use super::*;
use proptest::prelude::*;

fn template(text: &str) -> KeyTemplate {
    text.parse().expect("the template is right")
}

/// Renders against `GET /poll/a?user=x%20y&user=z&empty= HTTP/1.1` with two fields.
fn key(text: &str) -> Result<String, KeyError> {
    let header = |name: &str| match name.to_ascii_lowercase().as_str() {
        "cookie" => Some(&b"a=1; id=\"7\"; id=8;id2=9"[..]),
        "x-user" => Some(&b"bob"[..]),
        "x-space" => Some(&b"b b"[..]),
        _ => None,
    };
    let query = Some("user=x%2By&user=z&empty=&space=x+y");
    let mut scratch = b"left over".to_vec();
    let key = template(text).render("/poll/a", query, &header, &mut scratch)?;
    Ok(String::from_utf8(key.to_vec()).expect("the parts are text"))
}

#[test]
fn each_part_is_found() {
    assert_eq!(key("{path}").as_deref(), Ok("/poll/a"));
    assert_eq!(key("{query.user}").as_deref(), Ok("x+y"));
    assert_eq!(
        key("u:{header.X-User}/{cookie.id2}").as_deref(),
        Ok("u:bob/9")
    );
    assert_eq!(key("{cookie.id}").as_deref(), Ok("\"7\""));
    assert_eq!(key("{path}{query.empty}").as_deref(), Ok("/poll/a"));
}

#[test]
fn the_scheme_is_asked_for() {
    struct Secure;
    impl Requested<'_> for Secure {
        fn header(&self, _: &str) -> Option<&'static [u8]> {
            None
        }

        fn scheme(&self) -> Option<&str> {
            Some("https")
        }
    }
    let (by_scheme, mut scratch) = (template("{scheme}:{path}"), Vec::new());
    let key = by_scheme.render("/poll/a", None, &Secure, &mut scratch);
    assert_eq!(key, Ok(&b"https:/poll/a"[..]));
    assert!(by_scheme.takes_path() && !by_scheme.is_path());
    assert_eq!(by_scheme.to_string(), "{scheme}:{path}");
}

/// A client of this common name and alternative name.
struct Certified(&'static str, Option<&'static str>);

impl Requested<'_> for Certified {
    fn header(&self, _: &str) -> Option<&'static [u8]> {
        None
    }

    fn client_name(&self, part: ClientPart) -> Option<&str> {
        match part {
            ClientPart::CommonName => Some(self.0),
            ClientPart::AlternativeName => self.1,
        }
    }
}

#[test]
fn a_name_of_a_certificate_makes_no_key_of_another_one() {
    let key = |text: &str, client: Certified| {
        let mut scratch = Vec::new();
        let key = template(text).render("/p", Some("q=x:b"), &client, &mut scratch);
        key.map(|key| String::from_utf8_lossy(key).into_owned())
    };
    let cn = |text: &str, name| key(text, Certified(name, None));
    assert_eq!(cn("in:{tls.client.cn}", "a:b").as_deref(), Ok("in:a:b"));
    assert_eq!(cn("{tls.client.cn}:in", "a:b").as_deref(), Ok("a:b:in"));
    assert_eq!(
        cn("in:{tls.client.cn}:{query.q}", "a").as_deref(),
        Ok("in:a:x:b")
    );
    for text in ["in:{tls.client.cn}:{query.q}", "{query.q}:{tls.client.cn}"] {
        assert_eq!(cn(text, "a:x"), Err(KeyError::Separator(':')), "{text}");
    }
    assert_eq!(cn("{tls.client.cn}", "a b"), Err(KeyError::Forbidden(b' ')));
    assert_eq!(cn("{tls.client.cn}", "a\0"), Err(KeyError::Forbidden(0)));
    assert_eq!(cn("{tls.client.san}", "a"), Err(KeyError::Missing));
    let both = key(
        "{tls.client.cn}|{tls.client.san}",
        Certified("a", Some("b:c")),
    );
    assert_eq!(both.as_deref(), Ok("a|b:c"));
}

#[test]
fn a_name_of_a_certificate_stands_apart_and_is_no_user() {
    let by_name = template("in:{tls.client.cn}/{tls.client.san}");
    assert!(by_name.takes_client() && !by_name.is_of_identity());
    assert_eq!(by_name.to_string(), "in:{tls.client.cn}/{tls.client.san}");
    assert!(!by_name.has_client_without_separator());
    for text in ["{tls.client.cn}{path}", "{path}{tls.client.san}"] {
        assert!(template(text).has_client_without_separator(), "{text}");
    }
    assert!(!template("{path}{query.a}:{tls.client.cn}").has_client_without_separator());
    for text in [
        "{query.a}:{tls.client.cn}:{query.b}",
        "{path}|{tls.client.san}|{tls.client.cn}|{uri}",
    ] {
        assert!(template(text).has_client_between_chosen(), "{text}");
    }
    for text in [
        "{scheme}:{tls.client.cn}:{query.b}",
        "{tls.client.cn}:{path}:{tls.client.san}",
        "in:{query.a}:{tls.client.cn}",
    ] {
        assert!(!template(text).has_client_between_chosen(), "{text}");
    }
    let unknown = "{tls.client.ou}".parse::<KeyTemplate>();
    assert_eq!(
        unknown,
        Err(TemplateError::Part("tls.client.ou".to_owned()))
    );
}

#[test]
fn the_uri_is_what_nginx_has_for_a_key() {
    let key = |path: &str| {
        let mut scratch = Vec::new();
        let key = template("{uri}").render(path, None, &|_: &str| None, &mut scratch);
        key.map(|key| String::from_utf8_lossy(key).into_owned())
    };
    for (path, expected) in [
        ("/Poll/alice", "/Poll/alice"),
        ("/Poll/a%20b", "/Poll/a%20b"),
        ("/Poll/%E4%BD%A0", "/Poll/\u{4f60}"),
        ("/Poll//a/b", "/Poll/a/b"),
        ("/Poll/c%2Cd", "/Poll/c,d"),
        ("/Poll/x/../alice", "/Poll/alice"),
        ("/Poll/%0d%0aflush_all", "/Poll/%0D%0Aflush_all"),
        ("/Poll/100%25", "/Poll/100%25"),
        ("/Poll/%7f", "/Poll/%7F"),
    ] {
        assert_eq!(key(path).as_deref(), Ok(expected), "{path}");
    }
    for path in ["/%", "/%zz", "/a/../../b", "/%00"] {
        assert_eq!(key(path), Err(KeyError::Path), "{path}");
    }
    assert!(template("{uri}").takes_path() && !template("{uri}").is_path());
    assert_eq!(template("a:{uri}").to_string(), "a:{uri}");
}

#[test]
fn a_request_without_the_value_has_no_key() {
    for text in [
        "{query.none}",
        "{header.none}",
        "{cookie.none}",
        "{query.empty}",
    ] {
        assert_eq!(key(text), Err(KeyError::Missing), "{text}");
    }
    let no_query = template("{query.user}")
        .render("/", None, &|_: &str| None, &mut Vec::new())
        .err();
    assert_eq!(no_query, Some(KeyError::Missing));
}

#[test]
fn no_value_makes_a_key_memcached_would_read_as_two() {
    assert_eq!(key("{query.space}"), Err(KeyError::Forbidden(b' ')));
    assert_eq!(key("{header.x-space}"), Err(KeyError::Forbidden(b' ')));
    let split = template("{query.a}")
        .render(
            "/",
            Some("a=x%0D%0Aflush_all"),
            &|_: &str| None,
            &mut Vec::new(),
        )
        .err();
    assert_eq!(split, Some(KeyError::Forbidden(b'\r')));
    assert_eq!(KeyError::Forbidden(b' ').status(), 400);
}

#[test]
fn a_key_has_at_most_250_bytes() {
    let long = "/".repeat(251);
    let render = |path| {
        KeyTemplate::path()
            .render(path, None, &|_: &str| None, &mut Vec::new())
            .err()
    };
    assert_eq!(render(&long[..250]), None);
    assert_eq!(render(&long), Some(KeyError::TooLong(251)));
    assert_eq!(KeyError::TooLong(251).status(), 414);
    assert_eq!(
        KeyError::TooLong(251).to_string(),
        "key exceeds 250 bytes: 251"
    );
}

#[test]
fn wrong_templates_are_refused() {
    let error = |text: &str| text.parse::<KeyTemplate>().err();
    assert_eq!(error("{path"), Some(TemplateError::Unclosed));
    assert_eq!(error("path}"), Some(TemplateError::Unopened));
    assert_eq!(error("{}"), Some(TemplateError::Part(String::new())));
    assert_eq!(
        error("{body}"),
        Some(TemplateError::Part("body".to_owned()))
    );
    assert_eq!(
        error("{body.x}"),
        Some(TemplateError::Part("body.x".to_owned()))
    );
    assert_eq!(
        error("{query.}"),
        Some(TemplateError::Name("query.".to_owned()))
    );
    assert_eq!(
        error("{cookie.a b}"),
        Some(TemplateError::Name("cookie.a b".to_owned()))
    );
    assert_eq!(error("all"), Some(TemplateError::NoPart));
    assert_eq!(error(""), Some(TemplateError::NoPart));
    assert_eq!(error("a {path}"), Some(TemplateError::Literal(' ')));
}

proptest! {
    #[test]
    fn what_is_shown_is_read_back(
        text in "([a-z:/]{0,3}(\\{path\\}|\\{query\\.[a-z]{1,4}\\})){1,4}",
    ) {
        prop_assert_eq!(template(&text).to_string(), text);
    }

    #[test]
    fn no_text_panics(text in ".*", path in ".*", query in ".*", field in ".*") {
        if let Ok(template) = text.parse::<KeyTemplate>() {
            let header = |_: &str| Some(field.as_bytes());
            let _ = template.render(&path, Some(&query), &header, &mut Vec::new());
        }
    }

    #[test]
    fn every_key_is_one_word_of_a_command(
        query in "[a%0-9A-F=&+ -~]{0,20}",
        field in ".{0,9}",
    ) {
        let header = |_: &str| Some(field.as_bytes());
        let mut scratch = Vec::new();
        let template = template("{query.a}{header.b}");
        let key = template.render("/", Some(&query), &header, &mut scratch);
        let breaks = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
        let is_one_word = key.map_or(true, |key| !key.is_empty() && !key.iter().any(breaks));
        prop_assert!(is_one_word);
    }
}
