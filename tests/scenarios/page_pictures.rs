//! The pictures of the page in the documentation, at the widths that it is made for. With
//! `EGRET_PICTURES=DIRECTORY` they are written there; without it the scenario only checks that every view
//! with traffic fits its screen.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use egret_tests::browser::browse;
use egret_tests::egret::Config;
use egret_tests::provider::{Provider, Request};

const FLOWS: &str =
    "quotas: { orders-per-hour: { limit: 4000, window: 1h }, search-per-minute: { limit: 60, window: 1m } }
flows:
  - name: catalogue
    match: { provider: shop, path: '/v1/items/*' }
    remedies:
      - cache: {}
      - hedge: { after: 300ms }
  - name: orders
    match: { provider: shop, path: /v1/orders }
    remedies:
      - retry: { attempts: 3, backoff: { base: 5ms, max: 10ms } }
      - queue: { quota: orders-per-hour, size: 50 }
  - name: stock
    match: { provider: stock }
    remedies:
      - fallback: { response: { status: 200, body: unknown } }
      - circuit-breaker: { consecutive: 3, open: 1m }
  - name: search
    match: { provider: search }
    remedies: [{ limit: { quota: search-per-minute }, mode: report }]
";

fn shop(request: &Request, calls: &AtomicUsize) -> Vec<u8> {
    let call = calls.fetch_add(1, Relaxed);
    let (status, fields, body) = match request.target() {
        "/v1/orders" if call.is_multiple_of(5) => {
            ("503 Service Unavailable", "Retry-After: 0\r\n", r#"{"error":"busy"}"#)
        }
        "/v1/orders" => ("201 Created", "", r#"{"order":"7f31","state":"accepted"}"#),
        "/v1/items/9" => ("404 Not Found", "Cache-Control: max-age=600\r\n", r#"{"error":"no such item"}"#),
        _ => (
            "200 OK",
            "Cache-Control: max-age=600\r\n",
            r#"{"items":[{"id":1,"name":"lamp"},{"id":2,"name":"chair"}]}"#,
        ),
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

const SCRIPT: &str = r#"
const calls = async (count) => {
  for (let call = 0; call < count; call++) {
    await Promise.all([
      fetch(`${gateway}/shop/v1/items/${call % 10}`),
      fetch(`${gateway}/shop/v1/orders`, { method: "POST", headers: { "content-type": "application/json", "idempotency-key": `order-${call}`, authorization: "Bearer sk_live_0123456789abcdefghij" }, body: JSON.stringify({ item: call, count: 1 }) }),
      fetch(`${gateway}/stock/v1/stock/${call}`),
      fetch(`${gateway}/search/?q=lamp+${call}`),
    ]);
    await page.pass(60);
  }
};
const bad = [];
const picture = async (name, view, marker, width, height, scheme, ready = async () => {}) => {
  await page.look(width, height, scheme);
  await open(view, marker);
  await calls(3);
  await ready();
  await page.pass(400);
  const wide = await page.tooWide();
  if (wide.length > 0) bad.push([name, wide]);
  if (pictures !== "") await page.screenshot(`${pictures}/page-${name}.png`, { whole: false });
};
await picture("overview", "overview", "Providers", 1440, 900, "light", async () => {
  await calls(40);
  // The chart needs figures of several seconds.
  await until(`document.querySelector(".uplot canvas") !== null`, () => calls(1));
  await calls(pictures === "" ? 1 : 120);
});
await picture("overview-dark", "overview", "Providers", 1440, 900, "dark", () => calls(10));
await picture("wall", "overview", "Providers", 2560, 1440, "dark", () => calls(10));
await picture("phone", "overview", "Providers", 390, 844, "light", () => calls(4));
await picture("traffic", "traffic", "Exchange", 760, 1000, "light", () => calls(4));
const order = `[...document.querySelectorAll("tbody tr")].find((row) => row.innerText.includes("POST /v1/orders") && row.querySelector("[data-label=Calls]")?.innerText.trim() === "2")`;
await picture("exchange", "traffic", "Exchange", 1440, 900, "light", async () => {
  await until(`${order} !== undefined`, () => calls(1));
  await page.evaluate(`${order}.querySelector("a").click()`);
  await page.shows("Where the time went");
});
await picture("flows", "flows", "catalogue", 1440, 900, "light", async () => {
  await page.click(".history summary");
});
await picture("config", "config", "Versions", 1440, 900, "light", async () => {
  await page.until(`document.querySelector(".cm-line") !== null`);
  const text = await page.written();
  await page.write(text.replace("size: 50", "siez: 50"));
  await page.until(`document.querySelector(".problems.error") !== null`);
  await page.click(".problems button", "line");
});
await picture("config-phone-dark", "config", "Versions", 390, 844, "dark", async () => {
  await page.until(`document.querySelector(".cm-line") !== null`);
});
return bad;
"#;

#[test]
fn every_view_with_traffic_fits_its_screen() {
    let calls = AtomicUsize::new(1);
    let (good, other) = (Provider::with_responses(move |request| shop(request, &calls)), Provider::plain());
    let failing = Provider::responding("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    let egret = Config::default()
        .provider("shop", good.url())
        .provider("stock", failing.url())
        .provider("search", other.url())
        .flows(FLOWS)
        .start();
    let pictures = std::env::var("EGRET_PICTURES").unwrap_or_default();
    let seen = browse(&egret, &format!("const pictures = {pictures:?};{SCRIPT}"));
    assert_eq!(seen, serde_json::json!([]));
}
