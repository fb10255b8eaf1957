//! The faults of memcached servers, drawn before the run begins.

use super::{MemcachedAct, MemcachedFault};
use crate::chance::random;
use crate::options::Options;
use dwell_evloop::Random;
use std::time::Duration;

/// Acts of a run, at most.
const ACTS_MAX: u64 = 8;

/// The acts of a seed, each behind so many of the steps before it, and after a pause.
pub(crate) fn memcached_steps(options: &Options) -> Vec<(usize, Duration, usize, MemcachedAct)> {
    let Some(memcached) = &options.memcached else {
        return Vec::new();
    };
    let mut random = random(options.seed, 12);
    let mut acts = Vec::new();
    for _ in 0..random.below(ACTS_MAX + 1) {
        let kind = random.below(memcached.faults.len() as u64) as usize;
        let act = memcached.faults.get(kind).copied();
        if let Some(act) = act.and_then(|fault| act_of(fault, &mut random)) {
            let place = random.below(options.steps as u64 + 1) as usize;
            // With nothing written behind it, a value that passes for the one before stays.
            let is_restart = matches!(act, MemcachedAct::Restart { .. });
            let place = if is_restart && random.below(2) == 0 {
                usize::MAX
            } else {
                place
            };
            let pause = Duration::from_micros(random.below(50_000));
            let server = random.below(memcached.servers as u64) as usize;
            acts.push((place, pause, server, act));
        }
    }
    acts
}

fn act_of(fault: MemcachedFault, random: &mut Random) -> Option<MemcachedAct> {
    let some_time = Duration::from_millis(random.below(3_000));
    Some(match fault {
        MemcachedFault::Restart => MemcachedAct::Restart {
            refills: random.below(2) == 0,
        },
        MemcachedFault::Pause => MemcachedAct::Pause(some_time),
        MemcachedFault::Down => MemcachedAct::Down(some_time),
        MemcachedFault::Reset => MemcachedAct::Reset,
        MemcachedFault::Eviction => MemcachedAct::Evict,
        // These have a chance of their own.
        MemcachedFault::CutOff => return None,
        // These are of the whole run.
        MemcachedFault::TornReplies | MemcachedFault::LostLines | MemcachedFault::NoMemory => {
            return None;
        }
    })
}

/// The cuts of a seed, each behind so many of all other steps, and after a pause.
pub(crate) fn cut_steps(
    options: &Options,
    steps: usize,
) -> Vec<(usize, Duration, usize, MemcachedAct)> {
    let Some(memcached) = &options.memcached else {
        return Vec::new();
    };
    let mut random = random(options.seed, 17);
    let step = |_| {
        let place = random.below(steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let server = random.below(memcached.servers as u64) as usize;
        // One that is over at once leaves dead connections alone.
        let time = Duration::from_millis(random.below(4) * random.below(1_500));
        (place, pause, server, MemcachedAct::CutOff(time))
    };
    (0..memcached.cuts_max).map(step).collect()
}
