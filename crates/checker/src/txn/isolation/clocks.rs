//! What happened before what: vector clocks.

use super::Forced;
use super::program::{INITIAL, Program};
use crate::txn::transactions::NONE;

/// Entries of clocks that are held at a time: 256 MiB. If the clocks of all live transactions need more, the sessions are
/// taken in several rounds.
const ENTRIES_MAX: usize = 1 << 26;
/// Writers of a key, per session, that are gone through one by one.
const WRITERS_FEW: usize = 4;

/// What of other sessions a transaction has seen, always a beginning of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Everything that happened before: by sessions and reads, any number of steps (causal).
    Everything,
    /// What its session read from, and all before that in those sessions, and its own session (PRAM).
    BySession,
    /// All before what it read from, in those sessions (monotonic writes).
    BeforeSources,
}

/// Who writes each key, session after session, each in its order.
struct Writers {
    starts: Vec<u32>,
    /// Session, transaction.
    all: Vec<(u32, u32)>,
}

impl Writers {
    fn new(program: &Program<'_>) -> Writers {
        let keys = program.columns.key_count();
        let mut ends = vec![0_u32; keys + 2];
        for &member in program.all() {
            for key in program.writes(member) {
                ends[key as usize + 2] += 1;
            }
        }
        for key in 0..keys {
            ends[key + 2] += ends[key + 1];
        }
        let mut all = vec![(0, 0); ends[keys + 1] as usize];
        for &member in program.all() {
            let session = program.session(member);
            for key in program.writes(member) {
                let end = &mut ends[key as usize + 1];
                all[*end as usize] = (session, member);
                *end += 1;
            }
        }
        ends.pop();
        Writers { starts: ends, all }
    }

    fn of(&self, key: u32) -> &[(u32, u32)] {
        let key = key as usize;
        &self.all[self.starts[key] as usize..self.starts[key + 1] as usize]
    }
}

/// Slots for the clocks of live transactions: from the place of a transaction in the order up to its last use, by the next
/// transaction of its session or by the last reader of what it wrote. Then its slot is reused, so there are as many slots as
/// transactions are live at the same time: about one per session and one per version that will be read again.
struct Slots {
    /// By transaction: its slot; [`NONE`] if its clock is never used.
    of: Vec<u32>,
    /// Number of slots.
    count: usize,
}

impl Slots {
    /// The slots of all transactions if they are taken in this order. Linear.
    fn new(program: &Program<'_>, order: &[u32]) -> Slots {
        let mut uses = vec![0_u32; program.columns.len()];
        // By session: its last transaction so far.
        let mut last = vec![NONE; program.session_count()];
        for &reader in order {
            let before = std::mem::replace(&mut last[program.session(reader) as usize], reader);
            if before != NONE {
                uses[before as usize] += 1;
            }
            for source in program.sources(reader) {
                uses[source as usize] += 1;
            }
        }
        let mut slots = Slots {
            of: vec![NONE; uses.len()],
            count: 0,
        };
        let mut free = Vec::new();
        last.fill(NONE);
        for &reader in order {
            if uses[reader as usize] > 0 {
                slots.of[reader as usize] = free.pop().unwrap_or(slots.count as u32);
                slots.count = slots.count.max(slots.of[reader as usize] as usize + 1);
            }
            let before = std::mem::replace(&mut last[program.session(reader) as usize], reader);
            let before = (before != NONE).then_some(before);
            for used in program.sources(reader).chain(before) {
                let left = &mut uses[used as usize];
                *left -= 1;
                if *left == 0 {
                    free.push(slots.of[used as usize]);
                }
            }
        }
        debug_assert!(uses.iter().all(|&left| left == 0));
        slots
    }
}

/// Some sessions of the clocks of live transactions. A clock says of each session how far it is known: up to the transaction
/// before this number.
struct Clocks<'a> {
    slots: &'a Slots,
    /// The first session and how many.
    first: usize,
    width: usize,
    rows: Vec<u32>,
}

impl Clocks<'_> {
    fn row(&self, transaction: u32) -> &[u32] {
        let start = self.slots.of[transaction as usize] as usize * self.width;
        &self.rows[start..start + self.width]
    }

    /// Keeps the clock of a transaction as long as it is live.
    fn keep(&mut self, transaction: u32, row: &[u32]) {
        let slot = self.slots.of[transaction as usize];
        if slot != NONE {
            let start = slot as usize * self.width;
            self.rows[start..start + self.width].copy_from_slice(row);
        }
    }

    fn column(&self, session: u32) -> Option<usize> {
        let column = (session as usize).checked_sub(self.first)?;
        (column < self.width).then_some(column)
    }

    /// Adds `transaction`, and all that it knows, to what `row` knows.
    fn join(&self, row: &mut [u32], transaction: u32, session: u32) {
        let column = self.column(session);
        if let Some(column) = column {
            if row[column] > transaction {
                // Then all that it knows is known as well.
                return;
            }
            row[column] = transaction + 1;
        }
        for (mine, its) in row.iter_mut().zip(self.row(transaction)) {
            *mine = (*mine).max(*its);
        }
    }
}

