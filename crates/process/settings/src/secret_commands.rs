//! Secrets that commands print: `${exec:NAME}` refers to the command called `NAME` in `secrets.commands`.
//!
//! A command is run when a config is read that refers to it, and again each time its lifetime is over. A
//! failure later on changes nothing: the last secret stays in use, and the command is run again after a
//! while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use egret_clock::{Clock, Moment};
use egret_config::{
    CommandSecret, Document, Problem, Report, SECRET_BYTES_MAX, SourceSet, are_secrets_read,
    noting_secret_variables, without_secrets,
};
use egret_control::{FetchFailure, FetchStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::bounded_command::BoundedCommand;
use crate::config::Config;
use crate::written_texts::for_each_text;

/// Beginning of a reference.
const PREFIX: &str = "${exec:";

/// A text without this word has no reference.
const WORD: &str = "exec:";

/// Maximum number of commands in a config.
const COMMANDS_MAX: usize = 64;

/// Maximum number of words of a command.
const WORDS_MAX: usize = 64;

/// Bounds of a command's time.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_mins(1);

/// Least lifetime of a secret.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

/// Time after which a command that has failed is run again, if its secret's lifetime is not shorter.
const RETRY: Duration = Duration::from_secs(30);

/// Maximum number of secrets that are kept. More than in a config, because another one may be read meanwhile.
const KNOWN_MAX: usize = 4 * COMMANDS_MAX;

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
    #[serde(default = "lifetime_default")]
    pub lifetime: egret_config::Duration,
    /// Time after which the command is killed, from `100ms` to `60s`.
    #[serde(default = "timeout_default")]
    pub timeout: egret_config::Duration,
}

fn lifetime_default() -> egret_config::Duration {
    egret_config::Duration::from_secs(3600)
}

fn timeout_default() -> egret_config::Duration {
    egret_config::Duration::from_secs(10)
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

    fn run(&self, withheld: &BTreeSet<String>) -> CommandSecret {
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

/// A secret that a command has printed.
struct KnownSecret {
    value: Zeroizing<String>,
    /// The time at which the command is run again.
    due: Instant,
    /// The last time at which a config was read that has the command, or the command was run.
    used: Instant,
    /// Variables that the command does not get.
    withheld: Arc<BTreeSet<String>>,
    /// The failure of the last run.
    failure: Option<FetchFailure>,
}

/// The last secret of each command, for all configs that this process reads: a config that is read again
/// does not run them again.
static KNOWN: Mutex<BTreeMap<SecretCommand, KnownSecret>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<SecretCommand, KnownSecret>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the document that `create` creates, with the secrets of the commands that it refers to. A command
/// is run unless its secret is known, and none is run if the config has other mistakes.
///
/// # Errors
///
/// Fails with these mistakes.
pub fn supply<'a>(
    sources: &SourceSet,
    create: impl Fn() -> Result<Document<'a>, Report>,
) -> Result<Document<'a>, Report> {
    let document = create()?;
    let mut texts = sources.included.iter().chain([&sources.main]);
    if !texts.any(|source| source.text.contains(WORD)) || !are_secrets_read() {
        return Ok(document);
    }
    // Only from a valid config is it known which commands it needs, and what they must not get.
    let load = || without_secrets(|| create()?.load(Config::problems, |_| Vec::new()));
    let (loaded, withheld) = noting_secret_variables(load);
    let commands = used(&loaded?.config);
    Ok(document.with_commands(Arc::new(secrets(commands, &Arc::new(withheld)))))
}

/// Returns the commands that a config refers to.
pub fn used(config: &Config) -> SecretCommandConfigs {
    let mut commands = config.secrets.commands.clone();
    if !commands.is_empty() {
        let mut names = BTreeSet::new();
        let written = serde_json::to_value(config).unwrap_or_default();
        for_each_text(&written, "", &mut |_, text| names.extend(name_of(text).map(str::to_owned)));
        commands.retain(|name, _| names.contains(name));
    }
    commands
}

/// Returns the state of those of the commands whose secrets are known.
pub fn statuses(commands: &SecretCommandConfigs) -> Vec<FetchStatus> {
    let known = known();
    let status = |(name, command): (&String, &SecretCommand)| {
        let failure = known.get(command)?.failure.clone();
        Some(FetchStatus { name: name.clone(), has_last: true, failure })
    };
    commands.iter().filter_map(status).collect()
}

/// Returns the secrets of the commands. Those that are not known are fetched at the same time.
fn secrets(
    commands: SecretCommandConfigs,
    withheld: &Arc<BTreeSet<String>>,
) -> BTreeMap<String, CommandSecret> {
    let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
    for (name, command) in commands {
        match known().get_mut(&command) {
            Some(secret) => {
                secret.used = Instant::now();
                secret.withheld = Arc::new(&*secret.withheld | &**withheld);
                found.insert(name, Ok(secret.value.clone()));
            }
            None => unknown.push((name, command)),
        }
    }
    let fetched = run_all(unknown.iter().map(|(_, command)| (command, &**withheld)));
    for ((name, command), result) in unknown.into_iter().zip(fetched) {
        if let Ok(value) = &result {
            let now = Instant::now();
            let due = now + command.lifetime.get();
            let (value, withheld) = (value.clone(), Arc::clone(withheld));
            keep(command, KnownSecret { value, due, used: now, withheld, failure: None });
        }
        found.insert(name, result);
    }
    found
}

