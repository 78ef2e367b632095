//! One pass over the chunks of a history into columns.

use super::columns::Columns;
use super::columns_builder::{ColumnsBuilder, ColumnsError};
use seatrial_checker::{Checked, FoldChecker, OnlineChecker};
use seatrial_cycles::{KeyId, Position, Txn};
use seatrial_history::FixedMap;
use seatrial_history::chunk::mop_tag;
use seatrial_history::{
    Chunk, ChunkSource, Fold, History, OpType, Order, Process, SourceError, Stamps, TransactionSink,
};
use std::ops::ControlFlow;

/// The number of positions that a [`Position`] can have.
const POSITIONS_MAX: u32 = u32::MAX;

impl Columns {
    /// The columns of a source, which is read once. The outer error is that of an unreadable source.
    pub fn gather(source: &dyn ChunkSource) -> Result<Result<Columns, ColumnsError>, SourceError> {
        source.fold(&GatherRegisters)
    }

    /// The columns of a history in memory.
    pub fn of(history: &History) -> Result<Columns, ColumnsError> {
        Columns::gather(history).unwrap_or_else(|error| {
            Err(ColumnsError::Operation {
                index: 0,
                reason: error.to_string(),
            })
        })
    }
}

/// Gathers the [`Columns`], chunk by chunk in order.
///
/// The events of a transaction are those of its completion if it succeeded, otherwise the writes of its invocation.
/// Transactions that are open at the end of a chunk are kept until their completion.
pub(super) struct GatherRegisters;

/// The columns during the pass.
#[derive(Default)]
pub(super) struct RegisterGathering {
    builder: ColumnsBuilder,
    /// Number of transactions that came without operations.
    transactions: u64,
    /// Transactions without a completion so far, by the position of their invocation.
    open: FixedMap<u64, OpenTransaction>,
}

/// Takes transactions without operations: each takes two positions, as its invocation and its completion would.
impl TransactionSink for RegisterGathering {
    fn begin(&mut self, session: u64, _: Option<Stamps>) {
        let begun = self.position();
        let number = self.builder.open(session, Some(Position::new(begun)));
        self.builder.fill(number);
    }

    fn read(&mut self, key: i64, value: Option<i64>) {
        self.builder.read(key, value);
    }

    fn write(&mut self, key: i64, value: i64) {
        self.builder.write(key, value);
    }

    fn append(&mut self, key: i64, element: i64) {
        TransactionSink::append(&mut self.builder, key, element);
    }

    fn read_list(&mut self, key: i64, elements: &[i64]) {
        TransactionSink::read_list(&mut self.builder, key, elements);
    }

    /// The error is that the transaction is not one on registers.
    fn end(&mut self, outcome: OpType) -> Result<(), String> {
        let ended = self.position().saturating_add(1);
        self.builder.close(outcome, Some(Position::new(ended)));
        self.transactions += 1;
        self.builder.check()
    }
}

impl RegisterGathering {
    /// The position of the invocation of the next transaction without operations.
    fn position(&mut self) -> u32 {
        // The last one that has another after it, for the completion.
        let last = POSITIONS_MAX - 2;
        match u32::try_from(2 * self.transactions) {
            Ok(position) if position <= last => position,
            _ => {
                let (what, bits) = ("operations", 32);
                self.builder.refuse(ColumnsError::Size { what, bits });
                last
            }
        }
    }
}

/// Starts a checker of registers: gathers the transactions into [`Columns`] as they are pushed, and decides at the end.
/// `decide` gets the columns, or the reason why the history has none.
pub fn start(
    name: &'static str,
    decide: impl FnOnce(Result<Columns, ColumnsError>) -> Checked + Send + 'static,
) -> Box<dyn OnlineChecker> {
    let end = |columns, _: &dyn ChunkSource| Ok(decide(columns));
    Box::new(FoldChecker::with_end(name, GatherRegisters, end).with_sink(|gathering| gathering))
}

