//! A closed loop: each client sends its next request when the last one is answered.

use super::checkpoint_sampler::CheckpointSampler;
use super::latency_histogram::LatencyHistogram;
use super::load_figures::{LoadFigures, LoadWindow};
use super::load_target::{LoadConnection, LoadTarget};
use super::store_processes::StoreProcesses;
use seatrial_generator::{KeyDistribution, Places};
use seatrial_machine::Rng;
use seatrial_suite::{ProcessUsage, SuiteError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the clients do.
#[derive(Clone, Debug)]
pub(crate) struct LoadOptions {
    pub(crate) clients: u32,
    /// Number of clients that share a connection (of this store; others have one for each).
    pub(crate) share: u32,
    pub(crate) keys: usize,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) distribution: KeyDistribution,
    /// Requests of a hundred that read.
    pub(crate) reads_percent: u64,
    pub(crate) seconds: u64,
    /// Seconds before those that count.
    pub(crate) warm_up: u64,
    pub(crate) seed: u64,
}

impl LoadOptions {
    /// The options of the experiments: 24-byte keys, 4 KiB, zipfian with the skew 0.99, writes only.
    pub(crate) fn new() -> LoadOptions {
        let distribution = KeyDistribution::by_name("zipf:0.99");
        LoadOptions {
            clients: 8,
            share: 1,
            keys: 25_600,
            key_bytes: 24,
            value_bytes: 4_096,
            distribution: distribution.unwrap_or(KeyDistribution::Uniform),
            reads_percent: 0,
            seconds: 15,
            warm_up: 3,
            seed: 1,
        }
    }

    /// The key of a place. Neighbours in popularity are far from each other in the order of keys.
    fn key(&self, place: usize) -> Vec<u8> {
        // An odd factor permutes the 64-bit numbers.
        let scattered = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut key = format!("{scattered:016x}").into_bytes();
        key.resize(self.key_bytes, b'k');
        key
    }
}

/// Random bytes from which values are cut, so that no store gains by compression.
const VALUES: usize = 1 << 21;
/// Registers that one request of the filling writes.
const FILL_BATCH: usize = 32;
/// Clients that fill.
const FILL_CLIENTS: usize = 16;
/// Pause of a client that has lost its connection.
const PAUSE: Duration = Duration::from_millis(20);

/// What all clients of a run share.
struct LoadRun {
    target: LoadTarget,
    options: LoadOptions,
    places: Places,
    values: Vec<u8>,
    began: Instant,
    samples: Mutex<Samples>,
    errors: AtomicU64,
    next_fill: AtomicU64,
}

/// What was measured so far.
struct Samples {
    /// One for each second, the warm-up included.
    windows: Vec<LatencyHistogram>,
    last: Duration,
    longest_gap: Duration,
    /// Why the first request failed.
    first_error: Option<String>,
}

impl LoadRun {
    fn value(&self, rng: &mut Rng) -> &[u8] {
        let start = rng.index(VALUES - self.options.value_bytes);
        &self.values[start..][..self.options.value_bytes]
    }

    fn end(&self) -> Duration {
        Duration::from_secs(self.options.warm_up + self.options.seconds)
    }

    fn answered(&self, sent: Instant) {
        let (at, latency) = (self.began.elapsed(), sent.elapsed());
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = samples.windows.get_mut(at.as_secs() as usize) {
            window.add(latency);
            if at >= Duration::from_secs(self.options.warm_up) {
                samples.longest_gap = samples.longest_gap.max(at.saturating_sub(samples.last));
            }
            samples.last = at;
        }
    }

    fn failed(&self, reason: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.first_error.get_or_insert_with(|| reason.to_owned());
    }
}

/// Writes every key once.
pub(crate) async fn fill(target: &LoadTarget, options: &LoadOptions) -> Result<(), SuiteError> {
    let run = Arc::new(new_run(target, options));
    let mut clients = Vec::new();
    for client in 0..FILL_CLIENTS as u32 {
        clients.push(tokio::spawn(fill_part(Arc::clone(&run), client)));
    }
    for client in clients {
        let filled = client.await?;
        filled.map_err(|error| format!("the store cannot be filled: {error}"))?;
    }
    Ok(())
}

async fn fill_part(run: Arc<LoadRun>, client: u32) -> std::io::Result<()> {
    let mut connection = run.target.connect(client * run.options.share, 0).await?;
    let mut rng = Rng::from_seed(run.options.seed).fork(&format!("fill {client}"));
    // A request of this store must stay well below 4 MiB.
    let batch = FILL_BATCH
        .min((1 << 20) / run.options.value_bytes.max(1))
        .max(1);
    loop {
        let first = run.next_fill.fetch_add(batch as u64, Ordering::Relaxed) as usize;
        if first >= run.options.keys {
            return Ok(());
        }
        let end = (first + batch).min(run.options.keys);
        let pairs: Vec<(Vec<u8>, &[u8])> = (first..end)
            .map(|place| (run.options.key(place), run.value(&mut rng)))
            .collect();
        connection.write(&pairs).await?;
    }
}

