//! Length of files and functions, width of lines.

use super::Finding;
use super::mask::{Class, Mask};

/// Longest file in lines, its tests not counted.
const FILE_LINES_MAX: usize = 1_000;
/// Longest function in lines, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Widest line of code in characters; rustfmt's own limit, which it gives up silently.
const CODE_WIDTH_MAX: usize = 100;
/// Widest comment in characters.
const COMMENT_WIDTH_MAX: usize = 130;

/// Checks one source file.
pub(super) fn check(path: &str, text: &str, mask: &Mask, findings: &mut Vec<Finding>) {
    let lines = text.lines().count() - test_lines(mask);
    if lines > FILE_LINES_MAX {
        let what = format!(
            "{lines} lines without tests, at most {FILE_LINES_MAX}; give a noun of it its own file"
        );
        findings.push(Finding::new(path, 0, what));
    }
    for (line, name, length) in functions(mask) {
        if length > FUNCTION_LINES_MAX {
            let what = format!(
                "fn {name} has {length} lines, at most {FUNCTION_LINES_MAX}; name its parts"
            );
            findings.push(Finding::new(path, line, what));
        }
    }
    widths(path, text, mask, findings);
}

/// Finds lines that are too wide.
fn widths(path: &str, text: &str, mask: &Mask, findings: &mut Vec<Finding>) {
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let classes = &mask.classes[offset..offset + line.len()];
        offset += line.len();
        let line = line.trim_end();
        let width = line.chars().count();
        if width <= CODE_WIDTH_MAX {
            continue;
        }
        // A literal that does not fit makes its line wide; only breaking the text would help.
        let literal = classes.contains(&Class::Literal);
        let (what, limit) = match classes[line.len() - 1] {
            Class::Comment => ("comment", COMMENT_WIDTH_MAX),
            _ if literal => continue,
            _ => ("code", CODE_WIDTH_MAX),
        };
        if width > limit {
            let what = format!("{what} of {width} characters, at most {limit}; break the line");
            findings.push(Finding::new(path, number + 1, what));
        }
    }
}

/// Lines of the modules that are only compiled for tests.
pub(super) fn test_lines(mask: &Mask) -> usize {
    let lines = |module: std::ops::Range<usize>| 1 + mask.code[module].matches('\n').count();
    test_modules(mask).map(lines).sum()
}

/// The code with those modules blanked.
pub(super) fn without_tests(mask: &Mask) -> String {
    let mut code = mask.code.clone().into_bytes();
    for module in test_modules(mask) {
        let bytes = code[module].iter_mut().filter(|byte| **byte != b'\n');
        bytes.for_each(|byte| *byte = b' ');
    }
    String::from_utf8(code).unwrap_or_default() // a mask is ASCII
}

/// From the attribute to the closing brace of each module with a body that is only compiled for tests.
fn test_modules(mask: &Mask) -> impl Iterator<Item = std::ops::Range<usize>> {
    let marks = mask.code.match_indices("#[cfg(test)]");
    marks.filter_map(|(at, mark)| {
        let rest = &mask.code[at..];
        let is_module = rest[mark.len()..].trim_start().starts_with("mod ");
        let length = block_length(rest).filter(|_| is_module)?;
        Some(at..at + length)
    })
}

/// Line, name and number of lines of each function that has a body.
fn functions(mask: &Mask) -> Vec<(usize, &str, usize)> {
    let mut found = Vec::new();
    let (mut line, mut counted) = (1, 0);
    for (at, _) in mask.code.match_indices("fn ") {
        let before = mask.code[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &mask.code[at..];
        let name = rest[3..].trim_start();
        let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let name = &name[..end.unwrap_or(name.len())];
        line += mask.code[counted..at].matches('\n').count();
        counted = at;
        if let Some(length) = block_length(rest).filter(|_| !name.is_empty()) {
            found.push((line, name, body_lines(mask, at, length)));
        }
    }
    found
}

/// Lines of a function; those inside a literal (golden text) do not count.
fn body_lines(mask: &Mask, at: usize, length: usize) -> usize {
    let code = mask.code[at..at + length].bytes();
    let classes = &mask.classes[at..at + length];
    let ends = code
        .zip(classes)
        .filter(|(byte, class)| *byte == b'\n' && **class != Class::Literal);
    1 + ends.count()
}

/// Bytes up to and with the brace that closes the first block of `code`; `None` when a semicolon ends it before.
/// Blocks inside the parentheses and brackets of a signature are not it.
fn block_length(code: &str) -> Option<usize> {
    let (mut braces, mut others) = (0_i32, 0_i32);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others -= 1,
            b';' if braces == 0 && others <= 0 => return None,
            b'{' if braces > 0 || others <= 0 => braces += 1,
            b'}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check("a.rs", text, &Mask::of(text), &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    /// A function of so many lines whose body is full of traps.
    fn function(name: &str, lines: usize) -> String {
        let traps = [
            "    // }",
            "    let a = '}';",
            "    let b = \"}\";",
            "    if c {}",
        ];
        let body: Vec<&str> = (2..lines).map(|line| traps[line % traps.len()]).collect();
        format!(
            "fn {name}<const N: usize>(a: [u8; {{ 3 }}]) -> u8 {{\n{}\n}}\n",
            body.join("\n")
        )
    }

    #[test]
    fn long_functions_are_found() {
        assert_eq!(said(&function("fits", 70)), [""; 0]);
        let long = function("first", 70) + &function("second", 71);
        let expected = "a.rs:71: fn second has 71 lines, at most 70; name its parts";
        assert_eq!(said(&long), [expected]);
        let nested = format!("impl A {{\n{}}}\n", function("inner", 72));
        let expected = "a.rs:2: fn inner has 72 lines, at most 70; name its parts";
        assert_eq!(said(&nested), [expected]);
    }

    #[test]
    fn golden_text_does_not_make_a_function_long() {
        let golden = format!("fn a() {{\n    b(r\"{}\");\n}}\n", "text\n".repeat(200));
        assert_eq!(said(&golden), [""; 0]);
    }

    #[test]
    fn what_only_looks_like_a_function_is_none() {
        let lines = "\n".repeat(100);
        assert_eq!(
            said(&format!("trait A {{\n    fn a();\n{lines}}}\n")),
            [""; 0]
        );
        assert_eq!(
            said(&format!("type A = fn (u8);\nmod b {{{lines}}}\n")),
            [""; 0]
        );
        assert_eq!(said(&format!("// fn a() {{{lines}// }}\n")), [""; 0]);
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let code = "use a;\n".repeat(1_000);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "use a;\n".repeat(500));
        assert_eq!(said(&(code.clone() + &tests)), [""; 0]);
        let expected =
            "a.rs: 1001 lines without tests, at most 1000; give a noun of it its own file";
        assert_eq!(said(&(code + "use b;\n" + &tests)), [expected]);
    }

    #[test]
    fn wide_lines_are_found() {
        let name = "a".repeat(96);
        assert_eq!(
            said(&format!("use {name};")),
            ["a.rs:1: code of 101 characters, at most 100; break the line"]
        );
        assert_eq!(
            said(&format!("\n// {name}{name}")),
            ["a.rs:2: comment of 195 characters, at most 130; break the line"]
        );
        assert_eq!(said(&format!("/// {}", "é".repeat(126))), [""; 0]);
        assert_eq!(said(&format!("const A: &str = \"{name}\";")), [""; 0]);
    }
}
