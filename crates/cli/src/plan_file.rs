//! Plans from files.

use crate::args::RunArguments;
use anyhow::{Context as _, Result, ensure};
use seatrial_check::{CheckQuestion, ModelChecker, Request, StateTableRow, TableModel};
use seatrial_check::{MinimumLoad, UnknownName, by_name, for_workload};
use seatrial_checker::{Checker, Pattern};
use seatrial_generator::workload::{self, Workload, WorkloadOptions};
use seatrial_machine::{FaultKind, Rng};
use seatrial_plan::document::TEXT_LENGTH_MAX;
use seatrial_plan::{MakeWorkload, Plan, PlanModel, Problem, Vocabulary};
use seatrial_runner::PlanSource;
use seatrial_suite::Suite;
use serde_json::Value as Json;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Any workload, any operation: for plans that are looked at only.
pub(crate) const ANYTHING: Vocabulary<'static> = Vocabulary {
    workloads: &workload::NAMES,
    functions: None,
};

/// A plan and the text it comes from.
#[derive(Clone, Debug)]
pub(crate) struct PlanFile {
    name: String,
    text: String,
    pub(crate) plan: Plan,
    /// The data type that the plan states.
    table: Option<TableModel>,
}

/// The checker of the data type that a plan states.
const TABLE_CHECKER: &str = "table-model";

impl PlanFile {
    /// The plan that the options name, if they do.
    pub(crate) fn of(run: &RunArguments, vocabulary: &Vocabulary<'_>) -> Result<Option<PlanFile>> {
        ensure!(
            run.plan.is_none() || run.workload_options.words().is_empty(),
            "a plan says by itself which keys its workloads use;{} has no place beside --plan",
            run.workload_options.words()
        );
        let path = run.plan.as_deref();
        path.map(|path| PlanFile::open(path, vocabulary))
            .transpose()
    }

    /// Reads a file; `-` is standard input. The plan may use these words.
    pub(crate) fn open(path: &Path, vocabulary: &Vocabulary<'_>) -> Result<PlanFile> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin {
            "standard input".into()
        } else {
            path.display().to_string()
        };
        let text = if is_stdin {
            read(std::io::stdin().lock())
        } else {
            std::fs::File::open(path)
                .map_err(anyhow::Error::from)
                .and_then(read)
        };
        let text = text.with_context(|| name.clone())?;
        PlanFile::from_text(name, text, vocabulary)
    }

    /// The plan of a text.
    pub(crate) fn from_text(
        name: String,
        text: String,
        vocabulary: &Vocabulary<'_>,
    ) -> Result<PlanFile> {
        let source = PlanSource {
            file: &name,
            text: &text,
        };
        let plan = source.plan(vocabulary)?;
        let table = plan.model().map(table_of).transpose();
        let table = table.map_err(|problem| source.error(problem))?;
        Ok(PlanFile {
            name,
            text,
            plan,
            table,
        })
    }

    /// A problem with its place in the file.
    pub(crate) fn error(&self, problem: Problem) -> anyhow::Error {
        let source = PlanSource {
            file: &self.name,
            text: &self.text,
        };
        source.error(problem).into()
    }

    /// What is allowed but hardly meant, each with its place.
    pub(crate) fn advice(&self) -> Vec<String> {
        let advice = self.plan.advice().into_iter();
        advice
            .map(|problem| self.error(problem).to_string())
            .collect()
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What the plan is called: its name, or that of the file.
    pub(crate) fn label(&self) -> &str {
        self.plan.name().unwrap_or(&self.name)
    }

    /// The one workload that it consists of, if it does.
    pub(crate) fn workload(&self) -> Option<&str> {
        match &self.plan.workloads()[..] {
            [name] if !self.plan.has_own_operations() => Some(name),
            _ => None,
        }
    }

    /// The names of the checkers, if the plan has them.
    pub(crate) fn checker_names(&self) -> Option<Vec<&str>> {
        let names = self.plan.options().checkers.as_ref()?;
        Some(names.iter().map(|name| name.value.as_str()).collect())
    }

    /// The model: the one asked for, else the plan's.
    pub(crate) fn model<'m>(&'m self, asked: Option<&'m str>) -> Option<&'m str> {
        let own = self.plan.options().model.as_ref();
        asked.or_else(|| own.map(|model| model.value.as_str()))
    }

    /// The operations that must be ok.
    pub(crate) fn minimum(&self) -> Result<MinimumLoad> {
        let options = self.plan.options();
        let minimum = MinimumLoad {
            each: options.min_ok_each.filter(|each| *each > 0),
            ..MinimumLoad::default()
        };
        let Some(text) = &options.min_ok else {
            return Ok(minimum);
        };
        let with = minimum.with_text(&text.value);
        with.map_err(|reason| self.error(text.problem(reason)))
    }

    /// The regular expressions of log lines that are failures.
    pub(crate) fn log_patterns(&self) -> Result<Vec<String>> {
        let patterns = self.plan.options().log_patterns.iter();
        let compiled = patterns.map(|pattern| match Pattern::new(&pattern.value) {
            Ok(_) => Ok(pattern.value.clone()),
            Err(error) => Err(self.error(pattern.problem(error.to_string()))),
        });
        compiled.collect()
    }

    /// The checkers that the plan names, else those of its workload, for `model` if it is given, else for the model of the
    /// plan.
    pub(crate) fn checkers(
        &self,
        suite: Option<&dyn Suite>,
        model: Option<&str>,
    ) -> Result<Vec<Box<dyn Checker>>> {
        let options = self.plan.options();
        let located = |error: UnknownName| match (&error, &options.model) {
            (UnknownName::Checker { .. }, _) => error.into(),
            (_, Some(own)) if model.is_none() => self.error(own.problem(error.to_string())),
            _ => error.into(),
        };
        let wanted = self.model(model);
        let Some(names) = &options.checkers else {
            let Some(workload) = self.workload() else {
                let reason = "no checkers: a plan with operations of its own, or with several workloads, \
must name them, such as checkers = [\"cas-register\"]";
                return Err(self.error(Problem {
                    at: 0,
                    path: "test.checkers".into(),
                    reason: reason.into(),
                }));
            };
            let checkers = match suite {
                Some(suite) => suite.checkers(workload, wanted),
                None => for_workload(workload, wanted),
            };
            return checkers.map_err(located);
        };
        let mut checkers = vec![by_name("stats", None)?];
        for name in names.iter().filter(|name| name.value != "stats") {
            if name.value == TABLE_CHECKER && self.table.is_none() {
                let reason = "the checker `table-model` needs the table [model] of the plan";
                return Err(self.error(name.problem(reason)));
            }
            let checker = match by_name(&name.value, wanted) {
                // A model applies to checkers that have models.
                Err(UnknownName::NoModels { .. }) if names.len() > 1 => by_name(&name.value, None),
                found => found,
            };
            checkers.push(checker.map_err(|error| match error {
                UnknownName::Checker { .. } => self.error(name.problem(error.to_string())),
                other => located(other),
            })?);
        }
        self.state_table(&mut checkers);
        Ok(checkers)
    }

    /// Gives the checker `table-model`, if it is among these, the table of the plan.
    fn state_table(&self, checkers: &mut [Box<dyn Checker>]) {
        let Some(table) = &self.table else {
            return;
        };
        for checker in checkers {
            if checker.name() == TABLE_CHECKER {
                *checker = Box::new(ModelChecker::new(table.clone()));
            }
        }
    }

    /// The families of faults that are broken: those asked for, else the plan's.
    pub(crate) fn kinds(&self, asked: Option<&[FaultKind]>) -> Vec<FaultKind> {
        asked.map_or_else(|| self.plan.fault_kinds(), <[FaultKind]>::to_vec)
    }
}

