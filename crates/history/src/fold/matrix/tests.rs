//! Every interleaving of two workers, two folds and three chunks; planted bugs must be found.

use super::*;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

const CHUNKS: u64 = 3;
const WINDOW: u64 = 2;
const RESIDENT_MAX: usize = 2;
/// Small enough that chunks far from a linear fold are picked.
const NEAR: u64 = 1;

/// Behaviour of a fold in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FoldPlan {
    order: Order,
    asap: bool,
    breaks_at: Option<u64>,
    panics_at: Option<u64>,
    /// May be cancelled at any moment.
    cancels: bool,
}

const fn plan(order: Order) -> FoldPlan {
    FoldPlan {
        order,
        asap: false,
        breaks_at: None,
        panics_at: None,
        cancels: false,
    }
}

const ORDERS: [Order; 3] = [Order::Linear, Order::Concurrent, Order::Associative];

/// The chunks of a part, in order.
type Part = Vec<u64>;
type Small = Matrix<usize, Part, u64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WorkerState {
    Idle,
    Decodes(ChunkClaim<usize, Part>),
    /// A chunk and the folds that still have to reduce it.
    Reduces(u64, VecDeque<FoldShare<usize, Part>>),
    /// Looks for pieces adjacent to the one that begins here.
    Looks(u64, VecDeque<FoldShare<usize, Part>>, FoldId, usize, u64),
    Combines(
        u64,
        VecDeque<FoldShare<usize, Part>>,
        FoldId,
        usize,
        Merge<Part>,
    ),
}

/// Description of a violated rule.
type Violation = String;

#[derive(Clone, Debug, Hash)]
struct MatrixModel {
    plans: [FoldPlan; 2],
    damaged: Option<u64>,
    matrix: Small,
    workers: [WorkerState; 2],
    ids: [Option<FoldId>; 2],
    given_up: [bool; 2],
    /// Chunks that the fold has seen.
    seen: [BTreeSet<u64>; 2],
    answers: [Option<FoldOutcome<Part, u64>>; 2],
    resident: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum WorldAction {
    Submit(usize),
    Cancel(usize),
    Work(usize),
}

impl MatrixModel {
    fn new(
        plans: [FoldPlan; 2],
        damaged: Option<u64>,
        live_max: usize,
        bug: Option<MatrixBug>,
    ) -> MatrixModel {
        let mut matrix = Small::with_bounds(live_max, WINDOW, NEAR);
        matrix.bug = bug;
        MatrixModel {
            plans,
            damaged,
            matrix,
            workers: [WorkerState::Idle, WorkerState::Idle],
            ids: [None; 2],
            given_up: [false; 2],
            seen: [BTreeSet::new(), BTreeSet::new()],
            answers: [None, None],
            resident: Vec::new(),
        }
    }

    fn actions(&self) -> Vec<WorldAction> {
        let mut actions = Vec::new();
        for fold in 0..2 {
            if self.ids[fold].is_none() {
                actions.push(WorldAction::Submit(fold));
            } else if self.plans[fold].cancels && !self.given_up[fold] {
                actions.push(WorldAction::Cancel(fold));
            }
        }
        for (place, worker) in self.workers.iter().enumerate() {
            let resident = self.resident.iter().rev().copied();
            if *worker != WorkerState::Idle || self.matrix.has_work(&resident) {
                actions.push(WorldAction::Work(place));
            }
        }
        actions
    }

    fn act(&mut self, action: WorldAction) -> Result<(), Violation> {
        match action {
            WorldAction::Submit(fold) => {
                let id = self.matrix.reserve();
                self.ids[fold] = Some(id);
                let FoldPlan { order, asap, .. } = self.plans[fold];
                let request = FoldRequest {
                    order,
                    asap,
                    chunk_count: CHUNKS,
                };
                let submitted = self.matrix.submit(id, fold, request, false);
                submitted.map_err(|_| "refused")?;
            }
            WorldAction::Cancel(fold) => {
                self.given_up[fold] = true;
                self.matrix.cancel(self.ids[fold].unwrap());
            }
            WorldAction::Work(place) => {
                let worker = mem::replace(&mut self.workers[place], WorkerState::Idle);
                self.workers[place] = self.work(worker)?;
            }
        }
        for (_, fold, outcome) in self.matrix.take_effects().ended {
            if self.answers[fold].replace(outcome).is_some() {
                return Err("answered twice".into());
            }
        }
        if self.matrix.parts_waiting_max as u64 > WINDOW {
            return Err("more parts wait than the window has".into());
        }
        Ok(())
    }

