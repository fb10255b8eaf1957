//! The slots of keys, and the primaries that have them.

use crate::greeting::words;
use dwell_proto::resp::{Items, Message, Value};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Slots of every cluster.
pub(crate) const SLOTS: usize = 16_384;
/// Primaries that a cluster may have.
const PRIMARIES_MAX: usize = 1000;
/// A slot without a primary.
const NONE: u16 = u16::MAX;

/// The slot of a key: that of the part in the first pair of braces, unless that is empty.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let hashed = tag_of(key).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed) % SLOTS as u16
}

fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let begin = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[begin..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[begin..begin + length])
}

/// The primaries of a cluster, and the slots of each, as one of its servers has told them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    primaries: Vec<SocketAddr>,
    /// The place of each slot's primary among them.
    owners: Box<[u16]>,
    /// The first primary without an address that can be connected to, as the server names it.
    unknown: Option<Box<str>>,
}

impl Topology {
    /// Reads the reply to `CLUSTER SLOTS` of the server at `asked`.
    ///
    /// # Errors
    /// The reason why it is of no use.
    pub(crate) fn read(reply: &Message<'_>, asked: SocketAddr) -> Result<Self, Box<str>> {
        let entries = match reply {
            Message::Value(Value::Array(entries)) => *entries,
            Message::Value(Value::Error(text)) => return Err(words(text)),
            _ => return Err("the reply to CLUSTER SLOTS is no list".into()),
        };
        let mut topology = Self {
            primaries: Vec::new(),
            owners: vec![NONE; SLOTS].into(),
            unknown: None,
        };
        let mut places = HashMap::new();
        let mut is_empty = true;
        for entry in entries {
            is_empty = false;
            topology.enter(&entry, asked, &mut places)?;
        }
        if is_empty {
            return Err("the server has no slots, and knows of none".into());
        }
        Ok(topology)
    }

    /// Enters one range of slots.
    fn enter(
        &mut self,
        entry: &Value<'_>,
        asked: SocketAddr,
        places: &mut HashMap<SocketAddr, u16>,
    ) -> Result<(), Box<str>> {
        let malformed = || Box::from("an entry of the reply to CLUSTER SLOTS is malformed");
        let Value::Array(fields) = entry else {
            return Err(malformed());
        };
        let mut fields = fields.into_iter();
        let (first, last) = (slot(fields.next()), slot(fields.next()));
        let (Some(first), Some(last)) = (first, last) else {
            return Err(malformed());
        };
        let Some(Value::Array(primary)) = fields.next() else {
            return Err(malformed());
        };
        if first > last {
            return Err(format!("the slots {first} to {last} are no range").into());
        }
        let owned = &mut self.owners[first..=last];
        if let Some(at) = owned.iter().position(|owner| *owner != NONE) {
            return Err(format!("the slot {} has two primaries", first + at).into());
        }
        match address_of(primary, asked).ok_or_else(malformed)? {
            Ok(address) => {
                let next = self.primaries.len();
                let place = *places.entry(address).or_insert(next as u16);
                if usize::from(place) == next {
                    if next == PRIMARIES_MAX {
                        return Err(format!("there are more than {PRIMARIES_MAX} primaries").into());
                    }
                    self.primaries.push(address);
                }
                owned.fill(place);
            }
            // The others can be used.
            Err(name) => drop(self.unknown.get_or_insert(name)),
        }
        Ok(())
    }

    /// The addresses of the primaries, each once.
    pub(crate) fn primaries(&self) -> &[SocketAddr] {
        &self.primaries
    }

    /// The place among [`primaries`](Self::primaries) of the one that has a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        let owner = *self.owners.get(usize::from(slot))?;
        (owner != NONE).then_some(usize::from(owner))
    }

    /// Slots without a primary that can be connected to.
    pub(crate) fn missing(&self) -> usize {
        self.owners.iter().filter(|owner| **owner == NONE).count()
    }

    /// A primary without an address that can be connected to, as the server names it.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }
}

/// A list of all slots says nothing.
impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topology")
            .field("primaries", &self.primaries)
            .field("missing", &self.missing())
            .field("unknown", &self.unknown)
            .finish_non_exhaustive()
    }
}

