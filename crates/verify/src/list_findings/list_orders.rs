//! The replay of orders that prove a history of lists valid.

use crate::certificate::Proof;
use crate::compact_list::ListElements;
use crate::dense_number::{OrderPlace, TransactionNumber};
use crate::keyed_rows::{KeyedRows, ValueWriter, WrittenValues};
use crate::models;
use crate::order_clock::OrderClock;
use crate::transaction_table::{MicroAccess, RecordedTransaction, TransactionTable};

/// The models that an order of snapshots and commits proves: snapshot isolation and weaker ones.
const OF_SNAPSHOTS: [&str; 14] = [
    "snapshot-isolation",
    "parallel-snapshot-isolation",
    "prefix",
    "causal-cerone",
    "update-atomic",
    "read-atomic",
    "forward-consistent-view",
    "consistent-view",
    "monotonic-snapshot-read",
    "monotonic-view",
    "monotonic-atomic-view",
    "cursor-stability",
    "read-committed",
    "read-uncommitted",
];

/// The models that only a serial order proves.
const OF_SERIAL: [&str; 3] = ["serializable", "repeatable-read", "update-serializable"];

/// The models that an order of commits proves.
const OF_COMMITS: [&str; 2] = ["read-committed", "read-uncommitted"];

/// The order that must be followed besides if this kind of order proves this model; `None` if it does not.
fn followed(kind: &str, model: &str) -> Option<&'static str> {
    let (order, base) = models::order(model);
    let is_proven = match kind {
        "serial" => OF_SERIAL.contains(&base) || OF_SNAPSHOTS.contains(&base),
        "snapshots" => OF_SNAPSHOTS.contains(&base),
        _ => OF_COMMITS.contains(&base),
    };
    let is_known = models::is_known(model);
    (is_proven && is_known).then_some(["", "process", "realtime"][usize::from(order)])
}

/// Does this kind of proof say anything about this model?
pub(crate) fn is_known(model: &str, proof: &Proof) -> bool {
    kind(proof).is_some_and(|(kind, _)| followed(kind, model).is_some())
}

/// The kind of an order, and its places.
fn kind(proof: &Proof) -> Option<(&'static str, &[u64])> {
    Some(match proof {
        Proof::Serial(order) => ("serial", order),
        Proof::Snapshots(order) => ("snapshots", order),
        Proof::Commits(order) => ("commits", order),
        _ => return None,
    })
}

/// Checks that the history holds in this order.
pub(crate) fn replay(table: &TransactionTable, model: &str, proof: &Proof) -> Result<(), String> {
    let (kind, order) = kind(proof).ok_or("that proves nothing of lists")?;
    let Some(time) = followed(kind, model) else {
        return Err(format!("an order of {kind} proves nothing about {model}"));
    };
    let order = table.at_all(order)?;
    let times = if kind == "snapshots" { 2 } else { 1 };
    let mut counts = vec![0_u8; table.len()];
    for &number in &order {
        let count = &mut counts[number as usize];
        *count = count.saturating_add(1);
    }
    for (one, &count) in table.all().zip(&counts) {
        let index = one.index;
        if one.is_fail() && count > 0 {
            return Err(format!("op {index} failed, and stands in the order"));
        }
        if count != times && (one.is_ok() || count > 0) {
            return Err(format!("op {index} stands in the order {count} times"));
        }
    }
    drop(counts);
    let clock = OrderClock::new(table, time);
    match kind {
        "serial" => serial(table, &order, clock),
        "snapshots" => snapshots(table, &order, clock),
        _ => commits(table, &order, clock, model),
    }
}

/// The current state of a list.
#[derive(Clone, Default)]
struct ListState {
    /// This many elements of the longest list that was read,
    agreed: usize,
    /// then these.
    rest: Vec<i64>,
    /// The place of the last append in the order of snapshots and commits.
    place: u32,
}

/// The current state of all lists during a replay.
struct ListReplay<'a> {
    table: &'a TransactionTable,
    lists: Vec<ListState>,
}

