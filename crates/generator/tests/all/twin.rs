//! Naive generators, for comparison with the fast ones: immutable values, sets instead of bits, each answer with the whole
//! remaining generator.
//!
//! It follows the semantics of Jepsen's generators, and where those leave a choice to chance, the order in which the
//! fast ones draw. It differs from Jepsen where the fast ones do so on purpose (see the guide to generators): an end is
//! for ever, a mixture does not wait for a generator that has nothing for now, a limit of concurrency counts the operations
//! of its own generator, and a time limit also ends a generator that has nothing for now.

mod many;

use many::{
    ask_any, ask_cache, ask_cycle, ask_cycle_times, ask_each_process, ask_each_thread,
    ask_function, ask_groups, ask_keys, ask_mix, ask_on, ask_one, ask_reserve, ask_sequence,
};
use seatrial_generator::{GeneratorFailure, Next, Thread, Tree};
use seatrial_history::{Key, Op, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Maximum delay of a stagger that later operations compensate, in nanoseconds.
const BACKLOG_MAX: i64 = 1_000_000_000;

/// A generator inside another.
pub(crate) type Link = Arc<Gen>;

/// An answer that holds for a while, and the generator if it is taken; from and until when, and the number of the change
/// after which it was given.
pub(crate) type Held = (Next, Link, i64, i64, u64);

/// A set of threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Clients,
    Nemesis,
    Below(u32),
    Odd,
}

impl Rule {
    pub(crate) fn passes(self, thread: Thread) -> bool {
        match self {
            Rule::Clients => thread.is_client(),
            Rule::Nemesis => !thread.is_client(),
            Rule::Below(bound) => thread.0 < bound,
            Rule::Odd => thread.0 % 2 == 1,
        }
    }
}

/// A generator as a value: its parts and its state.
#[derive(Clone, Debug)]
pub(crate) enum Gen {
    Nothing,
    /// An operation, optionally of one process, not before a time.
    One(Symbol, Value, Option<Process>, i64),
    Sequence(Vec<Link>),
    Any {
        rng: Rng,
        parts: Vec<Option<Link>>,
        shortest: bool,
    },
    Mix(Rng, Vec<Option<Link>>),
    FlipFlop([Link; 2], usize),
    Then(Link, Link),
    Limit(u64, Link),
    Repeat(Option<u64>, Link),
    TimeLimit(i64, Option<i64>, Link),
    Stagger(Rng, Duration, i64, Link),
    Delay(i64, i64, Link),
    DelayTil(i64, Link),
    CycleTimes(Option<i64>, Vec<(i64, Link)>),
    Synchronize(bool, Link),
    UntilOk(BTreeSet<Thread>, Link),
    Add(i64, Link),
    Rename(Link),
    Without(i64, Link),
    On(Rule, Link, Option<Held>),
    ProcessLimit(usize, BTreeSet<Process>, Link),
    ConcurrencyLimit(usize, BTreeSet<Thread>, Link),
    Reserve(Rng, Vec<u32>, Vec<Option<Link>>),
    EachThread(Link, BTreeMap<Thread, Option<Link>>),
    EachProcess(Link, BTreeMap<Thread, (Process, Option<Link>)>),
    /// Group size, the next key and the end of keys, what each key runs, and what each group runs.
    ConcurrentKeys {
        size: usize,
        keys: (i64, i64),
        each: Link,
        groups: BTreeMap<usize, Option<(i64, Link)>>,
    },
    SequentialKeys {
        keys: (i64, i64),
        each: Link,
        current: Option<(i64, Link)>,
    },
    /// A function: number of calls, maximum number, its results, and the last result.
    Function(i64, i64, Link, Option<Link>),
    Cycle(u64, Link, Option<Link>),
    Cache(i64, Option<(i64, Op)>, Link),
    /// Answers one operation when it sees a success, in place of what it was.
    OnOk(Link),
    Validate(Link),
    Trace(Link),
    Friendly(Link),
    /// Counts those that have ended and are still there.
    Watched(Link),
}

