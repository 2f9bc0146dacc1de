//! Deserializes config structs from the located tree. An error carries the path to its key or value.

use std::fmt;

use serde::de::{
    self, DeserializeSeed, IntoDeserializer, Unexpected, Visitor, value::BorrowedStrDeserializer,
};
use serde::forward_to_deserialize_any;

use crate::secret::SECRET;
use crate::short_form::{ANY_KEY, SHORT_FORM};
use crate::slips;
use crate::tree::{Mapping, YamlEntry, YamlNode, YamlValue};
use crate::variables::{Replacing, replaced};

/// An error and the path to it.
#[derive(Debug)]
pub struct ReadError {
    pub kind: ReadErrorKind,
    /// Indices of entries and elements, the innermost first.
    pub steps: Vec<usize>,
    /// `true` if the error is about the key that the last step leads to, `false` if about its value.
    pub at_key: bool,
    /// The value must not be shown.
    pub secret: bool,
}

/// The kinds of errors that get a suggestion, or are about a missing key, and all others.
#[derive(Debug)]
pub enum ReadErrorKind {
    UnknownKey {
        key: String,
        expected: &'static [&'static str],
    },
    MissingKey(&'static str),
    UnknownWord {
        word: String,
        expected: &'static [&'static str],
    },
    /// A value of another type; `meant` is it in the right one, if that is plain.
    WrongType {
        message: String,
        meant: Option<String>,
    },
    Other(String),
}

impl ReadError {
    fn new(kind: ReadErrorKind) -> Self {
        Self { kind, steps: Vec::new(), at_key: false, secret: false }
    }

    /// Names `text`, which has references to variables, in place of `value`, which they were replaced by.
    fn without_value(self, text: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        let named = format!("the value of `{text}`");
        let hide = |message: String| {
            [value.to_owned(), cut(value)].iter().fold(message, |message, value| {
                let message = message.replace(&format!("`{value}`"), &named);
                if value.len() > HIDDEN_BYTES_MIN { message.replace(value, "…") } else { message }
            })
        };
        let kind = match self.kind {
            kind @ (ReadErrorKind::UnknownKey { .. } | ReadErrorKind::MissingKey(_)) => kind,
            ReadErrorKind::UnknownWord { expected, .. } => {
                ReadErrorKind::Other(format!("expected {}, found {named}", one_of(expected)))
            }
            ReadErrorKind::WrongType { message, .. } | ReadErrorKind::Other(message) => {
                ReadErrorKind::Other(hide(message))
            }
        };
        Self { kind, ..self }
    }

    /// Returns the message without the list of expected words.
    pub fn without_expected(&self) -> String {
        match &self.kind {
            ReadErrorKind::UnknownKey { key, .. } => format!("unknown key `{key}`"),
            ReadErrorKind::UnknownWord { word, .. } => format!("unknown word `{word}`"),
            _ => self.to_string(),
        }
    }

    fn inside(mut self, step: usize) -> Self {
        self.steps.push(step);
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ReadErrorKind::UnknownKey { key, expected: [] } => write!(f, "unknown key `{key}`"),
            ReadErrorKind::UnknownKey { key, expected } => {
                write!(f, "unknown key `{key}`, expected {}", one_of(expected))
            }
            ReadErrorKind::MissingKey(key) => write!(f, "the key `{key}` is missing"),
            ReadErrorKind::UnknownWord { word, expected } => {
                write!(f, "expected {}, found `{word}`", one_of(expected))
            }
            ReadErrorKind::WrongType { message, .. } | ReadErrorKind::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(ReadErrorKind::Other(message.to_string()))
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = plain(&expected.to_string());
        let meant = meant(unexpected, &expected);
        let message = match unexpected {
            Unexpected::Str(text) if is_quoted_scalar(text, &expected) => {
                format!("expected {expected}, found the text `{}`: remove the quotes", cut(text))
            }
            unexpected => {
                let advice = advice(unexpected, &expected);
                format!("expected {expected}, found {}{advice}", found(unexpected))
            }
        };
        Self::new(ReadErrorKind::WrongType { message, meant })
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(ReadErrorKind::UnknownKey { key: field.to_owned(), expected })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(ReadErrorKind::MissingKey(field))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(ReadErrorKind::UnknownWord { word: variant.to_owned(), expected })
    }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [word] => format!("`{word}`"),
        words => format!("one of `{}`", words.join("`, `")),
    }
}

