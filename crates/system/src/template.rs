//! Templates: texts with words in braces that stand for names, addresses and folders of a node.
//!
//! ```text
//!   text     = ( character | "{{" | "}}" | "{" expression "}" )*
//!   expression = WORD                              {name}
//!              | WORD ":" PORT                     {port:peer}  {address:peer}
//!              | LIST [ 'ITEM' [ 'SEPARATOR' ] ]   {peers}  {nodes '{name}={address:peer}' ' '}
//!              | "node" NAME 'ITEM'                {node n1 '{ip}'}
//! ```
//!
//! `ITEM` is a template that is filled in for another node, as this node reaches it. The default item is `{address}`, the default
//! separator a comma. `{{` and `}}` are braces.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    /// A word without argument.
    Word(TemplateWord),
    /// `{port:NAME}` or `{address:NAME}`.
    Port {
        word: TemplateWord,
        port: usize,
    },
    /// `{peers …}` or `{nodes …}`.
    List {
        has_self: bool,
        item: Template,
        separator: String,
    },
    /// `{node NAME …}`.
    Node {
        node: usize,
        item: Template,
    },
}

/// A word of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateWord {
    /// The node's name.
    Name,
    /// Its name in histories and reports: `n1`, `n2`, …
    Id,
    /// Its number, from 1.
    Number,
    /// Its number, from 0.
    Index,
    /// Its IP address.
    Ip,
    /// Its port for clients.
    Port,
    /// Its IP address and port.
    Address,
    /// Its folder for data.
    Data,
    /// The run folder.
    Folder,
    /// The folder of the file that describes the system.
    Home,
    /// The folder with the client helpers of this program.
    Helpers,
    /// The number of nodes.
    Count,
}

/// Words with their names.
const WORDS: [(&str, TemplateWord); 12] = [
    ("name", TemplateWord::Name),
    ("id", TemplateWord::Id),
    ("number", TemplateWord::Number),
    ("index", TemplateWord::Index),
    ("ip", TemplateWord::Ip),
    ("port", TemplateWord::Port),
    ("address", TemplateWord::Address),
    ("data", TemplateWord::Data),
    ("folder", TemplateWord::Folder),
    ("home", TemplateWord::Home),
    ("helpers", TemplateWord::Helpers),
    ("count", TemplateWord::Count),
];

/// Words that have a value without a node.
const WITHOUT_NODE: [TemplateWord; 4] = [
    TemplateWord::Folder,
    TemplateWord::Home,
    TemplateWord::Helpers,
    TemplateWord::Count,
];

/// The names that a template may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'n> {
    /// Names of ports besides the port for clients.
    pub(crate) ports: &'n [String],
    /// Names of nodes.
    pub(crate) nodes: &'n [String],
    /// Is it the template of a node? Otherwise only words without a node are known.
    pub(crate) has_node: bool,
}

/// An error in a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct TemplateError {
    /// Byte offset in the template.
    pub(crate) at: usize,
    /// The reason.
    pub(crate) reason: String,
}

/// The values of words, for one node or for none.
pub(crate) trait Scope: Sync {
    /// The value of a word.
    fn word(&self, word: TemplateWord) -> Result<String, String>;

    /// The IP address of the node itself, at which its named ports are reached.
    fn own_ip(&self) -> Result<IpAddr, String>;

    /// The number of a named port.
    fn port(&self, port: usize) -> Result<u16, String>;

    /// The scope of the node with this index, as this scope's node reaches it; `None` past the last node.
    fn other(&self, node: usize) -> Option<Box<dyn Scope + '_>>;

    /// The index of this scope's node.
    fn index(&self) -> Option<usize>;
}

/// Templates in templates.
const DEPTH_MAX: usize = 4;
/// Longest result of a template, in bytes.
const LENGTH_MAX: usize = 1 << 20;

impl Template {
    /// Parses a template.
    pub(crate) fn parse(text: &str, names: &Names<'_>) -> Result<Template, TemplateError> {
        TemplateReader {
            text,
            base: 0,
            names: *names,
            depth: 0,
        }
        .read()
    }

