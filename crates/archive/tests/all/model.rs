//! A naive model of an archive: for each recording the messages that it must and may have. It follows the operations on
//! an archive, and an archive that is opened again is compared with it.

use seatrial_archive::{
    Archive, ArchiveError, Catalog, Cursor, CursorBound, Durability, Origin, Position, Recording,
    RecordingFilter, RecordingId, RecordingOptions, Recovered, TailError, VerifyOptions, Writer,
};
use seatrial_machine::{Rng, Storage};
use seatrial_sim::MemoryStorage;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

pub(crate) const FOLDER: &str = "data/recordings";
/// Limits of the catalog, so low that automatic compactions are frequent.
const COMPACTION: (u64, u64) = (600, 2);

/// An error with its causes.
pub(crate) fn error_text(error: impl Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// The expected state of one recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// May it be absent?
    pub(crate) may_be_absent: bool,
    /// All messages that were ever appended and not truncated.
    pub(crate) messages: Vec<Vec<u8>>,
    /// Number of messages that must be there.
    pub(crate) durable: usize,
    /// Possible numbers of its first message.
    pub(crate) firsts: Vec<u64>,
    /// Possible labels.
    pub(crate) labels: Vec<String>,
    /// Was it stopped, without a later operation?
    pub(crate) is_stopped: bool,
}

/// The expected state of an archive: recordings by number, without deleted ones.
pub(crate) type Model = BTreeMap<RecordingId, Expected>;

/// The contents of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) label: String,
    pub(crate) first: u64,
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) is_stopped: bool,
}

/// Reads a recording from start to end, and again from the middle.
pub(crate) fn read(storage: &Arc<dyn Storage>, recording: &Recording) -> Result<Contents, String> {
    let folder = Path::new(FOLDER);
    let id = recording.id;
    let open = |origin| Cursor::open(Arc::clone(storage), folder, id, origin, CursorBound::End);
    let mut cursor = open(Origin::Start).map_err(error_text)?;
    let mut messages: Vec<(Position, Vec<u8>)> = Vec::new();
    while let Some(block) = cursor.next_block().map_err(error_text)? {
        messages.extend(
            block
                .messages()
                .map(|it| (it.position, it.payload.to_vec())),
        );
    }
    if let Some((position, payload)) = messages.get(messages.len() / 2) {
        let mut cursor = open(Origin::Position(*position)).map_err(error_text)?;
        let block = cursor.next_block().map_err(error_text)?;
        let again = block.and_then(|block| Some(block.messages().next()?.payload.to_vec()));
        if again.as_ref() != Some(payload) {
            return Err(format!(
                "recording {id} has another message at {position}: {again:?}"
            ));
        }
    }
    Ok(Contents {
        label: recording.label.clone(),
        first: recording.start.message,
        messages: messages.into_iter().map(|it| it.1).collect(),
        is_stopped: recording.stopped.is_some(),
    })
}

/// Reads all recordings.
pub(crate) fn read_all(
    storage: &Arc<dyn Storage>,
    catalog: &Catalog,
) -> Result<BTreeMap<RecordingId, Contents>, String> {
    let all = catalog.recordings();
    all.map(|recording| Ok((recording.id, read(storage, recording)?)))
        .collect()
}

/// Compares the contents of all recordings with the model.
pub(crate) fn compare(
    model: &Model,
    found: &BTreeMap<RecordingId, Contents>,
) -> Result<(), String> {
    for id in found.keys() {
        if !model.contains_key(id) {
            return Err(format!(
                "recording {id} was deleted, or never made, and is there"
            ));
        }
    }
    for (id, expected) in model {
        let Some(found) = found.get(id) else {
            if expected.may_be_absent {
                continue;
            }
            return Err(format!("recording {id} is lost"));
        };
        let end = found.first as usize + found.messages.len();
        if !expected.labels.contains(&found.label) {
            return Err(format!("recording {id} is called {}", found.label));
        }
        if !expected.firsts.contains(&found.first) {
            return Err(format!(
                "recording {id} begins with message {}",
                found.first
            ));
        }
        if end < expected.durable {
            let durable = expected.durable;
            return Err(format!(
                "recording {id}: {end} of {durable} durable messages"
            ));
        }
        let all = expected.messages.get(found.first as usize..end);
        if all != Some(&found.messages[..]) {
            return Err(format!(
                "recording {id} has messages that were never appended"
            ));
        }
    }
    Ok(())
}