fn new_run(target: &LoadTarget, options: &LoadOptions) -> LoadRun {
    let mut rng = Rng::from_seed(options.seed);
    let values = std::iter::repeat_with(|| rng.word().to_le_bytes());
    LoadRun {
        values: values.take(VALUES / 8).flatten().collect(),
        target: target.clone(),
        places: Places::new(options.keys, options.distribution),
        began: Instant::now(),
        samples: Mutex::new(Samples {
            windows: vec![LatencyHistogram::new(); (options.warm_up + options.seconds) as usize],
            last: Duration::ZERO,
            longest_gap: Duration::ZERO,
            first_error: None,
        }),
        errors: AtomicU64::new(0),
        next_fill: AtomicU64::new(0),
        options: options.clone(),
    }
}

/// Runs the load. `events` happen meanwhile: each is called at its second of those that count, and gives its name.
pub(crate) async fn run_load(
    label: &str,
    target: &LoadTarget,
    options: &LoadOptions,
    mut processes: Option<&mut StoreProcesses>,
    events: &[LoadEvent],
) -> Result<LoadFigures, SuiteError> {
    let run = Arc::new(new_run(target, options));
    let clients: Vec<_> = (0..options.clients)
        .map(|client| tokio::spawn(client_loop(Arc::clone(&run), client)))
        .collect();
    let until = |second| tokio::time::sleep_until((run.began + Duration::from_secs(second)).into());
    until(options.warm_up).await;
    let usage = |processes: &Option<&mut StoreProcesses>| {
        let nodes = processes.as_ref().map(|it| it.usage()).unwrap_or_default();
        (ProcessUsage::of_this(), nodes)
    };
    let sampler = target.status_session().map(|session| {
        let counted = run.began + Duration::from_secs(options.warm_up);
        CheckpointSampler::start(session, counted, options.seconds)
    });
    let before = usage(&processes);
    let mut marks = Vec::new();
    for event in events {
        until(options.warm_up + event.second).await;
        if let Some(processes) = processes.as_deref_mut() {
            let name = (event.action)(processes)?;
            marks.push((event.second, name));
        }
    }
    until(options.warm_up + options.seconds).await;
    let after = usage(&processes);
    for client in clients {
        client.await?;
    }
    let checkpoints = sampler.map(CheckpointSampler::finish).unwrap_or_default();
    let samples = run.samples.lock().unwrap_or_else(PoisonError::into_inner);
    let longest_gap = samples
        .longest_gap
        .max(run.end().saturating_sub(samples.last));
    if samples.last.is_zero() {
        let reason = samples.first_error.as_deref().unwrap_or("no reply");
        return Err(format!("{label}: no request was answered: {reason}").into());
    }
    let windows = samples.windows[options.warm_up as usize..].iter();
    Ok(LoadFigures {
        label: label.to_owned(),
        clients: options.clients,
        windows: windows.cloned().map(LoadWindow).collect(),
        longest_stall: longest_gap,
        errors: run.errors.load(Ordering::Relaxed),
        first_error: samples.first_error.clone(),
        client_cpu: after.0.cpu.saturating_sub(before.0.cpu),
        node_cpu: after.1.cpu.saturating_sub(before.1.cpu),
        node_memory: after.1.memory,
        checkpoints,
        marks,
    })
}

/// Something that happens to the store's processes during a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadEvent {
    /// Its second, of those that count.
    pub(crate) second: u64,
    /// Does it; returns its name.
    pub(crate) action: fn(&mut StoreProcesses) -> Result<String, SuiteError>,
}

async fn client_loop(run: Arc<LoadRun>, client: u32) {
    let mut rng = Rng::from_seed(run.options.seed).fork(&format!("client {client}"));
    let mut connection: Option<LoadConnection> = None;
    let mut attempt = 0;
    while run.began.elapsed() < run.end() {
        let Some(open) = &mut connection else {
            match run.target.connect(client, attempt).await {
                Ok(opened) => connection = Some(opened),
                Err(error) => {
                    run.failed(&error.to_string());
                    tokio::time::sleep(PAUSE).await;
                }
            }
            attempt += 1;
            continue;
        };
        let key = run.options.key(run.places.draw(&mut rng));
        let is_read = rng.below(100) < run.options.reads_percent;
        let sent = Instant::now();
        let done = if is_read {
            open.read(&key).await
        } else {
            open.write(&[(key, run.value(&mut rng))]).await
        };
        match done {
            Ok(()) => run.answered(sent),
            Err(error) => {
                run.failed(&error.to_string());
                connection = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
