//! Changes of the cluster that an operator asks for.

use super::Replica;
use super::checkpoints::CheckpointKind;
use crate::store_command::{Commands, StoreCommand};
use seatrial_consensus::{
    ConsensusStopped, MemberChange, Members, Refused, Role, decode_members, encode_members,
};
use seatrial_kv_protocol::{AdminReply, AdminRequest, Outcome};
use seatrial_machine::{NodeId, Output};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Addresses of nodes that joined, as the log has them.
pub(super) type Addresses = BTreeMap<NodeId, SocketAddr>;

/// A learner that is further behind does not become a voter: a quorum with it would wait for it.
const LAG_MAX: u64 = 100;
/// Bound of the addresses that are kept.
const ADDRESSES_MAX: usize = 64;

impl Replica {
    /// Carries out a request, or refuses it.
    pub(super) fn admin(
        &mut self,
        request: AdminRequest,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<AdminReply, ConsensusStopped> {
        if request == AdminRequest::Checkpoint {
            if self.checkpoints.under_way().is_some() {
                return Ok(AdminReply::Refused("a checkpoint is under way".into()));
            }
            if self.applied.0 <= self.newest_checkpoint() {
                let text = "nothing was applied since the last one";
                return Ok(AdminReply::Refused(text.into()));
            }
            self.keep_state(out);
            self.begin_checkpoint(CheckpointKind::Whole, false, out);
            return Ok(AdminReply::Begun);
        }
        let status = self.core.status();
        if status.role != Role::Leader {
            return Ok(AdminReply::NotLeader(status.leader));
        }
        let done = match request {
            AdminRequest::AddLearner(node, _) if self.members.contains(node) => {
                return Ok(AdminReply::Refused(format!("{node} is a member already")));
            }
            AdminRequest::AddLearner(..) if !self.options.keeps_log => {
                let text = "a node without a log stays the only member of its cluster";
                return Ok(AdminReply::Refused(text.into()));
            }
            AdminRequest::AddLearner(node, address) => {
                let done = self
                    .core
                    .propose_membership(&[MemberChange::AddLearner(node)]);
                if let (Ok(()), Some(address)) = (&done, address) {
                    let address = StoreCommand::Address { node, address };
                    self.pending.push_command(&address);
                }
                done
            }
            AdminRequest::Promote(node) if !self.members.learners.contains(&node) => {
                return Ok(AdminReply::Refused(format!("{node} is not a learner")));
            }
            AdminRequest::Promote(node) if self.lag(node) > LAG_MAX => {
                let (lag, most) = (self.lag(node), LAG_MAX);
                return Ok(AdminReply::Refused(format!(
                    "{node} is {lag} entries behind; a node votes when it is at most {most} behind"
                )));
            }
            AdminRequest::Promote(node) => self
                .core
                .propose_membership(&[MemberChange::AddVoter(node)]),
            AdminRequest::Remove(node) => return self.remove(node),
            AdminRequest::Lead(node) => self.core.transfer_leadership(node),
            AdminRequest::Checkpoint => Ok(()),
        };
        reply(done)
    }

    /// Committed entries that a member is not known to have.
    fn lag(&self, node: NodeId) -> u64 {
        let matched = self.core.matched(node).unwrap_or(0);
        self.core.status().committed.saturating_sub(matched)
    }

    fn remove(&mut self, node: NodeId) -> Result<AdminReply, ConsensusStopped> {
        if !self.members.contains(node) {
            return Ok(AdminReply::Refused(format!("{node} is not a member")));
        }
        let other = self.members.voters.iter().find(|voter| **voter != node);
        let Some(other) = other.copied() else {
            let text = format!("{node} is the only voter");
            return Ok(AdminReply::Refused(text));
        };
        if node == self.options.node {
            // A leader that is removed could not finish its own removal.
            let done = self.core.transfer_leadership(other);
            let reply = reply(done)?;
            return Ok(match reply {
                AdminReply::Begun => AdminReply::Refused(format!(
                    "{node} leads; the leadership goes to {other}: ask {other}"
                )),
                other => other,
            });
        }
        reply(self.core.propose_membership(&[MemberChange::Remove(node)]))
    }

    /// The log has the address of a node.
    pub(super) fn learn_address(
        &mut self,
        node: NodeId,
        address: SocketAddr,
        out: &mut Vec<Output<Outcome>>,
    ) {
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&node) {
            return;
        }
        self.addresses.insert(node, address);
        self.announce(node, out);
    }

    /// Gives the driver the address of a node.
    fn announce(&self, node: NodeId, out: &mut Vec<Output<Outcome>>) {
        if node != self.options.node {
            out.push(Output::Address {
                node,
                address: self.addresses.get(&node).copied(),
            });
        }
    }

    /// Gives the driver all addresses of the log.
    pub(super) fn announce_all(&self, out: &mut Vec<Output<Outcome>>) {
        for node in self.addresses.keys() {
            self.announce(*node, out);
        }
    }
}

fn reply(done: Result<(), Refused>) -> Result<AdminReply, ConsensusStopped> {
    match done {
        Ok(()) => Ok(AdminReply::Begun),
        Err(Refused::Stopped(stopped)) => Err(stopped),
        Err(Refused::NotLeader(leader)) => Ok(AdminReply::NotLeader(leader)),
        Err(refused) => Ok(AdminReply::Refused(refused.to_string())),
    }
}

/// The bytes of a membership with its addresses, for checkpoints: equal for equal ones.
pub(super) fn encode_cluster(members: &Members, addresses: &Addresses) -> Vec<u8> {
    let members = encode_members(members);
    let mut bytes = (members.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&members);
    for (node, address) in addresses {
        StoreCommand::Address {
            node: *node,
            address: *address,
        }
        .encode(&mut bytes);
    }
    bytes
}

/// The membership and the addresses of a checkpoint.
pub(super) fn decode_cluster(bytes: &[u8]) -> Result<(Members, Addresses), String> {
    let parts = bytes
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
    let (members, rest) = parts.ok_or("a cut membership")?;
    let members = decode_members(members).map_err(|error| error.to_string())?;
    let mut addresses = Addresses::new();
    for command in Commands::new(rest) {
        match command {
            Ok(StoreCommand::Address { node, address }) => addresses.insert(node, address),
            _ => return Err("something other than an address of a node".into()),
        };
    }
    if addresses.len() > ADDRESSES_MAX || encode_cluster(&members, &addresses) != bytes {
        return Err("addresses in another form than that of a checkpoint".into());
    }
    Ok((members, addresses))
}
