//! The suites of this program: from their list come the verbs' options, help texts and dispatch.

use crate::plan_file::PlanFile;
use anyhow::{Result, anyhow, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command};
use seatrial_check::{SuiteWorkloads, WorkloadCheckers};
use seatrial_generator::{FaultOptions, FaultOrder, parse_fault, workload};
use seatrial_machine::{FaultKind, NodeId, unknown_name};
use seatrial_suite::{OptionValues, Suite, SuiteError, SuiteOption, Verb};
use seatrial_system::{DataSuite, SystemFile};
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

/// Features of this package that bring suites: the first word of the names of their suites.
const SUITE_FEATURES: [&str; 9] = [
    "redis",
    "postgres",
    "mariadb",
    "kafka",
    "nats",
    "rabbitmq",
    "sqlite",
    "etcd",
    "zookeeper",
];

/// What is before the first hyphen.
fn first_word(suite: &str) -> &str {
    suite.split('-').next().unwrap_or(suite)
}

/// The feature that brings a suite of this name, if one does.
fn feature_of(suite: &str) -> Option<&'static str> {
    let first = first_word(suite);
    SUITE_FEATURES.into_iter().find(|feature| *feature == first)
}

/// The suites of this program, and those of their options that were given on the command line.
pub(crate) struct Suites {
    all: Vec<&'static dyn Suite>,
    given: OptionValues,
}

/// The suites of this program as the owners of workloads.
pub(crate) struct KnownSuites(Vec<&'static dyn Suite>);

impl fmt::Debug for KnownSuites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|suite| suite.name()))
            .finish()
    }
}

impl SuiteWorkloads for KnownSuites {
    fn checkers(
        &self,
        suite: &str,
        workload: &str,
        model: Option<&str>,
    ) -> Option<WorkloadCheckers> {
        let suite = self.0.iter().find(|known| known.name() == suite)?;
        let is_own = suite.workloads().contains(&workload);
        is_own.then(|| suite.checkers(workload, model))
    }
}

/// The verbs that take a suite.
const VERBS: [(&str, Verb); 3] = [
    ("test", Verb::Test),
    ("sim", Verb::Sim),
    ("node", Verb::Node),
];

impl Suites {
    pub(crate) fn new(all: &[&'static dyn Suite]) -> Suites {
        for (number, suite) in all.iter().enumerate() {
            let name = suite.name();
            let is_unique = all[..number].iter().all(|other| other.name() != name);
            assert!(is_unique, "two suites are called {name}");
            let is_used = !suite.workloads().is_empty() || !suite.tools().is_empty();
            assert!(is_used, "{name} has no workload and no command");
        }
        Suites {
            all: all.to_vec(),
            given: OptionValues::default(),
        }
    }

    /// The suite called `name`.
    pub(crate) fn named(&self, name: &str) -> Result<&'static dyn Suite> {
        let found = self.tested().find(|suite| suite.name() == name);
        found.ok_or_else(|| {
            if is_file(name) {
                return anyhow!("{name} describes a system: `seatrial test {name}` runs it, and it has no simulated world");
            }
            let mut words = self.tested().map(|suite| first_word(suite.name()));
            if let Some(feature) = feature_of(name)
                && words.all(|word| word != feature)
            {
                return anyhow!(
                    "this program was built without the suite `{name}`: cargo build --release --features {feature}"
                );
            }
            let names = self.tested().map(|suite| suite.name());
            let unknown = unknown_name("suite", name, names);
            anyhow!("{unknown}; a system of your own is a file: `seatrial init > my-system.toml`")
        })
    }

