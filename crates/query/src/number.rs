//! Numbers, and their sums.

use super::pipeline::Stage;
use super::{Each, Items, Pipeline, Query, Question};
use std::ops::ControlFlow;

/// A number that can be summed without overflow.
pub trait Number: Copy + Send {
    /// A partial sum.
    type Partial: Send;
    /// A sum: 128 bits of integers, 64 of floating-point numbers.
    type Total: Send;

    /// Is it a whole number?
    const IS_INTEGER: bool;

    /// The sum of nothing.
    fn zero() -> Self::Partial;
    /// Adds this number.
    fn add(self, sum: &mut Self::Partial);
    /// Adds a sum.
    fn merge(sum: &mut Self::Partial, later: Self::Partial);
    /// The sum.
    fn total(sum: Self::Partial) -> Self::Total;
    /// This number, rounded if it has more than 53 significant bits.
    fn to_f64(self) -> f64;
}

/// Implements [`Number`] for integers of up to 64 bits, whose sums have 128: 2^64 of them fit.
macro_rules! integers {
    ($total:ty: $($integer:ty),+) => {
        $(
            impl Number for $integer {
                type Partial = $total;
                type Total = $total;
                const IS_INTEGER: bool = true;

                fn zero() -> $total {
                    0
                }

                fn add(self, sum: &mut $total) {
                    *sum += self as $total;
                }

                fn merge(sum: &mut $total, later: $total) {
                    *sum += later;
                }

                fn total(sum: $total) -> $total {
                    sum
                }

                #[allow(clippy::cast_lossless, reason = "some of these types can be lossy")]
                fn to_f64(self) -> f64 {
                    self as f64
                }
            }
        )+
    };
}

integers!(i128: i8, i16, i32, i64, isize);
integers!(u128: u8, u16, u32, u64, usize);

/// A sum of floating-point numbers with its accumulated rounding error (Neumaier, "Rundungsfehleranalyse einiger
/// Verfahren zur Summation endlicher Summen", 1974).
#[derive(Clone, Copy, Debug, Default)]
pub struct Compensated {
    sum: f64,
    lost: f64,
}

impl Compensated {
    pub(super) fn add(&mut self, number: f64) {
        let sum = self.sum + number;
        self.lost += if self.sum.abs() >= number.abs() {
            (self.sum - sum) + number
        } else {
            (number - sum) + self.sum
        };
        self.sum = sum;
    }

    pub(super) fn merge(&mut self, later: Compensated) {
        self.add(later.sum);
        self.lost += later.lost;
    }

    pub(super) fn total(self) -> f64 {
        // An infinite sum has no rounding error to compensate.
        if self.sum.is_finite() {
            self.sum + self.lost
        } else {
            self.sum
        }
    }
}

/// Implements [`Number`] for floating-point numbers.
macro_rules! floats {
    ($($float:ty),+) => {
        $(
            impl Number for $float {
                type Partial = Compensated;
                type Total = f64;
                const IS_INTEGER: bool = false;

                fn zero() -> Compensated {
                    Compensated::default()
                }

                fn add(self, sum: &mut Compensated) {
                    sum.add(f64::from(self));
                }

                fn merge(sum: &mut Compensated, later: Compensated) {
                    sum.merge(later);
                }

                fn total(sum: Compensated) -> f64 {
                    sum.total()
                }

                fn to_f64(self) -> f64 {
                    f64::from(self)
                }
            }
        )+
    };
}

floats!(f32, f64);

impl<I: Items, T: Number, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// The sum: of integers exact, in 128 bits; of floating-point numbers with compensated rounding errors.
    ///
    /// ```
    /// use seatrial_query as query;
    /// assert_eq!(query::each::<i64>().sum().of([i64::MAX, 1]), 1 << 63);
    /// ```
    pub fn sum(self) -> Question<I, impl Query<I, Output = T::Total>> {
        self.ask(SumQuery)
    }
}

/// See [`Pipeline::sum`].
#[derive(Clone, Copy, Debug)]
struct SumQuery;

impl<T: Number> Query<Each<T>> for SumQuery {
    type Accumulator = T::Partial;
    type Output = T::Total;

    fn start(&self) -> T::Partial {
        T::zero()
    }

    fn step(&self, sum: &mut T::Partial, number: T) -> ControlFlow<()> {
        number.add(sum);
        ControlFlow::Continue(())
    }

    fn combine(&self, sum: &mut T::Partial, later: T::Partial) -> ControlFlow<()> {
        T::merge(sum, later);
        ControlFlow::Continue(())
    }

    fn finish(&self, sum: T::Partial) -> T::Total {
        T::total(sum)
    }
}
