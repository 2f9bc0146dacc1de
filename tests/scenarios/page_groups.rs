//! The page shows whom the calls belong to, with trends and charts of scales of their own, and all that
//! applies to a provider.

use egret_tests::browser::browse;
use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, ok};
use serde_json::{Value, json};

const KEY: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn trends_and_charts_show_failures_and_latencies_on_their_own_scales() {
    let (good, failing) =
        (Provider::plain(), Provider::responding("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"));
    let egret = Config::with_origin(good.url()).provider("failing", failing.url()).start();
    let seen = browse(
        &egret,
        r#"
        await open("overview", "Providers");
        const charts = `[...document.querySelectorAll(".chart")].map((chart) => chart.ariaLabel)`;
        const trends = `[...document.querySelectorAll(".tile .spark .line")].filter((line) => line.getAttribute("d") !== "").length`;
        await until(`${charts}.some((label) => /^Latency by provider.*failing/.test(label)) && ${trends} === 4`, async () => {
          for (let call = 0; call < 5; call++) await Promise.all([fetch(`${gateway}/origin/`), fetch(`${gateway}/failing/`)]);
        });
        const seen = [await page.evaluate(charts), await page.evaluate(`document.querySelector(".tile.bad").innerText`)];
        return [...seen, await page.tooWide(), await page.axe()];
        "#,
    );
    let charts = seen[0].to_string();
    for label in
        ["Requests per second. Last: All", "Failures per second. Last: Provider 5xx or none", "origin"]
    {
        assert!(charts.contains(label), "{charts}");
    }
    assert!(seen[1].as_str().unwrap().starts_with("Provider errors"), "{seen}");
    assert_eq!((&seen[2], &seen[3]), (&json!([]), &json!([])));
}

/// A gateway with calls of two consumers and two teams, by an account that the provider also refuses.
fn with_groups(models: &BuiltIn, origin: &Provider) -> Egret {
    let flows = "accounts: { main: { provider: origin, bearer: { token: '${env:EGRET_TEST_KEY}' } } }\n\
        prices: { overrides: { m-1: { input: 1000, output: 10000 } } }\n\
        flows:\n\
        \x20 - { name: models, match: { provider: llm }, diagnoses: [ledger: { labels: { team: { request_header: x-team } } }] }\n\
        \x20 - { name: account, match: { provider: origin }, remedies: [authenticate: main] }\n";
    let config = Config::with_origin(origin.url())
        .provider("llm", format!("http://{}/llm/openai", models.address()))
        .flows(flows);
    Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_KEY", KEY);
    })
}

const GROUPS: &str = r#"
const ask = (consumer, team) => fetch(`${gateway}/llm/v1/chat/completions?input=100&output=10`, {
  method: "POST",
  headers: { "content-type": "application/json", "x-egret-consumer": consumer, "x-team": team },
  body: JSON.stringify({ model: "m-1", max_tokens: 20, messages: [{ role: "user", content: "hi" }] }),
}).then((response) => response.text());
for (const [consumer, team] of [["ada", "search"], ["ada", "maps"], ["bob", "search"]]) await ask(consumer, team);
const origin = (path) => fetch(`${gateway}/origin${path}`, { headers: { "x-egret-consumer": "batch" } });
for (const path of ["/fine", "/fine", "/fine", "/fine", "/denied", "/broken"]) await origin(path);
await open("overview", "Providers");
const select = `[...document.querySelectorAll("label")].find((found) => found.innerText.startsWith("Group calls by"))?.querySelector("select")`;
await page.until(`(${select})?.querySelectorAll("option").length === 4`);
const groups = {};
for (const [kind, label, text] of [["consumer", "Consumers", "batch"], ["endpoint", "Endpoints", "/denied"], ["account", "Accounts", "main"], ["label.team", "Labels", "search"]]) {
  await page.act(select, `(found) => { found.value = "${kind}"; found.dispatchEvent(new Event("change", { bubbles: true })); }`);
  const rows = `[...document.querySelectorAll("table[aria-label=${label}] tbody tr")].map((row) => row.innerText.replace(/\\s+/g, " "))`;
  groups[kind] = await page.until(`${rows}.some((row) => row.includes("${text}")) && ${rows}`);
  groups[kind].push(...await page.tooWide(), ...await page.axe());
}
return groups;
"#;

#[test]
fn calls_are_summed_by_consumer_endpoint_account_and_label() {
    let models = BuiltIn::start(&[]);
    let origin = Provider::with_responses(|request| match request.target() {
        "/denied" => b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        "/broken" => b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("fine"),
    });
    let groups = browse(&with_groups(&models, &origin), GROUPS);
    let row = |kind: &str, number: usize| groups[kind][number].as_str().unwrap().to_owned();
    // Those in trouble come first.
    assert!(row("consumer", 0).starts_with("batch origin 6 16.7 %"), "{groups}");
    assert!(row("endpoint", 0).starts_with("GET /broken origin 1 100 %"), "{groups}");
    assert!(row("account", 0).contains("main") && row("account", 0).contains("403: 1"), "{groups}");
    assert!(row("label.team", 0).starts_with("search 2 $0.40"), "{groups}");
    assert!(row("label.team", 1).starts_with("maps 1 $0.20"), "{groups}");
    let counts =
        ["consumer", "endpoint", "account", "label.team"].map(|kind| groups[kind].as_array().map(Vec::len));
    assert_eq!(counts, [3, 4, 1, 2].map(Some), "nothing is too wide, and axe finds nothing: {groups}");
}

#[test]
fn a_provider_has_its_flows_and_last_failed_calls() {
    let failing = Provider::responding("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let other = Provider::plain();
    let flows = "quotas: { few: { limit: 100, window: 1h }, others: { limit: 100, window: 1h } }\n\
        flows:\n\
        \x20 - { name: guarded, match: { provider: origin }, remedies: [{ circuit-breaker: { consecutive: 2, open: 1h, open_max: 1h } }, limit: few] }\n\
        \x20 - { name: elsewhere, match: { provider: other }, remedies: [limit: others] }\n";
    let egret = Config::with_origin(failing.url()).provider("other", other.url()).flows(flows).start();
    for _ in 0..3 {
        egret.client().get(egret.address(), "/origin/orders").response();
    }
    let seen = browse(
        &egret,
        r#"
        await open("provider/origin", "Connections and bytes");
        await page.shows("GET /orders");
        await page.shows("open for 5");
        const text = await page.evaluate("document.querySelector('main').innerText");
        return [text, await page.tooWide(), await page.axe()];
        "#,
    );
    let text = seen[0].as_str().unwrap();
    assert!(text.contains("guarded") && text.contains("few") && text.contains("circuit-open"), "{text}");
    assert!(!text.contains("elsewhere") && !text.contains("others"), "{text}");
    assert_eq!((&seen[1], &seen[2]), (&json!([]), &json!([])));
}

#[test]
fn the_address_of_traffic_has_the_filter() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let seen: Value = browse(
        &egret,
        r##"
        await open("traffic", "Exchange");
        await page.click(".filters summary");
        await page.type(".filters input", "origin");
        await page.until(`location.hash === "#/traffic?provider=origin"`);
        await page.evaluate("window.isOld = true; location.reload()");
        return page.until(`window.isOld === undefined && document.querySelector(".filters input")?.value`);
        "##,
    );
    assert_eq!(seen, "origin");
}