/// Opens an archive after a crash and compares it with the model; then opens it again and extends it.
pub(crate) fn recover(storage: &Arc<dyn Storage>, model: &Model) -> Result<(), String> {
    let folder = Path::new(FOLDER);
    let open = || Archive::open(Arc::clone(storage), folder, 1_000_000).map_err(error_text);
    let (mut archive, recovered) = open()?;
    repair_holes(&mut archive, recovered)?;
    let found = read_all(storage, &archive.catalog())?;
    compare(model, &found)?;
    if let Some((id, _)) = found.iter().find(|(_, it)| !it.is_stopped) {
        return Err(format!("recording {id} is still open"));
    }
    let catalog = archive.catalog();
    drop(archive);
    let (mut archive, recovered) = open()?;
    if !recovered.is_clean() {
        return Err(format!("the second recovery finds {recovered:?}"));
    }
    if archive.catalog() != catalog {
        return Err("the second recovery changes the catalog".into());
    }
    for (id, before) in &found {
        let mut writer = archive.extend(*id, 1_000_001).map_err(error_text)?;
        writer
            .append_batch([&b"more"[..]], 1_000_002)
            .map_err(error_text)?;
        writer.stop(1_000_003).map_err(error_text)?;
        let recording = archive.describe(*id).map_err(error_text)?.recording;
        let mut after = read(storage, &recording)?;
        if after.messages.pop().as_deref() != Some(b"more") || after != *before {
            return Err(format!("recording {id} does not go on as it was"));
        }
    }
    Ok(())
}

/// Repairs recordings that end with a gap before intact blocks, which a power failure leaves without syncs in between. Any
/// other problem is an error.
pub(crate) fn repair_holes(archive: &mut Archive, recovered: Recovered) -> Result<(), String> {
    let options = VerifyOptions {
        threads: 1,
        checksums: true,
    };
    for (id, problem) in recovered.problems {
        if !matches!(problem, ArchiveError::Tail(TailError::Newer { .. })) {
            return Err(format!("recording {id}: {}", error_text(problem)));
        }
        let repaired = archive.repair(id, options, 1_000_000, &|_| ());
        let repaired = repaired.map_err(error_text)?;
        let repaired = repaired.ok_or(format!("recording {id}: verify does not find the hole"))?;
        if repaired.cut == 0 || repaired.kept.is_empty() {
            return Err(format!("recording {id}: {repaired:?} keeps nothing"));
        }
    }
    Ok(())
}

/// An archive, its model, and a callback for changes of the model.
pub(crate) struct Driver<'a> {
    pub(crate) archive: Archive,
    pub(crate) model: Model,
    /// Called with the model: before a change with the possible states, afterwards with the actual one.
    pub(crate) on_change: &'a mut dyn FnMut(&Model),
    now: u64,
}

