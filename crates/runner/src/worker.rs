//! Workers: each executes the operations of one thread of the test.

use crate::{BoxFuture, Client, ClientSlot, Clients, MovingTimer};
use seatrial_history::{Op, OpType, Process, Symbol, Value};
use seatrial_machine::{NodeId, panic_text};
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Executes one operation at a time, with one client at a time. It returns exactly one completion per operation, whatever the
/// client does: an error, a panic and a time-out become `info`, a client that cannot be opened becomes `fail`. After an `info`
/// the generator continues under a new process, for which the worker opens a new client.
///
/// A dead node refuses connections within microseconds and would flood the history with failures. So from the second failure in
/// a row on, the worker pauses before it returns the completion.
pub(crate) struct Worker {
    slot: ClientSlot,
    clients: Arc<dyn Clients>,
    /// Time limit of opening a client, and of an operation.
    timeout: Duration,
    /// The client, with the process that it was opened for.
    client: Option<(Process, Box<dyn Client>)>,
    /// Failures in a row after which the client was closed.
    failures: u32,
    timer: MovingTimer,
}

/// The field that holds the error of a completion.
const ERROR: Symbol = Symbol::new("error");
/// Pause at the second failure in a row; doubled at each further one.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(160);
/// Time limit of closing a client.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

impl Worker {
    pub(crate) fn new(slot: ClientSlot, clients: Arc<dyn Clients>, timeout: Duration) -> Worker {
        Worker {
            slot,
            clients,
            timeout,
            client: None,
            failures: 0,
            timer: MovingTimer::default(),
        }
    }

    /// The node of its clients.
    pub(crate) fn node(&self) -> NodeId {
        self.slot.node
    }

    /// Opens the first client before the test begins. On an error the first operation tries again.
    pub(crate) async fn open_early(&mut self, process: Process) {
        let _ = self.open(process).await;
    }

    /// Executes one operation and returns its completion.
    pub(crate) async fn execute(&mut self, op: &Op) -> Op {
        let completion = self.attempt(op).await;
        debug_assert!(!completion.is_invoke() && completion.process == op.process);
        if self.client.is_some() {
            self.failures = 0;
            return completion;
        }
        let pause = match self.failures {
            0 => Duration::ZERO,
            count => (PAUSE_MIN * (1 << (count - 1).min(8))).min(PAUSE_MAX),
        };
        self.failures = self.failures.saturating_add(1);
        sleep(pause).await;
        completion
    }

    async fn attempt(&mut self, op: &Op) -> Op {
        if !matches!(&self.client, Some((process, _)) if *process == op.process) {
            self.close().await;
            if let Err(reason) = self.open(op.process).await {
                let error = Value::text(format!("no client: {reason}"));
                return op
                    .complete(OpType::Fail, op.value.clone())
                    .with(ERROR, error);
            }
        }
        let Some((_, client)) = &mut self.client else {
            return indeterminate(op, "no client");
        };
        let invoked = caught(|| client.invoke(op));
        let answer = self.timer.limit(self.timeout, invoked).await;
        let is_usable = client.is_usable();
        let (completion, is_broken) = match answer {
            Some(Ok(Ok(answer))) => (valid(op, answer), false),
            Some(Ok(Err(error))) => (indeterminate(op, &error.to_string()), false),
            Some(Err(panic)) => (indeterminate(op, &format!("panic: {panic}")), true),
            None => (indeterminate(op, "timeout"), true),
        };
        if is_broken {
            // Its state is unknown: it is dropped without `close`.
            self.client = None;
        } else if completion.is_info() || !is_usable {
            self.close().await;
        }
        completion
    }

    async fn open(&mut self, process: Process) -> Result<(), String> {
        let open = caught(|| self.clients.open(&self.slot));
        let client = match timeout(self.timeout, open).await {
            Ok(Ok(Ok(client))) => client,
            Ok(Ok(Err(error))) => return Err(error.to_string()),
            Ok(Err(panic)) => return Err(format!("panic: {panic}")),
            Err(_) => return Err("timeout".into()),
        };
        self.client = Some((process, client));
        Ok(())
    }

    /// Drops the client, in any state.
    pub(crate) fn abandon(&mut self) {
        self.client = None;
    }

    /// Closes the client, if there is one.
    pub(crate) async fn close(&mut self) {
        if let Some((_, mut client)) = self.client.take() {
            let _ = timeout(CLOSE_LIMIT, caught(|| client.close())).await;
        }
    }
}

/// A completion with unknown outcome.
fn indeterminate(op: &Op, error: &str) -> Op {
    op.complete(OpType::Info, op.value.clone())
        .with(ERROR, Value::text(error))
}

/// The client's completion; `info` if it does not belong to `op`.
fn valid(op: &Op, answer: Op) -> Op {
    if answer.process == op.process && answer.f == op.f && answer.kind != OpType::Invoke {
        return answer;
    }
    indeterminate(
        op,
        &format!("the client returned an invalid completion: {answer}"),
    )
}

