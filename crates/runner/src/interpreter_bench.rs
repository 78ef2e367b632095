//! Benchmark of the runner itself, without a system under test.

use crate::run::record;
use crate::{
    BoxFuture, Client, ClientError, ClientSlot, Clients, LiveChecks, NoNodes, RunError, RunFolder,
    Stop, Test, TestNetwork, plain_results,
};
use seatrial_generator::{Generator, function, mix, operation};
use seatrial_history::{Key, Op, OpType, Value};
use seatrial_machine::Rng;
use serde_json::{Map, json};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// Result of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct BenchFigures {
    /// Operations of clients; an invocation and its completion count as one.
    pub operations: u64,
    /// Events in the history: invocations and completions.
    pub events: u64,
    /// Time from the first invocation to the last completion.
    pub elapsed: Duration,
    /// Length of the sealed test file, in bytes.
    pub file_length: u64,
}

impl BenchFigures {
    /// Operations per second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

/// A client that completes every operation at once; every read returns 0.
struct ImmediateClient;

impl Clients for ImmediateClient {
    fn open<'a>(
        &'a self,
        _slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async { Ok(Box::new(ImmediateClient) as Box<dyn Client>) })
    }
}

impl Client for ImmediateClient {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        let value = match &op.value {
            Value::Keyed(key, value) if **value == Value::Nil => {
                Value::Keyed(key.clone(), Arc::new(Value::Int(0)))
            }
            other => other.clone(),
        };
        Box::pin(std::future::ready(Ok(op.complete(OpType::Ok, value))))
    }
}

/// Runs `invocations` reads and writes of 64 registers over `concurrency` workers whose clients complete at once, with the
/// history on disk in `folder`, and measures the time.
pub fn bench_interpreter(
    folder: RunFolder,
    concurrency: u32,
    invocations: u64,
) -> Result<BenchFigures, RunError> {
    let seed = 1;
    let rng = Rng::from_seed(seed);
    let (mut reads, mut writes) = (rng.fork("reads"), rng.fork("writes"));
    let key = |rng: &mut Rng| Key::Int(rng.below(64) as i64);
    let read = function(move || {
        let value = Value::Keyed(key(&mut reads), Arc::new(Value::Nil));
        Some(operation("read", value))
    });
    let write = function(move || {
        let written = Value::Int(writes.below(1000) as i64);
        let value = Value::Keyed(key(&mut writes), Arc::new(written));
        Some(operation("write", value))
    });
    let both = mix(rng.fork("mix"), [read.boxed(), write.boxed()]);
    let name = json!("interpreter");
    let outcome = record(Test {
        attributes: Map::from_iter([("name".into(), name)]),
        folder,
        nodes: Arc::new(NoNodes),
        clients: Arc::new(ImmediateClient),
        concurrency,
        timeout: Duration::from_secs(5),
        generator: both.limit(invocations).clients().boxed(),
        breaks_network: false,
        network: TestNetwork::default(),
        rate: None,
        limiting_rate: None,
        checkers: Vec::new(),
        watch: LiveChecks::default(),
        accept_undecided: false,
        minimum: seatrial_check::MinimumLoad::default(),
        folder_checks: Vec::new(),
        certify: false,
        seed,
        stop: Stop::new(),
        results: Box::new(plain_results),
    })?;
    let metadata = fs::metadata(&outcome.history_path);
    Ok(BenchFigures {
        operations: outcome.counts.invoked,
        events: outcome.counts.invoked + outcome.counts.completed(),
        elapsed: outcome.load,
        file_length: metadata.map_or(0, |metadata| metadata.len()),
    })
}
