//! The responses that the presets' providers document, in two tables in the order of the presets.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// Refusals, each with the call that it refuses and with the action of Egret: `alone` for an account alone,
/// `with_two` if there is a second one. `sdk` is the action of the provider's own SDK if it is another one,
/// and `unlike` the reason, which the reference page of the presets has too.
pub const REFUSALS: &str = include_str!("../fixtures/provider-refusals.json");

/// Successes, each with the limits and tokens that it tells.
pub const SUCCESSES: &str = include_str!("../fixtures/provider-successes.json");

/// The rows of a table.
pub fn table(text: &str) -> Vec<Value> {
    let Value::Array(rows) = serde_json::from_str(text).unwrap() else { panic!("a table has rows") };
    rows
}

/// A response with these fields of a table. A value like `+2` is so many seconds from now, as a number of
/// seconds since 1970.
pub fn response(status: &str, fields: &Value, body: &str) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in fields.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap();
        let value = value.strip_prefix('+').map_or_else(|| value.to_owned(), seconds_from_now);
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    (head + "\r\n" + body).into_bytes()
}

fn seconds_from_now(seconds: &str) -> String {
    let at = SystemTime::now() + Duration::from_secs(seconds.parse().unwrap());
    at.duration_since(UNIX_EPOCH).unwrap().as_secs().to_string()
}
