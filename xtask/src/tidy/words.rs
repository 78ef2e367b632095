//! Words that do not belong into the tree, and characters that are not what they look like.

use super::Finding;
use super::mask::Mask;

/// What may not stand in any file: the word, why or what to do instead. Written in two halves, so that this file
/// passes its own check.
const ANYWHERE: [(&str, &str, &str); 8] = [
    (
        "/wo",
        "rk/",
        "a path of one machine; use a path from the workspace's folder",
    ),
    (
        "/ro",
        "ot/",
        "a path of one machine; use a path from the workspace's folder",
    ),
    (
        "/ho",
        "me/",
        "a path of one machine; use a path from the workspace's folder",
    ),
    (
        "/Us",
        "ers/",
        "a path of one machine; use a path from the workspace's folder",
    ),
    (
        "/fa",
        "rm/",
        "a path of one machine; use a path from the workspace's folder",
    ),
    (
        "FIX",
        "ME",
        "finish it, or say in the documentation what is missing",
    ),
    (
        "XX",
        "X",
        "finish it, or say in the documentation what is missing",
    ),
    (
        "TO",
        "DO",
        "finish it, or say in the documentation what is missing",
    ),
];

/// What may not stand in code (strings and comments may speak of it).
const IN_CODE: [(&str, &str, &str); 4] = [
    ("todo", "!(", "write the code; a stub is a lie in the type"),
    (
        "unimplemented",
        "!(",
        "write the code; a stub is a lie in the type",
    ),
    ("dbg", "!(", "remove it, or return the value as data"),
    (
        "#[ign",
        "ore]",
        "run it, or give the reason: #[ignore = \"...\"]",
    ),
];

/// Attributes that switch a lint off; each says why.
const EXCUSES: [&str; 2] = ["[allow(", "[expect("];

/// Lints that keep cores pure, and the files that may switch them off: they open files.
const PURITY: [&str; 2] = ["clippy::disallowed_types", "clippy::disallowed_methods"];
const FILES_OPENED_IN: [&str; 2] = ["crates/history/src/store", "crates/files/src"];

/// Files that may hold `unsafe`, each with the reason.
const UNSAFE: [(&str, &str); 8] = [
    (
        "crates/runner/src/child.rs",
        "a process that dies with its parent: prctl between fork and exec",
    ),
    (
        "crates/runner/src/timer.rs",
        "a timer of the kernel as a file that the runtime waits for",
    ),
    (
        "crates/blocks/src/crc32c/instruction.rs",
        "the processor's checksum instruction, inlined: a call would cost as much as the checksum",
    ),
    (
        "crates/files/src/map.rs",
        "views of files without a copy: a mapping's bytes may be changed by others",
    ),
    (
        "crates/namespace/src/enter.rs",
        "namespaces are entered by a thread, and tried in a fork",
    ),
    (
        "crates/namespace/src/node_space.rs",
        "the processes between fork and exec that put a node into its namespaces",
    ),
    (
        "crates/namespace/src/packet_socket.rs",
        "packet sockets: bind and options that no safe crate has",
    ),
    (
        "crates/host/src/loop_disk.rs",
        "the shutdown call of file systems, by which a loss of power is tested",
    ),
];

/// Characters outside ASCII that may stand in a source or a page, because a person reads them there.
const CHARACTERS: &str = "äöüßéèïçÄÖÜ·–—…×÷±−≤≥≠≈∞∈µ°§¹²³λΔ←→↔↑↓⟵⟶─│┌┐└┘├┤┬┴┼━►▼▲◄●○■□▪✓✗✔✘“”‘’«»€";

/// Kinds of files whose characters are checked.
const SOURCES: [&str; 8] = [".rs", ".toml", ".md", ".js", ".css", ".html", ".txt", "run"];

/// Checks the text of any file.
pub(super) fn check_text(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (first, second, instead) in ANYWHERE {
        let word = format!("{first}{second}");
        let whole = word.chars().all(char::is_alphanumeric);
        for (at, _) in text.match_indices(&word) {
            // A path of one machine begins there; `src/` before it makes it a path of ours.
            let before = text[..at].chars().next_back();
            let begins = !before.is_some_and(char::is_alphanumeric);
            if if whole {
                is_whole_word(text, at, word.len())
            } else {
                begins
            } {
                let what = format!("{word} is left: {instead}");
                findings.push(Finding::new(path, line(text, at), what));
            }
        }
    }
    if SOURCES.iter().any(|ending| path.ends_with(ending)) {
        characters(path, text, findings);
    }
}

/// Checks Rust code.
pub(super) fn check_code(path: &str, mask: &Mask, findings: &mut Vec<Finding>) {
    for (first, second, instead) in IN_CODE {
        let word = format!("{first}{second}");
        for (at, _) in mask.code.match_indices(&word) {
            let what = format!("{word}: {instead}");
            findings.push(Finding::new(path, mask.line(at), what));
        }
    }
    excuses(path, mask, findings);
    if UNSAFE.iter().any(|(allowed, _)| *allowed == path) {
        return;
    }
    let keyword = "unsafe";
    for (at, _) in mask.code.match_indices(keyword) {
        if is_whole_word(&mask.code, at, keyword.len()) {
            let what = "unsafe outside the named files; find a safe crate for it, or name the file \
                        in xtask/src/tidy/words.rs with the reason";
            findings.push(Finding::new(path, mask.line(at), what));
        }
    }
}

