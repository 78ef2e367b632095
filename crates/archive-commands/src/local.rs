//! An archive in a folder of this machine.

use crate::archive_arguments::RecordArguments;
use crate::moment;
use crate::record::{MessageRecorder, Reached};
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_archive::{
    Archive, ArchiveError, Batch, Catalog, CatalogError, CatalogView, Durability, Position,
    Recording, RecordingId, RecordingOptions, Recovered, SegmentName, Writer,
};
use seatrial_blocks::file::ReadFiles;
use seatrial_machine::Storage as _;
use seatrial_terminal::complain;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Writes that are remembered until they are durable.
const WAITING_MAX: usize = 4_095;

/// How to repair a catalog that cannot be read.
fn hint(folder: &Path) -> String {
    let folder = folder.display();
    format!("rebuild the catalog with `seatrial archive repair-catalog {folder}`")
}

/// Is there a catalog, whole or not?
pub(crate) fn has_catalog(folder: &Path) -> bool {
    folder.join("catalog").exists()
}

/// Are there files of recordings?
pub(crate) fn has_segments(folder: &Path) -> bool {
    let files = ReadFiles.list(folder).unwrap_or_default();
    files.iter().any(|file| SegmentName::parse(file).is_some())
}

/// Its recordings, also while another process writes.
pub(crate) fn view(folder: &Path) -> Result<Catalog> {
    Ok(look(folder)?.catalog)
}

/// [`view`], with what is damaged at the ends of recordings.
pub(crate) fn look(folder: &Path) -> Result<CatalogView> {
    let shown = folder.display();
    if !has_catalog(folder) {
        ensure!(
            !has_segments(folder),
            "{shown}: the catalog is missing; {}",
            hint(folder)
        );
        bail!("{shown}: there is no archive");
    }
    Archive::look(Arc::new(ReadFiles), folder).map_err(|error| named(folder, error))
}

/// The archive's error with the folder it is about, and what helps.
fn named(folder: &Path, error: ArchiveError) -> anyhow::Error {
    let is_damaged = matches!(
        error,
        ArchiveError::Catalog(
            CatalogError::Log { .. }
                | CatalogError::Event { .. }
                | CatalogError::Fold { .. }
                | CatalogError::Lost { .. }
        )
    );
    let error = anyhow::Error::new(error);
    if is_damaged {
        return error.context(format!("{}: damaged; {}", folder.display(), hint(folder)));
    }
    error.context(folder.display().to_string())
}

/// Opens it for writing and prints what recovery after a crash truncated.
pub(crate) fn open(folder: &Path) -> Result<Archive> {
    let opened = Archive::open(Arc::new(ReadFiles), folder, moment::now());
    let (archive, recovered) = opened.map_err(|error| named(folder, error))?;
    print_recovery(&recovered);
    Ok(archive)
}

/// What opening had to do, on standard error.
pub(crate) fn print_recovery(recovered: &Recovered) {
    if let Some(torn) = &recovered.catalog {
        complain!("catalog: truncated: {torn}");
    }
    for recording in &recovered.recordings {
        let (id, end) = (recording.recording, recording.end);
        complain!("recording {id} was not stopped; it ends at {end}");
        for cut in &recording.cuts {
            let (file, torn) = (cut.file.display(), cut.torn.as_ref());
            let why = torn.map_or("the file was empty".to_owned(), ToString::to_string);
            let kept = cut.kept.as_ref().map_or(String::new(), |kept| {
                format!("; they are kept in {}", kept.display())
            });
            complain!(
                "{file}: truncated {} bytes at {}: {why}{kept}",
                cut.length,
                cut.offset
            );
        }
    }
    for (id, problem) in &recovered.problems {
        complain!("recording {id}: {problem}");
    }
    for file in &recovered.removed {
        complain!("{}: incomplete file removed", file.display());
    }
    for file in &recovered.orphans {
        complain!("{}: belongs to no recording", file.display());
    }
}

/// Opens one that is there already.
pub(crate) fn open_existing(folder: &Path) -> Result<Archive> {
    view(folder)?;
    open(folder)
}