impl<'a> Driver<'a> {
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        on_change: &'a mut dyn FnMut(&Model),
    ) -> Result<Driver<'a>, String> {
        on_change(&Model::new());
        let opened = Archive::open(storage, Path::new(FOLDER), 1);
        let (mut archive, _) = opened.map_err(error_text)?;
        archive.compact_when(COMPACTION.0, COMPACTION.1);
        Ok(Driver {
            archive,
            model: Model::new(),
            on_change,
            now: 1,
        })
    }

    fn now(&mut self) -> u64 {
        self.now += 1_000;
        self.now
    }

    /// Changes the model to the possible states, executes the operation, changes it to the actual state.
    fn step<T>(
        &mut self,
        id: RecordingId,
        may: impl FnOnce(&mut Expected),
        act: impl FnOnce(&mut Archive, u64) -> Result<T, String>,
        is: impl FnOnce(&mut Expected, &T),
    ) -> Result<T, String> {
        may(self.model.get_mut(&id).unwrap());
        (self.on_change)(&self.model);
        let now = self.now();
        let done = act(&mut self.archive, now)?;
        is(self.model.get_mut(&id).unwrap(), &done);
        (self.on_change)(&self.model);
        Ok(done)
    }

    pub(crate) fn start(&mut self, label: &str, durability: Durability) -> Result<Writer, String> {
        let id = self.archive.catalog().next();
        let expected = Expected {
            may_be_absent: true,
            messages: Vec::new(),
            durable: 0,
            firsts: vec![0],
            labels: vec![label.into()],
            is_stopped: false,
        };
        self.model.insert(id, expected);
        let options = RecordingOptions {
            label: label.into(),
            segment_length: 2_048,
            durability,
        };
        self.step(
            id,
            |_| {},
            |archive, now| archive.start(&options, now).map_err(error_text),
            |it, _| it.may_be_absent = false,
        )
    }

    /// Appends some messages in one call.
    pub(crate) fn append(
        &mut self,
        writer: &mut Writer,
        count: usize,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let id = writer.recording();
        let messages: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let bound = if rng.chance(0.2) { 900 } else { 60 };
                let length = rng.index(bound);
                (0..length).map(|_| rng.word() as u8).collect()
            })
            .collect();
        let all = messages.clone();
        self.step(
            id,
            |it| it.messages.extend(messages),
            |_, now| {
                let appended = writer.append_batch(all.iter().map(Vec::as_slice), now);
                let appended = appended.map_err(error_text)?;
                Ok(appended.durable == appended.end)
            },
            |it, is_durable| {
                if *is_durable {
                    it.durable = it.messages.len();
                }
            },
        )?;
        Ok(())
    }

    pub(crate) fn sync(&mut self, writer: &mut Writer) -> Result<(), String> {
        let synced = |it: &mut Expected, (): &()| it.durable = it.messages.len();
        let id = writer.recording();
        self.step(id, |_| {}, |_, _| writer.sync().map_err(error_text), synced)
    }

    pub(crate) fn stop(&mut self, writer: Writer) -> Result<(), String> {
        let id = writer.recording();
        let act = |_: &mut Archive, now| writer.stop(now).map(drop).map_err(error_text);
        let is = |it: &mut Expected, (): &()| {
            it.durable = it.messages.len();
            it.is_stopped = true;
        };
        self.step(id, |_| {}, act, is)
    }

    pub(crate) fn extend(&mut self, id: RecordingId) -> Result<Writer, String> {
        self.step(
            id,
            |it| it.is_stopped = false,
            |archive, now| archive.extend(id, now).map_err(error_text),
            |_, _| {},
        )
    }

    /// The position of a message, or the end of the recording.
    pub(crate) fn position(
        &self,
        storage: &Arc<dyn Storage>,
        id: RecordingId,
        message: u64,
    ) -> Result<Position, String> {
        let recording = self.archive.describe(id).map_err(error_text)?.recording;
        let (folder, origin) = (Path::new(FOLDER), Origin::Message(message));
        let cursor = Cursor::open(Arc::clone(storage), folder, id, origin, CursorBound::End);
        let mut cursor = cursor.map_err(error_text)?;
        let block = cursor.next_block().map_err(error_text)?;
        let first = block.and_then(|block| Some(block.messages().next()?.position));
        Ok(first.unwrap_or(recording.end.position))
    }

    pub(crate) fn truncate(
        &mut self,
        storage: &Arc<dyn Storage>,
        id: RecordingId,
        message: usize,
    ) -> Result<(), String> {
        let position = self.position(storage, id, message as u64)?;
        self.step(
            id,
            |it| it.durable = it.durable.min(message),
            |archive, now| archive.truncate(id, position, now).map_err(error_text),
            |it, _| {
                it.messages.truncate(message);
                it.durable = message;
            },
        )?;
        Ok(())
    }

    /// Moves the start to the segment that holds a message.
    pub(crate) fn move_start(
        &mut self,
        storage: &Arc<dyn Storage>,
        id: RecordingId,
        message: u64,
        is_purge: bool,
    ) -> Result<(), String> {
        let before = self.position(storage, id, message)?;
        let first = *self.model[&id].firsts.last().unwrap();
        self.step(
            id,
            // The first message of the segment is unknown before the operation.
            |it| it.firsts = (first..=message).collect(),
            |archive, now| {
                let moved = if is_purge {
                    archive.purge(id, before, now)
                } else {
                    archive.detach(id, before, now)
                };
                moved.map_err(error_text)?;
                Ok(archive
                    .describe(id)
                    .map_err(error_text)?
                    .recording
                    .start
                    .message)
            },
            |it, first| it.firsts = vec![*first],
        )?;
        Ok(())
    }

    pub(crate) fn attach(&mut self, id: RecordingId) -> Result<(), String> {
        let first = *self.model[&id].firsts.last().unwrap();
        self.step(
            id,
            |it| it.firsts = (0..=first).collect(),
            |archive, now| {
                archive.attach(id, now).map_err(error_text)?;
                Ok(archive
                    .describe(id)
                    .map_err(error_text)?
                    .recording
                    .start
                    .message)
            },
            |it, first| it.firsts = vec![*first],
        )?;
        Ok(())
    }

    pub(crate) fn relabel(&mut self, id: RecordingId, label: &str) -> Result<(), String> {
        self.step(
            id,
            |it| it.labels.push(label.into()),
            |archive, now| archive.relabel(id, label, now).map_err(error_text),
            |it, ()| it.labels = vec![label.into()],
        )
    }

    pub(crate) fn delete(&mut self, id: RecordingId) -> Result<(), String> {
        self.model.get_mut(&id).unwrap().may_be_absent = true;
        (self.on_change)(&self.model);
        let now = self.now();
        self.archive.delete(id, now).map_err(error_text)?;
        self.model.remove(&id);
        (self.on_change)(&self.model);
        Ok(())
    }

    /// Kills the process and opens the archive in another one: the messages that it finds are durable.
    pub(crate) fn reopen(&mut self, storage: &Arc<dyn Storage>) -> Result<(), String> {
        // The lock is released before it is taken again.
        let nothing: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let nowhere = Archive::open(nothing, Path::new(FOLDER), 1)
            .map_err(error_text)?
            .0;
        drop(std::mem::replace(&mut self.archive, nowhere));
        let now = self.now();
        let opened = Archive::open(Arc::clone(storage), Path::new(FOLDER), now);
        let (archive, recovered) = opened.map_err(error_text)?;
        self.archive = archive;
        self.archive.compact_when(COMPACTION.0, COMPACTION.1);
        if let Some((id, problem)) = recovered.problems.into_iter().next() {
            return Err(format!("recording {id}: {}", error_text(problem)));
        }
        for expected in self.model.values_mut() {
            expected.durable = expected.messages.len();
            expected.is_stopped = true;
        }
        (self.on_change)(&self.model);
        Ok(())
    }

    pub(crate) fn compact(&mut self) -> Result<(), String> {
        self.archive.compact().map(drop).map_err(error_text)
    }

    /// The recordings in the catalog.
    pub(crate) fn count(&self) -> usize {
        self.archive.list(&RecordingFilter::default()).len()
    }
}

