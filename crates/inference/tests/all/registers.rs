//! Registers against a dumb twin that infers orders pair by pair, from the definitions.

use crate::stores::{STORES, Store, printed, random_history};
use crate::transactions::registers;
use seatrial_checker::{Checker, Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_farm::histories;
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_inference::{Inference, RwRegister};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A version: of which key, and its value; `None` is the initial state.
type Version = (Key, Option<i64>);

/// What a transaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Did {
    Read(Option<i64>),
    Write(i64),
}

/// A transaction.
struct One {
    index: u64,
    process: Process,
    kind: OpType,
    begun: usize,
    ended: usize,
    mops: Vec<(Key, Did)>,
}

/// What a read saw: nothing, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(Option<i64>);

/// What was read of a key against what was known, in order, and the last write behind it.
struct Met {
    key: Key,
    read: Option<State>,
    write: Option<i64>,
}

impl Met {
    /// One version or two.
    fn versions(&self) -> Vec<Version> {
        let name = |value| (self.key.clone(), value);
        let read = self.read.map(|State(value)| name(value));
        let write = self.write.map(|value| name(Some(value)));
        read.into_iter().chain(write).collect()
    }
}

/// Pairs of versions of which the first comes before the other.
type Order = BTreeSet<(Version, Version)>;

fn ones(history: &History) -> Vec<One> {
    let mut all = Vec::new();
    for (begun, op) in history.iter().enumerate().filter(|(_, op)| op.is_invoke()) {
        let end = history.pair(begun);
        let completion = end.map(|end| &history.ops()[end]);
        let kind = completion.map_or(OpType::Info, |op| op.kind);
        let source = completion.filter(|op| op.is_ok()).unwrap_or(op);
        let mops = source.value.as_txn().unwrap().iter();
        let mops = mops.filter_map(|mop| {
            let did = match mop {
                Mop::Write { value, .. } => Did::Write(*value),
                _ if kind != OpType::Ok => return None,
                Mop::Read { observed, .. } => match observed {
                    Observed::Register(value) => Did::Read(Some(*value)),
                    _ => Did::Read(None),
                },
                Mop::Append { .. } => return None,
            };
            Some((mop.key().clone(), did))
        });
        all.push(One {
            index: completion.unwrap_or(op).index,
            process: op.process,
            kind,
            begun,
            ended: if kind == OpType::Ok {
                end.unwrap()
            } else {
                usize::MAX
            },
            mops: mops.collect(),
        });
    }
    all
}

impl One {
    fn keys(&self) -> BTreeSet<Key> {
        self.mops.iter().map(|(key, _)| key.clone()).collect()
    }

    fn of(&self, key: &Key) -> Vec<Did> {
        let mops = self.mops.iter().filter(|(other, _)| other == key);
        mops.map(|&(_, did)| did).collect()
    }

    fn last_write(&self, key: &Key) -> Option<i64> {
        let mut all = self.of(key).into_iter().rev();
        all.find_map(|did| match did {
            Did::Write(value) => Some(value),
            Did::Read(_) => None,
        })
    }

    fn met(&self) -> Vec<Met> {
        let mut met: Vec<Met> = Vec::new();
        for key in self.keys() {
            let all = self.of(&key);
            let mut known = None;
            let mut reads: Vec<Met> = Vec::new();
            let mut is_written = false;
            for (at, &did) in all.iter().enumerate() {
                match did {
                    Did::Read(value) if known != Some(value) => {
                        let writes_later = all[at..].iter().any(|did| matches!(did, Did::Write(_)));
                        let is_new = reads.iter().all(|other| other.read != Some(State(value)));
                        if is_new {
                            reads.push(Met {
                                key: key.clone(),
                                read: Some(State(value)),
                                write: self.last_write(&key).filter(|_| writes_later),
                            });
                        }
                        known = Some(value);
                    }
                    Did::Read(_) => {}
                    Did::Write(value) => {
                        if Some(value) == self.last_write(&key) {
                            is_written = reads.is_empty();
                        }
                        known = Some(Some(value));
                    }
                }
            }
            if is_written {
                reads.insert(
                    0,
                    Met {
                        key: key.clone(),
                        read: None,
                        write: self.last_write(&key),
                    },
                );
            }
            met.extend(reads);
        }
        met
    }

