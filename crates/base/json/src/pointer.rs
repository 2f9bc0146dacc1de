//! Finds values by pointers (RFC 6901) in a JSON text, without parsing them.

use std::ops::Range;

use crate::scanner::{JsonError, Scanner, unescape};

/// Maximum number of parts of a pointer, which bounds the recursion.
pub(crate) const PARTS_MAX: usize = 32;

/// Maximum length of a pointer.
const POINTER_BYTES_MAX: usize = 1024;

/// The reason why a text is not a pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It is too long.
    #[error("a pointer must not exceed {POINTER_BYTES_MAX} bytes")]
    TooLong,
    /// It has too many parts.
    #[error("a pointer must not exceed {PARTS_MAX} parts")]
    TooManyParts,
    /// This text does not begin with a slash.
    #[error("`{0}` is not a JSON pointer (RFC 6901): it must begin with `/`")]
    NoSlash(String),
    /// A `~` of this text is not an escape.
    #[error("invalid `~` in `{0}`: write `~0` for `~` and `~1` for `/`")]
    Escape(String),
}

/// Splits a pointer into its unescaped parts (RFC 6901 §3, §4).
pub(crate) fn parts(pointer: &str) -> Result<Vec<String>, PointerError> {
    if pointer.len() > POINTER_BYTES_MAX {
        return Err(PointerError::TooLong);
    }
    let mut parts = pointer.split('/');
    if parts.next() != Some("") {
        return Err(PointerError::NoSlash(pointer.to_owned()));
    }
    let parts = parts.map(|part| {
        let is_escaped = part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        is_escaped.then(|| part.replace("~1", "/").replace("~0", "~"))
    });
    let parts: Option<Vec<String>> = parts.collect();
    match parts {
        Some(parts) if parts.len() > PARTS_MAX => Err(PointerError::TooManyParts),
        Some(parts) => Ok(parts),
        None => Err(PointerError::Escape(pointer.to_owned())),
    }
}

/// Parses the index of a list element (RFC 6901 §4).
pub(crate) fn index(part: &str) -> Option<usize> {
    let is_number = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    part.parse().ok().filter(|_| is_number)
}

/// Parsed pointers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pointers(Vec<Vec<String>>);

/// Returns a message about `pointer` if it is invalid.
pub fn pointer_problem(pointer: &str) -> Option<String> {
    parts(pointer).err().map(|error| error.to_string())
}

impl Pointers {
    /// Parses the valid ones of `pointers`.
    pub fn new<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Self {
        Self(pointers.into_iter().filter_map(|pointer| parts(pointer).ok()).collect())
    }

    /// Returns `true` if there is no pointer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text of each pointer's value. Returns `None` if `text` is not JSON, or if an object on the
    /// path repeats the name, because parsers differ in which one they use.
    pub fn find<'t>(&self, text: &'t [u8]) -> Option<Vec<Option<&'t [u8]>>> {
        Some(self.places(text)?.into_iter().map(|place| text.get(place?)).collect())
    }

    /// Returns the range of each pointer's value in `text`; `None` as for [`find`](Self::find).
    pub fn places(&self, text: &[u8]) -> Option<Vec<Option<Range<usize>>>> {
        std::str::from_utf8(text).ok()?;
        self.0.iter().map(|parts| find(text, parts).ok()).collect()
    }
}

fn find(text: &[u8], parts: &[String]) -> Result<Option<Range<usize>>, JsonError> {
    let mut finder = Finder { scanner: Scanner { text, at: 0, depth: 0 }, found: None };
    finder.scanner.space();
    finder.value(parts)?;
    finder.scanner.space();
    if finder.scanner.at < text.len() { Err(finder.scanner.malformed()) } else { Ok(finder.found) }
}

struct Finder<'t> {
    scanner: Scanner<'t>,
    found: Option<Range<usize>>,
}

