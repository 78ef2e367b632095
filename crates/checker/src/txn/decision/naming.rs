//! The name of the anomaly that a few transactions show.

use super::facts::Facts;
use super::judge::{Decision, Effort, decide};
use super::promise::{Axiom, Follows, Promise};
use crate::Anomaly;
use crate::txn::anomaly::{Class, Cyclic, LOST_UPDATE, NO_ORDER, Variant};
use crate::txn::transactions::NONE;

/// Steps of the decision of one level.
const STEPS_MAX: u64 = 2_000_000;
/// Transactions of the largest core that is named: pairs of them are looked at.
const NAMED_MAX: u32 = 4_096;

/// The anomaly that a core shows, whatever the order of its versions: that of the weakest level which no order of the core
/// keeps. Each level is decided by itself, since every single order of versions may fail with a cycle of another class.
///
/// Orders besides the data (sessions, real time) are named only when the data alone can be explained. No cycle without
/// anti-dependencies is there when reads have a topological order (PL-2), none with fewer than two when parallel snapshot
/// isolation holds (PL-2+; Cerone and Gotsman, "Analysing Snapshot Isolation", 2016), none but with two adjacent ones when
/// snapshot isolation holds. [`NO_ORDER`] when a decision is stopped at its bound, and of a core
/// that is too large.
pub(super) fn anomaly(core: &Facts, promise: Promise) -> Anomaly {
    if core.len() > NAMED_MAX {
        return NO_ORDER;
    }
    if promise.axiom != Axiom::Prefix && has_lost_update(core) {
        return LOST_UPDATE;
    }
    let variants = [
        (Variant::Plain, Follows::Nothing),
        (Variant::Process, Follows::Sessions),
        (Variant::Realtime, Follows::Time),
    ];
    for (variant, follows) in variants {
        if follows > promise.follows {
            break;
        }
        if let Some(class) = class(core, promise.axiom, follows) {
            return Cyclic { variant, class }.name();
        }
    }
    NO_ORDER
}

/// The class of the weakest level that fails; `None` when all hold, up to the one that was asked for.
fn class(core: &Facts, asked: Axiom, follows: Follows) -> Option<Class> {
    if has_read_cycle(core, follows) {
        return Some(Class::G1c);
    }
    let levels = [
        (Axiom::Parallel, Class::GSingle),
        (Axiom::Snapshot, Class::GNonadjacent),
        (Axiom::Serializable, Class::G2Item),
    ];
    for (axiom, class) in levels {
        if fails(core, axiom, follows) {
            return Some(class);
        }
        // Whatever breaks prefix consistency breaks snapshot isolation.
        if axiom == asked || axiom == Axiom::Snapshot && asked == Axiom::Prefix {
            break;
        }
    }
    None
}

fn fails(core: &Facts, axiom: Axiom, follows: Follows) -> bool {
    let promise = Promise { axiom, follows };
    let decision = decide(core, promise, STEPS_MAX, &mut Effort::default());
    matches!(decision, Decision::Fails(_))
}

/// Did two transactions read one version of a key and then write the key?
fn has_lost_update(core: &Facts) -> bool {
    let key = |version: u32| core.version_keys[version as usize];
    let mut updated = std::collections::BTreeSet::new();
    (0..core.len()).any(|number| {
        let written = core.writes.of(number);
        let reads = core.reads.of(number).iter();
        let mut updates = reads.filter(|&&read| written.iter().any(|&it| key(it) == key(read)));
        updates.any(|&version| !updated.insert(version))
    })
}

/// Is there a cycle of reads alone, with the order of sessions or real time where that is asked for?
fn has_read_cycle(core: &Facts, follows: Follows) -> bool {
    let count = core.len() as usize;
    let before = (0..count).map(|number| {
        let reads = core.reads.of(number as u32).iter();
        let writers = reads.map(|&version| core.writers[version as usize]);
        let writers = writers.filter(|&writer| writer != NONE && writer != number as u32);
        let ordered = (0..count).filter(|&other| {
            let is_session = other < number
                && core.sessions[other] == core.sessions[number]
                && core.completed[other];
            let (ended, begun) = (core.times[other].1, core.times[number].0);
            let is_time = ended != NONE && begun != NONE && ended < begun;
            follows >= Follows::Sessions && is_session || follows == Follows::Time && is_time
        });
        let writers = writers.map(|writer| writer as usize);
        writers.chain(ordered).collect()
    });
    let before: Vec<Vec<usize>> = before.collect();
    // Transactions are placed as soon as all is that comes before them.
    let mut is_placed = vec![false; count];
    loop {
        let free =
            |number: &usize| !is_placed[*number] && before[*number].iter().all(|&it| is_placed[it]);
        match (0..count).find(free) {
            Some(number) => is_placed[number] = true,
            None => return is_placed.contains(&false),
        }
    }
}
