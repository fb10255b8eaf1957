//! Requests as fields of HTTP/2, and fields of an answer as the text of HTTP/1.1, which clients
//! read whatever they speak.

use crate::handshake::ACCEPTED;
use dwell_evloop::Random;

/// One field line.
type Field = (Vec<u8>, Vec<u8>);

/// The text of a whole request of HTTP/1.1, taken apart.
pub(super) struct Request {
    fields: Vec<Field>,
    pub(super) body: Vec<u8>,
    pub(super) kind: Kind,
}

/// A kind of request, which decides what its answer has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The answer has no body.
    Head,
    /// The stream is a WebSocket behind the answer (RFC 8441).
    Tunnel,
    Other,
}

impl Request {
    /// Takes the next request out of what was written, if it is whole.
    pub(super) fn take(text: &mut Vec<u8>, scheme: &str) -> Option<Self> {
        let end = text.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&text[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap_or_default();
        let mut words = line.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let kind = match method {
            "HEAD" => Kind::Head,
            _ if head.contains("\r\nUpgrade: websocket") => Kind::Tunnel,
            _ => Kind::Other,
        };
        let method = if kind == Kind::Tunnel {
            "CONNECT"
        } else {
            method
        };
        let mut fields = vec![
            field(":method", method),
            field(":scheme", scheme),
            field(":path", target),
        ];
        let mut length = 0;
        for line in lines {
            let (name, value) = line.split_once(": ")?;
            let name = name.to_ascii_lowercase();
            match &*name {
                "host" => fields.push(field(":authority", value)),
                "upgrade" => fields.push(field(":protocol", value)),
                "connection" | "sec-websocket-key" if kind == Kind::Tunnel => {}
                "content-length" => {
                    length = value.parse().ok()?;
                    fields.push(field(&name, value));
                }
                _ => fields.push(field(&name, value)),
            }
        }
        // Pseudo-header fields come before the others.
        fields.sort_by_key(|(name, _)| name[0] != b':');
        let body = text.get(end + 4..end + 4 + length)?.to_vec();
        text.drain(..end + 4 + length);
        Some(Self { fields, body, kind })
    }
}

fn field(name: &str, value: &str) -> Field {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

/// Writes field blocks. Until the client has taken in the settings of the server, which allow no
/// table, it may use one.
pub(super) struct Writer {
    /// The entries of the table, the newest first; `None` where it is not used.
    table: Option<Vec<Field>>,
    /// The next block says that there is no table any more.
    owes_update: bool,
}

/// The number of the first entry of the table, behind the static ones.
const FIRST: usize = 62;
/// Entries that are certain to have room in a table of 4,096 bytes.
const ENTRIES_MAX: usize = 20;
/// Patterns of RFC 7541 sections 6.1 to 6.3.
const INDEXED: u8 = 0x80;
const INDEXING: u8 = 0x40;
const NEVER_INDEXED: u8 = 0x10;
const TABLE_SIZE: u8 = 0x20;

impl Writer {
    pub(super) fn new(uses_table: bool) -> Self {
        Self {
            table: uses_table.then(Vec::new),
            owes_update: false,
        }
    }

    /// The client has taken in that the server has no table.
    pub(super) fn settle(&mut self) {
        self.owes_update |= self.table.take().is_some();
    }

    /// The block of a request.
    pub(super) fn block(&mut self, request: &Request, random: &mut Random) -> Vec<u8> {
        let mut block = Vec::new();
        if std::mem::take(&mut self.owes_update) {
            block.push(TABLE_SIZE);
        }
        for (name, value) in &request.fields {
            self.field(name, value, random, &mut block);
        }
        block
    }

    fn field(&mut self, name: &[u8], value: &[u8], random: &mut Random, block: &mut Vec<u8>) {
        let mut pattern = [0, NEVER_INDEXED][random.below(2) as usize];
        if let Some(table) = &mut self.table {
            let is_it = |entry: &Field| (&*entry.0, &*entry.1) == (name, value);
            if let Some(place) = table.iter().position(is_it) {
                return block.push(INDEXED | (FIRST + place) as u8);
            }
            if table.len() < ENTRIES_MAX && random.below(2) == 0 {
                table.insert(0, (name.to_vec(), value.to_vec()));
                pattern = INDEXING;
            }
        }
        block.push(pattern);
        for text in [name, value] {
            length(text.len(), block);
            block.extend_from_slice(text);
        }
    }
}

/// A field of a block, as it is.
pub(super) fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0];
    for text in [name, value] {
        length(text.len(), &mut block);
        block.extend_from_slice(text.as_bytes());
    }
    block
}

/// Writes the length of a text (RFC 7541 section 5.1).
fn length(length: usize, block: &mut Vec<u8>) {
    let Some(mut rest) = length.checked_sub(0x7f) else {
        return block.push(length as u8);
    };
    block.push(0x7f);
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The head of an answer as the text of HTTP/1.1.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) text: String,
    /// The length of the body, if it is said.
    pub(super) length: Option<usize>,
}

impl Head {
    /// Reads the fields of an answer.
    ///
    /// # Errors
    /// The rule of RFC 9113 section 8 that they break.
    pub(super) fn read(fields: &[Field]) -> Result<Self, String> {
        let mut fields = fields.iter().map(|(name, value)| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(name), text(value))
        });
        let status = fields.next().filter(|(name, _)| name == ":status");
        let (_, status) = status.ok_or("an answer without a status in front")?;
        let number = status.parse().map_err(|_| format!("status {status:?}"))?;
        let mut head = Self {
            status: number,
            text: format!("HTTP/1.1 {status} \r\n"),
            length: None,
        };
        for (name, value) in fields {
            let is_bound = ["connection", "keep-alive", "transfer-encoding", "upgrade"];
            let is_upper = name.bytes().any(|byte| byte.is_ascii_uppercase());
            if is_upper || name.starts_with(':') || is_bound.contains(&&*name) {
                return Err(format!("field {name:?} in an answer"));
            }
            if name == "content-length" {
                let length = value.parse().map_err(|_| format!("length {value:?}"))?;
                head.length = Some(length);
            }
            head.text.push_str(&title(&name));
            head.text.push_str(": ");
            head.text.push_str(&value);
            head.text.push_str("\r\n");
        }
        Ok(head)
    }
}

impl Head {
    /// The text of HTTP/1.1 that says that a WebSocket begins.
    ///
    /// # Errors
    /// A field that has no place on a stream.
    pub(super) fn switched(&self) -> Result<String, String> {
        if self.length.is_some() || self.text.contains("\r\nSec-Websocket-Accept: ") {
            return Err(format!("a WebSocket begins with {:?}", self.text));
        }
        let (_, fields) = self.text.split_once("\r\n").unwrap_or_default();
        Ok(format!(
            "HTTP/1.1 101 \r\nSec-WebSocket-Accept: {ACCEPTED}\r\n{fields}\r\n"
        ))
    }
}

/// A name of a field as HTTP/1.1 has it.
fn title(name: &str) -> String {
    let mut begins = true;
    let letters = name.chars().map(|letter| {
        let letter = if begins {
            letter.to_ascii_uppercase()
        } else {
            letter
        };
        begins = letter == '-';
        letter
    });
    letters.collect()
}
