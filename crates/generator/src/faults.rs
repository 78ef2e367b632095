//! Faults as operations of the nemesis: what to break when, and the way back from an operation to its fault.

use seatrial_history::{Op, Symbol, Value};
use seatrial_machine::{Fault, FaultKind, Link, NodeId, Rng, Time};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, Sequence, Template, Tree, operation, sequence};

/// What may be broken.
#[derive(Clone, Debug)]
pub struct FaultOptions {
    /// The families of faults to draw from; none, no faults.
    pub kinds: Vec<FaultKind>,
    /// The nodes of the system.
    pub servers: Vec<NodeId>,
    /// The endpoints of the test's clients, whose links to the servers may be cut; may be empty.
    pub clients: Vec<NodeId>,
    /// Mean time between two faults; the gaps are uniform between nothing and twice this.
    pub interval: Duration,
}

/// Generators of faults that fit together. Both must run on the nemesis thread
/// ([`Generator::nemesis`]).
#[derive(Debug)]
pub struct FaultPackage {
    /// Breaks and mends, without end.
    pub faults: FaultSchedule,
    /// Mends everything of the kinds asked for, whatever was broken: for the end of the test.
    pub healing: Sequence<std::vec::IntoIter<Template>>,
}

/// The faults of these options, drawn from `rng`.
pub fn fault_package(options: FaultOptions, rng: Rng) -> FaultPackage {
    let healing = sequence(
        healing(&options)
            .iter()
            .map(fault_operation)
            .collect::<Vec<_>>(),
    );
    FaultPackage {
        faults: FaultSchedule::new(options, rng),
        healing,
    }
}

/// Everything that mends what these options can break.
fn healing(options: &FaultOptions) -> Vec<Fault> {
    let mut healing = Vec::new();
    if options.kinds.contains(&FaultKind::Partition) {
        healing.push(Fault::Heal);
    }
    for &node in &options.servers {
        if options.kinds.contains(&FaultKind::Pause) {
            healing.push(Fault::Resume(node));
        }
        if options.kinds.contains(&FaultKind::Clock) {
            healing.push(Fault::Skew {
                node,
                offset_ns: 0,
                rate_ppm: 0,
            });
        }
        if options.kinds.contains(&FaultKind::Kill) {
            healing.push(Fault::Restart(node));
        }
    }
    healing
}

/// Draws faults at random intervals: each time a kind, then, if something of that kind is broken, as a rule its
/// mending, else something new to break. It remembers what it asked for, not what became of it.
///
/// Its downside: it does not learn what the system is doing; an operation that failed is not tried again before it is
/// drawn again.
#[derive(Debug)]
pub struct FaultSchedule {
    rng: Rng,
    options: FaultOptions,
    killed: BTreeSet<NodeId>,
    paused: BTreeSet<NodeId>,
    skewed: BTreeSet<NodeId>,
    /// Are links cut or slow?
    partitioned: bool,
    /// The fault that comes next; kept until it is taken.
    drawn: Option<Template>,
    /// No fault before this time.
    due: Option<Time>,
    /// The time of the operation that was answered last.
    candidate: Time,
}

/// Chance to mend when something of the drawn kind is broken and more could be.
const MEND_CHANCE: f64 = 0.7;
/// Largest jump of a clock.
const SKEW_MAX_NS: u64 = 10_000_000_000;
/// Largest drift of a clock in parts per million.
const DRIFT_MAX_PPM: u64 = 100_000;
/// Largest mean delay of slow links.
const DELAY_MAX: Duration = Duration::from_millis(500);
/// Most bits that flip at once.
const BITS_MAX: u64 = 8;

impl FaultSchedule {
    fn new(options: FaultOptions, rng: Rng) -> FaultSchedule {
        FaultSchedule {
            rng,
            options,
            killed: BTreeSet::new(),
            paused: BTreeSet::new(),
            skewed: BTreeSet::new(),
            partitioned: false,
            drawn: None,
            due: None,
            candidate: Time::ZERO,
        }
    }

    /// The next fault; `None` when there is nothing to break.
    fn draw(&mut self) -> Option<Fault> {
        if self.options.servers.is_empty() || self.options.kinds.is_empty() {
            return None;
        }
        let kind = *self.rng.pick(&self.options.kinds);
        Some(match kind {
            FaultKind::Kill => self.draw_kill(),
            FaultKind::Pause => self.draw_pause(),
            FaultKind::Partition => self.draw_partition(),
            FaultKind::Clock => self.draw_skew(),
            FaultKind::Disk => {
                // Never more than a minority, so that a replicated system keeps a way to mend itself.
                let minority = (self.options.servers.len() - 1) / 2;
                let node = *self.rng.pick(&self.options.servers[..minority.max(1)]);
                Fault::BitRot {
                    node,
                    bits: 1 + self.rng.below(BITS_MAX) as u32,
                }
            }
        })
    }

