//! Test files against the operations that went in: whole, cut at every byte, with flipped bits, while written, and
//! with results.

use super::Codec;
use super::block_kinds::{CHUNK, DIRECTORY, JOURNAL};
use super::{
    ChunkBuffer, FileTail, HistoryWriter, OpenError, TestFile, WriteError, WriterOptions, repack,
};
use crate::fold::{Fold, FoldError, Folder, fold_linear};
use crate::{Chunk, History, Key, Mop, Observed, Op, OpType, Process, Symbol, Value};
use seatrial_blocks::Walker;
use seatrial_blocks::root::PAGE_LENGTH;
use seatrial_machine::{Disk, Rng};
use serde_json::json;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::{Builder, TempPath};

/// A path at which there is no file yet; what is there in the end is removed.
pub(super) fn scratch() -> TempPath {
    let file = Builder::new().prefix("history-").suffix(".sea").tempfile();
    let path = file.unwrap().into_temp_path();
    fs::remove_file(&path).unwrap();
    path
}

/// Makes a new file of these bytes. (Overwriting the old one would make some file systems wait for the disk.)
pub(super) fn put(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// A history such as a test makes: transactions on lists, registers of keys, faults, errors.
pub(super) fn ops(seed: u64, count: u64) -> Vec<Op> {
    let mut rng = Rng::from_seed(seed);
    let mut open: Vec<Option<Op>> = vec![None; 5];
    let mut ops = Vec::new();
    for index in 0..count {
        let thread = rng.index(open.len());
        let time = index as i64 * 1_000;
        let op = match open[thread].take() {
            Some(invocation) => {
                let kinds = [OpType::Ok, OpType::Ok, OpType::Fail, OpType::Info];
                let kind = *rng.pick(&kinds);
                let op = invocation.complete(kind, value(&mut rng));
                let op = op.with("node", Value::text("n1"));
                if kind == OpType::Ok {
                    op
                } else {
                    op.with("error", Value::Word("timeout".into()))
                }
            }
            None if thread == 4 => {
                let op = Op::invoke(Process::NEMESIS, "kill", Value::text("n1"));
                open[4] = Some(op.clone());
                Op {
                    kind: OpType::Info,
                    ..op
                }
            }
            None => {
                let f = ["txn", "read"][rng.index(2)];
                let op = Op::invoke(Process::Client(thread as u64), f, value(&mut rng));
                open[thread] = Some(op.clone());
                op
            }
        };
        ops.push(Op { index, time, ..op });
    }
    ops
}

fn value(rng: &mut Rng) -> Value {
    let key = Key::Int(rng.below(4) as i64);
    match rng.below(4) {
        0 => Value::Keyed(key, Arc::new(Value::Int(rng.below(5) as i64))),
        1 => Value::List([Value::text("of"), Value::Bool(true)].into()),
        _ => {
            let length = rng.below(12) as i64;
            let observed = Observed::List((0..length).collect());
            let append = Mop::Append {
                key: key.clone(),
                element: length,
            };
            Value::Txn([append, Mop::Read { key, observed }].into())
        }
    }
}

pub(super) fn small(codec: Codec) -> WriterOptions {
    WriterOptions {
        codec,
        chunk_length: 7,
    }
}

pub(super) fn written(path: &Path, ops: &[Op], options: WriterOptions) {
    let mut writer = HistoryWriter::create_with(path, &json!({"name": "x"}), options).unwrap();
    for (place, op) in ops.iter().enumerate() {
        writer.push(op).unwrap();
        if place % 3 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.seal().unwrap();
}

#[test]
fn written_operations_are_read_back() {
    for (seed, codec) in [(1, Codec::None), (2, Codec::Lz4), (3, Codec::Zstd)] {
        let scratch = scratch();
        // More than 256 chunks: the directory carries.
        let ops = ops(seed, 7 * 600 + 3);
        written(&scratch, &ops, small(codec));
        let file = TestFile::open(&scratch).unwrap();
        assert_eq!(
            (file.len(), file.is_complete(), file.tail()),
            (ops.len() as u64, true, None)
        );
        assert_eq!(file.attributes().unwrap(), json!({"name": "x"}));
        assert_eq!(file.chunk_count(), 601);
        assert_eq!(file.history().unwrap().ops(), ops);
        for index in [0, 6, 7, 1_791, 1_792, 4_202] {
            assert_eq!(file.operation(index).unwrap().unwrap(), ops[index as usize]);
        }
        assert_eq!(file.operation(ops.len() as u64).unwrap(), None);
        assert_eq!(file.chunk(601).unwrap().map(|chunk| chunk.len()), None);
        assert_eq!(file.chunk(600).unwrap().map(|chunk| chunk.len()), Some(3));
    }
}

/// Long chunks are copied without being decoded into operations.
#[test]
fn a_repacked_file_has_its_long_chunks_in_order() {
    let (first, copy) = (scratch(), scratch());
    let ops = ops(22, 45_000);
    let options = WriterOptions {
        chunk_length: 9_000,
        ..WriterOptions::default()
    };
    let mut writer = HistoryWriter::create_with(&first, &json!({}), options).unwrap();
    for op in &ops {
        writer.push(op).unwrap();
    }
    writer.seal().unwrap();
    for codec in [Codec::None, Codec::Zstd] {
        let _ = fs::remove_file(&copy);
        repack(&first, &copy, codec).unwrap();
        let file = TestFile::open(&copy).unwrap();
        assert_eq!(file.chunk_count(), 5);
        assert!(file.history().unwrap().ops() == ops, "{codec:?}");
    }
}

#[test]
fn a_repacked_file_is_smaller_and_says_the_same() {
    let (first, copy) = (scratch(), scratch());
    let ops = ops(21, 7 * 600 + 3);
    written(&first, &ops, small(Codec::Lz4));
    for number in 0..3 {
        let results = json!({"valid": number == 1, "number": number});
        TestFile::append_results(&first, &results).unwrap();
    }
    let before = TestFile::open(&first).unwrap();
    let packed = repack(&first, &copy, Codec::Zstd).unwrap();
    assert_eq!(packed.length_before, before.file_length());
    assert!(packed.length * 2 < packed.length_before, "{packed:?}");
    // It must not overwrite a third file, but may take the place of the first.
    let refused = repack(&copy, &first, Codec::Zstd).unwrap_err();
    assert!(
        std::error::Error::source(&refused)
            .unwrap()
            .to_string()
            .contains("exists"),
        "{refused}"
    );
    assert_eq!(
        repack(&first, &first, Codec::None).unwrap().operations,
        4_203
    );
    for path in [&first, &copy] {
        let file = TestFile::open(path).unwrap();
        assert_eq!((file.is_complete(), file.tail()), (true, None));
        assert_eq!(file.history().unwrap().ops(), ops);
        assert_eq!(file.chunk_count(), 1);
        assert_eq!(file.attributes().unwrap(), json!({"name": "x"}));
        assert_eq!(file.analyses(), 3);
        assert_eq!(file.results_of(2).unwrap().unwrap()["number"], 1);
        assert_eq!(file.validity().unwrap(), Some(json!(false)));
        let pairs = |file: &TestFile| {
            let chunks = file.chunks().map(|chunk| chunk.unwrap().pairs().to_vec());
            chunks.flatten().collect::<Vec<i64>>()
        };
        assert_eq!(pairs(&file), pairs(&before));
    }
    // An open reader keeps reading the old file until it refreshes.
    let mut before = before;
    assert_eq!(before.chunk(3).unwrap().unwrap().len(), 7);
    assert!(before.refresh().unwrap());
    assert_eq!(before.chunk_count(), 1);
}

#[test]
fn a_file_that_is_followed_is_what_it_would_be_if_opened_anew() {
    let scratch = scratch();
    let ops = ops(22, 7 * 300);
    let mut writer = HistoryWriter::create_with(&scratch, &json!({}), small(Codec::Lz4)).unwrap();
    let mut followed = TestFile::open(&scratch).unwrap();
    let mut rng = Rng::from_seed(22);
    let mut news = 0;
    for op in &ops {
        writer.push(op).unwrap();
        if rng.chance(0.3) {
            writer.flush().unwrap();
        }
        if rng.chance(0.2) {
            news += u64::from(followed.refresh().unwrap());
            let opened = TestFile::open(&scratch).unwrap();
            assert_eq!(followed.len(), opened.len());
            assert_eq!(followed.chunk_count(), opened.chunk_count());
            assert_eq!(followed.tail(), opened.tail());
        }
    }
    assert!(news > 100 && news < 420, "{news}");
    writer.seal().unwrap();
    assert!(followed.refresh().unwrap() && !followed.refresh().unwrap());
    assert_eq!((followed.is_complete(), followed.tail()), (true, None));
    assert_eq!(followed.history().unwrap().ops(), ops);
    TestFile::append_results(&scratch, &json!({"valid": true})).unwrap();
    assert!(followed.refresh().unwrap());
    assert_eq!(followed.validity().unwrap(), Some(json!(true)));
    assert_eq!(followed.chunk_count(), 300);
}

#[test]
fn every_analysis_stays_readable() {
    let scratch = scratch();
    written(&scratch, &ops(23, 20), small(Codec::Lz4));
    for number in 1..=1_000 {
        let results = json!({"valid": number % 2 == 0, "number": number});
        TestFile::append_results(&scratch, &results).unwrap();
    }
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(file.analyses(), 1_000);
    for number in [1, 2, 500, 1_000] {
        let results = file.results_of(number).unwrap().unwrap();
        assert_eq!(results["number"], number);
    }
    assert_eq!(file.results_of(0).unwrap(), None);
    assert_eq!(file.results_of(1_001).unwrap(), None);
    let all: Result<Vec<_>, _> = file.validities().collect();
    let all = all.unwrap();
    assert_eq!(all.len(), 1_000);
    for (place, analysis) in all.iter().enumerate() {
        assert_eq!(analysis.number, 1_000 - place as u64);
        assert_eq!(analysis.valid, json!(analysis.number % 2 == 0));
    }
}

/// A file that counts what is read of it.
#[derive(Clone, Debug)]
struct Counted {
    bytes: Arc<Vec<u8>>,
    reads: Arc<AtomicU64>,
    length: Arc<AtomicU64>,
}

impl Counted {
    /// Reads and bytes since the last call.
    fn take(&self) -> (u64, u64) {
        let take = |number: &AtomicU64| number.swap(0, Ordering::Relaxed);
        (take(&self.reads), take(&self.length))
    }
}

impl Disk for Counted {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.length
            .fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.bytes.read_at(offset, buffer)
    }
}

#[test]
fn no_more_is_read_than_is_asked_for() {
    let scratch = scratch();
    // Two nodes of the directory, and 88 chunks in none.
    let ops = ops(24, 7 * 600);
    written(&scratch, &ops, small(Codec::Lz4));
    let disk = Counted {
        bytes: Arc::new(fs::read(&scratch).unwrap()),
        reads: Arc::default(),
        length: Arc::default(),
    };
    let whole = disk.bytes.len() as u64;
    let file = TestFile::on(Box::new(disk.clone()), &scratch).unwrap();
    let (reads, length) = disk.take();
    // The page and the root of 90 entries, each a few times, however long the history is.
    assert!(
        reads <= 8 && length <= 40_000 && length < whole / 8,
        "{reads}, {length}"
    );
    file.attributes().unwrap();
    assert!(disk.take().0 <= 3);
    file.operation(9).unwrap();
    let (reads, length) = disk.take();
    assert!(reads <= 4 && length < 30_000, "{reads}, {length}");
    let mut buffer = ChunkBuffer::default();
    for number in 0..600 {
        file.read_chunk(number, &mut buffer).unwrap().unwrap();
    }
    // Header and payload of each chunk and each node, once.
    assert_eq!(disk.take().0, 2 * 600 + 2 * 2);
}

#[test]
fn pairs_are_those_of_a_history_in_memory() {
    let scratch = scratch();
    let history = History::from_ops(ops(9, 500));
    written(&scratch, history.ops(), small(Codec::Lz4));
    let file = TestFile::open(&scratch).unwrap();
    let read = file.history().unwrap();
    for position in 0..500 {
        assert_eq!(read.pair(position), history.pair(position));
    }
    let mut position = 0;
    for chunk in file.chunks() {
        let chunk = chunk.unwrap();
        for place in 0..chunk.len() {
            let invocation = history.pair(position).filter(|&other| other < position);
            assert_eq!(
                chunk.invocation(place),
                invocation.map(|other| other as u64)
            );
            position += 1;
        }
    }
    assert_eq!(position, 500);
}

#[test]
fn a_file_cut_at_any_byte_keeps_every_whole_block_before_the_cut() {
    let (whole, cut) = (scratch(), scratch());
    let ops = ops(4, 45);
    let mut writer =
        HistoryWriter::create_with(&whole, &json!({"name": "x"}), small(Codec::Lz4)).unwrap();
    // After each flush: length of the file, operations in it.
    let mut promised = Vec::new();
    for (place, op) in ops.iter().enumerate() {
        writer.push(op).unwrap();
        if place % 2 == 0 {
            writer.flush().unwrap();
        }
        promised.push((
            fs::metadata(&whole).unwrap().len(),
            place + 1,
            place % 2 == 0,
        ));
    }
    drop(writer);
    let bytes = fs::read(&whole).unwrap();
    let mut opened = 0;
    for length in 0..=bytes.len() {
        put(&cut, &bytes[..length]);
        let file = match TestFile::open(&cut) {
            Ok(file) => file,
            Err(error) => {
                // Before the newest root, or within it.
                let is_shortened = matches!(error, OpenError::Shortened { .. })
                    || error.to_string().contains("the newest root");
                assert!(opened == 0 || is_shortened, "{length}: {error}");
                continue;
            }
        };
        opened += 1;
        let least = promised
            .iter()
            .filter(|(at, _, flushed)| *flushed && *at <= length as u64);
        let least = least.map(|(_, count, _)| *count).max().unwrap_or(0);
        let found = file.history().unwrap();
        assert!(found.len() >= least, "{length}: {} of {least}", found.len());
        assert_eq!(found.ops(), &ops[..found.len()], "{length}");
        assert!(!file.is_complete());
    }
    assert!(opened > bytes.len() / 4, "{opened} of {}", bytes.len());
}

#[test]
fn a_flipped_bit_never_changes_the_operations_read() {
    let (whole, flipped) = (scratch(), scratch());
    let ops = ops(5, 60);
    written(&whole, &ops, small(Codec::Lz4));
    TestFile::append_results(&whole, &json!({"valid": true})).unwrap();
    let bytes = fs::read(&whole).unwrap();
    let mut found = 0;
    let mut rng = Rng::from_seed(8);
    for _ in 0..3_000 {
        let mut damaged = bytes.clone();
        let at = rng.index(damaged.len());
        damaged[at] ^= 1 << rng.below(8);
        put(&flipped, &damaged);
        let read = TestFile::open(&flipped).and_then(|file| {
            let all = (file.history()?, file.attributes()?, file.results()?);
            Ok((all, file.is_complete()))
        });
        match read {
            Ok(((history, attributes, results), complete)) => {
                assert_eq!(attributes, json!({"name": "x"}), "byte {at}");
                assert_eq!(history.ops(), &ops[..history.len()], "byte {at}");
                // Without its newest roots a file looks as if its writer had been killed.
                if complete && results.is_some() {
                    assert_eq!(history.len(), ops.len(), "byte {at}");
                }
            }
            Err(error) => {
                found += 1;
                let text = error.to_string();
                let name = flipped.display().to_string();
                assert!(text.contains(&name), "names the file: {text}");
            }
        }
    }
    assert!(found > 300, "{found} of 3,000 flips are errors");
}

#[test]
fn arbitrary_bytes_are_errors() {
    let (whole, noise) = (scratch(), scratch());
    written(&whole, &ops(6, 40), small(Codec::None));
    let bytes = fs::read(&whole).unwrap();
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let mut mutated = bytes.clone();
        for _ in 0..=rng.below(20) {
            let at = rng.index(mutated.len());
            mutated[at] = rng.word() as u8;
        }
        mutated.truncate(rng.index(mutated.len() * 2).min(bytes.len()));
        put(&noise, &mutated);
        if let Ok(file) = TestFile::open(&noise) {
            let _ = (
                file.attributes(),
                file.results(),
                file.history(),
                file.operation(7),
            );
        }
    }
}

