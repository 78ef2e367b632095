//! What people see: the last screen of a run, one page with everything, a document for machines, a listing. A report
//! computes no verdict; it shows what the checkers found and what the history says.
//!
//! ```
//! use seatrial_checker::{Overview, Verdict};
//! use seatrial_history::{History, Op, OpType, Process, Value};
//! use seatrial_report::{Drawing, Report, html, results_json, text};
//!
//! let read = Op::invoke(Process::Client(0), "read", Value::Nil);
//! let history = History::from_unindexed(vec![read.clone(), read.complete(OpType::Ok, Value::Int(3))]);
//! let attributes = serde_json::json!({"suite": "kv", "workload": "register", "seed": "91c4"});
//! let verdicts = [Verdict::valid("register")];
//! let overview = Overview::of(&history)?;
//! let report = Report::new(&attributes, &overview, &verdicts);
//! assert!(text(&report, false).starts_with(" kv · register · seed 91c4\n 1 operation   ok 100 %"));
//! assert_eq!(results_json(&report)["valid"], true);
//! let page = html(&report, &Drawing::read(&report, &history)?);
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! # Ok::<(), seatrial_history::SourceError>(())
//! ```

mod wording;

mod report;

mod junit;
mod listing;
mod results;
mod text;

mod breakdown;
mod cause_text;
mod drawing;
mod excerpt;
mod latency_chart;
mod series;

mod chart;
mod escape;
mod page;

pub use drawing::Drawing;
pub use excerpt::Excerpt;
pub use junit::junit_xml;
pub use listing::{ListingColumns, listing};
pub use page::{FindingFile, OP_COLOR_FILE, finding_files, html, op_color_svg};
pub use report::{Failovers, Report};
pub use results::results_json;
pub use seatrial_cause::{CauseSearch, Causes, FaultWindow, fault_windows};
pub use text::text;
pub use wording::thousands;
