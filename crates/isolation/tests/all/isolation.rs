//! Axiomatic levels against brute force: every order of commits is tried, and the axioms are checked literally.

use seatrial_checker::{Validity, certify};
use seatrial_farm::{all_histories, histories, least};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_isolation::registers::{Columns, ColumnsBuilder};
use seatrial_isolation::{AxiomaticModel, Isolation};
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, Proof, verify};
use std::sync::Arc;

/// A read or write of a key; the value `None` is the initial state.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KeyedAccess {
    is_write: bool,
    key: i64,
    value: Option<i64>,
}

/// A transaction as the twin sees it; those of a session come in order.
#[derive(Clone, Debug)]
struct Simple {
    session: u64,
    outcome: OpType,
    events: Vec<KeyedAccess>,
}

impl Simple {
    fn writes(&self, key: i64) -> bool {
        self.events.iter().any(|it| it.is_write && it.key == key)
    }

    /// Reads that no earlier own write answers.
    fn external(&self) -> impl Iterator<Item = (usize, KeyedAccess)> {
        let events = self.events.iter().copied().enumerate();
        events.filter(|&(at, read)| {
            let before = &self.events[..at];
            !read.is_write && !before.iter().any(|it| it.is_write && it.key == read.key)
        })
    }
}

/// What a random history is made of.
struct HistoryShape {
    transactions: usize,
    sessions: u64,
    keys: u64,
    events_max: u64,
    /// Share of reads that see anything.
    wild: f64,
}

/// Who a transaction sees at first, of those before it in the order of commits.
fn view(
    rng: &mut Rng,
    manner: u64,
    session: u64,
    all: &[Simple],
    seen: &[Vec<usize>],
) -> Vec<usize> {
    let number = all.len();
    let mut mine: Vec<usize> = (0..number).filter(|_| rng.chance(0.5)).collect();
    if manner > 0 {
        mine.extend((0..number).filter(|&other| all[other].session == session));
    }
    if manner > 1 {
        let indirect: Vec<usize> = mine.iter().flat_map(|&other| seen[other].clone()).collect();
        mine.extend(indirect);
    }
    if manner > 3 {
        mine = (0..number).collect();
    }
    mine.sort_unstable();
    mine.dedup();
    mine
}

/// What a read sees: the own value, or the latest in view; now and then anything.
fn observe(
    rng: &mut Rng,
    key: i64,
    events: &[KeyedAccess],
    all: &[Simple],
    mine: &[usize],
    wild: Option<i64>,
) -> Option<i64> {
    let own = events.iter().rev().find(|it| it.is_write && it.key == key);
    if let (None, Some(last)) = (own, wild) {
        let value = Some(rng.below(last.cast_unsigned() + 1).cast_signed()).filter(|it| *it > 0);
        let writers = all.iter().filter(|one| one.outcome != OpType::Fail);
        let mut writes = writers.flat_map(|one| &one.events);
        let is_there = writes.any(|it| it.is_write && it.key == key && it.value == value);
        return value.filter(|_| is_there || rng.chance(0.05));
    }
    let mut views = mine.iter().rev();
    let latest = views.find(|&&other| all[other].outcome != OpType::Fail && all[other].writes(key));
    let theirs = latest.and_then(|&other| {
        let mut writes = all[other].events.iter().rev();
        writes.find(|it| it.is_write && it.key == key)
    });
    own.or(theirs).and_then(|it| it.value)
}

/// Transactions in a random order of commits; each sees a random part of those before it and reads the latest of that.
fn random(rng: &mut Rng, shape: &HistoryShape) -> Vec<Simple> {
    let mut all: Vec<Simple> = Vec::new();
    let mut seen: Vec<Vec<usize>> = Vec::new();
    let manner = rng.below(5);
    let mut next = 0;
    for number in 0..shape.transactions {
        let session = rng.below(shape.sessions);
        let mut mine = view(rng, manner, session, &all, &seen);
        let mut events: Vec<KeyedAccess> = Vec::new();
        for _ in 0..=rng.below(shape.events_max) {
            let key = rng.below(shape.keys).cast_signed();
            let is_write = rng.chance(0.45);
            let value = if is_write {
                next += 1;
                Some(next)
            } else {
                if manner == 2 {
                    mine.extend((0..number).filter(|_| rng.chance(0.2)));
                    mine.sort_unstable();
                }
                let wild = Some(next).filter(|_| rng.chance(shape.wild));
                observe(rng, key, &events, &all, &mine, wild)
            };
            events.push(KeyedAccess {
                is_write,
                key,
                value,
            });
        }
        let outcome = match rng.below(20) {
            0 => OpType::Fail,
            1 => OpType::Info,
            _ => OpType::Ok,
        };
        if outcome != OpType::Ok {
            events.retain(|it| it.is_write);
        }
        all.push(Simple {
            session,
            outcome,
            events,
        });
        seen.push(mine);
    }
    all
}

