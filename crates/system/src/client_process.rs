//! A client's process: one program that carries out the operations of one worker or of many.

use crate::protocol_message::{self as message, ClientCompletion, LINE_LENGTH_MAX, Reply};
use seatrial_history::Op;
use seatrial_runner::{Child, log_tail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot, watch};

/// Lines that the client has not read yet, in bytes; a client with more has stopped reading.
const UNREAD_MAX: usize = 16 << 20;
/// Operations that were given up, whose late answers are still expected.
const GIVEN_UP_MAX: usize = 65_536;
/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;
/// From the end of its input until a client is killed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A client's process and its conversation. Dropping it kills the process.
///
/// Two tasks belong to it: one writes the lines that workers append to `ConversationState::unread`, in one piece whenever the
/// pipe has room; one reads lines and hands each answer to the worker that waits for it. A process that dies, or breaks the
/// protocol so that later answers cannot be trusted, is *gone*: every waiting worker learns why, and the next `open` starts
/// another process.
///
/// Memory: the lines not read yet (`UNREAD_MAX`), one line of the client (`LINE_LENGTH_MAX`), one entry for each open operation.
#[derive(Debug)]
pub(crate) struct ClientProcess {
    child: Child,
    shared: Arc<ProcessShared>,
    hello: watch::Receiver<bool>,
}

/// What workers and tasks share.
#[derive(Debug)]
struct ProcessShared {
    state: Mutex<ConversationState>,
    /// There are lines to write, or the process is to end.
    written: Notify,
    breaches: Arc<ProtocolBreaches>,
    /// Where its standard error goes, and where it begins there.
    log: PathBuf,
    log_offset: u64,
}

/// The conversation so far.
#[derive(Debug, Default)]
struct ConversationState {
    /// Lines that were not written yet.
    unread: String,
    next_id: u64,
    /// Operations without an answer.
    open: BTreeMap<u64, oneshot::Sender<ClientCompletion>>,
    /// Operations that were given up; a late answer to one is no breach.
    given_up: BTreeSet<u64>,
    /// Workers that wait for their `opened`.
    opening: BTreeMap<u32, oneshot::Sender<Result<(), String>>>,
    /// Workers that gave up waiting for it.
    late_opening: BTreeSet<u32>,
    /// Why it answers no longer.
    gone: Option<String>,
    /// Is its input closed?
    is_closed: bool,
}

/// ProtocolBreaches of the protocol that no completion has named yet. One object for all processes of a test.
#[derive(Debug, Default)]
pub(crate) struct ProtocolBreaches {
    count: AtomicU64,
    unnamed: Mutex<Vec<String>>,
}

/// ProtocolBreaches that are kept until a completion names them.
const UNNAMED_MAX: usize = 64;

impl ProtocolBreaches {
    pub(crate) fn add(&self, text: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut unnamed = self.unnamed.lock().unwrap_or_else(PoisonError::into_inner);
        if unnamed.len() < UNNAMED_MAX {
            unnamed.push(text);
        }
    }

    /// A breach for the next completion.
    pub(crate) fn take(&self) -> Option<String> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut unnamed = self.unnamed.lock().unwrap_or_else(PoisonError::into_inner);
        unnamed.pop()
    }
}

impl ClientProcess {
    /// Starts a process and greets it. Its standard error goes to the file `log`.
    pub(crate) fn start(
        mut command: Command,
        log: &Path,
        hello: &str,
        breaches: Arc<ProtocolBreaches>,
    ) -> io::Result<ClientProcess> {
        let mut errors = OpenOptions::new().create(true).append(true).open(log)?;
        {
            use std::io::Write as _;
            writeln!(errors, "-- seatrial: a client starts")?;
        }
        let log_offset = errors.metadata()?.len();
        let (their_input, input) = io::pipe()?;
        let (output, their_output) = io::pipe()?;
        command
            .stdin(their_input)
            .stdout(their_output)
            .stderr(errors);
        let child = Child::spawn(command)?;
        let shared = Arc::new(ProcessShared {
            state: Mutex::new(ConversationState {
                unread: hello.to_owned(),
                ..ConversationState::default()
            }),
            written: Notify::new(),
            breaches,
            log: log.to_owned(),
            log_offset,
        });
        let (greeted, hello) = watch::channel(false);
        let input = pipe::Sender::from_owned_fd(input.into())?;
        let output = pipe::Receiver::from_owned_fd(output.into())?;
        tokio::spawn(write_lines(Arc::clone(&shared), input));
        tokio::spawn(read_lines(Arc::clone(&shared), output, greeted));
        Ok(ClientProcess {
            child,
            shared,
            hello,
        })
    }

