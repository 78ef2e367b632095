//! Decodes the tables `system` and `client` of a file.

use crate::definition::{
    ClientDefinition, CommandTemplate, FileTemplate, NodeDefinition, Probe, ProbeQuestion,
    StopDefinition, SystemDefinition,
};
use crate::template::{Names, Template};
use crate::text_positions::TextPositions;
use seatrial_checker::Pattern;
use seatrial_generator::workload;
use seatrial_machine::FaultKind;
use seatrial_plan::document::{PlanEntry, PlanValue};
use seatrial_plan::fields::{Field, Result, TableReader, unknown};
use seatrial_plan::{Located, Problem};
use seatrial_runner::Signal;
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of nodes.
const NODES_MAX: i64 = 100;
/// Maximum number of items in a list of commands, files, ports or patterns.
const ITEMS_MAX: usize = 1_000;
/// How long a node may take until it is ready, by default.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long a node may take to stop, by default.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Signals by name.
const SIGNALS: [(&str, Signal); 6] = [
    ("SIGTERM", Signal::TERM),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGHUP", Signal::HUP),
    ("SIGUSR1", Signal::USR1),
    ("SIGKILL", Signal::KILL),
];

/// Workloads that a client in another language can carry out: all but `disk`, whose operations have no keys and values.
fn workloads() -> Vec<&'static str> {
    workload::NAMES.to_vec()
}

/// Decodes a document with the tables `system` and `client`; `text` is its text.
pub(crate) fn decode(document: &PlanEntry, text: &str) -> Result<SystemDefinition> {
    let mut root = Field::root(document).table("a table")?;
    let system = root.require("system", "the table that describes the system")?;
    let client = root.require("client", "the table that describes the client")?;
    let positions = TextPositions { text };
    let mut reader = system.table("a table")?;
    let name = reader.require("name", "the name of the system")?;
    let name = system_name(&name)?;
    let about = reader.read("about", |field| {
        Ok(field.text("one line as text")?.to_owned())
    })?;
    let install = reader.read("install", |field| {
        Ok(field.text("a command as text")?.to_owned())
    })?;
    let (nodes, has_named_nodes) = reader
        .read("nodes", nodes)?
        .unwrap_or_else(|| (numbered(1), false));
    let ports = reader.read("ports", ports)?.unwrap_or_default();
    let decoder = SystemDecoder {
        positions,
        nodes: &nodes,
        ports: &ports,
        has_node: true,
    };
    let definitions = decoder.node_definitions(&mut reader)?;
    let version_decoder = SystemDecoder {
        has_node: false,
        ..decoder
    };
    let definition = SystemDefinition {
        name,
        about: about.unwrap_or_else(|| "a system described in TOML".into()),
        install,
        has_named_nodes: has_named_nodes || reader.take("node").is_some(),
        user: reader.read("user", |field| {
            let name = field.text("the name of a user")?.to_owned();
            Ok(Located::new(name, field.entry.at, &field.path))
        })?,
        ready: reader
            .read("ready", |field| decoder.probe(field))?
            .unwrap_or_else(tcp_probe),
        ready_limit: reader
            .read("ready_time", Field::interval)?
            .unwrap_or(READY_LIMIT),
        formed: reader.read("formed", |field| decoder.probe(field))?,
        leader: reader.read("leader", |field| decoder.probe(field))?,
        state: reader.read("state", |field| decoder.text_probe(field))?,
        stop: match reader.take("stop") {
            Some(field) => decoder.stop(&field)?,
            None => default_stop(),
        },
        wipe: reader
            .read("wipe", |field| decoder.commands(field))?
            .unwrap_or_default(),
        logs: reader
            .read("logs", |field| decoder.templates(field, "a list of paths"))?
            .unwrap_or_default(),
        failures: reader.read("failures", patterns)?.unwrap_or_default(),
        version: reader.read("version", |field| version_decoder.command(field))?,
        faults: reader
            .read("faults", faults)?
            .unwrap_or_else(default_faults),
        client: version_decoder.client(&client)?,
        nodes: nodes.clone(),
        ports: ports.clone(),
        definitions,
    };
    reader.finish()?;
    Ok(definition)
}

/// Reads values with the names of nodes and ports that templates may use.
#[derive(Clone, Copy)]
struct SystemDecoder<'d> {
    positions: TextPositions<'d>,
    nodes: &'d [String],
    ports: &'d [String],
    has_node: bool,
}

