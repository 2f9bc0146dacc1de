//! Tests of properties that no single requirement states.

use std::sync::Arc;

use egret_clock::Timestamp;
use egret_http1::{HeadLimits, Method, Progress, ResponseHead};
use egret_message::{Fields, Request, Response};
use egret_store::entries::StoredValue as _;
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

fn policy(config: serde_json::Value) -> Policy {
    let config: CacheConfig = serde_json::from_value(config).unwrap();
    assert_eq!(problems(&config), []);
    Policy::new(&config, "f", Arc::new(KeySecret::new(&[3; 32])))
}

fn with_request<T>(fields: &str, act: impl FnOnce(&Request<'_>) -> T) -> T {
    egret_fixture::with_request("one", &format!("GET https://h/\n{fields}"), act)
}

/// Returns the verdict on a response to GET with status 200 and these header lines.
fn receive(policy: &Policy, request_fields: &str, lines: &str, candidates: &[Candidate<'_>]) -> Verdict {
    let (status, fields) = lines.split_once('\n').unwrap_or((lines, ""));
    let fields: String = fields.lines().flat_map(|field| [field, "\r\n"]).collect();
    let bytes = format!("HTTP/1.1 {status} X\r\n{fields}\r\n").into_bytes();
    let mut head = ResponseHead::new();
    assert_eq!(head.parse(&bytes, &HeadLimits::default(), Method::Get).unwrap(), Progress::Complete);
    let response =
        Response { status: head.status, fields: Fields::received(&head.fields, &bytes), body: None };
    with_request(request_fields, |request| {
        let context = KeyContext::default();
        let Lookup::Look(question) = policy.look_up(request, &context) else {
            panic!("it is not looked for")
        };
        policy.receive(
            &question,
            request,
            &context,
            TimedResponse { response: &response, times: CallTimes { sent: NOW, received: NOW } },
            candidates,
            None,
        )
    })
}

fn stored(policy: &Policy, lines: &str) -> Stored {
    match receive(policy, "", lines, &[]).action {
        Action::Store(stored, _) => *stored,
        other => panic!("{other:?}"),
    }
}

fn load(saved: &[u8]) -> Option<Stored> {
    Stored::load(saved, &policy(serde_json::json!({})).targets().into())
}

#[test]
fn a_saved_response_is_loaded_unchanged_or_refused() {
    let policy = policy(serde_json::json!({}));
    for said in [
        "200\ncache-control: max-age=60, no-cache=\"x-b\"\nvary: accept, x-a\netag: \"1\"\nage: 7\nx-b: 1",
        "404\negret-cache-control: max-age=9\ncache-control: no-store\ncontent-length: 3\nx-a: \u{e9}\nx-a:",
        "200\nexpires: Thu, 01 Dec 2033 16:00:00 GMT\nlast-modified: Thu, 01 Dec 1994 16:00:00 GMT\nvary:",
    ] {
        let stored = stored(&policy, said);
        let saved = stored.save();
        assert_eq!(load(&saved).as_ref(), Some(&stored), "{said}");
        for cut in 0..saved.len() {
            assert!(load(&saved[..cut]).is_none_or(|other| other.vary != stored.vary), "{said}: {cut}");
        }
    }
}

#[test]
fn no_credential_is_kept_with_a_response() {
    let policy = policy(serde_json::json!({}));
    let fields = "Authorization: Bearer swordfish\nCookie: a=swordfish";
    let verdict =
        receive(&policy, fields, "200\ncache-control: public, max-age=60\nvary: authorization, cookie", &[]);
    let Action::Store(stored, _) = verdict.action else { panic!("{verdict:?}") };
    let saved = String::from_utf8_lossy(&stored.save()).into_owned() + &format!("{stored:?} {policy:?}");
    assert!(!saved.contains("swordfish"));
}

#[test]
fn a_newer_response_replaces_those_with_equal_fields() {
    let policy = policy(serde_json::json!({}));
    let for_all = stored(&policy, "200\ncache-control: max-age=60");
    let one = Candidate { stored: &for_all, len: Some(1) };
    assert_eq!(receive(&policy, "", "200\ncache-control: max-age=60", &[one]).removed, [0]);
    assert_eq!(receive(&policy, "", "404\ncache-control: no-store", &[one]).removed, [0]);
    for keeps in ["403\ncache-control: no-store", "500", "429", "206\ncontent-range: bytes 0-0/9"] {
        assert!(receive(&policy, "", keeps, &[one]).removed.is_empty(), "{keeps}");
    }
    let varying = stored(&policy, "200\ncache-control: max-age=60\nvary: x-a");
    let other = Candidate { stored: &varying, len: Some(1) };
    assert!(
        receive(&policy, "x-a: 1", "200\ncache-control: max-age=60\nvary: x-a", &[other]).removed.is_empty()
    );
}

#[test]
fn a_lookup_is_bypassed_without_the_body_it_needs() {
    let policy = policy(serde_json::json!({ "methods": ["POST"], "ttl": { "200": "1s" }, "override": true }));
    egret_fixture::with_request("one", "POST https://h/", |request| {
        assert_eq!(policy.look_up(request, &KeyContext::default()), Lookup::Forward(FwdReason::Bypass));
    });
    egret_fixture::with_request("one", "GET https://h/", |request| {
        assert_eq!(policy.look_up(request, &KeyContext::default()), Lookup::Forward(FwdReason::Method));
    });
}

proptest! {
    /// A file is read as it was written, or rejected.
    #[test]
    fn changed_bytes_are_loaded_consistently_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        junk in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let stored = stored(&policy(serde_json::json!({})), "200\ncache-control: max-age=60\nvary: a\netag: \"1\"");
        let mut saved = stored.save();
        for (at, byte) in changes {
            let at = at.index(saved.len());
            saved[at] = byte;
        }
        for saved in [&saved, &junk] {
            if let Some(loaded) = load(saved) {
                prop_assert_eq!(load(&loaded.save()), Some(loaded));
            }
        }
    }

    /// For any response of the provider: everything served later was allowed, reports its age, and never had
    /// `no-store`.
    #[test]
    fn no_response_is_served_that_says_it_must_not_be(
        directives in prop::collection::vec(
            prop::sample::select(vec![
                "no-store", "private", "no-cache", "public", "must-revalidate", "max-age=5", "max-age=50", "s-maxage=20", "max-age=x",
                "immutable", "stale-while-revalidate=9", "must-understand", "private=\"a\"",
            ]),
            0..4,
        ),
        broken in any::<bool>(),
        age in 0_u64..60,
        passed in 0_u64..100,
        wants in prop::sample::select(vec!["", "cache-control: max-stale=3", "cache-control: no-cache", "cache-control: max-age=9"]),
        status in prop::sample::select(vec![200_u16, 302, 404, 429, 503]),
    ) {
        let policy = policy(serde_json::json!({}));
        // An unterminated quote may only be last: before other directives, the next quote would end it and
        // hide the text between.
        let said = directives.iter().copied().chain(broken.then_some("junk=\"")).collect::<Vec<_>>().join(", ");
        let verdict = receive(&policy, "", &format!("{status}\ncache-control: {said}\nage: {age}\netag: \"1\""), &[]);
        let has = |name: &str| directives.contains(&name);
        let Action::Store(stored, _) = verdict.action else { return Ok(()) };
        prop_assert!(!has("no-store") || has("must-understand"));
        prop_assert!(!has("private") && !broken && status != 429);
        let now = NOW + std::time::Duration::from_secs(passed);
        let decision = with_request(wants, |request| {
            let Lookup::Look(question) = policy.look_up(request, &KeyContext::default()) else { panic!("it is not looked for") };
            policy.decide(&question, request, &[Candidate { stored: &stored, len: Some(3) }], now)
        });
        if let Decision::Serve(reply) | Decision::ServeStale(reply, _) = decision {
            prop_assert_eq!(reply.freshness.age.as_secs(), age + passed);
            let strict = has("must-revalidate") || has("s-maxage=20");
            let max: u64 = if has("s-maxage=20") { 20 } else if has("max-age=5") { 5 } else { 50 };
            let beyond = if strict { 0 } else if has("stale-while-revalidate=9") { 9 } else { 3 };
            prop_assert!(age + passed <= max + beyond, "{} after {}", said, age + passed);
            prop_assert!(!has("no-cache") && wants != "cache-control: no-cache");
        }
    }
}
