//! Checks in windows, compared with checks of the whole history.

use crate::stores::{Store, any_case, essence, printed};
use seatrial_checker::{Validity, Verdict, certify};
use seatrial_cycles::Level;
use seatrial_farm::histories;
use seatrial_history::chunk::Assembly;
use seatrial_history::{
    ChunkSource, History, Key, Mop, Observed, Op, OpType, Process, SourceError, Take, Value,
};
use seatrial_inference::{ListAppend, Windows};
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, verify};
use std::fmt;

/// A history in chunks of a given length.
struct Cut<'a>(&'a History, usize);

impl ChunkSource for Cut<'_> {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
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

fn check_in_chunks(
    history: &History,
    level: Level,
    length: usize,
    windows: Windows,
) -> (Verdict, Option<Certificate>) {
    let checker = ListAppend::new(level).with_windows(windows);
    certify(&checker, &Cut(history, length)).unwrap()
}

/// A history that is checked in windows and as a whole.
struct WindowsCase {
    seed: u64,
    store: Store,
    level: Level,
    history: History,
    windows: Windows,
    /// Number of operations of a chunk.
    length: usize,
}

impl WindowsCase {
    /// Windows with a bound: the largest `transactions_min`, `idle_chunks` and length of a chunk.
    fn any(
        (seed, rng): (u64, &mut Rng),
        (store, history, level): (Store, History, Level),
        [transactions, idle, operations]: [usize; 3],
    ) -> WindowsCase {
        let windows = Windows {
            transactions_min: 1 + rng.index(transactions),
            idle_chunks: 1 + rng.index(idle) as u32,
            chunk_length_min: 1,
            is_bound: true,
        };
        let length = 1 + rng.index(operations);
        WindowsCase {
            seed,
            store,
            level,
            history,
            windows,
            length,
        }
    }

    fn whole(&self) -> Verdict {
        check_in_chunks(&self.history, self.level, 100, Windows::WHOLE).0
    }

    fn in_windows(&self) -> (Verdict, Option<Certificate>) {
        check_in_chunks(&self.history, self.level, self.length, self.windows)
    }

    /// The same without a bound: reused keys stay open, or join windows.
    fn unbound(&self) -> (Verdict, Option<Certificate>) {
        let is_bound = false;
        let windows = Windows {
            is_bound,
            ..self.windows
        };
        check_in_chunks(&self.history, self.level, self.length, windows)
    }
}

impl fmt::Display for WindowsCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WindowsCase {
            seed,
            store,
            level,
            windows,
            length,
            ..
        } = self;
        let text = printed(&self.history);
        write!(
            out,
            "seed {seed} {store:?} {level:?} {windows:?} {length}\n{text}"
        )
    }
}

/// Is the verdict unknown because a closed key was used again?
fn is_refused(verdict: &Verdict) -> bool {
    matches!(verdict.valid, Validity::Unknown(_)) && verdict.undecided.is_empty()
}

#[test]
fn cuts_change_nothing() {
    // Checked in windows: valid, invalid; refused; proven by an order.
    let (mut checked, mut refused, mut proven) = ([0, 0], 0, 0);
    let (mut parts, mut forgotten) = (0, 0);
    for seed in 0..histories(750) {
        let mut rng = Rng::from_seed(seed ^ 0x77d0);
        let any = any_case(seed, &mut rng);
        let case = WindowsCase::any((seed, &mut rng), any, [8, 4, 12]);
        let (whole, (cut, certificate)) = (case.whole(), case.in_windows());
        if is_refused(&cut) {
            let reason = cut.reason.as_deref().unwrap_or_default();
            assert!(reason.contains("used again"), "{reason}\n{case}");
            refused += 1;
            assert_eq!(essence(&case.unbound().0), essence(&whole), "{case}");
            continue;
        }
        assert_eq!(essence(&cut), essence(&whole), "{case}");
        // An unknown transaction may append to a closed key; reads of it are checked elsewhere.
        forgotten += u32::from(cut.undecided != whole.undecided);
        if cut.details.to_json()["windows"].as_u64() > Some(1) {
            parts += cut.details.to_json()["windows"].as_u64().unwrap();
            checked[usize::from(cut.valid == Validity::Invalid)] += 1;
        }
        if let Some(certificate) = certificate {
            assert_eq!(verify(&case.history, &certificate), Ok(()), "{case}");
            proven += u32::from(certificate.is_valid());
        }
    }
    assert!(
        u64::from(forgotten) <= histories(1_500) / 1_000,
        "{forgotten}"
    );
    println!("{checked:?} in {parts} windows, {refused} refused, {proven} proven by order");
    let enough = histories(1_500) / 20;
    assert!(checked.iter().all(|&count| count > enough), "{checked:?}");
    assert!(
        refused > 0 && u64::from(proven) > enough,
        "{refused} {proven}"
    );
}

