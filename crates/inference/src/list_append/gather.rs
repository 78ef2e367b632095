//! One pass over the chunks of a history: the table of lists, window by window.

use super::late::LateKeys;
use super::list_table::{InternalContradictions, ListId, ListTable, ListsError, Reopening};
use super::lists::OrderedLists;
use super::renaming::{Renamed, rename};
use super::window_record::WindowRecord;
use super::{ListAppend, Windows};
use crate::g1::{InternalReadChecker, MicroOperation, MicroOperations};
use seatrial_checker::FINDINGS_MAX;
use seatrial_cycles::{Position, Txn};
use seatrial_history::FixedMap;
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use seatrial_isolation::recorded_transactions::{
    OpenTransaction, OpenTransactions, ProcessNumber, RefusedOperation, TransactionRanges,
    TransactionRecorder, record_chunk,
};
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
    /// By name of a client process: its number.
    processes: FixedMap<u64, ProcessNumber>,
    /// Transactions without a completion so far.
    open: OpenTransactions<ListAppendWrite>,
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

/// An append of a transaction that may not succeed.
type ListAppendWrite = (ListId, i64);

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
            open: OpenTransactions::default(),
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
        for open in gathering.open.into_sorted() {
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
        record_chunk(&mut ListChunkPass::new(chunk, self), chunk, known);
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
        let open = self.open.iter().flat_map(|open| &open.writes);
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
        for open in self.open.iter_mut() {
            // Later operations affect an open transaction, so it is unsettled.
            let stays = transactions[open.number.index()];
            open.number = stays.expect("a transaction that is under way stays");
            if let Ok(appends) = &mut open.writes {
                appends.retain_mut(|(list, _)| rename(list, ListId::index, &lists));
            }
        }
        // A process without a transaction in the table may be numbered above all others.
        self.processes.retain(|_, process| {
            process.index() < processes.len() && rename(process, ProcessNumber::index, &processes)
        });
        debug_assert!(
            self.open.iter().all(|open| {
                let completion = self.table.transactions.completion(open.number);
                completion.is_none()
            }),
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
            for appends in self.open.iter().flat_map(|open| &open.writes) {
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
fn apply_unsuccessful(table: &mut ListTable, open: OpenTransaction<ListAppendWrite>) {
    match open.writes {
        Ok(appends) => {
            for (list, element) in appends {
                // A closed list has no later reads, so nothing depends on this append.
                if !table.lists[list.index()].is_closed {
                    table.append(list, element, open.number);
                }
            }
        }
        Err(refused) => {
            table.refusal.get_or_insert(ListsError::Operation(refused));
        }
    }
}

/// One pass over a chunk.
struct ListChunkPass<'a> {
    chunk: &'a Chunk,
    ranges: TransactionRanges<'a>,
    own: InternalReadChecker<'a>,
    names: ChunkLists,
    /// Transactions completed so far, for `own`.
    checked: u32,
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
    fn new(chunk: &'a Chunk, gathering: &'a mut ListFoldState) -> ListChunkPass<'a> {
        ListChunkPass {
            ranges: TransactionRanges::of_lists(chunk),
            own: InternalReadChecker::new(chunk),
            names: ChunkLists::new(chunk, gathering),
            checked: 0,
            chunk,
            gathering,
        }
    }
}

impl TransactionRecorder for ListChunkPass<'_> {
    type Write = ListAppendWrite;

    fn process(&mut self, client: u64) -> ProcessNumber {
        let numbers = &mut self.gathering.processes;
        let next = ProcessNumber::new(numbers.len() as u32);
        *numbers.entry(client).or_insert(next)
    }

    #[inline]
    fn open(&mut self, process: ProcessNumber, invocation: Option<Position>) -> Txn {
        self.gathering.table.open(process, invocation)
    }

    fn writes(&mut self, place: usize) -> Result<Vec<ListAppendWrite>, RefusedOperation> {
        let range = self.ranges.range(place)?;
        let mops = MicroOperations::of(self.chunk).range(range.0, range.1);
        let appends = mops.filter(|&(tag, ..)| tag == mop_tag::APPEND);
        let mut found = Vec::new();
        for (_, key, element) in appends {
            let list = self.names.open(key, self.chunk, &mut self.gathering.table);
            found.extend(list.map(|list| (list, element)));
        }
        Ok(found)
    }

    #[inline]
    fn succeed(&mut self, place: usize, number: Txn, completion: Position) {
        let transactions = &mut self.gathering.table.transactions;
        transactions.complete(number, OpType::Ok, Some(completion));
        let range = match self.ranges.range(place) {
            Ok(range) => range,
            Err(refused) => {
                let refusal = ListsError::Operation(refused);
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
        if table.reads.item_count() >= u32::MAX as usize {
            let refusal = ListsError::Size("more than 2^32 reads");
            table.refusal.get_or_insert(refusal);
            return;
        }
        table.reads.end_row(number);
        note(found.internal, &mut table.internal, number);
        note(found.future, &mut table.future, number);
    }

    fn give_up(
        &mut self,
        open: OpenTransaction<ListAppendWrite>,
        outcome: OpType,
        completion: Option<Position>,
    ) {
        let table = &mut self.gathering.table;
        table
            .transactions
            .complete(open.number, outcome, completion);
        apply_unsuccessful(table, open);
    }

    #[inline]
    fn is_refused(&self) -> bool {
        self.gathering.table.refusal.is_some()
    }

    fn carried(&mut self) -> &mut OpenTransactions<ListAppendWrite> {
        &mut self.gathering.open
    }
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
