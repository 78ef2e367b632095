//! One pass over the chunks of a history.

use super::table::{Contradicting, NONE, Refusal, Table, outcome};
use crate::txn::dense::Map;
use crate::txn::findings::FINDINGS_MAX;
use crate::txn::g1::{Columns, Done, Own, mops};
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Fold, OpType, Order, Process};
use std::ops::ControlFlow;

/// Collects the [`Table`], chunk by chunk in order.
///
/// A chunk keeps one list per key, of which most reads are prefixes; that list is compared once with what is known of
/// the key, and after that its reads are only lengths. What a transaction appends is taken from its completion when it
/// succeeded, else from its invocation; what is still open at the end of a chunk is carried along.
pub(super) struct Gather;

/// The table while it is made.
#[derive(Default)]
pub(super) struct Gathering {
    table: Table,
    processes: Map<Process, u32>,
    /// Transactions without a completion so far, by the position of their invocation.
    open: Map<u64, Open>,
}

/// A transaction without a completion so far.
struct Open {
    number: u32,
    /// What it may append, or why it is none.
    appends: Result<Vec<(u32, i64)>, (u64, String)>,
}

impl Fold for Gather {
    type Accumulator = Gathering;
    type Output = Table;

    fn name(&self) -> String {
        "list-append".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Gathering {
        Gathering::default()
    }

    fn reduce(&self, gathering: &mut Gathering, chunk: &Chunk) -> ControlFlow<()> {
        if chunk.first_position() + chunk.len() as u64 >= u64::from(NONE) {
            let refusal = Refusal::Size("more than 2^32 operations");
            gathering.table.refusal.get_or_insert(refusal);
        } else {
            Pass::new(chunk, gathering).run();
        }
        match gathering.table.refusal {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    }

    fn combine(&self, _: &mut Gathering, _: Gathering) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, mut gathering: Gathering) -> Table {
        let mut open: Vec<_> = gathering.open.into_values().collect();
        open.sort_unstable_by_key(|open| open.number);
        for open in open {
            take(&mut gathering.table, open);
        }
        gathering.table
    }
}

/// The appends of a transaction that did not succeed.
fn take(table: &mut Table, open: Open) {
    match open.appends {
        Ok(appends) => {
            for (list, element) in appends {
                table.append(list, element, open.number);
            }
        }
        Err((index, reason)) => {
            table
                .refusal
                .get_or_insert(Refusal::Operation(index, reason));
        }
    }
}

/// One chunk being reduced.
struct Pass<'a> {
    chunk: &'a Chunk,
    own: Own<'a>,
    /// By key id: the number of its list.
    lists: Vec<u32>,
    /// By key id: is the chunk's list a prefix of what is known, or the other way round?
    is_straight: Vec<bool>,
    /// By process id of the chunk: its number; [`NONE`] for who is no client.
    processes: Vec<u32>,
    /// By place of an invocation: its transaction while that has not completed.
    open: Vec<u32>,
    /// Transactions completed so far, for `own`.
    checked: u32,
    gathering: &'a mut Gathering,
}

