//! Salvages the whole chunks of a damaged test file.

use super::block_kinds::{
    ATTRIBUTES, CHUNK, CONTINUES, DIRECTORY, JOURNAL, RESULTS, RESULTS_PART, long,
};
use super::directory::{DirectoryEntry, RootContents, read_any_block};
use super::documents::{Analysis, FileBlocks, HEAD_LENGTH};
use super::pack::write_beside;
use super::reader::{ChunkBuffer, Gathered, TestFile};
use super::survey::{OpenError, ReadableDisk};
use super::writer::WriteError;
use super::{Codec, PURPOSE};
use crate::chunk::Chunk;
use crate::fold::Chunks;
use crate::{History, Op};
use seatrial_blocks::block::read_at;
use seatrial_blocks::codec::expand;
use seatrial_blocks::damage_scan::{DamageScan, Damaged, WholeBlock};
use seatrial_blocks::file::{Files, ReadFile};
use seatrial_blocks::{BlockKind, root};
use seatrial_machine::Disk;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The member of the attributes that lists what a salvaged file lacks.
pub const SALVAGED: &str = "salvaged";

/// Bytes of the first page that identify a test file.
const IDENTITY_LENGTH: usize = 20;

/// Longest results head: a validity is `true`, `false` or a short text.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Consecutive operations that a damaged file has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The position of the first in the history.
    pub position: u64,
    /// Their number; `None` at the end of a file whose original length is unknown.
    pub operations: Option<u64>,
    /// The indices of the first and the last one, or bounds for them when the directory does not say.
    pub indices: (u64, Option<u64>),
    /// Numbers of their first and last chunk, if the directory has them.
    pub chunks: Option<(u64, u64)>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.operations, self.indices) {
            (Some(1), (first, _)) => write!(f, "operation {first}")?,
            (Some(count), (first, Some(last))) => {
                write!(f, "{count} operations, indices {first} to {last}")?;
            }
            (Some(count), (first, None)) => write!(f, "{count} operations from index {first} on")?,
            (None, (first, _)) => {
                write!(f, "an unknown number of operations from index {first} on")?;
            }
        }
        match self.chunks {
            Some((first, last)) if first == last => write!(f, " (chunk {first})"),
            Some((first, last)) => write!(f, " (chunks {first} to {last})"),
            None => Ok(()),
        }
    }
}

/// A chunk that is whole.
#[derive(Clone, Copy, Debug)]
struct Saved {
    position: u64,
    entry: DirectoryEntry,
}

impl Saved {
    fn end(&self) -> u64 {
        self.position + self.entry.operations
    }
}

/// An analysis whose results are whole.
#[derive(Debug)]
struct SavedResults {
    number: u64,
    valid: Json,
    /// Where its parts are.
    parts: Vec<u64>,
}

/// The whole chunks, attributes and results of a damaged test file, with the reading calls of a [`TestFile`]; made by
/// [`TestFile::salvage`].
///
/// Chunks keep their positions and pairs, so a completion is never paired with a foreign invocation; only their numbers
/// change. If a chunk is damaged but its journal blocks are whole, its operations are taken from these. Cost: opening reads
/// the whole file, and holds 96 bytes per chunk.
#[derive(Debug)]
pub struct Salvaged {
    path: PathBuf,
    disk: Box<dyn ReadableDisk>,
    chunks: Vec<Saved>,
    complete: bool,
    attributes: Option<Json>,
    analyses: Vec<SavedResults>,
    /// The number of analyses before the damage, according to root and heads.
    analyses_before: u64,
    damaged: Vec<Damaged>,
    missing: Vec<Missing>,
}

impl TestFile {
    /// Reads all whole blocks of the file at `path`, whatever else is damaged: first page, root, directory, any block, or bytes
    /// missing in the middle. [`Salvaged::missing`] lists the lost operations. Fails only if the system cannot read the file, or
    /// if it is a file of another purpose or of an unknown version.
    pub fn salvage(path: &Path) -> Result<Salvaged, OpenError> {
        Salvaged::on(Box::new(ReadFile::open(path)?), path)
    }
}

/// The contents of all whole blocks of a file.
#[derive(Default)]
struct Gleaned {
    chunks: Vec<Saved>,
    journal: Vec<Saved>,
    /// Of the newest root.
    contents: Option<RootContents>,
    /// Its sequence number.
    root_sequence: Option<u64>,
    /// Entries of directory blocks, by the offset of the block that they are in.
    nodes: BTreeMap<u64, Vec<DirectoryEntry>>,
    /// Whole parts of documents, by sequence number: kind, flags, offset.
    parts: BTreeMap<u64, (BlockKind, u16, u64)>,
    /// Sequence number and payload of results heads.
    heads: Vec<(u64, Vec<u8>)>,
    damaged: Vec<Damaged>,
}

