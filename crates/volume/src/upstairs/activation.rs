//! Sessions with replicas, and the activation of a volume.

use crate::guest::{GuestError, GuestReply};
use crate::lineage::LineageEntry;
use crate::status::MirrorState;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use crate::volume_message::{FromReplica, RefusalReason, SessionNumber, ToReplica};
use seatrial_machine::{Output, Ticket, Time};
use std::collections::BTreeMap;

/// Why a replica that sends nothing has no session.
const SILENT: &str = "silent";

/// What the upstairs is about to be.
///
/// ```text
/// Inactive → Asking → Attaching → Reconciling → Active → Closing → Inactive
///              a quorum   a quorum grants   a quorum is equal,     (Deposed: for ever)
///              answers    the generation    a flush is durable
/// ```
#[derive(Debug)]
pub(crate) enum ActivationPhase {
    /// No session.
    Inactive,
    /// The replicas are asked for the largest generation; what they have answered.
    Asking {
        since: Time,
        answers: BTreeMap<usize, u32>,
        waiters: Vec<Ticket>,
    },
    /// The replicas are asked to grant the generation.
    Attaching {
        since: Time,
        /// May another generation be tried when this one is refused?
        is_chosen: bool,
        waiters: Vec<Ticket>,
    },
    /// The replicas of the quorum are made equal to one of them.
    Reconciling {
        source: usize,
        /// Was the flush that ends the activation sent?
        is_flushed: bool,
        waiters: Vec<Ticket>,
    },
    /// Guests are served.
    Active,
    /// The last flush is under way.
    Closing,
    /// A larger generation was granted to another upstairs.
    Deposed(u32),
}

impl Upstairs {
    /// A guest wants the volume.
    pub(super) fn activate(
        &mut self,
        now: Time,
        ticket: Ticket,
        generation: Option<u32>,
        out: &mut Outputs,
    ) -> Result<(), GuestError> {
        match &mut self.phase {
            ActivationPhase::Active => {
                self.reply(ticket, GuestReply::Done, out);
                return Ok(());
            }
            ActivationPhase::Asking { waiters, .. }
            | ActivationPhase::Attaching { waiters, .. }
            | ActivationPhase::Reconciling { waiters, .. } => {
                waiters.push(ticket);
                return Ok(());
            }
            ActivationPhase::Deposed(generation) => {
                return Err(GuestError::Deposed {
                    generation: *generation,
                });
            }
            ActivationPhase::Closing => {
                return Err(GuestError::Refused("the volume is being closed".to_owned()));
            }
            ActivationPhase::Inactive => {}
        }
        match generation {
            Some(0) => Err(GuestError::Refused("generations begin with 1".to_owned())),
            Some(generation) => {
                self.begin_attaching(now, generation, false, vec![ticket], out);
                Ok(())
            }
            None => {
                self.begin_asking(now, vec![ticket], out);
                Ok(())
            }
        }
    }

    fn begin_asking(&mut self, now: Time, waiters: Vec<Ticket>, out: &mut Outputs) {
        self.phase = ActivationPhase::Inactive;
        self.end_sessions(now, out);
        self.phase = ActivationPhase::Asking {
            since: now,
            answers: BTreeMap::new(),
            waiters,
        };
        self.generation = 0;
        self.seek_sessions(now, out);
    }

    fn begin_attaching(
        &mut self,
        now: Time,
        generation: u32,
        is_chosen: bool,
        waiters: Vec<Ticket>,
        out: &mut Outputs,
    ) {
        self.phase = ActivationPhase::Inactive;
        self.end_sessions(now, out);
        self.generation = generation;
        self.generations = vec![generation];
        self.counter = 0;
        self.is_chosen = is_chosen;
        self.phase = ActivationPhase::Attaching {
            since: now,
            is_chosen,
            waiters,
        };
        self.seek_sessions(now, out);
    }

    /// Ends all sessions, and forgets what was under way.
    fn end_sessions(&mut self, now: Time, out: &mut Outputs) {
        for at in 0..self.mirrors.len() {
            self.go_offline(at, "", now, out);
            self.mirrors[at].attach_at = now;
        }
        self.items.clear();
        self.kept.clear();
    }

