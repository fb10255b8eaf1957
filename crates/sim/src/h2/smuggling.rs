//! Requests that would be others in HTTP/1.1, if they went on as they came.

use super::fields::literal;
use super::frames::{self, WHOLE, flag, kind};

/// The id of all that must not come to the application.
pub(crate) const ID: &str = "smuggled";
/// A whole request of HTTP/1.1.
const INNER: &str =
    "abc\r\n\r\nPOST /elsewhere?id=smuggled HTTP/1.1\r\nHost: edge\r\nContent-Length: 0\r\n\r\n";
const PATH: &str = "/elsewhere?id=smuggled";
/// The target of requests that have another one within their bodies, which alone is looked for.
const OUTER: Field = (":path", "/outer?id=outer");

/// One of them: the block of its fields, and the data and trailer fields behind that.
pub(super) struct Form {
    block: Vec<u8>,
    data: Vec<&'static str>,
    trailers: Option<(Vec<u8>, u8)>,
}

impl Form {
    /// One whose fields are all there is.
    fn whole(block: Vec<u8>) -> Self {
        Self {
            block,
            data: Vec::new(),
            trailers: None,
        }
    }

    pub(super) fn write(&self, stream: u32, out: &mut Vec<u8>) {
        let is_whole = self.data.is_empty();
        let flags = if is_whole { WHOLE } else { flag::END_HEADERS };
        frames::write(kind::HEADERS, flags, stream, &self.block, out);
        for (place, data) in self.data.iter().enumerate() {
            let ends = place + 1 == self.data.len() && self.trailers.is_none();
            let flags = if ends { flag::END_STREAM } else { 0 };
            frames::write(kind::DATA, flags, stream, data.as_bytes(), out);
        }
        if let Some((trailers, flags)) = &self.trailers {
            frames::write(kind::HEADERS, *flags, stream, trailers, out);
        }
    }
}

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let fields = FIELDS.iter().map(|field| Form::whole(request(&[*field])));
    let pairs = PAIRS.iter().map(|pair| Form::whole(request(pair)));
    let heads = HEADS.iter().map(|head| Form::whole(block(head)));
    let bodies = BODIES.iter().map(|(length, data)| Form {
        block: block(&[METHOD, SCHEME, OUTER, AUTHORITY, ("content-length", length)]),
        data: data.to_vec(),
        trailers: None,
    });
    let trailers = TRAILERS.iter().map(|(name, value, flags)| Form {
        block: request(&[("content-length", "3")]),
        data: vec!["abc"],
        trailers: Some((literal(name, value), *flags)),
    });
    let tunnels = TUNNELS.iter().map(|(head, data)| Form {
        block: block(head),
        data: data.to_vec(),
        trailers: None,
    });
    let all = fields.chain(pairs).chain(heads).chain(bodies);
    all.chain(trailers).chain(tunnels).collect()
}

/// WebSockets that begin before the server has said that it takes them: one that ends at once, and
/// one that is closed by its first frame.
pub(super) fn early_tunnels() -> [Form; 2] {
    let head = [CONNECT, WEBSOCKET, SCHEME, KEY, AUTHORITY, VERSION];
    // A close frame with the code 1000, and a mask of zeros.
    let close = "\u{8}\u{2}\0\0\0\0\u{3}\u{68}";
    [Vec::new(), vec![close]].map(|data| Form {
        block: block(&head),
        data,
        trailers: None,
    })
}

/// The block of these fields.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let fields = fields.iter().map(|(name, value)| literal(name, value));
    fields.collect::<Vec<_>>().concat()
}

/// The block of a request with these fields.
fn request(more: &[(&str, &str)]) -> Vec<u8> {
    let own = [METHOD, SCHEME, TARGET, AUTHORITY];
    [block(&own), block(more)].concat()
}

type Field = (&'static str, &'static str);

const METHOD: Field = (":method", "POST");
const SCHEME: Field = (":scheme", "http");
const TARGET: Field = (":path", PATH);
const AUTHORITY: Field = (":authority", "edge");

const CONNECT: Field = (":method", "CONNECT");
const WEBSOCKET: Field = (":protocol", "websocket");
const KEY: Field = (":path", "/poll/k0");
const VERSION: Field = ("sec-websocket-version", "13");
const NO_LENGTH: Field = ("content-length", "0");
const UPGRADE: Field = ("upgrade", "websocket");
const OTHER: Field = (":protocol", "connect-udp");

