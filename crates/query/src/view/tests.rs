//! Views against plain vectors.

use super::*;
use crate as query;
use seatrial_history::chunk::{ChunkSummary, Encoder};
use seatrial_history::{
    Chunk, ChunkBuffer, HistoryWriter, Key, Mop, Observed, Value, WriterOptions,
};
use seatrial_machine::Rng;
use serde_json::json;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::{NamedTempFile, TempPath};

/// A path at which there is no file yet; what is there in the end is removed.
pub(super) fn scratch() -> TempPath {
    let path = NamedTempFile::new().unwrap().into_temp_path();
    std::fs::remove_file(&path).unwrap();
    path
}

/// A file that counts how often each of its chunks is read.
pub(super) struct Counting {
    file: TestFile,
    reads: Vec<AtomicU64>,
    /// Chunks that cannot be read.
    damaged: Vec<u64>,
}

impl Counting {
    pub(super) fn new(file: TestFile) -> Counting {
        let reads = (0..file.chunk_count()).map(|_| AtomicU64::new(0));
        Counting {
            reads: reads.collect(),
            file,
            damaged: Vec::new(),
        }
    }

    pub(super) fn reads(&self) -> u64 {
        let reads = self.reads.iter().map(|reads| reads.load(Ordering::Relaxed));
        reads.sum()
    }
}

impl ViewSource for Counting {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn chunk_count(&self) -> u64 {
        self.file.chunk_count()
    }

    fn summaries(&self, place: ChunkAddress) -> Result<Vec<ChunkSummary>, ViewError> {
        ViewSource::summaries(&self.file, place)
    }

    fn read<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError> {
        if self.damaged.contains(&number) {
            return Err(ViewError::Gone(number));
        }
        self.reads[number as usize].fetch_add(1, Ordering::Relaxed);
        self.file.read(number, buffer)
    }
}

/// Histories with everything that matters here: several clients of which some are slow and some never complete, a
/// nemesis, times that stand still, keys, lists, texts and further fields. `first` is the first index, `gap` how much
/// larger than 1 a step of the index may be.
pub(super) fn ops(seed: u64, count: usize, first: u64, gap: u64) -> Vec<Op> {
    let mut rng = Rng::from_seed(seed);
    let mut open: Vec<Option<Op>> = vec![None; 6];
    let (mut index, mut time) = (first, first as i64);
    let mut ops: Vec<Op> = Vec::new();
    while ops.len() < count {
        // The last client completes seldom, so its pairs are far apart.
        let thread = match rng.index(40) {
            0 => 5,
            other => other % 5,
        };
        let op = match open[thread].take() {
            Some(op) if thread == 4 => op,
            Some(invocation) => {
                let kind = [OpType::Ok, OpType::Ok, OpType::Fail, OpType::Info][rng.index(4)];
                let op = invocation.complete(kind, value(&mut rng));
                match kind {
                    OpType::Ok => op,
                    _ => op.with("error", Value::text("timeout")),
                }
            }
            None if thread == 4 => {
                let f = ["kill", "pause"][rng.index(2)];
                let mut op = Op::invoke(Process::NEMESIS, f, Value::text("n1"));
                op.kind = OpType::Info;
                open[4] = Some(op.clone());
                op
            }
            None => {
                let f = ["read", "write", "txn"][rng.index(3)];
                let op = Op::invoke(Process::Client(thread as u64), f, value(&mut rng));
                // Now and then one is forgotten.
                open[thread] = (!rng.chance(0.02)).then(|| op.clone());
                op
            }
        };
        ops.push(Op { index, time, ..op });
        index += 1 + rng.below(gap + 1);
        time += rng.below(3) as i64 * 10;
    }
    ops
}

fn value(rng: &mut Rng) -> Value {
    let key = Key::Int(rng.below(4) as i64);
    match rng.below(4) {
        0 => Value::Keyed(key, Arc::new(Value::Int(rng.below(5) as i64))),
        1 => Value::List([Value::text("of"), Value::Bool(true)].into()),
        2 => Value::Nil,
        _ => {
            let length = rng.below(12) as i64;
            let observed = Observed::List((0..length).collect());
            Value::Txn([Mop::Read { key, observed }].into())
        }
    }
}

