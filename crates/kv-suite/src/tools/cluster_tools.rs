//! `seatrial kv member`, `kv checkpoint` and `kv diff`: what an operator does to a cluster.

use super::shown::ShownBytes;
use super::{HEX, StoreSession, runtime};
use seatrial_blocks::file::ReadFile;
use seatrial_host::{Session, SessionOptions};
use seatrial_kv::{CheckpointFiles, KeyDifference, changes_since, diff_checkpoints};
use seatrial_kv_protocol::{AdminClient, AdminReply, AdminRequest};
use seatrial_machine::NodeId;
use seatrial_suite::{SuiteError, ToolExit, ToolSetup};
use std::net::SocketAddr;
use std::path::Path;

/// Keys that `diff` prints.
const SHOWN_MAX: u64 = 100;

/// Changes the membership.
pub(super) fn member(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let change = setup.text("change")?.unwrap_or_default();
    let subject = setup.text("node")?.unwrap_or_default();
    let (name, address) = match subject.split_once('=') {
        Some((name, address)) => (name, Some(address)),
        None => (subject, None),
    };
    let node = parse_node(name)?;
    let request = match (change, address) {
        ("add", address) => AdminRequest::AddLearner(node, address.map(parse_address).transpose()?),
        ("promote", None) => AdminRequest::Promote(node),
        ("remove", None) => AdminRequest::Remove(node),
        ("lead", None) => AdminRequest::Lead(node),
        ("promote" | "remove" | "lead", Some(_)) => {
            return Err(format!("{change} takes a node without an address: {node}").into());
        }
        (other, _) => {
            let text = format!("unknown change {other:?}; known are add, promote, remove, lead");
            return Err(text.into());
        }
    };
    ask_leader(setup, request)
}

/// Makes the servers write a checkpoint now.
pub(super) fn checkpoint(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let session = StoreSession::of(setup)?;
    let runtime = runtime()?;
    let mut exit = ToolExit::Done;
    for &address in &session.servers {
        let reply = runtime.block_on(session.admin(address, AdminRequest::Checkpoint))?;
        match reply {
            AdminReply::Begun => (setup.print)(format_args!("{address}  begun")),
            AdminReply::Refused(reason) => {
                (setup.print)(format_args!("{address}  refused: {reason}"));
                exit = ToolExit::Negative;
            }
            AdminReply::NotLeader(_) => {
                (setup.print)(format_args!("{address}  the node is starting"));
                exit = ToolExit::Negative;
            }
        }
    }
    Ok(exit)
}

/// Sends a change to the servers in turn until one leads.
fn ask_leader(setup: &ToolSetup<'_>, request: AdminRequest) -> Result<ToolExit, SuiteError> {
    let session = StoreSession::of(setup)?;
    let runtime = runtime()?;
    let mut reasons = Vec::new();
    for &address in &session.servers {
        match runtime.block_on(session.admin(address, request)) {
            Ok(AdminReply::Begun) => {
                (setup.print)(format_args!(
                    "begun at {address}; `kv status` shows when it is done"
                ));
                return Ok(ToolExit::Done);
            }
            Ok(AdminReply::Refused(reason)) => {
                (setup.report)(format_args!("{address} refused: {reason}"));
                return Ok(ToolExit::Negative);
            }
            Ok(AdminReply::NotLeader(leader)) => reasons.push(match leader {
                Some(leader) => format!("{address} does not lead, {leader} does"),
                None => format!("{address} knows no leader"),
            }),
            Err(error) => reasons.push(format!("{address}: {error}")),
        }
    }
    let reasons = reasons.join("; ");
    Err(
        format!("no server leads ({reasons}); give the addresses of all nodes with --server")
            .into(),
    )
}

impl StoreSession {
    /// Asks one server for a change.
    pub(crate) async fn admin(
        &self,
        address: SocketAddr,
        request: AdminRequest,
    ) -> std::io::Result<AdminReply> {
        let server = NodeId::server(1);
        let options = SessionOptions {
            server,
            connect: self.connect_options(),
        };
        let client = AdminClient::new(server, self.timeout);
        let mut session = Session::connect(address, client, options).await?;
        let reply = session.request(request).await.flatten();
        reply.ok_or_else(|| std::io::Error::other("it does not answer"))
    }
}

