//! What a transaction must not miss of its own session.

use super::Forced;
use super::program::Program;

/// Transactions that are looked at ahead.
const GLANCES: usize = 64;

/// Tells, for every read of a key that the session wrote before, that the last of those writes comes before what was
/// read: read your writes. Linear.
pub(super) fn infer(program: &Program<'_>, take: &mut impl FnMut(Forced)) {
    // By key: who wrote it last, as a place (and 1) among all transactions, session after session.
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
                // Of an earlier session when it is not behind this one's first.
                let Some(place) = written[key as usize].checked_sub(first + 1) else {
                    continue;
                };
                let before = members[place as usize];
                let after = program.source(reader, event);
                if let Some(after) = after.filter(|&after| after != before) {
                    take(Forced {
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
