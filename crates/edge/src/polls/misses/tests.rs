//! Fetches of loops that share a memory, at times that the tests name.

use super::super::ask::Method;
use super::super::tables::Keys;
use super::*;
use crate::ids::PollId;
use crate::metrics::Metrics;
use dwell_testkit::start;
use dwell_upstream::{Answer, UpstreamError};
use std::time::{Duration, Instant};

const NAME: &[u8] = b"/poll/a";
const PLAIN: Common = Common {
    variant: Variant {
        method: Method::Get,
        digest: 1,
    },
    is_trimmed: false,
    is_plain: true,
    is_of_key: true,
};

/// One of the loops of a process, with a place for four fetches and two keys beside polls.
struct Loop {
    keys: Keys,
    misses: Misses,
    metrics: Arc<LoopMetrics>,
}

impl Loop {
    fn of(memory: &Arc<Memory>, index: usize) -> Self {
        let metrics = Metrics::new(1, Vec::new(), 0).of_loop(0);
        let routes = [Arc::new(rules())];
        let (of, rooms) = (Arc::clone(memory), rooms(4));
        Self {
            keys: Keys::new(None),
            misses: Misses::new(Arc::clone(&metrics), of, index, &routes, rooms),
            metrics,
        }
    }

    fn alone() -> Self {
        Self::of(&memory(), 0)
    }

    fn open(&mut self, common: Common) -> Option<FetchId> {
        let key = self.keys.enter(NAME);
        let of = subject(common);
        self.misses.open(&mut self.keys, key, of, request())
    }

    /// A fetch that the misses of the key share, with this many polls.
    fn shared_by(&mut self, polls: u32) -> FetchId {
        let fetch = self.open(PLAIN).unwrap();
        for index in 0..polls {
            self.misses.join(fetch, poll(index));
        }
        fetch
    }

    fn find(&self, common: Common) -> Option<FetchId> {
        let key = self.keys.find(NAME);
        self.misses.find(&self.keys, key, common.variant)
    }

    /// Ends a fetch as one that the application has answered so.
    fn answered(&mut self, fetch: FetchId, result: &UpstreamResult, now: Instant) -> Fetch {
        let fetch = self.close(fetch);
        self.misses.end_flight(&fetch, Some(result));
        if fetch.is_led() {
            self.misses.remember(&rules(), &fetch, result, now);
        }
        fetch
    }

    fn close(&mut self, fetch: FetchId) -> Fetch {
        self.misses.close(&mut self.keys, fetch).unwrap()
    }

    fn cached(&self, now: Instant) -> Option<CachedOutcome> {
        self.misses.cached(&rules(), NAME, PLAIN.variant, now)
    }

    fn stale_if_error(&self, now: Instant) -> Option<StaleValue> {
        let digest = PLAIN.variant.digest;
        self.misses.stale_if_error(&rules(), NAME, digest, now)
    }

    fn counted(&self, outcome: UpstreamOutcome) -> u64 {
        self.metrics.upstream_requests.of(outcome).value()
    }

    /// True if nothing is in progress, nor left to be sent.
    fn is_idle(&self) -> bool {
        self.misses.fetches() == 0 && self.misses.following() == 0 && !self.misses.has_left()
    }
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(1 << 20))
}

/// A route that fills the cache, and remembers failures for two seconds.
fn rooms(held_max: usize) -> Rooms {
    Rooms {
        held_max,
        waiting_max: 2,
    }
}

fn subject(common: Common) -> FetchSubject<'static> {
    FetchSubject {
        name: NAME,
        route: RouteId::FIRST,
        common,
    }
}

fn rules() -> RouteConfig {
    RouteConfig {
        fill: true,
        negative: Duration::from_secs(2),
        negative_not_found: Duration::from_secs(3),
        stale_while_revalidate: Duration::from_secs(10),
        stale_if_error: Duration::from_secs(60),
        ..RouteConfig::new("/poll/")
    }
}

fn request() -> FetchRequest {
    FetchRequest {
        bytes: Bytes::new(),
        is_head: false,
        is_idempotent: true,
        client: None,
    }
}

fn poll(index: u32) -> Packed<FetchMember> {
    PollId::nth(index).into()
}

fn answer(status: u16) -> Arc<Answer> {
    Arc::new(Answer {
        status,
        fields: Vec::new(),
        content_length: None,
        body: Bytes::from_static(b"value"),
    })
}

fn other(digest: u64) -> Common {
    let method = Method::Get;
    Common {
        variant: Variant { method, digest },
        ..PLAIN
    }
}

