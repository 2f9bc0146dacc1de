//! Plants a value that looks like nothing under the names of secrets, in every place of an exchange that has
//! names, and checks that a recording hides it wherever it hides secrets alone. Values under ordinary names
//! stay.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

mod exchanges;

use egret_har::observed::{Captured, Notes};
use egret_har::{Exclusions, Har, Key, Obfuscator, RecordingConfig, scan};
use serde_json::{Value, json};

/// The value. It has no form that a detector knows.
const VALUE: &str = "blauwal-17";

/// Names of secrets, in groups that mean the same.
const GROUPS: [&[&str]; 14] = [
    &["authorization", "Proxy-Authorization", "authorisation", "authentication"],
    &["x-api-key", "api_key", "apiKey", "x-key", "X_Key"],
    &["key"],
    &["dpop", "DPoP", "signature", "client_assertion"],
    &["access_token", "refresh_token", "x-access", "x_access"],
    &["x-login", "x-user", "x-api-user", "X_User"],
    &["client_secret", "webhook_secret"],
    &["password", "pwd", "passphrase"],
    &[
        "mot_de_passe",
        "contrasena",
        "senha",
        "passwort",
        "wachtwoord",
        "haslo",
        "contraseña",
        "пароль",
        "密码",
    ],
    &["session_id", "JSESSIONID"],
    &["code"],
    &["iban"],
    &["card", "credit_card", "card_number"],
    &["database_url", "dsn", "connection_string"],
];

/// Name of what stands beside the grant `code`.
const GRANT: (&str, &str) = ("grant_type", "authorization_code");

/// An exchange with the value in the request or in the response.
#[derive(Debug, Default)]
struct Planted {
    target: String,
    fields: Vec<(String, String)>,
    body: String,
}

/// Puts the value under a name. `None` if the name cannot be written there.
type Placement = fn(&str) -> Option<Planted>;

fn field(name: &str, value: String) -> Planted {
    Planted { fields: vec![(name.to_owned(), value)], ..Planted::default() }
}

fn with_body(media_type: &str, body: String) -> Planted {
    Planted { body, ..field("Content-Type", media_type.to_owned()) }
}

fn in_json(value: &Value) -> Planted {
    with_body("application/json", value.to_string())
}

