//! The work matrix: decides which chunk is reduced next, and for which folds.

use super::Order;
use super::chunk_set::ChunkSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::mem;

/// Folds that run at a time; further ones queue. Bounds the accumulators in memory.
pub(super) const FOLDS_LIVE_MAX: usize = 64;
/// Folds that may queue; further ones are refused.
pub(super) const FOLDS_QUEUED_MAX: usize = 65_536;
/// A fold that combines in order gets only chunks within this many of its first uncombined chunk. Bounds its waiting
/// parts, however late it was submitted and however long a chunk takes.
pub(super) const WINDOW_CHUNKS: u64 = 64;
/// One claim in this many serves the oldest fold first, so that it ends however many folds are submitted after it.
const OLDEST_TURN: u64 = 16;
/// Idle workers decode at most this many chunks ahead of a linear fold.
const AHEAD_CHUNKS: u64 = 2;

/// Identifies a fold; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FoldId(u64);

/// What the matrix knows of a fold when it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FoldRequest {
    pub(super) order: Order,
    pub(super) asap: bool,
    /// Chunks of the history.
    pub(super) chunk_count: u64,
}

/// The accumulator of consecutive chunks; its first chunk is its key in [`FoldRow::pieces`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Piece<P> {
    /// One past the last chunk.
    end: u64,
    part: P,
}

/// The row of one fold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FoldRow<J, P, F> {
    job: J,
    order: Order,
    asap: bool,
    /// Claimed chunks, each claimed once.
    claimed: ChunkSet,
    /// Chunks from this one on are irrelevant: the history ends, or an earlier chunk broke or failed.
    limit: u64,
    /// The fold fails once all chunks before `limit` are combined, unless one of them breaks.
    failure: Option<F>,
    /// Chunks before this one are combined.
    combined: u64,
    /// Pieces by first chunk. The one of chunk 0 is the accumulator. A piece that a worker combines or reduces into is
    /// absent here, so no other worker can take it.
    pieces: BTreeMap<u64, Piece<P>>,
    /// Chunks before this one were decoded ahead.
    ahead: u64,
}

/// One fold's part of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FoldShare<J, P> {
    pub(super) id: FoldId,
    pub(super) job: J,
    /// The accumulator to reduce into, of a linear fold; `None`: start a new one.
    pub(super) accumulator: Option<P>,
    /// The first chunk of the resulting piece.
    pub(super) start: u64,
}

/// A chunk and the folds for which the claiming worker, and no other, reduces it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkClaim<J, P> {
    pub(super) chunk: u64,
    /// Must the chunk be decoded? Then the worker calls [`Matrix::decoded`] afterwards.
    pub(super) decodes: bool,
    /// Empty if the chunk is only decoded ahead.
    pub(super) shares: Vec<FoldShare<J, P>>,
}

/// Two adjacent pieces that a worker combines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Merge<P> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) earlier: P,
    pub(super) later: P,
}

/// How a fold ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum FoldOutcome<P, F> {
    /// The accumulator of all relevant chunks; `None` for a history without chunks.
    Done(Option<P>),
    Failed(F),
    Cancelled,
}

/// Outcomes to deliver and values to drop, both outside of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Effects<J, P, F> {
    pub(super) ended: Vec<(FoldId, J, FoldOutcome<P, F>)>,
    /// Dropping one may run a fold's code, which must not happen under the lock.
    pub(super) discarded: Vec<P>,
}

/// Planted bugs that the tests must find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MatrixBug {
    /// A claimed chunk stays claimable.
    ClaimNotCleared,
    /// Pieces are combined although chunks between them are missing.
    CombinesOverGaps,
    /// A late part is given to the newest fold if its own has ended.
    PlaceReused,
    /// A break does not move the limit.
    BreakForgotten,
    /// The last failure is reported, not the first.
    LastFailureWins,
    /// A chunk that one worker decodes is decoded by another, too.
    DecodesTwice,
}

