//! Explains why an expression cannot be parsed.
//!
//! The parser reports the sets of tokens of its grammar. A reader needs the place, and what to write there.
//! So the expression is read once more, token by token: values and operators must take turns, and brackets
//! must match.

use super::EXPRESSION_BYTES_MAX;
use super::error::ExpressionError;

/// Returns the error of an expression that the parser has refused.
pub(super) fn explain(source: &str, errors: &cel::ParseErrors) -> ExpressionError {
    let first = errors.errors.first();
    if let Some(message) = first.and_then(|error| in_words(&error.msg)) {
        return placed(source, message, position(source, first.map(|error| error.pos)));
    }
    if let Some(Mistake { message, at }) = Reader::new(source).mistake() {
        return placed(source, message, at);
    }
    let at = position(source, first.map(|error| error.pos));
    let rest: String = source[at.min(source.len())..].chars().take(SHOWN_CHARS_MAX).collect();
    placed(source, format!("`{rest}` is not expected here"), at)
}

/// Number of characters of an expression that a message repeats.
const SHOWN_CHARS_MAX: usize = 24;

/// Translates the messages of the parser that are about the meaning of a token.
fn in_words(message: &str) -> Option<String> {
    if let Some(word) = message.strip_prefix("reserved identifier: ") {
        return Some(format!("`{word}` is a reserved word of CEL"));
    }
    if message.starts_with("Recursion limit") {
        return Some("this expression is nested too deeply".to_owned());
    }
    if message.contains("has()") {
        let advice =
            "`has()` takes a field, as in `has(request.headers.accept)`: a name in quotes is written";
        return Some(format!("{advice} `'accept' in request.headers`"));
    }
    let kind = message.strip_prefix("invalid ")?.split(" literal").next()?;
    Some(match kind {
        "int" | "uint" => "this number does not fit into 64 bits".to_owned(),
        "double" => "this is not a number".to_owned(),
        _ => "this text has an invalid escape".to_owned(),
    })
}

/// Converts line and column, as the parser counts them, to an offset.
fn position(source: &str, at: Option<(isize, isize)>) -> usize {
    let Some((line, column)) = at.and_then(|(line, column)| {
        Some((usize::try_from(line).ok()?.checked_sub(1)?, usize::try_from(column).ok()?.saturating_sub(1)))
    }) else {
        return 0;
    };
    let start: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = &source[start.min(source.len())..];
    start + rest.char_indices().nth(column).map_or(rest.len(), |(offset, _)| offset)
}

