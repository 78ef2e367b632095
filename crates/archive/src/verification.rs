//! Verification of whole recordings on several threads, continuing after damage.

mod checked_range;
mod file_walk;

use crate::cursor::ExpectedBlock;
use crate::{BlockDamage, CursorError, Position, RecordingId, SEGMENT_BLOCK_LENGTH};
use checked_range::{CheckedRange, FoundDamage, RangeChecker, check};
use file_walk::{FileWalk, WalkedRecording};
use seatrial_blocks::{WalkError, Walker};
use seatrial_machine::Storage;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Options of a verification.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions {
    /// Number of checking threads, this one included; at least one.
    pub threads: usize,
    /// Are the frames' own checksums computed as well? The block's checksum covers every bit without them; with them, a
    /// frame that was written with a wrong checksum is found too.
    pub checksums: bool,
}

/// The progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes checked so far.
    pub done: u64,
    /// Bytes of all files.
    pub total: u64,
}

/// Why a part of a recording is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFault {
    /// A block that is not valid, or not the expected one.
    #[error(transparent)]
    Fault(#[from] BlockDamage),
    /// A read failed.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Bytes are missing between two files, or before the first one.
    #[error("the next file starts at position {found}, expected {expected}")]
    Gap {
        /// End of the previous file, or start of the recording.
        expected: Position,
        /// Start of the next file.
        found: Position,
    },
    /// The last file does not end where the recording was stopped, or ends before its durable end.
    #[error("the recording ends at {found}, it was durable up to {expected}")]
    End {
        /// The end of the stopped recording, or its durable end.
        expected: Position,
        /// End of its last file.
        found: Position,
    },
}

impl VerifyFault {
    fn unreadable(error: &io::Error) -> VerifyFault {
        VerifyFault::Unreadable(error.to_string())
    }
}

/// Damage of a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} at {offset} (position {position}, {length} bytes): {fault}")]
pub struct VerifyDamage {
    /// The file.
    pub path: PathBuf,
    /// Offset in the file.
    pub offset: u64,
    /// The same place as a position of the recording.
    pub position: Position,
    /// Number of damaged bytes.
    pub length: u64,
    /// The reason, with expected and found values.
    pub fault: VerifyFault,
}

/// The result of verifying one recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingReport {
    /// The recording.
    pub recording: RecordingId,
    /// Its start.
    pub start: Position,
    /// End of its last valid block.
    pub end: Position,
    /// Number of files.
    pub segments: u64,
    /// Number of valid batches.
    pub blocks: u64,
    /// Number of messages in them.
    pub messages: u64,
    /// Total length of the files in bytes.
    pub bytes: u64,
    /// Damage, in the order of positions; empty for a valid recording.
    pub damages: Vec<VerifyDamage>,
    /// A torn tail of a recording that was not stopped: recovery will cut it off, or its writer is completing it. Not
    /// damage.
    pub torn: Option<VerifyDamage>,
}

