//! Lists of integers in two bytes an element, where their elements are near one another.

use std::cmp::Ordering;

/// A list that grows at its end. As long as all elements lie within 2^16 of one another (and not too far below the first) it
/// takes two bytes an element, afterwards eight.
pub(super) enum List {
    Near { base: i64, offsets: Vec<u16> },
    Far(Vec<i64>),
}

/// A list, or what it begins with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Elements<'a> {
    Near(i64, &'a [u16]),
    Far(&'a [i64]),
}

/// Elements may be this far below the first one.
const BELOW: i64 = 1 << 14;

impl Default for List {
    fn default() -> List {
        List::Near {
            base: 0,
            offsets: Vec::new(),
        }
    }
}

fn offset(base: i64, element: i64) -> Option<u16> {
    u16::try_from(element.checked_sub(base)?).ok()
}

impl List {
    pub(super) fn elements(&self) -> Elements<'_> {
        match self {
            List::Near { base, offsets } => Elements::Near(*base, offsets),
            List::Far(all) => Elements::Far(all),
        }
    }

    /// Adds elements at the end.
    pub(super) fn extend(&mut self, elements: &[i64]) {
        for (at, &element) in elements.iter().enumerate() {
            match self {
                List::Near { base, offsets } => {
                    if offsets.is_empty() {
                        *base = element.saturating_sub(BELOW);
                    }
                    if let Some(offset) = offset(*base, element) {
                        offsets.push(offset);
                        continue;
                    }
                    let mut all: Vec<i64> = self.elements().iter().collect();
                    all.extend_from_slice(&elements[at..]);
                    *self = List::Far(all);
                    return;
                }
                List::Far(all) => return all.extend_from_slice(&elements[at..]),
            }
        }
    }
}

impl<'a> Elements<'a> {
    pub(super) fn len(self) -> usize {
        match self {
            Elements::Near(_, offsets) => offsets.len(),
            Elements::Far(all) => all.len(),
        }
    }

    pub(super) fn get(self, at: usize) -> Option<i64> {
        match self {
            Elements::Near(base, offsets) => {
                offsets.get(at).map(|&offset| base + i64::from(offset))
            }
            Elements::Far(all) => all.get(at).copied(),
        }
    }

    pub(super) fn last(self) -> Option<i64> {
        self.get(self.len().checked_sub(1)?)
    }

    pub(super) fn iter(
        self,
    ) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone + 'a {
        (0..self.len()).map(move |at| match self {
            Elements::Near(base, offsets) => base + i64::from(offsets[at]),
            Elements::Far(all) => all[at],
        })
    }

    pub(super) fn contains(self, element: i64) -> bool {
        match self {
            Elements::Near(base, offsets) => {
                offset(base, element).is_some_and(|one| offsets.contains(&one))
            }
            Elements::Far(all) => all.contains(&element),
        }
    }

    /// Where an element stands first.
    pub(super) fn position(self, element: i64) -> Option<usize> {
        self.iter().position(|one| one == element)
    }

    /// The first `count` elements. Panics when there are fewer.
    pub(super) fn first(self, count: usize) -> Elements<'a> {
        match self {
            Elements::Near(base, offsets) => Elements::Near(base, &offsets[..count]),
            Elements::Far(all) => Elements::Far(&all[..count]),
        }
    }

    /// The elements after the first `count`. Panics when there are fewer.
    pub(super) fn after(self, count: usize) -> Elements<'a> {
        match self {
            Elements::Near(base, offsets) => Elements::Near(base, &offsets[count..]),
            Elements::Far(all) => Elements::Far(&all[count..]),
        }
    }

    /// What stands before this end, if it ends so.
    pub(super) fn strip_suffix(self, end: &[i64]) -> Option<Elements<'a>> {
        let rest = self.len().checked_sub(end.len())?;
        (self.after(rest) == Elements::Far(end)).then(|| self.first(rest))
    }

    /// Does it begin with these?
    pub(super) fn starts_with(self, others: Elements<'_>) -> bool {
        self.len() >= others.len() && self.first(others.len()) == others
    }
}

impl PartialEq for Elements<'_> {
    fn eq(&self, other: &Elements<'_>) -> bool {
        match (self, other) {
            (Elements::Near(base, one), Elements::Near(other_base, other))
                if base == other_base =>
            {
                one == other
            }
            (Elements::Far(one), Elements::Far(other)) => one == other,
            _ => self.iter().eq(other.iter()),
        }
    }
}

impl Eq for Elements<'_> {}

impl PartialOrd for Elements<'_> {
    fn partial_cmp(&self, other: &Elements<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Elements<'_> {
    fn cmp(&self, other: &Elements<'_>) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn a_list_is_what_was_put_into_it_near_or_far() {
        let mut far = 0;
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let width = *rng.pick(&[3, 300, 40_000, 200_000, u64::MAX]);
            let start = *rng.pick(&[0, -5, i64::MIN, i64::MAX - 4, 1 << 40]);
            let mut list = List::default();
            let mut model: Vec<i64> = Vec::new();
            for _ in 0..rng.below(6) {
                let more =
                    (0..rng.below(5)).map(|_| start.wrapping_add(rng.below(width).cast_signed()));
                let more: Vec<i64> = more.collect();
                list.extend(&more);
                model.extend(&more);
            }
            far += u32::from(matches!(list, List::Far(_)));
            let (all, plain) = (list.elements(), Elements::Far(&model));
            assert_eq!(all, plain, "seed {seed}");
            assert_eq!(
                (all.len(), all.last()),
                (model.len(), model.last().copied())
            );
            assert_eq!(all.cmp(&plain), Ordering::Equal);
            let split = rng.index(model.len() + 1);
            assert_eq!(all.first(split), Elements::Far(&model[..split]));
            assert_eq!(all.after(split), Elements::Far(&model[split..]));
            assert_eq!(all.strip_suffix(&model[split..]), Some(all.first(split)));
            assert!(all.starts_with(Elements::Far(&model[..split])));
            let odd = start.wrapping_add(rng.below(width).cast_signed());
            assert_eq!(all.contains(odd), model.contains(&odd), "seed {seed}");
            assert_eq!(all.position(odd), model.iter().position(|&one| one == odd));
            let other: Vec<i64> = model
                .iter()
                .map(|&one| if one == odd { 7 } else { one })
                .collect();
            assert_eq!(all == Elements::Far(&other), model == other);
            assert_eq!(all.cmp(&Elements::Far(&other)), model.cmp(&other));
        }
        assert!((400..1_600).contains(&far), "{far}");
    }
}
