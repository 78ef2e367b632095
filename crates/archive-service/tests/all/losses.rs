//! Every file of an archive, missing, emptied, truncated, or replaced, and every reader and writer of it: a loss either
//! does not change the result, or is reported with the file.

use seatrial_archive::{
    Archive, ArchiveError, Cursor, CursorBound, CursorError, Durability, Origin, Position,
    RecordingId, RecordingOptions, SegmentName, VerifyOptions, digest, verify,
};
use seatrial_archive_service::{CopySource, CopyTarget};
use seatrial_blocks::Walker;
use seatrial_machine::Storage;
use seatrial_sim::{FileTree, MemoryStorage};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FOLDER: &str = "recordings";

fn options(segment_length: u64) -> RecordingOptions {
    RecordingOptions {
        label: "label".to_owned(),
        segment_length,
        durability: Durability::None,
    }
}

/// Recordings of the archive.
const RECORDINGS: u64 = 4;

/// The result of a verb: its output, or the text of the reported error or damage.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VerbOutput {
    Output(String),
    Damage(String),
}

/// Two recordings of several segments, stopped, one that was left open, and one that was extended and left open.
/// `seed` changes times and messages.
fn archive(seed: u64) -> FileTree {
    archive_in(Path::new(FOLDER), seed, 0)
}

/// [`archive`] in any folder, with other messages at the same times.
fn archive_in(folder: &Path, seed: u64, content: u8) -> FileTree {
    let storage = MemoryStorage::new();
    let (mut archive, _) = Archive::open(Arc::new(storage.clone()), folder, seed).unwrap();
    for number in 0..RECORDINGS {
        let options = RecordingOptions {
            label: format!("label {number}"),
            durability: Durability::Batch,
            ..options(1_024)
        };
        let mut now = seed + number * 100;
        let mut writer = archive.start(&options, now).unwrap();
        for message in 0..8_u8 {
            now += 1;
            let bytes = [message ^ seed as u8 ^ number as u8 ^ content; 200];
            writer.append_batch([&bytes[..], b"short"], now).unwrap();
            if number == 3 && message == 4 {
                let id = writer.recording();
                writer.stop(now + 1).unwrap();
                writer = archive.extend(id, now + 1).unwrap();
            }
        }
        if number < 2 {
            writer.stop(now + 1).unwrap();
        }
    }
    storage.files()
}

/// The archive as it was before its last stop: an older copy of each file.
fn older(files: &FileTree, path: &Path) -> Option<Vec<u8>> {
    let bytes = files.get(path)?;
    let offsets = block_offsets(bytes);
    // All but the last two blocks, as in an earlier state.
    let at = offsets.len().checked_sub(3)?;
    Some(bytes[..offsets[at]].to_vec())
}

/// Where the blocks of a file start, and where the last one ends.
fn block_offsets(bytes: &[u8]) -> Vec<usize> {
    let bytes = &bytes.to_vec();
    let mut walker = Walker::new(bytes, 0);
    let mut offsets = Vec::new();
    while let Ok(Some((offset, _))) = walker.next_header() {
        offsets.push(offset as usize);
    }
    offsets.push(walker.offset() as usize);
    offsets
}

/// The losses of one file: its name, and the archive after the loss.
fn losses(files: &FileTree, path: &Path) -> Vec<(String, FileTree)> {
    let mut losses = losses_of(files, path, &archive);
    let bytes = files.get(path).unwrap();
    // The same file of an archive that was recorded at the same times elsewhere: every number of it fits.
    let twin = archive_in(Path::new("twin"), 1_000, 0x40);
    let twin = twin.get(Path::new("twin").join(path.file_name().unwrap()));
    let twin = twin.unwrap();
    let with = |bytes: &[u8]| {
        let mut files = files.clone();
        files.insert(path, bytes.to_vec());
        files
    };
    losses.push(("twin".to_owned(), with(twin)));
    let offsets = block_offsets(bytes);
    for pair in offsets.windows(2).filter(|_| is_segment(path)) {
        let mut bytes = bytes.to_vec();
        bytes[pair[0]..pair[1]].copy_from_slice(&twin[pair[0]..pair[1]]);
        losses.push((format!("block of the twin at {}", pair[0]), with(&bytes)));
    }
    losses
}

