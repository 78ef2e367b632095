//! The order of sessions and reads: which operations certainly happened before which.

use crate::register_history::{NONE, RegisterHistory};
use seatrial_cycles::Csr;
use seatrial_history::FixedMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The operations by session, with the place of each in its session.
pub(crate) struct SessionOrder<'h> {
    pub(crate) history: &'h RegisterHistory,
    /// By session: its operations.
    pub(crate) sessions: Csr<u32>,
    /// By operation: its place in its session.
    pub(crate) places: Vec<u32>,
    /// By version: the operations that returned it.
    pub(crate) readers: Csr<u32>,
}

/// An edge of an explanation: the operation before, why, and the operation after.
pub(crate) type ExplainedEdge = (u32, OrderReason, u32);

/// Why one operation comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderReason {
    /// They are of one process, in this order.
    Process,
    /// The second one returned the value that the first one wrote.
    Reads,
    /// The session had seen the first write when this operation returned the value of the second one.
    Seen(u32),
    /// The first one returned the initial state, so it comes before every write of the key.
    Initial,
}

impl<'h> SessionOrder<'h> {
    pub(crate) fn new(history: &'h RegisterHistory) -> SessionOrder<'h> {
        let sessions = history.sessions();
        let mut places = vec![0; history.actions.len()];
        for session in sessions.rows() {
            for (place, &action) in session.iter().enumerate() {
                places[action as usize] = place as u32;
            }
        }
        SessionOrder {
            history,
            readers: history.readers(),
            sessions,
            places,
        }
    }

    /// The session of an operation.
    pub(crate) fn session(&self, action: u32) -> u32 {
        self.history.actions[action as usize].session
    }

    /// The operation before this one in its session.
    pub(crate) fn before(&self, action: u32) -> Option<u32> {
        let place = self.places[action as usize].checked_sub(1)?;
        Some(self.sessions.row(self.session(action))[place as usize])
    }

    /// The operation after this one in its session.
    pub(crate) fn after(&self, action: u32) -> Option<u32> {
        let place = self.places[action as usize] + 1;
        let session = self.sessions.row(self.session(action));
        session.get(place as usize).copied()
    }

    /// The operations that returned what this one wrote.
    pub(crate) fn readers_of(&self, action: u32) -> &[u32] {
        let written = self.history.actions[action as usize].written();
        written.map_or(&[], |version| self.readers.row(version))
    }

    /// All operations in an order that has each session in its order and each read after the write that it returned; the
    /// error is a cycle of sessions and reads.
    ///
    /// Among the operations that can come next, the one with the earliest [`SessionOrder::points`] comes first. If the history is
    /// linearizable this is a linearization. O(n log n).
    pub(crate) fn topological_order(&self) -> Result<Vec<u32>, Vec<u32>> {
        let count = self.history.actions.len() as u32;
        let points = self.points();
        let mut waits: Vec<u8> = (0..count)
            .map(|action| {
                u8::from(self.before(action).is_some())
                    + u8::from(self.history.source(action).is_some())
            })
            .collect();
        let key = |action: u32| {
            let it = &self.history.actions[action as usize];
            let (version, is_read) = match (it.written(), it.read()) {
                (Some(version), _) => (version, false),
                (None, read) => (read.unwrap_or(NONE), true),
            };
            Reverse((points[action as usize], version, is_read, action))
        };
        let ready = (0..count).filter(|&action| waits[action as usize] == 0);
        let mut ready: BinaryHeap<_> = ready.map(key).collect();
        let mut order = Vec::with_capacity(count as usize);
        while let Some(Reverse((.., action))) = ready.pop() {
            order.push(action);
            let next = self.after(action).into_iter();
            for next in next.chain(self.readers_of(action).iter().copied()) {
                let left = &mut waits[next as usize];
                *left -= 1;
                if *left == 0 {
                    ready.push(key(next));
                }
            }
        }
        if order.len() == count as usize {
            return Ok(order);
        }
        let start = (0..count).find(|&action| waits[action as usize] > 0);
        Err(self.cycle(start.expect("an operation waits"), &waits))
    }

    /// A cycle among the operations that wait, found by walking back from `start`.
    fn cycle(&self, start: u32, waits: &[u8]) -> Vec<u32> {
        let is_waiting = |action: &u32| waits[*action as usize] > 0;
        let mut seen = vec![false; waits.len()];
        let mut path = Vec::new();
        let mut at = start;
        while !std::mem::replace(&mut seen[at as usize], true) {
            path.push(at);
            let source = self.history.source(at).filter(is_waiting);
            let before = self.before(at).filter(is_waiting);
            at = source
                .or(before)
                .expect("an operation that waits has a predecessor that waits");
        }
        let start = path.iter().position(|&action| action == at);
        let mut cycle = path.split_off(start.expect("the walk came back"));
        cycle.reverse();
        cycle
    }

    /// By operation: a position at which it took effect, if the history is linearizable.
    ///
    /// A write and the reads of its value form a zone from the first completion among them to the last invocation. If that is
    /// an interval, the write takes effect at its beginning. If not, all of them overlap from the last invocation to the first
    /// completion, and take effect at the first moment there that no interval of the key contains (Gibbons and Korach 1997).
    fn points(&self) -> Vec<u32> {
        let history = self.history;
        let versions = history.versions.len();
        let (mut first_end, mut last_call) = (vec![NONE; versions], vec![0u32; versions]);
        for action in &history.actions {
            for version in action.read().into_iter().chain(action.written()) {
                let version = version as usize;
                first_end[version] = first_end[version].min(action.ret);
                last_call[version] = last_call[version].max(action.call);
            }
        }
        // By key: the intervals, sorted.
        let intervals = (0..versions).filter(|&version| first_end[version] < last_call[version]);
        let intervals = intervals.map(|version| {
            let interval = (first_end[version], last_call[version]);
            (history.versions[version].key, interval)
        });
        let mut by_key = Csr::group(history.keys.len(), intervals);
        for key in by_key.row_numbers() {
            by_key.row_mut(key).sort_unstable();
        }
        let mut point_of = first_end.clone();
        for version in 0..versions {
            if first_end[version] < last_call[version] {
                continue;
            }
            let mut point = last_call[version];
            let intervals = by_key.row(history.versions[version].key);
            let earlier = intervals.partition_point(|&(from, _)| from < point);
            if let Some(&(_, to)) = earlier.checked_sub(1).map(|at| &intervals[at]) {
                point = point.max(to);
            }
            point_of[version] = point;
        }
        let actions = history.actions.iter();
        let points = actions.map(|action| match (action.written(), action.read()) {
            (Some(version), _) => point_of[version as usize],
            // The initial state ends with the first other interval: its reads are at their invocations.
            (None, Some(version)) if history.versions[version as usize].is_initial() => action.call,
            (None, Some(version)) => point_of[version as usize].max(action.call),
            (None, None) => action.call,
        });
        points.collect()
    }

    /// A shortest path of sessions and reads from one operation to another.
    pub(crate) fn path(&self, from: u32, to: u32) -> Vec<ExplainedEdge> {
        let path = shortest_path(from, to, |at, take| {
            if let Some(next) = self.after(at) {
                take(next, OrderReason::Process);
            }
            for &reader in self.readers_of(at) {
                take(reader, OrderReason::Reads);
            }
        });
        path.unwrap_or_default()
    }

    /// The edges of a cycle of sessions and reads.
    pub(crate) fn explain_cycle(&self, cycle: &[u32]) -> Vec<ExplainedEdge> {
        let next = cycle.iter().cycle().skip(1);
        let pairs = cycle.iter().zip(next);
        let edges = pairs.map(|(&from, &to)| {
            let reason = if self.history.source(to) == Some(from) {
                OrderReason::Reads
            } else {
                OrderReason::Process
            };
            (from, reason, to)
        });
        edges.collect()
    }
}

/// A shortest path from one operation to another; `each_edge` calls its argument for each edge from an operation.
pub(crate) fn shortest_path(
    from: u32,
    to: u32,
    each_edge: impl Fn(u32, &mut dyn FnMut(u32, OrderReason)),
) -> Option<Vec<ExplainedEdge>> {
    let mut came_from: FixedMap<u32, (u32, OrderReason)> = FixedMap::default();
    let mut pending = VecDeque::from([from]);
    while let Some(at) = pending.pop_front() {
        if at == to {
            break;
        }
        each_edge(at, &mut |next, reason| {
            if next != from && !came_from.contains_key(&next) {
                came_from.insert(next, (at, reason));
                pending.push_back(next);
            }
        });
    }
    let mut path = Vec::new();
    let mut at = to;
    while at != from {
        let &(before, reason) = came_from.get(&at)?;
        path.push((before, reason, at));
        at = before;
    }
    path.reverse();
    Some(path)
}

/// What sessions know, for causal consistency: of each session a prefix.
///
/// A row has one number for each session: operations of it that come before. The row of a write is that of its session at
/// that time, shared among the writes between two reads. Memory: rows times sessions, at most [`CausalClocks::ENTRIES_MAX`].
pub(crate) struct CausalClocks {
    sessions: usize,
    rows: Vec<u32>,
    /// By operation: the row of a write.
    row_of: Vec<u32>,
}

impl CausalClocks {
    /// Most numbers in all rows together: 512 MiB.
    pub(crate) const ENTRIES_MAX: usize = 1 << 27;

