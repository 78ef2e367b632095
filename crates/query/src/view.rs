//! Views: a history of any size through filters and maps, without loading it.
//!
//! A [`View`] of a test file reads chunks on demand and caches some of them; a view of a [`History`] borrows from it. Filters
//! and maps are stacked on a view and applied on each access. As in Jepsen's histories, an operation keeps its index through
//! all of them.
//!
//! ```
//! use seatrial_history::{History, Op, OpType, Process, Value};
//! use seatrial_query::View;
//!
//! let read = Op::invoke(Process::Client(0), "read", Value::Nil);
//! let ok = read.complete(OpType::Ok, Value::Int(3));
//! let view = View::of(History::from_unindexed(vec![read, ok]));
//!
//! let oks = view.oks().map(|op| Op { value: Value::Nil, ..op });
//! assert_eq!((oks.len()?, oks.nth(0)?.unwrap().index()), (1, 1));
//! let completion = view.nth(1)?.unwrap();
//! assert_eq!(view.invocation(completion.index())?.unwrap().kind(), OpType::Invoke);
//! assert!(oks.invocation(completion.index())?.is_none(), "it is not in the view");
//! # Ok::<(), seatrial_query::ViewError>(())
//! ```

mod base;
mod cache;
mod filter;
mod iterate;
mod layers;
mod mask;
mod matches;
mod view_completions;
mod view_fold;
mod view_op;
mod view_source;

pub use cache::{CACHE_BYTES_MAX, CacheFigures, ChunkCache, Pressure};
pub use filter::ViewFilter;
pub use iterate::ViewIter;
pub use view_fold::{ViewFold, ViewItems, ViewScope};
pub use view_op::{OpRef, ViewOp};
pub use view_source::{ViewError, ViewSource};

pub use base::ViewBase;
use base::{BaseStorage, Spot};
use layers::{Layers, Made};
use matches::Matches;
use seatrial_files::SystemMemory;
use seatrial_history::UNPAIRED;
use seatrial_history::chunk::ChunkAddress;
use seatrial_history::{
    Folder, History, Mop, Observed, Op, OpType, Process, Symbol, TestFile, Value,
};
use std::ops::{Bound, Range, RangeBounds};
use std::sync::{Arc, OnceLock};
use view_op::ViewPart;

/// A history, or a part of one, seen through filters and maps. Immutable; cloning it is cheap, and any number of threads
/// may use it at a time.
///
/// A position counts the operations of the view, from 0; an index is an operation's own number, the same in every view. A
/// view consists of a range of its base, a list of layers (filters and maps, in any order) and, once needed, the number of
/// passing operations of each chunk. Access by position reads one chunk; with filters after a binary search. Counting stops
/// as soon as the answer is known. Decoded chunks are kept in a [`ChunkCache`], shared by all views of a base and optionally
/// by several bases.
///
/// A map must keep the process, or change it one to one; it cannot change the index. Pairs are those of the base. Cost: maps
/// and filters run again on each access; for repeated passes over a small view use [`View::to_history`].
#[derive(Clone, Debug)]
pub struct View {
    base: Arc<ViewBase>,
    folder: Arc<OnceLock<Folder<ViewBase>>>,
    layers: Layers,
    /// Positions in the base.
    span: Range<u64>,
    /// The passing operations; `None` without filters.
    matches: Option<Arc<Matches>>,
    /// Passing operations before the view's range.
    skipped: u64,
    /// Number of operations, if known.
    length: Option<u64>,
}

/// Most operations that are taken into memory.
const HISTORY_OPERATIONS_MAX: u64 = u32::MAX as u64 - 1;
/// Most list elements of them: 8 GiB.
const HISTORY_ELEMENTS_MAX: u64 = 1 << 30;

impl View {
    /// A view of a whole history in memory.
    pub fn of(history: impl Into<Arc<History>>) -> View {
        // For masks of filters, and for the columns that folds read.
        let cache = ChunkCache::default().under(Arc::new(SystemMemory));
        View::new(BaseStorage::Rows(history.into()), Arc::new(cache))
    }

    /// A view of the history in a test file, with its own cache: [`CACHE_BYTES_MAX`], less when the machine's memory is short.
    pub fn of_file(file: impl Into<Arc<TestFile>>) -> View {
        let cache = ChunkCache::default().under(Arc::new(SystemMemory));
        View::new(BaseStorage::Chunks(file.into()), Arc::new(cache))
    }

