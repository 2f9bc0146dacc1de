//! Tests of the judgement of JSON Web Tokens, and of the keys that it needs.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
};
use serde_json::{Value, json};

use super::test_keys::{NOW, NOW_S, TestKey, claims, config, issuer, publish};
use super::*;

/// An issuer with one key.
fn one_key() -> (Arc<Issuer>, TestKey) {
    let (issuer, key) = (issuer(&config(&json!({})), &[]), TestKey::ed25519("one"));
    publish(&issuer, &[&key]);
    (issuer, key)
}

fn judge(issuer: &Issuer, token: &str) -> Result<String, Unproven> {
    let proven = issuer.client(token.as_bytes(), &mut JwtMemory::default(), NOW);
    proven.map(|client| client.name().to_owned())
}

/// Returns the object with these changes; `null` removes a member.
fn changed(mut object: Value, change: &Value) -> Value {
    for (name, value) in change.as_object().unwrap() {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
            value => object[name] = value.clone(),
        }
    }
    object
}

/// Judges a token with changed claims.
fn with_claims(change: &Value) -> Result<String, Unproven> {
    let (issuer, key) = one_key();
    judge(&issuer, &key.token(&changed(claims(), change)))
}

/// Judges a token with a changed header.
fn with_header(change: &Value) -> Result<String, Unproven> {
    let (issuer, key) = one_key();
    judge(&issuer, &key.signed(&changed(key.header(), change).to_string(), &claims().to_string()))
}

