//! Jepsen's binary test files, `test.jepsen`, in versions 0 and 1. All numbers are big-endian:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 6 | `JEPSEN` |
//! | 6 | 4 | version |
//! | 10 | 8 | where the newest block index begins, 0 for none |
//! | 18 | | blocks, back to back |
//!
//! A block is a header of 28 bytes {8 its length with the header, 4 CRC-32 (zlib's) of the data and then of the header
//! with this field zero, 2 its type, 14 zeros}, then data:
//!
//! | type | data |
//! | --- | --- |
//! | 1 block index | id of the root (4), then id (4) and place (8) of each block |
//! | 2 Fressian | one value; other blocks are named by the tag `block-ref` |
//! | 3 partial map | id of the block with the rest (4, 0 for none), then a map in Fressian |
//! | 4 Fressian stream | values to the end of the block |
//! | 5 big vector | count (8), then first index (8) and block id (4) of each chunk |

use super::ImportOptions;
use super::edn::{Form, SyntaxFault};
use super::fressian::{Datum, Fressian};
use super::operation_builder::{KeyPlace, OperationBuilder, OperationDraft, OperationFields};
use super::sequence::ProcessSequence;
use crate::export;
use seatrial_history::Op;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

/// The first bytes of a file.
const MAGIC: &[u8; 6] = b"JEPSEN";
/// The newest version that is known.
const VERSION_MAX: u32 = 1;
/// Where the header names the index.
const INDEX_PLACE: u64 = 10;
/// Where the first block begins.
const BLOCKS_START: u64 = 18;
/// Length of a block's header.
const HEADER_LENGTH: u64 = 28;
/// Longest block; Jepsen's own bound.
const BLOCK_LENGTH_MAX: u64 = i32::MAX as u64;
/// Bytes per read of a search for blocks.
const SEARCH_LENGTH: u64 = 1 << 20;
/// Bound on a search for an older index, in lengths of the file.
const SEARCH_PASSES: u64 = 4;
/// Big vectors or partial maps in one chain at most.
const CHAIN_LENGTH_MAX: usize = 65_536;

/// What a block holds.
mod kind {
    pub(super) const INDEX: u16 = 1;
    pub(super) const FRESSIAN: u16 = 2;
    pub(super) const PARTIAL_MAP: u16 = 3;
    pub(super) const STREAM: u16 = 4;
    pub(super) const BIG_VECTOR: u16 = 5;
}

/// Why a file or a part of it cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JepsenError {
    /// The system does not give the bytes.
    #[error("{file}: cannot be read")]
    Read {
        /// The file's name, as given.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// Not one of these files.
    #[error("{file}: {problem}")]
    Format {
        /// The file's name, as given.
        file: String,
        /// The difference.
        problem: String,
    },
    /// A part of the file is not as it was written.
    #[error("{file}: byte {offset}: {what}: {problem}")]
    Damaged {
        /// The file's name, as given.
        file: String,
        /// Where the fault is, in bytes.
        offset: u64,
        /// Which part of the file this is.
        what: String,
        /// The problem.
        problem: String,
    },
}

/// A chunk of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HistoryChunk {
    /// Number of operations before it.
    first: u64,
    block: u32,
}

/// A test file of Jepsen: attributes, operations, results. Each is read on demand; every block is checked when it is read,
/// and one block is in memory at a time.
///
/// Blocks are found by an index, which Jepsen writes anew after each chunk. When the newest index is torn or damaged, the
/// newest intact one is used and [`JepsenFile::warnings`] names the difference; Jepsen itself cannot open such a file.
pub struct JepsenFile<R> {
    name: String,
    input: R,
    length: u64,
    version: u32,
    /// From a block's id to its offset.
    blocks: BTreeMap<u32, u64>,
    root: u32,
    warnings: Vec<String>,
}

/// A search for blocks. Its budget bounds it in files made to prolong it (headers whose blocks overlap).
struct BlockSearch {
    /// Offset at which it continues.
    offset: u64,
    /// Bytes that may still be read.
    budget: u64,
}

