//! The table `model` of a plan: a small data type as rows.

use super::drawn_value::{Draw, ValueType};
use super::fields::{Field, Result, TableReader};
use super::plan_options::Located;
use seatrial_history::Value;

/// Maximum number of rows.
const ROWS_MAX: usize = 65_536;

/// The table `model` of a plan: a data type of one object. What its rows mean is checked by the checker `table-model`.
#[derive(Clone, Debug)]
pub struct PlanModel {
    /// The state before the first operation.
    pub initial: Located<String>,
    /// At least one row.
    pub rows: Vec<PlanModelRow>,
}

/// A row of a [`PlanModel`].
#[derive(Clone, Debug)]
pub struct PlanModelRow {
    /// The state before.
    pub state: Located<String>,
    /// The function of the operation.
    pub operation: String,
    /// The value of the invocation; `None`: any.
    pub argument: Option<Value>,
    /// The value of the successful completion; `None`: any.
    pub result: Option<Value>,
    /// The state after.
    pub next: Located<String>,
}

impl PlanModel {
    pub(super) fn decode(field: &Field<'_>) -> Result<PlanModel> {
        const ROWS: &str =
            "a list of rows such as { state = \"free\", operation = \"acquire\", next = \"held\" }";
        let mut fields = field.table("a table with `initial` and `rows`")?;
        let initial = fields.take("initial");
        let rows = fields.take("rows");
        // A misspelt key is reported rather than the one that is missing.
        if let Some(problem) = fields.unknown_key() {
            return Err(problem);
        }
        let initial =
            initial.ok_or_else(|| field.problem("missing key `initial`: the first state"))?;
        let rows = rows.ok_or_else(|| field.problem(format!("missing key `rows`: {ROWS}")))?;
        let items = rows.items(ROWS)?;
        if items.is_empty() {
            return Err(rows.wrong("a list of at least one row"));
        }
        if items.len() > ROWS_MAX {
            let reason = format!("must have at most {ROWS_MAX} rows, not {}", items.len());
            return Err(rows.problem(reason));
        }
        Ok(PlanModel {
            initial: name(&initial)?,
            rows: items
                .iter()
                .map(PlanModelRow::decode)
                .collect::<Result<_>>()?,
        })
    }
}

impl PlanModelRow {
    fn decode(field: &Field<'_>) -> Result<PlanModelRow> {
        const KEYS: [&str; 3] = ["state", "operation", "next"];
        let mut fields = field.table("a row: a table with `state`, `operation` and `next`")?;
        let [state, operation, next] = KEYS.map(|key| fields.take(key));
        let argument = fixed(&mut fields, "argument")?;
        let result = fixed(&mut fields, "result")?;
        if let Some(problem) = fields.unknown_key() {
            return Err(problem);
        }
        let require = |found: Option<Field<'_>>, key| match found {
            Some(found) => name(&found),
            None => Err(field.problem(format!("missing key `{key}`: a name"))),
        };
        Ok(PlanModelRow {
            state: require(state, "state")?,
            operation: require(operation, "operation")?.value,
            argument,
            result,
            next: require(next, "next")?,
        })
    }
}

/// The name of a state or operation.
fn name(field: &Field<'_>) -> Result<Located<String>> {
    let text = field.text("a name")?.to_owned();
    if text.is_empty() {
        return Err(field.wrong("a name"));
    }
    Ok(Located::new(text, field.entry.at, &field.path))
}

/// A value that is not drawn.
fn fixed(fields: &mut TableReader<'_>, key: &'static str) -> Result<Option<Value>> {
    fields.read(key, |field| {
        let draw = Draw::decode(field, ValueType::Any)?;
        let value = draw.constant();
        value.ok_or_else(|| field.problem(format!("must be one value, not a drawn one: {draw}")))
    })
}
