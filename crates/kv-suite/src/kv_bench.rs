//! `seatrial bench kv`: a load on the store, on nodes that it starts itself or that run already, and on other stores.

mod checkpoint_sampler;
mod closed_loop;
mod experiments;
mod file_benchmark;
mod latency_histogram;
mod load_figures;
mod load_target;
mod map_benchmark;
mod store_processes;

use crate::credentials::Credentials;
use crate::tools::{StoreSession, addresses};
use closed_loop::{LoadEvent, LoadOptions, fill, run_load};
use experiments::{EXPERIMENTS, ExperimentProcedure};
use load_figures::{LoadFigures, SUMMARY_COLUMNS, WINDOW_COLUMNS, throughput_svg};
use load_target::LoadTarget;
use seatrial_generator::KeyDistribution;
use seatrial_suite::{
    SuiteError, SuiteTool, TLS_CA, TLS_CERT, TLS_KEY, ToolExit, ToolOption, ToolSetup,
};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store_processes::{NodeProgram, RedisLog, StoreProcesses};

const fn option(
    name: &'static str,
    value_name: &'static str,
    about: &'static str,
    default: &'static str,
) -> ToolOption {
    ToolOption {
        name,
        value_name: Some(value_name),
        about,
        default: if default.is_empty() {
            None
        } else {
            Some(default)
        },
    }
}

const OPTIONS: &[ToolOption] = &[
    option(
        "experiment",
        "NAME",
        "An experiment of the list below instead of one run",
        "",
    ),
    option(
        "clients",
        "N",
        "Clients, each with one request at a time",
        "8",
    ),
    option(
        "connections",
        "N",
        "Connections that the clients share",
        "one for each client",
    ),
    option(
        "keys",
        "N",
        "Registers, all written before the run",
        "25600",
    ),
    option("key-bytes", "N", "Length of a key, 16 to 1024", "24"),
    option(
        "value-bytes",
        "N",
        "Length of a value, up to 1048576",
        "4096",
    ),
    option(
        "distribution",
        "NAME",
        "Which keys: uniform, zipf:SKEW, exponential",
        "zipf:0.99",
    ),
    option("reads", "PERCENT", "Requests of a hundred that read", "0"),
    option("time", "SECONDS", "Seconds that count", "15"),
    option("seeds", "N", "Seeds of experiment e11", "1000"),
    option("warm-up", "SECONDS", "Seconds before those that count", "3"),
    option("nodes", "N", "Nodes to start: 1, 3, 5 or 7", "1"),
    option(
        "server",
        "ADDRESSES",
        "Use running nodes at these addresses instead",
        "",
    ),
    option(crate::KEY_FILE, "FILE", "Key of the running nodes", ""),
    option(
        TLS_CERT,
        "FILE",
        "Certificate of this client, for nodes with TLS",
        "",
    ),
    option(TLS_KEY, "FILE", "Private key of the certificate", ""),
    option(TLS_CA, "FILE", "Authority that signs the certificates", ""),
    option(
        "binary",
        "FILE",
        "The program whose nodes are started",
        "this one",
    ),
    option(
        "node-options",
        "TEXT",
        "Further options of the nodes, such as \"--checkpoint-mode none\"",
        "",
    ),
    option(
        "data",
        "DIR",
        "Folder for the stores' data, removed afterwards",
        "a temporary one",
    ),
    option(
        "out",
        "DIR",
        "Folder for CSV files and the picture",
        "bench-kv",
    ),
];

const NOTES: &str = "A closed loop: each client sends its next request when the last one is answered. Windows of one second: \
mean, standard deviation (SD) and standard error (SE) of their operations, longest time without a reply, seconds below 5 % of \
the median; latencies of single requests; CPU time per operation; in and out of checkpoints.\n\n\
Experiments (time, keys, value-bytes and out can be given):\n  \
e1   checkpoint modes none, blocking, concurrent over time\n  \
e2   in and out of concurrent checkpoints\n  \
e3   checkpoints off and on, with and without the log\n  \
e4   saturation: 1, 8, 64, 256 clients\n  \
e5   1, 2, 4, 8 clients by 100 MB and 1 GB of state\n  \
e6   allocators: the system's, jemalloc and mimalloc where installed\n  \
e7   maps: imbl's OrdMap, HashMap, BTreeMap\n  \
e8   files alone: log, batches, a checkpoint beside a plain file\n  \
e9   time until a killed node serves again\n  \
e10  three replicas, the leader and a follower killed\n  \
e11  snapshots of the simulated store: seeds without, and with a planted bug\n  \
e12  Redis, with and without its log, and etcd in the same minutes\n\
Example: seatrial bench kv --experiment e4 --out e4";