pub(super) fn written(path: &Path, ops: &[Op], chunk_length: usize) -> TestFile {
    let options = WriterOptions {
        chunk_length,
        ..WriterOptions::default()
    };
    let mut writer = HistoryWriter::create_with(path, &json!({}), options).unwrap();
    for op in ops {
        writer.push(op).unwrap();
    }
    writer.seal().unwrap();
    TestFile::open(path).unwrap()
}

/// What a view should be: base positions and operations.
#[derive(Clone)]
struct ViewTwin {
    base: Arc<History>,
    kept: Vec<(usize, Op)>,
}

impl ViewTwin {
    fn of(ops: &[Op]) -> ViewTwin {
        ViewTwin {
            base: Arc::new(History::from_ops(ops.to_vec())),
            kept: ops.iter().cloned().enumerate().collect(),
        }
    }

    fn at_base(&self, position: usize) -> Option<usize> {
        self.kept
            .binary_search_by_key(&position, |kept| kept.0)
            .ok()
    }

    fn pair(&self, position: usize) -> Option<usize> {
        self.at_base(self.base.pair(self.kept[position].0)?)
    }
}

fn tripled(mut op: Op) -> Op {
    if let Value::Nil = op.value {
        op.value = Value::Int(op.time * 3);
    }
    op.index = 77;
    op
}

fn shouted(op: Op) -> Op {
    let f = match op.f.as_str() {
        "read" => "READ",
        "READ" => "read",
        other => other,
    };
    let f = Symbol::intern(f).unwrap();
    Op { f, ..op }
}

impl ViewTwin {
    fn keep(&self, keep: impl Fn(&Op) -> bool) -> ViewTwin {
        let kept = self.kept.iter().filter(|(_, op)| keep(op));
        ViewTwin {
            base: self.base.clone(),
            kept: kept.cloned().collect(),
        }
    }

    fn map(&self, map: impl Fn(Op) -> Op) -> ViewTwin {
        let mapped = |op: &Op| Op {
            index: op.index,
            ..map(op.clone())
        };
        let kept = self.kept.iter();
        ViewTwin {
            base: self.base.clone(),
            kept: kept.map(|(at, op)| (*at, mapped(op))).collect(),
        }
    }
}

/// Puts a filter that is data, chosen by chance, on both.
fn select(rng: &mut Rng, view: &View, twin: &ViewTwin) -> (View, ViewTwin) {
    let kind = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info][rng.index(4)];
    let some = twin.kept.get(rng.index(twin.kept.len().max(1)));
    let nothing = || Op::invoke(Process::NEMESIS, "read", Value::Nil);
    let some = some.map_or_else(nothing, |op| op.1.clone());
    let (index, time, process, f) = (some.index, some.time, some.process, some.f);
    let indices = index..index + 700;
    match rng.below(9) {
        0 => (view.clients(), twin.keep(|op| op.process.is_client())),
        1 => (view.nemesis(), twin.keep(|op| !op.process.is_client())),
        2 => (view.by_type(kind), twin.keep(|op| op.kind == kind)),
        3 => (view.possible(), twin.keep(|op| op.is_ok() || op.is_info())),
        4 => (
            view.by_process(process),
            twin.keep(|op| op.process == process),
        ),
        5 => (
            view.by_f([f, "txn".into()]),
            twin.keep(|op| op.f == f || op.f == "txn"),
        ),
        6 => (view.between(time..), twin.keep(|op| op.time >= time)),
        7 => (
            view.between(..=time + 500),
            twin.keep(|op| op.time <= time + 500),
        ),
        _ => {
            let filter = ViewFilter::all().indices(indices.clone());
            let filter = filter.types(&[kind, OpType::Ok]);
            let keep = |op: &Op| indices.contains(&op.index) && (op.kind == kind || op.is_ok());
            (view.select(&filter), twin.keep(keep))
        }
    }
}

