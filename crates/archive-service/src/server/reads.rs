//! Fair order in which replays get reading jobs.

use super::{ArchiveService, Out};
use crate::server::track::Asker;
use std::collections::BTreeMap;

/// The jobs that read for replays, and the bytes of all replays that were sent and not taken.
///
/// At most `reads_max` jobs are under way; further replays wait in `queue`. Beyond `replay_bytes_max` bytes a replay that
/// has its share under way waits among the `starved` until others have taken theirs. Both are served in the order in
/// which they came, the starved first.
///
/// Cost: a look-up in an ordered map for each message that is sent.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Jobs under way.
    pub(crate) jobs: usize,
    /// Bytes that were sent and that no credit was given for since.
    pub(crate) under_way: u64,
    queue: BTreeMap<u64, Asker>,
    starved: BTreeMap<u64, Asker>,
    places: u64,
}

impl Reads {
    /// A replay waits for a job.
    pub(crate) fn enqueue(&mut self, key: Asker) -> u64 {
        self.places += 1;
        self.queue.insert(self.places, key);
        self.places
    }

    /// A replay waits until others have taken what was sent to them.
    pub(crate) fn starve(&mut self, key: Asker) -> u64 {
        self.places += 1;
        self.starved.insert(self.places, key);
        self.places
    }

    /// A replay does not wait any more.
    pub(crate) fn leave(&mut self, place: u64) {
        self.queue.remove(&place);
        self.starved.remove(&place);
    }

    /// A replay has taken some of what was sent to it: if it waited for others to do so, it may have its share again.
    pub(crate) fn feed(&mut self, place: u64) -> bool {
        self.starved.remove(&place).is_some()
    }

    /// Who is next.
    fn next(&mut self, has_room: bool) -> Option<Asker> {
        let starved = if has_room {
            self.starved.pop_first()
        } else {
            None
        };
        let next = starved.or_else(|| self.queue.pop_first());
        next.map(|(_, key)| key)
    }
}

impl ArchiveService {
    /// Is there room for another message beside those that were sent and not taken?
    pub(super) fn has_replay_room(&self) -> bool {
        let limits = &self.options.limits;
        self.reads.under_way + limits.data_bytes as u64 <= limits.replay_bytes_max
    }

    /// Lets jobs read for those that wait.
    pub(super) fn pump_reads(&mut self, out: &mut Out) {
        while self.reads.jobs < self.options.limits.reads_max
            && let Some(key) = self.reads.next(self.has_replay_room())
        {
            if let Some(replay) = self.replays.get_mut(&key) {
                replay.place = None;
                self.pump_replay(key, out);
            }
        }
    }
}
