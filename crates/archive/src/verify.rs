//! Checking all there is of recordings, on several threads, on and on behind damage.

mod piece;
mod walk;

use crate::cursor::Chain;
use crate::walk::{WalkError, Walker};
use crate::{CursorError, Fault, Position, RecordingId, SEGMENT_BLOCK_LENGTH};
use piece::{Desk, Found, Piece, check};
use seatrial_machine::Storage;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use walk::{Walk, Walked};

/// How to verify.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions {
    /// Threads that check, this one included; at least one.
    pub threads: usize,
    /// Are the frames' own checksums computed as well? Every bit is covered by that of its block without them; with them
    /// a frame that was sealed wrongly is found too.
    pub checksums: bool,
}

/// How much has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes of files that were checked.
    pub done: u64,
    /// Bytes of files that will have been checked at the end.
    pub total: u64,
}

/// What is wrong with a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFault {
    /// A block that is not whole, or not the one that belongs there.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The medium or the operating system does not give the bytes.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Something is missing between two files, or in front of the first or behind the last one.
    #[error("the recording goes on at {found}, not at {expected}")]
    Gap {
        /// Where the file before ends, or the recording is said to begin.
        expected: Position,
        /// Where the next file begins.
        found: Position,
    },
    /// The last file does not end where the recording was stopped, or ends before what was durable.
    #[error("the recording ends at {found}, it was durable up to {expected}")]
    End {
        /// Where it was stopped, or up to where it was durable.
        expected: Position,
        /// Where its last file ends.
        found: Position,
    },
}

impl VerifyFault {
    fn unreadable(error: &io::Error) -> VerifyFault {
        VerifyFault::Unreadable(error.to_string())
    }
}

/// A place at which a recording is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} at {offset} (position {position}, {length} bytes): {fault}")]
pub struct VerifyDamage {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// The same as a position of the recording.
    pub position: Position,
    /// Bytes from there on that cannot be believed.
    pub length: u64,
    /// What is wrong, with expected and found values.
    pub fault: VerifyFault,
}

/// What was found in one recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingReport {
    /// The recording.
    pub recording: RecordingId,
    /// Where it begins.
    pub start: Position,
    /// Where it ends: behind its last valid block.
    pub end: Position,
    /// Files.
    pub segments: u64,
    /// Valid batches.
    pub blocks: u64,
    /// Messages in them.
    pub messages: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What is wrong, in the order of positions; empty for a sound recording.
    pub damages: Vec<VerifyDamage>,
    /// An interrupted write at the end of a recording that was not stopped: recovery will cut it, or its writer is just
    /// writing it. No damage.
    pub torn: Option<VerifyDamage>,
}

