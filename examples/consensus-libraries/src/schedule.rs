//! Schedules: what clients ask and which faults happen when, as a list that can be shortened.

use crate::scenario::{Library, Scenario};
use seatrial_machine::{DiskTrouble, Disturbance, Fault, Link, NodeId, Rng};
use seatrial_sim::WorldOptions;
use std::fmt;
use std::time::Duration;

/// Length of the phase with faults, in milliseconds.
pub(crate) const FAULTS_END: u64 = 3_000;

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScheduledStep {
    /// World time in milliseconds.
    pub(crate) at: u64,
    pub(crate) action: Action,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A client appends a number by this node.
    Append(NodeId, u64),
    /// A client reads by this node.
    Read(NodeId, u64),
    Snapshot(NodeId),
    StopSign(NodeId),
    Change(NodeId),
    Transfer(NodeId),
    Forge(NodeId),
    Fault(Fault),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Append(node, value) => write!(f, "append {value} by {node}"),
            Action::Read(node, _) => write!(f, "read by {node}"),
            Action::Snapshot(node) => write!(f, "snapshot on {node}"),
            Action::StopSign(node) => write!(f, "stop-sign by {node}"),
            Action::Change(node) => write!(f, "change of the membership by {node}"),
            Action::Transfer(node) => write!(f, "leadership to {node}"),
            Action::Forge(node) => write!(f, "forged reply of {node}"),
            Action::Fault(fault) => fault.fmt(f),
        }
    }
}

/// Steady misbehaviour of the network and the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weather {
    /// Messages take 1 ms and up to this many microseconds more.
    pub(crate) spread_us: u64,
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    /// Probability that a message takes 30 ms more on average.
    pub(crate) straggler: f64,
    /// Probability that a sync takes fifty times as long, up to 225 ms.
    pub(crate) stall: f64,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Seed of the world: delays, losses, what a crash keeps.
    pub(crate) seed: u64,
    pub(crate) weather: Weather,
    /// In order of time.
    pub(crate) steps: Vec<ScheduledStep>,
}

impl Schedule {
    /// The schedule of a seed.
    pub(crate) fn draw(scenario: &Scenario, seed: u64) -> Schedule {
        let mut rng = Rng::from_seed(seed).fork("schedule");
        let weather = draw_weather(scenario, &mut rng);
        let mut draw = Draw {
            scenario,
            rng,
            steps: Vec::new(),
            commands: 0,
        };
        draw.every(25, Draw::command);
        draw.every(scenario.fault_interval, Draw::fault);
        if scenario.omnipaxos.snapshots {
            draw.every(250, |draw, at| {
                let node = draw.node();
                draw.push(at, Action::Snapshot(node));
            });
        }
        if scenario.omnipaxos.stop_sign {
            let (at, node) = (200 + draw.rng.below(FAULTS_END - 400), draw.node());
            draw.push(at, Action::StopSign(node));
        }
        if scenario.spares > 0 {
            draw.every(150, |draw, at| {
                let node = draw.node();
                draw.push(at, Action::Change(node));
            });
        }
        if scenario.forges {
            draw.every(300, |draw, at| {
                let node = draw.node();
                draw.push(at, Action::Forge(node));
            });
        }
        let mut steps = draw.steps;
        // Stable: steps of one millisecond stay in the order in which they were drawn.
        steps.sort_by_key(|step| step.at);
        Schedule {
            seed,
            weather,
            steps,
        }
    }

    /// The options of its world.
    pub(crate) fn world_options(&self) -> WorldOptions {
        let mut options = WorldOptions::default();
        let network = &mut options.network;
        network.delay_min = Duration::from_millis(1);
        network.delay_spread = Duration::from_micros(self.weather.spread_us);
        network.loss = self.weather.loss;
        network.duplication = self.weather.duplication;
        network.straggler = self.weather.straggler;
        network.straggler_delay = Duration::from_millis(30);
        options.disk.sync_min = Duration::from_micros(500);
        options.disk.sync_spread = Duration::from_millis(4);
        options.disk.sync_stall = self.weather.stall;
        options
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Weather {
            spread_us,
            loss,
            duplication,
            straggler,
            stall,
        } = self.weather;
        write!(f, "  messages take 1 ms")?;
        if spread_us > 0 {
            write!(f, " to {} ms", 1.0 + spread_us as f64 / 1e3)?;
        }
        for (name, probability) in [
            ("lost", loss),
            ("repeated", duplication),
            ("30 ms late", straggler),
            ("slow syncs", stall),
        ] {
            if probability > 0.0 {
                write!(f, ", {:.1} % {name}", probability * 100.0)?;
            }
        }
        writeln!(f, "; world seed {}", self.seed)?;
        for step in &self.steps {
            writeln!(f, "  {:>5} ms  {}", step.at, step.action)?;
        }
        write!(f, "  {:>5} ms  all faults end", self.end())
    }
}

