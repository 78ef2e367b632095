use super::*;
use crate::block::{self, BlockKind};
use crate::walk::Walker;

fn blocks(first: u64, count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for sequence in first..first + count {
        block::write(
            &mut out,
            BlockKind::FRAMES,
            0,
            sequence,
            b"some payload",
            12,
        );
    }
    out
}

#[test]
fn appended_blocks_are_read_back_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogFile::create(&folder.path().join("log")).unwrap();
    log.append(&blocks(0, 3)).unwrap();
    log.sync().unwrap();
    assert!(matches!(
        LogFile::create(&folder.path().join("log")),
        Err(BlockFileError::System {
            action: "create",
            ..
        })
    ));
    drop(log);
    let (mut log, recovery) = LogFile::open_recover(&folder.path().join("log"), 0).unwrap();
    assert_eq!((recovery.blocks, recovery.torn), (3, None));
    log.append(&blocks(recovery.next_sequence, 2)).unwrap();
    let mut walker = Walker::new(&log, 0);
    for _ in 0..5 {
        assert_eq!(
            walker.next_block().unwrap().unwrap().payload,
            b"some payload"
        );
    }
    assert!(walker.next_block().unwrap().is_none());
    let reader = ReadFile::open(&folder.path().join("log")).unwrap();
    assert_eq!(Disk::len(&reader), blocks(0, 5).len() as u64);
    let mut past = [0; 8];
    assert!(log.read_at(Disk::len(&log) - 7, &mut past).is_err());
}

#[test]
fn a_torn_tail_is_cut_off_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let whole = blocks(0, 3);
    std::fs::write(folder.path().join("log"), &whole[..whole.len() - 5]).unwrap();
    let (mut log, recovery) = LogFile::open_recover(&folder.path().join("log"), 0).unwrap();
    assert_eq!(recovery.blocks, 2);
    assert!(recovery.torn.is_some());
    let length = std::fs::metadata(folder.path().join("log")).unwrap().len();
    assert_eq!(length, recovery.end);
    log.append(&blocks(2, 1)).unwrap();
    drop(log);
    assert_eq!(std::fs::read(folder.path().join("log")).unwrap(), whole);
    let error = LogFile::open_append(&folder.path().join("log"), 1_000_000).unwrap_err();
    assert!(matches!(error, BlockFileError::Short { .. }), "{error}");
}

#[test]
fn damage_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = blocks(0, 3);
    bytes[40] ^= 1;
    std::fs::write(folder.path().join("log"), &bytes).unwrap();
    let error = LogFile::open_recover(&folder.path().join("log"), 0).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("damage at 0"), "{text}");
    assert!(
        text.contains(folder.path().join("log").to_str().unwrap()),
        "{text}"
    );
    assert_eq!(
        std::fs::read(folder.path().join("log")).unwrap(),
        bytes,
        "untouched"
    );
}

#[test]
fn opened_or_created() {
    let folder = tempfile::tempdir().unwrap();
    LogFile::open(&folder.path().join("log")).unwrap_err();
    let mut log = LogFile::open_or_create(&folder.path().join("log")).unwrap();
    log.append(&blocks(0, 1)).unwrap();
    drop(log);
    let log = LogFile::open_or_create(&folder.path().join("log")).unwrap();
    assert_eq!(Disk::len(&log), blocks(0, 1).len() as u64);
    LogFile::open_or_create(&folder.path().join("missing/log")).unwrap_err();
}

#[test]
fn one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let log = LogFile::create(&folder.path().join("log")).unwrap();
    let error = LogFile::open(&folder.path().join("log")).unwrap_err();
    assert!(matches!(error, BlockFileError::Locked { .. }), "{error}");
    drop(log);
    LogFile::open(&folder.path().join("log")).unwrap();
}

#[test]
fn a_failed_write_poisons_the_file() {
    // A device that answers every write with "no space left".
    let mut log = LogFile::open(Path::new("/dev/full")).unwrap();
    log.append(&blocks(0, 1)).unwrap_err();
    assert_eq!(Disk::len(&log), 0);
    for result in [log.sync(), log.append(&[]), log.cut(0)] {
        assert!(
            matches!(result, Err(BlockFileError::Poisoned { .. })),
            "{result:?}"
        );
    }
}

#[test]
fn a_failed_sync_is_never_retried() {
    // A terminal-like device that cannot sync.
    let mut log = LogFile::open(Path::new("/dev/null")).unwrap();
    log.append(&blocks(0, 1)).unwrap();
    log.sync().unwrap_err();
    let error = log.sync().unwrap_err();
    assert!(matches!(error, BlockFileError::Poisoned { .. }), "{error}");
    assert!(
        error.to_string().contains("an earlier sync failed"),
        "{error}"
    );
}
