//! Lists against all orders of small histories: verdicts, certificates, and certificates that were forged.

use crate::stores::{STORES, printed, random_history};
use seatrial_checker::{Validity, Verdict, certify};
use seatrial_cycles::Level;
use seatrial_farm::{histories, least};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_inference::ListAppend;
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, CycleEdge, Evidence, Proof, Unproven, verify};
use std::collections::{BTreeMap, BTreeSet};

/// Committed lists by key.
type State = BTreeMap<i64, Vec<i64>>;

/// What an order of transactions must follow besides what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Follows {
    Nothing,
    Sessions,
    Time,
}

/// A transaction that may have taken place.
struct Transaction {
    mops: Vec<Mop>,
    process: Process,
    begin: usize,
    /// Where it had succeeded.
    end: Option<usize>,
}

impl Transaction {
    fn keys(&self) -> BTreeSet<i64> {
        let appends = self.mops.iter().filter_map(|mop| match mop {
            Mop::Append { key, .. } => Some(integer(key)),
            _ => None,
        });
        appends.collect()
    }

    /// Does it see these lists, with what it appended itself?
    fn sees(&self, state: &State) -> bool {
        let mut own: State = BTreeMap::new();
        self.mops.iter().all(|mop| match mop {
            Mop::Append { key, element } => {
                own.entry(integer(key)).or_default().push(*element);
                true
            }
            Mop::Read { key, observed } => {
                let key = integer(key);
                let parts = [state, &own].map(|lists| lists.get(&key).cloned().unwrap_or_default());
                let Observed::List(seen) = observed else {
                    return self.end.is_none();
                };
                self.end.is_none() || seen[..] == parts.concat()[..]
            }
            Mop::Write { .. } => false,
        })
    }

    fn commit(&self, state: &mut State) {
        for mop in &self.mops {
            if let Mop::Append { key, element } = mop {
                state.entry(integer(key)).or_default().push(*element);
            }
        }
    }
}

fn integer(key: &Key) -> i64 {
    match key {
        Key::Int(integer) => *integer,
        _ => panic!("all keys are integers"),
    }
}

/// The transactions of a history that did not fail.
fn transactions(history: &History) -> Vec<Transaction> {
    let invocations = history.iter().enumerate().filter(|(_, op)| op.is_invoke());
    let all = invocations.filter_map(|(begin, op)| {
        let end = history.pair(begin);
        let completion = end.map(|end| &history.ops()[end]);
        let ok = completion.filter(|op| op.is_ok());
        (!completion.is_some_and(Op::is_fail)).then(|| Transaction {
            mops: ok.unwrap_or(op).value.as_txn().unwrap().to_vec(),
            process: op.process,
            begin,
            end: ok.and(end),
        })
    });
    all.collect()
}

/// Tries all orders of the events of small histories: transactions, or snapshots and commits.
struct ListOrderSearch {
    all: Vec<Transaction>,
    follows: Follows,
    is_serial: bool,
}

/// Where each transaction is, and when a list was last committed to, by number of events.
#[derive(Clone)]
struct Position {
    /// 0: not begun; else the number of events before its snapshot, and 1.
    begun: Vec<usize>,
    done: Vec<bool>,
    state: State,
    touched: BTreeMap<i64, usize>,
    events: usize,
}

impl ListOrderSearch {
    fn holds(history: &History, is_serial: bool, follows: Follows) -> bool {
        let all = transactions(history);
        let count = all.len();
        let twin = ListOrderSearch {
            all,
            follows,
            is_serial,
        };
        twin.from(&Position {
            begun: vec![0; count],
            done: vec![false; count],
            state: State::new(),
            touched: BTreeMap::new(),
            events: 1,
        })
    }

    fn from(&self, position: &Position) -> bool {
        let is_left = |number: usize| !position.done[number];
        let numbers = 0..self.all.len();
        // What is unknown may be left out.
        let mut left = numbers.clone().filter(|&number| is_left(number));
        if left.all(|number| self.all[number].end.is_none()) {
            return true;
        }
        numbers.clone().any(|number| {
            if position.done[number] {
                return false;
            }
            let mut next = position.clone();
            next.events += 1;
            if position.begun[number] == 0 {
                self.begin(number, &mut next) && self.from(&next)
            } else {
                self.end(number, &mut next) && self.from(&next)
            }
        })
    }

