//! The work matrix: decides which chunk is given to which fold next.

use super::Order;
use super::taken::Taken;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::mem;

/// So many folds are worked on at a time; the others queue. Bounds the accumulators in memory.
pub(super) const FOLDS_LIVE_MAX: usize = 64;
/// So many folds may queue; further ones are refused.
pub(super) const FOLDS_QUEUED_MAX: usize = 65_536;
/// A fold that combines in order is given chunks so far behind what is combined at most. Bounds the parts that it has
/// waiting, however late it came and however long a chunk takes.
pub(super) const WINDOW_CHUNKS: u64 = 64;
/// Every so many claims the oldest fold comes first, so that it ends however many folds come after it.
const OLDEST_TURN: u64 = 16;
/// So far ahead of linear folds do idle workers decode.
const AHEAD_CHUNKS: u64 = 2;

/// A fold, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FoldId(u64);

/// What the matrix has to know of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) order: Order,
    pub(super) asap: bool,
    /// Chunks of the history.
    pub(super) chunk_count: u64,
}

/// What a stretch of chunks gave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Piece<P> {
    /// The chunk behind the last one.
    end: u64,
    part: P,
}

/// One fold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row<J, P, F> {
    job: J,
    order: Order,
    asap: bool,
    /// Chunks that were given out: each once.
    taken: Taken,
    /// Chunks from here on do not matter (any more).
    limit: u64,
    /// The fold fails once all before `limit` is combined, unless it ends before.
    failure: Option<F>,
    /// Chunks before this one are combined.
    combined: u64,
    /// By their first chunk. The one that begins with chunk 0 is the accumulator. What a worker has taken to combine, or
    /// to reduce a further chunk of a linear fold into, is not here, so nobody else combines it.
    pieces: BTreeMap<u64, Piece<P>>,
    /// Chunks before this one were decoded ahead.
    ahead: u64,
}

/// A fold's share in a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Share<J, P> {
    pub(super) id: FoldId,
    pub(super) job: J,
    /// What linear folds go on with; `None` for a new one.
    pub(super) accumulator: Option<P>,
    /// The first chunk of what comes out.
    pub(super) start: u64,
}

/// A chunk and the folds that a worker has to give it to. No one else gives it to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim<J, P> {
    pub(super) chunk: u64,
    /// Must it be decoded? Then [`Matrix::decoded`] has to follow.
    pub(super) decodes: bool,
    /// None if the chunk is decoded ahead.
    pub(super) shares: Vec<Share<J, P>>,
}

/// Two neighbours that a worker has to combine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Merge<P> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) earlier: P,
    pub(super) later: P,
}

/// How a fold ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome<P, F> {
    /// All that matters is here; `None` when there was no chunk.
    Done(Option<P>),
    Failed(F),
    Cancelled,
}

/// What is left to do outside of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Effects<J, P, F> {
    pub(super) ended: Vec<(FoldId, J, Outcome<P, F>)>,
    /// Dropping one may run a fold's code.
    pub(super) discarded: Vec<P>,
}

/// Bugs that the tests must find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bug {
    /// What is claimed stays pending.
    ClaimNotCleared,
    /// A gap before a part does not keep it from being combined.
    CombinesOverGaps,
    /// A late part goes to the fold that came after the one it was made for.
    PlaceReused,
    /// A break moves no limit.
    BreakForgotten,
    /// The last failure is told, not the first.
    LastFailureWins,
    /// A chunk that is being decoded is decoded once more.
    DecodesTwice,
}

