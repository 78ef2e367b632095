//! One pass over the chunks of a history: the table of lists, window by window.

use super::late::LateKeys;
use super::lists::OrderedLists;
use super::renaming::{Renamed, rename};
use super::table::{
    InternalContradictions, ListId, ListTable, ListsError, ProcessNumber, Reopening, outcome,
};
use super::window_record::WindowRecord;
use super::{ListAppend, Windows};
use crate::g1::{InternalReadChecker, MicroOperation, MicroOperations};
use seatrial_checker::FINDINGS_MAX;
use seatrial_cycles::{Position, Txn};
use seatrial_history::FixedMap;
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Fold, Key, OpType, Order, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Builds the [`ListTable`], chunk by chunk in order, and checks it window by window.
///
/// A chunk stores one list per key, of which most reads are prefixes; that list is compared once with the list of the key, and
/// after that its reads are only lengths. The appends of a transaction are taken from its completion if it succeeded, else from
/// its invocation; open transactions are carried over to the next chunk. When the table is full, transactions that no later
/// operation can affect are decided and freed: see [`WindowRecord::check_window`].
pub(super) struct ListFold {
    pub(super) checker: ListAppend,
    /// Is an order of transactions wanted, for a certificate?
    pub(super) certify: bool,
    /// Keys that are used after they were closed, from an earlier pass.
    pub(super) late: LateKeys,
}

/// The accumulator of the pass: the table so far.
pub(super) struct ListFoldState {
    table: ListTable,
    record: WindowRecord,
    processes: FixedMap<Process, ProcessNumber>,
    /// Transactions without a completion so far, by the position of their invocation.
    open: FixedMap<u64, PendingAppends>,
    /// Position of the next operation.
    position: u64,
    /// Chunks so far; short ones are counted together.
    chunks: u32,
    /// Operations since the last chunk that was counted.
    uncounted: usize,
    /// The table is full with this many transactions.
    full: usize,
    late: LateKeys,
    /// Freed lists of keys in [`ListFoldState::late`], which late operations may use.
    shown: BTreeMap<Key, FreedList>,
}

/// A list that was freed.
struct FreedList {
    /// Number of its elements.
    length: u32,
    /// Other elements that were appended to it, by transactions that are not known to have taken effect.
    unread: Box<[i64]>,
}

/// A transaction without a completion so far.
struct PendingAppends {
    number: Txn,
    /// Its possible appends; the error if it is not a transaction on lists.
    appends: Result<Vec<(ListId, i64)>, (u64, String)>,
}

impl Fold for ListFold {
    type Accumulator = ListFoldState;
    type Output = (ListTable, WindowRecord);

