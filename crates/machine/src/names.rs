//! Messages about unknown names, with a suggestion.

/// The available name that was probably meant: the one with the fewest edits (insert, delete, replace a character, swap two
/// neighbours), whatever the case, unless that is more than one and a quarter of it; else one that begins with the name.
/// Among equals the first. Cost: the product of both lengths for each available name.
pub fn nearest<'a>(name: &str, available: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let wanted = lower(name);
    let mut best: Option<(usize, &str)> = None;
    for candidate in available {
        let other = lower(candidate);
        let distance = match edits(&wanted, &other) {
            distance if distance <= 1 + other.len() / 4 => distance,
            // After every name that is near.
            _ if wanted.len() >= 3 && other.starts_with(&wanted) => usize::MAX,
            _ => continue,
        };
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The message about an unknown name of this kind: ``unknown checker `regster`; did you mean `register`? (available: …)``.
pub fn unknown_name<'a>(
    kind: &str,
    name: &str,
    available: impl IntoIterator<Item = &'a str>,
) -> String {
    let available: Vec<&str> = available.into_iter().collect();
    let hint = nearest(name, available.iter().copied());
    let hint = hint.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
    format!(
        "unknown {kind} `{name}`{hint} (available: {})",
        available.join(", ")
    )
}

/// The optimal string alignment distance: Levenshtein's, with a swap of two neighbours as one edit.
fn edits(one: &[char], other: &[char]) -> usize {
    // The last two rows of the table and the present one.
    let mut before: Vec<usize> = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, &left) in one.iter().enumerate() {
        let mut present = vec![row + 1];
        for (column, &right) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(left != right);
            let mut least = replaced.min(last[column + 1] + 1).min(present[column] + 1);
            let is_swap =
                row > 0 && column > 0 && left == other[column - 1] && one[row - 1] == right;
            if is_swap {
                least = least.min(before[column - 1] + 1);
            }
            present.push(least);
        }
        before = std::mem::replace(&mut last, present);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let names = [
            "register",
            "cas-register",
            "rw-register",
            "set",
            "set-full",
            "bank",
        ];
        let meant = |name| nearest(name, names);
        assert_eq!(meant("regster"), Some("register"));
        assert_eq!(meant("RW-Register"), Some("rw-register"));
        assert_eq!(meant("cas_register"), Some("cas-register"));
        assert_eq!(meant("bnak"), Some("bank"));
        assert_eq!(meant("sett"), Some("set"));
        assert_eq!(meant("set-f"), Some("set-full"));
        assert_eq!(meant("linearizable"), None);
        assert_eq!(meant(""), None);
        let said = "unknown checker `bnk`; did you mean `bank`? (available: set, bank)";
        assert_eq!(unknown_name("checker", "bnk", ["set", "bank"]), said);
        let said = "unknown suite `x` (available: kv-store)";
        assert_eq!(unknown_name("suite", "x", ["kv-store"]), said);
    }

    /// The definition, without a table.
    fn slow(one: &[char], other: &[char]) -> usize {
        let ([left, rest @ ..], [right, others @ ..]) = (one, other) else {
            return one.len() + other.len();
        };
        let mut least = slow(rest, others) + usize::from(left != right);
        least = least.min(slow(rest, other) + 1).min(slow(one, others) + 1);
        if let ([next, rest @ ..], [after, others @ ..]) = (rest, others)
            && (left, next) == (after, right)
        {
            least = least.min(slow(rest, others) + 1);
        }
        least
    }

    #[test]
    fn edits_are_those_of_the_definition() {
        let mut rng = Rng::from_seed(5);
        for _ in 0..2_000 {
            let mut word = || -> Vec<char> {
                let length = rng.index(6);
                (0..length).map(|_| *rng.pick(&['a', 'b', 'c'])).collect()
            };
            let (one, other) = (word(), word());
            assert_eq!(edits(&one, &other), slow(&one, &other), "{one:?} {other:?}");
        }
    }
}
