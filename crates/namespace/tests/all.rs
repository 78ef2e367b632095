//! Networks of namespaces. Needs permission for them: tests are skipped with the reason elsewhere, except in CI.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "all/leftovers.rs"]
mod leftovers;
#[path = "all/links.rs"]
mod links;
#[path = "all/nodes.rs"]
mod nodes;
#[path = "all/servers.rs"]
mod servers;

use seatrial_namespace::{NetworkKind, NodeNetwork, NodeNetworkOptions, enter_thread};

/// Runs `body` with a network, in a thread with a network namespace of its own; skips it where namespaces are forbidden.
fn with_network(body: impl FnOnce(NodeNetwork) + Send + 'static) {
    let options = NodeNetworkOptions {
        seed: 7,
        ..NodeNetworkOptions::default()
    };
    let thread = std::thread::spawn(move || {
        if let Err(error) = enter_thread() {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            eprintln!("skipped: {error}");
            return;
        }
        body(NodeNetwork::open(NetworkKind::Netns, options).unwrap());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
