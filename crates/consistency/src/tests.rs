//! Each model against brute force over small random histories, and small histories by hand.

mod model_lattice;
mod session_models;
mod small_histories;
