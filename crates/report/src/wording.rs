//! Figures and names as people read them.

pub(crate) use seatrial_machine::counted as count;
pub use seatrial_machine::thousands;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// `part` of `whole` in percent with one decimal; `0 %` and `100 %` only when they are exact.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    if part >= whole {
        return "100 %".to_owned();
    }
    let share = part as f64 / whole as f64 * 100.0;
    match share {
        _ if share < 0.1 => "<0.1 %".to_owned(),
        _ if share > 99.9 => ">99.9 %".to_owned(),
        _ => format!("{share:.1} %"),
    }
}

/// Operations per second: `1,940/s`, below ten with one decimal.
pub(crate) fn rate(operations: u64, seconds: f64) -> Option<String> {
    if seconds <= 0.0 {
        return None;
    }
    let rate = operations as f64 / seconds;
    Some(if rate < 10.0 {
        format!("{rate:.1}/s")
    } else {
        format!("{}/s", thousands(rate.round() as u64))
    })
}

/// A length of time: `30 s`, `2.5 s`, `12 ms`, `10 min 5 s`.
pub(crate) fn length(seconds: f64) -> String {
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

/// Anomalies that have a name in words; all others are written as the field writes them.
const IN_WORDS: [(&str, &str); 7] = [
    ("dirty-read", "dirty read"),
    ("dirty-update", "dirty update"),
    ("duplicate-elements", "duplicate element"),
    ("lost-update", "lost update"),
    ("stale-read", "stale read"),
    ("lost-write", "lost write"),
    ("write-skew", "write skew"),
];

/// How often an anomaly was found: `1 G-single`, `2 lost updates`, `3 × internal`.
pub(crate) fn anomaly_count(anomaly: &str, number: u64) -> String {
    if let Some((_, words)) = IN_WORDS.iter().find(|(name, _)| *name == anomaly) {
        return count(number, words);
    }
    let sign = if anomaly.starts_with('G') { "" } else { "× " };
    format!("{} {sign}{anomaly}", thousands(number))
}

/// At most `characters_max` characters of `text`, an ellipsis in place of the rest.
pub(crate) fn shortened(text: &str, characters_max: usize) -> Cow<'_, str> {
    if text.chars().nth(characters_max).is_none() {
        return Cow::Borrowed(text);
    }
    let kept = text.chars().take(characters_max.saturating_sub(1));
    Cow::Owned(kept.chain(['…']).collect())
}

/// What `value` prints, cut after this many characters; a long value is not printed to its end first.
pub(crate) fn brief(value: impl fmt::Display, characters_max: usize) -> String {
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
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
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
    fn figures_for_people() {
        assert_eq!(
            [0, 999, 1_000, 58_213, 1_000_000].map(thousands),
            ["0", "999", "1,000", "58,213", "1,000,000"]
        );
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(percent(961, 1_000), "96.1 %");
        assert_eq!(percent(1, 1_000_000), "<0.1 %");
        assert_eq!(percent(999_999, 1_000_000), ">99.9 %");
        assert_eq!(percent(7, 7), "100 %");
        assert_eq!(rate(58_213, 30.0).as_deref(), Some("1,940/s"));
        assert_eq!(rate(3, 2.0).as_deref(), Some("1.5/s"));
        assert_eq!(rate(3, 0.0), None);
    }

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
    fn anomalies_in_words() {
        assert_eq!(anomaly_count("G-single", 1), "1 G-single");
        assert_eq!(anomaly_count("lost-update", 2), "2 lost updates");
        assert_eq!(anomaly_count("internal", 3), "3 × internal");
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