/// The same in columns. Files keep the order of each session only.
fn columns(all: &[Simple], rng: &mut Rng) -> (Columns, Vec<usize>) {
    let mut waiting: Vec<Vec<usize>> = Vec::new();
    for (number, one) in all.iter().enumerate() {
        let same = |list: &&mut Vec<usize>| all[list[0]].session == one.session;
        match waiting.iter_mut().find(same) {
            Some(list) => list.push(number),
            None => waiting.push(vec![number]),
        }
    }
    let mut builder = ColumnsBuilder::default();
    let mut numbers = Vec::new();
    while !waiting.is_empty() {
        let at = rng.index(waiting.len());
        let number = waiting[at].remove(0);
        if waiting[at].is_empty() {
            waiting.swap_remove(at);
        }
        numbers.push(number);
        builder.begin(all[number].session);
        for event in &all[number].events {
            match event.value {
                Some(value) if event.is_write => builder.write(event.key, value),
                value => builder.read(event.key, value),
            }
        }
        builder.end(all[number].outcome);
    }
    (builder.finish().unwrap(), numbers)
}

/// The relations of a history, by pairs of transactions, closed by hand.
struct Relations {
    happened: Vec<bool>,
    /// Session order, all pairs.
    session: Vec<Vec<bool>>,
    /// Who read from whom.
    read: Vec<Vec<bool>>,
    causal: Vec<Vec<bool>>,
    /// By transaction: which of its events are external reads, whose key and who wrote that.
    external: Vec<Vec<(usize, KeyedAccess, Option<usize>)>>,
    /// Is something wrong before any level?
    is_faulty: bool,
}

/// Who wrote this value.
fn writer(all: &[Simple], read: KeyedAccess) -> Option<usize> {
    all.iter().position(|one| {
        let mut writes = one.events.iter().filter(|it| it.is_write);
        writes.any(|it| (it.key, it.value) == (read.key, read.value))
    })
}

fn relations(all: &[Simple]) -> Relations {
    let count = all.len();
    let empty = vec![vec![false; count]; count];
    let mut it = Relations {
        happened: all.iter().map(|one| one.outcome == OpType::Ok).collect(),
        session: empty.clone(),
        read: empty.clone(),
        causal: empty,
        external: Vec::new(),
        is_faulty: false,
    };
    it.look(all);
    for (reader, one) in all.iter().enumerate() {
        let external = one.external();
        let external = external.map(|(at, read)| (at, read, writer(all, read)));
        it.external.push(external.collect());
        for &(_, _, writer) in &it.external[reader] {
            if let Some(writer) = writer.filter(|&writer| writer != reader) {
                it.read[writer][reader] = true;
            }
        }
    }
    for from in 0..count {
        for to in 0..from {
            let goes_on = |one: usize| {
                let later = all[one + 1..].iter();
                let mut later = later.filter(|it| it.session == all[one].session);
                later.any(|it| it.outcome == OpType::Ok)
            };
            // A transaction of unknown outcome within a session is a session of its own.
            let alone = |one: usize| all[one].outcome == OpType::Info && goes_on(one);
            let same = all[from].session == all[to].session;
            let both = it.happened[from] && it.happened[to];
            it.session[to][from] = same && both && !alone(from) && !alone(to);
        }
    }
    for from in 0..count {
        for to in 0..count {
            it.read[from][to] &= it.happened[from] && it.happened[to];
            it.causal[from][to] = it.session[from][to] || it.read[from][to];
        }
    }
    for middle in 0..count {
        for from in 0..count {
            for to in 0..count {
                it.causal[from][to] |= it.causal[from][middle] && it.causal[middle][to];
            }
        }
    }
    it
}

