//! A model of the application behind the edge.

use crate::chance::random;
use crate::options::{Fault, Options};
use dwell_evloop::Random;
use dwell_evloop::sim::{Peer, SimStream};
use dwell_testkit::sim::{PeerStream, SimTls};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

/// Facts of the application that outlive its process.
pub(crate) struct Record {
    random: Random,
    faults: Vec<Fault>,
    /// Nothing goes wrong any more.
    pub(crate) is_calm: bool,
    /// Its answers for all may be stored.
    is_stored: bool,
    /// Answers so far.
    serial: u64,
    /// Requests that may not be repeated, by their ids, with the times that they have come.
    posts: BTreeMap<String, u32>,
    /// Answers for one client that were delivered.
    delivered: BTreeSet<u64>,
    /// Faults that have struck.
    pub(crate) struck: Vec<Fault>,
}

impl Record {
    pub(crate) fn new(options: &Options) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            random: random(options.seed, 4),
            faults: options.faults.clone(),
            is_calm: false,
            is_stored: options.fills(),
            serial: 0,
            posts: BTreeMap::new(),
            delivered: BTreeSet::new(),
            struck: Vec::new(),
        }))
    }

    /// A request that came more often than it may.
    pub(crate) fn repeated(&self) -> Option<&str> {
        let mut posts = self.posts.iter();
        posts.find_map(|(id, times)| (*times > 1).then_some(&**id))
    }

    /// Returns true if a request with this id has come.
    pub(crate) fn has_come(&self, id: &str) -> bool {
        self.posts.contains_key(id)
    }

    /// Notes that an answer for one client has come to it; false if it has come to one already.
    pub(crate) fn deliver(&mut self, serial: u64) -> bool {
        self.delivered.insert(serial)
    }

    fn strikes(&mut self, fault: Fault) -> bool {
        let is_on = !self.is_calm && self.faults.contains(&fault);
        let strikes = is_on && self.random.below(5) == 0;
        if strikes {
            self.struck.push(fault);
        }
        strikes
    }

    /// The answer to a request, the time that it takes, and the end of the connection behind it.
    fn answer(&mut self, request: &Request) -> Pending {
        self.serial += 1;
        let serial = self.serial;
        let mut fields = String::new();
        let (mut status, mut body) = if let Some(id) = &request.id {
            if request.is_post {
                *self.posts.entry(id.clone()).or_default() += 1;
            }
            (200, format!("elsewhere@{id}"))
        } else {
            let is_private = self.random.below(4) == 0;
            if is_private {
                fields.push_str("Cache-Control: private\r\n");
            } else if self.is_stored {
                fields.push_str("Cache-Control: max-age=3600\r\n");
            }
            let kind = if is_private { "private" } else { "shared" };
            let (path, client) = (&request.path, &request.client);
            let status = match self.random.below(8) {
                0 => 404,
                1 => 204,
                _ => 200,
            };
            (status, format!("{path}@{client}@{serial}@{kind}"))
        };
        if self.strikes(Fault::AppFails) {
            (status, body) = ([500, 503][self.random.below(2) as usize], String::new());
        }
        if status == 204 {
            body.clear();
        }
        let length = if status == 204 {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let body = if request.is_head { "" } else { &body };
        let text = format!("HTTP/1.1 {status} App\r\n{fields}{length}\r\n{body}");
        let mut bytes = text.into_bytes();
        let mut closes = !self.is_calm && self.random.below(4) == 0;
        let is_cut = self.strikes(Fault::AppCuts);
        if is_cut {
            // Often before it has begun.
            let most = bytes.len() as u64 * self.random.below(2);
            bytes.truncate(self.random.below(most) as usize);
            closes = true;
        } else if self.strikes(Fault::AppNonsense) {
            bytes =
                b"HTTP/1.1 200 App\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd".to_vec();
        }
        let time = if self.strikes(Fault::AppSlow) {
            Duration::from_millis(self.random.below(3_000))
        } else {
            Duration::from_micros(self.random.below(3_000))
        };
        Pending {
            bytes,
            after: time,
            closes,
            is_cut,
        }
    }
}

