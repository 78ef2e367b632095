//! What proves the verdict of a history model: linearization points of all objects, or a core of one that has none.

use crate::core_minimizer::without_needless;
use crate::history_model::{HistoryModel, ModelCall, ValueNumbers};
use crate::object::NEVER;
use seatrial_history::{ChunkSource, Key, SourceError};
use seatrial_verify::{Certificate, CoreVerifier, LinearCore, Linearization, Proof, Unproven};
use std::collections::BTreeSet;

/// Steps of the verifier for one trial.
const TRIAL_STEPS: u64 = 20_000_000;
/// Operations of the first window that is tried.
const WINDOW_MIN: usize = 16;
/// Objects without linearization that are kept: one is enough, if its core is small.
const REFUTED_MAX: usize = 4;

/// The certificate of a verdict to be. Orders are kept as places, 8 bytes an operation; of the first objects that are refuted
/// their operations, of which a core is made in the end.
pub(crate) struct ModelProof {
    /// The name of the data type in certificates.
    data_type: String,
    /// Completions without an invocation, ascending: these are the places of their operations.
    orphans: Vec<u32>,
    order: Vec<u64>,
    refuted: Vec<RefutedCalls>,
    /// Why there is no certificate of a valid verdict.
    missing: Option<String>,
}

/// An object without linearization.
struct RefutedCalls {
    key: Option<Key>,
    calls: Vec<CoreCall>,
    /// Those that a monitor named.
    named: Vec<usize>,
    /// The completion up to which there is no linearization, as far as is known.
    until: u32,
}

/// An operation that a core can name.
struct CoreCall {
    place: u64,
    call: u32,
    ret: u32,
    /// The parts of the state that it accesses, by their numbers.
    parts: Vec<u32>,
    /// Those that it reads as one of all parts.
    all_parts: Vec<u32>,
}

impl CoreCall {
    /// Its completion; of one of unknown outcome its invocation.
    fn end(&self) -> u32 {
        if self.ret == NEVER {
            self.call
        } else {
            self.ret
        }
    }
}

/// A part of a core that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ModelCorePart {
    /// A part of the state.
    Element(u32),
    /// The number of an operation.
    Operation(usize),
}

impl ModelProof {
    /// Of a data type that the verifier knows.
    pub(crate) fn new(data_type: String, orphans: Vec<u32>) -> ModelProof {
        assert!(orphans.is_sorted(), "completions come in order");
        ModelProof {
            data_type,
            orphans,
            order: Vec::new(),
            refuted: Vec::new(),
            missing: None,
        }
    }

    fn place<O>(&self, call: &ModelCall<O>) -> u64 {
        let is_orphan = call.call == 0 && self.orphans.binary_search(&call.ret).is_ok();
        u64::from(if is_orphan { call.ret } else { call.call })
    }

    /// Adds the linearization of an object: orders of its components, each of which names calls by their numbers.
    ///
    /// Each operation takes effect at the greatest invocation of those up to it in its component. That is between its own
    /// invocation and completion, so an order by these points respects real time for the whole object.
    pub(crate) fn add_order<O>(&mut self, calls: &[ModelCall<O>], components: &[Vec<u32>]) {
        let mut points: Vec<(u32, u32)> = Vec::with_capacity(calls.len());
        for order in components {
            let mut point = 0;
            for &number in order {
                let call = &calls[number as usize];
                point = point.max(call.call);
                debug_assert!(point <= call.ret, "it takes effect before its completion");
                points.push((point, number));
            }
        }
        // Stable: operations of one component keep their order.
        points.sort_by_key(|&(point, _)| point);
        for (_, number) in points {
            let place = self.place(&calls[number as usize]);
            self.order.push(place);
        }
    }

    /// There is no certificate of a valid verdict, for this reason.
    pub(crate) fn give_up(&mut self, reason: &str) {
        self.missing.get_or_insert_with(|| reason.to_owned());
    }

    /// Notes an object without linearization: the operations that a monitor named by invocation and completion, or the completion
    /// that no order can pass.
    pub(crate) fn add_refuted<M: HistoryModel>(
        &mut self,
        model: &M,
        (key, calls): (Option<&Key>, &[ModelCall<M::Operation>]),
        named: &[(u32, u32)],
        until: Option<u32>,
    ) {
        if self.refuted.len() >= REFUTED_MAX {
            return;
        }
        let mut parts = Vec::new();
        let core_calls = calls.iter().map(|call| {
            parts.clear();
            model.accesses(&call.operation, &mut parts);
            CoreCall {
                place: self.place(call),
                call: call.call,
                ret: call.ret,
                parts: parts.iter().map(|&part| part as u32).collect(),
                all_parts: model.parts_read(&call.operation),
            }
        });
        let core_calls: Vec<CoreCall> = core_calls.collect();
        let numbered = core_calls.iter().enumerate();
        let is_named = |call: &CoreCall| named.contains(&(call.call, call.ret));
        let numbers = numbered.filter(|(_, call)| is_named(call));
        let numbers: Vec<usize> = numbers.map(|(number, _)| number).collect();
        let rets = named
            .iter()
            .map(|&(_, ret)| ret)
            .filter(|&ret| ret != NEVER);
        let last = until.or(rets.max());
        self.refuted.push(RefutedCalls {
            key: key.cloned(),
            named: numbers,
            until: last.unwrap_or(NEVER - 1),
            calls: core_calls,
        });
    }

