//! The built-in provider keeps state: failures that end, rate limits, counters.

use egret_tests::built_in::BuiltIn;
use egret_tests::provider_pair::request;

#[test]
fn a_key_fails_so_many_times_and_then_succeeds() {
    let provider = BuiltIn::start(&["--threads", "2"]);
    let statuses = |target: &str| (0..4).map(|_| provider.get(target).status).collect::<Vec<_>>();
    assert_eq!(statuses("/fail/2?key=a"), [503, 503, 200, 200]);
    assert_eq!(statuses("/fail/1?key=b&status=500"), [500, 200, 200, 200]);
    let refused = provider.get("/fail/1?key=c&retry_after=7");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("7")));
    assert_eq!(provider.counters()["failures"]["a"], serde_json::json!({ "failed": 2, "succeeded": 2 }));
    for target in ["/fail/x", "/fail/1?status=99", "/fail/1?fault=x", "/fail/1?retry_after=-1"] {
        assert_eq!(provider.get(target).status, 400, "{target}");
    }
}

#[test]
fn a_key_can_fail_by_a_fault_of_the_connection() {
    let provider = BuiltIn::start(&[]);
    let mut client = provider.client();
    assert_eq!(client.get("a", "/fail/1?key=a&fault=close").rest(), b"");
    assert_eq!(provider.get("/fail/1?key=a&fault=close").status, 200);
    assert_eq!(provider.counters()["faults"]["close"], 1);
}

#[test]
fn a_rate_limit_admits_its_number_and_says_when_there_is_more() {
    let provider = BuiltIn::start(&[]);
    let mut client = provider.client();
    let mut call = |target: &str| client.get("a", target).response();
    let first = call("/rate-limit/2/1h?key=a");
    assert_eq!((first.status, first.field("ratelimit-policy")), (200, Some("\"default\";q=2;w=3600")));
    assert_eq!(
        (first.field("ratelimit"), first.field("retry-after")),
        (Some("\"default\";r=1;t=3600"), None)
    );
    call("/rate-limit/2/1h?key=a");
    let refused = call("/rate-limit/2/1h?key=a");
    assert_eq!((refused.status, refused.json()["status_code"].as_u64()), (429, Some(429)));
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!(call("/rate-limit/2/1h?key=b").status, 200, "another key has its own window");
    let by_field = request("GET", "/rate-limit/1/1h?by=x-api-key").field("X-Api-Key", "c");
    let statuses: Vec<u16> = (0..2).map(|_| by_field.send_to(provider.address()).status).collect();
    assert_eq!(statuses, [200, 429], "a key can be sent in a field");
    let counted = call("/counters").json();
    assert_eq!(counted["rate_limits"]["c"]["refused"], 1);
    let window = &counted["rate_limits"]["a"];
    assert_eq!(
        (&window["admitted"], &window["refused"], &window["limit"]),
        (&2.into(), &1.into(), &2.into())
    );
    assert_eq!(call("/rate-limit/x/1s").status, 400);
    assert_eq!(call("/rate-limit/1/0").status, 400);
    assert_eq!(call("/rate-limit/1/1s?by=no%20field").status, 400);
}

#[test]
fn a_window_that_has_passed_admits_again() {
    let provider = BuiltIn::start(&[]);
    let mut client = provider.client();
    let mut refused = 0;
    egret_tests::wait::until_true("a refused caller is admitted in the next window", || {
        let status = client.get("a", "/rate-limit/1/300ms").response().status;
        refused += u32::from(status == 429);
        refused > 0 && status == 200
    });
}

#[test]
fn a_rate_limit_for_all_calls_counts_what_it_refused_and_admitted() {
    let provider = BuiltIn::start(&["--rate-limit", "3/1h", "--threads", "2"]);
    let statuses: Vec<u16> = (0..5).map(|_| provider.get("/get").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let counted = provider.counters();
    let window = &counted["rate_limit"];
    assert_eq!(
        (&window["admitted"], &window["refused"], &counted["requests"]),
        (&3.into(), &2.into(), &5.into())
    );
    assert_eq!(request("DELETE", "/counters").send_to(provider.address()).status, 204);
    assert_eq!(provider.get("/get").status, 200, "forgotten: a new window");
    assert_eq!(provider.counters()["requests"], 1);
}
