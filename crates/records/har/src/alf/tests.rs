//! Checks documents against the schemas of the format, written here as the required and optional fields of
//! each object.

use serde_json::{Value, json};

use super::*;
use crate::fixture;
use crate::validate::validate;

const VERSIONS: [Version; 3] = [Version::V1_0_0, Version::V1_1_0, Version::V2_0_0];

/// Returns an entry without a page, like those of recorders.
fn entry() -> Value {
    let har: Value = serde_json::from_str(fixture::FULL).unwrap();
    let mut entry = har["log"]["entries"][0].clone();
    entry.as_object_mut().unwrap().remove("pageref");
    entry
}

fn document(version: Version, entry: &Value, envelope: &Envelope<'_>) -> Value {
    let mut out = b"+".to_vec();
    write(version, &serde_json::to_vec(entry).unwrap(), envelope, &mut out).unwrap();
    let document = serde_json::from_slice(&out[1..]).unwrap();
    check(version, &document);
    document
}

/// Asserts that an object has the required fields and no others than the optional ones.
fn object(value: &Value, path: &str, required: &[&str], optional: &[&str]) {
    let names: Vec<&str> =
        value.as_object().unwrap_or_else(|| panic!("{path}")).keys().map(String::as_str).collect();
    let missing: Vec<_> = required.iter().filter(|name| !names.contains(name)).collect();
    let unknown: Vec<_> =
        names.iter().filter(|name| !required.contains(name) && !optional.contains(name)).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "{path}: missing {missing:?}, unknown {unknown:?}");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value}"))
}

pub(crate) fn check(version: Version, document: &Value) {
    assert_eq!(text(&document["version"]), version.as_str());
    let (creator, entries) = match version {
        Version::V1_0_0 => {
            object(document, "", &["version", "serviceToken", "har"], &["environment", "clientIPAddress"]);
            assert_eq!(validate(&json!({"log": document["har"]["log"]})), []);
            return;
        }
        Version::V1_1_0 => {
            object(document, "", &["version", "serviceToken", "har"], &["environment"]);
            object(&document["har"], "har", &["log"], &[]);
            let log = &document["har"]["log"];
            object(log, "log", &["creator", "entries"], &[]);
            (&log["creator"], &log["entries"])
        }
        Version::V2_0_0 => {
            object(document, "", &["version", "creator", "entries"], &["service"]);
            if let Some(service) = document.get("service") {
                object(service, "service", &["token"], &["environment"]);
                assert!(!text(&service["token"]).is_empty());
            }
            (&document["creator"], &document["entries"])
        }
    };
    object(creator, "creator", &["name", "version"], &[]);
    for entry in entries.as_array().unwrap() {
        check_entry(version, entry);
    }
}

fn check_entry(version: Version, entry: &Value) {
    let required = ["startedDateTime", "time", "request", "response", "timings"];
    object(entry, "entry", &required, &["serverIPAddress", "clientIPAddress"]);
    for name in ["serverIPAddress", "clientIPAddress"] {
        assert!(entry.get(name).is_none_or(|address| text(address).parse::<IpAddr>().is_ok()));
    }
    let (request, response, timings) = (&entry["request"], &entry["response"], &entry["timings"]);
    let (optional, of_timings, body): (&[&str], &[&str], _) = match version {
        Version::V2_0_0 => (&["httpVersion", "queryString", "content"], &[], "content"),
        _ => (&["httpVersion", "queryString", "postData"], &["blocked", "connect"], "postData"),
    };
    object(timings, "timings", &["send", "wait", "receive"], of_timings);
    let sizes = ["headersSize", "bodyCaptured", "bodySize", "headers"];
    object(request, "request", &[&["method", "url"][..], &sizes].concat(), optional);
    object(
        response,
        "response",
        &[&["status", "statusText"][..], &sizes].concat(),
        &["httpVersion", "content"],
    );
    for (message, body) in [(request, body), (response, "content")] {
        assert!(message["headersSize"].is_u64() && message["bodySize"].is_u64(), "{message}");
        assert!(
            ["HTTP/1", "HTTP/1.0", "HTTP/1.1", "HTTP/2", "unknown"].contains(&text(&message["httpVersion"]))
        );
        assert_eq!(message["bodyCaptured"], message.get(body).is_some());
        if let Some(content) = message.get(body) {
            let of_content: &[&str] = if version == Version::V1_1_0 {
                &["mimeType", "encoding", "text"]
            } else {
                &["encoding", "text"]
            };
            object(content, "content", of_content, &[]);
            assert!(base64::decode(text(&content["text"]).as_bytes()).is_some());
        }
        for pair in
            ["headers", "queryString"].iter().filter_map(|name| message.get(*name)?.as_array()).flatten()
        {
            object(pair, "pair", &["name", "value"], &[]);
        }
    }
    assert!(
        ["send", "wait", "receive"].iter().all(|name| timings[*name].as_f64().unwrap() >= 0.0),
        "{timings}"
    );
}

