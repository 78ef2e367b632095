//! One key: what waits until it can be judged.

use super::Argument;
use super::lane::{Action, Cell, Flight, Lane};
use super::story::Stuck;
use seatrial_history::Key;
use std::collections::VecDeque;

/// What an operation is about to do, as far as its invocation says.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    Read,
    Write(Argument),
    Cas(Argument),
    Acquire,
    Release,
    /// None that this data type has; why.
    Unknown(String),
}

/// What became of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It took place; where it ended, and with which value.
    Done(u64, Argument),
    /// Its client gave it up there.
    Ended(u64),
    /// It did not take place.
    Failed,
    /// It never ended.
    Unknown,
}

enum Item {
    Call {
        position: u64,
        deed: Deed,
        fate: Option<Fate>,
    },
    Return {
        /// Where it began.
        call: u64,
    },
}

/// A register by itself.
pub(super) struct Object {
    pub(super) key: Option<Key>,
    /// The piece of the history that named it last.
    pub(super) named: u32,
    /// Operations that took place or may have, and those among them of unknown outcome.
    pub(super) operations: u64,
    pub(super) unknown: u64,
    pub(super) configurations: u64,
    /// Is there an operation that did not fail?
    pub(super) is_named_for_good: bool,
    queue: VecDeque<Item>,
    /// The place of the first one in the queue.
    base: u64,
    /// `None`: it is known not to be linearizable.
    lane: Option<Lane>,
    /// Invocations without a completion.
    open: u32,
}

impl Object {
    pub(super) fn new(key: Option<Key>, start: Cell) -> Object {
        Object {
            key,
            named: 0,
            operations: 0,
            unknown: 0,
            configurations: 0,
            is_named_for_good: false,
            queue: VecDeque::new(),
            base: 0,
            lane: Some(Lane::new(start)),
            open: 0,
        }
    }

    /// Is nothing under way?
    pub(super) fn is_quiet(&self) -> bool {
        let is_quiet = self.lane.as_ref().is_none_or(Lane::is_quiet);
        self.open == 0 && self.queue.is_empty() && is_quiet
    }

    /// Operations that it holds.
    pub(super) fn held(&self) -> u64 {
        self.queue.len() as u64 + self.lane.as_ref().map_or(0, Lane::held)
    }

    /// An operation begins; its place in the queue.
    pub(super) fn begin(&mut self, position: u64, deed: Deed) -> u64 {
        self.open += 1;
        self.queue.push_back(Item::Call {
            position,
            deed,
            fate: None,
        });
        self.base + self.queue.len() as u64 - 1
    }

    /// What became of the operation at this place in the queue. The error is that of an operation that the data type
    /// does not have.
    pub(super) fn end(&mut self, place: u64, fate: Fate) -> Result<(), String> {
        self.open -= 1;
        let at = place.checked_sub(self.base).map(|at| at as usize);
        let Some(Item::Call {
            position,
            deed,
            fate: known,
        }) = at.and_then(|at| self.queue.get_mut(at))
        else {
            return Ok(());
        };
        *known = Some(fate);
        let call = *position;
        if matches!(fate, Fate::Failed) {
            return Ok(());
        }
        self.is_named_for_good = true;
        match deed {
            Deed::Unknown(reason) => return Err(reason.clone()),
            Deed::Cas(argument) => {
                let second = match fate {
                    Fate::Done(_, second) => second,
                    _ => Argument::Nil,
                };
                if !matches!(or(*argument, second), Argument::Two(..)) {
                    return Err("`cas` needs two values".to_owned());
                }
            }
            _ => {}
        }
        if matches!(fate, Fate::Done(..)) {
            self.queue.push_back(Item::Return { call });
        }
        Ok(())
    }

    /// Goes on as far as it is known what became of everything. What no order explains, once; the error says what it is too
    /// much of.
    pub(super) fn advance(&mut self) -> Result<Option<Stuck>, String> {
        while let Some(item) = self.queue.front() {
            let is_known = !matches!(item, Item::Call { fate: None, .. });
            if !is_known {
                break;
            }
            let item = self.queue.pop_front();
            self.base += 1;
            let Some(lane) = &mut self.lane else {
                continue;
            };
            match item {
                Some(Item::Return { call }) => {
                    let (refuted, configurations) = lane.end(call)?;
                    self.configurations += configurations;
                    if let Some(refuted) = refuted {
                        self.lane = None;
                        return Ok(Some(Stuck { refuted }));
                    }
                }
                Some(Item::Call {
                    position,
                    deed,
                    fate: Some(fate),
                }) => {
                    let Some(action) = action(&deed, fate) else {
                        continue;
                    };
                    self.operations += 1;
                    match fate {
                        Fate::Done(end, _) => lane.begin(Flight {
                            call: position,
                            end,
                            action,
                        })?,
                        Fate::Ended(end) => {
                            self.unknown += 1;
                            lane.begin_unknown(position, Some(end), action);
                        }
                        _ => {
                            self.unknown += 1;
                            lane.begin_unknown(position, None, action);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The first, or what the completion says where the invocation says nothing.
fn or(invoked: Argument, completed: Argument) -> Argument {
    match invoked {
        Argument::Nil => completed,
        argument => argument,
    }
}

/// What an operation did or may have done; `None` when that constrains nothing.
fn action(deed: &Deed, fate: Fate) -> Option<Action> {
    let completed = match fate {
        Fate::Failed => return None,
        Fate::Done(_, completed) => Some(completed),
        Fate::Ended(_) | Fate::Unknown => None,
    };
    let cell = |argument| match argument {
        Argument::One(cell) => cell,
        _ => Cell::Nil,
    };
    match *deed {
        Deed::Read => completed.map(|value| Action::Read(cell(value))),
        Deed::Write(argument) => {
            let argument = or(argument, completed.unwrap_or_default());
            Some(Action::Write(cell(argument)))
        }
        Deed::Cas(argument) => match or(argument, completed.unwrap_or_default()) {
            Argument::Two(from, to) => Some(Action::Cas(from, to)),
            _ => None,
        },
        Deed::Acquire => Some(Action::Cas(Cell::Word(0), Cell::Word(1))),
        Deed::Release => Some(Action::Cas(Cell::Word(1), Cell::Word(0))),
        Deed::Unknown(_) => None,
    }
}
