//! The verdict on objects that were checked beside a test.

use crate::explanation::NONLINEARIZABLE;
use crate::linearizable::FINDINGS_MAX;
use seatrial_checker::{
    Details, Figures, KeyFigures, KeyResult, LinearizabilityFigures, Validity, Verdict,
};
use seatrial_history::Key;

/// Counts over all objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnlineTotals {
    /// Operations that took effect or may have.
    pub(crate) operations: u64,
    /// Those of unknown outcome among them.
    pub(crate) unknown: u64,
    /// Configurations that were visited.
    pub(crate) configurations: u64,
    /// Objects with an operation that did not fail.
    pub(crate) objects: u64,
    /// Those that have a key.
    pub(crate) keyed: u64,
}

/// How the objects were decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnlineMethod {
    /// The monitor that decided them; `None` if they were searched.
    pub(crate) monitor: Option<&'static str>,
    /// Bound of configurations.
    pub(crate) configurations_max: u64,
}

/// Sets the model, and what the verdict's anomalies rule out.
pub(crate) fn set_model(verdict: &mut Verdict, model: String) {
    verdict.model = Some(model);
    if !verdict.anomalies.is_empty() {
        verdict.not = vec!["linearizable"];
    }
}

/// Sets the details and the validity. `violated` has the number of objects without a linearization, and the keys of some.
pub(crate) fn set_results<'a>(
    verdict: &mut Verdict,
    method: OnlineMethod,
    totals: OnlineTotals,
    violated: (u64, impl Iterator<Item = &'a Key>),
) {
    let (violated, keys) = violated;
    let by_key = (totals.keyed > 0).then(|| KeyFigures {
        keys: totals.keyed,
        keys_checked: totals.keyed,
        keys_invalid: violated,
        results: keys
            .map(|key| {
                (
                    key.to_string(),
                    KeyResult::Invalid([NONLINEARIZABLE].into()),
                )
            })
            .collect(),
    });
    let OnlineMethod {
        monitor,
        configurations_max,
    } = method;
    verdict.details = Details::of(Figures::Linearizability(LinearizabilityFigures {
        objects: totals.objects,
        operations: totals.operations,
        unknown: totals.unknown,
        by_monitor: monitor.map_or(0, |_| totals.objects),
        monitor: monitor.filter(|_| totals.objects > 0),
        search_reason: None,
        configurations: totals.configurations,
        configurations_max,
        findings_max: FINDINGS_MAX,
        by_key,
    }));
    if violated > 0 {
        verdict.valid = Validity::Invalid;
        verdict.anomalies.insert(NONLINEARIZABLE, violated);
        verdict.not = vec!["linearizable"];
    }
}
