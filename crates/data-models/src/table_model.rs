//! A data type that a table states: rows of state, operation, argument, result and next state.

use seatrial_history::{FixedMap, Op, Value};
use seatrial_linear::SequentialModel;
use seatrial_linear::{HistoryModel, Unfit, ValueNumbers, plain_value};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// One row of a table: in `state`, the operation with this argument can have this result, and leads to `next`.
#[derive(Clone, Debug)]
pub struct StateTableRow {
    /// The state before; [`TableModel::ANY_STATE`] stands for each state.
    pub state: String,
    /// The function of the operation.
    pub operation: String,
    /// The value of the invocation; `None`: any.
    pub argument: Option<Value>,
    /// The value of the successful completion; `None`: any.
    pub result: Option<Value>,
    /// The state after; [`TableModel::SAME_STATE`] stands for the state before.
    pub next: String,
}

/// Why rows are no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// The row, from 0; `None`: the table as a whole.
    pub row: Option<usize>,
    /// The part of it: `initial`, `rows`, `state` or `next`.
    pub part: &'static str,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row {
            Some(row) => write!(f, "rows[{row}].{}: {}", self.part, self.reason),
            None => write!(f, "{}: {}", self.part, self.reason),
        }
    }
}

impl std::error::Error for TableError {}

/// A small data type as a table. An operation is possible in a state if a row allows its argument and result there.
///
/// The rows are deterministic: those that allow the same operation with the same result in one state lead to one state. An
/// operation of unknown result may have any result that a row allows, so a state of the search is the set of all states that are
/// possible then, and a step leads to the union of theirs. Most tables keep it at one state.
///
/// Cost: a step is four look-ups for each possible state. The table has an entry for each row, and for each state of a row for
/// all states.
#[derive(Clone, Debug, Default)]
pub struct TableModel {
    /// The names of the states; empty: there is no table.
    states: Vec<String>,
    initial: u16,
    functions: FixedMap<String, TableFunction>,
    /// The arguments and results of rows, by their printed forms; a value that no row has is [`UNLISTED`].
    values: FixedMap<String, u32>,
    /// The state after a successful operation.
    certain: FixedMap<RowPattern, u16>,
    /// The states after an operation of unknown result, by state, function and argument.
    unknown: FixedMap<(u16, u32, Option<u32>), Vec<u16>>,
    /// Is there never more than one possible state?
    is_single: bool,
    /// The rows as certificates have them: JSON.
    document: String,
}

/// What the rows of one function have in common.
#[derive(Clone, Copy, Debug)]
struct TableFunction {
    number: u32,
    /// Does a row have an argument?
    has_argument: bool,
    /// Does a row have a result?
    has_result: bool,
    /// Does a row lead to another state?
    changes: bool,
}

/// State, function, argument and result of a row; `None`: any.
type RowPattern = (u16, u32, Option<u32>, Option<u32>);

/// The number of all values that no row has: no row distinguishes them.
const UNLISTED: u32 = 0;

/// An operation as a table has it. Values are numbered by the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableOperation {
    function: u32,
    argument: u32,
    /// `None`: not known.
    result: Option<u32>,
    changes: bool,
}

impl TableModel {
    /// Maximum number of states.
    pub const STATES_MAX: usize = 4_096;

    /// Maximum number of rows, of which one for all states is as many as there are states.
    pub const ROWS_MAX: usize = 65_536;

    /// The state of a row that applies in all states.
    pub const ANY_STATE: &'static str = "*";

    /// The next state of a row that changes nothing.
    pub const SAME_STATE: &'static str = "same";

