//! A model of the cursor: clients that change their transport in mid-stream while values change,
//! keys go and servers restart. Each of them ends on what is there, waits on nothing that is old,
//! and is told nothing that it has.

use super::before_memcached;
use super::feeds::Events;
use super::harness::{Client, Edge, PATIENCE, cursor, memcached};
use super::sockets::Socket;
use dwell_testkit::sim::SimMemcached;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Value, json};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// A value of each key, or that there is none.
type Values = [Option<String>; KEYS.len()];

#[derive(Clone, Copy, Debug)]
enum Transport {
    Poll,
    LongPoll,
    Stream,
    Socket,
}

/// Which keys a request is for.
#[derive(Clone, Copy, Debug)]
enum Keys {
    One(usize),
    All,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, u8),
    Delete(usize),
    /// A turn of the loop.
    Turn,
    /// A client leaves and comes back with what it has.
    Reconnect(usize, Transport, Keys),
    /// A client of a WebSocket gives a key up, or takes it up again.
    Toggle(usize, usize),
    RestartEdge,
    RestartCache,
}

const TRANSPORTS: [Transport; 5] = [
    Transport::Poll,
    Transport::LongPoll,
    Transport::Stream,
    Transport::Socket,
    Transport::Socket,
];

/// The keys of a request by number: two of three are for all.
fn keys(number: usize) -> Keys {
    if number < KEYS.len() {
        Keys::One(number)
    } else {
        Keys::All
    }
}

/// Draws a step in one go: a union would draw a generator for each of its arms.
fn step() -> impl Strategy<Value = Step> {
    let client = (0..FOLLOWERS, 0..TRANSPORTS.len(), 0..3 * KEYS.len());
    let drawn = (0..58_u8, 0..KEYS.len(), 0..4_u8, client);
    drawn.prop_map(|(kind, key, value, (place, transport, of))| match kind {
        0..16 => Step::Set(key, value),
        16..22 => Step::Delete(key),
        22..38 => Step::Turn,
        38..48 => Step::Reconnect(place, TRANSPORTS[transport], keys(of)),
        48..56 => Step::Toggle(place, key),
        56 => Step::RestartEdge,
        _ => Step::RestartCache,
    })
}

/// The edge, its cache where that is not embedded, and what the keys have.
struct World {
    edge: Edge,
    memcached: Option<SimMemcached>,
    now: Values,
}

impl World {
    fn new(memcached: Option<SimMemcached>) -> Self {
        Self {
            edge: begin(memcached.as_ref()),
            memcached,
            now: Values::default(),
        }
    }

    fn set(&mut self, key: usize, value: &str) {
        let name = format!("/poll/{}", KEYS[key]);
        match &self.memcached {
            Some(memcached) => memcached.set(&name, value),
            None => self.edge.set(&name, value),
        }
        self.now[key] = Some(value.to_owned());
    }

    fn delete(&mut self, key: usize) {
        if self.now[key].take().is_none() {
            return;
        }
        let name = format!("/poll/{}", KEYS[key]);
        let Some(memcached) = &self.memcached else {
            return self.edge.delete(&name);
        };
        memcached.delete(&name);
    }

    /// What the store of the edge has, or memcached, is gone with it.
    fn restart_edge(&mut self) {
        self.edge = begin(self.memcached.as_ref());
        if self.memcached.is_none() {
            self.now = Values::default();
        }
    }

    fn restart_cache(&mut self) {
        if let Some(memcached) = &mut self.memcached {
            memcached.restart();
            self.now = Values::default();
        }
    }
}

fn begin(memcached: Option<&SimMemcached>) -> Edge {
    match memcached {
        Some(memcached) => before_memcached(memcached.address(), "memcached.timeout = \"200ms\""),
        None => Edge::new(""),
    }
}

/// One client.
struct Follower {
    has: Values,
    transport: Transport,
    keys: Keys,
    line: Line,
    /// The keys that it follows now.
    follows: [bool; KEYS.len()],
    /// With what it has taken keys of a WebSocket up again. A frame that came meanwhile may come
    /// once more.
    said: [Vec<Option<String>>; KEYS.len()],
}

enum Line {
    Requests(Client),
    /// With the bytes and the events that were taken in.
    Stream(Events, usize, usize),
    Socket(Socket, usize),
}

impl Follower {
    fn begin(edge: &Edge, transport: Transport, keys: Keys) -> Self {
        let mut follower = Self {
            has: Values::default(),
            transport,
            keys,
            line: Line::Requests(edge.connect()),
            follows: [false; KEYS.len()],
            said: Default::default(),
        };
        follower.connect(edge);
        follower
    }

