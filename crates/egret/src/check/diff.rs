//! The difference between two texts, as `diff -u` prints it. Values that may be secrets are hidden.

use std::fmt::Write;

use egret_config::shown_line;

/// Number of unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// Number of comparisons above which everything between the first and the last change counts as changed.
const COMPARED_MAX: usize = 4_000_000;

/// A line, by its number in one of the texts or in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLine {
    Same(usize, usize),
    Removed(usize),
    Added(usize),
}

/// Returns the difference; empty if there is none.
pub fn unified(name: &str, before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let lines = lines(&old, &new);
    let is_changed = |line: &DiffLine| !matches!(line, DiffLine::Same(..));
    let mut text = String::new();
    let mut at = 0;
    while let Some(first) = lines.iter().skip(at).position(is_changed).map(|found| found + at) {
        let start = first.saturating_sub(CONTEXT_LINES).max(at);
        let mut end = first;
        // A hunk ends where more unchanged lines follow than two contexts have.
        while let Some(next) = lines.iter().skip(end).take(2 * CONTEXT_LINES + 1).position(is_changed) {
            end += next + 1;
        }
        let end = (end + CONTEXT_LINES).min(lines.len());
        let hunk = &lines[start..end];
        let count = |skipped: fn(&DiffLine) -> bool| hunk.iter().filter(|line| !skipped(line)).count();
        let (removed, added) = (
            count(|line| matches!(line, DiffLine::Added(_))),
            count(|line| matches!(line, DiffLine::Removed(_))),
        );
        let before_hunk = &lines[..start];
        let old_start = before_hunk.iter().filter(|line| !matches!(line, DiffLine::Added(_))).count();
        let new_start = before_hunk.iter().filter(|line| !matches!(line, DiffLine::Removed(_))).count();
        if text.is_empty() {
            let _ = writeln!(text, "--- {name}\n+++ {name}");
        }
        let _ = writeln!(text, "@@ -{},{removed} +{},{added} @@", old_start + 1, new_start + 1);
        for line in hunk {
            let (sign, line) = match line {
                DiffLine::Same(line, _) => (' ', old[*line]),
                DiffLine::Removed(line) => ('-', old[*line]),
                DiffLine::Added(line) => ('+', new[*line]),
            };
            let _ = writeln!(text, "{sign}{}", shown_line(line));
        }
        at = end;
    }
    text
}

/// Returns the lines of both texts in order.
fn lines(old: &[&str], new: &[&str]) -> Vec<DiffLine> {
    let same_start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same_start;
    let same_end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (old.len() - same_end, new.len() - same_end);
    let mut lines: Vec<DiffLine> = (0..same_start).map(|at| DiffLine::Same(at, at)).collect();
    lines.extend(changed(&old[..old_end], &new[..new_end], same_start));
    lines.extend((0..same_end).map(|at| DiffLine::Same(old_end + at, new_end + at)));
    lines
}

/// Returns the lines from `start` on, with as few changes as possible.
fn changed(old: &[&str], new: &[&str], start: usize) -> Vec<DiffLine> {
    let (height, width) = (old.len() - start, new.len() - start);
    if height.saturating_mul(width) > COMPARED_MAX {
        let removed = (start..old.len()).map(DiffLine::Removed);
        return removed.chain((start..new.len()).map(DiffLine::Added)).collect();
    }
    // The length of the longest common part of what follows two lines.
    let mut common = vec![vec![0_usize; width + 1]; height + 1];
    for row in (0..height).rev() {
        for column in (0..width).rev() {
            common[row][column] = if old[start + row] == new[start + column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column, mut lines) = (0, 0, Vec::new());
    while row < height || column < width {
        let (at, to) = (start + row, start + column);
        if row < height && column < width && old[at] == new[to] {
            lines.push(DiffLine::Same(at, to));
            (row, column) = (row + 1, column + 1);
        } else if row < height && (column == width || common[row + 1][column] >= common[row][column + 1]) {
            lines.push(DiffLine::Removed(at));
            row += 1;
        } else {
            lines.push(DiffLine::Added(to));
            column += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_three_lines_around_them() {
        let text = |changed: &[usize]| -> String {
            (1..=20)
                .map(|n| if changed.contains(&n) { format!("x{n}\n") } else { format!("{n}\n") })
                .collect()
        };
        assert_eq!(unified("a", &text(&[]), &text(&[])), "");
        assert_eq!(
            unified("a", &text(&[]), &text(&[2])),
            "--- a\n+++ a\n@@ -1,5 +1,5 @@\n 1\n-2\n+x2\n 3\n 4\n 5\n"
        );
        let two = unified("a", &text(&[]), &text(&[2, 20]));
        assert_eq!(two.matches("@@ -").count(), 2, "{two}");
        assert!(two.contains("@@ -17,4 +17,4 @@\n 17\n 18\n 19\n-20\n+x20\n"), "{two}");
        assert_eq!(unified("a", &text(&[]), &text(&[2, 8])).matches("@@ -").count(), 1);
    }

    #[test]
    fn a_moved_line_is_removed_and_added_and_secrets_are_hidden() {
        assert_eq!(
            unified("a", "token: hunter2\na\nb\n", "token: hunter2\nb\na\n"),
            "--- a\n+++ a\n@@ -1,3 +1,3 @@\n token: …\n-a\n b\n+a\n"
        );
    }
}
