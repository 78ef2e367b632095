//! Histories that are checked piece by piece, with what is needless dropped, against the same histories as a whole.

use super::random_history::{RandomHistoryShape, random_history_of};
use super::{Collection, histories, monitor};
use crate::{
    CollectionAction, CollectionOperation, NEVER, Rejection, retained_in_multiset,
    retained_in_queue,
};
use seatrial_machine::Rng;

/// What is known of a history after an instant, as far as it was not dropped.
struct Beginning<'a> {
    collection: Collection,
    history: &'a [CollectionOperation],
    /// By operation.
    is_dropped: Vec<bool>,
    most_held: usize,
}

impl Beginning<'_> {
    /// The operations that were called by `instant`, with those that return later pending, and their numbers.
    fn known(&self, instant: u32) -> (Vec<CollectionOperation>, Vec<usize>) {
        let mut numbers: Vec<usize> = (0..self.history.len()).collect();
        numbers.retain(|&number| {
            let one = &self.history[number];
            // What is looked at is known when it returns.
            let is_open_peek = one.action == CollectionAction::Peek && one.ret > instant;
            !self.is_dropped[number] && one.call <= instant && !is_open_peek
        });
        let known = numbers.iter().map(|&one| {
            let operation = self.history[one];
            if operation.ret <= instant {
                return operation;
            }
            let action = match operation.action {
                CollectionAction::Remove | CollectionAction::Empty => {
                    CollectionAction::RemoveUnknown
                }
                action => action,
            };
            CollectionOperation {
                action,
                ret: NEVER,
                ..operation
            }
        });
        (known.collect(), numbers)
    }

    /// Checks what is known at `instant`, and drops what is needless.
    fn check(&mut self, instant: u32) -> Result<(), Rejection> {
        let (known, numbers) = self.known(instant);
        self.most_held = self.most_held.max(known.len());
        monitor(self.collection, &known)?;
        let open = self
            .history
            .iter()
            .filter(|one| one.call <= instant && one.ret > instant);
        let open = open.filter(|one| one.ret != NEVER).map(|one| one.call);
        let horizon = open.min().unwrap_or(instant + 1);
        let marks = match self.collection {
            Collection::Queue => retained_in_queue(&known, horizon),
            _ => retained_in_multiset(&known, horizon),
        };
        for (number, is_kept) in numbers.into_iter().zip(marks) {
            self.is_dropped[number] = !is_kept;
        }
        Ok(())
    }
}

/// The answer piece by piece, and the most operations held.
fn piece_by_piece(
    collection: Collection,
    history: &[CollectionOperation],
    chance: f64,
    rng: &mut Rng,
) -> (Result<(), Rejection>, usize) {
    let mut beginning = Beginning {
        collection,
        history,
        is_dropped: vec![false; history.len()],
        most_held: 0,
    };
    let positions = history.iter().flat_map(|one| [one.call, one.ret]);
    let mut positions: Vec<u32> = positions.filter(|&one| one != NEVER).collect();
    positions.sort_unstable();
    positions.dedup();
    let last = positions.last().copied().unwrap_or(0);
    for instant in positions {
        if (rng.chance(chance) || instant == last)
            && let Err(rejection) = beginning.check(instant)
        {
            return (Err(rejection), beginning.most_held);
        }
    }
    (Ok(()), beginning.most_held)
}

fn agrees_piece_by_piece(collection: Collection) {
    let (count, mut accepted, mut rested) = (histories(), 0, 0);
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed ^ 0x9e7a);
        let mut shape = RandomHistoryShape::random(&mut rng);
        if rng.chance(0.3) {
            shape.disturbances = rng.below(2);
        }
        shape.count += rng.below(8) as u32;
        let history = random_history_of(collection, &shape, &mut rng);
        let whole = monitor(collection, &history);
        let (pieces, _) = piece_by_piece(collection, &history, 0.5, &mut rng);
        assert_eq!(
            pieces.is_ok(),
            whole.is_ok(),
            "{collection:?} {seed}: {pieces:?}, as a whole {whole:?}: {history:#?}"
        );
        accepted += u64::from(whole.is_ok());
        let known = history
            .iter()
            .filter(|one| one.action != CollectionAction::RemoveUnknown);
        let known: Vec<_> = known.copied().collect();
        rested += u64::from(whole.is_ok() && monitor(collection, &known).is_err());
    }
    println!(
        "{collection:?}: {accepted} of {count} are linearizable, {rested} rest on pending removals"
    );
    assert!(
        accepted > count / 10 && accepted < count / 10 * 9,
        "{accepted} of {count}"
    );
    assert!(
        rested > count / 200,
        "{rested} of {count} rest on pending removals"
    );
}

#[test]
fn queue_agrees_piece_by_piece() {
    agrees_piece_by_piece(Collection::Queue);
}

#[test]
fn multiset_agrees_piece_by_piece() {
    agrees_piece_by_piece(Collection::Multiset);
}

/// What is held of a long valid history does not grow with its length, with some removals of unknown outcome in it.
#[test]
fn what_is_held_does_not_grow() {
    for collection in [Collection::Queue, Collection::Multiset] {
        let most = |rounds: u32| {
            let history = rounds_of(rounds);
            let (answer, most) = piece_by_piece(collection, &history, 0.2, &mut Rng::from_seed(3));
            assert_eq!(answer, Ok(()), "{collection:?}");
            most
        };
        let (short, long) = (most(100), most(2_000));
        assert!(
            long <= short + 16,
            "{collection:?}: {short}, then {long} operations held"
        );
        assert!(long < 150, "{collection:?}: {long} operations held");
    }
}

/// Rounds of two concurrent additions, their removals and an observation of the empty collection. In the third and the fourth
/// round a removal that took a value has no outcome.
fn rounds_of(rounds: u32) -> Vec<CollectionOperation> {
    let mut history = Vec::new();
    for round in 0..rounds {
        let (at, value) = (20 * round, 2 * round);
        let mut push = |action, value, call: u32, ret: u32| {
            history.push(CollectionOperation {
                action,
                value,
                call: at + call,
                ret: at + ret,
            });
        };
        push(CollectionAction::Add, value, 0, 3);
        push(CollectionAction::Add, value + 1, 1, 4);
        push(CollectionAction::Remove, value, 5, 8);
        if round == 3 || round == 4 {
            push(CollectionAction::RemoveUnknown, 0, 6, NEVER - at);
        } else {
            push(CollectionAction::Remove, value + 1, 6, 9);
        }
        push(CollectionAction::Empty, 0, 10, 12);
    }
    history
}
