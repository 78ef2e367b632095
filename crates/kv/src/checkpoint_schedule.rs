//! When checkpoints are due, who may write one, and which digests the replicas reported: a part of the replicated state.

use seatrial_machine::{FieldReader, MessageError, NodeId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A writer that was not heard for this long has crashed: its turn goes to the next.
const WRITER_PATIENCE: Duration = Duration::from_mins(1);
/// Interval at which a writer renews its turn.
pub(crate) const RENEWAL: Duration = Duration::from_secs(15);
/// Indices whose digests are kept.
const INDICES_MAX: usize = 4;
/// Bound of the nodes in each list.
const NODES_MAX: usize = 256;

/// Intervals between checkpoints after which a whole one is due again: bounds the old values that a base keeps alive, and the
/// journal since it.
const INTERVALS_MAX: u64 = 4;

/// A digest of a checkpoint file.
pub(crate) type Digest = [u8; 16];

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueCheckpoint {
    /// A file of the whole state.
    Whole,
    /// A file of the changes since the whole one at this index.
    Changes(u64),
}

/// The rule of checkpoints, changed by applied entries only, so it is equal on all replicas at every index.
///
/// A checkpoint is due at each entry with which the bytes of all entries since the last one reach a bound. It is one of the
/// changes since the last whole one, as long as the entries since then have less than half of the bytes of the state: a file of
/// changes is never much longer than that, and two files of one state at one index could not be compared. Turns to write are
/// commands in the log: fewer than half of the voters hold one at a time, so a majority is always free of that work. A node that
/// has written reports its digest in the log, and every replica compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointSchedule {
    /// Bytes of entries between checkpoints.
    bytes_max: u64,
    /// Bytes of entries since the last due index.
    bytes: u64,
    /// The last index at which a whole one was due; 0: none.
    whole: u64,
    /// Bytes of entries since then.
    whole_bytes: u64,
    /// Nodes that write, with the time of their last word.
    writers: BTreeMap<NodeId, Time>,
    /// Nodes that wait for a turn, in order.
    waiting: VecDeque<NodeId>,
    /// Digests by index and node.
    digests: BTreeMap<u64, BTreeMap<NodeId, Digest>>,
}

impl CheckpointSchedule {
    pub(crate) fn new(bytes_max: u64) -> CheckpointSchedule {
        CheckpointSchedule {
            bytes_max,
            bytes: 0,
            whole: 0,
            whole_bytes: 0,
            writers: BTreeMap::new(),
            waiting: VecDeque::new(),
            digests: BTreeMap::new(),
        }
    }

    /// Counts the entry with this index and length, after which the state has `size` bytes. Returns what is due then.
    pub(crate) fn count(&mut self, index: u64, length: u64, size: u64) -> Option<DueCheckpoint> {
        self.bytes += length;
        self.whole_bytes += length;
        if self.bytes_max == 0 || self.bytes < self.bytes_max {
            return None;
        }
        self.bytes = 0;
        let most = (size / 2).min(self.bytes_max.saturating_mul(INTERVALS_MAX));
        if self.whole > 0 && self.whole_bytes < most {
            return Some(DueCheckpoint::Changes(self.whole));
        }
        (self.whole, self.whole_bytes) = (index, 0);
        Some(DueCheckpoint::Whole)
    }

    /// The last index at which a whole checkpoint was due: files of changes are those since then.
    pub(crate) fn whole(&self) -> u64 {
        self.whole
    }

    /// A node asks for a turn, or renews the one that it has. `voters`: their number at this entry.
    pub(crate) fn ask(&mut self, node: NodeId, voters: usize, now: Time) {
        if let Some(heard) = self.writers.get_mut(&node) {
            *heard = now.max(*heard);
        } else if !self.waiting.contains(&node) && self.waiting.len() < NODES_MAX {
            self.waiting.push_back(node);
        }
        self.grant(voters, now);
    }

    /// A node gives its turn back, or stops waiting for one; it may have started anew meanwhile.
    pub(crate) fn end(&mut self, node: NodeId, voters: usize, now: Time) {
        self.writers.remove(&node);
        self.waiting.retain(|waiting| *waiting != node);
        self.grant(voters, now);
    }

    fn grant(&mut self, voters: usize, now: Time) {
        self.writers
            .retain(|_, heard| now.since(*heard) < WRITER_PATIENCE);
        // Less than half, but one where there is no half.
        let writers_max = (voters.saturating_sub(1) / 2).max(1);
        while self.writers.len() < writers_max
            && let Some(next) = self.waiting.pop_front()
        {
            self.writers.insert(next, now);
        }
    }

