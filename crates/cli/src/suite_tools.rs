//! Commands of suites: `seatrial SUITE NAME` and `seatrial bench SUITE`, from the tables of [`SuiteTool`].

use crate::suites::{Suites, failure};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use seatrial_suite::{OptionValues, SuiteTool, ToolExit, ToolSetup, find_tool};
use seatrial_terminal::{Exit, complaint, line};
use std::ffi::OsString;

/// A command of a suite, with the values of its arguments and options.
pub(crate) struct ToolCall {
    tool: &'static SuiteTool,
    values: OptionValues,
}

impl ToolCall {
    /// The command of a suite that the command line asks for, if it does.
    pub(crate) fn find(matches: &ArgMatches, suites: &Suites) -> Option<ToolCall> {
        let (first, matches) = matches.subcommand()?;
        let (second, matches) = matches.subcommand()?;
        let tool = suites
            .iter()
            .find_map(|suite| find_tool(suite, [first, second]))?;
        let mut values = OptionValues::default();
        let options = tool.options.iter().copied().flatten();
        for option in options.clone().filter(|it| it.value_name.is_none()) {
            if matches.get_flag(option.name) {
                values.insert(option.name, OsString::new());
            }
        }
        let options = options.filter(|it| it.value_name.is_some());
        let arguments = tool.arguments.iter().map(|argument| argument.name);
        for name in arguments.chain(options.map(|option| option.name)) {
            if let Some(value) = matches.get_one::<OsString>(name) {
                values.insert(name, value.clone());
            }
        }
        Some(ToolCall { tool, values })
    }

    /// Carries it out.
    pub(crate) fn run(&self) -> Result<Exit> {
        let setup = ToolSetup {
            values: &self.values,
            print: line,
            report: complaint,
        };
        let exit = (self.tool.run)(&setup).map_err(failure)?;
        Ok(match exit {
            ToolExit::Done => Exit::Valid,
            ToolExit::Negative => Exit::Invalid,
            ToolExit::Unknown => Exit::Unknown,
        })
    }
}

/// Adds the commands of all suites.
pub(crate) fn extend(mut command: Command, suites: &Suites) -> Command {
    for suite in suites.iter() {
        if !suite.tools().is_empty() {
            let about = format!("Commands of the suite {}: {}.", suite.name(), suite.about());
            let own = Command::new(suite.name())
                .about(about)
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommands(suite.tools().iter().map(|tool| parser(tool, tool.name)));
            command = command.subcommand(own);
        }
        if let Some(tool) = suite.bench() {
            let bench = parser(tool, suite.name());
            command = command.mut_subcommand("bench", |verb| verb.subcommand(bench));
        }
    }
    command
}

/// The parser of one command.
fn parser(tool: &SuiteTool, name: &'static str) -> Command {
    let arguments = tool.arguments.iter().map(|argument| {
        Arg::new(argument.name)
            .value_name(argument.name.to_uppercase())
            .help(argument.about)
            .value_parser(clap::value_parser!(OsString))
            .allow_negative_numbers(true)
            .required(argument.is_required)
    });
    let options = tool.options.iter().copied().flatten().map(|option| {
        let default = option.default.map(|value| format!(" [default: {value}]"));
        let argument = Arg::new(option.name).long(option.name).help(format!(
            "{}{}",
            option.about,
            default.unwrap_or_default()
        ));
        match option.value_name {
            Some(value) => argument
                .value_name(value)
                // Such as options for the processes that it starts.
                .allow_hyphen_values(true)
                .value_parser(clap::value_parser!(OsString)),
            None => argument.action(ArgAction::SetTrue),
        }
    });
    Command::new(name)
        .about(tool.about)
        .after_help(tool.notes)
        .args(arguments)
        .args(options)
}
