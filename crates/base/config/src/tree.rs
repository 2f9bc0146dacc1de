//! YAML as a tree whose keys and values carry their line and column.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Location, MessageFormatter, Spanned, UserMessageFormatter};

pub use crate::position::Position;
use crate::yaml_mistake::{self, YamlMistake};

impl From<Location> for Position {
    fn from(location: Location) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self { line: count(location.line()), column: count(location.column()) }
    }
}

/// A value and its position.
#[derive(Debug)]
pub struct YamlNode {
    /// Its first character.
    pub at: Position,
    /// The value.
    pub value: YamlValue,
    /// Number of the text that it is in: 0 for the config itself, further ones for included files.
    pub(crate) source: u16,
    /// `true` if it is not read: a problem was found in it, and others may follow.
    pub(crate) skipped: bool,
    /// `true` once it was read as the path of a file or directory.
    pub(crate) is_path: Cell<bool>,
}

impl YamlNode {
    pub(crate) fn new(at: Position, value: YamlValue) -> Self {
        Self { at, value, source: 0, skipped: false, is_path: Cell::new(false) }
    }
}

impl YamlNode {
    /// Marks the node and all within it as part of the text with that number.
    pub(crate) fn set_source(&mut self, source: u16) {
        self.source = source;
        match &mut self.value {
            YamlValue::Sequence(nodes) => nodes.iter_mut().for_each(|node| node.set_source(source)),
            YamlValue::Mapping(mapping) => {
                mapping.entries.iter_mut().for_each(|entry| entry.node.set_source(source));
            }
            _ => {}
        }
    }
}

/// A value without its position.
#[derive(Debug)]
pub enum YamlValue {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number from 0.
    Unsigned(u64),
    /// A whole number below 0.
    Signed(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    Sequence(Vec<YamlNode>),
    /// A mapping.
    Mapping(Mapping),
}

/// A mapping in the order of the file.
#[derive(Debug, Default)]
pub struct Mapping {
    /// The entries; no key occurs twice.
    pub entries: Vec<YamlEntry>,
    /// Keys whose absence is not reported: their entry was skipped or misspelt.
    pub(crate) unreported: Vec<String>,
}

/// A key of a mapping, and its value.
#[derive(Debug)]
pub struct YamlEntry {
    /// The key.
    pub key: String,
    /// The first character of the key.
    pub key_at: Position,
    /// The value.
    pub node: YamlNode,
}

/// The reason why a text is not a config's YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// Its position.
    pub at: Position,
    message: String,
}

/// Parses one YAML document, within limits on depth, size and aliases.
pub fn parse(text: &str) -> Result<YamlNode, ParseError> {
    match read(text, DuplicateKeyPolicy::Error) {
        Ok(Some(root)) => Ok(root.into()),
        // The text holds only comments: every key has its default.
        Ok(None) => {
            Ok(YamlNode::new(Position { line: 1, column: 1 }, YamlValue::Mapping(Mapping::default())))
        }
        Err(error) => {
            let at = error.location().unwrap_or(Location::UNKNOWN).into();
            let mistake = if is_syntax(&error) { yaml_mistake::find(text, at) } else { None };
            Err(match mistake {
                Some(YamlMistake { at, message }) => ParseError { at, message },
                None => ParseError { at, message: message(&error, text) },
            })
        }
    }
}

/// Only YAML 1.2 booleans (`off` is a word of the config), and limits far above any real config.
fn options(duplicate_keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
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

fn read(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Option<Spanned<YamlValue>>, Error> {
    serde_saphyr::from_str_with_options(text, options(duplicate_keys))
}

/// Returns `true` unless the error is about the size or the meaning of a text that is YAML.
fn is_syntax(error: &Error) -> bool {
    !matches!(
        error,
        Error::DuplicateMappingKey { .. }
            | Error::MultipleDocuments { .. }
            | Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. }
            | Error::AliasExpansionLimitExceeded { .. }
    )
}

fn message(error: &Error, text: &str) -> String {
    match error {
        Error::DuplicateMappingKey { key: Some(key), location } => {
            match first_line(text, key, Position::from(*location)) {
                Some(line) => format!("the key `{key}` is given twice, first in line {line}"),
                None => format!("the key `{key}` is given twice"),
            }
        }
        Error::MultipleDocuments { .. } => {
            "a second YAML document starts here; a config is a single document: remove the `---` before it"
                .to_owned()
        }
        Error::AliasError { error, .. } => message(error, text),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => {
            "the config is too large, nested too deeply, or repeats too much through aliases".to_owned()
        }
        error => format!("invalid YAML: {}", UserMessageFormatter.format_message(error)),
    }
}

/// Returns the line of the first `key` in the mapping that has it again at `again`. The parser reports only
/// the second position, so the text is parsed once more. `None` if a merge key brought the first one.
fn first_line(text: &str, key: &str, again: Position) -> Option<usize> {
    let root: YamlNode = read(text, DuplicateKeyPolicy::PassThrough).ok()??.into();
    root.first_line(key, again)
}

impl YamlNode {
    fn first_line(&self, key: &str, again: Position) -> Option<usize> {
        match &self.value {
            YamlValue::Mapping(Mapping { entries, .. }) => {
                let mut same = entries.iter().filter(|entry| entry.key == key);
                let first = same.next().filter(|_| same.any(|entry| entry.key_at == again));
                match first {
                    Some(first) => Some(first.key_at.line),
                    None => entries.iter().find_map(|entry| entry.node.first_line(key, again)),
                }
            }
            YamlValue::Sequence(nodes) => nodes.iter().find_map(|node| node.first_line(key, again)),
            _ => None,
        }
    }
}

impl From<Spanned<YamlValue>> for YamlNode {
    fn from(spanned: Spanned<YamlValue>) -> Self {
        Self::new(spanned.defined.into(), spanned.value)
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> de::Visitor<'de> for TreeVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(u64::try_from(value).map_or(YamlValue::Signed(value), YamlValue::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = access.next_element::<Spanned<YamlValue>>()? {
            nodes.push(node.into());
        }
        Ok(YamlValue::Sequence(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut mapping = Mapping::default();
        while let Some((key, node)) = access.next_entry::<Spanned<String>, Spanned<YamlValue>>()? {
            mapping.entries.push(YamlEntry { key: key.value, key_at: key.defined.into(), node: node.into() });
        }
        Ok(YamlValue::Mapping(mapping))
    }
}
