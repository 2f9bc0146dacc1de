//! The secrets that accounts send now, or sent a while ago: recordings must show none of them, wherever a
//! provider or a client repeats them.
//!
//! It outlives reloads, and is shared by all who fetch tokens with the thread that records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use egret_items::opaque;
use parking_lot::Mutex;
use tracing::warn;
use zeroize::Zeroizing;

use super::echo::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, SecretPatterns};

/// Maximum number of former secrets. Exchanges that are in flight may still repeat them.
const FORMER_MAX: usize = 1024;

/// Maximum length of all secrets that are searched for, in bytes. Their patterns take some hundred times as
/// much memory. The current ones come first.
const SEARCHED_BYTES_MAX: usize = 64 << 10;

type SecretBytes = Zeroizing<Vec<u8>>;

/// The secrets in force, and the latest former ones.
#[derive(Default)]
pub struct SecretsInForce {
    state: Mutex<InForceState>,
}

#[derive(Default)]
struct InForceState {
    /// Number of changes.
    version: u64,
    /// The secrets by owner: an account, or its tokens.
    current: BTreeMap<String, Vec<SecretBytes>>,
    former: VecDeque<SecretBytes>,
    /// The patterns of a version, and that version.
    compiled: Option<(u64, Option<Arc<SecretPatterns>>)>,
}

opaque!(SecretsInForce);

impl SecretsInForce {
    /// Puts the secrets of these accounts in force. Those of all others, and their tokens, become former
    /// ones.
    pub(super) fn set_accounts<'a>(&self, accounts: impl Iterator<Item = (&'a str, Vec<&'a [u8]>)>) {
        let mut state = self.state.lock();
        let mut gone = std::mem::take(&mut state.current);
        for (name, secrets) in accounts {
            for (owner, secrets) in
                [(name.to_owned(), Some(secrets)), (access_of(name), None), (refresh_of(name), None)]
            {
                if let Some(before) = gone.remove(&owner) {
                    state.current.insert(owner.clone(), before);
                }
                if let Some(secrets) = secrets {
                    state.replace(owner, &secrets);
                }
            }
        }
        let gone: Vec<_> = gone.into_values().flatten().collect();
        state.version += u64::from(!gone.is_empty());
        state.retire(gone);
    }

    /// Puts the access token of an account in force, or the secrets that it gets in place of one.
    pub(super) fn set_access_token(&self, account: &str, secrets: &[&str]) {
        let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_bytes()).collect();
        self.state.lock().replace(access_of(account), &secrets);
    }

    /// Puts the refresh token of an account in force.
    pub(super) fn set_refresh_token(&self, account: &str, token: &str) {
        self.state.lock().replace(refresh_of(account), &[token.as_bytes()]);
    }

    /// Returns the patterns to search for; `None` if there are no secrets. The first call after a change
    /// compiles them, without keeping others waiting.
    pub fn patterns(&self) -> Option<Arc<SecretPatterns>> {
        let state = self.state.lock();
        if let Some((version, patterns)) = &state.compiled
            && *version == state.version
        {
            return patterns.clone();
        }
        let (version, searched) = (state.version, state.searched());
        drop(state);
        let patterns = if searched.is_empty() {
            None
        } else {
            // Their lengths have been checked.
            SecretPatterns::new(searched.iter().map(|secret| secret.as_slice())).ok().map(Arc::new)
        };
        self.state.lock().compiled = Some((version, patterns.clone()));
        patterns
    }
}

/// The owner of an account's access token. Names of accounts have no spaces.
fn access_of(account: &str) -> String {
    format!("{account} access")
}

fn refresh_of(account: &str) -> String {
    format!("{account} refresh")
}