/// Puts one more step, chosen by chance, on both.
fn stack(rng: &mut Rng, view: &View, twin: &ViewTwin) -> (View, ViewTwin) {
    match rng.below(16) {
        0 | 1 => {
            let even = |time: i64| time % 20 == 0;
            let view = view.filter(move |op| even(op.time()));
            (view, twin.keep(|op| even(op.time)))
        }
        2 => (
            view.remove(|op| matches!(*op.value(), Value::Txn(_))),
            twin.keep(|op| !matches!(op.value, Value::Txn(_))),
        ),
        3 => (view.map(tripled), twin.map(tripled)),
        4 => (view.map(shouted), twin.map(shouted)),
        5 => (
            view.filter(|op| op.extra().is_empty() && op.f() != "READ"),
            twin.keep(|op| op.extra.is_empty() && op.f != "READ"),
        ),
        6 | 7 => {
            let bound = |rng: &mut Rng| rng.index(twin.kept.len() + 3);
            let (a, b) = (bound(rng), bound(rng));
            let in_order = rng.chance(0.9);
            let (start, end) = if in_order {
                (a.min(b), a.max(b))
            } else {
                (a, b)
            };
            let kept = twin.kept.iter().take(end).skip(start).cloned().collect();
            let base = twin.base.clone();
            let view = view.slice(start as u64..end as u64).unwrap();
            (view, ViewTwin { base, kept })
        }
        _ => select(rng, view, twin),
    }
}

fn plain(op: Option<ViewOp>) -> Option<Op> {
    op.map(ViewOp::into_op)
}

/// Compares every access.
fn assert_same(rng: &mut Rng, view: &View, twin: &ViewTwin) {
    let kept = &twin.kept;
    if rng.chance(0.5) {
        // Before anything was counted.
        assert_eq!(view.is_empty().unwrap(), kept.is_empty());
        assert_eq!(
            plain(view.first().unwrap()).as_ref(),
            kept.first().map(|op| &op.1)
        );
    }
    if rng.chance(0.5) {
        let all: Vec<(u64, Op)> = (view.iter().map(Result::unwrap))
            .map(|op| (op.base_position(), op.into_op()))
            .collect();
        let twin = kept
            .iter()
            .map(|(position, op)| (*position as u64, op.clone()));
        assert_eq!(all, twin.collect::<Vec<_>>());
    }
    for _ in 0..12 {
        let position = rng.index(kept.len() + 2);
        let there = kept.get(position);
        let found = view.nth(position as u64).unwrap();
        assert_eq!(
            found.as_ref().map(ViewOp::base_position),
            there.map(|op| op.0 as u64)
        );
        assert_eq!(plain(found).as_ref(), there.map(|op| &op.1));
        let pair = view.pair(position as u64).unwrap();
        let there = there.and_then(|_| twin.pair(position));
        assert_eq!(pair, there.map(|pair| pair as u64));
    }
    let base = twin.base.ops();
    for _ in 0..12 {
        let near = base.get(rng.index(base.len() + 1)).map_or(3, |op| op.index);
        let index = near.saturating_sub(rng.below(3)) + rng.below(2);
        let position = kept.binary_search_by_key(&index, |op| op.1.index).ok();
        let there = position.map(|position| kept[position].1.clone());
        assert_eq!(plain(view.get(index).unwrap()), there, "index {index}");
        assert_eq!(
            view.position(index).unwrap(),
            position.map(|position| position as u64)
        );
        let pair = position.and_then(|position| twin.pair(position));
        let other = pair.map(|pair| kept[pair].clone());
        let position = position.map_or(0, |position| kept[position].0);
        let completion = other.clone().filter(|other| other.0 > position);
        let found = plain(view.completion(index).unwrap());
        assert_eq!(found, completion.map(|op| op.1), "of {index}");
        let invocation = other.filter(|other| other.0 < position);
        let found = plain(view.invocation(index).unwrap());
        assert_eq!(found, invocation.map(|op| op.1), "of {index}");
    }
    assert_eq!(view.len().unwrap(), kept.len() as u64);
    assert_eq!(
        plain(view.last().unwrap()).as_ref(),
        kept.last().map(|op| &op.1)
    );
    let is_dense = kept
        .iter()
        .enumerate()
        .all(|(at, op)| op.1.index == at as u64);
    assert_eq!(view.is_dense().unwrap(), is_dense);
}