fn parse_node(text: &str) -> Result<NodeId, SuiteError> {
    let number: Option<u16> = text.strip_prefix('n').unwrap_or(text).parse().ok();
    let number = number.filter(|number| *number > 0);
    let node = number.map(|number| NodeId::server(number.into()));
    node.ok_or_else(|| format!("{text:?} is no node such as n4").into())
}

fn parse_address(text: &str) -> Result<SocketAddr, SuiteError> {
    text.parse()
        .map_err(|_| format!("{text:?} is no address such as 127.0.0.1:7404").into())
}

/// A checkpoint file, with the whole one of which it has the changes.
struct OpenCheckpoint {
    file: ReadFile,
    base: Option<ReadFile>,
}

impl OpenCheckpoint {
    /// Opens a file, and its base in the same folder.
    fn open(path: &Path) -> Result<OpenCheckpoint, SuiteError> {
        let file = ReadFile::open(path)?;
        let since = changes_since(&file).map_err(|error| format!("{}: {error}", path.display()))?;
        let base = match since {
            None => None,
            Some(index) => {
                let base = path.with_file_name(format!("checkpoint-{index:020}"));
                let opened = ReadFile::open(&base);
                Some(opened.map_err(|error| {
                    let path = path.display();
                    format!(
                        "{path} has the changes since index {index}, so its base is needed: {error}"
                    )
                })?)
            }
        };
        Ok(OpenCheckpoint { file, base })
    }

    fn files(&self) -> CheckpointFiles<'_> {
        CheckpointFiles {
            file: &self.file,
            base: self.base.as_ref().map(|base| base as _),
        }
    }
}

/// Compares two checkpoint files.
pub(super) fn diff(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let open = |name: &str| OpenCheckpoint::open(setup.values.path(name).unwrap_or(Path::new("")));
    let (one, two) = (open("first")?, open("second")?);
    let form = ShownBytes {
        is_hex: setup.has(HEX.name),
    };
    let mut shown = 0;
    let found = diff_checkpoints(one.files(), two.files(), |key, difference| {
        shown += 1;
        if shown <= SHOWN_MAX {
            let what = match difference {
                KeyDifference::OnlyFirst => "only in the first",
                KeyDifference::OnlySecond => "only in the second",
                KeyDifference::Contents => "different contents",
            };
            (setup.print)(format_args!("{}  {what}", form.text(key)));
        }
    })?;
    for (name, it) in [("first", &found.first), ("second", &found.second)] {
        (setup.print)(format_args!(
            "{name}: cluster {}, index {}, term {}, {} keys, {} bytes, digest {:032x}",
            it.cluster,
            it.index,
            it.term,
            it.keys,
            it.size,
            u128::from_be_bytes(it.digest),
        ));
    }
    let is_equal = found.first.digest == found.second.digest;
    let sessions = if found.sessions { ", sessions" } else { "" };
    let head = if found.head {
        ", members or schedule"
    } else {
        ""
    };
    if is_equal {
        (setup.print)(format_args!("equal"));
    } else {
        let keys = found.keys;
        (setup.print)(format_args!("{keys} keys differ{sessions}{head}"));
    }
    Ok(if is_equal {
        ToolExit::Done
    } else {
        ToolExit::Negative
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_addresses_are_read_or_refused_with_the_text() {
        assert_eq!(parse_node("n4").unwrap(), NodeId::server(4));
        assert_eq!(parse_node("4").unwrap(), NodeId::server(4));
        for wrong in ["", "n0", "n", "node", "70000"] {
            let error = parse_node(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        assert!(parse_address("127.0.0.1:7404").is_ok());
        let error = parse_address("here").unwrap_err().to_string();
        assert!(error.contains("\"here\""), "{error}");
    }
}
