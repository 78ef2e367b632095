//! The writes and reads of one block of a disk with crashes, and what contradicts its contract.

use std::collections::BTreeMap;

/// The completion of an operation without one.
const NEVER: u64 = u64::MAX;

/// The write of one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockWrite {
    call: u64,
    /// [`NEVER`] unless it succeeded.
    ret: u64,
    /// `None` unless it succeeded: it took effect in any generation, or in none.
    generation: Option<i64>,
    is_fua: bool,
    pub(crate) has_failed: bool,
}

impl BlockWrite {
    /// It succeeded.
    pub(crate) fn succeed(&mut self, index: u64, generation: i64, is_fua: bool) {
        (self.ret, self.generation) = (index, Some(generation));
        self.is_fua = is_fua;
    }
}

/// A read of one value; `None`: of no block as it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRead {
    pub(crate) call: u64,
    pub(crate) ret: u64,
    pub(crate) generation: i64,
    pub(crate) value: Option<i64>,
}

/// A contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockViolation {
    pub(crate) anomaly: &'static str,
    pub(crate) operations: Vec<u64>,
    pub(crate) text: String,
}

/// What happened to one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockHistory {
    writes: BTreeMap<i64, BlockWrite>,
    pub(crate) reads: Vec<BlockRead>,
}

/// The operations on one value in one generation. In a register they are next to one another, so this value comes before another
/// one if one of its operations ends before one of the other's begins (`register_zones` of the crate `linear` has the proof).
#[derive(Clone, Copy, Debug)]
struct ValueZone {
    value: i64,
    /// The first completion, and the last invocation.
    ended: u64,
    begun: u64,
    /// The operations with both: the latter is named by its completion if it is a read.
    first: u64,
    last: u64,
    /// Written durably in this generation.
    is_durable: bool,
}

/// One generation: the value from before it that was read, with the last read, and what was written in it.
#[derive(Clone, Debug, Default)]
struct BlockGeneration {
    survivor: Option<(i64, BlockRead)>,
    /// A second one.
    other_survivor: Option<(i64, BlockRead)>,
    zones: BTreeMap<i64, ValueZone>,
}

impl BlockHistory {
    /// A write begins; false if the value was written before.
    pub(crate) fn begin_write(&mut self, value: i64, index: u64) -> bool {
        let write = BlockWrite {
            call: index,
            ret: NEVER,
            generation: None,
            is_fua: false,
            has_failed: false,
        };
        self.writes.insert(value, write).is_none()
    }

    /// The write of a value.
    pub(crate) fn write_mut(&mut self, value: i64) -> Option<&mut BlockWrite> {
        self.writes.get_mut(&value)
    }

    /// All values that were written.
    pub(crate) fn values(&self) -> impl Iterator<Item = i64> {
        self.writes.keys().copied()
    }

    /// All contradictions. `flushes`: of each generation, the last invocation of a flush that succeeded.
    pub(crate) fn violations(
        &self,
        flushes: &BTreeMap<i64, u64>,
        is_elsewhere: impl Fn(i64) -> bool,
    ) -> Vec<BlockViolation> {
        let mut found = Vec::new();
        let mut legal = Vec::new();
        let is_trimmed = self.writes.range(..0).next().is_some();
        for read in &self.reads {
            if is_trimmed && read.value == Some(0) {
                continue; // any of its zeros
            }
            match self.contradiction(read, &is_elsewhere) {
                Some(violation) => found.push(violation),
                None => legal.push(*read),
            }
        }
        let written_in = self.generations_of_writes(&legal);
        let generations = self.generations(&legal, &written_in, flushes);
        for generation in generations.values() {
            generation.order(&mut found);
        }
        crashes(&generations, &written_in, &mut found);
        found
    }

