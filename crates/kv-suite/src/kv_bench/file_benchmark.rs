//! Experiment e8: the store's files alone: log, batches, and a checkpoint beside a plain sequential write.

use super::closed_loop::fill;
use super::experiments::{STATES, sized};
use super::load_target::LoadTarget;
use super::map_benchmark::nanoseconds;
use super::store_processes::StoreProcesses;
use super::{BenchSetup, LoadOptions, STATUS_TIMEOUT};
use crate::credentials::Credentials;
use crate::node_process::JOURNAL_SPARES;
use crate::tools::StoreSession;
use seatrial_blocks::{BlockKind, Frames, Walker, block, frame};
use seatrial_files::Files;
use seatrial_kv_protocol::AdminRequest;
use seatrial_machine::{
    DirectWrites, LogName, LogView, LogWriter, OpenLog, SEGMENT_LENGTH, Storage,
};
use seatrial_suite::{SuiteError, ToolExit};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A batch: ten commands of 32 bytes, as in SMaRtTrie's micro-benchmarks.
const COMMANDS: usize = 10;
const COMMAND: [u8; 32] = [7; 32];
/// Batches that are encoded, appended and read.
const BATCHES: usize = 400_000;
/// Batches that share a write, as those do that wait for the disk of a node.
const GATHERED: usize = 16;
/// Time for which synced appends are counted.
const SYNCED: Duration = Duration::from_secs(2);
/// Bytes of the plain file that is written over.
const WRITTEN_BEFORE: u64 = 64 << 20;
/// Bytes of the plain file that is written in sequence.
const PLAIN: usize = 1 << 30;
/// Name of a log of the experiment.
const NAME: LogName = LogName::new("bench");

