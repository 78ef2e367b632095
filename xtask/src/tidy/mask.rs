//! Rust source with its strings and comments told apart from its code.

/// What a byte of the source belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Code, and the quotes of literals.
    Code,
    /// A comment.
    Comment,
    /// The inside of a string or character literal.
    Literal,
}

/// The code of a source file: the same bytes, with the insides of literals and whole comments blanked. Newlines stay,
/// so offsets and lines are those of the source.
///
/// It knows strings (plain, byte, C, raw), characters, lifetimes and nested comments; it does not expand macros.
pub(super) struct Mask {
    /// The code.
    pub(super) code: String,
    /// The class of every byte.
    pub(super) classes: Vec<Class>,
}

impl Mask {
    /// Reads a source file to its end; an unclosed literal or comment reaches to the end.
    pub(super) fn of(source: &str) -> Mask {
        let mut reader = Reader {
            source: source.as_bytes(),
            position: 0,
            classes: Vec::with_capacity(source.len()),
        };
        while reader.position < reader.source.len() {
            reader.item();
        }
        let classes = reader.classes;
        let masked = source.bytes().zip(&classes).map(|(byte, class)| {
            let kept = *class == Class::Code && byte.is_ascii() || byte == b'\n';
            if kept { byte as char } else { ' ' }
        });
        Mask {
            code: masked.collect(),
            classes,
        }
    }

    /// The line, from 1, of a byte.
    pub(super) fn line(&self, offset: usize) -> usize {
        1 + self.code[..offset].matches('\n').count()
    }
}

/// Walks the source once.
struct Reader<'a> {
    source: &'a [u8],
    position: usize,
    classes: Vec<Class>,
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        let byte = self.source.get(self.position + ahead);
        byte.copied().unwrap_or(0)
    }

    /// Takes bytes up to `end` as `class`.
    fn take(&mut self, end: usize, class: Class) {
        let end = end.min(self.source.len());
        self.classes.resize(end, class);
        self.position = end;
    }

    /// Takes one comment, literal or byte of code.
    fn item(&mut self) {
        match (self.peek(0), self.peek(1)) {
            (b'/', b'/') => self.line_comment(),
            (b'/', b'*') => self.block_comment(),
            (b'"', _) => self.string(),
            (b'\'', _) => self.quote(),
            (b'r', b'"' | b'#') if !self.inside_word() => self.raw_string(),
            _ => self.take(self.position + 1, Class::Code),
        }
    }

    /// Does the byte before continue a word? (`br"` and `cr"` begin raw strings as well.)
    fn inside_word(&self) -> bool {
        let word = |offset: usize| {
            let byte = self.position.checked_sub(offset).map(|at| self.source[at]);
            byte.filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        match word(1) {
            Some(b'b' | b'c') => word(2).is_some(),
            other => other.is_some(),
        }
    }

    fn line_comment(&mut self) {
        let rest = &self.source[self.position..];
        let length = rest.iter().position(|byte| *byte == b'\n');
        let length = length.unwrap_or(rest.len());
        self.take(self.position + length, Class::Comment);
    }

    fn block_comment(&mut self) {
        let (mut depth, mut ahead) = (1, 2);
        while depth > 0 && self.position + ahead < self.source.len() {
            match (self.peek(ahead), self.peek(ahead + 1)) {
                (b'/', b'*') => (depth, ahead) = (depth + 1, ahead + 2),
                (b'*', b'/') => (depth, ahead) = (depth - 1, ahead + 2),
                _ => ahead += 1,
            }
        }
        self.take(self.position + ahead, Class::Comment);
    }

    /// A string with escapes; stands on its opening quote.
    fn string(&mut self) {
        self.take(self.position + 1, Class::Code);
        let mut ahead = 0;
        while self.position + ahead < self.source.len() && self.peek(ahead) != b'"' {
            ahead += if self.peek(ahead) == b'\\' { 2 } else { 1 };
        }
        self.take(self.position + ahead, Class::Literal);
        self.take(self.position + 1, Class::Code);
    }

    /// A raw string, or only the letter `r` (of `r#name`).
    fn raw_string(&mut self) {
        let rest = &self.source[self.position + 1..];
        let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
        if rest.get(hashes) != Some(&b'"') {
            return self.take(self.position + 1, Class::Code);
        }
        self.take(self.position + hashes + 2, Class::Code);
        let close: Vec<u8> = [b'"'].into_iter().chain(vec![b'#'; hashes]).collect();
        let rest = &self.source[self.position..];
        let length = rest.windows(close.len()).position(|found| found == close);
        self.take(self.position + length.unwrap_or(rest.len()), Class::Literal);
        self.take(self.position + close.len(), Class::Code);
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let rest = &self.source[self.position + 1..];
        let length = match rest.first() {
            Some(b'\\') => rest
                .iter()
                .skip(2)
                .position(|byte| *byte == b'\'')
                .map(|n| n + 2),
            _ => character_length(rest).filter(|length| rest.get(*length) == Some(&b'\'')),
        };
        self.take(self.position + 1, Class::Code);
        if let Some(length) = length {
            self.take(self.position + length, Class::Literal);
            self.take(self.position + 1, Class::Code);
        }
    }
}

/// Bytes of the first character.
fn character_length(text: &[u8]) -> Option<usize> {
    let first = text.first()?;
    Some((first.leading_ones() as usize).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mask of `source` must be `code`; `_` in `code` stands for a blank that was not one.
    fn check(source: &str, code: &str) {
        assert_eq!(Mask::of(source).code, code.replace('_', " "), "{source}");
    }

    #[test]
    fn strings_comments_and_characters_are_blank() {
        check(r#"a("{") b"#, r#"a("_") b"#);
        check(r#"a("\"{") b"#, r#"a("___") b"#);
        check(r##"a(r#"{"}"#) b"##, r##"a(r#"___"#) b"##);
        check(r#"a(br"\") b"#, r#"a(br"_") b"#);
        check("r#match {", "r#match {");
        check("a // {\nb", "a ____\nb");
        let nested = "/* { /* } */ { */";
        check(
            &format!("a{nested}b"),
            &format!("a{}b", "_".repeat(nested.len())),
        );
        check("f::<'a>('{')", "f::<'a>('_')");
        check(r"('\'', '\u{7d}')", r"('__', '______')");
        check("('é', 'x')", "('__', '_')");
        check("bar\"{\"", "bar\"_\"");
    }

    #[test]
    fn unclosed_reaches_to_the_end() {
        check("\"{", "\"_");
        check("/* {", "____");
        check("r#\"{\"", "r#\"__");
        check("'", "'");
        check("\"\\", "\"_");
    }

    #[test]
    fn random_source_keeps_its_length_and_lines() {
        // A small generator of its own: xtask depends on no crate of the workspace.
        let mut state = 1_u64;
        let alphabet = [
            "\"", "'", "\\", "/", "*", "r", "#", "b", "{", "}", "\n", "x", "é",
        ];
        for _ in 0..5_000 {
            let mut source = String::new();
            for _ in 0..24 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                source.push_str(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            let mask = Mask::of(&source);
            assert_eq!(mask.code.len(), source.len(), "{source:?}");
            assert_eq!(mask.classes.len(), source.len(), "{source:?}");
            let lines = |text: &str| text.matches('\n').count();
            assert_eq!(lines(&mask.code), lines(&source), "{source:?}");
        }
    }
}
