//! `seatrial volume bench`: rates and latencies of an attached volume, by a closed loop over NBD.

use crate::control_socket::{ask_attached, ask_if_attached};
use crate::native_bench::measure_native;
use crate::nbd_client::{ClientCommand, NbdClient};
use crate::nbd_server::NbdAddress;
use crate::owner_machine::OwnerSettings;
use crate::volume_file::{VolumeFile, parse_size};
use crate::volume_tools::{VOLUME, volume};
use seatrial_machine::{Rng, unknown_name};
use seatrial_suite::{SuiteError, SuiteTool, ToolExit, ToolOption, ToolSetup};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const WORKLOADS: ToolOption = ToolOption {
    name: "workloads",
    value_name: Some("NAMES"),
    about: "Out of random-read, read, random-write, write, write-flush, separated by commas",
    default: Some("all that may be used"),
};
pub(crate) const LENGTHS: ToolOption = ToolOption {
    name: "lengths",
    value_name: Some("SIZES"),
    about: "Bytes of a request, such as 4KiB,1MiB",
    default: Some("4KiB; of `seatrial bench volume` 4KiB,1MiB,4MiB"),
};
pub(crate) const DEPTH: ToolOption = ToolOption {
    name: "depth",
    value_name: Some("N"),
    about: "Requests under way, 1 to 256",
    default: Some("25"),
};
pub(crate) const TIME: ToolOption = ToolOption {
    name: "time",
    value_name: Some("SECONDS"),
    about: "Duration of each workload, 1 to 3600",
    default: Some("5"),
};
const NATIVE: ToolOption = ToolOption {
    name: "native",
    value_name: None,
    about: "Own the volume for the measurement, without NBD; it must not be attached",
    default: None,
};
const OVERWRITE: ToolOption = ToolOption {
    name: "overwrite",
    value_name: None,
    about: "Allow the workloads that write: they destroy what the volume holds",
    default: None,
};
pub(crate) const CSV: ToolOption = ToolOption {
    name: "csv",
    value_name: Some("FILE"),
    about: "Write the figures to a file as CSV",
    default: None,
};

const NOTES: &str = "Is one NBD client of the process on this machine that has the volume attached. A workload that writes ends with \
a flush, which counts. write-flush has one request of 4 KiB and one flush after it, in turn, whatever --depth is.\n\
Example: seatrial volume bench disk --overwrite --lengths 4KiB,1MiB,4MiB\n\
Exit status: 0 measured, 254 error (usage, input, not attached).";

/// `seatrial volume bench`.
pub(crate) const BENCH: SuiteTool = SuiteTool {
    name: "bench",
    about: "Measure an attached volume: rates and latencies of reads and writes",
    arguments: &[VOLUME],
    options: &[&[WORKLOADS, LENGTHS, DEPTH, TIME, NATIVE, OVERWRITE, CSV]],
    notes: NOTES,
    run: bench,
};

/// What a closed loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchWorkload {
    RandomRead,
    Read,
    RandomWrite,
    Write,
    WriteFlush,
}

impl BenchWorkload {
    const ALL: [BenchWorkload; 5] = [
        BenchWorkload::RandomRead,
        BenchWorkload::Read,
        BenchWorkload::RandomWrite,
        BenchWorkload::Write,
        BenchWorkload::WriteFlush,
    ];

    const fn name(self) -> &'static str {
        match self {
            BenchWorkload::RandomRead => "random-read",
            BenchWorkload::Read => "read",
            BenchWorkload::RandomWrite => "random-write",
            BenchWorkload::Write => "write",
            BenchWorkload::WriteFlush => "write-flush",
        }
    }

    pub(crate) const fn writes(self) -> bool {
        !matches!(self, BenchWorkload::RandomRead | BenchWorkload::Read)
    }

    /// Is each request followed by a flush?
    pub(crate) const fn flushes(self) -> bool {
        matches!(self, BenchWorkload::WriteFlush)
    }

    const fn is_random(self) -> bool {
        !matches!(self, BenchWorkload::Read | BenchWorkload::Write)
    }

    fn parse(text: &str) -> Result<BenchWorkload, SuiteError> {
        let found = BenchWorkload::ALL.iter().find(|it| it.name() == text);
        found.copied().ok_or_else(|| {
            let names = BenchWorkload::ALL.iter().map(|it| it.name());
            unknown_name("workload", text, names).into()
        })
    }
}

