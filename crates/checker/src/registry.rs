//! Checkers by name.

use crate::linear::{Linearizable, Model};
use crate::txn::isolation::{self, Isolation};
use crate::txn::{G1, Inference, Level, ListAppend, Promise, RwRegister, Timestamps};
use crate::{
    Agreement, Bank, Checker, Counter, Discipline, Lock, Log, LongFork, Monotonic, Queue, Set,
    SetFull, Stats, TotalQueue, UniqueIds, Visibility,
};

use seatrial_machine::unknown_name;

/// A name that no checker or model has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// No checker of this name.
    #[error("{}", unknown_name("checker", name, NAMES))]
    Checker {
        /// The name that was asked for.
        name: String,
    },
    /// The checker judges by no model.
    #[error("the checker `{checker}` looks for certain anomalies and takes no model")]
    NoModels {
        /// The checker that was asked for.
        checker: &'static str,
    },
    /// The checker does not know this model.
    #[error("checker `{checker}`: {}", unknown_name("model", model, models.iter().copied()))]
    Model {
        /// The checker that was asked for.
        checker: &'static str,
        /// The model that was asked for.
        model: String,
        /// The models that it has.
        models: Vec<&'static str>,
    },
}

/// The names of all checkers.
pub const NAMES: [&str; 21] = [
    "stats",
    "register",
    "cas-register",
    "mutex",
    "kv-map",
    "list-append",
    "rw-register",
    "isolation",
    "timestamps",
    "g1",
    "set",
    "set-full",
    "queue",
    "total-queue",
    "unique-ids",
    "counter",
    "bank",
    "long-fork",
    "monotonic",
    "lock",
    "log",
];

/// The checker called `name`, judging by `model` (`None`: the checker's strictest).
pub fn by_name(name: &str, model: Option<&str>) -> Result<Box<dyn Checker>, UnknownName> {
    if let Some(data_type) = Model::ALL.into_iter().find(|model| model.name() == name) {
        only("linearizable", data_type.name(), model)?;
        return Ok(Box::new(Linearizable::new(data_type)));
    }
    match name {
        "stats" => Ok(Box::new(Stats)),
        "set-full" => Ok(Box::new(SetFull::new(visibility(model)?))),
        "lock" => Ok(Box::new(Lock::new(discipline(model)?))),
        "monotonic" => Ok(Box::new(Monotonic::new(agreement(model)?))),
        "rw-register" => Ok(Box::new(rw_register(model, Inference::NONE)?)),
        "list-append" => Ok(Box::new(ListAppend::new(level("list-append", model)?))),
        "timestamps" => Ok(Box::new(Timestamps::new(promise(model)?))),
        "isolation" => Ok(Box::new(Isolation::new(isolation(model)?))),
        _ => match (anomalies(name), model) {
            (Some(checker), None) => Ok(checker),
            (Some(checker), Some(_)) => {
                let checker = checker.name();
                Err(UnknownName::NoModels { checker })
            }
            (None, _) => Err(UnknownName::Checker { name: name.into() }),
        },
    }
}

/// The checker `rw-register`, judging by `model` and taking this for granted about keys.
pub fn rw_register(model: Option<&str>, inference: Inference) -> Result<RwRegister, UnknownName> {
    Ok(RwRegister::new(level("rw-register", model)?).with_inference(inference))
}

/// The checker of this name that looks for certain anomalies and takes no model.
fn anomalies(name: &str) -> Option<Box<dyn Checker>> {
    Some(match name {
        "g1" => Box::new(G1),
        "set" => Box::new(Set),
        "queue" => Box::new(Queue),
        "total-queue" => Box::new(TotalQueue),
        "unique-ids" => Box::new(UniqueIds),
        "counter" => Box::new(Counter),
        "bank" => Box::new(Bank::new()),
        "log" => Box::new(Log),
        "long-fork" => Box::new(LongFork::new()),
        _ => return None,
    })
}

/// The checkers of a workload: statistics, and what its operations promise.
pub fn for_workload(
    workload: &str,
    model: Option<&str>,
) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
    let names: &[&str] = match workload {
        // The workload compares and sets as well.
        "register" => &["cas-register"],
        // It is read all the time.
        "set" => &["set-full"],
        // It is drained at the end.
        "queue" => &["queue", "total-queue"],
        // Who acquires releases, so owners are known: that is more to ask than turns alone, and needs no search.
        "mutex" => &["lock"],
        other => &[other],
    };
    let mut checkers: Vec<Box<dyn Checker>> = vec![Box::new(Stats)];
    for name in names {
        // The workload's acquisitions come with fences, where the system has any.
        let usual = (workload == "lock").then_some("fenced");
        checkers.push(by_name(name, model.or(usual))?);
    }
    Ok(checkers)
}

