//! What is found, and what only looks alike. Secrets are put together here, so that no scanner of repositories takes them for real.

use proptest::prelude::*;

use super::*;
use crate::exclusions::Exclusions;
use crate::fixture;
use crate::har::Har;
use crate::key::Key;
use crate::obfuscate::Obfuscator;

fn kinds(text: &str) -> Vec<Kind> {
    detect(text).into_iter().map(|finding| finding.kind).collect()
}

/// Random in the eyes of a detector, the same each time.
fn random(letters: &[u8], len: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(letters[usize::try_from(state % letters.len() as u64).unwrap()])
    };
    (0..len).map(letter).collect()
}

const BASE62: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &[u8] = b"0123456789abcdef";

#[test]
fn each_kind_is_found_with_its_place() {
    let token = |prefix: &str, len: usize| format!("{prefix}{}", random(BASE62, len));
    let pem = |label: &str| format!("-----BEGIN {label}-----\nMIIE\nabc=\n-----END {label}-----");
    for (kind, secret) in [
        (Kind::Jwt, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_x".to_owned()),
        (Kind::Jwt, "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.".to_owned()),
        (Kind::Jwt, "eyJhbGciOiJkaXIifQ.abc.def.ghi.jkl".to_owned()),
        (Kind::AwsKey, format!("AKIA{}", random(UPPER, 16))),
        (Kind::AwsKey, format!("ASIA{}", random(UPPER, 16))),
        (Kind::GoogleKey, token("AIza", 35)),
        (Kind::GoogleKey, token("ya29.", 60)),
        (Kind::GoogleKey, token("GOCSPX-", 28)),
        (Kind::AzureKey, format!("{}==", random(BASE62, 86))),
        (Kind::AzureKey, format!("abc8Q~{}", random(BASE62, 34))),
        (Kind::GithubToken, token("ghp_", 36)),
        (Kind::GithubToken, token("github_pat_", 82)),
        (Kind::StripeKey, token("sk_live_", 24)),
        (Kind::StripeKey, token("rk_test_", 24)),
        (Kind::SlackToken, token("xoxb-", 40)),
        (Kind::SlackToken, token("hooks.slack.com/services/T0/B0/", 24)),
        (Kind::AiKey, token("sk-", 48)),
        (Kind::AiKey, token("sk-proj-", 48)),
        (Kind::AiKey, token("hf_", 34)),
        (Kind::PrivateKey, pem("PRIVATE KEY")),
        (Kind::PrivateKey, pem("RSA PRIVATE KEY")),
        (Kind::PrivateKey, pem("OPENSSH PRIVATE KEY")),
        (Kind::CardNumber, "4111111111111111".to_owned()),
        (Kind::CardNumber, "5555 5555 5555 4444".to_owned()),
        (Kind::CardNumber, "3782-822463-10005".to_owned()),
        (Kind::CardNumber, "6011111111111117".to_owned()),
        (Kind::Email, "ada.lovelace+tag@mail.example.co.uk".to_owned()),
        (Kind::Email, "ada%40example.com".to_owned()),
        (Kind::HighEntropy, random(BASE62, 40)),
        (Kind::HighEntropy, random(BASE62, 24)),
        (Kind::HighEntropy, random(HEX, 32)),
        (Kind::HighEntropy, format!("{}/{}+{}=", random(BASE62, 20), random(BASE62, 8), random(BASE62, 10))),
    ] {
        for (before, after) in
            [("", ""), ("\"", "\","), ("key: ", " and"), ("(", ")"), ("a=", "&b=c"), ("\n", "\n")]
        {
            let text = format!("{before}{secret}{after}");
            let span = before.len()..before.len() + secret.len();
            assert_eq!(detect(&text), [Finding { kind, span }], "{text}");
        }
    }
}

#[test]
fn credentials_are_found_behind_their_scheme() {
    for text in
        ["Bearer tok-987-654", "bearer  abc.def~123/=", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "BASIC dXNlcjo"]
    {
        assert_eq!(kinds(text), [Kind::Credentials], "{text}");
    }
    for text in [
        "Bearer",
        "Bearer ",
        "bearer of news",
        "Bearer authentication",
        "Basic authentication",
        "basic",
        "Basic Zm9vYmFy",
        "bearer_x1234567",
    ] {
        assert_eq!(kinds(text), [], "{text}");
    }
    let hidden = Key::new(&[1; 32]).text(b"x");
    assert_eq!(kinds(&format!("Bearer {hidden}")), []);
}

#[test]
fn what_only_looks_alike_is_not_found() {
    let alike = [
        "",
        "eyJhbGciOiJub25l",
        "eyJhbGciOiJub25l.",
        "eyJhbGciOiJub25l..",
        "eyJ.eyJ.x",
        "AKIAIOSFODNN7EXAMPL",
        "AKIAiosfodnn7example",
        "ghp_short1",
        "sk-learn-something-that-is-long-2",
        "sk_live_",
        "xoxb-none",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "4111111111111112",
        "41111111111111111111111",
        "x4111111111111111",
        "4111111111111111x",
        "0.4111111111111111",
        "4111111111111111.5",
        "0000000000000000",
        "1111111111111111",
        "user@localhost",
        "@example.com",
        "a@b.c",
        "pkg@1.2.3",
        "icon@2x.png",
        "a@.com",
        "123e4567-e89b-12d3-a456-426614174000",
        "2026-01-02T03:04:05.678+01:00",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "getHTTP2ConnectionPool1OfClientFactory",
        "order-2026-01-01-item-2026-02-02",
        "/v1/projects/my-project-12/locations/europe-west1/clusters/c1",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1",
        "00000000000000000000000000000000",
        "12345678901234567890123456789012345678901234567890",
        "max-age=31536000; includeSubDomains; preload",
        "no-cache, no-store, must-revalidate",
    ];
    let found: Vec<_> =
        alike.iter().filter(|text| !kinds(text).is_empty()).map(|text| (text, kinds(text))).collect();
    assert_eq!(found, []);
}

#[test]
fn several_are_found_in_a_text() {
    let card = "4111 1111 1111 1111";
    assert_eq!(
        kinds(&format!("ada@example.com paid with {card} 12/27, ref {}", random(HEX, 40))),
        [Kind::Email, Kind::CardNumber, Kind::HighEntropy]
    );
    let cut = "-----BEGIN PRIVATE KEY-----\nabc";
    assert_eq!(detect(&cut.repeat(2)), [Finding { kind: Kind::PrivateKey, span: 0..2 * cut.len() }]);
}

#[test]
fn an_archive_names_its_secrets_until_it_is_obfuscated() {
    let planted = fixture::FULL
        .replace("tok-987-654", &random(BASE62, 32))
        .replace("\\\"Ada\\\"", "\\\"ada@example.com\\\"")
        .replace(
            "\"_priority\": \"High\"",
            &format!("\"_priority\": {{\"{}\": 4111111111111111}}", random(HEX, 40)),
        );
    let places = |text: &str| -> Vec<(String, Kind)> {
        let places = scan(&serde_json::from_str(text).unwrap());
        places.into_iter().map(|place| (place.path, place.finding.kind)).collect()
    };
    let entry = |path: &str| format!("log.entries[0].{path}");
    assert_eq!(
        places(&planted),
        [
            (entry("request.url"), Kind::Email),
            (entry("request.headers[3].value"), Kind::Credentials),
            (entry("request.postData.text"), Kind::Email),
            (entry("request._priority.(name)"), Kind::HighEntropy),
            (entry("request._priority.(name)"), Kind::CardNumber),
        ]
    );
    let mut har = Har::read(planted.as_bytes()).unwrap();
    Obfuscator::new(Key::new(&[3; 32]), Exclusions::default()).har(&mut har);
    assert_eq!(places(&serde_json::to_string(&har).unwrap()), []);
}

/// Looking at anything over and over, this would not end.
#[test]
fn a_long_text_is_looked_at_once() {
    for piece in [
        "a/",
        "@",
        "%40",
        "a@a.",
        "eyJhbGciOiJ.",
        "-----BEGIN PRIVATE KEY",
        "-----BEGIN ",
        "bearer ",
        "4 ",
        "41-",
        "A1b/",
        "a.",
        "=",
        "ya29.",
    ] {
        detect(&piece.repeat(2_000_000 / piece.len()));
    }
}

#[test]
fn bodies_in_base64_are_looked_into() {
    // ada@example.com
    let content = serde_json::json!({"content": {"text": "YWRhQGV4YW1wbGUuY29t", "encoding": "base64"}});
    let places = scan(&content);
    assert!(
        places.len() == 1 && places[0].to_string() == "content.text: e-mail address at bytes 0 to 15",
        "{places:?}"
    );
}

proptest! {
    #[test]
    fn findings_are_in_order_and_within_the_text(text in r"([a-zA-Z0-9]{1,30}|[@.% /=+_-]|eyJ|-----BEGIN |PRIVATE KEY-----|4111|Bearer |é){0,30}") {
        let mut end = 0;
        for finding in detect(&text) {
            prop_assert!(finding.span.start >= end && finding.span.start < finding.span.end);
            end = finding.span.end;
            prop_assert!(text.get(finding.span).is_some());
        }
    }

    #[test]
    fn no_pseudonym_is_found(secret: [u8; 32], values in prop::collection::vec(any::<i64>(), 2..6), joint in "[/&=;, @:.+-]|%40|://") {
        let key = Key::new(&secret);
        let texts: Vec<String> = values.iter().map(|value| key.text(&value.to_be_bytes()).to_string()).collect();
        let text = texts.join(&joint);
        // A hyphen makes one word of two.
        prop_assume!(joint != "-");
        prop_assert_eq!(kinds(&text), []);
        prop_assert_eq!(kinds(&format!("--{}\r\n--{}--", texts[0], texts[1])), []);
        let numbers: Vec<String> = values.iter().map(|value| key.number(value.to_string().as_bytes()).to_string()).collect();
        prop_assert_eq!(kinds(&numbers.join(",")), []);
        prop_assert_eq!(kinds(&format!("https://{}:{}@api.example.com/{}?a={}", texts[0], texts[1], texts[0], texts[1])), []);
    }
}
