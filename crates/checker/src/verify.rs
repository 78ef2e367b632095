//! Replays a [`Certificate`]: a second opinion that shares no code with the checkers, and is dumb on purpose.

use crate::certificate::{Certificate, Evidence, Proof};
use seatrial_history::{History, Key, Mop, Observed, Op, Process};
use std::collections::{BTreeMap, BTreeSet};

mod orders;
mod registers;

/// Does this certificate prove what it says about this history of transactions on lists or registers? The error says in one
/// line what is wrong with it.
///
/// Orders are replayed: each transaction must see what it saw, and nothing may be before what it follows in real time or
/// in its process where the model asks for that. Findings are looked up: each edge of a cycle must be there to be
/// seen in the operations, and the kinds of edges must be those of the anomaly. What a certificate of a valid
/// history leaves open is what the history leaves open: where an append stands that nobody read.
pub fn verify(history: &History, certificate: &Certificate) -> Result<(), String> {
    let all = transactions(history)?;
    let model = certificate.model.as_str();
    match &certificate.proof {
        Proof::Findings(findings) if findings.is_empty() => Err("it has no findings".into()),
        proof if is_of_registers(&all) => registers::verify(&all, model, proof),
        Proof::Findings(findings) => {
            let look = Look::new(&all);
            findings.iter().try_for_each(|finding| {
                look.finding(finding)
                    .map_err(|reason| format!("{}: {reason}", finding.anomaly))
            })
        }
        proof => orders::replay(&all, model, proof),
    }
}

/// Does a transaction write a register?
fn is_of_registers(all: &[Transaction<'_>]) -> bool {
    let mut mops = all.iter().flat_map(|one| one.mops);
    mops.any(|mop| matches!(mop, Mop::Write { .. }))
}

/// One transaction.
struct Transaction<'a> {
    /// Its place in a certificate.
    place: u64,
    index: u64,
    process: Process,
    /// Position of its invocation.
    begun: Option<u64>,
    /// Position of its completion.
    ended: Option<u64>,
    is_ok: bool,
    is_fail: bool,
    mops: &'a [Mop],
}

/// All transactions of clients.
fn transactions(history: &History) -> Result<Vec<Transaction<'_>>, String> {
    let mut all = Vec::new();
    for (position, op) in history.iter().enumerate() {
        let pair = history.pair(position);
        if !op.process.is_client() || (!op.is_invoke() && (pair.is_some() || !op.is_ok())) {
            continue;
        }
        let completion: Option<&Op> = if op.is_invoke() {
            pair.map(|pair| &history.ops()[pair])
        } else {
            Some(op)
        };
        let is_ok = completion.is_some_and(Op::is_ok);
        let source = completion.filter(|_| is_ok).unwrap_or(op);
        let mops = source.value.as_txn();
        all.push(Transaction {
            place: position as u64,
            index: completion.unwrap_or(op).index,
            process: op.process,
            begun: op.is_invoke().then_some(position as u64),
            ended: if op.is_invoke() {
                pair.map(|pair| pair as u64)
            } else {
                Some(position as u64)
            },
            is_ok,
            is_fail: completion.is_some_and(|op| op.kind == seatrial_history::OpType::Fail),
            mops: mops.ok_or_else(|| format!("op {} is no transaction", source.index))?,
        });
    }
    Ok(all)
}

/// What a micro-operation saw of a list; `None` if it is no read.
fn seen(mop: &Mop) -> Option<(&Key, &[i64])> {
    match mop {
        Mop::Read { key, observed } => match observed {
            Observed::List(elements) => Some((key, elements)),
            _ => Some((key, &[])),
        },
        _ => None,
    }
}

/// What a micro-operation appends; `None` if it does not.
fn appended(mop: &Mop) -> Option<(&Key, i64)> {
    match mop {
        Mop::Append { key, element } => Some((key, *element)),
        _ => None,
    }
}

/// Looks things up in a history.
struct Look<'a> {
    by_index: BTreeMap<u64, &'a Transaction<'a>>,
    /// By key: the lists that successful transactions read.
    reads: BTreeMap<&'a Key, Vec<&'a [i64]>>,
    /// All that was appended.
    appends: BTreeSet<(&'a Key, i64)>,
}

