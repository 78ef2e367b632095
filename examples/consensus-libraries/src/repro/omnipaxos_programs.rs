//! omnipaxos 0.2.4: six faults.

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::Message;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::storage::{Entry, Snapshot, Storage};
use omnipaxos::util::LogEntry;
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};
use omnipaxos_storage::memory_storage::MemoryStorage;

/// An entry; `SNAPSHOTS`: may the log be compacted?
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number<const SNAPSHOTS: bool>(u64);

/// The numbers of a prefix of the log.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Numbers(Vec<u64>);

impl<const SNAPSHOTS: bool> Entry for Number<SNAPSHOTS> {
    type Snapshot = Numbers;
}

impl<const SNAPSHOTS: bool> Snapshot<Number<SNAPSHOTS>> for Numbers {
    fn create(entries: &[Number<SNAPSHOTS>]) -> Numbers {
        Numbers(entries.iter().map(|entry| entry.0).collect())
    }

    fn merge(&mut self, delta: Numbers) {
        self.0.extend(delta.0);
    }

    fn use_snapshots() -> bool {
        SNAPSHOTS
    }
}

type Node<const S: bool> = OmniPaxos<Number<S>, MemoryStorage<Number<S>>>;
type Sent<const S: bool> = Message<Number<S>>;

/// Three nodes and the network between them.
struct Cluster<const S: bool> {
    nodes: Vec<Node<S>>,
}

fn config() -> ClusterConfig {
    ClusterConfig {
        configuration_id: 1,
        nodes: vec![1, 2, 3],
        flexible_quorum: None,
    }
}

fn start<const S: bool>(pid: u64, storage: MemoryStorage<Number<S>>) -> Node<S> {
    let server = ServerConfig {
        pid,
        election_tick_timeout: 5,
        resend_message_tick_timeout: 10,
        ..ServerConfig::default()
    };
    config().build_for_server(server, storage).unwrap()
}

impl<const S: bool> Cluster<S> {
    fn new() -> Cluster<S> {
        let nodes = (1..=3).map(|pid| start(pid, MemoryStorage::default()));
        Cluster {
            nodes: nodes.collect(),
        }
    }

    fn node(&mut self, pid: u64) -> &mut Node<S> {
        &mut self.nodes[pid as usize - 1]
    }

    /// Delivers messages in order until there are none. Returns the messages that `passes` holds back.
    fn deliver_if(&mut self, passes: impl Fn(&Sent<S>) -> bool) -> Vec<Sent<S>> {
        let mut held = Vec::new();
        loop {
            let mut sent = Vec::new();
            for node in &mut self.nodes {
                node.take_outgoing_messages(&mut sent);
            }
            if sent.is_empty() {
                return held;
            }
            for message in sent {
                if passes(&message) {
                    self.node(message.get_receiver()).handle_incoming(message);
                } else {
                    held.push(message);
                }
            }
        }
    }

    fn deliver(&mut self) {
        self.deliver_if(|_| true);
    }

    /// Delivers everything but the messages from and to this node.
    fn deliver_without(&mut self, pid: u64) -> Vec<Sent<S>> {
        self.deliver_if(|sent| sent.get_sender() != pid && sent.get_receiver() != pid)
    }

    fn append(&mut self, leader: u64, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.node(leader).append(Number(number)).unwrap();
        }
    }

    /// The decided numbers of a node as it reads them.
    fn decided(&mut self, pid: u64) -> Vec<u64> {
        let entries = self.node(pid).read_decided_suffix(0).unwrap_or_default();
        let numbers = entries.into_iter().filter_map(|entry| match entry {
            LogEntry::Decided(number) => Some(number.0),
            _ => None,
        });
        numbers.collect()
    }
}

fn is_accept_sync<const S: bool>(sent: &Sent<S>, to: u64) -> bool {
    match sent {
        Message::SequencePaxos(it) => it.to == to && matches!(it.msg, PaxosMsg::AcceptSync(_)),
        Message::BLE(_) => false,
    }
}

fn is_accepted<const S: bool>(sent: &Sent<S>) -> bool {
    matches!(sent, Message::SequencePaxos(it) if matches!(it.msg, PaxosMsg::Accepted(_)))
}