fn is_asked(issuer: &Issuer) -> bool {
    let asked = std::pin::pin!(issuer.keys_asked());
    asked.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

#[test]
fn every_accepted_algorithm_proves_a_client() {
    let keys = [
        TestKey::rsa("a", "RS256", &RSA_PKCS1_SHA256),
        TestKey::rsa("b", "RS384", &RSA_PKCS1_SHA384),
        TestKey::rsa("c", "RS512", &RSA_PKCS1_SHA512),
        TestKey::rsa("d", "PS256", &RSA_PSS_SHA256),
        TestKey::rsa("e", "PS384", &RSA_PSS_SHA384),
        TestKey::rsa("f", "PS512", &RSA_PSS_SHA512),
        TestKey::ec("g", "ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        TestKey::ec("h", "ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        TestKey::ed25519("i"),
    ];
    let issuer = issuer(&config(&json!({})), &[]);
    publish(&issuer, &keys.each_ref());
    for key in &keys {
        assert_eq!(judge(&issuer, &key.token(&claims())), Ok("checkout".to_owned()), "{}", key.algorithm);
    }
    // A key that names its algorithm is for no other one.
    let mut only = TestKey::rsa("a", "PS256", &RSA_PSS_SHA256);
    only.jwk["alg"] = "RS256".into();
    publish(&issuer, &[&only]);
    assert_eq!(judge(&issuer, &only.token(&claims())), Err(Unproven::JwtKeyUnknown));
}

#[test]
fn claims_are_accepted_in_each_form_that_the_standard_has() {
    for change in [
        json!({}),
        json!({ "aud": ["other", "egret"], "kubernetes.io": { "namespace": "a" } }),
        json!({ "exp": NOW_S - 29 }),
        json!({ "exp": 1_800_000_000.5, "nbf": NOW_S + 30, "iat": NOW_S + 30 }),
        json!({ "iat": null }),
    ] {
        assert_eq!(with_claims(&change), Ok("checkout".to_owned()), "{change}");
    }
    for change in [json!({ "typ": null }), json!({ "typ": "at+JWT" }), json!({ "kid": null, "x5t": "a" })] {
        assert_eq!(with_header(&change), Ok("checkout".to_owned()), "{change}");
    }
}

#[test]
fn claims_that_the_listener_does_not_accept_have_a_reason_each() {
    for (change, expected) in [
        (json!({ "iss": "https://id.example/" }), Unproven::JwtIssuer),
        (json!({ "iss": null }), Unproven::JwtIssuer),
        (json!({ "iss": ["https://id.example"] }), Unproven::JwtIssuer),
        (json!({ "aud": "egret2" }), Unproven::JwtAudience),
        (json!({ "aud": null }), Unproven::JwtAudience),
        (json!({ "aud": [] }), Unproven::JwtAudience),
        (json!({ "aud": ["egret", 1] }), Unproven::JwtAudience),
        (json!({ "aud": { "egret": "egret" } }), Unproven::JwtAudience),
        (json!({ "exp": NOW_S - 30 }), Unproven::JwtExpired),
        (json!({ "exp": 0 }), Unproven::JwtExpired),
        (json!({ "exp": null }), Unproven::JwtExpired),
        (json!({ "exp": "1900000000" }), Unproven::JwtMalformed),
        (json!({ "exp": -1 }), Unproven::JwtMalformed),
        (json!({ "exp": 1e15 }), Unproven::JwtMalformed),
        (json!({ "exp": [1_900_000_000] }), Unproven::JwtMalformed),
        (json!({ "nbf": NOW_S + 31 }), Unproven::JwtEarly),
        (json!({ "nbf": "0" }), Unproven::JwtMalformed),
        (json!({ "iat": NOW_S + 31 }), Unproven::JwtEarly),
        (json!({ "iat": true }), Unproven::JwtMalformed),
        (json!({ "sub": null }), Unproven::JwtName),
        (json!({ "sub": 7 }), Unproven::JwtName),
        (json!({ "sub": "" }), Unproven::JwtName),
        (json!({ "sub": "a\r\nx-egret-host: b" }), Unproven::JwtName),
        (json!({ "sub": "é" }), Unproven::JwtName),
        (json!({ "sub": "*" }), Unproven::JwtName),
        (json!({ "sub": "a".repeat(256) }), Unproven::JwtName),
    ] {
        assert_eq!(with_claims(&change), Err(expected), "{change}");
    }
}

#[test]
fn a_header_with_anything_that_is_not_understood_is_refused() {
    for (change, expected) in [
        (json!({ "alg": null }), Unproven::JwtMalformed),
        (json!({ "alg": 5 }), Unproven::JwtMalformed),
        (json!({ "alg": "none" }), Unproven::JwtAlgorithm),
        (json!({ "alg": "HS256" }), Unproven::JwtAlgorithm),
        (json!({ "alg": "eddsa" }), Unproven::JwtAlgorithm),
        (json!({ "alg": "ES512" }), Unproven::JwtAlgorithm),
        (json!({ "alg": "RS256" }), Unproven::JwtKeyUnknown),
        (json!({ "alg": "ES256" }), Unproven::JwtKeyUnknown),
        (json!({ "kid": "two" }), Unproven::JwtKeyUnknown),
        (json!({ "kid": 1 }), Unproven::JwtMalformed),
        (json!({ "crit": ["exp"], "exp": 1 }), Unproven::JwtMalformed),
        (json!({ "b64": false }), Unproven::JwtMalformed),
        (json!({ "cty": "JWT" }), Unproven::JwtMalformed),
        (json!({ "typ": "dpop+jwt" }), Unproven::JwtMalformed),
        (json!({ "typ": 1 }), Unproven::JwtMalformed),
    ] {
        assert_eq!(with_header(&change), Err(expected), "{change}");
    }
}

#[test]
fn a_claim_of_the_config_is_the_name() {
    let key = TestKey::ed25519("one");
    let issuer = issuer(&config(&json!({ "name": "client_id" })), &[]);
    publish(&issuer, &[&key]);
    let token = |change: Value| key.token(&changed(claims(), &change));
    assert_eq!(judge(&issuer, &token(json!({ "client_id": "reports" }))), Ok("reports".to_owned()));
    assert_eq!(judge(&issuer, &token(json!({}))), Err(Unproven::JwtName));
}

#[test]
fn a_verified_token_is_remembered_until_it_or_its_key_ends() {
    let (issuer, one) = one_key();
    let token = one.token(&claims());
    let mut memory = JwtMemory::default();
    let mut ask = |issuer: &Issuer, now| issuer.client(token.as_bytes(), &mut memory, now);
    let first = ask(&issuer, NOW).unwrap();
    assert!(Arc::ptr_eq(&first, &ask(&issuer, NOW).unwrap()));
    let last = NOW + Duration::from_secs(629);
    assert!(Arc::ptr_eq(&first, &ask(&issuer, last).unwrap()));
    assert_eq!(ask(&issuer, last + Duration::from_secs(1)).unwrap_err(), Unproven::JwtExpired);
    let two = TestKey::ed25519("two");
    publish(&issuer, &[&one, &two]);
    assert!(Arc::ptr_eq(&first, &ask(&issuer, NOW).unwrap()), "its key is still there");
    publish(&issuer, &[&two]);
    assert_eq!(ask(&issuer, NOW).unwrap_err(), Unproven::JwtKeyUnknown);
    // Another key of the same name has not signed it.
    publish(&issuer, &[&TestKey::ed25519("one")]);
    assert_eq!(ask(&issuer, NOW).unwrap_err(), Unproven::JwtSignature);
}

#[test]
fn the_memory_of_tokens_has_a_bound() {
    let (issuer, key) = one_key();
    let mut memory = JwtMemory::default();
    for number in 0..TOKENS_MAX + 10 {
        let token = key.token(&changed(claims(), &json!({ "jti": number })));
        issuer.client(token.as_bytes(), &mut memory, NOW).unwrap();
        assert!(memory.tokens.len() <= TOKENS_MAX);
    }
    assert_eq!(memory.tokens.len(), 10);
    for _ in 0..KEY_SETS_MAX + 10 {
        let (issuer, key) = one_key();
        issuer.client(key.token(&claims()).as_bytes(), &mut memory, NOW).unwrap();
        assert!(memory.keys.0.len() <= KEY_SETS_MAX);
    }
}

#[test]
fn a_proof_is_confirmed_by_a_config_with_the_same_rules() {
    let (before, key) = one_key();
    let mut memory = JwtMemory::default();
    let proven = before.client(key.token(&claims()).as_bytes(), &mut memory, NOW).unwrap();
    let By::Jwt(proof) = &proven.by else { panic!("another proof") };
    let known = [Arc::clone(&before)];
    for (change, expected) in [
        (json!({ "token": "${env:PATH}" }), true),
        (json!({ "leeway": "10s" }), false),
        (json!({ "audience": "other" }), false),
        (json!({ "name": "client_id" }), false),
        (json!({ "issuer": "https://id2.example" }), false),
        (json!({ "jwks": "https://id2.example/keys" }), false),
    ] {
        let after = issuer(&config(&change), &known);
        assert_eq!(after.confirms(proof, &mut memory.keys, NOW), expected, "{change}");
    }
    assert!(!before.confirms(proof, &mut memory.keys, proof.until));
    publish(&before, &[]);
    assert!(!before.confirms(proof, &mut memory.keys, NOW), "the key is taken back");
}

#[test]
fn one_of_many_tokens_with_an_unknown_key_asks_for_keys() {
    let (issuer, key) = one_key();
    assert!(!is_asked(&issuer));
    let (other, token) = (TestKey::ed25519("two"), key.token(&claims()));
    judge(&issuer, &token).unwrap();
    assert!(!is_asked(&issuer));
    for _ in 0..3 {
        assert_eq!(judge(&issuer, &other.token(&claims())), Err(Unproven::JwtKeyUnknown));
    }
    assert!(is_asked(&issuer) && !is_asked(&issuer));
    judge(&issuer, &other.token(&claims())).unwrap_err();
    assert!(!is_asked(&issuer), "the first question is not answered yet");
    issuer.keys_answered(None, NOW);
    judge(&issuer, &other.token(&claims())).unwrap_err();
    assert!(is_asked(&issuer));
}

#[test]
fn keys_that_cannot_be_read_leave_the_last_ones() {
    let (issuer, key) = one_key();
    let token = key.token(&claims());
    assert_eq!(issuer.put_keys(b"<html>"), Err(KeySetError::NotJson));
    assert_eq!(judge(&issuer, &token), Ok("checkout".to_owned()));
    publish(&issuer, &[&key]);
    assert_eq!(judge(&issuer, &token), Ok("checkout".to_owned()));
}

#[test]
fn a_failure_to_fetch_keys_lasts_until_a_success() {
    let issuer = issuer(&config(&json!({})), &[]);
    let after = |seconds| NOW + Duration::from_secs(seconds);
    assert_eq!((issuer.key_failure(), issuer.has_keys()), (None, false));
    issuer.keys_answered(Some("no route".to_owned()), after(1));
    issuer.keys_answered(Some("status 500".to_owned()), after(9));
    assert_eq!(issuer.key_failure(), Some((after(1), "status 500".to_owned())));
    publish(&issuer, &[&TestKey::ed25519("one")]);
    issuer.keys_answered(None, after(10));
    assert_eq!((issuer.key_failure(), issuer.has_keys()), (None, true));
}

#[test]
fn the_metadata_must_be_those_of_the_issuer() {
    let issuer = issuer(&config(&json!({})), &[]);
    let url = |metadata: Value| issuer.key_url(metadata.to_string().as_bytes());
    let keys = "https://other.example/keys?a=b";
    let found = url(json!({ "issuer": "https://id.example", "jwks_uri": keys, "more": [1] })).unwrap();
    assert_eq!(found.as_str(), keys);
    let other = json!({ "issuer": "https://id.example/", "jwks_uri": keys });
    assert_eq!(url(other), Err(KeySetError::OtherIssuer));
    for missing in [json!({}), json!({ "jwks_uri": 1 }), json!({ "jwks_uri": "http://other.example/keys" })] {
        let metadata = changed(json!({ "issuer": "https://id.example" }), &missing);
        assert_eq!(url(metadata), Err(KeySetError::NoUrl));
    }
    assert_eq!(issuer.key_url(b"<html>"), Err(KeySetError::NotJson));
}

#[test]
fn keys_in_a_file_are_read_with_the_config() {
    let path = std::env::temp_dir().join(format!("egret-jwks-{}.json", std::process::id()));
    let file = config(&json!({ "jwks": path.display().to_string() }));
    let compile = || {
        let mut problems = Vec::new();
        let issuer = Issuer::compile(&file, "j", &[], &mut problems);
        issuer.ok_or_else(|| problems.into_iter().map(|problem| problem.path).collect::<Vec<_>>())
    };
    assert_eq!(compile().unwrap_err(), ["j.jwks"]);
    std::fs::write(&path, r#"{"keys":[]}"#).unwrap();
    assert_eq!(compile().unwrap_err(), ["j.jwks"]);
    let key = TestKey::ed25519("one");
    std::fs::write(&path, json!({ "keys": [key.jwk] }).to_string()).unwrap();
    let issuer = compile().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(judge(&issuer, &key.token(&claims())), Ok("checkout".to_owned()));
}
