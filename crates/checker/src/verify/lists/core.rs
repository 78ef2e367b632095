//! Transactions on lists of which there is no order of snapshots and commits.

use crate::certificate::Certificate;
use crate::verify::elements::Elements;
use crate::verify::groups::Written;
use crate::verify::registers::core::{follows, refute};
use crate::verify::table::Table;
use crate::verify::{Unproven, models};
use std::collections::{BTreeMap, BTreeSet};

/// Is there no order of snapshots and commits of these transactions that the model allows? Known is what reads show: whose
/// append comes before whose, and what was not there yet. Appends to a list that the longest read does not have come after
/// those that it has; both orders of two such are tried, for so many steps.
pub(in crate::verify) fn core(
    table: &Table,
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
    let written = Written::of_keys(table, &touched, is_effective);
    if let Some((key, element)) = written.twice(|_| true) {
        let name = table.name(key);
        return Err(format!("{element} is appended to key {name} twice").into());
    }
    let mut known = Known::new(table, &members);
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

/// Did all of these succeed, or did a successful one read an append of theirs?
fn happened(table: &Table, members: &[u32]) -> Result<(), String> {
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
            for element in table.seen(event).into_iter().flat_map(Elements::iter) {
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

/// What a member appended to a list.
#[derive(Default)]
struct Appended {
    /// Places in the longest read, with members, in order.
    read: Vec<(usize, usize)>,
    /// Members of whose appends it has none.
    unread: Vec<usize>,
}

/// What is known of the events of members.
struct Known<'a> {
    table: &'a Table,
    members: &'a [u32],
    lists: BTreeMap<u32, Appended>,
    edges: Vec<(usize, usize)>,
    open: Vec<(usize, usize)>,
}

impl<'a> Known<'a> {
    fn new(table: &'a Table, members: &'a [u32]) -> Known<'a> {
        let mut places: BTreeMap<u32, BTreeMap<i64, usize>> = BTreeMap::new();
        let mut lists: BTreeMap<u32, Appended> = BTreeMap::new();
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
        }
        Known {
            table,
            members,
            lists,
            edges: Vec::new(),
            open: Vec::new(),
        }
    }

    /// What was read had been committed; what was not there is committed later.
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

    /// Of two that append to a list, one commits before the other takes its snapshot.
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
