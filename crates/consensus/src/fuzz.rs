//! Any bytes and any well-formed messages, from members and from strangers: the decoder and the core stay total, and what the
//! core hands out stays consistent until it stops.

use crate::peer_codec::encode_changes;
use crate::rule::{Rules, WrapperRule};
use crate::simulator::quiet_panics;
use crate::{
    AppendRejection, Body, CachedLog, Config, Consensus, LinkNumber, LogEntry, MemberChange,
    Members, Payload, PeerMessage, ReadContext, Role, SnapshotMark, StartPoint, Vote, decode,
    encode,
};
use bytes::Bytes;
use seatrial_blocks::crc32c;
use seatrial_machine::{NodeId, Rng, Ticket, Time};
use std::collections::BTreeMap;

fn cases(few: u64) -> u64 {
    let given = std::env::var("SEATRIAL_CASES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// A number that is often near another one, sometimes at an edge.
fn near(rng: &mut Rng, value: u64) -> u64 {
    match rng.below(10) {
        0..=5 => value
            .saturating_add(rng.below(4))
            .saturating_sub(rng.below(4)),
        6 | 7 => rng.below(8),
        8 => value.saturating_add(rng.below(1 << 20)),
        _ => [0, 1, u64::MAX, u64::MAX - 1, 1 << 62, 1 << 63][rng.index(6)],
    }
}

fn server(rng: &mut Rng) -> NodeId {
    NodeId::server(1 + rng.below(5) as u32)
}

fn members(rng: &mut Rng) -> Members {
    loop {
        let mut members = Members::of_voters((0..=rng.below(3)).map(|_| server(rng)));
        if rng.chance(0.3) {
            members.learners.insert(server(rng));
        }
        if rng.chance(0.2) {
            members.outgoing.insert(server(rng));
            members.auto_leave = rng.chance(0.5);
        }
        if members.is_valid() {
            return members;
        }
    }
}

fn payload(rng: &mut Rng) -> Payload {
    match rng.below(8) {
        0 => Payload::Empty,
        1 => Payload::LeaveJoint,
        2 => {
            let node = server(rng);
            let change = [
                MemberChange::AddVoter(node),
                MemberChange::AddLearner(node),
                MemberChange::Remove(node),
            ][rng.index(3)];
            let mut changes = vec![change];
            if rng.chance(0.3) {
                changes.push(MemberChange::Remove(server(rng)));
            }
            Payload::Membership(changes)
        }
        _ => Payload::Data(Bytes::from(vec![7; 1 + rng.index(40)])),
    }
}

/// Entries that follow a previous one, mostly with terms that do not fall.
fn entries(rng: &mut Rng, term: u64, index: u64, last_term: u64) -> Vec<LogEntry> {
    let mut entry_term = last_term;
    let mut made = Vec::new();
    for number in 1..=rng.below(5) {
        entry_term = if rng.chance(0.8) {
            entry_term
        } else {
            near(rng, term)
        };
        let index = index.saturating_add(number);
        made.push(LogEntry {
            index,
            term: entry_term,
            payload: payload(rng),
        });
    }
    made
}

fn mark(rng: &mut Rng, index: u64, term: u64) -> SnapshotMark {
    SnapshotMark {
        index,
        term,
        members: members(rng),
        length: 9,
        digest: [1; 16],
    }
}

/// A message that decodes, with fields near those of the receiver.
fn message(rng: &mut Rng, to: NodeId, term: u64, last: u64, number: u64) -> PeerMessage {
    let from = server(rng);
    let term = if rng.chance(0.7) {
        term.max(1)
    } else {
        near(rng, term)
    };
    let context = ReadContext {
        node: server(rng),
        start: 1,
        token: rng.below(4),
    };
    let optional = rng.chance(0.5).then_some(context);
    let (index, commit) = (near(rng, last), near(rng, last));
    let last_term = near(rng, term.saturating_sub(1));
    let body = match rng.below(12) {
        0..=2 => Body::Append {
            previous_index: index,
            previous_term: last_term,
            commit,
            entries: entries(rng, term, index, last_term),
        },
        3 | 4 => {
            let hint = AppendRejection {
                hint_index: near(rng, last),
                hint_term: last_term,
            };
            Body::AppendReply {
                index,
                commit,
                rejected: rng.chance(0.4).then_some(hint),
            }
        }
        5 => Body::Heartbeat {
            commit,
            context: optional,
        },
        6 => Body::HeartbeatReply {
            commit,
            context: optional,
        },
        7 => Body::Vote {
            pre_vote: rng.chance(0.5),
            transfer: rng.chance(0.2),
            last_index: index,
            last_term,
            commit,
            commit_term: near(rng, last_term),
        },
        8 => Body::VoteReply {
            pre_vote: rng.chance(0.5),
            granted: rng.chance(0.7),
            commit,
            commit_term: near(rng, last_term),
        },
        9 => [Body::TimeoutNow, Body::ReadIndex(context)][rng.index(2)].clone(),
        10 => Body::ReadIndexReply { index, context },
        _ => Body::Snapshot(mark(rng, index, last_term)),
    };
    PeerMessage {
        from,
        to,
        link: LinkNumber { start: 1, number },
        term,
        body,
    }
}

/// A core with its disk: what it hands out is held against what it has handed out and asked to be written.
struct Fuzzed {
    core: Consensus<CachedLog>,
    /// Vote by term, as written.
    votes: BTreeMap<u64, NodeId>,
    newest: Vote,
    handed_out: u64,
    unsynced: Vec<Ticket>,
    now: u64,
}

impl Fuzzed {
    fn new(seed: u64, voters: u32, without: Option<WrapperRule>) -> Fuzzed {
        let founding = Members::of_voters((1..=voters).map(NodeId::server));
        let checkpoint = SnapshotMark {
            members: founding,
            ..SnapshotMark::default()
        };
        let start = StartPoint {
            checkpoint,
            ..StartPoint::default()
        };
        let config = Config::new(NodeId::server(1), 1, seed);
        let log = CachedLog::new(0, 0, 256);
        let mut core = Consensus::new(config, start, log).expect("a valid start");
        core.set_rules(Rules { without });
        Fuzzed {
            core,
            votes: BTreeMap::new(),
            newest: Vote::default(),
            handed_out: 0,
            unsynced: Vec::new(),
            now: 0,
        }
    }

    /// One call with anything. False when the core stopped.
    fn disturb(&mut self, rng: &mut Rng, number: u64) -> bool {
        let to = NodeId::server(1);
        let status = self.core.status();
        match rng.below(16) {
            0 => {
                self.now += rng.below(400);
                let _ = self.core.tick(Time::from_milliseconds(self.now));
            }
            1 => {
                let _ = self.core.propose(Bytes::from_static(b"value"));
            }
            2 => {
                let _ = self.core.read(rng.below(5));
                let _ = self.core.campaign();
            }
            3 => {
                let changes = [
                    MemberChange::AddVoter(server(rng)),
                    MemberChange::Remove(server(rng)),
                ];
                let _ = self.core.propose_membership(&changes[..=rng.index(2)]);
                let _ = self.core.transfer_leadership(server(rng));
            }
            4 => {
                let _ = self.core.applied(near(rng, self.handed_out));
                let _ = self.core.compact(near(rng, status.applied));
                let _ = self.core.snapshot_failed(server(rng));
            }
            5 | 6 if !self.unsynced.is_empty() => {
                let ticket = self.unsynced.remove(0);
                let _ = self.core.persisted(ticket);
            }
            _ => {
                let message = message(rng, to, status.term, status.last, number);
                let bytes = Bytes::from(encode(&message));
                if let Ok(read) = decode(&bytes) {
                    assert_eq!(read.from, message.from);
                    let _ = self.core.step(message.from, read);
                }
            }
        }
        self.carry_out(rng);
        self.core.stopped().is_none()
    }

    fn carry_out(&mut self, rng: &mut Rng) {
        let mut turns = 0;
        while let Ok(Some(ready)) = self.core.ready() {
            turns += 1;
            assert!(turns < 1_000, "ready never ends");
            if let Some(persist) = ready.persist {
                let vote = persist.vote;
                assert!(vote.term >= self.newest.term, "the term falls");
                if let Some(candidate) = vote.vote {
                    let known = *self.votes.entry(vote.term).or_insert(candidate);
                    assert_eq!(known, candidate, "two votes in term {}", vote.term);
                }
                assert!(vote.commit >= self.newest.commit, "the commit index falls");
                if let Some(first) = persist.entries.first() {
                    assert!(
                        first.index > self.handed_out,
                        "a committed entry is replaced"
                    );
                }
                if let Some(mark) = &persist.install {
                    assert!(
                        mark.index >= self.handed_out,
                        "an older checkpoint is installed"
                    );
                    self.handed_out = mark.index;
                }
                self.newest = vote;
                self.unsynced.push(persist.ticket);
            }
            for committed in ready.committed {
                assert_eq!(committed.entry.index, self.handed_out + 1, "a gap");
                self.handed_out += 1;
            }
            if let Some(offer) = ready.transfer
                && rng.chance(0.7)
            {
                let _ = self.core.transferred(&offer.mark);
            }
            for _ in ready.fetch {
                let _ = self.core.fetched(Vec::new());
            }
        }
    }
}

/// Runs cores of 60 calls each; returns how many calls were made and which causes stopped cores.
fn fuzz_core(seed: u64, calls: u64, without: Option<WrapperRule>) -> BTreeMap<String, u64> {
    quiet_panics();
    let mut rng = Rng::from_seed(seed);
    let mut causes = BTreeMap::new();
    let mut made = 0;
    while made < calls {
        let voters = [1, 3, 3, 5][rng.index(4)];
        let mut fuzzed = Fuzzed::new(rng.word(), voters, without);
        for number in 1..=60 {
            made += 1;
            if !fuzzed.disturb(&mut rng, number) {
                let stopped = fuzzed.core.stopped().cloned().expect("it stopped");
                // A stopped core refuses everything with the same cause.
                assert_eq!(fuzzed.core.tick(Time::ZERO), Err(stopped.clone()));
                assert!(fuzzed.core.propose(Bytes::from_static(b"x")).is_err());
                assert!(fuzzed.core.ready().is_err());
                let text = stopped.cause.chars().filter(|c| !c.is_ascii_digit());
                *causes.entry(text.take(60).collect()).or_insert(0) += 1;
                break;
            }
        }
    }
    causes
}

#[test]
fn any_messages_leave_the_core_consistent_or_stopped() {
    let calls = cases(40_000);
    let causes = fuzz_core(1, calls, None);
    println!(
        "{calls} calls: {} cores stopped: {causes:#?}",
        causes.values().sum::<u64>()
    );
}

#[test]
fn rule_9_checked_messages() {
    let stops = |without| fuzz_core(2, 20_000, without).values().sum::<u64>();
    let (with, without) = (stops(None), stops(Some(WrapperRule::CheckedMessages)));
    println!("20,000 calls: {with} cores stopped with checks, {without} without");
    assert!(
        without > 2 * with,
        "checks keep panics away: {with} and {without}"
    );
}

#[test]
fn rule_9_link_order() {
    let beat = |number| PeerMessage {
        from: NodeId::server(2),
        to: NodeId::server(1),
        link: LinkNumber { start: 1, number },
        term: 5,
        body: Body::Heartbeat {
            commit: 0,
            context: None,
        },
    };
    let accepted = |without, numbers: &[u64]| {
        let mut fuzzed = Fuzzed::new(1, 3, without);
        let from = NodeId::server(2);
        let step = |number: &u64| fuzzed.core.step(from, beat(*number)).expect("no stop");
        numbers.iter().map(step).collect::<Vec<bool>>()
    };
    assert_eq!(
        accepted(None, &[1, 3, 2, 3, 4]),
        [true, true, false, false, true]
    );
    let all = accepted(Some(WrapperRule::LinkOrder), &[1, 3, 2, 3, 4]);
    assert_eq!(
        all, [true; 5],
        "without the rule old messages reach the library"
    );
}

#[test]
fn the_only_voter_waits_for_its_log_before_it_leads() {
    let mut core = Fuzzed::new(1, 1, None).core;
    core.campaign().expect("the only voter");
    let persist = core
        .ready()
        .expect("no stop")
        .and_then(|ready| ready.persist);
    let ticket = persist.expect("its first entry").ticket;
    let from = NodeId::server(2);
    // A later term, from a leader of which it has not heard: a follower again, its own entry not durable.
    let message = PeerMessage {
        from,
        to: NodeId::server(1),
        link: LinkNumber {
            start: 1,
            number: 1,
        },
        term: 5,
        body: Body::Heartbeat {
            commit: 0,
            context: None,
        },
    };
    core.step(from, message).expect("no stop");
    let mut last = ticket;
    while let Some(ready) = core.ready().expect("no stop") {
        last = ready.persist.map_or(last, |persist| persist.ticket);
    }
    for second in 0..10 {
        core.tick(Time::from_milliseconds(second * 1_000))
            .expect("it waits");
    }
    assert!(core.campaign().is_err() && core.status().role == Role::Follower);
    core.persisted(last).expect("no stop");
    core.campaign().expect("its log is durable");
    assert_eq!(core.status().role, Role::Leader);
}

#[test]
fn rule_8_nothing_parses_protobuf() {
    let sources = [
        include_str!("library.rs"),
        include_str!("library/library_storage.rs"),
        include_str!("library/translate.rs"),
        include_str!("peer_codec.rs"),
    ];
    for source in sources {
        for parser in [
            "merge_from",
            "parse_from",
            "CodedInputStream",
            "EntryConfChange,",
        ] {
            assert!(!source.contains(parser), "{parser} reads protobuf");
        }
    }
    // A membership change on the wire is our encoding: protobuf in its place is refused.
    let change = MemberChange::AddVoter(NodeId::server(4));
    let entry = LogEntry {
        index: 1,
        term: 1,
        payload: Payload::Membership(vec![change]),
    };
    let append = Body::Append {
        previous_index: 0,
        previous_term: 0,
        commit: 0,
        entries: vec![entry],
    };
    let (from, to) = (NodeId::server(2), NodeId::server(1));
    let link = LinkNumber {
        start: 1,
        number: 1,
    };
    let mut bytes = encode(&PeerMessage {
        from,
        to,
        link,
        term: 1,
        body: append,
    });
    let ours = encode_changes(&[change]);
    let at = bytes.len() - ours.len();
    assert_eq!(bytes[at..], ours);
    bytes[at..].copy_from_slice(&[0x1b, 0x1b, 0x1b, 0x1b, 0x1b]); // protobuf's nested groups
    let checksum = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    assert!(decode(&Bytes::from(bytes)).is_err());
}

#[test]
fn messages_survive_the_codec() {
    let mut rng = Rng::from_seed(3);
    let mut read = 0;
    for number in 0..cases(20_000) {
        let mut message = message(&mut rng, NodeId::server(1), 7, 20, number);
        if let Body::Append {
            previous_index,
            entries,
            ..
        } = &mut message.body
        {
            *previous_index = (*previous_index).min(1 << 62);
            // Indices are not written: they follow the previous one.
            for (entry, index) in entries.iter_mut().zip(*previous_index + 1..) {
                entry.index = index;
            }
        }
        let bytes = Bytes::from(encode(&message));
        assert_eq!(decode(&bytes).as_ref(), Ok(&message));
        read += 1;
    }
    assert!(read > 0);
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    let mut rng = Rng::from_seed(4);
    let mut accepted = 0;
    let count = cases(50_000);
    for number in 0..count {
        let mut bytes = encode(&message(&mut rng, NodeId::server(1), 7, 20, number));
        for _ in 0..=rng.below(3) {
            let at = rng.index(bytes.len());
            match rng.below(4) {
                0 => bytes[at] = rng.word() as u8,
                1 => bytes[at] ^= 1 << rng.below(8),
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.word() as u8),
            }
        }
        // Half of them with a right checksum: the fields must hold by themselves.
        if rng.chance(0.5) && bytes.len() > 4 {
            let checksum = crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        }
        let bytes = Bytes::from(bytes);
        if let Ok(read) = decode(&bytes) {
            assert_eq!(encode(&read), bytes, "one message, one encoding");
            accepted += 1;
        }
    }
    println!("{count} damaged messages: {accepted} are messages");
}

#[test]
fn every_damaged_byte_is_found() {
    let mut rng = Rng::from_seed(5);
    for number in 0..200 {
        let bytes = encode(&message(&mut rng, NodeId::server(1), 7, 20, number));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << rng.below(8);
            assert!(decode(&Bytes::from(damaged)).is_err(), "byte {at}");
        }
    }
}