#[test]
fn results_are_appended_and_the_validity_stands_alone() {
    let scratch = scratch();
    let ops = ops(7, 30);
    written(&scratch, &ops, small(Codec::Lz4));
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(
        (file.validity().unwrap(), file.results().unwrap()),
        (None, None)
    );
    for (number, valid) in [json!(true), json!("unknown"), json!(false)]
        .into_iter()
        .enumerate()
    {
        let results = json!({"valid": valid, "text": "long ".repeat(1_000), "number": number});
        TestFile::append_results(&scratch, &results).unwrap();
        let file = TestFile::open(&scratch).unwrap();
        assert_eq!(file.validity().unwrap(), Some(valid));
        assert_eq!(file.results().unwrap(), Some(results));
        assert_eq!(
            (file.analyses(), file.is_complete()),
            (number as u64 + 1, true)
        );
        assert_eq!(file.history().unwrap().ops(), ops);
    }
}

#[test]
fn a_killed_run_can_be_read_and_checked_and_keeps_its_results() {
    let scratch = scratch();
    let ops = ops(8, 7 * 300 + 4);
    let mut writer = HistoryWriter::create_with(&scratch, &json!({}), small(Codec::Lz4)).unwrap();
    for op in &ops {
        writer.push(op).unwrap();
    }
    writer.flush().unwrap();
    // Readable while it is written.
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(
        (file.history().unwrap().ops(), file.tail()),
        (&ops[..], Some(FileTail::Open))
    );
    // No results can be appended meanwhile.
    let locked = TestFile::append_results(&scratch, &json!({"valid": true}));
    assert!(matches!(locked, Err(WriteError::File(_))), "{locked:?}");
    drop(writer);
    TestFile::append_results(&scratch, &json!({"valid": true})).unwrap();
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(
        (file.history().unwrap().ops(), file.is_complete()),
        (&ops[..], false)
    );
    assert_eq!(file.validity().unwrap(), Some(json!(true)));
}