/// [`losses`] but for those by a twin; `foreign` makes another archive of the same files.
fn losses_of(
    files: &FileTree,
    path: &Path,
    foreign: &dyn Fn(u64) -> FileTree,
) -> Vec<(String, FileTree)> {
    let bytes = files.get(path).unwrap();
    let with = |bytes: Option<&[u8]>| {
        let mut files = files.clone();
        match bytes {
            Some(bytes) => files.insert(path, bytes.to_vec()),
            None => files.remove(path),
        };
        files
    };
    let mut losses = vec![("missing".to_owned(), with(None))];
    let offsets = block_offsets(bytes);
    for pair in offsets.windows(2) {
        for at in [pair[0], pair[0] + 8, pair[0] + 40, pair[1] - 1] {
            losses.push((format!("cut at {at}"), with(Some(&bytes[..at]))));
        }
    }
    let foreign = foreign(7_777);
    losses.push(("foreign".to_owned(), with(foreign.get(path))));
    let other = files.iter().find(|(other, _)| {
        *other != path && other.extension() == path.extension() && is_segment(other)
    });
    if let Some((_, other)) = other {
        losses.push(("another's".to_owned(), with(Some(other))));
    }
    losses.push(("noise".to_owned(), with(Some(&[0x55; 300]))));
    if let Some(older) = older(files, path) {
        losses.push(("older".to_owned(), with(Some(&older))));
    }
    losses
}

fn is_segment(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "segment")
}

fn said<T: std::fmt::Debug, E: std::fmt::Display>(result: Result<T, E>) -> VerbOutput {
    match result {
        Ok(value) => VerbOutput::Output(format!("{value:?}")),
        Err(error) => VerbOutput::Damage(error.to_string()),
    }
}

fn storage(files: &FileTree) -> (MemoryStorage, Arc<dyn Storage>) {
    let memory = MemoryStorage::from_files(files);
    let shared = Arc::new(memory.clone());
    (memory, shared)
}

/// The results of all reading verbs.
fn read(files: &FileTree) -> Vec<(String, VerbOutput)> {
    let (memory, storage) = storage(files);
    let folder = Path::new(FOLDER);
    let mut all = Vec::new();
    let look = Archive::look(Arc::clone(&storage), folder);
    all.push(("list".to_owned(), list(&look)));
    for id in (1..=RECORDINGS).map(RecordingId) {
        all.push((
            format!("replay {id}"),
            said(replay(&storage, id, Origin::Start)),
        ));
        let from = said(replay(&storage, id, Origin::Message(10)));
        all.push((format!("replay {id} from message 10"), from));
        let late = Origin::Position(Position(1_500));
        let from = said(replay(&storage, id, late));
        all.push((format!("replay {id} from position 1500"), from));
        let all_messages = 0..u64::MAX;
        let sum = digest(&storage, folder, id, all_messages, 2, &|_| ());
        all.push((format!("checksum {id}"), said(sum)));
        all.push((format!("describe {id}"), describe(&storage, id)));
    }
    all.push(("verify".to_owned(), verified(&storage)));
    assert_eq!(&memory.files(), files, "a reader changed something");
    all
}

fn list(look: &Result<seatrial_archive::CatalogView, ArchiveError>) -> VerbOutput {
    match look {
        Err(error) => VerbOutput::Damage(error.to_string()),
        Ok(look) if look.problems.is_empty() => {
            let recordings: Vec<_> = look.catalog.recordings().collect();
            VerbOutput::Output(format!("{recordings:?}"))
        }
        Ok(look) => VerbOutput::Damage(format!("{:?}", look.problems)),
    }
}

/// A message as read: position, flags, bytes.
type Read = (u64, u32, Vec<u8>);

fn replay(
    storage: &Arc<dyn Storage>,
    id: RecordingId,
    origin: Origin,
) -> Result<Vec<Read>, CursorError> {
    replay_in(storage, Path::new(FOLDER), id, origin)
}

fn replay_in(
    storage: &Arc<dyn Storage>,
    folder: &Path,
    id: RecordingId,
    origin: Origin,
) -> Result<Vec<Read>, CursorError> {
    let storage = Arc::clone(storage);
    let mut cursor = Cursor::open(storage, folder, id, origin, CursorBound::End)?;
    let mut read = Vec::new();
    while let Some(block) = cursor.next_block()? {
        read.extend(
            (block.messages())
                .map(|message| (message.position.0, message.flags, message.payload.to_vec())),
        );
    }
    Ok(read)
}

