//! Checks of a server before it is used: the rights of the user, and the server's table.

use crate::cluster::{Redirect, Topology};
use crate::connection::Flight;
use crate::greeting::{Purpose, tracking_words, words};
use crate::link::{Link, LinkEvent};
use crate::table::{TableQuestion, TrackingTable};
use crate::{Announced, ClientOptions, Endpoint, Failure, TableUse};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
use dwell_proto::resp::{Message, Value, command};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A key that no value is under, and what is to be done with keys like it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampleKey {
    /// The key. Nothing is stored under it.
    pub name: Vec<u8>,
    /// Keys like it are written.
    pub is_written: bool,
    /// Keys like it are removed, or replaced on a condition.
    pub is_removed: bool,
}

/// A right that a user may lack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Right {
    /// `HELLO`, and so version 3 of the protocol.
    Version,
    /// `GET`.
    Read,
    /// `PTTL`.
    Lifetime,
    /// `PING`.
    LifeSign,
    /// `CLIENT TRACKING`.
    Tracking,
    /// `SET`.
    Write,
    /// `DEL`.
    Delete,
    /// `EVAL`.
    Script,
    /// `CONFIG GET tracking-table-max-keys`.
    TableBound,
    /// `INFO stats`.
    TableUse,
    /// `CLUSTER SLOTS`.
    Slots,
    /// `CLUSTER INFO`.
    Epoch,
    /// `CLUSTER NODES`.
    Migrations,
}

/// The findings about one server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inspection {
    /// The name and the version of the server, if it says so.
    pub server: Option<String>,
    /// The server's role, if it says so.
    pub role: Option<String>,
    /// Its address, if a Sentinel has named it; then a failure is of this server.
    pub primary: Option<SocketAddr>,
    /// The reason why nothing more is known, with the words of the server or of TLS.
    pub failure: Option<(Failure, Option<Box<str>>)>,
    /// Rights that the user lacks, with the keys and the words of the server.
    pub lacking: Vec<(Right, Vec<u8>, Box<str>)>,
    /// The primaries of its cluster, and the number of slots without one, if it has one.
    pub cluster: Option<(Vec<SocketAddr>, usize)>,
    /// The server's table of keys that it announces; without a bound it has none.
    pub table: Option<TableUse>,
}

/// Connects to a server as a [`Client`](crate::Client) does, and asks what it is and allows. It
/// asks the first server of a cluster.
///
/// Shape: runs a loop of its own, and ends within `limit`. Nothing is stored: the `SET` is for keys
/// that are there, and these are not.
///
/// # Errors
/// If the loop cannot be made.
pub fn inspect(
    endpoint: Endpoint,
    options: &ClientOptions,
    samples: &[SampleKey],
    limit: Duration,
) -> io::Result<Inspection> {
    let mut event_loop = EventLoop::<()>::new()?;
    let of_cluster = match &endpoint {
        Endpoint::Cluster(servers) => servers.first().copied(),
        _ => None,
    };
    let endpoint = of_cluster.map_or(endpoint, Endpoint::Tcp);
    let link = Link::new(Purpose::Plain, endpoint, token(CONNECTION), options);
    let mut inspector = Inspector {
        link,
        options,
        questions: questions(options, samples, of_cluster.is_some()),
        of_cluster,
        answers: None,
        is_late: false,
        table: TrackingTable::of(&options.announced),
        found: Inspection::default(),
    };
    let context = event_loop.context();
    inspector.link.ensure(context, options);
    context.arm(token(LIMIT), limit);
    while !inspector.is_over() {
        event_loop.turn(&mut inspector, None)?;
    }
    Ok(inspector.found())
}

/// One question: the right that it needs, the key of it, and the words.
struct Question {
    right: Right,
    key: Vec<u8>,
    words: Vec<Vec<u8>>,
}

/// The questions to a server, of which the last one changes the state of the connection.
fn questions(options: &ClientOptions, samples: &[SampleKey], is_of_cluster: bool) -> Vec<Question> {
    let question = |right, key: &[u8], words: &[&[u8]]| Question {
        right,
        key: key.to_vec(),
        words: words.iter().map(|word| word.to_vec()).collect(),
    };
    let is_tracking = options.announced != Announced::Nothing;
    let mut all = vec![question(Right::Version, b"", &[b"HELLO"])];
    for sample in samples {
        let name = &*sample.name;
        all.push(question(Right::Read, name, &[b"GET", name]));
        if is_tracking {
            all.push(question(Right::Lifetime, name, &[b"PTTL", name]));
        }
        if sample.is_written {
            all.push(question(Right::Write, name, &[b"SET", name, b"", b"XX"]));
        }
        if sample.is_removed {
            all.push(question(Right::Delete, name, &[b"DEL", name]));
            let script: &[&[u8]] = &[b"EVAL", b"return 0", b"1", name];
            all.push(question(Right::Script, name, script));
        }
    }
    if options.announced == Announced::Keys {
        let bound = TableQuestion::Bound.words();
        all.push(question(Right::TableBound, b"", bound));
        all.push(question(Right::TableUse, b"", TableQuestion::Use.words()));
    }
    if is_of_cluster {
        all.push(question(Right::Slots, b"", &[b"CLUSTER", b"SLOTS"]));
        all.push(question(Right::Epoch, b"", &[b"CLUSTER", b"INFO"]));
        if is_tracking {
            all.push(question(Right::Migrations, b"", &[b"CLUSTER", b"NODES"]));
        }
    }
    // The connection for reads and writes is probed whatever the tracking.
    all.push(question(Right::LifeSign, b"", &[b"PING"]));
    if is_tracking {
        all.push(question(
            Right::Tracking,
            b"",
            &tracking_words(&options.announced),
        ));
    }
    all
}

