//! Regular expressions as people write them in a config: `regex:` and the expression.

use std::borrow::Cow;
use std::fmt;

use regex_lite::{Regex, RegexBuilder};

/// Maximum length of an expression in bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// Maximum size of the compiled program. It bounds the steps per byte of the text.
const PROGRAM_BYTES_MAX: usize = 32 << 10;

/// The words in a config that introduce a regular expression.
const PREFIX: &str = "regex:";

/// A regular expression that must match a whole text.
///
/// It needs time proportional to the length of the text, whatever the expression is. `.` matches every
/// character, even a line end.
#[derive(Debug, Clone)]
pub struct WholeRegex {
    /// The expression as written, without the prefix.
    source: Box<str>,
    regex: Regex,
    /// The names of its groups, in the order of the expression.
    names: Box<[Box<str>]>,
}

impl PartialEq for WholeRegex {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for WholeRegex {}

/// The difference between upper and lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// `A` and `a` are different.
    Matters,
    /// `A` and `a` are equal.
    Ignored,
}

/// The mistake in a regular expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegexError {
    /// The expression is empty.
    Empty,
    /// The expression is too long.
    TooLong,
    /// The compiled expression is too large.
    TooLarge(Box<str>),
    /// The expression cannot be parsed.
    Syntax {
        /// The expression.
        source: Box<str>,
        /// The mistake.
        message: Box<str>,
        /// The expression that was probably intended.
        meant: Option<Box<str>>,
    },
    /// The expression ends inside a comment.
    OpenComment(Box<str>),
}

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no regular expression follows `regex:`"),
            Self::TooLong => write!(f, "a regular expression has at most {PATTERN_BYTES_MAX} bytes"),
            Self::TooLarge(source) => write!(
                f,
                "the regular expression `{source}` is too large: use smaller counts in `{{}}`, or several expressions"
            ),
            Self::Syntax { source, message, meant } => {
                write!(f, "`{source}` is not a regular expression: {message}")?;
                match meant {
                    Some(meant) => write!(f, "; write `{PREFIX}{meant}`"),
                    None => Ok(()),
                }
            }
            Self::OpenComment(source) => {
                write!(f, "the regular expression `{source}` ends inside a comment: remove the comment")
            }
        }
    }
}

impl std::error::Error for RegexError {}

impl WholeRegex {
    /// Returns the expression in `text` if it begins with `regex:`.
    pub fn prefixed(text: &str) -> Option<&str> {
        text.strip_prefix(PREFIX)
    }

    /// Compiles an expression, written without the prefix.
    pub fn compile(source: &str, case: Case) -> Result<Self, RegexError> {
        if source.is_empty() {
            return Err(RegexError::Empty);
        }
        if source.len() > PATTERN_BYTES_MAX {
            return Err(RegexError::TooLong);
        }
        // On its own first: `a)|(b` is an error, but would be none between the parentheses below.
        build(source, case).map_err(|error| explain(source, &error))?;
        let whole = build(&format!(r"\A(?:{source})\z"), case);
        let regex = whole.map_err(|error| match error.to_string() {
            message if is_size(&message) => RegexError::TooLarge(source.into()),
            _ => RegexError::OpenComment(source.into()),
        })?;
        let names = regex.capture_names().flatten().map(Box::from).collect();
        Ok(Self { source: source.into(), regex, names })
    }

    /// Returns `true` if the whole of `text` matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Returns `true` if the whole of `bytes` matches. What is not UTF-8 counts as replacement characters,
    /// which `.` and negated classes match.
    pub fn is_match_bytes(&self, bytes: &[u8]) -> bool {
        self.is_match(&lossy(bytes))
    }

    /// Returns the names of the groups `(?P<name>…)`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Returns the part of `text` that the group `name` matches.
    pub fn group<'t>(&self, name: &str, text: &'t str) -> Option<&'t str> {
        self.names.iter().find(|known| ***known == *name)?;
        self.regex.captures(text)?.name(name).map(|found| found.as_str())
    }
}

/// Returns `bytes` as text. What is not UTF-8 becomes replacement characters.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn build(source: &str, case: Case) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(source)
        .case_insensitive(case == Case::Ignored)
        .dot_matches_new_line(true)
        .size_limit(PROGRAM_BYTES_MAX)
        .build()
}

fn is_size(message: &str) -> bool {
    message.contains("size limit")
}