/// The work matrix: one row per fold, with its claimed chunks and the pieces that wait to be combined.
///
/// ```text
///            chunk  0   1   2   3   4   5   6   7
/// linear            ■■■■■■■■■■■ .                       one accumulator; ready for chunk 3 only
/// concurrent        ■■■■■■■ ■ . ■ . . .                 pieces wait for chunk 3 and 5; window: 64 chunks past `combined`
/// associative       . . ■■■ . ■■■■■■■ .                 any chunk at any time; adjacent pieces are combined at once
/// ```
///
/// It is plain data without threads, chunks or folds: calls report events and return the next action.
///
/// Rules:
/// - *Exactly once*: a claim takes a chunk for all folds that are ready for it, and marks it in their rows in the same call.
/// - *Ready*: a linear fold for the chunk after its accumulator, a concurrent one for the chunks of its window, an
///   associative one for any chunk.
/// - *In order*: only adjacent pieces are combined.
/// - *Early exit*: a break or a failure lowers the row's limit, past which chunks are irrelevant; thus the first failure in
///   chunk order is reported.
/// - *Late parts*: a part whose fold has ended is dropped. Rows are found by id, not by slot, so it cannot reach another fold.
///
/// Order of claims: ordered folds first, the one with the lowest chunk before the others, so that they meet and share
/// decodes; associative folds take every chunk that is decoded anyway, then go round. A linear fold occupies one worker. So
/// that the other folds do not run ahead of it, they take the chunks that it needs soon, and if they have those, the chunks
/// that it needs last.
///
/// Cost: a claim looks at every row, some tens of nanoseconds each. Concurrent folds fill their windows with parts while a
/// linear fold lags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Matrix<J, P, F> {
    rows: BTreeMap<FoldId, FoldRow<J, P, F>>,
    queue: VecDeque<(FoldId, FoldRow<J, P, F>)>,
    live_max: usize,
    window: u64,
    /// Decoded chunks within this distance ahead of the slowest linear fold are kept for it.
    near: u64,
    next_id: u64,
    /// One past the chunk that was claimed last for decoding.
    cursor: u64,
    /// Number of claims so far.
    claims: u64,
    /// Chunks that workers are decoding.
    decoding: Vec<u64>,
    parts_waiting_max: usize,
    effects: Effects<J, P, F>,
    #[cfg(test)]
    pub(super) bug: Option<MatrixBug>,
}

impl<J, P, F> Default for Effects<J, P, F> {
    fn default() -> Self {
        Effects {
            ended: Vec::new(),
            discarded: Vec::new(),
        }
    }
}

impl<J, P, F> FoldRow<J, P, F> {
    fn new(job: J, request: FoldRequest) -> Self {
        FoldRow {
            job,
            order: request.order,
            asap: request.asap,
            claimed: ChunkSet::default(),
            limit: request.chunk_count,
            failure: None,
            combined: 0,
            pieces: BTreeMap::new(),
            ahead: 0,
        }
    }

    /// The range of chunks that may be claimed now.
    fn reach(&self, window: u64) -> (u64, u64) {
        let (from, length) = match self.order {
            Order::Linear => (self.combined, 1),
            Order::Concurrent => (self.combined, window),
            Order::Associative => (0, u64::MAX),
        };
        (from, from.saturating_add(length).min(self.limit))
    }

    /// May `chunk` be claimed for this fold now?
    fn is_ready(&self, chunk: u64, window: u64) -> bool {
        let (from, to) = self.reach(window);
        (from..to).contains(&chunk) && !self.claimed.contains(chunk)
    }

    /// Discards the pieces past the limit.
    fn trim(&mut self, discarded: &mut Vec<P>) {
        let irrelevant = self.pieces.split_off(&self.limit);
        discarded.extend(irrelevant.into_values().map(|piece| piece.part));
    }

    /// Number of pieces that wait for earlier ones: all but the accumulator.
    fn waiting(&self) -> usize {
        self.pieces.len() - usize::from(self.pieces.contains_key(&0))
    }
}

