//! List-append against a brute-force twin, on histories of a simulated store with random isolation bugs.

use crate::stores::{STORES, State, Store, printed, random_history};
use seatrial_checker::{Checker, Validity, certify};
use seatrial_cycles::Level;
use seatrial_farm::{histories, least};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_inference::{ListAppend, RwRegister};
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, Proof, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A transaction as the twin sees it.
struct Simple<'a> {
    mops: &'a [Mop],
    begin: usize,
    /// When it certainly had taken place.
    end: Option<usize>,
    process: Process,
}

fn simple(history: &History) -> Vec<Simple<'_>> {
    let mut all = Vec::new();
    for (begin, op) in history.iter().enumerate().filter(|(_, op)| op.is_invoke()) {
        let end = history.pair(begin);
        let completion = end.map(|end| &history.ops()[end]);
        if completion.is_some_and(Op::is_fail) {
            continue;
        }
        let ok = completion.filter(|op| op.is_ok());
        all.push(Simple {
            mops: ok.unwrap_or(op).value.as_txn().unwrap(),
            begin,
            end: ok.and(end),
            process: op.process,
        });
    }
    all
}

/// Is there a serial order? Tries all of them; unknown transactions may be left out.
fn brute_force(all: &[Simple<'_>], level: Level, placed: u32, state: &State) -> bool {
    let is_left = |number: usize| (placed >> number) & 1 == 0;
    if (0..all.len()).all(|number| !is_left(number) || all[number].end.is_none()) {
        return true;
    }
    for number in 0..all.len() {
        let one = &all[number];
        let must_wait = |other: usize| {
            let before = all[other].end.is_some_and(|end| end < one.begin);
            let related = match level {
                Level::StrictSerializable => true,
                Level::StrongSessionSerializable => all[other].process == one.process,
                _ => false,
            };
            is_left(other) && before && related
        };
        if !is_left(number) || (0..all.len()).any(must_wait) {
            continue;
        }
        let next = apply(one, state);
        if next.is_some_and(|next| brute_force(all, level, placed | 1 << number, &next)) {
            return true;
        }
    }
    false
}

/// The state after a transaction; `None` when its reads are not those of this state.
fn apply(one: &Simple<'_>, state: &State) -> Option<State> {
    let mut next = state.clone();
    for mop in one.mops {
        let Key::Int(key) = *mop.key() else {
            return None;
        };
        let list = next.entry(key).or_default();
        match mop {
            Mop::Append { element, .. } | Mop::Write { value: element, .. } => list.push(*element),
            Mop::Read { observed, .. } => match observed {
                _ if one.end.is_none() => {}
                Observed::List(seen) if seen[..] == list[..] => {}
                Observed::Register(seen) if Some(seen) == list.last() => {}
                Observed::Nil if list.is_empty() => {}
                _ => return None,
            },
        }
    }
    Some(next)
}

/// Was every append that took place read, in orders that agree?
fn is_fully_observed(all: &[Simple<'_>]) -> bool {
    let mut longest: BTreeMap<&Key, &[i64]> = BTreeMap::new();
    let reads = all
        .iter()
        .filter(|one| one.end.is_some())
        .flat_map(|one| one.mops);
    let reads = reads.filter_map(|mop| match mop {
        Mop::Read {
            key,
            observed: Observed::List(seen),
        } => Some((key, &seen[..])),
        _ => None,
    });
    for (key, seen) in reads {
        let known = longest.entry(key).or_insert(seen);
        if seen.len() > known.len() {
            *known = seen;
        }
    }
    let is_seen = |mop: &Mop| match mop {
        Mop::Append { key, element } => longest.get(key).is_some_and(|list| list.contains(element)),
        _ => true,
    };
    all.iter().all(|one| {
        let appends = one
            .mops
            .iter()
            .filter(|mop| matches!(mop, Mop::Append { .. }));
        let seen = appends.clone().filter(|mop| is_seen(mop)).count();
        seen == appends.count() || seen == 0 && one.end.is_none()
    })
}

#[test]
fn agrees_with_all_serial_orders_on_small_histories() {
    let levels = [
        Level::StrictSerializable,
        Level::StrongSessionSerializable,
        Level::Serializable,
    ];
    // Per level: serializable, not, not and fully observed.
    let mut seen = [[0; 3]; 3];
    for seed in 0..histories(24_000) {
        let mut rng = Rng::from_seed(seed);
        let store = STORES[seed as usize % STORES.len()];
        let history = random_history(store, 5, &mut rng);
        let all = simple(&history);
        for (number, level) in levels.into_iter().enumerate() {
            let expected = brute_force(&all, level, 0, &State::new());
            let verdict = ListAppend::new(level).check(&history);
            let context = || {
                let text = verdict
                    .findings
                    .first()
                    .map(|finding| finding.summary.clone());
                format!(
                    "seed {seed} {store:?} {level:?}\n{}{text:?}",
                    printed(&history)
                )
            };
            let observed = is_fully_observed(&all);
            if expected {
                assert_eq!(verdict.valid, Validity::Valid, "false alarm: {}", context());
            } else if observed {
                assert_eq!(verdict.valid, Validity::Invalid, "missed: {}", context());
            }
            seen[number][0] += u64::from(expected);
            seen[number][1] += u64::from(!expected);
            seen[number][2] += u64::from(!expected && observed);
            assert!(store != Store::Serial || expected, "{}", context());
        }
    }
    // All outcomes must be common, or the test says little.
    assert!(
        seen.iter().flatten().all(|&count| count > least(1_000)),
        "{seen:?}"
    );
}

/// The same history with registers: an append is a write, a read sees the last element.
pub(crate) fn registers(history: &History) -> History {
    let convert = |mop: &Mop| match mop {
        Mop::Append { key, element } => Mop::Write {
            key: key.clone(),
            value: *element,
        },
        Mop::Read {
            key,
            observed: Observed::List(seen),
        } => Mop::Read {
            key: key.clone(),
            observed: seen
                .last()
                .map_or(Observed::Nil, |last| Observed::Register(*last)),
        },
        other => other.clone(),
    };
    let ops = history.iter().map(|op| {
        let mops = op.value.as_txn().unwrap().iter().map(convert);
        let value = Value::Txn(mops.collect());
        Op {
            value,
            ..op.clone()
        }
    });
    History::from_ops(ops.collect())
}

#[test]
fn registers_never_raise_a_false_alarm() {
    let levels = [Level::StrictSerializable, Level::Serializable];
    // Per level: serializable, not, found.
    let mut seen = [[0; 3]; 2];
    for seed in 0..histories(12_000) {
        let mut rng = Rng::from_seed(seed ^ 0x5eed);
        let store = STORES[seed as usize % STORES.len()];
        let history = registers(&random_history(store, 5, &mut rng));
        let all = simple(&history);
        for (number, level) in levels.into_iter().enumerate() {
            let expected = brute_force(&all, level, 0, &State::new());
            let verdict = RwRegister::new(level).check(&history);
            let text = verdict
                .findings
                .first()
                .map(|finding| finding.summary.as_str());
            let text = format!("{}{}", printed(&history), text.unwrap_or_default());
            if expected {
                assert_eq!(
                    verdict.valid,
                    Validity::Valid,
                    "seed {seed} {level:?}\n{text}"
                );
            }
            seen[number][0] += u64::from(expected);
            seen[number][1] += u64::from(!expected);
            seen[number][2] += u64::from(verdict.valid == Validity::Invalid);
        }
    }
    let enough = least(300);
    assert!(
        seen.iter().flatten().all(|&count| count > enough),
        "{seen:?}"
    );
}

#[test]
fn stores_keep_the_level_that_they_promise() {
    let promises = [
        (Store::Serial, Level::StrictSerializable),
        (Store::Snapshot, Level::StrongSnapshotIsolation),
        (Store::StaleSnapshot, Level::SnapshotIsolation),
        (Store::ReadCommitted, Level::StrongReadCommitted),
        (Store::ReadUncommitted, Level::ReadUncommitted),
    ];
    let mut broken = [0; 5];
    for seed in 0..4_000_u64 {
        let mut rng = Rng::from_seed(seed ^ 0xabcd);
        let (store, level) = promises[seed as usize % promises.len()];
        let history = random_history(store, 40, &mut rng);
        let verdict = ListAppend::new(level).check(&history);
        let text = verdict
            .findings
            .first()
            .map(|finding| finding.summary.as_str());
        let text = text.unwrap_or_default();
        let history = printed(&history);
        assert_eq!(
            verdict.valid,
            Validity::Valid,
            "seed {seed} {store:?}\n{history}{text}"
        );
    }
    // And they break the next one.
    let stronger = [
        (Store::Snapshot, Level::Serializable),
        (Store::StaleSnapshot, Level::StrongSnapshotIsolation),
        (Store::ReadCommitted, Level::ConsistentView),
        (Store::ReadUncommitted, Level::ReadCommitted),
        (Store::LostUpdates, Level::CursorStability),
    ];
    for seed in 0..2_000_u64 {
        let mut rng = Rng::from_seed(seed ^ 0xdcba);
        let number = seed as usize % stronger.len();
        let history = random_history(stronger[number].0, 40, &mut rng);
        let verdict = ListAppend::new(stronger[number].1).check(&history);
        broken[number] += u32::from(verdict.valid == Validity::Invalid);
    }
    assert!(broken.iter().all(|&count| count > 50), "{broken:?}");
}

/// A certificate that was tampered with.
fn tampered(certificate: &Certificate, rng: &mut Rng) -> Certificate {
    let mut other = certificate.clone();
    match &mut other.proof {
        Proof::Serial(order) | Proof::Snapshots(order) | Proof::Commits(order) => {
            let at = rng.index(order.len());
            order.remove(at);
        }
        Proof::Findings(findings) => {
            let finding = rng.index(findings.len());
            let finding = &mut findings[finding];
            finding.anomaly = if finding.anomaly == "G1a" {
                "G1b"
            } else {
                "G1a"
            }
            .into();
            let operations = finding.operations.clone();
            finding.operations = operations.into_iter().rev().collect();
            finding.steps.clear();
        }
        // As few as any that cannot be explained: without them nothing is said.
        Proof::Core(core) => core.clear(),
        _ => panic!("of registers"),
    }
    other
}

/// A certificate that was tampered with does not hold. (What is unknown may be left out: it may have had no reader.)
fn refuse_tampered(history: &History, certificate: &Certificate, rng: &mut Rng) {
    let unknown = |place: &u64| {
        let completion = history.completion(*place as usize);
        completion.is_none_or(|op| op.kind == OpType::Info)
    };
    let excused = match &certificate.proof {
        Proof::Serial(order) | Proof::Snapshots(order) | Proof::Commits(order) => {
            order.is_empty() || order.iter().any(unknown)
        }
        _ => false,
    };
    if !excused {
        let tampered = tampered(certificate, rng);
        let answer = verify(history, &tampered);
        assert!(answer.is_err(), "{tampered:?}\n{}", printed(history));
    }
}

#[test]
fn verdicts_come_with_certificates_that_hold() {
    let with_orders = [
        Level::ReadUncommitted,
        Level::ReadCommitted,
        Level::StrongSessionReadCommitted,
        Level::StrongReadCommitted,
        Level::SnapshotIsolation,
        Level::StrongSessionSnapshotIsolation,
        Level::StrongSnapshotIsolation,
        Level::Serializable,
        Level::StrongSessionSerializable,
        Level::StrictSerializable,
    ];
    let levels: Vec<_> = Level::all().collect();
    let mut verified: BTreeMap<(Level, bool), u64> = BTreeMap::new();
    for seed in 0..histories(16_000) {
        let mut rng = Rng::from_seed(seed ^ 0xce27);
        let store = STORES[seed as usize % STORES.len()];
        let length = 2 + rng.below(7);
        let history = Arc::new(random_history(store, length, &mut rng));
        let level = *rng.pick(&levels);
        let (verdict, certificate) = certify(&ListAppend::new(level), history.as_ref()).unwrap();
        let context = || {
            let found = verdict.findings.iter().map(|one| one.summary.as_str());
            let found: Vec<_> = found.collect();
            format!(
                "seed {seed} {store:?} {level:?} {}\n{certificate:?}\n{found:#?}",
                printed(&history)
            )
        };
        let Some(certificate) = &certificate else {
            let figures = verdict.details.dependencies();
            let tolerates =
                figures.is_some_and(|figures| figures.tolerated.contains_key("incompatible-order"));
            let excused = tolerates || !with_orders.contains(&level);
            assert!(
                excused && verdict.valid != Validity::Invalid,
                "{}",
                context()
            );
            continue;
        };
        assert_eq!(certificate.is_valid(), verdict.valid == Validity::Valid);
        let read = Certificate::from_json(&certificate.to_json()).unwrap();
        assert_eq!(verify(&history, &read), Ok(()), "{}", context());
        *verified.entry((level, certificate.is_valid())).or_default() += 1;
        refuse_tampered(&history, certificate, &mut rng);
    }
    for level in with_orders {
        for is_valid in [true, false] {
            let count = verified.get(&(level, is_valid)).copied().unwrap_or(0);
            // Next to nothing violates the weakest level.
            let expected = least(if is_valid { 50 } else { 1 });
            assert!(count >= expected, "{level:?} {is_valid}: {count}");
        }
    }
}
