//! Secrets that commands print: `${exec:NAME}` refers to the command called `NAME` in `secrets.commands`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use egret_config::{FetchedSecret, Problem, SECRET_BYTES_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::bounded_command::BoundedCommand;
use crate::written_texts::for_each_text;

/// Beginning of a reference.
const PREFIX: &str = "${exec:";

/// Maximum number of commands in a config.
pub const COMMANDS_MAX: usize = 64;

/// Maximum number of words of a command.
const WORDS_MAX: usize = 64;

/// Bounds of a command's time.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_mins(1);

/// Least lifetime of a secret.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

/// A command that prints a secret to its standard output, which must be UTF-8 of at most 64 KiB. Line ends
/// at its end are dropped. No shell reads the command, and it gets neither input nor the variables with
/// secrets of this config. What it is called with can be read by users of the machine and of the API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretCommand {
    /// The program and its arguments, like `[vault, kv, get, -field=key, secret/stripe]`. A program without
    /// `/` is looked up in `PATH`.
    #[schemars(length(min = 1, max = 64))]
    pub command: Vec<String>,
    /// Time after which the command is run again, at least `1s`. Choose less than the time for which the
    /// secret is valid. If the command fails then, the last secret stays in use, and the command is run again
    /// every 30 seconds.
    #[serde(default = "egret_config::secs::<3600>")]
    pub lifetime: egret_config::Duration,
    /// Time after which the command is killed, from `100ms` to `60s`.
    #[serde(default = "egret_config::secs::<10>")]
    pub timeout: egret_config::Duration,
}

/// Commands by their names.
pub type SecretCommandConfigs = BTreeMap<String, SecretCommand>;

impl SecretCommand {
    /// Returns the key with a mistake, and the mistake.
    fn mistake(&self) -> Option<(&'static str, String)> {
        if self.command.first().is_none_or(String::is_empty) {
            return Some((
                "command",
                "write the program and its arguments, like `[pass, show, stripe]`".into(),
            ));
        }
        if self.command.len() > WORDS_MAX {
            return Some(("command", format!("must have at most {WORDS_MAX} words")));
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return Some(("command", "a word of a command cannot contain a zero byte".into()));
        }
        if self.lifetime.get() < LIFETIME_MIN {
            return Some(("lifetime", "must be at least `1s`".into()));
        }
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout.get()) {
            return Some(("timeout", "must be from `100ms` to `60s`".into()));
        }
        None
    }

    /// Runs it without these variables, and returns what it has printed.
    pub fn run(&self, withheld: &BTreeSet<String>) -> FetchedSecret {
        let (words, timeout) = (&*self.command, self.timeout.get());
        let command = BoundedCommand { words, timeout, bytes_max: SECRET_BYTES_MAX, withheld };
        let printed = command.run().map_err(|error| error.to_string())?;
        let secret = printed.trim_end_matches(['\r', '\n']);
        if secret.is_empty() {
            return Err("it prints nothing".to_owned());
        }
        Ok(Zeroizing::new(secret.to_owned()))
    }
}

/// Reports mistakes in the commands, and references to commands that there are not, anywhere in a serialized
/// config.
pub fn problems(commands: &SecretCommandConfigs, written: &Value, problems: &mut Vec<Problem>) {
    if commands.len() > COMMANDS_MAX {
        problems
            .push(Problem::new("secrets.commands", format!("at most {COMMANDS_MAX} commands are possible")));
    }
    for (name, command) in commands {
        let at = format!("secrets.commands.{name}");
        if name.is_empty() || name.contains(|char: char| char == '}' || char.is_whitespace()) {
            let message = format!("`{name}` cannot be the name of a command: `${{exec:NAME}}` refers to it");
            problems.push(Problem::new(at.clone(), message));
        }
        if let Some((key, message)) = command.mistake() {
            problems.push(Problem::new(format!("{at}.{key}"), message));
        }
    }
    for_each_text(written, "", &mut |at, text| {
        let Some(name) = name_of(text).filter(|name| !commands.contains_key(*name)) else { return };
        let problem = if commands.is_empty() {
            Problem::new(at, format!("no command is called `{name}`: define it under `secrets.commands`"))
        } else {
            Problem::unknown_name(at, "command", name, commands.keys().map(String::as_str))
        };
        problems.push(problem);
    });
}

/// Returns the name of the command that a text refers to, if it is a reference to one.
pub fn name_of(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX)?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn wrong_commands_and_unknown_names_are_reported_at_their_places() {
        for (text, expected) in [
            ("a: { command: [] }", "secrets.commands.a.command: write the program and its arguments"),
            ("a: { command: [x], lifetime: 999ms }", "secrets.commands.a.lifetime: must be at least `1s`"),
            (
                "a: { command: [x], timeout: 61s }",
                "secrets.commands.a.timeout: must be from `100ms` to `60s`",
            ),
            ("'a b': { command: [x] }", "`a b` cannot be the name of a command"),
            ("tokan: { command: [x] }", "control.token: no command is called `token`; did you mean `tokan`?"),
            ("", "control.token: no command is called `token`: define it under `secrets.commands`"),
        ] {
            let text =
                format!("control: {{ token: '${{exec:token}}' }}\nsecrets: {{ commands: {{ {text} }} }}\n");
            let report = Config::parse("egret.yaml", &text).unwrap_err().to_string();
            assert!(report.contains(expected), "{report}");
        }
    }
}
