//! A thousand forged tokens, made from a valid one by a seed. None is accepted.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, RSA_PKCS1_SHA256};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use egret_clock::Random;
use serde_json::{Value, json};

use super::test_keys::{NOW, NOW_S, TestKey, claims, config, encoded, issuer, publish, rsa_der, rsa_modulus};
use super::{JwtMemory, Unproven};

/// Number of tokens.
const FORGERIES: usize = 1_000;

/// The keys of the issuer, and those of an attacker with the same names.
struct Keys {
    own: [TestKey; 3],
    attacker: [TestKey; 3],
}

impl Keys {
    fn new() -> Self {
        let all = || {
            [
                TestKey::rsa("r", "RS256", &RSA_PKCS1_SHA256),
                TestKey::ec("p", "ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
                TestKey::ed25519("e"),
            ]
        };
        let (own, mut attacker) = (all(), all());
        // The only RSA key of the tests is the issuer's.
        attacker[0] = TestKey::ec("r", "ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING);
        Self { own, attacker }
    }
}

/// Makes the forgeries of one sequence.
struct Forger {
    keys: Keys,
    random: Random,
}

impl Forger {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.up_to(u64::try_from(end).unwrap() - 1)).unwrap()
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn own(&mut self) -> usize {
        self.below(3)
    }

    /// Signs with a key of the issuer. The claims or the header are what is wrong.
    fn genuine(&mut self, header: &Value, claims: &str) -> String {
        let number = self.own();
        let key = &self.keys.own[number];
        let mut whole = key.header();
        whole.as_object_mut().unwrap().extend(header.as_object().unwrap().clone());
        key.signed(&whole.to_string(), claims)
    }

    /// A token that nobody with a key of the issuer has signed.
    fn unsigned(&mut self) -> String {
        let (number, claims) = (self.own(), claims().to_string());
        let key = &self.keys.own[number];
        let valid = key.signed(&key.header().to_string(), &claims);
        let (_, signature) = valid.rsplit_once('.').unwrap();
        let signature = signature.to_owned();
        match self.below(6) {
            0 => {
                let none = self.pick(&["none", "None", "nOnE", "NONE", ""]);
                let header = encoded(&json!({ "alg": none, "kid": self.keys.own[number].id() }).to_string());
                let signature = self.pick(&["", &signature]);
                format!("{header}.{}.{signature}", encoded(&claims))
            }
            1 => self.with_shared_secret(&claims),
            2 => {
                let id = format!("unknown-{}", self.below(1_000));
                self.genuine(&json!({ "kid": id }), &claims)
            }
            3 => {
                let key = &self.keys.attacker[number];
                // Its own key in the header, and the name of the issuer's.
                let header = json!({ "alg": key.algorithm, "kid": key.id(), "jwk": key.jwk, "jku": "https://evil.example/keys" });
                key.signed(&header.to_string(), &claims)
            }
            4 => {
                let (own, other) = (self.own(), self.own());
                let header = json!({ "alg": self.keys.own[own].algorithm, "kid": self.keys.own[other].id() });
                self.keys.attacker[number].signed(&header.to_string(), &claims)
            }
            _ => {
                let empty = self.pick(&[0, 1, 32, 63, 64, 65, 256]);
                let (rest, _) = valid.rsplit_once('.').unwrap();
                format!("{rest}.{}", BASE64URL_NOPAD.encode(&vec![0; empty]))
            }
        }
    }

    /// The public key of the issuer as a shared secret.
    fn with_shared_secret(&mut self, claims: &str) -> String {
        let (name, algorithm) = self.pick(&[
            ("HS256", hmac::HMAC_SHA256),
            ("HS384", hmac::HMAC_SHA384),
            ("HS512", hmac::HMAC_SHA512),
        ]);
        let pem =
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(rsa_der()));
        let jwk = self.keys.own[0].jwk.to_string();
        let secret = self.pick(&[rsa_der(), rsa_modulus(), pem.as_bytes(), jwk.as_bytes()]);
        let header = json!({ "alg": name, "kid": "r" }).to_string();
        let signed = format!("{}.{}", encoded(&header), encoded(claims));
        let tag = hmac::sign(&hmac::Key::new(algorithm, secret), signed.as_bytes());
        format!("{signed}.{}", BASE64URL_NOPAD.encode(tag.as_ref()))
    }

