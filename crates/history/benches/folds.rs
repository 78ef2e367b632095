//! Ten folds over a list-append file, one after the other, each in a pass of its own, together, and one after another
//! into a running pass: `cargo bench -p seatrial-history --bench folds [-- OPERATIONS]`. Without the argument `--bench`
//! everything runs once over a small file. Seconds of processor time of the whole process, decodes per chunk, and wall
//! time; the best of several rounds. Linux only.

#![expect(clippy::disallowed_types, reason = "a bench asks the clock")]

use seatrial_history::chunk::mop_tag;
use seatrial_history::{
    Chunk, Codec, Fold, FoldBatch, Folder, HistoryWriter, Key, Mop, Observed, Op, OpType, Order,
    Process, Symbol, TestFile, Value, WriterOptions, fold_linear,
};
use seatrial_machine::Rng;
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Concurrent processes of the history.
const PROCESSES: usize = 100;

/// A key in use: its list so far, and at how many elements it retires.
struct Live {
    key: i64,
    list: Vec<i64>,
    limit: usize,
}

/// Elle's list-append on a perfect store, as in the bench of the test file: 1 to 8 micro-operations, ten keys with
/// exponential choice, each retired after 128 to 256 elements.
struct Store {
    live: Vec<Live>,
    next_key: i64,
}

impl Store {
    fn new(rng: &mut Rng) -> Store {
        let mut store = Store {
            live: Vec::new(),
            next_key: 0,
        };
        for _ in 0..10 {
            let fresh = store.fresh(rng);
            store.live.push(fresh);
        }
        store
    }

    fn fresh(&mut self, rng: &mut Rng) -> Live {
        self.next_key += 1;
        Live {
            key: self.next_key,
            list: Vec::new(),
            limit: 128 + rng.index(129),
        }
    }

    fn invocation(&mut self, rng: &mut Rng) -> Vec<Mop> {
        let length = 1 + (0..7).filter(|_| rng.chance(3.0 / 7.0)).count();
        let mops = (0..length).map(|_| {
            let place = (rng.word().leading_zeros() as usize).min(9);
            if rng.chance(0.5) {
                let key = Key::Int(self.live[place].key);
                let observed = Observed::Nil;
                return Mop::Read { key, observed };
            }
            if self.live[place].list.len() >= self.live[place].limit {
                self.live[place] = self.fresh(rng);
            }
            let live = &mut self.live[place];
            let element = live.list.len() as i64 + 1;
            live.list.push(element);
            let key = Key::Int(live.key);
            Mop::Append { key, element }
        });
        mops.collect()
    }

    fn completion(&self, mops: &[Mop]) -> Vec<Mop> {
        let mops = mops.iter().map(|mop| match mop {
            Mop::Read { key, .. } => {
                let seen = self.live.iter().find(|live| Key::Int(live.key) == *key);
                let seen = seen.map_or(&[][..], |live| &live.list);
                let observed = Observed::List(seen.into());
                let key = key.clone();
                Mop::Read { key, observed }
            }
            write => write.clone(),
        });
        mops.collect()
    }
}

/// Writes a history of `count` operations.
fn write(path: &Path, count: u64, codec: Codec) -> TestFile {
    let _ = std::fs::remove_file(path);
    let options = WriterOptions {
        codec,
        ..WriterOptions::default()
    };
    let attributes = json!({"name": "folds"});
    let mut writer = HistoryWriter::create_with(path, &attributes, options).expect("a new file");
    let mut rng = Rng::from_seed(1);
    let mut store = Store::new(&mut rng);
    let mut open: Vec<Option<Op>> = (0..PROCESSES).map(|_| None).collect();
    let mut time = 0;
    for index in 0..count {
        time += rng.below(40_000) as i64;
        let number = rng.index(PROCESSES);
        let op = if let Some(invocation) = open[number].take() {
            let mops = invocation.value.as_txn().unwrap_or_default();
            let value = Value::Txn(store.completion(mops).into());
            let kind = match rng.below(50) {
                0 => OpType::Info,
                1 | 2 => OpType::Fail,
                _ => OpType::Ok,
            };
            invocation.complete(kind, value)
        } else {
            let value = Value::Txn(store.invocation(&mut rng).into());
            let op = Op::invoke(Process::Client(number as u64), "txn", value);
            open[number] = Some(op.clone());
            op
        };
        writer
            .push(&Op { index, time, ..op })
            .expect("space for it");
    }
    writer.seal().expect("space for it");
    TestFile::open(path).expect("what was written")
}