impl Relations {
    /// What is wrong before any level, and which of the unknown transactions were seen.
    fn look(&mut self, all: &[Simple]) {
        let ok = all.iter().enumerate();
        for (reader, one) in ok.filter(|(_, one)| one.outcome == OpType::Ok) {
            for (at, read) in one.events.iter().enumerate().filter(|(_, it)| !it.is_write) {
                let mut own = one.events[..at].iter().rev();
                let own = own.find(|it| it.is_write && it.key == read.key);
                if own.is_some_and(|own| own.value == read.value) {
                    continue;
                }
                self.is_faulty |= own.is_some();
                let Some(writer) = writer(all, *read) else {
                    self.is_faulty |= read.value.is_some();
                    continue;
                };
                let mut writes = all[writer].events.iter().rev();
                let last = writes.find(|it| it.is_write && it.key == read.key);
                let is_last = last.is_some_and(|last| last.value == read.value);
                let failed = all[writer].outcome == OpType::Fail;
                self.is_faulty |= writer == reader || failed || !is_last;
                if all[writer].outcome == OpType::Info {
                    self.happened[writer] = true;
                }
            }
        }
    }

    /// Does `reader` see `other` when it makes the read at `at`?
    fn sees(&self, model: AxiomaticModel, other: usize, reader: usize, at: usize) -> bool {
        let count = self.happened.len();
        let (session, read) = (&self.session, &self.read);
        // Session order, or the same.
        let upto = |from: usize, to: usize| from == to || session[from][to];
        let any = |test: &dyn Fn(usize) -> bool| (0..count).any(test);
        match model {
            AxiomaticModel::AxiomaticReadCommitted => {
                let mut external = self.external[reader].iter();
                read[other][reader]
                    && external.any(|&(before, _, source)| before < at && source == Some(other))
            }
            AxiomaticModel::AxiomaticReadAtomic => session[other][reader] || read[other][reader],
            AxiomaticModel::Causal => self.causal[other][reader],
            AxiomaticModel::ReadYourWrites => session[other][reader],
            AxiomaticModel::MonotonicReads => any(&|one| read[other][one] && session[one][reader]),
            AxiomaticModel::MonotonicWrites => any(&|one| session[other][one] && read[one][reader]),
            AxiomaticModel::WritesFollowReads => {
                any(&|one| read[other][one] && any(&|two| upto(one, two) && read[two][reader]))
            }
            AxiomaticModel::Pram => {
                let way = |one: usize, two: usize| {
                    upto(other, one) && read[one][two] && upto(two, reader)
                };
                session[other][reader] || any(&|one| any(&|two| way(one, two)))
            }
            _ => unreachable!("that is searched for"),
        }
    }

    /// The pairs that the axiom asks for; a transaction before the initial state is `Err`.
    fn forced(&self, all: &[Simple], model: AxiomaticModel) -> Result<Vec<Vec<bool>>, usize> {
        let mut forced = vec![vec![false; all.len()]; all.len()];
        for reader in (0..all.len()).filter(|&reader| self.happened[reader]) {
            for &(at, event, source) in &self.external[reader] {
                let counts = |it: usize| it != reader && self.happened[it];
                if event.value.is_some() && !source.is_some_and(counts) {
                    continue;
                }
                for other in (0..all.len()).filter(|&other| self.happened[other]) {
                    let is_other = all[other].writes(event.key) && Some(other) != source;
                    if is_other && self.sees(model, other, reader, at) {
                        forced[other][source.ok_or(other)?] = true;
                    }
                }
            }
        }
        Ok(forced)
    }

    /// Must `one` come before `other` by sessions and reads?
    fn is_before(&self, one: usize, other: usize) -> bool {
        self.session[one][other] || self.read[one][other]
    }
}

/// Is there an order of commits? Tries all of them, whatever the axiom forbids cut off.
fn brute_force(all: &[Simple], it: &Relations, forced: &[Vec<bool>], placed: u32) -> bool {
    let is_left = |number: usize| it.happened[number] && (placed >> number) & 1 == 0;
    let mut left = (0..all.len()).filter(|&number| is_left(number)).peekable();
    if left.peek().is_none() {
        return true;
    }
    left.any(|next| {
        let waits = (0..all.len()).any(|other| {
            let waits = it.is_before(other, next) || forced[other][next];
            is_left(other) && other != next && waits
        });
        !waits && !it.read[next][next] && brute_force(all, it, forced, placed | 1 << next)
    })
}

