//! What each package can break and mend.

use super::FaultOptions;
use super::membership::{Change, Membership, View};
use super::target::{Target, choose, directed, pairs_of};
use seatrial_machine::{DiskTrouble, Disturbance, Fault, FaultKind, Link, NodeId, Rng};
use std::collections::BTreeSet;
use std::time::Duration;

/// All packages of a test: what they may strike, and what they have asked for. They remember what they asked for, not what
/// became of it.
#[derive(Clone, Debug)]
pub(super) struct Packages {
    options: FaultOptions,
    killed: BTreeSet<NodeId>,
    paused: BTreeSet<NodeId>,
    skewed: BTreeSet<NodeId>,
    /// Nodes whose disk is in trouble, or that lost their power.
    troubled: BTreeSet<NodeId>,
    copied: BTreeSet<NodeId>,
    is_cut: bool,
    is_disturbed: bool,
    /// Members are away.
    is_changed: bool,
    membership: Membership,
    /// Who leads; taken when it is used.
    primaries: Option<BTreeSet<NodeId>>,
}

/// What a package does in its turn.
#[derive(Debug, PartialEq)]
pub(super) enum Strike {
    /// These, one right after the other.
    Faults(Vec<Fault>),
    /// Nothing yet: ask again later.
    NotYet,
    /// There is nothing to be done.
    Nothing,
}

impl Strike {
    fn one(fault: Fault) -> Strike {
        Strike::Faults(vec![fault])
    }

    fn all(faults: impl IntoIterator<Item = Fault>) -> Strike {
        let faults: Vec<Fault> = faults.into_iter().collect();
        if faults.is_empty() {
            return Strike::Nothing;
        }
        Strike::Faults(faults)
    }
}

/// Chance to mend when something of the drawn kind is broken and more could be.
const MEND_CHANCE: f64 = 0.7;
/// Chance to mend everything of a kind at once rather than one node.
const MEND_ALL_CHANCE: f64 = 0.5;
/// Jumps of clocks are between these, small ones as likely as large ones.
const JUMP_NS: (u64, u64) = (1_000_000, 100_000_000_000);
/// Largest drift of a clock in parts per million.
const DRIFT_MAX_PPM: u64 = 100_000;
/// How long a flickering clock stays ahead.
const STROBE_PERIOD_NS: (u64, u64) = (1_000_000, 1_000_000_000);
/// Mean delays of slow links and disks, and of packets that are overtaken.
const DELAY_NS: (u64, u64) = (1_000_000, 500_000_000);
/// How long a flapping link fails, and then works.
const FLAP_PERIOD_NS: (u64, u64) = (5_000_000, 1_000_000_000);
/// How many of a hundred packets are lost or overtaken.
const PERCENTS: [u8; 4] = [2, 5, 20, 75];
/// What a narrow link carries.
const BYTES_PER_SECOND: (u64, u64) = (1_000, 1_000_000);
/// Most bits that flip at once.
const BITS_MAX: u64 = 8;
/// Most bytes that are cut off at once.
const CUT_OFF: (u64, u64) = (1, 16_384);

impl Packages {
    pub(super) fn new(mut options: FaultOptions) -> Packages {
        let single = options.servers.len() < 2;
        let no_links = single && options.clients.is_empty();
        options.kinds.retain(|kind| match kind {
            FaultKind::Membership => !single,
            FaultKind::Partition | FaultKind::Packet => !no_links,
            _ => true,
        });
        if options.servers.is_empty() {
            options.kinds.clear();
        }
        Packages {
            membership: Membership::new(&options.servers),
            killed: BTreeSet::new(),
            paused: BTreeSet::new(),
            skewed: BTreeSet::new(),
            troubled: BTreeSet::new(),
            copied: BTreeSet::new(),
            is_cut: false,
            is_disturbed: false,
            is_changed: false,
            primaries: None,
            options,
        }
    }

    pub(super) fn options(&self) -> &FaultOptions {
        &self.options
    }

    /// The nodes answered who belongs to the system, and who leads.
    pub(super) fn see(&mut self, view: &View) {
        self.membership.see(view);
        self.primaries = Some(view.primaries.clone());
    }

    /// A change of the members was refused.
    pub(super) fn refused(&mut self) {
        self.membership.refused();
    }

