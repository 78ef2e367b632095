//! Rates and sizes of the test file: `cargo bench -p seatrial-history`. Without the argument `--bench` (under
//! `cargo test --benches`) everything runs once with tiny input; with a further argument only the workloads whose names
//! begin with it run. Rates count invocations and completions per second of
//! processor time of one core, the best of several rounds: other work on the machine hardly disturbs that. Linux only.

mod workload;

use seatrial_history::{
    Chunk, Codec, Fold, HistoryWriter, Key, LogMop, Op, OpType, Order, Process, TestFile, Value,
    WriterOptions, fold_linear,
};
use seatrial_machine::Rng;
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use workload::{Rounds, best, list_append, register, run};

/// Transfers between eight accounts, and reads of all balances.
fn bank(count: usize, rng: &mut Rng) -> Vec<Op> {
    let mut balances = [100_i64; 8];
    run(count, rng, move |invocation, rng| {
        let Some(invocation) = invocation else {
            if rng.chance(0.5) {
                return Op::invoke(Process::Client(0), "read", Value::Nil);
            }
            let (from, to) = (rng.below(8) as i64, rng.below(8) as i64);
            let value = Value::transfer(from, to, 1 + rng.below(5) as i64);
            return Op::invoke(Process::Client(0), "transfer", value);
        };
        if let Some(transfer) = invocation.value.as_transfer() {
            if balances[transfer.from as usize] < transfer.amount {
                return invocation.complete(OpType::Fail, invocation.value.clone());
            }
            balances[transfer.from as usize] -= transfer.amount;
            balances[transfer.to as usize] += transfer.amount;
            return invocation.complete(OpType::Ok, invocation.value.clone());
        }
        let accounts = balances.iter().enumerate();
        let accounts: Vec<_> = accounts.map(|(of, &sum)| (of as i64, sum)).collect();
        invocation.complete(OpType::Ok, Value::balances(&accounts))
    })
}

/// Transactions of one to four sends and polls on ten logs, as Jepsen's workload for Kafka; a poll gets up to eight
/// messages of one log.
fn log(count: usize, rng: &mut Rng) -> Vec<Op> {
    let mut lengths = [0_i64; 10];
    run(count, rng, move |invocation, rng| {
        let Some(invocation) = invocation else {
            let mops = (0..=rng.below(4)).map(|_| {
                if rng.chance(0.5) {
                    return LogMop::Poll { messages: None };
                }
                let (key, offset) = (Key::Int(rng.below(10) as i64), None);
                let value = rng.below(100_000) as i64;
                LogMop::Send { key, offset, value }
            });
            let mops: Vec<LogMop> = mops.collect();
            return Op::invoke(Process::Client(0), "txn", Value::log(&mops));
        };
        let mut mops = invocation.value.as_log().unwrap_or_default();
        for mop in &mut mops {
            let log = rng.index(10);
            match mop {
                LogMop::Send { offset, .. } => {
                    lengths[log] += 1;
                    *offset = Some(lengths[log]);
                }
                LogMop::Poll { messages } => {
                    let end = lengths[log];
                    let polled = (end - rng.below(8) as i64).max(0)..end;
                    let polled = polled.map(|offset| (offset, offset * 3)).collect();
                    *messages = Some(vec![(Key::Int(log as i64), polled)]);
                }
            }
        }
        invocation.complete(OpType::Ok, Value::log(&mops))
    })
}

/// The same operations with the node of their client.
fn with_nodes(ops: &[Op]) -> Vec<Op> {
    let nodes: Vec<Arc<str>> = (1..=5).map(|node| format!("n{node}").into()).collect();
    let ops = ops.iter().enumerate().map(|(place, op)| {
        let node = Value::Text(nodes[place % nodes.len()].clone());
        op.clone().with("node", node)
    });
    ops.collect()
}

/// Counts operations by type.
struct Counts;

impl Fold for Counts {
    type Accumulator = [u64; 4];
    type Output = [u64; 4];
    fn start(&self) -> [u64; 4] {
        [0; 4]
    }
    fn reduce(&self, counts: &mut [u64; 4], chunk: &Chunk) -> ControlFlow<()> {
        for kind in chunk.kinds() {
            counts[*kind as usize] += 1;
        }
        ControlFlow::Continue(())
    }
    fn combine(&self, counts: &mut [u64; 4], later: [u64; 4]) -> ControlFlow<()> {
        for (sum, count) in counts.iter_mut().zip(later) {
            *sum += count;
        }
        ControlFlow::Continue(())
    }
    fn finish(&self, counts: [u64; 4]) -> [u64; 4] {
        counts
    }
}

/// Does nothing with what was decoded.
struct Decode;

impl Fold for Decode {
    type Accumulator = u64;
    type Output = u64;
    fn start(&self) -> u64 {
        0
    }
    fn reduce(&self, operations: &mut u64, chunk: &Chunk) -> ControlFlow<()> {
        *operations += chunk.len() as u64;
        ControlFlow::Continue(())
    }
    fn combine(&self, operations: &mut u64, later: u64) -> ControlFlow<()> {
        *operations += later;
        ControlFlow::Continue(())
    }
    fn finish(&self, operations: u64) -> u64 {
        operations
    }
}

