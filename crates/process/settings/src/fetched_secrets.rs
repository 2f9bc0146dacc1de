//! Secrets that are fetched: commands print them, and secret managers have them.
//!
//! A secret is fetched when a config is read that refers to it, and again each time its lifetime is over. A
//! failure later on changes nothing: the last secret stays in use, and it is fetched again after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use egret_clock::{Clock, Moment};
use egret_config::{
    Document, FetchedSecret, Report, SourceSet, are_secrets_read, noting_secret_variables, without_secrets,
};
use egret_control::{FetchFailure, FetchStatus};
use egret_net::config::ProxyConfig;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::secret_commands::{COMMANDS_MAX, SecretCommand, name_of};
use crate::secret_managers::{MANAGED_SECRETS_MAX, ManagedReference, Manager, ManagerKind};
use crate::secrets_config::SecretsConfig;
use crate::written_texts::for_each_text;

/// A text without one of these words has no reference.
const WORDS: [&str; 4] = ["exec:", "vault:", "aws:", "gcp:"];

/// Time after which a secret that could not be fetched again is fetched once more, if its lifetime is not
/// shorter.
const RETRY: Duration = Duration::from_secs(30);

/// Maximum number of secrets that are kept. More than in a config, because another one may be read meanwhile.
const KNOWN_MAX: usize = 4 * (COMMANDS_MAX + MANAGED_SECRETS_MAX);

/// Something that a secret is fetched from: its text, or a document with several fields.
#[derive(Debug, Clone)]
enum SecretSource {
    /// The command of this name.
    Command(String, SecretCommand),
    /// The secret of this name in a secret manager.
    Managed(Arc<Manager>, String),
}

/// The things that the secrets of a config are fetched from, and the references to them.
#[derive(Debug, Clone, Default)]
pub struct SecretSources(Vec<SecretSource>, BTreeSet<String>);

/// Distinguishes a source from all others, of other configs too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SourceKey {
    Command(SecretCommand),
    /// In this manager, under this name.
    Managed(ManagerKind, String, String),
}

/// A secret that was fetched.
struct KnownSecret {
    value: Zeroizing<String>,
    /// The time at which it is fetched again.
    due: Instant,
    /// The last time at which a config was read that has it, or at which it was fetched.
    used: Instant,
    /// Variables that a command does not get.
    withheld: Arc<BTreeSet<String>>,
    /// The failure of the last attempt.
    failure: Option<FetchFailure>,
}

/// The last secret of each source, for all configs that this process reads: a config that is read again does
/// not fetch them again.
static KNOWN: Mutex<BTreeMap<SourceKey, KnownSecret>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<SourceKey, KnownSecret>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sections that lead to secret managers. Nothing else is read, because other secrets may be in them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ManagerSections {
    secrets: SecretsConfig,
    gateway: UpstreamProxySection,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UpstreamProxySection {
    upstream_proxy: Option<ProxyConfig>,
}

/// Returns the document that `create` creates, with the secrets that it refers to. One is fetched unless it
/// is known, and none is fetched if the config has other mistakes.
///
/// # Errors
///
/// Fails with these mistakes, and if a secret that a secret manager is reached with cannot be read.
pub fn supply<'a>(
    sources: &SourceSet,
    create: impl Fn() -> Result<Document<'a>, Report>,
) -> Result<Document<'a>, Report> {
    let document = create()?;
    let mut texts = sources.included.iter().chain([&sources.main]);
    let has_word = texts.any(|source| WORDS.iter().any(|word| source.text.contains(word)));
    if !has_word || !are_secrets_read() {
        return Ok(document);
    }
    // Only from a valid config is it known what it needs, and what its commands must not get.
    let load = || without_secrets(|| create()?.load(Config::problems, |_| Vec::new()));
    let (loaded, withheld) = noting_secret_variables(load);
    let config = loaded?.config;
    let (references, withheld) = (references(&config), Arc::new(withheld));
    let commands = SecretSources(commands(&references, &config.secrets), BTreeSet::new());
    let mut fetched = commands.secrets(&references, &withheld);
    if references.iter().any(|text| ManagedReference::of(text).is_some()) {
        // Secrets in these sections may come from commands, and from nothing that is fetched with them.
        let mut document = create()?.with_fetched(Arc::new(fetched.clone()));
        let ManagerSections { secrets, gateway } = document.read()?;
        let sources = managed(&references, &secrets, gateway.upstream_proxy.as_ref());
        let managed = SecretSources(sources, BTreeSet::new());
        fetched.extend(managed.secrets(&references, &withheld));
    }
    Ok(document.with_fetched(Arc::new(fetched)))
}

