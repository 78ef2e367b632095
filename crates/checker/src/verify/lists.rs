//! Looks up what was found of lists.

pub(super) mod core;
pub(super) mod orders;

use super::cycle;
use super::elements::Elements;
use super::records::Events;
use super::table::{Event, Table, Transaction};
use crate::certificate::{Edge, Evidence};
use std::collections::{BTreeMap, BTreeSet};

/// Do the operations show these findings?
pub(super) fn findings(table: &Table, findings: &[Evidence]) -> Result<(), String> {
    let look = Look::new(table, findings);
    if let Some((&key, _)) = look.lists.iter().find(|(_, list)| list.is_ambiguous) {
        let name = table.name(key);
        return Err(format!("an element is appended to key {name} twice"));
    }
    findings.iter().try_for_each(|finding| {
        look.finding(finding)
            .map_err(|reason| format!("{}: {reason}", finding.anomaly))
    })
}

/// What is known of one list.
#[derive(Default)]
struct List {
    /// The longest read that is a prefix of [`Table::longest`].
    length: usize,
    /// Reads that are not.
    others: Vec<Event>,
    appended: BTreeSet<i64>,
    /// Those of transactions that did not fail: a failed append of the same element had no effect.
    effective: BTreeSet<i64>,
    /// Did two transactions append an element of which neither failed? Then nothing shows whose append a read saw.
    is_ambiguous: bool,
}

/// The transactions that findings name, and the lists that these touch.
struct Look<'a> {
    table: &'a Table,
    /// By index: what it is, and what it did.
    named: BTreeMap<u64, (Transaction, Events)>,
    lists: BTreeMap<u32, List>,
}

/// A transaction that was named.
#[derive(Clone, Copy)]
struct One<'a> {
    row: &'a Transaction,
    events: &'a [Event],
    table: &'a Table,
}

impl<'a> One<'a> {
    /// What it saw of which list.
    fn seen(self) -> impl Iterator<Item = (u32, Elements<'a>)> {
        let events = self.events.iter();
        events.filter_map(move |event| Some((event.key, self.table.seen(event)?)))
    }

    /// What it appended to which list.
    fn appended(self) -> impl Iterator<Item = (u32, i64)> + Clone + use<'a> {
        let events = self.events.iter();
        events.filter_map(|event| Some((event.key, event.appended()?)))
    }

    /// What it appended to this list.
    fn appended_to(self, key: u32) -> impl Iterator<Item = i64> + Clone + use<'a> {
        let same = self.appended().filter(move |append| append.0 == key);
        same.map(|append| append.1)
    }
}

impl<'a> Look<'a> {
    fn new(table: &'a Table, findings: &[Evidence]) -> Look<'a> {
        let named = findings.iter().flat_map(|finding| {
            let steps = finding.steps.iter().flat_map(|step| [step.from, step.to]);
            finding.operations.iter().copied().chain(steps)
        });
        let named = table.by_index(named);
        let mut lists: BTreeMap<u32, List> = BTreeMap::new();
        let unpacked = named.into_iter();
        let named: BTreeMap<u64, (Transaction, Events)> = unpacked
            .map(|(index, number)| (index, table.get(number)))
            .collect();
        for (_, events) in named.values() {
            let keys = events.iter().map(|event| event.key);
            lists.extend(keys.map(|key| (key, List::default())));
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
        Look {
            table,
            named,
            lists,
        }
    }

    fn one(&self, index: u64) -> Result<One<'_>, String> {
        let found = self.named.get(&index);
        let (row, events) = found.ok_or_else(|| format!("op {index} completes no transaction"))?;
        Ok(One {
            row,
            events,
            table: self.table,
        })
    }

    /// Lists of which each read of this key is a prefix of one.
    fn reads(&self, key: u32) -> impl Iterator<Item = Elements<'_>> {
        let list = &self.lists[&key];
        let longest = self.table.longest(key).first(list.length);
        let others = list.others.iter();
        let others = others.filter_map(|event| self.table.seen(event));
        std::iter::once(longest).chain(others)
    }