/// A measurement to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchRun {
    pub(crate) workload: BenchWorkload,
    pub(crate) length: u32,
    pub(crate) depth: usize,
    pub(crate) time: Duration,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub(crate) struct VolumeFigures {
    run: BenchRun,
    elapsed: Duration,
    /// Latencies in units of 100 ns, sorted: exact quantiles for 4 bytes an operation.
    latencies: Vec<u32>,
    /// Of processes that the measurement started.
    pub(crate) cost: Option<BenchCost>,
}

/// What the processes of a volume used in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchCost {
    /// Processor time of the process that serves NBD, …
    pub(crate) owner: Duration,
    /// … and of all replicas.
    pub(crate) replicas: Duration,
    /// Of the former: its machine, encryption. Of the latter: their machines, their logs, reads.
    pub(crate) parts: [Duration; 5],
    /// Most bytes that the process that serves NBD has held.
    pub(crate) owner_memory: u64,
}

impl BenchCost {
    /// Its columns, after [`HEAD`].
    pub(crate) const HEAD: &'static str = "  attach CPU  replica CPU  attach MiB  attach: machine  encrypt  replicas: machine      log     read";
}

impl VolumeFigures {
    pub(crate) fn new(run: BenchRun, elapsed: Duration, latencies: &[Duration]) -> VolumeFigures {
        let units = |it: &Duration| (it.as_nanos() / 100).min(u128::from(u32::MAX)) as u32;
        let mut latencies: Vec<u32> = latencies.iter().map(units).collect();
        latencies.sort_unstable();
        VolumeFigures {
            run,
            elapsed,
            latencies,
            cost: None,
        }
    }

    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    fn mebibytes(&self) -> f64 {
        self.rate() * f64::from(self.run.length) / f64::from(1 << 20)
    }

    /// The latency in microseconds that this share of all does not exceed; 0 if there is none.
    fn quantile(&self, share: f64) -> f64 {
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        let unit = self.latencies.get(rank.saturating_sub(1));
        f64::from(unit.copied().unwrap_or(0)) / 10.0
    }

    /// Quantiles that are shown.
    fn quantiles(&self) -> [f64; 5] {
        [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| self.quantile(share))
    }

    /// Microseconds of processor time for one operation.
    fn per_operation<const N: usize>(&self, cpu: [Duration; N]) -> [f64; N] {
        let operations = self.latencies.len().max(1) as f64;
        cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / operations)
    }

    pub(crate) fn line(&self) -> String {
        let [p50, p90, p99, p999, max] = self.quantiles();
        let cost = self.cost.map_or(String::new(), |cost| {
            let [owner, replicas] = self.per_operation([cost.owner, cost.replicas]);
            let memory = cost.owner_memory >> 20;
            let [machine, seal, machines, log, read] = self.per_operation(cost.parts);
            format!(
                " {owner:>11.1} {replicas:>12.1} {memory:>11} {machine:>16.1} {seal:>8.1} {machines:>18.1} {log:>8.1} {read:>8.1}"
            )
        });
        format!(
            "{:<12} {:>8} {:>5} {:>9.0} {:>9.1} {p50:>9.0} {p90:>9.0} {p99:>9.0} {p999:>9.0} {max:>9.0}{cost}",
            self.run.workload.name(),
            self.run.length,
            self.run.depth,
            self.rate(),
            self.mebibytes()
        )
    }

    pub(crate) fn csv(&self) -> String {
        let [p50, p90, p99, p999, max] = self.quantiles();
        let cost = self.cost.map_or(",,,,,,,".to_owned(), |cost| {
            let [owner, replicas] = self.per_operation([cost.owner, cost.replicas]);
            let parts = self.per_operation(cost.parts).map(|it| format!("{it:.1}"));
            let parts = parts.join(",");
            format!("{owner:.1},{replicas:.1},{},{parts}", cost.owner_memory)
        });
        format!(
            "{},{},{},{:.3},{},{:.1},{:.3},{p50:.1},{p90:.1},{p99:.1},{p999:.1},{max:.1},{cost}\n",
            self.run.workload.name(),
            self.run.length,
            self.run.depth,
            self.elapsed.as_secs_f64(),
            self.latencies.len(),
            self.rate(),
            self.mebibytes()
        )
    }
}

