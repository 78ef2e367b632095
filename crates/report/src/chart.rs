//! The figures behind the charts of a page, as one JSON document that its script draws.

use crate::drawing::ChartFigures;
use crate::latency_chart::Point;
use crate::page::FINDINGS_MAX;
use crate::report::Report;
use crate::series::TimeWindows;
use seatrial_cause::FaultWindow;
use seatrial_history::OpType;
use serde_json::{Value as Json, json};

/// Faults that are drawn.
pub(crate) const FAULTS_MAX: usize = 500;
/// Points in time are written as numbers up to this many ticks: finer than any screen, and short.
const TICKS: i64 = 1_000_000;

/// What the charts show, and how much of it.
pub(crate) struct Charts {
    /// For the page's script.
    pub(crate) data: Json,
    /// Latency points that are drawn.
    pub(crate) shown: usize,
    /// Operations that completed, of which the points are a sample.
    pub(crate) completed: u64,
    /// Nanoseconds that one window of quantiles and rates lasts.
    pub(crate) window: i64,
}

/// The charts of a report.
pub(crate) fn charts(report: &Report<'_>, figures: &ChartFigures) -> Charts {
    let ChartFigures {
        windows,
        functions,
        latencies,
        rates,
    } = figures;
    let faults = report.faults.iter().filter(|fault| fault.error.is_none());
    let faults: Vec<Json> = faults
        .take(FAULTS_MAX)
        .map(|fault| fault_json(fault, windows))
        .collect();
    let names = functions.names();
    let quantiles_of = |function| {
        let lines = latencies.quantiles(windows, function);
        json!(lines.map(|line| {
            line.into_iter()
                .map(|value| value.map(short))
                .collect::<Vec<_>>()
        }))
    };
    let by_function: Vec<Json> = (0..names.len() as u8)
        .map(|number| quantiles_of(Some(number)))
        .collect();
    let rates: Vec<Json> = rates
        .iter()
        .map(|((function, kind), slots)| {
            let mut counts = vec![0; windows.count];
            for (slot, count) in slots {
                counts[*slot] = *count;
            }
            json!({"f": function, "type": kind.name(), "counts": counts})
        })
        .collect();
    let data = json!({
        "functions": names,
        "begin": seconds(windows.begin),
        "end": seconds(windows.end()),
        "last": seconds(windows.last),
        "step": seconds(windows.step),
        "points": points_json(&latencies.points, windows),
        "quantiles": {"all": quantiles_of(None), "by_function": by_function},
        "rates": rates,
        "faults": faults,
        "findings": findings(report),
    });
    Charts {
        data,
        shown: latencies.points.len(),
        completed: latencies.completed,
        window: windows.step,
    }
}

/// The spans of the findings on the page whose times are known.
fn findings(report: &Report<'_>) -> Vec<Json> {
    let all = report.findings().take(FINDINGS_MAX).enumerate();
    let spans = all.filter_map(|(number, (_, finding))| {
        let cause = report.causes.of(number)?;
        Some(json!({
            "number": number,
            "name": finding.anomaly,
            "begin": seconds(cause.begin),
            "end": seconds(cause.end),
        }))
    });
    spans.collect()
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A latency in nanoseconds with three digits that count: what a reader can see, in few bytes.
fn short(latency: u64) -> u64 {
    let digits = latency.checked_ilog10().unwrap_or(0);
    let unit = 10_u64.pow(digits.saturating_sub(2));
    latency / unit * unit
}

/// The points in columns: ticks of [`TICKS`] since the begin, thousandths of the decimal logarithm of the latency
/// in nanoseconds, type and function in one number, index of the invocation.
fn points_json(points: &[Point], windows: &TimeWindows) -> Json {
    let length = i128::from(windows.end()) - i128::from(windows.begin);
    let tick = |point: &Point| {
        let elapsed = i128::from(point.time) - i128::from(windows.begin);
        (elapsed * i128::from(TICKS) / length.max(1)) as i64
    };
    let logarithm = |point: &Point| ((point.latency.max(1) as f64).log10() * 1e3).round() as u64;
    let class = |point: &Point| u64::from(point.function) * 3 + type_number(point.kind);
    json!({
        "ticks": TICKS,
        "time": points.iter().map(tick).collect::<Vec<_>>(),
        "latency": points.iter().map(logarithm).collect::<Vec<_>>(),
        "class": points.iter().map(class).collect::<Vec<_>>(),
        "operation": points.iter().map(|point| point.operation).collect::<Vec<_>>(),
    })
}

/// The order of types in the page's script.
const fn type_number(kind: OpType) -> u64 {
    match kind {
        OpType::Ok => 0,
        OpType::Fail => 1,
        OpType::Invoke | OpType::Info => 2,
    }
}

fn fault_json(fault: &FaultWindow, windows: &TimeWindows) -> Json {
    let end = if fault.instant {
        fault.begin
    } else {
        fault.end.unwrap_or(windows.last)
    };
    json!({
        "name": fault.name,
        "family": fault.family,
        "target": fault.target,
        "begin": seconds(fault.begin),
        "end": seconds(end),
        "instant": fault.instant,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        let shortened = [0, 7, 999, 1_234, 123_456, u64::MAX].map(short);
        assert_eq!(
            shortened,
            [0, 7, 999, 1_230, 123_000, 18_400_000_000_000_000_000]
        );
    }
}