    /// A view of any history in chunks, with a cache that may be shared.
    pub fn of_source(source: Arc<dyn ViewSource>, cache: Arc<ChunkCache>) -> View {
        View::new(BaseStorage::Chunks(source), cache)
    }

    fn new(kind: BaseStorage, cache: Arc<ChunkCache>) -> View {
        let base = Arc::new(ViewBase::new(kind, cache));
        View {
            span: 0..base.len(),
            length: Some(base.len()),
            base,
            folder: Arc::default(),
            layers: Layers::default(),
            matches: None,
            skipped: 0,
        }
    }

    /// The whole history without filters and maps.
    #[must_use]
    pub fn base(&self) -> View {
        View {
            span: 0..self.base.len(),
            length: Some(self.base.len()),
            base: self.base.clone(),
            folder: self.folder.clone(),
            layers: Layers::default(),
            matches: None,
            skipped: 0,
        }
    }

    /// The cache of decoded chunks.
    pub fn cache(&self) -> &Arc<ChunkCache> {
        &self.base.cache
    }

    /// Number of operations. With filters this reads the history once, except for chunks that the directory decides.
    pub fn len(&self) -> Result<u64, ViewError> {
        match (self.length, &self.matches) {
            (Some(length), _) => Ok(length),
            (None, Some(matches)) => matches.total(),
            (None, None) => Ok(self.span.end - self.span.start),
        }
    }

    /// Is the view empty? Reads only up to the first operation.
    pub fn is_empty(&self) -> Result<bool, ViewError> {
        match self.length {
            Some(length) => Ok(length == 0),
            None => Ok(self.locate(0)?.is_none()),
        }
    }

    /// The operation at this position, from 0; `None` past the end.
    pub fn nth(&self, position: u64) -> Result<Option<ViewOp>, ViewError> {
        let Some((spot, place)) = self.locate(position)? else {
            return Ok(None);
        };
        let part = self.base.part(&spot)?;
        let built = self.layers.build(part.at(place));
        Ok(Some(ViewOp { part, place, built }))
    }

    /// The chunk of the operation at this position, and its place there.
    fn locate(&self, position: u64) -> Result<Option<(Spot, usize)>, ViewError> {
        if self.length.is_some_and(|length| position >= length) {
            return Ok(None);
        }
        if let Some(matches) = &self.matches {
            let hit = matches.select(self.skipped.saturating_add(position))?;
            return Ok(hit.map(|hit| (hit.spot, hit.place)));
        }
        let position = self.span.start + position;
        let spot = self.base.spot(ChunkAddress::Position(position))?;
        Ok(spot.map(|spot| (spot, (position - spot.first_position) as usize)))
    }

    /// The first operation.
    pub fn first(&self) -> Result<Option<ViewOp>, ViewError> {
        self.nth(0)
    }

    /// The last operation.
    pub fn last(&self) -> Result<Option<ViewOp>, ViewError> {
        match self.len()? {
            0 => Ok(None),
            length => self.nth(length - 1),
        }
    }

    /// The operation with this index, if it is in the view.
    pub fn get(&self, index: u64) -> Result<Option<ViewOp>, ViewError> {
        let Some((spot, place)) = self.base.find(index)? else {
            return Ok(None);
        };
        Ok(self.admit(self.base.part(&spot)?, place))
    }

    /// The operation at a place of a chunk, if it is in the view.
    fn admit(&self, part: ViewPart, place: usize) -> Option<ViewOp> {
        let position = part.first_position() + place as u64;
        if !self.span.contains(&position) {
            return None;
        }
        let Made(built) = self.layers.admit(part.at(place))?;
        Some(ViewOp { part, place, built })
    }

    /// The position of the operation with this index, if it is in the view. With filters it counts the operations before it.
    pub fn position(&self, index: u64) -> Result<Option<u64>, ViewError> {
        match self.base.find(index)? {
            Some((spot, place)) => self.position_of(&spot, place),
            None => Ok(None),
        }
    }

    /// The position of the operation at a place of a chunk, if it is in the view.
    fn position_of(&self, spot: &Spot, place: usize) -> Result<Option<u64>, ViewError> {
        let position = spot.first_position + place as u64;
        if !self.span.contains(&position) {
            return Ok(None);
        }
        let Some(matches) = &self.matches else {
            return Ok(Some(position - self.span.start));
        };
        if !matches.mask(spot)?.has(place) {
            return Ok(None);
        }
        Ok(Some(matches.rank(spot, position)? - self.skipped))
    }