/// A list that a read of this key may return at this index: the last list read, mostly with the later appends that took
/// place; sometimes fewer elements, or one that was never appended.
fn late_list(ops: &[Op], key: &Key, rng: &mut Rng) -> Vec<i64> {
    let mut longest: Vec<i64> = Vec::new();
    let (mut certain, mut unknown) = (Vec::new(), Vec::new());
    for op in ops.iter().filter(|op| !op.is_invoke()) {
        for mop in op.value.as_txn().unwrap_or_default() {
            match mop {
                Mop::Read {
                    key: other,
                    observed: Observed::List(list),
                } if op.is_ok() && other == key && list.len() > longest.len() => {
                    longest = list.to_vec();
                }
                Mop::Append {
                    key: other,
                    element,
                } if other == key && op.is_ok() => certain.push(*element),
                Mop::Append {
                    key: other,
                    element,
                } if other == key && op.is_info() => unknown.push(*element),
                _ => {}
            }
        }
    }
    if rng.chance(0.9) {
        longest.extend(
            certain
                .iter()
                .filter(|one| !longest.contains(one))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    if rng.chance(0.2) {
        longest.extend(
            unknown
                .iter()
                .filter(|one| !longest.contains(one))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    match rng.below(20) {
        0 => _ = longest.pop(),
        1 => longest.push(77),
        _ => {}
    }
    longest
}

/// Keys accessed by the first half of the operations, once per access.
fn early_keys(ops: &[Op]) -> Vec<Key> {
    let early = ops[..ops.len() / 2].iter();
    let touched = early.flat_map(|op| op.value.as_txn().unwrap_or_default());
    touched.map(|mop| mop.key().clone()).collect()
}

/// A transaction on earlier keys at this index: reads them, and sometimes `appends` the element.
fn late_mops(ops: &[Op], appends: Option<i64>, rng: &mut Rng) -> Vec<Mop> {
    let keys = early_keys(ops);
    let mut mops = Vec::new();
    for _ in 0..=rng.below(2) {
        let Some(key) = keys.get(rng.index(keys.len().max(1))) else {
            continue;
        };
        if mops.iter().any(|mop: &Mop| mop.key() == key) {
            continue;
        }
        let list = late_list(ops, key, rng);
        let observed = if list.is_empty() {
            Observed::Nil
        } else {
            Observed::List(list.into())
        };
        let append = appends.filter(|_| rng.chance(0.7));
        if append.is_none() || rng.chance(0.7) {
            let key = key.clone();
            mops.push(Mop::Read { key, observed });
        }
        let key = key.clone();
        mops.extend(append.map(|element| Mop::Append { key, element }));
    }
    mops
}

/// The same history with transactions that read earlier keys, and may append to them.
fn with_late_uses(history: &History, appends: bool, rng: &mut Rng) -> History {
    let mut ops: Vec<Op> = history.iter().cloned().collect();
    let count = if appends { 6 } else { 3 };
    let mut places: Vec<usize> = (0..=rng.below(count))
        .map(|_| match rng.below(3) {
            0 | 1 if appends => ops.len() / 3 + rng.index(2 * ops.len() / 3 + 1),
            0 => ops.len() / 2 + rng.index(ops.len() / 2 + 1),
            _ => ops.len(),
        })
        .collect();
    if appends {
        places.sort_unstable();
    }
    for (late, place) in (0..).zip(places) {
        let at = (place + 2 * usize::from(appends) * late as usize).min(ops.len());
        let element = appends.then_some(900 + late);
        let done = late_mops(&ops[..at], element, rng);
        let asked = done.iter().map(|mop| match mop {
            Mop::Read { key, .. } => Mop::Read {
                key: key.clone(),
                observed: Observed::Nil,
            },
            other => other.clone(),
        });
        let process = Process::Client(1_000 + late.cast_unsigned());
        let op = Op::invoke(process, "txn", Value::Txn(asked.collect()));
        let done = match rng.below(16) {
            0 if appends => op.complete(OpType::Info, op.value.clone()),
            1 if appends => op.complete(OpType::Fail, op.value.clone()),
            _ => op.complete(OpType::Ok, Value::Txn(done.into())),
        };
        // It completes later.
        let end = if appends && rng.chance(0.2) {
            at + rng.index(ops.len() - at + 1)
        } else {
            at
        };
        ops.insert(end, done);
        ops.insert(at, op);
    }
    History::from_unindexed(ops)
}

/// Compares checks of histories with late uses in windows, in joined windows, and as a whole. Returns the numbers of valid and
/// invalid ones checked in windows, of refused ones, of those in windows smaller than the whole, and of proven ones.
fn compare_late_uses(appends: bool, count: u64) -> ([u64; 2], u64, u64, u64) {
    let (mut checked, mut refused, mut proven, mut smaller) = ([0, 0], 0, 0, 0);
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed ^ 0x1a7e);
        let (store, history, level) = any_case(seed, &mut rng);
        let any = (store, with_late_uses(&history, appends, &mut rng), level);
        let case = WindowsCase::any((seed, &mut rng), any, [4, 2, 6]);
        let (whole, (cut, certificate)) = (case.whole(), case.in_windows());
        if is_refused(&cut) {
            refused += 1;
            // The windows are joined from the first to the last use of such a key.
            let (again, certificate) = case.unbound();
            assert_eq!(essence(&again), essence(&whole), "{case}");
            if let Some(certificate) = certificate {
                assert_eq!(verify(&case.history, &certificate), Ok(()), "{case}");
            }
            let largest = |verdict: &Verdict| verdict.details.to_json()["largest_window"].as_u64();
            smaller += u64::from(largest(&again) < largest(&whole));
            continue;
        }
        assert_eq!(essence(&cut), essence(&whole), "{case}");
        if cut.details.to_json()["late_keys"].as_u64() > Some(0) {
            checked[usize::from(cut.valid == Validity::Invalid)] += 1;
            if let Some(certificate) = certificate {
                assert_eq!(verify(&case.history, &certificate), Ok(()), "{case}");
                proven += u64::from(certificate.is_valid());
            }
        }
    }
    println!("{checked:?} with late keys, {refused} joined, {smaller} in part, {proven} proven");
    (checked, refused, smaller, proven)
}

#[test]
fn late_reads_change_nothing() {
    let count = histories(6_000);
    let (checked, refused, smaller, proven) = compare_late_uses(false, count);
    let enough = count / 30;
    assert!(checked.iter().all(|&count| count > enough), "{checked:?}");
    assert!(refused > enough && proven > enough, "{refused} {proven}");
    assert!(smaller > enough, "{smaller}");
}

#[test]
fn late_appends_change_nothing() {
    let count = histories(3_000);
    let (checked, refused, smaller, proven) = compare_late_uses(true, count);
    let enough = count / 30;
    assert!(checked.iter().all(|&count| count > enough), "{checked:?}");
    assert!(refused > enough && proven > enough, "{refused} {proven}");
    assert!(smaller > enough, "{smaller}");
}

/// Transactions on one key after another, each key used by two clients at a time.
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
        let (verdict, certificate) = check_in_chunks(&history, level, 40, windows);
        assert_eq!(verdict.valid, Validity::Valid);
        assert_eq!(verdict.details.to_json()["transactions"], 50 * keys);
        // Two chunks of idleness are 40 transactions; one key is 50.
        let largest = verdict.details.to_json()["largest_window"]
            .as_u64()
            .unwrap();
        assert!(largest <= 400, "{largest} of {}", 50 * keys);
        assert_eq!(verify(&history, &certificate.unwrap()), Ok(()));
    }
}

