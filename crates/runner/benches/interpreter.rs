//! Operations per second through the interpreter, against a client that answers at once, with the history on disk.
//! Arguments: number of workers, number of invocations; a short run unless `--bench` is given.

use seatrial_runner::{RunFolder, bench_interpreter};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let whole = arguments.iter().any(|argument| argument == "--bench");
    let mut numbers = arguments
        .iter()
        .filter_map(|argument| argument.parse::<u64>().ok());
    let workers = numbers.next().unwrap_or(100);
    let invocations = numbers
        .next()
        .unwrap_or(if whole { 2_000_000 } else { 2_000 });
    let folder = tempfile::tempdir()?;
    let figures = bench_interpreter(
        RunFolder::open(folder.path())?,
        u32::try_from(workers)?,
        invocations,
    )?;
    println!(
        "{workers} workers: {} operations in {:.3} s: {:.0} operations/s, {:.1} bytes an event",
        figures.operations,
        figures.elapsed.as_secs_f64(),
        figures.operations_per_second(),
        figures.file_length as f64 / figures.events as f64,
    );
    Ok(())
}