    /// What is wrong with a read by itself.
    fn contradiction(
        &self,
        read: &BlockRead,
        is_elsewhere: &impl Fn(i64) -> bool,
    ) -> Option<BlockViolation> {
        let of = |anomaly, operations, text| {
            Some(BlockViolation {
                anomaly,
                operations,
                text,
            })
        };
        let ret = read.ret;
        let Some(value) = read.value else {
            let text = format!("op {ret} read a block that was never written like this.");
            return of("torn-block", vec![ret], text);
        };
        if value == 0 {
            return None;
        }
        let Some(write) = self.writes.get(&value) else {
            let (anomaly, why) = if is_elsewhere(value) {
                ("misplaced-block", "which was written to another block")
            } else {
                ("invented-value", "which was never written")
            };
            return of(anomaly, vec![ret], format!("op {ret} read {value}, {why}."));
        };
        let call = write.call;
        if write.has_failed {
            let text = format!("op {ret} read {value}, whose write, op {call}, failed.");
            return of("failed-write-read", vec![call, ret], text);
        }
        let is_earlier = write.generation.is_some_and(|it| it > read.generation);
        if ret < call || is_earlier {
            let text = format!("op {ret} read {value} before op {call} wrote it.");
            return of("future-read", vec![ret, call], text);
        }
        None
    }

    /// The generation in which each value was written; of a write of unknown outcome the earliest in which it was read.
    fn generations_of_writes(&self, reads: &[BlockRead]) -> BTreeMap<i64, i64> {
        let succeeded = self.writes.iter();
        let mut written: BTreeMap<i64, i64> = succeeded
            .filter_map(|(value, write)| Some((*value, write.generation?)))
            .collect();
        written.insert(0, i64::MIN);
        for read in reads {
            let Some(value) = read.value else { continue };
            if self
                .writes
                .get(&value)
                .is_some_and(|it| it.generation.is_none())
            {
                let earliest = written.entry(value).or_insert(read.generation);
                *earliest = read.generation.min(*earliest);
            }
        }
        written
    }

    fn generations(
        &self,
        reads: &[BlockRead],
        written_in: &BTreeMap<i64, i64>,
        flushes: &BTreeMap<i64, u64>,
    ) -> BTreeMap<i64, BlockGeneration> {
        let mut generations: BTreeMap<i64, BlockGeneration> = BTreeMap::new();
        for (value, write) in &self.writes {
            let Some(&generation) = written_in.get(value) else {
                continue; // not known to have taken effect
            };
            let flushed = flushes.get(&generation);
            let is_flushed =
                write.generation.is_some() && flushed.is_some_and(|it| *it > write.ret);
            let zone = ValueZone {
                value: *value,
                ended: write.ret,
                begun: write.call,
                first: write.ret,
                last: write.call,
                is_durable: write.is_fua || is_flushed,
            };
            let zones = &mut generations.entry(generation).or_default().zones;
            zones.insert(*value, zone);
        }
        for read in reads {
            let Some(value) = read.value else { continue };
            let generation = generations.entry(read.generation).or_default();
            match generation.zones.get_mut(&value) {
                Some(zone) if written_in[&value] == read.generation => zone.add(read),
                _ => generation.survive(value, read),
            }
        }
        generations
    }
}

impl ValueZone {
    const fn add(&mut self, read: &BlockRead) {
        if read.ret < self.ended {
            (self.ended, self.first) = (read.ret, read.ret);
        }
        if read.call > self.begun {
            (self.begun, self.last) = (read.call, read.ret);
        }
    }

    const fn is_forward(&self) -> bool {
        self.ended < self.begun
    }
}

impl BlockGeneration {
    /// A value from before this generation was read in it.
    fn survive(&mut self, value: i64, read: &BlockRead) {
        match &mut self.survivor {
            None => self.survivor = Some((value, *read)),
            Some((known, last)) if *known == value => {
                if read.call > last.call {
                    *last = *read;
                }
            }
            Some(_) => self.other_survivor = Some((value, *read)),
        }
    }

