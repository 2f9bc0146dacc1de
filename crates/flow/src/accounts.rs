//! Accounts: named credentials for providers. A remedy chooses one by its number; its secret is added to a request by the gateway at the
//! last moment, and only if what is called is one of the account's own providers. So no remedy, expression, key or record sees a secret,
//! and none follows a call elsewhere.

mod config;
mod credential;

use std::sync::Arc;

use egret_config::Problem;
use egret_store::Timestamp;

pub use config::{AccountConfig, AccountConfigs, ApiKeyConfig, BasicConfig, BearerConfig, CertificateConfig};
use credential::Credential;

use crate::config::KnownProvider;
use crate::message::{Changes, Fields};
use crate::remedy::Fault;

/// Accounts of one config; more are refused.
const ACCOUNTS_MAX: usize = 10_000;
/// The longest name of an account.
const NAME_BYTES_MAX: usize = 64;

/// All accounts of a config, by number, in the order of their names.
#[derive(Debug, Default)]
pub struct Accounts(Vec<Account>);

/// A named credential for one provider or several.
#[derive(Debug)]
pub struct Account {
    name: Arc<str>,
    providers: Box<[String]>,
    credential: Credential,
}

/// A request as it is about to be sent, before its credential is added.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// What time it is.
    pub now: Timestamp,
    /// Whether it goes over TLS.
    pub tls: bool,
    /// The method.
    pub method: &'a [u8],
    /// The value of `Host`.
    pub host: &'a [u8],
    /// The path of the provider's URL, which comes first: empty, or with a slash at its beginning and none at its end.
    pub base: &'a [u8],
    /// The path, relative to the provider's URL.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
    /// As remedies have left them; those of one connection alone are among them.
    pub fields: Fields<'a>,
    /// The whole body without framing; none where not all of it is here.
    pub body: Option<&'a [u8]>,
}

/// What an account's credential makes of a request: changes that come after all others.
#[derive(Debug, Default)]
pub struct Applied {
    /// Changes to its fields.
    pub fields: Changes,
    /// Path and query, relative to the provider's URL, where they change.
    pub target: Option<Vec<u8>>,
    /// The body, where it changes.
    pub body: Option<Vec<u8>>,
}

impl Accounts {
    /// Compiles `configs`; what is wrong is noted in `problems`, and left out.
    pub fn compile(
        configs: &AccountConfigs,
        providers: &[KnownProvider<'_>],
        problems: &mut Vec<Problem>,
    ) -> Self {
        if configs.len() > ACCOUNTS_MAX {
            problems.push(Problem::new("accounts", format!("more than {ACCOUNTS_MAX} accounts")));
            return Self::default();
        }
        let compiled = configs.iter().filter_map(|(name, config)| {
            let at = format!("accounts.{name}");
            let before = problems.len();
            check_name(name, &at, problems);
            check_providers(config, &at, providers, problems);
            let credential = Credential::compile(config, &at, problems);
            let credential = credential.filter(|_| problems.len() == before)?;
            Some(Account {
                name: name.as_str().into(),
                providers: config.provider.to_vec().into(),
                credential,
            })
        });
        Self(compiled.collect())
    }

    /// The account with that number.
    pub fn get(&self, number: usize) -> Option<&Account> {
        self.0.get(number)
    }

    /// The number of the account of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|account| &*account.name == name)
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Account> {
        self.0.iter()
    }
}

impl Account {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What kind of credential it is, as the config has it.
    pub fn kind(&self) -> &'static str {
        self.credential.kind()
    }

    /// The names of the providers that it is for.
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    /// Whether it is for the provider of that name.
    pub fn is_for(&self, provider: &str) -> bool {
        self.providers.iter().any(|own| own == provider)
    }

    /// What is shown in the handshake of TLS, if that is its credential.
    pub fn certificate(&self) -> Option<&CertificateConfig> {
        match &self.credential {
            Credential::Certificate(certificate) => Some(certificate),
            _ => None,
        }
    }

    /// Says in `applied` what its credential makes of a request to one of its providers. A fault means that the request cannot be sent.
    pub fn apply(&self, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<(), Fault> {
        self.credential.apply(outgoing, applied)
    }
}

/// A name is a metrics label, so it is kept plain.
fn check_name(name: &str, at: &str, problems: &mut Vec<Problem>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let message = format!("an account's name is 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`");
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
        let message =
            "the key `provider` is missing: a credential is sent to nobody but the providers that it is for";
        problems.push(Problem::new(at, message));
    }
    for (number, name) in config.provider.iter().enumerate() {
        let Some(provider) = known.iter().find(|provider| provider.name == name) else {
            let at = crate::matching::place(&config.provider, &format!("{at}.provider"), number);
            let problem = Problem::new(at, format!("no provider is called `{name}`"));
            problems.push(problem.suggest(name, known.iter().map(|provider| provider.name)));
            continue;
        };
        if config.certificate.is_some() && !provider.tls {
            let message = format!("a certificate is shown over TLS, and the URL of `{name}` is not `https`");
            problems.push(Problem::new(format!("{at}.certificate"), message));
        }
    }
}
