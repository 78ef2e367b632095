//! Whole reports.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod junit;
mod linearization;
mod page;
mod screen;
mod synthetic;
