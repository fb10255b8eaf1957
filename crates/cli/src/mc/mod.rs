//! `dwell mc`: a memcached client for the command line.

mod arguments;
mod bench;

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dwell_memcache::{Client, Exptime, PerServer, StoreOptions, StoreOutcome};

pub(crate) use arguments::McArguments;
use arguments::{McCommand, Stored};

/// Result of a command, as its exit status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The item exists, or was stored.
    Hit,
    /// The item does not exist, or was not stored.
    Miss,
}

/// Error that ends a command with status 3.
type Failure = Box<dyn std::error::Error>;

/// Runs `dwell mc`.
///
/// Shape: results go to standard output, errors to standard error. The status is 0 for a hit, 1 for
/// a miss, 3 for an error, and 2 for invalid flags.
pub(crate) fn run(arguments: &McArguments) -> ExitCode {
    let (input, out) = (io::stdin(), io::stdout().lock());
    status(arguments, input, out, io::stderr()).into()
}

fn status(
    arguments: &McArguments,
    input: impl Read,
    mut out: impl Write,
    mut errors: impl Write,
) -> u8 {
    let ended = arguments
        .client()
        .map_err(Failure::from)
        .and_then(|client| obey(&client, &arguments.command, input, &mut out))
        .and_then(|end| out.flush().map(|()| end).map_err(Failure::from));
    match ended {
        Ok(End::Hit) => 0,
        Ok(End::Miss) => STATUS_MISS,
        Err(error) => {
            // A closed standard error is not reported.
            drop(errors.write_all(shown(&*error).as_bytes()));
            STATUS_ERROR
        }
    }
}