    /// May this node write?
    pub(crate) fn has_turn(&self, node: NodeId) -> bool {
        self.writers.contains_key(&node)
    }

    /// Notes the digest of a node's checkpoint.
    pub(crate) fn report(&mut self, index: u64, node: NodeId, digest: Digest) {
        let reports = self.digests.entry(index).or_default();
        if reports.len() < NODES_MAX {
            reports.insert(node, digest);
        }
        while self.digests.len() > INDICES_MAX {
            self.digests.pop_first();
        }
    }

    /// Does the digest of this node differ from that of a majority of the voters at some index? Returns that index.
    pub(crate) fn is_outvoted(&self, node: NodeId, voters: usize) -> Option<u64> {
        self.digests.iter().find_map(|(index, reports)| {
            let own = reports.get(&node)?;
            let others = reports.values().filter(|digest| *digest != own);
            let mut counts: BTreeMap<Digest, usize> = BTreeMap::new();
            for digest in others {
                *counts.entry(*digest).or_default() += 1;
            }
            let most = counts.values().max().copied().unwrap_or(0);
            (most > voters / 2).then_some(*index)
        })
    }

    /// Indices at which two nodes have reported different digests.
    pub(crate) fn disagreements(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.digests.iter().filter_map(|(index, reports)| {
            let mut digests = reports.values();
            let first = digests.next()?;
            digests.any(|digest| digest != first).then_some(*index)
        })
    }

    /// The bytes of a checkpoint: equal for equal schedules.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut long = |value: u64| bytes.extend_from_slice(&value.to_le_bytes());
        long(self.bytes_max);
        long(self.bytes);
        long(self.writers.len() as u64);
        for (node, heard) in &self.writers {
            long(u64::from(node.number()));
            long(heard.nanoseconds());
        }
        long(self.waiting.len() as u64);
        for node in &self.waiting {
            long(u64::from(node.number()));
        }
        long(self.digests.len() as u64);
        for (index, reports) in &self.digests {
            long(*index);
            long(reports.len() as u64);
            for (node, digest) in reports {
                long(u64::from(node.number()));
                let (low, high) = digest.split_at(8);
                for half in [low, high] {
                    long(u64::from_le_bytes(half.try_into().unwrap_or_default()));
                }
            }
        }
        long(self.whole);
        long(self.whole_bytes);
        bytes
    }

    /// Decodes the bytes of a checkpoint.
    pub(crate) fn decode(bytes: &[u8]) -> Result<CheckpointSchedule, MessageError> {
        let mut fields = FieldReader::new(bytes);
        let mut schedule = CheckpointSchedule::new(fields.long("checkpoint bytes")?);
        schedule.bytes = fields.long("bytes")?;
        for _ in 0..read_count(&mut fields)? {
            let node = read_node(&mut fields)?;
            let heard = Time::from_nanoseconds(fields.long("time")?);
            schedule.writers.insert(node, heard);
        }
        for _ in 0..read_count(&mut fields)? {
            schedule.waiting.push_back(read_node(&mut fields)?);
        }
        for _ in 0..read_count(&mut fields)? {
            let index = fields.long("index")?;
            let mut reports = BTreeMap::new();
            for _ in 0..read_count(&mut fields)? {
                let node = read_node(&mut fields)?;
                let mut digest = Digest::default();
                digest.copy_from_slice(fields.bytes("digest", 16)?);
                reports.insert(node, digest);
            }
            schedule.digests.insert(index, reports);
        }
        // Checkpoints of before there were files of changes end here: a whole one comes next.
        if fields.offset() < bytes.len() {
            schedule.whole = fields.long("whole checkpoint")?;
            schedule.whole_bytes = fields.long("bytes since the whole checkpoint")?;
        }
        fields.end()?;
        Ok(schedule)
    }
}

fn read_count(fields: &mut FieldReader<'_>) -> Result<u64, MessageError> {
    let count = fields.long("count")?;
    if count > NODES_MAX as u64 {
        return Err(fields.never("count", 8, count));
    }
    Ok(count)
}

