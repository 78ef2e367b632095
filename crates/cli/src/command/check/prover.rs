//! Who judges transactions.

use super::rounds::Text;
use super::{choice, registers};
use crate::args::CheckArguments;
use crate::times::Promise;
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_checker::infer::Shapes;
use seatrial_checker::txn::isolation::{Isolation, Model};
use seatrial_checker::txn::registers::Columns;
use seatrial_checker::txn::{Level, ListAppend, RwRegister};
use seatrial_checker::{Certificate, Verdict};
use seatrial_history::{Chunks, Folder, History};
use seatrial_machine::unknown_name;
use serde_json::Value as Json;

/// The names of the checkers that prove their verdicts.
const PROVERS: [&str; 3] = ["list-append", "rw-register", Isolation::NAME];

/// A checker of transactions, which proves its verdicts.
pub(super) enum Prover {
    Lists(ListAppend),
    Registers(Isolation),
    Inferred(RwRegister),
}

impl Prover {
    /// The one that was asked for, else the one that is usual for a history of these attributes that looks so, by the model
    /// that was asked for or the one that is usual.
    pub(super) fn new(
        arguments: &CheckArguments,
        attributes: &Json,
        look: impl FnOnce() -> Result<History>,
    ) -> Result<Prover> {
        let promise = Promise::of(arguments.model.as_deref(), attributes);
        let model = promise.model();
        let unknown = |name: &str, models: Vec<&'static str>| unknown_name("model", name, models);
        let levels = || Level::all().map(Level::name).collect();
        let infers = !arguments.infer.is_empty() || arguments.transaction_order.is_some();
        let name = match (
            arguments.checker.as_deref(),
            attributes["workload"].as_str(),
        ) {
            (Some([name]), _) => name.clone(),
            (None, Some(workload)) if PROVERS.contains(&workload) => workload.to_owned(),
            (None, _) => match choice::inferred(attributes, infers, || Ok(Shapes::of(&look()?)))? {
                Ok((name, _)) => name.to_owned(),
                Err(unclear) => bail!("{unclear}"),
            },
            _ => String::new(),
        };
        ensure!(
            arguments.infer.is_empty() || name == "rw-register",
            "--infer is for the checker rw-register"
        );
        ensure!(
            arguments.transaction_order.is_none() || name != "list-append",
            "--transaction-order is for the checkers rw-register and isolation"
        );
        match name.as_str() {
            Isolation::NAME => {
                let model = match model {
                    None => Model::default(),
                    Some(name) => Model::by_name(name)
                        .with_context(|| unknown(name, Model::all().map(Model::name).collect()))?,
                };
                let checker = registers::ordered(Isolation::new(model), arguments)?;
                Ok(Prover::Registers(checker))
            }
            "rw-register" => {
                let checker = registers::checker(attributes, model, arguments)?;
                Ok(Prover::Inferred(checker))
            }
            "list-append" => {
                let level = match model {
                    None => Level::default(),
                    Some(name) => Level::by_name(name).with_context(|| unknown(name, levels()))?,
                };
                Ok(Prover::Lists(ListAppend::new(level)))
            }
            _ => bail!(
                "only list-append, rw-register and isolation prove their verdicts, one at a time"
            ),
        }
    }

    pub(super) fn certify<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<(Verdict, Option<Certificate>)>
    where
        C::Error: Send + Sync,
    {
        Ok(match self {
            Prover::Lists(checker) => checker.certify(folder)?,
            Prover::Registers(checker) => checker.certify(folder)?,
            Prover::Inferred(checker) => checker.certify(folder)?,
        })
    }

    /// The same of a text, chunk by chunk.
    pub(super) fn certify_text(&self, text: &Text) -> Result<(Verdict, Option<Certificate>)> {
        Ok(match self {
            Prover::Lists(checker) => checker.certify_rounds(text, true)?,
            Prover::Registers(checker) => checker.certify_gathered(Columns::of_rounds(text)?),
            Prover::Inferred(checker) => checker.certify_gathered(Columns::of_rounds(text)?),
        })
    }

    /// Judges a text without proving anything, chunk by chunk.
    pub(super) fn judge_text(&self, text: &Text) -> Result<Verdict> {
        Ok(match self {
            Prover::Lists(checker) => checker.certify_rounds(text, false)?.0,
            Prover::Registers(checker) => checker.judge_gathered(Columns::of_rounds(text)?),
            Prover::Inferred(checker) => checker.judge_gathered(Columns::of_rounds(text)?),
        })
    }
}
