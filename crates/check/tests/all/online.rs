//! Online checkers, compared with checks of the whole history.

use crate::stores::{STORES, printed, rotating_history};
use crate::stores::{any_case, essence};
use seatrial_check::{Follower, Stopped, Unwatched};
use seatrial_checker::{Aims, Checker, Finding, OnlineChecker, Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_farm::{all_histories, histories};
use seatrial_history::chunk::Assembly;
use seatrial_history::{
    Chunk, Codec, History, HistoryWriter, Key, Mop, Observed, Op, OpType, Process, Value,
    WriterOptions,
};
use seatrial_inference::{ListAppend, Windows};
use seatrial_linear::{Linearizable, Model};
use seatrial_machine::Rng;
use std::sync::Arc;

/// A history in chunks of random lengths.
fn cut(history: &History, length_max: u64, rng: &mut Rng) -> Vec<Chunk> {
    let mut assembly = Assembly::new(65_536);
    let mut chunks = Vec::new();
    let mut left = 1 + rng.below(length_max);
    for op in history {
        assert!(assembly.push(op).unwrap().is_none());
        left -= 1;
        if left == 0 {
            chunks.extend(assembly.rest().cloned());
            left = 1 + rng.below(length_max);
        }
    }
    chunks.extend(assembly.rest().cloned());
    chunks
}

/// Pushes chunks to a checker as a follower of a file gets them: short ones, and long ones that repeat them. Returns the
/// definite findings reported meanwhile.
fn push_all(
    checker: &mut dyn OnlineChecker,
    history: &History,
    length_max: u64,
    rng: &mut Rng,
) -> Vec<Finding> {
    let cuts = [
        cut(history, length_max, rng),
        cut(history, 4 * length_max, rng),
    ];
    let mut found = Vec::new();
    let mut position = 0;
    while position < history.len() as u64 {
        let chunks = &cuts[rng.index(2)];
        let end = |chunk: &Chunk| chunk.first_position() + chunk.len() as u64;
        let at = chunks.partition_point(|chunk| end(chunk) <= position);
        let _ = checker.push(&chunks[at]);
        position = end(&chunks[at]);
        if rng.chance(0.2) {
            let _ = checker.push(&chunks[rng.index(at + 1)]);
        }
        if rng.chance(0.4) {
            checker.search();
        }
        if rng.chance(0.6) {
            found.extend(checker.definite(history).unwrap());
        }
        let _ = checker.progress();
    }
    found
}

fn finished(checker: Box<dyn OnlineChecker>, history: &History) -> Verdict {
    checker.finish(history).unwrap().verdict
}

/// A started checker that searches for definite findings.
fn started(checker: &dyn Checker) -> Box<dyn OnlineChecker> {
    checker.start(&Aims {
        early: true,
        ..Aims::default()
    })
}

#[test]
fn online_verdicts_on_transactions_are_the_final_ones() {
    let (mut invalid, mut valid, mut early, mut reopened, mut cut) = (0, 0, 0, 0, 0);
    for seed in 0..all_histories(500) {
        let mut rng = Rng::from_seed(seed ^ 0x0e11);
        let (store, history, level) = any_case(seed, &mut rng);
        let history = Arc::new(history);
        let windows = Windows {
            transactions_min: 1 + rng.index(8),
            idle_chunks: 1 + rng.index(4) as u32,
            chunk_length_min: 1 + rng.index(3),
            is_bound: false,
        };
        let mut checker = started(&ListAppend::new(level).with_windows(windows));
        let found = push_all(&mut *checker, &history, 12, &mut rng);
        reopened += u32::from(checker.progress().note.is_some());
        cut += u64::from(checker.progress().windows > 1);
        let mut so_far = Verdict::valid(checker.name());
        for one in &found {
            *so_far.anomalies.entry(one.anomaly).or_default() += 1;
        }
        checker.rule_out(&mut so_far);
        let verdict = finished(checker, &history);
        let whole = ListAppend::new(level).with_windows(Windows::WHOLE);
        let whole = whole.check(&history);
        let context = || format!("seed {seed} {store:?} {level:?}\n{}", printed(&history));
        assert_eq!(essence(&verdict), essence(&whole), "{}", context());
        // Definite findings are in the final verdict, and models that they rule out are in the partial one.
        if let Some(first) = found.first() {
            early += 1;
            assert_eq!(whole.valid, Validity::Invalid, "{first:?}\n{}", context());
            assert_eq!(so_far.not, [level.name()]);
            let out = |name: &&str| whole.not.contains(name) || whole.also_not.contains(name);
            let mut all = so_far.not.iter().chain(&so_far.also_not);
            assert!(all.all(out), "{}", context());
        }
        match whole.valid {
            Validity::Invalid => invalid += 1,
            _ => valid += 1,
        }
    }
    println!("{valid} valid, {invalid} invalid, {early} seen before the end, {reopened} reopened");
    let few = all_histories(500) / 20;
    assert!(valid > few && invalid > few && cut > few && reopened > 0);
    assert!(2 * early > invalid, "{early} of {invalid}");
}

#[test]
fn definite_violations_of_prefixes_stay_in_the_final_verdict() {
    // For every prefix of a history: the definite violations are in the verdict on the whole history.
    let levels: Vec<_> = Level::all().collect();
    let mut definite = 0;
    for seed in 0..histories(300) {
        let mut rng = Rng::from_seed(seed ^ 0xdef1);
        let store = STORES[seed as usize % STORES.len()];
        let (length, rotation) = (4 + rng.below(20), rng.index(2) * 6);
        let history = rotating_history(store, length, rotation, &mut rng);
        let level = *rng.pick(&levels);
        let mut checker = started(&ListAppend::new(level).with_windows(Windows::WHOLE));
        let (mut found, mut suspected) = (Vec::new(), Vec::new());
        for chunk in cut(&history, 1, &mut rng) {
            let _ = checker.push(&chunk);
            checker.search();
            suspected.extend(checker.progress().anomalies);
            found.extend(checker.definite(&history).unwrap());
        }
        let whole = ListAppend::new(level).check(&history);
        if let Some(first) = found.first() {
            definite += 1;
            let text = printed(&history);
            assert_eq!(whole.valid, Validity::Invalid, "{seed} {first:?}\n{text}");
        }
        let tolerant = !level.forbidden().contains("incompatible-order");
        let is_clean = whole.valid == Validity::Valid && !tolerant;
        assert!(!is_clean || suspected.is_empty(), "{seed} {suspected:?}");
        // The writer of a read value may follow: any transaction for garbage, without real time also a retry of a failed one.
        let has_realtime = level.implies(Level::StrongReadUncommitted);
        let may_be_explained = whole.anomalies.keys().all(|name| match *name {
            "G1a" | "dirty-update" => !has_realtime,
            // The writer may follow, or a read that shows the order of appends.
            "garbage-read" | "no-order" => true,
            // Of the failed transaction, too: the one in `G1a`.
            "G1b" => !has_realtime && whole.anomalies.contains_key("G1a"),
            _ => false,
        });
        // At the end no relevant operation is under way, so every other anomaly was suspected.
        let is_open = history.iter().enumerate().any(|(position, op)| {
            op.is_info() || op.is_invoke() && history.pair(position).is_none()
        });
        if whole.valid == Validity::Invalid && !may_be_explained && !is_open {
            assert!(!found.is_empty() || tolerant, "{seed} {whole:?}");
        }
    }
    assert!(definite > histories(300) / 10, "{definite}");
}

#[test]
fn a_read_of_a_failed_append_is_definite_once_no_retry_explains_it() {
    use Level::{Serializable, StrictSerializable};
    let txn =
        |process, mop: Mop| Op::invoke(Process::Client(process), "txn", Value::Txn([mop].into()));
    let append = |process| {
        txn(
            process,
            Mop::Append {
                key: Key::Int(0),
                element: 1,
            },
        )
    };
    let read = txn(
        2,
        Mop::Read {
            key: Key::Int(0),
            observed: Observed::List([1].into()),
        },
    );
    let (failed, retried) = (append(0), append(1));
    let attempt = [
        failed.clone(),
        failed.complete(OpType::Fail, failed.value.clone()),
    ];
    let reader = [read.clone(), read.complete(OpType::Ok, read.value.clone())];
    let end = retried.complete(OpType::Ok, retried.value.clone());
    let (again, end) = ([retried], [end]);
    let during = [&attempt[..], &again, &reader, &end].concat();
    let after = [&attempt[..], &reader, &again, &end].concat();
    let found = |ops: &[Op], level| {
        let history = History::from_unindexed(ops.to_vec());
        let mut checker = started(&ListAppend::new(level).with_windows(Windows::WHOLE));
        let mut found = Vec::new();
        for chunk in cut(&history, 1, &mut Rng::from_seed(1)) {
            let _ = checker.push(&chunk);
            checker.search();
            found.extend(checker.definite(&history).unwrap());
        }
        let anomalies: Vec<_> = found.iter().map(|one| one.anomaly).collect();
        (anomalies, ListAppend::new(level).check(&history).valid)
    };
    // The retry is concurrent with the read of the element.
    for level in [Serializable, StrictSerializable] {
        assert_eq!(
            found(&during, level),
            (vec![], Validity::Valid),
            "{level:?}"
        );
    }
    // The retry begins later: without real time the read may observe it.
    assert_eq!(found(&after, Serializable), (vec![], Validity::Valid));
    let (reported, valid) = found(&after, StrictSerializable);
    assert_eq!((reported[0], valid), ("G1a", Validity::Invalid));
    // There is no retry.
    let (reported, valid) = found(&after[..4], StrictSerializable);
    assert_eq!((reported, valid), (vec!["G1a"], Validity::Invalid));
    assert_eq!(
        found(&after[..4], Serializable),
        (vec![], Validity::Invalid)
    );
}

/// A history of registers, in which one read may be wrong.
fn register_history(model: Model, rng: &mut Rng) -> History {
    let keys = rng.below(4);
    let (mut states, mut ops) = (vec![Value::Nil; keys.max(1) as usize], Vec::new());
    let mut running: Vec<(Op, usize, Option<Op>)> = Vec::new();
    let (mut next_process, mut left) = (4, 4 + rng.below(40));
    let mut free: Vec<u64> = (0..=rng.below(4)).collect();
    let (liar, values) = (rng.chance(0.6), 2 + rng.below(6));
    let unknown = if rng.chance(0.5) { 0.15 } else { 0.0 };
    if model == Model::Mutex {
        states.fill(Value::text("free"));
    }
    while left > 0 || !running.is_empty() {
        if left > 0 && !free.is_empty() && rng.chance(0.5) {
            left -= 1;
            let process = Process::Client(free.swap_remove(rng.index(free.len())));
            let key = rng.index(states.len());
            let value = |rng: &mut Rng| rng.below(values).cast_signed();
            let (f, plain) = match (model, rng.below(3)) {
                (Model::Mutex, 0) => ("release", Value::Nil),
                (Model::Mutex, _) => ("acquire", Value::Nil),
                (Model::CasRegister, 0) => ("cas", Value::Cas(value(rng), value(rng))),
                (_, 1) => ("read", Value::Nil),
                _ => ("write", Value::Int(value(rng))),
            };
            let invocation = Op::invoke(process, f, under(keys, key, plain));
            ops.push(invocation.clone());
            running.push((invocation, key, None));
        } else if !running.is_empty() {
            let at = rng.index(running.len());
            let Process::Client(client) = running[at].0.process else {
                unreachable!()
            };
            match running[at].2.clone() {
                None if rng.chance(unknown / 3.0) => {
                    running.swap_remove(at);
                    free.push(next_process);
                    next_process += 1;
                }
                None => {
                    let (invocation, key, _) = running[at].clone();
                    let done = carry_out(&invocation, &mut states[key], keys, key, rng);
                    running[at].2 = Some(done);
                }
                Some(mut done) => {
                    running.swap_remove(at);
                    if liar && done.f == "read" && rng.chance(0.1) {
                        let lie = Value::Int(rng.below(values).cast_signed());
                        let key = rng.index(states.len());
                        let has_key = matches!(done.value, Value::Keyed(..));
                        if !has_key || keys == 1 {
                            done.value = under(keys, key, lie);
                        }
                    }
                    if rng.chance(unknown) {
                        done.kind = OpType::Info;
                        free.push(next_process);
                        next_process += 1;
                    } else {
                        free.push(client);
                    }
                    if liar && rng.chance(0.02) {
                        done.kind = OpType::Fail;
                    }
                    ops.push(done);
                }
            }
        }
    }
    History::from_unindexed(ops)
}

fn under(keys: u64, key: usize, value: Value) -> Value {
    match keys {
        0 => value,
        _ => Value::Keyed(Key::Int(key as i64), value.into()),
    }
}

fn carry_out(invocation: &Op, state: &mut Value, keys: u64, key: usize, rng: &mut Rng) -> Op {
    let plain = match &invocation.value {
        Value::Keyed(_, value) => (**value).clone(),
        value => value.clone(),
    };
    let (free, held) = (Value::text("free"), Value::text("held"));
    let before = state.clone();
    let (is_done, next, observed) = match (invocation.f.as_str(), &plain) {
        ("read", _) => (true, before.clone(), before),
        ("cas", &Value::Cas(from, to)) => (before == Value::Int(from), Value::Int(to), plain),
        // A wrong lock is granted twice.
        ("acquire", _) => (before == free || rng.chance(0.03), held, Value::Nil),
        ("release", _) => (before == held, free, Value::Nil),
        _ => (true, plain.clone(), plain),
    };
    if is_done {
        *state = next;
    }
    let kind = if is_done { OpType::Ok } else { OpType::Fail };
    invocation.complete(kind, under(keys, key, observed))
}

/// The parts of a verdict on registers that must not depend on how it was computed.
fn kernel(verdict: &Verdict) -> String {
    let details = verdict.details.to_json();
    let first = verdict.findings.iter().map(|one| one.operations[0]);
    format!(
        "{:?} {:?} {:?} {:?} {:?} {} {} {} {} {:?}",
        verdict.valid,
        verdict.model,
        verdict.anomalies,
        verdict.not,
        verdict.also_not,
        details["keys"],
        details["keys_invalid"],
        details["results"],
        details["objects"],
        first.collect::<Vec<_>>()
    )
}

#[test]
fn online_verdicts_on_registers_are_the_final_ones() {
    let models = [Model::Register, Model::CasRegister, Model::Mutex];
    let (mut invalid, mut valid, mut early) = (0, 0, 0);
    // The last one hides a write after one of unknown outcome that keeps the value.
    for seed in (0..histories(1_500)).chain([56_011]) {
        let mut rng = Rng::from_seed(seed ^ 0x4e9);
        let model = models[seed as usize % 3];
        let history = Arc::new(register_history(model, &mut rng));
        if history.is_empty() {
            continue;
        }
        let mut checker = started(&Linearizable::new(model));
        let found = push_all(&mut *checker, &history, 12, &mut rng);
        let verdict = finished(checker, &history);
        let whole = Linearizable::new(model).check(&history);
        let context = || {
            let lines: Vec<_> = history.iter().map(ToString::to_string).collect();
            format!("seed {seed} {model:?}\n{}", lines.join("\n"))
        };
        assert_eq!(kernel(&verdict), kernel(&whole), "{}", context());
        if let Some(first) = found.first() {
            early += 1;
            assert_eq!(whole.valid, Validity::Invalid, "{first:?}\n{}", context());
        }
        match whole.valid {
            Validity::Invalid => invalid += 1,
            _ => valid += 1,
        }
    }
    println!("{valid} valid, {invalid} invalid, {early} seen before the end");
    let few = histories(1_500) / 10;
    assert!(
        valid > few && invalid > few && early > few / 2,
        "{valid} {invalid} {early}"
    );
}

#[test]
fn a_file_is_followed_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sea");
    let mut ended = 0;
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let store = STORES[seed as usize % STORES.len()];
        let history = rotating_history(store, 400, 20, &mut rng);
        let _ = std::fs::remove_file(&path);
        let options = WriterOptions {
            codec: Codec::Lz4,
            chunk_length: 50 + rng.index(100),
        };
        let mut writer =
            HistoryWriter::create_with(&path, &serde_json::json!({}), options).unwrap();
        let checkers: Vec<Box<dyn Checker>> = vec![Box::new(ListAppend::new(Level::Serializable))];
        let mut follower = Follower::open(&path, &checkers, &Aims::default(), 2).unwrap();
        let mut found = 0;
        for op in &history {
            writer.push(op).unwrap();
            if rng.chance(0.1) {
                writer.flush().unwrap();
            }
            if rng.chance(0.05) {
                while follower.advance().unwrap() {}
                assert_eq!(follower.position(), follower.file().len());
                found += follower.look().unwrap().len();
            }
        }
        writer.seal().unwrap();
        while follower.advance().unwrap() {}
        assert!(follower.file().is_complete());
        assert_eq!(follower.position(), history.len() as u64);
        // The partial verdict has the definite findings.
        let partial = follower.partial(&Stopped("stopped".to_owned()));
        let is_invalid = partial[0].valid == Validity::Invalid;
        assert_eq!(is_invalid, !partial[0].findings.is_empty());
        assert!(found == 0 || is_invalid && partial[0].not == ["serializable"]);
        let verdicts = follower.finish(&Unwatched).unwrap().verdicts;
        let whole = ListAppend::new(Level::Serializable).check(&history);
        assert_eq!(essence(&verdicts[0]), essence(&whole), "seed {seed}");
        assert_eq!(verdicts[0].findings.len(), whole.findings.len());
        ended += usize::from(found > 0);
        assert!(found == 0 || whole.valid == Validity::Invalid);
    }
    assert!(ended > 10, "{ended}");
}

