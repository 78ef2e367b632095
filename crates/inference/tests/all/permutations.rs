//! Registers against brute force: small random histories, every order of their transactions, every level.
//!
//! A verdict is valid only when an order exists, and invalid only when none does; no level that can be decided is left open, and
//! the independent verifier accepts every certificate.

use crate::stores::printed;
use seatrial_checker::{Checker, Validity, Verdict, certify};
use seatrial_cycles::Level;
use seatrial_farm::{histories, least};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_inference::{Inference, RwRegister};
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_isolation::{AxiomaticModel, Isolation};
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, verify};
use std::collections::BTreeMap;

const KEYS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Read(Option<i64>),
    Write(i64),
}

/// A transaction: when it ran (positions in the history), by whom, how it ended, and what it did.
#[derive(Clone, Debug)]
struct One {
    begun: usize,
    ended: usize,
    process: u64,
    kind: OpType,
    did: Vec<(usize, Did)>,
}

/// What the order of transactions must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Any,
    Sessions,
    Time,
}

type State = [Option<i64>; KEYS];

/// Two to five transactions on one or two keys; read values are drawn from written ones.
fn random(rng: &mut Rng) -> Vec<One> {
    let count = 2 + rng.index(4);
    let keys = 1 + rng.index(KEYS);
    let clients = 1 + rng.below(count as u64);
    let mut next_value = 0;
    let mut all: Vec<One> = Vec::new();
    let mut processes: Vec<u64> = (0..clients).collect();
    // By client: when its last transaction ended.
    let mut free = vec![0; clients as usize];
    let mut next_process = clients;
    let is_sequential = rng.chance(0.3);
    let mut now = 0;
    for number in 0..count {
        let client = rng.index(clients as usize);
        let begun = if is_sequential {
            now
        } else {
            free[client] + rng.index(6)
        };
        let ended = begun + 1 + rng.index(8);
        now = ended + 1;
        free[client] = ended + 1;
        let kind = match rng.below(20) {
            0..=1 => OpType::Info,
            2 => OpType::Fail,
            _ => OpType::Ok,
        };
        let length = 1 + rng.index(3);
        let did = (0..length).map(|_| {
            let key = rng.index(keys);
            if rng.chance(0.5) {
                next_value += 1;
                (key, Did::Write(next_value))
            } else {
                (key, Did::Read(None))
            }
        });
        all.push(One {
            // No two events at one position.
            begun: 2 * count * begun + number,
            ended: 2 * count * ended + count + number,
            process: processes[client],
            kind,
            did: did.collect(),
        });
        if kind == OpType::Info {
            processes[client] = next_process;
            next_process += 1;
        }
    }
    if rng.chance(0.5) {
        fill_reads(&mut all, rng);
    } else {
        carry_out(&mut all, rng);
    }
    all
}

/// Carries the transactions out, each at some instant of its own, and disturbs some reads.
fn carry_out(all: &mut [One], rng: &mut Rng) {
    let mut order: Vec<usize> = (0..all.len()).collect();
    if rng.chance(0.5) {
        order.sort_by_key(|&number| all[number].begun);
    } else {
        rng.shuffle(&mut order);
    }
    let mut state: State = [None; KEYS];
    let mut before = state;
    let wrong = if rng.chance(0.3) { 0.0 } else { 0.25 };
    for number in order {
        let mut own = state;
        for (key, did) in &mut all[number].did {
            match did {
                Did::Write(value) => own[*key] = Some(*value),
                Did::Read(seen) if rng.chance(wrong) => *seen = before[*key],
                Did::Read(seen) => *seen = own[*key],
            }
        }
        if all[number].kind != OpType::Fail {
            before = state;
            state = own;
        }
    }
}