    /// Attaches to replicas without a session, and ends those of silent ones.
    pub(super) fn seek_sessions(&mut self, now: Time, out: &mut Outputs) {
        for at in 0..self.mirrors.len() {
            let mirror = &self.mirrors[at];
            let is_silent = mirror.heard_at + self.options.silence <= now;
            match mirror.state {
                MirrorState::Offline | MirrorState::Refused => {
                    if matches!(
                        self.phase,
                        ActivationPhase::Inactive | ActivationPhase::Deposed(_)
                    ) {
                        continue;
                    }
                    let attach_at = mirror.attach_at;
                    if is_silent && mirror.state == MirrorState::Offline {
                        // Whatever ended its session, this is why it has no other.
                        SILENT.clone_into(&mut self.mirrors[at].reason);
                    }
                    if attach_at <= now {
                        self.attach(now, at, out);
                    }
                }
                _ if is_silent => self.go_offline(at, SILENT, now, out),
                MirrorState::Active | MirrorState::Repairing => {
                    if mirror.sent_at + self.options.silence / 4 <= now {
                        let message = ToReplica::Ping(mirror.session).encode();
                        let to = mirror.node;
                        self.mirrors[at].sent_at = now;
                        out.push(Output::Send { to, message });
                    }
                }
                MirrorState::Attached => {}
            }
        }
        self.raise_generation(now, out);
        self.step_activation(now, out);
    }

    /// Asks for a session; the same one until the replica answers.
    fn attach(&mut self, now: Time, at: usize, out: &mut Outputs) {
        // Then a quorum has granted the generation to this upstairs.
        let is_activated = matches!(
            self.phase,
            ActivationPhase::Active | ActivationPhase::Closing
        );
        let has_quorum = is_activated && self.has_quorum();
        let mirror = &mut self.mirrors[at];
        mirror.attach_at = now + self.options.resend_after;
        let message = ToReplica::Attach {
            geometry: self.options.geometry,
            generation: self.generation,
            upstairs: self.options.upstairs,
            session: mirror.session,
            has_quorum,
        };
        out.push(Output::Send {
            to: mirror.node,
            message: message.encode(),
        });
    }

    /// A replica has granted the generation.
    pub(super) fn attached(
        &mut self,
        now: Time,
        at: usize,
        message: FromReplica<'_>,
        out: &mut Outputs,
    ) {
        let FromReplica::Attached {
            mark,
            lineage,
            flush,
            snapshots,
            ..
        } = message
        else {
            return;
        };
        let mirror = &mut self.mirrors[at];
        if !matches!(mirror.state, MirrorState::Offline | MirrorState::Refused) {
            return; // repeated
        }
        mirror.state = MirrorState::Attached;
        mirror.refused = None;
        mirror.reason.clear();
        (mirror.mark, mirror.lineage) = (mark, lineage);
        (mirror.flush, mirror.snapshots) = (flush, snapshots);
        if self.has_bug(VolumeBug::NonceReuse) {
            self.counter = 0;
        }
        if matches!(
            self.phase,
            ActivationPhase::Reconciling { .. }
                | ActivationPhase::Active
                | ActivationPhase::Closing
        ) {
            self.join(now, at, out);
        }
        self.step_activation(now, out);
    }

    /// A replica has refused a session.
    pub(super) fn refused(
        &mut self,
        now: Time,
        at: usize,
        reason: RefusalReason,
        promised: u32,
        out: &mut Outputs,
    ) {
        if let ActivationPhase::Asking { answers, .. } = &mut self.phase
            && reason == RefusalReason::Generation
        {
            answers.insert(at, promised);
            // It has answered: it is not asked again.
            self.mirrors[at].attach_at = now + self.options.silence;
            self.step_activation(now, out);
            return;
        }
        match reason {
            // It has started again, or a later message of ours overtook an earlier one.
            RefusalReason::Session => {
                self.go_offline(at, "it began anew", now, out);
                self.mirrors[at].attach_at = now;
                self.attach(now, at, out);
            }
            RefusalReason::Volume | RefusalReason::Shape => {
                let text = match reason {
                    RefusalReason::Volume => "it holds another volume",
                    _ => "it holds the volume in another shape",
                };
                self.refuse(now, at, text, out);
            }
            RefusalReason::Generation => {
                self.refuse(
                    now,
                    at,
                    &format!("it has granted generation {promised}"),
                    out,
                );
                let since = self.mirrors[at].refused.map_or(now, |it| it.0);
                self.mirrors[at].refused = Some((since, promised));
                self.generation_refused(now, promised, out);
            }
        }
    }

    fn refuse(&mut self, now: Time, at: usize, reason: &str, out: &mut Outputs) {
        self.go_offline(at, reason, now, out);
        let mirror = &mut self.mirrors[at];
        mirror.state = MirrorState::Refused;
        mirror.attach_at = now + self.options.silence;
    }

