use super::*;
use crate::sample_recording::{FOLDER, RECORDING, SampleRecording, name, small};
use seatrial_machine::Rng;
use seatrial_sim::{FileTree, MemoryStorage};
use std::sync::Arc;

fn run(storage: &dyn Storage, threads: usize) -> RecordingReport {
    let options = VerifyOptions {
        threads,
        checksums: true,
    };
    let done = Mutex::new(Vec::new());
    let on_progress = |progress: VerifyProgress| hold(&done).push(progress);
    let mut reports = verify(
        storage,
        Path::new(FOLDER),
        &[RECORDING],
        options,
        &on_progress,
    )
    .unwrap();
    assert!(hold(&done).iter().all(|at| at.done <= at.total));
    assert_eq!(reports.len(), 1);
    reports.remove(0)
}

fn of_tree(tree: &FileTree, lends: bool) -> RecordingReport {
    let storage = MemoryStorage::from_files(tree);
    let storage: Arc<dyn Storage> = if lends {
        Arc::new(storage.lending())
    } else {
        Arc::new(storage)
    };
    run(&*storage, 2)
}

#[test]
fn a_sound_recording_is_counted() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let tape = SampleRecording::random(&mut rng);
        let report = of_tree(&tape.tree(), rng.chance(0.5));
        let expected = RecordingReport {
            recording: RECORDING,
            start: tape.segments[0].0,
            end: tape.end(),
            segments: tape.segments.len() as u64,
            blocks: tape.blocks.len() as u64,
            messages: tape.messages.len() as u64,
            bytes: tape.end().since(tape.segments[0].0),
            damages: Vec::new(),
            torn: None,
        };
        assert_eq!(report, expected, "seed {seed}");
    }
}

#[test]
fn every_flipped_bit_is_reported_and_the_rest_is_counted() {
    for is_stopped in [false, true] {
        check_flips(&SampleRecording {
            is_stopped,
            ..small()
        });
    }
}

fn check_flips(tape: &SampleRecording) {
    let last = tape.segments.len() - 1;
    for (index, (start, bytes)) in tape.segments.iter().enumerate() {
        for bit in 0..bytes.len() * 8 {
            let mut tree = tape.tree();
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            tree.insert(Path::new(FOLDER).join(name(*start).file()), flipped);
            let report = of_tree(&tree, bit % 2 == 0);
            let place = start.plus(bit as u64 / 8);
            let what = format!("segment {start}, bit {bit}: {report:?}");
            let found = report
                .damages
                .first()
                .or(report.torn.as_ref())
                .expect(&what);
            let end = found.position.plus(found.length);
            assert!((found.position..end).contains(&place), "{what}");
            let may_be_torn = index == last && !tape.is_stopped;
            assert!(report.torn.is_none() || may_be_torn, "{what}");
            assert_eq!(
                report.damages.len() + usize::from(report.torn.is_some()),
                1,
                "{what}"
            );
            // One block at most is lost.
            let lost = |at: &Position| (found.position..end).contains(at);
            let blocks = tape.blocks.iter().filter(|at| !lost(at)).count();
            assert_eq!(report.blocks, blocks as u64, "{what}");
            let messages = tape.messages.iter().filter(|seen| !lost(&seen.position));
            assert_eq!(report.messages, messages.count() as u64, "{what}");
        }
    }
}

#[test]
fn every_shorter_file_is_reported() {
    for is_stopped in [false, true] {
        check_lengths(&SampleRecording {
            is_stopped,
            ..small()
        });
    }
}

fn check_lengths(tape: &SampleRecording) {
    let last = tape.segments.len() - 1;
    for (index, (start, bytes)) in tape.segments.iter().enumerate() {
        for length in 0..bytes.len() {
            let mut tree = tape.tree();
            let file = Path::new(FOLDER).join(name(*start).file());
            tree.insert(&file, bytes[..length].to_vec());
            let report = of_tree(&tree, length % 2 == 0);
            let what = format!("segment {start}, length {length}: {report:?}");
            // A file that is cut between blocks, at the end of what is being recorded, is as good as any.
            let is_boundary = tape.blocks.contains(&start.plus(length as u64)) || length == 0;
            let is_told = !report.damages.is_empty() || report.torn.is_some();
            let may_be_torn = index == last && !tape.is_stopped;
            assert!(is_told || may_be_torn && is_boundary, "{what}");
            assert!(may_be_torn || !report.damages.is_empty(), "{what}");
        }
    }
}

#[test]
fn several_damages_are_all_reported() {
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let mut tape = SampleRecording::default();
        tape.begin_segment(Position(0));
        for _ in 0..40 {
            tape.append(&mut rng, 3, 50);
        }
        tape.begin_segment(tape.end());
        tape.append(&mut rng, 3, 50);
        let mut bytes = tape.segments[0].1.clone();
        let mut hit: Vec<usize> = (0..3).map(|_| rng.index(40)).collect();
        hit.sort_unstable();
        hit.dedup();
        for &block in &hit {
            let from = tape.blocks[block].0;
            let to = tape.blocks[block + 1].min(tape.segments[1].0).0;
            bytes[(from + rng.below(to - from)) as usize] ^= 1 << rng.below(8);
        }
        let mut tree = tape.tree();
        tree.insert(Path::new(FOLDER).join(name(Position(0)).file()), bytes);
        let report = of_tree(&tree, true);
        let places: Vec<Position> = report
            .damages
            .iter()
            .map(|damage| damage.position)
            .collect();
        // Two damaged headers next to each other are one damage.
        assert!(places.len() <= hit.len(), "seed {seed}");
        for &block in &hit {
            let place = tape.blocks[block];
            let is_told = report.damages.iter().any(|damage| {
                let end = damage.position.plus(damage.length);
                (damage.position..end).contains(&place)
            });
            assert!(is_told, "seed {seed}: block {block}, {report:?}");
        }
        let segments = 41 - hit.len() as u64;
        assert_eq!(report.blocks, segments, "seed {seed}: {report:?}");
    }
}

#[test]
fn a_missing_file_and_arbitrary_bytes_are_reported() {
    let tape = small();
    let mut tree = tape.tree();
    tree.remove(Path::new(FOLDER).join(name(tape.segments[1].0).file()));
    let report = of_tree(&tree, true);
    let [damage] = &report.damages[..] else {
        panic!("{report:?}");
    };
    let (expected, found) = (tape.segments[1].0, tape.segments[2].0);
    assert_eq!(damage.fault, VerifyFault::Gap { expected, found });
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let mut tree = tape.tree();
        let (start, bytes) = rng.pick(&tape.segments).clone();
        let mut bytes = bytes;
        for _ in 0..=rng.index(8) {
            let from = rng.index(bytes.len());
            let to = bytes.len().min(from + 1 + rng.index(40));
            match rng.below(3) {
                0 => bytes[from..to].fill(0),
                1 => bytes[from..to].fill_with(|| rng.word() as u8),
                _ => {
                    let copied = bytes[from..to].to_vec();
                    bytes.splice(from..from, copied);
                }
            }
        }
        tree.insert(Path::new(FOLDER).join(name(start).file()), bytes.clone());
        let report = of_tree(&tree, rng.chance(0.5));
        let is_told = !report.damages.is_empty() || report.torn.is_some();
        assert!(
            is_told || tape.segments.contains(&(start, bytes)),
            "seed {seed}"
        );
    }
}