    /// The system that `name` describes, if it is the name of a file: it ends in `.toml` or has a slash.
    pub(crate) fn described(&self, name: &str) -> Result<Option<&'static DataSuite>> {
        if !is_file(name) {
            return Ok(None);
        }
        self.suite_of(SystemFile::open(Path::new(name))?).map(Some)
    }

    /// The suite that a file describes, if it describes one: a plan may, too.
    pub(crate) fn described_by(&self, path: &Path) -> Result<Option<&'static DataSuite>> {
        let file = SystemFile::open_if_described(path)?;
        file.map(|file| self.suite_of(file)).transpose()
    }

    fn suite_of(&self, file: SystemFile) -> Result<&'static DataSuite> {
        let (name, own) = (file.name(), file.system_name());
        ensure!(
            self.all.iter().all(|suite| suite.name() != own),
            "{name}: system.name: {own:?} is a suite of this program; choose another name"
        );
        Ok(DataSuite::leak(file))
    }

    /// The suites with workloads: those that can be tested.
    fn tested(&self) -> impl Iterator<Item = &'static dyn Suite> {
        let all = self.all.iter().copied();
        all.filter(|suite| !suite.workloads().is_empty())
    }

    /// The words of a command line in which a suite's name is followed by the command line of another program; any others as they
    /// are. The first word is the program.
    pub(crate) fn translate(&self, words: Vec<OsString>) -> Result<Vec<OsString>> {
        let Some((program, [name, rest @ ..])) = words.split_first() else {
            return Ok(words);
        };
        let suite = self.all.iter().find(|suite| suite.name() == name);
        match suite.and_then(|suite| suite.translate(rest)) {
            None => Ok(words),
            Some(translated) => {
                let mut all = vec![program.clone()];
                all.extend(translated.map_err(failure)?);
                Ok(all)
            }
        }
    }

    /// What a check needs of them.
    pub(crate) fn known(&self) -> KnownSuites {
        KnownSuites(self.all.clone())
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static dyn Suite> {
        self.all.iter().copied()
    }

    /// The options of this suite that were given. Those of other suites are an error.
    pub(crate) fn options_of(&self, suite: &dyn Suite) -> Result<OptionValues> {
        let mut values = OptionValues::default();
        for (name, value) in self.given.words() {
            let is_own = suite.options().iter().any(|option| option.name == name);
            ensure!(
                is_own,
                "--{name} is no option of the suite {}",
                suite.name()
            );
            values.insert(name, value.to_owned());
        }
        Ok(values)
    }

    /// Each option of this verb once, with the names of the suites that have it.
    fn options(&self, verb: Verb) -> Vec<(SuiteOption, String)> {
        let mut options: Vec<(SuiteOption, String)> = Vec::new();
        for suite in self.tested() {
            let own = suite.options().iter();
            for option in own.filter(|option| option.verbs.contains(&verb)) {
                match options
                    .iter_mut()
                    .find(|(known, _)| known.name == option.name)
                {
                    // Writing to a string cannot fail.
                    Some((_, owners)) => drop(write!(owners, ", {}", suite.name())),
                    None => options.push((*option, suite.name().to_owned())),
                }
            }
        }
        options
    }

    /// Adds what the suites have to the verbs that take one.
    pub(crate) fn extend(&self, mut command: Command) -> Command {
        for (name, verb) in VERBS {
            let options = self.options(verb);
            let about = self.about(verb);
            command = command.mut_subcommand(name, |verb| {
                let verb = options.into_iter().fold(verb, |verb, (option, owners)| {
                    verb.arg(argument(&option, &owners))
                });
                verb.after_help(about)
            });
        }
        command
    }

    /// What each suite has, for the end of a verb's help.
    fn about(&self, verb: Verb) -> String {
        let mut text = String::from("Suites:");
        let mut line = |label: &str, names: &[&str]| {
            if !names.is_empty() {
                hang(&mut text, label, &names.join(", "), 6);
            }
        };
        for suite in self.tested() {
            if verb == Verb::Sim && suite.simulator().is_none() {
                continue;
            }
            line("  ", &[&format!("{}: {}", suite.name(), suite.about())]);
            let bugs: Vec<_> = suite.bugs().iter().map(|bug| bug.name).collect();
            let kinds = match suite.simulator().filter(|_| verb == Verb::Sim) {
                Some(simulator) => simulator.faults(),
                None => suite.faults(),
            };
            let faults: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            if verb != Verb::Node {
                line("    workloads: ", suite.workloads());
                line("    faults unless others are named: ", &faults);
            }
            line("    planted bugs: ", &bugs);
        }
        if verb != Verb::Node {
            text.push_str("\n\nFaults:");
            for kind in FaultKind::ALL {
                let label = format!("  {:<11} ", kind.name());
                hang(&mut text, &label, kind.about(), label.len());
            }
            text.push_str("\n\nWorkloads of seatrial:");
            for row in workload::TABLE {
                let label = format!("  {:<13} ", row.name);
                hang(&mut text, &label, row.about, label.len());
            }
            text.push('\n');
        }
        let suite = self.tested().next().map_or("SUITE", |suite| suite.name());
        let example = match verb {
            Verb::Test => format!("seatrial test {suite} --faults kill,partition --time 30"),
            Verb::Sim => format!("seatrial sim {suite} --bug NAME, then the same with --seed SEED"),
            Verb::Node => format!("seatrial node {suite} --listen 127.0.0.1:7400"),
        };
        let _ = write!(text, "\nExample: {example}");
        text
    }

    /// Adds the values that options can have, for completion. (The parser takes any value: what is wrong with one is said by
    /// what looks it up, which also knows the suite.)
    pub(crate) fn with_values(&self, mut command: Command) -> Command {
        let suites: Vec<Value> = self
            .tested()
            .map(|suite| (suite.name(), suite.about()))
            .collect();
        let about = |name: &'static str| {
            let row = workload::TABLE.iter().find(|row| row.name == name);
            (name, row.map_or("", |row| row.about))
        };
        let mut workloads: Vec<Value> = Vec::new();
        for name in self.iter().flat_map(|suite| suite.workloads()) {
            if !workloads.iter().any(|(known, _)| known == name) {
                workloads.push(about(name));
            }
        }
        let bugs = self.iter().flat_map(|suite| suite.bugs());
        let bugs: Vec<Value> = bugs.map(|bug| (bug.name, bug.about)).collect();
        let kinds = FaultKind::ALL.map(|kind| (kind.name(), kind.about()));
        let faults: Vec<Value> = kinds.into_iter().chain([("none", "no faults")]).collect();
        let checkers = seatrial_check::CHECKERS.iter();
        let checkers: Vec<Value> = checkers.map(|entry| (entry.name, entry.about)).collect();
        let tables = [
            ("suite", suites),
            ("workload", workloads),
            ("bug", bugs),
            ("faults", faults),
            ("checker", checkers),
        ];
        for verb in ["test", "sim", "node", "check"] {
            command = command.mut_subcommand(verb, |verb| {
                verb.mut_args(|argument| {
                    let table = tables.iter().find(|(id, _)| argument.get_id() == id);
                    match table {
                        Some((_, values)) => argument.value_parser(possible(values)),
                        None => argument,
                    }
                })
            });
        }
        command
    }

    /// Keeps the options of suites that were given.
    pub(crate) fn note_options(&mut self, matches: &ArgMatches) {
        let Some((name, matches)) = matches.subcommand() else {
            return;
        };
        let Some((_, verb)) = VERBS.iter().find(|(known, _)| *known == name) else {
            return;
        };
        for (option, _) in self.options(*verb) {
            if let Some(value) = matches.get_one::<OsString>(option.name) {
                self.given.insert(option.name, value.clone());
            }
        }
    }
}

