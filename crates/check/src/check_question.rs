//! Which checkers a history is given to, by which model, and why.

use crate::infer::{Guess, Shapes, of_workload};
use crate::registry::{Entry, UnknownName, by_name, entry, isolation, rw_register};
use crate::suite_workloads::{SuiteWorkloads, is_of_suite, of_suite};
use crate::workloads::checkers_of;
use seatrial_checker::{Checker, Divergence, Verdict};
use seatrial_cycles::Level;
use seatrial_history::Provenance;
use seatrial_inference::{Inference, RwRegister};
use seatrial_isolation::Isolation;
use serde_json::Value as Json;
use std::sync::Arc;

/// The attribute of a test whose nodes report their states at its end: it is checked by [`Divergence`] too.
pub const NODE_STATES: &str = "node_states";

/// What a person asked for. What is not asked for, the history says.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Checkers by name.
    pub checkers: Option<Vec<String>>,
    /// The consistency model.
    pub model: Option<String>,
    /// Assumptions about each key's version order.
    pub inference: Inference,
    /// An order of transactions: indices of completions and numbers.
    pub order: Option<Arc<Vec<(u64, i64)>>>,
    /// Is every key checked, also after one that is broken?
    pub all_keys: bool,
    /// Is more wanted than a verdict, so that every key counts?
    pub explains: bool,
    /// The suites of this program, whose workloads have checkers.
    pub suites: Option<Arc<dyn SuiteWorkloads>>,
}

/// Why a request makes no sense for a history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A checker or a model that does not exist.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// An option that none of the checkers takes.
    #[error("{option} has no effect on {checkers}: it is for {takers}")]
    NoEffect {
        /// The option as typed.
        option: &'static str,
        /// The checkers that were chosen.
        checkers: String,
        /// Those that take it.
        takers: &'static str,
    },
    /// An assumption that needs times.
    #[error(
        "linearizable-keys needs the times of transactions, and this history has none: leave it out of --infer"
    )]
    NoTimes,
}

/// The checkers for one history.
pub struct CheckQuestion {
    /// They are started anew for each round.
    pub checkers: Vec<Box<dyn Checker>>,
    /// Why these, in words: `list-append: asked for`.
    pub why: Option<String>,
    /// The verdict when neither the request nor the history says which checker is meant.
    pub unclear: Option<Verdict>,
    /// What limits the answer, in words.
    pub warnings: Vec<String>,
}

impl CheckQuestion {
    /// The names of the checkers.
    pub fn names(&self) -> Vec<&'static str> {
        self.checkers.iter().map(|one| one.name()).collect()
    }
}

