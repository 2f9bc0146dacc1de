//! Presets of providers: each refusal that a provider documents, and what Egret makes of it. It waits and
//! repeats the call, gives up, or changes the account.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::provider::{Provider, Request};
use egret_tests::refusals::{REFUSALS, SUCCESSES, response, table};
use egret_tests::wait::until_value;
use serde_json::Value;

/// Clients that make POSTs at once to a provider that loses responses.
const CLIENTS: usize = 4;

/// Their POSTs, unless the environment asks for another number.
const POSTS: usize = 1_000;

/// The configuration of an account as the preset's API takes it, with this secret.
fn account(preset: &str, provider: &str, secret: &str) -> String {
    let key = |header: &str| format!("api_key: {{ header: {header}, value: \"{secret}\" }}");
    let credential = match preset {
        "anthropic" => key("x-api-key"),
        "gemini" => key("x-goog-api-key"),
        "azure-openai" => key("api-key"),
        "shopify" => key("x-shopify-access-token"),
        "twilio" => format!("basic: {{ user: AC1, password: \"{secret}\" }}"),
        "bedrock" => format!(
            "sigv4: {{ access_key_id: \"{secret}\", secret_access_key: \"{secret}\", region: eu-west-1, service: bedrock }}"
        ),
        _ => format!("bearer: {{ token: \"{secret}\" }}"),
    };
    format!("{{ provider: {provider}, {credential} }}")
}

/// The credential that a request carries, whatever the form.
fn credential(request: &Request) -> String {
    ["authorization", "x-api-key", "x-goog-api-key", "api-key", "x-shopify-access-token"]
        .iter()
        .flat_map(|field| request.values(field))
        // The signature differs between two calls of one account, but not what precedes it.
        .map(|value| value.split('/').next().unwrap().to_owned())
        .collect()
}

/// Starts Egret with two providers for each row, `alone-N` without and `two-N` with two accounts.
fn egret(rows: &[Value], origin: &Provider) -> Egret {
    let (mut config, mut accounts, mut flows) = (Config::default(), String::new(), String::new());
    for (number, row) in rows.iter().enumerate() {
        let preset = row["preset"].as_str().unwrap();
        let (alone, two) = (format!("alone-{number}"), format!("two-{number}"));
        for name in [&alone, &two] {
            config =
                config.provider_with(name, format!("{}/{name}", origin.url()), &format!("preset: {preset}"));
        }
        for (letter, secret) in [("a", "${env:KEY_A}"), ("b", "${env:KEY_B}")] {
            writeln!(accounts, "  {letter}-{number}: {}", account(preset, &two, secret)).unwrap();
        }
        let metrics = "diagnoses: [metrics: { labels: [provider], tokens: true }]";
        writeln!(
            flows,
            "  - {{ name: {alone}, match: {{ provider: {alone} }}, remedies: [retry: 3], {metrics} }}\n  \
             - {{ name: {two}, match: {{ provider: {two} }}, remedies: [retry: 3, accounts: {{ use: [a-{number}, b-{number}] }}] }}"
        )
        .unwrap();
    }
    let config = config.flows(format!("accounts:\n{accounts}flows:\n{flows}"));
    Egret::start_with(&config, |command| {
        command.env("KEY_A", "k3y-0f-a-0123456789").env("KEY_B", "k3y-0f-b-0123456789");
    })
}

/// Sends a POST of this target to a provider of the gateway.
fn post(egret: &Egret, provider: &str, target: &str, fields: &Value, body: &Value) -> Response {
    let line = |(name, value): (&String, &Value)| format!("{name}: {}\r\n", value.as_str().unwrap());
    let fields = fields.as_object().into_iter().flatten().map(line).collect::<Vec<_>>().concat();
    let (media_type, body) = match body {
        Value::String(form) => ("application/x-www-form-urlencoded", form.clone()),
        json => ("application/json", json.to_string()),
    };
    egret
        .client()
        .send(format!(
            "POST /{provider}{target} HTTP/1.1\r\nhost: {}\r\ncontent-type: {media_type}\r\n{fields}\
             content-length: {}\r\n\r\n{body}",
            egret.address(),
            body.len()
        ))
        .response()
}

/// The number of the row in the name of a provider.
fn row_of(request: &Request) -> usize {
    let name = request.target().split('/').nth(1).unwrap();
    name.rsplit_once('-').unwrap().1.parse().unwrap()
}

/// The requests to this provider of the gateway, in their order.
fn requests(origin: &Provider, provider: &str) -> Vec<Request> {
    let start = format!("/{provider}/");
    origin.requests().into_iter().filter(|request| request.target().starts_with(&start)).collect()
}

