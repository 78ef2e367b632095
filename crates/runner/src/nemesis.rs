//! Carries out faults on nodes and network, and verifies that they bit.

use crate::progress::Board;
use crate::{Effect, Mesh, Meter, NodeError, Nodes};
use seatrial_generator::{fault_of, view_value};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::{Fault, FaultEffect, FaultKind, FaultState, Link, Rng, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// One fault of a test, from the moment at which it was in force to the moment at which it was mended.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRecord {
    /// What was done.
    pub fault: Fault,
    /// When it was in force.
    pub begin: Time,
    /// When it was mended; `None` for what has no length or was never mended.
    pub end: Option<Time>,
    /// Whether it bit. A cut bit when traffic met it, which is known when it is healed.
    pub effect: Effect,
}

/// Breaks and mends. Every fault is verified: a kill by the death of the process, a pause by the state that the
/// kernel shows, a cut by the bytes and connections that it held, a reset by the connections that it broke.
pub(crate) struct Nemesis {
    nodes: Arc<dyn Nodes>,
    mesh: Mesh,
    rng: Rng,
    board: Arc<Board>,
    began: Instant,
    records: Vec<FaultRecord>,
    /// Records whose fault is in force, with the meter of its links at the beginning.
    open: Vec<(usize, Meter)>,
    warnings: BTreeSet<String>,
}

/// What a nemesis saw in a whole test.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    /// All faults, in the order in which they began.
    pub(crate) records: Vec<FaultRecord>,
    /// What a reader of the verdict should know.
    pub(crate) warnings: Vec<String>,
}

/// Faults of which a record is kept; those beyond still happen.
const RECORDS_MAX: usize = 100_000;
/// Warnings that are kept.
const WARNINGS_MAX: usize = 100;
/// How long connections may take to notice that they were reset.
const RESET_LIMIT: Duration = Duration::from_secs(2);
/// Why a fault of links has no effect in a mesh without proxies.
const NO_PROXIES: &str =
    "this test was set up without faults of the network (Test::breaks_network)";

impl Nemesis {
    pub(crate) fn new(
        nodes: Arc<dyn Nodes>,
        mesh: Mesh,
        rng: Rng,
        board: Arc<Board>,
        began: Instant,
    ) -> Nemesis {
        Nemesis {
            nodes,
            mesh,
            rng,
            board,
            began,
            records: Vec::new(),
            open: Vec::new(),
            warnings: BTreeSet::new(),
        }
    }

    /// Carries out the operation of a generator. Its completion's value says what happened; one that changed nothing
    /// says why in its `error`.
    pub(crate) async fn answer(&mut self, op: &Op) -> Op {
        let effect = match fault_of(op) {
            Ok(Fault::View) => match self.nodes.view().await {
                Ok(view) => return op.complete(OpType::Info, view_value(&view)),
                Err(error) => Effect::nothing(error.to_string()),
            },
            Ok(fault) => self.carry_out(&fault).await,
            Err(error) => {
                self.warn(error.to_string());
                Effect::nothing(error.to_string())
            }
        };
        match effect {
            Effect::Done(what) => op.complete(OpType::Info, Value::text(what)),
            Effect::Nothing(why) => op
                .complete(OpType::Info, op.value.clone())
                .with("error", Value::text(why)),
        }
    }

    /// Carries out one fault; what came of it. An error counts as nothing and is warned of.
    pub(crate) async fn carry_out(&mut self, fault: &Fault) -> Effect {
        let before = self.mesh.meter(fault.links());
        let effect = self.apply(fault).await.unwrap_or_else(|error| {
            self.warn(format!("{fault} failed: {error}"));
            Effect::nothing(error.to_string())
        });
        if matches!(effect, Effect::Done(_)) {
            self.close(|open| fault.ends(open));
        }
        if fault.is_breaking() {
            self.record(fault, effect.clone(), before);
        }
        self.show(u64::from(fault.is_breaking()));
        effect
    }

    /// Faults of links are the mesh's, all others the nodes'.
    async fn apply(&mut self, fault: &Fault) -> Result<Effect, NodeError> {
        if !fault.links().is_empty() && !self.mesh.has_proxies() {
            return Ok(Effect::nothing(NO_PROXIES));
        }
        match fault {
            Fault::Cut(links) => self.mesh.cut(links),
            Fault::Disturb { links, how } => self.mesh.disturb(links, *how),
            Fault::Reset(links) => return Ok(self.reset(links).await),
            Fault::Heal => {
                let settled = self.settle(FaultKind::Partition);
                self.mesh.heal();
                return Ok(Effect::done(
                    settled.unwrap_or("all links were whole".into()),
                ));
            }
            Fault::Calm => {
                let settled = self.settle(FaultKind::Packet);
                self.mesh.calm();
                return Ok(Effect::done(
                    settled.unwrap_or("no link was disturbed".into()),
                ));
            }
            Fault::View => return Ok(Effect::nothing("a view is no fault")),
            Fault::Restart(node) => return self.nodes.start(*node).await,
            _ => {
                let rng = Rng::from_seed(self.rng.word());
                return self.nodes.inject(fault, rng).await;
            }
        }
        Ok(Effect::done(fault.to_string()))
    }

