//! One pass over the chunks of a history.

use super::late::LateKeys;
use super::lists::Lists;
use super::record::Record;
use super::renaming::Renamed;
use super::table::{Again, Contradicting, NONE, Refusal, Table, outcome};
use super::{ListAppend, Windows};
use crate::txn::dense::Map;
use crate::txn::findings::FINDINGS_MAX;
use crate::txn::g1::{Columns, Done, Own, mops};
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Fold, Key, OpType, Order, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Collects the [`Table`], chunk by chunk in order, and judges it piece by piece.
///
/// A chunk keeps one list per key, of which most reads are prefixes; that list is compared once with what is known of
/// the key, and after that its reads are only lengths. What a transaction appends is taken from its completion when it
/// succeeded, else from its invocation; what is still open at the end of a chunk is carried along. When the table is
/// full, what nothing can change any more is judged and let go: see [`Record::judge`].
pub(super) struct Gather {
    pub(super) judge: ListAppend,
    /// Is an order of transactions wanted?
    pub(super) certify: bool,
    /// What is known in advance of keys that are read after they were closed.
    pub(super) late: LateKeys,
}

/// The table while it is made.
pub(super) struct Gathering {
    table: Table,
    record: Record,
    processes: Map<Process, u32>,
    /// Transactions without a completion so far, by the position of their invocation.
    open: Map<u64, Open>,
    /// Where the next operation stands.
    position: u64,
    /// Chunks so far; short ones are counted together.
    chunks: u32,
    /// Operations since the last one was counted.
    uncounted: usize,
    /// With so many transactions the table is full.
    full: usize,
    late: LateKeys,
    /// Keys whose lists were freed, which late operations may use as they are in [`Gathering::late`].
    shown: BTreeMap<Key, Freed>,
}

/// A list that was freed.
struct Freed {
    /// How many elements it had.
    length: u32,
    /// Elements appended to it that are not among these and did not take place, as far as is known.
    unread: Box<[i64]>,
}

/// A transaction without a completion so far.
struct Open {
    number: u32,
    /// What it may append, or why it is none.
    appends: Result<Vec<(u32, i64)>, (u64, String)>,
}

impl Fold for Gather {
    type Accumulator = Gathering;
    type Output = (Table, Record);

