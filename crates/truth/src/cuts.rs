//! Losses of power while the program writes: a file system on a loop device is shut down under it, mounted again, and held to
//! what had been acknowledged.
//!
//! Three writers take turns: `archive record`, a node of the store with a client, and a test with its history. Nothing that was
//! acknowledged as durable may be lost, and no loss may look like a whole file.

mod cut_writers;

use crate::limited_program::{Program, scratch_folder};
use anyhow::{Context as _, Result};
use cut_writers::{CutWriter, WRITERS};
use seatrial_host::{JournalFlush, LoopDisk};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The kinds of file systems, and the program that makes each.
const KINDS: [(&str, &str); 2] = [("ext4", "mkfs.ext4"), ("xfs", "mkfs.xfs")];
/// Folders in which programs of the system are.
const PROGRAMS: [&str; 3] = ["/sbin", "/usr/sbin", "/usr/bin"];

/// What one cut came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CutOutcome {
    /// Messages, appends or operations that were acknowledged as durable.
    acknowledged: u64,
    /// What was there after the cut.
    found: u64,
    /// Did the program report damage, and repair it?
    is_repaired: bool,
    /// The problem.
    failure: Option<String>,
}

/// What all cuts of one kind came to.
#[derive(Clone, Debug, Default)]
struct Sum {
    cuts: u64,
    acknowledged: u64,
    found: u64,
    repaired: u64,
    failures: u64,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutOptions {
    pub(crate) cuts: u64,
    pub(crate) first: u64,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
}

/// Cuts the power on each kind of file system that can be had, and prints a table. Was nothing lost? True also where there is
/// no loop device: the reason is printed.
pub(crate) fn run(program: &Program, options: CutOptions) -> Result<bool> {
    println!("# cuts\n");
    let mut kinds = Vec::new();
    for (kind, maker) in KINDS {
        match usable(kind, maker) {
            Ok(()) => kinds.push(kind),
            Err(error) => println!("{kind}: skipped: {error:#}\n"),
        }
    }
    let mut is_clean = true;
    for kind in &kinds {
        let share = options.cuts.div_ceil(kinds.len() as u64);
        let began = Instant::now();
        let (sums, failures) = all(program, kind, share, options)?;
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{kind}: {share} cuts, seed {}, {seconds:.1} s\n",
            options.seed
        );
        println!("{}", table(&sums));
        for failure in &failures {
            println!("{failure}");
        }
        println!("{} failures\n", failures.len());
        is_clean &= failures.is_empty();
    }
    Ok(is_clean)
}

/// Can a file system of this kind be made, mounted and shut down here?
fn usable(kind: &str, maker: &str) -> Result<()> {
    let is_there = PROGRAMS
        .iter()
        .any(|folder| Path::new(folder).join(maker).is_file());
    anyhow::ensure!(is_there, "{maker} is not installed");
    let scratch = scratch_folder()?;
    Ok(LoopDisk::check(kind, scratch.path())?)
}

type Sums = BTreeMap<&'static str, Sum>;

/// Runs `cuts` cuts on one kind of file system, on all threads.
fn all(
    program: &Program,
    kind: &str,
    cuts: u64,
    options: CutOptions,
) -> Result<(Sums, Vec<String>)> {
    let next = AtomicU64::new(options.first);
    let work = || -> Result<(Sums, Vec<String>)> {
        let scratch = scratch_folder()?;
        let (image, point) = (scratch.path().join("image"), scratch.path().join("disk"));
        let mut disk = LoopDisk::new(kind, LoopDisk::LENGTH, &image, &point)?;
        let (mut sums, mut failures) = (Sums::new(), Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.first + cuts {
                return Ok((sums, failures));
            }
            let writer = &WRITERS[(number % WRITERS.len() as u64) as usize];
            let mut rng = Rng::from_seed(options.seed ^ number).fork("cuts");
            let outcome = cut(program, writer, kind, &mut disk, scratch.path(), &mut rng);
            let outcome = outcome.with_context(|| format!("cut {number}, {}", writer.name))?;
            let sum = sums.entry(writer.name).or_default();
            sum.cuts += 1;
            sum.acknowledged += outcome.acknowledged;
            sum.found += outcome.found;
            sum.repaired += u64::from(outcome.is_repaired);
            if let Some(failure) = outcome.failure {
                sum.failures += 1;
                failures.push(format!("cut {number}, {}: {failure}", writer.name));
            }
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads = (0..options.threads).map(|_| scope.spawn(work));
        let threads: Vec<_> = threads.collect();
        let (mut sums, mut failures) = (Sums::new(), Vec::new());
        for thread in threads {
            match thread.join() {
                Ok(done) => {
                    let (more, failed) = done?;
                    for (name, sum) in more {
                        add(sums.entry(name).or_default(), &sum);
                    }
                    failures.extend(failed);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok((sums, failures))
    })
}

fn add(all: &mut Sum, sum: &Sum) {
    all.cuts += sum.cuts;
    all.acknowledged += sum.acknowledged;
    all.found += sum.found;
    all.repaired += sum.repaired;
    all.failures += sum.failures;
}

/// One cut: an empty file system, a writer on it, the cut at some moment, and what is there afterwards.
fn cut(
    program: &Program,
    writer: &CutWriter,
    kind: &str,
    disk: &mut LoopDisk,
    scratch: &Path,
    rng: &mut Rng,
) -> Result<CutOutcome> {
    disk.format(kind)?;
    let flush = if rng.chance(0.8) {
        JournalFlush::Nothing
    } else {
        JournalFlush::Journal
    };
    let running = (writer.begin)(program, disk.point(), scratch, rng)?;
    let milliseconds =
        writer.milliseconds.start + rng.below(writer.milliseconds.end - writer.milliseconds.start);
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
    // Not what comes during the call: a sync that meets the shutdown may return success for bytes that it did not write
    // (seen on ext4 of Linux 6.18), which a machine without power does not report.
    let acknowledged = running.acknowledged()?;
    disk.cut(flush)?;
    running.end()?;
    disk.unmount()?;
    disk.mount()?;
    (writer.check)(program, disk.point(), scratch, acknowledged)
}

fn table(sums: &Sums) -> String {
    let mut text = String::from(
        "| writer | cuts | acknowledged | found after the cut | reported as damaged and repaired | lost or silent |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (name, sum) in sums {
        let Sum {
            cuts,
            acknowledged,
            found,
            repaired,
            failures,
        } = sum;
        let cells = [cuts, acknowledged, found, repaired, failures];
        let cells = cells.map(ToString::to_string).join(" | ");
        text.extend(["| ", name, " | ", &cells, " |\n"]);
    }
    text
}
