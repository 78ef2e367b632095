//! `seatrial generate`: a simulated database writes a history whose truth is known.

use super::export::is_broken_pipe;
use crate::args::GenerateArguments;
use crate::place::Place;
use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use seatrial_database::{Anomaly, Database, DatabaseOptions, DatabaseWorkload, StoreLevel};
use seatrial_generator::KeyDistribution;
use seatrial_history::{Codec, HistoryWriter, Op, WriterOptions};
use seatrial_interchange::export;
use seatrial_interchange::export::registers::{RegisterLayout, RegisterWriter};
use seatrial_machine::{counted, unknown_name};
use seatrial_terminal::{Exit, complain, say};
use serde_json::{Map, Value as Json, json};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::Builder;
use std::time::Instant;

/// Operations that go from the database to the writer at once.
const BATCH_LENGTH: usize = 1_024;
/// Batches under way at most.
const BATCHES_MAX: usize = 8;

/// Carries the verb out.
pub(crate) fn run(arguments: &GenerateArguments) -> Result<Exit> {
    let options = options(arguments)?;
    let attributes = attributes(&options);
    rehearse(&options)?;
    let sink = OutputSink::create(arguments, &attributes)?;
    let began = Instant::now();
    let bar = bar(arguments, options.operations);
    let written = write(Database::new(&options)?, sink, &bar);
    bar.finish_and_clear();
    // Standard output may be the history's.
    let is_standard = arguments.out == Path::new("-");
    if is_standard && matches!(&written, Err(error) if is_broken_pipe(error)) {
        return Ok(Exit::Valid);
    }
    let (database, bytes) =
        written.with_context(|| format!("{} was not completed", arguments.out.display()))?;
    let seconds = began.elapsed().as_secs_f64();
    let anomalies = database.anomalies().into_iter();
    let written = Written {
        counts: database.counts(),
        anomalies: anomalies.map(|(one, count)| (one.name(), count)).collect(),
        bytes,
        seconds,
        options: &options,
        path: &arguments.out,
    };
    match (arguments.output.json, is_standard) {
        (true, false) => say!("{:#}", written.json()),
        (true, true) => complain!("{:#}", written.json()),
        (false, _) if arguments.output.quiet => {}
        (false, false) => say!("{}", written.text()),
        (false, true) => complain!("{}", written.text()),
    }
    Ok(Exit::Valid)
}

/// What a person sees meanwhile.
fn bar(arguments: &GenerateArguments, operations: u64) -> ProgressBar {
    if arguments.output.quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(operations);
    let template = " {bar:24.cyan/blue} {human_pos} of {human_len} events, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━━─"));
    }
    bar
}

/// Makes sure that what the file is to say of itself is true: that every anomaly comes about.
fn rehearse(options: &DatabaseOptions) -> Result<()> {
    let mut database = Database::new(options)?;
    let missing = |database: &Database| {
        let mut anomalies = database.anomalies().into_iter();
        anomalies.find(|(_, count)| *count == 0)
    };
    while let Some((anomaly, _)) = missing(&database) {
        if database.by_ref().take(BATCH_LENGTH).count() == 0 {
            bail!(
                "{} at an anomaly rate of {} and no {}: ask for more of either",
                counted(options.operations, "event"),
                options.anomaly_rate,
                anomaly.name()
            );
        }
    }
    Ok(())
}

