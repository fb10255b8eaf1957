//! One client's commands in order: input bytes in, reply bytes out, nothing else touched.

use dwell_proto::memcache::encode::reply;
use dwell_proto::memcache::{Command, Progress, RequestDecoder, RequestLimits, Tokens};

use super::commands::{After, Executor, Retrieval};

/// Replies are collected up to this before they are written.
///
/// Units: bytes; the last value may go beyond it.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// How much one connection may do in one turn: this many looked-up keys.
pub(super) const WORK_PER_TURN: usize = 1024;
/// What a command costs of it beside its keys, so that 64 commands fill a turn.
const WORK_PER_COMMAND: usize = 16;

/// Where a client's protocol stands.
#[derive(Debug)]
pub(super) struct Session {
    decoder: RequestDecoder,
    /// A retrieval of which some keys are answered; the rest is at the front of the input.
    paused: Option<Paused>,
}

#[derive(Clone, Copy, Debug)]
struct Paused {
    retrieval: Retrieval,
    /// Bytes of the keys that are left.
    keys: usize,
    /// Bytes up to the end of the line.
    line: usize,
}

/// How far one call came, and why no further.
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

impl Session {
    pub(super) fn new(limits: RequestLimits) -> Self {
        Self {
            decoder: RequestDecoder::new(limits),
            paused: None,
        }
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
        loop {
            if let Some(paused) = self.paused.take() {
                used += self.retrieve(executor, paused, &input[used..], work);
            }
            let stop = if executor.out.len() >= OUTPUT_BYTES_MAX {
                Some(Stop::OutputFull)
            } else if *work == 0 {
                Some(Stop::TurnOver)
            } else {
                let (consumed, stop) = self.step(executor, &input[used..]);
                used += consumed;
                stop
            };
            if let Some(stop) = stop {
                return Served { used, stop };
            }
            *work = work.saturating_sub(WORK_PER_COMMAND);
        }
    }

    /// Takes one command from the front of `input`; returns how many bytes are done with.
    fn step(&mut self, executor: &mut Executor<'_>, input: &[u8]) -> (usize, Option<Stop>) {
        let step = self.decoder.decode(input);
        let consumed = step.consumed;
        match step.progress {
            Progress::Command(Command::Get { keys, with_cas }) => {
                let retrieval = Retrieval {
                    with_cas,
                    exptime: None,
                };
                return (self.pause(retrieval, keys, &input[..consumed]), None);
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
                return (self.pause(retrieval, keys, &input[..consumed]), None);
            }
            Progress::Command(command) => {
                if executor.execute(&command) == After::Close {
                    return (consumed, Some(Stop::Close));
                }
            }
            Progress::TooLarge {
                key,
                deletes_old: true,
            } => executor.discard(&key),
            Progress::TooLarge { .. } => {}
            Progress::Error(line) => reply::error(executor.out, line),
            Progress::Incomplete { .. } => return (consumed, Some(Stop::Starved)),
            // Anything else the decoder may come to say ends the connection, as a close does.
            _ => return (consumed, Some(Stop::Close)),
        }
        (consumed, None)
    }

    /// Whether the session waits for the rest of something that has begun without leaving input.
    pub(super) fn is_discarding(&self) -> bool {
        self.decoder.is_discarding()
    }

    /// Makes a retrieval whose keys are still to be answered; returns where they begin.
    fn pause(&mut self, retrieval: Retrieval, keys: Tokens<'_>, line: &[u8]) -> usize {
        let end = if line.ends_with(b"\r\n") { 2 } else { 1 };
        let keys = keys.text().len();
        self.paused = Some(Paused {
            retrieval,
            keys,
            line: keys + end,
        });
        line.len() - end - keys
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
