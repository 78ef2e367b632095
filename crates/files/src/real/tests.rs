use super::Files;
use seatrial_machine::{Rng, Storage};
use std::io::ErrorKind;

#[test]
fn a_file_is_created_once_written_cut_synced_and_read() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let path = folder.join("a");
    let file = Files.create(&path).unwrap();
    let again = Files.create(&path).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    file.write_at(0, b"hello").unwrap();
    file.write_at(5, b" world").unwrap();
    file.sync().unwrap();
    // A reader has its own handle and sees what is written later.
    let reader = Files.open(&path).unwrap();
    assert_eq!(reader.len(), 11);
    file.write_at(11, b"!").unwrap();
    assert_eq!(reader.len(), 12);
    let mut bytes = [0; 6];
    reader.read_at(6, &mut bytes).unwrap();
    assert_eq!(&bytes, b"world!");
    let beyond = reader.read_at(7, &mut bytes).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
    assert!(reader.write_at(0, b"x").is_err(), "opened for reading");
    file.set_len(5).unwrap();
    file.sync().unwrap();
    assert_eq!(Files.open_write(&path).unwrap().len(), 5);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn names_are_listed_renamed_and_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    for name in ["b", "a", "c"] {
        Files.create(&folder.join(name)).unwrap();
    }
    let open = Files.open(&folder.join("a")).unwrap();
    Files.rename(&folder.join("c"), &folder.join("a")).unwrap();
    Files.sync_folder(folder).unwrap();
    assert_eq!(Files.list(folder).unwrap(), ["a", "b"]);
    Files.remove(&folder.join("b")).unwrap();
    assert_eq!(Files.list(folder).unwrap(), ["a"]);
    assert_eq!(open.len(), 0, "the file that had the name is still open");
    let missing = Files.remove(&folder.join("b")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let not_a_file = Files.open(folder).unwrap_err();
    assert_eq!(not_a_file.kind(), ErrorKind::IsADirectory);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn folders_are_made_with_those_above() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let deep = folder.join("x/y/z");
    Files.create_folder(&deep).unwrap();
    Files.create_folder(&deep).unwrap();
    assert!(deep.is_dir());
    Files.create(&folder.join("x/file")).unwrap();
    assert!(Files.create_folder(&folder.join("x/file")).is_err());
    assert!(Files.create_folder(&folder.join("x/file/below")).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_lock_is_held_until_it_is_dropped() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let path = folder.join("lock");
    let held = Files.lock(&path).unwrap();
    assert_eq!(Files.lock(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(held);
    Files.lock(&path).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

/// A view has the same bytes as a read, at random places of a file of several windows.
#[test]
fn a_view_is_what_reading_gives() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let path = folder.join("a");
    let file = Files.create(&path).unwrap();
    let mut rng = Rng::from_seed(7);
    let content: Vec<u8> = (0..9_500_000).map(|_| rng.word() as u8).collect();
    file.write_at(0, &content).unwrap();
    let Some(view) = file.map(content.len() as u64).unwrap() else {
        assert!(!populates(), "this system has views");
        return;
    };
    for round in 0..500 {
        let start = rng.index(content.len());
        let length = match rng.below(3) {
            0 => rng.index(content.len() - start + 1),
            1 => rng.index(200_000).min(content.len() - start),
            _ => rng.index(100).min(content.len() - start),
        };
        let bytes = view.bytes(start as u64, length).unwrap();
        assert!(
            bytes == &content[start..start + length],
            "round {round}: {start} + {length}"
        );
    }
    assert_eq!(view.bytes(content.len() as u64, 0).unwrap(), b"");
    for (offset, length) in [(content.len() as u64, 1), (u64::MAX, 2), (1, usize::MAX)] {
        let beyond = view.bytes(offset, length).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A view may be longer than its file, which may grow into it. Missing bytes are an error and no signal, also after
/// the file was shortened under the view.
#[test]
fn bytes_that_are_not_there_are_errors() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let path = folder.join("a");
    let file = Files.create(&path).unwrap();
    file.write_at(0, &vec![1; 100_000]).unwrap();
    let Some(view) = file.map(10 << 20).unwrap() else {
        assert!(!populates(), "this system has views");
        return;
    };
    assert_eq!(view.bytes(0, 100_000).unwrap(), &vec![1; 100_000]);
    assert!(view.bytes(100_000, 100_000).is_err());
    assert!(view.bytes(9 << 20, 1).is_err());
    file.write_at(100_000, &vec![2; 5 << 20]).unwrap();
    assert_eq!(view.bytes(100_000, 100_000).unwrap(), &vec![2; 100_000]);
    assert_eq!(view.bytes(5 << 20, 4).unwrap(), &[2; 4]);
    file.set_len(50_000).unwrap();
    // The old view assumes that windows populated lately are resident, so a new view is asked.
    let view = file.map(10 << 20).unwrap().expect("as above");
    assert_eq!(view.bytes(0, 50_000).unwrap(), &vec![1; 50_000]);
    assert!(view.bytes(0, 60_000).is_err());
    assert!(file.map(0).unwrap().is_none(), "nothing to view");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Does this kernel have MADV_POPULATE_READ (Linux 5.14 and newer)?
fn populates() -> bool {
    let version = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(14))
}
