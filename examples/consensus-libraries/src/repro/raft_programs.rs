//! raft 0.7.0: what breaks without the rules of `seatrial-consensus`.

use raft::eraftpb::{ConfChange, ConfChangeType, Entry, Message, MessageType, Snapshot};
use raft::storage::MemStorage;
use raft::{Config, RawNode, StateRole};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Node `id` of a cluster with these voters.
fn node(id: u64, voters: Vec<u64>) -> RawNode<MemStorage> {
    let config = Config {
        id,
        election_tick: 10,
        heartbeat_tick: 2,
        ..Config::default()
    };
    let storage = MemStorage::new_with_conf_state((voters, vec![]));
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&config, storage, &logger).unwrap()
}

/// A message to node 1.
fn message(kind: MessageType, from: u64, term: u64) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (from, 1, term);
    message
}

/// The acknowledgement of an append.
fn acknowledgement(from: u64, term: u64, index: u64) -> Message {
    let mut reply = message(MessageType::MsgAppendResponse, from, term);
    reply.index = index;
    reply
}

/// An append of one entry of this term at index 1.
fn append(from: u64, term: u64, commit: u64) -> Message {
    let mut append = message(MessageType::MsgAppend, from, term);
    let entry = Entry {
        term,
        index: 1,
        ..Entry::default()
    };
    append.set_entries(vec![entry].into());
    append.commit = commit;
    append
}

/// Everything that is ready is stored; if `is_durable`, the library hears of it. Returns the number of the last `Ready`.
fn store(node: &mut RawNode<MemStorage>, is_durable: bool) -> u64 {
    let mut number = 0;
    while node.has_ready() {
        let ready = node.ready();
        number = ready.number();
        let storage = node.store().clone();
        if !ready.snapshot().is_empty() {
            storage
                .wl()
                .apply_snapshot(ready.snapshot().clone())
                .unwrap();
        }
        storage.wl().append(ready.entries()).unwrap();
        if let Some(state) = ready.hs() {
            storage.wl().set_hardstate(state.clone());
        }
        node.advance_append_async(ready);
        if is_durable {
            node.on_persist_ready(number);
        }
    }
    number
}

/// Node 1 leads the cluster of these voters; its first entry is durable.
fn leader(voters: Vec<u64>) -> RawNode<MemStorage> {
    let others: Vec<u64> = voters.iter().copied().filter(|id| *id != 1).collect();
    let mut node = node(1, voters);
    node.campaign().unwrap();
    store(&mut node, true);
    for from in others {
        let vote = message(MessageType::MsgRequestVoteResponse, from, node.raft.term);
        node.step(vote).unwrap();
    }
    assert_eq!(node.raft.state, StateRole::Leader);
    store(&mut node, true);
    node
}

