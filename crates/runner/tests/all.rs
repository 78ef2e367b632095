//! Tests with real processes. The test program plays the servers, and the bench that gets killed, itself: it starts
//! its own executable with a role in the environment.

#[path = "all/processes.rs"]
mod processes;
#[path = "all/roles.rs"]
mod roles;
