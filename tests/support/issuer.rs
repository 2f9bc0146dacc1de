//! A stand-in for an issuer of JSON Web Tokens: its keys, the documents that it publishes, and its tokens.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{KeyPair, PKCS_ED25519, SigningKey};
use serde_json::{Value, json};

use crate::provider::{Peer, Provider, Request};
use crate::wait::Watched;

/// A private key of an issuer.
#[derive(Debug)]
pub struct TokenKey {
    pair: KeyPair,
    id: &'static str,
}

impl TokenKey {
    /// Creates a key with this `kid`.
    pub fn new(id: &'static str) -> Self {
        Self { pair: KeyPair::generate_for(&PKCS_ED25519).unwrap(), id }
    }

    /// The public key as a JWK (RFC 8037 §2).
    pub fn jwk(&self) -> Value {
        let x = base64url(self.pair.public_key_raw());
        json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": self.id, "x": x })
    }

    /// Signs a token with these claims. `iat` and `exp` are those of an hour from now, unless they are given.
    pub fn token(&self, claims: Value) -> String {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut whole = json!({ "iat": now_s, "exp": now_s + 3_600 });
        if let (Value::Object(whole), Value::Object(claims)) = (&mut whole, claims) {
            whole.extend(claims);
        }
        let header = json!({ "alg": "EdDSA", "kid": self.id });
        let [header, claims] = [header, whole].map(|part| base64url(part.to_string().as_bytes()));
        let signed = format!("{header}.{claims}");
        let signature = base64url(&self.pair.sign(signed.as_bytes()).unwrap());
        format!("{signed}.{signature}")
    }
}

/// Returns a JWK Set of these keys.
pub fn key_set(keys: &[&TokenKey]) -> String {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }).to_string()
}

/// An issuer whose documents are served over HTTP.
#[derive(Debug)]
pub struct StandInIssuer {
    provider: Provider,
    state: Arc<Watched<Published>>,
}

#[derive(Debug, Default)]
struct Published {
    key_set: String,
    /// The token that is needed to fetch the documents.
    token: Option<&'static str>,
    is_down: bool,
}

impl StandInIssuer {
    /// Starts an issuer with these keys. Without `token`, it gives its documents to nobody.
    pub fn start(keys: &[&TokenKey], token: Option<&'static str>) -> Self {
        let state = Arc::new(Watched::<Published>::default());
        state.change(|state| *state = Published { key_set: key_set(keys), token, is_down: false });
        let served = Arc::clone(&state);
        let provider = Provider::scripted(move |peer| serve(peer, &served));
        Self { provider, state }
    }

    /// The `iss` of its tokens.
    pub fn url(&self) -> String {
        self.provider.url()
    }

    /// The claims of a token of `name` for the audience `egret`.
    pub fn claims(&self, name: &str) -> Value {
        json!({ "iss": self.url(), "aud": "egret", "sub": name })
    }

    /// Replaces the keys.
    pub fn publish(&self, keys: &[&TokenKey]) {
        self.state.change(|state| state.key_set = key_set(keys));
    }

    /// Closes every connection without a response from now on.
    pub fn go_down(&self) {
        self.state.change(|state| state.is_down = true);
    }

    /// Responds again.
    pub fn come_back(&self) {
        self.state.change(|state| state.is_down = false);
    }

    /// Number of times that the keys were fetched or asked for.
    pub fn fetches(&self) -> usize {
        self.provider.requests().iter().filter(|request| request.target() == "/keys").count()
    }
}

fn serve(peer: &mut Peer, state: &Watched<Published>) {
    while let Some(request) = peer.request() {
        let Some(response) = state.read(|state| (!state.is_down).then(|| respond(state, &request))) else {
            return;
        };
        peer.send(response);
    }
}

fn respond(state: &Published, request: &Request) -> Vec<u8> {
    let given = request.values("authorization").concat();
    if state.token.is_some_and(|token| given != format!("Bearer {token}")) {
        return response("401 Unauthorized", "{}");
    }
    let own = format!("http://{}", request.values("host").concat());
    match request.target() {
        "/keys" => response("200 OK", &state.key_set),
        "/.well-known/openid-configuration" => {
            let metadata = json!({ "issuer": own, "jwks_uri": format!("{own}/keys") });
            response("200 OK", &metadata.to_string())
        }
        _ => response("404 Not Found", "{}"),
    }
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nCache-Control: max-age=300\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Encodes bytes in Base64 for URLs, without padding (RFC 4648 §5).
pub fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for piece in bytes.chunks(3) {
        let bits = piece.iter().chain(&[0, 0]).take(3).fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        let digits = (0..=piece.len()).map(|place| DIGITS[bits >> (18 - 6 * place) & 63]);
        text.extend(digits.map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_without_padding() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (b"\xfb\xff\xfe", "-__-")]
        {
            assert_eq!(base64url(bytes), text);
        }
    }
}
