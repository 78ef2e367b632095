//! Servers under attack, as processes of their own: what they hold, and how soon others are served.
//!
//! `SEATRIAL_BIN` names another binary than the one of this build.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

#[path = "servers/archive.rs"]
mod archive;
#[path = "support/ended.rs"]
mod ended;
#[path = "servers/keys.rs"]
mod keys;
#[path = "servers/kv.rs"]
mod kv;
#[path = "servers/kv_bench.rs"]
mod kv_bench;
#[path = "servers/kv_cluster.rs"]
mod kv_cluster;
#[path = "servers/kv_commands.rs"]
mod kv_commands;
#[path = "servers/kv_kills.rs"]
mod kv_kills;
#[path = "servers/kv_members.rs"]
mod kv_members;
#[path = "servers/kv_rejoin.rs"]
mod kv_rejoin;
#[path = "servers/kv_status.rs"]
mod kv_status;
#[path = "servers/kv_tls.rs"]
mod kv_tls;
#[path = "servers/logging.rs"]
mod logging;
#[path = "servers/process.rs"]
mod process;
#[path = "support/scratch.rs"]
mod scratch;
#[path = "support/spoken.rs"]
mod spoken;
#[path = "servers/volume.rs"]
mod volume;
#[path = "servers/volume_tls.rs"]
mod volume_tls;
#[path = "servers/wire.rs"]
mod wire;

use process::{Latencies, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Mutex;
use std::time::Duration;

/// What a server may hold: less than this, in bytes.
const MEMORY_MAX: u64 = 256_000_000;
/// How soon others are to be served. It takes a tenth; a busy machine that builds something else meanwhile is no attack.
const SOON: Duration = Duration::from_secs(2);

/// One attack at a time: they measure time.
static ATTACK: Mutex<()> = Mutex::new(());

/// May this process have the sockets of some thousand attackers, and is the server that of a release? One with debug
/// assertions looks through all sessions and replays in each turn, which takes minutes and says nothing of the other's times.
fn can_attack(sockets: u64) -> bool {
    if std::env::var_os("SEATRIAL_BIN").is_none() {
        println!("skipped: SEATRIAL_BIN names no release build");
        return false;
    }
    has_sockets(sockets)
}

/// Lets this process have that many sockets; false where it may not.
fn has_sockets(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
    let has = limit.maximum.is_none_or(|it| it >= count) && is_raised;
    if !has {
        println!("skipped: fewer than {count} files may be open here");
    }
    has
}

/// Prints what an attack was like for others, and asserts that they were served soon, that the server holds no more than
/// is stated and that it logs little; what it said.
fn assert_served(
    name: &str,
    server: &mut Server,
    before: Option<u64>,
    [work, visits]: [Latencies; 2],
) -> Vec<String> {
    println!("{name}: one client, {}", work.line());
    println!("{name}: new clients, {}", visits.line());
    println!("memory before {before:?}, most {:?}", server.most_memory());
    assert!(server.is_running(), "{:?}", server.said());
    let mut all = work;
    all.merge(visits);
    assert!(all.max() < SOON, "{:?}", all.max());
    let most = server.most_memory();
    assert!(most.is_none_or(|most| most < MEMORY_MAX), "{most:?} bytes");
    let said = server.said();
    assert!(said.len() < 400, "{} lines", said.len());
    said
}
