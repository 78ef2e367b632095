use super::*;
use crate::archive_answer::{
    Claimed, Health, RecordingDescription, RefusalCode, SegmentDescription,
};
use crate::archive_operation::{
    CopyRequest, LabelFilter, ListFilter, ReplayBound, ReplayFrom, ReplayRequest,
};
use seatrial_archive::{Boundary, Durability, Position, RecordingId, Source};
use seatrial_machine::Rng;

fn text(rng: &mut Rng) -> String {
    let letters = ["a", "Z", "\u{f6}", "\u{6f22}", " ", "/", "\u{1f6a2}"];
    (0..rng.below(6)).map(|_| *rng.pick(&letters)).collect()
}

fn durability(rng: &mut Rng) -> Durability {
    match rng.below(3) {
        0 => Durability::None,
        1 => Durability::Group {
            milliseconds: rng.word() as u32,
            bytes: rng.word(),
        },
        _ => Durability::Batch,
    }
}

fn filter(rng: &mut Rng) -> ListFilter {
    ListFilter {
        label: match rng.below(3) {
            0 => LabelFilter::Any,
            1 => LabelFilter::Is(text(rng)),
            _ => LabelFilter::Contains(text(rng)),
        },
        time_from: rng.word(),
        time_to: rng.word(),
        position: Some(rng.below(100)).filter(|_| rng.chance(0.5)),
    }
}

fn replay(rng: &mut Rng) -> ReplayRequest {
    ReplayRequest {
        recording: rng.word(),
        from: match rng.below(5) {
            0 => ReplayFrom::Start,
            1 => ReplayFrom::Position(rng.word()),
            2 => ReplayFrom::Message(rng.word()),
            3 => ReplayFrom::Time(rng.word()),
            _ => ReplayFrom::End,
        },
        bound: match rng.below(4) {
            0 => ReplayBound::Position(rng.word()),
            1 => ReplayBound::End,
            2 => ReplayBound::Live,
            _ => ReplayBound::Follow,
        },
        window_bytes: rng.word() as u32,
        is_eager: rng.chance(0.5),
    }
}

fn operation(rng: &mut Rng) -> ArchiveOperation {
    let (recording, position) = (rng.word(), rng.word());
    match rng.below(17) {
        0 => ArchiveOperation::List {
            after: recording,
            count_max: position as u32,
            filter: filter(rng),
        },
        1 => ArchiveOperation::Describe { recording },
        2 => ArchiveOperation::Start {
            label: text(rng),
            segment_length: position,
            durability: durability(rng),
            is_resumed: rng.chance(0.5),
        },
        3 => ArchiveOperation::Extend { recording },
        4 => ArchiveOperation::Stop { recording },
        5 => ArchiveOperation::Flush { recording },
        6 => ArchiveOperation::Truncate {
            recording,
            position,
        },
        7 => ArchiveOperation::Purge {
            recording,
            before: position,
        },
        8 => ArchiveOperation::Detach {
            recording,
            before: position,
        },
        9 => ArchiveOperation::Attach { recording },
        10 => ArchiveOperation::Delete { recording },
        11 => ArchiveOperation::Relabel {
            recording,
            label: text(rng),
        },
        12 => ArchiveOperation::Compact,
        13 => ArchiveOperation::Health,
        15 => ArchiveOperation::Copy(CopyRequest {
            source: source(rng),
            label: text(rng),
            segment_length: position,
            durability: durability(rng),
            start: boundary(rng),
        }),
        14 => ArchiveOperation::Segments {
            recording,
            from: position,
            count_max: rng.word() as u32,
        },
        _ => ArchiveOperation::Replay(replay(rng)),
    }
}

fn refusal(rng: &mut Rng) -> Refusal {
    let codes = [
        RefusalCode::Malformed,
        RefusalCode::Conflict,
        RefusalCode::WrongBatch,
    ];
    Refusal::new(*rng.pick(&codes), text(rng))
}

fn boundary(rng: &mut Rng) -> Boundary {
    Boundary {
        position: Position(rng.word()),
        message: rng.word(),
        sequence: rng.word(),
        time: rng.word(),
    }
}

fn description(rng: &mut Rng) -> RecordingDescription {
    RecordingDescription {
        recording: rng.word(),
        is_recording: rng.chance(0.5),
        durability: durability(rng),
        segment_length: rng.word(),
        started_at: rng.word(),
        stopped_at: Some(rng.below(9)).filter(|_| rng.chance(0.5)),
        start: boundary(rng),
        end: boundary(rng),
        source: rng.chance(0.5).then(|| source(rng)),
        label: text(rng),
    }
}

fn source(rng: &mut Rng) -> Source {
    Source {
        archive: text(rng),
        recording: RecordingId(1 + rng.below(9)),
    }
}

