//! What goes to standard output.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints as `println!` does, but ends the program quietly when whoever reads has seen enough (`| head`).
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::output::line(format_args!($($arguments)*))
    };
}
pub(crate) use say;

/// Writes one line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        let status = if error.kind() == ErrorKind::BrokenPipe {
            0
        } else {
            254
        };
        if status != 0 {
            eprintln!("seatrial: standard output cannot be written: {error}");
        }
        std::process::exit(status);
    }
}
