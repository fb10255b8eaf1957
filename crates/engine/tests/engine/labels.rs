//! Labels of listeners: those of their connections, and of what is rejected on them.

use crate::support::{Client, Fixture, get};
use dwell_engine::HttpEvent;
use dwell_testkit::loopback_listener;

#[test]
fn a_request_has_the_label_of_the_listener_of_its_connection() {
    let mut fixture = Fixture::default();
    let mut listen = |label| {
        let (listener, address) = loopback_listener();
        let http = &mut fixture.server.http;
        let token = http.listen_as(fixture.event_loop.context(), listener);
        http.label(token.unwrap(), label);
        address
    };
    let labelled = [(listen(7), 7), (listen(3), 3)];
    for (tag, (address, label)) in labelled.into_iter().enumerate() {
        let mut client = fixture.accept(Client::connect(address));
        fixture.send(&mut client, get("/hold"));
        let exchange = fixture.server.app.held[tag].0;
        assert_eq!(fixture.server.http.listener_label(exchange), Some(label));
        let replied = fixture.reply(tag, |reply| {
            reply.text(200, "held");
            reply.listener_label()
        });
        assert_eq!(replied, Some(label));
        assert_eq!(fixture.server.http.listener_label(exchange), None);
        fixture.answer(&mut client);
        assert_eq!(fixture.server.http.open_of(label), 1);
        fixture.send(&mut client, "GET / HTTP/1.1\r\n\r\n");
        assert_eq!(fixture.answer(&mut client).status, 400);
        let rejected = HttpEvent::Rejected {
            status: 400,
            listener: Some(label),
        };
        assert_eq!(fixture.server.app.count(rejected), 1);
        fixture.end(&mut client);
        drop(client);
        assert_eq!(fixture.connections_left(), 0);
        let http = &fixture.server.http;
        assert_eq!((http.open_of(label), http.accepted_of(label)), (0, 1));
    }
    // That of the fixture has none.
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold"));
    let exchange = fixture.server.app.held[2].0;
    assert_eq!(fixture.server.http.listener_label(exchange), None);
}
