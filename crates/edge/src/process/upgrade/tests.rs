//! Both halves of an upgrade in one process: what the one says is what the other does.

use super::talk::VERSION;
use super::*;
use crate::config;
use crate::handoff::{Departure, FrameKind, ListenAddress, Role, TakesTls};
use crate::process::store;
use dwell_evloop::{Acceptor, EventLoop, Stream};
use dwell_store::Expiry;
use dwell_testkit::wait_until;
use std::os::fd::AsFd;
use std::sync::Mutex;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const PATIENCE: Duration = Duration::from_secs(60);

/// One of the two processes, without loops.
struct Side {
    upgrader: Arc<Upgrader>,
}

impl Side {
    fn new() -> Self {
        let (config, now) = (config::parse("test.toml", "", &[]).unwrap(), Moment::now());
        let metrics = Arc::new(Metrics::new(1, Vec::new(), 0));
        let limits = store::limits(&config).unwrap();
        let notify = Box::new(());
        let service = store::service(&config, limits, notify, &metrics, now, true).unwrap();
        let acceptor = Acceptor::new(Vec::new(), 1);
        let certificates = Certificates::new(acceptor, Vec::new(), None, Arc::clone(&metrics));
        let upgrader = Arc::new(Upgrader {
            fleet: Arc::new(Fleet::new(Vec::new())),
            settings: Published::new(Settings::default()),
            handoff: Handoff::new(1),
            service,
            certificates: Arc::new(certificates),
            metrics,
            notifier: None,
            reporter: None,
            is_under_way: AtomicBool::new(false),
        });
        Self { upgrader }
    }

    fn service(&self) -> &StoreService {
        self.upgrader.service.as_deref().unwrap()
    }

    fn store(&self) -> &dwell_store::Store {
        self.service().store()
    }

    fn acceptor(&self) -> &Acceptor {
        self.upgrader.certificates.acceptor()
    }

    /// Goes through the steps of an upgrade as the process that serves.
    fn talk(&self, channel: Channel) -> Result<Channel, UpgradeError> {
        let deadline = Instant::now() + PATIENCE;
        let sockets = vec![socket("/first", false), socket("/second", true)];
        self.upgrader
            .talk(channel, &Successor(None), sockets, deadline)
    }

    /// Takes the place of the process at the other end.
    fn succeed(&self, channel: Channel) -> io::Result<()> {
        let predecessor = Predecessor::greeted(channel)?;
        let (fleet, handoff) = (&self.upgrader.fleet, &self.upgrader.handoff);
        predecessor.succeed(Some(self.service()), self.acceptor(), fleet, handoff)
    }

    #[track_caller]
    fn serves_as_before(&self) {
        assert_eq!(self.upgrader.fleet.lifecycle(), Lifecycle::Serve);
        assert!(self.upgrader.handoff.sender().is_none());
        assert!(
            !self.upgrader.handoff.barrier.is_wanted(),
            "the loops go on"
        );
        assert!(!self.store().is_retired());
    }
}

fn socket(path: &str, owns_file: bool) -> InheritedListener {
    InheritedListener {
        role: Role::Store,
        address: ListenAddress::Unix(path.into()),
        owns_file,
        descriptor: OwnedFd::from(UnixStream::pair().unwrap().0).into(),
    }
}

fn channels() -> [Channel; 2] {
    let (one, other) = UnixStream::pair().unwrap();
    [one, other].map(|socket| Channel::new(socket, Instant::now() + PATIENCE))
}

/// A predecessor that comes as far as to its first wait.
struct Greets<'c>(&'c mut Channel);

impl PredecessorSide for Greets<'_> {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.0.send_frame(&frame)
    }

    fn receive(&mut self) -> Option<io::Result<Frame>> {
        None
    }

    fn receive_last(&mut self) -> Option<Frame> {
        unreachable!("nothing has come")
    }

    fn write_items(&mut self, _: &StoreService) -> io::Result<()> {
        unreachable!("nothing has come")
    }

    fn pause(&mut self) -> Result<(), UpgradeError> {
        unreachable!("nothing has come")
    }

    fn resume(&mut self) {}

    fn name_main(&mut self, _: MainProcess) {}

    fn hands_over(&mut self) {}
}

