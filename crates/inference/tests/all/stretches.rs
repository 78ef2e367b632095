//! Checks of a stretch of a history, as they are made while a test runs, beside checks of the whole.

use crate::registers::{any_inference, disturbed};
use crate::stores::{STORES, printed, random_history};
use crate::transactions::registers;
use seatrial_checker::{Aims, Checker, Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_farm::histories;
use seatrial_history::{ChunkSource, History, Op};
use seatrial_inference::{Inference, RwRegister};
use seatrial_isolation::axiomatic::{AxiomaticModel, Isolation};
use seatrial_machine::Rng;

/// The verdict on the operations from `from` on.
fn check_from(checker: &dyn Checker, history: &History, from: usize) -> Verdict {
    let mut running = checker.start(&Aims {
        stretch: true,
        ..Aims::default()
    });
    let pushed = history.round(&mut |chunk| running.push(&chunk.after(from)));
    pushed.unwrap();
    running.finish(history).unwrap().verdict
}

/// What a stretch says, of which number of histories.
#[derive(Debug, Default)]
struct Seen {
    refuted: u64,
    /// Violations of the whole that the stretch shows.
    found: u64,
    /// What the operations before it may explain.
    open: u64,
}

fn compare(seed: u64, seen: &mut Seen) {
    let mut rng = Rng::from_seed(seed ^ 0x57e7);
    let store = STORES[seed as usize % STORES.len()];
    let length = 4 + rng.below(24);
    let mut history = registers(&random_history(store, length, &mut rng));
    if rng.chance(0.2) {
        history = disturbed(&history, &mut rng);
    }
    let end = rng.index(history.len()) + 1;
    let beginning: Vec<Op> = history.iter().take(end).cloned().collect();
    let beginning = History::from_ops(beginning);
    let checker: Box<dyn Checker> = if rng.chance(0.5) {
        let level = *rng.pick(&Level::all().collect::<Vec<_>>());
        let inference = match rng.below(3) {
            0 => any_inference(&mut rng),
            _ => Inference::default(),
        };
        Box::new(RwRegister::new(level).with_inference(inference))
    } else {
        let models: Vec<_> = AxiomaticModel::all().collect();
        Box::new(Isolation::new(*rng.pick(&models)))
    };
    let Some(open) = checker.open_in_stretches() else {
        return;
    };
    let whole = checker.check(&beginning);
    let from = rng.index(end);
    let stretch = check_from(&*checker, &beginning, from);
    seen.refuted += u64::from(whole.valid == Validity::Invalid);
    if stretch.valid != Validity::Invalid {
        return;
    }
    let mut anomalies = stretch.anomalies.keys();
    if anomalies.any(|anomaly| open.contains(anomaly)) {
        seen.open += 1;
        return;
    }
    seen.found += 1;
    assert_eq!(
        whole.valid,
        Validity::Invalid,
        "seed {seed} {store:?} {} {:?} from {from}: {stretch:?}\n{}",
        checker.name(),
        whole.model,
        printed(&beginning)
    );
}

#[test]
fn a_violation_in_a_stretch_is_one_of_the_whole() {
    let mut seen = Seen::default();
    let count = histories(20_000);
    (0..count).for_each(|seed| compare(seed, &mut seen));
    println!("{count} histories: {seen:?}");
    assert!(seen.refuted > count / 20, "{seen:?}");
    assert!(seen.found > seen.refuted / 10 && seen.open > 0, "{seen:?}");
}
