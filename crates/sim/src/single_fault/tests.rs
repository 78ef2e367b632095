//! A program that checks everything passes, one that does not is caught.

use super::*;
use crate::simulated_storage::{FileTree, MemoryStorage};
use seatrial_machine::Storage;
use std::io;
use std::path::Path;

const BLOCK: usize = 256;

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(7, |sum, &byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    })
}

/// Copies a file of checked blocks: 252 bytes and their sum.
fn copy(storage: &dyn Storage, checks: bool) -> Result<Vec<u8>, String> {
    let at = |name: &str, offset: usize, error: &dyn ToString| {
        format!("{name} at {offset}: {}", error.to_string())
    };
    let [old, new] = ["old", "new"].map(Path::new);
    let source = storage.open(old).map_err(|it| at("old", 0, &it))?;
    let target = storage.create(new).map_err(|it| at("new", 0, &it))?;
    let mut all = Vec::new();
    for offset in (0..source.len() as usize).step_by(BLOCK) {
        let mut block = [0; BLOCK];
        source
            .read_at(offset as u64, &mut block)
            .map_err(|it| at("old", offset, &it))?;
        if checks && block[252..] != sum(&block[..252]).to_le_bytes() {
            return Err(at("old", offset, &"wrong sum"));
        }
        target
            .write_at(offset as u64, &block)
            .map_err(|it| at("new", offset, &it))?;
        all.extend_from_slice(&block);
    }
    target.sync().map_err(|it| at("new", 0, &it))?;
    storage
        .sync_folder(Path::new(""))
        .map_err(|it| at("", 0, &it))?;
    Ok(all)
}

fn start() -> FileTree {
    let blocks = (0..4_u8).flat_map(|number| {
        let mut block = [number; BLOCK];
        let sum = sum(&block[..252]);
        block[252..].copy_from_slice(&sum.to_le_bytes());
        block
    });
    let mut tree = FileTree::default();
    tree.insert("old", blocks.collect::<Vec<u8>>());
    tree
}

fn run(checks: bool) -> FaultReport {
    let faults = SingleFaults::new(start()).block_length(BLOCK as u64);
    faults.run(|storage| copy(&*storage, checks), |run| run.is_honest())
}

#[test]
fn a_program_that_checks_is_honest() {
    let report = run(true).assert_holds();
    println!("{report}");
    // 4 blocks read with 4 faults, 4 written with 5, a sync, and three names with 2 each.
    assert_eq!((report.sites, report.runs), (12, 16 + 20 + 1 + 6));
    // A program that does not read its writes back cannot detect their corruption.
    assert_eq!((report.same, report.errors), (12, 31));
    let example = &report.examples[&(Access::Read, BlockFault::FlippedBit)];
    assert_eq!(
        example,
        "a flipped bit at read 1 of block 0 of \"old\": old at 0: wrong sum"
    );
}

#[test]
fn a_program_that_does_not_check_is_caught() {
    let report = run(false);
    assert_eq!(report.different, 12, "{report}");
    assert_eq!(report.failures.len(), 12);
    assert!(
        report
            .failures
            .iter()
            .all(|it| it.site.path == Path::new("old"))
    );
}

#[test]
fn vague_errors_and_panics_are_caught() {
    let faults = SingleFaults::new(start()).block_length(BLOCK as u64);
    let vague = |_| Err("old: it failed".to_owned());
    let report = faults.run(
        |storage| copy(&*storage, true).or_else(vague),
        |run| run.is_honest(),
    );
    let texts: Vec<&str> = report
        .failures
        .iter()
        .map(|it| it.reason.as_str())
        .collect();
    assert!(texts.contains(&"the error does not say where: old: it failed"));
    assert!(texts.contains(&"the error does not name new: old: it failed"));
    let report = faults.run(
        |storage| Ok(copy(&*storage, true).expect("no fault")),
        |run| run.is_honest(),
    );
    assert_eq!((report.panicked, report.errors), (31, 0));
    assert!(report.failures[0].reason.starts_with("panicked: no fault"));
}

#[test]
fn a_fault_is_met_once_or_for_good() {
    for (turn, lasts, expected) in [(1, false, [7, 0, 7]), (1, true, [7, 0, 0])] {
        let memory = MemoryStorage::new();
        memory
            .create(Path::new("a"))
            .unwrap()
            .write_at(0, &[7; 10])
            .unwrap();
        let site = Site {
            path: "a".into(),
            block: 2,
            access: Access::Read,
        };
        let faulty = memory.with_fault(2, site, turn, lasts, BlockFault::Zeroed);
        let file = faulty.open(Path::new("a")).unwrap();
        let found = expected.map(|_| {
            let mut bytes = [1; 6];
            file.read_at(1, &mut bytes).unwrap();
            assert_eq!(bytes[..3], [7; 3]);
            assert_eq!((bytes[3], bytes[5]), (bytes[4], 7));
            bytes[3]
        });
        assert_eq!(found, expected);
        assert!(faulty.has_fired());
    }
}

#[test]
fn lent_buffers_can_be_corrupted_too() {
    let memory = MemoryStorage::new().lending();
    memory
        .create(Path::new("a"))
        .unwrap()
        .write_at(0, &[7; 10])
        .unwrap();
    for (fault, expected) in [(BlockFault::Zeroed, Some(0)), (BlockFault::Error, None)] {
        let site = Site {
            path: "a".into(),
            block: 4,
            access: Access::Read,
        };
        let faulty = memory.with_fault(2, site, 0, false, fault);
        let lent = faulty
            .open(Path::new("a"))
            .unwrap()
            .map(10)
            .unwrap()
            .unwrap();
        assert_eq!(lent.bytes(0, 8).unwrap(), [7; 8]);
        let found = lent.bytes(7, 2);
        assert_eq!(found.as_ref().ok().map(|it| it[1]), expected);
        assert_eq!(
            found.err().map(|it| it.kind()),
            expected.is_none().then_some(io::ErrorKind::Other)
        );
        let again = lent.bytes(7, 2).unwrap();
        assert_eq!(again, [7, expected.unwrap_or(7)]);
    }
}

#[test]
fn of_a_write_that_fails_the_beginning_arrives() {
    let memory = MemoryStorage::new();
    let site = Site {
        path: "a".into(),
        block: 1,
        access: Access::Write,
    };
    let faulty = memory.with_fault(4, site, 0, false, BlockFault::NoSpace);
    let file = faulty.create(Path::new("a")).unwrap();
    let error = file.write_at(2, &[7; 10]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(memory.files().get("a"), Some(&[0, 0, 7, 7][..]));
    file.write_at(2, &[7; 10]).unwrap();
    assert_eq!(file.len(), 12);
}
