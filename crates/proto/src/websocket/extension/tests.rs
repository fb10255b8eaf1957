use super::*;
use proptest::prelude::*;

/// The members of one field, written down in full: name, then name and value of each parameter.
fn members(field: &str) -> Result<Vec<String>, HandshakeError> {
    let members = extensions([field.as_bytes()].into_iter()).map(|member| {
        let member = member?;
        let mut text = member.name.to_owned();
        for parameter in member.parameters() {
            text = text + ";" + parameter.name;
            if let Some(value) = parameter.value {
                text = text + "=" + &String::from_utf8(value.bytes().collect()).unwrap();
            }
        }
        Ok(text)
    });
    members.collect()
}

/// What a server makes of a field's offers.
fn accepted(options: &DeflateOptions, field: &str) -> Option<String> {
    let mut offers = extensions([field.as_bytes()].into_iter()).map(Result::unwrap);
    let agreed = offers.find_map(|offer| options.accept(offer))?;
    let mut out = Vec::new();
    agreed.encode_answer(&mut out);
    Some(String::from_utf8(out).unwrap())
}

/// What a client makes of the first member of a server's answer.
fn confirmed(options: &DeflateOptions, field: &str) -> Option<DeflateParameters> {
    let mut answers = extensions([field.as_bytes()].into_iter());
    options.confirm(answers.next().unwrap().unwrap())
}

fn keeping() -> DeflateOptions {
    DeflateOptions {
        server_no_context_takeover: false,
        client_no_context_takeover: false,
        ..DeflateOptions::default()
    }
}

#[test]
fn the_grammar_is_read() {
    for (field, expected) in [
        ("", &[][..]),
        (" , ,\t", &[]),
        ("foo", &["foo"]),
        (
            "deflate-stream, mux; max-channels=4; flow-control, deflate-stream",
            &[
                "deflate-stream",
                "mux;max-channels=4;flow-control",
                "deflate-stream",
            ],
        ),
        ("a ; b = \"c\" ,d;e", &["a;b=c", "d;e"]),
        ("a;b=\"\\c\\d\"", &["a;b=cd"]),
        ("a;b;b;c", &["a;b;b;c"]),
    ] {
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(members(field), Ok(expected), "{field}");
    }
}

#[test]
fn what_the_grammar_does_not_have_is_refused() {
    for field in [
        ";",
        "a;",
        "a;;b",
        "a b",
        "a;b=",
        "a;b=c d",
        "a;b=\"",
        "a;b=\"c",
        "a;b=\"\"",
        "a;b=\"c d\"",
        "a;b=\"c,d\"",
        "a;b=\"c\\\"",
        "a;b=\"c\"d",
        "=a",
        "a;=b",
        "\u{e9}",
        "a, (",
        "\"a\"",
    ] {
        assert_eq!(members(field), Err(HandshakeError::Extensions), "{field}");
    }
}