    /// Waits until the client has greeted; an error has the reason why it will not.
    pub(crate) async fn greeted(&self) -> Result<(), String> {
        let mut hello = self.hello.clone();
        let is_greeted = hello.wait_for(|greeted| *greeted).await.is_ok();
        if is_greeted {
            return Ok(());
        }
        // The reader has ended.
        Err(self.reason().await)
    }

    /// Is it unable to answer?
    pub(crate) fn is_gone(&self) -> bool {
        self.shared.state().gone.is_some()
    }

    /// Why it answers no longer, with its exit status and the end of its standard error.
    async fn reason(&self) -> String {
        let gone = self.shared.state().gone.clone();
        let mut text = gone.unwrap_or_else(|| "it does not answer".into());
        if text == ENDED {
            let status = tokio::time::timeout(Duration::from_millis(500), self.child.end()).await;
            text = match status {
                Ok(status) => format!("the client ended ({status})"),
                Err(_) => "the client closed its standard output".into(),
            };
        }
        format!("{text}{}", self.shared.stderr())
    }

    /// Opens a worker.
    pub(crate) async fn open(&self, worker: u32, line: &str) -> Result<(), String> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if state.gone.is_none() {
                state.opening.insert(worker, sender);
                self.shared.say(&mut state, line);
            } else {
                drop(sender); // no answer will come
            }
        }
        let mut guard = OpeningGuard {
            shared: &self.shared,
            worker: Some(worker),
        };
        let answer = receiver.await;
        guard.worker = None;
        match answer {
            Ok(answer) => answer,
            Err(_) => Err(self.reason().await),
        }
    }

    /// Closes a worker.
    pub(crate) fn close(&self, worker: u32) {
        let mut state = self.shared.state();
        self.shared.say(&mut state, &message::close(worker));
    }

    /// Carries out an operation. An error: its outcome is unknown.
    pub(crate) async fn invoke(
        &self,
        worker: u32,
        op: &Op,
        deadline: Duration,
        limit: Duration,
    ) -> Result<ClientCompletion, String> {
        let (sender, receiver) = oneshot::channel();
        let id = self.shared.ask(worker, op, deadline, sender);
        let mut guard = InvocationGuard {
            shared: &self.shared,
            id: Some(id),
        };
        match tokio::time::timeout(limit, receiver).await {
            Ok(Ok(completion)) => {
                guard.id = None;
                Ok(completion)
            }
            Ok(Err(_)) => Err(self.reason().await),
            Err(_) => Err(format!(
                "no answer within {} s (the deadline was {} s){}",
                limit.as_secs_f64(),
                deadline.as_secs_f64(),
                self.shared.stderr()
            )),
        }
    }

    /// Ends the process because it cannot be used any longer.
    pub(crate) fn give_up(&self, reason: &str) {
        self.shared.end(reason);
    }

    /// Closes its input and waits until it has ended; kills it after a while. False if it had to be killed.
    pub(crate) async fn finish(&self) -> bool {
        self.shared.close_input();
        let ended = tokio::time::timeout(END_LIMIT, self.child.end())
            .await
            .is_ok();
        let _ = self.child.kill().await;
        ended
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        self.shared.close_input();
    }
}

/// The reason of a process whose output has ended.
const ENDED: &str = "ended";

/// Notes an operation as given up when its worker stops waiting, whichever way.
struct InvocationGuard<'p> {
    shared: &'p ProcessShared,
    id: Option<u64>,
}

impl Drop for InvocationGuard<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut state = self.shared.state();
            state.open.remove(&id);
            if state.given_up.len() == GIVEN_UP_MAX {
                state.given_up.pop_first();
            }
            state.given_up.insert(id);
        }
    }
}

/// Notes a worker whose opening was given up.
struct OpeningGuard<'p> {
    shared: &'p ProcessShared,
    worker: Option<u32>,
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker {
            let mut state = self.shared.state();
            state.opening.remove(&worker);
            state.late_opening.insert(worker);
            drop(state);
            self.shared.end("the client did not open a worker in time");
        }
    }
}

