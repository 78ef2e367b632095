//! `seatrial archive verify`: checks every byte of recordings, and truncates damaged ones on request.

use crate::archive_arguments::VerifyArguments;
use crate::archive_place::ArchivePlace;
use crate::local;
use crate::moment;
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use seatrial_archive::{
    Archive, Recording, RecordingId, RecordingReport, Repaired, VerifyDamage, VerifyOptions, verify,
};
use seatrial_blocks::file::ReadFiles;
use seatrial_machine::counted;
use seatrial_terminal::{Exit, say};
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Instant;

/// A recording, what was found in it, and where it was cut.
struct VerifiedRecording {
    recording: Recording,
    report: RecordingReport,
    repaired: Option<Repaired>,
}

/// Carries the verb out.
pub(crate) fn run(arguments: &VerifyArguments) -> Result<Exit> {
    let place = ArchivePlace::parse(&arguments.place.archive)?;
    let path = place.folder()?;
    let catalog = local::view(path)?;
    let recordings: Vec<Recording> = match &arguments.recording {
        Some(wanted) => vec![local::find(&catalog, wanted, path)?.clone()],
        None => catalog.recordings().cloned().collect(),
    };
    let ids: Vec<RecordingId> = recordings.iter().map(|recording| recording.id).collect();
    let began = Instant::now();
    let reports = check(path, &ids, arguments).with_context(|| place.to_string())?;
    let seconds = began.elapsed().as_secs_f64();
    let mut checked: Vec<VerifiedRecording> = recordings
        .into_iter()
        .zip(reports)
        .map(|(recording, report)| VerifiedRecording {
            recording,
            report,
            repaired: None,
        })
        .collect();
    if arguments.repair && checked.iter().any(|one| !one.report.damages.is_empty()) {
        let mut archive = local::open_existing(path)?;
        for one in checked
            .iter_mut()
            .filter(|one| !one.report.damages.is_empty())
        {
            one.repair(&mut archive)
                .with_context(|| place.to_string())?;
        }
    }
    // Of one recording only its own files are asked for.
    let strays = match &arguments.recording {
        Some(_) => Vec::new(),
        None => Archive::strays(&ReadFiles, path).with_context(|| place.to_string())?,
    };
    let bytes: u64 = checked.iter().map(|one| one.report.bytes).sum();
    let is_sound = checked.iter().all(|one| one.report.damages.is_empty());
    let is_clean = is_sound && strays.is_empty();
    if arguments.place.json {
        let recordings: Vec<Value> = checked.iter().map(VerifiedRecording::json).collect();
        let archive = place.to_string();
        say!(
            "{:#}",
            json!({
                "archive": archive, "clean": is_clean, "bytes": bytes, "seconds": seconds, "recordings": recordings,
                "strays": strays.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
            })
        );
    } else {
        checked.iter().for_each(VerifiedRecording::say);
        for path in &strays {
            say!(
                "{} at 0: belongs to no recording of the catalog",
                path.display()
            );
        }
        let rate = bytes as f64 / 1e9 / seconds.max(1e-9);
        let clean = if is_clean { "no damage" } else { "DAMAGED" };
        say!(
            "{clean}: {}, {}, {rate:.2} GB/s",
            counted(checked.len() as u64, "recording"),
            counted(bytes, "byte")
        );
    }
    Ok(if is_clean { Exit::Valid } else { Exit::Invalid })
}

fn check(
    path: &Path,
    ids: &[RecordingId],
    arguments: &VerifyArguments,
) -> Result<Vec<RecordingReport>> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let options = VerifyOptions {
        threads: arguments.threads.unwrap_or_else(cores).max(1),
        checksums: true,
    };
    let bar = bar(arguments.quiet);
    let reports = verify(&ReadFiles, path, ids, options, &|progress| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    })?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(reports)
}

/// On a terminal, if wanted.
fn bar(quiet: bool) -> Option<ProgressBar> {
    (!quiet && std::io::stderr().is_terminal()).then(|| {
        let bar = ProgressBar::new(0);
        let template = " {bar:24.cyan/blue} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━─"));
        }
        bar
    })
}

impl VerifiedRecording {
    /// Cuts the recording where its damage begins.
    fn repair(&mut self, archive: &mut Archive) -> Result<()> {
        let options = VerifyOptions {
            threads: 1,
            checksums: true,
        };
        self.repaired = archive.repair(self.recording.id, options, moment::now(), &|_| {})?;
        Ok(())
    }

    fn damage_json(damage: &VerifyDamage) -> Value {
        json!({
            "file": damage.path.display().to_string(),
            "offset": damage.offset,
            "position": damage.position.0,
            "length": damage.length,
            "reason": damage.fault.to_string(),
        })
    }

    fn json(&self) -> Value {
        let VerifiedRecording {
            recording,
            report,
            repaired,
        } = self;
        json!({
            "recording": recording.id.0,
            "label": recording.label,
            "clean": report.damages.is_empty(),
            "messages": report.messages,
            "bytes": report.bytes,
            "damage": report.damages.iter().map(VerifiedRecording::damage_json).collect::<Vec<_>>(),
            "torn": report.torn.as_ref().map(VerifiedRecording::damage_json),
            "repaired": repaired.as_ref().map(|repaired| json!({
                "end": repaired.end.0,
                "cut": repaired.cut,
                "unreadable": repaired.unreadable,
                "kept": repaired.kept.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
            })),
        })
    }

    fn say(&self) {
        let VerifiedRecording {
            recording,
            report,
            repaired,
        } = self;
        let sound = if report.damages.is_empty() {
            "sound"
        } else {
            "DAMAGED"
        };
        say!(
            "recording {} ({:?}): {sound}, {}, {} in {}",
            recording.id,
            recording.label,
            counted(report.messages, "message"),
            counted(report.bytes, "byte"),
            counted(report.segments, "file")
        );
        for damage in &report.damages {
            say!("  {damage}");
        }
        if let Some(torn) = &report.torn {
            say!("  interrupted write, not damage: {torn}");
        }
        if let Some(repaired) = repaired {
            say!("  truncated at position {}", repaired.end);
            for path in &repaired.kept {
                say!("  the truncated bytes are kept in {}", path.display());
            }
        }
    }
}
