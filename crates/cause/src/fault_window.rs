//! Periods of faults, from the nemesis operations of a history.

use crate::short_text::error_text;
use crate::target_text::TargetText;
use seatrial_history::{History, Op, Value};
use seatrial_machine::{FaultEffect, FaultInfo};
use std::collections::BTreeSet;

/// A period in which a fault was in effect.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultWindow {
    /// The fault: the `f` of the operation that began it (`kill`, `pause`, `cut`, …).
    pub name: &'static str,
    /// The family for colours and lanes: `kill`, `pause`, `partition`, `clock`, `disk`, or the name itself.
    pub family: &'static str,
    /// Its target as text: the value of the operation, empty when it has none.
    pub target: String,
    /// Names in that value, mostly nodes, sorted.
    pub names: Vec<String>,
    /// Nanoseconds since the test began.
    pub begin: i64,
    /// Nanoseconds since the test began; `None` when it lasted to the end of the history or has no length.
    pub end: Option<i64>,
    /// Index of the operation that began it.
    pub operation: u64,
    /// Does it happen at one instant (a reset, flipped bits) rather than last?
    pub instant: bool,
    /// Why it had no effect, when the nemesis says so (`error` of its completion).
    pub error: Option<String>,
}

/// What an operation of a nemesis does to the faults of its family.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Begins a fault that lasts until it is mended.
    Begins,
    /// A fault at one instant.
    Instant,
    /// Mends.
    Ends,
    /// Has no effect.
    Observes,
}

/// The names of Jepsen's nemesis packages, and of observers: name, family, effect. Our own are in the table of faults; any
/// other name is a fault at one instant.
const OTHER_NAMES: [(&str, &str, Effect); 16] = [
    ("start", "", Effect::Ends),
    ("partition", "partition", Effect::Begins),
    ("start-partition", "partition", Effect::Begins),
    ("stop-partition", "partition", Effect::Ends),
    ("start-packet", "packet", Effect::Begins),
    ("stop-packet", "packet", Effect::Ends),
    ("unskew", "clock", Effect::Ends),
    ("bump", "clock", Effect::Begins),
    ("bump-clock", "clock", Effect::Begins),
    ("strobe-clock", "clock", Effect::Instant),
    ("reset-clock", "clock", Effect::Ends),
    ("check-clock-offsets", "clock", Effect::Observes),
    ("bitflip-file", "corruption", Effect::Instant),
    ("truncate-file", "corruption", Effect::Instant),
    ("stop", "", Effect::Ends),
    // The state of a node at the end of a test.
    ("node-state", "", Effect::Observes),
];

/// The family and the effect of a fault of our own. A state that lasts has the family that ends it: a node without power is
/// restarted as a killed one is.
fn own_effect(info: &FaultInfo) -> (&'static str, Effect) {
    match info.effect {
        FaultEffect::Begins(state) => (state.kind().name(), Effect::Begins),
        FaultEffect::Ends(state) => (state.kind().name(), Effect::Ends),
        FaultEffect::Once => (info.kind.name(), Effect::Instant),
        FaultEffect::Observes => (info.kind.name(), Effect::Observes),
    }
}

/// Open faults that are tracked; beyond it the oldest counts as never mended.
const OPEN_MAX: usize = 256;

/// Does this history use `start` to break and `stop` to mend (Jepsen's oldest convention) rather than `kill` to break
/// and `start` to mend?
fn start_breaks(history: &History) -> bool {
    let named = |name: &str| {
        let mut nemesis = history.iter().filter(|op| !op.process.is_client());
        nemesis.any(|op| op.f == name)
    };
    named("stop") && !named("kill") && !named("pause")
}

/// The windows of all faults in the order in which they began. A mending operation ends the windows of its family
/// that it shares a target with, or all of them when it names none of their targets (`heal`, `:start` of all).
pub fn fault_windows(history: &History) -> Vec<FaultWindow> {
    let start_breaks = start_breaks(history);
    let mut windows: Vec<(FaultWindow, BTreeSet<String>)> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (position, op) in history.iter().enumerate() {
        if op.process.is_client() {
            continue;
        }
        let other = history.pair(position);
        if other.is_some_and(|other| other < position) {
            continue; // a completion: handled with its invocation
        }
        let completion = other.map(|other| &history.ops()[other]);
        let (family, effect) = effect(op, start_breaks);
        let target = TargetText::of(&op.value);
        match effect {
            Effect::Begins | Effect::Instant => {}
            Effect::Observes => continue,
            Effect::Ends => {
                let end = completion.unwrap_or(op).time;
                mend(&mut windows, &mut open, family, &target.names, end);
                continue;
            }
        }
        let error = completion.and_then(|completion| completion.extra.get("error"));
        let window = FaultWindow {
            name: op.f.as_str(),
            family,
            target: target.text,
            names: target.names.iter().cloned().collect(),
            begin: op.time,
            end: None,
            operation: op.index,
            instant: effect == Effect::Instant,
            error: error.map(error_text),
        };
        if effect == Effect::Begins && window.error.is_none() {
            // The same fault again on the same target continues it: the earlier window ends here.
            open.retain(|&number| {
                let (earlier, targets) = &mut windows[number];
                let same = earlier.name == window.name && *targets == target.names;
                if same {
                    earlier.end = Some(op.time);
                }
                !same
            });
            if open.len() == OPEN_MAX {
                open.remove(0);
            }
            open.push(windows.len());
        }
        windows.push((window, target.names));
    }
    windows.into_iter().map(|(window, _)| window).collect()
}

