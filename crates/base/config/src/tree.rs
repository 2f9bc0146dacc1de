//! YAML as a tree whose keys and values carry their line and column.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess};
use serde_saphyr::{Error, Location, MessageFormatter, Spanned, UserMessageFormatter};

/// A position in the config's text. Both numbers count from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl From<Location> for Position {
    fn from(location: Location) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self { line: count(location.line()), column: count(location.column()) }
    }
}

/// A value and its position.
#[derive(Debug)]
pub(crate) struct Node {
    pub at: Position,
    pub value: Value,
    /// Removed because a problem was found in it, so the rest can be read.
    pub skipped: bool,
}

#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    Sequence(Vec<Node>),
    Mapping(Mapping),
}

/// A mapping in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub entries: Vec<Entry>,
    /// Keys whose absence is not reported: their entry was removed or misspelt.
    pub excused: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub key: String,
    pub key_at: Position,
    pub node: Node,
}

/// Parses one YAML document, within limits on depth, size and aliases. An error carries its position.
pub(crate) fn parse(text: &str) -> Result<Node, (Position, String)> {
    match serde_saphyr::from_str_with_options::<Option<Spanned<Value>>>(text, options()) {
        Ok(Some(root)) => Ok(root.into()),
        // The text holds only comments: every key has its default.
        Ok(None) => Ok(Node {
            at: Position { line: 1, column: 1 },
            value: Value::Mapping(Mapping::default()),
            skipped: false,
        }),
        Err(error) => Err(explain(&error)),
    }
}

/// Only YAML 1.2 booleans (`off` is a word of the config), and limits far above any real config.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        reject_unsupported_tags: true,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000, max_replay_stack_depth: 16 },
        budget: serde_saphyr::budget! {
            max_depth: 32,
            flow_nesting_limit: 32,
            // A second one gets its own message.
            max_documents: 2,
            max_nodes: 100_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
        },
    }
}

fn explain(error: &Error) -> (Position, String) {
    let message = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{key}` is given twice"),
        Error::MultipleDocuments { .. } => {
            "a second YAML document starts here; a config is a single document".to_owned()
        }
        Error::AliasError { error, .. } => explain(error).1,
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => {
            "the config is too large, nested too deeply, or repeats too much through aliases".to_owned()
        }
        error => format!("invalid YAML: {}", UserMessageFormatter.format_message(error)),
    };
    (error.location().unwrap_or(Location::UNKNOWN).into(), message)
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { at: spanned.defined.into(), value: spanned.value, skipped: false }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> de::Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = access.next_element::<Spanned<Value>>()? {
            nodes.push(node.into());
        }
        Ok(Value::Sequence(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut mapping = Mapping::default();
        while let Some((key, node)) = access.next_entry::<Spanned<String>, Spanned<Value>>()? {
            mapping.entries.push(Entry { key: key.value, key_at: key.defined.into(), node: node.into() });
        }
        Ok(Value::Mapping(mapping))
    }
}
