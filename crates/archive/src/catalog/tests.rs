use super::*;
use crate::BlockKind;
use seatrial_machine::Rng;

fn boundary(rng: &mut Rng) -> Boundary {
    Boundary {
        position: Position(rng.word()),
        message: rng.word(),
        sequence: rng.word(),
        time: rng.word(),
    }
}

fn text(rng: &mut Rng) -> String {
    let length = rng.index(12);
    (0..length)
        .map(|_| ['a', 'z', ' ', '\u{e9}', '\u{2603}'][rng.index(5)])
        .collect()
}

fn event(rng: &mut Rng) -> Event {
    let kind = match rng.below(8) {
        0 => EventKind::Started {
            start: boundary(rng),
            segment_length: rng.word(),
            durability: match rng.below(3) {
                0 => Durability::None,
                1 => Durability::Group {
                    milliseconds: rng.word() as u32,
                    bytes: rng.word(),
                },
                _ => Durability::Batch,
            },
            label: text(rng),
        },
        1 => EventKind::Extended { end: boundary(rng) },
        2 => EventKind::Stopped { end: boundary(rng) },
        3 => EventKind::Truncated { end: boundary(rng) },
        4 => EventKind::StartMoved {
            start: boundary(rng),
            purge: rng.below(2) == 0,
        },
        5 => EventKind::Deleted,
        6 => EventKind::Labelled { label: text(rng) },
        _ => EventKind::CopiedFrom {
            source: Source {
                archive: text(rng),
                recording: RecordingId(rng.word()),
            },
        },
    };
    Event {
        recording: RecordingId(1 + rng.below(RecordingId::MAX.0)),
        time: rng.word(),
        kind,
    }
}

#[test]
fn events_come_back_and_mutated_ones_never_panic() {
    let (mut same, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let event = event(&mut rng);
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        assert_eq!(
            Event::decode(BlockKind::CATALOG, &bytes),
            Ok(event),
            "{seed}"
        );
        match rng.below(3) {
            0 => bytes.truncate(rng.index(bytes.len())),
            1 => bytes.push(rng.word() as u8),
            _ => {
                let at = rng.index(bytes.len());
                bytes[at] = rng.word() as u8;
            }
        }
        match Event::decode(BlockKind::CATALOG, &bytes) {
            Ok(event) => {
                let mut again = Vec::new();
                event.encode(&mut again);
                assert_eq!(
                    again, bytes,
                    "seed {seed}: what is read is what would be written"
                );
                same += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(same > 3_000 && refused > 3_000, "{same} {refused}");
}
