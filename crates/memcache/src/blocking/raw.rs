//! Commands that the caller writes, and replies that it reads.

use dwell_proto::memcache::{PeerError, Reply, ResponseDecoder};

use super::connection::{Progress, Take, Taken};
use super::fault::Fault;
use super::parallel::Job;
use super::servers::Collected;
use super::{Client, Error};

/// Makes the request to each server.
pub(super) fn jobs(
    client: &Client,
    command: &[u8],
    end_token: &[u8],
) -> Result<Vec<Job<Raw>>, Error> {
    if command.is_empty() || end_token.is_empty() {
        return Err(Error::EmptyCommand);
    }
    let cluster = client.cluster();
    let job = |server| {
        let take = Raw {
            end_token: end_token.to_vec(),
            limit: cluster.options.value_bytes_max + AROUND_VALUE_BYTES_MAX,
            searched: 0,
            reply: Vec::new(),
        };
        Job::new(server, [command, b"\r\n"].concat(), false, take)
    };
    Ok((0..cluster.servers.len()).map(job).collect())
}

/// Takes everything up to a token.
#[derive(Debug)]
pub(super) struct Raw {
    end_token: Vec<u8>,
    limit: usize,
    /// Bytes at the front in which no token begins.
    searched: usize,
    reply: Vec<u8>,
}

impl Collected<Vec<u8>> for Raw {
    fn into_collected(self) -> Vec<u8> {
        self.reply
    }
}

impl Take for Raw {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        Err(Fault::of_reply(reply, false))
    }

    fn read(
        &mut self,
        decoder: &mut ResponseDecoder,
        input: &[u8],
    ) -> Result<Option<Taken>, Fault> {
        if ERRORS.iter().any(|error| input.starts_with(error)) {
            let line = decoder.decode(input)?;
            return Ok(line.map(|(used, reply)| (used, self.take(&reply))));
        }
        let length = self.end_token.len();
        let rest = input.get(self.searched..).unwrap_or_default();
        let found = rest.windows(length).position(|part| part == self.end_token);
        let reply_bytes = match found {
            Some(offset) => self.searched + offset,
            None => (input.len() + 1).saturating_sub(length),
        };
        if reply_bytes > self.limit {
            return Err(Fault::Malformed(PeerError::ValueTooLarge {
                limit: self.limit,
                length: reply_bytes as u64,
            }));
        }
        if found.is_none() {
            self.searched = reply_bytes;
            return Ok(None);
        }
        self.reply = input[..reply_bytes].to_vec();
        Ok(Some((reply_bytes + length, Ok(Progress::Done))))
    }
}

/// The operation's name, as errors give it.
pub(super) const OPERATION: &str = "raw_command";
/// The beginnings of error lines.
const ERRORS: [&[u8]; 3] = [b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR"];
/// Bytes that a reply may have besides a value: lines around it, and those of other commands.
const AROUND_VALUE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(end_token: &[u8], limit: usize) -> Raw {
        Raw {
            end_token: end_token.to_vec(),
            limit,
            searched: 0,
            reply: Vec::new(),
        }
    }

    #[test]
    fn a_byte_at_a_time_equals_the_whole() {
        for (end_token, reply) in [
            (&b"\r\n"[..], &b"VERSION 1\r\n"[..]),
            (b"END\r\n", b"VALUE k 0 3\r\nEND\r\nENEND\r\n"),
            (b"\n", b"\n"),
        ] {
            let whole = raw(end_token, 100)
                .read(&mut ResponseDecoder::default(), reply)
                .unwrap();
            let (used, done) = whole.unwrap();
            assert!(matches!(done, Ok(Progress::Done)));
            let mut take = raw(end_token, 100);
            let mut decoder = ResponseDecoder::default();
            let first = (1..=reply.len())
                .find_map(|end| take.read(&mut decoder, &reply[..end]).unwrap())
                .unwrap();
            assert_eq!(first.0, used);
            assert_eq!(take.reply, reply[..used - end_token.len()]);
        }
    }

    #[test]
    fn a_reply_is_bounded_with_or_without_its_end() {
        let read = |input: &[u8]| raw(b"\r\n", 4).read(&mut ResponseDecoder::default(), input);
        assert!(matches!(
            read(b"1234\r\n"),
            Ok(Some((6, Ok(Progress::Done))))
        ));
        assert!(matches!(read(b"1234\r"), Ok(None)));
        for input in [&b"12345\r\n"[..], b"123456"] {
            assert!(matches!(read(input), Err(Fault::Malformed(_))), "{input:?}");
        }
    }

    #[test]
    fn an_error_line_is_an_error_whatever_the_token() {
        let mut take = raw(b"END\r\n", 100);
        let mut decoder = ResponseDecoder::default();
        assert!(matches!(take.read(&mut decoder, b"ERROR"), Ok(None)));
        let line = take.read(&mut decoder, b"ERROR\r\n");
        let Ok(Some((7, Err(Fault::ErrorLine { in_step, .. })))) = line else {
            panic!("{line:?}");
        };
        assert!(
            !in_step,
            "data may follow that the server takes for commands"
        );
    }
}