/// Compares what folds see.
fn assert_same_folds(view: &View, twin: &ViewTwin) {
    let ops = || twin.kept.iter().map(|op| op.1.clone());
    assert_eq!(
        view.fold(query::owned().vec()).unwrap(),
        ops().collect::<Vec<_>>()
    );
    let borrowed = query::ops().map(|op| (op.position(), op.op(), op.invocation()));
    let base = &twin.base;
    let rows = twin.kept.iter().map(|(position, op)| {
        let invocation = base.pair(*position).filter(|other| other < position);
        (
            *position as u64,
            op.clone(),
            invocation.map(|other| other as u64),
        )
    });
    assert_eq!(view.fold(borrowed.vec()).unwrap(), rows.collect::<Vec<_>>());
    let history = view.to_history().unwrap();
    assert!(history.iter().eq(twin.kept.iter().map(|op| &op.1)));
    for position in 0..history.len() {
        assert_eq!(history.pair(position), twin.pair(position));
    }
    let txns = query::owned().filter(|op| op.f == "txn").count();
    let count = ops().filter(|op| op.f == "txn").count();
    assert_eq!(view.fold(txns).unwrap(), count as u64);
    let first = view
        .fold(query::ops().map(|op| op.index()).first())
        .unwrap();
    assert_eq!(first, ops().next().map(|op| op.index));
}

#[test]
fn stacks_of_filters_maps_and_slices_equal_vectors() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let count = [0, 1, 50, 700, 2_500][rng.index(5)];
        let (first, gap) = [(0, 0), (0, 3), (1 << 33, 0), (1 << 33, 1 << 20)][rng.index(4)];
        let ops = ops(seed, count, first, gap);
        let twin = ViewTwin::of(&ops);
        let scratch = scratch();
        let chunk_length = [1, 7, 64, 100, 1_000][rng.index(if count < 1_000 { 5 } else { 4 })];
        let file = written(&scratch, &ops, chunk_length.max(count / 400));
        let bytes_max = [0, 20_000, CACHE_BYTES_MAX][rng.index(3)];
        let cache = Arc::new(ChunkCache::new(bytes_max));
        let bases = [
            View::of(twin.base.clone()),
            View::of_source(Arc::new(file), cache.clone()),
        ];
        for base in bases {
            println!("seed {seed}, {count} operations, chunks of {chunk_length}");
            assert_same(&mut rng, &base, &twin);
            for _ in 0..12 {
                let (mut view, mut twin) = (base.clone(), twin.clone());
                for _ in 0..rng.below(5) {
                    (view, twin) = stack(&mut rng, &view, &twin);
                    if rng.chance(0.3) {
                        assert_same(&mut rng, &view, &twin);
                    }
                }
                assert_same(&mut rng, &view, &twin);
                if rng.chance(0.3) {
                    assert_same_folds(&view, &twin);
                }
                assert_eq!(view.base().len().unwrap(), count as u64);
            }
        }
        assert!(cache.figures().bytes_peak <= bytes_max);
    }
}

#[test]
fn large_histories_in_memory_equal_vectors() {
    let mut rng = Rng::from_seed(5);
    // Three stretches.
    let ops = ops(5, 2 * base::ROWS_LENGTH as usize + 100, 1 << 40, 2);
    let twin = ViewTwin::of(&ops);
    let base = View::of(twin.base.clone());
    for _ in 0..6 {
        let (view, kept) = stack(&mut rng, &base, &twin);
        let (view, kept) = stack(&mut rng, &view, &kept);
        assert_same(&mut rng, &view, &kept);
        assert_same_folds(&view, &kept);
    }
}

