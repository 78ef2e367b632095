//! The status as one JSON document.

use super::metrics_text::full_name;
use super::{StatusView, seconds};
use seatrial_machine::{MetricValue, StatusMetric};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The document.
pub(super) fn render(view: &StatusView) -> String {
    let sheet = &view.sheet;
    let facts: Map<String, Value> = sheet
        .facts
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.as_str().into()))
        .collect();
    let tables: Vec<Value> = sheet
        .tables
        .iter()
        .map(|table| json!({ "title": table.title, "columns": table.columns, "rows": table.rows }))
        .collect();
    let mut number = 0;
    let charts: Vec<Value> = sheet
        .charts
        .iter()
        .map(|chart| {
            let lines = chart.lines.iter().map(|line| {
                // NaN becomes null: no value.
                let values: Vec<f64> = view.history.line(number).collect();
                number += 1;
                json!({ "label": line.label, "metric": full_name(line.metric), "values": values })
            });
            let lines: Vec<Value> = lines.collect();
            json!({ "title": chart.title, "lines": lines })
        })
        .collect();
    let document = json!({
        "title": view.title,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime-seconds": seconds(view.uptime),
        "age-seconds": view.age.map(seconds),
        "facts": facts,
        "metrics": sheet.metrics.iter().map(metric).collect::<Vec<Value>>(),
        "tables": tables,
        "charts": charts,
    });
    format!("{document}\n")
}

fn metric(metric: &StatusMetric) -> Value {
    let labels: Map<String, Value> = metric
        .labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
        .collect();
    let name = full_name(metric.name);
    match &metric.value {
        MetricValue::Gauge(value) | MetricValue::Counter(value) => {
            json!({ "name": name, "labels": labels, "value": value })
        }
        MetricValue::Durations(durations) => {
            let of = |duration: Duration| Value::from(seconds(duration));
            json!({
                "name": name,
                "labels": labels,
                "count": durations.count(),
                "sum": of(durations.sum()),
                "p50": of(durations.quantile(0.5)),
                "p99": of(durations.quantile(0.99)),
                "max": of(durations.max()),
            })
        }
    }
}
