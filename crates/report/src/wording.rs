//! Figures and names as people read them.

pub(crate) use seatrial_cause::short_text::{brief, error_text, length, one_line, shortened};
pub(crate) use seatrial_machine::counted as count;
pub use seatrial_machine::thousands;

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
    fn anomalies_in_words() {
        assert_eq!(anomaly_count("G-single", 1), "1 G-single");
        assert_eq!(anomaly_count("lost-update", 2), "2 lost updates");
        assert_eq!(anomaly_count("internal", 3), "3 × internal");
    }
}
