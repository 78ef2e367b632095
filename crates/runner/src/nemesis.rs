//! Carries out faults on nodes and network, and verifies that they bit.

use crate::progress::Board;
use crate::{ClockOrder, Effect, Mesh, Meter, NodeError, Nodes};
use seatrial_generator::{fault_of, view_value};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::{DiskTrouble, Disturbance, Fault, FaultKind, Link, Rng, Time};
use std::collections::BTreeSet;
use std::fmt::Write;
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
/// Links that a text names.
const LINKS_NAMED: usize = 6;

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
        let before = self.mesh.meter(links(fault));
        let effect = self.apply(fault).await.unwrap_or_else(|error| {
            self.warn(format!("{} failed: {error}", describe(fault)));
            Effect::nothing(error.to_string())
        });
        if matches!(effect, Effect::Done(_)) {
            self.close(|open| ends(fault, open));
        }
        if breaks(fault) {
            self.record(fault, effect.clone(), before);
        }
        self.show(u64::from(breaks(fault)));
        effect
    }

    async fn apply(&mut self, fault: &Fault) -> Result<Effect, NodeError> {
        match fault {
            Fault::Kill(node) => self.nodes.kill(*node).await,
            Fault::Restart(node) => self.nodes.start(*node).await,
            Fault::Pause(node) => self.nodes.pause(*node).await,
            Fault::Resume(node) => self.nodes.resume(*node).await,
            Fault::Cut(links) => {
                self.mesh.cut(links);
                Ok(Effect::done(describe(fault)))
            }
            Fault::Disturb { links, how } => {
                self.mesh.disturb(links, *how);
                Ok(Effect::done(describe(fault)))
            }
            Fault::Reset(links) => Ok(self.reset(links).await),
            Fault::Heal => {
                let told = self.settle(FaultKind::Partition);
                self.mesh.heal();
                Ok(Effect::done(told.unwrap_or("all links were whole".into())))
            }
            Fault::Calm => {
                let told = self.settle(FaultKind::Packet);
                self.mesh.calm();
                Ok(Effect::done(told.unwrap_or("no link was disturbed".into())))
            }
            Fault::Skew {
                node,
                offset_ns,
                rate_ppm,
            } => {
                let error = ClockOrder::Skew {
                    offset_ns: *offset_ns,
                    rate_ppm: *rate_ppm,
                };
                self.nodes.set_clock(*node, error).await
            }
            Fault::Strobe {
                node,
                delta,
                period,
                length,
            } => {
                let error = ClockOrder::Strobe {
                    delta: *delta,
                    period: *period,
                    length: *length,
                };
                self.nodes.set_clock(*node, error).await
            }
            Fault::Disk { node, trouble } => self.nodes.trouble(*node, Some(*trouble)).await,
            Fault::MendDisk(node) => self.nodes.trouble(*node, None).await,
            // Without the power of the whole machine all that can be taken away is the process.
            Fault::LoseUnsynced(node) => self.nodes.lose_unsynced(*node).await,
            Fault::BitRot { node, bits } => {
                let rng = Rng::from_seed(self.rng.word());
                self.nodes.rot(*node, *bits, rng).await
            }
            Fault::Truncate { node, bytes } => self.nodes.truncate(*node, *bytes).await,
            Fault::Snapshot(node) => self.nodes.snapshot(*node).await,
            Fault::Restore(node) => self.nodes.restore(*node).await,
            Fault::View => Ok(Effect::nothing("a view is no fault")),
            Fault::Join(node) => self.nodes.join(*node).await,
            Fault::Leave(node) => self.nodes.leave(*node).await,
        }
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
        let mut told = Vec::new();
        for (number, before) in &self.open {
            let record = &mut self.records[*number];
            let links = links(&record.fault);
            if record.fault.kind() == kind && !links.is_empty() {
                record.effect = bite(&record.fault, self.mesh.meter(links).since(*before));
                let (Effect::Done(text) | Effect::Nothing(text)) = &record.effect;
                told.push(text.clone());
            }
        }
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Mends what can be mended: the network, disks, clocks and paused nodes. Killed nodes stay dead.
    pub(crate) async fn final_heal(&mut self) {
        let mut mending = vec![Fault::Heal, Fault::Calm];
        let open = self.open.iter().map(|(number, _)| *number);
        mending.extend(open.filter_map(|number| match self.records[number].fault {
            Fault::Pause(node) => Some(Fault::Resume(node)),
            Fault::Disk { node, .. } => Some(Fault::MendDisk(node)),
            Fault::Skew { node, .. } | Fault::Strobe { node, .. } => Some(Fault::right_clock(node)),
            _ => None,
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
        let in_force = lasts(fault) && matches!(effect, Effect::Done(_));
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
        let faults = open.map(|(number, _)| describe(&self.records[*number].fault));
        self.board.set_faults(faults.collect(), begun);
    }
}

/// Does this break something (rather than mend it)?
fn breaks(fault: &Fault) -> bool {
    match fault {
        Fault::Restart(_)
        | Fault::Resume(_)
        | Fault::Heal
        | Fault::Calm
        | Fault::MendDisk(_)
        | Fault::Snapshot(_)
        | Fault::View
        | Fault::Join(_) => false,
        Fault::Skew {
            offset_ns,
            rate_ppm,
            ..
        } => (*offset_ns, *rate_ppm) != (0, 0),
        _ => true,
    }
}

/// Does what it breaks stay broken?
fn lasts(fault: &Fault) -> bool {
    let is_over = matches!(
        fault,
        Fault::Reset(_) | Fault::BitRot { .. } | Fault::Truncate { .. } | Fault::Restore(_)
    );
    breaks(fault) && !is_over
}

/// Is `open` over once `fault` has taken effect? Mended, as a rule; a paused process can also die of a kill, and a
/// new clock error replaces the old one.
fn ends(fault: &Fault, open: &Fault) -> bool {
    match (fault, open) {
        (Fault::Restart(node), Fault::Kill(killed) | Fault::LoseUnsynced(killed)) => node == killed,
        (
            Fault::Resume(node) | Fault::Kill(node) | Fault::LoseUnsynced(node),
            Fault::Pause(paused),
        ) => node == paused,
        (
            Fault::Skew { node, .. } | Fault::Strobe { node, .. },
            Fault::Skew { node: skewed, .. } | Fault::Strobe { node: skewed, .. },
        ) => node == skewed,
        (Fault::MendDisk(node) | Fault::Disk { node, .. }, Fault::Disk { node: troubled, .. }) => {
            node == troubled
        }
        (Fault::Join(node), Fault::Leave(left)) => node == left,
        (Fault::Heal, open) => open.kind() == FaultKind::Partition,
        (Fault::Calm, open) => open.kind() == FaultKind::Packet,
        _ => false,
    }
}

/// The links that a lasting network fault concerns.
fn links(fault: &Fault) -> &[Link] {
    match fault {
        Fault::Cut(links) | Fault::Disturb { links, .. } => links,
        _ => &[],
    }
}

/// Whether a network fault met traffic.
fn bite(fault: &Fault, meter: Meter) -> Effect {
    let text = describe(fault);
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

/// A fault in words for people.
pub(crate) fn describe(fault: &Fault) -> String {
    let name = fault.name();
    match fault {
        Fault::Kill(node)
        | Fault::Restart(node)
        | Fault::Pause(node)
        | Fault::Resume(node)
        | Fault::MendDisk(node)
        | Fault::LoseUnsynced(node)
        | Fault::Snapshot(node)
        | Fault::Restore(node)
        | Fault::Join(node)
        | Fault::Leave(node) => format!("{name} {node}"),
        Fault::Cut(links) | Fault::Reset(links) => format!("{name} {}", name_links(links)),
        Fault::Disturb { links, how } => {
            let how = match how {
                Disturbance::Slow { delay, jitter } => format!("by {delay:?} ± {jitter:?}"),
                Disturbance::Lose { percent } => format!("{percent} %"),
                Disturbance::Reorder { percent, delay } => format!("{percent} % by {delay:?}"),
                Disturbance::Throttle { bytes_per_second } => {
                    format!("to {bytes_per_second} bytes/s")
                }
            };
            format!("{name} {} {how}", name_links(links))
        }
        Fault::Heal | Fault::Calm | Fault::View => name.into(),
        Fault::Skew {
            node,
            offset_ns,
            rate_ppm,
        } => format!("{name} {node} by {offset_ns} ns and {rate_ppm} ppm"),
        Fault::Strobe {
            node,
            delta,
            period,
            length,
        } => format!("{name} {node} by {delta:?} every {period:?} for {length:?}"),
        Fault::Disk { node, trouble } => match trouble {
            DiskTrouble::Slow(delay) => format!("{name} {node} by {delay:?}"),
            _ => format!("{name} {node}"),
        },
        Fault::BitRot { node, bits } => format!("{name} {node}, {bits} bits"),
        Fault::Truncate { node, bytes } => format!("{name} {node} by {bytes} bytes"),
    }
}

/// Links in words: both directions of a pair as one, the first few by name.
fn name_links(links: &[Link]) -> String {
    let mut names = Vec::new();
    for link in links {
        let back = Link {
            from: link.to,
            to: link.from,
        };
        match (links.contains(&back), link.from <= link.to) {
            (true, true) => names.push(format!("{}↔{}", link.from, link.to)),
            (true, false) => {}
            (false, _) => names.push(format!("{}→{}", link.from, link.to)),
        }
    }
    let mut text = names[..names.len().min(LINKS_NAMED)].join(" ");
    if names.len() > LINKS_NAMED {
        let _ = write!(text, " and {} more", names.len() - LINKS_NAMED);
    }
    text
}

#[cfg(test)]
mod tests;