fn segment(rng: &mut Rng) -> SegmentDescription {
    SegmentDescription {
        start: rng.word(),
        length: rng.word(),
        is_detached: rng.chance(0.5),
        first_message: Some(rng.below(9)).filter(|_| rng.chance(0.5)),
        problem: Some(text(rng)).filter(|text| !text.is_empty()),
    }
}

fn answer(rng: &mut Rng) -> ArchiveAnswer {
    match rng.below(8) {
        0 => ArchiveAnswer::Done,
        1 => ArchiveAnswer::List {
            recordings: (0..rng.below(4)).map(|_| description(rng)).collect(),
            has_more: rng.chance(0.5),
        },
        2 => ArchiveAnswer::Description(description(rng)),
        3 => ArchiveAnswer::Claimed(Claimed {
            claim: rng.word(),
            recording: rng.word(),
            next_message: rng.word(),
            position: rng.word(),
            durability: durability(rng),
        }),
        4 => ArchiveAnswer::Position(rng.word()),
        5 => ArchiveAnswer::ReplayBegun {
            position: rng.word(),
            end: Some(rng.below(9)).filter(|_| rng.chance(0.5)),
            window_bytes: rng.word() as u32,
        },
        6 => ArchiveAnswer::Segments {
            segments: (0..rng.below(4)).map(|_| segment(rng)).collect(),
            has_more: rng.chance(0.5),
        },
        _ => ArchiveAnswer::Health(Health {
            uptime_ns: rng.word(),
            sessions: rng.word(),
            replays: rng.word(),
            recordings: rng.word(),
            messages_recorded: rng.word(),
            bytes_recorded: rng.word(),
            bytes_replayed: rng.word(),
            syncs: rng.word(),
            replay_bytes: rng.word(),
            record_bytes: rng.word(),
        }),
    }
}

#[test]
fn a_client_of_another_version_is_answered_in_its_own_words() {
    let hello = ClientMessage::Hello {
        version: 1,
        token: 77,
        session: 0,
    };
    let answer = refuse_version(&hello.encode()).unwrap();
    let Ok(ServerMessage::Welcome { token, granted }) = ServerMessage::decode(&answer) else {
        panic!("no welcome");
    };
    assert_eq!(token, 77);
    assert_eq!(granted.unwrap_err().code, RefusalCode::WrongVersion);
    assert_eq!(refuse_version(&[7; 24]), None);
}

/// A message of a client, as sent.
fn from_client(rng: &mut Rng) -> Vec<u8> {
    let (session, second) = (rng.word(), rng.word());
    let frames = vec![7; rng.index(30)];
    let message = match rng.below(9) {
        0 => ClientMessage::Hello {
            version: rng.word() as u8,
            token: second,
            session: second,
        },
        1..4 => ClientMessage::Request {
            session,
            request: second,
            operation: operation(rng),
        },
        4 => ClientMessage::Record {
            session,
            claim: second,
            first_message: rng.word(),
            messages: rng.word() as u32,
            checksum: rng.word() as u32,
            form: *rng.pick(&[BatchForm::Frames, BatchForm::Blocks]),
            body: &frames,
        },
        5 => ClientMessage::Credit {
            session,
            replay: second,
            limit: rng.word(),
        },
        6 => ClientMessage::Close {
            session,
            replay: second,
        },
        7 => ClientMessage::Alive { session },
        _ => ClientMessage::Goodbye { session },
    };
    let bytes = message.encode();
    assert_eq!(ClientMessage::decode(&bytes), Ok(message));
    bytes
}

fn granted(session: u64, rng: &mut Rng) -> Result<Granted, Refusal> {
    if rng.chance(0.5) {
        return Err(refusal(rng));
    }
    Ok(Granted {
        session,
        record_window_bytes: rng.word() as u32,
        batch_bytes_max: rng.word() as u32,
        replay_window_bytes_max: rng.word() as u32,
        session_timeout_ms: rng.word() as u32,
    })
}

/// A message of the server, as sent.
fn from_server(rng: &mut Rng) -> Vec<u8> {
    let (session, second) = (rng.word(), rng.word());
    let blocks = vec![7; rng.index(30)];
    let message = match rng.below(9) {
        0 => ServerMessage::Welcome {
            token: second,
            granted: granted(session, rng),
        },
        1..4 => ServerMessage::Reply {
            session,
            request: second,
            result: if rng.chance(0.2) {
                Err(refusal(rng))
            } else {
                Ok(answer(rng))
            },
        },
        4 => ServerMessage::Recorded {
            session,
            claim: second,
            reached: RecordProgress {
                written_message: rng.word(),
                written_position: rng.word(),
                durable_message: rng.word(),
                durable_position: rng.word(),
            },
            places: (0..rng.below(4))
                .map(|_| BatchPlace {
                    first_message: rng.word(),
                    position: rng.word(),
                    end: rng.word(),
                })
                .collect(),
            refusal: rng.chance(0.3).then(|| refusal(rng)),
        },
        5 => ServerMessage::Data {
            session,
            replay: second,
            offset: rng.word(),
            blocks: &blocks,
        },
        6 => ServerMessage::Replay {
            session,
            replay: second,
            state: *rng.pick(&[
                ReplayState::Open,
                ReplayState::Complete,
                ReplayState::Stopped,
                ReplayState::Failed,
                ReplayState::Unknown,
            ]),
            offset: rng.word(),
            position: rng.word(),
            refusal: rng.chance(0.3).then(|| refusal(rng)),
        },
        7 => ServerMessage::Alive { session },
        _ => ServerMessage::Gone { session },
    };
    let bytes = message.encode();
    assert_eq!(ServerMessage::decode(&bytes), Ok(message));
    bytes
}

