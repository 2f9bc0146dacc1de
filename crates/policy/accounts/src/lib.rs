//! Accounts: named credentials for providers.
//!
//! A remedy selects an account by its number. The gateway adds the secret to the request at the last moment,
//! and only if the request is sent to one of the account's own providers. So no remedy, expression, key or
//! record sees a secret, and a call to another provider never carries it.

mod config;
mod credential;
mod echo;
mod find;
mod placeholder;
mod sigv4;
mod state;
pub mod token;

use std::sync::{Arc, OnceLock};

use egret_clock::Timestamp;
use egret_config::{Problem, Secret};

pub use config::{AccountConfig, AccountConfigs, ApiKeyConfig, BasicConfig, BearerConfig, CertificateConfig};
use credential::Credential;
pub use echo::{PatternMask, SecretPatterns, is_unsearchable_charset};
use placeholder::{Placeholder, secret_problem};
pub use placeholder::{PlaceholderConfig, RequestPart};
pub use sigv4::Sigv4Config;
pub use state::{AccountState, AccountUse, CoolingSnapshot, Ending};
pub use state::{CoolDown, reported_pause};

use token::{Token, TokenSnapshot};

use egret_message::{Changes, Fault, Fields, KnownProvider};

/// Maximum number of accounts in one config.
const ACCOUNTS_MAX: usize = 10_000;
/// Maximum length of an account's name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// All accounts of a config, by number, in the order of their names.
#[derive(Debug, Default)]
pub struct Accounts(Vec<Account>);

/// A named credential for one or more providers.
#[derive(Debug)]
pub struct Account {
    name: Arc<str>,
    providers: Box<[String]>,
    /// The numbers of `providers` in the config.
    numbers: Box<[usize]>,
    credential: Credential,
    /// The config of this account. The next config is compared with it.
    config: AccountConfig,
    state: Arc<AccountState>,
    /// A digest of the credential. The same secret always gives the same digest.
    digest: [u8; 32],
    /// Number of times the credential has changed. Refusals of an earlier credential are not held against the
    /// current one.
    version: u32,
    /// The placeholder that the client sends, and the secret that replaces it.
    placeholder: Option<(Placeholder, Secret)>,
    /// The secrets as they are searched for in responses, compiled on first use.
    echoes: OnceLock<Result<Arc<SecretPatterns>, String>>,
}

/// State of an account, for display.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountSnapshot {
    /// The account's name.
    pub name: String,
    /// The kind of credential, by its config key.
    pub kind: &'static str,
    /// The names of the account's providers.
    pub providers: Vec<String>,
    /// The current cool-down, if any.
    pub cooling: Option<CoolingSnapshot>,
    /// Number of exchanges that use the account now.
    pub in_flight: u32,
    /// Number of calls by how they ended, in the order of [`Ending::ALL`].
    pub endings: [u64; Ending::ALL.len()],
    /// Number of calls left according to the provider, if its report still holds.
    pub remaining: Option<u64>,
    /// Time at which the provider restores the allowance, according to its report.
    pub reset: Option<Timestamp>,
    /// The state of the fetched token, for an account of that kind.
    pub token: Option<TokenSnapshot>,
}

/// A request that is about to be sent, before its credential is added.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The current time.
    pub now: Timestamp,
    /// `true` if the request is sent over TLS.
    pub tls: bool,
    /// The method.
    pub method: &'a [u8],
    /// The value of `Host`.
    pub host: &'a [u8],
    /// The path of the provider's URL, which precedes `path`: empty, or with a slash at its beginning and
    /// none at its end.
    pub base: &'a [u8],
    /// The path, relative to the provider's URL.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
    /// The header fields after all remedies, including hop-by-hop fields.
    pub fields: Fields<'a>,
    /// The whole body without framing; `None` if it is not completely buffered.
    pub body: Option<&'a [u8]>,
}

/// The changes that a credential makes to a request, applied after all other changes.
#[derive(Debug, Default)]
pub struct Applied {
    /// Changes to the header fields.
    pub fields: Changes,
    /// The new path and query, relative to the provider's URL, if they change.
    pub target: Option<Vec<u8>>,
    /// The new body, if it changes.
    pub body: Option<Vec<u8>>,
}