/// Of 512 operations or more since the last flush none is kept for a journal, chunks in between or not.
#[test]
fn a_flush_after_many_operations_ends_the_chunk_and_after_few_journals() {
    let scratch = scratch();
    let mut writer = HistoryWriter::create(&scratch, &json!({})).unwrap();
    let mut index = 0;
    for (pushed, chunks, journals) in [
        (10, 0, 1),
        (16_384 + 10, 2, 1),
        (0, 2, 1),
        (5, 2, 2),
        (7, 2, 3),
        (511, 2, 4),
        (512, 3, 4),
        (3, 3, 5),
        (2 * 16_384 - 3, 5, 5),
        (1, 5, 6),
    ] {
        for _ in 0..pushed {
            let op = Op::invoke(Process::Client(index % 9), "read", Value::Nil);
            writer.push(&Op { index, ..op }).unwrap();
            index += 1;
        }
        writer.flush().unwrap();
        let file = TestFile::open(&scratch).unwrap();
        assert_eq!(file.len(), index, "after {pushed}");
        let bytes = fs::read(&scratch).unwrap();
        let mut walker = Walker::new(&bytes, PAGE_LENGTH as u64);
        let mut kinds = Vec::new();
        while let Some((_, header)) = walker.next_header().unwrap() {
            kinds.push(header.kind);
        }
        let count = |kind| kinds.iter().filter(|&&found| found == kind).count();
        let counts = (count(CHUNK), count(JOURNAL));
        assert_eq!(counts, (chunks, journals), "after {pushed}");
    }
}

