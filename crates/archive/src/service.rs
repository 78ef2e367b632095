//! The archive as a service: a protocol, the machine that serves it, and the client's machine. Protocol:
//! `docs/formats/archive-protocol.md`.

mod answer;
mod fields;
pub mod message;
mod operation;

pub use answer::{Answer, Claimed, Description, Health, Refusal, RefusalCode};
pub use operation::{
    LabelFilter, ListFilter, Operation, ReplayBound, ReplayFrom, ReplayRequest, SyncPolicy,
};
