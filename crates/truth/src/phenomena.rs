//! Models by phenomena: all version orders are tried, and each gives a serialization graph to look for cycles in.
//!
//! Definitions: Adya 1999 (PL-1, PL-2, PL-CS, PL-2+, PL-2.99, PL-3 over items; no predicates), Kingsbury and Alvaro 2020 (what a
//! version of a list is, session and real-time variants), Cerone and others 2015 (parallel snapshot isolation), Cerone and
//! Gotsman 2016 (snapshot isolation by cycles: a second opinion on [`crate::orders`]).
//!
//! The version that a transaction installs of a key is what the key holds after all of its writes. A version order of
//! a key is an order of the transactions that write it, each on top of the one before.

use crate::case::{
    Case, CaseOutcome, KEYS_MAX, Kind, Set, TRANSACTIONS_MAX, Txn, elements, members_of,
};

/// Edges: by transaction the set of its successors.
pub(crate) type Edges = [Set; TRANSACTIONS_MAX];

/// The models to decide, as bits of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phenomena {
    ReadCommitted,
    SessionReadCommitted,
    StrongReadCommitted,
    /// Not two transactions that read one version of a key and both write it.
    NoLostUpdate,
    /// G-cursor: no cycle of an anti-dependency and overwrites on one key.
    CursorStability,
    ConsistentView,
    ParallelSnapshot,
    SessionParallelSnapshot,
    Snapshot,
    SessionSnapshot,
    StrongSnapshot,
    Serializable,
    SessionSerializable,
    StrictSerializable,
}

use Phenomena as P;

impl Phenomena {
    pub(crate) const ALL: [Phenomena; 14] = [
        P::ReadCommitted,
        P::SessionReadCommitted,
        P::StrongReadCommitted,
        P::NoLostUpdate,
        P::CursorStability,
        P::ConsistentView,
        P::ParallelSnapshot,
        P::SessionParallelSnapshot,
        P::Snapshot,
        P::SessionSnapshot,
        P::StrongSnapshot,
        P::Serializable,
        P::SessionSerializable,
        P::StrictSerializable,
    ];

    pub(crate) fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// Version orders that are tried before the search gives up.
const STEPS_MAX: u32 = 200_000;

/// The models of which some version order shows no forbidden phenomenon, as a mask; nothing when there are too many
/// version orders.
///
/// `strict`: what a transaction reads of a key that it has written must be its own version. Without, such a read
/// only counts as far as it shows its own writes (`internal` is not forbidden by every model).
pub(crate) fn kept(case: &Case, strict: bool) -> Option<u16> {
    let all = Phenomena::ALL.iter().map(|it| it.bit()).sum();
    let mut search = GraphSearch {
        case,
        members: case.members(),
        sessions: case_edges(case, Txn::is_run_before),
        time: case_edges(case, |one, other| {
            one.is_run_before(other) || one.is_before(other)
        }),
        orders: Vec::new(),
        kept: 0,
        steps: 0,
    };
    for key in 0..KEYS_MAX as u8 {
        let orders = search.version_orders(key, strict);
        if orders.is_empty() {
            return Some(0);
        }
        search.orders.push(orders);
    }
    search.extend(0, &Graph::default(), all);
    (search.steps <= STEPS_MAX).then_some(search.kept)
}

/// Edges between members by a relation.
fn case_edges(case: &Case, relation: impl Fn(&Txn, &Txn) -> bool) -> Edges {
    let members = case.members();
    let mut edges = Edges::default();
    for one in members_of(members) {
        for other in members_of(members) {
            let is_edge = relation(&case.txns[one], &case.txns[other]);
            edges[one] |= u8::from(is_edge) << other;
        }
    }
    edges
}

/// What one version order of one key says.
#[derive(Clone, Copy, Default)]
struct VersionOrderEdges {
    ww: Edges,
    wr: Edges,
    rw: Edges,
    lost_update: bool,
    cursor: bool,
}

impl VersionOrderEdges {
    /// Adds reads, each the reader and a version of this order (0 is the initial one).
    fn read(mut self, order: &[usize], reads: &[(usize, usize)]) -> VersionOrderEdges {
        // By transaction the versions that it read before it wrote, as a set.
        let mut based_on = [0_u16; TRANSACTIONS_MAX];
        for &(reader, version) in reads {
            based_on[reader] |= 1 << version;
            if version > 0 {
                self.wr[order[version - 1]] |= 1 << reader;
            }
            for &next in order[version..].iter().filter(|&&next| next != reader) {
                self.rw[reader] |= 1 << next;
            }
        }
        for (at, &one) in order.iter().enumerate() {
            let own = based_on[one] & ((1 << at) - 1);
            self.cursor |= own != 0;
            for &other in &order[..at] {
                self.lost_update |= based_on[one] & based_on[other] != 0;
            }
        }
        self
    }
}

/// The graph so far.
#[derive(Clone, Copy, Default)]
struct Graph {
    ww: Edges,
    wr: Edges,
    rw: Edges,
    lost_update: bool,
    cursor: bool,
}

struct GraphSearch<'a> {
    case: &'a Case,
    members: Set,
    sessions: Edges,
    time: Edges,
    /// By key.
    orders: Vec<Vec<VersionOrderEdges>>,
    kept: u16,
    steps: u32,
}