impl SystemDecoder<'_> {
    fn template(&self, field: &Field<'_>, expected: &str) -> Result<Template> {
        let text = field.text(expected)?;
        let names = Names {
            ports: self.ports,
            nodes: self.nodes,
            has_node: self.has_node,
        };
        Template::parse(text, &names).map_err(|error| Problem {
            at: self.positions.inside(field.entry.at, error.at),
            path: field.path.clone(),
            reason: error.reason,
        })
    }

    fn templates(&self, field: &Field<'_>, expected: &str) -> Result<Vec<Template>> {
        let items = bounded(field, expected)?;
        items
            .iter()
            .map(|item| self.template(item, "text"))
            .collect()
    }

    /// A list of a program and its arguments; a text is a line for `sh -c`.
    fn command(&self, field: &Field<'_>) -> Result<CommandTemplate> {
        const EXPECTED: &str = "a list of a program and its arguments, or a line for the shell";
        let place = Located::new((), field.entry.at, &field.path);
        if let PlanValue::Text(_) = field.entry.value {
            let plain = |text: &str| Template::parse(text, &self.no_names());
            let mut words: Vec<Template> = ["sh", "-c"]
                .into_iter()
                .filter_map(|text| plain(text).ok())
                .collect();
            words.push(self.template(field, EXPECTED)?);
            assert_eq!(words.len(), 3, "two plain words and the line");
            return Ok(CommandTemplate { words, place });
        }
        let words = self.templates(field, EXPECTED)?;
        if words.is_empty() || words[0].as_plain() == Some("") {
            return Err(field.wrong(EXPECTED));
        }
        Ok(CommandTemplate { words, place })
    }

    fn no_names(&self) -> Names<'_> {
        Names {
            ports: self.ports,
            nodes: self.nodes,
            has_node: false,
        }
    }

    fn commands(&self, field: &Field<'_>) -> Result<Vec<CommandTemplate>> {
        let items = bounded(field, "a list of commands")?;
        items.iter().map(|item| self.command(item)).collect()
    }

    fn files(&self, field: &Field<'_>) -> Result<Vec<FileTemplate>> {
        let items = bounded(field, "a list of tables with `path` and `text`")?;
        let file = |item: &Field<'_>| {
            let mut reader = item.table("a table with `path` and `text`")?;
            let path = reader.require("path", "where the file is written")?;
            let text = reader.require("text", "the content of the file")?;
            reader.finish()?;
            Ok(FileTemplate {
                path: self.template(&path, "a path as text")?,
                text: self.template(&text, "the content as text")?,
            })
        };
        items.iter().map(file).collect()
    }

    fn environment(&self, field: &Field<'_>) -> Result<Vec<(String, Template)>> {
        let reader = field.table("a table of environment variables")?;
        let variable = |(name, value): (&str, Field<'_>)| {
            let is_name = !name.is_empty() && !name.contains(['=', '\0']);
            if !is_name {
                return Err(
                    value.problem(format!("{name:?} is no name of an environment variable"))
                );
            }
            Ok((name.to_owned(), self.template(&value, "text")?))
        };
        reader.entries().map(variable).collect()
    }

    /// What every node runs, and what `system.node.NAME` says of single ones.
    fn node_definitions(&self, reader: &mut TableReader<'_>) -> Result<Vec<NodeDefinition>> {
        let command = reader.require(
            "command",
            "the command of a node, a list of a program and its arguments",
        )?;
        let common = NodeDefinition {
            command: self.command(&command)?,
            setup: reader
                .read("setup", |field| self.commands(field))?
                .unwrap_or_default(),
            after_start: reader
                .read("after_start", |field| self.commands(field))?
                .unwrap_or_default(),
            files: reader
                .read("files", |field| self.files(field))?
                .unwrap_or_default(),
            environment: reader
                .read("environment", |field| self.environment(field))?
                .unwrap_or_default(),
        };
        let mut all = vec![common; self.nodes.len()];
        let Some(overrides) = reader.take("node") else {
            return Ok(all);
        };
        for (name, field) in overrides
            .table("a table with the names of nodes")?
            .entries()
        {
            let Some(node) = self.nodes.iter().position(|known| known == name) else {
                let known = self.nodes.join(", ");
                return Err(field.problem(format!("unknown node {name:?} (available: {known})")));
            };
            let mut own = field.table("a table")?;
            let node = &mut all[node];
            node.command = own
                .read("command", |field| self.command(field))?
                .unwrap_or_else(|| node.command.clone());
            node.setup = own
                .read("setup", |field| self.commands(field))?
                .unwrap_or_else(|| node.setup.clone());
            node.after_start = own
                .read("after_start", |field| self.commands(field))?
                .unwrap_or_else(|| node.after_start.clone());
            node.files = own
                .read("files", |field| self.files(field))?
                .unwrap_or_else(|| node.files.clone());
            if let Some(more) = own.read("environment", |field| self.environment(field))? {
                node.environment.extend(more);
            }
            own.finish()?;
        }
        Ok(all)
    }

    fn probe(&self, field: &Field<'_>) -> Result<Probe> {
        const EXPECTED: &str =
            "\"tcp\", or a table with `tcp`, `http` or `command`, and perhaps `pattern`";
        if let PlanValue::Text(text) = &field.entry.value {
            if text == "tcp" {
                return Ok(tcp_probe());
            }
            return Err(field.wrong(EXPECTED));
        }
        let mut reader = field.table(EXPECTED)?;
        let tcp = reader.read("tcp", |field| self.template(field, "an address"))?;
        let http = reader.read("http", |field| self.template(field, "a URL"))?;
        let command = reader.read("command", |field| self.command(field))?;
        let pattern = reader.read("pattern", pattern)?;
        let question = match (tcp, http, command) {
            (Some(address), None, None) => ProbeQuestion::Tcp(address),
            (None, Some(url), None) => ProbeQuestion::Http(url),
            (None, None, Some(command)) => ProbeQuestion::Command(command),
            _ => {
                return Err(field.problem(format!(
                    "must have exactly one of `tcp`, `http` and `command`: {EXPECTED}"
                )));
            }
        };
        reader.finish()?;
        if matches!(question, ProbeQuestion::Tcp(_)) && pattern.is_some() {
            return Err(
                field.problem("a connection has no text: `pattern` goes with `http` or `command`")
            );
        }
        Ok(Probe { question, pattern })
    }

    /// A question whose answer is a text.
    fn text_probe(&self, field: &Field<'_>) -> Result<Probe> {
        let probe = self.probe(field)?;
        if matches!(probe.question, ProbeQuestion::Tcp(_)) {
            return Err(field.problem("a connection has no text: ask with `http` or `command`"));
        }
        Ok(probe)
    }

    fn stop(&self, field: &Field<'_>) -> Result<StopDefinition> {
        let mut reader = field.table("a table with `signal`, `command` and `time`")?;
        let names = SIGNALS.map(|(name, _)| name);
        let signal = reader.read("signal", |field| {
            let name = field.one_of("signal", &names)?;
            let found = SIGNALS.iter().find(|(known, _)| *known == name);
            Ok(found.map_or(Signal::TERM, |(_, signal)| *signal))
        })?;
        let stop = StopDefinition {
            command: reader.read("command", |field| self.command(field))?,
            signal: signal.unwrap_or(Signal::TERM),
            time: reader.read("time", Field::interval)?.unwrap_or(STOP_LIMIT),
        };
        reader.finish()?;
        Ok(stop)
    }

    fn client(&self, field: &Field<'_>) -> Result<ClientDefinition> {
        let mut reader = field.table("a table")?;
        let command = reader.require(
            "command",
            "the command of the client, a list of a program and its arguments",
        )?;
        let names = reader.require(
            "workloads",
            "a list of workloads that the client carries out",
        )?;
        let known = workloads();
        let items = bounded(&names, "a list of names of workloads")?;
        let workload = |item: &Field<'_>| item.one_of("workload", &known);
        let workloads: Vec<&'static str> = items.iter().map(workload).collect::<Result<_>>()?;
        if workloads.is_empty() {
            return Err(names.wrong("a list of at least one workload"));
        }
        let definition = ClientDefinition {
            command: self.command(&command)?,
            is_per_worker: reader.read("per_worker", Field::flag)?.unwrap_or(false),
            files: reader
                .read("files", |field| self.files(field))?
                .unwrap_or_default(),
            environment: reader
                .read("environment", |field| self.environment(field))?
                .unwrap_or_default(),
            workloads,
            options: match reader.take("options").map(|field| json(field.entry)) {
                None => serde_json::Map::new(),
                Some(Json::Object(options)) => options,
                Some(_) => return Err(field.problem("options must be a table")),
            },
        };
        reader.finish()?;
        Ok(definition)
    }
}