/// The context of a generator.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) time: i64,
    pub(crate) concurrency: u32,
    /// All threads and the processes that they run.
    pub(crate) threads: BTreeMap<Thread, Process>,
    pub(crate) free: BTreeSet<Thread>,
    /// The random choice among free threads.
    pub(crate) word: u64,
    /// Numbers of changes of clients and of the nemesis.
    pub(crate) changes: (u64, u64),
}

impl Sight {
    fn only(&self, keep: impl Fn(Thread) -> bool) -> Sight {
        let mut sight = self.clone();
        sight.threads.retain(|thread, _| keep(*thread));
        sight.free.retain(|thread| keep(*thread));
        sight
    }

    fn at(&self, time: i64) -> Sight {
        Sight {
            time,
            ..self.clone()
        }
    }

    fn some_free(&self) -> Option<Thread> {
        let rank = (u128::from(self.word) * self.free.len() as u128) >> 64;
        self.free.iter().nth(rank as usize).copied()
    }

    pub(crate) fn thread_of(&self, process: Process) -> Option<Thread> {
        match process {
            Process::Client(_) if self.concurrency == 0 => None,
            Process::Client(number) => Some(Thread((number % u64::from(self.concurrency)) as u32)),
            Process::Named(_) => Some(Thread::NEMESIS),
        }
    }
}

/// An answer, the generator if it is not taken, and the generator if it is.
pub(crate) struct Asked {
    pub(crate) next: Next,
    pub(crate) kept: Gen,
    pub(crate) taken: Gen,
}

impl Asked {
    fn same(next: Next, kept: Gen) -> Asked {
        let taken = kept.clone();
        Asked { next, kept, taken }
    }

    fn end() -> Asked {
        Asked::same(Next::Exhausted, Gen::Nothing)
    }

    /// The same inside another generator; `wrap` receives whether the operation is taken.
    fn within(self, wrap: impl Fn(bool, Link) -> Gen) -> Asked {
        if matches!(self.next, Next::Exhausted) {
            return Asked::end();
        }
        Asked {
            kept: wrap(false, self.kept.into()),
            taken: wrap(true, self.taken.into()),
            next: self.next,
        }
    }

    /// The same with another operation.
    fn with(mut self, change: impl FnOnce(&mut Op)) -> Asked {
        if let Next::Op(op) = &mut self.next {
            change(op);
        }
        self
    }
}

fn keyed(key: i64, value: Value) -> Value {
    Value::Keyed(Key::Int(key), Arc::new(value))
}

/// The operation without its key, if it is of this key.
fn bare(event: &Op, key: i64) -> Option<Op> {
    match &event.value {
        Value::Keyed(Key::Int(found), value) if *found == key => Some(Op {
            value: Value::clone(value),
            ..event.clone()
        }),
        _ => None,
    }
}

