//! The last failed calls: kept before anybody looks, with what was sent and what came back on each attempt.

use std::fmt::Write as _;
use std::process::Output;

use egret_tests::browser::browse;
use egret_tests::closed_port::ClosedPort;
use egret_tests::coded::coded;
use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::http::Response;
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::wait;
use serde_json::{Value, json};

const SECRET: &str = "sk_live_0123456789abcdefghijklmnop";

/// Responds to `/fail` with 503 and a text, and to others with 200.
fn provider() -> Provider {
    Provider::with_responses(|request: &Request| match request.target() {
        "/fail" => {
            b"HTTP/1.1 503 No\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nsold out!".to_vec()
        }
        _ => ok("hello"),
    })
}

fn post(egret: &Egret, path: &str, body: &str) -> Response {
    let fields = format!("Authorization: Bearer {SECRET}\r\nContent-Type: application/json\r\n");
    egret.ask(&format!("POST {path}"), &fields, body)
}

fn get(egret: &Egret, path: &str) -> Value {
    ConfigApi::of(egret).call(&format!("GET {path}"), "", "").json()
}

/// Returns the failed exchanges, the newest first, once there are `count`.
fn failures(egret: &Egret, query: &str, count: usize) -> Vec<Value> {
    let list = || get(egret, &format!("/api/v1/failures?{query}"))["exchanges"].as_array().unwrap().clone();
    wait::until_value("the failures are kept", list, |list| list.len() == count)
}

fn details(egret: &Egret, exchange: &Value) -> Value {
    get(egret, &format!("/api/v1/failures/{}", exchange["id"]))
}

fn tail(egret: &Egret, arguments: &[&str]) -> String {
    let mut command = egret_command(["tail", "--failed", "--control", &egret.control().to_string()]);
    let Output { stdout, stderr, .. } = run(command.args(arguments).current_dir(egret.directory().path()));
    String::from_utf8([stdout, stderr].concat()).unwrap()
}

