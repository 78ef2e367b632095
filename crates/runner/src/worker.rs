//! Carries out the operations of one thread of the test.

use crate::{BoxFuture, Client, Clients, Seat};
use seatrial_history::{Op, OpType, Process, Symbol, Value};
use seatrial_machine::{NodeId, panic_text};
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// A worker owns one client at a time and carries out one operation at a time, and whatever the client does, it
/// answers each operation with one completion: an error, a panic and a time-out become `info`, a client that cannot
/// be opened becomes `fail`. A process that crashed gets a new client.
///
/// Trouble that comes at once (a dead node refuses in microseconds) would flood the history with doubtful
/// operations: from the second failure in a row on, the worker waits a little before it answers.
pub(crate) struct Worker {
    seat: Seat,
    clients: Arc<dyn Clients>,
    /// Longest time that opening a client, or one operation, may take.
    timeout: Duration,
    /// The client and the process that it serves.
    client: Option<(Process, Box<dyn Client>)>,
    /// Failures in a row that cost the client.
    troubles: u32,
    alarm: Alarm,
}

/// The field that says why an operation did not end well.
const ERROR: Symbol = Symbol::new("error");
/// First pause after trouble in a row; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(160);
/// How long a client may take to say good-bye.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

impl Worker {
    pub(crate) fn new(seat: Seat, clients: Arc<dyn Clients>, timeout: Duration) -> Worker {
        Worker {
            seat,
            clients,
            timeout,
            client: None,
            troubles: 0,
            alarm: Alarm::default(),
        }
    }

    /// Which node it talks to.
    pub(crate) fn node(&self) -> NodeId {
        self.seat.node
    }

    /// Opens the first client before the test begins. A failure shows with the first operation, if it lasts.
    pub(crate) async fn open_early(&mut self, process: Process) {
        let _ = self.open(process).await;
    }

    /// Carries out one operation.
    pub(crate) async fn carry_out(&mut self, op: &Op) -> Op {
        let completion = self.attempt(op).await;
        if self.client.is_some() {
            self.troubles = 0;
            return completion;
        }
        let pause = match self.troubles {
            0 => Duration::ZERO,
            count => (PAUSE_MIN * (1 << (count - 1).min(8))).min(PAUSE_MAX),
        };
        self.troubles = self.troubles.saturating_add(1);
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
            return crashed(op, "no client");
        };
        let invoked = caught(|| client.invoke(op));
        let answer = self.alarm.limit(self.timeout, invoked).await;
        let usable = client.is_usable();
        let (completion, broken) = match answer {
            Some(Ok(Ok(answer))) => (valid(op, answer), false),
            Some(Ok(Err(error))) => (crashed(op, &error.to_string()), false),
            Some(Err(panic)) => (crashed(op, &format!("panic: {panic}")), true),
            None => (crashed(op, "timeout"), true),
        };
        if broken {
            self.client = None;
        } else if completion.is_info() || !usable {
            self.close().await;
        }
        completion
    }

    async fn open(&mut self, process: Process) -> Result<(), String> {
        let open = caught(|| self.clients.open(&self.seat));
        let client = match timeout(self.timeout, open).await {
            Ok(Ok(Ok(client))) => client,
            Ok(Ok(Err(error))) => return Err(error.to_string()),
            Ok(Err(panic)) => return Err(format!("panic: {panic}")),
            Err(_) => return Err("timeout".into()),
        };
        self.client = Some((process, client));
        Ok(())
    }

    /// Drops the client, whatever it is doing.
    pub(crate) fn abandon(&mut self) {
        self.client = None;
    }

    /// Says good-bye to the client, if there is one.
    pub(crate) async fn close(&mut self) {
        if let Some((_, mut client)) = self.client.take() {
            let _ = timeout(CLOSE_LIMIT, caught(|| client.close())).await;
        }
    }
}

