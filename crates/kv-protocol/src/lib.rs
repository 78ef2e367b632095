//! The protocol of the bundled key-value store: what its clients and its servers share, and the clients. Byte map in
//! `docs/formats/kv-protocol.md`; the servers are the replicas of the crate `kv`.
//!
//! Three machines send the messages: [`TransactionClient`] has a session and gives each [`Transaction`] an [`Outcome`],
//! [`StatusProbe`] asks a node for its [`ReplicaStatus`], [`AdminClient`] changes the cluster. All messages begin with the same
//! header ([`message::MessageHeader`]).
//!
//! ```
//! use seatrial_kv_protocol::message::{Code, MessageHeader, MessageKind};
//! use seatrial_kv_protocol::{Answer, Operation, Operations, Outcome, Transaction, answer_encoder};
//!
//! let mut transaction = Transaction::new();
//! transaction.append(b"list", b"one").unwrap();
//! transaction.read(b"name").unwrap();
//! let request = transaction.into_message(7, 1);
//!
//! // The server reads the operations from the message, and writes an answer for each after a header.
//! let header = MessageHeader::decode(&request).unwrap();
//! let mut reply = Vec::new();
//! for operation in Operations::new(&request, header.count) {
//!     match operation.unwrap() {
//!         Operation::Append { .. } => answer_encoder::put_done(&mut reply),
//!         _ => answer_encoder::put_register(&mut reply, b"Ada").unwrap(),
//!     }
//! }
//! let code = Code::Committed as u8;
//! let head = MessageHeader { kind: MessageKind::Reply, code, ..header };
//! reply.splice(..0, head.encode());
//!
//! let Ok(Outcome::Ok(answers)) = Outcome::from_reply(reply, 2) else { panic!() };
//! let answers: Vec<Answer<'_>> = answers.iter().collect();
//! assert_eq!(answers, [Answer::Done, Answer::Register(b"Ada")]);
//! ```
//!
//! # Reading order
//!
//! `message.rs` (header, limits, codes), `transaction.rs` (requests), `answer.rs`, `answer_encoder.rs`, `outcome.rs` (replies),
//! `transaction_client.rs` (sessions, repetitions, timeouts), `replica_status.rs` and `status_message.rs`, `admin_message.rs`.
//!
//! # What is absent
//!
//! - No message between replicas, and no command of the log: the crate `kv` has them.
//! - No socket and no clock: the clients are machines. The transport frames messages; it may lose, delay, duplicate and reorder
//!   them.
//! - No retry of a transaction whose outcome is unknown: only its message is repeated, in the same session.

mod admin_message;
mod answer;
pub mod answer_encoder;
pub mod message;
mod outcome;
mod replica_status;
pub mod status_message;
mod transaction;
mod transaction_client;

pub use admin_message::{AdminClient, AdminReply, AdminRequest};
pub use answer::{Answer, Answers, Elements, KeyRange, List};
pub use outcome::{Doubt, Failure, Outcome};
pub use replica_status::{CheckpointStatus, PAST_STATES_MAX, ReplicaStatus, StateDigest};
pub use status_message::StatusProbe;
pub use transaction::{Operation, Operations, Transaction, TransactionError};
pub use transaction_client::{TransactionClient, TransactionClientOptions};
