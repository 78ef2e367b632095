//! The TOML reader: text to a document with byte positions.

use super::syntax;
use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use seatrial_plan::Problem;
use seatrial_plan::document::{DEPTH_MAX, EntryName, PlanEntry, PlanValue};

/// Parses a text as a document.
pub(super) fn document(text: &str) -> Result<PlanEntry, Problem> {
    let parsed = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let lines: Vec<&str> = error.message().lines().collect();
        syntax(at, format!("this is not TOML: {}", lines.join("; ")))
    })?;
    table(parsed.get_ref(), 0, 0)
}

fn table(fields: &DeTable<'_>, at: usize, depth: usize) -> Result<PlanEntry, Problem> {
    deep(at, depth)?;
    let mut entries = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let name = EntryName {
            at: name.span().start,
            text: name.get_ref().to_string(),
        };
        entries.push((name, entry(value, depth + 1)?));
    }
    // The parser returns entries sorted by name; a plan is read in the order of its text.
    entries.sort_by_key(|(name, _)| name.at);
    Ok(PlanEntry {
        at,
        value: PlanValue::Table(entries),
    })
}

fn deep(at: usize, depth: usize) -> Result<(), Problem> {
    if depth > DEPTH_MAX {
        return Err(syntax(
            at,
            format!("lists and tables are nested more than {DEPTH_MAX} deep"),
        ));
    }
    Ok(())
}

fn entry(value: &Spanned<DeValue<'_>>, depth: usize) -> Result<PlanEntry, Problem> {
    let at = value.span().start;
    let value = match value.get_ref() {
        DeValue::String(text) => PlanValue::Text(text.to_string()),
        DeValue::Boolean(flag) => PlanValue::Bool(*flag),
        DeValue::Integer(number) => {
            let whole = i64::from_str_radix(number.as_str(), number.radix());
            PlanValue::Int(whole.map_err(|_| {
                syntax(
                    at,
                    "a whole number must be from -9223372036854775808 to 9223372036854775807",
                )
            })?)
        }
        DeValue::Float(number) => {
            let float: Option<f64> = number.as_str().parse().ok();
            PlanValue::Float(float.ok_or_else(|| syntax(at, "invalid number"))?)
        }
        DeValue::Datetime(_) => {
            return Err(syntax(at, "dates are not supported; put text in quotes"));
        }
        DeValue::Array(items) => {
            deep(at, depth)?;
            let items = items.iter().map(|item| entry(item, depth + 1));
            PlanValue::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(fields) => return table(fields, at, depth),
    };
    Ok(PlanEntry { at, value })
}