impl InForceState {
    fn replace(&mut self, owner: String, secrets: &[&[u8]]) {
        let is_searchable = |secret: &&&[u8]| (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len());
        let secrets: Vec<SecretBytes> =
            secrets.iter().filter(is_searchable).map(|secret| Zeroizing::new(secret.to_vec())).collect();
        let before = self.current.get(&owner);
        if before.map_or(secrets.is_empty(), |before| *before == secrets) {
            return;
        }
        self.version += 1;
        let replaced = self.current.insert(owner, secrets).unwrap_or_default();
        self.retire(replaced);
    }

    fn retire(&mut self, secrets: Vec<SecretBytes>) {
        self.former.extend(secrets);
        let surplus = self.former.len().saturating_sub(FORMER_MAX);
        self.former.drain(..surplus);
    }

    /// Returns the secrets to search for: all current ones and the latest former ones, as many as fit.
    fn searched(&self) -> Vec<SecretBytes> {
        let current = self.current.values().flatten();
        let (mut bytes, mut count) = (0, 0);
        let mut searched = Vec::new();
        for secret in current.clone().chain(self.former.iter().rev()) {
            bytes += secret.len();
            if bytes > SEARCHED_BYTES_MAX {
                break;
            }
            count += 1;
            searched.push(secret.clone());
        }
        let all = current.count();
        if count < all {
            warn!(
                searched = count,
                secrets = all,
                "accounts have too many secrets: recordings are searched for some alone"
            );
        }
        searched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text with those secrets masked.
    fn shown(secrets: &SecretsInForce, text: &str) -> String {
        let masked = secrets.patterns().and_then(|patterns| patterns.masked(text.as_bytes()));
        masked.map_or_else(|| text.to_owned(), |masked| String::from_utf8(masked).unwrap())
    }

    fn set(secrets: &SecretsInForce, accounts: &[(&str, &str)]) {
        secrets.set_accounts(accounts.iter().map(|(name, secret)| (*name, vec![secret.as_bytes()])));
    }

    #[test]
    fn current_and_former_secrets_are_masked() {
        let secrets = SecretsInForce::default();
        assert!(secrets.patterns().is_none());
        set(&secrets, &[("a", "first-secret"), ("b", "short")]);
        secrets.set_access_token("a", &["token-number-one"]);
        assert_eq!(
            shown(&secrets, "first-secret token-number-one short"),
            "************ **************** short"
        );
        set(&secrets, &[("a", "second-secret")]);
        secrets.set_access_token("a", &["token-number-two"]);
        secrets.set_refresh_token("a", "refresh-number-one");
        for secret in
            ["first-secret", "second-secret", "token-number-one", "token-number-two", "refresh-number-one"]
        {
            assert_eq!(shown(&secrets, secret), "*".repeat(secret.len()));
        }
        set(&secrets, &[]);
        assert_eq!(shown(&secrets, "second-secret"), "*************");
    }

    #[test]
    fn the_patterns_are_compiled_once_for_each_change() {
        let secrets = SecretsInForce::default();
        set(&secrets, &[("a", "first-secret")]);
        let before = secrets.patterns().unwrap();
        set(&secrets, &[("a", "first-secret")]);
        assert!(Arc::ptr_eq(&before, &secrets.patterns().unwrap()));
        secrets.set_access_token("a", &["token-number-one"]);
        assert!(!Arc::ptr_eq(&before, &secrets.patterns().unwrap()));
    }

    #[test]
    fn former_secrets_are_bounded_and_current_ones_are_searched_first() {
        let secrets = SecretsInForce::default();
        set(&secrets, &[("a", "first-secret")]);
        for number in 0..2 * FORMER_MAX {
            secrets.set_access_token("a", &[&format!("token-number-{number}")]);
        }
        assert_eq!(secrets.state.lock().former.len(), FORMER_MAX);
        let large = "x".repeat(SECRET_BYTES_MAX);
        let many: Vec<(String, String)> =
            (0..5).map(|number| (number.to_string(), format!("{number}{}", &large[1..]))).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, secret)| (&**name, &**secret)).collect();
        set(&secrets, &many);
        assert_eq!(secrets.state.lock().searched().len(), 4);
    }
}
