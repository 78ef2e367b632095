//! The checker beside a search of all orders, on small histories.

use super::DiskCache;
use crate::{Checker, Validity};
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_machine::Rng;

/// An operation on block 3, or a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Write(i64),
    DurableWrite(i64),
    Read(i64),
    Flush,
}

/// An operation with its times; `ret` and `generation` are those of a success.
#[derive(Clone, Copy, Debug)]
struct Entry {
    act: Act,
    call: u64,
    ret: Option<u64>,
    generation: i64,
}

/// A disk that does what it should: which values a crash may leave, the last of them the current one.
struct ModelDisk {
    cached: Vec<i64>,
    generation: i64,
}

impl ModelDisk {
    fn carry_out(&mut self, act: &mut Act) {
        let current = *self.cached.last().expect("never empty");
        match act {
            Act::Write(value) => self.cached.push(*value),
            Act::DurableWrite(value) => self.cached = vec![*value],
            Act::Read(value) => *value = current,
            Act::Flush => self.cached = vec![current],
        }
    }

    fn crash(&mut self, rng: &mut Rng) {
        self.cached = vec![*rng.pick(&self.cached)];
        self.generation += 1;
    }
}

/// An operation under way, and whether it has taken effect.
type Pending = (usize, bool);

/// A legal history.
fn legal(rng: &mut Rng) -> Vec<Entry> {
    let mut disk = ModelDisk {
        cached: vec![0],
        generation: 1,
    };
    let mut entries: Vec<Entry> = Vec::new();
    let mut open: Vec<Pending> = Vec::new();
    let (count, mut now, mut value) = (3 + rng.below(6) as usize, 0, 0);
    while entries.len() < count || !open.is_empty() {
        now += 1;
        if open.len() < 3 && entries.len() < count && rng.chance(0.5) {
            value += 1;
            let act = match rng.below(8) {
                0..3 => Act::Write(value),
                3 => Act::DurableWrite(value),
                4..7 => Act::Read(0),
                _ => Act::Flush,
            };
            open.push((entries.len(), false));
            entries.push(Entry {
                act,
                call: now,
                ret: None,
                generation: 0,
            });
        } else if rng.chance(0.15) {
            // Those under way are never answered; some have taken effect.
            disk.crash(rng);
            open.clear();
        } else if !open.is_empty() {
            let at = rng.below(open.len() as u64) as usize;
            let (entry, is_done) = &mut open[at];
            let it = &mut entries[*entry];
            if *is_done {
                it.ret = Some(now);
                open.swap_remove(at);
            } else {
                disk.carry_out(&mut it.act);
                it.generation = disk.generation;
                *is_done = true;
            }
        }
    }
    entries
}

/// Changes a result, perhaps to a wrong one.
fn disturb(rng: &mut Rng, entries: &mut [Entry]) {
    let at = rng.below(entries.len() as u64) as usize;
    let newest = entries.iter().map(|it| it.generation).max().unwrap_or(1);
    let entry = &mut entries[at];
    match entry.act {
        Act::Read(_) => entry.act = Act::Read(rng.below(6) as i64),
        Act::Write(value) if rng.chance(0.5) => entry.act = Act::DurableWrite(value),
        // A write that is not durable may be acknowledged, and lost, by a generation that is not the newest.
        Act::DurableWrite(_) | Act::Flush if entry.ret.is_some() => {
            entry.generation = 1 + rng.below(newest.max(1) as u64) as i64;
        }
        _ => {}
    }
}

/// What a crash may leave after a flush that began here: writes without a reply before may be lost still.
fn flushed<'a>(entries: &[Entry], cached: &'a [i64], call: u64) -> &'a [i64] {
    let is_replied = |value: i64| {
        entries.iter().any(|it| {
            it.ret.is_some_and(|ret| ret < call)
                && matches!(it.act, Act::Write(it) | Act::DurableWrite(it) if it == value)
        })
    };
    let last = cached.iter().rposition(|value| is_replied(*value));
    &cached[last.unwrap_or(0)..]
}

