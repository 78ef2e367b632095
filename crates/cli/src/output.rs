//! What goes to standard output.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints as `println!` does, but bears it when whoever reads has seen enough (`| head`).
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::output::line(format_args!($($arguments)*))
    };
}
pub(crate) use say;

/// Writes one line. Goes on when nobody reads any more, so that the exit status still tells the verdict.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("seatrial: standard output cannot be written: {error}");
            std::process::exit(254);
        }
        _ => {}
    }
}