pub(crate) const HEAD: &str = "workload        bytes depth     ops/s     MiB/s    p50 us    p90 us    p99 us  p99.9 us    max us";
pub(crate) const CSV_HEAD: &str = "workload,bytes,depth,seconds,operations,operations_per_second,mebibytes_per_second,p50_us,p90_us,p99_us,\
p999_us,max_us,attach_cpu_us_per_operation,replicas_cpu_us_per_operation,attach_memory_bytes,attach_machine_us,attach_encryption_us,\
replicas_machine_us,replicas_log_us,replicas_read_us\n";

fn bench(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let file = volume(setup)?;
    let runs = runs(setup, setup.has(OVERWRITE.name), "4KiB")?;
    if setup.has(NATIVE.name) {
        return bench_native(setup, &file, runs);
    }
    let status = ask_attached(&file, "status")?;
    let address = status["nbd"].as_str().and_then(NbdAddress::parse);
    let address = address.ok_or("the process that has the volume attached serves no NBD client")?;
    let failed = |error: io::Error| format!("{address}: {error}");
    let mut text = CSV_HEAD.to_owned();
    (setup.print)(format_args!("{HEAD}"));
    for run in runs {
        let mut client = NbdClient::connect(&address).map_err(failed)?;
        if run.workload.writes() && client.is_read_only {
            return Err("the volume is attached read-only".into());
        }
        let figures = measure(&mut client, run).map_err(failed)?;
        (setup.print)(format_args!("{}", figures.line()));
        text.push_str(&figures.csv());
    }
    write_csv(setup, &text)?;
    Ok(ToolExit::Done)
}

/// Measures without NBD.
fn bench_native(
    setup: &ToolSetup<'_>,
    file: &VolumeFile,
    runs: Vec<BenchRun>,
) -> Result<ToolExit, SuiteError> {
    if ask_if_attached(file, "status")?.is_some() {
        let shown = file.folder.display();
        return Err(format!("{shown}: the volume is attached; --native takes it itself").into());
    }
    let settings = OwnerSettings {
        memory: 64 << 20,
        repair_memory: 128 << 20,
        ..OwnerSettings::default()
    };
    let (print, text) = (setup.print, Arc::new(Mutex::new(CSV_HEAD.to_owned())));
    print(format_args!("{HEAD}"));
    let csv = Arc::clone(&text);
    let take = move |figures: VolumeFigures| {
        print(format_args!("{}", figures.line()));
        let mut text = csv.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(&figures.csv());
    };
    measure_native(file, &settings, runs, setup.report, Box::new(take))?;
    let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
    write_csv(setup, &text)?;
    Ok(ToolExit::Done)
}