    fn draw_kill(&mut self) -> Fault {
        let (node, broken) = toggle(&mut self.rng, &self.options.servers, &mut self.killed);
        if !broken {
            return Fault::Restart(node);
        }
        self.paused.remove(&node);
        Fault::Kill(node)
    }

    /// Pauses or resumes a node that is alive; when none is, one is started.
    fn draw_pause(&mut self) -> Fault {
        let servers = self.options.servers.iter().copied();
        let alive: Vec<NodeId> = servers.filter(|node| !self.killed.contains(node)).collect();
        if alive.is_empty() {
            return self.draw_kill();
        }
        let (node, broken) = toggle(&mut self.rng, &alive, &mut self.paused);
        if broken {
            Fault::Pause(node)
        } else {
            Fault::Resume(node)
        }
    }

    fn draw_skew(&mut self) -> Fault {
        let (node, broken) = toggle(&mut self.rng, &self.options.servers, &mut self.skewed);
        if !broken {
            return Fault::Skew {
                node,
                offset_ns: 0,
                rate_ppm: 0,
            };
        }
        let offset = self.rng.below(2 * SKEW_MAX_NS + 1) as i64 - SKEW_MAX_NS as i64;
        let rate = self.rng.below(2 * DRIFT_MAX_PPM + 1) as i64 - DRIFT_MAX_PPM as i64;
        Fault::Skew {
            node,
            offset_ns: offset,
            rate_ppm: rate as i32,
        }
    }

    fn draw_partition(&mut self) -> Fault {
        if self.partitioned && self.rng.chance(MEND_CHANCE) {
            self.partitioned = false;
            return Fault::Heal;
        }
        let links = self.draw_links();
        match self.rng.below(10) {
            0..=6 => {
                self.partitioned = true;
                Fault::Cut(links)
            }
            7..=8 => {
                self.partitioned = true;
                let delay = self.rng.duration_below(DELAY_MAX);
                let jitter = self.rng.duration_below(delay);
                Fault::Slow {
                    links,
                    delay,
                    jitter,
                }
            }
            _ => Fault::Reset(links),
        }
    }

    /// Some links, in both directions or in one.
    fn draw_links(&mut self) -> Vec<Link> {
        let between_servers = self.options.servers.len() > 1
            && (self.options.clients.is_empty() || self.rng.chance(0.6));
        let pairs = if between_servers {
            self.split_servers()
        } else {
            self.split_clients()
        };
        let direction = self.rng.below(4);
        let links = pairs.into_iter().flat_map(|(a, b)| match direction {
            0 => vec![Link { from: a, to: b }],
            1 => vec![Link { from: b, to: a }],
            _ => Link::both(a, b).to_vec(),
        });
        links.collect()
    }

    /// Pairs of servers that a partition separates: one node from the others, random halves, a bridge (halves and one
    /// node that both still reach), or a ring in which every node reaches a majority, but no two the same.
    fn split_servers(&mut self) -> Vec<(NodeId, NodeId)> {
        let mut nodes = self.options.servers.clone();
        self.rng.shuffle(&mut nodes);
        let count = nodes.len();
        let shapes = if count < 3 {
            1
        } else if count < 5 {
            3
        } else {
            4
        };
        match self.rng.below(shapes) {
            0 => pairs(&nodes[..1], &nodes[1..]),
            1 => pairs(&nodes[..count / 2], &nodes[count / 2..]),
            2 => pairs(&nodes[..(count - 1) / 2], &nodes[count.div_ceil(2)..]),
            _ => {
                // So many neighbours on either side make a majority with the node itself.
                let reach = (count / 2).div_ceil(2);
                let far = |a: usize, b: usize| (b - a).min(count - (b - a)) > reach;
                let all = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
                all.filter(|&(a, b)| far(a, b))
                    .map(|(a, b)| (nodes[a], nodes[b]))
                    .collect()
            }
        }
    }

