use super::*;
use crate::block;
use seatrial_machine::Rng;

const PURPOSE: [u8; 4] = *b"test";

/// A file under construction, its roots' offsets and the slots so far.
struct File {
    bytes: Vec<u8>,
    sequence: u64,
    slots: RootSlots,
    roots: Vec<u64>,
}

impl File {
    fn new() -> File {
        File {
            bytes: first_page(PURPOSE).to_vec(),
            sequence: 0,
            slots: RootSlots::new(),
            roots: Vec::new(),
        }
    }

    fn append(&mut self, kind: BlockKind) -> u64 {
        let offset = self.bytes.len() as u64;
        block::write(&mut self.bytes, kind, 0, self.sequence, &[7; 100], 100);
        self.sequence += 1;
        offset
    }

    /// A data block and a root, without the hint.
    fn root(&mut self) -> Slot {
        self.append(BlockKind::FRAMES);
        let sequence = self.sequence + 1;
        self.append(BlockKind(16));
        let offset = self.append(BlockKind::ROOT);
        self.roots.push(offset);
        self.slots.next(offset, sequence)
    }

    fn hint(&mut self, slot: &Slot) {
        self.bytes[slot.offset as usize..][..SLOT_LENGTH].copy_from_slice(&slot.bytes);
    }

    fn with_roots(count: usize) -> File {
        let mut file = File::new();
        for _ in 0..count {
            let slot = file.root();
            file.hint(&slot);
        }
        file.append(BlockKind::FRAMES);
        file
    }

    fn spoil_slot(&mut self, index: usize) {
        self.bytes[SLOT_OFFSETS[index] + 20] ^= 1;
    }

    /// Offset of the newest root and whether the whole file was walked.
    #[track_caller]
    fn newest(&self) -> Option<(u64, bool)> {
        let root = newest(&self.bytes, PURPOSE).expect("a file of ours")?;
        Some((root.offset, root.walked))
    }
}

#[test]
fn a_new_file_has_no_root() {
    assert_eq!(File::new().newest(), None);
    let mut file = File::new();
    file.append(BlockKind::FRAMES);
    assert_eq!(file.newest(), None);
}

#[test]
fn the_newest_hint_wins() {
    for count in 1..6 {
        let file = File::with_roots(count);
        assert_eq!(file.newest(), Some((file.roots[count - 1], false)));
    }
}

#[test]
fn a_damaged_slot_costs_nothing_but_a_walk_of_headers() {
    for spoiled in 0..2 {
        let mut file = File::with_roots(4);
        file.spoil_slot(spoiled);
        assert_eq!(file.newest(), Some((file.roots[3], false)));
    }
    let mut file = File::with_roots(4);
    file.spoil_slot(0);
    file.spoil_slot(1);
    assert_eq!(file.newest(), Some((file.roots[3], true)));
    file.bytes[..PAGE_LENGTH].fill(0);
    assert_eq!(file.newest(), Some((file.roots[3], true)));
}

#[test]
fn a_root_whose_hint_was_not_written_is_found() {
    let mut file = File::with_roots(2);
    file.root();
    file.root();
    assert_eq!(file.newest(), Some((file.roots[3], false)));
}

#[test]
fn a_hint_at_another_block_is_not_followed() {
    let mut file = File::with_roots(1);
    let data = PAGE_LENGTH as u64;
    for (offset, sequence) in [(data, 0), (file.roots[0], 1), (0, 2), (u64::MAX, 2)] {
        let slot = file.slots.next(offset, sequence);
        file.hint(&slot);
        file.spoil_slot(usize::from(slot.offset == SLOT_OFFSETS[0] as u64));
        assert_eq!(file.newest(), Some((file.roots[0], true)), "{offset}");
    }
}

#[test]
fn a_damaged_newest_root_falls_back_to_the_one_before() {
    let mut file = File::with_roots(4);
    let newest = file.roots[3] as usize;
    file.bytes[newest + 40] ^= 1;
    assert_eq!(file.newest(), Some((file.roots[2], false)));
    // The identity is valid, so a file without a valid root has no root yet; it is not a foreign file.
    for root in file.roots.clone() {
        file.bytes[root as usize + 28] ^= 1;
    }
    assert_eq!(file.newest(), None);
}

#[test]
fn damage_between_roots_hides_none_from_the_walk() {
    let mut file = File::with_roots(3);
    file.spoil_slot(0);
    file.spoil_slot(1);
    let between = file.roots[1] as usize - 60;
    file.bytes[between] ^= 1;
    assert_eq!(file.newest(), Some((file.roots[2], true)));
}

#[test]
fn generations_continue_after_opening() {
    let mut file = File::with_roots(3);
    file.slots = newest(&file.bytes, PURPOSE).unwrap().unwrap().slots;
    let slot = file.root();
    file.hint(&slot);
    assert_eq!(file.newest(), Some((file.roots[3], false)));
    // Generation 4 replaced generation 2, so generation 3 is still there.
    file.spoil_slot(0);
    let at = SLOT_OFFSETS[1];
    let left = read_slot(&file.bytes[at..at + SLOT_LENGTH]).unwrap();
    assert_eq!((left.0, left.1), (3, file.roots[2]));
}

#[test]
fn foreign_files_are_refused() {
    let error = newest(&&b"PK\x03\x04 something else"[..], PURPOSE).unwrap_err();
    assert!(matches!(error, RootError::Foreign));
    assert!(matches!(
        newest(&Vec::new(), PURPOSE),
        Err(RootError::Foreign)
    ));
    let file = File::with_roots(1);
    let error = newest(&file.bytes, *b"ckpt").unwrap_err();
    assert!(matches!(error, RootError::Purpose { .. }), "{error}");
}

#[test]
fn a_mutated_first_page_never_hides_the_newest_root() {
    let file = File::with_roots(3);
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = file.bytes.clone();
        for _ in 0..=rng.below(6) {
            let near = *rng.pick(&[0, SLOT_OFFSETS[0], SLOT_OFFSETS[1]]);
            bytes[near + rng.index(48)] = rng.word() as u8;
        }
        let root = newest(&bytes, PURPOSE).unwrap().unwrap();
        assert_eq!(root.offset, file.roots[2], "seed {seed}");
    }
}

#[test]
fn arbitrary_files_never_panic() {
    let file = File::with_roots(3);
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = file.bytes.clone();
        for _ in 0..rng.below(40) {
            let at = rng.index(bytes.len());
            bytes[at] = rng.word() as u8;
        }
        bytes.truncate(rng.index(bytes.len() + 1));
        if let Ok(Some(root)) = newest(&bytes, PURPOSE) {
            assert!(file.roots.contains(&root.offset), "seed {seed}");
        }
    }
}