/// A fold of plain functions. Its answer is text, so that different ones can be compared.
struct Plain<A> {
    name: &'static str,
    order: Order,
    start: fn() -> A,
    reduce: fn(&mut A, &Chunk),
    combine: fn(&mut A, A),
    finish: fn(A) -> u64,
}

impl<A> Clone for Plain<A> {
    fn clone(&self) -> Self {
        Plain { ..*self }
    }
}

impl<A: Send> Fold for Plain<A> {
    type Accumulator = A;
    type Output = u64;
    fn name(&self) -> String {
        self.name.to_owned()
    }
    fn order(&self) -> Order {
        self.order
    }
    fn start(&self) -> A {
        (self.start)()
    }
    fn reduce(&self, accumulator: &mut A, chunk: &Chunk) -> ControlFlow<()> {
        (self.reduce)(accumulator, chunk);
        ControlFlow::Continue(())
    }
    fn combine(&self, accumulator: &mut A, later: A) -> ControlFlow<()> {
        (self.combine)(accumulator, later);
        ControlFlow::Continue(())
    }
    fn finish(&self, accumulator: A) -> u64 {
        (self.finish)(accumulator)
    }
}

/// Mixes numbers into one.
fn digest(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mix =
        |sum: u64, number: u64| (sum.rotate_left(7) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    numbers.into_iter().fold(1, mix)
}

fn add(sums: &mut Vec<u64>, counts: &[u64]) {
    if sums.len() < counts.len() {
        sums.resize(counts.len(), 0);
    }
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

fn count_at(counts: &mut Vec<u64>, place: usize) {
    if counts.len() <= place {
        counts.resize(place + 1, 0);
    }
    counts[place] += 1;
}

/// Counts in a vector.
fn counts(name: &'static str, reduce: fn(&mut Vec<u64>, &Chunk)) -> Plain<Vec<u64>> {
    Plain {
        name,
        order: Order::Associative,
        start: Vec::new,
        reduce,
        combine: |sums, later| add(sums, &later),
        finish: digest,
    }
}

type PerKey = BTreeMap<Key, u64>;

/// A number for each key, which grows.
fn per_key(
    name: &'static str,
    reduce: fn(&mut PerKey, &Chunk),
    combine: fn(&mut PerKey, PerKey),
) -> Plain<PerKey> {
    Plain {
        name,
        order: Order::Concurrent,
        start: PerKey::new,
        reduce,
        combine,
        finish: |keys| digest(keys.into_values()),
    }
}

/// Times of the last operations, and completions whose invocations are before the chunks seen.
#[derive(Default)]
struct Latencies {
    histogram: Vec<u64>,
    /// Position of the first operation seen, and one past the last.
    range: (u64, u64),
    last_times: Vec<i64>,
    unresolved: Vec<(u64, i64)>,
}

/// Invocations are searched this many operations back.
const TIMES_KEPT: usize = 16_384;

impl Latencies {
    fn resolve(&mut self, unresolved: Vec<(u64, i64)>) {
        for (position, time) in unresolved {
            let first_kept = self.range.1 - self.last_times.len() as u64;
            if position >= first_kept {
                let latency = time - self.last_times[(position - first_kept) as usize];
                count_at(&mut self.histogram, bucket(latency));
            } else if position < self.range.0 {
                self.unresolved.push((position, time));
            }
        }
    }

    fn follow(&mut self, times: &[i64], end: u64) {
        self.last_times.extend_from_slice(times);
        let surplus = self.last_times.len().saturating_sub(TIMES_KEPT);
        self.last_times.drain(..surplus);
        self.range.1 = end;
    }

    fn reduce(&mut self, chunk: &Chunk) {
        let first = chunk.first_position();
        if self.last_times.is_empty() {
            self.range = (first, first);
        }
        let mut before = Vec::new();
        let times = chunk.times();
        for (place, (&distance, &time)) in chunk.pairs().iter().zip(times).enumerate() {
            if distance > 0 {
                match place.checked_sub(distance as usize) {
                    Some(other) => count_at(&mut self.histogram, bucket(time - times[other])),
                    None => before.push((first + place as u64 - distance as u64, time)),
                }
            }
        }
        self.resolve(before);
        self.follow(times, first + chunk.len() as u64);
    }

    fn combine(&mut self, later: Latencies) {
        add(&mut self.histogram, &later.histogram);
        self.resolve(later.unresolved);
        self.follow(&later.last_times, later.range.1);
    }
}

/// Four buckets for each doubling.
fn bucket(nanos: i64) -> usize {
    let nanos = nanos.max(4).cast_unsigned();
    let power = nanos.ilog2();
    (power as usize) * 4 + ((nanos >> (power - 2)) & 3) as usize
}

fn latencies() -> Plain<Latencies> {
    Plain {
        name: "latency histogram",
        order: Order::Concurrent,
        start: Latencies::default,
        reduce: Latencies::reduce,
        combine: Latencies::combine,
        finish: |latencies| digest(latencies.histogram),
    }
}

/// Type by f.
fn by_f() -> Plain<BTreeMap<(Symbol, u8), u64>> {
    Plain {
        name: "type by f",
        order: Order::Associative,
        start: BTreeMap::new,
        reduce: |sums, chunk| {
            let mut of_chunk: Vec<((Symbol, u8), u64)> = Vec::new();
            for (place, kind) in chunk.kinds().iter().enumerate() {
                let asked = (chunk.f(place), *kind as u8);
                match of_chunk.iter_mut().find(|(known, _)| *known == asked) {
                    Some((_, count)) => *count += 1,
                    None => of_chunk.push((asked, 1)),
                }
            }
            for (key, count) in of_chunk {
                *sums.entry(key).or_default() += count;
            }
        },
        combine: |sums, later| {
            for (key, count) in later {
                *sums.entry(key).or_default() += count;
            }
        },
        finish: |sums| digest(sums.into_values()),
    }
}

/// The linear one: how many transactions are open at a time.
fn open_transactions() -> Plain<(BTreeMap<Process, u64>, Vec<u64>)> {
    Plain {
        name: "open transactions",
        order: Order::Linear,
        start: Default::default,
        reduce: |(open, histogram), chunk| {
            for (place, kind) in chunk.kinds().iter().enumerate() {
                if *kind == OpType::Invoke {
                    open.insert(chunk.process(place), place as u64);
                } else {
                    open.remove(&chunk.process(place));
                }
                count_at(histogram, open.len());
            }
        },
        combine: |_, _| unreachable!("it is linear"),
        finish: |(_, histogram)| digest(histogram),
    }
}

/// The numbers of each key of a chunk are kept by its id, then joined.
fn join(keys: &mut PerKey, chunk: &Chunk, numbers: &[u64], join: fn(&mut u64, u64)) {
    for (id, &number) in numbers.iter().enumerate() {
        if number > 0 {
            join(
                keys.entry(chunk.key(id as u32).clone()).or_default(),
                number,
            );
        }
    }
}

/// Calls `visit` with the tag, key id and argument of each micro-operation of the operations of this type.
fn each_mop(chunk: &Chunk, kind: OpType, mut visit: impl FnMut(u8, u32, i64)) {
    let (tags, keys, arguments) = (chunk.mop_tags(), chunk.mop_keys(), chunk.mop_arguments());
    for (window, &found) in chunk.mop_starts().windows(2).zip(chunk.kinds()) {
        if found == kind {
            for number in window[0] as usize..window[1] as usize {
                visit(tags[number], keys[number], arguments[number]);
            }
        }
    }
}

fn appends_per_key() -> Plain<PerKey> {
    let sum = |keys: &mut PerKey, later: PerKey| {
        for (key, count) in later {
            *keys.entry(key).or_default() += count;
        }
    };
    let reduce = |keys: &mut PerKey, chunk: &Chunk| {
        let mut numbers = vec![0; chunk.key_count()];
        each_mop(chunk, OpType::Ok, |tag, key, _| {
            numbers[key as usize] += u64::from(tag == mop_tag::APPEND);
        });
        join(keys, chunk, &numbers, |sum, count| *sum += count);
    };
    per_key("appends per key", reduce, sum)
}

fn longest_reads() -> Plain<PerKey> {
    let longest = |keys: &mut PerKey, later: PerKey| {
        for (key, length) in later {
            let known = keys.entry(key).or_default();
            *known = length.max(*known);
        }
    };
    let reduce = |keys: &mut PerKey, chunk: &Chunk| {
        let mut numbers: Vec<u64> = vec![0; chunk.key_count()];
        each_mop(chunk, OpType::Ok, |tag, key, argument| {
            let length = match tag {
                mop_tag::READ_PREFIX => argument.cast_unsigned(),
                mop_tag::READ_BRANCH => chunk.reference(argument).len() as u64,
                _ => 0,
            };
            let known = &mut numbers[key as usize];
            *known = length.max(*known);
        });
        join(keys, chunk, &numbers, |known, length| {
            *known = length.max(*known);
        });
    };
    per_key("longest read per key", reduce, longest)
}

fn type_counts() -> Plain<Vec<u64>> {
    counts("type counts", |sums, chunk| {
        let mut of_chunk = [0; 4];
        for kind in chunk.kinds() {
            of_chunk[*kind as usize] += 1;
        }
        add(sums, &of_chunk);
    })
}

fn rates() -> Plain<Vec<u64>> {
    counts("rate by second", |sums, chunk| {
        for time in chunk.times() {
            count_at(sums, (time / 1_000_000_000) as usize);
        }
    })
}

fn lengths() -> Plain<Vec<u64>> {
    counts("transaction lengths", |sums, chunk| {
        for window in chunk.mop_starts().windows(2) {
            count_at(sums, (window[1] - window[0]) as usize);
        }
    })
}

fn by_process() -> Plain<Vec<u64>> {
    counts("operations by process", |sums, chunk| {
        let mut of_chunk = vec![0; chunk.processes().len()];
        for id in chunk.process_ids() {
            of_chunk[*id as usize] += 1;
        }
        for (process, count) in chunk.processes().iter().zip(of_chunk) {
            if let Process::Client(number) = *process {
                let place = number as usize;
                sums.resize(sums.len().max(place + 1), 0);
                sums[place] += count;
            }
        }
    })
}

/// Elements of failed transactions, by key: what an aborted read would see.
fn failed_appends() -> Plain<BTreeMap<Key, Vec<i64>>> {
    Plain {
        name: "failed appends",
        order: Order::Concurrent,
        start: BTreeMap::new,
        reduce: |keys, chunk| {
            each_mop(chunk, OpType::Fail, |tag, key, element| {
                if tag == mop_tag::APPEND {
                    keys.entry(chunk.key(key).clone())
                        .or_default()
                        .push(element);
                }
            });
        },
        combine: |keys, later| {
            for (key, elements) in later {
                keys.entry(key).or_default().extend(elements);
            }
        },
        finish: |keys| {
            let elements = keys.into_values().flatten();
            digest(elements.map(i64::cast_unsigned))
        },
    }
}

/// One of the ten, whatever its accumulator is.
trait Question: Send + Sync {
    fn name(&self) -> &'static str;
    /// In this thread, in a pass of its own.
    fn alone(&self, file: &TestFile) -> u64;
    /// Into what the folder does; the answer can be waited for.
    fn submit(&self, folder: &Folder<TestFile>) -> Waiting;
    fn add(&self, batch: &mut FoldBatch<'_, TestFile>) -> Waiting;
}

type Waiting = Box<dyn FnOnce() -> u64>;

impl<A: Send + 'static> Question for Plain<A> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn alone(&self, file: &TestFile) -> u64 {
        fold_linear(file, self).expect("sound")
    }
    fn submit(&self, folder: &Folder<TestFile>) -> Waiting {
        let folding = folder.submit(self.clone());
        Box::new(|| folding.wait().expect("sound"))
    }
    fn add(&self, batch: &mut FoldBatch<'_, TestFile>) -> Waiting {
        let folding = batch.submit(self.clone());
        Box::new(|| folding.wait().expect("sound"))
    }
}

type Ten = Vec<Box<dyn Question>>;

fn ten() -> Ten {
    vec![
        Box::new(type_counts()),
        Box::new(by_f()),
        Box::new(latencies()),
        Box::new(rates()),
        Box::new(lengths()),
        Box::new(appends_per_key()),
        Box::new(longest_reads()),
        Box::new(failed_appends()),
        Box::new(by_process()),
        Box::new(open_transactions()),
    ]
}

/// Seconds of processor time of this process, to the hundredth.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>());
    ticks.map(|ticks| ticks.expect("a number")).sum::<u64>() as f64 / 100.0
}

