//! TextPositions inside of texts of a TOML file.

/// Maps offsets in a decoded text to offsets in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPositions<'t> {
    /// The file.
    pub(crate) text: &'t str,
}

impl TextPositions<'_> {
    /// The offset in the file of byte `offset` of the decoded text whose quotes begin at `at`. Escapes of basic texts (`\n`,
    /// `\u00e9`) are longer in the file than decoded; a line break after an opening `"""` is not part of the text.
    pub(crate) fn inside(&self, at: usize, offset: usize) -> usize {
        let rest = &self.text[at.min(self.text.len())..];
        let is_basic = rest.starts_with('"');
        let is_multiline = rest.starts_with("\"\"\"") || rest.starts_with("'''");
        if !is_basic && !rest.starts_with('\'') {
            return at; // not a text in quotes
        }
        let mut place = if is_multiline { 3 } else { 1 };
        if is_multiline {
            let inner = &rest[place..];
            place += usize::from(inner.starts_with('\r'));
            place += usize::from(rest[place..].starts_with('\n'));
        }
        let mut decoded = 0;
        while decoded < offset {
            let Some(character) = rest[place..].chars().next() else {
                break;
            };
            if is_basic && character == '\\' {
                let (file, text) = escape(&rest[place..]);
                place += file;
                decoded += text;
            } else {
                place += character.len_utf8();
                decoded += character.len_utf8();
            }
        }
        at + place
    }
}

/// The length of an escape in the file, and of what it stands for.
fn escape(text: &str) -> (usize, usize) {
    let code = |length: usize| {
        let digits = text.get(2..2 + length).unwrap_or_default();
        let code = u32::from_str_radix(digits, 16)
            .ok()
            .and_then(char::from_u32);
        (2 + digits.len(), code.map_or(1, char::len_utf8))
    };
    match text[1..].chars().next() {
        Some('x') => code(2),
        Some('u') => code(4),
        Some('U') => code(8),
        Some(c) if c.is_whitespace() => {
            // A line break that is no part of the text, with the white space after it.
            let rest = &text[1..];
            (1 + rest.len() - rest.trim_start().len(), 0)
        }
        Some(c) => (1 + c.len_utf8(), 1),
        None => (1, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_the_file() {
        for (text, offset, expected) in [
            (r#""ab{c}""#, 2, "{c}"),
            (r#""a\n{c}""#, 2, "{c}"),
            (r#""\u00e9{c}""#, 2, "{c}"),
            ("'a\\n{c}'", 3, "{c}"),
            ("\"\"\"\nab\n{c}\"\"\"", 3, "{c}"),
            ("'''\n{c}'''", 0, "{c}"),
            ("\"\"\"a\\\n   {c}\"\"\"", 1, "{c}"),
        ] {
            let file = format!("key = {text}");
            let at = TextPositions { text: &file }.inside(6, offset);
            // Where an escape stands between two characters, either side of it is its position.
            let shown = file[at..].trim_start_matches(['\\', '\n', ' ']);
            assert!(shown.starts_with(expected), "{text}: {shown}");
        }
        assert_eq!(TextPositions { text: "a = 1" }.inside(4, 3), 4);
        assert!(TextPositions { text: "\"a" }.inside(0, 9) <= 2);
    }
}
