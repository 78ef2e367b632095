//! Why a version comes before another, in words.

use super::chains::Chains;
use super::inference::{Source, Sources};
use super::orders::{Contradiction, Orders};
use super::touches::Touch;
use crate::Anomaly;
use crate::Finding;
use crate::txn::explain;
use crate::txn::graph::{PROCESS, REALTIME, WR, WW};
use crate::txn::registers::{Event, NONE};
use crate::txn::search::Cycle;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Versions of a chain that a reason is looked for among.
const CHAIN_MAX: usize = 64;

/// A transaction that met a version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    pub(super) transaction: u32,
    pub(super) version: u32,
    is_write: bool,
}

/// Versions between which an order is looked for: two, or any of the chains of updates that these are in.
pub(super) struct Ends<'a> {
    from: u32,
    to: u32,
    chains: Option<&'a Chains>,
}

impl<'a> Ends<'a> {
    pub(super) fn new(from: u32, to: u32) -> Ends<'a> {
        Ends {
            from,
            to,
            chains: None,
        }
    }

    /// The same with all that is chained to them.
    pub(super) fn chained(self, chains: &'a Chains) -> Ends<'a> {
        let chains = Some(chains);
        Ends { chains, ..self }
    }

    /// What stands for a version.
    fn group(&self, version: u32) -> u32 {
        self.chains.map_or(version, |chains| chains.head(version))
    }

    fn is_from(&self, version: u32) -> bool {
        self.group(version) == self.group(self.from)
    }

    fn is_to(&self, version: u32) -> bool {
        self.group(version) == self.group(self.to)
    }
}

/// When a version was met: first to end, last to begin.
#[derive(Clone, Copy, Debug)]
struct Span {
    ended: Option<(u32, Meeting)>,
    begun: Option<(u32, Meeting)>,
}

fn meetings(touch: Touch) -> impl Iterator<Item = Meeting> {
    let transaction = touch.transaction;
    let both = [(touch.read, false), (touch.write, true)];
    let both = both.into_iter().filter(|&(version, _)| version != NONE);
    both.map(move |(version, is_write)| Meeting {
        transaction,
        version,
        is_write,
    })
}

