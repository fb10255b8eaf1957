use proptest::prelude::*;

use super::*;

fn batch(form: Form, keys: &[&str]) -> Batch {
    let mut batch = Batch::new(form);
    let wants = if form == Form::Gets {
        Wants::Value
    } else {
        Wants::Version
    };
    for (tag, key) in keys.iter().enumerate() {
        batch.push(Key::new(key.as_bytes()).unwrap(), tag as u64, wants);
    }
    batch.finish();
    batch
}

/// Gives the replies in order; returns what was reported and how it ended.
fn take_all(
    batch: &mut Batch,
    replies: &[Reply<'_>],
) -> (Vec<(u64, String)>, Result<Progress, Failure>) {
    let mut reported = Vec::new();
    let mut progress = Ok(Progress::More);
    for reply in replies {
        assert_eq!(progress, Ok(Progress::More), "a reply too many");
        progress = batch.take(reply, &mut |tag, outcome| {
            reported.push((tag, describe(outcome)));
        });
    }
    (reported, progress)
}

fn describe(outcome: Outcome<'_>) -> String {
    match outcome {
        Outcome::Hit { value, .. } => format!("hit {}", String::from_utf8_lossy(value)),
        Outcome::Version { cas_unique } => format!("version {cas_unique}"),
        Outcome::Answer(answer) => format!("{answer:?}"),
        Outcome::Miss => "miss".to_owned(),
        Outcome::Failed(failure) => failure.name().to_owned(),
    }
}

fn value(key: &'static str) -> Reply<'static> {
    Reply::Value {
        key: key.as_bytes(),
        flags: 0,
        cas_unique: Some(1),
        value: key.as_bytes(),
    }
}

fn error(kind: ErrorKind) -> Reply<'static> {
    Reply::Error { kind, text: b"" }
}

fn expected(outcomes: &[&str]) -> Vec<(u64, String)> {
    outcomes
        .iter()
        .enumerate()
        .map(|(tag, outcome)| (tag as u64, (*outcome).to_owned()))
        .collect()
}

#[test]
fn requests_look_as_the_protocol_says() {
    assert_eq!(batch(Form::Gets, &["a", "b"]).wire(), b"gets a b\r\n");
    assert_eq!(
        batch(Form::MetaGets, &["a", "b"]).wire(),
        b"mg a c k q\r\nmg b c k q\r\nmn\r\n"
    );
    assert_eq!(Batch::probe().wire(), b"version\r\n");
}

#[test]
fn keys_that_are_passed_over_are_misses() {
    let mut gets = batch(Form::Gets, &["a", "b", "c", "d"]);
    let (reported, end) = take_all(&mut gets, &[value("b"), value("c"), Reply::End]);
    assert_eq!(reported, expected(&["miss", "hit b", "hit c", "miss"]));
    assert_eq!(end, Ok(Progress::Done));
}

#[test]
fn the_same_key_twice_is_answered_twice() {
    let mut gets = batch(Form::Gets, &["a", "b", "a"]);
    let (reported, end) = take_all(&mut gets, &[value("a"), value("a"), Reply::End]);
    assert_eq!(reported, expected(&["hit a", "miss", "hit a"]));
    assert_eq!(end, Ok(Progress::Done));
}

#[test]
fn a_key_nobody_asked_for_is_no_miss() {
    let mut gets = batch(Form::Gets, &["a", "b"]);
    let (reported, end) = take_all(&mut gets, &[value("other")]);
    assert_eq!((reported, end), (vec![], Err(Failure::Protocol)));
}

#[test]
fn a_key_out_of_order_is_a_protocol_error() {
    let mut gets = batch(Form::Gets, &["a", "b"]);
    let (reported, end) = take_all(&mut gets, &[value("b"), value("a")]);
    assert_eq!(reported, expected(&["miss", "hit b"]));
    assert_eq!(end, Err(Failure::Protocol));
}

#[test]
fn gets_must_return_the_cas_unique() {
    let mut gets = batch(Form::Gets, &["a"]);
    let reply = Reply::Value {
        key: b"a",
        flags: 0,
        cas_unique: None,
        value: b"",
    };
    assert_eq!(
        take_all(&mut gets, &[reply]),
        (vec![], Err(Failure::Protocol))
    );
}

#[test]
fn a_server_error_fails_what_is_left_of_its_command() {
    let mut gets = batch(Form::Gets, &["a", "b"]);
    let (reported, end) = take_all(&mut gets, &[value("a"), error(ErrorKind::ServerError)]);
    assert_eq!(reported, expected(&["hit a", "error_line"]));
    assert_eq!(end, Ok(Progress::Refused));
}

#[test]
fn other_error_lines_end_the_connection() {
    for kind in [ErrorKind::Error, ErrorKind::ClientError] {
        let mut gets = batch(Form::Gets, &["a"]);
        assert_eq!(
            take_all(&mut gets, &[error(kind)]),
            (vec![], Err(Failure::ErrorLine))
        );
    }
    for form in [Form::Gets, Form::MetaGets, Form::Probe] {
        let refused = Reply::Error {
            kind: ErrorKind::Error,
            text: b"Too many open connections",
        };
        let end = batch(form, &[]).take(&refused, &mut |_, _| {});
        assert_eq!(end, Err(Failure::TooManyConnections));
    }
}

#[test]
fn versions_are_read_and_quiet_ones_are_misses() {
    let mut decoder = dwell_proto::memcache::ResponseDecoder::default();
    let mut input: &[u8] = b"HD c7 kb\r\nHD c9 kd\r\nMN\r\n";
    let mut metas = batch(Form::MetaGets, &["a", "b", "c", "d", "e"]);
    let mut reported = Vec::new();
    let mut progress = Progress::More;
    while let Ok(Some((consumed, reply))) = decoder.decode(input) {
        let report = &mut |tag, outcome: Outcome<'_>| reported.push((tag, describe(outcome)));
        progress = metas.take(&reply, report).unwrap();
        input = &input[consumed..];
    }
    assert_eq!(
        reported,
        expected(&["miss", "version 7", "miss", "version 9", "miss"])
    );
    assert_eq!(progress, Progress::Done);
}

#[test]
fn a_server_without_meta_commands_refuses_each_of_them() {
    let mut metas = batch(Form::MetaGets, &["a", "b"]);
    let refusals = [error(ErrorKind::Error); 3];
    let (reported, end) = take_all(&mut metas, &refusals);
    assert_eq!(reported, expected(&["unsupported", "unsupported"]));
    assert_eq!(end, Ok(Progress::Refused));
    metas = batch(Form::MetaGets, &["a", "b"]);
    let (_, end) = take_all(&mut metas, &[error(ErrorKind::Error), Reply::End]);
    assert_eq!(end, Err(Failure::Protocol));
}

proptest! {
    /// Whatever subset of the keys a server has, each operation gets the right answer once.
    #[test]
    fn every_operation_is_answered_once(
        keys in prop::collection::vec("[a-d]{1,2}", 1..30),
        present in prop::collection::hash_set("[a-d]{1,2}", 0..20),
    ) {
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut gets = batch(Form::Gets, &names);
        let mut reported = Vec::new();
        for key in keys.iter().filter(|key| present.contains(*key)) {
            let (key, cas_unique) = (key.as_bytes(), Some(1));
            let reply = Reply::Value { key, flags: 0, cas_unique, value: key };
            let report = &mut |tag, outcome: Outcome<'_>| reported.push((tag, describe(outcome)));
            prop_assert_eq!(gets.take(&reply, report), Ok(Progress::More));
        }
        let report = &mut |tag, outcome: Outcome<'_>| reported.push((tag, describe(outcome)));
        prop_assert_eq!(gets.take(&Reply::End, report), Ok(Progress::Done));
        for (tag, (key, (reported_tag, outcome))) in keys.iter().zip(&reported).enumerate() {
            prop_assert_eq!(tag as u64, *reported_tag);
            let hit = present.contains(key);
            prop_assert_eq!(outcome, &if hit { format!("hit {key}") } else { "miss".to_owned() });
        }
        prop_assert_eq!(reported.len(), keys.len());
    }
}