#[test]
fn delta_snapshot_after_lost_messages() {
    let mut cluster = Cluster::<true>::new();
    cluster.node(3).try_become_leader();
    cluster.append(3, 1..=3);
    cluster.deliver();
    assert_eq!(cluster.decided(1), [1, 2, 3]);
    cluster.append(3, 4..=6);
    cluster.deliver_without(1); // lost: node 1 is disconnected for a moment
    cluster.node(1).reconnected(3);
    cluster.deliver();
    let read = cluster.node(1).read_decided_suffix(0).unwrap();
    let LogEntry::Snapshotted(snapshot) = &read[0] else {
        panic!("{read:?}");
    };
    assert_eq!(snapshot.trimmed_idx, 6);
    assert_eq!(snapshot.snapshot, Numbers(vec![4, 5, 6])); // should be 1 to 6
    assert_eq!(cluster.decided(3), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn stop_sign_counted_twice() {
    let mut cluster = Cluster::<false>::new();
    cluster.node(3).try_become_leader();
    cluster.append(3, 1..=3);
    cluster.deliver();
    cluster.node(3).reconfigure(config(), None).unwrap();
    cluster.deliver();
    assert_eq!(cluster.node(1).get_accepted_idx(), 4); // three entries and the stop-sign
    assert!(cluster.node(1).is_reconfigured().is_some());
    cluster.node(1).reconnected(3);
    cluster.deliver();
    assert_eq!(cluster.node(1).get_accepted_idx(), 5); // should be 4
    assert!(cluster.node(1).is_reconfigured().is_none()); // it was reconfigured before
    assert!(cluster.decided(1).is_empty()); // should be [1, 2, 3]
    assert_eq!(cluster.decided(2), [1, 2, 3]);
}

#[test]
fn lost_replies_to_a_stop_sign() {
    let mut cluster = Cluster::<false>::new();
    cluster.node(3).try_become_leader();
    cluster.deliver();
    cluster.node(3).reconfigure(config(), None).unwrap();
    cluster.deliver_if(|sent| !is_accepted(sent)); // both replies are lost
    assert_eq!(cluster.node(1).get_accepted_idx(), 1); // the stop-sign
    for _ in 0..10_000 {
        (1..=3).for_each(|pid| cluster.node(pid).tick());
        cluster.deliver();
    }
    assert!(cluster.node(3).is_reconfigured().is_none()); // all nodes have it, for 100 s of ticks
}

#[test]
fn late_accept_sync_removes_decided_entries() {
    let mut cluster = Cluster::<false>::new();
    cluster.node(3).try_become_leader();
    let late = cluster.deliver_if(|sent| !is_accept_sync(sent, 1)); // of the empty log
    cluster.node(1).handle_incoming(late[0].clone());
    cluster.append(3, 1..=3);
    cluster.deliver_without(2);
    assert_eq!(cluster.decided(1), [1, 2, 3]); // by nodes 1 and 3
    cluster.node(1).reconnected(3);
    cluster.deliver_if(|sent| !is_accept_sync(sent, 1)); // node 1 promises, and waits
    cluster.node(1).handle_incoming(late[0].clone()); // the network repeats the first one
    assert_eq!(cluster.node(1).get_accepted_idx(), 0); // should be 3
    cluster.node(2).try_become_leader();
    cluster.append(2, [97, 98, 99]);
    cluster.deliver_without(3);
    assert_eq!(cluster.decided(2), [97, 98, 99]); // nodes 1 and 2, at the same positions
    assert_eq!(cluster.decided(3), [1, 2, 3]);
}

#[test]
fn late_prepare_request_stops_replication() {
    let mut cluster = Cluster::<false>::new();
    cluster.node(3).try_become_leader();
    cluster.deliver();
    cluster.node(1).reconnected(3);
    let mut sent = Vec::new();
    cluster.node(1).take_outgoing_messages(&mut sent);
    let request = sent.pop().unwrap();
    cluster.node(3).handle_incoming(request.clone());
    cluster.deliver();
    cluster.append(3, [1]);
    cluster.deliver();
    assert_eq!(cluster.decided(1), [1]); // node 1 follows again
    cluster.node(3).handle_incoming(request); // the network repeats the request
    cluster.append(3, [2]);
    for _ in 0..10_000 {
        (1..=3).for_each(|pid| cluster.node(pid).tick());
        cluster.deliver();
    }
    assert_eq!(cluster.decided(2), [1, 2]);
    assert_eq!(cluster.decided(1), [1]); // and for ever
}

#[test]
fn a_restarted_node_with_a_ballot_of_its_own_never_catches_up() {
    let mut cluster = Cluster::<false>::new();
    // Node 2 promised its own ballot, crashed before another node heard of it, and restarted.
    let mut storage = MemoryStorage::default();
    storage.set_promise(Ballot::with(1, 2, 0, 2)).unwrap();
    *cluster.node(2) = start(2, storage);
    for _ in 0..10_000 {
        (1..=3).for_each(|pid| cluster.node(pid).tick());
        cluster.deliver();
        if cluster.decided(1).is_empty() {
            cluster.append(1, [1]);
        }
    }
    assert!(cluster.decided(1).starts_with(&[1])); // nodes 1 and 3 work
    assert!(cluster.decided(2).is_empty()); // node 2 has nothing, after 2,000 rounds of election
}
