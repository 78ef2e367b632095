//! Findings about cycles of commits as text.

use super::ForcedOrder;
use super::axiomatic_model::AxiomaticModel;
use super::commit_cycle::{CommitEdge, EdgeReason};
use super::session_program::{ReadSource, SessionProgram};
use seatrial_checker::{Anomaly, Finding, FindingStep};
use seatrial_cycles::Txn;
use seatrial_history::FixedMap;
use std::collections::VecDeque;
use std::fmt::Write as _;

/// A cycle of sessions and reads only: a transaction reads, directly or not, from its own future.
const CAUSALITY_CYCLE: Anomaly = "causality-cycle";

/// The name of the anomaly that a cycle shows.
pub(super) fn anomaly(model: AxiomaticModel, cycle: &[CommitEdge]) -> Anomaly {
    let is_forced = |edge: &CommitEdge| matches!(edge.why, EdgeReason::Forced { .. });
    if cycle.iter().any(is_forced) {
        model.violation()
    } else {
        CAUSALITY_CYCLE
    }
}

/// The finding of a cycle: its transactions, and why each comes before the next.
pub(super) fn cycle(
    program: &SessionProgram<'_>,
    model: AxiomaticModel,
    anomaly: Anomaly,
    cycle: &[CommitEdge],
) -> Finding {
    let mut witness = CommitWitness::new(program, model);
    for edge in cycle {
        witness.name(edge.from);
    }
    let mut lines = String::new();
    let mut steps = Vec::new();
    for (at, edge) in cycle.iter().enumerate() {
        let reason = witness.reason(edge);
        let is_last = at + 1 == cycle.len();
        let (start, end) = if is_last {
            ("However, ", ": a contradiction!")
        } else {
            ("", ".")
        };
        let (from, to) = (witness.name(edge.from), witness.name(edge.to));
        let _ = write!(lines, "\n  - {start}{from} < {to}, because {reason}{end}");
        steps.push(witness.step(edge, reason));
    }
    witness.finding(anomaly, &lines, steps)
}

/// The finding of a read of an initial state whose reader had seen an overwrite of it.
pub(super) fn unborn(
    program: &SessionProgram<'_>,
    model: AxiomaticModel,
    forced: ForcedOrder,
) -> Finding {
    let mut witness = CommitWitness::new(program, model);
    let (writer, reader) = (witness.name(forced.before), witness.name(forced.reader));
    let path = path(program, model, forced.before, forced.reader);
    let seen = witness.seen(&path);
    let key = program.columns.key(forced.key);
    let lines = format!(
        "\n  - {reader} had seen {writer}, because {seen}.\n  - However, {reader} read key {key} in its initial state, \
         before {writer} wrote it: a contradiction!"
    );
    let mut steps = Vec::new();
    for edge in &path {
        let reason = witness.reason(edge);
        steps.push(witness.step(edge, reason));
    }
    steps.push(FindingStep {
        from: program.columns.index(forced.reader),
        to: program.columns.index(forced.before),
        relation: "rw",
        reason: format!("{reader} read the initial state of key {key}, which {writer} writes"),
    });
    witness.finding(model.violation(), &lines, steps)
}

/// The witness of one finding: transactions with the names that they have in its text.
struct CommitWitness<'a> {
    program: &'a SessionProgram<'a>,
    model: AxiomaticModel,
    named: Vec<u32>,
}

