//! Breaches of the client protocol, which the bench notes at operations.

use crate::{Aims, Checker, FoldChecker, OnlineChecker, Verdict, check_source};
use seatrial_history::{Chunk, Fold, History, Order};
use std::ops::ControlFlow;

/// Did the clients keep the client protocol (`docs/formats/client-protocol.md`)? Unknown when a completion has the field
/// `client_fault`: an answer of the wrong shape, an answer to an operation that is not open, a line that is no message.
///
/// Such an answer is no evidence: the operation is recorded as `info`, so no violation rests on it, but it may have been the one
/// that shows a violation. Therefore the verdict on the whole history is at most unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientProtocol;

/// The name of the checker.
const NAME: &str = "client-protocol";
/// The field of a completion that names the breach.
pub const CLIENT_FAULT: &str = "client_fault";

/// The breaches so far.
#[derive(Default)]
struct Breaches {
    count: u64,
    /// Index and text of the first one.
    first: Option<(u64, String)>,
}

/// The fold of [`ClientProtocol`].
struct BreachFold;

impl Fold for BreachFold {
    type Accumulator = Breaches;
    type Output = Verdict;

    fn name(&self) -> String {
        NAME.into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Breaches {
        Breaches::default()
    }

    fn reduce(&self, breaches: &mut Breaches, chunk: &Chunk) -> ControlFlow<()> {
        if !chunk.has_extra() {
            return ControlFlow::Continue(());
        }
        for place in 0..chunk.kinds().len() {
            for (name, value) in chunk.extra(place) {
                if name != CLIENT_FAULT {
                    continue;
                }
                breaches.count += 1;
                if breaches.first.is_none() {
                    let text = value.to_value().to_string();
                    breaches.first = Some((chunk.index(place), text));
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut Breaches, _: Breaches) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, breaches: Breaches) -> Verdict {
        let verdict = Verdict::valid(NAME);
        let Some((index, text)) = breaches.first else {
            return verdict;
        };
        assert!(breaches.count > 0, "the first breach is counted");
        let text = text.trim_matches('"');
        let times = match breaches.count {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        verdict.unknown(format!(
            "the client broke the client protocol {times}, first at op {index}: {text}; its answers may hide a violation"
        ))
    }
}

impl Checker for ClientProtocol {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(NAME).unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new(NAME, BreachFold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Validity;
    use seatrial_history::{Op, OpType, Process, Value};

    #[test]
    fn a_breach_makes_the_verdict_unknown() {
        let read = Op::invoke(Process::Client(0), "read", Value::Nil);
        let fine = read.complete(OpType::Ok, Value::Int(1));
        let broken = read
            .complete(OpType::Info, Value::Nil)
            .with(CLIENT_FAULT, Value::text("expected an integer, got \"x\""));
        let kept = History::from_unindexed(vec![read.clone(), fine.clone()]);
        assert_eq!(ClientProtocol.check(&kept).valid, Validity::Valid);
        let breached = History::from_unindexed(vec![read.clone(), fine, read, broken]);
        let verdict = ClientProtocol.check(&breached);
        assert!(matches!(verdict.valid, Validity::Unknown(_)));
        let reason = verdict.reason.unwrap();
        assert!(
            reason.contains("once, first at op 3: expected an integer"),
            "{reason}"
        );
    }
}
