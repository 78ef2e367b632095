//! Checks of histories: which checkers a history is for, the one loop that runs them, what their verdicts are worth.
//!
//! A check has three steps, whatever the source ([`seatrial_history::ChunkSource`]) and whichever the checkers:
//!
//! 1. [`question`] decides checkers and models from what a person asked for ([`Request`]), what the history says of itself (its
//!    attributes), and what its operations look like ([`infer::Shapes`]);
//! 2. [`check`] pushes the chunks of one round to all checkers together, and lets each of them finish ([`Follower`] does the same
//!    for a test file that is still written);
//! 3. [`Ground::settle`] takes back what the verdicts cannot know.
//!
//! ```
//! use seatrial_check::{Ground, CheckOptions, Request, Unwatched, check, question, references};
//! use seatrial_checker::Validity;
//! use seatrial_interchange::import;
//! use std::sync::Arc;
//!
//! let text = b"{:process 0 :type :invoke :f :txn :value [[:append 1 1]]}
//!              {:process 0 :type :ok :f :txn :value [[:append 1 1]]}
//!              {:process 1 :type :invoke :f :txn :value [[:r 1 nil]]}
//!              {:process 1 :type :ok :f :txn :value [[:r 1 [1]]]}";
//! let history = import::read("run.edn", text, import::Format::Edn, import::ImportOptions::default())?;
//! let request = Request {
//!     checkers: Some(vec!["list-append".to_owned()]),
//!     ..Request::default()
//! };
//! let asked = question(&request, &serde_json::Value::Null, None)?;
//! let (source, options) = (Arc::new(history) as _, CheckOptions::default());
//! let mut answer = check(&references(&asked.checkers), &source, &options, &Unwatched, None).unwrap();
//! Ground::default().settle(&mut answer.verdicts, &answer.overview);
//! assert_eq!(answer.verdicts[0].valid, Validity::Valid);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is absent: no checker is defined here, and no verdict is reached that a checker did not reach; no file is opened by name
//! but a test file that is followed, and no clock is read: [`Watch`] says when to stop.

mod ahead;
mod certificate_replay;
mod check_loop;
mod check_question;
mod feed;
mod file_stretch;
mod follower;
pub mod infer;
mod minimum_load;
mod prefix_check;
mod registry;
mod settle;
mod suite_workloads;
mod workloads;

pub use ahead::{ChunkReadAhead, Give, round_of};
pub use certificate_replay::{is_refuted, prove, replay};
pub use check_loop::{
    CheckAnswer, CheckOptions, CheckStage, SharedSource, Stopped, Unwatched, Watch, check,
    references,
};
pub use check_question::{
    CheckQuestion, NODE_STATES, Request, RequestError, needs_shapes, question,
};
pub use follower::Follower;
pub use minimum_load::MinimumLoad;
pub use registry::{CHECKERS, Entry, UnknownName, by_name, entry, for_workload, names, proves};
pub use seatrial_data_models::{StateTableRow, TableModel};
pub use seatrial_linear::ModelChecker;
pub use settle::Ground;
pub use suite_workloads::{SuiteWorkloads, WorkloadCheckers};
pub use workloads::{WORKLOADS, WorkloadChecks, checkers_of};