#[test]
fn polls_of_one_key_share_a_request_if_the_application_gets_the_same() {
    let mut of = Loop::alone();
    let fetch = of.shared_by(2);
    assert_eq!(of.find(PLAIN), Some(fetch));
    assert_eq!(of.find(other(2)), None);
    let others = [of.open(other(2)).unwrap(), of.open(other(3)).unwrap()];
    let sent: Vec<Requested> = of
        .misses
        .take_requests()
        .iter()
        .map(|sent| sent.0)
        .collect();
    assert_eq!(sent, [fetch, others[0], others[1]].map(Requested::from));
    assert_eq!(of.counted(UpstreamOutcome::Coalesced), 1);
    assert_eq!(of.misses.take_joins().into_iter().count(), 1);
    // Whichever ends first, the others are found.
    let ended = of.answered(others[0], &Ok(answer(200)), start());
    assert!(ended.is_led());
    assert_eq!(of.find(other(2)), None);
    assert_eq!(of.find(other(3)), Some(others[1]));
    let ended = of.answered(fetch, &Ok(answer(200)), start());
    assert_eq!(ended.members, [poll(0), poll(1)]);
    of.answered(others[1], &Ok(answer(200)), start());
    assert!(of.is_idle());
    assert!(of.keys.release(of.keys.find(NAME).unwrap()).is_some());
}

#[test]
fn one_loop_sends_a_request_and_the_others_are_told() {
    let memory = memory();
    let mut loops: Vec<Loop> = (0..3).map(|index| Loop::of(&memory, index)).collect();
    let fetches: Vec<FetchId> = loops.iter_mut().map(|of| of.shared_by(1)).collect();
    let sent: Vec<usize> = loops
        .iter_mut()
        .map(|of| of.misses.take_requests().len())
        .collect();
    assert_eq!(sent, [1, 0, 0]);
    let following: Vec<usize> = loops.iter().map(|of| of.misses.following()).collect();
    assert_eq!(following, [0, 1, 1]);
    // The first poll of a follower is told to the leader, which may be waiting for a connection.
    let join = loops[1].misses.take_joins().into_iter().next().unwrap();
    let leader = LoopFetch {
        of_loop: 0,
        fetch: fetches[0],
    };
    assert_eq!((join.leader, join.member), (Some(leader), poll(0)));
    let now = start();
    loops[0].answered(fetches[0], &Ok(answer(200)), now);
    let told = loops[0].misses.take_flight_results();
    assert_eq!(told.len(), 2);
    for FlightResult { follower, result } in told {
        assert_eq!(follower.fetch, fetches[follower.of_loop]);
        let (of, result) = (&mut loops[follower.of_loop], result.unwrap());
        let ended = of.answered(follower.fetch, &result, now);
        assert!(!ended.is_led() && !ended.is_own());
    }
    assert!(loops.iter().all(Loop::is_idle));
}

#[test]
fn what_is_not_for_all_is_not_told_to_other_loops() {
    let refused = Err(UpstreamError::Unavailable);
    let own = Common {
        is_plain: false,
        ..PLAIN
    };
    for (common, result) in [
        (PLAIN, Ok(answer(403))),
        (own, Ok(answer(500))),
        (own, refused),
    ] {
        let memory = memory();
        let (mut leader, mut follower) = (Loop::of(&memory, 0), Loop::of(&memory, 1));
        let (fetch, _) = (leader.open(common).unwrap(), follower.open(common).unwrap());
        leader.answered(fetch, &result, start());
        let told = leader.misses.take_flight_results();
        assert!(matches!(&told[..], [FlightResult { result: None, .. }]));
        assert!(leader.cached(start()).is_none(), "it is remembered");
    }
}

#[test]
fn a_follower_asks_for_itself_when_its_leader_is_gone() {
    let memory = memory();
    let (mut leader, mut follower) = (Loop::of(&memory, 0), Loop::of(&memory, 1));
    leader.shared_by(1);
    let fetch = follower.shared_by(1);
    assert_eq!(follower.misses.lost(), []);
    leader.misses.give_up_flights();
    assert_eq!(follower.misses.lost(), [fetch]);
    follower.close(fetch);
    assert_eq!(follower.misses.following(), 0);
    follower.shared_by(1);
    assert_eq!(follower.misses.take_requests().len(), 1);
    assert_eq!(follower.misses.lost(), []);
}

#[test]
fn a_fetch_whose_clients_have_all_left_is_still_shared() {
    let mut of = Loop::alone();
    let (fetch, now) = (of.shared_by(1), start());
    // Its only poll has gone; nothing is told of that, as the answer is for the next one, too.
    assert_eq!(of.find(PLAIN), Some(fetch));
    of.misses.join(fetch, poll(7));
    let ended = of.answered(fetch, &Ok(answer(200)), now);
    assert_eq!(ended.members, [poll(0), poll(7)]);
    assert!(of.stale_if_error(now).is_some());
}