    fn begin(&self, number: usize, next: &mut Position) -> bool {
        let one = &self.all[number];
        let must_wait = |other: &Transaction| {
            let before = other.end.is_some_and(|end| end < one.begin);
            let related = match self.follows {
                Follows::Nothing => false,
                Follows::Sessions => other.process == one.process,
                Follows::Time => true,
            };
            before && related
        };
        let others = self.all.iter().zip(&next.done);
        if others
            .clone()
            .any(|(other, done)| !done && must_wait(other))
            || !one.sees(&next.state)
        {
            return false;
        }
        next.begun[number] = next.events;
        !self.is_serial || self.end(number, next)
    }

    fn end(&self, number: usize, next: &mut Position) -> bool {
        let one = &self.all[number];
        let begun = next.begun[number];
        let keys = one.keys();
        let mut touched = keys.iter().filter_map(|key| next.touched.get(key));
        if touched.any(|&at| at > begun) {
            return false;
        }
        for key in keys {
            next.touched.insert(key, next.events);
        }
        next.done[number] = true;
        one.commit(&mut next.state);
        true
    }
}

/// Transactions that read snapshots and commit at any time, without regard to concurrent appends to the same lists, so most
/// anomalies are unobserved appends; some histories have one changed read.
fn any_history(rng: &mut Rng) -> History {
    let count = 2 + rng.index(4);
    let keys = 1 + rng.below(3);
    let mut elements = 0;
    let mut begun: Vec<(Op, Option<Vec<Mop>>)> = Vec::new();
    let (mut ops, mut state) = (Vec::new(), State::new());
    let mut left = count;
    let mut process = 0;
    let mut free: Vec<u64> = Vec::new();
    // Failed appends without a retry.
    let mut failed: Vec<Mop> = Vec::new();
    let wrong = *rng.pick(&[0.0, 0.0, 0.05, 0.2]);
    while left > 0 || !begun.is_empty() {
        if left > 0 && rng.chance(0.5) {
            left -= 1;
            let mops = any_mops(keys, &mut elements, &mut failed, rng);
            let client = free.pop().unwrap_or_else(|| {
                process += 1;
                process
            });
            let op = Op::invoke(Process::Client(client), "txn", Value::Txn(mops.into()));
            ops.push(op.clone());
            begun.push((op, None));
        } else if !begun.is_empty() {
            let at = rng.index(begun.len());
            let (op, done) = &mut begun[at];
            let Some(mops) = done else {
                // Its snapshot.
                let mops = op.value.as_txn().unwrap();
                *done = Some(read(mops, &state, wrong, rng));
                continue;
            };
            if rng.chance(0.5) {
                continue;
            }
            let mops = std::mem::take(mops);
            let (op, _) = begun.swap_remove(at);
            let outcome = rng.below(10);
            let is_committed = outcome > 1;
            if is_committed {
                for mop in &mops {
                    if let Mop::Append { key, element } = mop {
                        state.entry(integer(key)).or_default().push(*element);
                    }
                }
            }
            if outcome == 0 {
                let appends = op.value.as_txn().unwrap().iter();
                failed.extend(
                    appends
                        .filter(|mop| matches!(mop, Mop::Append { .. }))
                        .cloned(),
                );
            }
            ops.push(match outcome {
                0 => op.complete(OpType::Fail, op.value.clone()),
                1 | 2 => op.complete(OpType::Info, op.value.clone()),
                _ => op.complete(OpType::Ok, Value::Txn(mops.into())),
            });
            if let (Process::Client(client), true) = (op.process, !(1..=2).contains(&outcome)) {
                free.push(client);
            }
        }
    }
    History::from_unindexed(ops)
}

/// Micro-operations of a new transaction, perhaps with appends that failed before.
fn any_mops(keys: u64, elements: &mut i64, failed: &mut Vec<Mop>, rng: &mut Rng) -> Vec<Mop> {
    let mops = (0..=rng.below(4)).map(|_| {
        let key = Key::Int(rng.below(keys).cast_signed());
        if rng.chance(0.4) {
            let observed = Observed::Nil;
            return Mop::Read { key, observed };
        }
        *elements += 1;
        let element = *elements;
        Mop::Append { key, element }
    });
    let mut mops: Vec<Mop> = mops.collect();
    if rng.chance(0.5) {
        mops.append(failed);
    }
    // Elements need not ascend.
    if rng.chance(0.3) {
        rng.shuffle(&mut mops);
    }
    mops
}

