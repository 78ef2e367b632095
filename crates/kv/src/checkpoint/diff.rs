//! The keys in which two checkpoints differ.

use super::file_parser::{CheckpointParser, CheckpointSink};
use super::file_writer::{DigestStream, digest_of};
use super::format::{DELTA, FileHead, HEADER, payload_length_max};
use super::{CheckpointError, CheckpointHead, CheckpointMark};
use crate::session_table::Sessions;
use seatrial_blocks::{BlockHeader, HEADER_LENGTH};
use seatrial_machine::Disk;
use std::cmp::Ordering;
use std::collections::VecDeque;
use thiserror::Error;

/// Bytes that are read at once.
const READ_LENGTH: usize = 256 << 10;

/// The files of a checkpoint that is compared.
#[derive(Clone, Copy)]
pub struct CheckpointFiles<'a> {
    /// The file.
    pub file: &'a dyn Disk,
    /// The whole one at the index [`changes_since`] of the file, if that is one.
    pub base: Option<&'a dyn Disk>,
}

/// The index of the whole checkpoint that a file has the changes of; `None`: the file is whole, or none of a checkpoint.
pub fn changes_since(file: &dyn Disk) -> Result<Option<u64>, CheckpointError> {
    let error = |problem: String| CheckpointError { offset: 0, problem };
    let mut header = [0; HEADER_LENGTH];
    if file.len() < HEADER_LENGTH as u64 {
        return Ok(None);
    }
    let read = file.read_at(0, &mut header);
    read.map_err(|problem| error(problem.to_string()))?;
    let length = match BlockHeader::decode(&header) {
        Ok(header) if header.kind == DELTA => header.payload_length as usize,
        _ => return Ok(None),
    };
    if length > payload_length_max(DELTA) {
        return Err(error(format!("a header of {length} bytes")));
    }
    let mut payload = vec![0; length];
    let read = file.read_at(HEADER_LENGTH as u64, &mut payload);
    read.map_err(|problem| error(problem.to_string()))?;
    let head = FileHead::decode(DELTA, &payload).map_err(|problem| error(problem.to_string()))?;
    Ok(head.delta.map(|delta| delta.base_index))
}

/// How a key differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDifference {
    /// Only the first checkpoint has it.
    OnlyFirst,
    /// Only the second checkpoint has it.
    OnlySecond,
    /// Both have it, with different values or lists, or as register and list.
    Contents,
}

/// One of two compared checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// The cluster.
    pub cluster: u64,
    /// The last index whose effect it contains.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys, values and lists.
    pub size: u64,
    /// Length of the file, in bytes.
    pub length: u64,
    /// XXH3-128 of the file before its root: equal for equal checkpoints.
    pub digest: [u8; 16],
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointDiff {
    /// The first checkpoint.
    pub first: CheckpointSummary,
    /// The second checkpoint.
    pub second: CheckpointSummary,
    /// Number of keys that differ.
    pub keys: u64,
    /// Do the sessions differ?
    pub sessions: bool,
    /// Do members or schedule differ?
    pub head: bool,
}

/// Why two checkpoints could not be compared.
#[derive(Debug, Error)]
pub enum DiffError {
    /// The first file cannot be read.
    #[error("first checkpoint: {0}")]
    First(CheckpointError),
    /// The second file cannot be read.
    #[error("second checkpoint: {0}")]
    Second(CheckpointError),
}

/// Compares two complete checkpoints and calls `found` for each key that differs, in order. All files are read once, in step, and
/// checked completely; of each the keys of one slice are held, with a digest (XXH3-128) in place of each value, and of changes
/// the elements that they append.
///
/// After an error the calls so far stand, but more keys may differ.
pub fn diff_checkpoints(
    first: CheckpointFiles<'_>,
    second: CheckpointFiles<'_>,
    mut found: impl FnMut(&[u8], KeyDifference),
) -> Result<CheckpointDiff, DiffError> {
    let (mut one, mut two) = (ChainKeys::new(first), ChainKeys::new(second));
    let (mut ahead, mut behind) = (
        one.next().map_err(DiffError::First)?,
        two.next().map_err(DiffError::Second)?,
    );
    let mut keys = 0;
    loop {
        let difference = match (&ahead, &behind) {
            (None, None) => break,
            (Some(_), None) => Some(KeyDifference::OnlyFirst),
            (None, Some(_)) => Some(KeyDifference::OnlySecond),
            (Some(a), Some(b)) => match a.key.cmp(&b.key) {
                Ordering::Less => Some(KeyDifference::OnlyFirst),
                Ordering::Greater => Some(KeyDifference::OnlySecond),
                Ordering::Equal => (!a.has_contents_of(b)).then_some(KeyDifference::Contents),
            },
        };
        let (mut key, mut other) = (None, None);
        if difference != Some(KeyDifference::OnlySecond) {
            let next = one.next().map_err(DiffError::First)?;
            key = std::mem::replace(&mut ahead, next);
        }
        if difference != Some(KeyDifference::OnlyFirst) {
            let next = two.next().map_err(DiffError::Second)?;
            other = std::mem::replace(&mut behind, next);
        }
        if let (Some(difference), Some(key)) = (difference, key.or(other)) {
            keys += 1;
            found(&key.key, difference);
        }
    }
    let (first, one_head, one_sessions) = one.finish().map_err(DiffError::First)?;
    let (second, two_head, two_sessions) = two.finish().map_err(DiffError::Second)?;
    Ok(CheckpointDiff {
        first,
        second,
        keys,
        sessions: !one_sessions.is_same(&two_sessions),
        head: (&one_head.members, &one_head.schedule) != (&two_head.members, &two_head.schedule),
    })
}

