//! Judging a test file while it is written.

use super::{Judge, Progress};
use crate::{Counts, Finding, Verdict};
use seatrial_history::chunk::Place;
use seatrial_history::{Chunk, ChunkBuffer, FoldError, Folder, OpenError, TestFile};
use std::path::Path;
use std::sync::Arc;

/// Goes through a test file behind its writer and has everything judged that comes.
///
/// The file is the hand-over between the writer and the judges: nobody waits for the other, however far they are
/// apart, and nothing is held twice. Its loop, of which the caller gives the beat: [`Follower::advance`] until there is nothing
/// new, then [`Follower::look`] now and then.
///
/// Its downside: what was written is decoded once more.
pub struct Follower {
    file: TestFile,
    judges: Vec<Judge>,
    /// Operations that were handed to the judges.
    position: u64,
    /// Those of clients, by type.
    kinds: [u64; 4],
    buffer: ChunkBuffer,
}

/// Operations handed on at most before the caller is asked again: so many take some hundredths of a second.
const STEP_LENGTH: u64 = 1 << 17;

impl Follower {
    /// Follows the test file at `path` from its beginning.
    pub fn open(path: &Path, judges: Vec<Judge>) -> Result<Follower, OpenError> {
        Ok(Follower {
            file: TestFile::open(path)?,
            judges,
            position: 0,
            kinds: [0; 4],
            buffer: ChunkBuffer::default(),
        })
    }

    /// The file as it was last seen.
    pub fn file(&self) -> &TestFile {
        &self.file
    }

    /// Operations handed to the judges so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What clients did: successes, failures, and what nobody knows the outcome of, operations under way included.
    pub fn counts(&self) -> Counts {
        let [invoked, ok, fail, info] = self.kinds;
        let count = invoked.max(ok + fail + info);
        Counts {
            count,
            ok,
            fail,
            info: count - ok - fail,
        }
    }

    /// Hands on what was written since, up to 131,072 operations; whether there was anything.
    pub fn advance(&mut self) -> Result<bool, OpenError> {
        if self.position >= self.file.len() {
            self.file.refresh()?;
        }
        let from = self.position;
        let to = self.file.len().min(from.saturating_add(STEP_LENGTH));
        while self.position < to {
            let stretch = self.file.chunk_summaries(Place::Position(self.position))?;
            let first = self.position;
            let stretch = stretch.into_iter();
            let ahead = stretch.filter(|one| one.end_position() > first);
            for summary in ahead {
                let Some(chunk) = self.file.read_chunk(summary.number, &mut self.buffer)? else {
                    break;
                };
                let known = self.position - summary.first_position;
                count(chunk, known as usize, &mut self.kinds);
                for judge in &mut self.judges {
                    judge.push(chunk);
                }
                self.position = summary.end_position();
                if self.position >= to {
                    break;
                }
            }
            if self.position == first {
                break;
            }
        }
        Ok(self.position > from)
    }

    /// Looks for violations in all that is known; the definite ones that were not told before, with the names of those who
    /// found them.
    pub fn look(&mut self) -> Result<Vec<(&'static str, Finding)>, OpenError> {
        for judge in &mut self.judges {
            judge.look();
        }
        self.tell()
    }

    /// The same without looking anew.
    pub fn tell(&mut self) -> Result<Vec<(&'static str, Finding)>, OpenError> {
        let mut findings = Vec::new();
        for judge in &mut self.judges {
            let name = judge.name();
            let told = judge.tell(&self.file)?;
            findings.extend(told.into_iter().map(|finding| (name, finding)));
        }
        Ok(findings)
    }

    /// How far each judge is.
    pub fn progress(&mut self) -> Vec<(&'static str, Progress)> {
        let judges = self.judges.iter_mut();
        judges
            .map(|judge| (judge.name(), judge.progress()))
            .collect()
    }

    /// The verdicts on what was told so far ([`Judge::so_far`]).
    pub fn so_far(&mut self) -> Vec<Verdict> {
        self.judges.iter_mut().map(Judge::so_far).collect()
    }

    /// The verdicts on all that was handed on, which should be all that there is.
    pub fn finish(self, threads: usize) -> Result<Vec<Verdict>, FoldError<OpenError>> {
        let folder = Folder::new(Arc::new(self.file), threads);
        let judges = self.judges.into_iter();
        judges.map(|judge| judge.finish(&folder)).collect()
    }
}

/// Counts the operations of clients by type, but not so many at the start.
fn count(chunk: &Chunk, known: usize, kinds: &mut [u64; 4]) {
    let processes = chunk.processes().iter();
    let clients: Vec<_> = processes.map(|process| process.is_client()).collect();
    let operations = chunk.kinds().iter().zip(chunk.process_ids());
    for (&kind, &process) in operations.skip(known) {
        kinds[kind as usize] += u64::from(clients[process as usize]);
    }
}
