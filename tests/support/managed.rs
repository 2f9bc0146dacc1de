//! Secrets in a secret manager, as the tests of stand-ins and of real managers use them: sent to the origin
//! as a bearer token.

use crate::egret::{Config, Egret};
use crate::provider::{Provider, Request};

/// Reference to the field `key` of a secret of Vault.
pub const STRIPE: &str = "${vault:secret/data/stripe#key}";

/// Returns a config whose calls to the origin carry the secret of this reference; `secrets` are the keys of
/// that section.
pub fn config(origin: &Provider, reference: &str, secrets: &str) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "secrets: {{ {secrets} }}\n\
         accounts:\n  main: {{ provider: origin, bearer: {{ token: '{reference}' }} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
    ))
}

/// Returns the token that a request carries.
pub fn token_of(request: &Request) -> String {
    request.values("authorization").concat().replace("Bearer ", "")
}

/// Returns the token used by the next call, which must not fail.
pub fn token(egret: &Egret, origin: &Provider) -> String {
    egret.get("/a").assert_forwarded(200);
    token_of(origin.requests().last().unwrap())
}
