//! What composed questions cost beside folds written by hand: `cargo bench -p seatrial-query --bench queries`. Without
//! the argument `--bench` everything runs once with tiny input. Nanoseconds of processor time per operation, the least
//! of several rounds, over chunks whose columns are in memory, and millions of operations per second from a file with
//! LZ4. After `--`, a word: only rows that begin with it run. Linux only.

#[path = "../../history/benches/workload/mod.rs"]
mod workload;

use seatrial_history::{
    Chunk, Codec, Fold, HistoryWriter, Op, OpType, Process, Symbol, TestFile, WriterOptions,
    fold_linear,
};
use seatrial_machine::Rng;
use seatrial_query::{self as query, each, latencies, ops};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::path::Path;
use workload::{Rounds, best, list_append, register};

/// A fold written by hand.
struct ByHand<N, R> {
    start: N,
    reduce: R,
}

impl<A, N, R> Fold for ByHand<N, R>
where
    A: Send,
    N: Fn() -> A + Send + Sync,
    R: Fn(&mut A, &Chunk) + Send + Sync,
{
    type Accumulator = A;
    type Output = A;

    fn start(&self) -> A {
        (self.start)()
    }

    fn reduce(&self, accumulator: &mut A, chunk: &Chunk) -> ControlFlow<()> {
        (self.reduce)(accumulator, chunk);
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut A, _: A) -> ControlFlow<()> {
        unreachable!("the bench folds in one thread")
    }

    fn finish(&self, accumulator: A) -> A {
        accumulator
    }
}

fn by_hand<A, N, R>(start: N, reduce: R) -> ByHand<N, R>
where
    A: Send,
    N: Fn() -> A + Send + Sync,
    R: Fn(&mut A, &Chunk) + Send + Sync,
{
    ByHand { start, reduce }
}

/// Is this row asked for?
fn is_wanted(name: &str) -> bool {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    wanted.is_none_or(|wanted| name.starts_with(&wanted))
}

/// What is measured.
struct Bench {
    file: TestFile,
    /// Its chunks.
    chunks: Vec<Chunk>,
    operations: f64,
    rounds: Rounds,
}

impl Bench {
    fn new(path: &Path, list: &[Op], rounds: Rounds) -> Bench {
        let _ = std::fs::remove_file(path);
        let options = WriterOptions {
            codec: Codec::Lz4,
            ..WriterOptions::default()
        };
        let attributes = serde_json::json!({"name": "bench"});
        let mut writer =
            HistoryWriter::create_with(path, &attributes, options).expect("a new file");
        for op in list {
            writer.push(op).expect("space for it");
        }
        writer.seal().expect("space for it");
        let file = TestFile::open(path).expect("what was written");
        let chunks = file.chunks().map(|chunk| chunk.expect("sound"));
        Bench {
            chunks: chunks.collect(),
            file,
            operations: list.len() as f64,
            rounds,
        }
    }

    /// Nanoseconds per operation over the chunks in memory, and the answer.
    fn in_memory<F: Fold>(&self, fold: &F) -> (f64, F::Output) {
        let (seconds, answer) = best(self.rounds, || {
            let mut accumulator = fold.start();
            for chunk in &self.chunks {
                if fold.reduce(&mut accumulator, chunk).is_break() {
                    break;
                }
            }
            fold.finish(accumulator)
        });
        (seconds * 1e9 / self.operations, answer)
    }

    /// Millions of operations per second from the file.
    fn rate_from_file<F: Fold>(&self, fold: &F) -> f64 {
        let (seconds, _) = best(self.rounds, || {
            fold_linear(&self.file, fold).expect("sound")
        });
        self.operations / seconds / 1e6
    }

    fn compare<C: Fold, H: Fold<Output = C::Output>>(&self, name: &str, composed: &C, hand: &H)
    where
        C::Output: PartialEq + Debug,
    {
        if !is_wanted(name) {
            return;
        }
        let ((composed_nanos, answer), (hand_nanos, expected)) =
            (self.in_memory(composed), self.in_memory(hand));
        assert_eq!(answer, expected, "{name}");
        println!(
            "{name:<28} composed {composed_nanos:>7.3} ns  by hand {hand_nanos:>7.3} ns  {:>5.2} x  \
             from LZ4 {:>6.2} M/s, by hand {:>6.2} M/s",
            composed_nanos / hand_nanos,
            self.rate_from_file(composed),
            self.rate_from_file(hand),
        );
    }

