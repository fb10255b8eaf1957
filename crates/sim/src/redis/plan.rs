//! The faults of a Redis, drawn before the run begins.

use super::cluster_plan::befallen;
use super::node::Old;
use super::{Kept, RedisAct, RedisFault};
use crate::chance::random;
use crate::options::Options;
use crate::step::{Ask, Has, Method, Order, Step};
use dwell_evloop::Random;
use std::time::Duration;

/// Acts of a run, at most.
const ACTS_MAX: u64 = 10;

/// The acts of a seed, each behind so many of the steps before it, and after a pause.
pub(crate) fn redis_steps(options: &Options) -> Vec<(usize, Duration, (usize, RedisAct))> {
    let Some(redis) = &options.redis else {
        return Vec::new();
    };
    let mut random = random(options.seed, 61);
    let mut acts = Vec::new();
    for _ in 0..random.below(ACTS_MAX + 1) {
        let kind = random.below(redis.faults.len() as u64) as usize;
        let fault = redis.faults.get(kind).copied();
        if let Some(act) = fault.and_then(|fault| act_of(fault, &mut random)) {
            let place = random.below(options.steps as u64 + 1) as usize;
            let pause = Duration::from_micros(random.below(50_000));
            let server = befallen(options, acts.len());
            acts.push((place, pause, (server, act)));
        }
    }
    acts
}

fn act_of(fault: RedisFault, random: &mut Random) -> Option<RedisAct> {
    let mut some_time = |most| Duration::from_millis(random.below(most));
    let (time, short) = (some_time(3_000), some_time(500));
    Some(match fault {
        RedisFault::Restart => {
            let kept = [Kept::Nothing, Kept::Values, Kept::Next];
            let kept = kept[random.below(3) as usize];
            // Often it is back at once, and has nothing to load.
            let [down, loading] = [time, short].map(|time| time * random.below(2) as u32);
            RedisAct::Restart(kept, down, loading)
        }
        RedisFault::Pause => RedisAct::Pause(time),
        RedisFault::Kill => RedisAct::Kill,
        RedisFault::CutOff => RedisAct::CutOff,
        RedisFault::Eviction => RedisAct::Evict,
        RedisFault::Swap => RedisAct::Swap,
        RedisFault::Touch => RedisAct::Touch,
        RedisFault::List => RedisAct::List,
        RedisFault::SmallTable => RedisAct::SmallTable(random.below(3) as usize, short),
        RedisFault::ReadOnly => RedisAct::ReadOnly(time),
        RedisFault::Untracked => RedisAct::Untracked(time),
        // These are of the whole run.
        RedisFault::TornReplies
        | RedisFault::LateExpiry
        | RedisFault::NoMemory
        | RedisFault::TooOld
        // These are drawn beside the others.
        | RedisFault::Unreachable
        | RedisFault::Moved => return None,
    })
}

/// The times at which it is cut off in a run of so many steps.
pub(crate) fn redis_cuts(
    options: &Options,
    steps: usize,
) -> Vec<(usize, Duration, (usize, RedisAct))> {
    let most = options.redis.as_ref().map_or(0, |it| it.cuts_max);
    let mut random = random(options.seed, 64);
    let count = random.below(most + 1);
    let cut = |number| {
        let place = random.below(steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let time = Duration::from_millis(50 + random.below(4_450));
        let server = befallen(options, ACTS_MAX as usize + number);
        (place, pause, (server, RedisAct::Unreachable(time)))
    };
    (0..count as usize).map(cut).collect()
}

/// The steps of a run of so many by which it gets other addresses, while keys are read and written.
pub(crate) fn redis_moves(options: &Options, steps: usize) -> Vec<(usize, Duration, Step)> {
    let most = options.redis.as_ref().map_or(0, |it| it.moves_max);
    let mut random = random(options.seed, 70);
    let mut moves = Vec::new();
    for number in 0..random.below(most + 1) as usize {
        let place = random.below(steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let late = Duration::from_millis(random.below(100));
        let old = [Old::Serves(late), Old::Closed, Old::CutOff];
        let old = old[random.below(4).saturating_sub(1) as usize];
        // Often it is looked up while commands are under way.
        let micros = [3_000, 200_000, 2_000_000][random.below(3) as usize];
        let looked_up = match old {
            // Replies are late, and not too late.
            Old::Serves(_) => random.below(micros.min(200_000)),
            Old::Closed | Old::CutOff => random.below(micros),
        };
        let server = befallen(options, 2 * ACTS_MAX as usize + number);
        let act = RedisAct::Move(old, Duration::from_micros(looked_up));
        let mut at = place..;
        let mut add = |pause, step| moves.extend(at.next().map(|place| (place, pause, step)));
        add(pause, Step::Redis(server, act));
        let key = random.below(options.keys as u64) as usize;
        let set = Order::Set {
            length: 10,
            seconds: 0,
        };
        for _ in 0..random.below(4) {
            let client = random.below(options.clients as u64) as usize;
            let mut moment = || Duration::from_micros(random.below(1_000));
            add(moment(), Step::Ask(client, look_at(key)));
            add(moment(), Step::Write(key, set));
        }
    }
    moves
}

fn look_at(key: usize) -> Ask {
    Ask::Poll {
        key,
        method: Method::Get,
        has: Has::Nothing,
        wait: Duration::ZERO,
    }
}