/// Draws the value of a read: mostly an own write, else any value written to the key.
fn fill_reads(all: &mut [One], rng: &mut Rng) {
    let mut written: Vec<Vec<i64>> = vec![Vec::new(); KEYS];
    for one in all.iter() {
        for &(key, did) in &one.did {
            if let Did::Write(value) = did
                && (one.kind != OpType::Fail || rng.chance(0.1))
            {
                written[key].push(value);
            }
        }
    }
    for one in all.iter_mut() {
        let mut known: State = [None; KEYS];
        for (key, did) in &mut one.did {
            match did {
                Did::Write(value) => known[*key] = Some(*value),
                Did::Read(seen) => {
                    let others = &written[*key];
                    *seen = if known[*key].is_some() && !rng.chance(0.03) {
                        known[*key]
                    } else if others.is_empty() || rng.chance(0.25) {
                        None
                    } else {
                        Some(*rng.pick(others))
                    };
                    if !rng.chance(0.05) {
                        // Read again, it is the same.
                        known[*key] = known[*key].or(*seen);
                    }
                }
            }
        }
    }
}

fn history(all: &[One]) -> History {
    let mut ops: BTreeMap<usize, Op> = BTreeMap::new();
    for one in all {
        let mops = |is_done: bool| {
            let mops = one.did.iter().map(|&(key, did)| {
                let key = Key::Int(key as i64);
                match did {
                    Did::Write(value) => Mop::Write { key, value },
                    Did::Read(Some(value)) if is_done => Mop::Read {
                        key,
                        observed: Observed::Register(value),
                    },
                    Did::Read(_) => Mop::Read {
                        key,
                        observed: Observed::Nil,
                    },
                }
            });
            Value::Txn(mops.collect())
        };
        let op = Op::invoke(Process::Client(one.process), "txn", mops(false));
        let done = op.complete(one.kind, mops(one.kind == OpType::Ok));
        assert!(ops.insert(one.begun, op).is_none());
        assert!(ops.insert(one.ended, done).is_none());
    }
    History::from_unindexed(ops.into_values().collect())
}

/// Must `one` come before `other`?
fn precedes(one: &One, other: &One, order: Order) -> bool {
    let is_before = one.kind == OpType::Ok && one.ended < other.begun;
    match order {
        Order::Any => false,
        Order::Sessions => is_before && one.process == other.process,
        Order::Time => is_before,
    }
}

/// All subsets of the transactions of unknown outcome, without failed ones.
fn choices(all: &[One]) -> Vec<Vec<One>> {
    let mut choices = vec![Vec::new()];
    for one in all {
        let mut more = Vec::new();
        for choice in choices {
            if one.kind == OpType::Info {
                more.push(choice.clone());
            }
            let mut with: Vec<One> = choice;
            if one.kind != OpType::Fail {
                with.push(one.clone());
            }
            more.push(with);
        }
        choices = more;
    }
    choices
}

/// The state after a transaction; `None` if a read does not match the state.
fn run(one: &One, mut state: State) -> Option<State> {
    for &(key, did) in &one.did {
        match did {
            Did::Write(value) => state[key] = Some(value),
            Did::Read(seen) if one.kind == OpType::Ok && seen != state[key] => return None,
            Did::Read(_) => {}
        }
    }
    Some(state)
}

/// Is there a serial order that explains all reads and follows `order`?
fn is_serial(all: &[One], order: Order) -> bool {
    fn place(all: &[One], order: Order, placed: u32, state: State) -> bool {
        if placed.count_ones() as usize == all.len() {
            return true;
        }
        (0..all.len()).any(|next| {
            let waits =
                |other: usize| placed >> other & 1 == 0 && precedes(&all[other], &all[next], order);
            placed >> next & 1 == 0
                && !(0..all.len()).any(waits)
                && run(&all[next], state)
                    .is_some_and(|state| place(all, order, placed | 1 << next, state))
        })
    }
    choices(all)
        .iter()
        .any(|all| place(all, order, 0, [None; KEYS]))
}

/// The point that an interleaving of snapshots and commits has come to.
#[derive(Clone)]
struct Point {
    /// By transaction: the versions of the keys at its snapshot, once that was taken.
    begun: Vec<Option<[u32; KEYS]>>,
    done: Vec<bool>,
    state: State,
    versions: [u32; KEYS],
}

