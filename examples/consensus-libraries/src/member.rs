//! What the simulation needs to know of a member beyond its turns, and what both kinds of members share: outputs held until a
//! write is durable, the order of links, the journal.

use crate::command::{Decision, Reply, Request};
use crate::ledger::SharedLedger;
use crate::scenario::Scenario;
use seatrial_machine::{Booted, DataFolder, Disk, LogName, Machine, NodeId, Output, Ticket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, VecDeque};

/// A member of the replicated log: one library as a machine.
pub(crate) trait Member:
    Machine<Request = Request, Reply = Reply> + Sized + 'static
{
    /// Builds the member from its disk.
    fn boot(
        scenario: &Scenario,
        id: NodeId,
        data: &DataFolder,
        ledger: SharedLedger,
        seed: u64,
    ) -> Result<Booted<Self>, String>;

    /// Number of positions applied.
    fn applied(&self) -> u64;

    /// Has it applied the end of its configuration?
    fn is_ended(&self) -> bool;

    /// The nodes that must make progress, if this member leads.
    fn members_if_leader(&self) -> Option<(u64, Vec<NodeId>)>;

    /// Its state in one line.
    fn describe(&self) -> String;
}

/// An output that waits until everything written before it is durable.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a message.
    Send(NodeId, Vec<u8>),
    /// Reply to a client.
    Reply(Ticket, Reply),
    /// Report a decision.
    Decide(u64, Decision),
    /// Report a snapshot.
    Snapshot(u64, Vec<Decision>),
}

/// Outputs in the order in which they arose, each after the write of its turn: nothing that a crash may undo leaves the member.
#[derive(Debug, Default)]
pub(crate) struct HeldEffects {
    writes: u64,
    queue: VecDeque<(u64, Vec<Effect>)>,
}

impl HeldEffects {
    /// The effects of one turn, and the bytes that it writes (none: the effects wait for earlier writes only).
    pub(crate) fn push(
        &mut self,
        effects: Vec<Effect>,
        bytes: Option<Vec<u8>>,
        out: &mut Vec<Output<Reply>>,
    ) -> Vec<Effect> {
        if let Some(bytes) = bytes {
            self.writes += 1;
            let (log, ticket) = (LogName::MAIN, Ticket(self.writes));
            out.push(Output::Append { log, bytes, ticket });
            self.queue.push_back((self.writes, effects));
            return Vec::new();
        }
        match self.queue.back_mut() {
            Some((_, last)) => {
                last.extend(effects);
                Vec::new()
            }
            None => effects,
        }
    }

    /// This write is durable: the effects that may leave now.
    pub(crate) fn durable(&mut self, ticket: Ticket) -> Vec<Effect> {
        let mut released = Vec::new();
        while let Some((_, effects)) = self.queue.pop_front_if(|(write, _)| *write <= ticket.0) {
            released.extend(effects);
        }
        released
    }
}

/// Numbers messages, and drops a message that is not newer than the newest of its sender.
#[derive(Debug, Default)]
pub(crate) struct LinkNumbers {
    sent: BTreeMap<NodeId, u64>,
    received: BTreeMap<NodeId, (u64, u64)>,
}

impl LinkNumbers {
    /// The number of the next message to this node.
    pub(crate) fn next(&mut self, to: NodeId) -> u64 {
        let number = self.sent.entry(to).or_default();
        *number += 1;
        *number
    }

    /// Is the message newer than all before it on its link?
    pub(crate) fn admit(&mut self, from: NodeId, link: (u64, u64)) -> bool {
        let newest = self.received.entry(from).or_default();
        let is_newer = link > *newest;
        *newest = link.max(*newest);
        is_newer
    }
}

/// A record of the journal: one line of JSON, so one turn's writes are there as a whole or not at all.
pub(crate) fn journal_line(record: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(record).expect("records have text keys");
    bytes.push(b'\n');
    bytes
}

/// The records of a journal, and its end: after the last whole line.
pub(crate) fn read_journal<R: DeserializeOwned>(
    data: &DataFolder,
) -> Result<(Vec<R>, u64), String> {
    let log = data.log(LogName::MAIN).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; log.len() as usize];
    log.read_at(0, &mut bytes)
        .map_err(|error| error.to_string())?;
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let lines = bytes[..end]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let records = lines
        .map(|line| serde_json::from_slice(line))
        .collect::<Result<_, _>>();
    Ok((
        records.map_err(|error| format!("the journal is damaged: {error}"))?,
        end as u64,
    ))
}