    /// Looks for values that must come before one another: O(n log n).
    fn order(&self, found: &mut Vec<BlockViolation>) {
        let mut stale = |one: (i64, u64), other: (i64, u64)| {
            let ((value, op), (second, by)) = (one, other);
            found.push(BlockViolation {
                anomaly: "stale-read",
                operations: vec![op.min(by), op.max(by)],
                text: format!(
                    "no order of its writes explains that {} and {} were read and written as in ops {op} and {by}.",
                    shown(value),
                    shown(second)
                ),
            });
        };
        if let Some((survivor, read)) = &self.survivor {
            let earliest = self.zones.values().min_by_key(|it| it.ended);
            if let Some(zone) = earliest.filter(|it| it.ended < read.call) {
                stale((*survivor, read.ret), (zone.value, zone.first));
            }
        }
        let mut forward: Vec<&ValueZone> =
            self.zones.values().filter(|it| it.is_forward()).collect();
        forward.sort_by_key(|it| it.ended);
        for pair in forward.windows(2) {
            if pair[1].ended < pair[0].begun {
                stale(
                    (pair[0].value, pair[0].last),
                    (pair[1].value, pair[1].first),
                );
            }
        }
        for zone in self.zones.values().filter(|it| !it.is_forward()) {
            // The forward zone that began last before it; where forward zones overlap, something was found already.
            let before = forward.partition_point(|it| it.ended < zone.begun);
            let around = before.checked_sub(1).map(|at| forward[at]);
            if let Some(around) = around.filter(|it| zone.ended < it.begun) {
                stale((around.value, around.last), (zone.value, zone.first));
            }
        }
    }

    /// The durable values whose last invocation is the latest, without `value`.
    fn durable_except(&self, value: i64) -> Option<&ValueZone> {
        let durable = self.zones.values().filter(|it| it.is_durable);
        durable
            .filter(|it| it.value != value)
            .max_by_key(|it| it.begun)
    }
}

/// A value for people.
fn shown(value: i64) -> String {
    if value < 0 {
        "zeros of a trim".to_owned()
    } else {
        value.to_string()
    }
}

/// What crashes must not do: lose what was durable, leave two values, or bring back a lost one.
fn crashes(
    generations: &BTreeMap<i64, BlockGeneration>,
    written_in: &BTreeMap<i64, i64>,
    found: &mut Vec<BlockViolation>,
) {
    // The generation whose survivor was seen last.
    let mut last: Option<(i64, i64, BlockRead)> = None;
    for (number, generation) in generations {
        let Some((value, read)) = &generation.survivor else {
            continue;
        };
        if let Some((other, second)) = &generation.other_survivor {
            found.push(BlockViolation {
                anomaly: "two-survivors",
                operations: vec![read.ret, second.ret],
                text: format!(
                    "{value} and {other}, both from before generation {number}, were read in it by ops {} and {}.",
                    read.ret, second.ret
                ),
            });
            continue;
        }
        let origin = written_in[value];
        if let Some((seen_in, seen, by)) = &last
            && origin < *seen_in
            && seen != value
        {
            found.push(BlockViolation {
                anomaly: "resurrected-write",
                operations: vec![by.ret, read.ret],
                text: format!(
                    "op {} read {value}, and op {} had found {seen} in its place after a crash.",
                    read.ret, by.ret
                ),
            });
        }
        last = Some((*number, *value, *read));
        lost(generations, (*number, *value, read), origin, found);
    }
}

/// Looks for a durable write that the survivor of a generation must not precede.
fn lost(
    generations: &BTreeMap<i64, BlockGeneration>,
    (number, value, read): (i64, i64, &BlockRead),
    origin: i64,
    found: &mut Vec<BlockViolation>,
) {
    let ended = generations
        .get(&origin)
        .and_then(|it| it.zones.get(&value))
        .map_or(0, |it| it.ended);
    for (between, generation) in generations.range(origin..number) {
        let Some(durable) = generation.durable_except(value) else {
            continue;
        };
        if *between > origin || ended < durable.begun {
            found.push(BlockViolation {
                anomaly: "lost-flushed-write",
                operations: vec![durable.last, read.ret],
                text: format!(
                    "op {} read {value}, though {} was written after it and made durable (op {}).",
                    read.ret,
                    shown(durable.value),
                    durable.last
                ),
            });
            return;
        }
    }
}
