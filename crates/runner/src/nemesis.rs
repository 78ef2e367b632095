//! The nemesis: injects faults into nodes and network, and verifies their effect.

use crate::progress::ProgressState;
use crate::{InjectionResult, Mesh, Meter, NodeError, Nodes};
use seatrial_generator::{fault_of, membership_value};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::{
    Disturbance, Fault, FaultEffect, FaultKind, FaultState, Link, Rng, Time, counted,
};
use seatrial_namespace::NetworkKind;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// One fault of a test, from its injection to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRecord {
    /// The fault.
    pub fault: Fault,
    /// When it was injected.
    pub begin: Time,
    /// When it ended; `None` if it has no duration or never ended.
    pub end: Option<Time>,
    /// Its effect. A cut had an effect if traffic met it, which is known only when it is healed.
    pub effect: InjectionResult,
}

/// Executes the operations of the thread `nemesis`: it injects and ends faults, and records them. Every effect is verified: a
/// kill by the exit of the process, a pause by the process state in `/proc`, a cut by the bytes and connections that it held, a
/// reset by the connections that it broke.
pub(crate) struct Nemesis {
    nodes: Arc<dyn Nodes>,
    mesh: Mesh,
    rng: Rng,
    progress: Arc<ProgressState>,
    began: Instant,
    records: Vec<FaultRecord>,
    /// Indexes of the records whose fault is in force, with the meter of its links at its injection.
    open: Vec<(usize, Meter)>,
    warnings: BTreeSet<String>,
}

/// Faults and warnings of a whole test.
#[derive(Debug, Default)]
pub(crate) struct NemesisReport {
    /// All faults, in the order in which they began.
    pub(crate) records: Vec<FaultRecord>,
    /// Warnings that a reader of the verdict needs.
    pub(crate) warnings: Vec<String>,
}

/// Maximum number of records; further faults are injected without a record.
const RECORDS_MAX: usize = 100_000;
/// Maximum number of warnings.
const WARNINGS_MAX: usize = 100;
/// Time limit for the effect of a reset.
const RESET_LIMIT: Duration = Duration::from_secs(2);
/// The reason why a fault of links has no effect in a mesh that connects endpoints directly.
const NO_PROXIES: &str =
    "this test was set up without faults of the network (Test::breaks_network)";

/// The reason why packets are not duplicated on the way of a proxy.
const NO_PACKETS: &str = "a proxy carries streams of bytes, in which TCP discards copies (--network netns or userns has packets)";

impl Nemesis {
    pub(crate) fn new(
        nodes: Arc<dyn Nodes>,
        mesh: Mesh,
        rng: Rng,
        progress: Arc<ProgressState>,
        began: Instant,
    ) -> Nemesis {
        Nemesis {
            nodes,
            mesh,
            rng,
            progress,
            began,
            records: Vec::new(),
            open: Vec::new(),
            warnings: BTreeSet::new(),
        }
    }

    /// Executes an operation of the generator. The completion's value describes the effect; without an effect its `error` holds
    /// the reason.
    pub(crate) async fn answer(&mut self, op: &Op) -> Op {
        let effect = match fault_of(op) {
            Ok(Fault::View) => match self.nodes.view().await {
                Ok(view) => return op.complete(OpType::Info, membership_value(&view)),
                Err(error) => InjectionResult::nothing(error.to_string()),
            },
            Ok(fault) => self.execute(&fault).await,
            Err(error) => {
                self.warn(error.to_string());
                InjectionResult::nothing(error.to_string())
            }
        };
        match effect {
            InjectionResult::Done(what) => op.complete(OpType::Info, Value::text(what)),
            InjectionResult::Nothing(why) => op
                .complete(OpType::Info, op.value.clone())
                .with("error", Value::text(why)),
        }
    }

    /// Injects or ends one fault. An error becomes "no effect" and a warning.
    pub(crate) async fn execute(&mut self, fault: &Fault) -> InjectionResult {
        let before = self.mesh.meter(fault.links());
        let effect = self.apply(fault).await.unwrap_or_else(|error| {
            self.warn(format!("{fault} failed: {error}"));
            InjectionResult::nothing(error.to_string())
        });
        if matches!(effect, InjectionResult::Done(_)) {
            self.close(|open| fault.ends(open));
        }
        if fault.is_breaking() {
            self.record(fault, effect.clone(), before);
        }
        self.show(u64::from(fault.is_breaking()));
        effect
    }

    /// Passes a fault of links to the mesh, and any other to the nodes.
    async fn apply(&mut self, fault: &Fault) -> Result<InjectionResult, NodeError> {
        if !fault.links().is_empty() && !self.mesh.can_break_links() {
            return Ok(InjectionResult::nothing(NO_PROXIES));
        }
        match fault {
            Fault::Cut(links) => self.mesh.cut(links),
            Fault::Disturb {
                how: Disturbance::Duplicate { .. },
                ..
            } if !self.mesh.carries_packets() => {
                return Ok(InjectionResult::nothing(NO_PACKETS));
            }
            Fault::Disturb { links, how } => self.mesh.disturb(links, *how),
            Fault::Reset(links) => return Ok(self.reset(links).await),
            Fault::Heal => {
                let effects = self.settle_effects(FaultKind::Partition);
                self.mesh.heal();
                return Ok(InjectionResult::done(
                    effects.unwrap_or("all links were whole".into()),
                ));
            }
            Fault::Calm => {
                let effects = self.settle_effects(FaultKind::Packet);
                self.mesh.calm();
                return Ok(InjectionResult::done(
                    effects.unwrap_or("no link was disturbed".into()),
                ));
            }
            Fault::View => return Ok(InjectionResult::nothing("a view is not a fault")),
            Fault::Restart(node) => return self.nodes.start(*node).await,
            _ => {
                let rng = Rng::from_seed(self.rng.word());
                return self.nodes.inject(fault, rng).await;
            }
        }
        Ok(InjectionResult::done(fault.to_string()))
    }