    fn alone<F: Fold>(&self, name: &str, fold: &F) {
        if !is_wanted(name) {
            return;
        }
        let nanos = self.in_memory(fold).0;
        let rate = self.rate_from_file(fold);
        println!(
            "{name:<28} composed {nanos:>7.3} ns  {:>37} {rate:>6.2} M/s",
            "from LZ4"
        );
    }
}

/// Questions of one column or two.
fn simple(bench: &Bench) {
    let kinds = ops()
        .count_by_kind()
        .post(|kinds| [kinds.invoke(), kinds.ok(), kinds.fail(), kinds.info()]);
    let hand = by_hand(
        || [0; 4],
        |counts: &mut [u64; 4], chunk| {
            for kind in chunk.kinds() {
                counts[*kind as usize] += 1;
            }
        },
    );
    bench.compare("count by type", &kinds, &hand);
    let filtered = ops().filter(|op| op.time() % 2 == 0).count_by_kind();
    let hand = by_hand(
        || [0; 4],
        |counts: &mut [u64; 4], chunk| {
            for (kind, time) in chunk.kinds().iter().zip(chunk.times()) {
                if time % 2 == 0 {
                    counts[*kind as usize] += 1;
                }
            }
        },
    );
    let filtered = filtered.post(|kinds| [kinds.invoke(), kinds.ok(), kinds.fail(), kinds.info()]);
    bench.compare("filter, count by type", &filtered, &hand);
    let ok = ops().filter(|op| op.kind() == OpType::Ok).count();
    let hand = by_hand(
        || 0,
        |count: &mut u64, chunk| {
            *count += chunk
                .kinds()
                .iter()
                .filter(|kind| **kind == OpType::Ok)
                .count() as u64;
        },
    );
    bench.compare("count ok", &ok, &hand);
    let views = by_hand(
        || 0,
        |count: &mut u64, chunk| {
            *count += chunk.views().filter(|op| op.kind() == OpType::Ok).count() as u64;
        },
    );
    bench.compare("count ok, views by hand", &ok, &views);
    let range = ops().map(|op| op.time()).range();
    let hand = by_hand(
        || None,
        |range: &mut Option<(i64, i64)>, chunk| {
            for &time in chunk.times() {
                let (least, greatest) = range.unwrap_or((time, time));
                *range = Some((least.min(time), greatest.max(time)));
            }
        },
    );
    bench.compare("range of times", &range, &hand);
    let sum = ops().of_kind(OpType::Ok).map(|op| op.time()).sum();
    let hand = by_hand(
        || 0,
        |sum: &mut i128, chunk| {
            for (kind, time) in chunk.kinds().iter().zip(chunk.times()) {
                if *kind == OpType::Ok {
                    *sum += i128::from(*time);
                }
            }
        },
    );
    bench.compare("sum of times of ok", &sum, &hand);
}

/// Questions with several answers.
fn grouped(bench: &Bench) {
    let fused = ops().fuse(|ops| {
        let ok = ops.filter(|op| op.kind() == OpType::Ok);
        (
            ok.count(),
            ops.map(|op| op.time()).max(),
            ops.any(|op| op.kind() == OpType::Info),
        )
    });
    let hand = by_hand(
        || (0, None, false),
        |(ok, last, any): &mut (u64, Option<i64>, bool), chunk| {
            for (kind, time) in chunk.kinds().iter().zip(chunk.times()) {
                *ok += u64::from(*kind == OpType::Ok);
                *last = Some(last.map_or(*time, |last| last.max(*time)));
                *any |= *kind == OpType::Info;
            }
        },
    );
    bench.compare("three fused", &fused, &hand);
    let views = by_hand(
        || (0, None, false),
        |(ok, last, any): &mut (u64, Option<i64>, bool), chunk| {
            for op in chunk.views() {
                *ok += u64::from(op.kind() == OpType::Ok);
                *last = Some(last.map_or(op.time(), |last| last.max(op.time())));
                *any |= op.kind() == OpType::Info;
            }
        },
    );
    bench.compare("three fused, views by hand", &fused, &views);
    let by_f = ops().group_by(|op| op.f(), |ops| ops.count());
    let hand = by_hand(
        BTreeMap::new,
        |counts: &mut BTreeMap<Symbol, u64>, chunk| {
            for place in 0..chunk.len() {
                *counts.entry(chunk.f(place)).or_default() += 1;
            }
        },
    );
    bench.compare("group by f, count", &by_f, &hand);
    let by_process = ops().map(|op| op.process()).frequencies();
    let hand = by_hand(
        BTreeMap::new,
        |counts: &mut BTreeMap<Process, u64>, chunk| {
            for place in 0..chunk.len() {
                *counts.entry(chunk.process(place)).or_default() += 1;
            }
        },
    );
    bench.compare("frequencies of processes", &by_process, &hand);
}

