//! The monitor of stacks.

use super::coverage::{cover_of_empty, covered_empty};
use super::coverage_counts::CoverageCounts;
use super::linearization::{LinearizedOperation, OperationsByValue, Placement, linearize};
use super::minimal_conflict::minimal_conflict;
use super::nested_order::{ChosenInstants, nested_order};
use super::peeks_by_value::PeeksByValue;
use super::removal_deadlines::{Deadlines, KnownDeadlines, Requirement, deadlines_of};
use super::stabbing_tree::StabbingTree;
use super::sub_history::Conflict;
use super::unknown_removals::{Monitor, decide};
use super::value_table::{CollectionKind, ValueSpan, ValueTable};
use super::{CollectionOperation, NEVER, Rejection};

/// Is this history of a stack, empty at first, linearizable? Exact if each value is added at most once; for pending removals
/// see [`super::Rejection`]. O(n log n).
///
/// A value can be *released* if each of its operations has an instant that no other remaining value covers. The history is
/// linearizable iff values can be released, one after another, until none remains (and each observation of an empty stack
/// has an instant that no value covers).
///
/// Necessary: in a linearization let `v` be a value that is added to the empty stack; whenever one of its operations takes
/// effect, nothing else is on the stack, so that instant is not covered by others, and `v` can be released. Dropping all
/// operations of a value keeps a linearization, and releasing others only uncovers instants.
///
/// Sufficient, by induction: let `v` be released, and the others be linearizable. They have a linearization in which the
/// stack is empty at all instants chosen for the operations of `v` (the lemma of `priority_queue_monitor.rs`, with the order
/// of the stack in place of priorities: at an instant `t` that is not covered, values whose last call is not after `t` leave
/// by then, top first, each after its peeks, and the others, whose first return is not before `t`, enter again, in order).
/// There the operations of `v` find the stack empty but for `v`; what happens between them happens above `v`. The chosen
/// instants can be put in order: those of peeks lie within the cut intervals, and where one is before the addition's (after
/// the removal's) it serves for that too.
///
/// So it is enough to know which instants are covered by no value, or by one only: then its own peeks can take effect there. A
/// value covers no instant of its own addition and removal.
pub fn stack(operations: &[CollectionOperation]) -> Result<(), Rejection> {
    decide(operations, &MONITOR)
}

const MONITOR: Monitor<'static> = Monitor {
    kind: CollectionKind::Ordered,
    check: &|table, _| check(table),
    deadlines: &|table, _| deadlines(table),
};

/// A linearization of a history that [`stack`] accepts, constructed as in `nested_order.rs`. O(n log n).
pub fn stack_order(
    operations: &[CollectionOperation],
) -> Result<Vec<LinearizedOperation>, Rejection> {
    linearize(operations, &MONITOR, &place_all)
}

/// Nests the values in the order in which they are released. Where the instant of a peek or of the removal is before that of
/// the addition, it serves for that, too: it is in the interval of the addition. The removal likewise.
fn place_all(table: &ValueTable, by_value: &OperationsByValue) -> Vec<Placement> {
    let mut release = StackRelease::new(table);
    release.record = Some(ReleaseRecord {
        instants: vec![0; release.intervals.values.len()],
        released: Vec::new(),
    });
    release.run();
    let positions = release.instants.positions();
    let (_, of_peeks) = Intervals::new(table, &release.instants);
    let record = release.record.take();
    let record = record.expect("a record was begun");
    let mut chosen = ChosenInstants::new(table);
    for (&value, &rank) in release.intervals.values.iter().zip(&record.instants) {
        let (value, instant) = (value as usize, positions[rank as usize]);
        chosen.additions[value] = chosen.additions[value].min(instant);
        // Of a value whose removal is not known, any later instant at which the stack is empty below it.
        if table.spans[value].remove_ret != NEVER {
            let last = &mut chosen.removals[value];
            *last = if *last == NEVER {
                instant
            } else {
                instant.max(*last)
            };
        }
    }
    for (peek, &interval) in chosen.peeks.iter_mut().zip(&of_peeks) {
        *peek = positions[record.instants[interval as usize] as usize];
    }
    let levels = record.released.iter().map(std::slice::from_ref);
    nested_order(table, by_value, &chosen, levels, true)
}