impl<J: Clone, P, F> Matrix<J, P, F> {
    /// An empty matrix. `near`: how many decoded chunks the folder keeps for a linear fold besides those in use.
    pub(super) fn new(near: u64) -> Self {
        Self::with_bounds(FOLDS_LIVE_MAX, WINDOW_CHUNKS, near)
    }

    pub(super) fn with_bounds(live_max: usize, window: u64, near: u64) -> Self {
        Matrix {
            rows: BTreeMap::new(),
            queue: VecDeque::new(),
            live_max,
            window,
            near,
            next_id: 0,
            cursor: 0,
            claims: 0,
            decoding: Vec::new(),
            parts_waiting_max: 0,
            effects: Effects::default(),
            #[cfg(test)]
            bug: None,
        }
    }

    /// Returns a fresh id for a fold that will be submitted.
    pub(super) fn reserve(&mut self) -> FoldId {
        self.next_id += 1;
        FoldId(self.next_id - 1)
    }

    /// Adds a fold. `at_once` bypasses the queue, for a fold on whose answer another one depends. Returns the job when the
    /// queue is full.
    pub(super) fn submit(
        &mut self,
        id: FoldId,
        job: J,
        request: FoldRequest,
        at_once: bool,
    ) -> Result<(), J> {
        if self.queue.len() >= FOLDS_QUEUED_MAX && !at_once {
            return Err(job);
        }
        if request.chunk_count == 0 {
            self.effects.ended.push((id, job, FoldOutcome::Done(None)));
            return Ok(());
        }
        let row = FoldRow::new(job, request);
        if at_once || self.rows.len() < self.live_max {
            let before = self.rows.insert(id, row);
            assert!(before.is_none(), "a fold is submitted twice");
        } else {
            let place = if request.asap {
                self.queue.partition_point(|(_, row)| row.asap)
            } else {
                self.queue.len()
            };
            self.queue.insert(place, (id, row));
        }
        assert!(
            self.queue.len() <= FOLDS_QUEUED_MAX,
            "a fold queues that should be refused"
        );
        Ok(())
    }

    /// Would a claim succeed?
    pub(super) fn has_work(&self, resident: &(impl Iterator<Item = u64> + Clone)) -> bool {
        self.pick(resident).is_some() || self.pick_ahead(resident).is_some()
    }

    /// The highest number of parts of one fold that ever waited for earlier ones.
    pub(super) fn parts_waiting_max(&self) -> usize {
        self.parts_waiting_max
    }

    /// Takes the outcomes and drops that the caller carries out without the lock.
    pub(super) fn take_effects(&mut self) -> Effects<J, P, F> {
        mem::take(&mut self.effects)
    }

    /// Claims the next chunk for all folds that are ready for it; `None` when there is nothing to do. `resident` lists the
    /// decoded chunks in memory, the preferred one first.
    pub(super) fn claim(
        &mut self,
        resident: &(impl Iterator<Item = u64> + Clone),
    ) -> Option<ChunkClaim<J, P>> {
        if let Some(chunk) = self.pick(resident) {
            return Some(self.take(chunk, resident, |_| true));
        }
        let (id, ahead) = self.pick_ahead(resident)?;
        self.rows.get_mut(&id)?.ahead = ahead + 1;
        self.decoding.push(ahead);
        Some(ChunkClaim {
            chunk: ahead,
            decodes: true,
            shares: Vec::new(),
        })
    }

    /// [`Matrix::claim`] for one fold only: no other fold shares the chunk.
    pub(super) fn claim_for(
        &mut self,
        id: FoldId,
        resident: &(impl Iterator<Item = u64> + Clone),
    ) -> Option<ChunkClaim<J, P>> {
        let row = self.rows.get(&id)?;
        let at_hand = resident
            .clone()
            .find(|&chunk| row.is_ready(chunk, self.window));
        let chunk = at_hand.or_else(|| self.candidate(row, None))?;
        Some(self.take(chunk, resident, |other| other == id))
    }

