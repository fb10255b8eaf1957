//! Users' faults: typed, told, and without effect.

use crate::support::{Client, Fixture, get};
use dwell_engine::manager::{ConnError, Event, Manager, ManagerError, UrlError};
use std::error::Error;
use std::io::ErrorKind;

fn fault(result: Result<u64, ManagerError>) -> UrlError {
    match result.unwrap_err() {
        ManagerError::Url { fault, .. } => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn urls_that_cannot_be_used() {
    let mut manager = Manager::new(|_, _| {}).unwrap();
    let port = UrlError::Port("99999".into());
    assert_eq!(fault(manager.listen("tcp://127.0.0.1:99999")), port);
    assert_eq!(fault(manager.connect("tcp://127.0.0.1:99999")), port);
    assert_eq!(fault(manager.listen("udp://127.0.0.1:1")), UrlError::Scheme);
    assert_eq!(fault(manager.listen("https://127.0.0.1:1")), UrlError::Tls);
    let error = manager.listen("tcp://127.0.0.1:99999").unwrap_err();
    assert_eq!(error.to_string(), "unusable url 'tcp://127.0.0.1:99999'");
    let cause = error.source().unwrap().to_string();
    assert_eq!(cause, "port is not a number from 0 to 65535: '99999'");
    assert!(manager.connections().is_empty());
}

#[test]
fn a_taken_port_is_told_with_its_cause() {
    let mut fixture = Fixture::new("http", |_, _| {});
    let url = format!("tcp://{}", fixture.address);
    match fixture.manager.listen(&url).unwrap_err() {
        ManagerError::Listen { url: named, cause } => {
            assert_eq!((named, cause.kind()), (url, ErrorKind::AddrInUse));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.manager.connections(), [fixture.listener]);
}

#[test]
fn answers_that_cannot_be_sent() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(_) = event {
            let name = ConnError::FieldName("a b".into());
            assert_eq!(conn.reply(200, &[("a b", b"1")], b""), Err(name));
            let name = ConnError::FieldName("a\r\nb".into());
            assert_eq!(conn.reply(200, &[("a\r\nb", b"1")], b""), Err(name));
            for value in ["1\r\nb: 2", "1\n", "\0"] {
                let fields = [("a", value.as_bytes())];
                let error = ConnError::FieldValue("a".into());
                assert_eq!(conn.reply(200, &fields, b""), Err(error));
            }
            for status in [0, 99, 100, 199, 600] {
                let error = Err(ConnError::Status(status));
                assert_eq!(conn.reply(status, &[], b""), error);
            }
            assert_eq!(conn.chunk(b"x"), Err(ConnError::NotOpen));
            assert_eq!(conn.finish(&[]), Err(ConnError::NotOpen));
            assert_eq!(conn.request("GET", "/", &[], b""), Err(ConnError::Protocol));
            conn.reply(200, &[], b"done").unwrap();
            assert_eq!(conn.reply(200, &[], b""), Err(ConnError::Answered));
            assert_eq!(conn.begin(200, &[], None), Err(ConnError::Answered));
        }
    });
    let (mut client, id) = fixture.client();
    let mut conn = fixture.manager.conn(id).unwrap();
    assert_eq!(conn.reply(200, &[], b""), Err(ConnError::NoRequest));
    client.send(get("/"));
    fixture.receive(&mut client, "done");
    let mut conn = fixture.manager.conn(id).unwrap();
    assert_eq!(conn.reply(200, &[], b""), Err(ConnError::NoRequest));
    assert_eq!(conn.chunk(b""), Err(ConnError::NoRequest));
    assert_eq!(fixture.manager.panics(), 0);
}

#[test]
fn a_raw_connection_answers_no_request() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let (_client, id): (Client, u64) = fixture.client();
    let mut conn = fixture.manager.conn(id).unwrap();
    assert_eq!(conn.reply(200, &[], b""), Err(ConnError::Protocol));
    assert_eq!(conn.chunk(b"x"), Err(ConnError::Protocol));
    assert_eq!(conn.hijack(), Err(ConnError::Protocol));
    assert_eq!(conn.informational(103, &[]), Err(ConnError::Protocol));
    assert!(fixture.manager.conn(id + 1).is_none());
}