#[test]
fn what_cannot_be_stored_is_refused_and_harms_nothing() {
    let scratch = scratch();
    let mut writer = HistoryWriter::create(&scratch, &json!({})).unwrap();
    let op = |index| Op {
        index,
        ..Op::invoke(Process::Client(0), "read", Value::Nil)
    };
    writer.push(&op(3)).unwrap();
    assert!(matches!(
        writer.push(&op(3)),
        Err(WriteError::Order { index: 3, last: 3 })
    ));
    let huge = Op {
        value: Value::text("x".repeat(17 << 20)),
        ..op(4)
    };
    assert!(matches!(
        writer.push(&huge),
        Err(WriteError::Operation { index: 4, .. })
    ));
    // Transactions that are refused for a key, for their length and for the key around them.
    let read = |key| Mop::Read {
        key,
        observed: Observed::List((0..20).collect()),
    };
    let long = Key::Word(Symbol::new("w".repeat(300).leak()));
    let txn = |mops: &[Mop]| Value::Txn(mops.into());
    for value in [
        txn(&[read(Key::Int(1)), read(long.clone()), read(Key::Int(1))]),
        txn(&vec![read(Key::Int(2)); 100_000]),
        Value::Keyed(long, Arc::new(txn(&[read(Key::Int(3))]))),
    ] {
        let refused = writer.push(&Op { value, ..op(4) });
        assert!(matches!(refused, Err(WriteError::Operation { .. })));
    }
    let sound = Op {
        value: txn(&[read(Key::Int(4)), read(Key::Text("k".into()))]),
        ..op(5)
    };
    writer.push(&sound).unwrap();
    writer.seal().unwrap();
    let file = TestFile::open(&scratch).unwrap();
    let chunk = file.chunks().next().unwrap().unwrap();
    assert_eq!(chunk.key_count(), 2, "no keys of refused operations");
    assert_eq!(file.history().unwrap().ops(), [op(3), sound]);
    assert_eq!(file.operation(4).unwrap(), None);
}