    /// The table of these rows. The error is the first row that is wrong, or that contradicts an earlier one.
    pub fn new(initial: &str, rows: &[StateTableRow]) -> Result<TableModel, TableError> {
        let whole = |part, reason| TableError {
            row: None,
            part,
            reason,
        };
        if rows.is_empty() {
            return Err(whole("rows", "there must be at least one row".into()));
        }
        let numbers = state_numbers(initial, rows)?;
        let every = rows.iter().filter(|row| row.state == Self::ANY_STATE);
        let every = every.count().saturating_mul(numbers.len());
        let named = rows.iter().filter(|row| row.state != Self::ANY_STATE);
        let all = every.saturating_add(named.count());
        if all > Self::ROWS_MAX {
            let reason = format!(
                "{all} rows, counting one for \"*\" once for each state; there must be at most {}",
                Self::ROWS_MAX
            );
            return Err(whole("rows", reason));
        }
        let mut states = vec![String::new(); numbers.len()];
        for (name, &number) in &numbers {
            (*name).clone_into(&mut states[number as usize]);
        }
        let Some(&initial) = numbers.get(initial) else {
            return Err(whole("initial", unknown_state(initial)));
        };
        let initial_name = states[initial as usize].as_str();
        let document = document(initial_name, rows);
        let mut model = TableModel {
            states,
            initial,
            document,
            ..TableModel::default()
        };
        model.fill(rows, &numbers)?;
        model.is_single = model.leads_to_one_state();
        debug_assert!(model.certain.len() <= Self::ROWS_MAX, "rows were counted");
        Ok(model)
    }

    /// Adds the rows.
    fn fill(
        &mut self,
        rows: &[StateTableRow],
        numbers: &FixedMap<&str, u16>,
    ) -> Result<(), TableError> {
        let mut overlaps = RowOverlaps::default();
        for (place, row) in rows.iter().enumerate() {
            let begins = match numbers.get(row.state.as_str()) {
                Some(&state) => state..=state,
                None => 0..=(numbers.len() - 1) as u16,
            };
            let argument = row.argument.as_ref().map(|value| self.listed(value));
            let result = row.result.as_ref().map(|value| self.listed(value));
            let number = self.functions.len() as u32;
            let function = self.functions.entry(row.operation.clone());
            let function = function.or_insert(TableFunction {
                number,
                has_argument: false,
                has_result: false,
                changes: false,
            });
            function.has_argument |= argument.is_some();
            function.has_result |= result.is_some();
            for state in begins {
                let next = if row.next == Self::SAME_STATE {
                    state
                } else {
                    *numbers.get(row.next.as_str()).ok_or_else(|| TableError {
                        row: Some(place),
                        part: "next",
                        reason: unknown_state(&row.next),
                    })?
                };
                function.changes |= next != state;
                let pattern = (state, function.number, argument, result);
                if let Some((earlier, other)) = overlaps.add(pattern, (place, next)) {
                    let reason = format!(
                        "contradicts rows[{earlier}]: in state {:?} the same `{}` leads to {:?} \
                         there, and to {:?} here",
                        self.states[state as usize],
                        row.operation,
                        self.states[other as usize],
                        self.states[next as usize],
                    );
                    return Err(TableError {
                        row: Some(place),
                        part: "next",
                        reason,
                    });
                }
                self.certain.insert(pattern, next);
                let nexts = self.unknown.entry((state, function.number, argument));
                let nexts = nexts.or_default();
                if !nexts.contains(&next) {
                    nexts.push(next);
                }
            }
        }
        Ok(())
    }

    /// Does every operation of unknown result lead to one state?
    fn leads_to_one_state(&self) -> bool {
        self.unknown.iter().all(|(&(state, function, _), nexts)| {
            // A row for any argument applies beside this one.
            let others = self.unknown.get(&(state, function, None));
            nexts.len() == 1 && others.is_none_or(|others| others == nexts)
        })
    }

    /// The number of a value of a row.
    fn listed(&mut self, value: &Value) -> u32 {
        let number = self.values.len() as u32 + 1;
        *self.values.entry(value.to_string()).or_insert(number)
    }

    /// The number of a value of a history. Equal values print alike.
    fn number(&self, value: &Value) -> u32 {
        let number = self.values.get(&plain_value(value).to_string());
        number.copied().unwrap_or(UNLISTED)
    }

