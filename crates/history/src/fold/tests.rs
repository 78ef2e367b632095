use super::*;
use crate::{OpType, Process, Value};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A history of invocations and completions that is `chunks` chunks long, the last one of a single operation.
fn history(chunks: usize) -> History {
    let count = (chunks - 1) * CHUNK_LENGTH + 1;
    let ops = (0..count as u64).map(|index| {
        // A process completes only after 101 operations, so pairs reach into the chunk before.
        let kind = if (index / 101).is_multiple_of(2) {
            OpType::Invoke
        } else {
            OpType::Ok
        };
        Op {
            index,
            time: (index * 7) as i64,
            kind,
            ..Op::invoke(
                Process::Client(index % 101),
                "read",
                Value::Int(index as i64),
            )
        }
    });
    History::from_ops(ops.collect())
}

/// Lists time and invocation of each operation: tells order, omission and repetition.
struct Listing;

type Row = (i64, Option<u64>);

impl Fold for Listing {
    type Accumulator = Vec<Row>;
    type Output = Vec<Row>;
    fn start(&self) -> Vec<Row> {
        Vec::new()
    }
    fn reduce(&self, rows: &mut Vec<Row>, chunk: &Chunk) -> ControlFlow<()> {
        rows.extend(chunk.views().map(|op| (op.time(), op.invocation())));
        ControlFlow::Continue(())
    }
    fn combine(&self, rows: &mut Vec<Row>, later: Vec<Row>) -> ControlFlow<()> {
        rows.extend(later);
        ControlFlow::Continue(())
    }
    fn finish(&self, rows: Vec<Row>) -> Vec<Row> {
        rows
    }
}

#[test]
fn folds_over_memory_equal_a_plain_loop() {
    let history = history(4);
    let twin: Vec<Row> = (0..history.len())
        .map(|position| {
            let invocation = history.pair(position).filter(|&other| other < position);
            (
                history.ops()[position].time,
                invocation.map(|other| other as u64),
            )
        })
        .collect();
    assert!(twin.iter().any(|(_, invocation)| invocation.is_some()));
    assert_eq!(fold_linear(&history, &Listing).unwrap(), twin);
    for threads in [0, 1, 2, 5] {
        assert_eq!(fold_concurrent(&history, &Listing, threads).unwrap(), twin);
    }
    let empty = History::default();
    assert_eq!(fold_concurrent(&empty, &Listing, 2).unwrap(), []);
}

/// A hundred empty chunks that can be damaged.
struct Numbers {
    damaged: Vec<u64>,
    /// The highest chunk asked for.
    highest: AtomicU64,
}

impl Chunks for Numbers {
    type Error = u64;
    fn chunk_count(&self) -> u64 {
        100
    }
    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, u64> {
        self.highest.fetch_max(number, Ordering::Relaxed);
        if self.damaged.contains(&number) {
            return Err(number);
        }
        Ok(Some(&buffer.chunk))
    }
}

/// Counts chunks; the first chunk to be reduced is slow.
#[derive(Default)]
struct SlowStart<'a> {
    started: AtomicU64,
    highest: Option<&'a AtomicU64>,
    /// How far the others were when the slow one was done.
    ahead: AtomicU64,
    panics_at: Option<u64>,
}

impl Fold for SlowStart<'_> {
    type Accumulator = u64;
    type Output = u64;
    fn start(&self) -> u64 {
        0
    }
    fn reduce(&self, count: &mut u64, _: &Chunk) -> ControlFlow<()> {
        let started = self.started.fetch_add(1, Ordering::Relaxed);
        assert_ne!(Some(started), self.panics_at, "as asked for");
        if started == 0 {
            std::thread::sleep(Duration::from_millis(100));
            let highest = self
                .highest
                .map_or(0, |highest| highest.load(Ordering::Relaxed));
            self.ahead.store(highest, Ordering::Relaxed);
        }
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

fn numbers(damaged: &[u64]) -> Numbers {
    Numbers {
        damaged: damaged.to_vec(),
        highest: AtomicU64::new(0),
    }
}

#[test]
fn a_slow_chunk_bounds_how_far_the_others_go() {
    let chunks = numbers(&[]);
    let fold = SlowStart {
        highest: Some(&chunks.highest),
        ..SlowStart::default()
    };
    assert_eq!(fold_concurrent(&chunks, &fold, 3), Ok(100));
    let ahead = fold.ahead.load(Ordering::Relaxed);
    assert!(
        (1..3 * WAITING_PER_THREAD_MAX + 3).contains(&ahead),
        "{ahead}"
    );
}

#[test]
fn the_first_damaged_chunk_is_told() {
    for threads in [1, 2, 4] {
        let chunks = numbers(&[40, 41, 42, 99]);
        let fold = SlowStart::default();
        assert_eq!(fold_concurrent(&chunks, &fold, threads), Err(40));
    }
    assert_eq!(fold_linear(&numbers(&[7]), &SlowStart::default()), Err(7));
}

#[test]
fn a_panic_of_a_fold_ends_all_threads() {
    for panics_at in [0, 1, 50] {
        let result = std::panic::catch_unwind(|| {
            let fold = SlowStart {
                panics_at: Some(panics_at),
                ..SlowStart::default()
            };
            fold_concurrent(&numbers(&[]), &fold, 3)
        });
        assert!(result.is_err());
    }
}

#[test]
fn what_cannot_be_put_into_columns_is_told() {
    let name: &'static str = "f".repeat(300).leak();
    let history = History::from_ops(vec![Op::invoke(Process::Client(0), name, Value::Nil)]);
    let error = fold_linear(&history, &Listing).unwrap_err();
    assert!(
        matches!(error, HistoryError::Unstorable { index: 0, .. }),
        "{error}"
    );
}
