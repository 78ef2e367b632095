//! Runs machines in a seeded world: network, disk, clock, crashes.