/// Gives the checker `table-model` of a question the table that the plan of the history states.
pub(crate) fn state_planned_table(
    question: &mut CheckQuestion,
    request: &Request,
    attributes: &Json,
) -> Result<()> {
    let Some(text) = attributes["plan"].as_str() else {
        return Ok(());
    };
    // Other formats may have an attribute of this name, which is no plan: only this checker reads it.
    if question.names().contains(&TABLE_CHECKER) {
        let name = "the plan of the history".to_owned();
        let file = PlanFile::from_text(name, text.to_owned(), &ANYTHING)?;
        file.state_table(&mut question.checkers);
        for checker in &mut question.checkers {
            if checker.name() == TABLE_CHECKER && !request.all_keys && !request.explains {
                checker.stop_at_first();
            }
        }
    }
    Ok(())
}

/// The table of a plan, or the place where it is none.
fn table_of(model: &PlanModel) -> Result<TableModel, Problem> {
    let rows = model.rows.iter().map(|row| StateTableRow {
        state: row.state.value.clone(),
        operation: row.operation.clone(),
        argument: row.argument.clone(),
        result: row.result.clone(),
        next: row.next.value.clone(),
    });
    let rows: Vec<StateTableRow> = rows.collect();
    TableModel::new(&model.initial.value, &rows).map_err(|error| {
        let row = error.row.map(|row| &model.rows[row]);
        let place = match (row, error.part) {
            (Some(row), "next") => &row.next,
            (Some(row), _) => &row.state,
            (None, _) => &model.initial,
        };
        place.problem(error.reason)
    })
}

/// The whole text, unless it is longer than any plan.
fn read(reader: impl Read) -> Result<String> {
    let mut text = String::new();
    let most = TEXT_LENGTH_MAX as u64 + 1;
    reader.take(most).read_to_string(&mut text)?;
    ensure!(
        text.len() <= TEXT_LENGTH_MAX,
        "longer than {TEXT_LENGTH_MAX} bytes, which no plan is"
    );
    Ok(text)
}

/// Workloads by name, for plans that are carried out nowhere.
pub(crate) fn any_workload() -> Arc<MakeWorkload> {
    Arc::new(|name: &str, rng: &Rng, options: &WorkloadOptions| {
        Workload::new(name, rng, options).ok()
    })
}
