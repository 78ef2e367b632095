//! The speed of ordering: `cargo bench -p seatrial-consensus --bench ordering`. Without the argument `--bench` (under
//! `cargo test --benches`) everything runs once over little. Three members in one thread, no disk and no socket: each write is
//! reported at once, messages are moved, or encoded, checked and decoded. Each figure is the median of several rounds over
//! processor time of the thread. A command is one of 16 that share an entry of 4 KiB; the entry's bytes are shared. Linux only.

use bytes::Bytes;
use seatrial_consensus::{
    CachedLog, Config, Consensus, Members, PeerMessage, Role, SnapshotMark, StartPoint, decode,
    encode,
};
use seatrial_machine::{NodeId, Time};
use std::collections::VecDeque;

/// Members of the cluster.
const NODES: usize = 3;
/// Commands that share an entry.
const COMMANDS: u64 = 16;
/// Rounds of the queue between compactions.
const COMPACT_EVERY: u64 = 64;

/// A message on its way.
enum Carried {
    Moved(PeerMessage),
    Encoded(Bytes),
}

/// Three members and the messages between them.
struct OrderingCluster {
    cores: Vec<Consensus<CachedLog>>,
    members: Members,
    messages: VecDeque<Carried>,
    uses_codec: bool,
    /// Last index that each member applied, with its term.
    applied: Vec<(u64, u64)>,
}

fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e9
}

impl OrderingCluster {
    fn new(uses_codec: bool) -> OrderingCluster {
        let nodes = (1..=NODES as u32).map(NodeId::server);
        let members = Members::of_voters(nodes.clone());
        let make = |node: NodeId| {
            let checkpoint = SnapshotMark {
                members: members.clone(),
                ..SnapshotMark::default()
            };
            let start = StartPoint {
                checkpoint,
                ..StartPoint::default()
            };
            let log = CachedLog::new(0, 0, 64 << 20);
            Consensus::new(Config::new(node, 1, 1), start, log).expect("a valid start")
        };
        let mut cluster = OrderingCluster {
            cores: nodes.map(make).collect(),
            members,
            messages: VecDeque::new(),
            uses_codec,
            applied: vec![(0, 0); NODES],
        };
        let core = &mut cluster.cores[0];
        core.tick(Time::ZERO).expect("no stop");
        core.campaign().expect("a voter");
        cluster.settle();
        assert_eq!(cluster.cores[0].status().role, Role::Leader);
        cluster
    }

    /// Carries messages until there are none.
    fn settle(&mut self) {
        loop {
            for at in 0..NODES {
                self.carry_out(at);
            }
            let Some(carried) = self.messages.pop_front() else {
                return;
            };
            self.deliver(carried);
            // One round delivers what is there, then looks for what that made ready.
            for _ in 0..self.messages.len() {
                if let Some(carried) = self.messages.pop_front() {
                    self.deliver(carried);
                }
            }
        }
    }

    fn deliver(&mut self, carried: Carried) {
        let message = match carried {
            Carried::Moved(message) => message,
            Carried::Encoded(bytes) => decode(&bytes).expect("what was encoded decodes"),
        };
        let at = message.to.number() as usize - 1;
        self.cores[at].step(message.from, message).expect("no stop");
    }

    fn carry_out(&mut self, at: usize) {
        while let Some(ready) = self.cores[at].ready().expect("no stop") {
            for message in ready.send {
                self.messages.push_back(if self.uses_codec {
                    Carried::Encoded(encode(&message).into())
                } else {
                    Carried::Moved(message)
                });
            }
            if let Some(persist) = ready.persist {
                self.cores[at].persisted(persist.ticket).expect("no stop");
            }
            if let Some(last) = ready.committed.last() {
                self.applied[at] = (last.entry.index, last.entry.term);
                self.cores[at].applied(last.entry.index).expect("no stop");
            }
        }
    }

    fn compact(&mut self) {
        for (core, (index, term)) in self.cores.iter_mut().zip(&self.applied) {
            core.checkpointed(SnapshotMark {
                index: *index,
                term: *term,
                members: self.members.clone(),
                ..SnapshotMark::default()
            });
            core.compact(*index);
        }
    }

    /// Orders this many entries, `in_flight` at a time. Returns entries per processor second.
    fn measure(&mut self, entries: u64, in_flight: u64, payload: &Bytes) -> f64 {
        let before = self.applied[0].0;
        let began = processor_seconds();
        for round in 0..entries / in_flight {
            for _ in 0..in_flight {
                self.cores[0]
                    .propose(payload.clone())
                    .expect("the leader takes it");
            }
            self.settle();
            if round % COMPACT_EVERY == COMPACT_EVERY - 1 {
                self.compact();
            }
        }
        let spent = processor_seconds() - began;
        let ordered = self.applied[0].0 - before;
        assert_eq!(
            ordered,
            entries / in_flight * in_flight,
            "every entry is committed"
        );
        ordered as f64 / spent
    }
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (rounds, entries) = if is_bench { (7, 40_000) } else { (1, 640) };
    println!("| entry | in flight | codec and checksum | entries/CPU-s | commands/CPU-s |");
    println!("| --- | --- | --- | --- | --- |");
    for length in [64, 4_096] {
        let payload = Bytes::from(vec![7; length]);
        for in_flight in [1, 64] {
            for uses_codec in [false, true] {
                let mut cluster = OrderingCluster::new(uses_codec);
                let mut rates: Vec<f64> = (0..rounds)
                    .map(|_| cluster.measure(entries, in_flight, &payload))
                    .collect();
                rates.sort_by(f64::total_cmp);
                let rate = rates[rounds / 2];
                println!(
                    "| {length} B | {in_flight} | {} | {:.0} | {:.0} |",
                    if uses_codec { "yes" } else { "no" },
                    rate,
                    rate * COMMANDS as f64
                );
            }
        }
    }
}
