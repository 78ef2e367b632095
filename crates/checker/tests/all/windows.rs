//! Judging piece by piece against judging at once.

use crate::transactions::{STORES, Store, histories, printed, rotating_history};
use seatrial_checker::txn::{Level, ListAppend, Rounds, Windows};
use seatrial_checker::{Certificate, Validity, Verdict, verify};
use seatrial_history::chunk::{Assembly, Unstorable};
use seatrial_history::{Chunk, History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::ops::ControlFlow;

/// A history in chunks of so many operations.
struct Cut<'a>(&'a History, usize);

impl Rounds for Cut<'_> {
    type Error = Unstorable;

    fn round(&self, take: &mut dyn FnMut(&Chunk) -> ControlFlow<()>) -> Result<(), Unstorable> {
        let mut assembly = Assembly::new(self.1);
        for op in self.0 {
            if let Some(chunk) = assembly.push(op)?
                && take(chunk).is_break()
            {
                return Ok(());
            }
        }
        if let Some(chunk) = assembly.rest() {
            let _ = take(chunk);
        }
        Ok(())
    }
}

fn judge(
    history: &History,
    level: Level,
    length: usize,
    windows: Windows,
) -> (Verdict, Option<Certificate>) {
    let checker = ListAppend::new(level).with_windows(windows);
    checker.certify_rounds(&Cut(history, length), true).unwrap()
}

/// How large the largest components are.
fn sizes(verdict: &Verdict) -> Vec<u64> {
    let components = verdict.components.iter();
    components.map(|component| component.transactions).collect()
}

/// What must be the same however a history is cut.
pub(crate) fn essence(verdict: &Verdict) -> String {
    // What is left open may be an append to a key that is closed in one of them.
    let mut verdict = verdict.clone();
    verdict.accept_undecided();
    let mut details = verdict.details.clone();
    // Barriers of real time, and edges out of what is gone, depend on the cuts, and what holds on what is left open.
    for field in ["windows", "largest_window", "edges", "holds"] {
        details[field] = 0.into();
    }
    let mut findings: Vec<_> = verdict.findings.iter().collect();
    findings.sort_by_key(|finding| finding.anomaly);
    let counts = findings.chunk_by(|one, other| one.anomaly == other.anomaly);
    let counts: Vec<_> = counts
        .map(|group| (group[0].anomaly, group.len()))
        .collect();
    format!(
        "{:?} {:?} {:?} {:?} {details} {counts:?} {:?}",
        verdict.valid,
        verdict.anomalies,
        verdict.not,
        verdict.also_not,
        sizes(&verdict)
    )
}

/// The history of a random store whose keys come and go, and a level to judge it by.
pub(crate) fn any_case(seed: u64, rng: &mut Rng) -> (Store, History, Level) {
    let store = STORES[seed as usize % STORES.len()];
    let rotation = 2 + rng.index(8);
    let length = 10 + rng.below(60);
    let history = rotating_history(store, length, rotation, rng);
    let level = if rng.chance(0.4) {
        Level::StrictSerializable
    } else {
        let levels: Vec<_> = Level::all().collect();
        *rng.pick(&levels)
    };
    (store, history, level)
}

#[test]
fn cuts_change_nothing() {
    // Cut and not refused: valid, invalid; refused; proven by order.
    let (mut judged, mut refused, mut proven) = ([0, 0], 0, 0);
    let (mut parts, mut forgotten) = (0, 0);
    for seed in 0..histories(1_500) {
        let mut rng = Rng::from_seed(seed ^ 0x77d0);
        let (store, history, level) = any_case(seed, &mut rng);
        let windows = Windows {
            transactions_min: 1 + rng.index(8),
            idle_chunks: 1 + rng.index(4) as u32,
            chunk_length_min: 1,
            is_bound: true,
        };
        let length = 1 + rng.index(12);
        let (whole, _) = judge(&history, level, 100, Windows::WHOLE);
        let (cut, certificate) = judge(&history, level, length, windows);
        let context = || {
            let text = printed(&history);
            format!("seed {seed} {store:?} {level:?} {windows:?} {length}\n{text}")
        };
        if matches!(cut.valid, Validity::Unknown(_)) && cut.undecided.is_empty() {
            let reason = cut.reason.as_deref().unwrap_or_default();
            assert!(reason.contains("named again"), "{reason}\n{}", context());
            refused += 1;
            // Without a bound it is judged as a whole.
            let is_bound = false;
            let windows = Windows {
                is_bound,
                ..windows
            };
            let (again, _) = judge(&history, level, length, windows);
            assert_eq!(essence(&again), essence(&whole), "{}", context());
            continue;
        }
        assert_eq!(essence(&cut), essence(&whole), "{}", context());
        // An unknown transaction may append to a key that is closed; what comes of it is seen elsewhere.
        forgotten += u32::from(cut.undecided != whole.undecided);
        if cut.details["windows"].as_u64() > Some(1) {
            parts += cut.details["windows"].as_u64().unwrap();
            judged[usize::from(cut.valid == Validity::Invalid)] += 1;
        }
        if let Some(certificate) = certificate {
            assert_eq!(verify(&history, &certificate), Ok(()), "{}", context());
            proven += u32::from(certificate.is_valid());
        }
    }
    assert!(
        u64::from(forgotten) <= histories(1_500) / 1_000,
        "{forgotten}"
    );
    println!("{judged:?} in {parts} windows, {refused} refused, {proven} proven by order");
    let enough = histories(1_500) / 20;
    assert!(judged.iter().all(|&count| count > enough), "{judged:?}");
    assert!(
        refused > enough && u64::from(proven) > enough,
        "{refused} {proven}"
    );
}

/// Transactions of one key after another, each run by two clients at a time.
fn long_history(keys: i64, appends: i64) -> History {
    let mut ops = Vec::new();
    for key in 0..keys {
        for element in 1..=appends {
            let name = Key::Int(key);
            let append = Mop::Append {
                key: name.clone(),
                element,
            };
            let read = |observed| Mop::Read {
                key: name.clone(),
                observed,
            };
            let value = |observed| Value::Txn([append.clone(), read(observed)].into());
            let process = Process::Client(element as u64 % 2);
            let op = Op::invoke(process, "txn", value(Observed::Nil));
            ops.push(op.clone());
            let seen = Observed::List((1..=element).collect());
            ops.push(op.complete(OpType::Ok, value(seen)));
        }
    }
    History::from_unindexed(ops)
}

#[test]
fn windows_stay_small() {
    let windows = Windows {
        transactions_min: 200,
        idle_chunks: 2,
        chunk_length_min: 1,
        is_bound: true,
    };
    for (keys, level) in [
        (40, Level::StrictSerializable),
        (160, Level::StrictSerializable),
        (160, Level::Serializable),
        (160, Level::SnapshotIsolation),
    ] {
        let history = long_history(keys, 50);
        let (verdict, certificate) = judge(&history, level, 40, windows);
        assert_eq!(verdict.valid, Validity::Valid);
        assert_eq!(verdict.details["transactions"], 50 * keys);
        // Two chunks of idleness are 40 transactions; one key is 50.
        let largest = verdict.details["largest_window"].as_u64().unwrap();
        assert!(largest <= 400, "{largest} of {}", 50 * keys);
        assert_eq!(verify(&history, &certificate.unwrap()), Ok(()));
    }
}
