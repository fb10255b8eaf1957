//! The turn: wait, read the clock, deliver, expire, flush.

use crate::inbox::Inbox;
use crate::signals::Signals;
use crate::{Context, INPUT_BYTES, Readiness, Sender, Token};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The program on a loop: it gets all events and owns every connection.
///
/// # Panics
/// One that unwinds out of a callback takes the rest of the turn with it, and readiness is not told
/// twice: the loop has to be dropped.
pub trait Driver {
    /// Messages from other threads to this loop.
    type Message: Send;

    /// A registered socket is ready. Edge-triggered: see [`Readiness`].
    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness);

    /// The deadline of `token` has passed; it is no longer armed.
    fn expired(&mut self, context: &mut Context, token: Token);

    /// A message came from a [`Sender`].
    fn message(&mut self, context: &mut Context, message: Self::Message);

    /// A signal that [`EventLoop::watch_signal`] watches came.
    fn signal(&mut self, context: &mut Context, signal: i32) {
        let _ = (context, signal);
    }

    /// The turn has delivered everything; batched work goes out now.
    fn turn_end(&mut self, context: &mut Context) {
        let _ = context;
    }
}

/// A function that runs around each wait that blocks; see [`EventLoop::turn_around`].
pub type Around<'a> = &'a mut dyn FnMut(&mut (dyn FnMut() + Send));

/// One loop on one thread.
#[derive(Debug)]
pub struct EventLoop<M> {
    poll: mio::Poll,
    events: mio::Events,
    context: Context,
    inbox: Inbox<M>,
    messages: Vec<M>,
    again: Vec<(Token, Readiness)>,
    signals: Signals,
    /// The last wait has brought as many events as it may: more may be there.
    has_more: bool,
    /// Readiness that the last wait on a simulated network has brought.
    #[cfg(feature = "sim")]
    simulated: Vec<(Token, Readiness)>,
}

