//! Reasons why a version comes before another, in words.

use super::chains::Chains;
use super::inference::{SourceSet, VersionOrderSource};
use super::key_accesses::KeyAccess;
use super::version_orders::{Contradiction, VersionOrders};
use seatrial_checker::Anomaly;
use seatrial_checker::Finding;
use seatrial_cycles::graph::{PROCESS, REALTIME, WR, WW};
use seatrial_cycles::search::Cycle;
use seatrial_cycles::{Position, Txn, Version};
use seatrial_isolation::explain;
use seatrial_isolation::recorded_transactions::ProcessNumber;
use seatrial_isolation::registers::RegisterEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Versions of a chain that are searched for a reason.
const CHAIN_MAX: usize = 64;

/// A transaction that read or wrote a version.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReasonAccess {
    pub(super) transaction: u32,
    pub(super) version: Version,
    is_write: bool,
}

/// Two versions whose order needs a reason, or any versions of the chains of updates that these are in.
pub(super) struct OrderedEnds<'a> {
    from: Version,
    to: Version,
    chains: Option<&'a Chains>,
}

impl<'a> OrderedEnds<'a> {
    pub(super) fn new(from: Version, to: Version) -> OrderedEnds<'a> {
        OrderedEnds {
            from,
            to,
            chains: None,
        }
    }

    /// With all versions of their chains.
    pub(super) fn chained(self, chains: &'a Chains) -> OrderedEnds<'a> {
        let chains = Some(chains);
        OrderedEnds { chains, ..self }
    }

    /// The representative of a version.
    fn group(&self, version: Version) -> Version {
        self.chains.map_or(version, |chains| chains.head(version))
    }

    fn is_from(&self, version: Version) -> bool {
        self.group(version) == self.group(self.from)
    }

    fn is_to(&self, version: Version) -> bool {
        self.group(version) == self.group(self.to)
    }
}

/// The accesses of a version that ended first and that began last.
#[derive(Clone, Copy, Debug)]
struct AccessSpan {
    ended: Option<(Position, ReasonAccess)>,
    begun: Option<(Position, ReasonAccess)>,
}

fn meetings(access: KeyAccess) -> impl Iterator<Item = ReasonAccess> {
    let both = [(access.read, false), (access.write, true)];
    both.into_iter().filter_map(move |(version, is_write)| {
        Some(ReasonAccess {
            transaction: access.transaction.get(),
            version: version?,
            is_write,
        })
    })
}

