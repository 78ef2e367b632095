//! Fault packages: for each kind of fault, how to inject and how to heal it.

use super::FaultOptions;
use super::membership::{Membership, MembershipPlanner, MembershipStep};
use super::target::{FaultTarget, choose, directed, pairs_of};
use seatrial_machine::{DiskTrouble, Disturbance, Fault, FaultKind, Link, NodeId, Rng};
use std::collections::BTreeSet;
use std::time::Duration;

/// All packages of a test: their options, and the faults that are requested and not healed yet. The state is that of the
/// requests, not of the system: a fault whose operation failed counts as injected.
#[derive(Clone, Debug)]
pub(super) struct Packages {
    options: FaultOptions,
    killed: BTreeSet<NodeId>,
    paused: BTreeSet<NodeId>,
    skewed: BTreeSet<NodeId>,
    /// Nodes with a disk fault, or that lost unsynced writes.
    disk_faulty: BTreeSet<NodeId>,
    /// Nodes with a snapshot of their files.
    snapshotted: BTreeSet<NodeId>,
    is_cut: bool,
    is_disturbed: bool,
    /// May members be missing?
    is_changed: bool,
    membership: MembershipPlanner,
    /// The primaries reported last; taken when used, so that no fault rests on an old report.
    primaries: Option<BTreeSet<NodeId>>,
}

/// The result of a package's turn.
#[derive(Debug, PartialEq)]
pub(super) enum PackageTurn {
    /// These operations, one right after another.
    Faults(Vec<Fault>),
    /// Nothing yet; try again later.
    NotYet,
    /// Nothing can be done.
    Nothing,
}

impl PackageTurn {
    fn one(fault: Fault) -> PackageTurn {
        PackageTurn::Faults(vec![fault])
    }

    fn all(faults: impl IntoIterator<Item = Fault>) -> PackageTurn {
        let faults: Vec<Fault> = faults.into_iter().collect();
        if faults.is_empty() {
            return PackageTurn::Nothing;
        }
        PackageTurn::Faults(faults)
    }
}

/// Probability of healing when faults of the drawn kind are present and more could be injected.
const HEAL_PROBABILITY: f64 = 0.7;
/// Probability of healing all faults of a kind at once, rather than one node.
const HEAL_ALL_PROBABILITY: f64 = 0.5;
/// Clock jumps, log-uniform: 1 ms to 100 s.
const JUMP_NS: (u64, u64) = (1_000_000, 100_000_000_000);
/// Largest drift of a clock in parts per million.
const DRIFT_MAX_PPM: u64 = 100_000;
/// Period of a strobing clock, log-uniform: 1 ms to 1 s.
const STROBE_PERIOD_NS: (u64, u64) = (1_000_000, 1_000_000_000);
/// Mean delays of slow links and disks, and of reordered packets, log-uniform: 1 ms to 0.5 s.
const DELAY_NS: (u64, u64) = (1_000_000, 500_000_000);
/// Half period of a flapping link, log-uniform: 5 ms to 1 s.
const FLAP_PERIOD_NS: (u64, u64) = (5_000_000, 1_000_000_000);
/// Percentages of packets that are lost or reordered.
const PERCENTS: [u8; 4] = [2, 5, 20, 75];
/// Rate of a throttled link, log-uniform: 1 kB/s to 1 MB/s.
const BYTES_PER_SECOND: (u64, u64) = (1_000, 1_000_000);
/// Maximum number of bits flipped at once.
const BITS_MAX: u64 = 8;
/// Bytes truncated from a file, log-uniform: 1 to 16,384.
const TRUNCATED_BYTES: (u64, u64) = (1, 16_384);

