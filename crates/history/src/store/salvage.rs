//! Salvages the whole chunks of a damaged test file.

use super::block_kinds::{
    ATTRIBUTES, CHUNK, CONTINUES, DIRECTORY, JOURNAL, RESULTS, RESULTS_PART, long,
};
use super::directory::{DirectoryEntry, RootContents, read_any_block};
use super::document::{Analysis, FileBlocks, HEAD_LENGTH};
use super::file::{OpenError, ReadableDisk};
use super::pack::write_beside;
use super::reader::{ChunkBuffer, Gathered, TestFile};
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

/// The member of the attributes in which a salvaged file says what it lacks.
pub const SALVAGED: &str = "salvaged";

/// Bytes of the first page that say what the file is.
const IDENTITY_LENGTH: usize = 20;

/// A validity is `true`, `false` or a short text; what claims more is no head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Operations that a damaged file has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The position of the first in the history.
    pub position: u64,
    /// How many; `None` at the end of a file of which nobody knows how long it was.
    pub operations: Option<u64>,
    /// The indices of the first and the last one, or bounds for them when the directory does not say.
    pub indices: (u64, Option<u64>),
    /// Numbers of the first and the last chunk they were in, where the directory says so.
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

/// All that is left of a damaged test file, with the reading calls of a [`TestFile`]; made by [`TestFile::salvage`].
///
/// Chunks keep their positions and pairs, so a completion never seems to belong to another invocation than its own; only
/// their numbers are counted anew. When a damaged chunk's journal blocks are whole, its operations are taken from there.
/// Its downside: opening reads the whole file, and holds 96 bytes for each chunk.
#[derive(Debug)]
pub struct Salvaged {
    path: PathBuf,
    disk: Box<dyn ReadableDisk>,
    chunks: Vec<Saved>,
    complete: bool,
    attributes: Option<Json>,
    analyses: Vec<SavedResults>,
    /// How many there were, as far as anything says so.
    analyses_before: u64,
    damaged: Vec<Damaged>,
    missing: Vec<Missing>,
}

impl TestFile {
    /// Reads everything that is whole in the file at `path`, however damaged the rest is: first page, root, directory, any
    /// block, or bytes missing in the middle. [`Salvaged::missing`] says what is not there. An error only if the system does not
    /// give the file, or if it is a file of another purpose or of a version that this program does not know.
    pub fn salvage(path: &Path) -> Result<Salvaged, OpenError> {
        Salvaged::on(Box::new(ReadFile::open(path)?), path)
    }
}

/// What the whole blocks of a file say.
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
    /// Whole chunks of text, by sequence number: kind, flags, offset.
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

/// Chunks that the directory knows of, one or all below a node that is not whole.
struct KnownChunks {
    chunks: (u64, u64),
    position: u64,
    entry: DirectoryEntry,
}

impl Gleaned {
    /// Takes what every whole block says.
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

    /// The chunks, and where they are missing the journal blocks that they had replaced, in order.
    fn chosen(&mut self) -> Vec<Saved> {
        let mut chosen: BTreeMap<u64, Saved> = BTreeMap::new();
        for saved in self.chunks.drain(..).chain(self.journal.drain(..)) {
            let before = chosen.range(..=saved.position).next_back();
            let is_behind = before.is_none_or(|(_, before)| {
                before.end() <= saved.position && before.entry.indices.1 < saved.entry.indices.0
            });
            let after = chosen.range(saved.position..).next();
            let is_in_front = after.is_none_or(|(_, after)| {
                saved.end() <= after.position && saved.entry.indices.1 < after.entry.indices.0
            });
            if is_behind && is_in_front {
                chosen.insert(saved.position, saved);
            }
        }
        chosen.into_values().collect()
    }

    /// What the directory knows, in order.
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
            // Each node is read once, whatever points at it.
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

