//! One client's commands in order: input bytes in, reply bytes out, nothing else touched.

use std::time::Instant;

use dwell_proto::memcache::binary;
use dwell_proto::memcache::encode::reply::{self, Status};
use dwell_proto::memcache::{
    Command, ErrorLine, Progress, Protocols, RequestDecoder, RequestLimits, StoreVerb, Tokens,
};

use super::commands::{After, Executor, Retrieval, command_label};
use super::dump::{Dump, is_cachedump};
use super::metrics::StoreCommand;
use super::service::{Doing, StoreService};

/// Replies are collected up to this before they are written.
///
/// Units: bytes; the last value may go beyond it.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The cost of a command in its connection's turn, besides its keys, each of which costs 1.
pub(super) const WORK_PER_COMMAND: usize = 16;

/// The work that some evictions for a smaller bound cost.
const WORK_PER_RESIZE: usize = 512;

/// One command in this many is measured.
const COMMANDS_PER_MEASURED: u64 = 64;

/// Data of an authenticating `set`, with memcached's overhead: a client without a login may hold no
/// more.
const UNAUTHENTICATED_ITEM_BYTES_MAX: usize = 1024;

/// The state of a client's protocol.
#[derive(Debug)]
pub(super) struct Session {
    protocol: Protocol,
    /// A retrieval of which some keys are answered; the rest is at the front of the input.
    paused: Option<Paused>,
    /// The command that goes on before anything else does.
    task: Option<Box<Task>>,
}

/// A command that takes many turns.
#[derive(Debug)]
enum Task {
    Dump(Dump),
    /// `cache_memlimit`, which is answered when the change has come to its end.
    Resize {
        megabytes: u32,
        noreply: bool,
    },
}

impl Task {
    /// Goes on with the command, and takes from `work` what it costs; whether it is over.
    fn step(&mut self, executor: &mut Executor<'_>, work: &mut usize) -> bool {
        match self {
            Self::Dump(dump) => dump.step(executor, work),
            Self::Resize { noreply, .. } => {
                *work = work.saturating_sub(WORK_PER_RESIZE);
                let is_over = !executor.service.store.resize_step(executor.moment.steady);
                if is_over {
                    executor.answer(*noreply, Ok(Status::Ok));
                }
                is_over
            }
        }
    }
}

#[derive(Debug)]
enum Protocol {
    /// Nothing has come.
    Undecided(RequestLimits),
    /// The text protocol of a client that has to authenticate.
    Unauthenticated(RequestDecoder, RequestLimits),
    /// Text and meta.
    Text(RequestDecoder),
    Binary(binary::RequestDecoder),
}

#[derive(Clone, Copy, Debug)]
struct Paused {
    retrieval: Retrieval,
    /// Bytes of the keys that are left.
    keys: usize,
    /// Bytes up to the end of the line.
    line: usize,
}

/// The progress of one call, and the reason why it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// Bytes at the front of the input that are done with.
    pub(super) used: usize,
    pub(super) stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// More input is needed.
    Starved,
    /// The collected replies have to be written first.
    OutputFull,
    /// The turn's share is used up.
    TurnOver,
    /// Write what is collected, then close.
    Close,
}

/// The outcome of one command.
struct Step {
    used: usize,
    stop: Option<Stop>,
    /// The counter; `None` if no whole command has come.
    label: Option<StoreCommand>,
}

impl Step {
    fn command(used: usize, label: StoreCommand, after: After) -> Self {
        Self {
            used,
            stop: (after == After::Close).then_some(Stop::Close),
            label: Some(label),
        }
    }

    fn stop(used: usize, stop: Stop) -> Self {
        Self {
            used,
            stop: Some(stop),
            label: None,
        }
    }

    fn other(used: usize) -> Self {
        Self::command(used, StoreCommand::Other, After::Continue)
    }
}