    /// A token of the issuer that is not for this listener, or not in a form that is accepted.
    fn misused(&mut self) -> String {
        let far = u64::try_from(self.below(1_000_000)).unwrap();
        let one = |name: &str, value: Value| {
            let mut changed = claims();
            changed[name] = value;
            changed.to_string()
        };
        let no_header = json!({});
        match self.below(12) {
            0 => self.genuine(&no_header, &one("aud", json!(format!("other-{far}")))),
            1 => self.genuine(&no_header, &one("exp", json!(NOW_S - 30 - far))),
            2 => self.genuine(&no_header, &one("nbf", json!(NOW_S + 31 + far))),
            3 => self.genuine(&no_header, &one("iat", json!(NOW_S + 31 + far))),
            4 => self.genuine(&no_header, &one("iss", json!(format!("https://id.example/{far}")))),
            5 => {
                let name = self.pick(&["exp", "sub", "aud", "iss", "nbf", "iat"]);
                let value = self.pick(&["true", "null", "{}", "[[\"egret\"]]", "\"\"", "-1"]);
                self.genuine(&no_header, &one(name, serde_json::from_str(value).unwrap()))
            }
            6 => {
                let nested = self.genuine(&no_header, &claims().to_string());
                self.genuine(&json!({ "cty": "JWT" }), &nested)
            }
            7 => self.genuine(&no_header, &one("pad", json!("x".repeat(8 << 10)))),
            8 => self.genuine(&json!({ "crit": ["b64"], "b64": true }), &claims().to_string()),
            9 => {
                let name = self.pick(&["sub", "aud", "exp", "iss", "\\u0073ub"]);
                let whole = claims().to_string();
                self.genuine(&no_header, &format!("{{\"{name}\":\"egret\",{}", &whole[1..]))
            }
            10 => {
                let depth = 16 + self.below(400);
                let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
                self.genuine(
                    &no_header,
                    &claims().to_string().replacen('{', &format!("{{\"deep\":{deep},"), 1),
                )
            }
            _ => {
                let many: Vec<String> = (0..128).map(|number| format!("\"c{number}\":{far}")).collect();
                self.genuine(
                    &no_header,
                    &claims().to_string().replacen('{', &format!("{{{},", many.join(",")), 1),
                )
            }
        }
    }

    /// A valid token with other bytes.
    fn damaged(&mut self) -> String {
        let mut token = self.genuine(&json!({}), &claims().to_string()).into_bytes();
        let at = self.below(token.len());
        match self.below(6) {
            0 => token.truncate(at),
            1 => token[at] ^= 1 << self.below(7),
            2 => token.insert(at, self.pick(b"=\n \t.+/%,")),
            3 => {
                let _ = token.remove(at);
            }
            4 => token.extend_from_slice(self.pick(&[&b"="[..], b"==", b".", b".AAAA", b"\0", b" "])),
            _ => {
                let dot = token.iter().position(|byte| *byte == b'.').unwrap();
                token.insert(dot, b'=');
            }
        }
        token.into_iter().map(char::from).collect()
    }
}

#[test]
fn of_a_thousand_forged_tokens_none_is_accepted() {
    let issuer = issuer(&config(&json!({})), &[]);
    let mut forger = Forger { keys: Keys::new(), random: Random::new(1) };
    publish(&issuer, &forger.keys.own.each_ref());
    let mut memory = JwtMemory::default();
    for key in &forger.keys.own {
        let token = key.token(&claims());
        assert!(issuer.client(token.as_bytes(), &mut memory, NOW).is_ok(), "{}", key.algorithm);
    }
    let mut reasons: Vec<Unproven> = Vec::new();
    for number in 0..FORGERIES {
        let token = match number % 3 {
            0 => forger.unsigned(),
            1 => forger.misused(),
            _ => forger.damaged(),
        };
        match issuer.client(token.as_bytes(), &mut memory, NOW) {
            Ok(proven) => panic!("number {number} is accepted as {}: {token}", proven.name()),
            Err(reason) if reasons.contains(&reason) => {}
            Err(reason) => reasons.push(reason),
        }
    }
    // Each of them was refused for what is wrong with it.
    for reason in Unproven::ALL.iter().filter(|reason| reason.slug().starts_with("jwt-")) {
        assert!(reasons.contains(reason), "{}", reason.slug());
    }
}