fn check(table: &ValueTable) -> Result<(), Conflict> {
    if let Some(empty) = covered_empty(table) {
        return Err(Conflict {
            values: cover_of_empty(table, &empty),
            operations: vec![empty.operation],
        });
    }
    let remaining = remaining_values(table);
    if remaining.is_empty() {
        return Ok(());
    }
    // A value that is there for long is in few conflicts with others nearby: begin with a short one.
    let length = |value: &u32| {
        let span = &table.spans[*value as usize];
        span.end.saturating_sub(span.first_ret)
    };
    let shortest = remaining.iter().copied().min_by_key(length);
    let near = shortest.map_or(0, |value| table.spans[value as usize].first_ret);
    Err(minimal_conflict(
        table,
        &remaining,
        0..0,
        near,
        &|part, _| !remaining_values(&part).is_empty(),
    ))
}

/// A removal or peek of a value needs those to be gone that were certainly added after it; likely, those that may have
/// been.
fn deadlines(table: &ValueTable) -> KnownDeadlines {
    let spans = &table.spans;
    let (deadlines, earlier) = deadlines_by(table, &|value| {
        let span = &spans[value as usize];
        (span.first_ret, span.add_call)
    });
    let (_, cautious) = deadlines_by(table, &|value| {
        let span = &spans[value as usize];
        (span.add_call, span.first_ret)
    });
    KnownDeadlines::Necessary {
        deadlines,
        likely: vec![earlier, cautious],
    }
}

/// The deadlines, if a value was added before another iff the first key of the one is less than the second of the other.
fn deadlines_by(table: &ValueTable, keys: &dyn Fn(u32) -> (u32, u32)) -> (Deadlines, Deadlines) {
    let mut requirements = Vec::new();
    for_each_interval(table, |value, call, ret, peek| {
        if peek.is_some() || call == table.spans[value as usize].end {
            let key = keys(value).0.saturating_add(1);
            requirements.push(Requirement { key, call, ret });
        }
    });
    deadlines_of(table, requirements, &|value| {
        keys(value).1.saturating_add(1)
    })
}

/// The values that cannot be released.
fn remaining_values(table: &ValueTable) -> Vec<u32> {
    let mut release = StackRelease::new(table);
    release.run();
    let all = release.unplaced.iter().enumerate();
    all.filter(|&(_, &unplaced)| unplaced > 0)
        .map(|(value, _)| value as u32)
        .collect()
}

/// The release of a stack's values.
///
/// Instants are the calls of operations only, by rank: the first uncovered instant of an interval is its begin or the end of
/// a critical interval, and both are calls. Loop: take an instant that is least covered; if it is not covered, place there
/// all operations whose interval contains it; if one value covers it, place that value's peeks. When all operations of a
/// value are placed, it is released, and its critical interval uncovered. Each instant is taken at most twice, each operation
/// is placed once, each at O(log n).
///
/// 24 to 32 bytes for each operation, and 20 more for each peek.
struct StackRelease<'a> {
    table: &'a ValueTable,
    instants: CallRanks,
    /// Twice the number of covering values; one more after an instant was taken while it was covered once.
    counts: CoverageCounts,
    /// Operations by begin.
    intervals: Intervals,
    /// Of each value, the operations that are not placed yet.
    unplaced: Vec<u32>,
    peeks: Option<PeekSearch>,
    record: Option<ReleaseRecord>,
}

/// How values were released.
struct ReleaseRecord {
    /// By interval: the instant at which its operation was placed.
    instants: Vec<u32>,
    released: Vec<u32>,
}

/// Positions of calls by rank: one bit for each position, and the calls before each word. Half a byte for each position
/// instead of four.
struct CallRanks {
    words: Vec<u64>,
    before: Vec<u32>,
    count: u32,
}

/// The intervals of operations, in ranks, by begin.
struct Intervals {
    values: Vec<u32>,
    /// For each instant, the intervals that begin before it.
    begun: Vec<u32>,
    tree: StabbingTree,
}

/// The peeks of each value by begin, and which values cover an instant.
struct PeekSearch {
    by_value: PeeksByValue,
    /// Of each peek in that order, its first instant.
    first: Vec<u32>,
    tree: StabbingTree,
    /// Of each peek in that order, its interval.
    intervals: Vec<u32>,
    covering: CoveringValues,
}

/// For each instant the exclusive or of the values that cover it: if it is one value, that value. A Fenwick tree of
/// differences.
struct CoveringValues {
    nodes: Vec<u32>,
}

