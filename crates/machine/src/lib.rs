//! The vocabulary of every core. A machine is told the time and one input and answers with outputs; it has no
//! clock, no random device, no thread, no socket and no file of its own.
//!
//! What a machine may ask for, and what answers it:
//!
//! | [`Output`] | what is done | answer |
//! | --- | --- | --- |
//! | `Send` | one message to a node, by its id; may be lost, late, repeated, overtaken | none |
//! | `Append` | bytes at the end of one of its logs, made durable | [`Input::Appended`] |
//! | `TruncateHead` | the space of a log before a position is given back | none |
//! | `File` | create, write, set length, sync, publish, read or remove a file ([`FileTask`]) | [`Input::FileDone`] |
//! | `Compute` | a [`Job`] beside the machine, in any order | [`Input::Computed`] |
//! | `Reply` | an answer to a local caller | |
//! | `Admit`, `Close` | what becomes of a connection | none |
//! | `Address` | where another node is from now on | none |
//!
//! With more than [`WORK_MAX`] jobs and tasks on files under way it is given no more messages until some are done.
//!
//! At a start it reads its [`DataFolder`]: logs by position, files, each as a [`Stream`] in bounded memory. [`LogWriter`],
//! [`FileFolder`] and [`FileQueue`] carry these outputs out over any [`Storage`], the same for both drivers.
//!
//! Two crates run machines: `seatrial-host` (real sockets, files, clock, threads) and `seatrial-sim` (one thread,
//! one seed). The code that is shipped is the code that is simulated.
//!
//! ```
//! use seatrial_machine::{Input, Machine, Output, Ticket, Time};
//!
//! /// Answers each request with the number of requests so far.
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

mod clock;
mod disk;
mod fault;
mod fields;
mod figures;
mod file;
mod folder;
mod log;
mod names;
mod node;
mod panic_text;
mod random;
mod storage;
mod stream;
mod time;
mod turn;

pub use clock::Clock;
pub use disk::Disk;
pub use fault::{
    DiskTrouble, Disturbance, Fault, FaultEffect, FaultInfo, FaultKind, FaultParameter, FaultParts,
    FaultState, FaultSubject, Link, LinkCondition, ParameterUnit,
};
pub use fields::{FieldReader, MessageError};
pub use figures::{counted, thousands};
pub use file::{FileAnswer, FileError, FileFolder, FileName, FileQueue, FileResult, FileTask};
pub use folder::{Booted, DataFolder};
pub use log::{Log, LogName, LogWriter, OpenLog, SEGMENT_LENGTH};
pub use names::{nearest, unknown_name};
pub use node::NodeId;
pub use panic_text::panic_text;
pub use random::Rng;
pub use storage::{Mapped, Medium, Storage};
pub use stream::Stream;
pub use time::Time;
pub use turn::{Computed, Conversation, Input, Job, Machine, Output, Peer, Ticket, WORK_MAX};