    fn name(&self) -> String {
        "list-append".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> ListFoldState {
        ListFoldState {
            table: ListTable::default(),
            record: WindowRecord::new(self.checker, self.certify),
            processes: FixedMap::default(),
            open: FixedMap::default(),
            position: 0,
            chunks: 0,
            uncounted: 0,
            full: self.checker.windows.transactions_min,
            late: self.late.clone(),
            shown: BTreeMap::new(),
        }
    }

    fn reduce(&self, gathering: &mut ListFoldState, chunk: &Chunk) -> ControlFlow<()> {
        // The highest number is no position.
        if chunk.first_position() + chunk.len() as u64 >= u64::from(u32::MAX) {
            let refusal = ListsError::Size("more than 2^32 operations");
            gathering.table.refusal.get_or_insert(refusal);
        } else {
            gathering.apply(chunk, self.checker.windows);
        }
        if gathering.is_full() {
            gathering.free_window(self.checker.windows);
        }
        match gathering.table.refusal {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    }

    fn combine(&self, _: &mut ListFoldState, _: ListFoldState) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, mut gathering: ListFoldState) -> (ListTable, WindowRecord) {
        let mut open: Vec<_> = gathering.open.into_values().collect();
        open.sort_unstable_by_key(|open| open.number);
        for open in open {
            apply_unsuccessful(&mut gathering.table, open);
        }
        (gathering.table, gathering.record)
    }
}

impl ListFoldState {
    /// Applies the operations of a chunk that are new.
    fn apply(&mut self, chunk: &Chunk, windows: Windows) {
        let first = chunk.first_position();
        let known = self.position.saturating_sub(first) as usize;
        if known >= chunk.len() {
            return;
        }
        ListChunkPass::new(chunk, known, self).run();
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

    /// Lists and elements of appends by transactions that are still under way.
    pub(super) fn open_appends(&self) -> BTreeSet<(ListId, i64)> {
        let open = self.open.values().flat_map(|open| &open.appends);
        open.flatten().copied().collect()
    }

    /// The transactions in memory.
    pub(super) fn table(&mut self) -> &mut ListTable {
        &mut self.table
    }

    /// The results of all windows so far.
    pub(super) fn record(&self) -> &WindowRecord {
        &self.record
    }

    /// Must transactions be freed now?
    fn is_full(&self) -> bool {
        self.table.refusal.is_none() && self.table.len() >= self.full
    }

    /// Decides and frees the transactions that no later operation can affect.
    fn free_window(&mut self, windows: Windows) {
        let closing = if self.late.is_empty() {
            self.closing(windows, |_| false)
        } else {
            self.closing_late(windows)
        };
        let table = std::mem::take(&mut self.table);
        let mut lists = OrderedLists::new(table, self.record.level());
        let result = self.record.check_window(&mut lists, &closing, false);
        let unseen = std::mem::take(&mut lists.unseen);
        self.table = lists.table;
        let Ok(result) = result else {
            let refusal = ListsError::Size("more than 2^32 dependencies");
            self.table.refusal.get_or_insert(refusal);
            return;
        };
        self.show(&result.leaving, &unseen);
        let Renamed {
            transactions,
            lists,
            processes,
        } = self.table.free(&result, &closing);
        for open in self.open.values_mut() {
            // Later operations affect an open transaction, so it is unsettled.
            let stays = transactions[open.number.index()];
            open.number = stays.expect("a transaction that is under way stays");
            if let Ok(appends) = &mut open.appends {
                appends.retain_mut(|(list, _)| rename(list, ListId::index, &lists));
            }
        }
        // A process without a transaction in the table may be numbered above all others.
        self.processes.retain(|_, process| {
            process.index() < processes.len() && rename(process, ProcessNumber::index, &processes)
        });
        debug_assert!(
            self.open
                .values()
                .all(|open| self.table.completions[open.number.index()].is_none()),
            "a transaction that is under way has no completion"
        );
        // Transactions that stay are checked again with the next window: they must not be most of it.
        self.full = windows.transactions_min.max(2 * self.table.len());
    }

    /// Lists to close where keys are used late: their lists are completed from late reads; lists that this does not complete stay
    /// open. Repeats, since a list that stays open may keep others open.
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
                let list = &mut self.table.lists[at.index()];
                list.is_final = true;
                list.elements = elements.unwrap_or_default();
            }
            return closing;
        }
    }

    /// Decides which closed lists may be used late: not lists with an unread append that took effect, since a late read misses
    /// it and its writer may be freed. Stores the lists that leave. `unseen`: lists and writers of such appends, sorted.
    fn show(&mut self, leaving: &[bool], unseen: &[(ListId, Txn)]) {
        for &(list, _) in unseen {
            self.table.lists[list.index()].is_final = false;
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
            let freed = FreedList {
                length: list.elements.len() as u32,
                unread: unread.into(),
            };
            self.shown.insert(list.key.clone(), freed);
        }
    }

    /// Reopens the list of a key that is appended to after it was closed, if the list was without anomalies then: a list that is
    /// still in memory continues; a list that was freed starts with its elements, whose writers are gone.
    fn reopen(&mut self, key: &Key) {
        if !self.late.is_appended(key) {
            return;
        }
        if let Some(at) = self.table.number(key) {
            let list = &mut self.table.lists[at.index()];
            if list.is_closed && list.is_final {
                list.is_closed = false;
                list.is_final = false;
                list.again = Some(Reopening {
                    base: list.elements.len() as u32,
                    is_counted: list.again.is_some_and(|again| again.is_counted),
                });
            }
        } else if let Some(freed) = self.shown.remove(key) {
            let elements = self.late.first(key, freed.length);
            self.table.reopen(key, elements, &freed.unread);
        }
    }

    /// By list: is its key idle, so that it can be closed? An open transaction keeps the lists open that it appends to, as
    /// long as it may have taken effect; `is_held` keeps lists open in any case.
    fn closing(&self, windows: Windows, is_held: impl Fn(ListId) -> bool) -> Vec<bool> {
        let lists = self.table.lists.iter();
        let lists = lists.zip(ListId::all(self.table.lists.len()));
        let idle = |named: u32| named.saturating_add(windows.idle_chunks) < self.chunks;
        let mut closing: Vec<_> = lists
            .map(|(list, at)| {
                let is_idle = !list.is_closed && idle(list.last_chunk);
                is_idle && !is_held(at) && !self.late.is_pinned(&list.key, self.chunks)
            })
            .collect();
        let is_unseen = |closing: &[bool], &(at, element): &(ListId, i64)| {
            let list = &self.table.lists[at.index()];
            let is_seen = list.conflict.is_some() || list.elements.contains(&element);
            list.is_closed || closing[at.index()] && !is_seen
        };
        // A list that stays open keeps the other lists of the same open transaction open, so this repeats; each round but the
        // last opens a list.
        let mut is_final = false;
        while !is_final {
            is_final = true;
            for appends in self.open.values().flat_map(|open| &open.appends) {
                if !appends.iter().all(|append| is_unseen(&closing, append)) {
                    for &(at, _) in appends {
                        is_final &= !std::mem::replace(&mut closing[at.index()], false);
                    }
                }
            }
        }
        assert!(
            closing.len() == self.table.lists.len(),
            "each list is closed now or not"
        );
        debug_assert!(
            !closing
                .iter()
                .zip(&self.table.lists)
                .any(|(&closing, list)| closing && list.is_closed),
            "no list is closed twice"
        );
        closing
    }
}

