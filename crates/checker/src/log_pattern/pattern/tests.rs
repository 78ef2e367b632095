use super::*;
use seatrial_machine::Rng;

fn is_match(pattern: &str, line: &str) -> bool {
    Pattern::new(pattern).unwrap().is_match(line)
}

#[test]
fn expressions_match_what_they_say() {
    for (pattern, matching, others) in [
        ("panic", &["a panic!", "panic"][..], &["pani", ""][..]),
        (
            "panic: (\\w+)$",
            &["panic: x", "p panic: invariant"],
            &["panic: a b", "panic: "],
        ),
        (
            "^ERR(OR)?\\b",
            &["ERR", "ERROR at", "ERR:"],
            &[" ERR", "ERRORS"],
        ),
        ("[a-c]{2,3}x", &["abx", "abcx", "aabcx"], &["ax", "dx", "x"]),
        ("a{2}", &["aa", "baab"], &["a", "aba"]),
        ("a{2,}b", &["aaab"], &["ab"]),
        ("[^0-9]\\d+ms", &["x12ms"], &["12ms", "xms"]),
        (
            "(?i)oom|out of memory",
            &["OOM", "Out Of Memory"],
            &["out memory"],
        ),
        ("a|b|", &["", "zzz"], &[]),
        ("(?:ab)+c", &["xababc"], &["ac", "abab"]),
        ("[]x-]", &["]", "-", "x"], &["y"]),
        ("\\.log\\[1\\]", &["a.log[1]"], &["a.log1", "alog[1]"]),
        ("ü.ß", &["süüß"], &["üß"]),
        ("^$", &[""], &["a"]),
        ("a.*?b", &["a--b"], &["b--a"]),
    ] {
        for line in matching {
            assert!(is_match(pattern, line), "{pattern} does not match {line:?}");
        }
        for line in others {
            assert!(!is_match(pattern, line), "{pattern} matches {line:?}");
        }
    }
}

#[test]
fn malformed_expressions_are_refused_with_their_position() {
    for (pattern, at) in [
        ("(", 2),
        (")", 1),
        ("a(b", 4),
        ("[a", 3),
        ("*a", 1),
        ("a**", 3),
        ("a{3,1}", 7),
        ("a{", 3),
        ("\\", 2),
        ("\\q", 2),
        ("(?=a)", 3),
        ("a{9999}", 7),
        ("[z-a]", 5),
    ] {
        assert_eq!(Pattern::new(pattern).unwrap_err().at, at, "{pattern}");
    }
    let large = "(((a{1000}){1000}){1000})";
    assert_eq!(
        Pattern::new(large).unwrap_err().reason,
        "too long when expanded"
    );
    assert!(Pattern::new(&"(".repeat(100_000)).is_err());
}

#[test]
fn what_takes_others_exponential_time_takes_none() {
    let line = "a".repeat(20_000);
    assert!(!is_match("(a*)*b", &line));
    assert!(!is_match("(a|aa)+$b", &line));
}

/// Matches by trying everything.
fn brute(
    expression: &Expression,
    letters: &[char],
    at: usize,
) -> std::collections::BTreeSet<usize> {
    match expression {
        Expression::Step(Step::Class(ranges, is_negated)) => {
            let has = letters.get(at).is_some_and(|letter| {
                ranges
                    .iter()
                    .any(|(first, last)| first <= letter && letter <= last)
                    != *is_negated
            });
            has.then_some(at + 1).into_iter().collect()
        }
        Expression::Step(Step::Begin) => (at == 0).then_some(at).into_iter().collect(),
        Expression::Step(_) => (at == letters.len()).then_some(at).into_iter().collect(),
        Expression::Sequence(parts) => {
            let mut ends = [at].into();
            for part in parts {
                let from: std::collections::BTreeSet<usize> = ends;
                ends = from
                    .iter()
                    .flat_map(|at| brute(part, letters, *at))
                    .collect();
            }
            ends
        }
        Expression::Either(parts) => parts
            .iter()
            .flat_map(|part| brute(part, letters, at))
            .collect(),
        Expression::Repeat(part, least, most) => {
            let mut found = std::collections::BTreeSet::new();
            let mut ends: std::collections::BTreeSet<usize> = [at].into();
            for number in 0..=most.unwrap_or(12) {
                if number >= *least {
                    found.extend(&ends);
                }
                ends = ends
                    .iter()
                    .flat_map(|at| brute(part, letters, *at))
                    .collect();
            }
            found
        }
    }
}

#[test]
fn random_expressions_match_what_trying_everything_finds() {
    for seed in 0..5_000 {
        let mut rng = Rng::from_seed(seed);
        let parts = [
            "a", "b", ".", "[ab]", "[^a]", "(", ")", "|", "*", "+", "?", "{1,2}", "^", "$",
        ];
        let length = 1 + rng.below(8);
        let text: String = (0..length).map(|_| *rng.pick(&parts)).collect();
        let Ok(pattern) = Pattern::new(&text) else {
            continue;
        };
        let mut parser = PatternParser {
            letters: text.chars().collect(),
            at: 0,
            depth: 0,
        };
        let expression = parser.either().unwrap();
        for _ in 0..8 {
            let line: String = (0..rng.below(7))
                .map(|_| *rng.pick(&['a', 'b', 'c']))
                .collect();
            let letters: Vec<char> = line.chars().collect();
            let mut starts = 0..=letters.len();
            let expected = starts.any(|at| !brute(&expression, &letters, at).is_empty());
            assert_eq!(pattern.is_match(&line), expected, "{text} on {line:?}");
        }
    }
}