    /// The printed form of a value of a row.
    fn printed(&self, number: u32) -> &str {
        let found = self.values.iter().find(|(_, listed)| **listed == number);
        found.map_or("a value of no row", |(text, _)| text)
    }
}

/// The table as JSON: the initial state, and rows of state, operation, argument, result, next state; null stands for any.
fn document(initial: &str, rows: &[StateTableRow]) -> String {
    let value = |value: &Option<Value>| match value {
        Some(value) => quoted(&value.to_string()),
        None => "null".to_owned(),
    };
    let rows = rows.iter().map(|row| {
        let parts = [
            quoted(&row.state),
            quoted(&row.operation),
            value(&row.argument),
            value(&row.result),
            quoted(&row.next),
        ];
        format!("[{}]", parts.join(","))
    });
    let rows: Vec<String> = rows.collect();
    format!(
        "{{\"initial\":{},\"rows\":[{}]}}",
        quoted(initial),
        rows.join(",")
    )
}

/// A text in JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..='\u{1f}' => {
                let _ = write!(quoted, "\\u{:04x}", character as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// The numbers of the states: those in which a row begins, in the order of the rows; without any, the first state.
fn state_numbers<'r>(
    initial: &'r str,
    rows: &'r [StateTableRow],
) -> Result<FixedMap<&'r str, u16>, TableError> {
    let mut numbers: FixedMap<&str, u16> = FixedMap::default();
    for (place, row) in rows.iter().enumerate() {
        let error = |reason| TableError {
            row: Some(place),
            part: "state",
            reason,
        };
        match row.state.as_str() {
            TableModel::ANY_STATE => continue,
            TableModel::SAME_STATE => {
                return Err(error(
                    "\"same\" is no state: as `next` it is the state before".into(),
                ));
            }
            _ => {}
        }
        let number = numbers.len();
        if number == TableModel::STATES_MAX && !numbers.contains_key(row.state.as_str()) {
            let most = TableModel::STATES_MAX;
            return Err(error(format!("there must be at most {most} states")));
        }
        numbers.entry(&row.state).or_insert(number as u16);
    }
    if numbers.is_empty() {
        numbers.insert(initial, 0);
    }
    Ok(numbers)
}

fn unknown_state(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    format!("unknown state {short:?}: no row has it as its `state`")
}

/// Finds rows that allow the same operation with the same result, and lead to different states.
///
/// Two rows overlap if they have the same state and function, and the same argument and result unless one has any. By each of the
/// four ways to leave out argument and result the first row is kept that has them, or has any: all rows that were accepted
/// before and overlap a row lead to one state only if each of them does, so up to two states are kept in each place.
#[derive(Default)]
struct RowOverlaps {
    /// The rows with this projection, of this shape: the first of each of two next states.
    projections: FixedMap<(RowPattern, u8, u8), Vec<(usize, u16)>>,
}

impl RowOverlaps {
    /// Adds a row. Returns an earlier one that contradicts it, and its next state.
    fn add(&mut self, row: RowPattern, (place, next): (usize, u16)) -> Option<(usize, u16)> {
        let shape = shape_of(row);
        for other in 0..4 {
            // What both shapes have.
            let common = projection(row, shape & other);
            let found = self.projections.get(&(common, other, shape & other));
            let different = found.and_then(|rows| rows.iter().find(|(_, known)| *known != next));
            if let Some(&different) = different {
                return Some(different);
            }
        }
        // Every part of the shape that another shape may share.
        for kept in (0..4).filter(|kept| kept & shape == *kept) {
            let rows = self
                .projections
                .entry((projection(row, kept), shape, kept))
                .or_default();
            if rows.len() < 2 && rows.iter().all(|(_, known)| *known != next) {
                rows.push((place, next));
            }
        }
        None
    }
}

/// Bit 0: the row has an argument; bit 1: it has a result.
fn shape_of((_, _, argument, result): RowPattern) -> u8 {
    u8::from(argument.is_some()) | u8::from(result.is_some()) << 1
}