/// The expectation of serde for a `PathBuf`.
const PATH: &str = "path string";

/// The expectation of a boolean.
const TRUE_OR_FALSE: &str = "`true` or `false`";

/// Translates the expectations of serde's derived visitors into the terms of a YAML author.
fn plain(expected: &str) -> String {
    match expected {
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "a boolean" => TRUE_OR_FALSE.to_owned(),
        "a string" => "a text".to_owned(),
        "variant identifier" => "a word".to_owned(),
        PATH => "a path".to_owned(),
        "socket address" => "an address like `127.0.0.1:8000`".to_owned(),
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        struct_name if struct_name.starts_with("struct ") => "a mapping".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns `true` if a text would be what is expected if it had been written without quotes. YAML reads a
/// plain `5` as a number, so a text `5` had quotes.
fn is_quoted_scalar(text: &str, expected: &str) -> bool {
    (expected.contains("number") && text.parse::<f64>().is_ok_and(f64::is_finite))
        || (expected == TRUE_OR_FALSE && matches!(text, "true" | "false"))
}

/// Returns how to turn a list into a mapping, or a mapping into a list.
fn advice(unexpected: Unexpected<'_>, expected: &str) -> &'static str {
    match unexpected {
        Unexpected::Seq if expected == "a mapping" => ": write `name: ...` in place of `- ...`",
        Unexpected::Map if expected == "a list" => ": put `- ` before each entry",
        _ => "",
    }
}

/// A number without a unit from this on may as well be meant in milliseconds.
const SECONDS_MAX: u64 = 100;

/// Returns the value as it was probably meant: a duration in seconds, no bytes, a list.
fn meant(unexpected: Unexpected<'_>, expected: &str) -> Option<String> {
    match unexpected {
        Unexpected::Unsigned(number @ ..SECONDS_MAX) if expected.starts_with("a duration") => {
            Some(format!("{number}s"))
        }
        Unexpected::Unsigned(0) if expected.starts_with("a size") => Some("0B".to_owned()),
        Unexpected::Str(text) if expected == "a list" && text.len() <= VALUE_CHARS_MAX => {
            let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
            let is_plain = |item: &&str| {
                item.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./*".contains(&byte))
            };
            (!items.is_empty() && items.iter().all(is_plain)).then(|| format!("[{}]", items.join(", ")))
        }
        _ => None,
    }
}

/// Shorter values are hidden in a message only where they are quoted: they may be part of any word.
const HIDDEN_BYTES_MIN: usize = 3;

/// Longest value that a message repeats, in characters; longer ones are cut.
const VALUE_CHARS_MAX: usize = 80;

fn found(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(value) => format!("the number `{value}`"),
        Unexpected::Signed(value) => format!("the number `{value}`"),
        Unexpected::Float(value) => format!("the number `{value}`"),
        Unexpected::Str(text) => format!("`{}`", cut(text)),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(VALUE_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

impl<'de> YamlNode {
    fn unexpected(&'de self) -> Unexpected<'de> {
        match &self.value {
            YamlValue::Null => Unexpected::Unit,
            YamlValue::Bool(value) => Unexpected::Bool(*value),
            YamlValue::Unsigned(value) => Unexpected::Unsigned(*value),
            YamlValue::Signed(value) => Unexpected::Signed(*value),
            YamlValue::Float(value) => Unexpected::Float(*value),
            YamlValue::Text(text) => Unexpected::Str(text),
            YamlValue::Sequence(_) => Unexpected::Seq,
            YamlValue::Mapping(_) => Unexpected::Map,
        }
    }

    /// Returns `true` for a value that can stand for a list of it. A text with commas or blanks may mean
    /// several items.
    pub(crate) fn is_one_item(&self) -> bool {
        match &self.value {
            YamlValue::Text(text) => {
                let value = replaced(text).ok().flatten();
                let text = value.as_deref().unwrap_or(text);
                !text.is_empty() && !text.contains(|c: char| c == ',' || c.is_whitespace())
            }
            YamlValue::Null | YamlValue::Sequence(_) | YamlValue::Mapping(_) => false,
            YamlValue::Bool(_) | YamlValue::Unsigned(_) | YamlValue::Signed(_) | YamlValue::Float(_) => true,
        }
    }

    /// Reads a text whose references to variables were replaced. No message shows the new text: it may come
    /// from a variable with a secret, named by mistake.
    fn visit_replaced<V: Visitor<'de>>(text: &str, value: &str, visitor: V) -> Result<V::Value, ReadError> {
        let expected: &dyn de::Expected = &visitor;
        let expected = plain(&expected.to_string());
        let wants_number =
            !expected.contains("text") && ["number", "percentage"].iter().any(|word| expected.contains(word));
        let result: Result<_, ReadError> = match value {
            "true" | "false" if expected == TRUE_OR_FALSE => visitor.visit_bool(value == "true"),
            value if wants_number => match (value.parse(), value.parse(), value.parse::<f64>()) {
                (Ok(number), _, _) => visitor.visit_u64(number),
                (_, Ok(number), _) => visitor.visit_i64(number),
                (_, _, Ok(number)) if number.is_finite() => visitor.visit_f64(number),
                _ => visitor.visit_str(value),
            },
            value => visitor.visit_str(value),
        };
        result.map_err(|error| error.without_value(text, value))
    }

    /// Reads a secret. No message shows its value, whatever type it was written as.
    fn secret<V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value, ReadError> {
        // The reference is the secret's own.
        let _off = Replacing::Off.enter();
        let result = match &self.value {
            YamlValue::Text(_) => visitor.visit_newtype_struct(self),
            _ => Err(de::Error::custom("expected a secret, written like ${env:NAME} or ${file:PATH}")),
        };
        result.map_err(|error: ReadError| ReadError { secret: true, ..error })
    }
}

impl<'de> de::Deserializer<'de> for &'de YamlNode {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.value {
            YamlValue::Null => visitor.visit_unit(),
            YamlValue::Bool(value) => visitor.visit_bool(*value),
            YamlValue::Unsigned(value) => visitor.visit_u64(*value),
            YamlValue::Signed(value) => visitor.visit_i64(*value),
            YamlValue::Float(value) => visitor.visit_f64(*value),
            YamlValue::Text(text) => match replaced(text).map_err(de::Error::custom)? {
                Some(value) => YamlNode::visit_replaced(text, &value, visitor),
                None => visitor.visit_borrowed_str(text),
            },
            YamlValue::Sequence(nodes) => visitor.visit_seq(Elements { nodes, next: 0 }),
            YamlValue::Mapping(mapping) => visitor.visit_map(Entries::of(mapping)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.value {
            YamlValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if name == SECRET { self.secret(visitor) } else { visitor.visit_newtype_struct(self) }
    }

    /// Variants are plain words, or mappings that select theirs with `TAG`.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match &self.value {
            YamlValue::Mapping(mapping) if name == TAG => visitor.visit_enum(Tagged::find(mapping)?),
            _ if name == TAG => Err(de::Error::invalid_type(self.unexpected(), &"a mapping")),
            YamlValue::Text(text) => match replaced(text).map_err(de::Error::custom)? {
                Some(value) => {
                    let result = visitor.visit_enum(value.as_str().into_deserializer());
                    result.map_err(|error: ReadError| error.without_value(text, &value))
                }
                None => visitor.visit_enum(text.as_str().into_deserializer()),
            },
            _ => Err(de::Error::invalid_type(self.unexpected(), &one_of(variants).as_str())),
        }
    }

    /// Serde would also accept a list of a struct's values; a config must name its keys.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let short = name.strip_prefix(SHORT_FORM);
        match (&self.value, short) {
            (YamlValue::Mapping(mapping), Some(ANY_KEY)) => {
                visitor.visit_map(Entries { fills_empty: true, ..Entries::of(mapping) })
            }
            (YamlValue::Mapping(mapping), _) => visitor.visit_map(Entries::of(mapping)),
            (YamlValue::Text(text), _) if let Some(message) = slips::glued(text, keys) => {
                Err(de::Error::custom(message))
            }
            (YamlValue::Text(text), Some(ANY_KEY)) if keys.contains(&text.as_str()) => {
                visitor.visit_map(ShortForm { key: Some(text), value: None })
            }
            (YamlValue::Text(text), Some(ANY_KEY)) => Err(de::Error::unknown_field(text, keys)),
            (YamlValue::Null | YamlValue::Sequence(_), _) | (_, None | Some(ANY_KEY)) => {
                Err(de::Error::invalid_type(self.unexpected(), &visitor))
            }
            (_, Some(key)) => visitor.visit_map(ShortForm { key: Some(key), value: Some(self) }),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.is_one_item() {
            visitor.visit_seq(OneItem(Some(self)))
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    /// Remembers which texts are paths. Their type reveals it, so no key has to be listed anywhere.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let expected: &dyn de::Expected = &visitor;
        if expected.to_string() == PATH {
            self.is_path.set(true);
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit unit_struct tuple
        tuple_struct map identifier
    }
}

/// A list of one item that was written without the list. `None` once it has been read.
struct OneItem<'de>(Option<&'de YamlNode>);

impl<'de> de::SeqAccess<'de> for OneItem<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        self.0.take().map(|node| seed.deserialize(node)).transpose()
    }
}

/// The only entry of a mapping that was written in its short form.
struct ShortForm<'de> {
    /// `None` once it has been read.
    key: Option<&'de str>,
    /// `None` is an empty mapping.
    value: Option<&'de YamlNode>,
}

impl<'de> de::MapAccess<'de> for ShortForm<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        self.key.take().map(|key| seed.deserialize(BorrowedStrDeserializer::new(key))).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        match self.value {
            Some(node) => seed.deserialize(node),
            None => seed.deserialize(EmptyMapping),
        }
    }
}

/// A mapping without entries.
struct EmptyMapping;

impl<'de> de::Deserializer<'de> for EmptyMapping {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_map(ShortForm { key: None, value: None })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The key that selects the variant of a mapping, and the name of the enums that are read this way.
pub(crate) const TAG: &str = "type";

/// A mapping and its tag.
#[derive(Clone, Copy)]
struct Tagged<'de> {
    mapping: &'de Mapping,
    /// Index of the tag's entry.
    tag: usize,
    /// The value of the tag.
    node: &'de YamlNode,
}

impl<'de> Tagged<'de> {
    fn find(mapping: &'de Mapping) -> Result<Self, ReadError> {
        let is_tag = |entry: &YamlEntry| entry.key == TAG && !entry.node.skipped;
        let tag = mapping.entries.iter().enumerate().find(|(_, entry)| is_tag(entry));
        tag.map(|(tag, entry)| Self { mapping, tag, node: &entry.node })
            .ok_or_else(|| de::Error::missing_field(TAG))
    }
}

impl<'de> de::EnumAccess<'de> for Tagged<'de> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        let variant = seed.deserialize(self.node);
        Ok((variant.map_err(|error| error.inside(self.tag))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Tagged<'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_any(self, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}

/// Reads the entries of the mapping except its tag.
impl<'de> de::Deserializer<'de> for Tagged<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_map(Entries { tag: Some(self.tag), ..Entries::of(self.mapping) })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Elements<'de> {
    nodes: &'de [YamlNode],
    next: usize,
}

impl<'de> de::SeqAccess<'de> for Elements<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        while let Some(node) = self.nodes.get(self.next) {
            self.next += 1;
            if !node.skipped {
                return seed.deserialize(node).map(Some).map_err(|error| error.inside(self.next - 1));
            }
        }
        Ok(None)
    }
}

struct Entries<'de> {
    mapping: &'de Mapping,
    /// Index of the entry whose key is read next; the next value belongs to the entry before it.
    next: usize,
    /// Index of the entry that was read before the others.
    tag: Option<usize>,
    /// `true` if a key without a value has an empty mapping.
    fills_empty: bool,
}

impl<'de> Entries<'de> {
    fn of(mapping: &'de Mapping) -> Self {
        Self { mapping, next: 0, tag: None, fills_empty: false }
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        while let Some(entry) = self.mapping.entries.get(self.next) {
            self.next += 1;
            if !entry.node.skipped && self.tag != Some(self.next - 1) {
                let key = BorrowedStrDeserializer::new(&entry.key);
                return seed
                    .deserialize(key)
                    .map(Some)
                    .map_err(|error: ReadError| ReadError { at_key: true, ..error }.inside(self.next - 1));
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        let step = self.next.saturating_sub(1);
        match self.mapping.entries.get(step) {
            Some(entry) if self.fills_empty && matches!(entry.node.value, YamlValue::Null) => {
                seed.deserialize(EmptyMapping).map_err(|error| error.inside(step))
            }
            Some(entry) => seed.deserialize(&entry.node).map_err(|error| error.inside(step)),
            None => Err(de::Error::custom("a value was requested before its key")),
        }
    }
}
