//! Keys pressed without a pause between them, while the page draws itself again: no field loses one.

use egret_tests::browser::browse;
use egret_tests::egret::Config;
use egret_tests::provider::Provider;
use serde_json::json;

/// Types into the fields of all views, and returns the text of those that are not as typed.
const SCRIPT: &str = r##"
const wrong = [];
const polls = () => page.requested.filter((url) => url.includes("/api/v1/")).length;
// The digits choose views where nothing is being typed.
const keys = "the 6 limits of 2 calls an hour ".repeat(2);
const type = async () => {
  let text = "";
  for (const _ of [1, 2, 3, 4]) {
    const before = polls();
    await page.typeKeys(keys);
    text += keys;
    while (polls() === before) await page.pass(10);
  }
  return text;
};
const check = async (read, text) => {
  await page.until(`(${read}) === ${JSON.stringify(text)}`).catch(async () => wrong.push([read, await page.evaluate(read)]));
};
const field = async (selector) => {
  await page.act(page.element(selector), "(field) => field.focus()");
  await check(`document.activeElement.matches(${JSON.stringify(selector)}) && document.activeElement.value`, await type());
};
await page.look(1440);
await page.open(`${control}/?locked#/config`);
await field("form.ask input");
// The browser reports the requests without a token.
page.errors.length = 0;
await open("overview", "Providers");
await field(`input[placeholder="Filter by name"]`);
await open("flows", "Quotas");
await field(`input[aria-label^="Filter the groups"]`);
await open("records", "Endpoints");
await field(`input[aria-label="Filter endpoints"]`);
await open("traffic", "Exchange");
const calls = setInterval(() => fetch(`${gateway}/origin/a`), 100);
await page.click(".filters summary");
await field(".filters input");
// A filter that is emptied stays open.
await page.type(".filters input", "");
await page.typeKeys("origin");
await check(`document.activeElement.value`, "origin");
clearInterval(calls);
await open("config", "egret.yaml");
await page.write("#\n# the end");
await page.key("ArrowUp", "ArrowUp", 38);
await page.key("End", "End", 35);
await check(`[...document.querySelectorAll(".cm-line")].map((line) => line.textContent).join("\\n")`, `#${await type()}\n# the end`);
return wrong;
"##;

#[test]
fn keys_without_a_pause_all_arrive_while_the_page_refreshes() {
    let origin = Provider::plain();
    let flows = "quotas: { tenants: { limit: 100, window: 1h, group_by: 'header:x-tenant' } }\n\
                 flows: [{ name: all, remedies: [limit: tenants] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for name in 'a'..='p' {
        let fields = format!("Host: {}\r\nx-tenant: {name}", egret.address());
        egret.client().send(format!("GET /origin/{name} HTTP/1.1\r\n{fields}\r\n\r\n")).response();
    }
    assert_eq!(browse(&egret, SCRIPT), json!([]));
}
