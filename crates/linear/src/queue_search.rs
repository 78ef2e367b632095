//! The search of a FIFO queue whose values repeat: pairs of an addition and a removal, not contents.

use crate::linearization_search::{Bound, OrderResult};
use crate::model::{Action, Taken};
use crate::object::{NEVER, ObjectOperation};
use crate::values::StateId;
use seatrial_history::FixedMap;

/// A search for two orders: of the additions, and of the operations at the front (removals, peeks, observations that the queue is
/// empty). The n-th removal takes the element of the n-th addition.
///
/// # Two orders are enough
///
/// Let both orders respect real time, and let each operation have a place in them. An addition takes effect at the greatest
/// invocation of those up to it; an operation at the front at the greatest invocation of those up to it in both orders, so
/// after the addition of its element. That is a linearization if no operation completes before its point. Which later additions
/// took effect by then does not matter to a queue, except to an observation that it is empty: additions after it take effect
/// after its point. So while both orders are built from the front, a configuration is only which operations are placed, and
/// whether the next element is known; and an operation may be placed next if it is invoked before
///
/// - the first completion of those that are left in its order, so that the order respects real time, and of those left at the
///   front, which take effect after it;
/// - where it observes an empty queue, also if all that are placed were invoked before the first completion of an addition that
///   is left.
///
/// A search over contents has to order concurrent additions when they take effect, long before a removal shows their order.
///
/// # What is not tried
///
/// - A peek or observation that can be placed is placed at once, as it changes nothing. If observations of an empty queue are
///   left, a peek is placed at once only if it was invoked before the first completion of an addition that is left: a later
///   point can keep an observation from its place, which is the one condition that looks at the points of removals and peeks.
/// - Of additions of one value that can be placed, the one that completes first: in any order the others can stand where this
///   one stands, later. The same of removals, with the same exception.
/// - If the addition of a value that completes first of all that are left, and the removal of it that completes first of all, can
///   both be placed, and no peek of the value is left, no other value is tried. In any order these two are paired with others, of
///   this value: `(e, d')` and `(e', d)`. Placing `(e, d)` now and `(e', d')` at the later of the two places is an order too,
///   since `e'` and `d'` complete last.
/// - A removal of unknown outcome is placed only if it must take an element that no other can.
///
/// With unique values the third rule always applies, and nothing is tried twice.
pub(crate) struct QueueSearch<'a> {
    entries: &'a [ObjectOperation],
    bound: Bound,
    additions: OrderSide,
    front: OrderSide,
    /// By entry: its value, in dense numbers.
    values: Vec<u32>,
    /// By entry: is it placed?
    placed: Vec<bool>,
    /// Entries of unknown outcome: their bits in configurations.
    uncertain: Vec<u32>,
    uncertain_places: Vec<u32>,
    /// Removals of unknown outcome, by invocation.
    wildcards: Vec<u32>,
    /// The value of the next element to be removed, if its addition is placed.
    next: Option<u32>,
    /// The greatest invocation of what is placed.
    last_call: u32,
    peeks_left: Vec<u32>,
    empties_left: u32,
    /// Certain operations at the front that are left.
    front_left: usize,
    /// What is placed, in order, with the fields before it.
    log: Vec<PlacedOperation>,
    /// Configurations that were visited, each with its number.
    seen: FixedMap<Box<[u32]>, u32>,
    bytes: usize,
    /// The longest log, by certain operations at the front.
    longest: usize,
}

/// One of the two orders.
struct OrderSide {
    /// Certain operations, by invocation.
    certain: Vec<u32>,
    /// All before this place of `certain` are placed.
    low: usize,
    /// Number of certain operations that are placed.
    placed: usize,
    /// By value: additions or removals of it, by completion; those of unknown outcome last, by invocation.
    by_value: Vec<Vec<u32>>,
    /// By value: all before this place of `by_value` are placed.
    value_low: Vec<u32>,
}

/// An operation that was placed, and what placing it changed.
#[derive(Clone, Copy)]
struct PlacedOperation {
    entry: u32,
    next: Option<u32>,
    last_call: u32,
    low: u32,
    value_low: u32,
}