    async fn reset(&self, links: &[Link]) -> InjectionResult {
        let before = self.mesh.meter(links);
        let open = self.mesh.reset(links);
        if open == 0 {
            return InjectionResult::nothing("no connection was open on these links");
        }
        let deadline = Instant::now() + RESET_LIMIT;
        loop {
            let broken = self.mesh.meter(links).since(before).reset_connections;
            if broken > 0 {
                return InjectionResult::done(format!("{open} connections reset"));
            }
            if Instant::now() >= deadline {
                return InjectionResult::nothing(format!("none of {open} connections was reset"));
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Decides for each open network fault of this kind whether it met traffic. Returns a text; `None` if no such fault is open.
    fn settle_effects(&mut self, kind: FaultKind) -> Option<String> {
        let mut effects = Vec::new();
        for (number, before) in &self.open {
            let record = &mut self.records[*number];
            let links = record.fault.links();
            if record.fault.kind() == kind && !links.is_empty() {
                let meter = self.mesh.meter(links).since(*before);
                record.effect = network_effect(&record.fault, meter, self.mesh.kind());
                let (InjectionResult::Done(text) | InjectionResult::Nothing(text)) = &record.effect;
                effects.push(text.clone());
            }
        }
        (!effects.is_empty()).then(|| effects.join("; "))
    }

    /// Ends the faults of network, disks and clocks, and resumes paused nodes. Killed nodes stay down.
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
            self.execute(&fault).await;
        }
    }

    /// Ends the records. Adds a warning for each kind of fault that never had an effect.
    pub(crate) fn finish(mut self) -> NemesisReport {
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
                InjectionResult::Nothing(why) => Some(why.clone()),
                InjectionResult::Done(_) => None,
            });
            if let Some(why) = first
                && same.all(|record| matches!(record.effect, InjectionResult::Nothing(_)))
            {
                self.warn(format!("{name} never took effect: {why}"));
            }
        }
        NemesisReport {
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

    fn record(&mut self, fault: &Fault, effect: InjectionResult, before: Meter) {
        if self.records.len() == RECORDS_MAX {
            return;
        }
        let lasts = matches!(fault.effect(), FaultEffect::Begins(_));
        let in_force = lasts && matches!(effect, InjectionResult::Done(_));
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

    /// Ends the records in force whose fault satisfies `which`.
    fn close(&mut self, which: impl Fn(&Fault) -> bool) {
        let now = self.now();
        self.open.retain(|(number, _)| {
            let record = &mut self.records[*number];
            let is_over = which(&record.fault);
            if is_over {
                record.end = Some(now);
            }
            !is_over
        });
    }

    /// Publishes the faults in force to the observer.
    fn show(&self, begun: u64) {
        let open = self.open.iter();
        let faults = open.map(|(number, _)| self.records[*number].fault.to_string());
        self.progress.set_faults(faults.collect(), begun);
    }
}

/// The effect of a network fault, by the traffic that met it.
fn network_effect(fault: &Fault, meter: Meter, kind: NetworkKind) -> InjectionResult {
    let text = fault.to_string();
    let met = if kind.has_whole_addresses() {
        "dropped"
    } else {
        "held"
    };
    match fault {
        Fault::Cut(_) if meter.held_bytes + meter.held_connections == 0 => {
            InjectionResult::nothing(format!("{text}: no traffic on these links meanwhile"))
        }
        Fault::Cut(_) => InjectionResult::done(format!(
            "{text}: {met} {} bytes and {} new connections",
            meter.held_bytes, meter.held_connections
        )),
        _ if meter.disturbed_bytes == 0 => {
            InjectionResult::nothing(format!("{text}: no traffic on these links meanwhile"))
        }
        Fault::Disturb {
            how: Disturbance::Duplicate { .. },
            ..
        } if kind.has_whole_addresses() => {
            changed(&text, meter.duplicated_packets, "were sent twice")
        }
        Fault::Disturb {
            how: Disturbance::Corrupt { .. },
            ..
        } if kind.has_whole_addresses() => changed(
            &text,
            meter.corrupted_packets,
            "had a bit flipped, for which the receivers dropped them",
        ),
        _ => InjectionResult::done(format!("{text}: disturbed {} bytes", meter.disturbed_bytes)),
    }
}

/// The effect of a fault that changes some of the packets.
fn changed(text: &str, packets: u64, how: &str) -> InjectionResult {
    if packets == 0 {
        return InjectionResult::nothing(format!("{text}: it met no packet meanwhile"));
    }
    InjectionResult::done(format!("{text}: {} {how}", counted(packets, "packet")))
}

#[cfg(test)]
mod tests;