#[test]
fn random_access_through_a_filter_decodes_one_chunk() {
    let scratch = scratch();
    let file = written(&scratch, &ops(3, 20_000, 0, 0), 100);
    let source = Arc::new(Counting::new(file));
    let view = View::of_source(source.clone(), Arc::new(ChunkCache::new(0)));
    view.nth(12_345).unwrap();
    view.get(4_321).unwrap();
    assert_eq!(source.reads(), 2);
    view.map(tripled).nth(777).unwrap();
    assert_eq!(source.reads(), 3);
    // The directory knows how many there are of each type.
    let oks = view.oks();
    assert!(oks.len().unwrap() > 3_000);
    assert_eq!(source.reads(), 3);
    // Once for the mask, once for the operation, as nothing is kept.
    oks.nth(3_000).unwrap();
    assert_eq!(source.reads(), 5);
    let reads = view.by_f(["read"]);
    let last = reads.nth(0).unwrap().unwrap().base_position();
    assert_eq!(
        (source.reads(), last < 100),
        (8, true),
        "counting stops early"
    );
    reads.len().unwrap();
    assert_eq!(source.reads(), 8 + 199);
    for rank in [1_000, 1_500, 2_000] {
        reads.nth(rank).unwrap().unwrap();
    }
    assert_eq!(source.reads(), 8 + 199 + 6);
    // Two of the two hundred chunks can have these times.
    let (from, to) = (
        view.nth(5_050).unwrap().unwrap(),
        view.nth(5_149).unwrap().unwrap(),
    );
    let before = source.reads();
    let between = view.between(from.time()..=to.time()).by_f(["write", "txn"]);
    assert!(between.len().unwrap() > 10);
    assert_eq!(between.iter().count() as u64, between.len().unwrap());
    assert_eq!(source.reads() - before, 4);
}

#[test]
fn folds_over_different_views_share_a_pass() {
    let scratch = scratch();
    let ops = ops(9, 4_000, 0, 0);
    let source = Arc::new(Counting::new(written(&scratch, &ops, 100)));
    let view = View::of_source(source.clone(), Arc::default());
    let views = [
        view.clone(),
        view.oks(),
        view.by_f(["txn"]).map(tripled),
        view.filter(|op| op.time() % 20 == 0),
    ];
    let folds = view.folder().together(|batch| {
        let fold = |view: &View| view.as_fold(query::ops().count());
        views.each_ref().map(|view| batch.submit(fold(view)))
    });
    for (fold, view) in folds.into_iter().zip(&views) {
        assert_eq!(fold.wait().unwrap().unwrap(), view.iter().count() as u64);
    }
    assert_eq!(view.folder().statistics().chunks_decoded, 40);
    // Only the chunks that may have these times are read, without a pass over all.
    let before = source.reads();
    let time = ops[1_234].time;
    let count = view
        .between(time..=time)
        .fold(query::ops().count())
        .unwrap();
    assert_eq!(
        count,
        ops.iter().filter(|op| op.time == time).count() as u64
    );
    assert!((1..=2).contains(&(source.reads() - before)));
    assert_eq!(view.folder().statistics().chunks_decoded, 40);
}

#[test]
fn folds_that_fail_say_why() {
    let scratch = scratch();
    let ops = ops(10, 1_000, 0, 0);
    let mut source = Counting::new(written(&scratch, &ops, 100));
    source.damaged = vec![4];
    let views = [
        View::of_source(Arc::new(source), Arc::default()),
        View::of(History::from_ops(ops)),
    ];
    let failed = views[0].fold(query::ops().count());
    assert!(matches!(failed, Err(ViewError::Gone(4))), "{failed:?}");
    let failed = views[0].slice(350..450).unwrap().fold(query::ops().count());
    assert!(matches!(failed, Err(ViewError::Gone(4))), "{failed:?}");
    for view in views {
        let first = view.slice(..300).unwrap();
        let panicking = query::owned().map(|op| assert!(op.index != 7)).count();
        let failed = first.fold(panicking);
        assert!(matches!(failed, Err(ViewError::Fold(_))), "{failed:?}");
        // No chunk takes names of that length.
        let long: &'static str = "f".repeat(300).leak();
        let mapped = first.map(move |op| Op {
            f: long.into(),
            ..op
        });
        assert_eq!(mapped.nth(5).unwrap().unwrap().f(), long);
        assert_eq!(mapped.fold(query::owned().count()).unwrap(), 300);
        let failed = mapped.fold(query::ops().count());
        assert!(matches!(failed, Err(ViewError::History(_))), "{failed:?}");
    }
}

