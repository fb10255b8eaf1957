use proptest::prelude::*;

use super::super::{
    ArithmeticMode, Command, ErrorLine, Key, KeyError, MetaStatus, Progress, Reply, ReplyLimits,
    RequestDecoder, ResponseDecoder, StoreVerb,
};
use super::reply::{self, Status};
use super::request::{self, MetaLine, StoreOptions};

fn key(bytes: &[u8]) -> Key<'_> {
    Key::new(bytes).unwrap()
}

fn line(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn request_lines() {
    let (a, b) = (key(b"a"), key(b"b"));
    assert_eq!(line(|out| request::get(out, [a, b])), "get a b\r\n");
    assert_eq!(line(|out| request::gets(out, [a])), "gets a\r\n");
    assert_eq!(line(|out| request::gat(out, -1, [a])), "gat -1 a\r\n");
    assert_eq!(
        line(|out| request::delete(out, a, true)),
        "delete a noreply\r\n"
    );
    assert_eq!(
        line(|out| request::incr(out, a, u64::MAX, false)),
        format!("incr a {}\r\n", u64::MAX)
    );
    assert_eq!(
        line(|out| request::decr(out, a, 1, true)),
        "decr a 1 noreply\r\n"
    );
    assert_eq!(
        line(|out| request::touch(out, a, 30, false)),
        "touch a 30\r\n"
    );
    assert_eq!(
        line(|out| request::flush_all(out, true)),
        "flush_all noreply\r\n"
    );
    assert_eq!(line(request::version), "version\r\n");
    assert_eq!(line(request::quit), "quit\r\n");
    assert_eq!(line(request::meta_noop), "mn\r\n");
}

#[test]
fn storage_requests_carry_their_data() {
    let a = key(b"a");
    let options = StoreOptions {
        flags: 7,
        exptime: -1,
        noreply: true,
    };
    let cas = line(|out| request::store(out, StoreVerb::Cas(9), a, options, b"xy"));
    assert_eq!(cas, "cas a 7 -1 2 9 noreply\r\nxy\r\n");
    let plain = StoreOptions::default();
    let set = line(|out| request::store(out, StoreVerb::Set, a, plain, b""));
    assert_eq!(set, "set a 0 0 0\r\n\r\n");
}

#[test]
fn meta_requests() {
    let a = key(b"a");
    let get = line(|out| {
        MetaLine::get(out, a)
            .flag(b'v')
            .number(b'T', -1)
            .token(b'O', key(b"x1"))
            .end();
    });
    assert_eq!(get, "mg a v T-1 Ox1\r\n");
    assert_eq!(
        line(|out| MetaLine::delete(out, a).flag(b'q').end()),
        "md a q\r\n"
    );
    assert_eq!(line(|out| MetaLine::arithmetic(out, a).end()), "ma a\r\n");
    assert_eq!(line(|out| MetaLine::debug(out, a).end()), "me a\r\n");
    let set = line(|out| MetaLine::set(out, a, 2).flag(b'c').end_with_value(b"hi"));
    assert_eq!(set, "ms a 2 c\r\nhi\r\n");
    let binary = line(|out| MetaLine::get_binary(out, b"foo").unwrap().flag(b'v').end());
    assert_eq!(binary, "mg Zm9v b v\r\n");
    let mut out = Vec::new();
    assert_eq!(
        MetaLine::get_binary(&mut out, b"").unwrap_err(),
        KeyError::Empty
    );
    let too_long = MetaLine::get_binary(&mut out, &[0; 188]).unwrap_err();
    assert_eq!(too_long, KeyError::TooLong { length: 252 });
    assert!(out.is_empty());
}

#[test]
fn replies_are_read_back_as_they_were_meant() {
    let lines = [
        (Status::Stored, Reply::Stored),
        (Status::NotStored, Reply::NotStored),
        (Status::Exists, Reply::Exists),
        (Status::NotFound, Reply::NotFound),
        (Status::Deleted, Reply::Deleted),
        (Status::Touched, Reply::Touched),
        (Status::Ok, Reply::Ok),
        (Status::Reset, Reply::Reset),
        (Status::End, Reply::End),
    ];
    for (status, expected) in lines {
        let out = line(|out| reply::status(out, status));
        let read = ResponseDecoder::default().decode(out.as_bytes()).unwrap();
        assert_eq!(read, Some((out.len(), expected)));
    }
}

#[test]
fn reply_lines() {
    assert_eq!(
        line(|out| reply::value(out, b"k", 1, Some(2), b"xy")),
        "VALUE k 1 2 2\r\nxy\r\n"
    );
    assert_eq!(line(|out| reply::new_number(out, 0)), "0\r\n");
    assert_eq!(
        line(|out| reply::version(out, "1.6.18")),
        "VERSION 1.6.18\r\n"
    );
    assert_eq!(
        line(|out| reply::stat(out, "version", "x")),
        "STAT version x\r\n"
    );
    assert_eq!(
        line(|out| reply::stat_number(out, "pid", 7)),
        "STAT pid 7\r\n"
    );
    assert_eq!(
        line(|out| reply::error(out, ErrorLine::Unknown)),
        "ERROR\r\n"
    );
    let meta = line(|out| {
        reply::meta_value(out, 2);
        reply::meta_flag_number(out, b't', -1);
        reply::meta_flag_token(out, b'O', b"9");
        reply::meta_flag_binary_key(out, b"foo");
        reply::meta_flag(out, b'W');
        reply::end_line(out);
        reply::data(out, b"hi");
    });
    assert_eq!(meta, "VA 2 t-1 O9 kZm9v b W\r\nhi\r\n");
    let status = line(|out| {
        reply::meta_status(out, MetaStatus::NotFound);
        reply::end_line(out);
    });
    assert_eq!(status, "NF\r\n");
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        (0x21_u8..=0xff).prop_filter("DEL", |&byte| byte != 0x7f),
        1..=250,
    )
}

