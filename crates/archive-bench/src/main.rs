//! Rates of recording and replay of the archive, beside plain files and Aeron Archive. It is no part of the product:
//! `cargo run --release -p seatrial-archive-bench -- --against aeron`.
//!
//! Everything is measured in turns within a round, so that what else runs on the machine hits all alike, and rounds are
//! repeated. Its downside: on a busy machine single iterations still differ by a factor, so use medians of many.

mod aeron;
mod ours;
mod plain;
mod result_table;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use result_table::Table;
use seatrial_machine::unknown_name;
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What can be typed.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "seatrial-archive-bench",
    about = "Rates of recording and replay, beside plain files and, if wanted, beside Aeron Archive, in the same minutes",
    after_help = "Aeron's own samples measure Aeron: EmbeddedRecordingThroughput and EmbeddedReplayThroughput of \
aeron-all 1.51.0, which Maven fetches into the cache folder once. Needs java, and mvn for the first time.\n\
Example: seatrial-archive-bench --against aeron --payload 32,1024 --out measures"
)]
struct ArchiveBenchArguments {
    /// Measure this system too, in turns with ours: aeron.
    #[arg(long, value_name = "NAME")]
    against: Option<String>,
    /// Bytes of a message, separated by commas.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [32, 128, 1024, 4096])]
    payload: Vec<usize>,
    /// A checksum for each message: none, crc32c, both (one after the other). Blocks of ours always have one.
    #[arg(long, value_name = "NAME", default_value = "both")]
    checksum: String,
    /// Messages an iteration [default: 640 MB of Aeron's frames].
    #[arg(long, value_name = "N")]
    messages: Option<u64>,
    /// Where the recordings go, a folder of their own in it [default: /dev/shm, else a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Rounds; in each everything is measured once, one after the other.
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: u32,
    /// Counted iterations a round, after one warm-up (Aeron: two).
    #[arg(long, value_name = "N", default_value_t = 3)]
    iterations: u32,
    /// Aeron's jar, instead of the one that Maven fetches.
    #[arg(long, value_name = "FILE")]
    aeron_jar: Option<PathBuf>,
    /// Write every iteration (raw.csv) and the table (README.md) into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Bytes that one iteration brings through Aeron's log, unless the number of messages is given.
const ITERATION_LENGTH: u64 = 640_000_000;
/// Messages have their number in their first bytes; a block of ours, and a term of Aeron's, holds some of the longest.
const PAYLOAD_LENGTHS: RangeInclusive<usize> = 8..=65_536;

/// One kind of message to measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MessageCase {
    /// Bytes of a message.
    payload: usize,
    /// Has each message a CRC-32C of its own?
    checksum: bool,
    /// Messages an iteration.
    messages: u64,
}

impl MessageCase {
    fn new(payload: usize, checksum: bool, messages: Option<u64>) -> Result<MessageCase> {
        ensure!(
            PAYLOAD_LENGTHS.contains(&payload),
            "a payload has {} to {} bytes, not {payload}",
            PAYLOAD_LENGTHS.start(),
            PAYLOAD_LENGTHS.end()
        );
        let messages = messages
            .unwrap_or(ITERATION_LENGTH / MessageCase::aeron_frame(payload))
            .max(1);
        Ok(MessageCase {
            payload,
            checksum,
            messages,
        })
    }

    /// Bytes of a message in Aeron's log: a header of 32 bytes, all a multiple of 32.
    fn aeron_frame(payload: usize) -> u64 {
        (payload as u64 + 32).next_multiple_of(32)
    }
}

impl fmt::Display for MessageCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checksum = if self.checksum {
            "CRC-32C"
        } else {
            "no checksum"
        };
        write!(f, "{} B, {checksum}", self.payload)
    }
}

/// Who was measured, doing what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// A publisher offers messages to ours one by one, in one burst; another thread records them.
    OursRecord,
    /// The same without a burst: each message may be fetched at once.
    OursSingle,
    /// Ours brings every message to a consumer.
    OursReplay,
    /// Ours checks every byte.
    OursVerify,
    /// Aeron Archive records.
    AeronRecord,
    /// Aeron Archive replays.
    AeronReplay,
    /// One thread writes as many bytes as our recording has, a block's length a call.
    PlainWrite,
    /// One thread reads our recording, a block's length a call.
    PlainRead,
}

impl Subject {
    /// Its name in tables and files.
    fn name(self) -> &'static str {
        match self {
            Subject::OursRecord => "our record",
            Subject::OursSingle => "our record without burst",
            Subject::OursReplay => "our replay",
            Subject::OursVerify => "our verify",
            Subject::AeronRecord => "Aeron's record",
            Subject::AeronReplay => "Aeron's replay",
            Subject::PlainWrite => "plain write",
            Subject::PlainRead => "plain read",
        }
    }
}

