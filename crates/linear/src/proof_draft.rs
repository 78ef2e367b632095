//! What proves a verdict, gathered while objects are decided: orders of linearization points, objects that have none.

use crate::core_minimizer::minimal_core;
use crate::model::{Action, Model, Taken};
use crate::object::{LinearObject, NEVER, ObjectOperation};
use crate::values::{NumberedValues, StateId};
use seatrial_history::{ChunkSource, FixedMap, Key, SourceError};
use seatrial_verify::{Certificate, CoreVerifier, Linearization, Proof};

/// Where operations are recorded whose call is not their place in a certificate, or not theirs alone.
#[derive(Debug, Default)]
pub(crate) struct RecordedPlaces {
    /// Completions of operations whose invocation was not recorded, ascending: their places.
    pub(crate) orphans: Vec<u32>,
    /// Invocations of drains, in any order until the end of the history.
    pub(crate) drains: Vec<u32>,
}

/// Objects without linearization that are kept to prove an invalid verdict: one is enough, if its core is small.
const REFUTED_MAX: usize = 4;

/// The certificate of a verdict to be.
///
/// Orders of all objects are kept as places, 8 bytes an operation; of the first objects that are refuted their operations,
/// from which [`minimal_core`] makes a core in the end.
pub(crate) struct ProofDraft<'v> {
    model: Model,
    values: &'v NumberedValues,
    places: &'v RecordedPlaces,
    linearization: Linearization,
    refuted: Vec<RefutedObject>,
    /// Why there is no certificate.
    missing: Option<String>,
}

/// An object without linearization.
pub(crate) struct RefutedObject {
    pub(crate) key: Option<Key>,
    pub(crate) entries: Vec<ObjectOperation>,
    /// The entries that a monitor named, which alone are not linearizable; empty after a search.
    pub(crate) core: Vec<u32>,
    /// The completion up to which there is no linearization, as far as is known.
    pub(crate) until: u32,
}

/// An entry in a linearization, and the element that it took if that does not follow from the entry.
pub(crate) type OrderedEntry = (u32, Option<StateId>);

impl RecordedPlaces {
    /// Of a history that has ended.
    pub(crate) fn end(&mut self) {
        self.drains.sort_unstable();
        self.drains.dedup();
        assert!(self.orphans.is_sorted(), "completions come in order");
    }

    /// The position by which a certificate names an operation.
    pub(crate) fn place(&self, entry: &ObjectOperation) -> u64 {
        let is_orphan = entry.call == 0 && self.orphans.binary_search(&entry.ret).is_ok();
        u64::from(if is_orphan { entry.ret } else { entry.call })
    }
}

impl<'v> ProofDraft<'v> {
    pub(crate) fn new(
        model: Model,
        values: &'v NumberedValues,
        places: &'v RecordedPlaces,
    ) -> ProofDraft<'v> {
        ProofDraft {
            model,
            values,
            places,
            linearization: Linearization {
                data_type: model.name().to_owned(),
                ..Linearization::default()
            },
            refuted: Vec::new(),
            missing: None,
        }
    }

    /// Adds the linearization of an object.
    pub(crate) fn add_order(
        &mut self,
        object: &LinearObject,
        order: impl Iterator<Item = OrderedEntry>,
    ) {
        let entries = &object.entries;
        let mut additions: FixedMap<StateId, u64> = FixedMap::default();
        if self.model == Model::Bag {
            for entry in entries {
                if let Action::Put(_, element) = entry.action {
                    additions.insert(element, self.places.place(entry));
                }
            }
        }
        let mut placed = 0;
        for (number, taken) in order {
            let entry = &entries[number as usize];
            placed += usize::from(entry.is_required());
            self.linearization.order.push(self.places.place(entry));
            if self.model != Model::Bag {
                continue;
            }
            let named = match entry.action {
                Action::Take(_, Taken::Unknown) => taken,
                Action::TakeAny(element, _) => Some(element),
                Action::Take(_, Taken::Element(element))
                    if self.places.drains.binary_search(&entry.call).is_ok() =>
                {
                    Some(element)
                }
                _ => None,
            };
            if let Some(element) = named {
                let addition = additions.get(&element).copied();
                self.linearization.taken.extend(addition);
            }
        }
        let required = entries.iter().filter(|entry| entry.is_required()).count();
        assert!(placed == required, "each operation takes effect once");
    }

    /// Notes an object without linearization: the part that a monitor named, or the operation that no order can pass.
    pub(crate) fn add_refuted(&mut self, object: &LinearObject, core: &[u32], until: Option<u32>) {
        if self.refuted.len() >= REFUTED_MAX {
            return;
        }
        let entries = &object.entries;
        let rets = core.iter().map(|&number| entries[number as usize].ret);
        let last = rets.filter(|&ret| ret != NEVER).max();
        self.refuted.push(RefutedObject {
            key: object.key.clone(),
            entries: entries.clone(),
            core: core.to_vec(),
            until: until.or(last).unwrap_or(NEVER - 1),
        });
    }

    /// Adds the draft of the objects that follow.
    pub(crate) fn add(&mut self, next: ProofDraft<'v>) {
        self.linearization.order.extend(next.linearization.order);
        self.linearization.taken.extend(next.linearization.taken);
        self.refuted.extend(next.refuted);
        self.refuted.truncate(REFUTED_MAX);
        self.missing = self.missing.take().or(next.missing);
    }

    /// There is no certificate of a valid verdict, for this reason.
    pub(crate) fn give_up(&mut self, reason: &str) {
        self.missing.get_or_insert_with(|| reason.to_owned());
    }

    /// The certificate, or why there is none. An invalid verdict takes one more round of the history.
    pub(crate) fn certificate(
        self,
        is_valid: bool,
        source: &dyn ChunkSource,
    ) -> Result<Result<Certificate, String>, SourceError> {
        let certificate = |proof| Certificate::new("linearizable", proof);
        if is_valid {
            return Ok(match self.missing {
                Some(reason) => Err(reason),
                None => Ok(certificate(Proof::Linearization(self.linearization))),
            });
        }
        let mut verifier = CoreVerifier::read(source)?;
        let mut reason = "no operation is known that no order explains".to_owned();
        for object in &self.refuted {
            match minimal_core(self.model, object, self.values, self.places, &mut verifier) {
                Ok(core) => return Ok(Ok(certificate(Proof::Nonlinearizable(core)))),
                Err(other) => reason = other,
            }
        }
        Ok(Err(reason))
    }
}