    fn since(&self, key: usize) -> String {
        self.has[key].as_deref().map_or_else(String::new, cursor)
    }

    /// The path and query of its request, and the cursor that goes with it.
    fn target(&self) -> (String, String) {
        match self.keys {
            Keys::One(key) => (format!("/poll/{}?x=1", KEYS[key]), self.since(key)),
            Keys::All => {
                let since: Vec<_> = (0..KEYS.len()).map(|key| self.since(key)).collect();
                ("/poll/?k=a&k=b&k=c".to_owned(), since.join("."))
            }
        }
    }

    /// Comes back with what it has.
    fn connect(&mut self, edge: &Edge) {
        self.said = Default::default();
        self.follows = match self.keys {
            Keys::One(one) => std::array::from_fn(|key| key == one),
            Keys::All => [true; KEYS.len()],
        };
        let (target, since) = self.target();
        self.line = match self.transport {
            Transport::Poll | Transport::LongPoll => Line::Requests(edge.connect()),
            Transport::Stream => Line::Stream(Events::follow(edge, &target, &since), 0, 0),
            Transport::Socket => {
                Line::Socket(Socket::open(edge, &format!("{target}&since={since}")), 0)
            }
        };
        self.ask();
    }

    /// Asks once more, where that is its transport.
    fn ask(&mut self) {
        let (target, since) = self.target();
        let wait = match self.transport {
            Transport::LongPoll => "50s",
            _ => "0",
        };
        if let Line::Requests(client) = &mut self.line {
            client.send(&format!("GET {target}&since={since}&wait={wait}"));
        }
    }

    /// Gives a key of a WebSocket up, or takes it up again.
    fn toggle(&mut self, key: usize) {
        let (since, name) = (self.since(key), KEYS[key]);
        let (Line::Socket(socket, _), Keys::All) = (&mut self.line, self.keys) else {
            return;
        };
        let frame = if self.follows[key] {
            json!({ "unsubscribe": [name] })
        } else {
            self.said[key].push(self.has[key].clone());
            json!({ "subscribe": [name], "since": { name: since } })
        };
        self.follows[key] ^= true;
        socket.say(&frame.to_string());
    }

    /// It is told what a key has; that is nothing it has already.
    fn told(&mut self, key: usize, told: Option<String>) -> TestCaseResult {
        if told == self.has[key] {
            let stale = self.said[key].iter().position(|said| *said != told);
            prop_assert!(stale.is_some(), "told twice of {}: {told:?}", KEYS[key]);
            self.said[key].remove(stale.unwrap_or_default());
        }
        self.has[key] = told;
        Ok(())
    }

    fn told_json(&mut self, key: usize, told: &Value) -> TestCaseResult {
        let value = told["v"].as_str().map(ToOwned::to_owned);
        if let Some(value) = &value {
            prop_assert_eq!(told["c"].as_str(), Some(&*cursor(value)));
        }
        self.told(key, value)
    }

    /// Takes in what has come.
    fn read(&mut self, edge: &Edge) -> TestCaseResult {
        match &mut self.line {
            Line::Requests(client) => match client.take_answer() {
                None => Ok(()),
                Some((0, _)) => {
                    self.connect(edge);
                    Ok(())
                }
                Some((status, body)) => {
                    self.answered(status, body)?;
                    self.ask();
                    Ok(())
                }
            },
            Line::Stream(events, bytes, seen) => {
                let received = events.received();
                if std::mem::replace(bytes, received) == received {
                    return Ok(());
                }
                let news: Vec<_> = events.all().into_iter().skip(*seen).collect();
                *seen += news.len();
                news.into_iter()
                    .try_for_each(|(kind, id, data)| self.event(&kind, &id, data))
            }
            Line::Socket(socket, seen) => {
                socket.read();
                let news: Vec<String> = socket.frames.drain(..).collect();
                *seen += news.len();
                news.iter().try_for_each(|frame| self.frame(frame))
            }
        }
    }