impl ProcessShared {
    fn state(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an operation; returns its id. The answer goes to `sender`, which is dropped if none can come.
    fn ask(
        &self,
        worker: u32,
        op: &Op,
        deadline: Duration,
        sender: oneshot::Sender<ClientCompletion>,
    ) -> u64 {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        if state.gone.is_some() {
            return id;
        }
        state.open.insert(id, sender);
        let mut unread = std::mem::take(&mut state.unread);
        message::invoke(&mut unread, id, worker, op, deadline);
        state.unread = unread;
        self.wake(&mut state);
        id
    }

    /// Appends a line for the client.
    fn say(&self, state: &mut ConversationState, line: &str) {
        debug_assert!(line.ends_with('\n'), "a message is a line");
        state.unread.push_str(line);
        self.wake(state);
    }

    fn wake(&self, state: &mut ConversationState) {
        if state.unread.len() > UNREAD_MAX {
            state.unread.clear();
            state.end("the client does not read its input");
        }
        self.written.notify_one();
    }

    /// The process answers no longer: every waiting worker is answered, and its input is closed.
    fn end(&self, reason: &str) {
        self.state().end(reason);
        self.written.notify_one();
    }

    fn close_input(&self) {
        self.state().is_closed = true;
        self.written.notify_one();
    }

    /// The end of its standard error, as the end of a message.
    fn stderr(&self) -> String {
        let tail = log_tail(&self.log, self.log_offset);
        if tail.is_empty() {
            return "; its standard error is empty".into();
        }
        let lines: Vec<&str> = tail.lines().collect();
        let kept: Vec<&str> = lines[lines.len().saturating_sub(6)..]
            .iter()
            .map(|line| line.trim())
            .collect();
        let kept: String = kept.join(" | ").chars().take(1_000).collect();
        format!("; the end of its standard error: {kept}")
    }

    /// A line of the client. An error ends the conversation.
    fn take_line(&self, line: &[u8], greeted: &watch::Sender<bool>) -> Result<(), String> {
        let reply = message::read(line)?;
        let is_greeted = *greeted.borrow();
        match reply {
            Reply::Hello(message::PROTOCOL_VERSION) => {
                greeted.send_replace(true);
                Ok(())
            }
            Reply::Hello(version) => {
                let own = message::PROTOCOL_VERSION;
                Err(format!(
                    "expected version {own} of the client protocol, got {version}"
                ))
            }
            _ if !is_greeted => Err(format!(
                "expected hello as the first message, got {}",
                message::shown(line)
            )),
            Reply::Opened(worker) => self.opened(worker, Ok(())),
            Reply::OpenFailed(worker, error) => self.opened(worker, Err(error)),
            Reply::Closed(_) => Ok(()),
            Reply::Completion(completion) => {
                self.completed(completion);
                Ok(())
            }
        }
    }

    fn opened(&self, worker: u32, answer: Result<(), String>) -> Result<(), String> {
        let mut state = self.state();
        if let Some(waiting) = state.opening.remove(&worker) {
            let _ = waiting.send(answer); // a worker that stopped waiting has left a note
            return Ok(());
        }
        if state.late_opening.remove(&worker) {
            return Ok(());
        }
        Err(format!("worker {worker} was opened, but not asked for"))
    }

    fn completed(&self, completion: ClientCompletion) {
        let mut state = self.state();
        let id = completion.id;
        if let Some(waiting) = state.open.remove(&id) {
            let _ = waiting.send(completion);
        } else if state.given_up.remove(&id) {
            // A late answer: the operation is recorded as `info`.
        } else if id < state.next_id {
            drop(state);
            self.breaches
                .add(format!("operation {id} was answered twice"));
        } else {
            drop(state);
            self.breaches.add(format!(
                "an answer to operation {id}, which was never invoked"
            ));
        }
    }
}

impl ConversationState {
    fn end(&mut self, reason: &str) {
        if self.gone.is_none() {
            self.gone = Some(reason.to_owned());
        }
        self.is_closed = true;
        self.open.clear();
        self.opening.clear();
    }
}

/// Writes lines until the input is to be closed.
async fn write_lines(shared: Arc<ProcessShared>, mut input: pipe::Sender) {
    loop {
        let (lines, is_closed) = {
            let mut state = shared.state();
            (std::mem::take(&mut state.unread), state.is_closed)
        };
        if !lines.is_empty() && input.write_all(lines.as_bytes()).await.is_err() {
            return; // the reader finds the end of the process
        }
        if is_closed {
            return;
        }
        if lines.is_empty() {
            shared.written.notified().await;
        }
    }
}

/// Reads lines until the output ends or the conversation does.
async fn read_lines(
    shared: Arc<ProcessShared>,
    mut output: pipe::Receiver,
    greeted: watch::Sender<bool>,
) {
    let mut buffer: Vec<u8> = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let length = match output.read(&mut piece).await {
            Ok(0) | Err(_) => break shared.end(ENDED),
            Ok(length) => length,
        };
        buffer.extend_from_slice(&piece[..length]);
        let mut begin = 0;
        while let Some(end) = buffer[begin..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[begin..begin + end];
            begin += end + 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if let Err(reason) = shared.take_line(line, &greeted) {
                return broken(&shared, &reason);
            }
        }
        buffer.drain(..begin);
        if buffer.len() > LINE_LENGTH_MAX {
            let reason = format!("a line of more than {LINE_LENGTH_MAX} bytes");
            return broken(&shared, &reason);
        }
    }
}

/// The client wrote what is no message: what follows cannot be trusted.
fn broken(shared: &ProcessShared, reason: &str) {
    shared.breaches.add(reason.to_owned());
    shared.end(&format!("the client broke the client protocol: {reason}"));
}
