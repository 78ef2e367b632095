//! The exit status of a verdict.

use seatrial_checker::Validity;
use seatrial_terminal::Exit;

/// How a command ends whose history is so.
pub(crate) fn verdict_exit(validity: &Validity) -> Exit {
    match validity {
        Validity::Valid => Exit::Valid,
        Validity::Invalid => Exit::Invalid,
        Validity::Unknown(_) => Exit::Unknown,
    }
}