impl ListReplay<'_> {
    fn new(table: &TransactionTable) -> ListReplay<'_> {
        ListReplay {
            table,
            lists: vec![ListState::default(); table.key_count()],
        }
    }

    /// Executes a transaction: each read must see the list as it is, with the transaction's own appends.
    fn carry_out(
        &mut self,
        one: &RecordedTransaction,
        events: &[MicroAccess],
    ) -> Result<(), String> {
        for event in events {
            if let Some(element) = event.appended() {
                self.append(event.key, element);
            } else if !self.is_seen(event) {
                let (index, name) = (one.index, self.table.name(event.key));
                return Err(format!("op {index} does not see key {name} as it was then"));
            }
        }
        Ok(())
    }

    fn append(&mut self, key: u32, element: i64) {
        let list = &mut self.lists[key as usize];
        let next = self.table.longest(key).get(list.agreed);
        if list.rest.is_empty() && next == Some(element) {
            list.agreed += 1;
        } else {
            list.rest.push(element);
        }
    }

    /// Reverts the appends of the transaction that was executed last.
    fn take_back(&mut self, events: &[MicroAccess]) {
        for event in events {
            if event.appended().is_some() {
                let list = &mut self.lists[event.key as usize];
                if list.rest.pop().is_none() {
                    list.agreed -= 1;
                }
            }
        }
    }

    /// Is this the current list?
    fn is_seen(&self, read: &MicroAccess) -> bool {
        let ListState { agreed, rest, .. } = &self.lists[read.key as usize];
        // A prefix of the longest list need not be compared element by element.
        match self.table.other(read) {
            None => {
                let length = self.table.seen(read).map(ListElements::len);
                length == Some(*agreed) && rest.is_empty()
            }
            Some(elements) => {
                let known = self.table.longest(read.key).first(*agreed);
                elements.starts_with(known) && elements.after(*agreed) == ListElements::Far(rest)
            }
        }
    }
}

fn serial(table: &TransactionTable, order: &[u32], mut clock: OrderClock) -> Result<(), String> {
    let mut state = ListReplay::new(table);
    for &number in order {
        let (one, events) = table.get(number);
        clock.end(&one)?;
        clock.begin(&one);
        state.carry_out(&one, &events)?;
    }
    Ok(())
}

/// Replays snapshots and commits: a transaction reads the lists as of its snapshot, with its own appends, and from its
/// snapshot to its commit no other transaction commits an append to a list that it appends to.
fn snapshots(table: &TransactionTable, order: &[u32], mut clock: OrderClock) -> Result<(), String> {
    let mut state = ListReplay::new(table);
    // By transaction: the place of its snapshot.
    let mut begun: Vec<Option<OrderPlace>> = vec![None; table.len()];
    for (&number, place) in order.iter().zip(0..) {
        let (one, events) = table.get(number);
        let Some(snapshot) = begun[number as usize] else {
            begun[number as usize] = Some(OrderPlace::new(place));
            clock.begin(&one);
            state.carry_out(&one, &events)?;
            state.take_back(&events);
            continue;
        };
        for event in events.iter() {
            if event.appended().is_some() && state.lists[event.key as usize].place > snapshot.get()
            {
                let (index, name) = (one.index, table.name(event.key));
                return Err(format!(
                    "op {index} appends to key {name}, as another does that commits between its snapshot and its commit"
                ));
            }
        }
        clock.end(&one)?;
        for event in events.iter() {
            if let Some(element) = event.appended() {
                state.append(event.key, element);
                state.lists[event.key as usize].place = place;
            }
        }
    }
    Ok(())
}

/// The longest list of a key compared with an order of commits.
#[derive(Clone, Copy, Default)]
struct SortedPrefix {
    /// Length of the prefix that is in the order of commits, ignoring elements that were never appended.
    sorted: usize,
    /// Length of the prefix whose elements were all appended.
    written: usize,
}

/// The place of an element's writer in the order, and whether it was its last append to the list.
type ElementPlace = Option<(u32, bool)>;

/// The appends of transactions in an order of commits.
struct ListCommits<'a> {
    table: &'a TransactionTable,
    written: WrittenValues,
    /// By transaction: its place in the order, if it is in it.
    places: Vec<Option<OrderPlace>>,
    prefixes: Vec<SortedPrefix>,
}

