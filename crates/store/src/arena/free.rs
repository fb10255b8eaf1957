//! Where a region has room: the longest free ranges of units, as a tree over groups of pages.
//!
//! Every node has the free units at its beginning and at its end, and the most that lie together
//! in it. So the first range that is long enough is found, and a change noted, in the logarithm of
//! the region.

/// The pages of a group, which is a leaf of the tree.
pub(super) const GROUP_PAGES: usize = 16;

const WORD_BITS: usize = u64::BITS as usize;

const GROUP_UNITS: usize = GROUP_PAGES * WORD_BITS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Free units at the beginning.
    prefix: u32,
    /// Free units at the end.
    suffix: u32,
    /// The longest range of free units.
    best: u32,
}

impl Node {
    /// The node of one group.
    fn of(words: &[u64]) -> Self {
        let mut node = Self::default();
        for (start, len) in free_ranges(words) {
            if start == 0 {
                node.prefix = len as u32;
            }
            if start + len == GROUP_UNITS {
                node.suffix = len as u32;
            }
            node.best = node.best.max(len as u32);
        }
        node
    }

    /// The node over two that have `units` each.
    fn over(left: Self, right: Self, units: u32) -> Self {
        let prefix = if left.prefix == units {
            units + right.prefix
        } else {
            left.prefix
        };
        let suffix = if right.suffix == units {
            units + left.suffix
        } else {
            right.suffix
        };
        let best = left.best.max(right.best).max(left.suffix + right.prefix);
        Self {
            prefix,
            suffix,
            best,
        }
    }
}

/// The free ranges of a region: of a bitmap whose words are pages, and whose zeros are free.
#[derive(Debug)]
pub(super) struct FreeTree {
    /// Node 1 is the root, those under node `n` are `2 * n` and the next; groups come last.
    nodes: Box<[Node]>,
    /// A power of two; those beyond the region have no room.
    leaves: usize,
}

impl FreeTree {
    /// The tree of a region that is free.
    ///
    /// Shape: `words` are whole groups.
    pub(super) fn new(words: &[u64]) -> Self {
        let groups = words.len() / GROUP_PAGES;
        let leaves = groups.next_power_of_two();
        let mut tree = Self {
            nodes: vec![Node::default(); 2 * leaves].into_boxed_slice(),
            leaves,
        };
        tree.update(words, 0, groups * GROUP_UNITS);
        tree
    }

    /// The first unit of the first range of so many free units.
    pub(super) fn find(&self, words: &[u64], units: usize) -> Option<usize> {
        let wanted = u32::try_from(units).ok()?;
        if self.nodes[1].best < wanted {
            return None;
        }
        let (mut node, mut base) = (1, 0);
        let mut half = self.leaves * GROUP_UNITS / 2;
        while node < self.leaves {
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            if left.best >= wanted {
                node *= 2;
            } else if left.suffix + right.prefix >= wanted {
                return Some(base + half - left.suffix as usize);
            } else {
                node = 2 * node + 1;
                base += half;
            }
            half /= 2;
        }
        let group = &words[(node - self.leaves) * GROUP_PAGES..][..GROUP_PAGES];
        let mut ranges = free_ranges(group);
        let (start, _) = ranges.find(|&(_, len)| len >= units)?;
        Some(base + start)
    }

    /// Notes that units have been taken or freed.
    pub(super) fn update(&mut self, words: &[u64], start: usize, units: usize) {
        let mut first = start / GROUP_UNITS;
        let mut last = (start + units - 1) / GROUP_UNITS;
        for group in first..=last {
            let pages = &words[group * GROUP_PAGES..][..GROUP_PAGES];
            self.nodes[self.leaves + group] = Node::of(pages);
        }
        let mut below = GROUP_UNITS as u32;
        (first, last) = (first + self.leaves, last + self.leaves);
        while first > 1 {
            (first, last) = (first / 2, last / 2);
            for node in first..=last {
                let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
                self.nodes[node] = Node::over(left, right, below);
            }
            below *= 2;
        }
    }
}

/// The ranges of zeros in a bitmap: where each begins, and how long it is.
fn free_ranges(words: &[u64]) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = next(words, at, |word| !word)?;
        let end = next(words, start, |word| word).unwrap_or(words.len() * WORD_BITS);
        at = end;
        Some((start, end - start))
    })
}

/// The first bit at `from` or behind it that is set in what `of` makes of its word.
fn next(words: &[u64], from: usize, of: impl Fn(u64) -> u64) -> Option<usize> {
    let mut index = from / WORD_BITS;
    let mut word = of(*words.get(index)?) & u64::MAX << (from % WORD_BITS);
    while word == 0 {
        index += 1;
        word = of(*words.get(index)?);
    }
    Some(index * WORD_BITS + word.trailing_zeros() as usize)
}