/// A value of the file as JSON.
fn json(entry: &PlanEntry) -> Json {
    match &entry.value {
        PlanValue::Bool(flag) => Json::Bool(*flag),
        PlanValue::Int(number) => (*number).into(),
        PlanValue::Float(number) => (*number).into(),
        PlanValue::Text(text) => Json::String(text.clone()),
        PlanValue::List(items) => Json::Array(items.iter().map(json).collect()),
        PlanValue::Table(entries) => {
            let entries = entries.iter();
            Json::Object(
                entries
                    .map(|(name, value)| (name.text.clone(), json(value)))
                    .collect(),
            )
        }
    }
}

/// The items of a list of bounded length.
fn bounded<'e>(field: &Field<'e>, expected: &str) -> Result<Vec<Field<'e>>> {
    let items = field.items(expected)?;
    if items.len() > ITEMS_MAX {
        return Err(field.problem(format!("has {} items, more than {ITEMS_MAX}", items.len())));
    }
    Ok(items)
}

fn system_name(field: &Field<'_>) -> Result<String> {
    const EXPECTED: &str = "a name of up to 64 lower-case letters, digits and hyphens";
    let name = field.text(EXPECTED)?;
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_fine) || name.starts_with('-') {
        return Err(field.wrong(EXPECTED));
    }
    Ok(name.to_owned())
}

