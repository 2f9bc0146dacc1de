//! The page's list of calls as they end, and one call in detail.

use egret_tests::browser::{browse, opened_in_devtools};
use egret_tests::egret::Config;
use egret_tests::node::assert_fits_schema;
use egret_tests::provider::Provider;
use serde_json::{Value, json};

const SECRET: &str = "sk_live_51HxAbCdEfGh23456789JkLmNp";

#[test]
fn calls_appear_as_they_end_and_can_be_filtered() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let seen = browse(
        &egret,
        r#"
        await open("traffic", "Waiting for the next exchange");
        const rows = `[...document.querySelectorAll("tbody th")].map((cell) => cell.innerText)`;
        await until(`${rows}.some((row) => row.includes("/found"))`, () => fetch(`${gateway}/origin/found`));
        await until(`${rows}.some((row) => row.includes("/lost"))`, () => fetch(`${gateway}/nobody/lost`));
        await page.click("summary", "Filter");
        await page.type(".fields label:nth-of-type(6) input", "egret");
        await page.until(`${rows}.length > 0 && ${rows}.every((row) => row.includes("/nobody/"))`);
        return page.evaluate(`document.querySelector("table").innerText`);
        "#,
    );
    assert!(seen.as_str().unwrap().contains("unknown-provider"), "{seen}");
}

#[test]
fn markup_in_a_path_is_shown_as_text() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let seen = browse(
        &egret,
        r#"
        await open("traffic", "Waiting for the next exchange");
        const markup = `<img src=x onerror="window.broken=1"><script>window.broken=1</script>`;
        const send = () => fetch(`${gateway}/origin/${encodeURIComponent(markup)}?q=${markup}`, {
          method: "POST", headers: { "x-markup": markup, "content-type": "text/html" }, body: markup,
        });
        const found = `[...document.querySelectorAll("tbody th a")].find((row) => row.innerText.includes("onerror"))`;
        await until(`${found} !== undefined`, send);
        await page.evaluate(`${found}.click()`);
        await page.shows("Where the time went");
        const text = await page.evaluate("document.body.innerText");
        const elements = await page.evaluate(`[document.querySelectorAll("main img, main script").length, window.broken]`);
        return [text.split(markup).length - 1, elements];
        "#,
    );
    assert!(seen[0].as_u64() >= Some(2), "the field and the body are shown as they were sent: {seen}");
    assert_eq!(seen[1][0], 0, "{seen}");
    assert!(seen[1][1].is_null(), "{seen}");
}

#[test]
fn a_call_in_detail_has_the_decisions_both_messages_and_no_secret() {
    let origin = Provider::plain();
    let rest = "quotas: { few: { limit: 1, window: 1h } }\n\
        flows: [{ name: charges, match: { provider: origin, path: /charges }, remedies: [{ limit: { quota: few } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(rest).start();
    let script = r#"
        await open("traffic", "Waiting for the next exchange");
        const headers = { authorization: "Bearer SECRET", "content-type": "application/json" };
        const send = () => fetch(`${gateway}/origin/charges?page=2`, { method: "POST", headers, body: JSON.stringify({ amount: 7, api_key: "SECRET" }) });
        const found = `[...document.querySelectorAll("tbody tr")].find((row) => row.innerText.includes("quota-exceeded"))`;
        await until(`${found} !== undefined`, send);
        await page.evaluate(`${found}.querySelector("a").click()`);
        await page.shows("Where the time went");
        await page.evaluate(`navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }`);
        await page.click("button", "Copy as curl");
        const copied = await page.until("window.copied");
        return [await page.evaluate("document.body.innerText"), copied];
        "#;
    let seen = browse(&egret, &script.replace("SECRET", SECRET));
    let (text, copied) = (seen[0].as_str().unwrap(), seen[1].as_str().unwrap());
    for expected in ["charges / limit", "quota-exceeded", "at most 1 per 1h", "amount", "content-type", "429"]
    {
        assert!(text.to_lowercase().contains(expected), "{expected} is missing:\n{text}");
    }
    assert!(copied.starts_with("curl '") && copied.contains("--request 'POST'"), "{copied}");
    assert!(!text.contains(SECRET) && !copied.contains(SECRET), "{text}\n{copied}");
}

#[test]
fn a_call_is_saved_as_a_har_file_that_other_programs_read() {
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"paid\":7.5}",
    );
    let egret = Config::with_origin(origin.url()).start();
    let script = r#"
        await open("traffic", "Waiting for the next exchange");
        const headers = { authorization: "Bearer SECRET", "content-type": "application/json" };
        const send = () => fetch(`${gateway}/origin/charges?page=2`, { method: "POST", headers, body: JSON.stringify({ amount: 7, api_key: "SECRET" }) });
        const found = `document.querySelector("tbody tr a")`;
        await until(`${found} !== null`, send);
        await page.evaluate(`${found}.click()`);
        await page.shows("Where the time went");
        await page.evaluate(`((make, click) => {
          URL.createObjectURL = (blob) => (blob.text().then((text) => { window.saved = text; }), make.call(URL, blob));
          HTMLAnchorElement.prototype.click = function () { window.named = this.download; };
        })(URL.createObjectURL)`);
        await page.click("button", "Save as HAR");
        return [await page.until("window.saved"), await page.evaluate("window.named")];
        "#;
    let seen = browse(&egret, &script.replace("SECRET", SECRET));
    let (saved, name) = (seen[0].as_str().unwrap(), seen[1].as_str().unwrap());
    assert!(name.starts_with("exchange-") && name.to_ascii_lowercase().ends_with(".har"), "{name}");
    let file = egret.directory().write(name, saved);
    assert_fits_schema("har", std::slice::from_ref(&file));
    let listed = opened_in_devtools(&[file]);
    assert_eq!(listed[0].len(), 1, "DevTools list the call: {listed:?}");
    let har: Value = serde_json::from_str(saved).unwrap();
    let entry = &har["log"]["entries"][0];
    assert_eq!((&entry["request"]["method"], &entry["response"]["status"]), (&json!("POST"), &json!(200)));
    assert!(entry["request"]["url"].as_str().unwrap().ends_with("/charges?page=2"), "{entry}");
    assert_eq!(entry["response"]["content"]["text"], r#"{"paid":7.5}"#);
    assert!(entry["request"]["postData"]["text"].as_str().unwrap().contains("\"amount\":7"), "{entry}");
    assert!(entry["time"].as_f64() > Some(0.0), "{entry}");
    assert!(!saved.contains(SECRET), "{saved}");
}

#[test]
fn the_page_asks_for_a_valid_token() {
    let egret = Config::default().start();
    let seen = browse(
        &egret,
        r#"
        await page.look(1440);
        await page.open(`${control}/#/traffic`);
        await page.shows("This view requires the control token");
        await page.type("input[type=password]", "0123456789abcdef");
        await page.click("button", "Continue");
        await page.shows("That token was refused.");
        await page.type("input[type=password]", token);
        await page.click("button", "Continue");
        await page.shows("Waiting for the next exchange");
        // The browser reports the 401 of both attempts.
        page.errors.length = 0;
        return page.evaluate("location.href");
        "#,
    );
    assert!(!seen.as_str().unwrap().contains("token="), "{seen}");
}
