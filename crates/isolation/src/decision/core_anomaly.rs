//! The name of the anomaly that an unsatisfiable core shows.

use super::constraints::Constraints;
use super::guess_and_search::{OrderDecision, SearchEffort, decide};
use super::order_model::{Axiom, OrderModel, RespectedOrder};
use seatrial_checker::Anomaly;
use seatrial_cycles::anomaly::{CycleClass, CycleKind, CycleVariant, LOST_UPDATE, NO_ORDER};
use seatrial_cycles::{NONE, Txn};

/// Steps for the decision of one level.
const STEPS_MAX: u64 = 2_000_000;
/// Largest core that is named, in transactions: pairs of them are looked at.
const NAMED_MAX: u32 = 4_096;

/// The anomaly that a core shows whatever its version order: that of the weakest level which no order of the core keeps.
/// Each level is decided by itself, since each single version order may fail with a cycle of another class.
///
/// Orders besides dependencies (sessions, real time) are named only if the dependencies alone can be explained. There is no
/// cycle without anti-dependencies if reads have a topological order (PL-2), none with fewer than two if parallel snapshot
/// isolation holds (PL-2+; Cerone and Gotsman, "Analysing Snapshot Isolation", 2016), and only such with two adjacent ones
/// if snapshot isolation holds. [`NO_ORDER`] if a decision reaches its bound, and for a core that is too large.
pub(super) fn anomaly(core: &Constraints, model: OrderModel) -> Anomaly {
    if core.len() > NAMED_MAX {
        return NO_ORDER;
    }
    if model.axiom != Axiom::Prefix && has_lost_update(core) {
        return LOST_UPDATE;
    }
    let variants = [
        (CycleVariant::Plain, RespectedOrder::Nothing),
        (CycleVariant::Process, RespectedOrder::Sessions),
        (CycleVariant::Realtime, RespectedOrder::Time),
    ];
    for (variant, follows) in variants {
        if follows > model.follows {
            break;
        }
        if let Some(class) = class(core, model.axiom, follows) {
            return CycleKind { variant, class }.name();
        }
    }
    NO_ORDER
}

/// The class of the weakest level that fails; `None` if all levels up to the given one hold.
fn class(core: &Constraints, asked: Axiom, follows: RespectedOrder) -> Option<CycleClass> {
    if has_read_cycle(core, follows) {
        return Some(CycleClass::G1c);
    }
    let levels = [
        (Axiom::Parallel, CycleClass::GSingle),
        (Axiom::Snapshot, CycleClass::GNonadjacent),
        (Axiom::Serializable, CycleClass::G2Item),
    ];
    for (axiom, class) in levels {
        if fails(core, axiom, follows) {
            return Some(class);
        }
        // A violation of prefix consistency violates snapshot isolation.
        if axiom == asked || axiom == Axiom::Snapshot && asked == Axiom::Prefix {
            break;
        }
    }
    None
}

fn fails(core: &Constraints, axiom: Axiom, follows: RespectedOrder) -> bool {
    let model = OrderModel { axiom, follows };
    let decision = decide(core, model, STEPS_MAX, &mut SearchEffort::default());
    matches!(decision, OrderDecision::Fails(_))
}

/// Did two transactions read the same version of a key and then write the key?
fn has_lost_update(core: &Constraints) -> bool {
    let key = |version: u32| core.version_keys[version as usize];
    let mut updated = std::collections::BTreeSet::new();
    (0..core.len()).any(|number| {
        let written = core.writes.row(number);
        let reads = core.reads.row(number).iter();
        let mut updates = reads.filter(|&&read| written.iter().any(|&it| key(it) == key(read)));
        updates.any(|&version| !updated.insert(version))
    })
}

/// Is there a cycle of reads alone, with the order of sessions or real time if asked for?
fn has_read_cycle(core: &Constraints, follows: RespectedOrder) -> bool {
    let count = core.len() as usize;
    let before = (0..count).map(|number| {
        let reads = core.reads.row(number as u32).iter();
        let writers = reads.filter_map(|&version| core.writer(version));
        let writers = writers
            .map(Txn::get)
            .filter(|&writer| writer != number as u32);
        let ordered = (0..count).filter(|&other| {
            let is_session = other < number
                && core.sessions[other] == core.sessions[number]
                && core.completed[other];
            let (ended, begun) = (core.times[other].1, core.times[number].0);
            let is_time = ended != NONE && begun != NONE && ended < begun;
            follows >= RespectedOrder::Sessions && is_session
                || follows == RespectedOrder::Time && is_time
        });
        let writers = writers.map(|writer| writer as usize);
        writers.chain(ordered).collect()
    });
    let before: Vec<Vec<usize>> = before.collect();
    // Places transactions whose predecessors are placed; quadratic, but cores are small.
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
