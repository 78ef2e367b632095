//! Replays orders of versions for parallel snapshot isolation.

use super::Facts;
use crate::verify::clock::Clock;
use crate::verify::groups::Groups;
use crate::verify::table::NONE;
use std::collections::BTreeSet;

/// Whom transactions see directly: by place in the order the places of those, side by side.
struct Seen {
    starts: Vec<usize>,
    all: Vec<u32>,
}

/// Looks whether a transaction sees an overwrite of what it read, when versions are in this order.
pub(super) fn visible(facts: &Facts<'_>, follows: &str, places: &[u64]) -> Result<(), String> {
    let table = facts.table;
    let order = facts.at_all(places)?;
    let places = facts.places(&order)?;
    let mut clock = Clock::new(table, follows);
    // By key: the last version so far. By session: the last transaction so far.
    let mut last = vec![NONE; table.key_count()];
    let mut sessions = vec![NONE; table.session_count()];
    let mut seen = Seen {
        starts: vec![0],
        all: Vec::new(),
    };
    // Reads of what was overwritten earlier in the order. Nobody sees what comes later.
    let mut stale = Vec::new();
    for (&number, place) in order.iter().zip(0..) {
        let one = &table.one(number);
        clock.end(one)?;
        clock.begin(one);
        let first = seen.all.len();
        let mut see = |other: u32| {
            if other != NONE {
                seen.all.push(places[other as usize]);
            }
        };
        for &read in facts.reads(number) {
            see(read.source);
            if last[read.key as usize] != read.source {
                stale.push((number, read));
            }
        }
        if follows == "process" {
            see(sessions[one.session as usize]);
            if one.is_ok() {
                sessions[one.session as usize] = number;
            }
        }
        for &key in facts.writes(number) {
            see(std::mem::replace(&mut last[key as usize], number));
        }
        if seen.all[first..].iter().any(|&other| other >= place) {
            let name = facts.index(number);
            return Err(format!("op {name} comes before what it must see"));
        }
        seen.starts.push(seen.all.len());
    }
    // By key: the places of its versions.
    let versions = Groups::new(table.key_count(), |tell| {
        for (&number, place) in order.iter().zip(0_u32..) {
            facts
                .writes(number)
                .iter()
                .for_each(|&key| tell(key, place));
        }
    });
    for (number, read) in stale {
        let versions = versions.of(read.key);
        let source = (read.source != NONE).then(|| places[read.source as usize]);
        let next = versions.partition_point(|&place| Some(place) <= source);
        let reader = places[number as usize];
        if let Some(&overwrite) = versions.get(next)
            && overwrite != reader
            && seen.leads(reader, overwrite)
        {
            let (name, key) = (facts.index(number), table.name(read.key));
            return Err(format!("op {name} sees a later version of key {key}"));
        }
    }
    Ok(())
}

impl Seen {
    /// Does the one at this place see the other, in any number of steps? Nothing before that leads there.
    fn leads(&self, reader: u32, other: u32) -> bool {
        let mut reached = BTreeSet::from([reader]);
        while let Some(place) = reached.pop_last() {
            if place <= other {
                return place == other;
            }
            let [start, end] = [place, place + 1].map(|at| self.starts[at as usize]);
            reached.extend(&self.all[start..end]);
        }
        false
    }
}
