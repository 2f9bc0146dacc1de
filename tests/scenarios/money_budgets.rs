//! Quotas of money: calls of a language model cost what the provider bills, and a budget is never exceeded.

use std::sync::{Barrier, OnceLock};
use std::thread;

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::http::{Response, find};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use egret_tests::wait::until_value;

/// A call that is billed 100 tokens of input and 10 of output.
const TARGET: &str = "/llm/v1/chat/completions?input=100&output=10";

/// Its cost, at 0.001 dollars for a token of input and 0.01 for one of output: 0.2 dollars.
const COST: u64 = 200_000_000;

const BODY: &str = r#"{"model":"m-1","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}"#;

const PRICES: &str = "overrides: { m-1: { input: 1000, output: 10000 } }";

/// A gateway with a budget of one dollar, and these keys of the quota and of `prices`.
fn egret(provider: &BuiltIn, quota: &str, prices: &str) -> Egret {
    let metrics =
        "{ labels: [provider], tokens: true, counters: { nano: { cel: usage.cost }, called: { cel: '1' } } }";
    Config::with_origin(format!("http://{}", provider.address()))
        .provider("llm", format!("http://{}/llm/openai", provider.address()))
        .flows(format!(
            "prices: {{ {prices} }}\n\
             quotas: {{ budget: {{ limit: 1, unit: usd, cost: {{ usage: usd }}, {quota} }} }}\n\
             flows: [{{ name: all, remedies: [limit: {{ quota: budget }}], diagnoses: [metrics: {metrics}] }}]\n"
        ))
        .start()
}

fn post(egret: &Egret, body: &str) -> Response {
    post_to(egret, TARGET, body)
}

fn post_to(egret: &Egret, target: &str, body: &str) -> Response {
    let line = format!("POST {target}");
    let mut client = egret.client();
    client.request(egret.address(), &line, "content-type: application/json\r\n", body).any_response_to("POST")
}

fn used(egret: &Egret) -> Option<u64> {
    egret.control_get("/api/v1/quotas").json()["quotas"][0]["groups"][0]["used"].as_u64()
}

fn assert_used(egret: &Egret, expected: u64) {
    until_value(&format!("{expected} nano-dollars are used"), || used(egret), |used| *used == Some(expected));
}

#[test]
fn a_spent_budget_is_refused_for_good() {
    let provider = BuiltIn::start(&[]);
    let streamed = BODY.replace(
        "\"max_tokens\"",
        "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"max_tokens\"",
    );
    for overshoot in ["never", "bounded"] {
        let egret =
            egret(&provider, &format!("kind: calendar, period: month, overshoot: {overshoot}"), PRICES);
        for calls in 1..=4 {
            post(&egret, if calls % 2 == 0 { BODY } else { &streamed }).assert_forwarded(200);
            assert_used(&egret, calls * COST);
        }
        let refused = post(&egret, BODY);
        refused.assert_generated(402, "budget-exceeded");
        assert_eq!((refused.field("x-should-retry"), refused.field("retry-after")), (Some("false"), None));
        assert_used(&egret, 4 * COST);
        let quotas = egret.control_get("/api/v1/quotas").json();
        assert_eq!(
            (&quotas["quotas"][0]["unit"], &quotas["quotas"][0]["groups"][0]["limit"]),
            (&"usd".into(), &1_000_000_000.into())
        );
        let read = || egret.control_get("/metrics").text().to_owned();
        let labels = "{flow=\"all\",provider=\"llm\"";
        let text = until_value("all calls are counted", read, |text| {
            text.contains(&format!("egret_custom_called_total{labels}}} 5"))
        });
        for line in [
            format!("egret_custom_nano_total{labels}}} {}", 4 * COST),
            format!("egret_llm_cost_nanodollars_total{labels},model=\"m-1\"}} {}", 4 * COST),
        ] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}

#[test]
fn a_window_of_money_tells_when_it_has_room_again() {
    let provider = BuiltIn::start(&[]);
    let egret = egret(&provider, "window: 24h", PRICES);
    for _ in 0..4 {
        post(&egret, BODY).assert_forwarded(200);
    }
    assert_used(&egret, 4 * COST);
    let refused = post(&egret, BODY);
    refused.assert_generated(429, "quota-exceeded");
    assert!(refused.field("retry-after").is_some() && refused.field("x-should-retry").is_none());
}

#[test]
fn calls_without_a_bound_or_price_are_refused_where_configured() {
    let provider = BuiltIn::start(&[]);
    let month = "kind: calendar, period: month";
    let uncapped = BODY.replace("\"max_tokens\":20,", "");
    let other = BODY.replace("m-1", "m-2");
    let never = egret(&provider, &format!("{month}, overshoot: never"), PRICES);
    let refused = post(&never, &uncapped);
    refused.assert_generated(402, "budget-exceeded");
    assert!(refused.text().contains("declare a maximum"), "{}", refused.text());
    assert_used(&never, 0);
    let strict = egret(&provider, month, &format!("{PRICES}, unpriced: refuse"));
    post(&strict, &other).assert_generated(402, "budget-exceeded");
    let lenient = egret(&provider, month, PRICES);
    post(&lenient, &other).assert_forwarded(200);
    lenient.until_logged("there is no price for the model `m-2`");
    assert_used(&lenient, 0);
}

#[test]
fn concurrent_calls_never_exceed_a_budget_and_leave_no_hold() {
    let provider = BuiltIn::start(&[]);
    let egret = egret(&provider, "kind: calendar, period: month, overshoot: never", PRICES);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    // 429 while calls under way hold the rest, 402 once it is spent.
                    let status = post(&egret, BODY).status;
                    assert!(matches!(status, 200 | 402 | 429), "{status}");
                    assert!(used(&egret) <= Some(1_000_000_000));
                }
            });
        }
    });
    // Calls may have been refused while the others were held for more than they cost.
    let told = || (post(&egret, BODY).status, used(&egret));
    until_value("the budget is spent", told, |told| *told == (402, Some(4 * COST)));
    let ledger = provider.get("/llm/ledger").json();
    assert_eq!(ledger["totals"]["calls"], 4, "the fifth could cost more than is left");
}

