//! Formats problems: file, line, column, path, message, and the source line with a caret.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::problem::Problem;
use crate::source::ConfigText;
use crate::tree::Position;

/// All problems found in one config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The name of the text, usually the file's path.
    pub name: String,
    /// The problems in the order of the text. Never empty if they are errors.
    pub findings: Vec<Finding>,
}

/// The weight of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The config is invalid.
    #[default]
    Error,
    /// The config is valid, but probably not what was meant.
    Warning,
}

impl Report {
    pub(crate) fn new(name: &str, findings: Vec<Finding>) -> Self {
        Self { name: name.to_owned(), findings }
    }

    /// Creates a report of problems of a config that has no text.
    pub fn unplaced(name: &str, problems: Vec<Problem>) -> Self {
        let findings =
            problems.into_iter().map(|problem| Finding::unplaced(name, problem, ReadingStep::Rules));
        Self::new(name, findings.collect())
    }

    /// Creates a report of one problem that concerns the text as a whole.
    pub fn whole(name: &str, message: impl Into<String>) -> Self {
        Self::new(name, vec![Finding::unplaced(name, Problem::new("", message), ReadingStep::Syntax)])
    }

    /// Returns the problems as warnings about a valid config.
    #[must_use]
    pub fn into_warnings(mut self) -> Self {
        for finding in &mut self.findings {
            finding.severity = Severity::Warning;
        }
        self
    }

    /// Returns each problem as one line for the log, without the excerpt.
    pub fn summaries(&self) -> Vec<String> {
        self.findings.iter().map(|finding| Summary(finding).to_string()).collect()
    }

    /// Returns each problem in its parts, for programs.
    pub fn problems(&self) -> Vec<LocatedProblem> {
        self.findings.iter().map(LocatedProblem::new).collect()
    }
}

/// A problem in its parts, as `egret check --json` and the control API show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocatedProblem {
    /// Tells errors, which make the config invalid, from warnings.
    pub severity: Severity,
    /// Name of the text, usually the file's path.
    pub file: String,
    /// Line, from 1; `None` for the text as a whole.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// Path from the root of the config; empty for the config as a whole.
    pub path: String,
    /// The error and the expected value.
    pub message: String,
    /// The word that was probably intended.
    pub suggestion: Option<String>,
}

impl LocatedProblem {
    fn new(finding: &Finding) -> Self {
        let Problem { path, message, suggestion, .. } = &finding.problem;
        Self {
            severity: finding.severity,
            file: finding.file.to_string(),
            line: finding.at.map(|at| at.line),
            column: finding.at.map(|at| at.column),
            path: Sanitized(path).to_string(),
            message: format!("{}{}", Sanitized(message), Related(finding)),
            suggestion: suggestion.as_ref().map(|word| Sanitized(word).to_string()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            if finding.severity == Severity::Warning {
                f.write_str("warning: ")?;
            }
            Summary(finding).fmt(f)?;
            if let (Some(excerpt), Some(at)) = (&finding.excerpt, finding.at) {
                excerpt.write(at.line, f)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// A problem and its position in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The problem.
    pub problem: Problem,
    /// Name of the text, usually the file's path.
    pub file: Arc<str>,
    /// Tells errors, which make the config invalid, from warnings.
    pub severity: Severity,
    /// The step in which it was found.
    pub(crate) step: ReadingStep,
    /// Number of the text.
    pub(crate) source: u16,
    /// Its position; `None` for the text as a whole.
    pub at: Option<Position>,
    /// The place of the other part of the config that it is about.
    pub related: Option<Place>,
    excerpt: Option<Excerpt>,
}

/// The steps in which a config is read. Problems of one step may hide those of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReadingStep {
    /// Its YAML is parsed.
    Syntax,
    /// Its keys and values are read.
    Reading,
    /// It is checked by rules that types cannot express.
    Rules,
}

/// A place in one of the texts of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the text, usually the file's path.
    pub file: Arc<str>,
    /// The position in it.
    pub at: Position,
}

impl Finding {
    pub(crate) fn new(problem: Problem, step: ReadingStep, spot: Spot, source: &ConfigText<'_>) -> Self {
        let excerpt = Excerpt::cut(source.text, spot);
        let file = Arc::from(source.name);
        let (severity, at) = (Severity::Error, Some(spot.at));
        Self { problem, file, severity, step, source: spot.source, at, related: None, excerpt }
    }

    pub(crate) fn related_to(self, related: Option<Place>) -> Self {
        Self { related, ..self }
    }

    pub(crate) fn unplaced(name: &str, problem: Problem, step: ReadingStep) -> Self {
        let (file, severity, source) = (Arc::from(name), Severity::Error, 0);
        Self { problem, file, severity, step, source, at: None, related: None, excerpt: None }
    }

    pub(crate) fn position(&self) -> (u16, usize, usize) {
        let (line, column) = self.at.map_or((0, 0), |at| (at.line, at.column));
        (self.source, line, column)
    }
}

/// Formats a problem as one line.
struct Summary<'a>(&'a Finding);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(finding) = self;
        let Problem { path, message, suggestion, .. } = &finding.problem;
        f.write_str(&finding.file)?;
        if let Some(Position { line, column }) = finding.at {
            write!(f, ":{line}:{column}")?;
        }
        if !path.is_empty() {
            write!(f, ": {}", Sanitized(path))?;
        }
        write!(f, ": {}{}", Sanitized(message), Related(finding))?;
        match suggestion {
            Some(word) => write!(f, "; did you mean `{}`?", Sanitized(word)),
            None => Ok(()),
        }
    }
}