/// One process of the application.
pub(crate) struct App {
    record: Rc<RefCell<Record>>,
    /// Its certificates, if it is spoken to under TLS.
    tls: Option<SimTls>,
    connections: BTreeMap<u32, Connection>,
}

struct Connection {
    stream: PeerStream,
    input: Vec<u8>,
    output: Vec<u8>,
    pending: Option<(Duration, Pending)>,
    closes: bool,
    is_cut: bool,
}

struct Pending {
    bytes: Vec<u8>,
    after: Duration,
    closes: bool,
    /// It ends in the middle, without a word.
    is_cut: bool,
}

/// The part of a request that the application reads.
struct Request {
    is_post: bool,
    is_head: bool,
    path: String,
    /// The `id` of the query, which requests have that are no polls.
    id: Option<String>,
    /// The field `X-Client`, which only requests have that are not shared.
    client: String,
}

impl App {
    pub(crate) fn new(record: &Rc<RefCell<Record>>, tls: Option<&SimTls>) -> Self {
        Self {
            record: Rc::clone(record),
            tls: tls.cloned(),
            connections: BTreeMap::new(),
        }
    }
}

impl Connection {
    fn new(stream: &SimStream, tls: Option<&SimTls>) -> Self {
        Self {
            stream: PeerStream::of(stream, tls),
            input: Vec::new(),
            output: Vec::new(),
            pending: None,
            closes: false,
            is_cut: false,
        }
    }
}

impl Peer for App {
    fn serve(&mut self, stream: &mut SimStream) {
        let (id, now) = (stream.id(), stream.elapsed());
        let tls = self.tls.as_ref();
        let connection = self.connections.entry(id);
        let connection = connection.or_insert_with(|| Connection::new(stream, tls));
        let is_open = connection.stream.read_all(&mut connection.input);
        if let Some((_, pending)) = connection.pending.take_if(|(at, _)| *at <= now) {
            connection.output.extend_from_slice(&pending.bytes);
            (connection.closes, connection.is_cut) = (pending.closes, pending.is_cut);
        }
        if connection.pending.is_none()
            && !connection.closes
            && let Some(request) = Request::take(&mut connection.input)
        {
            let pending = self.record.borrow_mut().answer(&request);
            stream.serve_after(pending.after);
            connection.pending = Some((now + pending.after, pending));
        }
        if !connection.output.is_empty() {
            let written = connection.stream.write(&connection.output).unwrap_or(0);
            connection.output.drain(..written);
        }
        let is_sent = connection.output.is_empty() && !connection.stream.has_pending();
        if connection.closes && is_sent || !is_open {
            if connection.is_cut {
                connection.stream.cut();
            } else {
                connection.stream.close();
            }
            self.connections.remove(&id);
        }
    }
}

impl Request {
    /// Takes the next request out of what has come, with its body, if it is whole.
    fn take(input: &mut Vec<u8>) -> Option<Self> {
        // Empty lines before a request are none (RFC 9112 section 2.2).
        while input.starts_with(b"\r\n") {
            input.drain(..2);
        }
        let end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&input[..end]).into_owned();
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_owned())
        };
        let length = field("Content-Length").and_then(|length| length.parse().ok());
        let length: usize = length.unwrap_or(0);
        if input.len() < end + length {
            return None;
        }
        input.drain(..end + length);
        let mut words = head.split(' ');
        let method = words.next();
        let (is_post, is_head) = (method == Some("POST"), method == Some("HEAD"));
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Some(Self {
            is_post: is_post && path == "/elsewhere",
            is_head,
            path: path.to_owned(),
            id: query.strip_prefix("id=").map(ToOwned::to_owned),
            client: field("X-Client").unwrap_or_else(|| "-".to_owned()),
        })
    }
}
