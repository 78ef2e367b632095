//! The suite of a system that is data.

use crate::clients::ProgramClients;
use crate::definition::{CommandTemplate, SystemDefinition};
use crate::nodes::{SharedSystem, SystemNodes};
use crate::protocol_message::PROTOCOL_VERSION;
use crate::short_command::find_program;
use crate::system_decoder::numbered;
use crate::system_file::SystemFile;
use seatrial_checker::{Checker, ClientProtocol};
use seatrial_machine::FaultKind;
use seatrial_runner::OrdinaryUser;
use seatrial_suite::{Addressing, Deployment, Setup, Suite, SuiteError};
use serde_json::{Map, Value as Json, json};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

/// A suite made from a file. It is leaked, as suites live as long as the program.
pub struct DataSuite {
    file: SystemFile,
    name: &'static str,
    about: &'static str,
    workloads: &'static [&'static str],
    faults: &'static [FaultKind],
    log_patterns: &'static [&'static str],
}

impl DataSuite {
    /// The suite of this file, for the rest of the program's life.
    pub fn leak(file: SystemFile) -> &'static DataSuite {
        let definition = file.definition();
        let patterns = definition.failures.iter();
        let patterns: Vec<&'static str> = patterns.map(|text| &*text.clone().leak()).collect();
        let suite = DataSuite {
            name: definition.name.clone().leak(),
            about: definition.about.clone().leak(),
            workloads: definition.client.workloads.clone().leak(),
            faults: definition.faults.clone().leak(),
            log_patterns: patterns.leak(),
            file,
        };
        Box::leak(Box::new(suite))
    }

    /// The file.
    pub fn file(&self) -> &SystemFile {
        &self.file
    }

    /// The definition with this number of nodes.
    fn sized(&self, nodes: u32) -> SystemDefinition {
        let mut definition = self.file.definition().clone();
        if nodes as usize != definition.nodes.len() {
            assert!(
                !definition.has_named_nodes,
                "the number of named nodes is fixed"
            );
            definition.nodes = numbered(nodes);
            let first = definition.definitions[0].clone();
            definition.definitions = vec![first; nodes as usize];
        }
        definition
    }

    /// Fails unless the program of this command exists, where it is no template.
    fn check_program(&self, command: &CommandTemplate) -> Result<(), SuiteError> {
        let Some(program) = command.words[0].as_plain() else {
            return Ok(());
        };
        if find_program(program, self.file.home()).is_some() {
            return Ok(());
        }
        let place = if program.contains('/') {
            "no such program"
        } else {
            "no such program in PATH"
        };
        let remedy = match &self.file.definition().install {
            Some(install) => format!("; install it: {install}"),
            None => String::new(),
        };
        let problem = command
            .place
            .problem(format!("{program:?}: {place}{remedy}"));
        Err(self.file.error(problem).into())
    }

    fn shared(&self, nodes: u32) -> Result<Arc<SharedSystem>, SuiteError> {
        let definition = self.sized(nodes);
        for node in &definition.definitions {
            self.check_program(&node.command)?;
            node.setup
                .iter()
                .try_for_each(|step| self.check_program(step))?;
        }
        self.check_program(&definition.client.command)?;
        let user = match &definition.user {
            Some(name) => OrdinaryUser::named(&name.value)
                .map_err(|error| self.file.error(name.problem(error)))?,
            None => None,
        };
        Ok(Arc::new(SharedSystem {
            definition,
            home: self.file.home().to_owned(),
            user,
            cluster: OnceLock::new(),
        }))
    }

    /// The first line that the version command prints.
    fn version(&self) -> Option<String> {
        let command = self.file.definition().version.as_ref()?;
        let words: Option<Vec<&str>> = command.words.iter().map(|word| word.as_plain()).collect();
        let words = words?;
        let mut asked = Command::new(words[0]);
        asked
            .args(&words[1..])
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let output = asked.current_dir(self.file.home()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next()?.trim();
        Some(line.chars().take(200).collect())
    }
}

impl Suite for DataSuite {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn workloads(&self) -> &'static [&'static str] {
        self.workloads
    }

    fn faults(&self) -> &'static [FaultKind] {
        self.faults
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        let definition = self.file.definition();
        let own = definition.nodes.len() as u32;
        match asked {
            None => Ok(own),
            Some(count) if count == own => Ok(own),
            Some(count) if definition.has_named_nodes => Err(format!(
                "{} names its {own} nodes, so there are not {count}",
                self.name
            )
            .into()),
            Some(count @ 1..=100) => Ok(count),
            Some(count) => {
                Err(format!("{} may have 1 to 100 nodes, not {count}", self.name).into())
            }
        }
    }

    fn addressing(&self) -> Addressing {
        if self.file.definition().has_peer_ports() {
            Addressing::WholeAddresses
        } else {
            Addressing::Proxies
        }
    }

    fn evidence_checkers(&self) -> Vec<Box<dyn Checker>> {
        vec![Box::new(ClientProtocol)]
    }

    fn log_patterns(&self) -> &'static [&'static str] {
        self.log_patterns
    }

    fn attributes(&self) -> Map<String, Json> {
        let mut attributes = Map::new();
        attributes.insert("client_protocol".into(), json!(PROTOCOL_VERSION));
        attributes.insert("system".into(), json!(self.file.text()));
        if let Some(version) = self.version() {
            attributes.insert("system_version".into(), json!(version));
        }
        attributes
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let shared = self.shared(setup.nodes)?;
        let is_uncut = setup.nodes > 1 && !setup.network.has_whole_addresses();
        if setup.breaks_network && is_uncut && self.addressing() == Addressing::WholeAddresses {
            (setup.report)(format_args!(
                " note: nodes reach named ports of each other directly; faults of the network cut only their client ports"
            ));
        }
        let clients = Arc::new(ProgramClients::new(
            Arc::clone(&shared),
            setup.workload,
            setup.timeout,
            setup.concurrency,
        ));
        let tried = Arc::clone(&clients);
        let nodes = SystemNodes::new(
            shared,
            setup.port,
            Box::new(move || {
                let tried = Arc::clone(&tried);
                Box::pin(async move { tried.try_out().await })
            }),
        );
        Ok(Deployment {
            nodes: Arc::new(nodes),
            clients,
        })
    }
}