    /// Is this evidence what it says it is?
    fn finding(&self, finding: &Evidence) -> Result<(), String> {
        let all = finding.operations.iter();
        let all: Vec<One<'_>> = all
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
                let is_twice = |elements: Elements<'_>| {
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
            _ => return Err("no such anomaly, or not with so many operations".into()),
        };
        if holds && is_ok {
            Ok(())
        } else {
            Err("the operations do not show it".into())
        }
    }

    /// Does the one come before the other as this step says, and did both take place?
    fn precedes(&self, step: &Edge) -> Result<bool, String> {
        let (one, other) = (self.one(step.from)?, self.one(step.to)?);
        let holds = match step.relation.as_str() {
            "ww" => self.overwrites(one, other),
            "wr" => other.row.is_ok() && self.observes(other, one),
            "rw" => one.row.is_ok() && misses(one, other),
            "process" => one.row.is_run_before(other.row),
            "realtime" => one.row.is_over_before(other.row),
            _ => false,
        };
        let happened = |one: One<'_>| one.row.is_ok() || !one.row.is_fail() && self.is_seen(one);
        Ok(holds && happened(one) && happened(other))
    }

    /// Did anybody read what it appended?
    fn is_seen(&self, one: One<'_>) -> bool {
        let mut appends = one.appended();
        appends.any(|(key, element)| self.reads(key).any(|read| read.contains(element)))
    }

    /// Is this append of a transaction the one that reads of its element saw? Of one that failed it is only where no other
    /// transaction appended the same.
    fn is_effective(&self, one: One<'_>, key: u32, element: i64) -> bool {
        !one.row.is_fail() || !self.lists[&key].effective.contains(&element)
    }

    fn observes(&self, reader: One<'_>, writer: One<'_>) -> bool {
        reader.seen().any(|(key, elements)| {
            let mut appends = writer.appended_to(key);
            appends.any(|one| elements.contains(one) && self.is_effective(writer, key, one))
        })
    }

    /// Does a read end with an append of the writer that is not its last to the list?
    fn ends_inside(&self, reader: One<'_>, writer: One<'_>) -> bool {
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

    /// Does a read show an append of `one`, without one of `other` before it, and is that of `other` behind or not there?
    fn overwrites(&self, one: One<'_>, other: One<'_>) -> bool {
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

/// Does a read of `one` lack what `other` appended? Then that was appended later.
fn misses(one: One<'_>, other: One<'_>) -> bool {
    one.seen()
        .any(|(key, elements)| other.appended_to(key).any(|it| !elements.contains(it)))
}

fn disagree(one: One<'_>, other: One<'_>) -> bool {
    one.seen().any(|(key, mine)| {
        let mut theirs = other.seen().filter(|read| read.0 == key);
        theirs.any(|(_, theirs)| mine.iter().zip(theirs.iter()).any(|(a, b)| a != b))
    })
}

/// Does a read show an append of the writer without one before it that the writer performed earlier?
fn reorders(reader: One<'_>, writer: One<'_>) -> bool {
    reader.seen().any(|(key, elements)| {
        let place = |element| elements.position(element);
        let appends: Vec<i64> = writer.appended_to(key).collect();
        appends.array_windows().any(|&[earlier, later]| {
            place(later).is_some_and(|at| place(earlier).is_none_or(|before| at < before))
        })
    })
}

/// Did all read the same version of a list before they appended to it?
fn are_updates(all: &[One<'_>]) -> bool {
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

fn contradicts_itself(one: One<'_>) -> bool {
    let mut known: BTreeMap<u32, (Option<Elements<'_>>, Vec<i64>)> = BTreeMap::new();
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

fn reads_its_future(one: One<'_>) -> bool {
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