proptest! {
    #[test]
    fn the_server_reads_what_the_client_writes(
        name in any_key(),
        value in prop::collection::vec(any::<u8>(), 0..300),
        flags: u32,
        exptime in any::<i32>().prop_map(i64::from),
        noreply: bool,
        number: u64,
    ) {
        let verbs = [StoreVerb::Set, StoreVerb::Append, StoreVerb::Cas(number)];
        for verb in verbs {
            let mut out = Vec::new();
            let options = StoreOptions { flags, exptime, noreply };
            request::store(&mut out, verb, key(&name), options, &value);
            let step = RequestDecoder::default().decode(&out);
            prop_assert_eq!(step.consumed, out.len());
            let expected =
                Command::Store { verb, key: &name, flags, exptime, noreply, value: &value };
            prop_assert_eq!(step.progress, Progress::Command(expected));
        }
        let mut out = Vec::new();
        request::incr(&mut out, key(&name), number, noreply);
        let mode = ArithmeticMode::Increment;
        let expected = Command::Arithmetic { mode, key: &name, delta: number, noreply };
        let step = RequestDecoder::default().decode(&out);
        prop_assert_eq!(step.progress, Progress::Command(expected));
    }

    #[test]
    fn the_client_reads_what_the_server_writes(
        name in any_key(),
        value in prop::collection::vec(any::<u8>(), 0..300),
        flags: u32,
        cas_unique: Option<u64>,
    ) {
        let mut out = Vec::new();
        reply::value(&mut out, &name, flags, cas_unique, &value);
        let limits = ReplyLimits::default();
        let (consumed, read) = ResponseDecoder::new(limits).decode(&out).unwrap().unwrap();
        prop_assert_eq!(consumed, out.len());
        prop_assert_eq!(read, Reply::Value { key: &name, flags, cas_unique, value: &value });
    }
}

#[test]
fn request_lines_with_arguments() {
    let a = key(b"a");
    assert_eq!(line(|out| request::gats(out, 5, [a])), "gats 5 a\r\n");
    assert_eq!(line(|out| request::stats(out, None)), "stats\r\n");
    let items = Some(key(b"items"));
    assert_eq!(line(|out| request::stats(out, items)), "stats items\r\n");
    assert_eq!(
        line(|out| request::flush_all_after(out, 30)),
        "flush_all 30\r\n"
    );
    let meta = line(|out| {
        MetaLine::arithmetic(out, a)
            .mode(b'D')
            .flag_if(b'v', true)
            .flag_if(b'q', false)
            .number_if(b'J', Some(7))
            .number_if(b'N', None::<i64>)
            .end();
    });
    assert_eq!(meta, "ma a MD v J7\r\n");
}

#[test]
fn a_key_that_does_not_fit_in_base64_leaves_nothing_behind() {
    let mut out = b"before".to_vec();
    assert_eq!(request::base64_key(&mut out, b""), Err(KeyError::Empty));
    let long = request::base64_key(&mut out, &[0; 188]);
    assert_eq!(long, Err(KeyError::TooLong { length: 252 }));
    assert!(MetaLine::get_binary(&mut out, &[0; 188]).is_err());
    assert_eq!(out, b"before");
}
