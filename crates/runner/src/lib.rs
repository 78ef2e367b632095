//! A test in the real world: clients, nodes, nemeses, workloads.

mod bench;
mod child;
mod client;
mod damage;
mod driver;
mod folder;
mod log;
mod mesh;
mod nemesis;
mod node;
mod plan;
mod process;
mod progress;
mod recorder;
mod run;
mod stop;
mod test;
mod timer;
mod watch;
mod worker;

pub use bench::{BenchFigures, bench_interpreter};
pub use client::{BoxFuture, Client, ClientError, Clients, Seat};
pub use driver::Ended;
pub use folder::{FolderError, RunFolder, time_name};
pub use mesh::{Mesh, Meter};
pub use nemesis::FaultRecord;
pub use node::{Death, Effect, NoNodes, NodeError, Nodes};
pub use plan::{PlanError, PlanSource};
pub use process::{NodeLimits, Place, ProcessNodes, System};
pub use progress::{Counts, Observer, Phase, Progress};
pub use run::run;
pub use seatrial_host::ClockOrder;
pub use stop::{Stop, Urgency};
pub use test::{Crash, Evidence, MakeResults, Outcome, RunError, Test, plain_results};
pub use watch::{Sighting, Watch};