    /// Does the index of each operation equal its position?
    pub fn is_dense(&self) -> Result<bool, ViewError> {
        let (Some(first), Some(last)) = (self.first()?, self.last()?) else {
            return Ok(true);
        };
        // Indices rise.
        Ok(first.index() == 0 && last.index() == self.len()? - 1)
    }

    /// The operations at these positions, in a view whose positions begin with 0; positions past the end are left out.
    pub fn slice(&self, positions: impl RangeBounds<u64>) -> Result<View, ViewError> {
        let start = match positions.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match positions.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        let end = end.min(self.len()?);
        let start = start.min(end);
        let span = if start == end {
            self.span.start..self.span.start
        } else {
            self.to_base(start)?..self.to_base(end - 1)? + 1
        };
        Ok(View {
            span,
            skipped: self.skipped + start,
            length: Some(end - start),
            ..self.clone()
        })
    }

    /// The position in the base of the operation at a position that is known to be in the view.
    fn to_base(&self, position: u64) -> Result<u64, ViewError> {
        match self.locate(position)? {
            Some((spot, place)) => Ok(spot.first_position + place as u64),
            None => Ok(self.span.end),
        }
    }

    /// All operations in order.
    pub fn iter(&self) -> ViewIter {
        ViewIter::new(self.clone())
    }

    /// The position of the other half of the operation at this position, if it is in the view: completion of an
    /// invocation, invocation of a completion.
    pub fn pair(&self, position: u64) -> Result<Option<u64>, ViewError> {
        let Some((spot, place)) = self.locate(position)? else {
            return Ok(None);
        };
        let other = self.base.pair(&spot, &self.base.part(&spot)?, place)?;
        let Some(other) = other else {
            return Ok(None);
        };
        match self.base.spot(ChunkAddress::Position(other))? {
            Some(spot) => self.position_of(&spot, (other - spot.first_position) as usize),
            None => Ok(None),
        }
    }

    /// The completion of the invocation with this index, if both are in the view; [`View::base`] has no filters.
    pub fn completion(&self, index: u64) -> Result<Option<ViewOp>, ViewError> {
        self.other(index, |position, other| other > position)
    }

    /// The invocation of the completion with this index, if both are in the view.
    pub fn invocation(&self, index: u64) -> Result<Option<ViewOp>, ViewError> {
        self.other(index, |position, other| other < position)
    }

    fn other(
        &self,
        index: u64,
        is_meant: impl Fn(u64, u64) -> bool,
    ) -> Result<Option<ViewOp>, ViewError> {
        let Some((spot, place)) = self.base.find(index)? else {
            return Ok(None);
        };
        let part = self.base.part(&spot)?;
        let position = spot.first_position + place as u64;
        let other = self.base.pair(&spot, &part, place)?;
        let Some(other) = other.filter(|&other| is_meant(position, other)) else {
            return Ok(None);
        };
        let is_in = self.span.contains(&position)
            && (self.matches.is_none() || self.layers.admit(part.at(place)).is_some());
        if !is_in {
            return Ok(None);
        }
        if let Some(place) = spot.place(other) {
            return Ok(self.admit(part, place));
        }
        match self.base.spot(ChunkAddress::Position(other))? {
            Some(spot) => {
                let place = (other - spot.first_position) as usize;
                Ok(self.admit(self.base.part(&spot)?, place))
            }
            None => Ok(None),
        }
    }

    /// The same operations, each replaced by `mapping` of it on each access. Its index is kept.
    #[must_use]
    pub fn map(&self, mapping: impl Fn(Op) -> Op + Send + Sync + 'static) -> View {
        View {
            layers: self.layers.map(Arc::new(mapping)),
            ..self.clone()
        }
    }

