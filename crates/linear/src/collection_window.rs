//! The window of one collection: its operations that a later one may still contradict.

use crate::linearizable::Linearizable;
use crate::model::{Model, OperationShape, plain, shape};
use crate::object_monitor::ObjectMonitor;
use crate::object_window::{ObjectWindow, WindowCounts, WindowEvent, WindowedType};
use crate::online_verdict::OnlineMethod;
use seatrial_checker::{Checker, ClosedKeys};
use seatrial_history::{Key, Op, Value};
use seatrial_monitors::{
    self as monitors, CollectionAction, CollectionOperation, NEVER, Rejection,
};
use std::collections::BTreeMap;

/// One collection while it is recorded.
///
/// It keeps its content, the operations under way, those of unknown outcome, and the few more that
/// [`monitors::retained_in_queue`] keeps. It is checked each time it has doubled, so that a check costs a constant for each
/// operation (times a logarithm); then the rest is dropped. Of dropped elements only the fact stays, in intervals of integers: an
/// element that appears again after its removal is a violation, unless it is added again, which ends the window.
pub(crate) struct CollectionWindow {
    model: Model,
    /// Operations that completed or crashed.
    held: Vec<WindowOperation>,
    /// Operations under way, by position of the invocation; those that have no effect on their own are not among them.
    open: BTreeMap<u64, Option<(CollectionAction, Key)>>,
    /// Elements whose operations were dropped.
    closed: ClosedKeys,
    /// Operations held from which on the window is checked.
    check_at: usize,
    /// Has something completed since the last check?
    is_new: bool,
    is_refuted: bool,
    figures: WindowCounts,
}

/// An operation of a window.
#[derive(Clone, Debug)]
struct WindowOperation {
    action: CollectionAction,
    element: Key,
    call: u64,
    /// Position of its completion; `None` while there is none.
    end: Option<u64>,
    /// Did it certainly take effect?
    is_certain: bool,
}

/// Operations held before the first check.
const WINDOW_MIN: usize = if cfg!(test) { 4 } else { 512 };

/// The element that a value stands for.
pub(crate) fn element(value: &Value) -> Key {
    match plain(value) {
        Value::Int(integer) => Key::Int(*integer),
        other => Key::Text(other.to_string().into()),
    }
}

/// The action of a shape, and its element; `None` for what no collection without ends has.
fn collection_action(shape: &OperationShape<'_>) -> Option<(CollectionAction, Key)> {
    let none = Key::Int(0);
    Some(match shape {
        OperationShape::Put(_, value) => (CollectionAction::Add, element(value)),
        OperationShape::Take(_, None) => (CollectionAction::RemoveUnknown, none),
        OperationShape::Take(_, Some(Value::Nil)) | OperationShape::Peek(_, Value::Nil) => {
            (CollectionAction::Empty, none)
        }
        OperationShape::Take(_, Some(value)) => (CollectionAction::Remove, element(value)),
        OperationShape::Peek(_, value) => (CollectionAction::Peek, element(value)),
        _ => return None,
    })
}

/// Queues and bags, in windows that a monitor decides.
pub(crate) struct CollectionWindows(Linearizable);

impl CollectionWindows {
    /// `None` for another data type.
    pub(crate) fn new(checker: Linearizable) -> Option<CollectionWindows> {
        let has_windows = matches!(checker.model, Model::FifoQueue | Model::Bag);
        has_windows.then_some(CollectionWindows(checker))
    }
}

impl WindowedType for CollectionWindows {
    type Window = CollectionWindow;

    fn checker(&self) -> &dyn Checker {
        &self.0
    }

    fn window(&self, _: Option<&Key>) -> CollectionWindow {
        CollectionWindow {
            model: self.0.model,
            held: Vec::new(),
            open: BTreeMap::new(),
            closed: ClosedKeys::default(),
            check_at: 0,
            is_new: false,
            is_refuted: false,
            figures: WindowCounts::default(),
        }
    }

    fn consistency_model(&self) -> String {
        "linearizable".into()
    }

    fn method(&self) -> OnlineMethod {
        OnlineMethod {
            monitor: Some(ObjectMonitor::name(self.0.model)),
            configurations_max: self.0.bound.configurations_max,
        }
    }
}

impl ObjectWindow for CollectionWindow {
    fn begin(&mut self, position: u64, invocation: &Op) -> WindowEvent {
        let effect = match shape(self.model, invocation, None) {
            Ok(shape) => shape.and_then(|shape| collection_action(&shape)),
            Err(reason) => return WindowEvent::Whole(reason),
        };
        if let Some((CollectionAction::Add, element)) = &effect
            && self.closed.contains(element)
        {
            return WindowEvent::Whole(format!("{element} is added more than once"));
        }
        let before = self.open.insert(position, effect);
        assert!(before.is_none(), "an operation begins once");
        WindowEvent::Nothing
    }

    fn fail(&mut self, call: u64) -> WindowEvent {
        self.open.remove(&call);
        WindowEvent::Nothing
    }

