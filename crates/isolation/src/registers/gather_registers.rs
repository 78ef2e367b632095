//! One pass over the chunks of a history into columns.

use super::columns::Columns;
use super::columns_builder::{ColumnsBuilder, ColumnsError};
use crate::recorded_transactions::{
    OpenTransaction, OpenTransactions, ProcessNumber, RefusedOperation, TransactionRanges,
    TransactionRecorder, record_chunk,
};
use seatrial_checker::{Aims, Checked, FoldChecker, OnlineChecker};
use seatrial_cycles::anomaly::{Anomaly, G1A};
use seatrial_cycles::{KeyId, Position, Txn};
use seatrial_history::chunk::mop_tag;
use seatrial_history::{
    Chunk, ChunkSource, Fold, History, OpType, Order, SourceError, Stamps, TransactionSink,
};
use std::ops::ControlFlow;

/// The number of positions that a [`Position`] can have.
const POSITIONS_MAX: u32 = u32::MAX;

impl Columns {
    /// The columns of a source, which is read once. The outer error is that of an unreadable source.
    pub fn gather(source: &dyn ChunkSource) -> Result<Result<Columns, ColumnsError>, SourceError> {
        source.fold(&GatherRegisters::default())
    }

    /// The columns of a history in memory.
    pub fn of(history: &History) -> Result<Columns, ColumnsError> {
        Columns::gather(history).unwrap_or_else(|error| {
            let reason = error.to_string();
            Err(RefusedOperation { index: 0, reason }.into())
        })
    }
}

/// Gathers the [`Columns`], chunk by chunk in order.
///
/// The events of a transaction are those of its completion if it succeeded, otherwise the writes of its invocation.
/// Transactions that are open at the end of a chunk are kept until their completion.
#[derive(Default)]
pub(super) struct GatherRegisters {
    is_stretch: bool,
}

/// A write of a transaction that may not succeed.
type RegisterWrite = (KeyId, i64);

/// The columns during the pass.
#[derive(Default)]
pub(super) struct RegisterGathering {
    builder: ColumnsBuilder,
    /// Number of transactions that came without operations.
    transactions: u64,
    /// Transactions without a completion so far.
    open: OpenTransactions<RegisterWrite>,
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

/// What the operations before a stretch may explain: the value of a failed write may have been written before, with success.
pub const OPEN_IN_STRETCHES: &[Anomaly] = &[G1A];

/// Starts a checker of registers: gathers the transactions into [`Columns`] as they are pushed, and decides at the end.
/// `decide` gets the columns, or the reason why the history has none. Beside a running test nothing is kept: the history is read
/// when it has ended.
pub fn start(
    name: &'static str,
    aims: &Aims,
    decide: impl FnOnce(Result<Columns, ColumnsError>) -> Checked + Send + 'static,
) -> Box<dyn OnlineChecker> {
    if aims.early {
        return Box::new(RegistersAtEnd { name, decide });
    }
    let fold = GatherRegisters {
        is_stretch: aims.stretch,
    };
    let end = |columns, _: &dyn ChunkSource| Ok(decide(columns));
    Box::new(FoldChecker::with_end(name, fold, end).with_sink(|gathering| gathering))
}

/// A checker of registers that reads the history when it has ended.
struct RegistersAtEnd<D> {
    name: &'static str,
    decide: D,
}

impl<D> OnlineChecker for RegistersAtEnd<D>
where
    D: FnOnce(Result<Columns, ColumnsError>) -> Checked + Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn push(&mut self, _: &Chunk) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn finish(self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        Ok((self.decide)(Columns::gather(source)?))
    }
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
        let builder = if self.is_stretch {
            ColumnsBuilder::of_stretch()
        } else {
            ColumnsBuilder::default()
        };
        RegisterGathering {
            builder,
            ..RegisterGathering::default()
        }
    }

    fn reduce(&self, gathering: &mut RegisterGathering, chunk: &Chunk) -> ControlFlow<()> {
        if chunk.first_position() + chunk.len() as u64 >= u64::from(POSITIONS_MAX) {
            let (what, bits) = ("operations", 32);
            gathering.builder.refuse(ColumnsError::Size { what, bits });
        } else {
            record_chunk(&mut RegisterChunkPass::new(chunk, gathering), chunk, 0);
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
        for open in gathering.open.into_sorted() {
            give_up(&mut gathering.builder, open, OpType::Info, None);
        }
        gathering.builder.finish()
    }
}

/// Adds a transaction that did not succeed.
fn give_up(
    builder: &mut ColumnsBuilder,
    open: OpenTransaction<RegisterWrite>,
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
        Err(refused) => builder.refuse(refused.into()),
    }
}

/// The pass over one chunk.
struct RegisterChunkPass<'a> {
    chunk: &'a Chunk,
    ranges: TransactionRanges<'a>,
    /// By key id of the chunk: the key in the columns; `None` until it is needed.
    keys: Vec<Option<KeyId>>,
    gathering: &'a mut RegisterGathering,
}

impl<'a> RegisterChunkPass<'a> {
    fn new(chunk: &'a Chunk, gathering: &'a mut RegisterGathering) -> RegisterChunkPass<'a> {
        gathering.builder.number_chunk(chunk);
        RegisterChunkPass {
            ranges: TransactionRanges::of_registers(chunk),
            keys: vec![None; chunk.key_count()],
            chunk,
            gathering,
        }
    }

    /// The key in the columns with this id in the chunk.
    #[inline]
    fn key(&mut self, id: u32) -> KeyId {
        let known = &mut self.keys[id as usize];
        *known.get_or_insert_with(|| self.gathering.builder.key(self.chunk.key(id)))
    }
}

impl TransactionRecorder for RegisterChunkPass<'_> {
    type Write = RegisterWrite;

    fn process(&mut self, client: u64) -> ProcessNumber {
        self.gathering.builder.process(client)
    }

    #[inline]
    fn open(&mut self, process: ProcessNumber, invocation: Option<Position>) -> Txn {
        self.gathering.builder.open_numbered(process, invocation)
    }

    fn writes(&mut self, place: usize) -> Result<Vec<RegisterWrite>, RefusedOperation> {
        let (start, end) = self.ranges.range(place)?;
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

    #[inline]
    fn succeed(&mut self, place: usize, number: Txn, completion: Position) {
        let (start, end) = match self.ranges.range(place) {
            Ok(range) => range,
            Err(refused) => return self.gathering.builder.refuse(refused.into()),
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
        self.gathering.builder.close(OpType::Ok, Some(completion));
    }

    fn give_up(
        &mut self,
        open: OpenTransaction<RegisterWrite>,
        outcome: OpType,
        completion: Option<Position>,
    ) {
        give_up(&mut self.gathering.builder, open, outcome, completion);
    }

    #[inline]
    fn is_refused(&self) -> bool {
        self.gathering.builder.is_refused()
    }

    fn carried(&mut self) -> &mut OpenTransactions<RegisterWrite> {
        &mut self.gathering.open
    }
}