fn describe(storage: &Arc<dyn Storage>, id: RecordingId) -> VerbOutput {
    let folder = Path::new(FOLDER);
    let look = match Archive::look(Arc::clone(storage), folder) {
        Ok(look) => look,
        Err(error) => return VerbOutput::Damage(error.to_string()),
    };
    if let Some((_, problem)) = look.problems.iter().find(|(of, _)| *of == id) {
        return VerbOutput::Damage(problem.to_string());
    }
    let Some(recording) = look.catalog.recording(id) else {
        return VerbOutput::Damage(format!("no recording {id}"));
    };
    let files = Archive::view_segments(Arc::clone(storage), folder, recording);
    match files {
        Err(error) => VerbOutput::Damage(error.to_string()),
        Ok(files) => {
            let problem = files.iter().find(|file| file.problem.is_some());
            problem.map_or_else(
                || VerbOutput::Output(format!("{recording:?} {files:?}")),
                |file| VerbOutput::Damage(format!("{file:?}")),
            )
        }
    }
}

fn verified(storage: &Arc<dyn Storage>) -> VerbOutput {
    let folder = Path::new(FOLDER);
    let look = match Archive::look(Arc::clone(storage), folder) {
        Ok(look) => look,
        Err(error) => return VerbOutput::Damage(error.to_string()),
    };
    let ids: Vec<RecordingId> = look.catalog.recordings().map(|it| it.id).collect();
    let options = VerifyOptions {
        threads: 2,
        checksums: true,
    };
    let reports = match verify(&**storage, folder, &ids, options, &|_| ()) {
        Ok(reports) => reports,
        Err(error) => return VerbOutput::Damage(error.to_string()),
    };
    let damage = reports.iter().flat_map(|report| &report.damages).next();
    if let Some(damage) = damage {
        return VerbOutput::Damage(damage.to_string());
    }
    let orphans = Archive::strays(&**storage, folder).unwrap();
    if let Some(orphan) = orphans.first() {
        return VerbOutput::Damage(orphan.display().to_string());
    }
    VerbOutput::Output(format!("{reports:?}"))
}

/// Opens for writing, extends the recording and returns its end before. No whole block of a file may be removed, and
/// truncated bytes must be kept.
fn record(files: &FileTree, id: RecordingId) -> VerbOutput {
    let (memory, storage) = storage(files);
    let extended = || -> Result<String, ArchiveError> {
        let (mut archive, _) = Archive::open(storage, Path::new(FOLDER), 9_000)?;
        let before = archive.recording(id)?.end;
        let mut writer = archive.extend(id, 9_001)?;
        let appended = writer.append_batch([&b"more"[..]], 9_002);
        let appended = appended.map_err(|error| error.to_string());
        Ok(format!("{:?} {appended:?}", before.position))
    };
    let said = said(extended());
    let after = memory.files();
    for (path, bytes) in files.iter() {
        let now = after.get(path).unwrap_or_default();
        if is_segment(path) || !now.starts_with(bytes) {
            let whole = *block_offsets(bytes).last().unwrap();
            assert!(now.len() >= whole, "{} of {} is cut", path.display(), whole);
            let cut = &bytes[whole..];
            if is_segment(path) && !now.starts_with(bytes) && cut.iter().any(|byte| *byte != 0) {
                let kept = after.get(path.with_extension("segment.cut"));
                assert_eq!(kept, Some(cut), "{}", path.display());
            }
        }
    }
    said
}

/// Copies all recordings of the archive in `from` into the one in `to`, as the command does; returns the results of reading
/// the copies.
fn copy(from: &FileTree, to: &FileTree) -> VerbOutput {
    let (memory, source) = storage(from);
    let (_, target) = storage(to);
    let said = said(copy_all(&source, &target));
    assert_eq!(&memory.files(), from, "a copy changed its source");
    said
}