/// The life of an archive with every operation at least once.
pub(crate) fn live(
    storage: &Arc<dyn Storage>,
    durability: Durability,
    seed: u64,
    on_change: &mut dyn FnMut(&Model),
) -> Result<Model, String> {
    let mut rng = Rng::from_seed(seed);
    let mut driver = Driver::open(Arc::clone(storage), on_change)?;
    let mut writer = driver.start("first", durability)?;
    let id = writer.recording();
    for _ in 0..6 {
        driver.append(&mut writer, 3, &mut rng)?;
    }
    driver.sync(&mut writer)?;
    driver.append(&mut writer, 2, &mut rng)?;
    // A second recording.
    let mut other = driver.start("second", durability)?;
    let second = other.recording();
    driver.append(&mut other, 1, &mut rng)?;
    for _ in 0..4 {
        driver.append(&mut writer, 3, &mut rng)?;
    }
    driver.stop(writer)?;
    driver.append(&mut other, 2, &mut rng)?;
    driver.truncate(storage, id, 20)?;
    let mut writer = driver.extend(id)?;
    for _ in 0..3 {
        driver.append(&mut writer, 3, &mut rng)?;
    }
    driver.stop(writer)?;
    driver.relabel(id, "renamed")?;
    driver.move_start(storage, id, 12, false)?;
    driver.attach(id)?;
    driver.move_start(storage, id, 8, true)?;
    driver.truncate(storage, id, 15)?;
    driver.stop(other)?;
    driver.delete(second)?;
    driver.compact()?;
    assert_eq!(driver.count(), 1);
    // A third recording, whose process is killed while it is open; the next process also reads messages without a sync.
    let mut third = driver.start("third", durability)?;
    driver.append(&mut third, 2, &mut rng)?;
    driver.append(&mut third, 1, &mut rng)?;
    let killed = third.recording();
    drop(third);
    driver.reopen(storage)?;
    let mut third = driver.extend(killed)?;
    driver.append(&mut third, 2, &mut rng)?;
    drop(third);
    // Extended again by the process that lost its writer.
    let mut third = driver.extend(killed)?;
    driver.append(&mut third, 1, &mut rng)?;
    Ok(driver.model)
}