/// Additions or removals to be tried, in a stack shared by all frames.
struct QueueFrame {
    first: usize,
    next: usize,
    /// Length of the log before them.
    placed: usize,
}

/// What an entry does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueueStep {
    Add,
    Remove,
    RemoveUnknown,
    Peek,
    Empty,
}

fn step(action: Action) -> Option<(QueueStep, Option<StateId>)> {
    Some(match action {
        Action::Put(_, value) => (QueueStep::Add, Some(value)),
        Action::Take(_, Taken::Element(value)) => (QueueStep::Remove, Some(value)),
        Action::Take(_, Taken::Unknown) => (QueueStep::RemoveUnknown, None),
        Action::Peek(_, Taken::Element(value)) => (QueueStep::Peek, Some(value)),
        Action::Take(_, Taken::Nothing) | Action::Peek(_, Taken::Nothing) => {
            (QueueStep::Empty, None)
        }
        _ => return None,
    })
}

impl OrderSide {
    fn new(values: usize) -> OrderSide {
        OrderSide {
            certain: Vec::new(),
            low: 0,
            placed: 0,
            by_value: vec![Vec::new(); values],
            value_low: vec![0; values],
        }
    }

    /// The first completion of the certain operations that are left.
    fn first_ret(&self, entries: &[ObjectOperation], placed: &[bool]) -> u32 {
        let mut first = NEVER;
        for &number in &self.certain[self.low..] {
            let entry = &entries[number as usize];
            // The others complete after their invocation.
            if entry.call > first {
                break;
            }
            if !placed[number as usize] {
                first = first.min(entry.ret);
            }
        }
        first
    }
}