/// Names the place of the other part of the config that a problem is about: ` (see egret.yaml:3:5)`.
struct Related<'a>(&'a Finding);

impl fmt::Display for Related<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.related {
            Some(Place { file, at }) => write!(f, " (see {file}:{}:{})", at.line, at.column),
            None => Ok(()),
        }
    }
}

/// The characters of the text that a problem is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    /// Number of the text.
    pub source: u16,
    pub at: Position,
    /// In characters.
    pub width: usize,
    /// `true` if the rest of the line may be a misplaced secret.
    pub hide_value: bool,
}

/// The line of a problem, with possible secrets removed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    line: String,
    /// Number of characters before the first marked one.
    indent: usize,
    /// Number of marked characters; at least one.
    width: usize,
}

/// Characters shown before and after the first marked one.
const BEFORE_CHARS_MAX: usize = 72;
const AFTER_CHARS_MAX: usize = 72;

impl Excerpt {
    fn cut(text: &str, spot: Spot) -> Option<Self> {
        let line: Vec<char> = text.lines().nth(spot.at.line.checked_sub(1)?)?.chars().collect();
        if line.iter().all(|c| c.is_whitespace()) {
            return None;
        }
        let start = spot.at.column.saturating_sub(1).min(line.len());
        let mut shown = Vec::with_capacity(line.len().min(BEFORE_CHARS_MAX + AFTER_CHARS_MAX) + 2);
        let mut indent = 0;
        let hidden = hidden(&line, start, spot);
        let first = start.saturating_sub(BEFORE_CHARS_MAX);
        if first > 0 {
            shown.push('…');
        }
        for index in first..line.len().min(start + AFTER_CHARS_MAX) {
            if index == start {
                indent = shown.len();
            }
            if !hidden[index] {
                shown.push(if line[index].is_control() { ' ' } else { line[index] });
            } else if index == 0 || !hidden[index - 1] || index == first {
                shown.push('…');
            }
        }
        if start == line.len() {
            indent = shown.len();
        } else if line.len() > start + AFTER_CHARS_MAX {
            shown.push('…');
        }
        let width = spot.width.min(shown.len().saturating_sub(indent)).max(1);
        Some(Self { line: shown.into_iter().collect(), indent, width })
    }

    fn write(&self, line: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gutter = line.to_string().len();
        write!(f, "\n{line} | {}\n", self.line)?;
        write!(f, "{:gutter$} | {:indent$}{:^<width$}", "", "", "", indent = self.indent, width = self.width)
    }
}

/// Returns a line of a config's text as it may be shown: values of keys that sound secret, and the user
/// information of URLs, are hidden.
pub fn shown_line(line: &str) -> String {
    let chars: Vec<char> = line.chars().collect();
    let mut hidden = vec![false; chars.len()];
    for range in secrets(&chars) {
        hidden[range].fill(true);
    }
    let mut shown = String::with_capacity(line.len());
    for (index, c) in chars.iter().enumerate() {
        if !hidden[index] {
            shown.push(if c.is_control() { ' ' } else { *c });
        } else if index == 0 || !hidden[index - 1] {
            shown.push('…');
        }
    }
    shown
}

/// Marks the characters of the line to hide.
fn hidden(line: &[char], start: usize, spot: Spot) -> Vec<bool> {
    let mut hidden = vec![false; line.len()];
    for range in secrets(line) {
        hidden[range].fill(true);
    }
    if spot.hide_value {
        // After a key its value is hidden, otherwise the value itself.
        let key_end = (start + spot.width).min(line.len());
        let is_key = line[key_end..].iter().find(|c| !matches!(c, '"' | '\'' | ' ')) == Some(&':');
        let from = if is_key { key_end + 1 } else { start };
        let from = (from..line.len()).find(|index| !line[*index].is_whitespace() && line[*index] != ':');
        if let Some(from) = from {
            hidden[from..].fill(true);
        }
    }
    hidden
}