/// Applies the appends of a transaction that did not succeed.
fn apply_unsuccessful(table: &mut ListTable, open: PendingAppends) {
    match open.appends {
        Ok(appends) => {
            for (list, element) in appends {
                // A closed list has no later reads, so nothing depends on this append.
                if !table.lists[list.index()].is_closed {
                    table.append(list, element, open.number);
                }
            }
        }
        Err((index, reason)) => {
            table
                .refusal
                .get_or_insert(ListsError::Operation(index, reason));
        }
    }
}

/// One pass over a chunk.
struct ListChunkPass<'a> {
    chunk: &'a Chunk,
    own: InternalReadChecker<'a>,
    names: ChunkLists,
    /// By process id of the chunk: its number; `None` for a nemesis.
    processes: Vec<Option<ProcessNumber>>,
    /// Operations at its start that were applied before.
    known: usize,
    /// By row of an invocation: its transaction, until it completes.
    open: Vec<Option<Txn>>,
    /// Transactions completed so far, for `own`.
    checked: u32,
    /// Are there micro-operations on registers in the chunk?
    has_others: bool,
    gathering: &'a mut ListFoldState,
}

/// The lists of a chunk's keys.
struct ChunkLists {
    /// By key id: its list; `None` before its first use in the chunk, and always for a closed list.
    lists: Vec<Option<ListId>>,
    /// By key id: is the chunk's list a prefix of the list in the table, or the reverse?
    is_straight: Vec<bool>,
    /// The number of the chunk.
    now: u32,
}

