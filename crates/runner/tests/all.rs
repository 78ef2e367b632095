//! Tests with real processes. The test program plays the servers, and the bench that gets killed, itself: it starts
//! its own executable with a role in the environment.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "all/generated.rs"]
mod generated;
#[path = "all/killed.rs"]
mod killed;
#[path = "all/locks_and_logs.rs"]
mod locks_and_logs;
#[path = "all/model.rs"]
mod model;
#[path = "all/processes.rs"]
mod processes;
#[path = "all/roles.rs"]
mod roles;
#[path = "all/run.rs"]
mod run;
#[path = "all/typed.rs"]
mod typed;
#[path = "all/watch.rs"]
mod watch;
#[path = "all/workload.rs"]
mod workload;
