//! Logs in segments, and files that are published, at every crash.

use crate::MemoryStorage;
use crate::crash::{CrashState, DiskOperation, DiskRecorder, Explorer};
use seatrial_machine::{
    DataFolder, DirectWrites, Disk, FileAnswer, FileFolder, FileName, FileTask, LogName, LogReader,
    LogView, LogWriter, OpenLog, Rng, Storage, Stream,
};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

const NAME: LogName = LogName::new("journal");
const TOP: &str = "";

/// A log with segments of 32 bytes, without spares.
const SMALL: OpenLog = OpenLog {
    segment_length: 32,
    ..OpenLog::new(NAME, 0)
};

fn open(storage: &Arc<dyn Storage>, end: u64) -> io::Result<LogWriter> {
    open_with(storage, end, SMALL)
}

fn open_with(storage: &Arc<dyn Storage>, end: u64, log: OpenLog) -> io::Result<LogWriter> {
    LogWriter::open(storage, Path::new(TOP), OpenLog { end, ..log })
}

fn found(storage: &dyn Storage) -> LogView {
    LogView::open(storage, Path::new(TOP), NAME).unwrap()
}

/// Byte `n` of the log is `n`.
fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|it| it as u8).collect()
}

fn read(log: &LogView) -> Vec<u8> {
    let mut bytes = Vec::new();
    Stream::new(log, log.start())
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

fn names(storage: &dyn Storage) -> Vec<String> {
    storage.list(Path::new(TOP)).unwrap()
}

#[test]
fn a_log_rolls_is_read_across_segments_and_gives_its_head_back() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let mut log = open(&storage, 0).unwrap();
    for end in (10..=100).step_by(10) {
        log.append(&bytes(end - 10, end)).unwrap();
        log.sync().unwrap();
    }
    let segments = [
        "journal",
        "journal-0000000000000028",
        "journal-0000000000000050",
    ];
    assert_eq!(names(&*storage), segments);
    assert_eq!(read(&found(&*storage)), bytes(0, 100));
    let mut across = [0; 15];
    found(&*storage).read_at(33, &mut across).unwrap();
    assert_eq!(across[..], bytes(33, 48));

    assert_eq!(log.truncate_head(79).unwrap(), 40);
    assert_eq!(log.truncate_head(39).unwrap(), 40, "nothing comes back");
    assert_eq!(names(&*storage), segments[1..]);
    let left = found(&*storage);
    assert_eq!((left.start(), left.len()), (40, 100));
    assert_eq!(read(&left), bytes(40, 100));
    let error = left.read_at(39, &mut across).unwrap_err();
    let text = "log journal has no bytes at 39: truncated (it is from 40 to 100)";
    assert_eq!(
        (error.kind(), &*error.to_string()),
        (ErrorKind::NotFound, text)
    );
    let error = left.read_at(95, &mut across).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(
        log.truncate_head(u64::MAX).unwrap(),
        80,
        "the last segment stays"
    );

    drop(log);
    let mut log = open(&storage, 90).unwrap();
    assert_eq!((log.start(), log.end()), (80, 90));
    log.append(&[7]).unwrap();
    log.sync().unwrap();
    assert_eq!(read(&found(&*storage)), [bytes(80, 90), vec![7]].concat());
    for wrong in [79, 92] {
        let error = open(&storage, wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn a_cut_before_the_last_segments_removes_them() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut log = open(&storage, 0).unwrap();
    for end in (10..=100).step_by(10) {
        log.append(&bytes(end - 10, end)).unwrap();
    }
    drop(log);
    for (end, segments) in [(80, 3), (40, 2), (33, 1), (0, 1)] {
        let log = open(&storage, end).unwrap();
        assert_eq!((log.end(), names(&*storage).len()), (end, segments));
        assert_eq!(read(&found(&*storage)), bytes(0, end));
    }
}

#[test]
fn a_missing_segment_and_an_overlap_are_errors_and_strange_names_are_not_ours() {
    let storage = MemoryStorage::new();
    let write = |name: &str, length: usize| {
        let file = storage.create(Path::new(name)).unwrap();
        file.write_at(0, &vec![1; length]).unwrap();
    };
    for (name, length) in [("journal", 32), ("journal-0000000000000040", 8)] {
        write(name, length);
    }
    for strange in [
        "journal-40",
        "journal-000000000000004G",
        "journal2",
        "journal-0000000000000000",
    ] {
        write(strange, 1);
    }
    let log = found(&storage);
    assert_eq!((log.start(), log.len()), (0, 72));
    let error = log.read_at(30, &mut [0; 4]).unwrap_err();
    let text = "log journal has no bytes at 32: a segment is missing (it is from 0 to 72)";
    assert_eq!(
        (error.kind(), &*error.to_string()),
        (ErrorKind::InvalidData, text)
    );
    write("journal-0000000000000020", 33);
    let error = LogView::open(&storage, Path::new(TOP), NAME).unwrap_err();
    let text = "journal-0000000000000020 ends at 65, after the start of the next segment, 64";
    assert_eq!(error.to_string(), text);
}

/// Property that a log must have after a crash.
#[derive(Clone, Debug)]
enum Requirement {
    /// Everything below this is durable.
    Synced(u64),
    /// Everything below this may be gone.
    Truncated(u64),
    /// The log was truncated at this position.
    Cut(u64),
}

/// A life of a log; `steps` appends.
fn live(recorder: &DiskRecorder<Requirement>, seed: u64, steps: u64, log: OpenLog) {
    let storage = recorder.storage();
    let mut rng = Rng::from_seed(seed);
    let open = |end| open_with(&storage, end, log);
    let mut log = open(0).unwrap();
    for _ in 0..steps {
        let end = log.end() + 1 + rng.below(24);
        let before = log.end();
        log.append(&bytes(before, end)).unwrap();
        log.sync().unwrap();
        recorder.acknowledge(Requirement::Synced(end));
        if rng.chance(0.3) {
            let position = rng.below(end);
            recorder.acknowledge(Requirement::Truncated(position));
            log.truncate_head(position).unwrap();
        }
        if rng.chance(0.15) {
            let end = log.start() + rng.below(log.end() - log.start() + 1);
            recorder.acknowledge(Requirement::Cut(end));
            log = open(end).unwrap();
        }
    }
}

fn check(crash: &CrashState<'_, Requirement>) -> Result<(), String> {
    let (mut synced, mut truncated) = (0, 0);
    for one in crash.acknowledged() {
        match one {
            Requirement::Synced(end) => synced = *end,
            Requirement::Truncated(position) => truncated = truncated.max(*position),
            Requirement::Cut(end) => synced = synced.min(*end),
        }
    }
    let storage = crash.storage();
    let log = LogView::open(&storage, Path::new(TOP), NAME).map_err(|it| it.to_string())?;
    if log.start() > truncated || log.len() < synced {
        let (start, end) = (log.start(), log.len());
        return Err(format!(
            "from {start} to {end}, synced {synced}, truncated {truncated}"
        ));
    }
    let mut durable = vec![0; synced.saturating_sub(log.start()) as usize];
    log.read_at(log.start(), &mut durable)
        .map_err(|it| it.to_string())?;
    if durable != bytes(log.start(), log.start().max(synced)) {
        return Err("other bytes".into());
    }
    // It can be opened where its owner finds its end, and is continued there.
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let end = synced.max(log.start());
    let log = OpenLog {
        spares_max: 2,
        direct: [DirectWrites::Never, DirectWrites::WholeUnits][(end % 2) as usize],
        ..SMALL
    };
    let mut log = open_with(&storage, end, log).map_err(|it| it.to_string())?;
    for end in (end..end + 160).step_by(40) {
        log.append(&bytes(end, end + 40))
            .map_err(|it| it.to_string())?;
    }
    log.close().map_err(|it| it.to_string())?;
    // Every segment ends where the next one begins, and the last one where the log ends.
    let log = LogView::open(&*storage, Path::new(TOP), NAME).map_err(|it| it.to_string())?;
    let mut later = vec![0; (log.len() - end) as usize];
    log.read_at(end, &mut later).map_err(|it| it.to_string())?;
    if later != bytes(end, end + 160) {
        return Err("other bytes after a restart".into());
    }
    Ok(())
}

/// Two appends of 16 bytes fill a segment.
fn append(log: &mut LogWriter) {
    let end = log.end();
    log.append(&bytes(end, end + 16)).unwrap();
}

#[test]
fn a_reader_never_takes_the_bytes_of_a_file_that_is_used_again() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let log = OpenLog {
        spares_max: 2,
        ..SMALL
    };
    let mut log = open_with(&storage, 0, log).unwrap();
    let data = DataFolder::open(Arc::clone(&storage), Path::new(TOP)).unwrap();
    let reader = LogReader::new(data, NAME);
    let read = |position| {
        let mut buffer = [0; 16];
        let read = reader.read_at(position, &mut buffer);
        read.map(|()| buffer.to_vec())
    };
    (0..4).for_each(|_| append(&mut log));
    assert_eq!(read(0).unwrap(), bytes(0, 16), "its file is open now");
    reader.forget(32);
    // A read before the driver has freed anything opens the file again.
    assert_eq!(read(48).unwrap(), bytes(48, 64));
    log.truncate_head(32).unwrap();
    append(&mut log);
    assert_eq!(names(&*storage).len(), 2, "the file was used again");
    let error = read(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for position in [32, 48, 64] {
        assert_eq!(read(position).unwrap(), bytes(position, position + 16));
    }
}

#[test]
fn a_log_survives_every_crash_and_needs_each_of_its_syncs() {
    let (cached, whole, long) = (
        DirectWrites::Never,
        DirectWrites::WholeUnits,
        DirectWrites::Long,
    );
    for (spares_max, direct) in [(0, cached), (2, cached), (8, long), (0, whole), (2, whole)] {
        survives_every_crash(OpenLog {
            spares_max,
            direct,
            ..SMALL
        });
    }
}

fn survives_every_crash(log: OpenLog) {
    let (mut distinct, mut renames) = (0, 0);
    for seed in 0..12 {
        let recorder = DiskRecorder::new();
        live(&recorder, seed, 16, log);
        let is_rename = |it: &DiskOperation| matches!(it, DiskOperation::Rename { .. });
        let trace = recorder.trace();
        renames += trace.operations().iter().filter(|it| is_rename(it)).count();
        distinct += Explorer::new(&recorder.trace())
            .explore(check)
            .assert_holds()
            .distinct;
    }
    assert!(distinct > 1_000, "{distinct}");
    // A segment that becomes a spare is renamed, and again when it is used.
    let renames_min = if log.spares_max > 0 { 20 } else { 0 };
    assert!(renames >= renames_min, "{renames}");
    let without = |is_left_out: fn(&DiskOperation) -> bool| {
        (0..12).any(|seed| {
            let recorder = DiskRecorder::new();
            live(&recorder, seed, 10, log);
            let trace = recorder.trace().retain(|_, it| !is_left_out(it));
            Explorer::new(&trace).explore(check).failure.is_some()
        })
    };
    assert!(without(|it| matches!(it, DiskOperation::Sync { .. })));
    assert!(without(|it| matches!(it, DiskOperation::SyncFolder { .. })));
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

/// Publishes three versions of a checkpoint, one in the place of the other.
fn publish(files: &FileFolder, published: impl Fn(u8)) {
    for version in 1..=3 {
        let [file, to] = ["checkpoint.new", "checkpoint"].map(name);
        let (offset, bytes) = (0, vec![version; 1_000]);
        let tasks = [
            FileTask::Create { file: file.clone() },
            FileTask::Write {
                file: file.clone(),
                offset,
                bytes,
            },
            FileTask::Publish { file, to },
        ];
        for task in tasks {
            assert_eq!(files.run(task), Ok(FileAnswer::Done));
        }
        published(version);
    }
}

fn is_whole(crash: &CrashState<'_, u8>) -> Result<(), String> {
    let storage: Arc<dyn Storage> = Arc::new(crash.storage());
    let data = DataFolder::open(storage, Path::new(TOP)).map_err(|it| it.to_string())?;
    let acknowledged = crash.acknowledged().last().copied().unwrap_or(0);
    let file = match data.file(&name("checkpoint")) {
        Ok(file) => file,
        Err(_) if acknowledged == 0 => return Ok(()),
        Err(error) => return Err(format!("version {acknowledged} is gone: {error}")),
    };
    let mut bytes = Vec::new();
    let read = Stream::new(&*file, 0).read_to_end(&mut bytes);
    read.map_err(|it| it.to_string())?;
    let is_version = bytes.len() == 1_000 && bytes.iter().all(|it| *it == bytes[0]);
    if !is_version || bytes[0] < acknowledged {
        return Err(format!(
            "{} bytes after version {acknowledged}",
            bytes.len()
        ));
    }
    // A leftover does no harm.
    publish(&data.file_folder(), |_| {});
    Ok(())
}

#[test]
fn a_published_file_is_whole_after_every_crash_and_needs_each_of_its_syncs() {
    let trace = || {
        let recorder = DiskRecorder::new();
        let data = DataFolder::open(recorder.storage(), Path::new(TOP)).unwrap();
        publish(&data.file_folder(), |version| recorder.acknowledge(version));
        recorder.trace()
    };
    let report = Explorer::new(&trace()).explore(is_whole).assert_holds();
    assert!(report.distinct > 30, "{report}");
    let syncs: BTreeMap<usize, DiskOperation> = (trace().operations().iter().cloned().enumerate())
        .filter(|(_, it)| {
            matches!(
                it,
                DiskOperation::Sync { .. } | DiskOperation::SyncFolder { .. }
            )
        })
        .collect();
    // The folder's own name, and of each version the bytes and the name.
    assert_eq!(syncs.len(), 7);
    for (number, sync) in syncs {
        let trace = trace().retain(|it, _| it != number);
        let report = Explorer::new(&trace).explore(is_whole);
        assert!(report.failure.is_some(), "{sync} ({number}) is not needed");
    }
}

#[test]
fn tasks_on_files_do_what_they_say_and_a_failed_sync_is_final() {
    let memory = MemoryStorage::new();
    let data = DataFolder::open(Arc::new(memory.clone()), Path::new("n1")).unwrap();
    let files = data.file_folder();
    let a = || name("a");
    let write = |offset, bytes: &[u8]| FileTask::Write {
        file: a(),
        offset,
        bytes: bytes.to_vec(),
    };
    let read = |offset, length| FileTask::Read {
        file: a(),
        offset,
        length,
    };
    let kind = |task| files.run(task).unwrap_err().kind;
    assert_eq!(kind(write(0, b"x")), ErrorKind::NotFound);
    let done = |task| assert_eq!(files.run(task), Ok(FileAnswer::Done));
    done(FileTask::Create { file: a() });
    done(write(2, b"cdef"));
    done(FileTask::SetLength {
        file: a(),
        length: 5,
    });
    assert_eq!(
        files.run(read(1, 4)),
        Ok(FileAnswer::Bytes(b"\0cde".to_vec()))
    );
    assert_eq!(kind(read(1, 5)), ErrorKind::UnexpectedEof);
    assert_eq!(kind(read(u64::MAX, usize::MAX)), ErrorKind::UnexpectedEof);
    done(FileTask::Sync { file: a() });
    assert_eq!(data.files().unwrap(), [a()]);
    memory.fail_syncs(true);
    done(write(0, b"ab"));
    let error = files.run(FileTask::Sync { file: a() }).unwrap_err();
    assert_eq!(error.to_string(), "a: the medium is gone");
    memory.fail_syncs(false);
    for task in [FileTask::Sync { file: a() }, write(0, b"ab"), read(0, 1)] {
        let error = files.run(task).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a: an earlier change or sync of this file failed"
        );
    }
    done(FileTask::Create { file: a() });
    done(write(0, b"again"));
    done(FileTask::Sync { file: a() });
    done(FileTask::Remove { file: a() });
    done(FileTask::Remove { file: a() });
    assert_eq!(data.files().unwrap(), []);
    for number in 0..200 {
        let file = name(&format!("f{number}"));
        done(FileTask::Create { file: file.clone() });
        done(FileTask::Sync { file });
    }
    assert_eq!(data.files().unwrap().len(), 200);
}
