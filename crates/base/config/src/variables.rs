//! `${env:NAME}` and `${env:NAME:-default}` in the texts of a config.
//!
//! References are replaced in values that have been parsed, so whatever a variable contains, it remains one
//! value: it can become no key, no list and no comment. Expressions, scripts and templates are read
//! [`verbatim`]: they have their own syntax for variables, which quotes the value for its place.

use std::cell::Cell;
use std::env::VarError;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer};

/// The beginning of a reference.
const PREFIX: &str = "${env:";

/// Maximum length of a text after the replacement.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Beginning of the texts that are expressions.
const EXPRESSION_PREFIX: &str = "cel:";

thread_local! {
    /// Tells if this thread replaces references in the texts that it reads.
    static REPLACING: Cell<Replacing> = const { Cell::new(Replacing::Off) };
}

/// The treatment of references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replacing {
    /// Texts are read as they are.
    Off,
    /// References are replaced.
    On,
}

/// The treatment before, which holds again once this is dropped.
pub(crate) struct Before(Replacing);

impl Replacing {
    /// Makes it hold for this thread.
    pub fn enter(self) -> Before {
        Before(REPLACING.replace(self))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        REPLACING.set(self.0);
    }
}

/// The reason why a reference cannot be replaced. It contains no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// `${env:` without `}`.
    #[error("`${{env:` without `}}`: write `$${{env:` for a literal `${{env:`")]
    Unclosed,
    /// This is not the name of a variable.
    #[error(
        "`{0}` is not the name of an environment variable: write letters, digits and `_`, like `${{env:NAME}}`"
    )]
    Name(String),
    /// The variable is not set, and there is no default.
    #[error("the environment variable {0} is not set: set it, or write a default, `${{env:{0}:-default}}`")]
    NotSet(String),
    /// The variable is empty, and there is no default.
    #[error("the environment variable {0} is empty: set it, or write `${{env:{0}:-}}` if it may be")]
    Empty(String),
    /// The variable is not UTF-8.
    #[error("the environment variable {0} is not UTF-8")]
    NotUtf8(String),
    /// The text would be too long.
    #[error("longer than {TEXT_BYTES_MAX} bytes once its variables are replaced")]
    TooLong,
}

/// Returns the value of a variable, or `default` if it is missing or empty.
///
/// # Errors
///
/// Fails if the name is not one, and without a default if the variable is missing or empty.
pub fn variable(name: &str, default: Option<&str>) -> Result<String, VariableError> {
    if !is_name(name) {
        return Err(VariableError::Name(name.to_owned()));
    }
    match (read(name), default) {
        (Ok(value), _) if !value.is_empty() => Ok(value),
        (Err(VarError::NotUnicode(_)), _) => Err(VariableError::NotUtf8(name.to_owned())),
        (_, Some(default)) => Ok(default.to_owned()),
        (Ok(_), None) => Err(VariableError::Empty(name.to_owned())),
        (Err(VarError::NotPresent), None) => Err(VariableError::NotSet(name.to_owned())),
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
    !name.is_empty() && !starts_with_digit && name.bytes().all(is_letter)
}

/// Returns the text with its references replaced; `None` if it is read as it is.
pub(crate) fn replaced(text: &str) -> Result<Option<String>, VariableError> {
    if REPLACING.get() == Replacing::Off || !text.contains(PREFIX) || text.starts_with(EXPRESSION_PREFIX) {
        return Ok(None);
    }
    replace(text).map(Some)
}

fn replace(text: &str) -> Result<String, VariableError> {
    let (mut result, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(PREFIX) {
        let (before, reference) = (&rest[..at], &rest[at + PREFIX.len()..]);
        if let Some(before) = before.strip_suffix('$') {
            result.push_str(before);
            result.push_str(PREFIX);
            rest = reference;
            continue;
        }
        result.push_str(before);
        let (inner, after) = reference.split_once('}').ok_or(VariableError::Unclosed)?;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        result.push_str(&variable(name, default)?);
        if result.len() > TEXT_BYTES_MAX {
            return Err(VariableError::TooLong);
        }
        rest = after;
    }
    result.push_str(rest);
    if result.len() > TEXT_BYTES_MAX { Err(VariableError::TooLong) } else { Ok(result) }
}

/// Reads a value, and all texts in it, without replacing references. For the fields of a config that hold
/// expressions, scripts and templates: `#[serde(default, deserialize_with = "egret_config::verbatim")]`.
///
/// # Errors
///
/// Fails if the value is not of this type.
pub fn verbatim<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct VerbatimVisitor<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for VerbatimVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
            let _off = Replacing::Off.enter();
            T::deserialize(deserializer)
        }
    }
    deserializer.deserialize_newtype_struct("Verbatim", VerbatimVisitor(std::marker::PhantomData))
}

#[cfg(not(test))]
fn read(name: &str) -> Result<String, VarError> {
    std::env::var(name)
}

#[cfg(test)]
thread_local! {
    /// The variables of a test, which cannot set those of the process.
    static VARIABLES: std::cell::RefCell<std::collections::BTreeMap<String, String>> =
        const { std::cell::RefCell::new(std::collections::BTreeMap::new()) };
}

#[cfg(test)]
fn read(name: &str) -> Result<String, VarError> {
    VARIABLES.with_borrow(|variables| variables.get(name).cloned()).ok_or(VarError::NotPresent)
}

#[cfg(test)]
mod tests;