    fn is_internal(&self) -> bool {
        self.keys().iter().any(|key| {
            let mut known = None;
            self.of(key).into_iter().any(|did| match did {
                Did::Read(value) => known.replace(value).is_some_and(|known| known != value),
                Did::Write(value) => {
                    known = Some(Some(value));
                    false
                }
            })
        })
    }
}

/// The twin.
struct RegisterOrderSearch {
    all: Vec<One>,
    happened: Vec<bool>,
    counts: BTreeMap<&'static str, u64>,
    /// Closed.
    order: Order,
}

/// With all that follows, also from this: that nothing comes between the versions of a pair of `links`.
fn closed(mut order: Order, links: &[(Version, Version)]) -> Order {
    loop {
        let pairs = order.iter().flat_map(|(a, b)| {
            let next = order.range((b.clone(), (Key::Int(i64::MIN), None))..);
            let next = next.take_while(move |(c, _)| c == b);
            next.map(move |(_, c)| (a.clone(), c.clone()))
        });
        let mut pairs: BTreeSet<_> = pairs.collect();
        for (u, v) in links {
            for (a, b) in &order {
                if a == u && b != v {
                    pairs.insert((v.clone(), b.clone()));
                }
                if b == v && a != u {
                    pairs.insert((a.clone(), u.clone()));
                }
            }
        }
        let before = order.len();
        order.extend(pairs);
        if order.len() == before {
            return order;
        }
    }
}

/// Updates of a version by one transaction only, to what only that one wrote on top of something.
fn links(mine: &[&(usize, Met)]) -> Vec<(Version, Version)> {
    let updates = mine.iter().map(|(_, met)| met.versions());
    let updates = updates.filter(|both| both.len() == 2 && both[0] != both[1]);
    let all: Order = updates
        .map(|both| (both[0].clone(), both[1].clone()))
        .collect();
    let is_only = |pair: &&(Version, Version)| {
        let same = all
            .iter()
            .filter(|other| other.0 == pair.0 || other.1 == pair.1);
        same.count() == 1
    };
    all.iter().filter(is_only).cloned().collect()
}

fn is_cyclic(order: &Order) -> bool {
    order.iter().any(|(a, b)| a == b)
}

impl RegisterOrderSearch {
    fn new(
        history: &History,
        level: Level,
        inference: Inference,
        numbers: &[(u64, i64)],
    ) -> RegisterOrderSearch {
        let all = ones(history);
        let committed = level.implies(Level::ReadCommitted);
        let is_seen = |writer: &One| {
            let writes = writer.mops.iter().filter_map(|(key, did)| match did {
                Did::Write(value) => Some((key, *value)),
                Did::Read(_) => None,
            });
            let writes: Vec<_> = writes.collect();
            let mut readers = all.iter().filter(|one| one.kind == OpType::Ok);
            readers.any(|reader| {
                reader.mops.iter().any(|(key, did)| match did {
                    Did::Read(Some(value)) => writes.contains(&(key, *value)),
                    _ => false,
                })
            })
        };
        let happened = all.iter().map(|one| match one.kind {
            OpType::Ok => true,
            OpType::Fail => false,
            _ => committed && is_seen(one),
        });
        let mut twin = RegisterOrderSearch {
            happened: happened.collect(),
            counts: BTreeMap::new(),
            order: Order::new(),
            all,
        };
        twin.count();
        let wfr = inference.wfr_keys || inference.rmw_keys || committed;
        twin.infer(wfr, inference, numbers);
        twin
    }