/// A transaction without a completion so far.
struct OpenTransaction {
    number: Txn,
    /// Its writes, in case that it does not succeed.
    writes: Result<Vec<(KeyId, i64)>, ColumnsError>,
}

impl Fold for GatherRegisters {
    type Accumulator = RegisterGathering;
    type Output = Result<Columns, ColumnsError>;

    fn name(&self) -> String {
        "registers".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> RegisterGathering {
        RegisterGathering::default()
    }

    fn reduce(&self, gathering: &mut RegisterGathering, chunk: &Chunk) -> ControlFlow<()> {
        if chunk.first_position() + chunk.len() as u64 >= u64::from(POSITIONS_MAX) {
            let (what, bits) = ("operations", 32);
            gathering.builder.refuse(ColumnsError::Size { what, bits });
        } else {
            ChunkPass::new(chunk, gathering).run();
        }
        if gathering.builder.is_refused() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut RegisterGathering, _: RegisterGathering) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, mut gathering: RegisterGathering) -> Result<Columns, ColumnsError> {
        let mut open: Vec<_> = gathering.open.into_values().collect();
        open.sort_unstable_by_key(|open| open.number);
        for open in open {
            fill(&mut gathering.builder, open, OpType::Info, None);
        }
        gathering.builder.finish()
    }
}

/// Adds a transaction that did not succeed.
fn fill(
    builder: &mut ColumnsBuilder,
    open: OpenTransaction,
    outcome: OpType,
    ended: Option<Position>,
) {
    match open.writes {
        Ok(writes) => {
            builder.fill(open.number);
            for (key, value) in writes {
                builder.write_key(key, value);
            }
            builder.close(outcome, ended);
        }
        Err(refusal) => builder.refuse(refusal),
    }
}

/// The pass over one chunk.
struct ChunkPass<'a> {
    chunk: &'a Chunk,
    /// By key id of the chunk: the key in the columns; `None` until it is needed.
    keys: Vec<Option<KeyId>>,
    /// By index in the chunk of an invocation: its transaction until it completes.
    open: Vec<Option<Txn>>,
    gathering: &'a mut RegisterGathering,
}