impl<'a> QueueSearch<'a> {
    /// The search of one queue, whose operations are in the order of their calls. `None` if they are not those of a queue.
    pub(crate) fn new(entries: &'a [ObjectOperation], bound: Bound) -> Option<QueueSearch<'a>> {
        let mut numbers: FixedMap<StateId, u32> = FixedMap::default();
        let mut values = Vec::with_capacity(entries.len());
        for entry in entries {
            let (_, value) = step(entry.action)?;
            let fresh = numbers.len() as u32;
            values.push(value.map_or(NEVER, |value| *numbers.entry(value).or_insert(fresh)));
        }
        let count = numbers.len();
        let mut search = QueueSearch {
            entries,
            bound,
            additions: OrderSide::new(count),
            front: OrderSide::new(count),
            values,
            placed: vec![false; entries.len()],
            uncertain: vec![NEVER; entries.len()],
            uncertain_places: Vec::new(),
            wildcards: Vec::new(),
            next: None,
            last_call: 0,
            peeks_left: vec![0; count],
            empties_left: 0,
            front_left: 0,
            log: Vec::new(),
            seen: FixedMap::default(),
            bytes: 0,
            longest: 0,
        };
        search.fill();
        Some(search)
    }

    fn fill(&mut self) {
        for (number, entry) in (0u32..).zip(self.entries) {
            let value = self.values[number as usize] as usize;
            let Some((step, _)) = step(entry.action) else {
                continue;
            };
            let is_certain = entry.is_required();
            let is_front = step != QueueStep::Add;
            match step {
                // Without a certain result they say nothing.
                QueueStep::Peek | QueueStep::Empty if !is_certain => continue,
                QueueStep::Peek => self.peeks_left[value] += 1,
                QueueStep::Empty => self.empties_left += 1,
                QueueStep::Add => self.additions.by_value[value].push(number),
                QueueStep::Remove => self.front.by_value[value].push(number),
                QueueStep::RemoveUnknown => self.wildcards.push(number),
            }
            if !is_certain {
                self.uncertain[number as usize] = self.uncertain_places.len() as u32;
                self.uncertain_places.push(number);
            } else if is_front {
                self.front_left += 1;
                self.front.certain.push(number);
            } else {
                self.additions.certain.push(number);
            }
        }
        let entries = self.entries;
        let end = |number: &u32| {
            let entry = &entries[*number as usize];
            (entry.ret, entry.call)
        };
        let lists = self.additions.by_value.iter_mut();
        for list in lists.chain(&mut self.front.by_value) {
            list.sort_unstable_by_key(end);
        }
    }

    /// Searches to the end or to a bound; also the number of configurations.
    pub(crate) fn run(mut self) -> (OrderResult, u64) {
        let result = self.find();
        (result, self.seen.len() as u64)
    }

    fn find(&mut self) -> OrderResult {
        if !self.has_pairs() {
            return OrderResult::NotLinearizable;
        }
        let mut candidates: Vec<u32> = Vec::new();
        let mut stack: Vec<QueueFrame> = Vec::new();
        loop {
            self.settle();
            if self.front_left == 0 {
                return OrderResult::Linearizable(self.order());
            }
            if let Some(bound) = self.exhausted() {
                return OrderResult::Exhausted(bound, self.longest);
            }
            let first = candidates.len();
            if self.is_new() {
                self.add_candidates(&mut candidates);
            }
            stack.push(QueueFrame {
                first,
                next: first,
                placed: self.log.len(),
            });
            // Back to a frame that has a candidate left.
            let candidate = loop {
                let Some(frame) = stack.last_mut() else {
                    return OrderResult::NotLinearizable;
                };
                self.undo_to(frame.placed);
                if frame.next < candidates.len() {
                    frame.next += 1;
                    break candidates[frame.next - 1];
                }
                candidates.truncate(frame.first);
                stack.pop();
            };
            self.place(candidate);
        }
    }

    /// Can removals and peeks be paired with additions, each value on its own? A necessary condition.
    fn has_pairs(&self) -> bool {
        let call = |&number: &u32| self.entries[number as usize].call;
        let mut calls: Vec<Vec<u32>> = Vec::new();
        for additions in &self.additions.by_value {
            let mut of_value: Vec<u32> = additions.iter().map(call).collect();
            of_value.sort_unstable();
            calls.push(of_value);
        }
        let removals = self.front.by_value.iter().zip(&calls);
        let is_paired = |(removals, calls): (&Vec<u32>, &Vec<u32>)| {
            // The n-th completion needs n additions that were invoked before it.
            let certain = removals
                .iter()
                .map(|&number| self.entries[number as usize].ret);
            let certain = certain.take_while(|&ret| ret != NEVER).enumerate();
            certain
                .into_iter()
                .all(|(place, ret)| calls.get(place).is_some_and(|&call| call <= ret))
        };
        removals.into_iter().all(is_paired)
            && self.front.certain.iter().all(|&number| {
                let entry = &self.entries[number as usize];
                let value = self.values[number as usize];
                value == NEVER
                    || calls[value as usize]
                        .first()
                        .is_some_and(|&call| call <= entry.ret)
            })
    }

    fn exhausted(&self) -> Option<&'static str> {
        if self.seen.len() as u64 >= self.bound.configurations_max {
            Some("configurations")
        } else if self.bytes >= self.bound.memory_bytes_max {
            Some("memory")
        } else {
            None
        }
    }

    fn action(&self, number: u32) -> QueueStep {
        let step = step(self.entries[number as usize].action);
        step.map_or(QueueStep::Empty, |(step, _)| step)
    }

    fn call(&self, number: u32) -> u32 {
        self.entries[number as usize].call
    }

    /// The first completions of the additions that are left, and of the operations at the front.
    fn first_rets(&self) -> (u32, u32) {
        (
            self.additions.first_ret(self.entries, &self.placed),
            self.front.first_ret(self.entries, &self.placed),
        )
    }

