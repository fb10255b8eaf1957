//! Event streams: any bytes, cut anywhere, give the same events, and an event that was read can be
//! written and read again.
#![no_main]

use dwell_proto::sse::{Event, EventStreamDecoder, SseError};
use libfuzzer_sys::fuzz_target;

const EVENT_BYTES_MAX: usize = 200;

fuzz_target!(|input: &[u8]| {
    let [piece, input @ ..] = input else { return };
    let whole = events(input, input.len().max(1), EVENT_BYTES_MAX);
    assert_eq!(events(input, 1, EVENT_BYTES_MAX), whole);
    assert_eq!(
        events(input, usize::from(*piece).max(1), EVENT_BYTES_MAX),
        whole
    );
    for (event, data, id) in whole.0 {
        let mut out = Vec::new();
        let sent = Event {
            event: Some(&event),
            id: Some(&id),
            ..Event::new(&data)
        };
        sent.encode(&mut out)
            .expect("an event that was read can be written");
        assert_eq!(events(&out, 1, out.len()), (vec![(event, data, id)], false));
    }
});

/// All events as type, data and id, and whether the stream went over the bound.
fn events(
    input: &[u8],
    piece: usize,
    event_bytes_max: usize,
) -> (Vec<(String, String, String)>, bool) {
    let mut decoder = EventStreamDecoder::new(event_bytes_max);
    let mut seen = Vec::new();
    for mut piece in input.chunks(piece) {
        while !piece.is_empty() {
            let step = match decoder.decode(piece) {
                Ok(step) => step,
                Err(SseError::EventTooBig { .. }) => return (seen, true),
                Err(error) => panic!("{error}"),
            };
            assert!(step.consumed > 0);
            if let Some(event) = step.event {
                let (kind, id) = (event.event.to_owned(), event.last_event_id.to_owned());
                seen.push((kind, event.data.to_owned(), id));
            }
            piece = &piece[step.consumed..];
        }
    }
    (seen, false)
}