/// One iteration.
#[derive(Clone, Copy, Debug)]
struct ResultRow {
    /// Counted from 1.
    round: u32,
    case: MessageCase,
    subject: Subject,
    /// The first iterations of a process or file, which the table leaves out.
    warm_up: bool,
    /// Messages a second.
    rate: f64,
}

/// What all parts of a round need.
#[derive(Debug)]
struct Setting {
    /// For recordings; removed in the end.
    folder: TempDir,
    /// Counted iterations a round.
    iterations: u32,
}

impl Setting {
    fn new(arguments: &ArchiveBenchArguments) -> Result<Setting> {
        let memory = Path::new("/dev/shm");
        let above = match &arguments.folder {
            Some(folder) => folder.clone(),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        fs::create_dir_all(&above).with_context(|| above.display().to_string())?;
        let folder = tempfile::tempdir_in(&above).with_context(|| above.display().to_string())?;
        Ok(Setting {
            folder,
            iterations: arguments.iterations.max(1),
        })
    }
}

fn main() -> Result<()> {
    let arguments = &ArchiveBenchArguments::parse();
    let cases = cases(arguments)?;
    let setting = Setting::new(arguments)?;
    let jar = match arguments.against.as_deref() {
        None => None,
        Some("aeron") => Some(aeron::Jar::find(arguments.aeron_jar.as_deref())?),
        Some(other) => bail!("nothing is known about {other:?}; --against takes: aeron"),
    };
    if let Some(out) = &arguments.out {
        fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    }
    let mut table = Table::default();
    for round in 1..=arguments.runs.max(1) {
        for case in &cases {
            measure(round, *case, &setting, jar.as_ref(), &mut table)?;
        }
    }
    println!("\n{}", table.text());
    if let Some(out) = &arguments.out {
        table.write(out, &setting)?;
    }
    Ok(())
}

/// Every combination that was asked for.
fn cases(arguments: &ArchiveBenchArguments) -> Result<Vec<MessageCase>> {
    let checksums: &[bool] = match arguments.checksum.as_str() {
        "none" => &[false],
        "crc32c" => &[true],
        "both" => &[false, true],
        other => bail!(unknown_name("checksum", other, ["none", "crc32c", "both"])),
    };
    let mut cases = Vec::new();
    for payload in &arguments.payload {
        for checksum in checksums {
            cases.push(MessageCase::new(*payload, *checksum, arguments.messages)?);
        }
    }
    Ok(cases)
}

/// One case in one round.
fn measure(
    round: u32,
    case: MessageCase,
    setting: &Setting,
    jar: Option<&aeron::Jar>,
    table: &mut Table,
) -> Result<()> {
    let mut add = |subject: Subject, warm_ups: usize, rates: Vec<f64>| {
        let shown: Vec<String> = rates
            .iter()
            .map(|rate| result_table::millions(*rate))
            .collect();
        println!(
            "round {round}: {case}: {}: {} million/s",
            subject.name(),
            shown.join(" ")
        );
        for (number, rate) in rates.into_iter().enumerate() {
            let warm_up = number < warm_ups;
            table.rows.push(ResultRow {
                round,
                case,
                subject,
                warm_up,
                rate,
            });
        }
    };
    if let Some(jar) = jar {
        let rates = jar.run(aeron::AeronSample::Record, case, setting)?;
        add(Subject::AeronRecord, aeron::WARM_UPS, rates);
    }
    let mut recorded = None;
    for (burst, subject) in [(false, Subject::OursSingle), (true, Subject::OursRecord)] {
        let mut rates = Vec::new();
        for _ in 0..=setting.iterations {
            drop(recorded.take());
            let (made, rate) = ours::BenchRecording::new(case, burst, setting)?;
            rates.push(rate);
            recorded = Some(made);
        }
        add(subject, 1, rates);
    }
    let recorded = recorded.context("no iteration")?;
    let repeat = |measured: &dyn Fn() -> Result<f64>| -> Result<Vec<f64>> {
        (0..=setting.iterations).map(|_| measured()).collect()
    };
    add(
        Subject::PlainWrite,
        1,
        plain::run(case, recorded.length()?, setting)?,
    );
    if let Some(jar) = jar {
        let rates = jar.run(aeron::AeronSample::Replay, case, setting)?;
        add(Subject::AeronReplay, aeron::WARM_UPS, rates);
    }
    add(Subject::OursReplay, 1, repeat(&|| recorded.replay())?);
    add(Subject::OursVerify, 1, repeat(&|| recorded.verify())?);
    add(Subject::PlainRead, 1, repeat(&|| recorded.read())?);
    Ok(())
}