    /// Places the peeks and observations of an empty queue that can be placed.
    fn settle(&mut self) {
        let mut is_settled = false;
        while !is_settled {
            is_settled = true;
            let (first_addition, mut first_front) = self.first_rets();
            let mut place = self.front.low;
            while let Some(&number) = self.front.certain.get(place) {
                if self.call(number) > first_front {
                    break;
                }
                place += 1;
                if self.placed[number as usize] {
                    continue;
                }
                let is_possible = match self.action(number) {
                    QueueStep::Peek => {
                        self.next == Some(self.values[number as usize])
                            && self.is_in_no_way(number, first_addition)
                    }
                    QueueStep::Empty => {
                        self.next.is_none()
                            && self.last_call.max(self.call(number)) <= first_addition
                    }
                    _ => false,
                };
                if is_possible {
                    let is_first = self.entries[number as usize].ret == first_front;
                    self.place(number);
                    if is_first {
                        first_front = self.front.first_ret(self.entries, &self.placed);
                        is_settled = false;
                    }
                }
            }
        }
    }

    /// Records the configuration; false if it was visited before.
    fn is_new(&mut self) -> bool {
        self.longest = self.longest.max(self.front.certain.len() - self.front_left);
        let mut key: Vec<u32> = vec![
            self.additions.low as u32,
            self.front.low as u32,
            self.next.map_or(0, |value| value + 1),
        ];
        let sides = [&self.additions, &self.front];
        let mut lengths = [0; 2];
        for (side, length) in sides.into_iter().zip(&mut lengths) {
            let mut end = 0;
            let begin = key.len();
            let mut left = side.placed - side.low;
            for (place, &number) in side.certain[side.low..].iter().enumerate() {
                if left == 0 {
                    break;
                }
                if place % 32 == 0 {
                    key.push(0);
                }
                if self.placed[number as usize] {
                    key[begin + place / 32] |= 1 << (place % 32);
                    end = begin + place / 32 + 1;
                    left -= 1;
                }
            }
            key.truncate(end.max(begin));
            *length = key.len() - begin;
        }
        key.push(lengths[0] as u32);
        key.push(lengths[1] as u32);
        if !self.uncertain_places.is_empty() {
            let begin = key.len();
            key.resize(begin + self.uncertain_places.len().div_ceil(32), 0);
            for (place, &number) in self.uncertain_places.iter().enumerate() {
                key[begin + place / 32] |= u32::from(self.placed[number as usize]) << (place % 32);
            }
            while key.len() > begin && key.last() == Some(&0) {
                key.pop();
            }
        }
        let bytes = key.len() * size_of::<u32>() + size_of::<(Box<[u32]>, u32)>() + 8;
        let number = self.seen.len() as u32;
        let is_new = self.seen.insert(key.into_boxed_slice(), number).is_none();
        self.bytes += if is_new { bytes } else { 0 };
        is_new
    }

    /// Adds what can be placed next, the most urgent first.
    fn add_candidates(&self, candidates: &mut Vec<u32>) {
        let (first_addition, first_front) = self.first_rets();
        if let Some(value) = self.next {
            return self.add_removals(value, (first_addition, first_front), candidates);
        }
        let wildcard = self
            .wildcards
            .iter()
            .find(|&&number| !self.placed[number as usize]);
        let has_wildcard = wildcard.is_some_and(|&number| self.call(number) <= first_front);
        let wanted = self.wanted_values(first_front);
        let open = self.open_additions(first_addition.min(first_front));
        let mut listed: Vec<(u32, u32, u32)> = Vec::new();
        for (value, addition) in open {
            let want = wanted.iter().find(|&&(one, _)| one == value);
            let Some(urgency) = want.map(|&(_, ret)| ret).or(has_wildcard.then_some(NEVER)) else {
                continue;
            };
            if self.is_pair(value, addition, (first_addition, first_front)) {
                candidates.push(addition);
                return;
            }
            listed.push((urgency, self.entries[addition as usize].ret, addition));
        }
        listed.sort_unstable();
        candidates.extend(listed.into_iter().map(|(_, _, addition)| addition));
    }

