//! How far the clocks of nodes were off, over time.

use crate::{Aims, Checker, Details, Figures, FoldChecker, OnlineChecker, Verdict, check_source};
use seatrial_history::{Chunk, Fold, History, Op, OpType, Order, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Offsets of the nodes' clocks over time: the figures of Jepsen's `clock-plot`. Always valid. The page of a report draws them.
///
/// Two sources: completions of a nemesis whose extra field `clock-offsets` has the seconds of each node, as Jepsen's clock
/// nemesis measures them; and the faults `skew` of a test of this program, whose jumps and drifts add up. Memory:
/// `POINTS_MAX` points of each of `NODES_MAX` nodes; of more points every other one goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockPlot;

/// Points of one node.
const POINTS_MAX: usize = 512;
/// Nodes.
const NODES_MAX: usize = 256;

/// Figures of [`ClockPlot`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClockFigures {
    /// By node: nanoseconds since the test began, and seconds by which its clock was ahead then.
    pub clock_offsets: BTreeMap<String, Vec<(i64, f64)>>,
    /// The largest offset in seconds, with its sign.
    pub worst: Option<f64>,
}

/// The clock of one node so far.
#[derive(Clone, Debug, Default)]
struct NodeClock {
    points: Vec<(i64, f64)>,
    /// One of this many points is kept; a power of two.
    stride: usize,
    seen: usize,
    /// The last point, kept or not.
    last: Option<(i64, f64)>,
    /// Seconds gained in a second.
    drift: f64,
}

impl NodeClock {
    fn add(&mut self, time: i64, offset: f64) {
        self.stride = self.stride.max(1);
        if self.seen.is_multiple_of(self.stride) {
            self.points.push((time, offset));
        }
        self.seen += 1;
        self.last = Some((time, offset));
        if self.points.len() > POINTS_MAX {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// The offset at this time, by the faults so far.
    fn at(&self, time: i64) -> f64 {
        let (since, offset) = self.last.unwrap_or((time, 0.0));
        offset + self.drift * (time.saturating_sub(since) as f64 / 1e9)
    }

    /// A fault makes the clock jump, and drift from then on.
    fn skew(&mut self, time: i64, jump: f64, drift: f64) {
        let before = self.at(time);
        // Both ends of the jump, so that the line is upright there.
        self.add(time, before);
        self.add(time, before + jump);
        self.drift = drift;
    }
}

/// Seconds as a number.
fn seconds(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) if number.is_finite() => Some(*number),
        _ => None,
    }
}

fn name(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.to_string()),
        Value::Word(word) => Some(word.as_str().to_owned()),
        _ => None,
    }
}

/// The clocks so far.
#[derive(Default)]
struct NodeClocks {
    nodes: BTreeMap<String, NodeClock>,
    end: i64,
}

impl NodeClocks {
    fn node(&mut self, node: String) -> Option<&mut NodeClock> {
        if !self.nodes.contains_key(&node) && self.nodes.len() >= NODES_MAX {
            return None;
        }
        Some(self.nodes.entry(node).or_default())
    }

    /// Applies an operation of a nemesis.
    fn apply(&mut self, op: &Op, is_completion: bool) {
        if let Some(Value::Map(offsets)) = op.extra.get("clock-offsets") {
            for (node, offset) in offsets.iter() {
                if let (Some(node), Some(offset)) = (name(node), seconds(offset))
                    && let Some(clock) = self.node(node)
                {
                    clock.add(op.time, offset);
                }
            }
            return;
        }
        // The completion of a fault that had an effect.
        if !is_completion || op.f != "skew" || op.extra.get("error").is_some() {
            return;
        }
        let Value::Map(members) = &op.value else {
            return;
        };
        let member = |wanted: &str| {
            let mut members = members.iter();
            let found = members.find(|(key, _)| name(key).is_some_and(|key| key == wanted));
            found.map(|(_, value)| value)
        };
        let number = |wanted| member(wanted).and_then(seconds).unwrap_or(0.0);
        let (jump, drift) = (number("offset-ns") / 1e9, number("rate-ppm") / 1e6);
        if let Some(node) = member("node").and_then(name)
            && let Some(clock) = self.node(node)
        {
            clock.skew(op.time, jump, drift);
        }
    }
}

/// The fold of [`ClockPlot`].
struct ClockFold;

impl Fold for ClockFold {
    type Accumulator = NodeClocks;
    type Output = Verdict;

