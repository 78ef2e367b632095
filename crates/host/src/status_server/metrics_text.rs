//! Metrics in the text format of Prometheus, version 0.0.4.

use super::{StatusView, seconds};
use seatrial_machine::{DurationHistogram, MetricValue, StatusMetric};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

/// Prefix of all names but those of the process, which have names of their own by convention.
const PREFIX: &str = "seatrial_";
const PROCESS: &str = "process_";

/// Buckets end before this, except the one without an end.
const BUCKET_MAX: Duration = Duration::from_secs(64);

/// All metrics. Those with one name stand together, as the format demands, in the order of names.
pub(super) fn render(view: &StatusView) -> String {
    let mut text = String::new();
    let mut families: BTreeMap<&str, Vec<&StatusMetric>> = BTreeMap::new();
    for metric in &view.sheet.metrics {
        families.entry(metric.name).or_default().push(metric);
    }
    for (name, metrics) in families {
        // Writing to a string cannot fail.
        let _ = family(&mut text, name, &metrics);
    }
    text
}

/// The name under which a metric is shown.
pub(super) fn full_name(name: &str) -> String {
    let prefix = if name.starts_with(PROCESS) {
        ""
    } else {
        PREFIX
    };
    format!("{prefix}{name}")
}

fn family(text: &mut String, name: &str, metrics: &[&StatusMetric]) -> fmt::Result {
    let Some(first) = metrics.first() else {
        return Ok(());
    };
    let name = full_name(name);
    let kind = match first.value {
        MetricValue::Gauge(_) => "gauge",
        MetricValue::Counter(_) => "counter",
        MetricValue::Durations(_) => "histogram",
    };
    writeln!(text, "# HELP {name} {}", escaped(first.about, false))?;
    writeln!(text, "# TYPE {name} {kind}")?;
    for metric in metrics {
        match &metric.value {
            MetricValue::Gauge(value) | MetricValue::Counter(value) => {
                writeln!(text, "{name}{} {value}", labels(metric, None))?;
            }
            MetricValue::Durations(durations) => histogram(text, &name, metric, durations)?,
        }
    }
    Ok(())
}

fn histogram(
    text: &mut String,
    name: &str,
    metric: &StatusMetric,
    durations: &DurationHistogram,
) -> fmt::Result {
    let all = durations.count();
    // The same buckets in every reply: differences over time need both ends.
    for (end, below) in durations.cumulative().take_while(|it| it.0 < BUCKET_MAX) {
        let labels = labels(metric, Some(&seconds(end).to_string()));
        writeln!(text, "{name}_bucket{labels} {below}")?;
    }
    let labels_of_all = labels(metric, Some("+Inf"));
    writeln!(text, "{name}_bucket{labels_of_all} {all}")?;
    let labels = labels(metric, None);
    writeln!(text, "{name}_sum{labels} {}", seconds(durations.sum()))?;
    writeln!(text, "{name}_count{labels} {all}")
}

/// The labels of a sample in braces; `end` is the end of its bucket.
fn labels(metric: &StatusMetric, end: Option<&str>) -> String {
    let own = metric.labels.iter().map(|(name, value)| (*name, &**value));
    let all: Vec<String> = own
        .chain(end.map(|end| ("le", end)))
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)))
        .collect();
    if all.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", all.join(","))
    }
}

/// A text with the escapes of the format; quotes are escaped in labels only.
fn escaped(text: &str, in_label: bool) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if in_label => escaped.push_str("\\\""),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::tests::view_of;
    use super::*;
    use seatrial_machine::StatusSheet;

    #[test]
    fn metrics_have_one_head_a_name_and_escaped_labels() {
        let mut sheet = StatusSheet::default();
        let labels = vec![("peer", "a\"b\\c\nd".to_owned())];
        let sent = MetricValue::Counter(3.0);
        sheet.metric("sent_total", "Messages \"sent\"", labels, sent);
        sheet.gauge("process_threads", "Threads", 0.5);
        let other = vec![("peer", "n2".to_owned())];
        let sent = MetricValue::Counter(4.5e9);
        sheet.metric("sent_total", "Messages \"sent\"", other, sent);
        let text = render(&view_of(sheet));
        let expected = "# HELP process_threads Threads\n# TYPE process_threads gauge\nprocess_threads 0.5\n\
            # HELP seatrial_sent_total Messages \"sent\"\n# TYPE seatrial_sent_total counter\n\
            seatrial_sent_total{peer=\"a\\\"b\\\\c\\nd\"} 3\n\
            seatrial_sent_total{peer=\"n2\"} 4500000000\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn durations_are_cumulative_buckets() {
        let mut durations = DurationHistogram::default();
        for micros in [1, 3, 3] {
            durations.add(Duration::from_micros(micros));
        }
        let mut sheet = StatusSheet::default();
        sheet.durations("turn_seconds", "Time of a turn", &durations);
        let text = render(&view_of(sheet));
        let buckets = "seatrial_turn_seconds_bucket{le=\"0.000001\"} 0\n\
            seatrial_turn_seconds_bucket{le=\"0.000002\"} 1\n\
            seatrial_turn_seconds_bucket{le=\"0.000004\"} 3\n";
        assert!(text.contains(buckets), "{text}");
        assert_eq!(text.matches("_bucket").count(), 27, "{text}");
        let begin =
            "# HELP seatrial_turn_seconds Time of a turn\n# TYPE seatrial_turn_seconds histogram\n";
        assert!(text.starts_with(begin), "{text}");
        let end = "_bucket{le=\"+Inf\"} 3\nseatrial_turn_seconds_sum 0.000007\nseatrial_turn_seconds_count 3\n";
        assert!(text.ends_with(end), "{text}");
    }
}