impl Finder<'_> {
    /// Searches the value that begins here for `parts`. The recursion is as deep as the pointer is long.
    fn value(&mut self, parts: &[String]) -> Result<(), JsonError> {
        match (parts.split_first(), self.scanner.peek()) {
            (None, _) => {
                let start = self.scanner.at;
                self.scanner.skip()?;
                self.found = Some(start..self.scanner.at);
                Ok(())
            }
            (Some((part, rest)), Some(b'{')) => self.object(part, rest),
            (Some((part, rest)), Some(b'[')) => self.list(part, rest),
            (Some(_), _) => self.scanner.skip(),
        }
    }

    fn object(&mut self, part: &str, rest: &[String]) -> Result<(), JsonError> {
        self.scanner.open()?;
        let mut is_seen = false;
        let mut more = self.scanner.first(b'}');
        while more {
            let raw = self.scanner.name()?;
            let mut name = Vec::with_capacity(raw.len());
            if unescape(raw, &mut name).is_some() && name == part.as_bytes() {
                if std::mem::replace(&mut is_seen, true) {
                    return Err(self.scanner.malformed());
                }
                self.value(rest)?;
            } else {
                self.scanner.skip()?;
            }
            more = self.scanner.next(b'}')?;
        }
        Ok(())
    }

    fn list(&mut self, part: &str, rest: &[String]) -> Result<(), JsonError> {
        self.scanner.open()?;
        let wanted = index(part);
        let mut at = 0;
        let mut more = self.scanner.first(b']');
        while more {
            if wanted == Some(at) {
                self.value(rest)?;
            } else {
                self.scanner.skip()?;
            }
            at += 1;
            more = self.scanner.next(b']')?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pointers: &[&str], text: &str) -> Option<Vec<Option<String>>> {
        let found = Pointers::new(pointers.iter().copied()).find(text.as_bytes())?;
        Some(
            found
                .into_iter()
                .map(|part| part.map(|part| String::from_utf8(part.to_vec()).unwrap()))
                .collect(),
        )
    }

    #[test]
    fn a_pointer_finds_the_bytes_of_its_value() {
        let text = r#" {"a": {"b/c": [1, {"d": 18446744073709551617}]}, "e\u0066": "x", "a2": 1} "#;
        let found = find(&["/a/b~1c/1/d", "/ef", "/a/b~1c", "/none", "/a2/x", "/a/b~1c/7"], text).unwrap();
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        let expected = [
            Some("18446744073709551617"),
            Some("\"x\""),
            Some("[1, {\"d\": 18446744073709551617}]"),
            None,
            None,
            None,
        ];
        assert_eq!(found, expected);
        assert_eq!(find(&[""], "[1]"), Some(vec![Some("[1]".to_owned())]));
    }

    #[test]
    fn a_text_that_is_not_a_pointer_is_refused() {
        let (long, deep) = ("/".to_owned() + &"a".repeat(POINTER_BYTES_MAX), "/a".repeat(PARTS_MAX + 1));
        for (pointer, expected) in [
            ("a", "`a` is not a JSON pointer (RFC 6901): it must begin with `/`"),
            ("/~", "invalid `~` in `/~`: write `~0` for `~` and `~1` for `/`"),
            ("/~01~2", "invalid `~` in `/~01~2`: write `~0` for `~` and `~1` for `/`"),
            (&long, "a pointer must not exceed 1024 bytes"),
            (&deep, "a pointer must not exceed 32 parts"),
        ] {
            assert_eq!(pointer_problem(pointer).as_deref(), Some(expected));
        }
        assert_eq!(pointer_problem(&"/a".repeat(PARTS_MAX)), None);
        assert_eq!(pointer_problem(""), None);
    }

    #[test]
    fn ambiguous_or_malformed_json_is_not_searched() {
        assert_eq!(find(&["/a"], r#"{"a":1,"a":2}"#), None);
        assert_eq!(find(&["/a"], r#"{"a":1,"\u0061":2}"#), None);
        assert_eq!(find(&["/a/b"], r#"{"a":{"b":1},"a":1}"#), None);
        assert_eq!(find(&["/a"], r#"{"a":1} x"#), None);
        assert_eq!(find(&["/a"], r#"{"a":01}"#), None);
        assert_eq!(find(&["/a"], "{\"a\":\"\u{fffd}"), None);
        assert!(Pointers::new(["/a"]).find(b"{\"a\":\"\xff\"}").is_none());
    }
}
