//! Fixes obvious mistakes in the text of a config: a misspelt word, tabs, a missing space after a colon, a
//! number in quotes, list entries in the wrong order. Comments and everything else stay as they are.
//!
//! Each change is tried, and kept only if the config then has fewer mistakes and no new ones.

mod elements;

use std::ops::Range;

use crate::problem::is_near;
use crate::report::{Finding, ReadingStep, Report, Severity};
use crate::tree::Position;

pub use elements::move_behind;

/// Maximum number of changes. Each of them is tried by reading the whole config.
const CHANGES_MAX: usize = 100;

/// Numbers of spaces that a tab may stand for.
const TAB_WIDTHS: [usize; 3] = [2, 4, 8];

/// Returns the text with its obvious mistakes fixed. `check` returns the report about a text, which is empty
/// if the text is valid.
pub fn fix_text(text: &str, check: impl Fn(&str) -> Report) -> String {
    let mut text = text.to_owned();
    let mut report = check(&text);
    for _ in 0..CHANGES_MAX {
        let changed = report.findings.iter().flat_map(|finding| {
            let texts = changes(&text, finding);
            texts.into_iter().map(move |changed| (finding, changed))
        });
        let better = changed.filter(|(_, changed)| *changed != text).find_map(|(finding, changed)| {
            let after = check(&changed);
            is_better(finding, &report, &after).then_some((changed, after))
        });
        let Some(better) = better else { break };
        (text, report) = better;
    }
    text
}

/// Returns `true` if a finding is gone and no new one is there. What was hidden before is not new: what rules
/// find in a config that could not be read, and what is wrong in an entry whose key was.
fn is_better(finding: &Finding, before: &Report, after: &Report) -> bool {
    let (first, next) = (step(before), step(after));
    if first == Some(ReadingStep::Syntax) {
        return next != Some(ReadingStep::Syntax) || position(after) > position(before);
    }
    let is_same = |a: &Finding, b: &Finding| {
        (&a.problem.path, &a.problem.message, a.step) == (&b.problem.path, &b.problem.message, b.step)
    };
    let count = |report: &Report| report.findings.iter().filter(|other| is_same(finding, other)).count();
    let parent = finding.problem.path.rsplit_once('.').map_or("", |(parent, _)| parent);
    let renamed = format!("{parent}.{}", finding.problem.suggestion.as_deref().unwrap_or_default());
    let is_known = |new: &Finding| {
        before.findings.iter().any(|old| is_same(old, new))
            || new.step > finding.step
            || new.problem.path.starts_with(renamed.trim_start_matches('.'))
                && finding.problem.suggestion.is_some()
    };
    count(after) < count(before) && next != Some(ReadingStep::Syntax) && after.findings.iter().all(is_known)
}

/// The first step that found something.
fn step(report: &Report) -> Option<ReadingStep> {
    let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| finding.step).min()
}

fn position(report: &Report) -> Option<(u16, usize, usize)> {
    report.findings.first().map(Finding::position)
}

/// Returns the texts that may be what was meant, the likeliest first.
fn changes(text: &str, finding: &Finding) -> Vec<String> {
    let Some(at) = finding.at.filter(|_| finding.source == 0) else { return Vec::new() };
    let mut texts = Vec::new();
    if finding.step == ReadingStep::Syntax {
        texts.extend(TAB_WIDTHS.iter().map(|width| without_tabs(text, *width)));
    }
    if let Some(word) = &finding.problem.suggestion {
        texts.extend(token(text, at).and_then(|token| token.renamed(text, word)));
    }
    texts.extend(token(text, at).and_then(|token| token.unquoted(text)));
    texts.extend(spaced(text, at.line));
    texts
}

/// A word at a position.
struct Token {
    /// Its bytes, with its quotes.
    range: Range<usize>,
    /// The quote around it.
    quote: Option<char>,
}

/// Returns the word that begins at a position, if it is a single one.
fn token(text: &str, at: Position) -> Option<Token> {
    let start = offset(text, at)?;
    let rest = &text[start..];
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let inner = quote.map_or(rest, |_| &rest[1..]);
    let length = inner.find(|c: char| !is_word(c)).unwrap_or(inner.len());
    let after = &inner[length..];
    let end = match quote {
        Some(quote) => after.starts_with(quote).then_some(start + length + 2)?,
        None => start + length,
    };
    let is_boundary = |c: char| c.is_whitespace() || matches!(c, ':' | ',' | ']' | '}');
    let is_whole = length > 0 && text[end..].chars().next().is_none_or(is_boundary);
    is_whole.then_some(Token { range: start..end, quote })
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+')
}

