//! Entries that are in memory no more, read back from the journal by a job.

use crate::journal::JournalRecord;
use seatrial_blocks::{Frames, Walker};
use seatrial_consensus::{LogEntry, Payload};
use seatrial_machine::{Computed, DataFolder, Job, LogName};

/// Bytes of entries that one job reads; consensus asks again for the rest.
const FETCH_BYTES: usize = 1 << 20;

/// Reads the entries of a range for a follower that is far behind. The journal may be freed at its head meanwhile: then there
/// are no entries, and the follower gets a checkpoint.
#[derive(Debug)]
pub(crate) struct FetchJob {
    pub(crate) data: DataFolder,
    /// Position of a block of the journal at or before the first entry.
    pub(crate) position: u64,
    /// First index.
    pub(crate) low: u64,
    /// After the last index.
    pub(crate) high: u64,
}

/// What a [`FetchJob`] read.
#[derive(Debug)]
pub(crate) struct FetchedEntries(pub(crate) Vec<LogEntry>);

impl FetchJob {
    /// The entries; empty if any of them cannot be read.
    fn read(&self) -> Option<Vec<LogEntry>> {
        let log = self.data.log(LogName::MAIN).ok()?;
        let mut walker = Walker::new(&log, self.position);
        let mut entries: Vec<LogEntry> = Vec::new();
        let mut bytes = 0;
        while let Some(block) = walker.next_block().ok()? {
            for frame in Frames::new(block.payload) {
                let record = JournalRecord::decode(&frame.ok()?).ok()?;
                let JournalRecord::Entry(entry) = record else {
                    continue;
                };
                if entry.index < self.low || entry.index >= self.high {
                    continue;
                }
                // A later entry replaces the one with its index and all after it.
                let kept = usize::try_from(entry.index - self.low).ok()?;
                if kept > entries.len() {
                    return None;
                }
                entries.truncate(kept);
                bytes += length(&entry);
                entries.push(entry);
            }
            let is_complete = entries.len() as u64 == self.high - self.low;
            if is_complete || bytes >= FETCH_BYTES {
                break;
            }
        }
        Some(entries)
    }
}

fn length(entry: &LogEntry) -> usize {
    match &entry.payload {
        Payload::Data(bytes) => bytes.len(),
        _ => 0,
    }
}

impl Job for FetchJob {
    fn run(self: Box<Self>) -> Computed {
        Box::new(FetchedEntries(self.read().unwrap_or_default()))
    }
}
