//! A key-value store whose log is an archive: registers and append-only lists, multi-key transactions, strict
//! serializability. Protocol and log format: `docs/formats/kv-protocol.md`.
//!
//! [`Store`] is the server and [`Client`] its counterpart; both are machines, so the same code serves real sockets and
//! the simulator.
//!
//! ```
//! use seatrial_kv::{Answer, Outcome, Store, StoreOptions, Transaction};
//! use seatrial_machine::{Input, Machine, Output, Ticket, Time};
//!
//! let (mut store, _) = Store::boot(&Vec::new(), StoreOptions::default()).unwrap();
//! let mut out = Vec::new();
//! store.turn(Time::ZERO, Input::Wake, &mut out);
//! // A driver writes and syncs appends, and reports that.
//! let Some(Output::Append { ticket: boot, .. }) = out.pop() else { panic!("a store logs its start") };
//! store.turn(Time::ZERO, Input::Appended(boot), &mut out);
//!
//! let mut transaction = Transaction::new();
//! transaction.append(b"list", b"one").unwrap();
//! transaction.read(b"list").unwrap();
//! store.turn(Time::ZERO, Input::Request(Ticket(7), transaction), &mut out);
//! let Some(Output::Append { ticket, .. }) = out.pop() else { panic!("a change is logged") };
//! assert!(out.is_empty(), "and answered only when it is durable");
//! store.turn(Time::ZERO, Input::Appended(ticket), &mut out);
//! let Some(Output::Reply(Ticket(7), Outcome::Ok(answers))) = out.pop() else { panic!() };
//! let answers: Vec<Answer> = answers.iter().collect();
//! assert_eq!(answers[0], Answer::Done);
//! let Answer::List(list) = &answers[1] else { panic!() };
//! assert!(list.iter().eq([b"one"]));
//! ```
//!
//! # Reading order
//!
//! `store.rs` (the server's loop), `state.rs` (execution), `state/state_items.rs` (the persistent map), `state/request.rs`
//! (whole requests), `session.rs` (no request is executed twice, in the replicated state), `checkpoint.rs` (files of a state:
//! `docs/formats/kv-checkpoint.md`), `log.rs` (group commit), `boot.rs` (recovery), `client.rs`, `message.rs`.
//!
//! # What is absent
//!
//! - No reply before everything that it depends on is durable. (The planted [`Bug::AckBeforeAppend`] breaks this.)
//! - No second execution of a request, and no retry: a request without a reply is [`Outcome::Unknown`].
//! - No clock, socket or file: [`Store`] and [`Client`] are machines.
//! - No replication: one node, whose recovery replays its whole log. Checkpoints are written and read by no server yet.

mod answer;
mod boot;
mod bug;
#[allow(dead_code, unused_imports, reason = "for the replica")]
mod checkpoint;
mod client;
mod log;
pub mod message;
mod outcome;
#[allow(dead_code, reason = "for the replica")]
mod session;
#[allow(dead_code, reason = "for the replica")]
mod state;
mod store;
mod transaction;

pub use answer::{Answer, Answers, Elements, KeyRange, List};
pub use boot::{BootError, BootReport};
pub use bug::Bug;
pub use checkpoint::{
    CheckpointDiff, CheckpointError, CheckpointSummary, DiffError, KeyDifference, diff_checkpoints,
};
pub use client::{Client, ClientOptions};
pub use log::BATCH;
pub use outcome::{Doubt, Failure, Outcome};
pub use store::{Store, StoreOptions};
pub use transaction::{Operation, Operations, Transaction, TransactionError};
