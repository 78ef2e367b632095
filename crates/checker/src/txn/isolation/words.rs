//! Cycles in words.

use super::Forced;
use super::model::Model;
use super::program::{INITIAL, Program};
use super::witness::{Before, Why};
use crate::txn::dense::Map;
use crate::txn::registers::NONE;
use crate::{Anomaly, Finding, Step};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// A cycle of sessions and reads only: some transaction read from its own future.
const CAUSALITY_CYCLE: Anomaly = "causality-cycle";

/// The name of a cycle.
pub(super) fn anomaly(model: Model, cycle: &[Before]) -> Anomaly {
    let is_forced = |edge: &Before| matches!(edge.why, Why::Forced { .. });
    if cycle.iter().any(is_forced) {
        model.violation()
    } else {
        CAUSALITY_CYCLE
    }
}

/// The finding of a cycle: its transactions, and why each comes before the next.
pub(super) fn cycle(
    program: &Program<'_>,
    model: Model,
    anomaly: Anomaly,
    cycle: &[Before],
) -> Finding {
    let mut scene = Scene::new(program, model);
    for edge in cycle {
        scene.name(edge.from);
    }
    let mut lines = String::new();
    let mut steps = Vec::new();
    for (at, edge) in cycle.iter().enumerate() {
        let reason = scene.reason(edge);
        let is_last = at + 1 == cycle.len();
        let (start, end) = if is_last {
            ("However, ", ": a contradiction!")
        } else {
            ("", ".")
        };
        let (from, to) = (scene.name(edge.from), scene.name(edge.to));
        let _ = write!(lines, "\n  - {start}{from} < {to}, because {reason}{end}");
        steps.push(scene.step(edge, reason));
    }
    scene.finding(anomaly, &lines, steps)
}

/// The finding of a read of an initial state whose reader had seen somebody overwrite it.
pub(super) fn unborn(program: &Program<'_>, model: Model, forced: Forced) -> Finding {
    let mut scene = Scene::new(program, model);
    let (writer, reader) = (scene.name(forced.before), scene.name(forced.reader));
    let path = path(program, model, forced.before, forced.reader);
    let seen = scene.seen(&path);
    let key = program.columns.key(forced.key);
    let lines = format!(
        "\n  - {reader} had seen {writer}, because {seen}.\n  - However, {reader} read key {key} in its initial state, \
         before {writer} wrote it: a contradiction!"
    );
    let mut steps = Vec::new();
    for edge in &path {
        let reason = scene.reason(edge);
        steps.push(scene.step(edge, reason));
    }
    steps.push(Step {
        from: program.columns.index(forced.reader),
        to: program.columns.index(forced.before),
        relation: "rw",
        reason: format!("{reader} read the initial state of key {key}, which {writer} writes"),
    });
    scene.finding(model.violation(), &lines, steps)
}

/// Transactions with the names that they have in one finding.
struct Scene<'a> {
    program: &'a Program<'a>,
    model: Model,
    named: Vec<u32>,
}

impl<'a> Scene<'a> {
    fn new(program: &'a Program<'a>, model: Model) -> Scene<'a> {
        let named = Vec::new();
        Scene {
            program,
            model,
            named,
        }
    }

    fn name(&mut self, transaction: u32) -> String {
        let known = self.named.iter().position(|&one| one == transaction);
        let number = known.unwrap_or_else(|| {
            self.named.push(transaction);
            self.named.len() - 1
        });
        format!("T{}", number + 1)
    }

    fn reason(&mut self, edge: &Before) -> String {
        let columns = self.program.columns;
        let (from, to) = (self.name(edge.from), self.name(edge.to));
        match edge.why {
            Why::Session => {
                let session = columns.sessions()[edge.from as usize];
                let client = columns.client(session);
                let what = if columns.has_times() {
                    "process"
                } else {
                    "session"
                };
                format!("{what} {client} executed {from} before {to}")
            }
            Why::Read { version } => {
                let (key, value) = (columns.key_of(version), columns.shown_value(version));
                format!(
                    "{to} read {from}'s write of {value} to key {}",
                    columns.key(key)
                )
            }
            Why::Forced { reader, key } => {
                let path = path(self.program, self.model, edge.from, reader);
                let seen = self.seen(&path);
                let name = self.name(reader);
                let read = columns.events(reader).iter().find(|event| {
                    event.key() == key
                        && event.is_external_read()
                        && columns.writer(event.version()) == edge.to
                });
                let value =
                    read.map_or_else(String::new, |read| columns.shown_value(read.version()));
                let key = columns.key(key);
                format!(
                    "{name} read {to}'s write of {value} to key {key}, though it had seen {from}, which writes {key} \
                     too ({seen})"
                )
            }
        }
    }

    /// How the end of a path saw its beginning.
    fn seen(&mut self, path: &[Before]) -> String {
        let reasons: Vec<_> = path.iter().map(|edge| self.reason(edge)).collect();
        reasons.join(", and ")
    }

    fn step(&self, edge: &Before, reason: String) -> Step {
        let columns = self.program.columns;
        Step {
            from: columns.index(edge.from),
            to: columns.index(edge.to),
            relation: match edge.why {
                Why::Session => "process",
                Why::Read { .. } => "wr",
                // Both write the key.
                Why::Forced { .. } => "ww",
            },
            reason,
        }
    }

    fn finding(self, anomaly: Anomaly, lines: &str, steps: Vec<Step>) -> Finding {
        let columns = self.program.columns;
        let mut summary = String::from("Let:");
        for (number, &transaction) in self.named.iter().enumerate() {
            let _ = write!(
                summary,
                "\n  T{} = {}",
                number + 1,
                columns.shown(transaction)
            );
        }
        summary.push_str("\nThen:");
        summary.push_str(lines);
        Finding {
            anomaly,
            summary,
            operations: self.named.iter().map(|&one| columns.index(one)).collect(),
            steps,
        }
    }
}

