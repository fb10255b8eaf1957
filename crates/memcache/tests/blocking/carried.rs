//! Operations whose bytes the caller carries, without a server.

use std::io;

use dwell_memcache::{
    Carried, Client, ClientOptions, Error, Exchange, Interruption, Response, ServerOptions,
    StoreOptions, StoreVerb,
};

fn client_of(servers: &[&str], options: ClientOptions) -> Client {
    let servers: Vec<ServerOptions> = servers.iter().map(|text| text.parse().unwrap()).collect();
    Client::new(&servers, options).unwrap()
}

fn client() -> Client {
    client_of(&["127.0.0.1:1"], ClientOptions::default())
}

/// Passes bytes on in pieces of this size; the last piece alone may end the exchange.
fn feed(exchange: &mut Exchange, reply: &[u8], size: usize) {
    let mut pieces = reply.chunks(size).peekable();
    while let Some(piece) = pieces.next() {
        let goes_on = exchange.receive(piece);
        assert_eq!(
            goes_on,
            pieces.peek().is_some(),
            "{:?}",
            reply.escape_ascii()
        );
    }
}

fn closed() -> Interruption {
    Interruption::Closed { is_used: true }
}

#[test]
fn pieces_of_any_size_are_one_reply() {
    let reply = b"VALUE key 7 5\r\nEND\r\n\r\nEND\r\n";
    for size in 1..=reply.len() {
        let (mut exchanges, finish) = Carried::of(&client()).get(b"key").unwrap().into_parts();
        assert_eq!(exchanges[0].request(), b"get key\r\n");
        feed(&mut exchanges[0], reply, size);
        assert!(exchanges[0].is_over() && exchanges[0].keeps_connection());
        let value = finish(exchanges).unwrap().unwrap();
        assert_eq!((&value.data[..], value.flags), (&b"END\r\n"[..], 7));
    }
}

#[test]
fn keys_are_asked_of_their_servers_and_put_together() {
    let client = client_of(&["127.0.0.1:1", "127.0.0.1:2"], ClientOptions::default());
    let keys: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let (mut exchanges, finish) = Carried::of(&client).values(&keys, false).into_parts();
    assert_eq!(exchanges.len(), 2);
    for exchange in &mut exchanges {
        let request = String::from_utf8(exchange.request().to_vec()).unwrap();
        let mut reply = String::new();
        for key in request.split_ascii_whitespace().skip(1) {
            assert_eq!(client.server_of(key), exchange.server());
            let length = key.len();
            reply.extend([
                "VALUE ",
                key,
                " 0 ",
                &length.to_string(),
                "\r\n",
                key,
                "\r\n",
            ]);
        }
        feed(exchange, (reply + "END\r\n").as_bytes(), 7);
    }
    for (key, value) in keys.iter().zip(finish(exchanges)) {
        assert_eq!(value.unwrap().unwrap().data, *key);
    }
}

#[test]
fn an_error_line_of_many_is_that_of_its_own_operation() {
    let items: [(&[u8], &[u8], _); 3] = [
        (b"a", b"1", StoreOptions::default()),
        (b"b", b"2", StoreOptions::default()),
        (b"a b", b"3", StoreOptions::default()),
    ];
    let client = client();
    let (mut exchanges, finish) = Carried::of(&client).set_many(&items).into_parts();
    feed(&mut exchanges[0], b"SERVER_ERROR full\r\nSTORED\r\n", 5);
    assert!(exchanges[0].keeps_connection());
    let results = finish(exchanges);
    assert!(matches!(&results[0], Err(error) if error.to_string().contains("full")));
    assert!(matches!(&results[1], Ok(Response::Stored(_))));
    assert!(matches!(&results[2], Err(error) if matches!(**error, Error::Key(_))));
}