impl Accounts {
    /// Compiles `configs`. Reports each mistake in `problems` and leaves that account out. Keeps the state
    /// and the tokens of the accounts in `before`.
    pub fn compile(
        configs: &AccountConfigs,
        providers: &[KnownProvider<'_>],
        before: Option<&Self>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        if configs.len() > ACCOUNTS_MAX {
            problems.push(Problem::new("accounts", format!("at most {ACCOUNTS_MAX} accounts are allowed")));
            return Self::default();
        }
        let compiled = configs.iter().filter_map(|(name, config)| {
            let at = format!("accounts.{name}");
            let known = problems.len();
            check_name(name, &at, problems);
            check_providers(config, &at, providers, problems);
            let before = before.and_then(|before| before.get(before.find(name)?));
            let name: Arc<str> = name.as_str().into();
            let token = before.and_then(Account::token);
            let credential = Credential::compile(config, (&name, token), &at, problems);
            let placeholder = compile_placeholder(config, &at, problems);
            let credential = credential.filter(|_| problems.len() == known)?;
            let is_own =
                |provider: &KnownProvider<'_>| config.provider.iter().any(|own| own == provider.name);
            let numbers =
                (0..).zip(providers).filter(|(_, provider)| is_own(provider)).map(|(number, _)| number);
            let (standing, version) = before.map(|before| before.kept(config)).unwrap_or_default();
            Some(Account {
                name,
                providers: config.provider.to_vec().into(),
                numbers: numbers.collect(),
                credential,
                config: config.clone(),
                state: standing,
                digest: config.digest(),
                version,
                placeholder,
                echoes: OnceLock::new(),
            })
        });
        Self(compiled.collect())
    }

    /// Returns the account with that number.
    pub fn get(&self, number: usize) -> Option<&Account> {
        self.0.get(number)
    }

    /// Returns the number of the account with that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.binary_search_by(|account| (*account.name).cmp(name)).ok()
    }

    /// Iterates over all accounts, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Account> {
        self.0.iter()
    }
}

impl Account {
    /// The account's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of credential, by its config key.
    pub fn kind(&self) -> &'static str {
        self.credential.kind()
    }

    /// The names of the account's providers.
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    /// Returns `true` if the account is for the provider of that name.
    pub fn is_for(&self, provider: &str) -> bool {
        self.providers.iter().any(|own| own == provider)
    }

    /// Returns `true` if the account is for the provider with that number in the config.
    pub fn is_for_numbered(&self, provider: usize) -> bool {
        self.numbers.contains(&provider)
    }

    /// The state that all users of the account share.
    pub fn state(&self) -> &Arc<AccountState> {
        &self.state
    }

    /// A digest of the credential. It differs for another secret and is the same after a restart. Store only
    /// a keyed hash of it.
    pub fn credential_digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Number of times the credential has changed.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the account's state at `now`, for display.
    pub fn snapshot(&self, now: Timestamp) -> AccountSnapshot {
        let standing = self.state.snapshot(now, self.version);
        let failing = || {
            let until = self.token()?.failing_until(now)?;
            Some(CoolingSnapshot { until, status: None })
        };
        AccountSnapshot {
            name: self.name.to_string(),
            kind: self.kind(),
            providers: self.providers.to_vec(),
            cooling: standing.cooling.or_else(failing),
            token: self.token_snapshot(now),
            ..standing
        }
    }

    /// Returns the state and the version that an account of the same name made from `config` inherits.
    fn kept(&self, config: &AccountConfig) -> (Arc<AccountState>, u32) {
        if self.config.provider != config.provider || self.config.kinds() != config.kinds() {
            return Default::default();
        }
        (Arc::clone(&self.state), self.version + u32::from(self.config != *config))
    }

    /// The client certificate for the TLS handshake, for an account of that kind.
    pub fn certificate(&self) -> Option<&CertificateConfig> {
        match &self.credential {
            Credential::Certificate(certificate) => Some(certificate),
            _ => None,
        }
    }

    /// The fetched token, for an account of that kind.
    pub fn token(&self) -> Option<&Arc<Token>> {
        match &self.credential {
            Credential::OAuth2(token) => Some(token),
            _ => None,
        }
    }

    /// Returns the token's state at `now`, for display.
    pub fn token_snapshot(&self, now: Timestamp) -> Option<TokenSnapshot> {
        self.token().map(|token| token.snapshot(now))
    }

    /// Writes to `applied` the changes that the credential makes to a request to one of the account's
    /// providers. With a fault, the request cannot be sent.
    pub fn apply(&self, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<(), Fault> {
        match &self.placeholder {
            Some((placeholder, secret)) => placeholder.swap(secret.expose(), outgoing, applied).map(|_| ()),
            None => self.credential.apply(outgoing, applied),
        }
    }

    /// Maximum length of a request body that the account must see before the request is sent, in bytes; 0 if
    /// it does not read the body.
    pub fn request_body_max(&self) -> usize {
        let sought = self.placeholder.as_ref().map(|(placeholder, _)| placeholder.body_bytes_max());
        sought.unwrap_or_else(|| self.credential.body_bytes_max())
    }

    /// Returns the secrets to mask in responses; `None` if the account does not send any. The error says why
    /// its secrets cannot be searched for.
    pub fn echoes(&self) -> Result<Option<Arc<SecretPatterns>>, String> {
        match &self.credential {
            Credential::Field(..) | Credential::Query(..) | Credential::Signature(_) => {}
            Credential::OAuth2(_) => {
                return Err("its tokens change, and only a fixed secret can be masked".to_owned());
            }
            Credential::Certificate(_) => return Ok(None),
        }
        let secrets = self.config.secrets();
        if secrets.is_empty() {
            return Ok(None);
        }
        let secrets = secrets.iter().map(|secret| secret.expose().as_bytes());
        self.echoes.get_or_init(|| SecretPatterns::new(secrets).map(Arc::new)).clone().map(Some)
    }
}

