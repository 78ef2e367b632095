use super::*;
use crate::answer::Answer;
use crate::log::BATCH;
use crate::outcome::Failure;
use seatrial_blocks::{block, frame};
use seatrial_machine::Rng;

const CLIENT: NodeId = NodeId::client(0);

/// A store and its log, driven by hand.
struct Bench {
    store: Store,
    log: Vec<u8>,
    under_way: Option<(Vec<u8>, Ticket)>,
    sent: Vec<Vec<u8>>,
    replies: Vec<(Ticket, Outcome)>,
    now: Time,
}

impl Bench {
    fn boot_with(log: Vec<u8>, options: StoreOptions) -> Bench {
        let (store, report) = Store::boot(&log, options).unwrap();
        let mut bench = Bench {
            store,
            log,
            under_way: None,
            sent: Vec::new(),
            replies: Vec::new(),
            now: Time::ZERO,
        };
        bench.log.truncate(report.recovery.end as usize);
        bench.turn(Input::Wake);
        bench
    }

    fn boot(log: Vec<u8>) -> Bench {
        Bench::boot_with(log, StoreOptions::default())
    }

    /// With a durable boot record and a session.
    fn ready(options: StoreOptions) -> (Bench, u64) {
        let mut bench = Bench::boot_with(Vec::new(), options);
        let session = bench.session();
        (bench, session)
    }

    fn planted(bug: Bug) -> (Bench, u64) {
        Bench::ready(StoreOptions {
            bug: Some(bug),
            ..StoreOptions::default()
        })
    }

    fn turn(&mut self, input: Input<Transaction>) {
        let mut out = Vec::new();
        self.store.turn(self.now, input, &mut out);
        self.store.check_invariants();
        for output in out {
            match output {
                Output::Send { to, message } => {
                    assert_eq!(to, CLIENT);
                    self.sent.push(message);
                }
                Output::Append { bytes, ticket, .. } => {
                    assert!(self.under_way.is_none(), "two appends under way");
                    self.under_way = Some((bytes, ticket));
                }
                Output::Reply(ticket, outcome) => self.replies.push((ticket, outcome)),
                Output::Admit(to) => assert_eq!(to, CLIENT),
                other => panic!("{other:?}"),
            }
        }
    }

    fn message(&mut self, bytes: Vec<u8>) {
        let from = CLIENT;
        self.turn(Input::Message { from, bytes });
    }

    /// Makes the append under way durable, and the next one that begins then; advances the time for a delayed one.
    fn sync(&mut self) {
        loop {
            if let Some((bytes, ticket)) = self.under_way.take() {
                self.log.extend(bytes);
                self.turn(Input::Appended(ticket));
            } else if let Some(at) = self.store.wake_at() {
                self.now = self.now.max(at);
                self.turn(Input::Wake);
            } else {
                return;
            }
        }
    }

    fn session(&mut self) -> u64 {
        self.message(hello(7, VERSION));
        self.sync();
        let welcome = MessageHeader::decode(&self.sent.pop().unwrap()).unwrap();
        assert_eq!(welcome.kind, MessageKind::Welcome);
        assert_eq!((welcome.code, welcome.first), (0, 7));
        welcome.second
    }

    /// Executes remotely, waits until it is durable, and returns the outcome.
    fn execute(&mut self, session: u64, request: u64, transaction: &Transaction) -> Outcome {
        self.message(transaction.clone().into_message(session, request));
        self.sync();
        let reply = self.sent.pop().expect("a reply");
        assert_eq!(MessageHeader::decode(&reply).unwrap().second, request);
        Outcome::from_reply(reply, transaction.len() as u16).unwrap()
    }

    /// The value of `key`.
    fn read(&mut self, key: &[u8]) -> String {
        self.turn(Input::Request(Ticket(0), read(key)));
        self.sync();
        let (_, outcome) = self.replies.pop().unwrap();
        show(&outcome)
    }
}

