//! The table of waits beside a model of a server that tracks.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const KEY: &[u8] = b"/poll/a";

/// One connection to a server with one key, and whoever waits at its end.
struct Model {
    table: WaitedKeys,
    /// The value in the server, which each write counts up.
    value: u64,
    is_registered: bool,
    /// Commands that the server has not executed, and whether they are for those who wait.
    requests: VecDeque<(Token, bool)>,
    /// Bytes of the server that the client has not read.
    stream: VecDeque<FromServer>,
    /// The last value that came.
    known: Option<u64>,
    /// The last value that those who wait were told, or that they had read before.
    told: Option<u64>,
    /// Reads that were sent.
    reads: u64,
    /// The value of the last write of this client that has completed.
    written: u64,
    is_connected: bool,
    /// Changes that a server has gathered which announces all of them, but later, and not in the
    /// order of execution.
    gathered: Option<u32>,
}

#[derive(Debug)]
enum FromServer {
    Reply((Token, bool), u64),
    Refusal(Token, HoldEvent),
    Invalidation,
    /// An invalidation of everything.
    Flush,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Write,
    OwnWrite,
    Execute,
    Refuse,
    Deliver,
    EndOfTurn,
    Wait,
    Unwait,
    Lookup,
    Flush,
    Disconnect,
    Connect,
    Defer,
    Retry,
    Sweep,
    /// The server sends what it has gathered, behind all it has sent or before that.
    Announce {
        is_behind: bool,
    },
}

impl Model {
    fn new() -> Self {
        Self::of(Announced::Keys)
    }

    fn of(announced: Announced) -> Self {
        Self {
            gathered: (announced != Announced::Keys).then_some(0),
            table: WaitedKeys::new(1, announced, 1000),
            value: 0,
            is_registered: false,
            requests: VecDeque::new(),
            stream: VecDeque::new(),
            known: None,
            told: None,
            reads: 0,
            written: 0,
            is_connected: true,
        }
    }

    /// The value that is kept.
    fn kept(&self) -> Option<u64> {
        match self.table.kept(KEY)? {
            Outcome::Value(value) => Some(u64::from_be_bytes(value.try_into().unwrap())),
            other => panic!("{other:?}"),
        }
    }

    fn sends(&mut self, name: &[u8]) -> Token {
        let token = self.table.enter(name, 0).unwrap();
        self.table.happens(token, HoldEvent::Sent);
        token
    }

    fn write(&mut self) {
        self.value += 1;
        if let Some(gathered) = &mut self.gathered {
            *gathered += u32::from(self.is_connected);
        } else if std::mem::take(&mut self.is_registered) && self.is_connected {
            self.stream.push_back(FromServer::Invalidation);
        }
    }

    fn execute(&mut self) {
        if let Some(read) = self.requests.pop_front() {
            self.is_registered = true;
            self.stream.push_back(FromServer::Reply(read, self.value));
        }
    }

    fn announce(&mut self, is_behind: bool) {
        if self.gathered > Some(0) {
            self.gathered = Some(0);
            if is_behind {
                self.stream.push_back(FromServer::Invalidation);
            } else {
                self.stream.push_front(FromServer::Invalidation);
            }
        }
    }

    /// An announcement of a change is in progress.
    fn is_told(&self) -> bool {
        let is_it = |it: &FromServer| matches!(it, FromServer::Invalidation | FromServer::Flush);
        self.gathered > Some(0) || self.stream.iter().any(is_it)
    }

    fn refuse(&mut self, event: HoldEvent) {
        if let Some((token, _)) = self.requests.pop_front() {
            self.stream.push_back(FromServer::Refusal(token, event));
        }
    }

    fn deliver(&mut self) {
        match self.stream.pop_front() {
            Some(FromServer::Reply((token, is_of_waits), value)) => {
                let bytes = value.to_be_bytes();
                let is_told = is_of_waits || self.table.owed(token).is_some();
                self.table.answered(token, value, &Outcome::Value(&bytes));
                self.known = Some(value);
                self.told = if is_told { Some(value) } else { self.told };
            }
            Some(FromServer::Refusal(token, event)) => self.table.happens(token, event),
            Some(FromServer::Invalidation) => {
                self.table.invalidated(KEY);
            }
            Some(FromServer::Flush) => self.table.all(0, HoldEvent::Invalidated),
            None => {}
        }
    }

