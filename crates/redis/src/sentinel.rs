//! The words of Sentinels, and of a server that is the primary or is not.

use crate::greeting::{Refusal, words};
use dwell_proto::resp::{Message, Value, command};
use std::net::{IpAddr, SocketAddr};

/// Appends the command that asks for the address of the primary of this name.
pub(crate) fn ask(name: &str, out: &mut Vec<u8>) {
    command(
        out,
        &[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()],
    );
}

/// The address in the reply.
///
/// # Errors
/// When the Sentinel knows none, or none that can be connected to.
pub(crate) fn address(name: &str, reply: &Message<'_>) -> Result<SocketAddr, Refusal> {
    let items = match reply {
        Message::Value(Value::Array(items)) => *items,
        Message::Value(Value::Null) => {
            let text = format!("the Sentinel knows no primary of the name {name}");
            return Err(Refusal::Refused(text.into()));
        }
        Message::Value(Value::Error(text)) => return Err(Refusal::Refused(words(text))),
        _ => return Err(Refusal::Malformed),
    };
    let mut texts = items.into_iter().map(|item| item.text());
    let (Some(Some(host)), Some(Some(port))) = (texts.next(), texts.next()) else {
        return Err(Refusal::Malformed);
    };
    let port = str::from_utf8(port).ok().and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or(Refusal::Malformed)?;
    let ip = str::from_utf8(host).ok().and_then(|host| host.parse().ok());
    let ip: IpAddr = ip.ok_or_else(|| {
        let host = words(host);
        let text = format!("the Sentinel names the primary by a host name, not an address: {host}");
        Refusal::Refused(text.into())
    })?;
    Ok((ip, port).into())
}

/// Refuses the reply to `HELLO` of a server that is no primary. One without `HELLO` does not say
/// what it is.
///
/// # Errors
/// [`Refusal::NoPrimary`].
pub(crate) fn check_role(reply: &Message<'_>) -> Result<(), Refusal> {
    let fields = match reply {
        Message::Value(Value::Map(fields)) => *fields,
        Message::Value(Value::Error(text)) => return Err(Refusal::Refused(words(text))),
        _ => return Err(Refusal::Malformed),
    };
    let mut fields = fields.into_iter();
    while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
        if field.text() == Some(b"role") {
            let role = value.text().unwrap_or_default();
            if role == b"master" {
                return Ok(());
            }
            let text = format!("the server is not the primary, but a {}", words(role));
            return Err(Refusal::NoPrimary(text.into()));
        }
    }
    Err(Refusal::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::resp::{Decoded, Decoder, Limits};

    fn with_reply<T>(wire: &str, test: impl Fn(&Message<'_>) -> T) -> T {
        let mut decoder = Decoder::new(Limits::default());
        match decoder.decode(wire.as_bytes()).unwrap() {
            Decoded::Message(_, message) => test(&message),
            Decoded::Incomplete(_) => panic!("{wire}"),
        }
    }

    #[test]
    fn an_address_is_taken_from_the_reply() {
        let address = |wire| with_reply(wire, |reply| address("mine", reply));
        let found = address("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n");
        assert_eq!(found, Ok(([127, 0, 0, 1], 6379).into()));
        let found = address("*2\r\n$3\r\n::1\r\n$1\r\n7\r\n").unwrap();
        assert_eq!(found.to_string(), "[::1]:7");
        for (wire, reason) in [
            ("*-1\r\n", "the Sentinel knows no primary of the name mine"),
            ("_\r\n", "the Sentinel knows no primary of the name mine"),
            ("-NOAUTH Authentication required.\r\n", "NOAUTH"),
            ("*2\r\n$2\r\nab\r\n$1\r\n7\r\n", "not an address: ab"),
        ] {
            let Err(Refusal::Refused(text)) = address(wire) else {
                panic!("{wire}");
            };
            assert!(text.contains(reason), "{text}");
        }
        for wire in ["+OK\r\n", "*0\r\n", "*2\r\n$2\r\nab\r\n$6\r\n999999\r\n"] {
            assert_eq!(address(wire), Err(Refusal::Malformed), "{wire}");
        }
    }

    #[test]
    fn only_a_primary_will_do() {
        let role = |wire| with_reply(wire, check_role);
        assert_eq!(role("%2\r\n+proto\r\n:3\r\n+role\r\n+master\r\n"), Ok(()));
        let replica = role("%1\r\n$4\r\nrole\r\n$7\r\nreplica\r\n");
        let text = "the server is not the primary, but a replica".into();
        assert_eq!(replica, Err(Refusal::NoPrimary(text)));
        assert_eq!(role("%1\r\n+proto\r\n:3\r\n"), Err(Refusal::Malformed));
        let unknown = role("-ERR unknown command 'HELLO'\r\n");
        assert!(matches!(unknown, Err(Refusal::Refused(_))), "{unknown:?}");
    }
}