/// Follows a file into which these operations are written, piece by piece: how many had been pushed when each checker first had a
/// definite violation, and its partial and final verdicts. Checks run in threads: from this position on the writer waits for
/// them.
fn followed(
    history: &History,
    checkers: &[Box<dyn Checker>],
    patient_from: u64,
) -> Vec<(Option<u64>, Verdict, Verdict)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sea");
    let mut writer = HistoryWriter::create(&path, &serde_json::json!({})).unwrap();
    let mut follower = Follower::open(&path, checkers, &Aims::default(), 2).unwrap();
    let mut found_at: Vec<Option<u64>> = vec![None; checkers.len()];
    let mut look = |follower: &mut Follower<'_>| -> bool {
        while follower.advance().unwrap() {}
        for (name, finding) in follower.look().unwrap() {
            let place = checkers.iter().position(|one| one.name() == name).unwrap();
            assert!(!finding.operations.is_empty(), "{finding:?}");
            found_at[place].get_or_insert(follower.position());
        }
        found_at.iter().all(Option::is_some)
    };
    for ops in history.ops().chunks(500) {
        for op in ops {
            writer.push(op).unwrap();
        }
        writer.flush().unwrap();
        let is_patient = follower.position() >= patient_from;
        for _ in 0..if is_patient { 20_000 } else { 10 } {
            if look(&mut follower) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    writer.seal().unwrap();
    look(&mut follower);
    let partial = follower.partial(&Stopped("stopped".to_owned()));
    let whole = follower.finish(&Unwatched).unwrap().verdicts;
    let verdicts = partial.into_iter().zip(whole);
    let all = found_at.into_iter().zip(verdicts);
    all.map(|(at, (partial, whole))| (at, partial, whole))
        .collect()
}

/// Enqueues and dequeues in turn; the `bad`-th dequeue returns what was never enqueued.
fn queue_history(length: i64, bad: Option<i64>) -> History {
    let mut ops = Vec::new();
    let mut run = |f: &'static str, argument: Value, result: Value| {
        let invocation = Op::invoke(Process::Client(0), f, argument);
        ops.extend([invocation.clone(), invocation.complete(OpType::Ok, result)]);
    };
    for number in 0..length {
        let element = Value::Int(number);
        run("enqueue", element.clone(), element.clone());
        let taken = if bad == Some(number) {
            Value::Int(-1)
        } else {
            element
        };
        // The last one stays in the queue: lost, as far as anyone knows before the end.
        if number + 1 < length {
            run("dequeue", Value::Nil, taken);
        }
    }
    History::from_unindexed(ops)
}

