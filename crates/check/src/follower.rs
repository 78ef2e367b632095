//! A test file that is checked while it is written.

use crate::check_loop::{
    CheckAnswer, Partial, RunningCheck, SharedSource, Stopped, Watch, finish, references, start,
};
use crate::prefix_check::PrefixChecks;
use seatrial_checker::{Aims, Checker, Finding, Overview, Progress, Verdict};
use seatrial_history::{ChunkBuffer, OpenError, SourceError, TestFile};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Goes through a test file after its writer and pushes what is new to its checkers.
///
/// It owns the file as it was last seen, the checkers at work, and their definite findings. The file is the hand-over between
/// writer and checkers: neither waits for the other, and nothing is held twice. Its loop, of which the caller sets the pace:
/// [`Follower::advance`] until there is nothing new, then [`Follower::look`] now and then, and [`Follower::finish`] once the file
/// is sealed. Checkers that decide at the end check what was written so far, again and again (`prefix_check.rs`).
///
/// Its downside: what was written is decoded once more.
pub struct Follower<'c> {
    file: TestFile,
    checkers: &'c [Box<dyn Checker>],
    running: Vec<RunningCheck>,
    path: PathBuf,
    aims: Aims,
    /// By checker; `None` for one that finds definite violations by itself.
    prefixes: Vec<Option<PrefixChecks>>,
    overview: Overview,
    /// Definite findings so far, by checker.
    found: Vec<Vec<Finding>>,
    /// Operations that were pushed.
    position: u64,
    buffer: ChunkBuffer,
    threads: usize,
}

/// Operations pushed at most before the caller is asked again: these take some hundredths of a second.
const STEP_LENGTH: u64 = 1 << 17;

impl<'c> Follower<'c> {
    /// Follows the test file at `path` from its beginning with these checkers.
    pub fn open(
        path: &Path,
        checkers: &'c [Box<dyn Checker>],
        aims: &Aims,
        threads: usize,
    ) -> Result<Follower<'c>, OpenError> {
        let aims = Aims {
            early: true,
            threads,
            ..aims.clone()
        };
        let running = start(&references(checkers), &aims);
        assert_eq!(running.len(), checkers.len(), "each checker is started");
        let prefixes = running.iter().map(|one| {
            let is_late = !one.is_early();
            is_late.then(|| PrefixChecks::new(path, &aims))
        });
        Ok(Follower {
            file: TestFile::open(path)?,
            path: path.to_owned(),
            checkers,
            prefixes: prefixes.collect(),
            aims,
            found: vec![Vec::new(); running.len()],
            running,
            overview: Overview::default(),
            position: 0,
            buffer: ChunkBuffer::default(),
            threads,
        })
    }

    /// The file as it was last seen.
    pub fn file(&self) -> &TestFile {
        &self.file
    }

    /// Operations pushed so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Counts and times of what was pushed.
    pub fn overview(&self) -> &Overview {
        &self.overview
    }

    /// Pushes what was written since, up to 131,072 operations; whether there was anything.
    pub fn advance(&mut self) -> Result<bool, OpenError> {
        if self.position >= self.file.len() {
            self.file.refresh()?;
        }
        let Follower {
            file,
            running,
            overview,
            position,
            buffer,
            threads,
            ..
        } = self;
        let from = *position;
        let to = file.len().min(from.saturating_add(STEP_LENGTH));
        file.round_from(from, buffer, &mut |fresh| {
            overview.take(fresh);
            crate::check_loop::push(running, fresh, *threads);
            *position = fresh.first_position() + fresh.len() as u64;
            if *position < to {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        assert!(self.position >= from, "operations are pushed twice");
        Ok(self.position > from)
    }

    /// Looks for violations in all that is known; the definite ones that were not returned before, with the names of the checkers
    /// that found them.
    pub fn look(&mut self) -> Result<Vec<(&'static str, Finding)>, SourceError> {
        self.running.iter_mut().for_each(RunningCheck::look);
        let all = self.running.iter().zip(&mut self.prefixes).zip(&self.found);
        for ((one, checks), found) in all {
            // One that has to wait for the end of the history from now on.
            if checks.is_none() && !one.is_early() && found.is_empty() {
                *checks = Some(PrefixChecks::new(&self.path, &self.aims));
            }
        }
        for (checker, checks) in self.checkers.iter().zip(&mut self.prefixes) {
            if let Some(checks) = checks {
                checks.look(&**checker, self.position)?;
            }
        }
        self.found()
    }

    /// The same without looking anew.
    pub fn found(&mut self) -> Result<Vec<(&'static str, Finding)>, SourceError> {
        let mut findings = Vec::new();
        let all = self.running.iter_mut().zip(&mut self.prefixes);
        for ((one, checks), kept) in all.zip(&mut self.found) {
            let mut found = one.definite(&self.file)?;
            if let Some(verdict) = checks.as_mut().and_then(PrefixChecks::refuted)
                && found.is_empty()
            {
                found.clone_from(&verdict.findings);
            }
            kept.extend(found.iter().cloned());
            findings.extend(found.into_iter().map(|finding| (one.name(), finding)));
        }
        Ok(findings)
    }

    /// How far each checker is.
    pub fn progress(&mut self) -> Vec<(&'static str, Progress)> {
        let running = self.running.iter_mut();
        running.map(|one| (one.name(), one.progress())).collect()
    }

    /// What is known when the checkers are not given the time to finish: what was found stands, the rest is unknown.
    pub fn partial(&mut self, stopped: &Stopped) -> Vec<Verdict> {
        let all = self.running.iter_mut().zip(&self.prefixes);
        let all = all.zip(&self.found).map(|((one, checks), found)| {
            let known = match checks.as_ref().and_then(PrefixChecks::invalid) {
                Some(verdict) => Partial::of_prefix(verdict),
                None => Partial::of(one, found.clone()),
            };
            known.stop(stopped)
        });
        all.collect()
    }

    /// The verdicts on all that was pushed, which should be all that there is.
    pub fn finish(self, watch: &dyn Watch) -> Result<CheckAnswer, SourceError> {
        let source: SharedSource = Arc::new(self.file);
        let mut answer = CheckAnswer {
            overview: self.overview,
            ..CheckAnswer::default()
        };
        let count = self.running.len();
        let stopped = &mut answer.stopped;
        let outcomes = finish(self.running, &source, self.found, watch, stopped)?;
        answer.add(outcomes);
        assert_eq!(answer.verdicts.len(), count, "one verdict for each checker");
        Ok(answer)
    }
}