impl<'a> Look<'a> {
    fn new(all: &'a [Transaction<'a>]) -> Look<'a> {
        let mut reads: BTreeMap<&Key, Vec<&[i64]>> = BTreeMap::new();
        for one in all.iter().filter(|one| one.is_ok) {
            for (key, elements) in one.mops.iter().filter_map(seen) {
                reads.entry(key).or_default().push(elements);
            }
        }
        let mops = all.iter().flat_map(|one| one.mops);
        Look {
            by_index: all.iter().map(|one| (one.index, one)).collect(),
            reads,
            appends: mops.filter_map(appended).collect(),
        }
    }

    fn transaction(&self, index: u64) -> Result<&'a Transaction<'a>, String> {
        let found = self.by_index.get(&index).copied();
        found.ok_or_else(|| format!("op {index} completes no transaction"))
    }

    /// Is this evidence what it says it is?
    fn finding(&self, finding: &Evidence) -> Result<(), String> {
        let all = finding.operations.iter();
        let all: Vec<_> = all
            .map(|&index| self.transaction(index))
            .collect::<Result<_, _>>()?;
        if !finding.steps.is_empty() {
            return self.cycle(finding);
        }
        let holds = match (finding.anomaly.as_str(), &all[..]) {
            ("internal", &[one]) => contradicts_itself(one),
            ("future-read", &[one]) => reads_its_future(one),
            ("garbage-read", &[one]) => {
                let mut reads = one.mops.iter().filter_map(seen);
                let garbage = |key, elements: &[i64]| {
                    elements
                        .iter()
                        .any(|&one| !self.appends.contains(&(key, one)))
                };
                one.is_ok && reads.any(|(key, elements)| garbage(key, elements))
            }
            ("duplicate-elements", &[one]) => {
                let mut reads = one.mops.iter().filter_map(seen);
                let twice = |elements: &[i64]| {
                    elements.iter().collect::<BTreeSet<_>>().len() < elements.len()
                };
                one.is_ok && reads.any(|(_, elements)| twice(elements))
            }
            ("G1a", &[reader, writer]) => {
                reader.is_ok && writer.is_fail && observes(reader, writer)
            }
            ("G1b", &[reader, writer]) => reader.is_ok && ends_inside(reader, writer),
            ("dirty-update", &[above, below]) => {
                above.is_ok && below.is_fail && self.overwrites(below, above)
            }
            ("incompatible-order", &[one, other]) => {
                one.is_ok && other.is_ok && disagree(one, other)
            }
            ("lost-update", all) => {
                all.len() > 1 && all.iter().all(|one| one.is_ok) && updates(all)
            }
            _ => return Err("no such anomaly, or not with so many operations".into()),
        };
        if holds {
            Ok(())
        } else {
            Err("the operations do not show it".into())
        }
    }

    /// Is every step of the cycle there, and are they of the right kinds?
    fn cycle(&self, finding: &Evidence) -> Result<(), String> {
        let steps = &finding.steps;
        for (at, (from, to, relation)) in steps.iter().enumerate() {
            if *to != steps[(at + 1) % steps.len()].0 {
                return Err(format!(
                    "the step to op {to} is not followed by one from there"
                ));
            }
            let (one, other) = (self.transaction(*from)?, self.transaction(*to)?);
            let holds = match relation.as_str() {
                "ww" => self.overwrites(one, other),
                "wr" => other.is_ok && observes(other, one),
                "rw" => one.is_ok && misses(one, other),
                "process" => one.is_ok && one.process == other.process && one.ended < other.begun,
                "realtime" => one.is_ok && other.begun.is_some() && one.ended < other.begun,
                _ => false,
            };
            let happened = |one: &Transaction<'_>| one.is_ok || !one.is_fail && self.is_seen(one);
            if !holds || !happened(one) || !happened(other) {
                return Err(format!(
                    "nothing shows that op {from} precedes op {to} by {relation}"
                ));
            }
        }
        let kinds: Vec<_> = steps.iter().map(|step| step.2.as_str()).collect();
        let named = name(&kinds);
        if named != finding.anomaly {
            return Err(format!("this cycle is a {named}"));
        }
        Ok(())
    }

    /// Did anybody read what it appended?
    fn is_seen(&self, one: &Transaction<'_>) -> bool {
        one.mops.iter().filter_map(appended).any(|(key, element)| {
            let reads = self.reads.get(key).into_iter().flatten();
            reads.clone().any(|elements| elements.contains(&element))
        })
    }

    /// Does a read show an append of `one`, without one of `other` before it, and is that of `other` behind or not there?
    fn overwrites(&self, one: &Transaction<'_>, other: &Transaction<'_>) -> bool {
        pairs(one, other).any(|(key, first, second)| {
            let reads = self.reads.get(key).into_iter().flatten();
            reads.clone().any(|elements| {
                let place = |element| elements.iter().position(|&one| one == element);
                place(first).is_some_and(|first| place(second).is_none_or(|second| first < second))
            })
        })
    }
}

