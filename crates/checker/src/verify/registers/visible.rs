//! Replays orders of versions for parallel snapshot isolation.

use super::Facts;
use crate::verify::clock::Clock;
use crate::verify::table::NONE;
use std::collections::{BTreeMap, BTreeSet};

/// Looks whether a transaction sees an overwrite of what it read, when versions are in this order.
pub(super) fn visible(facts: &Facts<'_>, follows: &str, places: &[u64]) -> Result<(), String> {
    let table = facts.table;
    let order = facts.at_all(places)?;
    let places = facts.places(&order)?;
    let mut clock = Clock::new(table, follows);
    // By key: the last version so far. By session: the last transaction so far.
    let mut last = vec![NONE; table.key_count()];
    let mut sessions = vec![NONE; table.session_count()];
    // By place: whom it sees directly. By read: who overwrote what was read, if that comes before.
    let mut sources: Vec<Vec<u32>> = Vec::with_capacity(order.len());
    let mut next: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for &number in &order {
        let one = &table.all[number as usize];
        clock.end(one)?;
        clock.begin(one);
        let reads = facts.reads(number).iter().map(|read| read.source);
        let mut seen: Vec<u32> = reads.collect();
        if follows == "process" {
            seen.push(sessions[one.session as usize]);
            if one.is_ok() {
                sessions[one.session as usize] = number;
            }
        }
        for &key in facts.writes(number) {
            let before = std::mem::replace(&mut last[key as usize], number);
            next.insert((key, before), number);
            seen.push(before);
        }
        seen.retain(|&other| other != NONE);
        let place = places[number as usize];
        if seen.iter().any(|&other| places[other as usize] >= place) {
            let name = facts.index(number);
            return Err(format!("op {name} comes before what it must see"));
        }
        sources.push(seen);
    }
    for &number in &order {
        for read in facts.reads(number) {
            let overwrite = next.get(&(read.key, read.source)).copied();
            if let Some(other) = overwrite.filter(|&other| other != number)
                && sees(&sources, &places, number, other)
            {
                let (name, key) = (facts.index(number), table.name(read.key));
                return Err(format!("op {name} sees a later version of key {key}"));
            }
        }
    }
    Ok(())
}

/// Does `reader` see `other`, in any number of steps? Nothing before `other` leads there.
fn sees(sources: &[Vec<u32>], places: &[u32], reader: u32, other: u32) -> bool {
    let target = places[other as usize];
    let mut reached = BTreeSet::from([places[reader as usize]]);
    while let Some(place) = reached.pop_last() {
        if place <= target {
            return place == target;
        }
        let further = sources[place as usize].iter();
        reached.extend(further.map(|&one| places[one as usize]));
    }
    false
}
