//! Disks with a volatile write cache, and crashes.

mod block_history;
#[cfg(test)]
mod twin;

use super::data_type::{DataType, OperationEvent};
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Checker, OnlineChecker, Robustness, Verdict};
use block_history::{BlockHistory, BlockRead, BlockViolation};
use seatrial_history::{FixedMap, History, OpType, Value};
use std::collections::BTreeMap;

/// Decides whether a disk kept the contract of a volatile write cache: block by block a register; a write is durable when it has
/// the flag `:fua true`, or when a `flush` that began after its reply has succeeded; a crash loses any of the others, but leaves
/// each block with one of its values. What was read after a crash stays, also through further crashes.
///
/// Operations: `write` of `[block value]` or `[first [values]]`, `read` of `[block nil]` → `[block value]` or `[first count]` →
/// `[first [values]]`, `trim` of `[first count]`, `flush`. Blocks of one operation take effect one by one. Each value is written
/// once to a block; 0 is what never written blocks have, and trimmed ones, of which zeros say nothing. A value that is no
/// integer is what a client reads that finds no block as it was written. The field `:generation` of a completion rises at each
/// crash; without it there was no crash.
///
/// Anomalies: `torn-block`, `invented-value`, `misplaced-block` (the value of another block), `failed-write-read`, `future-read`,
/// `stale-read` (the reads and writes of a block between two crashes have no order), `lost-flushed-write`, `two-survivors`
/// (different values from before one crash), `resurrected-write` (a value that a crash had lost, or that was overwritten durably,
/// is back), `deposed-acknowledgement` (a flush of a generation succeeded that began after an operation of a newer one).
///
/// No anomaly: reads, and acknowledgements of writes that are not durable, of a generation that does not know yet that there is a
/// newer one. Cost: O(n log n) time, and 40 bytes for each block of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskCache;

/// The state of one disk.
#[derive(Default)]
pub(crate) struct DiskCacheState {
    blocks: BTreeMap<i64, BlockHistory>,
    /// By generation: the last invocation of a flush that succeeded.
    flushes: BTreeMap<i64, u64>,
    /// Completions of the first operation of each generation that was the newest then.
    newest: Vec<(u64, i64)>,
    /// Flushes and durable writes: invocation, completion, generation.
    durable: Vec<(u64, u64, i64)>,
    /// The first operation that cannot be checked, and why.
    refused: Option<(u64, &'static str)>,
    reads: u64,
    writes: u64,
}

/// The blocks of an operation: of a read before its reply without values.
fn blocks_of(value: &Value) -> Option<(i64, Vec<&Value>)> {
    let Value::List(items) = value else {
        return None;
    };
    let [Value::Int(first), values] = &items[..] else {
        return None;
    };
    match values {
        Value::List(values) => Some((*first, values.iter().collect())),
        one => Some((*first, vec![one])),
    }
}

impl DiskCacheState {
    fn refuse(&mut self, index: u64, reason: &'static str) {
        self.refused.get_or_insert((index, reason));
    }

    fn write(&mut self, event: &OperationEvent<'_>) {
        let argument = match event.invocation {
            Some(invocation) => &invocation.value,
            None => event.value,
        };
        let Some((first, values)) = blocks_of(argument) else {
            return self.refuse(
                event.index,
                "it writes no [block value] or [first [values]]",
            );
        };
        let generation = generation(event);
        for (block, value) in (first..).zip(values) {
            let Value::Int(value @ 1..) = value else {
                return self.refuse(event.index, "a written value is a positive integer");
            };
            let history = self.blocks.entry(block).or_default();
            if event.kind == OpType::Invoke {
                if history.begin_write(*value, event.index) {
                    continue;
                }
                return self.refuse(event.index, "its value was written to the block before");
            }
            let Some(write) = history.write_mut(*value) else {
                continue; // without its invocation
            };
            match event.kind {
                OpType::Ok => write.succeed(event.index, generation, is_fua(event)),
                OpType::Fail => write.has_failed = true,
                _ => {}
            }
        }
        self.writes += u64::from(event.kind == OpType::Invoke);
        if event.kind == OpType::Ok && is_fua(event) {
            self.durable
                .push((event.started(), event.index, generation));
        }
    }

