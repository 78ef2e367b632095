//! Executes a schedule: one statement after another, each until it has ended or waits for a lock.

use crate::schedule_file::sessions;
use crate::{Schedule, ScheduleFileError, ScheduleRun, StepEnd, StepRecord};
use seatrial_runner::{ClientError, NodeError};
use seatrial_suite::{
    OptionValues, SqlFailure, SqlLevel, SqlRows, SqlSession, SqlSystem, SuiteError,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Why a schedule has no result.
#[derive(Debug, Error)]
pub enum ScheduleError {
    /// The suite could not set its system up, or connect.
    #[error("{0}")]
    Suite(SuiteError),
    /// A file of schedules is wrong.
    #[error(transparent)]
    File(#[from] ScheduleFileError),
    /// An argument is wrong.
    #[error("{0}")]
    Usage(String),
    /// A file or folder cannot be used.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An error, and the system, level and schedule at which it occurred.
    #[error("{place}: {error}")]
    At {
        /// Where.
        place: String,
        /// What.
        error: Box<ScheduleError>,
    },
    /// The server did not start or end.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A statement besides the steps failed.
    #[error("{sql}: {failure}")]
    Statement {
        /// The statement.
        sql: String,
        /// Why.
        failure: SqlFailure,
    },
    /// A connection broke in a step.
    #[error("step {number}, {sql}: {failure}")]
    Lost {
        /// The step's number, from 1.
        number: usize,
        /// The statement.
        sql: String,
        /// Why.
        failure: SqlFailure,
    },
    /// A step neither ended nor waited for a lock.
    #[error("step {number} did not end within {} s: {sql}", limit.as_secs())]
    Stuck {
        /// The step's number, from 1.
        number: usize,
        /// The statement.
        sql: String,
        /// The limit.
        limit: Duration,
    },
}

/// How often a server is asked whether a statement waits for a lock. MariaDB answers from a table that it renews if it was not
/// read for 100 ms.
const POLL: Duration = Duration::from_millis(110);
/// Answers in a row that count as waiting: the first may be of the moment before a lock was granted.
const POLLS: u32 = 2;
/// Time limit of a statement, waits included; servers give up earlier.
const LIMIT: Duration = Duration::from_mins(1);

/// Executes schedules on one server at one isolation level, one after another, each in sessions of its own.
pub struct ScheduleBench<'a> {
    system: &'a dyn SqlSystem,
    address: SocketAddr,
    options: OptionValues,
    /// Prepares tables, and asks whether others wait.
    watch: Box<dyn SqlSession>,
}

/// A session of a schedule.
struct ScheduleActor {
    state: ActorState,
    /// Asks whether it waits.
    question: String,
    /// Steps that are due and wait for the end of its statement.
    due: VecDeque<usize>,
    /// Was it rolled back?
    is_aborted: bool,
}

/// A session and the result of its statement.
type Ended = (Box<dyn SqlSession>, Result<SqlRows, SqlFailure>);

enum ActorState {
    Idle(Box<dyn SqlSession>),
    /// Executes the step at this place of the run.
    Busy(JoinHandle<Ended>, usize),
    /// Between the two.
    Taken,
}

/// A schedule while it is executed.
struct ScheduleExecution<'s> {
    schedule: &'s Schedule,
    actors: BTreeMap<String, ScheduleActor>,
    records: Vec<StepRecord>,
}

impl<'a> ScheduleBench<'a> {
    /// Connects to the server at this level.
    pub async fn open(
        system: &'a dyn SqlSystem,
        address: SocketAddr,
        level: &SqlLevel,
    ) -> Result<ScheduleBench<'a>, ScheduleError> {
        let options = level.values();
        let watch = system.open(address, &options, LIMIT).await;
        Ok(ScheduleBench {
            system,
            address,
            watch: watch.map_err(ScheduleError::Suite)?,
            options,
        })
    }

    /// Executes a schedule.
    pub async fn run(&mut self, schedule: &Schedule) -> Result<ScheduleRun, ScheduleError> {
        for sql in &schedule.setup {
            self.prepare(sql).await?;
        }
        let mut execution = ScheduleExecution {
            schedule,
            actors: self.actors(schedule).await?,
            records: Vec::new(),
        };
        for index in 0..schedule.steps.len() {
            let name = &schedule.steps[index].session;
            execution.actor(name).due.push_back(index);
            self.advance(&mut execution).await?;
        }
        self.finish(&mut execution).await?;
        let ScheduleExecution {
            actors, records, ..
        } = execution;
        for actor in actors.into_values() {
            if let ActorState::Idle(mut session) = actor.state {
                // A transaction that the schedule left open; that there is none is no error here.
                let _ = session.run("rollback", &[]).await;
            }
        }
        let finally = match &schedule.finally {
            Some(query) => Some(self.prepare(query).await?),
            None => None,
        };
        Ok(ScheduleRun {
            steps: records,
            finally,
        })
    }

    async fn prepare(&mut self, sql: &str) -> Result<SqlRows, ScheduleError> {
        let done = self.watch.run(sql, &[]).await;
        done.map_err(|failure| ScheduleError::Statement {
            sql: sql.to_owned(),
            failure,
        })
    }

    async fn actors(
        &self,
        schedule: &Schedule,
    ) -> Result<BTreeMap<String, ScheduleActor>, ScheduleError> {
        let mut actors = BTreeMap::new();
        for name in sessions(&schedule.steps) {
            let opened = self.system.open(self.address, &self.options, LIMIT).await;
            let mut session = opened.map_err(ScheduleError::Suite)?;
            let question = session.waiting_question().await;
            let question = question.map_err(|error| ScheduleError::Suite(error.into()))?;
            let actor = ScheduleActor {
                state: ActorState::Idle(session),
                question,
                due: VecDeque::new(),
                is_aborted: false,
            };
            actors.insert(name, actor);
        }
        Ok(actors)
    }

    /// Sends all steps that can be sent, and returns when every session is idle without a due step, or waits for a lock.
    async fn advance(
        &mut self,
        execution: &mut ScheduleExecution<'_>,
    ) -> Result<(), ScheduleError> {
        loop {
            let names: Vec<String> = execution.actors.keys().cloned().collect();
            for name in &names {
                self.settle(execution, name).await?;
            }
            // Oldest first: in the order of the schedule.
            let idle = execution.actors.iter().filter(|(_, actor)| actor.is_idle());
            let next = idle.filter_map(|(name, actor)| Some((*actor.due.front()?, name.clone())));
            let Some((_, name)) = next.min() else {
                return Ok(());
            };
            execution.send(&name);
        }
    }

    /// Returns when the session's statement, if there is one, has ended or waits for a lock.
    async fn settle(
        &mut self,
        execution: &mut ScheduleExecution<'_>,
        name: &str,
    ) -> Result<(), ScheduleError> {
        let began = Instant::now();
        let mut answers = 0;
        while !execution.collect(name, POLL).await? {
            let question = execution.actor(name).question.clone();
            let found = self.prepare(&question).await?;
            let waits = found.number().is_some_and(|number| number > 0);
            answers = if waits { answers + 1 } else { 0 };
            if answers == POLLS {
                execution.note_wait(name);
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(execution.stuck(name));
            }
        }
        Ok(())
    }

    /// Waits until no session has a statement or a due step: those that wait for each other are ended by the server.
    async fn finish(&mut self, execution: &mut ScheduleExecution<'_>) -> Result<(), ScheduleError> {
        let began = Instant::now();
        loop {
            self.advance(execution).await?;
            let mut actors = execution.actors.iter();
            let Some((name, _)) = actors.find(|(_, actor)| !actor.is_idle()) else {
                return Ok(());
            };
            let name = name.clone();
            if began.elapsed() > LIMIT {
                return Err(execution.stuck(&name));
            }
        }
    }
}