    /// The operations for which `predicate` holds. A [`ViewFilter`] with [`View::select`] is faster.
    #[must_use]
    pub fn filter(&self, predicate: impl Fn(OpRef<'_>) -> bool + Send + Sync + 'static) -> View {
        self.through(self.layers.filter(Arc::new(predicate)))
    }

    /// The operations for which `predicate` does not hold.
    #[must_use]
    pub fn remove(&self, predicate: impl Fn(OpRef<'_>) -> bool + Send + Sync + 'static) -> View {
        self.filter(move |op| !predicate(op))
    }

    /// The operations that pass `filter`.
    #[must_use]
    pub fn select(&self, filter: &ViewFilter) -> View {
        self.through(self.layers.select(filter))
    }

    fn through(&self, layers: Layers) -> View {
        let matches = Matches::new(&self.base, layers.clone(), self.span.clone());
        View {
            base: self.base.clone(),
            folder: self.folder.clone(),
            layers,
            span: self.span.clone(),
            matches: Some(Arc::new(matches)),
            skipped: 0,
            length: None,
        }
    }

    /// The operations of clients.
    #[must_use]
    pub fn clients(&self) -> View {
        self.select(&ViewFilter::all().clients())
    }

    /// The operations of the nemesis and of other processes that are no clients.
    #[must_use]
    pub fn nemesis(&self) -> View {
        self.select(&ViewFilter::all().nemesis())
    }

    /// The operations of one type.
    #[must_use]
    pub fn by_type(&self, kind: OpType) -> View {
        self.select(&ViewFilter::all().types(&[kind]))
    }

    /// The invocations.
    #[must_use]
    pub fn invokes(&self) -> View {
        self.by_type(OpType::Invoke)
    }

    /// The operations that took place.
    #[must_use]
    pub fn oks(&self) -> View {
        self.by_type(OpType::Ok)
    }

    /// The operations that did not take place.
    #[must_use]
    pub fn fails(&self) -> View {
        self.by_type(OpType::Fail)
    }

    /// The operations with unknown outcome.
    #[must_use]
    pub fn infos(&self) -> View {
        self.by_type(OpType::Info)
    }

    /// The operations that took place or may have.
    #[must_use]
    pub fn possible(&self) -> View {
        self.select(&ViewFilter::all().possible())
    }

    /// The operations of one process.
    #[must_use]
    pub fn by_process(&self, process: Process) -> View {
        self.select(&ViewFilter::all().processes([process]))
    }

    /// The operations with one of these functions; for one: `by_f(["read"])`.
    #[must_use]
    pub fn by_f<F: Into<Symbol>>(&self, fs: impl IntoIterator<Item = F>) -> View {
        self.select(&ViewFilter::all().fs(fs))
    }

    /// The operations whose time, in nanoseconds since the test began, is in this range.
    #[must_use]
    pub fn between(&self, times: impl RangeBounds<i64>) -> View {
        self.select(&ViewFilter::all().times(times))
    }

    /// Loads all operations into memory, for checkers that need this. Pairs are those of the base with both halves in the view.
    pub fn to_history(&self) -> Result<History, ViewError> {
        let mut ops = Vec::new();
        // Positions in the base, to find invocations.
        let mut positions = Vec::new();
        let mut pairs = Vec::new();
        let mut elements = 0;
        for op in self {
            let op = op?;
            let position = op.base_position();
            let invocation = op.invocation_at_base();
            let invocation = invocation.and_then(|other| positions.binary_search(&other).ok());
            match invocation {
                Some(other) if pairs[other] == UNPAIRED => {
                    pairs[other] = ops.len() as u32;
                    pairs.push(other as u32);
                }
                _ => pairs.push(UNPAIRED),
            }
            positions.push(position);
            let op = op.into_op();
            elements += list_elements(&op.value);
            ops.push(op);
            let operations = ops.len() as u64;
            if operations > HISTORY_OPERATIONS_MAX || elements > HISTORY_ELEMENTS_MAX {
                return Err(ViewError::TooLarge {
                    operations,
                    elements,
                });
            }
        }
        Ok(History::with_pairs(ops, pairs))
    }
}

/// The number of list elements of a value.
fn list_elements(value: &Value) -> u64 {
    match value {
        Value::List(elements) | Value::Set(elements) => elements.len() as u64,
        Value::Keyed(_, value) => list_elements(value),
        Value::Txn(mops) => mops.iter().map(of_mop).sum(),
        _ => 0,
    }
}

fn of_mop(mop: &Mop) -> u64 {
    match mop {
        Mop::Read {
            observed: Observed::List(elements),
            ..
        } => elements.len() as u64,
        _ => 0,
    }
}

impl IntoIterator for &View {
    type Item = Result<ViewOp, ViewError>;
    type IntoIter = ViewIter;
    fn into_iter(self) -> ViewIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
