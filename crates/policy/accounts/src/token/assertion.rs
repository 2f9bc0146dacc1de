//! Assertions: JSON Web Tokens that an account signs with its private key, in place of a secret (RFC 7523).

use std::collections::BTreeMap;

use aws_lc_rs::rand::{self, SystemRandom};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use data_encoding::BASE64URL_NOPAD;
use egret_clock::Timestamp;
use egret_config::{Duration, Secret};
use egret_har::base64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

/// Maximum lifetime of an assertion. Google accepts no longer one.
const LIFE_MAX: Duration = Duration::from_secs(3600);
/// GitHub rejects an assertion from the future: it is said to be this old, in seconds.
const GITHUB_CLOCK_DRIFT_S: u64 = 60;
/// Claims that Egret sets, or that have their own config key.
const OWN_CLAIMS: [&str; 7] = ["iss", "sub", "aud", "iat", "nbf", "exp", "jti"];
/// Maximum number of additional claims.
const CLAIMS_MAX: usize = 100;
/// Length of the identifier of an assertion, in bytes. None is ever drawn twice.
const ID_BYTES: usize = 16;

/// An assertion that Egret signs for each token request (RFC 7523). It is valid once, for a short time, and
/// the private key is never sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssertionConfig {
    /// The private key, in PEM (PKCS #8, PKCS #1 or SEC 1): an RSA key of at least 2048 bits signs with
    /// RS256, a key on the curve P-256 with ES256.
    pub key: Secret,
    /// Identifier of the key at the token endpoint, sent as `kid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// Issuer of the assertion of `grant: jwt_bearer`. The default is the `client_id`, which is always the
    /// issuer for `client_auth: private_key_jwt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Subject of the assertion of `grant: jwt_bearer`: the user or account that the token is for. The
    /// default is the issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Audience of the assertion. The default is the `token_url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Lifetime of the assertion, at most one hour. It bounds how far the clocks of Egret and the endpoint
    /// may differ.
    #[serde(default = "life_default")]
    pub life: Duration,
    /// Additional claims of the assertion of `grant: jwt_bearer`, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, String>,
    /// The SHA-256 digest of the certificate of the key, as Microsoft Entra expects it: sent as `x5t#S256`,
    /// with the algorithm PS256.
    #[serde(skip)]
    pub(super) thumbprint: Option<String>,
    /// `true` if the endpoint takes RS256 only.
    #[serde(skip)]
    pub(super) is_rsa_only: bool,
}

fn life_default() -> Duration {
    Duration::from_secs(300)
}

/// Reason why a text is not the private key of an assertion. It never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyError {
    /// No PEM block with a private key, or one that is encrypted.
    #[error("is not a private key in PEM (`BEGIN PRIVATE KEY`, without a passphrase)")]
    Pem,
    /// A key of another kind, or a damaged one.
    #[error("must be an RSA key of at least 2048 bits, or a key on the curve P-256")]
    Kind,
    /// A key on a curve, for an endpoint that takes none.
    #[error("must be an RSA key: this account signs with RS256 only")]
    NotRsa,
}

/// The party that an assertion is about.
pub(super) struct Parties<'a> {
    pub issuer: &'a str,
    pub subject: &'a str,
    pub audience: &'a str,
}

/// The private key of an assertion, and the header that is sent with its signatures.
pub(super) struct AssertionSigner {
    key: SigningKey,
    /// The header, as it is sent.
    header: String,
}

enum SigningKey {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    P256(EcdsaKeyPair),
}

impl AssertionConfig {
    /// Creates the config of an assertion with all defaults.
    pub(super) fn new(key: Secret) -> Self {
        Self {
            key,
            key_id: None,
            issuer: None,
            subject: None,
            audience: None,
            life: life_default(),
            claims: BTreeMap::new(),
            thumbprint: None,
            is_rsa_only: false,
        }
    }

    /// Calls `wrong` with the key and the message of each mistake.
    pub(super) fn check(&self, mut wrong: impl FnMut(&str, String)) {
        if self.life.is_zero() || self.life > LIFE_MAX {
            wrong("life", "must be greater than 0 and at most 1h".to_owned());
        }
        if self.claims.len() > CLAIMS_MAX {
            wrong("claims", format!("at most {CLAIMS_MAX} entries are allowed"));
        }
        for name in self.claims.keys().filter(|name| OWN_CLAIMS.contains(&name.as_str())) {
            wrong(&format!("claims.{name}"), "is set by Egret, or has its own config key".to_owned());
        }
        if !self.key.is_placeholder()
            && let Err(error) = AssertionSigner::compile(self)
        {
            wrong("key", error.to_string());
        }
    }
}

