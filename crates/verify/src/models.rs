//! The anomalies that each model forbids, a second time: no certificate can prove more than its model says.

/// The anomalies that a model forbids, besides those of the weaker models in [`IMPLIED`].
const FORBIDDEN: [(&str, &[&str]); 18] = [
    (
        "read-uncommitted",
        &["G0", "duplicate-elements", "garbage-read"],
    ),
    (
        "read-committed",
        &[
            "G1a",
            "G1b",
            "G1c",
            "dirty-update",
            "incompatible-order",
            "future-read",
            "cyclic-versions",
        ],
    ),
    ("cursor-stability", &["lost-update"]),
    ("monotonic-view", &[]),
    ("monotonic-snapshot-read", &[]),
    ("monotonic-atomic-view", &[]),
    ("consistent-view", &["G-single", "cyclic-versions-rmw"]),
    ("forward-consistent-view", &[]),
    ("update-serializable", &[]),
    ("read-atomic", &["internal"]),
    ("update-atomic", &["lost-update"]),
    ("causal-cerone", &[]),
    ("prefix", &[]),
    ("parallel-snapshot-isolation", &[]),
    ("snapshot-isolation", &["G-nonadjacent"]),
    (
        "repeatable-read",
        &[
            "G-single",
            "G-nonadjacent",
            "G2-item",
            "cyclic-versions-rmw",
        ],
    ),
    ("serializable", &[]),
    // Reads that are wrong at any level that is decided from axioms.
    (
        AXIOMATIC,
        &["garbage-read", "G1a", "G1b", "future-read", "internal"],
    ),
];

/// A model and the weaker models that it directly implies.
const IMPLIED: [(&str, &[&str]); 16] = [
    ("read-committed", &["read-uncommitted"]),
    ("cursor-stability", &["read-committed"]),
    ("monotonic-view", &["read-committed"]),
    ("monotonic-snapshot-read", &["read-committed"]),
    ("monotonic-atomic-view", &["read-committed"]),
    ("consistent-view", &["cursor-stability"]),
    ("forward-consistent-view", &["consistent-view"]),
    ("update-serializable", &["consistent-view"]),
    ("read-atomic", &["read-committed"]),
    ("update-atomic", &["read-atomic"]),
    ("causal-cerone", &["read-atomic"]),
    ("prefix", &["read-atomic"]),
    (
        "parallel-snapshot-isolation",
        &["consistent-view", "update-atomic"],
    ),
    ("snapshot-isolation", &["parallel-snapshot-isolation"]),
    ("repeatable-read", &["cursor-stability"]),
    ("serializable", &["snapshot-isolation", "repeatable-read"]),
];

const AXIOMATIC: &str = "axiomatic";

/// The anomalies of weak models that are decided from axioms; the kinds of their edges do not matter.
const MISSED: [(&str, &str); 8] = [
    ("axiomatic-read-committed", "non-monotonic-read"),
    ("axiomatic-read-atomic", "fractured-read"),
    ("causal", "causal-violation"),
    ("read-your-writes", "missed-own-write"),
    ("monotonic-reads", "backward-read"),
    ("monotonic-writes", "reordered-writes"),
    ("writes-follow-reads", "effect-without-cause"),
    ("pram", "session-order-violation"),
];

/// The order that a model asks for besides dependencies: 0 none, 1 that of processes, 2 real time as well.
pub(super) fn order(model: &str) -> (u8, &str) {
    if model == "strict-serializable" {
        return (2, "serializable");
    }
    if let Some(rest) = model.strip_prefix("strong-session-") {
        return (1, rest);
    }
    match model.strip_prefix("strong-") {
        Some(rest) => (2, rest),
        None => (0, model),
    }
}

/// Does this model forbid this anomaly?
pub fn forbids(model: &str, anomaly: &str) -> bool {
    if let Some((_, missed)) = MISSED.iter().find(|row| row.0 == model) {
        return [*missed, "causality-cycle"].contains(&anomaly) || is_direct(AXIOMATIC, anomaly);
    }
    let (order, base) = order(model);
    let (needed, anomaly) = if anomaly == "cyclic-versions-order" {
        (1, "G2-item")
    } else if let Some(name) = anomaly.strip_suffix("-process") {
        (1, name)
    } else if let Some(name) = anomaly.strip_suffix("-realtime") {
        (2, name)
    } else {
        (0, anomaly)
    };
    // A cycle in the version order of one key that needs process order or time is as bad as one anti-dependency.
    let anomaly = match anomaly {
        "cyclic-versions" if needed > 0 => "G-single",
        other => other,
    };
    needed <= order && is_forbidden(base, anomaly)
}

