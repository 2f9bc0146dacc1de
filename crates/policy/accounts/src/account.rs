//! An account: its credential, its providers, and the state that all its users share.

use std::sync::{Arc, OnceLock};

use egret_clock::Timestamp;
use egret_config::Secret;

use super::config::{AccountConfig, CertificateConfig};
use super::cooling::{CoolDown, CoolingSnapshot};
use super::credential::Credential;
use super::echo::{SecretLengthError, SecretPatterns};
use super::ending::Ending;
use super::handed_account::HandedAccount;
use super::outgoing::{Applied, Outgoing};
use super::placeholder::Placeholder;
use super::shared_cooling::SharedCooling;
use super::snapshot::AccountSnapshot;
use super::state::{AccountState, AccountUse, RefusedCall};
use super::token::{Token, TokenSnapshot};
use super::unusable::Unusable;

/// A named credential for one or more providers.
#[derive(Debug)]
pub struct Account {
    pub(super) name: Arc<str>,
    pub(super) providers: Box<[String]>,
    /// The numbers of `providers` in the config.
    pub(super) numbers: Box<[usize]>,
    pub(super) credential: Credential,
    /// The config of this account. The next config is compared with it.
    pub(super) config: AccountConfig,
    pub(super) state: Arc<AccountState>,
    /// Shares the cool-down with other gateways; `None` without a cluster.
    pub(super) shared: Option<Arc<SharedCooling>>,
    /// A digest of the credential. The same secret always gives the same digest.
    pub(super) digest: [u8; 32],
    /// Number of times the credential has changed. Refusals of an earlier credential are not held against the
    /// current one.
    pub(super) version: u32,
    /// The placeholder that the client sends, and the secret that replaces it.
    pub(super) placeholder: Option<(Placeholder, Secret)>,
    /// The secrets as they are searched for in responses, compiled on first use.
    pub(super) secret_patterns: OnceLock<Result<Arc<SecretPatterns>, SecretLengthError>>,
}

