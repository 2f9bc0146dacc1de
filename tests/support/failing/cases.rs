//! The table of the calls that have each of Egret's errors.

use std::collections::BTreeMap;

/// One error, and the call that has it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name, which is that of the provider, unless no provider is called.
    pub error: &'static str,
    /// The status code.
    pub status: u16,
    /// A part of its cause.
    pub cause: &'static str,
    /// The property of the request that it needs.
    pub needs: Needs,
}

/// A property of the request without which the error does not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None.
    Nothing,
    /// The method GET.
    Get,
    /// The method OPTIONS, and a header field with this name and value.
    Options(&'static str, &'static str),
    /// A body of this many bytes.
    Body(usize),
    /// A body of this many bytes, none of which arrives.
    LostBody(usize),
    /// A header field with this name and value.
    Field(&'static str, &'static str),
    /// A header field of this length.
    LongField(usize),
    /// A path of this length.
    LongPath(usize),
    /// The field `Via` with the gateway's own name.
    OwnVia,
    /// A `Host` that is not the host of the intercepted tunnel that the request is in.
    OtherHost,
    /// This text in place of the request line. No SDK sends it, so a relay does.
    Start(&'static str),
}

const fn case(error: &'static str, status: u16, cause: &'static str) -> Case {
    Case { error, status, cause, needs: Needs::Nothing }
}

const fn needing(error: &'static str, status: u16, cause: &'static str, needs: Needs) -> Case {
    Case { error, status, cause, needs }
}

/// The errors that a program with an SDK can meet.
pub const CASES: [Case; 41] = [
    needing("bad-request", 400, "host", Needs::Field("x-egret-host", "a b")),
    needing("uri-too-long", 414, "line", Needs::LongPath(9_000)),
    needing("head-too-large", 431, "head", Needs::LongField(40_000)),
    needing(
        "not-implemented",
        501,
        "transfer coding",
        Needs::Start("GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked"),
    ),
    needing("version-not-supported", 505, "version", Needs::Start("GET / HTTP/2.0")),
    needing("request-timeout", 408, "timeouts.idle", Needs::LostBody(100)),
    case("unknown-provider", 404, "known providers"),
    // Of a CONNECT that it has sent itself, an SDK drops the response.
    needing(
        "connect-not-allowed",
        405,
        "does not open tunnels",
        Needs::Start("CONNECT connect-not-allowed.invalid:443 HTTP/1.1"),
    ),
    needing("misdirected", 421, "another server", Needs::OtherHost),
    needing("no-forwards-left", 405, "Max-Forwards", Needs::Options("Max-Forwards", "0")),
    needing("loop-detected", 508, "sends it back", Needs::OwnVia),
    case("egress-denied", 403, "denied.invalid"),
    case("dns-failed", 502, "unknown.invalid"),
    case("dns-timeout", 504, "did not respond in time"),
    case("connect-failed", 502, "refused"),
    case("connect-timeout", 504, "timed out"),
    case("tls-failed", 502, "TLS"),
    case("tls-timeout", 504, "timed out"),
    case("pool-full", 503, "pool.connections"),
    case("bad-response", 502, "cannot be forwarded"),
    case("provider-closed", 502, "closed the connection"),
    case("first-byte-timeout", 504, "timeouts.first_byte"),
    case("idle-timeout", 504, "timeouts.idle"),
    case("total-timeout", 504, "timeouts.total"),
    needing("echo-unreadable", 502, "mask_echoes", Needs::Get),
    case("quota-exceeded", 429, "`used`"),
    case("store-unavailable", 503, "`shared`"),
    case("too-many-in-flight", 429, "`concurrency`"),
    case("queue-full", 429, "queue"),
    case("queue-timeout", 429, "max_wait"),
    case("provider-throttled", 429, "Retry-After"),
    case("circuit-open", 503, "failed too often"),
    case("fault-injected", 503, "fault"),
    needing("not-cached", 504, "only-if-cached", Needs::Field("cache-control", "only-if-cached")),
    case("account-unavailable", 503, "token"),
    needing("body-too-large-to-sign", 413, "sigv4.body", Needs::Body(2_000)),
    case("remedy-failed", 503, "script"),
    case("script-refused", 403, "no such user"),
    needing("bodies-full", 503, "gateway.limits.gathered", Needs::Body(2 << 20)),
    case("client-unproven", 407, "token"),
    case("too-many-connections", 503, "gateway.limits.connections"),
];

const OF_PROXIES: &str = "there is no proxy in front of these providers: see the scenario `upstream_proxy`";

/// The errors that none of these calls can have, with the reason.
const OF_NO_CALL: [(&str, &str); 9] = [
    (
        "resend-elsewhere",
        "the gateway sends a recorded request again for the control API, which alone gets the response",
    ),
    (
        "fault-reset",
        "the client's connection is reset, so there is no response: see the scenario `flow_faults`",
    ),
    ("proxy-unreachable", OF_PROXIES),
    ("proxy-timeout", OF_PROXIES),
    ("proxy-credentials", OF_PROXIES),
    ("proxy-refused", OF_PROXIES),
    ("proxy-closed", OF_PROXIES),
    ("proxy-bad-response", OF_PROXIES),
    ("budget-exceeded", "only calls of language models cost money: see the scenario `money_budgets`"),
];

impl Case {
    /// The path below which every call fails in this way.
    pub fn path(&self) -> String {
        match self.needs {
            Needs::LongPath(len) => format!("/dns-failed/{}", "x".repeat(len)),
            _ if self.error == "unknown-provider" => "/no-such-provider".to_owned(),
            _ => format!("/{}", self.error),
        }
    }

    /// The number of bytes in the body of the request.
    pub fn body(&self) -> usize {
        match self.needs {
            Needs::Body(len) | Needs::LostBody(len) => len,
            _ => 0,
        }
    }

    /// The method of the request, which may be another one if nothing is needed of it.
    pub fn method(&self) -> &'static str {
        match self.needs {
            Needs::Options(..) => "OPTIONS",
            _ if self.body() > 0 => "POST",
            _ => "GET",
        }
    }
}

/// Asserts that each error of the documented table, which has all of them, either has a case or is one that
/// no call has.
pub fn assert_table_is_complete() {
    let page = include_str!("../../../docs/reference/errors.md");
    let documented: BTreeMap<&str, u16> = page.lines().filter_map(documented).collect();
    let (mut missing, mut unknown) = (documented.clone(), Vec::new());
    for error in CASES.iter().map(|case| case.error).chain(OF_NO_CALL.map(|(error, _)| error)) {
        if missing.remove(error).is_none() {
            unknown.push(error);
        }
    }
    assert!(missing.is_empty(), "add a case, or the reason why no call has these errors: {missing:?}");
    assert!(
        unknown.is_empty(),
        "these errors are listed twice, or docs/reference/errors.md has none: {unknown:?}"
    );
    for case in CASES {
        assert_eq!(documented[case.error], case.status, "{case:?}");
    }
}

/// Returns the name and the status code of a row of the table.
fn documented(line: &str) -> Option<(&str, u16)> {
    let mut columns = line.strip_prefix("| `")?.split(" | ");
    Some((columns.next()?.strip_suffix('`')?, columns.next()?.parse().ok()?))
}
