//! Explanations of findings: the operations that take part are read once more.

use super::list_table::ListId;
use super::read_anomalies::Suspect;
use super::witness_context::WitnessContext;
use seatrial_checker::{Anomaly, Finding};
use seatrial_cycles::Txn;
use seatrial_cycles::graph::{WR, WW};
use seatrial_history::{ChunkSource, Mop, Observed, Op, SourceError};
use seatrial_isolation::explain::{
    self, DependencyReasons, RecordedTransactions, list, micro_operation, shown,
};
use std::collections::{BTreeMap, BTreeSet};

/// A context with the operations of its transactions, which explains its suspects.
pub(super) struct WitnessExplanation<'a> {
    pub(super) context: &'a WitnessContext,
    pub(super) ops: &'a BTreeMap<u64, Op>,
}

/// The operations of all these contexts, read in one pass.
pub(super) fn operations(
    source: &dyn ChunkSource,
    contexts: &[WitnessContext],
) -> Result<BTreeMap<u64, Op>, SourceError> {
    let positions: BTreeSet<_> = contexts
        .iter()
        .flat_map(WitnessContext::positions)
        .collect();
    source.recall(&positions)
}

/// Transactions without an order that are shown.
const TRANSACTIONS_SHOWN_MAX: usize = 32;

/// An append in a reason.
#[derive(Clone, Copy, Debug)]
struct ExplainedAppend {
    list: ListId,
    element: i64,
    /// Its position in the version order; `u32::MAX` if it is unknown, as it then comes after the known ones.
    position: u32,
}

impl RecordedTransactions for WitnessExplanation<'_> {
    fn invocation(&self, number: u32) -> Option<&Op> {
        self.op(Txn::new(number), 0)
    }

    fn completion(&self, number: u32) -> Option<&Op> {
        self.op(Txn::new(number), 1)
    }
}