/// The life of an archive with random operations.
pub(crate) fn live_by_chance(
    storage: &Arc<dyn Storage>,
    durability: Durability,
    seed: u64,
    steps: usize,
    on_change: &mut dyn FnMut(&Model),
) -> Result<Model, String> {
    let mut rng = Rng::from_seed(seed).fork("chance");
    let mut driver = Driver::open(Arc::clone(storage), on_change)?;
    let mut writers: Vec<Writer> = Vec::new();
    for _ in 0..steps {
        let ids: Vec<RecordingId> = driver.model.keys().copied().collect();
        let chosen = if ids.is_empty() {
            None
        } else {
            Some(*rng.pick(&ids))
        };
        let live = chosen.and_then(|id| writers.iter().position(|it| it.recording() == id));
        let last = chosen.map_or(0, |id| driver.model[&id].messages.len() as u64);
        match (rng.below(14), chosen, live) {
            (0, None, _) | (0..=1, Some(_), _) if ids.len() < 3 => {
                writers.push(driver.start("by chance", durability)?);
            }
            (2..=7, _, Some(live)) => {
                let count = 1 + rng.index(4);
                driver.append(&mut writers[live], count, &mut rng)?;
            }
            (8, _, Some(live)) => driver.sync(&mut writers[live])?,
            (9, _, Some(live)) => driver.stop(writers.remove(live))?,
            (10, _, Some(live)) => drop(writers.remove(live)),
            (2..=6, Some(id), None) => writers.push(driver.extend(id)?),
            (7, Some(id), None) => {
                let first = driver.model[&id].firsts[0];
                let message = first + rng.below(last - first + 1);
                driver.truncate(storage, id, message as usize)?;
            }
            (8, Some(id), None) => driver.delete(id)?,
            (9, Some(id), _) => driver.relabel(id, if rng.chance(0.5) { "a" } else { "b" })?,
            (11, Some(id), _) => {
                let first = driver.model[&id].firsts[0];
                let message = first + rng.below(last - first + 1);
                driver.move_start(storage, id, message, rng.chance(0.5))?;
            }
            (12, Some(id), _) => driver.attach(id)?,
            (13, ..) if rng.chance(0.5) => driver.compact()?,
            (13, ..) => {
                writers.clear();
                driver.reopen(storage)?;
            }
            _ => {}
        }
    }
    Ok(driver.model)
}
