//! Many threads, one sync.

use super::{Failure, Sink, SinkError, locked};
use crate::batch::{
    BATCH_FRAMES_OFFSET, BATCH_LENGTH, BATCH_LENGTH_MAX, Batch, MESSAGE_LENGTH_MAX,
};
use crate::position::Position;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The bounds of a [`GroupWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// Bytes that may wait while others are being synced; threads with more wait for their turn. Longer messages get a block
    /// of their own.
    pub batch_length: usize,
    /// How long a thread that is about to write waits for more to come. Zero: for the last sync only, which is right
    /// for most: what comes meanwhile is together anyway.
    pub gather: Duration,
    /// Writes before `gather` is over once so many bytes wait.
    pub gather_length: usize,
}

impl Default for GroupOptions {
    /// Blocks of 256 KiB, no waiting.
    fn default() -> GroupOptions {
        GroupOptions {
            batch_length: BATCH_LENGTH,
            gather: Duration::ZERO,
            gather_length: BATCH_LENGTH / 4,
        }
    }
}

/// Why a message is not known to be durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupError {
    /// No recording holds such a message.
    #[error("a message of {length} bytes, at most {MESSAGE_LENGTH_MAX} can be recorded")]
    TooLong {
        /// Its bytes.
        length: usize,
    },
    /// This or an earlier write or sync failed: nobody knows which of the messages that waited are there.
    #[error("recording failed: {0}")]
    Failed(Failure),
    /// A thread died while it wrote for the others.
    #[error("the thread that wrote for all has died")]
    Abandoned,
}

/// Group commit: threads append to one recording and each waits until its message is durable; all that came while a sync
/// was going on share the next one.
///
/// The first thread that finds nobody writing *leads*: it takes the sink and the block that all have filled, writes, syncs,
/// and wakes those whose messages were in it, and one of those that came meanwhile, which leads next. Nobody leads
/// twice for others, so no thread pays more than the sync that was going on when it came, and its own.
///
/// Its downside: the order of messages is that of arrival at a lock, and one thread alone pays a whole sync per message.
#[derive(Debug)]
pub struct GroupWriter<S: Sink> {
    options: GroupOptions,
    state: Mutex<State<S>>,
    /// For those whose message did not fit, and for a leader that gathers.
    moved: Condvar,
}

#[derive(Debug)]
struct State<S> {
    /// The sink, unless a leader has it.
    sink: Option<S>,
    /// What waits to be written.
    filling: Batch,
    /// The other block, unless a leader has it.
    spare: Option<Batch>,
    round: Arc<Round>,
    /// The latest time that any of the callers told.
    now: u64,
    failure: Option<GroupError>,
}

/// Those whose messages are written together.
#[derive(Debug, Default)]
struct Round {
    /// Where the first message is, once all are durable.
    outcome: OnceLock<Result<Position, GroupError>>,
    /// The outcome is there, or one of them has to lead.
    turned: Condvar,
}

impl<S: Sink> GroupWriter<S> {
    /// Takes over a sink.
    pub fn new(sink: S, options: GroupOptions) -> GroupWriter<S> {
        let batch_length = options
            .batch_length
            .clamp(BATCH_FRAMES_OFFSET, BATCH_LENGTH_MAX);
        GroupWriter {
            options: GroupOptions {
                batch_length,
                ..options
            },
            state: Mutex::new(State {
                sink: Some(sink),
                filling: Batch::with_capacity(batch_length),
                spare: Some(Batch::with_capacity(batch_length)),
                round: Arc::default(),
                now: 0,
                failure: None,
            }),
            moved: Condvar::new(),
        }
    }

    /// Appends a message and waits until it is durable; answers with its position. `now` is in nanoseconds since 1970.
    pub fn append_durable(&self, message: &[u8], now: u64) -> Result<Position, GroupError> {
        self.append_flagged(0, message, now)
    }

    /// [`GroupWriter::append_durable`] with the application's `flags` (0 to 7) in the frame.
    ///
    /// Panics when `flags` is above 7.
    pub fn append_flagged(
        &self,
        flags: u32,
        message: &[u8],
        now: u64,
    ) -> Result<Position, GroupError> {
        let length = message.len();
        if length > MESSAGE_LENGTH_MAX {
            return Err(GroupError::TooLong { length });
        }
        let mut state = locked(&self.state);
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.filling.is_empty() && !state.filling.fits(length) {
                state.filling = Batch::for_message(length);
            }
            let offset = (state.filling.block_length() - BATCH_FRAMES_OFFSET) as u64;
            if state.filling.push(flags, message) {
                state.now = state.now.max(now);
                let round = Arc::clone(&state.round);
                let first = self.await_outcome(state, &round)?;
                return Ok(first.plus(offset));
            }
            // Full. Its round is led by one of those in it; once it is taken there is room.
            state = wait(&self.moved, state);
        }
    }

    /// Leads, or waits until somebody else has.
    fn await_outcome<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<S>>,
        round: &Arc<Round>,
    ) -> Result<Position, GroupError> {
        // Wakes a leader that gathers.
        if !self.options.gather.is_zero() {
            self.moved.notify_all();
        }
        loop {
            if let Some(outcome) = round.outcome.get() {
                return outcome.clone();
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            match state.sink.take() {
                // Whoever has not been written yet is in the round that waits.
                Some(sink) => {
                    self.lead(state, sink);
                    state = locked(&self.state);
                }
                None => state = wait(&round.turned, state),
            }
        }
    }

    /// Writes and syncs the round that waits.
    fn lead(&self, state: MutexGuard<'_, State<S>>, sink: S) {
        let mut state = self.gather(state);
        let fresh = match state.spare.take() {
            Some(batch) if batch.capacity() <= self.options.batch_length => batch,
            // Lost with a leader, or one that was made for a long message.
            _ => Batch::with_capacity(self.options.batch_length),
        };
        let batch = std::mem::replace(&mut state.filling, fresh);
        let round = std::mem::take(&mut state.round);
        let now = state.now;
        drop(state);
        self.moved.notify_all();

        let mut lead = Lead {
            group: self,
            round,
            batch,
            sink: Some(sink),
            outcome: Err(GroupError::Abandoned),
        };
        if let Some(sink) = &mut lead.sink {
            lead.outcome = write(sink, &mut lead.batch, now);
        }
    }

    /// Waits for more to come, as long as the options say.
    fn gather<'a>(&self, state: MutexGuard<'a, State<S>>) -> MutexGuard<'a, State<S>> {
        if self.options.gather.is_zero() {
            return state;
        }
        let few = |state: &mut State<S>| state.filling.block_length() < self.options.gather_length;
        self.moved
            .wait_timeout_while(state, self.options.gather, few)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// The sink, once nobody appends any more; nothing when a thread died with it.
    pub fn into_sink(self) -> Option<S> {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).sink
    }
}

fn write<S: Sink>(sink: &mut S, batch: &mut Batch, now: u64) -> Result<Position, GroupError> {
    let failed = |error: SinkError| GroupError::Failed(Arc::from(error));
    let first = sink.append(batch, now).map_err(failed)?;
    sink.sync().map_err(failed)?;
    Ok(first)
}

/// A leader's turn. Whatever happens in it, its end tells the others.
struct Lead<'a, S: Sink> {
    group: &'a GroupWriter<S>,
    round: Arc<Round>,
    batch: Batch,
    sink: Option<S>,
    outcome: Result<Position, GroupError>,
}

impl<S: Sink> Drop for Lead<'_, S> {
    fn drop(&mut self) {
        let mut batch = std::mem::replace(&mut self.batch, Batch::with_capacity(0));
        batch.clear();
        let mut state = locked(&self.group.state);
        state.spare = Some(batch);
        state.sink = self.sink.take();
        let outcome = std::mem::replace(&mut self.outcome, Err(GroupError::Abandoned));
        if let Err(failure) = &outcome {
            state.failure.get_or_insert_with(|| failure.clone());
        }
        let failed = state.failure.is_some();
        let next = Arc::clone(&state.round);
        let waits = !state.filling.is_empty();
        let _ = self.round.outcome.set(outcome);
        drop(state);
        // The next leader first: the medium waits for it.
        if failed {
            next.turned.notify_all();
            self.group.moved.notify_all();
        } else if waits {
            next.turned.notify_one();
        }
        self.round.turned.notify_all();
    }
}

/// Sleeps until it is woken, or for no reason.
fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
