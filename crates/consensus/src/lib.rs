//! The replicated log of a cluster: consensus for machines, by the `raft` crate behind one file, without input or output.
//!
//! ```text
//!   step, tick, propose, read, applied ──► Consensus ──► ready(): send, persist, committed, reads, transfer, fetch
//!                                             ▲                         │
//!                                             └──── persisted(ticket) ◄─┘ the journal made it durable
//! ```
//!
//! [`Consensus`] is one member. Its machine calls it with what happens, then calls [`Consensus::ready`] until it returns nothing,
//! and does what it says: send messages, make entries and vote durable in one write, apply committed entries. Messages that
//! depend on a write stay in the core until [`Consensus::persisted`] reports it; a leader's appends leave before its own sync.
//! Members crash and restart, lose what was not synced, and lose, repeat and reorder messages; they do not lie.
//!
//! ```
//! use bytes::Bytes;
//! use seatrial_consensus::{
//!     CachedLog, Config, Consensus, Members, Payload, SnapshotMark, StartPoint,
//! };
//! use seatrial_machine::NodeId;
//!
//! let node = NodeId::server(1);
//! let founding = SnapshotMark { members: Members::of_voters([node]), ..SnapshotMark::default() };
//! let recovered = StartPoint { checkpoint: founding, ..StartPoint::default() };
//! let mut core = Consensus::new(Config::new(node, 1, 7), recovered, CachedLog::new(0, 0, 1 << 20)).unwrap();
//! core.campaign().unwrap();
//! let mut values = Vec::new();
//! for round in 0..3 {
//!     if round == 1 {
//!         core.propose(Bytes::from_static(b"x")).unwrap();
//!     }
//!     while let Some(ready) = core.ready().unwrap() {
//!         if let Some(persist) = ready.persist {
//!             core.persisted(persist.ticket).unwrap(); // after the write
//!         }
//!         for committed in ready.committed {
//!             core.applied(committed.entry.index).unwrap();
//!             values.extend(match committed.entry.payload {
//!                 Payload::Data(bytes) => Some(bytes),
//!                 _ => None,
//!             });
//!         }
//!     }
//! }
//! assert_eq!(values, [b"x".as_slice()]);
//! ```
//!
//! # The nine rules
//!
//! What the library needs from its user, each with what breaks without it. A test switches each off and must see it break
//! (`simulator/tests.rs`, `fuzz.rs`).
//!
//! 1. **Election timeouts come from the seed.** The library draws them from the operating system: no schedule would replay.
//! 2. **Nothing counts as applied before it is durable.** The library panics ("applied out of range").
//! 3. **While a received checkpoint is not durable there is no tick, no step and no proposal.** An election in between looks for
//!    entries below the checkpoint and panics ("unexpected error getting unapplied entries").
//! 4. **Only applied entries are compacted** or dropped from memory. The next election looks for them and panics.
//! 5. **A leader that is no voter any more becomes a follower at once.** Else it unwraps its missing progress.
//! 6. **A snapshot that was sent has a timeout.** The library waits for a report for ever; a lost one stops its member.
//! 7. **A member gets only checkpoints that know it.** It ignores older ones and asks again, for ever:
//!    [`Ready::checkpoint_due`] asks for a newer one.
//! 8. **Protobuf from outside is never parsed** (RUSTSEC-2024-0437 names the version in use). Messages and membership changes
//!    travel in our own encoding ([`encode`], [`decode`]), with every length bounded.
//! 9. **Messages are checked and numbered.** PeerFields that no member sends make the library panic; messages that were overtaken
//!    make a leader probe below what a follower has (raft-rs #555). What panics all the same stops the core: every later call
//!    returns [`ConsensusStopped`] with the cause, and the node must end as if it crashed. A heartbeat that counts on entries
//!    which this node does not have means that its log was lost: that stops it too.
//!
//! Two more are kept by construction: the commit index is written with entries, so that the membership after a restart is at most
//! one change old; and a reply waits for all earlier writes, not only for those of its own turn.
//!
//! # Files in reading order
//!
//! - `log_entry.rs`, `peer_message.rs`: entries, memberships, checkpoints' marks; what members say to each other
//! - `config.rs`, `ready.rs`: what goes in at the start, what comes out of a turn
//! - `library.rs`: [`Consensus`], the only file that names the library
//! - `admission.rs`: which messages reach it
//! - `entry_log.rs`: the log as the library reads it
//! - `peer_codec.rs`: messages as bytes
//! - `rule.rs`, `simulator.rs`, `fuzz.rs`: the tests
//!
//! # What is absent
//!
//! - No disk, network, clock and state machine; no transfer of a checkpoint's state, only its mark.
//! - No forwarding of proposals: clients find the leader ([`Refused::NotLeader`]).
//! - No leases: a linearizable read costs one round to a quorum, which all reads of that time share.
//! - No protection against members that lie, and no authentication: links have it.

mod admission;
mod config;
mod entry_log;
mod library;
mod log_entry;
mod peer_codec;
mod peer_message;
mod ready;
mod rule;

pub use config::{Config, ConfigError, StartPoint};
pub use entry_log::{CachedLog, EntryLog, MissingEntries};
pub use library::Consensus;
pub use log_entry::{
    ENTRY_LENGTH_MAX, LogEntry, MEMBERS_MAX, MemberChange, Members, Payload, SnapshotMark, Vote,
};
pub use peer_codec::{
    DecodeError, ENTRIES_MAX, MESSAGE_LENGTH_MAX, VERSION, decode, decode_members, encode,
    encode_members,
};
pub use peer_message::{AppendRejection, Body, LinkNumber, PeerMessage, ReadContext};
pub use ready::{
    CheckpointOffer, Committed, ConsensusStopped, Fetch, MemberStatus, Persist, ReadGrant, Ready,
    Refused, Role,
};
#[cfg(feature = "rules-off")]
#[doc(hidden)]
pub use rule::WrapperRule;

#[cfg(test)]
mod append_bounds;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod simulator;