    async fn reset(&self, links: &[Link]) -> Effect {
        let before = self.mesh.meter(links);
        let open = self.mesh.reset(links);
        if open == 0 {
            return Effect::nothing("no connection was open on these links");
        }
        let deadline = Instant::now() + RESET_LIMIT;
        loop {
            let broken = self.mesh.meter(links).since(before).reset_connections;
            if broken > 0 {
                return Effect::done(format!("{open} connections reset"));
            }
            if Instant::now() >= deadline {
                return Effect::nothing(format!("none of {open} connections was reset"));
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Settles whether what was wrong with the network met any traffic; in words.
    fn settle(&mut self, kind: FaultKind) -> Option<String> {
        let mut settled = Vec::new();
        for (number, before) in &self.open {
            let record = &mut self.records[*number];
            let links = record.fault.links();
            if record.fault.kind() == kind && !links.is_empty() {
                record.effect = bite(&record.fault, self.mesh.meter(links).since(*before));
                let (Effect::Done(text) | Effect::Nothing(text)) = &record.effect;
                settled.push(text.clone());
            }
        }
        (!settled.is_empty()).then(|| settled.join("; "))
    }

    /// Mends what can be mended: the network, disks, clocks and paused nodes. Killed nodes stay dead.
    pub(crate) async fn final_heal(&mut self) {
        let mut mending = vec![Fault::Heal, Fault::Calm];
        let open = self.open.iter().map(|(number, _)| *number);
        mending.extend(open.filter_map(|number| {
            let fault = &self.records[number].fault;
            let FaultEffect::Begins(state) = fault.effect() else {
                return None;
            };
            let stays = matches!(state, FaultState::Down | FaultState::Away);
            fault.mending().filter(|_| !stays)
        }));
        for fault in mending {
            self.carry_out(&fault).await;
        }
    }

    /// What happened in the whole test. Warns of kinds of faults none of which ever bit.
    pub(crate) fn finish(mut self) -> Aftermath {
        let mut names: Vec<&'static str> = Vec::new();
        for record in &self.records {
            if !names.contains(&record.fault.name()) {
                names.push(record.fault.name());
            }
        }
        for name in names {
            let mut same = self
                .records
                .iter()
                .filter(|record| record.fault.name() == name);
            let first = same.clone().find_map(|record| match &record.effect {
                Effect::Nothing(why) => Some(why.clone()),
                Effect::Done(_) => None,
            });
            if let Some(why) = first
                && same.all(|record| matches!(record.effect, Effect::Nothing(_)))
            {
                self.warn(format!("{name} never took effect: {why}"));
            }
        }
        Aftermath {
            records: self.records,
            warnings: self.warnings.into_iter().collect(),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.insert(warning);
        }
    }

    fn record(&mut self, fault: &Fault, effect: Effect, before: Meter) {
        if self.records.len() == RECORDS_MAX {
            return;
        }
        let lasts = matches!(fault.effect(), FaultEffect::Begins(_));
        let in_force = lasts && matches!(effect, Effect::Done(_));
        if in_force {
            self.open.push((self.records.len(), before));
        }
        self.records.push(FaultRecord {
            fault: fault.clone(),
            begin: self.now(),
            end: None,
            effect,
        });
    }

    /// Ends the faults in force that `which` names.
    fn close(&mut self, which: impl Fn(&Fault) -> bool) {
        let now = self.now();
        self.open.retain(|(number, _)| {
            let record = &mut self.records[*number];
            let over = which(&record.fault);
            if over {
                record.end = Some(now);
            }
            !over
        });
    }

    /// Shows on the board what is in force.
    fn show(&self, begun: u64) {
        let open = self.open.iter();
        let faults = open.map(|(number, _)| self.records[*number].fault.to_string());
        self.board.set_faults(faults.collect(), begun);
    }
}

/// Whether a network fault met traffic.
fn bite(fault: &Fault, meter: Meter) -> Effect {
    let text = fault.to_string();
    match fault {
        Fault::Cut(_) if meter.held_bytes + meter.held_connections == 0 => {
            Effect::nothing(format!("{text}: nothing was sent there meanwhile"))
        }
        Fault::Cut(_) => Effect::done(format!(
            "{text}: held {} bytes and {} new connections",
            meter.held_bytes, meter.held_connections
        )),
        _ if meter.disturbed_bytes == 0 => {
            Effect::nothing(format!("{text}: nothing was sent there meanwhile"))
        }
        _ => Effect::done(format!("{text}: disturbed {} bytes", meter.disturbed_bytes)),
    }
}

#[cfg(test)]
mod tests;