/// Names of the accounts of a row whose cool-down has begun, by the log: a short one may be over.
fn cooled(egret: &Egret, number: usize) -> Vec<String> {
    let log = egret.log();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| {
            event["message"].as_str().is_some_and(|text| text.starts_with("an account cools down"))
        })
        .filter_map(|event| event["account"].as_str().map(str::to_owned))
        .filter(|name| name[2..] == number.to_string())
        .collect()
}

/// Names of the accounts of a row that cool down.
fn cooling(egret: &Egret, number: usize) -> Vec<String> {
    let accounts = egret.control_get("/api/v1/accounts").json();
    let all = accounts["accounts"].as_array().unwrap().iter();
    let name = |account: &Value| account["name"].as_str().unwrap().to_owned();
    all.filter(|account| account["state"] == "cooling")
        .map(name)
        .filter(|name| name[2..] == number.to_string())
        .collect()
}

#[test]
fn documented_refusals_are_waited_for_given_up_or_change_the_account() {
    let rows = table(REFUSALS);
    let of_rows = rows.clone();
    let refused: Mutex<BTreeSet<String>> = Mutex::default();
    let origin = Provider::with_responses(move |request| {
        let provider = request.target().split('/').nth(1).unwrap().to_owned();
        let row = &of_rows[row_of(request)];
        // Each provider refuses its first call, with all that it has to say about it.
        if refused.lock().unwrap().insert(provider) {
            response(row["status"].as_str().unwrap(), &row["fields"], &row["body"].to_string())
        } else {
            response("200 OK", &Value::Null, "{}")
        }
    });
    let egret = egret(&rows, &origin);
    let ask = |number: usize, provider: &str| {
        let call = &rows[number]["call"];
        let start = Instant::now();
        (post(&egret, provider, call[0].as_str().unwrap(), &rows[number]["asks"], &call[1]), start.elapsed())
    };
    thread::scope(|scope| {
        for (number, row) in rows.iter().enumerate() {
            let (egret, origin, ask) = (&egret, &origin, &ask);
            scope.spawn(move || {
                let about = format!("{} {}", row["preset"], row["about"]);
                let assert_given_up = |response: &Response| {
                    response.assert_forwarded(row["status"].as_str().unwrap()[..3].parse().unwrap());
                    assert_eq!(response.json(), row["body"], "{about}");
                };
                let name = format!("alone-{number}");
                let (response, elapsed) = ask(number, &name);
                match row["alone"].as_str().unwrap() {
                    "waits" => {
                        assert_eq!((response.status, requests(origin, &name).len()), (200, 2), "{about}");
                        let least = Duration::from_millis(row["wait_ms"].as_u64().unwrap_or_default());
                        assert!(elapsed >= least, "{about}: {elapsed:?}");
                    }
                    "gives up" => {
                        assert_given_up(&response);
                        assert_eq!(requests(origin, &name).len(), 1, "{about}");
                    }
                    other => panic!("{other}"),
                }
                let name = format!("two-{number}");
                let (response, _) = ask(number, &name);
                let used: Vec<String> = requests(origin, &name).iter().map(credential).collect();
                let first = format!("a-{number}");
                match row["with_two"].as_str().unwrap() {
                    "changes" => {
                        assert_eq!((response.status, used.len()), (200, 2), "{about}");
                        assert_ne!(used[0], used[1], "{about}");
                        let cooled = until_value(
                            "an account cools down",
                            || cooled(egret, number),
                            |cooled| !cooled.is_empty(),
                        );
                        assert_eq!(cooled, [first], "{about}");
                    }
                    "keeps" => {
                        assert_eq!((response.status, used.len()), (200, 2), "{about}");
                        assert_eq!(cooling(egret, number), [""; 0], "{about}");
                    }
                    "gives up" => {
                        assert_given_up(&response);
                        assert_eq!((used.len(), cooling(egret, number).len()), (1, 0), "{about}");
                    }
                    other => panic!("{other}"),
                }
            });
        }
    });
}

