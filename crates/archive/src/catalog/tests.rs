use super::*;
use seatrial_blocks::{BlockKind, RecordingTag};
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

fn event(rng: &mut Rng) -> CatalogEvent {
    let kind = match rng.below(8) {
        0 => EventKind::Started {
            tag: (rng.below(2) == 0).then(|| RecordingTag(rng.word() as u32)),
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
    CatalogEvent {
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
            CatalogEvent::decode(BlockKind::CATALOG, &bytes),
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
        match CatalogEvent::decode(BlockKind::CATALOG, &bytes) {
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

/// What the twin knows of a recording: is it being recorded, start, end.
type Known = (bool, Boundary, Boundary);

/// An event for few recordings and places, so that many follow from those before.
fn likely_event(rng: &mut Rng, twin: &BTreeMap<u64, Known>, next: u64) -> CatalogEvent {
    let mut made = event(rng);
    let id = 1 + rng.below(next + 1);
    made.recording = RecordingId(id);
    let known = twin.get(&id).copied().unwrap_or_default();
    let mut place = |near: Boundary| {
        let step = [0, 0, 8, 16][rng.index(4)];
        let back = rng.below(3) == 0;
        let at = near.position.0;
        Boundary {
            position: Position(if back {
                at.saturating_sub(step)
            } else {
                at + step
            }),
            ..near
        }
    };
    match &mut made.kind {
        EventKind::Started { start, .. } => *start = place(Boundary::default()),
        EventKind::Extended { end } | EventKind::Stopped { end } | EventKind::Truncated { end } => {
            *end = place(known.2);
        }
        EventKind::StartMoved { start, .. } => *start = place(known.1),
        _ => {}
    }
    made
}

/// The rules again: takes the event over if it follows.
fn follows(twin: &mut BTreeMap<u64, Known>, next: &mut u64, event: &CatalogEvent) -> bool {
    let id = event.recording.0;
    if let EventKind::Started { start, .. } = event.kind {
        let is_new = id >= *next;
        if is_new {
            *next = id + 1;
            twin.insert(id, (true, start, start));
        }
        return is_new;
    }
    if event.kind == EventKind::Deleted {
        let is_meant = twin.remove(&id).is_some() || id >= *next;
        *next = (*next).max(id + 1);
        return is_meant;
    }
    let Some((live, start, end)) = twin.get_mut(&id) else {
        return false;
    };
    match event.kind {
        EventKind::Extended { end: at } if !*live && at == *end => *live = true,
        EventKind::Stopped { end: at } if *live && at.position >= end.position => {
            (*live, *end) = (false, at);
        }
        EventKind::Truncated { end: at }
            if at.position >= start.position && (*live || at.position <= end.position) =>
        {
            (*live, *end) = (false, at);
        }
        EventKind::StartMoved { start: at, .. } if *live || at.position <= end.position => {
            *start = at;
            if end.position < at.position {
                *end = at;
            }
        }
        EventKind::Labelled { .. } | EventKind::CopiedFrom { .. } => {}
        _ => return false,
    }
    true
}

#[test]
fn events_add_up_as_the_rules_say_and_the_fewest_of_them_to_the_same() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::from_seed(seed);
        let (mut catalog, mut twin, mut next) = (Catalog::default(), BTreeMap::new(), 1);
        for _ in 0..60 {
            let event = likely_event(&mut rng, &twin, next);
            let before = catalog.clone();
            let applied = catalog.apply(&event);
            let expected = follows(&mut twin, &mut next, &event);
            assert_eq!(
                applied.is_ok(),
                expected,
                "seed {seed}: {event:?} {applied:?}"
            );
            if expected {
                taken += 1;
            } else {
                assert_eq!(catalog, before, "seed {seed}");
                refused += 1;
            }
            let found = catalog.recordings().map(|recording| {
                let live = recording.stopped.is_none();
                (recording.id.0, (live, recording.start, recording.end))
            });
            assert!(
                found.eq(twin.iter().map(|(id, known)| (*id, *known))),
                "seed {seed}"
            );
            assert_eq!(catalog.next().0, next, "seed {seed}");
            let mut again = Catalog::default();
            for event in catalog.events() {
                again.apply(&event).unwrap();
            }
            assert_eq!(again, catalog, "seed {seed}");
        }
    }
    assert!(taken > 4_000 && refused > 5_000, "{taken} {refused}");
}

#[test]
fn mutated_catalogs_never_panic_and_never_yield_unwritten_entries() {
    let mut clean = 0;
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let (mut events, mut catalog) = (Vec::new(), Catalog::default());
        let (mut twin, mut next) = (BTreeMap::new(), 1);
        let mut states = vec![catalog.clone()];
        for _ in 0..8 {
            let event = likely_event(&mut rng, &twin, next);
            if follows(&mut twin, &mut next, &event) {
                catalog.apply(&event).unwrap();
                states.push(catalog.clone());
                events.push(event);
            }
        }
        let mut bytes = encode_events(&events);
        for _ in 0..rng.below(3) {
            if !bytes.is_empty() {
                let at = rng.index(bytes.len());
                bytes[at] = rng.word() as u8;
            }
        }
        bytes.truncate(rng.index(2 * bytes.len() + 1));
        if let Ok(contents) = read(&bytes, std::path::PathBuf::from("catalog"), None) {
            let is_whole = contents.torn.is_none();
            let is_written = states.iter().enumerate().any(|(count, state)| {
                let last = count.checked_sub(1).map(|last| &events[last]);
                *state == contents.catalog && last == contents.last.as_ref()
            });
            assert!(is_written, "seed {seed}: {contents:?}");
            clean += u64::from(is_whole);
        }
    }
    assert!((500..2_900).contains(&clean), "{clean}");
}
