//! The folder under load: order and exactly-once are asserted inside of the folds, answers against a plain loop.

use super::super::matrix::{FOLDS_LIVE_MAX, WINDOW_CHUNKS};
use super::super::{Order, fold_linear};
use super::*;
use crate::chunk::Chunk;
use crate::store::ChunkBuffer;
use seatrial_machine::Rng;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

/// A chunk that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("chunk {0} is broken")]
struct UnreadableChunk(u64);

/// Chunks that hold nothing but their number.
struct NumberedChunks {
    count: u64,
    damaged: Vec<u64>,
    /// A read of this chunk panics.
    panics_at: Option<u64>,
    reads: AtomicU64,
    readers: AtomicUsize,
    readers_max: AtomicUsize,
    /// Microseconds that a read takes at most.
    pause_us: u64,
    /// Reads of this and later chunks block until the gate is opened.
    gate_at: u64,
    /// Is a reader there, is it open?
    gate: Mutex<(bool, bool)>,
    gate_changed: Condvar,
}

impl NumberedChunks {
    fn new(count: u64) -> NumberedChunks {
        NumberedChunks {
            count,
            damaged: Vec::new(),
            panics_at: None,
            reads: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            readers_max: AtomicUsize::new(0),
            pause_us: 0,
            gate_at: u64::MAX,
            gate: Mutex::new((false, false)),
            gate_changed: Condvar::new(),
        }
    }

    fn gated(count: u64, gate_at: u64) -> NumberedChunks {
        NumberedChunks {
            gate_at,
            ..NumberedChunks::new(count)
        }
    }

    /// Runs `act` while a reader is at the gate, then opens it.
    fn at_gate<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut gate = self.gate.lock().unwrap();
        while !gate.0 {
            gate = self.gate_changed.wait(gate).unwrap();
        }
        drop(gate);
        let result = act();
        self.gate.lock().unwrap().1 = true;
        self.gate_changed.notify_all();
        result
    }

    fn pass(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.0 = true;
        self.gate_changed.notify_all();
        while !gate.1 {
            gate = self.gate_changed.wait(gate).unwrap();
        }
    }

    fn slow(count: u64) -> NumberedChunks {
        NumberedChunks {
            pause_us: 300,
            ..NumberedChunks::new(count)
        }
    }
}

impl Chunks for NumberedChunks {
    type Error = UnreadableChunk;
    fn chunk_count(&self) -> u64 {
        self.count
    }
    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, UnreadableChunk> {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        let readers = self.readers.fetch_add(1, Ordering::Relaxed) + 1;
        self.readers_max.fetch_max(readers, Ordering::Relaxed);
        if self.pause_us > 0 {
            let pause = (reads * 7_919) % self.pause_us;
            std::thread::sleep(Duration::from_micros(pause));
        }
        if number >= self.gate_at {
            self.pass();
        }
        self.readers.fetch_sub(1, Ordering::Relaxed);
        assert_ne!(Some(number), self.panics_at, "as asked for");
        if self.damaged.contains(&number) {
            return Err(UnreadableChunk(number));
        }
        buffer.chunk = Chunk::numbered(number);
        Ok(Some(&buffer.chunk))
    }
}

/// Lists the chunks that it reduces, and asserts the guarantees of [`Fold`].
#[derive(Clone, Debug, Default)]
struct Visits {
    order: Order,
    asap: bool,
    breaks_at: Option<u64>,
    panics_at: Option<u64>,
    panics_combining: Option<u64>,
    panics_finishing: bool,
    pause_us: u64,
    /// Running combines: one at a time unless the fold is associative.
    combining: Arc<AtomicUsize>,
    /// Priority of each finished fold, in the order in which they finish.
    finished: Arc<Mutex<Vec<bool>>>,
}

