//! Damaged inputs for every reader of the program, each read by a process of its own with little address space and time.
//!
//! A reader may refuse an input, or make of it what it can; it must not panic, abort, be killed for a wild access, ask for
//! more memory than the limit, or take longer than the limit.

mod mutate;
mod readers;

use crate::limited_program::{End, Program, scratch_folder};
use anyhow::{Context as _, Result};
use mutate::mutate;
use readers::{DAMAGED, FuzzedReader, readers, serve};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kilobytes of address space: threads reserve some hundred megabytes and use little of that.
const ADDRESS_SPACE: u64 = 1 << 20;
/// The longest that one input may take, on a machine that has other work too.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Exit statuses that the manual names: valid, invalid, unknown, error.
const STATUSES: [i32; 4] = [0, 1, 2, 254];

/// What was found of one reader.
#[derive(Clone, Debug, Default)]
struct Found {
    inputs: u64,
    /// By exit status.
    statuses: BTreeMap<i32, u64>,
    slowest: Duration,
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
struct FuzzTally {
    readers: BTreeMap<&'static str, Found>,
    failures: Vec<String>,
}

impl FuzzTally {
    fn add(&mut self, other: FuzzTally) {
        for (name, found) in other.readers {
            let all = self.readers.entry(name).or_default();
            all.inputs += found.inputs;
            all.slowest = all.slowest.max(found.slowest);
            for (status, count) in found.statuses {
                *all.statuses.entry(status).or_default() += count;
            }
        }
        self.failures.extend(other.failures);
    }

    fn table(&self) -> String {
        let mut text = String::from(
            "| reader | inputs | valid or done (0) | invalid or damage (1) | unknown (2) | refused (254) | slowest |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for (name, found) in &self.readers {
            let cells = STATUSES.map(|status| found.statuses.get(&status).copied().unwrap_or(0));
            let [valid, invalid, unknown, refused] = cells;
            let Found {
                inputs, slowest, ..
            } = found;
            let cells = [*inputs, valid, invalid, unknown, refused];
            let cells = cells.map(|count| count.to_string()).join(" | ");
            let slowest = format!("{:.2}", slowest.as_secs_f64());
            text.extend(["| ", name, " | ", &cells, " | ", &slowest, " s |\n"]);
        }
        text
    }
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuzzOptions<'a> {
    pub(crate) inputs: u64,
    pub(crate) first: u64,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// Inputs that fail are kept here.
    pub(crate) keep: &'a Path,
}

/// Runs all inputs and prints a table. Did none fail?
pub(crate) fn run(program: &Program, options: FuzzOptions<'_>) -> Result<bool> {
    let began = Instant::now();
    let scratch = scratch_folder()?;
    let samples = scratch.path().join("samples");
    fs::create_dir(&samples)?;
    let readers = readers(program, &samples).context("samples")?;
    let limited = program.limited(ADDRESS_SPACE);
    let next = AtomicU64::new(options.first);
    let work = |thread: usize| -> Result<FuzzTally> {
        let folder = scratch.path().join(thread.to_string());
        let mut tally = FuzzTally::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.first + options.inputs {
                return Ok(tally);
            }
            input(&limited, &readers, number, options, &folder, &mut tally)
                .with_context(|| format!("input {number}"))?;
        }
    };
    let tally = std::thread::scope(|scope| -> Result<FuzzTally> {
        let work = &work;
        let threads = (0..options.threads).map(|thread| scope.spawn(move || work(thread)));
        let threads: Vec<_> = threads.collect();
        let mut all = FuzzTally::default();
        for thread in threads {
            match thread.join() {
                Ok(tally) => all.add(tally?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })?;
    let (inputs, seed, seconds) = (options.inputs, options.seed, began.elapsed().as_secs_f64());
    println!("# fuzz\n\n{inputs} inputs, seed {seed}, {seconds:.1} s\n");
    println!("{}", tally.table());
    for failure in &tally.failures {
        println!("{failure}");
    }
    println!("{} failures", tally.failures.len());
    Ok(tally.failures.is_empty())
}

/// Makes the input of this number, has it read and looks at the end.
fn input(
    program: &Program,
    readers: &[FuzzedReader],
    number: u64,
    options: FuzzOptions<'_>,
    folder: &Path,
    tally: &mut FuzzTally,
) -> Result<()> {
    let mut rng = Rng::from_seed(options.seed ^ number).fork("fuzz");
    // Servers take long to start, so they get fewer inputs; all other readers get equal shares.
    let reader = &readers[(number % readers.len() as u64) as usize];
    let sample = &reader.samples[rng.index(reader.samples.len())];
    let damaged = sample.damaged[rng.index(sample.damaged.len())];
    let other = &readers[rng.index(readers.len())].samples[0].files[0].1;
    let changed = mutate(&mut rng, &sample.files[damaged].1, other, reader.shape);
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)?;
    for (index, (name, bytes)) in sample.files.iter().enumerate() {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, if index == damaged { &changed } else { bytes })?;
    }
    let name = sample.files[damaged].0.display().to_string();
    let verb = reader.verbs[rng.index(reader.verbs.len())];
    let words = verb.iter().map(|word| {
        if *word == DAMAGED {
            name.as_str()
        } else {
            word
        }
    });
    let words: Vec<&str> = words.collect();
    let began = Instant::now();
    let (end, stderr) = if reader.serves {
        serve(program, folder, &words, TIMEOUT)?
    } else {
        let ran = program.run(folder, &words, TIMEOUT)?;
        (ran.end, ran.stderr)
    };
    let found = tally.readers.entry(reader.name).or_default();
    found.inputs += 1;
    found.slowest = found.slowest.max(began.elapsed());
    match end {
        End::Exit(status) if STATUSES.contains(&status) && !stderr.contains("panicked at") => {
            *found.statuses.entry(status).or_default() += 1;
        }
        end => {
            let kept = keep(folder, options.keep, number)?;
            let (reader, kept) = (reader.name, kept.display());
            let said = stderr.lines().next_back().unwrap_or_default();
            tally.failures.push(format!(
                "input {number}: {reader}, {name} damaged: seatrial {}: {end:?}: {said} (kept in {kept})",
                words.join(" ")
            ));
        }
    }
    Ok(())
}

/// Moves an input away from what comes next.
fn keep(folder: &Path, base: &Path, number: u64) -> Result<PathBuf> {
    let to = base.join(format!("input-{number}"));
    fs::create_dir_all(base)?;
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    copy(folder, &to)?;
    Ok(to)
}

/// Copies a folder, also to another file system.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
