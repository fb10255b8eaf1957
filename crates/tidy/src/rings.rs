//! Rings: files that reach one another along imports (strongly connected components).

use std::collections::BTreeSet;

/// The rings of more than one of `count` files, the largest first; within one, in order.
///
/// Two searches in depth, as in Kosaraju's algorithm.
#[must_use]
pub fn rings(count: usize, arrows: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let mut forward = vec![Vec::new(); count];
    let mut backward = vec![Vec::new(); count];
    for (from, to) in arrows {
        forward[*from].push(*to);
        backward[*to].push(*from);
    }
    let mut finished = Vec::with_capacity(count);
    let mut seen = vec![false; count];
    for start in 0..count {
        search(start, &forward, &mut seen, &mut finished);
    }
    seen.fill(false);
    let mut found = Vec::new();
    for start in finished.into_iter().rev() {
        let mut ring = Vec::new();
        search(start, &backward, &mut seen, &mut ring);
        if ring.len() > 1 {
            ring.sort_unstable();
            found.push(ring);
        }
    }
    found.sort_by_key(|ring| (usize::MAX - ring.len(), ring.clone()));
    found
}

/// Adds what is reached from `start` and was not seen yet to `order`, when it is left.
fn search(start: usize, arrows: &[Vec<usize>], seen: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[start], true) {
        return;
    }
    let mut path = vec![(start, 0)];
    while let Some((at, next)) = path.last_mut() {
        if let Some(to) = arrows[*at].get(*next) {
            *next += 1;
            if !std::mem::replace(&mut seen[*to], true) {
                path.push((*to, 0));
            }
        } else {
            order.push(*at);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rings;

    #[test]
    fn a_ring_is_found_and_a_chain_is_none() {
        let arrows = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 4)];
        let found = rings(7, &arrows.into_iter().collect());
        assert_eq!(found, [vec![0, 1, 2], vec![4, 5]]);
    }

    #[test]
    fn files_without_a_ring_have_none() {
        let arrows = [(0, 1), (1, 2), (0, 2)];
        assert!(rings(3, &arrows.into_iter().collect()).is_empty());
    }
}