    fn writer(&self, key: &Key, value: i64) -> Option<usize> {
        let writes = |one: &One| one.mops.contains(&(key.clone(), Did::Write(value)));
        self.all.iter().position(writes)
    }

    fn installer(&self, (key, value): &Version) -> Option<usize> {
        let writer = self.writer(key, (*value)?)?;
        let is_last = self.all[writer].last_write(key) == *value;
        (is_last && self.happened[writer]).then_some(writer)
    }

    fn count(&mut self) {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut add = |name| *counts.entry(name).or_default() += 1;
        let mut updates: BTreeMap<Version, BTreeSet<u64>> = BTreeMap::new();
        for (number, one) in self.all.iter().enumerate() {
            if one.kind != OpType::Ok {
                continue;
            }
            if one.is_internal() {
                add("internal");
            }
            for met in one.met() {
                let Some(State(read)) = met.read else {
                    continue;
                };
                if met.write.is_some() && met.write != read {
                    let readers = updates.entry((met.key.clone(), read)).or_default();
                    readers.insert(one.index);
                }
                let Some(value) = read else { continue };
                let Some(writer) = self.writer(&met.key, value) else {
                    add("garbage-read");
                    continue;
                };
                if self.all[writer].kind == OpType::Fail {
                    add("G1a");
                }
                let place = |did| {
                    one.mops
                        .iter()
                        .position(|mop| *mop == (met.key.clone(), did))
                };
                if writer == number {
                    // What it wrote before and then overwrote is no future.
                    if place(Did::Read(read)) < place(Did::Write(value)) {
                        add("future-read");
                    }
                } else if self.all[writer].last_write(&met.key) != Some(value) {
                    add("G1b");
                }
            }
        }
        for _ in updates.values().filter(|readers| readers.len() > 1) {
            add("lost-update");
        }
        self.counts = counts;
    }

    /// The touches of transactions that took place: by key, which, read, write.
    fn touches(&self) -> Vec<(usize, Met)> {
        let mut touches = Vec::new();
        for (number, one) in self.all.iter().enumerate().filter(|it| self.happened[it.0]) {
            if one.kind == OpType::Ok {
                touches.extend(one.met().into_iter().map(|met| (number, met)));
            } else {
                for key in one.keys() {
                    let met = Met {
                        read: None,
                        write: one.last_write(&key),
                        key,
                    };
                    touches.push((number, met));
                }
            }
        }
        touches
    }

    fn infer(&mut self, wfr: bool, inference: Inference, numbers: &[(u64, i64)]) {
        let touches = self.touches();
        let keys: BTreeSet<_> = touches.iter().map(|(_, met)| met.key.clone()).collect();
        let used = [
            (wfr, "cyclic-versions"),
            (inference.rmw_keys, "cyclic-versions-rmw"),
            (inference.sequential_keys, "cyclic-versions-process"),
            (inference.linearizable_keys, "cyclic-versions-realtime"),
            (!numbers.is_empty(), "cyclic-versions-order"),
        ];
        for key in keys {
            let mine: Vec<_> = touches.iter().filter(|(_, met)| met.key == key).collect();
            let mut known = Order::new();
            for version in mine.iter().flat_map(|(_, met)| met.versions()) {
                if version.1.is_some() {
                    known.insert(((key.clone(), None), version));
                }
            }
            let [reads, session, time, given] = self.pairs(&mine, numbers);
            let said = [reads, Order::new(), session, time, given];
            let mut links = Vec::new();
            let mut has_reads = false;
            for ((_, anomaly), pairs) in used.into_iter().zip(said).filter(|it| it.0.0) {
                let is_rmw = anomaly == "cyclic-versions-rmw";
                if is_rmw && !has_reads {
                    continue;
                }
                let linked = if is_rmw {
                    self::links(&mine)
                } else {
                    links.clone()
                };
                let mut trial = known.clone();
                trial.extend(pairs.into_iter().filter(|(a, b)| a != b));
                let trial = closed(trial, &linked);
                if is_cyclic(&trial) {
                    *self.counts.entry(anomaly).or_default() += 1;
                } else {
                    has_reads |= anomaly == "cyclic-versions";
                    (known, links) = (trial, linked);
                }
            }
            self.order.extend(closed(known, &links));
        }
    }