/// The lot of a part: a word of the part's own, well mixed (splitmix64).
fn lot(word: u64, part: usize) -> u64 {
    let word = word.wrapping_add((part as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Competitors in the order of their lots: exponentially distributed times, the greater the weight the sooner.
fn lots(rng: &Rng, competitors: impl IntoIterator<Item = (usize, u64)>, same: bool) -> Vec<usize> {
    let word = rng.clone().word();
    let mut order: Vec<(f64, u64, usize)> = Vec::new();
    for (part, weight) in competitors {
        let lot = lot(word, part);
        let unit = ((lot >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let time = if same {
            0.0
        } else {
            -unit.ln() / weight as f64
        };
        order.push((time, lot, part));
    }
    order.sort_by(|a, b| a.partial_cmp(b).unwrap());
    order.into_iter().map(|(.., part)| part).collect()
}

/// The stream after an operation was taken.
fn moved(rng: &Rng) -> Rng {
    let mut rng = rng.clone();
    rng.word();
    rng
}

/// The result of asking several generators.
enum Race {
    /// The answer, whose it is, and what they are if it is taken.
    Won(Next, usize, Link),
    Waiting,
    /// This one has ended.
    Ended(usize),
}

/// Asks in this order until one has something that is due; keeps what those become that were asked.
fn race(
    order: impl IntoIterator<Item = usize>,
    now: i64,
    mut ask: impl FnMut(usize) -> Asked,
    mut keep: impl FnMut(usize, Link),
) -> Race {
    let mut best: Option<(Op, usize, Link)> = None;
    for index in order {
        let asked = ask(index);
        if matches!(asked.next, Next::Exhausted) {
            return Race::Ended(index);
        }
        keep(index, asked.kept.into());
        match asked.next {
            Next::Op(op) if best.as_ref().is_none_or(|(best, ..)| op.time < best.time) => {
                let due = op.time <= now;
                best = Some((op, index, asked.taken.into()));
                if due {
                    break;
                }
            }
            failed @ Next::Failed(_) => return Race::Won(failed, index, asked.taken.into()),
            _ => {}
        }
    }
    match best {
        Some((op, index, taken)) => Race::Won(Next::Op(op), index, taken),
        None => Race::Waiting,
    }
}

impl Gen {
    /// The next operation.
    pub(crate) fn ask(&self, sight: &Sight) -> Asked {
        match self.clone() {
            Gen::Nothing => Asked::end(),
            Gen::One(f, value, by, at) => ask_one(self, f, value, by, at, sight),
            Gen::Sequence(parts) => ask_sequence(parts, sight),
            Gen::Any {
                rng,
                parts,
                shortest,
            } => ask_any(&rng, parts, shortest, sight),
            Gen::Mix(rng, parts) => ask_mix(&rng, parts, sight),
            Gen::FlipFlop(pair, turn) => pair[turn].ask(sight).within(|taken, inner| {
                let mut pair = pair.clone();
                pair[turn] = inner;
                Gen::FlipFlop(pair, if taken { 1 - turn } else { turn })
            }),
            Gen::Then(first, second) => {
                let second = Gen::Synchronize(false, second).into();
                ask_sequence(vec![first, second], sight)
            }
            Gen::Reserve(rng, counts, parts) => ask_reserve(&rng, &counts, parts, sight),
            Gen::EachThread(each, slots) => ask_each_thread(&each, slots, sight),
            Gen::EachProcess(each, seats) => ask_each_process(&each, seats, sight),
            Gen::ConcurrentKeys {
                size,
                keys,
                each,
                groups,
            } => ask_groups(size, keys, &each, groups, sight),
            Gen::SequentialKeys {
                keys,
                each,
                current,
            } => ask_keys(keys, &each, current, sight),
            Gen::Function(called, most, each, current) => {
                ask_function(called, most, &each, current, sight)
            }
            Gen::Cycle(left, each, current) => ask_cycle(left, &each, current, sight),
            Gen::CycleTimes(begin, turns) => ask_cycle_times(begin, turns, sight),
            timed => timed.ask_around(sight),
        }
    }

    /// The same for those around one other, in which time plays a part.
    fn ask_around(&self, sight: &Sight) -> Asked {
        match self.clone() {
            Gen::Limit(0, _) | Gen::Repeat(Some(0), _) | Gen::ConcurrencyLimit(0, ..) => {
                Asked::end()
            }
            Gen::Limit(left, inner) => inner
                .ask(sight)
                .within(|taken, inner| Gen::Limit(left - u64::from(taken), inner)),
            Gen::Repeat(left, inner) => {
                let asked = inner.ask(sight);
                let inner: Link = asked.kept.clone().into();
                asked.within(|taken, _| {
                    let left = left.map(|left| left - u64::from(taken));
                    Gen::Repeat(left, Arc::clone(&inner))
                })
            }
            Gen::TimeLimit(length, end, inner) => {
                let past = |time| length == 0 || end.is_some_and(|end| time >= end);
                if past(sight.time) {
                    return Asked::end();
                }
                let asked = inner.ask(sight);
                let time = match &asked.next {
                    Next::Op(op) => op.time,
                    _ => sight.time,
                };
                if past(time) {
                    return Asked::end();
                }
                asked.within(|taken, inner| {
                    let end = end.or(taken.then_some(time + length));
                    Gen::TimeLimit(length, end, inner)
                })
            }
            Gen::Stagger(rng, mean, due, inner) => {
                let asked = inner.ask(sight).with(|op| op.time = op.time.max(due));
                let time = time_of(&asked.next);
                asked.within(|taken, inner| {
                    let (mut rng, mut due) = (rng.clone(), due);
                    if taken {
                        let is_behind = due >= 0 && time - due <= BACKLOG_MAX;
                        let from = if is_behind { due } else { time };
                        due = from + rng.duration_below(mean * 2).as_nanos() as i64;
                    }
                    Gen::Stagger(rng, mean, due, inner)
                })
            }
            Gen::Delay(interval, due, inner) => {
                let asked = inner.ask(sight).with(|op| op.time = op.time.max(due));
                let time = time_of(&asked.next);
                asked.within(|taken, inner| {
                    Gen::Delay(interval, if taken { time + interval } else { due }, inner)
                })
            }
            Gen::DelayTil(interval, inner) => inner
                .ask(sight)
                .with(|op| op.time = (op.time + interval - 1) / interval * interval)
                .within(|_, inner| Gen::DelayTil(interval, inner)),
            Gen::Cache(length, kept, inner) => ask_cache(length, kept, &inner, sight),
            counted => counted.ask_counted(sight),
        }
    }

    /// The same for those that count or change.
    fn ask_counted(&self, sight: &Sight) -> Asked {
        match self.clone() {
            Gen::Synchronize(begun, inner) => {
                if !begun && sight.free.len() < sight.threads.len() {
                    return Asked::same(Next::Pending, self.clone());
                }
                inner
                    .ask(sight)
                    .within(|taken, inner| Gen::Synchronize(begun || taken, inner))
            }
            Gen::UntilOk(open, inner) => {
                let asked = inner.ask(sight);
                let thread = thread_of(&asked.next, sight);
                asked.within(|taken, inner| {
                    let mut open = open.clone();
                    open.extend(thread.filter(|_| taken));
                    Gen::UntilOk(open, inner)
                })
            }
            other => other.ask_changed(sight),
        }
    }

    /// The same for those that change what they see or what they answer.
    fn ask_changed(&self, sight: &Sight) -> Asked {
        match self.clone() {
            Gen::Add(number, inner) => inner
                .ask(sight)
                .with(|op| op.value = added(number, &op.value))
                .within(|_, inner| Gen::Add(number, inner)),
            Gen::Rename(inner) => inner
                .ask(sight)
                .with(|op| {
                    if op.f == "a" {
                        op.f = "renamed".into();
                    }
                })
                .within(|_, inner| Gen::Rename(inner)),
            Gen::Without(divisor, mut inner) => {
                for _ in 0..10_000 {
                    let asked = inner.ask(sight);
                    match &asked.next {
                        Next::Op(op) if refused(op, divisor) => inner = asked.taken.into(),
                        _ => return asked.within(|_, inner| Gen::Without(divisor, inner)),
                    }
                }
                let failure = GeneratorFailure::new("without end", Tree::leaf("filter"));
                Asked::same(
                    Next::Failed(Box::new(failure)),
                    Gen::Without(divisor, inner),
                )
            }
            Gen::On(rule, inner, held) => ask_on(rule, &inner, held, sight),
            Gen::ProcessLimit(limit, seen, inner) => {
                let sight = first_threads(sight, limit);
                let asked = inner.ask(&sight);
                let all: BTreeSet<Process> =
                    seen.iter().chain(sight.threads.values()).copied().collect();
                if limit == 0 || matches!(asked.next, Next::Op(_)) && all.len() > limit {
                    return Asked::end();
                }
                asked.within(|taken, inner| {
                    let seen = if taken { &all } else { &seen };
                    Gen::ProcessLimit(limit, seen.clone(), inner)
                })
            }
            Gen::ConcurrencyLimit(limit, mut open, inner) => {
                open.retain(|thread| !sight.free.contains(thread));
                let mut asked = inner.ask(sight);
                if matches!(asked.next, Next::Op(_)) && open.len() >= limit {
                    asked = Asked::same(Next::Pending, asked.kept);
                }
                let thread = thread_of(&asked.next, sight);
                asked.within(|taken, inner| {
                    let mut open = open.clone();
                    open.extend(thread.filter(|_| taken));
                    Gen::ConcurrencyLimit(limit, open, inner)
                })
            }
            Gen::OnOk(inner) => inner.ask(sight).within(|_, inner| Gen::OnOk(inner)),
            Gen::Validate(inner) => inner.ask(sight).within(|_, inner| Gen::Validate(inner)),
            Gen::Trace(inner) => inner.ask(sight).within(|_, inner| Gen::Trace(inner)),
            Gen::Friendly(inner) => inner.ask(sight).within(|_, inner| Gen::Friendly(inner)),
            Gen::Watched(inner) => inner.ask(sight).within(|_, inner| Gen::Watched(inner)),
            other => unreachable!("{other:?}"),
        }
    }

    /// The generator after an event.
    pub(crate) fn update(&self, sight: &Sight, event: &Op) -> Gen {
        let after = |inner: &Link| -> Link { inner.update(sight, event).into() };
        let thread = sight.thread_of(event.process).unwrap();
        match self.clone() {
            Gen::Sequence(mut parts) => {
                if let Some(first) = parts.first_mut() {
                    *first = after(first);
                }
                Gen::Sequence(parts)
            }
            Gen::Any {
                rng,
                parts,
                shortest,
            } => Gen::Any {
                rng,
                parts: parts.iter().map(|part| part.as_ref().map(after)).collect(),
                shortest,
            },
            Gen::Then(first, second) => Gen::Then(after(&first), second),
            Gen::Limit(left, inner) => Gen::Limit(left, after(&inner)),
            Gen::Repeat(left, inner) => Gen::Repeat(left, after(&inner)),
            Gen::TimeLimit(length, end, inner) => Gen::TimeLimit(length, end, after(&inner)),
            Gen::Stagger(rng, mean, due, inner) => Gen::Stagger(rng, mean, due, after(&inner)),
            Gen::Delay(interval, due, inner) => Gen::Delay(interval, due, after(&inner)),
            Gen::DelayTil(interval, inner) => Gen::DelayTil(interval, after(&inner)),
            Gen::CycleTimes(begin, turns) => {
                let turns = turns.iter().map(|(length, inner)| (*length, after(inner)));
                Gen::CycleTimes(begin, turns.collect())
            }
            Gen::Synchronize(begun, inner) => Gen::Synchronize(begun, after(&inner)),
            Gen::UntilOk(mut open, inner) => {
                let over = sight.free.contains(&thread) && open.remove(&thread) && event.is_ok();
                if over {
                    Gen::Nothing
                } else {
                    Gen::UntilOk(open, after(&inner))
                }
            }
            Gen::Add(number, inner) => Gen::Add(number, after(&inner)),
            Gen::Rename(inner) => Gen::Rename(after(&inner)),
            Gen::Without(divisor, inner) => Gen::Without(divisor, after(&inner)),
            Gen::On(rule, inner, held) if rule.passes(thread) => {
                let sight = sight.only(|thread| rule.passes(thread));
                Gen::On(rule, inner.update(&sight, event).into(), held)
            }
            Gen::ProcessLimit(limit, seen, inner) => {
                let sight = first_threads(sight, limit);
                Gen::ProcessLimit(limit, seen, inner.update(&sight, event).into())
            }
            Gen::ConcurrencyLimit(limit, mut open, inner) => {
                if sight.free.contains(&thread) {
                    open.remove(&thread);
                }
                Gen::ConcurrencyLimit(limit, open, after(&inner))
            }
            Gen::Cache(length, kept, inner) => Gen::Cache(length, kept, after(&inner)),
            Gen::OnOk(_) if event.is_ok() => Gen::OnOk(saw().into()),
            Gen::OnOk(inner) => Gen::OnOk(after(&inner)),
            Gen::Validate(inner) => Gen::Validate(after(&inner)),
            Gen::Trace(inner) => Gen::Trace(after(&inner)),
            Gen::Friendly(inner) => Gen::Friendly(after(&inner)),
            Gen::Watched(inner) => Gen::Watched(after(&inner)),
            many => many.update_one(sight, event, thread),
        }
    }

    /// The same for generators that update only the part of the event's thread or key.
    fn update_one(&self, sight: &Sight, event: &Op, thread: Thread) -> Gen {
        let mut me = self.clone();
        match &mut me {
            Gen::Reserve(_, counts, parts) => {
                let Some(ranges) = ranges(counts, sight) else {
                    return me;
                };
                for (range, part) in ranges.iter().zip(parts) {
                    if range.contains(&thread) {
                        let sight = sight.only(|thread| range.contains(&thread));
                        *part = part.as_ref().map(|part| part.update(&sight, event).into());
                    }
                }
            }
            Gen::EachThread(each, slots) => {
                let here = sight.threads.contains_key(&thread);
                let fresh = || here.then(|| Arc::clone(each));
                if let Some(inner) = slots.entry(thread).or_insert_with(fresh) {
                    let sight = sight.only(|other| other == thread);
                    *inner = inner.update(&sight, event).into();
                }
            }
            Gen::EachProcess(_, seats) => {
                if let Some((process, Some(inner))) = seats.get_mut(&thread)
                    && *process == event.process
                {
                    let sight = sight.only(|other| other == thread);
                    *inner = inner.update(&sight, event).into();
                }
            }
            Gen::ConcurrentKeys { size, groups, .. } => {
                let members = group_members(sight, *size);
                for (group, members) in members.iter().enumerate() {
                    if members.contains(&thread)
                        && let Some(Some((key, inner))) = groups.get_mut(&group)
                        && let Some(event) = bare(event, *key)
                    {
                        let sight = sight.only(|thread| members.contains(&thread));
                        *inner = inner.update(&sight, &event).into();
                    }
                }
            }
            Gen::SequentialKeys {
                current: Some((key, inner)),
                ..
            } => {
                if let Some(event) = bare(event, *key) {
                    *inner = inner.update(sight, &event).into();
                }
            }
            Gen::Function(_, _, _, Some(inner)) | Gen::Cycle(_, _, Some(inner)) => {
                *inner = inner.update(sight, event).into();
            }
            _ => {}
        }
        me
    }
}

/// The replacement of [`Gen::OnOk`].
pub(crate) fn saw() -> Gen {
    Gen::One("saw".into(), Value::Nil, None, 0)
}

/// `value` and so much more, if it is a number.
pub(crate) fn added(number: i64, value: &Value) -> Value {
    match value {
        Value::Int(value) => Value::Int(value + number),
        other => other.clone(),
    }
}

/// Does [`Gen::Without`] drop this operation?
pub(crate) fn refused(op: &Op, divisor: i64) -> bool {
    op.value.as_int().is_some_and(|value| value % divisor == 0)
}

fn time_of(next: &Next) -> i64 {
    match next {
        Next::Op(op) => op.time,
        _ => 0,
    }
}

fn thread_of(next: &Next, sight: &Sight) -> Option<Thread> {
    match next {
        Next::Op(op) => sight.thread_of(op.process),
        _ => None,
    }
}

fn first_threads(sight: &Sight, count: usize) -> Sight {
    let first: BTreeSet<Thread> = sight.threads.keys().take(count).copied().collect();
    sight.only(|thread| first.contains(&thread))
}

fn group_members(sight: &Sight, size: usize) -> Vec<Vec<Thread>> {
    let threads: Vec<Thread> = sight.threads.keys().copied().collect();
    threads.chunks(size).map(<[Thread]>::to_vec).collect()
}

/// The threads of each range and of the default, if there are enough.
fn ranges(counts: &[u32], sight: &Sight) -> Option<Vec<BTreeSet<Thread>>> {
    let mut threads = sight.threads.keys().copied();
    if counts.iter().sum::<u32>() as usize >= threads.len() {
        return None;
    }
    let mut ranges: Vec<BTreeSet<Thread>> = Vec::new();
    for &count in counts {
        ranges.push(threads.by_ref().take(count as usize).collect());
    }
    ranges.push(threads.collect());
    Some(ranges)
}
