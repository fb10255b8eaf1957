//! Names of options that are similar to a misspelt one.

use super::options::{ROUTE_OPTIONS, single_options};

/// Sections and names of all options.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let once = single_options().map(|spec| (spec.section, spec.name));
    once.chain(ROUTE_OPTIONS.iter().map(|spec| (spec.section, spec.name)))
}

/// The option whose name is most similar to `name`, if one is similar enough.
pub(super) fn nearest_option(name: &str) -> Option<&'static str> {
    nearest(name, names().map(|(_, name)| name))
}

/// The candidate most similar to `name`, if it is similar enough.
///
/// A different order of words is similar: `max_connections` is near `connections_max`.
pub(super) fn nearest<'c>(
    name: &str,
    candidates: impl Iterator<Item = &'c str>,
) -> Option<&'c str> {
    let sorted = |text: &str| {
        let mut words: Vec<&str> = text.split(['_', '-']).collect();
        words.sort_unstable();
        words.join("_")
    };
    let name_sorted = sorted(name);
    let distance = |candidate: &str| {
        let plain = strsim::damerau_levenshtein(name, candidate);
        plain.min(strsim::damerau_levenshtein(
            &name_sorted,
            &sorted(candidate),
        ))
    };
    candidates
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| distance * 3 <= candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
