//! The experiments of SMaRtTrie's series, in sizes for one machine.

use super::closed_loop::{LoadEvent, LoadOptions, fill};
use super::load_target::LoadTarget;
use super::store_processes::{RedisLog, StoreProcesses};
use super::{BenchSetup, PlannedRun, PlannedStore, file_benchmark, map_benchmark};
use crate::credentials::Credentials;
use seatrial_suite::{SuiteError, ToolExit, ToolSetup};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// One experiment.
pub(super) struct Experiment {
    pub(super) name: &'static str,
    pub(super) procedure: ExperimentProcedure,
}

/// How an experiment is carried out.
pub(super) enum ExperimentProcedure {
    /// These runs of a load, each on stores of its own.
    Loads(fn(&LoadOptions, &ToolSetup<'_>) -> Vec<PlannedRun>),
    /// It is more than loads, and writes its own file.
    Other(fn(&BenchSetup<'_>, &LoadOptions) -> Result<ToolExit, SuiteError>),
}

const fn loads(
    name: &'static str,
    runs: fn(&LoadOptions, &ToolSetup<'_>) -> Vec<PlannedRun>,
) -> Experiment {
    let procedure = ExperimentProcedure::Loads(runs);
    Experiment { name, procedure }
}

const fn other(
    name: &'static str,
    run: fn(&BenchSetup<'_>, &LoadOptions) -> Result<ToolExit, SuiteError>,
) -> Experiment {
    let procedure = ExperimentProcedure::Other(run);
    Experiment { name, procedure }
}

/// All experiments, by the names of SMaRtTrie's series.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    loads("e1", |load, tool| {
        checkpoint_modes(load, tool, &["none", "blocking", "concurrent"], 60)
    }),
    loads("e2", |load, tool| {
        checkpoint_modes(load, tool, &["concurrent"], 60)
    }),
    loads("e3", costs_apart),
    loads("e4", saturation),
    loads("e5", clients_by_state),
    loads("e6", allocators),
    other("e7", map_benchmark::run),
    other("e8", file_benchmark::run),
    other("e9", recovery),
    loads("e10", killed_replicas),
    other("e11", simulated_snapshots),
    loads("e12", beside_others),
];

/// Registers of 4 KiB in 100 MB and in 1 GB.
pub(super) const STATES: [(usize, &str); 2] = [(25_600, "100 MB"), (262_144, "1 GB")];

/// The load with the sizes of an experiment, where the command line does not say otherwise.
pub(super) fn sized(
    load: &LoadOptions,
    tool: &ToolSetup<'_>,
    keys: usize,
    seconds: u64,
) -> LoadOptions {
    LoadOptions {
        keys: if tool.has("keys") { load.keys } else { keys },
        seconds: if tool.has("time") {
            load.seconds
        } else {
            seconds
        },
        ..load.clone()
    }
}

fn on_kv(label: String, nodes: usize, options: &[&str], load: LoadOptions) -> PlannedRun {
    let options = options.iter().map(|&it| it.to_owned()).collect();
    PlannedRun {
        label,
        store: PlannedStore::Kv {
            nodes,
            options,
            preload: None,
        },
        load,
        events: Vec::new(),
    }
}

/// One node without checkpoints.
const NO_CHECKPOINTS: &[&str] = &["--checkpoint-mode", "none"];

/// Modes of checkpoints.
fn checkpoint_modes(
    load: &LoadOptions,
    tool: &ToolSetup<'_>,
    modes: &[&str],
    seconds: u64,
) -> Vec<PlannedRun> {
    let load = sized(load, tool, STATES[1].0, seconds);
    // Seldom enough that a run has seconds without a checkpoint to compare with.
    let bytes = (load.keys * (load.value_bytes + load.key_bytes)).max(1);
    let bytes = bytes.to_string();
    let run = |mode: &&str| {
        let options = ["--checkpoint-mode", mode, "--checkpoint-bytes", &bytes];
        on_kv(format!("checkpoints {mode}"), 1, &options, load.clone())
    };
    modes.iter().map(run).collect()
}

/// The log on and off by checkpoints on and off.
fn costs_apart(load: &LoadOptions, tool: &ToolSetup<'_>) -> Vec<PlannedRun> {
    let mut runs = Vec::new();
    for log in ["none", "synced"] {
        for mut run in checkpoint_modes(load, tool, &["none", "concurrent"], 30) {
            run.label = format!("log {log} {}", run.label);
            if let PlannedStore::Kv { options, .. } = &mut run.store {
                options.extend(["--log".to_owned(), log.to_owned()]);
            }
            runs.push(run);
        }
    }
    runs
}

fn saturation(load: &LoadOptions, tool: &ToolSetup<'_>) -> Vec<PlannedRun> {
    let run = |clients: u32| {
        let load = LoadOptions {
            clients,
            share: 1,
            ..sized(load, tool, STATES[0].0, 15)
        };
        on_kv(format!("kv {clients} clients"), 1, NO_CHECKPOINTS, load)
    };
    [1, 8, 64, 256].map(run).into()
}

fn clients_by_state(load: &LoadOptions, tool: &ToolSetup<'_>) -> Vec<PlannedRun> {
    let mut runs = Vec::new();
    for (keys, size) in STATES {
        for clients in [1, 2, 4, 8] {
            for mode in ["blocking", "concurrent"] {
                let load = LoadOptions {
                    clients,
                    share: 1,
                    ..sized(load, tool, keys, 20)
                };
                let label = format!("{size} {clients} clients {mode}");
                runs.push(on_kv(label, 1, &["--checkpoint-mode", mode], load));
            }
        }
    }
    runs
}

/// Where distributions have the shared libraries of other allocators.
const ALLOCATORS: [(&str, &[&str]); 2] = [
    (
        "jemalloc",
        &[
            "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
            "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2",
            "/usr/lib64/libjemalloc.so.2",
            "/usr/lib/libjemalloc.so.2",
        ],
    ),
    (
        "mimalloc",
        &[
            "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2",
            "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0",
            "/usr/lib/aarch64-linux-gnu/libmimalloc.so.2.0",
            "/usr/lib64/libmimalloc.so.2",
            "/usr/lib/libmimalloc.so.2",
        ],
    ),
];

/// The system's allocator and others that are installed, preloaded, with checkpoints and without a log.
fn allocators(load: &LoadOptions, tool: &ToolSetup<'_>) -> Vec<PlannedRun> {
    let load = sized(load, tool, STATES[1].0, 15);
    let bytes = (load.keys * (load.value_bytes + load.key_bytes) / 4)
        .max(1)
        .to_string();
    let options = ["--log", "none", "--checkpoint-bytes", &bytes];
    let mut runs = vec![on_kv(
        "allocator of the system".into(),
        1,
        &options,
        load.clone(),
    )];
    for (name, paths) in ALLOCATORS {
        let Some(path) = paths.iter().find(|path| Path::new(path).exists()) else {
            (tool.report)(format_args!("{name} is not installed"));
            continue;
        };
        let mut run = on_kv(format!("allocator {name}"), 1, &options, load.clone());
        if let PlannedStore::Kv { preload, .. } = &mut run.store {
            *preload = Some(PathBuf::from(path));
        }
        runs.push(run);
    }
    runs
}

/// Seeds of the simulated store, with the number that must be found to be wrong: none, and for the planted bug one.
fn simulated_snapshots(setup: &BenchSetup<'_>, _: &LoadOptions) -> Result<ToolExit, SuiteError> {
    let seeds = setup.tool.values.number("seeds", 1..=1 << 32, 1_000)?;
    let mut rows = String::from("run,seeds,seconds,exit,last_line\n");
    let mut exit = ToolExit::Done;
    for (label, bug, expected) in [
        ("the store", None, 0),
        ("planted fuzzy checkpoint", Some("fuzzy-checkpoint"), 1),
    ] {
        let out = setup.data.join("simulated");
        let mut command = Command::new(&setup.binary);
        command.args(["sim", "kv", "--seeds", &seeds.to_string()]);
        command.arg("--out").arg(&out);
        command.args(bug.into_iter().flat_map(|bug| ["--bug", bug]));
        let began = Instant::now();
        let done = command.output()?;
        let seconds = began.elapsed().as_secs_f64();
        let _ = std::fs::remove_dir_all(&out); // a run that found nothing has none
        let text = String::from_utf8_lossy(&done.stdout);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.unwrap_or_default().trim().replace(',', ";");
        let code = done.status.code().unwrap_or(-1);
        if code != expected {
            exit = ToolExit::Negative;
        }
        (setup.tool.print)(format_args!(
            "{label}, {seeds} seeds at most: exit {code} (expected {expected}) after {seconds:.0} s: {last}"
        ));
        // Writing to a string cannot fail.
        let _ = writeln!(rows, "{label},{seeds},{seconds:.1},{code},{last}");
    }
    std::fs::write(setup.out.join("e11.csv"), rows)?;
    Ok(exit)
}

fn killed_replicas(load: &LoadOptions, tool: &ToolSetup<'_>) -> Vec<PlannedRun> {
    let load = sized(load, tool, STATES[0].0, 30);
    let at = |part: u64, action| LoadEvent {
        second: load.seconds * part / 6,
        action,
    };
    let events = vec![
        at(1, |processes| processes.kill(true)),
        at(2, StoreProcesses::restart),
        at(4, |processes| processes.kill(false)),
        at(5, StoreProcesses::restart),
    ];
    [8, 64]
        .map(|clients| {
            let load = LoadOptions {
                clients,
                share: 1,
                ..load.clone()
            };
            PlannedRun {
                events: events.clone(),
                ..on_kv(format!("3 replicas {clients} clients"), 3, &[], load)
            }
        })
        .into()
}

/// This store, Redis and etcd in turn, so that each pair is measured in the same minutes.
fn beside_others(load: &LoadOptions, tool: &ToolSetup<'_>) -> Vec<PlannedRun> {
    let mut runs = Vec::new();
    for clients in [8, 64] {
        let load = LoadOptions {
            clients,
            share: 1,
            ..sized(load, tool, STATES[0].0, 15)
        };
        let other = |name: &str, store| PlannedRun {
            label: format!("{name} {clients} clients"),
            store,
            load: load.clone(),
            events: Vec::new(),
        };
        let kv = |name: &str, nodes, options: &[&str]| {
            on_kv(
                format!("{name} {clients} clients"),
                nodes,
                options,
                load.clone(),
            )
        };
        // Both with what keeps their logs short, then both without.
        runs.push(kv("kv 1 node", 1, &[]));
        let rewritten = PlannedStore::Redis(RedisLog::Rewritten);
        runs.push(other("redis always with rewriting", rewritten));
        let never = ["--checkpoint-mode", "none"];
        runs.push(kv("kv 1 node without checkpoints", 1, &never));
        runs.push(other("redis always", PlannedStore::Redis(RedisLog::Synced)));
        runs.push(other("etcd 1 node", PlannedStore::Etcd { nodes: 1 }));
        runs.push(kv("kv 3 nodes", 3, &[]));
        runs.push(other("etcd 3 nodes", PlannedStore::Etcd { nodes: 3 }));
        let large = LoadOptions {
            keys: STATES[1].0,
            ..load.clone()
        };
        runs.extend(without_logs(&load, STATES[0].1));
        runs.extend(without_logs(&large, STATES[1].1));
    }
    runs
}

/// This store and Redis without logs and without checkpoints.
fn without_logs(load: &LoadOptions, size: &str) -> [PlannedRun; 2] {
    let name = |store: &str| format!("{store} without log {size} {} clients", load.clients);
    let options = ["--log", "none", "--checkpoint-mode", "none"];
    let redis = PlannedRun {
        label: name("redis"),
        store: PlannedStore::Redis(RedisLog::None),
        load: load.clone(),
        events: Vec::new(),
    };
    [on_kv(name("kv"), 1, &options, load.clone()), redis]
}

/// Fills a node, kills it, and measures the time from its next start to its first reply.
fn recovery(setup: &BenchSetup<'_>, load: &LoadOptions) -> Result<ToolExit, SuiteError> {
    let mut rows = String::from("state,keys,fill_s,recovery_s\n");
    for (keys, _) in STATES {
        let load = sized(load, setup.tool, keys, 0);
        let megabytes = load.keys * (load.key_bytes + load.value_bytes) / 1_000_000;
        let folder = setup.data.join(format!("recovery-{keys}"));
        let mut processes = StoreProcesses::kv(&setup.program(&[], None), 1, &folder)?;
        let target = LoadTarget::kv(processes.addresses(), Credentials::default(), 1);
        let runtime = crate::tools::runtime()?;
        let began = Instant::now();
        runtime.block_on(fill(&target, &load))?;
        let filled = began.elapsed();
        processes.kill(true)?;
        let began = Instant::now();
        processes.restart()?;
        runtime.block_on(async {
            // The connections of the earlier life are lost: each attempt is a client of its own.
            let mut attempt = 0;
            loop {
                attempt += 1;
                if let Ok(mut connection) = target.connect(1_000 + attempt, 0).await
                    && connection.read(b"any").await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let (filled, recovered) = (filled.as_secs_f64(), began.elapsed().as_secs_f64());
        (setup.tool.print)(format_args!(
            "{} keys ({megabytes} MB): filled in {filled:.1} s, serves {recovered:.2} s after its start",
            load.keys
        ));
        // Writing to a string cannot fail.
        let _ = writeln!(
            rows,
            "{megabytes} MB,{},{filled:.2},{recovered:.3}",
            load.keys
        );
        if setup.tool.has("keys") {
            break;
        }
    }
    std::fs::write(setup.out.join("e9.csv"), rows)?;
    Ok(ToolExit::Done)
}