/// Where the choice of checkers came from.
enum ChoiceOrigin {
    Asked,
    Plan,
    Workload(String),
    Format,
    Operations(&'static str),
}

impl ChoiceOrigin {
    fn words(&self, is_timeless: bool) -> String {
        match self {
            ChoiceOrigin::Asked => "asked for".to_owned(),
            ChoiceOrigin::Plan => "by the plan of the file".to_owned(),
            ChoiceOrigin::Workload(name) => format!("by workload `{name}` of the file"),
            ChoiceOrigin::Format => "by the format of the file".to_owned(),
            ChoiceOrigin::Operations(seen) if is_timeless => {
                format!("inferred from the operations ({seen}, without times)")
            }
            ChoiceOrigin::Operations(seen) => format!("inferred from the operations ({seen})"),
        }
    }
}

/// A checker by name, with the model that its workload usually asks for.
type Named = (String, Option<&'static str>);

/// Does the choice of checkers depend on what the operations look like?
pub fn needs_shapes(request: &Request, attributes: &Json) -> bool {
    !is_of_suite(request, attributes) && origin(request, attributes, None).is_none()
}

/// The checkers for a history with these attributes, whose operations look like this.
///
/// In this order: those asked for; those of the file's plan; those of its workload, from the suite that wrote it or else from
/// [`WORKLOADS`](crate::WORKLOADS); the checker of timestamps for a format that has them; else what the operations look like,
/// with the workload's name as a hint.
/// The model is the one asked for, else the one that the run was started with, else the workload's usual one, else the checker's
/// strictest.
pub fn question(
    request: &Request,
    attributes: &Json,
    shapes: Option<&Shapes>,
) -> Result<CheckQuestion, RequestError> {
    if let Some((workload, checkers)) = of_suite(request, attributes)? {
        let origin = ChoiceOrigin::Workload(workload.to_owned());
        return chosen(request, attributes, &origin, checkers);
    }
    let Some((origin, names)) = origin(request, attributes, shapes) else {
        return Ok(unclear(shapes));
    };
    let mut checkers: Vec<Box<dyn Checker>> = Vec::new();
    let asked = request.model.as_deref();
    let own = attributes["options"]["model"].as_str();
    for (name, usual) in &names {
        let only_counts = names.iter().all(|(name, _)| name == "stats");
        let model = asked.filter(|_| name != "stats" || only_counts);
        let checker = match (model, own.or(*usual)) {
            (Some(model), _) => build(name, Some(model), request)?,
            (None, Some(model)) => match build(name, Some(model), request) {
                Err(UnknownName::NoModels { .. } | UnknownName::Model { .. }) => {
                    build(name, *usual, request)?
                }
                built => built?,
            },
            (None, None) => build(name, None, request)?,
        };
        checkers.push(checker);
    }
    assert_eq!(checkers.len(), names.len(), "one checker for each name");
    chosen(request, attributes, &origin, checkers)
}

/// The question with these checkers, if every option of the request has an effect on one of them.
fn chosen(
    request: &Request,
    attributes: &Json,
    origin: &ChoiceOrigin,
    mut checkers: Vec<Box<dyn Checker>>,
) -> Result<CheckQuestion, RequestError> {
    // The nodes of this test report their states, whatever its workload.
    if request.checkers.is_none() && attributes[NODE_STATES] == true {
        checkers.push(Box::new(Divergence));
    }
    let provenance = Provenance::of_attributes(attributes);
    let shown: Vec<&str> = checkers.iter().map(|one| one.name()).collect();
    let mut warnings = Vec::new();
    let asked = request.model.as_deref();
    let model = asked.or(attributes["options"]["model"].as_str());
    if provenance.is_timeless() && shown.iter().any(|name| is_of_transactions(name)) {
        warnings.extend(model.and_then(without_times));
    }
    effects(request, &shown, &provenance)?;
    let others: Vec<&str> = shown
        .iter()
        .copied()
        .filter(|name| *name != "stats")
        .collect();
    let named = if others.is_empty() { &shown } else { &others };
    let is_timeless = provenance.is_timeless() && named == &[Isolation::NAME];
    Ok(CheckQuestion {
        checkers,
        why: Some(format!(
            "{}: {}",
            named.join(", "),
            origin.words(is_timeless)
        )),
        unclear: None,
        warnings,
    })
}

/// Is this workload's history one of a test of ours, so that the names in its attributes mean what they mean here?
fn own_workload(attributes: &Json) -> Option<&str> {
    let workload = attributes["workload"].as_str()?;
    (attributes["format"] != "jepsen").then_some(workload)
}

/// The checker of the client protocol, if the history was recorded through it.
fn client_protocol(attributes: &Json) -> Option<Named> {
    let is_recorded = attributes["client_protocol"].is_number();
    is_recorded.then(|| ("client-protocol".to_owned(), None))
}

/// Where the checkers come from and their names; `None` when the operations are to be looked at, or fit no checker.
fn origin(
    request: &Request,
    attributes: &Json,
    shapes: Option<&Shapes>,
) -> Option<(ChoiceOrigin, Vec<Named>)> {
    let planned = attributes["checkers"].as_array();
    let own = own_workload(attributes).filter(|name| !checkers_of(name).is_empty());
    let usual = own.map(checkers_of).unwrap_or_default();
    let stats = || ("stats".to_owned(), None);
    if let Some(asked) = &request.checkers {
        let mut names: Vec<Named> = Vec::new();
        // A test that is checked for more than counts is checked for those as well, whichever the checkers.
        if own.is_some() || planned.is_some() {
            names.push(stats());
        }
        for name in asked {
            let model = usual.iter().find(|(known, _)| known == name);
            if names.iter().all(|(known, _)| known != name) {
                names.push((name.clone(), model.and_then(|(_, model)| *model)));
            }
        }
        return Some((ChoiceOrigin::Asked, names));
    }
    if let Some(planned) = planned {
        let planned = planned.iter().filter_map(Json::as_str);
        let planned = planned.filter(|name| *name != "stats");
        let names = std::iter::once(stats());
        let names = names.chain(planned.map(|name| (name.to_owned(), None)));
        let names = names.chain(client_protocol(attributes)).collect();
        return Some((ChoiceOrigin::Plan, names));
    }
    if let Some(workload) = own {
        let mut names = vec![stats()];
        names.extend(
            usual
                .into_iter()
                .map(|(name, model)| (name.to_owned(), model)),
        );
        names.dedup();
        names.extend(client_protocol(attributes));
        return Some((ChoiceOrigin::Workload(workload.to_owned()), names));
    }
    let is_stamped = attributes["format"] == "timekiller";
    let model = request.model.as_deref();
    if is_stamped && by_name("timestamps", model).is_ok() {
        return Some((ChoiceOrigin::Format, vec![("timestamps".to_owned(), None)]));
    }
    inferred(request, attributes, shapes?)
}

/// The checkers that operations look like.
fn inferred(
    request: &Request,
    attributes: &Json,
    shapes: &Shapes,
) -> Option<(ChoiceOrigin, Vec<Named>)> {
    let hint = attributes["workload"].as_str();
    if let Some((name, workload)) = hint.and_then(of_workload).zip(hint)
        && shapes.refusal(name).is_none()
    {
        let origin = ChoiceOrigin::Workload(workload.to_owned());
        return Some((origin, named_by_shape(name)));
    }
    let Guess::Checker { name, because } = shapes.guess() else {
        return None;
    };
    // Without times little can be inferred, but everything decided.
    let infers = !request.inference.is_empty() || request.order.is_some();
    let is_timeless = Provenance::of_attributes(attributes).is_timeless();
    let name = if name == "rw-register" && is_timeless && !infers {
        Isolation::NAME
    } else {
        name
    };
    Some((ChoiceOrigin::Operations(because), named_by_shape(name)))
}

/// A queue that is drained is checked for what comes out twice as well, as the workload is.
fn named_by_shape(name: &str) -> Vec<Named> {
    let names = match name {
        "total-queue" => checkers_of("queue"),
        _ => return vec![(name.to_owned(), None)],
    };
    let names = names.into_iter();
    names
        .map(|(name, model)| (name.to_owned(), model))
        .collect()
}

/// No checker fits: why, and the options that name one.
fn unclear(shapes: Option<&Shapes>) -> CheckQuestion {
    let guess = shapes.map(Shapes::guess);
    let (reason, options) = match guess {
        Some(Guess::Unclear { reason, options }) => (reason, options),
        _ => ("they were not looked at".to_owned(), Vec::new()),
    };
    let options: Vec<String> = options
        .iter()
        .map(|name| format!("--checker {name}"))
        .collect();
    let remedy = match &options[..] {
        [] => "name one with --checker".to_owned(),
        options => format!("name it with {}", options.join(" or ")),
    };
    let reason = format!("cannot infer a checker from the operations: {reason}; {remedy}");
    CheckQuestion {
        checkers: Vec::new(),
        why: None,
        unclear: Some(Verdict::valid("none").unknown(reason)),
        warnings: Vec::new(),
    }
}

/// One checker, with all that the request says to it.
pub(crate) fn build(
    name: &str,
    model: Option<&str>,
    request: &Request,
) -> Result<Box<dyn Checker>, UnknownName> {
    let mut checker: Box<dyn Checker> = match (name, &request.order) {
        ("rw-register", order) => {
            let checker: RwRegister = rw_register(model, request.inference)?;
            match order {
                Some(order) => Box::new(checker.with_order(order.iter().copied())),
                None => Box::new(checker),
            }
        }
        (Isolation::NAME, Some(order)) => Box::new(isolation(model)?.with_order(order.to_vec())),
        _ => by_name(name, model)?,
    };
    if !request.all_keys && !request.explains {
        checker.stop_at_first();
    }
    Ok(checker)
}

/// Refuses options that have no effect on these checkers.
fn effects(request: &Request, names: &[&str], provenance: &Provenance) -> Result<(), RequestError> {
    let has = |wanted: &[&str]| names.iter().any(|name| wanted.contains(name));
    let refuse = |option, takers| {
        let checkers = names.join(", ");
        Err(RequestError::NoEffect {
            option,
            checkers,
            takers,
        })
    };
    if !request.inference.is_empty() && !has(&["rw-register"]) {
        return refuse("--infer", "rw-register");
    }
    if request.order.is_some() && !has(&["rw-register", Isolation::NAME]) {
        return refuse("--transaction-order", "rw-register and isolation");
    }
    let is_linear = |name: &&str| entry(name).is_some_and(Entry::has_keys);
    if request.all_keys && !names.iter().any(is_linear) {
        return refuse(
            "--all-keys",
            "searches for linearizations: register, fifo-queue and others",
        );
    }
    if request.inference.linearizable_keys && provenance.is_timeless() {
        return Err(RequestError::NoTimes);
    }
    Ok(())
}

fn is_of_transactions(name: &str) -> bool {
    ["list-append", "rw-register", Isolation::NAME].contains(&name)
}

/// What to say when this model is asked of a history without times, if real time is part of it.
fn without_times(model: &str) -> Option<String> {
    let asked = Level::by_name(model)?;
    let weaker = asked.without_real_time();
    (weaker != asked).then(|| {
        let (asked, weaker) = (asked.name(), weaker.name());
        format!(
            "this history has no times, so whether {asked} holds cannot be decided; checked against {weaker}, which is the same \
             without real time"
        )
    })
}