impl AssertionSigner {
    /// Parses the private key.
    pub fn compile(config: &AssertionConfig) -> Result<Self, KeyError> {
        let (label, der) = pem_block(config.key.expose(), "PRIVATE KEY").ok_or(KeyError::Pem)?;
        let padding: &'static dyn RsaEncoding =
            if config.thumbprint.is_some() { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
        let rsa = |key| SigningKey::Rsa(key, padding);
        let curve = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = match label {
            "" => RsaKeyPair::from_pkcs8(&der)
                .map(rsa)
                .or_else(|_| EcdsaKeyPair::from_pkcs8(curve, &der).map(SigningKey::P256)),
            "RSA " => RsaKeyPair::from_der(&der).map(rsa),
            "EC " => EcdsaKeyPair::from_private_key_der(curve, &der).map(SigningKey::P256),
            _ => return Err(KeyError::Pem),
        };
        let key = key.map_err(|_| KeyError::Kind)?;
        let algorithm = match (&key, &config.thumbprint) {
            (SigningKey::Rsa(..), None) => "RS256",
            (SigningKey::Rsa(..), Some(_)) => "PS256",
            (SigningKey::P256(_), _) if config.is_rsa_only => return Err(KeyError::NotRsa),
            (SigningKey::P256(_), _) => "ES256",
        };
        let mut header = json!({ "alg": algorithm, "typ": "JWT" });
        for (name, value) in [("kid", &config.key_id), ("x5t#S256", &config.thumbprint)] {
            if let Some(value) = value {
                header[name] = value.as_str().into();
            }
        }
        Ok(Self { key, header: BASE64URL_NOPAD.encode(header.to_string().as_bytes()) })
    }

    /// Returns a signed assertion (RFC 7515 §7.1, RFC 7523 §3) that is valid from `now` on; `None` if the
    /// library for cryptography fails.
    pub fn sign(
        &self,
        parties: &Parties<'_>,
        config: &AssertionConfig,
        claims: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Option<Zeroizing<String>> {
        let mut id = [0; ID_BYTES];
        rand::fill(&mut id).ok()?;
        let mut all: Map<String, Value> =
            claims.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let now_s = now.as_secs();
        let Parties { issuer, subject, audience } = parties;
        for (name, value) in [
            ("iss", Value::from(*issuer)),
            ("sub", Value::from(*subject)),
            ("aud", Value::from(*audience)),
            ("iat", now_s.into()),
            ("nbf", now_s.into()),
            // Rounded down: a life of less than a second would be over at once.
            ("exp", (now_s + config.life.get().as_secs().max(1)).into()),
            ("jti", BASE64URL_NOPAD.encode(&id).into()),
        ] {
            all.insert(name.to_owned(), value);
        }
        self.sign_claims(&Value::Object(all))
    }

    /// Returns the signed assertion by which the GitHub App `issuer` proves itself at `now`; `None` if the
    /// library for cryptography fails.
    pub fn sign_for_github(
        &self,
        issuer: &str,
        config: &AssertionConfig,
        now: Timestamp,
    ) -> Option<Zeroizing<String>> {
        let now_s = now.as_secs();
        let issued_s = now_s.saturating_sub(GITHUB_CLOCK_DRIFT_S);
        self.sign_claims(
            &json!({ "iss": issuer, "iat": issued_s, "exp": now_s + config.life.get().as_secs() }),
        )
    }

    fn sign_claims(&self, claims: &Value) -> Option<Zeroizing<String>> {
        let mut signed = self.header.clone();
        signed.push('.');
        BASE64URL_NOPAD.encode_append(claims.to_string().as_bytes(), &mut signed);
        let signature = self.key.sign(signed.as_bytes())?;
        signed.push('.');
        BASE64URL_NOPAD.encode_append(&signature, &mut signed);
        Some(Zeroizing::new(signed))
    }
}

impl SigningKey {
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key, padding) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(*padding, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Self::P256(key) => key.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec()),
        }
    }
}

/// Returns the first block of a text in PEM (RFC 7468) whose label ends with `kind`, and the beginning of the
/// label.
pub(super) fn pem_block<'a>(pem: &'a str, kind: &str) -> Option<(&'a str, Zeroizing<Vec<u8>>)> {
    let (before, rest) = pem.split_once(&format!("{kind}-----"))?;
    let (_, label) = before.rsplit_once("-----BEGIN ")?;
    let (body, _) = rest.split_once("-----END ")?;
    Some((label, Zeroizing::new(base64::decode(body.as_bytes())?)))
}

