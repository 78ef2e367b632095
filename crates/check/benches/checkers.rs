//! How fast the checkers are: `cargo bench -p seatrial-check`. Without `--bench` (as under `cargo test`) the inputs
//! are small.

#![allow(clippy::unwrap_used, reason = "a bench that fails says where")]

use seatrial_checker::{Checker, Validity};
use seatrial_cycles::Level;
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_inference::{ListAppend, RwRegister};
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_linear::{Linearizable, Model};
use seatrial_machine::Rng;
use std::collections::BTreeMap;

/// Operations of a random history of a store where everything takes place at its completion.
struct Load {
    /// Transactions or operations.
    count: u64,
    clients: usize,
    /// Share of unknown outcomes.
    info: f64,
    /// Share of reads that miss the last elements of a list.
    stale: f64,
}

/// Runs `clients` at random; `run` gives the completion's value.
fn history(
    load: &Load,
    mut begin: impl FnMut(&mut Rng) -> (&'static str, Value),
    mut run: impl FnMut(&Op) -> (OpType, Value),
) -> History {
    let mut rng = Rng::from_seed(7);
    let mut ops = Vec::with_capacity(2 * load.count as usize);
    let mut open: Vec<Op> = Vec::new();
    let mut processes: Vec<u64> = (0..load.clients as u64).collect();
    let mut next = load.clients as u64;
    let mut begun = 0;
    while begun < load.count || !open.is_empty() {
        if begun < load.count && !processes.is_empty() && rng.chance(0.6) {
            begun += 1;
            let process = processes.swap_remove(rng.index(processes.len()));
            let (f, value) = begin(&mut rng);
            let op = Op::invoke(Process::Client(process), f, value);
            ops.push(op.clone());
            open.push(op);
        } else if !open.is_empty() {
            let op = open.swap_remove(rng.index(open.len()));
            let (mut kind, mut value) = run(&op);
            if rng.chance(load.info) {
                (kind, value) = (OpType::Info, op.value.clone());
            }
            match op.process {
                Process::Client(process) if kind != OpType::Info => processes.push(process),
                _ => {
                    processes.push(next);
                    next += 1;
                }
            }
            ops.push(op.complete(kind, value));
        }
    }
    History::from_unindexed(ops)
}

/// Transactions of one to seven micro-operations over ten keys at a time, each of which takes 32 appends.
fn list_append(load: &Load) -> History {
    let (mut keys, mut elements): (Vec<i64>, BTreeMap<i64, i64>) =
        ((0..10).collect(), BTreeMap::new());
    let mut fresh = 10;
    let mut lists: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut staleness = Rng::from_seed(8);
    history(
        load,
        |rng| {
            let mut mops = Vec::new();
            for _ in 0..=rng.below(7) {
                let slot = rng.index(keys.len());
                let key = Key::Int(keys[slot]);
                if rng.chance(0.5) {
                    let element = elements.entry(keys[slot]).or_insert(0);
                    *element += 1;
                    let element = *element;
                    mops.push(Mop::Append { key, element });
                    if element == 32 {
                        keys[slot] = fresh;
                        fresh += 1;
                    }
                } else {
                    let observed = Observed::Nil;
                    mops.push(Mop::Read { key, observed });
                }
            }
            ("txn", Value::Txn(mops.into()))
        },
        |op| {
            let mops = op.value.as_txn().unwrap().iter();
            let mops = mops.map(|mop| match mop {
                Mop::Append {
                    key: Key::Int(key),
                    element,
                } => {
                    lists.entry(*key).or_default().push(*element);
                    mop.clone()
                }
                Mop::Read {
                    key: Key::Int(key), ..
                } => {
                    let mut list = lists.get(key).map_or(&[][..], |list| list);
                    if staleness.chance(load.stale) {
                        list = &list[..list.len().saturating_sub(1 + staleness.index(8))];
                    }
                    let observed = Observed::List(list.into());
                    Mop::Read {
                        key: Key::Int(*key),
                        observed,
                    }
                }
                other => other.clone(),
            });
            (OpType::Ok, Value::Txn(mops.collect()))
        },
    )
}

/// The same with registers.
fn rw_register(history: &History) -> History {
    let convert = |mop: &Mop| match mop {
        Mop::Append { key, element } => Mop::Write {
            key: key.clone(),
            value: *element,
        },
        Mop::Read {
            key,
            observed: Observed::List(seen),
        } => {
            let observed = seen
                .last()
                .map_or(Observed::Nil, |last| Observed::Register(*last));
            Mop::Read {
                key: key.clone(),
                observed,
            }
        }
        other => other.clone(),
    };
    let ops = history.iter().map(|op| {
        let value = Value::Txn(op.value.as_txn().unwrap().iter().map(convert).collect());
        Op {
            value,
            ..op.clone()
        }
    });
    History::from_ops(ops.collect())
}

/// Reads, writes and compare-and-sets of five values on one register.
fn register(load: &Load) -> History {
    let mut state = Value::Nil;
    history(
        load,
        |rng| {
            let mut value = || rng.below(5).cast_signed();
            let (one, other) = (value(), value());
            match rng.below(3) {
                0 => ("read", Value::Nil),
                1 => ("write", Value::Int(one)),
                _ => ("cas", Value::Cas(one, other)),
            }
        },
        |op| match op.value {
            Value::Cas(from, to) if state == Value::Int(from) => {
                state = Value::Int(to);
                (OpType::Ok, op.value.clone())
            }
            Value::Cas(..) => (OpType::Fail, op.value.clone()),
            Value::Nil => (OpType::Ok, state.clone()),
            _ => {
                state = op.value.clone();
                (OpType::Ok, state.clone())
            }
        },
    )
}

/// Runs `work` and prints how many items it does per second.
#[expect(clippy::disallowed_types, reason = "a bench asks the clock")]
fn measure<T>(name: &str, items: u64, work: impl FnOnce() -> T) -> T {
    let begun = std::time::Instant::now();
    let result = work();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{name:<58} {items:>9} {seconds:>8.3} s {:>12.0}/s",
        items as f64 / seconds
    );
    result
}