/// What one way took.
#[derive(Clone, Copy)]
struct Taken {
    processor_seconds: f64,
    wall_seconds: f64,
    /// Per chunk.
    decodes: f64,
}

/// A way to get ten answers, and how many chunks it decoded.
type Way<'a> = &'a dyn Fn() -> (Vec<u64>, u64);

/// The round with the least processor time, and the median of the decodes. The answers must be these.
fn measure(rounds: usize, chunks: u64, expected: &[u64], way: Way<'_>) -> Taken {
    let mut all: Vec<Taken> = (0..rounds)
        .map(|_| {
            let (begun, started) = (processor_seconds(), Instant::now());
            let (answers, decodes) = way();
            let wall_seconds = started.elapsed().as_secs_f64();
            let processor_seconds = processor_seconds() - begun;
            assert_eq!(answers, expected);
            Taken {
                processor_seconds,
                wall_seconds,
                decodes: decodes as f64 / chunks as f64,
            }
        })
        .collect();
    all.sort_by(|a, b| a.decodes.total_cmp(&b.decodes));
    let least = |of: fn(&Taken) -> f64| all.iter().map(of).fold(f64::INFINITY, f64::min);
    Taken {
        processor_seconds: least(|taken| taken.processor_seconds),
        wall_seconds: least(|taken| taken.wall_seconds),
        decodes: all[rounds / 2].decodes,
    }
}

