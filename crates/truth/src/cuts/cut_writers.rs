//! The writers that lose their power: how each is begun, and what has to be there afterwards.

use super::CutOutcome;
use crate::limited_program::{End, Program, ended, text, wait};
use anyhow::{Context as _, Result, anyhow, ensure};
use seatrial_history::TestFile;
use seatrial_host::{BlockingLink, ConnectOptions, LinkOptions, Protocol};
use seatrial_kv_protocol::message::{self, MESSAGE_LENGTH_MAX};
use seatrial_kv_protocol::{
    Answer, Outcome as Reply, Transaction, TransactionClient, TransactionClientOptions,
};
use seatrial_machine::{ClientDriver as _, NodeId, Rng};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program that meets failing writes ends within this, or is killed.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest that a check may take.
const CHECK_MAX: Duration = Duration::from_mins(2);
/// Elements of one list of the store.
const LIST_LENGTH: u64 = 100;
/// A running test syncs its history each 0.8 s; this much more is allowed for the machine's other work.
const HISTORY_LAG_MAX: Duration = Duration::from_secs(2);

/// One kind of writer.
pub(super) struct CutWriter {
    pub(super) name: &'static str,
    /// When the power is cut, in milliseconds after its start.
    pub(super) milliseconds: Range<u64>,
    pub(super) begin: fn(&Program, &Path, &Path, &mut Rng) -> Result<RunningWriter>,
    pub(super) check: fn(&Program, &Path, &Path, Acknowledged) -> Result<CutOutcome>,
}

/// All of them.
pub(super) const WRITERS: [CutWriter; 5] = [
    CutWriter {
        name: "archive record, batch",
        milliseconds: 30..700,
        begin: |program, disk, scratch, rng| record(program, disk, scratch, rng, "batch"),
        check: check_archive,
    },
    CutWriter {
        name: "archive record, group",
        milliseconds: 30..700,
        begin: |program, disk, scratch, rng| record(program, disk, scratch, rng, "group:20"),
        check: check_archive,
    },
    CutWriter {
        name: "archive record, none",
        milliseconds: 30..700,
        begin: |program, disk, scratch, rng| record(program, disk, scratch, rng, "none"),
        check: check_archive,
    },
    CutWriter {
        name: "store",
        milliseconds: 100..800,
        begin: store,
        check: check_store,
    },
    CutWriter {
        name: "test's history",
        milliseconds: 1_200..3_000,
        begin: test,
        check: check_history,
    },
];

/// What was acknowledged before the cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Acknowledged {
    /// Number of durable messages or appends.
    Count(u64),
    /// How long the test had run.
    Ran(Duration),
}

impl Acknowledged {
    /// The number of durable messages or appends.
    fn count(self) -> Result<u64> {
        match self {
            Acknowledged::Count(acknowledged) => Ok(acknowledged),
            Acknowledged::Ran(_) => Err(anyhow!("the evidence of another writer")),
        }
    }
}

/// A writer that runs.
pub(super) struct RunningWriter {
    children: Vec<Child>,
    source: AcknowledgementSource,
}

/// Where its acknowledgements are recorded.
enum AcknowledgementSource {
    /// Lines of a file.
    Lines(std::path::PathBuf),
    /// A client counts.
    Client(Appending),
    /// It has a history since this moment.
    Since(Instant),
}

