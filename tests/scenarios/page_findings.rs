//! The page's strip of findings: on top of every view, with the cause, what to do and the way to more.

use egret_tests::browser::browse;
use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::Config;
use egret_tests::issuer::{StandInIssuer, TokenKey};
use egret_tests::provider::Provider;
use serde_json::json;

#[test]
fn a_failing_provider_is_on_top_of_every_view() {
    let (good, closed) = (Provider::plain(), ClosedPort::take());
    let egret =
        Config::with_origin(good.url()).provider("billing", format!("http://{}", closed.address())).start();
    let seen = browse(
        &egret,
        r#"
        await open("overview", "origin");
        const pill = `document.querySelector("header .pill").innerText`;
        const calm = await page.until(pill);
        const summary = `document.querySelector(".finding summary")?.innerText`;
        await until(`(${summary})?.includes("calls to billing fail")`, async () => {
          for (let call = 0; call < 5; call++) await fetch(`${gateway}/billing/`);
        });
        const worst = await page.evaluate(pill);
        await page.click(".finding summary", "error");
        const text = await page.until(`document.querySelector(".finding[open]")?.innerText`);
        const wide = [await page.tooWide(), await page.axe()].flat();
        await open("flows", "calls to billing fail");
        await page.click(".finding a", "Show billing");
        await page.until(`document.querySelector("h1")?.innerText.includes("billing")`);
        await open("overview", "What happened");
        const events = await page.until(`document.querySelector(".events")?.innerText`);
        return [calm, worst, text, wide, events];
        "#,
    );
    assert_eq!((&seen[0], &seen[1], &seen[3]), (&json!("ready"), &json!("1 error"), &json!([])));
    let text = seen[2].as_str().unwrap();
    assert!(text.contains("it refuses connections or cannot be reached"), "{text}");
    assert!(text.contains("connect-failed") && text.contains("→ check that the provider runs"), "{text}");
    let events = seen[4].as_str().unwrap();
    assert!(
        events.contains("the gateway has started") && events.contains("calls to billing fail"),
        "{events}"
    );
}

#[test]
fn a_failing_issuer_leads_to_the_config() {
    let (origin, key) = (Provider::plain(), TokenKey::new("one"));
    let issuer = StandInIssuer::start(&[&key], None);
    issuer.go_down();
    let listen = format!(
        "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: '{}', audience: egret }} }} }}",
        issuer.url()
    );
    let egret = Config::with_origin(origin.url()).listen([&listen]).start();
    let seen = browse(
        &egret,
        r#"
        await open("overview", "cannot be fetched");
        await page.click(".finding summary", "error");
        await page.click(".finding a", "Show");
        await page.shows("Versions");
        return page.evaluate("location.hash");
        "#,
    );
    assert_eq!(seen, "#/config");
}