impl ChunkLists {
    fn new(chunk: &Chunk, gathering: &mut ListFoldState) -> ChunkLists {
        let keys = 0..chunk.key_count() as u32;
        if !gathering.late.is_empty() {
            for key in keys.clone() {
                gathering.reopen(chunk.key(key));
            }
        }
        let table = &mut gathering.table;
        let mut names = ChunkLists {
            lists: vec![None; keys.len()],
            is_straight: vec![false; keys.len()],
            now: gathering.chunks,
        };
        for key in keys {
            if let Some(at) = table.number(chunk.key(key)) {
                let list = &mut table.lists[at.index()];
                list.last_chunk = gathering.chunks;
                if !list.is_closed {
                    names.lists[key as usize] = Some(at);
                    let is_straight = is_straight(&list.elements, chunk.list(key));
                    names.is_straight[key as usize] = is_straight;
                }
            } else {
                names.is_straight[key as usize] = true;
            }
        }
        names
    }

    /// The list of this key id; `None` if it is closed.
    #[inline]
    fn open(&mut self, key: u32, chunk: &Chunk, table: &mut ListTable) -> Option<ListId> {
        match self.lists[key as usize] {
            None => self.begin(key, chunk, table),
            at => at,
        }
    }

    /// The list of a key id at its first use in the chunk.
    #[cold]
    fn begin(&mut self, key: u32, chunk: &Chunk, table: &mut ListTable) -> Option<ListId> {
        let name = chunk.key(key);
        if table.number(name).is_some() || table.closed.contains(name) {
            return None;
        }
        let at = table.list_of(name);
        table.lists[at.index()].last_chunk = self.now;
        self.lists[key as usize] = Some(at);
        Some(at)
    }

    /// The list of this key id for a successful operation: one on a closed list is refused.
    #[inline]
    fn list(&mut self, key: u32, chunk: &Chunk, table: &mut ListTable) -> ListId {
        self.open(key, chunk, table).unwrap_or_else(|| {
            let name = chunk.key(key);
            table
                .refusal
                .get_or_insert(ListsError::Reopened(name.clone()));
            table.list_of(name)
        })
    }
}

