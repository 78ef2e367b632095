//! The digest of a recording: one checksum of its messages, independent of blocks and files.

use crate::cursor::{Extent, segments};
use crate::{Cursor, CursorBound, CursorError, Message, Position, RecordingId};
use seatrial_blocks::crc32c;
use seatrial_blocks::crc32c::{Shift, crc32c_more};
use seatrial_machine::Storage;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

/// From this length on, a message with the length of the previous one is checksummed separately and combined into the
/// digest: the [`Shift`] that this needs is then reused.
const JOINED_LENGTH_MIN: usize = 512;

/// The digest of a sequence of messages: CRC-32C over, for each message, its length and flags (4 bytes, as in its frame
/// but without the checksum bit) and its bytes. Blocks, files, positions and times are not included, so copies that were
/// written in other batches have the same digest.
///
/// ```
/// use seatrial_archive::Digest;
///
/// let mut first = Digest::default();
/// first.push(0, b"one");
/// let mut second = Digest::default();
/// second.push(3, b"two");
/// let mut whole = Digest::default();
/// whole.push(0, b"one");
/// whole.push(3, b"two");
/// assert_eq!(first.then(&second), whole);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The CRC-32C described above.
    pub checksum: u32,
    /// Number of messages.
    pub messages: u64,
    /// Total length of the messages in bytes, without headers.
    pub bytes: u64,
}

impl Default for Digest {
    /// The digest of no messages.
    fn default() -> Digest {
        Digest {
            checksum: crc32c(b""),
            messages: 0,
            bytes: 0,
        }
    }
}

impl Digest {
    /// Adds a message.
    pub fn push(&mut self, flags: u32, message: &[u8]) {
        self.push_with(flags, message, &mut (0, None));
    }

    /// Adds a message; `shift` caches the last message's length and, once a length repeats, its shift.
    #[inline]
    fn push_with(&mut self, flags: u32, message: &[u8], shift: &mut (usize, Option<Shift>)) {
        let length = message.len();
        let head = length as u32 | flags << seatrial_blocks::frame::FLAGS_SHIFT;
        let checksum = crc32c_more(self.checksum, &head.to_le_bytes());
        self.checksum = if length >= JOINED_LENGTH_MIN && shift.0 == length {
            let shift = (shift.1).get_or_insert_with(|| Shift::by(length as u64));
            shift.combine(checksum, crc32c(message))
        } else {
            *shift = (length, None);
            crc32c_more(checksum, message)
        };
        self.messages += 1;
        self.bytes += length as u64;
    }

    /// The digest of these messages followed by those of `next`. O(log(bytes)).
    #[must_use]
    pub fn then(&self, next: &Digest) -> Digest {
        // Each message contributes four bytes of length and flags besides its own.
        let shift = Shift::by(next.bytes + 4 * next.messages);
        Digest {
            checksum: shift.combine(self.checksum, next.checksum),
            messages: self.messages + next.messages,
            bytes: self.bytes + next.bytes,
        }
    }
}

/// The digest of the messages of a recording whose numbers are in `numbers` (all: `0..u64::MAX`), up to its current end.
/// Everything read is checked; the first damage is returned as an error. Files are read by `threads` threads, this one
/// included; `on_progress` is called with the number of messages of each block read, from any of them.
pub fn digest(
    storage: &Arc<dyn Storage>,
    folder: &Path,
    recording: RecordingId,
    numbers: Range<u64>,
    threads: usize,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Result<Digest, CursorError> {
    let extent = Extent::read(&**storage, folder, recording)?
        .ok_or(CursorError::NoRecording { recording })?;
    let mut names = segments(&**storage, folder, recording)?;
    extent.keep(&mut names);
    // Only a missing first file is looked for here: any other one is found by the cursor that ends before it.
    if names.first().is_none_or(|first| first.start > extent.start) {
        let start = extent.start;
        Cursor::open(
            Arc::clone(storage),
            folder,
            recording,
            start,
            CursorBound::End,
        )?
        .next_block()?;
    }
    let pieces: Vec<(Position, CursorBound)> = names
        .iter()
        .enumerate()
        .map(|(index, name)| match names.get(index + 1) {
            Some(next) => (name.start, CursorBound::To(next.start)),
            None => (name.start, CursorBound::End),
        })
        .collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; pieces.len()]);
    let work = || -> Result<(), CursorError> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((start, bound)) = pieces.get(index).cloned() else {
                return Ok(());
            };
            let start = start.max(extent.start);
            let cursor = Cursor::open(Arc::clone(storage), folder, recording, start, bound)?;
            let digest = piece(cursor, &numbers, on_progress, index + 1 < pieces.len())?;
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found[index] = Some(digest);
        }
    };
    std::thread::scope(|scope| {
        // If the system refuses a thread, the others do its share.
        let others = (1..threads).filter_map(|_| Builder::new().spawn_scoped(scope, work).ok());
        let others: Vec<_> = others.collect();
        let mut result = work();
        for other in others {
            result = result.and(other.join().unwrap_or(Ok(())));
        }
        result
    })?;
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(found.iter().all(Option::is_some), "each file was read");
    let found = found.into_iter().flatten();
    Ok(found.fold(Digest::default(), |before, digest| before.then(&digest)))
}

