//! `dwell-sim`: plays seeds, finds those that fail, and shows one with all its events.
#![forbid(unsafe_code)]

use dwell_sim::{Counts, Outcome, Plan, Planted, plant, play, record, shrink};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: dwell-sim --seeds COUNT [--from SEED] [--with WORD] | \
                     --minutes COUNT [--from SEED] [--with WORD] | --seed SEED | \
                     --planted COUNT [--bug NAME] [--with WORD]";
const MINUTE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let place = words.iter().position(|word| word == name)?;
        words.get(place + 1)?.parse::<u64>().ok()
    };
    let word = |name: &str| {
        let place = words.iter().position(|word| word == name)?;
        words.get(place + 1).map(String::as_str)
    };
    let mut out = io::stdout().lock();
    let with = word("--with");
    let from = number("--from").unwrap_or(0);
    let asked = ["--seeds", "--minutes", "--seed", "--planted"].map(number);
    let done = match asked {
        [Some(count), None, None, None] => {
            seeds(&mut out, Series::new(from, with), Bound::Seeds(count))
        }
        [None, Some(count), None, None] => {
            seeds(&mut out, Series::new(from, with), Bound::Minutes(count))
        }
        [None, None, Some(seed), None] => one(&mut out, seed),
        [None, None, None, Some(count)] => planted(&mut out, count, word("--bug"), with),
        _ => writeln!(out, "{USAGE}").map(|()| false),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The end of a series of seeds.
#[derive(Clone, Copy)]
enum Bound {
    /// After so many seeds.
    Seeds(u64),
    /// After so many minutes.
    Minutes(u64),
}

impl Bound {
    fn is_reached(self, series: &Series<'_>) -> bool {
        match self {
            Self::Seeds(count) => series.count >= count,
            Self::Minutes(count) => series.started.elapsed().as_secs() >= count.saturating_mul(60),
        }
    }
}

/// A series of seeds, as far as it has come.
struct Series<'w> {
    /// Only seeds are played whose options name this.
    with: Option<&'w str>,
    from: u64,
    count: u64,
    started: Instant,
    counts: Counts,
    events: u64,
}

impl<'w> Series<'w> {
    fn new(from: u64, with: Option<&'w str>) -> Self {
        Self {
            with,
            from,
            count: 0,
            started: Instant::now(),
            counts: Counts::default(),
            events: 0,
        }
    }

    /// Plays the next seed; returns false if it fails.
    fn play_next(&mut self, out: &mut impl Write) -> io::Result<bool> {
        let seed = self.from + self.count;
        let plan = Plan::of(seed);
        self.count += 1;
        if !is_meant(&plan, self.with) {
            return Ok(true);
        }
        let outcome = play(&plan);
        self.counts.add(&outcome.counts);
        self.events += outcome.trace.entries;
        if outcome.failure.is_some() {
            explain(out, &plan, &outcome)?;
            return Ok(false);
        }
        // A sample is played twice: what the seed does not decide would be a fault of its own.
        if seed.is_multiple_of(16) && play(&plan).trace != outcome.trace {
            writeln!(
                out,
                "seed {seed} gives other events when it is played again"
            )?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Shows the number of seeds, and their rate.
    fn show(&self, out: &mut impl Write) -> io::Result<()> {
        let Self {
            from,
            count,
            events,
            ..
        } = self;
        let millis = self.started.elapsed().as_millis().max(1);
        let rate = u128::from(*count) * 1000 / millis;
        writeln!(
            out,
            "{count} seeds from {from} in {millis} ms: {rate} a second, {events} events"
        )
    }
}

/// Plays seeds up to the bound, and shows their number each minute; returns false if one fails.
fn seeds(out: &mut impl Write, mut series: Series<'_>, bound: Bound) -> io::Result<bool> {
    let mut next_line = MINUTE;
    while !bound.is_reached(&series) {
        if !series.play_next(out)? {
            series.show(out)?;
            return Ok(false);
        }
        if series.started.elapsed() >= next_line {
            next_line += MINUTE;
            series.show(out)?;
        }
    }
    series.show(out)?;
    let Counts { faults, states } = &series.counts;
    for (title, numbers) in [("faults", faults), ("states", states)] {
        let numbers = numbers
            .iter()
            .map(|(name, count)| format!("{name} {count}"));
        writeln!(out, "{title}: {}", numbers.collect::<Vec<_>>().join(", "))?;
    }
    Ok(true)
}

/// Returns true if the options of a plan name this word, where one is wanted.
fn is_meant(plan: &Plan, with: Option<&str>) -> bool {
    with.is_none_or(|word| format!("{:?}", plan.options).contains(word))
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

/// Plants each bug, or the one that is named, and counts the seeds until it is found.
fn planted(
    out: &mut impl Write,
    count: u64,
    only: Option<&str>,
    with: Option<&str>,
) -> io::Result<bool> {
    let mut all = true;
    let is_asked = |bug: &Planted| only.is_none_or(|name| format!("{bug:?}") == name);
    for bug in Planted::ALL.into_iter().filter(is_asked) {
        plant(Some(bug));
        let plans = (0..count).map(Plan::of);
        let mut plans = plans.filter(|plan| is_meant(plan, with));
        let found = plans.find_map(|plan| Some((plan.options.seed, play(&plan).failure?)));
        match &found {
            Some((seed, failure)) => writeln!(out, "{bug:?}: {} seeds: {failure}", seed + 1)?,
            None => writeln!(out, "{bug:?}: not found in {count} seeds")?,
        }
        all &= found.is_some();
        plant(None);
    }
    Ok(all)
}