impl WitnessExplanation<'_> {
    fn op(&self, number: Txn, which: usize) -> Option<&Op> {
        let positions = self.context.transactions.get(&number)?;
        self.ops.get(&u64::from(positions[which]?.get()))
    }

    /// A transaction's micro-operations with the numbers of their lists.
    fn mops(&self, number: Txn) -> impl Iterator<Item = (ListId, &Mop)> {
        let mops = self.shown_mops(number.get()).iter();
        mops.filter_map(|mop| Some((self.context.number(mop.key())?, mop)))
    }

    /// The appends of a transaction.
    fn appended(&self, number: Txn) -> impl Iterator<Item = ExplainedAppend> {
        self.mops(number).filter_map(|(list, mop)| match mop {
            &Mop::Append { element, .. } => Some(ExplainedAppend {
                list,
                element,
                position: self.context.position(list, element).unwrap_or(u32::MAX),
            }),
            _ => None,
        })
    }

    /// The reads of a transaction: lists and elements.
    fn reads(&self, number: Txn) -> impl Iterator<Item = (ListId, &[i64])> {
        self.mops(number)
            .filter_map(|(list, mop)| Some((list, elements(mop)?)))
    }

    fn key(&self, at: ListId) -> String {
        let list = self.context.lists.get(&at);
        list.map_or_else(String::new, |list| list.key.to_string())
    }

    /// The reason of a `ww` edge: the closest pair of appends to one list.
    fn overwrite(&self, from: Txn, to: Txn) -> Option<(ExplainedAppend, ExplainedAppend)> {
        let pairs = self.appended(to).filter_map(|later| {
            let same = self
                .appended(from)
                .filter(|append| append.list == later.list);
            let earlier = same.filter(|append| append.position < later.position);
            let last = earlier.max_by_key(|append| append.position);
            last.map(|earlier| (earlier, later))
        });
        pairs.min_by_key(|(earlier, later)| later.position - earlier.position)
    }

    /// The reason of a `wr` edge: an append that was read.
    fn observed(&self, from: Txn, to: Txn) -> Option<ExplainedAppend> {
        let mut seen = self.reads(to).filter_map(|(list, seen)| {
            let theirs = self.appended(from).filter(|append| append.list == list);
            theirs
                .filter(|append| seen.contains(&append.element))
                .last()
        });
        seen.next()
    }

    /// The reason of an `rw` edge: whether a read returned the initial state, and the first append of `to` that it missed.
    fn missed(&self, from: Txn, to: Txn) -> Option<(bool, ExplainedAppend)> {
        let agreed = |at: ListId| self.context.lists.get(&at).map_or(0, |list| list.agreed);
        let regular = self
            .reads(from)
            .filter(|&(at, seen)| seen.len() <= agreed(at));
        let pairs = regular.filter_map(|(at, seen)| {
            let same = self.appended(to).filter(|append| append.list == at);
            let missed = same.filter(|append| !seen.contains(&append.element));
            let first = missed.min_by_key(|append| append.position);
            first.map(|append| (seen, append))
        });
        pairs
            .min_by_key(|(seen, append)| i64::from(append.position) - seen.len() as i64)
            .map(|(seen, append)| (seen.is_empty() && append.position == 0, append))
    }

    /// The message about an element that was appended twice.
    pub(super) fn appended_twice(&self, key: &str, element: i64, [one, other]: [Txn; 2]) -> String {
        format!(
            "op {} does [:append {key} {element}], as op {} did: elements must be unique for each key",
            self.shown_index(other.get()),
            self.shown_index(one.get())
        )
    }

    /// The finding of a suspect.
    pub(super) fn finding(&self, anomaly: Anomaly, suspect: &Suspect) -> Finding {
        if let Suspect::Cycle(cycle) = suspect {
            return explain::cycle(self, self, anomaly, cycle);
        }
        let mut operations: Vec<u64> = Vec::new();
        for number in suspect.transactions() {
            let index = self.shown_index(number.get());
            if !operations.contains(&index) {
                operations.push(index);
            }
        }
        Finding {
            anomaly,
            summary: self.explanation(suspect),
            operations,
            steps: Vec::new(),
            linearization: None,
        }
    }

    fn explanation(&self, suspect: &Suspect) -> String {
        let line = |number: Txn| shown(self, number.get());
        let key = |list: ListId| self.key(list);
        match *suspect {
            Suspect::Internal(number) => self.internal(number),
            Suspect::Future(number) => self.future(number),
            Suspect::Incompatible {
                list,
                readers: [one, other],
                agreed,
            } => format!(
                "No order of appends to key {} explains both of these reads, which agree on the first {agreed} \
                 elements only:\n  {}\n  {}",
                key(list),
                line(one),
                line(other)
            ),
            Suspect::Reordered {
                list,
                reader,
                writer,
                elements: [earlier, later],
            } => format!(
                "{}\nobserved element {later} of key {} without {earlier} before it, which was appended before it by the \
                 same transaction:\n{}",
                line(reader),
                key(list),
                line(writer)
            ),
            Suspect::Duplicate {
                list,
                reader,
                element,
                count,
            } => format!(
                "{}\nIt read element {element} of key {} {count} times.",
                line(reader),
                key(list)
            ),
            Suspect::Dirty { list, above, below } => format!(
                "{}\ncommitted its append of {} to key {} on top of {}, which was aborted:\n{}",
                line(above.0),
                above.1,
                key(list),
                below.1,
                line(below.0)
            ),
            Suspect::Lost {
                list,
                length,
                ref transactions,
            } => self.lost(list, length, transactions),
            Suspect::Unordered {
                ref lists,
                ref transactions,
            } => self.unordered(lists, transactions),
            _ => self.bad_read(suspect),
        }
    }

    /// The explanation of a garbage, aborted or intermediate read.
    fn bad_read(&self, suspect: &Suspect) -> String {
        let line = |number: Txn| shown(self, number.get());
        let key = |list: ListId| self.key(list);
        match *suspect {
            Suspect::Garbage {
                list,
                reader,
                element,
            } => format!(
                "{}\nobserved element {element} of key {}, which no operation appended.",
                line(reader),
                key(list)
            ),
            Suspect::Aborted {
                list,
                reader,
                writer,
                element,
            } => format!(
                "{}\nobserved element {element} of key {}, whose append was aborted:\n{}",
                line(reader),
                key(list),
                line(writer)
            ),
            Suspect::Intermediate {
                list,
                reader,
                writer,
                element,
            } => format!(
                "{}\nobserved key {} as it was in the middle of another transaction, which appended more after \
                 {element}:\n{}",
                line(reader),
                key(list),
                line(writer)
            ),
            _ => String::new(),
        }
    }

    fn unordered(&self, lists: &[ListId], transactions: &[Txn]) -> String {
        let keys: Vec<_> = lists.iter().map(|&list| self.key(list)).collect();
        let lines = transactions.iter().take(TRANSACTIONS_SHOWN_MAX);
        let lines: Vec<_> = lines.map(|&one| shown(self, one.get())).collect();
        format!(
            "{} transactions, of which several append to key {} what no read shows. Of two such, one must have committed before \
             the other took its snapshot; each order of them contradicts what these transactions read or the orders that the \
             model follows:\n  {}",
            transactions.len(),
            keys.join(" or key "),
            lines.join("\n  ")
        )
    }

    fn lost(&self, at: ListId, length: u32, transactions: &[Txn]) -> String {
        let known = self.context.lists.get(&at);
        let version = known.and_then(|list| list.elements.get(..length as usize));
        let shown = transactions
            .iter()
            .take(2)
            .map(|&one| shown(self, one.get()));
        let shown: Vec<_> = shown.collect();
        format!(
            "{} transactions read key {} as {} and then appended to it, among them:\n  {}",
            transactions.len(),
            self.key(at),
            list(version.unwrap_or_default()),
            shown.join("\n  ")
        )
    }

    /// The micro-operations of a transaction on each list.
    fn groups(&self, number: Txn) -> BTreeMap<ListId, Vec<&Mop>> {
        let mut groups: BTreeMap<ListId, Vec<&Mop>> = BTreeMap::new();
        for (list, mop) in self.mops(number) {
            groups.entry(list).or_default().push(mop);
        }
        groups
    }

    fn internal(&self, number: Txn) -> String {
        let groups = self.groups(number);
        let mut found = groups.values().filter_map(|mops| contradiction(mops));
        let line = shown(self, number.get());
        match found.next() {
            Some((mop, expected)) => format!(
                "{line}\nIts {} contradicts what it read or appended before: {expected} was to be expected.",
                micro_operation(mop)
            ),
            None => line,
        }
    }

    fn future(&self, number: Txn) -> String {
        let groups = self.groups(number);
        let mut found = groups.values().filter_map(|mops| future_read(mops));
        let line = shown(self, number.get());
        match found.next() {
            Some((read, append)) => format!(
                "{line}\nIts {} observes its own {append}, which it performs only later.",
                micro_operation(read)
            ),
            None => line,
        }
    }
}