fn explain(source: &str, error: &regex_lite::Error) -> RegexError {
    let message = error.to_string();
    if is_size(&message) {
        return RegexError::TooLarge(source.into());
    }
    let meant = meant(source).filter(|meant| build(meant, Case::Matters).is_ok());
    RegexError::Syntax { source: source.into(), message: message.into(), meant: meant.map(Into::into) }
}

/// Returns the expression for a text in which a star stands for any text, like `*.example.com`.
fn meant(source: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./*".contains(&byte);
    let has_star = source.starts_with('*') || source.contains("**");
    (has_star && source.bytes().all(is_plain))
        .then(|| source.replace('.', r"\.").replace("**", "*").replace('*', ".*"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compile(source: &str) -> Result<WholeRegex, String> {
        WholeRegex::compile(source, Case::Matters).map_err(|error| error.to_string())
    }

    #[test]
    fn the_whole_text_must_match() {
        for (source, good, bad) in [
            ("a", &["a"][..], &["", "aa", "xa", "ax", "a\n", "A"][..]),
            ("a|ab", &["a", "ab"], &["b", "abb", "xab"]),
            ("a|b|", &["a", "b", ""], &["ab"]),
            ("^a$|^b$", &["a", "b"], &["ab"]),
            (".*", &["", "a\nb"], &[]),
            ("(?i)a", &["A"], &["b"]),
            ("(?m)^a$", &["a"], &["a\nb", "b\na"]),
        ] {
            let regex = compile(source).unwrap();
            assert!(good.iter().all(|text| regex.is_match(text)), "{source}");
            assert!(!bad.iter().any(|text| regex.is_match(text)), "{source}");
        }
        assert!(WholeRegex::compile("API", Case::Ignored).unwrap().is_match("api"));
    }

    #[test]
    fn bytes_that_are_no_text_evade_no_dot() {
        let regex = compile("a.b[^/]").unwrap();
        assert!(regex.is_match_bytes(b"a\xffb\xfe"));
        assert!(!regex.is_match_bytes(b"a\xffb/"));
    }

    #[test]
    fn groups_have_names_and_values() {
        let regex = compile("/(?P<kind>[a-z]+)/(?<id>[0-9]+)?(x)?").unwrap();
        assert_eq!(regex.names().collect::<Vec<_>>(), ["kind", "id"]);
        assert_eq!(regex.group("kind", "/users/7"), Some("users"));
        assert_eq!(regex.group("id", "/users/7"), Some("7"));
        assert_eq!(regex.group("id", "/users/"), None);
        assert_eq!(regex.group("other", "/users/7"), None);
    }

    #[test]
    fn a_bad_expression_is_refused_with_what_to_write() {
        for (source, message) in [
            ("", "no regular expression follows"),
            ("(a", "is not a regular expression"),
            ("a)|(b", "is not a regular expression"),
            ("[a", "is not a regular expression"),
            ("a{2,1}", "is not a regular expression"),
            ("(?=a)", "is not a regular expression"),
            (r"(a)\1", "is not a regular expression"),
            ("*.example.com", r"write `regex:.*\.example\.com`"),
            ("(?x)a # b", "ends inside a comment"),
            ("[a-z]{1000}{1000}", "is too large"),
            (&"a".repeat(PATTERN_BYTES_MAX + 1), "at most 1024 bytes"),
        ] {
            let error = compile(source).expect_err(source);
            assert!(error.contains(message), "{source}: {error}");
        }
    }

    proptest! {
        #[test]
        fn an_expression_is_refused_or_matches_whole_texts_only(
            source in r"[ab.*+?|()\[\]{}\\^$#x:P<>-]{0,12}",
            text in "[ab]{0,6}",
        ) {
            let Ok(regex) = compile(&source) else { return Ok(()) };
            if regex.is_match(&text) {
                let found = Regex::new(&format!("(?s:{source})")).unwrap();
                // The library's own answer is a part of the text. The whole of it must be one more answer.
                prop_assert!(found.is_match(&text), "{source} {text}");
            }
            // No character of this kind is in the expression, so no whole text with it matches but by a dot
            // or a negated class.
            if !source.contains(['.', '^', '\\', '[']) {
                prop_assert!(!regex.is_match(&format!("{text}\u{1}")), "{source} {text}");
                prop_assert!(!regex.is_match(&format!("\u{1}{text}")), "{source} {text}");
            }
        }
    }
}