    /// The number of a transaction, if it has one of its own.
    fn number(&self, at: usize, numbers: &[(u64, i64)]) -> Option<i64> {
        let mut own = numbers.iter().filter(|one| one.0 == self.all[at].index);
        let number = own.next()?.1;
        let same = numbers.iter().filter(|one| one.1 == number);
        (same.count() == 1).then_some(number)
    }

    /// What reads, processes, real time and the given order say of the touches of one key.
    fn pairs(&self, mine: &[&(usize, Met)], numbers: &[(u64, i64)]) -> [Order; 4] {
        let [mut reads, mut session, mut time, mut given] = <[Order; 4]>::default();
        for (at, (one, met)) in mine.iter().enumerate() {
            let own = met.versions();
            let number = self.number(*one, numbers);
            if let [read, write] = &own[..] {
                let pair = (read.clone(), write.clone());
                reads.insert(pair.clone());
                session.insert(pair.clone());
                given.extend(number.map(|_| pair));
            }
            for (behind, (other, later)) in mine.iter().enumerate() {
                let theirs = later.versions();
                // What a transaction read, then read otherwise, and wrote only after both.
                let is_unwritten = one == other && met.write.is_some() && met.write == later.write;
                let last = if is_unwritten {
                    own.first()
                } else {
                    own.last()
                };
                let pair = (last.unwrap().clone(), theirs[0].clone());
                let (a, b) = (&self.all[*one], &self.all[*other]);
                if at < behind && a.process == b.process && a.kind == OpType::Ok {
                    session.insert(pair.clone());
                }
                let is_before = match (number, self.number(*other, numbers)) {
                    (Some(_), Some(_)) if one == other => at < behind,
                    (Some(a), Some(b)) => a < b,
                    _ => false,
                };
                if is_before {
                    given.insert(pair);
                }
                if a.ended < b.begun {
                    let all = own.iter().flat_map(|x| theirs.iter().map(move |y| (x, y)));
                    time.extend(all.map(|(x, y)| (x.clone(), y.clone())));
                }
            }
        }
        [reads, session, time, given]
    }

    /// Pairs of transactions by kind of edge: `ww` and `wr`; `rw`; process; real time.
    fn edges(&self) -> [BTreeSet<(usize, usize)>; 5] {
        let mut edges: [BTreeSet<(usize, usize)>; 5] = Default::default();
        let touches = self.touches();
        let mut link = |kind: usize, from: usize, to: usize| {
            if from != to {
                edges[kind].insert((from, to));
            }
        };
        let readers = |version: &Version| {
            let reads = touches
                .iter()
                .filter(|(_, met)| met.key == version.0 && met.read == Some(State(version.1)));
            reads.map(|(number, _)| *number).collect::<Vec<_>>()
        };
        for (number, met) in &touches {
            if let Some(State(Some(value))) = met.read
                && let Some(writer) = self.writer(&met.key, value).filter(|&it| self.happened[it])
            {
                link(1, writer, *number);
            }
        }
        for (earlier, later) in &self.order {
            let Some(writer) = self.installer(later) else {
                continue;
            };
            if let Some(before) = self.installer(earlier) {
                link(0, before, writer);
            }
            for reader in readers(earlier) {
                link(2, reader, writer);
            }
        }
        for (from, a) in self.all.iter().enumerate().filter(|it| self.happened[it.0]) {
            for (to, b) in self.all.iter().enumerate().filter(|it| self.happened[it.0]) {
                let is_done = a.kind == OpType::Ok && a.ended < b.begun;
                if is_done && a.process == b.process {
                    link(3, from, to);
                }
                if is_done {
                    link(4, from, to);
                }
            }
        }
        edges
    }