impl Orders<'_> {
    /// A cycle of transactions, in words.
    pub(super) fn cycle(&self, anomaly: Anomaly, cycle: &Cycle) -> Finding {
        let columns = self.touches.columns;
        let show = (
            |number| columns.shown(number),
            |number| columns.index(number),
            |number: u32| {
                let events = columns.events(number).iter();
                let writes = events.filter(|event| event.is_final_write());
                writes.map(|event| event.key()).collect::<BTreeSet<u32>>()
            },
        );
        explain::story(anomaly, cycle, show, |from, to, kind| {
            self.reason(from, to, kind)
        })
    }

    fn reason(&self, from: (u32, &str), to: (u32, &str), kind: u8) -> String {
        let columns = self.touches.columns;
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

    /// What a transaction read that it had not written itself.
    pub(super) fn reads(&self, number: u32) -> impl Iterator<Item = Event> {
        let columns = self.touches.columns;
        let events = columns.events(number).iter().copied();
        events.filter(move |event| !event.is_write() && columns.writer(event.version()) != number)
    }

    /// A transaction's last writes.
    pub(super) fn writes(&self, number: u32) -> impl Iterator<Item = Event> + Clone {
        let events = self.touches.columns.events(number).iter().copied();
        events.filter(|event| event.is_final_write())
    }

    /// Did this transaction read one version and then write the other?
    fn updates(&self, number: u32, read: u32, write: u32) -> bool {
        let key = self.touches.columns.key_of(read);
        let mut touches = self.touches.of_key(key).iter();
        let is_used = self.sources(key).has(Source::Wfr);
        is_used && touches.any(|it| (it.transaction, it.read, it.write) == (number, read, write))
    }

    /// The reason of a `ww` edge.
    fn overwrite(&self, (earlier, a): (u32, &str), (later, b): (u32, &str)) -> Option<String> {
        let columns = self.touches.columns;
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
        let columns = self.touches.columns;
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

    /// Why a version comes before another of the same key, if these sources say so: by one of them, or over versions that
    /// nobody installed.
    fn why(&self, from: u32, to: u32, sources: Sources) -> Option<Why> {
        let columns = self.touches.columns;
        let key = columns.key_of(from);
        let strangers = self.strangers.iter().copied();
        let strangers = strangers.filter(|&version| columns.key_of(version) == key);
        let mut left: Vec<_> = strangers.collect();
        // Each place that is reached with the reasons on the way to it.
        let mut reached = vec![(from, Why::default())];
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

    /// Why a version comes before another of the same key, if one of these sources says so.
    fn directly(&self, from: u32, to: u32, sources: Sources) -> Option<Why> {
        let columns = self.touches.columns;
        if columns.is_initial(from) {
            return Some(Why {
                text: "nil is the initial state".to_owned(),
                operations: Vec::new(),
            });
        }
        let direct = self.by_itself(from, to, sources);
        let is_chained = direct.is_none() && sources.has(Source::Rmw);
        direct.or_else(|| self.by_chains(from, to, sources).filter(|_| is_chained))
    }

    /// Why a version comes before another, from what is known of others in their chains.
    fn by_chains(&self, from: u32, to: u32, sources: Sources) -> Option<Why> {
        let columns = self.touches.columns;
        let head = self.chains.head(from);
        if head == self.chains.head(to) {
            return None;
        }
        let mut earlier: Vec<_> = self.chains.members(head).collect();
        // The initial state comes before all, and needs no looking up.
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
                Why {
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
            Some(Why { text, ..why })
        })
    }

    /// Why a version comes before another, by one of these sources and nothing else.
    fn by_itself(&self, from: u32, to: u32, sources: Sources) -> Option<Why> {
        let (source, pairs) = self.met(&Ends::new(from, to), sources)?;
        let words = pairs
            .iter()
            .map(|&(one, other)| self.words(source, one, other));
        words.reduce(|one, other| one.and(&other))
    }

    /// Who met what, so that one of these sources says by itself that there is an order from the one end to the other: one
    /// pair, or two over a version (a chain of versions) that comes between.
    pub(super) fn met(
        &self,
        ends: &Ends<'_>,
        sources: Sources,
    ) -> Option<(Source, Vec<(Meeting, Meeting)>)> {
        sources.iter().find_map(|source| {
            let pair = match source {
                Source::Rmw => None,
                Source::Wfr => self.by_reads(ends),
                Source::Sequential => self.by_session(ends),
                Source::Linearizable => return Some((source, self.by_time(ends)?)),
                Source::Order => self.by_order(ends),
            };
            Some((source, vec![pair?]))
        })
    }

    /// All who touched the key of these ends.
    fn touches_of(&self, ends: &Ends<'_>) -> std::slice::Iter<'_, Touch> {
        let key = self.touches.columns.key_of(ends.from);
        self.touches.of_key(key).iter()
    }

    fn by_reads(&self, ends: &Ends<'_>) -> Option<(Meeting, Meeting)> {
        let mut touches = self.touches_of(ends).filter(|touch| touch.write != NONE);
        let touch = touches.find(|touch| {
            touch.read != NONE && ends.is_from(touch.read) && ends.is_to(touch.write)
        })?;
        let mut both = meetings(*touch);
        Some((both.next()?, both.next()?))
    }

    fn by_session(&self, ends: &Ends<'_>) -> Option<(Meeting, Meeting)> {
        let columns = self.touches.columns;
        let touches = self.touches.in_turn(columns.key_of(ends.from));
        let mut last: BTreeMap<u32, Meeting> = BTreeMap::new();
        for touch in touches {
            let session = columns.sessions()[touch.transaction as usize];
            let mut before = last.get(&session).copied();
            for meeting in meetings(touch) {
                if let Some(before) = before.filter(|before| ends.is_from(before.version))
                    && ends.is_to(meeting.version)
                {
                    return Some((before, meeting));
                }
                before = Some(meeting);
            }
            if let Some(before) = before.filter(|_| self.touches.is_ok(touch.transaction)) {
                last.insert(session, before);
            }
        }
        None
    }

    fn by_order(&self, ends: &Ends<'_>) -> Option<(Meeting, Meeting)> {
        let touches = self.touches.in_turn(self.touches.columns.key_of(ends.from));
        let number = |touch: &Touch| self.numbers.get(touch.transaction as usize).copied();
        let known = touches.filter(|touch| number(touch).is_some_and(|number| number != NONE));
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(number);
        let met: Vec<_> = known.into_iter().flat_map(meetings).collect();
        let found = met
            .windows(2)
            .find(|pair| ends.is_from(pair[0].version) && ends.is_to(pair[1].version));
        found.map(|pair| (pair[0], pair[1]))
    }

    fn by_time(&self, ends: &Ends<'_>) -> Option<Vec<(Meeting, Meeting)>> {
        let columns = self.touches.columns;
        let mut spans: BTreeMap<u32, Span> = BTreeMap::new();
        for touch in self.touches_of(ends) {
            for meeting in meetings(*touch) {
                let span = spans.entry(ends.group(meeting.version)).or_insert(Span {
                    ended: None,
                    begun: None,
                });
                let ended = columns.ended(touch.transaction);
                if ended != NONE && span.ended.is_none_or(|(other, _)| ended < other) {
                    span.ended = Some((ended, meeting));
                }
                let begun = columns.begun(touch.transaction);
                if begun != NONE && span.begun.is_none_or(|(other, _)| begun > other) {
                    span.begun = Some((begun, meeting));
                }
            }
        }
        let before = |one: &Span, other: &Span| {
            let (ended, begun) = (one.ended?, other.begun?);
            (ended.0 < begun.0).then_some((ended.1, begun.1))
        };
        let [from, to] = [ends.from, ends.to].map(|version| ends.group(version));
        let (one, other) = (spans.get(&from)?, spans.get(&to)?);
        if let Some(pair) = before(one, other) {
            return Some(vec![pair]);
        }
        // As a rule one is enough; else one that comes between them.
        let mut between = spans.iter();
        between.find_map(|(&version, middle)| {
            let is_other = version != from && version != to;
            let first = before(one, middle).filter(|_| is_other)?;
            Some(vec![first, before(middle, other)?])
        })
    }

    fn words(&self, source: Source, one: Meeting, other: Meeting) -> Why {
        let columns = self.touches.columns;
        let verb = |meeting: Meeting| if meeting.is_write { "wrote" } else { "read" };
        let value = |meeting: Meeting| columns.shown_value(meeting.version);
        let name = |meeting: Meeting| columns.name(meeting.transaction);
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
            Source::Linearizable => format!(
                "{}, which {} {}, had completed before {}, which {} {}, began",
                name(one),
                verb(one),
                value(one),
                name(other),
                verb(other),
                value(other)
            ),
            Source::Order => format!(
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
        Why {
            text,
            operations: both.to_vec(),
        }
    }

    /// Orders of versions that contradict one another, in words.
    pub(super) fn contradiction(&self, contradiction: &Contradiction) -> Finding {
        let columns = self.touches.columns;
        let Contradiction {
            key,
            source,
            sources,
            ref cycle,
        } = *contradiction;
        let names: Vec<_> = sources.iter().map(Source::name).collect();
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
        }
    }
}

/// A reason, and the operations that it is about.
#[derive(Default)]
struct Why {
    text: String,
    operations: Vec<u64>,
}

impl Why {
    /// This, and then the other.
    fn and(&self, other: &Why) -> Why {
        let both = [self, other].map(|why| why.text.as_str());
        let texts: Vec<_> = both.into_iter().filter(|text| !text.is_empty()).collect();
        Why {
            text: texts.join(", and "),
            operations: [&self.operations[..], &other.operations].concat(),
        }
    }
}