    fn work(&mut self, worker: WorkerState) -> Result<WorkerState, Violation> {
        match worker {
            WorkerState::Idle => {
                let resident = self.resident.iter().rev().copied();
                let claim = self.matrix.claim(&resident).ok_or("no work")?;
                if !claim.decodes {
                    return Ok(WorkerState::Reduces(claim.chunk, claim.shares.into()));
                }
                let is_other = |worker: &WorkerState| match worker {
                    WorkerState::Decodes(other) => other.chunk == claim.chunk,
                    _ => false,
                };
                if self.workers.iter().any(is_other) {
                    return Err("two workers decode a chunk at the same time".into());
                }
                Ok(WorkerState::Decodes(claim))
            }
            WorkerState::Decodes(claim) => {
                let chunk = claim.chunk;
                self.matrix.decoded(chunk);
                if self.damaged == Some(chunk) {
                    for share in claim.shares {
                        self.matrix.fail(share.id, chunk, chunk);
                    }
                    return Ok(WorkerState::Idle);
                }
                let has_room = self.resident.len() < RESIDENT_MAX;
                if has_room && self.matrix.is_wanted(chunk, RESIDENT_MAX as u64) {
                    self.resident.push(chunk);
                }
                Ok(WorkerState::Reduces(chunk, claim.shares.into()))
            }
            WorkerState::Reduces(chunk, mut shares) => {
                let Some(share) = shares.pop_front() else {
                    let matrix = &self.matrix;
                    let is_wanted = |chunk: &u64| matrix.is_wanted(*chunk, RESIDENT_MAX as u64);
                    self.resident.retain(is_wanted);
                    return Ok(WorkerState::Idle);
                };
                self.reduce(chunk, &share)?;
                Ok(WorkerState::Looks(
                    chunk,
                    shares,
                    share.id,
                    share.job,
                    share.start,
                ))
            }
            WorkerState::Looks(chunk, shares, id, fold, start) => {
                Ok(match self.matrix.merge(id, start) {
                    Some(merge) => WorkerState::Combines(chunk, shares, id, fold, merge),
                    None => WorkerState::Reduces(chunk, shares),
                })
            }
            WorkerState::Combines(chunk, shares, id, fold, mut merge) => {
                let next = merge.earlier.last().map(|last| last + 1);
                if next != merge.later.first().copied() {
                    return Err(format!(
                        "combines {:?} and {:?}",
                        merge.earlier, merge.later
                    ));
                }
                merge.earlier.append(&mut merge.later);
                let range = (merge.start, merge.end);
                self.matrix.put(id, range, merge.earlier, false);
                Ok(WorkerState::Looks(chunk, shares, id, fold, range.0))
            }
        }
    }

    fn reduce(&mut self, chunk: u64, share: &FoldShare<usize, Part>) -> Result<(), Violation> {
        let plan = self.plans[share.job];
        if !self.seen[share.job].insert(chunk) {
            return Err(format!("fold {} sees chunk {chunk} twice", share.job));
        }
        if plan.panics_at == Some(chunk) {
            self.matrix.fail(share.id, chunk, chunk);
            return Ok(());
        }
        let mut part = share.accumulator.clone().unwrap_or_default();
        if plan.order == Order::Linear && part.len() as u64 != chunk {
            return Err(format!("linear, and chunk {chunk} comes after {part:?}"));
        }
        part.push(chunk);
        let breaks = plan.breaks_at == Some(chunk);
        self.matrix
            .put(share.id, (share.start, chunk + 1), part, breaks);
        Ok(())
    }

