//! Every operation as a point in time, in the colour of its group.

use crate::{Aims, Checker, Details, Figures, FoldChecker, OnlineChecker, Verdict, check_source};
use seatrial_history::{Chunk, FixedMap, Fold, History, OpType, Order};
use serde::Serialize;
use std::ops::ControlFlow;

/// What decides the colour of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorGroup {
    /// The type of its completion; `info` without one.
    #[default]
    Outcome,
    /// Its function.
    Function,
}

impl ColorGroup {
    /// All of them, the default first.
    pub const ALL: [ColorGroup; 2] = [ColorGroup::Outcome, ColorGroup::Function];

    /// The name that `--model` takes.
    pub const fn name(self) -> &'static str {
        match self {
            ColorGroup::Outcome => "outcome",
            ColorGroup::Function => "function",
        }
    }
}

/// Operations of clients by the time of their invocation, in groups: Jepsen's `op-color-plot`. Always valid; unknown without an
/// invocation that has a time.
///
/// The report draws each operation as a point. Its place in the pile of its window shows the rate at that time. Memory:
/// `WINDOWS_MAX` windows for each group and the first `POINTS_MAX` operations; of a longer history the windows are drawn. The
/// times of operations under way are kept until they complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpColorPlot {
    group: ColorGroup,
}

impl OpColorPlot {
    const NAME: &'static str = "op-color-plot";

    /// A plot with these groups.
    pub const fn new(group: ColorGroup) -> OpColorPlot {
        OpColorPlot { group }
    }
}

/// Windows of equal length into which the time is divided, at most.
const WINDOWS_MAX: usize = 512;
/// Length of a window at first, in nanoseconds. It doubles.
const WINDOW_MIN: i64 = 1 << 20;
/// Operations whose times are kept: those of a history that is not longer.
const POINTS_MAX: usize = 16_384;
/// Groups that are distinguished; the last one has all others.
const GROUPS_MAX: usize = 12;

/// Figures of [`OpColorPlot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OpColorFigures {
    /// What the groups are.
    pub group: &'static str,
    /// Length of a window in nanoseconds.
    pub window: i64,
    /// Begin of the first window in nanoseconds since the test began.
    pub begin: i64,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// By window, from the first on: operations of each group.
    pub windows: Vec<Vec<u64>>,
    /// Time and group of each operation, in the order of completions; `None` if there were too many.
    #[serde(skip)]
    pub points: Option<Vec<(i64, usize)>>,
}

/// The operations so far.
struct OpColorCounts {
    begin: Option<i64>,
    window: i64,
    groups: Vec<String>,
    windows: Vec<[u64; GROUPS_MAX]>,
    points: Option<Vec<(i64, usize)>>,
    /// Operations under way of earlier chunks, by position: time and function.
    open: FixedMap<u64, (i64, &'static str)>,
}

impl OpColorCounts {
    fn new() -> OpColorCounts {
        OpColorCounts {
            begin: None,
            window: WINDOW_MIN,
            groups: Vec::new(),
            windows: Vec::new(),
            points: Some(Vec::new()),
            open: FixedMap::default(),
        }
    }

    /// The number of a group, new if necessary.
    fn group(&mut self, name: &str) -> usize {
        if let Some(known) = self.groups.iter().position(|one| one == name) {
            return known;
        }
        if self.groups.len() + 1 >= GROUPS_MAX {
            if self.groups.len() < GROUPS_MAX {
                self.groups.push("others".to_owned());
            }
            return GROUPS_MAX - 1;
        }
        self.groups.push(name.to_owned());
        self.groups.len() - 1
    }

    /// The window of a time. When there are too many, all become twice as long. Times before the first window move it: it begins
    /// at a multiple of the length of a window before them.
    fn window(&mut self, time: i64) -> usize {
        let begin = *self.begin.get_or_insert(time);
        if time < begin {
            let missing = (begin - time - 1) / self.window + 1;
            let room = WINDOWS_MAX.saturating_sub(self.windows.len());
            if usize::try_from(missing).is_ok_and(|missing| missing <= room) {
                self.begin = Some(begin - missing * self.window);
                let empty = std::iter::repeat_n([0; GROUPS_MAX], missing as usize);
                self.windows.splice(0..0, empty).for_each(drop);
            } else {
                self.halve();
                return self.window(time);
            }
        }
        let begin = self.begin.unwrap_or(time);
        let place = usize::try_from(time.saturating_sub(begin) / self.window);
        match place {
            Ok(place) if place < WINDOWS_MAX => place,
            _ => {
                self.halve();
                self.window(time)
            }
        }
    }

