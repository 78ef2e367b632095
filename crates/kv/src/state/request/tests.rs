use super::*;
use seatrial_kv_protocol::message::WINDOW;
use seatrial_kv_protocol::{Answer, Failure, Outcome, Transaction};
use seatrial_machine::Rng;

/// The message of a request whose client has finished every id below `acknowledged`.
fn message(transaction: &Transaction, session: u64, id: u64, acknowledged: u64) -> Vec<u8> {
    let mut message = transaction.clone().into_message(session, id);
    let detail = (id - acknowledged) as u32;
    message[4..8].copy_from_slice(&detail.to_le_bytes());
    message
}

fn append(id: u64) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.append(b"list", &id.to_le_bytes()).unwrap();
    transaction
}

/// The elements of the list.
fn elements(state: &StoreState) -> Vec<u64> {
    let mut read = Transaction::new();
    read.read(b"list").unwrap();
    let reply = state.read(&read.into_message(0, 9)).to_vec();
    let Ok(Outcome::Ok(answers)) = Outcome::from_reply(reply, 1) else {
        panic!("a read commits")
    };
    match answers.iter().next() {
        Some(Answer::Absent) => Vec::new(),
        Some(Answer::List(list)) => {
            let elements = list.iter().map(|it| it.try_into().map(u64::from_le_bytes));
            elements.collect::<Result<_, _>>().unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// A client that repeats each request until it has the reply, over a network that repeats, delays and reorders; from time to time
/// the state is restored from a snapshot's parts. Each request takes effect exactly once, and its reply is the first one's.
#[test]
fn each_request_is_executed_exactly_once_however_often_it_comes() {
    for seed in 0..100 {
        let mut rng = Rng::from_seed(seed);
        let mut state = StoreState::default();
        let session = state.sessions().open(Time::ZERO).unwrap();
        let (mut oldest, mut next) = (1, 1);
        let mut finished = std::collections::BTreeSet::new();
        let mut network: Vec<Vec<u8>> = Vec::new();
        while oldest <= 300 {
            if next < oldest + WINDOW && rng.chance(0.3) {
                next += 1;
            }
            // The client sends, or sends again.
            let id = oldest + rng.below(next - oldest + 1).min(next - oldest);
            if id < next && !finished.contains(&id) {
                network.push(message(&append(id), session, id, oldest));
            }
            if network.is_empty() {
                continue;
            }
            let at = rng.index(network.len());
            let request = if rng.chance(0.2) {
                network[at].clone()
            } else {
                network.swap_remove(at)
            };
            let id = MessageHeader::decode(&request).unwrap().second;
            match state.apply(&request, Time::ZERO, 0) {
                AppliedRequest::Reply(reply) => {
                    let header = MessageHeader::decode(&reply).unwrap();
                    assert_eq!(header.outcome(), Ok(Code::Committed), "seed {seed}");
                    assert_eq!((header.first, header.second), (session, id));
                    if rng.chance(0.6) {
                        finished.insert(id);
                    }
                }
                AppliedRequest::Dropped => assert!(finished.contains(&id), "seed {seed}: {id}"),
            }
            while finished.contains(&oldest) {
                oldest += 1;
            }
            if rng.chance(0.01) {
                let snapshot = state.snapshot();
                state = StoreState::restore(snapshot.items.clone(), snapshot.sessions.clone());
            }
        }
        let mut elements = elements(&state);
        elements.sort_unstable();
        assert!(
            elements.windows(2).all(|pair| pair[0] < pair[1]),
            "twice: seed {seed}"
        );
        assert!(
            (1..300).all(|id| elements.contains(&id)),
            "lost: seed {seed}"
        );
    }
}

#[test]
fn an_abort_is_remembered_like_a_commit() {
    let mut state = StoreState::default();
    let session = state.sessions().open(Time::ZERO).unwrap();
    let mut transaction = append(1);
    transaction.write(b"list", b"x").unwrap();
    let first = message(&transaction, session, 1, 1);
    let reply = state.apply(&first, Time::ZERO, 0);
    let AppliedRequest::Reply(bytes) = &reply else {
        panic!("{reply:?}")
    };
    let outcome = Outcome::from_reply(bytes.to_vec(), 2).unwrap();
    let failure = Failure::WrongKind { operation: 1 };
    assert_eq!(outcome, Outcome::Failed(failure));
    assert_eq!(elements(&state), [0; 0]);
    assert_eq!(state.apply(&first, Time::ZERO, 0), reply);
}

#[test]
fn an_unknown_session_is_answered_and_changes_nothing() {
    let mut state = StoreState::default();
    let request = message(&append(1), 7, 1, 1);
    let AppliedRequest::Reply(reply) = state.apply(&request, Time::ZERO, 0) else {
        panic!("no reply")
    };
    let header = MessageHeader::decode(&reply).unwrap();
    assert_eq!(header.outcome(), Ok(Code::WrongSession));
    assert_eq!(
        (header.first, header.second, reply.len()),
        (7, 1, HEADER_LENGTH)
    );
    assert_eq!(elements(&state), [0; 0]);
}

#[test]
fn a_read_request_with_a_change_is_refused() {
    let mut state = StoreState::default();
    let session = state.sessions().open(Time::ZERO).unwrap();
    state.apply(&message(&append(5), session, 1, 1), Time::ZERO, 0);
    let snapshot = state.snapshot();
    state.apply(&message(&append(6), session, 2, 2), Time::ZERO, 0);
    let mut mixed = Transaction::new();
    mixed.scan(b"", None, 9).unwrap();
    let read = mixed.clone().into_message(0, 1);
    assert_ne!(
        state.read(&read),
        snapshot.read(&read),
        "each on its own index"
    );
    mixed.append(b"list", b"x").unwrap();
    let reply = state.read(&mixed.into_message(0, 1));
    let header = MessageHeader::decode(&reply).unwrap();
    assert_eq!((header.outcome(), header.detail), (Ok(Code::Malformed), 1));
    assert_eq!(elements(&state), [5, 6]);
}

#[test]
fn arbitrary_requests_never_panic_and_equal_states_stay_equal() {
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let (mut one, mut other) = (StoreState::default(), StoreState::default());
        let session = one.sessions().open(Time::ZERO).unwrap();
        assert_eq!(other.sessions().open(Time::ZERO), Some(session));
        for _ in 0..4 {
            let mut transaction = append(rng.below(4));
            transaction.delete(b"list").unwrap();
            transaction.write(b"a", b"1").unwrap();
            let mut request = message(&transaction, session, 1 + rng.below(3), 1);
            for _ in 0..rng.below(4) {
                let at = rng.index(request.len());
                request[at] = *rng.pick(&[0, 1, 2, 4, 6, 255, rng.clone().word() as u8]);
            }
            request.truncate(rng.index(request.len() * 2 + 1));
            one.read(&request);
            let now = Time::from_nanoseconds(rng.word());
            assert_eq!(one.apply(&request, now, 1), other.apply(&request, now, 1));
            one.sessions.check_invariants();
            one.items.check_size();
        }
        assert_eq!(one.items, other.items);
        assert_eq!(one.sessions, other.sessions);
    }
}