/// The family of a nemesis operation and what it does.
fn effect(op: &Op, start_breaks: bool) -> (&'static str, Effect) {
    let name = op.f.as_str();
    if let Some(info) = FaultInfo::named(name) {
        return match own_effect(info) {
            // A clock that neither jumps nor drifts is right again.
            (family, _) if name == "skew" && is_still(&op.value) => (family, Effect::Ends),
            effect => effect,
        };
    }
    match OTHER_NAMES.iter().find(|(known, _, _)| *known == name) {
        Some(("start", _, _)) if start_breaks => ("nemesis", Effect::Begins),
        Some(("start", _, _)) => ("kill", Effect::Ends),
        Some(("stop", _, _)) => ("nemesis", Effect::Ends),
        Some((_, family, effect)) => (family, *effect),
        None => (name, Effect::Instant),
    }
}

/// Are all numbers of this value zero, and is there one?
fn is_still(value: &Value) -> bool {
    let Value::Map(fields) = value else {
        return false;
    };
    let mut numbers = fields
        .iter()
        .filter_map(|(_, value)| value.as_int())
        .peekable();
    numbers.peek().is_some() && numbers.all(|number| number == 0)
}

/// Ends the open windows of `family` that a mending operation with these targets concerns.
fn mend(
    windows: &mut [(FaultWindow, BTreeSet<String>)],
    open: &mut Vec<usize>,
    family: &str,
    names: &BTreeSet<String>,
    end: i64,
) {
    let concerned = |number: usize, all: bool| {
        let (window, targets) = &windows[number];
        window.family == family && (all || !targets.is_disjoint(names))
    };
    let all = !open.iter().any(|&number| concerned(number, false));
    let ended: Vec<usize> = open
        .iter()
        .copied()
        .filter(|&number| concerned(number, all))
        .collect();
    open.retain(|number| !ended.contains(number));
    for number in ended {
        windows[number].0.end = Some(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{OpType, Process, Symbol};

    /// A nemesis operation that begins at `milliseconds` and ends one later.
    fn nemesis(name: &'static str, value: Value, milliseconds: i64) -> [Op; 2] {
        let begin = Op {
            kind: OpType::Info,
            time: milliseconds * 1_000_000,
            ..Op::invoke(Process::NEMESIS, name, value)
        };
        let end = Op {
            time: begin.time + 1_000_000,
            ..begin.clone()
        };
        [begin, end]
    }

    fn node(name: &str) -> Value {
        Value::text(name)
    }

    /// Windows as `name target begin..end`, in milliseconds.
    fn windows(ops: Vec<[Op; 2]>) -> Vec<String> {
        let history = History::from_unindexed(ops.into_iter().flatten().collect());
        let windows = fault_windows(&history);
        let milliseconds = |time: i64| time / 1_000_000;
        let line = |window: &FaultWindow| {
            let end = window.end.map(milliseconds).map(|end| end.to_string());
            let end = end.unwrap_or_default();
            let (name, target, begin) = (window.name, &window.target, milliseconds(window.begin));
            format!("{name} {target} {begin}..{end}")
        };
        windows.iter().map(line).collect()
    }

    #[test]
    fn each_mending_ends_what_it_mends() {
        let windows = windows(vec![
            nemesis("kill", node("n1"), 10),
            nemesis("pause", node("n2"), 20),
            nemesis("kill", node("n3"), 30),
            nemesis("restart", node("n1"), 40),
            nemesis("resume", node("n2"), 50),
            nemesis("bit-rot", node("n2"), 60),
        ]);
        let expected = [
            "kill n1 10..41",
            "pause n2 20..51",
            "kill n3 30..",
            "bit-rot n2 60..",
        ];
        assert_eq!(windows, expected);
    }

    #[test]
    fn heal_ends_all_links_and_nothing_else() {
        let pair = Value::List([node("n1"), node("n2")].into());
        let windows = windows(vec![
            nemesis("cut", pair, 10),
            nemesis("kill", node("n1"), 20),
            nemesis("slow", node("n3"), 30),
            nemesis("calm", Value::Nil, 35),
            nemesis("heal", Value::Nil, 40),
        ]);
        let expected = ["cut n1, n2 10..41", "kill n1 20..", "slow n3 30..36"];
        assert_eq!(windows, expected);
    }

    #[test]
    fn the_oldest_convention_starts_and_stops() {
        let windows = windows(vec![
            nemesis("start", Value::Nil, 10),
            nemesis("stop", Value::Nil, 20),
        ]);
        assert_eq!(windows, ["start  10..21"]);
    }

    #[test]
    fn a_clock_is_mended_by_a_skew_of_nothing() {
        let skew = |name: &str, offset| {
            let field = |name, value| (Value::Word(Symbol::new(name)), value);
            let fields = [
                field("node", node(name)),
                field("offset-ns", Value::Int(offset)),
            ];
            Value::Map(fields.into())
        };
        let windows = windows(vec![
            nemesis("skew", skew("n1", 5_000_000), 10),
            nemesis("skew", skew("n2", -5_000_000), 20),
            nemesis("skew", skew("n1", 0), 30),
        ]);
        let expected = ["skew n1, offset 5 ms 10..31", "skew n2, offset -5 ms 20.."];
        assert_eq!(windows, expected);
    }

    #[test]
    fn killed_again_means_dead_since_then() {
        let windows = windows(vec![
            nemesis("kill", node("n1"), 10),
            nemesis("kill", node("n1"), 20),
            nemesis("start", Value::Word(Symbol::new("all")), 30),
        ]);
        assert_eq!(windows, ["kill n1 10..20", "kill n1 20..31"]);
    }

    #[test]
    fn a_fault_without_effect_says_why() {
        let [begin, end] = nemesis("kill", node("n1"), 10);
        let end = end.with("error", Value::text("no such process"));
        let history = History::from_unindexed(vec![begin, end]);
        let windows = fault_windows(&history);
        assert_eq!(windows[0].error.as_deref(), Some("no such process"));
    }
}
