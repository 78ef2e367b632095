//! One pass over a chunk: invocations are paired with completions, and transactions recorded.

use super::ProcessNumber;
use seatrial_cycles::{Position, Txn};
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, FixedMap, OpType, Process};

/// An operation that is not a transaction of the kind that is checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("op {index}: {reason}")]
pub struct RefusedOperation {
    /// Its index.
    pub index: u64,
    /// Why not.
    pub reason: String,
}

/// A transaction without a completion so far.
pub struct OpenTransaction<W> {
    /// Its number in the table.
    pub number: Txn,
    /// What it may write, in case that it does not succeed; the error if it is not a transaction of this kind.
    pub writes: Result<Vec<W>, RefusedOperation>,
}

/// The transactions that are open at the end of a chunk, by the position of their invocation.
pub struct OpenTransactions<W>(FixedMap<u64, OpenTransaction<W>>);

impl<W> Default for OpenTransactions<W> {
    fn default() -> OpenTransactions<W> {
        OpenTransactions(FixedMap::default())
    }
}

impl<W> OpenTransactions<W> {
    /// All of them, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &OpenTransaction<W>> {
        self.0.values()
    }

    /// All of them, to be renumbered, in no particular order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenTransaction<W>> {
        self.0.values_mut()
    }

    /// All of them, in the order of their numbers: those that never complete, once the history has ended.
    pub fn into_sorted(self) -> Vec<OpenTransaction<W>> {
        let mut open: Vec<_> = self.0.into_values().collect();
        open.sort_unstable_by_key(|open| open.number);
        open
    }
}

/// What a family of checkers does with the transactions of a chunk. `place` is always that of an operation in the chunk.
pub trait TransactionRecorder {
    /// A write of a transaction that may not succeed.
    type Write;

    /// The number of the client process with this name.
    fn process(&mut self, client: u64) -> ProcessNumber;

    /// Adds a transaction, invoked at this position, if that was recorded.
    fn open(&mut self, process: ProcessNumber, invocation: Option<Position>) -> Txn;

    /// The writes of the operation at `place`.
    fn writes(&mut self, place: usize) -> Result<Vec<Self::Write>, RefusedOperation>;

    /// Completes a transaction that succeeded, with what the operation at `place` read and wrote.
    fn succeed(&mut self, place: usize, number: Txn, completion: Position);

    /// Completes a transaction that failed, or whose outcome is unknown.
    fn give_up(
        &mut self,
        open: OpenTransaction<Self::Write>,
        outcome: OpType,
        completion: Option<Position>,
    );

    /// Is the history refused, so that the pass can end?
    fn is_refused(&self) -> bool;

    /// The transactions that were open at the end of the last chunk.
    fn carried(&mut self) -> &mut OpenTransactions<Self::Write>;
}

/// Records the transactions of a chunk, whose operations before `known` were recorded before. Operations of a nemesis are
/// passed over, and so are failures and unknown outcomes without an invocation. Linear.
pub fn record_chunk<R: TransactionRecorder>(recorder: &mut R, chunk: &Chunk, known: usize) {
    let pass = ChunkTransactions {
        chunk,
        known,
        processes: vec![None; chunk.processes().len()],
        open: vec![None; chunk.len()],
    };
    pass.run(recorder);
}

/// The state of a pass over a chunk.
struct ChunkTransactions<'a> {
    chunk: &'a Chunk,
    /// Operations at its start that were recorded before.
    known: usize,
    /// By process id of the chunk: its number, once it is known.
    processes: Vec<Option<ProcessNumber>>,
    /// By row of an invocation: its transaction, until it completes.
    open: Vec<Option<Txn>>,
}

