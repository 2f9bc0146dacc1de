//! Common mistakes in YAML, found in the text once the parser has refused it. The parser reports where it was
//! lost, in its own terms; a mistake says what to write instead, at the place to change.

use crate::position::Position;

/// A mistake and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlMistake {
    pub at: Position,
    pub message: String,
}

impl YamlMistake {
    fn new(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self { at: Position { line, column }, message: message.into() }
    }
}

/// Returns the mistake that probably made the parser fail at `failed_at`, if it is a known one.
pub(crate) fn find(text: &str, failed_at: Position) -> Option<YamlMistake> {
    let lines: Vec<&str> = text.lines().collect();
    let scan = YamlScan::of(&lines);
    tab(&lines, failed_at)
        .or_else(|| scan.unclosed(&lines, failed_at))
        .or(scan.unopened)
        .or_else(|| quoted_start(&lines, failed_at))
        .or_else(|| second_colon(&lines, failed_at))
        .or_else(|| indentation(&lines, failed_at))
}

/// A tab before the first other character of a line, at or just before the failure.
fn tab(lines: &[&str], failed_at: Position) -> Option<YamlMistake> {
    let last = failed_at.line.min(lines.len());
    (1..=last).rev().take(2).find_map(|number| {
        let line = lines[number - 1];
        let blank = line.chars().take_while(|c| c.is_whitespace());
        let column = blank.enumerate().find(|(_, c)| *c == '\t')?.0 + 1;
        Some(YamlMistake::new(number, column, "a tab in the indentation: YAML allows only spaces there"))
    })
}

/// The findings of a pass over quotes, comments and brackets.
struct YamlScan {
    /// Brackets that are still open at the end, outermost first, with their lines and columns.
    open: Vec<(char, Position)>,
    /// A quote that is still open at the end.
    quote: Option<(char, Position)>,
    /// The first bracket that closes none.
    unopened: Option<YamlMistake>,
}

impl YamlScan {
    fn of(lines: &[&str]) -> Self {
        let mut scan = Self { open: Vec::new(), quote: None, unopened: None };
        let mut block: Option<usize> = None;
        for (index, line) in lines.iter().enumerate() {
            if let Some(parent) = block {
                // The lines of a text after `|` or `>` are no YAML.
                if line.trim().is_empty() || indent(line) > parent {
                    continue;
                }
                block = None;
            }
            scan.line(index + 1, line);
            let header = line.split(" #").next().unwrap_or_default().trim_end();
            if scan.quote.is_none() && starts_block(header) {
                block = Some(indent(line));
            }
        }
        scan
    }

    fn line(&mut self, number: usize, line: &str) {
        let mut before = ' ';
        let mut characters = line.chars().enumerate().peekable();
        while let Some((index, c)) = characters.next() {
            let at = Position { line: number, column: index + 1 };
            match (self.quote, c) {
                (Some(('"', _)), '\\') => {
                    characters.next();
                }
                (Some(('\'', _)), '\'') if characters.peek().is_some_and(|(_, next)| *next == '\'') => {
                    characters.next();
                }
                (Some((quote, _)), c) if c == quote => self.quote = None,
                (None, '#') if before == ' ' || index == 0 => return,
                // A quote within a word is part of it.
                (None, '"' | '\'') if !is_word(before) => self.quote = Some((c, at)),
                (None, '{' | '[') if self.starts_flow(before) => self.open.push((c, at)),
                (None, '}' | ']') => self.close(c, at, before, line),
                _ => {}
            }
            before = c;
        }
    }

    /// Returns `true` if a bracket after `before` opens a list or mapping, and is no part of a plain text
    /// such as `${env:NAME}` or `/v1/{id}`.
    fn starts_flow(&self, before: char) -> bool {
        before == ' ' || matches!(before, '{' | '[' | ',') && !self.open.is_empty()
    }

    fn close(&mut self, c: char, at: Position, before: char, line: &str) {
        let opening = if c == '}' { '{' } else { '[' };
        match self.open.last() {
            Some((open, _)) if *open == opening => {
                self.open.pop();
            }
            // In a plain text of a block, such as `${env:NAME}`.
            None if before != ' ' => {}
            _ if self.unopened.is_some() => {}
            Some((open, opened)) => {
                let wanted = if *open == '{' { '}' } else { ']' };
                let message = format!(
                    "`{c}` does not close the `{open}` in line {}, column {}: write `{wanted}`",
                    opened.line, opened.column
                );
                self.unopened = Some(YamlMistake { at, message });
            }
            None => {
                let message = if line.get(..at.column).is_some_and(|before| before.contains("${")) {
                    "put quotes around `${...}` inside `{ }` and `[ ]`".to_owned()
                } else {
                    format!("`{c}` closes nothing: remove it")
                };
                self.unopened = Some(YamlMistake { at, message });
            }
        }
    }

    /// A quote or bracket that is not closed before the parser fails.
    fn unclosed(&self, lines: &[&str], failed_at: Position) -> Option<YamlMistake> {
        if let Some((quote, at)) = self.quote {
            return Some(YamlMistake {
                at,
                message: format!("the text that begins here has no closing `{quote}`"),
            });
        }
        let (open, at) = *self.open.last()?;
        if self.unopened.is_some() || failed_at.line < at.line {
            return None;
        }
        let close = if open == '{' { '}' } else { ']' };
        // Usually the rest of its line belongs to it.
        let end = lines.get(at.line - 1).map_or(0, |line| line.trim_end().chars().count());
        let message = if failed_at.line == at.line {
            format!("`{open}` has no closing `{close}`")
        } else {
            format!(
                "`{open}` has no closing `{close}`: add it, probably at the end of the line, after column {end}"
            )
        };
        Some(YamlMistake { at, message })
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '{' | '[' | ',' | ':' | '(')
}

