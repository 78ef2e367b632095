//! A machine's description of itself as data: facts, metrics, tables and charts.

use crate::DurationHistogram;

/// What a machine says about itself at one moment. A driver makes it between two turns and shows it: `host` as a page and as
/// metrics. Names are given by the code of machines, never by input.
///
/// A metric's name ends with its unit: `_bytes`, `_seconds`, `_ratio`; a counter's ends with `_total` after that. Metrics with
/// one name differ in their labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusSheet {
    /// Short texts with a name, the most important first.
    pub facts: Vec<(&'static str, String)>,
    /// Numbers.
    pub metrics: Vec<StatusMetric>,
    /// Lists of things with the same properties.
    pub tables: Vec<StatusTable>,
    /// Metrics to draw over time.
    pub charts: Vec<StatusChart>,
}

/// A named number.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusMetric {
    /// The name: lower-case words with underscores, with its unit at the end.
    pub name: &'static str,
    /// What it is, as one sentence without a full stop.
    pub about: &'static str,
    /// What distinguishes it from metrics with the same name.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: MetricValue,
}

/// The value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A number that rises and falls.
    Gauge(f64),
    /// A number that only rises, from 0 at the start of the process.
    Counter(f64),
    /// Durations since the start of the process.
    Durations(Box<DurationHistogram>),
}

/// A table: each row has as many cells as there are columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusTable {
    /// The heading.
    pub title: &'static str,
    /// Headings of the columns.
    pub columns: &'static [&'static str],
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// Metrics that are drawn in one picture over the last minutes. All lines have the same unit.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChart {
    /// The heading.
    pub title: &'static str,
    /// The lines.
    pub lines: Vec<StatusLine>,
}

/// A line of a chart: one value for each second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatusLine {
    /// The line's name in the legend.
    pub label: &'static str,
    /// The metric, over all its labels.
    pub metric: &'static str,
    /// What of it is drawn.
    pub part: LinePart,
}

/// The number that a line shows of its metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinePart {
    /// The value of a gauge.
    Level,
    /// The increase per second of a counter, or of the number of durations.
    Rate,
    /// The increase per second of the sum of durations: the part of the time that was spent.
    Share,
    /// A quantile of the durations that were added in the last second; no value if there are none.
    Quantile(f64),
}

impl StatusSheet {
    /// Adds a fact.
    pub fn fact(&mut self, name: &'static str, text: impl Into<String>) {
        self.facts.push((name, text.into()));
    }

    /// Adds a number that rises and falls.
    pub fn gauge(&mut self, name: &'static str, about: &'static str, value: f64) {
        self.metric(name, about, Vec::new(), MetricValue::Gauge(value));
    }

    /// Adds a number that only rises.
    pub fn counter(&mut self, name: &'static str, about: &'static str, value: u64) {
        self.metric(name, about, Vec::new(), MetricValue::Counter(value as f64));
    }

    /// Adds durations.
    pub fn durations(
        &mut self,
        name: &'static str,
        about: &'static str,
        durations: &DurationHistogram,
    ) {
        let value = MetricValue::Durations(Box::new(durations.clone()));
        self.metric(name, about, Vec::new(), value);
    }

    /// Adds a metric with labels.
    pub fn metric(
        &mut self,
        name: &'static str,
        about: &'static str,
        labels: Vec<(&'static str, String)>,
        value: MetricValue,
    ) {
        debug_assert!(is_metric_name(name, &value), "{name}");
        debug_assert!(!about.is_empty() && !about.ends_with('.'), "{name}");
        self.metrics.push(StatusMetric {
            name,
            about,
            labels,
            value,
        });
    }

    /// Adds a table.
    pub fn table(
        &mut self,
        title: &'static str,
        columns: &'static [&'static str],
        rows: Vec<Vec<String>>,
    ) {
        debug_assert!(
            rows.iter().all(|row| row.len() == columns.len()),
            "{title}: a row of another length"
        );
        self.tables.push(StatusTable {
            title,
            columns,
            rows,
        });
    }

    /// Adds a chart of `(label, metric, part)`.
    pub fn chart(&mut self, title: &'static str, lines: &[(&'static str, &'static str, LinePart)]) {
        let line = |&(label, metric, part)| StatusLine {
            label,
            metric,
            part,
        };
        let lines = lines.iter().map(line).collect();
        self.charts.push(StatusChart { title, lines });
    }
}

/// Has the metric a name by the rules of [`StatusSheet`]?
fn is_metric_name(name: &str, value: &MetricValue) -> bool {
    let is_word = |word: &str| {
        let mut bytes = word.bytes();
        bytes
            .next()
            .is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
            && bytes.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
    };
    let is_counter = name.ends_with("_total");
    let ends_well = match value {
        MetricValue::Gauge(_) => !is_counter,
        MetricValue::Counter(_) => is_counter,
        MetricValue::Durations(_) => name.ends_with("_seconds"),
    };
    ends_well
        && name.starts_with(|it: char| it.is_ascii_lowercase())
        && name.split('_').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_kind_of_their_metric() {
        let durations = || MetricValue::Durations(Box::default());
        for (name, value, expected) in [
            ("kv_keys", MetricValue::Gauge(1.0), true),
            ("kv_keys_total", MetricValue::Gauge(1.0), false),
            ("kv_requests_total", MetricValue::Counter(1.0), true),
            ("kv_requests", MetricValue::Counter(1.0), false),
            ("turn_seconds", durations(), true),
            ("turn_time", durations(), false),
            ("kvKeys", MetricValue::Gauge(1.0), false),
            ("kv__keys", MetricValue::Gauge(1.0), false),
            ("2_keys", MetricValue::Gauge(1.0), false),
            ("", MetricValue::Gauge(1.0), false),
        ] {
            assert_eq!(is_metric_name(name, &value), expected, "{name}");
        }
    }
}