/// Returns the references of a config to secrets that are fetched.
fn references(config: &Config) -> BTreeSet<String> {
    let mut references = BTreeSet::new();
    if config.secrets.commands.is_empty() && config.secrets.managers().next().is_none() {
        return references;
    }
    let written = serde_json::to_value(config).unwrap_or_default();
    for_each_text(&written, "", &mut |_, text| {
        if name_of(text).is_some() || ManagedReference::of(text).is_some() {
            references.insert(text.to_owned());
        }
    });
    references
}

/// Returns the commands that are referred to.
fn commands(references: &BTreeSet<String>, secrets: &SecretsConfig) -> Vec<SecretSource> {
    let names = references.iter().filter_map(|text| name_of(text));
    let found = names.filter_map(|name| secrets.commands.get_key_value(name));
    found.map(|(name, command)| SecretSource::Command(name.clone(), command.clone())).collect()
}

/// Returns the secrets in managers that are referred to. Managers are called through `proxy`.
fn managed(
    references: &BTreeSet<String>,
    secrets: &SecretsConfig,
    proxy: Option<&ProxyConfig>,
) -> Vec<SecretSource> {
    let references = references.iter().filter_map(|text| ManagedReference::of(text));
    let names: BTreeSet<_> = references.map(|reference| (reference.manager, reference.name)).collect();
    let mut sources = Vec::with_capacity(names.len());
    for config in secrets.managers() {
        let manager = Arc::new(Manager::new(config, proxy));
        let own = names.iter().filter(|(kind, _)| *kind == manager.kind());
        sources.extend(own.map(|(_, name)| SecretSource::Managed(Arc::clone(&manager), (*name).to_owned())));
    }
    sources
}

impl SecretSource {
    fn key(&self) -> SourceKey {
        match self {
            Self::Command(_, command) => SourceKey::Command(command.clone()),
            Self::Managed(manager, name) => {
                SourceKey::Managed(manager.kind(), manager.key().to_owned(), name.clone())
            }
        }
    }

    /// Its name for users: that of the command, or the reference without a field, like
    /// `vault:secret/data/stripe`.
    fn name(&self) -> String {
        match self {
            Self::Command(name, _) => name.clone(),
            Self::Managed(manager, name) => format!("{}:{name}", manager.kind().word()),
        }
    }

    fn lifetime(&self) -> Duration {
        match self {
            Self::Command(_, command) => command.lifetime.get(),
            Self::Managed(manager, _) => manager.lifetime(),
        }
    }

    /// Returns the secret of a reference to this source from what was `fetched`; `None` if the reference is
    /// to another one.
    fn secret_of(&self, text: &str, fetched: &FetchedSecret) -> Option<FetchedSecret> {
        match self {
            Self::Command(name, _) => (name_of(text)? == name).then(|| fetched.clone()),
            Self::Managed(manager, name) => {
                let reference = ManagedReference::of(text)?;
                let is_own = reference.manager == manager.kind() && reference.name == name;
                is_own.then(|| fetched.as_ref().map_err(Clone::clone).and_then(|all| reference.part_of(all)))
            }
        }
    }

    /// Returns `true` if each of the references that is to this source leads to a secret in what was
    /// `fetched`.
    fn has_all(&self, references: &BTreeSet<String>, fetched: &FetchedSecret) -> bool {
        references.iter().all(|text| self.secret_of(text, fetched).is_none_or(|part| part.is_ok()))
    }