    /// Clocks of all writes; `each` gets each read in `order`, with the clock of its session without this read. `None` if the
    /// rows do not fit. O(n·k) for k sessions at worst, less where sessions learn little from one another.
    pub(crate) fn new(
        program: &SessionOrder<'_>,
        order: &[u32],
        mut each: impl FnMut(&CausalClocks, u32, &[u32]),
    ) -> Option<CausalClocks> {
        let sessions = program.sessions.row_count();
        if sessions.saturating_mul(sessions) > Self::ENTRIES_MAX {
            return None;
        }
        let mut clocks = CausalClocks {
            sessions,
            rows: Vec::new(),
            row_of: vec![NONE; order.len()],
        };
        let mut current = vec![0u32; sessions * sessions];
        let mut has_changed = vec![true; sessions];
        let mut last_row = vec![NONE; sessions];
        for &action in order {
            let session = program.session(action) as usize;
            let own = session * sessions..(session + 1) * sessions;
            // Its own session is known up to here.
            current[own.start + session] = program.places[action as usize];
            if let Some(source) = program.history.source(action) {
                let theirs = program.session(source) as usize;
                let place = program.places[source as usize];
                if current[own.start + theirs] <= place {
                    has_changed[session] = true;
                    let row = clocks.row_of[source as usize] as usize * sessions;
                    let row = &clocks.rows[row..row + sessions];
                    for (mine, their) in current[own.clone()].iter_mut().zip(row) {
                        *mine = (*mine).max(*their);
                    }
                    current[own.start + theirs] = place + 1;
                }
                current[own.start + session] = program.places[action as usize];
            }
            if program.history.actions[action as usize].read().is_some() {
                each(&clocks, action, &current[own.clone()]);
            }
            if program.history.actions[action as usize].written().is_some() {
                if has_changed[session] {
                    if clocks.rows.len() + sessions > Self::ENTRIES_MAX {
                        return None;
                    }
                    last_row[session] = (clocks.rows.len() / sessions) as u32;
                    clocks.rows.extend_from_slice(&current[own]);
                    has_changed[session] = false;
                }
                clocks.row_of[action as usize] = last_row[session];
            }
        }
        Some(clocks)
    }