/// What these micro-operations see of a state, now and then something else.
fn read(mops: &[Mop], state: &State, wrong: f64, rng: &mut Rng) -> Vec<Mop> {
    let mut own = State::new();
    let mops = mops.iter().map(|mop| match mop {
        Mop::Append { key, element } => {
            own.entry(integer(key)).or_default().push(*element);
            mop.clone()
        }
        Mop::Read { key, .. } => {
            let number = integer(key);
            let parts = [state, &own].map(|lists| lists.get(&number).cloned().unwrap_or_default());
            let mut list = parts.concat();
            if !list.is_empty() && rng.chance(wrong) {
                let (one, other) = (rng.index(list.len()), rng.index(list.len()));
                match rng.below(5) {
                    0 => drop(list.pop()),
                    1 => drop(list.remove(one)),
                    2 => list.push(99),
                    3 => list.insert(one, list[other]),
                    _ => list.swap(one, other),
                }
            }
            let (key, observed) = (key.clone(), Observed::List(list.into()));
            Mop::Read { key, observed }
        }
        Mop::Write { .. } => mop.clone(),
    });
    mops.collect()
}

/// The levels that all orders decide.
const DECIDED: [(Level, bool, Follows); 6] = [
    (Level::Serializable, true, Follows::Nothing),
    (Level::StrongSessionSerializable, true, Follows::Sessions),
    (Level::StrictSerializable, true, Follows::Time),
    (Level::SnapshotIsolation, false, Follows::Nothing),
    (
        Level::StrongSessionSnapshotIsolation,
        false,
        Follows::Sessions,
    ),
    (Level::StrongSnapshotIsolation, false, Follows::Time),
];

/// A small history, and for each of [`DECIDED`] whether it holds.
fn any_case(seed: u64, rng: &mut Rng) -> (History, Vec<bool>) {
    let history = if seed.is_multiple_of(4) {
        let store = STORES[(seed / 4) as usize % STORES.len()];
        random_history(store, 5, rng)
    } else {
        any_history(rng)
    };
    let decided = DECIDED.iter();
    let holds = decided
        .map(|&(_, is_serial, follows)| ListOrderSearch::holds(&history, is_serial, follows));
    let holds = holds.collect();
    (history, holds)
}

/// Does some level that all orders decide imply this one, and hold?
fn is_implied(level: Level, holds: &[bool]) -> bool {
    let mut all = DECIDED.iter().zip(holds);
    all.any(|((known, ..), holds)| *holds && known.implies(level))
}

/// Does some level that this one implies not hold?
fn is_excluded(level: Level, holds: &[bool]) -> bool {
    let mut all = DECIDED.iter().zip(holds);
    all.any(|((known, ..), holds)| !holds && level.implies(*known))
}

fn summary(verdict: &Verdict) -> String {
    let findings = verdict.findings.iter();
    let findings: Vec<_> = findings
        .map(|one| format!("{}: {}", one.anomaly, one.summary))
        .collect();
    format!("{:?} {:?} {findings:#?}", verdict.valid, verdict.proof)
}

