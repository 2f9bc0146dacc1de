//! Standard output and standard error of a command, which keep working after their reader has closed them, as
//! `head` does.
//!
//! Text without a reader is dropped. The command continues and ends with its usual exit code: the files it
//! writes are complete, and a script that checks the code learns about the command and not about its reader.
//! Texts of strangers cannot command the terminal: unprintable characters are replaced, or escaped in JSON.
//! `println!` and `eprintln!` panic instead, so clippy rejects them here and in the binary.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use egret_json::printable::{printable, printable_json};

/// Standard output. A closed reader is not an error; a full disk is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdout;

/// Standard error. Errors are ignored: there is no place left to report them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stderr;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_gone(io::stdout().write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_gone(io::stdout().flush(), ())
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(io::stderr().write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a text to standard output at once. Unprintable characters are replaced.
pub fn print(text: &str) -> io::Result<()> {
    print_exact(&printable(text))
}

/// Writes JSON to standard output at once. Unprintable characters are escaped.
pub fn print_json(json: &str) -> io::Result<()> {
    print_exact(&printable_json(json))
}

/// Writes a text to standard output at once, as it is. It must not come from a stranger.
pub fn print_exact(text: &str) -> io::Result<()> {
    Stdout.write_all(text.as_bytes())?;
    Stdout.flush()
}

/// Writes a line to standard error. Unprintable characters are replaced.
pub fn say(line: impl Display) {
    say_exact(printable(&line.to_string()));
}

/// Writes a line to standard error, as it is, so it may have colors. It must not come from a stranger.
pub fn say_exact(line: impl Display) {
    let _ = Stderr.write_all(format!("{line}\n").as_bytes());
}

/// Returns the result, or `dropped` if the reader has closed the stream.
fn unless_gone<T>(result: io::Result<T>, dropped: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(dropped),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_reader_is_no_error_unlike_a_full_disk() {
        let failed = |kind: ErrorKind| unless_gone(Err(kind.into()), 3).map_err(|error| error.kind());
        assert_eq!(failed(ErrorKind::BrokenPipe), Ok(3));
        assert_eq!(failed(ErrorKind::StorageFull), Err(ErrorKind::StorageFull));
        assert_eq!(unless_gone(Ok(2), 3).unwrap(), 2);
    }
}