#[test]
fn a_client_that_leaves_pays_what_was_held() {
    let provider = BuiltIn::start(&["--max-duration", "24h"]);
    let egret = egret(&provider, "kind: calendar, period: month, overshoot: never", PRICES);
    let body = BODY.replace("\"max_tokens\"", "\"stream\":true,\"max_tokens\"");
    let mut client = egret.client();
    client.send(format!(
        "POST {TARGET}&stall_after=1&stall=1h HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        egret.address(),
        body.len()
    ));
    client.head();
    let mut received = Vec::new();
    while find(&received, b"content").is_none() {
        received.extend(client.bytes(1));
    }
    client.reset();
    until_value(
        "the provider knows that the client has left",
        || provider.get("/llm/ledger").json()["totals"]["left"].clone(),
        |left| left.as_u64() == Some(1),
    );
    // 64 tokens for the frame, a token for each byte, and the declared output.
    assert_used(&egret, (64 + body.len() as u64) * 1_000_000 + 20 * 10_000_000);
}

/// Starts a provider that answers as soon as so many calls wait for it, and bills each 0.33 dollars.
fn together(count: usize) -> Provider {
    let usage = r#"{"model":"m-1","usage":{"prompt_tokens":130,"completion_tokens":20}}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
    let answer = format!("{head} {}\r\n\r\n{usage}", usage.len());
    let all_are_there = Barrier::new(count);
    Provider::scripted(move |peer| {
        while peer.request().is_some() {
            all_are_there.wait();
            peer.send(&answer);
        }
    })
}

/// Returns the nano-dollars by which a call may exceed the limit, as `egret explain` tells it.
fn told_overshoot(config: &Config) -> u64 {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config.yaml());
    let request = ["--request", "POST /origin/v1/chat/completions", "--data", BODY];
    let output = run(egret_command(["explain"]).arg(file).args(request));
    let printed = String::from_utf8(output.stdout).unwrap();
    let told = printed.split("can exceed the limit by $").nth(1).unwrap_or_else(|| panic!("{printed}"));
    let (dollars, micros) = told.lines().next().unwrap().split_once('.').unwrap();
    dollars.parse::<u64>().unwrap() * 1_000_000_000 + micros.parse::<u64>().unwrap() * 1_000
}