fn together(file: &Arc<TestFile>, ten: &Ten, threads: usize) -> (Vec<u64>, u64) {
    let folder = Folder::new(file.clone(), threads);
    let waiting: Vec<_> =
        folder.together(|batch| ten.iter().map(|question| question.add(batch)).collect());
    let answers = waiting.into_iter().map(|wait| wait()).collect();
    (answers, folder.statistics().chunks_decoded)
}

/// One more after each tenth of the chunks of a lap was decoded.
fn staggered(file: &Arc<TestFile>, ten: &Ten, threads: usize) -> (Vec<u64>, u64) {
    let folder = Folder::new(file.clone(), threads);
    let decoded = || folder.statistics().chunks_decoded;
    let mut waiting = Vec::new();
    for (place, question) in ten.iter().enumerate() {
        waiting.push(question.submit(&folder));
        let next = (place as u64 + 1) * file.chunk_count() / 11;
        while place + 1 < ten.len() && decoded() < next {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let answers = waiting.into_iter().map(|wait| wait()).collect();
    (answers, decoded())
}

fn in_threads(file: &Arc<TestFile>, ten: &Ten) -> (Vec<u64>, u64) {
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = ten
            .iter()
            .map(|question| scope.spawn(|| question.alone(file)))
            .collect();
        let answers = threads.into_iter().map(|thread| thread.join());
        answers.map(|answer| answer.expect("no panic")).collect()
    });
    (answers, 10 * file.chunk_count())
}

