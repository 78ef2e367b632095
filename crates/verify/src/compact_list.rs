//! Lists of integers in two bytes an element while their elements are close together.

use std::cmp::Ordering;

/// A list that grows at its end. While all elements lie within 2^16 of one another (and not too far below the first one)
/// it takes two bytes an element, afterwards eight.
pub(super) enum CompactList {
    Near { base: i64, offsets: Vec<u16> },
    Far(Vec<i64>),
}

/// A list, or a prefix or suffix of one.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListElements<'a> {
    Near(i64, &'a [u16]),
    Far(&'a [i64]),
}

/// Elements may be this far below the first one: lists are appended to by several clients, out of order.
const BELOW: i64 = 1 << 14;

impl Default for CompactList {
    fn default() -> CompactList {
        CompactList::Near {
            base: 0,
            offsets: Vec::new(),
        }
    }
}

fn offset(base: i64, element: i64) -> Option<u16> {
    u16::try_from(element.checked_sub(base)?).ok()
}

impl CompactList {
    pub(super) fn elements(&self) -> ListElements<'_> {
        match self {
            CompactList::Near { base, offsets } => ListElements::Near(*base, offsets),
            CompactList::Far(all) => ListElements::Far(all),
        }
    }

    /// Adds elements at the end.
    pub(super) fn extend(&mut self, elements: &[i64]) {
        for (at, &element) in elements.iter().enumerate() {
            match self {
                CompactList::Near { base, offsets } => {
                    if offsets.is_empty() {
                        *base = element.saturating_sub(BELOW);
                    }
                    if let Some(offset) = offset(*base, element) {
                        offsets.push(offset);
                        continue;
                    }
                    let mut all: Vec<i64> = self.elements().iter().collect();
                    all.extend_from_slice(&elements[at..]);
                    *self = CompactList::Far(all);
                    return;
                }
                CompactList::Far(all) => return all.extend_from_slice(&elements[at..]),
            }
        }
    }
}

impl<'a> ListElements<'a> {
    pub(super) fn len(self) -> usize {
        match self {
            ListElements::Near(_, offsets) => offsets.len(),
            ListElements::Far(all) => all.len(),
        }
    }

    pub(super) fn get(self, at: usize) -> Option<i64> {
        match self {
            ListElements::Near(base, offsets) => {
                offsets.get(at).map(|&offset| base + i64::from(offset))
            }
            ListElements::Far(all) => all.get(at).copied(),
        }
    }

    pub(super) fn last(self) -> Option<i64> {
        self.get(self.len().checked_sub(1)?)
    }

    pub(super) fn iter(
        self,
    ) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone + 'a {
        (0..self.len()).map(move |at| match self {
            ListElements::Near(base, offsets) => base + i64::from(offsets[at]),
            ListElements::Far(all) => all[at],
        })
    }

    pub(super) fn contains(self, element: i64) -> bool {
        match self {
            ListElements::Near(base, offsets) => {
                offset(base, element).is_some_and(|one| offsets.contains(&one))
            }
            ListElements::Far(all) => all.contains(&element),
        }
    }

    /// The first index of an element.
    pub(super) fn position(self, element: i64) -> Option<usize> {
        self.iter().position(|one| one == element)
    }

    /// The first `count` elements. Panics if there are fewer.
    pub(super) fn first(self, count: usize) -> ListElements<'a> {
        match self {
            ListElements::Near(base, offsets) => ListElements::Near(base, &offsets[..count]),
            ListElements::Far(all) => ListElements::Far(&all[..count]),
        }
    }

    /// The elements after the first `count`. Panics if there are fewer.
    pub(super) fn after(self, count: usize) -> ListElements<'a> {
        match self {
            ListElements::Near(base, offsets) => ListElements::Near(base, &offsets[count..]),
            ListElements::Far(all) => ListElements::Far(&all[count..]),
        }
    }

    /// The list without this suffix, if it has it.
    pub(super) fn strip_suffix(self, end: &[i64]) -> Option<ListElements<'a>> {
        let rest = self.len().checked_sub(end.len())?;
        (self.after(rest) == ListElements::Far(end)).then(|| self.first(rest))
    }

    /// Are these its first elements?
    pub(super) fn starts_with(self, others: ListElements<'_>) -> bool {
        self.len() >= others.len() && self.first(others.len()) == others
    }
}

impl PartialEq for ListElements<'_> {
    fn eq(&self, other: &ListElements<'_>) -> bool {
        match (self, other) {
            (ListElements::Near(base, one), ListElements::Near(other_base, other))
                if base == other_base =>
            {
                one == other
            }
            (ListElements::Far(one), ListElements::Far(other)) => one == other,
            _ => self.iter().eq(other.iter()),
        }
    }
}

impl Eq for ListElements<'_> {}

impl PartialOrd for ListElements<'_> {
    fn partial_cmp(&self, other: &ListElements<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ListElements<'_> {
    fn cmp(&self, other: &ListElements<'_>) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn a_list_has_its_elements_near_or_far() {
        let mut far = 0;
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let width = *rng.pick(&[3, 300, 40_000, 200_000, u64::MAX]);
            let start = *rng.pick(&[0, -5, i64::MIN, i64::MAX - 4, 1 << 40]);
            let mut list = CompactList::default();
            let mut model: Vec<i64> = Vec::new();
            for _ in 0..rng.below(6) {
                let more =
                    (0..rng.below(5)).map(|_| start.wrapping_add(rng.below(width).cast_signed()));
                let more: Vec<i64> = more.collect();
                list.extend(&more);
                model.extend(&more);
            }
            far += u32::from(matches!(list, CompactList::Far(_)));
            let (all, plain) = (list.elements(), ListElements::Far(&model));
            assert_eq!(all, plain, "seed {seed}");
            assert_eq!(
                (all.len(), all.last()),
                (model.len(), model.last().copied())
            );
            assert_eq!(all.cmp(&plain), Ordering::Equal);
            let split = rng.index(model.len() + 1);
            assert_eq!(all.first(split), ListElements::Far(&model[..split]));
            assert_eq!(all.after(split), ListElements::Far(&model[split..]));
            assert_eq!(all.strip_suffix(&model[split..]), Some(all.first(split)));
            assert!(all.starts_with(ListElements::Far(&model[..split])));
            let odd = start.wrapping_add(rng.below(width).cast_signed());
            assert_eq!(all.contains(odd), model.contains(&odd), "seed {seed}");
            assert_eq!(all.position(odd), model.iter().position(|&one| one == odd));
            let other: Vec<i64> = model
                .iter()
                .map(|&one| if one == odd { 7 } else { one })
                .collect();
            assert_eq!(all == ListElements::Far(&other), model == other);
            assert_eq!(all.cmp(&ListElements::Far(&other)), model.cmp(&other));
        }
        assert!((400..1_600).contains(&far), "{far}");
    }
}
