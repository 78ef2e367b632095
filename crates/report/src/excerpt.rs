//! The operations that findings name, and nothing else of a history.

use crate::report::Report;
use seatrial_history::{ChunkSource, History, SourceError};
use seatrial_query::ExcerptFold;

/// The operations that the findings and components of a report name, each with its other half: what their pictures and
/// listings are made of. Owns copies of these operations alone, however long the history is.
#[derive(Debug, Default)]
pub struct Excerpt {
    pub(crate) history: History,
}

impl Excerpt {
    /// Reads the operations that the findings of a report name; costs a round, or nothing when there are none.
    pub fn read(report: &Report<'_>, source: &dyn ChunkSource) -> Result<Excerpt, SourceError> {
        let excerpts = named(report);
        if excerpts.is_empty() {
            return Ok(Excerpt::default());
        }
        Ok(Excerpt {
            history: source.fold(&excerpts)?,
        })
    }
}

/// What the findings and components of a report name.
pub(crate) fn named(report: &Report<'_>) -> ExcerptFold {
    let findings = report.findings();
    let found = findings.flat_map(|(_, finding)| {
        let witness = finding.linearization.iter();
        let drawn = witness.flat_map(|witness| witness.named());
        drawn.chain(finding.operations.iter().copied())
    });
    let components = report.components();
    let components = components.flat_map(|component| component.operations.iter().copied());
    ExcerptFold::of(found.chain(components))
}
