//! Judging while a test is still running.
//!
//! A [`Judge`] is fed the chunks of a history as they are written. It is a machine: no files, no threads, no clock. Whoever
//! feeds it says when to look ([`Judge::look`]), and reads operations again for it when something is to be told
//! ([`Recall`]). A [`Follower`] does both for a test file that another thread or process is writing.

mod follower;
mod recall;

pub use follower::Follower;
pub(crate) use recall::Fetch;
pub use recall::Recall;

use crate::linear::OnlineObjects;
use crate::txn::findings::Findings;
use crate::txn::{Level, ListAppend, OnlineLists, Windows};
use crate::{Anomaly, Finding, Validity, Verdict, linear};
use seatrial_history::{Chunk, Chunks, FoldError, Folder};
use std::collections::BTreeMap;

/// Judges one history as it comes, for one promise.
///
/// It owns what later operations may still depend on: for transactions on lists the compact table of those that are not
/// settled (130 bytes each, see [`Windows`]), for linearizable registers the operations under way of each key in use and
/// the states that it may have. The rest is counted and forgotten, so memory is bounded by what a history leaves open, not
/// by its length. What leaves nothing closed (a key that is used for ever, a client that never answers) makes it grow;
/// [`Progress::held`] tells.
///
/// What it finds before the end is *definite*: no operation that is still to come can take it back. What might be taken
/// back (a read of what nobody is known to have written; whatever rests on an operation that is still under way) is told in
/// the end. [`Judge::finish`] gives the verdict that judging afterwards gives.
///
/// Its downside: when something comes that it had taken for over (a key that was closed and is named again), it has to judge
/// once more from the beginning, in the end.
pub struct Judge {
    kind: Kind,
    operations: u64,
    /// What was handed out: all of it counted, the first of each kind kept.
    told: Findings,
}

enum Kind {
    Lists(Box<OnlineLists>),
    Objects(Box<OnlineObjects>),
}

/// How far a [`Judge`] is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Transactions (or operations on registers) that were judged for good and let go.
    pub judged: u64,
    /// Those that are still held, because later ones may have to do with them.
    pub held: u64,
    /// Pieces that were judged for good.
    pub windows: u64,
    /// Anomalies so far that the promise forbids, those that may be taken back among them.
    pub anomalies: BTreeMap<Anomaly, u64>,
    /// Why the judgement waits for the end of the history, in words.
    pub note: Option<String>,
}

impl Judge {
    /// The judge that has this name among checkers, by this model (`None`: the strictest); `None` when it needs the end of a
    /// history to begin with, and when there is no such checker or model.
    pub fn by_name(name: &str, model: Option<&str>) -> Option<Judge> {
        if name == "list-append" {
            let level = model.map_or(Some(Level::default()), Level::by_name)?;
            return Some(Judge::lists(ListAppend::new(level).with_windows(WINDOWS)));
        }
        let mut models = linear::Model::ALL.into_iter();
        let data_type = models.find(|model| model.name() == name)?;
        let is_known = model.is_none_or(|model| model == "linearizable");
        let objects = OnlineObjects::new(data_type).filter(|_| is_known)?;
        Some(Judge::of(Kind::Objects(Box::new(objects))))
    }

    /// The judge of transactions on lists that gives the verdict of this checker.
    pub fn lists(checker: ListAppend) -> Judge {
        Judge::of(Kind::Lists(Box::new(OnlineLists::new(checker))))
    }

    fn of(kind: Kind) -> Judge {
        Judge {
            kind,
            operations: 0,
            told: Findings::default(),
        }
    }

    /// The name by which `--checker` and the results know it.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Lists(_) => "list-append",
            Kind::Objects(objects) => objects.model().name(),
        }
    }

    /// The next chunk. It may repeat operations that were pushed, as a chunk of a test file repeats the short ones that were
    /// written before it; these pass by. There must be no gap.
    pub fn push(&mut self, chunk: &Chunk) {
        let end = chunk.first_position() + chunk.len() as u64;
        if end <= self.operations {
            return;
        }
        match &mut self.kind {
            Kind::Lists(lists) => lists.push(chunk),
            Kind::Objects(objects) => objects.push(chunk),
        }
        self.operations = end;
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Looks for violations in all that is known. Costs nothing for registers, which are judged as they come, and for
    /// transactions some tenths of a microsecond for each that is held.
    pub fn look(&mut self) {
        if let Kind::Lists(lists) = &mut self.kind {
            lists.look();
        }
    }

    /// The definite violations that were not told before, in words. Some of each kind are told; all are counted.
    pub fn tell<R: Recall>(&mut self, recall: &R) -> Result<Vec<Finding>, R::Error> {
        let found = match &mut self.kind {
            Kind::Lists(lists) => lists.tell(recall)?,
            Kind::Objects(objects) => objects.tell(recall)?,
        };
        for finding in &found {
            self.told.add(finding.anomaly, || finding.clone());
        }
        Ok(found)
    }

    /// The verdict of somebody who cannot wait for [`Judge::finish`]: invalid with what was told, if that was anything; else
    /// unknown.
    pub fn so_far(&mut self) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        (verdict.anomalies, verdict.findings) = self.told.clone().into_parts();
        match &self.kind {
            Kind::Lists(lists) => lists.rule_out(&mut verdict),
            Kind::Objects(_) => OnlineObjects::rule_out(&mut verdict),
        }
        let note = self.progress().note;
        let reason = note.unwrap_or_else(|| "what comes in the end is missing".to_owned());
        let reason = format!("judged up to operation {}; {reason}", self.operations);
        if verdict.anomalies.is_empty() {
            return verdict.unknown(reason);
        }
        verdict.valid = Validity::Invalid;
        verdict.details = serde_json::json!({"interrupted": reason});
        verdict
    }

    /// How far it is.
    pub fn progress(&mut self) -> Progress {
        match &mut self.kind {
            Kind::Lists(lists) => lists.progress(),
            Kind::Objects(objects) => objects.progress(),
        }
    }

    /// The verdict: nothing comes any more. The folder's history is what was pushed; it is read again only to tell what was
    /// found, and when something came back that had been taken for over.
    pub fn finish<C: Chunks + 'static>(
        self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        match self.kind {
            Kind::Lists(lists) => lists.finish(folder),
            Kind::Objects(objects) => objects.finish(folder),
        }
    }
}

/// Windows for judging a history while it is recorded: smaller than those for one that is there, so that what was found is
/// told sooner and less is held.
pub const WINDOWS: Windows = Windows {
    transactions_min: 1 << 18,
    idle_chunks: 8,
    chunk_length_min: 8_192,
    is_bound: false,
};