/// The digest of the messages in a cursor's range whose numbers are in `numbers`.
fn piece(
    mut cursor: Cursor,
    numbers: &Range<u64>,
    on_progress: &(dyn Fn(u64) + Sync),
    is_followed: bool,
) -> Result<Digest, CursorError> {
    let mut digest = Digest::default();
    let mut shift = (0, None);
    while let Some(block) = cursor.next_block()? {
        let first = block.first_message();
        if first >= numbers.end {
            return Ok(digest);
        }
        let skipped = numbers.start.saturating_sub(first);
        let count = numbers.end - first;
        let messages = (block.messages())
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .skip(usize::try_from(skipped).unwrap_or(usize::MAX));
        for Message { flags, payload, .. } in messages {
            digest.push_with(flags, payload, &mut shift);
        }
        on_progress(u64::from(block.messages_count()));
    }
    // Files are read independently, so the reader of each also checks that the next one continues it.
    if is_followed {
        cursor.check_next()?;
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_recording::{FOLDER, RECORDING, SampleRecording, Seen};
    use seatrial_machine::Rng;

    /// The digest by its definition: one checksum of all bytes.
    fn twin<'a>(messages: impl Iterator<Item = &'a Seen>) -> Digest {
        let (mut bytes, mut digest) = (Vec::new(), Digest::default());
        for message in messages {
            let length = message.payload.len() as u32;
            bytes.extend_from_slice(&(length | message.flags << 28).to_le_bytes());
            bytes.extend_from_slice(&message.payload);
            digest.messages += 1;
            digest.bytes += u64::from(length);
        }
        digest.checksum = crc32c(&bytes);
        digest
    }

    #[test]
    fn any_range_has_the_digest_of_its_messages() {
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let tape = SampleRecording::random(&mut rng);
            let storage = tape.storage(rng.chance(0.5));
            let count = tape.messages.len() as u64;
            let from = rng.below(count + 1);
            for numbers in [0..u64::MAX, from..from + rng.below(count + 1)] {
                let threads = 1 + rng.index(3);
                let found = digest(
                    &storage,
                    Path::new(FOLDER),
                    RECORDING,
                    numbers.clone(),
                    threads,
                    &|_| (),
                );
                let messages = tape.messages.iter();
                let messages = messages.filter(|seen| numbers.contains(&seen.number));
                assert_eq!(found.unwrap(), twin(messages), "seed {seed}: {numbers:?}");
            }
        }
    }

    #[test]
    fn other_blocks_and_files_have_the_same_digest_and_other_messages_another() {
        let mut rng = Rng::from_seed(5);
        let mut tape = SampleRecording::default();
        tape.begin_segment(Position(0));
        tape.append(&mut rng, 20, 1_500);
        let mut changed = tape.messages;
        let whole = twin(changed.iter());
        let mut pushed = Digest::default();
        for message in &changed {
            pushed.push(message.flags, &message.payload);
        }
        assert_eq!(pushed, whole);
        let parts = changed.chunks(3).map(|part| twin(part.iter()));
        let joined = parts.fold(Digest::default(), |before, part| before.then(&part));
        assert_eq!(joined, whole);
        let at = changed.iter().position(|seen| !seen.payload.is_empty());
        changed[at.unwrap()].payload[0] ^= 1;
        assert_ne!(twin(changed.iter()), whole);
    }

    #[test]
    fn damage_is_an_error() {
        let mut rng = Rng::from_seed(6);
        let mut tape = SampleRecording::default();
        tape.begin_segment(Position(0));
        tape.append(&mut rng, 3, 50);
        tape.begin_segment(tape.end());
        tape.append(&mut rng, 3, 50);
        let at = tape.segments[0].1.len() - 1;
        tape.segments[0].1[at] ^= 4;
        let storage = tape.storage(true);
        let all = 0..u64::MAX;
        let found = digest(&storage, Path::new(FOLDER), RECORDING, all, 2, &|_| ());
        assert!(matches!(found, Err(CursorError::Damaged { .. })));
    }
}
