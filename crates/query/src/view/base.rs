//! State that all views of one history share.

use super::cache::CachedValue;
use super::view_completions::Completions;
use super::view_op::ViewPart;
use super::{ChunkCache, ViewError, ViewSource};
use seatrial_history::chunk::{ChunkAddress, ChunkSummary};
use seatrial_history::{Chunk, ChunkBuffer, Chunks, History};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Operations that count as a chunk of a history in memory.
pub(super) const ROWS_LENGTH: u64 = 16_384;
/// Buffers for reading that are kept for the next.
const BUFFERS_MAX: usize = 4;

/// Storage of the operations.
pub(super) enum BaseStorage {
    Rows(Arc<History>),
    Chunks(Arc<dyn ViewSource>),
}

/// Number and range of a chunk: enough to find an operation in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) number: u64,
    pub(super) first_position: u64,
    pub(super) operations: u64,
    /// What the directory says; nothing for a history in memory.
    pub(super) summary: Option<ChunkSummary>,
}

impl Spot {
    /// The place of the operation at this position, if it is here.
    pub(super) fn place(&self, position: u64) -> Option<usize> {
        let place = position.checked_sub(self.first_position)?;
        (place < self.operations).then_some(place as usize)
    }
}

/// A history, the part of its directory that was needed so far (80 bytes per chunk), its share of a cache, and its pairs.
pub struct ViewBase {
    kind: BaseStorage,
    pub(super) cache: Arc<ChunkCache>,
    owner: u64,
    length: u64,
    /// Stretches of the directory that were read, in order.
    directory: RwLock<Vec<Arc<[ChunkSummary]>>>,
    buffers: Mutex<Vec<ChunkBuffer>>,
    pub(super) completions: Completions,
}

impl fmt::Debug for ViewBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewBase")
            .field("length", &self.length)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Drop for ViewBase {
    fn drop(&mut self) {
        self.cache.forget(self.owner);
    }
}