fn greet(channel: &mut Channel, has_store: bool, sockets: Vec<InheritedListener>) {
    let side = Side::new();
    let mut talk = PredecessorTalk::new(has_store, sockets);
    let place = side.upgrader.place();
    assert!(talk.go_on(place, &mut Greets(channel)).is_none());
}

fn skip_to(channel: &mut Channel, kind: FrameKind) {
    while channel.receive().unwrap().kind != kind {}
}

#[test]
fn the_sockets_come_as_they_were_and_in_their_order() {
    let [mut channel, other] = channels();
    let both = vec![socket("/a", false), socket("/b", true)];
    greet(&mut channel, true, both);
    let mut predecessor = Predecessor::greeted(other).unwrap();
    assert!(predecessor.has_store() && predecessor.owns_file());
    let sockets = predecessor.sockets();
    let paths = sockets.iter().map(|socket| socket.address.clone());
    let expected = ["/a", "/b"].map(|path| ListenAddress::Unix(path.into()));
    assert_eq!(paths.collect::<Vec<_>>(), expected);
    let marks = sockets.iter().map(|socket| (socket.role, socket.owns_file));
    let expected = [(Role::Store, false), (Role::Store, true)];
    assert_eq!(marks.collect::<Vec<_>>(), expected);
    let [mut channel, other] = channels();
    greet(&mut channel, false, vec![socket("/a", false)]);
    let predecessor = Predecessor::greeted(other).unwrap();
    assert!(!predecessor.has_store() && !predecessor.owns_file());
}

#[test]
fn another_version_is_refused() {
    let [mut channel, other] = channels();
    channel
        .send(FrameKind::Hello, 1, &[VERSION + 1], None)
        .unwrap();
    channel.send(FrameKind::Listeners, 0, b"", None).unwrap();
    let error = Predecessor::greeted(other).unwrap_err().to_string();
    assert!(
        error.contains(&format!("version [{}]", VERSION + 1)),
        "{error}"
    );
}

#[test]
fn items_keys_place_and_connections_go_over() {
    let (from, to) = (Side::new(), Side::new());
    from.acceptor().make_ticket_keys();
    let now = Moment::now().steady;
    for number in 0..1000 {
        let (key, value) = (format!("key{number}"), vec![b'x'; number]);
        from.store()
            .set(key.as_bytes(), number as u32, Expiry::NEVER, &value, now);
    }
    let [channel, other] = channels();
    thread::scope(|scope| {
        let succeeded = scope.spawn(|| to.succeed(other));
        let channel = from.talk(channel).unwrap();
        succeeded.join().unwrap().unwrap();
        let upgrader = Arc::clone(&from.upgrader);
        thread::spawn(move || upgrader.send_connections(channel));
    });
    for number in 0..1000 {
        let key = format!("key{number}");
        let item = |side: &Side| side.store().get(key.as_bytes(), now).unwrap();
        let (old, new) = (item(&from), item(&to));
        assert_eq!((old.cas, old.flags), (new.cas, new.flags));
        assert_eq!(new.value.len(), number);
    }
    assert!(from.store().is_retired() && !to.store().is_retired());
    assert_eq!(from.upgrader.fleet.lifecycle(), Lifecycle::HandOver);
    let keys = [&from, &to].map(|side| side.acceptor().freeze_ticket_keys().unwrap());
    assert_eq!(keys[0], keys[1]);
    let sender = from.upgrader.handoff.sender().unwrap();
    assert!(sender.has_items() && sender.takes_tls());
    let queue = &to.upgrader.handoff.queue;
    assert!(queue.is_open(), "connections may come as soon as it serves");
    for (role, is_trusted) in [(Role::Client, false), (Role::Store, true)] {
        sender.give(Departure {
            role,
            is_trusted,
            stream: Stream::from_descriptor(UnixStream::pair().unwrap().0.into()).unwrap(),
            input: b"GET".to_vec(),
        });
    }
    sender.close();
    assert!(wait_until(|| !queue.is_open()), "its end is noticed");
    let taken = queue.take(0).into_iter();
    let taken = taken.map(|taken| (taken.role, taken.is_trusted, taken.input));
    let expected = [(Role::Client, false), (Role::Store, true)];
    let expected = expected.map(|(role, is_trusted)| (role, is_trusted, b"GET".to_vec()));
    assert_eq!(taken.collect::<Vec<_>>(), expected);
}

