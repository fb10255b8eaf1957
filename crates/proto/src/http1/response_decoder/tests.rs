mod endings;
mod framing;
mod naive;
mod pieces;
mod refused;

use super::*;

/// What became of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Every head's status, and how many fields it has.
    heads: Vec<(u16, usize)>,
    body: Vec<u8>,
    /// Where it ended; nowhere if more was needed.
    end: Option<usize>,
    keep_alive: bool,
    is_switching: bool,
}

fn limits() -> ResponseLimits {
    let head = HeadLimits {
        head_bytes_max: 200,
        ..HeadLimits::default()
    };
    ResponseLimits {
        head,
        body_bytes_max: BODY_BYTES_MAX,
        interim_count_max: 3,
    }
}

/// Feeds the input in pieces that end at the given places, then the end of the connection.
fn read(method: &str, input: &[u8], cuts: &[usize]) -> Result<Seen, ResponseError> {
    let mut decoder = ResponseDecoder::new(method);
    let mut seen = Seen::default();
    let mut position = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        loop {
            let mut storage = FieldStorage::new();
            let step = decoder.decode(&input[position..end], &mut storage, &limits())?;
            assert!(step.consumed <= end - position);
            position += step.consumed;
            match step.part {
                ResponsePart::Nothing => {}
                ResponsePart::Interim(head) | ResponsePart::Head(head) => {
                    let (status, count) = (head.status, head.fields.len());
                    assert!(head.bytes.ends_with(b"\r\n\r\n"));
                    assert_eq!(&input[position - head.bytes.len()..position], head.bytes);
                    seen.heads.push((status, count));
                }
                ResponsePart::Body(piece) => {
                    assert!(!piece.is_empty());
                    seen.body.extend_from_slice(piece);
                }
            }
            let (consumed, done) = (step.consumed, step.done);
            assert_eq!(done, decoder.is_done());
            if done {
                seen.end = Some(position);
                seen.keep_alive = decoder.keep_alive();
                seen.is_switching = decoder.is_switching();
                return Ok(seen);
            }
            if consumed == 0 {
                break;
            }
        }
    }
    assert_eq!(decoder.has_begun(), !input.is_empty());
    if decoder.eof().is_ok() {
        assert!(decoder.is_done() && !decoder.keep_alive());
        seen.end = Some(position);
    }
    Ok(seen)
}

fn whole(method: &str, input: &str) -> Result<Seen, ResponseError> {
    read(method, input.as_bytes(), &[])
}

/// The same as that of the plain reading of chunks.
const BODY_BYTES_MAX: u64 = 1 << 20;
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
