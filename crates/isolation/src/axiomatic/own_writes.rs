//! Read your writes: what a transaction must not miss of its own session.

use super::ForcedOrder;
use super::session_program::{ReadSource, SessionProgram};

/// Number of transactions that are fetched ahead.
const GLANCES: usize = 64;

/// Infers, for every read of a key that the session wrote before, that the last of these writes commits before the one that
/// was read. Linear.
pub(super) fn infer(program: &SessionProgram<'_>, take: &mut impl FnMut(ForcedOrder)) {
    // By key: its last writer, as an index (plus one) into all transactions, session after session.
    let mut written = vec![0_u32; program.columns.key_count()];
    let mut first = 0;
    for session in 0..program.session_count() as u32 {
        let members = program.members(session);
        for (at, &reader) in members.iter().enumerate() {
            if at % GLANCES == 0 {
                let next = &members[at..members.len().min(at + GLANCES)];
                program.glance(next);
            }
            for &event in program.columns.events(reader) {
                let key = event.key();
                if !event.is_external_read() {
                    continue;
                }
                // An index before this session's first is one of an earlier session.
                let Some(place) = written[key as usize].checked_sub(first + 1) else {
                    continue;
                };
                let before = members[place as usize];
                let after = program.source(reader, event);
                let own = ReadSource::written_by(before);
                if let Some(after) = after.filter(|&after| after != own) {
                    take(ForcedOrder {
                        before,
                        after,
                        reader,
                        key,
                    });
                }
            }
            for key in program.writes(reader) {
                written[key as usize] = first + at as u32 + 1;
            }
        }
        first += members.len() as u32;
    }
}