    /// The text without braces, if it has none.
    pub(crate) fn as_plain(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Does it use a named port of other nodes?
    pub(crate) fn has_peer_ports(&self) -> bool {
        self.parts.iter().any(|part| match part {
            TemplatePart::List { item, .. } | TemplatePart::Node { item, .. } => item.has_ports(),
            _ => false,
        })
    }

    fn has_ports(&self) -> bool {
        let is_port = |part: &TemplatePart| matches!(part, TemplatePart::Port { .. });
        self.parts.iter().any(is_port)
    }

    /// Fills the template in.
    pub(crate) fn fill(&self, scope: &dyn Scope) -> Result<String, String> {
        let mut text = String::new();
        self.fill_into(scope, &mut text)?;
        Ok(text)
    }

    fn fill_into(&self, scope: &dyn Scope, text: &mut String) -> Result<(), String> {
        for part in &self.parts {
            match part {
                TemplatePart::Text(part) => text.push_str(part),
                TemplatePart::Word(word) => text.push_str(&scope.word(*word)?),
                TemplatePart::Port { word, port } => {
                    let number = scope.port(*port)?;
                    let _ = match word {
                        TemplateWord::Address => {
                            write!(text, "{}", SocketAddr::new(scope.own_ip()?, number))
                        }
                        _ => write!(text, "{number}"),
                    }; // a String takes every write
                }
                TemplatePart::List {
                    has_self,
                    item,
                    separator,
                } => {
                    let mut is_first = true;
                    for node in 0.. {
                        let Some(other) = scope.other(node) else {
                            break;
                        };
                        if !has_self && scope.index() == Some(node) {
                            continue;
                        }
                        if !std::mem::take(&mut is_first) {
                            text.push_str(separator);
                        }
                        item.fill_into(&*other, text)?;
                    }
                }
                TemplatePart::Node { node, item } => {
                    let other = scope.other(*node).ok_or("the test has fewer nodes")?;
                    item.fill_into(&*other, text)?;
                }
            }
            if text.len() > LENGTH_MAX {
                return Err(format!("the text is longer than {LENGTH_MAX} bytes"));
            }
        }
        Ok(())
    }
}

/// Reads one template; `base` is the offset of `text` in the whole template.
struct TemplateReader<'t> {
    text: &'t str,
    base: usize,
    names: Names<'t>,
    depth: usize,
}

impl<'t> TemplateReader<'t> {
    fn error<T>(&self, at: usize, reason: impl Into<String>) -> Result<T, TemplateError> {
        Err(TemplateError {
            at: self.base + at,
            reason: reason.into(),
        })
    }

    fn read(&self) -> Result<Template, TemplateError> {
        if self.depth > DEPTH_MAX {
            return self.error(
                0,
                format!("templates are nested more than {DEPTH_MAX} deep"),
            );
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut at = 0;
        while let Some(next) = self.text[at..].find(['{', '}']).map(|next| at + next) {
            plain.push_str(&self.text[at..next]);
            let brace = &self.text[next..=next];
            if self.text[next + 1..].starts_with(brace) {
                plain.push_str(brace);
                at = next + 2;
                continue;
            }
            if brace == "}" {
                return self.error(next, "`}` without `{`; write `}}` for a brace");
            }
            let Some(end) = self.end_of_expression(next + 1) else {
                return self.error(next, "`{` without `}`; write `{{` for a brace");
            };
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(self.expression(next + 1, end)?);
            at = end + 1;
        }
        plain.push_str(&self.text[at..]);
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Template { parts })
    }