impl CoveringValues {
    /// Adds a value to the instants from `first` to before `after`, or takes it away again.
    fn toggle(&mut self, first: u32, after: u32, value: u32) {
        for border in [first, after] {
            let mut node = border as usize + 1;
            while node < self.nodes.len() {
                self.nodes[node] ^= value;
                node += node & node.wrapping_neg();
            }
        }
    }

    fn at(&self, instant: u32) -> u32 {
        let mut node = instant as usize + 1;
        let mut values = 0;
        while node > 0 {
            values ^= self.nodes[node];
            node &= node - 1;
        }
        values
    }
}

impl CallRanks {
    fn new(table: &ValueTable) -> CallRanks {
        let mut words = vec![0u64; table.positions as usize / 64 + 1];
        let mut add = |position: u32| words[position as usize / 64] |= 1 << (position % 64);
        for_each_interval(table, |_, call, _, _| add(call));
        // The assumed removals' too, which are not placed: critical intervals end at them.
        for span in table.spans.iter().filter(|span| span.is_removed()) {
            add(span.end);
        }
        let mut count = 0;
        let before = words.iter().map(|word| {
            count += word.count_ones();
            count - word.count_ones()
        });
        CallRanks {
            before: before.collect(),
            words,
            count,
        }
    }

    /// The rank of the first call that is not before this position.
    fn from(&self, position: u32) -> u32 {
        let word = position as usize / 64;
        match self.words.get(word) {
            Some(bits) => {
                let lower = bits & ((1 << (position % 64)) - 1);
                self.before[word] + lower.count_ones()
            }
            None => self.count,
        }
    }

    /// By rank: its position.
    fn positions(&self) -> Vec<u32> {
        let positions = 0..self.words.len() as u32 * 64;
        positions
            .filter(|position| self.words[*position as usize / 64] >> (position % 64) & 1 == 1)
            .collect()
    }

    /// The ranks from a call to a return; the second is exclusive.
    fn interval(&self, call: u32, ret: u32) -> (u32, u32) {
        (self.from(call), self.from(ret.saturating_add(1)))
    }

    /// The ranks of a critical interval; the second is exclusive.
    fn critical(&self, span: &ValueSpan) -> (u32, u32) {
        let first = self.from(span.first_ret.saturating_add(1));
        (first, self.from(span.end).max(first))
    }
}

/// Calls `each` with the value, call, return and peek of all operations that must be placed. A removal without return can
/// take effect after all others.
fn for_each_interval(table: &ValueTable, mut each: impl FnMut(u32, u32, u32, Option<u32>)) {
    for (value, span) in table.spans.iter().enumerate() {
        if span.is_added() {
            each(value as u32, span.add_call, span.first_ret, None);
            if span.remove_ret != NEVER {
                each(value as u32, span.end, span.remove_ret, None);
            }
        }
    }
    for (number, peek) in table.peeks.iter().enumerate() {
        each(peek.value, peek.call, peek.ret, Some(number as u32));
    }
}

impl Intervals {
    /// The intervals, and the place of each peek of the table among them.
    fn new(table: &ValueTable, instants: &CallRanks) -> (Intervals, Vec<u32>) {
        // Counting sort by begin.
        let mut begun = vec![0u32; instants.count as usize + 1];
        for_each_interval(table, |_, call, ret, _| {
            begun[instants.interval(call, ret).0 as usize + 1] += 1;
        });
        let mut sum = 0;
        for count in &mut begun {
            sum += *count;
            *count = sum;
        }
        let mut values = vec![0; sum as usize];
        let mut ends = vec![0; sum as usize];
        let mut of_peeks = vec![0; table.peeks.len()];
        for_each_interval(table, |value, call, ret, peek| {
            let (first, after) = instants.interval(call, ret);
            let place = &mut begun[first as usize];
            values[*place as usize] = value;
            ends[*place as usize] = after;
            if let Some(peek) = peek {
                of_peeks[peek as usize] = *place;
            }
            *place += 1;
        });
        // Each count has moved on to that of the next instant: begun[i] is now what begins up to `i`.
        let tree = StabbingTree::new(ends.into_iter());
        let intervals = Intervals {
            values,
            begun,
            tree,
        };
        (intervals, of_peeks)
    }

    /// An interval that contains this instant.
    fn find(&self, instant: u32) -> Option<usize> {
        self.tree
            .find(0, self.begun[instant as usize] as usize, instant)
    }
}