/// Tells, for every read, that the last writer of its key of each session, as far as the reader has seen that, comes before
/// what was read, unless that is known anyhow because it happened before. `order` has all transactions after what they
/// come after by sessions and reads.
///
/// Time grows with transactions times sessions, and only with sessions among which the key has writers; memory with live
/// transactions times sessions, up to a bound above which sessions are taken in rounds.
pub(super) fn infer(
    program: &Program<'_>,
    seen: Seen,
    order: &[u32],
    take: &mut impl FnMut(Forced),
) {
    infer_in(program, seen, order, ENTRIES_MAX, take);
}

/// The same with so many entries of clocks at a time.
pub(super) fn infer_in(
    program: &Program<'_>,
    seen: Seen,
    order: &[u32],
    entries_max: usize,
    take: &mut impl FnMut(Forced),
) {
    let writers = Writers::new(program);
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

/// Views that are kept besides the clocks: what each session has seen so far, only when that is asked for.
fn view_count(program: &Program<'_>, seen: Seen) -> usize {
    if seen == Seen::BySession {
        program.session_count()
    } else {
        0
    }
}

/// The sessions of these clocks, as seen by all transactions.
fn round(
    program: &Program<'_>,
    seen: Seen,
    order: &[u32],
    writers: &Writers,
    mut clocks: Clocks<'_>,
    take: &mut impl FnMut(Forced),
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
            Seen::Everything => view.copy_from_slice(&row),
            Seen::BySession => {
                let start = session as usize * clocks.width;
                let known = &mut views[start..start + clocks.width];
                look(program, &clocks, known, before.map(|it| it + 1), reader, 1);
                view.copy_from_slice(known);
            }
            Seen::BeforeSources => {
                view.fill(0);
                look(program, &clocks, &mut view, None, reader, 0);
            }
        }
        for (key, after) in program.reads(reader) {
            latest(&clocks, &view, writers.of(key), |before| {
                if before != after && !is_known(program, &clocks, before, after) {
                    take(Forced {
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

/// Adds to a view its own session up to `own`, and the sessions of the reader's sources up to these and `more`.
fn look(
    program: &Program<'_>,
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

/// Did `before` happen before `after`?
fn is_known(program: &Program<'_>, clocks: &Clocks<'_>, before: u32, after: u32) -> bool {
    let column = clocks.column(program.session(before));
    after != INITIAL && column.is_some_and(|column| clocks.row(after)[column] > before)
}

/// The last writer of each session that is in view.
fn latest(clocks: &Clocks<'_>, view: &[u32], writers: &[(u32, u32)], mut tell: impl FnMut(u32)) {
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
                    Some((other, last)) if other != session => tell(last),
                    _ => {}
                }
                found = Some((session, writer));
            }
        }
        if let Some((_, last)) = found {
            tell(last);
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
            tell(mine[last].1);
        }
        writers = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::isolation::order::Predecessors;
    use crate::txn::registers::Builder;
    use seatrial_history::OpType;
    use seatrial_machine::Rng;

    #[test]
    fn live_transactions_have_slots_of_their_own() {
        let mut most = 0;
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let mut builder = Builder::default();
            let mut current = [0; 4];
            for value in 1..200 {
                builder.begin(rng.below(5));
                let (read, written) = (rng.index(4), rng.index(4));
                if current[read] > 0 {
                    builder.read(read as i64, Some(current[read]));
                }
                builder.write(written as i64, value);
                current[written] = value;
                builder.end(OpType::Ok);
            }
            let columns = builder.finish().unwrap();
            let program = Program::new(&columns);
            let order: Vec<u32> = (0..columns.len() as u32).collect();
            assert!(
                Predecessors::new(&program, &mut [])
                    .order(&program)
                    .is_some()
            );
            let slots = Slots::new(&program, &order);
            // By slot: the transaction whose clock stands there.
            let mut owners = vec![NONE; slots.count];
            let mut last = vec![NONE; program.session_count()];
            for &reader in &order {
                let before = std::mem::replace(&mut last[program.session(reader) as usize], reader);
                let before = (before != NONE).then_some(before);
                for used in program.sources(reader).chain(before) {
                    assert_eq!(
                        owners[slots.of[used as usize] as usize], used,
                        "seed {seed}"
                    );
                }
                if slots.of[reader as usize] != NONE {
                    owners[slots.of[reader as usize] as usize] = reader;
                }
            }
            most = most.max(slots.count);
        }
        // Five sessions, four versions that may be read again, and the one in hand.
        assert!(most <= 10, "{most}");
    }
}
