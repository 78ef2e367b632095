//! A test in the real world: clients, nodes, nemeses, workloads.

mod child;
mod client;
mod folder;
mod log;
mod mesh;
mod node;
mod process;
mod workload;

pub use client::{BoxFuture, Client, ClientError, Clients, Seat};
pub use folder::{FolderError, RunFolder, time_name};
pub use mesh::{Mesh, Meter};
pub use node::{Death, Effect, NoNodes, NodeError, Nodes};
pub use process::{NodeLimits, Place, ProcessNodes, System};
pub use workload::{
    KeyDistribution, ListAppend, ListAppendOptions, Register, RegisterOptions, Workload, registers,
};