/// An error with all its causes, on one line.
fn shown(error: &dyn std::error::Error) -> String {
    let mut text = format!("dwell mc: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.push('\n');
    text
}

fn obey(
    client: &Client,
    command: &McCommand,
    input: impl Read,
    out: &mut impl Write,
) -> Result<End, Failure> {
    let value = |stored| value(stored, input);
    match command {
        McCommand::Get { keys, raw } => get(client, keys, *raw, out),
        McCommand::Gets { key } => match client.gets(key)? {
            None => Ok(End::Miss),
            Some(value) => {
                let unique = value.cas_unique.unwrap_or(0);
                writeln!(out, "flags {}, cas unique {unique}", value.flags)?;
                write_line(out, &value.data)?;
                Ok(End::Hit)
            }
        },
        McCommand::Set(stored) => {
            client.set(&stored.key, value(stored)?, options(stored))?;
            Ok(End::Hit)
        }
        McCommand::Add(stored) => {
            is_hit(client.add(&stored.key, value(stored)?, options(stored))?)
        }
        McCommand::Replace(stored) => {
            is_hit(client.replace(&stored.key, value(stored)?, options(stored))?)
        }
        McCommand::Append { key, value } => is_hit(client.append(key, value)?),
        McCommand::Prepend { key, value } => is_hit(client.prepend(key, value)?),
        McCommand::Cas { unique, stored } => {
            let outcome = client.cas(&stored.key, value(stored)?, *unique, options(stored))?;
            is_hit(outcome == StoreOutcome::Stored)
        }
        McCommand::Delete { key } => is_hit(client.delete(key)?),
        McCommand::Incr { key, delta } => number(client.incr(key, *delta)?, out),
        McCommand::Decr { key, delta } => number(client.decr(key, *delta)?, out),
        McCommand::Touch { key, ttl } => is_hit(client.touch(key, exptime(Some(*ttl)))?),
        McCommand::Meta { key } => match client.meta_debug(key)? {
            None => Ok(End::Miss),
            Some(attributes) => {
                for (name, value) in attributes {
                    writeln!(out, "{name} {value}")?;
                }
                Ok(End::Hit)
            }
        },
        McCommand::Where { keys } => {
            let statuses = client.statuses();
            for key in keys {
                writeln!(out, "{key}\t{}", statuses[client.server_of(key)].server)?;
            }
            Ok(End::Hit)
        }
        McCommand::Bench(bench) => bench::run(client, bench, out).map(|()| End::Hit),
        McCommand::FlushAll { .. }
        | McCommand::Stats { .. }
        | McCommand::Version
        | McCommand::Ping => ask_servers(client, command, out),
    }
}

/// Runs a command that queries every server; any other command is `ping`.
fn ask_servers(client: &Client, command: &McCommand, out: &mut impl Write) -> Result<End, Failure> {
    match command {
        McCommand::FlushAll { delay } => each(
            client.flush_all(delay.unwrap_or_default()),
            out,
            |out, server, ()| writeln!(out, "{server}\tflushed"),
        ),
        McCommand::Stats { argument } => each(
            client.stats(argument.as_deref())?,
            out,
            |out, server, stats| {
                stats
                    .iter()
                    .try_for_each(|(name, value)| writeln!(out, "{server}\t{name}\t{value}"))
            },
        ),
        McCommand::Version => each(client.version(), out, |out, server, version| {
            writeln!(out, "{server}\t{version}")
        }),
        _ => {
            let started = Instant::now();
            let versions = client.version();
            let took = started.elapsed();
            each(versions, out, |out, server, version| {
                writeln!(out, "{server}\t{version}\t{} us", took.as_micros())
            })
        }
    }
}

fn get(client: &Client, keys: &[String], raw: bool, out: &mut impl Write) -> Result<End, Failure> {
    if let [key] = keys {
        let Some(value) = client.get(key)? else {
            return Ok(End::Miss);
        };
        if raw {
            out.write_all(&value.data)?;
        } else {
            write_line(out, &value.data)?;
        }
        return Ok(End::Hit);
    }
    let mut end = End::Hit;
    let mut failed = None;
    for (key, found) in keys.iter().zip(client.get_multi(keys)) {
        match found {
            Ok(Some(value)) => {
                write!(out, "{key}\t")?;
                write_line(out, &value.data)?;
            }
            Ok(None) => end = End::Miss,
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(shown(&*error)
            .trim_start_matches("dwell mc: ")
            .trim_end()
            .into()),
        None => Ok(end),
    }
}

/// Prints the result of each server; fails at the end if one failed.
fn each<T, W: Write>(
    servers: PerServer<T>,
    out: &mut W,
    mut show: impl FnMut(&mut W, &str, T) -> io::Result<()>,
) -> Result<End, Failure> {
    let mut failed = None;
    for (server, said) in servers {
        match said {
            Ok(said) => show(out, &server, said)?,
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(End::Hit),
    }
}

fn write_line(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.write_all(b"\n")
}

fn number(number: Option<u64>, out: &mut impl Write) -> Result<End, Failure> {
    let Some(number) = number else {
        return Ok(End::Miss);
    };
    writeln!(out, "{number}")?;
    Ok(End::Hit)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "stands beside commands that can fail"
)]
fn is_hit(hit: bool) -> Result<End, Failure> {
    Ok(if hit { End::Hit } else { End::Miss })
}

/// The value on the command line, or all of `input` for `-`.
fn value(stored: &Stored, mut input: impl Read) -> io::Result<Vec<u8>> {
    if stored.value != "-" {
        return Ok(stored.value.clone().into_bytes());
    }
    let mut value = Vec::new();
    input.read_to_end(&mut value)?;
    Ok(value)
}

fn options(stored: &Stored) -> StoreOptions {
    StoreOptions {
        flags: stored.flags,
        exptime: exptime(stored.ttl),
    }
}

fn exptime(ttl: Option<Duration>) -> Exptime {
    match ttl {
        Some(Duration::ZERO) | None => Exptime::Never,
        Some(ttl) => Exptime::In(ttl),
    }
}

const STATUS_MISS: u8 = 1;
const STATUS_ERROR: u8 = 3;

#[cfg(test)]
mod tests;