impl ListCommits<'_> {
    fn new<'a>(table: &'a TransactionTable, order: &[u32]) -> Result<ListCommits<'a>, String> {
        let mut places = vec![None; table.len()];
        for (place, &number) in order.iter().enumerate() {
            places[number as usize] = Some(OrderPlace::new(place as u32));
        }
        let written = WrittenValues::new(table, |number| places[number as usize].is_some());
        if let Some((key, element)) = written.twice(|_| true) {
            let name = table.name(key);
            return Err(format!("{element} is appended to key {name} twice"));
        }
        let mut commits = ListCommits {
            table,
            written,
            places,
            prefixes: Vec::new(),
        };
        let keys = 0..table.key_count() as u32;
        commits.prefixes = keys.map(|key| commits.prefix(key)).collect();
        assert_eq!(commits.prefixes.len(), table.key_count());
        assert_eq!(commits.places.len(), table.len());
        Ok(commits)
    }

    fn place(&self, key: u32, element: i64) -> ElementPlace {
        let ValueWriter {
            transaction,
            is_last,
        } = self.written.of(key, element).next()?;
        Some((self.places[transaction as usize]?.get(), is_last))
    }

    fn prefix(&self, key: u32) -> SortedPrefix {
        let longest = self.table.longest(key);
        let mut prefix = SortedPrefix::default();
        let mut last = 0;
        for (at, element) in longest.iter().enumerate() {
            let place = self.place(key, element);
            if place.is_some() && prefix.written == at {
                prefix.written += 1;
            }
            if place.is_some_and(|(place, _)| place < last) {
                return prefix;
            }
            last = place.map_or(last, |(place, _)| place);
            prefix.sorted = at + 1;
        }
        prefix
    }

    /// Checks that each append that the longest read of its list does not contain comes after all that it contains: the
    /// number of appends up to the last of these must be the number that was read.
    fn unread_come_last(&self) -> Result<(), String> {
        let mut counts = vec![0_u32; self.table.key_count()];
        let last = |key: u32| {
            let longest = self.table.longest(key).iter();
            let places = longest.filter_map(|element| self.place(key, element));
            places.map(|(place, _)| place).max()
        };
        let lasts: Vec<Option<u32>> = (0..counts.len() as u32).map(last).collect();
        for (number, _, events) in self.table.each() {
            // A transaction that is not in the order is not committed before anything.
            let Some(place) = self.places[number as usize].map(OrderPlace::get) else {
                continue;
            };
            for event in events.iter().filter(|event| event.appended().is_some()) {
                let is_before = lasts[event.key as usize].is_some_and(|last| place < last);
                counts[event.key as usize] += u32::from(is_before);
            }
        }
        for (key, &count) in counts.iter().enumerate() {
            let key = key as u32;
            let read = self.table.longest(key).iter();
            let places = read.filter_map(|element| self.place(key, element));
            let before = |&(place, _): &(u32, bool)| Some(place) < lasts[key as usize];
            if places.filter(before).count() < count as usize {
                let name = self.table.name(key);
                return Err(format!(
                    "an append to key {name} that no read shows is committed before one that a read shows"
                ));
            }
        }
        Ok(())
    }

    /// Checks that a read is in the order of commits and (if `is_committed`) of appends committed before its transaction.
    fn read(
        &self,
        event: &MicroAccess,
        place: u32,
        is_committed: bool,
    ) -> Result<(), &'static str> {
        let Some(elements) = self.table.seen(event) else {
            return Ok(());
        };
        let last = elements.last().map(|last| self.place(event.key, last));
        let (sorted, known) = match self.table.other(event) {
            None => {
                let SortedPrefix { sorted, written } = self.prefixes[event.key as usize];
                (elements.len() <= sorted, elements.len() <= written)
            }
            Some(elements) => {
                let found = elements.iter().map(|one| self.place(event.key, one));
                let found: Vec<ElementPlace> = found.collect();
                let places = found.iter().flatten().map(|(place, _)| *place);
                (places.is_sorted(), found.iter().all(Option::is_some))
            }
        };
        if !sorted {
            return Err("in another order");
        }
        let ends_well = last.is_none_or(|last| {
            last.is_some_and(|(writer, is_last)| writer <= place && (is_last || writer == place))
        });
        if is_committed && !(known && ends_well) {
            return Err("when it was not committed");
        }
        Ok(())
    }
}

fn commits(
    table: &TransactionTable,
    order: &[u32],
    mut clock: OrderClock,
    model: &str,
) -> Result<(), String> {
    for &number in order {
        let one = &table.one(number);
        clock.end(one)?;
        clock.begin(one);
    }
    let is_committed = models::is_committed(model);
    ShownLists::new(table, is_committed).lists()?;
    let commits = ListCommits::new(table, order)?;
    commits.unread_come_last()?;
    for (place, &number) in order.iter().enumerate() {
        let (one, events) = table.get(number);
        if !one.is_ok() {
            continue;
        }
        for (at, event) in events.iter().enumerate() {
            let mut read = commits.read(event, place as u32, is_committed);
            if is_committed && table.other(event).is_some() {
                read = Err("in another order than others do");
            }
            if is_committed && sees_its_future(table, &events[at..]) {
                read = Err("with what it appends only later");
            }
            read.map_err(|how| {
                let (index, name) = (one.index, table.name(event.key));
                format!("op {index} reads key {name} {how}")
            })?;
        }
    }
    Ok(())
}