/// What the arguments ask for.
fn options(arguments: &GenerateArguments) -> Result<DatabaseOptions> {
    let workload = DatabaseWorkload::by_name(&arguments.workload).with_context(|| {
        let known = DatabaseWorkload::ALL.map(DatabaseWorkload::name);
        unknown_name("workload", &arguments.workload, known)
    })?;
    let mut options = DatabaseOptions::new(workload, arguments.events);
    options.seed = arguments.seed;
    if let Some(name) = &arguments.isolation {
        let isolation = StoreLevel::by_name(name).with_context(|| {
            let known = workload.levels().iter().map(|level| level.name());
            unknown_name("isolation level", name, known)
        })?;
        options.isolation = Some(isolation);
    }
    for name in &arguments.anomaly {
        let anomaly = Anomaly::by_name(name).with_context(|| {
            let known = Anomaly::all().filter(|one| one.is_seen_in(workload));
            unknown_name("anomaly", name, known.map(Anomaly::name))
        })?;
        if !options.anomalies.contains(&anomaly) {
            options.anomalies.push(anomaly);
        }
    }
    if let Some(name) = &arguments.distribution {
        options.distribution = KeyDistribution::by_name(name).with_context(|| {
            unknown_name(
                "distribution",
                name,
                KeyDistribution::ALL.map(KeyDistribution::name),
            )
        })?;
    }
    if let Some(length) = &arguments.txn_length {
        options.transaction_length = length.clone();
    }
    if let Some(writes) = &arguments.writes_per_key {
        options.writes_per_key = writes.clone();
    }
    options.anomaly_rate = arguments.anomaly_rate;
    options.anomaly_at = arguments.anomaly_at;
    options.even_lengths = arguments.even_lengths;
    options.reads = arguments.reads;
    options.read_before_write = arguments.read_before_write;
    options.no_key_twice = arguments.no_key_twice;
    options.timestamps = arguments.timestamps || OutputForm::of(arguments)?.needs_timestamps();
    options.concurrency = arguments.concurrency;
    options.keys = arguments.keys;
    options.fail = arguments.fail;
    options.info = arguments.info;
    ensure!(
        options.operations > 0,
        "--events 0: a history without events"
    );
    options.check()?;
    Ok(options)
}

/// Attributes of the history, with the verdict that it must have.
fn truth(options: &DatabaseOptions) -> Json {
    let anomalies = options.anomalies.iter().map(|anomaly| anomaly.name());
    json!({
        "model": options.store().name(),
        "valid": options.is_valid(),
        "anomalies": anomalies.collect::<Vec<_>>(),
    })
}

/// What the file says about itself. Nothing in it depends on when or where it was written.
fn attributes(options: &DatabaseOptions) -> Json {
    let range = |range: &RangeInclusive<u32>| json!([range.start(), range.end()]);
    let mut attributes = json!({
        "name": format!("generated {}", options.workload.name()),
        "suite": "generate",
        "simulated": true,
        "workload": options.workload.name(),
        "seed": format!("{:x}", options.seed),
        "isolation": options.store().name(),
        "anomaly_rate": options.anomaly_rate,
        "anomaly_at": options.anomaly_at,
        "events": options.operations,
        "concurrency": options.concurrency,
        "keys": options.keys,
        "distribution": options.distribution.to_string(),
        "transaction_length": range(&options.transaction_length),
        "even_lengths": options.even_lengths,
        "reads": options.reads,
        "read_before_write": options.read_before_write,
        "no_key_twice": options.no_key_twice,
        "timestamps": options.timestamps,
        "writes_per_key": range(&options.writes_per_key),
        "fail": options.fail,
        "info": options.info,
        "truth": truth(options),
        "version": env!("CARGO_PKG_VERSION"),
    });
    // The checkers of some workloads need a model.
    if let Some(model) = options.workload.model() {
        attributes["options"] = json!({"model": model});
    }
    attributes
}

/// Lets the database run on a thread of its own and writes what it does; the database as it is then, and the bytes
/// written.
fn write(database: Database, begun: Begun, bar: &ProgressBar) -> Result<(Database, u64)> {
    let (mut sink, place) = begun;
    let (full, batches) = sync_channel(BATCHES_MAX);
    // Empty ones; bounded by the number of full ones.
    let (back, empty) = channel();
    std::thread::scope(|scope| {
        let simulation = Builder::new()
            .spawn_scoped(scope, move || simulate(database, &full, &empty))
            .context("no thread for the simulated database")?;
        for batch in batches {
            for op in &batch {
                sink.push(op)?;
            }
            bar.inc(batch.len() as u64);
            // Operations are freed where they were made: that is cheaper than here.
            let _ = back.send(batch);
        }
        let Ok(database) = simulation.join() else {
            bail!("the simulated database came to a bad end");
        };
        Ok((database, sink.finish(place)?))
    })
}