impl BlockSearch {
    /// Takes `length` from the budget; false when it is exhausted.
    fn spend(&mut self, length: u64) -> bool {
        let left = self.budget.checked_sub(length);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }
}

/// A block that was read and checked.
struct JepsenBlock {
    offset: u64,
    kind: u16,
    data: Vec<u8>,
}

impl JepsenBlock {
    fn word(&self, at: usize) -> u32 {
        let bytes = self.data.get(at..at + 4);
        bytes.map_or(0, |bytes| number(bytes) as u32)
    }
}

/// A number from its bytes, the highest first.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Does a file begin like one of these?
pub fn is_jepsen(first: &[u8]) -> bool {
    first.starts_with(MAGIC)
}

impl<R: Read + Seek> JepsenFile<R> {
    /// Opens a file. `name` is for errors.
    pub fn open(name: &str, mut input: R) -> Result<JepsenFile<R>, JepsenError> {
        let read = |source| JepsenError::Read {
            file: name.to_owned(),
            source,
        };
        let length = input.seek(SeekFrom::End(0)).map_err(read)?;
        let mut file = JepsenFile {
            name: name.to_owned(),
            input,
            length,
            version: 0,
            blocks: BTreeMap::new(),
            root: 0,
            warnings: Vec::new(),
        };
        let header = file.bytes(0, BLOCKS_START)?;
        let format = |problem: String| JepsenError::Format {
            file: name.to_owned(),
            problem,
        };
        if !is_jepsen(&header) {
            return Err(format("not a test file of Jepsen".into()));
        }
        if (header.len() as u64) < BLOCKS_START {
            return Err(format(format!(
                "ends inside its header, after {length} bytes"
            )));
        }
        file.version = number(&header[6..10]) as u32;
        if file.version > VERSION_MAX {
            let version = file.version;
            return Err(format(format!(
                "is of version {version}; versions 0 to {VERSION_MAX} are known"
            )));
        }
        let newest = number(&header[10..18]);
        let problem = match file.index(newest) {
            Ok(()) => return Ok(file),
            Err(error @ JepsenError::Read { .. }) => return Err(error),
            Err(_) if newest == 0 => "no block index was written".to_owned(),
            Err(JepsenError::Damaged {
                offset, problem, ..
            }) => format!("the newest block index, at byte {offset}, is damaged: {problem}"),
            Err(error) => error.to_string(),
        };
        file.older_index(&problem)?;
        Ok(file)
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Warnings: an older index was used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn damaged(&self, offset: u64, what: &str, problem: impl Into<String>) -> JepsenError {
        JepsenError::Damaged {
            file: self.name.clone(),
            offset,
            what: what.to_owned(),
            problem: problem.into(),
        }
    }

    /// The bytes from `offset` on, as many as there are.
    fn bytes(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, JepsenError> {
        let mut bytes = Vec::new();
        let sought = self.input.seek(SeekFrom::Start(offset));
        let read = sought.and_then(|_| self.input.by_ref().take(length).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(bytes),
            Err(source) => Err(JepsenError::Read {
                file: self.name.clone(),
                source,
            }),
        }
    }

    /// Reads and checks the block at `offset`.
    fn block(&mut self, offset: u64, what: &str) -> Result<JepsenBlock, JepsenError> {
        let there = self.length.saturating_sub(offset);
        let header = self.bytes(offset, HEADER_LENGTH)?;
        if offset < BLOCKS_START || (header.len() as u64) < HEADER_LENGTH {
            let problem = format!("no block is here; the file has {} bytes", self.length);
            return Err(self.damaged(offset, what, problem));
        }
        let length = number(&header[..8]);
        if length == 0 {
            let problem = "the block was never finished";
            return Err(self.damaged(offset, what, problem));
        }
        if !(HEADER_LENGTH..=BLOCK_LENGTH_MAX).contains(&length) {
            let problem = format!("a block of {length} bytes");
            return Err(self.damaged(offset, what, problem));
        }
        if length > there {
            let problem = format!("a block of {length} bytes, {there} are left");
            return Err(self.damaged(offset, what, problem));
        }
        let data = self.bytes(offset + HEADER_LENGTH, length - HEADER_LENGTH)?;
        let stored = number(&header[8..12]) as u32;
        let computed = checksum(&header, &data);
        if stored != computed {
            let problem =
                format!("its checksum is {computed:#010x}, {stored:#010x} is written there");
            return Err(self.damaged(offset, what, problem));
        }
        let kind = number(&header[12..14]) as u16;
        Ok(JepsenBlock { offset, kind, data })
    }

    /// Takes the block index at `offset`.
    fn index(&mut self, offset: u64) -> Result<(), JepsenError> {
        let what = "block index";
        let block = self.block(offset, what)?;
        if block.kind != kind::INDEX || block.data.len() % 12 != 4 {
            let (kind, length) = (block.kind, block.data.len());
            let problem = format!("a block of type {kind} with {length} bytes of data");
            return Err(self.damaged(offset, what, problem));
        }
        let blocks = block.data[4..].as_chunks::<12>().0.iter();
        self.blocks = blocks
            .map(|entry| (number(&entry[..4]) as u32, number(&entry[4..])))
            .collect();
        self.root = block.word(0);
        if self.root == 0 || !self.blocks.contains_key(&self.root) {
            let problem = format!("its root is block {}, which it lacks", self.root);
            return Err(self.damaged(offset, what, problem));
        }
        Ok(())
    }

    /// Takes the newest intact index, because the newest one has this problem.
    fn older_index(&mut self, problem: &str) -> Result<(), JepsenError> {
        let mut found = None;
        let mut search = BlockSearch {
            offset: BLOCKS_START,
            budget: self.length.saturating_mul(SEARCH_PASSES) + 16 * SEARCH_LENGTH,
        };
        while let Some((at, kind, length)) = self.next_block(&mut search)? {
            search.offset = at + length;
            if kind != kind::INDEX || !search.spend(length) {
                continue;
            }
            match self.index(at) {
                Ok(()) => found = Some((at, search.offset)),
                Err(error @ JepsenError::Read { .. }) => return Err(error),
                // Not a block, or a damaged one: the next may begin inside of it.
                Err(_) => search.offset = at + 1,
            }
        }
        let Some((at, end)) = found else {
            let problem = format!("{problem}; no older one is whole");
            return Err(self.damaged(INDEX_PLACE, "block index", problem));
        };
        self.index(at)?;
        let after = self.length - end;
        self.warnings.push(format!(
            "{}: {problem}; the one at byte {at} is used, and the {after} bytes after it are not",
            self.name
        ));
        Ok(())
    }

    /// The next bytes with a block's header that fits in the file: offset, type, length. Usually it begins where the last
    /// one ended.
    fn next_block(
        &mut self,
        search: &mut BlockSearch,
    ) -> Result<Option<(u64, u16, u64)>, JepsenError> {
        let mut length = HEADER_LENGTH;
        while search.offset + HEADER_LENGTH <= self.length && search.spend(length) {
            let window = self.bytes(search.offset, length)?;
            for (place, header) in window.windows(HEADER_LENGTH as usize).enumerate() {
                let kind = number(&header[12..14]) as u16;
                let is_block = (kind::INDEX..=kind::BIG_VECTOR).contains(&kind)
                    && header[14..].iter().all(|&byte| byte == 0);
                let at = search.offset + place as u64;
                let length = number(&header[..8]);
                if is_block && (HEADER_LENGTH..=self.length - at).contains(&length) {
                    return Ok(Some((at, kind, length)));
                }
            }
            search.offset += (window.len() as u64)
                .saturating_sub(HEADER_LENGTH - 1)
                .max(1);
            length = SEARCH_LENGTH;
        }
        Ok(None)
    }

    /// The block with this id.
    fn block_of(&mut self, id: u32, what: &str) -> Result<JepsenBlock, JepsenError> {
        match self.blocks.get(&id) {
            Some(&offset) => self.block(offset, what),
            None => Err(self.damaged(BLOCKS_START, what, format!("there is no block {id}"))),
        }
    }

    fn fault(
        &self,
        block: &JepsenBlock,
        start: u64,
        what: &str,
        fault: SyntaxFault,
    ) -> JepsenError {
        let offset = block.offset + HEADER_LENGTH + start + fault.at as u64;
        self.damaged(offset, what, fault.problem)
    }

    /// The map in a block and in those that hold its rest.
    fn map(&mut self, id: u32, what: &str) -> Result<Vec<(Datum, Datum)>, JepsenError> {
        let mut pairs = Vec::new();
        let mut next = id;
        for _ in 0..CHAIN_LENGTH_MAX {
            if next == 0 {
                return Ok(pairs);
            }
            let block = self.block_of(next, what)?;
            let start = match block.kind {
                kind::FRESSIAN => 0,
                kind::PARTIAL_MAP => 4,
                other => {
                    let problem = format!("a block of type {other}");
                    return Err(self.damaged(block.offset, what, problem));
                }
            };
            next = if start == 0 { 0 } else { block.word(0) };
            let mut fressian = Fressian::new(block.data.get(start..).unwrap_or_default());
            let value = fressian.value();
            let value = value.map_err(|fault| self.fault(&block, start as u64, what, fault))?;
            match value {
                Form::Map(more) => pairs.extend(more),
                Form::Nil => {}
                _ => return Err(self.damaged(block.offset, what, "not a map")),
            }
        }
        Err(self.damaged(BLOCKS_START, what, "a map that has no end"))
    }

    /// The test map, without history and results.
    pub fn attributes(&mut self) -> Result<Json, JepsenError> {
        let test = self.map(self.root, "test")?;
        let mut members = Map::new();
        for (name, value) in test {
            match name.name() {
                Some("history" | "results") | None => {}
                Some(name) => {
                    members.insert(name.to_owned(), export::value(&value.into_value()));
                }
            }
        }
        members.insert("format".to_owned(), json!("jepsen"));
        members.insert("format-version".to_owned(), json!(self.version));
        Ok(Json::Object(members))
    }

    /// The results of the last analysis, `valid?` as `valid` in front; `None` before one was made.
    pub fn results(&mut self) -> Result<Option<Json>, JepsenError> {
        let test = self.map(self.root, "test")?;
        let results = test
            .into_iter()
            .find(|(name, _)| name.name() == Some("results"));
        let pairs = match results {
            None | Some((_, Form::Nil)) => return Ok(None),
            Some((_, Form::Map(pairs))) => pairs,
            Some((_, value)) => match reference(&value) {
                Some(id) => self.map(id, "results")?,
                None => return Err(self.damaged(BLOCKS_START, "results", "not a map")),
            },
        };
        let mut members = Map::new();
        members.insert("valid".to_owned(), Json::Null);
        for (name, value) in pairs {
            let name = match name.name() {
                Some("valid?") => "valid".to_owned(),
                Some(name) => name.to_owned(),
                None => name.into_value().to_string(),
            };
            members.insert(name, export::value(&value.into_value()));
        }
        Ok(Some(Json::Object(members)))
    }

    /// The chunks of the history in order.
    fn parts(&mut self) -> Result<Vec<HistoryChunk>, JepsenError> {
        let what = "history";
        let test = self.map(self.root, "test")?;
        let history = test
            .into_iter()
            .find(|(name, _)| name.name() == Some("history"));
        let Some(history) = history.and_then(|(_, value)| reference(&value)) else {
            return Ok(Vec::new());
        };
        // Parts yet to be read, the next one last.
        let mut open = vec![HistoryChunk {
            first: 0,
            block: history,
        }];
        let mut parts = Vec::new();
        let mut vectors = 0;
        while let Some(part) = open.pop() {
            let offset = self.blocks.get(&part.block).copied();
            let offset = offset.ok_or_else(|| {
                let problem = format!("there is no block {}", part.block);
                self.damaged(BLOCKS_START, what, problem)
            })?;
            let header = self.bytes(offset, HEADER_LENGTH)?;
            let kind = header.get(12..14).map(number);
            if kind != Some(u64::from(kind::BIG_VECTOR)) {
                parts.push(part);
                continue;
            }
            vectors += 1;
            let block = self.block(offset, what)?;
            let entries = block.data.get(8..).unwrap_or_default().as_chunks::<12>();
            if vectors > CHAIN_LENGTH_MAX || block.data.len() < 8 || !entries.1.is_empty() {
                let problem = format!("a vector of {} bytes", block.data.len());
                return Err(self.damaged(offset, what, problem));
            }
            let inner = entries.0.iter().rev().map(|entry| HistoryChunk {
                first: part.first.saturating_add(number(&entry[..8])),
                block: number(&entry[8..]) as u32,
            });
            open.extend(inner);
            if open.len() > self.blocks.len() {
                let problem = format!("{} chunks in {} blocks", open.len(), self.blocks.len());
                return Err(self.damaged(block.offset, what, problem));
            }
        }
        Ok(parts)
    }

    /// The operations in order, chunk by chunk.
    pub fn operations(
        &mut self,
        options: ImportOptions,
    ) -> Result<JepsenOperations<'_, R>, JepsenError> {
        let parts = self.parts()?;
        Ok(JepsenOperations {
            file: self,
            keys: options.keys(),
            parts,
            next: 0,
            ops: Vec::new().into_iter(),
            count: 0,
            last: None,
            sequence: ProcessSequence::default(),
        })
    }
}

/// The block that a value names.
fn reference(value: &Datum) -> Option<u32> {
    match value {
        Form::Tagged("block-ref", id) => match **id {
            Form::Int(id) => u32::try_from(id).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The checksum of a block: of its data, then of its header with the checksum's own field zero.
fn checksum(header: &[u8], data: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc);
    digest.update(data);
    digest.update(&header[..8]);
    digest.update(&[0; 4]);
    digest.update(&header[12..]);
    digest.finalize() as u32
}

/// The operations of a file: an iterator that holds one chunk. A chunk that is damaged is one error, which names it;
/// after that, it continues with the next chunk, for salvage.
pub struct JepsenOperations<'a, R> {
    file: &'a mut JepsenFile<R>,
    keys: KeyPlace,
    parts: Vec<HistoryChunk>,
    /// The next part.
    next: usize,
    /// Of the current one.
    ops: std::vec::IntoIter<Op>,
    /// Operations so far.
    count: u64,
    last: Option<u64>,
    sequence: ProcessSequence,
}

impl<R: Read + Seek> JepsenOperations<'_, R> {
    /// Chunks that were read, and how many there are.
    pub fn progress(&self) -> (u64, u64) {
        (self.next as u64, self.parts.len() as u64)
    }

    /// Reads the next chunk.
    fn chunk(&mut self, part: HistoryChunk) -> Result<Vec<Op>, JepsenError> {
        let number = self.next - 1;
        let what = match self.parts.get(self.next) {
            Some(next) => {
                let (first, last) = (part.first, next.first.saturating_sub(1));
                format!("chunk {number} (operations {first} to {last})")
            }
            None => format!("chunk {number} (operations from {} on)", part.first),
        };
        let block = self.file.block_of(part.block, &what)?;
        let mut fressian = Fressian::new(&block.data);
        let ops = match block.kind {
            kind::STREAM => self.stream(&mut fressian, part.first),
            kind::FRESSIAN => self.vector(&mut fressian, part.first),
            other => Err(SyntaxFault::new(0, format!("a block of type {other}"))),
        };
        let drafts = ops.map_err(|fault| self.file.fault(&block, 0, &what, fault))?;
        let mut ops = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let at = block.offset + HEADER_LENGTH + draft.at as u64;
            let op = self.admit(draft);
            ops.push(op.map_err(|problem| self.file.damaged(at, &what, problem))?);
        }
        self.count += ops.len() as u64;
        Ok(ops)
    }