fn placed(source: &str, message: impl std::fmt::Display, at: usize) -> ExpressionError {
    let before = &source[..at.min(source.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let message = format!("this is not valid CEL: {message}");
    ExpressionError { place: Some((line, column)), ..ExpressionError::new(message) }
}

/// A mistake, and its offset in bytes.
struct Mistake {
    message: String,
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// A name, a number or a text.
    Value,
    /// An operator between two values, or before one.
    Operator,
    Open,
    Close,
    /// Anything else, such as a quote that is not closed.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: TokenKind,
    text: &'a str,
    at: usize,
}

/// Operators, longest first.
const OPERATORS: [&str; 18] =
    ["==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ",", "."];

/// Words that people write instead of an operator, and the operator. None begins with a longer one here.
const NO_OPERATORS: [(&str, &str); 12] = [
    ("===", "=="),
    ("!==", "!="),
    ("<>", "!="),
    ("=", "=="),
    ("&", "&&"),
    ("|", "||"),
    ("and", "&&"),
    ("AND", "&&"),
    ("or", "||"),
    ("OR", "||"),
    ("not", "!"),
    ("NOT", "!"),
];

struct Reader<'a> {
    source: &'a str,
    at: usize,
    open: Vec<Token<'a>>,
    last: Option<Token<'a>>,
}

impl<'a> Reader<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, at: 0, open: Vec::new(), last: None }
    }

    /// Reads up to the first mistake.
    fn mistake(mut self) -> Option<Mistake> {
        // Each token takes at least one byte.
        for _ in 0..=EXPRESSION_BYTES_MAX {
            let Some(token) = self.next() else { return self.at_end() };
            if let Some(message) = self.check(token) {
                return Some(Mistake { message, at: token.at });
            }
            self.last = Some(token);
        }
        None
    }

    /// Returns `true` if a value must follow.
    fn needs_value(&self) -> bool {
        self.last.is_none_or(|last| matches!(last.kind, TokenKind::Operator | TokenKind::Open))
    }

    fn check(&mut self, token: Token<'a>) -> Option<String> {
        let Token { kind, text, .. } = token;
        let instead = NO_OPERATORS.iter().find(|(word, _)| *word == text).map(|(_, operator)| operator);
        if let Some(operator) = instead.filter(|operator| self.needs_value() == (**operator == "!")) {
            return Some(format!("`{text}` is not an operator: write `{operator}`"));
        }
        match kind {
            TokenKind::Value if !self.needs_value() => {
                let before = self.last.map(|last| last.text).unwrap_or_default();
                Some(format!("an operator is missing between `{before}` and `{text}`, such as `==` or `&&`"))
            }
            TokenKind::Operator if self.needs_value() && !matches!(text, "!" | "-" | ".") => {
                Some(format!("a value is missing before `{text}`"))
            }
            TokenKind::Value | TokenKind::Operator => None,
            TokenKind::Open => {
                self.open.push(token);
                None
            }
            TokenKind::Close => self.close(text),
            TokenKind::Unknown if text.starts_with(['"', '\'']) => {
                Some(format!("the text that begins here has no closing `{}`", &text[..1]))
            }
            TokenKind::Unknown => Some(format!("`{text}` has no meaning in CEL")),
        }
    }

    fn close(&mut self, text: &str) -> Option<String> {
        let Some(open) = self.open.pop() else { return Some(format!("`{text}` closes nothing: remove it")) };
        if closing(open.text) != text {
            return Some(format!("`{text}` does not close `{}`: write `{}`", open.text, closing(open.text)));
        }
        let last = self.last.filter(|last| last.kind == TokenKind::Operator && last.text != ",");
        last.map(|last| format!("a value is missing after `{}`", last.text))
    }

    fn at_end(self) -> Option<Mistake> {
        let end = self.source.trim_end().len();
        if let Some(last) = self.last.filter(|last| last.kind == TokenKind::Operator) {
            return Some(Mistake { message: format!("a value is missing after `{}`", last.text), at: end });
        }
        if let Some(open) = self.open.last() {
            let message = format!("`{}` has no closing `{}`", open.text, closing(open.text));
            return Some(Mistake { message, at: open.at });
        }
        self.last.is_none().then(|| Mistake { message: "the expression is empty".to_owned(), at: 0 })
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let rest = &self.source[self.at..];
        let skipped = rest.len() - rest.trim_start().len();
        let (at, rest) = (self.at + skipped, rest.trim_start());
        let first = rest.chars().next()?;
        let (kind, len) = kind_and_len(rest, first);
        self.at = at + len;
        Some(Token { kind, text: &rest[..len], at })
    }
}

fn kind_and_len(rest: &str, first: char) -> (TokenKind, usize) {
    if let Some(found) = text(rest) {
        return found;
    }
    if first.is_ascii_alphanumeric() || first == '_' {
        let is_number = first.is_ascii_digit();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || is_number && c == '.';
        let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        return (if &rest[..len] == "in" { TokenKind::Operator } else { TokenKind::Value }, len);
    }
    match first {
        '(' | '[' | '{' => return (TokenKind::Open, 1),
        ')' | ']' | '}' => return (TokenKind::Close, 1),
        _ => {}
    }
    if let Some((word, _)) = NO_OPERATORS[..3].iter().find(|(word, _)| rest.starts_with(word)) {
        return (TokenKind::Unknown, word.len());
    }
    match OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
        Some(operator) => (TokenKind::Operator, operator.len()),
        None => (TokenKind::Unknown, first.len_utf8()),
    }
}

/// Reads a text with its quotes and prefix, if one begins here.
fn text(rest: &str) -> Option<(TokenKind, usize)> {
    let prefix = rest.find(|c: char| !matches!(c, 'r' | 'R' | 'b' | 'B')).filter(|prefix| *prefix <= 2)?;
    let quoted = &rest[prefix..];
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| quoted.starts_with(*quote))?;
    let is_raw = rest[..prefix].contains(['r', 'R']);
    let mut at = quote.len();
    while at < quoted.len() {
        if quoted[at..].starts_with(quote) {
            return Some((TokenKind::Value, prefix + at + quote.len()));
        }
        let mut characters = quoted[at..].chars();
        let c = characters.next()?;
        at += c.len_utf8();
        if c == '\\' && !is_raw {
            at += characters.next().map_or(0, char::len_utf8);
        }
    }
    Some((TokenKind::Unknown, rest.len()))
}

fn closing(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}
