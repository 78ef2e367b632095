//! Text from outside made harmless in a page.

use std::fmt::{self, Write};

/// Prints what it holds as text of an HTML page: inside an element or inside a quoted attribute. Control characters
/// other than newline and tab become the replacement character.
pub(crate) struct Escaped<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Escapes on the way.
struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut written = 0;
        for (at, letter) in text.char_indices() {
            if let Some(harmless) = harmless(letter) {
                self.0.write_str(&text[written..at])?;
                self.0.write_str(harmless)?;
                written = at + letter.len_utf8();
            }
        }
        self.0.write_str(&text[written..])
    }
}

/// What stands for a character that means something in HTML.
fn harmless(letter: char) -> Option<&'static str> {
    match letter {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '"' => Some("&quot;"),
        '\'' => Some("&#39;"),
        '\n' | '\t' => None,
        _ if letter.is_control() => Some("\u{fffd}"),
        // No characters, which XML refuses.
        '\u{fffe}' | '\u{ffff}' => Some("\u{fffd}"),
        _ if is_hidden(letter) => Some("\u{fffd}"),
        _ => None,
    }
}

/// Marks that reverse, hide or break the text around them.
fn is_hidden(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON that can stand inside a script element: nothing in it ends the element or begins a comment. The result is
/// JSON with the same meaning, because these characters occur in strings only.
pub(crate) fn json_for_script(json: &serde_json::Value) -> String {
    let mut out = String::new();
    for letter in json.to_string().chars() {
        if matches!(letter, '<' | '>' | '&') || is_hidden(letter) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04x}", letter as u32);
        } else {
            out.push(letter);
        }
    }
    out
}

/// A file name as a relative link; `None` when a browser could take it for something else.
pub(crate) fn relative_link(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    if name.is_empty() || name.starts_with('/') || name.split('/').any(|part| part == "..") {
        return None;
    }
    let mut link = String::from("./");
    for byte in name.bytes() {
        if plain(byte) {
            link.push(byte as char);
        } else {
            let _ = write!(link, "%{byte:02X}");
        }
    }
    Some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_means_something_in_html_passes() {
        let hostile = "<script>\"a\" & 'b'</script>\u{0}\u{1b}\u{202e}\n";
        let harmless = "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\u{fffd}\u{fffd}\u{fffd}\n";
        assert_eq!(Escaped(hostile).to_string(), harmless);
        assert_eq!(Escaped("naïve → plain").to_string(), "naïve → plain");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let json = serde_json::json!({"</script><!--": ["a & b", "\u{2028}", 1]});
        let text = json_for_script(&json);
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            json
        );
    }

    #[test]
    fn links_stay_in_the_folder() {
        assert_eq!(relative_link("n1.log").as_deref(), Some("./n1.log"));
        assert_eq!(relative_link("a b/ü").as_deref(), Some("./a%20b/%C3%BC"));
        assert_eq!(
            relative_link("javascript:alert(1)").as_deref(),
            Some("./javascript%3Aalert%281%29")
        );
        assert_eq!(relative_link("../../secret"), None);
        assert_eq!(relative_link("//elsewhere"), None);
        assert_eq!(relative_link(""), None);
    }
}
