//! Builds the request for a token (RFC 6749 §4.4.2 and §6).

use egret_har::base64;
use zeroize::Zeroizing;

use super::config::{ClientAuth, Grant, OAuth2Config, TokenEndpoint};

/// Capacity for the parts of a request that do not depend on the config. Allocated at once, because a
/// reallocation would leave a copy of the secrets behind.
const REQUEST_BYTES: usize = 4096;

/// Returns a complete request for a token from `endpoint`.
pub(super) fn request(
    config: &OAuth2Config,
    endpoint: &TokenEndpoint,
    refresh_token: &str,
) -> Zeroizing<Vec<u8>> {
    let body = form(config, refresh_token);
    let mut message = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES + body.len()));
    let TokenEndpoint { authority, target, .. } = endpoint;
    for piece in ["POST ", target, " HTTP/1.1\r\nHost: ", authority, "\r\n"] {
        message.extend_from_slice(piece.as_bytes());
    }
    message.extend_from_slice(
        b"Accept: application/json\r\nUser-Agent: egret\r\nContent-Type: application/x-www-form-urlencoded\r\n",
    );
    if let (ClientAuth::Basic, Some(secret)) = (config.client_auth, &config.client_secret) {
        let mut pair = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES));
        encode(&config.client_id, &mut pair);
        pair.push(b':');
        encode(secret.expose(), &mut pair);
        message.extend_from_slice(b"Authorization: Basic ");
        base64::encode(&pair, &mut message);
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    message.extend_from_slice(&body);
    message
}

fn form(config: &OAuth2Config, refresh_token: &str) -> Zeroizing<Vec<u8>> {
    let mut form = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES));
    let mut put = |name: &str, value: &str| {
        if !form.is_empty() {
            form.push(b'&');
        }
        encode(name, &mut form);
        form.push(b'=');
        encode(value, &mut form);
    };
    match config.grant {
        Grant::ClientCredentials => put("grant_type", "client_credentials"),
        Grant::RefreshToken => {
            put("grant_type", "refresh_token");
            put("refresh_token", refresh_token);
        }
    }
    if !config.scope.is_empty() {
        put("scope", &config.scope.join(" "));
    }
    if let Some(audience) = &config.audience {
        put("audience", audience);
    }
    config.resource.iter().for_each(|resource| put("resource", resource));
    config.parameters.iter().for_each(|(name, value)| put(name, value));
    match (&config.client_secret, config.client_auth) {
        (Some(_), ClientAuth::Basic) => {}
        (Some(secret), ClientAuth::Post) => {
            put("client_id", &config.client_id);
            put("client_secret", secret.expose());
        }
        // RFC 6749 §3.2.1: a client without a secret sends its id.
        (None, _) => put("client_id", &config.client_id),
    }
    form
}

/// Appends `text` in form encoding (RFC 6749 appendix B).
fn encode(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => out.push(byte),
            b' ' => out.push(b'+'),
            _ => {
                let (high, low) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'%', high, low]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use egret_config::Secret;
    use serde_json::json;

    use super::*;

    /// Returns the head without the constant fields, and the body.
    fn sent(change: impl FnOnce(&mut OAuth2Config)) -> (String, String) {
        let config = json!({ "token_url": "https://id.example:8443/token?tenant=1", "client_id": "me" });
        let mut config: OAuth2Config = serde_json::from_value(config).unwrap();
        change(&mut config);
        let endpoint = TokenEndpoint::parse(&config.token_url).unwrap();
        let message = String::from_utf8(request(&config, &endpoint, "r+1").to_vec()).unwrap();
        let (head, body) = message.split_once("\r\n\r\n").unwrap();
        let always = "POST /token?tenant=1 HTTP/1.1\r\nHost: id.example:8443\r\nAccept: application/json\r\nUser-Agent: egret\r\n\
                      Content-Type: application/x-www-form-urlencoded\r\n";
        let head = head.strip_prefix(always).unwrap();
        let length = format!("Content-Length: {}", body.len());
        (head.strip_suffix(&length).unwrap().to_owned(), body.to_owned())
    }

    #[test]
    fn a_client_with_a_secret_proves_who_it_is() {
        // RFC 6749 §2.3.1 requires form encoding of both parts before Base64.
        let secret = Some(Secret::from_value("s", "a b:c/\u{e4}".to_owned()));
        let (head, body) = sent(|config| config.client_secret.clone_from(&secret));
        let mut expected = Vec::new();
        base64::encode(b"me:a+b%3Ac%2F%C3%A4", &mut expected);
        assert_eq!(head, format!("Authorization: Basic {}\r\n", String::from_utf8(expected).unwrap()));
        assert_eq!(body, "grant_type=client_credentials");
        let (head, body) = sent(|config| {
            config.client_secret = secret;
            config.client_auth = ClientAuth::Post;
        });
        assert_eq!(head, "");
        assert_eq!(body, "grant_type=client_credentials&client_id=me&client_secret=a+b%3Ac%2F%C3%A4");
    }

    #[test]
    fn the_form_contains_the_configured_parameters() {
        let (head, body) = sent(|config| {
            config.grant = Grant::RefreshToken;
            config.scope = vec!["read:a".to_owned(), "write".to_owned()];
            config.audience = Some("https://api.example/".to_owned());
            config.resource = vec!["urn:a".to_owned(), "urn:b".to_owned()];
            config.parameters = [("x y".to_owned(), "&=".to_owned())].into();
        });
        assert_eq!(head, "");
        assert_eq!(
            body,
            "grant_type=refresh_token&refresh_token=r%2B1&scope=read%3Aa+write&audience=https%3A%2F%2Fapi.example%2F\
             &resource=urn%3Aa&resource=urn%3Ab&x+y=%26%3D&client_id=me"
        );
    }
}