/// One timer for all operations of a worker. It is set when it goes off too early for the operation that is under way, not for
/// each operation: setting and clearing a timer costs as much as the rest of a worker.
#[derive(Default)]
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// What `doing` returns; `None` when it takes longer than `limit`.
    async fn limit<T>(&mut self, limit: Duration, doing: impl Future<Output = T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let alarm = self.0.get_or_insert_with(|| Box::pin(sleep(limit)));
        let mut doing = pin!(doing);
        poll_fn(|context| {
            if let Poll::Ready(done) = doing.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if alarm.deadline() > deadline {
                alarm.as_mut().reset(deadline);
            }
            while alarm.as_mut().poll(context).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(None);
                }
                alarm.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

/// The completion of an operation whose fate nobody knows.
fn crashed(op: &Op, error: &str) -> Op {
    op.complete(OpType::Info, op.value.clone())
        .with(ERROR, Value::text(error))
}

/// What the client answered, unless that is no completion of `op`.
fn valid(op: &Op, answer: Op) -> Op {
    if answer.process == op.process && answer.f == op.f && answer.kind != OpType::Invoke {
        return answer;
    }
    crashed(
        op,
        &format!("the client's answer is no completion: {answer}"),
    )
}

/// Runs what a client does; a panic, in making the future or in it, becomes an error with its message.
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

    /// Opens clients that do what the operation's `f` says; counts how many.
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
            _seat: &'a Seat,
        ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                if self.refuse {
                    return Err("nobody is there".into());
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
        let seat = Seat {
            endpoint: NodeId::client(0),
            node: NodeId::server(1),
            address: ([127, 0, 0, 1], 1).into(),
            mesh: Mesh::new(tokio::runtime::Handle::current()),
        };
        Worker::new(
            seat,
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
    async fn whatever_happens_there_is_one_completion() {
        let actors = Arc::new(Actors::default());
        let mut worker = worker(&actors);
        worker.open_early(Process::Client(0)).await;
        let fine = worker.carry_out(&op(0, "read")).await;
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
            let done = worker.carry_out(&op(number, f)).await;
            assert_eq!(done.kind, OpType::Info, "{f}");
            assert_eq!(error(&done), text, "{f}");
            assert_eq!((done.process, done.f), (Process::Client(number), f.into()));
        }
        let lie = worker.carry_out(&op(9, "lie")).await;
        assert!(
            lie.is_info() && error(&lie).contains("no completion"),
            "{lie}"
        );
        assert_eq!(
            actors.opened.load(Ordering::Relaxed),
            6,
            "one client per process"
        );
        let closed = actors.closed.load(Ordering::Relaxed);
        assert_eq!(closed, 3, "no good-bye after panic and time-out");
    }

    /// An alarm that was set for an earlier operation goes off for none that has time left.
    #[tokio::test]
    async fn each_operation_has_the_whole_time() {
        let mut alarm = Alarm::default();
        let limit = Duration::from_millis(200);
        for _ in 0..5 {
            let done = alarm.limit(limit, sleep(Duration::from_millis(70))).await;
            assert_eq!(done, Some(()));
        }
        let never = std::future::pending::<()>;
        for limit in [limit, Duration::from_millis(20), limit] {
            let began = Instant::now();
            assert_eq!(alarm.limit(limit, never()).await, None);
            let took = began.elapsed();
            assert!(
                took >= limit && took < limit + Duration::from_secs(5),
                "{took:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_client_that_is_used_up_is_replaced() {
        let actors = Arc::new(Actors::default());
        let mut worker = worker(&actors);
        for f in ["fine", "wear-out", "fine"] {
            assert_eq!(worker.carry_out(&op(0, f)).await.kind, OpType::Ok);
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
            let done = worker.carry_out(&op(0, "read")).await;
            assert_eq!(done.kind, OpType::Fail);
            assert_eq!(error(&done), "\"no client: nobody is there\"");
        }
        assert!(began.elapsed() >= PAUSE_MIN * 7, "{:?}", began.elapsed());
        assert_eq!(actors.opened.load(Ordering::Relaxed), 4);
    }
}
