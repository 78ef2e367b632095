//! The definition of a system: what its file says, decoded.

use crate::template::Template;
use seatrial_checker::Pattern;
use seatrial_machine::FaultKind;
use seatrial_plan::Located;
use seatrial_runner::Signal;
use std::sync::Arc;
use std::time::Duration;

/// A program with its arguments, as templates.
#[derive(Clone, Debug)]
pub(crate) struct CommandTemplate {
    /// Program and arguments; at least one.
    pub(crate) words: Vec<Template>,
    /// Where the command stands in the file, for errors.
    pub(crate) place: Located<()>,
}

/// A file that is written before a process starts.
#[derive(Clone, Debug)]
pub(crate) struct FileTemplate {
    /// Where it is written; an existing file is replaced.
    pub(crate) path: Template,
    /// Its content.
    pub(crate) text: Template,
}

/// A question to a node, and the answer that counts as yes.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// How it is asked.
    pub(crate) question: ProbeQuestion,
    /// A regular expression that a line of the answer must match; `None`: any answer.
    pub(crate) pattern: Option<Arc<Pattern>>,
}

/// How a node is asked.
#[derive(Clone, Debug)]
pub(crate) enum ProbeQuestion {
    /// Does it accept a connection at this address?
    Tcp(Template),
    /// Does this URL answer with a status below 400?
    Http(Template),
    /// Does this command exit with status 0?
    Command(CommandTemplate),
}

/// What one node runs. All nodes have the same, except for what the file says of single ones.
#[derive(Clone, Debug)]
pub(crate) struct NodeDefinition {
    /// The command of the node's process.
    pub(crate) command: CommandTemplate,
    /// Commands before its first start.
    pub(crate) setup: Vec<CommandTemplate>,
    /// Commands once it is ready for the first time.
    pub(crate) after_start: Vec<CommandTemplate>,
    /// Files written before each start.
    pub(crate) files: Vec<FileTemplate>,
    /// Environment variables.
    pub(crate) environment: Vec<(String, Template)>,
}

/// How a node stops in good order.
#[derive(Clone, Debug)]
pub(crate) struct StopDefinition {
    /// A command that is run first.
    pub(crate) command: Option<CommandTemplate>,
    /// The signal.
    pub(crate) signal: Signal,
    /// Then it is killed.
    pub(crate) time: Duration,
}

/// The clients of a system.
#[derive(Clone, Debug)]
pub(crate) struct ClientDefinition {
    /// The command of a client's process.
    pub(crate) command: CommandTemplate,
    /// Does each worker have a process of its own?
    pub(crate) is_per_worker: bool,
    /// Files written before the first process starts.
    pub(crate) files: Vec<FileTemplate>,
    /// Environment variables.
    pub(crate) environment: Vec<(String, Template)>,
    /// The workloads that it carries out; at least one.
    pub(crate) workloads: Vec<&'static str>,
    /// Options passed to it as they are.
    pub(crate) options: serde_json::Map<String, serde_json::Value>,
}

/// A whole system.
#[derive(Clone, Debug)]
pub(crate) struct SystemDefinition {
    /// Its name: lower case, digits, hyphens.
    pub(crate) name: String,
    /// One line about it.
    pub(crate) about: String,
    /// How its programs are installed, for the message that one is missing.
    pub(crate) install: Option<String>,
    /// The names of its nodes.
    pub(crate) nodes: Vec<String>,
    /// Does the file name the nodes, so that `--nodes` cannot change their number?
    pub(crate) has_named_nodes: bool,
    /// Names of ports besides the one for clients.
    pub(crate) ports: Vec<String>,
    /// The nodes' processes, in their order.
    pub(crate) definitions: Vec<NodeDefinition>,
    /// The user that the nodes' processes and commands run as when this program runs as root.
    pub(crate) user: Option<Located<String>>,
    /// When a node is ready.
    pub(crate) ready: Probe,
    /// How long a node may take until it is ready, and all together until they have formed a system.
    pub(crate) ready_limit: Duration,
    /// When the nodes have formed a system; each node is asked.
    pub(crate) formed: Option<Probe>,
    /// Which node leads: one that answers this.
    pub(crate) leader: Option<Probe>,
    /// How a node is asked for its state at the end of a test.
    pub(crate) state: Option<Probe>,
    /// How nodes stop.
    pub(crate) stop: StopDefinition,
    /// Commands that remove what the nodes left outside of their folders.
    pub(crate) wipe: Vec<CommandTemplate>,
    /// Log files in addition to the nodes' output.
    pub(crate) logs: Vec<Template>,
    /// Regular expressions of lines in logs that are failures.
    pub(crate) failures: Vec<String>,
    /// The command that prints the version.
    pub(crate) version: Option<CommandTemplate>,
    /// Kinds of faults that are injected unless others are named.
    pub(crate) faults: Vec<FaultKind>,
    /// The clients.
    pub(crate) client: ClientDefinition,
}

impl SystemDefinition {
    /// Does a node use named ports of others, which the proxies of the test do not reach?
    pub(crate) fn has_peer_ports(&self) -> bool {
        self.definitions.iter().any(|node| {
            let words = node.command.words.iter();
            let texts = node.files.iter().map(|file| &file.text);
            let values = node.environment.iter().map(|(_, value)| value);
            let mut all = words.chain(texts).chain(values);
            all.any(Template::has_peer_ports)
        })
    }
}