/// Latencies by the pair column.
fn paired(bench: &Bench) {
    type Open = BTreeMap<u64, i64>;
    let answers = latencies()
        .map(|latency| latency.nanos())
        .fuse(|nanos| (nanos.count(), nanos.sum(), nanos.max()));
    let start = || ((0, 0, None), Open::new());
    let hand = by_hand(
        start,
        |(answer, open): &mut ((u64, i128, Option<i64>), Open), chunk| {
            let times = chunk.times();
            for (place, &distance) in chunk.pairs().iter().enumerate() {
                let position = chunk.first_position() + place as u64;
                if distance == 0 {
                    open.insert(position, times[place]);
                    continue;
                }
                let invoked = open
                    .remove(&(position - distance as u64))
                    .expect("an invocation");
                let nanos = times[place] - invoked;
                answer.0 += 1;
                answer.1 += i128::from(nanos);
                answer.2 = answer.2.max(Some(nanos));
            }
        },
    );
    let only = ByHandAnswer(hand);
    bench.compare("latency: count, sum, max", &answers, &only);
    bench.alone(
        "latency: quantiles",
        &latencies()
            .map(|latency| latency.nanos())
            .quantiles([0.5, 0.99]),
    );
    let by_f = latencies()
        .filter(|latency| latency.kind() == OpType::Ok)
        .group_by(
            |latency| latency.f(),
            |latencies| {
                latencies
                    .map(|latency| latency.nanos())
                    .quantiles([0.5, 0.99])
            },
        );
    bench.alone("latency: ok, f, quantiles", &by_f);
}

/// The first half of what a fold by hand answers.
struct ByHandAnswer<F>(F);

impl<A: Send, B: Send, F: Fold<Output = (A, B)>> Fold for ByHandAnswer<F> {
    type Accumulator = F::Accumulator;
    type Output = A;

    fn start(&self) -> F::Accumulator {
        self.0.start()
    }

    fn reduce(&self, accumulator: &mut F::Accumulator, chunk: &Chunk) -> ControlFlow<()> {
        self.0.reduce(accumulator, chunk)
    }

    fn combine(&self, accumulator: &mut F::Accumulator, later: F::Accumulator) -> ControlFlow<()> {
        self.0.combine(accumulator, later)
    }

    fn finish(&self, accumulator: F::Accumulator) -> A {
        self.0.finish(accumulator).0
    }
}

/// Ends over plain numbers.
fn numbers(count: u64, rounds: Rounds) {
    let mut rng = Rng::from_seed(5);
    let items: Vec<i64> = (0..count).map(|_| rng.below(1 << 30) as i64).collect();
    let row = |name: &str, seconds: f64| {
        println!(
            "{name:<28} {:>7.3} ns a number",
            seconds * 1e9 / items.len() as f64
        );
    };
    macro_rules! of {
        ($name:expr, $question:expr) => {
            let question = $question;
            if is_wanted($name) {
                let (seconds, _) = best(rounds, || question.of(items.iter().copied()));
                row($name, seconds);
            }
        };
    }
    of!("sum", each::<i64>().sum());
    of!("mean", each::<i64>().mean());
    of!("moments", each::<i64>().moments());
    of!("distribution", each::<i64>().distribution());
    of!("exact quantiles", each::<i64>().exact_quantiles([0.5]));
    of!("top 10", each::<i64>().top(10));
    of!(
        "sample of 100",
        each::<i64>().sample(100, 1, |number| number.cast_unsigned())
    );
    of!(
        "distinct",
        each::<i64>().map(|number| number % 1_000).distinct()
    );
    of!(
        "sum and max, fused",
        query::fuse((each::<i64>().sum(), each::<i64>().max()))
    );
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let count = if is_bench { 196_608 } else { 600 };
    let rounds = Rounds {
        count: if is_bench { 5 } else { 1 },
        seconds_min: if is_bench { 0.2 } else { 0.0 },
    };
    let mut rng = Rng::from_seed(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.sea");
    for (name, list) in [
        ("list-append", list_append(count, &mut rng)),
        ("register", register(count, &mut rng)),
    ] {
        println!("{name}, {count} operations");
        let bench = Bench::new(&path, &list, rounds);
        simple(&bench);
        grouped(&bench);
        paired(&bench);
    }
    numbers(count as u64, rounds);
}