/// The work matrix: one row per fold with the chunks that it was given, and the parts that wait to be combined. It is
/// plain data, told what happened and asked what to do; threads, chunks and folds are elsewhere.
///
/// Its rules: a chunk is claimed for all folds that are ready for it, and marked in their rows at once (exactly once); a
/// linear fold is ready for the chunk behind its accumulator, one that combines in order for those inside a window behind
/// what is combined, an associative one for any; parts are combined with neighbours only (in order); a break or a failure
/// moves the limit behind which nothing matters (early end, the first failure is told); parts that come back for a fold
/// that is gone are dropped. Folds in order go first, the one furthest behind before the others, so that they meet;
/// associative ones take each chunk that is decoded anyway, then go round. A linear fold uses one worker only: so that the
/// others do not run away from one that is behind, they take what it will want soon, and when they have that, what it
/// will want last.
///
/// A row is owned by its fold's id and not by a slot, so nothing must be cleared when a fold ends, and no late part finds
/// another fold in its place. Its downsides: picking a chunk looks at every row, some tens of nanoseconds for each; and
/// folds that combine in order fill their windows with parts while a linear one is behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Matrix<J, P, F> {
    rows: BTreeMap<FoldId, Row<J, P, F>>,
    queue: VecDeque<(FoldId, Row<J, P, F>)>,
    live_max: usize,
    window: u64,
    /// So far ahead of the linear fold that is furthest behind, decoded chunks are kept for it.
    near: u64,
    next_id: u64,
    /// Where the last decoded chunk was.
    cursor: u64,
    /// Claims so far.
    claims: u64,
    /// Chunks that workers decode now.
    decoding: Vec<u64>,
    parts_waiting_max: usize,
    effects: Effects<J, P, F>,
    #[cfg(test)]
    pub(super) bug: Option<Bug>,
}

impl<J, P, F> Default for Effects<J, P, F> {
    fn default() -> Self {
        Effects {
            ended: Vec::new(),
            discarded: Vec::new(),
        }
    }
}

impl<J, P, F> Row<J, P, F> {
    fn new(job: J, request: Request) -> Self {
        Row {
            job,
            order: request.order,
            asap: request.asap,
            taken: Taken::default(),
            limit: request.chunk_count,
            failure: None,
            combined: 0,
            pieces: BTreeMap::new(),
            ahead: 0,
        }
    }

    /// The chunks that it may be given now: from, and up to before.
    fn reach(&self, window: u64) -> (u64, u64) {
        let (from, length) = match self.order {
            Order::Linear => (self.combined, 1),
            Order::Concurrent => (self.combined, window),
            Order::Associative => (0, u64::MAX),
        };
        (from, from.saturating_add(length).min(self.limit))
    }

    /// May it be given `chunk` now?
    fn is_ready(&self, chunk: u64, window: u64) -> bool {
        let (from, to) = self.reach(window);
        (from..to).contains(&chunk) && !self.taken.contains(chunk)
    }

    /// Drops what is waiting behind the limit.
    fn trim(&mut self, discarded: &mut Vec<P>) {
        let behind = self.pieces.split_off(&self.limit);
        discarded.extend(behind.into_values().map(|piece| piece.part));
    }

    /// Parts that wait for earlier ones.
    fn waiting(&self) -> usize {
        self.pieces.len() - usize::from(self.pieces.contains_key(&0))
    }
}

impl<J: Clone, P, F> Matrix<J, P, F> {
    /// For a place where so many decoded chunks are kept for a linear fold, besides those that are worked on.
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

    /// An id for a fold that will be submitted.
    pub(super) fn reserve(&mut self) -> FoldId {
        self.next_id += 1;
        FoldId(self.next_id - 1)
    }

    /// Takes a fold in. `at_once` passes the queue: for a fold that another one waits for. Gives the job back when the
    /// queue is full.
    pub(super) fn submit(
        &mut self,
        id: FoldId,
        job: J,
        request: Request,
        at_once: bool,
    ) -> Result<(), J> {
        if self.queue.len() >= FOLDS_QUEUED_MAX && !at_once {
            return Err(job);
        }
        if request.chunk_count == 0 {
            self.effects.ended.push((id, job, Outcome::Done(None)));
            return Ok(());
        }
        let row = Row::new(job, request);
        if at_once || self.rows.len() < self.live_max {
            self.rows.insert(id, row);
        } else {
            let place = if request.asap {
                self.queue.partition_point(|(_, row)| row.asap)
            } else {
                self.queue.len()
            };
            self.queue.insert(place, (id, row));
        }
        Ok(())
    }

    /// Would there be something to claim?
    pub(super) fn has_work(&self, resident: &(impl Iterator<Item = u64> + Clone)) -> bool {
        self.pick(resident).is_some() || self.pick_ahead(resident).is_some()
    }

    /// The most parts of one fold that ever waited for earlier ones.
    pub(super) fn parts_waiting_max(&self) -> usize {
        self.parts_waiting_max
    }

    /// What is left to do outside of the lock.
    pub(super) fn take_effects(&mut self) -> Effects<J, P, F> {
        mem::take(&mut self.effects)
    }