impl Packages {
    /// Packages of all kinds in `options` for which the system has enough nodes.
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
        // `corrupt` and `target` rely on this.
        assert!(options.kinds.is_empty() || !options.servers.is_empty());
        Packages {
            membership: MembershipPlanner::new(&options.servers),
            killed: BTreeSet::new(),
            paused: BTreeSet::new(),
            skewed: BTreeSet::new(),
            disk_faulty: BTreeSet::new(),
            snapshotted: BTreeSet::new(),
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

    /// Receives the membership that the nodes report.
    pub(super) fn on_membership(&mut self, membership: &Membership) {
        self.membership.on_membership(membership);
        self.primaries = Some(membership.primaries.clone());
    }

    /// The system refused a membership change.
    pub(super) fn on_refused(&mut self) {
        self.membership.on_refused();
    }

    /// Injects or heals faults of this kind, at random.
    pub(super) fn inject_or_heal(&mut self, kind: FaultKind, rng: &mut Rng) -> PackageTurn {
        if kind == FaultKind::Membership {
            return self.inject(kind, rng); // a join is a change too, so changes heal themselves
        }
        if self.is_faulty(kind) && (self.is_all_faulty(kind) || rng.chance(HEAL_PROBABILITY)) {
            let all = rng.chance(HEAL_ALL_PROBABILITY);
            return self.heal(kind, all, rng);
        }
        self.inject(kind, rng)
    }

    /// The nodes with a fault of this kind; `None` for kinds that do not affect single nodes.
    fn faulty(&mut self, kind: FaultKind) -> Option<&mut BTreeSet<NodeId>> {
        match kind {
            FaultKind::Kill => Some(&mut self.killed),
            FaultKind::Pause => Some(&mut self.paused),
            FaultKind::Clock => Some(&mut self.skewed),
            FaultKind::Disk => Some(&mut self.disk_faulty),
            _ => None,
        }
    }

    /// Is a fault of this kind present?
    fn is_faulty(&mut self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Partition => self.is_cut,
            FaultKind::Packet => self.is_disturbed,
            FaultKind::Membership => self.is_changed,
            _ => self.faulty(kind).is_some_and(|nodes| !nodes.is_empty()),
        }
    }

    /// Does every node have a fault of this kind, so that no further one can be injected?
    fn is_all_faulty(&mut self, kind: FaultKind) -> bool {
        self.faulty(kind).is_some() && self.candidates(kind).is_empty()
    }

    /// The nodes into which a fault of this kind may be injected now.
    fn candidates(&mut self, kind: FaultKind) -> Vec<NodeId> {
        let mut nodes = self.options.servers.clone();
        if kind == FaultKind::Pause {
            // A node that is down cannot be paused.
            nodes.retain(|node| !self.killed.contains(node) && !self.disk_faulty.contains(node));
        }
        if let Some(faulty) = self.faulty(kind) {
            nodes.retain(|node| !faulty.contains(node));
        }
        nodes
    }

    /// Injects a fault of this kind.
    pub(super) fn inject(&mut self, kind: FaultKind, rng: &mut Rng) -> PackageTurn {
        match kind {
            FaultKind::Membership => return self.change_membership(rng),
            FaultKind::Corruption => return self.corrupt(rng),
            _ => {}
        }
        let target = self.target(kind, rng);
        if target == FaultTarget::Primaries && self.primaries.is_none() {
            return PackageTurn::one(Fault::View);
        }
        if matches!(kind, FaultKind::Partition | FaultKind::Packet) {
            return self.inject_on_links(kind, target, rng);
        }
        let nodes = self.nodes(kind, target, rng);
        match kind {
            FaultKind::Kill => {
                self.killed.extend(&nodes);
                self.paused.retain(|node| !nodes.contains(node));
                PackageTurn::all(nodes.into_iter().map(Fault::Kill))
            }
            FaultKind::Pause => {
                self.paused.extend(&nodes);
                PackageTurn::all(nodes.into_iter().map(Fault::Pause))
            }
            FaultKind::Clock => {
                self.skewed.extend(&nodes);
                PackageTurn::all(nodes.into_iter().map(|node| draw_clock(node, rng)))
            }
            _ => self.inject_on_disks(nodes, rng),
        }
    }

    /// Draws a target: one of the configured ones, else a default of the kind.
    fn target(&mut self, kind: FaultKind, rng: &mut Rng) -> FaultTarget {
        let configured = self
            .options
            .targets
            .get(&kind)
            .map_or(&[][..], |configured| configured);
        if !configured.is_empty() {
            return *rng.pick(configured);
        }
        let is_on_links = matches!(kind, FaultKind::Partition | FaultKind::Packet);
        if !is_on_links {
            return FaultTarget::One;
        }
        let count = self.options.servers.len();
        if count < 2 || (!self.options.clients.is_empty() && rng.chance(0.4)) {
            return FaultTarget::Clients;
        }
        let defaults = [
            FaultTarget::One,
            FaultTarget::RandomHalves,
            FaultTarget::MinorityThird,
            FaultTarget::Random,
            FaultTarget::Bridge,
            FaultTarget::MajoritiesRing,
        ];
        let fitting = defaults
            .iter()
            .filter(|target| target.nodes_min(kind) <= count);
        let fitting: Vec<FaultTarget> = fitting.copied().collect();
        // With two nodes or more, `One` fits.
        debug_assert!(fitting.contains(&FaultTarget::One));
        *rng.pick(&fitting)
    }