#[test]
fn the_overshoot_of_a_bounded_budget_is_told_beforehand() {
    // Four estimates of 0.219 dollars fit in the budget of one, and each call costs 0.33.
    let provider = together(4);
    let config = Config::with_origin(provider.url()).flows(format!(
        "prices: {{ {PRICES} }}\n\
         quotas: {{ budget: {{ limit: 1, unit: usd, cost: {{ usage: usd }}, kind: calendar, period: month }} }}\n\
         flows: [{{ name: all, remedies: [limit: budget] }}]\n"
    ));
    let told = told_overshoot(&config);
    let egret = config.start();
    let call = || post_to(&egret, "/origin/v1/chat/completions", BODY);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(call)).collect();
        for called in calls {
            called.join().unwrap().assert_forwarded(200);
        }
    });
    assert_used(&egret, 4 * 330_000_000);
    assert!(4 * 330_000_000 <= 1_000_000_000 + 4 * told, "{told}");
    call().assert_generated(402, "budget-exceeded");
}

#[test]
fn a_call_without_reported_tokens_keeps_its_charge_and_has_no_cost() {
    let provider = Provider::with_responses(|request| {
        let usage = if request.target().ends_with("usage") {
            r#","usage":{"prompt_tokens":130,"completion_tokens":20}"#
        } else {
            ""
        };
        let body = format!(r#"{{"model":"m-1"{usage}}}"#);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        format!("{head} {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let egret = Config::with_origin(provider.url())
        .gateway("workers: 1")
        .flows(format!(
            "prices: {{ {PRICES} }}\n\
             quotas: {{ budget: {{ limit: 1, unit: usd, cost: {{ usage: usd }}, window: 24h, overshoot: never }} }}\n\
             flows: [{{ name: all, remedies: [limit: budget], diagnoses: [ledger: {{}}] }}]\n"
        ))
        .start();
    // 64 tokens for the frame, a token for each byte, and the declared output.
    let held = (64 + BODY.len() as u64) * 1_000_000 + 20 * 10_000_000;
    post_to(&egret, "/origin/v1/chat/completions", BODY).assert_forwarded(200);
    egret.until_logged("the response reports no tokens");
    assert_used(&egret, held);
    post_to(&egret, "/origin/v1/chat/completions?usage", BODY).assert_forwarded(200);
    assert_used(&egret, held + 330_000_000);
    let total = || egret.control_get("/api/v1/spend").json()["total"].clone();
    let total =
        until_value("the second call is summed", total, |total| total["cost_nanodollars"] == 330_000_000);
    assert_eq!(total["calls"], 1);
}

#[test]
fn a_budget_is_nearly_spent_before_the_first_refusal() {
    // 100 dollars, of which a call costs 0.2: what is left when a call is refused is less than it may cost.
    for overshoot in ["never", "bounded"] {
        let provider = BuiltIn::start(&[]);
        let egret = Config::with_origin(format!("http://{}", provider.address()))
            .provider("llm", format!("http://{}/llm/openai", provider.address()))
            .flows(format!(
                "prices: {{ {PRICES} }}\n\
                 quotas: {{ budget: {{ limit: 100, unit: usd, cost: {{ usage: usd }}, kind: calendar, period: month, overshoot: {overshoot} }} }}\n\
                 flows: [{{ name: all, remedies: [queue: {{ quota: budget, max_wait: 1m }}] }}]\n"
            ))
            .start();
        // Every call is made by one of eight clients, until the first refusal.
        let billed_at_first_refusal = OnceLock::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while billed_at_first_refusal.get().is_none() {
                        let response = post(&egret, BODY);
                        if response.status != 200 {
                            response.assert_generated(402, "budget-exceeded");
                            assert_eq!(response.field("x-should-retry"), Some("false"));
                            let calls = provider.get("/llm/ledger?last=0").json()["totals"]["calls"].as_u64();
                            billed_at_first_refusal.get_or_init(|| calls.unwrap() * COST);
                        }
                    }
                });
            }
        });
        let billed = billed_at_first_refusal.get().unwrap();
        let percent = billed / 1_000_000_000;
        println!("{overshoot}: {percent} % billed before the first refusal");
        assert!(percent >= 99, "{overshoot}: {percent} %");
        assert!(overshoot != "never" || *billed <= 100_000_000_000, "{billed}");
    }
}
