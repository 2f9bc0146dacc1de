//! The diagnosis `ledger`: a line for each call that has a cost, and sums that are exact to the nano-dollar.

use std::collections::BTreeMap;

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{self, until_exporter};
use egret_tests::wait::until_value;
use serde_json::{Value, json};

const BOOKS: &str = "exporters: { books: { type: lines, directory: ./ledger } }\n";

/// Prices of 0.001 dollars for a token of input, and 0.01 for one of output.
const TABLE: &str = r#"{"format":1,"source":"s","date":"2026-11-28","sha256":"DIGEST","models":{
"m-1":{"prices":[{"picodollars":{"input":1000000000,"output":10000000000}}]}
}}"#;

/// Makes a call as this consumer. Returns the status.
fn post(egret: &Egret, consumer: &str, target: &str, body: &str) -> u16 {
    let fields = format!(
        "x-egret-consumer: {consumer}\r\nx-team: search\r\nx-request-id: {consumer}-1\r\ncontent-type: application/json\r\n"
    );
    let mut client = egret.client();
    client.request(egret.address(), &format!("POST {target}"), &fields, body).any_response_to("POST").status
}

fn spend(egret: &Egret, query: &str) -> Value {
    egret.control_get(&format!("/api/v1/spend?{query}")).json()
}

/// Waits until so many calls are summed.
fn until_summed(egret: &Egret, calls: u64) {
    until_value(
        &format!("{calls} calls are summed"),
        || spend(egret, ""),
        |spend| spend["total"]["calls"] == calls,
    );
}

/// Stops Egret and returns the lines that it has written.
fn lines(mut egret: Egret) -> Vec<Value> {
    egret.terminate();
    assert!(egret.until_ended().success());
    recorded::lines(&egret.directory().join("ledger"))
}

#[test]
fn calls_of_models_have_lines_and_sums_that_agree() {
    let (provider, tables) = (BuiltIn::start(&[]), Directory::default());
    let digest = "5e".repeat(32);
    let table = tables.write("prices.json", TABLE.replace("DIGEST", &digest));
    let flows = format!(
        "{BOOKS}prices: {{ file: '{}', overrides: {{ m-2: {{ input: 1, output: 1 }} }} }}\n\
         flows: [{{ name: models, diagnoses: [ledger: {{ export: books, labels: {{ team: {{ request_header: x-team }} }} }}] }}]\n",
        table.display()
    );
    let egret = Config::default()
        .provider("llm", format!("http://{}/llm/openai", provider.address()))
        .flows(flows)
        .start();
    let body = |model: &str, rest: &str| {
        format!(r#"{{"model":"{model}"{rest},"messages":[{{"role":"user","content":"hi"}}]}}"#)
    };
    let stream = r#","stream":true,"stream_options":{"include_usage":true}"#;
    let target = "/llm/v1/chat/completions?input=100&output=10";
    for (consumer, model, rest) in
        [("ada", "m-1", ""), ("ada", "m-1", stream), ("bob", "m-2", ""), ("bob", "m-3", "")]
    {
        assert_eq!(post(&egret, consumer, target, &body(model, rest)), 200);
    }
    // The last model has no price.
    until_summed(&egret, 3);
    let by = |by: &str| {
        let spend = spend(&egret, &format!("by={by}"));
        let rows = spend["rows"].as_array().unwrap();
        let cost = |row: &Value| row["cost_nanodollars"].as_u64().unwrap();
        let costs: BTreeMap<String, u64> =
            rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), cost(row))).collect();
        assert_eq!(costs.values().sum::<u64>() + cost(&spend["other"]), cost(&spend["total"]), "{spend}");
        costs
    };
    let cheap = 110_000;
    let named = |rows: &[(&str, u64)]| rows.iter().map(|(name, cost)| ((*name).to_owned(), *cost)).collect();
    assert_eq!(by("consumer"), named(&[("ada", 400_000_000), ("bob", cheap)]));
    assert_eq!(by("model"), named(&[("m-1", 400_000_000), ("m-2", cheap)]));
    for (kind, name) in [("provider", "llm"), ("flow", "models"), ("label.team", "search")] {
        assert_eq!(by(kind), named(&[(name, 400_000_000 + cheap)]), "{kind}");
    }
    assert_eq!(spend(&egret, "")["labels"], json!(["team"]));

    until_exporter(&egret, "books", "the lines are written", |books| books["written"] == 3);
    let mut lines = lines(egret);
    lines.sort_by_key(|line| line["time"].to_string());
    let [first, _, other] = &lines[..] else { panic!("{lines:?}") };
    let mut expected = json!({
        "time": first["time"], "request_id": "ada-1", "flow": "models", "provider": "llm", "consumer": "ada", "model": "m-1",
        "labels": { "team": "search" }, "input_tokens": 100, "output_tokens": 10, "cached_tokens": 0, "reasoning_tokens": 0,
        "cost_nanodollars": 200_000_000, "price_table": digest, "source": "reported", "status": 200, "attempts": 1,
    });
    assert_eq!(first, &expected);
    expected["time"] = lines[1]["time"].clone();
    assert_eq!(lines[1], expected, "a stream has the same line");
    assert_eq!((&other["model"], &other["cost_nanodollars"]), (&json!("m-2"), &json!(cheap)));
    assert!(other["price_table"].as_str().is_some_and(|hash| hash.len() == 64 && hash != digest), "{other}");
}