#[test]
fn documented_successes_are_forwarded_and_their_limits_and_tokens_read() {
    let rows = table(SUCCESSES);
    let of_rows = rows.clone();
    let origin = Provider::with_responses(move |request| {
        let row = &of_rows[row_of(request)];
        response("200 OK", &row["fields"], row["body"].as_str().unwrap())
    });
    let egret = egret(&rows, &origin);
    for (number, row) in rows.iter().enumerate() {
        for name in [format!("alone-{number}"), format!("two-{number}")] {
            let response = post(&egret, &name, row["target"].as_str().unwrap(), &Value::Null, &Value::Null);
            response.assert_forwarded(200);
            assert_eq!(response.text(), row["body"], "{row}");
            for (field, value) in row["fields"].as_object().into_iter().flatten() {
                assert_eq!(response.field(field), value.as_str(), "{row}");
            }
        }
        let accounts = egret.control_get("/api/v1/accounts").json();
        let mut all = accounts["accounts"].as_array().unwrap().iter();
        let account = all.find(|account| account["name"] == format!("a-{number}")).unwrap();
        assert_eq!(account.get("remaining").unwrap_or(&Value::Null), &row["remaining"], "{row}");
    }
    let expected: BTreeMap<String, String> = rows
        .iter()
        .enumerate()
        .flat_map(|(number, row)| {
            let tokens = row["tokens"].as_object().into_iter().flatten();
            tokens.map(move |(part, count)| (format!("alone-{number} {part}"), count.to_string()))
        })
        .collect();
    let read = || {
        let metrics = egret.control_get("/metrics");
        let lines = metrics.text().lines().filter_map(|line| line.strip_prefix("egret_llm_tokens_total{"));
        let label = |labels: &str, name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        let counted = lines.map(|line| line.rsplit_once("} ").unwrap());
        counted
            .filter(|(_, count)| *count != "0")
            .map(|(labels, count)| {
                (format!("{} {}", label(labels, "provider"), label(labels, "type")), count.to_owned())
            })
            .collect::<BTreeMap<String, String>>()
    };
    until_value(&format!("the tokens are counted: {expected:?}"), read, |counted| *counted == expected);
}

#[test]
fn every_preset_has_a_refusal_and_a_success() {
    let listed = |rows: Vec<Value>| -> Vec<String> {
        let mut names: Vec<String> =
            rows.iter().map(|row| row["preset"].as_str().unwrap().to_owned()).collect();
        names.dedup();
        names
    };
    assert_eq!(listed(table(REFUSALS)), listed(table(SUCCESSES)));
    assert_eq!(listed(table(REFUSALS)).len(), 16);
}

/// A provider that knows its calls by their keys, and loses every third response after it has acted.
#[derive(Default)]
struct Forgetful {
    responses: AtomicUsize,
    /// The orders by their keys.
    acted: Mutex<BTreeMap<String, String>>,
}

impl Forgetful {
    /// Acts on a request, unless it has already. Returns the response, if it is not lost.
    fn act(&self, request: &Request) -> Option<Vec<u8>> {
        let key = request.values("idempotency-key").concat();
        assert!(!key.is_empty(), "{request:?}");
        let order = String::from_utf8(request.body.clone()).unwrap();
        let first = self.acted.lock().unwrap().entry(key).or_insert_with(|| order.clone()).clone();
        assert_eq!(first, order, "a key is that of one request");
        let is_lost = self.responses.fetch_add(1, SeqCst) % 3 == 2;
        (!is_lost).then(|| response("200 OK", &Value::Null, &format!("{{\"made\":\"{order}\"}}")))
    }
}

#[test]
fn posts_are_made_once_although_every_third_response_is_lost() {
    let posts = std::env::var("EGRET_CALLS").map_or(POSTS, |posts| posts.parse().unwrap());
    let forgetful = Arc::new(Forgetful::default());
    let provider = Arc::clone(&forgetful);
    let origin = Provider::scripted(move |peer| {
        while let Some(response) = peer.request().and_then(|request| provider.act(&request)) {
            peer.send(response);
        }
    });
    let retry = "retry: { attempts: 20, backoff: { base: 1ms, max: 5ms }, budget: { ratio: 10 }, idempotency_key: { make: true } }";
    let egret = Config::default()
        .provider_with("stripe", origin.url(), "preset: stripe")
        .flows(format!("flows: [{{ name: all, remedies: [{retry}] }}]\n"))
        .start();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let egret = &egret;
            scope.spawn(move || {
                let mut connection = egret.client();
                for number in (client..posts).step_by(CLIENTS) {
                    let order = format!("order={number}");
                    let length = order.len();
                    connection.send(format!(
                        "POST /stripe/v1/charges HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n\r\n{order}",
                        egret.address()
                    ));
                    let response = connection.response();
                    response.assert_forwarded(200);
                    assert_eq!(response.json()["made"], order);
                }
            });
        }
    });
    let acted = forgetful.acted.lock().unwrap();
    let orders: BTreeSet<&String> = acted.values().collect();
    let lost = forgetful.responses.load(SeqCst) / 3;
    println!("{posts} POSTs, {lost} responses lost, {} acted on, 0 failed", acted.len());
    assert_eq!((acted.len(), orders.len()), (posts, posts), "none is made twice");
    assert!(lost >= posts / 3, "{lost}");
}