    fn name(&self) -> String {
        "list-append".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Gathering {
        Gathering {
            table: Table::default(),
            record: Record::new(self.judge, self.certify),
            processes: Map::default(),
            open: Map::default(),
            position: 0,
            chunks: 0,
            uncounted: 0,
            full: self.judge.windows.transactions_min,
            late: self.late.clone(),
            shown: BTreeMap::new(),
        }
    }

    fn reduce(&self, gathering: &mut Gathering, chunk: &Chunk) -> ControlFlow<()> {
        if chunk.first_position() + chunk.len() as u64 >= u64::from(NONE) {
            let refusal = Refusal::Size("more than 2^32 operations");
            gathering.table.refusal.get_or_insert(refusal);
        } else {
            gathering.take(chunk, self.judge.windows);
        }
        if gathering.is_full() {
            gathering.let_go(self.judge.windows);
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

    fn finish(&self, mut gathering: Gathering) -> (Table, Record) {
        let mut open: Vec<_> = gathering.open.into_values().collect();
        open.sort_unstable_by_key(|open| open.number);
        for open in open {
            take(&mut gathering.table, open);
        }
        (gathering.table, gathering.record)
    }
}

impl Gathering {
    /// Takes those operations of a chunk into account that are behind the last one that was.
    fn take(&mut self, chunk: &Chunk, windows: Windows) {
        let first = chunk.first_position();
        let known = self.position.saturating_sub(first) as usize;
        if known >= chunk.len() {
            return;
        }
        Pass::new(chunk, known, self).run();
        self.position = first + chunk.len() as u64;
        self.uncounted += chunk.len() - known;
        if self.uncounted >= windows.chunk_length_min {
            self.uncounted = 0;
            self.chunks += 1;
        }
    }

    /// Operations so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Elements of lists that transactions append which are still under way.
    pub(super) fn open_appends(&self) -> BTreeSet<(u32, i64)> {
        let open = self.open.values().flat_map(|open| &open.appends);
        open.flatten().copied().collect()
    }

    /// What is known and was not let go.
    pub(super) fn table(&mut self) -> &mut Table {
        &mut self.table
    }

    /// What was found when transactions were let go.
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Is it time to let some go?
    fn is_full(&self) -> bool {
        self.table.refusal.is_none() && self.table.len() >= self.full
    }

    /// Judges what nothing can change any more, and lets it go.
    fn let_go(&mut self, windows: Windows) {
        let closing = if self.late.is_empty() {
            self.closing(windows, |_| false)
        } else {
            self.closing_late(windows)
        };
        let table = std::mem::take(&mut self.table);
        let mut lists = Lists::new(table, self.record.level());
        let judged = self.record.judge(&mut lists, &closing, false);
        let unseen = std::mem::take(&mut lists.unseen);
        self.table = lists.table;
        let Ok(judged) = judged else {
            let refusal = Refusal::Size("more than 2^32 dependencies");
            self.table.refusal.get_or_insert(refusal);
            return;
        };
        self.show(&judged.leaving, &unseen);
        let Renamed {
            transactions,
            lists,
            processes,
        } = self.table.let_go(&judged, &closing);
        for open in self.open.values_mut() {
            open.number = transactions[open.number as usize];
            if let Ok(appends) = &mut open.appends {
                appends.retain_mut(|(list, _)| {
                    *list = lists[*list as usize];
                    *list != NONE
                });
            }
        }
        self.processes.retain(|_, number| {
            *number = processes.get(*number as usize).copied().unwrap_or(NONE);
            *number != NONE
        });
        // What stays is judged again with what comes: it must not be most of that.
        self.full = windows.transactions_min.max(2 * self.table.len());
    }

    /// The same where keys are named late: their lists are completed by what late reads show, and those are held open for
    /// which that does not do.
    fn closing_late(&mut self, windows: Windows) -> Vec<bool> {
        let running = self.open_appends();
        let mut held = BTreeSet::new();
        loop {
            let closing = self.closing(windows, |at| held.contains(&at));
            let completed = self.late.complete(&self.table, &closing, &running);
            let open = completed.iter().filter(|(_, elements)| elements.is_none());
            let before = held.len();
            held.extend(open.map(|(at, _)| *at));
            if held.len() > before {
                continue;
            }
            for (at, elements) in completed {
                let list = &mut self.table.lists[at as usize];
                list.is_final = true;
                list.elements = elements.unwrap_or_default();
            }
            return closing;
        }
    }

    /// Settles which closed lists may be used late: not those of which an append that took place was not read, for a late
    /// read misses it, and its writer may be freed. Notes those that are leaving. `unseen`: lists and writers of such
    /// appends, sorted.
    fn show(&mut self, leaving: &[bool], unseen: &[(u32, u32)]) {
        for &(list, _) in unseen {
            self.table.lists[list as usize].is_final = false;
        }
        let lists = self.table.lists.iter().zip(leaving);
        let shown = lists.filter(|(list, leaving)| **leaving && list.is_final);
        for (list, _) in shown {
            let mut unread = Vec::new();
            if self.late.is_appended(&list.key) {
                let read: BTreeSet<i64> = list.elements.iter().copied().collect();
                let all = list.appends().map(|(element, _)| element);
                unread.extend(all.filter(|element| !read.contains(element)));
            }
            let freed = Freed {
                length: list.elements.len() as u32,
                unread: unread.into(),
            };
            self.shown.insert(list.key.clone(), freed);
        }
    }

    /// Opens the list of a key again which is appended to after it was closed, if it was clean when it was: a list that is
    /// still known goes on; one that was freed begins with the elements that it had, whose writers are gone.
    fn reopen(&mut self, key: &Key) {
        if !self.late.is_appended(key) {
            return;
        }
        if let Some(at) = self.table.number(key) {
            let list = &mut self.table.lists[at as usize];
            if list.is_closed && list.is_final {
                list.is_closed = false;
                list.is_final = false;
                list.again = Some(Again {
                    base: list.elements.len() as u32,
                    is_counted: list.again.is_some_and(|again| again.is_counted),
                });
            }
        } else if let Some(freed) = self.shown.remove(key) {
            let elements = self.late.first(key, freed.length);
            self.table.reopen(key, elements, &freed.unread);
        }
    }

    /// By list: has nobody named its key for so long that nobody will? A transaction that is still running holds all lists
    /// that it appends to, as long as it may turn out that it took place. Some are held open in any case.
    fn closing(&self, windows: Windows, is_held: impl Fn(u32) -> bool) -> Vec<bool> {
        let lists = self.table.lists.iter().zip(0..);
        let idle = |named: u32| named.saturating_add(windows.idle_chunks) < self.chunks;
        let mut closing: Vec<_> = lists
            .map(|(list, at)| {
                let is_idle = !list.is_closed && idle(list.named);
                is_idle && !is_held(at) && !self.late.is_pinned(&list.key, self.chunks)
            })
            .collect();
        let is_unseen = |closing: &[bool], &(at, element): &(u32, i64)| {
            let list = &self.table.lists[at as usize];
            let is_seen = list.conflict.is_some() || list.elements.contains(&element);
            list.is_closed || closing[at as usize] && !is_seen
        };
        let mut is_final = false;
        while !is_final {
            is_final = true;
            for appends in self.open.values().flat_map(|open| &open.appends) {
                if !appends.iter().all(|append| is_unseen(&closing, append)) {
                    for &(at, _) in appends {
                        is_final &= !std::mem::replace(&mut closing[at as usize], false);
                    }
                }
            }
        }
        closing
    }
}

/// The appends of a transaction that did not succeed.
fn take(table: &mut Table, open: Open) {
    match open.appends {
        Ok(appends) => {
            for (list, element) in appends {
                // Nobody saw it, and nobody will.
                if !table.lists[list as usize].is_closed {
                    table.append(list, element, open.number);
                }
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
    names: Names,
    /// By process id of the chunk: its number; [`NONE`] for who is no client.
    processes: Vec<u32>,
    /// So many operations at its start are known already.
    known: usize,
    /// By place of an invocation: its transaction while that has not completed.
    open: Vec<u32>,
    /// Transactions completed so far, for `own`.
    checked: u32,
    /// Are there micro-operations on registers in the chunk?
    has_others: bool,
    gathering: &'a mut Gathering,
}

/// The lists of a chunk's keys.
struct Names {
    /// By key id: the number of its list; [`NONE`] as long as nothing was done to it, and for good when it is closed.
    lists: Vec<u32>,
    /// By key id: is the chunk's list a prefix of what is known, or the other way round?
    is_straight: Vec<bool>,
    /// The number of the chunk.
    now: u32,
}

impl Names {
    fn new(chunk: &Chunk, gathering: &mut Gathering) -> Names {
        let keys = 0..chunk.key_count() as u32;
        if !gathering.late.is_empty() {
            for key in keys.clone() {
                gathering.reopen(chunk.key(key));
            }
        }
        let table = &mut gathering.table;
        let mut names = Names {
            lists: vec![NONE; keys.len()],
            is_straight: vec![false; keys.len()],
            now: gathering.chunks,
        };
        for key in keys {
            if let Some(at) = table.number(chunk.key(key)) {
                let list = &mut table.lists[at as usize];
                list.named = gathering.chunks;
                if !list.is_closed {
                    names.lists[key as usize] = at;
                    let is_straight = is_straight(&list.elements, chunk.list(key));
                    names.is_straight[key as usize] = is_straight;
                }
            } else {
                names.is_straight[key as usize] = true;
            }
        }
        names
    }

    /// The list of this key id; `None` when it is closed.
    #[inline]
    fn open(&mut self, key: u32, chunk: &Chunk, table: &mut Table) -> Option<u32> {
        match self.lists[key as usize] {
            NONE => self.begin(key, chunk, table),
            at => Some(at),
        }
    }

    /// The same when nothing was done to it in the chunk.
    #[cold]
    fn begin(&mut self, key: u32, chunk: &Chunk, table: &mut Table) -> Option<u32> {
        let name = chunk.key(key);
        if table.number(name).is_some() || table.closed.contains(name) {
            return None;
        }
        let at = table.list_of(name);
        table.lists[at as usize].named = self.now;
        self.lists[key as usize] = at;
        Some(at)
    }

    /// The list of this key id, of which somebody knows what he read or appended.
    #[inline]
    fn list(&mut self, key: u32, chunk: &Chunk, table: &mut Table) -> u32 {
        self.open(key, chunk, table).unwrap_or_else(|| {
            let name = chunk.key(key);
            table.refusal.get_or_insert(Refusal::Reopened(name.clone()));
            table.list_of(name)
        })
    }
}

impl<'a> Pass<'a> {
    fn new(chunk: &'a Chunk, known: usize, gathering: &'a mut Gathering) -> Pass<'a> {
        let names = Names::new(chunk, gathering);
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
            names,
            processes: processes.collect(),
            known,
            open: vec![NONE; chunk.len()],
            checked: 0,
            // All are looked at, many at once.
            has_others: chunk
                .mop_tags()
                .iter()
                .fold(false, |any, &tag| any | is_other(tag)),
            chunk,
            gathering,
        }
    }

    fn run(&mut self) {
        let chunk = self.chunk;
        let first = chunk.first_position() as u32;
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        let operations = kinds.zip(chunk.pairs()).enumerate();
        for (place, ((&kind, &process), &pair)) in operations.skip(self.known) {
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
        let Some(place) = self.invocation(place, pair) else {
            let position = self.chunk.invocation(place)?;
            return self.gathering.open.remove(&position);
        };
        let number = std::mem::replace(&mut self.open[place], NONE);
        let appends = Ok(Vec::new());
        (number != NONE).then_some(Open { number, appends })
    }

    /// The place of the invocation of the operation at `place`, if it stands among what is looked at.
    fn invocation(&self, place: usize, pair: i64) -> Option<usize> {
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        place.checked_sub(distance).filter(|&at| at >= self.known)
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
        if let Some(invocation) = self.invocation(place, pair) {
            open.appends = self.appends(invocation);
        }
        take(&mut self.gathering.table, open);
    }

    /// What the operation at `place` appends, or why it is no transaction on lists.
    fn appends(&mut self, place: usize) -> Result<Vec<(u32, i64)>, (u64, String)> {
        let range = self.transaction(place)?;
        let mops = Columns::of(self.chunk).range(range.0, range.1);
        let appends = mops.filter(|&(tag, ..)| tag == mop_tag::APPEND);
        let mut found = Vec::new();
        for (_, key, element) in appends {
            let list = self.names.open(key, self.chunk, &mut self.gathering.table);
            found.extend(list.map(|list| (list, element)));
        }
        Ok(found)
    }

    /// Where the micro-operations of the operation at `place` are.
    fn transaction(&self, place: usize) -> Result<(usize, usize), (u64, String)> {
        let chunk = self.chunk;
        let Some((start, end)) = mops(chunk, place) else {
            let index = chunk.index(place);
            return Err((index, "its value is not a transaction".into()));
        };
        let tags = &chunk.mop_tags()[start..end];
        if self.has_others
            && let Some(other) = tags.iter().position(|&tag| is_other(tag))
        {
            let op = chunk.op(place);
            let mop = op.value.as_txn().and_then(|mops| mops.get(other));
            let mop = mop.map(ToString::to_string).unwrap_or_default();
            let index = chunk.index(place);
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
            names,
            gathering,
            ..
        } = self;
        let Gathering {
            table, late, shown, ..
        } = &mut **gathering;
        table.outcomes[number as usize] = outcome::OK;
        let found = own.check(self.checked, range, |done| match done {
            Done::Append(key, element) => {
                let list = names.list(key, chunk, table);
                table.append(list, element, number);
            }
            Done::Read(read) => {
                let Some(list) = names.open(read.key, chunk, table) else {
                    let name = chunk.key(read.key);
                    let is_shown = shown.contains_key(name) && late.shows(name, read.elements);
                    table.read_late(name, read.elements, is_shown, number);
                    return;
                };
                let key = read.key as usize;
                if read.is_prefix && names.is_straight[key] {
                    let length = read.elements.len() as u32;
                    table.read_prefix(list, read.elements, length, number);
                } else if table.read_any(list, read.elements, number) {
                    let known = &table.lists[list as usize].elements;
                    names.is_straight[key] = is_straight(known, chunk.list(read.key));
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

/// Is it a micro-operation on a register?
fn is_other(tag: u8) -> bool {
    tag == mop_tag::WRITE || tag == mop_tag::READ_REGISTER
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
