use super::*;
use crate::{OpType, Process, Value};
use std::ops::ControlFlow;
use std::sync::Arc;

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

/// Lists time and invocation of each operation: shows wrong order, omission and repetition.
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
    let history = Arc::new(history);
    for threads in [0, 1, 2, 5] {
        let folder = Folder::new(history.clone(), threads);
        assert_eq!(folder.fold(Listing).unwrap(), twin);
    }
    let empty = Folder::new(Arc::new(History::default()), 2);
    assert_eq!(empty.fold(Listing).unwrap(), []);
}

#[test]
fn operations_that_cannot_be_stored_are_reported() {
    let name: &'static str = "f".repeat(300).leak();
    let history = History::from_ops(vec![Op::invoke(Process::Client(0), name, Value::Nil)]);
    let error = fold_linear(&history, &Listing).unwrap_err();
    assert!(
        matches!(error, HistoryError::Unstorable { index: 0, .. }),
        "{error}"
    );
}