impl<'a> ListChunkPass<'a> {
    fn new(chunk: &'a Chunk, known: usize, gathering: &'a mut ListFoldState) -> ListChunkPass<'a> {
        let names = ChunkLists::new(chunk, gathering);
        let numbers = &mut gathering.processes;
        let processes = chunk.processes().iter().map(|&process| {
            if !process.is_client() {
                return None;
            }
            let next = ProcessNumber::new(numbers.len() as u32);
            Some(*numbers.entry(process).or_insert(next))
        });
        ListChunkPass {
            own: InternalReadChecker::new(chunk),
            names,
            processes: processes.collect(),
            known,
            open: vec![None; chunk.len()],
            checked: 0,
            // Without a branch, so that the compiler compares many tags at once.
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
            let Some(process) = self.processes[process as usize] else {
                continue;
            };
            let position = Position::new(first + place as u32);
            match kind {
                OpType::Invoke => {
                    let number = self.gathering.table.push(Some(position), process);
                    self.open[place] = Some(number);
                }
                OpType::Ok => {
                    let number = if pair > 0 {
                        self.close(place, pair).map(|open| open.number)
                    } else {
                        Some(self.gathering.table.push(None, process))
                    };
                    if let Some(number) = number {
                        self.gathering.table.completions[number.index()] = Some(position);
                        self.succeed(place, number);
                    }
                }
                OpType::Fail | OpType::Info => {
                    let is_fail = kind == OpType::Fail;
                    if pair > 0 {
                        self.complete_unsuccessful(place, pair, position, is_fail);
                    }
                }
            }
            if self.gathering.table.refusal.is_some() {
                return;
            }
        }
        self.carry_over();
    }

    /// The transaction that the operation at `place` completes. It has appends only if its invocation is in another chunk.
    fn close(&mut self, place: usize, pair: i64) -> Option<PendingAppends> {
        let Some(place) = self.invocation(place, pair) else {
            let position = self.chunk.invocation(place)?;
            return self.gathering.open.remove(&position);
        };
        let number = self.open[place].take()?;
        let appends = Ok(Vec::new());
        Some(PendingAppends { number, appends })
    }

    /// The row of the invocation of the operation at `place`, if it is among the new operations of this chunk.
    fn invocation(&self, place: usize, pair: i64) -> Option<usize> {
        let distance = usize::try_from(pair).unwrap_or(usize::MAX);
        place.checked_sub(distance).filter(|&at| at >= self.known)
    }

    fn complete_unsuccessful(
        &mut self,
        place: usize,
        pair: i64,
        position: Position,
        is_fail: bool,
    ) {
        let Some(mut open) = self.close(place, pair) else {
            return;
        };
        let number = open.number.index();
        let table = &mut self.gathering.table;
        table.completions[number] = Some(position);
        if is_fail {
            table.outcomes[number] = outcome::FAIL;
        }
        if let Some(invocation) = self.invocation(place, pair) {
            open.appends = self.appends(invocation);
        }
        apply_unsuccessful(&mut self.gathering.table, open);
    }

    /// The appends of the operation at `place`; the error if it is not a transaction on lists.
    fn appends(&mut self, place: usize) -> Result<Vec<(ListId, i64)>, (u64, String)> {
        let range = self.transaction(place)?;
        let mops = MicroOperations::of(self.chunk).range(range.0, range.1);
        let appends = mops.filter(|&(tag, ..)| tag == mop_tag::APPEND);
        let mut found = Vec::new();
        for (_, key, element) in appends {
            let list = self.names.open(key, self.chunk, &mut self.gathering.table);
            found.extend(list.map(|list| (list, element)));
        }
        Ok(found)
    }

    /// The range of micro-operations of the operation at `place`.
    fn transaction(&self, place: usize) -> Result<(usize, usize), (u64, String)> {
        let chunk = self.chunk;
        let Some((start, end)) = chunk.txn_range(place) else {
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

    /// Applies a successful transaction.
    fn succeed(&mut self, place: usize, number: Txn) {
        let range = match self.transaction(place) {
            Ok(range) => range,
            Err((index, reason)) => {
                let refusal = ListsError::Operation(index, reason);
                self.gathering.table.refusal.get_or_insert(refusal);
                return;
            }
        };
        self.checked += 1;
        let ListChunkPass {
            chunk,
            own,
            names,
            gathering,
            ..
        } = self;
        let ListFoldState {
            table, late, shown, ..
        } = &mut **gathering;
        table.outcomes[number.index()] = outcome::OK;
        let found = own.check(self.checked, range, |done| match done {
            MicroOperation::Append(key, element) => {
                let list = names.list(key, chunk, table);
                table.append(list, element, number);
            }
            MicroOperation::Read(read) => {
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
                    let known = &table.lists[list.index()].elements;
                    names.is_straight[key] = is_straight(known, chunk.list(read.key));
                }
            }
        });
        // After its reads: the range of a transaction ends where that of the next one starts.
        table.ended.push(number);
        table.read_ends.push(table.reads.len() as u32);
        debug_assert!(
            table.ended.len() == table.read_ends.len(),
            "one range of reads for each successful transaction"
        );
        if table.reads.len() >= u32::MAX as usize {
            let refusal = ListsError::Size("more than 2^32 reads");
            table.refusal.get_or_insert(refusal);
        }
        note(found.internal, &mut table.internal, number);
        note(found.future, &mut table.future, number);
    }

    /// Carries open transactions over to the next chunk.
    fn carry_over(&mut self) {
        for place in 0..self.open.len() {
            if let Some(number) = self.open[place] {
                let appends = self.appends(place);
                let position = self.chunk.first_position() + place as u64;
                let open = PendingAppends { number, appends };
                self.gathering.open.insert(position, open);
            }
        }
    }
}

/// Is it a micro-operation on a register?
fn is_other(tag: u8) -> bool {
    tag == mop_tag::WRITE || tag == mop_tag::READ_REGISTER
}

fn note(is_found: bool, contradicting: &mut InternalContradictions, number: Txn) {
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