fn read_node(fields: &mut FieldReader<'_>) -> Result<NodeId, MessageError> {
    let number = fields.long("node")?;
    match u32::try_from(number) {
        Ok(number) if number > 0 && number < 1 << 31 => Ok(NodeId::server(number)),
        _ => Err(fields.never("node", 8, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn node(number: u32) -> NodeId {
        NodeId::server(number)
    }

    #[test]
    fn turns_go_round_and_never_to_half_of_the_voters() {
        for voters in 1..=7 {
            let mut schedule = CheckpointSchedule::new(1);
            let mut rng = Rng::from_seed(voters as u64);
            let mut served = BTreeMap::new();
            for step in 0..1_000 {
                let now = Time::from_milliseconds(step);
                let one = node(1 + rng.below(voters as u64) as u32);
                if schedule.has_turn(one) && rng.chance(0.3) {
                    schedule.end(one, voters, now);
                    *served.entry(one).or_insert(0) += 1;
                } else {
                    schedule.ask(one, voters, now);
                }
                let writers = schedule.writers.len();
                assert!(writers <= (voters / 2).max(1), "{voters}: {writers}");
                assert!(voters < 3 || 2 * writers < voters);
            }
            assert_eq!(served.len(), voters, "each has had a turn");
        }
    }

    #[test]
    fn a_crashed_writer_loses_its_turn() {
        let mut schedule = CheckpointSchedule::new(1);
        schedule.ask(node(1), 3, Time::ZERO);
        schedule.ask(node(2), 3, Time::ZERO);
        assert!(schedule.has_turn(node(1)) && !schedule.has_turn(node(2)));
        let late = Time::ZERO + WRITER_PATIENCE;
        schedule.ask(node(2), 3, late);
        assert!(!schedule.has_turn(node(1)) && schedule.has_turn(node(2)));
    }

    #[test]
    fn a_checkpoint_is_due_by_the_bytes_of_entries() {
        let mut schedule = CheckpointSchedule::new(100);
        let due: Vec<bool> = [40, 40, 40, 99, 1, 250, 10]
            .map(|length| schedule.count(1, length, 0).is_some())
            .to_vec();
        assert_eq!(due, [false, false, true, false, true, true, false]);
        assert_eq!(
            CheckpointSchedule::new(0).count(1, 1 << 40, 0),
            None,
            "none"
        );
    }

    #[test]
    fn changes_are_due_until_they_are_half_of_the_state_or_some_intervals() {
        let due = |size: u64| -> Vec<u64> {
            let mut schedule = CheckpointSchedule::new(100);
            let due = (1..=10).map(|index| schedule.count(index, 100, size));
            due.map(|it| match it {
                Some(DueCheckpoint::Changes(base)) => base,
                Some(DueCheckpoint::Whole) => 0,
                None => panic!("each entry is as long as an interval"),
            })
            .collect()
        };
        assert_eq!(due(200), [0; 10], "a small state is written whole");
        assert_eq!(due(500), [0, 1, 1, 0, 4, 4, 0, 7, 7, 0]);
        assert_eq!(due(1 << 30), [0, 1, 1, 1, 0, 5, 5, 5, 0, 9]);
    }

    #[test]
    fn a_node_is_outvoted_by_a_majority_only() {
        let mut schedule = CheckpointSchedule::new(1);
        schedule.report(5, node(1), [1; 16]);
        schedule.report(5, node(2), [2; 16]);
        assert_eq!(schedule.disagreements().collect::<Vec<_>>(), [5]);
        assert_eq!(schedule.is_outvoted(node(1), 3), None, "one against one");
        schedule.report(5, node(3), [2; 16]);
        assert_eq!(schedule.is_outvoted(node(1), 3), Some(5));
        assert_eq!(schedule.is_outvoted(node(2), 3), None);
        for index in 6..20 {
            schedule.report(index, node(1), [1; 16]);
        }
        assert_eq!(schedule.digests.len(), INDICES_MAX);
    }

    #[test]
    fn a_schedule_survives_its_encoding_and_cut_bytes_are_refused() {
        let mut schedule = CheckpointSchedule::new(64);
        schedule.count(9, 70, 0);
        schedule.count(10, 17, 0);
        for number in 1..=4 {
            schedule.ask(node(number), 4, Time::from_milliseconds(9));
            schedule.report(u64::from(number), node(number), [number as u8; 16]);
        }
        let bytes = schedule.encode();
        assert_eq!(CheckpointSchedule::decode(&bytes), Ok(schedule.clone()));
        let old = bytes.len() - 16;
        for length in (0..bytes.len()).filter(|length| *length != old) {
            assert!(CheckpointSchedule::decode(&bytes[..length]).is_err());
        }
        let mut earlier = CheckpointSchedule::decode(&bytes[..old]).unwrap();
        assert_eq!(earlier.whole, 0);
        (earlier.whole, earlier.whole_bytes) = (schedule.whole, schedule.whole_bytes);
        assert_eq!(earlier, schedule);
        let mut rng = Rng::from_seed(3);
        for _ in 0..10_000 {
            let mut bytes = bytes.clone();
            let place = rng.index(bytes.len());
            bytes[place] = rng.word() as u8;
            let _ = CheckpointSchedule::decode(&bytes);
        }
    }
}