fn hello(token: u64, version: u8) -> Vec<u8> {
    let header = MessageHeader {
        kind: MessageKind::Hello,
        code: version,
        count: 0,
        detail: 0,
        first: token,
        second: 0,
    };
    header.encode().to_vec()
}

fn read(key: &[u8]) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.read(key).unwrap();
    transaction
}

fn append(key: &[u8], value: &[u8]) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.append(key, value).unwrap();
    transaction
}

fn write(key: &[u8], value: &[u8]) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.write(key, value).unwrap();
    transaction
}

/// Answers as text: `nil`, `done`, `"x"`, `[a b]`.
fn show(outcome: &Outcome) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let Outcome::Ok(answers) = outcome else {
        return format!("{outcome:?}");
    };
    let shown: Vec<String> = answers
        .iter()
        .map(|answer| match answer {
            Answer::Absent => "nil".into(),
            Answer::Done => "done".into(),
            Answer::Register(value) => format!("{:?}", text(value)),
            Answer::List(list) => {
                let elements: Vec<String> = list.iter().map(text).collect();
                format!("[{}]", elements.join(" "))
            }
            Answer::Range(range) => panic!("{range:?}"),
        })
        .collect();
    shown.join(", ")
}

#[test]
fn no_session_opens_before_the_start_is_durable() {
    let mut bench = Bench::boot(Vec::new());
    bench.message(hello(1, VERSION));
    assert!(bench.sent.is_empty());
    bench.sync();
    assert_eq!(bench.sent.len(), 1);
    let first = MessageHeader::decode(&bench.sent[0]).unwrap().second;
    assert_eq!(first >> 32, 1);
    let second = Bench::boot(bench.log).session();
    assert_eq!(second >> 32, 2);
}

#[test]
fn the_bytes_on_the_wire_are_the_documented_ones() {
    let mut bench = Bench::boot(Vec::new());
    let hello = b"\x01\x02\0\0\0\0\0\0TOKEN\0\0\x01\0\0\0\0\0\0\0\0";
    bench.message(hello.to_vec());
    bench.sync();
    let welcome = b"\x03\0\x80\0\x02\0\0\0TOKEN\0\0\x01\x01\0\0\0\x01\0\0\0";
    assert_eq!(bench.sent.pop().unwrap(), welcome);
    let request = b"\x02\0\x02\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\
        \x03\x01\0k\x02\0\0\0ab\x01\x01\0k";
    bench.message(request.to_vec());
    bench.sync();
    let reply = b"\x04\0\x02\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\
        \x03\x02\x01\0\0\0\x06\0\0\0\x02\0\0\0ab";
    assert_eq!(bench.sent.pop().unwrap(), reply);
}

#[test]
fn another_protocol_version_is_refused() {
    let mut bench = Bench::boot(Vec::new());
    bench.message(hello(5, 9));
    let refusal = MessageHeader::decode(&bench.sent[0]).unwrap();
    assert_eq!(refusal.outcome(), Ok(Code::WrongVersion));
    assert_eq!((refusal.detail, refusal.first, refusal.second), (2, 5, 0));
}

#[test]
fn replies_wait_for_the_log_reads_and_aborts_too() {
    let (mut bench, session) = Bench::ready(StoreOptions::default());
    bench.message(read(b"a").into_message(session, 1));
    assert_eq!(bench.sent.len(), 1, "nothing to wait for");
    bench.message(append(b"a", b"1").into_message(session, 2));
    bench.message(read(b"a").into_message(session, 3));
    bench.message(write(b"a", b"1").into_message(session, 4));
    assert_eq!(bench.sent.len(), 1, "the append is not durable");
    bench.sync();
    assert_eq!(bench.sent.len(), 4);
    let codes = bench.sent.iter().map(|reply| reply[1]);
    assert!(codes.eq([0, 0, 0, Code::WrongKind as u8]));
}

