//! Runs any set of machines in one thread from one seed: a network that delays, loses, duplicates and reorders messages, disks
//! that lose unsynced writes and tear the others, clocks that drift and jump, processes that crash, pause and restart.
//!
//! A [`World`] is a discrete-event simulation. The same code runs for real over the crate `host`: a machine cannot distinguish
//! the two drivers.
//!
//! ```text
//!                ┌────────────────── World (one thread, one seed) ───────────────────┐
//!   add ───────► │                                                                   │
//!   request ───► │  EventQueue ──earliest──► node: Machine::turn(local time, input)  │ ──► drain_replies
//!   apply ─────► │      ▲                                  │ outputs                 │
//!   (faults)     │      │    Send    ► Network: fate, delay, duplicates              │
//!                │      └──  Append  ► NodeWork: log, group commit ─┐                │
//!                │           File    ► NodeWork: task on a file  ───┤► MemoryStorage │
//!                │           Compute ► NodeWork: one of 4 workers  ─┘                │
//!                └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Every event carries the *incarnation* of the node that it belongs to, so the results of work that a dead process had under
//! way never reach its successor. The faults of a world, besides the delivery of what its machines asked for:
//!
//! | of | faults |
//! | --- | --- |
//! | messages | lost, late, duplicated, reordered, cut off, throttled, by pairs of nodes |
//! | logs and files | unsynced bytes, lengths and names lost or torn at a crash, in order or in any combination |
//! | disks | slow, full, failing; rotten bits |
//! | jobs, tasks on files | finish in any order, are lost at a crash, or end in the middle of it |
//! | processes | killed, paused, without power, restarted |
//! | clocks | wrong, drifting, jumping |
//!
//! For code over a [`Storage`](seatrial_machine::Storage): [`MemoryStorage`], every crash state of a run ([`crash`]), one
//! fault in each block ([`single_fault`]).
//!
//! ```
//! use seatrial_machine::{Input, Machine, NodeId, Output, Ticket, Time};
//! use seatrial_sim::{Booted, World, WorldOptions};
//!
//! /// Replies with the length of each message.
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
//!
//! # Reading order
//!
//! `world.rs` (the loop), `event_queue.rs` and `network.rs`, `node_work.rs` (a node's disk work), `simulated_storage.rs` with
//! `simulated_storage/media.rs` (the part of a disk that survives a crash), `crash.rs` with `crash/explorer.rs` (all crash
//! states of a run), `single_fault.rs`.
//!
//! # What is absent
//!
//! - No clock, socket, file, thread or random number of the operating system: two runs of a seed are equal, event by event
//!   ([`same_twice`]).
//! - No iteration over a map of random order.
//! - No knowledge of the machines that run here: their invariants are their own (`Machine::check_invariants`).
//! - No silent loss: a message that reaches no machine is counted in [`LostMessages`].
//! - No second disk model: worlds, crash states and single faults share [`MemoryStorage`].

pub mod crash;
mod event_queue;
mod explore;
mod network;
mod node_work;
mod simulated_storage;
pub mod single_fault;
mod trace;
mod world;
mod world_options;

pub use explore::{Exploration, explore, explore_on, same_twice};
pub use network::LostMessages;
pub use seatrial_machine::Booted;
pub use simulated_storage::{FileTree, MemoryStorage};
pub use world::{Boot, Closed, World};
pub use world_options::{DiskOptions, NetworkOptions, WorldOptions};

/// Runs the code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/crash-states.md")]
mod guide {}

#[cfg(test)]
mod tests;
