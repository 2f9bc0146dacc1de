//! Suggestions for commands and options that have other names in other programs.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Names of commands in other programs, and the commands here.
const COMMANDS: [(&str, &str); 16] = [
    ("validate", "check"),
    ("verify", "check"),
    ("lint", "check"),
    ("test", "check"),
    ("start", "run"),
    ("serve", "run"),
    ("server", "run"),
    ("up", "run"),
    ("proxy", "run"),
    ("config", "check"),
    ("diagnose", "doctor"),
    ("logs", "tail"),
    ("log", "tail"),
    ("watch", "tail"),
    ("ping", "health"),
    ("new", "init"),
];

/// Names of options in other programs, and the options here.
const OPTIONS: [(&str, &str); 7] = [
    ("--port", "--listen"),
    ("--bind", "--listen"),
    ("--address", "--listen"),
    ("--file", "--config"),
    ("--format", "--json"),
    ("--since", "--failed"),
    ("--last", "--failed"),
];

/// Replaces the suggestion of an error of the command line by a better one. No hidden command is suggested.
pub fn with_suggestion(mut error: clap::Error) -> clap::Error {
    let word = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.split('=').next().unwrap_or_default().to_owned()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = word(&error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let visible = match error.remove(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::Strings(names)) => {
                    names.into_iter().filter(|name| !name.starts_with("__")).collect()
                }
                _ => Vec::new(),
            };
            let suggested = known(&COMMANDS, &word).map_or(visible, |command| vec![command]);
            if !suggested.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(suggested));
            }
        }
        ErrorKind::UnknownArgument => {
            let word = word(&error, ContextKind::InvalidArg).unwrap_or_default();
            if let Some(option) = known(&OPTIONS, &word).or_else(|| status(&word)) {
                error.insert(ContextKind::SuggestedArg, ContextValue::String(option));
                // Nobody means the option as a value.
                error.remove(ContextKind::Suggested);
            }
        }
        _ => {}
    }
    error
}

/// Returns the option for a status or a class of them, such as `503` or `5xx`.
fn status(word: &str) -> Option<String> {
    let is_status = matches!(word.as_bytes(), [b'1'..=b'5', b'x', b'x'])
        || word.parse().is_ok_and(|status: u16| (100..600).contains(&status));
    is_status.then(|| format!("--status {word}"))
}

fn known(names: &[(&str, &str)], word: &str) -> Option<String> {
    names.iter().find(|(other, _)| *other == word).map(|(_, own)| (*own).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn message(arguments: &[&str]) -> String {
        let all = std::iter::once("egret").chain(arguments.iter().copied());
        with_suggestion(Cli::try_parse_from(all).unwrap_err()).to_string()
    }

    #[test]
    fn names_of_other_programs_lead_to_the_command() {
        for (other, own) in COMMANDS {
            let message = message(&[other]);
            assert!(message.contains(&format!("'{own}'")), "{message}");
        }
        let port = message(&["run", "--port", "8000"]);
        assert!(port.contains("'--listen'") && !port.contains("as a value"), "{port}");
        assert!(message(&["chekc"]).contains("'check'"));
        assert!(message(&["doctor", "--format", "json"]).contains("'--json'"));
        for status in ["5xx", "503"] {
            let message = message(&["tail", status]);
            assert!(message.contains(&format!("'--status {status}'")), "{message}");
        }
    }

    #[test]
    fn no_hidden_command_is_suggested() {
        for word in ["serve-command", "serve", "_serve-command", "served", "xyz"] {
            assert!(!message(&[word]).contains("__"), "{}", message(&[word]));
        }
    }
}
