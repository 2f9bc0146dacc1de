//! YAML as a person would write it: short mappings on one line, long ones as blocks, comments above.

use std::fmt::Write;

/// Columns after which a mapping or list becomes a block.
const COLUMNS_MAX: usize = 100;

/// A value with comments above it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub comments: Vec<String>,
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A scalar, already in the syntax of YAML.
    Scalar(String),
    /// Lines of a program, written as a block.
    Lines(String),
    List(Vec<Node>),
    /// A mapping; always a block if `true`.
    Map(Vec<(String, Node)>, bool),
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { comments: Vec::new(), value }
    }
}

impl Node {
    pub fn commented(mut self, comment: impl Into<String>) -> Self {
        self.comments.push(comment.into());
        self
    }
}

/// A number, duration, size or word, which needs no quotes.
pub(crate) fn plain(value: impl std::fmt::Display) -> Node {
    Value::Scalar(value.to_string()).into()
}

/// A text, with quotes if YAML needs them.
pub(crate) fn text(text: &str) -> Node {
    let value = if is_plain(text) { text.to_owned() } else { serde_json::Value::from(text).to_string() };
    Value::Scalar(value).into()
}

/// A program: on its own lines if it has several.
pub(crate) fn program(source: &str) -> Node {
    let is_block = source.lines().count() > 1 && source.chars().all(|c| c == '\n' || !c.is_control());
    if is_block { Value::Lines(source.to_owned()).into() } else { text(source) }
}

pub(crate) fn list(nodes: impl IntoIterator<Item = Node>) -> Node {
    Value::List(nodes.into_iter().collect()).into()
}

/// The text alone if there is one, a list otherwise.
pub(crate) fn one_or_list(texts: &[String]) -> Node {
    match texts {
        [one] => text(one),
        texts => list(texts.iter().map(|each| text(each))),
    }
}

pub(crate) fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Node)>) -> Node {
    Value::Map(entries.into_iter().map(|(key, node)| (key.into(), node)).collect(), false).into()
}

/// A mapping that is always a block.
pub(crate) fn block<K: Into<String>>(entries: impl IntoIterator<Item = (K, Node)>) -> Node {
    Value::Map(entries.into_iter().map(|(key, node)| (key.into(), node)).collect(), true).into()
}

/// Returns `true` if YAML reads the text as itself without quotes, also within braces.
fn is_plain(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+ ".contains(&byte);
    let starts_well =
        text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || b"/.".contains(&byte));
    let is_special = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    let is_number = text.starts_with('.') && text.parse::<f64>().is_ok();
    starts_well
        && text.bytes().all(is_word)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !is_special
        && !is_number
        && !["inf", "nan", ".inf", ".nan"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Writes a document: the entries of its root, with an empty line between sections.
pub(crate) fn document(head: &[String], sections: &[(String, Node)]) -> String {
    let mut out = String::new();
    comments(head, 0, &mut out);
    for (key, node) in sections {
        if !out.is_empty() {
            out.push('\n');
        }
        comments(&node.comments, 0, &mut out);
        entry(key, node, 0, &mut out);
    }
    out
}

/// A key. A config's keys are never read as booleans, unlike its values.
fn key_text(key: &str) -> String {
    let is_word = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    match text(key).value {
        Value::Scalar(_) if is_word && key != "null" && key != "true" && key != "false" => key.to_owned(),
        Value::Scalar(quoted) => quoted,
        _ => String::new(),
    }
}

fn entry(key: &str, node: &Node, indent: usize, out: &mut String) {
    let key = key_text(key);
    let _ = write!(out, "{:indent$}{key}:", "");
    after(node, indent, key.len() + 1, out);
}

/// Writes a value after its key or dash.
fn after(node: &Node, indent: usize, used: usize, out: &mut String) {
    match &node.value {
        Value::Lines(source) => {
            out.push_str(" |\n");
            for line in source.lines() {
                let _ = writeln!(out, "{}", format!("{:1$}{line}", "", indent + 2).trim_end());
            }
        }
        value => match inline(value).filter(|line| indent + used + 1 + line.len() <= COLUMNS_MAX) {
            Some(line) => {
                let _ = writeln!(out, " {line}");
            }
            None => children(value, indent, out),
        },
    }
}

fn children(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Scalar(scalar) => {
            let _ = writeln!(out, " {scalar}");
        }
        Value::Lines(_) => {}
        Value::Map(entries, _) => {
            out.push('\n');
            for (key, node) in entries {
                comments(&node.comments, indent + 2, out);
                entry(key, node, indent + 2, out);
            }
        }
        Value::List(nodes) => {
            out.push('\n');
            for node in nodes {
                item(node, indent + 2, out);
            }
        }
    }
}