    fn pick(&self, resident: &(impl Iterator<Item = u64> + Clone)) -> Option<u64> {
        let next = self.linear_next();
        let is_ready = |row: &FoldRow<J, P, F>, chunk| row.is_ready(chunk, self.window);
        if self.claims % OLDEST_TURN == OLDEST_TURN - 1
            && let Some((_, oldest)) = self.rows.first_key_value()
            && let Some(chunk) = self.candidate(oldest, next)
        {
            // Prefer a chunk that an ordered fold needs as well.
            let ordered = self
                .rows
                .values()
                .filter(|row| row.order != Order::Associative);
            let theirs = ordered.filter_map(|row| self.candidate(row, next));
            let shared = theirs.filter(|&chunk| is_ready(oldest, chunk)).min();
            return shared.or(Some(chunk));
        }
        let of = |is_asap: bool| {
            let rows = || self.rows.values().filter(move |row| row.asap || !is_asap);
            let mut at_hand = resident.clone();
            let at_hand = at_hand.find(|&chunk| rows().any(|row| is_ready(row, chunk)));
            let candidates = |is_ordered: bool| {
                rows()
                    .filter(move |row| (row.order != Order::Associative) == is_ordered)
                    .filter_map(|row| self.candidate(row, next))
            };
            let near = |next| {
                rows()
                    .filter_map(move |row| self.near_linear(row, next))
                    .min()
            };
            // Chunks after the cursor first, then those before it: the pass goes round.
            let round = |&chunk: &u64| (chunk < self.cursor, chunk);
            at_hand
                .or_else(|| next.and_then(near))
                .or_else(|| candidates(true).min())
                .or_else(|| candidates(false).min_by_key(round))
        };
        of(true).or_else(|| of(false))
    }

    /// The next chunk of the slowest linear fold; `None` if a concurrent fold lags still further, which has to catch up
    /// before the two can share chunks.
    fn linear_next(&self) -> Option<u64> {
        let of = |order| self.rows.values().filter(move |row| row.order == order);
        let next = of(Order::Linear).map(|row| row.combined).min()?;
        let first_missing = |row: &FoldRow<J, P, F>| row.claimed.first_missing(row.combined);
        let lags = |row: &FoldRow<J, P, F>| first_missing(row) < next.min(row.limit);
        (!of(Order::Concurrent).any(lags)).then_some(next)
    }

    /// The best chunk to decode for a fold. `next` is the next chunk of a linear fold that the others are ahead of.
    fn candidate(&self, row: &FoldRow<J, P, F>, next: Option<u64>) -> Option<u64> {
        let (from, to) = row.reach(self.window);
        let first = |from, to| self.first_missing(row, from, to);
        let next = next.filter(|&next| next < to && row.order != Order::Linear && !row.asap);
        if let Some(next) = next {
            // First the chunks that the linear fold needs soon (shared at once), then those that it is past and will never
            // share, and last the chunks that it reaches latest: this leaves the most to share in between.
            let near = self.near_linear(row, next);
            let past = || first(from, next);
            let far = || self.last_missing(row, from.max(next), to);
            return near.or_else(past).or_else(far);
        }
        let cursor = self.cursor.max(from).min(to);
        match row.order {
            Order::Associative => first(cursor, to).or_else(|| first(from, cursor)),
            Order::Linear | Order::Concurrent => first(from, to),
        }
    }

    /// A chunk of this fold that a linear fold at `next` needs soon, and will find decoded.
    fn near_linear(&self, row: &FoldRow<J, P, F>, next: u64) -> Option<u64> {
        let (from, to) = row.reach(self.window);
        self.first_missing(row, from.max(next), to.min(next + self.near))
    }

    /// The first chunk of a range that is not claimed for the fold and that no worker decodes.
    fn first_missing(&self, row: &FoldRow<J, P, F>, from: u64, to: u64) -> Option<u64> {
        let mut chunk = row.claimed.first_missing(from);
        while chunk < to {
            if self.is_free(chunk) {
                return Some(chunk);
            }
            chunk = row.claimed.first_missing(chunk + 1);
        }
        None
    }

