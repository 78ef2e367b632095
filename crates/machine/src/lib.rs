//! The vocabulary of every core. A machine is told the time and one input and answers with outputs; it has no
//! clock, no random device, no thread, no socket and no file of its own.
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
mod names;
mod node;
mod random;
mod storage;
mod time;
mod turn;

pub use clock::Clock;
pub use disk::Disk;
pub use fault::{DiskTrouble, Disturbance, Fault, FaultKind, Link};
pub use fields::{FieldReader, MessageError};
pub use names::{nearest, unknown_name};
pub use node::NodeId;
pub use random::Rng;
pub use storage::{Mapped, Medium, Storage};
pub use time::Time;
pub use turn::{Computed, Conversation, Input, Job, Machine, Output, Peer, Ticket};