/// Is there an interleaving of snapshots and commits that explains all reads? With `wins`, of two that overlap and write
/// a key only one commits.
fn has_snapshots(all: &[One], order: Order, wins: bool) -> bool {
    fn go(all: &[One], order: Order, wins: bool, point: &Point) -> bool {
        if point.done.iter().all(|&done| done) {
            return true;
        }
        (0..all.len()).any(|next| {
            if point.done[next] {
                return false;
            }
            let mut point = point.clone();
            let Some(seen) = point.begun[next] else {
                let waits =
                    |other: usize| !point.done[other] && precedes(&all[other], &all[next], order);
                if (0..all.len()).any(waits) || run(&all[next], point.state).is_none() {
                    return false;
                }
                point.begun[next] = Some(point.versions);
                return go(all, order, wins, &point);
            };
            for &(key, did) in &all[next].did {
                if let Did::Write(value) = did {
                    if wins && point.versions[key] != seen[key] {
                        return false;
                    }
                    point.state[key] = Some(value);
                }
            }
            for key in 0..KEYS {
                let is_of =
                    |&(other, did): &(usize, Did)| other == key && matches!(did, Did::Write(_));
                point.versions[key] += u32::from(all[next].did.iter().any(is_of));
            }
            point.done[next] = true;
            go(all, order, wins, &point)
        })
    }
    choices(all).iter().any(|all| {
        let point = Point {
            begun: vec![None; all.len()],
            done: vec![false; all.len()],
            state: [None; KEYS],
            versions: [0; KEYS],
        };
        go(all, order, wins, &point)
    })
}

/// Who left which value behind, of these transactions.
fn finals(all: &[One], key: usize) -> Vec<(i64, usize)> {
    let last = all.iter().enumerate().filter_map(|(number, one)| {
        let mut did = one.did.iter().rev();
        did.find_map(|&(other, did)| match did {
            Did::Write(value) if other == key => Some((value, number)),
            _ => None,
        })
    });
    last.collect()
}

/// Reads that no own write answers, of successful transactions; `None` when one contradicts its own transaction.
fn external(all: &[One]) -> Option<Vec<(usize, usize, Option<i64>)>> {
    let mut reads = Vec::new();
    for (number, one) in all
        .iter()
        .enumerate()
        .filter(|(_, one)| one.kind == OpType::Ok)
    {
        let mut own: State = [None; KEYS];
        for &(key, did) in &one.did {
            match did {
                Did::Write(value) => own[key] = Some(value),
                Did::Read(seen) if own[key].is_none() => reads.push((number, key, seen)),
                Did::Read(seen) if seen != own[key] => return None,
                Did::Read(_) => {}
            }
        }
    }
    Some(reads)
}

/// Edges between transactions, and whether there is a way from one to another.
fn leads(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
    let mut reached = vec![from];
    let mut next = 0;
    while let Some(&node) = reached.get(next) {
        next += 1;
        for &(_, end) in edges.iter().filter(|edge| edge.0 == node) {
            if end == to {
                return true;
            }
            if !reached.contains(&end) {
                reached.push(end);
            }
        }
    }
    false
}

/// What was read of whom: (writer, reader); `None` when a read is of what no transaction left behind.
fn sources(all: &[One], reads: &[(usize, usize, Option<i64>)]) -> Option<Vec<(usize, usize)>> {
    let mut edges = Vec::new();
    for &(reader, key, seen) in reads {
        let Some(value) = seen else { continue };
        let finals = finals(all, key);
        let (_, writer) = finals.iter().find(|one| one.0 == value)?;
        if *writer == reader {
            return None;
        }
        edges.push((*writer, reader));
    }
    Some(edges)
}