    /// The worst kind of cycle over these edges and the order of processes or of time besides, as its place in
    /// [`CLASSES`].
    fn worst(&self, edges: &[BTreeSet<(usize, usize)>; 5], extra: &[usize]) -> Option<usize> {
        let count = self.all.len();
        let matrix = |kinds: &[usize]| {
            let mut matrix = vec![vec![false; count]; count];
            for &(from, to) in kinds.iter().flat_map(|&kind| &edges[kind]) {
                matrix[from][to] = true;
            }
            matrix
        };
        let close = |mut matrix: Vec<Vec<bool>>| {
            for middle in 0..matrix.len() {
                for from in 0..matrix.len() {
                    for to in 0..matrix.len() {
                        matrix[from][to] |= matrix[from][middle] && matrix[middle][to];
                    }
                }
            }
            matrix
        };
        let with = |kinds: &[usize]| close(matrix(&[kinds, extra].concat()));
        let any = |matrix: &[Vec<bool>]| (0..matrix.len()).any(|node| matrix[node][node]);
        if any(&with(&[0])) {
            return Some(0);
        }
        let dependencies = with(&[0, 1]);
        if any(&dependencies) {
            return Some(1);
        }
        if edges[2].iter().any(|&(from, to)| dependencies[to][from]) {
            return Some(2);
        }
        // Twice each: reached over anything else, and over an anti-dependency.
        let mut doubled = vec![vec![false; 2 * count]; 2 * count];
        for &(from, to) in [0, 1].iter().chain(extra).flat_map(|&kind| &edges[kind]) {
            doubled[from][to] = true;
            doubled[count + from][to] = true;
        }
        for &(from, to) in &edges[2] {
            doubled[from][count + to] = true;
        }
        if any(&close(doubled)) {
            return Some(3);
        }
        any(&with(&[0, 1, 2])).then_some(4)
    }
}

const CLASSES: [&str; 5] = ["G0", "G1c", "G-single", "G-nonadjacent", "G2-item"];
const VARIANTS: [&str; 3] = ["", "-process", "-realtime"];

/// The worst kind of cycle that a verdict names, of this variant or a stronger one.
fn worst(found: &BTreeMap<&str, u64>, variant: usize) -> Option<usize> {
    let named = |class: &&usize| {
        let mut names = VARIANTS[..=variant].iter();
        names.any(|suffix| found.contains_key(format!("{}{suffix}", CLASSES[**class]).as_str()))
    };
    [0, 1, 2, 3, 4].iter().find(named).copied()
}

/// All anomalies of a verdict, forbidden or tolerated.
fn all_found(verdict: &Verdict) -> BTreeMap<&str, u64> {
    let tolerated = &verdict.details.dependencies().unwrap().tolerated;
    let tolerated = tolerated.iter().map(|(&name, &count)| (name, count));
    let forbidden = verdict
        .anomalies
        .iter()
        .map(|(name, count)| (*name, *count));
    tolerated.chain(forbidden).collect()
}

/// The steps of all reported cycles: operations by index, and the kind of edge as its index in [`RegisterOrderSearch::edges`].
fn steps(verdict: &Verdict) -> Vec<(u64, u64, usize)> {
    let kinds = ["ww", "wr", "rw", "process", "realtime"];
    let steps = verdict.findings.iter().flat_map(|one| &one.steps);
    let steps = steps.map(|step| {
        assert!(!step.reason.contains("depend on each other"), "{step:?}");
        let kind = kinds
            .iter()
            .position(|kind| *kind == step.relation)
            .unwrap();
        (step.from, step.to, kind)
    });
    steps.collect()
}