impl VersionOrders<'_> {
    /// The finding of a cycle of transactions.
    pub(super) fn cycle(&self, anomaly: Anomaly, cycle: &Cycle) -> Finding {
        let columns = self.accesses.columns;
        let show = (
            |number| columns.shown(number),
            |number| columns.index(number),
            |number: u32| {
                let events = columns.events(number).iter();
                let writes = events.filter(|event| event.is_final_write());
                writes.map(|event| event.key()).collect::<BTreeSet<u32>>()
            },
        );
        explain::explain_cycle(anomaly, cycle, show, |from, to, kind| {
            self.reason(from, to, kind)
        })
    }

    fn reason(&self, from: (u32, &str), to: (u32, &str), kind: u8) -> String {
        let columns = self.accesses.columns;
        let ((earlier, a), (later, b)) = (from, to);
        let found = match kind {
            PROCESS => {
                let session = columns.sessions()[earlier as usize];
                let process = columns.client(session);
                Some(format!("process {process} executed {a} before {b}"))
            }
            REALTIME => {
                let ended = columns.index(earlier);
                let begun = columns.invocation(later).unwrap_or(columns.index(later));
                Some(format!(
                    "{a} completed at op {ended}, before {b} was invoked at op {begun}"
                ))
            }
            WR => {
                let mut reads = self.reads(later);
                let earlier = Some(Txn::new(earlier));
                let seen = reads.find(|read| columns.writer(read.version()) == earlier);
                seen.map(|read| {
                    let (value, key) =
                        (columns.shown_value(read.version()), columns.key(read.key()));
                    format!("{b} read {a}'s write of {value} to key {key}")
                })
            }
            WW => self.overwrite(from, to),
            _ => self.missed(from, to),
        };
        found.unwrap_or_else(|| format!("{a} and {b} depend on each other"))
    }

    /// The reads of a transaction, except of its own writes.
    pub(super) fn reads(&self, number: u32) -> impl Iterator<Item = RegisterEvent> {
        let columns = self.accesses.columns;
        let events = columns.events(number).iter().copied();
        events.filter(move |event| {
            !event.is_write() && columns.writer(event.version()) != Some(Txn::new(number))
        })
    }

    /// A transaction's last writes.
    pub(super) fn writes(&self, number: u32) -> impl Iterator<Item = RegisterEvent> + Clone {
        let events = self.accesses.columns.events(number).iter().copied();
        events.filter(|event| event.is_final_write())
    }

    /// Did this transaction read one version and then write the other?
    fn updates(&self, number: u32, read: Version, write: Version) -> bool {
        let key = self.accesses.columns.key_of(read);
        let mut accesses = self.accesses.of_key(key).iter();
        let is_used = self.sources(key).has(VersionOrderSource::Wfr);
        let is_update = |access: &KeyAccess| {
            access.transaction.get() == number && access.update() == Some((read, write))
        };
        is_used && accesses.any(is_update)
    }

    /// The reason of a `ww` edge.
    fn overwrite(&self, (earlier, a): (u32, &str), (later, b): (u32, &str)) -> Option<String> {
        let columns = self.accesses.columns;
        let pairs = self.writes(earlier).flat_map(|first| {
            let same = self.writes(later).filter(move |it| it.key() == first.key());
            same.map(move |second| (first.version(), second.version()))
        });
        let reasons = pairs.filter_map(|(first, second)| {
            let (one, two) = (columns.shown_value(first), columns.shown_value(second));
            let key = columns.key(columns.key_of(first));
            if self.updates(later, first, second) {
                let text = format!(
                    "{b} read {a}'s write of {one} to key {key} and overwrote it with {two}"
                );
                return Some((0, text));
            }
            let why = self.why(first, second, self.sources(columns.key_of(first)))?;
            let text = format!(
                "{b} wrote {two} to key {key} after {a} wrote {one}: {}",
                why.text
            );
            Some((1, text))
        });
        reasons.min_by_key(|&(rank, _)| rank).map(|(_, text)| text)
    }

    /// The reason of an `rw` edge.
    fn missed(&self, (earlier, a): (u32, &str), (later, b): (u32, &str)) -> Option<String> {
        let columns = self.accesses.columns;
        let pairs = self.reads(earlier).flat_map(|read| {
            let same = self.writes(later).filter(move |it| it.key() == read.key());
            same.map(move |write| (read.version(), write.version()))
        });
        let reasons = pairs.filter_map(|(read, write)| {
            let (one, two) = (columns.shown_value(read), columns.shown_value(write));
            let key = columns.key(columns.key_of(read));
            if columns.is_initial(read) {
                let text = format!(
                    "{a} read the initial (nil) state of key {key}, before {b} wrote {two}"
                );
                return Some((2, text));
            }
            if self.updates(later, read, write) {
                let text = format!(
                    "{a} read {one} of key {key}, which {b} read too and overwrote with {two}"
                );
                return Some((0, text));
            }
            let why = self.why(read, write, self.sources(columns.key_of(read)))?;
            let text = format!(
                "{a} read {one} of key {key}, and {b} wrote {two}, which is later: {}",
                why.text
            );
            Some((1, text))
        });
        reasons.min_by_key(|&(rank, _)| rank).map(|(_, text)| text)
    }

    /// The reason why a version comes before another of the same key, by one of these sources, or through uninstalled versions.
    fn why(&self, from: Version, to: Version, sources: SourceSet) -> Option<Reason> {
        let columns = self.accesses.columns;
        let key = columns.key_of(from);
        let uninstalled = self.uninstalled.iter().copied();
        let uninstalled = uninstalled.filter(|&version| columns.key_of(version) == key);
        let mut left: Vec<_> = uninstalled.collect();
        // The versions that are reached, each with the reasons on the way to it: a breadth-first search.
        let mut reached = vec![(from, Reason::default())];
        let mut next = 0;
        while let Some((at, known)) = reached.get(next) {
            if let Some(why) = self.directly(*at, to, sources) {
                return Some(known.and(&why));
            }
            let steps = left.iter().filter_map(|&version| {
                let why = self.directly(*at, version, sources)?;
                Some((version, known.and(&why)))
            });
            let steps: Vec<_> = steps.collect();
            left.retain(|version| steps.iter().all(|step| step.0 != *version));
            reached.extend(steps);
            next += 1;
        }
        None
    }

    /// The reason why a version comes before another of the same key, by one of these sources.
    fn directly(&self, from: Version, to: Version, sources: SourceSet) -> Option<Reason> {
        let columns = self.accesses.columns;
        if columns.is_initial(from) {
            return Some(Reason {
                text: "nil is the initial state".to_owned(),
                operations: Vec::new(),
            });
        }
        let direct = self.by_itself(from, to, sources);
        let is_chained = direct.is_none() && sources.has(VersionOrderSource::Rmw);
        direct.or_else(|| self.by_chains(from, to, sources).filter(|_| is_chained))
    }

    /// The reason why a version comes before another, by the order of other versions in their chains.
    fn by_chains(&self, from: Version, to: Version, sources: SourceSet) -> Option<Reason> {
        let columns = self.accesses.columns;
        let head = self.chains.head(from);
        if head == self.chains.head(to) {
            return None;
        }
        let mut earlier: Vec<_> = self.chains.members(head).collect();
        // The initial state is kept, since it comes before all versions without a reason to search.
        let kept = usize::from(columns.is_initial(head));
        let skipped = earlier.len().saturating_sub(CHAIN_MAX).max(kept);
        earlier.drain(kept..skipped);
        let later = self.chains.members(self.chains.head(to));
        let later: Vec<_> = later.take(CHAIN_MAX).collect();
        let value = |version| columns.shown_value(version);
        let mut pairs = earlier
            .iter()
            .flat_map(|x| later.iter().map(move |y| (*x, *y)));
        pairs.find_map(|(x, y)| {
            let why = if columns.is_initial(x) {
                Reason {
                    text: "nil is the initial state".to_owned(),
                    operations: Vec::new(),
                }
            } else {
                self.by_itself(x, y, sources)?
            };
            let chain = format!(
                "{} comes before {}, and nothing between what a transaction read and what it wrote",
                value(x),
                value(y)
            );
            let text = format!("{chain} ({})", why.text);
            Some(Reason { text, ..why })
        })
    }

    /// The reason why a version comes before another, by one of these sources alone.
    fn by_itself(&self, from: Version, to: Version, sources: SourceSet) -> Option<Reason> {
        let (source, pairs) = self.met(&OrderedEnds::new(from, to), sources)?;
        let words = pairs
            .iter()
            .map(|&(one, other)| self.words(source, one, other));
        words.reduce(|one, other| one.and(&other))
    }

    /// The accesses by which one source alone orders the two ends: one pair, or two pairs through a version (or chain) between.
    pub(super) fn met(
        &self,
        ends: &OrderedEnds<'_>,
        sources: SourceSet,
    ) -> Option<(VersionOrderSource, Vec<(ReasonAccess, ReasonAccess)>)> {
        sources.iter().find_map(|source| {
            let pair = match source {
                VersionOrderSource::Rmw => None,
                VersionOrderSource::Wfr => self.by_reads(ends),
                VersionOrderSource::Sequential => self.by_session(ends),
                VersionOrderSource::Linearizable => return Some((source, self.by_time(ends)?)),
                VersionOrderSource::Order => self.by_order(ends),
            };
            Some((source, vec![pair?]))
        })
    }

    /// All accesses of the key of these ends.
    fn accesses_of(&self, ends: &OrderedEnds<'_>) -> std::slice::Iter<'_, KeyAccess> {
        let key = self.accesses.columns.key_of(ends.from);
        self.accesses.of_key(key).iter()
    }

    fn by_reads(&self, ends: &OrderedEnds<'_>) -> Option<(ReasonAccess, ReasonAccess)> {
        let access = self.accesses_of(ends).find(|access| {
            let update = access.update();
            update.is_some_and(|(read, write)| ends.is_from(read) && ends.is_to(write))
        })?;
        let mut both = meetings(*access);
        Some((both.next()?, both.next()?))
    }

    fn by_session(&self, ends: &OrderedEnds<'_>) -> Option<(ReasonAccess, ReasonAccess)> {
        let columns = self.accesses.columns;
        let accesses = self.accesses.in_turn(columns.key_of(ends.from));
        let mut last: BTreeMap<ProcessNumber, ReasonAccess> = BTreeMap::new();
        for access in accesses {
            let session = columns.sessions()[access.transaction.index()];
            let mut before = last.get(&session).copied();
            for meeting in meetings(access) {
                if let Some(before) = before.filter(|before| ends.is_from(before.version))
                    && ends.is_to(meeting.version)
                {
                    return Some((before, meeting));
                }
                before = Some(meeting);
            }
            if let Some(before) = before.filter(|_| self.accesses.is_ok(access.transaction)) {
                last.insert(session, before);
            }
        }
        None
    }

    fn by_order(&self, ends: &OrderedEnds<'_>) -> Option<(ReasonAccess, ReasonAccess)> {
        let accesses = self
            .accesses
            .in_turn(self.accesses.columns.key_of(ends.from));
        let rank = |access: &KeyAccess| {
            let rank = self.ranks.get(access.transaction.index());
            rank.copied().flatten()
        };
        let mut known: Vec<_> = accesses.filter(|access| rank(access).is_some()).collect();
        known.sort_by_key(rank);
        let met: Vec<_> = known.into_iter().flat_map(meetings).collect();
        let found = met
            .windows(2)
            .find(|pair| ends.is_from(pair[0].version) && ends.is_to(pair[1].version));
        found.map(|pair| (pair[0], pair[1]))
    }

    fn by_time(&self, ends: &OrderedEnds<'_>) -> Option<Vec<(ReasonAccess, ReasonAccess)>> {
        let columns = self.accesses.columns;
        let mut spans: BTreeMap<Version, AccessSpan> = BTreeMap::new();
        for access in self.accesses_of(ends) {
            for meeting in meetings(*access) {
                let span = spans
                    .entry(ends.group(meeting.version))
                    .or_insert(AccessSpan {
                        ended: None,
                        begun: None,
                    });
                let transaction = access.transaction.get();
                if let Some(ended) = columns.ended(transaction)
                    && span.ended.is_none_or(|(other, _)| ended < other)
                {
                    span.ended = Some((ended, meeting));
                }
                if let Some(begun) = columns.begun(transaction)
                    && span.begun.is_none_or(|(other, _)| begun > other)
                {
                    span.begun = Some((begun, meeting));
                }
            }
        }
        let before = |one: &AccessSpan, other: &AccessSpan| {
            let (ended, begun) = (one.ended?, other.begun?);
            (ended.0 < begun.0).then_some((ended.1, begun.1))
        };
        let [from, to] = [ends.from, ends.to].map(|version| ends.group(version));
        let (one, other) = (spans.get(&from)?, spans.get(&to)?);
        if let Some(pair) = before(one, other) {
            return Some(vec![pair]);
        }
        // One pair is enough in most cases; else a version between the two.
        let mut between = spans.iter();
        between.find_map(|(&version, middle)| {
            let is_other = version != from && version != to;
            let first = before(one, middle).filter(|_| is_other)?;
            Some(vec![first, before(middle, other)?])
        })
    }

    fn words(&self, source: VersionOrderSource, one: ReasonAccess, other: ReasonAccess) -> Reason {
        let columns = self.accesses.columns;
        let verb = |meeting: ReasonAccess| if meeting.is_write { "wrote" } else { "read" };
        let value = |meeting: ReasonAccess| columns.shown_value(meeting.version);
        let name = |meeting: ReasonAccess| columns.name(meeting.transaction);
        let session = columns.sessions()[one.transaction as usize];
        let text = match source {
            _ if one.transaction == other.transaction => format!(
                "{} {} {} and then {} {}",
                name(one),
                verb(one),
                value(one),
                verb(other),
                value(other)
            ),
            VersionOrderSource::Linearizable => format!(
                "{}, which {} {}, had completed before {}, which {} {}, began",
                name(one),
                verb(one),
                value(one),
                name(other),
                verb(other),
                value(other)
            ),
            VersionOrderSource::Order => format!(
                "{}, which {} {}, comes before {}, which {} {}, in the given order",
                name(one),
                verb(one),
                value(one),
                name(other),
                verb(other),
                value(other)
            ),
            _ => format!(
                "process {} {} {} in {} and later {} {} in {}",
                columns.client(session),
                verb(one),
                value(one),
                name(one),
                verb(other),
                value(other),
                name(other)
            ),
        };
        let both = [one, other].map(|meeting| columns.index(meeting.transaction));
        Reason {
            text,
            operations: both.to_vec(),
        }
    }

    /// The finding of contradictory version orders.
    pub(super) fn contradiction(&self, contradiction: &Contradiction) -> Finding {
        let columns = self.accesses.columns;
        let Contradiction {
            key,
            source,
            sources,
            ref cycle,
        } = *contradiction;
        let names: Vec<_> = sources.iter().map(VersionOrderSource::name).collect();
        let mut text = format!(
            "The versions of key {} have no order by initial-state, {}:",
            columns.key(key),
            names.join(", ")
        );
        let mut operations = Vec::new();
        for (at, &from) in cycle.iter().enumerate() {
            let to = cycle[(at + 1) % cycle.len()];
            let why = self.why(from, to, sources).unwrap_or_default();
            let (start, end) = if at + 1 == cycle.len() {
                ("However, ", ": a contradiction!")
            } else {
                ("", ".")
            };
            let (one, other) = (columns.shown_value(from), columns.shown_value(to));
            let _ = write!(
                text,
                "\n  - {start}{one} comes before {other}, because {}{end}",
                why.text
            );
            for operation in why.operations {
                if !operations.contains(&operation) {
                    operations.push(operation);
                }
            }
        }
        Finding {
            anomaly: source.anomaly(),
            summary: text,
            operations,
            steps: Vec::new(),
            linearization: None,
        }
    }
}

/// A reason in words, and its operations.
#[derive(Default)]
struct Reason {
    text: String,
    operations: Vec<u64>,
}

impl Reason {
    /// This reason followed by another.
    fn and(&self, other: &Reason) -> Reason {
        let both = [self, other].map(|why| why.text.as_str());
        let texts: Vec<_> = both.into_iter().filter(|text| !text.is_empty()).collect();
        Reason {
            text: texts.join(", and "),
            operations: [&self.operations[..], &other.operations].concat(),
        }
    }
}
