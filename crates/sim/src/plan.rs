//! The steps of a run, drawn before it begins, so that a failure can be had with fewer of them.

mod retake;

use crate::chance::random;
use crate::h2::h2_steps;
use crate::memcached::{cut_steps, memcached_steps};
use crate::options::{Fault, Options};
use crate::outward::outward_steps;
use crate::pick::{Pick, SEVERAL_MAX};
use crate::redis::{cluster_steps, redis_cuts, redis_moves, redis_steps};
use crate::reload::Reload;
use crate::socket::socket_steps;
use crate::step::{Ask, FIXED, Has, Method, Order, Several, Step};
use crate::tls::intrusion_steps;
use crate::upgrade::upgrade_steps;
use dwell_evloop::Random;
use std::time::Duration;

/// The steps of a run, with the time after which each comes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options of the run.
    pub options: Options,
    /// Steps in their order.
    pub steps: Vec<(Duration, Step)>,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let options = Options::of(seed);
        let mut random = random(seed, 2);
        let step = |_| (pause(&mut random), step(&mut random, &options));
        let mut steps: Vec<_> = (0..options.steps).map(step).collect();
        for (place, pause, socket, act) in socket_steps(&options) {
            let place = place.min(steps.len());
            steps.insert(place, (pause, Step::Socket(socket, act)));
        }
        retake::insert(&options, &mut steps);
        if let Some(tls) = &options.tls {
            for (place, pause, (fault, intrusion, count)) in intrusion_steps(seed, tls, steps.len())
            {
                let place = place.min(steps.len());
                steps.insert(place, (pause, Step::Intrude(fault, intrusion, count)));
            }
        }
        for (place, pause, browser, act) in h2_steps(seed, options.h2.as_ref(), steps.len()) {
            let place = place.min(steps.len());
            steps.insert(place, (pause, Step::Browser(browser, act)));
        }
        for (place, pause, server, act) in memcached_steps(&options) {
            let place = place.min(steps.len());
            steps.insert(place, (pause, Step::Memcached(server, act)));
        }
        for (place, pause, (server, act)) in redis_steps(&options) {
            let place = place.min(steps.len());
            steps.insert(place, (pause, Step::Redis(server, act)));
        }
        for (place, pause, wrong) in outward_steps(&options) {
            let place = place.min(steps.len());
            steps.insert(place, (pause, Step::Certificate(wrong)));
        }
        for (place, pause, upgrade) in upgrade_steps(&options) {
            let place = place.min(steps.len());
            steps.insert(place, (pause, Step::Upgrade(upgrade)));
        }
        for (place, pause, server, act) in cut_steps(&options, steps.len()) {
            steps.insert(place, (pause, Step::Memcached(server, act)));
        }
        for (place, pause, (server, act)) in redis_cuts(&options, steps.len()) {
            steps.insert(place, (pause, Step::Redis(server, act)));
        }
        for (place, pause, step) in cluster_steps(&options, steps.len()) {
            steps.insert(place, (pause, step));
        }
        for (place, pause, step) in redis_moves(&options, steps.len()) {
            steps.insert(place, (pause, step));
        }
        Self { options, steps }
    }
}

/// The time between two steps: often none, sometimes long.
fn pause(random: &mut Random) -> Duration {
    match random.below(10) {
        0..3 => Duration::ZERO,
        3..6 => Duration::from_micros(random.below(2_000)),
        6..9 => Duration::from_millis(random.below(100)),
        _ => Duration::from_millis(random.below(3_000)),
    }
}

fn step(random: &mut Random, options: &Options) -> Step {
    let client = random.below(options.clients as u64) as usize;
    let key = random.below(options.keys as u64) as usize;
    match random.below(20) {
        0..9 => Step::Ask(client, ask(random, key, options.keys)),
        9..15 => Step::Write(key, order(random)),
        15 if random.below(4) == 0 => Step::Flush,
        _ => disturbance(random, options, client).unwrap_or(Step::Write(key, order(random))),
    }
}

fn ask(random: &mut Random, key: usize, keys: usize) -> Ask {
    if random.below(12) == 0 {
        let is_post = random.below(2) == 0;
        return Ask::Elsewhere { is_post };
    }
    if random.below(16) == 0 {
        return Ask::Fixed(random.below(FIXED.len() as u64) as usize);
    }
    let method = match random.below(8) {
        0 => Method::Head,
        1 => Method::Post,
        _ => Method::Get,
    };
    let has = match random.below(10) {
        0..2 => Has::Nothing,
        2..6 => Has::Since,
        6..9 => Has::Tag,
        _ => Has::Garbage,
    };
    let wait = match random.below(4) {
        0 => Duration::ZERO,
        1 => Duration::from_millis(10 + random.below(400)),
        _ => Duration::from_secs(1 + random.below(9)),
    };
    if keys > 1 && random.below(3) == 0 {
        let several = Several {
            first: key,
            count: 2 + random.below(keys as u64 - 1) as usize,
            is_long: random.below(2) == 0,
            picks: [(); SEVERAL_MAX].map(|()| Pick::draw(random)),
        };
        return Ask::Several {
            several,
            method,
            has,
            wait,
        };
    }
    Ask::Poll {
        key,
        method,
        has,
        wait,
    }
}

fn order(random: &mut Random) -> Order {
    let length = match random.below(8) {
        0 => 0,
        1 => 3_000 + random.below(30_000),
        _ => random.below(100),
    };
    match random.below(8) {
        0 => Order::Delete,
        1 => Order::Get,
        2 => Order::Set {
            length: length as usize,
            seconds: 1 + random.below(4) as u32,
        },
        _ => Order::Set {
            length: length as usize,
            seconds: 0,
        },
    }
}

/// A fault of a kind that the run has.
fn disturbance(random: &mut Random, options: &Options, client: usize) -> Option<Step> {
    let fault = options
        .faults
        .get(random.below(options.faults.len() as u64) as usize)?;
    // Those who follow streams come behind the others.
    let anyone = random.below((options.clients + options.streams.len()) as u64) as usize;
    let some_time = Duration::from_millis(random.below(1_500));
    Some(match fault {
        Fault::Reset => Step::Reset(anyone),
        Fault::Leave => Step::Leave(anyone),
        Fault::HalfClose => Step::HalfClose(client),
        Fault::SlowRead => Step::SlowRead(anyone, some_time),
        Fault::SlowWrite => Step::SlowWrite(client, some_time),
        Fault::Silence => Step::Silence(anyone),
        Fault::NoDescriptors => Step::NoDescriptors(some_time),
        Fault::Stall => Step::Stall(
            random.below(options.loops as u64) as usize,
            Duration::from_millis(random.below(400)),
        ),
        Fault::Wall => Step::Wall(random.below(20_000).cast_signed() - 10_000),
        Fault::WriterReset => {
            Step::WriterReset(random.below(options.writers.len() as u64) as usize)
        }
        Fault::Reload => Step::Reload(Reload::draw(random)),
        Fault::AppDown if options.has_app => Step::AppDown(some_time),
        // These are of the whole run, of the application, or of WebSockets.
        Fault::Split
        | Fault::Refuse
        | Fault::Delay
        | Fault::Pipeline
        | Fault::AppSlow
        | Fault::AppCuts
        | Fault::AppNonsense
        | Fault::AppFails
        | Fault::AppDown
        | Fault::Breach => return None,
    })
}
