//! Lines of a terminal that are overwritten while a command runs.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Assumed width of a terminal that does not report one.
const COLUMNS: usize = 80;

/// Assumed height of a terminal that does not report one.
const ROWS: usize = 24;

/// A line whose text changes.
///
/// Each change is one write that overwrites the old text and clears the rest of the line, so nothing
/// flickers. The text is cut to the terminal's width, so it stays on one line.
#[derive(Debug, Default)]
pub struct LiveLine {
    /// Number of columns shown.
    shown: usize,
}

impl LiveLine {
    /// Shows the text that `text` returns for the number of columns available; longer text is cut.
    pub fn show(&mut self, out: &mut dyn Write, text: impl FnOnce(usize) -> String) {
        self.show_in(out, columns(), text);
    }

    fn show_in(&mut self, out: &mut dyn Write, columns: usize, text: impl FnOnce(usize) -> String) {
        // A character in the last column may or may not make the terminal wrap.
        let room = columns.saturating_sub(1);
        let text: String = text(room).chars().take(room).collect();
        let written = format!("{}{text}\x1b[J", self.start(columns));
        self.shown = text.chars().count();
        // A progress line that cannot be written is not worth stopping for.
        let _ = out.write_all(written.as_bytes()).and_then(|()| out.flush());
    }

    /// Clears the line.
    pub fn clear(&mut self, out: &mut dyn Write) {
        if self.shown > 0 {
            self.show(out, |_| String::new());
        }
    }

    /// Escape sequence that moves to the line's first column. A terminal that became narrower since the last
    /// write has wrapped the line over several rows.
    fn start(&self, columns: usize) -> String {
        match self.shown.saturating_sub(1) / columns.max(1) {
            0 => "\r".to_owned(),
            rows => format!("\x1b[{rows}A\r"),
        }
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Number of columns.
    pub columns: usize,
    /// Number of rows.
    pub rows: usize,
}

impl TerminalSize {
    /// The size of the terminal on standard output, or the usual one if it reports none.
    pub fn of_stdout() -> Self {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let or =
            |size: Option<u16>, usual: usize| size.map(usize::from).filter(|size| *size > 0).unwrap_or(usual);
        Self {
            columns: or(size.map(|size| size.ws_col), COLUMNS),
            rows: or(size.map(|size| size.ws_row), ROWS),
        }
    }
}

/// A part of a line in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledText {
    /// The text, without control characters.
    pub text: String,
    /// Number of the style for the terminal (SGR), such as 31 for red; `None` for the usual one.
    pub style: Option<u8>,
}

/// Several lines whose texts change.
///
/// Each change is one write that overwrites the old lines. Lines are cut to the terminal's width, and lines
/// that do not fit its height are left out.
#[derive(Debug, Default)]
pub struct LiveBlock {
    /// Number of columns of each line shown.
    shown: Vec<usize>,
}

impl LiveBlock {
    /// Shows the lines.
    pub fn show(&mut self, out: &mut dyn Write, size: TerminalSize, lines: &[Vec<StyledText>]) {
        let room = size.columns.saturating_sub(1);
        let mut written = self.start(size.columns);
        self.shown.clear();
        // The last row is for the cursor.
        for line in lines.iter().take(size.rows.saturating_sub(1)) {
            let mut columns = 0;
            for StyledText { text, style } in line {
                let text: String = text.chars().take(room - columns).collect();
                columns += text.chars().count();
                match style {
                    Some(style) if !text.is_empty() => {
                        let _ = write!(written, "\x1b[{style}m{text}\x1b[0m");
                    }
                    _ => written += &text,
                }
            }
            written += "\x1b[K\n";
            self.shown.push(columns);
        }
        written += "\x1b[J";
        // Lines that cannot be written are not worth stopping for.
        let _ = out.write_all(written.as_bytes()).and_then(|()| out.flush());
    }

    /// Clears the lines.
    pub fn clear(&mut self, out: &mut dyn Write, size: TerminalSize) {
        if !self.shown.is_empty() {
            self.show(out, size, &[]);
        }
    }

