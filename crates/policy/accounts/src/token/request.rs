//! Builds the request for a token (RFC 6749 §4.4.2 and §6, RFC 7523 §2).

use std::collections::BTreeMap;

use egret_clock::Timestamp;
use egret_config::Secret;
use egret_har::base64;
use zeroize::Zeroizing;

use super::assertion::{AssertionSigner, Parties};
use super::config::{ClientAuth, Grant, OAuth2Config};
use super::endpoint::{REQUEST_BYTES, TokenEndpoint, message};

/// The version of GitHub's API, which each request names.
const GITHUB_VERSION: &str = "2022-11-28";

/// The grant type of an assertion (RFC 7523 §2.1).
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The type of an assertion by which a client proves who it is (RFC 7523 §2.2).
const CLIENT_ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The parts of a request that are not in the config.
pub(super) struct RequestParts<'a> {
    pub endpoint: &'a TokenEndpoint,
    pub refresh_token: &'a str,
    /// The private key of the config's assertion.
    pub signer: Option<&'a AssertionSigner>,
    /// The time from which an assertion is valid.
    pub now: Timestamp,
}

/// Returns a complete request for a token; `None` if its assertion cannot be signed.
pub(super) fn request(config: &OAuth2Config, parts: &RequestParts<'_>) -> Option<Zeroizing<Vec<u8>>> {
    let TokenEndpoint { authority, target, .. } = parts.endpoint;
    match config.grant {
        Grant::Metadata(service) => {
            let fields = [("Accept", "application/json"), service.field()];
            return Some(message("GET", target, parts.endpoint, &fields, b""));
        }
        Grant::Installation => return installation_request(config, parts),
        Grant::ClientCredentials | Grant::RefreshToken | Grant::JwtBearer => {}
    }
    let body = form(config, parts)?;
    let mut message = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES + body.len()));
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
    Some(message)
}

/// Returns a request for the token of an installation of a GitHub App.
fn installation_request(config: &OAuth2Config, parts: &RequestParts<'_>) -> Option<Zeroizing<Vec<u8>>> {
    let assertion =
        parts.signer?.sign_for_github(&config.client_id, config.assertion.as_ref()?, parts.now)?;
    let proof = Zeroizing::new(["Bearer ", &*assertion].concat());
    let fields = [
        ("Accept", "application/vnd.github+json"),
        ("X-GitHub-Api-Version", GITHUB_VERSION),
        ("Authorization", &*proof),
        ("Content-Length", "0"),
    ];
    Some(message("POST", &parts.endpoint.target, parts.endpoint, &fields, b""))
}

fn form(config: &OAuth2Config, parts: &RequestParts<'_>) -> Option<Zeroizing<Vec<u8>>> {
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
            put("refresh_token", parts.refresh_token);
        }
        Grant::JwtBearer => {
            put("grant_type", JWT_BEARER);
            put("assertion", &granted_assertion(config, parts)?);
        }
        // They have no form.
        Grant::Metadata(_) | Grant::Installation => return None,
    }
    if !config.scope.is_empty() {
        put("scope", &config.scope.join(" "));
    }
    if let Some(audience) = &config.audience {
        put("audience", audience);
    }
    config.resource.iter().for_each(|resource| put("resource", resource));
    config.parameters.iter().for_each(|(name, value)| put(name, value));
    let is_proven_by_assertion = config.grant == Grant::JwtBearer && config.client_assertion.is_none();
    match (&config.client_secret, config.client_auth) {
        (Some(_), ClientAuth::Basic) => {}
        (None, ClientAuth::Basic) if is_proven_by_assertion => {}
        // RFC 6749 §3.2.1: a client without a secret sends its id.
        _ => put("client_id", &config.client_id),
    }
    if let (Some(secret), ClientAuth::Post) = (&config.client_secret, config.client_auth) {
        put("client_secret", secret.expose());
    }
    let signed = match config.client_auth {
        ClientAuth::PrivateKeyJwt => Some(client_assertion(config, parts)?),
        ClientAuth::Basic | ClientAuth::Post => None,
    };
    let given = config.client_assertion.as_ref().map(Secret::expose);
    if let Some(assertion) = signed.as_ref().map(|signed| signed.as_str()).or(given) {
        put("client_assertion_type", CLIENT_ASSERTION_TYPE);
        put("client_assertion", assertion);
    }
    Some(form)
}

