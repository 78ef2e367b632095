//! The queue of one key: operations that wait until the outcomes of all earlier ones are known.

use super::Argument;
use super::jit_linearizer::{Cell, CellAction, JitLinearizer, OpenOperation};
use super::online_counterexample::OnlineCounterexample;
use seatrial_history::Key;
use std::collections::VecDeque;

/// What an operation does, as far as its invocation says.
#[derive(Clone, Debug)]
pub(super) enum Invocation {
    Read,
    Write(Argument),
    Cas(Argument),
    Acquire,
    Release,
    /// An operation that this data type does not have; the reason.
    Unknown(String),
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Resolution {
    /// It took effect: position and value of its completion.
    Succeeded(u64, Argument),
    /// It may have taken effect: position of its completion.
    Indeterminate(u64),
    /// It had no effect.
    Failed,
    /// It may have taken effect, and has no completion.
    NeverCompleted,
}

enum QueueItem {
    Call {
        position: u64,
        invocation: Invocation,
        resolution: Option<Resolution>,
    },
    Return {
        /// Position of its invocation.
        call: u64,
    },
}

/// One object: the queue in front of its linearizer.
pub(super) struct ObjectQueue {
    pub(super) key: Option<Key>,
    /// The last piece of the history with an operation on it.
    pub(super) last_piece: u32,
    /// Operations that took effect or may have, and those among them of unknown outcome.
    pub(super) operations: u64,
    pub(super) unknown: u64,
    pub(super) configurations: u64,
    queue: VecDeque<QueueItem>,
    /// The number of the first item in the queue.
    base: u64,
    /// `None` once the object is known not to be linearizable.
    linearizer: Option<JitLinearizer>,
    /// Invocations without a completion.
    open: u32,
}

impl ObjectQueue {
    pub(super) fn new(key: Option<Key>, start: Cell) -> ObjectQueue {
        ObjectQueue {
            key,
            last_piece: 0,
            operations: 0,
            unknown: 0,
            configurations: 0,
            queue: VecDeque::new(),
            base: 0,
            linearizer: Some(JitLinearizer::new(start)),
            open: 0,
        }
    }

    /// Is no operation under way?
    pub(super) fn is_quiet(&self) -> bool {
        let linearizer = self.linearizer.as_ref();
        let is_quiet = linearizer.is_none_or(JitLinearizer::is_quiet);
        self.open == 0 && self.queue.is_empty() && is_quiet
    }

    /// Operations that are kept.
    pub(super) fn held(&self) -> u64 {
        let linearizer = self.linearizer.as_ref();
        self.queue.len() as u64 + linearizer.map_or(0, JitLinearizer::held)
    }

    /// Adds an invocation; returns its number in the queue.
    pub(super) fn begin(&mut self, position: u64, invocation: Invocation) -> u64 {
        self.open += 1;
        self.queue.push_back(QueueItem::Call {
            position,
            invocation,
            resolution: None,
        });
        self.base + self.queue.len() as u64 - 1
    }

    /// Sets the outcome of the operation with this number. The error names an operation that the data type does not have.
    pub(super) fn resolve(&mut self, number: u64, resolution: Resolution) -> Result<(), String> {
        assert!(self.open > 0, "an operation completes once");
        self.open -= 1;
        let at = number.checked_sub(self.base).map(|at| at as usize);
        let Some(QueueItem::Call {
            position,
            invocation,
            resolution: known,
        }) = at.and_then(|at| self.queue.get_mut(at))
        else {
            return Ok(());
        };
        assert!(known.is_none(), "an operation has one outcome");
        *known = Some(resolution);
        let call = *position;
        if matches!(resolution, Resolution::Failed) {
            return Ok(());
        }
        match invocation {
            Invocation::Unknown(reason) => return Err(reason.clone()),
            Invocation::Cas(argument) => {
                let second = match resolution {
                    Resolution::Succeeded(_, second) => second,
                    _ => Argument::Nil,
                };
                if !matches!(either(*argument, second), Argument::Two(..)) {
                    return Err("`cas` needs two values".to_owned());
                }
            }
            _ => {}
        }
        if matches!(resolution, Resolution::Succeeded(..)) {
            self.queue.push_back(QueueItem::Return { call });
        }
        Ok(())
    }

    /// Moves operations to the linearizer, up to the first whose outcome is not known yet. Returns the counterexample of the
    /// first violation, once. The error names the limit that was exceeded.
    pub(super) fn advance(&mut self) -> Result<Option<OnlineCounterexample>, String> {
        while let Some(item) = self.queue.front() {
            let is_known = !matches!(
                item,
                QueueItem::Call {
                    resolution: None,
                    ..
                }
            );
            if !is_known {
                break;
            }
            let item = self.queue.pop_front();
            self.base += 1;
            let Some(linearizer) = &mut self.linearizer else {
                continue;
            };
            match item {
                Some(QueueItem::Return { call }) => {
                    let (refuted, configurations) = linearizer.end(call)?;
                    self.configurations += configurations;
                    if let Some(refuted) = refuted {
                        self.linearizer = None;
                        return Ok(Some(OnlineCounterexample { refuted }));
                    }
                }
                Some(QueueItem::Call {
                    position,
                    invocation,
                    resolution: Some(resolution),
                }) => {
                    let Some(action) = action(&invocation, resolution) else {
                        continue;
                    };
                    self.operations += 1;
                    match resolution {
                        Resolution::Succeeded(end, _) => linearizer.begin(OpenOperation {
                            call: position,
                            end,
                            action,
                        })?,
                        Resolution::Indeterminate(end) => {
                            self.unknown += 1;
                            linearizer.begin_unknown(position, Some(end), action);
                        }
                        _ => {
                            self.unknown += 1;
                            linearizer.begin_unknown(position, None, action);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The argument of the invocation, or of the completion if the invocation has none.
fn either(invoked: Argument, completed: Argument) -> Argument {
    match invoked {
        Argument::Nil => completed,
        argument => argument,
    }
}

/// The effect of an operation; `None` if it constrains nothing.
fn action(invocation: &Invocation, resolution: Resolution) -> Option<CellAction> {
    let completed = match resolution {
        Resolution::Failed => return None,
        Resolution::Succeeded(_, completed) => Some(completed),
        Resolution::Indeterminate(_) | Resolution::NeverCompleted => None,
    };
    let cell = |argument| match argument {
        Argument::One(cell) => cell,
        _ => Cell::Nil,
    };
    match *invocation {
        Invocation::Read => completed.map(|value| CellAction::Read(cell(value))),
        Invocation::Write(argument) => {
            let argument = either(argument, completed.unwrap_or_default());
            Some(CellAction::Write(cell(argument)))
        }
        Invocation::Cas(argument) => match either(argument, completed.unwrap_or_default()) {
            Argument::Two(from, to) => Some(CellAction::Cas(from, to)),
            _ => None,
        },
        Invocation::Acquire => Some(CellAction::Cas(Cell::Word(0), Cell::Word(1))),
        Invocation::Release => Some(CellAction::Cas(Cell::Word(1), Cell::Word(0))),
        Invocation::Unknown(_) => None,
    }
}