    /// Takes an operation if it may follow those before it.
    fn admit(&mut self, draft: OperationDraft) -> Result<Op, String> {
        let OperationDraft {
            mut op,
            has_process,
            ..
        } = draft;
        if let Some(last) = self.last.filter(|&last| op.index <= last) {
            return Err(format!(
                "operation {} comes after operation {last}",
                op.index
            ));
        }
        self.sequence.index(self.last.replace(op.index), op.index);
        self.sequence.take(&mut op, has_process)?;
        Ok(op)
    }

    /// One operation after another to the end of the block.
    fn stream(
        &self,
        fressian: &mut Fressian<'_>,
        first: u64,
    ) -> Result<Vec<OperationDraft>, SyntaxFault> {
        let mut builder = OperationBuilder::new(self.keys);
        let mut ops = Vec::new();
        while fressian.more()? {
            let at = fressian.at();
            let place = first + ops.len() as u64;
            let mut fields = OperationFields::default();
            match fressian.unless_operation()? {
                None => {
                    for name in ["index", "time", "type", "process", "f", "value"] {
                        let value = fressian.value()?;
                        take(&mut builder, &mut fields, name, value, at)?;
                    }
                    let extra = fressian.value()?;
                    take_all(&mut builder, &mut fields, extra, at)?;
                }
                Some(map) => take_all(&mut builder, &mut fields, map, at)?,
            }
            ops.push(finish(&builder, fields, place, at)?);
        }
        Ok(ops)
    }