/// The same for histories of any size: is there no cycle?
fn by_elimination(all: &[Simple], it: &Relations, forced: &[Vec<bool>]) -> bool {
    let mut left: Vec<usize> = (0..all.len()).filter(|&one| it.happened[one]).collect();
    loop {
        let before = left.len();
        let others = left.clone();
        left.retain(|&next| {
            others
                .iter()
                .any(|&other| other != next && (it.is_before(other, next) || forced[other][next]))
        });
        if left.len() == before {
            return left.is_empty();
        }
    }
}

/// Does the axiom hold in this order?
fn is_witness(it: &Relations, forced: &[Vec<bool>], order: &[usize]) -> bool {
    let place = |one: usize| order.iter().position(|&other| other == one);
    let is_before = |one, other| place(one) < place(other);
    let happened = it.happened.iter().filter(|&&happened| happened).count();
    let mut distinct = order.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let pairs =
        (0..it.happened.len()).flat_map(|one| (0..it.happened.len()).map(move |two| (one, two)));
    let mut known = pairs.filter(|&(one, two)| it.is_before(one, two) || forced[one][two]);
    distinct.len() == happened
        && order.iter().all(|&one| it.happened[one])
        && known.all(|(one, two)| is_before(one, two))
}

/// Compares all models on one history; which of them hold.
fn compare(
    all: &[Simple],
    columns: &Columns,
    numbers: &[usize],
    context: &str,
) -> Vec<AxiomaticModel> {
    let it = relations(all);
    let mut valid = Vec::new();
    for model in AxiomaticModel::POLYNOMIAL {
        let forced = it.forced(all, model);
        let expected = !it.is_faulty
            && forced.as_ref().is_ok_and(|forced| match all.len() {
                0..=9 => brute_force(all, &it, forced, 0),
                _ => by_elimination(all, &it, forced),
            });
        let (verdict, order) = Isolation::new(model).decide(columns);
        let context = || {
            let text = verdict.findings.first().map(|it| it.summary.as_str());
            format!(
                "{context} {model:?}\n{all:#?}\n{}",
                text.unwrap_or_default()
            )
        };
        assert_eq!(verdict.valid == Validity::Valid, expected, "{}", context());
        assert_eq!(order.is_some(), expected, "{}", context());
        assert_eq!(verdict.findings.is_empty(), expected, "{}", context());
        if let Some(order) = order {
            let order: Vec<usize> = order.iter().map(|&one| numbers[one as usize]).collect();
            assert!(is_witness(&it, &forced.unwrap(), &order), "{}", context());
            valid.push(model);
        }
    }
    for model in AxiomaticModel::POLYNOMIAL {
        for weaker in AxiomaticModel::POLYNOMIAL
            .into_iter()
            .filter(|&weaker| model.implies(weaker))
        {
            let holds = !valid.contains(&model) || valid.contains(&weaker);
            assert!(holds, "{context}: {model:?} without {weaker:?}");
        }
    }
    valid
}

/// Few transactions on few keys.
fn small_shape(transactions_max: usize, rng: &mut Rng) -> HistoryShape {
    HistoryShape {
        transactions: 2 + rng.index(transactions_max - 1),
        sessions: 1 + rng.below(4),
        keys: 1 + rng.below(3),
        events_max: 2 + rng.below(3),
        wild: *rng.pick(&[0.0, 0.3, 0.6]),
    }
}

#[test]
fn agrees_with_all_orders_of_commits_on_small_histories() {
    // Per model: valid, invalid, and invalid although all weaker ones are valid.
    let mut seen = [[0; 3]; AxiomaticModel::POLYNOMIAL.len()];
    let count = histories(4_000);
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed);
        let shape = small_shape(8, &mut rng);
        let all = random(&mut rng, &shape);
        let (columns, numbers) = columns(&all, &mut rng);
        let valid = compare(&all, &columns, &numbers, &format!("seed {seed}"));
        for (counts, model) in seen.iter_mut().zip(AxiomaticModel::POLYNOMIAL) {
            let weaker = AxiomaticModel::POLYNOMIAL
                .into_iter()
                .filter(|&it| it != model && model.implies(it));
            let holds = valid.contains(&model);
            let only = !holds && !valid.is_empty() && weaker.clone().all(|it| valid.contains(&it));
            counts[0] += u64::from(holds);
            counts[1] += u64::from(!holds);
            counts[2] += u64::from(only);
        }
    }
    println!("valid, invalid, invalid alone: {seen:?}");
    // What breaks the strong ones breaks a weaker one too, or takes more transactions.
    for (counts, model) in seen.iter().zip(AxiomaticModel::POLYNOMIAL) {
        let [valid, invalid, alone] = counts.map(|it| it * 1_000 / count);
        let is_common = matches!(model, AxiomaticModel::Causal | AxiomaticModel::Pram) || alone > 4;
        assert!(valid > 100 && invalid > 50 && is_common, "{seen:?}");
    }
}

