//! Messages of an upstairs and its replicas: what was encoded is decoded, and what claims too much is refused.

use crate::sweeps::whole;
use crate::world::{BLOCK_LENGTH, BLOCKS, GEOMETRY, UPSTAIRS, block_bytes};
use seatrial_machine::{DataFolder, Input, Job, Machine, Output, Rng, Ticket, Time};
use seatrial_sim::MemoryStorage;
use seatrial_volume::{
    BlockNumber, BlockSpan, BlockVersion, Downstairs, DownstairsOptions, FromReplica, Geometry,
    GuestReply, KeyRing, SessionNumber, StreamMessage, ToReplica, WritePurpose,
};
use std::path::Path;
use std::sync::Arc;

const SESSION: SessionNumber = SessionNumber(77);
/// Most spans of a message, and most blocks whose versions may be asked for.
const SPANS_MAX: u32 = 4_096;

fn span(first: u64, count: u32) -> BlockSpan {
    BlockSpan {
        first: BlockNumber(first),
        count,
    }
}

fn read(id: u64, spans: &[BlockSpan]) -> ToReplica<'static> {
    ToReplica::Read {
        session: SESSION,
        id,
        spans: spans.to_vec(),
        map: String::new(),
    }
}

fn versions(id: u64, spans: &[BlockSpan]) -> ToReplica<'static> {
    ToReplica::Versions {
        session: SESSION,
        id,
        spans: spans.to_vec(),
        map: "s1".into(),
    }
}

fn write<'a>(number: u64, spans: &[BlockSpan], slots: &'a [u8]) -> ToReplica<'a> {
    let message = StreamMessage::Write {
        purpose: WritePurpose::Repair,
        map: String::new(),
        flush: 3,
        since: 2,
        spans: spans.to_vec(),
        slots,
    };
    ToReplica::Stream(SESSION, number, message)
}

/// A read as it stands in bytes, with any spans.
fn forged_read(count: u32, spans: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = vec![6];
    for number in [SESSION.0, 5] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(count.to_le_bytes());
    for (first, count) in spans {
        bytes.extend(first.to_le_bytes());
        bytes.extend(count.to_le_bytes());
    }
    bytes.push(0); // no name
    bytes
}

#[test]
fn messages_of_many_spans_are_decoded_as_they_were_encoded() {
    let spans: Vec<BlockSpan> = (0..u64::from(SPANS_MAX))
        .map(|it| span(it * 3, 2))
        .collect();
    for spans in [&spans[..1], &spans[..2], &spans] {
        for message in [
            read(1, spans),
            versions(2, spans),
            write(3, spans, &[9; 50]),
        ] {
            let bytes = message.encode();
            assert_eq!(ToReplica::decode(&bytes), Ok(message));
            // Slots end with the message, so that a shorter write is one.
            let is_write = bytes[0] == 2;
            let ends = 0..bytes.len() - if is_write { 50 } else { 0 };
            for end in ends.step_by(1 + bytes.len() / 300) {
                assert!(ToReplica::decode(&bytes[..end]).is_err(), "cut at {end}");
            }
        }
    }
}

#[test]
fn a_forged_list_of_spans_is_refused() {
    assert!(ToReplica::decode(&forged_read(2, &[(1, 2), (3, 1)])).is_ok());
    let long: Vec<(u64, u32)> = (0..=u64::from(SPANS_MAX)).map(|it| (it, 1)).collect();
    let forged = [
        forged_read(0, &[]),
        forged_read(3, &[(1, 2), (3, 1)]),
        forged_read(1, &[(1, 2), (3, 1)]),
        forged_read(u32::MAX, &[(1, 2), (3, 1)]),
        forged_read(SPANS_MAX + 1, &long),
        // A span without blocks, one again, one that overlaps, and one before the last.
        forged_read(2, &[(1, 0), (3, 1)]),
        forged_read(2, &[(1, 2), (1, 2)]),
        forged_read(2, &[(1, 3), (3, 1)]),
        forged_read(2, &[(9, 1), (3, 1)]),
        forged_read(2, &[(u64::MAX - 1, u32::MAX), (5, 1)]),
    ];
    for (number, bytes) in forged.iter().enumerate() {
        assert!(ToReplica::decode(bytes).is_err(), "{number}");
    }
}