    /// By value: the first completion of an operation at the front that needs it and can be placed.
    fn wanted_values(&self, first_front: u32) -> Vec<(u32, u32)> {
        let mut wanted: Vec<(u32, u32)> = Vec::new();
        self.each_open(&self.front, first_front, |number| {
            let (value, ret) = (
                self.values[number as usize],
                self.entries[number as usize].ret,
            );
            match wanted.iter_mut().find(|(one, _)| *one == value) {
                Some((_, first)) => *first = (*first).min(ret),
                None if value != NEVER => wanted.push((value, ret)),
                None => {}
            }
        });
        // Removals of unknown outcome whose value is known: of operations that end after the beginning that is searched.
        for number in self.open_uncertain(QueueStep::Remove, first_front) {
            let value = self.values[number as usize];
            if !wanted.iter().any(|&(one, _)| one == value) {
                wanted.push((value, NEVER));
            }
        }
        wanted
    }

    /// Operations of unknown outcome with this effect that are not placed and were invoked by then.
    fn open_uncertain(&self, step: QueueStep, last: u32) -> impl Iterator<Item = u32> {
        let places = self.uncertain_places.iter().copied();
        places.filter(move |&number| {
            self.action(number) == step
                && !self.placed[number as usize]
                && self.call(number) <= last
        })
    }

    /// By value: the addition that completes first of those that can be placed.
    fn open_additions(&self, last: u32) -> Vec<(u32, u32)> {
        let mut open: Vec<(u32, u32)> = Vec::new();
        self.each_open(&self.additions, last, |number| {
            let value = self.values[number as usize];
            let ret = |number: u32| self.entries[number as usize].ret;
            match open.iter_mut().find(|(one, _)| *one == value) {
                Some((_, first)) if ret(number) < ret(*first) => *first = number,
                Some(_) => {}
                None => open.push((value, number)),
            }
        });
        for number in self.open_uncertain(QueueStep::Add, last) {
            let value = self.values[number as usize];
            if !open.iter().any(|&(one, _)| one == value) {
                open.push((value, number));
            }
        }
        open
    }

    /// Can the addition and the removal of this value that complete first of all be placed now, and does no peek need it?
    fn is_pair(
        &self,
        value: u32,
        addition: u32,
        (first_addition, first_front): (u32, u32),
    ) -> bool {
        let first = |side: &OrderSide| {
            let place = side.value_low[value as usize] as usize;
            side.by_value[value as usize].get(place).copied()
        };
        let Some(removal) = first(&self.front) else {
            return false;
        };
        let bound = if self.empties_left > 0 {
            first_front.min(first_addition)
        } else {
            first_front
        };
        self.peeks_left[value as usize] == 0
            && first(&self.additions) == Some(addition)
            && self.entries[removal as usize].is_required()
            && self.call(removal) <= bound
    }

    /// Adds the removals that can take the next element.
    fn add_removals(
        &self,
        value: u32,
        (first_addition, first_front): (u32, u32),
        candidates: &mut Vec<u32>,
    ) {
        let first = self.front.value_low[value as usize] as usize;
        let removals = self.front.by_value[value as usize][first..].iter();
        for &number in removals.chain(&self.wildcards) {
            if self.placed[number as usize] || self.call(number) > first_front {
                continue;
            }
            candidates.push(number);
            if self.is_in_no_way(number, first_addition) {
                break;
            }
        }
        // Peeks that may belong after an observation of an empty queue.
        self.each_open(&self.front, first_front, |number| {
            if self.action(number) == QueueStep::Peek && self.values[number as usize] == value {
                candidates.push(number);
            }
        });
    }

    /// Can it be placed without keeping an observation of an empty queue from its place?
    fn is_in_no_way(&self, number: u32, first_addition: u32) -> bool {
        self.empties_left == 0 || self.call(number) <= first_addition
    }

    /// Calls `take` for the certain operations of an order that are left and were invoked by `last`.
    fn each_open(&self, side: &OrderSide, last: u32, mut take: impl FnMut(u32)) {
        for &number in &side.certain[side.low..] {
            if self.call(number) > last {
                break;
            }
            if !self.placed[number as usize] {
                take(number);
            }
        }
    }