impl GraphSearch<'_> {
    /// All version orders of a key in which every read is of an installed version.
    fn version_orders(&self, key: u8, strict: bool) -> Vec<VersionOrderEdges> {
        let writers = members_of(self.members).filter(|&one| self.case.txns[one].has_written(key));
        let mut writers: Vec<usize> = writers.collect();
        let mut found = Vec::new();
        let mut take = |order: &[usize]| {
            found.extend(self.versions(key, order, strict).into_iter().flatten());
        };
        permutations(&mut writers, 0, &mut take);
        found
    }

    /// What this version order says, once for each choice of versions that the reads leave open; nothing when a read
    /// contradicts it.
    ///
    /// A read is of a version, not of a value (Adya 1999, section 4.2): where two transactions write the same value,
    /// a read of it is of either.
    fn versions(&self, key: u8, order: &[usize], strict: bool) -> Option<Vec<VersionOrderEdges>> {
        let mut values = vec![0];
        for &writer in order {
            let before = values[values.len() - 1];
            let writes = self.case.txns[writer].writes();
            let mine = writes.filter(|write| write.0 == key);
            values.push(mine.fold(before, |held, (_, value)| self.case.kind.write(held, value)));
        }
        let mut versions = VersionOrderEdges::default();
        for (at, &one) in order.iter().enumerate() {
            for &other in &order[at + 1..] {
                versions.ww[one] |= 1 << other;
            }
        }
        // Reads of other transactions' versions: the reader and the versions that it may have read.
        let mut reads: Vec<(usize, Vec<usize>)> = Vec::new();
        for number in members_of(self.members) {
            let place = order.iter().position(|&writer| writer == number);
            if !self.case.txns[number].is_ok() {
                continue;
            }
            let found = self.reads(key, number, place, &values, strict)?;
            reads.extend(found.into_iter().map(|versions| (number, versions)));
        }
        let mut choices: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
        for (reader, candidates) in reads {
            let extended = choices.iter().flat_map(|choice| {
                let with = |&version| [choice.as_slice(), &[(reader, version)]].concat();
                candidates.iter().map(with)
            });
            choices = extended.collect();
        }
        let all = choices.iter().map(|reads| versions.read(order, reads));
        Some(all.collect())
    }

    /// The versions of a key that each read of another's version may be of; nothing when one reads what is none.
    fn reads(
        &self,
        key: u8,
        number: usize,
        place: Option<usize>,
        values: &[u64],
        strict: bool,
    ) -> Option<Vec<Vec<usize>>> {
        let kind = self.case.kind;
        let mut own: Vec<u64> = Vec::new();
        let mut found = Vec::new();
        let micros = &self.case.txns[number].micros;
        for micro in micros.iter().filter(|micro| micro.key == key) {
            if micro.is_write {
                own.push(micro.value);
            } else if own.is_empty() {
                let versions = (0..values.len()).filter(|&version| {
                    // It does not read what it writes later.
                    let is_own = place.is_some_and(|place| version == place + 1);
                    values[version] == micro.value && !is_own
                });
                let versions: Vec<usize> = versions.collect();
                if versions.is_empty() {
                    return None;
                }
                found.push(versions);
            } else if strict || shows_own(kind, micro.value, &own) {
                let before = values[place?];
                let expected = own.iter().fold(before, |held, &one| kind.write(held, one));
                if expected != micro.value {
                    return None;
                }
            }
        }
        Some(found)
    }

    /// Takes the version orders of the next key, for models that are not ruled out so far.
    fn extend(&mut self, key: usize, graph: &Graph, open: u16) {
        self.steps += 1;
        let mut open = open & !self.kept;
        for it in Phenomena::ALL {
            if open & it.bit() != 0 && !self.is_kept(it, graph) {
                open &= !it.bit();
            }
        }
        if open == 0 || self.steps > STEPS_MAX {
            return;
        }
        if key == self.orders.len() {
            self.kept |= open;
            return;
        }
        for at in 0..self.orders[key].len() {
            let versions = self.orders[key][at];
            let next = Graph {
                ww: union(graph.ww, versions.ww),
                wr: union(graph.wr, versions.wr),
                rw: union(graph.rw, versions.rw),
                lost_update: graph.lost_update || versions.lost_update,
                cursor: graph.cursor || versions.cursor,
            };
            self.extend(key + 1, &next, open);
        }
    }

    fn is_kept(&self, it: Phenomena, graph: &Graph) -> bool {
        let none = Edges::default();
        let order = match it {
            P::SessionReadCommitted
            | P::SessionParallelSnapshot
            | P::SessionSnapshot
            | P::SessionSerializable => self.sessions,
            P::StrongReadCommitted | P::StrongSnapshot | P::StrictSerializable => self.time,
            _ => none,
        };
        let known = union(union(graph.ww, graph.wr), order);
        let reach = closure(known);
        if !is_acyclic(reach) {
            return false;
        }
        match it {
            P::ReadCommitted | P::SessionReadCommitted | P::StrongReadCommitted => true,
            P::NoLostUpdate => !graph.lost_update,
            P::CursorStability => !graph.cursor,
            // One anti-dependency, and back without any: no transaction sees an overwrite of its reads.
            P::ConsistentView | P::ParallelSnapshot | P::SessionParallelSnapshot => {
                is_acyclic(then(reach, graph.rw))
            }
            // No cycle without two anti-dependencies side by side.
            P::Snapshot | P::SessionSnapshot | P::StrongSnapshot => {
                is_acyclic(closure(union(known, then(known, graph.rw))))
            }
            P::Serializable | P::SessionSerializable | P::StrictSerializable => {
                is_acyclic(closure(union(known, graph.rw)))
            }
        }
    }
}