/// Writes an element of a list; the first key of a block stands beside its dash.
fn item(node: &Node, indent: usize, out: &mut String) {
    comments(&node.comments, indent, out);
    let line = inline(&node.value).filter(|line| indent + 2 + line.len() <= COLUMNS_MAX);
    match (&node.value, line) {
        (Value::Map(entries, _), None) => {
            for (number, (key, node)) in entries.iter().enumerate() {
                if number > 0 {
                    comments(&node.comments, indent + 2, out);
                }
                let start = out.len();
                entry(key, node, indent + 2, out);
                if number == 0 {
                    out.replace_range(start + indent..=start + indent, "-");
                }
            }
        }
        // One entry needs no braces beside its dash.
        (Value::Map(entries, _), Some(line)) => match entries.as_slice() {
            [(key, node)] => {
                let start = out.len();
                entry(key, node, indent + 2, out);
                out.replace_range(start + indent..=start + indent, "-");
            }
            _ => {
                let _ = writeln!(out, "{:indent$}- {line}", "");
            }
        },
        (_, Some(line)) => {
            let _ = writeln!(out, "{:indent$}- {line}", "");
        }
        (value, None) => {
            let _ = write!(out, "{:indent$}-", "");
            children(value, indent, out);
        }
    }
}

/// The value on one line; `None` if it has comments or must be a block.
fn inline(value: &Value) -> Option<String> {
    let part = |node: &Node| if node.comments.is_empty() { inline(&node.value) } else { None };
    match value {
        Value::Scalar(scalar) => Some(scalar.clone()),
        Value::Lines(_) | Value::Map(_, true) => None,
        Value::List(nodes) => {
            let parts: Option<Vec<String>> = nodes.iter().map(part).collect();
            parts.map(|parts| format!("[{}]", parts.join(", ")))
        }
        Value::Map(entries, false) if entries.is_empty() => Some("{}".to_owned()),
        Value::Map(entries, false) => {
            let parts = entries.iter().map(|(key, node)| {
                let key = key_text(key);
                part(node).map(|value| format!("{key}: {value}"))
            });
            let parts: Option<Vec<String>> = parts.collect();
            parts.map(|parts| format!("{{ {} }}", parts.join(", ")))
        }
    }
}

/// Writes comments, wrapped at [`COLUMNS_MAX`]. Control characters cannot end one.
fn comments(comments: &[String], indent: usize, out: &mut String) {
    for comment in comments {
        let mut line = String::new();
        for word in comment.split(|c: char| c.is_whitespace() || c.is_control()) {
            if !line.is_empty() && indent + 2 + line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX
            {
                let _ = writeln!(out, "{:indent$}# {line}", "");
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        let _ = writeln!(out, "{:indent$}# {line}", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_mappings_stand_on_one_line_and_long_ones_are_blocks() {
        let long = "x".repeat(90);
        let node = block([
            ("short", map([("a", plain(1)), ("b", list([text("c"), text("d e")]))])),
            ("long", map([("key", text(&long)), ("other", plain("5s"))]).commented("why it is long")),
            (
                "items",
                list([map([("one", map([("k", plain(1))]))]), map([("a", text(&long)), ("b", plain(2))])]),
            ),
            ("code", program("a\n  b\n")),
        ]);
        let expected = format!(
            "root:\n  short: {{ a: 1, b: [c, d e] }}\n  # why it is long\n  long:\n    key: {long}\n    other: 5s\n  items:\n    \
             - one: {{ k: 1 }}\n    - a: {long}\n      b: 2\n  code: |\n    a\n      b\n"
        );
        assert_eq!(document(&[], &[("root".to_owned(), node)]), expected);
    }

    #[test]
    fn a_text_that_yaml_would_read_as_something_else_is_quoted() {
        for unquoted in ["api.example.com", "/v1/items", "text/plain", "a b", "./har"] {
            assert_eq!(text(unquoted), plain(unquoted));
        }
        for quoted in [
            "", "1", "true", "No", "a: b", "a #b", "{id}", "*", "a:", "- a", "~", ".5", ".inf", "a\nb", "x'",
            "é",
        ] {
            assert_eq!(text(quoted), plain(serde_json::Value::from(quoted)), "{quoted}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_text_reads_back_as_itself(value: String, key in "[ -~]{1,20}", comment: String) {
            let node = map([(key.clone(), list([text(&value)]))]).commented(comment);
            let written = document(&[], &[("root".to_owned(), block([("entry", node)]))]);
            let read = egret_config::parse_yaml(&written).unwrap();
            let child = |node: egret_config::YamlNode| match node.value {
                egret_config::YamlValue::Mapping(mut mapping) => mapping.entries.remove(0),
                other => panic!("{other:?} in\n{written}"),
            };
            let entry = child(child(child(read).node).node);
            assert_eq!(entry.key, key);
            let egret_config::YamlValue::Sequence(nodes) = entry.node.value else { panic!("{written}") };
            assert!(matches!(&nodes[0].value, egret_config::YamlValue::Text(read) if *read == value), "{written}");
        }
    }
}