/// A key and a digest of what it holds.
#[derive(Debug)]
struct KeyDigest {
    key: Vec<u8>,
    is_list: bool,
    digest: [u8; 16],
}

impl KeyDigest {
    fn has_contents_of(&self, other: &KeyDigest) -> bool {
        (self.is_list, self.digest) == (other.is_list, other.digest)
    }
}

/// What a file says about a key.
enum KeyRecord {
    Register([u8; 16]),
    /// The elements so far, so that more can follow.
    List(Box<DigestStream>),
    Removed,
    /// The elements that follow those of the base, encoded.
    Appended(Vec<u8>),
}

/// The keys of a checkpoint, in order: those of a whole file with the changes of another one made.
struct ChainKeys<'a> {
    whole: KeyStream<'a>,
    changes: Option<KeyStream<'a>>,
    /// Number of keys so far.
    keys: u64,
}

/// A summary, the head and the sessions of a checkpoint.
type ReadToEnd = (CheckpointSummary, CheckpointHead, Sessions);

impl ChainKeys<'_> {
    fn new(files: CheckpointFiles<'_>) -> ChainKeys<'_> {
        let (whole, changes) = match files.base {
            Some(base) => (base, Some(KeyStream::new(files.file, DELTA))),
            None => (files.file, None),
        };
        ChainKeys {
            whole: KeyStream::new(whole, HEADER),
            changes,
            keys: 0,
        }
    }

    fn next(&mut self) -> Result<Option<KeyDigest>, CheckpointError> {
        loop {
            let next = self.next_record()?;
            let Some((key, record)) = next else {
                return Ok(None);
            };
            let (is_list, digest) = match record {
                KeyRecord::Register(digest) => (false, digest),
                KeyRecord::List(stream) => (true, stream.finish()),
                KeyRecord::Removed => continue,
                KeyRecord::Appended(_) => {
                    return Err(self.error("elements for a list that is not there"));
                }
            };
            self.keys += 1;
            return Ok(Some(KeyDigest {
                key,
                is_list,
                digest,
            }));
        }
    }

    fn error(&self, problem: &str) -> CheckpointError {
        CheckpointError {
            offset: self.changes.as_ref().map_or(0, |changes| changes.offset),
            problem: problem.to_owned(),
        }
    }

    /// The next key of either file. A change of a key is made to what the whole file has.
    fn next_record(&mut self) -> Result<Option<(Vec<u8>, KeyRecord)>, CheckpointError> {
        self.whole.fill()?;
        let Some(changes) = &mut self.changes else {
            return Ok(self.whole.records().pop_front());
        };
        changes.fill()?;
        let order = match (self.whole.records().front(), changes.records().front()) {
            (Some((key, _)), Some((changed, _))) => key.cmp(changed),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => Ok(self.whole.records().pop_front()),
            Ordering::Greater => match changes.records().pop_front() {
                Some((_, KeyRecord::Removed)) => Err(self.error("a removed key that is not there")),
                other => Ok(other),
            },
            Ordering::Equal => {
                let held = self.whole.records().pop_front();
                let change = changes.records().pop_front();
                match (held, change) {
                    (
                        Some((key, KeyRecord::List(mut list))),
                        Some((_, KeyRecord::Appended(more))),
                    ) => {
                        list.write(&more);
                        Ok(Some((key, KeyRecord::List(list))))
                    }
                    (_, change) => Ok(change),
                }
            }
        }
    }

    fn finish(self) -> Result<ReadToEnd, CheckpointError> {
        let keys = self.keys;
        let (head, sessions, mark) = self.whole.finish()?;
        let Some(changes) = self.changes else {
            return Ok((summary(&head, mark), head.head, sessions));
        };
        let (newest, sessions, newest_mark) = changes.finish()?;
        let error = |problem: String| Err(CheckpointError { offset: 0, problem });
        let base = newest.delta.map(|it| (it.base_index, it.base_digest));
        if base != Some((head.head.index, mark.digest)) {
            return error("the changes are those of another checkpoint".into());
        }
        if newest.keys != keys {
            let expected = newest.keys;
            return error(format!(
                "the changed state has {keys} keys, the header says {expected}"
            ));
        }
        Ok((summary(&newest, newest_mark), newest.head, sessions))
    }
}