    /// Draws the nodes of a target; empty when no node is a candidate.
    fn nodes(&mut self, kind: FaultKind, target: FaultTarget, rng: &mut Rng) -> Vec<NodeId> {
        let candidates = self.candidates(kind);
        if candidates.is_empty() {
            return candidates;
        }
        if target == FaultTarget::Primaries {
            let primaries = self.primaries.take().unwrap_or_default();
            let chosen = candidates.iter().copied();
            let chosen: Vec<NodeId> = chosen.filter(|node| primaries.contains(node)).collect();
            if !chosen.is_empty() {
                return chosen;
            }
            // No primary is known or a candidate: one node at random.
        }
        choose(rng, target, &candidates, self.options.servers.len())
    }

    /// Cuts, resets or disturbs the links of a target.
    fn inject_on_links(
        &mut self,
        kind: FaultKind,
        target: FaultTarget,
        rng: &mut Rng,
    ) -> PackageTurn {
        let primaries: Vec<NodeId> = match target {
            FaultTarget::Primaries => self
                .primaries
                .take()
                .unwrap_or_default()
                .into_iter()
                .collect(),
            _ => Vec::new(),
        };
        let (servers, clients) = (&self.options.servers, &self.options.clients);
        let all = target == FaultTarget::All && kind == FaultKind::Packet;
        let mut pairs = pairs_of(rng, target, servers, clients, &primaries);
        if pairs.is_empty() || all {
            // No primary is known, or all links are meant: links of the clients too.
            pairs.extend(pairs_of(rng, FaultTarget::Clients, servers, clients, &[]));
        }
        let links = directed(rng, pairs);
        if links.is_empty() {
            return PackageTurn::Nothing;
        }
        if kind == FaultKind::Packet {
            return self.disturb(links, rng);
        }
        // A reset leaves no fault to heal.
        if rng.below(10) == 0 && !self.options.omitted.contains("reset") {
            return PackageTurn::one(Fault::Reset(links));
        }
        self.is_cut = true;
        PackageTurn::one(Fault::Cut(links))
    }

    /// Disturbs packets on these links in one random way.
    fn disturb(&mut self, links: Vec<Link>, rng: &mut Rng) -> PackageTurn {
        // All parameters are drawn even if one is used: a change of the list below does not shift the random stream.
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
        if self.options.has_packets {
            all.push(Disturbance::Duplicate { percent });
            all.push(Disturbance::Corrupt { percent });
        }
        let name = |how: Disturbance| {
            let links = Vec::new();
            Fault::Disturb { links, how }.name()
        };
        all.retain(|how| !self.options.omitted.contains(name(*how)));
        if all.is_empty() {
            return PackageTurn::Nothing;
        }
        self.is_disturbed = true;
        let how = *rng.pick(&all);
        PackageTurn::one(Fault::Disturb { links, how })
    }