    fn end_of_turn(&mut self) {
        self.table.settle(|_| {});
        while self.is_connected
            && let Some((_, name)) = self.table.next(0, true)
        {
            let token = self.sends(&name);
            self.requests.push_back((token, true));
            self.reads += 1;
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Write => self.write(),
            // The reply comes over another connection, before all that is under way on this one.
            Act::OwnWrite => {
                self.write();
                self.written = self.value;
                self.table.written(KEY);
            }
            Act::Execute => self.execute(),
            Act::Refuse => self.refuse(HoldEvent::Refused { is_of_waits: true }),
            Act::Defer => self.refuse(HoldEvent::Deferred),
            Act::Deliver => self.deliver(),
            Act::EndOfTurn => self.end_of_turn(),
            Act::Wait => {
                let token = self.table.find(KEY);
                if token.is_none_or(|token| self.table.tag(token).is_none()) {
                    // It decides by what it has read.
                    self.told = self.known;
                }
                self.table.wait(KEY, 7, 0);
            }
            Act::Unwait => self.table.unwait(KEY),
            Act::Lookup if self.is_connected => {
                let token = self.sends(KEY);
                self.requests.push_back((token, false));
                self.reads += 1;
            }
            Act::Flush => {
                self.value += 1;
                self.is_registered = false;
                if self.is_connected {
                    self.stream.push_back(FromServer::Flush);
                }
            }
            Act::Disconnect => {
                self.is_connected = false;
                self.gathered = self.gathered.map(|_| 0);
                self.is_registered = false;
                self.requests.clear();
                self.stream.clear();
                self.table.all(0, HoldEvent::Lost);
            }
            Act::Connect => self.is_connected = true,
            Act::Retry => self.retry(),
            Act::Sweep => _ = self.table.sweep(Instant::now(), |_| Some(Sweep::Full)),
            Act::Announce { is_behind } => self.announce(is_behind),
            Act::Lookup => {}
        }
    }

    /// The deadline of a key that was refused has passed.
    fn retry(&mut self) {
        if let Some(token) = self.table.find(KEY)
            && self.table.is_put_off(token)
        {
            self.table.happens(token, HoldEvent::Invalidated);
        }
    }

