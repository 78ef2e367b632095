//! The values of charts over the last minutes.

use seatrial_machine::{
    DurationHistogram, LinePart, MetricValue, StatusLine, StatusMetric, StatusSheet,
};
use std::collections::VecDeque;
use std::time::Duration;

/// Values kept of each line: five minutes at one a second.
pub(super) const VALUES_MAX: usize = 300;

/// A value for each line of each chart, once for each description. 300 rows of 8 bytes a line: 50 KB for 20 lines.
#[derive(Clone, Debug, Default)]
pub(super) struct ChartHistory {
    /// Oldest first; a row has the lines of all charts in order. NaN: no value.
    rows: VecDeque<Vec<f64>>,
}

impl ChartHistory {
    /// Adds the values of the lines of `now`, `elapsed` after the description `before`.
    pub(super) fn add(&mut self, before: &StatusSheet, now: &StatusSheet, elapsed: Duration) {
        let lines = now.charts.iter().flat_map(|chart| &chart.lines);
        let values = lines.map(|line| value_of(line, before, now, elapsed));
        let row: Vec<f64> = values.map(|it| it.unwrap_or(f64::NAN)).collect();
        // A machine describes the same charts each time; if not, the old values belong to other lines.
        if self.rows.back().is_some_and(|last| last.len() != row.len()) {
            self.rows.clear();
        }
        if self.rows.len() == VALUES_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
        debug_assert!(self.rows.len() <= VALUES_MAX);
    }

    /// Number of values of each line.
    pub(super) fn length(&self) -> usize {
        self.rows.len()
    }

    /// The values of a line, by its number over all charts, oldest first. NaN: no value.
    pub(super) fn line(&self, number: usize) -> impl Iterator<Item = f64> + '_ {
        let value = move |row: &Vec<f64>| row.get(number).copied().unwrap_or(f64::NAN);
        self.rows.iter().map(value)
    }
}

/// The value of a line; `None`: there is none.
fn value_of(
    line: &StatusLine,
    before: &StatusSheet,
    now: &StatusSheet,
    elapsed: Duration,
) -> Option<f64> {
    let elapsed = elapsed.as_secs_f64();
    let per_second = |difference: f64| (elapsed > 0.0).then(|| difference / elapsed);
    match line.part {
        LinePart::Level => {
            let gauges = metrics(now, line.metric).filter_map(|it| match it.value {
                MetricValue::Gauge(value) => Some(value),
                _ => None,
            });
            gauges.reduce(|sum, value| sum + value)
        }
        LinePart::Rate => {
            let difference = counted(now, line) - counted(before, line);
            // A counter never falls.
            per_second(difference).filter(|it| *it >= 0.0)
        }
        LinePart::Share => per_second(added(line, before, now)?.sum().as_secs_f64()),
        LinePart::Quantile(share) => {
            let added = added(line, before, now)?;
            (added.count() > 0).then(|| added.quantile(share).as_secs_f64())
        }
    }
}

fn metrics<'a>(sheet: &'a StatusSheet, name: &'a str) -> impl Iterator<Item = &'a StatusMetric> {
    sheet.metrics.iter().filter(move |it| it.name == name)
}

/// The counters of a line, or its number of durations.
fn counted(sheet: &StatusSheet, line: &StatusLine) -> f64 {
    let counts = metrics(sheet, line.metric).map(|it| match &it.value {
        MetricValue::Gauge(_) => 0.0,
        MetricValue::Counter(count) => *count,
        MetricValue::Durations(durations) => durations.count() as f64,
    });
    counts.sum()
}

/// The durations that were added between two descriptions.
fn added(line: &StatusLine, before: &StatusSheet, now: &StatusSheet) -> Option<DurationHistogram> {
    let now = durations(now, line)?;
    let before = durations(before, line);
    Some(before.map_or_else(|| now.clone(), |before| now.since(before)))
}

/// The durations of a line; only metrics without labels can have them.
fn durations<'a>(sheet: &'a StatusSheet, line: &'a StatusLine) -> Option<&'a DurationHistogram> {
    metrics(sheet, line.metric).find_map(|it| match &it.value {
        MetricValue::Durations(durations) => Some(&**durations),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sheet(count: u64, level: f64, durations: &DurationHistogram) -> StatusSheet {
        let mut sheet = StatusSheet::default();
        sheet.counter("done_total", "Things done", count);
        for label in ["a", "b"] {
            let labels = vec![("part", label.to_owned())];
            sheet.metric(
                "held_bytes",
                "Bytes held",
                labels,
                MetricValue::Gauge(level),
            );
        }
        sheet.durations("wait_seconds", "Time waited", durations);
        sheet.chart(
            "All",
            &[
                ("done", "done_total", LinePart::Rate),
                ("held", "held_bytes", LinePart::Level),
                ("waits", "wait_seconds", LinePart::Rate),
                ("waited", "wait_seconds", LinePart::Share),
                ("longest", "wait_seconds", LinePart::Quantile(1.0)),
                ("absent", "absent_bytes", LinePart::Level),
            ],
        );
        sheet
    }

    #[test]
    fn lines_show_differences_per_second_levels_and_quantiles() {
        let mut history = ChartHistory::default();
        let mut durations = DurationHistogram::default();
        let first = sheet(10, 1.0, &durations);
        history.add(&StatusSheet::default(), &first, Duration::ZERO);
        durations.add(Duration::from_millis(500));
        durations.add(Duration::from_millis(500));
        let second = sheet(30, 2.0, &durations);
        history.add(&first, &second, SECOND * 2);
        let third = sheet(5, 2.0, &durations);
        history.add(&second, &third, SECOND);
        let values = |number| history.line(number).collect::<Vec<f64>>();
        assert!(values(0)[0].is_nan(), "no time has passed");
        assert_eq!(values(0)[1..2], [10.0]);
        assert!(values(0)[2].is_nan(), "a counter never falls");
        assert_eq!(values(1), [2.0, 4.0, 4.0]);
        assert_eq!(values(2)[1..], [1.0, 0.0]);
        assert_eq!(values(3)[1..], [0.5, 0.0]);
        assert_eq!(values(4)[1..2], [0.5]);
        assert!(values(4)[2].is_nan(), "nothing was added");
        assert!(values(5).iter().all(|it| it.is_nan()));
    }

    #[test]
    fn values_are_bounded_and_those_of_other_lines_are_dropped() {
        let mut history = ChartHistory::default();
        let sheet = sheet(1, 1.0, &DurationHistogram::default());
        for _ in 0..VALUES_MAX + 10 {
            history.add(&sheet, &sheet, SECOND);
        }
        assert_eq!(history.line(0).count(), VALUES_MAX);
        history.add(&sheet, &StatusSheet::default(), SECOND);
        assert_eq!(history.line(0).count(), 1);
    }
}