/// Other values in some reads.
pub(crate) fn disturbed(history: &History, rng: &mut Rng) -> History {
    let ops = history.iter().map(|op| {
        let mops = op.value.as_txn().unwrap().iter().map(|mop| match mop {
            Mop::Read { key, .. } if op.is_ok() && rng.chance(0.15) => Mop::Read {
                key: key.clone(),
                observed: match rng.below(5) {
                    0 => Observed::Nil,
                    value => Observed::Register(value.cast_signed()),
                },
            },
            other => other.clone(),
        });
        let value = Value::Txn(mops.collect());
        Op {
            value,
            ..op.clone()
        }
    });
    History::from_ops(ops.collect())
}

pub(crate) fn any_inference(rng: &mut Rng) -> Inference {
    Inference {
        wfr_keys: rng.chance(0.5),
        rmw_keys: rng.chance(0.4),
        sequential_keys: rng.chance(0.5),
        linearizable_keys: rng.chance(0.5),
    }
}

/// An order of some of the transactions: by completion as a rule.
pub(crate) fn any_order(history: &History, rng: &mut Rng) -> Vec<(u64, i64)> {
    let completions = history.iter().filter(|op| !op.is_invoke());
    let honest = rng.chance(0.5);
    let numbers = completions.map(|op| {
        let number = if honest { op.index } else { rng.below(1_000) };
        (op.index, number.cast_signed())
    });
    numbers.collect()
}

/// A history, the options of its check, and both verdicts.
struct Trial {
    context: String,
    level: Level,
    verdict: Verdict,
    twin: RegisterOrderSearch,
    /// Do atomic updates say more than the rest?
    is_chained: bool,
}

impl Trial {
    fn new(seed: u64) -> Trial {
        let levels: Vec<_> = Level::all().collect();
        let mut rng = Rng::from_seed(seed ^ 0x4e67);
        let store = STORES[seed as usize % STORES.len()];
        let length = 2 + rng.below(6);
        let mut history = registers(&random_history(store, length, &mut rng));
        if rng.chance(0.3) {
            history = disturbed(&history, &mut rng);
        }
        let inference = any_inference(&mut rng);
        let mut order = any_order(&history, &mut rng);
        let mut level = Level::StrictSerializable;
        if rng.chance(0.3) {
            level = *rng.pick(&levels);
        }
        let mut checker = RwRegister::new(level).with_inference(inference);
        if rng.chance(0.2) {
            checker = checker.with_order(order.iter().copied());
        } else {
            order.clear();
        }
        let verdict = checker.check(&history);
        let twin = RegisterOrderSearch::new(&history, level, inference, &order);
        let without = Inference {
            wfr_keys: true,
            rmw_keys: false,
            ..inference
        };
        let is_chained = inference.rmw_keys
            && RegisterOrderSearch::new(&history, level, without, &order)
                .order
                .len()
                < twin.order.len();
        let summaries = verdict.findings.iter().map(|one| one.summary.as_str());
        let summaries: Vec<_> = summaries.collect();
        let context = format!(
            "seed {seed} {store:?} {level:?} {inference:?} {order:?} {:?}\n{}{}",
            twin.order,
            printed(&history),
            summaries.join("\n")
        );
        Trial {
            context,
            level,
            verdict,
            twin,
            is_chained,
        }
    }

