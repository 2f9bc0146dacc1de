//! A terminal line that is overwritten while a command runs.

use std::io::{self, Write};

/// Assumed width of a terminal that does not report one.
const COLUMNS: usize = 80;

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
    fn a_text_is_written_over_the_last_one_and_cut_to_the_width() {
        assert_eq!(written(&[(80, "one"), (80, "two")]), ["\rone\x1b[J", "\rtwo\x1b[J"]);
        assert_eq!(written(&[(4, "█µ§xyz")]), ["\r█µ§\x1b[J"]);
        assert_eq!(written(&[(0, "x")]), ["\r\x1b[J"]);
    }

    #[test]
    fn what_a_narrower_terminal_has_broken_is_taken_back() {
        let texts = written(&[(80, &"x".repeat(60)), (40, "y"), (40, "z")]);
        assert_eq!(texts[1..], ["\x1b[1A\ry\x1b[J", "\rz\x1b[J"]);
    }

    #[test]
    fn what_was_never_shown_is_not_cleared() {
        let mut out = Vec::new();
        LiveLine::default().clear(&mut out);
        assert!(out.is_empty());
    }
}