    /// The next chunk to work on and who gets it, `None` when there is nothing to do. `resident` are the decoded chunks
    /// that are at hand, best first.
    pub(super) fn claim(
        &mut self,
        resident: &(impl Iterator<Item = u64> + Clone),
    ) -> Option<Claim<J, P>> {
        if let Some(chunk) = self.pick(resident) {
            return Some(self.take(chunk, resident, |_| true));
        }
        let (id, ahead) = self.pick_ahead(resident)?;
        self.rows.get_mut(&id)?.ahead = ahead + 1;
        self.decoding.push(ahead);
        Some(Claim {
            chunk: ahead,
            decodes: true,
            shares: Vec::new(),
        })
    }

    /// The same for one fold alone, and nobody else is given the chunk along with it.
    pub(super) fn claim_for(
        &mut self,
        id: FoldId,
        resident: &(impl Iterator<Item = u64> + Clone),
    ) -> Option<Claim<J, P>> {
        let row = self.rows.get(&id)?;
        let at_hand = resident
            .clone()
            .find(|&chunk| row.is_ready(chunk, self.window));
        let chunk = at_hand.or_else(|| self.candidate(row, None))?;
        Some(self.take(chunk, resident, |other| other == id))
    }

    fn pick(&self, resident: &(impl Iterator<Item = u64> + Clone)) -> Option<u64> {
        let next = self.linear_next();
        let is_ready = |row: &Row<J, P, F>, chunk| row.is_ready(chunk, self.window);
        if self.claims % OLDEST_TURN == OLDEST_TURN - 1
            && let Some((_, oldest)) = self.rows.first_key_value()
            && let Some(chunk) = self.candidate(oldest, next)
        {
            // One that helps those in order too, if there is one.
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
            let behind = |&chunk: &u64| (chunk < self.cursor, chunk);
            at_hand
                .or_else(|| next.and_then(near))
                .or_else(|| candidates(true).min())
                .or_else(|| candidates(false).min_by_key(behind))
        };
        of(true).or_else(|| of(false))
    }

    /// The next chunk of the linear fold furthest behind, if none that combines in order is behind that one: which would
    /// have to come up before they can share anything.
    fn linear_next(&self) -> Option<u64> {
        let of = |order| self.rows.values().filter(move |row| row.order == order);
        let next = of(Order::Linear).map(|row| row.combined).min()?;
        let first_missing = |row: &Row<J, P, F>| row.taken.first_missing(row.combined);
        let is_behind = |row: &Row<J, P, F>| first_missing(row) < next.min(row.limit);
        (!of(Order::Concurrent).any(is_behind)).then_some(next)
    }

    /// The chunk that is best decoded for a fold. `next` is where a linear fold is that the others are ahead of.
    fn candidate(&self, row: &Row<J, P, F>, next: Option<u64>) -> Option<u64> {
        let (from, to) = row.reach(self.window);
        let first = |from, to| self.first_missing(row, from, to);
        let next = next.filter(|&next| next < to && row.order != Order::Linear && !row.asap);
        if let Some(next) = next {
            // It will never want what it is past; what it reaches last leaves the most to share until it is here.
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

    /// A chunk for this fold that a linear one at `next` will want soon, so that it finds it decoded.
    fn near_linear(&self, row: &Row<J, P, F>, next: u64) -> Option<u64> {
        let (from, to) = row.reach(self.window);
        self.first_missing(row, from.max(next), to.min(next + self.near))
    }

    /// The first chunk in a range that a fold has not got and nobody decodes.
    fn first_missing(&self, row: &Row<J, P, F>, from: u64, to: u64) -> Option<u64> {
        let mut chunk = row.taken.first_missing(from);
        while chunk < to {
            if self.is_free(chunk) {
                return Some(chunk);
            }
            chunk = row.taken.first_missing(chunk + 1);
        }
        None
    }

    /// The last one.
    fn last_missing(&self, row: &Row<J, P, F>, from: u64, to: u64) -> Option<u64> {
        let mut chunk = row.taken.last_missing(to)?;
        while chunk >= from {
            if self.is_free(chunk) {
                return Some(chunk);
            }
            chunk = row.taken.last_missing(chunk)?;
        }
        None
    }

    /// Does nobody decode it?
    fn is_free(&self, chunk: u64) -> bool {
        #[cfg(test)]
        if self.bug == Some(Bug::DecodesTwice) {
            return true;
        }
        !self.decoding.contains(&chunk)
    }

    /// A chunk that a linear fold will want next.
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
    ) -> Claim<J, P> {
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
            row.taken.insert(chunk);
            #[cfg(test)]
            if self.bug == Some(Bug::ClaimNotCleared) {
                row.taken = Taken::default();
            }
            let is_linear = row.order == Order::Linear;
            let accumulator = is_linear.then(|| row.pieces.remove(&0)).flatten();
            shares.push(Share {
                id,
                job: row.job.clone(),
                accumulator: accumulator.map(|piece| piece.part),
                start: if is_linear { 0 } else { chunk },
            });
        }
        // Whoever waits for one chunk to get the next comes first, then those that somebody waits for.
        shares.sort_by_key(|share| {
            let row = &self.rows[&share.id];
            (row.order != Order::Linear, Reverse(row.asap))
        });
        Claim {
            chunk,
            decodes,
            shares,
        }
    }

