//! Checkers: the trait [`Checker`], verdicts and findings, and the checkers of statistics and data types. A
//! checker reads a history and returns data: whether the model holds, which anomalies were found, and why.
//!
//! # Writing a checker
//!
//! A checker has two halves. A [`Checker`] is a model with its options, such as "a set, linearizable". An [`OnlineChecker`] is a
//! check of one history: it is started, takes the chunks of the history in order, and finishes.
//!
//! ```text
//!                start(aims)                push(chunk) ──┐ for each chunk, in order
//!   Checker ───────────────────► OnlineChecker ◄──────────┘
//!                                     │   search(), definite(source)    while the history is recorded
//!                                     ▼
//!                                finish(source) ──► Checked { verdict, certificate }
//! ```
//!
//! The driver owns the loop: [`check_source`] for one checker in one thread, the crate `check` for several checkers, with
//! progress, limits and following. So a checker never opens a file, starts a thread or reads a clock, and the same object
//! checks a history in memory, a test file of any size, and a history that is still recorded.
//!
//! Most checkers are a fold over the operations. This one finds clients that read a smaller number than before; its state is one
//! number for each client, whatever the length of the history:
//!
//! ```
//! use seatrial_checker::{Aims, Checker, Findings, FoldChecker, OnlineChecker, Validity, Verdict, check_source};
//! use seatrial_history::{Chunk, Fold, History, OpType, Order, Process};
//! use std::{collections::BTreeMap, ops::ControlFlow};
//!
//! #[derive(Clone, Copy)]
//! struct MonotonicReads;
//!
//! #[derive(Default)]
//! struct LastReads {
//!     by_process: BTreeMap<Process, (i64, u64)>,
//!     findings: Findings,
//! }
//!
//! impl Fold for MonotonicReads {
//!     type Accumulator = LastReads;
//!     type Output = Verdict;
//!
//!     fn name(&self) -> String {
//!         "monotonic-reads".into()
//!     }
//!     fn order(&self) -> Order {
//!         Order::Linear // chunks in order, one accumulator
//!     }
//!     fn start(&self) -> LastReads {
//!         LastReads::default()
//!     }
//!     fn reduce(&self, reads: &mut LastReads, chunk: &Chunk) -> ControlFlow<()> {
//!         for op in chunk.ops() {
//!             let (OpType::Ok, Some(value)) = (op.kind, op.value.as_int()) else { continue };
//!             let earlier = reads.by_process.insert(op.process, (value, op.index));
//!             if let Some((before, index)) = earlier.filter(|&(before, _)| value < before) {
//!                 // Counted each time; explained for the first few only.
//!                 reads.findings.explain("backward-read", || {
//!                     let summary = format!("Op {} read {value} after op {index} read {before}.", op.index);
//!                     (vec![index, op.index], summary)
//!                 });
//!             }
//!         }
//!         ControlFlow::Continue(())
//!     }
//!     fn combine(&self, _: &mut LastReads, _: LastReads) -> ControlFlow<()> {
//!         ControlFlow::Continue(()) // never called: the order is linear
//!     }
//!     fn finish(&self, reads: LastReads) -> Verdict {
//!         let mut verdict = Verdict::valid("monotonic-reads");
//!         (verdict.anomalies, verdict.findings) = reads.findings.into_parts();
//!         if !verdict.anomalies.is_empty() {
//!             verdict.valid = Validity::Invalid;
//!         }
//!         verdict
//!     }
//! }
//!
//! impl Checker for MonotonicReads {
//!     fn name(&self) -> &'static str {
//!         "monotonic-reads"
//!     }
//!     fn check(&self, history: &History) -> Verdict {
//!         match check_source(self, history, &Aims::default()) {
//!             Ok(checked) => checked.verdict,
//!             Err(error) => Verdict::valid("monotonic-reads").unknown(error.to_string()),
//!         }
//!     }
//!     fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
//!         Box::new(FoldChecker::new("monotonic-reads", *self))
//!     }
//! }
//!
//! use seatrial_interchange::import::{self, Format, ImportOptions};
//! let text = b"{:process 0 :type :invoke :f :read :value nil}
//!              {:process 0 :type :ok :f :read :value 7}
//!              {:process 0 :type :invoke :f :read :value nil}
//!              {:process 0 :type :ok :f :read :value 5}";
//! let history = import::read("run.edn", text, Format::Edn, ImportOptions::default())?;
//! let verdict = MonotonicReads.check(&history);
//! assert_eq!(verdict.valid, Validity::Invalid);
//! assert_eq!(verdict.findings[0].summary, "Op 3 read 5 after op 1 read 7.");
//! assert_eq!(verdict.findings[0].operations, [1, 3]);
//! # Ok::<(), import::ImportError>(())
//! ```
//!
//! # What a verdict says
//!
//! `valid` is one of three: [`Validity::Valid`], [`Validity::Invalid`] with at least one anomaly, [`Validity::Unknown`] with
//! its reason. *Unknown* is the honest answer where the history has no evidence, where a limit was reached, and where
//! operations are missing. A checker reads the recorded operations as if they were complete; then [`MissingPart`] withdraws the
//! results that the missing ones may contradict, as the checker's [`Robustness`] says. A library caller passes the provenance
//! and gets this for free:
//!
//! ```
//! use seatrial_checker::{Aims, Set, Validity, check_source};
//! use seatrial_history::Provenance;
//! use seatrial_interchange::import::{self, Format, ImportOptions};
//!
//! let text = b"{:process 0 :type :invoke :f :add :value 1}
//!              {:process 0 :type :ok :f :add :value 1}
//!              {:process 0 :type :invoke :f :read :value nil}
//!              {:process 0 :type :ok :f :read :value #{}}";
//! let history = import::read("run.edn", text, Format::Edn, ImportOptions::default())?;
//! let check = |provenance| {
//!     let aims = Aims { provenance, ..Aims::default() };
//!     check_source(&Set, &history, &aims).unwrap().verdict
//! };
//! let complete = check(Provenance::default());
//! assert_eq!(complete.valid, Validity::Invalid);
//! assert_eq!(complete.anomalies["lost"], 1);
//! // If the end is missing, a later read may have had the element.
//! let cut = check(Provenance::default().unended());
//! assert!(matches!(cut.valid, Validity::Unknown(_)));
//! # Ok::<(), import::ImportError>(())
//! ```
//!
//! # What a checker must keep to
//!
//! 1. *Total*: an operation that the model does not have gives an unknown verdict that names it, never a panic.
//! 2. *Evidence*: an operation of unknown outcome may or may not have taken effect; no anomaly rests on either.
//! 3. *The same verdict* from memory, from chunks of any length, and online: a test compares them (`data/tests.rs`).
//! 4. *Bounded*: memory per element or per operation under way, with its bound in the comment of the struct; a search has a limit
//!    and says when it was reached.
//! 5. *Explained*: a finding names its operations by index, so that a person can check it by hand.
//!
//! # Files, in reading order
//!
//! - `verdict`: [`Verdict`], [`Finding`], [`Validity`], the trait [`Checker`]
//! - `details`: [`Details`], the figures of each family of checkers
//! - `online_checker`: [`OnlineChecker`], [`FoldChecker`], [`WholeHistory`], [`check_source`], [`certify`]
//! - `incomplete`: [`MissingPart`] and [`Robustness`], the results that hold when operations are missing
//! - `findings`: [`Findings`], counts of anomalies and the first of each
//! - `linearization_witness`: [`LinearizationWitness`], why operations are not linearizable, as data
//! - `stats`: [`Stats`]
//! - `exceptions`, `availability`, `clock_offsets`, `op_color_plot`: figures of a history that say nothing about a model
//! - `divergence`: [`Divergence`], states of replicas at the end of a test
//! - `log_pattern`: [`LogFilePattern`], a regular expression over the nodes' logs
//! - `overview`: [`Overview`], counts, times and nemesis operations of a history
//! - `data`: one-pass checkers, a file for each data type
//! - `closed`: [`ClosedKeys`], a compact set of keys
//!
//! # What is absent
//!
//! - No file, socket, thread, clock or randomness: [`ChunkSource`](seatrial_history::ChunkSource) is the only input.
//! - No checker draws or writes anything: `report` does. None knows the generator that ran or the system that was tested.
//! - No table of checkers: only the crate `check` knows all of them by name.
//! - No transactions: these are the crates `isolation` and `inference`. No verifier: `verify` replays certificates and knows no
//!   checker.