/// Readiness events taken from the system in one turn; more come in the next.
const EVENTS_PER_TURN: usize = 1024;
/// Messages, or deliveries put back, for which memory stays when a burst of them is over.
const MESSAGES_KEPT_MAX: usize = 16 * 1024;
/// Deadlines expired in one turn; more follow in the next, which does not wait.
const EXPIRIES_PER_TURN: usize = 65_536;
/// The longest wait that is given a length: the system counts milliseconds in 31 bits, and what
/// does not fit would end at once or never.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl<M: Send> EventLoop<M> {
    /// Makes a loop with nothing registered.
    ///
    /// # Errors
    /// When the system has no descriptor or memory left for the poller and its waker.
    pub fn new() -> io::Result<Self> {
        Self::with_input_bytes(INPUT_BYTES)
    }

    /// Makes a loop whose shared input buffer has this size, which no head or kept input of its
    /// components may reach.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_input_bytes(input_bytes: usize) -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        let context = Context::new(poll.registry().try_clone()?, input_bytes);
        let inbox = Self::inbox(&context)?;
        Ok(Self {
            poll,
            events: mio::Events::with_capacity(EVENTS_PER_TURN),
            context,
            inbox,
            messages: Vec::new(),
            again: Vec::new(),
            signals: Signals::default(),
            has_more: false,
            #[cfg(feature = "sim")]
            simulated: Vec::new(),
        })
    }

    fn inbox(context: &Context) -> io::Result<Inbox<M>> {
        #[cfg(feature = "sim")]
        if let Some(event_loop) = context.simulated {
            return Ok(Inbox::woken_by(crate::inbox::Waker::Simulated(event_loop)));
        }
        Inbox::new(&context.registry, Token::WAKE.into())
    }

    /// Returns the context that callbacks get, for use between turns; the clock is read for it.
    pub fn context(&mut self) -> &mut Context {
        self.context.clock.update();
        &mut self.context
    }

    /// A new handle for sending messages to this loop.
    pub fn sender(&self) -> Sender<M> {
        self.inbox.sender()
    }

    /// Delivers `signal` to [`Driver::signal`] from now on, instead of its default action.
    ///
    /// # Errors
    /// When the signal may not be caught, or no descriptor is left.
    pub fn watch_signal(&mut self, signal: i32) -> io::Result<()> {
        #[cfg(feature = "sim")]
        if self.context.simulated.is_some() {
            // No signal of the process is for a loop that is turned by hand.
            return Ok(());
        }
        self.signals.watch(self.poll.registry(), signal)
    }

    /// Ends what [`watch_signal`](Self::watch_signal) began; a signal that no loop of the process
    /// watches any more has its default action again. Dropping the loop does the same.
    pub fn unwatch_signals(&mut self) {
        self.signals.unwatch_all();
    }

    /// Returns a socket whose bytes end the wait, and are thrown away. A signal handler, which can
    /// do nothing but write to a descriptor, ends the wait that way.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn interrupter(&mut self) -> io::Result<UnixStream> {
        self.signals.interrupter(self.poll.registry())
    }

    /// Returns how long the next turn will wait at most: zero when work is left, `None` when only
    /// readiness, a message or a signal can end it.
    ///
    /// For programs that wait for the loop's descriptor in another loop, and turn with a timeout of
    /// zero.
    pub fn wait_max(&mut self) -> Option<Duration> {
        self.context.clock.update();
        if self.has_more {
            // The descriptor tells of news, not of what is left.
            return Some(Duration::ZERO);
        }
        self.wait_at_most(None)
    }

    /// Returns how long a simulated loop will wait: zero when something is there for it, `None`
    /// when only an event of the network can end its wait.
    #[cfg(feature = "sim")]
    pub fn due_in(&mut self) -> Option<Duration> {
        let is_due = |event_loop: crate::sim::SimLoop| event_loop.is_due();
        if self.context.simulated.is_some_and(is_due) {
            return Some(Duration::ZERO);
        }
        self.wait_max()
    }

    /// Waits once, for at most `timeout` (`None`: until something happens), and delivers.
    ///
    /// Shape: ends at once for readiness, a message, a signal or a due deadline. A signal that is
    /// not watched but interrupts the wait ends the turn early, without error.
    ///
    /// # Errors
    /// What the system's poll says other than an interruption; the loop is then unusable.
    pub fn turn<D>(&mut self, driver: &mut D, timeout: Option<Duration>) -> io::Result<()>
    where
        D: Driver<Message = M>,
    {
        // The caller may have been away since the last turn, so its reading is stale.
        self.context.clock.update();
        self.turn_now(driver, timeout, None)
    }

    /// Turns as [`turn`](Self::turn) does, with a function around a wait that really blocks: it may
    /// release the lock of an interpreter, for example.
    ///
    /// Shape: what is there already is delivered without `around`. Otherwise it is called once,
    /// and calls what it is given once, which waits.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn turn_around<D>(
        &mut self,
        driver: &mut D,
        timeout: Option<Duration>,
        around: Around<'_>,
    ) -> io::Result<()>
    where
        D: Driver<Message = M>,
    {
        self.context.clock.update();
        self.turn_now(driver, timeout, Some(around))
    }

    /// Turns until the driver calls [`Context::stop`].
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn run<D>(&mut self, driver: &mut D) -> io::Result<()>
    where
        D: Driver<Message = M>,
    {
        self.context.clock.update();
        while !self.context.is_stopped() {
            self.turn_now(driver, None, None)?;
        }
        Ok(())
    }

    /// One turn; the last clock reading is no older than the end of the turn before.
    fn turn_now<D>(
        &mut self,
        driver: &mut D,
        timeout: Option<Duration>,
        around: Option<Around<'_>>,
    ) -> io::Result<()>
    where
        D: Driver<Message = M>,
    {
        let wait = self.wait_at_most(timeout);
        self.context.again.swap(&mut self.again);
        let interrupted = match self.wait(wait, around) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) => return Err(error),
        };
        self.context.clock.update();
        self.deliver_messages(driver);
        if !interrupted {
            self.deliver_events(driver);
        }
        self.deliver_again(driver);
        self.expire(driver);
        driver.turn_end(&mut self.context);
        Ok(())
    }

    fn wait(&mut self, wait: Option<Duration>, around: Option<Around<'_>>) -> io::Result<()> {
        #[cfg(feature = "sim")]
        if let Some(event_loop) = self.context.simulated {
            self.has_more = event_loop.wait(wait, &mut self.simulated)?;
            return Ok(());
        }
        let Some(around) = around.filter(|_| wait != Some(Duration::ZERO)) else {
            return self.poll.poll(&mut self.events, wait);
        };
        self.poll.poll(&mut self.events, Some(Duration::ZERO))?;
        let mut outcome = Ok(());
        if self.events.is_empty() {
            around(&mut || outcome = self.poll.poll(&mut self.events, wait));
        }
        outcome
    }

    fn wait_at_most(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        self.context.tell_of_carried();
        if !self.context.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.context.clock.tick();
        let timer = self
            .context
            .deadlines
            .next_event(now)
            .map(|tick| self.context.clock.until(tick));
        let wait = match (timeout, timer) {
            (Some(timeout), Some(timer)) => Some(timeout.min(timer)),
            (timeout, timer) => timeout.or(timer),
        };
        wait.map(|wait| wait.min(WAIT_MAX))
    }

    fn deliver_messages<D: Driver<Message = M>>(&mut self, driver: &mut D) {
        self.inbox.drain(&mut self.messages);
        for message in self.messages.drain(..) {
            driver.message(&mut self.context, message);
        }
        // It takes turns with the inbox's own.
        self.messages.shrink_to(MESSAGES_KEPT_MAX);
    }

    fn deliver_events<D: Driver<Message = M>>(&mut self, driver: &mut D) {
        #[cfg(feature = "sim")]
        if self.context.simulated.is_some() {
            for (token, readiness) in self.simulated.drain(..) {
                driver.ready(&mut self.context, token, readiness);
            }
            return;
        }
        let mut count = 0;
        for event in &self.events {
            count += 1;
            let token = Token::from(event.token());
            match token {
                Token::WAKE => {}
                Token::SIGNAL => {
                    for signal in self.signals.take() {
                        driver.signal(&mut self.context, signal);
                    }
                }
                token => driver.ready(&mut self.context, token, Readiness::of(event)),
            }
        }
        self.has_more = count == self.events.capacity();
    }

    fn deliver_again<D: Driver<Message = M>>(&mut self, driver: &mut D) {
        // What these deliveries put back goes to `context.again` and waits for the next turn.
        self.context.set_repeating(true);
        for (token, readiness) in self.again.drain(..) {
            driver.ready(&mut self.context, token, readiness);
        }
        self.context.set_repeating(false);
        self.again.shrink_to(MESSAGES_KEPT_MAX);
    }

    fn expire<D: Driver<Message = M>>(&mut self, driver: &mut D) {
        let now = self.context.clock.tick();
        for _ in 0..EXPIRIES_PER_TURN {
            let Some(token) = self.context.deadlines.pop_due(now) else {
                break;
            };
            driver.expired(&mut self.context, token);
        }
    }
}

