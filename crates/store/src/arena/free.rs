//! The room of a region: the longest free ranges of units, as a tree over groups of pages.
//!
//! Every node has the free units at its beginning and at its end, and the most that lie together
//! in it. So the next range that is long enough is found, and a change noted, in the logarithm of
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

/// The next range that is looked for: of so many units at least, at one or behind it.
struct Search<W> {
    word: W,
    wanted: usize,
    from: usize,
}

/// The free ranges of a region: of a bitmap whose words are pages, and whose zeros are free.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct FreeTree {
    /// Node 1 is the root, those under node `n` are `2 * n` and the next; groups come last.
    nodes: Box<[Node]>,
    /// A power of two; those beyond the region have no room.
    leaves: usize,
}

impl FreeTree {
    /// The tree of so many pages, which are whole groups, without room.
    pub(super) fn new(pages: usize) -> Self {
        let leaves = (pages / GROUP_PAGES).next_power_of_two();
        Self {
            nodes: vec![Node::default(); 2 * leaves].into_boxed_slice(),
            leaves,
        }
    }

    /// The ranges of at least so many free units: where each begins, and how long it is.
    pub(super) fn ranges_of(
        &self,
        word: impl Fn(usize) -> u64,
        units: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let search = Search {
                word: &word,
                wanted: units,
                from,
            };
            let (start, len) = self.next_range(&search)?;
            from = start + len;
            Some((start, len))
        })
    }

    fn next_range(&self, search: &Search<impl Fn(usize) -> u64>) -> Option<(usize, usize)> {
        let (units, mut open) = (self.leaves * GROUP_UNITS, 0);
        let found = self.next_under(1, (0, units), search, &mut open);
        found.or_else(|| (open >= search.wanted).then(|| (units - open, open)))
    }

    /// The next range that ends under a node, which begins at a unit and has so many.
    ///
    /// Shape: `open` are the free units that end where the node begins, and then where it ends.
    fn next_under(
        &self,
        node: usize,
        (base, units): (usize, usize),
        search: &Search<impl Fn(usize) -> u64>,
        open: &mut usize,
    ) -> Option<(usize, usize)> {
        if base + units <= search.from {
            return None;
        }
        let Node {
            prefix,
            suffix,
            best,
        } = self.nodes[node];
        if prefix as usize == units {
            *open += units;
            return None;
        }
        let before = *open + prefix as usize;
        if (best as usize) < search.wanted && before < search.wanted {
            *open = suffix as usize;
            return None;
        }
        if node < self.leaves {
            let half = units / 2;
            let found = self.next_under(2 * node, (base, half), search, open);
            return found
                .or_else(|| self.next_under(2 * node + 1, (base + half, half), search, open));
        }
        if before >= search.wanted && base >= search.from {
            return Some((base - *open, before));
        }
        *open = suffix as usize;
        let group = group(&search.word, node - self.leaves);
        let mut ranges = free_ranges(&group).map(|(start, len)| (base + start, len));
        ranges.find(|&(start, len)| {
            let is_new = start >= search.from && start + len < base + units;
            is_new && len >= search.wanted
        })
    }

    /// Notes that units have been taken or freed.
    pub(super) fn update(&mut self, word: impl Fn(usize) -> u64, start: usize, units: usize) {
        let mut first = start / GROUP_UNITS;
        let mut last = (start + units - 1) / GROUP_UNITS;
        let mut is_other = false;
        for index in first..=last {
            let node = Node::of(&group(&word, index));
            is_other |= self.set(self.leaves + index, node);
        }
        let mut below = GROUP_UNITS as u32;
        (first, last) = (first + self.leaves, last + self.leaves);
        while first > 1 && is_other {
            (first, last) = (first / 2, last / 2);
            is_other = false;
            for index in first..=last {
                let (left, right) = (self.nodes[2 * index], self.nodes[2 * index + 1]);
                is_other |= self.set(index, Node::over(left, right, below));
            }
            below *= 2;
        }
    }

    /// Writes a node; whether it was another one.
    fn set(&mut self, index: usize, node: Node) -> bool {
        std::mem::replace(&mut self.nodes[index], node) != node
    }
}

/// The words of a group.
fn group(word: impl Fn(usize) -> u64, index: usize) -> [u64; GROUP_PAGES] {
    std::array::from_fn(|page| word(index * GROUP_PAGES + page))
}

/// The ranges of zeros in a bitmap: where each begins, and how long it is.
fn free_ranges(words: &[u64]) -> impl Iterator<Item = (usize, usize)> {
    ranges(words, |word| !word)
}

/// The ranges of ones in what `of` makes of the words of a bitmap.
pub(super) fn ranges(
    words: &[u64],
    of: impl Fn(u64) -> u64,
) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = next(words, at, &of)?;
        let end = next(words, start, |word| !of(word)).unwrap_or(words.len() * WORD_BITS);
        at = end;
        Some((start, end - start))
    })
}

/// The end of the free range that a unit is in.
pub(super) fn end_of_range(words: &[u64], at: usize) -> usize {
    next(words, at, |word| word).unwrap_or(words.len() * WORD_BITS)
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