    /// The certificate, or why there is none. An invalid verdict takes one more round of the history.
    pub(crate) fn certificate(
        self,
        is_valid: bool,
        values: &ValueNumbers,
        source: &dyn ChunkSource,
    ) -> Result<Result<Certificate, String>, SourceError> {
        let certificate = |proof| Certificate::new("linearizable", proof);
        if is_valid {
            let linearization = Linearization {
                data_type: self.data_type,
                order: self.order,
                taken: Vec::new(),
            };
            return Ok(match self.missing {
                Some(reason) => Err(reason),
                None => Ok(certificate(Proof::Linearization(linearization))),
            });
        }
        let mut verifier = CoreVerifier::read(source)?;
        let mut reason = "no operation is known that no order explains".to_owned();
        for object in &self.refuted {
            let mut search = ModelCoreSearch {
                data_type: &self.data_type,
                object,
                values,
                until: object.until,
                verifier: &mut verifier,
                error: None,
            };
            match search.minimal() {
                Ok(core) => return Ok(Ok(certificate(Proof::Nonlinearizable(core)))),
                Err(other) => reason = other,
            }
        }
        Ok(Err(reason))
    }
}

/// The search for a core of one object: the verifier itself answers each trial, so it will accept the result.
struct ModelCoreSearch<'a> {
    data_type: &'a str,
    object: &'a RefutedCalls,
    values: &'a ValueNumbers,
    until: u32,
    verifier: &'a mut CoreVerifier,
    /// Why the last trial was refused.
    error: Option<String>,
}

impl ModelCoreSearch<'_> {
    /// A core which the verifier refutes, and not without any of its parts. It begins with what a monitor named; then windows of
    /// the operations that completed last before the point that no order can pass are tried, each twice as large as the one
    /// before. What is not needed is left out, half of the parts, a quarter, and so on to single ones.
    fn minimal(&mut self) -> Result<LinearCore, String> {
        let named = self.object.named.clone();
        let found = if named.is_empty() {
            None
        } else {
            self.first_refuted(&named)
        };
        let parts = match found {
            Some(parts) => parts,
            None => self.windows()?,
        };
        let parts = without_needless(parts, |parts| self.is_refuted(parts));
        Ok(self.core(&parts))
    }

    /// The parts of the first window of operations that is refuted.
    fn windows(&mut self) -> Result<Vec<ModelCorePart>, String> {
        let object = self.object;
        let ends = object.calls.iter().map(|call| call.ret);
        let last = ends.filter(|&ret| ret != NEVER).max().unwrap_or(NEVER - 1);
        let mut numbers: Vec<usize> = (0..object.calls.len()).collect();
        for until in BTreeSet::from([object.until, last]) {
            self.until = until;
            numbers.sort_by_key(|&number| {
                let end = object.calls[number].end();
                (end > until, until.abs_diff(end))
            });
            let mut width = WINDOW_MIN;
            loop {
                let now = width.min(numbers.len());
                if now > Certificate::CORE_MAX {
                    break;
                }
                if let Some(parts) = self.first_refuted(&numbers[..now]) {
                    return Ok(parts);
                }
                if now == numbers.len() {
                    break;
                }
                width *= 2;
            }
        }
        let error = self.error.take();
        Err(error.unwrap_or_else(|| {
            format!(
                "no core of at most {} operations was found that the verifier refutes",
                Certificate::CORE_MAX
            )
        }))
    }

    /// The parts of these operations, if they are refuted: with the parts of the state that they access by name, or also with
    /// those that they read as a whole.
    fn first_refuted(&mut self, numbers: &[usize]) -> Option<Vec<ModelCorePart>> {
        let operations = numbers
            .iter()
            .map(|&number| ModelCorePart::Operation(number));
        let operations: Vec<ModelCorePart> = operations.collect();
        let calls = numbers.iter().map(|&number| &self.object.calls[number]);
        let by_name = calls.clone().flat_map(|call| &call.parts);
        let by_name: BTreeSet<u32> = by_name.copied().collect();
        let whole = calls.flat_map(|call| &call.all_parts);
        let whole: BTreeSet<u32> = whole.chain(&by_name).copied().collect();
        let is_more = whole.len() > by_name.len();
        for elements in [Some(by_name), is_more.then_some(whole)]
            .into_iter()
            .flatten()
        {
            let elements = elements.into_iter().map(ModelCorePart::Element);
            let parts: Vec<ModelCorePart> = elements.chain(operations.iter().copied()).collect();
            if self.is_refuted(&parts) {
                return Some(parts);
            }
        }
        None
    }

    fn is_refuted(&mut self, parts: &[ModelCorePart]) -> bool {
        let core = self.core(parts);
        match self.verifier.refute(&core, TRIAL_STEPS) {
            Ok(()) => true,
            Err(unsettled @ Unproven::Unsettled { .. }) => {
                self.error = Some(unsettled.to_string());
                false
            }
            Err(Unproven::Refuted(_)) => false,
        }
    }

    fn core(&self, parts: &[ModelCorePart]) -> LinearCore {
        let mut core = LinearCore {
            data_type: self.data_type.to_owned(),
            key: self.object.key.as_ref().map(Key::to_string),
            until: u64::from(self.until),
            ..LinearCore::default()
        };
        for part in parts {
            match *part {
                ModelCorePart::Element(part) => {
                    core.elements.push(self.values.value(part).to_string());
                }
                ModelCorePart::Operation(number) => {
                    let call = &self.object.calls[number];
                    if call.call <= self.until {
                        core.places.push(call.place);
                    }
                }
            }
        }
        core.places.sort_unstable();
        core.places.dedup();
        core
    }
}
