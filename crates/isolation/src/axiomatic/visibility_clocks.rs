//! Causal consistency, PRAM and monotonic writes: visibility by vector clocks.

use super::ForcedOrder;
use super::session_program::{ReadSource, SessionProgram};
use seatrial_cycles::{Csr, CsrCounter, Txn, dense_id};

/// Bound for the entries of clocks in memory at a time: 256 MiB. If the clocks of all live transactions need more, the
/// sessions are processed in several rounds.
const ENTRIES_MAX: usize = 1 << 26;
/// Up to this number of writers of a key per session are looked at one by one, more of them by binary search.
const WRITERS_FEW: usize = 4;

dense_id! {
    /// A place for the clock of a live transaction.
    ClockSlot
}

/// Which transactions of other sessions a transaction has seen; of each session a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VisibilityRule {
    /// Everything that happened before: by sessions and reads, any number of steps (causal).
    Everything,
    /// The sources of its session so far, all before these in their sessions, and its own session (PRAM).
    BySession,
    /// The transactions before its sources, in their sessions (monotonic writes).
    BeforeSources,
}

/// By key: its writers as (session, transaction), session after session, each in its order.
fn writers_by_key(program: &SessionProgram<'_>) -> Csr<(u32, u32)> {
    let mut counter = CsrCounter::new(program.columns.key_count());
    for &member in program.all() {
        for key in program.writes(member) {
            counter.count(key);
        }
    }
    let mut filler = counter
        .into_filler()
        .expect("events are numbered with 32 bits, and writes are fewer");
    for &member in program.all() {
        let session = program.session(member);
        for key in program.writes(member) {
            filler.put(key, (session, member));
        }
    }
    let writers = filler.finish();
    debug_assert!(
        writers
            .rows()
            .all(|row| row.is_sorted_by_key(|writer| writer.0))
    );
    writers
}

/// Slots for the clocks of live transactions. A transaction is live from its place in the order up to its last use, by the
/// next transaction of its session or by the last reader of its writes. Then its slot is reused, so there are as many slots
/// as transactions are live at the same time: about one per session and one per version that will be read again.
struct Slots {
    /// By transaction: its slot; `None` if its clock is never used.
    of: Vec<Option<ClockSlot>>,
    /// Number of slots.
    count: usize,
}

impl Slots {
    /// The slots of all transactions, processed in this order. Linear.
    fn new(program: &SessionProgram<'_>, order: &[u32]) -> Slots {
        let mut uses = vec![0_u32; program.columns.len()];
        // By session: its last transaction so far.
        let mut last: Vec<Option<Txn>> = vec![None; program.session_count()];
        for &reader in order {
            let session = program.session(reader) as usize;
            if let Some(before) = last[session].replace(Txn::new(reader)) {
                uses[before.index()] += 1;
            }
            for source in program.sources(reader) {
                uses[source as usize] += 1;
            }
        }
        let mut slots = Slots {
            of: vec![None; uses.len()],
            count: 0,
        };
        let mut free: Vec<ClockSlot> = Vec::new();
        last.fill(None);
        for &reader in order {
            if uses[reader as usize] > 0 {
                let slot = free.pop().unwrap_or_else(|| {
                    slots.count += 1;
                    ClockSlot::new(slots.count as u32 - 1)
                });
                slots.of[reader as usize] = Some(slot);
            }
            let session = program.session(reader) as usize;
            let before = last[session].replace(Txn::new(reader)).map(Txn::get);
            for used in program.sources(reader).chain(before) {
                let left = &mut uses[used as usize];
                *left -= 1;
                if *left == 0 {
                    free.extend(slots.of[used as usize]);
                }
            }
        }
        assert!(
            uses.iter().all(|&left| left == 0),
            "a clock is used less often than was counted"
        );
        assert_eq!(free.len(), slots.count, "a slot is still in use at the end");
        slots
    }
}

/// The clocks of live transactions, for some of the sessions. A clock has for each session the first transaction that is not
/// known any more.
struct Clocks<'a> {
    slots: &'a Slots,
    /// The first session, and their number.
    first: usize,
    width: usize,
    rows: Vec<u32>,
}

impl Clocks<'_> {
    fn row(&self, transaction: u32) -> &[u32] {
        let slot = self.slots.of[transaction as usize];
        let slot = slot.expect("a clock that is used has a slot");
        let start = slot.index() * self.width;
        &self.rows[start..start + self.width]
    }

    /// Stores the clock of a transaction if it will be used.
    fn keep(&mut self, transaction: u32, row: &[u32]) {
        if let Some(slot) = self.slots.of[transaction as usize] {
            let start = slot.index() * self.width;
            self.rows[start..start + self.width].copy_from_slice(row);
        }
    }

    fn column(&self, session: u32) -> Option<usize> {
        let column = (session as usize).checked_sub(self.first)?;
        (column < self.width).then_some(column)
    }

    /// Adds `transaction`, and all that it knows, to `row`.
    fn join(&self, row: &mut [u32], transaction: u32, session: u32) {
        let column = self.column(session);
        if let Some(column) = column {
            if row[column] > transaction {
                // The row has this transaction, so it has all that it knows.
                return;
            }
            row[column] = transaction + 1;
        }
        for (mine, its) in row.iter_mut().zip(self.row(transaction)) {
            *mine = (*mine).max(*its);
        }
    }
}