#[test]
fn late_reads_do_not_join_windows() {
    let windows = Windows {
        transactions_min: 200,
        idle_chunks: 2,
        chunk_length_min: 1,
        is_bound: true,
    };
    let judge_with = |list: Vec<i64>| {
        let mut ops: Vec<Op> = long_history(160, 50).iter().cloned().collect();
        let read = |observed| {
            let key = Key::Int(3);
            Value::Txn([Mop::Read { key, observed }].into())
        };
        let op = Op::invoke(Process::Client(7), "txn", read(Observed::Nil));
        let done = op.complete(OpType::Ok, read(Observed::List(list.into())));
        ops.extend([op, done]);
        let history = History::from_unindexed(ops);
        let (verdict, certificate) =
            check_in_chunks(&history, Level::StrictSerializable, 40, windows);
        (history, verdict, certificate)
    };
    let (history, verdict, certificate) = judge_with((1..=50).collect());
    assert_eq!(verdict.valid, Validity::Valid, "{:?}", verdict.reason);
    assert_eq!(verdict.details.to_json()["late_keys"], 1);
    let largest = verdict.details.to_json()["largest_window"]
        .as_u64()
        .unwrap();
    assert!(largest <= 400, "{largest}");
    assert_eq!(verify(&history, &certificate.unwrap()), Ok(()));
    // A stale read needs freed state, so its key stays open until then.
    let (_, verdict, _) = judge_with((1..=49).collect());
    assert_eq!(verdict.valid, Validity::Invalid);
    let largest = verdict.details.to_json()["largest_window"]
        .as_u64()
        .unwrap();
    assert!(largest > 7_000, "{largest}");
}