/// Returns `true` for the end of a line after which a text of several lines follows.
fn starts_block(header: &str) -> bool {
    ["|", "|-", "|+", ">", ">-", ">+"]
        .iter()
        .any(|style| header.strip_suffix(style).is_some_and(|rest| rest.ends_with([' ', ':', '-'])))
}

/// A plain text that begins with a character that has a meaning in YAML.
fn quoted_start(lines: &[&str], failed_at: Position) -> Option<YamlMistake> {
    let line = lines.get(failed_at.line.checked_sub(1)?)?;
    if line.trim_start().starts_with('#') {
        return None;
    }
    let characters: Vec<char> = line.chars().collect();
    let starts = (0..characters.len()).filter(|index| {
        let before = index.checked_sub(1).map_or(' ', |before| characters[before]);
        matches!(before, ' ' | '[' | '{' | ',')
    });
    let found = starts.into_iter().find(|index| match characters[*index] {
        '@' | '`' | '%' => true,
        // An alias is a word.
        '*' | '&' => characters.get(index + 1).is_none_or(|next| !next.is_ascii_alphanumeric()),
        _ => false,
    })?;
    let message = format!("a text that begins with `{}` needs quotes", characters[found]);
    Some(YamlMistake::new(failed_at.line, found + 1, message))
}

/// A second colon in a plain text: `a: b: c`.
fn second_colon(lines: &[&str], failed_at: Position) -> Option<YamlMistake> {
    let line = *lines.get(failed_at.line.checked_sub(1)?)?;
    let code = line.split(" #").next().unwrap_or_default();
    let first = code.find(": ")?;
    let second = first
        + 2
        + code[first + 2..].find(": ").or_else(|| code[first + 2..].strip_suffix(':').map(str::len))?;
    if code[..second].contains(['"', '\'', '{', '[']) {
        return None;
    }
    let column = code[..second].chars().count() + 1;
    let message = "a second `:` in one line: put the text in quotes, or the key in a line of its own";
    Some(YamlMistake::new(failed_at.line, column, message))
}

/// A line whose indentation fits no line before it.
fn indentation(lines: &[&str], failed_at: Position) -> Option<YamlMistake> {
    let is_content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    // Where a mapping should go on, the parser fails at the next line.
    let here = (1..=failed_at.line.min(lines.len())).rev().find(|number| is_content(lines[number - 1]))?;
    let own = indent(lines[here - 1]);
    let mut open: Vec<(usize, usize)> = Vec::new();
    for number in (1..here).filter(|number| is_content(lines[number - 1])) {
        let width = indent(lines[number - 1]);
        open.retain(|(_, other)| *other < width);
        open.push((number, width));
    }
    if own == 0 || open.iter().any(|(_, width)| *width == own) {
        return None;
    }
    let (line, width) = open.iter().rev().min_by_key(|(_, width)| width.abs_diff(own))?;
    let message = format!(
        "this line is indented by {own} {}, line {line} by {width}: entries that belong together have the same indentation",
        if own == 1 { "space" } else { "spaces" }
    );
    Some(YamlMistake::new(here, own + 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns line, column and message of the mistake in a text that the parser refuses.
    fn mistake(text: &str) -> String {
        let error = crate::tree::parse(text).expect_err(text);
        format!("{}:{}: {error}", error.at.line, error.at.column)
    }

    #[test]
    fn a_common_mistake_is_named_at_its_place() {
        for (text, expected) in [
            ("a:\n\tb: 1\n", "2:1: a tab in the indentation: YAML allows only spaces there"),
            (
                "a:\n  b: { c: 1\nd: 2\n",
                "2:6: `{` has no closing `}`: add it, probably at the end of the line, after column 11",
            ),
            ("a: [1, 2\n", "1:4: `[` has no closing `]`"),
            ("a: { b: [1} }\n", "1:11: `}` does not close the `[` in line 1, column 9: write `]`"),
            ("a: { b: ${env:X} }\n", "1:18: put quotes around `${...}` inside `{ }` and `[ ]`"),
            ("a: \"one\nb: 2\n", "1:4: the text that begins here has no closing `\"`"),
            ("a: *.example.com\n", "1:4: a text that begins with `*` needs quotes"),
            ("a: @x\n", "1:4: a text that begins with `@` needs quotes"),
            (
                "a: b: c\n",
                "1:5: a second `:` in one line: put the text in quotes, or the key in a line of its own",
            ),
            (
                "a:\n    b: 1\n   c: 2\n",
                "3:4: this line is indented by 3 spaces, line 2 by 4: entries that belong together have the same indentation",
            ),
        ] {
            assert_eq!(mistake(text), expected, "{text}");
        }
    }

    #[test]
    fn brackets_in_texts_comments_and_blocks_are_no_mistakes() {
        let text = "a: \"{\" # [\nb: |\n  { [ '\nc: ${env:X}\nd: /v1/{id}\ne: it's\nf: ['it''s', \"\\\"\"]\n";
        let scan = YamlScan::of(&text.lines().collect::<Vec<_>>());
        assert_eq!((scan.open.len(), scan.quote, scan.unopened), (0, None, None));
        crate::tree::parse(text).unwrap();
    }
}