    /// Returns `true` if both are fetched at once.
    fn is_fetched_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Managed(one, _), Self::Managed(other, _)) => {
                one.kind() == other.kind() && one.key() == other.key()
            }
            _ => false,
        }
    }
}

/// A source that is fetched, and the variables that it does not get if it is a command.
#[derive(Clone)]
struct Wanted<'a> {
    source: &'a SecretSource,
    withheld: Arc<BTreeSet<String>>,
}

/// Fetches all of them at the same time, those of a manager one after the other. The results have their
/// order.
fn fetch_all(wanted: &[Wanted<'_>]) -> Vec<FetchedSecret> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for (number, one) in wanted.iter().enumerate() {
        let batch = batches.iter_mut().find(|batch| wanted[batch[0]].source.is_fetched_with(one.source));
        match batch {
            Some(batch) => batch.push(number),
            None => batches.push(vec![number]),
        }
    }
    let mut results = vec![Err("it cannot be fetched".to_owned()); wanted.len()];
    std::thread::scope(|scope| {
        let start = |batch: Vec<usize>| {
            let all: Vec<Wanted<'_>> = batch.iter().map(|number| wanted[*number].clone()).collect();
            (batch, scope.spawn(move || fetch_batch(&all)))
        };
        let started: Vec<_> = batches.into_iter().map(start).collect();
        for (batch, thread) in started {
            // A panic in it is logged.
            for (number, result) in batch.into_iter().zip(thread.join().unwrap_or_default()) {
                results[number] = result;
            }
        }
    });
    results
}

/// Fetches a command, or some secrets of the same manager.
fn fetch_batch(batch: &[Wanted<'_>]) -> Vec<FetchedSecret> {
    match batch.first().map(|first| (first.source, &first.withheld)) {
        Some((SecretSource::Command(_, command), withheld)) => vec![command.run(withheld)],
        Some((SecretSource::Managed(manager, _), _)) => {
            let names = batch.iter().filter_map(|wanted| match wanted.source {
                SecretSource::Managed(_, name) => Some(name.as_str()),
                SecretSource::Command(..) => None,
            });
            manager.fetch(&names.collect::<Vec<_>>())
        }
        None => Vec::new(),
    }
}

/// Keeps a secret.
fn keep(key: SourceKey, secret: KnownSecret) {
    let mut known = known();
    known.insert(key, secret);
    while known.len() > KNOWN_MAX {
        let oldest = known.iter().min_by_key(|(_, secret)| secret.used).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            known.remove(&oldest);
        }
    }
}

impl SecretSources {
    /// Returns the sources of the secrets that a config uses.
    pub fn of(config: &Config) -> Self {
        let references = references(config);
        let proxy = config.gateway.upstream_proxy.as_ref();
        let mut sources = commands(&references, &config.secrets);
        sources.extend(managed(&references, &config.secrets, proxy));
        Self(sources, references)
    }

    /// Returns the secrets of those of the references that are to one of these sources. Secrets that are not
    /// known are fetched, and those without a field that is referred to: it may be new.
    fn secrets(
        &self,
        references: &BTreeSet<String>,
        withheld: &Arc<BTreeSet<String>>,
    ) -> BTreeMap<String, FetchedSecret> {
        let mut found: Vec<(&SecretSource, FetchedSecret)> = Vec::with_capacity(self.0.len());
        let mut unknown = Vec::new();
        for source in &self.0 {
            let has_all = |secret: &&mut KnownSecret| source.has_all(references, &Ok(secret.value.clone()));
            match known().get_mut(&source.key()).filter(has_all) {
                Some(secret) => {
                    secret.used = Instant::now();
                    secret.withheld = Arc::new(&*secret.withheld | &**withheld);
                    found.push((source, Ok(secret.value.clone())));
                }
                None => unknown.push(Wanted { source, withheld: Arc::clone(withheld) }),
            }
        }
        let fetched = fetch_all(&unknown);
        let now = Instant::now();
        for (Wanted { source, withheld }, result) in unknown.into_iter().zip(fetched) {
            // One that lacks a field must not replace that of the config in use.
            if let Ok(value) = &result
                && source.has_all(references, &result)
            {
                // Nor is that one renewed later than without this config.
                let before = known().get(&source.key()).map(|known| known.due);
                let due = before.into_iter().fold(now + source.lifetime(), Instant::min);
                let value = value.clone();
                keep(source.key(), KnownSecret { value, due, used: now, withheld, failure: None });
            }
            found.push((source, result));
        }
        let secret =
            |text: &String| found.iter().find_map(|(source, fetched)| source.secret_of(text, fetched));
        references.iter().filter_map(|text| Some((text.clone(), secret(text)?))).collect()
    }

