//! All accounts of a config, compiled.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use egret_clock::Timestamp;
use egret_config::{Problem, Secret};
use egret_message::{KnownProvider, KnownProviders};
use egret_store::SharedState;

use super::account::Account;
use super::config::{AccountConfig, AccountConfigs};
use super::credential::Credential;
use super::handed_account::HandedAccount;
use super::in_force::SecretsInForce;
use super::placeholder::{Placeholder, secret_problem};
use super::shared_cooling::SharedCooling;

/// Maximum number of accounts in one config.
const ACCOUNTS_MAX: usize = 10_000;
/// Maximum length of an account's name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// All accounts of a config, by number, in the order of their names.
#[derive(Debug, Default)]
pub struct Accounts {
    list: Vec<Account>,
    /// The names of accounts that are left out because of a mistake, which has been reported.
    invalid: HashSet<String>,
    in_force: Arc<SecretsInForce>,
}

impl Accounts {
    /// Compiles `configs`. Reports each mistake in `problems` and leaves that account out. Keeps the state
    /// and the tokens of the accounts in `before`. What the gateways of a cluster share is in `shared`.
    pub fn compile(
        configs: &AccountConfigs,
        providers: &[KnownProvider<'_>],
        shared: SharedState<'_>,
        before: Option<&Self>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let in_force = before.map(|before| Arc::clone(&before.in_force)).unwrap_or_default();
        if configs.len() > ACCOUNTS_MAX {
            problems.push(Problem::new("accounts", format!("at most {ACCOUNTS_MAX} accounts are allowed")));
            return Self { list: Vec::new(), invalid: configs.keys().cloned().collect(), in_force };
        }
        let providers = KnownProviders::new(providers);
        let compiled = configs.iter().filter_map(|(name, config)| {
            let at = format!("accounts.{name}");
            let known = problems.len();
            check_name(name, &at, problems);
            check_providers(config, &at, &providers, problems);
            let before = before.and_then(|before| before.get(before.find(name)?));
            let name: Arc<str> = name.as_str().into();
            let token = before.and_then(Account::token);
            let credential =
                Credential::compile(config, &name, token, shared.tokens, &in_force, &at, problems);
            let placeholder = compile_placeholder(config, &at, problems);
            let credential = credential.filter(|_| problems.len() == known)?;
            let own = config.provider.iter().filter_map(|own| providers.number(own));
            let own: BTreeSet<usize> = own.collect();
            let (state, version) = before.map(|before| before.inherited(config)).unwrap_or_default();
            let digest = config.digest();
            let shared = shared
                .marks
                .filter(|sink| sink.is_keyed())
                .map(|sink| SharedCooling::new(sink, &digest, &config.provider, Arc::clone(&state), version));
            Some(Account {
                name,
                providers: config.provider.to_vec().into(),
                numbers: own.into_iter().collect(),
                credential,
                config: config.clone(),
                state,
                shared,
                digest,
                version,
                placeholder,
                secret_patterns: OnceLock::new(),
            })
        });
        let mut compiled = Self { list: compiled.collect(), invalid: HashSet::new(), in_force };
        let left_out = configs.keys().filter(|name| compiled.find(name).is_none());
        compiled.invalid = left_out.cloned().collect();
        compiled
    }

    /// Returns `true` if the config has an account of that name, with a mistake that has been reported.
    pub fn is_invalid(&self, name: &str) -> bool {
        self.invalid.contains(name)
    }

    /// Puts the secrets of these accounts in force: recordings do not show them from now on. Call it before
    /// any exchange uses the accounts.
    pub fn put_in_force(&self) {
        let accounts = self.iter().map(|account| (account.name(), account.secrets_in_force()));
        self.in_force.set_accounts(accounts);
    }

    /// The secrets in force, which are the same for all configs of a process.
    pub fn in_force(&self) -> &Arc<SecretsInForce> {
        &self.in_force
    }

    /// Returns the account with that number.
    pub fn get(&self, number: usize) -> Option<&Account> {
        self.list.get(number)
    }

    /// Returns the number of the account with that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.list.binary_search_by(|account| (*account.name).cmp(name)).ok()
    }

    /// Returns what the next process takes over.
    pub fn hand_over(&self, now: Timestamp) -> Vec<HandedAccount> {
        self.iter().filter_map(|account| account.hand_over(now)).collect()
    }

