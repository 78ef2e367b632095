//! Our archive, measured as Aeron's samples measure theirs: from the first message offered to the last one written; from
//! opening the replay to the last message seen.

use super::{MessageCase, Setting};
use anyhow::{Context as _, Result, ensure};
use seatrial_archive::Archive;
use seatrial_archive::publication::{Recorder, RecorderOptions};
use seatrial_archive::{BATCH_LENGTH, RecordingId, RecordingOptions, VerifyOptions, verify};
use seatrial_archive::{Cursor, CursorBound, Origin};
use seatrial_blocks::file::Files;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The recording that the last iteration made; removed when dropped.
#[derive(Debug)]
pub(crate) struct BenchRecording {
    pub(crate) folder: PathBuf,
    pub(crate) id: RecordingId,
    case: MessageCase,
}

impl Drop for BenchRecording {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos() as u64
}

impl BenchRecording {
    /// Records all messages of the case: this thread offers them one by one, in one burst (a block changes hands when it is
    /// full) or without (each message may be fetched at once); another one writes them. Answers with the rate too.
    pub(crate) fn new(
        case: MessageCase,
        burst: bool,
        setting: &Setting,
    ) -> Result<(BenchRecording, f64)> {
        let folder = setting.folder.path().join("ours");
        let (mut archive, _) = Archive::open(Arc::new(Files), &folder, now())?;
        let writer = archive.start(&RecordingOptions::default(), now())?;
        let id = writer.recording();
        let recorded = BenchRecording { folder, id, case };
        let recorder = Recorder::new(RecorderOptions::default());
        let handle = recorder.handle();
        let thread = std::thread::spawn(move || recorder.run(now));
        let intake = handle.record(writer)?;
        let mut publication = intake.publication()?.checksummed(case.checksum);
        let mut message = vec![0x5a; case.payload];
        let began = Instant::now();
        if burst {
            let mut burst = publication.burst();
            for number in 0..case.messages {
                message[..8].copy_from_slice(&number.to_le_bytes());
                burst.offer_waiting(black_box(&message))?;
            }
        } else {
            for number in 0..case.messages {
                message[..8].copy_from_slice(&number.to_le_bytes());
                publication.offer_waiting(black_box(&message))?;
            }
        }
        publication.flush()?;
        let rate = case.messages as f64 / began.elapsed().as_secs_f64();
        drop(publication);
        intake.stop()?.sink.stop(now())?;
        handle.end();
        ensure!(thread.join().is_ok(), "the recorder's thread failed");
        Ok((recorded, rate))
    }

    /// Brings every message to a consumer that looks at its number, in order.
    pub(crate) fn replay(&self) -> Result<f64> {
        let began = Instant::now();
        let (storage, origin) = (Arc::new(Files), Origin::Start);
        let mut cursor = Cursor::open(storage, &self.folder, self.id, origin, CursorBound::End)?;
        let mut expected = 0;
        while let Some(block) = cursor.next_block()? {
            for message in block.messages() {
                let number = message
                    .payload
                    .first_chunk()
                    .map(|bytes| u64::from_le_bytes(*bytes));
                ensure!(
                    number == Some(expected),
                    "message {expected} says {number:?}"
                );
                expected += 1;
            }
        }
        let rate = self.case.messages as f64 / began.elapsed().as_secs_f64();
        ensure!(
            expected == self.case.messages,
            "{expected} messages came back"
        );
        Ok(rate)
    }

    /// Checks every byte on all cores.
    pub(crate) fn verify(&self) -> Result<f64> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let options = VerifyOptions {
            threads: cores,
            checksums: true,
        };
        let began = Instant::now();
        let reports = verify(&Files, &self.folder, &[self.id], options, &|_| {})?;
        let rate = self.case.messages as f64 / began.elapsed().as_secs_f64();
        ensure!(
            reports
                .iter()
                .all(|report| report.damages.is_empty() && report.messages == self.case.messages),
            "damaged: {reports:?}"
        );
        Ok(rate)
    }

    /// Reads the files of the recording, a block's length a call.
    pub(crate) fn read(&self) -> Result<f64> {
        let mut buffer = vec![0; BATCH_LENGTH];
        let began = Instant::now();
        for path in self.files()? {
            let mut file = File::open(&path).with_context(|| path.display().to_string())?;
            while file.read(&mut buffer)? > 0 {
                black_box(&buffer);
            }
        }
        Ok(self.case.messages as f64 / began.elapsed().as_secs_f64())
    }

    /// Bytes of the files.
    pub(crate) fn length(&self) -> Result<u64> {
        self.files()?
            .iter()
            .map(|path| Ok(path.metadata()?.len()))
            .sum()
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.folder)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let is_segment = |path: &Result<PathBuf>| {
            path.as_ref().map_or(true, |path| {
                path.extension().is_some_and(|end| end == "segment")
            })
        };
        paths.filter(is_segment).collect()
    }
}