/// The poller's descriptor: readable when the next turn has something to deliver that is not a
/// deadline.
impl<M> AsFd for EventLoop<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

impl<M> AsRawFd for EventLoop<M> {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that ignores all events.
    #[derive(Default)]
    struct Deaf<M>(std::marker::PhantomData<M>);

    impl<M: Send> Driver for Deaf<M> {
        type Message = M;

        fn ready(&mut self, _: &mut Context, _: Token, _: Readiness) {}

        fn expired(&mut self, _: &mut Context, _: Token) {}

        fn message(&mut self, _: &mut Context, _: M) {}
    }

    #[test]
    fn only_a_wait_that_blocks_is_surrounded() {
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let mut rounds = 0;
        let mut turn = |event_loop: &mut EventLoop<()>, timeout| {
            let before = rounds;
            let turned = event_loop.turn_around(&mut Deaf::default(), Some(timeout), &mut |wait| {
                rounds += 1;
                wait();
            });
            turned.unwrap();
            rounds - before
        };
        assert_eq!(turn(&mut event_loop, Duration::from_millis(1)), 1);
        assert_eq!(turn(&mut event_loop, Duration::ZERO), 0);
        event_loop.sender().wake();
        assert_eq!(turn(&mut event_loop, WAIT_MAX), 0);
        assert_eq!(turn(&mut event_loop, Duration::from_millis(1)), 1);
    }