impl ScheduleActor {
    fn is_idle(&self) -> bool {
        matches!(self.state, ActorState::Idle(_))
    }
}

impl ScheduleExecution<'_> {
    fn actor(&mut self, name: &str) -> &mut ScheduleActor {
        self.actors
            .get_mut(name)
            .expect("each session has an actor")
    }

    /// Sends the first due step of a session that is idle, or leaves it out if the session was rolled back.
    fn send(&mut self, name: &str) {
        let place = self.records.len();
        let schedule = self.schedule;
        let actor = self.actor(name);
        let index = actor.due.pop_front().expect("a step is due");
        if !actor.is_aborted {
            let sql = schedule.steps[index].sql.clone();
            let state = std::mem::replace(&mut actor.state, ActorState::Taken);
            let ActorState::Idle(session) = state else {
                unreachable!("a busy session gets no statement");
            };
            actor.state = ActorState::Busy(tokio::spawn(execute(session, sql)), place);
        }
        self.records.push(StepRecord {
            index,
            has_waited: false,
            ended_after: place + 1,
            end: StepEnd::LeftOut,
        });
    }

    /// Is the session idle? Waits for the end of its statement, at most this long.
    async fn collect(&mut self, name: &str, limit: Duration) -> Result<bool, ScheduleError> {
        let sent = self.records.len();
        let actor = self.actor(name);
        let ActorState::Busy(handle, place) = &mut actor.state else {
            return Ok(true);
        };
        let place = *place;
        let Ok(ended) = timeout(limit, handle).await else {
            return Ok(false);
        };
        let (session, result) =
            ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        actor.state = ActorState::Idle(session);
        actor.is_aborted |= result.is_err();
        let index = self.records[place].index;
        let end = match result {
            Ok(rows) => StepEnd::Done(rows),
            Err(failure) if !failure.leaves_usable => {
                let sql = self.schedule.steps[index].sql.clone();
                return Err(ScheduleError::Lost {
                    number: index + 1,
                    sql,
                    failure,
                });
            }
            Err(failure) => StepEnd::Refused(failure.reason),
        };
        let record = &mut self.records[place];
        record.ended_after = sent;
        record.end = end;
        Ok(true)
    }

    fn note_wait(&mut self, name: &str) {
        if let ActorState::Busy(_, place) = self.actor(name).state {
            self.records[place].has_waited = true;
        }
    }

    fn stuck(&mut self, name: &str) -> ScheduleError {
        let index = match self.actor(name).state {
            ActorState::Busy(_, place) => self.records[place].index,
            _ => 0,
        };
        ScheduleError::Stuck {
            number: index + 1,
            sql: self.schedule.steps[index].sql.clone(),
            limit: LIMIT,
        }
    }
}

/// Executes one statement. A refused one ends the transaction: an application would do nothing else.
async fn execute(mut session: Box<dyn SqlSession>, sql: String) -> Ended {
    let begin = session.begin();
    let sql = if sql == "begin" { begin } else { &sql };
    let result = session.run(sql, &[]).await;
    if result.as_ref().is_err_and(|failure| failure.leaves_usable) {
        // A server that has rolled back already says that there is no transaction, or nothing.
        let _ = session.run("rollback", &[]).await;
    }
    (session, result)
}

impl From<ClientError> for ScheduleError {
    fn from(error: ClientError) -> ScheduleError {
        ScheduleError::Suite(error)
    }
}

#[cfg(test)]
mod tests;
