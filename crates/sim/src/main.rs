//! `dwell-sim`: plays seeds, finds those that fail, and shows one with all its events.
#![forbid(unsafe_code)]

use dwell_sim::{Counts, Outcome, Plan, Planted, plant, play, record, shrink};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: dwell-sim --seeds COUNT [--from SEED] | --seed SEED | --planted COUNT";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let place = words.iter().position(|word| word == name)?;
        words.get(place + 1)?.parse::<u64>().ok()
    };
    let mut out = io::stdout().lock();
    let done = match (number("--seeds"), number("--seed"), number("--planted")) {
        (Some(count), None, None) => seeds(&mut out, number("--from").unwrap_or(0), count),
        (None, Some(seed), None) => one(&mut out, seed),
        (None, None, Some(count)) => planted(&mut out, count),
        _ => writeln!(out, "{USAGE}").map(|()| false),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Plays so many seeds; returns false if one fails.
fn seeds(out: &mut impl Write, from: u64, count: u64) -> io::Result<bool> {
    let (started, mut counts, mut events) = (Instant::now(), Counts::default(), 0);
    for seed in from..from + count {
        let plan = Plan::of(seed);
        let outcome = play(&plan);
        counts.add(&outcome.counts);
        events += outcome.trace.entries;
        if outcome.failure.is_some() {
            explain(out, &plan, &outcome)?;
            return Ok(false);
        }
        // A sample is played twice: what the seed does not decide would be a fault of its own.
        if seed % 16 == 0 && play(&plan).trace != outcome.trace {
            writeln!(
                out,
                "seed {seed} gives other events when it is played again"
            )?;
            return Ok(false);
        }
    }
    let millis = started.elapsed().as_millis().max(1);
    let rate = u128::from(count) * 1000 / millis;
    writeln!(
        out,
        "{count} seeds from {from} in {millis} ms: {rate} a second, {events} events"
    )?;
    for (title, numbers) in [("faults", &counts.faults), ("states", &counts.states)] {
        let numbers = numbers
            .iter()
            .map(|(name, count)| format!("{name} {count}"));
        writeln!(out, "{title}: {}", numbers.collect::<Vec<_>>().join(", "))?;
    }
    Ok(true)
}

/// Plays one seed and shows its events.
fn one(out: &mut impl Write, seed: u64) -> io::Result<bool> {
    let plan = Plan::of(seed);
    writeln!(out, "{:#?}", plan.options)?;
    let outcome = record(&plan);
    for line in &outcome.lines {
        writeln!(out, "{line}")?;
    }
    if outcome.failure.is_some() {
        explain(out, &plan, &outcome)?;
    }
    Ok(outcome.failure.is_none())
}

/// Tells what has failed, and the fewest steps with which it still does.
fn explain(out: &mut impl Write, plan: &Plan, outcome: &Outcome) -> io::Result<()> {
    let Some(failure) = &outcome.failure else {
        return Ok(());
    };
    let seed = plan.options.seed;
    writeln!(out, "seed {seed} fails: {failure}")?;
    let (plan, failure) = shrink(plan, failure);
    writeln!(out, "{:?}", plan.options)?;
    writeln!(out, "with {} steps: {failure}", plan.steps.len())?;
    for (pause, step) in &plan.steps {
        writeln!(out, "  after {pause:?}: {step:?}")?;
    }
    Ok(())
}

/// Plants each bug, and counts the seeds until it is found.
fn planted(out: &mut impl Write, count: u64) -> io::Result<bool> {
    let mut all = true;
    for bug in Planted::ALL {
        plant(Some(bug));
        let found = (0..count).find_map(|seed| Some((seed, play(&Plan::of(seed)).failure?)));
        match &found {
            Some((seed, failure)) => writeln!(out, "{bug:?}: {} seeds: {failure}", seed + 1)?,
            None => writeln!(out, "{bug:?}: not found in {count} seeds")?,
        }
        all &= found.is_some();
        plant(None);
    }
    Ok(all)
}