/// Infers, for every read, that the last writer of its key in each session that the reader has seen commits before the one
/// that was read; except where that follows from sessions and reads anyway. `order` is a topological order of sessions and
/// reads.
///
/// Time is transactions times sessions, and only sessions with writers of the key count; memory is live transactions times
/// sessions, up to a bound above which sessions are processed in rounds.
pub(super) fn infer(
    program: &SessionProgram<'_>,
    seen: VisibilityRule,
    order: &[u32],
    take: &mut impl FnMut(ForcedOrder),
) {
    infer_in(program, seen, order, ENTRIES_MAX, take);
}

/// The same with a bound for the entries of clocks in memory.
pub(super) fn infer_in(
    program: &SessionProgram<'_>,
    seen: VisibilityRule,
    order: &[u32],
    entries_max: usize,
    take: &mut impl FnMut(ForcedOrder),
) {
    let writers = writers_by_key(program);
    let sessions = program.session_count();
    let slots = Slots::new(program, order);
    let width_max = (entries_max / (slots.count + view_count(program, seen)).max(1)).max(1);
    let mut first = 0;
    while first < sessions {
        let width = width_max.min(sessions - first);
        let clocks = Clocks {
            slots: &slots,
            first,
            width,
            rows: vec![0; slots.count * width],
        };
        round(program, seen, order, &writers, clocks, take);
        first += width;
    }
}

/// Number of rows besides the clocks: what each session has seen so far, only needed for PRAM.
fn view_count(program: &SessionProgram<'_>, seen: VisibilityRule) -> usize {
    if seen == VisibilityRule::BySession {
        program.session_count()
    } else {
        0
    }
}

/// One round over all transactions, for the sessions of these clocks.
fn round(
    program: &SessionProgram<'_>,
    seen: VisibilityRule,
    order: &[u32],
    writers: &Csr<(u32, u32)>,
    mut clocks: Clocks<'_>,
    take: &mut impl FnMut(ForcedOrder),
) {
    let mut row = vec![0; clocks.width];
    let mut view = vec![0; clocks.width];
    let mut views = vec![0; view_count(program, seen) * clocks.width];
    // By session: its last transaction so far.
    let mut last = vec![None; program.session_count()];
    for &reader in order {
        let session = program.session(reader);
        let before = last[session as usize].replace(reader);
        row.fill(0);
        if let Some(before) = before {
            row.copy_from_slice(clocks.row(before));
            if let Some(column) = clocks.column(session) {
                row[column] = before + 1;
            }
        }
        for source in program.sources(reader) {
            clocks.join(&mut row, source, program.session(source));
        }
        clocks.keep(reader, &row);
        match seen {
            VisibilityRule::Everything => view.copy_from_slice(&row),
            VisibilityRule::BySession => {
                let start = session as usize * clocks.width;
                let known = &mut views[start..start + clocks.width];
                look(program, &clocks, known, before.map(|it| it + 1), reader, 1);
                view.copy_from_slice(known);
            }
            VisibilityRule::BeforeSources => {
                view.fill(0);
                look(program, &clocks, &mut view, None, reader, 0);
            }
        }
        for (key, after) in program.reads(reader) {
            latest(&clocks, &view, writers.row(key), |before| {
                if ReadSource::written_by(before) != after
                    && !is_known(program, &clocks, before, after)
                {
                    take(ForcedOrder {
                        before,
                        after,
                        reader,
                        key,
                    });
                }
            });
        }
    }
}

/// Adds to a row its own session up to `own`, and the sessions of the reader's sources up to these plus `more`.
fn look(
    program: &SessionProgram<'_>,
    clocks: &Clocks<'_>,
    view: &mut [u32],
    own: Option<u32>,
    reader: u32,
    more: u32,
) {
    let own = own.map(|own| (program.session(reader), own));
    let sources = program.sources(reader);
    let sources = sources.map(|source| (program.session(source), source + more));
    for (session, until) in sources.chain(own) {
        if let Some(column) = clocks.column(session) {
            view[column] = view[column].max(until);
        }
    }
}

/// Did `before` happen before `after`, by sessions and reads?
fn is_known(
    program: &SessionProgram<'_>,
    clocks: &Clocks<'_>,
    before: u32,
    after: ReadSource,
) -> bool {
    let Some(after) = after.transaction() else {
        return false;
    };
    let column = clocks.column(program.session(before));
    column.is_some_and(|column| clocks.row(after)[column] > before)
}

/// Passes on the last writer of each session among those that the row contains.
fn latest(clocks: &Clocks<'_>, view: &[u32], writers: &[(u32, u32)], mut emit: impl FnMut(u32)) {
    let end = clocks.first + clocks.width;
    let mut writers = writers;
    if clocks.first > 0 {
        let first = writers.partition_point(|one| (one.0 as usize) < clocks.first);
        writers = &writers[first..];
    }
    if writers.len() <= WRITERS_FEW * clocks.width {
        let mut found = None;
        for &(session, writer) in writers {
            if session as usize >= end {
                break;
            }
            if view[session as usize - clocks.first] > writer {
                match found {
                    Some((other, last)) if other != session => emit(last),
                    _ => {}
                }
                found = Some((session, writer));
            }
        }
        if let Some((_, last)) = found {
            emit(last);
        }
        return;
    }
    while let Some(&(session, _)) = writers.first() {
        if session as usize >= end {
            return;
        }
        let (mine, others) = writers.split_at(writers.partition_point(|one| one.0 == session));
        let until = view[session as usize - clocks.first];
        let seen = mine.partition_point(|one| one.1 < until);
        if let Some(last) = seen.checked_sub(1) {
            emit(mine[last].1);
        }
        writers = others;
    }
}

#[cfg(test)]
mod tests;
