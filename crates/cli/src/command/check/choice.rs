//! Which checkers a history is for, and why.

use crate::args::CheckArguments;
use crate::times::{self, Promise};
use anyhow::Result;
use seatrial_checker::infer::{Guess, Shapes, of_workload};
use seatrial_checker::{Checker, UnknownName, Verdict, by_name, for_workload};
use serde_json::Value as Json;

/// Checkers, and why these.
pub(super) struct Choice {
    pub(super) checkers: Vec<Box<dyn Checker>>,
    /// In words, for people: `list-append: asked for`.
    pub(super) why: Option<String>,
    /// The verdict when nothing said which checker is meant, and the operations did not either.
    pub(super) unclear: Option<Verdict>,
}

/// Was this history written by Jepsen, whose test suites name their workloads as they like?
fn is_foreign(attributes: &Json) -> bool {
    attributes["format"] == "jepsen"
}

/// Why checkers of these names were chosen; counts go with all of them.
pub(super) fn because<'a>(names: impl IntoIterator<Item = &'a str>, why: &str) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let others = names.iter().filter(|name| **name != "stats");
    let others: Vec<&str> = others.copied().collect();
    let shown = if others.is_empty() { names } else { others };
    format!("{}: {why}", shown.join(", "))
}

/// The name of the checker that operations are for, and why; the error is the reason for people when that is unclear.
/// `look` summarises the operations.
pub(super) fn inferred(
    attributes: &Json,
    infers: bool,
    look: impl FnOnce() -> Result<Shapes>,
) -> Result<Result<(&'static str, String), String>> {
    let shapes = look()?;
    let workload = attributes["workload"].as_str();
    let named = workload.filter(|_| is_foreign(attributes));
    let checker = named.and_then(of_workload);
    if let Some((name, workload)) = checker.zip(named)
        && shapes.refusal(name).is_none()
    {
        return Ok(Ok((name, format!("by workload `{workload}` of the file"))));
    }
    Ok(match shapes.guess() {
        // Without times little can be inferred, but everything decided.
        Guess::Checker {
            name: "rw-register",
            because,
        } if times::is_timeless(attributes) && !infers => Ok((
            "isolation",
            format!("chosen from the operations ({because}, without times)"),
        )),
        Guess::Checker { name, because } => {
            Ok((name, format!("chosen from the operations ({because})")))
        }
        Guess::Unclear { reason, options } => Err(unclear(&reason, &options)),
    })
}

/// Why no checker was chosen, with the options to give.
fn unclear(reason: &str, options: &[&str]) -> String {
    let options: Vec<String> = options
        .iter()
        .map(|name| format!("--checker {name}"))
        .collect();
    let remedy = match &options[..] {
        [] => "name one with --checker".to_owned(),
        options => format!("name it with {}", options.join(" or ")),
    };
    format!("cannot infer a checker from the operations: {reason}; {remedy}")
}

/// The checkers: those asked for, else those of the file's plan or workload, else what all its operations look like.
pub(super) fn choose(
    attributes: &Json,
    arguments: &CheckArguments,
    promise: &Promise,
    look: impl FnOnce() -> Result<Shapes>,
) -> Result<Choice> {
    let model = promise.model();
    let chosen = |checkers: Vec<Box<dyn Checker>>, why: &str| {
        let names = checkers.iter().map(|one| one.name());
        let why = Some(because(names, why));
        Choice {
            checkers,
            why,
            unclear: None,
        }
    };
    // A model that nobody asked for is for those that have it; timestamps have their own.
    let named = |name: &str, model: Option<&str>| match by_name(name, model) {
        _ if name == "timestamps" => by_name(name, arguments.model.as_deref()),
        Err(UnknownName::NoModels { .. } | UnknownName::Model { .. })
            if arguments.model.is_none() =>
        {
            by_name(name, None)
        }
        found => found,
    };
    if let Some(names) = &arguments.checker {
        let checkers = names.iter().map(|name| named(name, model));
        return Ok(chosen(checkers.collect::<Result<_, _>>()?, "asked for"));
    }
    // A plan may say who judges.
    if let Some(names) = attributes["checkers"].as_array() {
        let model = model.or_else(|| attributes["options"]["model"].as_str());
        let names = names.iter().filter_map(Json::as_str);
        let checkers = names.map(|name| match by_name(name, model) {
            Err(UnknownName::NoModels { .. }) if arguments.model.is_none() => by_name(name, None),
            found => found,
        });
        let checkers = checkers.collect::<Result<_, _>>()?;
        return Ok(chosen(checkers, "by the plan of the file"));
    }
    if let Some(workload) = attributes["workload"].as_str()
        && !is_foreign(attributes)
    {
        match for_workload(workload, model) {
            // A test of a program of one's own, which named its workload as it liked.
            Err(UnknownName::Checker { .. }) => {}
            found => {
                let why = format!("by workload `{workload}` of the file");
                return Ok(chosen(found?, &why));
            }
        }
    }
    let is_stamped = attributes["format"] == "timekiller";
    if is_stamped && let Ok(timestamps) = by_name("timestamps", arguments.model.as_deref()) {
        return Ok(chosen(vec![timestamps], "by the format of the file"));
    }
    let infers = !arguments.infer.is_empty() || arguments.transaction_order.is_some();
    Ok(match inferred(attributes, infers, look)? {
        Ok((name, why)) => chosen(vec![named(name, model)?], &why),
        Err(reason) => Choice {
            checkers: Vec::new(),
            why: None,
            unclear: Some(Verdict::valid("none").unknown(reason)),
        },
    })
}
