//! The check of findings about lists.

pub(super) mod list_core;
pub(super) mod list_orders;

use super::compact_list::ListElements;
use super::packed_records::TransactionAccesses;
use super::transaction_table::{MicroAccess, RecordedTransaction, TransactionTable};
use crate::certificate::{CycleEdge, Evidence};
use crate::verifier::cycle;
use std::collections::{BTreeMap, BTreeSet};

/// Checks that the operations show these findings.
pub(super) fn findings(table: &TransactionTable, findings: &[Evidence]) -> Result<(), String> {
    let look = ListFindings::new(table, findings);
    if let Some((&key, _)) = look.lists.iter().find(|(_, list)| list.is_ambiguous) {
        let name = table.name(key);
        return Err(format!("an element is appended to key {name} twice"));
    }
    findings.iter().try_for_each(|finding| {
        look.finding(finding)
            .map_err(|reason| format!("{}: {reason}", finding.anomaly))
    })
}

/// The reads and appends of one list.
#[derive(Default)]
struct NamedList {
    /// The length of the longest read that is a prefix of [`TransactionTable::longest`].
    length: usize,
    /// The reads that are not such prefixes.
    others: Vec<MicroAccess>,
    appended: BTreeSet<i64>,
    /// Appends of transactions that did not fail: a failed append of the same element had no effect.
    effective: BTreeSet<i64>,
    /// Did two transactions append the same element, of which neither failed? Then a read does not show which one it saw.
    is_ambiguous: bool,
}

/// The transactions that findings name, and the lists that these access.
struct ListFindings<'a> {
    table: &'a TransactionTable,
    /// By index: the transaction and its micro-operations.
    named: BTreeMap<u64, (RecordedTransaction, TransactionAccesses)>,
    lists: BTreeMap<u32, NamedList>,
}

/// A transaction that a finding names.
#[derive(Clone, Copy)]
struct NamedListTransaction<'a> {
    row: &'a RecordedTransaction,
    events: &'a [MicroAccess],
    table: &'a TransactionTable,
}

impl<'a> NamedListTransaction<'a> {
    /// Its reads: the key and the list.
    fn seen(self) -> impl Iterator<Item = (u32, ListElements<'a>)> {
        let events = self.events.iter();
        events.filter_map(move |event| Some((event.key, self.table.seen(event)?)))
    }

    /// Its appends: the key and the element.
    fn appended(self) -> impl Iterator<Item = (u32, i64)> + Clone + use<'a> {
        let events = self.events.iter();
        events.filter_map(|event| Some((event.key, event.appended()?)))
    }

    /// Its appends to this list, in order.
    fn appended_to(self, key: u32) -> impl Iterator<Item = i64> + Clone + use<'a> {
        let same = self.appended().filter(move |append| append.0 == key);
        same.map(|append| append.1)
    }
}

impl<'a> ListFindings<'a> {
    fn new(table: &'a TransactionTable, findings: &[Evidence]) -> ListFindings<'a> {
        let named = findings.iter().flat_map(|finding| {
            let steps = finding.steps.iter().flat_map(|step| [step.from, step.to]);
            finding.operations.iter().copied().chain(steps)
        });
        let named = table.by_index(named);
        let mut lists: BTreeMap<u32, NamedList> = BTreeMap::new();
        let unpacked = named.into_iter();
        let named: BTreeMap<u64, (RecordedTransaction, TransactionAccesses)> = unpacked
            .map(|(index, number)| (index, table.get(number)))
            .collect();
        for (_, events) in named.values() {
            let keys = events.iter().map(|event| event.key);
            lists.extend(keys.map(|key| (key, NamedList::default())));
        }
        let mut is_wanted = vec![false; table.key_count()];
        for &key in lists.keys() {
            is_wanted[key as usize] = true;
        }
        for (_, one, events) in table.each() {
            for event in events.iter().filter(|event| is_wanted[event.key as usize]) {
                let Some(list) = lists.get_mut(&event.key) else {
                    continue;
                };
                if let Some(element) = event.appended() {
                    list.appended.insert(element);
                    list.is_ambiguous |= !one.is_fail() && !list.effective.insert(element);
                }
                if let Some(elements) = table.seen(event).filter(|_| one.is_ok()) {
                    if table.other(event).is_none() {
                        list.length = list.length.max(elements.len());
                    } else {
                        list.others.push(*event);
                    }
                }
            }
        }
        ListFindings {
            table,
            named,
            lists,
        }
    }

    fn one(&self, index: u64) -> Result<NamedListTransaction<'_>, String> {
        let found = self.named.get(&index);
        let (row, events) = found.ok_or_else(|| format!("op {index} completes no transaction"))?;
        Ok(NamedListTransaction {
            row,
            events,
            table: self.table,
        })
    }