    /// A chunk was decoded, or could not be.
    pub(super) fn decoded(&mut self, chunk: u64) {
        self.decoding.retain(|&other| other != chunk);
    }

    /// Will a fold be given `chunk` before it has got so many more than it may be given now?
    pub(super) fn is_wanted(&self, chunk: u64, more: u64) -> bool {
        let mut rows = self.rows.values();
        rows.any(|row| {
            let (_, to) = row.reach(self.window);
            chunk < row.limit.min(to.saturating_add(more)) && !row.taken.contains(chunk)
        })
    }

    /// What the chunks from `start` to before `end` gave comes back; `breaks` when nothing behind them matters.
    pub(super) fn put(&mut self, id: FoldId, (start, end): (u64, u64), part: P, breaks: bool) {
        #[cfg(test)]
        let id = match self.bug {
            Some(Bug::PlaceReused) if !self.rows.contains_key(&id) => {
                self.rows.keys().next_back().copied().unwrap_or(id)
            }
            _ => id,
        };
        let Some(row) = self.rows.get_mut(&id).filter(|row| start < row.limit) else {
            self.effects.discarded.push(part);
            return;
        };
        #[cfg(test)]
        let breaks = breaks && self.bug != Some(Bug::BreakForgotten);
        if breaks && end <= row.limit {
            row.limit = end;
            row.failure = None;
            row.trim(&mut self.effects.discarded);
        }
        row.pieces.insert(start, Piece { end, part });
        if start == 0 {
            row.combined = end;
        }
        self.parts_waiting_max = self.parts_waiting_max.max(row.waiting());
        self.settle(id);
    }

    /// Two neighbours of a fold to combine, after a part that begins with chunk `start` came back.
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
            Some(Bug::CombinesOverGaps) => *row.pieces.range(middle..).next()?.0,
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

    /// A fold cannot have what begins with chunk `start`: the chunk is damaged, or the fold panicked.
    pub(super) fn fail(&mut self, id: FoldId, start: u64, failure: F) {
        let Some(row) = self.rows.get_mut(&id) else {
            return;
        };
        #[cfg(test)]
        if self.bug == Some(Bug::LastFailureWins) && row.failure.is_some() && start > row.limit {
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

    /// Gives a fold up, also one that queues.
    pub(super) fn cancel(&mut self, id: FoldId) {
        if self.rows.contains_key(&id) {
            self.end(id, |_| Outcome::Cancelled);
        } else if let Some(place) = self.queue.iter().position(|(other, _)| *other == id)
            && let Some((_, row)) = self.queue.remove(place)
        {
            self.effects.ended.push((id, row.job, Outcome::Cancelled));
        }
    }

    /// Ends a fold that has all that matters.
    fn settle(&mut self, id: FoldId) {
        let Some(row) = self.rows.get(&id) else {
            return;
        };
        if row.combined < row.limit {
            return;
        }
        if row.failure.is_some() {
            self.end(id, |row| match row.failure.take() {
                Some(failure) => Outcome::Failed(failure),
                None => Outcome::Cancelled,
            });
        } else if row.limit == 0 || row.pieces.contains_key(&0) {
            self.end(id, |row| {
                Outcome::Done(row.pieces.remove(&0).map(|piece| piece.part))
            });
        }
    }

    fn end(&mut self, id: FoldId, outcome: impl FnOnce(&mut Row<J, P, F>) -> Outcome<P, F>) {
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