struct Inspector<'o> {
    link: Link,
    options: &'o ClientOptions,
    questions: Vec<Question>,
    /// Its address, of a server of a cluster.
    of_cluster: Option<SocketAddr>,
    /// Replies so far; none before the questions were asked.
    answers: Option<usize>,
    is_late: bool,
    table: TrackingTable,
    found: Inspection,
}

impl Inspector<'_> {
    fn is_over(&self) -> bool {
        self.is_late
            || self.link.last_failure().is_some()
            || self.answers == Some(self.questions.len())
    }

    fn found(mut self) -> Inspection {
        self.found.primary = self.link.last_primary();
        let failure = self.link.last_failure();
        let failure = failure.or(self.is_late.then_some(Failure::Timeout));
        self.found.failure = failure.map(|failure| (failure, self.link.reason().map(Into::into)));
        self.found.table = self.table.last();
        if self.options.announced == Announced::Nothing {
            // Version 2 will do, and the question was for the version of the server.
            (self.found.lacking).retain(|(right, ..)| *right != Right::Version);
        }
        self.found
    }

    fn event(&mut self, context: &mut Context, token: Token, readiness: Option<Readiness>) {
        let Self {
            link,
            options,
            questions,
            of_cluster,
            answers,
            table,
            found,
            ..
        } = self;
        let mut on = |_: &mut Context, event: LinkEvent<'_>| {
            if let LinkEvent::Reply(Flight::Get { tag, .. }, message) = event
                && let Some(question) = usize::try_from(tag).ok().and_then(|at| questions.get(at))
            {
                *answers = answers.map(|answers| answers + 1);
                match of_cluster {
                    Some(address) => found.note_of_cluster(question, &message, table, *address),
                    None => found.note(question, &message, table),
                }
            }
            Ok(())
        };
        match readiness {
            Some(readiness) => link.ready(context, token, readiness, options, &mut on),
            None => drop(link.expired(context, token, options, &mut on)),
        }
        if self.link.is_up() && self.answers.is_none() {
            self.ask(context);
        }
    }

    fn ask(&mut self, context: &mut Context) {
        self.answers = Some(0);
        for (tag, question) in (0..).zip(&self.questions) {
            let words: Vec<&[u8]> = question.words.iter().map(Vec::as_slice).collect();
            let flight = Flight::Get {
                tag,
                again: None,
                end: None,
                repeat: None,
            };
            let ask = |wire: &mut Vec<u8>| command(wire, &words);
            self.link.push_behind(context, flight, self.options, ask);
        }
        let mut on = |_: &mut Context, _: LinkEvent<'_>| Ok(());
        self.link.flush(context, self.options, &mut on);
    }
}

impl Driver for Inspector<'_> {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.event(context, token, Some(readiness));
    }

    fn expired(&mut self, context: &mut Context, at: Token) {
        if at == token(LIMIT) {
            self.is_late = true;
        } else {
            self.event(context, at, None);
        }
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

impl Inspection {
    /// As [`note`](Self::note), of a server of a cluster, which has few of the keys.
    fn note_of_cluster(
        &mut self,
        question: &Question,
        message: &Message<'_>,
        table: &mut TrackingTable,
        address: SocketAddr,
    ) {
        if let Message::Value(Value::Error(text)) = message
            && (Redirect::read(text, address).is_some()
                || Failure::of_error(text) == Failure::Unserved)
        {
            // It looks at the rights first.
            return;
        }
        if question.right == Right::Slots
            && let Ok(topology) = Topology::read(message, address)
        {
            self.cluster = Some((topology.primaries().to_vec(), topology.missing()));
        }
        self.note(question, message, table);
    }

    fn note(&mut self, question: &Question, message: &Message<'_>, table: &mut TrackingTable) {
        match question.right {
            Right::TableBound => table.replied(TableQuestion::Bound, message),
            Right::TableUse => table.replied(TableQuestion::Use, message),
            _ => {}
        }
        match message {
            Message::Value(Value::Error(text)) => {
                let lacking = (question.right, question.key.clone(), words(text));
                self.lacking.push(lacking);
            }
            Message::Value(Value::Map(fields)) if question.right == Right::Version => {
                let mut fields = fields.into_iter();
                let (mut name, mut version) = (None, None);
                while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
                    let text = value.text().map(words);
                    match field.text() {
                        Some(b"server") => name = text,
                        Some(b"version") => version = text,
                        Some(b"role") => self.role = text.map(Into::into),
                        _ => {}
                    }
                }
                self.server = name.zip(version).map(|(name, it)| format!("{name} {it}"));
            }
            _ => {}
        }
    }
}

fn token(index: u32) -> Token {
    Token::new(0, 0, index)
}

/// Indices of tokens: the connection, and the end of the time.
const CONNECTION: u32 = 0;
const LIMIT: u32 = 1;
