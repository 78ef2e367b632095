//! The replay of cores: transactions on lists that have no order of snapshots and commits.

use crate::certificate::Certificate;
use crate::compact_list::ListElements;
use crate::keyed_rows::WrittenValues;
use crate::register_proofs::register_core::{follows, refute};
use crate::transaction_table::TransactionTable;
use crate::{Unproven, models};
use std::collections::{BTreeMap, BTreeSet};

/// Checks that these transactions have no order of snapshots and commits that the model allows.
///
/// Reads show which append came before which, and which was not there yet. An append that the longest read of its list
/// does not contain comes after all that it contains; both orders of two such appends are tried, for a bounded number of steps.
pub(crate) fn core(
    table: &TransactionTable,
    model: &str,
    places: &[u64],
    steps_max: u64,
) -> Result<(), Unproven> {
    let relation = match models::order(model) {
        (0, "snapshot-isolation") => "",
        (1, "snapshot-isolation") => "process",
        (2, "snapshot-isolation") => "realtime",
        _ => {
            return Err(
                format!("transactions without an order prove nothing about {model}").into(),
            );
        }
    };
    let members: BTreeSet<u32> = table.at_all(places)?.into_iter().collect();
    let members: Vec<u32> = members.into_iter().collect();
    if members.len() > Certificate::CORE_MAX {
        let most = Certificate::CORE_MAX;
        return Err(format!("more than {most} transactions are not replayed").into());
    }
    happened(table, &members)?;
    let mut touched: BTreeSet<u32> = BTreeSet::new();
    for &one in &members {
        touched.extend(table.events(one).iter().map(|event| event.key));
    }
    let is_effective = |one: u32| !table.one(one).is_fail();
    let written = WrittenValues::of_keys(table, &touched, is_effective);
    if let Some((key, element)) = written.twice(|_| true) {
        let name = table.name(key);
        return Err(format!("{element} is appended to key {name} twice").into());
    }
    let mut known = KnownAppends::new(table, &members);
    known.take_reads();
    known.take_appends();
    for (later, &number) in members.iter().enumerate() {
        for (earlier, &other) in members.iter().enumerate() {
            if earlier != later && follows(table, relation, other, number) {
                known.edges.push((commit(earlier), snapshot(later)));
            }
        }
    }
    refute(members.len(), &known.edges, &known.open, steps_max)
}

/// Checks that each of these succeeded or was read from by a successful transaction.
fn happened(table: &TransactionTable, members: &[u32]) -> Result<(), String> {
    let mut unknown: BTreeMap<(u32, i64), u32> = BTreeMap::new();
    let mut unseen: BTreeSet<u32> = BTreeSet::new();
    for &number in members.iter().filter(|&&one| !table.one(one).is_ok()) {
        let index = table.one(number).index;
        if table.one(number).is_fail() {
            return Err(format!("op {index} failed"));
        }
        unseen.insert(number);
        let events = table.events(number);
        let appends = events
            .iter()
            .filter_map(|event| Some((event.key, event.appended()?)));
        unknown.extend(appends.map(|append| (append, number)));
    }
    if unseen.is_empty() {
        return Ok(());
    }
    for (_, _, events) in table.each().filter(|(_, one, _)| one.is_ok()) {
        for event in events.iter() {
            for element in table.seen(event).into_iter().flat_map(ListElements::iter) {
                if let Some(number) = unknown.get(&(event.key, element)) {
                    unseen.remove(number);
                }
            }
        }
    }
    match unseen.first() {
        None => Ok(()),
        Some(&number) => {
            let index = table.one(number).index;
            Err(format!("nothing shows that op {index} took place"))
        }
    }
}

fn snapshot(member: usize) -> usize {
    2 * member
}

fn commit(member: usize) -> usize {
    2 * member + 1
}

/// The appends of members to a list.
#[derive(Default)]
struct ListAppends {
    /// Appends in the longest read: index there and member, sorted.
    read: Vec<(usize, usize)>,
    /// Members of which the longest read has no append.
    unread: Vec<usize>,
}

/// The known order of the members' events.
struct KnownAppends<'a> {
    table: &'a TransactionTable,
    members: &'a [u32],
    lists: BTreeMap<u32, ListAppends>,
    edges: Vec<(usize, usize)>,
    open: Vec<(usize, usize)>,
}

impl<'a> KnownAppends<'a> {
    fn new(table: &'a TransactionTable, members: &'a [u32]) -> KnownAppends<'a> {
        let mut places: BTreeMap<u32, BTreeMap<i64, usize>> = BTreeMap::new();
        let mut lists: BTreeMap<u32, ListAppends> = BTreeMap::new();
        for (member, &number) in members.iter().enumerate() {
            let mut written: BTreeMap<u32, bool> = BTreeMap::new();
            for event in table.events(number).iter() {
                let Some(element) = event.appended() else {
                    continue;
                };
                let places = places.entry(event.key).or_insert_with(|| {
                    let longest = table.longest(event.key).iter().enumerate();
                    longest.map(|(place, one)| (one, place)).collect()
                });
                let is_read = written.entry(event.key).or_default();
                if let Some(&place) = places.get(&element) {
                    *is_read = true;
                    let list = lists.entry(event.key).or_default();
                    list.read.push((place, member));
                }
            }
            for (key, is_read) in written {
                if !is_read {
                    lists.entry(key).or_default().unread.push(member);
                }
            }
        }
        for list in lists.values_mut() {
            list.read.sort_unstable();
            assert!(
                list.read.array_windows().all(|[one, next]| one.0 < next.0),
                "an element of the longest read has two members"
            );
        }
        KnownAppends {
            table,
            members,
            lists,
            edges: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Adds the edges of reads: an append that was read was committed before, one that was not is committed later.
    fn take_reads(&mut self) {
        for (member, &number) in self.members.iter().enumerate() {
            self.edges.push((snapshot(member), commit(member)));
            for event in self.table.events(number).iter() {
                let (Some(seen), None, Some(list)) = (
                    self.table.seen(event),
                    self.table.other(event),
                    self.lists.get(&event.key),
                ) else {
                    continue;
                };
                let split = list.read.partition_point(|&(place, _)| place < seen.len());
                let (before, after) = list.read.split_at(split);
                let others = |&&(_, other): &&(usize, usize)| other != member;
                if let Some(&(_, writer)) = before.iter().rev().find(others) {
                    self.edges.push((commit(writer), snapshot(member)));
                }
                let next = after.iter().find(others).map(|&(_, writer)| writer);
                let unread = list.unread.iter().copied();
                let missed = next
                    .into_iter()
                    .chain(unread.filter(|&other| other != member));
                self.edges
                    .extend(missed.map(|writer| (snapshot(member), commit(writer))));
            }
        }
    }

    /// Adds the pairs of members that append to the same list: one commits before the other takes its snapshot.
    fn take_appends(&mut self) {
        for list in self.lists.values() {
            for &[(_, one), (_, next)] in list.read.array_windows() {
                if one != next {
                    self.edges.push((commit(one), snapshot(next)));
                }
            }
            for (at, &one) in list.unread.iter().enumerate() {
                if let Some(&(_, last)) = list.read.last() {
                    self.edges.push((commit(last), snapshot(one)));
                }
                self.open
                    .extend(list.unread[..at].iter().map(|&other| (other, one)));
            }
        }
    }
}