    /// Lets everything in progress come to its end.
    fn settle(&mut self) {
        self.act(Act::Connect);
        for _ in 0..4 {
            self.retry();
            self.announce(true);
            while !self.stream.is_empty() {
                self.deliver();
            }
            self.end_of_turn();
            while !self.requests.is_empty() || !self.stream.is_empty() {
                self.execute();
                self.deliver();
            }
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Write),
        2 => Just(Act::OwnWrite),
        6 => Just(Act::Execute),
        1 => Just(Act::Refuse),
        8 => Just(Act::Deliver),
        6 => Just(Act::EndOfTurn),
        2 => Just(Act::Wait),
        1 => Just(Act::Unwait),
        2 => Just(Act::Lookup),
        1 => Just(Act::Flush),
        1 => Just(Act::Disconnect),
        1 => Just(Act::Connect),
        1 => Just(Act::Defer),
        1 => Just(Act::Retry),
        1 => Just(Act::Sweep),
        4 => any::<bool>().prop_map(|is_behind| Act::Announce { is_behind }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_change_is_lost(
        acts in proptest::collection::vec(act(), 0..80),
        is_broadcast in any::<bool>(),
    ) {
        let announced = if is_broadcast {
            Announced::Prefixes(vec![b"/poll/".as_slice().into()])
        } else {
            Announced::Keys
        };
        let mut model = Model::of(announced);
        for act in acts {
            model.act(act);
            // What is kept is the newest value, or the announcement of that is under way.
            if let Some(kept) = model.kept() {
                prop_assert!(kept == model.value || model.is_told());
                prop_assert!(kept >= model.written, "older than an own write");
            }
        }
        model.act(Act::Wait);
        model.settle();
        prop_assert!(model.kept().is_none_or(|kept| kept == model.value));
        prop_assert_eq!((model.known, model.told), (Some(model.value), Some(model.value)));
        prop_assert_eq!((model.table.waited(0), model.table.armed()), (1, 1));
        // From here on each change is one read.
        for _ in 0..3 {
            let reads = model.reads;
            model.write();
            model.settle();
            prop_assert_eq!(model.known, Some(model.value));
            prop_assert_eq!(model.reads, reads + 1);
            prop_assert_eq!(model.kept(), Some(model.value));
        }
        model.act(Act::Unwait);
        model.settle();
        prop_assert!(model.table.is_empty() && model.table.armed() == 0);
        prop_assert_eq!(model.table.kept_bytes(), 0);
    }

    #[test]
    fn a_read_answers_a_burst(writes in 1_u64..50) {
        let mut model = Model::new();
        model.act(Act::Wait);
        model.settle();
        let reads = model.reads;
        for _ in 0..writes {
            model.write();
        }
        model.settle();
        prop_assert_eq!((model.known, model.reads), (Some(model.value), reads + 1));
    }
}

#[test]
fn a_key_that_no_prefix_covers_is_not_taken_for_announced() {
    let announced = Announced::Prefixes(vec![b"/poll/".as_slice().into(), b"b:".as_slice().into()]);
    let mut table = WaitedKeys::new(1, announced, 1000);
    let mut read = |name: &[u8]| {
        table.wait(name, 1, 0);
        let token = table.find(name).unwrap();
        table.happens(token, HoldEvent::Sent);
        table.answered(token, 1, &Outcome::Value(b"x"));
        let is_kept = table.kept(name).is_some();
        (
            table.is_armed(name),
            is_kept,
            table.untold_beside(token).is_some(),
        )
    };
    for name in [&b"/poll/a"[..], b"b:1", b"/poll/"] {
        assert_eq!(read(name), (Some(true), true, false));
    }
    for name in [&b"/polls"[..], b"b", b"a"] {
        assert_eq!(read(name), (Some(false), false, true));
    }
}

#[test]
fn a_read_that_was_refused_waits_for_its_deadline() {
    let mut model = Model::new();
    model.act(Act::Wait);
    for refusals in 1..4 {
        for _ in 0..3 {
            model.end_of_turn();
            model.act(Act::Refuse);
            model.deliver();
        }
        assert_eq!(model.reads, refusals);
        let token = model.table.find(KEY).unwrap();
        assert!(model.table.is_put_off(token));
        assert_eq!(u64::from(model.table.refusals(token)), refusals);
        model.retry();
    }
    model.settle();
    assert_eq!((model.reads, model.known), (4, Some(0)));
}

#[test]
fn a_wait_that_begins_behind_a_refusal_is_read_for() {
    let mut model = Model::new();
    model.act(Act::Lookup);
    model.act(Act::Refuse);
    model.deliver();
    // Nobody has armed a deadline for the refusal.
    model.act(Act::Wait);
    model.end_of_turn();
    assert_eq!(model.reads, 2);
    model.execute();
    model.deliver();
    assert_eq!(model.told, Some(0));
}

#[test]
fn what_a_request_reads_first_is_told_to_those_who_wait() {
    let mut model = Model::new();
    model.act(Act::Wait);
    model.settle();
    model.write();
    model.deliver();
    model.act(Act::Lookup);
    model.settle();
    assert_eq!((model.told, model.reads), (Some(1), 2));
}

#[test]
fn a_key_that_is_refused_is_forgotten_where_nobody_waits_for_it() {
    let mut model = Model::new();
    for event in [Act::Refuse, Act::Defer] {
        model.act(Act::Lookup);
        model.act(event);
        model.deliver();
        model.end_of_turn();
        assert!(model.table.is_empty());
    }
}

#[test]
fn a_sweep_reads_every_key_once_and_the_next_one_waits_for_it() {
    let mut table = WaitedKeys::new(1, Announced::Keys, 1000);
    for name in [b"a", b"b"] {
        table.wait(name, 1, 0);
        let token = table.find(name).unwrap();
        table.happens(token, HoldEvent::Sent);
        table.happens(token, HoldEvent::Answered);
    }
    table.settle(|_| {});
    assert_eq!(table.next(0, true), None, "they are registered");
    let now = Instant::now();
    let sweep = |table: &mut WaitedKeys| table.sweep(now, |_| Some(Sweep::Full));
    assert_eq!(table.sweep(now, |_| None), 0);
    assert_eq!((sweep(&mut table), sweep(&mut table)), (1, 0));
    table.settle(|_| {});
    assert!(table.next(0, false).is_some());
    assert_eq!(sweep(&mut table), 0, "one is left");
    table.unwait(b"a");
    table.unwait(b"b");
    table.settle(|_| {});
    assert!(table.is_empty() && table.next(0, false).is_none());
    table.wait(b"a", 1, 0);
    assert_eq!(sweep(&mut table), 1);
}

#[test]
fn a_sweep_of_many_keys_makes_the_next_one_wait() {
    let mut table = WaitedKeys::new(1, Announced::Nothing, 0);
    table.add_server();
    for number in 0_u32..10_000 {
        table.wait(&number.to_be_bytes(), 1, 0);
    }
    table.wait(KEY, 1, 1);
    let now = Instant::now();
    let later = |milliseconds| now + Duration::from_millis(milliseconds);
    let sweep = |table: &mut WaitedKeys, at, kind| {
        let begun = table.sweep(at, |_| Some(kind));
        table.settle(|_| {});
        (0..2).for_each(|server| while table.next(server, false).is_some() {});
        begun
    };
    let paced = |table: &mut WaitedKeys, at| sweep(table, at, Sweep::Paced);
    assert_eq!(paced(&mut table, now), 2);
    assert_eq!(paced(&mut table, later(250)), 1, "one server has few");
    assert_eq!(paced(&mut table, later(499)), 1);
    assert_eq!(paced(&mut table, later(500)), 2);
    assert_eq!(sweep(&mut table, later(501), Sweep::Full), 2);
    // The clients of most keys leave.
    for number in 1_u32..10_000 {
        table.unwait(&number.to_be_bytes());
    }
    assert_eq!(paced(&mut table, later(502)), 2, "one is left");
}

#[test]
fn an_announcement_of_no_change_is_known_as_such() {
    let mut table = WaitedKeys::new(1, Announced::Keys, 1000);
    table.wait(KEY, 1, 0);
    let token = table.find(KEY).unwrap();
    let read = |table: &mut WaitedKeys, digest| {
        table.happens(token, HoldEvent::Sent);
        table.answered(token, digest, &Outcome::Missing)
    };
    assert_eq!(read(&mut table, 5), None);
    table.invalidated(KEY);
    assert_eq!(read(&mut table, 5), Some(false));
    table.invalidated(KEY);
    assert_eq!(read(&mut table, 6), Some(true));
    assert_eq!(read(&mut table, 6), None, "nothing was announced");
}

#[test]
fn waits_that_have_ended_leave_nothing_behind_while_nothing_is_read() {
    let mut table = WaitedKeys::new(1, Announced::Keys, 1000);
    table.wait(KEY, 1, 0);
    for number in 0_u32..10_000 {
        let name = number.to_be_bytes();
        table.wait(&name, 2, 0);
        table.settle(|_| {});
        table.unwait(&name);
        table.settle(|_| {});
    }
    assert!(
        table.shares[0].queue.len() <= 2 + QUEUE_SPARE,
        "{}",
        table.shares[0].queue.len()
    );
    assert_eq!(table.next(0, true).unwrap().1.as_ref(), KEY);
}

#[test]
fn flushes_in_a_row_cost_one() {
    let mut table = WaitedKeys::new(1, Announced::Keys, 1000);
    for number in 0_u32..100 {
        let name = number.to_be_bytes();
        table.wait(&name, 1, 0);
        let token = table.find(&name).unwrap();
        table.happens(token, HoldEvent::Sent);
        table.happens(token, HoldEvent::Answered);
    }
    table.settle(|_| {});
    for _ in 0..1_000 {
        table.all(0, HoldEvent::Invalidated);
    }
    assert_eq!(table.touched.len(), 100);
    table.settle(|_| {});
    assert_eq!(table.shares[0].queue.len(), 100);
}

#[test]
fn values_are_kept_within_their_bound() {
    let mut table = WaitedKeys::new(1, Announced::Keys, 10);
    let read = |table: &mut WaitedKeys, name: &[u8], value: &[u8]| {
        table.wait(name, 1, 0);
        let token = table.find(name).unwrap();
        table.happens(token, HoldEvent::Sent);
        let outcome = match value {
            b"" => Outcome::Missing,
            value => Outcome::Value(value),
        };
        table.answered(token, 1, &outcome);
    };
    read(&mut table, b"a", b"123456");
    read(&mut table, b"b", b"12345");
    read(&mut table, b"c", b"1234");
    read(&mut table, b"d", b"");
    let kept = |table: &WaitedKeys, name: &[u8]| match table.kept(name)? {
        Outcome::Value(value) => Some(value.len()),
        _ => Some(0),
    };
    assert_eq!(kept(&table, b"a"), Some(6));
    assert_eq!(kept(&table, b"b"), None, "it has no room");
    assert_eq!(kept(&table, b"c"), Some(4));
    assert_eq!(kept(&table, b"d"), Some(0));
    read(&mut table, b"a", b"1");
    read(&mut table, b"b", b"12345");
    assert_eq!((kept(&table, b"b"), table.kept_bytes()), (Some(5), 10));
    table.all(0, HoldEvent::Lost);
    assert_eq!((kept(&table, b"b"), table.kept_bytes()), (None, 0));
    let mut table = WaitedKeys::new(1, Announced::Keys, 0);
    read(&mut table, b"d", b"");
    assert_eq!(kept(&table, b"d"), None, "nothing is kept at all");
}

#[test]
fn keys_that_are_read_later_are_counted_wherever_they_go() {
    let mut table = WaitedKeys::new(1, Announced::Keys, 0);
    table.add_server();
    let names: Vec<_> = (0..3u8).map(|name| [name]).collect();
    for name in &names {
        table.wait(name, 7, 0);
    }
    let keys: Vec<_> = names.iter().map(|name| table.find(name).unwrap()).collect();
    let counts = |table: &WaitedKeys| [0, 1].map(|server| table.shares[server].put_off);
    table.hold_back(keys[0]);
    table.hold_back(keys[0]);
    for event in [HoldEvent::Sent, HoldEvent::Refused { is_of_waits: true }] {
        table.happens(keys[1], event);
    }
    assert_eq!(counts(&table), [2, 0]);
    assert_eq!(table.put_off_beside(keys[1]), 2);
    table.move_to(keys[1], 1);
    assert_eq!(counts(&table), [1, 0], "it is read there");
    table.hold_back(keys[1]);
    table.hold_back(keys[2]);
    table.happens(keys[2], HoldEvent::Invalidated);
    assert_eq!(counts(&table), [1, 1]);
    for name in &names {
        table.unwait(name);
    }
    table.settle(|_| ());
    assert_eq!((counts(&table), table.is_empty()), ([0, 0], true));
}

#[test]
fn keys_that_no_prefix_covers_are_counted_where_they_are_waited_for() {
    let announced = Announced::Prefixes(vec![b"/poll/".as_slice().into()]);
    let mut table = WaitedKeys::new(1, announced, 0);
    table.add_server();
    table.wait(KEY, 1, 0);
    let name = |number: usize| format!("other/{number}").into_bytes();
    for number in 0..10_000 {
        // A second wait for a key replaces the first.
        table.wait(&name(number), 1, 0);
        table.wait(&name(number), 2, 0);
    }
    let covered = table.find(KEY).unwrap();
    let [one, other] = [0, 1].map(|number| table.find(&name(number)).unwrap());
    assert_eq!(table.untold_beside(covered), None);
    assert_eq!(table.untold_beside(one), Some(10_000));
    table.move_to(one, 1);
    let beside = |table: &WaitedKeys| [one, other].map(|key| table.untold_beside(key));
    assert_eq!(beside(&table), [Some(1), Some(9_999)]);
    for number in 2..10_000 {
        table.unwait(&name(number));
    }
    table.unwait(KEY);
    assert_eq!(beside(&table), [Some(1), Some(1)]);
    table.unwait(&name(0));
    table.unwait(&name(0));
    assert_eq!(table.untold_beside(one), Some(0), "it is read no more");
}

#[test]
fn only_what_was_announced_is_counted_as_unchanged() {
    let mut table = WaitedKeys::new(1, Announced::Keys, 0);
    table.wait(KEY, 7, 0);
    let token = table.find(KEY).unwrap();
    let mut read = |has_changed: &dyn Fn(&mut WaitedKeys)| {
        has_changed(&mut table);
        table.happens(token, HoldEvent::Sent);
        table.answered(token, 1, &Outcome::Value(b"1"))
    };
    assert_eq!(read(&|_| ()), None);
    assert_eq!(read(&|table| _ = table.invalidated(KEY)), Some(false));
    // A request has read it on a connection that announces nothing.
    assert_eq!(read(&|table| _ = table.may_have_changed(KEY)), None);
}
