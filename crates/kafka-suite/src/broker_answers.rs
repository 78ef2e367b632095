//! Tests: answers of a broker, Kafka 3.9.0, read as they are and damaged.

use crate::kafka_error::KafkaError;
use crate::kafka_messages::{
    self as requests, KafkaRequest, decoded, encoded, end_offset, fetched, partitions, produced,
};
use crate::partition_leaders::leader;
use crate::record_batches::messages;
use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    CreateTopicsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest,
};
use seatrial_machine::{NodeId, Rng};
use std::time::Duration;

/// Three brokers and three partitions; of the first partition only n3 is in sync yet.
const METADATA: &str = "\
00000002000000000000000300000001000831302e302e302e31000068e2ffff00000002000831302e302e302e32000068e2\
ffff00000003000831302e302e302e33000068e2ffff00166332566864484a70595777746132466d613245744d4100000003\
0000000100000008736561747269616c00000000030000000000010000000100000000000000030000000100000002000000\
0300000003000000010000000200000003000000000000000000020000000200000000000000030000000200000003000000\
0100000003000000020000000300000001000000000000000000000000000300000000000000030000000300000001000000\
020000000100000003000000008000000080000000";
/// The same when n3 knows no other broker any more.
const ALONE: &str = "\
00000017000000000000000100000003000831302e302e302e33000068e2ffff00166332566864484a70595777746132466d\
613245744d41000000030000000100000008736561747269616c000000000300000000000100000003000000010000000300\
0000010000000200000003000000010000000300000002000000010000000200000000000200000003000000010000000300\
0000020000000300000001000000010000000300000002000000020000000100000000000000000003000000000000000300\
000003000000010000000200000001000000030000000200000001000000028000000080000000";
/// Before the topic was created.
const NO_TOPIC: &str = "\
00000001000000000000000200000001000831302e302e302e31000068e2ffff00000002000831302e302e302e32000068e2ffff\
00166332566864484a70595777746132466d613245744d41000000010000000100030008736561747269616c0000000000800000\
0080000000";
/// The topic was there already.
const CREATED: &str = "\
0000000100000000000000010008736561747269616c00240020546f7069632027736561747269616c2720616c72656164792065\
78697374732e";
/// Offset 1 of partition 0.
const PRODUCED: &str = "\
00000001000000010008736561747269616c000000010000000000000000000000000001ffffffffffffffff0000000000000000\
00000000ffff00000000";
/// The end of partition 0 is 0.
const ENDED: &str = "\
0000000200000000000000010008736561747269616c00000001000000000000ffffffffffffffff000000000000000000000000";
/// Three batches of a message each, and the beginning of a fourth.
const FETCHED: &str = "\
0000000200000000000000000000000000010008736561747269616c000000010000000000000000000000000082000000000000\
00820000000000000000ffffffffffffffff0000010400000000000000000000003a0000000002c55818f5000000000000000001\
a224d0a78b000001a224d0a78bffffffffffffffffffffffffffff0000000110000000023002310000000000000000010000003a\
0000000002e466dc2c000000000000000001a224d0a812000001a224d0a812ffffffffffffffffffffffffffff00000001100000\
00023102310000000000000000020000003a000000000248cfa66d000000000000000001a224d0a85a000001a224d0a85affffff\
ffffffffffffffffffffff0000000110000000023002320000000000000000030000003a0000000002c734702000000000000000\
0001a224d0a8ac000001a224d0a8acffffffffffffff";
/// From offset 1,000,000,000 on.
const OUT_OF_RANGE: &str = "\
0000000200000000000000000000000000010008736561747269616c00000001000000000001ffffffffffffffffffffffffffff\
ffffffffffffffffffffffffffffffffffff00000000";