    /// A list of operations in one value.
    fn vector(
        &self,
        fressian: &mut Fressian<'_>,
        first: u64,
    ) -> Result<Vec<OperationDraft>, SyntaxFault> {
        let mut builder = OperationBuilder::new(self.keys);
        let maps = match fressian.value()? {
            Form::List(maps) => maps,
            Form::Nil => Vec::new(),
            _ => return Err(SyntaxFault::new(0, "not a list of operations")),
        };
        let maps = maps.into_iter().enumerate();
        maps.map(|(number, map)| {
            let mut fields = OperationFields::default();
            take_all(&mut builder, &mut fields, map, 0)?;
            finish(&builder, fields, first + number as u64, 0)
        })
        .collect()
    }
}

fn take(
    builder: &mut OperationBuilder,
    fields: &mut OperationFields<'static>,
    name: &str,
    value: Datum,
    at: usize,
) -> Result<(), SyntaxFault> {
    let taken = builder.field(fields, name, value);
    taken.map_err(|problem| SyntaxFault::new(at, problem))
}

/// Takes a map of fields.
fn take_all(
    builder: &mut OperationBuilder,
    fields: &mut OperationFields<'static>,
    map: Datum,
    at: usize,
) -> Result<(), SyntaxFault> {
    let pairs = match map {
        Form::Map(pairs) => pairs,
        Form::Nil => return Ok(()),
        _ => return Err(SyntaxFault::new(at, "an operation (a map) is expected")),
    };
    for (name, value) in pairs {
        if let Some(name) = name.name() {
            take(builder, fields, name, value, at)?;
        } else {
            let name = name.into_value().to_string();
            take(builder, fields, &name, value, at)?;
        }
    }
    Ok(())
}

/// The operation of these fields; without an index it has that of its place.
fn finish(
    builder: &OperationBuilder,
    fields: OperationFields<'_>,
    place: u64,
    at: usize,
) -> Result<OperationDraft, SyntaxFault> {
    let mut draft = builder.finish(fields, at)?;
    if !draft.indexed {
        draft.op.index = place;
    }
    Ok(draft)
}

impl<R: Read + Seek> Iterator for JepsenOperations<'_, R> {
    type Item = Result<Op, JepsenError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(op) = self.ops.next() {
                return Some(Ok(op));
            }
            let part = *self.parts.get(self.next)?;
            self.next += 1;
            match self.chunk(part) {
                Ok(ops) => self.ops = ops.into_iter(),
                Err(error) => {
                    self.sequence.skip();
                    return Some(Err(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