/// Reason why an account's secrets cannot be masked in responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EchoError {
    /// The account sends tokens that change.
    #[error("its tokens change, and only a fixed secret can be masked")]
    ChangingTokens,
    /// A secret cannot be searched for.
    #[error("{0}")]
    Secret(SecretLengthError),
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

    /// Starts a use of the account, which has that `number`, at `now`.
    pub fn start_use(&self, number: usize, now: Timestamp) -> AccountUse {
        AccountUse::new(Arc::clone(&self.state), self.shared.clone(), number, now)
    }

    /// Starts or extends a cool-down after the refusal of `call`, here and in the whole cluster. It lasts
    /// until the time that the provider has requested, or as long as `rule` says. Refusals of calls that were
    /// in flight together count once. Returns the end of the cool-down if it is a new one.
    pub fn cool(&self, call: RefusedCall, now: Timestamp, rule: CoolDown) -> Option<Timestamp> {
        let begun = self.state.cool(call, now, rule);
        if let Some(shared) = &self.shared {
            shared.mark(now);
        }
        begun
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
        let snapshot = self.state.snapshot(now, self.version);
        let failing = || {
            let until = self.token()?.failing_until(now)?;
            Some(CoolingSnapshot { until, status: None })
        };
        AccountSnapshot {
            name: self.name.to_string(),
            kind: self.kind(),
            providers: self.providers.to_vec(),
            cooling: snapshot.cooling.or_else(failing),
            token: self.token_snapshot(now),
            ..snapshot
        }
    }

    /// Returns the state and the version that an account of the same name made from `config` inherits.
    pub(super) fn inherited(&self, config: &AccountConfig) -> (Arc<AccountState>, u32) {
        if self.config.provider != config.provider || self.config.kinds() != config.kinds() {
            return Default::default();
        }
        (Arc::clone(&self.state), self.version + u32::from(self.config != *config))
    }

    /// Returns the account's cool-down and the provider's report for the next process, if there is either.
    pub(super) fn hand_over(&self, now: Timestamp) -> Option<HandedAccount> {
        let mut handed = HandedAccount {
            name: self.name.to_string(),
            providers: self.providers.to_vec(),
            kind: self.kind().to_owned(),
            digest: self.digest,
            ..HandedAccount::default()
        };
        self.state.hand_over(now, self.version, &mut handed).then_some(handed)
    }

    /// Takes over the cool-down and the provider's report of an earlier process. An account of another kind,
    /// or for other providers, is another one. A new secret is not blamed for the refusals of the old one.
    pub(super) fn inherit(&self, now: Timestamp, handed: &HandedAccount) {
        let is_same = *self.providers == *handed.providers && self.kind() == handed.kind;
        let is_blamed = matches!(Ending::of(handed.status), Ending::Unauthorized | Ending::Forbidden);
        if is_same && (self.digest == handed.digest || !is_blamed) {
            self.state.inherit(now, handed, self.version);
        }
    }

    /// Returns every secret that a recording must not show, apart from what is fetched.
    pub(super) fn secrets_in_force(&self) -> Vec<&[u8]> {
        let mut secrets = self.config.secrets_in_force();
        if let Credential::Signature(signer) = &self.credential {
            secrets.extend(signer.printed_secrets().map(|secret| secret.expose().as_bytes()));
        }
        secrets
    }

    /// The client certificate for the TLS handshake, for an account of that kind.
    pub fn certificate(&self) -> Option<&CertificateConfig> {
        match &self.credential {
            Credential::Certificate(certificate) => Some(certificate),
            _ => None,
        }
    }

    /// The fetched token, or the fetched keys, for an account of that kind.
    pub fn token(&self) -> Option<&Arc<Token>> {
        match &self.credential {
            Credential::Token(_, token) => Some(token),
            Credential::Signature(signer) => signer.token(),
            _ => None,
        }
    }

    /// Returns the token's state at `now`, for display.
    pub fn token_snapshot(&self, now: Timestamp) -> Option<TokenSnapshot> {
        self.token().map(|token| token.snapshot(now))
    }

    /// Writes to `applied` the changes that the credential makes to a request to one of the account's
    /// providers. With an error, the request cannot be sent.
    pub fn apply(&self, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<(), Unusable> {
        match &self.placeholder {
            Some((placeholder, secret)) => {
                placeholder.swap(secret.expose(), outgoing, applied)?;
                Ok(())
            }
            None => self.credential.apply(outgoing, applied),
        }
    }

    /// Maximum length of a request body that the account must see before the request is sent, in bytes; 0 if
    /// it does not read the body.
    pub fn request_body_max(&self) -> usize {
        let searched = self.placeholder.as_ref().map(|(placeholder, _)| placeholder.body_bytes_max());
        searched.unwrap_or_else(|| self.credential.body_bytes_max())
    }

    /// Returns the secrets to mask in responses; `None` if the account does not send any. The error says why
    /// its secrets cannot be searched for.
    pub fn secret_patterns(&self) -> Result<Option<Arc<SecretPatterns>>, EchoError> {
        let has_identity = self.config.sigv4.as_ref().is_some_and(|sigv4| sigv4.identity.is_some());
        match &self.credential {
            Credential::Signature(_) if has_identity => return Err(EchoError::ChangingTokens),
            Credential::Field(..) | Credential::Query(..) | Credential::Signature(_) => {}
            Credential::Token(..) => {
                return Err(EchoError::ChangingTokens);
            }
            Credential::Certificate(_) => return Ok(None),
        }
        let secrets = self.config.secrets();
        if secrets.is_empty() {
            return Ok(None);
        }
        let secrets = secrets.iter().map(|secret| secret.expose().as_bytes());
        self.secret_patterns
            .get_or_init(|| SecretPatterns::new(secrets).map(Arc::new))
            .clone()
            .map(Some)
            .map_err(EchoError::Secret)
    }
}