impl Fold for Visits {
    type Accumulator = Vec<u64>;
    type Output = Vec<u64>;
    fn name(&self) -> String {
        format!("visits-{:?}", self.order)
    }
    fn order(&self) -> Order {
        self.order
    }
    fn asap(&self) -> bool {
        self.asap
    }
    fn start(&self) -> Vec<u64> {
        Vec::new()
    }
    fn reduce(&self, seen: &mut Vec<u64>, chunk: &Chunk) -> ControlFlow<()> {
        let number = chunk.first_position();
        if self.pause_us > 0 {
            std::thread::sleep(Duration::from_micros(self.pause_us));
        }
        assert_ne!(Some(number), self.panics_at, "reduce of {number}");
        if self.order == Order::Linear {
            assert_eq!(number, seen.len() as u64, "linear, in order");
        } else if let Some(last) = seen.last() {
            assert_eq!(number, last + 1, "only in one thread");
        }
        seen.push(number);
        if Some(number) == self.breaks_at {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
    fn combine(&self, seen: &mut Vec<u64>, later: Vec<u64>) -> ControlFlow<()> {
        let combining = self.combining.fetch_add(1, Ordering::SeqCst);
        assert_ne!(self.order, Order::Linear);
        if self.order == Order::Concurrent {
            assert_eq!(combining, 0, "one at a time");
            assert_eq!(seen[0], 0, "from the front");
            assert_eq!(later.len(), 1);
        }
        let next = seen.last().unwrap() + 1;
        assert_eq!(later[0], next, "neighbours, in order");
        seen.extend(later);
        self.combining.fetch_sub(1, Ordering::SeqCst);
        assert_ne!(Some(next), self.panics_combining, "combine with {next}");
        ControlFlow::Continue(())
    }
    fn finish(&self, seen: Vec<u64>) -> Vec<u64> {
        assert!(!self.panics_finishing, "in the end");
        self.finished.lock().unwrap().push(self.asap);
        seen
    }
}

const ORDERS: [Order; 3] = [Order::Linear, Order::Concurrent, Order::Associative];

fn visits(order: Order) -> Visits {
    Visits {
        order,
        ..Visits::default()
    }
}

/// Computes the fold's outcome from the rules, without running it.
fn expected(fold: &Visits, chunks: &NumberedChunks) -> Result<Vec<u64>, String> {
    let mut seen = Vec::new();
    for number in 0..chunks.count {
        if chunks.damaged.contains(&number) {
            return Err(format!("chunk {number} cannot be read"));
        }
        if chunks.panics_at == Some(number) {
            return Err("as asked for".into());
        }
        if fold.panics_at == Some(number) {
            return Err(format!("reduce of {number}"));
        }
        seen.push(number);
        if fold.breaks_at == Some(number) {
            break;
        }
    }
    if fold.panics_finishing {
        return Err("in the end".into());
    }
    Ok(seen)
}

fn check(
    answer: Result<Vec<u64>, FoldError<UnreadableChunk>>,
    expected: Result<Vec<u64>, String>,
    context: &dyn std::fmt::Debug,
) {
    match (answer, expected) {
        (Ok(seen), Ok(twin)) => assert_eq!(seen, twin, "{context:?}"),
        (Err(error), Err(text)) => {
            assert!(error.to_string().contains(&text), "{error}: {context:?}");
        }
        (answer, expected) => panic!("{answer:?} instead of {expected:?}: {context:?}"),
    }
}

fn random_fold(rng: &mut Rng, count: u64) -> Visits {
    let at = |rng: &mut Rng, probability: f64| rng.chance(probability).then(|| rng.below(count));
    Visits {
        order: *rng.pick(&ORDERS),
        asap: rng.chance(0.1),
        breaks_at: at(rng, 0.25),
        panics_at: at(rng, 0.1),
        panics_finishing: rng.chance(0.03),
        ..Visits::default()
    }
}

/// One round: folds of all kinds, submitted at random moments; some are cancelled.
fn round(seed: u64) -> (u64, u64) {
    let mut rng = Rng::from_seed(seed);
    let count = 100 + rng.below(60);
    let mut chunks = NumberedChunks::new(count);
    chunks.pause_us = 40;
    if rng.chance(0.3) {
        chunks.damaged = (0..3).map(|_| rng.below(count)).collect();
    }
    let chunks = Arc::new(chunks);
    let threads = 1 + rng.index(4);
    let folder = Folder::new(chunks.clone(), threads);
    let folds = 1 + rng.index(60);
    let mut waiting = Vec::new();
    for _ in 0..folds {
        let fold = random_fold(&mut rng, count);
        let folding = folder.submit(fold.clone());
        let is_cancelled = rng.chance(0.1);
        if is_cancelled {
            folding.cancel();
        }
        waiting.push((fold, folding, is_cancelled));
        if rng.chance(0.5) {
            std::thread::sleep(Duration::from_micros(rng.below(600)));
        }
    }
    for (fold, folding, is_cancelled) in waiting {
        match folding.wait() {
            Err(FoldError::Cancelled { .. }) if is_cancelled => {}
            answer => check(answer, expected(&fold, &chunks), &(seed, threads, fold)),
        }
    }
    let statistics = folder.statistics();
    let ended = statistics.folds_answered + statistics.folds_failed;
    assert_eq!(ended, folds as u64, "seed {seed}");
    assert!(statistics.parts_waiting_max as u64 <= count, "seed {seed}");
    assert!(chunks.readers_max.load(Ordering::Relaxed) <= threads);
    let reads = chunks.reads.load(Ordering::Relaxed);
    // A worker may still read for folds that have ended.
    let under_way = reads - statistics.chunks_decoded;
    assert!(under_way <= threads as u64, "seed {seed}: {under_way}");
    (statistics.chunks_decoded, statistics.chunks_reduced)
}

#[test]
fn every_fold_sees_what_it_needs_once_and_in_order() {
    let (mut decoded, mut reduced) = (0, 0);
    for seed in 0..60 {
        let (of_round, shared) = round(seed);
        decoded += of_round;
        reduced += shared;
    }
    // Folds that end early or late make it more than one decode for twenty.
    assert!(decoded * 4 < reduced, "{decoded} decodes for {reduced}");
}

/// Chunks that ten folds of all orders decode which were submitted together.
fn decodes_together(threads: usize) -> u64 {
    let chunks = Arc::new(NumberedChunks::slow(200));
    let folder = Folder::new(chunks.clone(), threads);
    let foldings = folder.together(|batch| {
        let folds = (0..10).map(|place| batch.submit(visits(ORDERS[place % 3])));
        folds.collect::<Vec<_>>()
    });
    for folding in foldings {
        assert!(folding.wait().unwrap().into_iter().eq(0..200));
    }
    let statistics = folder.statistics();
    assert_eq!(statistics.chunks_reduced, 2_000);
    assert_eq!(statistics.folds_answered, 10);
    statistics.chunks_decoded
}

#[test]
fn folds_submitted_together_share_every_chunk() {
    for threads in [1, 2, 4] {
        // A worker that the system puts to sleep with the chunk that a linear fold needs next lets the others run
        // ahead; it does not happen every time.
        let attempts = if threads == 1 { 1 } else { 10 };
        let decodes: Vec<u64> = (0..attempts).map(|_| decodes_together(threads)).collect();
        assert!(decodes.iter().all(|&decodes| decodes >= 200));
        let is_shared = decodes.iter().any(|decodes| *decodes <= 220);
        assert!(is_shared, "{threads} threads: {decodes:?}");
    }
}

#[test]
fn a_late_fold_joins_and_gets_what_it_missed_afterwards() {
    let late = |order: Order, decodes_max: u64| {
        let chunks = Arc::new(NumberedChunks::gated(200, 100));
        let folder = Folder::new(chunks.clone(), 1);
        let first = folder.submit(visits(order));
        let second = chunks.at_gate(|| folder.submit(visits(order)));
        assert_eq!(second.wait().unwrap().len(), 200);
        assert_eq!(first.wait().unwrap().len(), 200);
        let decoded = folder.statistics().chunks_decoded;
        assert!(
            (300..=decodes_max).contains(&decoded),
            "{order:?}: {decoded}"
        );
    };
    // Ordered folds: the late one starts at chunk 0, and the first one advances a little meanwhile.
    late(Order::Linear, 360);
    late(Order::Concurrent, 360);
    late(Order::Associative, 301);
}

/// Counts chunks; its first chunk is slow.
struct SlowStart(AtomicU64);
impl Fold for SlowStart {
    type Accumulator = u64;
    type Output = u64;
    fn start(&self) -> u64 {
        0
    }
    fn reduce(&self, count: &mut u64, chunk: &Chunk) -> ControlFlow<()> {
        if chunk.first_position() == 0 {
            std::thread::sleep(Duration::from_millis(60));
            assert!(self.0.load(Ordering::Relaxed) < WINDOW_CHUNKS);
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        *count += 1;
        ControlFlow::Continue(())
    }
    fn combine(&self, count: &mut u64, later: u64) -> ControlFlow<()> {
        *count += later;
        ControlFlow::Continue(())
    }
    fn finish(&self, count: u64) -> u64 {
        count
    }
}

#[test]
fn waiting_parts_are_bounded_by_the_window() {
    let chunks = Arc::new(NumberedChunks::new(1_000));
    let folder = Folder::new(chunks, 4);
    let slow = folder.submit(SlowStart(AtomicU64::new(0)));
    let late = folder.submit(visits(Order::Concurrent));
    assert_eq!(slow.wait().unwrap(), 1_000);
    assert_eq!(late.wait().unwrap().len(), 1_000);
    let waiting = folder.statistics().parts_waiting_max;
    assert!((2..=WINDOW_CHUNKS as usize).contains(&waiting), "{waiting}");
}

#[test]
fn an_associative_fold_that_comes_late_keeps_one_part_per_gap() {
    let chunks = Arc::new(NumberedChunks::gated(400, 200));
    let folder = Folder::new(chunks.clone(), 2);
    let first = folder.submit(visits(Order::Associative));
    let second = chunks.at_gate(|| folder.submit(visits(Order::Associative)));
    assert_eq!(first.wait().unwrap().len(), 400);
    assert_eq!(second.wait().unwrap().len(), 400);
    let waiting = folder.statistics().parts_waiting_max;
    assert!((1..=4).contains(&waiting), "{waiting}");
}

#[test]
fn the_first_damaged_chunk_is_reported_unless_the_fold_ends_before() {
    for (threads, order) in [1, 2, 4].into_iter().flat_map(|n| ORDERS.map(|o| (n, o))) {
        let mut chunks = NumberedChunks::slow(100);
        chunks.damaged = vec![40, 41, 42, 99];
        let folder = Folder::new(Arc::new(chunks), threads);
        let fold = Visits {
            breaks_at: Some(39),
            ..visits(order)
        };
        let (ends, fails) =
            folder.together(|batch| (batch.submit(fold), batch.submit(visits(order))));
        assert_eq!(ends.wait().unwrap().len(), 40);
        let error = fails.wait().unwrap_err();
        let FoldError::Chunk {
            chunk,
            source,
            fold,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*chunk, &**source), (40, &UnreadableChunk(40)));
        assert_eq!(*fold, format!("visits-{order:?}"));
        let text = format!("fold visits-{order:?}: chunk 40 cannot be read");
        for error in [error.clone(), error] {
            let cause = std::error::Error::source(&error).unwrap();
            assert_eq!(error.to_string(), text);
            assert_eq!(cause.to_string(), "chunk 40 is broken");
        }
    }
}

#[test]
fn a_panic_fails_its_own_fold_alone_and_its_message_is_kept() {
    for threads in [1, 3] {
        let folder = Folder::new(Arc::new(NumberedChunks::new(100)), threads);
        let mut folds = Vec::new();
        for order in ORDERS {
            for at in [0, 1, 50, 99] {
                let panics_at = Some(at);
                folds.push((
                    format!("reduce of {at}"),
                    Visits {
                        panics_at,
                        ..visits(order)
                    },
                ));
            }
            let panics_finishing = true;
            folds.push((
                "in the end".into(),
                Visits {
                    panics_finishing,
                    ..visits(order)
                },
            ));
            folds.push((String::new(), visits(order)));
        }
        let panics_combining = Some(7);
        let fold = Visits {
            panics_combining,
            ..visits(Order::Concurrent)
        };
        folds.push(("combine with 7".into(), fold));
        let foldings = folder.together(|batch| {
            let submitted = folds
                .into_iter()
                .map(|(text, fold)| (text, batch.submit(fold)));
            submitted.collect::<Vec<_>>()
        });
        for (text, folding) in foldings {
            match folding.wait() {
                Ok(seen) => assert_eq!((seen.len(), &*text), (100, "")),
                Err(FoldError::Panicked { message, .. }) => {
                    assert!(
                        !text.is_empty() && message.contains(&text),
                        "{message}: {text}"
                    );
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(folder.fold(visits(Order::Linear)).unwrap().len(), 100);
    }
}

/// Panics at once, with a payload that is no text; or when an accumulator is dropped.
struct Rude {
    starts: bool,
}

struct Sticky(bool);

impl Drop for Sticky {
    fn drop(&mut self) {
        assert!(!self.0, "dropped");
    }
}

impl Fold for Rude {
    type Accumulator = Sticky;
    type Output = ();
    fn start(&self) -> Sticky {
        if !self.starts {
            std::panic::panic_any(7);
        }
        Sticky(false)
    }
    fn reduce(&self, part: &mut Sticky, chunk: &Chunk) -> ControlFlow<()> {
        part.0 = chunk.first_position() > 3;
        if chunk.first_position() == 3 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
    fn combine(&self, _: &mut Sticky, _: Sticky) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn finish(&self, _: Sticky) {}
}

#[test]
fn rude_folds_do_not_end_workers() {
    let folder = Folder::new(Arc::new(NumberedChunks::slow(50)), 3);
    for _ in 0..10 {
        let error = folder.fold(Rude { starts: false }).unwrap_err();
        assert!(
            error.to_string().ends_with("panicked: no message"),
            "{error}"
        );
        folder.fold(Rude { starts: true }).unwrap();
        assert_eq!(folder.fold(visits(Order::Concurrent)).unwrap().len(), 50);
    }
}

#[test]
fn a_panic_of_the_reader_fails_the_folds_that_need_the_chunk() {
    let mut chunks = NumberedChunks::new(20);
    chunks.panics_at = Some(5);
    let folder = Folder::new(Arc::new(chunks), 2);
    for order in ORDERS {
        let error = folder.fold(visits(order)).unwrap_err();
        assert!(error.to_string().contains("as asked for"), "{error}");
        let breaks_at = Some(4);
        let fold = Visits {
            breaks_at,
            ..visits(order)
        };
        assert_eq!(folder.fold(fold).unwrap().len(), 5);
    }
}

#[test]
fn more_folds_than_can_live_queue() {
    let folder = Folder::new(Arc::new(NumberedChunks::slow(30)), 2);
    let count = 3 * FOLDS_LIVE_MAX + 5;
    let foldings: Vec<_> = (0..count)
        .map(|place| folder.submit(visits(ORDERS[place % 3])))
        .collect();
    // A queued one is cancelled.
    foldings[count - 1].cancel();
    for (place, folding) in foldings.into_iter().enumerate() {
        match folding.wait() {
            Ok(seen) => assert_eq!(seen.len(), 30),
            Err(error) => {
                assert_eq!(place, count - 1);
                assert!(matches!(error, FoldError::Cancelled { .. }));
            }
        }
    }
}

#[test]
fn folds_with_priority_come_first() {
    for order in [Order::Linear, Order::Concurrent] {
        let chunks = Arc::new(NumberedChunks::gated(300, 100));
        let folder = Folder::new(chunks.clone(), 1);
        let finished = Arc::new(Mutex::new(Vec::new()));
        let submit = |asap| {
            folder.submit(Visits {
                asap,
                finished: finished.clone(),
                ..visits(order)
            })
        };
        let first = submit(true);
        // These start at chunk 0, and without priority the first one would wait for them to catch up.
        let late = || submit(false);
        let others: Vec<_> = chunks.at_gate(|| (0..5).map(|_| late()).collect());
        assert_eq!(first.wait().unwrap().len(), 300);
        for other in others {
            assert_eq!(other.wait().unwrap().len(), 300);
        }
        let finished = finished.lock().unwrap();
        assert_eq!(*finished, [true, false, false, false, false, false]);
    }
}

/// Runs further folds from inside `reduce`.
struct Nested {
    folder: Folder<NumberedChunks>,
    depth: usize,
}

impl Fold for Nested {
    type Accumulator = u64;
    type Output = u64;
    fn start(&self) -> u64 {
        0
    }
    fn reduce(&self, sum: &mut u64, chunk: &Chunk) -> ControlFlow<()> {
        if chunk.first_position().is_multiple_of(7) {
            let order = ORDERS[chunk.first_position() as usize % 3];
            let folder = self.folder.clone();
            *sum += match self.depth {
                0 => self.folder.fold(visits(order)).unwrap().len() as u64,
                depth => folder
                    .clone()
                    .fold(Nested {
                        folder,
                        depth: depth - 1,
                    })
                    .unwrap(),
            };
        }
        ControlFlow::Continue(())
    }
    fn combine(&self, sum: &mut u64, later: u64) -> ControlFlow<()> {
        *sum += later;
        ControlFlow::Continue(())
    }
    fn finish(&self, sum: u64) -> u64 {
        sum
    }
}

#[test]
fn a_fold_may_call_the_folder() {
    for threads in [1, 2, 3] {
        let folder = Folder::new(Arc::new(NumberedChunks::new(20)), threads);
        let nested = |depth| Nested {
            folder: folder.clone(),
            depth,
        };
        assert_eq!(folder.fold(nested(0)).unwrap(), 3 * 20);
        let many: Vec<_> = (0..FOLDS_LIVE_MAX + 6)
            .map(|_| folder.submit(nested(1)))
            .collect();
        for folding in many {
            assert_eq!(folding.wait().unwrap(), 9 * 20);
        }
    }
}

#[test]
fn folds_of_independent_threads_share_passes() {
    let chunks = Arc::new(NumberedChunks::slow(100));
    let folder = Folder::new(chunks.clone(), 2);
    let barrier = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|place| {
            let (folder, barrier) = (folder.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                folder.fold(visits(ORDERS[place % 3])).unwrap().len()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 100);
    }
    let decoded = folder.statistics().chunks_decoded;
    // Mostly about 200; threads that begin late make it more.
    assert!(decoded <= 800, "{decoded} of 1600");
}

/// Sends its answer over a channel.
struct SendsAnswer(mpsc::Sender<u64>, Visits);
impl Fold for SendsAnswer {
    type Accumulator = Vec<u64>;
    type Output = ();
    fn start(&self) -> Vec<u64> {
        Vec::new()
    }
    fn reduce(&self, seen: &mut Vec<u64>, chunk: &Chunk) -> ControlFlow<()> {
        self.1.reduce(seen, chunk)
    }
    fn combine(&self, seen: &mut Vec<u64>, later: Vec<u64>) -> ControlFlow<()> {
        self.1.combine(seen, later)
    }
    fn finish(&self, seen: Vec<u64>) {
        self.0.send(seen.len() as u64).unwrap();
    }
}

#[test]
fn submitted_folds_end_after_the_folder_was_dropped() {
    let folder = Folder::new(Arc::new(NumberedChunks::slow(50)), 2);
    let folding = folder.submit(visits(Order::Associative));
    drop(folder);
    assert_eq!(folding.wait().unwrap().len(), 50);
    let (sender, receiver) = mpsc::channel();
    let folder = Folder::new(Arc::new(NumberedChunks::slow(50)), 2);
    drop(folder.submit(SendsAnswer(sender, visits(Order::Concurrent))));
    drop(folder);
    assert_eq!(receiver.recv(), Ok(50));
}

#[test]
fn folders_agree_with_a_linear_fold() {
    for order in ORDERS {
        let chunks = Arc::new(NumberedChunks::new(30));
        let fold = Visits {
            breaks_at: Some(20),
            ..visits(order)
        };
        let twin = fold_linear(&*chunks, &fold).unwrap();
        assert_eq!(Folder::new(chunks, 3).fold(fold).unwrap(), twin);
    }
    let mut chunks = NumberedChunks::new(10);
    chunks.damaged = vec![7];
    assert_eq!(
        fold_linear(&chunks, &visits(Order::Linear)),
        Err(UnreadableChunk(7))
    );
}

#[test]
fn tasks_depend_on_folds() {
    let executor = Executor::new(2);
    let mut chunks = NumberedChunks::new(40);
    chunks.damaged = vec![30];
    let folder = Folder::on(Arc::new(chunks), &executor);
    let ends = |order| Visits {
        breaks_at: Some(20),
        ..visits(order)
    };
    let (first, second, fails) = folder.together(|batch| {
        let first = batch.task(ends(Order::Linear));
        let second = batch.task(ends(Order::Associative));
        (first, second, batch.task(visits(Order::Concurrent)))
    });
    let both = executor.submit("both", (&first, &second), |(first, second)| {
        first.len() + second.len()
    });
    assert_eq!(*both.join().unwrap(), 42);
    let after = executor.submit("after", &fails, |seen| seen.len());
    let error = after.join().unwrap_err().to_string();
    assert!(error.contains("chunk 30 cannot be read"), "{error}");
    assert_eq!(fails.name(), "visits-Concurrent");
}

#[test]
fn cancelling_a_task_cancels_its_fold() {
    let executor = Executor::new(1);
    let chunks = Arc::new(NumberedChunks::gated(1_000, 10));
    let folder = Folder::on(chunks.clone(), &executor);
    let task = folder.task(visits(Order::Linear));
    let after = executor.submit("after", &task, |seen| seen.len());
    chunks.at_gate(|| executor.cancel(&task));
    assert!(task.join().is_err() && after.join().is_err());
    // The next fold does not wait for the cancelled one.
    assert_eq!(folder.fold(visits(Order::Linear)).unwrap().len(), 1_000);
    let statistics = folder.statistics();
    assert_eq!((statistics.folds_answered, statistics.folds_failed), (1, 1));
    assert!(statistics.chunks_reduced <= 1_015, "{statistics:?}");
}

#[test]
fn a_task_may_wait_for_a_fold_even_with_one_worker() {
    let executor = Executor::new(1);
    let folder = Folder::on(Arc::new(NumberedChunks::new(50)), &executor);
    let tasks: Vec<_> = (0..20)
        .map(|place| {
            let folder = folder.clone();
            executor.submit("asks", (), move |()| {
                folder.fold(visits(ORDERS[place % 3])).unwrap().len()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(*task.join().unwrap(), 50);
    }
}