#[test]
fn several_fields_are_one_list() {
    let fields = [&b"a;b"[..], b"", b"c"];
    let names = extensions(fields.into_iter()).map(|member| member.unwrap().name);
    assert_eq!(names.collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn by_default_no_side_keeps_a_context() {
    let usual = DeflateOptions::default();
    let both = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    for offer in [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "x-unknown, permessage-deflate; client_max_window_bits=10",
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
    ] {
        assert_eq!(accepted(&usual, offer).as_deref(), Some(both), "{offer}");
    }
    let kept = accepted(&keeping(), "permessage-deflate; client_max_window_bits");
    assert_eq!(kept.as_deref(), Some("permessage-deflate"));
    let asked = accepted(&keeping(), "permessage-deflate; server_no_context_takeover");
    assert_eq!(
        asked.as_deref(),
        Some("permessage-deflate; server_no_context_takeover")
    );
}

#[test]
fn windows_are_as_small_as_either_side_wants_them() {
    let options = DeflateOptions {
        server_max_window_bits: 11,
        client_max_window_bits: 12,
        ..keeping()
    };
    for (offer, answer) in [
        ("", "; server_max_window_bits=11"),
        ("; server_max_window_bits=9", "; server_max_window_bits=9"),
        ("; server_max_window_bits=8", "; server_max_window_bits=8"),
        (
            "; server_max_window_bits=\"15\"",
            "; server_max_window_bits=11",
        ),
        (
            "; client_max_window_bits",
            "; server_max_window_bits=11; client_max_window_bits=12",
        ),
        (
            "; client_max_window_bits=10",
            "; server_max_window_bits=11; client_max_window_bits=10",
        ),
    ] {
        let offer = format!("permessage-deflate{offer}");
        let answer = format!("permessage-deflate{answer}");
        assert_eq!(accepted(&options, &offer), Some(answer), "{offer}");
    }
    let named = accepted(&keeping(), "permessage-deflate; server_max_window_bits=15");
    assert_eq!(
        named.as_deref(),
        Some("permessage-deflate; server_max_window_bits=15")
    );
}

#[test]
fn offers_that_break_the_rules_are_declined_and_the_next_one_taken() {
    let usual = keeping();
    for parameters in [
        "foo",
        "server_max_window_bits",
        "server_max_window_bits=7",
        "server_max_window_bits=16",
        "server_max_window_bits=08",
        "server_max_window_bits=100",
        "client_max_window_bits=0",
        "client_max_window_bits=a",
        "server_no_context_takeover=1",
        "client_no_context_takeover=\"1\"",
        "server_max_window_bits=10; server_max_window_bits=10",
        "client_max_window_bits; client_max_window_bits=10",
        "server_no_context_takeover; server_no_context_takeover",
        "Server_no_context_takeover",
    ] {
        let offer = format!("permessage-deflate; {parameters}");
        assert_eq!(accepted(&usual, &offer), None, "{offer}");
        let offers = format!("{offer}, permessage-deflate");
        assert_eq!(
            accepted(&usual, &offers).as_deref(),
            Some("permessage-deflate")
        );
    }
    assert_eq!(accepted(&usual, "deflate, bzip2"), None);
}

#[test]
fn a_client_takes_only_what_answers_its_offer() {
    let own = DeflateOptions {
        server_max_window_bits: 12,
        ..DeflateOptions::default()
    };
    let answer = "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; \
        client_max_window_bits=9";
    let agreed = confirmed(&own, answer).unwrap();
    assert_eq!(agreed.send_window_bits(Role::Client), 9);
    assert_eq!(agreed.send_window_bits(Role::Server), 10);
    assert!(agreed.sends_afresh(Role::Client) && agreed.receives_afresh(Role::Client));
    for answer in [
        "permessage-deflate",
        "permessage-deflate; server_no_context_takeover",
        "permessage-deflate; server_no_context_takeover; server_max_window_bits=13",
        "permessage-deflate; server_max_window_bits=10",
        "permessage-deflate; server_no_context_takeover; server_max_window_bits=9; \
            client_max_window_bits",
        "permessage-deflate; foo",
        "other",
    ] {
        assert_eq!(confirmed(&own, answer), None, "{answer}");
    }
}

fn options() -> impl Strategy<Value = DeflateOptions> {
    (any::<bool>(), any::<bool>(), 8_u8..=16, 8_u8..=16).prop_map(|(server, client, own, peer)| {
        DeflateOptions {
            server_no_context_takeover: server,
            client_no_context_takeover: client,
            server_max_window_bits: own,
            client_max_window_bits: peer,
            ..DeflateOptions::default()
        }
    })
}

proptest! {
    #[test]
    fn both_sides_come_to_the_same_agreement(server in options(), client in options()) {
        let (mut offer, mut answer) = (Vec::new(), Vec::new());
        client.encode_offer(&mut offer);
        let offer = extensions([&offer[..]].into_iter()).next().unwrap().unwrap();
        let of_server = server.accept(offer).unwrap();
        of_server.encode_answer(&mut answer);
        let answer = extensions([&answer[..]].into_iter()).next().unwrap().unwrap();
        let of_client = client.confirm(answer).unwrap();
        let server_bits = of_server.send_window_bits(Role::Server);
        prop_assert_eq!(server_bits, of_client.send_window_bits(Role::Server));
        prop_assert!(server_bits <= client.server_window().min(server.server_window()));
        let client_bits = of_client.send_window_bits(Role::Client);
        prop_assert!(client_bits <= of_server.send_window_bits(Role::Client));
        for (sender, receiver) in [(Role::Server, Role::Client), (Role::Client, Role::Server)] {
            let (sends, receives) = match sender {
                Role::Server => (of_server, of_client),
                Role::Client => (of_client, of_server),
            };
            // Who counts on fresh messages gets them.
            prop_assert!(!receives.receives_afresh(receiver) || sends.sends_afresh(sender));
        }
    }

    #[test]
    fn any_field_is_read_or_refused(field in "[a-c;=,\"\\\\ \t8-9é]{0,24}") {
        let mut count = 0;
        for member in extensions([field.as_bytes()].into_iter()) {
            count += 1;
            prop_assert!(count <= field.len());
            if let Ok(member) = member {
                prop_assert!(is_token(member.name.as_bytes()));
                for parameter in member.parameters() {
                    prop_assert!(is_token(parameter.name.as_bytes()));
                    if let Some(value) = parameter.value {
                        prop_assert!(is_token(&value.bytes().collect::<Vec<_>>()));
                    }
                }
            }
        }
    }
}
