//! The connections of HTTP/2 of a run, each shared by some of the clients.

use super::attacker::Attacker;
use super::options::{BrowserAct, H2Options, Habits};
use super::requests::Requests;
use super::session::Session;
use crate::carrier::Carrier;
use crate::chance::random;
use crate::keys::Broken;
use crate::options::Options;
use crate::report::Counts;
use crate::tls::{Side, Who};
use dwell_evloop::Random;
use dwell_evloop::sim::{SimNet, SimStream};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// All of them.
pub(crate) struct Browsers {
    options: H2Options,
    random: RefCell<Random>,
    list: RefCell<Vec<Browser>>,
    attackers: RefCell<Vec<Attacker>>,
}

/// One place for connections: the one that requests begin on, and those before it that end.
#[derive(Default)]
struct Browser {
    current: Option<Rc<RefCell<Session>>>,
    before: Vec<Rc<RefCell<Session>>>,
    used_at: Duration,
}

/// The way to the edge.
pub(crate) struct Dial<'a> {
    pub(crate) network: &'a SimNet,
    pub(crate) to: SocketAddr,
    /// TLS, if the edge listens under it.
    pub(crate) side: Option<&'a Side>,
}

impl Dial<'_> {
    /// Begins a connection of HTTP/2, under TLS if that is wanted and there.
    fn connect(&self, is_secure: bool) -> Carrier {
        match self.side.filter(|_| is_secure) {
            Some(side) => side.connect(self.network, true),
            None => Carrier::Plain(self.network.connect(self.to)),
        }
    }
}

/// The time for which an idle connection is used again, shorter than that of the server.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl Browsers {
    pub(crate) fn new(options: &Options) -> Option<Self> {
        let own = options.h2.clone()?;
        let list = (0..own.browsers).map(|_| Browser::default()).collect();
        Some(Self {
            options: own,
            random: RefCell::new(random(options.seed, 51)),
            list: RefCell::new(list),
            attackers: RefCell::default(),
        })
    }

    /// Returns true if this client has its requests on streams.
    pub(crate) fn has(&self, who: Who) -> bool {
        let place = match who {
            Who::Client(number) => number,
            Who::Stream(number) => 20 + number,
            Who::Publisher(number) => 60 + number,
            Who::Socket(number) => 40 + number,
        };
        (self.options.clients >> (place % 64)) & 1 == 1
    }

    /// Returns true if the connection that this client shares is under TLS.
    pub(crate) fn is_secure(&self, who: Who, dial: &Dial<'_>) -> bool {
        let place = who.number() % self.options.browsers;
        dial.side.is_some() && self.options.is_secure(place)
    }

    /// A place for a client on the connection that it shares with others.
    pub(crate) fn connect(&self, who: Who, dial: &Dial<'_>) -> Requests {
        let mut list = self.list.borrow_mut();
        let place = who.number() % list.len();
        let browser = &mut list[place];
        let now = dial.network.elapsed();
        let is_stale = |session: &Rc<RefCell<Session>>| {
            let session = session.borrow();
            !session.may_begin() || session.is_idle() && now >= browser.used_at + KEEP_ALIVE
        };
        if let Some(stale) = browser.current.take_if(|session| is_stale(session)) {
            stale.borrow_mut().go_away();
            browser.before.push(stale);
        }
        browser.used_at = now;
        let session = browser.current.get_or_insert_with(|| {
            let mut random = self.random.borrow_mut();
            let habits = Habits::draw(&mut random);
            let seed = random.draw();
            let own = crate::chance::random(seed, 52);
            let carrier = dial.connect(self.options.is_secure(place));
            Rc::new(RefCell::new(Session::new(carrier, habits, own)))
        });
        Requests::new(Rc::clone(session), matches!(who, Who::Socket(_)))
    }

    /// Has something befall a connection; returns false if there is none.
    pub(crate) fn act(&self, (place, act): (usize, BrowserAct), dial: &Dial<'_>) -> bool {
        if let BrowserAct::Attack(attack) = act {
            let carrier = dial.connect(self.options.is_secure(place));
            let attacker = Attacker::new(attack, carrier);
            self.attackers.borrow_mut().push(attacker);
            return true;
        }
        let now = dial.network.elapsed();
        let list = self.list.borrow();
        let Some(session) = list[place % list.len()].current.as_ref() else {
            return false;
        };
        let mut session = session.borrow_mut();
        if session.is_over() {
            return false;
        }
        match act {
            BrowserAct::Reset => session.leave(SimStream::reset),
            BrowserAct::Leave => session.leave(SimStream::close),
            BrowserAct::Silence => session.leave(SimStream::silence),
            BrowserAct::HalfClose => session.half_close(),
            BrowserAct::GoAway => session.go_away(),
            BrowserAct::Ping => session.ping(),
            BrowserAct::Window(bytes) => session.offer_window(bytes),
            BrowserAct::SlowRead(time) => session.slow_read(now + time),
            BrowserAct::SlowWrite(time) => session.slow_write(now + time),
            BrowserAct::CloseWindow(time) => session.close_window(now + time),
            BrowserAct::Attack(_) => {}
        }
        true
    }

    /// Reads what has come on all connections, and checks it.
    pub(crate) fn attend(
        &self,
        hindered_until: Duration,
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        for browser in &mut *self.list.borrow_mut() {
            for session in browser.all() {
                let mut session = session.borrow_mut();
                session.attend(hindered_until)?;
                session
                    .reached
                    .drain(..)
                    .for_each(|name| counts.reach(name));
            }
            browser.before.retain(|session| !session.borrow().is_over());
        }
        let mut attackers = self.attackers.borrow_mut();
        for attacker in &mut *attackers {
            attacker.attend(hindered_until)?;
        }
        attackers.retain(|attacker| !attacker.is_over());
        Ok(())
    }

    /// Returns true if none attacks.
    pub(crate) fn is_quiet(&self) -> bool {
        self.attackers.borrow().is_empty()
    }

    /// Writes what is to be written on all connections.
    pub(crate) fn flush(&self) {
        for browser in &*self.list.borrow() {
            for session in browser.all() {
                session.borrow_mut().flush();
            }
        }
    }

    /// The moment at which one of them goes on by itself.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        let list = self.list.borrow();
        let sessions = list.iter().flat_map(Browser::all);
        sessions
            .filter_map(|session| session.borrow().next_at(now))
            .min()
    }

    /// All leave.
    pub(crate) fn leave(&self) {
        for browser in &*self.list.borrow() {
            for session in browser.all() {
                session.borrow_mut().leave(SimStream::close);
            }
        }
    }
}

impl Browser {
    fn all(&self) -> impl Iterator<Item = &Rc<RefCell<Session>>> {
        self.before.iter().chain(&self.current)
    }
}