    fn complete(
        &mut self,
        (call, invocation): (u64, &Op),
        (end, completion): (u64, &Op),
    ) -> WindowEvent {
        let begun = self.open.remove(&call);
        assert!(begun.is_some(), "an operation that completes is open");
        let effect = match shape(self.model, invocation, Some(completion)) {
            Ok(shape) => shape.and_then(|shape| collection_action(&shape)),
            Err(reason) => return WindowEvent::Whole(reason),
        };
        let Some((action, element)) = effect else {
            return WindowEvent::Nothing;
        };
        let is_certain = completion.is_ok();
        self.figures.operations += 1;
        self.figures.unknown += u64::from(!is_certain);
        if self.is_refuted {
            return WindowEvent::Nothing;
        }
        let has_element = matches!(action, CollectionAction::Remove | CollectionAction::Peek);
        if has_element && self.closed.contains(&element) {
            self.refute();
            return WindowEvent::ElementConflict(element);
        }
        self.is_new = true;
        self.held.push(WindowOperation {
            action,
            element,
            call,
            end: Some(end),
            is_certain,
        });
        WindowEvent::Nothing
    }

    fn finish(&mut self, next: u64, _: &[(u64, Op)]) -> WindowEvent {
        let open = self.open.values().flatten().count() as u64;
        self.figures.operations += open;
        self.figures.unknown += open;
        self.is_new = true;
        self.check(next)
    }

    fn is_due(&self) -> bool {
        self.held.len() >= self.check_at.max(WINDOW_MIN)
    }

    fn check(&mut self, next: u64) -> WindowEvent {
        if self.is_refuted || !self.is_new {
            return WindowEvent::Nothing;
        }
        self.is_new = false;
        let horizon = self.open.first_key_value().map_or(next, |(&call, _)| call);
        let (operations, horizon) = self.numbered(horizon);
        let answer = match self.model {
            Model::FifoQueue => monitors::queue(&operations),
            _ => monitors::multiset(&operations),
        };
        match answer {
            Ok(()) => {}
            Err(Rejection::NotApplicable(reason)) => return WindowEvent::Whole(reason.to_owned()),
            Err(Rejection::NotLinearizable(numbers)) => {
                let positions = self.positions(&numbers);
                self.refute();
                return WindowEvent::Conflict(positions);
            }
        }
        let marks = match self.model {
            Model::FifoQueue => monitors::retained_in_queue(&operations, horizon),
            _ => monitors::retained_in_multiset(&operations, horizon),
        };
        assert!(marks.len() >= self.held.len(), "a mark for each operation");
        let mut marks = marks.into_iter();
        let closed = &mut self.closed;
        self.held.retain(|one| {
            let is_kept = marks.next().unwrap_or(true);
            if !is_kept && one.action == CollectionAction::Add {
                closed.insert(one.element.clone());
            }
            is_kept
        });
        self.check_at = 2 * self.held.len();
        WindowEvent::Nothing
    }

    fn held(&self) -> u64 {
        (self.held.len() + self.open.len()) as u64
    }

    fn figures(&self) -> WindowCounts {
        self.figures
    }
}

impl CollectionWindow {
    fn refute(&mut self) {
        self.is_refuted = true;
        self.held = Vec::new();
        self.closed = ClosedKeys::default();
    }

    /// Positions of these operations, in order.
    fn positions(&self, numbers: &[u32]) -> Vec<u64> {
        let open: Vec<u64> = self.open_effects().map(|(call, _)| call).collect();
        let mut positions = Vec::new();
        for &number in numbers {
            match self.held.get(number as usize) {
                Some(one) => positions.extend([one.call].into_iter().chain(one.end)),
                None => positions.push(open[number as usize - self.held.len()]),
            }
        }
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Operations under way that may have an effect.
    fn open_effects(&self) -> impl Iterator<Item = (u64, &(CollectionAction, Key))> {
        let open = self.open.iter();
        open.filter_map(|(&call, effect)| effect.as_ref().map(|effect| (call, effect)))
    }

    /// The operations held, then those under way, with dense numbers of elements and ranks of positions; and the rank of the
    /// horizon.
    fn numbered(&self, horizon: u64) -> (Vec<CollectionOperation>, u32) {
        let held = self.held.iter().map(|one| {
            let ret = one.end.filter(|_| one.is_certain);
            (one.action, &one.element, one.call, ret)
        });
        let open = self.open_effects();
        let open = open.map(|(call, (action, element))| (*action, element, call, None));
        let all: Vec<_> = held.chain(open).collect();
        let mut distinct: Vec<u64> = Vec::with_capacity(2 * all.len());
        distinct.extend(
            all.iter()
                .flat_map(|&(_, _, call, ret)| [Some(call), ret])
                .flatten(),
        );
        distinct.sort_unstable();
        distinct.dedup();
        let rank = |position: u64| distinct.partition_point(|&other| other < position) as u32;
        let mut elements: BTreeMap<&Key, u32> = BTreeMap::new();
        let operations = all.iter().map(|&(action, element, call, ret)| {
            let has_element = !matches!(
                action,
                CollectionAction::Empty | CollectionAction::RemoveUnknown
            );
            let next = elements.len() as u32;
            let value = if has_element {
                *elements.entry(element).or_insert(next)
            } else {
                0
            };
            CollectionOperation {
                action,
                value,
                call: rank(call),
                ret: ret.map_or(NEVER, rank),
            }
        });
        (operations.collect(), rank(horizon))
    }
}