fn compare(file: &Arc<TestFile>, codec: Codec, rounds: usize) {
    let ten = ten();
    let (chunks, count) = (file.chunk_count(), file.len() as f64);
    let serial = || ten.iter().map(|question| question.alone(file)).collect();
    let expected: Vec<u64> = serial();
    let ways: [(&str, Way<'_>); 6] = [
        ("one after the other", &|| (serial(), 10 * chunks)),
        ("ten threads, ten passes", &|| in_threads(file, &ten)),
        ("together, one worker", &|| together(file, &ten, 1)),
        ("together, two workers", &|| together(file, &ten, 2)),
        ("staggered, one worker", &|| staggered(file, &ten, 1)),
        ("staggered, two workers", &|| staggered(file, &ten, 2)),
    ];
    let mut serial_seconds = None;
    for (name, way) in ways {
        let taken = measure(rounds, chunks, &expected, way);
        let seconds = taken.processor_seconds;
        let ratio = seconds / *serial_seconds.get_or_insert(seconds);
        println!(
            "{:<5} {name:<24} {seconds:>6.2} s of processor ({ratio:>4.2} of serial) {:>6.2} M op*fold/s  \
             {:>5.2} decodes/chunk  {:>6.2} s",
            format!("{codec:?}").to_lowercase(),
            10.0 * count / seconds / 1e6,
            taken.decodes,
            taken.wall_seconds,
        );
    }
}

/// Each of the ten alone.
fn single(file: &Arc<TestFile>, rounds: usize) {
    for question in ten() {
        let expected = [question.alone(file)];
        let way = || (vec![question.alone(file)], file.chunk_count());
        let taken = measure(rounds, file.chunk_count(), &expected, &way);
        println!(
            "      alone: {:<22} {:>6.2} s",
            question.name(),
            taken.processor_seconds
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let asked = arguments.find_map(|argument| argument.parse().ok());
    let count: u64 = asked.unwrap_or(if is_bench { 4_000_000 } else { 50_000 });
    let rounds = if is_bench { 5 } else { 1 };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.sea");
    for codec in [Codec::Lz4, Codec::None, Codec::Zstd] {
        let file = Arc::new(write(&path, count, codec));
        if codec == Codec::Lz4 {
            println!("{count} operations, {} chunks", file.chunk_count());
            single(&file, rounds);
        }
        compare(&file, codec, rounds);
        drop(file);
    }
}