impl Schedule {
    /// When all faults end: after the last step.
    pub(crate) fn end(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.at) + 50
    }
}

fn draw_weather(scenario: &Scenario, rng: &mut Rng) -> Weather {
    // Swarm testing: each misbehaviour is absent from half of the worlds.
    let mut sometimes = |most: f64| {
        if rng.chance(0.5) {
            most * rng.unit()
        } else {
            0.0
        }
    };
    let loss = sometimes(0.05);
    let (duplication, straggler) = (
        sometimes(scenario.overtaking),
        sometimes(scenario.overtaking),
    );
    let spread_us = rng.below(8_000);
    let stall = if rng.chance(0.5) { 0.05 } else { 0.0 };
    Weather {
        spread_us,
        loss,
        duplication,
        straggler,
        stall,
    }
}

struct Draw<'a> {
    scenario: &'a Scenario,
    rng: Rng,
    steps: Vec<ScheduledStep>,
    commands: u64,
}

impl Draw<'_> {
    fn push(&mut self, at: u64, action: Action) {
        self.steps.push(ScheduledStep { at, action });
    }

    /// Draws at random times, `mean` milliseconds apart on average.
    fn every(&mut self, mean: u64, mut draw: impl FnMut(&mut Self, u64)) {
        let mut at = 0;
        loop {
            at += self
                .rng
                .exponential(Duration::from_millis(mean))
                .as_millis() as u64;
            if at >= FAULTS_END {
                return;
            }
            draw(self, at);
        }
    }

    fn node(&mut self) -> NodeId {
        let count = self.scenario.nodes + self.scenario.spares;
        NodeId::server(1 + self.rng.below(u64::from(count)) as u32)
    }

    fn other(&mut self, node: NodeId) -> NodeId {
        loop {
            let other = self.node();
            if other != node {
                return other;
            }
        }
    }

    fn command(&mut self, at: u64) {
        self.commands += 1;
        let (node, number) = (self.node(), self.commands);
        let action = if self.rng.chance(0.1) {
            Action::Read(node, number)
        } else {
            Action::Append(node, number)
        };
        self.push(at, action);
    }

    /// A fault, and its end some time later.
    fn fault(&mut self, at: u64) {
        let node = self.node();
        let other = self.other(node);
        let end = at + 20 + self.rng.below(400);
        let links = match self.rng.below(3) {
            0 => vec![Link {
                from: node,
                to: other,
            }],
            1 => Link::both(node, other).to_vec(),
            _ => self.all_links(node),
        };
        let percent = 20 + self.rng.below(81) as u8;
        let delay = Duration::from_millis(20 + self.rng.below(200));
        let (fault, mend) = match self.rng.below(9) {
            0 => (Fault::Kill(node), Fault::Restart(node)),
            1 => (Fault::LoseUnsynced(node), Fault::Restart(node)),
            2 | 3 => (Fault::Cut(links), Fault::Heal),
            4 | 5 => {
                let how = Disturbance::Reorder { percent, delay };
                (Fault::Disturb { links, how }, Fault::Calm)
            }
            6 => (Fault::Pause(node), Fault::Resume(node)),
            8 => {
                let trouble = DiskTrouble::Slow(delay);
                (Fault::Disk { node, trouble }, Fault::MendDisk(node))
            }
            7 if self.scenario.library == Library::Raft => {
                return self.push(at, Action::Transfer(node));
            }
            _ => {
                let how = Disturbance::Lose { percent };
                (Fault::Disturb { links, how }, Fault::Calm)
            }
        };
        self.push(at, Action::Fault(fault));
        self.push(end, Action::Fault(mend));
    }

    /// Both directions between a node and all others.
    fn all_links(&self, node: NodeId) -> Vec<Link> {
        let count = self.scenario.nodes + self.scenario.spares;
        let others = (1..=count)
            .map(NodeId::server)
            .filter(|other| *other != node);
        others.flat_map(|other| Link::both(node, other)).collect()
    }
}
