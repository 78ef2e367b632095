//! `seatrial bench`: measures seatrial itself. Prints every run, so that a result can be committed raw.

use crate::args::BenchArguments;
use crate::exit::Exit;
use crate::suite::kv::simulated::Simulation;
use anyhow::{Result, bail};
use seatrial_machine::FaultKind;
use std::time::Instant;

/// Carries the verb out.
pub(crate) fn run(arguments: &BenchArguments) -> Result<Exit> {
    match arguments.topic.as_str() {
        "sim" => simulation(arguments),
        other => bail!("there is no topic {other:?}; the topics are: interpreter, sim, open"),
    }
}

/// Machine turns per second of `sim kv`, on one core, without checking.
fn simulation(arguments: &BenchArguments) -> Result<Exit> {
    let seeds = arguments.ops.unwrap_or(200);
    for (name, kinds) in [
        ("quiet", vec![]),
        (
            "faults",
            vec![
                FaultKind::Kill,
                FaultKind::Pause,
                FaultKind::Partition,
                FaultKind::Clock,
            ],
        ),
    ] {
        let mut rates = Vec::new();
        for number in 0..=arguments.runs {
            let (mut turns, mut operations) = (0, 0);
            let began = Instant::now();
            for seed in 0..seeds {
                let simulation = Simulation {
                    seed,
                    workload: ["list-append", "register"][(seed % 2) as usize].into(),
                    kinds: kinds.clone(),
                    operations: 1_000,
                    concurrency: 6,
                    operation_interval: None,
                    bug: None,
                };
                let run = simulation.run()?;
                turns += run.turns;
                operations += run.history.len();
            }
            let rate = turns as f64 / began.elapsed().as_secs_f64();
            let warm_up = if number == 0 { "  warm-up" } else { "" };
            println!(
                "sim {name}: {turns} turns, {operations} operations, {rate:.0} turns/s{warm_up}"
            );
            if number > 0 {
                rates.push(rate);
            }
        }
        rates.sort_by(f64::total_cmp);
        println!(
            "sim {name}: min {:.0}  median {:.0}  max {:.0} turns/s",
            rates[0],
            rates[rates.len() / 2],
            rates[rates.len() - 1]
        );
    }
    Ok(Exit::Valid)
}