/// When elements of a set must be visible; as soon as they are added when nothing is named.
fn visibility(model: Option<&str>) -> Result<Visibility, UnknownName> {
    let Some(name) = model else {
        return Ok(Visibility::default());
    };
    let known = Visibility::ALL.into_iter().find(|one| one.name() == name);
    known.ok_or_else(|| UnknownName::Model {
        checker: "set-full",
        model: name.into(),
        models: Visibility::ALL.map(Visibility::name).to_vec(),
    })
}

/// What a lock promises; to know its owner when nothing is named.
fn discipline(model: Option<&str>) -> Result<Discipline, UnknownName> {
    let Some(name) = model else {
        return Ok(Discipline::default());
    };
    let known = Discipline::ALL.into_iter().find(|one| one.name() == name);
    known.ok_or_else(|| UnknownName::Model {
        checker: "lock",
        model: name.into(),
        models: Discipline::ALL.map(Discipline::name).to_vec(),
    })
}

/// Whose order timestamps must agree with; all rows' together when nothing is named.
fn agreement(model: Option<&str>) -> Result<Agreement, UnknownName> {
    let Some(name) = model else {
        return Ok(Agreement::default());
    };
    let known = Agreement::ALL.into_iter().find(|one| one.name() == name);
    known.ok_or_else(|| UnknownName::Model {
        checker: "monotonic",
        model: name.into(),
        models: Agreement::ALL.map(Agreement::name).to_vec(),
    })
}

/// The isolation level of this name; strict serializability when none is named.
fn level(checker: &'static str, model: Option<&str>) -> Result<Level, UnknownName> {
    let Some(name) = model else {
        return Ok(Level::default());
    };
    Level::by_name(name).ok_or_else(|| UnknownName::Model {
        checker,
        model: name.into(),
        models: Level::all().map(Level::name).collect(),
    })
}

/// The axiomatic level of this name; strict serializability when none is named.
fn isolation(model: Option<&str>) -> Result<isolation::Model, UnknownName> {
    let Some(name) = model else {
        return Ok(isolation::Model::default());
    };
    isolation::Model::by_name(name).ok_or_else(|| UnknownName::Model {
        checker: Isolation::NAME,
        model: name.into(),
        models: isolation::Model::all()
            .map(isolation::Model::name)
            .collect(),
    })
}

/// What the database's timestamps are held to; its snapshots and sessions when nothing is named.
fn promise(model: Option<&str>) -> Result<Promise, UnknownName> {
    let Some(name) = model else {
        return Ok(Promise::default());
    };
    let known = Promise::ALL.into_iter().find(|one| one.name() == name);
    known.ok_or_else(|| UnknownName::Model {
        checker: "timestamps",
        model: name.into(),
        models: Promise::ALL.map(Promise::name).to_vec(),
    })
}

/// Refuses every model but the one that the checker has.
fn only(
    known: &'static str,
    checker: &'static str,
    model: Option<&str>,
) -> Result<(), UnknownName> {
    match model {
        Some(model) if model != known => Err(UnknownName::Model {
            checker,
            model: model.into(),
            models: vec![known],
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_checker() {
        for name in NAMES {
            assert_eq!(by_name(name, None).unwrap().name(), name);
        }
        let error = |name, model| by_name(name, model).err().unwrap().to_string();
        let text = error("regster", None);
        assert!(
            text.starts_with(
                "unknown checker `regster`; did you mean `register`? (available: stats, "
            ),
            "{text}"
        );
        assert_eq!(
            error("mutex", Some("serializable")),
            "checker `mutex`: unknown model `serializable` (available: linearizable)"
        );
    }

    #[test]
    fn a_workload_has_statistics_and_a_checker() {
        let checkers = for_workload("register", Some("linearizable")).unwrap();
        let names: Vec<_> = checkers.iter().map(|checker| checker.name()).collect();
        assert_eq!(names, ["stats", "cas-register"]);
        assert!(for_workload("register", Some("causal")).is_err());
        for (workload, model) in [("mutex", "owner-aware"), ("lock", "fenced")] {
            let checkers = for_workload(workload, None).unwrap();
            let verdict = checkers[1].check(&seatrial_history::History::default());
            assert_eq!(checkers[1].name(), "lock", "{workload}");
            assert_eq!(verdict.model.as_deref(), Some(model), "{workload}");
        }
    }
}