#[test]
fn commands_gather_while_one_block_is_under_way() {
    let (mut bench, session) = Bench::ready(StoreOptions::default());
    for request in 1..=100 {
        bench.message(append(b"a", b"x").into_message(session, request));
    }
    let blocks = |log: &Vec<u8>| seatrial_blocks::recover(log, 0).unwrap().blocks;
    let before = blocks(&bench.log);
    bench.sync();
    assert_eq!(
        blocks(&bench.log) - before,
        2,
        "the first, and the other 99"
    );
    assert_eq!(bench.sent.len(), 100);
}

#[test]
fn no_delivery_is_executed_twice() {
    let (mut bench, session) = Bench::ready(StoreOptions::default());
    let mut failing = append(b"a", b"lost");
    failing.compare_and_set(b"b", Some(b"1"), b"2").unwrap();
    let first = append(b"a", b"1").into_message(session, 1);
    let second = failing.into_message(session, 2);
    bench.message(first.clone());
    bench.message(first.clone());
    bench.sync();
    bench.message(second.clone());
    bench.sync();
    assert_eq!(bench.sent.len(), 2);
    // Now the compare would succeed.
    bench.execute(session, 3, &write(b"b", b"1"));
    for copy in [&first, &second] {
        bench.message(copy.clone());
        bench.sync();
    }
    assert_eq!(bench.sent.len(), 2, "copies are not answered");
    assert_eq!(bench.read(b"a"), "[1]");
    let mut bench = Bench::boot(bench.log);
    for copy in [&first, &second] {
        bench.message(copy.clone());
        let refusal = MessageHeader::decode(&bench.sent.pop().unwrap()).unwrap();
        assert_eq!(refusal.outcome(), Ok(Code::WrongSession));
        assert_eq!(refusal.first, session);
    }
    assert_eq!(bench.read(b"a"), "[1]");
}

#[test]
fn a_full_queue_refuses_for_good() {
    let (mut bench, session) = Bench::ready(StoreOptions {
        waiting_max: 3,
        ..StoreOptions::default()
    });
    let requests: Vec<Vec<u8>> = (1..=4)
        .map(|request| append(b"a", b"x").into_message(session, request))
        .collect();
    for request in &requests {
        bench.message(request.clone());
    }
    assert_eq!(bench.sent.len(), 1);
    let refused = bench.sent.pop().unwrap();
    let outcome = Outcome::from_reply(refused, 1).unwrap();
    assert_eq!(outcome, Outcome::Failed(Failure::Overloaded));
    bench.message(hello(9, VERSION));
    let refused = MessageHeader::decode(&bench.sent.pop().unwrap()).unwrap();
    assert_eq!(refused.outcome(), Ok(Code::Overloaded));
    bench.sync();
    // A copy of what was refused is not executed either.
    bench.message(requests[3].clone());
    bench.sync();
    assert_eq!(bench.read(b"a"), "[x x x]");
}

#[test]
fn full_memory_refuses_too() {
    let (mut bench, session) = Bench::ready(StoreOptions::default());
    let value = vec![b'x'; 64 << 10];
    let (mut writes, mut appends) = (Transaction::new(), Transaction::new());
    for index in 0..15 {
        writes.write(&[b'r', index], &value).unwrap();
        appends.append(b"list", &value).unwrap();
    }
    let refused = |bench: &mut Bench| -> Vec<usize> {
        bench.sync();
        let is_refused = |(_, reply): &(usize, Vec<u8>)| reply[1] == Code::Overloaded as u8;
        let refused = bench.sent.drain(..).enumerate().filter(is_refused);
        refused.map(|(index, _)| index).collect()
    };
    // Almost one MiB each: the first is under way, and 17 find room in 16 MiB.
    for request in 1..=20 {
        bench.message(writes.clone().into_message(session, request));
    }
    assert_eq!(refused(&mut bench), [0, 1], "and they are refused first");
    bench.message(appends.into_message(session, 21));
    assert_eq!(refused(&mut bench), [0; 0]);
    // After a write that is under way, 5 reads of almost 1 MiB are this client's share of 32 MiB; local reads fill the rest.
    bench.message(write(b"b", b"1").into_message(session, 22));
    for request in 23..=100 {
        bench.message(read(b"list").into_message(session, request));
    }
    let others = |bench: &mut Bench| bench.store.waiting_length;
    assert!(others(&mut bench) > 4 << 20);
    assert_eq!(refused(&mut bench).len(), 78 - 5);
    assert!(bench.store.shares.is_empty(), "all were sent");
    bench.message(write(b"b", b"2").into_message(session, 101));
    for ticket in 1..=40 {
        let mut long = Transaction::new();
        long.read(b"list").unwrap();
        bench.turn(Input::Request(Ticket(ticket), long));
    }
    bench.sync();
    let overloaded = |reply: &&(Ticket, Outcome)| reply.1 == Outcome::Failed(Failure::Overloaded);
    assert_eq!(bench.replies.iter().filter(overloaded).count(), 40 - 35);
}

