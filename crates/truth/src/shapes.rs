//! Shapes of histories that checkers got wrong before, with random details.

use crate::case::{Case, CaseOutcome, Kind, Micro, Txn, list};
use seatrial_machine::Rng;

const fn write(key: u8, value: u64) -> Micro {
    Micro {
        key,
        is_write: true,
        value,
    }
}

const fn read(key: u8, value: u64) -> Micro {
    Micro {
        key,
        is_write: false,
        value,
    }
}

/// A case of one of the shapes.
pub(crate) fn case(kind: Kind, rng: &mut Rng) -> Case {
    let transactions = match (kind, rng.below(6)) {
        (_, 0) => unread_updates(rng),
        (Kind::Lists, 1) => permuted_appends(rng),
        (Kind::Lists, 2) => masked_future(rng),
        (Kind::Lists, 3) => two_reads(rng),
        (_, 4) => retried(kind, rng),
        (_, 5) => write_skew(kind, rng),
        (Kind::Registers, 1) => blind_writes(rng),
        _ => split_session(rng),
    };
    let mut case = Case {
        kind,
        txns: transactions
            .into_iter()
            .enumerate()
            .map(|(number, (outcome, micros))| Txn {
                process: number as u8,
                outcome,
                micros,
                begun: 0,
                ended: None,
            })
            .collect(),
    };
    times(&mut case, rng);
    case
}

type Transactions = Vec<(CaseOutcome, Vec<Micro>)>;

/// All at once, one after another, or anything between; now and then two share a process.
fn times(case: &mut Case, rng: &mut Rng) {
    let apart = rng.below(3) as u16;
    for (number, txn) in case.txns.iter_mut().enumerate() {
        let (number, jitter) = (number as u16, rng.below(8) as u16);
        txn.begun = 100 * apart * number + 10 * jitter + number;
        let is_open = txn.outcome == CaseOutcome::Info && rng.chance(0.4);
        txn.ended = (!is_open).then_some(txn.begun + 90 + 10 * rng.below(8) as u16 + number);
    }
    for number in 1..case.txns.len() {
        let (one, other) = (&case.txns[number - 1], &case.txns[number]);
        let is_free = one.outcome != CaseOutcome::Info && one.ended < Some(other.begun);
        let process = one.process;
        if is_free && rng.chance(0.3) {
            case.txns[number].process = process;
        }
    }
}

/// Transactions read one version and write on top of it; hardly anybody reads what came of it.
fn unread_updates(rng: &mut Rng) -> Transactions {
    let count = 2 + rng.below(3);
    let keys = 1 + rng.below(2);
    let mut all: Transactions = (1..=count)
        .map(|value| {
            let key = rng.below(keys) as u8;
            (CaseOutcome::Ok, vec![read(key, 0), write(key, value)])
        })
        .collect();
    if rng.chance(0.4) {
        all.push((CaseOutcome::Ok, vec![read(0, rng.below(count + 1))]));
    }
    all
}

/// One appends several elements, another reads them in some order.
fn permuted_appends(rng: &mut Rng) -> Transactions {
    let count = 2 + rng.below(2);
    let mut seen: Vec<u64> = (1..=count).collect();
    let mut all = vec![(
        CaseOutcome::Ok,
        seen.iter().map(|&it| write(0, it)).collect(),
    )];
    if rng.chance(0.5) {
        let (one, other) = (rng.index(seen.len()), rng.index(seen.len()));
        seen.swap(one, other);
    }
    if rng.chance(0.4) {
        seen.insert(rng.index(seen.len() + 1), 7);
        all.push((CaseOutcome::Ok, vec![write(0, 7)]));
    }
    all.push((CaseOutcome::Ok, vec![read(0, list(seen.clone()))]));
    if rng.chance(0.5) {
        seen.truncate(rng.index(seen.len() + 1));
        all.push((CaseOutcome::Ok, vec![read(0, list(seen))]));
    }
    all
}