fn bytes(hex: &str) -> Bytes {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

/// The answer as the client reads it.
fn answer<R: KafkaRequest>(hex: &str) -> R::Answer {
    let frame = bytes(hex);
    let number = i32::from_be_bytes(frame[..4].try_into().unwrap());
    decoded::<R>(&frame, number).unwrap()
}

fn refusal(error: ResponseError) -> KafkaError {
    KafkaError::Refused { error, offset: -1 }
}

#[test]
fn metadata_name_the_leader_of_each_partition() {
    let found = |hex| {
        let found = partitions(answer::<MetadataRequest>(hex)).unwrap();
        let found = found.iter();
        found
            .map(|one| (leader(one), one.isr_nodes.len()))
            .collect::<Vec<_>>()
    };
    let [n1, n2, n3] = [1, 2, 3].map(|number| Some(NodeId::server(number)));
    assert_eq!(found(METADATA), [(n3, 1), (n1, 3), (n2, 3)]);
    assert_eq!(found(ALONE), [(n3, 1), (n3, 1), (n3, 1)]);
    assert_eq!(answer::<MetadataRequest>(METADATA).brokers.len(), 3);
    let mut none = partitions(answer::<MetadataRequest>(ALONE)).unwrap();
    none[0].leader_id = (-1).into();
    assert_eq!(leader(&none[0]), None);
    let missing = partitions(answer::<MetadataRequest>(NO_TOPIC));
    let expected = refusal(ResponseError::UnknownTopicOrPartition);
    assert_eq!(missing, Err(expected));
}

#[test]
fn offsets_and_errors_are_those_of_the_partition() {
    assert_eq!(
        requests::created(&answer::<CreateTopicsRequest>(CREATED)),
        Ok(())
    );
    let mut produce = answer::<ProduceRequest>(PRODUCED);
    assert_eq!(produced(&produce), Ok(1));
    let partition = &mut produce.responses[0].partition_responses[0];
    partition.error_code = ResponseError::NotLeaderOrFollower.code();
    let error = produced(&produce).unwrap_err();
    assert!(!error.is_definite(), "it has an offset: {error}");
    produce.responses[0].partition_responses[0].base_offset = -1;
    assert!(produced(&produce).unwrap_err().is_definite());
    produce.responses[0].partition_responses[0].error_code = 0;
    assert!(matches!(produced(&produce), Err(KafkaError::Lost(_))));
    assert_eq!(end_offset(&answer::<ListOffsetsRequest>(ENDED)), Ok(0));
}

#[test]
fn a_batch_that_is_cut_off_is_left_for_the_next_fetch() {
    let found = fetched(answer::<FetchRequest>(FETCHED), 1).unwrap();
    assert_eq!(found.next, Some(3));
    let found = found.messages.iter();
    let found: Vec<_> = found
        .map(|one| (one.offset, &one.key[..], one.number))
        .collect();
    assert_eq!(found, [(1, &b"1"[..], 1), (2, b"0", 2)]);
    let error = fetched(answer::<FetchRequest>(OUT_OF_RANGE), 1_000_000_000);
    assert_eq!(error, Err(refusal(ResponseError::OffsetOutOfRange)));
}

#[test]
fn a_request_has_its_length_and_number() {
    let key = Bytes::from_static(b"7");
    let request = requests::produce(2, &key, 41, -1, Duration::from_millis(1_439)).unwrap();
    let frame = encoded(&request, 5).unwrap();
    assert_eq!(frame[..4], (frame.len() as u32 - 4).to_be_bytes());
    // Key 0, version 8, number 5, client, no transaction, all replicas, 1,439 ms, one topic.
    let expected =
        "00000008000000050008736561747269616cffffffff0000059f000000010008736561747269616c";
    assert_eq!(frame.slice(4..44), bytes(expected));
    // The batch that was written is read again.
    let batch = request.topic_data[0].partition_data[0].records.clone();
    let found = messages(batch.unwrap(), 0).unwrap();
    assert_eq!((found.messages[0].number, found.next), (41, Some(1)));
    let wrong = decoded::<ProduceRequest>(&bytes(PRODUCED), 2).unwrap_err();
    assert_eq!(wrong, "the answer to request 1 in place of 2");
}

/// Reads an answer like a client; whatever it has, this ends, and reserves no more than there are bytes for: the decoder of
/// `kafka-protocol` would end the process at a count of 2^31 elements.
fn read<R: KafkaRequest>(frame: &[u8], take: impl Fn(R::Answer)) {
    let frame = Bytes::copy_from_slice(frame);
    if let Some((number, _)) = frame.split_first_chunk()
        && let Ok(answer) = decoded::<R>(&frame, i32::from_be_bytes(*number))
    {
        take(answer);
    }
}

/// Calls `read` with the answer truncated, with each byte changed, and with several bytes changed.
fn damage(hex: &str, read: impl Fn(&[u8])) {
    let good = bytes(hex);
    for length in 0..good.len() {
        read(&good[..length]);
    }
    for place in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xfe, 0xff] {
            let mut damaged = good.to_vec();
            damaged[place] = value;
            read(&damaged);
        }
    }
    let mut rng = Rng::from_seed(7);
    for _ in 0..20_000 {
        let mut damaged = good.to_vec();
        for _ in 0..=rng.below(4) {
            let place = rng.below(damaged.len() as u64) as usize;
            damaged[place] = rng.below(256) as u8;
        }
        // A count or length as large as they get.
        if rng.below(4) == 0 && damaged.len() > 8 {
            let place = rng.below(damaged.len() as u64 - 4) as usize;
            damaged[place..place + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        }
        read(&damaged);
    }
}

#[test]
fn damaged_answers_are_errors() {
    for metadata in [METADATA, ALONE, NO_TOPIC] {
        damage(metadata, |frame| {
            read::<MetadataRequest>(frame, |answer| _ = partitions(answer));
        });
    }
    damage(CREATED, |frame| {
        read::<CreateTopicsRequest>(frame, |answer| _ = requests::created(&answer));
    });
    damage(PRODUCED, |frame| {
        read::<ProduceRequest>(frame, |answer| _ = produced(&answer));
    });
    damage(ENDED, |frame| {
        read::<ListOffsetsRequest>(frame, |answer| _ = end_offset(&answer));
    });
    damage(FETCHED, |frame| {
        read::<FetchRequest>(frame, |answer| _ = fetched(answer, 0));
    });
}
