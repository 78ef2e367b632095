//! Histories to measure with, and the clock to measure by.

use seatrial_history::{Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::collections::VecDeque;

/// Concurrent processes.
const PROCESSES: usize = 100;

/// A key in use: its list so far, and at how many elements it retires.
struct Live {
    key: i64,
    list: Vec<i64>,
    limit: usize,
}

/// Elle's list-append on a perfect store: 1 to 8 micro-operations, ten keys with exponential choice, each retired
/// after 128 to 256 elements; about 96 list elements per operation.
pub(crate) fn list_append(count: usize, rng: &mut Rng) -> Vec<Op> {
    let fresh = |key: i64, rng: &mut Rng| Live {
        key,
        list: Vec::new(),
        limit: 128 + rng.index(129),
    };
    let mut live: Vec<Live> = (0..10).map(|key| fresh(key, rng)).collect();
    let mut next_key = 10;
    run(count, rng, move |invocation, rng| {
        let Some(invocation) = invocation else {
            let mops = 1 + (0..7).filter(|_| rng.chance(3.0 / 7.0)).count();
            let mops = (0..mops).map(|_| {
                let place = (rng.word().leading_zeros() as usize).min(9);
                if rng.chance(0.5) {
                    let key = Key::Int(live[place].key);
                    let observed = Observed::Nil;
                    return Mop::Read { key, observed };
                }
                if live[place].list.len() >= live[place].limit {
                    live[place] = fresh(next_key, rng);
                    next_key += 1;
                }
                let element = live[place].list.len() as i64 + 1;
                live[place].list.push(element);
                let key = Key::Int(live[place].key);
                Mop::Append { key, element }
            });
            let value = Value::Txn(mops.collect());
            return Op::invoke(Process::Client(0), "txn", value);
        };
        let mops = invocation.value.as_txn().unwrap_or_default().iter();
        let mops = mops.map(|mop| match mop {
            Mop::Read { key, .. } => {
                let seen = live.iter().find(|live| Key::Int(live.key) == *key);
                let seen = seen.map_or(&[][..], |live| &live.list);
                let observed = Observed::List(seen.into());
                let key = key.clone();
                Mop::Read { key, observed }
            }
            write => write.clone(),
        });
        invocation.complete(OpType::Ok, Value::Txn(mops.collect()))
    })
}

/// Reads, writes and compare-and-sets of one register with five values.
pub(crate) fn register(count: usize, rng: &mut Rng) -> Vec<Op> {
    run(count, rng, |invocation, rng| {
        let Some(invocation) = invocation else {
            let value = rng.below(5) as i64;
            return match rng.below(3) {
                0 => Op::invoke(Process::Client(0), "read", Value::Nil),
                1 => Op::invoke(Process::Client(0), "write", Value::Int(value)),
                _ => Op::invoke(Process::Client(0), "cas", Value::Cas(value, 1)),
            };
        };
        match invocation.value {
            Value::Nil => invocation.complete(OpType::Ok, Value::Int(rng.below(5) as i64)),
            Value::Cas(..) if rng.chance(0.5) => {
                invocation.complete(OpType::Fail, invocation.value.clone())
            }
            _ => invocation.complete(OpType::Ok, invocation.value.clone()),
        }
    })
}

/// Interleaves processes; `next` makes an invocation, or completes the one it is given.
pub(crate) fn run(
    count: usize,
    rng: &mut Rng,
    mut next: impl FnMut(Option<&Op>, &mut Rng) -> Op,
) -> Vec<Op> {
    let mut open: VecDeque<Option<Op>> = (0..PROCESSES).map(|_| None).collect();
    let mut time = 0;
    let ops = (0..count as u64).map(|index| {
        time += rng.below(40_000) as i64;
        let process = rng.index(PROCESSES);
        let invocation = open[process].take();
        let mut op = next(invocation.as_ref(), rng);
        op.index = index;
        op.time = time;
        op.process = Process::Client(process as u64);
        if invocation.is_none() {
            open[process] = Some(op.clone());
        }
        op
    });
    ops.collect()
}

/// Seconds that this thread has run for, as the scheduler counts.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos
        .map(|nanos: u64| nanos as f64 / 1e9)
        .expect("a number of nanoseconds")
}

/// Rounds, and how long each lasts at least: the scheduler's count lags by some milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Rounds {
    /// How many.
    pub(crate) count: usize,
    /// Seconds of each.
    pub(crate) seconds_min: f64,
}

/// The least seconds of processor time that `work` takes once, over some rounds in which it is repeated.
pub(crate) fn best<T>(rounds: Rounds, mut work: impl FnMut() -> T) -> (f64, T) {
    let mut least = f64::INFINITY;
    let mut result = work();
    for _ in 0..rounds.count {
        let begun = processor_seconds();
        let mut times = 0;
        let seconds = loop {
            result = work();
            times += 1;
            let seconds = processor_seconds() - begun;
            if seconds >= rounds.seconds_min {
                break seconds;
            }
        };
        least = least.min(seconds / f64::from(times));
    }
    (least, result)
}
