//! Tests real secrets and similar texts. Secrets are assembled at run time, so repository scanners do not
//! report this file.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::key::Key;

/// Processor time of this thread so far, which stands still while other programs have the processor.
fn cpu_time() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}

fn kinds(text: &str) -> Vec<SecretKind> {
    detect(text).into_iter().map(|finding| finding.kind).collect()
}

/// Returns a text that looks random to a detector and is the same each time.
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
        (SecretKind::Jwt, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_x".to_owned()),
        (SecretKind::Jwt, "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.".to_owned()),
        (SecretKind::Jwt, "eyJhbGciOiJkaXIifQ.abc.def.ghi.jkl".to_owned()),
        (SecretKind::AwsKey, format!("AKIA{}", random(UPPER, 16))),
        (SecretKind::AwsKey, format!("ASIA{}", random(UPPER, 16))),
        (SecretKind::GoogleKey, token("AIza", 35)),
        (SecretKind::GoogleKey, token("ya29.", 60)),
        (SecretKind::GoogleKey, token("GOCSPX-", 28)),
        (SecretKind::AzureKey, format!("{}==", random(BASE62, 86))),
        (SecretKind::AzureKey, format!("abc8Q~{}", random(BASE62, 34))),
        (SecretKind::GithubToken, token("ghp_", 36)),
        (SecretKind::GithubToken, token("github_pat_", 82)),
        (SecretKind::StripeKey, token("sk_live_", 24)),
        (SecretKind::StripeKey, token("rk_test_", 24)),
        (SecretKind::SlackToken, token("xoxb-", 40)),
        (SecretKind::SlackToken, token("hooks.slack.com/services/T0/B0/", 24)),
        (SecretKind::AiKey, token("sk-", 48)),
        (SecretKind::AiKey, token("sk-proj-", 48)),
        (SecretKind::AiKey, token("hf_", 34)),
        (SecretKind::PrivateKey, pem("PRIVATE KEY")),
        (SecretKind::PrivateKey, pem("RSA PRIVATE KEY")),
        (SecretKind::PrivateKey, pem("OPENSSH PRIVATE KEY")),
        (SecretKind::CardNumber, "4111111111111111".to_owned()),
        (SecretKind::CardNumber, "5555 5555 5555 4444".to_owned()),
        (SecretKind::CardNumber, "3782-822463-10005".to_owned()),
        (SecretKind::CardNumber, "6011111111111117".to_owned()),
        (SecretKind::Email, "ada.lovelace+tag@mail.example.co.uk".to_owned()),
        (SecretKind::Email, "ada%40example.com".to_owned()),
        (SecretKind::HighEntropy, random(BASE62, 40)),
        (SecretKind::HighEntropy, random(BASE62, 24)),
        (SecretKind::HighEntropy, random(HEX, 32)),
        (
            SecretKind::HighEntropy,
            format!("{}/{}+{}=", random(BASE62, 20), random(BASE62, 8), random(BASE62, 10)),
        ),
    ] {
        for (before, after) in
            [("", ""), ("\"", "\","), ("key: ", " and"), ("(", ")"), ("a=", "&b=c"), ("\n", "\n")]
        {
            let text = format!("{before}{secret}{after}");
            let span = before.len()..before.len() + secret.len();
            assert_eq!(detect(&text), [DetectedSecret { kind, span }], "{text}");
        }
    }
}