    /// Returns the state of the commands whose secrets are known.
    pub fn commands(&self) -> Vec<FetchStatus> {
        self.statuses(|source| matches!(source, SecretSource::Command(..)))
    }

    /// Returns the state of the secrets of secret managers that are known.
    pub fn managed(&self) -> Vec<FetchStatus> {
        self.statuses(|source| matches!(source, SecretSource::Managed(..)))
    }

    fn statuses(&self, is_wanted: impl Fn(&SecretSource) -> bool) -> Vec<FetchStatus> {
        let known = known();
        let status = |source: &SecretSource| {
            let failure = known.get(&source.key())?.failure.clone();
            Some(FetchStatus { name: source.name(), has_last: true, failure })
        };
        self.0.iter().filter(|source| is_wanted(source)).filter_map(status).collect()
    }

    /// Returns the time at which the first of these secrets is fetched again, if one is known.
    pub fn next_renewal(&self) -> Option<Instant> {
        let known = known();
        self.0.iter().filter_map(|source| Some(known.get(&source.key())?.due)).min()
    }

    /// Makes all these secrets due, so that they are fetched again now.
    pub fn expire(&self) {
        let (mut known, now) = (known(), Instant::now());
        for source in &self.0 {
            if let Some(secret) = known.get_mut(&source.key()) {
                secret.due = now;
            }
        }
    }

    /// Returns what was fetched, or the reason why it lacks a secret that the config refers to.
    fn checked(&self, source: &SecretSource, fetched: FetchedSecret) -> FetchedSecret {
        let error = self.1.iter().find_map(|text| source.secret_of(text, &fetched)?.err());
        error.map_or(fetched, Err)
    }

    /// Fetches those of the secrets that are due. The next config that is read has them.
    pub fn renew(&self) {
        let now = Instant::now();
        let begun = self.0.iter().filter_map(|source| SecretRenewal::begin(source, now));
        let renewals: Vec<SecretRenewal<'_>> = begun.collect();
        let wanted: Vec<Wanted<'_>> = renewals.iter().map(|renewal| renewal.wanted.clone()).collect();
        let results = fetch_all(&wanted);
        let now = Instant::now();
        for (renewal, result) in renewals.iter().zip(results) {
            renewal.end(self.checked(renewal.wanted.source, result), now);
        }
    }
}

/// A secret that is fetched again.
struct SecretRenewal<'a> {
    wanted: Wanted<'a>,
    /// The time at which it is due again unless this attempt succeeds.
    retry: Instant,
}

impl<'a> SecretRenewal<'a> {
    /// Returns `None` unless the secret is due.
    fn begin(source: &'a SecretSource, now: Instant) -> Option<Self> {
        let mut known = known();
        let secret = known.get_mut(&source.key()).filter(|secret| secret.due <= now)?;
        let retry = now + RETRY.min(source.lifetime());
        secret.due = retry;
        Some(Self { wanted: Wanted { source, withheld: Arc::clone(&secret.withheld) }, retry })
    }

