//! Each model against brute force over small random histories, and small histories by hand.

mod jepsen_workloads;
mod model_lattice;
mod session_models;
mod small_histories;
mod staleness_models;