#[test]
fn calls_of_other_apis_cost_what_an_expression_says() {
    let stored = "HTTP/1.1 200 OK\r\nX-Units: 3\r\nCache-Control: max-age=600\r\nContent-Length: 0\r\n\r\n";
    let origin = Provider::with_responses(move |request| match request.target() {
        "/units" => stored.into(),
        _ => ok("free"),
    });
    let cost = "request.path == '/units' ? int(response.headers['x-units']) * 5000000 : 0";
    let egret = Config::with_origin(origin.url())
        .flows(format!(
            "{BOOKS}flows: [{{ name: paid, remedies: [cache], diagnoses: [ledger: {{ export: books, cost: \"{cost}\" }}] }}]\n"
        ))
        .start();
    for path in ["/units", "/units", "/other"] {
        assert_eq!(egret.get(path).status, 200);
    }
    until_summed(&egret, 2);
    let sums = spend(&egret, "by=provider");
    assert_eq!(sums["rows"], json!([{ "name": "origin", "calls": 2, "cost_nanodollars": 15_000_000 }]));
    let mut costs: Vec<u64> =
        lines(egret).iter().map(|line| line["cost_nanodollars"].as_u64().unwrap()).collect();
    costs.sort_unstable();
    assert_eq!(costs, [0, 15_000_000], "the second call was served from the cache");
}

#[test]
fn sums_outlive_a_reload_and_have_a_bound_of_names() {
    let origin = Provider::plain();
    let config = |rest: &str| {
        Config::with_origin(origin.url()).flows(format!(
            "flows: [{{ name: paid, diagnoses: [ledger: {{ cost: '7', series_max: 2{rest} }}] }}]\n"
        ))
    };
    let egret = config("").start();
    for number in 0..5 {
        assert_eq!(post(&egret, &format!("client-{number}"), "/origin/", "{}"), 200);
        // Calls of several workers may be seen in another order.
        until_summed(&egret, number + 1);
    }
    egret.change_config(config(", labels: { team: { request_header: x-team } }").yaml());
    assert_eq!(post(&egret, "client-0", "/origin/", "{}"), 200);
    until_summed(&egret, 6);
    let sums = spend(&egret, "by=consumer&range=month");
    let sum = |calls: u64| json!({ "calls": calls, "cost_nanodollars": 7 * calls });
    assert_eq!((&sums["rows"][0]["name"], &sums["rows"][0]["calls"]), (&json!("client-0"), &json!(2)));
    assert_eq!((&sums["other"], &sums["total"]), (&sum(3), &sum(6)));
    let teams = spend(&egret, "by=label.team&range=hour");
    let names: Vec<_> = teams["rows"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!((names, &teams["total"]), (vec![&json!(""), &json!("search")], &sum(6)));
}

#[test]
fn an_export_that_takes_no_lines_is_refused() {
    let directory = Directory::default();
    let config = "exporters: { books: { type: s3, endpoint: 'https://s3.example', bucket: b } }\n\
        flows: [{ name: f, diagnoses: [ledger: books] }]\n";
    let file = directory.write("egret.yaml", config);
    let refused = run(egret_command(["check"]).arg(&file));
    let printed = String::from_utf8_lossy(&[refused.stdout, refused.stderr].concat()).into_owned();
    assert!(!refused.status.success() && printed.contains("`s3` with `format: lines`"), "{printed}");
    let file = directory.write("egret.yaml", config.replace("bucket: b", "bucket: b, format: lines"));
    run_checked(egret_command(["check"]).arg(&file));
}