/// The recording that a number or label names.
pub(crate) fn find<'a>(catalog: &'a Catalog, wanted: &str, folder: &Path) -> Result<&'a Recording> {
    let by_number = wanted
        .parse()
        .ok()
        .and_then(|number| catalog.recording(RecordingId(number)));
    let by_label = || {
        catalog
            .recordings()
            .filter(|recording| recording.label == wanted)
            .last()
    };
    by_number.or_else(by_label).with_context(|| {
        let folder = folder.display();
        format!("{folder}: no recording has the number or label {wanted:?}")
    })
}

/// Messages of a recording on their way into a folder: they gather in one block, which is written when it is full or
/// when the input makes a pause.
#[derive(Debug)]
pub(crate) struct FolderRecorder {
    writer: Writer,
    batch: Batch,
    frame_checksum: bool,
    /// The number of the first message that this command records.
    first: u64,
    /// The end of the recording by number of messages, for the writes that are not durable yet.
    waiting: Vec<(Position, u64)>,
    reached: Reached,
}

impl FolderRecorder {
    /// Starts or extends a recording.
    pub(crate) fn new(
        folder: &Path,
        arguments: &RecordArguments,
        durability: Durability,
    ) -> Result<FolderRecorder> {
        let now = moment::now();
        let writer = if let Some(wanted) = &arguments.extend {
            let mut archive = open_existing(folder)?;
            let id = find(&archive.catalog(), wanted, folder)?.id;
            archive.extend(id, now)
        } else {
            let mut archive = open(folder)?;
            let mut options = RecordingOptions {
                label: arguments.label.clone(),
                durability,
                ..RecordingOptions::default()
            };
            if let Some(length) = arguments.segment_length {
                options.segment_length = length;
            }
            archive.start(&options, now)
        };
        let writer = writer.with_context(|| folder.display().to_string())?;
        Ok(FolderRecorder {
            batch: Batch::default(),
            frame_checksum: arguments.frame_checksum,
            first: writer.next_message(),
            waiting: Vec::new(),
            reached: Reached {
                position: writer.end().0,
                ..Reached::default()
            },
            writer,
        })
    }

    /// Remembers how far the writer has come.
    fn note(&mut self) {
        self.reached.written = self.writer.next_message() - self.first;
        self.reached.position = self.writer.end().0;
        let durable = self.writer.durable();
        if self
            .waiting
            .last()
            .is_none_or(|(position, _)| *position < self.writer.end())
        {
            self.waiting.push((self.writer.end(), self.reached.written));
        }
        if self.waiting.len() > WAITING_MAX {
            // Acknowledgements become coarser, not later.
            let mut number = 0;
            self.waiting.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
        let done = self
            .waiting
            .partition_point(|(position, _)| *position <= durable);
        if let Some((_, messages)) = self.waiting.drain(..done).next_back() {
            self.reached.durable = messages;
        }
    }
}

impl FolderRecorder {
    /// Writes the block.
    fn write(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.writer.append_block(&mut self.batch, moment::now())?;
            self.note();
        }
        Ok(())
    }
}

impl MessageRecorder for FolderRecorder {
    fn id(&self) -> u64 {
        self.writer.recording().0
    }

    fn push(&mut self, message: &[u8]) -> Result<()> {
        if push_into(&mut self.batch, self.frame_checksum, message) {
            return Ok(());
        }
        self.write()?;
        if !push_into(&mut self.batch, self.frame_checksum, message) {
            let mut long = Batch::for_message(message.len());
            push_into(&mut long, self.frame_checksum, message);
            self.writer.append_block(&mut long, moment::now())?;
            self.note();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.write()
    }

    fn due(&self) -> Option<Duration> {
        let at = self.writer.sync_at()?;
        Some(Duration::from_nanos(at.saturating_sub(moment::now())))
    }

    fn tick(&mut self) -> Result<()> {
        self.writer.tick(moment::now())?;
        self.note();
        Ok(())
    }

    fn reached(&self) -> Reached {
        self.reached
    }

    fn stop(mut self: Box<Self>) -> Result<Reached> {
        self.write()?;
        let stopped = self.writer.stop(moment::now())?;
        Ok(Reached {
            durable: self.reached.written,
            position: stopped.end.0,
            ..self.reached
        })
    }
}

fn push_into(batch: &mut Batch, checksum: bool, message: &[u8]) -> bool {
    if checksum {
        batch.push_checksummed(0, message)
    } else {
        batch.push(0, message)
    }
}
