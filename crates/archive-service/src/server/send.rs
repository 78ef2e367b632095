//! Sends answers to sessions.

use super::{ArchiveService, Out};
use crate::answer::{Answer, Refusal};
use crate::message::ServerMessage;
use crate::server::track::Asker;
use seatrial_machine::Output;

impl ArchiveService {
    /// Sends a message to wherever a session was heard last.
    pub(super) fn send(&self, id: u64, message: &ServerMessage<'_>, out: &mut Out) {
        if let Some(session) = self.sessions.get(&id) {
            let (to, message) = (session.endpoint, message.encode());
            out.push(Output::Send { to, message });
        }
    }

    /// Answers a request. When it comes again, the answer is repeated if it `is_kept`; otherwise it is carried out again.
    pub(super) fn answer(
        &mut self,
        (session, request): Asker,
        result: Result<Answer, Refusal>,
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

    /// Answers that it was not done.
    pub(super) fn refuse(&mut self, asker: Asker, mut refusal: Refusal, out: &mut Out) {
        // It is kept for as long as the request may come again.
        let most = self.options.limits.refusal_length_max;
        refusal
            .text
            .truncate(refusal.text.floor_char_boundary(most));
        self.answer(asker, Err(refusal), true, out);
    }
}