    /// Lists of this key such that each read of it is a prefix of one of them.
    fn reads(&self, key: u32) -> impl Iterator<Item = ListElements<'_>> {
        let list = &self.lists[&key];
        let longest = self.table.longest(key).first(list.length);
        let others = list.others.iter();
        let others = others.filter_map(|event| self.table.seen(event));
        std::iter::once(longest).chain(others)
    }

    /// Checks that this evidence shows its anomaly.
    fn finding(&self, finding: &Evidence) -> Result<(), String> {
        let all = finding.operations.iter();
        let all: Vec<NamedListTransaction<'_>> = all
            .map(|&index| self.one(index))
            .collect::<Result<_, _>>()?;
        if !finding.steps.is_empty() {
            return cycle(finding, |step| self.precedes(step));
        }
        let distinct: BTreeSet<u64> = finding.operations.iter().copied().collect();
        if distinct.len() < all.len() {
            return Err("it names an operation twice".into());
        }
        let is_ok = all.first().is_some_and(|one| one.row.is_ok());
        let holds = match (finding.anomaly.as_str(), &all[..]) {
            ("internal", &[one]) => contradicts_itself(one),
            ("future-read", &[one]) => reads_its_future(one),
            ("garbage-read", &[one]) => {
                let appended = |key, element| self.lists[&key].appended.contains(&element);
                let mut seen = one.seen();
                seen.any(|(key, elements)| !elements.iter().all(|one| appended(key, one)))
            }
            ("duplicate-elements", &[one]) => {
                let is_twice = |elements: ListElements<'_>| {
                    elements.iter().collect::<BTreeSet<_>>().len() < elements.len()
                };
                one.seen().any(|(_, elements)| is_twice(elements))
            }
            ("G1a", &[reader, writer]) => writer.row.is_fail() && self.observes(reader, writer),
            ("G1b", &[reader, writer]) => self.ends_inside(reader, writer),
            ("dirty-update", &[above, below]) => {
                below.row.is_fail() && self.overwrites(below, above)
            }
            ("incompatible-order", &[one]) => disagree(one, one) || reorders(one, one),
            ("incompatible-order", &[one, other]) => {
                other.row.is_ok() && disagree(one, other)
                    || !other.row.is_fail() && reorders(one, other)
            }
            ("lost-update", all) => {
                all.len() > 1 && all.iter().all(|one| one.row.is_ok()) && are_updates(all)
            }
            _ => return Err("no such anomaly, or not with this number of operations".into()),
        };
        if holds && is_ok {
            Ok(())
        } else {
            Err("the operations do not show it".into())
        }
    }

    /// Did both transactions take place, the first before the second by this step?
    fn precedes(&self, step: &CycleEdge) -> Result<bool, String> {
        let (one, other) = (self.one(step.from)?, self.one(step.to)?);
        let holds = match step.relation.as_str() {
            "ww" => self.overwrites(one, other),
            "wr" => other.row.is_ok() && self.observes(other, one),
            "rw" => one.row.is_ok() && misses(one, other),
            "process" => one.row.is_run_before(other.row),
            "realtime" => one.row.is_over_before(other.row),
            _ => false,
        };
        let happened = |one: NamedListTransaction<'_>| {
            one.row.is_ok() || !one.row.is_fail() && self.is_seen(one)
        };
        Ok(holds && happened(one) && happened(other))
    }

    /// Was an append of this transaction read?
    fn is_seen(&self, one: NamedListTransaction<'_>) -> bool {
        let mut appends = one.appended();
        appends.any(|(key, element)| self.reads(key).any(|read| read.contains(element)))
    }

    /// Do reads of this element see the append of this transaction? An append of a failed transaction is seen only if no
    /// other transaction appended the same element.
    fn is_effective(&self, one: NamedListTransaction<'_>, key: u32, element: i64) -> bool {
        !one.row.is_fail() || !self.lists[&key].effective.contains(&element)
    }

    fn observes(&self, reader: NamedListTransaction<'_>, writer: NamedListTransaction<'_>) -> bool {
        reader.seen().any(|(key, elements)| {
            let mut appends = writer.appended_to(key);
            appends.any(|one| elements.contains(one) && self.is_effective(writer, key, one))
        })
    }

    /// Does a read end with an append of the writer that is not its last one to the list?
    fn ends_inside(
        &self,
        reader: NamedListTransaction<'_>,
        writer: NamedListTransaction<'_>,
    ) -> bool {
        reader.seen().any(|(key, elements)| {
            let Some(last) = elements.last() else {
                return false;
            };
            let appends: Vec<i64> = writer.appended_to(key).collect();
            let place = appends.iter().position(|&one| one == last);
            place.is_some_and(|place| place + 1 < appends.len())
                && self.is_effective(writer, key, last)
        })
    }

    /// Does a read contain an append of `one` and, before it, not that of `other`?
    fn overwrites(&self, one: NamedListTransaction<'_>, other: NamedListTransaction<'_>) -> bool {
        let appended = one.appended();
        let mut effective = appended.filter(|&(key, it)| self.is_effective(one, key, it));
        effective.any(|(key, first)| {
            other.appended_to(key).any(|second| {
                self.reads(key).any(|elements| {
                    let place = |element| elements.position(element);
                    place(first)
                        .is_some_and(|first| place(second).is_none_or(|second| first < second))
                })
            })
        })
    }
}