#[test]
fn verdicts_on_lists_are_those_of_all_orders() {
    // By level: valid, invalid, unknown, and without a certificate.
    let mut counts: BTreeMap<Level, [u64; 4]> = BTreeMap::new();
    let mut unordered = 0;
    for seed in 0..histories(1_500) {
        let mut rng = Rng::from_seed(seed ^ 0x11575);
        let (history, holds) = any_case(seed, &mut rng);
        for level in Level::all() {
            let (verdict, certificate) = certify(&ListAppend::new(level), &history).unwrap();
            let context = || {
                format!(
                    "seed {seed} {level:?}\n{}{}",
                    printed(&history),
                    summary(&verdict)
                )
            };
            let count = counts.entry(level).or_default();
            unordered += u64::from(verdict.anomalies.contains_key("no-order"));
            match verdict.valid {
                Validity::Valid => {
                    count[0] += 1;
                    assert!(!is_excluded(level, &holds), "false pass: {}", context());
                    assert!(verdict.proof.is_some(), "{}", context());
                }
                Validity::Invalid => {
                    count[1] += 1;
                    assert!(!is_implied(level, &holds), "false alarm: {}", context());
                }
                Validity::Unknown(_) => {
                    count[2] += 1;
                    let is_decided = DECIDED.iter().any(|one| one.0 == level);
                    assert!(!is_decided, "{}", context());
                }
            }
            let Some(certificate) = certificate else {
                count[3] += u64::from(!matches!(verdict.valid, Validity::Unknown(_)));
                continue;
            };
            assert_eq!(certificate.is_valid(), verdict.valid == Validity::Valid);
            let answer = verify(&history, &certificate);
            assert_eq!(answer, Ok(()), "{}\n{certificate:?}", context());
        }
    }
    println!("{counts:#?} {unordered} without an order");
    for (level, ..) in DECIDED {
        let [valid, invalid, unknown, without] = counts[&level];
        assert!(
            valid > least(250) && invalid > least(250),
            "{level:?} {counts:?}"
        );
        assert_eq!((unknown, without), (0, 0), "{level:?}");
    }
    assert!(unordered > least(10), "{unordered}");
}

/// Another certificate, made of this one.
fn forged(certificate: &Certificate, other: &Certificate, rng: &mut Rng) -> Certificate {
    let mut forged = certificate.clone();
    if rng.chance(0.3) {
        let levels: Vec<_> = Level::all().collect();
        forged.model = String::from(rng.pick(&levels).name());
    }
    if rng.chance(0.2) {
        forged.proof = other.proof.clone();
    }
    match &mut forged.proof {
        Proof::Serial(order) | Proof::Snapshots(order) | Proof::Commits(order)
            if !order.is_empty() =>
        {
            let (one, other) = (rng.index(order.len()), rng.index(order.len()));
            match rng.below(5) {
                0 => order.swap(one, other),
                1 => drop(order.remove(one)),
                2 => order.insert(one, order[other]),
                3 => rng.shuffle(order),
                _ => {}
            }
        }
        Proof::Core(core) if !core.is_empty() => drop(core.remove(rng.index(core.len()))),
        Proof::Findings(findings) if !findings.is_empty() => {
            let at = rng.index(findings.len());
            forge(&mut findings[at], rng);
        }
        _ => {}
    }
    match &forged.proof {
        Proof::Serial(order) if rng.chance(0.2) => {
            forged.proof = Proof::Snapshots(order.iter().flat_map(|&one| [one, one]).collect());
        }
        Proof::Serial(order) if rng.chance(0.2) => forged.proof = Proof::Commits(order.clone()),
        Proof::Commits(order) if rng.chance(0.2) => forged.proof = Proof::Serial(order.clone()),
        _ => {}
    }
    forged
}

fn forge(finding: &mut Evidence, rng: &mut Rng) {
    let anomalies: Vec<_> = Level::StrictSerializable.forbidden().into_iter().collect();
    match rng.below(5) {
        0 if !finding.steps.is_empty() => {
            let at = rng.index(finding.steps.len());
            finding.steps.remove(at);
        }
        1 if !finding.steps.is_empty() => {
            let at = rng.index(finding.steps.len());
            let step: &mut CycleEdge = &mut finding.steps[at];
            let relations = ["ww", "wr", "rw", "process", "realtime"];
            step.relation = String::from(*rng.pick(&relations));
        }
        2 => finding.anomaly = String::from(*rng.pick(&anomalies)),
        3 => rng.shuffle(&mut finding.operations),
        _ => {
            let shift = 1 + rng.below(4);
            finding
                .operations
                .iter_mut()
                .for_each(|one| *one = one.saturating_sub(shift));
        }
    }
}

/// Some order of snapshots and commits in which each transaction stands twice.
fn any_order(history: &History, rng: &mut Rng) -> Vec<u64> {
    let all = transactions(history);
    let places = all.iter().map(|one| one.begin as u64);
    let mut order: Vec<u64> = places.flat_map(|place| [place, place]).collect();
    rng.shuffle(&mut order);
    order
}