/// Is there an order of the operations, and of crashes between them, that explains the results? Exponential.
fn is_explained(entries: &[Entry], done: u32, cached: &[i64], generation: i64) -> bool {
    let needed = |at: usize| entries[at].ret.is_some() && done & 1 << at == 0;
    if !(0..entries.len()).any(needed) {
        return true;
    }
    let before = (0..entries.len()).filter(|at| needed(*at));
    let limit = before.filter_map(|at| entries[at].ret).min();
    let limit = limit.unwrap_or(u64::MAX);
    for (at, entry) in entries.iter().enumerate() {
        let fits = entry.ret.is_none() || entry.generation == generation;
        if done & 1 << at != 0 || entry.call > limit || !fits {
            continue;
        }
        let current = *cached.last().expect("never empty");
        let after = match entry.act {
            Act::DurableWrite(value) if entry.ret.is_some() => vec![value],
            // Without a reply nothing is durable.
            Act::Write(value) | Act::DurableWrite(value) => [cached, &[value]].concat(),
            Act::Read(value) if entry.ret.is_some() && value != current => continue,
            Act::Read(_) => cached.to_vec(),
            Act::Flush => flushed(entries, cached, entry.call).to_vec(),
        };
        if is_explained(entries, done | 1 << at, &after, generation) {
            return true;
        }
    }
    let newest = entries.iter().map(|it| it.generation).max().unwrap_or(0);
    generation < newest
        && cached
            .iter()
            .any(|left| is_explained(entries, done, &[*left], generation + 1))
}

fn history(entries: &[Entry]) -> History {
    let mut ops: Vec<(u64, Op)> = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let value = |value| Value::List([Value::Int(3), value].into());
        let (f, argument, result) = match entry.act {
            Act::Write(it) | Act::DurableWrite(it) => {
                ("write", value(Value::Int(it)), value(Value::Int(it)))
            }
            Act::Read(it) => ("read", value(Value::Nil), value(Value::Int(it))),
            Act::Flush => ("flush", Value::Nil, Value::Nil),
        };
        let op = Op::invoke(Process::Client(number as u64), f, argument);
        ops.push((entry.call, op.clone()));
        if let Some(ret) = entry.ret {
            let done = op.complete(OpType::Ok, result);
            let done = done.with("generation", Value::Int(entry.generation));
            let is_fua = matches!(entry.act, Act::DurableWrite(_));
            ops.push((ret, done.with("fua", Value::Bool(is_fua))));
        }
    }
    ops.sort_by_key(|it| it.0);
    History::from_unindexed(ops.into_iter().map(|it| it.1).collect())
}

/// Did a read or a write that is not durable succeed in a generation that was not the newest when it began? It is no anomaly: the
/// guest of a deposed generation has a disk of its own until it learns of it.
fn is_deposed(entries: &[Entry]) -> bool {
    let succeeded = || entries.iter().filter(|it| it.ret.is_some());
    let written = |value: i64| {
        let write = entries
            .iter()
            .find(|it| matches!(it.act, Act::Write(it) | Act::DurableWrite(it) if it == value));
        write.map_or(0, |it| it.call)
    };
    succeeded().any(|one| {
        let begun = match one.act {
            // It takes place after the write of its value has begun.
            Act::Read(value) => one.call.max(written(value)),
            _ => one.call,
        };
        let is_newer = |other: &Entry| {
            other.generation > one.generation && other.ret.is_some_and(|ret| ret < begun)
        };
        matches!(one.act, Act::Read(_) | Act::Write(_)) && succeeded().any(is_newer)
    })
}

#[test]
fn it_agrees_with_a_search_of_all_orders() {
    let count = seatrial_farm::histories(30_000);
    let (mut wrong, mut left_out) = (0, 0);
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed);
        let mut entries = legal(&mut rng);
        for _ in 0..seed % 3 {
            disturb(&mut rng, &mut entries);
        }
        if is_deposed(&entries) {
            left_out += 1;
            continue;
        }
        let verdict = DiskCache.check(&history(&entries));
        let is_explained = is_explained(&entries, 0, &[0], 1);
        assert!(is_explained || seed % 3 > 0, "seed {seed}: {entries:#?}");
        let is_found = verdict.valid == Validity::Invalid;
        assert!(
            !is_found || !is_explained,
            "seed {seed}: {:?} {entries:#?}",
            verdict.anomalies
        );
        wrong += u64::from(!is_explained);
        let is_missed = !is_explained && verdict.valid == Validity::Valid;
        assert!(!is_missed, "seed {seed}: {entries:#?}");
    }
    assert!(wrong > count / 10, "{wrong}");
    assert!(left_out * 20 < count, "{left_out} of {count}");
}
