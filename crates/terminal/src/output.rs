//! What goes to standard output and standard error: the one place where text meets the screen.

use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints as `println!` does, but ignores a closed pipe (`| head`).
#[macro_export]
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::line(format_args!($($arguments)*))
    };
}

/// Prints to standard error as `eprintln!` does, without characters that act on a terminal.
#[macro_export]
macro_rules! complain {
    ($($arguments:tt)*) => {
        $crate::complaint(format_args!($($arguments)*))
    };
}

/// Writes one line. Ignores a closed pipe, so that the exit status is still that of the verdict.
pub fn line(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    match writeln!(std::io::stdout(), "{}", for_screen(&text)) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain!("seatrial: standard output cannot be written: {error}");
            std::process::exit(254);
        }
        _ => {}
    }
}

/// Writes one line to standard error; an error is ignored, since there is nowhere left to report it.
pub fn complaint(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = writeln!(std::io::stderr(), "{}", for_screen(&text));
}

/// Does this character act on a terminal, or on the order in which it shows others, instead of being shown? Control characters
/// (C0, DEL, C1), the bidirectional controls of Unicode (UAX 9), line and paragraph separators.
fn acts(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        other => other.is_control(),
    }
}

/// The length of a colour that our own reports begin or end with: `ESC [ CODE m`, nothing that moves or hides text.
fn color_length(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\u{1b}[")?;
    let code = rest.split('m').next()?;
    let is_ours = matches!(code, "0" | "1" | "2" | "1;31" | "1;32" | "1;33");
    (is_ours && rest.len() > code.len()).then_some(2 + code.len() + 1)
}

/// The text with an escape (`\\u202e`) in place of characters that act on a terminal. In JSON, where they can only stand inside a
/// string, that is the same string.
pub fn for_screen(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(acts) {
        shown.push_str(&rest[..at]);
        rest = &rest[at..];
        let letter = rest.chars().next().unwrap_or_default();
        if let Some(length) = color_length(rest) {
            shown.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        // All of them are in the basic plane.
        let _ = fmt::Write::write_fmt(&mut shown, format_args!("\\u{:04x}", u32::from(letter)));
        rest = &rest[letter.len_utf8()..];
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts_on_a_terminal() {
        for letter in '\0'..=char::MAX {
            let text = format!("a{letter}b");
            let shown = for_screen(&text);
            assert!(!shown.contains(acts), "{:x}", u32::from(letter));
            if !acts(letter) {
                assert_eq!(shown, text);
            }
        }
        let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{202e}lav\u{9b}8m";
        let shown = for_screen(hostile);
        assert_eq!(
            shown,
            "\\u001b]0;title\\u0007\\u001b[2J\\u000d\\u202elav\\u009b8m"
        );
        assert_eq!(
            for_screen("\u{1b}[1;31mred\u{1b}[0m"),
            "\u{1b}[1;31mred\u{1b}[0m"
        );
        assert_eq!(for_screen("\u{1b}[8mhidden"), "\\u001b[8mhidden");
    }

    #[test]
    fn json_stays_the_same_document() {
        let document =
            serde_json::json!({"a\u{202e}b": ["\u{9b}", "\u{1b}[31m", "\u{2028}", "\u{7f}"]});
        let shown = for_screen(&document.to_string()).into_owned();
        assert!(!shown.contains(acts));
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, document);
    }
}