/// The benchmark.
pub(crate) const BENCH: SuiteTool = SuiteTool {
    name: "kv",
    about: "Operations per second of the key-value store under a closed loop, and of others beside it",
    arguments: &[],
    options: &[OPTIONS],
    notes: NOTES,
    run,
};

/// One run of a load: the store, and what the clients do.
#[derive(Clone, Debug)]
struct PlannedRun {
    label: String,
    store: PlannedStore,
    load: LoadOptions,
    events: Vec<LoadEvent>,
}

/// The store that a run starts.
#[derive(Clone, Debug)]
enum PlannedStore {
    Kv {
        nodes: usize,
        options: Vec<String>,
        /// A shared library to preload, for its allocator.
        preload: Option<PathBuf>,
    },
    Redis(RedisLog),
    Etcd {
        nodes: usize,
    },
}

/// The folder of the stores' data is removed at the end, also after an error; it stays if it has something else.
impl Drop for BenchSetup<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.data);
    }
}

/// What all runs share.
struct BenchSetup<'a> {
    tool: &'a ToolSetup<'a>,
    binary: PathBuf,
    data: PathBuf,
    out: PathBuf,
}

fn run(tool: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let path = |name: &str| tool.values.path(name).map(Path::to_owned);
    let temporary = std::env::temp_dir().join(format!("seatrial-bench-{}", std::process::id()));
    let setup = BenchSetup {
        tool,
        binary: path("binary").map_or_else(std::env::current_exe, Ok)?,
        data: path("data").unwrap_or(temporary),
        out: path("out").unwrap_or_else(|| "bench-kv".into()),
    };
    std::fs::create_dir_all(&setup.out)?;
    let load = load_options(tool)?;
    let Some(name) = tool.text("experiment")? else {
        let figures = if tool.has("server") {
            vec![setup.run_on_servers(&load)?]
        } else {
            let nodes = tool.values.number("nodes", 1..=7, 1)? as usize;
            let options = tool.text("node-options")?.unwrap_or_default();
            let options = options.split_whitespace().map(ToOwned::to_owned).collect();
            let run = PlannedRun {
                label: format!("kv {nodes} nodes"),
                store: PlannedStore::Kv {
                    nodes,
                    options,
                    preload: None,
                },
                load,
                events: Vec::new(),
            };
            setup.run_all(vec![run])?
        };
        setup.write("run", &figures)?;
        return Ok(ToolExit::Done);
    };
    let Some(experiment) = EXPERIMENTS.iter().find(|it| it.name == name) else {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|it| it.name).collect();
        let names = names.join(", ");
        return Err(format!("--experiment {name:?} is not one of {names}").into());
    };
    match experiment.procedure {
        ExperimentProcedure::Other(run) => run(&setup, &load),
        ExperimentProcedure::Loads(runs) => {
            let figures = setup.run_all(runs(&load, tool))?;
            setup.write(name, &figures)?;
            Ok(ToolExit::Done)
        }
    }
}

/// The load that the options describe.
fn load_options(tool: &ToolSetup<'_>) -> Result<LoadOptions, SuiteError> {
    let number = |name, low, high, usual| tool.values.number(name, low..=high, usual);
    let usual = LoadOptions::new();
    let distribution = match tool.text("distribution")? {
        None => usual.distribution,
        Some(name) => KeyDistribution::by_name(name).ok_or_else(|| {
            format!("--distribution takes uniform, zipf:SKEW or exponential, not {name:?}")
        })?,
    };
    let clients = number("clients", 1, 10_000, 8)?;
    let connections = number("connections", 1, clients, clients)?;
    Ok(LoadOptions {
        clients: clients as u32,
        share: clients.div_ceil(connections) as u32,
        keys: number("keys", 1, 1 << 24, usual.keys as u64)? as usize,
        key_bytes: number("key-bytes", 16, 1_024, 24)? as usize,
        value_bytes: number("value-bytes", 0, 1 << 20, 4_096)? as usize,
        distribution,
        reads_percent: number("reads", 0, 100, 0)?,
        seconds: number("time", 1, 1 << 20, usual.seconds)?,
        warm_up: number("warm-up", 0, 3_600, usual.warm_up)?,
        seed: usual.seed,
    })
}

