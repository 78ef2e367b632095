//! Sends answers to sessions.

use super::{ArchiveService, Out};
use crate::archive_answer::{ArchiveAnswer, Refusal};
use crate::message::ServerMessage;
use crate::server::live_recording::RequestId;
use seatrial_machine::Output;

impl ArchiveService {
    /// Sends a message to the last known endpoint of a session.
    pub(super) fn send(&self, id: u64, message: &ServerMessage<'_>, out: &mut Out) {
        if let Some(session) = self.sessions.get(&id) {
            let (to, message) = (session.endpoint, message.encode());
            out.push(Output::Send { to, message });
        }
    }

    /// Answers a request. If the request is repeated, the answer is sent again if it `is_kept`; otherwise it is executed again.
    pub(super) fn answer(
        &mut self,
        (session, request): RequestId,
        result: Result<ArchiveAnswer, Refusal>,
        is_kept: bool,
        out: &mut Out,
    ) {
        let message = ServerMessage::Reply {
            session,
            request,
            result,
        };
        let message = message.encode();
        if let Some(session) = self.sessions.get_mut(&session) {
            if is_kept {
                session.answer(request, &message);
            } else {
                session.forget(request);
            }
            let to = session.endpoint;
            out.push(Output::Send { to, message });
        }
    }

    /// Answers a request with a refusal.
    pub(super) fn refuse(&mut self, request: RequestId, mut refusal: Refusal, out: &mut Out) {
        // The session keeps refusals until their requests can no longer be repeated: bounded text.
        let most = self.options.limits.refusal_length_max;
        refusal
            .text
            .truncate(refusal.text.floor_char_boundary(most));
        self.answer(request, Err(refusal), true, out);
    }
}