fn slot(value: Option<Value<'_>>) -> Option<usize> {
    let Some(Value::Number(number)) = value else {
        return None;
    };
    usize::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

/// The address of a server in an entry, or the name of one without an address; `None` where the
/// entry is malformed.
fn address_of(server: Items<'_>, asked: SocketAddr) -> Option<Result<SocketAddr, Box<str>>> {
    let mut fields = server.into_iter();
    let (host, port) = (fields.next()?, fields.next()?);
    let Value::Number(port) = port else {
        return None;
    };
    let port = u16::try_from(port).ok()?;
    let host = match host {
        Value::Null => &b""[..],
        host => host.text()?,
    };
    let ip = host_ip(host, asked).or_else(|| {
        // A server that is known by a host name has its address beside it.
        let _id = fields.next()?;
        let (Value::Array(facts) | Value::Map(facts)) = fields.next()? else {
            return None;
        };
        let mut facts = facts.into_iter();
        while let (Some(fact), Some(value)) = (facts.next(), facts.next()) {
            if fact.text() == Some(b"ip") {
                return host_ip(value.text()?, asked);
            }
        }
        None
    });
    let address = ip.filter(|_| port > 0).map(|ip| (ip, port).into());
    Some(address.ok_or_else(|| format!("{}:{port}", words(host)).into()))
}

/// The address that a host is. Without one it is the host that was asked.
fn host_ip(host: &[u8], asked: SocketAddr) -> Option<IpAddr> {
    match host {
        b"" => Some(asked.ip()),
        _ => str::from_utf8(host).ok()?.parse().ok(),
    }
}

/// The address in a redirection: a host, a colon and a port.
pub(crate) fn redirected_to(text: &[u8], asked: SocketAddr) -> Option<SocketAddr> {
    let colon = text.iter().rposition(|byte| *byte == b':')?;
    let port: u16 = str::from_utf8(&text[colon + 1..]).ok()?.parse().ok()?;
    let ip = host_ip(&text[..colon], asked)?;
    (port > 0).then(|| (ip, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::resp::{Decoded, Decoder, Limits};
    use proptest::prelude::*;
    use std::fmt::Write;

    const ASKED: &str = "10.0.0.9:7000";

    fn read(wire: &str) -> Result<Topology, Box<str>> {
        let limits = Limits {
            aggregate_bytes_max: 1 << 24,
            ..Limits::default()
        };
        let mut decoder = Decoder::new(limits);
        match decoder.decode(wire.as_bytes()).unwrap() {
            Decoded::Message(_, message) => Topology::read(&message, ASKED.parse().unwrap()),
            Decoded::Incomplete(_) => panic!("{wire}"),
        }
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    fn entry(first: i64, last: i64, host: &str, port: i64) -> String {
        let server = format!("*4\r\n{host}:{port}\r\n{}*0\r\n", bulk("id"));
        format!("*4\r\n:{first}\r\n:{last}\r\n{server}{server}")
    }

    fn reply(entries: &[String]) -> String {
        format!("*{}\r\n{}", entries.len(), entries.concat())
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        for (key, same) in [
            ("{user1000}.following", "user1000"),
            ("foo{bar}{zap}", "bar"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{bar", "foo{bar"),
            ("}foo{bar}", "bar"),
        ] {
            assert_eq!(
                tag_of(key.as_bytes()).unwrap_or(key.as_bytes()),
                same.as_bytes()
            );
            assert_eq!(
                slot_of(key.as_bytes()),
                crc16::State::<crc16::XMODEM>::calculate(same.as_bytes()) % 16_384
            );
        }
    }

    #[test]
    fn a_map_is_read_from_the_reply() {
        let (a, b) = (bulk("10.0.0.1"), bulk("::1"));
        let entries = [
            entry(0, 100, &a, 7000),
            entry(101, 16_000, &b, 7001),
            entry(16_002, 16_383, &a, 7000),
        ];
        let topology = read(&reply(&entries)).unwrap();
        let primaries = topology.primaries().iter().map(ToString::to_string);
        assert_eq!(
            primaries.collect::<Vec<_>>(),
            ["10.0.0.1:7000", "[::1]:7001"]
        );
        let owners = [0, 100, 101, 16_000, 16_001, 16_002, 16_383].map(|it| topology.owner(it));
        let (a, b) = (Some(0), Some(1));
        assert_eq!(owners, [a, a, b, b, None, a, a]);
        assert_eq!(topology.missing(), 1);
        assert_eq!(topology.owner(u16::MAX), None);
    }

    #[test]
    fn a_host_may_be_the_one_that_was_asked_or_unknown() {
        let all = |host: &str, port| read(&reply(&[entry(0, 16_383, host, port)])).unwrap();
        for host in ["_\r\n", "$-1\r\n", "$0\r\n\r\n"] {
            assert_eq!(all(host, 7).primaries(), ["10.0.0.9:7".parse().unwrap()]);
        }
        for (host, port, unknown) in [
            ("?", 7, "?:7"),
            ("a.test", 7, "a.test:7"),
            ("::1", 0, "::1:0"),
        ] {
            let topology = all(&bulk(host), port);
            assert_eq!(topology.unknown(), Some(unknown));
            assert_eq!((topology.primaries().len(), topology.missing()), (0, SLOTS));
        }
        let facts = format!("*2\r\n{}{}", bulk("ip"), bulk("10.0.0.3"));
        let server = format!("*4\r\n{}:7\r\n{}{facts}", bulk("a.test"), bulk("id"));
        let topology = read(&format!("*1\r\n*3\r\n:0\r\n:16383\r\n{server}")).unwrap();
        assert_eq!(topology.primaries(), ["10.0.0.3:7".parse().unwrap()]);
    }

    #[test]
    fn a_reply_without_a_map_is_refused_with_its_reason() {
        let host = bulk("10.0.0.1");
        for (wire, reason) in [
            (
                "-ERR This instance has cluster support disabled\r\n".into(),
                "cluster support",
            ),
            ("+OK\r\n".into(), "no list"),
            ("*0\r\n".into(), "no slots"),
            ("*1\r\n:7\r\n".into(), "malformed"),
            ("*1\r\n*2\r\n:0\r\n:1\r\n".into(), "malformed"),
            ("*1\r\n*3\r\n:0\r\n:1\r\n*0\r\n".into(), "malformed"),
            (reply(&[entry(5, 4, &host, 7)]), "5 to 4 are no range"),
            (reply(&[entry(0, 16_384, &host, 7)]), "malformed"),
            (reply(&[entry(-1, 4, &host, 7)]), "malformed"),
            (reply(&[entry(0, 4, &host, 65_536)]), "malformed"),
            (
                reply(&[entry(0, 4, &host, 7), entry(4, 9, &host, 7)]),
                "slot 4 has two",
            ),
            (
                reply(
                    &(0..1001)
                        .map(|at| entry(at, at, &host, at + 1))
                        .collect::<Vec<_>>(),
                ),
                "more than 1000 primaries",
            ),
        ] {
            let refused = read(&wire).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn a_redirection_names_an_address() {
        let asked = ASKED.parse().unwrap();
        let to = |text: &str| redirected_to(text.as_bytes(), asked).map(|it| it.to_string());
        assert_eq!(to("10.0.0.1:7").as_deref(), Some("10.0.0.1:7"));
        assert_eq!(to("::1:7").as_deref(), Some("[::1]:7"));
        assert_eq!(to(":7").as_deref(), Some("10.0.0.9:7"));
        for text in ["", "7", "?:7", "a.test:7", "10.0.0.1:0", "10.0.0.1:70000"] {
            assert_eq!(to(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_reply_is_taken_for_more_than_it_says(
            ranges in prop::collection::vec((0i64..20_000, 0i64..20_000, 0i64..70_000), 1..20)
        ) {
            let host = bulk("10.0.0.1");
            let entries = ranges.iter().map(|(a, b, port)| entry(*a, *b, &host, *port));
            let entries: Vec<_> = entries.collect();
            if let Ok(topology) = read(&reply(&entries)) {
                for slot in 0..SLOTS as u16 {
                    let slot_number = i64::from(slot);
                    let of_slot = |it: &&(i64, i64, i64)| (it.0..=it.1).contains(&slot_number);
                    let port = ranges.iter().find(of_slot).map(|(.., port)| *port);
                    let owner = topology.owner(slot).map(|at| topology.primaries()[at].port());
                    prop_assert_eq!(port.filter(|port| *port > 0), owner.map(i64::from));
                }
            }
        }

        #[test]
        fn any_reply_is_read_or_refused(numbers in prop::collection::vec(any::<i64>(), 0..40)) {
            let mut wire = format!("*{}\r\n", numbers.len());
            for number in &numbers {
                let pair = format!(":{number}\r\n:{number}\r\n");
                write!(wire, "*3\r\n{pair}*2\r\n{pair}").unwrap();
            }
            prop_assert!(read(&wire).is_err());
        }
    }
}
