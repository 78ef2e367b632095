//! A log that values are appended to.

use super::log_offsets::{decide_offsets, offset_order};
use seatrial_history::chunk::ValueView;
use seatrial_history::{Op, Symbol, Value};
use seatrial_linear::SequentialModel;
use seatrial_linear::{
    HistoryModel, ModelCall, MonitorDecision, Unfit, ValueNumbers, list_items, plain_value,
};

/// A log, empty at first: `append` of a value → `[offset value]`; `read` of an offset → `[offset value]`, nil past the end;
/// `read` of nil → all values in order. Offsets count from 0. A success of `append` with another value did not say where it was.
///
/// Acknowledged offsets are an order of the appends, so a log whose appends all have one (acknowledged, or as values that are
/// appended once and read) is decided in O(n): `log_offsets.rs`. Others are searched.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendLogModel;

/// An operation on a log. Values are numbered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogOperation {
    /// Appends the value; at this offset, if it is known.
    Append(u32, Option<u32>),
    /// The value at this offset; `None`: it is past the end.
    ReadAt(u32, Option<u32>),
    /// All values, in order.
    ReadAll(Box<[u32]>),
}

impl SequentialModel for AppendLogModel {
    /// The values, in order.
    type State = Vec<u32>;
    type Operation = LogOperation;

    fn initial(&self) -> Vec<u32> {
        Vec::new()
    }

    fn step(&self, state: &Vec<u32>, operation: &LogOperation) -> Option<Vec<u32>> {
        let is_possible = match operation {
            LogOperation::Append(value, offset) => {
                if offset.is_some_and(|offset| offset as usize != state.len()) {
                    return None;
                }
                let mut next = Vec::with_capacity(state.len() + 1);
                next.extend_from_slice(state);
                next.push(*value);
                return Some(next);
            }
            LogOperation::ReadAt(offset, value) => state.get(*offset as usize) == value.as_ref(),
            LogOperation::ReadAll(values) => state[..] == values[..],
        };
        is_possible.then(|| state.clone())
    }

    fn is_read(&self, operation: &LogOperation) -> bool {
        !matches!(operation, LogOperation::Append(..))
    }

    fn heap_bytes(&self, state: &Vec<u32>) -> usize {
        state.capacity() * size_of::<u32>()
    }
}

/// An offset, if it can be one.
fn offset(offset: i64) -> Option<u32> {
    // One less than all, so that an offset can be incremented.
    u32::try_from(offset)
        .ok()
        .filter(|&offset| offset < u32::MAX)
}

impl HistoryModel for AppendLogModel {
    fn name(&self) -> &'static str {
        "append-log"
    }

    /// A state is the whole log.
    fn has_small_states(&self) -> bool {
        false
    }

    fn operation(
        &self,
        invocation: &Op,
        completion: Option<&Op>,
        values: &mut ValueNumbers,
    ) -> Result<Option<LogOperation>, Unfit> {
        let argument = plain_value(&invocation.value);
        let completed = completion.filter(|op| op.is_ok());
        let result = completed.map(|op| plain_value(&op.value));
        let items = result.and_then(list_items);
        let no_offset = |offset: i64| Unfit::new(invocation, format_args!("{offset} is no offset"));
        match (invocation.f.as_str(), argument) {
            ("append", _) => {
                let at = match items.as_deref() {
                    Some([Value::Int(at), value]) if value == argument => {
                        Some(offset(*at).ok_or_else(|| no_offset(*at))?)
                    }
                    _ => None,
                };
                Ok(Some(LogOperation::Append(values.number(argument), at)))
            }
            ("read", _) if result.is_none() => Ok(None),
            ("read", Value::Int(at)) => match items.as_deref() {
                Some([Value::Int(same), value]) if same == at => {
                    let at = offset(*at).ok_or_else(|| no_offset(*at))?;
                    let value = (*value != Value::Nil).then(|| values.number(value));
                    Ok(Some(LogOperation::ReadAt(at, value)))
                }
                _ => {
                    let reason = format_args!("a `read` of offset {at} returns [{at} value]");
                    Err(Unfit::new(invocation, reason))
                }
            },
            ("read", Value::Nil) => match (items, result) {
                (None, Some(Value::Nil)) => Ok(Some(LogOperation::ReadAll([].into()))),
                (Some(items), _) => {
                    let numbers = items.iter().map(|item| values.number(item));
                    Ok(Some(LogOperation::ReadAll(numbers.collect())))
                }
                _ => Err(Unfit::new(invocation, "a `read` of all returns a list")),
            },
            ("read", other) => {
                let reason = format_args!("`read` needs an offset or nil, not {other}");
                Err(Unfit::new(invocation, reason))
            }
            _ => Err(Unfit::function(invocation, "log")),
        }
    }

    fn stored_operation(
        &self,
        function: Symbol,
        argument: ValueView<'_>,
        result: ValueView<'_>,
        values: &mut ValueNumbers,
    ) -> Option<LogOperation> {
        let (ValueView::Int(argument), ValueView::Integers(&[first, second])) = (argument, result)
        else {
            return None;
        };
        let at = offset(first)?;
        match function.as_str() {
            "append" if second == argument => {
                Some(LogOperation::Append(values.integer(argument), Some(at)))
            }
            "read" if first == argument => {
                Some(LogOperation::ReadAt(at, Some(values.integer(second))))
            }
            _ => None,
        }
    }

    fn certificate_type(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn linearize(&self, calls: &[ModelCall<LogOperation>]) -> Option<Vec<u32>> {
        offset_order(calls)
    }

    fn monitor(
        &self,
        calls: &[ModelCall<LogOperation>],
        values: &ValueNumbers,
    ) -> MonitorDecision<LogOperation> {
        decide_offsets(calls, values)
    }

    fn monitor_name(&self) -> &'static str {
        "order of the offsets"
    }

    fn argument(&self, operation: &LogOperation, values: &ValueNumbers) -> String {
        match operation {
            LogOperation::Append(value, None) => format!(" {}", values.value(*value)),
            LogOperation::Append(value, Some(at)) | LogOperation::ReadAt(at, Some(value)) => {
                format!(" {} at offset {at}", values.value(*value))
            }
            LogOperation::ReadAt(at, None) => format!(" of offset {at}, past the end"),
            LogOperation::ReadAll(all) => format!(" {}", shown(all, values)),
        }
    }

    fn describe_state(&self, state: &Vec<u32>, values: &ValueNumbers) -> String {
        format!("it is {}", shown(state, values))
    }
}

/// Values that a text lists.
const SHOWN_MAX: usize = 16;

/// The values of a log; of many the last.
fn shown(all: &[u32], values: &ValueNumbers) -> String {
    let skipped = all.len().saturating_sub(SHOWN_MAX);
    let listed = all[skipped..]
        .iter()
        .map(|&one| values.value(one).to_string());
    let mut listed: Vec<String> = listed.collect();
    if skipped > 0 {
        listed.insert(0, format!("({skipped} before)"));
    }
    format!("[{}]", listed.join(" "))
}
