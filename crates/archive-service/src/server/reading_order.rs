//! Fair order in which replays get reading jobs.

use super::{ArchiveService, Out};
use crate::server::live_recording::RequestId;
use std::collections::BTreeMap;

/// The scheduler of reading jobs, and the count of bytes in flight of all replays.
///
/// At most `reads_max` jobs run; further replays wait in `queue`. While more than `replay_bytes_max` bytes are in flight, a
/// replay with `data_bytes_min` of its own in flight waits in `starved` until others have given credit. Both queues are
/// first in, first out; `starved` goes first.
///
/// Cost: one look-up in an ordered map per message sent.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Running jobs.
    pub(crate) jobs: usize,
    /// Bytes sent, without credit since, of all replays.
    pub(crate) in_flight: u64,
    queue: BTreeMap<u64, RequestId>,
    starved: BTreeMap<u64, RequestId>,
    /// The last queue number given; both queues share the sequence.
    last_number: u64,
}

impl Reads {
    /// Queues a replay for a job; returns its queue number.
    pub(crate) fn enqueue(&mut self, key: RequestId) -> u64 {
        self.last_number += 1;
        self.queue.insert(self.last_number, key);
        self.last_number
    }

    /// Queues a replay until there is room for its bytes; returns its queue number.
    pub(crate) fn starve(&mut self, key: RequestId) -> u64 {
        self.last_number += 1;
        self.starved.insert(self.last_number, key);
        self.last_number
    }

    /// Removes a replay from both queues.
    pub(crate) fn remove(&mut self, number: u64) {
        self.queue.remove(&number);
        self.starved.remove(&number);
    }

    /// Removes a replay that has given credit from `starved`; true if it was there.
    pub(crate) fn unstarve(&mut self, number: u64) -> bool {
        self.starved.remove(&number).is_some()
    }

    /// The next replay to get a job; starved replays only with room for their bytes.
    fn next(&mut self, has_room: bool) -> Option<RequestId> {
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
    /// Is there room for another full message in flight?
    pub(super) fn has_replay_room(&self) -> bool {
        let limits = &self.options.limits;
        self.reads.in_flight + limits.data_bytes as u64 <= limits.replay_bytes_max
    }

    /// Starts reading jobs for queued replays.
    pub(super) fn pump_reads(&mut self, out: &mut Out) {
        while self.reads.jobs < self.options.limits.reads_max
            && let Some(key) = self.reads.next(self.has_replay_room())
        {
            if let Some(replay) = self.replays.get_mut(&key) {
                replay.queue_number = None;
                self.pump_replay(key, out);
            }
        }
    }
}