impl<'a> ChunkPass<'a> {
    fn new(chunk: &'a Chunk, gathering: &'a mut RegisterGathering) -> ChunkPass<'a> {
        if !chunk.is_empty() {
            let first = chunk.first_position() as u32;
            gathering.builder.number_from(first, chunk.index(0));
        }
        ChunkPass {
            keys: vec![None; chunk.key_count()],
            open: vec![None; chunk.len()],
            chunk,
            gathering,
        }
    }

    fn run(&mut self) {
        let chunk = self.chunk;
        let first = chunk.first_position() as u32;
        let processes = chunk.processes();
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, ((&kind, &process), &pair)) in kinds.zip(chunk.pairs()).enumerate() {
            let Process::Client(client) = processes[process as usize] else {
                continue;
            };
            let position = first + place as u32;
            self.gathering
                .builder
                .number_from(position, chunk.index(place));
            match kind {
                OpType::Invoke => {
                    let begun = Some(Position::new(position));
                    self.open[place] = Some(self.gathering.builder.open(client, begun));
                }
                OpType::Ok => {
                    let number = if pair > 0 {
                        self.close(place, pair).map(|open| open.number)
                    } else {
                        Some(self.gathering.builder.open(client, None))
                    };
                    if let Some(number) = number {
                        self.succeed(place, number, position);
                    }
                }
                OpType::Fail | OpType::Info => {
                    if pair > 0
                        && let Some(open) = self.give_up(place, pair)
                    {
                        fill(
                            &mut self.gathering.builder,
                            open,
                            kind,
                            Some(Position::new(position)),
                        );
                    }
                }
            }
            if self.gathering.builder.is_refused() {
                return;
            }
        }
        self.carry_on();
    }

    /// The transaction that the operation at `place` completes. Its writes are included only if its invocation is in
    /// another chunk.
    fn close(&mut self, place: usize, pair: i64) -> Option<OpenTransaction> {
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        let Some(place) = place.checked_sub(distance) else {
            let position = self.chunk.invocation(place)?;
            return self.gathering.open.remove(&position);
        };
        let number = self.open[place].take()?;
        let writes = Ok(Vec::new());
        Some(OpenTransaction { number, writes })
    }

    fn give_up(&mut self, place: usize, pair: i64) -> Option<OpenTransaction> {
        let mut open = self.close(place, pair)?;
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        if let Some(invocation) = place.checked_sub(distance) {
            open.writes = self.writes(invocation);
        }
        Some(open)
    }

    /// The key in the columns with this id in the chunk.
    fn key(&mut self, id: u32) -> KeyId {
        let known = &mut self.keys[id as usize];
        *known.get_or_insert_with(|| self.gathering.builder.key(self.chunk.key(id)))
    }

    /// The writes of the operation at `place`, or why it is not a transaction on registers.
    fn writes(&mut self, place: usize) -> Result<Vec<(KeyId, i64)>, ColumnsError> {
        let (start, end) = self.transaction(place)?;
        let chunk = self.chunk;
        let (tags, keys) = (chunk.mop_tags(), chunk.mop_keys());
        let mut writes = Vec::new();
        for number in start..end {
            if tags[number] == mop_tag::WRITE {
                let key = self.key(keys[number]);
                writes.push((key, chunk.mop_arguments()[number]));
            }
        }
        Ok(writes)
    }

    /// The range of the micro-operations of the operation at `place`.
    fn transaction(&self, place: usize) -> Result<(usize, usize), ColumnsError> {
        let chunk = self.chunk;
        let index = chunk.index(place);
        let Some((start, end)) = chunk.txn_range(place) else {
            let reason = "its value is not a transaction".into();
            return Err(ColumnsError::Operation { index, reason });
        };
        let is_register = |tag| {
            matches!(
                tag,
                mop_tag::WRITE | mop_tag::READ_NIL | mop_tag::READ_REGISTER
            )
        };
        let tags = &chunk.mop_tags()[start..end];
        if let Some(other) = tags.iter().position(|&tag| !is_register(tag)) {
            let op = chunk.op(place);
            let mop = op.value.as_txn().and_then(|mops| mops.get(other));
            let mop = mop.map(ToString::to_string).unwrap_or_default();
            let reason = format!("{mop} is neither a write of a register nor a read of one");
            return Err(ColumnsError::Operation { index, reason });
        }
        Ok((start, end))
    }

    /// Adds a successful transaction.
    fn succeed(&mut self, place: usize, number: Txn, position: u32) {
        let (start, end) = match self.transaction(place) {
            Ok(range) => range,
            Err(refusal) => return self.gathering.builder.refuse(refusal),
        };
        let chunk = self.chunk;
        let (tags, keys) = (chunk.mop_tags(), chunk.mop_keys());
        let arguments = chunk.mop_arguments();
        self.gathering.builder.fill(number);
        for mop in start..end {
            let key = self.key(keys[mop]);
            let builder = &mut self.gathering.builder;
            match tags[mop] {
                mop_tag::WRITE => builder.write_key(key, arguments[mop]),
                mop_tag::READ_REGISTER => builder.read_key(key, Some(arguments[mop])),
                _ => builder.read_key(key, None),
            }
        }
        self.gathering
            .builder
            .close(OpType::Ok, Some(Position::new(position)));
    }

    /// Keeps the transactions that are open at the end of the chunk.
    fn carry_on(&mut self) {
        for place in 0..self.open.len() {
            if let Some(number) = self.open[place] {
                let writes = self.writes(place);
                let position = self.chunk.first_position() + place as u64;
                self.gathering
                    .open
                    .insert(position, OpenTransaction { number, writes });
            }
        }
    }
}