/// One transaction appends 1 and 2, another appends 1 only; then 1 is read, and 3 is appended on top and read.
fn attempts(outcomes: [OpType; 2]) -> History {
    let append = |element| Mop::Append {
        key: Key::Int(0),
        element,
    };
    let read = |list: &[i64]| Mop::Read {
        key: Key::Int(0),
        observed: Observed::List(list.into()),
    };
    let txn = |process, mops: Vec<Mop>| {
        Op::invoke(Process::Client(process), "txn", Value::Txn(mops.into()))
    };
    let both = txn(0, vec![append(1), append(2)]);
    let one = txn(1, vec![append(1)]);
    let others = [vec![read(&[1])], vec![append(3)], vec![read(&[1, 3])]];
    let mut ops = vec![both.clone(), one.clone()];
    ops.push(both.complete(outcomes[0], both.value.clone()));
    ops.push(one.complete(outcomes[1], one.value.clone()));
    for mops in others {
        let op = txn(2, mops);
        ops.push(op.clone());
        ops.push(op.complete(OpType::Ok, op.value.clone()));
    }
    History::from_unindexed(ops)
}

#[test]
fn nothing_is_blamed_on_a_failed_append_that_was_tried_again() {
    let blame = |anomaly: &str, operations: [u64; 2]| Evidence {
        anomaly: anomaly.to_owned(),
        operations: operations.to_vec(),
        steps: Vec::new(),
        versions: None,
    };
    let holds = |outcomes, finding| {
        let certificate = Certificate::new("strict-serializable", Proof::Findings(vec![finding]));
        verify(&attempts(outcomes), &certificate).is_ok()
    };
    let (ok, fail, info) = (OpType::Ok, OpType::Fail, OpType::Info);
    for other in [ok, info] {
        for (anomaly, operations) in [("G1a", [5, 2]), ("G1b", [5, 2]), ("dirty-update", [7, 2])] {
            let finding = || blame(anomaly, operations);
            assert!(!holds([fail, other], finding()), "{anomaly} {other:?}");
            // With both failed, or with the writer's own, it is so.
            assert!(holds([fail, fail], finding()), "{anomaly}");
        }
        assert!(holds([other, fail], blame("G1b", [5, 2])), "{other:?}");
        assert!(!holds([other, fail], blame("G1a", [5, 3])), "{other:?}");
    }
    for level in Level::all() {
        let (verdict, certificate) =
            certify(&ListAppend::new(level), &attempts([fail, ok])).unwrap();
        assert_eq!(verdict.valid, Validity::Valid, "{level:?}");
        verify(&attempts([fail, ok]), &certificate.unwrap()).unwrap();
    }
}

#[test]
fn forged_certificates_of_lists_are_refused() {
    let levels: Vec<_> = Level::all().collect();
    let (mut accepted, mut refused) = (0, 0);
    let mut last: Option<Certificate> = None;
    for seed in 0..histories(1_500) {
        let mut rng = Rng::from_seed(seed ^ 0xf0e6);
        let (history, holds) = any_case(seed, &mut rng);
        let level = *rng.pick(&levels);
        let (_, certificate) = certify(&ListAppend::new(level), &history).unwrap();
        let mut tried: Vec<Certificate> = Vec::new();
        if let Some(certificate) = &certificate {
            let other = last.as_ref().unwrap_or(certificate);
            tried.extend((0..6).map(|_| forged(certificate, other, &mut rng)));
        }
        for _ in 0..4 {
            let order = any_order(&history, &mut rng);
            tried.push(Certificate::new(
                "snapshot-isolation",
                Proof::Snapshots(order),
            ));
        }
        for forged in &tried {
            let answer = verify(&history, forged);
            let Some(level) = Level::by_name(&forged.model) else {
                continue;
            };
            let context = || format!("seed {seed} {forged:?}\n{}", printed(&history));
            assert!(
                !matches!(answer, Err(Unproven::Unsettled { .. })),
                "{}",
                context()
            );
            if answer.is_err() {
                refused += 1;
                continue;
            }
            accepted += 1;
            if forged.is_valid() {
                assert!(!is_excluded(level, &holds), "{}", context());
            } else {
                assert!(!is_implied(level, &holds), "{}", context());
            }
        }
        last = certificate.or(last);
    }
    println!("{accepted} accepted, as what they say is true; {refused} refused");
    assert!(
        accepted > least(500) && refused > least(5_000),
        "{accepted} {refused}"
    );
}
