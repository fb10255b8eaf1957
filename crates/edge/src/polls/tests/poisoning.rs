//! Requests of one client, which decide nothing for others: neither their answers at once, nor
//! later ones.

use super::feeds::Events;
use super::harness::{App, Client, Edge, Exchange, cursor};
use super::sockets::Socket;

const HOSTILE: [&str; 5] = [
    "X-Bad: 1\r\n",
    "X-Forwarded-For: <script>\r\n",
    "Accept-Language: xx\r\n",
    "Accept: */*\r\nUser-Agent: evil\r\n",
    "Forwarded: host=evil\r\nReferer: x\r\nOrigin: http://evil\r\n",
];

fn ask_all(edge: &mut Edge, asks: &[String]) -> Vec<Client> {
    let mut clients = Vec::new();
    for (count, ask) in asks.iter().enumerate() {
        clients.push(edge.ask(ask));
        edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == count + 1);
    }
    clients
}

/// Accepts connections until so many requests have come.
fn accept(app: &App, edge: &mut Edge, count: usize) -> Vec<Exchange> {
    (0..count).map(|_| app.accept(edge).0).collect()
}

#[test]
fn a_field_of_one_who_shares_reaches_no_application() {
    for field in HOSTILE {
        for is_first in [true, false] {
            let app = App::start();
            let mut edge = Edge::before(&app, "");
            let (plain, hostile) = ("GET /poll/a".to_owned(), format!("GET /poll/a\n{field}"));
            let asks = if is_first {
                [hostile, plain]
            } else {
                [plain, hostile]
            };
            let mut clients = ask_all(&mut edge, &asks);
            let mut exchange = app.connection(&mut edge);
            let request = exchange.read_until(&mut edge, "\r\n\r\n");
            let expected = "GET /poll/a HTTP/1.1\r\nHost: edge\r\nX-Forwarded-For: 127.0.0.1\r\n\
                X-Forwarded-Proto: http\r\nX-Forwarded-Host: edge\r\nVia: 1.1 dwell\r\n\
                User-Agent: dwell\r\nConnection: keep-alive\r\n\r\n";
            assert_eq!(request, expected);
            exchange.answer(200, "", "good");
            for client in &mut clients {
                assert_eq!(edge.answer(client), (200, "good".to_owned()));
            }
            edge.assert_nothing_left();
        }
    }
}

#[test]
fn what_differs_for_the_application_is_asked_for_apart() {
    let apart = [
        "GET http://evil/poll/a",
        "GET /poll/a?callback=evil",
        "GET /poll/a\nX-Forwarded-Host: evil\r\n",
        "GET /poll/a\nX-Forwarded-Proto: gopher\r\n",
        "GET /poll/a\nAccept: text/evil\r\n",
    ];
    for hostile in apart {
        let app = App::start();
        let mut edge = Edge::before(&app, "[[route]]\nprefix = \"/poll/\"\nnegative = \"1h\"");
        let hostiles = [hostile.to_owned(), hostile.to_owned()];
        let mut attackers = ask_all(&mut edge, &hostiles);
        let mut victims = [edge.ask("GET /poll/a"), edge.ask("GET /poll/a?since=x")];
        edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 4);
        assert_eq!(edge.driver.front.polls.misses.fetches(), 2, "{hostile}");
        let mut exchanges = accept(&app, &mut edge, 2);
        exchanges[0].answer(200, "", "evil");
        exchanges[1].answer(200, "", "good");
        for client in &mut attackers {
            assert_eq!(edge.answer(client).1, "evil");
        }
        for client in &mut victims {
            assert_eq!(edge.answer(client).1, "good");
        }
        // Nor is one's last answer given when the application fails for the other; and what
        // failed for one is asked for by the other.
        attackers[0].send(hostile);
        exchanges[1].request(&mut edge);
        exchanges[1].answer(500, "", "");
        assert_eq!(edge.answer(&mut attackers[0]).0, 500, "{hostile}");
        victims[0].send("GET /poll/a");
        exchanges[1].request(&mut edge);
        exchanges[1].answer(500, "", "");
        assert_eq!(edge.answer(&mut victims[0]), (200, "good".to_owned()));
        edge.assert_nothing_left();
    }
}

