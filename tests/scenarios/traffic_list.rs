//! Live traffic: what the list, the details and the stream say about a call, and their filters.

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;
use serde_json::{Value, json};

/// Responds to `/fail` with 503, to `/cached` with what may be stored, and to others with 200.
fn provider() -> Provider {
    Provider::with_responses(|request: &Request| {
        match request.target() {
        "/fail" => b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy".to_vec(),
        "/cached" => {
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}"
                .to_vec()
        }
        _ => ok("hello"),
    }
    })
}

fn start(origin: &Provider) -> Egret {
    let flows = "quotas: { few: { limit: 1, window: 1h } }\n\
         flows:\n\
         - { name: again, match: { path: /fail }, remedies: [retry: { attempts: 2, on: [5xx], backoff: { base: 1ms, max: 1ms } }] }\n\
         - { name: stored, match: { path: /cached }, remedies: [cache: {}] }\n\
         - { name: few, match: { path: /few }, remedies: [limit: { quota: few }] }\n";
    Config::with_origin(origin.url()).flows(flows).start()
}

/// Sends requests, each one once the call before is listed: calls of two workers are listed as they are read.
fn get_in_turn(egret: &Egret, traffic: &LiveTraffic<'_>, paths: &[&str]) {
    for (path, count) in paths.iter().zip(1..) {
        egret.get(path);
        traffic.until("provider=origin", count);
    }
}

fn paths(exchanges: &[Value]) -> Vec<String> {
    let path = |exchange: &Value| exchange["url"].as_str().unwrap().rsplit_once('/').unwrap().1.to_owned();
    exchanges.iter().map(path).collect()
}

#[test]
fn a_call_is_listed_with_who_answered_it_and_filters_find_it() {
    let origin = provider();
    let egret = start(&origin);
    let traffic = LiveTraffic::open(&egret);
    get_in_turn(&egret, &traffic, &["/one", "/fail", "/cached", "/cached", "/few", "/few"]);
    let request = format!(
        "POST /origin/two?page=2 HTTP/1.1\r\nHost: {}\r\nX-Egret-Consumer: shop\r\nX-Kind: blue\r\nContent-Length: 2\r\n\r\nab",
        egret.address()
    );
    egret.client().send(request).response_to("POST").assert_forwarded(200);
    let all = traffic.until("provider=origin", 7);
    assert_eq!(paths(&all), ["two?page=2", "few", "few", "cached", "cached", "fail", "one"]);
    let [two, refused, _, stored, _, failed, one] = &all[..] else { panic!("seven exchanges") };
    assert_eq!(
        (&two["method"], &two["consumer"], &two["request_bytes"]),
        (&json!("POST"), &json!("shop"), &json!(2))
    );
    assert_eq!(
        (&refused["status"], &refused["answered_by"], &refused["error"]),
        (&json!(429), &json!("egret"), &json!("quota-exceeded"))
    );
    assert_eq!((&stored["answered_by"], &stored["attempts"]), (&json!("cache"), &json!(0)));
    assert_eq!(
        (&failed["status"], &failed["answered_by"], &failed["attempts"]),
        (&json!(503), &json!("provider"), &json!(2))
    );
    assert_eq!((&failed["flows"], &one["flows"]), (&json!(["again"]), &json!([])));
    assert!(one["duration_us"].as_u64().unwrap() > 0 && one["footprint_us"].as_u64().unwrap() > 0, "{one}");
    for (query, expected) in [
        ("status=5xx&provider=origin", &["fail"][..]),
        ("status=429,503", &["few", "fail"]),
        ("method=post", &["two?page=2"]),
        ("path=/cached", &["cached", "cached"]),
        ("path=/nothing/*", &[]),
        ("consumer=sh*", &["two?page=2"]),
        ("query.page=2", &["two?page=2"]),
        ("header.x-kind=b*", &["two?page=2"]),
        ("flow=again", &["fail"]),
        ("answered_by=cache", &["cached"]),
        ("answered_by=egret&provider=origin", &["few"]),
        ("slower_than=1h", &[]),
        ("host=127.0.0.1&limit=1", &["two?page=2"]),
    ] {
        assert_eq!(paths(&traffic.exchanges(query)), expected, "{query}");
    }
    let before = format!("provider=origin&before={}", failed["id"]);
    assert_eq!(paths(&traffic.exchanges(&before)), ["one"]);
    assert_eq!(traffic.get("?status=many").status, 400);
    assert_eq!(traffic.get("/999999").status, 404);
}