/// Is it the name of a file that describes a system? Names of suites have neither an extension nor a slash.
fn is_file(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some_and(|it| it == "toml")
}

/// A value of an option, and a line about it.
type Value = (&'static str, &'static str);

fn possible(values: &[Value]) -> PossibleValuesParser {
    let values = values.iter().map(|(name, about)| {
        let value = PossibleValue::new(*name);
        if about.is_empty() {
            value
        } else {
            value.help(*about)
        }
    });
    PossibleValuesParser::new(values.collect::<Vec<_>>())
}

fn argument(option: &SuiteOption, owners: &str) -> Arg {
    let default = option.default.map(|value| format!(" [default: {value}]"));
    Arg::new(option.name)
        .long(option.name)
        .value_name(option.value_name)
        .value_parser(clap::value_parser!(OsString))
        .help(format!("{}{}", option.about, default.unwrap_or_default()))
        .help_heading(format!("Options of {owners}"))
}

/// An error of a suite.
pub(crate) fn failure(error: SuiteError) -> anyhow::Error {
    anyhow::Error::from_boxed(error)
}

/// The number of nodes that a suite makes of `--nodes` or a plan.
pub(crate) fn node_count(
    suite: &dyn Suite,
    asked: Option<u32>,
    file: Option<&PlanFile>,
) -> Result<u32> {
    if let Some(nodes) = asked {
        let count = suite.node_count(Some(nodes));
        return count.map_err(|error| anyhow!("--nodes {nodes}: {error}"));
    }
    let planned = file.and_then(|file| Some((file, file.plan.options().nodes.as_ref()?)));
    let Some((file, planned)) = planned else {
        return suite.node_count(None).map_err(failure);
    };
    let count = suite.node_count(Some(planned.value));
    count.map_err(|error| file.error(planned.problem(error.to_string())))
}

