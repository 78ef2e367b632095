//! The verifier: a second opinion that shares no code with the checkers, and is simple on purpose.

use crate::certificate::{Certificate, CycleEdge, Evidence, Fingerprint, Proof};
use crate::linear_proofs::{self, OperationTable};
use crate::transaction_table::TransactionTable;
use crate::{list_findings, models, register_proofs};
use seatrial_history::{Chunk, ChunkSource, History, SourceError};
use std::ops::ControlFlow;

/// Steps that the replay of a core may take, each some words of memory: about a second.
const STEPS_MAX: u64 = 2_000_000_000;

/// Why a certificate is not accepted, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// It does not prove what it claims.
    #[error("{0}")]
    Refuted(String),
    /// The verifier reached its bound, so it is unknown whether the certificate proves its claim.
    #[error("not settled after {steps} steps")]
    Unsettled {
        /// The verifier's bound.
        steps: u64,
    },
}

impl From<String> for Unproven {
    fn from(reason: String) -> Unproven {
        Unproven::Refuted(reason)
    }
}

/// Checks that a certificate proves its claim about this history of transactions on lists or registers, or of operations on
/// a data type. See [`Verifier::verify`].
pub fn verify(history: &History, certificate: &Certificate) -> Result<(), Unproven> {
    let verifier = Verifier::read_for(history, certificate).map_err(|error| error.to_string())?;
    verifier.verify(certificate)
}

/// The history as the verifier sees it: read once, chunk by chunk, into columns of its own.
///
/// About 30 bytes a transaction with its place in an order, 3 to 4 bytes a micro-operation on lists (5 to 8 on registers)
/// and 2 bytes an element that was read: 45 bytes a transaction of four micro-operations, 450 MB for 10^7. It reads no
/// times and infers nothing: its only assumptions are those that a certificate names. Operations that are no transactions
/// take 32 bytes each, and one bit while a linearization is replayed.
pub struct Verifier {
    table: TransactionTable,
    /// The operations of a history without transactions.
    operations: OperationTable,
    steps_max: u64,
}

impl Default for Verifier {
    fn default() -> Verifier {
        Verifier {
            table: TransactionTable::default(),
            operations: OperationTable::default(),
            steps_max: STEPS_MAX,
        }
    }
}

impl Verifier {
    /// Reads a history once. The error is that of an unreadable source.
    pub fn read(source: &dyn ChunkSource) -> Result<Verifier, SourceError> {
        let mut verifier = Verifier::default();
        source.round(&mut |chunk| {
            verifier.take(chunk);
            ControlFlow::Continue(())
        })?;
        Ok(verifier)
    }

    /// Reads a history once, for this certificate: with its transactions as operations of a data type if it is about one.
    pub fn read_for(
        source: &dyn ChunkSource,
        certificate: &Certificate,
    ) -> Result<Verifier, SourceError> {
        let mut verifier = Verifier::default();
        if is_about_operations(certificate) {
            verifier.operations = OperationTable::keeping_transactions();
        }
        source.round(&mut |chunk| {
            verifier.take(chunk);
            ControlFlow::Continue(())
        })?;
        Ok(verifier)
    }

    /// Sets the bound for the replay of a core, in words of memory looked at.
    pub fn with_bound(self, steps_max: u64) -> Verifier {
        Verifier { steps_max, ..self }
    }

    /// Reads the next chunk of the history.
    pub fn take(&mut self, chunk: &Chunk) {
        self.table.take(chunk);
        self.operations.take(chunk);
    }

    /// The fingerprint of the history so far.
    pub fn fingerprint(&self) -> Fingerprint {
        if self.operations.is_used() {
            self.operations.fingerprint
        } else {
            self.table.fingerprint
        }
    }

    /// Checks that a certificate proves its claim about the history that was read.
    ///
    /// Orders are replayed: each transaction must see what it saw, and follow the transactions before it in real time or
    /// in its process if the model asks for that. Findings are looked up: the operations must show each edge of a cycle,
    /// the kinds of edges must be those of the anomaly, and the model must forbid it. A linearization is executed on a
    /// sequential model; of operations without one all orders are tried.
    pub fn verify(mut self, certificate: &Certificate) -> Result<(), Unproven> {
        let own = self.fingerprint();
        if let Some(other) = certificate.history.filter(|&other| other != own) {
            return Err(
                format!("it is about another history ({other}; this one has {own})").into(),
            );
        }
        if is_about_operations(certificate) {
            return linear_proofs::verify(&mut self.operations, certificate, self.steps_max);
        }
        self.table.end()?;
        let table = &self.table;
        let model = certificate.model.as_str();
        if let Proof::Findings(findings) = &certificate.proof {
            if findings.is_empty() {
                return Err("it has no findings".to_owned().into());
            }
            let other = findings
                .iter()
                .find(|finding| !models::forbids(model, &finding.anomaly));
            if let Some(Evidence { anomaly, .. }) = other {
                return Err(format!("{model} does not forbid {anomaly}").into());
            }
        }
        let is_of_lists = table.is_of_lists || {
            // A history in which all reads are empty can be one of lists or of registers.
            !table.is_of_registers
                && list_findings::list_orders::is_known(model, &certificate.proof)
        };
        match &certificate.proof {
            _ if !is_of_lists => register_proofs::verify(table, certificate, self.steps_max),
            Proof::Findings(findings) => Ok(list_findings::findings(table, findings)?),
            Proof::Core(places) => {
                list_findings::list_core::core(table, model, places, self.steps_max)
            }
            proof => Ok(list_findings::list_orders::replay(table, model, proof)?),
        }
    }
}

/// Is it about operations on a data type, not about isolation?
fn is_about_operations(certificate: &Certificate) -> bool {
    matches!(
        certificate.proof,
        Proof::Linearization(_) | Proof::Nonlinearizable(_)
    )
}

/// Checks that each step of this cycle exists and begins where the one before ends, and that the kinds of the steps are
/// those of the anomaly.
pub(crate) fn cycle(
    finding: &Evidence,
    mut precedes: impl FnMut(&CycleEdge) -> Result<bool, String>,
) -> Result<(), String> {
    let steps = &finding.steps;
    if let Some(step) = steps.iter().find(|step| step.from == step.to) {
        return Err(format!("op {} does not precede itself", step.from));
    }
    for (at, step) in steps.iter().enumerate() {
        let CycleEdge {
            from, to, relation, ..
        } = step;
        if *to != steps[(at + 1) % steps.len()].from {
            return Err(format!(
                "the step to op {to} is not followed by one from there"
            ));
        }
        if !precedes(step)? {
            return Err(format!(
                "nothing shows that op {from} precedes op {to} by {relation}"
            ));
        }
    }
    let kinds: Vec<_> = steps.iter().map(|step| step.relation.as_str()).collect();
    let named = models::cycle_name(&kinds);
    if named != finding.anomaly {
        return Err(format!("this cycle is a {named}"));
    }
    Ok(())
}