#[test]
fn what_can_be_repeated_begins_again_where_its_connection_had_ended() {
    let client = client();
    let (mut exchanges, finish) = Carried::of(&client).get(b"key").unwrap().into_parts();
    exchanges[0].interrupt(closed(), true);
    assert!(!exchanges[0].is_over());
    feed(&mut exchanges[0], b"END\r\n", 3);
    assert_eq!(finish(exchanges).unwrap(), None);

    // Not where some of the reply had come, nor what would be done twice.
    let (mut exchanges, finish) = Carried::of(&client).get(b"key").unwrap().into_parts();
    assert!(exchanges[0].receive(b"VALUE"));
    exchanges[0].interrupt(closed(), true);
    assert!(matches!(
        finish(exchanges),
        Err(Error::Closed { written: true, .. })
    ));
    let operation =
        Carried::of(&client).store(StoreVerb::Add, b"key", b"1", StoreOptions::default());
    let (mut exchanges, finish) = operation.unwrap().into_parts();
    exchanges[0].interrupt(closed(), true);
    assert!(exchanges[0].is_over() && !exchanges[0].keeps_connection());
    assert!(matches!(
        finish(exchanges),
        Err(Error::Closed { written: true, .. })
    ));
}

#[test]
fn one_that_is_not_over_has_timed_out() {
    let (mut exchanges, finish) = Carried::of(&client()).get(b"key").unwrap().into_parts();
    exchanges[0].interrupt(Interruption::Timeout, true);
    assert!(matches!(
        finish(exchanges),
        Err(Error::Timeout { written: true, .. })
    ));
    let (exchanges, finish) = Carried::of(&client()).get(b"key").unwrap().into_parts();
    assert!(matches!(
        finish(exchanges),
        Err(Error::Timeout { written: false, .. })
    ));
}

#[test]
fn failures_eject_a_server_and_an_answer_brings_it_back() {
    let options = ClientOptions {
        failures_max: 2,
        ..ClientOptions::default()
    };
    let client = client_of(&["127.0.0.1:1"], options);
    let prepared = || Carried::of(&client).get(b"key");
    let (mut late, _) = prepared().unwrap().into_parts();
    for _ in 0..2 {
        // Of those that wait for a connection, none counts but the attempt itself.
        for _ in 0..2 {
            let (mut exchanges, finish) = prepared().unwrap().into_parts();
            let error = io::Error::other("refused");
            exchanges[0].interrupt(Interruption::Connect(error), false);
            assert!(matches!(finish(exchanges), Err(Error::Connect { .. })));
        }
        Carried::of(&client).could_not_connect(0);
    }
    assert!(matches!(prepared(), Err(Error::Unavailable { .. })));
    feed(&mut late[0], b"END\r\n", 5);
    assert!(prepared().is_ok());
}

#[test]
fn failover_begins_again_with_the_next_server() {
    let options = ClientOptions {
        failover: true,
        ..ClientOptions::default()
    };
    let client = client_of(&["127.0.0.1:1", "127.0.0.1:2"], options);
    let (mut exchanges, finish) = Carried::of(&client).get(b"key").unwrap().into_parts();
    let first = exchanges[0].server();
    assert!(exchanges[0].receive(b"VALUE key 0 5\r\nhe"));
    exchanges[0].interrupt(closed(), true);
    assert!(!exchanges[0].is_over());
    assert_eq!(exchanges[0].server(), 1 - first);
    feed(&mut exchanges[0], b"VALUE key 0 2\r\nhi\r\nEND\r\n", 4);
    assert_eq!(finish(exchanges).unwrap().unwrap().data, b"hi");
}

#[test]
fn a_raw_reply_has_no_more_than_its_token_behind_it() {
    let raw = |reply: &[u8]| {
        let client = client();
        let operation = Carried::of(&client).raw_command(b"mn", b"\r\n").unwrap();
        let (mut exchanges, finish) = operation.into_parts();
        assert_eq!(exchanges[0].request(), b"mn\r\n");
        feed(&mut exchanges[0], reply, reply.len());
        finish(exchanges).remove(0).1
    };
    assert_eq!(raw(b"MN\r\n").unwrap(), b"MN");
    assert!(matches!(
        raw(b"MN\r\nMN\r\n"),
        Err(Error::Unexpected { .. })
    ));
    assert!(matches!(raw(b"ERROR\r\n"), Err(Error::ErrorLine { .. })));
    assert!(matches!(
        client().raw_command(b"", b"\r\n"),
        Err(Error::EmptyCommand)
    ));
    assert!(matches!(
        client().raw_command(b"mn", b""),
        Err(Error::EmptyCommand)
    ));
}
