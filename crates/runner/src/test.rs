//! What a test is made of, and what comes of it.

use crate::{
    Clients, Counts, Ended, FaultRecord, NodeError, Nodes, RunFolder, Sighting, Stop, Watch,
};
use seatrial_check::{ReadAhead, SharedSource};
use seatrial_checker::{Checker, Overview, Validity, Verdict};
use seatrial_generator::{Failure, Generator};
use seatrial_history::{History, OpenError, TestFile};
use seatrial_machine::{NodeId, Time};
use seatrial_verify::Certificate;
use serde_json::{Map, Value as Json, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// A whole test, ready to [`run`](crate::run()).
pub struct Test {
    /// What the test file says about the test: `name`, `suite`, `workload`, `seed`, `faults`, `options`, … The
    /// runner adds `started`, `nodes` and `concurrency` where they are missing.
    pub attributes: Map<String, Json>,
    /// Where everything is kept.
    pub folder: RunFolder,
    /// The system under test.
    pub nodes: Arc<dyn Nodes>,
    /// Those who talk to it.
    pub clients: Arc<dyn Clients>,
    /// Number of workers, each with one client at a time; at least 1. Worker 0 talks to the first node, worker 1 to
    /// the second and so on, round and round.
    pub concurrency: u32,
    /// Longest time that an operation, or opening a client, may take.
    pub timeout: Duration,
    /// What is done, faults included.
    pub generator: Box<dyn Generator>,
    /// May the generator cut, disturb or reset links? Otherwise clients and nodes are connected without proxies, which saves
    /// two of four hops for each operation; a fault of the network then has no effect, and is warned of.
    pub breaks_network: bool,
    /// Operations a second that somebody asked for; a run that made fewer says so.
    pub rate: Option<f64>,
    /// What checks the history once it is complete.
    pub checkers: Vec<Box<dyn Checker>>,
    /// What checks it while the test runs.
    pub watch: Watch,
    /// Is a verdict without anomalies valid although questions stayed open, as in Jepsen?
    pub accept_undecided: bool,
    /// Do checkers that can prove their verdicts do so?
    pub certify: bool,
    /// Fixes what the runner draws by itself (the bits that rot).
    pub seed: u64,
    /// Ends the test early.
    pub stop: Stop,
    /// Makes the results that are kept from what is known in the end; [`plain_results`] unless given.
    pub results: Box<MakeResults>,
}

/// Makes results: the JSON document that goes to `results.json` and to the test file.
pub type MakeResults = dyn Fn(&Evidence<'_>) -> Json + Send;

/// All that results are made from.
pub struct Evidence<'a> {
    /// The attributes of the test.
    pub attributes: &'a Json,
    /// Counts and times of what happened.
    pub overview: &'a Overview,
    /// What each checker says.
    pub verdicts: &'a [Verdict],
    /// What a reader of the verdict should know.
    pub warnings: &'a [String],
    /// How long the checkers took.
    pub checked_in: Duration,
    /// The first violation that was seen while the test ran.
    pub sighting: Option<&'a Sighting>,
}

/// Results without any dressing: `valid`, `operations`, `checkers`, `warnings`, `seconds`, `seen_early`.
pub fn plain_results(evidence: &Evidence<'_>) -> Json {
    let verdicts = evidence.verdicts.iter();
    let checkers: Map<String, Json> = verdicts
        .map(|verdict| (verdict.checker.to_owned(), json!(verdict)))
        .collect();
    json!({
        "valid": Validity::of(evidence.verdicts),
        "operations": evidence.overview.events(),
        "checkers": checkers,
        "warnings": evidence.warnings,
        "seconds": evidence.checked_in.as_secs_f64(),
        "seen_early": evidence.sighting.map(Sighting::json),
    })
}

/// What came of a test.
#[derive(Debug)]
pub struct Outcome {
    /// How it came to its end.
    pub ended: Ended,
    /// The run folder.
    pub folder: PathBuf,
    /// The test file, sealed.
    pub history_path: PathBuf,
    /// The attributes of the test.
    pub attributes: Json,
    /// What each checker says; empty when the test was aborted.
    pub verdicts: Vec<Verdict>,
    /// What proves the verdicts, by the name of the file that it belongs in.
    pub proofs: Vec<(String, Certificate)>,
    /// Counts and times of what happened; empty when the test was aborted.
    pub overview: Overview,
    /// What is kept as `results.json`; null when the test was aborted.
    pub results: Json,
    /// What clients did.
    pub counts: Counts,
    /// How long there was load.
    pub load: Duration,
    /// How long the checkers took.
    pub checked_in: Duration,
    /// All faults, whether they bit or not.
    pub faults: Vec<FaultRecord>,
    /// Nodes that ended although nobody told them to.
    pub crashes: Vec<Crash>,
    /// The first violation that was seen while the test ran; `None` when there was none, or nobody watched.
    pub sighting: Option<Sighting>,
    /// What a reader of the verdict should know: faults that never bit, nodes that ended by themselves, …
    pub warnings: Vec<String>,
}

impl Outcome {
    /// The history of the run chunk by chunk, as often as asked.
    pub fn source(&self) -> Result<SharedSource, OpenError> {
        let file = TestFile::open(&self.history_path)?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Arc::new(ReadAhead::new(Arc::new(file), threads - 1)))
    }

    /// The history of the run, in memory: about 100 bytes an event.
    pub fn history(&self) -> Result<History, OpenError> {
        TestFile::open(&self.history_path)?.history()
    }

    /// What all verdicts say together; unknown when nobody judged.
    pub fn validity(&self) -> Validity {
        if self.ended == Ended::Aborted {
            return Validity::Unknown("the test was aborted before it was checked".into());
        }
        Validity::of(&self.verdicts)
    }
}

/// A node that ended by itself during the test.
#[derive(Clone, Debug)]
pub struct Crash {
    /// Which one.
    pub node: NodeId,
    /// When that was seen.
    pub at: Time,
    /// Its exit status or signal, in words.
    pub status: String,
    /// The last lines of its log.
    pub log_tail: String,
}

/// Why a test could not be run to its end. Nodes are ended and what was recorded is kept, whatever the reason.
#[derive(Debug, Error)]
pub enum RunError {
    /// The test itself makes no sense.
    #[error("{0}")]
    Test(String),
    /// The nodes cannot be used.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The generator made a mistake; what was recorded before is sealed.
    #[error(transparent)]
    Generator(Box<Failure>),
    /// The test was told to stop before it had begun.
    #[error("stopped before the test began")]
    Stopped,
    /// The test file cannot be written; what was recorded before is readable.
    #[error("the history {} cannot be written: {reason}", path.display())]
    Write {
        /// The test file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The test file cannot be read again.
    #[error("the history {} cannot be read: {reason}", path.display())]
    Read {
        /// The test file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The results cannot be kept; the history is sealed.
    #[error("the results {} cannot be written: {reason}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The machine gives the bench no threads, no ports or no files.
    #[error("the bench cannot work: {what}: {error}")]
    Bench {
        /// What was wanted.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
}
