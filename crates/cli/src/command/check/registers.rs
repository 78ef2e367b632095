//! What the checker of registers is told about keys.

use crate::args::CheckArguments;
use crate::times;
use anyhow::{Context as _, Result, ensure};
use seatrial_checker::txn::Inference;
use seatrial_checker::{Checker, rw_register};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;

/// These checkers, with what `--infer` and `--transaction-order` say to the one of registers, which judges by `model`.
pub(super) fn infer(
    checkers: Vec<Box<dyn Checker>>,
    attributes: &Json,
    model: Option<&str>,
    arguments: &CheckArguments,
) -> Result<Vec<Box<dyn Checker>>> {
    if arguments.infer.is_empty() && arguments.transaction_order.is_none() {
        return Ok(checkers);
    }
    let inference = inference(attributes, arguments)?;
    let model = model.or_else(|| attributes["options"]["model"].as_str());
    let mut checker = rw_register(model, inference)?;
    if let Some(path) = &arguments.transaction_order {
        checker = checker.with_order(order(path)?);
    }
    let name = checker.name();
    ensure!(
        checkers.iter().any(|one| one.name() == name),
        "--infer and --transaction-order are for the checker rw-register"
    );
    let told = checkers.into_iter().map(|one| -> Box<dyn Checker> {
        if one.name() == name {
            Box::new(checker.clone())
        } else {
            one
        }
    });
    Ok(told.collect())
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