    /// Escape sequence that moves to the first line's first column. A terminal that became narrower since the
    /// last write has wrapped lines over several rows.
    fn start(&self, columns: usize) -> String {
        let rows: usize = self.shown.iter().map(|shown| 1 + shown.saturating_sub(1) / columns.max(1)).sum();
        if rows == 0 { "\r".to_owned() } else { format!("\r\x1b[{rows}A") }
    }
}

/// Number of columns of the terminal on standard error.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.map(|size| usize::from(size.ws_col)).ok().filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes written for each text in turn, at these widths.
    fn written(shows: &[(usize, &str)]) -> Vec<String> {
        let mut line = LiveLine::default();
        let each = shows.iter().map(|(columns, text)| {
            let mut out = Vec::new();
            line.show_in(&mut out, *columns, |_| (*text).to_owned());
            String::from_utf8(out).unwrap()
        });
        each.collect()
    }

    #[test]
    fn a_text_replaces_the_last_one_within_the_width() {
        assert_eq!(written(&[(80, "one"), (80, "two")]), ["\rone\x1b[J", "\rtwo\x1b[J"]);
        assert_eq!(written(&[(4, "█µ§xyz")]), ["\r█µ§\x1b[J"]);
        assert_eq!(written(&[(0, "x")]), ["\r\x1b[J"]);
    }

    #[test]
    fn a_line_wrapped_by_a_narrower_terminal_is_cleared() {
        let texts = written(&[(80, &"x".repeat(60)), (40, "y"), (40, "z")]);
        assert_eq!(texts[1..], ["\x1b[1A\ry\x1b[J", "\rz\x1b[J"]);
    }

    /// The bytes written when these lines are shown in a terminal of this size.
    fn block(block: &mut LiveBlock, (columns, rows): (usize, usize), lines: &[&str]) -> String {
        let lines = lines.iter().map(|text| vec![StyledText { text: (*text).to_owned(), style: None }]);
        let mut out = Vec::new();
        block.show(&mut out, TerminalSize { columns, rows }, &lines.collect::<Vec<_>>());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_block_is_written_over_the_last_one() {
        let mut live = LiveBlock::default();
        assert_eq!(block(&mut live, (80, 24), &["one", "two"]), "\rone\x1b[K\ntwo\x1b[K\n\x1b[J");
        assert_eq!(block(&mut live, (80, 24), &["x"]), "\r\x1b[2Ax\x1b[K\n\x1b[J");
        let mut out = Vec::new();
        live.clear(&mut out, TerminalSize { columns: 80, rows: 24 });
        live.clear(&mut out, TerminalSize { columns: 80, rows: 24 });
        assert_eq!(out, b"\r\x1b[1A\x1b[J");
    }

    #[test]
    fn a_block_is_cut_to_the_terminal_and_takes_wrapped_rows_back() {
        let mut live = LiveBlock::default();
        assert_eq!(block(&mut live, (4, 3), &["123456", "b", "c"]), "\r123\x1b[K\nb\x1b[K\n\x1b[J");
        let mut live = LiveBlock::default();
        block(&mut live, (80, 24), &["x".repeat(60).as_str(), "y"]);
        assert!(block(&mut live, (40, 24), &["z"]).starts_with("\r\x1b[3Az"));
        for size in [(0, 0), (1, 1), (0, 5), (5, 0)] {
            block(&mut live, size, &["abc", "d"]);
        }
    }

    #[test]
    fn styles_end_where_their_text_ends() {
        let line = [("a", None), ("bcd", Some(31)), ("e", Some(32))];
        let line = line.map(|(text, style)| StyledText { text: text.to_owned(), style });
        let mut out = Vec::new();
        let size = TerminalSize { columns: 4, rows: 24 };
        LiveBlock::default().show(&mut out, size, &[line.to_vec()]);
        assert_eq!(String::from_utf8(out).unwrap(), "\ra\x1b[31mbc\x1b[0m\x1b[K\n\x1b[J");
    }

    #[test]
    fn a_line_never_shown_is_not_cleared() {
        let mut out = Vec::new();
        LiveLine::default().clear(&mut out);
        assert!(out.is_empty());
    }
}
