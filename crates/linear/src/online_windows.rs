//! Objects that are checked in windows while they are recorded.

use crate::collection_window::element;
use crate::explanation::NONLINEARIZABLE;
use crate::linearizable::{FINDINGS_MAX, RESULTS_MAX};
use crate::object::is_tuple;
use crate::object_window::{ObjectWindow, WindowCounts, WindowEvent, WindowedType};
use crate::online_verdict::{OnlineTotals, set_model, set_results};
use seatrial_checker::{
    Aims, Checked, Finding, OnlineChecker, Progress, Validity, Verdict, check_source,
};
use seatrial_history::{Chunk, ChunkSource, History, Key, Op, OpType, SourceError, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// A check of objects whose history has not ended yet.
///
/// Each key is an object by itself, with an [`ObjectWindow`]. A window holds what later operations can affect, so the state does
/// not grow with the length of the history; a key keeps some hundred bytes when it is idle.
///
/// A window that cannot decide, and a success without an invocation, end all windows: then the whole history is checked at its
/// end, as the checker of the data type does. It is also checked once more for the findings of a violation, and for a
/// certificate.
pub(crate) struct OnlineWindows<T: WindowedType> {
    data_type: T,
    windows: BTreeMap<Option<Key>, T::Window>,
    /// Invocations without a completion, by position.
    open: BTreeMap<u64, Op>,
    position: u64,
    violations: BTreeMap<Option<Key>, WindowEvent>,
    keys_violated: u64,
    unreported: Vec<Option<Key>>,
    checks: u64,
    /// Is a certificate wanted? Then the finished history is checked as a whole in the end.
    certify: bool,
    /// Why the whole history must be checked at the end.
    fallback: Option<String>,
}

impl<T: WindowedType> OnlineWindows<T> {
    /// Starts the check.
    pub(crate) fn new(data_type: T, certify: bool) -> OnlineWindows<T> {
        OnlineWindows {
            data_type,
            windows: BTreeMap::new(),
            open: BTreeMap::new(),
            position: 0,
            violations: BTreeMap::new(),
            keys_violated: 0,
            unreported: Vec::new(),
            checks: 0,
            certify,
            fallback: None,
        }
    }

    /// Applies the operations of a chunk that are new.
    fn apply(&mut self, chunk: &Chunk) {
        let first = chunk.first_position();
        let known = self.position.saturating_sub(first) as usize;
        if known >= chunk.len() {
            return;
        }
        let processes = chunk.processes().iter();
        let clients: Vec<_> = processes.map(|one| one.is_client()).collect();
        for row in known..chunk.len() {
            if self.fallback.is_some() {
                return;
            }
            let position = first + row as u64;
            self.position = position + 1;
            if !clients[chunk.process_ids()[row] as usize] {
                continue;
            }
            let op = chunk.op(row);
            if op.is_invoke() {
                self.begin(position, op);
            } else {
                self.end(position, &op, chunk.invocation(row));
            }
        }
    }

    fn begin(&mut self, position: u64, op: Op) {
        if is_tuple(&op) {
            self.fallback = Some(format!("op {}: a value of two", op.index));
            return;
        }
        let key = object_key(&op);
        let data_type = &self.data_type;
        let window = self.windows.entry(key.clone());
        let window = window.or_insert_with(|| data_type.window(key.as_ref()));
        let event = window.begin(position, &op);
        self.open.insert(position, op);
        self.on_event(key, event);
    }

    fn end(&mut self, position: u64, op: &Op, invocation: Option<u64>) {
        let Some(call) = invocation else {
            if op.is_ok() {
                self.fallback = Some(format!("op {} has no invocation", op.index));
            }
            return;
        };
        let Some(begun) = self.open.remove(&call) else {
            return;
        };
        let key = object_key(&begun);
        let window = self.windows.get_mut(&key).expect("a window since its call");
        if op.kind == OpType::Fail {
            let event = window.fail(call);
            self.on_event(key, event);
            return;
        }
        let event = window.complete((call, &begun), (position, op));
        let is_due = window.is_due();
        self.on_event(key.clone(), event);
        if is_due && self.fallback.is_none() {
            self.check(key);
        }
    }

    /// Checks the window of a key.
    fn check(&mut self, key: Option<Key>) {
        let window = self.windows.get_mut(&key).expect("the key of a window");
        self.checks += 1;
        let event = window.check(self.position);
        self.on_event(key, event);
    }

    fn keys(&self) -> Vec<Option<Key>> {
        self.windows.keys().cloned().collect()
    }

    fn check_all(&mut self) {
        for key in self.keys() {
            if self.fallback.is_none() {
                self.check(key);
            }
        }
    }

    fn on_event(&mut self, key: Option<Key>, event: WindowEvent) {
        match event {
            WindowEvent::Nothing => {}
            WindowEvent::Whole(reason) => {
                self.fallback.get_or_insert(reason);
                self.windows.clear();
                self.open.clear();
            }
            WindowEvent::Conflict(_)
            | WindowEvent::ElementConflict(_)
            | WindowEvent::Refuted(_) => {
                self.keys_violated += 1;
                if self.violations.len() < FINDINGS_MAX {
                    self.unreported.push(key.clone());
                    self.violations.insert(key, event);
                }
            }
        }
    }

    /// The findings of the violation of one key, from the few operations that it rests on.
    fn explain(
        &self,
        key: Option<&Key>,
        violation: &WindowEvent,
        source: &dyn ChunkSource,
    ) -> Result<Vec<Finding>, SourceError> {
        let positions = match violation {
            WindowEvent::Conflict(positions) => positions.iter().copied().collect(),
            WindowEvent::ElementConflict(one) => self.positions_of(key, one, source)?,
            WindowEvent::Refuted(refutation) => {
                let ops = source.recall(&refutation.positions.iter().copied().collect())?;
                return Ok(refutation.finding(&ops).into_iter().collect());
            }
            _ => BTreeSet::new(),
        };
        let ops = source.recall(&positions)?;
        let checker = self.data_type.checker();
        let verdict = checker.check(&History::from_ops(ops.into_values().collect()));
        Ok(verdict.findings)
    }

    /// Positions of the operations on one element, and of their invocations.
    fn positions_of(
        &self,
        key: Option<&Key>,
        wanted: &Key,
        source: &dyn ChunkSource,
    ) -> Result<BTreeSet<u64>, SourceError> {
        let mut positions = BTreeSet::new();
        source.round(&mut |chunk| {
            for (row, op) in chunk.ops().enumerate() {
                let position = chunk.first_position() + row as u64;
                if position >= self.position {
                    return ControlFlow::Break(());
                }
                let is_wanted = op.process.is_client() && object_key(&op).as_ref() == key;
                if is_wanted && element(&op.value) == *wanted {
                    positions.insert(position);
                    positions.extend(chunk.invocation(row));
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(positions)
    }

    /// The verdict without a check of the whole history.
    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        set_model(&mut verdict, self.data_type.consistency_model());
        let mut totals = OnlineTotals::default();
        for (key, window) in self.used() {
            totals.operations += window.operations;
            totals.unknown += window.unknown;
            totals.configurations += window.configurations;
            totals.objects += 1;
            totals.keyed += u64::from(key.is_some());
        }
        let keys = self.violations.keys().flatten().take(RESULTS_MAX);
        let violated = (self.keys_violated, keys);
        set_results(&mut verdict, self.data_type.method(), totals, violated);
        verdict
    }

    /// The keys with operations.
    fn used(&self) -> impl Iterator<Item = (Option<&Key>, WindowCounts)> {
        let all = self.windows.iter();
        let all = all.map(|(key, window)| (key.as_ref(), window.figures()));
        all.filter(|(_, figures)| figures.operations > 0)
    }

    /// Checks the whole history.
    fn check_again(&self, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        let aims = Aims {
            certify: self.certify,
            ..Aims::default()
        };
        check_source(self.data_type.checker(), source, &aims)
    }
}

/// The key of an operation's object.
fn object_key(op: &Op) -> Option<Key> {
    match &op.value {
        Value::Keyed(key, _) => Some(key.clone()),
        _ => None,
    }
}

impl<T: WindowedType> OnlineChecker for OnlineWindows<T> {
    fn name(&self) -> &'static str {
        self.data_type.checker().name()
    }

    /// Without windows a driver checks the beginning of the history as a whole.
    fn is_early(&self) -> bool {
        self.fallback.is_none()
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        self.apply(chunk);
        ControlFlow::Continue(())
    }

    fn search(&mut self) {
        self.check_all();
    }

    fn definite(&mut self, source: &dyn ChunkSource) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        for key in std::mem::take(&mut self.unreported) {
            if let Some(violation) = self.violations.get(&key) {
                findings.extend(self.explain(key.as_ref(), violation, source)?);
            }
        }
        Ok(findings)
    }

    fn rule_out(&self, verdict: &mut Verdict) {
        set_model(verdict, self.data_type.consistency_model());
    }

    fn progress(&mut self) -> Progress {
        let held = self.windows.values().map(ObjectWindow::held).sum();
        let operations: u64 = self.used().map(|(_, one)| one.operations).sum();
        let mut anomalies = BTreeMap::new();
        if self.keys_violated > 0 {
            anomalies.insert(NONLINEARIZABLE, self.keys_violated);
        }
        let fallback = self.fallback.as_ref();
        Progress {
            decided: operations.saturating_sub(held),
            held,
            windows: self.checks,
            anomalies,
            note: fallback.map(|reason| format!("{reason}; checked as a whole in the end")),
        }
    }

    fn finish(mut self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        let mut under_way: BTreeMap<Option<Key>, Vec<(u64, Op)>> = BTreeMap::new();
        for (call, op) in std::mem::take(&mut self.open) {
            let of_key = under_way.entry(object_key(&op)).or_default();
            of_key.push((call, op));
        }
        for key in self.keys() {
            if self.fallback.is_none() {
                let window = self.windows.get_mut(&key).expect("the key of a window");
                self.checks += 1;
                let open = under_way.remove(&key).unwrap_or_default();
                let event = window.finish(self.position, &open);
                self.on_event(key, event);
            }
        }
        let is_mixed =
            self.used().any(|(key, _)| key.is_none()) && self.used().any(|(key, _)| key.is_some());
        if self.fallback.is_some() || is_mixed || self.certify || self.keys_violated > 0 {
            let checked = self.check_again(source)?;
            let is_valid = checked.verdict.valid == Validity::Valid;
            assert!(
                !is_valid || self.keys_violated == 0,
                "a violation is definite"
            );
            let is_known = self.keys_violated == 0 || checked.verdict.valid == Validity::Invalid;
            if is_known || self.fallback.is_some() {
                return Ok(checked);
            }
        }
        let mut verdict = self.verdict();
        for (key, violation) in &self.violations {
            let findings = self.explain(key.as_ref(), violation, source)?;
            verdict.findings.extend(findings);
        }
        Ok(verdict.into())
    }
}