/// A transaction reads what it appends only later, and then something that contradicts it.
fn masked_future(rng: &mut Rng) -> Transactions {
    let lists = [0, 0x1, 0x2, 0x12, 0x21, 0x3, 0x31, 0x13];
    let mut any = || read(0, *rng.pick(&lists));
    let micros = vec![any(), write(0, 1), any(), write(0, 2), any()];
    let skip = rng.index(micros.len());
    let mut micros = micros;
    micros.remove(skip);
    vec![
        (CaseOutcome::Ok, micros),
        (CaseOutcome::Ok, vec![write(0, 3)]),
        (CaseOutcome::Ok, vec![read(0, *rng.pick(&lists))]),
    ]
}

/// One operation reads a key twice.
fn two_reads(rng: &mut Rng) -> Transactions {
    let lists = [0, 0x1, 0x2, 0x12, 0x21];
    let mut micros = vec![read(0, *rng.pick(&lists)), read(0, *rng.pick(&lists))];
    if rng.chance(0.3) {
        micros.insert(1, write(1, 1));
    }
    vec![
        (CaseOutcome::Ok, vec![write(0, 1)]),
        (CaseOutcome::Ok, vec![write(0, 2)]),
        (CaseOutcome::Ok, micros),
        (
            CaseOutcome::Ok,
            vec![read(0, *rng.pick(&lists)), read(1, rng.below(2))],
        ),
    ]
}

/// A write fails and is tried again.
fn retried(kind: Kind, rng: &mut Rng) -> Transactions {
    let seen = |value: u64| read(0, value);
    let last = match kind {
        Kind::Lists => *rng.pick(&[0x1, 0x12, 0x21, 0]),
        Kind::Registers => rng.below(3),
    };
    let mut all = vec![
        (CaseOutcome::Fail, vec![write(0, 1)]),
        (CaseOutcome::Ok, vec![write(0, 1)]),
        (CaseOutcome::Ok, vec![seen(last)]),
    ];
    if rng.chance(0.5) {
        all.insert(rng.index(all.len()), (CaseOutcome::Ok, vec![write(0, 2)]));
    }
    if rng.chance(0.3) {
        all.insert(0, (CaseOutcome::Fail, vec![write(0, 2)]));
    }
    all
}

/// Two read what the other writes; a third looks.
fn write_skew(kind: Kind, rng: &mut Rng) -> Transactions {
    let mut all = vec![
        (CaseOutcome::Ok, vec![read(1, 0), write(0, 1)]),
        (CaseOutcome::Ok, vec![read(0, rng.below(2)), write(1, 1)]),
    ];
    if rng.chance(0.6) {
        let other = vec![read(0, rng.below(2)), read(1, rng.below(2))];
        all.push((CaseOutcome::Ok, other));
    }
    if rng.chance(0.4) {
        let seen = match kind {
            Kind::Lists => *rng.pick(&[0, 0x1]),
            Kind::Registers => rng.below(2),
        };
        all.push((CaseOutcome::Info, vec![read(0, seen), write(1, 2)]));
        all.push((CaseOutcome::Ok, vec![read(1, *rng.pick(&[0x2, 0x12, 0x1]))]));
    }
    if kind == Kind::Registers {
        for micro in all.iter_mut().flat_map(|txn| &mut txn.1) {
            micro.value = micro.value.min(2);
        }
    }
    all
}

/// Blind writes of two keys, and reads that hold their orders against each other.
fn blind_writes(rng: &mut Rng) -> Transactions {
    let count = 2 + rng.below(2);
    let mut all: Transactions = (1..=count)
        .map(|value| (CaseOutcome::Ok, vec![write(0, value), write(1, value)]))
        .collect();
    for _ in 0..=rng.below(2) {
        let micros = vec![read(0, rng.below(count + 1)), read(1, rng.below(count + 1))];
        all.push((CaseOutcome::Ok, micros));
    }
    if rng.chance(0.2) {
        all[0].0 = CaseOutcome::Info;
    }
    all
}

/// A chain: each reads what the one before wrote and writes another key.
fn split_session(rng: &mut Rng) -> Transactions {
    let mut all: Transactions = Vec::new();
    let keys = 2 + rng.below(2) as u8;
    for key in 0..keys {
        let mut micros = vec![write(key, 1)];
        if key > 0 {
            micros.insert(0, read(key - 1, rng.below(2)));
        }
        all.push((CaseOutcome::Ok, micros));
    }
    let reads = (0..keys).map(|key| read(key, rng.below(2))).collect();
    all.push((CaseOutcome::Ok, reads));
    all
}