/// Parts of key names whose values may be secret.
const SECRET_WORDS: [&str; 7] =
    ["token", "secret", "password", "passwd", "key", "credential", "authorization"];

/// The values of keys that sound secret, and the user information of URLs.
fn secrets(line: &[char]) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let mut references = References { line, close: None, default: None };
    for colon in (0..line.len()).filter(|index| line[*index] == ':') {
        if line[colon..].starts_with(&[':', '/', '/']) {
            ranges.extend(AuthorityText::at(line, colon + 3).user_information(colon + 3));
        } else if sounds_secret(&line[..colon])
            && let Some(value) = references.value_after(colon + 1)
        {
            // The rest of the line is hidden.
            ranges.push(value);
            break;
        }
    }
    ranges
}

fn sounds_secret(before: &[char]) -> bool {
    let word = before.iter().rev().skip_while(|c| matches!(c, '"' | '\'' | ' '));
    let word: String = word.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect();
    let word: String = word.chars().rev().map(|c| c.to_ascii_lowercase()).collect();
    looked_at(word.len());
    SECRET_WORDS.iter().any(|secret| word.contains(secret))
}

/// Looks for the ends of `${...}` in a line, from left to right, so that each character is looked at once.
struct References<'a> {
    line: &'a [char],
    /// The last `}` that was looked for, and the last `:-`.
    close: Option<usize>,
    default: Option<usize>,
}

impl References<'_> {
    /// The range from the value's first character to the end of the line, because the end of the value is
    /// uncertain. `None` for a reference to a secret.
    fn value_after(&mut self, from: usize) -> Option<std::ops::Range<usize>> {
        let line = self.line;
        let start = from + line[from..].iter().position(|c| !c.is_whitespace())?;
        let quoted = start + usize::from(matches!(line[start], '"' | '\''));
        let is_reference = line[quoted..].starts_with(&['$', '{']) && {
            let close = next(&mut self.close, quoted, line, &['}']);
            // A default would be the secret itself.
            next(&mut self.default, quoted, line, &[':', '-']) >= close
        };
        (!is_reference).then_some(start..line.len())
    }
}

/// The first place of `word` from `from` on, or the end of the line. `known` has the last answer.
fn next(known: &mut Option<usize>, from: usize, line: &[char], word: &[char]) -> usize {
    let place = known.filter(|place| *place >= from).unwrap_or_else(|| {
        let found = line[from..].windows(word.len()).position(|window| window == word);
        let place = found.map_or(line.len(), |found| from + found);
        looked_at(place - from);
        place
    });
    *known = Some(place);
    place
}

#[cfg(not(test))]
fn looked_at(_: usize) {}

/// Notes that characters were searched, for the test that each is searched once.
#[cfg(test)]
fn looked_at(count: usize) {
    tests::LOOKED_AT.set(tests::LOOKED_AT.get() + count);
}

/// The part of a text in which an authority may be: up to white space or a slash.
#[derive(Debug, Clone, Copy)]
struct AuthorityText {
    end: usize,
    /// The last `@`, and the last `:` before it.
    at: Option<usize>,
    colon: Option<usize>,
}

impl AuthorityText {
    fn at(text: &[char], from: usize) -> Self {
        let length = text[from..].iter().take_while(|c| !c.is_whitespace() && **c != '/').count();
        looked_at(length);
        let part = &text[from..from + length];
        let at = part.iter().rposition(|c| *c == '@');
        let colon = at.and_then(|at| part[..at].iter().rposition(|c| *c == ':'));
        Self { end: from + length, at: at.map(|at| from + at), colon: colon.map(|colon| from + colon) }
    }

    /// The user information, if the authority begins at `from`.
    fn user_information(self, from: usize) -> Option<std::ops::Range<usize>> {
        self.at.filter(|at| *at >= from).map(|at| from..at)
    }
}

/// Text from the config, made safe for a terminal or a log: no control characters, no user information of
/// URLs.
struct Sanitized<'a>(&'a str);

impl fmt::Display for Sanitized<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut credentials = Credentials { text: self.0.chars().collect(), authority: None };
        // The number of characters of the word so far, and of those that are shown.
        let (mut next, mut word, mut shown) = (0, 0, 0);
        while next < credentials.text.len() && shown < MESSAGE_CHARS_MAX {
            let hidden = credentials.at(next);
            let end = hidden.as_ref().map_or(next, |hidden| hidden.end);
            let c = credentials.text.get(end).copied().unwrap_or(' ');
            word = if c.is_whitespace() || is_quote(c) { 0 } else { word + 1 };
            if hidden.is_some() {
                f.write_str("…")?;
            }
            match word.cmp(&WORD_CHARS_MAX) {
                Ordering::Less if c.is_control() => write!(f, "{}", c.escape_default())?,
                Ordering::Less => write!(f, "{c}")?,
                Ordering::Equal => f.write_str("…")?,
                Ordering::Greater => {}
            }
            shown += usize::from(word <= WORD_CHARS_MAX);
            next = end + 1;
        }
        if next < credentials.text.len() { f.write_str("…") } else { Ok(()) }
    }
}