/// Does a read of `one` lack an append of `other`? Then that append came later.
fn misses(one: NamedListTransaction<'_>, other: NamedListTransaction<'_>) -> bool {
    one.seen()
        .any(|(key, elements)| other.appended_to(key).any(|it| !elements.contains(it)))
}

fn disagree(one: NamedListTransaction<'_>, other: NamedListTransaction<'_>) -> bool {
    one.seen().any(|(key, mine)| {
        let mut theirs = other.seen().filter(|read| read.0 == key);
        theirs.any(|(_, theirs)| mine.iter().zip(theirs.iter()).any(|(a, b)| a != b))
    })
}

/// Does a read contain an append of the writer without an earlier append of the writer before it?
fn reorders(reader: NamedListTransaction<'_>, writer: NamedListTransaction<'_>) -> bool {
    reader.seen().any(|(key, elements)| {
        let place = |element| elements.position(element);
        let appends: Vec<i64> = writer.appended_to(key).collect();
        appends.array_windows().any(|&[earlier, later]| {
            place(later).is_some_and(|at| place(earlier).is_none_or(|before| at < before))
        })
    })
}

/// Did all read the same version of a list before they appended to it?
fn are_updates(all: &[NamedListTransaction<'_>]) -> bool {
    let versions = all.iter().map(|one| {
        let mut versions = BTreeSet::new();
        let mut touched = BTreeSet::new();
        for (at, event) in one.events.iter().enumerate() {
            let mut later = one.events[at..].iter();
            if touched.insert(event.key)
                && let Some(elements) = one.table.seen(event)
                && later.any(|other| other.key == event.key && other.appended().is_some())
            {
                versions.insert((event.key, elements));
            }
        }
        versions
    });
    let common = versions.reduce(|one, other| one.intersection(&other).copied().collect());
    common.is_some_and(|common| !common.is_empty())
}

fn contradicts_itself(one: NamedListTransaction<'_>) -> bool {
    let mut known: BTreeMap<u32, (Option<ListElements<'_>>, Vec<i64>)> = BTreeMap::new();
    for event in one.events {
        let (before, own) = known.entry(event.key).or_default();
        own.extend(event.appended());
        if let Some(elements) = one.table.seen(event) {
            let rest = elements.strip_suffix(own);
            if rest.is_none() || before.is_some_and(|before| rest != Some(before)) {
                return true;
            }
            *before = Some(elements);
            own.clear();
        }
    }
    false
}

fn reads_its_future(one: NamedListTransaction<'_>) -> bool {
    one.events.iter().enumerate().any(|(at, event)| {
        let mut later = one.events[at..]
            .iter()
            .filter(|later| later.key == event.key);
        let seen = one.table.seen(event);
        seen.is_some_and(|elements| {
            later.any(|later| later.appended().is_some_and(|it| elements.contains(it)))
        })
    })
}
