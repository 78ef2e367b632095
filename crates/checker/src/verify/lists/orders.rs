//! Orders of a valid history of lists, replayed.

use crate::certificate::Proof;
use crate::verify::clock::Clock;
use crate::verify::table::{Event, NONE, Table, Transaction, Writer, Written};
use std::collections::BTreeMap;

/// The models that each kind of order proves, and which order besides it must respect.
const MODELS: [(&str, &str, &str); 10] = [
    ("serial", "serializable", ""),
    ("serial", "strong-session-serializable", "process"),
    ("serial", "strict-serializable", "realtime"),
    ("snapshots", "snapshot-isolation", ""),
    ("snapshots", "strong-session-snapshot-isolation", "process"),
    ("snapshots", "strong-snapshot-isolation", "realtime"),
    ("commits", "read-uncommitted", ""),
    ("commits", "read-committed", ""),
    ("commits", "strong-session-read-committed", "process"),
    ("commits", "strong-read-committed", "realtime"),
];

/// Does the history hold in this order?
pub(in crate::verify) fn replay(table: &Table, model: &str, proof: &Proof) -> Result<(), String> {
    let (kind, order) = match proof {
        Proof::Serial(order) => ("serial", order),
        Proof::Snapshots(order) => ("snapshots", order),
        Proof::Commits(order) => ("commits", order),
        Proof::Findings(_) => return Err("findings are no order".into()),
        Proof::Visible(_) | Proof::Core(_) => return Err("that proves nothing of lists".into()),
    };
    let known = MODELS.iter().find(|row| row.0 == kind && row.1 == model);
    let Some(&(_, _, time)) = known else {
        return Err(format!("an order of {kind} proves nothing about {model}"));
    };
    let order = table.at_all(order)?;
    let times = if kind == "snapshots" { 2 } else { 1 };
    let mut counts = vec![0_u32; table.all.len()];
    for &number in &order {
        counts[number as usize] += 1;
    }
    for (one, &count) in table.all.iter().zip(&counts) {
        let index = one.index;
        if one.is_fail() && count > 0 {
            return Err(format!("op {index} failed, and stands in the order"));
        }
        if count != times && (one.is_ok() || count > 0) {
            return Err(format!("op {index} stands in the order {count} times"));
        }
    }
    drop(counts);
    let clock = Clock::new(table, time);
    match kind {
        "serial" => serial(table, &order, clock),
        "snapshots" => snapshots(table, &order, clock),
        _ => commits(table, &order, clock, model),
    }
}

/// What a list is at the moment.
#[derive(Clone, Default)]
struct List {
    elements: Vec<i64>,
    /// So many of them are those of the longest list that was read.
    agreed: usize,
}

/// All lists at the moment.
struct State<'a> {
    table: &'a Table,
    lists: Vec<List>,
}

impl State<'_> {
    fn new(table: &Table) -> State<'_> {
        State {
            table,
            lists: vec![List::default(); table.key_count()],
        }
    }

    /// Do its reads see this state, and then what it appended itself?
    fn reads(&self, number: u32) -> Result<(), String> {
        let one = &self.table.all[number as usize];
        if !one.is_ok() {
            return Ok(());
        }
        let mut own: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for event in self.table.events(number) {
            if let Some(element) = event.appended() {
                own.entry(event.key).or_default().push(element);
            } else if let Some(elements) = self.table.seen(event) {
                let own = own.get(&event.key).map_or(&[][..], Vec::as_slice);
                if !self.is_seen(event, elements, own) {
                    let name = self.table.name(event.key);
                    return Err(format!(
                        "op {} does not see key {name} as it was then",
                        one.index
                    ));
                }
            }
        }
        Ok(())
    }

    fn is_seen(&self, event: &Event, elements: &[i64], own: &[i64]) -> bool {
        let List {
            elements: list,
            agreed,
        } = &self.lists[event.key as usize];
        if elements.len() != list.len() + own.len() || !elements.ends_with(own) {
            return false;
        }
        // What is a prefix of the longest list needs no second look at each element.
        match self.table.other(event) {
            None => *agreed == list.len(),
            Some(elements) => elements.starts_with(list),
        }
    }

    fn write(&mut self, number: u32) {
        for event in self.table.events(number) {
            if let Some(element) = event.appended() {
                let list = &mut self.lists[event.key as usize];
                let next = self.table.longest(event.key).get(list.agreed);
                if list.agreed == list.elements.len() && next == Some(&element) {
                    list.agreed += 1;
                }
                list.elements.push(element);
            }
        }
    }
}

fn serial(table: &Table, order: &[u32], mut clock: Clock) -> Result<(), String> {
    let mut state = State::new(table);
    for &number in order {
        let one = &table.all[number as usize];
        clock.end(one)?;
        clock.begin(one);
        state.reads(number)?;
        state.write(number);
    }
    Ok(())
}

/// Elements that a successful transaction read.
struct Observed {
    /// By key: sorted. Those of the longest read, and of reads that contradict it.
    elements: Vec<Vec<i64>>,
}

