//! Adya's phenomena: dependency graphs, the cycles in them by kind, and isolation levels by the anomalies they forbid.
//!
//! A checker that knows the dependencies of a history is an [edge source](shape::EdgeSource). [`cycles::find_cycles`]
//! reads it twice: first without the kinds of edges, to find the strongly connected components, then only inside
//! these, where [`search::search`] looks for each wanted kind of cycle. A [`Level`] says which kinds it forbids, and
//! [`boundary`] which levels a set of anomalies rules out.
//!
//! ```
//! use seatrial_cycles::graph::{EdgeBuilder, RW, WR};
//! use seatrial_cycles::search::search;
//! use seatrial_cycles::{Level, boundary, forbidden_cycles};
//!
//! // Transaction 1 read what 0 wrote, and 0 overwrote what 1 had read: a read skew.
//! let mut edges = EdgeBuilder::new(2);
//! edges.link(0, 1, WR);
//! edges.link(1, 0, RW);
//! let wanted = forbidden_cycles(Level::Serializable);
//! let report = search(&edges.into_graph(), &wanted, u64::MAX);
//! let (kind, cycle) = &report.cycles[0];
//! assert_eq!(kind.name(), "G-single");
//! assert_eq!(cycle.nodes, [0, 1]);
//! assert_eq!(boundary([kind.name()]).not, ["consistent-view", "repeatable-read"]);
//! ```
//!
//! Sources: Adya, "Weak Consistency" (1999); Alvaro and Kingsbury, "Elle" (2020), for the lattice of levels; Tarjan
//! (1972) for components.
//!
//! # What this crate does not do
//!
//! - It does not read a history: nodes are numbers, and only [`operation_cycles`] knows what an operation is.
//! - It infers no dependency. What an edge source emits is believed.
//! - It has no IO, thread, clock or randomness, and every bound counts steps: the same graph gives the same report.
//! - The verifier of certificates does not depend on it, nor it on the verifier.
//!
//! # Files in reading order
//!
//! - `ids.rs`: types for dense numbers
//! - `csr.rs`: rows of items in two arrays
//! - `graph.rs`: edges by kind, and the graph of them
//! - `shape.rs`: the same graph without kinds, for a first look
//! - `edge_filter.rs`: a source of edges without some kinds
//! - `components.rs`: Tarjan's algorithm
//! - `anomaly.rs`: names of anomalies, and which implies which
//! - `level.rs`: the lattice of levels
//! - `search.rs`: the search for cycles by kind
//! - `search/shortest_path.rs`: breadth-first search, and what a cycle is
//! - `search/closing_edges.rs`: anti-dependencies that close a cycle of dependencies
//! - `search/nonadjacent.rs`: cycles without adjacent anti-dependencies
//! - `search/component_sketch.rs`: the part of a component that a picture shows
//! - `cycles.rs`: both passes over a source of edges
//! - `operation_cycles.rs`: cycles of operations, for checkers of data types

pub mod anomaly;
pub mod components;
mod csr;
pub mod cycles;
pub mod edge_filter;
pub mod graph;
mod ids;
mod level;
mod operation_cycles;
pub mod search;
pub mod shape;

pub use csr::{Csr, CsrCounter, CsrFiller, TooManyItems};
pub use ids::{KeyId, Position, Txn, Version};
pub use level::{Level, LevelBoundary, boundary, boundary_with, forbidden_cycles};
pub use operation_cycles::{CompletedOperation, OperationCycle, operation_cycles};
pub use search::SearchBound;

/// No such node; no such position. New code uses an `Option` of an id instead.
pub const NONE: u32 = u32::MAX;
