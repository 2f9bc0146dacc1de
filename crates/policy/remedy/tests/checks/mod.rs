//! Invariants for arbitrary input: the state that an earlier process hands over, and its reports. Shared by
//! the fuzz target and the corpus.

use std::time::Duration;

use egret_fixture::{TestFlows, TestStep};
use egret_quota::Balance;
use serde_json::{Value, json};

/// Units that each quota allows in a window.
const LIMIT: usize = 3;

/// Units of a month that the next one allows in addition.
const SPILLED_MAX: usize = 2;

/// The longest that anything may be held back: the longest window that a config may have, and a bit more.
const PATIENCE: Duration = Duration::from_hours(367 * 24);

/// A quota of each kind. A call to the path of the same name counts against it.
pub const QUOTAS: [&str; 6] = ["sliding", "fixed", "first", "bucket", "concurrency", "calendar"];

/// Flows with other remedies that hand something over, and the paths that they are for.
const OTHERS: [&str; 3] = ["circuit", "paused", "accounts"];

/// Returns flows in which everything is that one process hands over to the next.
pub fn flows() -> TestFlows {
    let limits = QUOTAS.map(|quota| flow(quota, &json!({ "limit": { "quota": quota } })));
    let remedies = [
        json!({ "circuit-breaker": {} }),
        json!({ "provider-throttle": {} }),
        json!({ "accounts": { "use": ["a", "b"] } }),
    ];
    let others = OTHERS.into_iter().zip(remedies).map(|(name, remedy)| flow(name, &remedy));
    // Any secret will do; this variable exists wherever the check runs.
    let account = json!({ "provider": "one", "bearer": { "token": "${env:PATH}" } });
    let spillover = json!({ "max": SPILLED_MAX });
    TestFlows::new(json!({
        "quotas": {
            "sliding": { "limit": LIMIT, "window": "10s", "group_by": "header:x-account" },
            "fixed": { "limit": LIMIT, "window": "10s", "kind": "fixed", "learn": { "from": ["retry-after"] } },
            "first": { "limit": LIMIT, "window": "1h", "kind": "fixed", "starts": "first" },
            "bucket": { "limit": LIMIT, "window": "1m", "kind": "token-bucket", "burst": LIMIT },
            "concurrency": { "limit": LIMIT, "kind": "concurrency" },
            "calendar": { "limit": LIMIT, "kind": "calendar", "period": "month", "spillover": spillover },
        },
        "accounts": { "a": account, "b": account },
        "flows": limits.into_iter().chain(others).collect::<Vec<_>>(),
    }))
}

fn flow(name: &str, remedy: &Value) -> Value {
    json!({ "name": name, "match": { "path": format!("/{name}") }, "remedies": [remedy] })
}

/// Returns a request for the flow with this name.
pub fn request(flow: &str) -> String {
    format!("GET https://one.example/{flow}\nX-Account: a")
}

/// Returns the number of calls that pass at once, at most one more than any quota allows.
fn admitted(flows: &TestFlows, flow: &str) -> usize {
    let mut exchanges: Vec<_> = (0..=LIMIT + SPILLED_MAX).map(|_| flows.send(&request(flow))).collect();
    exchanges.iter_mut().map(|exchange| usize::from(exchange.poll(flows) == TestStep::Call)).sum()
}

/// Checks the state that an earlier process hands over, and after a NUL its reports: nothing panics, no quota
/// allows more than without them, nothing is held back for ever, and the state can be handed on. Returns
/// `true` if the state is understood.
pub fn handover(bytes: &[u8]) -> bool {
    let (state, reports) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &b"[]"[..]),
    };
    let Ok(handed) = serde_json::from_slice(state) else { return false };
    let mut new = flows();
    let mut inheritance = new.flows.inherit(new.now, &handed);
    if let Ok(balances) = serde_json::from_slice::<Vec<Balance>>(reports) {
        let lendings = inheritance.settle(&new.flows.quotas, new.now, &balances);
        assert!(lendings.iter().all(|lending| lending.units <= (LIMIT + SPILLED_MAX) as u64), "{lendings:?}");
    }
    for quota in QUOTAS {
        let max = if quota == "calendar" { LIMIT + SPILLED_MAX } else { LIMIT };
        assert!(admitted(&new, quota) <= max, "{quota} allows more than its limit");
    }
    new.exchange(&request("accounts"), "401");
    new.flows.snapshot(new.now, 10);
    inheritance.end(new.now);
    new.now = new.now + PATIENCE;
    for flow in QUOTAS.into_iter().chain(OTHERS) {
        // Circuits and pauses let a first call find out.
        new.exchange(&request(flow), "200");
        assert!(admitted(&new, flow) > 0, "{flow} is held back for ever");
    }
    hand_on(&new);
    true
}

/// Checks that the next process but one understands the state too.
fn hand_on(new: &TestFlows) {
    let handed = new.flows.hand_over(new.now, 2);
    let message = serde_json::to_string(&handed).unwrap_or_default();
    let mut last = flows();
    last.now = new.now;
    assert_eq!(serde_json::from_str(&message).ok().as_ref(), Some(&handed));
    drop(last.flows.inherit(last.now, &handed));
    last.flows.snapshot(last.now, 10);
}