#[test]
fn credentials_are_found_behind_their_scheme() {
    for text in
        ["Bearer tok-987-654", "bearer  abc.def~123/=", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "BASIC dXNlcjo"]
    {
        assert_eq!(kinds(text), [SecretKind::Credentials], "{text}");
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
fn text_similar_to_secrets_is_not_found() {
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
        [SecretKind::Email, SecretKind::CardNumber, SecretKind::HighEntropy]
    );
    let cut = "-----BEGIN PRIVATE KEY-----\nabc";
    assert_eq!(
        detect(&cut.repeat(2)),
        [DetectedSecret { kind: SecretKind::PrivateKey, span: 0..2 * cut.len() }]
    );
}

#[test]
fn values_are_found_by_their_name() {
    for (before, secret, after) in [
        ("password=", "hunter2pass", ""),
        ("https://x.example/?page=2&access_token=", "abc", "&x=y"),
        ("see <https://x.example/?access_token=", "abc", ">; rel=next"),
        ("user=ada\npassword=", "hunter2", "\n"),
        ("<a href='/x?a=b&amp;token=", "abc", "'>"),
        ("user%5Bpassword%5D=", "abc", ""),
        ("session=Bearer ", "my-team-token", "; Path=/"),
        ("{\"password\":\"", "hunter2", "\"}"),
        ("{\"password\" : \"", "hunt\\\"er2", "\", \"a\": 1}"),
        ("{\"password\":\"", "cut off", ""),
        ("{'client_secret': '", "8xLOxBtZp8", "'}"),
        ("x = \"{\\\"apiKey\\\": \\\"", "abc", "\\\"}\""),
        ("{\"pin\": ", "1234", "}"),
        ("{\"authorization\":\"Bearer ", "my-team-token", "\"}"),
        ("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ", "my-team-token", "\r\n\r\n"),
        ("X-Api-Key: ", "live-key-0042", ""),
        ("curl -H 'X-Api-Key: ", "live-key-0042", "' https://x.example"),
        ("Cookie: ", "sid=abc; theme=dark", "\nA: b"),
        (
            "--b\r\nContent-Disposition: form-data; name=\"password\"\r\nX-A: b\r\n\r\n",
            "hunt\r\ner2",
            "\r\n--b--",
        ),
        ("--b\nContent-Disposition: form-data; name=token\n\n", "{abc", "\n--b--"),
        ("Content-Disposition: form-data; name=\"token\"\r\n\r\n", "cut off", ""),
    ] {
        let text = format!("{before}{secret}{after}");
        let span = before.len()..before.len() + secret.len();
        assert_eq!(detect(&text), [DetectedSecret { kind: SecretKind::Named, span }], "{text}");
    }
    for (before, secret, after) in [
        ("<password>", "hunter2", "</password>"),
        ("<wsse:Password Type=\"#PasswordText\">\n  ", "hunter2", "\n</wsse:Password>"),
        ("<a><api-key><![CDATA[", "live<key", "]]></api-key></a>"),
        ("<Password><Value>", "hunter2", "</Value></Password>"),
        ("<key>password</key>\n<string>", "hunter2", "</string>"),
        ("<member><name>password</name><value><string>", "hunter2", "</string></value></member>"),
        ("<user name=\"ada\" password='", "hunter2", "'/>"),
        ("<add key=\"password\" value=\"", "hunter2", "\" />"),
        ("<add value=\"", "hunter2", "\" key=\"password\"/>"),
        ("<property name=\"password\">", "hunter2", "</property>"),
        ("<meta name=\"csrf-token\" content=\"", "abc", "\">"),
        ("<password>", "cut off", ""),
        ("mutation { login(password: \"", "hunter2", "\") { id } }"),
        ("mutation{login(name:\"ada\",password:\"\"\"", "hun\"ter2", "\"\"\"){id}}"),
        ("query: login(password: \\\"", "hunter2", "\\\")"),
        ("<https://x.example/?code=", "abc", "&state=xyz>; rel=next"),
        ("see https://x.example/?state=xyz&code=", "abc", " and more"),
    ] {
        let text = format!("{before}{secret}{after}");
        let span = before.len()..before.len() + secret.len();
        assert_eq!(detect(&text), [DetectedSecret { kind: SecretKind::Named, span }], "{text}");
    }
    let text = "postgres://ada:hunter2@db.example.com/x";
    assert_eq!(detect(text), [DetectedSecret { kind: SecretKind::Credentials, span: 15..22 }]);
    assert_eq!(kinds(&format!("?token=ghp_{}", random(BASE62, 36))), [SecretKind::GithubToken]);
}

#[test]
fn a_name_alone_makes_no_secret() {
    let hidden = Key::new(&[1; 32]).text(b"x");
    let alike = [
        "password".to_owned(),
        "password=".to_owned(),
        "password=&a=b".to_owned(),
        "?token=true".to_owned(),
        format!("?token={hidden}&page=2"),
        format!("{{\"token\":\"{hidden}\",\"pin\":{}}}", Key::new(&[1; 32]).number(b"1")),
        format!("Authorization: Bearer {hidden}"),
        format!("http://{hidden}:{hidden}@x.example/"),
        "{\"password\":null,\"token\":\"\",\"secret\":{},\"max_tokens\":5}".to_owned(),
        "{\"token\":e.token}".to_owned(),
        "a.token=b.token;this.session=new Session".to_owned(),
        "if(a&&token=b){}".to_owned(),
        "  token: e.token,".to_owned(),
        "Your password: it must not be empty".to_owned(),
        "<input name=\"password\" type=\"password\">\n\n<p>".to_owned(),
        "?next_page_token=abc&max_tokens=5".to_owned(),
        "?code=abc&page=2".to_owned(),
        "<password/><a>b</a>".to_owned(),
        format!("<password>{hidden}</password>"),
        "<label for=\"password\">Password</label><code>x</code>".to_owned(),
        "<author>Ada</author><postcode>1</postcode><key>region</key><string>eu</string>".to_owned(),
        "<xs:element name=\"password\" type=\"xs:string\"/><xs:element>text</xs:element>".to_owned(),
        "if (a <token && b> c) {}".to_owned(),
        "query { user(token: $token, keyboard: \"qwerty\") { id } }".to_owned(),
        "Idempotency-Key: abc".to_owned(),
        "https://x.example:8443/a@b".to_owned(),
        "ssh://git@localhost".to_owned(),
        "Content-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--".to_owned(),
        "Content-Disposition: attachment; name=\"password\"".to_owned(),
    ];
    let found: Vec<_> = alike.iter().filter(|text| !kinds(text).is_empty()).collect();
    assert_eq!(found, [""; 0]);
}

/// Bounds the time for 200 KB of each piece, generously, because other work may have the processor. A
/// detector that read on from every candidate would take half a minute.
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
        "<a b='",
        "<password>",
        "&code=",
        "token:\"\"\"",
        "=",
        "ya29.",
        "password=",
        "&password=",
        "?token=a",
        "token",
        "\"password\":",
        "\"password\": \"",
        "\"password\":\"\\",
        "'token':   ",
        "://a:",
        "://a:b@",
        "X-Api-Key: ",
        "\nX-Api-Key: ",
        "\nCookie:*",
        "\nContent-Disposition: form-data; name=\"password\"",
        "\nContent-Disposition: x; name=token\n\n*",
    ] {
        let text = piece.repeat(200_000 / piece.len());
        let begun = cpu_time();
        let findings = detect(&text).len();
        let took = cpu_time().saturating_sub(begun);
        assert!(took < Duration::from_secs(4), "{piece:?}: {findings} findings took {took:?}");
    }
}

