//! A test file that is checked while it is written.

use crate::driver::{
    CheckAnswer, Partial, Running, SharedSource, Stopped, Watch, finish, references, start,
};
use seatrial_checker::{Aims, Checker, Finding, Overview, Progress, Verdict};
use seatrial_history::chunk::ChunkAddress;
use seatrial_history::{ChunkBuffer, OpenError, SourceError, TestFile};
use std::path::Path;
use std::sync::Arc;

/// Goes through a test file after its writer and pushes what is new to its checkers.
///
/// It owns the file as it was last seen, the checkers at work, and their definite findings. The file is the hand-over between
/// writer and checkers: neither waits for the other, and nothing is held twice. Its loop, of which the caller sets the pace:
/// [`Follower::advance`] until there is nothing new, then [`Follower::look`] now and then, and [`Follower::finish`] once the file
/// is sealed.
///
/// Its downside: what was written is decoded once more.
pub struct Follower {
    file: TestFile,
    running: Vec<Running>,
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

impl Follower {
    /// Follows the test file at `path` from its beginning with these checkers.
    pub fn open(
        path: &Path,
        checkers: &[Box<dyn Checker>],
        aims: &Aims,
        threads: usize,
    ) -> Result<Follower, OpenError> {
        let aims = Aims {
            early: true,
            ..aims.clone()
        };
        let running = start(&references(checkers), &aims);
        assert_eq!(running.len(), checkers.len(), "each checker is started");
        Ok(Follower {
            file: TestFile::open(path)?,
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
        let from = self.position;
        let to = self.file.len().min(from.saturating_add(STEP_LENGTH));
        while self.position < to {
            let stretch = self
                .file
                .chunk_summaries(ChunkAddress::Position(self.position))?;
            let first = self.position;
            let ahead = stretch.into_iter();
            for summary in ahead.filter(|one| one.end_position() > first) {
                let Some(chunk) = self.file.read_chunk(summary.number, &mut self.buffer)? else {
                    break;
                };
                // A long chunk repeats the short ones that were written before it.
                let known = self.position.saturating_sub(summary.first_position) as usize;
                let rest = (known > 0).then(|| chunk.after(known));
                let fresh = rest.as_ref().unwrap_or(chunk);
                self.overview.take(fresh);
                crate::driver::push(&mut self.running, fresh, self.threads);
                self.position = summary.end_position();
                if self.position >= to {
                    break;
                }
            }
            if self.position == first {
                break;
            }
        }
        assert!(self.position >= from, "operations are pushed twice");
        Ok(self.position > from)
    }

    /// Looks for violations in all that is known; the definite ones that were not returned before, with the names of the checkers
    /// that found them.
    pub fn look(&mut self) -> Result<Vec<(&'static str, Finding)>, SourceError> {
        self.running.iter_mut().for_each(Running::look);
        self.found()
    }

    /// The same without looking anew.
    pub fn found(&mut self) -> Result<Vec<(&'static str, Finding)>, SourceError> {
        let mut findings = Vec::new();
        for (one, kept) in self.running.iter_mut().zip(&mut self.found) {
            let found = one.definite(&self.file)?;
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
        let all = self.running.iter_mut().zip(&self.found);
        let all = all.map(|(one, found)| Partial::of(one, found.clone()).stop(stopped));
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