/// 2^41 operations, made when they are asked for. Positions, indices and times are far beyond 2^32.
struct Vast;

const VAST_CHUNK: u64 = 1_000;
const VAST_CHUNKS: u64 = (1 << 41) / VAST_CHUNK;

fn vast(position: u64) -> Op {
    let kind = [OpType::Invoke, OpType::Ok][(position / 10 % 2) as usize];
    Op {
        index: (1 << 33) + position * 3,
        time: (position * 100) as i64,
        kind,
        ..Op::invoke(
            Process::Client(position % 10),
            "read",
            Value::Int(position as i64),
        )
    }
}

impl ViewSource for Vast {
    fn len(&self) -> u64 {
        VAST_CHUNKS * VAST_CHUNK
    }

    fn chunk_count(&self) -> u64 {
        VAST_CHUNKS
    }

    fn summaries(&self, place: ChunkAddress) -> Result<Vec<ChunkSummary>, ViewError> {
        let number = match place {
            ChunkAddress::Chunk(number) => number,
            ChunkAddress::Position(position) => position / VAST_CHUNK,
            ChunkAddress::Index(index) => index.saturating_sub((1 << 33) - 2) / 3 / VAST_CHUNK,
        };
        let chunk = self.read(number, &mut ChunkBuffer::default())?.cloned();
        Ok(chunk
            .iter()
            .map(|chunk| ChunkSummary::of(number, chunk))
            .collect())
    }

    fn read<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError> {
        if number >= VAST_CHUNKS {
            return Ok(None);
        }
        let mut encoder = Encoder::default();
        let first = number * VAST_CHUNK;
        for position in first..first + VAST_CHUNK {
            encoder.push(&vast(position), position / 10 % 2 * 10);
        }
        let mut bytes = Vec::new();
        encoder.write(first, &mut bytes);
        buffer.chunk.read(&bytes).unwrap();
        Ok(Some(&buffer.chunk))
    }
}

/// A directory whose answers overlap in every way.
struct Overlapping {
    file: TestFile,
    rng: std::sync::Mutex<Rng>,
}

impl ViewSource for Overlapping {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn chunk_count(&self) -> u64 {
        self.file.chunk_count()
    }

    fn summaries(&self, place: ChunkAddress) -> Result<Vec<ChunkSummary>, ViewError> {
        let all = self.file.chunk_summaries(ChunkAddress::Chunk(0))?;
        let at = all.iter().position(|summary| match place {
            ChunkAddress::Chunk(number) => summary.number == number,
            ChunkAddress::Position(position) => summary.end_position() > position,
            ChunkAddress::Index(index) => summary.last_index >= index,
        });
        let Some(at) = at else {
            return Ok(Vec::new());
        };
        let mut rng = self.rng.lock().unwrap();
        let (before, after) = (rng.index(5).min(at), rng.index(5));
        let end = (at + 1 + after).min(all.len());
        Ok(all[at - before..end].to_vec())
    }

    fn read<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError> {
        self.file.read(number, buffer)
    }
}

#[test]
fn a_directory_may_answer_in_any_portions() {
    let scratch = scratch();
    let ops = ops(30, 1_000, 1 << 33, 4);
    let twin = ViewTwin::of(&ops);
    written(&scratch, &ops, 20);
    for seed in 0..20 {
        let source = Overlapping {
            file: TestFile::open(&scratch).unwrap(),
            rng: Rng::from_seed(seed).into(),
        };
        let view = View::of_source(Arc::new(source), Arc::default());
        assert_same(&mut Rng::from_seed(seed), &view, &twin);
    }
}