fn measure_check(name: &str, checker: &dyn Checker, history: &History, items: u64, valid: bool) {
    let verdict = measure(name, items, || checker.check(history));
    assert_eq!(
        verdict.valid == Validity::Valid,
        valid,
        "{name}: {:?}",
        verdict.anomalies
    );
    if !valid {
        println!("  {:?} {}", verdict.anomalies, verdict.details);
    }
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let scale = if full { 1 } else { 1_000 };
    let load = |count: u64, clients, info| Load {
        count: count / scale,
        clients,
        info,
        stale: 0.0,
    };

    for (clients, info) in [(20, 0.0), (1_000, 0.05)] {
        let load = load(1_000_000, clients, info);
        let history = list_append(&load);
        let name = format!("list-append, {clients} clients, {info} info");
        // Pairing is part of a history, not of a checker.
        measure(&format!("{name}: pairing"), load.count, || history.pair(0));
        for level in [
            Level::StrictSerializable,
            Level::Serializable,
            Level::ReadCommitted,
        ] {
            let title = format!("{name}: {}", level.name());
            measure_check(&title, &ListAppend::new(level), &history, load.count, true);
        }
        if info == 0.0 {
            let registers = rw_register(&history);
            let checker = RwRegister::new(Level::StrictSerializable);
            measure_check(
                "rw-register: strict-serializable",
                &checker,
                &registers,
                load.count,
                true,
            );
        }
    }
    for (count, stale) in [
        (1_000_000, 0.000_01),
        (100_000, 0.01),
        (100_000, 0.5),
        (1_000_000, 0.5),
    ] {
        let load = Load {
            stale,
            ..load(count, 20, 0.01)
        };
        let history = list_append(&load);
        for level in [Level::StrictSerializable, Level::SnapshotIsolation] {
            let name = format!("list-append, {stale} stale: {}", level.name());
            measure_check(&name, &ListAppend::new(level), &history, load.count, false);
        }
    }
    others(load);
}

/// Registers, and the reader of text.
fn others(load: impl Fn(u64, usize, f64) -> Load) {
    for (count, clients, info) in [
        (10_000, 8, 0.0),
        (100_000, 8, 0.0),
        (1_000_000, 4, 0.0),
        (10_000, 32, 0.0),
        (10_000, 8, 0.01),
        (100_000, 8, 0.01),
    ] {
        let load = load(count, clients, info);
        let history = register(&load);
        let name = format!("cas-register, {clients} clients, {info} info, 5 values");
        let checker = Linearizable::new(Model::CasRegister);
        measure_check(&name, &checker, &history, load.count, true);
    }
    let text = {
        let ops = list_append(&load(100_000, 20, 0.0));
        ops.iter()
            .fold(String::new(), |text, op| text + &op.to_string() + "\n")
    };
    let megabytes = text.len() as u64 / 1_000_000;
    let read = || {
        import::read(
            "bench.edn",
            text.as_bytes(),
            Format::Edn,
            ImportOptions::default(),
        )
    };
    let history = measure("EDN, megabytes", megabytes, read).unwrap();
    println!("({} operations)", history.len());
}
