//! One pass over the chunks of a history.

use super::builder::{Builder, Refusal};
use super::columns::{Columns, NONE};
use crate::txn::dense::Map;
use crate::txn::g1::mops;
use crate::txn::passes::{InRounds, InTurn, Passes, Rounds};
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Chunks, Fold, FoldError, Folder, History, OpType, Order, Process};
use std::ops::ControlFlow;

impl Columns {
    /// The columns of the folder's history. The outer error is that of a chunk that cannot be read.
    pub fn gather<C: Chunks + 'static>(
        folder: &Folder<C>,
    ) -> Result<Result<Columns, Refusal>, FoldError<C::Error>> {
        folder.pass(Gather)
    }

    /// The columns of a history that is gone through once.
    pub fn of_rounds<R: Rounds>(rounds: &R) -> Result<Result<Columns, Refusal>, R::Error> {
        InRounds(rounds).pass(Gather)
    }

    /// The columns of a history in memory.
    pub fn of(history: &History) -> Result<Columns, Refusal> {
        InTurn(history).pass(Gather).unwrap_or_else(|error| {
            Err(Refusal::Operation {
                index: 0,
                reason: error.to_string(),
            })
        })
    }
}

/// Collects the [`Columns`], chunk by chunk in order.
///
/// What a transaction did is taken from its completion when it succeeded; else the writes of its invocation. What is
/// open at the end of a chunk is carried along.
pub(in crate::txn) struct Gather;

/// The columns while they are made.
#[derive(Default)]
pub(in crate::txn) struct Gathering {
    builder: Builder,
    /// Transactions without a completion so far, by the position of their invocation.
    open: Map<u64, Open>,
}

/// A transaction without a completion so far.
struct Open {
    number: u32,
    /// What it may write.
    writes: Result<Vec<(u32, i64)>, Refusal>,
}

impl Fold for Gather {
    type Accumulator = Gathering;
    type Output = Result<Columns, Refusal>;

    fn name(&self) -> String {
        "registers".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Gathering {
        Gathering::default()
    }

    fn reduce(&self, gathering: &mut Gathering, chunk: &Chunk) -> ControlFlow<()> {
        if chunk.first_position() + chunk.len() as u64 >= u64::from(NONE) {
            let (what, bits) = ("operations", 32);
            gathering.builder.refuse(Refusal::Size { what, bits });
        } else {
            Pass::new(chunk, gathering).run();
        }
        if gathering.builder.is_refused() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut Gathering, _: Gathering) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, mut gathering: Gathering) -> Result<Columns, Refusal> {
        let mut open: Vec<_> = gathering.open.into_values().collect();
        open.sort_unstable_by_key(|open| open.number);
        for open in open {
            fill(&mut gathering.builder, open, OpType::Info, NONE);
        }
        gathering.builder.finish()
    }
}

/// Takes a transaction that did not succeed into account.
fn fill(builder: &mut Builder, open: Open, outcome: OpType, ended: u32) {
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

/// One chunk being reduced.
struct Pass<'a> {
    chunk: &'a Chunk,
    /// By key id: its number; [`NONE`] as long as it is not needed.
    keys: Vec<u32>,
    /// By place of an invocation: its transaction while that has not completed.
    open: Vec<u32>,
    gathering: &'a mut Gathering,
}

impl<'a> Pass<'a> {
    fn new(chunk: &'a Chunk, gathering: &'a mut Gathering) -> Pass<'a> {
        if !chunk.is_empty() {
            let first = chunk.first_position() as u32;
            gathering.builder.number_from(first, chunk.index(0));
        }
        Pass {
            keys: vec![NONE; chunk.key_count()],
            open: vec![NONE; chunk.len()],
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
                    self.open[place] = self.gathering.builder.open(client, position);
                }
                OpType::Ok => {
                    let number = if pair > 0 {
                        self.close(place, pair).map(|open| open.number)
                    } else {
                        Some(self.gathering.builder.open(client, NONE))
                    };
                    if let Some(number) = number {
                        self.succeed(place, number, position);
                    }
                }
                OpType::Fail | OpType::Info => {
                    if pair > 0
                        && let Some(open) = self.give_up(place, pair)
                    {
                        fill(&mut self.gathering.builder, open, kind, position);
                    }
                }
            }
            if self.gathering.builder.is_refused() {
                return;
            }
        }
        self.carry_on();
    }

    /// The transaction that the operation at `place` completes. What it writes is told only if its invocation stands
    /// in another chunk.
    fn close(&mut self, place: usize, pair: i64) -> Option<Open> {
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        let Some(place) = place.checked_sub(distance) else {
            let position = self.chunk.invocation(place)?;
            return self.gathering.open.remove(&position);
        };
        let number = std::mem::replace(&mut self.open[place], NONE);
        let writes = Ok(Vec::new());
        (number != NONE).then_some(Open { number, writes })
    }

    fn give_up(&mut self, place: usize, pair: i64) -> Option<Open> {
        let mut open = self.close(place, pair)?;
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        if let Some(invocation) = place.checked_sub(distance) {
            open.writes = self.writes(invocation);
        }
        Some(open)
    }

    /// The number of the key with this id.
    fn key(&mut self, id: u32) -> u32 {
        let known = &mut self.keys[id as usize];
        if *known == NONE {
            *known = self.gathering.builder.key(self.chunk.key(id));
        }
        *known
    }

    /// What the operation at `place` writes, or why it is no transaction on registers.
    fn writes(&mut self, place: usize) -> Result<Vec<(u32, i64)>, Refusal> {
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

    /// Where the micro-operations of the operation at `place` are.
    fn transaction(&self, place: usize) -> Result<(usize, usize), Refusal> {
        let chunk = self.chunk;
        let index = chunk.index(place);
        let Some((start, end)) = mops(chunk, place) else {
            let reason = "its value is not a transaction".into();
            return Err(Refusal::Operation { index, reason });
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
            return Err(Refusal::Operation { index, reason });
        }
        Ok((start, end))
    }

    /// Takes a successful transaction into account.
    fn succeed(&mut self, place: usize, number: u32, position: u32) {
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
        self.gathering.builder.close(OpType::Ok, position);
    }

    /// Keeps what is open at the end of the chunk.
    fn carry_on(&mut self) {
        for place in 0..self.open.len() {
            let number = self.open[place];
            if number != NONE {
                let writes = self.writes(place);
                let position = self.chunk.first_position() + place as u64;
                self.gathering
                    .open
                    .insert(position, Open { number, writes });
            }
        }
    }
}
