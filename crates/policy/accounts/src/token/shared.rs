//! A token that the gateways of a cluster share: its identity, and its state as it is stored.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use egret_config::Secret;
use egret_store::shared::{SharedTokens, TokenAnswer, TokenClaim, TokenIdentity};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::config::{Grant, OAuth2Config};
use super::wiped::WipedText;

/// The part of a token that is shared.
#[derive(Debug)]
pub(super) struct Sharing {
    tokens: Arc<dyn SharedTokens>,
    identity: Arc<TokenIdentity>,
    /// A digest of the requests for the access token. Gateways with other scopes share the refresh token
    /// alone.
    request: [u8; 32],
    timeout: Duration,
}

/// The state of a token, as it is stored.
#[derive(Serialize, Deserialize)]
pub(super) struct TokenState {
    /// The digest of the request for the access token.
    pub request: [u8; 32],
    pub access_token: WipedText,
    /// Lifetime of the access token, in milliseconds.
    pub life_ms: u64,
    /// The part of it that was over when the state was stored.
    pub used_ms: u64,
    /// The refresh token to use next.
    pub refresh_token: Option<WipedText>,
}

impl TokenState {
    /// Serializes the state.
    pub fn save(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Deserializes the output of [`save`](Self::save); `None` if it is invalid.
    pub fn load(saved: &[u8]) -> Option<Self> {
        serde_json::from_slice(saved).ok()
    }
}

impl Sharing {
    pub fn new(account: &Arc<str>, config: &OAuth2Config, tokens: &Arc<dyn SharedTokens>) -> Self {
        let request = request_digest(config);
        let is_exclusive = config.grant == Grant::RefreshToken;
        let mut content = DigestInput::default();
        content.add(&[account.as_bytes(), config.token_url.as_bytes(), config.client_id.as_bytes()]);
        // A refresh token is the same grant whatever is requested with it.
        if let Some(refresh_token) = &config.refresh_token {
            content.add(&[b"r", refresh_token.expose().as_bytes()]);
        } else {
            // An assertion by somebody else is another one each hour, and in each gateway.
            let proof = config.client_secret.as_ref().or(config.private_key());
            content.add(&[b"c", secret(proof), &request]);
        }
        let identity = Arc::new(TokenIdentity {
            account: Arc::clone(account),
            endpoint: config.token_url.as_str().into(),
            content: content.0,
            is_exclusive,
        });
        tokens.open(&identity);
        Self { tokens: Arc::clone(tokens), identity, request, timeout: config.timeout.get() }
    }

    /// Returns `true` if both share the same refresh token.
    pub fn is_same_grant(&self, other: &Self) -> bool {
        self.identity.is_exclusive && self.identity.content == other.identity.content
    }

    /// `true` if one gateway at a time may fetch the token, and none without the store.
    pub fn is_exclusive(&self) -> bool {
        self.identity.is_exclusive
    }

    /// The digest of the request for the access token.
    pub fn request(&self) -> [u8; 32] {
        self.request
    }

    /// Claims a token that is newer than `known`, or the right to fetch it.
    pub fn claim(&self, known: u64) -> oneshot::Receiver<TokenAnswer> {
        let (answer, answered) = oneshot::channel();
        let identity = Arc::clone(&self.identity);
        self.tokens.claim(TokenClaim { identity, known, timeout: self.timeout, answer });
        answered
    }
}

/// Returns a digest of all that determines which access token is granted, except the client and its secrets.
fn request_digest(config: &OAuth2Config) -> [u8; 32] {
    let mut parts = DigestInput::default();
    let lists = [&config.scope, &config.resource];
    for list in lists {
        parts.add(&[&list.len().to_le_bytes()]);
        parts.add(&list.iter().map(String::as_bytes).collect::<Vec<_>>());
    }
    parts.add(&[config.audience.as_deref().unwrap_or_default().as_bytes()]);
    for (name, value) in &config.parameters {
        parts.add(&[name.as_bytes(), value.as_bytes()]);
    }
    if let Some(assertion) = &config.assertion {
        for text in [&assertion.issuer, &assertion.subject, &assertion.audience, &assertion.key_id] {
            parts.add(&[text.as_deref().unwrap_or_default().as_bytes()]);
        }
        for (name, value) in &assertion.claims {
            parts.add(&[name.as_bytes(), value.as_bytes()]);
        }
    }
    digest(&SHA256, &parts.0).as_ref().try_into().unwrap_or_default()
}

fn secret(secret: Option<&Secret>) -> &[u8] {
    secret.map_or(b"", |secret| secret.expose().as_bytes())
}

/// Texts that are told apart by their lengths.
#[derive(Default)]
struct DigestInput(Zeroizing<Vec<u8>>);

impl DigestInput {
    fn add(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.0.extend_from_slice(&part.len().to_le_bytes());
            self.0.extend_from_slice(part);
        }
    }
}