/// Finds lints that are switched off without a reason, or where they keep a core pure.
fn excuses(path: &str, mask: &Mask, findings: &mut Vec<Finding>) {
    let attributes = EXCUSES
        .iter()
        .flat_map(|excuse| mask.code.match_indices(excuse));
    for (at, _) in attributes {
        let attribute = &mask.code[at..];
        let attribute = &attribute[..attribute.find(")]").unwrap_or(attribute.len())];
        if !attribute.contains("reason = ") {
            let what = "a lint is off without a reason; add reason = \"...\", or mend the code";
            findings.push(Finding::new(path, mask.line(at), what));
        }
        let pure = PURITY.iter().any(|lint| attribute.contains(lint));
        let opens_files = FILES_OPENED_IN
            .iter()
            .any(|prefix| path.starts_with(prefix));
        // A bench is no core: it asks the clock.
        let is_bench = path.contains("/benches/");
        if pure && !opens_files && !is_bench {
            let what = "a core reaches into the world; pass what it needs as an input (only \
                        history::store and files open files)";
            findings.push(Finding::new(path, mask.line(at), what));
        }
    }
}

/// Finds characters that are neither ASCII nor allowed: look-alikes, invisible ones, reversed text.
fn characters(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in text.lines().enumerate() {
        let odd = |letter: &char| {
            let plain = letter.is_ascii() && (!letter.is_ascii_control() || *letter == '\t');
            !plain && !CHARACTERS.contains(*letter)
        };
        if let Some(letter) = line.chars().find(odd) {
            let what = format!(
                "character U+{:04X}; write it as \\u{{…}} or in ASCII, or allow it in xtask/src/tidy/words.rs",
                letter as u32
            );
            findings.push(Finding::new(path, number + 1, what));
        }
    }
}

/// Does the match at `at` neither continue nor begin a longer word?
fn is_whole_word(text: &str, at: usize, length: usize) -> bool {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let before = text[..at].chars().next_back();
    let after = text[at + length..].chars().next();
    !before.is_some_and(part) && !after.is_some_and(part)
}

/// The line, from 1, of a byte.
fn line(text: &str, offset: usize) -> usize {
    1 + text[..offset].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_text(path, text, &mut findings);
        check_code(path, &Mask::of(text), &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn each_word_is_found_in_any_file() {
        for (first, second, instead) in ANYWHERE {
            let text = format!("one\n{first}{second} three");
            let found = said("a.yaml", &text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].starts_with("a.yaml:2: ") && found[0].ends_with(instead));
        }
        let words = format!(
            "{}{}S and {}Z, src{}{}tests.rs",
            "TO",
            "DO",
            "X".repeat(3),
            "/ro",
            "ot/"
        );
        assert_eq!(said("a.md", &words), [""; 0]);
        assert_eq!(said("a.md", &format!("file:/{}{}a", "/ro", "ot/")).len(), 1);
    }

    #[test]
    fn each_word_is_found_in_code_only() {
        for (first, second, instead) in IN_CODE {
            let found = said("a.rs", &format!("\n\n    {first}{second}"));
            assert_eq!(found.len(), 1, "{first}");
            assert!(found[0].starts_with("a.rs:3: ") && found[0].ends_with(instead));
            assert_eq!(said("a.rs", &format!("// {first}{second}")), [""; 0]);
        }
        assert_eq!(said("a.rs", "#[ignore = \"needs root\"]"), [""; 0]);
    }

    #[test]
    fn excuses_have_reasons_and_cores_have_none() {
        let excuse = |lint, reason| format!("#[{}({lint}{reason})]", "allow");
        let reason = ", reason = \"because\"";
        let found = said("a.rs", &excuse("clippy::a", ""));
        assert!(
            found[0].starts_with("a.rs:1: a lint is off without a reason"),
            "{found:?}"
        );
        assert_eq!(said("a.rs", &excuse("clippy::a", reason)), [""; 0]);
        let impure = excuse(PURITY[0], reason);
        let found = said("crates/kv/src/log.rs", &impure);
        assert!(
            found[0].contains("a core reaches into the world"),
            "{found:?}"
        );
        assert_eq!(said("crates/files/src/disk.rs", &impure), [""; 0]);
        assert_eq!(said("crates/kv/benches/log.rs", &impure), [""; 0]);
    }

    #[test]
    fn unsafe_only_in_named_files() {
        let code = "fn a() { unsafe { b() } } // unsafe\n#![deny(unsafe_code)]";
        assert_eq!(said("a.rs", code).len(), 1);
        assert_eq!(said(UNSAFE[0].0, code), [""; 0]);
    }

    #[test]
    fn look_alikes_are_found() {
        assert_eq!(said("a.rs", "// x → y … ✓"), [""; 0]);
        let found = said("a.md", "fine\n\u{202e}reversed");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("a.md:2: character U+202E;"),
            "{found:?}"
        );
        assert_eq!(said("a.css", "p\u{430}th").len(), 1);
    }
}