impl Session {
    pub(super) fn new(limits: RequestLimits) -> Self {
        Self {
            protocol: Protocol::Undecided(limits),
            paused: None,
            task: None,
        }
    }

    /// Makes a session of a client that was authenticated elsewhere.
    pub(super) fn trusted(limits: RequestLimits) -> Self {
        Self {
            protocol: Protocol::Text(RequestDecoder::new(limits)),
            paused: None,
            task: None,
        }
    }

    /// Returns true if its client had to authenticate, and has.
    pub(super) fn is_trusted(&self, service: &StoreService) -> bool {
        service.limits.credentials.is_some() && matches!(self.protocol, Protocol::Text(_))
    }

    /// The bytes that make a command of the rest of one: they go before the input.
    pub(super) fn rest_of_line(&self) -> Vec<u8> {
        if let Some(Task::Resize { megabytes, noreply }) = self.task.as_deref() {
            let noreply = if *noreply { " noreply" } else { "" };
            return format!("cache_memlimit {megabytes}{noreply}\r\n").into_bytes();
        }
        let Some(Paused { retrieval, .. }) = self.paused else {
            return Vec::new();
        };
        let suffix = if retrieval.with_cas { "s" } else { "" };
        let verb = match retrieval.exptime {
            None => format!("get{suffix} "),
            Some(exptime) => format!("gat{suffix} {exptime} "),
        };
        verb.into_bytes()
    }

    /// Serves the commands in `input`, the first byte of which follows the last one used.
    ///
    /// Shape: appends to the executor's output and takes from `work` what it costs.
    pub(super) fn serve(
        &mut self,
        executor: &mut Executor<'_>,
        input: &[u8],
        work: &mut usize,
    ) -> Served {
        let mut used = 0;
        if let (Protocol::Undecided(limits), Some(first)) = (&self.protocol, input.first()) {
            match Protocol::of(executor.service, *limits, *first) {
                Some(protocol) => self.protocol = protocol,
                None => {
                    return Served {
                        used,
                        stop: Stop::Close,
                    };
                }
            }
        }
        loop {
            let stop = if executor.out.len() >= OUTPUT_BYTES_MAX {
                Some(Stop::OutputFull)
            } else if *work == 0 {
                Some(Stop::TurnOver)
            } else if let Some(paused) = self.paused.take() {
                used += self.retrieve(executor, paused, &input[used..], work);
                None
            } else if let Some(task) = &mut self.task {
                if task.step(executor, work) {
                    self.task = None;
                }
                None
            } else {
                let step = self.measured_step(executor, &input[used..], work);
                used += step.used;
                *work = work.saturating_sub(WORK_PER_COMMAND);
                step.stop
            };
            if let Some(stop) = stop {
                return Served { used, stop };
            }
        }
    }

    /// The state of a client that has sent `input` bytes of something unfinished.
    pub(super) fn doing(&self, input: usize) -> Doing {
        let awaits_value = match &self.protocol {
            Protocol::Undecided(_) => false,
            Protocol::Unauthenticated(decoder, _) | Protocol::Text(decoder) => {
                decoder.awaits_value()
            }
            Protocol::Binary(_) => input >= binary::HEADER_BYTES,
        };
        match self.is_discarding() {
            true => Doing::Discarding,
            false if awaits_value => Doing::ReadingValue,
            false => Doing::Reading,
        }
    }

    /// True while a listing goes on, which only this process can go on with.
    pub(super) fn is_listing(&self) -> bool {
        matches!(self.task.as_deref(), Some(Task::Dump(_)))
    }

    /// Returns true if the session waits for the rest of something that has begun without leaving
    /// input.
    pub(super) fn is_discarding(&self) -> bool {
        match &self.protocol {
            Protocol::Undecided(_) => false,
            Protocol::Unauthenticated(decoder, _) | Protocol::Text(decoder) => {
                decoder.is_discarding()
            }
            Protocol::Binary(decoder) => decoder.is_discarding(),
        }
    }