/// Runs the database until its history ends or `take` breaks.
fn simulate(
    mut database: Database,
    full: &SyncSender<Vec<Op>>,
    empty: &Receiver<Vec<Op>>,
) -> Database {
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        batch.clear();
        batch.extend(database.by_ref().take(BATCH_LENGTH));
        if batch.is_empty() || full.send(batch).is_err() {
            return database;
        }
    }
}

/// How a history is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputForm {
    Sea,
    Edn,
    Lines,
    Registers(RegisterLayout),
}

impl OutputForm {
    /// Their names.
    const NAMES: &str = "sea, edn, jsonl, plume, dbcop, timekiller";

    fn by_name(name: &str) -> Option<OutputForm> {
        Some(match name {
            "sea" => OutputForm::Sea,
            "edn" => OutputForm::Edn,
            "jsonl" | "ndjson" => OutputForm::Lines,
            "plume" | "polysi" => OutputForm::Registers(RegisterLayout::Plume),
            "dbcop" | "bincode" => OutputForm::Registers(RegisterLayout::Dbcop),
            "timekiller" => OutputForm::Registers(RegisterLayout::TimeKiller),
            _ => return None,
        })
    }

    /// The one that is asked for, or that the name of the file implies.
    fn of(arguments: &GenerateArguments) -> Result<OutputForm> {
        let known = OutputForm::NAMES;
        if let Some(name) = &arguments.to {
            let form = OutputForm::by_name(name);
            return form.with_context(|| unknown_name("format", name, known.split(", ")));
        }
        let path = &arguments.out;
        if path == Path::new("-") {
            return Ok(OutputForm::Edn);
        }
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.and_then(OutputForm::by_name).with_context(|| {
            let path = path.display();
            format!("{path}: its ending does not say how to write it; --to takes {known}")
        })
    }

    /// Does it have the database's timestamps?
    fn needs_timestamps(self) -> bool {
        self == OutputForm::Registers(RegisterLayout::TimeKiller)
    }
}

/// Where the operations go.
enum OutputSink {
    Sea(Box<HistoryWriter>),
    Edn(Counted),
    Lines(Counted),
    Registers(Box<RegisterWriter<Counted>>),
}

/// The sink, and the file that gets its name when it is whole; `None` for standard output.
type Begun = (OutputSink, Option<Place>);