/// The pattern with only these parts.
fn projection((state, function, argument, result): RowPattern, parts: u8) -> RowPattern {
    let argument = argument.filter(|_| parts & 1 == 1);
    (state, function, argument, result.filter(|_| parts & 2 == 2))
}

impl SequentialModel for TableModel {
    /// The possible states, in order; never none.
    type State = Box<[u16]>;
    type Operation = TableOperation;

    fn initial(&self) -> Box<[u16]> {
        [self.initial].into()
    }

    fn step(&self, states: &Box<[u16]>, operation: &TableOperation) -> Option<Box<[u16]>> {
        let (function, argument) = (operation.function, operation.argument);
        let mut possible = BTreeSet::new();
        for &state in states {
            for argument in [Some(argument), None] {
                if operation.result.is_none() {
                    let nexts = self.unknown.get(&(state, function, argument));
                    possible.extend(nexts.into_iter().flatten());
                    continue;
                }
                for result in [operation.result, None] {
                    possible.extend(self.certain.get(&(state, function, argument, result)));
                }
            }
        }
        (!possible.is_empty()).then(|| possible.into_iter().collect())
    }

    /// With several possible states, a read excludes some of them.
    fn is_read(&self, operation: &TableOperation) -> bool {
        self.is_single && !operation.changes
    }

    fn heap_bytes(&self, states: &Box<[u16]>) -> usize {
        size_of_val(&**states)
    }
}

impl HistoryModel for TableModel {
    fn name(&self) -> &'static str {
        "table-model"
    }

    fn certificate_type(&self) -> Option<String> {
        Some(format!("{} {}", self.name(), self.document))
    }

    fn missing_parameter(&self) -> Option<String> {
        let is_missing = self.states.is_empty();
        is_missing.then(|| "there is no table: the table [model] of a run's plan states it".into())
    }

    fn operation(
        &self,
        invocation: &Op,
        completion: Option<&Op>,
        _: &mut ValueNumbers,
    ) -> Result<Option<TableOperation>, Unfit> {
        // Without a table no history is read: the verdict has the reason already.
        if self.states.is_empty() {
            return Ok(None);
        }
        let Some(function) = self.functions.get(invocation.f.as_str()) else {
            let reason = format_args!("no row of the table has the operation `{}`", invocation.f);
            return Err(Unfit::new(invocation, reason));
        };
        let completed = completion.filter(|op| op.is_ok());
        // Without a result, what changes nothing constrains nothing.
        if completed.is_none() && !function.changes {
            return Ok(None);
        }
        // Values at which no row looks are all the same.
        let numbered = |value, is_used| {
            if is_used {
                self.number(value)
            } else {
                UNLISTED
            }
        };
        Ok(Some(TableOperation {
            function: function.number,
            argument: numbered(&invocation.value, function.has_argument),
            result: completed.map(|op| numbered(&op.value, function.has_result)),
            changes: function.changes,
        }))
    }

    fn argument(&self, operation: &TableOperation, _: &ValueNumbers) -> String {
        let mut functions = self.functions.values();
        let function = functions.find(|one| one.number == operation.function);
        let mut text = String::new();
        if function.is_some_and(|one| one.has_argument) {
            text = format!(" {}", self.printed(operation.argument));
        }
        match operation.result {
            Some(result) if function.is_some_and(|one| one.has_result) => {
                format!("{text} with result {}", self.printed(result))
            }
            _ => text,
        }
    }

    fn describe_state(&self, states: &Box<[u16]>, _: &ValueNumbers) -> String {
        const SHOWN_MAX: usize = 4;
        let names = states.iter().take(SHOWN_MAX);
        let names: Vec<&str> = names
            .map(|&state| self.states[state as usize].as_str())
            .collect();
        let rest = if states.len() > SHOWN_MAX {
            ", …"
        } else {
            ""
        };
        format!("it is {}{rest}", names.join(" or "))
    }
}