/// The text of a panic of the library.
fn panic_of(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it does not panic any more");
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

#[test]
fn rule_1_election_timeouts_are_not_seeded() {
    let timeouts = || -> Vec<usize> {
        let draw = |_| node(1, vec![1, 2, 3]).raft.randomized_election_timeout();
        (0..100).map(draw).collect()
    };
    assert_ne!(timeouts(), timeouts());
}

#[test]
fn rule_2_applied_before_durable() {
    let mut node = node(1, vec![1, 2, 3]);
    node.step(append(2, 1, 1)).unwrap(); // committed by the others
    store(&mut node, false);
    let text = panic_of(|| node.advance_apply_to(1));
    assert!(text.contains("applied(1) is out of range"), "{text}");
}

#[test]
fn rule_3_an_election_while_a_snapshot_is_installed() {
    let mut node = node(1, vec![1, 2, 3]);
    let mut install = message(MessageType::MsgSnapshot, 2, 1);
    let mut snapshot = Snapshot::default();
    (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (5, 1);
    snapshot.mut_metadata().mut_conf_state().voters = vec![1, 2, 3];
    install.set_snapshot(snapshot);
    node.step(install).unwrap();
    store(&mut node, false); // the state is being written
    let text = panic_of(|| (0..30).for_each(|_| _ = node.tick()));
    assert!(
        text.contains("unexpected error getting unapplied entries"),
        "{text}"
    );
}

#[test]
fn rule_4_compaction_before_applied() {
    let mut node = leader(vec![1]);
    node.propose(vec![], b"x".to_vec()).unwrap();
    store(&mut node, true); // two entries committed, none reported as applied
    node.store().wl().compact(2).unwrap(); // drops the first
    node.raft.become_follower(2, 0);
    let text = panic_of(|| drop(node.campaign()));
    assert!(
        text.contains("unexpected error getting unapplied entries"),
        "{text}"
    );
}

#[test]
fn rule_5_a_leader_that_was_removed() {
    let mut node = leader(vec![1, 2, 3]);
    node.propose(vec![], b"x".to_vec()).unwrap();
    let number = store(&mut node, false); // the entry is being written
    let mut removal = ConfChange {
        node_id: 1,
        ..ConfChange::default()
    };
    removal.set_change_type(ConfChangeType::RemoveNode);
    node.apply_conf_change(&removal).unwrap(); // committed before the entry
    assert_eq!(node.raft.state, StateRole::Leader);
    let text = panic_of(|| node.on_persist_ready(number));
    assert!(
        text.contains("called `Option::unwrap()` on a `None` value"),
        "{text}"
    );
}

#[test]
fn rule_6_a_snapshot_without_a_report() {
    let mut node = leader(vec![1, 2]);
    let progress = node.raft.mut_prs().get_mut(2).unwrap();
    progress.become_snapshot(1); // the snapshot was sent, and lost
    for _ in 0..10_000 {
        node.tick();
        node.step(message(
            MessageType::MsgHeartbeatResponse,
            2,
            node.raft.term,
        ))
        .unwrap();
        for sent in store_and_take(&mut node) {
            assert_eq!(sent.get_msg_type(), MessageType::MsgHeartbeat); // never the snapshot again
        }
    }
}

/// As [`store`], and returns what a leader sends.
fn store_and_take(node: &mut RawNode<MemStorage>) -> Vec<Message> {
    let mut sent = Vec::new();
    while node.has_ready() {
        let mut ready = node.ready();
        sent.extend(ready.take_messages());
        node.store().wl().append(ready.entries()).unwrap();
        let number = ready.number();
        node.advance_append_async(ready);
        node.on_persist_ready(number);
    }
    sent
}

#[test]
fn rule_7_a_snapshot_that_does_not_know_its_receiver() {
    let mut node = node(1, vec![]); // joins
    let mut install = message(MessageType::MsgSnapshot, 2, 1);
    let mut snapshot = Snapshot::default();
    (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (5, 1);
    snapshot.mut_metadata().mut_conf_state().voters = vec![2, 3]; // made before it joined
    install.set_snapshot(snapshot);
    node.step(install).unwrap();
    assert!(node.snap().is_none()); // ignored: the reply asks for it again
    let reply = node.ready().take_persisted_messages().pop().unwrap();
    assert_eq!(
        (reply.get_msg_type(), reply.index),
        (MessageType::MsgAppendResponse, 0)
    );
}

#[test]
fn rule_8_nested_groups_are_refused() {
    use protobuf::Message as _;
    let groups = vec![0x1b; 1_000_000]; // "field 3, a group begins", a million times
    assert!(Message::parse_from_bytes(&groups).is_err());
}

#[test]
fn rule_9_an_acknowledgement_of_entries_that_do_not_exist() {
    let mut leader = leader(vec![1, 2, 3]);
    let term = leader.raft.term;
    leader.step(acknowledgement(2, term, 100)).unwrap(); // accepted: "matched up to 100"
    leader.step(acknowledgement(3, term, 1)).unwrap(); // entry 1 is committed
    let mut sent = store_and_take(&mut leader);
    sent.retain(|sent| sent.to == 2 && sent.get_msg_type() == MessageType::MsgAppend);
    let append = sent.pop().unwrap();
    assert_eq!((append.index, append.log_term), (100, 0)); // there is no entry 100
    let mut follower = node(2, vec![1, 2, 3]); // nor here: "both have term 0"
    let text = panic_of(|| drop(follower.step(append)));
    assert!(
        text.contains("to_commit 1 is out of range [last_index 0]"),
        "{text}"
    );
}

#[test]
fn rule_9_a_late_rejection_makes_the_leader_probe_below_the_match() {
    let mut node = leader(vec![1, 2]);
    let term = node.raft.term;
    (0..9).for_each(|_| node.propose(vec![], b"x".to_vec()).unwrap());
    store(&mut node, true);
    node.step(acknowledgement(2, term, 5)).unwrap();
    let progress = node.raft.mut_prs().get_mut(2).unwrap();
    progress.become_probe(); // for example: the transport reports the node as unreachable
    let mut late = acknowledgement(2, term, 5); // a rejection from before, of the append after 5
    (late.reject, late.reject_hint) = (true, 1);
    node.step(late).unwrap();
    let progress = node.raft.prs().get(2).unwrap();
    assert!(progress.next_idx <= progress.matched, "{progress:?}");
}
