//! Messages that reach a replica: from clients and from other replicas.

use super::callers::HelloAction;
use super::waiting_reads::WaitingRead;
use super::{Replica, ReplicaPhase, welcome};
use crate::replica_message::{self, ReplicaMessage};
use crate::store_command::{Commands, OpenRequest, StoreCommand};
use seatrial_consensus::{ConsensusStopped, ENTRY_LENGTH_MAX, Role};
use seatrial_kv_protocol::message::{
    Code, HEADER_LENGTH, MESSAGE_LENGTH_MAX, MessageHeader, MessageKind, OPERATIONS_MAX, VERSION,
};
use seatrial_kv_protocol::{AdminReply, AdminRequest, Operations, Outcome};
use seatrial_machine::{NodeId, Output};

impl Replica {
    /// Takes one message.
    pub(super) fn receive(
        &mut self,
        from: NodeId,
        bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        if !from.is_client() {
            return self.receive_from_replica(from, bytes, out);
        }
        if self.phase == ReplicaPhase::Rejoining {
            self.receive_while_rejoining(from, &bytes, out);
            return Ok(());
        }
        if self.is_blocked(from) {
            self.blocked.push_back((from, bytes));
            return Ok(());
        }
        // A message that is not a client's is dropped: there is no endpoint to reply to.
        let Ok(header) = MessageHeader::decode(&bytes) else {
            return Ok(());
        };
        match header.kind {
            MessageKind::Hello if is_hello(&header, &bytes) => self.hello(from, &header, out),
            MessageKind::Request => self.request(from, &header, bytes, out),
            MessageKind::Status => self.show_status(from, &header, &bytes, out),
            MessageKind::Admin => {
                let reply = match AdminRequest::decode(&header, &bytes) {
                    Some(request) if self.is_running() => self.admin(request, out)?,
                    Some(_) => AdminReply::NotLeader(None),
                    None => AdminReply::Refused("not a request of this version".into()),
                };
                let message = reply.encode(header.first);
                out.push(Output::Send { to: from, message });
            }
            _ => {}
        }
        Ok(())
    }

    /// A node without a journal says that it is one, and no more.
    fn receive_while_rejoining(
        &mut self,
        from: NodeId,
        bytes: &[u8],
        out: &mut Vec<Output<Outcome>>,
    ) {
        let Ok(header) = MessageHeader::decode(bytes) else {
            return;
        };
        match header.kind {
            MessageKind::Status => self.show_status(from, &header, bytes, out),
            MessageKind::Admin => {
                let message = AdminReply::NotLeader(None).encode(header.first);
                out.push(Output::Send { to: from, message });
            }
            _ => {}
        }
    }

    fn receive_from_replica(
        &mut self,
        from: NodeId,
        bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        match replica_message::decode(bytes) {
            Some(ReplicaMessage::Grant(grant)) => self.rejoin(from, &grant, out),
            Some(ReplicaMessage::Pull(part, length)) => {
                let known = self.checkpoints.stored.find(part.index, part.digest);
                self.transfers.serve(from, part, length, known, out);
            }
            // A node without a journal casts no vote and acknowledges nothing.
            _ if !self.is_running() => {}
            Some(ReplicaMessage::Lost(request)) => self.help_to_rejoin(from, request),
            Some(ReplicaMessage::Consensus(message)) => {
                self.core.step(from, message)?;
            }
            Some(ReplicaMessage::Forward(commands)) => {
                // One invalid command would end the entry that it is in, with commands of others.
                let is_valid = Commands::new(&commands).all(|it| it.is_ok())
                    && commands.len() < ENTRY_LENGTH_MAX - 8;
                // A node that leads no more drops them: it might send them in a circle, and their clients send them again.
                let leads = self.core.status().role == Role::Leader;
                if leads
                    && is_valid
                    && !commands.is_empty()
                    && self.pending.has_room(commands.len())
                {
                    self.pending.push_encoded(commands);
                }
            }
            Some(ReplicaMessage::Piece(part, bytes)) => {
                self.transfers.piece(self.now, part, bytes, out);
            }
            Some(ReplicaMessage::Gone(part)) => self.transfers.gone(part, out),
            None => {}
        }
        Ok(())
    }

    fn hello(&mut self, from: NodeId, hello: &MessageHeader, out: &mut Vec<Output<Outcome>>) {
        if hello.code != VERSION {
            return welcome(from, hello.first, Err(Code::WrongVersion), out);
        }
        let resend = self.options.election * 2;
        match self.callers.hello(from, hello.first, self.now, resend) {
            HelloAction::Open(number) => {
                self.pending.push_command(&StoreCommand::Open(OpenRequest {
                    origin: self.options.node,
                    start: self.start,
                    number,
                }));
            }
            HelloAction::Wait => {}
            HelloAction::Refuse => welcome(from, hello.first, Err(Code::Overloaded), out),
        }
    }

    /// Queues a request. One that changes the state is dropped when queues are full: a refusal could overtake the reply to an
    /// earlier delivery of the same request.
    fn request(
        &mut self,
        from: NodeId,
        header: &MessageHeader,
        bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        if !is_well_formed(header, &bytes) {
            self.figures.refused += 1;
            return refuse(from, header, Code::Malformed, out);
        }
        let operations = Operations::new(&bytes, header.count);
        let length = self.state.reply_length(operations.clone());
        if operations.are_reads() {
            let read = WaitingRead {
                endpoint: from,
                message: bytes,
                length,
                since: self.now,
            };
            // A read has no effect, so a refusal is right whatever became of earlier deliveries.
            if !self.reads.push(read) {
                self.figures.refused += 1;
                refuse(from, header, Code::Overloaded, out);
            }
            return;
        }
        let request = (header.first, header.second);
        let has_room = self
            .pending
            .has_room(StoreCommand::request_length(bytes.len()));
        if has_room && self.callers.wait(request, from, length, self.now) {
            self.pending.push_request(bytes);
        } else {
            self.figures.refused += 1;
        }
    }
}

/// Replies with a code that does not depend on the state.
fn refuse(to: NodeId, request: &MessageHeader, code: Code, out: &mut Vec<Output<Outcome>>) {
    let reply = MessageHeader {
        kind: MessageKind::Reply,
        code: code as u8,
        count: 0,
        detail: 0,
        ..*request
    };
    let message = reply.encode().to_vec();
    out.push(Output::Send { to, message });
}

/// Is it a hello of any version?
fn is_hello(header: &MessageHeader, bytes: &[u8]) -> bool {
    bytes.len() == HEADER_LENGTH && (header.count, header.detail, header.second) == (0, 0, 0)
}

/// Can this request be executed, as far as it is decidable without its keys?
fn is_well_formed(header: &MessageHeader, bytes: &[u8]) -> bool {
    header.code == 0
        && usize::from(header.count) <= OPERATIONS_MAX
        && bytes.len() <= MESSAGE_LENGTH_MAX
        && Operations::new(bytes, header.count).all(|operation| operation.is_ok())
}
