//! Several servers, as one that forwards sees them.

use super::super::tests::harness::{OK, PATIENCE, read_request, request};
use super::super::{FaultLog, HealthCheck};
use super::*;
use dwell_evloop::{Driver, EventLoop};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

const KIND: u8 = 100;

struct Loop {
    event_loop: EventLoop<()>,
    driver: Alone,
}

/// A loop's driver with nothing but a group.
struct Alone {
    group: UpstreamGroup,
    events: Vec<(u64, Result<u16, UpstreamError>)>,
    /// Connections of requests whose body follows.
    started: Vec<Token>,
}

impl Alone {
    fn record(
        events: &mut Vec<(u64, Result<u16, UpstreamError>)>,
        started: &mut Vec<Token>,
        event: UpstreamEvent,
    ) {
        events.push(match event {
            UpstreamEvent::Answer { tag, answer } => (tag, Ok(answer.status)),
            UpstreamEvent::Failed { tag, error, .. } => (tag, Err(error)),
            UpstreamEvent::Started { connection, .. } => return started.push(connection),
            other => panic!("{other:?}"),
        });
    }
}

impl Driver for Alone {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        let Self {
            group,
            events,
            started,
        } = self;
        let mut sink = |_: &mut Context, event| Self::record(events, started, event);
        group.ready(context, token, readiness, &mut sink);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        let Self {
            group,
            events,
            started,
        } = self;
        let mut sink = |_: &mut Context, event| Self::record(events, started, event);
        group.expired(context, token, &mut sink);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}

    fn turn_end(&mut self, context: &mut Context) {
        self.group.start(context);
    }
}

impl Loop {
    fn new(servers: &[SocketAddr], change: impl FnOnce(&mut GroupOptions)) -> Self {
        let servers: Vec<_> = servers.iter().map(|at| UpstreamOptions::new(*at)).collect();
        let mut options = GroupOptions {
            failures_max: 3,
            failures_window: Duration::from_secs(30),
            health: None,
            seed: 7,
            faults: Arc::default(),
        };
        change(&mut options);
        Self {
            event_loop: EventLoop::new().unwrap(),
            driver: Alone {
                group: UpstreamGroup::new(KIND, &servers, options),
                events: Vec::new(),
                started: Vec::new(),
            },
        }
    }

    fn turn(&mut self, timeout: Duration) {
        let Self { event_loop, driver } = self;
        event_loop.turn(driver, Some(timeout)).unwrap();
    }

    #[track_caller]
    fn turn_until(&mut self, mut is_so: impl FnMut(&mut Alone) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(&mut self.driver) {
            assert!(Instant::now() < end, "nothing came of it");
            self.turn(Duration::from_millis(10));
        }
    }

    fn send(&mut self, tag: u64, method: &str) -> Result<(), UpstreamError> {
        self.send_with(tag, method, false)
    }

    fn send_with(
        &mut self,
        tag: u64,
        method: &str,
        body_follows: bool,
    ) -> Result<(), UpstreamError> {
        let request = UpstreamRequest {
            body_follows,
            ..request(tag, method, &format!("/{tag}"), None)
        };
        self.send_request(request)
    }

    fn send_request(&mut self, request: UpstreamRequest) -> Result<(), UpstreamError> {
        self.turn(Duration::ZERO);
        let sent = self.driver.group.send(self.event_loop.context(), request);
        sent.map_err(|unsent| unsent.error)
    }

    /// As [`ask`](Self::ask), for `path` and by a client that has this number.
    #[track_caller]
    fn ask_for(
        &mut self,
        tag: u64,
        method: &str,
        path: &str,
        client: Option<u8>,
    ) -> Result<u16, UpstreamError> {
        self.send_request(request(tag, method, path, client))?;
        self.outcome_of(tag)
    }

    #[track_caller]
    fn ask(&mut self, tag: u64, method: &str) -> Result<u16, UpstreamError> {
        self.send(tag, method)?;
        self.outcome_of(tag)
    }

    #[track_caller]
    fn outcome_of(&mut self, tag: u64) -> Result<u16, UpstreamError> {
        self.turn_until(|driver| !driver.events.is_empty());
        let (seen, result) = self.driver.events.remove(0);
        assert_eq!(seen, tag);
        result
    }

    fn ups(&self) -> Vec<bool> {
        self.driver
            .group
            .statuses()
            .map(|status| status.is_up)
            .collect()
    }
}