    /// Breaks or mends something of this kind.
    pub(super) fn either(&mut self, kind: FaultKind, rng: &mut Rng) -> Strike {
        if kind == FaultKind::Membership {
            return self.breaking(kind, rng); // to join is a change as well
        }
        if self.is_broken(kind) && (self.is_all_broken(kind) || rng.chance(MEND_CHANCE)) {
            let all = rng.chance(MEND_ALL_CHANCE);
            return self.mending(kind, all, rng);
        }
        self.breaking(kind, rng)
    }

    fn broken(&mut self, kind: FaultKind) -> Option<&mut BTreeSet<NodeId>> {
        match kind {
            FaultKind::Kill => Some(&mut self.killed),
            FaultKind::Pause => Some(&mut self.paused),
            FaultKind::Clock => Some(&mut self.skewed),
            FaultKind::Disk => Some(&mut self.troubled),
            _ => None,
        }
    }

    fn is_broken(&mut self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Partition => self.is_cut,
            FaultKind::Packet => self.is_disturbed,
            FaultKind::Membership => self.is_changed,
            _ => self.broken(kind).is_some_and(|nodes| !nodes.is_empty()),
        }
    }

    /// Is nothing left of this kind to be broken?
    fn is_all_broken(&mut self, kind: FaultKind) -> bool {
        self.broken(kind).is_some() && self.candidates(kind).is_empty()
    }

    /// The nodes that faults of this kind may strike now.
    fn candidates(&mut self, kind: FaultKind) -> Vec<NodeId> {
        let mut nodes = self.options.servers.clone();
        if kind == FaultKind::Pause {
            nodes.retain(|node| !self.killed.contains(node) && !self.troubled.contains(node));
        }
        if let Some(broken) = self.broken(kind) {
            nodes.retain(|node| !broken.contains(node));
        }
        nodes
    }

    /// Breaks something of this kind.
    pub(super) fn breaking(&mut self, kind: FaultKind, rng: &mut Rng) -> Strike {
        match kind {
            FaultKind::Membership => return self.change(rng),
            FaultKind::Corruption => return self.corrupt(rng),
            _ => {}
        }
        let target = self.target(kind, rng);
        if target == Target::Primaries && self.primaries.is_none() {
            return Strike::one(Fault::View);
        }
        if matches!(kind, FaultKind::Partition | FaultKind::Packet) {
            return self.break_links(kind, target, rng);
        }
        let nodes = self.nodes(kind, target, rng);
        match kind {
            FaultKind::Kill => {
                self.killed.extend(&nodes);
                self.paused.retain(|node| !nodes.contains(node));
                Strike::all(nodes.into_iter().map(Fault::Kill))
            }
            FaultKind::Pause => {
                self.paused.extend(&nodes);
                Strike::all(nodes.into_iter().map(Fault::Pause))
            }
            FaultKind::Clock => {
                self.skewed.extend(&nodes);
                Strike::all(nodes.into_iter().map(|node| draw_clock(node, rng)))
            }
            _ => self.trouble(nodes, rng),
        }
    }

    /// What to strike this time.
    fn target(&mut self, kind: FaultKind, rng: &mut Rng) -> Target {
        let asked = self
            .options
            .targets
            .get(&kind)
            .map_or(&[][..], |asked| asked);
        if !asked.is_empty() {
            return *rng.pick(asked);
        }
        let links = matches!(kind, FaultKind::Partition | FaultKind::Packet);
        if !links {
            return Target::One;
        }
        let count = self.options.servers.len();
        if count < 2 || (!self.options.clients.is_empty() && rng.chance(0.4)) {
            return Target::Clients;
        }
        let usual = [
            Target::One,
            Target::RandomHalves,
            Target::MinorityThird,
            Target::Random,
            Target::Bridge,
            Target::MajoritiesRing,
        ];
        let fitting = usual
            .iter()
            .filter(|target| target.nodes_min(kind) <= count);
        let fitting: Vec<Target> = fitting.copied().collect();
        *rng.pick(&fitting)
    }

    fn nodes(&mut self, kind: FaultKind, target: Target, rng: &mut Rng) -> Vec<NodeId> {
        let candidates = self.candidates(kind);
        if candidates.is_empty() {
            return candidates;
        }
        if target == Target::Primaries {
            let primaries = self.primaries.take().unwrap_or_default();
            let struck = candidates.iter().copied();
            let struck: Vec<NodeId> = struck.filter(|node| primaries.contains(node)).collect();
            if !struck.is_empty() {
                return struck;
            }
        }
        choose(rng, target, &candidates, self.options.servers.len())
    }

    fn break_links(&mut self, kind: FaultKind, target: Target, rng: &mut Rng) -> Strike {
        let primaries: Vec<NodeId> = match target {
            Target::Primaries => self
                .primaries
                .take()
                .unwrap_or_default()
                .into_iter()
                .collect(),
            _ => Vec::new(),
        };
        let (servers, clients) = (&self.options.servers, &self.options.clients);
        let all = target == Target::All && kind == FaultKind::Packet;
        let mut struck = pairs_of(rng, target, servers, clients, &primaries);
        if struck.is_empty() || all {
            // Nobody leads, or all links are meant: those of the clients as well.
            struck.extend(pairs_of(rng, Target::Clients, servers, clients, &[]));
        }
        let links = directed(rng, struck);
        if links.is_empty() {
            return Strike::Nothing;
        }
        if kind == FaultKind::Packet {
            return self.disturb(links, rng);
        }
        if rng.below(10) == 0 && !self.options.omitted.contains("reset") {
            return Strike::one(Fault::Reset(links));
        }
        self.is_cut = true;
        Strike::one(Fault::Cut(links))
    }

    fn disturb(&mut self, links: Vec<Link>, rng: &mut Rng) -> Strike {
        let delay = nanoseconds(DELAY_NS, rng);
        let percent = *rng.pick(&PERCENTS);
        let jitter = rng.duration_below(delay);
        let bytes_per_second = magnitude(BYTES_PER_SECOND, rng);
        let period = nanoseconds(FLAP_PERIOD_NS, rng);
        let mut all = vec![
            Disturbance::Slow { delay, jitter },
            Disturbance::Lose { percent },
            Disturbance::Reorder { percent, delay },
            Disturbance::Throttle { bytes_per_second },
            Disturbance::Flap { period },
        ];
        let name = |how: Disturbance| {
            let links = Vec::new();
            Fault::Disturb { links, how }.name()
        };
        all.retain(|how| !self.options.omitted.contains(name(*how)));
        if all.is_empty() {
            return Strike::Nothing;
        }
        self.is_disturbed = true;
        let how = *rng.pick(&all);
        Strike::one(Fault::Disturb { links, how })
    }

    /// Troubles the disks of these nodes, all in the same way.
    fn trouble(&mut self, nodes: Vec<NodeId>, rng: &mut Rng) -> Strike {
        let delay = nanoseconds(DELAY_NS, rng);
        let mut all = vec![
            Some(DiskTrouble::Slow(delay)),
            Some(DiskTrouble::WriteErrors),
            Some(DiskTrouble::ReadErrors),
            Some(DiskTrouble::NoSpace),
            None,
        ];
        let fault = |node, trouble: Option<DiskTrouble>| match trouble {
            Some(trouble) => Fault::Disk { node, trouble },
            None => Fault::LoseUnsynced(node),
        };
        let any = NodeId::server(0);
        all.retain(|trouble| !self.options.omitted.contains(fault(any, *trouble).name()));
        if all.is_empty() {
            return Strike::Nothing;
        }
        let trouble = *rng.pick(&all);
        self.troubled.extend(&nodes);
        if !matches!(trouble, Some(DiskTrouble::Slow(_))) {
            self.paused.retain(|node| !nodes.contains(node)); // it goes down, sooner or later
        }
        Strike::all(nodes.into_iter().flat_map(|node| match trouble {
            // A log is read when its node starts.
            Some(DiskTrouble::ReadErrors) => vec![
                Fault::Kill(node),
                fault(node, trouble),
                Fault::Restart(node),
            ],
            _ => vec![fault(node, trouble)],
        }))
    }

    /// Damages what a node has on its disk while it is down. Always the same nodes, less than half of them, so that a
    /// replicated system keeps whole copies; a system of one or two nodes has none that could be spared.
    fn corrupt(&mut self, rng: &mut Rng) -> Strike {
        let servers = &self.options.servers;
        let minority = (servers.len() - 1) / 2;
        let node = *rng.pick(&servers[..minority.max(1)]);
        let mut all = vec!["bit-rot", "truncate", "snapshot"];
        if self.copied.contains(&node) {
            all.push("restore");
        }
        all.retain(|name| !self.options.omitted.contains(name));
        if all.is_empty() {
            return Strike::Nothing;
        }
        let damage = match *rng.pick(&all) {
            "bit-rot" => Fault::BitRot {
                node,
                bits: 1 + rng.below(BITS_MAX) as u32,
            },
            "truncate" => Fault::Truncate {
                node,
                bytes: magnitude(CUT_OFF, rng),
            },
            "restore" => Fault::Restore(node),
            _ => {
                self.copied.insert(node);
                return Strike::one(Fault::Snapshot(node));
            }
        };
        self.killed.remove(&node);
        self.paused.remove(&node);
        Strike::Faults(vec![Fault::Kill(node), damage, Fault::Restart(node)])
    }

    fn change(&mut self, rng: &mut Rng) -> Strike {
        match self.membership.breaking(rng) {
            Change::Ask => Strike::one(Fault::View),
            Change::Make(fault) => {
                self.is_changed = true;
                Strike::one(fault)
            }
            Change::NotYet => Strike::NotYet,
            Change::Nothing => Strike::Nothing,
        }
    }

    /// Mends what is broken of this kind: all of it, or one node.
    pub(super) fn mending(&mut self, kind: FaultKind, all: bool, rng: &mut Rng) -> Strike {
        if !self.is_broken(kind) {
            return Strike::Nothing;
        }
        match kind {
            FaultKind::Partition => {
                self.is_cut = false;
                return Strike::one(Fault::Heal);
            }
            FaultKind::Packet => {
                self.is_disturbed = false;
                return Strike::one(Fault::Calm);
            }
            FaultKind::Membership => return self.change_back(),
            _ => {}
        }
        let Some(broken) = self.broken(kind) else {
            return Strike::Nothing;
        };
        let mut nodes: Vec<NodeId> = broken.iter().copied().collect();
        if !all {
            nodes = vec![*rng.pick(&nodes)];
        }
        broken.retain(|node| !nodes.contains(node));
        if kind == FaultKind::Disk {
            self.killed.retain(|node| !nodes.contains(node));
        }
        Strike::all(nodes.into_iter().flat_map(|node| match kind {
            FaultKind::Kill => vec![Fault::Restart(node)],
            FaultKind::Pause => vec![Fault::Resume(node)],
            FaultKind::Clock => vec![Fault::right_clock(node)],
            _ => vec![Fault::MendDisk(node), Fault::Restart(node)],
        }))
    }

    fn change_back(&mut self) -> Strike {
        match self.membership.mending() {
            Change::Ask => Strike::one(Fault::View),
            Change::Make(fault) => Strike::one(fault),
            Change::NotYet => Strike::NotYet,
            Change::Nothing => {
                self.is_changed = false;
                Strike::Nothing
            }
        }
    }
}