#[test]
fn checkers_of_whole_histories_find_violations_while_it_is_written() {
    let names = ["queue", "total-queue", "fifo-queue", "bag"];
    let checkers = || -> Vec<Box<dyn Checker>> {
        let named = names.iter();
        named
            .map(|name| seatrial_check::by_name(name, None).unwrap())
            .collect()
    };
    let all = followed(&queue_history(5_000, Some(1_000)), &checkers(), 6_500);
    for (name, (found_at, partial, whole)) in names.iter().zip(&all) {
        assert_eq!(whole.valid, Validity::Invalid, "{name}");
        let at = found_at.unwrap_or_else(|| panic!("{name} found nothing before the end"));
        assert!((4_000..=7_000).contains(&at), "{name} at {at}");
        assert_eq!(partial.valid, Validity::Invalid, "{name}: {partial:?}");
        assert_eq!(partial.model, whole.model, "{name}");
        let kinds = |verdict: &Verdict| verdict.anomalies.keys().copied().collect::<Vec<_>>();
        assert!(
            kinds(partial).iter().all(|one| kinds(whole).contains(one)),
            "{name}"
        );
    }
    // A loss that the end would explain is none before.
    for (name, (found_at, partial, _)) in
        names
            .iter()
            .zip(followed(&queue_history(3_000, None), &checkers(), u64::MAX))
    {
        assert_eq!(found_at, None, "{name}");
        assert!(
            matches!(partial.valid, Validity::Unknown(_)),
            "{name}: {partial:?}"
        );
    }
}

