//! The driver of single faults: one run per block, access and fault.

use super::accesses::{Access, BlockFault, PlantedFault, Site};
use crate::simulated_storage::{FileTree, MemoryStorage};
use seatrial_machine::{Storage, panic_text};
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// One run of a program with one planted fault.
#[derive(Debug)]
pub struct FaultRun<'a, T> {
    /// The block and access that meet the fault.
    pub site: &'a Site,
    /// The access of the site that meets it, counted from 0.
    pub turn: u64,
    /// Do later accesses meet it too?
    pub lasts: bool,
    /// The fault.
    pub fault: BlockFault,
    /// Length of a block, in bytes.
    pub block_length: u64,
    /// The answer of the run without a fault.
    pub expected: &'a T,
    /// The answer of this run.
    pub answer: Result<T, String>,
    /// The files after this run.
    pub files: FileTree,
}

impl<T: PartialEq + Debug> FaultRun<'_, T> {
    /// Accepts the right answer, or an error that names the file and, where the fault was in a block, a position at or before
    /// the end of the block.
    pub fn is_honest(&self) -> Result<(), String> {
        match &self.answer {
            Ok(answer) if answer == self.expected => Ok(()),
            Ok(answer) => Err(format!(
                "another answer without an error: {}",
                short(answer)
            )),
            Err(text) => self.is_clear(text),
        }
    }

    /// Accepts an error text that names the file and the position.
    pub fn is_clear(&self, text: &str) -> Result<(), String> {
        let name = self.site.path.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        if !text.contains(&*name) {
            return Err(format!("the error does not name {name}: {text}"));
        }
        let is_in_block = matches!(self.site.access, Access::Read | Access::Write);
        let end = (self.site.block + 1) * self.block_length;
        let rest = text.replace(&*name, "");
        if is_in_block && !numbers(&rest).any(|number| number <= end) {
            return Err(format!("the error does not say where: {text}"));
        }
        Ok(())
    }
}

/// The numbers in a text, with or without commas between thousands.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != ',');
    words.filter_map(|word| word.replace(',', "").parse().ok())
}

fn short(answer: &impl Debug) -> String {
    let mut text = format!("{answer:?}");
    if text.len() > 200 {
        let end = (0..=200).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

impl<T> fmt::Display for FaultRun<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site {
            path,
            block,
            access,
        } = self.site;
        let access = match access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Sync => "sync",
            Access::SetLength => "change of length",
            Access::Name => "use of the name",
        };
        let turn = self.turn + 1;
        let path = path.display();
        write!(
            f,
            "{} at {access} {turn} of block {block} of \"{path}\"",
            self.fault
        )?;
        if self.lasts {
            f.write_str(" and at every later one")?;
        }
        Ok(())
    }
}

/// A run that the check refused.
#[derive(Clone, Debug)]
pub struct FaultFailure {
    /// The fault, as text.
    pub fault: String,
    /// The block and access that met it.
    pub site: Site,
    /// The error of the check.
    pub reason: String,
}

impl fmt::Display for FaultFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.fault, self.reason)
    }
}

/// Counts and failures of all runs.
#[derive(Clone, Debug, Default)]
pub struct FaultReport {
    /// Number of sites: pairs of a block and a kind of access.
    pub sites: u64,
    /// Runs whose fault was met.
    pub runs: u64,
    /// Runs with the right answer.
    pub same: u64,
    /// Runs that returned an error.
    pub errors: u64,
    /// Runs with another answer.
    pub different: u64,
    /// Runs that panicked; each is a failure too.
    pub panicked: u64,
    /// Runs that the check refused.
    pub failures: Vec<FaultFailure>,
    /// One error text for each kind of access and fault, as an example.
    pub examples: BTreeMap<(Access, BlockFault), String>,
}

impl FaultReport {
    /// Panics with the first failures, if there are any; returns the report otherwise.
    pub fn assert_holds(self) -> FaultReport {
        assert!(self.failures.is_empty(), "{self}");
        self
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultReport {
            sites,
            runs,
            same,
            errors,
            different,
            panicked,
            ..
        } = self;
        write!(
            f,
            "{sites} sites, {runs} runs with one fault each: {same} with the right answer, {errors} with an error, \
             {different} with another answer, {panicked} panics; {} failures",
            self.failures.len()
        )?;
        for failure in self.failures.iter().take(12) {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }
}

/// Runs a program once per site that it accesses and fault that the access can meet: at the first access and at the last, once
/// and permanently. The program gets a storage with the same files each time and must be deterministic.
///
/// Its downside: the number of runs is about ten times the number of blocks, so files should be small or blocks large.
#[derive(Clone, Debug)]
pub struct SingleFaults {
    start: FileTree,
    block_length: u64,
    lends: bool,
}

impl SingleFaults {
    /// Begins each run with these files. Blocks have 4,096 bytes.
    pub fn new(start: FileTree) -> SingleFaults {
        SingleFaults {
            start,
            block_length: 4_096,
            lends: false,
        }
    }

