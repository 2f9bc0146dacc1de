//! Identities of clouds without an account: Egret proves them in requests of its own, such as those to secret
//! managers.

use std::sync::Arc;
use std::task::{Context, Waker};

use egret_aws::Signer;
use egret_clock::Timestamp;
use egret_config::Problem;
use zeroize::Zeroizing;

use super::credential::in_cloud_terms;
use super::in_force::SecretsInForce;
use super::sigv4::{RequestSigner, Sigv4Config};
use super::token::{Fetch, GcpConfig, OAuth2Config, Token, TokenError, TokenTurn, TokenWaiter};

/// A compiled identity, which is proven once: nothing renews what was fetched for it.
#[derive(Debug)]
pub struct CloudIdentity(Proof);

#[derive(Debug)]
enum Proof {
    /// Signatures, with keys that may have to be fetched.
    Signature(Box<RequestSigner>),
    /// A token that is fetched.
    Token(Arc<Token>),
}

impl CloudIdentity {
    /// Compiles an identity of AWS. Problems have paths below `at`.
    ///
    /// # Errors
    ///
    /// Fails with the problems of the config.
    pub fn aws(config: &Sigv4Config, at: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let fetched = |request: &OAuth2Config| token(request, &format!("{at}.identity"), &mut problems);
        match RequestSigner::compile(config, fetched) {
            Ok(Some(signer)) => Ok(Self(Proof::Signature(Box::new(signer)))),
            Ok(None) => Err(problems),
            Err((key, message)) => Err(vec![Problem::new(format!("{at}.{key}"), message)]),
        }
    }

    /// Compiles an identity of Google Cloud. Problems have paths below `at`.
    ///
    /// # Errors
    ///
    /// Fails with the problems of the config.
    pub fn gcp(config: &GcpConfig, at: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let (key, request) = config
            .request()
            .map_err(|(key, error)| vec![Problem::new(format!("{at}.{key}"), error.to_string())])?;
        match token(&request, at, &mut problems) {
            Some(token) => Ok(Self(Proof::Token(token))),
            None => Err(problems.iter().map(|problem| in_cloud_terms(problem, at, key)).collect()),
        }
    }

    /// Returns the first request for what proves the identity, if there must be one. Further ones are those
    /// of [`Fetch::end`].
    pub fn fetch(&self, now: Timestamp) -> Option<Fetch> {
        let context = Context::from_waker(Waker::noop());
        match self.token()?.poll(&mut TokenWaiter::default(), now, &context) {
            TokenTurn::Ready(fetch) | TokenTurn::Wait(fetch, _) => fetch,
            TokenTurn::Refused(_) => None,
        }
    }

    /// Returns the signer of requests to AWS, if there is one with keys.
    pub fn signer(&self, now: Timestamp) -> Option<Arc<Signer>> {
        match &self.0 {
            Proof::Signature(signer) => signer.signer(now).ok(),
            Proof::Token(_) => None,
        }
    }

    /// Returns the value of `Authorization` that has the token, if there is one.
    pub fn field(&self) -> Option<Arc<Zeroizing<Vec<u8>>>> {
        match &self.0 {
            Proof::Token(token) => token.field(),
            Proof::Signature(_) => None,
        }
    }

    /// Returns the reason why the last fetch has failed, if it has.
    pub fn error(&self, now: Timestamp) -> Option<TokenError> {
        self.token()?.snapshot(now).error
    }

    fn token(&self) -> Option<&Arc<Token>> {
        match &self.0 {
            Proof::Signature(signer) => signer.token(),
            Proof::Token(token) => Some(token),
        }
    }
}

/// Compiles a token that no gateway and no recording knows. Its config is at the path `at`, which is its name
/// in the log.
fn token(request: &OAuth2Config, at: &str, problems: &mut Vec<Problem>) -> Option<Arc<Token>> {
    Token::compile(&at.into(), request, None, None, &Arc::<SecretsInForce>::default(), at, problems)
}

#[cfg(test)]
mod tests {
    use egret_config::Secret;
    use serde_json::{Value, json};

    use super::*;
    use crate::token::TokenResponse;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn aws(config: &Value) -> Result<CloudIdentity, Vec<Problem>> {
        let mut config = config.clone();
        let more = json!({ "region": "eu-west-1", "service": "secretsmanager" });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        CloudIdentity::aws(&serde_json::from_value(config).unwrap(), "secrets.aws")
    }

    fn gcp(config: &Value) -> Result<CloudIdentity, Vec<Problem>> {
        CloudIdentity::gcp(&serde_json::from_value(config.clone()).unwrap(), "secrets.gcp.identity")
    }

    #[test]
    fn an_identity_of_a_machine_is_proven_by_what_is_fetched() {
        let identity = gcp(&json!({ "metadata": true })).unwrap();
        assert!(identity.field().is_none() && identity.signer(NOW).is_none());
        let fetch = identity.fetch(NOW).unwrap();
        assert_eq!(&*fetch.endpoint().authority, "169.254.169.254");
        assert!(fetch.is_of_machine());
        let body: &[u8] = br#"{"access_token":"hunter2","expires_in":60,"token_type":"Bearer"}"#;
        let response = TokenResponse { status: 200, retry_after: None, body };
        assert!(fetch.end(NOW, Ok(response)).is_none());
        assert_eq!(identity.field().unwrap().as_slice(), b"Bearer hunter2");
        assert_eq!(identity.error(NOW), None);
        assert!(identity.fetch(NOW).is_none(), "a good token is not fetched again");
    }

    #[test]
    fn an_identity_that_is_refused_says_why() {
        let identity = aws(&json!({ "identity": { "instance": true } })).unwrap();
        let response = TokenResponse { status: 404, retry_after: None, body: b"" };
        assert!(identity.fetch(NOW).unwrap().end(NOW, Ok(response)).is_none());
        let error = identity.error(NOW).unwrap().to_string();
        assert!(error.contains("attach a role to the machine"), "{error}");
        assert!(identity.signer(NOW).is_none() && identity.field().is_none());
    }

    #[test]
    fn keys_of_the_config_need_no_fetch() {
        let sigv4: Sigv4Config = serde_json::from_value(json!({ "region": "a", "service": "b" })).unwrap();
        let secret = |value: &str| Some(Secret::from_value("${env:KEY}", value.to_owned()));
        let sigv4 = Sigv4Config { access_key_id: secret("AKID"), secret_access_key: secret("s"), ..sigv4 };
        let identity = CloudIdentity::aws(&sigv4, "secrets.aws").unwrap();
        assert!(identity.fetch(NOW).is_none() && identity.signer(NOW).is_some());
        assert_eq!(identity.error(NOW), None);
    }

    #[test]
    fn mistakes_are_reported_at_keys_of_the_config() {
        let paths = |result: Result<CloudIdentity, Vec<Problem>>| -> Vec<String> {
            result.unwrap_err().into_iter().map(|problem| problem.path).collect()
        };
        assert_eq!(paths(aws(&json!({}))), ["secrets.aws.access_key_id"]);
        let nothing = json!({ "identity": {} });
        assert_eq!(paths(aws(&nothing)), ["secrets.aws.identity"]);
        let wait = json!({ "identity": { "instance": true, "wait_max": "0s" } });
        assert_eq!(paths(aws(&wait)), ["secrets.aws.identity.wait_max"]);
        assert_eq!(paths(gcp(&json!({}))), ["secrets.gcp.identity.service_account"]);
        let host = json!({ "metadata": true, "metadata_host": "a b" });
        assert_eq!(paths(gcp(&host)), ["secrets.gcp.identity.metadata_host"]);
    }
}
