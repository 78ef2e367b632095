//! Orders of a valid history of lists, replayed.

use crate::certificate::Proof;
use crate::verify::clock::Clock;
use crate::verify::groups::{Writer, Written};
use crate::verify::table::{Event, NONE, Table, Transaction};

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
    /// So many elements are those of the longest list that was read,
    agreed: usize,
    /// and these follow.
    rest: Vec<i64>,
    /// Where in the order of snapshots and commits it was last appended to.
    place: u32,
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

    /// Carries a transaction out. Do its reads see the lists as they are, with what it appended itself?
    fn carry_out(&mut self, number: u32) -> Result<(), String> {
        for event in self.table.events(number) {
            if let Some(element) = event.appended() {
                self.append(event.key, element);
            } else if !self.is_seen(event) {
                let index = self.table.all[number as usize].index;
                let name = self.table.name(event.key);
                return Err(format!("op {index} does not see key {name} as it was then"));
            }
        }
        Ok(())
    }

    fn append(&mut self, key: u32, element: i64) {
        let list = &mut self.lists[key as usize];
        let next = self.table.longest(key).get(list.agreed);
        if list.rest.is_empty() && next == Some(&element) {
            list.agreed += 1;
        } else {
            list.rest.push(element);
        }
    }

    /// Takes back what a transaction appended, the last that was carried out.
    fn take_back(&mut self, number: u32) {
        for event in self.table.events(number) {
            if event.appended().is_some() {
                let list = &mut self.lists[event.key as usize];
                if list.rest.pop().is_none() {
                    list.agreed -= 1;
                }
            }
        }
    }

    /// Is a list what this read saw?
    fn is_seen(&self, read: &Event) -> bool {
        let List { agreed, rest, .. } = &self.lists[read.key as usize];
        // What is a prefix of the longest list needs no second look at each element.
        match self.table.other(read) {
            None => {
                let length = self.table.seen(read).map(<[i64]>::len);
                length == Some(*agreed) && rest.is_empty()
            }
            Some(elements) => {
                let known = &self.table.longest(read.key)[..*agreed];
                elements.strip_prefix(known) == Some(&rest[..])
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
        state.carry_out(number)?;
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
    // By transaction: where it took its snapshot.
    let mut begun = vec![NONE; table.all.len()];
    for (&number, place) in order.iter().zip(0..) {
        let one = &table.all[number as usize];
        let begun = &mut begun[number as usize];
        if *begun == NONE {
            *begun = place;
            clock.begin(one);
            state.carry_out(number)?;
            state.take_back(number);
            continue;
        }
        for event in table.events(number) {
            if let Some(element) = event.appended()
                && state.lists[event.key as usize].place > *begun
                && observed.has(event.key, element)
            {
                let index = one.index;
                return Err(format!("op {index} was not the first to commit an append"));
            }
        }
        clock.end(one)?;
        for event in table.events(number) {
            if let Some(element) = event.appended() {
                state.append(event.key, element);
                state.lists[event.key as usize].place = place;
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
