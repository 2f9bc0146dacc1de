//! Keys of issuers and attackers in tests, and the tokens that they sign.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
};
use data_encoding::BASE64URL_NOPAD;
use egret_clock::Timestamp;
use serde_json::{Value, json};

use super::{Issuer, JwtConfig};

/// The time of the tests, in seconds.
pub const NOW_S: u64 = 1_800_000_000;
pub const NOW: Timestamp = Timestamp::from_secs(NOW_S);

/// An RSA key. Making one takes long.
static RSA: LazyLock<RsaKeyPair> = LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap());

/// Signs a message.
type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A private key, for one algorithm.
pub struct TestKey {
    pub algorithm: &'static str,
    /// The public key.
    pub jwk: Value,
    pub sign: Sign,
}

impl TestKey {
    pub fn ed25519(id: &str) -> Self {
        let key = Ed25519KeyPair::generate().unwrap();
        let x = BASE64URL_NOPAD.encode(key.public_key().as_ref());
        Self {
            algorithm: "EdDSA",
            jwk: json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": id }),
            sign: Box::new(move |message| key.sign(message).as_ref().to_vec()),
        }
    }

    pub fn ec(
        id: &str,
        algorithm: &'static str,
        curve: &str,
        signing: &'static EcdsaSigningAlgorithm,
    ) -> Self {
        let key = EcdsaKeyPair::generate(signing).unwrap();
        let point = key.public_key().as_ref()[1..].to_vec();
        let [x, y] = [0, 1].map(|half| {
            let len = point.len() / 2;
            BASE64URL_NOPAD.encode(&point[half * len..][..len])
        });
        Self {
            algorithm,
            jwk: json!({ "kty": "EC", "crv": curve, "x": x, "y": y, "kid": id }),
            sign: Box::new(move |message| key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()),
        }
    }

    /// All keys of this kind are the same.
    pub fn rsa(id: &str, algorithm: &'static str, encoding: &'static dyn RsaEncoding) -> Self {
        let n = BASE64URL_NOPAD.encode(rsa_modulus());
        Self {
            algorithm,
            jwk: json!({ "kty": "RSA", "n": n, "e": "AQAB", "kid": id }),
            sign: Box::new(move |message| {
                let mut signature = vec![0; RSA.public_modulus_len()];
                RSA.sign(encoding, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }),
        }
    }

    pub fn id(&self) -> &str {
        self.jwk["kid"].as_str().unwrap()
    }

    /// The header of its tokens.
    pub fn header(&self) -> Value {
        json!({ "alg": self.algorithm, "kid": self.id(), "typ": "JWT" })
    }

    /// Signs a token of these texts.
    pub fn signed(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature = BASE64URL_NOPAD.encode(&(self.sign)(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// Returns a token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.signed(&self.header().to_string(), &claims.to_string())
    }
}

/// Returns the DER of the RSA key (RFC 8017 §A.1.1).
pub fn rsa_der() -> &'static [u8] {
    RSA.public_key().as_ref()
}

/// Returns the modulus of the RSA key: behind the heads of the sequence and of the first number.
pub fn rsa_modulus() -> &'static [u8] {
    &rsa_der()[9..][..256]
}

pub fn encoded(text: &str) -> String {
    BASE64URL_NOPAD.encode(text.as_bytes())
}

/// The claims of a valid token.
pub fn claims() -> Value {
    json!({
        "iss": "https://id.example", "aud": "egret", "sub": "checkout", "iat": NOW_S - 10, "exp": NOW_S + 600,
    })
}

pub fn config(change: &Value) -> JwtConfig {
    let mut config =
        json!({ "issuer": "https://id.example", "audience": "egret", "jwks": "https://id.example/keys" });
    config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(config).unwrap()
}

/// Returns an issuer with this config, which keeps the keys of a known one.
pub fn issuer(config: &JwtConfig, known: &[Arc<Issuer>]) -> Arc<Issuer> {
    let mut problems = Vec::new();
    let issuer = Issuer::compile(config, "j", known, &mut problems);
    issuer.unwrap_or_else(|| panic!("{problems:?}"))
}

/// Publishes these keys.
pub fn publish(issuer: &Issuer, keys: &[&TestKey]) {
    let keys: Vec<&Value> = keys.iter().map(|key| &key.jwk).collect();
    let put = issuer.put_keys(json!({ "keys": keys }).to_string().as_bytes());
    assert_eq!(put.is_ok(), !keys.is_empty());
}