/// Returns the assertion that a token is granted for.
fn granted_assertion(config: &OAuth2Config, parts: &RequestParts<'_>) -> Option<Zeroizing<String>> {
    let assertion = config.assertion.as_ref()?;
    let issuer = assertion.issuer.as_deref().unwrap_or(&config.client_id);
    let parties = Parties {
        issuer,
        subject: assertion.subject.as_deref().unwrap_or(issuer),
        audience: assertion.audience.as_deref().unwrap_or(&config.token_url),
    };
    parts.signer?.sign(&parties, assertion, &assertion.claims, parts.now)
}

/// Returns the assertion that proves who the client is: issuer and subject are its id (RFC 7523 §3).
fn client_assertion(config: &OAuth2Config, parts: &RequestParts<'_>) -> Option<Zeroizing<String>> {
    let assertion = config.assertion.as_ref()?;
    let parties = Parties {
        issuer: &config.client_id,
        subject: &config.client_id,
        audience: assertion.audience.as_deref().unwrap_or(&config.token_url),
    };
    parts.signer?.sign(&parties, assertion, &BTreeMap::new(), parts.now)
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
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::json;

    use super::super::assertion::AssertionConfig;
    use super::super::assertion::test_key::{private_key, rsa_key};
    use super::super::config::MetadataService;
    use super::*;

    /// Returns the head without the constant fields, and the body.
    fn sent(change: impl FnOnce(&mut OAuth2Config)) -> (String, String) {
        let config = json!({ "token_url": "https://id.example:8443/token?tenant=1", "client_id": "me" });
        let mut config: OAuth2Config = serde_json::from_value(config).unwrap();
        change(&mut config);
        let endpoint = TokenEndpoint::parse(&config.token_url).unwrap();
        let signer = config.assertion.as_ref().map(|assertion| AssertionSigner::compile(assertion).unwrap());
        let parts = RequestParts {
            endpoint: &endpoint,
            refresh_token: "r+1",
            signer: signer.as_ref(),
            now: Timestamp::from_secs(1_800_000_000),
        };
        let message = String::from_utf8(request(&config, &parts).unwrap().to_vec()).unwrap();
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

    /// Returns the names of the parameters in a form.
    fn names(body: &str) -> Vec<&str> {
        body.split('&').map(|pair| pair.split_once('=').unwrap().0).collect()
    }

    /// Returns the claims of the assertion in a form.
    fn claims(body: &str, name: &str) -> serde_json::Value {
        let pair = body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap();
        let claims = base64::decode(pair.split('.').nth(1).unwrap().as_bytes()).unwrap();
        serde_json::from_slice(&claims).unwrap()
    }

    #[test]
    fn an_assertion_replaces_the_secret_of_the_client() {
        let (head, body) = sent(|config| {
            config.client_auth = ClientAuth::PrivateKeyJwt;
            config.assertion = Some(signing());
        });
        assert_eq!(head, "");
        assert_eq!(names(&body), ["grant_type", "client_id", "client_assertion_type", "client_assertion"]);
        let claims = claims(&body, "client_assertion");
        assert_eq!([&claims["iss"], &claims["sub"]], ["me", "me"]);
        assert_eq!(claims["aud"], "https://id.example:8443/token?tenant=1");
        assert!(claims.get("role").is_none(), "{claims}");
        let (_, body) = sent(|config| {
            config.client_assertion = Some(Secret::from_value("s", "a.b.c".to_owned()));
        });
        assert_eq!(
            body,
            "grant_type=client_credentials&client_id=me&client_assertion_type=\
             urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=a.b.c"
        );
    }

    #[test]
    fn an_assertion_is_a_grant_with_the_claims_of_its_config() {
        let (head, body) = sent(|config| {
            config.grant = Grant::JwtBearer;
            config.assertion = Some(signing());
        });
        assert_eq!(head, "");
        assert!(
            body.starts_with("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&"),
            "{body}"
        );
        assert_eq!(names(&body), ["grant_type", "assertion"]);
        let claims = claims(&body, "assertion");
        assert_eq!([&claims["iss"], &claims["sub"], &claims["role"]], ["robot", "ada", "reader"]);
        let (_, body) = sent(|config| {
            config.grant = Grant::JwtBearer;
            config.client_auth = ClientAuth::Post;
            config.assertion = Some(signing());
        });
        assert_eq!(names(&body), ["grant_type", "assertion", "client_id"]);
    }

    #[test]
    fn a_metadata_service_is_asked_without_a_form() {
        let config =
            OAuth2Config::new(Grant::Metadata(MetadataService::Google), String::new(), String::new());
        let endpoint = TokenEndpoint::parse("http://169.254.169.254/token").unwrap();
        let parts = RequestParts {
            endpoint: &endpoint,
            refresh_token: "",
            signer: None,
            now: Timestamp::from_secs(1),
        };
        let message = request(&config, &parts).unwrap();
        assert_eq!(
            str::from_utf8(&message).unwrap(),
            "GET /token HTTP/1.1\r\nHost: 169.254.169.254\r\nUser-Agent: egret\r\nAccept: application/json\r\n\
             Metadata-Flavor: Google\r\n\r\n"
        );
    }

    #[test]
    fn an_installation_proves_itself_by_an_assertion_alone() {
        let (key, public) = rsa_key();
        let assertion =
            AssertionConfig { is_rsa_only: true, ..AssertionConfig::new(Secret::from_value("key", key)) };
        let config = OAuth2Config {
            assertion: Some(assertion),
            ..OAuth2Config::new(Grant::Installation, String::new(), "Iv1.app".to_owned())
        };
        let url = "https://api.github.com/app/installations/7/access_tokens";
        let endpoint = TokenEndpoint::parse(url).unwrap();
        let signer = AssertionSigner::compile(config.assertion.as_ref().unwrap()).unwrap();
        let now = Timestamp::from_secs(1_800_000_000);
        let parts = RequestParts { endpoint: &endpoint, refresh_token: "", signer: Some(&signer), now };
        let message = request(&config, &parts).unwrap();
        let message = str::from_utf8(&message).unwrap();
        let (start, rest) = message.split_once("Authorization: Bearer ").unwrap();
        assert_eq!(
            start,
            "POST /app/installations/7/access_tokens HTTP/1.1\r\nHost: api.github.com\r\nUser-Agent: egret\r\n\
             Accept: application/vnd.github+json\r\nX-GitHub-Api-Version: 2022-11-28\r\n"
        );
        let assertion = rest.strip_suffix("\r\nContent-Length: 0\r\n\r\n").unwrap();
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        let signature = base64::decode(signature.as_bytes()).unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public);
        key.verify(signed.as_bytes(), &signature).unwrap();
        let parts: Vec<serde_json::Value> = signed
            .split('.')
            .map(|part| serde_json::from_slice(&base64::decode(part.as_bytes()).unwrap()).unwrap())
            .collect();
        let claims = json!({ "iss": "Iv1.app", "iat": 1_799_999_940, "exp": 1_800_000_300 });
        assert_eq!(parts, [json!({ "alg": "RS256", "typ": "JWT" }), claims]);
    }

    fn signing() -> AssertionConfig {
        AssertionConfig {
            issuer: Some("robot".to_owned()),
            subject: Some("ada".to_owned()),
            claims: [("role".to_owned(), "reader".to_owned())].into(),
            ..AssertionConfig::new(Secret::from_value("key", private_key()))
        }
    }
}