impl<'a> CommitWitness<'a> {
    fn new(program: &'a SessionProgram<'a>, model: AxiomaticModel) -> CommitWitness<'a> {
        let named = Vec::new();
        CommitWitness {
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

    fn reason(&mut self, edge: &CommitEdge) -> String {
        let columns = self.program.columns;
        let (from, to) = (self.name(edge.from), self.name(edge.to));
        match edge.why {
            EdgeReason::Session => {
                let session = columns.sessions()[edge.from as usize];
                let client = columns.client(session);
                let what = if columns.has_times() {
                    "process"
                } else {
                    "session"
                };
                format!("{what} {client} executed {from} before {to}")
            }
            EdgeReason::Read { version } => {
                let (key, value) = (columns.key_of(version), columns.shown_value(version));
                format!(
                    "{to} read {from}'s write of {value} to key {}",
                    columns.key(key)
                )
            }
            EdgeReason::Forced { reader, key } => {
                let path = path(self.program, self.model, edge.from, reader);
                let seen = self.seen(&path);
                let name = self.name(reader);
                let read = columns.events(reader).iter().find(|event| {
                    event.key() == key
                        && event.is_external_read()
                        && columns.writer(event.version()) == Some(Txn::new(edge.to))
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

    /// Why the last transaction of a path had seen the first one.
    fn seen(&mut self, path: &[CommitEdge]) -> String {
        let reasons: Vec<_> = path.iter().map(|edge| self.reason(edge)).collect();
        reasons.join(", and ")
    }

    fn step(&self, edge: &CommitEdge, reason: String) -> FindingStep {
        let columns = self.program.columns;
        FindingStep {
            from: columns.index(edge.from),
            to: columns.index(edge.to),
            relation: match edge.why {
                EdgeReason::Session => "process",
                EdgeReason::Read { .. } => "wr",
                // Both write the key, which is said already.
                EdgeReason::Forced { .. } => "ww",
            },
            reason,
        }
    }

    fn finding(self, anomaly: Anomaly, lines: &str, steps: Vec<FindingStep>) -> Finding {
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
            linearization: None,
        }
    }
}

/// The path of PRAM: from the writer's session to the reader's, through one read of the reader's session.
fn pram(program: &SessionProgram<'_>, writer: u32, reader: u32) -> Option<Vec<CommitEdge>> {
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

/// The path by which `reader` has seen `writer` under the model: sessions and reads from one to the other.
fn path(
    program: &SessionProgram<'_>,
    model: AxiomaticModel,
    writer: u32,
    reader: u32,
) -> Vec<CommitEdge> {
    let found = match model {
        AxiomaticModel::AxiomaticReadCommitted => direct(program, writer, reader),
        AxiomaticModel::ReadYourWrites => session(program, writer, reader),
        AxiomaticModel::AxiomaticReadAtomic => {
            direct(program, writer, reader).or_else(|| session(program, writer, reader))
        }
        AxiomaticModel::MonotonicReads => {
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
        AxiomaticModel::MonotonicWrites => program.sources(reader).find_map(|source| {
            Some(
                [
                    session(program, writer, source)?,
                    direct(program, source, reader)?,
                ]
                .concat(),
            )
        }),
        AxiomaticModel::WritesFollowReads => program.sources(reader).find_map(|source| {
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
        AxiomaticModel::Pram => pram(program, writer, reader),
        AxiomaticModel::Causal => causal(program, writer, reader),
        // Without visibility; cycles of these are explained by themselves.
        _ => None,
    };
    found.unwrap_or_default()
}

/// The edge for a read: `to` reads from `from`.
fn direct(program: &SessionProgram<'_>, from: u32, to: u32) -> Option<Vec<CommitEdge>> {
    let mut events = program.columns.events(to).iter();
    let read = events.find(|event| {
        event.is_external_read()
            && program.source(to, **event) == Some(ReadSource::written_by(from))
    })?;
    let version = read.version();
    let why = EdgeReason::Read { version };
    Some(vec![CommitEdge { from, to, why }])
}

/// The edge for a session: `to` comes after `from` in its session, or is it.
fn session(program: &SessionProgram<'_>, from: u32, to: u32) -> Option<Vec<CommitEdge>> {
    if from == to {
        return Some(Vec::new());
    }
    let why = EdgeReason::Session;
    let is_before = program.session(from) == program.session(to) && from < to;
    is_before.then(|| vec![CommitEdge { from, to, why }])
}

/// A shortest path over sessions and reads; steps within one session are taken together.
fn causal(program: &SessionProgram<'_>, writer: u32, reader: u32) -> Option<Vec<CommitEdge>> {
    // By transaction: the next edge on the path to the end.
    let mut next: FixedMap<u32, CommitEdge> = FixedMap::default();
    let mut waiting = VecDeque::from([reader]);
    while let Some(to) = waiting.pop_front() {
        if to == writer {
            break;
        }
        let before = program.before(to).map(|from| (from, EdgeReason::Session));
        let events = program.columns.events(to).iter();
        let reads = events.filter(|event| event.is_external_read());
        let reads = reads.filter_map(|&read| {
            let version = read.version();
            let source = program.source(to, read)?.transaction()?;
            Some((source, EdgeReason::Read { version }))
        });
        for (from, why) in before.into_iter().chain(reads) {
            if from != reader && !next.contains_key(&from) {
                next.insert(from, CommitEdge { from, to, why });
                waiting.push_back(from);
            }
        }
    }
    let mut way: Vec<CommitEdge> = Vec::new();
    let mut at = writer;
    while at != reader {
        let edge = *next.get(&at)?;
        at = edge.to;
        match way.last_mut() {
            Some(last) if last.why == EdgeReason::Session && edge.why == EdgeReason::Session => {
                last.to = edge.to;
            }
            _ => way.push(edge),
        }
    }
    Some(way)
}