    /// Injects the same random disk fault into each of these nodes.
    fn inject_on_disks(&mut self, nodes: Vec<NodeId>, rng: &mut Rng) -> PackageTurn {
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
            return PackageTurn::Nothing;
        }
        let trouble = *rng.pick(&all);
        self.disk_faulty.extend(&nodes);
        if !matches!(trouble, Some(DiskTrouble::Slow(_))) {
            self.paused.retain(|node| !nodes.contains(node)); // the node will stop, sooner or later
        }
        PackageTurn::all(nodes.into_iter().flat_map(|node| match trouble {
            // A node reads its log only at its start, so read errors take effect at a restart.
            Some(DiskTrouble::ReadErrors) => vec![
                Fault::Kill(node),
                fault(node, trouble),
                Fault::Restart(node),
            ],
            _ => vec![fault(node, trouble)],
        }))
    }

    /// Damages a node's files while the node is down. The node is always from the same minority, so that a replicated
    /// system keeps intact copies; in a system of one or two nodes the first node is damaged.
    fn corrupt(&mut self, rng: &mut Rng) -> PackageTurn {
        let servers = &self.options.servers;
        let minority = (servers.len() - 1) / 2;
        let node = *rng.pick(&servers[..minority.max(1)]);
        let mut all = vec!["bit-rot", "truncate", "snapshot"];
        if self.snapshotted.contains(&node) {
            all.push("restore");
        }
        all.retain(|name| !self.options.omitted.contains(name));
        if all.is_empty() {
            return PackageTurn::Nothing;
        }
        let damage = match *rng.pick(&all) {
            "bit-rot" => Fault::BitRot {
                node,
                bits: 1 + rng.below(BITS_MAX) as u32,
            },
            "truncate" => Fault::Truncate {
                node,
                bytes: magnitude(TRUNCATED_BYTES, rng),
            },
            "restore" => Fault::Restore(node),
            _ => {
                self.snapshotted.insert(node);
                return PackageTurn::one(Fault::Snapshot(node));
            }
        };
        // The restart below ends an earlier kill or pause.
        self.killed.remove(&node);
        self.paused.remove(&node);
        PackageTurn::Faults(vec![Fault::Kill(node), damage, Fault::Restart(node)])
    }

    fn change_membership(&mut self, rng: &mut Rng) -> PackageTurn {
        match self.membership.change(rng) {
            MembershipStep::Query => PackageTurn::one(Fault::View),
            MembershipStep::Request(fault) => {
                self.is_changed = true;
                PackageTurn::one(fault)
            }
            MembershipStep::NotYet => PackageTurn::NotYet,
            MembershipStep::Nothing => PackageTurn::Nothing,
        }
    }

    /// Heals the faults of this kind: all of them, or those of one node.
    pub(super) fn heal(&mut self, kind: FaultKind, all: bool, rng: &mut Rng) -> PackageTurn {
        if !self.is_faulty(kind) {
            return PackageTurn::Nothing;
        }
        match kind {
            FaultKind::Partition => {
                self.is_cut = false;
                return PackageTurn::one(Fault::Heal);
            }
            FaultKind::Packet => {
                self.is_disturbed = false;
                return PackageTurn::one(Fault::Calm);
            }
            FaultKind::Membership => return self.restore_membership(),
            _ => {}
        }
        let Some(faulty) = self.faulty(kind) else {
            return PackageTurn::Nothing;
        };
        let mut nodes: Vec<NodeId> = faulty.iter().copied().collect();
        if !all {
            nodes = vec![*rng.pick(&nodes)];
        }
        faulty.retain(|node| !nodes.contains(node));
        if kind == FaultKind::Disk {
            // The restart below ends an earlier kill too.
            self.killed.retain(|node| !nodes.contains(node));
        }
        PackageTurn::all(nodes.into_iter().flat_map(|node| match kind {
            FaultKind::Kill => vec![Fault::Restart(node)],
            FaultKind::Pause => vec![Fault::Resume(node)],
            FaultKind::Clock => vec![Fault::right_clock(node)],
            _ => vec![Fault::MendDisk(node), Fault::Restart(node)],
        }))
    }

    fn restore_membership(&mut self) -> PackageTurn {
        match self.membership.restore() {
            MembershipStep::Query => PackageTurn::one(Fault::View),
            MembershipStep::Request(fault) => PackageTurn::one(fault),
            MembershipStep::NotYet => PackageTurn::NotYet,
            MembershipStep::Nothing => {
                self.is_changed = false;
                PackageTurn::Nothing
            }
        }
    }
}

/// A random clock fault: a jump, a drift, both, or a strobe (repeated jumps there and back).
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

/// A log-uniform number between `least` and `most`: each power of ten is equally likely.
fn magnitude((least, most): (u64, u64), rng: &mut Rng) -> u64 {
    let ratio = most as f64 / least as f64;
    (least as f64 * ratio.powf(rng.unit())) as u64
}

/// A log-uniform duration.
fn nanoseconds(range: (u64, u64), rng: &mut Rng) -> Duration {
    Duration::from_nanos(magnitude(range, rng))
}
