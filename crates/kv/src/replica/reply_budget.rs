//! The memory that replies may take which are not made yet.

use seatrial_machine::NodeId;
use std::collections::BTreeMap;

/// Replies shorter than this do not count: their number is bounded.
const LENGTH_MIN: usize = 4 << 10;

/// Bounds the replies to requests that wait at this node: a request of a few bytes may ask for a megabyte, and all requests of
/// one entry or of one round of reads are answered in one turn. The lengths are those of the items when the request arrives.
///
/// One endpoint may have an eighth; a single reply of any length fits when nothing else waits.
#[derive(Debug)]
pub(crate) struct ReplyBudget {
    bytes_max: usize,
    bytes: usize,
    /// By endpoint; none is zero.
    shares: BTreeMap<NodeId, usize>,
}

impl ReplyBudget {
    pub(crate) fn new(bytes_max: usize) -> ReplyBudget {
        ReplyBudget {
            bytes_max,
            bytes: 0,
            shares: BTreeMap::new(),
        }
    }

    /// Takes the room for a reply. False: there is none.
    pub(crate) fn take(&mut self, endpoint: NodeId, length: usize) -> bool {
        if length < LENGTH_MIN {
            return true;
        }
        let share = self.shares.get(&endpoint).copied().unwrap_or(0);
        let fits = (self.bytes == 0 || self.bytes + length <= self.bytes_max)
            && (share == 0 || share + length <= self.bytes_max / 8);
        if fits {
            self.bytes += length;
            self.shares.insert(endpoint, share + length);
        }
        fits
    }

    /// Gives the room back.
    pub(crate) fn give_back(&mut self, endpoint: NodeId, length: usize) {
        if length < LENGTH_MIN {
            return;
        }
        self.bytes = self.bytes.saturating_sub(length);
        if let Some(share) = self.shares.get_mut(&endpoint) {
            *share = share.saturating_sub(length);
            if *share == 0 {
                self.shares.remove(&endpoint);
            }
        }
    }

    pub(crate) fn check_invariants(&self) {
        debug_assert_eq!(self.bytes, self.shares.values().sum::<usize>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_an_eighth_and_all_have_the_whole() {
        let mut budget = ReplyBudget::new(80 << 10);
        let endpoint = NodeId::client;
        assert!(budget.take(endpoint(0), 8 << 10));
        assert!(!budget.take(endpoint(0), 8 << 10), "more than an eighth");
        assert!(budget.take(endpoint(0), 100), "short ones do not count");
        for number in 1..9 {
            assert!(budget.take(endpoint(number), 9 << 10), "{number}");
        }
        assert!(!budget.take(endpoint(9), 9 << 10), "more than the whole");
        budget.give_back(endpoint(1), 9 << 10);
        assert!(budget.take(endpoint(9), 9 << 10));
        budget.check_invariants();
        for number in 2..=9 {
            budget.give_back(endpoint(number), 9 << 10);
        }
        budget.give_back(endpoint(0), 8 << 10);
        assert!(budget.take(endpoint(0), 1 << 20), "one of any length");
        budget.check_invariants();
    }
}
