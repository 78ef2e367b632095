//! Questions to replicas: asked again until they are answered or the replica is offline.

use crate::geometry::BlockSpan;
use crate::upstairs::live_repair::RepairId;
use crate::upstairs::seal_jobs::BytesPart;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_message::{FromReplica, MapName, SessionNumber, ToReplica};
use seatrial_machine::{Output, Time};
use std::collections::BTreeMap;

/// Who needs the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A part of a guest's read.
    Read(u64),
    /// A request that looks at versions first.
    Versions(u64),
    /// A repair lists chunks.
    Changes { repair: RepairId },
    /// A repair compares a batch of chunks; is this the source's answer?
    Compare {
        repair: RepairId,
        batch: u64,
        is_source: bool,
    },
    /// A sweep looks at a piece.
    Sweep(u64),
    /// A repair reads a piece of a batch.
    Copy { repair: RepairId, batch: u64 },
}

#[derive(Debug)]
struct ReplicaQuestion {
    mirror: usize,
    asker: Asker,
    message: Vec<u8>,
    asked_at: Time,
}

/// The questions without an answer, by number.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: BTreeMap<u64, ReplicaQuestion>,
    last: u64,
    /// Number of questions to each replica.
    counts: BTreeMap<usize, usize>,
}

impl Questions {
    /// Number of questions that a replica has not answered.
    pub(crate) fn of(&self, mirror: usize) -> usize {
        self.counts.get(&mirror).copied().unwrap_or(0)
    }

    /// Takes a question that was asked of this replica; `None` if it was asked twice, and answered before.
    fn take_of(&mut self, mirror: usize, id: u64) -> Option<ReplicaQuestion> {
        let is_its = self.open.get(&id).is_some_and(|it| it.mirror == mirror);
        if is_its { self.take(id) } else { None }
    }

    fn take(&mut self, id: u64) -> Option<ReplicaQuestion> {
        let question = self.open.remove(&id)?;
        if let Some(count) = self.counts.get_mut(&question.mirror) {
            *count -= 1;
        }
        Some(question)
    }
}

impl Upstairs {
    fn ask(
        &mut self,
        now: Time,
        mirror: usize,
        asker: Asker,
        message: impl FnOnce(SessionNumber, u64) -> ToReplica<'static>,
        out: &mut Outputs,
    ) {
        let questions = &mut self.questions;
        questions.last += 1;
        let message = message(self.mirrors[mirror].session, questions.last).encode();
        out.push(Output::Send {
            to: self.mirrors[mirror].node,
            message: message.clone(),
        });
        let question = ReplicaQuestion {
            mirror,
            asker,
            message,
            asked_at: now,
        };
        questions.open.insert(questions.last, question);
        *questions.counts.entry(mirror).or_default() += 1;
    }

    pub(super) fn ask_slots(
        &mut self,
        now: Time,
        mirror: usize,
        asker: Asker,
        (spans, map): (Vec<BlockSpan>, MapName),
        out: &mut Outputs,
    ) {
        let message = |session, id| ToReplica::Read {
            session,
            id,
            spans,
            map,
        };
        self.ask(now, mirror, asker, message, out);
    }

    pub(super) fn ask_versions(
        &mut self,
        now: Time,
        mirror: usize,
        asker: Asker,
        (spans, map): (Vec<BlockSpan>, MapName),
        out: &mut Outputs,
    ) {
        let message = |session, id| ToReplica::Versions {
            session,
            id,
            spans,
            map,
        };
        self.ask(now, mirror, asker, message, out);
    }

    pub(super) fn ask_changes(
        &mut self,
        now: Time,
        mirror: usize,
        repair: RepairId,
        (since, from): (u64, u64),
        out: &mut Outputs,
    ) {
        let message = |session, id| ToReplica::Changes {
            session,
            id,
            since,
            from,
        };
        self.ask(now, mirror, Asker::Changes { repair }, message, out);
    }

    /// A replica has answered, not with slots, or cannot.
    pub(super) fn answered(
        &mut self,
        now: Time,
        mirror: usize,
        answer: FromReplica<'_>,
        out: &mut Outputs,
    ) {
        let id = match &answer {
            FromReplica::Versions { id, .. }
            | FromReplica::Changes { id, .. }
            | FromReplica::Failed { id, .. } => *id,
            _ => return,
        };
        let Some(question) = self.questions.take_of(mirror, id) else {
            return;
        };
        match (question.asker, answer) {
            (Asker::Versions(request), FromReplica::Versions { versions, .. }) => {
                self.have_versions(now, request, &versions, out);
            }
            (Asker::Sweep(number), FromReplica::Versions { versions, .. }) => {
                self.have_sweep_versions(now, number, &versions, out);
            }
            (Asker::Changes { repair }, FromReplica::Changes { next, chunks, .. }) => {
                self.have_changes(now, repair, next, &chunks, out);
            }
            (
                Asker::Compare {
                    repair,
                    batch,
                    is_source,
                },
                FromReplica::Versions { versions, .. },
            ) => self.have_compared(now, (repair, batch), is_source, &versions, out),
            (asker, _) => self.unanswered(now, mirror, asker, out),
        }
    }

    /// A replica has answered with slots.
    pub(super) fn have_answer(
        &mut self,
        now: Time,
        mirror: usize,
        (id, slots): (u64, BytesPart),
        out: &mut Outputs,
    ) {
        let Some(question) = self.questions.take_of(mirror, id) else {
            return;
        };
        match question.asker {
            Asker::Read(part) => {
                self.figures.answered.add(now.since(question.asked_at));
                self.have_slots(now, part, mirror, slots, out);
            }
            Asker::Sweep(number) => self.have_sweep_slots(now, number, slots.bytes(), out),
            Asker::Copy { repair, batch } => {
                self.have_copy((repair, batch), mirror, slots.bytes().to_vec(), out);
            }
            asker => self.unanswered(now, mirror, asker, out),
        }
    }

    /// A question will not be answered.
    fn unanswered(&mut self, now: Time, mirror: usize, asker: Asker, out: &mut Outputs) {
        match asker {
            Asker::Read(part) => self.read_failed(now, part, mirror, out),
            Asker::Versions(request) => self.retry_versions(now, request, out),
            Asker::Sweep(number) => self.sweep_unanswered(number),
            Asker::Changes { repair }
            | Asker::Compare { repair, .. }
            | Asker::Copy { repair, .. } => {
                // From the beginning, with whichever replica has everything then.
                if self.repair(repair).is_some() {
                    self.repairs.remove(&repair.target);
                }
            }
        }
    }

    /// Ends the questions to a replica that is offline.
    pub(super) fn give_up_questions(&mut self, now: Time, mirror: usize, out: &mut Outputs) {
        let open = self.questions.open.iter();
        let ids: Vec<u64> = open
            .filter(|(_, it)| it.mirror == mirror)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            if let Some(question) = self.questions.take(id) {
                self.unanswered(now, mirror, question.asker, out);
            }
        }
    }

    /// Asks again what has no answer for too long.
    pub(super) fn ask_again(&mut self, now: Time, out: &mut Outputs) {
        for question in self.questions.open.values_mut() {
            if question.asked_at + self.options.resend_after <= now {
                question.asked_at = now;
                self.mirrors[question.mirror].resent += 1;
                out.push(Output::Send {
                    to: self.mirrors[question.mirror].node,
                    message: question.message.clone(),
                });
            }
        }
    }
}
