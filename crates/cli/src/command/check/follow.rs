//! Judging a test file while it is written.

use super::choice::because;
use super::stream::{Passed, conclude, counted};
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::complain;
use crate::times::Promise;
use anyhow::{Context as _, Result, bail};
use seatrial_checker::online::{Follower, Judge, Progress};
use seatrial_checker::{Validity, Verdict};
use seatrial_history::{History, TestFile};
use seatrial_report::{Counts, thousands};
use serde_json::Value as Json;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the file is looked at while nothing comes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A line at most this often.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Looking for violations in what is known takes at most this part of the time: once, then so many times as long nothing.
const LOOK_SHARE: u32 = 8;
/// Longest wait for a file that is not there yet, or has no attributes yet.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// A file that did not grow for so long, and that nobody has locked, has lost its writer.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// Transactions or operations that are held when a person is warned for the first time.
const HELD_WARNED: u64 = 1 << 22;

/// How following came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The file was sealed.
    Sealed,
    /// Its writer has gone without sealing it.
    Abandoned,
    /// A person has seen enough.
    Interrupted,
}

/// Follows the test file at `path` and shows the verdict unless it goes into a document.
pub(super) fn check(path: &Path, arguments: &CheckArguments) -> Result<(Exit, Json)> {
    let began = Instant::now();
    let interrupt = Interrupt::listen(|| {})?;
    let attributes = wait_for(path, &interrupt, || Ok(TestFile::open(path)?.attributes()?))?;
    let judges = judges(path, &attributes, arguments)?;
    let mut following = Following {
        follower: Follower::open(path, judges)?,
        path,
        is_quiet: arguments.output.quiet || arguments.output.json,
        told: Told {
            at: began,
            line: String::new(),
        },
        look_from: began,
        warned_from: HELD_WARNED,
    };
    let end = following.follow(&interrupt)?;
    let follower = following.follower;
    let total = follower.counts();
    let total = Counts {
        ok: total.ok,
        fail: total.fail,
        info: total.info,
    };
    let file = Arc::new(TestFile::open(path)?);
    let summary = counted(&file, total)?;
    let position = follower.position();
    let mut verdicts = finish(follower, end, arguments.threads(), &interrupt)?;
    if end != End::Sealed {
        let reason = unfinished(end, position);
        for verdict in &mut verdicts {
            if verdict.valid == Validity::Valid {
                verdict.valid = Validity::Unknown(reason.clone());
                verdict.reason = Some(reason.clone());
                verdict.proof = None;
            }
        }
    }
    let names = verdicts.iter().map(|verdict| verdict.checker);
    let why = match arguments.checker {
        Some(_) => "asked for",
        None => "by the plan or the workload of the file",
    };
    let passed = Passed {
        summary,
        nemesis: History::default(),
        why: Some(because(names, why)),
        began,
    };
    conclude(path, &file, verdicts, passed, arguments)
}