mod availability;
mod client_protocol;
mod clock_offsets;
mod closed;
mod data;
mod details;
mod divergence;
mod exceptions;
mod findings;
mod incomplete;
mod linearization_witness;
mod log_pattern;
mod online_checker;
mod op_color_plot;
mod overview;
mod stats;
mod verdict;

pub use availability::{
    Availability, AvailabilityFigures, FunctionAvailability, OutcomeShare, UnavailableTime,
};
pub use client_protocol::{CLIENT_FAULT, ClientProtocol};
pub use clock_offsets::{ClockFigures, ClockPlot};
pub use closed::ClosedKeys;
pub use data::{
    Agreement, Bank, Counter, Discipline, DiskCache, Lock, Log, LongFork, Monotonic, Queue, Set,
    SetFull, TotalQueue, UniqueIds, Visibility,
};
pub use details::{
    CertificateStatus, CommitOrderFigures, DataTypeFigures, DataTypeKeys, DependencyFigures,
    Details, ElementReadFigures, Figures, InferenceFigures, KeyFigures, KeyResult,
    LinearizabilityFigures, OperationFigures, OrderSearchFigures, RegisterFigures, ReplayFigures,
    TransactionCounts, WindowFigures,
};
pub use divergence::{Divergence, DivergenceFigures, StateFigures};
pub use exceptions::{ExceptionClass, ExceptionFigures, UnhandledExceptions};
pub use findings::{FINDINGS_MAX, Findings};
pub use incomplete::{
    CertainAnomalies, MissingPart, Robustness, describe_repairs, without_attributes, without_ok,
};
pub use linearization_witness::{EssentialOperations, LinearizationPoint, LinearizationWitness};
pub use log_pattern::{
    LogFilePattern, LogFilePatternFigures, LogLine, LogLines, Pattern, PatternError,
};
pub use online_checker::{
    Aims, Checked, FoldChecker, OnlineChecker, Progress, WholeHistory, certify, check_source,
    gather,
};
pub use op_color_plot::{ColorGroup, OpColorFigures, OpColorPlot};
pub use overview::Overview;
pub use seatrial_cycles::anomaly::Anomaly;
pub use stats::{CountFold, Counts, FunctionCounts, Stats, counts};
pub use verdict::{Checker, Component, Dependency, Finding, FindingStep, Validity, Verdict};