    /// Sets the length of a block, in bytes.
    #[must_use]
    pub fn block_length(mut self, block_length: u64) -> SingleFaults {
        self.block_length = block_length.max(1);
        self
    }

    /// Files can be mapped with [`Medium::map`](seatrial_machine::Medium::map).
    #[must_use]
    pub fn lending(mut self) -> SingleFaults {
        self.lends = true;
        self
    }

    fn memory(&self) -> MemoryStorage {
        let memory = MemoryStorage::from_files(&self.start);
        if self.lends { memory.lending() } else { memory }
    }

    /// Runs `program` with every fault and gives each run to `check`, whose error is a failure. Panics if the program fails
    /// without a fault.
    pub fn run<T: PartialEq + Debug>(
        &self,
        program: impl Fn(Arc<dyn Storage>) -> Result<T, String>,
        mut check: impl FnMut(&FaultRun<'_, T>) -> Result<(), String>,
    ) -> FaultReport {
        let counting = self.memory().counting(self.block_length, None);
        let expected = program(Arc::new(counting.clone()));
        let expected = expected.unwrap_or_else(|error| panic!("without a fault: {error}"));
        let met = counting.met();
        let mut report = FaultReport {
            sites: met.len() as u64,
            ..FaultReport::default()
        };
        for (site, count) in &met {
            for plan in plans(site, *count) {
                let memory = self.memory();
                let storage = memory.counting(self.block_length, Some(plan.clone()));
                let handle: Arc<dyn Storage> = Arc::new(storage.clone());
                let answer = catch_unwind(AssertUnwindSafe(|| program(handle)));
                if !storage.has_fired() {
                    continue;
                }
                let (answer, panic) = match answer {
                    Ok(answer) => (answer, None),
                    Err(panic) => (Err(String::new()), Some(panic_text(&*panic).to_owned())),
                };
                let run = FaultRun {
                    site,
                    turn: plan.turn,
                    lasts: plan.lasts,
                    fault: plan.fault,
                    block_length: self.block_length,
                    expected: &expected,
                    answer,
                    files: memory.files(),
                };
                report.add(&run, panic, &mut check);
            }
        }
        report
    }
}

/// Faults of one site: at the first access; if there are more, at all of them, and at the last.
fn plans(site: &Site, count: u64) -> Vec<PlantedFault> {
    let mut plans = Vec::new();
    let more = [(0, true), (count.saturating_sub(1), false)];
    let more = more.into_iter().filter(|_| count > 1);
    let turns: Vec<(u64, bool)> = [(0, false)].into_iter().chain(more).collect();
    for &fault in BlockFault::of(site.access) {
        for &(turn, lasts) in &turns {
            plans.push(PlantedFault {
                site: site.clone(),
                turn,
                lasts,
                fault,
                seed: site.block * 31 + plans.len() as u64,
            });
        }
    }
    plans
}

impl FaultReport {
    fn add<T: PartialEq + Debug>(
        &mut self,
        run: &FaultRun<'_, T>,
        panic: Option<String>,
        check: &mut impl FnMut(&FaultRun<'_, T>) -> Result<(), String>,
    ) {
        self.runs += 1;
        let is_panic = panic.is_some();
        let checked = match panic {
            Some(text) => Err(format!("panicked: {text}")),
            None => check(run),
        };
        match &run.answer {
            _ if is_panic => self.panicked += 1,
            Ok(answer) if answer == run.expected => self.same += 1,
            Ok(_) => self.different += 1,
            Err(text) => {
                self.errors += 1;
                let key = (run.site.access, run.fault);
                self.examples
                    .entry(key)
                    .or_insert_with(|| format!("{run}: {text}"));
            }
        }
        if let Err(reason) = checked {
            self.failures.push(FaultFailure {
                fault: run.to_string(),
                site: run.site.clone(),
                reason,
            });
        }
    }
}