/// A private key for tests.
#[cfg(test)]
pub(super) mod test_key {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RsaKeyPair};
    use egret_har::base64;

    /// Returns this key in PEM.
    pub fn pem(label: &str, der: &[u8]) -> String {
        let mut body = Vec::new();
        base64::encode(der, &mut body);
        let lines: Vec<_> = body.chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    /// Creates an RSA key, in PEM, with its public key (RFC 8017).
    pub fn rsa_key() -> (String, Vec<u8>) {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let private = pem("PRIVATE KEY", AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap().as_ref());
        (private, key.public_key().as_ref().to_vec())
    }

    /// Creates a key on the curve P-256, in PEM.
    pub fn private_key() -> String {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        pem("PRIVATE KEY", key.to_pkcs8v1().unwrap().as_ref())
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING, KeyPair, RSA_PKCS1_2048_8192_SHA256,
        RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
    };
    use proptest::prelude::*;

    use super::test_key::{pem, private_key};
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn config(key: String) -> AssertionConfig {
        AssertionConfig {
            key_id: Some("k1".to_owned()),
            ..AssertionConfig::new(Secret::from_value("key", key))
        }
    }

    /// Returns header and claims of an assertion whose signature the key verifies.
    fn verified(
        config: &AssertionConfig,
        public: &[u8],
        algorithm: &'static dyn VerificationAlgorithm,
    ) -> [Value; 2] {
        let parties = Parties { issuer: "me", subject: "you", audience: "https://id.example/" };
        let signer = AssertionSigner::compile(config).unwrap();
        let token = signer.sign(&parties, config, &config.claims, NOW).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        UnparsedPublicKey::new(algorithm, public).verify(signed.as_bytes(), &signature).unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        [header, claims]
            .map(|part| serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap())
    }

    #[test]
    fn an_assertion_is_signed_with_a_key_on_p256() {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let sec1 = AsDer::<EcPrivateKeyRfc5915Der<'_>>::as_der(&key.private_key()).unwrap();
        let sec1 = config(pem("EC PRIVATE KEY", sec1.as_ref()));
        verified(&sec1, key.public_key().as_ref(), &ECDSA_P256_SHA256_FIXED);
        let mut config = config(pem("PRIVATE KEY", key.to_pkcs8v1().unwrap().as_ref()));
        config.claims.insert("scope".to_owned(), "a b".to_owned());
        let [header, claims] = verified(&config, key.public_key().as_ref(), &ECDSA_P256_SHA256_FIXED);
        assert_eq!(header, json!({ "alg": "ES256", "typ": "JWT", "kid": "k1" }));
        let id = claims["jti"].as_str().unwrap();
        assert_eq!(
            claims,
            json!({
                "iss": "me", "sub": "you", "aud": "https://id.example/", "iat": 1_800_000_000,
                "nbf": 1_800_000_000, "exp": 1_800_000_300, "jti": id, "scope": "a b",
            })
        );
        let [_, again] = verified(&config, key.public_key().as_ref(), &ECDSA_P256_SHA256_FIXED);
        assert_ne!(again["jti"], id, "each assertion is another one");
    }

    #[test]
    fn an_rsa_key_signs_as_its_certificate_requires() {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8 = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let public = key.public_key().as_ref();
        // PKCS #8 wraps PKCS #1 into 26 bytes at this length.
        let pkcs1 = config(pem("RSA PRIVATE KEY", &pkcs8.as_ref()[26..]));
        verified(&pkcs1, public, &RSA_PKCS1_2048_8192_SHA256);
        let mut config = config(pem("PRIVATE KEY", pkcs8.as_ref()));
        let [header, _] = verified(&config, public, &RSA_PKCS1_2048_8192_SHA256);
        assert_eq!(header, json!({ "alg": "RS256", "typ": "JWT", "kid": "k1" }));
        config.thumbprint = Some("digest".to_owned());
        let [header, _] = verified(&config, public, &RSA_PSS_2048_8192_SHA256);
        assert_eq!(header, json!({ "alg": "PS256", "typ": "JWT", "kid": "k1", "x5t#S256": "digest" }));
    }

    #[test]
    fn a_text_that_is_no_usable_key_is_rejected_without_being_shown() {
        let good = private_key();
        let p384 = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        let p384 = pem("PRIVATE KEY", p384.to_pkcs8v1().unwrap().as_ref());
        for (text, error) in [
            (String::new(), KeyError::Pem),
            ("hunter2".to_owned(), KeyError::Pem),
            (good.replace("PRIVATE KEY", "PUBLIC KEY"), KeyError::Pem),
            (good.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"), KeyError::Pem),
            (good.replace("-----END", "-----STOP"), KeyError::Pem),
            (good.replace("PRIVATE KEY", "RSA PRIVATE KEY"), KeyError::Kind),
            (pem("PRIVATE KEY", b"hunter2"), KeyError::Kind),
            (p384, KeyError::Kind),
        ] {
            let mut found = Vec::new();
            config(text).check(|key, message| found.push((key.to_owned(), message)));
            assert_eq!(found, [("key".to_owned(), error.to_string())]);
        }
    }

    #[test]
    fn a_key_on_p256_is_rejected_where_rsa_is_required() {
        let config = AssertionConfig { is_rsa_only: true, ..config(private_key()) };
        let mut found = Vec::new();
        config.check(|key, message| found.push((key.to_owned(), message)));
        assert_eq!(found, [("key".to_owned(), KeyError::NotRsa.to_string())]);
    }

    #[test]
    fn claims_of_egret_and_long_lives_are_rejected() {
        let mut config = config(private_key());
        config.claims.insert("exp".to_owned(), "never".to_owned());
        config.life = Duration::from_secs(3601);
        let mut found = Vec::new();
        config.check(|key, _| found.push(key.to_owned()));
        assert_eq!(found, ["life", "claims.exp"]);
    }

    proptest! {
        #[test]
        fn any_text_in_pem_is_a_key_or_an_error(text in "(-----BEGIN |PRIVATE KEY-----|-----END |EC |\\n|[A-Za-z0-9+/=]{0,9}){0,12}") {
            prop_assert!(AssertionSigner::compile(&config(text)).is_err());
        }
    }
}
