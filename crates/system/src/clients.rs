//! Clients that are programs: their processes, one for all workers or one for each.

use crate::client_process::{ClientProcess, ProtocolBreaches};
use crate::nodes::{SharedSystem, write_files};
use crate::protocol_message as message;
use crate::scope::NoNode;
use crate::short_command as command;
use seatrial_checker::CLIENT_FAULT;
use seatrial_history::{Op, OpType, Symbol, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// From the start of a process to its greeting.
const HELLO_LIMIT: Duration = Duration::from_secs(20);

/// Opens clients of the program that the file names.
///
/// A process is started when the first worker needs it, and again after it has died or broken the protocol. The workers of one
/// process wait for each other only while it starts.
pub(crate) struct ProgramClients {
    shared: Arc<SharedSystem>,
    workload: Option<&'static str>,
    /// The deadline of operations.
    timeout: Duration,
    /// One, or one for each worker.
    processes: Vec<Mutex<Option<Arc<ClientProcess>>>>,
    breaches: Arc<ProtocolBreaches>,
}

impl ProgramClients {
    pub(crate) fn new(
        shared: Arc<SharedSystem>,
        workload: Option<&'static str>,
        timeout: Duration,
        concurrency: u32,
    ) -> ProgramClients {
        let count = if shared.definition.client.is_per_worker {
            concurrency
        } else {
            1
        };
        ProgramClients {
            shared,
            workload,
            timeout,
            processes: (0..count.max(1)).map(|_| Mutex::new(None)).collect(),
            breaches: Arc::default(),
        }
    }

    /// Starts a process and waits for its greeting.
    async fn start(&self, number: usize) -> Result<Arc<ClientProcess>, String> {
        let cluster = self.shared.cluster()?;
        let client = &self.shared.definition.client;
        let scope = NoNode {
            folders: &cluster.folders,
            count: cluster.names.len(),
        };
        write_files(&client.files, None, &scope)?;
        let mut filled = command::filled(&client.command, &client.environment, &scope)?;
        filled.env("PYTHONPATH", python_path(&cluster.folders.helpers));
        filled.env("NODE_PATH", &cluster.folders.helpers);
        filled.current_dir(&cluster.folders.home);
        let shown = command::shown(&filled);
        let log = match self.processes.len() {
            1 => "client.log".to_owned(),
            _ => format!("client-{number}.log"),
        };
        let log = cluster.folders.run.join(log);
        let hello = message::hello(self.workload, &client.options);
        let process = ClientProcess::start(filled, &log, &hello, Arc::clone(&self.breaches));
        let process =
            process.map_err(|error| format!("the client `{shown}` cannot be started: {error}"))?;
        let greeted = tokio::time::timeout(HELLO_LIMIT, process.greeted()).await;
        match greeted {
            Ok(Ok(())) => Ok(Arc::new(process)),
            Ok(Err(reason)) => Err(format!("the client `{shown}` did not greet: {reason}")),
            Err(_) => Err(format!(
                "the client `{shown}` did not greet within {} s",
                HELLO_LIMIT.as_secs()
            )),
        }
    }

    /// The process of a worker, started anew if it is gone.
    async fn process(&self, worker: u32) -> Result<Arc<ClientProcess>, String> {
        let number = worker as usize % self.processes.len();
        let mut slot = self.processes[number].lock().await;
        if let Some(process) = slot.as_ref().filter(|process| !process.is_gone()) {
            return Ok(Arc::clone(process));
        }
        *slot = None; // kills what is left of the last one
        let process = self.start(number).await?;
        Ok(Arc::clone(slot.insert(process)))
    }

    /// Starts one process, waits for its greeting, and ends it: does the client work at all?
    pub(crate) async fn try_out(&self) -> Result<(), String> {
        let process = self.start(0).await?;
        process.finish().await;
        // What it wrote then is no part of the test.
        while self.breaches.take().is_some() {}
        Ok(())
    }

    async fn open_here(&self, slot: &ClientSlot) -> Result<Box<dyn Client>, ClientError> {
        let worker = slot.endpoint.number();
        let process = self.process(worker).await?;
        let mut addresses = BTreeMap::new();
        for node in 1..=self.shared.definition.nodes.len() as u32 {
            let node = NodeId::server(node);
            addresses.insert(node.to_string(), slot.address_of(node)?.to_string());
        }
        let (node, address) = (slot.node.to_string(), slot.address.to_string());
        let line = message::open(worker, &node, &address, &addresses, self.timeout);
        process.open(worker, &line).await?;
        Ok(Box::new(ProgramClient {
            process,
            worker,
            workload: self.workload,
            timeout: self.timeout,
            breaches: Arc::clone(&self.breaches),
            is_per_worker: self.shared.definition.client.is_per_worker,
            is_open: true,
        }))
    }
}

/// The helpers, before the folders that the user named.
fn python_path(helpers: &std::path::Path) -> std::ffi::OsString {
    let mut path = helpers.as_os_str().to_owned();
    if let Some(own) = std::env::var_os("PYTHONPATH") {
        path.push(":");
        path.push(own);
    }
    path
}

impl Clients for ProgramClients {
    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(self.open_here(slot))
    }

    fn never_block(&self) -> bool {
        true
    }
}

/// One worker of a process.
struct ProgramClient {
    process: Arc<ClientProcess>,
    worker: u32,
    workload: Option<&'static str>,
    timeout: Duration,
    breaches: Arc<ProtocolBreaches>,
    is_per_worker: bool,
    is_open: bool,
}

/// The field of a completion that names a breach of the protocol.
const FAULT: Symbol = Symbol::new(CLIENT_FAULT);
const ERROR: Symbol = Symbol::new("error");

impl ProgramClient {
    async fn invoke_here(&self, op: &Op) -> Op {
        // A client that keeps its deadline answers in time; one that does not is given twice as long.
        let limit = self.timeout * 2;
        let answer = self
            .process
            .invoke(self.worker, op, self.timeout, limit)
            .await;
        let unknown = |error: &str| {
            let done = op.complete(OpType::Info, op.value.clone());
            done.with(ERROR, Value::text(error))
        };
        let done = match answer {
            Ok(completion) => match completion.of(op, self.workload) {
                Ok(done) => done,
                Err(fault) => {
                    return unknown(&format!("wrong answer: {fault}"))
                        .with(FAULT, Value::text(fault));
                }
            },
            Err(reason) => {
                if self.is_per_worker {
                    self.process.give_up(&reason);
                }
                unknown(&reason)
            }
        };
        match self.breaches.take() {
            Some(fault) => done.with(FAULT, Value::text(fault)),
            None => done,
        }
    }
}

impl Client for ProgramClient {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async { Ok(self.invoke_here(op).await) })
    }

    fn is_usable(&self) -> bool {
        !self.process.is_gone()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        if std::mem::take(&mut self.is_open) {
            self.process.close(self.worker);
        }
        Box::pin(std::future::ready(()))
    }
}

impl Drop for ProgramClient {
    /// A client that the runner abandons is not closed before.
    fn drop(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.process.close(self.worker);
        }
    }
}
