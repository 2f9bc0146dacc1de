//! The page's view of spend: the costs of calls by consumer and label, budgets, and what to do without costs.

use egret_tests::browser::browse;
use egret_tests::built_in::BuiltIn;
use egret_tests::egret::Config;
use egret_tests::provider::Provider;
use serde_json::json;

#[test]
fn costs_stand_beside_the_budgets_of_their_consumers() {
    let provider = BuiltIn::start(&[]);
    let flows = "prices: { overrides: { m-1: { input: 1000, output: 10000 } } }\n\
        quotas: { monthly: { limit: 2, unit: usd, kind: calendar, period: month, group_by: consumer, cost: { usage: usd } } }\n\
        flows: [{ name: models, remedies: [limit: monthly], diagnoses: [ledger: { labels: { team: { request_header: x-team } } }] }]\n";
    let egret = Config::default()
        .provider("llm", format!("http://{}/llm/openai", provider.address()))
        .flows(flows)
        .start();
    let seen = browse(
        &egret,
        r#"
        const ask = (consumer, team) => fetch(`${gateway}/llm/v1/chat/completions?input=100&output=10`, {
          method: "POST",
          headers: { "content-type": "application/json", "x-egret-consumer": consumer, "x-team": team },
          body: JSON.stringify({ model: "m-1", max_tokens: 20, messages: [{ role: "user", content: "hi" }] }),
        }).then((response) => response.text());
        for (const [consumer, team] of [["ada", "search"], ["ada", "maps"], ["bob", "search"]]) await ask(consumer, team);
        await open("spend", "in 3 calls");
        const rows = () => page.evaluate(`[...document.querySelectorAll("table[aria-label=Spend] tbody tr")].map((row) => row.innerText.replace(/\\s+/g, " "))`);
        await page.until(`document.querySelector("table[aria-label=Spend]").innerText.includes("resets in")`);
        const consumers = await rows();
        const sum = await page.evaluate(`document.querySelector(".figure").innerText`);
        const choose = (label, value) => page.evaluate(`(() => {
          const select = [...document.querySelectorAll("label")].find((found) => found.innerText.startsWith("${label}")).querySelector("select");
          select.value = "${value}";
          select.dispatchEvent(new Event("change", { bubbles: true }));
        })()`);
        await choose("Sum by", "label.team");
        await page.until(`document.querySelector("table[aria-label=Spend]").innerText.includes("search")`);
        const teams = await rows();
        await choose("Time", "month");
        await page.shows("in 3 calls");
        const budgets = await page.evaluate(`document.querySelector(".quotas").innerText`);
        return [consumers, sum, teams, budgets, await page.axe()];
        "#,
    );
    let row = |list: usize, number: usize| seen[list][number].as_str().unwrap().to_owned();
    let (ada, bob) = (row(0, 0), row(0, 1));
    assert!(ada.starts_with("ada $0.40 66.7 % 2") && ada.contains("monthly $0.40 of $2.00"), "{ada}");
    assert!(bob.starts_with("bob $0.20 33.3 % 1") && bob.contains("resets in"), "{bob}");
    assert!(seen[1].as_str().unwrap().starts_with("$0.60"), "{seen}");
    assert!(row(2, 0).starts_with("search $0.40") && row(2, 1).starts_with("maps $0.20"), "{seen}");
    assert!(seen[3].as_str().unwrap().contains("$0.20 of $2.00"), "{seen}");
    assert_eq!(seen[4], json!([]));
}

#[test]
fn a_gateway_without_costs_shows_how_to_get_them() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let egret = config.start();
    let script = r#"
        await open("spend", "SHOWN");
        await page.evaluate(`navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }`);
        await page.click("button", "Copy");
        return [await page.until("window.copied"), await page.axe()];
    "#;
    let seen = browse(&egret, &script.replace("SHOWN", "No flow sums costs."));
    let setup = seen[0].as_str().unwrap();
    assert_eq!(seen[1], json!([]));
    egret.change_config(config.flows(setup).yaml());
    let seen = browse(&egret, &script.replace("SHOWN", "No call has had a cost so far."));
    assert_eq!(seen, json!(["egret prices import model_prices_and_context_window.json", []]));
}
