//! Checkers of workloads that belong to a suite and are in no table of this crate.

use crate::check_question::{Request, build};
use crate::registry::UnknownName;
use seatrial_checker::Checker;
use seatrial_isolation::Isolation;
use serde_json::Value as Json;
use std::fmt::Debug;

/// The checkers of a workload, with `stats`.
pub type WorkloadCheckers = Result<Vec<Box<dyn Checker>>, UnknownName>;

/// The suites of a program, as a check needs them: a history says which suite and which workload wrote it, and the suite has
/// the checkers.
pub trait SuiteWorkloads: Debug + Send + Sync {
    /// The checkers of a suite's workload for a model, by default the workload's usual one; `None` when no suite of this program
    /// has this name, or it has no such workload.
    fn checkers(
        &self,
        suite: &str,
        workload: &str,
        model: Option<&str>,
    ) -> Option<WorkloadCheckers>;
}

/// The suite and the workload of a history, if its checkers are those of this workload: none were asked for, and its plan names
/// none.
fn names<'a>(request: &Request, attributes: &'a Json) -> Option<(&'a str, &'a str)> {
    if request.checkers.is_some() || attributes["checkers"].is_array() {
        return None;
    }
    attributes["suite"]
        .as_str()
        .zip(attributes["workload"].as_str())
}

/// A workload's name and its checkers.
type Named<'a> = (&'a str, Vec<Box<dyn Checker>>);

/// The checkers of the suite that wrote the history, and its workload; `None` when the program has no such suite.
///
/// The model is the one asked for, else that of the run where the workload has it, else the workload's usual one.
pub(crate) fn of_suite<'a>(
    request: &Request,
    attributes: &'a Json,
) -> Result<Option<Named<'a>>, UnknownName> {
    let Some((suites, (suite, workload))) = request.suites.as_ref().zip(names(request, attributes))
    else {
        return Ok(None);
    };
    let make = |model: Option<&str>| suites.checkers(suite, workload, model).transpose();
    let own = attributes["options"]["model"].as_str();
    let made = match (request.model.as_deref(), own) {
        (None, Some(own)) => match make(Some(own)) {
            Err(UnknownName::NoModels { .. } | UnknownName::Model { .. }) => make(None),
            made => made,
        },
        (asked, _) => make(asked),
    };
    let Some(mut checkers) = made? else {
        return Ok(None);
    };
    let assumes = !request.inference.is_empty() || request.order.is_some();
    for checker in &mut checkers {
        // Only these take assumptions; the suite cannot know them.
        if assumes && ["rw-register", Isolation::NAME].contains(&checker.name()) {
            *checker = build(checker.name(), request.model.as_deref().or(own), request)?;
        }
        if !request.all_keys && !request.explains {
            checker.stop_at_first();
        }
    }
    Ok(Some((workload, checkers)))
}

/// Is the history of a suite's workload that this program has?
pub(crate) fn is_of_suite(request: &Request, attributes: &Json) -> bool {
    let suites = request.suites.as_ref();
    let found = suites
        .zip(names(request, attributes))
        .and_then(|(suites, (suite, workload))| suites.checkers(suite, workload, None));
    found.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_question::{RequestError, needs_shapes, question};
    use crate::registry::by_name;
    use seatrial_inference::Inference;
    use serde_json::json;
    use std::sync::Arc;

    /// One suite, `mine`, whose workload `tables` is checked for transactions and counts.
    #[derive(Debug)]
    struct Mine;

    impl SuiteWorkloads for Mine {
        fn checkers(
            &self,
            suite: &str,
            workload: &str,
            model: Option<&str>,
        ) -> Option<WorkloadCheckers> {
            (suite == "mine" && workload == "tables").then(|| {
                let tables = by_name("rw-register", Some(model.unwrap_or("snapshot-isolation")))?;
                Ok(vec![by_name("stats", None)?, tables])
            })
        }
    }

    fn asked(suites: bool) -> Request {
        Request {
            suites: suites.then(|| Arc::new(Mine) as Arc<dyn SuiteWorkloads>),
            ..Request::default()
        }
    }

    fn of(
        request: &Request,
        attributes: &Json,
    ) -> Result<(Vec<&'static str>, String), RequestError> {
        let question = question(request, attributes, None)?;
        Ok((question.names(), question.why.unwrap_or_default()))
    }

    #[test]
    fn the_suite_that_wrote_a_history_names_its_checkers() {
        let attributes = json!({"suite": "mine", "workload": "tables"});
        let request = asked(true);
        assert!(!needs_shapes(&request, &attributes));
        let (names, why) = of(&request, &attributes).unwrap();
        assert_eq!(names, ["stats", "rw-register"]);
        assert_eq!(why, "rw-register: by workload `tables` of the file");
        // Nothing but the operations is left without the suite, with another one, or with another workload.
        let other = json!({"suite": "yours", "workload": "tables"});
        let unknown = json!({"suite": "mine", "workload": "chairs"});
        assert!(needs_shapes(&asked(false), &attributes));
        assert!(needs_shapes(&request, &other) && needs_shapes(&request, &unknown));
        assert!(of(&request, &other).unwrap().0.is_empty());
    }

    #[test]
    fn checkers_asked_for_and_those_of_a_plan_come_first() {
        let mut request = asked(true);
        let planned = json!({"suite": "mine", "workload": "tables", "checkers": ["set"]});
        assert_eq!(of(&request, &planned).unwrap().0, ["stats", "set"]);
        request.checkers = Some(vec!["bank".to_owned()]);
        let attributes = json!({"suite": "mine", "workload": "tables"});
        assert_eq!(of(&request, &attributes).unwrap().0, ["bank"]);
    }

    #[test]
    fn models_and_assumptions_reach_the_checkers_of_a_suite() {
        let mut request = asked(true);
        let run = |model: &str| json!({"suite": "mine", "workload": "tables", "options": {"model": model}});
        // A model of the run that the checker does not have is left out; one that was asked for is an error.
        assert!(of(&request, &run("serializable")).is_ok() && of(&request, &run("fenced")).is_ok());
        request.inference = Inference::by_names(&["sequential-keys".to_owned()]).unwrap();
        assert!(of(&request, &run("serializable")).is_ok());
        request.model = Some("fenced".to_owned());
        let refused = of(&request, &run("serializable")).unwrap_err().to_string();
        assert!(refused.contains("fenced"), "{refused}");
        request.model = None;
        request.all_keys = true;
        let refused = of(&request, &run("serializable")).unwrap_err().to_string();
        assert!(refused.contains("--all-keys"), "{refused}");
    }
}