    /// Checks a final state: every fold has the outcome that the rules require.
    fn finished(&self) -> Result<(), Violation> {
        for (fold, plan) in self.plans.iter().enumerate() {
            let Some(answer) = &self.answers[fold] else {
                return Err(format!("fold {fold} has no answer"));
            };
            if *answer == FoldOutcome::Cancelled && self.given_up[fold] {
                continue;
            }
            let broken =
                |chunk: &u64| self.damaged == Some(*chunk) || plan.panics_at == Some(*chunk);
            let end = plan.breaks_at.map_or(CHUNKS, |chunk| chunk + 1);
            let expected = match (0..end).find(broken) {
                Some(chunk) => FoldOutcome::Failed(chunk),
                None => FoldOutcome::Done(Some((0..end).collect())),
            };
            if *answer != expected {
                return Err(format!("fold {fold}: {answer:?} instead of {expected:?}"));
            }
        }
        if !self.matrix.rows.is_empty() || !self.matrix.decoding.is_empty() {
            return Err("a row or a decode is left".into());
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Explores all interleavings; the number of states, or the first violation and the actions that lead to it.
fn explore(world: MatrixModel) -> Result<usize, (Violation, Vec<WorldAction>)> {
    let mut known = BTreeSet::new();
    known.insert(world.fingerprint());
    let mut path = Vec::new();
    let mut stack = vec![(world, 0, None)];
    while let Some((world, depth, action)) = stack.pop() {
        path.truncate(depth);
        path.extend(action);
        let actions = world.actions();
        if actions
            .iter()
            .all(|action| matches!(action, WorldAction::Cancel(_)))
        {
            world.finished().map_err(|wrong| (wrong, path.clone()))?;
        }
        for action in actions {
            let mut next = world.clone();
            let acted = next.act(action);
            acted.map_err(|wrong| (wrong, [&*path, &[action]].concat()))?;
            if known.insert(next.fingerprint()) {
                stack.push((next, path.len(), Some(action)));
            }
        }
    }
    Ok(known.len())
}

/// Worlds with two folds each: all pairs of orders, with the behaviours that can interfere.
fn worlds(bug: Option<MatrixBug>) -> Vec<MatrixModel> {
    let mut worlds = Vec::new();
    for (row, first) in ORDERS.into_iter().enumerate() {
        for (column, second) in ORDERS.into_iter().enumerate() {
            let (first, second) = (plan(first), plan(second));
            let breaks = FoldPlan {
                breaks_at: Some(1),
                ..first
            };
            let panics = FoldPlan {
                panics_at: Some(1),
                ..first
            };
            let both = FoldPlan {
                breaks_at: Some(0),
                panics_at: Some(2),
                asap: true,
                ..first
            };
            let cancels = FoldPlan {
                cancels: true,
                ..first
            };
            let world =
                |first, damaged, live| MatrixModel::new([first, second], damaged, live, bug);
            worlds.push(world(both, Some(1), 2));
            worlds.push(world(first, Some(1), 1));
            // These have more states: each with a third of the pairs, so that all together take seconds.
            match (row + column) % 3 {
                0 => worlds.push(world(breaks, Some(2), 2)),
                1 => worlds.push(world(panics, Some(2), 2)),
                _ => worlds.push(world(cancels, None, 1)),
            }
            if row == column || row + 1 == column {
                worlds.push(world(first, None, 2));
            }
        }
    }
    worlds
}

#[test]
fn every_interleaving_keeps_the_rules() {
    let mut states = 0;
    for world in worlds(None) {
        let plans = (world.plans, world.damaged);
        match explore(world) {
            Ok(count) => states += count,
            Err((wrong, path)) => panic!("{wrong}: {plans:?}: {path:?}"),
        }
    }
    assert!(states > 50_000, "{states} states");
}

#[test]
fn planted_bugs_are_found() {
    for (bug, expected) in [
        (MatrixBug::ClaimNotCleared, ""),
        (MatrixBug::CombinesOverGaps, "combines"),
        (MatrixBug::PlaceReused, ""),
        (MatrixBug::BreakForgotten, "instead of"),
        (MatrixBug::LastFailureWins, "Failed"),
        (MatrixBug::DecodesTwice, "at the same time"),
    ] {
        let found = worlds(Some(bug))
            .into_iter()
            .find_map(|world| explore(world).err());
        let Some((wrong, _)) = found else {
            panic!("{bug:?} is not found");
        };
        assert!(wrong.contains(expected), "{bug:?}: {wrong}");
    }
}

#[test]
fn asap_folds_pass_the_queue() {
    let mut matrix = Small::with_bounds(1, WINDOW, NEAR);
    let request = |asap| FoldRequest {
        order: Order::Linear,
        asap,
        chunk_count: 1,
    };
    for (job, asap) in [false, false, true, true].into_iter().enumerate() {
        let id = matrix.reserve();
        matrix.submit(id, job, request(asap), false).unwrap();
    }
    let mut served = Vec::new();
    while let Some(claim) = matrix.claim(&std::iter::empty()) {
        matrix.decoded(claim.chunk);
        for share in claim.shares {
            served.push(share.job);
            matrix.put(share.id, (0, 1), Vec::new(), false);
        }
    }
    assert_eq!(served, [0, 2, 3, 1]);
}

#[test]
fn the_queue_is_bounded() {
    let mut matrix = Small::with_bounds(1, WINDOW, NEAR);
    let request = FoldRequest {
        order: Order::Linear,
        asap: false,
        chunk_count: 1,
    };
    let mut submit = |at_once| {
        let id = matrix.reserve();
        matrix.submit(id, 7, request, at_once)
    };
    for _ in 0..=FOLDS_QUEUED_MAX {
        submit(false).unwrap();
    }
    assert_eq!(submit(false), Err(7));
    assert_eq!(submit(true), Ok(()));
}

#[test]
fn the_oldest_fold_ends_though_newer_ones_keep_coming() {
    let mut matrix = Small::with_bounds(64, WINDOW, NEAR);
    let request = FoldRequest {
        order: Order::Linear,
        asap: false,
        chunk_count: 20,
    };
    let mut claims = 0;
    let oldest = matrix.reserve();
    matrix.submit(oldest, 0, request, false).unwrap();
    while matrix.rows.contains_key(&oldest) {
        // One more fold with every claim: without a turn for the oldest, the newer ones were always served first.
        let id = matrix.reserve();
        matrix.submit(id, 1, request, true).unwrap();
        let claim = matrix.claim(&std::iter::empty()).unwrap();
        matrix.decoded(claim.chunk);
        for share in claim.shares {
            let range = (0, claim.chunk + 1);
            matrix.put(
                share.id,
                range,
                share.accumulator.unwrap_or_default(),
                false,
            );
        }
        claims += 1;
        assert!(claims <= 20 * OLDEST_TURN);
    }
}

#[test]
fn others_begin_at_the_end_that_a_linear_fold_reaches_last() {
    let mut matrix = Small::with_bounds(9, 4, 2);
    let mut submit = |order, chunk_count| {
        let request = FoldRequest {
            order,
            asap: false,
            chunk_count,
        };
        let id = matrix.reserve();
        matrix.submit(id, 0, request, false).unwrap();
    };
    submit(Order::Linear, 9);
    submit(Order::Concurrent, 9);
    submit(Order::Associative, 8);
    // No part is put back: the linear fold stays at its first chunk, and the window does not move.
    let claimed = std::iter::from_fn(|| matrix.claim(&std::iter::empty()));
    let claimed: Vec<_> = claimed
        .map(|claim| (claim.chunk, claim.shares.len()))
        .collect();
    let in_window = [(0, 3), (1, 2), (3, 2), (2, 2)];
    let after = [(7, 1), (6, 1), (5, 1), (4, 1)];
    assert_eq!(claimed, [in_window, after].concat());
}

/// Duration of each action on a chunk, in microseconds.
#[derive(Clone, Copy)]
struct Costs {
    decoding: u64,
    linear: u64,
    other: u64,
}

/// Workers in simulated time; the one that is done first takes the next step.
struct Pass {
    matrix: Small,
    costs: Costs,
    orders: Vec<Order>,
    /// When each worker is done, and its state.
    workers: Vec<(u64, WorkerState)>,
    resident: Vec<u64>,
    resident_max: usize,
    decodes: u64,
    now: u64,
}

impl Pass {
    fn new(threads: usize, costs: Costs) -> Pass {
        let resident_max = 4 * threads + 16;
        Pass {
            matrix: Matrix::new((resident_max - threads) as u64),
            costs,
            orders: Vec::new(),
            workers: vec![(0, WorkerState::Idle); threads],
            resident: Vec::new(),
            resident_max,
            decodes: 0,
            now: 0,
        }
    }

    fn submit(&mut self, order: Order) {
        let request = FoldRequest {
            order,
            asap: false,
            chunk_count: PASS_CHUNKS,
        };
        let id = self.matrix.reserve();
        let submitted = self.matrix.submit(id, self.orders.len(), request, false);
        submitted.unwrap();
        self.orders.push(order);
    }

    /// One step of one worker; `false` when no worker has anything to do.
    fn step(&mut self) -> bool {
        let has_work = self.matrix.has_work(&self.resident.iter().rev().copied());
        let workers = self.workers.iter().enumerate();
        let busy = workers.filter(|(_, (_, worker))| has_work || *worker != WorkerState::Idle);
        let Some((place, (time, _))) = busy.min_by_key(|(_, (time, _))| *time) else {
            return false;
        };
        // An idle worker may have waited for another one.
        self.now = self.now.max(*time);
        let worker = mem::replace(&mut self.workers[place].1, WorkerState::Idle);
        let (duration, worker) = self.work(worker);
        self.workers[place] = (self.now + duration, worker);
        true
    }

    fn work(&mut self, worker: WorkerState) -> (u64, WorkerState) {
        let more = self.resident_max as u64;
        match worker {
            WorkerState::Idle => {
                let resident = self.resident.iter().rev().copied();
                let claim = self.matrix.claim(&resident).unwrap();
                if claim.decodes {
                    return (self.costs.decoding, WorkerState::Decodes(claim));
                }
                (0, WorkerState::Reduces(claim.chunk, claim.shares.into()))
            }
            WorkerState::Decodes(claim) => {
                self.decodes += 1;
                self.matrix.decoded(claim.chunk);
                let has_room = self.resident.len() < self.resident_max;
                if has_room && self.matrix.is_wanted(claim.chunk, more) {
                    self.resident.push(claim.chunk);
                }
                (0, WorkerState::Reduces(claim.chunk, claim.shares.into()))
            }
            WorkerState::Reduces(chunk, mut shares) => {
                let Some(FoldShare { id, job, start, .. }) = shares.pop_front() else {
                    let matrix = &self.matrix;
                    self.resident.retain(|&chunk| matrix.is_wanted(chunk, more));
                    return (0, WorkerState::Idle);
                };
                let duration = match self.orders[job] {
                    Order::Linear => self.costs.linear,
                    Order::Concurrent | Order::Associative => self.costs.other,
                };
                (duration, WorkerState::Looks(chunk, shares, id, job, start))
            }
            WorkerState::Looks(chunk, shares, id, _, start) => {
                let mut range = (start, chunk + 1);
                self.matrix.put(id, range, Vec::new(), false);
                while let Some(merge) = self.matrix.merge(id, range.0) {
                    range = (merge.start, merge.end);
                    self.matrix.put(id, range, Vec::new(), false);
                }
                (0, WorkerState::Reduces(chunk, shares))
            }
            WorkerState::Combines(..) => unreachable!("parts are combined at once"),
        }
    }
}

/// Chunks of three million operations.
const PASS_CHUNKS: u64 = 184;

/// Decodes per chunk, with folds submitted one eleventh of a pass after one another, or all together.
fn decodes(threads: usize, costs: Costs, orders: &str, is_staggered: bool) -> f64 {
    let mut pass = Pass::new(threads, costs);
    for (place, letter) in (1..).zip(orders.chars()) {
        pass.submit(match letter {
            'l' => Order::Linear,
            'c' => Order::Concurrent,
            _ => Order::Associative,
        });
        let is_last = place == orders.len() as u64;
        while is_staggered && !is_last && pass.decodes < place * PASS_CHUNKS / 11 {
            assert!(pass.step(), "too early to be done");
        }
    }
    while pass.step() {}
    assert!(pass.matrix.rows.is_empty());
    pass.decodes as f64 / PASS_CHUNKS as f64
}

#[test]
fn few_chunks_are_decoded_more_than_twice() {
    // As measured of the ten folds of the bench, whose order is the first.
    let costs = Costs {
        decoding: 200,
        linear: 850,
        other: 100,
    };
    for orders in [
        "aacaacccal",
        "laacaaccca",
        "aacalaccca",
        "aaaaaaaaal",
        "cccccccccl",
    ] {
        for threads in [1, 2] {
            let together = decodes(threads, costs, orders, false);
            assert!(together < 1.001, "{orders}, {threads} threads: {together}");
            let staggered = decodes(threads, costs, orders, true);
            assert!(staggered < 2.05, "{orders}, {threads} threads: {staggered}");
        }
    }
    // A linear fold slower than all others together inevitably ends alone.
    let costs = Costs {
        linear: 3_000,
        ..costs
    };
    let together = decodes(2, costs, "aacaacccal", false);
    assert!(together < 1.75, "{together}");
}