/// Runs a call of a client. A panic, in making the future or in polling it, becomes an error with its message.
async fn caught<'a, T>(make: impl FnOnce() -> BoxFuture<'a, T>) -> Result<T, String> {
    let message = |panic: Box<dyn Any + Send>| panic_text(&*panic).to_owned();
    let mut future = catch_unwind(AssertUnwindSafe(make)).map_err(message)?;
    poll_fn(
        move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(message(panic))),
        },
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientError, Mesh};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    /// Opens clients that behave as the operation's `f` says; counts them.
    #[derive(Default)]
    struct Actors {
        opened: AtomicU32,
        closed: Arc<AtomicU32>,
        refuse: bool,
    }

    struct Actor(Arc<AtomicU32>, bool);

    impl Clients for Actors {
        fn open<'a>(
            &'a self,
            _slot: &'a ClientSlot,
        ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                if self.refuse {
                    return Err("connection refused".into());
                }
                Ok(Box::new(Actor(Arc::clone(&self.closed), true)) as Box<dyn Client>)
            })
        }
    }

    impl Client for Actor {
        fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
            assert!(op.f != "panic-early", "early");
            self.1 = op.f != "wear-out";
            Box::pin(async move {
                match op.f.as_str() {
                    "panic" => panic!("number {}", 7),
                    "error" => Err("lost".into()),
                    "hang" => std::future::pending().await,
                    "lie" => Ok(Op::invoke(op.process, "other", Value::Nil)),
                    "info" => Ok(op.complete(OpType::Info, Value::Nil)),
                    _ => Ok(op.complete(OpType::Ok, Value::Int(1))),
                }
            })
        }

        fn is_usable(&self) -> bool {
            self.1
        }

        fn close(&mut self) -> BoxFuture<'_, ()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        }
    }

    fn worker(actors: &Arc<Actors>) -> Worker {
        let slot = ClientSlot {
            endpoint: NodeId::client(0),
            node: NodeId::server(1),
            address: ([127, 0, 0, 1], 1).into(),
            mesh: Mesh::new(tokio::runtime::Handle::current()),
        };
        Worker::new(
            slot,
            Arc::clone(actors) as Arc<dyn Clients>,
            Duration::from_millis(50),
        )
    }

    fn op(process: u64, f: &'static str) -> Op {
        Op::invoke(Process::Client(process), f, Value::Nil)
    }

    fn error(op: &Op) -> String {
        op.extra
            .get("error")
            .map_or_else(String::new, Value::to_string)
    }

    #[tokio::test]
    async fn each_operation_gets_one_completion() {
        let actors = Arc::new(Actors::default());
        let mut worker = worker(&actors);
        worker.open_early(Process::Client(0)).await;
        let fine = worker.execute(&op(0, "read")).await;
        assert_eq!((fine.kind, error(&fine)), (OpType::Ok, String::new()));
        assert_eq!(actors.opened.load(Ordering::Relaxed), 1);
        let cases = [
            ("panic", "\"panic: number 7\""),
            ("panic-early", "\"panic: early\""),
            ("error", "\"lost\""),
            ("hang", "\"timeout\""),
            ("info", ""),
        ];
        for (number, (f, text)) in (0..).zip(cases) {
            let done = worker.execute(&op(number, f)).await;
            assert_eq!(done.kind, OpType::Info, "{f}");
            assert_eq!(error(&done), text, "{f}");
            assert_eq!((done.process, done.f), (Process::Client(number), f.into()));
        }
        let lie = worker.execute(&op(9, "lie")).await;
        assert!(
            lie.is_info() && error(&lie).contains("invalid completion"),
            "{lie}"
        );
        assert_eq!(
            actors.opened.load(Ordering::Relaxed),
            6,
            "one client per process"
        );
        let closed = actors.closed.load(Ordering::Relaxed);
        assert_eq!(closed, 3, "no close after panic and time-out");
    }

    #[tokio::test]
    async fn an_unusable_client_is_replaced() {
        let actors = Arc::new(Actors::default());
        let mut worker = worker(&actors);
        for f in ["fine", "wear-out", "fine"] {
            assert_eq!(worker.execute(&op(0, f)).await.kind, OpType::Ok);
        }
        assert_eq!(actors.opened.load(Ordering::Relaxed), 2);
        assert_eq!(actors.closed.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn no_client_is_a_certain_failure_and_slows_down() {
        let actors = Arc::new(Actors {
            refuse: true,
            ..Actors::default()
        });
        let mut worker = worker(&actors);
        let began = Instant::now();
        for _ in 0..4 {
            let done = worker.execute(&op(0, "read")).await;
            assert_eq!(done.kind, OpType::Fail);
            assert_eq!(error(&done), "\"no client: connection refused\"");
        }
        assert!(began.elapsed() >= PAUSE_MIN * 7, "{:?}", began.elapsed());
        assert_eq!(actors.opened.load(Ordering::Relaxed), 4);
    }
}