/// Number of characters of a word after which the rest of it is left out: a value of the config may be as
/// long as the config.
const WORD_CHARS_MAX: usize = 200;
/// Number of characters of a message after which the rest of it is left out.
const MESSAGE_CHARS_MAX: usize = 4_000;

fn is_quote(c: char) -> bool {
    matches!(c, '`' | '"' | '\'')
}

/// Looks for user information in a text from left to right, so that each character is looked at once.
struct Credentials {
    text: Vec<char>,
    /// The part that was looked through last.
    authority: Option<AuthorityText>,
}

impl Credentials {
    /// The range of user information that starts here, if any: after `://`, or as `user:password@` in a
    /// message about a part of a URL.
    fn at(&mut self, from: usize) -> Option<std::ops::Range<usize>> {
        let (before, first) = (self.text.get(..from)?, self.text.get(from)?);
        let in_url = before.ends_with(&[':', '/', '/']);
        let starts_word =
            before.last().is_none_or(|c| c.is_whitespace() || is_quote(*c)) && !is_quote(*first);
        if !in_url && !starts_word {
            return None;
        }
        let known = self.authority.filter(|known| from < known.end);
        let authority = known.unwrap_or_else(|| AuthorityText::at(&self.text, from));
        self.authority = Some(authority);
        let range = authority.user_information(from).filter(|range| !range.is_empty())?;
        (in_url || authority.colon.is_some_and(|colon| colon >= from)).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        pub static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    fn sanitized(text: &str) -> String {
        Sanitized(text).to_string()
    }

    #[test]
    fn a_long_word_and_a_long_message_are_cut() {
        let long = "a".repeat(1_000_000);
        assert_eq!(
            sanitized(&format!("found `{long}`, expected")),
            format!("found `{}…`, expected", "a".repeat(199))
        );
        let sentence = sanitized(&"word ".repeat(200_000));
        assert_eq!(sentence.chars().count(), MESSAGE_CHARS_MAX + 1);
        // A password behind the cut would hide what is before it.
        let hidden = sanitized(&format!("`https://user:{}@host/p`", "p".repeat(500)));
        assert_eq!(hidden, "`https://…@host/p`");
    }

    #[test]
    fn user_information_is_hidden_wherever_it_begins() {
        for (text, shown) in [
            ("`https://u:p@h` and `a:b@c`", "`https://…@h` and `…@c`"),
            ("'a'b:c@d", "'…@d"),
            ("mail me@here", "mail me@here"),
            ("a:b@c:d@e f:g", "…@e f:g"),
            ("http://a@b http://c", "http://…@b http://c"),
            ("://://u@h", "://://…@h"),
            ("x\u{1b}y", "x\\u{1b}y"),
        ] {
            assert_eq!(sanitized(text), shown, "{text}");
        }
    }

    #[test]
    fn the_first_secret_hides_the_rest_of_a_line() {
        for (line, shown) in [
            ("key: abc, other: x", "key: …"),
            ("key: ${env:A} token: ${file:b} x", "key: ${env:A} token: ${file:b} x"),
            ("key: ${env:A} token: ${env:B:-c} x", "key: ${env:A} token: …"),
            ("key: ${env:A:-b}", "key: …"),
            ("url: http://u:p@h/ key: c", "url: http://…@h/ key: …"),
            ("key:", "key:"),
        ] {
            assert_eq!(shown_line(line), shown, "{line}");
        }
    }

    proptest! {
        #[test]
        fn each_character_is_searched_once(
            pieces in prop::collection::vec(
                prop::sample::select(
                    &["a", " ", "'", "`", "\"", ":", "/", "@", "://", "key", "key:", "${", "}", ":-", "${a}", "é", "\u{7}"][..],
                ),
                1..8,
            ),
            count in 1..2_000_usize,
        ) {
            let text = pieces.concat().repeat(count);
            let length = text.chars().count();
            LOOKED_AT.set(0);
            prop_assert!(sanitized(&text).len() <= 8 * MESSAGE_CHARS_MAX);
            prop_assert!(LOOKED_AT.get() <= length, "{} of {length} in a message", LOOKED_AT.get());
            LOOKED_AT.set(0);
            prop_assert!(shown_line(&text).chars().count() <= length + 1);
            // A word before a colon, a URL, the end of a reference and that of its name.
            prop_assert!(LOOKED_AT.get() <= 4 * length, "{} of {length} in a line", LOOKED_AT.get());
        }
    }
}
