//! The wheel of one loop.

use crate::{memory, per_operation, report};
use dwell_evloop::{EventLoop, Token};
use dwell_timers::{Tick, Wheel};
use std::hint::black_box;
use std::time::Duration;

/// Numbers in a fixed, random order, so that no entry is where the one before was.
fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut state = 99_u64;
    for place in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(place, (state >> 8) as usize % (place + 1));
    }
    order
}

pub(crate) fn measure() {
    for (count, name, repeats) in [(100_000, "wheel", 12), (1_000_000, "wheel_1m", 6)] {
        let order = shuffled(count);
        let mut best = [f64::MAX; 5];
        memory::start();
        let mut wheel = Wheel::new(Tick::new(0));
        let mut now = Tick::new(0);
        // Room for all, as after the first minute of a server.
        arm_all(&mut wheel, &order, now.plus(50));
        report(name, "bytes", memory::live() as f64 / f64::from(count));
        memory::stop();
        now = now.plus(60);
        sweep(&mut wheel, now, count);
        for _ in 0..repeats {
            let measured = [
                per_operation(count, || arm_all(&mut wheel, &order, now.plus(100))),
                per_operation(count, || arm_all(&mut wheel, &order, now.plus(101))),
                per_operation(count, || arm_all(&mut wheel, &order, now.plus(90))),
                per_operation(count, || {
                    for id in &order {
                        black_box(wheel.cancel(*id));
                    }
                }),
                {
                    now = now.plus(300);
                    sweep(&mut wheel, now, 0);
                    arm_all(&mut wheel, &order, now.plus(50));
                    now = now.plus(60);
                    per_operation(count, || sweep(&mut wheel, now, count))
                },
            ];
            for (best, measured) in best.iter_mut().zip(measured) {
                *best = best.min(measured);
            }
        }
        let figures = [
            "arm_ns",
            "rearm_ns",
            "rearm_earlier_ns",
            "cancel_ns",
            "fire_ns",
        ];
        for (figure, value) in figures.into_iter().zip(best) {
            report(name, figure, value);
        }
    }
}

/// The deadlines of a loop's connections, which have a kind and a generation besides.
pub(crate) fn measure_connections() {
    const COUNT: u32 = 100_000;
    let mut event_loop = EventLoop::<()>::new().expect("a loop");
    let context = event_loop.context();
    let tokens: Vec<_> = shuffled(COUNT)
        .into_iter()
        .map(|index| Token::new(1, 3, index))
        .collect();
    let (mut armed, mut moved, mut disarmed) = (f64::MAX, f64::MAX, f64::MAX);
    let minute = Duration::from_secs(60);
    for _ in 0..12 {
        let mut arm_all = |timeout| {
            per_operation(COUNT, || {
                for token in &tokens {
                    context.arm(*token, black_box(timeout));
                }
            })
        };
        armed = armed.min(arm_all(minute));
        moved = moved.min(arm_all(minute + Duration::from_millis(10)));
        disarmed = disarmed.min(per_operation(COUNT, || {
            for token in &tokens {
                context.disarm(*token);
            }
        }));
    }
    assert_eq!(context.armed(), 0);
    report("evloop", "arm_ns", armed);
    report("evloop", "rearm_ns", moved);
    report("evloop", "cancel_ns", disarmed);
}

fn arm_all(wheel: &mut Wheel, order: &[u32], deadline: Tick) {
    for id in order {
        wheel.arm(*id, deadline);
    }
}

fn sweep(wheel: &mut Wheel, now: Tick, expected: u32) {
    let mut fired = 0;
    while let Some(id) = wheel.pop_due(now) {
        black_box(id);
        fired += 1;
    }
    assert_eq!(fired, expected);
}