/// What is decoded from any bytes is encoded to them.
#[test]
fn any_bytes_are_a_message_or_an_error() {
    let mut rng = Rng::from_seed(4);
    let spans = [span(1, 2), span(5, 1), span(90, 7)];
    let (mut decoded, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let message = match rng.below(3) {
            0 => read(1, &spans),
            1 => versions(2, &spans[1..]),
            _ => write(3, &spans, &[7; 20]),
        };
        let mut bytes = message.encode();
        for _ in 0..rng.below(3) {
            let place = rng.index(bytes.len());
            bytes[place] = rng.word() as u8;
        }
        if rng.chance(0.2) {
            bytes.truncate(rng.index(bytes.len()));
        }
        match ToReplica::decode(&bytes) {
            Ok(message) => {
                decoded += 1;
                assert_eq!(message.encode(), bytes);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(decoded > 1_000 && refused > 1_000, "{decoded}, {refused}");
}

/// A replica with a session, without a driver: its log is never reported.
struct Replica {
    down: Downstairs,
    number: u64,
}

impl Replica {
    fn new(geometry: Geometry) -> Replica {
        let storage = Arc::new(MemoryStorage::new());
        let data = DataFolder::open(storage, Path::new("replica")).expect("an empty folder");
        let booted = Downstairs::boot(&data, DownstairsOptions::new(geometry));
        let (booted, _) = booted.expect("an empty folder");
        let mut replica = Replica {
            down: booted.machine,
            number: 0,
        };
        let attach = ToReplica::Attach {
            geometry,
            generation: 2,
            upstairs: 5,
            session: SESSION,
            has_quorum: false,
        };
        replica.turn(&attach);
        replica
    }

    fn turn(&mut self, message: &ToReplica<'_>) -> Vec<Output<GuestReply>> {
        self.receive(message.encode())
    }

    fn receive(&mut self, bytes: Vec<u8>) -> Vec<Output<GuestReply>> {
        let (mut out, from) = (Vec::new(), UPSTAIRS);
        self.down
            .turn(Time::ZERO, Input::Message { from, bytes }, &mut out);
        self.down.check_invariants();
        out
    }

    /// Sends slots to write; the versions of all blocks after it.
    fn write(&mut self, spans: &[BlockSpan], slots: &[u8]) -> Vec<BlockVersion> {
        self.number += 1;
        self.turn(&write(self.number, spans, slots));
        self.down.versions("").expect("the volume")
    }

    fn is_refused(&mut self, question: &ToReplica<'_>) -> bool {
        let out = self.turn(question);
        let mut sent = out.iter().filter_map(|it| match it {
            Output::Send { message, .. } => FromReplica::decode(message).ok(),
            _ => None,
        });
        sent.any(|it| matches!(it, FromReplica::Failed { id: 5, .. }))
    }
}

/// The slots of a write are the longest bytes that a replica gets: of the usual one, of one span, it makes a block of its log
/// without copying them.
#[test]
fn a_write_of_one_span_becomes_a_block_of_the_log_in_place() {
    let mut replica = Replica::new(GEOMETRY);
    let mut is_in_place = |number, spans: &[BlockSpan]| {
        let mut message = write(number, spans, &slots_of(spans)).encode();
        message.reserve(64); // for the padding of the block
        let place = message.as_ptr();
        let out = replica.receive(message);
        let blocks: Vec<*const u8> = out.iter().filter_map(appended).collect();
        assert_eq!(blocks.len(), 1);
        blocks[0] == place
    };
    assert!(is_in_place(1, &[span(3, 4)]));
    assert!(!is_in_place(2, &[span(10, 2), span(20, 1)]));
    // Two of them are newer there.
    assert!(!is_in_place(3, &[span(5, 3)]));
}

fn appended(output: &Output<GuestReply>) -> Option<*const u8> {
    match output {
        Output::Write { bytes, .. } => Some(bytes.as_ptr()),
        _ => None,
    }
}

/// Slots of these blocks, with versions from 1 on.
fn slots_of(spans: &[BlockSpan]) -> Vec<u8> {
    let keys = KeyRing::new(GEOMETRY.volume, &[5; 32]);
    let mut slots = Vec::new();
    let blocks = spans.iter().flat_map(|it| it.blocks());
    for (block, counter) in blocks.zip(1..) {
        let version = BlockVersion {
            generation: 2,
            counter,
        };
        keys.seal(&mut slots, block, version, &block_bytes(counter));
    }
    slots
}

#[test]
fn a_write_of_many_parts_replaces_what_it_names_and_nothing_else() {
    let mut replica = Replica::new(GEOMETRY);
    let spans = [span(1, 2), span(5, 1), span(BLOCKS - 3, 3)];
    let after = replica.write(&spans, &slots_of(&spans));
    let mut counters = vec![0; BLOCKS as usize];
    let blocks = spans.iter().flat_map(|it| it.blocks());
    for (block, counter) in blocks.zip(1..) {
        counters[block.0 as usize] = counter;
    }
    let found: Vec<u64> = after.iter().map(|it| it.counter).collect();
    assert_eq!(found, counters);
}

/// More blocks than slots, more slots than blocks, blocks that the volume does not have: nothing is changed.
#[test]
fn a_forged_long_repair_message_changes_nothing() {
    let mut replica = Replica::new(GEOMETRY);
    let spans = [span(1, 2), span(5, 1)];
    let slots = slots_of(&spans);
    let absent = vec![BlockVersion::ABSENT; BLOCKS as usize];
    let most = u64::from(u32::MAX);
    let long: Vec<BlockSpan> = (0..u64::from(SPANS_MAX))
        .map(|it| span(it * most, u32::MAX))
        .collect();
    let forged: [(&[BlockSpan], &[u8]); 7] = [
        (&[span(1, 2), span(5, 2)], &slots),
        (&[span(1, 2)], &slots),
        (&[span(1, 2), span(BLOCKS, 1)], &slots),
        (&[span(1, u32::MAX), span(most + 1, u32::MAX)], &slots),
        (&long, &slots),
        (&spans, &slots[..slots.len() - 1]),
        (&spans, &[]),
    ];
    for (spans, slots) in forged {
        assert_eq!(replica.write(spans, slots), absent, "{:?}", &spans[..1]);
    }
    assert_ne!(replica.write(&spans, &slots), absent);
}

/// A replica reads at most 2 MiB and names at most 4,096 versions for a question, whatever spans it is made of.
#[test]
fn questions_for_too_much_are_refused() {
    let geometry = Geometry {
        blocks: 1 << 20,
        ..GEOMETRY
    };
    let mut replica = Replica::new(geometry);
    let halves = |blocks: u32| [span(0, blocks / 2), span(1 << 19, blocks - blocks / 2)];
    let most = (2 << 20) / BLOCK_LENGTH;
    let of_volume = |spans: &[BlockSpan]| ToReplica::Versions {
        session: SESSION,
        id: 5,
        spans: spans.to_vec(),
        map: String::new(),
    };
    assert!(!replica.is_refused(&read(5, &halves(most))));
    assert!(replica.is_refused(&read(5, &halves(most + 1))));
    assert!(!replica.is_refused(&of_volume(&halves(SPANS_MAX))));
    assert!(replica.is_refused(&of_volume(&halves(SPANS_MAX + 1))));
    assert!(replica.is_refused(&of_volume(&[span(0, 1), span((1 << 20) - 1, 2)])));
    assert!(replica.is_refused(&versions(5, &[whole()])), "no snapshot");
}

/// A job and its ticket.
type NumberedJob = (Box<dyn Job>, Ticket);

/// The jobs among outputs, and the number of messages.
fn jobs_and_messages(out: Vec<Output<GuestReply>>) -> (Vec<NumberedJob>, usize) {
    let (mut jobs, mut messages) = (Vec::new(), 0);
    for output in out {
        match output {
            Output::Compute(job, ticket) => jobs.push((job, ticket)),
            Output::Send { .. } => messages += 1,
            _ => {}
        }
    }
    (jobs, messages)
}

/// An upstairs asks again what has no answer for a while. On a slow disk that must not make the replica read it again each time:
/// in a simulated world (five replicas, seed 1089) all its 1,024 jobs were such reads, and a repair never ended.
#[test]
fn a_question_that_is_asked_again_is_answered_once() {
    let mut replica = Replica::new(GEOMETRY);
    let (mut jobs, _) = jobs_and_messages(replica.turn(&read(5, &[span(0, 4)])));
    let (job, ticket) = jobs.pop().expect("a job that reads");
    for _ in 0..100 {
        let (again, messages) = jobs_and_messages(replica.turn(&read(5, &[span(0, 4)])));
        assert_eq!((again.len(), messages), (0, 0));
    }
    let (other, _) = jobs_and_messages(replica.turn(&read(6, &[span(0, 4)])));
    assert_eq!(other.len(), 1, "another question");
    let mut out = Vec::new();
    let answer = Input::Computed(ticket, job.run());
    replica.down.turn(Time::ZERO, answer, &mut out);
    assert_eq!(jobs_and_messages(out).1, 1, "the answer");
    // That answer may be lost.
    let (again, _) = jobs_and_messages(replica.turn(&read(5, &[span(0, 4)])));
    assert_eq!(again.len(), 1, "it is read again");
}