    fn name(&self) -> String {
        "clock-plot".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> NodeClocks {
        NodeClocks::default()
    }

    fn reduce(&self, clocks: &mut NodeClocks, chunk: &Chunk) -> ControlFlow<()> {
        let header = chunk.header();
        clocks.end = clocks.end.max(header.time_max);
        let is_client = chunk.processes().iter().map(|one| one.is_client());
        let is_client: Vec<bool> = is_client.collect();
        if !is_client.contains(&false) {
            return ControlFlow::Continue(());
        }
        for (place, process) in chunk.process_ids().iter().enumerate() {
            if !is_client[*process as usize] && chunk.kinds()[place] != OpType::Invoke {
                clocks.apply(&chunk.op(place), chunk.invocation(place).is_some());
            }
        }
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut NodeClocks, _: NodeClocks) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, clocks: NodeClocks) -> Verdict {
        let end = clocks.end;
        let mut worst: Option<f64> = None;
        let nodes = clocks.nodes.into_iter().map(|(node, mut clock)| {
            if clock.drift != 0.0 {
                clock.add(end, clock.at(end));
            }
            // The line reaches its last point.
            if clock.points.last() != clock.last.as_ref() {
                clock.points.extend(clock.last);
            }
            for (_, offset) in &clock.points {
                if worst.is_none_or(|worst| worst.abs() < offset.abs()) {
                    worst = Some(*offset);
                }
            }
            (node, clock.points)
        });
        let clock_offsets = nodes.collect();
        let mut verdict = Verdict::valid("clock-plot");
        verdict.details = Details::of(Figures::ClockOffsets(ClockFigures {
            clock_offsets,
            worst,
        }));
        verdict
    }
}

impl Checker for ClockPlot {
    fn name(&self) -> &'static str {
        "clock-plot"
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(self.name()).unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new("clock-plot", ClockFold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_interchange::import::{self, Format, ImportOptions};

    fn figures(text: &str) -> ClockFigures {
        let read = import::read(
            "run.edn",
            text.as_bytes(),
            Format::Edn,
            ImportOptions::default(),
        );
        match ClockPlot.check(&read.unwrap()).details.figures {
            Figures::ClockOffsets(figures) => figures,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn offsets_that_a_nemesis_measured_are_points() {
        let found = figures(
            r#"{:process :nemesis :type :info :f :bump :value {"n1" 500} :time 1}
               {:process :nemesis :type :info :f :bump :value nil :time 9 :clock-offsets {"n1" 0.5 "n2" -2}}
               {:process :nemesis :type :info :f :check-offsets :value nil :time 20}
               {:process :nemesis :type :info :f :check-offsets :value nil :time 29 :clock-offsets {"n1" 0.25}}"#,
        );
        assert_eq!(found.clock_offsets["n1"], [(9, 0.5), (29, 0.25)]);
        assert_eq!(found.clock_offsets["n2"], [(9, -2.0)]);
        assert_eq!(found.worst, Some(-2.0));
    }

    #[test]
    fn jumps_and_drifts_add_up() {
        let found = figures(
            "{:process :nemesis :type :info :f :skew :value {:node n1 :offset-ns 2000000000 :rate-ppm 1000} :time 0}
             {:process :nemesis :type :info :f :skew :value {:node n1 :offset-ns 2000000000 :rate-ppm 1000} :time 0}
             {:process :nemesis :type :info :f :skew :value {:node n1 :offset-ns 0 :rate-ppm 0} :time 9}
             {:process :nemesis :type :info :f :skew :value {:node n1 :offset-ns 0 :rate-ppm 0} :time 5000000000}
             {:process :nemesis :type :info :f :skew :value {:node n2 :offset-ns 5 :rate-ppm 0} :time 10}
             {:process :nemesis :type :info :f :skew :value {:node n2 :offset-ns 5 :rate-ppm 0} :time 11 :error :paused}",
        );
        let expected = [
            (0, 0.0),
            (0, 2.0),
            (5_000_000_000, 2.005),
            (5_000_000_000, 2.005),
        ];
        assert_eq!(found.clock_offsets["n1"], expected);
        assert!(!found.clock_offsets.contains_key("n2"));
    }

    #[test]
    fn points_are_thinned() {
        let mut clock = NodeClock::default();
        for time in 0..100_000 {
            clock.add(time, time as f64);
        }
        assert!(clock.points.len() <= POINTS_MAX);
        assert!(clock.points.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