#[test]
fn a_successor_of_an_earlier_version_is_given_nothing_of_tls() {
    let from = Side::new();
    from.acceptor().make_ticket_keys();
    let [channel, mut other] = channels();
    thread::scope(|scope| {
        let talked = scope.spawn(|| from.talk(channel));
        skip_to(&mut other, FrameKind::Listeners);
        for (answer, next) in [
            (FrameKind::Ready, FrameKind::Store),
            (FrameKind::Taken, FrameKind::Serve),
        ] {
            other.send(answer, 0, b"", None).unwrap();
            other.expect(next).unwrap();
        }
        other.send(FrameKind::Serving, 0, b"", None).unwrap();
        talked.join().unwrap().unwrap();
    });
    assert!(!from.upgrader.handoff.sender().unwrap().takes_tls());
}

#[test]
fn keys_that_cannot_be_read_end_the_upgrade() {
    let to = Side::new();
    let [mut channel, other] = channels();
    thread::scope(|scope| {
        let succeeded = scope.spawn(|| to.succeed(other));
        greet(&mut channel, true, Vec::new());
        let ready = channel.expect(FrameKind::Ready).unwrap();
        assert!(TakesTls::from_bytes(&ready.bytes).takes_connections(None));
        channel
            .send(FrameKind::TicketKeys, 0, b"nonsense", None)
            .unwrap();
        let error = succeeded.join().unwrap().unwrap_err().to_string();
        assert_eq!(error, "frozen session cannot be read");
    });
}

#[test]
fn a_successor_that_ends_at_any_step_changes_nothing() {
    for steps in 0..3 {
        let from = Side::new();
        let [channel, mut other] = channels();
        let error = thread::scope(|scope| {
            let talked = scope.spawn(|| from.talk(channel));
            skip_to(&mut other, FrameKind::Listeners);
            let answers = [
                (FrameKind::Ready, FrameKind::Store),
                (FrameKind::Taken, FrameKind::Serve),
            ];
            for (answer, next) in answers.into_iter().take(steps) {
                other.send(answer, 0, b"", None).unwrap();
                skip_to(&mut other, next);
            }
            drop(other);
            talked.join().unwrap().unwrap_err()
        });
        assert!(error.is_end(), "{steps}: {error}");
        from.serves_as_before();
    }
}

#[test]
fn connections_that_come_without_their_descriptor_are_counted() {
    let [channel, mut other] = channels();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let role = Role::Client as u8;
    for descriptor in [Some(socket.as_fd()), None] {
        let kind = FrameKind::Connection;
        other.send(kind, role, b"GET", descriptor).unwrap();
    }
    let kind = FrameKind::SecureConnection;
    other.send(kind, role, &[0; 4], None).unwrap();
    drop(other);
    let handoff = Handoff::new(1);
    let followed = successor::follow(channel, &Fleet::new(Vec::new()), &handoff);
    assert_eq!((followed.taken, followed.lost), (1, 2));
    assert_eq!(handoff.queue.take(0).len(), 1);
    assert!(!handoff.queue.is_open());
}