impl Token {
    fn inner<'a>(&self, text: &'a str) -> &'a str {
        let quotes = usize::from(self.quote.is_some());
        &text[self.range.start + quotes..self.range.end - quotes]
    }

    /// Returns the text with another word instead of this one, if they differ by a slip of the pen. A number
    /// without its unit is not changed: the unit is a guess. Nor is a word that only begins like the other.
    fn renamed(&self, text: &str, word: &str) -> Option<String> {
        let inner = self.inner(text);
        let is_slip = inner.parse::<f64>().is_err() && word.chars().all(is_word) && is_near(inner, word);
        let quote = self.quote.map(String::from).unwrap_or_default();
        is_slip.then(|| self.replaced(text, &format!("{quote}{word}{quote}")))
    }

    /// Returns the text without the quotes around this number or truth value.
    fn unquoted(&self, text: &str) -> Option<String> {
        let inner = self.inner(text);
        let is_scalar = inner.parse::<f64>().is_ok_and(f64::is_finite) || matches!(inner, "true" | "false");
        (self.quote.is_some() && is_scalar).then(|| self.replaced(text, inner))
    }

    fn replaced(&self, text: &str, new: &str) -> String {
        [&text[..self.range.start], new, &text[self.range.end..]].concat()
    }
}

/// Returns the offset of a position.
fn offset(text: &str, at: Position) -> Option<usize> {
    let mut start = 0;
    for line in text.split_inclusive('\n').take(at.line.checked_sub(1)?) {
        start += line.len();
    }
    // The positions do not count a byte order mark.
    let mark = if at.line == 1 && text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let line = &text[start + mark..];
    let column = line.char_indices().nth(at.column.checked_sub(1)?).map_or(line.len(), |(index, _)| index);
    Some(start + mark + column)
}

/// Returns the texts with a space after one of the colons in that line, or in the line before.
fn spaced(text: &str, line: usize) -> Vec<String> {
    let mut texts = Vec::new();
    let mut start = 0;
    for (number, content) in (1..).zip(text.split_inclusive('\n')) {
        if number == line || number + 1 == line {
            for colon in colons(content) {
                let at = start + colon + 1;
                texts.push([&text[..at], " ", &text[at..]].concat());
            }
        }
        start += content.len();
    }
    texts
}

/// Returns the colons that follow a word at a place for keys, and that no space follows.
fn colons(line: &str) -> Vec<usize> {
    let is_key = |before: &str| {
        let word = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let place = word.trim_end();
        let at_start = place.is_empty() || place.trim_start() == "-";
        word.len() < before.len() && (at_start || place.ends_with(['{', ',']))
    };
    let is_joined = |after: &str| after.chars().next().is_some_and(|c| !c.is_whitespace());
    let found = line.match_indices(':').map(|(at, _)| at);
    found.filter(|at| is_key(&line[..*at]) && is_joined(&line[at + 1..])).collect()
}

/// Returns the text with spaces instead of the tabs that lines begin with. Within texts of several lines,
/// tabs behind the indentation are content, and stay.
fn without_tabs(text: &str, width: usize) -> String {
    let mut result = String::with_capacity(text.len());
    // The indentation of the line that a text of several lines belongs to.
    let mut block: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches([' ', '\t']);
        let blank = &line[..line.len() - content.len()];
        let indentation = blank.chars().map(|c| if c == '\t' { width } else { 1 }).sum();
        if block.is_some_and(|outer| content.trim().is_empty() || indentation > outer) {
            let tabs = blank.len() - blank.trim_start_matches('\t').len();
            result.push_str(&" ".repeat(tabs * width));
            result.push_str(&line[tabs..]);
            continue;
        }
        result.push_str(&" ".repeat(indentation));
        result.push_str(content);
        let header = content.split(" #").next().unwrap_or_default().trim_end();
        let is_block = ["|", "|-", "|+", ">", ">-", ">+"].iter().any(|style| header.ends_with(style));
        block = is_block.then_some(indentation);
    }
    result
}

#[cfg(test)]
mod tests;
