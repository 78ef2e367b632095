//! What a transaction must not miss of its own session.

use super::Forced;
use super::program::Program;

/// Tells, for every read of a key that the session wrote before, that the last of those writes comes before what was
/// read: read your writes. Linear.
pub(super) fn infer(program: &Program<'_>, take: &mut impl FnMut(Forced)) {
    // By key: the session (and 1) that wrote it last, and its transaction.
    let mut written = vec![(0, 0); program.columns.key_count()];
    for session in 0..program.session_count() as u32 {
        for &reader in program.members(session) {
            for (key, after) in program.reads(reader) {
                let (by, before) = written[key as usize];
                if by == session + 1 && before != after {
                    take(Forced {
                        before,
                        after,
                        reader,
                        key,
                    });
                }
            }
            for key in program.writes(reader) {
                written[key as usize] = (session + 1, reader);
            }
        }
    }
}
