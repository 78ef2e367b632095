//! Runs any set of machines in one thread from one seed: a network that delays, loses, repeats and reorders, disks that
//! forget what was not synced and tear what they were writing, clocks that drift and jump, processes that die, stop and come
//! back. Nothing here has a clock, a socket or a file of the real world.
//!
//! What a [`World`] does to a machine beside delivering what it asked for:
//!
//! | what | faults |
//! | --- | --- |
//! | messages | lost, late, repeated, overtaken, cut off, throttled, by pairs of nodes |
//! | logs and files | unsynced bytes, lengths and names lost or torn at a crash, in order or in any combination |
//! | disks | slow, full, failing; rotten bits |
//! | jobs, tasks on files | finish in any order, are lost at a crash, or end in the middle of it |
//! | processes | killed, paused, without power, started again |
//! | clocks | wrong, drifting, jumping |
//!
//! For code over a [`Storage`](seatrial_machine::Storage): [`MemoryStorage`], every crash state of a run ([`crash`]), one
//! fault in each block ([`single_fault`]).
//!
//! ```
//! use seatrial_machine::{Input, Machine, NodeId, Output, Ticket, Time};
//! use seatrial_sim::{Booted, World, WorldOptions};
//!
//! /// Says how many bytes each message has.
//! struct Echo;
//! impl Machine for Echo {
//!     type Request = NodeId;
//!     type Reply = usize;
//!     fn turn(&mut self, _now: Time, input: Input<NodeId>, out: &mut Vec<Output<usize>>) {
//!         match input {
//!             Input::Request(_, to) => out.push(Output::Send { to, message: vec![7; 3] }),
//!             Input::Message { bytes, .. } => out.push(Output::Reply(Ticket(0), bytes.len())),
//!             _ => {}
//!         }
//!     }
//!     fn wake_at(&self) -> Option<Time> {
//!         None
//!     }
//! }
//!
//! let boot = |_, _: &seatrial_machine::DataFolder| Ok(Booted::new(Echo));
//! let mut world = World::new(7, WorldOptions::default(), boot);
//! let (a, b) = (NodeId::server(1), NodeId::server(2));
//! world.add(a);
//! world.add(b);
//! world.request(a, Ticket(1), b);
//! while world.step() {}
//! assert_eq!(world.drain_replies().collect::<Vec<_>>(), [(b, Ticket(0), 3)]);
//! ```

pub mod crash;
mod explore;
mod network;
mod options;
mod queue;
pub mod single_fault;
mod storage;
mod trace;
mod work;
mod world;

pub use explore::{Exploration, explore, same_twice};
pub use network::LostMessages;
pub use options::{DiskOptions, NetworkOptions, WorldOptions};
pub use seatrial_machine::Booted;
pub use storage::{FileTree, MemoryStorage};
pub use world::{Boot, Closed, World};

/// The guide's code runs as it stands.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/crash-states.md")]
mod guide {}

#[cfg(test)]
mod tests;
