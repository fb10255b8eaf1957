//! Acts of WebSockets, drawn before the run begins.

use super::{Act, BREACHES};
use crate::chance::random;
use crate::options::{Fault, Options};
use crate::pick::Pick;
use dwell_evloop::Random;
use std::time::Duration;

/// The acts of the WebSockets of a seed, each behind so many of the steps before it, and after a
/// pause.
pub(crate) fn socket_steps(options: &Options) -> Vec<(usize, Duration, usize, Act)> {
    let sockets = options.sockets.openings.len();
    let mut random = random(options.seed, 6);
    let mut acts = Vec::new();
    for number in 0..sockets * 8 {
        let socket = random.below(sockets as u64) as usize;
        if let Some(act) = act(&mut random, options) {
            let place = random.below((options.steps + number) as u64 + 1) as usize;
            let pause = Duration::from_micros(random.below(500));
            acts.push((place, pause, socket, act));
        }
    }
    acts
}

fn act(random: &mut Random, options: &Options) -> Option<Act> {
    let key = random.below(options.keys as u64) as usize;
    Some(match random.below(16) {
        0..4 => Act::Subscribe {
            key,
            says: Pick::draw(random),
        },
        4..7 => Act::Unsubscribe { key },
        7..9 => Act::Ping(random.below(126) as usize),
        9 => Act::Pong,
        10 => Act::Close([1000, 1001, 3000, 4999][random.below(4) as usize]),
        11 if !options.sockets.publishes => Act::Publish { key, length: 0 },
        _ => return disturbance(random, options),
    })
}

/// A fault of a kind that the run has.
fn disturbance(random: &mut Random, options: &Options) -> Option<Act> {
    let kinds = options.faults.len() as u64;
    let fault = options.faults.get(random.below(kinds) as usize)?;
    let some_time = Duration::from_millis(random.below(1_500));
    Some(match fault {
        Fault::Reset => Act::Reset,
        Fault::Leave => Act::Leave,
        Fault::HalfClose => Act::HalfClose,
        Fault::Silence => Act::Silence,
        Fault::SlowRead => Act::SlowRead(some_time),
        Fault::SlowWrite => Act::SlowWrite(some_time),
        Fault::Breach => Act::Break(random.below(BREACHES.len() as u64) as usize),
        _ => return None,
    })
}