/// A server that does as told with each connection; it counts its requests.
struct App {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl App {
    fn new(answer: impl Fn(&str, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (counter, answer) = (Arc::clone(&requests), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (counter, answer) = (Arc::clone(&counter), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    while let Some(head) = read_request(&mut stream) {
                        counter.fetch_add(1, SeqCst);
                        if !answer(&head, &mut stream) {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn answering(bytes: &'static [u8]) -> Self {
        Self::new(move |_, stream| stream.write_all(bytes).is_ok())
    }

    fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

/// An address that refuses connections.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn the_one_with_the_fewest_under_way_is_asked() {
    let silent = || {
        App::new(|_, stream| {
            let _ = stream.read(&mut [0]);
            false
        })
    };
    let apps = [silent(), silent(), silent()];
    let mut edge = Loop::new(&apps.each_ref().map(|app| app.address), |_| {});
    for tag in 0..9 {
        edge.send(tag, "GET").unwrap();
    }
    let outstanding = edge
        .driver
        .group
        .statuses()
        .map(|status| status.outstanding);
    assert_eq!(outstanding.collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn equal_ones_take_turns() {
    let apps = [App::answering(OK), App::answering(OK)];
    let mut edge = Loop::new(&apps.each_ref().map(|app| app.address), |_| {});
    for tag in 0..64 {
        assert_eq!(edge.ask(tag, "GET"), Ok(200));
    }
    let requests = apps.each_ref().map(App::requests);
    assert!(requests.iter().all(|count| *count > 8), "{requests:?}");
    assert_eq!(requests.iter().sum::<usize>(), 64);
}

#[test]
fn a_server_that_refuses_connections_costs_nobody_an_answer_and_is_left_out() {
    let app = App::answering(OK);
    let mut edge = Loop::new(&[nobody(), app.address], |_| {});
    for tag in 0..32 {
        let method = if tag % 2 == 0 { "GET" } else { "POST" };
        assert_eq!(edge.ask(tag, method), Ok(200));
    }
    assert_eq!(edge.ups(), [false, true]);
    assert!(edge.driver.group.take_retried() >= 3);
    assert_eq!(app.requests(), 32);
}

#[test]
fn a_request_that_may_be_repeated_goes_to_another_when_its_connection_ends() {
    let cutting = App::new(|_, _| false);
    let app = App::answering(OK);
    let mut edge = Loop::new(&[cutting.address, app.address], |_| {});
    for tag in 0..16 {
        assert_eq!(edge.ask(tag, "GET"), Ok(200));
    }
    assert_eq!(edge.ups(), [false, true]);
}

#[test]
fn a_request_that_may_not_be_repeated_fails_where_it_was_sent() {
    let cutting = [App::new(|_, _| false), App::new(|_, _| false)];
    let mut edge = Loop::new(&cutting.each_ref().map(|app| app.address), |_| {});
    assert_eq!(edge.ask(1, "POST"), Err(UpstreamError::Closed));
    assert_eq!(cutting.iter().map(App::requests).sum::<usize>(), 1);
}

#[test]
fn half_an_answer_is_not_asked_for_again() {
    let half = || {
        App::new(|_, stream| {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
                .unwrap();
            false
        })
    };
    let apps = [half(), half()];
    let mut edge = Loop::new(&apps.each_ref().map(|app| app.address), |_| {});
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::Closed));
    assert_eq!(apps.iter().map(App::requests).sum::<usize>(), 1);
}

#[test]
fn each_server_is_asked_once_and_then_the_last_failure_is_told() {
    let mut edge = Loop::new(&[nobody(), nobody(), nobody()], |_| {});
    let refused = Err(UpstreamError::Connect(
        std::io::ErrorKind::ConnectionRefused,
    ));
    assert_eq!(edge.ask(1, "GET"), refused);
    assert_eq!(edge.driver.group.take_retried(), 2);
}

#[test]
fn each_failed_attempt_counts_for_its_server() {
    let app = app_with_bad_paths();
    let mut edge = Loop::new(&[nobody(), nobody(), app.address], |_| {});
    let mut counts = [0; 3];
    // The choice among servers that have nothing to do is random.
    for tag in 0..20 {
        assert_eq!(edge.ask(tag, "GET"), Ok(200));
        for (place, count) in counts.iter_mut().enumerate() {
            let failed = edge.driver.group.take_failed(place);
            *count += failed.map_or(0, |(count, error)| {
                assert!(matches!(error, UpstreamError::Connect(_)), "{error}");
                count
            });
        }
    }
    let retried = edge.driver.group.take_retried();
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    assert_eq!((counts.iter().sum::<u64>(), counts[2]), (retried, 0));
}

#[test]
fn while_no_server_is_in_use_every_request_tries_one() {
    let mut edge = Loop::new(&[nobody()], |_| {});
    for tag in 0..20 {
        assert!(matches!(
            edge.ask(tag, "GET"),
            Err(UpstreamError::Connect(_))
        ));
    }
    assert_eq!(edge.ups(), [false]);
}

/// Closes the connection for paths that contain `bad`, and answers all others.
fn app_with_bad_paths() -> App {
    App::new(|head, stream| !head.contains("bad") && stream.write_all(OK).is_ok())
}

#[test]
fn an_answer_to_any_loop_ends_a_failure_that_another_has_logged() {
    let (app, faults) = (app_with_bad_paths(), Arc::<FaultLog>::default());
    let new = || {
        let shares = |options: &mut GroupOptions| options.faults = Arc::clone(&faults);
        Loop::new(&[app.address], shares)
    };
    let (mut failing, mut other) = (new(), new());
    let failed = failing.ask_for(1, "GET", "/bad", None);
    assert_eq!(failed, Err(UpstreamError::Closed));
    assert_eq!(other.ask_for(2, "GET", "/good", None), Ok(200));
    assert!(!faults.answered(0), "the answer was not logged");
}

#[test]
fn one_path_that_fails_does_not_take_a_server_away_from_the_others() {
    for count in [1, 2, 3] {
        let apps: Vec<_> = (0..count).map(|_| app_with_bad_paths()).collect();
        let addresses: Vec<_> = apps.iter().map(|app| app.address).collect();
        let mut edge = Loop::new(&addresses, |_| {});
        // Each server has answered something.
        for _ in 0..100 {
            assert_eq!(edge.ask_for(1, "GET", "/good", None), Ok(200));
        }
        for round in 0..30 {
            for attacker in 0..8 {
                let failed = edge.ask_for(2, "GET", "/bad", Some(attacker));
                assert_eq!(failed, Err(UpstreamError::Closed), "{count} {round}");
            }
            let good = edge.ask_for(1, "GET", "/good", Some(200));
            assert_eq!(good, Ok(200), "{count} {round}");
        }
        assert_eq!(edge.ups(), vec![true; count], "{count}");
    }
}

#[test]
fn one_client_whose_requests_all_fail_takes_no_server_away_from_the_others() {
    let apps = [app_with_bad_paths(), app_with_bad_paths()];
    let mut edge = Loop::new(&apps.each_ref().map(|app| app.address), |_| {});
    for client in 0..50 {
        assert_eq!(edge.ask_for(1, "GET", "/good", Some(client)), Ok(200));
    }
    for path in 0..200 {
        let path = format!("/bad{path}");
        let failed = edge.ask_for(2, "GET", &path, Some(99));
        assert_eq!(failed, Err(UpstreamError::Closed));
    }
    assert_eq!(edge.ups(), [true, true]);
}

#[test]
fn the_request_that_ends_its_server_is_sent_to_one_other_at_most() {
    let apps: Vec<_> = (0..5).map(|_| app_with_bad_paths()).collect();
    let addresses: Vec<_> = apps.iter().map(|app| app.address).collect();
    let mut edge = Loop::new(&addresses, |_| {});
    let failed = edge.ask_for(1, "GET", "/bad", None);
    assert_eq!(failed, Err(UpstreamError::Closed));
    assert_eq!(apps.iter().map(App::requests).sum::<usize>(), 2);
}

#[test]
fn at_most_half_of_the_servers_are_left_out_where_none_of_them_answers() {
    let apps: Vec<_> = (0..4).map(|_| App::new(|_, _| false)).collect();
    let addresses: Vec<_> = apps.iter().map(|app| app.address).collect();
    let mut edge = Loop::new(&addresses, |_| {});
    for tag in 0..60 {
        let failed = edge.ask_for(tag, "GET", &format!("/{tag}"), Some(tag as u8));
        assert_eq!(failed, Err(UpstreamError::Closed));
        let out = edge.ups().iter().filter(|is_up| !**is_up).count();
        assert!(out <= 2, "{out}");
    }
    assert_eq!(edge.ups().iter().filter(|is_up| **is_up).count(), 2);
}

#[test]
fn servers_that_are_looked_after_come_and_go_by_what_they_say() {
    let status = Arc::new(AtomicUsize::new(500));
    let shown = Arc::clone(&status);
    let app = App::new(move |head, stream| {
        let looks = head.starts_with("GET /health ");
        let status = if looks { shown.load(SeqCst) } else { 200 };
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let mut edge = Loop::new(&[app.address], |options| {
        options.failures_max = 2;
        options.health = Some(HealthCheck {
            path: "/health".to_owned(),
            interval: Duration::from_millis(20),
        });
    });
    edge.turn_until(|driver| driver.group.statuses().all(|status| !status.is_up));
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::Unavailable));
    status.store(204, SeqCst);
    edge.turn_until(|driver| driver.group.statuses().all(|status| status.is_up));
    assert_eq!(edge.ask(2, "GET"), Ok(200));
}

#[test]
fn a_server_that_does_not_answer_a_look_is_left_out() {
    let app = App::new(|_, stream| {
        let _ = stream.read(&mut [0]);
        false
    });
    let mut edge = Loop::new(&[app.address], |options| {
        options.failures_max = 1;
        options.health = Some(HealthCheck {
            path: "/health".to_owned(),
            interval: Duration::from_millis(20),
        });
    });
    edge.turn_until(|driver| driver.group.statuses().all(|status| !status.is_up));
    assert!(edge.driver.group.connections() <= 2);
}

#[test]
fn a_body_that_follows_is_told_of_every_connection_and_let_go_of_by_any() {
    let heads = Arc::new(AtomicUsize::new(0));
    // Whichever is asked first hangs up; the other waits for the body.
    let app = || {
        let heads = Arc::clone(&heads);
        App::new(move |_, _| heads.fetch_add(1, SeqCst) > 0)
    };
    let apps = [app(), app()];
    let mut edge = Loop::new(&apps.each_ref().map(|app| app.address), |_| {});
    edge.send_with(1, "PUT", true).unwrap();
    edge.turn_until(|driver| driver.started.len() == 2);
    let [first, second] = edge.driver.started[..] else {
        panic!("{:?}", edge.driver.started);
    };
    assert_ne!(first, second);
    // Its client leaves before it has heard of the second one.
    let context = edge.event_loop.context();
    edge.driver.group.abort(context, first, 1);
    assert!(edge.driver.group.is_done());
    assert_eq!(edge.driver.events, []);
}

#[test]
fn a_trial_whose_client_leaves_is_followed_by_another() {
    let heads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&heads);
    let flaky = App::new(move |_, stream| match counter.fetch_add(1, SeqCst) {
        0 => false,
        1 => true,
        _ => stream.write_all(OK).is_ok(),
    });
    let other = App::answering(OK);
    let servers = [flaky.address, other.address];
    let mut edge = Loop::new(&servers, |options| options.failures_max = 1);
    while edge.ups() == [true, true] {
        let _ = edge.ask(1, "POST");
    }
    let opened = Instant::now();
    edge.turn_until(|_| opened.elapsed() > Duration::from_secs(1));
    edge.send(2, "GET").unwrap();
    edge.turn_until(|_| heads.load(SeqCst) == 2);
    assert_eq!(edge.ask(3, "GET"), Ok(200), "one is tried at a time");
    assert_eq!(heads.load(SeqCst), 2);
    edge.driver.group.cancel(edge.event_loop.context(), 2);
    assert_eq!(edge.ask(4, "GET"), Ok(200));
    assert_eq!(heads.load(SeqCst), 3);
    assert_eq!(edge.ups(), [true, true]);
}

#[test]
fn a_retired_group_is_done_whatever_its_servers_say_to_looks() {
    let app = App::new(|_, _| true);
    let health = HealthCheck {
        path: "/health".to_owned(),
        interval: Duration::from_millis(50),
    };
    let mut edge = Loop::new(&[app.address], |options| options.health = Some(health));
    edge.turn_until(|_| app.requests() > 0);
    edge.turn_until(|driver| !driver.group.is_done());
    edge.driver.group.retire(edge.event_loop.context());
    assert!(edge.driver.group.is_done());
    let end = Instant::now() + Duration::from_millis(200);
    edge.turn_until(|driver| {
        assert!(driver.group.is_done());
        Instant::now() > end
    });
}