/// A client that appends.
struct Appending {
    is_over: Arc<AtomicBool>,
    /// Appends that were answered.
    count: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl RunningWriter {
    /// What has been acknowledged so far.
    pub(super) fn acknowledged(&self) -> Result<Acknowledged> {
        Ok(match &self.source {
            AcknowledgementSource::Lines(path) => Acknowledged::Count(durable(path)?),
            AcknowledgementSource::Client(client) => {
                Acknowledged::Count(client.count.load(Ordering::Acquire))
            }
            AcknowledgementSource::Since(start) => Acknowledged::Ran(start.elapsed()),
        })
    }

    /// Ends what still runs.
    pub(super) fn end(mut self) -> Result<()> {
        if let AcknowledgementSource::Client(client) = &self.source {
            client.is_over.store(true, Ordering::Relaxed);
        }
        let began = Instant::now();
        for child in &mut self.children {
            wait(child, PATIENCE.saturating_sub(began.elapsed()))?;
        }
        match self.source {
            AcknowledgementSource::Client(client) => client
                .thread
                .join()
                .map_err(|_| anyhow!("the client panicked"))?,
            AcknowledgementSource::Lines(_) | AcknowledgementSource::Since(_) => Ok(()),
        }
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Records numbered lines and writes acknowledgments elsewhere.
fn record(
    program: &Program,
    disk: &Path,
    scratch: &Path,
    rng: &mut Rng,
    durability: &str,
) -> Result<RunningWriter> {
    let said = scratch.join("acknowledged");
    let mut numbers = Command::new("seq");
    let mut numbers = numbers.arg("1000000000").stdout(Stdio::piped()).spawn()?;
    let input = numbers.stdout.take().context("a pipe")?;
    let segment = [65_536, 1 << 20, 16 << 20][rng.index(3)].to_string();
    let archive = name(&disk.join("a"));
    let words = [
        "archive",
        "record",
        &archive,
        "--durability",
        durability,
        "--segment-length",
        &segment,
        "--acknowledge",
    ];
    let mut command = program.command(scratch, &words);
    command
        .stdin(input)
        .stdout(File::create(&said)?)
        .stderr(Stdio::null());
    let recorder = command.spawn()?;
    Ok(RunningWriter {
        // Without its reader the source of numbers ends.
        children: vec![recorder, numbers],
        source: AcknowledgementSource::Lines(said),
    })
}

/// The number after `durable` in the last whole line.
fn durable(path: &Path) -> Result<u64> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4_096)))?;
    let mut end = String::new();
    file.read_to_string(&mut end)?;
    let whole = end.rfind('\n').map_or("", |at| &end[..at]);
    let Some(line) = whole.lines().next_back() else {
        return Ok(0);
    };
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word != "durable");
    let number = words
        .nth(1)
        .with_context(|| format!("no acknowledgment: {line}"))?;
    Ok(number.parse()?)
}

/// Everything acknowledged is replayed, also after a repair of damage that was reported; then the recording can be extended.
fn check_archive(
    program: &Program,
    disk: &Path,
    scratch: &Path,
    acknowledged: Acknowledged,
) -> Result<CutOutcome> {
    let acknowledged = acknowledged.count()?;
    let mut outcome = CutOutcome {
        acknowledged,
        ..CutOutcome::default()
    };
    let archive = name(&disk.join("a"));
    let verified = program.run(scratch, &["archive", "verify", &archive], CHECK_MAX)?;
    let replayed = replay(program, scratch, &archive)?;
    outcome.found = replayed.0;
    if acknowledged == 0 && replayed == (0, End::Exit(254)) && verified.end != End::Exit(255) {
        // The cut came before the first event was durable: there is no archive, or no recording in it.
        return Ok(outcome);
    }
    let is_damaged = verified.end == End::Exit(1);
    let said = verified.stdout + &verified.stderr;
    outcome.failure = match (&verified.end, &replayed) {
        (End::Exit(0 | 1), (found, _)) if *found < acknowledged => Some(format!(
            "{found} of {acknowledged} durable messages are replayed: {said}"
        )),
        (End::Exit(0), (_, End::Exit(0))) | (End::Exit(1), (_, End::Exit(0 | 254))) => None,
        (verified, (_, replayed)) => {
            Some(format!("verify {verified:?}, replay {replayed:?}: {said}"))
        }
    };
    if outcome.failure.is_some() {
        return Ok(outcome);
    }
    if is_damaged {
        program.run(
            scratch,
            &["archive", "verify", &archive, "--repair"],
            CHECK_MAX,
        )?;
        outcome.is_repaired = true;
    }
    let more = scratch.join("more");
    std::fs::write(&more, "more\n")?;
    let words = [
        "archive",
        "record",
        &archive,
        "--extend",
        "1",
        "--file",
        &name(&more),
    ];
    let extended = program.run(scratch, &words, CHECK_MAX)?;
    let clean = program.run(scratch, &["archive", "verify", &archive], CHECK_MAX)?;
    let (left, replayed) = replay(program, scratch, &archive)?;
    if (extended.end, clean.end, replayed) != (End::Exit(0), End::Exit(0), End::Exit(0))
        || left < acknowledged
    {
        let said = extended.stderr + &clean.stdout;
        outcome.failure = Some(format!(
            "extended afterwards, {left} messages of {acknowledged}: {said}"
        ));
    }
    Ok(outcome)
}

