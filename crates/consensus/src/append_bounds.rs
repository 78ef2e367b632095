//! A follower that was not heard for a while: what it misses comes in messages of bounded length.

use crate::{
    Body, CachedLog, Config, Consensus, LogEntry, MESSAGE_LENGTH_MAX, Members, Payload,
    PeerMessage, Role, SnapshotMark, StartPoint, encode,
};
use bytes::Bytes;
use seatrial_machine::{NodeId, Time};
use std::collections::{BTreeMap, VecDeque};

/// Length of an entry, and their number: together more than the longest message, by far.
const ENTRY: usize = 128 << 10;
const ENTRIES: u64 = 400;

/// Three members without disks: what is to be persisted is durable at once. Messages to `deaf` are lost.
struct DisklessCluster {
    members: BTreeMap<NodeId, Consensus<CachedLog>>,
    deaf: Option<NodeId>,
    queue: VecDeque<PeerMessage>,
    now: Time,
    /// Bytes of the longest message so far.
    longest: usize,
}

impl DisklessCluster {
    fn new() -> DisklessCluster {
        let nodes: Vec<NodeId> = (1..=3).map(NodeId::server).collect();
        let start = StartPoint {
            checkpoint: SnapshotMark {
                members: Members::of_voters(nodes.iter().copied()),
                ..SnapshotMark::default()
            },
            ..StartPoint::default()
        };
        let core = |node: NodeId| {
            let log = CachedLog::new(0, 0, 256 << 20);
            let config = Config::new(node, 1, u64::from(node.number()));
            Consensus::new(config, start.clone(), log).unwrap()
        };
        DisklessCluster {
            members: nodes.into_iter().map(|node| (node, core(node))).collect(),
            deaf: None,
            queue: VecDeque::new(),
            now: Time::ZERO,
            longest: 0,
        }
    }

    fn member(&mut self, node: NodeId) -> &mut Consensus<CachedLog> {
        self.members.get_mut(&node).unwrap()
    }

    /// Carries out what a member has ready.
    fn carry_out(&mut self, node: NodeId) {
        while let Some(ready) = self.member(node).ready().unwrap() {
            self.queue.extend(ready.send);
            if let Some(persist) = ready.persist {
                self.member(node).persisted(persist.ticket).unwrap();
            }
            for committed in ready.committed {
                self.member(node).applied(committed.entry.index).unwrap();
            }
        }
    }

    /// Delivers messages until there are none.
    fn settle(&mut self) {
        for node in [1, 2, 3].map(NodeId::server) {
            self.carry_out(node);
        }
        while let Some(message) = self.queue.pop_front() {
            let length = encode(&message).len();
            assert!(length <= MESSAGE_LENGTH_MAX, "{length} bytes");
            self.longest = self.longest.max(length);
            let (from, to) = (message.from, message.to);
            if self.deaf != Some(to) {
                self.member(to).step(from, message).unwrap();
                self.carry_out(to);
            }
        }
    }

    fn pass(&mut self, node: NodeId) {
        self.now += Config::new(node, 1, 1).heartbeat;
        let now = self.now;
        for member in self.members.values_mut() {
            member.tick(now).unwrap();
        }
        self.settle();
    }
}

#[test]
fn a_follower_that_was_deaf_gets_what_it_misses_in_bounded_messages() {
    let mut cluster = DisklessCluster::new();
    let [leader, _, late] = [1, 2, 3].map(NodeId::server);
    cluster.member(leader).campaign().unwrap();
    cluster.settle();
    assert_eq!(cluster.member(leader).status().role, Role::Leader);
    cluster.deaf = Some(late);
    for _ in 0..ENTRIES {
        let entry = Bytes::from(vec![7; ENTRY]);
        cluster.member(leader).propose(entry).unwrap();
        cluster.settle();
    }
    let last = cluster.member(leader).status().committed;
    assert!(last >= ENTRIES);
    assert!(cluster.member(late).status().last < last);
    cluster.deaf = None;
    cluster.longest = 0;
    for _ in 0..20 {
        cluster.pass(leader);
    }
    assert_eq!(cluster.member(late).status().committed, last);
    let most = Config::new(leader, 1, 1).append_bytes_max as usize;
    assert!(cluster.longest <= most + 1_000, "{}", cluster.longest);
    assert!(cluster.longest > most / 2, "entries travel together");
}

#[test]
fn a_split_append_is_the_same_entries_in_the_same_order() {
    let entries: Vec<LogEntry> = (1..=10)
        .map(|index| LogEntry {
            index,
            term: 1 + index / 4,
            payload: Payload::Data(Bytes::from(vec![1; 100 * index as usize])),
        })
        .collect();
    let whole = PeerMessage {
        from: NodeId::server(1),
        to: NodeId::server(2),
        link: crate::LinkNumber::default(),
        term: 4,
        body: Body::Append {
            previous_index: 0,
            previous_term: 0,
            commit: 7,
            entries: entries.clone(),
        },
    };
    for bytes_max in [1, 500, 1_000, 5_000, 100_000] {
        let mut rest = Some(whole.clone());
        let mut found: Vec<LogEntry> = Vec::new();
        while let Some(mut message) = rest.take() {
            rest = message.split_off(bytes_max);
            let Body::Append {
                previous_index,
                previous_term,
                commit,
                entries,
            } = message.body
            else {
                panic!("{message:?}")
            };
            let before = found.last().map_or((0, 0), |it| (it.index, it.term));
            assert_eq!(
                (previous_index, previous_term, commit),
                (before.0, before.1, 7)
            );
            let bytes: usize = entries.iter().map(|it| it.payload.length()).sum();
            assert!(entries.len() == 1 || bytes <= bytes_max as usize);
            found.extend(entries);
        }
        assert_eq!(found, entries, "{bytes_max}");
    }
}
