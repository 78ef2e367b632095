//! Runs machines in the real world: sockets, files, clock, thread pool.
