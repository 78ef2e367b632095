//! The checkpoint from which a start continues: the newest one whose files are whole.

use super::member_changes::{Addresses, decode_cluster};
use super::stored_checkpoints::{CheckpointChain, CheckpointFile};
use super::transfer::mark_of;
use crate::checkpoint::{CheckpointReader, ReadCheckpoint};
use crate::checkpoint_schedule::CheckpointSchedule;
use crate::journal_mark::JournalMark;
use crate::recovery::BootError;
use crate::state::{StateSnapshot, StoreState};
use seatrial_consensus::{Members, SnapshotMark};
use seatrial_machine::DataFolder;

/// Bytes that are read at a time from a checkpoint.
const READ_LENGTH: usize = 1 << 20;

/// The newest checkpoint of a folder that is whole.
pub(super) struct LoadedCheckpoint {
    pub(super) mark: SnapshotMark,
    /// Its files; `None`: the state before the first entry.
    pub(super) chain: Option<CheckpointChain>,
    /// The state of the whole one of them.
    pub(super) whole: Option<StateSnapshot>,
    pub(super) state: StoreState,
    pub(super) schedule: CheckpointSchedule,
    pub(super) addresses: Addresses,
}

impl LoadedCheckpoint {
    /// The empty state of a cluster before its first entry.
    pub(super) fn founding(file: &JournalMark) -> LoadedCheckpoint {
        LoadedCheckpoint {
            mark: SnapshotMark {
                members: Members::of_voters(file.voters.iter().copied()),
                ..SnapshotMark::default()
            },
            chain: None,
            whole: None,
            state: StoreState::default(),
            schedule: CheckpointSchedule::new(file.checkpoint_bytes),
            addresses: Addresses::new(),
        }
    }

    /// From a whole file and perhaps one of changes.
    fn new(
        whole: &ReadCheckpoint,
        changes: Option<&ReadCheckpoint>,
    ) -> Result<LoadedCheckpoint, String> {
        let whole_mark = mark_of(whole)?;
        let snapshot = whole.state.snapshot();
        let changes_mark = changes.map(mark_of).transpose()?;
        let changes_mark = changes_mark.map(|mut mark| {
            mark.length += whole_mark.length;
            mark
        });
        let newest = changes.unwrap_or(whole);
        let addresses = decode_cluster(&newest.head.members)?.1;
        let schedule = CheckpointSchedule::decode(&newest.head.schedule);
        let schedule = schedule.map_err(|error| error.to_string())?;
        let chain = CheckpointChain {
            whole: whole_mark,
            changes: changes_mark,
        };
        Ok(LoadedCheckpoint {
            mark: chain.newest().clone(),
            chain: Some(chain),
            whole: Some(snapshot),
            state: newest.state.clone(),
            schedule,
            addresses,
        })
    }
}

/// What the files of a folder hold.
#[derive(Default)]
pub(super) struct FoundCheckpoints {
    /// The newest that is whole.
    pub(super) newest: Option<LoadedCheckpoint>,
    /// All other files.
    pub(super) leftover: Vec<CheckpointFile>,
    /// What is wrong with newer ones.
    pub(super) damaged: Vec<String>,
}

impl FoundCheckpoints {
    /// Why none of the files is whole; `None`: there are none.
    pub(super) fn without_whole(&self, data: &DataFolder) -> Option<BootError> {
        let problem = self.damaged.first()?;
        Some(BootError::Checkpoint {
            file: data.files_path().display().to_string(),
            problem: format!("no checkpoint is whole: {problem}"),
        })
    }
}

/// Reads the newest checkpoint; if it is damaged, the one before, and so on.
pub(super) fn load_checkpoints(
    data: &DataFolder,
    cluster: u64,
) -> Result<FoundCheckpoints, BootError> {
    let files = data.files().map_err(|error| BootError::Checkpoint {
        file: data.files_path().display().to_string(),
        problem: error.to_string(),
    })?;
    let mut files: Vec<CheckpointFile> = files.iter().filter_map(CheckpointFile::named).collect();
    files.sort_unstable_by_key(|file| file.age());
    let mut found = FoundCheckpoints::default();
    let mut folder = CheckpointFolder {
        data,
        cluster,
        whole: None,
    };
    for (at, file) in files.iter().enumerate().rev() {
        match folder.load(*file) {
            Ok(loaded) => {
                let used = loaded.chain.as_ref().map(|chain| chain.whole.index);
                let others = files[..at].iter().copied();
                let is_used = |it: &CheckpointFile| it.base.is_none() && Some(it.index) == used;
                found.leftover.extend(others.filter(|it| !is_used(it)));
                found.newest = Some(loaded);
                return Ok(found);
            }
            Err(problem) => {
                found.leftover.push(*file);
                found.damaged.push(problem);
            }
        }
    }
    Ok(found)
}

/// The files of a folder, with the last whole one that was read: several files of changes may have it as their base.
struct CheckpointFolder<'a> {
    data: &'a DataFolder,
    cluster: u64,
    whole: Option<(u64, Result<ReadCheckpoint, String>)>,
}

impl CheckpointFolder<'_> {
    /// The checkpoint with this file.
    fn load(&mut self, file: CheckpointFile) -> Result<LoadedCheckpoint, String> {
        let whole = CheckpointFile::whole(file.base.unwrap_or(file.index));
        if self.whole.as_ref().is_none_or(|it| it.0 != whole.index) {
            let read = self.read(whole, CheckpointReader::new());
            self.whole = Some((whole.index, read));
        }
        let Some((_, read)) = &self.whole else {
            unreachable!("it was read");
        };
        let read = read.as_ref().map_err(Clone::clone)?;
        let mut changes = None;
        if file.base.is_some() {
            let reader = CheckpointReader::of_changes(&read.head, &read.state, read.mark);
            changes = Some(self.read(file, reader)?);
        }
        LoadedCheckpoint::new(read, changes.as_ref())
            .map_err(|problem| format!("{}: {problem}", file.name()))
    }

    /// Reads a file in bounded pieces; an error names it.
    fn read(
        &self,
        file: CheckpointFile,
        reader: CheckpointReader,
    ) -> Result<ReadCheckpoint, String> {
        let read = self.read_all(file, reader);
        read.map_err(|problem| format!("{}: {problem}", file.name()))
    }

    fn read_all(
        &self,
        file: CheckpointFile,
        mut reader: CheckpointReader,
    ) -> Result<ReadCheckpoint, String> {
        let index = file.index;
        let opened = self.data.file(&file.name());
        let file = opened.map_err(|error| error.to_string())?;
        let mut buffer = Vec::new();
        let (mut at, end) = (0, file.len());
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(READ_LENGTH);
            buffer.resize(length.min(READ_LENGTH), 0);
            file.read_at(at, &mut buffer)
                .map_err(|error| format!("at {at}: {error}"))?;
            reader.push(&buffer).map_err(|error| error.to_string())?;
            at += buffer.len() as u64;
        }
        let read = reader.finish_file().map_err(|error| error.to_string())?;
        if read.head.cluster != self.cluster {
            let (found, own) = (read.head.cluster, self.cluster);
            return Err(format!("of cluster {found}, not {own}"));
        }
        if read.head.index != index {
            return Err(format!("the state at index {}", read.head.index));
        }
        Ok(read)
    }
}