    /// Compares the verdicts; returns the findings of the twin.
    fn compare(&self) -> BTreeSet<String> {
        let Trial {
            context,
            level,
            verdict,
            twin,
            is_chained,
        } = self;
        if verdict.details.core_is_least.is_some() {
            // Decided where inference finds nothing.
            let forbidden = level.forbidden();
            let direct = twin.counts.keys().any(|&name| forbidden.contains(name));
            assert!(!direct, "{context}");
            return BTreeSet::from(["core".to_owned()]);
        }
        let found = all_found(verdict);
        assert_eq!(direct(&found), direct(&twin.counts), "{context}");
        let edges = twin.edges();
        let mut present: BTreeSet<String> = twin.counts.keys().map(|&name| name.into()).collect();
        for (variant, extra) in [&[][..], &[3], &[3, 4]].into_iter().enumerate() {
            let expected = twin.worst(&edges, extra);
            // Of what the level permits less is looked for.
            let is_told = *level == Level::StrictSerializable || expected.is_none();
            let worst = worst(&found, variant);
            assert!(
                !is_told || worst == expected,
                "{variant} {expected:?} {context}"
            );
            present
                .extend(expected.map(|class| format!("{}{}", CLASSES[class], VARIANTS[variant])));
        }
        for (from, to, kind) in steps(verdict) {
            let number = |index| twin.all.iter().position(|one| one.index == index).unwrap();
            let edge = (number(from), number(to));
            assert!(edges[kind].contains(&edge), "{edge:?} {kind} {context}");
        }
        let forbidden = level.forbidden();
        let is_invalid = present.iter().any(|name| forbidden.contains(name.as_str()));
        let says_so = verdict.valid == Validity::Invalid;
        assert_eq!(says_so, is_invalid, "{present:?} {context}");
        present.extend(is_chained.then(|| "chains".into()));
        present
    }
}

/// What is no cycle of transactions.
fn direct(found: &BTreeMap<&str, u64>) -> BTreeMap<String, u64> {
    let is_direct = |name: &str| worst(&[(name, 1)].into(), 2).is_none();
    let direct = found.iter().filter(|(name, _)| is_direct(name));
    direct
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[test]
fn agrees_with_pairwise_inference() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..histories(8_000) {
        for name in Trial::new(seed).compare() {
            *seen.entry(name).or_default() += 1;
        }
    }
    // Two anti-dependencies that are not adjacent need more transactions than this as a rule.
    let classes = CLASSES.iter().filter(|class| **class != "G-nonadjacent");
    let common = classes.flat_map(|class| VARIANTS.map(|suffix| format!("{class}{suffix}")));
    let direct = [
        "internal",
        "G1a",
        "G1b",
        "future-read",
        "garbage-read",
        "lost-update",
        "cyclic-versions-order",
        "cyclic-versions-process",
        "cyclic-versions-realtime",
        "chains",
        "core",
    ];
    let all = common.chain(direct.map(Into::into));
    for name in all {
        assert!(seen.get(&name).copied().unwrap_or(0) > 0, "{name} {seen:?}");
    }
}

#[test]
fn assumptions_that_hold_raise_no_alarm() {
    let everything = Inference::by_names(Inference::NAMES).unwrap();
    let wfr = Inference::by_names(["wfr-keys"]).unwrap();
    let promises = [
        (Store::Serial, Level::StrictSerializable, everything),
        (Store::Snapshot, Level::StrongSnapshotIsolation, everything),
        (Store::StaleSnapshot, Level::SnapshotIsolation, wfr),
        (Store::ReadCommitted, Level::StrongReadCommitted, wfr),
        (
            Store::ReadUncommitted,
            Level::ReadUncommitted,
            Inference::NONE,
        ),
    ];
    for seed in 0..histories(6_000) {
        let mut rng = Rng::from_seed(seed ^ 0xa1a5);
        let (store, level, inference) = promises[seed as usize % promises.len()];
        let length = 2 + rng.below(40);
        let history = registers(&random_history(store, length, &mut rng));
        let checker = RwRegister::new(level).with_inference(inference);
        let verdict = checker.check(&history);
        let summaries = verdict.findings.first().map(|one| one.summary.as_str());
        let context = format!("seed {seed} {store:?}\n{}{summaries:?}", printed(&history));
        assert_eq!(verdict.valid, Validity::Valid, "{context}");
        if store == Store::Serial {
            let tolerated = &verdict.details.dependencies().unwrap().tolerated;
            assert!(
                tolerated.is_empty() && verdict.anomalies.is_empty(),
                "{context}"
            );
        }
    }
}