    /// A trim is the write of a value that is never read: zeros of a trimmed block say nothing.
    fn trim(&mut self, event: &OperationEvent<'_>) {
        let argument = match event.invocation {
            Some(invocation) => &invocation.value,
            None => event.value,
        };
        let blocks = blocks_of(argument);
        let Some((first, [Value::Int(count @ 1..)])) = blocks.as_ref().map(|it| (it.0, &it.1[..]))
        else {
            return self.refuse(event.index, "it trims no [first count]");
        };
        let (generation, is_fua) = (generation(event), is_fua(event));
        let value = -1 - i64::try_from(event.started()).unwrap_or(i64::MAX - 1);
        for block in first..first.saturating_add(*count.min(&TRIM_MAX)) {
            let history = self.blocks.entry(block).or_default();
            if event.kind == OpType::Invoke {
                history.begin_write(value, event.index);
            } else if let Some(write) = history.write_mut(value) {
                match event.kind {
                    OpType::Ok => write.succeed(event.index, generation, is_fua),
                    OpType::Fail => write.has_failed = true,
                    _ => {}
                }
            }
        }
        if event.kind == OpType::Ok && is_fua {
            self.durable
                .push((event.started(), event.index, generation));
        }
    }

    fn read(&mut self, event: &OperationEvent<'_>) {
        if event.kind != OpType::Ok {
            return;
        }
        let Some((first, values)) = blocks_of(event.value) else {
            return self.refuse(event.index, "it read no [block value] or [first [values]]");
        };
        self.reads += 1;
        for (block, value) in (first..).zip(values) {
            let value = match value {
                Value::Int(value) => Some(*value),
                _ => None,
            };
            let history = self.blocks.entry(block).or_default();
            history.reads.push(BlockRead {
                call: event.started(),
                ret: event.index,
                generation: generation(event),
                value,
            });
        }
    }

    /// Acknowledgements of a generation after a newer one was seen.
    fn deposed(&self) -> impl Iterator<Item = (u64, u64)> {
        self.durable.iter().filter_map(|(call, ret, generation)| {
            let before = self.newest.partition_point(|it| it.0 < *call);
            let newest = before.checked_sub(1).map(|at| self.newest[at]);
            newest
                .filter(|it| it.1 > *generation)
                .map(|it| (it.0, *ret))
        })
    }
}

/// Most blocks of a trim that are recorded: a claimed range reserves no more.
const TRIM_MAX: i64 = 1 << 20;

/// Does its success mean that it is durable?
fn is_fua(event: &OperationEvent<'_>) -> bool {
    event.extra.get("fua") == Some(&Value::Bool(true))
}

/// The generation of a completion.
fn generation(event: &OperationEvent<'_>) -> i64 {
    match event.extra.get("generation") {
        Some(Value::Int(generation)) => *generation,
        _ => 0,
    }
}

impl DataType for DiskCache {
    type State = DiskCacheState;
    const NAME: &'static str = "disk";
    const FUNCTIONS: &'static [&'static str] = &["read", "write", "flush", "trim"];

    fn apply(&self, state: &mut DiskCacheState, event: &OperationEvent<'_>) {
        let generation = generation(event);
        if event.kind == OpType::Ok && state.newest.last().is_none_or(|it| it.1 < generation) {
            state.newest.push((event.index, generation));
        }
        if event.f == "write" {
            state.write(event);
        } else if event.f == "read" {
            state.read(event);
        } else if event.f == "trim" {
            state.trim(event);
        } else if event.kind == OpType::Ok {
            let last = state.flushes.entry(generation).or_default();
            *last = event.started().max(*last);
            state
                .durable
                .push((event.started(), event.index, generation));
        }
    }

    fn finish(&self, state: DiskCacheState, builder: &mut VerdictBuilder) {
        builder.count("reads", state.reads);
        builder.count("writes", state.writes);
        builder.count("flushes", state.durable.len() as u64);
        builder.count("blocks", state.blocks.len() as u64);
        builder.count("generations", state.newest.len() as u64);
        if let Some((index, reason)) = state.refused {
            return builder.unknown(format!("op {index}: {reason}"));
        }
        for (newer, ret) in state.deposed() {
            builder.anomaly("deposed-acknowledgement", || {
                let summary = format!(
                    "Op {ret} was acknowledged as durable by a generation older than that of op {newer}, which ended before it began."
                );
                (vec![newer, ret], summary)
            });
        }
        if state.reads == 0 {
            return builder.no_evidence("no block was ever read");
        }
        // Where each value was written, for values that are found at another block.
        let mut owners: FixedMap<i64, i64> = FixedMap::default();
        for (block, history) in &state.blocks {
            owners.extend(history.values().map(|value| (value, *block)));
        }
        for (block, history) in state.blocks {
            let is_elsewhere = |value| owners.get(&value).is_some_and(|owner| *owner != block);
            for violation in history.violations(&state.flushes, is_elsewhere) {
                let BlockViolation {
                    anomaly,
                    operations,
                    text,
                } = violation;
                builder.anomaly(anomaly, || (operations, format!("Block {block}: {text}")));
            }
        }
    }
}

impl Checker for DiskCache {
    fn name(&self) -> &'static str {
        DiskCache::NAME
    }

    fn robustness(&self) -> Robustness {
        Robustness::OF_PREFIX
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