    /// The position of the brace that ends the expression that begins at `begin`. Quoted items may have braces and quotes of
    /// their own, inside of nested braces.
    fn end_of_expression(&self, begin: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, byte) in self.text.bytes().enumerate().skip(begin) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 0 => return Some(at),
                b'}' => depth -= 1,
                _ => {}
            }
        }
        None
    }

    fn expression(&self, begin: usize, end: usize) -> Result<TemplatePart, TemplateError> {
        let inner = &self.text[begin..end];
        let length = inner
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(inner.len());
        let (word, rest) = inner.split_at(length);
        match word {
            "peers" | "nodes" => self.list(word == "nodes", begin, end, length),
            "node" => self.node(begin, end, length),
            _ => {
                let known = self.word(word, begin)?;
                match rest.strip_prefix(':') {
                    Some(port) => self.port(known, port, begin + length + 1),
                    None if rest.is_empty() => Ok(TemplatePart::Word(known)),
                    None => self.error(
                        begin + length,
                        format!("unexpected {rest:?} after `{word}`"),
                    ),
                }
            }
        }
    }

    fn word(&self, word: &str, at: usize) -> Result<TemplateWord, TemplateError> {
        let is_allowed = |known: TemplateWord| self.names.has_node || WITHOUT_NODE.contains(&known);
        let available = || {
            let words = WORDS.iter().filter(|(_, known)| is_allowed(*known));
            let mut names: Vec<&str> = words.map(|(name, _)| *name).collect();
            names.extend(
                ["peers", "nodes", "node"]
                    .iter()
                    .filter(|_| self.names.has_node),
            );
            names.join(", ")
        };
        match WORDS.iter().find(|(name, _)| *name == word) {
            Some((_, known)) if is_allowed(*known) => Ok(*known),
            Some(_) => self.error(
                at,
                format!(
                    "`{{{word}}}` is a word of nodes and has no value here (available: {})",
                    available()
                ),
            ),
            None => self.error(
                at,
                format!("unknown word `{{{word}}}` (available: {})", available()),
            ),
        }
    }

    fn port(
        &self,
        word: TemplateWord,
        name: &str,
        at: usize,
    ) -> Result<TemplatePart, TemplateError> {
        if !matches!(word, TemplateWord::Port | TemplateWord::Address) {
            return self.error(at, "only `port` and `address` take the name of a port");
        }
        if let Some(port) = self.names.ports.iter().position(|known| known == name) {
            return Ok(TemplatePart::Port { word, port });
        }
        let known = self.names.ports.join(", ");
        let known = if known.is_empty() {
            "none; name them in system.ports"
        } else {
            &known
        };
        self.error(at, format!("unknown port {name:?} (available: {known})"))
    }

    fn list(
        &self,
        has_self: bool,
        begin: usize,
        end: usize,
        length: usize,
    ) -> Result<TemplatePart, TemplateError> {
        self.needs_node(begin)?;
        let (item, at) = self.quoted(begin + length, end)?;
        let (separator, at) = self.quoted(at, end)?;
        self.ends(at, end)?;
        let item = match item {
            Some((item, at)) => self.inner(item, at)?,
            None => Template {
                parts: vec![TemplatePart::Word(TemplateWord::Address)],
            },
        };
        Ok(TemplatePart::List {
            has_self,
            item,
            separator: separator.map_or(",", |(text, _)| text).to_owned(),
        })
    }

    fn node(&self, begin: usize, end: usize, length: usize) -> Result<TemplatePart, TemplateError> {
        self.needs_node(begin)?;
        let rest = &self.text[begin + length..end];
        let name_at = begin + length + (rest.len() - rest.trim_start().len());
        let name = rest.split_whitespace().next().unwrap_or_default();
        let Some(node) = self.names.nodes.iter().position(|known| known == name) else {
            let known = self.names.nodes.join(", ");
            return self.error(
                name_at.min(end),
                format!("unknown node {name:?} (available: {known})"),
            );
        };
        let (item, at) = self.quoted(name_at + name.len(), end)?;
        self.ends(at, end)?;
        let Some((item, at)) = item else {
            return self.error(
                at,
                format!("expected an item in quotes, such as {{node {name} '{{address}}'}}"),
            );
        };
        let item = self.inner(item, at)?;
        Ok(TemplatePart::Node { node, item })
    }

    fn needs_node(&self, at: usize) -> Result<(), TemplateError> {
        if self.names.has_node {
            return Ok(());
        }
        self.error(at, "lists of nodes have no value here")
    }

    fn inner(&self, text: &'t str, at: usize) -> Result<Template, TemplateError> {
        TemplateReader {
            text,
            base: self.base + at,
            names: self.names,
            depth: self.depth + 1,
        }
        .read()
    }

    /// The text in single quotes that follows at `at`, with its position, and the position after it.
    #[expect(
        clippy::type_complexity,
        reason = "an optional text with two positions"
    )]
    fn quoted(
        &self,
        at: usize,
        end: usize,
    ) -> Result<(Option<(&'t str, usize)>, usize), TemplateError> {
        let rest = &self.text[at..end];
        let begin = at + (rest.len() - rest.trim_start().len());
        if begin == end {
            return Ok((None, end));
        }
        if !self.text[begin..end].starts_with('\'') {
            return self.error(begin, "expected a text in single quotes");
        }
        let mut depth = 0_usize;
        for (place, byte) in self.text.bytes().enumerate().take(end).skip(begin + 1) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                b'\'' if depth == 0 => {
                    return Ok((Some((&self.text[begin + 1..place], begin + 1)), place + 1));
                }
                _ => {}
            }
        }
        self.error(begin, "this quote is not closed")
    }

    fn ends(&self, at: usize, end: usize) -> Result<(), TemplateError> {
        let rest = self.text[at..end].trim();
        if rest.is_empty() {
            return Ok(());
        }
        self.error(at, format!("unexpected {rest:?}"))
    }
}

#[cfg(test)]
mod tests;