/// Is every read of a committed, final version, and is there no cycle of reads and `order` (PL-2)? `None`: not known here.
fn is_committed(all: &[One], order: Order) -> Option<bool> {
    external(all)?;
    Some(choices(all).iter().any(|all| {
        let reads = external(all).unwrap_or_default();
        let Some(mut edges) = sources(all, &reads) else {
            return false;
        };
        for (number, one) in all.iter().enumerate() {
            let before = (0..all.len()).filter(|&other| precedes(&all[other], one, order));
            edges.extend(before.map(|other| (other, number)));
        }
        !(0..all.len()).any(|node| leads(&edges, node, node))
    }))
}

/// Is there an order of versions without cycles that have fewer than two anti-dependencies (PL-2+)? `None`: not known here.
fn is_consistent_view(all: &[One]) -> Option<bool> {
    external(all)?;
    Some(choices(all).iter().any(|all| {
        let reads = external(all).unwrap_or_default();
        let Some(sources) = sources(all, &reads) else {
            return false;
        };
        let orders = [permutations(&finals(all, 0)), permutations(&finals(all, 1))];
        let pairs = orders[0]
            .iter()
            .flat_map(|one| orders[1].iter().map(move |other| [one, other]));
        let mut pairs = pairs.into_iter();
        pairs.any(|versions| {
            let mut edges = sources.clone();
            let mut anti = Vec::new();
            for (key, versions) in versions.into_iter().enumerate() {
                edges.extend(versions.windows(2).map(|two| (two[0].1, two[1].1)));
                for &(reader, _, seen) in reads.iter().filter(|read| read.1 == key) {
                    let at = versions.iter().position(|one| Some(one.0) == seen);
                    let next = versions.get(at.map_or(0, |at| at + 1));
                    anti.extend(next.map(|next| (reader, next.1)));
                }
            }
            let is_cyclic = (0..all.len()).any(|node| leads(&edges, node, node));
            let mut anti = anti.into_iter().filter(|(reader, next)| reader != next);
            !is_cyclic && !anti.any(|(reader, next)| leads(&edges, next, reader))
        })
    }))
}

fn permutations(all: &[(i64, usize)]) -> Vec<Vec<(i64, usize)>> {
    if all.is_empty() {
        return vec![Vec::new()];
    }
    let mut orders = Vec::new();
    for at in 0..all.len() {
        let mut rest = all.to_vec();
        let first = rest.remove(at);
        for mut order in permutations(&rest) {
            order.insert(0, first);
            orders.push(order);
        }
    }
    orders
}

/// Does the level hold, by its definition? `None` for levels, and histories, of which the brute force knows nothing.
fn truth(all: &[One], level: Level) -> Option<bool> {
    use Level as L;
    Some(match level {
        L::RepeatableRead if external(all).is_none() => return None,
        L::RepeatableRead | L::Serializable => is_serial(all, Order::Any),
        L::StrongSessionSerializable => is_serial(all, Order::Sessions),
        L::StrictSerializable => is_serial(all, Order::Time),
        L::Prefix => has_snapshots(all, Order::Any, false),
        L::SnapshotIsolation => has_snapshots(all, Order::Any, true),
        L::StrongSessionSnapshotIsolation => has_snapshots(all, Order::Sessions, true),
        L::StrongSnapshotIsolation => has_snapshots(all, Order::Time, true),
        L::ConsistentView => return is_consistent_view(all),
        L::ParallelSnapshotIsolation => return Some(is_consistent_view(all).unwrap_or(false)),
        L::ReadCommitted => return is_committed(all, Order::Any),
        L::StrongSessionReadCommitted => return is_committed(all, Order::Sessions),
        L::StrongReadCommitted => return is_committed(all, Order::Time),
        _ => return None,
    })
}