#[test]
fn malformed_requests_are_answered_once_and_change_nothing() {
    let (mut bench, session) = Bench::ready(StoreOptions::default());
    let mut cut = append(b"a", b"xyz").into_message(session, 1);
    cut.pop();
    bench.message(cut);
    let outcome = Outcome::from_reply(bench.sent.pop().unwrap(), 1).unwrap();
    assert_eq!(outcome, Outcome::Failed(Failure::Malformed));
    bench.message(append(b"a", b"xyz").into_message(session, 1));
    assert!(bench.sent.is_empty());
    assert_eq!(bench.read(b"a"), "nil");
    let mut strange = append(b"a", b"x").into_message(session, 2);
    strange[4] = 1;
    bench.message(strange);
    assert_eq!(bench.sent.pop().unwrap()[1], Code::Malformed as u8);
}

/// A run of random transactions by a few clients, synced now and then. Returns the log, and for each reply the
/// length of the log when it was given and how many commands had been executed by then.
struct Run {
    log: Vec<u8>,
    /// The effect of each command that changed the state.
    states: Vec<String>,
    /// Log length and executed commands at each reply.
    acknowledged: Vec<(usize, usize)>,
}

const KEYS: [&[u8]; 4] = [b"a", b"b", b"k", b"l"];

fn everything(store: &mut Store) -> String {
    let mut transaction = Transaction::new();
    for key in KEYS {
        transaction.read(key).unwrap();
    }
    let mut message = vec![0; HEADER_LENGTH];
    let mut answers = Vec::new();
    let operations = transaction.operations();
    store.state.execute(operations, 0, &mut answers).unwrap();
    message[0] = MessageKind::Reply as u8;
    message[2] = KEYS.len() as u8;
    message.extend(answers);
    show(&Outcome::from_reply(message, KEYS.len() as u16).unwrap())
}

fn random_run(seed: u64, steps: u64) -> Run {
    let mut rng = Rng::from_seed(seed);
    let mut bench = Bench::boot(Vec::new());
    bench.sync();
    let mut run = Run {
        log: Vec::new(),
        states: vec![everything(&mut bench.store)],
        acknowledged: Vec::new(),
    };
    // Commands executed when a request was, by ticket.
    let mut executed: Vec<usize> = Vec::new();
    let mut last = Vec::new();
    for step in 0..steps {
        let mut transaction = Transaction::new();
        for index in 0..=rng.below(3) {
            // Never used before, so that every command leaves another state.
            let value = format!("{step}.{index}").into_bytes();
            let expected = rng.chance(0.3).then_some(&last[..]);
            match rng.below(4) {
                0 => transaction.read(KEYS[rng.index(4)]),
                1 => transaction.write(KEYS[rng.index(2)], &value),
                2 => transaction.compare_and_set(KEYS[rng.index(2)], expected, &value),
                _ => transaction.append(KEYS[2 + rng.index(2)], &value),
            }
            .unwrap();
            last = value;
        }
        let before = everything(&mut bench.store);
        bench.turn(Input::Request(Ticket(step), transaction));
        let after = everything(&mut bench.store);
        if after != before {
            run.states.push(after);
        }
        executed.push(run.states.len() - 1);
        if rng.chance(0.4)
            && let Some((bytes, ticket)) = bench.under_way.take()
        {
            bench.log.extend(bytes);
            bench.turn(Input::Appended(ticket));
        }
        for (ticket, _) in bench.replies.drain(..) {
            let commands = executed[ticket.0 as usize];
            run.acknowledged.push((bench.log.len(), commands));
        }
    }
    // The append under way may be on the medium completely or in part.
    bench
        .log
        .extend(bench.under_way.into_iter().flat_map(|(bytes, _)| bytes));
    run.log = bench.log;
    run
}

