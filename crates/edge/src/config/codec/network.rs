//! Codecs of network addresses.

use super::{Codec, Count, Fault, Value, quoted, text, wrong_type};
use crate::config::{MemcachedServer, PeerAddress, RedisUrl, UpstreamUrl};
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use toml::de::DeValue;

/// An address to listen on.
pub(in crate::config) struct SocketAddress;

impl Codec<SocketAddr> for SocketAddress {
    fn read(&self, value: &Value<'_>) -> Result<SocketAddr, Fault> {
        let wanted = "an address and a port";
        if let DeValue::Integer(integer) = value.get_ref()
            && let Ok(port) = integer.as_str().parse::<u16>()
        {
            let help = format!("write \"127.0.0.1:{port}\"");
            return Err(wrong_type(value, wanted).help(help));
        }
        let text = text(value, wanted)?;
        // Only this name is accepted, as it has one meaning.
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric.parse().map_err(|_| {
            let port = text
                .rsplit(':')
                .next()
                .filter(|port| port.parse::<u16>().is_ok());
            let help = match port {
                Some(port) if !text.contains('.') => {
                    format!("write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every network")
                }
                _ => "write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\""
                    .to_owned(),
            };
            Fault::new(value, format!("not an address and a port: `{text}`")).help(help)
        })
    }

    fn show(&self, value: &SocketAddr) -> String {
        quoted(&value.to_string())
    }

    fn describe(&self) -> String {
        "IP address and port".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": ":[0-9]+$" })
    }
}

/// A memcached server: `host:port`, `host:port=weight` or a table of `address` and `weight`.
pub(in crate::config) struct MemcachedPeer;

impl Codec<MemcachedServer> for MemcachedPeer {
    fn read(&self, value: &Value<'_>) -> Result<MemcachedServer, Fault> {
        if let DeValue::Table(_) = value.get_ref() {
            return server_table(value);
        }
        let text = text(value, "a server")?;
        let (address, weight) = match text.split_once('=') {
            Some((address, weight)) => (address, weight.parse().ok()),
            None => (text, Some(1)),
        };
        let weight = weight.filter(|weight| WEIGHTS.contains(weight));
        let weight = weight.ok_or_else(|| weight_fault(value))?;
        Ok(MemcachedServer {
            address: peer(value, address)?,
            weight,
        })
    }

    fn show(&self, value: &MemcachedServer) -> String {
        match value.weight {
            1 => quoted(&value.address.to_string()),
            weight => format!("{{ address = \"{}\", weight = {weight} }}", value.address),
        }
    }

    fn describe(&self) -> String {
        "`\"host:port\"` or `{ address = \"host:port\", weight = 2 }`".to_owned()
    }

    fn schema(&self) -> Json {
        let weight = json!({
            "type": "integer", "minimum": WEIGHTS.start(), "maximum": WEIGHTS.end(),
        });
        let table = json!({
            "type": "object",
            "required": ["address"],
            "additionalProperties": false,
            "properties": { "address": { "type": "string" }, "weight": weight },
        });
        json!({ "anyOf": [{ "type": "string" }, table] })
    }
}

fn server_table(value: &Value<'_>) -> Result<MemcachedServer, Fault> {
    let table = value.get_ref().as_table().into_iter().flatten();
    let (mut address, mut weight) = (None, 1);
    for (name, value) in table {
        match name.get_ref().as_ref() {
            "address" => address = Some(peer(value, text(value, "an address")?)?),
            "weight" => {
                weight =
                    Count(u64::from(*WEIGHTS.start()), u64::from(*WEIGHTS.end())).read(value)?;
            }
            other => {
                let fault = Fault {
                    span: name.span(),
                    message: format!("unknown option of a server: `{other}`"),
                    help: Some("a server has `address` and `weight`".to_owned()),
                };
                return Err(fault);
            }
        }
    }
    let address = address.ok_or_else(|| {
        Fault::new(value, "the server has no address").help("add address = \"host:port\"")
    })?;
    Ok(MemcachedServer { address, weight })
}