/// A queue decides in windows until an element is enqueued again: from then on its follower checks what was written so far, and
/// still finds a violation before the end.
#[test]
fn a_checker_that_gives_up_its_windows_is_followed_by_checks_of_prefixes() {
    let again = |history: &History| -> History {
        let mut ops: Vec<Op> = history.iter().cloned().collect();
        let enqueue = Op::invoke(Process::Client(0), "enqueue", Value::Int(3));
        let dequeue = Op::invoke(Process::Client(0), "dequeue", Value::Nil);
        let repeated = [
            enqueue.clone(),
            enqueue.complete(OpType::Ok, Value::Int(3)),
            dequeue.clone(),
            dequeue.complete(OpType::Ok, Value::Int(3)),
        ];
        // After element 99 was dequeued.
        ops.splice(400..400, repeated);
        History::from_unindexed(ops)
    };
    let checkers = || -> Vec<Box<dyn Checker>> {
        let named = ["fifo-queue", "bag"].iter();
        named
            .map(|name| seatrial_check::by_name(name, None).unwrap())
            .collect()
    };
    let history = again(&queue_history(2_000, Some(500)));
    let aims = Aims {
        early: true,
        ..Aims::default()
    };
    for checker in &checkers() {
        let mut online = checker.start(&aims);
        for chunk in cut(&history, 100, &mut Rng::from_seed(1)) {
            let _ = online.push(&chunk);
            // The windows are checked often enough for element 3 to be forgotten.
            online.search();
        }
        let note = online.progress().note.unwrap_or_default();
        assert_eq!(
            note,
            "3 is added more than once; checked as a whole in the end",
            "{}",
            checker.name()
        );
        assert!(!online.is_early());
    }
    let all = followed(&history, &checkers(), 2_000);
    for (name, (found_at, partial, whole)) in ["fifo-queue", "bag"].iter().zip(&all) {
        let at = found_at.unwrap_or_else(|| panic!("{name} found nothing before the end"));
        assert!((2_000..=6_000).contains(&at), "{name} at {at}");
        assert_eq!(partial.valid, Validity::Invalid, "{name}: {partial:?}");
        assert_eq!(whole.valid, Validity::Invalid, "{name}");
        assert!(!whole.findings.is_empty(), "{name}");
    }
    let valid = followed(&again(&queue_history(1_000, None)), &checkers(), u64::MAX);
    for (name, (found_at, _, whole)) in ["fifo-queue", "bag"].iter().zip(&valid) {
        assert_eq!(
            (found_at, &whole.valid),
            (&None, &Validity::Valid),
            "{name}"
        );
    }
}