/// A file or standard output, and how much went there.
struct Counted {
    out: BufWriter<Box<dyn Write>>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl OutputSink {
    /// Begins the file, which must not exist.
    fn create(arguments: &GenerateArguments, attributes: &Json) -> Result<Begun> {
        let path = &arguments.out;
        let is_standard = path == Path::new("-");
        let form = OutputForm::of(arguments)?;
        let place = (!is_standard).then(|| {
            let path = path.display();
            ensure!(
                std::fs::symlink_metadata(&arguments.out).is_err(),
                "{path}: exists already, and is left as it is"
            );
            Place::new(&arguments.out, false)
        });
        let place = place.transpose()?;
        if form == OutputForm::Sea {
            let Some(place) = place else {
                bail!("a test file is no text: name a file for it");
            };
            let options = WriterOptions {
                codec: codec(&arguments.codec)?,
                ..WriterOptions::default()
            };
            let writer = HistoryWriter::create_with(place.partial(), attributes, options)?;
            return Ok((OutputSink::Sea(Box::new(writer)), Some(place)));
        }
        let out: Box<dyn Write> = match &place {
            None => Box::new(io::stdout()),
            Some(place) => {
                let file = File::create_new(place.partial());
                Box::new(file.with_context(|| format!("{} cannot be made", path.display()))?)
            }
        };
        let out = Counted {
            out: BufWriter::with_capacity(1 << 16, out),
            bytes: 0,
        };
        let sink = match form {
            OutputForm::Sea | OutputForm::Edn => OutputSink::Edn(out),
            OutputForm::Lines => OutputSink::Lines(out),
            OutputForm::Registers(layout) => {
                OutputSink::Registers(Box::new(RegisterWriter::new(out, layout)))
            }
        };
        Ok((sink, place))
    }

    fn push(&mut self, op: &Op) -> Result<()> {
        match self {
            OutputSink::Sea(writer) => writer.push(op)?,
            OutputSink::Edn(out) => writeln!(out, "{op}")?,
            OutputSink::Lines(out) => writeln!(out, "{}", export::json(op))?,
            OutputSink::Registers(writer) => writer.push(op)?,
        }
        Ok(())
    }

    /// Completes the file and gives it its name; its bytes.
    fn finish(self, place: Option<Place>) -> Result<u64> {
        let bytes = match (self, &place) {
            (OutputSink::Sea(writer), place) => {
                writer.seal()?;
                let path = place.as_ref().map(Place::partial);
                path.map_or(Ok(0), |path| std::fs::metadata(path).map(|it| it.len()))?
            }
            (OutputSink::Edn(mut out) | OutputSink::Lines(mut out), _) => {
                out.flush()?;
                out.bytes
            }
            (OutputSink::Registers(writer), _) => writer.finish()?.bytes,
        };
        place.map_or(Ok(()), Place::keep)?;
        Ok(bytes)
    }
}

/// How chunks are compressed.
fn codec(name: &str) -> Result<Codec> {
    match name {
        "lz4" => Ok(Codec::Lz4),
        "zstd" => Ok(Codec::Zstd),
        "none" => Ok(Codec::None),
        other => bail!(unknown_name("codec", other, ["lz4", "zstd", "none"])),
    }
}

/// What was written, for people and programs.
struct Written<'a> {
    /// Invoke, ok, fail, info.
    counts: [u64; 4],
    anomalies: Vec<(&'static str, u64)>,
    bytes: u64,
    seconds: f64,
    options: &'a DatabaseOptions,
    path: &'a Path,
}

impl Written<'_> {
    /// Invocations and completions.
    fn events(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn rate(&self) -> f64 {
        self.events() as f64 / self.seconds.max(1e-9)
    }

    fn json(&self) -> Json {
        let [invoke, ok, fail, info] = self.counts;
        let counts: Map<String, Json> = self
            .anomalies
            .iter()
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect();
        json!({
            "file": self.path.display().to_string(),
            "workload": self.options.workload.name(),
            "isolation": self.options.store().name(),
            "seed": format!("{:x}", self.options.seed),
            "events": self.events(),
            "operations": invoke,
            "counts": {"invoke": invoke, "ok": ok, "fail": fail, "info": info},
            "anomalies": counts,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "events_per_second": self.rate(),
            "truth": truth(self.options),
        })
    }

    fn text(&self) -> String {
        let options = self.options;
        let level = options.store().name();
        let [_, ok, fail, info] = self.counts;
        let completions = (ok + fail + info).max(1) as f64;
        let share = |count: u64| 100.0 * count as f64 / completions;
        let counts = self.anomalies.iter();
        let counts: Vec<_> = counts
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let truth = match (options.is_valid(), &counts[..]) {
            (true, []) => level.to_owned(),
            (true, _) => format!("{level}, with {}", counts.join(", ")),
            (false, _) => format!("not {level}: {}", counts.join(", ")),
        };
        let events = self.events();
        format!(
            " {} · {level} · {} · seed {:x}\n {}   ok {:.1} %  fail {:.1} %  \
             info {:.1} %\n {} bytes, {:.2} an event   {:.2} s, {:.2} million events/s\n \
             truth: {truth}\n {}",
            options.workload.name(),
            counted(u64::from(options.concurrency), "client"),
            options.seed,
            counted(events, "event"),
            share(ok),
            share(fail),
            share(info),
            self.bytes,
            self.bytes as f64 / events.max(1) as f64,
            self.seconds,
            self.rate() / 1e6,
            self.path.display(),
        )
    }
}