/// What the judges say in the end. Some look at all of it once more, which may take long: whoever interrupts that, or
/// has interrupted before, gets what is known by then.
fn finish(
    mut follower: Follower,
    end: End,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Verdict>> {
    let so_far = follower.so_far();
    if end == End::Interrupted {
        let progress = follower.progress();
        let looks_again = progress.iter().any(|(_, one)| one.note.is_some());
        return if looks_again {
            Ok(so_far)
        } else {
            Ok(follower.finish(threads)?)
        };
    }
    let judging = std::thread::Builder::new()
        .spawn(move || follower.finish(threads))
        .context("no thread for the checkers")?;
    while !judging.is_finished() {
        if interrupt.told() {
            return Ok(so_far);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    // A panic is a bug of ours, wherever it happened.
    let verdicts = judging
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(verdicts?)
}

/// Why a history that has not ended proves nothing.
fn unfinished(end: End, position: u64) -> String {
    let position = thousands(position);
    match end {
        End::Interrupted => {
            format!("nothing was found in the first {position} events; the test goes on")
        }
        _ => format!(
            "nothing was found in the {position} events that are there; the file was never sealed: whatever its \
             writer had in memory is missing, and the ends of the operations under way"
        ),
    }
}

/// What `make` gives once the file is there; its error when that takes too long.
fn wait_for<T>(
    path: &Path,
    interrupt: &Interrupt,
    mut make: impl FnMut() -> Result<T>,
) -> Result<T> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        let error = match make() {
            Ok(made) => return Ok(made),
            Err(error) => error,
        };
        // A file that is there and cannot be read will not become better, unless it was made just now.
        let is_young = !path.exists() || is_growing(path);
        if interrupt.told() || !is_young || began.elapsed() > OPEN_LIMIT {
            return Err(error);
        }
        if !std::mem::replace(&mut is_told, true) {
            complain!(" waiting for {}", path.display());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Was the file changed a moment ago?
fn is_growing(path: &Path) -> bool {
    let changed = std::fs::metadata(path).and_then(|file| file.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SILENCE_LIMIT))
}

/// Those who judge the file: those asked for, else those of its workload or plan.
fn judges(path: &Path, attributes: &Json, arguments: &CheckArguments) -> Result<Vec<Judge>> {
    let planned = attributes["checkers"].as_array();
    let planned = planned.map(|names| {
        let names = names.iter().filter_map(Json::as_str);
        names.map(str::to_owned).collect()
    });
    let workload = || Some(vec![attributes["workload"].as_str()?.to_owned()]);
    let names: Option<Vec<String>> = arguments.checker.clone().or(planned).or_else(workload);
    let Some(mut names) = names else {
        bail!(
            "{}: it says neither its workload nor who judges; name a checker with --checker",
            path.display()
        );
    };
    // Counts are shown in any case.
    names.retain(|name| name != "stats");
    if arguments.checker.is_none() {
        for name in names.iter_mut().filter(|name| *name == "register") {
            // The workload compares and sets as well.
            "cas-register".clone_into(name);
        }
    }
    let promise = Promise::of(arguments.model.as_deref(), attributes);
    let model = promise.model();
    let model = model.or_else(|| attributes["options"]["model"].as_str());
    let judges = names.iter().map(|name| {
        Judge::by_name(name, model).with_context(|| {
            let model = model.map_or(String::new(), |model| format!(" by {model}"));
            format!(
                "{name}{model} cannot be judged before the history is complete; list-append, register, cas-register \
                 and mutex can"
            )
        })
    });
    judges.collect()
}

/// What was said last.
struct Told {
    at: Instant,
    line: String,
}

/// A file that is followed, and what a person was told.
struct Following<'a> {
    follower: Follower,
    path: &'a Path,
    is_quiet: bool,
    told: Told,
    /// No look before this.
    look_from: Instant,
    /// When so much is held, a person is warned.
    warned_from: u64,
}

impl Following<'_> {
    fn follow(&mut self, interrupt: &Interrupt) -> Result<End> {
        let mut grew = Instant::now();
        loop {
            let is_new = self.follower.advance()?;
            let is_complete = self.follower.file().is_complete();
            let is_over = is_complete && !is_new;
            self.look(is_over)?;
            self.say(is_over);
            if is_over {
                return Ok(End::Sealed);
            }
            if interrupt.told() {
                return Ok(End::Interrupted);
            }
            if is_new {
                grew = Instant::now();
                continue;
            }
            if grew.elapsed() >= SILENCE_LIMIT {
                if !has_writer(self.path) {
                    return Ok(End::Abandoned);
                }
                grew = Instant::now();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Tells what was found, and looks for more unless that was done just now.
    fn look(&mut self, is_over: bool) -> Result<()> {
        let began = Instant::now();
        let found = if is_over || began < self.look_from {
            self.follower.tell()?
        } else {
            let found = self.follower.look()?;
            self.look_from = Instant::now() + began.elapsed() * LOOK_SHARE;
            found
        };
        if !self.is_quiet {
            for (name, finding) in found {
                complain!(
                    " {} ({name}):\n   {}",
                    finding.anomaly,
                    finding.summary.replace('\n', "\n   ")
                );
            }
        }
        Ok(())
    }

    /// One line for each judge, unless that was done just now or nothing has changed.
    fn say(&mut self, is_over: bool) {
        if !is_over && self.told.at.elapsed() < LINE_INTERVAL {
            return;
        }
        self.told.at = Instant::now();
        let behind = self.follower.file().len() - self.follower.position();
        let position = self.follower.position();
        for (name, progress) in self.follower.progress() {
            self.warn(name, &progress);
            let line = line((position, behind), name, &progress);
            if !self.is_quiet && line != self.told.line {
                complain!("{line}");
                self.told.line = line;
            }
        }
    }

    /// Says when more and more has to be held.
    fn warn(&mut self, name: &str, progress: &Progress) {
        if progress.held < self.warned_from {
            return;
        }
        while self.warned_from <= progress.held {
            self.warned_from *= 2;
        }
        complain!(
            " note: {name} holds {} operations that later ones may have to do with, and will need more and more memory: keys are used for \
             ever, or operations never end",
            thousands(progress.held)
        );
    }
}

fn line((position, behind): (u64, u64), name: &str, progress: &Progress) -> String {
    let found: Vec<_> = progress
        .anomalies
        .iter()
        .map(|(anomaly, count)| format!("{} {anomaly}", thousands(*count)))
        .collect();
    let found = match &found[..] {
        [] => "nothing found".to_owned(),
        found => format!("found {}", found.join(", ")),
    };
    let note = progress.note.as_ref();
    let note = note.map_or(String::new(), |note| format!("   ({note})"));
    format!(
        " {} events, {} behind   {name}: {} judged in {} windows, {} held   {found}{note}",
        thousands(position),
        thousands(behind),
        thousands(progress.judged),
        thousands(progress.windows),
        thousands(progress.held),
    )
}

/// Does anybody hold the writer's lock of this file? It is not tried, so as not to get in a writer's way; where the system
/// does not tell, somebody does.
fn has_writer(path: &Path) -> bool {
    let (Ok(file), Ok(locks)) = (
        std::fs::metadata(path),
        std::fs::read_to_string("/proc/locks"),
    ) else {
        return path.exists();
    };
    let number = format!(":{}", file.ino());
    let is_its =
        |line: &str| line.contains("FLOCK") && line.split(' ').any(|word| word.ends_with(&number));
    locks.lines().any(is_its)
}
