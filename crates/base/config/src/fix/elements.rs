//! Moves an element of a list in the text of a config, with its comments.

use std::ops::Range;

use super::offset;
use crate::document::Document;
use crate::node::Node;
use crate::tree::Position;

/// Returns the text in which the element `from` of the list at `path` stands behind the element `to`. `None`
/// if the list is written in a way that makes this difficult, so that something else might change.
pub fn move_behind(text: &str, path: &str, from: usize, to: usize) -> Option<String> {
    let document = Document::parse("", text).ok()?;
    let starts: Vec<Position> = document.root().at_path(path)?.elements().map(Node::at).collect();
    if from >= to || to >= starts.len() {
        return None;
    }
    let ranges = block(text, &starts).or_else(|| flow(text, &starts))?;
    let mut order: Vec<usize> = (0..starts.len()).collect();
    let moved = order.remove(from);
    order.insert(to, moved);
    let mut result = text[..ranges.first()?.start].to_owned();
    for (place, element) in order.into_iter().enumerate() {
        let part = &text[ranges[element].clone()];
        result.push_str(part);
        // The last line of the file may have no end.
        let is_whole_line = text[..ranges[0].start].ends_with('\n') || ranges[0].start == 0;
        if is_whole_line && !part.ends_with('\n') {
            result.push('\n');
        }
        let next = ranges.get(place + 1).map_or(text.len(), |next| next.start);
        result.push_str(&text[ranges[place].end..next]);
    }
    let changed = Document::parse("", &result).ok()?;
    document.equals_moved(path, from, to, &changed).then_some(result)
}

/// Returns the lines of each element of a list whose elements begin with a dash, each with the comments above
/// it. `None` for another list.
fn block(text: &str, starts: &[Position]) -> Option<Vec<Range<usize>>> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let indentation = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let mut firsts = Vec::with_capacity(starts.len());
    for start in starts {
        let line = start.line.checked_sub(1)?;
        let text = lines.get(line)?;
        let before: String = text.chars().take(start.column.checked_sub(1)?).collect();
        if before.trim() != "-" || firsts.last().is_some_and(|last| *last >= line) {
            return None;
        }
        firsts.push(line);
    }
    let dash = indentation(lines.get(*firsts.first()?)?);
    let is_comment = |line: &str| line.trim_start().starts_with('#');
    let mut tops = Vec::with_capacity(firsts.len());
    for (number, first) in firsts.iter().enumerate() {
        let least =
            number.checked_sub(1).and_then(|before| firsts.get(before)).map_or(0, |before| before + 1);
        let mut top = *first;
        while top > least && is_comment(lines[top - 1]) && indentation(lines[top - 1]) == dash {
            top -= 1;
        }
        tops.push(top);
    }
    let last = *firsts.last()?;
    let mut end = last + 1;
    for (number, line) in lines.iter().enumerate().skip(last + 1) {
        let is_empty = line.trim().is_empty();
        if !is_empty && indentation(line) <= dash {
            break;
        }
        if !is_empty {
            end = number + 1;
        }
    }
    let mut offsets = vec![0];
    for line in &lines {
        offsets.push(offsets.last()? + line.len());
    }
    let ends = tops.iter().skip(1).copied().chain([end]);
    tops.iter().zip(ends).map(|(top, end)| Some(*offsets.get(*top)?..*offsets.get(end)?)).collect()
}

/// Returns the characters of each element of a list in brackets. `None` for another list.
fn flow(text: &str, starts: &[Position]) -> Option<Vec<Range<usize>>> {
    let mut ranges = Vec::with_capacity(starts.len());
    for start in starts {
        let start = offset(text, *start)?;
        ranges.push(start..start + length(text.get(start..)?)?);
    }
    let is_apart = ranges.windows(2).all(|pair| text[pair[0].end..pair[1].start].contains(','));
    is_apart.then_some(ranges)
}

/// Returns the length of the value that the text begins with, which a comma or bracket ends.
fn length(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut end) = (0_usize, None, 0);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some('"'), '\\') => {
                chars.next();
            }
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') if text[..at].ends_with(char::is_whitespace) => {
                let _ = chars.find(|(_, c)| *c == '\n');
                continue;
            }
            (None, '[' | '{') => depth += 1,
            (None, ',' | ']' | '}') if depth == 0 => return Some(end),
            (None, ']' | '}') => depth -= 1,
            _ => {}
        }
        if !c.is_whitespace() {
            end = at + c.len_utf8();
        }
    }
    None
}