/// Figures by name, with their unit.
type Rows = Vec<(String, f64, &'static str)>;

/// Runs the experiment.
pub(super) fn run(setup: &BenchSetup<'_>, load: &LoadOptions) -> Result<ToolExit, SuiteError> {
    let mut rows = Rows::new();
    let folder = setup.data.join("files");
    std::fs::create_dir_all(&folder)?;
    let done = logs(&folder, &mut rows).and_then(|()| checkpoint(setup, load, &folder, &mut rows));
    std::fs::remove_dir_all(&folder)?;
    done?;
    let mut text = String::from("what,value,unit\n");
    for (name, value, unit) in rows {
        (setup.tool.print)(format_args!("{name}: {value:.0} {unit}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name},{value:.1},{unit}");
    }
    std::fs::write(setup.out.join("e8.csv"), text)?;
    Ok(ToolExit::Done)
}

/// Encodes a batch as a block.
fn batch(sequence: u64, bytes: &mut Vec<u8>) {
    bytes.clear();
    let start = block::begin(bytes);
    for _ in 0..COMMANDS {
        frame::write(bytes, 0, &COMMAND);
    }
    block::finish_plain(bytes, start, BlockKind(33), 0, sequence);
}

fn open(folder: &Path, spares_max: usize) -> std::io::Result<LogWriter> {
    std::fs::create_dir_all(folder)?;
    let storage: Arc<dyn Storage> = Arc::new(Files);
    let direct = match spares_max {
        0 => DirectWrites::Never,
        _ => DirectWrites::WholeUnits, // as the store's
    };
    let log = OpenLog {
        name: NAME,
        end: 0,
        segment_length: SEGMENT_LENGTH,
        spares_max,
        direct,
    };
    LogWriter::open(&storage, folder, log)
}

fn logs(folder: &Path, rows: &mut Rows) -> Result<(), SuiteError> {
    let mut bytes = Vec::new();
    let per_second = |nanoseconds: f64| 1e9 / nanoseconds.max(1e-3);
    let encoded = nanoseconds(BATCHES, |number| {
        batch(number as u64, &mut bytes);
        black_box(&bytes);
    });
    let row = |name: &str, value, unit| (name.to_owned(), value, unit);
    rows.push(row(
        "batches encoded",
        per_second(encoded),
        "per CPU second",
    ));
    let mut log = open(folder, 0)?;
    let began = Instant::now();
    for number in 0..BATCHES {
        batch(number as u64, &mut bytes);
        log.append(&bytes)?;
    }
    let rate = BATCHES as f64 / began.elapsed().as_secs_f64();
    rows.push(row("batches appended without a sync", rate, "per second"));
    log.sync()?;
    let mut gathered_log = open(&folder.join("gathered"), 0)?;
    let mut gathered = Vec::new();
    let began = Instant::now();
    for number in 0..BATCHES {
        batch(number as u64, &mut bytes);
        gathered.extend_from_slice(&bytes);
        if number % GATHERED == GATHERED - 1 {
            gathered_log.append(&gathered)?;
            gathered.clear();
        }
    }
    let rate = BATCHES as f64 / began.elapsed().as_secs_f64();
    let name = format!("batches appended without a sync, {GATHERED} in a write");
    rows.push(row(&name, rate, "per second"));
    gathered_log.sync()?;
    let began = Instant::now();
    let log = LogView::open(&Files, folder, NAME)?;
    let mut walker = Walker::new(&log, 0);
    let mut commands = 0;
    while let Some(block) = walker.next_block()? {
        commands += Frames::new(block.payload).flatten().count();
    }
    assert_eq!(commands, BATCHES * COMMANDS, "the log has all commands");
    let rate = BATCHES as f64 / began.elapsed().as_secs_f64();
    rows.push(row("batches read and checked", rate, "per second"));
    synced(folder, rows)
}

/// Appends that are synced one by one, and writes of as many bytes over those of a plain file.
fn synced(folder: &Path, rows: &mut Rows) -> Result<(), SuiteError> {
    let mut bytes = Vec::new();
    let mut count = |name: &str, append: &mut dyn FnMut(&[u8]) -> std::io::Result<()>| {
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < SYNCED {
            batch(count, &mut bytes);
            append(&bytes)?;
            count += 1;
        }
        let rate = count as f64 / began.elapsed().as_secs_f64();
        let name = format!("batches appended and each synced, {name}");
        rows.push((name, rate, "per second"));
        std::io::Result::Ok(())
    };
    for (name, spares_max) in [("a growing log", 0), ("a log of the store", JOURNAL_SPARES)] {
        let mut log = open(&folder.join(name), spares_max)?;
        count(name, &mut |bytes| {
            log.append(bytes)?;
            log.sync()
        })?;
    }
    let path = folder.join("plain");
    let file = std::fs::File::create(&path)?;
    file.write_all_at(&vec![0x5a; WRITTEN_BEFORE as usize], 0)?;
    file.sync_all()?;
    let mut offset = 0;
    count("a plain file written over", &mut |bytes| {
        file.write_all_at(bytes, offset)?;
        offset = (offset + bytes.len() as u64) % (WRITTEN_BEFORE - bytes.len() as u64);
        file.sync_data()
    })?;
    std::fs::remove_file(&path)?;
    Ok(())
}

/// A checkpoint of a node that has nothing else to do, and a plain file of a gigabyte before and after it.
fn checkpoint(
    setup: &BenchSetup<'_>,
    load: &LoadOptions,
    folder: &Path,
    rows: &mut Rows,
) -> Result<(), SuiteError> {
    let load = sized(load, setup.tool, STATES[1].0, 0);
    let options = ["--checkpoint-share", "100", "--checkpoint-bytes"].map(ToOwned::to_owned);
    let mut options = options.to_vec();
    options.push(u64::MAX.to_string()); // only when it is asked for
    let data = setup.data.join("checkpoint");
    let processes = StoreProcesses::kv(&setup.program(&options, None), 1, &data)?;
    let target = LoadTarget::kv(processes.addresses(), Credentials::default(), 1);
    let runtime = crate::tools::runtime()?;
    runtime.block_on(fill(&target, &load))?;
    for round in 1..=3_u64 {
        let plain = plain_write(folder)?;
        let session = StoreSession {
            servers: processes.addresses(),
            credentials: Credentials::default(),
            timeout: STATUS_TIMEOUT,
        };
        let address = session.servers[0];
        // Something new for the next one.
        let one = LoadOptions {
            keys: 1,
            ..load.clone()
        };
        runtime.block_on(fill(&target, &one))?;
        let began = Instant::now();
        runtime.block_on(session.admin(address, AdminRequest::Checkpoint))?;
        let length = loop {
            let status = runtime.block_on(session.status_of(address))?;
            if status.checkpoints.made >= round {
                break status.checkpoints.length;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let rate = length as f64 / 1e6 / began.elapsed().as_secs_f64();
        rows.push((format!("plain sequential write {round}"), plain, "MB/s"));
        rows.push((format!("checkpoint {round}"), rate, "MB/s"));
    }
    Ok(())
}

/// Writes a file in pieces of a mebibyte and syncs it: MB/s.
fn plain_write(folder: &Path) -> std::io::Result<f64> {
    let path = folder.join("plain");
    let piece = vec![0x5a; 1 << 20];
    let began = Instant::now();
    let mut file = std::fs::File::create(&path)?;
    for _ in 0..PLAIN / piece.len() {
        file.write_all(&piece)?;
    }
    file.sync_data()?;
    let rate = PLAIN as f64 / 1e6 / began.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(rate)
}