/// Compiles the placeholder of `config` and returns it with its secret, if there is one and both are valid.
fn compile_placeholder(
    config: &AccountConfig,
    at: &str,
    problems: &mut Vec<Problem>,
) -> Option<(Placeholder, Secret)> {
    let placeholder = config.placeholder.as_ref()?;
    let compiled = match Placeholder::compile(placeholder) {
        Ok(compiled) => Some(compiled),
        Err((key, message)) => {
            problems.push(Problem::new(format!("{at}.placeholder.{key}"), message));
            None
        }
    };
    let Some(secret) = config.secret() else {
        let message = "only for `basic` with a password, `api_key` and `bearer`: no other kind \
                       sends its secret verbatim";
        problems.push(Problem::new(format!("{at}.placeholder"), message));
        return None;
    };
    if let Some(message) = secret_problem(secret.expose()) {
        problems.push(Problem::new(format!("{at}.placeholder"), format!("invalid secret: {message}")));
    }
    Some((compiled?, secret.clone()))
}

/// Checks an account's name. The name becomes a metrics label, so only plain characters are allowed.
fn check_name(name: &str, at: &str, problems: &mut Vec<Problem>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let message = format!(
            "an account's name must consist of 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`"
        );
        problems.push(Problem::new(at, message));
    }
}

fn check_providers(
    config: &AccountConfig,
    at: &str,
    known: &[KnownProvider<'_>],
    problems: &mut Vec<Problem>,
) {
    if config.provider.is_empty() {
        let message = "the key `provider` is missing: it limits where the credential is sent";
        problems.push(Problem::new(at, message));
    }
    for (number, name) in config.provider.iter().enumerate() {
        let Some(provider) = known.iter().find(|provider| provider.name == name) else {
            let at =
                egret_match::matching::path_of_entry(&config.provider, &format!("{at}.provider"), number);
            let problem = Problem::new(at, format!("no provider is called `{name}`"));
            problems.push(problem.suggest(name, known.iter().map(|provider| provider.name)));
            continue;
        };
        if config.certificate.is_some() && !provider.tls {
            let message =
                format!("a client certificate requires TLS, but the URL of `{name}` is not `https`");
            problems.push(Problem::new(format!("{at}.certificate"), message));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use egret_config::Secret;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);
    const RULE: CoolDown = CoolDown { first: Duration::from_secs(30), max: Duration::from_mins(10) };

    fn compiled(token: &str, provider: &[&str], before: Option<&Accounts>) -> Accounts {
        let bearer = BearerConfig { token: Secret::from_value("${env:TOKEN}", token.to_owned()) };
        let provider = provider.iter().copied().collect();
        let config = AccountConfig { provider, bearer: Some(bearer), ..AccountConfig::default() };
        let known = ["one", "two"].map(|name| KnownProvider { name, host: None, tls: true });
        let mut problems = Vec::new();
        let accounts = Accounts::compile(&[("a".to_owned(), config)].into(), &known, before, &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        accounts
    }

    fn cools(accounts: &Accounts) -> bool {
        accounts.0[0].snapshot(NOW).cooling.is_some()
    }

    fn cool(accounts: &Accounts, status: u16) {
        let account = &accounts.0[0];
        account.state().cool((NOW, NOW), (status, account.version()), None, RULE);
    }

    #[test]
    fn a_new_secret_is_not_blamed_for_the_one_before() {
        for (status, is_kept) in [(401, false), (403, false), (429, true)] {
            let before = compiled("one", &["one"], None);
            cool(&before, status);
            assert!(cools(&compiled("one", &["one"], Some(&before))));
            let after = compiled("two", &["one"], Some(&before));
            assert_eq!(cools(&after), is_kept, "{status}");
            assert!(cools(&before), "exchanges in flight keep the old one");
            assert!(Arc::ptr_eq(before.0[0].state(), after.0[0].state()));
        }
    }

    #[test]
    fn what_exchanges_of_before_a_reload_are_told_of_an_old_secret_is_not_held_against_the_new_one() {
        let before = compiled("one", &["one"], None);
        let after = compiled("two", &["one"], Some(&before));
        cool(&before, 401);
        assert!(!cools(&after));
    }

    #[test]
    fn a_digest_tells_secrets_apart_and_is_the_same_for_the_same_one() {
        let of = |token: &str, provider: &[&str]| *compiled(token, provider, None).0[0].credential_digest();
        assert_eq!(of("one", &["one"]), of("one", &["one", "two"]));
        assert_ne!(of("one", &["one"]), of("two", &["one"]));
    }

    #[test]
    fn an_account_for_other_providers_is_another_one() {
        let before = compiled("one", &["one"], None);
        cool(&before, 429);
        assert!(!cools(&compiled("one", &["one", "two"], Some(&before))));
    }
}
