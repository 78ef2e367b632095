//! Questions about a test file: the program of `docs/guide/folds.md`.
//! `cargo run --release -p seatrial-query --example questions -- history.sea`

use seatrial_history::{
    Chunk, Fold, FoldError, Folder, OpType, OpenError, Order, TestFile, fold_linear,
};
use seatrial_query::{self as query, View, ViewError};
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: questions FILE")?;
    let file = Arc::new(TestFile::open(Path::new(&path))?);
    count(&file)?;
    let folder = Folder::new(file.clone(), 2);
    latency(&folder)?;
    one_pass(&file)?;
    end_early(&file)?;
    micro_operations(&file)?;
    plain_rust(&folder)?;
    by_columns(&folder)?;
    part(&file)?;
    together(&file)?;
    Ok(())
}

fn count(file: &TestFile) -> Result<(), OpenError> {
    let question = query::clients().count_by_f();
    for (f, kinds) in fold_linear(file, &question)? {
        println!(
            "{f}: {} ok, {} fail, {} info",
            kinds.ok(),
            kinds.fail(),
            kinds.info()
        );
    }
    Ok(())
}

fn latency(folder: &Folder<TestFile>) -> Result<(), FoldError<OpenError>> {
    let question = query::latencies()
        .filter(|latency| latency.kind() == OpType::Ok)
        .group_by(
            |latency| latency.f(),
            |latencies| {
                latencies
                    .map(|latency| latency.nanos())
                    .quantiles([0.5, 0.99, 1.0])
            },
        );
    for (f, quantiles) in folder.fold(question)? {
        let [half, most, all] = quantiles.unwrap_or_default().map(|nanos| nanos / 1e6);
        println!("{f}: half within {half:.2} ms, 99 % within {most:.2} ms, all within {all:.2} ms");
    }
    Ok(())
}

fn one_pass(file: &TestFile) -> Result<(), OpenError> {
    let question = query::clients().fuse(|ops| {
        let oks = ops.of_kind(OpType::Ok);
        (
            ops.map(|op| op.time()).range(),
            ops.map(|op| op.process()).distinct(),
            oks.map(|op| op.time() / 1_000_000_000).frequencies(),
            oks.map(|op| op.index()).sample(3, 1, |index| *index),
        )
    });
    let (times, processes, by_second, sample) = fold_linear(file, &question)?;
    let (first, last) = times.unwrap_or_default();
    println!(
        "{:.1} s, {processes} processes",
        (last - first) as f64 / 1e9
    );
    println!("best second: {:?} operations", by_second.values().max());
    println!("some to look at: {sample:?}");
    Ok(())
}

fn end_early(file: &TestFile) -> Result<(), OpenError> {
    let question = query::fuse((
        query::clients().any(|op| op.kind() == OpType::Info),
        query::ops()
            .filter(|op| op.kind() == OpType::Fail)
            .owned()
            .first(),
    ));
    let (any_unknown, first_failure) = fold_linear(file, &question)?;
    println!("unknown outcomes: {any_unknown}");
    if let Some(op) = first_failure {
        println!("first failure: index {} at {} ns", op.index, op.time);
    }
    Ok(())
}

fn micro_operations(file: &TestFile) -> Result<(), OpenError> {
    let question = query::ops()
        .of_kind(OpType::Ok)
        .mops()
        .group_by(
            |mop| mop.op.chunk().key(mop.mop.key()).clone(),
            |mops| mops.count(),
        )
        .post(|counts| counts.into_iter().max_by_key(|(_, count)| *count));
    if let Some((key, count)) = fold_linear(file, &question)? {
        println!("most used key: {key:?}, {count} times");
    }
    Ok(())
}

fn plain_rust(folder: &Folder<TestFile>) -> Result<(), FoldError<OpenError>> {
    // In order, in one thread: how many invocations are open at once?
    let open = query::clients().fold(
        || (0, 0),
        |(now, most), op| {
            *now += if op.kind() == OpType::Invoke { 1 } else { -1 };
            *most = (*most).max(*now);
        },
    );
    let (_, most) = folder.fold(open)?;
    println!("at most {most} at once");
    // With a way to combine parts it can run in many threads.
    let elements = query::ops().fold_combine(
        || 0,
        |elements, op| *elements += op.chunk().mops(op.place()).len(),
        |elements, later| *elements += later,
    );
    println!("{} micro-operations", folder.fold(elements)?);
    Ok(())
}

/// The longest time between two operations.
struct LongestPause;

/// First time, last time, longest pause between them.
type Pause = Option<(i64, i64, i64)>;

impl Fold for LongestPause {
    type Accumulator = Pause;
    type Output = Option<i64>;

    fn order(&self) -> Order {
        Order::Associative
    }

    fn start(&self) -> Pause {
        None
    }

    fn reduce(&self, pause: &mut Pause, chunk: &Chunk) -> ControlFlow<()> {
        let Some((&first, &last)) = chunk.times().first().zip(chunk.times().last()) else {
            return ControlFlow::Continue(());
        };
        let pauses = chunk.times().windows(2).map(|pair| pair[1] - pair[0]);
        self.combine(pause, Some((first, last, pauses.max().unwrap_or(0))))
    }

    fn combine(&self, pause: &mut Pause, later: Pause) -> ControlFlow<()> {
        *pause = match (*pause, later) {
            (Some((first, end, one)), Some((begin, last, other))) => {
                Some((first, last, one.max(other).max(begin - end)))
            }
            (one, other) => one.or(other),
        };
        ControlFlow::Continue(())
    }

    fn finish(&self, pause: Pause) -> Option<i64> {
        pause.map(|(_, _, longest)| longest)
    }
}

fn by_columns(folder: &Folder<TestFile>) -> Result<(), FoldError<OpenError>> {
    println!("longest pause: {:?} ns", folder.fold(LongestPause)?);
    Ok(())
}

fn part(file: &Arc<TestFile>) -> Result<(), ViewError> {
    let second = View::of_file(file.clone())
        .clients()
        .between(1_000_000_000..2_000_000_000);
    let kinds = second.fold(query::ops().count_by_kind())?;
    println!(
        "in the second second: {} invocations, {} ok",
        kinds.invoke(),
        kinds.ok()
    );
    Ok(())
}

fn together(file: &Arc<TestFile>) -> Result<(), FoldError<OpenError>> {
    let folder = Folder::new(file.clone(), 2);
    let (kinds, slowest) = folder.together(|batch| {
        let kinds = batch.submit(query::ops().count_by_kind().named("types"));
        let slowest = query::latencies().map(|latency| latency.nanos()).top(3);
        (kinds, batch.submit(slowest.named("slowest")))
    });
    println!(
        "{} invocations; slowest: {:?} ns",
        kinds.wait()?.invoke(),
        slowest.wait()?
    );
    println!("chunks decoded: {}", folder.statistics().chunks_decoded);
    Ok(())
}