proptest! {
    #[test]
    fn findings_are_in_order_and_within_the_text(text in r#"([a-zA-Z0-9]{1,30}|[@.% /=+_:?&"'\\\n-]|eyJ|password|[?&]token=|"secret": ?"|://|\nX-Api-Key: |\nContent-Disposition: a; name=pin\n|-----BEGIN |PRIVATE KEY-----|4111|Bearer |é){0,30}"#) {
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
        // A hyphen would join the words.
        prop_assume!(joint != "-");
        prop_assert_eq!(kinds(&text), []);
        prop_assert_eq!(kinds(&format!("--{}\r\n--{}--", texts[0], texts[1])), []);
        let numbers: Vec<String> = values.iter().map(|value| key.number(value.to_string().as_bytes()).to_string()).collect();
        prop_assert_eq!(kinds(&numbers.join(",")), []);
        prop_assert_eq!(kinds(&format!("https://{}:{}@api.example.com/{}?a={}", texts[0], texts[1], texts[0], texts[1])), []);
    }
}

#[test]
fn a_uuid_has_its_digits_and_hyphens_in_their_places() {
    const UUID: &[u8] = b"01890a5d-AC96-774b-bcce-b302099a8057";
    assert!(is_uuid(UUID));
    for at in 0..UUID.len() {
        for byte in [b'-', b'g', b'G', b' ', b'0' - 1, b'9' + 1, 0xb0] {
            let mut other = UUID.to_vec();
            other[at] = byte;
            assert_eq!(is_uuid(&other), byte == UUID[at], "{byte:#x} at {at}");
        }
    }
    assert!(!is_uuid(&UUID[1..]) && !is_uuid(b"") && !is_uuid(&[UUID, b"0"].concat()));
}
