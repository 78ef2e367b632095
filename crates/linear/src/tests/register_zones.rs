//! Zones against all orders, and against the search.

use crate::linearization_search::{Bound, Search, SearchResult};
use crate::model::{Action, Model};
use crate::object::{NEVER, ObjectOperation, ValueMarks};
use crate::values::{NumberedValues, ObjectStates, StateId};
use seatrial_machine::Rng;
use seatrial_monitors::{RegisterZones, ZoneVerdict};
use std::collections::BTreeSet;

/// Is there any order? Tries all of them; what was tried before is not tried again.
pub(crate) fn has_order(entries: &[ObjectOperation]) -> bool {
    let mut seen = BTreeSet::new();
    let mut left = vec![(0u64, 0)];
    while let Some((done, state)) = left.pop() {
        let is_done = |number: usize| done >> number & 1 == 1;
        let mut is_complete = true;
        for (number, entry) in entries.iter().enumerate() {
            if is_done(number) {
                continue;
            }
            is_complete &= entry.ret == NEVER;
            let blocked = entries.iter().enumerate();
            let mut blocked = blocked.filter(|&(other, _)| !is_done(other));
            if blocked.any(|(_, other)| other.ret < entry.call) {
                continue;
            }
            let next = match entry.action {
                Action::Read(value) => (state == value).then_some(state),
                Action::Write(value) => Some(value),
                Action::Cas(from, to) => (state == from).then_some(to),
                _ => None,
            };
            if let Some(next) = next
                && seen.insert((done | 1 << number, next))
            {
                left.push((done | 1 << number, next));
            }
        }
        if is_complete {
            return true;
        }
    }
    false
}

/// Operations of a register whose values are written once, by a few clients; some are never completed, and some results are
/// changed.
fn random_entries(rng: &mut Rng, length: usize, clients: usize) -> Vec<ObjectOperation> {
    let spoil = *rng.pick(&[0.0, 0.1, 0.5]);
    let pending = *rng.pick(&[0.0, 0.2]);
    let mut entries: Vec<ObjectOperation> = Vec::new();
    let mut open: Vec<(usize, bool)> = Vec::new();
    let (mut state, mut values, mut time) = (0, 1, 0);
    loop {
        time += 1;
        if entries.len() < length && open.len() < clients && rng.chance(0.5) {
            let action = match rng.below(3) {
                0 => Action::Read(NEVER),
                1 => Action::Write(values),
                _ => Action::Cas(NEVER, values),
            };
            values += u32::from(!matches!(action, Action::Read(_)));
            open.push((entries.len(), false));
            entries.push(ObjectOperation {
                action,
                call: time,
                ret: NEVER,
            });
        } else if open.is_empty() {
            if entries.len() == length {
                break;
            }
        } else {
            let at = rng.index(open.len());
            let (number, took_effect) = open[at];
            if !took_effect {
                let spoilt = rng
                    .chance(spoil)
                    .then(|| rng.below(u64::from(values)) as StateId);
                let from = spoilt.unwrap_or(state);
                let entry = &mut entries[number];
                (entry.action, state) = match entry.action {
                    Action::Write(to) => (Action::Write(to), to),
                    Action::Cas(_, to) => (Action::Cas(from, to), to),
                    _ => (Action::Read(from), state),
                };
                open[at].1 = true;
                continue;
            }
            open.swap_remove(at);
            if !rng.chance(pending) {
                entries[number].ret = time;
            }
        }
    }
    // A read of unknown result is no operation.
    let is_known = |entry: &ObjectOperation| match entry.action {
        Action::Read(_) => entry.ret != NEVER,
        _ => true,
    };
    entries.retain(is_known);
    entries
}

#[test]
fn zones_agree_with_all_orders() {
    let mut zones = RegisterZones::new(64);
    let mut marks = ValueMarks::new(64);
    let mut counts = [0u64; 2];
    let all = seatrial_farm::histories(60_000);
    for seed in 0..all {
        let mut rng = Rng::from_seed(seed);
        let (length, clients) = (1 + rng.below(9), 1 + rng.below(5));
        let entries = random_entries(&mut rng, length as usize, clients as usize);
        let expected = has_order(&entries);
        let mut kept = entries.clone();
        marks.drop_unseen(&mut kept);
        assert_eq!(has_order(&kept), expected, "seed {seed}: {entries:?}");
        match zones.check(&kept) {
            ZoneVerdict::Linearizable => assert!(expected, "seed {seed}: {kept:?}"),
            ZoneVerdict::Refuted(core) => {
                assert!(!expected, "seed {seed}: {kept:?}");
                let core = core.iter().map(|&entry| kept[entry as usize]);
                let core: Vec<_> = core.collect();
                assert!(!has_order(&core), "seed {seed}: {core:?} of {kept:?}");
            }
            ZoneVerdict::NotApplicable(value) => panic!("seed {seed}: {value:?}"),
        }
        counts[usize::from(expected)] += 1;
    }
    assert!(counts.iter().all(|&count| count > all / 6), "{counts:?}");
}

#[test]
fn zones_agree_with_the_search_on_longer_histories() {
    let mut zones = RegisterZones::new(512);
    let mut marks = ValueMarks::new(512);
    let mut table = NumberedValues::new(Model::CasRegister);
    for integer in 0..512 {
        table.integer(integer);
    }
    let mut counts = [0u64; 2];
    let all = seatrial_farm::histories(3_000);
    for seed in 0..all {
        let mut rng = Rng::from_seed(seed ^ 0x5eed);
        let mut entries = random_entries(&mut rng, 60, 5);
        marks.drop_unseen(&mut entries);
        let mut states = ObjectStates::new(Model::CasRegister, &table);
        let (result, _) = Search::new(&entries, &mut states, Bound::default()).run();
        let found = zones.check(&entries);
        let expected = result == SearchResult::Linearizable;
        assert_eq!(found == ZoneVerdict::Linearizable, expected, "seed {seed}");
        counts[usize::from(expected)] += 1;
    }
    assert!(counts.iter().all(|&count| count > all / 10), "{counts:?}");
}

#[test]
fn rings_of_compare_and_sets_and_values_written_twice() {
    let cas = |from, to, call| ObjectOperation {
        action: Action::Cas(from, to),
        call,
        ret: call + 10,
    };
    let mut zones = RegisterZones::new(8);
    let ring = [cas(0, 3, 1), cas(1, 2, 2), cas(2, 1, 3)];
    assert_eq!(zones.check(&ring), ZoneVerdict::Refuted(vec![1, 2]));
    assert_eq!(zones.check(&ring[..1]), ZoneVerdict::Linearizable);
    let twice = [cas(0, 3, 1), cas(3, 4, 2), cas(4, 3, 3)];
    assert_eq!(zones.check(&twice), ZoneVerdict::NotApplicable(Some(3)));
    let initial = [cas(0, 3, 1), cas(3, 0, 2)];
    assert_eq!(zones.check(&initial), ZoneVerdict::NotApplicable(Some(0)));
    let nothing = [cas(0, 3, 1), cas(5, 6, 2)];
    assert_eq!(zones.check(&nothing), ZoneVerdict::Refuted(vec![1]));
}

#[test]
fn the_first_operation_of_a_history_comes_after_the_initial_value() {
    let operation = |action, call, ret| ObjectOperation { action, call, ret };
    let late = [
        operation(Action::Write(1), 0, 1),
        operation(Action::Read(0), 2, 3),
    ];
    assert!(!has_order(&late));
    assert_eq!(
        RegisterZones::new(2).check(&late),
        ZoneVerdict::Refuted(vec![0, 1])
    );
}