/// How many messages from 1 on are replayed, each its own number, and how the replay ended. One more line at the end is what
/// the recording was extended by.
fn replay(program: &Program, scratch: &Path, archive: &str) -> Result<(u64, End)> {
    let ran = program.run(scratch, &["archive", "replay", archive, "1"], CHECK_MAX)?;
    let mut count = 0;
    for line in BufReader::new(File::open(scratch.join("stdout"))?).lines() {
        let line = line?;
        if line == "more" {
            break;
        }
        count += 1;
        ensure!(line == count.to_string(), "message {count} is {line}");
    }
    Ok((count, ran.end))
}

/// A node, when it listens.
fn node(program: &Program, disk: &Path, scratch: &Path) -> Result<(Child, SocketAddr)> {
    let (data, said) = (name(&disk.join("d")), scratch.join("node"));
    let words = ["node", "kv", "--data", &data, "--listen", "127.0.0.1:0"];
    let mut command = program.command(scratch, &words);
    command.stdout(Stdio::null()).stderr(File::create(&said)?);
    let mut child = command.spawn()?;
    let began = Instant::now();
    while began.elapsed() < CHECK_MAX {
        let text = text(&said)?;
        let address = text
            .lines()
            .find_map(|line| line.strip_prefix("listening on "));
        if let Some(address) = address {
            return Ok((child, address.trim().parse()?));
        }
        if let Some(end) = ended(&mut child)? {
            return Err(anyhow!("the node ended with {end:?}: {text}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(anyhow!("the node does not listen"))
}

/// A node, and a client that appends to its lists one number after the other.
fn store(program: &Program, disk: &Path, scratch: &Path, rng: &mut Rng) -> Result<RunningWriter> {
    let (child, address) = node(program, disk, scratch)?;
    let (is_over, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (seed, over, counted) = (rng.word(), Arc::clone(&is_over), Arc::clone(&count));
    let thread = std::thread::spawn(move || {
        let mut link = connect(address, seed, Duration::from_millis(500))?;
        for next in 1.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let mut transaction = Transaction::new();
            transaction.append(&key(next), next.to_string().as_bytes())?;
            link.submit(transaction);
            // Without an answer it may have been executed, and nothing more can be appended in order.
            let Some((_, Reply::Ok(_))) = link.next_reply() else {
                break;
            };
            counted.store(next, Ordering::Release);
        }
        Ok(())
    });
    Ok(RunningWriter {
        children: vec![child],
        source: AcknowledgementSource::Client(Appending {
            is_over,
            count,
            thread,
        }),
    })
}

fn key(number: u64) -> Vec<u8> {
    format!("list {}", (number - 1) / LIST_LENGTH).into_bytes()
}

fn connect(
    address: SocketAddr,
    seed: u64,
    timeout: Duration,
) -> Result<BlockingLink<TransactionClient>> {
    let server = NodeId::server(0);
    let options = TransactionClientOptions {
        request_timeout: timeout,
        ..TransactionClientOptions::new(server, seed)
    };
    let protocol = Protocol {
        name: message::PROTOCOL,
        version: message::VERSION,
        refuse_old: message::refuse_version,
    };
    let link = LinkOptions {
        server,
        connect: ConnectOptions::new(protocol, MESSAGE_LENGTH_MAX),
        reconnect_interval: None,
    };
    Ok(BlockingLink::connect(
        address,
        TransactionClient::new(options),
        link,
    )?)
}

/// Everything acknowledged is in its list, in order.
fn check_store(
    program: &Program,
    disk: &Path,
    scratch: &Path,
    acknowledged: Acknowledged,
) -> Result<CutOutcome> {
    let acknowledged = acknowledged.count()?;
    let mut outcome = CutOutcome {
        acknowledged,
        ..CutOutcome::default()
    };
    let (mut child, address) = match node(program, disk, scratch) {
        Ok(node) => node,
        Err(error) => {
            outcome.failure = Some(format!("after the cut: {error:#}"));
            return Ok(outcome);
        }
    };
    let mut link = connect(address, acknowledged ^ 0x5ea, Duration::from_secs(20))?;
    let mut next = 1;
    loop {
        let mut transaction = Transaction::new();
        transaction.read(&key(next))?;
        link.submit(transaction);
        let Some((_, Reply::Ok(answers))) = link.next_reply() else {
            return Err(anyhow!("the node does not answer"));
        };
        let Some(Answer::List(list)) = answers.iter().next() else {
            break;
        };
        let first = next;
        for element in &list {
            if element != next.to_string().as_bytes() {
                let element = String::from_utf8_lossy(element);
                outcome.failure = Some(format!("element {next} is {element}"));
            }
            next += 1;
        }
        if next < first + LIST_LENGTH {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    outcome.found = next - 1;
    if outcome.found < acknowledged {
        let found = outcome.found;
        outcome.failure = Some(format!(
            "{found} appends are there, {acknowledged} were acknowledged"
        ));
    }
    Ok(outcome)
}

/// A test of a store, whose history is on the disk.
fn test(program: &Program, disk: &Path, scratch: &Path, rng: &mut Rng) -> Result<RunningWriter> {
    let (run, seed) = (name(&disk.join("run")), format!("{:x}", rng.word()));
    let words = [
        "test", "kv", "--quiet", "--time", "60", "--rate", "1000", "--faults", "none", "--seed",
        &seed, "--out", &run,
    ];
    let mut command = program.command(scratch, &words);
    let said = scratch.join("test");
    command.stdout(Stdio::null()).stderr(File::create(&said)?);
    let child = command.spawn()?;
    let history = disk.join("run/history.sea");
    let began = Instant::now();
    while !history.exists() {
        ensure!(
            began.elapsed() < CHECK_MAX,
            "the test does not begin: {}",
            text(&said)?
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(RunningWriter {
        children: vec![child],
        source: AcknowledgementSource::Since(Instant::now()),
    })
}

/// The history is there up to the last second, and nothing accuses the store of what the cut took.
fn check_history(
    program: &Program,
    disk: &Path,
    scratch: &Path,
    acknowledged: Acknowledged,
) -> Result<CutOutcome> {
    let Acknowledged::Ran(ran) = acknowledged else {
        return Err(anyhow!("the evidence of another writer"));
    };
    let mut outcome = CutOutcome::default();
    let history = disk.join("run/history.sea");
    let checked = program.run(scratch, &["check", &name(&history)], CHECK_MAX)?;
    let said = checked.stdout + &checked.stderr;
    if !matches!(checked.end, End::Exit(0 | 2)) {
        outcome.failure = Some(format!("check: {:?}: {said}", checked.end));
        return Ok(outcome);
    }
    let file = TestFile::open(&history)?;
    if file.is_complete() || !said.contains("not come to its end") {
        outcome.failure = Some(format!(
            "the history does not say that it is cut short: {said}"
        ));
    }
    let mut last = 0;
    for chunk in file.chunks() {
        let chunk = chunk?;
        outcome.found += chunk.len() as u64;
        last = chunk.ops().map(|op| op.time).max().unwrap_or(0).max(last);
    }
    outcome.acknowledged = outcome.found;
    let lag = ran.saturating_sub(Duration::from_nanos(last.unsigned_abs()));
    if lag > HISTORY_LAG_MAX {
        outcome.failure = Some(format!("the last {lag:?} of {ran:?} are lost: {said}"));
    }
    Ok(outcome)
}