fn is_token(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn is_word(name: &str) -> bool {
    name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// Percent-encodes what is not a letter or digit.
fn encoded(name: &str) -> String {
    let encode = |byte: u8| match byte {
        b'-' | b'_' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

/// A query in which the value has that name.
fn query(name: &str) -> String {
    let (beside, kind) = GRANT;
    format!("page=2&{beside}={kind}&{}={VALUE}&x=y", encoded(name))
}

fn xml(name: &str, text: &str) -> Option<Planted> {
    let is_name = name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'));
    let (beside, kind) = GRANT;
    is_name.then(|| {
        with_body(
            "application/xml",
            format!("<?xml version=\"1.0\"?>\n<a><{beside}>{kind}</{beside}>{text}</a>"),
        )
    })
}

fn graphql(name: &str, text: &str, variables: &Value) -> Option<Planted> {
    is_word(name).then(|| in_json(&json!({ "query": text, "variables": variables })))
}

/// Every place that has names.
const PLACEMENTS: [(&str, Placement); 28] = [
    ("header field", |name| is_token(name).then(|| field(name, VALUE.to_owned()))),
    ("header field with a scheme", |name| is_token(name).then(|| field(name, format!("Token {VALUE}")))),
    ("query", |name| Some(Planted { target: format!("/v1/a?{}", query(name)), ..Planted::default() })),
    ("query with an encoded name", |name| {
        let name = name.bytes().fold(String::new(), |name, byte| name + &format!("%{byte:02x}"));
        Some(Planted {
            target: format!("/v1/a?{}={}&{name}={VALUE}", GRANT.0, GRANT.1),
            ..Planted::default()
        })
    }),
    ("parameter of the path", |name| {
        let target = format!("/v1/a;{}={VALUE}/b?{}={}", encoded(name), GRANT.0, GRANT.1);
        Some(Planted { target, ..Planted::default() })
    }),
    ("Location", |name| Some(field("Location", format!("https://x.example/a?{}", query(name))))),
    ("fragment of Location", |name| {
        Some(field("Location", format!("https://x.example/a#state=1&{}={VALUE}", encoded(name))))
    }),
    ("redirect with a state", |name| {
        Some(field("Location", format!("/back?state=xyz&{}={VALUE}", encoded(name))))
    }),
    ("Referer", |name| Some(field("Referer", format!("https://x.example/a?{}", query(name))))),
    ("Link", |name| Some(field("Link", format!("<https://x.example/a?{}>; rel=\"next\"", query(name))))),
    ("cookie", |name| is_token(name).then(|| field("Cookie", format!("theme=; {name}={VALUE}")))),
    ("Set-Cookie", |name| is_token(name).then(|| field("Set-Cookie", format!("{name}={VALUE}; Path=/")))),
    ("form", |name| Some(with_body("application/x-www-form-urlencoded", query(name)))),
    ("form with brackets", |name| {
        let (beside, kind) = GRANT;
        let name = encoded(name);
        Some(with_body(
            "application/x-www-form-urlencoded",
            format!("{beside}={kind}&{name}={VALUE}&user%5B{name}%5D=true"),
        ))
    }),
    ("multipart", |name| {
        let part = |name: &str, value: &str| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let parts = [part(GRANT.0, GRANT.1), part(name, VALUE), "--b--\r\n".to_owned()].concat();
        Some(with_body("multipart/form-data; boundary=b", parts))
    }),
    ("member of JSON", |name| Some(in_json(&json!({ GRANT.0: GRANT.1, name: VALUE })))),
    ("member deep in JSON", |name| {
        Some(in_json(&json!({ "data": [{ "a": 1, "b": { GRANT.0: GRANT.1, name: VALUE } }, 2] })))
    }),
    ("list in JSON", |name| Some(in_json(&json!({ GRANT.0: GRANT.1, name: [VALUE, VALUE] })))),
    ("name and value in JSON", |name| {
        Some(in_json(&json!([{ "name": GRANT.0, "value": GRANT.1 }, { "name": name, "value": VALUE }])))
    }),
    ("value and name in JSON", |name| {
        Some(in_json(&json!({ GRANT.0: "", "list": [{ "value": VALUE, "enabled": true, "name": name }] })))
    }),
    ("pairs in lists", |name| {
        Some(in_json(&json!({ "h": [[GRANT.0, GRANT.1], [name, VALUE], ["a", "b"]] })))
    }),
    ("JSON in a text of JSON", |name| {
        let inner = json!({ GRANT.0: GRANT.1, "list": [{ "value": VALUE, "name": name }], name: VALUE });
        Some(in_json(&json!({ "message": json!({ "body": inner.to_string() }).to_string() })))
    }),
    ("event stream", |name| {
        let event = json!({ GRANT.0: GRANT.1, name: VALUE });
        Some(with_body("text/event-stream", format!("event: a\ndata: {event}\n\ndata: [DONE]\n\n")))
    }),
    ("argument of GraphQL", |name| {
        graphql(
            name,
            &format!("mutation {{ login(grant_type: A, {name}: \"{VALUE}\") {{ id }} }}"),
            &json!({}),
        )
    }),
    ("variable of GraphQL", |name| {
        graphql(
            name,
            "mutation ($a: In) { login(input: $a) { id } }",
            &json!({ GRANT.0: "", "a": { name: VALUE } }),
        )
    }),
    ("element of XML", |name| xml(name, &format!("<{name}>{VALUE}</{name}>"))),
    ("element of XML with a prefix", |name| {
        xml(name, &format!("<w:{name} Type=\"#PasswordText\"><![CDATA[{VALUE}]]></w:{name}>"))
    }),
    ("attribute of XML", |name| xml(name, &format!("<b c=\"d\" {name} = '{VALUE}' e=\"f\"/>"))),
];

/// A name, the places in which it is not one of a secret, and the reason.
type NotHidden = (&'static str, fn(&str) -> bool, &'static str);

const NOT_HIDDEN: [NotHidden; 2] = [
    (
        "key",
        |place| !place.starts_with("header field") && !place.contains("ookie"),
        "elsewhere `key` is the name of an entry: `{\"key\": \"region\"}`",
    ),
    (
        "code",
        |place| place.starts_with("header field"),
        "in a header field, nothing tells a grant from a status",
    ),
];

/// Returns the reason why a value is shown, if there is one.
fn reason(name: &str, place: &str) -> Option<&'static str> {
    let is_it = |(known, is_place, _): &&NotHidden| *known == name && is_place(place);
    NOT_HIDDEN.iter().find(is_it).map(|(.., reason)| *reason)
}

/// Returns the recorded entry of an exchange with the value in both messages.
fn recorded(planted: &Planted, config: &RecordingConfig) -> Value {
    let body = Captured { bytes: planted.body.as_bytes(), is_whole: true, is_wanted: true };
    let mut recorder = exchanges::recorder(config);
    exchanges::recorded(&mut recorder, &planted.target, &planted.fields, body, Notes::default())
}

fn is_shown(entry: &Value) -> bool {
    let text = entry.to_string();
    text.contains(VALUE) || text.contains(&encoded(VALUE))
}

fn secrets_alone() -> RecordingConfig {
    RecordingConfig { obfuscate: false, ..RecordingConfig::default() }
}

fn everything() -> RecordingConfig {
    RecordingConfig { detect_secrets: false, ..secrets_alone() }
}

fn archive(entry: &Value) -> Value {
    json!({ "log": { "version": "1.2", "creator": { "name": "a", "version": "b" }, "entries": [entry] } })
}

/// Returns the mistakes in recordings of the value under a name in a place.
fn wrong(name: &str, place: &str, planted: &Planted) -> Vec<String> {
    let (whole, hidden) = (recorded(planted, &everything()), recorded(planted, &secrets_alone()));
    let mut wrong = Vec::new();
    let mut check = |is_right: bool, what: &str| {
        if !is_right {
            wrong.push(format!("`{name}` in {place}: {what}: {hidden}"));
        }
    };
    check(is_shown(&whole), "the value is not there at all");
    let is_expected = reason(name, place).is_some();
    check(is_shown(&hidden) == is_expected, "a recording without secrets");
    check(scan::scan(&whole).is_empty() == is_expected, "`har verify` of one with them");
    check(scan::scan(&hidden).is_empty(), "`har verify` of one without them");
    check(!is_shown(&recorded(planted, &RecordingConfig::default())), "an obfuscated recording");
    let mut har = Har::read(archive(&whole).to_string().as_bytes()).unwrap();
    Obfuscator::new(Key::new(&[7; 32]), Exclusions::default()).har(&mut har);
    check(!is_shown(&serde_json::to_value(&har).unwrap()), "`har sanitize`");
    wrong
}

#[test]
fn every_placement_of_a_secret_by_its_name_is_hidden_or_listed() {
    let (mut placements, mut wrongs, mut listed) = (0, Vec::new(), Vec::new());
    for group in GROUPS {
        for (place, plant) in PLACEMENTS {
            let planted: Vec<_> = group.iter().filter_map(|name| Some((*name, plant(name)?))).collect();
            assert!(!planted.is_empty(), "none of {group:?} can be written in {place}");
            placements += 1;
            for (name, planted) in planted {
                wrongs.extend(wrong(name, place, &planted));
                listed.extend(reason(name, place).map(|reason| format!("`{name}` in {place}: {reason}")));
            }
        }
    }
    let right = placements - wrongs.len().min(placements);
    println!("{right} of {placements} placements of secrets by name are hidden, or listed with the reason:");
    println!("{}", listed.join("\n"));
    assert_eq!(wrongs, [""; 0]);
    assert_eq!((placements, listed.len()), (392, 26));
}

#[test]
fn every_placement_of_a_masked_name_is_hidden() {
    let mask = ["NOTE", "customerName"].map(str::to_owned).into();
    let (config, mut wrong) = (RecordingConfig { mask, ..secrets_alone() }, Vec::new());
    for (place, plant) in PLACEMENTS {
        for planted in ["note", "customer_name"].into_iter().filter_map(plant) {
            let hidden = recorded(&planted, &config);
            if is_shown(&hidden) || !scan::scan(&hidden).is_empty() {
                wrong.push(format!("{place}: {hidden}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn values_under_ordinary_names_stay_in_every_place() {
    const NAMES: [&str; 16] = [
        "keyboard",
        "key_count",
        "monkey",
        "author",
        "user_agent",
        "postcode",
        "country_code",
        "status_code",
        "card_type",
        "username",
        "access",
        "base_url",
        "database",
        "spin",
        "next_page_token",
        "primary_key",
    ];
    let mut wrong = Vec::new();
    for name in NAMES {
        for (place, plant) in PLACEMENTS.into_iter().filter(|(place, _)| !place.contains("ookie")) {
            let Some(planted) = plant(name) else { continue };
            let (whole, kept) = (recorded(&planted, &everything()), recorded(&planted, &secrets_alone()));
            if kept != whole {
                wrong.push(format!("`{name}` in {place}: {kept}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn an_error_code_is_no_grant() {
    for body_text in
        [r#"{"error":{"code":"blauwal-17","state":"CA"}}"#, "<error><code>blauwal-17</code></error>"]
    {
        let planted = with_body("application/json", body_text.to_owned());
        assert!(is_shown(&recorded(&planted, &secrets_alone())), "{body_text}");
    }
}