/// The faults that `--faults` names, `usual` without it, on a system of `nodes` nodes with `concurrency` clients.
pub(crate) fn fault_options(
    run: &crate::args::RunArguments,
    usual: Vec<FaultKind>,
    nodes: u32,
    concurrency: u32,
) -> Result<FaultOptions> {
    let mut options = fault_options_of(usual, nodes, concurrency);
    if let Some(names) = &run.faults {
        options.kinds.clear();
        let names = names.iter().map(|name| name.trim());
        for name in names.filter(|name| *name != "none" && !name.is_empty()) {
            let (kind, targets) = parse_fault(name)?;
            if !targets.is_empty() && run.plan.is_some() {
                bail!("--faults {name}: a plan names the targets of its faults itself");
            }
            if !options.kinds.contains(&kind) {
                options.kinds.push(kind);
            }
            if !targets.is_empty() {
                options.targets.entry(kind).or_default().extend(targets);
            }
        }
        options.check()?;
    }
    if let Some(order) = &run.fault_schedule {
        options.order = FaultOrder::from_name(order)?;
    }
    Ok(options)
}

/// These kinds of faults on a system of `nodes` nodes with `concurrency` clients.
pub(crate) fn fault_options_of(
    kinds: Vec<FaultKind>,
    nodes: u32,
    concurrency: u32,
) -> FaultOptions {
    let servers: Vec<NodeId> = (1..=nodes).map(NodeId::server).collect();
    let clients: Vec<NodeId> = (0..concurrency).map(NodeId::client).collect();
    FaultOptions::new(kinds, servers, clients, Duration::ZERO)
}

/// Width of help texts in columns.
pub(crate) const HELP_WIDTH: usize = 79;