#[test]
fn details_have_the_phases_the_messages_and_the_decisions() {
    let origin = provider();
    let egret = start(&origin);
    let traffic = LiveTraffic::open(&egret);
    get_in_turn(&egret, &traffic, &["/fail", "/cached"]);
    let [cached, failed] = &traffic.until("provider=origin", 2)[..] else { panic!("two exchanges") };
    let details = traffic.details(failed);
    assert_eq!(details["id"], failed["id"]);
    let calls = details["calls"].as_array().unwrap();
    assert_eq!(calls.iter().map(|call| call["status"].as_u64().unwrap()).collect::<Vec<_>>(), [503, 503]);
    let decisions = details["decisions"].as_array().unwrap();
    let repeated = decisions.iter().find(|decision| decision["decision"] == "repeat").unwrap();
    assert_eq!((&repeated["flow"], &repeated["remedy"]), (&json!("again"), &json!("retry")));
    assert_eq!(repeated["text"], "retried: status 503");
    assert!(!repeated["does"].as_str().unwrap().is_empty());
    let phases: u64 = details["phases"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(details["duration_us"].as_u64().unwrap(), phases);
    let har = &traffic.details(cached)["har"];
    assert_eq!(har["response"]["content"]["text"], "{\"a\":1}");
    let fields = har["response"]["headers"].as_array().unwrap();
    assert!(
        fields.iter().any(|field| field["name"] == "Cache-Control" && field["value"] == "max-age=60"),
        "{har}"
    );
}

#[test]
fn the_stream_has_each_ended_call() {
    let origin = provider();
    let egret = start(&origin);
    let traffic = LiveTraffic::open(&egret);
    let mut lines = traffic.stream("provider=origin&status=5xx");
    let status = lines.until("status");
    assert_eq!(
        (&status["open"], &status["one_in"], &status["readers"]),
        (&json!(true), &json!(1), &json!(1))
    );
    get_in_turn(&egret, &traffic, &["/one", "/fail"]);
    assert_eq!(paths(&[lines.until("exchange")]), ["fail"]);
    drop(lines);
    wait::until_true("the reader has left", || traffic.list("")["status"]["readers"] == 0);
    let mut again = traffic.stream("after=0&provider=origin");
    assert_eq!(paths(&[again.until("exchange"), again.until("exchange")]), ["one", "fail"]);
}

#[test]
fn traffic_is_recorded_only_while_it_is_read() {
    let origin = provider();
    let egret = start(&origin);
    egret.get("/one");
    let traffic = LiveTraffic::open(&egret);
    assert_eq!(traffic.exchanges("provider=origin"), [Value::Null; 0]);
}

#[test]
fn traffic_of_a_config_without_a_list_is_not_found() {
    let egret = Config::default().control("traffic: { entries: 0 }").start();
    let api = egret_tests::config_api::ConfigApi::of(&egret);
    let response = api.call("GET /api/v1/traffic", "", "");
    assert_eq!(response.status, 404);
    assert!(response.text().contains("control.traffic.entries"), "{}", response.text());
}

#[test]
fn the_history_and_the_flows_say_how_it_goes() {
    let origin = provider();
    let egret = start(&origin);
    egret.get("/few");
    egret.get("/cached");
    egret.get("/cached");
    let flows = egret.control_get("/api/v1/flows").json();
    let remedy = |flow: usize| &flows["flows"][flow]["remedies"][0];
    assert_eq!((&remedy(2)["quota"], &remedy(1)["cache"]["hit_ratio"]), (&json!("few"), &json!(0.5)));
    let history = egret.control_get("/api/v1/history").json();
    assert_eq!((&history["step_s"], history["times_s"].is_array()), (&json!(10), true));
    assert!(history["bytes"].as_u64().unwrap() <= history["bytes_max"].as_u64().unwrap());
}
