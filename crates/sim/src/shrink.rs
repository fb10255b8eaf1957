//! The shortest plan that still fails.

use crate::failure::Failure;
use crate::phases::play;
use crate::plan::Plan;

/// Leaves steps out of a plan for as long as it fails by the same promise; returns what is left,
/// and its failure.
pub fn shrink(plan: &Plan, failure: &Failure) -> (Plan, Failure) {
    let (mut plan, mut failure) = (plan.clone(), failure.clone());
    let mut share = plan.steps.len().div_ceil(2);
    while share > 0 {
        let mut begin = 0;
        let mut is_shorter = false;
        while begin < plan.steps.len() {
            let mut fewer = plan.clone();
            let end = (begin + share).min(fewer.steps.len());
            fewer.steps.drain(begin..end);
            match play(&fewer)
                .failure
                .filter(|it| it.oracle == failure.oracle)
            {
                Some(found) => (plan, failure, is_shorter) = (fewer, found, true),
                None => begin = end,
            }
        }
        if !is_shorter || share > 1 {
            share /= 2;
        }
    }
    (plan, failure)
}
