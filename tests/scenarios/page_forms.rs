//! The page on screens of every size, in light and dark, by keyboard, and for screen readers.

use egret_tests::browser::browse;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use serde_json::{Value, json};

const CACHEABLE: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 2\r\n\r\nhi";

/// A config with something in every view.
fn everything(origin: &Provider) -> Config {
    let flow_with_failures = "\x20 - { name: failing, match: { provider: failing }, remedies: [{ fallback: { provider: origin } }, { hedge: {} }, { circuit-breaker: { consecutive: 1, open: 1h, open_max: 1h } }] }\n";
    let rest = "accounts: { one: { provider: origin, api_key: { header: x-api-key, value: \"${env:PAGE_TEST_KEY}\" } } }\n\
        quotas:\n\
        \x20 tenants: { limit: 100, window: 1h, group_by: \"header:x-tenant\" }\n\
        \x20 budget: { limit: 9, unit: usd, kind: calendar, period: month, group_by: consumer, cost: { usage: usd } }\n\
        exporters: { lines: { type: lines, directory: ./lines } }\n\
        flows:\n\
        \x20 - name: a-flow-with-a-name-that-is-rather-long-for-a-telephone\n\
        \x20   match: { provider: origin }\n\
        \x20   remedies: [{ accounts: { use: [one] } }, { cache: {} }, { limit: { quota: tenants } }, { circuit-breaker: {} }]\n\
        \x20   diagnoses: [{ access-log: { export: lines } }, { ledger: { cost: '1500000', labels: { tenant: { request_header: x-tenant } } } }]\n";
    Config::with_origin(origin.url())
        .provider("another-provider", origin.url())
        .provider("failing", "http://127.0.0.1:1")
        .flows(format!("{rest}{flow_with_failures}"))
}

/// Opens every view in a window of this size, in light and dark, and runs `rest`. Returns what does not fit,
/// and what axe finds.
fn faults(width: u32, height: u32, rest: &str) -> Value {
    let origin = Provider::responding(CACHEABLE);
    let egret = Egret::start_with(&everything(&origin), |command| {
        command.env("PAGE_TEST_KEY", "a-key-that-nobody-knows");
    });
    for path in
        ["/a", "/b?x=1", "/a", "/users/7/orders/a-path-that-is-very-long-and-has-no-place-to-break-it"]
    {
        egret.get(path);
    }
    for _ in 0..3 {
        egret.client().get(egret.address(), "/failing/x").response();
    }
    let script = r#"
        const markers = { overview: "Providers", "provider/origin": "Connections and bytes", flows: "a-flow-with", spend: "summed since", records: "Endpoints", config: "Versions", traffic: "Traffic" };
        const bad = [];
        const check = async (...where) => {
          const found = [await page.tooWide(), await page.axe()].flat();
          if (found.length > 0) bad.push([...where, found]);
        };
        for (const scheme of ["light", "dark"]) {
          await page.look(width, height, scheme);
          for (const [view, marker] of Object.entries(markers)) {
            await open(view, marker);
            if (view === "config") await page.until(`document.querySelector(".cm-line") !== null`);
            for (const summary of ["Changes", "What the figures mean"]) await page.evaluate(`[...document.querySelectorAll("summary")].find((found) => found.innerText.startsWith("${summary}"))?.click()`);
            await check(scheme, view);
          }
        }
        await until(`document.querySelector("tbody th a") !== null`, () => fetch(`${gateway}/origin/a`));
        await page.evaluate(`document.querySelector("tbody th a").click()`);
        await page.shows("Where the time went");
        for (const scheme of ["light", "dark"]) {
          await page.look(width, height, scheme);
          await check(scheme, "exchange");
        }
        "#;
    browse(&egret, &format!("const [width, height] = [{width}, {height}];{script}{rest}return bad;"))
}

#[test]
fn every_view_and_mistakes_fit_a_telephone_and_satisfy_axe() {
    let mistakes = r##"
        await page.evaluate(`location.hash = "#/config"`);
        await page.write("quotass: {}\nflows: [{ naem: x }]");
        await page.until(`document.querySelector(".problems.error") !== null`);
        for (const scheme of ["light", "dark"]) {
          await page.look(width, height, scheme);
          await page.key(" ", "Space", 32, 2);
          await page.pass(100);
          await check(scheme, "mistakes");
        }
        "##;
    assert_eq!(faults(390, 844, mistakes), json!([]));
}

#[test]
fn every_view_fits_a_tablet_and_satisfies_axe() {
    assert_eq!(faults(760, 1_000, ""), json!([]));
}

#[test]
fn every_view_fits_a_laptop_and_satisfies_axe() {
    assert_eq!(faults(1_440, 900, ""), json!([]));
}

#[test]
fn every_view_fits_a_large_screen_and_satisfies_axe() {
    assert_eq!(faults(2_560, 1_440, ""), json!([]));
}

#[test]
fn the_page_can_be_used_with_the_keyboard_alone() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let seen = browse(
        &egret,
        r#"
        await open("overview", "Providers");
        const focused = () => page.evaluate(`document.activeElement.innerText ?? ""`);
        await page.key("Tab", "Tab", 9);
        const skip = await focused();
        await page.key("Enter", "Enter", 13);
        const main = await page.until(`document.activeElement.tagName === "MAIN" && "MAIN"`);
        await page.key("3", "Digit3", 51);
        await page.until(`document.querySelector("nav a[aria-current]").innerText.startsWith("Flows")`);
        await page.key("6", "Digit6", 54);
        await page.until(`document.querySelector(".cm-content") !== null`);
        return [skip, main];
        "#,
    );
    assert_eq!(seen, Value::from(vec!["Skip to the content", "MAIN"]));
}

#[test]
fn number_keys_work_without_live_traffic() {
    let egret = Config::default().control("traffic: { entries: 0 }").start();
    let seen = browse(
        &egret,
        r#"
        await open("overview", "Providers");
        await page.key("2", "Digit2", 50);
        await page.shows("Live traffic is switched off");
        const links = await page.evaluate(`[...document.querySelectorAll("nav a")].map((link) => link.innerText)`);
        await page.key("3", "Digit3", 51);
        await page.until(`document.querySelector("nav a[aria-current]").innerText.startsWith("Flows")`);
        return links.some((link) => link.startsWith("Traffic"));
        "#,
    );
    assert_eq!(seen, json!(false));
}