#[test]
fn a_successor_that_says_something_else_is_given_up() {
    let from = Side::new();
    let [channel, mut other] = channels();
    other.send(FrameKind::Taken, 0, b"", None).unwrap();
    let error = from.talk(channel).unwrap_err();
    assert!(!error.is_end(), "it may go on for ever: {error}");
    let expected = "waiting until it could serve: Ready expected: Taken";
    assert_eq!(error.to_string(), expected);
    from.serves_as_before();
}

#[test]
fn a_predecessor_that_ends_before_it_gives_its_place_keeps_it() {
    for steps in 0..3 {
        let to = Side::new();
        let [mut channel, other] = channels();
        thread::scope(|scope| {
            let succeeded = scope.spawn(|| to.succeed(other));
            greet(&mut channel, true, vec![socket("/a", false)]);
            channel.expect(FrameKind::Ready).unwrap();
            if steps > 0 {
                channel.send(FrameKind::Store, 0, b"", None).unwrap();
                channel.expect(FrameKind::Taken).unwrap();
            }
            if steps > 1 {
                channel.send(FrameKind::Store, 0, b"", None).unwrap();
            }
            drop(channel);
            assert!(succeeded.join().unwrap().is_err(), "{steps}");
        });
        assert!(!to.upgrader.handoff.queue.is_open());
    }
}

#[test]
fn nothing_is_handed_over_by_a_process_that_ends() {
    let from = Side::new();
    from.upgrader.fleet.advance(Lifecycle::Drain);
    let [channel, mut other] = channels();
    other.send(FrameKind::Ready, 1, b"", None).unwrap();
    let error = from.talk(channel).unwrap_err();
    assert!(matches!(error, UpgradeError::Ending), "{error}");
    assert!(from.upgrader.handoff.sender().is_none() && !from.store().is_retired());
    from.upgrader.ask();
    assert!(!from.upgrader.is_under_way.load(Ordering::Acquire));
}

#[test]
fn a_loop_that_does_not_turn_is_told() {
    let event_loop = EventLoop::<Message>::new().unwrap();
    let mut side = Side::new();
    let upgrader = Arc::get_mut(&mut side.upgrader).unwrap();
    upgrader.fleet = Arc::new(Fleet::new(vec![event_loop.sender()]));
    let error = side.upgrader.pause(Instant::now()).unwrap_err();
    assert!(matches!(error, UpgradeError::Busy), "{error}");
    side.serves_as_before();
}

/// State of an upgrader at each event that is logged.
struct AtEvents {
    upgrader: Arc<Upgrader>,
    is_under_way: Arc<Mutex<Vec<bool>>>,
}

impl<S: tracing::Subscriber> Layer<S> for AtEvents {
    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        let is_under_way = self.upgrader.is_under_way.load(Ordering::Acquire);
        self.is_under_way.lock().unwrap().push(is_under_way);
    }
}

#[test]
fn the_next_upgrade_may_be_asked_for_once_the_end_of_one_is_logged() {
    let upgrader = Side::new().upgrader;
    upgrader.is_under_way.store(true, Ordering::Release);
    let is_under_way = Arc::default();
    let layer = AtEvents {
        upgrader: Arc::clone(&upgrader),
        is_under_way: Arc::clone(&is_under_way),
    };
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || upgrader.report_failure(&UpgradeError::Busy));
    assert_eq!(*is_under_way.lock().unwrap(), [false]);
    assert_eq!(upgrader.metrics.upgrades_failed().value(), 1);
}

#[test]
fn only_a_closed_channel_is_the_end_of_the_new_process() {
    let talk = |kind: io::ErrorKind| UpgradeError::Talk("greeting it", kind.into());
    assert!(talk(io::ErrorKind::UnexpectedEof).is_end());
    assert!(talk(io::ErrorKind::BrokenPipe).is_end());
    assert!(!talk(io::ErrorKind::TimedOut).is_end());
    assert!(!UpgradeError::Talk("greeting it", io::Error::other("Ready expected")).is_end());
    assert!(!UpgradeError::Ending.is_end());
}