    /// Pairs of clients and servers: one, a random half or all of the clients, and one or all servers.
    fn split_clients(&mut self) -> Vec<(NodeId, NodeId)> {
        let mut clients = self.options.clients.clone();
        self.rng.shuffle(&mut clients);
        let count = match self.rng.below(3) {
            0 => 1,
            1 => clients.len().div_ceil(2),
            _ => clients.len(),
        };
        clients.truncate(count);
        let node = [*self.rng.pick(&self.options.servers)];
        let servers = if self.rng.chance(0.5) {
            &node[..]
        } else {
            &self.options.servers
        };
        pairs(&clients, servers)
    }
}

/// Every one of the first with every one of the second.
fn pairs(first: &[NodeId], second: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    first
        .iter()
        .flat_map(|&a| second.iter().map(move |&b| (a, b)))
        .collect()
}

/// Chooses a node to break (true) or to mend (false), and notes it.
fn toggle(rng: &mut Rng, nodes: &[NodeId], broken: &mut BTreeSet<NodeId>) -> (NodeId, bool) {
    let whole: Vec<NodeId> = nodes
        .iter()
        .copied()
        .filter(|node| !broken.contains(node))
        .collect();
    if whole.is_empty() || (!broken.is_empty() && rng.chance(MEND_CHANCE)) {
        let candidates: Vec<NodeId> = broken.iter().copied().collect();
        let node = *rng.pick(&candidates);
        broken.remove(&node);
        (node, false)
    } else {
        let node = *rng.pick(&whole);
        broken.insert(node);
        (node, true)
    }
}

impl Generator for FaultSchedule {
    fn next(&mut self, context: &Context) -> Next {
        if self.drawn.is_none() {
            match self.draw() {
                Some(fault) => self.drawn = Some(fault_operation(&fault)),
                None => return Next::Exhausted,
            }
        }
        // The first fault waits too: the system is to be seen whole first.
        if self.due.is_none() {
            self.due = Some(context.time() + self.rng.duration_below(self.options.interval * 2));
        }
        let mut next = self.drawn.next(context);
        if let Next::Op(op) = &mut next {
            not_before(op, self.due.unwrap_or(Time::ZERO));
            self.candidate = time_of(op);
        }
        next
    }

    fn commit(&mut self) {
        self.drawn = None;
        let gap = self.rng.duration_below(self.options.interval * 2);
        self.due = Some(self.candidate + gap);
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        let kinds: Vec<&str> = self.options.kinds.iter().map(|kind| kind.name()).collect();
        Tree::leaf(format!(
            "faults {} every {:?}",
            kinds.join(" "),
            self.options.interval
        ))
    }
}

/// The operation of the nemesis that stands for this fault: `f` is the fault's name, the value its targets in plain
/// data, so that a history says what was broken and [`fault_of`] can tell.
pub fn fault_operation(fault: &Fault) -> Template {
    operation(fault.name(), fault_value(fault))
}