/// A clock that jumps, drifts, does both, or flickers.
fn draw_clock(node: NodeId, rng: &mut Rng) -> Fault {
    let jump = magnitude(JUMP_NS, rng);
    let drift = rng.below(2 * DRIFT_MAX_PPM + 1) as i64 - DRIFT_MAX_PPM as i64;
    let is_back = rng.chance(0.5);
    let offset = if is_back { -(jump as i64) } else { jump as i64 };
    let (offset_ns, rate_ppm) = match rng.below(4) {
        0 => (offset, 0),
        1 => (0, drift.max(1)),
        2 => (offset, drift),
        _ => {
            let period = nanoseconds(STROBE_PERIOD_NS, rng);
            return Fault::Strobe {
                node,
                delta: Duration::from_nanos(jump),
                period,
                length: period * (2 + rng.below(30) as u32),
            };
        }
    };
    Fault::Skew {
        node,
        offset_ns,
        rate_ppm: rate_ppm as i32,
    }
}

/// Between these, each power of ten as likely as another.
fn magnitude((least, most): (u64, u64), rng: &mut Rng) -> u64 {
    let ratio = most as f64 / least as f64;
    (least as f64 * ratio.powf(rng.unit())) as u64
}

fn nanoseconds(range: (u64, u64), rng: &mut Rng) -> Duration {
    Duration::from_nanos(magnitude(range, rng))
}