impl BenchSetup<'_> {
    fn program(&self, options: &[String], preload: Option<&Path>) -> NodeProgram {
        NodeProgram {
            binary: self.binary.clone(),
            options: options.to_vec(),
            preload: preload.map(Path::to_owned),
        }
    }

    /// Carries the runs out, one after the other, each on a store of its own.
    fn run_all(&self, runs: Vec<PlannedRun>) -> Result<Vec<LoadFigures>, SuiteError> {
        let mut figures = Vec::new();
        for (index, run) in runs.into_iter().enumerate() {
            let folder = self.data.join(format!("run-{index}"));
            match self.run_one(&run, &folder) {
                Ok(one) => {
                    self.show(&one);
                    figures.push(one);
                }
                // A store that is not installed is no reason to lose the figures of others.
                Err(error) if !matches!(run.store, PlannedStore::Kv { .. }) => {
                    (self.tool.report)(format_args!("{} skipped: {error}", run.label));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(figures)
    }

    fn run_one(&self, run: &PlannedRun, folder: &Path) -> Result<LoadFigures, SuiteError> {
        let (mut processes, target) = match &run.store {
            PlannedStore::Kv {
                nodes,
                options,
                preload,
            } => {
                let program = self.program(options, preload.as_deref());
                let processes = StoreProcesses::kv(&program, *nodes, folder)?;
                let target = LoadTarget::kv(
                    processes.addresses(),
                    Credentials::default(),
                    run.load.share,
                );
                (processes, target)
            }
            PlannedStore::Redis(log) => {
                let processes = StoreProcesses::redis(*log, folder)?;
                let target = LoadTarget::Redis(processes.addresses()[0]);
                (processes, target)
            }
            PlannedStore::Etcd { nodes } => {
                let processes = StoreProcesses::etcd(*nodes, folder)?;
                let target = LoadTarget::Etcd(processes.addresses());
                (processes, target)
            }
        };
        let runtime = crate::tools::runtime()?;
        runtime.block_on(async {
            fill(&target, &run.load).await?;
            let processes = Some(&mut processes);
            run_load(&run.label, &target, &run.load, processes, &run.events).await
        })
    }

    /// A run on nodes that run already.
    fn run_on_servers(&self, load: &LoadOptions) -> Result<LoadFigures, SuiteError> {
        let session = StoreSession::of(self.tool)?;
        let target = LoadTarget::kv(addresses(self.tool)?, session.credentials, load.share);
        let runtime = crate::tools::runtime()?;
        let figures = runtime.block_on(async {
            fill(&target, load).await?;
            run_load("kv", &target, load, None, &[]).await
        })?;
        self.show(&figures);
        Ok(figures)
    }

    fn show(&self, figures: &LoadFigures) {
        for line in figures.lines() {
            (self.tool.print)(format_args!("{line}"));
        }
    }

    /// Writes the figures of an experiment: a row for each run, one for each second, and a picture.
    fn write(&self, name: &str, figures: &[LoadFigures]) -> Result<(), SuiteError> {
        let rows: Vec<String> = figures.iter().map(LoadFigures::row).collect();
        let windows: String = figures.iter().map(LoadFigures::window_rows).collect();
        let file = |end: &str| self.out.join(format!("{name}{end}"));
        let summary = format!("{SUMMARY_COLUMNS}\n{}\n", rows.join("\n"));
        std::fs::write(file(".csv"), summary)?;
        std::fs::write(file("-windows.csv"), format!("{WINDOW_COLUMNS}\n{windows}"))?;
        let title = format!("{name}: operations per second");
        std::fs::write(file(".svg"), throughput_svg(&title, figures))?;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load: Vec<&str> = load.split(' ').take(3).collect();
        (self.tool.report)(format_args!(
            "{}.csv, -windows.csv, .svg; load of the machine now {}",
            self.out.join(name).display(),
            load.join(" ")
        ));
        Ok(())
    }
}

/// Time limit of a status in a run.
const STATUS_TIMEOUT: Duration = Duration::from_mins(1);