    #[test]
    fn a_byte_for_the_interrupter_ends_the_wait() {
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let mut interrupter = event_loop.interrupter().unwrap();
        for _ in 0..2 {
            io::Write::write_all(&mut interrupter, b"\x02").unwrap();
            event_loop
                .turn(&mut Deaf::default(), Some(WAIT_MAX))
                .unwrap();
        }
    }

    #[test]
    fn whoever_waits_for_the_descriptor_is_told_of_what_a_turn_has_left() {
        let mut event_loop = EventLoop::<()>::new().unwrap();
        event_loop.events = mio::Events::with_capacity(1);
        let context = event_loop.context();
        let pairs: Vec<_> = (0..3)
            .map(|index| {
                let (mut near, mut far) = mio::net::UnixStream::pair().unwrap();
                context
                    .register(&mut near, Token::new(1, 0, index))
                    .unwrap();
                io::Write::write_all(&mut far, b"news").unwrap();
                (near, far)
            })
            .collect();
        for _ in &pairs {
            event_loop
                .turn(&mut Deaf::default(), Some(Duration::ZERO))
                .unwrap();
            assert_eq!(event_loop.wait_max(), Some(Duration::ZERO));
        }
        event_loop
            .turn(&mut Deaf::default(), Some(Duration::ZERO))
            .unwrap();
        assert_eq!(event_loop.wait_max(), None);
    }

    #[test]
    fn the_memory_of_a_burst_goes_with_it() {
        let mut event_loop = EventLoop::<u64>::new().unwrap();
        let sender = event_loop.sender();
        for _ in 0..2 {
            for number in 0..10 * MESSAGES_KEPT_MAX as u64 {
                sender.send(number).unwrap();
            }
            for index in 0..10 * MESSAGES_KEPT_MAX as u32 {
                event_loop
                    .context()
                    .again(Token::new(1, 0, index), Readiness::default());
            }
            for _ in 0..2 {
                event_loop
                    .turn(&mut Deaf::default(), Some(Duration::ZERO))
                    .unwrap();
            }
            let kept = event_loop
                .messages
                .capacity()
                .max(event_loop.inbox.capacity());
            assert!(kept <= MESSAGES_KEPT_MAX, "{kept} messages");
            let kept = event_loop.again.capacity();
            assert!(kept <= MESSAGES_KEPT_MAX, "{kept} deliveries");
        }
    }

    #[test]
    fn no_wait_is_too_long_for_the_system() {
        let mut event_loop = EventLoop::<()>::new().unwrap();
        for timeout in [Duration::MAX, Duration::from_millis(1 << 32), WAIT_MAX] {
            assert_eq!(event_loop.wait_at_most(Some(timeout)), Some(WAIT_MAX));
        }
        assert!(WAIT_MAX.as_millis() < i32::MAX as u128);
        assert_eq!(event_loop.wait_at_most(None), None);
        let short = Some(Duration::from_millis(1));
        assert_eq!(event_loop.wait_at_most(short), short);
    }
}