    /// Takes one command from the front of `input`, counts it, and measures some.
    fn measured_step(
        &mut self,
        executor: &mut Executor<'_>,
        input: &[u8],
        work: &mut usize,
    ) -> Step {
        let metrics = executor.metrics;
        let counted = metrics.counted.value();
        let is_measured = counted % COMMANDS_PER_MEASURED == COMMANDS_PER_MEASURED - 1;
        let began = is_measured.then(Instant::now);
        let step = match &mut self.protocol {
            Protocol::Undecided(_) => Step::stop(0, Stop::Starved),
            Protocol::Unauthenticated(..) => self.authenticate(executor, input),
            Protocol::Text(_) => self.text(executor, input, work),
            Protocol::Binary(decoder) => binary_step(decoder, executor, input),
        };
        if let Some(label) = step.label {
            metrics.commands.increment(label);
            metrics.counted.increment();
            if let Some(began) = began {
                let times = metrics.durations.of(label);
                times.observe_nanoseconds(began.elapsed());
            }
        }
        step
    }

    fn text(&mut self, executor: &mut Executor<'_>, input: &[u8], work: &mut usize) -> Step {
        let Protocol::Text(decoder) = &mut self.protocol else {
            return Step::stop(0, Stop::Close);
        };
        let front = decoder.decode(input);
        let used = front.consumed;
        match front.progress {
            Progress::Command(Command::Get { keys, with_cas }) => {
                let retrieval = Retrieval {
                    with_cas,
                    exptime: None,
                };
                let used = self.begin(executor, retrieval, keys, &input[..used], work);
                Step::command(used, StoreCommand::Get, After::Continue)
            }
            Progress::Command(Command::GetAndTouch {
                keys,
                exptime,
                with_cas,
            }) => {
                let retrieval = Retrieval {
                    with_cas,
                    exptime: Some(exptime),
                };
                let used = self.begin(executor, retrieval, keys, &input[..used], work);
                Step::command(used, StoreCommand::GetAndTouch, After::Continue)
            }
            Progress::Command(Command::Stats { arguments }) if is_cachedump(arguments) => {
                self.task = Dump::cachedump(executor, arguments)
                    .map(Task::Dump)
                    .map(Box::new);
                Step::command(used, StoreCommand::Stats, After::Continue)
            }
            Progress::Command(Command::LruCrawler { arguments }) => {
                self.task = Dump::lru_crawler(executor, arguments)
                    .map(Task::Dump)
                    .map(Box::new);
                Step::other(used)
            }
            Progress::Command(Command::CacheMemlimit { megabytes, noreply }) => {
                let begins = executor.begin_memlimit(megabytes, noreply);
                self.task = begins.then(|| Box::new(Task::Resize { megabytes, noreply }));
                Step::other(used)
            }
            Progress::Command(command) => {
                let after = executor.execute(&command);
                Step::command(used, command_label(&command), after)
            }
            Progress::TooLarge { key, deletes_old } => {
                if deletes_old {
                    executor.discard(&key);
                }
                Step::other(used)
            }
            Progress::Error(line) => {
                reply::error(executor.out, line);
                Step::other(used)
            }
            Progress::Incomplete { .. } => Step::stop(used, Stop::Starved),
            // Anything else the decoder may come to say ends the connection, as a close does.
            _ => Step::stop(used, Stop::Close),
        }
    }