/// The targets of a fault in plain data: `"n1"` for a node, `[["n1" "c0"] …]` for links, a map for more.
pub fn fault_value(fault: &Fault) -> Value {
    match fault {
        Fault::Kill(node) | Fault::Restart(node) | Fault::Pause(node) | Fault::Resume(node) => {
            node_value(*node)
        }
        Fault::Cut(links) | Fault::Reset(links) => links_value(links),
        Fault::Slow {
            links,
            delay,
            jitter,
        } => map_value([
            ("links", links_value(links)),
            ("delay-ns", Value::Int(nanoseconds(*delay))),
            ("jitter-ns", Value::Int(nanoseconds(*jitter))),
        ]),
        Fault::Heal => Value::Nil,
        Fault::Skew {
            node,
            offset_ns,
            rate_ppm,
        } => map_value([
            ("node", node_value(*node)),
            ("offset-ns", Value::Int(*offset_ns)),
            ("rate-ppm", Value::Int(i64::from(*rate_ppm))),
        ]),
        Fault::BitRot { node, bits } => map_value([
            ("node", node_value(*node)),
            ("bits", Value::Int(i64::from(*bits))),
        ]),
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn node_value(node: NodeId) -> Value {
    Value::text(node.to_string())
}

fn links_value(links: &[Link]) -> Value {
    let link = |link: &Link| Value::List([node_value(link.from), node_value(link.to)].into());
    Value::List(links.iter().map(link).collect())
}

fn map_value<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    let pair = |(name, value): (&'static str, Value)| (Value::Word(Symbol::new(name)), value);
    Value::Map(fields.into_iter().map(pair).collect())
}

/// Why an operation stands for no fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotAFault {
    /// There is no fault of this name.
    #[error("{0} is not the name of a fault")]
    Name(Symbol),
    /// The value does not say what is to be broken.
    #[error("the value of {name} must be {expected}, not {value}")]
    Value {
        /// The fault.
        name: Symbol,
        /// What its value looks like.
        expected: &'static str,
        /// What was there.
        value: String,
    },
}

/// The fault that an operation of the nemesis stands for, so that `sim` and `runner` carry out the same.
pub fn fault_of(op: &Op) -> Result<Fault, NotAFault> {
    let value = &op.value;
    let (fault, expected) = match op.f.as_str() {
        "kill" => (node(value).map(Fault::Kill), "a node"),
        "restart" => (node(value).map(Fault::Restart), "a node"),
        "pause" => (node(value).map(Fault::Pause), "a node"),
        "resume" => (node(value).map(Fault::Resume), "a node"),
        "cut" => (links(value).map(Fault::Cut), "a list of links"),
        "reset" => (links(value).map(Fault::Reset), "a list of links"),
        "slow" => (slow(value), "a map of links, delay-ns and jitter-ns"),
        "heal" => (Some(Fault::Heal), "anything"),
        "skew" => (skew(value), "a map of node, offset-ns and rate-ppm"),
        "bit-rot" => (bit_rot(value), "a map of node and bits"),
        _ => return Err(NotAFault::Name(op.f)),
    };
    fault.ok_or_else(|| NotAFault::Value {
        name: op.f,
        expected,
        value: shortened(value),
    })
}

/// The beginning of a value as text.
fn shortened(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 200;
    value.to_string().chars().take(CHARACTERS_MAX).collect()
}

fn node(value: &Value) -> Option<NodeId> {
    let Value::Text(name) = value else {
        return None;
    };
    let digits = name.get(1..)?;
    let number: u32 = digits.parse().ok().filter(|&number| number < 1 << 31)?;
    match name.get(..1)? {
        "n" => Some(NodeId::server(number)),
        "c" => Some(NodeId::client(number)),
        _ => None,
    }
}

fn links(value: &Value) -> Option<Vec<Link>> {
    let Value::List(links) = value else {
        return None;
    };
    let link = |link: &Value| match link {
        Value::List(ends) => match &ends[..] {
            [from, to] => Some(Link {
                from: node(from)?,
                to: node(to)?,
            }),
            _ => None,
        },
        _ => None,
    };
    links.iter().map(link).collect()
}

fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(fields) = value else {
        return None;
    };
    let is_named = |key: &Value| matches!(key, Value::Word(word) if *word == name);
    fields
        .iter()
        .find(|(key, _)| is_named(key))
        .map(|(_, value)| value)
}

