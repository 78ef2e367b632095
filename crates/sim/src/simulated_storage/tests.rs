//! Files in memory behave as files, and forget as disks do.

use super::*;

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn names_are_as_strict_as_those_of_files() {
    let storage = MemoryStorage::new();
    let path = Path::new("/a/b/log");
    assert_eq!(kind(storage.create(path)), ErrorKind::NotFound);
    storage.create_folder(Path::new("/a/b")).unwrap();
    storage.create_folder(Path::new("/a")).unwrap();
    storage.create(path).unwrap();
    assert_eq!(kind(storage.create(path)), ErrorKind::AlreadyExists);
    assert_eq!(
        kind(storage.create_folder(&path.join("x"))),
        ErrorKind::AlreadyExists
    );
    assert_eq!(storage.list(Path::new("/a/")).unwrap(), ["b"]);
    assert_eq!(storage.list(Path::new("/a/./b")).unwrap(), ["log"]);
    for missing in ["/a/c", "b"] {
        let missing = Path::new(missing);
        assert_eq!(kind(storage.list(missing)), ErrorKind::NotFound);
        assert_eq!(kind(storage.open(missing)), ErrorKind::NotFound);
        assert_eq!(kind(storage.remove(missing)), ErrorKind::NotFound);
        assert_eq!(kind(storage.rename(missing, path)), ErrorKind::NotFound);
        assert_eq!(kind(storage.sync_folder(missing)), ErrorKind::NotFound);
        let inside = missing.join("log");
        assert_eq!(kind(storage.rename(path, &inside)), ErrorKind::NotFound);
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    let storage = MemoryStorage::new();
    let [a, b] = ["a", "b"].map(Path::new);
    let old = storage.create(a).unwrap();
    let new = storage.create(b).unwrap();
    new.write_at(2, b"new").unwrap();
    storage.rename(b, a).unwrap();
    old.write_at(0, b"old").unwrap();
    new.set_len(4).unwrap();
    assert_eq!((old.len(), new.len()), (3, 4));
    assert_eq!(storage.files().get("a"), Some(&b"\0\0ne"[..]));
    assert_eq!(storage.files().iter().count(), 1);
    let reader = storage.open(a).unwrap();
    assert_eq!(kind(reader.write_at(0, b"x")), ErrorKind::PermissionDenied);
    storage.remove(a).unwrap();
    new.write_at(4, b"!").unwrap();
    let mut bytes = [0; 5];
    reader.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0ne!");
    assert_eq!(
        kind(reader.read_at(1, &mut bytes)),
        ErrorKind::UnexpectedEof
    );
}

#[test]
fn a_snapshot_stays_what_it_was() {
    let storage = MemoryStorage::new();
    let file = storage.create(Path::new("a")).unwrap();
    file.write_at(0, b"before").unwrap();
    let tree = storage.files();
    let copy = MemoryStorage::from_files(&tree);
    file.write_at(0, b"after!").unwrap();
    let other = copy.open_write(Path::new("a")).unwrap();
    other.write_at(6, b"?").unwrap();
    assert_eq!(tree.get("a"), Some(&b"before"[..]));
    assert_eq!(copy.files().get("a"), Some(&b"before?"[..]));
    assert_eq!(storage.files().get("./a"), Some(&b"after!"[..]));
}

#[test]
fn one_holds_the_lock() {
    let storage = MemoryStorage::new();
    let path = Path::new("lock");
    let lock = storage.lock(path).unwrap();
    assert_eq!(kind(storage.clone().lock(path)), ErrorKind::WouldBlock);
    drop(lock);
    storage.lock(path).unwrap();
    assert_eq!(storage.list(Path::new("")).unwrap(), ["lock"]);
}

#[test]
fn a_lending_storage_lends_the_stored_bytes() {
    let storage = MemoryStorage::new();
    let file = storage.create(Path::new("a")).unwrap();
    file.write_at(0, b"0123456789").unwrap();
    assert!(file.map(10).unwrap().is_none());
    let file = storage.lending().open(Path::new("a")).unwrap();
    let lent = file.map(8).unwrap().expect("lent");
    assert_eq!(lent.bytes(3, 5).unwrap(), b"34567");
    assert_eq!(kind(lent.bytes(3, 6)), ErrorKind::UnexpectedEof);
    assert_eq!(kind(lent.bytes(u64::MAX, 2)), ErrorKind::UnexpectedEof);
}