impl ViewBase {
    pub(super) fn new(kind: BaseStorage, cache: Arc<ChunkCache>) -> ViewBase {
        ViewBase {
            length: match &kind {
                BaseStorage::Rows(history) => history.len() as u64,
                BaseStorage::Chunks(source) => source.len(),
            },
            kind,
            owner: cache.owner(),
            cache,
            directory: RwLock::default(),
            buffers: Mutex::default(),
            completions: Completions::default(),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    pub(super) fn kind(&self) -> &BaseStorage {
        &self.kind
    }

    pub(super) fn chunk_count(&self) -> u64 {
        match &self.kind {
            BaseStorage::Rows(_) => self.length.div_ceil(ROWS_LENGTH),
            BaseStorage::Chunks(source) => source.chunk_count(),
        }
    }

    /// The chunk at `place`.
    pub(super) fn spot(&self, place: ChunkAddress) -> Result<Option<Spot>, ViewError> {
        match &self.kind {
            BaseStorage::Rows(history) => Ok(self.rows(history, place)),
            BaseStorage::Chunks(source) => {
                Ok(self.summary(source.as_ref(), place)?.map(|summary| Spot {
                    number: summary.number,
                    first_position: summary.first_position,
                    operations: summary.operations,
                    summary: Some(summary),
                }))
            }
        }
    }

    fn rows(&self, history: &History, place: ChunkAddress) -> Option<Spot> {
        let number = match place {
            ChunkAddress::Chunk(number) => number,
            ChunkAddress::Position(position) => position / ROWS_LENGTH,
            ChunkAddress::Index(index) => history.position_from(index) as u64 / ROWS_LENGTH,
        };
        let first_position = number.checked_mul(ROWS_LENGTH)?;
        let left = self.length.checked_sub(first_position)?;
        (left > 0).then_some(Spot {
            number,
            first_position,
            operations: left.min(ROWS_LENGTH),
            summary: None,
        })
    }

    fn summary(
        &self,
        source: &dyn ViewSource,
        place: ChunkAddress,
    ) -> Result<Option<ChunkSummary>, ViewError> {
        let is_before = |summary: &ChunkSummary| match place {
            ChunkAddress::Chunk(number) => summary.number < number,
            ChunkAddress::Position(position) => summary.end_position() <= position,
            ChunkAddress::Index(index) => summary.last_index < index,
        };
        let directory = self
            .directory
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let known = directory.partition_point(|stretch| stretch.last().is_some_and(is_before));
        if let Some(stretch) = directory.get(known) {
            let at = stretch.partition_point(is_before);
            // The first chunk of a stretch is certain only if the stretch before it is known.
            let follows = |before: &Arc<[ChunkSummary]>| {
                let last = before.last().map(|last| last.number + 1);
                last == Some(stretch[0].number)
            };
            let is_certain = match place {
                ChunkAddress::Chunk(number) => stretch[at].number == number,
                ChunkAddress::Position(position) => stretch[at].first_position <= position,
                ChunkAddress::Index(index) => {
                    at > 0
                        || stretch[at].first_index <= index
                        || stretch[0].number == 0
                        || (known > 0 && follows(&directory[known - 1]))
                }
            };
            if is_certain {
                return Ok(Some(stretch[at]));
            }
        }
        drop(directory);
        let stretch = source.summaries(place)?;
        let at = stretch.partition_point(is_before);
        let found = stretch.get(at).copied();
        self.keep(stretch);
        Ok(found)
    }

    /// Adds a stretch of the directory unless it overlaps a known one.
    fn keep(&self, stretch: Vec<ChunkSummary>) {
        let (Some(first), Some(last)) = (stretch.first(), stretch.last()) else {
            return;
        };
        let mut directory = self
            .directory
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let at = directory.partition_point(|known| known[0].number < first.number);
        let before = at
            .checked_sub(1)
            .and_then(|before| directory[before].last());
        let is_behind = before.is_none_or(|before| before.number < first.number);
        let is_free = directory
            .get(at)
            .is_none_or(|next| last.number < next[0].number);
        if is_behind && is_free {
            directory.insert(at, stretch.into());
        }
    }

    /// The operations of a chunk, kept in the cache.
    pub(super) fn part(&self, spot: &Spot) -> Result<ViewPart, ViewError> {
        let BaseStorage::Chunks(source) = &self.kind else {
            return self.stretch(spot);
        };
        let key = (self.owner, spot.number);
        let kept = self.cache.get(key, || {
            self.read(source.as_ref(), spot.number)
                .map(CachedValue::Chunk)
        });
        columns(kept?, spot.number)
    }

    /// The operations of a chunk for a full pass: uses the cache, but adds nothing to it.
    pub(super) fn passing_part(&self, spot: &Spot) -> Result<ViewPart, ViewError> {
        let BaseStorage::Chunks(source) = &self.kind else {
            return self.stretch(spot);
        };
        match self.cache.peek((self.owner, spot.number)) {
            Some(kept) => columns(kept, spot.number),
            None => self
                .read(source.as_ref(), spot.number)
                .map(ViewPart::Columns),
        }
    }

    fn stretch(&self, spot: &Spot) -> Result<ViewPart, ViewError> {
        match &self.kind {
            BaseStorage::Rows(history) => Ok(ViewPart::Rows {
                history: history.clone(),
                first: spot.first_position as usize,
                length: spot.operations as usize,
            }),
            BaseStorage::Chunks(_) => Err(ViewError::Gone(spot.number)),
        }
    }

    /// Decodes a chunk.
    fn read(&self, source: &dyn ViewSource, number: u64) -> Result<Arc<Chunk>, ViewError> {
        let buffers = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = buffers().pop().unwrap_or_default();
        let is_there = source.read(number, &mut buffer)?.is_some();
        let chunk = std::mem::take(&mut buffer.chunk);
        let mut buffers = buffers();
        if buffers.len() < BUFFERS_MAX {
            buffers.push(buffer);
        }
        if !is_there || chunk.is_empty() {
            return Err(ViewError::Gone(number));
        }
        Ok(Arc::new(chunk))
    }

    /// The chunk of the operation with this index, and its place there.
    pub(super) fn find(&self, index: u64) -> Result<Option<(Spot, usize)>, ViewError> {
        if let BaseStorage::Rows(history) = &self.kind {
            let Some(position) = history.position(index) else {
                return Ok(None);
            };
            let spot = self.rows(history, ChunkAddress::Position(position as u64));
            return Ok(spot.map(|spot| (spot, position % ROWS_LENGTH as usize)));
        }
        let Some(spot) = self.spot(ChunkAddress::Index(index))? else {
            return Ok(None);
        };
        if let Some(summary) = spot.summary {
            if index < summary.first_index {
                return Ok(None);
            }
            if summary.last_index - summary.first_index == spot.operations - 1 {
                return Ok(Some((spot, (index - summary.first_index) as usize)));
            }
        }
        match self.part(&spot)? {
            ViewPart::Columns(chunk) => Ok(chunk.place(index).map(|place| (spot, place))),
            ViewPart::Rows { .. } => Ok(None),
        }
    }
}

/// A chunk that was kept.
fn columns(kept: CachedValue, number: u64) -> Result<ViewPart, ViewError> {
    match kept {
        CachedValue::Chunk(chunk) => Ok(ViewPart::Columns(chunk)),
        CachedValue::Mask(_) => Err(ViewError::Gone(number)),
    }
}

impl Chunks for ViewBase {
    type Error = ViewError;

    fn chunk_count(&self) -> u64 {
        ViewBase::chunk_count(self)
    }

    /// A chunk of a history in memory, which takes long to make, is kept in the cache.
    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError> {
        let history = match &self.kind {
            BaseStorage::Chunks(source) => return source.read(number, buffer),
            BaseStorage::Rows(history) => history,
        };
        let kept = self.cache.get((self.owner, number), || {
            let chunk = history.read_chunk(number, buffer)?.cloned();
            let chunk = chunk.ok_or(ViewError::Gone(number))?;
            Ok::<_, ViewError>(CachedValue::Chunk(Arc::new(chunk)))
        })?;
        let CachedValue::Chunk(chunk) = kept else {
            return Err(ViewError::Gone(number));
        };
        buffer.chunk.clone_from(&chunk);
        Ok(Some(&buffer.chunk))
    }
}
