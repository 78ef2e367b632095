//! Systems as data: a suite that is read from TOML, and clients that are programs in any language.
//!
//! ```text
//!  my-system.toml ──decode──► SystemDefinition ──► DataSuite (a Suite like any other)
//!                    │                                 ├─ SystemNodes: ProcessNodes, and the commands around them
//!                    └─ Template (names, addresses)    └─ ProgramClients ──► ClientProcess ── lines of JSON ──► program
//!                                                                              └─ every answer is checked (shape)
//! ```
//!
//! `docs/guide/your-system.md` is the guide to the file, `docs/formats/client-protocol.md` specifies the protocol.
//!
//! # Reading order
//!
//! `template.rs`, `definition.rs`, `system_decoder.rs`, `system_file.rs` (the file); `suite.rs`, `nodes.rs`, `probe.rs`,
//! `short_command.rs` (nodes); `protocol_message.rs`, `value_shape.rs`, `client_process.rs`, `clients.rs` (clients);
//! `client_check.rs` (what is wrong with a client); `beginnings.rs`, `helpers.rs` (files that this program carries).
//!
//! # What is absent
//!
//! - No system by name: whatever is known of Redis stands in `examples/redis.toml`.
//! - No second way to run a test: `DataSuite` implements [`Suite`](seatrial_suite::Suite) like any other.
//! - No answer of a client reaches a checker unchecked: what has another shape is `info`, and the verdict is then at most
//!   unknown.

mod beginnings;
mod client_check;
mod client_process;
mod clients;
mod definition;
mod helpers;
mod nodes;
mod probe;
mod protocol_message;
mod reported_state;
mod scope;
mod short_command;
mod suite;
mod system_decoder;
mod system_file;
mod template;
mod text_positions;
mod value_shape;

pub use beginnings::{Beginning, beginnings};
pub use client_check::{ClientCheck, check_client};
pub use protocol_message::PROTOCOL_VERSION;
pub use suite::DataSuite;
pub use system_file::{SystemFile, SystemFileError};