impl Observed {
    fn new(table: &Table) -> Observed {
        let mut elements: Vec<Vec<i64>> = (0..table.key_count() as u32)
            .map(|key| table.longest(key).to_vec())
            .collect();
        for (_, _, events) in table.each().filter(|(_, one, _)| one.is_ok()) {
            for event in events {
                if let Some(seen) = table.other(event) {
                    elements[event.key as usize].extend(seen);
                }
            }
        }
        for elements in &mut elements {
            elements.sort_unstable();
        }
        Observed { elements }
    }

    fn has(&self, key: u32, element: i64) -> bool {
        self.elements[key as usize].binary_search(&element).is_ok()
    }
}

fn snapshots(table: &Table, order: &[u32], mut clock: Clock) -> Result<(), String> {
    let observed = Observed::new(table);
    let mut state = State::new(table);
    // How long lists were when those began that are open.
    let mut open: BTreeMap<u32, Vec<(u32, usize)>> = BTreeMap::new();
    for &number in order {
        let one = &table.all[number as usize];
        let appends = table.events(number).iter().filter(|event| {
            let element = event.appended();
            element.is_some_and(|element| observed.has(event.key, element))
        });
        let lengths = appends.map(|append| {
            let list = &state.lists[append.key as usize];
            (append.key, list.elements.len())
        });
        let lengths: Vec<_> = lengths.collect();
        match open.remove(&number) {
            None => {
                clock.begin(one);
                state.reads(number)?;
                open.insert(number, lengths);
            }
            Some(before) if before == lengths => {
                clock.end(one)?;
                state.write(number);
            }
            Some(_) => {
                let index = one.index;
                return Err(format!("op {index} was not the first to commit an append"));
            }
        }
    }
    Ok(())
}

/// What an order of commits says of one key's longest list.
#[derive(Clone, Copy, Default)]
struct Prefix {
    /// So many elements are in the order of commits, those that nobody wrote left out.
    sorted: usize,
    /// So many were written by somebody.
    written: usize,
}

/// Who wrote an element: place in the order, and was it the last to its list?
type Place = Option<(u32, bool)>;

/// What was appended, by transactions in an order of commits.
struct Commits<'a> {
    table: &'a Table,
    written: Written,
    /// By transaction: its place in the order.
    places: Vec<u32>,
    prefixes: Vec<Prefix>,
}

impl Commits<'_> {
    fn new<'a>(table: &'a Table, order: &[u32]) -> Result<Commits<'a>, String> {
        let mut places = vec![NONE; table.all.len()];
        for (place, &number) in order.iter().enumerate() {
            places[number as usize] = place as u32;
        }
        let written = Written::new(table, |number| places[number as usize] != NONE);
        if let Some((key, element)) = written.twice(|_| true) {
            let name = table.name(key);
            return Err(format!("{element} is appended to key {name} twice"));
        }
        let mut commits = Commits {
            table,
            written,
            places,
            prefixes: Vec::new(),
        };
        let keys = 0..table.key_count() as u32;
        commits.prefixes = keys.map(|key| commits.prefix(key)).collect();
        Ok(commits)
    }

    fn place(&self, key: u32, element: i64) -> Place {
        let Writer {
            transaction,
            is_last,
        } = self.written.of(key, element).next()?;
        Some((self.places[transaction as usize], is_last))
    }

    fn prefix(&self, key: u32) -> Prefix {
        let longest = self.table.longest(key);
        let mut prefix = Prefix::default();
        let mut last = 0;
        for (at, &element) in longest.iter().enumerate() {
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

    /// Is a read in the order of commits, and (if that is asked for) of what was committed when its transaction was?
    fn read(&self, event: &Event, place: u32, is_committed: bool) -> Result<(), &'static str> {
        let Some(elements) = self.table.seen(event) else {
            return Ok(());
        };
        let last = elements.last().map(|&last| self.place(event.key, last));
        let (sorted, known) = match self.table.other(event) {
            None => {
                let Prefix { sorted, written } = self.prefixes[event.key as usize];
                (elements.len() <= sorted, elements.len() <= written)
            }
            Some(elements) => {
                let found = elements.iter().map(|&one| self.place(event.key, one));
                let found: Vec<Place> = found.collect();
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

fn commits(table: &Table, order: &[u32], mut clock: Clock, model: &str) -> Result<(), String> {
    for &number in order {
        let one = &table.all[number as usize];
        clock.end(one)?;
        clock.begin(one);
    }
    let commits = Commits::new(table, order)?;
    let is_committed = model != "read-uncommitted";
    let is_ok = |number: &u32| Transaction::is_ok(&table.all[*number as usize]);
    for (place, &number) in order.iter().enumerate().filter(|(_, number)| is_ok(number)) {
        for event in table.events(number) {
            let read = commits.read(event, place as u32, is_committed);
            read.map_err(|how| {
                let (index, name) = (table.all[number as usize].index, table.name(event.key));
                format!("op {index} reads key {name} {how}")
            })?;
        }
    }
    Ok(())
}