impl ChunkTransactions<'_> {
    fn run<R: TransactionRecorder>(mut self, recorder: &mut R) {
        let chunk = self.chunk;
        let first = chunk.first_position() as u32;
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        let operations = kinds.zip(chunk.pairs()).enumerate();
        for (place, ((&kind, &process), &pair)) in operations.skip(self.known) {
            let Process::Client(client) = chunk.processes()[process as usize] else {
                continue;
            };
            let position = Position::new(first + place as u32);
            match kind {
                OpType::Invoke => {
                    let process = self.process(process, client, recorder);
                    self.open[place] = Some(recorder.open(process, Some(position)));
                }
                OpType::Ok => {
                    let number = if pair > 0 {
                        self.close(place, pair, recorder).map(|open| open.number)
                    } else {
                        let process = self.process(process, client, recorder);
                        Some(recorder.open(process, None))
                    };
                    if let Some(number) = number {
                        recorder.succeed(place, number, position);
                    }
                }
                OpType::Fail | OpType::Info if pair > 0 => {
                    if let Some(mut open) = self.close(place, pair, recorder) {
                        if let Some(invocation) = self.invocation(place, pair) {
                            open.writes = recorder.writes(invocation);
                        }
                        recorder.give_up(open, kind, Some(position));
                    }
                }
                OpType::Fail | OpType::Info => {}
            }
            if recorder.is_refused() {
                return;
            }
        }
        self.carry_over(recorder);
    }

    /// The number of the process with this id in the chunk. It gets one with its first transaction.
    #[inline]
    fn process<R: TransactionRecorder>(
        &mut self,
        id: u32,
        client: u64,
        recorder: &mut R,
    ) -> ProcessNumber {
        *self.processes[id as usize].get_or_insert_with(|| recorder.process(client))
    }

    /// The row of the invocation of the operation at `place`, if it is among the new operations of this chunk.
    fn invocation(&self, place: usize, pair: i64) -> Option<usize> {
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        place.checked_sub(distance).filter(|&at| at >= self.known)
    }

    /// The transaction that the operation at `place` completes. It has writes only if its invocation was carried over.
    #[inline]
    fn close<R: TransactionRecorder>(
        &mut self,
        place: usize,
        pair: i64,
        recorder: &mut R,
    ) -> Option<OpenTransaction<R::Write>> {
        let Some(place) = self.invocation(place, pair) else {
            let position = self.chunk.invocation(place)?;
            return recorder.carried().0.remove(&position);
        };
        let number = self.open[place].take()?;
        let writes = Ok(Vec::new());
        Some(OpenTransaction { number, writes })
    }

    /// Carries open transactions over to the next chunk.
    fn carry_over<R: TransactionRecorder>(&self, recorder: &mut R) {
        for (place, number) in self.open.iter().enumerate() {
            if let Some(number) = *number {
                let writes = recorder.writes(place);
                let position = self.chunk.first_position() + place as u64;
                let open = OpenTransaction { number, writes };
                let before = recorder.carried().0.insert(position, open);
                debug_assert!(before.is_none(), "an invocation is carried over once");
            }
        }
    }
}

/// Where the micro-operations of a chunk's transactions are, if all are of the kind that is checked.
pub struct TransactionRanges<'a> {
    chunk: &'a Chunk,
    /// By tag: is it of another kind?
    is_other: fn(u8) -> bool,
    /// What a micro-operation of another kind is not, for messages.
    expected: &'static str,
    /// Are there any of another kind in the chunk?
    has_others: bool,
}

impl<'a> TransactionRanges<'a> {
    /// Transactions of appends to lists and reads of lists.
    pub fn of_lists(chunk: &'a Chunk) -> TransactionRanges<'a> {
        let is_other = |tag| tag == mop_tag::WRITE || tag == mop_tag::READ_REGISTER;
        // Without a branch, so that the compiler compares many tags at once.
        let tags = chunk.mop_tags().iter();
        TransactionRanges {
            chunk,
            has_others: tags.fold(false, |any, &tag| any | is_other(tag)),
            is_other,
            expected: "neither an append to a list nor a read of one",
        }
    }

    /// Transactions of writes and reads of registers.
    pub fn of_registers(chunk: &'a Chunk) -> TransactionRanges<'a> {
        let is_other = |tag| {
            tag != mop_tag::WRITE && tag != mop_tag::READ_NIL && tag != mop_tag::READ_REGISTER
        };
        let tags = chunk.mop_tags().iter();
        TransactionRanges {
            chunk,
            has_others: tags.fold(false, |any, &tag| any | is_other(tag)),
            is_other,
            expected: "neither a write of a register nor a read of one",
        }
    }

    /// The range of the micro-operations of the operation at `place`, or why it is not such a transaction.
    #[inline]
    pub fn range(&self, place: usize) -> Result<(usize, usize), RefusedOperation> {
        let chunk = self.chunk;
        let Some((start, end)) = chunk.txn_range(place) else {
            return Err(RefusedOperation {
                index: chunk.index(place),
                reason: "its value is not a transaction".into(),
            });
        };
        if self.has_others {
            self.refuse_others(place, (start, end))?;
        }
        Ok((start, end))
    }

    #[cold]
    fn refuse_others(&self, place: usize, range: (usize, usize)) -> Result<(), RefusedOperation> {
        let chunk = self.chunk;
        let tags = &chunk.mop_tags()[range.0..range.1];
        let Some(other) = tags.iter().position(|&tag| (self.is_other)(tag)) else {
            return Ok(());
        };
        let op = chunk.op(place);
        let mop = op.value.as_txn().and_then(|mops| mops.get(other));
        let mop = mop.map(ToString::to_string).unwrap_or_default();
        Err(RefusedOperation {
            index: chunk.index(place),
            reason: format!("{mop} is {}", self.expected),
        })
    }
}
