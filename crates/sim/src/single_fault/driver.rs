//! One run for each fault.

use super::accesses::{Access, BlockFault, Plan, Site};
use crate::storage::{FileTree, MemoryStorage};
use seatrial_machine::{Storage, panic_text};
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What came of a program with one fault.
#[derive(Debug)]
pub struct FaultRun<'a, T> {
    /// Where the fault is.
    pub site: &'a Site,
    /// The access of the site that met it, from 0.
    pub turn: u64,
    /// Do later ones meet it too?
    pub lasts: bool,
    /// The fault.
    pub fault: BlockFault,
    /// Bytes of a block.
    pub block_length: u64,
    /// What the program answers without a fault.
    pub expected: &'a T,
    /// What it answered.
    pub answer: Result<T, String>,
    /// The files that it left.
    pub files: FileTree,
}

impl<T: PartialEq + Debug> FaultRun<'_, T> {
    /// The right answer, or an error that names the file and, where the fault was in a block, a position at or before the
    /// block's end.
    pub fn is_honest(&self) -> Result<(), String> {
        match &self.answer {
            Ok(answer) if answer == self.expected => Ok(()),
            Ok(answer) => Err(format!("another answer without a word: {}", short(answer))),
            Err(text) => self.is_clear(text),
        }
    }

    /// Does an error say which file, and where?
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

/// The numbers in a text; commas between digits belong to them.
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

/// A run that was judged badly.
#[derive(Clone, Debug)]
pub struct FaultFailure {
    /// The fault in words.
    pub fault: String,
    /// Where it was.
    pub site: Site,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for FaultFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.fault, self.reason)
    }
}

/// What came of all runs.
#[derive(Clone, Debug, Default)]
pub struct FaultReport {
    /// Blocks that the program met, of all files, with what it did to them.
    pub sites: u64,
    /// Runs whose fault was met.
    pub runs: u64,
    /// Runs with the right answer.
    pub same: u64,
    /// Runs that ended with an error.
    pub told: u64,
    /// Runs with another answer.
    pub different: u64,
    /// Runs that panicked. They are failures too.
    pub panicked: u64,
    /// What was judged badly.
    pub failures: Vec<FaultFailure>,
    /// Errors, one for each kind of access and fault, as an example.
    pub examples: BTreeMap<(Access, BlockFault), String>,
}

impl FaultReport {
    /// Panics with the first failures, if there are any.
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
            told,
            different,
            panicked,
            ..
        } = self;
        write!(
            f,
            "{sites} sites, {runs} runs with one fault each: {same} with the right answer, {told} with an error, \
             {different} with another answer, {panicked} panics; {} judged badly",
            self.failures.len()
        )?;
        for failure in self.failures.iter().take(12) {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }
}

/// Runs a program once for each block that it meets, for each fault that the block can have, at its first access and at its
/// last, once and for good. The program gets a storage with the same files each time and has to be deterministic.
///
/// Its downside: the number of runs is that of blocks times about ten, so files should be small or blocks large.
#[derive(Clone, Debug)]
pub struct SingleFaults {
    start: FileTree,
    block_length: u64,
    lends: bool,
}

impl SingleFaults {
    /// Begins each run with these files. Blocks are of 4,096 bytes.
    pub fn new(start: FileTree) -> SingleFaults {
        SingleFaults {
            start,
            block_length: 4_096,
            lends: false,
        }
    }

    /// Blocks of another length, in bytes.
    #[must_use]
    pub fn block_length(mut self, block_length: u64) -> SingleFaults {
        self.block_length = block_length.max(1);
        self
    }

    /// With files that are lent by [`Medium::map`](seatrial_machine::Medium::map).
    #[must_use]
    pub fn lending(mut self) -> SingleFaults {
        self.lends = true;
        self
    }

    fn memory(&self) -> MemoryStorage {
        let memory = MemoryStorage::from_files(&self.start);
        if self.lends { memory.lending() } else { memory }
    }

    /// Runs `program` with every fault, and has `judge` say whether what came of it may be. Panics if the program fails
    /// without a fault.
    pub fn run<T: PartialEq + Debug>(
        &self,
        program: impl Fn(Arc<dyn Storage>) -> Result<T, String>,
        mut judge: impl FnMut(&FaultRun<'_, T>) -> Result<(), String>,
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
                report.add(&run, panic, &mut judge);
            }
        }
        report
    }
}

/// At the first access, and where there are more, at all of them and at the last.
fn plans(site: &Site, count: u64) -> Vec<Plan> {
    let mut plans = Vec::new();
    let more = [(0, true), (count.saturating_sub(1), false)];
    let more = more.into_iter().filter(|_| count > 1);
    let turns: Vec<(u64, bool)> = [(0, false)].into_iter().chain(more).collect();
    for &fault in BlockFault::of(site.access) {
        for &(turn, lasts) in &turns {
            plans.push(Plan {
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
        judge: &mut impl FnMut(&FaultRun<'_, T>) -> Result<(), String>,
    ) {
        self.runs += 1;
        let is_panic = panic.is_some();
        let judged = match panic {
            Some(text) => Err(format!("panicked: {text}")),
            None => judge(run),
        };
        match &run.answer {
            _ if is_panic => self.panicked += 1,
            Ok(answer) if answer == run.expected => self.same += 1,
            Ok(_) => self.different += 1,
            Err(text) => {
                self.told += 1;
                let key = (run.site.access, run.fault);
                self.examples
                    .entry(key)
                    .or_insert_with(|| format!("{run}: {text}"));
            }
        }
        if let Err(reason) = judged {
            self.failures.push(FaultFailure {
                fault: run.to_string(),
                site: run.site.clone(),
                reason,
            });
        }
    }
}
