//! The replay of certificates about operations on data types: linearizations, and operations that have none.

mod core_search;
mod linear_model;
mod linearization_replay;
mod operation_table;
mod outside_writes;
#[cfg(test)]
mod tests;

use crate::certificate::{Certificate, LINEARIZABLE, LinearCore, Proof};
use crate::verifier::Unproven;
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
            let model = LinearModel::by_name(&linearization.data_type)?;
            Ok(linearization_replay::replay(table, model, linearization)?)
        }
        Proof::Nonlinearizable(core) => {
            let model = LinearModel::by_name(&core.data_type)?;
            core_search::refute(table, model, core, steps_max)
        }
        _ => Err(
            "this says nothing about operations that are no transactions"
                .to_owned()
                .into(),
        ),
    }
}

/// The part of the verifier that says whether operations alone have no linearization, for making a core small before it is
/// written. 32 bytes an operation.
pub struct CoreVerifier {
    table: OperationTable,
}

impl CoreVerifier {
    /// Reads a history once. The error is that of an unreadable source.
    pub fn read(source: &dyn ChunkSource) -> Result<CoreVerifier, SourceError> {
        let mut table = OperationTable::default();
        source.round(&mut |chunk| {
            table.take(chunk);
            ControlFlow::Continue(())
        })?;
        Ok(CoreVerifier { table })
    }

    /// The places that a core with this object, cut and elements must name, whatever else it names.
    pub fn required(&mut self, core: &LinearCore) -> Result<Vec<u64>, Unproven> {
        self.table.end()?;
        let model = LinearModel::by_name(&core.data_type)?;
        Ok(core_search::required(&self.table, model, core)?)
    }

    /// Does this core hold? Bounded by `steps_max` steps, each some words of memory.
    pub fn refute(&mut self, core: &LinearCore, steps_max: u64) -> Result<(), Unproven> {
        self.table.end()?;
        let model = LinearModel::by_name(&core.data_type)?;
        core_search::refute(&self.table, model, core, steps_max)
    }
}
