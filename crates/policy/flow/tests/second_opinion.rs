//! Compares the cache with another implementation of RFC 9111: for any freshness information from providers
//! and clients, both serve the same stored responses.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use egret_cache::{
    Action, CacheConfig, CacheRequest, CallTimes, Candidate, Decision, KeyContext, KeySecret, Lookup, Policy,
    Stored, TimedResponse,
};
use egret_clock::Timestamp;
use egret_http1::{HeadLimits, Method, Progress, RequestHead, ResponseHead};
use egret_message::{Fields, Request, Response};
use http_cache_semantics::{CacheOptions, CachePolicy};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

/// Sun, 22 Nov 2026 00:31:16 GMT.
const NOW_S: u64 = 1_795_307_476;

/// Status codes that may be stored. Transient errors are left out, because they are stored only if the config
/// names them (`ttl`).
const STATUSES: [u16; 8] = [200, 203, 204, 300, 301, 302, 404, 410];

/// The fields of a provider's response and of a later request.
#[derive(Debug, Clone)]
struct Case {
    status: u16,
    response: Vec<(&'static str, String)>,
    request: Vec<(&'static str, String)>,
    /// Seconds between the response and the later request.
    later_s: u64,
}

fn date(at_s: u64) -> String {
    let moment = jiff::Timestamp::from_second(i64::try_from(at_s).unwrap()).unwrap();
    moment.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Returns one field with some of `directives`, each with its probability and at most once.
fn control(
    directives: Vec<(f64, BoxedStrategy<String>)>,
) -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let each: Vec<_> =
        directives.into_iter().map(|(weight, directive)| prop::option::weighted(weight, directive)).collect();
    each.prop_map(|said| {
        let said: Vec<String> = said.into_iter().flatten().collect();
        if said.is_empty() { Vec::new() } else { vec![("cache-control", said.join(", "))] }
    })
}

/// Returns `name=` and a number of seconds that does not end with 0. All other times do, so the result does
/// not depend on whether a limit is inclusive.
fn seconds(name: &'static str) -> BoxedStrategy<String> {
    // The sum of `max-stale` and a lifetime must also differ from all other times.
    let last = if name == "max-stale" { 2 } else { 5 };
    (0_u64..120).prop_map(move |tens| format!("{name}={}", 10 * tens + last)).boxed()
}

fn word(word: &'static str) -> BoxedStrategy<String> {
    Just(word.to_owned()).boxed()
}

fn cases() -> impl Strategy<Value = Case> {
    let response = control(vec![
        (0.5, seconds("max-age")),
        (0.2, seconds("s-maxage")),
        (0.3, word("public")),
        (0.08, word("private")),
        (0.08, word("no-cache")),
        (0.08, word("no-store")),
        (0.2, word("must-revalidate")),
        (0.1, word("no-transform")),
    ]);
    let expires =
        prop_oneof![Just("0".to_owned()), (0_u64..120).prop_map(|tens| date(NOW_S - 600 + 10 * tens + 5)),];
    let fields = (
        prop::option::of(expires),
        prop::option::of((0_u64..20).prop_map(|tens| (10 * tens).to_string())),
        // Within ten days, so a tenth of the age is below any heuristic limit.
        prop::option::of((0_u64..8_000).prop_map(|hundreds| date(NOW_S - 100 * hundreds - 50))),
    );
    let request = control(vec![
        (0.2, seconds("max-age")),
        (0.2, seconds("min-fresh")),
        (0.2, prop_oneof![word("max-stale"), seconds("max-stale")].boxed()),
        (0.05, word("no-cache")),
        (0.1, word("no-transform")),
    ]);
    (select(&STATUSES[..]), response, fields, request, (0_u64..90).prop_map(|tens| 10 * tens)).prop_map(
        |(status, mut response, (expires, age, modified), request, later_s)| {
            response.push(("date", date(NOW_S)));
            response.extend(expires.map(|value| ("expires", value)));
            response.extend(age.map(|value| ("age", value)));
            response.extend(modified.map(|value| ("last-modified", value)));
            Case { status, response, request, later_s }
        },
    )
}

fn head(first: &str, fields: &[(&'static str, String)]) -> Vec<u8> {
    let mut lines = format!("{first}\r\n");
    for (name, value) in fields {
        lines.extend([name, ": ", value, "\r\n"]);
    }
    (lines + "\r\n").into_bytes()
}

/// Calls `act` with the policy's question for a request with `fields`.
fn ask<T>(
    policy: &Policy,
    fields: &[(&'static str, String)],
    act: impl FnOnce(&CacheRequest, &Request<'_>) -> T,
) -> T {
    let bytes = head("GET / HTTP/1.1\r\nhost: h", fields);
    let mut parsed = RequestHead::new();
    assert_eq!(parsed.parse(&bytes, &HeadLimits::default()), Ok(Progress::Complete));
    let request = Request {
        provider: "one",
        tls: true,
        host: "h",
        port: 443,
        method: b"GET",
        path: b"/",
        query: None,
        fields: Fields::received(&parsed.fields, &bytes),
        upgrade: false,
        body: None,
    };
    let Lookup::Look(question) = policy.look_up(&request, &KeyContext::default()) else {
        unreachable!("the cache is for every GET")
    };
    act(&question, &request)
}

/// Returns `true` if Egret serves the later request from the stored response.
fn serves(case: &Case) -> bool {
    let policy = Policy::new(&CacheConfig::default(), "f", Arc::new(KeySecret::new(&[1; 32])));
    let now = Timestamp::from_secs(NOW_S);
    let bytes = head(&format!("HTTP/1.1 {} Said", case.status), &case.response);
    let mut parsed = ResponseHead::new();
    assert_eq!(parsed.parse(&bytes, &HeadLimits::default(), Method::Get), Ok(Progress::Complete));
    let response =
        Response { status: case.status, fields: Fields::received(&parsed.fields, &bytes), body: None };
    let stored: Option<Box<Stored>> = ask(&policy, &[], |question, request| {
        let response = TimedResponse { response: &response, times: CallTimes { sent: now, received: now } };
        let context = KeyContext::default();
        match policy.receive(question, request, &context, response, &[], None).action {
            Action::Store(stored, _) => Some(stored),
            _ => None,
        }
    });
    let Some(stored) = stored else { return false };
    ask(&policy, &case.request, |question, request| {
        let candidates = [Candidate { stored: &stored, len: Some(0) }];
        let decision = policy.decide(question, request, &candidates, now + Duration::from_secs(case.later_s));
        matches!(decision, Decision::Serve(_))
    })
}

/// Returns `true` if the other implementation does.
fn other_serves(case: &Case) -> bool {
    let request = |fields: &[(&'static str, String)]| {
        let mut builder = http::Request::get("https://h/").header("host", "h");
        for (name, value) in fields {
            builder = builder.header(*name, value);
        }
        builder.body(()).unwrap()
    };
    let mut response = http::Response::builder().status(case.status);
    for (name, value) in &case.response {
        response = response.header(*name, value);
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S);
    let policy =
        CachePolicy::new_options(&request(&[]), &response.body(()).unwrap(), now, CacheOptions::default());
    let later = now + Duration::from_secs(case.later_s);
    policy.is_storable()
        && policy.before_request(&request(&case.request), later).satisfies_without_revalidation()
}

/// Number of cases.
const CASES: u32 = 20_000;

#[test]
fn both_serve_the_same() {
    let served = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(CASES));
    let judged = runner.run(&cases(), |case| {
        let (own, other) = (serves(&case), other_serves(&case));
        served.set(served.get() + u32::from(own));
        prop_assert!(!own || other, "served here alone");
        // For a client that accepts stale responses, the other implementation serves responses that it must
        // not serve: those marked `no-cache` or `s-maxage` (RFC 9111 §5.2.2.4, §5.2.2.10), and those without
        // any freshness information.
        let takes_stale = case.request.iter().any(|(_, value)| value.contains("max-stale"));
        prop_assert!(own || !other || takes_stale, "served there alone");
        Ok(())
    });
    judged.unwrap();
    assert!(served.get() > CASES / 10, "only {} of {CASES} were served", served.get());
}
