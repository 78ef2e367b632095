//! What a page shows of the history itself.

use crate::breakdown::{Breakdown, BreakdownFold};
use crate::excerpt::{Excerpt, named};
use crate::latency_chart::{LatencyChart, Rates, latencies, rates};
use crate::report::Report;
use crate::series::{Functions, TimeWindows};
use seatrial_history::{ChunkSource, Fold as _, SourceError};
use std::ops::ControlFlow;

/// What a page shows of the history itself: latencies, rates, counts by node and error, and the operations that findings
/// name. Read in one round, which comes after the check, since charts need to know the length of the history and what
/// is drawn depends on the findings. Its memory does not grow with the history.
#[derive(Debug)]
pub struct Drawing {
    /// `None` when nothing in the history has a time.
    pub(crate) figures: Option<ChartFigures>,
    pub(crate) breakdown: Breakdown,
    pub(crate) excerpt: Excerpt,
}

/// The figures of all charts.
#[derive(Debug)]
pub(crate) struct ChartFigures {
    pub(crate) windows: TimeWindows,
    pub(crate) functions: Functions,
    pub(crate) latencies: LatencyChart,
    pub(crate) rates: Rates,
}

impl Drawing {
    /// Reads what the page of this report shows of its history; costs a round.
    pub fn read(report: &Report<'_>, source: &dyn ChunkSource) -> Result<Drawing, SourceError> {
        let operations = report.counts.count;
        let windows = report.overview.times();
        let windows = windows.map(|times| TimeWindows::over(times, operations));
        let functions = Functions::of(&report.by_function);
        let asked = windows
            .as_ref()
            .map(|windows| (latencies(windows, &functions), rates(windows, &functions)));
        let excerpts = named(report);
        let mut figures = asked
            .as_ref()
            .map(|(one, other)| (one.start(), other.start()));
        let mut broken = BreakdownFold.start();
        let mut copied = excerpts.start();
        source.round(&mut |chunk| {
            // None of these folds ends before the history does.
            if let (Some((latencies, rates)), Some((taken, counted))) = (&asked, &mut figures) {
                let _ = latencies.reduce(taken, chunk);
                let _ = rates.reduce(counted, chunk);
            }
            let _ = BreakdownFold.reduce(&mut broken, chunk);
            let _ = excerpts.reduce(&mut copied, chunk);
            ControlFlow::Continue(())
        })?;
        let answers = asked.zip(figures);
        let answers = answers.map(|((latencies, rates), (taken, counted))| {
            (latencies.finish(taken), rates.finish(counted))
        });
        Ok(Drawing {
            figures: answers
                .zip(windows)
                .map(|((latencies, rates), windows)| ChartFigures {
                    windows,
                    functions,
                    latencies,
                    rates,
                }),
            breakdown: BreakdownFold.finish(broken),
            excerpt: Excerpt {
                history: excerpts.finish(copied),
            },
        })
    }

    /// The operations that findings name.
    pub fn excerpt(&self) -> &Excerpt {
        &self.excerpt
    }
}