/// Verifies recordings of the archive in `folder`: every block's header, checksum and padding, every frame; that block
/// numbers, message numbers and times go on, and that files follow each other. Takes no lock: of what is being recorded
/// it sees what is there when it begins. `told` is called after every few megabytes, from any of the threads.
///
/// An error means that nothing could be said; whatever can be said of recordings is in their reports, in the order of
/// `recordings`.
pub fn verify(
    storage: &dyn Storage,
    folder: &Path,
    recordings: &[RecordingId],
    options: VerifyOptions,
    told: &(dyn Fn(VerifyProgress) + Sync),
) -> Result<Vec<RecordingReport>, CursorError> {
    let walk = Walk::new(storage, folder, recordings)?;
    let total = walk.total();
    let walk = Mutex::new(walk);
    let pieces = Mutex::new(Vec::new());
    let done = AtomicU64::new(0);
    let work = || {
        let mut found = Vec::new();
        let mut desk = Desk::new(options.checksums);
        loop {
            let Some(range) = hold(&walk).next_range() else {
                break;
            };
            let length = range.length();
            found.push(check(&mut desk, range));
            let done = done.fetch_add(length, Ordering::Relaxed) + length;
            told(VerifyProgress { done, total });
        }
        hold(&pieces).append(&mut found);
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads {
            // What the system gives no thread for, the others do.
            let _ = Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut desk = Desk::new(options.checksums);
    let walk = walk.into_inner().unwrap_or_else(PoisonError::into_inner);
    let pieces = pieces.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(walk, pieces, &mut desk))
}

/// Puts together what was found by headers and by threads.
fn report(walk: Walk<'_>, pieces: Vec<Piece>, desk: &mut Desk) -> Vec<RecordingReport> {
    let mut of: Vec<Vec<Piece>> = walk.recordings.iter().map(|_| Vec::new()).collect();
    for piece in pieces {
        of[piece.range.segment.recording].push(piece);
    }
    let recordings = walk.recordings.into_iter().zip(of);
    recordings
        .map(|(walked, pieces)| fold(walked, pieces, desk))
        .collect()
}

/// The report of one recording.
fn fold(mut walked: Walked, mut pieces: Vec<Piece>, desk: &mut Desk) -> RecordingReport {
    pieces.append(&mut walked.firsts);
    pieces.sort_by_key(|piece| (piece.range.segment.name, piece.range.from));
    for piece in &mut pieces {
        walked.found.append(&mut piece.found);
    }
    walked.found.sort_by_key(|found| found.damage.position);
    if !walked.extent.is_stopped {
        cut_torn(&mut walked, &mut pieces, desk);
    }
    let mut before: Option<Chain> = None;
    for piece in &pieces {
        let segment = &piece.range.segment;
        // A block that is not the next one was told already.
        if let (Some(before), Some(first)) = (before, piece.first)
            && before.sequence == first.sequence
            && let Err(fault) = before.check_place(first.message.unwrap_or(0), first.time)
        {
            let damage = segment.damage(piece.range.from, 0, Fault::Content(fault));
            walked.report.damages.push(damage);
        }
        before = piece.next;
        walked.report.blocks += piece.blocks;
        walked.report.messages += piece.messages;
        let end = segment.name.start.plus(piece.valid);
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
        && walked.expected < walked.extent.promised
    {
        let (expected, found) = (walked.extent.promised, walked.expected);
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

/// Nobody was promised what an interrupted write left at the end: it is told apart from damage, and not counted.
fn cut_torn(walked: &mut Walked, pieces: &mut Vec<Piece>, desk: &mut Desk) {
    let Some(last) = walked.last.clone() else {
        return;
    };
    let Some(view) = &last.view else {
        return;
    };
    let is_in_question = |found: &Found| {
        found.damage.path == last.path
            && matches!(found.damage.fault, VerifyFault::Fault(Fault::Block(_)))
    };
    let Some(index) = walked.found.iter().position(is_in_question) else {
        return;
    };
    let offset = walked.found[index].damage.offset;
    // It was durable.
    if last.name.start.plus(offset) < walked.extent.promised {
        return;
    }
    let mut walker = Walker::new(view.disk(), offset).of_recording(walked.extent.tag);
    if let Some(sequence) = walked.found[index].sequence {
        walker = walker.expecting(sequence);
    }
    match walker.next_block() {
        // The blocks after it hold messages that recovery does not cut.
        Err(WalkError::Torn(torn)) if torn.unordered > 0 || torn.is_foreign() => return,
        // A batch is written only once the first block is durable: it was whole.
        Err(WalkError::Torn(_)) if offset == 0 && last.length > SEGMENT_BLOCK_LENGTH => return,
        // An interrupted write; or an empty file: the next segment was created, and its first block not yet written; or its
        // writer has completed it meanwhile.
        Err(WalkError::Torn(_)) | Ok(_) => {}
        Err(_) => return,
    }
    let mut torn = walked.found.swap_remove(index).damage;
    torn.length = last.length - offset;
    walked
        .found
        .retain(|found| found.damage.position < torn.position);
    walked.report.torn = Some(torn);
    pieces.retain(|piece| piece.range.segment.name != last.name || piece.range.from < offset);
    if let Some(piece) = pieces.last_mut()
        && piece.range.segment.name == last.name
        && piece.range.to > offset
    {
        let mut range = piece.range.clone();
        range.to = offset;
        *piece = check(desk, range);
    }
}

/// Takes a lock; a thread that panicked left whole values.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