#[test]
fn a_crash_at_any_byte_loses_nothing_that_was_acknowledged() {
    for seed in 0..6 {
        let run = random_run(seed, 40);
        for cut in 0..=run.log.len() {
            let log = &&run.log[..cut];
            let (mut store, report) = Store::boot(log, StoreOptions::default()).unwrap();
            let state = everything(&mut store);
            let durable = run.acknowledged.iter().filter(|(length, _)| *length <= cut);
            let least = durable.map(|(_, commands)| *commands).max().unwrap_or(0);
            let commands = report.commands as usize;
            assert_eq!(state, run.states[commands], "seed {seed}, cut at {cut}");
            assert!(
                commands >= least,
                "seed {seed}, cut at {cut}: {commands} < {least}"
            );
            assert!(report.recovery.end as usize <= cut);
        }
        let (mut store, report) = Store::boot(&run.log, StoreOptions::default()).unwrap();
        assert_eq!(report.recovery.torn, None);
        // One block was still gathering when the run ended.
        let logged = &run.states[report.commands as usize];
        assert_eq!(everything(&mut store), *logged, "seed {seed}");
        assert!(report.commands > 10, "seed {seed}");
    }
}

#[test]
fn damage_in_the_middle_of_the_log_is_an_error() {
    let run = random_run(1, 60);
    let mut rng = Rng::from_seed(2);
    let last = run.log.len() - run.log.len() / 4;
    for _ in 0..200 {
        let mut log = run.log.clone();
        let at = rng.index(last);
        log[at] ^= 1 << rng.below(8);
        let error = Store::boot(&log, StoreOptions::default()).unwrap_err();
        assert!(matches!(error, BootError::Log(_)), "flip at {at}: {error}");
    }
}

#[test]
fn records_that_a_store_does_not_write_are_named() {
    let boot_error = |records: &[(u32, Vec<u8>)], kind| {
        let mut log = Vec::new();
        let start = block::begin(&mut log);
        for (flags, payload) in records {
            frame::write(&mut log, *flags, payload);
        }
        block::finish_plain(&mut log, start, kind, 0, 0);
        let error = Store::boot(&log, StoreOptions::default()).unwrap_err();
        error.to_string()
    };
    let start = |incarnation| (BOOT, boot::record(incarnation).to_vec());
    let command = |transaction: Transaction| (COMMAND, transaction.into_message(1, 1));
    let error = boot_error(&[], block::BlockKind(16));
    assert!(error.contains("kind 16"), "{error}");
    let error = boot_error(&[start(2), start(2)], BATCH);
    assert!(error.contains("start 2 after start 2"), "{error}");
    let error = boot_error(&[start(1), (BOOT, vec![2; 3])], BATCH);
    assert!(error.contains("byte 16 "), "{error}");
    let error = boot_error(&[(5, vec![])], BATCH);
    assert!(error.contains("flags 5"), "{error}");
    let error = boot_error(&[command(read(b"a"))], BATCH);
    assert!(error.contains("changes nothing"), "{error}");
    let contradiction = [command(write(b"a", b"1")), command(append(b"a", b"1"))];
    let error = boot_error(&contradiction, BATCH);
    assert!(error.contains("does not commit again"), "{error}");
    let mut beheaded = Vec::new();
    block::write(&mut beheaded, BATCH, 0, 7, &[], 0);
    let error = Store::boot(&beheaded, StoreOptions::default()).unwrap_err();
    let expected = "expected block number 0, found 7";
    assert!(error.to_string().contains(expected), "{error}");
}

