//! The connection on which a server reports changes.

use super::connection::{Connection, Lost, Place, next_tenant};
use super::findings::Findings;
use super::metrics::ResyncReason;
use super::pace::Pace;
use dwell_evloop::{Context, Readiness, Token};
use dwell_proto::memcache::{WatchDecoder, WatchLine};
use std::net::SocketAddr;
use std::time::Duration;

/// One watch: made, asked for, told; or refused, and asked for again much later.
///
/// The token's deadline is the one by which the attempt has to succeed, or the time of the next.
#[derive(Debug)]
pub(super) struct Watch {
    place: Place,
    token: Token,
    connection: Option<Connection>,
    decoder: WatchDecoder,
    phase: Phase,
    /// The place in [`COMMANDS`] that it has come to.
    command: usize,
    pace: Pace,
    is_refusal_logged: bool,
}

/// State of the watch of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// The server is not asked, or has not answered yet.
    Unknown,
    /// The server refuses to be watched.
    Refused,
    /// The server reports changes.
    Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not connected.
    Away,
    /// The connection is being made, or the answer to the command is awaited.
    Asking,
    /// The server reports changes.
    Told,
    /// The server does not let itself be watched.
    Refused,
}

/// The commands that are tried, the best first. A server that knows one of the words and not
/// another refuses all of them.
const COMMANDS: [&[u8]; 3] = [
    // memcached 1.6.20 and later.
    b"watch mutations deletions evictions\r\n",
    b"watch mutations evictions\r\n",
    b"watch mutations\r\n",
];

impl Watch {
    pub(super) fn new(place: Place, token: Token, seed: u64) -> Self {
        Self {
            place,
            token,
            connection: None,
            decoder: WatchDecoder::default(),
            phase: Phase::Away,
            command: 0,
            pace: Pace::new(seed),
            is_refusal_logged: false,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.place.address
    }

    pub(super) fn state(&self) -> WatchState {
        match self.phase {
            Phase::Told => WatchState::Told,
            Phase::Refused => WatchState::Refused,
            Phase::Away | Phase::Asking => WatchState::Unknown,
        }
    }

    pub(super) fn is_told(&self) -> bool {
        self.phase == Phase::Told
    }

    /// Tells whether the server reports deletions, too.
    pub(super) fn tells_deletions(&self) -> bool {
        self.is_told() && self.command == 0
    }

    /// Connects; a server that has refused is left alone until its time has come.
    pub(super) fn begin(&mut self, context: &mut Context, timeout: Duration) {
        if self.phase == Phase::Away && !context.is_armed(self.token) {
            self.connect(context, timeout);
        }
    }

    /// Ends the connection, with nothing to come after it.
    pub(super) fn end(&mut self, context: &mut Context) {
        if self.phase != Phase::Refused {
            self.drop_connection(context);
        }
    }

    /// Ends the connection; the next one is to another address.
    pub(super) fn turn_to(&mut self, context: &mut Context, address: SocketAddr) {
        self.drop_connection(context);
        self.place.address = address;
        self.is_refusal_logged = false;
    }

    fn connect(&mut self, context: &mut Context, timeout: Duration) {
        self.decoder = WatchDecoder::default();
        self.command = 0;
        self.phase = Phase::Asking;
        self.connection = Connection::open(context, &self.place, self.token);
        if self.connection.is_some() {
            context.arm(self.token, timeout);
        } else {
            self.lost(context);
        }
    }

    /// The deadline has passed: the attempt has failed, or the next is due.
    pub(super) fn expired(&mut self, context: &mut Context, token: Token, timeout: Duration) {
        if token != self.token {
            return;
        }
        match self.phase {
            Phase::Away | Phase::Refused => self.connect(context, timeout),
            Phase::Asking => self.lost(context),
            Phase::Told => {}
        }
    }

    pub(super) fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        findings: &mut Findings<'_>,
    ) {
        if token == self.token && self.take(context, readiness, findings) == Err(Lost) {
            let was_told = self.phase == Phase::Told;
            self.lost(context);
            if was_told {
                let server = self.place.address;
                tracing::info!(%server, "memcached does not tell of changes now");
            }
        }
    }

    fn take(
        &mut self,
        context: &mut Context,
        readiness: Readiness,
        findings: &mut Findings<'_>,
    ) -> Result<(), Lost> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        if connection.go_on(readiness)? {
            connection.write(COMMANDS[self.command])?;
        }
        if !readiness.is_readable() || !connection.is_established() {
            return Ok(());
        }
        let (decoder, mut answer) = (&mut self.decoder, None);
        connection.receive(context, self.token, readiness, |input| {
            let mut used = 0;
            while let Some((length, line)) = decoder.decode(&input[used..]).map_err(|_| Lost)? {
                used += length;
                match line {
                    WatchLine::Accepted => answer = Some(Answer::Yes),
                    WatchLine::Refused { text } => answer = Some(Answer::of_refusal(text)),
                    _ => findings.line(&line),
                }
            }
            Ok(used)
        })?;
        if let (Some(answer), Phase::Asking) = (answer, self.phase) {
            self.answered(context, answer, findings)?;
        }
        Ok(())
    }

    fn answered(
        &mut self,
        context: &mut Context,
        answer: Answer,
        findings: &mut Findings<'_>,
    ) -> Result<(), Lost> {
        match answer {
            Answer::Yes => {
                context.disarm(self.token);
                self.phase = Phase::Told;
                self.pace.succeeded();
                self.is_refusal_logged = false;
                // What has changed before is not told.
                findings.resync(ResyncReason::Connected);
                let deletions = self.tells_deletions();
                let server = self.place.address;
                tracing::info!(%server, deletions, "memcached tells of changes");
                Ok(())
            }
            Answer::Unknown if self.command + 1 < COMMANDS.len() => {
                self.command += 1;
                let connection = self.connection.as_mut();
                connection.map_or(Ok(()), |connection| {
                    connection.write(COMMANDS[self.command])
                })
            }
            Answer::Busy => Err(Lost),
            Answer::Unknown | Answer::No => {
                self.refused(context);
                Ok(())
            }
        }
    }

    fn refused(&mut self, context: &mut Context) {
        self.drop_connection(context);
        self.phase = Phase::Refused;
        context.arm(self.token, self.pace.refused());
        if !self.is_refusal_logged {
            self.is_refusal_logged = true;
            tracing::warn!(
                server = %self.place.address,
                "memcached does not let itself be watched: changes are found by looking only",
            );
        }
    }

    /// Ends a connection that has failed, and sets the time of the next.
    pub(super) fn lost(&mut self, context: &mut Context) {
        self.drop_connection(context);
        context.arm(self.token, self.pace.failed());
    }

    /// Makes what is still on its way to the connection find nothing.
    fn drop_connection(&mut self, context: &mut Context) {
        context.disarm(self.token);
        self.phase = Phase::Away;
        self.connection = None;
        self.token = next_tenant(self.token);
    }
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    /// The command has a word that the server does not know.
    Unknown,
    /// The server has too many connections.
    Busy,
    No,
}

impl Answer {
    fn of_refusal(text: &[u8]) -> Self {
        match text {
            b"ERROR" => Self::Unknown,
            _ if text.starts_with(b"ERROR Too many") => Self::Busy,
            _ => Self::No,
        }
    }
}
