//! Schedules on a database that has one lock.

use super::*;
use crate::{Manner, ScheduleFile};
use seatrial_runner::BoxFuture;
use seatrial_suite::SqlValue;
use std::sync::{Arc, Mutex};

/// One lock, which `take` waits for and `commit` and `rollback` release. The session that waits second is refused.
#[derive(Clone, Default)]
struct OneLock(Arc<Mutex<LockState>>);

#[derive(Default)]
struct LockState {
    sessions: usize,
    owner: Option<usize>,
    waits: Vec<usize>,
}

struct LockSession {
    lock: OneLock,
    number: usize,
}

fn refused(reason: &str, leaves_usable: bool) -> SqlFailure {
    SqlFailure {
        reason: reason.into(),
        is_definite: true,
        leaves_usable,
    }
}

fn number(value: i64) -> SqlRows {
    SqlRows {
        rows: vec![vec![SqlValue::Integer(value)]],
        affected: 1,
    }
}

impl LockSession {
    async fn take(&self) -> Result<SqlRows, SqlFailure> {
        loop {
            {
                let mut state = self.lock.0.lock().unwrap();
                if state.owner.is_none_or(|owner| owner == self.number) {
                    state.owner = Some(self.number);
                    state.waits.retain(|waits| *waits != self.number);
                    return Ok(number(1));
                }
                if !state.waits.contains(&self.number) {
                    if !state.waits.is_empty() {
                        return Err(refused("another waits already", true));
                    }
                    state.waits.push(self.number);
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl SqlSession for LockSession {
    fn run<'a>(
        &'a mut self,
        sql: &'a str,
        _: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<SqlRows, SqlFailure>> {
        Box::pin(async move {
            if let Some(other) = sql.strip_prefix("waits ") {
                let state = self.lock.0.lock().unwrap();
                let waits = state.waits.contains(&other.parse().unwrap());
                return Ok(number(i64::from(waits)));
            }
            match sql {
                "take" => return self.take().await,
                "break" => return Err(refused("the connection broke", false)),
                "commit" | "rollback" => {
                    let mut state = self.lock.0.lock().unwrap();
                    state.owner = state.owner.filter(|owner| *owner != self.number);
                }
                _ => {}
            }
            Ok(SqlRows::default())
        })
    }

    fn waiting_question(&mut self) -> BoxFuture<'_, Result<String, SqlFailure>> {
        Box::pin(std::future::ready(Ok(format!("waits {}", self.number))))
    }
}

const LEVEL: SqlLevel = SqlLevel {
    name: "only",
    options: &[],
    has_own_server: false,
};

impl SqlSystem for OneLock {
    fn levels(&self) -> &'static [SqlLevel] {
        &[LEVEL]
    }

    fn version(&self) -> Result<String, ClientError> {
        Ok("1".into())
    }

    fn open<'a>(
        &'a self,
        _: SocketAddr,
        _: &'a OptionValues,
        _: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn SqlSession>, ClientError>> {
        let mut state = self.0.lock().unwrap();
        state.sessions += 1;
        let session = LockSession {
            lock: self.clone(),
            number: state.sessions,
        };
        Box::pin(std::future::ready(Ok(
            Box::new(session) as Box<dyn SqlSession>
        )))
    }
}

/// Executes these steps; the anomaly is that T1 and T2 commit.
async fn execute_steps(steps: &str) -> (Result<ScheduleRun, ScheduleError>, Schedule) {
    let text = format!(
        "title = \"t\"\n[[schedule]]\nname = \"s\"\nanomaly = \"a\"\nabout = \"b\"\nsteps = [{steps}]\n\
         occurs = [{{ commits = [\"T1\", \"T2\"] }}]\n"
    );
    let mut file = ScheduleFile::from_text("t", &text).unwrap();
    let schedule = file.schedules.remove(0);
    let system = OneLock::default();
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut bench = ScheduleBench::open(&system, address, &LEVEL).await.unwrap();
    (bench.run(&schedule).await, schedule)
}

#[tokio::test]
async fn a_step_of_a_session_that_waits_is_sent_when_it_goes_on() {
    let steps = r#""T1: take", "T2: take", "T2: commit", "T1: other", "T1: commit""#;
    let (run, schedule) = execute_steps(steps).await;
    let run = run.unwrap();
    let lines = run.lines(&schedule);
    let expected = [
        "T1  take  → (1)",
        "T2  take  → waits for a lock",
        "T1  other  → ok",
        "T1  commit  → ok",
        "T2    goes on: (1)",
        "T2  commit  → ok",
    ];
    assert_eq!(lines, expected);
    assert_eq!(run.manner(&schedule), Manner::Occurs);
}

#[tokio::test]
async fn a_refused_session_is_rolled_back_and_its_steps_are_left_out() {
    let steps = r#""T1: take", "T2: take", "T3: take", "T3: other", "T1: rollback", "T2: commit", "T1: commit""#;
    let (run, schedule) = execute_steps(steps).await;
    let run = run.unwrap();
    let lines = run.lines(&schedule);
    assert_eq!(lines[2], "T3  take  → refused: another waits already");
    assert_eq!(
        lines[3],
        "T3  other  → not sent: the session was rolled back"
    );
    assert_eq!(lines[5], "T2    goes on: (1)");
    assert!(run.steps.iter().any(|step| step.end == StepEnd::LeftOut));
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_with_its_step() {
    let steps = r#""T1: take", "T2: break", "T1: commit", "T2: commit""#;
    let (run, _) = execute_steps(steps).await;
    let error = run.unwrap_err().to_string();
    assert_eq!(error, "step 2, break: the connection broke");
}
