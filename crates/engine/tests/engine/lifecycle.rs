//! Connections of all sorts of clients and an app that does all it may, as chance will have it.
//!
//! What must hold whatever happens: answers come in order and well-framed, with the bytes the app
//! gave; every exchange comes to one end that the app is told of; nobody is left when the clients
//! have gone; and a loop that nothing happens to rests.

mod client;
mod model;
mod random;

use client::{Client, Missing};
use dwell_engine::Limits;
use dwell_evloop::EventLoop;
use dwell_testkit::{Rig, Serving};
use model::{Model, State};
use random::Random;
use std::time::{Duration, Instant};

/// For what must happen, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rounds in a row without an event after which a world may be at rest.
const QUIET_ROUNDS: usize = 5;
/// The turn of a world that waits for what the kernel has not delivered. Clients are not heard of
/// by the loop, so it is short.
const LATE: Duration = Duration::from_millis(2);
/// The time in which the loop sees that its clients have gone: less than a connection lingers, so
/// that no deadline does it.
const LEAVING: Duration = Duration::from_millis(1500);
/// Turns in which it sees that at least.
const ROUNDS_MAX: usize = 20_000;

type Server = Serving<Model>;

/// A server, its clients, and the chance that drives them.
struct World {
    event_loop: EventLoop<()>,
    server: Server,
    clients: Vec<Client>,
    random: Random,
}

fn limits(random: &mut Random, timeout: Duration) -> Limits {
    Limits {
        requests_per_connection_max: random.of(&[3, 1000]),
        unread_body_bytes_max: random.of(&[0, 500, 100_000]),
        held_input_bytes_max: random.of(&[0, 20_000, 1 << 20]),
        gathered_bytes_max: random.of(&[100_000, 1 << 20, 1 << 28]),
        output_bytes_max: random.of(&[0, 1000, 100_000]),
        header_timeout: timeout,
        body_timeout: timeout,
        idle_timeout: timeout,
        write_timeout: timeout,
        ..Limits::default()
    }
}

impl World {
    fn new(seed: u64, clients: usize, timeout: Duration) -> Self {
        let mut random = Random::new(seed);
        let limits = limits(&mut random, timeout);
        let (event_loop, mut server, address) = Serving::start(limits, Model::new(!seed));
        let clients = (0..clients).map(|client| Client::new(&mut random, address, client));
        let mut clients: Vec<_> = clients.collect();
        let planned = clients
            .iter_mut()
            .map(|client| std::mem::take(&mut client.planned));
        server.app.planned = planned.collect();
        Self {
            event_loop,
            server,
            clients,
            random,
        }
    }

    fn turn(&mut self) {
        self.turn_for(Duration::ZERO);
    }

    /// Something happens, or nothing.
    fn step(&mut self) {
        for client in &mut self.clients {
            client.step(&mut self.random);
        }
        if self.random.once_in(3) {
            self.act();
        }
        if self.random.once_in(60) {
            let context = self.event_loop.context();
            self.server.http.drain(context, &mut self.server.app);
        }
        self.turn();
    }

    /// The app does something by itself.
    fn act(&mut self) {
        let held = self.server.app.held();
        if held.is_empty() {
            return;
        }
        let index = self.random.of(&held);
        let Server { http, app, .. } = &mut self.server;
        let context = self.event_loop.context();
        let exchange = app.exchanges[index].id;
        assert!(http.is_held(exchange), "what was not ended is held");
        match self.random.below(20) {
            0 => assert!(http.abort(context, exchange)),
            1 => {
                if http.detach(context, exchange).is_none() {
                    // The client has sent too much to leave; the app hears of its end.
                    app.exchanges[index].is_broken = true;
                    return;
                }
            }
            2 => drop(http.close_connection(context, exchange.connection())),
            3 | 4 => {
                let (tag, timeout) = (app.tag(index), app.timeout());
                assert!(http.hold(context, exchange, tag, timeout));
                app.exchanges[index].state = State::Held(tag);
                return;
            }
            _ => return self.play(index),
        }
        app.exchanges[index].state = State::Over;
        app.exchanges[index].is_broken = true;
        if !http.contains(exchange.connection()) {
            app.gone(exchange.connection());
        }
    }