/// Anything may come over the wire; the store stays whole, and what it says is readable.
fn fuzz_one(bench: &mut Bench, bytes: Vec<u8>) {
    bench.message(bytes);
    for message in bench.sent.drain(..) {
        let header = MessageHeader::decode(&message).unwrap();
        if header.kind == MessageKind::Reply {
            Outcome::from_reply(message, header.count).unwrap();
        }
    }
}

#[test]
fn arbitrary_messages_never_panic() {
    let (mut bench, session) = Bench::ready(StoreOptions::default());
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let mut transaction = Transaction::new();
        for _ in 0..rng.below(4) {
            transaction.append(KEYS[rng.index(4)], b"v").unwrap();
            transaction.write(KEYS[rng.index(4)], b"v").unwrap();
            transaction.read(KEYS[rng.index(4)]).unwrap();
        }
        let mut bytes = transaction.into_message(session, seed + 1);
        if rng.chance(0.1) {
            bytes = hello(seed, VERSION);
        }
        for _ in 0..rng.below(4) {
            let at = rng.index(bytes.len());
            bytes[at] = *rng.pick(&[0, 1, 2, 3, 4, 255, rng.clone().word() as u8]);
        }
        bytes.truncate(rng.index(bytes.len() * 3 + 1));
        fuzz_one(&mut bench, bytes);
        if rng.chance(0.05) {
            bench.sync();
        }
    }
    bench.sync();
    let state = everything(&mut bench.store);
    let mut again = Bench::boot(bench.log);
    assert_eq!(everything(&mut again.store), state);
}

#[test]
fn planted_ack_before_append_answers_what_a_crash_loses() {
    let (mut bench, session) = Bench::planted(Bug::AckBeforeAppend);
    bench.message(append(b"a", b"1").into_message(session, 1));
    assert_eq!(bench.sent.len(), 1, "acknowledged");
    assert!(
        bench.under_way.is_none(),
        "and not even on its way to the log"
    );
    assert_eq!(Bench::boot(bench.log.clone()).read(b"a"), "nil");
    bench.sync();
    assert_eq!(
        Bench::boot(bench.log).read(b"a"),
        "[1]",
        "without a crash all is well"
    );
}

#[test]
fn planted_stale_read_reads_the_past() {
    let (mut bench, session) = Bench::planted(Bug::StaleRead);
    assert_eq!(show(&bench.execute(session, 1, &read(b"a"))), "nil");
    assert_eq!(show(&bench.execute(session, 2, &write(b"a", b"1"))), "done");
    assert_eq!(show(&bench.execute(session, 3, &read(b"a"))), "nil");
    bench.now += STALE_INTERVAL;
    assert_eq!(show(&bench.execute(session, 4, &read(b"a"))), "\"1\"");
}

#[test]
fn planted_lost_append_loses_within_a_group_commit() {
    let (mut bench, session) = Bench::planted(Bug::LostAppend);
    for (request, value) in [b"1", b"2", b"3"].into_iter().enumerate() {
        let request = request as u64 + 1;
        bench.message(append(b"a", value).into_message(session, request));
    }
    bench.sync();
    assert_eq!(bench.read(b"a"), "[1 3]");
    let options = bench.store.options.clone();
    assert_eq!(Bench::boot_with(bench.log, options).read(b"a"), "[1 3]");
}

#[test]
fn planted_dirty_abort_leaves_an_effect_that_survives_a_restart() {
    let (mut bench, session) = Bench::planted(Bug::DirtyAbort);
    let mut failing = write(b"a", b"dirty");
    failing.compare_and_set(b"b", Some(b"1"), b"2").unwrap();
    let failure = Failure::CompareFailed { operation: 1 };
    assert_eq!(
        bench.execute(session, 1, &failing),
        Outcome::Failed(failure)
    );
    assert_eq!(bench.read(b"a"), "\"dirty\"");
    let options = bench.store.options.clone();
    assert_eq!(Bench::boot_with(bench.log, options).read(b"a"), "\"dirty\"");
}