    /// Takes over the state of an earlier process.
    pub fn inherit(&self, now: Timestamp, handed: &[HandedAccount]) {
        for handed in handed {
            if let Some(account) = self.find(&handed.name).and_then(|number| self.get(number)) {
                account.inherit(now, handed);
            }
        }
    }

    /// Iterates over all accounts, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Account> {
        self.list.iter()
    }
}

/// Compiles the placeholder of `config` and returns it with its secret, if there is one and both are valid.
fn compile_placeholder(
    config: &AccountConfig,
    at: &str,
    problems: &mut Vec<Problem>,
) -> Option<(Placeholder, Secret)> {
    let placeholder = config.placeholder.as_ref()?;
    let at = format!("{at}.placeholder");
    let compiled = Placeholder::compile(placeholder, &at).map_err(|problem| problems.push(problem)).ok();
    let Some(secret) = config.secret() else {
        let message = "only for `basic` with a password, `api_key` and `bearer`: no other kind \
                       sends its secret verbatim";
        problems.push(Problem::new(at, message));
        return None;
    };
    if let Some(message) = secret_problem(secret.expose()) {
        problems.push(Problem::new(at, format!("invalid secret: {message}")));
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
    providers: &KnownProviders<'_>,
    problems: &mut Vec<Problem>,
) {
    if config.provider.is_empty() {
        let message = "the key `provider` is missing: it limits where the credential is sent";
        problems.push(Problem::new(at, message));
    }
    for (number, name) in config.provider.iter().enumerate() {
        let Some(provider) = providers.get(name) else {
            let at =
                egret_match::matching::path_of_entry(&config.provider, &format!("{at}.provider"), number);
            problems.push(Problem::unknown_name(at, "provider", name, providers.names()));
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

    use super::*;
    use crate::{BearerConfig, CoolDown, RefusedCall};

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);
    const RULE: CoolDown = CoolDown { first: Duration::from_secs(30), max: Duration::from_mins(10) };

    fn compiled(token: &str, provider: &[&str], before: Option<&Accounts>) -> Accounts {
        let bearer = BearerConfig { token: Secret::from_value("${env:TOKEN}", token.to_owned()) };
        let provider = provider.iter().copied().collect();
        let config = AccountConfig { provider, bearer: Some(bearer), ..AccountConfig::default() };
        let known = ["one", "two"].map(|name| KnownProvider { name, host: None, tls: true });
        let mut problems = Vec::new();
        let accounts = Accounts::compile(
            &[("a".to_owned(), config)].into(),
            &known,
            SharedState::default(),
            before,
            &mut problems,
        );
        assert!(problems.is_empty(), "{problems:?}");
        accounts
    }

    fn cools(accounts: &Accounts) -> bool {
        accounts.list[0].snapshot(NOW).cooling.is_some()
    }

    fn cool(accounts: &Accounts, status: u16) {
        let account = &accounts.list[0];
        let call = RefusedCall { started: NOW, status, version: account.version(), requested_pause: None };
        account.cool(call, NOW, RULE);
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
            assert!(Arc::ptr_eq(before.list[0].state(), after.list[0].state()));
        }
    }

    #[test]
    fn a_refused_old_secret_cools_no_new_one() {
        let before = compiled("one", &["one"], None);
        let after = compiled("two", &["one"], Some(&before));
        cool(&before, 401);
        assert!(!cools(&after));
    }

    #[test]
    fn the_next_process_inherits_cool_downs_of_current_secrets() {
        for (status, token, is_kept) in
            [(401, "one", true), (429, "one", true), (401, "two", false), (429, "two", true)]
        {
            let before = compiled("one", &["one"], None);
            cool(&before, status);
            let after = compiled(token, &["one"], None);
            let handed = before.hand_over(NOW);
            let message = serde_json::to_string(&handed).unwrap();
            after.inherit(NOW, &serde_json::from_str::<Vec<HandedAccount>>(&message).unwrap());
            assert_eq!(cools(&after), is_kept, "{status} {token}");
            let other = compiled("one", &["one", "two"], None);
            other.inherit(NOW, &handed);
            assert!(!cools(&other), "an account for other providers is another one");
        }
        assert!(compiled("one", &["one"], None).hand_over(NOW).is_empty());
    }

    #[test]
    fn a_digest_identifies_its_secret() {
        let of =
            |token: &str, provider: &[&str]| *compiled(token, provider, None).list[0].credential_digest();
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