#[test]
fn definite_violations_of_a_prefix_are_in_the_verdict_on_the_whole() {
    // Writes of registers, one after another, and one read of what a failed transaction wrote.
    let key = |number: i64| Key::Int(number % 7);
    let mut ops = Vec::new();
    for number in 1..=3_000i64 {
        let write = Mop::Write {
            key: key(number),
            value: number,
        };
        let fails = number == 900;
        let begun = |mop: &Mop| {
            let mops = Value::Txn([mop.clone()].into());
            Op::invoke(Process::Client(0), "txn", mops)
        };
        let completion = if fails { OpType::Fail } else { OpType::Ok };
        let value = Value::Txn([write.clone()].into());
        ops.extend([begun(&write), begun(&write).complete(completion, value)]);
        if fails {
            let read = |observed| Mop::Read {
                key: key(number),
                observed,
            };
            let value = Value::Txn([read(Observed::Register(number))].into());
            let invocation = begun(&read(Observed::Nil));
            ops.extend([invocation.clone(), invocation.complete(OpType::Ok, value)]);
        }
    }
    let checkers = vec![seatrial_check::by_name("rw-register", Some("serializable")).unwrap()];
    let all = followed(&History::from_unindexed(ops), &checkers, 3_500);
    let (found_at, partial, whole) = &all[0];
    assert_eq!(whole.valid, Validity::Invalid);
    assert!(found_at.is_some_and(|at| at <= 4_000), "{found_at:?}");
    assert_eq!(partial.valid, Validity::Invalid);
}