    /// Places an operation next.
    fn place(&mut self, number: u32) {
        let value = self.values[number as usize];
        let step = self.action(number);
        let side = if step == QueueStep::Add {
            &mut self.additions
        } else {
            &mut self.front
        };
        let mut change = PlacedOperation {
            entry: number,
            next: self.next,
            last_call: self.last_call,
            low: side.low as u32,
            value_low: 0,
        };
        debug_assert!(!self.placed[number as usize], "an operation is placed once");
        self.placed[number as usize] = true;
        side.placed += usize::from(self.entries[number as usize].is_required());
        let is_placed =
            |number: Option<&u32>| number.is_some_and(|&number| self.placed[number as usize]);
        while is_placed(side.certain.get(side.low)) {
            side.low += 1;
        }
        if matches!(step, QueueStep::Add | QueueStep::Remove) {
            let low = &mut side.value_low[value as usize];
            change.value_low = *low;
            while is_placed(side.by_value[value as usize].get(*low as usize)) {
                *low += 1;
            }
        }
        match step {
            QueueStep::Add => self.next = Some(value),
            QueueStep::Remove | QueueStep::RemoveUnknown => self.next = None,
            QueueStep::Peek => self.peeks_left[value as usize] -= 1,
            QueueStep::Empty => self.empties_left -= 1,
        }
        let is_certain = self.entries[number as usize].is_required();
        self.front_left -= usize::from(step != QueueStep::Add && is_certain);
        self.last_call = self.last_call.max(self.call(number));
        self.log.push(change);
    }

    /// Takes back what was placed last, until `length` operations are placed.
    fn undo_to(&mut self, length: usize) {
        while self.log.len() > length
            && let Some(change) = self.log.pop()
        {
            let number = change.entry;
            let value = self.values[number as usize];
            let step = self.action(number);
            let side = if step == QueueStep::Add {
                &mut self.additions
            } else {
                &mut self.front
            };
            side.low = change.low as usize;
            side.placed -= usize::from(self.entries[number as usize].is_required());
            match step {
                QueueStep::Add | QueueStep::Remove => {
                    side.value_low[value as usize] = change.value_low;
                }
                QueueStep::Peek => self.peeks_left[value as usize] += 1,
                QueueStep::Empty => self.empties_left += 1,
                QueueStep::RemoveUnknown => {}
            }
            let is_certain = self.entries[number as usize].is_required();
            self.front_left += usize::from(step != QueueStep::Add && is_certain);
            self.placed[number as usize] = false;
            (self.next, self.last_call) = (change.next, change.last_call);
        }
        assert!(self.log.len() == length, "what is taken back was placed");
    }

    /// The linearization of what is placed, and of the certain additions that nothing removes.
    fn order(&self) -> Vec<usize> {
        // Each operation with its point. Both orders have ascending points.
        let mut points: Vec<(u32, u32)> = Vec::with_capacity(self.entries.len());
        let (mut addition, mut front) = (0, 0);
        for change in &self.log {
            let call = self.call(change.entry);
            let step = self.action(change.entry);
            let point = if step == QueueStep::Add {
                addition = addition.max(call);
                addition
            } else {
                front = front.max(addition).max(call);
                if step == QueueStep::Empty {
                    addition = front;
                }
                front
            };
            points.push((point, change.entry));
        }
        for &number in &self.additions.certain {
            if !self.placed[number as usize] {
                addition = addition.max(self.call(number));
                points.push((addition, number));
            }
        }
        debug_assert!(
            points
                .iter()
                .all(|&(point, number)| point <= self.entries[number as usize].ret),
            "each takes effect before its completion"
        );
        // Stable: what has the same point was placed in order.
        points.sort_by_key(|&(point, _)| point);
        points
            .into_iter()
            .map(|(_, number)| number as usize)
            .collect()
    }
}

/// Searches one queue; also the number of configurations.
pub(crate) fn search_queue(entries: &[ObjectOperation], bound: Bound) -> (OrderResult, u64) {
    match QueueSearch::new(entries, bound) {
        Some(search) => search.run(),
        None => (OrderResult::Exhausted("operations of a queue", 0), 0),
    }
}
