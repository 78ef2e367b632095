//! From anomaly to cause: what happened around each finding, as data.
//!
//! A finding of a checker names operations. [`CauseSearch`] reads the history twice more, chunk by chunk, and the logs of the
//! nodes once, and answers for each finding with a [`FindingCause`]: its operations with their times and nodes, the faults that
//! were in force meanwhile, the other operations on the same keys, and the lines of the logs of that time.
//!
//! ```
//! use seatrial_cause::{CauseSearch, CauseSubject, fault_windows};
//! use seatrial_history::{History, Op, OpType, Process, Value};
//!
//! let seconds = |op: Op, time: f64| Op { time: (time * 1e9) as i64, ..op };
//! let write = Op::invoke(Process::Client(0), "write", Value::Int(39));
//! let kill = Op { kind: OpType::Info, ..Op::invoke(Process::NEMESIS, "kill", Value::text("n1")) };
//! let history = History::from_unindexed(vec![
//!     seconds(write.clone(), 1.02),
//!     seconds(write.complete(OpType::Ok, Value::Int(39)).with("node", Value::text("n1")), 1.067),
//!     seconds(kill.clone(), 1.07),
//!     seconds(kill, 1.08),
//! ]);
//! let faults = fault_windows(&history);
//! // The history's clock began with the year 2026.
//! let attributes = serde_json::json!({"started_ns": 1_767_225_600_000_000_000_i64, "nodes": ["n1"]});
//! let finding = CauseSubject { operations: &[1] };
//! let mut search = CauseSearch::begin(&[finding], &faults, &attributes, &history)?;
//! search.begin_log("n1", "n1.log");
//! search.push_log(b"2026-01-01T00:00:01.068Z INFO flushed 38 entries\n");
//! let causes = search.finish();
//! let cause = causes.of(0).unwrap();
//! assert_eq!(cause.operations[0].node.as_deref(), Some("n1"));
//! assert_eq!(cause.faults[0].name, "kill");
//! assert_eq!(cause.log_lines[0].time, 1_068_000_000);
//! # Ok::<(), seatrial_history::SourceError>(())
//! ```
//!
//! What is absent: no verdict is made or changed, and no file is opened; who has the logs pushes their bytes. Memory does not
//! grow with the history or the logs: each list of a cause keeps the entries nearest to the finding's operations.

mod cause_search;
mod fault_window;
mod finding_cause;
mod log_search;
mod log_time;
mod nearest;
pub mod short_text;
mod target_text;

pub use cause_search::{CauseSearch, CauseSubject};
pub use fault_window::{FaultWindow, fault_windows};
pub use finding_cause::{Causes, FindingCause, LogRecord, OperationRecord};
pub use log_time::LogClock;