    /// The last such chunk of a range.
    fn last_missing(&self, row: &FoldRow<J, P, F>, from: u64, to: u64) -> Option<u64> {
        let mut chunk = row.claimed.last_missing(to)?;
        while chunk >= from {
            if self.is_free(chunk) {
                return Some(chunk);
            }
            chunk = row.claimed.last_missing(chunk)?;
        }
        None
    }

    /// Returns whether no worker is decoding `chunk`.
    fn is_free(&self, chunk: u64) -> bool {
        #[cfg(test)]
        if self.bug == Some(MatrixBug::DecodesTwice) {
            return true;
        }
        !self.decoding.contains(&chunk)
    }

    /// A chunk that a linear fold needs next, to be decoded by an idle worker.
    fn pick_ahead(&self, resident: &(impl Iterator<Item = u64> + Clone)) -> Option<(FoldId, u64)> {
        let rows = self.rows.iter();
        let mut linear = rows.filter(|(_, row)| row.order == Order::Linear);
        linear.find_map(|(&id, row)| {
            let from = row.ahead.max(row.combined + 1);
            let to = row.limit.min(row.combined + 1 + AHEAD_CHUNKS);
            let is_new = |chunk: &u64| {
                !self.decoding.contains(chunk) && !resident.clone().any(|other| other == *chunk)
            };
            (from..to).find(is_new).map(|chunk| (id, chunk))
        })
    }

    fn take(
        &mut self,
        chunk: u64,
        resident: &(impl Iterator<Item = u64> + Clone),
        is_meant: impl Fn(FoldId) -> bool,
    ) -> ChunkClaim<J, P> {
        let decodes = !resident.clone().any(|other| other == chunk);
        if decodes {
            self.decoding.push(chunk);
            self.cursor = chunk + 1;
        }
        self.claims += 1;
        let mut shares = Vec::new();
        for (&id, row) in &mut self.rows {
            if !is_meant(id) || !row.is_ready(chunk, self.window) {
                continue;
            }
            row.claimed.insert(chunk);
            #[cfg(test)]
            if self.bug == Some(MatrixBug::ClaimNotCleared) {
                row.claimed = ChunkSet::default();
            }
            let is_linear = row.order == Order::Linear;
            let accumulator = is_linear.then(|| row.pieces.remove(&0)).flatten();
            shares.push(FoldShare {
                id,
                job: row.job.clone(),
                accumulator: accumulator.map(|piece| piece.part),
                start: if is_linear { 0 } else { chunk },
            });
        }
        // Linear folds first, since each can claim its next chunk only afterwards; then folds with priority.
        shares.sort_by_key(|share| {
            let row = &self.rows[&share.id];
            (row.order != Order::Linear, Reverse(row.asap))
        });
        assert!(!shares.is_empty(), "a chunk is claimed that no fold needs");
        ChunkClaim {
            chunk,
            decodes,
            shares,
        }
    }

    /// Records that decoding of `chunk` ended, successfully or not.
    pub(super) fn decoded(&mut self, chunk: u64) {
        self.decoding.retain(|&other| other != chunk);
    }

    /// Will some fold claim `chunk` before it has claimed `more` chunks past its present range?
    pub(super) fn is_wanted(&self, chunk: u64, more: u64) -> bool {
        let mut rows = self.rows.values();
        rows.any(|row| {
            let (_, to) = row.reach(self.window);
            chunk < row.limit.min(to.saturating_add(more)) && !row.claimed.contains(chunk)
        })
    }

    /// Returns the part of the chunks `start..end` to its row; `breaks` if it is final, so that later chunks are irrelevant.
    pub(super) fn put(&mut self, id: FoldId, (start, end): (u64, u64), part: P, breaks: bool) {
        #[cfg(test)]
        let id = match self.bug {
            Some(MatrixBug::PlaceReused) if !self.rows.contains_key(&id) => {
                self.rows.keys().next_back().copied().unwrap_or(id)
            }
            _ => id,
        };
        let Some(row) = self.rows.get_mut(&id).filter(|row| start < row.limit) else {
            self.effects.discarded.push(part);
            return;
        };
        #[cfg(test)]
        let breaks = breaks && self.bug != Some(MatrixBug::BreakForgotten);
        if breaks && end <= row.limit {
            row.limit = end;
            row.failure = None;
            row.trim(&mut self.effects.discarded);
        }
        assert!(start < end, "a part without chunks");
        row.pieces.insert(start, Piece { end, part });
        if start == 0 {
            row.combined = end;
        }
        self.parts_waiting_max = self.parts_waiting_max.max(row.waiting());
        self.settle(id);
    }

