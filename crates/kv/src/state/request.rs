//! Whole requests on the state: executed once, answered with the encoded reply.

use super::{Abort, Item, StateItems, StateSnapshot, StoreState};
use crate::session_table::Admission;
use bytes::Bytes;
use seatrial_kv_protocol::answer_encoder::put_done;
use seatrial_kv_protocol::message::{
    Code, HEADER_LENGTH, MESSAGE_LENGTH_MAX, MessageHeader, MessageKind, OPERATIONS_MAX,
};
use seatrial_kv_protocol::{Operation, Operations};
use seatrial_machine::Time;

/// What a command that carries a request has for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AppliedRequest {
    /// The reply message. It was executed now, or it was executed before and this is the reply of then, or the session is
    /// unknown.
    Reply(Bytes),
    /// Nothing: it was executed before and its reply is not remembered, or its client has finished it, or it is no request.
    Dropped,
}

impl StoreState {
    /// Applies one request of the log: a whole message, header included. Its `detail` is its id minus the oldest id that its
    /// client has not finished. `now` is the time stamped into the command, `batch` the number of its log entry.
    ///
    /// Total for any bytes; equal states stay equal.
    pub(crate) fn apply(&mut self, request: &[u8], now: Time, batch: u64) -> AppliedRequest {
        let Some(header) = request_header(request) else {
            return AppliedRequest::Dropped;
        };
        let (session, id) = (header.first, header.second);
        let acknowledged = id.saturating_sub(u64::from(header.detail));
        match self.sessions.admit(session, id, acknowledged, now) {
            Admission::First => {
                let reply = self.execute_request(&header, request, batch);
                self.sessions.remember(session, id, reply.clone());
                AppliedRequest::Reply(reply)
            }
            Admission::Repeated(reply) => {
                reply.map_or(AppliedRequest::Dropped, AppliedRequest::Reply)
            }
            Admission::UnknownSession => {
                AppliedRequest::Reply(encode(&header, Err((Code::WrongSession, 0)), &[]))
            }
        }
    }

    fn execute_request(&mut self, header: &MessageHeader, request: &[u8], batch: u64) -> Bytes {
        let mut answers = std::mem::take(&mut self.answers);
        answers.clear();
        let result = if is_well_formed(header, request) {
            let operations = Operations::new(request, header.count);
            self.execute(operations, batch, &mut answers).map(|_| ())
        } else {
            Err(Abort::MALFORMED)
        };
        let result = result.map_err(|abort| (abort.code, abort.operation));
        let reply = encode(header, result, &answers);
        self.answers = answers;
        reply
    }

    /// The encoded reply to a request of reads and scans only, on the present state; sessions are not asked. Any other operation
    /// is refused as malformed.
    pub(crate) fn read(&self, request: &[u8]) -> Bytes {
        self.items.read_request(request, false)
    }
}

impl StoreState {
    /// Bytes of the reply to these operations on the present state, about.
    pub(crate) fn reply_length(&self, operations: Operations<'_>) -> usize {
        let mut length = 0;
        for operation in operations.flatten() {
            length += match operation {
                Operation::Read { key } => self.items.get(key).map_or(1, Item::answer_length),
                Operation::Scan { from, limit, .. } => {
                    let items = self.items.after(Some(from)).take(usize::from(limit));
                    items
                        .map(|(key, item)| key.len() + item.answer_length())
                        .sum()
                }
                _ => 1,
            };
            // A longer reply is refused when it is made.
            if length >= MESSAGE_LENGTH_MAX {
                return MESSAGE_LENGTH_MAX;
            }
        }
        length
    }
}

impl StateSnapshot {
    /// [`StoreState::read`] on the state of the snapshot.
    #[cfg(test)]
    pub(crate) fn read(&self, request: &[u8]) -> Bytes {
        self.items.read_request(request, false)
    }

    /// The encoded reply to a request of reads that begins with [`Operation::At`] the index of this snapshot.
    pub(crate) fn read_past(&self, request: &[u8]) -> Bytes {
        self.items.read_request(request, true)
    }

    /// The encoded reply to such a request when there is no snapshot.
    pub(crate) fn refuse_past(request: &[u8]) -> Bytes {
        let header = request_header(request).unwrap_or(NO_REQUEST);
        encode(&header, Err((Code::NoState, 0)), &[])
    }
}

impl StateItems {
    /// `is_past`: the request begins with [`Operation::At`], and these are the items of that index.
    fn read_request(&self, request: &[u8], is_past: bool) -> Bytes {
        let Some(header) = request_header(request) else {
            return encode(&NO_REQUEST, Err((Code::Malformed, 0)), &[]);
        };
        let mut answers = Vec::new();
        let result = if is_well_formed(&header, request) {
            let operations = Operations::new(request, header.count);
            self.read_all(operations, is_past, &mut answers)
        } else {
            Err((Code::Malformed, 0))
        };
        encode(&header, result, &answers)
    }

    fn read_all(
        &self,
        operations: Operations<'_>,
        is_past: bool,
        answers: &mut Vec<u8>,
    ) -> Result<(), (Code, u32)> {
        for (index, operation) in operations.enumerate() {
            let done = match operation {
                Ok(Operation::At { .. }) if is_past && index == 0 => {
                    put_done(answers);
                    Ok(())
                }
                Ok(operation) => self.answer(operation, answers),
                Err(_) => Err(Code::Malformed),
            };
            done.map_err(|code| (code, index as u32))?;
        }
        Ok(())
    }
}

/// Stands for the header of bytes that have none.
const NO_REQUEST: MessageHeader = MessageHeader {
    kind: MessageKind::Request,
    code: 0,
    count: 0,
    detail: 0,
    first: 0,
    second: 0,
};

fn request_header(request: &[u8]) -> Option<MessageHeader> {
    let header = MessageHeader::decode(request).ok()?;
    (header.kind == MessageKind::Request).then_some(header)
}

/// Is this header that of a request, as far as it is decidable without decoding the operations?
fn is_well_formed(header: &MessageHeader, request: &[u8]) -> bool {
    header.code == 0
        && usize::from(header.count) <= OPERATIONS_MAX
        && request.len() <= MESSAGE_LENGTH_MAX
}

/// The reply to a request; an error names the operation that failed.
fn encode(request: &MessageHeader, result: Result<(), (Code, u32)>, answers: &[u8]) -> Bytes {
    let (code, operation) = result.err().unwrap_or((Code::Committed, 0));
    let is_committed = code == Code::Committed;
    let header = MessageHeader {
        kind: MessageKind::Reply,
        code: code as u8,
        count: if is_committed { request.count } else { 0 },
        detail: operation,
        ..*request
    };
    let answers = if is_committed { answers } else { &[] };
    let mut reply = Vec::with_capacity(HEADER_LENGTH + answers.len());
    reply.extend_from_slice(&header.encode());
    reply.extend_from_slice(answers);
    reply.into()
}

#[cfg(test)]
mod tests;
