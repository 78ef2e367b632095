//! The monitor of a data type, for the objects of one history.

use crate::collection_monitor::{self, CollectionMonitor};
use crate::model::Model;
use crate::object::LinearObject;
use crate::proof_draft::ProofDraft;
use crate::values::NumberedValues;
use seatrial_monitors::{RegisterZones, Rejection, ZoneVerdict};

/// What a monitor says about an object.
pub(crate) enum MonitorVerdict {
    Linearizable,
    /// These entries alone are not linearizable.
    Refuted(Vec<u32>),
    /// The reason why the object must be searched.
    NotApplicable(String),
}

/// The monitor of a model, with its tables: 4 bytes for each value of the history.
pub(crate) enum ObjectMonitor {
    Registers(RegisterZones),
    Collections(CollectionMonitor),
}

impl ObjectMonitor {
    /// The monitor of a model; `values` is the number of values of the history.
    pub(crate) fn new(model: Model, values: usize) -> ObjectMonitor {
        if model.is_collection() {
            ObjectMonitor::Collections(CollectionMonitor::new(values))
        } else {
            ObjectMonitor::Registers(RegisterZones::new(values))
        }
    }

    /// Its name in results.
    pub(crate) fn name(model: Model) -> &'static str {
        collection_monitor::monitor(model).map_or("zones of unique values", |(_, name)| name)
    }

    /// Decides an object if it can; its linearization goes to the draft.
    pub(crate) fn check(
        &mut self,
        model: Model,
        object: &LinearObject,
        values: &NumberedValues,
        draft: Option<&mut ProofDraft<'_>>,
    ) -> MonitorVerdict {
        match self {
            ObjectMonitor::Registers(zones) => check_register(zones, object, values, draft),
            ObjectMonitor::Collections(collections) => {
                check_collection(collections, model, object, values, draft)
            }
        }
    }
}

fn check_register(
    zones: &mut RegisterZones,
    object: &LinearObject,
    values: &NumberedValues,
    draft: Option<&mut ProofDraft<'_>>,
) -> MonitorVerdict {
    let (verdict, order) = match draft {
        Some(_) => zones.check_with_order(&object.entries),
        None => (zones.check(&object.entries), None),
    };
    if let (Some(draft), Some(order)) = (draft, order) {
        draft.add_order(object, order.into_iter().map(|entry| (entry, None)));
    }
    match verdict {
        ZoneVerdict::Linearizable => MonitorVerdict::Linearizable,
        ZoneVerdict::Refuted(core) => MonitorVerdict::Refuted(core),
        ZoneVerdict::NotApplicable(Some(value)) => {
            let value = values.get(value);
            MonitorVerdict::NotApplicable(format!("more than one operation writes {value}"))
        }
        ZoneVerdict::NotApplicable(None) => {
            MonitorVerdict::NotApplicable("its operations are not those of a register".into())
        }
    }
}

fn check_collection(
    collections: &mut CollectionMonitor,
    model: Model,
    object: &LinearObject,
    values: &NumberedValues,
    draft: Option<&mut ProofDraft<'_>>,
) -> MonitorVerdict {
    match collections.check(model, &object.entries, values) {
        Ok(()) => {
            if let Some(draft) = draft {
                match collections.linearize(model, &object.entries, values) {
                    Ok(order) => draft.add_order(object, order.into_iter()),
                    Err(_) => draft.give_up("no linearization was constructed"),
                }
            }
            MonitorVerdict::Linearizable
        }
        Err(Rejection::NotLinearizable(core)) => MonitorVerdict::Refuted(core),
        Err(Rejection::NotApplicable(reason)) => MonitorVerdict::NotApplicable(reason.into()),
    }
}