#[test]
fn late_appends_do_not_join_windows() {
    let windows = Windows {
        transactions_min: 200,
        idle_chunks: 2,
        chunk_length_min: 1,
        is_bound: true,
    };
    let judge_with = |missed: usize| {
        let all: Vec<Op> = long_history(160, 50).iter().cloned().collect();
        let mut ops = Vec::new();
        let mut list = Vec::new();
        // Sometimes a transaction reads a key and appends to it.
        for (element, part) in (1..).zip(all.chunks(2_000)) {
            ops.extend_from_slice(part);
            let key = Key::Text("rare".into());
            let seen: Vec<i64> = list
                .iter()
                .take(list.len().max(missed) - missed)
                .copied()
                .collect();
            let value = |observed| {
                let read = Mop::Read {
                    key: key.clone(),
                    observed,
                };
                let key = key.clone();
                Value::Txn([read, Mop::Append { key, element }].into())
            };
            let op = Op::invoke(Process::Client(7), "txn", value(Observed::Nil));
            let done = op.complete(OpType::Ok, value(Observed::List(seen.into())));
            ops.extend([op, done]);
            list.push(element);
        }
        let history = History::from_unindexed(ops);
        let (verdict, certificate) =
            check_in_chunks(&history, Level::StrictSerializable, 40, windows);
        (history, verdict, certificate)
    };
    let (history, verdict, certificate) = judge_with(0);
    assert_eq!(verdict.valid, Validity::Valid, "{:?}", verdict.reason);
    assert_eq!(verdict.details.to_json()["late_keys"], 1);
    assert_eq!(verdict.details.to_json()["keys"], 161);
    let largest = verdict.details.to_json()["largest_window"]
        .as_u64()
        .unwrap();
    assert!(largest <= 400, "{largest}");
    assert_eq!(verify(&history, &certificate.unwrap()), Ok(()));
    // Lost updates need freed state.
    let (_, verdict, _) = judge_with(1);
    assert!(verdict.reason.unwrap().contains("used again"));
}
