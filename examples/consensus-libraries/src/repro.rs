//! The faults without a simulator: programs on the libraries alone, with the storage that comes with them. Each test passes while
//! the fault is there.

mod omnipaxos_programs;
mod raft_programs;