/// Does a read of a key that its transaction has written show its last write (of a list: all)?
fn shows_own(kind: Kind, seen: u64, own: &[u64]) -> bool {
    match kind {
        Kind::Registers => own.last() == Some(&seen),
        Kind::Lists => {
            let shown: Vec<u64> = elements(seen).collect();
            shown.ends_with(own)
        }
    }
}

/// All permutations of what stands from `at` on.
pub(crate) fn permutations(items: &mut [usize], at: usize, take: &mut impl FnMut(&[usize])) {
    if at >= items.len() {
        take(items);
        return;
    }
    for other in at..items.len() {
        items.swap(at, other);
        permutations(items, at + 1, take);
        items.swap(at, other);
    }
}

pub(crate) fn union(one: Edges, other: Edges) -> Edges {
    std::array::from_fn(|at| one[at] | other[at])
}

/// One edge of the first kind, then one of the second.
fn then(first: Edges, second: Edges) -> Edges {
    std::array::from_fn(|at| {
        members_of(first[at]).fold(0, |reached, middle| reached | second[middle])
    })
}

/// Warshall 1962.
pub(crate) fn closure(edges: Edges) -> Edges {
    let mut reach = edges;
    for middle in 0..TRANSACTIONS_MAX {
        for from in 0..TRANSACTIONS_MAX {
            if reach[from] >> middle & 1 == 1 {
                reach[from] |= reach[middle];
            }
        }
    }
    reach
}

