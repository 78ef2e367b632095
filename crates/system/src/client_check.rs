//! What is wrong with a client: the protocol, step by step, against one program.

use crate::helpers;
use crate::protocol_message::{
    self as message, ClientCompletion, LINE_LENGTH_MAX, PROTOCOL_VERSION, Reply,
};
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{Generator as _, Simulation};
use seatrial_history::{Op, OpType, Process, Value};
use seatrial_machine::Rng;
use seatrial_runner::{Child, log_tail};
use serde_json::Map;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// What a check needs to know.
#[derive(Clone, Debug)]
pub struct ClientCheck<'c> {
    /// The client and its arguments.
    pub command: &'c [String],
    /// The workload whose operations it is given.
    pub workload: &'c str,
    /// A server to talk to; `None`: an address where nothing listens.
    pub address: Option<SocketAddr>,
    /// A folder for the client's standard error and for the helpers.
    pub folder: &'c Path,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFindings {
    /// What is wrong, one line each.
    pub findings: Vec<String>,
    /// What was tried, one line each.
    pub notes: Vec<String>,
}

/// From the start to the greeting.
const HELLO_LIMIT: Duration = Duration::from_secs(20);
/// Deadline of operations.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer may take after lines that were no message.
const ANSWER_LIMIT_AFTER_NOISE: Duration = Duration::from_secs(2);
/// From the end of the input to the end of the program.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Operations that are tried.
const OPERATIONS: u64 = 40;
/// Findings after which the check ends.
const FINDINGS_MAX: usize = 50;

/// The step that could not be taken; what is wrong is among the findings.
struct Stuck;

/// Checks a client.
pub async fn check_client(check: &ClientCheck<'_>) -> io::Result<ClientFindings> {
    assert!(!check.command.is_empty(), "a client has a program");
    helpers::write(check.folder)?;
    let log = check.folder.join("client.log");
    let mut findings = ClientFindings::default();
    let mut talk = match Talk::start(check, &log) {
        Ok(talk) => talk,
        Err(error) => {
            findings
                .findings
                .push(format!("{}: cannot be started: {error}", check.command[0]));
            return Ok(findings);
        }
    };
    let _ = talk.whole(check).await;
    findings = std::mem::take(&mut talk.found);
    let tail = log_tail(&log, 0);
    if !findings.findings.is_empty() && !tail.is_empty() {
        findings
            .notes
            .push(format!("the end of its standard error:\n{tail}"));
    }
    Ok(findings)
}

/// The conversation with one program.
struct Talk {
    child: Child,
    input: Option<pipe::Sender>,
    output: pipe::Receiver,
    buffer: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
    is_ended: bool,
    /// Has it printed lines that are no message?
    is_noisy: bool,
    next_id: u64,
    found: ClientFindings,
    /// By function: completions that were ok, fail and info.
    outcomes: BTreeMap<String, [u64; 3]>,
}

impl Talk {
    fn start(check: &ClientCheck<'_>, log: &Path) -> io::Result<Talk> {
        let mut command = Command::new(&check.command[0]);
        command.args(&check.command[1..]);
        command
            .env("PYTHONPATH", check.folder)
            .env("NODE_PATH", check.folder);
        let (their_input, input) = io::pipe()?;
        let (output, their_output) = io::pipe()?;
        command
            .stdin(their_input)
            .stdout(their_output)
            .stderr(File::create(log)?);
        Ok(Talk {
            child: Child::spawn(command)?,
            input: Some(pipe::Sender::from_owned_fd(input.into())?),
            output: pipe::Receiver::from_owned_fd(output.into())?,
            buffer: Vec::new(),
            lines: VecDeque::new(),
            is_ended: false,
            is_noisy: false,
            next_id: 0,
            found: ClientFindings::default(),
            outcomes: BTreeMap::new(),
        })
    }

    fn finding(&mut self, text: impl Into<String>) {
        if self.found.findings.len() < FINDINGS_MAX {
            self.found.findings.push(text.into());
        }
    }

    /// A finding after which nothing more can be learnt.
    fn stuck<T>(&mut self, text: impl Into<String>) -> Result<T, Stuck> {
        self.finding(text);
        Err(Stuck)
    }

    async fn say(&mut self, line: &str) -> Result<(), Stuck> {
        let Some(input) = &mut self.input else {
            return Err(Stuck);
        };
        match timeout(ANSWER_LIMIT, input.write_all(line.as_bytes())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => self.ended("while it was written to").await,
            Err(_) => self.stuck("input: it does not read its standard input"),
        }
    }

    async fn ended<T>(&mut self, when: &str) -> Result<T, Stuck> {
        let status = timeout(Duration::from_millis(500), self.child.end()).await;
        match status {
            Ok(status) => self.stuck(format!("end: it ended {when} ({status})")),
            Err(_) => self.stuck(format!("end: it closed its standard output {when}")),
        }
    }