/// `n1`, `n2`, …
pub(crate) fn numbered(count: u32) -> Vec<String> {
    (1..=count).map(|number| format!("n{number}")).collect()
}

/// Nodes by number or by name.
fn nodes(field: &Field<'_>) -> Result<(Vec<String>, bool)> {
    if let PlanValue::List(_) = field.entry.value {
        let items = bounded(field, "a list of names")?;
        let mut names: Vec<String> = Vec::new();
        for item in &items {
            let name = system_name(item)?;
            if names.contains(&name) {
                return Err(item.problem(format!("two nodes are called {name:?}")));
            }
            names.push(name);
        }
        if names.is_empty() || names.len() as i64 > NODES_MAX {
            return Err(field.wrong(&format!("a list of 1 to {NODES_MAX} names")));
        }
        return Ok((names, true));
    }
    let count = field.whole(1..=NODES_MAX)?;
    Ok((numbered(count as u32), false))
}

/// Names of ports.
fn ports(field: &Field<'_>) -> Result<Vec<String>> {
    let items = bounded(field, "a list of names of ports")?;
    let mut names: Vec<String> = Vec::new();
    for item in &items {
        let name = system_name(item)?;
        if names.contains(&name) {
            return Err(item.problem(format!("two ports are called {name:?}")));
        }
        names.push(name);
    }
    Ok(names)
}

fn pattern(field: &Field<'_>) -> Result<Arc<Pattern>> {
    let text = field.text("a regular expression as text")?;
    let pattern = Pattern::new(text).map_err(|error| field.problem(error.to_string()))?;
    Ok(Arc::new(pattern))
}

/// The regular expressions of a list, each of which is valid.
fn patterns(field: &Field<'_>) -> Result<Vec<String>> {
    let items = bounded(field, "a list of regular expressions")?;
    if items.is_empty() {
        return Err(field.wrong("a list of at least one regular expression"));
    }
    let text = |item| Ok(pattern(item)?.text().to_owned());
    items.iter().map(text).collect()
}

fn faults(field: &Field<'_>) -> Result<Vec<FaultKind>> {
    let items = bounded(field, "a list of kinds of faults")?;
    let names = FaultKind::ALL.map(|kind| kind.name());
    let kind = |item: &Field<'_>| {
        let name = item.text("the name of a kind of faults")?;
        let found = FaultKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| item.problem(unknown("fault", name, &names)))
    };
    items.iter().map(kind).collect()
}

fn tcp_probe() -> Probe {
    let names = Names {
        ports: &[],
        nodes: &[],
        has_node: true,
    };
    let address = Template::parse("{address}", &names);
    Probe {
        question: ProbeQuestion::Tcp(address.expect("a word of nodes")),
        pattern: None,
    }
}

fn default_stop() -> StopDefinition {
    StopDefinition {
        command: None,
        signal: Signal::TERM,
        time: STOP_LIMIT,
    }
}

fn default_faults() -> Vec<FaultKind> {
    vec![FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
}