    /// The app writes to a held exchange.
    fn play(&mut self, index: usize) {
        let Server { http, app, .. } = &mut self.server;
        let context = self.event_loop.context();
        let exchange = app.exchanges[index].id;
        let is_over = http.with_reply(context, exchange, |reply| {
            app.play(index, reply);
            reply.is_sent() && !reply.is_open()
        });
        let is_over = is_over.expect("the exchange is held");
        assert_eq!(
            http.is_held(exchange),
            !is_over,
            "held until it is answered"
        );
        if is_over {
            app.exchanges[index].state = State::Over;
        }
        if !http.contains(exchange.connection()) {
            app.gone(exchange.connection());
        }
    }

    /// Everything that is asked is answered, until each client has what it is owed and nothing
    /// happens any more.
    ///
    /// The kernel may be late with what one side has sent, so rest alone is not the end.
    fn settle(&mut self) {
        self.server.app.resolves = true;
        let begun = Instant::now();
        let mut quiet = 0;
        loop {
            let before = (self.server.visits, self.server.app.exchanges.len());
            for index in self.server.app.held() {
                self.play(index);
            }
            self.turn_for(if quiet > QUIET_ROUNDS {
                LATE
            } else {
                Duration::ZERO
            });
            let mut has_moved = false;
            for client in &mut self.clients {
                has_moved |= client.go_on();
            }
            let after = (self.server.visits, self.server.app.exchanges.len());
            quiet = if has_moved || before != after {
                0
            } else {
                quiet + 1
            };
            let missing = (quiet >= QUIET_ROUNDS).then(|| self.missing());
            if matches!(missing, Some(None)) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no rest: {missing:?}");
        }
    }

    /// The debt to the first client that is owed something.
    fn missing(&self) -> Option<Missing> {
        let app = &self.server.app;
        let mut clients = self.clients.iter().enumerate();
        clients.find_map(|(number, client)| {
            client.missing(&app.planned[number], &app.of_client(number))
        })
    }

    fn check(&self, is_settled: bool) {
        for (number, client) in self.clients.iter().enumerate() {
            let app = &self.server.app;
            client.check(&app.planned[number], &app.of_client(number), is_settled);
        }
    }

    /// All clients go; nothing of them may be left.
    fn leave(&mut self) {
        for client in &mut self.clients {
            client.leave(&mut self.random);
        }
        self.server.app.resolves = true;
        let (begun, mut rounds) = (Instant::now(), 0);
        while rounds < ROUNDS_MAX || begun.elapsed() < LEAVING {
            rounds += 1;
            let Server { http, app, .. } = &mut self.server;
            if http.connections() == 0 {
                break;
            }
            for index in app.held() {
                let (context, id) = (self.event_loop.context(), app.exchanges[index].id);
                let tag = app.tag(index);
                app.exchanges[index].state = State::Held(tag);
                assert!(http.hold(context, id, tag, None));
                app.exchanges[index].granted = 1 << 41;
                http.grant(context, id, 1 << 40);
            }
            self.turn();
        }
        self.nobody_is_left();
    }

    fn nobody_is_left(&mut self) {
        assert_eq!(self.server.http.connections(), 0);
        assert_eq!(self.event_loop.context().armed(), 0);
        let app = &self.server.app;
        assert!(
            app.exchanges
                .iter()
                .all(|exchange| exchange.state == State::Over)
        );
        assert!(app.open.is_empty(), "the app was told of each end");
    }
}

impl Rig for World {
    type Driver = Server;

    fn parts(&mut self) -> (&mut EventLoop<()>, &mut Server) {
        (&mut self.event_loop, &mut self.server)
    }
}

#[test]
fn whatever_happens_exchanges_come_to_one_end() {
    for seed in 0..400 {
        // Shown where it fails.
        println!("seed {seed}");
        let mut world = World::new(seed, 3, PATIENCE);
        for _ in 0..world.random.below(150) {
            world.step();
        }
        world.check(false);
        if !world.random.once_in(3) {
            world.settle();
            world.check(true);
        }
        world.leave();
    }
}

#[test]
fn clients_that_stall_anywhere_are_let_go() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut world = World::new(seed, 60, Duration::from_millis(30));
        world.server.app.is_timed = true;
        for _ in 0..world.random.below(60) {
            world.step();
        }
        let begun = Instant::now();
        while world.server.http.connections() > 0 {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            assert!(!left.is_zero(), "a deadline is missing");
            world.turn_for(left);
        }
        world.check(false);
        world.nobody_is_left();
    }
}
