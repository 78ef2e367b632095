//! `seatrial archive copy`: blocks as they are, at the same positions, from where the copy ends.

use super::entry::thousands;
use super::folder;
use super::interrupt::Interrupt;
use super::moment;
use super::place::Place;
use crate::args::CopyArguments;
use crate::exit::Exit;
use crate::output::say;
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use seatrial_archive::Archive;
use seatrial_archive::file::Files;
use seatrial_archive::{Bound, Cursor, Origin, Pause};
use seatrial_archive::{Recording, RecordingId, RecordingOptions, Source, Writer};
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the source is looked at for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How often it is looked at for new recordings.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Blocks of one recording before the others have their turn.
const TURN_BLOCKS: usize = 64;

/// One recording on its way.
struct Copying {
    from: RecordingId,
    cursor: Cursor,
    writer: Writer,
    messages: u64,
    bytes: u64,
    reached: bool,
}

impl Copying {
    /// Copies some blocks; false when there are none.
    fn turn(&mut self) -> Result<bool> {
        for count in 0..TURN_BLOCKS {
            let Some(block) = self.cursor.next_block()? else {
                self.reached = self.cursor.pause() == Pause::Reached;
                self.writer.tick(moment::now())?;
                return Ok(count > 0);
            };
            let (bytes, position) = block.stored();
            self.writer.append_copied(position, bytes, moment::now())?;
            self.messages += u64::from(block.messages_count());
            self.bytes += bytes.len() as u64;
        }
        Ok(true)
    }

    fn json(&self) -> Value {
        json!({
            "recording": self.writer.recording().0,
            "from_recording": self.from.0,
            "messages": self.messages,
            "bytes": self.bytes,
            "position": self.writer.end().0,
        })
    }
}

/// A copy from folder to folder.
struct Copy<'a> {
    arguments: &'a CopyArguments,
    from: &'a Path,
    /// How the destination calls the source: the same at every call.
    name: String,
    archive: Archive,
    copying: Vec<Copying>,
}

/// Carries the verb out.
pub(super) fn run(arguments: &CopyArguments) -> Result<Exit> {
    let (from, to) = (Place::parse(&arguments.from)?, Place::parse(&arguments.to)?);
    let (from_folder, to_folder) = (from.folder()?, to.folder()?);
    folder::view(from_folder)?;
    let whole = from_folder
        .canonicalize()
        .with_context(|| from.to_string())?;
    let interrupt = Interrupt::listen(|| {})?;
    let mut copy = Copy {
        arguments,
        from: from_folder,
        name: whole.display().to_string(),
        archive: folder::open(to_folder)?,
        copying: Vec::new(),
    };
    let outcome = copy.run(&interrupt);
    // Also after an error: what was copied is kept, and the next call goes on from there.
    let copied: Vec<Value> = copy.copying.iter().map(Copying::json).collect();
    for one in copy.copying {
        one.writer
            .stop(moment::now())
            .with_context(|| to.to_string())?;
    }
    outcome.with_context(|| format!("{from} to {to}"))?;
    if arguments.json {
        say!(
            "{:#}",
            json!({"from": from.to_string(), "to": to.to_string(), "recordings": copied})
        );
    } else {
        for one in copied {
            say!(
                "recording {} of {from} to {}: {} messages, {} bytes; the copy ends at {}",
                one["from_recording"],
                one["recording"],
                thousands(one["messages"].as_u64().unwrap_or_default()),
                thousands(one["bytes"].as_u64().unwrap_or_default()),
                one["position"]
            );
        }
    }
    Ok(Exit::Valid)
}

impl Copy<'_> {
    /// Until all is copied, or the user says so.
    fn run(&mut self, interrupt: &Interrupt) -> Result<()> {
        let mut listed = Instant::now();
        self.begin_new()?;
        let bar = self.bar();
        while !interrupt.told() {
            let mut busy = false;
            for one in &mut self.copying {
                busy |= one
                    .turn()
                    .with_context(|| format!("recording {}", one.from))?;
            }
            if let Some(bar) = &bar {
                bar.set_position(self.copying.iter().map(|one| one.bytes).sum());
            }
            if !self.arguments.follow && self.copying.iter().all(|one| one.reached) {
                break;
            }
            if self.arguments.follow && listed.elapsed() >= LIST_INTERVAL {
                listed = Instant::now();
                self.begin_new()?;
            }
            if !busy {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(())
    }

    /// Begins with the recordings that are wanted and not on their way.
    fn begin_new(&mut self) -> Result<()> {
        let catalog = folder::view(self.from)?;
        let wanted: Vec<Recording> = if self.arguments.recording.is_empty() {
            catalog.recordings().cloned().collect()
        } else {
            let find = |wanted: &String| folder::find(&catalog, wanted, self.from).cloned();
            self.arguments
                .recording
                .iter()
                .map(find)
                .collect::<Result<_>>()?
        };
        for recording in wanted {
            if !self.copying.iter().any(|one| one.from == recording.id) {
                let one = self.begin(&recording);
                self.copying
                    .push(one.with_context(|| format!("recording {}", recording.id))?);
            }
        }
        Ok(())
    }

    /// Goes on with the copy of a recording, or makes one.
    fn begin(&mut self, recording: &Recording) -> Result<Copying> {
        let now = moment::now();
        let source = Source {
            archive: self.name.clone(),
            recording: recording.id,
        };
        let catalog = self.archive.catalog();
        let earlier = catalog
            .recordings()
            .find(|copy| copy.source.as_ref() == Some(&source));
        let writer = if let Some(copy) = earlier {
            self.archive.extend(copy.id, now)?
        } else {
            let options = RecordingOptions {
                label: recording.label.clone(),
                segment_length: recording.segment_length,
                durability: recording.durability,
            };
            self.archive
                .start_copy(&options, source, recording.start, now)?
        };
        let origin = Origin::Position(writer.end());
        let bound = if self.arguments.follow {
            Bound::Follow
        } else {
            Bound::End
        };
        let cursor = Cursor::open(Arc::new(Files), self.from, recording.id, origin, bound)?;
        Ok(Copying {
            from: recording.id,
            cursor,
            writer,
            messages: 0,
            bytes: 0,
            reached: false,
        })
    }

    /// On a terminal, if wanted.
    fn bar(&self) -> Option<ProgressBar> {
        (!self.arguments.quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::no_length();
            if let Ok(style) =
                ProgressStyle::with_template(" {spinner} {bytes} copied, {bytes_per_sec}")
            {
                bar.set_style(style);
            }
            bar
        })
    }
}