    /// Windows of double length.
    fn halve(&mut self) {
        self.window = self.window.saturating_mul(2);
        let pairs = self.windows.chunks(2).map(|pair| {
            let mut sum = [0; GROUPS_MAX];
            for one in pair {
                for (sum, count) in sum.iter_mut().zip(one) {
                    *sum += count;
                }
            }
            sum
        });
        self.windows = pairs.collect();
    }

    fn add(&mut self, time: i64, group: &str) {
        // A negative time is unknown.
        if time < 0 {
            return;
        }
        let group = self.group(group);
        let window = self.window(time);
        if window >= self.windows.len() {
            self.windows.resize(window + 1, [0; GROUPS_MAX]);
        }
        self.windows[window][group] += 1;
        match &mut self.points {
            Some(points) if points.len() < POINTS_MAX => points.push((time, group)),
            points => *points = None,
        }
    }
}

/// The fold of [`OpColorPlot`].
struct OpColorFold(OpColorPlot);

impl OpColorFold {
    fn add(&self, counts: &mut OpColorCounts, (time, f): (i64, &'static str), kind: OpType) {
        counts.add(
            time,
            match (self.0.group, kind) {
                (ColorGroup::Function, _) => f,
                (_, OpType::Ok) => "ok",
                (_, OpType::Fail) => "fail",
                (_, _) => "info",
            },
        );
    }
}

impl Fold for OpColorFold {
    type Accumulator = OpColorCounts;
    type Output = Verdict;

    fn name(&self) -> String {
        OpColorPlot::NAME.into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> OpColorCounts {
        OpColorCounts::new()
    }

    fn reduce(&self, counts: &mut OpColorCounts, chunk: &Chunk) -> ControlFlow<()> {
        let is_client = chunk.processes().iter().map(|one| one.is_client());
        let is_client: Vec<bool> = is_client.collect();
        let first = chunk.first_position();
        // By place: an invocation without completion so far.
        let mut open = vec![false; chunk.len()];
        let begun = |place: usize| (chunk.times()[place], chunk.f(place).as_str());
        let columns = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, (kind, process)) in columns.enumerate() {
            if !is_client[*process as usize] {
                continue;
            }
            if *kind == OpType::Invoke {
                open[place] = true;
                continue;
            }
            let Some(position) = chunk.invocation(place) else {
                continue;
            };
            let started = match position.checked_sub(first) {
                Some(local) => {
                    let local = local as usize;
                    std::mem::replace(&mut open[local], false).then(|| begun(local))
                }
                None => counts.open.remove(&position),
            };
            if let Some(started) = started {
                self.add(counts, started, *kind);
            }
        }
        let left = open.iter().enumerate().filter(|(_, is_open)| **is_open);
        let left = left.map(|(place, _)| (first + place as u64, begun(place)));
        counts.open.extend(left);
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut OpColorCounts, _: OpColorCounts) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, mut counts: OpColorCounts) -> Verdict {
        let mut open: Vec<_> = std::mem::take(&mut counts.open).into_iter().collect();
        open.sort_unstable();
        for (_, started) in open {
            self.add(&mut counts, started, OpType::Info);
        }
        let verdict = Verdict::valid(OpColorPlot::NAME);
        let mut verdict = match counts.begin {
            Some(_) => verdict,
            None => verdict.unknown("no client operation was invoked at a known time"),
        };
        let groups = counts.groups.len();
        let windows = counts.windows.iter().map(|one| one[..groups].to_vec());
        verdict.details = Details::of(Figures::OpColors(Box::new(OpColorFigures {
            group: self.0.group.name(),
            window: counts.window,
            begin: counts.begin.unwrap_or_default(),
            windows: windows.collect(),
            groups: counts.groups,
            points: counts.points,
        })));
        verdict
    }
}

impl Checker for OpColorPlot {
    fn name(&self) -> &'static str {
        OpColorPlot::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(self.name()).unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new(OpColorPlot::NAME, OpColorFold(*self)))
    }
}

#[cfg(test)]
mod tests;
