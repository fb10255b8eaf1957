//! The context that a driver's callbacks work with.

use crate::again::Again;
use crate::carried::table::{self, LoopNumber};
use crate::clock::Clock;
use crate::deadlines::Deadlines;
use crate::{Readiness, Sends, Token};
use dwell_timers::Tick;
use mio::{Interest, Registry};
use std::io;
use std::time::{Duration, Instant, SystemTime};

/// Bytes of the one input buffer a loop reads into, unless the loop was made with
/// [another size](crate::EventLoop::with_input_bytes).
pub const INPUT_BYTES: usize = 64 * 1024;

/// The loop as its driver sees it: time, deadlines, registration and the shared buffers.
#[derive(Debug)]
pub struct Context {
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) deadlines: Deadlines,
    pub(crate) again: Again,
    input: Vec<u8>,
    input_bytes: usize,
    output: Vec<u8>,
    stopped: bool,
    is_repeating: bool,
    /// The number of the loop among those that have carried streams, once it has one.
    carried: Option<LoopNumber>,
    /// Sends to many, where the host has them gathered.
    sends: Option<Box<Sends>>,
    /// The loop on a simulated network.
    #[cfg(feature = "sim")]
    pub(crate) simulated: Option<crate::sim::SimLoop>,
}

impl Context {
    pub(crate) fn new(registry: Registry, input_bytes: usize) -> Self {
        let clock = Clock::new();
        Self {
            registry,
            deadlines: Deadlines::new(clock.tick()),
            clock,
            again: Again::default(),
            input: vec![0; input_bytes],
            input_bytes,
            output: Vec::new(),
            stopped: false,
            is_repeating: false,
            carried: None,
            sends: None,
            #[cfg(feature = "sim")]
            simulated: crate::sim::SimLoop::on_this_thread(),
        }
    }

    /// The instant at which the current turn began to deliver.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The 10 ms tick of the current turn.
    pub fn tick(&self) -> Tick {
        self.clock.tick()
    }

