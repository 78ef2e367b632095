//! What the checkers of registers are told besides.

use crate::args::CheckArguments;
use crate::times;
use anyhow::{Context as _, Result, ensure};
use seatrial_checker::txn::isolation::{Isolation, Model};
use seatrial_checker::txn::{Inference, RwRegister};
use seatrial_checker::{Checker, rw_register};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;

/// These checkers, with what `--infer` and `--transaction-order` say to those of registers, which judge by `model`.
pub(super) fn infer(
    checkers: Vec<Box<dyn Checker>>,
    attributes: &Json,
    model: Option<&str>,
    arguments: &CheckArguments,
) -> Result<Vec<Box<dyn Checker>>> {
    if arguments.infer.is_empty() && arguments.transaction_order.is_none() {
        return Ok(checkers);
    }
    let is_there = |name: &str| checkers.iter().any(|one| one.name() == name);
    let (infers, decides) = (is_there("rw-register"), is_there(Isolation::NAME));
    ensure!(
        infers || arguments.infer.is_empty(),
        "--infer is for the checker rw-register"
    );
    ensure!(
        infers || decides,
        "--transaction-order is for the checkers rw-register and isolation"
    );
    let decided = model.filter(|_| arguments.checker.is_some());
    let model = model.or_else(|| attributes["options"]["model"].as_str());
    let decided = decided.or_else(|| model.filter(|_| arguments.checker.is_none()));
    let told = checkers.into_iter().map(|one| -> Result<Box<dyn Checker>> {
        if one.name() == Isolation::NAME {
            let model = decided.and_then(Model::by_name).unwrap_or_default();
            return Ok(Box::new(ordered(Isolation::new(model), arguments)?));
        }
        if one.name() != "rw-register" {
            return Ok(one);
        }
        Ok(Box::new(checker(attributes, model, arguments)?))
    });
    told.collect()
}

/// The checker with the order that `--transaction-order` names for its first guess.
pub(super) fn ordered(checker: Isolation, arguments: &CheckArguments) -> Result<Isolation> {
    Ok(match &arguments.transaction_order {
        Some(path) => checker.with_order(order(path)?),
        None => checker,
    })
}

/// The checker of registers that judges by `model`, with what `--infer` and `--transaction-order` say to it.
pub(super) fn checker(
    attributes: &Json,
    model: Option<&str>,
    arguments: &CheckArguments,
) -> Result<RwRegister> {
    let inference = inference(attributes, arguments)?;
    let model = model.or_else(|| attributes["options"]["model"].as_str());
    let mut checker = rw_register(model, inference)?;
    if let Some(path) = &arguments.transaction_order {
        checker = checker.with_order(order(path)?);
    }
    Ok(checker)
}

/// What `--infer` says, if that can be said of a history with these attributes.
pub(super) fn inference(attributes: &Json, arguments: &CheckArguments) -> Result<Inference> {
    let inference = Inference::by_names(&arguments.infer)?;
    ensure!(
        !inference.linearizable_keys || !times::is_timeless(attributes),
        "this history does not say when its transactions ran: nothing follows from linearizable-keys"
    );
    Ok(inference)
}

/// Numbers by index of completion.
fn order(path: &Path) -> Result<Vec<(u64, i64)>> {
    let context = || format!("{}: no object of numbers by index", path.display());
    let text = std::fs::read_to_string(path).with_context(context)?;
    let order: BTreeMap<String, i64> = serde_json::from_str(&text).with_context(context)?;
    let order = order.into_iter().map(|(index, number)| {
        let index = index.parse().with_context(context)?;
        Ok((index, number))
    });
    order.collect()
}
