//! Formats problems: file, line, column, path, message, and the source line with a caret.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::problem::Problem;
use crate::source::Source;
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
        let findings = problems.into_iter().map(|problem| Finding::unplaced(name, problem, Step::Rules));
        Self::new(name, findings.collect())
    }

    /// Creates a report of one problem that concerns the text as a whole.
    pub fn whole(name: &str, message: impl Into<String>) -> Self {
        Self::new(name, vec![Finding::unplaced(name, Problem::new("", message), Step::Syntax)])
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
    pub(crate) step: Step,
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
pub(crate) enum Step {
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
    pub(crate) fn new(problem: Problem, step: Step, spot: Spot, source: &Source<'_>) -> Self {
        let excerpt = Excerpt::cut(source.text, spot);
        let file = Arc::from(source.name);
        let (severity, at) = (Severity::Error, Some(spot.at));
        Self { problem, file, severity, step, source: spot.source, at, related: None, excerpt }
    }

    pub(crate) fn related_to(self, related: Option<Place>) -> Self {
        Self { related, ..self }
    }

    fn unplaced(name: &str, problem: Problem, step: Step) -> Self {
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
    for colon in (0..line.len()).filter(|index| line[*index] == ':') {
        if line[colon..].starts_with(&[':', '/', '/']) {
            ranges.extend(user_information(line, colon + 3));
        } else if sounds_secret(&line[..colon]) {
            ranges.extend(value_after(line, colon + 1));
        }
    }
    ranges
}

fn sounds_secret(before: &[char]) -> bool {
    let word = before.iter().rev().skip_while(|c| matches!(c, '"' | '\'' | ' '));
    let word: String = word.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect();
    let word: String = word.chars().rev().map(|c| c.to_ascii_lowercase()).collect();
    SECRET_WORDS.iter().any(|secret| word.contains(secret))
}

/// The range from the value's first character to the end of the line, because the end of the value is
/// uncertain.
fn value_after(line: &[char], from: usize) -> Option<std::ops::Range<usize>> {
    let start = (from..line.len()).find(|index| !line[*index].is_whitespace())?;
    let quoted = start + usize::from(matches!(line[start], '"' | '\''));
    let reference: String = line[quoted..].iter().take_while(|c| **c != '}').collect();
    // A default would be the secret itself.
    let is_reference = reference.starts_with("${") && !reference.contains(":-");
    (!is_reference).then_some(start..line.len())
}

fn user_information(line: &[char], from: usize) -> Option<std::ops::Range<usize>> {
    let authority = line[from..].iter().take_while(|c| !c.is_whitespace() && **c != '/').count();
    let at = line[from..from + authority].iter().rposition(|c| *c == '@')?;
    Some(from..from + at)
}

/// Text from the config, made safe for a terminal or a log: no control characters, no user information of
/// URLs.
struct Sanitized<'a>(&'a str);

impl fmt::Display for Sanitized<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chars: Vec<char> = self.0.chars().collect();
        let mut next = 0;
        while next < chars.len() {
            if let Some(hidden) = credentials(&chars, next) {
                f.write_str("…")?;
                next = hidden.end;
            }
            let c = chars[next];
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
            next += 1;
        }
        Ok(())
    }
}

/// The range of user information that starts here, if any: after `://`, or as `user:password@` in a message
/// about a part of a URL.
fn credentials(text: &[char], from: usize) -> Option<std::ops::Range<usize>> {
    let before = &text[..from];
    let is_quote = |c: &char| matches!(c, '`' | '"' | '\'');
    let in_url = before.ends_with(&[':', '/', '/']);
    let starts_word =
        before.last().is_none_or(|c| c.is_whitespace() || is_quote(c)) && !is_quote(&text[from]);
    let range = user_information(text, from).filter(|range| !range.is_empty())?;
    (in_url || starts_word && text[range.clone()].contains(&':')).then_some(range)
}