/// Verifies recordings of the archive in `folder`: header, checksum and padding of every block, every frame, that block
/// numbers, message numbers and times continue, and that files follow each other. Takes no lock: of a live recording it
/// checks what existed at the start. `on_progress` is called after every few megabytes, from any of the threads.
///
/// One thread at a time walks headers and cuts files into ranges of blocks; all threads check ranges. Reads are linear in
/// the files, memory is a few megabytes a thread.
///
/// Returns one report for each of `recordings`, in order. An error means that verification could not begin; unreadable
/// files and damage are in the reports.
pub fn verify(
    storage: &dyn Storage,
    folder: &Path,
    recordings: &[RecordingId],
    options: VerifyOptions,
    on_progress: &(dyn Fn(VerifyProgress) + Sync),
) -> Result<Vec<RecordingReport>, CursorError> {
    let walk = FileWalk::new(storage, folder, recordings)?;
    let total = walk.total();
    let walk = Mutex::new(walk);
    let ranges = Mutex::new(Vec::new());
    let done = AtomicU64::new(0);
    let work = || {
        let mut found = Vec::new();
        let mut checker = RangeChecker::new(options.checksums);
        loop {
            let Some(range) = hold(&walk).next_range() else {
                break;
            };
            let length = range.length();
            found.push(check(&mut checker, range));
            let done = done.fetch_add(length, Ordering::Relaxed) + length;
            on_progress(VerifyProgress { done, total });
        }
        hold(&ranges).append(&mut found);
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads {
            // If the system refuses a thread, the others do its share.
            let _ = Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut checker = RangeChecker::new(options.checksums);
    let walk = walk.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ranges = ranges.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(walk, ranges, &mut checker))
}

/// Combines the results of the header walk and of the threads into reports.
fn report(
    walk: FileWalk<'_>,
    ranges: Vec<CheckedRange>,
    checker: &mut RangeChecker,
) -> Vec<RecordingReport> {
    let mut of: Vec<Vec<CheckedRange>> = walk.recordings.iter().map(|_| Vec::new()).collect();
    for checked in ranges {
        of[checked.range.segment.recording].push(checked);
    }
    let recordings = walk.recordings.into_iter().zip(of);
    recordings
        .map(|(walked, ranges)| fold(walked, ranges, checker))
        .collect()
}

/// The report of one recording.
fn fold(
    mut walked: WalkedRecording,
    mut ranges: Vec<CheckedRange>,
    checker: &mut RangeChecker,
) -> RecordingReport {
    ranges.append(&mut walked.firsts);
    ranges.sort_by_key(|checked| (checked.range.segment.name, checked.range.from));
    for checked in &mut ranges {
        walked.found.append(&mut checked.found);
    }
    walked.found.sort_by_key(|found| found.damage.position);
    if !walked.extent.is_stopped {
        cut_torn(&mut walked, &mut ranges, checker);
    }
    // Ranges were checked independently, by any thread; here each must continue the previous one.
    let mut before: Option<ExpectedBlock> = None;
    for checked in &ranges {
        let segment = &checked.range.segment;
        // A wrong sequence number was reported already, by the header walk.
        if let (Some(before), Some(first)) = (before, checked.first)
            && before.sequence == first.sequence
            && let Err(fault) = before.check_place(first.message.unwrap_or(0), first.time)
        {
            let damage = segment.damage(checked.range.from, 0, BlockDamage::Content(fault));
            walked.report.damages.push(damage);
        }
        before = checked.next;
        walked.report.blocks += checked.blocks;
        walked.report.messages += checked.messages;
        let end = segment.name.start.plus(checked.valid);
        walked.report.end = walked.report.end.max(end);
    }
    if let (Some(expected), Some(last)) = (walked.extent.stop(), &walked.last)
        && expected != walked.expected
    {
        let found = walked.expected;
        let fault = VerifyFault::End { expected, found };
        walked
            .report
            .damages
            .push(last.damage(last.length, 0, fault));
    }
    if let Some(last) = &walked.last
        && !walked.extent.is_stopped
        && walked.expected < walked.extent.known_end
    {
        let (expected, found) = (walked.extent.known_end, walked.expected);
        let fault = VerifyFault::End { expected, found };
        let damage = last.damage(last.length, 0, fault);
        walked.report.damages.push(damage);
    }
    if let (Some(stop), Some(chain), Some(last)) = (walked.extent.stop(), before, &walked.last)
        && walked.report.end == stop
        && let Err(fault) = walked.extent.check_end(&chain)
    {
        let damage = last.damage(last.length, 0, fault);
        walked.report.damages.push(damage);
    }
    let found = walked.found.into_iter().map(|found| found.damage);
    walked.report.damages.extend(found);
    let damages = &mut walked.report.damages;
    damages.sort_by_key(|damage| damage.position);
    walked.report
}

/// Reports the remains of an interrupted write at the end of an open recording as a torn tail, not as damage: none of it was
/// acknowledged as durable. Its blocks are not counted.
fn cut_torn(
    walked: &mut WalkedRecording,
    ranges: &mut Vec<CheckedRange>,
    checker: &mut RangeChecker,
) {
    let Some(last) = walked.last.clone() else {
        return;
    };
    let Some(view) = &last.view else {
        return;
    };
    let is_in_question = |found: &FoundDamage| {
        found.damage.path == last.path
            && matches!(
                found.damage.fault,
                VerifyFault::Fault(BlockDamage::Block(_))
            )
    };
    let Some(index) = walked.found.iter().position(is_in_question) else {
        return;
    };
    let offset = walked.found[index].damage.offset;
    // Before the known end it was durable, so it is damage.
    if last.name.start.plus(offset) < walked.extent.known_end {
        return;
    }
    let mut walker = Walker::new(view.disk(), offset).of_recording(walked.extent.tag);
    if let Some(sequence) = walked.found[index].sequence {
        walker = walker.expecting(sequence);
    }
    match walker.next_block() {
        // Valid blocks follow, or one of another recording: recovery does not cut here.
        Err(WalkError::Torn(torn)) if torn.unordered > 0 || torn.is_foreign() => return,
        // A batch is written only after the first block is durable, so the first block was valid once.
        Err(WalkError::Torn(_)) if offset == 0 && last.length > SEGMENT_BLOCK_LENGTH => return,
        // An interrupted write; or an empty file, whose first block is not written yet; or a block that its writer has
        // completed in between.
        Err(WalkError::Torn(_)) | Ok(_) => {}
        Err(_) => return,
    }
    let mut torn = walked.found.swap_remove(index).damage;
    torn.length = last.length - offset;
    walked
        .found
        .retain(|found| found.damage.position < torn.position);
    walked.report.torn = Some(torn);
    ranges.retain(|checked| checked.range.segment.name != last.name || checked.range.from < offset);
    if let Some(checked) = ranges.last_mut()
        && checked.range.segment.name == last.name
        && checked.range.to > offset
    {
        let mut range = checked.range.clone();
        range.to = offset;
        *checked = check(checker, range);
    }
}

/// Locks a mutex. A panic of another thread is ignored: values are consistent after every statement.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
