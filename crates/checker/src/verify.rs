//! Replays a [`Certificate`]: a second opinion that shares no code with the checkers, and is dumb on purpose.

use crate::certificate::{Certificate, Edge, Evidence, Fingerprint, Proof};
use seatrial_history::{Chunk, ChunkBuffer, Chunks, History};
use table::Table;

mod clock;
mod elements;
mod groups;
mod lists;
mod models;
mod records;
mod registers;
mod table;

/// Steps that a core may take, some words of memory each: about a second's work.
const STEPS_MAX: u64 = 2_000_000_000;

/// Why a certificate is not accepted, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// It does not prove what it says.
    #[error("{0}")]
    Refuted(String),
    /// Nobody knows whether it does: the verifier gave up.
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

/// Does this certificate prove what it says about this history of transactions on lists or registers? See
/// [`Verifier::verify`].
pub fn verify(history: &History, certificate: &Certificate) -> Result<(), Unproven> {
    let verifier = Verifier::read(history).map_err(|error| error.to_string())?;
    verifier.verify(certificate)
}

/// A history as the verifier of certificates sees it: read once, chunk by chunk, into columns of its own.
///
/// About 30 bytes a transaction with its place in an order, 3 to 4 bytes a micro-operation on lists (5 to 8 on registers)
/// and 2 bytes an element that was read: 45 bytes a transaction of four micro-operations, 450 MB for 10^7. It reads no
/// times and knows nothing of inference: what it takes for granted is what a certificate names.
pub struct Verifier {
    table: Table,
    steps_max: u64,
}

impl Default for Verifier {
    fn default() -> Verifier {
        Verifier {
            table: Table::default(),
            steps_max: STEPS_MAX,
        }
    }
}

impl Verifier {
    /// Reads all chunks. The error is that of a chunk that cannot be read.
    pub fn read<C: Chunks>(chunks: &C) -> Result<Verifier, C::Error> {
        let mut verifier = Verifier::default();
        let mut buffer = ChunkBuffer::default();
        for number in 0..chunks.chunk_count() {
            if let Some(chunk) = chunks.read_chunk(number, &mut buffer)? {
                verifier.take(chunk);
            }
        }
        Ok(verifier)
    }

    /// The same, giving up on a core after so many steps (words of memory looked at).
    pub fn with_bound(self, steps_max: u64) -> Verifier {
        Verifier { steps_max, ..self }
    }

    /// The next chunk of the history.
    pub fn take(&mut self, chunk: &Chunk) {
        self.table.take(chunk);
    }

    /// The fingerprint of what was read so far.
    pub fn fingerprint(&self) -> Fingerprint {
        self.table.fingerprint
    }

    /// Does this certificate prove what it says about the history that was read?
    ///
    /// Orders are replayed: each transaction must see what it saw, and nothing may be before what it follows in real time or
    /// in its process where the model asks for that. Findings are looked up: each edge of a cycle must be there to be
    /// seen in the operations, the kinds of edges must be those of the anomaly, and the model must forbid it.
    pub fn verify(mut self, certificate: &Certificate) -> Result<(), Unproven> {
        let own = self.fingerprint();
        if let Some(other) = certificate.history.filter(|&other| other != own) {
            return Err(
                format!("it is about another history ({other}; this one has {own})").into(),
            );
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
            // Where nobody wrote or saw anything, it may be about either.
            !table.is_of_registers && lists::orders::is_known(model, &certificate.proof)
        };
        match &certificate.proof {
            _ if !is_of_lists => registers::verify(table, certificate, self.steps_max),
            Proof::Findings(findings) => Ok(lists::findings(table, findings)?),
            Proof::Core(places) => lists::core::core(table, model, places, self.steps_max),
            proof => Ok(lists::orders::replay(table, model, proof)?),
        }
    }
}

/// Is each step of this cycle there, the next one where the last one ended, and are they of the kinds that the anomaly has?
fn cycle(
    finding: &Evidence,
    mut precedes: impl FnMut(&Edge) -> Result<bool, String>,
) -> Result<(), String> {
    let steps = &finding.steps;
    if let Some(step) = steps.iter().find(|step| step.from == step.to) {
        return Err(format!("op {} does not precede itself", step.from));
    }
    for (at, step) in steps.iter().enumerate() {
        let Edge {
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