    /// Handles the result, which is there at `now`.
    fn end(&self, result: FetchedSecret, now: Instant) {
        let source = self.wanted.source;
        let mut known = known();
        let Some(secret) = known.get_mut(&source.key()) else { return };
        let before = secret.failure.take();
        match result {
            Ok(value) => {
                secret.value = value;
                secret.used = now;
                // It may have been made due while this attempt was under way.
                if secret.due == self.retry {
                    secret.due = now + source.lifetime();
                }
                if before.is_some() {
                    log_success(source);
                }
            }
            Err(error) => {
                // A command that complains about the last secret may show it.
                let error = error.replace(secret.value.as_str(), "***");
                if before.is_none() {
                    log_failure(source, &error);
                }
                let since = before.map_or_else(|| Clock::new().timestamp(Moment::now()), |known| known.since);
                let error = match source {
                    // Only the log has what the command has written: it may show other secrets.
                    SecretSource::Command(..) => {
                        error.split_once(": ").map_or(&*error, |(reason, _)| reason).to_owned()
                    }
                    SecretSource::Managed(..) => error,
                };
                secret.failure = Some(FetchFailure { since, error });
            }
        }
    }
}

fn log_success(source: &SecretSource) {
    match source {
        SecretSource::Command(name, _) => {
            tracing::info!(command = name, "the command gives its secret again");
        }
        SecretSource::Managed(..) => {
            tracing::info!(secret = source.name(), "the secret manager gives the secret again");
        }
    }
}