    /// The wall clock, at most 50 ms old: for dates and whole-second expiry only.
    pub fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// The wall clock in whole seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        self.clock.unix_seconds()
    }

    /// Whole seconds since 1970, as far as the wall clock was right when the process started: only
    /// the monotonic clock moves them on. Lifetimes are counted by them.
    pub fn steady_seconds(&self) -> u64 {
        self.clock.steady_seconds()
    }

    /// Sets the deadline of `token`, replacing the one it had.
    ///
    /// Shape: [`Driver::expired`](crate::Driver::expired) is called once, never before `timeout`
    /// has passed since [`now`](Self::now) and at most two ticks and a turn after. Re-arming later
    /// costs two stores.
    pub fn arm(&mut self, token: Token, timeout: Duration) {
        #[cfg(feature = "sim")]
        let timeout = if crate::sim::Planted::WrongTimeout.is_in() {
            timeout * 2
        } else {
            timeout
        };
        self.deadlines.arm(token, self.clock.tick(), timeout);
    }

    /// Sets the deadline of `token` as [`arm`](Self::arm) does, unless it has one that comes first.
    pub fn arm_sooner(&mut self, token: Token, timeout: Duration) {
        self.deadlines.arm_sooner(token, self.clock.tick(), timeout);
    }

    /// Takes the deadline of `token` away; does nothing if it has no deadline.
    pub fn disarm(&mut self, token: Token) {
        self.deadlines.disarm(token);
    }

    /// Returns true if `token` has a deadline.
    pub fn is_armed(&self, token: Token) -> bool {
        self.deadlines.is_armed(token)
    }

    /// Returns the number of deadlines that are set.
    pub fn armed(&self) -> usize {
        self.deadlines.armed()
    }

    /// Delivers `readiness` of `token` again in the next turn, which will not wait.
    ///
    /// For drivers that stop before a socket is drained, so that one peer cannot fill a turn.
    /// Several calls in a turn are one delivery with all that was put back.
    pub fn again(&mut self, token: Token, readiness: Readiness) {
        self.again.push(token, readiness);
    }

    /// Delivers again as [`again`](Self::again) does, for work that could not even begin. Put back
    /// once more, it keeps its place before work that has gone on, so that all have their turns.
    pub fn again_in_place(&mut self, token: Token, readiness: Readiness) {
        if self.is_repeating {
            self.again.push_first(token, readiness);
        } else {
            self.again.push(token, readiness);
        }
    }

    /// True of a delivery that was put back by [`again`](Self::again) in an earlier turn.
    ///
    /// For drivers with a bound on the work of a turn: new deliveries and those that were put back
    /// each have a part of it, so that neither keep the others from theirs. Deliveries that were
    /// put back come last in a turn, in the order in which they were; the ones that keep
    /// [their place](Self::again_in_place) are the first of them.
    pub fn is_repeating(&self) -> bool {
        self.is_repeating
    }

    pub(crate) fn set_repeating(&mut self, is_repeating: bool) {
        self.is_repeating = is_repeating;
    }

    /// Registers a socket once, for reading and writing, edge-triggered.
    ///
    /// # Errors
    /// What the system's registration says (out of memory, or too many watches).
    pub fn register<S: mio::event::Source + ?Sized>(
        &mut self,
        source: &mut S,
        token: Token,
    ) -> io::Result<()> {
        self.register_for(source, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Registers a source that is only read from, such as a listener.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_readable<S: mio::event::Source + ?Sized>(
        &mut self,
        source: &mut S,
        token: Token,
    ) -> io::Result<()> {
        self.register_for(source, token, Interest::READABLE)
    }

    fn register_for<S: mio::event::Source + ?Sized>(
        &mut self,
        source: &mut S,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        #[cfg(feature = "sim")]
        let _registering = crate::sim::Registering::on(self.simulated);
        self.registry.register(source, token.into(), interest)
    }

    /// Ends the delivery of readiness for a source that stays open.
    ///
    /// # Errors
    /// What the system's deregistration says.
    pub fn deregister<S: mio::event::Source + ?Sized>(&mut self, source: &mut S) -> io::Result<()> {
        self.registry.deregister(source)
    }

    /// Returns the size of the loop's shared input buffer: [`INPUT_BYTES`] by default.
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Takes the loop's shared input buffer of [`input_bytes`](Self::input_bytes); give it back
    /// with [`return_input`](Self::return_input).
    ///
    /// Shape: its contents are whatever was read last. A second taker before the first has given
    /// it back gets a fresh buffer, which is correct but not free.
    pub fn take_input(&mut self) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.input);
        if input.len() < self.input_bytes {
            input.resize(self.input_bytes, 0);
        }
        input
    }

    /// Gives the shared input buffer back. A buffer that had to grow for a single long message is
    /// dropped, so that its memory does not stay.
    pub fn return_input(&mut self, input: Vec<u8>) {
        if input.len() == self.input_bytes {
            self.input = input;
        }
    }

    /// Takes the loop's shared output buffer, empty; give it back with
    /// [`return_output`](Self::return_output).
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Gives the shared output buffer back; one that grew past 1 MiB is dropped.
    pub fn return_output(&mut self, mut output: Vec<u8>) {
        const KEEP_BYTES_MAX: usize = 1024 * 1024;
        if output.capacity() <= KEEP_BYTES_MAX {
            output.clear();
            self.output = output;
        }
    }

    /// Lets components gather what they send to many, where the kernel allows it; without it they
    /// send to each at once.
    pub fn set_sends(&mut self, sends: Option<Sends>) {
        self.sends = sends.map(Box::new);
    }

    /// Returns the sends of this loop, if it has some.
    pub fn sends(&mut self) -> Option<&mut Sends> {
        self.sends.as_deref_mut()
    }

    /// Returns the sends of this loop while they are gathered for tokens of this kind.
    pub fn sends_of(&mut self, kind: u8) -> Option<&mut Sends> {
        self.sends().filter(|sends| sends.is_of(kind))
    }

    /// Takes the sends of this loop; give them back with [`return_sends`](Self::return_sends).
    pub fn take_sends(&mut self) -> Option<Box<Sends>> {
        self.sends.take()
    }

    /// Gives the sends of this loop back.
    pub fn return_sends(&mut self, sends: Box<Sends>) {
        self.sends = Some(sends);
    }

    pub(crate) fn carried_loop(&mut self) -> LoopNumber {
        *self.carried.get_or_insert_with(LoopNumber::next)
    }

    /// Puts the readiness of carried streams among what is delivered in the next turn.
    pub(crate) fn tell_of_carried(&mut self) {
        if let Some(event_loop) = self.carried {
            let again = &mut self.again;
            table::tell(event_loop, |token, readiness| {
                again.push(token, readiness);
            });
        }
    }

    /// Asks the loop to end after this turn.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Returns true after [`stop`](Self::stop).
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }
}
