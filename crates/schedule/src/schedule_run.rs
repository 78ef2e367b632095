//! What a schedule has done to a database.

use crate::schedule_file::{FINAL, Occurrence};
use crate::{Schedule, ScheduleStep};
use seatrial_suite::SqlRows;
use std::fmt;

/// One execution of a schedule.
#[derive(Clone, Debug)]
pub struct ScheduleRun {
    /// The steps in the order in which they were sent, which is that of the schedule but for steps of sessions that waited.
    pub steps: Vec<StepRecord>,
    /// The rows of the query after the last step.
    pub finally: Option<SqlRows>,
}

/// One step that was sent, or left out.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// Its place in the schedule.
    pub index: usize,
    /// Did the server say that it waits for a lock?
    pub has_waited: bool,
    /// The number of steps that had been sent when it ended.
    pub ended_after: usize,
    /// How it ended.
    pub end: StepEnd,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// With this result.
    Done(SqlRows),
    /// The server refused it, with this reason; the session was rolled back.
    Refused(String),
    /// It was not sent: its session had been rolled back.
    LeftOut,
}

/// What became of the anomaly of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    /// It was prevented without a wait or an abort: sessions saw older versions.
    Versions,
    /// It was prevented: a session waited for a lock.
    Waits,
    /// It was prevented: a session was aborted.
    Aborts,
    /// It occurred.
    Occurs,
}

impl Manner {
    /// Its name in tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Manner::Versions => "versions",
            Manner::Waits => "waits",
            Manner::Aborts => "aborts",
            Manner::Occurs => "occurs",
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ScheduleRun {
    /// What became of the anomaly.
    pub fn manner(&self, schedule: &Schedule) -> Manner {
        let mut occurrences = schedule.occurs.iter();
        if occurrences.any(|occurrence| self.holds(schedule, occurrence)) {
            return Manner::Occurs;
        }
        let is_refused = |record: &StepRecord| matches!(record.end, StepEnd::Refused(_));
        if self.steps.iter().any(is_refused) {
            return Manner::Aborts;
        }
        if self.steps.iter().any(|record| record.has_waited) {
            return Manner::Waits;
        }
        Manner::Versions
    }

    fn holds(&self, schedule: &Schedule, occurrence: &Occurrence) -> bool {
        let ended = |record: &StepRecord, is_wanted: &dyn Fn(&ScheduleStep) -> bool| {
            matches!(record.end, StepEnd::Done(_)) && is_wanted(&schedule.steps[record.index])
        };
        let commits = |session: &String| {
            let is_commit = |step: &ScheduleStep| step.session == *session && step.sql == "commit";
            self.steps.iter().any(|record| ended(record, &is_commit))
        };
        let shows = |(label, rows): &(String, Vec<Vec<String>>)| {
            self.rows(schedule, label)
                .is_some_and(|found| *rows == found)
        };
        occurrence.commits.iter().all(commits) && occurrence.shows.iter().all(shows)
    }

    /// The rows with this label, as text.
    fn rows(&self, schedule: &Schedule, label: &str) -> Option<Vec<Vec<String>>> {
        if label == FINAL {
            return self.finally.as_ref().map(as_text);
        }
        self.steps.iter().find_map(|record| match &record.end {
            StepEnd::Done(rows) if schedule.steps[record.index].label.as_deref() == Some(label) => {
                Some(as_text(rows))
            }
            _ => None,
        })
    }

    /// One line for each step, and one for each that ended later than it was sent.
    pub fn lines(&self, schedule: &Schedule) -> Vec<String> {
        let mut lines = Vec::new();
        let width = schedule.steps.iter().map(|step| step.session.len()).max();
        let width = width.unwrap_or_default();
        for (number, record) in self.steps.iter().enumerate() {
            let step = &schedule.steps[record.index];
            let is_late = record.ended_after > number + 1;
            let end = match (record.has_waited, is_late) {
                (true, true) => "waits for a lock".to_owned(),
                (true, false) => format!("waits for a lock, then {}", shown(&record.end)),
                (false, _) => shown(&record.end),
            };
            lines.push(format!("{:width$}  {}  → {end}", step.session, step.sql));
            let ended = self.steps[..number].iter();
            for late in ended.filter(|late| late.ended_after == number + 1) {
                let session = &schedule.steps[late.index].session;
                lines.push(format!("{session:width$}    goes on: {}", shown(&late.end)));
            }
        }
        if let (Some(query), Some(rows)) = (&schedule.finally, &self.finally) {
            lines.push(format!("{FINAL}: {query}  → {}", rows_shown(rows)));
        }
        lines
    }
}

fn shown(end: &StepEnd) -> String {
    match end {
        StepEnd::Done(rows) => rows_shown(rows),
        StepEnd::Refused(reason) => format!("refused: {reason}"),
        StepEnd::LeftOut => "not sent: the session was rolled back".into(),
    }
}

fn rows_shown(rows: &SqlRows) -> String {
    match (rows.rows.is_empty(), rows.affected) {
        (true, 0) => "ok".into(),
        (true, 1) => "1 row".into(),
        (true, count) => format!("{count} rows"),
        _ => {
            let rows = as_text(rows).into_iter();
            let rows: Vec<String> = rows.map(|row| format!("({})", row.join(", "))).collect();
            rows.join(" ")
        }
    }
}

fn as_text(rows: &SqlRows) -> Vec<Vec<String>> {
    let row = |row: &Vec<seatrial_suite::SqlValue>| row.iter().map(ToString::to_string).collect();
    rows.rows.iter().map(row).collect()
}
