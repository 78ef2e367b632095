//! The replay of version orders for parallel snapshot isolation.

use super::{RegisterConstraints, SourcedRead};
use crate::dense_number::{OrderPlace, TransactionNumber};
use crate::keyed_rows::KeyedRows;
use crate::order_clock::OrderClock;
use std::collections::BTreeSet;

/// The transactions that each transaction sees directly: by place in the order, their places.
struct DirectlySeen(KeyedRows<u32>);

/// Checks that no transaction sees an overwrite of a version that it read, with versions in this order.
pub(super) fn visible(
    constraints: &RegisterConstraints<'_>,
    follows: &str,
    places: &[u64],
) -> Result<(), String> {
    let table = constraints.table;
    let order = constraints.at_all(places)?;
    let places = constraints.places(&order)?;
    let mut clock = OrderClock::new(table, follows);
    // By key: the last version so far. By session: its last transaction so far.
    let mut last = vec![None; table.key_count()];
    let mut sessions = vec![None; table.session_count()];
    let mut seen = KeyedRows::with_capacity(order.len());
    // Reads of versions that were overwritten earlier in the order; later overwrites cannot be seen.
    let mut stale = Vec::new();
    for (&number, place) in order.iter().zip(0..) {
        let one = &table.one(number);
        clock.end(one)?;
        clock.begin(one);
        let own = Some(TransactionNumber::new(number));
        let mut see = |other: Option<TransactionNumber>| {
            if let Some(other) = other {
                let place = places[other.get() as usize];
                seen.push(
                    place
                        .expect("each transaction that took place has one")
                        .get(),
                );
            }
        };
        for &read in constraints.reads(number) {
            see(read.source);
            if last[read.key as usize] != read.source {
                stale.push((number, read));
            }
        }
        if follows == "process" {
            see(sessions[one.session as usize]);
            if one.is_ok() {
                sessions[one.session as usize] = own;
            }
        }
        for &key in constraints.writes(number) {
            see(std::mem::replace(&mut last[key as usize], own));
        }
        seen.end_key();
        if seen.of(place).iter().any(|&other| other >= place) {
            let name = constraints.index(number);
            return Err(format!("op {name} comes before what it must see"));
        }
    }
    assert_eq!(seen.key_count(), order.len());
    ensure_unseen(constraints, (&order, &places), &DirectlySeen(seen), stale)
}

/// Checks that no reader of a stale version sees the next version of the key.
fn ensure_unseen(
    constraints: &RegisterConstraints<'_>,
    (order, places): (&[u32], &[Option<OrderPlace>]),
    seen: &DirectlySeen,
    stale: Vec<(u32, SourcedRead)>,
) -> Result<(), String> {
    let table = constraints.table;
    // By key: the places of its versions in the order.
    let versions = KeyedRows::new(table.key_count(), |emit| {
        for (&number, place) in order.iter().zip(0_u32..) {
            constraints
                .writes(number)
                .iter()
                .for_each(|&key| emit(key, place));
        }
    });
    for (number, read) in stale {
        let versions = versions.of(read.key);
        // The initial state comes before all places.
        let source = read.source.and_then(|source| places[source.get() as usize]);
        let next = versions.partition_point(|&place| Some(OrderPlace::new(place)) <= source);
        let reader = places[number as usize].expect("a reader took place").get();
        if let Some(&overwrite) = versions.get(next)
            && overwrite != reader
            && seen.leads(reader, overwrite)
        {
            let (name, key) = (constraints.index(number), table.name(read.key));
            return Err(format!("op {name} sees a later version of key {key}"));
        }
    }
    Ok(())
}

impl DirectlySeen {
    /// Does the transaction at this place see the other one, in any number of steps? All steps lead to earlier places, so
    /// the walk stops at the other's.
    fn leads(&self, reader: u32, other: u32) -> bool {
        let mut reached = BTreeSet::from([reader]);
        while let Some(place) = reached.pop_last() {
            if place <= other {
                return place == other;
            }
            reached.extend(self.0.of(place));
        }
        false
    }
}
