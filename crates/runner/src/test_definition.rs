//! The definition of a test, its result and its errors.

use crate::run::processors;
use crate::{
    Clients, Ended, FaultRecord, Leaders, LiveChecks, LoadLimit, NodeError, Nodes, OperationCounts,
    RunFolder, Sighting, Stop,
};
use seatrial_check::{ChunkReadAhead, MinimumLoad, SharedSource};
use seatrial_checker::{Checker, Overview, Validity, Verdict};
use seatrial_generator::{Generator, GeneratorFailure};
use seatrial_history::{OpenError, TestFile};
use seatrial_machine::{NodeId, Time};
use seatrial_namespace::NetworkKind;
use seatrial_verify::Certificate;
use serde_json::{Map, Value as Json, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// A whole test, ready to [`run`](crate::run()).
pub struct Test {
    /// Attributes of the test file: `name`, `suite`, `workload`, `seed`, `faults`, `options`, … The runner adds `started`,
    /// `nodes`, `concurrency`, `timeout_ms`, `seed` and `version` where they are missing.
    pub attributes: Map<String, Json>,
    /// The folder of the run: history, results, logs and data of the nodes.
    pub folder: RunFolder,
    /// The system under test.
    pub nodes: Arc<dyn Nodes>,
    /// Opens the clients.
    pub clients: Arc<dyn Clients>,
    /// Number of workers, each with one client at a time; at least 1. Worker `i` of a test with `n` nodes is connected to node
    /// `i mod n`.
    pub concurrency: u32,
    /// Time limit of an operation, and of opening a client. An operation that exceeds it completes as `info`.
    pub timeout: Duration,
    /// Chooses the operations, faults included.
    pub generator: Box<dyn Generator>,
    /// May the generator cut, disturb or reset links? Otherwise clients and nodes are connected without proxies, which saves two
    /// of four hops per operation; a network fault then has no effect, which is reported as a warning.
    pub breaks_network: bool,
    /// How nodes and clients are connected.
    pub network: TestNetwork,
    /// Requested operations per second, if any; a run that made fewer gets a warning.
    pub rate: Option<f64>,
    /// The rate by which the generator limits itself, to find what limited the run; `None`: it does not.
    pub limiting_rate: Option<f64>,
    /// Checkers of the complete history.
    pub checkers: Vec<Box<dyn Checker>>,
    /// Checkers that run during the test.
    pub watch: LiveChecks,
    /// Is a verdict without anomalies `valid` although questions are undecided, as in Jepsen?
    pub accept_undecided: bool,
    /// Operations that must have completed `ok`; with fewer the verdict is unknown.
    pub minimum: MinimumLoad,
    /// Checks of the run folder rather than of the history, such as a search of the nodes' logs.
    pub folder_checks: Vec<Box<FolderCheck>>,
    /// Do checkers that can prove their verdicts write certificates?
    pub certify: bool,
    /// Seed of the runner's own draws: the interpreter's, and the bits that rot.
    pub seed: u64,
    /// The handle by which the test is stopped early.
    pub stop: Stop,
    /// Makes the document of results; [`plain_results`] by default.
    pub results: Box<MakeResults>,
}

/// How the nodes and clients of a test are connected.
#[derive(Clone, Debug, Default)]
pub struct TestNetwork {
    /// The kind. The process must have entered the namespaces of another kind than `local` before
    /// ([`seatrial_namespace::enter`]).
    pub kind: NetworkKind,
    /// What it cannot do, or why a better one is not used: warnings that a reader of the verdict needs.
    pub limits: Vec<String>,
    /// Longest length in bytes of `network.pcap` in the run folder, if there is a switch; 0: packets are not written.
    pub capture_bytes: u64,
}

/// Checks the folder of a run, given its test file, when no process writes into it any more.
pub type FolderCheck = dyn Fn(&Path) -> Verdict + Send;

/// Makes the JSON document that is written to `results.json` and to the test file.
pub type MakeResults = dyn Fn(&TestEvidence<'_>) -> Json + Send;

/// The data that results are made from.
pub struct TestEvidence<'a> {
    /// The attributes of the test.
    pub attributes: &'a Json,
    /// The history.
    pub source: &'a SharedSource,
    /// The test file; the logs of the nodes are beside it.
    pub history_path: &'a Path,
    /// Counts and times of operations and faults.
    pub overview: &'a Overview,
    /// The verdict of each checker.
    pub verdicts: &'a [Verdict],
    /// Warnings that a reader of the verdict needs.
    pub warnings: &'a [String],
    /// Time that the checkers took.
    pub checked_in: Duration,
    /// What limited the number of operations per second.
    pub limit: LoadLimit,
    /// The first definite violation that was found during the test.
    pub sighting: Option<&'a Sighting>,
    /// The primaries that were seen; `None` if the nodes report none.
    pub leaders: Option<&'a Leaders>,
}

/// The default results: `valid`, `operations`, `checkers`, `warnings`, `seconds`, `seen_early`.
pub fn plain_results(evidence: &TestEvidence<'_>) -> Json {
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

/// Result of a test.
#[derive(Debug)]
pub struct TestOutcome {
    /// How it ended.
    pub ended: Ended,
    /// The run folder.
    pub folder: PathBuf,
    /// The test file, sealed.
    pub history_path: PathBuf,
    /// The attributes of the test.
    pub attributes: Json,
    /// The verdict of each checker; empty if the test was aborted.
    pub verdicts: Vec<Verdict>,
    /// Certificates of verdicts, with the name of the file that each is written to.
    pub proofs: Vec<(String, Certificate)>,
    /// Counts and times of operations and faults; empty if the test was aborted.
    pub overview: Overview,
    /// Content of `results.json`; null if the test was aborted.
    pub results: Json,
    /// Numbers of client operations by type.
    pub counts: OperationCounts,
    /// Time during which operations were invoked.
    pub load: Duration,
    /// What limited the number of operations in that time.
    pub limit: LoadLimit,
    /// Time that the checkers took.
    pub checked_in: Duration,
    /// The primaries that were seen; `None` if the nodes report none.
    pub leaders: Option<Leaders>,
    /// All faults, with and without effect.
    pub faults: Vec<FaultRecord>,
    /// Nodes that exited by themselves.
    pub crashes: Vec<Crash>,
    /// The first definite violation that was found during the test; `None` if none was found or no checker ran then.
    pub sighting: Option<Sighting>,
    /// Warnings that a reader of the verdict needs: faults without effect, nodes that exited by themselves, …
    pub warnings: Vec<String>,
}

impl TestOutcome {
    /// The history of the run, chunk by chunk, any number of times.
    pub fn source(&self) -> Result<SharedSource, OpenError> {
        let file = TestFile::open(&self.history_path)?;
        // One thread is the caller's: the others read ahead.
        Ok(Arc::new(ChunkReadAhead::new(
            Arc::new(file),
            processors() - 1,
        )))
    }

    /// The conjunction of all verdicts; unknown if the test was aborted.
    pub fn validity(&self) -> Validity {
        if self.ended == Ended::Aborted {
            return Validity::Unknown("the test was aborted before it was checked".into());
        }
        Validity::of(&self.verdicts)
    }
}

/// A node that exited by itself during the test.
#[derive(Clone, Debug)]
pub struct Crash {
    /// The node.
    pub node: NodeId,
    /// When that was noticed.
    pub at: Time,
    /// Its exit status or signal, as text.
    pub status: String,
    /// The last lines of its log.
    pub log_tail: String,
}

/// Error of a test that did not run to its end. Nodes are stopped and recorded operations are kept in every case.
#[derive(Debug, Error)]
pub enum RunError {
    /// The definition of the test is invalid.
    #[error("{0}")]
    Test(String),
    /// The nodes cannot be used.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The generator failed; the operations recorded before are sealed.
    #[error(transparent)]
    Generator(Box<GeneratorFailure>),
    /// The test was stopped before it had begun.
    #[error("stopped before the test began")]
    Stopped,
    /// The test file cannot be written; the operations recorded before are readable.
    #[error("the history {} cannot be written: {reason}", path.display())]
    Write {
        /// The test file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The test file cannot be read again.
    #[error("the history {} cannot be read: {reason}", path.display())]
    Read {
        /// The test file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The results cannot be kept; the history is sealed.
    #[error("the results {} cannot be written: {reason}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The operating system refuses threads, ports or files.
    #[error("the test cannot run: {what}: {error}")]
    Bench {
        /// The resource that was requested.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}
