//! Checking a test file while it is written.

use super::Common;
use super::ending::Ending;
use crate::args::CheckArguments;
use crate::guard::Guard;
use crate::opened::{Opened, of_source};
use crate::plan_file::state_planned_table;
use anyhow::{Context as _, Result, ensure};
use seatrial_check::infer::Shapes;
use seatrial_check::{
    CheckAnswer, CheckQuestion, Follower, Stopped, Watch as _, needs_shapes, question,
};
use seatrial_checker::{Aims, Progress};
use seatrial_history::{ChunkBuffer, Provenance, TestFile};
use seatrial_machine::counted;
use seatrial_report::thousands;
use seatrial_terminal::{Exit, Interrupt, complain};
use serde_json::Value as Json;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the file is looked at while nothing comes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A line at most this often.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Looking for violations in what is known takes at most this part of the time.
const LOOK_SHARE: u32 = 8;
/// Longest wait for a file that is not there yet, or has no attributes yet.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// A file that did not grow for this long, and that no process has locked, has lost its writer.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// Transactions or operations that are held when a warning is shown for the first time.
const HELD_WARNED: u64 = 1 << 22;

/// How following came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FollowEnd {
    /// The file was sealed, or its writer has gone without sealing it.
    Complete,
    /// By a signal or a limit.
    Stopped(Stopped),
}

/// Follows the test file at `path` and shows the verdict unless it goes into a document.
pub(super) fn check(
    path: &Path,
    arguments: &CheckArguments,
    common: &Common,
) -> Result<(Exit, Json)> {
    ensure!(
        matches!(arguments.format.as_str(), "auto" | "sea"),
        "--follow is for test files; --format {} has no effect on them",
        arguments.format
    );
    let began = Instant::now();
    let interrupt = common.interrupt.as_ref();
    let attributes = wait_for(path, interrupt, || Ok(TestFile::open(path)?.attributes()?))?;
    let mut question = asked(path, &attributes, common)?;
    state_planned_table(&mut question, &common.request, &attributes)?;
    super::ensure_proving(&question, arguments)?;
    let aims = Aims {
        certify: arguments.certificate.is_some(),
        early: true,
        provenance: Provenance::of_attributes(&attributes),
        ..Aims::default()
    };
    let guard = common.guard(0, arguments);
    let mut following = Following {
        follower: Follower::open(path, &question.checkers, &aims, arguments.threads())?,
        path,
        is_quiet: arguments.output.quiet || arguments.output.json,
        shown: ShownProgress {
            at: began,
            line: String::new(),
        },
        look_from: began,
        warned_from: HELD_WARNED,
    };
    let end = following.follow(&guard)?;
    let mut follower = following.follower;
    let answer = match end {
        FollowEnd::Stopped(stopped) => CheckAnswer {
            verdicts: follower.partial(&stopped),
            overview: follower.overview().clone(),
            stopped: Some(stopped),
            ..CheckAnswer::default()
        },
        FollowEnd::Complete => follower.finish(&guard).map_err(of_source)?,
    };
    guard.clear();
    let mut opened = Opened::open(path, arguments.opening()?)?;
    opened.take_notes(&answer.overview);
    let ending = Ending {
        path,
        opened: &opened,
        question,
        answer,
        began,
        arguments,
    };
    ending.conclude()
}

/// The checkers of the file. Where nothing but its operations says which, the first chunk does.
fn asked(path: &Path, attributes: &Json, common: &Common) -> Result<CheckQuestion> {
    if !needs_shapes(&common.request, attributes) {
        return Ok(question(&common.request, attributes, None)?);
    }
    let shapes = wait_for(path, common.interrupt.as_ref(), || {
        let file = TestFile::open(path)?;
        let mut buffer = ChunkBuffer::default();
        let chunk = file.read_chunk(0, &mut buffer)?;
        let mut shapes = Shapes::default();
        shapes.take_chunk(chunk.context("the file has no operations yet")?);
        Ok(shapes)
    })?;
    let question = question(&common.request, attributes, Some(&shapes))?;
    if let Some(unclear) = &question.unclear {
        let reason = unclear.reason.clone().unwrap_or_default();
        anyhow::bail!("{}: {reason}", path.display());
    }
    Ok(question)
}

/// What `make` gives once the file is there; its error when that takes too long.
fn wait_for<T>(
    path: &Path,
    interrupt: Option<&Interrupt>,
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
        if interrupt.is_some_and(Interrupt::is_requested)
            || !is_young
            || began.elapsed() > OPEN_LIMIT
        {
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

/// What was shown last.
struct ShownProgress {
    at: Instant,
    line: String,
}

/// A file that is followed, and what was shown.
struct Following<'a> {
    follower: Follower<'a>,
    path: &'a Path,
    is_quiet: bool,
    shown: ShownProgress,
    /// No look before this.
    look_from: Instant,
    /// With this much held, the next warning is shown.
    warned_from: u64,
}

impl Following<'_> {
    fn follow(&mut self, guard: &Guard<'_>) -> Result<FollowEnd> {
        let mut grew = Instant::now();
        loop {
            let is_new = self.follower.advance()?;
            let is_complete = self.follower.file().is_complete();
            let is_over = is_complete && !is_new;
            self.look(is_over)?;
            self.say(is_over);
            if is_over {
                return Ok(FollowEnd::Complete);
            }
            if let Some(stopped) = guard.stop() {
                return Ok(FollowEnd::Stopped(stopped));
            }
            if is_new {
                grew = Instant::now();
                continue;
            }
            if grew.elapsed() >= SILENCE_LIMIT {
                if !has_writer(self.path) {
                    return Ok(FollowEnd::Complete);
                }
                grew = Instant::now();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Shows what was found, and looks for more unless that was done just now.
    fn look(&mut self, is_over: bool) -> Result<()> {
        let began = Instant::now();
        let found = if is_over || began < self.look_from {
            self.follower.found().map_err(of_source)?
        } else {
            let found = self.follower.look().map_err(of_source)?;
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

    /// One line for each checker, unless that was done just now or nothing has changed.
    fn say(&mut self, is_over: bool) {
        if !is_over && self.shown.at.elapsed() < LINE_INTERVAL {
            return;
        }
        self.shown.at = Instant::now();
        let unread = self.follower.file().len() - self.follower.position();
        let position = self.follower.position();
        for (name, progress) in self.follower.progress() {
            if progress == Progress::default() {
                continue;
            }
            self.warn(name, &progress);
            let line = line((position, unread), name, &progress);
            if !self.is_quiet && line != self.shown.line {
                complain!("{line}");
                self.shown.line = line;
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

fn line((position, unread): (u64, u64), name: &str, progress: &Progress) -> String {
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
        " {}, {} behind   {name}: {} checked in {}, {} held   {found}{note}",
        counted(position, "event"),
        thousands(unread),
        thousands(progress.decided),
        counted(progress.windows, "window"),
        thousands(progress.held),
    )
}

/// Does a process hold the writer's lock of this file? The lock is not tried, so as not to get in a writer's way; where the
/// system does not say, one does.
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