pub(crate) fn is_acyclic(reach: Edges) -> bool {
    (0..TRANSACTIONS_MAX).all(|one| reach[one] >> one & 1 == 0)
}

/// What read uncommitted says of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncommitted {
    Kept,
    Broken,
    /// Definitions differ.
    Open,
}

/// Is read uncommitted kept (G0 of Adya and, over lists, of Kingsbury and Alvaro), with this order besides?
///
/// Reads of unwritten values and duplicate elements break it, as the documentation has it. Reads of uncommitted versions show
/// the order of appends all the same, as long as they are prefixes of one another. A transaction of unknown outcome need
/// not have been committed although it was read from: by one reading it counts, by the other it does not.
pub(crate) fn read_uncommitted(case: &Case, follows: crate::orders::Follows) -> Uncommitted {
    if has_garbage(case) {
        return Uncommitted::Broken;
    }
    if case.kind == Kind::Registers {
        return Uncommitted::Kept;
    }
    let members = case.members();
    let (mut strict, mut lenient) = (Edges::default(), Edges::default());
    for key in 0..KEYS_MAX as u8 {
        let Some(longest) = longest_read(case, key) else {
            return Uncommitted::Open;
        };
        for one in members_of(members) {
            for other in members_of(members).filter(|&other| other != one) {
                let places = |number: usize| -> Vec<usize> {
                    let mine = case.txns[number].writes().filter(|write| write.0 == key);
                    let place = |value| longest.iter().position(|&it| it == value);
                    mine.map(|(_, value)| place(value).unwrap_or(usize::MAX))
                        .collect()
                };
                let (mine, theirs) = (places(one), places(other));
                if !mine.is_sorted() {
                    return Uncommitted::Open;
                }
                let is_before = mine.iter().any(|a| theirs.iter().any(|b| a < b));
                strict[one] |= u8::from(is_before) << other;
                let last = mine.last().zip(theirs.last());
                let is_later = last.is_some_and(|(a, b)| a < b);
                let are_ok = case.txns[one].is_ok() && case.txns[other].is_ok();
                lenient[one] |= u8::from(is_later && are_ok) << other;
            }
        }
    }
    let order = case_edges(case, |one, other| follows.holds(one, other));
    let is_fine = |edges: Edges| is_acyclic(closure(union(edges, order)));
    debug_assert!(
        !is_fine(strict) || is_fine(lenient),
        "the one asks for more"
    );
    match (is_fine(strict), is_fine(lenient)) {
        (true, _) => Uncommitted::Kept,
        (_, false) => Uncommitted::Broken,
        _ => Uncommitted::Open,
    }
}

/// Did a successful transaction read what no transaction ever wrote, or a list with an element twice?
fn has_garbage(case: &Case) -> bool {
    let ok = case.txns.iter().filter(|txn| txn.is_ok());
    let reads = ok.flat_map(|txn| &txn.micros).filter(|it| !it.is_write);
    let mut seen = reads.map(|read| {
        let seen: Vec<u64> = match case.kind {
            Kind::Lists => elements(read.value).collect(),
            Kind::Registers => (read.value != 0)
                .then_some(read.value)
                .into_iter()
                .collect(),
        };
        (read.key, seen)
    });
    seen.any(|(key, seen)| {
        let is_twice = (1..seen.len()).any(|at| seen[..at].contains(&seen[at]));
        let is_written = |value| {
            let mut writes = case.txns.iter().flat_map(|txn| txn.writes());
            writes.any(|write| write == (key, value))
        };
        is_twice || !seen.into_iter().all(is_written)
    })
}

/// The longest read of a list; nothing when two reads are not prefixes of one another.
fn longest_read(case: &Case, key: u8) -> Option<Vec<u64>> {
    let mut longest: Vec<u64> = Vec::new();
    let ok = case
        .txns
        .iter()
        .filter(|txn| txn.outcome == CaseOutcome::Ok);
    let reads = ok.flat_map(|txn| &txn.micros);
    for read in reads.filter(|micro| !micro.is_write && micro.key == key) {
        let seen: Vec<u64> = elements(read.value).collect();
        if seen.starts_with(&longest) {
            longest = seen;
        } else if !longest.starts_with(&seen) {
            return None;
        }
    }
    Some(longest)
}