/// WebSockets that are none, with the data behind them.
const TUNNELS: &[(&[Field], &[&str])] = &[
    (&[CONNECT, AUTHORITY], &[]),
    (&[CONNECT, AUTHORITY], &[INNER]),
    (&[CONNECT, OTHER, SCHEME, TARGET, AUTHORITY], &[INNER]),
    (&[CONNECT, OTHER, SCHEME, TARGET, AUTHORITY], &[]),
    (
        &[CONNECT, (":protocol", ""), SCHEME, TARGET, AUTHORITY],
        &[],
    ),
    (
        &[
            CONNECT,
            (":protocol", "websocket\r\nx: y"),
            SCHEME,
            TARGET,
            AUTHORITY,
        ],
        &[],
    ),
    (
        &[CONNECT, WEBSOCKET, WEBSOCKET, SCHEME, TARGET, AUTHORITY],
        &[],
    ),
    (&[CONNECT, WEBSOCKET, TARGET, AUTHORITY], &[]),
    (&[CONNECT, WEBSOCKET, SCHEME, AUTHORITY], &[]),
    (&[CONNECT, WEBSOCKET, SCHEME, TARGET], &[]),
    (
        &[CONNECT, WEBSOCKET, SCHEME, TARGET, AUTHORITY, NO_LENGTH],
        &[],
    ),
    (
        &[
            CONNECT, WEBSOCKET, SCHEME, KEY, AUTHORITY, NO_LENGTH, VERSION,
        ],
        &[INNER],
    ),
    (
        &[CONNECT, WEBSOCKET, SCHEME, KEY, AUTHORITY, UPGRADE, VERSION],
        &[INNER],
    ),
    (&[CONNECT, WEBSOCKET, SCHEME, KEY, AUTHORITY], &[INNER]),
    (
        &[(":method", "GET"), WEBSOCKET, SCHEME, TARGET, AUTHORITY],
        &[],
    ),
];

/// Fields that no request has.
const FIELDS: &[Field] = &[
    // Names.
    ("X-Name", "v"),
    ("x\r\ny", "v"),
    ("x\ny", "v"),
    ("x\ry", "v"),
    ("x\0", "v"),
    ("x:y", "v"),
    ("x y", "v"),
    ("x ", "v"),
    (" x", "v"),
    ("x\ty", "v"),
    ("x\u{e9}", "v"),
    ("", "v"),
    // Values.
    ("x", "v\r\nhost: other"),
    ("x", "v\nhost: other"),
    ("x", "v\r"),
    ("x", "v\0"),
    ("x", " v"),
    ("x", "v "),
    ("x", "\tv"),
    ("x", INNER),
    // What belongs to a connection of HTTP/1.1.
    ("transfer-encoding", "chunked"),
    ("connection", "close"),
    ("connection", "content-length"),
    ("proxy-connection", "close"),
    ("keep-alive", "timeout=5"),
    ("upgrade", "websocket"),
    ("te", "gzip"),
    ("te", "trailers, gzip"),
    // Pseudo-header fields.
    METHOD,
    SCHEME,
    TARGET,
    AUTHORITY,
    (":status", "200"),
    (":protocol", "websocket"),
    (":unknown", "v"),
    ("host", "other"),
    // Lengths of no body.
    ("content-length", "5"),
    ("content-length", "+0"),
    ("content-length", "-1"),
    ("content-length", "0x0"),
    ("content-length", "0, 0"),
    ("content-length", ""),
];

/// Fields that stand alone.
const PAIRS: &[[Field; 2]] = &[
    [("content-length", "0"), ("content-length", "0")],
    [("content-length", "0"), ("content-length", "5")],
    [("host", "edge"), ("host", "edge")],
    [("x", "v"), AUTHORITY],
];

/// Heads without what a request has, or with something else in its place.
const HEADS: &[&[Field]] = &[
    &[SCHEME, TARGET, AUTHORITY],
    &[METHOD, TARGET, AUTHORITY],
    &[METHOD, SCHEME, AUTHORITY],
    &[METHOD, SCHEME, TARGET],
    &[("x", "v"), METHOD, SCHEME, TARGET, AUTHORITY],
    &[METHOD, SCHEME, (":path", ""), AUTHORITY],
    &[METHOD, SCHEME, (":path", "*"), AUTHORITY],
    &[METHOD, SCHEME, (":path", "elsewhere"), AUTHORITY],
    &[METHOD, SCHEME, (":path", "http://b/elsewhere"), AUTHORITY],
    &[METHOD, SCHEME, (":path", "/elsewhere HTTP/1.1"), AUTHORITY],
    &[METHOD, SCHEME, (":path", INNER), AUTHORITY],
    &[(":method", INNER), SCHEME, TARGET, AUTHORITY],
    &[(":method", "POST /x"), SCHEME, TARGET, AUTHORITY],
    &[(":method", ""), SCHEME, TARGET, AUTHORITY],
    &[METHOD, SCHEME, TARGET, (":authority", "edge\r\nx: y")],
    &[METHOD, SCHEME, TARGET, (":authority", "edge other")],
    &[METHOD, SCHEME, TARGET, (":authority", "user@edge")],
    &[METHOD, SCHEME, TARGET, (":authority", "")],
];

/// Lengths, and bodies that have another one.
const BODIES: &[(&str, &[&str])] = &[
    ("5", &["abc"]),
    ("5", &["abc", ""]),
    ("3", &["abcd"]),
    ("3", &["abc", "d"]),
    ("3", &[INNER]),
    ("0", &[INNER]),
];

/// Trailer fields of a body that has its length.
const TRAILERS: &[(&str, &str, u8)] = &[
    (":path", "/elsewhere", WHOLE),
    (":status", "200", WHOLE),
    ("transfer-encoding", "chunked", WHOLE),
    ("x", "v\r\nhost: other", WHOLE),
    ("X-Name", "v", WHOLE),
    // The end is to come.
    ("x", "v", flag::END_HEADERS),
];