    /// Takes nothing but a `set` of any key whose data is a name and a password.
    fn authenticate(&mut self, executor: &mut Executor<'_>, input: &[u8]) -> Step {
        let Protocol::Unauthenticated(decoder, limits) = &mut self.protocol else {
            return Step::stop(0, Stop::Close);
        };
        let limits = *limits;
        let front = decoder.decode(input);
        let line = match front.progress {
            Progress::Command(Command::Store {
                verb: StoreVerb::Set,
                value,
                ..
            }) => match executor.service.authenticate(value) {
                Ok(()) => {
                    self.protocol = Protocol::Text(RequestDecoder::new(limits));
                    reply::status(executor.out, Status::Stored);
                    return Step::other(front.consumed);
                }
                Err(line) => line,
            },
            Progress::Incomplete { .. } => return Step::stop(front.consumed, Stop::Starved),
            Progress::Command(_) | Progress::Error(_) => ErrorLine::Unauthenticated,
            Progress::TooLarge { .. } => return Step::other(front.consumed),
            _ => return Step::stop(front.consumed, Stop::Close),
        };
        reply::error(executor.out, line);
        Step::other(front.consumed)
    }

    /// Answers the keys of a retrieval, as many as there is room and work for; returns how many
    /// bytes of its `line` are done with.
    fn begin(
        &mut self,
        executor: &mut Executor<'_>,
        retrieval: Retrieval,
        keys: Tokens<'_>,
        line: &[u8],
        work: &mut usize,
    ) -> usize {
        let end = if line.ends_with(b"\r\n") { 2 } else { 1 };
        let keys = keys.text().len();
        let before = line.len() - end - keys;
        let paused = Paused {
            retrieval,
            keys,
            line: keys + end,
        };
        before + self.retrieve(executor, paused, &line[before..], work)
    }

    /// Answers keys at the front of `input`; returns how many bytes are done with.
    fn retrieve(
        &mut self,
        executor: &mut Executor<'_>,
        paused: Paused,
        input: &[u8],
        work: &mut usize,
    ) -> usize {
        let keys = Tokens::new(&input[..paused.keys]);
        match executor.retrieve(paused.retrieval, keys, OUTPUT_BYTES_MAX, work) {
            None => paused.line,
            Some(rest) => {
                let left = rest.text().len();
                let done = paused.keys - left;
                self.paused = Some(Paused {
                    keys: left,
                    line: paused.line - done,
                    ..paused
                });
                done
            }
        }
    }
}

impl Protocol {
    /// The protocol of a connection by its first byte; `None` if it is not spoken here.
    fn of(service: &StoreService, limits: RequestLimits, first: u8) -> Option<Self> {
        let is_binary = first == binary::MAGIC;
        match service.limits.protocols {
            Protocols::Text if is_binary => return None,
            Protocols::Binary if !is_binary => return None,
            _ => {}
        }
        if service.limits.credentials.is_some() {
            // The binary protocol has its own way of saying who one is, which is not spoken here.
            let unknown = RequestLimits {
                item_bytes_max: UNAUTHENTICATED_ITEM_BYTES_MAX,
                ..limits
            };
            let decoder = RequestDecoder::new(unknown);
            return (!is_binary).then_some(Self::Unauthenticated(decoder, limits));
        }
        Some(if is_binary {
            Self::Binary(binary::RequestDecoder::new(limits))
        } else {
            Self::Text(RequestDecoder::new(limits))
        })
    }
}

fn binary_step(
    decoder: &mut binary::RequestDecoder,
    executor: &mut Executor<'_>,
    input: &[u8],
) -> Step {
    let front = decoder.decode(input);
    let used = front.consumed;
    match front.progress {
        binary::Progress::Request(request) => {
            let (label, after) = executor.execute_binary(&request);
            Step::command(used, label, after)
        }
        binary::Progress::TooLarge {
            echo,
            key,
            deletes_old,
        } => {
            executor.refuse_large(echo, key, deletes_old);
            Step::other(used)
        }
        binary::Progress::Refused {
            echo,
            status,
            closes,
        } => {
            binary::Reply::new(echo, status).write(executor.out);
            let after = if closes {
                After::Close
            } else {
                After::Continue
            };
            Step::command(used, StoreCommand::Other, after)
        }
        binary::Progress::Incomplete { .. } => Step::stop(used, Stop::Starved),
        _ => Step::stop(used, Stop::Close),
    }
}
