//! Ends that pick items: minimum, maximum, first, last.

use super::pipeline::Stage;
use super::{Each, Items, Pipeline, Query, Question};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::ControlFlow;

impl<I: Items, T: Send, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// The least; of several that are equal, the first.
    pub fn min(self) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        T: Ord,
    {
        self.min_by(T::cmp)
    }

    /// The greatest; of several that are equal, the last.
    pub fn max(self) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        T: Ord,
    {
        self.max_by(T::cmp)
    }

    /// The least in the order of `compare`; of equal ones, the first. For floating-point numbers use [`f64::total_cmp`].
    pub fn min_by<F>(self, compare: F) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        F: Fn(&T, &T) -> Ordering + Send + Sync,
    {
        self.ask(BestItem {
            is_better: move |new: &T, old: &T| compare(new, old).is_lt(),
        })
    }

    /// The greatest in the order of `compare`; of equal ones, the last.
    pub fn max_by<F>(self, compare: F) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        F: Fn(&T, &T) -> Ordering + Send + Sync,
    {
        self.ask(BestItem {
            is_better: move |new: &T, old: &T| compare(new, old).is_ge(),
        })
    }

    /// The one with the least key; of several, the first. The key is made anew for each comparison.
    pub fn min_by_key<K: Ord, F>(self, key: F) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        F: Fn(&T) -> K + Send + Sync,
    {
        self.min_by(move |one, other| key(one).cmp(&key(other)))
    }

    /// The one with the greatest key; of several, the last. The key is made anew for each comparison.
    pub fn max_by_key<K: Ord, F>(self, key: F) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        F: Fn(&T) -> K + Send + Sync,
    {
        self.max_by(move |one, other| key(one).cmp(&key(other)))
    }

    /// The least and the greatest.
    pub fn range(self) -> Question<I, impl Query<I, Output = Option<(T, T)>>>
    where
        T: Ord + Clone,
    {
        self.ask(Range)
    }

    /// The first; ends there.
    pub fn first(self) -> Question<I, impl Query<I, Output = Option<T>>> {
        self.head(1).post(|mut head| head.pop())
    }

    /// The first that satisfies `test`; ends there.
    pub fn find<F>(self, test: F) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        F: Fn(&T) -> bool + Send + Sync,
    {
        self.filter(test).first()
    }

    /// The last.
    pub fn last(self) -> Question<I, impl Query<I, Output = Option<T>>> {
        self.tail(1).post(|mut tail| tail.pop())
    }

    /// The first `count`; ends there.
    pub fn head(self, count: usize) -> Question<I, impl Query<I, Output = Vec<T>>> {
        self.ask(FirstItems { count })
    }

    /// The last `count`.
    pub fn tail(self, count: usize) -> Question<I, impl Query<I, Output = Vec<T>>> {
        self.ask(LastItems { count })
    }
}

impl<I: Items, S: Stage<I>> Pipeline<I, S> {
    /// The result of `change` for the first item for which it is `Some`; ends there.
    pub fn some<U: Send, F>(self, change: F) -> Question<I, impl Query<I, Output = Option<U>>>
    where
        F: for<'a> Fn(<S::Out as Items>::Item<'a>) -> Option<U> + Send + Sync,
    {
        self.filter_map(change).first()
    }
}

/// The best item so far.
#[derive(Clone, Copy, Debug)]
struct BestItem<F> {
    is_better: F,
}

impl<T: Send, F: Fn(&T, &T) -> bool + Send + Sync> Query<Each<T>> for BestItem<F> {
    type Accumulator = Option<T>;
    type Output = Option<T>;

    fn start(&self) -> Option<T> {
        None
    }

    fn step(&self, best: &mut Option<T>, item: T) -> ControlFlow<()> {
        if best.as_ref().is_none_or(|old| (self.is_better)(&item, old)) {
            *best = Some(item);
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, best: &mut Option<T>, later: Option<T>) -> ControlFlow<()> {
        match later {
            Some(item) => self.step(best, item),
            None => ControlFlow::Continue(()),
        }
    }

    fn finish(&self, best: Option<T>) -> Option<T> {
        best
    }
}

/// See [`Pipeline::range`].
#[derive(Clone, Copy, Debug)]
struct Range;

impl<T: Ord + Clone + Send> Query<Each<T>> for Range {
    type Accumulator = Option<(T, T)>;
    type Output = Option<(T, T)>;

    fn start(&self) -> Option<(T, T)> {
        None
    }

    fn step(&self, range: &mut Option<(T, T)>, item: T) -> ControlFlow<()> {
        match range {
            None => *range = Some((item.clone(), item)),
            Some((least, _)) if item < *least => *least = item,
            Some((_, greatest)) if item > *greatest => *greatest = item,
            Some(_) => {}
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, range: &mut Option<(T, T)>, later: Option<(T, T)>) -> ControlFlow<()> {
        if let Some((least, greatest)) = later {
            self.step(range, least)?;
            self.step(range, greatest)?;
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, range: Option<(T, T)>) -> Option<(T, T)> {
        range
    }
}

/// See [`Pipeline::head`].
#[derive(Clone, Copy, Debug)]
struct FirstItems {
    count: usize,
}

impl FirstItems {
    fn flow<T>(self, items: &[T]) -> ControlFlow<()> {
        if items.len() >= self.count {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl<T: Send> Query<Each<T>> for FirstItems {
    type Accumulator = Vec<T>;
    type Output = Vec<T>;

    fn start(&self) -> Vec<T> {
        Vec::new()
    }

    fn step(&self, items: &mut Vec<T>, item: T) -> ControlFlow<()> {
        if items.len() < self.count {
            items.push(item);
        }
        self.flow(items)
    }

    fn combine(&self, items: &mut Vec<T>, later: Vec<T>) -> ControlFlow<()> {
        let missing = self.count.saturating_sub(items.len());
        items.extend(later.into_iter().take(missing));
        self.flow(items)
    }

    fn finish(&self, items: Vec<T>) -> Vec<T> {
        items
    }
}

/// See [`Pipeline::tail`].
#[derive(Clone, Copy, Debug)]
struct LastItems {
    count: usize,
}

impl<T: Send> Query<Each<T>> for LastItems {
    type Accumulator = VecDeque<T>;
    type Output = Vec<T>;

    fn start(&self) -> VecDeque<T> {
        VecDeque::new()
    }

    fn step(&self, items: &mut VecDeque<T>, item: T) -> ControlFlow<()> {
        items.push_back(item);
        if items.len() > self.count {
            items.pop_front();
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, items: &mut VecDeque<T>, mut later: VecDeque<T>) -> ControlFlow<()> {
        items.append(&mut later);
        let surplus = items.len().saturating_sub(self.count);
        items.drain(..surplus);
        ControlFlow::Continue(())
    }

    fn finish(&self, items: VecDeque<T>) -> Vec<T> {
        items.into()
    }
}
