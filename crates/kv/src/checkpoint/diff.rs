//! The keys in which two checkpoints differ.

use super::file_parser::{CheckpointParser, CheckpointSink};
use super::file_writer::{DigestStream, digest_of};
use super::format::HEADER;
use super::{CheckpointError, CheckpointHead};
use crate::session::Sessions;
use seatrial_machine::Disk;
use std::cmp::Ordering;
use std::collections::VecDeque;
use thiserror::Error;

/// Bytes that are read at once.
const READ_LENGTH: usize = 256 << 10;

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

/// Compares two complete checkpoint files and calls `found` for each key that differs, in order. Both files are read once, in
/// step, and checked completely; of each the keys of one slice are held, with a digest (XXH3-128) in place of each value.
///
/// After an error the calls so far stand, but more keys may differ.
pub fn diff_checkpoints(
    first: &dyn Disk,
    second: &dyn Disk,
    mut found: impl FnMut(&[u8], KeyDifference),
) -> Result<CheckpointDiff, DiffError> {
    let (mut one, mut two) = (KeyStream::new(first), KeyStream::new(second));
    let mut keys = 0;
    loop {
        one.fill().map_err(DiffError::First)?;
        two.fill().map_err(DiffError::Second)?;
        let (ahead, behind) = (one.keys().front(), two.keys().front());
        let difference = match (ahead, behind) {
            (None, None) => break,
            (Some(_), None) => Some(KeyDifference::OnlyFirst),
            (None, Some(_)) => Some(KeyDifference::OnlySecond),
            (Some(a), Some(b)) => match a.key.cmp(&b.key) {
                Ordering::Less => Some(KeyDifference::OnlyFirst),
                Ordering::Greater => Some(KeyDifference::OnlySecond),
                Ordering::Equal => (!a.has_contents_of(b)).then_some(KeyDifference::Contents),
            },
        };
        let key = match difference {
            Some(KeyDifference::OnlySecond) => two.keys().pop_front(),
            Some(KeyDifference::OnlyFirst) => one.keys().pop_front(),
            _ => {
                two.keys().pop_front();
                one.keys().pop_front()
            }
        };
        if let (Some(difference), Some(key)) = (difference, key) {
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

/// The keys of one file, read when they are needed.
struct KeyStream<'a> {
    disk: &'a dyn Disk,
    offset: u64,
    buffer: Vec<u8>,
    parser: CheckpointParser<KeyDigests>,
}

/// Collects digests of keys.
#[derive(Default)]
struct KeyDigests {
    keys: VecDeque<KeyDigest>,
    list: Option<(Vec<u8>, DigestStream)>,
}

impl KeyStream<'_> {
    fn new(disk: &dyn Disk) -> KeyStream<'_> {
        KeyStream {
            disk,
            offset: 0,
            buffer: Vec::new(),
            parser: CheckpointParser::new(HEADER, KeyDigests::default()),
        }
    }

    fn keys(&mut self) -> &mut VecDeque<KeyDigest> {
        &mut self.parser.sink().keys
    }

    /// Reads until there is a key, or the file ends.
    fn fill(&mut self) -> Result<(), CheckpointError> {
        while self.keys().is_empty() && self.read()? {}
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

    fn finish(mut self) -> Result<(CheckpointSummary, CheckpointHead, Sessions), CheckpointError> {
        while self.read()? {}
        let file = self.parser.finish()?;
        let (head, mark) = (file.head, file.mark);
        let summary = CheckpointSummary {
            cluster: head.head.cluster,
            index: head.head.index,
            term: head.head.term,
            keys: head.keys,
            size: head.size,
            length: mark.length,
            digest: mark.digest,
        };
        Ok((summary, head.head, file.sessions))
    }
}

impl CheckpointSink for KeyDigests {
    fn register(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        self.keys.push_back(KeyDigest {
            key: key.to_vec(),
            is_list: false,
            digest: digest_of(value),
        });
        Ok(())
    }

    fn list(&mut self, key: &[u8]) {
        self.list = Some((key.to_vec(), DigestStream::new()));
    }

    fn element(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if let Some((_, digest)) = &mut self.list {
            // With the lengths, so that elements that are cut differently differ.
            digest.write(&(value.len() as u32).to_le_bytes());
            digest.write(value);
        }
        Ok(())
    }

    fn end_list(&mut self) -> Result<(), &'static str> {
        if let Some((key, digest)) = self.list.take() {
            self.keys.push_back(KeyDigest {
                key,
                is_list: true,
                digest: digest.finish(),
            });
        }
        Ok(())
    }
}