#[test]
fn missing_foreign_and_existing_files_are_distinguished() {
    let scratch = scratch();
    let error = TestFile::open(&scratch).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("No such file"), "{error}: {cause}");
    fs::write(&scratch, "{:index 0}").unwrap();
    let error = TestFile::open(&scratch).unwrap_err();
    assert!(matches!(error, OpenError::Root { .. }), "{error}");
    let error = HistoryWriter::create(&scratch, &json!({})).err().unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("exists"), "{error}: {cause}");
}

/// Lists the times, to see that every chunk comes once and in order.
struct Times;

impl Fold for Times {
    type Accumulator = Vec<i64>;
    type Output = Vec<i64>;
    fn start(&self) -> Vec<i64> {
        Vec::new()
    }
    fn reduce(&self, times: &mut Vec<i64>, chunk: &Chunk) -> ControlFlow<()> {
        times.extend(chunk.times());
        ControlFlow::Continue(())
    }
    fn combine(&self, times: &mut Vec<i64>, later: Vec<i64>) -> ControlFlow<()> {
        times.extend(later);
        ControlFlow::Continue(())
    }
    fn finish(&self, times: Vec<i64>) -> Vec<i64> {
        times
    }
}

#[test]
fn folds_see_every_chunk_once_and_in_order() {
    let scratch = scratch();
    let ops = ops(10, 7 * 100 + 1);
    written(&scratch, &ops, small(Codec::Lz4));
    let file = TestFile::open(&scratch).unwrap();
    let times: Vec<i64> = ops.iter().map(|op| op.time).collect();
    assert_eq!(fold_linear(&file, &Times).unwrap(), times);
    let file = Arc::new(file);
    for threads in [1, 2, 5] {
        let folder = Folder::new(file.clone(), threads);
        for _ in 0..20 {
            assert_eq!(folder.fold(Times).unwrap(), times);
        }
    }
}

