//! Tests of the volume in simulated worlds.

mod description;
mod guest_model;
mod kept_writes;
mod known_faults;
mod replica_messages;
mod sweeps;
mod world;