    /// The next message; `what` says what it should be. A program that has printed something else is not waited for as long: it
    /// may have meant that.
    async fn hear(&mut self, what: &str, limit: Duration) -> Result<Reply, Stuck> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                match message::read(&line) {
                    Ok(reply) => return Ok(reply),
                    Err(error) => {
                        self.finding(format!("{what}: {error}"));
                        self.is_noisy = true;
                        if self.found.findings.len() >= FINDINGS_MAX {
                            return Err(Stuck);
                        }
                        continue;
                    }
                }
            }
            if self.is_ended {
                return self.ended(&format!("before {what}")).await;
            }
            let limit = if self.is_noisy {
                limit.min(ANSWER_LIMIT_AFTER_NOISE)
            } else {
                limit
            };
            let mut piece = vec![0; 64 * 1024];
            match timeout(limit, self.output.read(&mut piece)).await {
                Ok(Ok(0) | Err(_)) => self.is_ended = true,
                Ok(Ok(length)) => self.take(&piece[..length])?,
                Err(_) => {
                    return self.stuck(format!("{what}: no message within {} s", limit.as_secs()));
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Stuck> {
        self.buffer.extend_from_slice(bytes);
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.lines.push_back(line[..end].to_vec());
            }
        }
        if self.buffer.len() > LINE_LENGTH_MAX {
            return self.stuck(format!(
                "output: a line of more than {LINE_LENGTH_MAX} bytes"
            ));
        }
        Ok(())
    }

    /// All steps, until one is stuck.
    async fn whole(&mut self, check: &ClientCheck<'_>) -> Result<(), Stuck> {
        self.greet(check).await?;
        let mut is_open = false;
        for worker in [0, 1] {
            is_open = self.open(worker, check).await?;
        }
        if is_open {
            self.operations(check).await?;
            self.unknown_function().await?;
            self.one_closes(check).await?;
        } else {
            let text =
                "no operation was tried: the client opened no worker; name a server with --address";
            self.found.notes.push(text.into());
        }
        self.end().await
    }

    async fn greet(&mut self, check: &ClientCheck<'_>) -> Result<(), Stuck> {
        self.say(&message::hello(Some(check.workload), &Map::new()))
            .await?;
        match self.hear("hello", HELLO_LIMIT).await? {
            Reply::Hello(PROTOCOL_VERSION) => Ok(()),
            Reply::Hello(version) => self.stuck(format!(
                "hello: expected protocol {PROTOCOL_VERSION}, got {version}"
            )),
            other => self.stuck(format!(
                "hello: expected {{\"type\":\"hello\",…}}, got {}",
                name(&other)
            )),
        }
    }

    /// True if the worker is open.
    async fn open(&mut self, worker: u32, check: &ClientCheck<'_>) -> Result<bool, Stuck> {
        // Nothing listens at port 1 of the loopback device.
        let address = check
            .address
            .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 1)));
        let address = address.to_string();
        let addresses = BTreeMap::from([("n1".to_owned(), address.clone())]);
        self.say(&message::open(worker, "n1", &address, &addresses, DEADLINE))
            .await?;
        let what = format!("open of worker {worker}");
        match self.hear(&what, ANSWER_LIMIT).await? {
            Reply::Opened(opened) if opened == worker => Ok(true),
            Reply::OpenFailed(failed, error) if failed == worker => {
                if check.address.is_some() {
                    self.finding(format!("{what}: it failed at {address}: {error}"));
                }
                Ok(false)
            }
            other => self.stuck(format!(
                "{what}: expected opened or open_failed of worker {worker}, got {}",
                name(&other)
            )),
        }
    }

    async fn invoke(&mut self, worker: u32, op: &Op) -> Result<u64, Stuck> {
        let id = self.next_id;
        self.next_id += 1;
        let mut line = String::new();
        message::invoke(&mut line, id, worker, op, DEADLINE);
        self.say(&line).await?;
        Ok(id)
    }

    /// The answer to one of these operations, with its place among them.
    async fn answer(&mut self, open: &[(u64, Op)]) -> Result<(usize, ClientCompletion), Stuck> {
        let (_, op) = &open[0];
        let what = format!("invoke of `{}` {}", op.f, op.value);
        match self.hear(&what, DEADLINE + ANSWER_LIMIT).await? {
            Reply::Completion(completion) => {
                let place = open.iter().position(|(id, _)| *id == completion.id);
                if let Some(place) = place {
                    return Ok((place, completion));
                }
                let ids: Vec<String> = open.iter().map(|(id, _)| id.to_string()).collect();
                let (ids, id) = (ids.join(" or "), completion.id);
                self.stuck(format!(
                    "{what}: expected an answer to id {ids}, got one to id {id}"
                ))
            }
            other => self.stuck(format!(
                "{what}: expected ok, fail or info, got {}",
                name(&other)
            )),
        }
    }

    fn completed(&mut self, op: &Op, completion: &ClientCompletion, workload: Option<&str>) {
        let counts = self.outcomes.entry(op.f.as_str().to_owned()).or_default();
        match completion.kind {
            OpType::Ok => counts[0] += 1,
            OpType::Fail => counts[1] += 1,
            _ => counts[2] += 1,
        }
        if let Err(fault) = completion.of(op, workload) {
            self.finding(fault);
        }
    }

    /// Operations of the workload, two at a time.
    async fn operations(&mut self, check: &ClientCheck<'_>) -> Result<(), Stuck> {
        let mut operations = operations(check.workload);
        while !operations.is_empty() {
            let mut open = Vec::new();
            for (worker, op) in operations
                .split_off(operations.len().saturating_sub(2))
                .into_iter()
                .enumerate()
            {
                let id = self.invoke(worker as u32, &op).await?;
                open.push((id, op));
            }
            while !open.is_empty() {
                let (place, completion) = self.answer(&open).await?;
                let (_, op) = open.remove(place);
                self.completed(&op, &completion, Some(check.workload));
            }
        }
        let outcomes = std::mem::take(&mut self.outcomes);
        for (f, [ok, fail, info]) in outcomes {
            self.found
                .notes
                .push(format!("`{f}`: {ok} ok, {fail} fail, {info} info"));
            if ok == 0 && check.address.is_some() {
                self.finding(format!("`{f}` never succeeded: {fail} fail, {info} info"));
            }
        }
        Ok(())
    }

    /// An operation that the client does not know must not succeed.
    async fn unknown_function(&mut self) -> Result<(), Stuck> {
        let op = Op::invoke(Process::Client(0), "no-such-function", Value::Nil);
        let id = self.invoke(0, &op).await?;
        let (_, completion) = self.answer(&[(id, op)]).await?;
        if completion.kind == OpType::Ok {
            self.finding("invoke of an unknown function: expected fail, got ok");
        }
        Ok(())
    }

    /// A closed worker leaves the others as they are, and can be opened again.
    async fn one_closes(&mut self, check: &ClientCheck<'_>) -> Result<(), Stuck> {
        self.say(&message::close(0)).await?;
        if let Some(op) = operations(check.workload).pop() {
            let id = self.invoke(1, &op).await?;
            let open = [(id, op)];
            let what = "invoke of worker 1 after worker 0 was closed";
            match self.hear(what, DEADLINE + ANSWER_LIMIT).await? {
                Reply::Closed(0) => drop(self.answer(&open).await?),
                Reply::Completion(completion) if completion.id == id => {}
                other => return self.stuck(format!("{what}: got {}", name(&other))),
            }
        }
        if !self.open(0, check).await? {
            self.finding("open of worker 0 after it was closed: it failed");
        }
        Ok(())
    }

    /// The input ends, and so does the client.
    async fn end(&mut self) -> Result<(), Stuck> {
        self.input = None;
        match timeout(END_LIMIT, self.child.end()).await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => self.stuck(format!(
                "end: after the end of its input it ended with {status}, expected status 0"
            )),
            Err(_) => {
                let seconds = END_LIMIT.as_secs();
                self.stuck(format!(
                    "end: it did not end within {seconds} s after the end of its input"
                ))
            }
        }
    }
}

/// A message by its type.
fn name(reply: &Reply) -> String {
    match reply {
        Reply::Hello(_) => "hello".into(),
        Reply::Opened(worker) => format!("opened of worker {worker}"),
        Reply::OpenFailed(worker, _) => format!("open_failed of worker {worker}"),
        Reply::Closed(worker) => format!("closed of worker {worker}"),
        Reply::Completion(completion) => format!("an answer to id {}", completion.id),
    }
}

/// Operations of a workload, as a test draws them.
fn operations(workload: &str) -> Vec<Op> {
    let options = WorkloadOptions::default();
    let Ok(made) = Workload::new(workload, &Rng::from_seed(1), &options) else {
        return Vec::new();
    };
    let history = Simulation::perfect(made.generator.limit(OPERATIONS).clients(), 2).run();
    let history =
        history.unwrap_or_else(|failure| panic!("a workload of seatrial fails: {failure}"));
    let invoked = history.iter().filter(|op| op.is_invoke());
    let mut operations: Vec<Op> = invoked.cloned().collect();
    if workload.contains("queue") {
        operations.insert(0, Op::invoke(Process::Client(0), "drain", Value::Nil));
    }
    operations.reverse();
    operations
}

#[cfg(test)]
mod tests;