const ENVELOPE: Envelope<'static> = Envelope {
    service_token: "token-1",
    environment: "production",
    client: Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9))),
};

#[test]
fn each_version_has_the_fields_of_its_schema() {
    let [one, flat, proposed] = VERSIONS.map(|version| document(version, &entry(), &ENVELOPE));
    assert_eq!(one["har"]["log"]["entries"][0], entry());
    assert_eq!(
        (&one["serviceToken"], &one["environment"], &one["clientIPAddress"]),
        (&json!("token-1"), &json!("production"), &json!("192.0.2.9"))
    );
    let (of_flat, of_proposed) = (&flat["har"]["log"]["entries"][0], &proposed["entries"][0]);
    assert_eq!(proposed["service"], json!({"token": "token-1", "environment": "production"}));
    assert_eq!(of_flat["clientIPAddress"], "192.0.2.9");
    // {"amount": 4200, ...
    let body = "eyJhbW91bnQiOiA0MjAwLCAiY2FyZCI6IHsiaG9sZGVyIjogIkFkYSJ9fQ==";
    let expected = json!({"mimeType": "application/json; charset=utf-8", "encoding": "base64", "text": body});
    assert_eq!(of_flat["request"]["postData"], expected);
    assert_eq!(of_proposed["request"]["content"], json!({"encoding": "base64", "text": body}));
    assert_eq!(
        of_flat["timings"],
        json!({"send": 0.5, "wait": 100.0, "receive": 3.5, "blocked": 1.5, "connect": 20.0})
    );
    assert_eq!(of_proposed["timings"], json!({"send": 0.5, "wait": 100.0, "receive": 3.5}));
}

#[test]
fn unknown_values_are_left_out() {
    let mut entry = entry();
    entry["request"]["bodySize"] = json!(-1);
    entry["request"]["httpVersion"] = json!("");
    entry["response"]["headersSize"] = json!(-1);
    entry["response"]["content"] =
        json!({"size": 2, "mimeType": "image/png", "text": "AP8=", "encoding": "base64"});
    let envelope = Envelope { service_token: "token-1", ..Envelope::default() };
    for version in VERSIONS {
        let document = document(version, &entry, &envelope);
        assert!(!document.to_string().contains("environment"), "{document}");
    }
    let flat = document(Version::V1_1_0, &entry, &envelope);
    let entry_of = &flat["har"]["log"]["entries"][0];
    assert_eq!(
        (&entry_of["request"]["bodySize"], &entry_of["request"]["httpVersion"]),
        (&json!(0), &json!("unknown"))
    );
    assert_eq!(entry_of["response"]["content"]["text"], "AP8=");
    assert!(document(Version::V2_0_0, &entry, &Envelope::default()).get("service").is_none());
}

#[test]
fn an_invalid_entry_or_token_gives_no_document() {
    let mut out = b"+".to_vec();
    let error = write(Version::V1_1_0, b"{\"time\": 1}", &ENVELOPE, &mut out).unwrap_err();
    assert!(matches!(error, AlfError::Entry(_)), "{error}");
    for version in [Version::V1_0_0, Version::V1_1_0] {
        assert!(matches!(write(version, b"{}", &Envelope::default(), &mut out), Err(AlfError::NoToken)));
    }
    assert_eq!(out, b"+");
    assert!(!format!("{ENVELOPE:?}").contains("token-1"));
    assert_eq!("1.1.0".parse(), Ok(Version::V1_1_0));
    assert!("1.2.0".parse::<Version>().unwrap_err().to_string().contains("2.0.0"));
}