/// Latencies by the pair column, by the number of binary digits of their nanoseconds.
struct Latencies;

/// What [`Latencies`] knows.
struct Seen {
    by_digits: [u64; 65],
    /// Times of the chunk before, for operations that began there.
    before: Vec<i64>,
}

impl Fold for Latencies {
    type Accumulator = Seen;
    type Output = u64;
    fn order(&self) -> Order {
        Order::Linear
    }
    fn start(&self) -> Seen {
        Seen {
            by_digits: [0; 65],
            before: Vec::new(),
        }
    }
    fn reduce(&self, seen: &mut Seen, chunk: &Chunk) -> ControlFlow<()> {
        let times = chunk.times();
        for (place, (&distance, &time)) in chunk.pairs().iter().zip(times).enumerate() {
            if distance > 0 {
                let distance = distance as usize;
                let begun = match place.checked_sub(distance) {
                    Some(place) => times[place],
                    None => seen.before[seen.before.len() + place - distance],
                };
                let digits = 64 - (time - begun).leading_zeros();
                seen.by_digits[digits as usize] += 1;
            }
        }
        seen.before.clear();
        seen.before.extend_from_slice(times);
        ControlFlow::Continue(())
    }
    fn combine(&self, _: &mut Seen, _: Seen) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
    fn finish(&self, seen: Seen) -> u64 {
        seen.by_digits.iter().sum()
    }
}

fn write(path: &Path, ops: &[Op], codec: Codec) -> u64 {
    let _ = std::fs::remove_file(path);
    let options = WriterOptions {
        codec,
        ..WriterOptions::default()
    };
    let attributes = json!({"name": "bench"});
    let mut writer = HistoryWriter::create_with(path, &attributes, options).expect("a new file");
    for op in ops {
        writer.push(op).expect("space for it");
    }
    writer.seal().expect("space for it");
    std::fs::metadata(path).expect("the file").len()
}

fn measure(name: &str, ops: &[Op], path: &Path, rounds: Rounds) {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if wanted.is_some_and(|wanted| !name.starts_with(&wanted)) {
        return;
    }
    let count = ops.len() as f64;
    let rate = |seconds: f64| count / seconds / 1e6;
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let (written, bytes) = best(rounds, || write(path, ops, codec));
        let file = TestFile::open(path).expect("what was written");
        let (decoded, operations) = best(rounds, || fold_linear(&file, &Decode).expect("sound"));
        let (counted, counts) = best(rounds, || fold_linear(&file, &Counts).expect("sound"));
        let (paired, pairs) = best(rounds, || fold_linear(&file, &Latencies).expect("sound"));
        let (built, history) = best(rounds, || file.history().expect("sound").len());
        assert_eq!(
            (operations, counts.iter().sum::<u64>(), history),
            (ops.len() as u64, ops.len() as u64, ops.len())
        );
        assert_eq!(pairs, counts[1..].iter().sum::<u64>());
        println!(
            "{name:<20} {:<5} {:>6.2} B/op  write {:>6.2} M/s  decode {:>7.2} M/s  \
             count {:>7.2} M/s  latency {:>7.2} M/s  to memory {:>6.2} M/s",
            format!("{codec:?}").to_lowercase(),
            bytes as f64 / count,
            rate(written),
            rate(decoded),
            rate(counted),
            rate(paired),
            rate(built),
        );
    }
}

/// Opening a file and printing its attributes, and reading single operations.
fn open(name: &str, path: &Path, rounds: Rounds, count: u64) {
    let (seconds, text) = best(rounds, || {
        let file = TestFile::open(path).expect("what was written");
        file.attributes().expect("attributes").to_string()
    });
    let mut rng = Rng::from_seed(3);
    let (one, _) = best(rounds, || {
        let file = TestFile::open(path).expect("what was written");
        file.operation(rng.below(count)).expect("sound")
    });
    println!(
        "{name:<20} open and attributes ({} bytes) {:.3} ms, open and one operation {:.3} ms",
        text.len(),
        seconds * 1e3,
        one * 1e3
    );
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (count, million) = if is_bench {
        (196_608, 1_000_000)
    } else {
        (600, 600)
    };
    let rounds = Rounds {
        count: if is_bench { 3 } else { 1 },
        seconds_min: if is_bench { 0.3 } else { 0.0 },
    };
    let mut rng = Rng::from_seed(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.sea");
    let ops = list_append(count, &mut rng);
    measure("list-append", &ops, &path, rounds);
    measure("list-append, nodes", &with_nodes(&ops), &path, rounds);
    drop(ops);
    let ops = register(million, &mut rng);
    measure("register", &ops, &path, rounds);
    measure("register, nodes", &with_nodes(&ops), &path, rounds);
    measure("bank", &bank(count, &mut rng), &path, rounds);
    measure("log", &log(count, &mut rng), &path, rounds);
    write(&path, &ops, Codec::Lz4);
    open("register", &path, rounds, ops.len() as u64);
}
