//! Histories that do not say when their operations ran, and the promises that they can be held to.

use anyhow::{Result, ensure};
use seatrial_checker::txn::Level;
use seatrial_checker::{Validity, Verdict};
use seatrial_history::{Op, Provenance};
use serde_json::Value as Json;

/// What a history of these attributes is held to.
#[derive(Debug)]
pub(crate) struct Promise {
    /// The model; `None`: the checker's strictest.
    model: Option<String>,
    /// The model that was asked for, when this history cannot say whether it was kept.
    asked: Option<Level>,
}

/// Does a history of these attributes not say when its operations ran?
pub(crate) fn is_timeless(attributes: &Json) -> bool {
    Provenance::of_attributes(attributes).is_timeless()
}

/// Marks the attributes of a history that begins with these operations and has completions only: when they began is not
/// known.
pub(crate) fn mark_completions(attributes: &mut Json, first: &[Op]) {
    Provenance::default().of_first(first).add_to(attributes);
}

impl Promise {
    /// The promise that was asked for, or what is usual. Where the history has no times, real time is left out: that one
    /// operation stands before another says nothing there, except within a process.
    pub(crate) fn of(asked: Option<&str>, attributes: &Json) -> Promise {
        let mut promise = Promise {
            model: asked.map(str::to_owned),
            asked: None,
        };
        if !is_timeless(attributes) {
            return promise;
        }
        let level = match asked {
            Some(name) => Level::by_name(name),
            None => Some(Level::default()),
        };
        if let Some(level) = level
            && let weaker = level.without_real_time()
            && weaker != level
        {
            promise.model = Some(weaker.name().to_owned());
            promise.asked = asked.map(|_| level);
        }
        promise
    }

    /// The model to judge by; `None`: the checker's strictest.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// A sentence for people, when this is not the promise that was asked for.
    pub(crate) fn warning(&self) -> Option<String> {
        let asked = self.asked?.name();
        let judged = self.model()?;
        Some(format!(
            "this history does not say when its transactions ran, so nobody can tell whether {asked} was kept; judged by \
             {judged}, which is the same without real time"
        ))
    }

    /// Fails when this is not the promise that was asked for.
    pub(crate) fn ensure_as_asked(&self) -> Result<()> {
        let warning = self.warning();
        ensure!(warning.is_none(), "{}", warning.unwrap_or_default());
        Ok(())
    }

    /// Takes back what verdicts about less than was asked for cannot know; all together. With `accepts`, a verdict without
    /// anomalies is valid although questions stayed open.
    pub(crate) fn weaken(&self, verdicts: &mut [Verdict], accepts: bool) -> Validity {
        for verdict in verdicts.iter_mut() {
            self.weaken_one(verdict);
            if accepts {
                verdict.accept_undecided();
            }
        }
        Validity::of(verdicts)
    }

    fn weaken_one(&self, verdict: &mut Verdict) {
        let (Some(asked), Some(judged)) = (self.asked, self.model()) else {
            return;
        };
        if verdict.model.as_deref() != Some(judged) {
            return;
        }
        // Who breaks the weaker promise breaks the stronger one.
        verdict.model = Some(asked.name().to_owned());
        if verdict.valid == Validity::Valid {
            let open = format!(
                "real time, as the history has no times; {judged}, which needs none, was kept"
            );
            *verdict = verdict.clone().no_anomaly_found(vec![open]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn real_time_is_left_out_where_there_is_none() {
        let timeless = json!({"times": "none"});
        let model = |asked, attributes: &Json| {
            let promise = Promise::of(asked, attributes);
            let model = promise.model().map(str::to_owned);
            (model, promise.warning().is_some())
        };
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(model(None, &json!({})), (None, false));
        let strict = name("strict-serializable");
        assert_eq!(
            model(Some("strict-serializable"), &json!({})),
            (strict, false)
        );
        let session = name("strong-session-serializable");
        assert_eq!(model(None, &timeless), (session.clone(), false));
        assert_eq!(
            model(Some("strong-serializable"), &timeless),
            (session, true)
        );
        let snapshots = name("strong-session-snapshot-isolation");
        assert_eq!(model(Some("strong-SI"), &timeless), (snapshots, true));
        let plain = name("serializable");
        assert_eq!(model(Some("serializable"), &timeless), (plain, false));
        let unknown = name("linearizable");
        assert_eq!(model(Some("linearizable"), &timeless), (unknown, false));
    }

    #[test]
    fn a_verdict_about_less_is_no_verdict() {
        let promise = Promise::of(Some("strict-serializable"), &json!({"times": "none"}));
        let mut verdict = Verdict::valid("list-append");
        verdict.model = Some("strong-session-serializable".to_owned());
        let mut broken = verdict.clone();
        broken.valid = Validity::Invalid;
        let mut verdicts = [verdict, Verdict::valid("stats")];
        assert!(matches!(
            promise.weaken(&mut verdicts, false),
            Validity::Unknown(_)
        ));
        assert_eq!(promise.weaken(&mut verdicts, true), Validity::Valid);
        assert_eq!(verdicts[1].valid, Validity::Valid);
        let mut verdicts = [broken];
        assert_eq!(promise.weaken(&mut verdicts, true), Validity::Invalid);
        assert_eq!(verdicts[0].model.as_deref(), Some("strict-serializable"));
        assert!(promise.ensure_as_asked().is_err());
    }
}