/// Compares a verdict with the truth about all levels.
fn compare(
    history: &History,
    level: Level,
    truths: &BTreeMap<Level, bool>,
    (verdict, certificate): &(Verdict, Option<Certificate>),
    context: &str,
) {
    let truth = truths.get(&level).copied();
    let context = || format!("{context}\n{level:?} {truth:?} {verdict:#?}");
    // A level that holds takes all that it implies with it, one that does not all that imply it.
    let holds = |level: Level| {
        let mut weaker = truths.iter().filter(|(weaker, _)| level.implies(**weaker));
        weaker.all(|(_, truth)| *truth)
    };
    let fails = |level: Level| {
        let mut stronger = truths
            .iter()
            .filter(|(stronger, _)| stronger.implies(level));
        stronger.all(|(_, truth)| !*truth)
    };
    match &verdict.valid {
        Validity::Valid => {
            assert!(truth != Some(false) && holds(level), "{}", context());
            assert!(
                verdict.proof.is_some() && verdict.undecided.is_empty(),
                "{}",
                context()
            );
        }
        Validity::Invalid => {
            assert!(truth != Some(true) && fails(level), "{}", context());
            assert!(
                verdict.proof.is_none() && !verdict.findings.is_empty(),
                "{}",
                context()
            );
            let ruled_out = verdict.not.iter().chain(&verdict.also_not);
            let mut ruled_out = ruled_out.filter_map(|name| Level::by_name(name));
            assert!(
                ruled_out.clone().any(|other| other == level),
                "{}",
                context()
            );
            assert!(ruled_out.all(fails), "{}", context());
        }
        Validity::Unknown(_) => {
            assert!(truth.is_none(), "{}", context());
            assert!(!verdict.undecided.is_empty(), "{}", context());
        }
    }
    if let Some(names) = &verdict.details.holds {
        let mut levels = names.iter().filter_map(|name| Level::by_name(name));
        assert!(levels.all(holds), "{}", context());
    }
    match certificate {
        Some(certificate) => {
            assert_eq!(
                certificate.is_valid(),
                verdict.valid == Validity::Valid,
                "{}",
                context()
            );
            assert_eq!(verify(history, certificate), Ok(()), "{}", context());
        }
        None => assert!(verdict.valid != Validity::Valid, "{}", context()),
    }
}

#[test]
fn verdicts_are_those_of_all_permutations() {
    let mut seen: BTreeMap<(Level, &str), u64> = BTreeMap::new();
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..histories(1_200) {
        let mut rng = Rng::from_seed(seed ^ 0x9e21);
        let all = random(&mut rng);
        let history = history(&all);
        let truths = Level::all().filter_map(|level| Some((level, truth(&all, level)?)));
        let truths: BTreeMap<Level, bool> = truths.collect();
        let context = format!("seed {seed}\n{}", printed(&history));
        for level in Level::all() {
            let checker = RwRegister::new(level);
            let certified = certify(&checker, &history).unwrap();
            compare(&history, level, &truths, &certified, &context);
            let plain = checker.check(&history);
            assert_eq!(plain.valid, certified.0.valid, "{context}");
            assert_eq!(plain.proof, certified.0.proof, "{context}");
            let word = match &plain.valid {
                Validity::Valid => plain.proof.unwrap(),
                Validity::Invalid if plain.details.core_is_least.is_none() => "invalid",
                Validity::Invalid => "core",
                Validity::Unknown(_) => "unknown",
            };
            *seen.entry((level, word)).or_default() += 1;
            for name in plain.anomalies.keys().filter(|_| word == "core") {
                *names.entry(name).or_default() += 1;
            }
        }
        agrees_with_isolation(&history, &truths, &context);
        agrees_with_assumptions(&history, &truths, &mut rng, &context);
    }
    println!("{seen:?}\n{names:?}");
    let count = |level, word| seen.get(&(level, word)).copied().unwrap_or(0);
    for level in [
        Level::Serializable,
        Level::SnapshotIsolation,
        Level::StrictSerializable,
    ] {
        assert!(count(level, Verdict::SERIAL_ORDER) > least(100), "{seen:?}");
        assert!(
            count(level, "invalid") > least(100) && count(level, "core") >= least(1),
            "{seen:?}"
        );
        assert_eq!(count(level, "unknown"), 0, "{seen:?}");
    }
    // Only non-serializable histories: a serial order is tried first.
    assert!(
        count(Level::SnapshotIsolation, Verdict::SNAPSHOT_ORDER) >= least(2),
        "{seen:?}"
    );
    assert!(
        count(Level::ReadCommitted, Verdict::COMMIT_ORDER) > least(10),
        "{seen:?}"
    );
    assert!(
        count(Level::MonotonicView, "unknown") >= least(1),
        "{seen:?}"
    );
    for name in ["G-single", "G-single-process", "G-single-realtime"] {
        assert!(
            names.get(name).copied().unwrap_or(0) >= least(1),
            "{names:?}"
        );
    }
}

