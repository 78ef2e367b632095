//! A replicated key-value store: registers and append-only lists, multi-key transactions, strict serializability. Protocol,
//! journal and state: `docs/formats/kv-protocol.md`, `docs/formats/kv-journal.md`.
//!
//! [`Replica`] is one member of a cluster and [`TransactionClient`] its counterpart, in the crate `kv-protocol` with all that
//! both share. Both are machines, so the same code serves real sockets and the simulator.
//!
//! ```
//! use seatrial_kv::{Replica, ReplicaOptions};
//! use seatrial_kv_protocol::{Outcome, Transaction, TransactionClient, TransactionClientOptions};
//! use seatrial_machine::{DataFolder, Input, Machine, NodeId, Output, Ticket, Time};
//! use std::sync::Arc;
//!
//! let (node, me) = (NodeId::server(1), NodeId::client(0));
//! let folder = tempfile::tempdir().unwrap();
//! let data = DataFolder::open(Arc::new(seatrial_files::Files), folder.path()).unwrap();
//! let files = data.file_folder();
//! let (mut replica, _) = Replica::boot(&data, ReplicaOptions::new(node, [node])).unwrap();
//! let mut client = TransactionClient::new(TransactionClientOptions::new(node, 7));
//!
//! let mut transaction = Transaction::new();
//! transaction.append(b"list", b"one").unwrap();
//! transaction.read(b"list").unwrap();
//! let (mut out, mut outcome, mut appends) = (Vec::new(), None, 0);
//! replica.turn(Time::ZERO, Input::Wake, &mut out);
//! let mut request = Some(transaction);
//! while outcome.is_none() {
//!     for output in std::mem::take(&mut out) {
//!         match output {
//!             Output::Send { to, message } => {
//!                 let (from, bytes) = (if to == me { node } else { me }, message);
//!                 let input = Input::Message { from, bytes };
//!                 match to == me {
//!                     true => client.turn(Time::ZERO, input, &mut out),
//!                     false => replica.turn(Time::ZERO, input, &mut out),
//!                 }
//!             }
//!             // A driver writes and syncs the bytes, then reports that.
//!             Output::Append { ticket, .. } => {
//!                 appends += 1;
//!                 replica.turn(Time::ZERO, Input::Appended(ticket), &mut out);
//!             }
//!             Output::File(task, ticket) => {
//!                 let input = Input::FileDone(ticket, files.run(task));
//!                 replica.turn(Time::ZERO, input, &mut out);
//!             }
//!             Output::Reply(_, reply) => outcome = Some(reply),
//!             _ => {}
//!         }
//!     }
//!     if let Some(request) = request.take() {
//!         client.turn(Time::ZERO, Input::Request(Ticket(1), request), &mut out);
//!     }
//!     replica.turn(Time::ZERO, Input::Wake, &mut out);
//! }
//! let Some(Outcome::Ok(answers)) = outcome else { panic!() };
//! assert_eq!(answers.len(), 2);
//! assert!(appends >= 4, "the start, the election, the session, the transaction");
//! ```
//!
//! [`TransactionClient`]: seatrial_kv_protocol::TransactionClient
//!
//! # Reading order
//!
//! `replica.rs` (the loop), `replica/incoming.rs` (what arrives), `store_command.rs` and `pending.rs` (what an entry carries),
//! `replica/callers.rs` and `replica/waiting_reads.rs` (who waits), `journal.rs`, `journal_mark.rs` and `recovery.rs`
//! (durability), `replica/rejoin.rs` (a lost journal), `state.rs` with `session_table.rs` (execution, exactly once),
//! `checkpoint.rs` and `replica/state_digest.rs` (files and digests of a state: `docs/formats/kv-checkpoint.md`),
//! `replica_message.rs` (what replicas say to each other).
//!
//! # What is absent
//!
//! - No consensus algorithm: the crate `consensus` has it.
//! - No reply before a quorum has made durable all that it depends on. (Planted bugs break this, and others of this list.)
//! - No second execution of a request, however often and to whichever node it is sent.
//! - No message of a client, and no client: the crate `kv-protocol` has them.
//! - No clock, socket or file: [`Replica`] is a machine. Time in the state is that of log entries.
//! - No authentication and no protection against members that lie: links have the one, nothing has the other.

mod bug;
#[allow(
    dead_code,
    reason = "incremental files are not written by replicas yet"
)]
mod checkpoint;
mod checkpoint_schedule;
mod journal;
mod journal_mark;
mod pending;
mod recovery;
mod replica;
mod replica_message;
mod session_table;
mod state;
mod store_command;

pub use bug::Bug;
pub use checkpoint::{
    CheckpointDiff, CheckpointError, CheckpointFiles, CheckpointSummary, DiffError, KeyDifference,
    changes_since, diff_checkpoints,
};
pub use journal::JOURNAL;
pub use recovery::BootError;
pub use replica::{BootReport, CheckpointMode, Replica, ReplicaOptions};
pub use replica_message::LENGTH_MAX as WIRE_LENGTH_MAX;
