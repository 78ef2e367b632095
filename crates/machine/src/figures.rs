//! Numbers in messages: plurals and thousands separators.

/// A number of things: `1 operation`, `22,141 operations`, `2 histories`, `3 batches`. `noun` is the singular.
pub fn counted(number: u64, noun: &str) -> String {
    let number_text = thousands(number);
    if number == 1 {
        return format!("{number_text} {noun}");
    }
    let consonant_y = noun
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    let sibilant = noun.ends_with(['s', 'x']) || noun.ends_with("ch") || noun.ends_with("sh");
    match consonant_y {
        Some(stem) => format!("{number_text} {stem}ies"),
        None if sibilant => format!("{number_text} {noun}es"),
        None => format!("{number_text} {noun}s"),
    }
}

/// `58213` as `58,213`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_with_nouns() {
        let shown = |number, noun| counted(number, noun);
        assert_eq!(shown(0, "operation"), "0 operations");
        assert_eq!(shown(1, "operation"), "1 operation");
        assert_eq!(shown(22_141, "operation"), "22,141 operations");
        assert_eq!(shown(2, "history"), "2 histories");
        assert_eq!(shown(2, "key"), "2 keys");
        assert_eq!(shown(2, "anomaly"), "2 anomalies");
        assert_eq!(shown(3, "batch"), "3 batches");
        assert_eq!(shown(3, "process"), "3 processes");
        assert_eq!(shown(1, "process"), "1 process");
    }
}