#[test]
fn a_failed_call_is_kept_before_anybody_looks() {
    let origin = provider();
    let egret = Config::with_origin(origin.url()).start();
    egret.get("/fine").assert_forwarded(200);
    post(&egret, "/origin/fail", r#"{"item":"lamp"}"#).assert_forwarded(503);
    let [failed] = &failures(&egret, "", 1)[..] else { panic!("one failure") };
    assert_eq!((&failed["status"], &failed["answered_by"]), (&json!(503), &json!("provider")));
    let details = details(&egret, failed);
    assert_eq!(details["har"]["request"]["postData"]["text"], r#"{"item":"lamp"}"#);
    assert_eq!(details["har"]["response"]["content"]["text"], "sold out!");
    assert!(!details.to_string().contains(SECRET), "{details}");
    let shown = tail(&egret, &["--verbose"]);
    assert!(shown.contains("503") && shown.contains("POST") && !shown.contains(SECRET), "{shown}");
    assert!(shown.contains("\n    < sold out!\n"), "{shown}");
    let none = tail(&egret, &["--status", "429"]);
    assert!(none.contains("none of the failed calls that are kept matches"), "{none}");
}

#[test]
fn a_failed_call_has_the_names_of_its_flows() {
    let origin = provider();
    let flows = "flows: [{ name: slow, remedies: [timeout: { total: 1h }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    assert!(tail(&egret, &[]).contains("no failed call is kept"));
    post(&egret, "/origin/fail", "{}").assert_forwarded(503);
    let [failed] = &failures(&egret, "flow=slow", 1)[..] else { panic!("one failure") };
    assert_eq!(failed["flows"], json!(["slow"]));
}

#[test]
fn an_error_of_egret_is_kept_with_the_calls_before_it() {
    let (origin, closed) = (provider(), ClosedPort::take());
    let flows = "flows: [{ name: again, match: { provider: origin }, remedies: [retry: { attempts: 3, methods: [POST], backoff: { base: 1ms, max: 1ms } }] }]\n";
    let config = Config::with_origin(origin.url()).provider("dead", format!("http://{}", closed.address()));
    let egret = config.flows(flows).start();
    egret.client().get(egret.address(), "/dead/a").response().assert_generated(502, "connect-failed");
    let [dead] = &failures(&egret, "provider=dead", 1)[..] else { panic!("one failure") };
    assert_eq!((&dead["error"], &dead["answered_by"]), (&json!("connect-failed"), &json!("egret")));
    let text = details(&egret, dead)["har"]["response"]["content"]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("refused"), "{text}");

    post(&egret, "/origin/fail", "{}").assert_forwarded(503);
    let [retried] = &failures(&egret, "provider=origin", 1)[..] else { panic!("one failure") };
    let calls = details(&egret, retried)["calls"].clone();
    let statuses: Vec<&Value> = calls.as_array().unwrap().iter().map(|call| &call["status"]).collect();
    assert_eq!((statuses, &retried["attempts"]), (vec![&json!(503); 3], &json!(3)));
    for call in calls.as_array().unwrap() {
        assert_eq!(call["request"]["url"], format!("{}/fail", origin.url()), "{call}");
        assert_eq!(call["response"]["content"]["text"], "sold out!", "{call}");
    }
}

#[test]
fn each_attempt_is_kept_as_the_provider_received_it_without_the_key() {
    let origin = provider();
    let keys = ["shop-key-of-account-one-7731", "shop-key-of-account-two-9215"];
    let (directory, mut accounts) = (Directory::default(), String::new());
    for (name, key) in ["one", "two"].into_iter().zip(keys) {
        let file = directory.write_secret(name, key);
        let value = format!("\"${{file:{}}}\"", file.display());
        let key = format!("api_key: {{ header: x-shop-key, value: {value} }}");
        writeln!(accounts, "  {name}: {{ provider: origin, {key} }}").unwrap();
    }
    let remedies = "    remedies:
      - retry: { attempts: 2, methods: [POST], backoff: { base: 1ms, max: 1ms } }
      - transform: { request: { headers: { set: { x-attempt: \"${attempt}\", x-plain: \"${env:HOME}\" } } } }
      - accounts: { use: [one, two] }
";
    let flows = format!(
        "accounts:\n{accounts}flows:\n  - name: again\n    match: {{ provider: origin }}\n{remedies}"
    );
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    post(&egret, "/origin/fail", "{}").assert_forwarded(503);
    let [failed] = &failures(&egret, "", 1)[..] else { panic!("one failure") };
    let details = details(&egret, failed);
    let sent = |call: usize, name: &str| {
        let headers = details["calls"][call]["request"]["headers"].as_array().unwrap().clone();
        let field =
            headers.into_iter().find(|field| field["name"].as_str().unwrap().eq_ignore_ascii_case(name));
        field.unwrap_or_else(|| panic!("{name} in {details}"))["value"].clone()
    };
    assert_eq!([sent(0, "x-attempt"), sent(1, "x-attempt")], [json!("1"), json!("2")]);
    sent(0, "x-shop-key");
    assert_eq!(sent(1, "x-plain"), "(secret)");
    let shown = details.to_string();
    assert!(keys.iter().all(|key| !shown.contains(key)) && !shown.contains(SECRET), "{shown}");
}

#[test]
fn a_coded_body_of_an_attempt_is_left_out() {
    let zipped = coded("gzip", SECRET.as_bytes());
    let head = "HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\nContent-Length:";
    let response = [format!("{head} {}\r\n\r\n", zipped.len()).as_bytes(), &zipped].concat();
    let origin = Provider::with_responses(move |_| response.clone());
    let flows =
        "flows: [{ name: again, remedies: [retry: { attempts: 2, backoff: { base: 1ms, max: 1ms } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    assert_eq!(egret.get("/coded").status, 503);
    let [failed] = &failures(&egret, "", 1)[..] else { panic!("one failure") };
    let calls = details(&egret, failed)["calls"].clone();
    assert_eq!(calls[0]["response"]["headers"][0]["value"], "gzip", "{calls}");
    assert_eq!(calls[0]["response"]["content"].get("text"), None, "{calls}");
}

#[test]
fn a_call_that_a_retry_saved_is_no_failure() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let origin = Provider::with_responses(move |_| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2) {
            b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec()
        } else {
            ok("hello")
        }
    });
    let flows =
        "flows: [{ name: again, remedies: [retry: { attempts: 2, backoff: { base: 1ms, max: 1ms } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    egret.get("/a").assert_forwarded(200);
    egret.client().get(egret.address(), "/nowhere/").response().assert_generated(404, "unknown-provider");
    let [only] = &failures(&egret, "", 1)[..] else { panic!("one failure") };
    assert_eq!(only["error"], "unknown-provider");
}

#[test]
fn failures_can_be_switched_off() {
    let origin = provider();
    let egret = Config::with_origin(origin.url()).control("traffic: { failures: 0B }").start();
    egret.get("/fail").assert_forwarded(503);
    let response = ConfigApi::of(&egret).call("GET /api/v1/failures", "", "");
    assert_eq!(response.status, 404);
    assert!(response.text().contains("control.traffic.failures"), "{}", response.text());
}

#[test]
fn the_page_shows_a_failure_from_before_it_was_opened() {
    let origin = provider();
    let egret = Config::with_origin(origin.url()).start();
    egret.get("/fail").assert_forwarded(503);
    failures(&egret, "", 1);
    let seen = browse(
        &egret,
        r#"
        await open("overview", "origin");
        await page.click("nav a", "Traffic");
        await page.shows("Failed calls");
        const wide = [await page.tooWide(), await page.axe()].flat();
        await page.click("table[aria-label^=Failed] a", "GET /fail");
        await page.shows("sold out!");
        await page.click("summary", "Call 1");
        await page.shows("Response to call 1");
        wide.push(...[await page.tooWide(), await page.axe()].flat());
        return wide;
        "#,
    );
    assert_eq!(seen, json!([]));
}
