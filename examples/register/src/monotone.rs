//! A workload and a checker of one's own: one client writes 1, 2, 3, … to a register, the others read it. Once a value has
//! been read, no later read may see a smaller one.

use seatrial_checker::{Aims, Checker, Finding, OnlineChecker, Validity, Verdict, WholeHistory};
use seatrial_generator::workload::Workload;
use seatrial_generator::{Generator, Thread, any, function, operation};
use seatrial_history::{History, Key, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// The name of the workload and of its checker.
pub const NAME: &str = "monotone";

/// The register that is used.
const KEY: i64 = 7;

/// A client's thread 0 writes, all others read.
pub fn workload(rng: &Rng) -> Workload {
    let keyed = |value| Value::Keyed(Key::Int(KEY), Arc::new(value));
    let mut last = 0;
    let write = function(move || {
        last += 1;
        Some(operation("write", keyed(Value::Int(last))))
    });
    let read = operation("read", keyed(Value::Nil)).repeat();
    let writer = Thread(0);
    Workload {
        name: NAME,
        generator: any(
            rng.fork(NAME),
            [
                write.on_threads(move |thread| thread == writer).boxed(),
                read.on_threads(move |thread| thread.is_client() && thread != writer)
                    .boxed(),
            ],
        )
        .boxed(),
        last: None,
    }
}

/// Looks for reads that go back. One pass; a word for each client.
#[derive(Clone)]
pub struct Monotone;

impl Checker for Monotone {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A checker that takes its history chunk by chunk keeps less; this one keeps all of it.
    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(WholeHistory::new(self.clone()))
    }

    fn check(&self, history: &History) -> Verdict {
        let mut verdict = Verdict::valid(NAME);
        // The largest value that a completed read has seen, and where; and for each open read what it was when it began.
        let mut seen = (0, 0);
        let mut open = std::collections::BTreeMap::new();
        let mut count = 0_u64;
        for op in &history.clients() {
            let value = match &op.value {
                Value::Keyed(_, value) => value.as_int(),
                _ => None,
            };
            if op.f != "read" {
                continue;
            }
            if op.is_invoke() {
                open.insert(op.process, seen);
                continue;
            }
            let Some((before, index)) = open.remove(&op.process).filter(|_| op.is_ok()) else {
                continue;
            };
            let value = value.unwrap_or(0);
            if value < before {
                count += 1;
                if count <= 3 {
                    verdict.findings.push(Finding {
                        anomaly: "read-went-back",
                        summary: format!(
                            "op {} read {value}, although op {index} had read {before} before it began",
                            op.index
                        ),
                        operations: vec![index, op.index],
                        steps: Vec::new(),
                        linearization: None,
                    });
                }
            }
            if value > seen.0 {
                seen = (value, op.index);
            }
        }
        if count > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies.insert("read-went-back", count);
        }
        verdict
    }
}
