//! Standard output and standard error of a command, either of which may be closed by whoever reads it, as
//! `head` does.
//!
//! What nobody reads any more is dropped. The command goes on and ends with the exit code that it would have
//! had: files that it writes are whole, and a script that looks at the code learns what became of the command
//! and not of its reader. `println!` and `eprintln!` panic instead, which is why clippy refuses them here and
//! in the binary.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Standard output. A reader that has left is no error; a full disk is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdout;

/// Standard error. Nothing is an error: there is nowhere left to report it.
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

/// Writes a text to standard output at once.
pub fn print(text: &str) -> io::Result<()> {
    Stdout.write_all(text.as_bytes())?;
    Stdout.flush()
}

/// Writes a line to standard error.
pub fn say(line: impl Display) {
    let _ = Stderr.write_all(format!("{line}\n").as_bytes());
}

/// The result, or `dropped` where the reader has left.
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
    fn a_reader_that_has_left_is_no_error_and_a_full_disk_is_one() {
        let failed = |kind: ErrorKind| unless_gone(Err(kind.into()), 3).map_err(|error| error.kind());
        assert_eq!(failed(ErrorKind::BrokenPipe), Ok(3));
        assert_eq!(failed(ErrorKind::StorageFull), Err(ErrorKind::StorageFull));
        assert_eq!(unless_gone(Ok(2), 3).unwrap(), 2);
    }
}
