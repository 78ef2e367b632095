//! Which flushes a replica has, and of which history: what decides where to copy from, and how much.

/// The last flush up to which a replica has everything. Marks are ordered by generation first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The generation that flushed; 0: nothing was ever flushed.
    pub generation: u32,
    /// Number of the flush.
    pub flush: u64,
}

/// One generation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineageEntry {
    /// The generation.
    pub generation: u32,
    /// Its first flush, which ended its activation.
    pub start: u64,
    /// The last flush of the generation before that it continues.
    pub base: u64,
}

/// The generations that led to a state, oldest first.
///
/// An upstairs that crashes while it activates may leave a replica with a generation that no other replica ever sees, so
/// histories form a tree. Two replicas agree up to the last flush of the newest generation that both have
/// ([`Lineage::common_flush`]); what may differ was changed later on either of them. (The log of Kafka is truncated by the same
/// rule: KIP-101, leader epochs.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage(Vec<LineageEntry>);

/// Generations that are kept; of older ones nothing is known, and all blocks are compared.
pub const LINEAGE_MAX: usize = 64;

impl Lineage {
    /// Checks that generations and flushes increase.
    pub(crate) fn from_entries(entries: Vec<LineageEntry>) -> Option<Lineage> {
        let increase = |pair: &[LineageEntry]| {
            pair[0].generation < pair[1].generation && pair[0].start < pair[1].start
        };
        let is_valid = entries.len() <= LINEAGE_MAX
            && entries.windows(2).all(increase)
            && entries
                .iter()
                .all(|it| it.generation > 0 && it.base < it.start);
        is_valid.then_some(Lineage(entries))
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[LineageEntry] {
        &self.0
    }

    /// This history, continued by a generation.
    #[must_use]
    pub fn continued(&self, entry: LineageEntry) -> Lineage {
        let mut entries = self.0.clone();
        entries.push(entry);
        if entries.len() > LINEAGE_MAX {
            entries.remove(0);
        }
        debug_assert!(
            Lineage::from_entries(entries.clone()).is_some(),
            "a generation continues an older one: {entries:?}"
        );
        Lineage(entries)
    }

    /// The flush up to which two states agree; 0 if they may differ in everything.
    pub fn common_flush(&self, mark: Mark, other: &Lineage, other_mark: Mark) -> u64 {
        for (at, entry) in self.0.iter().enumerate().rev() {
            let place = other.0.iter().position(|it| it == entry);
            if let Some(place) = place {
                let here = self.end(at, mark);
                return here.min(other.end(place, other_mark));
            }
        }
        0
    }

    /// The last flush of an entry.
    fn end(&self, at: usize, mark: Mark) -> u64 {
        self.0.get(at + 1).map_or(mark.flush, |next| next.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(generation: u32, start: u64, base: u64) -> LineageEntry {
        LineageEntry {
            generation,
            start,
            base,
        }
    }

    fn mark(generation: u32, flush: u64) -> Mark {
        Mark { generation, flush }
    }

    #[test]
    fn histories_agree_up_to_where_they_part() {
        let one = Lineage::default().continued(entry(1, 1, 0));
        let short = one.common_flush(mark(1, 9), &one, mark(1, 4));
        assert_eq!(short, 4);
        // Generation 2 activated on one replica only; generation 3 continues flush 7 of generation 1.
        let (two, three) = (
            one.continued(entry(2, 10, 9)),
            one.continued(entry(3, 10, 7)),
        );
        assert_eq!(two.common_flush(mark(2, 12), &three, mark(3, 11)), 7);
        assert_eq!(three.common_flush(mark(3, 11), &two, mark(2, 12)), 7);
        assert_eq!(three.common_flush(mark(3, 11), &one, mark(1, 5)), 5);
        assert_eq!(
            three.common_flush(mark(3, 11), &Lineage::default(), mark(0, 0)),
            0
        );
    }

    #[test]
    fn what_does_not_increase_is_no_history() {
        assert!(Lineage::from_entries(vec![entry(1, 1, 0), entry(2, 2, 1)]).is_some());
        for wrong in [
            vec![entry(2, 2, 1), entry(1, 3, 2)],
            vec![entry(1, 2, 1), entry(2, 2, 1)],
            vec![entry(1, 1, 1)],
            vec![entry(0, 1, 0)],
            vec![entry(1, 1, 0); 65],
        ] {
            assert_eq!(Lineage::from_entries(wrong.clone()), None, "{wrong:?}");
        }
    }
}