/// The variant of serializability with the same process order or real time as this model, which implies the model; `None`
/// for models that this verifier does not know by their anomalies.
pub fn serializability(model: &str) -> Option<&'static str> {
    let (order, base) = order(model);
    let is_known = base != AXIOMATIC && FORBIDDEN.iter().any(|row| row.0 == base);
    let names = [
        "serializable",
        "strong-session-serializable",
        "strict-serializable",
    ];
    is_known.then_some(names[usize::from(order)])
}

/// Models of registers and the models whose orders prove them: of snapshots or visibility, and of commits.
const ORDERED: [(&str, &str, &str); 9] = [
    // Without predicates, repeatable read is serializability.
    ("repeatable-read", "serializable", ""),
    ("consistent-view", "parallel-snapshot-isolation", ""),
    ("cursor-stability", "parallel-snapshot-isolation", ""),
    ("monotonic-view", "parallel-snapshot-isolation", ""),
    ("update-atomic", "parallel-snapshot-isolation", ""),
    ("forward-consistent-view", "snapshot-isolation", ""),
    ("monotonic-snapshot-read", "snapshot-isolation", ""),
    ("read-atomic", "prefix", "axiomatic-read-atomic"),
    ("monotonic-atomic-view", "prefix", "axiomatic-read-atomic"),
];

/// The model whose order of snapshots or visibility proves this one.
pub fn snapshots(model: &str) -> &str {
    match ORDERED.iter().find(|row| row.0 == model) {
        _ if model == "causal-cerone" => "prefix",
        Some(row) => row.1,
        None => model,
    }
}

/// The weak model whose order of commits proves this one.
pub fn commits(model: &str) -> &str {
    match ORDERED.iter().find(|row| row.0 == model) {
        _ if model == "causal-cerone" => "causal",
        Some(row) if !row.2.is_empty() => row.2,
        _ => model,
    }
}

/// The model whose core refutes this one: it says the same about registers (for consistent view, Cerone and Gotsman,
/// "Analysing Snapshot Isolation", 2016).
pub fn cores(model: &str) -> &str {
    match model {
        "repeatable-read" | "consistent-view" => snapshots(model),
        other => other,
    }
}

/// Is this the name of a model of transactions on lists?
pub fn is_known(model: &str) -> bool {
    let (order, base) = order(model);
    let has_orders = [
        "read-uncommitted",
        "read-committed",
        "snapshot-isolation",
        "serializable",
    ];
    let is_base = || base == "read-uncommitted" || IMPLIED.iter().any(|row| row.0 == base);
    match order {
        0 => is_base(),
        // The variant with real time has a name of its own.
        2 if base == "serializable" => model == "strict-serializable",
        _ => has_orders.contains(&base),
    }
}

fn is_direct(model: &str, anomaly: &str) -> bool {
    let mut rows = FORBIDDEN.iter();
    rows.any(|(name, forbidden)| *name == model && forbidden.contains(&anomaly))
}

fn is_forbidden(model: &str, anomaly: &str) -> bool {
    let weaker = IMPLIED.iter().filter(|row| row.0 == model);
    let mut weaker = weaker.flat_map(|row| row.1);
    is_direct(model, anomaly) || weaker.any(|weaker| is_forbidden(weaker, anomaly))
}

/// Does this model ask that every value read was committed?
pub(super) fn is_committed(model: &str) -> bool {
    is_forbidden(order(model).1, "G1a")
}

/// The name of a cycle with these kinds of edges.
pub(super) fn cycle_name(kinds: &[&str]) -> String {
    let is_anti = |kind: &str| kind == "rw";
    let anti = kinds.iter().filter(|kind| is_anti(kind)).count();
    let last = kinds.last().copied().unwrap_or_default();
    let mut pairs = std::iter::once(&last).chain(kinds).zip(kinds);
    let class = match anti {
        0 if kinds.contains(&"wr") => "G1c",
        0 => "G0",
        1 => "G-single",
        _ if pairs.any(|(a, b)| is_anti(a) && is_anti(b)) => "G2-item",
        _ => "G-nonadjacent",
    };
    let variant = if kinds.contains(&"realtime") {
        "-realtime"
    } else if kinds.contains(&"process") {
        "-process"
    } else {
        ""
    };
    format!("{class}{variant}")
}
