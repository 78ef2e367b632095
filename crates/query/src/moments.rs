//! Mean and variance.

use super::number::Compensated;
use super::pipeline::Stage;
use super::{Each, Items, Number, Pipeline, Query, Question};
use std::ops::ControlFlow;

impl<I: Items, T: Number, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// The arithmetic mean; `None` of nothing.
    ///
    /// ```
    /// use seatrial_query as query;
    /// assert_eq!(query::each::<i64>().mean().of([1, 2, 6]), Some(3.0));
    /// ```
    pub fn mean(self) -> Question<I, impl Query<I, Output = Option<f64>>> {
        self.ask(Mean)
    }

    /// Count, mean and variance in one.
    pub fn moments(self) -> Question<I, impl Query<I, Output = Moments>> {
        self.ask(Welford)
    }

    /// The sample variance (divided by one less than the count); `None` of fewer than two items.
    pub fn variance(self) -> Question<I, impl Query<I, Output = Option<f64>>> {
        self.moments().post(|moments| moments.variance())
    }

    /// The root of [`Pipeline::variance`].
    pub fn standard_deviation(self) -> Question<I, impl Query<I, Output = Option<f64>>> {
        self.moments().post(|moments| moments.standard_deviation())
    }
}

/// See [`Pipeline::mean`].
#[derive(Clone, Copy, Debug)]
struct Mean;

impl<T: Number> Query<Each<T>> for Mean {
    type Accumulator = (u64, Compensated);
    type Output = Option<f64>;

    fn start(&self) -> (u64, Compensated) {
        (0, Compensated::default())
    }

    fn step(&self, (count, sum): &mut (u64, Compensated), number: T) -> ControlFlow<()> {
        *count += 1;
        sum.add(number.to_f64());
        ControlFlow::Continue(())
    }

    fn combine(
        &self,
        (count, sum): &mut (u64, Compensated),
        later: (u64, Compensated),
    ) -> ControlFlow<()> {
        *count += later.0;
        sum.merge(later.1);
        ControlFlow::Continue(())
    }

    fn finish(&self, (count, sum): (u64, Compensated)) -> Option<f64> {
        (count > 0).then(|| sum.total() / count as f64)
    }
}

/// Count, mean and variance of numbers, kept so that numbers far from zero lose nothing (Welford, "Note on a method for
/// calculating corrected sums of squares and products", 1962; parts are put together as in Chan, Golub and LeVeque,
/// "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of the squares of the distances from the mean.
    squares: f64,
}

impl Moments {
    /// The number of numbers.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The arithmetic mean; `None` of nothing.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// The sample variance (divided by one less than the count); `None` of fewer than two numbers.
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares / (self.count - 1) as f64)
    }

    /// The population variance (divided by the count); `None` of nothing.
    pub fn population_variance(&self) -> Option<f64> {
        (self.count > 0).then(|| self.squares / self.count as f64)
    }

    /// The root of [`Moments::variance`].
    pub fn standard_deviation(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    fn add(&mut self, number: f64) {
        self.count += 1;
        let distance = number - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (number - self.mean);
    }

    fn merge(&mut self, later: Moments) {
        if self.count == 0 {
            *self = later;
        } else if later.count > 0 {
            let count = self.count + later.count;
            let distance = later.mean - self.mean;
            let share = later.count as f64 / count as f64;
            self.mean += distance * share;
            self.squares += later.squares + distance * distance * share * self.count as f64;
            self.count = count;
        }
    }
}

/// See [`Pipeline::moments`].
#[derive(Clone, Copy, Debug)]
struct Welford;

impl<T: Number> Query<Each<T>> for Welford {
    type Accumulator = Moments;
    type Output = Moments;

    fn start(&self) -> Moments {
        Moments::default()
    }

    fn step(&self, moments: &mut Moments, number: T) -> ControlFlow<()> {
        moments.add(number.to_f64());
        ControlFlow::Continue(())
    }

    fn combine(&self, moments: &mut Moments, later: Moments) -> ControlFlow<()> {
        moments.merge(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, moments: Moments) -> Moments {
        moments
    }
}