impl Gleaned {
    fn take(&mut self, place: &WholeBlock, payload: &[u8]) -> Result<(), String> {
        let header = &place.header;
        match header.kind {
            CHUNK | JOURNAL => {
                let chunk = Chunk::from_bytes(payload).map_err(|error| error.to_string())?;
                let last = chunk.index(chunk.len() - 1);
                let length = header.block_length() as u32;
                let saved = Saved {
                    position: chunk.first_position(),
                    entry: DirectoryEntry::of_chunk(chunk.header(), last, place.offset, length),
                };
                if header.kind == CHUNK {
                    self.chunks.push(saved);
                } else {
                    self.journal.push(saved);
                }
            }
            BlockKind::ROOT => {
                self.contents = Some(RootContents::read(payload)?);
                self.root_sequence = Some(header.sequence);
            }
            DIRECTORY => {
                self.nodes.insert(place.offset, read_any_block(payload)?);
            }
            ATTRIBUTES | RESULTS_PART => {
                let part = (header.kind, header.flags, place.offset);
                self.parts.insert(header.sequence, part);
            }
            RESULTS if payload.len() <= HEAD_BYTES_MAX => {
                self.heads.push((header.sequence, payload.to_vec()));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Chunks listed by the directory: one, or all below a damaged node.
struct KnownChunks {
    chunks: (u64, u64),
    position: u64,
    entry: DirectoryEntry,
}

impl Gleaned {
    /// Reads every whole block.
    fn new(disk: &dyn Disk, skips_page: bool) -> Gleaned {
        let scan = DamageScan::new(disk, skips_page);
        let mut gleaned = Gleaned {
            damaged: scan.damaged,
            ..Gleaned::default()
        };
        let mut stored = Vec::new();
        for place in &scan.blocks {
            let taken = read_at(disk, place.offset, &mut stored)
                .and_then(|header| expand(&header, &stored))
                .and_then(|payload| gleaned.take(place, &payload));
            if let Err(reason) = taken {
                let bytes = place.offset..place.end();
                gleaned.damaged.push(Damaged { bytes, reason });
            }
        }
        gleaned.damaged.sort_by_key(|damaged| damaged.bytes.start);
        gleaned
    }

    /// The chunks in order; where one is damaged, the journal blocks that it had replaced.
    fn chosen(&mut self) -> Vec<Saved> {
        let mut chosen: BTreeMap<u64, Saved> = BTreeMap::new();
        for saved in self.chunks.drain(..).chain(self.journal.drain(..)) {
            let before = chosen.range(..=saved.position).next_back();
            let follows = before.is_none_or(|(_, before)| {
                before.end() <= saved.position && before.entry.indices.1 < saved.entry.indices.0
            });
            let after = chosen.range(saved.position..).next();
            let precedes = after.is_none_or(|(_, after)| {
                saved.end() <= after.position && saved.entry.indices.1 < after.entry.indices.0
            });
            if follows && precedes {
                chosen.insert(saved.position, saved);
            }
        }
        let chosen: Vec<Saved> = chosen.into_values().collect();
        assert!(
            chosen.is_sorted_by(|one, next| one.end() <= next.position),
            "an operation is salvaged twice"
        );
        chosen
    }

    /// The chunks listed by the directory, in order.
    fn known(&mut self) -> Vec<KnownChunks> {
        let levels = self.contents.iter().flat_map(|contents| &contents.levels);
        let entries: Vec<Vec<DirectoryEntry>> = levels.cloned().collect();
        let mut known = Vec::new();
        let (mut chunk, mut position) = (0_u64, 0_u64);
        // A stack of entries, the next one last.
        let mut open: Vec<DirectoryEntry> = entries
            .into_iter()
            .flat_map(|level| level.into_iter().rev())
            .collect();
        while let Some(entry) = open.pop() {
            // Each node is expanded once, so that a forged cycle ends.
            let below = (entry.chunks > 1).then(|| self.nodes.remove(&entry.offset));
            if let Some(entries) = below.flatten() {
                open.extend(entries.into_iter().rev());
                continue;
            }
            let last = chunk.saturating_add(u64::from(entry.chunks).saturating_sub(1));
            known.push(KnownChunks {
                chunks: (chunk, last),
                position,
                entry,
            });
            chunk = last.saturating_add(1);
            position = position.saturating_add(entry.operations);
        }
        known
    }

    /// The gaps between and after these chunks.
    fn missing(&mut self, chunks: &[Saved], is_end_known: bool) -> Vec<Missing> {
        let known = self.known();
        let total = self.contents.as_ref().map_or(0, |root| root.operations);
        let mut missing = Vec::new();
        let (mut end, mut next_index) = (0, 0);
        for saved in chunks {
            if saved.position > end {
                let last = saved.entry.indices.0.checked_sub(1);
                missing.push(gap(&known, end..saved.position, (next_index, last)));
            }
            end = saved.end();
            next_index = saved.entry.indices.1.saturating_add(1);
        }
        if total > end {
            missing.push(gap(&known, end..total, (next_index, None)));
        } else if !is_end_known {
            missing.push(Missing {
                position: end,
                operations: None,
                indices: (next_index, None),
                chunks: None,
            });
        }
        assert!(
            missing.is_sorted_by(|one, next| one.position < next.position),
            "a gap is listed twice"
        );
        missing
    }

    /// The text of the parts with these sequence numbers, and their offsets.
    fn text(
        &self,
        disk: &dyn Disk,
        sequences: impl Iterator<Item = u64>,
    ) -> Option<(Vec<u8>, Vec<u64>)> {
        let (mut text, mut places) = (Vec::new(), Vec::new());
        for sequence in sequences {
            let (_, _, offset) = *self.parts.get(&sequence)?;
            text.extend(part(disk, offset).ok()?);
            places.push(offset);
        }
        Some((text, places))
    }

    fn attributes(&self, disk: &dyn Disk) -> Option<Json> {
        let is_first =
            |part: &(BlockKind, u16, u64)| part.0 == ATTRIBUTES && part.1 & CONTINUES == 0;
        let document = |first: u64| {
            // The highest number has no successor; `skip` avoids the overflow.
            let more = (first..=u64::MAX).skip(1).take_while(|sequence| {
                let part = self.parts.get(sequence);
                part.is_some_and(|part| part.0 == ATTRIBUTES && part.1 & CONTINUES != 0)
            });
            let (text, _) = self.text(disk, std::iter::once(first).chain(more))?;
            serde_json::from_slice(&text).ok()
        };
        // A repair writes them again; the newest whole ones count.
        let firsts = self.parts.iter().rev().filter(|(_, part)| is_first(part));
        firsts.map(|(&first, _)| first).find_map(document)
    }

    /// The analyses with whole results: their parts directly precede the head.
    fn analyses(&self, disk: &dyn Disk) -> Vec<SavedResults> {
        let saved = |(sequence, head): &(u64, Vec<u8>)| {
            let mut first = sequence.checked_sub(1)?;
            while self.parts.get(&first)?.1 & CONTINUES != 0 {
                first = first.checked_sub(1)?;
            }
            let (text, parts) = self.text(disk, first..*sequence)?;
            serde_json::from_slice::<Json>(&text).ok()?;
            Some(SavedResults {
                number: long(head.get(..HEAD_LENGTH)?, 8),
                valid: serde_json::from_slice(&head[HEAD_LENGTH..]).ok()?,
                parts,
            })
        };
        self.heads.iter().filter_map(saved).collect()
    }
}

/// The text of one part of a document.
fn part(disk: &dyn Disk, offset: u64) -> Result<Vec<u8>, String> {
    let mut stored = Vec::new();
    let header = read_at(disk, offset, &mut stored)?;
    expand(&header, &stored)
}

/// Describes the missing operations at these positions, whose indices are within `bounds`.
fn gap(known: &[KnownChunks], positions: Range<u64>, bounds: (u64, Option<u64>)) -> Missing {
    let end_of = |known: &KnownChunks| known.position.saturating_add(known.entry.operations);
    let inside = known.iter();
    let inside = inside.skip_while(|known| end_of(known) <= positions.start);
    let inside = inside.take_while(|known| known.position < positions.end);
    let inside: Vec<&KnownChunks> = inside.collect();
    let mut missing = Missing {
        position: positions.start,
        operations: Some(positions.end - positions.start),
        indices: bounds,
        chunks: None,
    };
    if let (Some(first), Some(last)) = (inside.first(), inside.last()) {
        missing.chunks = Some((first.chunks.0, last.chunks.1));
        if first.position >= positions.start {
            missing.indices.0 = first.entry.indices.0;
        }
        if end_of(last) <= positions.end {
            missing.indices.1 = Some(last.entry.indices.1);
        }
    }
    missing
}

impl Salvaged {
    /// Salvages the file on `disk`.
    pub(super) fn on(disk: Box<dyn ReadableDisk>, path: &Path) -> Result<Salvaged, OpenError> {
        let wrong = |cause| OpenError::Root {
            path: path.to_owned(),
            cause,
        };
        let hint = match root::hint(&*disk, PURPOSE) {
            // An unreadable page is damage like any other.
            Err(root::RootError::Fault { .. }) => None,
            hint => hint.map_err(wrong)?,
        };
        let mut page = [0; IDENTITY_LENGTH];
        let read = disk.read_at(0, &mut page);
        let is_ours = read.is_ok() && page[..] == root::first_page(PURPOSE)[..IDENTITY_LENGTH];
        let mut gleaned = Gleaned::new(&*disk, is_ours);
        if !is_ours && gleaned.chunks.is_empty() && gleaned.journal.is_empty() {
            return Err(wrong(root::RootError::Foreign));
        }
        if is_ours && hint.is_none() {
            let bytes = 0..root::PAGE_LENGTH as u64;
            let reason = "no slot of the first page is whole".to_owned();
            gleaned.damaged.insert(0, Damaged { bytes, reason });
        }
        let contents = gleaned.contents.as_ref();
        let complete = contents.is_some_and(|contents| contents.complete);
        let analyses_before = contents.map_or(0, |contents| contents.analyses);
        // An older root than the hinted one does not show how the file ended.
        let is_hinted_there = hint.is_some_and(|(_, sequence)| {
            gleaned
                .root_sequence
                .is_some_and(|newest| newest >= sequence)
        });
        let is_end_damaged = gleaned.damaged.last();
        let is_end_damaged = is_end_damaged.is_some_and(|last| last.bytes.end == disk.len());
        let chunks = gleaned.chosen();
        let missing = gleaned.missing(&chunks, complete || (is_hinted_there && !is_end_damaged));
        let heads = gleaned.heads.iter();
        let numbers = heads.filter_map(|(_, head)| Some(long(head.get(..HEAD_LENGTH)?, 8)));
        Ok(Salvaged {
            analyses_before: numbers.max().unwrap_or(0).max(analyses_before),
            attributes: gleaned.attributes(&*disk),
            analyses: gleaned.analyses(&*disk),
            path: path.to_owned(),
            disk,
            chunks,
            complete,
            damaged: gleaned.damaged,
            missing,
        })
    }

    /// Number of salvaged operations.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(|saved| saved.entry.operations).sum()
    }

    /// Is there no salvaged operation?
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Did its writer seal it?
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The lost operations, in order; empty if none is known to be missing.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The damaged bytes of the file, in order.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// The attributes; `None` if they are lost.
    pub fn attributes(&self) -> Option<&Json> {
        self.attributes.as_ref()
    }

    /// Number of analyses, with whole results or not.
    pub fn analyses(&self) -> u64 {
        self.analyses_before
    }

    /// Number and validity of each analysis with whole results, the newest first.
    pub fn validities(&self) -> impl Iterator<Item = Analysis> {
        self.analyses.iter().rev().map(|saved| Analysis {
            number: saved.number,
            valid: saved.valid.clone(),
        })
    }

    /// The newest whole results; `None` if there are none.
    pub fn results(&self) -> Result<Option<Json>, OpenError> {
        let newest = self.analyses.last();
        newest.map(|saved| self.results_at(saved)).transpose()
    }

    fn results_at(&self, saved: &SavedResults) -> Result<Json, OpenError> {
        let mut text = Vec::new();
        for &offset in &saved.parts {
            let part = part(&*self.disk, offset).map_err(|reason| OpenError::Block {
                path: self.path.clone(),
                offset,
                reason,
            })?;
            text.extend(part);
        }
        let offset = saved.parts.first().copied().unwrap_or(0);
        self.blocks().parse(offset, &text)
    }

    fn blocks(&self) -> FileBlocks<'_> {
        FileBlocks {
            disk: &*self.disk,
            path: &self.path,
        }
    }

    /// Number of salvaged chunks.
    pub fn chunk_count(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// The salvaged chunk with this number, from 0; `None` past the last one.
    pub fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, OpenError> {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(saved) = self.chunks.get(place) else {
            return Ok(None);
        };
        self.blocks()
            .chunk((number, saved.position), &saved.entry, buffer)?;
        Ok(Some(&buffer.chunk))
    }

    /// The operation with this index; `None` if it is missing.
    pub fn operation(&self, index: u64) -> Result<Option<Op>, OpenError> {
        let number = self
            .chunks
            .partition_point(|saved| saved.entry.indices.1 < index);
        let mut buffer = ChunkBuffer::default();
        let chunk = self.read_chunk(number as u64, &mut buffer)?;
        Ok(chunk.and_then(|chunk| Some(chunk.op(chunk.place(index)?))))
    }

    /// Loads all salvaged operations with their pairs. A completion whose invocation is missing is unpaired.
    pub fn history(&self) -> Result<History, OpenError> {
        Ok(self.gathered()?.history())
    }

    /// The salvaged operations without completions whose invocation is missing, and the number of these. The rest is a
    /// possible history: some operations were never invoked, others never completed.
    pub fn history_to_check(&self) -> Result<(History, usize), OpenError> {
        Ok(self.gathered()?.without_orphans())
    }

    fn gathered(&self) -> Result<Gathered, OpenError> {
        let mut gathered = Gathered::default();
        let mut buffer = ChunkBuffer::default();
        for number in 0..self.chunk_count() {
            if let Some(chunk) = self.read_chunk(number, &mut buffer)? {
                gathered.add(chunk, &self.path, self.len())?;
            }
        }
        Ok(gathered)
    }

    /// Missing operations and damaged bytes as JSON, for attributes and reports.
    pub fn report(&self) -> Json {
        let missing = self.missing.iter().map(|missing| {
            json!({
                "position": missing.position,
                "operations": missing.operations,
                "first_index": missing.indices.0,
                "last_index": missing.indices.1,
                "chunks": missing.chunks,
            })
        });
        let damaged = self.damaged.iter().map(|damaged| {
            json!({
                "from": damaged.bytes.start,
                "to": damaged.bytes.end,
                "reason": damaged.reason,
            })
        });
        json!({
            "missing": missing.collect::<Vec<Json>>(),
            "damaged": damaged.collect::<Vec<Json>>(),
        })
    }

    /// The new position, in a file of only the salvaged chunks, of the operation at `position`; `None` if it is missing.
    fn moved(&self, starts: &[u64], position: u64) -> Option<u64> {
        let after = self
            .chunks
            .partition_point(|saved| saved.position <= position);
        let number = after.checked_sub(1)?;
        let saved = &self.chunks[number];
        (position < saved.end()).then(|| starts[number] + (position - saved.position))
    }
}

impl Chunks for Salvaged {
    type Error = OpenError;

    fn chunk_count(&self) -> u64 {
        Salvaged::chunk_count(self)
    }

    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, OpenError> {
        Salvaged::read_chunk(self, number, buffer)
    }
}

/// Salvages the file at `path` ([`TestFile::salvage`]) into a new one at `new_path`, which must not exist: operations with
/// their indices and pairs, attributes, results. The member [`SALVAGED`] of the attributes lists what is missing, if anything.
pub fn salvage_to(path: &Path, new_path: &Path) -> Result<Salvaged, WriteError> {
    let salvaged = TestFile::salvage(path)?;
    let mut attributes = salvaged.attributes.clone().unwrap_or_else(|| json!({}));
    if !salvaged.missing.is_empty() || salvaged.attributes.is_none() {
        let mut report = salvaged.report();
        for member in ["missing", "damaged"] {
            // What an earlier salvage lost is still missing.
            let earlier = attributes[SALVAGED][member].as_array().cloned();
            if let (Some(earlier), Some(list)) = (earlier, report[member].as_array_mut()) {
                list.splice(0..0, earlier);
            }
        }
        if !attributes.is_object() {
            attributes = json!({});
        }
        attributes[SALVAGED] = report;
    }
    // A damaged file is evidence: no output may replace it, not even the salvaged one.
    let nothing = Path::new("");
    write_beside(&Files, nothing, new_path, &attributes, |packer| {
        packer.set_codec(Codec::Zstd);
        let mut starts = Vec::new();
        let mut next = 0;
        for saved in &salvaged.chunks {
            starts.push(next);
            next += saved.entry.operations;
        }
        let mut buffer = ChunkBuffer::default();
        for (number, &start) in starts.iter().enumerate() {
            salvaged.read_chunk(number as u64, &mut buffer)?;
            packer.add(&buffer, |chunk, place| {
                let invocation = chunk.invocation(place);
                let invocation = invocation.and_then(|it| salvaged.moved(&starts, it));
                invocation.map_or(0, |invocation| start + place as u64 - invocation)
            })?;
        }
        packer.finish_chunks()?;
        for saved in &salvaged.analyses {
            packer.results(&salvaged.results_at(saved)?)?;
        }
        packer.set_complete(salvaged.complete);
        Ok(())
    })?;
    Ok(salvaged)
}