    fn answered(&mut self, status: u16, body: String) -> TestCaseResult {
        match (self.keys, status) {
            (_, 204 | 304 | 503) => Ok(()),
            (Keys::One(key), 200) => self.told(key, Some(body)),
            (Keys::One(key), 404) => {
                self.has[key] = None;
                Ok(())
            }
            (Keys::All, 200) => {
                let content: Value = serde_json::from_str(&body).unwrap();
                for (key, name) in KEYS.into_iter().enumerate() {
                    if let Some(told) = content["values"].get(name) {
                        self.told_json(key, told)?;
                    }
                }
                prop_assert_eq!(content["cursor"].as_str(), Some(&*self.target().1));
                Ok(())
            }
            _ => Err(TestCaseError::fail(format!("status {status}: {body}"))),
        }
    }

    fn event(&mut self, kind: &str, id: &str, data: String) -> TestCaseResult {
        let (key, told) = match (self.keys, kind) {
            (Keys::One(key), "delete") => (key, None),
            (Keys::One(key), _) => (key, Some(data)),
            (Keys::All, "delete") => (place_of(&data), None),
            (Keys::All, name) => (place_of(name), Some(data)),
        };
        self.told(key, told)?;
        prop_assert_eq!(id, &*self.target().1, "the id says what it has");
        Ok(())
    }

    fn frame(&mut self, frame: &str) -> TestCaseResult {
        let told: Value = serde_json::from_str(frame).unwrap();
        prop_assert!(told.get("error").is_none(), "{frame}");
        let key = match (self.keys, told["k"].as_str()) {
            (Keys::One(key), None) => key,
            (Keys::All, Some(name)) => place_of(name),
            _ => return Err(TestCaseError::fail(format!("whose key? {frame}"))),
        };
        self.told_json(key, &told)
    }

    /// Whether it has what there is, of the keys that it follows.
    fn is_up_to_date(&self, now: &Values) -> bool {
        let is_so = |key: usize| !self.follows[key] || self.has[key] == now[key];
        (0..KEYS.len()).all(is_so)
    }
}

fn place_of(name: &str) -> usize {
    KEYS.iter().position(|known| *known == name).unwrap()
}

impl Events {
    /// The type, id and data of each whole event; sizes of chunks are no fields.
    fn all(&mut self) -> Vec<(String, String, String)> {
        let text = self.text().replace("\r\n", "\n");
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
        let field = |block: &str, name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(':'));
            let value = lines.find(|(field, _)| *field == name)?.1;
            Some(value.strip_prefix(' ').unwrap_or(value).to_owned())
        };
        let event = |block: &str| {
            let kind = field(block, "event").unwrap_or_default();
            Some((kind, field(block, "id")?, field(block, "data")?))
        };
        whole.split("\n\n").filter_map(event).collect()
    }
}

const FOLLOWERS: usize = 4;

fn take(world: &mut World, followers: &mut [Follower], step: Step) {
    match step {
        Step::Set(key, value) => world.set(key, &format!("value {value}")),
        Step::Delete(key) => world.delete(key),
        Step::Turn => world.edge.turn(),
        Step::Reconnect(place, transport, keys) => {
            let follower = &mut followers[place];
            (follower.transport, follower.keys) = (transport, keys);
            follower.connect(&world.edge);
        }
        Step::Toggle(place, key) => followers[place].toggle(key),
        Step::RestartEdge => {
            world.restart_edge();
            for follower in followers {
                follower.connect(&world.edge);
            }
        }
        Step::RestartCache => world.restart_cache(),
    }
}

/// Takes all steps, and then waits until everybody has what is there.
fn play(mut world: World, steps: Vec<Step>) -> TestCaseResult {
    let transports = [
        Transport::Poll,
        Transport::LongPoll,
        Transport::Stream,
        Transport::Socket,
    ];
    let mut followers: [Follower; FOLLOWERS] =
        transports.map(|transport| Follower::begin(&world.edge, transport, Keys::All));
    for step in steps {
        take(&mut world, &mut followers, step);
        for follower in &mut followers {
            follower.read(&world.edge)?;
        }
    }
    let end = world.edge.elapsed() + PATIENCE;
    while !followers.iter().all(|it| it.is_up_to_date(&world.now)) {
        let has: Vec<_> = followers.iter().map(|it| (&it.has, it.follows)).collect();
        prop_assert!(
            world.edge.elapsed() < end,
            "{has:?} wait on {:?}",
            world.now
        );
        world.edge.turn();
        for follower in &mut followers {
            follower.read(&world.edge)?;
        }
    }
    drop(followers);
    world.edge.assert_nothing_left();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_client_of_the_store_ends_on_what_is_there(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        play(World::new(None), steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_client_before_memcached_ends_on_what_is_there(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        play(World::new(Some(memcached())), steps)?;
    }
}
