//! Group commit: threads that append durably to one recording share syncs.

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
    /// Maximum number of bytes that wait for the next sync; threads with more messages wait for the one after. Longer
    /// messages get a block of their own.
    pub batch_length: usize,
    /// How long a leader waits for more messages before it writes. Zero suits most uses: messages that arrive during a sync
    /// share the next one anyway.
    pub gather: Duration,
    /// A leader stops waiting when this number of bytes is ready.
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

/// Why a message may not be durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupError {
    /// The message is too long.
    #[error("a message of {length} bytes is over the maximum of {MESSAGE_LENGTH_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// This or an earlier write or sync failed: it is unknown which of the waiting messages were recorded.
    #[error("recording failed: {0}")]
    Failed(Failure),
    /// A leader panicked while it wrote for the others.
    #[error("the thread that wrote for the group has panicked")]
    Abandoned,
}

/// Group commit: threads append to one recording, and each waits until its message is durable. All messages that arrive
/// during a sync share the next one.
///
/// A thread that finds no leader becomes the *leader*: it takes the sink and the block that all threads have filled, writes,
/// syncs, and wakes the threads whose messages were in the block, and one thread of the next round, which leads next. No
/// thread leads twice for others, so an append waits for at most the sync in progress and its own.
///
/// Messages are ordered by their arrival at a lock. A single thread pays one sync for each message.
#[derive(Debug)]
pub struct GroupWriter<S: Sink> {
    options: GroupOptions,
    state: Mutex<GroupState<S>>,
    /// Wakes threads whose message did not fit, and a leader that gathers.
    moved: Condvar,
}

#[derive(Debug)]
struct GroupState<S> {
    /// The sink, unless a leader has it.
    sink: Option<S>,
    /// The block with the waiting messages.
    filling: Batch,
    /// The other block, unless a leader has it.
    spare: Option<Batch>,
    round: Arc<Round>,
    /// The latest time of all callers.
    now: u64,
    failure: Option<GroupError>,
}

/// The threads whose messages are written together.
#[derive(Debug, Default)]
struct Round {
    /// Position of the first message, once all are durable.
    outcome: OnceLock<Result<Position, GroupError>>,
    /// Signalled when the outcome is set, or one thread of the round has to lead.
    changed: Condvar,
}

impl<S: Sink> GroupWriter<S> {
    /// A group writer that owns `sink`.
    pub fn new(sink: S, options: GroupOptions) -> GroupWriter<S> {
        let batch_length = options
            .batch_length
            .clamp(BATCH_FRAMES_OFFSET, BATCH_LENGTH_MAX);
        GroupWriter {
            options: GroupOptions {
                batch_length,
                ..options
            },
            state: Mutex::new(GroupState {
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

    /// Appends a message, waits until it is durable, and returns its position. `now` is in nanoseconds since 1970.
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
            // The block is full. A thread of its round leads; when it takes the block, there is room.
            state = wait(&self.moved, state);
        }
    }

    /// Leads the round, or waits until another thread has.
    fn await_outcome<'a>(
        &'a self,
        mut state: MutexGuard<'a, GroupState<S>>,
        round: &Arc<Round>,
    ) -> Result<Position, GroupError> {
        // Wake a leader that gathers: there may be enough bytes now.
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
                // Every message that is not written yet is in the waiting round, this thread's too.
                Some(sink) => {
                    self.lead(state, sink);
                    state = locked(&self.state);
                }
                None => state = wait(&round.changed, state),
            }
        }
    }

    /// Writes and syncs the waiting round.
    fn lead(&self, state: MutexGuard<'_, GroupState<S>>, sink: S) {
        let mut state = self.gather(state);
        let fresh = match state.spare.take() {
            Some(batch) if batch.capacity() <= self.options.batch_length => batch,
            // Lost with a leader that panicked, or allocated for a long message.
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

    /// Waits for more messages, as the options say.
    fn gather<'a>(&self, state: MutexGuard<'a, GroupState<S>>) -> MutexGuard<'a, GroupState<S>> {
        if self.options.gather.is_zero() {
            return state;
        }
        let few =
            |state: &mut GroupState<S>| state.filling.block_length() < self.options.gather_length;
        self.moved
            .wait_timeout_while(state, self.options.gather, few)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Returns the sink when all appends have ended; `None` if a leader panicked with it.
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

/// A leader's round. Dropping it returns sink and block and wakes the other threads, also after a panic.
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
        // Wake the next leader first: the medium is idle until it writes.
        if failed {
            next.changed.notify_all();
            self.group.moved.notify_all();
        } else if waits {
            next.changed.notify_one();
        }
        self.round.changed.notify_all();
    }
}

/// Waits on a condition variable; may wake spuriously.
fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition
        .wait(guard)
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