/// How `reader` saw `writer`, as the model counts it: a way of sessions and reads from one to the other.
fn path(program: &Program<'_>, model: Model, writer: u32, reader: u32) -> Vec<Before> {
    let found = match model {
        Model::AxiomaticReadCommitted => direct(program, writer, reader),
        Model::ReadYourWrites => session(program, writer, reader),
        Model::AxiomaticReadAtomic => {
            direct(program, writer, reader).or_else(|| session(program, writer, reader))
        }
        Model::MonotonicReads => {
            let earlier = program.members(program.session(reader)).iter();
            let mut earlier = earlier.filter(|&&one| one < reader);
            earlier.find_map(|&one| {
                Some(
                    [
                        direct(program, writer, one)?,
                        session(program, one, reader)?,
                    ]
                    .concat(),
                )
            })
        }
        Model::MonotonicWrites => program.sources(reader).find_map(|source| {
            Some(
                [
                    session(program, writer, source)?,
                    direct(program, source, reader)?,
                ]
                .concat(),
            )
        }),
        Model::WritesFollowReads => program.sources(reader).find_map(|source| {
            let earlier = program.members(program.session(source)).iter();
            let mut earlier = earlier.filter(|&&one| one <= source);
            let seen = earlier.find_map(|&one| {
                Some(
                    [
                        direct(program, writer, one)?,
                        session(program, one, source)?,
                    ]
                    .concat(),
                )
            });
            Some([seen?, direct(program, source, reader)?].concat())
        }),
        Model::Pram => {
            let mine = program.members(program.session(reader)).iter();
            let mut mine = mine.filter(|&&one| one <= reader);
            let through = |one: u32| {
                program.sources(one).find_map(|source| {
                    let start = session(program, writer, source)?;
                    Some(
                        [
                            start,
                            direct(program, source, one)?,
                            session(program, one, reader)?,
                        ]
                        .concat(),
                    )
                })
            };
            let way = session(program, writer, reader);
            way.or_else(|| mine.find_map(|&one| through(one)))
        }
        Model::Causal => causal(program, writer, reader),
        // Nothing was seen: those are explained by cycles of their own.
        _ => None,
    };
    found.unwrap_or_default()
}

/// That `to` reads from `from`.
fn direct(program: &Program<'_>, from: u32, to: u32) -> Option<Vec<Before>> {
    let mut events = program.columns.events(to).iter();
    let read = events.find(|event| {
        event.is_external_read() && program.source(to, **event) == Some(from) && from != INITIAL
    })?;
    let version = read.version();
    let why = Why::Read { version };
    Some(vec![Before { from, to, why }])
}

/// That `to` comes after `from` in its session, or is it.
fn session(program: &Program<'_>, from: u32, to: u32) -> Option<Vec<Before>> {
    if from == to {
        return Some(Vec::new());
    }
    let why = Why::Session;
    let is_before = program.session(from) == program.session(to) && from < to;
    is_before.then(|| vec![Before { from, to, why }])
}

/// The shortest way by sessions and reads; steps of one session are taken together.
fn causal(program: &Program<'_>, writer: u32, reader: u32) -> Option<Vec<Before>> {
    // By transaction: where the way goes on.
    let mut next: Map<u32, Before> = Map::default();
    let mut waiting = VecDeque::from([reader]);
    while let Some(to) = waiting.pop_front() {
        if to == writer {
            break;
        }
        let before = program.before(to).map(|from| (from, Why::Session));
        let events = program.columns.events(to).iter();
        let reads = events.filter(|event| event.is_external_read());
        let reads = reads.filter_map(|&read| {
            let version = read.version();
            Some((program.source(to, read)?, Why::Read { version }))
        });
        for (from, why) in before.into_iter().chain(reads) {
            if from != NONE && from != reader && !next.contains_key(&from) {
                next.insert(from, Before { from, to, why });
                waiting.push_back(from);
            }
        }
    }
    let mut way: Vec<Before> = Vec::new();
    let mut at = writer;
    while at != reader {
        let edge = *next.get(&at)?;
        at = edge.to;
        match way.last_mut() {
            Some(last) if last.why == Why::Session && edge.why == Why::Session => last.to = edge.to,
            _ => way.push(edge),
        }
    }
    Some(way)
}