    /// Takes two adjacent pieces to combine, after the part that begins with chunk `start` was put; `None` if there are none.
    pub(super) fn merge(&mut self, id: FoldId, start: u64) -> Option<Merge<P>> {
        let row = self.rows.get_mut(&id)?;
        let start = match row.order {
            Order::Linear | Order::Concurrent => 0,
            Order::Associative => {
                let before = row.pieces.range(..start).next_back();
                let neighbour = before.filter(|(_, piece)| piece.end == start);
                neighbour.map_or(start, |(&start, _)| start)
            }
        };
        let middle = row.pieces.get(&start)?.end;
        #[cfg(test)]
        let middle = match self.bug {
            Some(MatrixBug::CombinesOverGaps) => *row.pieces.range(middle..).next()?.0,
            _ => middle,
        };
        let later = row.pieces.remove(&middle)?;
        let Some(earlier) = row.pieces.remove(&start) else {
            row.pieces.insert(middle, later);
            return None;
        };
        Some(Merge {
            start,
            end: later.end,
            earlier: earlier.part,
            later: later.part,
        })
    }

    /// Records that the piece beginning with chunk `start` cannot be computed: the chunk is damaged, or the fold panicked.
    pub(super) fn fail(&mut self, id: FoldId, start: u64, failure: F) {
        let Some(row) = self.rows.get_mut(&id) else {
            return;
        };
        #[cfg(test)]
        if self.bug == Some(MatrixBug::LastFailureWins)
            && row.failure.is_some()
            && start > row.limit
        {
            row.failure = Some(failure);
            return;
        }
        if start < row.limit {
            row.limit = start;
            row.failure = Some(failure);
            row.trim(&mut self.effects.discarded);
            self.settle(id);
        }
    }

    /// Cancels a fold, running or queued; nothing if it has ended.
    pub(super) fn cancel(&mut self, id: FoldId) {
        if self.rows.contains_key(&id) {
            self.end(id, |_| FoldOutcome::Cancelled);
        } else if let Some(place) = self.queue.iter().position(|(other, _)| *other == id)
            && let Some((_, row)) = self.queue.remove(place)
        {
            self.effects
                .ended
                .push((id, row.job, FoldOutcome::Cancelled));
        }
    }

    /// Ends a fold whose relevant chunks are all combined.
    fn settle(&mut self, id: FoldId) {
        let Some(row) = self.rows.get(&id) else {
            return;
        };
        if row.combined < row.limit {
            return;
        }
        if row.failure.is_some() {
            self.end(id, |row| match row.failure.take() {
                Some(failure) => FoldOutcome::Failed(failure),
                None => FoldOutcome::Cancelled,
            });
        } else if row.limit == 0 || row.pieces.contains_key(&0) {
            self.end(id, |row| {
                FoldOutcome::Done(row.pieces.remove(&0).map(|piece| piece.part))
            });
        }
    }

    fn end(
        &mut self,
        id: FoldId,
        outcome: impl FnOnce(&mut FoldRow<J, P, F>) -> FoldOutcome<P, F>,
    ) {
        let Some(mut row) = self.rows.remove(&id) else {
            return;
        };
        let outcome = outcome(&mut row);
        let rest = row.pieces.into_values().map(|piece| piece.part);
        self.effects.discarded.extend(rest);
        self.effects.ended.push((id, row.job, outcome));
        while self.rows.len() < self.live_max
            && let Some((id, row)) = self.queue.pop_front()
        {
            self.rows.insert(id, row);
        }
    }
}

#[cfg(test)]
mod tests;