fn peer(value: &Value<'_>, text: &str) -> Result<PeerAddress, Fault> {
    let help = "write a host and a port, such as \"127.0.0.1:11211\" or \"cache-1:11211\"";
    text.parse()
        .map_err(|error| Fault::new(value, error).help(help))
}

fn weight_fault(value: &Value<'_>) -> Fault {
    let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
    Fault::new(
        value,
        format!("the weight is not a number from {least} to {most}"),
    )
    .help("write \"host:port=2\"")
}

/// The URL of an application server.
pub(in crate::config) struct Url;

impl Codec<UpstreamUrl> for Url {
    fn read(&self, value: &Value<'_>) -> Result<UpstreamUrl, Fault> {
        let text = text(value, "a url")?;
        let help = match text.parse::<PeerAddress>() {
            Ok(address) if !text.contains("//") => format!("write \"http://{address}\""),
            _ => "write a url such as \"http://127.0.0.1:3000\"".to_owned(),
        };
        text.parse()
            .map_err(|error| Fault::new(value, error).help(help))
    }

    fn show(&self, value: &UpstreamUrl) -> String {
        quoted(&value.to_string())
    }

    fn describe(&self) -> String {
        "`\"http://host:port\"`, `\"https://host:port\"`".to_owned()
    }
}

/// The URL of a Redis server.
pub(in crate::config) struct RedisServer;

impl Codec<RedisUrl> for RedisServer {
    fn read(&self, value: &Value<'_>) -> Result<RedisUrl, Fault> {
        let text = text(value, "a url")?;
        let help = "write a url such as \"redis://127.0.0.1:6379\" or \"unix:///run/redis.sock\"";
        text.parse()
            .map_err(|error: String| Fault::new(value, error).help(help))
    }

    fn show(&self, value: &RedisUrl) -> String {
        quoted(&value.to_string())
    }

    fn describe(&self) -> String {
        "`\"redis://host:port\"`, `\"rediss://host:port\"`, `\"unix:///path\"`".to_owned()
    }
}

/// The URL of a server of a cluster.
pub(in crate::config) struct ClusterServer;

impl Codec<RedisUrl> for ClusterServer {
    fn read(&self, value: &Value<'_>) -> Result<RedisUrl, Fault> {
        let help = "write a url such as \"redis://10.0.0.1:6379\"";
        RedisUrl::of_cluster(text(value, "a url")?)
            .map_err(|error| Fault::new(value, error).help(help))
    }

    fn show(&self, value: &RedisUrl) -> String {
        quoted(&value.to_string())
    }

    fn describe(&self) -> String {
        Sentinel.describe()
    }
}

/// The URL of a Sentinel.
pub(in crate::config) struct Sentinel;

impl Codec<RedisUrl> for Sentinel {
    fn read(&self, value: &Value<'_>) -> Result<RedisUrl, Fault> {
        let help = "write a url such as \"redis://10.0.0.1:26379\"";
        RedisUrl::of_sentinel(text(value, "a url")?)
            .map_err(|error| Fault::new(value, error).help(help))
    }

    fn show(&self, value: &RedisUrl) -> String {
        quoted(&value.to_string())
    }

    fn describe(&self) -> String {
        "`\"redis://host:port\"`, `\"rediss://host:port\"`".to_owned()
    }
}

/// The beginning of keys.
pub(in crate::config) struct KeyPrefix;

impl Codec<String> for KeyPrefix {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let text = text(value, "the beginning of keys")?;
        if text.is_empty() {
            return Err(Fault::new(value, "every key begins with nothing")
                .help("leave the list empty to mean all keys"));
        }
        if text.len() > KEY_BYTES_MAX || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(Fault::new(value, format!("no key begins with `{text}`"))
                .help("write at most 250 bytes without spaces and control characters"));
        }
        Ok(text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "text such as `\"/poll/\"`".to_owned()
    }
}

const KEY_BYTES_MAX: usize = 250;
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1000;