impl PeekSearch {
    fn new(table: &ValueTable, instants: &CallRanks, of_peeks: &[u32]) -> PeekSearch {
        let mut by_value = PeeksByValue::new(table);
        by_value.sort_each_by_key(|peek| table.peeks[peek as usize].call);
        let spans = || {
            let peeks = by_value.peeks.iter();
            peeks.map(|&peek| {
                let peek = &table.peeks[peek as usize];
                instants.interval(peek.call, peek.ret)
            })
        };
        let first = spans().map(|(first, _)| first).collect();
        let tree = StabbingTree::new(spans().map(|(_, after)| after));
        let peeks = by_value.peeks.iter();
        let intervals: Vec<u32> = peeks.map(|&peek| of_peeks[peek as usize]).collect();
        let mut covering = CoveringValues {
            nodes: vec![0; instants.count as usize + 2],
        };
        for (value, span) in table.spans.iter().enumerate() {
            if span.is_added() {
                let (first, after) = instants.critical(span);
                covering.toggle(first, after, value as u32);
            }
        }
        PeekSearch {
            by_value,
            first,
            tree,
            intervals,
            covering,
        }
    }

    /// Takes out a peek, which contains this instant, of the only value that covers it; returns its interval.
    fn take(&mut self, instant: u32) -> Option<usize> {
        let value = self.covering.at(instant);
        let range = self.by_value.range(value);
        let begun = self.first[range.clone()].partition_point(|&first| first <= instant);
        let place = self.tree.find(range.start, range.start + begun, instant)?;
        self.tree.remove(place);
        Some(self.intervals[place] as usize)
    }
}

impl<'a> StackRelease<'a> {
    fn new(table: &'a ValueTable) -> StackRelease<'a> {
        let instants = CallRanks::new(table);
        let (intervals, of_peeks) = Intervals::new(table, &instants);
        let mut unplaced = vec![0; table.spans.len()];
        for &value in &intervals.values {
            unplaced[value as usize] += 1;
        }
        let peeks = (!table.peeks.is_empty()).then(|| PeekSearch::new(table, &instants, &of_peeks));
        let mut differences = vec![0i32; instants.count as usize + 1];
        for span in table.spans.iter().filter(|span| span.is_added()) {
            let (first, after) = instants.critical(span);
            differences[first as usize] += 2;
            differences[after as usize] -= 2;
        }
        differences.pop();
        let mut depth = 0;
        let depths = differences.into_iter().map(|difference| {
            depth += difference;
            depth
        });
        StackRelease {
            table,
            counts: CoverageCounts::new(depths),
            instants,
            intervals,
            unplaced,
            peeks,
            record: None,
        }
    }

    fn run(&mut self) {
        // Instants that one value covers matter for peeks only.
        let most = if self.peeks.is_some() { 2 } else { 1 };
        while let Some((instant, count)) = self.counts.least()
            && count <= most
        {
            if count <= 1 {
                self.counts.retire(instant);
                while let Some(interval) = self.intervals.find(instant) {
                    self.place(interval, instant);
                }
            } else {
                // 3 now, and 1 when its value is released: it is taken once more, then without any value.
                self.counts.add(instant, instant + 1, 1);
                while let Some(interval) = self.take_peek(instant) {
                    // It may have been placed already, at an instant that is not covered.
                    if self.intervals.tree.contains(interval) {
                        self.place(interval, instant);
                    }
                }
            }
        }
    }

    fn take_peek(&mut self, instant: u32) -> Option<usize> {
        self.peeks.as_mut().and_then(|peeks| peeks.take(instant))
    }

    /// Places an operation; releases its value if it is the last one.
    fn place(&mut self, interval: usize, instant: u32) {
        self.intervals.tree.remove(interval);
        let value = self.intervals.values[interval];
        if let Some(record) = &mut self.record {
            record.instants[interval] = instant;
            if self.unplaced[value as usize] == 1 {
                record.released.push(value);
            }
        }
        let unplaced = &mut self.unplaced[value as usize];
        *unplaced -= 1;
        if *unplaced == 0 {
            let (first, after) = self.instants.critical(&self.table.spans[value as usize]);
            self.counts.add(first, after, -2);
            if let Some(peeks) = &mut self.peeks {
                peeks.covering.toggle(first, after, value);
            }
        }
    }
}
