//! Tests of the volume in simulated worlds.

mod guest_model;
mod world;