fn log_failure(source: &SecretSource, error: &str) {
    match source {
        SecretSource::Command(name, _) => tracing::warn!(
            command = name,
            "a secret was not renewed, and the last one stays in use: {error}; run the command by hand to see why"
        ),
        SecretSource::Managed(..) => tracing::warn!(
            secret = source.name(),
            "a secret was not renewed, and the last one stays in use: {error}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use egret_tests::provider::Provider;

    use super::*;
    use crate::secret_managers::ManagerConfig;

    /// Asserts that failures of renewals show until one succeeds, and that they do not show the last secret.
    fn assert_failures_show(source: SecretSource) {
        let (now, key) = (Instant::now(), source.key());
        let value = Zeroizing::new("first".to_owned());
        keep(key, KnownSecret { value, due: now, used: now, withheld: Arc::default(), failure: None });
        let sources = SecretSources(vec![source], BTreeSet::new());
        let renew = |hours, result| {
            let at = now + Duration::from_hours(hours);
            SecretRenewal::begin(&sources.0[0], at).unwrap().end(result, at);
            let mut all = sources.commands();
            all.extend(sources.managed());
            all.remove(0).failure
        };
        let first = renew(2, Err("no route".to_owned())).unwrap();
        assert_eq!(first.error, "no route");
        let second = renew(4, Err("no policy for first".to_owned())).unwrap();
        assert_eq!(second, FetchFailure { error: "no policy for ***".to_owned(), ..first });
        assert_eq!(renew(6, Ok(Zeroizing::new("second".to_owned()))), None);
    }

    fn vault(url: &str) -> ManagerConfig {
        let vault = serde_json::json!({ "url": url, "login": { "token": "${env:PATH}" } });
        let config: SecretsConfig = serde_json::from_value(serde_json::json!({ "vault": vault })).unwrap();
        config.manager(ManagerKind::Vault).unwrap()
    }

    #[test]
    fn a_failed_renewal_shows_until_one_succeeds() {
        let command = serde_json::json!({ "command": ["a-program-of-this-test"] });
        let command = serde_json::from_value(command).unwrap();
        assert_failures_show(SecretSource::Command("manager".to_owned(), command));
        let manager = Arc::new(Manager::new(vault("http://vault.test"), None));
        assert_failures_show(SecretSource::Managed(manager, "secret/data/a".to_owned()));
    }

    #[test]
    fn a_renewed_secret_without_a_field_in_use_is_a_failure() {
        let manager = Arc::new(Manager::new(vault("http://fields.test"), None));
        let source = SecretSource::Managed(manager, "secret/data/b".to_owned());
        let references = BTreeSet::from(["${vault:secret/data/b#key}".to_owned()]);
        let sources = SecretSources(vec![source], references);
        for (fetched, is_ok) in [(r#"{"key":"k"}"#, true), (r#"{"user":"u"}"#, false), ("k", false)] {
            let fetched = Ok(Zeroizing::new(fetched.to_owned()));
            assert_eq!(sources.checked(&sources.0[0], fetched).is_ok(), is_ok);
        }
    }

    #[test]
    fn a_config_that_is_read_again_fetches_no_more() {
        let answer = r#"{"data":{"data":{"user":"u","key":"hunter2"},"metadata":{}}}"#;
        let head = "HTTP/1.1 200 OK\r\nContent-Length: ";
        let server = Provider::responding(format!("{head}{}\r\n\r\n{answer}", answer.len()));
        let text = |field: &str| {
            format!(
                "control: {{ token: '${{vault:secret/data/one#key}}', read_token: '${{vault:secret/data/one#{field}}}' }}\n\
                 secrets: {{ vault: {{ url: '{}', login: {{ token: '${{env:CARGO_PKG_NAME}}' }} }} }}\n",
                server.url()
            )
        };
        for _ in 0..2 {
            let config = Config::parse("egret.yaml", &text("user")).unwrap();
            assert_eq!(config.control.token.unwrap().expose(), "hunter2");
            assert_eq!(config.control.read_token.unwrap().expose(), "u");
        }
        assert_eq!(server.requests().len(), 1);
        let report = Config::parse("egret.yaml", &text("none")).unwrap_err().to_string();
        let expected = "egret.yaml:1:63: control.read_token: no secret was fetched for ${vault:secret/data/one#none}: the secret is \
                        not JSON with one field `none`";
        assert!(report.contains(expected) && !report.contains("hunter2"), "{report}");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "a field that is missing may be new");
        // The secret that the first config uses is still known.
        assert!(Config::parse("egret.yaml", &text("user")).is_ok());
        assert_eq!(server.requests().len(), 2);
        let request = &requests[0];
        assert_eq!(request.line, "GET /v1/secret/data/one HTTP/1.1");
        assert_eq!(request.values("x-vault-token"), [env!("CARGO_PKG_NAME")]);
    }

    #[test]
    fn references_that_cannot_be_followed_are_reported_at_their_places() {
        let vault = "vault: { url: 'https://v.test', login: { token: '${env:PATH}' } }";
        let of_token = |token: &str, secrets: &str| {
            format!("control: {{ token: '{token}' }}\nsecrets: {{ {secrets} }}\n")
        };
        let whole = |keys: &str| of_token("${env:PATH}", keys);
        for (text, expected) in [
            (
                of_token("${aws:a}", vault),
                "1:19: control.token: `${aws:a}` is in a secret manager that is not",
            ),
            (of_token("${vault:secret/data/a}", vault), "1:19: control.token: write the path of the secret"),
            (
                whole("vault: { url: 'https://v.test', login: { token: '${vault:secret/data/a#b}' } }"),
                "secrets.vault.login.token: a secret that secret managers are reached with cannot be in one",
            ),
            (whole("vault: { url: 'https://v.test', login: {} }"), "secrets.vault.login: set exactly one of"),
            (
                whole(
                    "vault: { url: 'https://v.test', login: { app_role: { role_id: a, secret_id: '${env:PATH}', mount: ../sys } } }",
                ),
                "secrets.vault.login.app_role.mount: must be a path below",
            ),
            (
                whole("vault: { url: 'https://u:p@v.test', login: { token: '${env:PATH}' } }"),
                "secrets.vault.url: the URL must not contain a user or password",
            ),
            (
                whole("gcp: { identity: { metadata: true }, lifetime: 1ms }"),
                "secrets.gcp.lifetime: must be at least `1s`",
            ),
            (
                whole("aws: { region: eu-west-1, timeout: 61s, identity: { instance: true } }"),
                "secrets.aws.timeout: must be from `100ms` to `60s`",
            ),
            (whole("aws: { region: eu-west-1 }"), "secrets.aws.access_key_id: required together with"),
        ] {
            let report = Config::parse("egret.yaml", &text).unwrap_err().to_string();
            assert!(report.contains(expected), "{report}");
        }
    }
}
