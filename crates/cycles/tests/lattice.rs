//! The lattice of models against Elle's table (`elle.consistency-model`).

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use seatrial_cycles::Level;
use std::collections::BTreeSet;

/// Elle's canonical names and the friendly ones of the same models.
const NAMES: [(&str, &str); 20] = [
    ("PL-1", "read-uncommitted"),
    ("PL-2", "read-committed"),
    ("PL-CS", "cursor-stability"),
    ("PL-2L", "monotonic-view"),
    ("PL-MSR", "monotonic-snapshot-read"),
    ("PL-2+", "consistent-view"),
    ("PL-FCV", "forward-consistent-view"),
    ("PL-2.99", "repeatable-read"),
    ("PL-SI", "snapshot-isolation"),
    ("PL-3U", "update-serializable"),
    ("PL-3", "serializable"),
    ("conflict-serializable", "serializable"),
    ("PL-SS", "strict-serializable"),
    ("strong-serializable", "strict-serializable"),
    ("strong-session-PL-1", "strong-session-read-uncommitted"),
    ("strong-session-PL-2", "strong-session-read-committed"),
    ("strong-session-PL-3", "strong-session-serializable"),
    ("strong-PL-1", "strong-read-uncommitted"),
    ("strong-PL-2", "strong-read-committed"),
    ("PSI", "parallel-snapshot-isolation"),
];

/// The weakest models that each anomaly rules out.
const RULED_OUT: [(&str, &[&str]); 33] = [
    ("garbage-read", &["read-uncommitted"]),
    ("duplicate-elements", &["read-uncommitted"]),
    ("G0", &["read-uncommitted"]),
    ("G1a", &["read-committed"]),
    ("G1b", &["read-committed"]),
    ("G1c", &["read-committed"]),
    ("dirty-update", &["read-committed"]),
    ("incompatible-order", &["read-committed"]),
    ("future-read", &["read-committed"]),
    // Elle has one name for these, and rules out read uncommitted: versions "are supposed to be totally ordered". But
    // what an assumption says that does not hold is no reason to.
    ("cyclic-versions", &["read-committed"]),
    (
        "cyclic-versions-rmw",
        &["consistent-view", "repeatable-read"],
    ),
    (
        "cyclic-versions-process",
        &["strong-session-snapshot-isolation"],
    ),
    ("cyclic-versions-realtime", &["strong-snapshot-isolation"]),
    ("cyclic-versions-order", &["strong-session-serializable"]),
    ("internal", &["read-atomic"]),
    ("lost-update", &["cursor-stability", "update-atomic"]),
    ("G-single", &["consistent-view", "repeatable-read"]),
    ("G-nonadjacent", &["repeatable-read", "snapshot-isolation"]),
    ("G2-item", &["repeatable-read"]),
    ("G0-process", &["strong-session-read-uncommitted"]),
    ("G1c-process", &["strong-session-read-committed"]),
    ("G-single-process", &["strong-session-snapshot-isolation"]),
    (
        "G-nonadjacent-process",
        &["strong-session-snapshot-isolation"],
    ),
    ("G2-item-process", &["strong-session-serializable"]),
    ("G0-realtime", &["strong-read-uncommitted"]),
    ("G1c-realtime", &["strong-read-committed"]),
    ("G-single-realtime", &["strong-snapshot-isolation"]),
    ("G-nonadjacent-realtime", &["strong-snapshot-isolation"]),
    ("G2-item-realtime", &["strict-serializable"]),
    // What has no name here forbids nothing.
    ("G-cursor", &[]),
    ("G-monotonic", &[]),
    ("G-SIb", &[]),
    ("G2", &[]),
];

#[test]
fn names_are_those_of_elle() {
    for (name, friendly) in NAMES {
        let level = Level::by_name(name);
        assert!(level.is_some(), "{name}");
        assert_eq!(level, Level::by_name(friendly), "{name}");
        assert_eq!(level.map(Level::name), Some(friendly), "{name}");
    }
}

#[test]
fn anomalies_rule_out_what_they_do_in_elle() {
    for (anomaly, expected) in RULED_OUT {
        let out: Vec<_> = Level::all()
            .filter(|level| level.forbidden().contains(anomaly))
            .collect();
        let is_weakest = |level: &&Level| {
            !out.iter()
                .any(|other| *other != **level && level.implies(*other))
        };
        let weakest: BTreeSet<_> = out
            .iter()
            .filter(is_weakest)
            .map(|level| level.name())
            .collect();
        assert_eq!(weakest, expected.iter().copied().collect(), "{anomaly}");
        // What rules a model out rules out all stronger ones.
        for level in Level::all() {
            let stronger = out.iter().any(|&weaker| level.implies(weaker));
            assert_eq!(out.contains(&level), stronger, "{anomaly} {level:?}");
        }
    }
    let named: BTreeSet<_> = RULED_OUT.iter().map(|row| row.0).collect();
    let all = Level::StrictSerializable.forbidden();
    assert!(all.iter().all(|anomaly| named.contains(anomaly)), "{all:?}");
}