/// The checker `isolation` agrees where it has the same models.
fn agrees_with_isolation(history: &History, truths: &BTreeMap<Level, bool>, context: &str) {
    for model in AxiomaticModel::SEARCHED {
        let certified = certify(&Isolation::new(model), history);
        let (verdict, certificate) = certified.unwrap();
        let level = Level::by_name(model.name());
        if let Some(&truth) = level.and_then(|level| truths.get(&level)) {
            assert_eq!(
                verdict.valid == Validity::Valid,
                truth,
                "{model:?} {context}"
            );
            assert_eq!(verdict.proof.is_some(), truth, "{model:?} {context}");
        }
        assert_eq!(
            verify(history, &certificate.unwrap()),
            Ok(()),
            "{model:?} {context}"
        );
    }
}

/// Assumptions that are true of the level change no verdict; with others, nothing is valid that is not.
fn agrees_with_assumptions(
    history: &History,
    truths: &BTreeMap<Level, bool>,
    rng: &mut Rng,
    context: &str,
) {
    let inference = Inference {
        wfr_keys: rng.chance(0.5),
        rmw_keys: rng.chance(0.5),
        sequential_keys: rng.chance(0.5),
        linearizable_keys: rng.chance(0.5),
    };
    for (&level, &truth) in truths {
        let checker = RwRegister::new(level).with_inference(inference);
        let (verdict, certificate) = certify(&checker, history).unwrap();
        let context = || format!("{inference:?} {level:?} {context}\n{verdict:#?}");
        if level == Level::StrictSerializable {
            assert_eq!(verdict.valid == Validity::Valid, truth, "{}", context());
        }
        assert!(truth || verdict.valid != Validity::Valid, "{}", context());
        let is_broken = verdict.valid == Validity::Invalid;
        assert!(
            !is_broken || !truth || verdict.reason.is_some(),
            "{}",
            context()
        );
        if let Some(certificate) = certificate {
            assert_eq!(verify(history, &certificate), Ok(()), "{}", context());
        }
    }
}

#[test]
fn the_two_read_committeds_differ() {
    // What the other session wrote is seen out of order: Adya's PL-2 asks only for cycles of writes and reads.
    let text = b"{:process 1 :type :invoke :f :txn :value [[:w :x 1] [:w :y 1]]}
        {:process 1 :type :ok :f :txn :value [[:w :x 1] [:w :y 1]]}
        {:process 1 :type :invoke :f :txn :value [[:w :x 2] [:w :y 2]]}
        {:process 1 :type :ok :f :txn :value [[:w :x 2] [:w :y 2]]}
        {:process 2 :type :invoke :f :txn :value [[:r :y nil] [:r :x nil]]}
        {:process 2 :type :ok :f :txn :value [[:r :y 2] [:r :x 1]]}";
    let history = import::read("a.edn", text, Format::Edn, ImportOptions::default()).unwrap();
    let adya = RwRegister::new(Level::ReadCommitted).check(&history);
    assert_eq!(adya.valid, Validity::Valid);
    let axiomatic = Isolation::new(AxiomaticModel::AxiomaticReadCommitted).check(&history);
    assert_eq!(axiomatic.valid, Validity::Invalid);
}