/// Changes, cuts or lengthens.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        match rng.below(4) {
            0 if !bytes.is_empty() => {
                let place = rng.index(bytes.len());
                bytes.truncate(place);
            }
            1 => bytes.extend((0..rng.below(9)).map(|_| rng.below(256) as u8)),
            _ if !bytes.is_empty() => {
                let place = rng.index(bytes.len().min(64));
                bytes[place] = rng.word() as u8;
            }
            _ => {}
        }
    }
}

/// Bytes that decode are the encoding of the result; decoding neither panics nor allocates by an unchecked length.
fn decodes(bytes: &[u8]) -> (bool, bool) {
    let client = ClientMessage::decode(bytes);
    if let Ok(message) = &client {
        assert_eq!(message.encode(), bytes, "{message:?}");
    }
    let server = ServerMessage::decode(bytes);
    if let Ok(message) = &server {
        assert_eq!(message.encode(), bytes, "{message:?}");
    }
    (client.is_ok(), server.is_ok())
}

#[test]
fn messages_come_back_as_they_were_and_changed_ones_never_panic() {
    let mut rng = Rng::from_seed(1);
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..20_000 {
        for mut bytes in [from_client(&mut rng), from_server(&mut rng)] {
            let (client, server) = decodes(&bytes);
            assert!(client != server, "a message is of one side only");
            mutate(&mut bytes, &mut rng);
            match decodes(&bytes) {
                (false, false) => refused += 1,
                _ => whole += 1,
            }
        }
    }
    println!("{whole} changed messages were messages, {refused} were not");
    assert!(whole > 1_000 && refused > 10_000);
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::from_seed(2);
    for _ in 0..50_000 {
        let length = rng.index(80);
        let mut bytes: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
        if let Some(first) = bytes.first_mut() {
            *first %= 24;
        }
        decodes(&bytes);
        for byte in bytes.iter_mut().skip(1) {
            *byte %= 3;
        }
        decodes(&bytes);
    }
}

#[test]
fn every_cut_of_every_message_is_refused_with_its_place() {
    let mut rng = Rng::from_seed(3);
    for _ in 0..300 {
        let client = from_client(&mut rng);
        // A message with a body of any length may end anywhere after its fields.
        let is_open = matches!(client[0], 3 | 8);
        for length in 0..client.len() {
            let decoded = ClientMessage::decode(&client[..length]);
            let whole = is_open && length >= HEADER_LENGTH + RECORD_HEADER_LENGTH;
            assert_eq!(decoded.is_ok(), whole, "{length} of {client:?}");
            if let Err(error) = decoded {
                let is_short =
                    matches!(error, MessageError::Short { offset, .. } if offset <= length);
                assert!(is_short, "{error}");
            }
        }
    }
}

#[test]
fn a_claimed_count_allocates_nothing() {
    let mut bytes = ServerMessage::Reply {
        session: 1,
        request: 2,
        result: Ok(ArchiveAnswer::List {
            recordings: Vec::new(),
            has_more: false,
        }),
    }
    .encode();
    bytes[HEADER_LENGTH + 1..HEADER_LENGTH + 5].fill(255);
    let error = ServerMessage::decode(&bytes).unwrap_err();
    let expected = "message ends at 30, inside the recording that starts at 30";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn the_byte_map_is_the_documented_one() {
    let request = ClientMessage::Request {
        session: 0x1716_1514_1312_1110,
        request: 0x2726_2524_2322_2120,
        operation: ArchiveOperation::Truncate {
            recording: 5,
            position: 6,
        },
    };
    let bytes = [
        2, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x20, 0x21, 0x22,
        0x23, 0x24, 0x25, 0x26, 0x27, 7, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(request.encode(), bytes);
    let refused = ServerMessage::Reply {
        session: 1,
        request: 2,
        result: Err(Refusal::new(RefusalCode::Conflict, "no")),
    };
    let bytes = [
        17, 8, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, b'n', b'o',
    ];
    assert_eq!(refused.encode(), bytes);
}
