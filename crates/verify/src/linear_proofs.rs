//! The replay of certificates about operations on data types: linearizations, and operations that have none.

mod core_search;
mod further_core;
mod further_replay;
mod further_types;
mod linear_model;
mod linearization_replay;
mod operation_table;
mod outside_writes;
#[cfg(test)]
mod tests;

use crate::certificate::{Certificate, LINEARIZABLE, LinearCore, Proof};
use crate::verifier::Unproven;
use further_types::FurtherType;
use linear_model::LinearModel;
pub(crate) use operation_table::OperationTable;
use seatrial_history::{ChunkSource, SourceError};
use std::ops::ControlFlow;

/// Checks that the proof holds for the operations of a history that has ended.
pub(super) fn verify(
    table: &mut OperationTable,
    certificate: &Certificate,
    steps_max: u64,
) -> Result<(), Unproven> {
    table.end()?;
    if certificate.model != LINEARIZABLE {
        return Err(format!("this says nothing about {}", certificate.model).into());
    }
    match &certificate.proof {
        Proof::Linearization(linearization) => {
            if let Some(kind) = FurtherType::by_name(&linearization.data_type) {
                return Ok(further_replay::replay(table, &kind?, linearization)?);
            }
            let model = LinearModel::by_name(&linearization.data_type)?;
            Ok(linearization_replay::replay(table, model, linearization)?)
        }
        Proof::Nonlinearizable(core) => refute(table, core, steps_max),
        _ => Err(
            "this says nothing about operations that are no transactions"
                .to_owned()
                .into(),
        ),
    }
}

/// Checks that the operations of a core have no linearization.
fn refute(table: &OperationTable, core: &LinearCore, steps_max: u64) -> Result<(), Unproven> {
    if let Some(kind) = FurtherType::by_name(&core.data_type) {
        return further_core::refute(table, &kind?, core, steps_max);
    }
    let model = LinearModel::by_name(&core.data_type)?;
    core_search::refute(table, model, core, steps_max)
}

/// The part of the verifier that says whether operations alone have no linearization, for making a core small before it is
/// written. 32 bytes an operation.
pub struct CoreVerifier {
    table: OperationTable,
}

impl CoreVerifier {
    /// Reads a history once. The error is that of an unreadable source.
    pub fn read(source: &dyn ChunkSource) -> Result<CoreVerifier, SourceError> {
        let mut table = OperationTable::keeping_transactions();
        source.round(&mut |chunk| {
            table.take(chunk);
            ControlFlow::Continue(())
        })?;
        Ok(CoreVerifier { table })
    }

    /// The places that a core with this object, cut and elements must name, whatever else it names.
    pub fn required(&mut self, core: &LinearCore) -> Result<Vec<u64>, Unproven> {
        self.table.end()?;
        if FurtherType::by_name(&core.data_type).is_some() {
            return Ok(Vec::new());
        }
        let model = LinearModel::by_name(&core.data_type)?;
        Ok(core_search::required(&self.table, model, core)?)
    }

    /// Does this core hold? Bounded by `steps_max` steps, each some words of memory.
    pub fn refute(&mut self, core: &LinearCore, steps_max: u64) -> Result<(), Unproven> {
        self.table.end()?;
        refute(&self.table, core, steps_max)
    }
}
