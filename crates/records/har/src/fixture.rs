//! Test data shared by the tests of this crate.

use proptest::prelude::*;
use serde_json::Value;

/// A HAR 1.2 file with every field and some custom fields.
pub(crate) const FULL: &str = r#"{"log": {
  "version": "1.2",
  "creator": {"name": "recorder", "version": "1.0", "comment": "c"},
  "browser": {"name": "browser", "version": "99.1", "_channel": "beta"},
  "pages": [{"startedDateTime": "2026-01-02T03:04:05.000Z", "id": "page_1", "title": "A title",
    "pageTimings": {"onContentLoad": -1.0, "onLoad": 12.5}, "_origin": "here"}],
  "entries": [{
    "pageref": "page_1", "startedDateTime": "2026-01-02T03:04:05.250+01:00", "time": 125.5,
    "request": {
      "method": "POST", "url": "https://user:pass@api.example.com/v1/charges/ch_42?page=2&token=s3cr%20et",
      "httpVersion": "HTTP/1.1",
      "cookies": [{"name": "session", "value": "abc123session"}, {"name": "theme", "value": "dark"}],
      "headers": [{"name": "Host", "value": "api.example.com"}, {"name": "Content-Type", "value": "application/json"},
        {"name": "Cookie", "value": "session=abc123session; theme=dark"},
        {"name": "Authorization", "value": "Bearer tok-987-654"}, {"name": "X-Empty", "value": "", "comment": "c"}],
      "queryString": [{"name": "page", "value": "2"}, {"name": "token", "value": "s3cr et"}],
      "postData": {"mimeType": "application/json; charset=utf-8", "text": "{\"amount\": 4200, \"card\": {\"holder\": \"Ada\"}}"},
      "headersSize": 210, "bodySize": 44, "_priority": "High"},
    "response": {
      "status": 201, "statusText": "Created", "httpVersion": "HTTP/1.1",
      "cookies": [{"name": "session", "value": "new-session", "path": "/v1", "domain": "example.com",
        "expires": "2027-01-02T03:04:05.000Z", "httpOnly": true, "secure": true, "sameSite": "Lax"}],
      "headers": [{"name": "Content-Type", "value": "application/json"},
        {"name": "Set-Cookie", "value": "session=new-session; Path=/v1; Domain=example.com; HttpOnly; Secure; SameSite=Lax"},
        {"name": "Location", "value": "/v1/charges/ch_42?token=s3cr%20et"}],
      "content": {"size": 60, "compression": 16, "mimeType": "application/json",
        "text": "{\"id\": \"ch_42\", \"items\": [{\"id\": 1, \"ok\": true}, {\"id\": 2, \"ok\": null}]}"},
      "redirectURL": "/v1/charges/ch_42?token=s3cr%20et", "headersSize": 300, "bodySize": 44, "_transferSize": 344},
    "cache": {"beforeRequest": null, "afterRequest": {"expires": "2026-01-03T03:04:05Z", "lastAccess": "2026-01-02T03:04:05Z",
      "eTag": "\"abc\"", "hitCount": 3}},
    "timings": {"blocked": 1.5, "dns": -1.0, "connect": 20.0, "send": 0.5, "wait": 100.0, "receive": 3.5, "ssl": 12.25, "_queued": 7},
    "serverIPAddress": "192.0.2.7", "connection": "443", "comment": "a comment", "_initiator": {"url": "https://app.example.com/secret"}
  }],
  "comment": "c", "_own": [1, 2]}, "_outer": "kept"}"#;

/// Any JSON, with names and texts that need escapes.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