/// Runs commands at the same time. The results have their order.
fn run_all<'a>(
    commands: impl Iterator<Item = (&'a SecretCommand, &'a BTreeSet<String>)>,
) -> Vec<CommandSecret> {
    std::thread::scope(|scope| {
        let started: Vec<_> =
            commands.map(|(command, withheld)| scope.spawn(move || command.run(withheld))).collect();
        let ended = started.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.map(|result| result.unwrap_or_else(|_| Err("it cannot be run".to_owned()))).collect()
    })
}

/// Keeps the secret of a command.
fn keep(command: SecretCommand, secret: KnownSecret) {
    let mut known = known();
    known.insert(command, secret);
    while known.len() > KNOWN_MAX {
        let oldest = known.iter().min_by_key(|(_, secret)| secret.used).map(|(command, _)| command.clone());
        if let Some(oldest) = oldest {
            known.remove(&oldest);
        }
    }
}

/// Returns the time at which the first of these commands is run again, if one has been run.
pub fn next_renewal(commands: &SecretCommandConfigs) -> Option<Instant> {
    let known = known();
    commands.values().filter_map(|command| Some(known.get(command)?.due)).min()
}

/// Makes all these commands due, so that they are run again now.
pub fn expire(commands: &SecretCommandConfigs) {
    let mut known = known();
    for command in commands.values() {
        if let Some(secret) = known.get_mut(command) {
            secret.due = Instant::now();
        }
    }
}

/// A command that is run again.
struct Renewal<'a> {
    name: &'a str,
    command: &'a SecretCommand,
    withheld: Arc<BTreeSet<String>>,
    /// The time at which it is due again unless this run succeeds.
    retry: Instant,
}

/// Runs those of the commands that are due. The next config that is read has their secrets.
pub fn renew(commands: &SecretCommandConfigs) {
    let now = Instant::now();
    let begun = commands.iter().filter_map(|(name, command)| Renewal::begin(name, command, now));
    let renewals: Vec<Renewal<'_>> = begun.collect();
    let results = run_all(renewals.iter().map(|renewal| (renewal.command, &*renewal.withheld)));
    for (renewal, result) in renewals.iter().zip(results) {
        renewal.end(result);
    }
}

impl<'a> Renewal<'a> {
    /// Returns `None` unless the command is due.
    fn begin(name: &'a str, command: &'a SecretCommand, now: Instant) -> Option<Self> {
        let mut known = known();
        let secret = known.get_mut(command).filter(|secret| secret.due <= now)?;
        let retry = now + RETRY.min(command.lifetime.get());
        secret.due = retry;
        Some(Self { name, command, withheld: Arc::clone(&secret.withheld), retry })
    }

    fn end(&self, result: CommandSecret) {
        let mut known = known();
        let Some(secret) = known.get_mut(self.command) else { return };
        let before = secret.failure.take();
        match result {
            Ok(value) => {
                secret.value = value;
                secret.used = Instant::now();
                // It may have been made due while this run was under way.
                if secret.due == self.retry {
                    secret.due = secret.used + self.command.lifetime.get();
                }
                if before.is_some() {
                    tracing::info!(command = self.name, "the command gives its secret again");
                }
            }
            Err(error) => {
                // A command that complains about the last secret may show it.
                let error = error.replace(secret.value.as_str(), "***");
                if before.is_none() {
                    tracing::warn!(
                        command = self.name,
                        "a secret was not renewed, and the last one stays in use: {error}; run the command by hand to see why"
                    );
                }
                let since = before.map_or_else(|| Clock::new().timestamp(Moment::now()), |known| known.since);
                // Only the log has what the command has written: it may show other secrets.
                let error = error.split_once(": ").map_or(&*error, |(what, _)| what).to_owned();
                secret.failure = Some(FetchFailure { since, error });
            }
        }
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
fn name_of(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX)?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_failed_renewal_shows_until_one_succeeds() {
        let command = SecretCommand {
            command: vec!["a-program-of-this-test".to_owned()],
            lifetime: lifetime_default(),
            timeout: timeout_default(),
        };
        let now = Instant::now();
        let value = Zeroizing::new("first".to_owned());
        let secret = KnownSecret { value, due: now, used: now, withheld: Arc::default(), failure: None };
        keep(command.clone(), secret);
        let commands = BTreeMap::from([("manager".to_owned(), command)]);
        let renew = |hours, result| {
            let at = now + Duration::from_hours(hours);
            Renewal::begin("manager", &commands["manager"], at).unwrap().end(result);
            statuses(&commands).remove(0).failure
        };
        let first = renew(2, Err("no route".to_owned())).unwrap();
        assert_eq!(first.error, "no route");
        let second = renew(4, Err("no policy for first".to_owned())).unwrap();
        assert_eq!(second, FetchFailure { error: "no policy for ***".to_owned(), ..first });
        assert_eq!(renew(6, Ok(Zeroizing::new("second".to_owned()))), None);
    }
}
