//! Tests of `recorded_transactions.rs`.

use super::*;
use seatrial_cycles::{Position, Txn};
use seatrial_history::OpType;
use seatrial_machine::Rng;

/// A transaction with everything that the columns have of it.
#[derive(Clone, Debug, PartialEq)]
struct Whole {
    process: u32,
    invocation: Option<Position>,
    completion: Option<Position>,
    outcome: OpType,
    row: Option<Vec<u64>>,
}

/// Random transactions, and the order in which those with a row ended.
fn random(rng: &mut Rng) -> (Vec<Whole>, Vec<usize>) {
    let count = rng.index(12);
    let mut ended: Vec<usize> = (0..count).filter(|_| rng.chance(0.8)).collect();
    if rng.chance(0.7) {
        rng.shuffle(&mut ended);
    }
    let whole = (0..count).map(|number| {
        let completes = rng.chance(0.8);
        Whole {
            process: rng.below(4) as u32,
            invocation: rng.chance(0.9).then(|| Position::new(number as u32)),
            completion: completes.then(|| Position::new(100 + number as u32)),
            outcome: *rng.pick(&[OpType::Ok, OpType::Fail, OpType::Info]),
            row: ended
                .contains(&number)
                .then(|| (0..rng.below(4)).map(|_| rng.word()).collect()),
        }
    });
    (whole.collect(), ended)
}

fn filled(whole: &[Whole], ended: &[usize]) -> (TransactionColumns, CompletionRows<u64>) {
    let (mut table, mut rows) = (TransactionColumns::default(), CompletionRows::default());
    for one in whole {
        table.open(ProcessNumber::new(one.process), one.invocation);
    }
    for (number, one) in Txn::all(whole.len()).zip(whole) {
        table.complete(number, one.outcome, one.completion);
    }
    for &number in ended {
        let items = whole[number].row.iter().flatten();
        items.for_each(|&item| rows.push(item));
        rows.end_row(Txn::new(number as u32));
    }
    (table, rows)
}

fn assert_same(table: &TransactionColumns, rows: &CompletionRows<u64>, whole: &[Whole], seed: u64) {
    table.assert_complete();
    assert_eq!(table.len(), whole.len(), "seed {seed}");
    for (number, one) in Txn::all(whole.len()).zip(whole) {
        let row = rows.iter().find(|(owner, _)| *owner == number);
        let found = Whole {
            process: table.process(number).get(),
            invocation: table.invocation(number),
            completion: table.completion(number),
            outcome: table.outcome(number),
            row: row.map(|(_, items)| items.to_vec()),
        };
        assert_eq!(found, *one, "seed {seed} {number:?}");
        assert_eq!(table.is_ok(number), one.outcome == OpType::Ok);
        assert_eq!(table.is_failed(number), one.outcome == OpType::Fail);
    }
    let by_transaction = rows.clone().by_transaction(whole.len());
    let expected = whole.iter().map(|one| one.row.clone().unwrap_or_default());
    let rows: Vec<Vec<u64>> = by_transaction.rows().map(<[u64]>::to_vec).collect();
    assert!(rows.into_iter().eq(expected), "seed {seed}");
}

#[test]
fn columns_and_rows_hold_whole_transactions_also_after_some_are_freed() {
    let mut freed = 0;
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let (mut whole, ended) = random(&mut rng);
        let (mut table, mut rows) = filled(&whole, &ended);
        assert_same(&table, &rows, &whole, seed);

        let stays: Vec<bool> = whole.iter().map(|_| rng.chance(0.6)).collect();
        let mut next = (0..).map(Txn::new);
        let numbers: Vec<Option<Txn>> = stays
            .iter()
            .map(|&stays| stays.then(|| next.next()).flatten())
            .collect();
        table.keep(&numbers);
        rows.keep(&numbers);
        let mut kept = stays.iter();
        whole.retain(|_| *kept.next().unwrap());
        freed += stays.len() - whole.len();
        assert_same(&table, &rows, &whole, seed);
        let order = ended.iter().filter_map(|&number| numbers[number]);
        assert!(order.eq(rows.transactions().iter().copied()), "seed {seed}");

        let before: Vec<u32> = whole.iter().map(|one| one.process).collect();
        let processes = table.keep_processes();
        for (one, before) in whole.iter_mut().zip(before) {
            one.process = processes[before as usize].unwrap().get();
        }
        assert_same(&table, &rows, &whole, seed);
        let used: std::collections::BTreeSet<_> = whole.iter().map(|one| one.process).collect();
        let count = used.len() as u32;
        assert!(used.into_iter().eq(0..count), "seed {seed}");
    }
    assert!(freed > 1_000, "{freed}");
}

#[test]
#[should_panic(expected = "a transaction has one row")]
fn a_transaction_with_two_rows_is_refused() {
    let mut rows: CompletionRows<u64> = CompletionRows::default();
    rows.end_row(Txn::new(1));
    rows.end_row(Txn::new(1));
    let _ = rows.by_transaction(2);
}
