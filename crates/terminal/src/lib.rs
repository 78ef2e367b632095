//! What a command of the program shares with the process that started it: its exit status, the lines that it prints, and the
//! signals that ask it to end.
//!
//! A command returns [`Exit`], prints with [`say!`] and [`complain!`], and asks [`Interrupt`] or [`Signals`] whether to go on.
//! [`for_screen`] is the one place where characters that act on a terminal become visible.
//!
//! # What is absent
//!
//! - No verdict, history or archive: what is printed, and which status it stands for, its owner decides.
//! - No buffer: each line is written at once, to the standard output or error of the process.
//! - No terminal is asked for its colours or its width, and no bar of progress is drawn.

mod exit;
mod interrupt;
mod output;

pub use exit::Exit;
pub use interrupt::{Interrupt, Signals, signal_runtime};
pub use output::{complaint, for_screen, line};
