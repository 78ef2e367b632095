//! Does a long test need more memory than a short one?

use crate::args::BenchEnduranceArguments;
use crate::resources::resident;
use anyhow::{Result, ensure};
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{
    Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation, THREADS_MAX, any,
    function, operation,
};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::Rng;
use seatrial_terminal::{Exit, say};
use std::time::{Duration, Instant};

/// Growth from the first to the last look that still counts as none, in percent.
const GROWTH_MAX: f64 = 5.0;
/// Most memory that a test of any length may take.
const RESIDENT_MAX: u64 = 100_000_000;
/// Operations of one part of the test. Parts follow one another, so a leak per part shows as growth.
const PART_LENGTH: u64 = 100_000;
/// One of this many completions is a failure or a crash.
const TROUBLE: u64 = 25;

/// A test in virtual time: parts of a workload one after the other, each begun when all threads are free, beside a
/// nemesis; of the answers, 4 % are failures and crashes.
fn generator(arguments: &BenchEnduranceArguments) -> Result<Box<dyn Generator>> {
    let rng = Rng::from_seed(1);
    let name = arguments.workload.clone();
    let options = WorkloadOptions::default();
    Workload::new(&name, &rng, &options)?;
    let mut parts = 0_u64;
    let stream = rng.fork("parts");
    let part = function(move || {
        parts += 1;
        let workload = Workload::new(&name, &stream.fork(&parts.to_string()), &options).ok()?;
        Some(workload.generator.limit(PART_LENGTH).synchronize())
    });
    let faults = ["kill", "restart"].map(|fault| {
        let fault = operation(fault, Value::text("n1")).repeat();
        fault.stagger(rng.fork("faults"), Duration::from_micros(200))
    });
    let faults = any(rng.fork("nemesis"), faults).nemesis().boxed();
    let both = any(rng.fork("any"), [part.clients().boxed(), faults]);
    Ok(both.limit(arguments.ops).boxed())
}

/// Carries the topic out.
pub(super) fn run(arguments: &BenchEnduranceArguments) -> Result<Exit> {
    let concurrency = arguments.concurrency;
    ensure!(
        (1..=THREADS_MAX).contains(&concurrency),
        "--concurrency goes from 1 to {THREADS_MAX}"
    );
    ensure!(
        arguments.every > 0 && arguments.ops > 0,
        "--ops and --every take numbers above 0"
    );
    let options = InterpreterOptions::new(concurrency, Rng::from_seed(2));
    let mut rough = Rng::from_seed(3);
    let client = move |op: &Op| {
        let kind = match rough.below(TROUBLE * 2) {
            0 => OpType::Info,
            1 => OpType::Fail,
            _ => OpType::Ok,
        };
        let latency = rough.duration_below(Duration::from_micros(2));
        SimulatedReply::After(latency, kind, op.value.clone())
    };
    let interpreter = Interpreter::new(generator(arguments)?, &options);
    let mut simulation = Simulation::new(interpreter, client);
    say!(
        "endurance: {} operations, {}, {concurrency} threads, in virtual time, the history is not kept",
        arguments.ops,
        arguments.workload
    );
    say!(
        "{:>14} {:>12} {:>12}",
        "operations",
        "per second",
        "resident KB"
    );
    let mut looks = Looks::new(arguments.every);
    simulation.run_with(|_| looks.count());
    if let Some(failure) = simulation.failure() {
        anyhow::bail!("{failure}");
    }
    Ok(looks.conclude())
}

/// What was seen of time and memory.
struct Looks {
    /// Operations between two looks.
    every: u64,
    /// What was recorded: an invocation and its completion are two.
    recorded: u64,
    began: Instant,
    last: Instant,
    /// Bytes, at each look.
    resident: Vec<u64>,
}

impl Looks {
    fn new(every: u64) -> Looks {
        Looks {
            every,
            recorded: 0,
            began: Instant::now(),
            last: Instant::now(),
            resident: Vec::new(),
        }
    }

    /// One more is recorded.
    fn count(&mut self) {
        self.recorded += 1;
        if !self.recorded.is_multiple_of(2 * self.every) {
            return;
        }
        let bytes = resident().unwrap_or(0);
        let rate = self.every as f64 / self.last.elapsed().as_secs_f64();
        let (operations, kilobytes) = (self.recorded / 2, bytes / 1_000);
        say!("{operations:>14} {rate:>12.0} {kilobytes:>12}");
        self.last = Instant::now();
        self.resident.push(bytes);
    }

    /// Says whether memory grew.
    fn conclude(&self) -> Exit {
        let seconds = self.began.elapsed().as_secs_f64();
        let operations = self.recorded / 2;
        say!(
            "endurance: {operations} operations in {seconds:.1} s, {:.0} operations/s",
            operations as f64 / seconds
        );
        let (Some(&first), Some(&last)) = (self.resident.first(), self.resident.last()) else {
            return Exit::Valid; // shorter than one look
        };
        let most = self.resident.iter().copied().max().unwrap_or(last);
        if most == 0 {
            say!("endurance: the resident memory cannot be read on this system");
            return Exit::Unknown;
        }
        let growth = (last as f64 / first as f64 - 1.0) * 100.0;
        let constant = growth <= GROWTH_MAX && most <= RESIDENT_MAX;
        say!(
            "endurance: {} resident KB at the first look, {} at the last ({growth:+.1} %), {} at most: {}",
            first / 1_000,
            last / 1_000,
            most / 1_000,
            if constant { "constant" } else { "NOT constant" }
        );
        if constant { Exit::Valid } else { Exit::Invalid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_and_size_decide_the_verdict() {
        let verdict = |resident: &[u64]| {
            let mut looks = Looks::new(1);
            looks.resident = resident.to_vec();
            looks.conclude()
        };
        assert_eq!(verdict(&[]), Exit::Valid);
        assert_eq!(verdict(&[0, 0]), Exit::Unknown);
        assert_eq!(verdict(&[10_000_000, 12_000_000, 10_400_000]), Exit::Valid);
        assert_eq!(verdict(&[10_000_000, 10_600_000]), Exit::Invalid);
        assert_eq!(verdict(&[101_000_000, 101_000_000]), Exit::Invalid);
    }
}