    /// Of each session, the operations before this write; of its own session it may have fewer.
    pub(crate) fn row(&self, write: u32) -> &[u32] {
        let row = self.row_of[write as usize] as usize * self.sessions;
        &self.rows[row..row + self.sessions]
    }

    /// Does the write `before` come before the write `after`?
    pub(crate) fn precedes(&self, program: &SessionOrder<'_>, before: u32, after: u32) -> bool {
        let (session, place) = (program.session(before), program.places[before as usize]);
        if session == program.session(after) {
            return place < program.places[after as usize];
        }
        self.row(after)[session as usize] > place
    }
}

/// The writes of each key by session: where the last one of a prefix is found by binary search.
pub(crate) struct KeyWriters {
    /// By key: (session, place, operation), sorted.
    by_key: Csr<(u32, u32, u32)>,
    /// By key: (session, where its writes begin, where they end), sorted by session.
    groups: Csr<(u32, u32, u32)>,
}

impl KeyWriters {
    pub(crate) fn new(program: &SessionOrder<'_>) -> KeyWriters {
        let actions = program.history.actions.iter().zip(0..);
        let writes = actions.filter(|(action, _)| action.written().is_some());
        let writes = writes.map(|(action, number): (_, u32)| {
            let place = program.places[number as usize];
            (action.key, (action.session, place, number))
        });
        let mut by_key = Csr::group(program.history.keys.len(), writes);
        for key in by_key.row_numbers() {
            by_key.row_mut(key).sort_unstable();
        }
        let mut groups = Csr::with_capacity(by_key.row_count());
        for row in by_key.rows() {
            let mut start = 0;
            for chunk in row.chunk_by(|one, other| one.0 == other.0) {
                let end = start + chunk.len() as u32;
                groups.push((chunk[0].0, start, end));
                start = end;
            }
            groups.end_row();
        }
        KeyWriters { by_key, groups }
    }

    /// The sessions that write a key, with the range of their writes.
    pub(crate) fn groups(&self, key: u32) -> &[(u32, u32, u32)] {
        self.groups.row(key)
    }

    /// The group of a session among the writers of a key.
    pub(crate) fn group(&self, key: u32, session: u32) -> Option<(u32, u32, u32)> {
        let groups = self.groups.row(key);
        let at = groups
            .binary_search_by_key(&session, |group| group.0)
            .ok()?;
        Some(groups[at])
    }

    /// The last write of a group among the first `known` operations of its session.
    pub(crate) fn last(&self, key: u32, group: (u32, u32, u32), known: u32) -> Option<u32> {
        let writes = &self.by_key.row(key)[group.1 as usize..group.2 as usize];
        let count = writes.partition_point(|&(_, place, _)| place < known);
        let last = count.checked_sub(1)?;
        Some(writes[last].2)
    }
}