fn duration(value: &Value, name: &str) -> Option<Duration> {
    let nanoseconds = u64::try_from(field(value, name)?.as_int()?).ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn slow(value: &Value) -> Option<Fault> {
    Some(Fault::Slow {
        links: links(field(value, "links")?)?,
        delay: duration(value, "delay-ns")?,
        jitter: duration(value, "jitter-ns")?,
    })
}

fn skew(value: &Value) -> Option<Fault> {
    Some(Fault::Skew {
        node: node(field(value, "node")?)?,
        offset_ns: field(value, "offset-ns")?.as_int()?,
        rate_ppm: field(value, "rate-ppm")?.as_int()?.try_into().ok()?,
    })
}

fn bit_rot(value: &Value) -> Option<Fault> {
    Some(Fault::BitRot {
        node: node(field(value, "node")?)?,
        bits: field(value, "bits")?.as_int()?.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use seatrial_history::Process;

    fn options(servers: u32, clients: u32) -> FaultOptions {
        FaultOptions {
            kinds: FaultKind::ALL.to_vec(),
            servers: (1..=servers).map(NodeId::server).collect(),
            clients: (0..clients).map(NodeId::client).collect(),
            interval: Duration::from_secs(1),
        }
    }

    fn faults(options: FaultOptions, seed: u64, count: u64) -> Vec<(i64, Fault)> {
        let package = fault_package(options, Rng::from_seed(seed));
        let generator = package
            .faults
            .limit(count)
            .nemesis()
            .then(package.healing.nemesis());
        let history = Simulation::perfect(generator, 2).run().unwrap();
        let begins = history.iter().step_by(2);
        begins.map(|op| (op.time, fault_of(op).unwrap())).collect()
    }

    #[test]
    fn every_fault_comes_back_from_its_operation() {
        for seed in 0..20 {
            let mut schedule = FaultSchedule::new(options(5, 3), Rng::from_seed(seed));
            for _ in 0..200 {
                let fault = schedule.draw().unwrap();
                let op = Op::invoke(Process::NEMESIS, fault.name(), fault_value(&fault));
                assert_eq!(fault_of(&op), Ok(fault));
            }
        }
    }

    #[test]
    fn healing_leaves_nothing_broken() {
        for seed in 0..50 {
            let (mut dead, mut paused) = (BTreeSet::new(), BTreeSet::new());
            let (mut skewed, mut links) = (BTreeSet::new(), false);
            let mut breaks = 0;
            for (_, fault) in faults(options(3, 2), seed, 40) {
                match fault {
                    Fault::Kill(node) => {
                        paused.remove(&node);
                        dead.insert(node);
                    }
                    Fault::Restart(node) => _ = dead.remove(&node),
                    Fault::Pause(node) => {
                        assert!(!dead.contains(&node), "seed {seed}: {node} is dead");
                        paused.insert(node);
                    }
                    Fault::Resume(node) => _ = paused.remove(&node),
                    Fault::Cut(_) | Fault::Slow { .. } => links = true,
                    Fault::Heal => links = false,
                    Fault::Skew {
                        node,
                        offset_ns: 0,
                        rate_ppm: 0,
                    } => _ = skewed.remove(&node),
                    Fault::Skew { node, .. } => _ = skewed.insert(node),
                    Fault::Reset(_) | Fault::BitRot { .. } => {}
                }
                breaks = breaks.max(dead.len() + paused.len() + skewed.len() + usize::from(links));
            }
            assert!(breaks > 0, "seed {seed} broke nothing");
            assert!(dead.is_empty() && paused.is_empty() && skewed.is_empty() && !links);
        }
    }

    #[test]
    fn the_interval_is_kept_and_the_first_fault_waits() {
        let times: Vec<i64> = faults(options(3, 0), 1, 400)
            .iter()
            .map(|(time, _)| *time)
            .collect();
        let mean = times[399] as f64 / 400e9;
        assert!((0.9..1.1).contains(&mean), "{mean}");
        assert!(times[0] > 0);
    }

    #[test]
    fn one_server_and_clients_cut_client_links_only() {
        let options = FaultOptions {
            kinds: vec![FaultKind::Partition],
            ..options(1, 4)
        };
        let (mut clients_cut, mut one_way) = (BTreeSet::new(), 0);
        for (_, fault) in faults(options, 3, 300) {
            let Fault::Cut(links) = fault else { continue };
            assert!(
                links
                    .iter()
                    .all(|link| link.from.is_client() != link.to.is_client())
            );
            let clients: BTreeSet<NodeId> =
                links.iter().flat_map(|link| [link.from, link.to]).collect();
            one_way += usize::from(links.len() == clients.len() - 1);
            clients_cut.insert(clients.len() - 1);
        }
        assert_eq!(clients_cut, BTreeSet::from([1, 2, 4]));
        assert!(one_way > 10);
    }

    #[test]
    fn a_majorities_ring_leaves_every_node_a_majority() {
        let mut schedule = FaultSchedule::new(options(5, 0), Rng::from_seed(2));
        let mut rings = 0;
        for _ in 0..500 {
            let pairs = schedule.split_servers();
            let lost = |node: NodeId| {
                pairs
                    .iter()
                    .filter(|(a, b)| *a == node || *b == node)
                    .count()
            };
            let losses: Vec<usize> = (1..=5).map(|n| lost(NodeId::server(n))).collect();
            assert!(
                losses.iter().any(|&lost| lost > 0),
                "a partition that cuts nothing"
            );
            rings += usize::from(losses == [2; 5]);
        }
        assert!(rings > 50, "{rings}");
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let op = |f: &'static str, value| Op::invoke(Process::NEMESIS, f, value);
        let message = |op: Op| fault_of(&op).unwrap_err().to_string();
        assert_eq!(
            message(op("frob", Value::Nil)),
            "frob is not the name of a fault"
        );
        let kill = "the value of kill must be a node, not \"x\"";
        assert_eq!(message(op("kill", Value::text("x"))), kill);
        for name in ["n", "n-1", "n2147483648", "é1", "", "n99999999999999"] {
            assert!(fault_of(&op("kill", Value::text(name))).is_err(), "{name}");
        }
    }
}