impl<'a> Pass<'a> {
    fn new(chunk: &'a Chunk, gathering: &'a mut Gathering) -> Pass<'a> {
        let keys = 0..chunk.key_count() as u32;
        let lists: Vec<_> = keys
            .clone()
            .map(|key| gathering.table.list_of(chunk.key(key)))
            .collect();
        let is_straight = keys.zip(&lists).map(|(key, &list)| {
            let known = &gathering.table.lists[list as usize].elements;
            is_straight(known, chunk.list(key))
        });
        let is_straight = is_straight.collect();
        let numbers = &mut gathering.processes;
        let processes = chunk.processes().iter().map(|&process| {
            if !process.is_client() {
                return NONE;
            }
            let next = numbers.len() as u32;
            *numbers.entry(process).or_insert(next)
        });
        Pass {
            own: Own::new(chunk),
            lists,
            is_straight,
            processes: processes.collect(),
            open: vec![NONE; chunk.len()],
            checked: 0,
            chunk,
            gathering,
        }
    }

    fn run(&mut self) {
        let chunk = self.chunk;
        let first = chunk.first_position() as u32;
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, ((&kind, &process), &pair)) in kinds.zip(chunk.pairs()).enumerate() {
            let process = self.processes[process as usize];
            if process == NONE {
                continue;
            }
            let position = first + place as u32;
            match kind {
                OpType::Invoke => {
                    self.open[place] = self.gathering.table.push(position, process);
                }
                OpType::Ok => {
                    let number = if pair > 0 {
                        self.close(place, pair).map(|open| open.number)
                    } else {
                        Some(self.gathering.table.push(NONE, process))
                    };
                    if let Some(number) = number {
                        self.gathering.table.completions[number as usize] = position;
                        self.succeed(place, number);
                    }
                }
                OpType::Fail | OpType::Info => {
                    let is_fail = kind == OpType::Fail;
                    if pair > 0 {
                        self.give_up(place, pair, position, is_fail);
                    }
                }
            }
            if self.gathering.table.refusal.is_some() {
                return;
            }
        }
        self.carry_on();
    }

    /// The transaction that the operation at `place` completes. What it appends is told only if its invocation stands
    /// in another chunk.
    fn close(&mut self, place: usize, pair: i64) -> Option<Open> {
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        let Some(place) = place.checked_sub(distance) else {
            let position = self.chunk.invocation(place)?;
            return self.gathering.open.remove(&position);
        };
        let number = std::mem::replace(&mut self.open[place], NONE);
        let appends = Ok(Vec::new());
        (number != NONE).then_some(Open { number, appends })
    }

    fn give_up(&mut self, place: usize, pair: i64, position: u32, is_fail: bool) {
        let Some(mut open) = self.close(place, pair) else {
            return;
        };
        let number = open.number as usize;
        let table = &mut self.gathering.table;
        table.completions[number] = position;
        if is_fail {
            table.outcomes[number] = outcome::FAIL;
        }
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        if let Some(invocation) = place.checked_sub(distance) {
            open.appends = self.appends(invocation);
        }
        take(&mut self.gathering.table, open);
    }

    /// What the operation at `place` appends, or why it is no transaction on lists.
    fn appends(&self, place: usize) -> Result<Vec<(u32, i64)>, (u64, String)> {
        let range = self.transaction(place)?;
        let mops = Columns::of(self.chunk).range(range.0, range.1);
        let appends = mops.filter(|&(tag, ..)| tag == mop_tag::APPEND);
        Ok(appends
            .map(|(_, key, element)| (self.lists[key as usize], element))
            .collect())
    }

    /// Where the micro-operations of the operation at `place` are.
    fn transaction(&self, place: usize) -> Result<(usize, usize), (u64, String)> {
        let chunk = self.chunk;
        let index = chunk.index(place);
        let Some((start, end)) = mops(chunk, place) else {
            return Err((index, "its value is not a transaction".into()));
        };
        let is_other = |&tag: &u8| tag == mop_tag::WRITE || tag == mop_tag::READ_REGISTER;
        let tags = &chunk.mop_tags()[start..end];
        if let Some(other) = tags.iter().position(is_other) {
            let op = chunk.op(place);
            let mop = op.value.as_txn().and_then(|mops| mops.get(other));
            let mop = mop.map(ToString::to_string).unwrap_or_default();
            let reason = format!("{mop} is neither an append to a list nor a read of one");
            return Err((index, reason));
        }
        Ok((start, end))
    }

    /// Takes a successful transaction into account.
    fn succeed(&mut self, place: usize, number: u32) {
        let range = match self.transaction(place) {
            Ok(range) => range,
            Err((index, reason)) => {
                let refusal = Refusal::Operation(index, reason);
                self.gathering.table.refusal.get_or_insert(refusal);
                return;
            }
        };
        self.checked += 1;
        let Pass {
            chunk,
            own,
            lists,
            is_straight,
            gathering,
            ..
        } = self;
        let table = &mut gathering.table;
        table.outcomes[number as usize] = outcome::OK;
        let found = own.check(self.checked, range, |done| match done {
            Done::Append(key, element) => table.append(lists[key as usize], element, number),
            Done::Read(read) => {
                let key = read.key as usize;
                if read.is_prefix && is_straight[key] {
                    let length = read.elements.len() as u32;
                    table.read_prefix(lists[key], read.elements, length, number);
                } else if table.read_any(lists[key], read.elements, number) {
                    let known = &table.lists[lists[key] as usize].elements;
                    is_straight[key] = self::is_straight(known, chunk.list(read.key));
                }
            }
        });
        table.ended.push(number);
        table.read_ends.push(table.reads.len() as u32);
        if table.reads.len() >= u32::MAX as usize {
            let refusal = Refusal::Size("more than 2^32 reads");
            table.refusal.get_or_insert(refusal);
        }
        note(found.internal, &mut table.internal, number);
        note(found.future, &mut table.future, number);
    }

    /// Keeps what is open at the end of the chunk.
    fn carry_on(&mut self) {
        for place in 0..self.open.len() {
            let number = self.open[place];
            if number != NONE {
                let appends = self.appends(place);
                let position = self.chunk.first_position() + place as u64;
                let open = Open { number, appends };
                self.gathering.open.insert(position, open);
            }
        }
    }
}

fn note(is_found: bool, contradicting: &mut Contradicting, number: u32) {
    if is_found {
        contradicting.count += 1;
        if contradicting.first.len() < FINDINGS_MAX {
            contradicting.first.push(number);
        }
    }
}

fn is_straight(known: &[i64], list: &[i64]) -> bool {
    let common = known.len().min(list.len());
    known[..common] == list[..common]
}