impl DependencyReasons for WitnessExplanation<'_> {
    fn reason(&self, from: (u32, &str), to: (u32, &str), kind: u8) -> String {
        let ((earlier, a), (later, b)) = (from, to);
        let (earlier, later) = (Txn::new(earlier), Txn::new(later));
        let reason = match kind {
            WW => self.overwrite(earlier, later).map(|(first, second)| {
                let (one, two) = (first.element, second.element);
                let key = self.key(second.list);
                format!("{b} appended {two} after {a} appended {one} to key {key}")
            }),
            WR => self.observed(earlier, later).map(|append| {
                let (element, key) = (append.element, self.key(append.list));
                format!("{b} observed {a}'s append of {element} to key {key}")
            }),
            _ => self.missed(earlier, later).map(|(is_first, append)| {
                let (element, key) = (append.element, self.key(append.list));
                if is_first {
                    format!(
                        "{a} observed the initial (nil) state of key {key}, which {b} created by \
                         appending {element}"
                    )
                } else {
                    format!("{a} did not observe {b}'s append of {element} to key {key}")
                }
            }),
        };
        reason.unwrap_or_else(|| format!("{a} and {b} depend on each other"))
    }
}

/// The elements of a read of a list; `None` for anything else.
fn elements(mop: &Mop) -> Option<&[i64]> {
    match mop {
        Mop::Read { observed, .. } => match observed {
            Observed::List(elements) => Some(elements),
            _ => Some(&[]),
        },
        _ => None,
    }
}

/// The first read that contradicts the micro-operations before it on the same list, and what it should have been.
fn contradiction<'a>(mops: &[&'a Mop]) -> Option<(&'a Mop, String)> {
    let mut appended = Vec::new();
    let mut known: Option<&[i64]> = None;
    for &mop in mops {
        if let Mop::Append { element, .. } = mop {
            appended.push(*element);
        }
        let Some(seen) = elements(mop) else {
            continue;
        };
        let before = seen.strip_suffix(&appended[..]);
        match (known, before) {
            (Some(known), Some(before)) if known == before => {}
            (None, Some(_)) => {}
            (Some(known), _) => {
                return Some((mop, list(&[known, &appended].concat())));
            }
            (None, None) => return Some((mop, format!("[… {}", &list(&appended)[1..]))),
        }
        known = Some(seen);
        appended.clear();
    }
    None
}

/// The first append of an element that an earlier read of the same list observed, with that read.
fn future_read<'a>(mops: &[&'a Mop]) -> Option<(&'a Mop, &'a Mop)> {
    let mut reads: Vec<(&Mop, &[i64])> = Vec::new();
    for &mop in mops {
        if let Mop::Append { element, .. } = mop {
            let mut earlier = reads.iter();
            if let Some(&(read, _)) = earlier.find(|(_, seen)| seen.contains(element)) {
                return Some((read, mop));
            }
        }
        reads.extend(elements(mop).map(|seen| (mop, seen)));
    }
    None
}
