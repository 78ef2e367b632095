//! The vocabulary of all cores: machines, their inputs and outputs, time, random numbers, logs and files, faults. A machine
//! takes the time and one input and pushes outputs; it has no clock, no random device, no thread, no socket and no file.
//!
//! ```text
//!   driver: host (real) or sim (seeded)
//!   ┌───────────────────────────────────────────────────────────────┐
//!   │  now, Input ──► Machine::turn ──► outputs ──► carried out ─┐  │
//!   │    ▲              ▲ wake_at: when to wake it               │  │
//!   │    └──────────────┴── results, messages, time ◄────────────┘  │
//!   └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! | [`Output`] | carried out as | reported by |
//! | --- | --- | --- |
//! | `Send` | one message to a node, by its id; may be lost, late, duplicated, reordered | none |
//! | `Append` | bytes at the end of one of its logs, made durable | [`Input::Appended`] |
//! | `TruncateHead` | the space of a log before a position is freed | none |
//! | `File` | create, write, set length, sync, publish, read or remove a file ([`FileTask`]) | [`Input::FileDone`] |
//! | `Compute` | a [`Job`] outside of the machine, in any order | [`Input::Computed`] |
//! | `Reply` | a reply to a local caller | none |
//! | `Admit`, `Close` | a connection is admitted or closed | none |
//! | `Address` | the address of another node changes | none |
//! | `Stop` | the process ends and gives a reason | none |
//!
//! A machine with more than [`WORK_MAX`] jobs and file tasks under way gets no further messages until some are done.
//!
//! At boot a machine reads its [`DataFolder`]: logs by position, files, each as a [`Stream`] in bounded memory. [`LogWriter`],
//! [`FileFolder`] and [`FileQueue`] carry out its disk outputs over any [`Storage`], the same for both drivers.
//!
//! Two crates drive machines: `seatrial-host` (real sockets, files, clock, threads) and `seatrial-sim` (one thread, one seed).
//! The code that is shipped is the code that is simulated.
//!
//! ```
//! use seatrial_machine::{Input, Machine, Output, Ticket, Time};
//!
//! /// Replies to each request with the number of requests so far.
//! struct Counter(u64);
//!
//! impl Machine for Counter {
//!     type Request = ();
//!     type Reply = u64;
//!     fn turn(&mut self, _now: Time, input: Input<()>, out: &mut Vec<Output<u64>>) {
//!         if let Input::Request(ticket, ()) = input {
//!             self.0 += 1;
//!             out.push(Output::Reply(ticket, self.0));
//!         }
//!     }
//!     fn wake_at(&self) -> Option<Time> {
//!         None
//!     }
//! }
//!
//! let mut out = Vec::new();
//! Counter(0).turn(Time::ZERO, Input::Request(Ticket(7), ()), &mut out);
//! assert!(matches!(out[..], [Output::Reply(Ticket(7), 1)]));
//! ```
//!
//! # Reading order
//!
//! `turn.rs` (the trait), `time.rs`, `node_id.rs`, `random.rs`; then `storage.rs`, `segmented_log.rs`, `file_tasks.rs` and
//! `data_folder.rs` (durability); then `fault.rs` (the table of all faults) and `status_sheet.rs` (how a machine describes
//! itself).
//!
//! # What is absent
//!
//! - No clock, thread, socket, file or randomness of the operating system, and no map of random order.
//! - No error of [`Machine::turn`]: it is total. A failed write to a log ends the process instead of reaching the machine.
//! - No implementation of [`Storage`]: `files` has the real one, `sim` the simulated one.
//! - No message format: each protocol is a machine's own ([`FieldReader`] only decodes fields).

mod clock;
mod data_folder;
mod disk;
mod duration_histogram;
mod fault;
mod field_reader;
mod figures;
mod file_tasks;
mod names;
mod node_id;
mod panic_text;
mod random;
mod segmented_log;
mod status_sheet;
mod storage;
mod stream;
mod time;
mod turn;

pub use clock::Clock;
pub use data_folder::{Booted, DataFolder};
pub use disk::Disk;
pub use duration_histogram::DurationHistogram;
pub use fault::{
    DiskTrouble, Disturbance, Fault, FaultEffect, FaultInfo, FaultKind, FaultParameter, FaultParts,
    FaultState, FaultSubject, Link, LinkCondition, ParameterUnit,
};
pub use field_reader::{FieldReader, MessageError};
pub use figures::{counted, thousands};
pub use file_tasks::{
    FileAnswer, FileError, FileFolder, FileName, FileQueue, FileResult, FileTask,
};
pub use names::{nearest, unknown_name};
pub use node_id::NodeId;
pub use panic_text::panic_text;
pub use random::Rng;
pub use segmented_log::{LogName, LogReader, LogView, LogWriter, OpenLog, SEGMENT_LENGTH};
pub use status_sheet::{
    LinePart, MetricValue, StatusChart, StatusLine, StatusMetric, StatusSheet, StatusTable,
};
pub use storage::{DIRECT_UNIT, DirectWrites, Mapped, Medium, Storage};
pub use stream::Stream;
pub use time::Time;
pub use turn::{ClientDriver, Computed, Input, Job, Machine, Output, Peer, Ticket, WORK_MAX};