    /// The gaps between and behind these chunks.
    fn missing(&mut self, chunks: &[Saved], is_end_known: bool) -> Vec<Missing> {
        let known = self.known();
        let total = self.contents.as_ref().map_or(0, |root| root.operations);
        let mut missing = Vec::new();
        let (mut end, mut next_index) = (0, 0);
        for saved in chunks {
            if saved.position > end {
                let behind = saved.entry.indices.0.checked_sub(1);
                missing.push(gap(&known, end..saved.position, (next_index, behind)));
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
        missing
    }

    /// The text of the parts with these sequence numbers, and where they are.
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
            // A damaged file may have a block with the highest number.
            let more = (first..=u64::MAX).skip(1).take_while(|sequence| {
                let part = self.parts.get(sequence);
                part.is_some_and(|part| part.0 == ATTRIBUTES && part.1 & CONTINUES != 0)
            });
            let (text, _) = self.text(disk, std::iter::once(first).chain(more))?;
            serde_json::from_slice(&text).ok()
        };
        // A repair writes them once more; the newest that are whole count.
        let firsts = self.parts.iter().rev().filter(|(_, part)| is_first(part));
        firsts.map(|(&first, _)| first).find_map(document)
    }

    /// The analyses whose results are whole: their parts stand right in front of the head.
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

/// What is known of the operations at these positions, whose indices are within `bounds`.
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
    /// Salvages what is on `disk`.
    pub(super) fn on(disk: Box<dyn ReadableDisk>, path: &Path) -> Result<Salvaged, OpenError> {
        let wrong = |cause| OpenError::Root {
            path: path.to_owned(),
            cause,
        };
        let hint = match root::hint(&*disk, PURPOSE) {
            // A page that the medium does not give is damage like any other.
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
        // An older root says nothing of what came after it.
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

    /// Operations that are there.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(|saved| saved.entry.operations).sum()
    }

    /// Is no operation there?
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Did its writer seal it?
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// What is not there, in the order of the history. Empty when every operation that the file ever told of is there.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The bytes of the file that are of no use, in order.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// What the test was; `None` when that is lost.
    pub fn attributes(&self) -> Option<&Json> {
        self.attributes.as_ref()
    }

    /// How many analyses had left results, whole or not.
    pub fn analyses(&self) -> u64 {
        self.analyses_before
    }

    /// Each analysis whose results are whole, the newest first.
    pub fn validities(&self) -> impl Iterator<Item = Analysis> {
        self.analyses.iter().rev().map(|saved| Analysis {
            number: saved.number,
            valid: saved.valid.clone(),
        })
    }

    /// The newest results that are whole; `None` when there are none.
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

    /// Chunks that are there.
    pub fn chunk_count(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// The chunk with this number among those that are there; `None` behind the last one.
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

    /// The operation with this index; `None` when it is not there.
    pub fn operation(&self, index: u64) -> Result<Option<Op>, OpenError> {
        let number = self
            .chunks
            .partition_point(|saved| saved.entry.indices.1 < index);
        let mut buffer = ChunkBuffer::default();
        let chunk = self.read_chunk(number as u64, &mut buffer)?;
        Ok(chunk.and_then(|chunk| Some(chunk.op(chunk.place(index)?))))
    }

    /// All operations that are there, paired as they were. A completion whose invocation is missing has none.
    pub fn history(&self) -> Result<History, OpenError> {
        Ok(self.gathered()?.history())
    }

    /// The same without the completions whose invocation is missing, and how many these are. What is left is a history
    /// that could have happened: some operations were never invoked, others never completed.
    pub fn history_to_judge(&self) -> Result<(History, usize), OpenError> {
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

    /// What is missing and damaged, for the attributes of a new file and for machines.
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

    /// The position in a file of nothing but these chunks of the operation at `position`, if it is there.
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

/// Salvages the file at `path` ([`TestFile::salvage`]) into a whole new one at `new_path`, which must not exist: its
/// operations with indices and pairs as they were, attributes, results. If anything is missing, the member [`SALVAGED`] of the
/// attributes says what.
pub fn salvage_to(path: &Path, new_path: &Path) -> Result<Salvaged, WriteError> {
    let salvaged = TestFile::salvage(path)?;
    let mut attributes = salvaged.attributes.clone().unwrap_or_else(|| json!({}));
    if !salvaged.missing.is_empty() || salvaged.attributes.is_none() {
        let mut report = salvaged.report();
        for member in ["missing", "damaged"] {
            // What an earlier salvage could not save is missing still.
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
    // A damaged file is evidence: nothing takes its place, not even what was salvaged from it.
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