/// A device that is always full. Nothing is written there that a later test would find.
#[test]
fn after_a_failed_write_every_call_is_an_error_and_none_a_panic() {
    let scratch = scratch();
    let mut writer = HistoryWriter::create(&scratch, &json!({})).unwrap();
    let op = |index| Op {
        index,
        ..Op::invoke(Process::Client(0), "read", Value::Nil)
    };
    writer.push(&op(0)).unwrap();
    writer.flush().unwrap();
    writer.push(&op(1)).unwrap();
    writer.fail_from_now_on();
    for _ in 0..3 {
        assert!(matches!(writer.flush(), Err(WriteError::File(_))));
        assert!(matches!(writer.push(&op(2)), Err(WriteError::File(_))));
        assert!(matches!(writer.sync(), Err(WriteError::File(_))));
    }
    assert!(matches!(writer.seal(), Err(WriteError::File(_))));
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(file.history().unwrap().ops(), [op(0)]);
}

/// Flips a bit of the block of this kind that comes as number `nth`; where it starts.
fn damage(path: &Path, kind: u16, nth: usize) -> u64 {
    let mut bytes = fs::read(path).unwrap();
    let mut walker = Walker::new(&bytes, PAGE_LENGTH as u64);
    let mut left = nth;
    let offset = loop {
        let (offset, header) = walker.next_header().unwrap().unwrap();
        if header.kind.0 == kind && left == 0 {
            break offset;
        }
        left -= usize::from(header.kind.0 == kind);
    };
    bytes[offset as usize + 40] ^= 4;
    put(path, &bytes);
    offset
}

