//! Steps by which a WebSocket gives a key up and takes it up again, while the key changes.

use crate::chance::random;
use crate::options::Options;
use crate::pick::Pick;
use crate::socket::Act;
use crate::step::{Order, Step};
use dwell_evloop::Random;
use std::time::Duration;

/// Puts such steps among those of a plan.
///
/// Shape: a key gets a value, loses it or gets another, and a WebSocket takes it up again with an
/// older cursor, the last one, or none. Frames may be on their way at each of these.
pub(super) fn insert(options: &Options, steps: &mut Vec<(Duration, Step)>) {
    let sockets = options.sockets.openings.len();
    let mut random = random(options.seed, 9);
    for number in 0..sockets * 4 {
        let place = random.below(steps.len() as u64 + 1) as usize;
        let steps_of_one = retake(&mut random, options, number % sockets);
        steps.splice(place..place, steps_of_one);
    }
}

fn retake(random: &mut Random, options: &Options, socket: usize) -> Vec<(Duration, Step)> {
    let key = random.below(options.keys as u64) as usize;
    let length = random.below(60) as usize;
    let set = Step::Write(key, Order::Set { length, seconds: 0 });
    let last = match random.below(4) {
        0 => set,
        _ => Step::Write(key, Order::Delete),
    };
    let act = |act| Step::Socket(socket, act);
    let says = match random.below(6) {
        0 => Pick::Last,
        1 => Pick::Older,
        _ => Pick::Nothing,
    };
    let mut after = vec![act(Act::Unsubscribe { key }), last];
    if random.below(2) == 0 {
        after.reverse();
    }
    let mut steps = vec![
        act(Act::Subscribe {
            key,
            says: Pick::Last,
        }),
        set,
    ];
    steps.append(&mut after);
    steps.push(act(Act::Subscribe { key, says }));
    let steps = steps.into_iter();
    steps.map(|step| (moment(random), step)).collect()
}

/// The time before a step: about that of a frame on its way.
fn moment(random: &mut Random) -> Duration {
    match random.below(3) {
        0 => Duration::ZERO,
        1 => Duration::from_micros(random.below(300)),
        _ => Duration::from_millis(random.below(100)),
    }
}