fn summary(head: &FileHead, mark: CheckpointMark) -> CheckpointSummary {
    CheckpointSummary {
        cluster: head.head.cluster,
        index: head.head.index,
        term: head.head.term,
        keys: head.keys,
        size: head.size,
        length: mark.length,
        digest: mark.digest,
    }
}

/// The keys of one file, read when they are needed.
struct KeyStream<'a> {
    disk: &'a dyn Disk,
    offset: u64,
    buffer: Vec<u8>,
    parser: CheckpointParser<KeyRecords>,
}

/// Collects keys with what the file says about them.
#[derive(Default)]
struct KeyRecords {
    records: VecDeque<(Vec<u8>, KeyRecord)>,
    /// The list, or the end of one, whose elements come.
    open: Option<(Vec<u8>, KeyRecord)>,
}

impl KeyStream<'_> {
    fn new(disk: &dyn Disk, header: seatrial_blocks::BlockKind) -> KeyStream<'_> {
        KeyStream {
            disk,
            offset: 0,
            buffer: Vec::new(),
            parser: CheckpointParser::new(header, KeyRecords::default()),
        }
    }

    fn records(&mut self) -> &mut VecDeque<(Vec<u8>, KeyRecord)> {
        &mut self.parser.sink().records
    }

    /// Reads until there is a key, or the file ends.
    fn fill(&mut self) -> Result<(), CheckpointError> {
        while self.records().is_empty() && self.read()? {}
        Ok(())
    }

    /// Reads some bytes; false at the end of the file.
    fn read(&mut self) -> Result<bool, CheckpointError> {
        let left = self.disk.len().saturating_sub(self.offset);
        let length = left.min(READ_LENGTH as u64) as usize;
        if length == 0 {
            return Ok(false);
        }
        self.buffer.resize(length, 0);
        let read = self.disk.read_at(self.offset, &mut self.buffer);
        read.map_err(|error| CheckpointError {
            offset: self.offset,
            problem: error.to_string(),
        })?;
        self.offset += length as u64;
        self.parser.push(&self.buffer)?;
        Ok(true)
    }

    fn finish(mut self) -> Result<(FileHead, Sessions, CheckpointMark), CheckpointError> {
        while self.read()? {}
        let file = self.parser.finish()?;
        Ok((file.head, file.sessions, file.mark))
    }
}

impl CheckpointSink for KeyRecords {
    fn register(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let record = KeyRecord::Register(digest_of(value));
        self.records.push_back((key.to_vec(), record));
        Ok(())
    }

    fn list(&mut self, key: &[u8]) {
        self.open = Some((key.to_vec(), KeyRecord::List(Box::new(DigestStream::new()))));
    }

    fn element(&mut self, value: &[u8]) -> Result<(), &'static str> {
        // With the lengths, so that elements that are cut differently differ.
        let length = (value.len() as u32).to_le_bytes();
        match &mut self.open {
            Some((_, KeyRecord::List(digest))) => {
                digest.write(&length);
                digest.write(value);
            }
            Some((_, KeyRecord::Appended(bytes))) => {
                bytes.extend_from_slice(&length);
                bytes.extend_from_slice(value);
            }
            _ => {}
        }
        Ok(())
    }

    fn end_list(&mut self) -> Result<(), &'static str> {
        self.records.extend(self.open.take());
        Ok(())
    }

    fn removed(&mut self, key: &[u8]) -> Result<(), &'static str> {
        self.records.push_back((key.to_vec(), KeyRecord::Removed));
        Ok(())
    }

    fn appended(&mut self, key: &[u8]) -> Result<(), &'static str> {
        self.open = Some((key.to_vec(), KeyRecord::Appended(Vec::new())));
        Ok(())
    }
}