#[test]
fn a_damaged_node_of_the_directory_is_rebuilt() {
    let scratch = scratch();
    let ops = ops(11, 7 * 600 + 3);
    written(&scratch, &ops, small(Codec::Lz4));
    damage(&scratch, DIRECTORY.0, 1);
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(file.history().unwrap().ops(), ops);
    for index in [0, 1_791, 1_792, 3_583, 3_584, 4_202] {
        assert_eq!(file.operation(index).unwrap().unwrap(), ops[index as usize]);
    }
}

#[test]
fn a_damaged_chunk_is_named_and_the_others_stay_readable() {
    let scratch = scratch();
    let ops = ops(12, 70);
    written(&scratch, &ops, small(Codec::Lz4));
    let offset = damage(&scratch, CHUNK.0, 4);
    let file = TestFile::open(&scratch).unwrap();
    let error = file.chunk(4).unwrap_err();
    let expected = format!("chunk 4 at {offset} (operations 28 to 34)");
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(file.history().is_err() && file.operation(30).is_err());
    let folder = Folder::new(Arc::new(TestFile::open(&scratch).unwrap()), 2);
    let Err(FoldError::Chunk {
        chunk: 4, source, ..
    }) = folder.fold(Times)
    else {
        panic!("chunk 4 is damaged");
    };
    assert!(matches!(*source, OpenError::Chunk { chunk: 4, .. }));
    for index in [0, 27, 35, 69] {
        assert_eq!(file.operation(index).unwrap().unwrap(), ops[index as usize]);
    }
}

#[test]
fn a_writer_that_is_given_up_keeps_what_it_has() {
    let scratch = scratch();
    let ops = ops(13, 30);
    let mut writer = HistoryWriter::create_with(&scratch, &json!({}), small(Codec::Lz4)).unwrap();
    for op in &ops {
        writer.push(op).unwrap();
    }
    drop(writer);
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(file.history().unwrap().ops(), ops);
    assert!(!file.is_complete());
}

/// List-append operations of a hundred clients as a run of the bundled store has them: invocations and completions.
fn list_appends(count: usize) -> Vec<Op> {
    let mut rng = Rng::from_seed(8);
    let mut lengths = [0_i64; 40];
    let mut busy: Vec<Option<Op>> = vec![None; 100];
    let mut time = 0;
    let mut next = |index: usize| {
        time += 1 + rng.below(20_000) as i64;
        let client = rng.index(busy.len());
        let op = if let Some(invocation) = busy[client].take() {
            let Value::Txn(mops) = &invocation.value else {
                unreachable!("all are transactions")
            };
            let done = mops.iter().map(|mop| match mop {
                Mop::Read { key, .. } => {
                    let Key::Int(number) = key else {
                        unreachable!("all keys are numbers")
                    };
                    let seen: Vec<i64> = (1..=lengths[*number as usize]).collect();
                    let observed = Observed::List(seen.into());
                    Mop::Read {
                        key: key.clone(),
                        observed,
                    }
                }
                other => other.clone(),
            });
            invocation.complete(OpType::Ok, Value::Txn(done.collect()))
        } else {
            let mut mops = Vec::new();
            for _ in 0..=rng.below(4) {
                let place = rng.index(lengths.len());
                let key = Key::Int(place as i64);
                if rng.chance(0.5) {
                    lengths[place] += 1;
                    let element = lengths[place];
                    mops.push(Mop::Append { key, element });
                } else {
                    let observed = Observed::Nil;
                    mops.push(Mop::Read { key, observed });
                }
            }
            let process = Process::Client(client as u64);
            let op = Op::invoke(process, "txn", Value::Txn(mops.into()));
            busy[client].insert(op).clone()
        };
        let index = index as u64;
        Op { index, time, ..op }
    };
    (0..count).map(&mut next).collect()
}

#[test]
fn a_list_append_operation_takes_at_most_ten_bytes() {
    let ops = list_appends(4 * 16_384);
    let scratch = scratch();
    let mut writer = HistoryWriter::create(&scratch, &json!({})).unwrap();
    for op in &ops {
        writer.push(op).unwrap();
    }
    writer.seal().unwrap();
    let bytes = fs::metadata(&scratch).unwrap().len();
    let count = ops.len() as u64;
    assert!(bytes <= 10 * count, "{bytes} bytes for {count} operations");
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(file.history().unwrap().ops(), ops);
}