#[test]
fn nothing_is_narrower_than_64_bits() {
    let view = View::of_source(Arc::new(Vast), Arc::default());
    let count = VAST_CHUNKS * VAST_CHUNK;
    assert_eq!(view.len().unwrap(), count);
    assert_eq!(plain(view.last().unwrap()), Some(vast(count - 1)));
    assert!(view.nth(count).unwrap().is_none());
    let mut rng = Rng::from_seed(4);
    for _ in 0..30 {
        let position = rng.below(count - 5_000);
        let op = vast(position);
        assert_eq!(plain(view.nth(position).unwrap()).as_ref(), Some(&op));
        assert_eq!(plain(view.get(op.index).unwrap()).as_ref(), Some(&op));
        assert!(view.get(op.index + 1).unwrap().is_none());
        assert_eq!(view.position(op.index).unwrap(), Some(position));
        let other = if op.is_invoke() {
            position + 10
        } else {
            position - 10
        };
        assert_eq!(view.pair(position).unwrap(), Some(other));
        let slice = view.slice(position..position + 3_000).unwrap();
        let oks = slice.oks().map(tripled);
        let from = (position + 10) as i64 * 100;
        let between = oks.between(from..from + 100_000);
        let twin: Vec<Op> = (position + 10..position + 1_010).map(vast).collect();
        let twin = twin.into_iter().filter(Op::is_ok);
        assert!(
            between
                .iter()
                .map(|op| op.unwrap().into_op())
                .eq(twin.clone())
        );
        assert_eq!(between.len().unwrap(), twin.clone().count() as u64);
        let (at, some) = twin.enumerate().nth(rng.index(400)).unwrap();
        assert_eq!(between.position(some.index).unwrap(), Some(at as u64));
        assert_eq!(plain(between.nth(at as u64).unwrap()), Some(some));
        let found = between.fold(query::ops().map(|op| op.index()).min());
        assert_eq!(
            found.unwrap(),
            plain(between.first().unwrap()).map(|op| op.index)
        );
    }
}

#[test]
fn damage_is_reported_by_each_view_that_reads_it() {
    let scratch = scratch();
    let file = written(&scratch, &ops(8, 1_000, 0, 0), 100);
    let mut source = Counting::new(file);
    source.damaged = vec![4];
    let view = View::of_source(Arc::new(source), Arc::default());
    assert!(view.nth(399).unwrap().is_some() && view.nth(500).unwrap().is_some());
    for _ in 0..2 {
        assert!(matches!(view.nth(400), Err(ViewError::Gone(4))));
        assert!(view.by_f(["read"]).len().is_err());
    }
    assert!(view.oks().len().unwrap() > 100, "that is in the directory");
    let items: Vec<_> = view.iter().collect();
    assert_eq!((items.len(), items[400].is_err()), (401, true));
    assert_eq!(view.slice(500..).unwrap().iter().count(), 500);
}

#[test]
fn many_readers_see_the_same_and_decode_once() {
    let scratch = scratch();
    let ops = ops(21, 8_000, 1 << 33, 2);
    let file = written(&scratch, &ops, 500);
    let source = Arc::new(Counting::new(file));
    let view = View::of_source(source.clone(), Arc::default());
    let twin = ViewTwin::of(&ops);
    let threads = 6;
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for chunk in 0..16 {
                    barrier.wait();
                    view.nth(chunk * 500 + 250).unwrap().unwrap();
                }
            });
        }
    });
    assert_eq!(source.reads(), 16, "each chunk once");
    let (mapped, kept) = {
        let view = view.oks().map(tripled).filter(|op| op.time() % 20 == 0);
        let kept = twin
            .kept
            .iter()
            .filter(|op| op.1.is_ok() && op.1.time % 20 == 0);
        let kept = kept.map(|(at, op)| {
            (
                *at,
                Op {
                    index: op.index,
                    ..tripled(op.clone())
                },
            )
        });
        (
            view,
            ViewTwin {
                base: twin.base.clone(),
                kept: kept.collect(),
            },
        )
    };
    // A cache that is always too small.
    view.cache().set_bytes_max(60_000);
    std::thread::scope(|scope| {
        for seed in 0..threads as u64 {
            let (mapped, kept, view, twin) = (&mapped, &kept, &view, &twin);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(seed);
                for _ in 0..4 {
                    assert_same(&mut rng, mapped, kept);
                    assert_same(&mut rng, view, twin);
                }
            });
        }
    });
    assert!(view.cache().figures().bytes <= 60_000);
}