fn copy_all(from: &Arc<dyn Storage>, to: &Arc<dyn Storage>) -> Result<String, String> {
    let (folder, copies) = (Path::new(FOLDER), Path::new("copies"));
    let look = Archive::look(Arc::clone(from), folder).map_err(|error| error.to_string())?;
    if let Some((id, problem)) = look.problems.first() {
        return Err(format!("recording {id}: {problem}"));
    }
    let opened = Archive::open(Arc::clone(to), copies, 8_000);
    let (mut archive, recovered) = opened.map_err(|error| error.to_string())?;
    // The command prints truncated bytes and files without a recording.
    if !recovered.is_clean() {
        return Err(format!("{recovered:?}"));
    }
    let mut said = Vec::new();
    for recording in look.catalog.recordings() {
        let (source, now) = (CopySource::folder("whole", recording), 8_001);
        let begun = CopyTarget::begin(Arc::clone(to), copies, &mut archive, &source, now);
        let mut target = begun.map_err(|error| error.to_string())?;
        let (id, start) = (target.recording(), target.from());
        let cursor = Cursor::open(
            Arc::clone(from),
            folder,
            recording.id,
            start,
            CursorBound::End,
        );
        let mut cursor = cursor.map_err(|error| error.to_string())?;
        while let Some(block) = cursor.next_block().map_err(|error| error.to_string())? {
            let (bytes, position) = block.stored();
            let appended = target.append(position, bytes, now);
            appended.map_err(|error| error.to_string())?;
        }
        target.stop(now).map_err(|error| error.to_string())?;
        let copied = replay_in(to, copies, id, Origin::Start).map_err(|error| error.to_string())?;
        said.push(format!("{copied:?}"));
    }
    Ok(said.join("\n"))
}

/// The archive that the command makes from an intact one.
fn copied(files: &FileTree) -> FileTree {
    let (_, source) = storage(files);
    let memory = MemoryStorage::new();
    let target: Arc<dyn Storage> = Arc::new(memory.clone());
    copy_all(&source, &target).unwrap();
    memory.files()
}

#[test]
fn every_loss_of_a_file_is_harmless_or_reported() {
    let files = archive(1_000);
    let whole = read(&files);
    for (verb, said) in &whole {
        assert!(matches!(said, VerbOutput::Output(_)), "{verb}: {said:?}");
    }
    let recorded: Vec<VerbOutput> = (1..=RECORDINGS)
        .map(|id| record(&files, RecordingId(id)))
        .collect();
    let copied_whole = copy(&files, &FileTree::default());
    let mut silent = BTreeSet::new();
    let (mut tried, mut reported) = (0, 0);
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.to_owned()).collect();
    for path in paths {
        for (loss, damaged) in losses(&files, &path) {
            let file = path.file_name().unwrap().to_str().unwrap();
            let mut check = |verb: &str, before: &VerbOutput, after: &VerbOutput| {
                tried += 1;
                match after {
                    VerbOutput::Damage(_) => reported += 1,
                    VerbOutput::Output(_) if after == before => {}
                    VerbOutput::Output(_) => {
                        silent.insert(format!("{file} {loss}: {verb}"));
                    }
                }
            };
            for ((verb, before), (_, after)) in whole.iter().zip(read(&damaged)) {
                check(verb, before, &after);
            }
            for (id, before) in (1..=RECORDINGS).map(RecordingId).zip(&recorded) {
                let after = record(&damaged, id);
                check(&format!("record {id}"), before, &after);
                // A recording with a missing or foreign file must not be extended.
                let name = SegmentName::parse(file);
                let is_other = [
                    "missing",
                    "cut at 0",
                    "foreign",
                    "another's",
                    "noise",
                    "twin",
                ];
                if name.is_some_and(|name| name.recording == id)
                    && is_other.contains(&loss.as_str())
                {
                    assert!(
                        matches!(after, VerbOutput::Damage(_)),
                        "{file} {loss}: {after:?}"
                    );
                }
            }
            let copied = copy(&damaged, &FileTree::default());
            check("copy from it", &copied_whole, &copied);
        }
    }
    println!("{tried} cases, {reported} reported");
    assert!(silent.is_empty(), "{} silent: {silent:#?}", silent.len());
    assert!(tried > 3_000 && reported > 1_000, "{tried} {reported}");
}

#[test]
fn a_copy_that_lost_something_is_reported_when_it_is_resumed() {
    let source = archive(1_000);
    let target = copied(&source);
    let whole = copy(&source, &target);
    assert!(matches!(whole, VerbOutput::Output(_)), "{whole:?}");
    let (mut tried, mut reported) = (0, 0);
    let paths: Vec<PathBuf> = target.iter().map(|(path, _)| path.to_owned()).collect();
    for path in paths {
        for (loss, damaged) in losses_of(&target, &path, &|seed| copied(&archive(seed))) {
            tried += 1;
            match copy(&source, &damaged) {
                VerbOutput::Damage(_) => reported += 1,
                said @ VerbOutput::Output(_) => {
                    assert_eq!(said, whole, "{} {loss}", path.display());
                }
            }
        }
    }
    assert!(tried > 200 && reported > 200, "{tried} {reported}");
}