/// Does the first of these micro-operations see an element that a later one appends? Such elements are the last ones of a
/// read that is in the order of commits and sees nothing that was committed later, so only its end is looked at.
fn sees_its_future(table: &TransactionTable, events: &[MicroAccess]) -> bool {
    let Some((read, later)) = events.split_first() else {
        return false;
    };
    let Some(elements) = table.seen(read) else {
        return false;
    };
    let later = later.iter().filter(|event| event.key == read.key);
    let mut later = later.filter_map(MicroAccess::appended).peekable();
    if later.peek().is_none() {
        return false;
    }
    let own: Vec<i64> = later.collect();
    let reach = elements.len().saturating_sub(events.len().max(own.len()));
    elements
        .after(reach)
        .iter()
        .any(|element| own.contains(&element))
}

/// The properties of reads that do not depend on an order of commits.
struct ShownLists<'a> {
    table: &'a TransactionTable,
    /// Must reads contain the appends of a transaction in its order?
    is_ordered: bool,
    /// The appends of all transactions.
    written: WrittenValues,
    /// By key: each element with the one that its transaction appended to the key before it; sorted.
    following: KeyedRows<(i64, i64)>,
}

impl ShownLists<'_> {
    fn new(table: &TransactionTable, is_ordered: bool) -> ShownLists<'_> {
        // By key: the last transaction that appended to it so far, and the element.
        let mut last: Vec<(Option<TransactionNumber>, i64)> = vec![(None, 0); table.key_count()];
        let mut following = KeyedRows::new(table.key_count(), |emit| {
            last.fill((None, 0));
            // A failed append has no effect, and its element may be another transaction's.
            for (number, _, events) in table.each().filter(|(_, one, _)| !one.is_fail()) {
                for event in events.iter() {
                    let Some(element) = event.appended() else {
                        continue;
                    };
                    let last = &mut last[event.key as usize];
                    let own = Some(TransactionNumber::new(number));
                    let (before, earlier) = std::mem::replace(last, (own, element));
                    if before == own {
                        emit(event.key, (element, earlier));
                    }
                }
            }
        });
        following.each_mut().for_each(|group| group.sort_unstable());
        assert_eq!(following.key_count(), table.key_count());
        ShownLists {
            table,
            is_ordered,
            written: WrittenValues::new(table, |_| true),
            following,
        }
    }

    /// Checks that all elements that were read were appended, are in their list once, and in their transaction's order.
    fn lists(&self) -> Result<(), String> {
        for key in 0..self.table.key_count() as u32 {
            self.list(key, self.table.longest(key))?;
        }
        for (_, _, events) in self.table.each().filter(|(_, one, _)| one.is_ok()) {
            for event in events.iter() {
                if let Some(elements) = self.table.other(event) {
                    self.list(event.key, elements)?;
                }
            }
        }
        Ok(())
    }

    fn list(&self, key: u32, elements: ListElements<'_>) -> Result<(), String> {
        let name = self.table.name(key);
        let mut sorted: Vec<i64> = elements.iter().collect();
        sorted.sort_unstable();
        if let Some([twice, _]) = sorted.array_windows().find(|[one, next]| one == next) {
            return Err(format!("a read of key {name} has {twice} twice"));
        }
        let mut written = elements.iter();
        if let Some(element) = written.find(|&one| self.written.of(key, one).next().is_none()) {
            return Err(format!(
                "a read of key {name} has {element}, which was never appended"
            ));
        }
        let following = self.following.of(key);
        if !self.is_ordered || following.is_empty() {
            return Ok(());
        }
        for (place, element) in elements.iter().enumerate() {
            let at = following.partition_point(|&(later, _)| later < element);
            let earlier = following.get(at).filter(|(later, _)| *later == element);
            if let Some((_, earlier)) = earlier
                && !elements.first(place).contains(*earlier)
            {
                return Err(format!(
                    "a read of key {name} has {element} without {earlier} before it, which the same transaction appended first"
                ));
            }
        }
        Ok(())
    }
}
