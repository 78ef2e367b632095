//! The answers of generators that choose among others, divide the threads, or make generators.

use super::{
    Asked, Gen, Held, Link, Race, Rule, Sight, group_members, keyed, lot, lots, moved, race, ranges,
};
use seatrial_generator::{GeneratorFailure, LOG, Next, SLEEP, Thread, Tree};
use seatrial_history::{Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn ask_one(
    me: &Gen,
    f: Symbol,
    value: Value,
    by: Option<Process>,
    at: i64,
    sight: &Sight,
) -> Asked {
    let process = match by {
        None => sight.some_free().map(|thread| sight.threads[&thread]),
        Some(process) => sight
            .thread_of(process)
            .filter(|thread| sight.free.contains(thread))
            .map(|_| process),
    };
    let Some(process) = process else {
        return Asked::same(Next::Pending, me.clone());
    };
    let special = f == SLEEP || f == LOG;
    let kind = if process.is_client() && !special {
        OpType::Invoke
    } else {
        OpType::Info
    };
    let op = Op {
        time: sight.time.max(at),
        kind,
        ..Op::invoke(process, f, value)
    };
    Asked {
        next: Next::Op(op),
        kept: me.clone(),
        taken: Gen::Nothing,
    }
}

pub(super) fn ask_sequence(mut parts: Vec<Link>, sight: &Sight) -> Asked {
    while let Some(first) = parts.first() {
        let asked = first.ask(sight);
        if matches!(asked.next, Next::Exhausted) {
            parts.remove(0);
            continue;
        }
        return asked.within(|_, inner| {
            let mut parts = parts.clone();
            parts[0] = inner;
            Gen::Sequence(parts)
        });
    }
    Asked::end()
}

pub(super) fn ask_any(
    rng: &Rng,
    mut parts: Vec<Option<Link>>,
    shortest: bool,
    sight: &Sight,
) -> Asked {
    if shortest {
        for part in parts.iter_mut().flatten() {
            let asked = part.ask(sight);
            if matches!(asked.next, Next::Exhausted) {
                return Asked::end();
            }
            *part = asked.kept.into();
        }
    }
    loop {
        let alive = |parts: &[Option<Link>]| -> Vec<(usize, u64)> {
            let alive = parts.iter().enumerate().filter(|(_, part)| part.is_some());
            alive.map(|(index, _)| (index, 1)).collect()
        };
        let order = lots(rng, alive(&parts), true);
        if order.is_empty() {
            return Asked::end();
        }
        let before = parts.clone();
        let ask = |index: usize| before[index].as_ref().unwrap().ask(sight);
        let ran = race(order, sight.time, ask, |index, kept| {
            parts[index] = Some(kept);
        });
        let me = |rng: &Rng, parts: &[Option<Link>]| Gen::Any {
            rng: rng.clone(),
            parts: parts.to_vec(),
            shortest,
        };
        match ran {
            Race::Ended(index) => parts[index] = None,
            Race::Waiting => return Asked::same(Next::Pending, me(rng, &parts)),
            Race::Won(next, index, taken) => {
                let kept = me(rng, &parts);
                parts[index] = Some(taken);
                let taken = me(&moved(rng), &parts);
                return Asked { next, kept, taken };
            }
        }
    }
}

pub(super) fn ask_mix(rng: &Rng, mut parts: Vec<Option<Link>>, sight: &Sight) -> Asked {
    let alive = (0..parts.len()).filter(|&index| parts[index].is_some());
    for index in lots(rng, alive.map(|index| (index, 1)), true) {
        let asked = parts[index].as_ref().unwrap().ask(sight);
        match asked.next {
            Next::Exhausted => parts[index] = None,
            Next::Pending => parts[index] = Some(asked.kept.into()),
            next => {
                parts[index] = Some(asked.kept.into());
                let kept = Gen::Mix(rng.clone(), parts.clone());
                parts[index] = Some(asked.taken.into());
                let taken = Gen::Mix(moved(rng), parts);
                return Asked { next, kept, taken };
            }
        }
    }
    if parts.iter().all(Option::is_none) {
        return Asked::end();
    }
    Asked::same(Next::Pending, Gen::Mix(rng.clone(), parts))
}

/// All clients and the nemesis keep to an answer while nothing happens to them: to an operation until it is due, to a pause
/// for a millisecond, or for ten while all are busy.
pub(super) fn ask_on(rule: Rule, inner: &Link, held: Option<Held>, sight: &Sight) -> Asked {
    let changes = match rule {
        Rule::Clients => Some(sight.changes.0),
        Rule::Nemesis => Some(sight.changes.1),
        _ => None,
    };
    if let Some((next, taken, since, until, change)) = &held
        && Some(*change) == changes
        && (*since..*until).contains(&sight.time)
    {
        return Asked {
            next: next.clone(),
            taken: Gen::On(rule, Arc::clone(taken), None),
            kept: Gen::On(rule, Arc::clone(inner), held),
        };
    }
    let narrow = sight.only(|thread| rule.passes(thread));
    let asked = inner.ask(&narrow);
    let until = match &asked.next {
        Next::Op(op) => op.time,
        Next::Pending if narrow.free.is_empty() => sight.time + 10_000_000,
        _ => sight.time + 1_000_000,
    };
    if matches!(asked.next, Next::Exhausted) {
        return Asked::end();
    }
    let taken: Link = asked.taken.into();
    let holds = until > sight.time && !matches!(asked.next, Next::Failed(_));
    let held = changes.filter(|_| holds).map(|change| {
        let next = asked.next.clone();
        (next, Arc::clone(&taken), sight.time, until, change)
    });
    Asked {
        next: asked.next,
        kept: Gen::On(rule, asked.kept.into(), held),
        taken: Gen::On(rule, taken, None),
    }
}

pub(super) fn ask_reserve(
    rng: &Rng,
    counts: &[u32],
    mut parts: Vec<Option<Link>>,
    sight: &Sight,
) -> Asked {
    let me = |rng: Rng, parts: &[Option<Link>]| Gen::Reserve(rng, counts.to_vec(), parts.to_vec());
    let Some(ranges) = ranges(counts, sight) else {
        let failure = GeneratorFailure::new("reserve", Tree::leaf("reserve"));
        return Asked::same(Next::Failed(Box::new(failure)), me(rng.clone(), &parts));
    };
    let sights: Vec<Sight> = ranges
        .iter()
        .map(|range| sight.only(|thread| range.contains(&thread)))
        .collect();
    loop {
        let able = (0..parts.len())
            .filter(|&index| parts[index].is_some() && !sights[index].free.is_empty());
        let same = ranges.iter().all(|range| range.len() == ranges[0].len());
        let order = lots(rng, able.map(|i| (i, ranges[i].len() as u64)), same);
        let is_empty = order.is_empty();
        let before = parts.clone();
        let ask = |index: usize| before[index].as_ref().unwrap().ask(&sights[index]);
        let ran = race(order, sight.time, ask, |index, kept| {
            parts[index] = Some(kept);
        });
        match ran {
            Race::Ended(index) => parts[index] = None,
            Race::Waiting if !is_empty => {
                return Asked::same(Next::Pending, me(rng.clone(), &parts));
            }
            Race::Waiting => break,
            Race::Won(next, index, taken) => {
                let kept = me(rng.clone(), &parts);
                parts[index] = Some(taken);
                let taken = me(moved(rng), &parts);
                return Asked { next, kept, taken };
            }
        }
    }
    // Every thread of a range that has not ended is busy.
    for index in 0..parts.len() {
        let Some(part) = &parts[index] else {
            continue;
        };
        let asked = part.ask(&sights[index]);
        if !matches!(asked.next, Next::Exhausted) {
            parts[index] = Some(asked.kept.into());
            return Asked::same(asked.next, me(rng.clone(), &parts));
        }
        parts[index] = None;
    }
    Asked::end()
}

pub(super) fn ask_each_thread(
    each: &Link,
    slots: BTreeMap<Thread, Option<Link>>,
    sight: &Sight,
) -> Asked {
    let members: Vec<Vec<Thread>> = sight.threads.keys().map(|thread| vec![*thread]).collect();
    let mut slots = slots;
    for thread in sight.threads.keys() {
        slots
            .entry(*thread)
            .or_insert_with(|| Some(Arc::clone(each)));
    }
    let me =
        |slots: &BTreeMap<Thread, Option<Link>>| Gen::EachThread(Arc::clone(each), slots.clone());
    loop {
        let alive = |group: usize| slots[&members[group][0]].is_some();
        let Some(order) = group_order(&members, alive, sight) else {
            return Asked::end();
        };
        let before = slots.clone();
        let ask = |group: usize| {
            let thread = members[group][0];
            let sight = sight.only(|other| other == thread);
            before[&thread].as_ref().unwrap().ask(&sight)
        };
        let ran = race(order, sight.time, ask, |group, kept| {
            slots.insert(members[group][0], Some(kept));
        });
        match ran {
            Race::Ended(group) => _ = slots.insert(members[group][0], None),
            Race::Waiting => return Asked::same(Next::Pending, me(&slots)),
            Race::Won(next, group, taken) => {
                let kept = me(&slots);
                slots.insert(members[group][0], Some(taken));
                let taken = me(&slots);
                return Asked { next, kept, taken };
            }
        }
    }
}

/// Groups with a free thread that have not ended: first those of eight free threads that are drawn among the threads of
/// all groups, then the others by lot; `None` when all have ended.
fn group_order(
    members: &[Vec<Thread>],
    alive: impl Fn(usize) -> bool,
    sight: &Sight,
) -> Option<Vec<usize>> {
    let living: Vec<usize> = (0..members.len()).filter(|&group| alive(group)).collect();
    if living.is_empty() {
        return None;
    }
    let mut order = Vec::new();
    for draw in 0..8 {
        let mut sight = sight.clone();
        if draw > 0 {
            sight.word = lot(sight.word, draw);
        }
        let drawn = sight.some_free();
        order.extend(
            members
                .iter()
                .position(|group| drawn.is_some_and(|thread| group.contains(&thread))),
        );
    }
    let mut rest = living.clone();
    rest.sort_by_key(|&group| lot(sight.word, group));
    order.extend(rest);
    let able = |group: &usize| {
        living.contains(group) && members[*group].iter().any(|t| sight.free.contains(t))
    };
    let mut seen = BTreeSet::new();
    order.retain(|group| able(group) && seen.insert(*group));
    Some(order)
}

pub(super) fn ask_each_process(
    each: &Link,
    mut seats: BTreeMap<Thread, (Process, Option<Link>)>,
    sight: &Sight,
) -> Asked {
    let drawn = sight.some_free();
    let rest = sight.free.iter().copied().filter(|t| Some(*t) != drawn);
    let mut best: Option<(Op, Thread, Link)> = None;
    let mut alive = sight.free.len() < sight.threads.len();
    for thread in drawn.into_iter().chain(rest) {
        let process = sight.threads[&thread];
        let fresh = || (process, Some(Arc::clone(each)));
        let seat = seats.entry(thread).or_insert_with(fresh);
        if seat.0 != process {
            *seat = (process, Some(Arc::clone(each)));
        }
        let Some(inner) = seat.1.clone() else {
            continue;
        };
        let asked = inner.ask(&sight.only(|other| other == thread));
        match asked.next {
            Next::Exhausted => seat.1 = None,
            Next::Pending => {
                alive = true;
                seat.1 = Some(asked.kept.into());
            }
            Next::Op(op) => {
                seat.1 = Some(asked.kept.into());
                if best.as_ref().is_none_or(|(best, ..)| op.time < best.time) {
                    let due = op.time <= sight.time;
                    best = Some((op, thread, asked.taken.into()));
                    if due {
                        break;
                    }
                }
            }
            failed @ Next::Failed(_) => {
                return Asked::same(failed, Gen::EachProcess(Arc::clone(each), seats));
            }
        }
    }
    let kept = Gen::EachProcess(Arc::clone(each), seats.clone());
    match best {
        Some((op, thread, taken)) => {
            seats.insert(thread, (sight.threads[&thread], Some(taken)));
            let taken = Gen::EachProcess(Arc::clone(each), seats);
            Asked {
                next: Next::Op(op),
                kept,
                taken,
            }
        }
        None if alive => Asked::same(Next::Pending, kept),
        None => Asked::end(),
    }
}

pub(super) fn ask_groups(
    size: usize,
    mut keys: (i64, i64),
    each: &Link,
    mut groups: BTreeMap<usize, Option<(i64, Link)>>,
    sight: &Sight,
) -> Asked {
    let members = group_members(sight, size);
    let me = |keys, groups: &BTreeMap<usize, Option<(i64, Link)>>| Gen::ConcurrentKeys {
        size,
        keys,
        each: Arc::clone(each),
        groups: groups.clone(),
    };
    loop {
        let alive = |group: usize| !matches!(groups.get(&group), Some(None));
        let Some(order) = group_order(&members, alive, sight) else {
            return Asked::end();
        };
        let mut best: Option<(Op, usize, i64, Link)> = None;
        let mut ended = false;
        for group in order {
            let sight = sight.only(|thread| members[group].contains(&thread));
            let asked = loop {
                if let Some(Some((key, inner))) = groups.get(&group) {
                    let asked = inner.ask(&sight);
                    if !matches!(asked.next, Next::Exhausted) {
                        break Some((*key, asked));
                    }
                }
                if keys.0 == keys.1 {
                    groups.insert(group, None);
                    break None;
                }
                groups.insert(group, Some((keys.0, Arc::clone(each))));
                keys.0 += 1;
            };
            let Some((key, asked)) = asked else {
                ended = true;
                break;
            };
            groups.insert(group, Some((key, asked.kept.into())));
            match asked.next {
                Next::Op(op) if best.as_ref().is_none_or(|(best, ..)| op.time < best.time) => {
                    let due = op.time <= sight.time;
                    best = Some((op, group, key, asked.taken.into()));
                    if due {
                        break;
                    }
                }
                failed @ Next::Failed(_) => return Asked::same(failed, me(keys, &groups)),
                _ => {}
            }
        }
        if ended {
            continue;
        }
        let kept = me(keys, &groups);
        let Some((mut op, group, key, taken)) = best else {
            return Asked::same(Next::Pending, kept);
        };
        op.value = keyed(key, op.value);
        groups.insert(group, Some((key, taken)));
        return Asked {
            next: Next::Op(op),
            kept,
            taken: me(keys, &groups),
        };
    }
}

pub(super) fn ask_keys(
    mut keys: (i64, i64),
    each: &Link,
    mut current: Option<(i64, Link)>,
    sight: &Sight,
) -> Asked {
    loop {
        if let Some((key, inner)) = &current {
            let asked = inner.ask(sight);
            if !matches!(asked.next, Next::Exhausted) {
                return asked
                    .with(|op| op.value = keyed(*key, std::mem::take(&mut op.value)))
                    .within(|_, inner| Gen::SequentialKeys {
                        keys,
                        each: Arc::clone(each),
                        current: Some((*key, inner)),
                    });
            }
        }
        if keys.0 == keys.1 {
            return Asked::end();
        }
        current = Some((keys.0, Arc::clone(each)));
        keys.0 += 1;
    }
}

pub(super) fn ask_function(
    mut called: i64,
    most: i64,
    each: &Link,
    mut current: Option<Link>,
    sight: &Sight,
) -> Asked {
    loop {
        if let Some(inner) = &current {
            let asked = inner.ask(sight);
            if !matches!(asked.next, Next::Exhausted) {
                return asked
                    .within(|_, inner| Gen::Function(called, most, Arc::clone(each), Some(inner)));
            }
        }
        if called == most {
            return Asked::end();
        }
        called += 1;
        current = Some(Gen::Add(called * 1_000, Arc::clone(each)).into());
    }
}

pub(super) fn ask_cycle(
    mut left: u64,
    each: &Link,
    mut current: Option<Link>,
    sight: &Sight,
) -> Asked {
    loop {
        if let Some(inner) = &current {
            let asked = inner.ask(sight);
            if !matches!(asked.next, Next::Exhausted) {
                return asked.within(|_, inner| Gen::Cycle(left, Arc::clone(each), Some(inner)));
            }
        }
        if left == 0 {
            return Asked::end();
        }
        left -= 1;
        current = Some(Arc::clone(each));
    }
}

pub(super) fn ask_cycle_times(
    begin: Option<i64>,
    mut turns: Vec<(i64, Link)>,
    sight: &Sight,
) -> Asked {
    let first = begin.unwrap_or(sight.time);
    let period: i64 = turns.iter().map(|(length, _)| length).sum();
    if period == 0 {
        return Asked::end();
    }
    let mut start = sight.time - (sight.time - first) % period;
    let mut index = 0;
    while start + turns[index].0 <= sight.time {
        start += turns[index].0;
        index = (index + 1) % turns.len();
    }
    for _ in 0..10_000 {
        let (length, inner) = turns[index].clone();
        let asked = inner.ask(&sight.at(sight.time.max(start)));
        turns[index].1 = asked.kept.into();
        match asked.next {
            Next::Exhausted => return Asked::end(),
            Next::Op(op) if op.time >= start + length => {}
            Next::Op(mut op) => {
                op.time = op.time.max(start);
                let kept = Gen::CycleTimes(begin, turns.clone());
                turns[index].1 = asked.taken.into();
                let taken = Gen::CycleTimes(Some(first), turns);
                let next = Next::Op(op);
                return Asked { next, kept, taken };
            }
            other => return Asked::same(other, Gen::CycleTimes(begin, turns)),
        }
        start += length;
        index = (index + 1) % turns.len();
    }
    Asked::same(Next::Pending, Gen::CycleTimes(begin, turns))
}

/// Its generator must do without events: what it answered is taken later.
pub(super) fn ask_cache(
    length: i64,
    kept: Option<(i64, Op)>,
    inner: &Link,
    sight: &Sight,
) -> Asked {
    let mut inner = Arc::clone(inner);
    if let Some((given, op)) = &kept {
        let thread = sight.thread_of(op.process).unwrap();
        let usable = sight.free.contains(&thread) && sight.threads[&thread] == op.process;
        if usable && sight.time - given < length {
            let taken = inner.ask(sight).taken;
            let mut op = op.clone();
            op.time = op.time.max(sight.time);
            return Asked {
                next: Next::Op(op),
                kept: Gen::Cache(length, kept, inner),
                taken: Gen::Cache(length, None, taken.into()),
            };
        }
    }
    let asked = inner.ask(sight);
    inner = asked.kept.into();
    let kept = match &asked.next {
        Next::Exhausted => return Asked::end(),
        Next::Op(op) => Some((sight.time, op.clone())),
        _ => None,
    };
    Asked {
        next: asked.next,
        kept: Gen::Cache(length, kept, inner),
        taken: Gen::Cache(length, None, asked.taken.into()),
    }
}