/// Does a read of `one` lack what `other` appended? Then that was appended later.
fn misses(one: &Transaction<'_>, other: &Transaction<'_>) -> bool {
    one.mops.iter().filter_map(seen).any(|(key, elements)| {
        let mut appends = other.mops.iter().filter_map(appended);
        appends.any(|(other, element)| other == key && !elements.contains(&element))
    })
}

/// Appends of both to one key.
fn pairs<'a>(
    one: &'a Transaction<'a>,
    other: &'a Transaction<'a>,
) -> impl Iterator<Item = (&'a Key, i64, i64)> {
    one.mops
        .iter()
        .filter_map(appended)
        .flat_map(move |(key, first)| {
            let theirs = other.mops.iter().filter_map(appended);
            let theirs = theirs.filter(move |(other, _)| *other == key);
            theirs.map(move |(_, second)| (key, first, second))
        })
}

fn observes(reader: &Transaction<'_>, writer: &Transaction<'_>) -> bool {
    reader.mops.iter().filter_map(seen).any(|(key, elements)| {
        let mut appends = writer.mops.iter().filter_map(appended);
        appends.any(|(other, element)| other == key && elements.contains(&element))
    })
}

/// Does a read end with an append of the writer that is not its last to the list?
fn ends_inside(reader: &Transaction<'_>, writer: &Transaction<'_>) -> bool {
    reader.mops.iter().filter_map(seen).any(|(key, elements)| {
        let appends = writer.mops.iter().filter_map(appended);
        let appends: Vec<_> = appends.filter(|(other, _)| *other == key).collect();
        let last = elements.last();
        let place = appends
            .iter()
            .position(|(_, element)| Some(element) == last);
        place.is_some_and(|place| place + 1 < appends.len())
    })
}

fn disagree(one: &Transaction<'_>, other: &Transaction<'_>) -> bool {
    one.mops.iter().filter_map(seen).any(|(key, mine)| {
        let mut theirs = other.mops.iter().filter_map(seen);
        theirs.any(|(other, theirs)| other == key && mine.iter().zip(theirs).any(|(a, b)| a != b))
    })
}

/// Did all read the same version of a list before they appended to it?
fn updates(all: &[&Transaction<'_>]) -> bool {
    let versions = all.iter().map(|one| {
        let mut versions = BTreeSet::new();
        let mut touched = BTreeSet::new();
        for (at, mop) in one.mops.iter().enumerate() {
            let later = one.mops[at..].iter().filter_map(appended);
            if touched.insert(mop.key())
                && let Some((key, elements)) = seen(mop)
                && later.into_iter().any(|(other, _)| other == key)
            {
                versions.insert((key, elements));
            }
        }
        versions
    });
    let common = versions.reduce(|one, other| one.intersection(&other).copied().collect());
    common.is_some_and(|common| !common.is_empty())
}

fn contradicts_itself(one: &Transaction<'_>) -> bool {
    let mut known: BTreeMap<&Key, (Option<&[i64]>, Vec<i64>)> = BTreeMap::new();
    for mop in one.mops {
        let (before, own) = known.entry(mop.key()).or_default();
        if let Some((_, element)) = appended(mop) {
            own.push(element);
        }
        if let Some((_, elements)) = seen(mop) {
            let rest = elements.strip_suffix(&own[..]);
            if rest.is_none() || before.is_some_and(|before| rest != Some(before)) {
                return one.is_ok;
            }
            *before = Some(elements);
            own.clear();
        }
    }
    false
}

fn reads_its_future(one: &Transaction<'_>) -> bool {
    one.is_ok
        && one.mops.iter().enumerate().any(|(at, mop)| {
            let later = one.mops[at..].iter().filter_map(appended);
            let read = seen(mop);
            read.is_some_and(|(key, elements)| {
                later
                    .into_iter()
                    .any(|(other, element)| other == key && elements.contains(&element))
            })
        })
}

/// What a cycle of these edges is.
fn name(kinds: &[&str]) -> String {
    let is_anti = |kind: &str| kind == "rw";
    let anti = kinds.iter().filter(|kind| is_anti(kind)).count();
    let last = kinds[kinds.len() - 1];
    let mut pairs = std::iter::once(&last).chain(kinds).zip(kinds);
    let class = match anti {
        0 if kinds.contains(&"wr") => "G1c",
        0 => "G0",
        1 => "G-single",
        _ if pairs.any(|(a, b)| is_anti(a) && is_anti(b)) => "G2-item",
        _ => "G-nonadjacent",
    };
    let variant = if kinds.contains(&"realtime") {
        "-realtime"
    } else if kinds.contains(&"process") {
        "-process"
    } else {
        ""
    };
    format!("{class}{variant}")
}