/// Appends a line with a label and words, broken at [`HELP_WIDTH`], the rest indented by `indent`.
fn hang(text: &mut String, label: &str, words: &str, indent: usize) {
    text.push('\n');
    text.push_str(label);
    let mut column = label.chars().count();
    let mut is_first = true;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if !is_first && column + 1 + length > HELP_WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            (column, is_first) = (indent, true);
        }
        if !is_first {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;
    use clap::CommandFactory as _;
    use seatrial_suite::{Deployment, Setup};

    /// A suite that is all name and options.
    struct Plain(&'static str, &'static [SuiteOption]);

    impl Suite for Plain {
        fn name(&self) -> &'static str {
            self.0
        }

        fn about(&self) -> &'static str {
            "a system of no use"
        }

        fn workloads(&self) -> &'static [&'static str] {
            &["register", "set"]
        }

        fn deploy(&self, _: &Setup<'_>) -> Result<Deployment, SuiteError> {
            Err("nothing to deploy".into())
        }

        fn options(&self) -> &'static [SuiteOption] {
            self.1
        }
    }

    const fn option(name: &'static str, verbs: &'static [Verb]) -> SuiteOption {
        SuiteOption {
            name,
            value_name: "VALUE",
            about: "Something",
            default: None,
            verbs,
        }
    }

    static ONE: Plain = Plain(
        "one",
        &[
            option("shared", &[Verb::Test]),
            option("own", &[Verb::Test, Verb::Node]),
        ],
    );
    static TWO: Plain = Plain("two", &[option("shared", &[Verb::Test])]);

    fn given(words: &[&str]) -> Suites {
        let mut suites = Suites::new(&[&ONE, &TWO]);
        let command = suites.extend(Arguments::command());
        let matches = command.try_get_matches_from(words).unwrap();
        suites.note_options(&matches);
        suites
    }

    #[test]
    fn options_belong_to_their_suites() {
        let suites = given(&["seatrial", "test", "one", "--own", "1", "--shared", "2"]);
        let one = suites.named("one").unwrap();
        let values = suites.options_of(one).unwrap();
        assert_eq!(values.number("own", 0..=9, 0), Ok(1));
        assert_eq!(values.number("shared", 0..=9, 0), Ok(2));
        let two = suites.named("two").unwrap();
        let error = suites.options_of(two).unwrap_err().to_string();
        assert_eq!(error, "--own is no option of the suite two");
        assert!(given(&["seatrial", "sim", "one"]).options_of(one).is_ok());
    }

    #[test]
    fn help_fits_into_80_columns() {
        fn check(command: &mut Command) {
            for help in [command.render_help(), command.render_long_help()] {
                // clap never breaks the usage.
                let help = help.to_string();
                for line in help.lines().filter(|line| !line.starts_with("Usage:")) {
                    let width = line.chars().count();
                    assert!(width < 80, "{}: {width}: {line}", command.get_name());
                }
            }
            command.get_subcommands_mut().for_each(check);
        }
        let suites = Suites::new(&[&ONE, &TWO]);
        let mut command = suites.extend(Arguments::command());
        command.build();
        check(&mut command);
    }

    #[test]
    fn help_lists_what_the_suites_have() {
        let suites = Suites::new(&[&ONE, &TWO]);
        let mut command = suites.extend(Arguments::command());
        let test = command.find_subcommand_mut("test").unwrap();
        let help = test.render_long_help().to_string();
        for text in [
            "Options of one, two:",
            "Options of one:",
            "--own <VALUE>",
            "one: a system of no use",
            "workloads: register, set",
            "faults unless others are named: kill, pause, partition",
            "\n  kill        SIGKILL",
            "\n  cas-register  the same with",
        ] {
            assert!(help.contains(text), "{text}:\n{help}");
        }
        let sim = command.find_subcommand_mut("sim").unwrap();
        let help = sim.render_long_help().to_string();
        assert!(!help.contains("a system of no use"), "{help}");
    }

    /// The guides say more about each row of the tables, and have no row of their own.
    #[test]
    fn the_guides_have_every_workload_and_fault() {
        let rows = |text: &str| -> Vec<String> {
            let cells = text.lines().filter_map(|line| line.strip_prefix("| `"));
            let names = cells.filter_map(|line| Some(line.split_once(" |")?.0.to_owned()));
            let names: Vec<String> = names.collect();
            let split = names.iter().flat_map(|names| names.split(", "));
            split
                .map(|name| name.trim_matches('`').to_owned())
                .collect()
        };
        let workloads = rows(include_str!("../../../docs/guide/workloads.md"));
        for row in workload::TABLE {
            assert!(
                workloads.iter().any(|name| name == row.name),
                "{}",
                row.name
            );
        }
        let faults = rows(include_str!("../../../docs/guide/faults.md"));
        for kind in FaultKind::ALL {
            assert!(faults.iter().any(|name| name == kind.name()), "{kind}");
        }
    }

    #[test]
    fn completions_have_the_names_of_suites_and_tables() {
        let suites = Suites::new(&[&ONE, &TWO]);
        for shell in [
            clap_complete::Shell::Bash,
            clap_complete::Shell::Zsh,
            clap_complete::Shell::Fish,
        ] {
            let mut command = suites.with_values(suites.extend(Arguments::command()));
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "mine", &mut script);
            let script = String::from_utf8(script).unwrap();
            for text in [
                "mine",
                "one",
                "two",
                "register",
                "partition",
                "own",
                "rw-register",
            ] {
                assert!(script.contains(text), "{shell}: {text}");
            }
        }
    }

    #[test]
    fn a_suite_of_a_feature_that_is_off_is_named_with_it() {
        let suites = Suites::new(&[&ONE, &TWO]);
        for (name, feature) in [("nats", "nats"), ("redis-sentinel", "redis")] {
            let error = suites.named(name).err().unwrap().to_string();
            let expected = format!(
                "built without the suite `{name}`: cargo build --release --features {feature}"
            );
            assert!(error.contains(&expected), "{error}");
        }
        let manifest = include_str!("../Cargo.toml");
        for feature in SUITE_FEATURES {
            let line = format!("\n{feature} = [\"dep:seatrial-{feature}-suite\"]\n");
            assert!(manifest.contains(&line), "{feature}");
        }
        let count = manifest.matches("-suite\"]\n").count();
        assert_eq!(count, SUITE_FEATURES.len(), "a feature has no line here");
    }

    #[test]
    fn an_unknown_suite_and_a_node_too_many_are_errors() {
        let suites = Suites::new(&[&ONE, &TWO]);
        let error = suites.named("tow").err().unwrap().to_string();
        assert!(error.contains("unknown suite `tow`"), "{error}");
        let error = node_count(&ONE, Some(3), None).unwrap_err().to_string();
        assert_eq!(error, "--nodes 3: one has one node, not 3");
    }

    #[test]
    #[should_panic(expected = "two suites are called one")]
    fn names_are_unique() {
        let _ = Suites::new(&[&ONE, &ONE]);
    }
}
