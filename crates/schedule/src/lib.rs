//! Scripted schedules: a few sessions, whose statements are executed in a fixed order.
//!
//! A test draws its interleavings at random and finds what was not thought of; a schedule has the one interleaving that
//! an anomaly needs, so it shows what an isolation level permits, in a second, the same each time, and how the database
//! prevents the rest: by waiting, by aborting a transaction, or by an older version.
//!
//! ```text
//!  FILE.toml ─► ScheduleFile ─► Schedule ─┬─► ScheduleBench (sessions of a Suite) ─► ScheduleRun ─► ScheduleMatrix
//!  suite ─► ScheduleServer (one node) ────┘
//! ```
//!
//! The order is deterministic although statements wait for locks: the bench executes the next step when the server has
//! answered the last one, or says that it waits for a lock ([`waiting_question`]). No time limit is reached in a schedule
//! that works.
//!
//! [`waiting_question`]: seatrial_suite::SqlSession::waiting_question
//!
//! # What is absent
//!
//! - Which statements a database has: a schedule is plain SQL, and has to be that of all its systems.
//! - Checkers: what counts as the anomaly is in the file (`occurs`), in terms of commits and rows.

mod schedule_arguments;
mod schedule_bench;
mod schedule_file;
mod schedule_matrix;
mod schedule_run;
mod schedule_series;
mod schedule_server;

pub use schedule_arguments::ScheduleArguments;
pub use schedule_bench::{ScheduleBench, ScheduleError};
pub use schedule_file::{
    Occurrence, PublishedLevel, Schedule, ScheduleFile, ScheduleFileError, ScheduleStep,
};
pub use schedule_matrix::{MatrixRow, ScheduleMatrix};
pub use schedule_run::{Manner, ScheduleRun, StepEnd, StepRecord};
pub use schedule_series::ScheduleSeries;
pub use schedule_server::ScheduleServer;
