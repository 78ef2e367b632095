//! Times and texts as people read them: short, on one line.

use seatrial_history::Value;
use seatrial_machine::thousands;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// Longest text of an error in characters.
const ERROR_LENGTH_MAX: usize = 100;

/// An error, or a node, as one short line.
pub fn error_text(error: &Value) -> String {
    let text = match error {
        Value::Text(text) => shortened(text, ERROR_LENGTH_MAX).into_owned(),
        Value::Word(word) => word.to_string(),
        other => brief(other, ERROR_LENGTH_MAX),
    };
    one_line(&text).into_owned()
}

/// A length of time: `30 s`, `2.5 s`, `12 ms`, `10 min 5 s`.
pub fn length(seconds: f64) -> String {
    match seconds {
        _ if seconds <= 0.0 => "0 s".to_owned(),
        _ if seconds < 0.999_5e-3 => format!("{} µs", three_digits(seconds * 1e6)),
        _ if seconds < 0.999_5 => format!("{} ms", three_digits(seconds * 1e3)),
        _ if seconds < 9.95 => format!("{} s", three_digits(seconds)),
        _ if seconds < 119.5 => format!("{seconds:.0} s"),
        _ => {
            let whole = seconds.round() as u64;
            format!("{} min {} s", thousands(whole / 60), whole % 60)
        }
    }
}

/// A number below a thousand with at most three digits that count: `500`, `12.5`, `0.25`.
fn three_digits(number: f64) -> String {
    let decimals = match number {
        _ if number < 9.995 => 2,
        _ if number < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{number:.decimals$}");
    if decimals == 0 {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// At most `characters_max` characters of `text`, an ellipsis in place of the rest.
pub fn shortened(text: &str, characters_max: usize) -> Cow<'_, str> {
    if text.chars().nth(characters_max).is_none() {
        return Cow::Borrowed(text);
    }
    let kept = text.chars().take(characters_max.saturating_sub(1));
    Cow::Owned(kept.chain(['…']).collect())
}

/// What `value` prints, cut after this many characters; a long value is not printed to its end first.
pub fn brief(value: impl fmt::Display, characters_max: usize) -> String {
    let mut text = Limited {
        text: String::new(),
        room: characters_max,
    };
    // An error means that there is no more room.
    if write!(text, "{value}").is_err() {
        text.text.pop();
        text.text.push('…');
    }
    text.text
}

/// Takes up to `room` characters and refuses the rest.
struct Limited {
    text: String,
    room: usize,
}

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.char_indices().nth(self.room).map(|(end, _)| end);
        let kept = &text[..end.unwrap_or(text.len())];
        self.room -= kept.chars().count();
        self.text.push_str(kept);
        end.map_or(Ok(()), |_| Err(fmt::Error))
    }
}

/// The text on one line and safe for a terminal: control characters become spaces.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, " "))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        let lengths = [0.0, 0.000_25, 0.012_3, 0.999_9, 2.5, 9.96, 30.2, 605.0].map(length);
        let expected = [
            "0 s",
            "250 µs",
            "12.3 ms",
            "1 s",
            "2.5 s",
            "10 s",
            "30 s",
            "10 min 5 s",
        ];
        assert_eq!(lengths, expected);
    }

    #[test]
    fn brief_is_the_shortened_text() {
        for length in 1..9 {
            let words = ["na", "ïv", "", "e →"].concat();
            assert_eq!(
                brief(format_args!("na{}{}", "ïv", "e →"), length),
                shortened(&words, length)
            );
        }
    }

    #[test]
    fn cut_between_characters() {
        assert_eq!(shortened("naïve", 5), "naïve");
        assert_eq!(shortened("naïve", 4), "naï…");
        assert_eq!(one_line("a\n\x1b[31mb"), "a  [31mb");
    }
}