#[test]
fn long_transactions_and_much_written_keys_have_equal_verdicts() {
    let mut valid = [0; AxiomaticModel::POLYNOMIAL.len()];
    let count = all_histories(4_000) / 100;
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed ^ 0x5eed);
        let is_wide = rng.chance(0.5);
        let shape = HistoryShape {
            transactions: if is_wide { 9 } else { 70 },
            sessions: 1 + rng.below(5),
            keys: if is_wide { 150 } else { 1 + rng.below(2) },
            events_max: if is_wide { 200 } else { 2 },
            wild: *rng.pick(&[0.0, 0.001, 0.01]),
        };
        let all = random(&mut rng, &shape);
        let (columns, numbers) = columns(&all, &mut rng);
        let holds = compare(&all, &columns, &numbers, &format!("seed {seed}"));
        for (counts, model) in valid.iter_mut().zip(AxiomaticModel::POLYNOMIAL) {
            *counts += u64::from(holds.contains(&model));
        }
    }
    println!("valid: {valid:?} of {count}");
    let both = |&it: &u64| it > 0 && it < count;
    assert!(valid.iter().all(both), "{valid:?} of {count}");
}

/// The same as operations, one transaction after another.
fn history(all: &[Simple], numbers: &[usize]) -> History {
    let mut ops = Vec::new();
    for one in numbers.iter().map(|&number| &all[number]) {
        let mops = |is_observed: bool| -> Value {
            let mops = one.events.iter().map(|event| {
                let key = Key::Int(event.key);
                match event.value {
                    Some(value) if event.is_write => Mop::Write { key, value },
                    Some(value) if is_observed => {
                        let observed = Observed::Register(value);
                        Mop::Read { key, observed }
                    }
                    _ => Mop::Read {
                        key,
                        observed: Observed::Nil,
                    },
                }
            });
            Value::Txn(mops.collect())
        };
        let op = Op::invoke(Process::Client(one.session), "txn", mops(false));
        ops.push(op.clone());
        ops.push(op.complete(one.outcome, mops(true)));
    }
    History::from_unindexed(ops)
}

/// Something of the proof left out.
fn tampered(certificate: &Certificate) -> Certificate {
    let mut other = certificate.clone();
    match &mut other.proof {
        Proof::Commits(order) => drop(order.pop()),
        Proof::Findings(findings) => match findings[0].steps.pop() {
            Some(_) => findings.truncate(1),
            None => findings[0].anomaly = "G1z".into(),
        },
        proof => panic!("{proof:?}"),
    }
    other
}

#[test]
fn certificates_of_weak_models_hold() {
    let mut seen = [[0; 2]; AxiomaticModel::POLYNOMIAL.len()];
    for seed in 0..histories(4_000) / 5 {
        let mut rng = Rng::from_seed(seed ^ 0xce27);
        let shape = small_shape(10, &mut rng);
        let all = random(&mut rng, &shape);
        let (_, numbers) = columns(&all, &mut rng);
        let history = Arc::new(history(&all, &numbers));
        if !history.iter().any(|op| op.value.to_string().contains(":w")) {
            continue;
        }
        for (counts, model) in seen.iter_mut().zip(AxiomaticModel::POLYNOMIAL) {
            let (verdict, certificate) = certify(&Isolation::new(model), history.as_ref()).unwrap();
            let certificate = certificate.unwrap();
            if certificate.proof == Proof::Commits(Vec::new()) {
                // Nothing took place.
                continue;
            }
            let context = format!("seed {seed} {model:?} {certificate:?}\n{verdict:#?}");
            assert_eq!(verify(&history, &certificate), Ok(()), "{context}");
            let tampered = tampered(&certificate);
            assert!(verify(&history, &tampered).is_err(), "{context}");
            counts[usize::from(verdict.valid != Validity::Valid)] += 1;
        }
    }
    assert!(
        seen.iter().flatten().all(|&count| count > least(40)),
        "{seen:?}"
    );
}
