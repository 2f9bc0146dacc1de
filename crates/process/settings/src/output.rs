//! Standard output and standard error of the commands.

use std::io::{self, IsTerminal};

use egret_json::printable::printable;
use egret_measure::streams;

use crate::failure::Failure;

/// Prints to standard output. Unprintable characters are replaced.
pub fn print(text: &str) -> Result<(), Failure> {
    streams::print(text).map_err(|error| failed(&error))
}

/// Prints JSON to standard output. Unprintable characters are escaped.
pub fn print_json(json: &str) -> Result<(), Failure> {
    streams::print_json(json).map_err(|error| failed(&error))
}

/// Prints to standard output as it is, for a shell that reads it.
pub fn print_exact(text: &str) -> Result<(), Failure> {
    streams::print_exact(text).map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot write to standard output: {error}"))
}

/// Writes the reason why a command failed to standard error, in colors if a terminal shows them.
pub fn say_failure(failure: &Failure) {
    let text = failure.to_string();
    let text = printable(&text);
    streams::say_exact(if has_colors() { painted(&text).into() } else { text });
}

/// Returns `true` if standard error is a terminal with colors, and the user does not mind.
pub fn has_colors() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

const BOLD: &str = "\x1b[1m";
const ERROR: &str = "\x1b[1;31m";
const GUTTER: &str = "\x1b[34m";
const SUGGESTION: &str = "\x1b[1;32m";
const PLAIN: &str = "\x1b[0m";

/// Paints the places, excerpts and suggestions of messages. The text itself stays the same.
fn painted(text: &str) -> String {
    let lines = text.split('\n').enumerate().map(|(number, line)| match excerpt(line) {
        Some((gutter, marks)) if !marks.is_empty() && marks.trim_matches([' ', '^']).is_empty() => {
            format!("{GUTTER}{gutter}{PLAIN}{ERROR}{marks}{PLAIN}")
        }
        Some((gutter, line)) => format!("{GUTTER}{gutter}{PLAIN}{line}"),
        None => match place(line) {
            Some((place, message)) => format!("{BOLD}{place}{PLAIN}{}", with_suggestion(message)),
            None if number == 0 => format!("{ERROR}{line}{PLAIN}"),
            None => line.to_owned(),
        },
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Splits a line of an excerpt, `12 | text`, after its gutter.
fn excerpt(line: &str) -> Option<(&str, &str)> {
    let bar = line.find(" | ")?;
    line[..bar].bytes().all(|byte| byte.is_ascii_digit() || byte == b' ').then(|| line.split_at(bar + 3))
}

/// Splits a message after its place, `file:1:2: `.
fn place(line: &str) -> Option<(&str, &str)> {
    let (mut end, mut numbers) = (0, 0);
    for part in line.split_inclusive(':') {
        end += part.len();
        let is_number = part.len() > 1 && part[..part.len() - 1].bytes().all(|byte| byte.is_ascii_digit());
        numbers = if is_number { numbers + 1 } else { 0 };
        if numbers == 2 {
            return Some(line.split_at(end));
        }
    }
    None
}

fn with_suggestion(message: &str) -> String {
    match message.rsplit_once("; did you mean ") {
        Some((message, meant)) => format!("{message}; did you mean {SUGGESTION}{meant}{PLAIN}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_marks_and_suggestions_are_painted_and_nothing_is_lost() {
        let text = "a b.yaml:2:5: providers: unknown key `x`; did you mean `y`?\n2 |   x: 1\n  |   ^\n\nb: no such file";
        let painted = painted(text);
        for part in [
            "\x1b[1ma b.yaml:2:5:\x1b[0m providers",
            "did you mean \x1b[1;32m`y`?\x1b[0m\n",
            "\x1b[34m2 | \x1b[0m  x: 1\n",
            "\x1b[34m  | \x1b[0m\x1b[1;31m  ^\x1b[0m\n",
            "\nb: no such file",
        ] {
            assert!(painted.contains(part), "{part:?} in {painted:?}");
        }
        let colors = [BOLD, ERROR, GUTTER, SUGGESTION, PLAIN];
        assert_eq!(colors.iter().fold(painted, |text, color| text.replace(color, "")), text);
        assert_eq!(super::painted("a: no such file"), "\x1b[1;31ma: no such file\x1b[0m");
    }
}