    /// A replica has granted a larger generation. When no quorum is left without those, this upstairs is deposed.
    fn generation_refused(&mut self, now: Time, promised: u32, out: &mut Outputs) {
        match &mut self.phase {
            ActivationPhase::Attaching {
                is_chosen, waiters, ..
            } => {
                let waiters = std::mem::take(waiters);
                if *is_chosen {
                    self.begin_asking(now, waiters, out);
                    return;
                }
                self.phase = ActivationPhase::Inactive;
                for ticket in waiters {
                    let error = GuestError::Deposed {
                        generation: promised,
                    };
                    self.fail(ticket, error, out);
                }
            }
            ActivationPhase::Reconciling { .. }
            | ActivationPhase::Active
            | ActivationPhase::Closing => {
                let refusing = self
                    .mirrors
                    .iter()
                    .filter(|it| it.state == MirrorState::Refused);
                if self.mirrors.len() - refusing.count() < self.options.quorum {
                    self.phase = ActivationPhase::Deposed(promised);
                    let error = GuestError::Deposed {
                        generation: promised,
                    };
                    self.fail_all(&error, out);
                    self.end_sessions(now, out);
                    self.phase = ActivationPhase::Deposed(promised);
                }
            }
            ActivationPhase::Inactive
            | ActivationPhase::Asking { .. }
            | ActivationPhase::Deposed(_) => {}
        }
    }

    /// Raises the generation for a replica that has granted a larger one to an upstairs that did not become active with it.
    ///
    /// That one would have asked the other replicas by now, and they would have granted it. The flushes of this activation go
    /// on, so nothing changes for guests and replicas but the number.
    fn raise_generation(&mut self, now: Time, out: &mut Outputs) {
        let patience = self.options.silence * 3;
        let is_ripe = |(since, _): &(Time, u32)| *since + patience <= now;
        let refused = self.mirrors.iter().filter_map(|it| it.refused);
        let Some((_, promised)) = refused.filter(is_ripe).max_by_key(|it| it.1) else {
            return;
        };
        if !self.is_chosen || !self.is_active() || !self.has_quorum() {
            return;
        }
        self.generation = promised.max(self.generation).saturating_add(1);
        self.generations.push(self.generation);
        for at in 0..self.mirrors.len() {
            self.go_offline(at, "the generation is raised", now, out);
            self.mirrors[at].refused = None;
            self.mirrors[at].attach_at = now;
            self.attach(now, at, out);
        }
    }

    /// Goes on with an activation.
    pub(super) fn step_activation(&mut self, now: Time, out: &mut Outputs) {
        // The replicas that are slow to answer are waited for this long.
        let grace = self.options.tick;
        let (count, quorum) = (self.mirrors.len(), self.options.quorum);
        match &mut self.phase {
            ActivationPhase::Inactive => {
                if self.options.activates {
                    self.begin_asking(now, Vec::new(), out);
                }
            }
            ActivationPhase::Asking {
                since,
                answers,
                waiters,
            } => {
                let is_enough = answers.len() >= quorum && *since + grace <= now;
                if answers.len() == count || is_enough {
                    let largest = answers.values().max().copied().unwrap_or(0);
                    let waiters = std::mem::take(waiters);
                    self.begin_attaching(now, largest.saturating_add(1), true, waiters, out);
                }
            }
            ActivationPhase::Attaching { since, .. } => {
                let attached = self
                    .mirrors
                    .iter()
                    .filter(|it| it.state == MirrorState::Attached);
                let attached = attached.count();
                if attached == count || attached >= quorum && *since + grace <= now {
                    self.reconcile(now, out);
                }
            }
            ActivationPhase::Reconciling { is_flushed, .. } => {
                if !*is_flushed {
                    let active = self.active_mirrors().count();
                    if active >= quorum {
                        if let ActivationPhase::Reconciling { is_flushed, .. } = &mut self.phase {
                            *is_flushed = true;
                        }
                        self.push_flush(now, None, String::new(), String::new(), out);
                    }
                }
            }
            ActivationPhase::Active | ActivationPhase::Closing | ActivationPhase::Deposed(_) => {}
        }
    }