/// Writes the figures to the file that the command line names.
pub(crate) fn write_csv(setup: &ToolSetup<'_>, text: &str) -> Result<(), SuiteError> {
    let Some(path) = setup.values.path(CSV.name) else {
        return Ok(());
    };
    Ok(std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// The measurements that the command line asks for; `usual` are the lengths if it names none.
pub(crate) fn runs(
    setup: &ToolSetup<'_>,
    may_write: bool,
    usual: &str,
) -> Result<Vec<BenchRun>, SuiteError> {
    let workloads: Vec<BenchWorkload> = if let Some(text) = setup.text(WORKLOADS.name)? {
        let all = text.split(',').map(|it| BenchWorkload::parse(it.trim()));
        all.collect::<Result<_, _>>()?
    } else {
        let all = BenchWorkload::ALL.into_iter();
        all.filter(|it| may_write || !it.writes()).collect()
    };
    if let Some(writer) = workloads.iter().find(|it| it.writes() && !may_write) {
        let name = writer.name();
        return Err(format!("{name} destroys what the volume holds; --overwrite allows it").into());
    }
    let text = setup.text(LENGTHS.name)?.unwrap_or(usual);
    let mut lengths = Vec::new();
    for one in text.split(',') {
        let length = parse_size(one.trim()).filter(|it| (512..=32 << 20).contains(it));
        lengths.push(length.ok_or_else(|| {
            format!("--lengths takes sizes from 512 to 32MiB such as 4KiB,1MiB, not {one}")
        })? as u32);
    }
    let depth = setup.values.number(DEPTH.name, 1..=256, 25)? as usize;
    let time = Duration::from_secs(setup.values.number(TIME.name, 1..=3_600, 5)?);
    let mut runs = Vec::new();
    for workload in workloads {
        let is_pair = workload == BenchWorkload::WriteFlush;
        for length in if is_pair { &[4_096][..] } else { &lengths } {
            runs.push(BenchRun {
                workload,
                length: *length,
                depth: if is_pair { 1 } else { depth },
                time,
            });
        }
    }
    Ok(runs)
}

/// Places and bytes of requests, from a seed.
pub(crate) struct BenchRequests {
    rng: Rng,
    run: BenchRun,
    /// Requests that fit the export.
    places: u64,
    next: u64,
    payload: Vec<u8>,
}

impl BenchRequests {
    pub(crate) fn new(run: BenchRun, bytes: u64) -> BenchRequests {
        let mut rng = Rng::from_seed(1);
        let mut payload = Vec::new();
        if run.workload.writes() {
            payload.resize(run.length as usize, 0);
            for byte in &mut payload {
                *byte = rng.below(256) as u8;
            }
        }
        BenchRequests {
            rng,
            run,
            places: bytes / u64::from(run.length),
            next: 0,
            payload,
        }
    }

    /// Bytes of a request.
    pub(crate) const fn length(&self) -> u32 {
        self.run.length
    }

    /// What is written; `None`: the run reads.
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        self.run.workload.writes().then_some(&*self.payload)
    }

    /// Where the next request begins.
    pub(crate) fn next_offset(&mut self) -> u64 {
        let place = if self.run.workload.is_random() {
            self.rng.below(self.places)
        } else {
            self.next
        };
        self.next = (self.next + 1) % self.places;
        place * u64::from(self.run.length)
    }

    /// Adds the next request.
    fn add(&mut self, client: &mut NbdClient, cookie: u64) {
        let offset = self.next_offset();
        let command = if self.run.workload.writes() {
            ClientCommand::Write
        } else {
            ClientCommand::Read
        };
        let length = self.run.length;
        client.add(command, cookie, offset, length, &self.payload);
    }
}

/// Makes one measurement: a request is sent as soon as one is done. After the time the others are waited for, and a flush if it
/// writes; all of it counts.
pub(crate) fn measure(client: &mut NbdClient, run: BenchRun) -> io::Result<VolumeFigures> {
    let mut requests = BenchRequests::new(run, client.bytes);
    if requests.places == 0 {
        return Err(io::Error::other("the volume is shorter than one request"));
    }
    let mut latencies = Vec::new();
    let mut data = vec![
        0;
        if run.workload.writes() {
            0
        } else {
            run.length as usize
        }
    ];
    let begun = Instant::now();
    let mut sent = vec![begun; run.depth];
    for cookie in 0..run.depth {
        requests.add(client, cookie as u64);
    }
    client.send()?;
    let mut under_way = run.depth;
    while under_way > 0 {
        let cookie = client.reply()? as usize;
        if !data.is_empty() {
            client.data(&mut data)?;
        }
        let Some(since) = sent.get_mut(cookie) else {
            return Err(io::Error::other("a reply to no request"));
        };
        if run.workload.flushes() {
            client.flush()?;
        }
        let now = Instant::now();
        latencies.push(now.duration_since(*since));
        if now.duration_since(begun) < run.time {
            *since = now;
            requests.add(client, cookie as u64);
            client.send()?;
        } else {
            under_way -= 1;
        }
    }
    if run.workload.writes() {
        client.flush()?;
    }
    Ok(VolumeFigures::new(run, begun.elapsed(), &latencies))
}