#[test]
fn failures_are_remembered_for_as_long_as_the_route_says() {
    let cases = [
        (Ok(answer(500)), Some(2)),
        (Err(UpstreamError::Closed), Some(2)),
        // A full queue says nothing of the key.
        (Err(UpstreamError::QueueFull { limit: 1 }), None),
        (Ok(answer(404)), Some(3)),
        (Ok(answer(410)), Some(3)),
        (Ok(answer(301)), None),
    ];
    for (result, seconds) in cases {
        let mut of = Loop::alone();
        let (fetch, start) = (of.shared_by(1), start());
        of.answered(fetch, &result, start);
        let after = |of: &Loop, time| of.cached(start + time).is_some();
        let Some(seconds) = seconds.map(Duration::from_secs) else {
            assert!(!after(&of, Duration::ZERO), "{result:?}");
            continue;
        };
        assert!(after(&of, seconds.mul_f32(0.999)), "{result:?}");
        assert!(!after(&of, seconds), "{result:?}");
    }
}

#[test]
fn a_substitute_ends_when_the_turn_does() {
    let mut of = Loop::alone();
    let (fetch, now) = (of.shared_by(1), start());
    of.misses.take_requests();
    of.answered(fetch, &Ok(answer(404)), now);
    let outcome = of.cached(now).unwrap();
    let cached = of.misses.open_cached(outcome, subject(PLAIN)).unwrap();
    of.misses.join(cached, poll(1));
    assert!(of.misses.has_left() && of.misses.take_requests().is_empty());
    assert_eq!(of.counted(UpstreamOutcome::Remembered), 1);
    assert_eq!(of.find(PLAIN), None, "nothing is under way");
    let (token, outcome) = of.misses.take_cached().pop().unwrap();
    assert_eq!(token, cached);
    let CachedOutcome::Result(result) = outcome else {
        panic!("{outcome:?}");
    };
    let ended = of.answered(token, &result, now);
    assert!(!ended.is_led() && ended.members == [poll(1)]);
    assert!(of.is_idle());
}

#[test]
fn a_stale_value_is_given_while_it_is_renewed_or_when_that_fails() {
    let mut of = Loop::alone();
    let (fetch, start) = (of.shared_by(1), start());
    of.answered(fetch, &Ok(answer(200)), start);
    let after = |seconds| start + Duration::from_secs(seconds);
    let renewed = |seconds| match of.cached(after(seconds)) {
        Some(outcome @ CachedOutcome::Stale(_)) => Some(outcome.is_for_renewal()),
        _ => None,
    };
    let expected = [Some(false), Some(true), Some(true), None];
    assert_eq!([0, 1, 10, 11].map(renewed), expected);
    let is_given = |seconds| of.stale_if_error(after(seconds)).is_some();
    assert_eq!([11, 60, 61].map(is_given), [true, true, false]);
    let fetch = of.shared_by(1);
    let fetch = of.close(fetch);
    let instead = |result| {
        let rules = rules();
        let value = of.misses.instead_of(&rules, &fetch, &result, after(20));
        value.is_some()
    };
    assert!(instead(Ok(answer(500))) && instead(Err(UpstreamError::Unavailable)));
    assert!(!instead(Ok(answer(404))) && !instead(Ok(answer(200))));
}

#[test]
fn members_of_a_queue_ask_for_themselves_in_order() {
    let mut of = Loop::alone();
    let fetch = of.shared_by(3);
    let fetch = of.answered(fetch, &Ok(answer(403)), start());
    of.misses.take_requests();
    let queue = of.misses.open_queue(&fetch, &fetch.members).unwrap();
    let mut alone = Vec::new();
    while let Some(queued) = of.misses.take_queued(queue) {
        let fetch = of.misses.open_queued(&queued, PLAIN, request()).unwrap();
        assert_eq!(&*queued.name, NAME);
        alone.push((fetch, queued.member));
    }
    assert!(!of.misses.is_open(queue));
    assert_eq!(of.misses.take_requests().len(), 3);
    for ((fetch, member), index) in alone.into_iter().zip(0..) {
        let fetch = of.close(fetch);
        assert_eq!((&fetch.members[..], member), (&[member][..], poll(index)));
        assert!(fetch.is_own() && !fetch.is_led());
    }
    assert!(of.is_idle());
}

#[test]
fn no_more_is_asked_for_than_there_is_room_for() {
    let mut of = Loop::alone();
    for digest in 0..4 {
        of.open(other(digest)).unwrap();
    }
    assert_eq!(of.open(other(4)), None);
    assert_eq!(of.misses.take_requests().len(), 4);
    of.misses.reconfigure(&[], rooms(5));
    assert!(of.open(other(4)).is_some());
}