    /// A quorum has granted the generation: one of its replicas has everything that was flushed, and the others are made equal.
    fn reconcile(&mut self, now: Time, out: &mut Outputs) {
        let attached: Vec<usize> = (0..self.mirrors.len())
            .filter(|at| self.mirrors[*at].state == MirrorState::Attached)
            .collect();
        let mark = |at: &usize| self.mirrors[*at].mark;
        // Among equals the first.
        let best = if self.has_bug(VolumeBug::DirtySource) {
            attached.iter().copied().min_by_key(mark)
        } else {
            attached.iter().copied().rev().max_by_key(mark)
        };
        let Some(source) = best else {
            return;
        };
        let largest = attached.iter().map(|at| self.mirrors[*at].flush).max();
        let last = largest.unwrap_or(0);
        let from = &self.mirrors[source];
        self.lineage = from.lineage.continued(LineageEntry {
            generation: self.generation,
            start: last + 1,
            base: from.mark.flush,
        });
        self.snapshots.clone_from(&from.snapshots);
        self.flushes.continue_after(last);
        let ActivationPhase::Attaching { waiters, .. } = &mut self.phase else {
            return;
        };
        self.phase = ActivationPhase::Reconciling {
            source,
            is_flushed: false,
            waiters: std::mem::take(waiters),
        };
        for at in std::iter::once(source).chain(attached.into_iter().filter(|at| *at != source)) {
            self.join(now, at, out);
        }
        self.step_activation(now, out);
    }

    /// Lets an attached replica take part: it gets everything that is retained, and is repaired unless it has everything else.
    fn join(&mut self, now: Time, at: usize, out: &mut Outputs) {
        let is_source =
            matches!(self.phase, ActivationPhase::Reconciling { source, .. } if source == at);
        let (mark, durable) = (self.mirrors[at].mark, self.flushes.durable());
        let is_ours = self.generations.contains(&mark.generation);
        let has_all = durable > 0 && is_ours && mark.flush >= durable;
        let first = self.items.first();
        let mirror = &mut self.mirrors[at];
        mirror.begin_stream(first - 1);
        mirror.knows_lineage = mirror.lineage == self.lineage;
        if is_source || has_all {
            mirror.state = MirrorState::Active;
            mirror.complete_from = 0;
        } else {
            mirror.state = MirrorState::Repairing;
            mirror.complete_from = u64::MAX;
        }
        for id in first..self.items.unsent() {
            self.send_item(now, at, id, out);
        }
        if self.mirrors[at].state == MirrorState::Repairing {
            self.begin_repair(now, at, out);
        }
        self.progress(now, out);
    }

    /// A replica has no session any more.
    pub(super) fn go_offline(&mut self, at: usize, reason: &str, now: Time, out: &mut Outputs) {
        let applied = self.items.first().saturating_sub(1);
        let mirror = &mut self.mirrors[at];
        mirror.state = MirrorState::Offline;
        reason.clone_into(&mut mirror.reason);
        mirror.complete_from = u64::MAX;
        mirror.begin_stream(applied);
        mirror.attach_at = now + self.options.tick;
        // What it still says belongs to no session.
        self.sessions += 1;
        mirror.session = SessionNumber(self.sessions);
        self.repairs.remove(&at);
        self.give_up_questions(now, at, out);
        if let ActivationPhase::Reconciling {
            source, waiters, ..
        } = &mut self.phase
            && *source == at
        {
            // What the others were made equal to is gone. It may have the flush of this activation, so another generation begins.
            let waiters = std::mem::take(waiters);
            self.begin_asking(now, waiters, out);
            return;
        }
        self.progress(now, out);
    }

    /// A flush is durable on a quorum: perhaps the one that ends an activation, or the last one.
    pub(super) fn flush_is_durable(&mut self, now: Time, out: &mut Outputs) {
        match &mut self.phase {
            ActivationPhase::Reconciling { waiters, .. } => {
                let waiters = std::mem::take(waiters);
                self.phase = ActivationPhase::Active;
                for ticket in waiters {
                    self.reply(ticket, GuestReply::Done, out);
                }
                self.retry_reads(now, out);
                self.begin_sweeps(now, out);
            }
            _ => self.close_if_flushed(now, out),
        }
    }

    /// Ends an activation that is given up, unless a flush is under way.
    pub(super) fn close_if_flushed(&mut self, now: Time, out: &mut Outputs) {
        if !matches!(self.phase, ActivationPhase::Closing) || self.flushes.is_pending() {
            return;
        }
        self.phase = ActivationPhase::Inactive;
        self.fail_all(&GuestError::Inactive, out);
        self.end_sessions(now, out);
        self.options.activates = false;
    }
}