#[test]
fn a_refusal_is_neither_shared_nor_remembered() {
    let route = "[[route]]\nprefix = \"/poll/\"\nnegative = \"1h\"\nnegative_not_found = \"1h\"";
    for status in [400, 401, 403, 421, 429, 431, 302, 503] {
        let app = App::start();
        let mut edge = Edge::before(&app, route);
        let asks = ["GET /poll/a", "GET /poll/a", "GET /poll/?k=a"].map(str::to_owned);
        let mut clients = ask_all(&mut edge, &asks[..2]);
        clients.push(edge.ask(&asks[2]));
        let mut socket = Socket::open(&edge, "/poll/a");
        let mut stream = Events::follow(&edge, "/poll/a", "");
        edge.turn_until(|edge| {
            edge.front.polls.misses.sub_fetches() == 2
                && edge.front.polls.waiters.polls().len() == 3
        });
        let (mut first, _) = app.accept(&mut edge);
        first.answer(status, "", "refused");
        assert_eq!(edge.answer(&mut clients[0]), (status, "refused".to_owned()));
        // The connection of the first one is used again.
        let mut others = accept(&app, &mut edge, 3);
        assert_eq!(first.request(&mut edge), "GET /poll/a HTTP/1.1");
        others.push(first);
        for exchange in &mut others {
            exchange.answer(200, "", "good");
        }
        assert_eq!(edge.answer(&mut clients[1]), (200, "good".to_owned()));
        assert!(edge.answer(&mut clients[2]).1.contains(r#""v":"good""#));
        let frame = format!(r#"{{"v":"good","c":"{}"}}"#, cursor("good"));
        socket.await_last(&mut edge, &frame);
        edge.turn_until(|_| stream.text().contains("data: good\n"));
        assert_eq!(socket.frames.len(), 1, "{status}");
        drop((socket, stream));
        edge.assert_nothing_left();
    }
}

#[test]
fn those_whom_an_answer_is_not_for_ask_a_few_at_a_time() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let asks = vec!["GET /poll/a".to_owned(); 40];
    let mut clients = ask_all(&mut edge, &asks);
    let (mut first, _) = app.accept(&mut edge);
    first.answer(200, "Set-Cookie: a=b\r\n", "own");
    assert_eq!(edge.answer(&mut clients[0]).1, "own");
    // Those who wait, and the place where they do.
    edge.turn_until(|edge| edge.front.polls.misses.fetches() == 17);
    let mut exchanges = accept(&app, &mut edge, 15);
    first.request(&mut edge);
    exchanges.push(first);
    // Some leave while they wait, and the others do not wait for them.
    for client in clients.drain(30..) {
        client.reset();
    }
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 29);
    for number in 1..30 {
        let mut exchange = exchanges.remove(0);
        exchange.answer(200, "", &format!("own {number}"));
        if number < 14 {
            exchange.request(&mut edge);
            exchanges.push(exchange);
            assert!(edge.driver.front.polls.misses.fetches() <= 17);
        }
    }
    for client in &mut clients[1..] {
        assert!(edge.answer(client).1.starts_with("own "));
    }
    edge.assert_nothing_left();
}

#[test]
fn one_whose_fields_were_left_out_asks_with_them_before_it_is_refused() {
    for (status, fields) in [(400, ""), (406, ""), (200, "Vary: X-Tenant\r\n")] {
        let app = App::start();
        let mut edge = Edge::before(&app, "");
        let tenants = ["one", "two"].map(|name| format!("GET /poll/a\nX-Tenant: {name}\r\n"));
        let mut clients = ask_all(&mut edge, &tenants);
        let mut exchange = app.connection(&mut edge);
        let request = exchange.read_until(&mut edge, "\r\n\r\n");
        assert!(!request.contains("X-Tenant"), "{request}");
        exchange.answer(status, fields, "whose?");
        let mut other = app.connection(&mut edge);
        let requests = [&mut exchange, &mut other].map(|exchange| {
            let request = exchange.read_until(&mut edge, "\r\n\r\n");
            let tenant = request
                .lines()
                .find_map(|line| line.strip_prefix("X-Tenant: "));
            let tenant = tenant.unwrap_or("nobody").to_owned();
            exchange.answer(200, fields, &tenant);
            tenant
        });
        assert_ne!(requests[0], requests[1]);
        for (client, tenant) in clients.iter_mut().zip(["one", "two"]) {
            assert_eq!(edge.answer(client), (200, tenant.to_owned()));
        }
        edge.assert_nothing_left();
    }
}

#[test]
fn a_failure_that_a_cookie_may_have_brought_about_is_its_clients() {
    let app = App::start();
    let route = "[[route]]\nprefix = \"/poll/\"\nshare_cookies = true\nnegative = \"1h\"";
    let mut edge = Edge::before(&app, route);
    let asks = ["evil", "good"].map(|name| format!("GET /poll/a\nCookie: a={name}\r\n"));
    let mut clients = ask_all(&mut edge, &asks);
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(500, "", "broken");
    assert_eq!(edge.answer(&mut clients[0]), (500, "broken".to_owned()));
    let request = exchange.read_until(&mut edge, "\r\n\r\n");
    assert!(request.contains("Cookie: a=good\r\n"), "{request}");
    exchange.answer(200, "", "good");
    assert_eq!(edge.answer(&mut clients[1]), (200, "good".to_owned()));
    clients[0].send("GET /poll/a");
    exchange.request(&mut edge);
    exchange.answer(200, "", "good");
    assert_eq!(edge.answer(&mut clients[0]), (200, "good".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn what_fills_the_cache_is_asked_for_with_nothing_of_a_client() {
    let app = App::start();
    let options = "upstream.default_host = \"example.com\"\n\
        [[route]]\nprefix = \"/poll/\"\nfill = true";
    let mut edge = Edge::before(&app, options);
    let keep = "Cache-Control: max-age=60\r\n";
    // An answer to more than the key has is for no other client.
    let mut client = edge.ask("GET /poll/a?callback=evil");
    let mut exchange = app.connection(&mut edge);
    exchange.request(&mut edge);
    exchange.answer(200, keep, "evil");
    assert_eq!(edge.answer(&mut client).1, "evil");
    assert!(!edge.is_stored("/poll/a"));
    client.send("GET http://evil/poll/a\nX-Forwarded-Host: evil\r\nAccept: text/evil\r\n");
    let request = exchange.read_until(&mut edge, "\r\n\r\n");
    let expected = "GET /poll/a HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: 127.0.0.1\r\n\
        X-Forwarded-Proto: http\r\nVia: 1.1 dwell\r\n\
        User-Agent: dwell\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(request, expected);
    exchange.answer(200, keep, "good");
    assert_eq!(edge.answer(&mut client).1, "good");
    assert!(edge.is_stored("/poll/a"));
    edge.assert_nothing_left();
}

#[test]
fn an_application_that_wants_its_own_name_is_asked_by_it() {
    let app = App::start();
    let mut edge = Edge::before(&app, "[[route]]\nprefix = \"/poll/\"\nfill = true");
    let mut client = edge.ask("GET /poll/a");
    let mut exchange = app.connection(&mut edge);
    let request = exchange.read_until(&mut edge, "\r\n\r\n");
    assert!(request.contains("Host: localhost\r\n"), "{request}");
    exchange.answer(400, "", "unknown host");
    let request = exchange.read_until(&mut edge, "\r\n\r\n");
    assert!(request.contains("Host: edge\r\n"), "{request}");
    exchange.answer(200, "", "good");
    assert_eq!(edge.answer(&mut client), (200, "good".to_owned()));
    edge.assert_nothing_left();
}
