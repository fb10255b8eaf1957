//! The faults of a cluster, drawn before the run begins.

use super::cluster::{ClusterAct, ClusterFault, ClusterOptions, Lost};
use crate::chance::random;
use crate::options::Options;
use crate::step::{Ask, Has, Method, Order, Step};
use dwell_evloop::Random;
use std::time::Duration;

/// Acts of a run, at most.
const ACTS_MAX: u64 = 6;

/// The steps of a seed that befall slots, each behind so many of the steps before it, and after a
/// pause.
pub(crate) fn cluster_steps(options: &Options, steps: usize) -> Vec<(usize, Duration, Step)> {
    let redis = options.redis.as_ref();
    let Some(cluster) = redis.and_then(|redis| redis.cluster.as_ref()) else {
        return Vec::new();
    };
    let mut random = random(options.seed, 67);
    let mut acts = Vec::new();
    for _ in 0..random.below(ACTS_MAX + 1) {
        let kind = random.below(cluster.faults.len() as u64) as usize;
        let Some(fault) = cluster.faults.get(kind).copied() else {
            continue;
        };
        let key = random.below(options.keys as u64) as usize;
        let client = random.below(options.clients as u64) as usize;
        let place = random.below(steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let act = act_of(fault, cluster, &mut random);
        let mut at = place..;
        let mut add = |pause, step| acts.extend(at.next().map(|place| (place, pause, step)));
        if let ClusterAct::Move(ClusterFault::HalfMove, _, [keys, _]) = act {
            // Somebody waits for the key while it changes on the server that it has come to.
            add(pause, Step::Write(key, WRITE));
            add(pause, Step::Ask(client, wait_for(key)));
            add(pause, Step::Slot(key, act));
            add(keys + pause, Step::Write(key, WRITE));
        } else {
            add(pause, Step::Slot(key, act));
        }
    }
    acts
}

fn act_of(fault: ClusterFault, cluster: &ClusterOptions, random: &mut Random) -> ClusterAct {
    let server = random.below(cluster.servers as u64) as usize;
    let is_whole = random.below(2) == 0;
    let lost = [Lost::Nothing, Lost::Some][random.below(2) as usize];
    let mut time = |most| Duration::from_millis(random.below(most));
    match fault {
        ClusterFault::Move => ClusterAct::Move(fault, server, [time(50), time(50)]),
        ClusterFault::HalfMove => ClusterAct::Move(fault, server, [time(2_000), time(6_000)]),
        ClusterFault::Force => ClusterAct::Force(server),
        ClusterFault::Failover => ClusterAct::Failover(lost, [time(2_000), time(2_000)]),
        ClusterFault::Takeover => ClusterAct::Takeover(lost, is_whole),
        ClusterFault::Unserved => ClusterAct::Unserved(time(2_000)),
    }
}

const WRITE: Order = Order::Set {
    length: 10,
    seconds: 0,
};

fn wait_for(key: usize) -> Ask {
    Ask::Poll {
        key,
        method: Method::Get,
        has: Has::Since,
        wait: Duration::from_secs(9),
    }
}

/// The server of a cluster that an act of a Redis befalls, drawn apart from the act.
pub(crate) fn befallen(options: &Options, act: usize) -> usize {
    let redis = options.redis.as_ref();
    let cluster = redis.and_then(|redis| redis.cluster.as_ref());
    let mut random = random(options.seed, 68 + ((act as u64) << 3));
    cluster.map_or(0, |it| random.below(it.servers as u64) as usize)
}
