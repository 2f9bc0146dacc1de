//! Ctrl+K on the page: a view or a provider by a part of its name, with the keyboard alone.

use egret_tests::browser::browse;
use egret_tests::egret::Config;
use egret_tests::provider::Provider;
use serde_json::json;

#[test]
fn names_lead_to_views_and_providers() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).provider("partner", origin.url()).start();
    let seen = browse(
        &egret,
        r#"
        await open("overview", "Providers");
        const ask = async () => {
          await page.key("k", "KeyK", 75, 2);
          await page.until(`document.querySelector("dialog").open && document.activeElement.value === ""`);
        };
        const place = async (name) => {
          await ask();
          await page.type("dialog input", name);
          const text = `document.querySelector("dialog li").innerText.replace(/\\s+/g, " ")`;
          const first = await page.until(`(${text}).toLowerCase().includes("${name}") && ${text}`);
          const faults = [await page.tooWide(), await page.axe()].flat();
          await page.key("Enter", "Enter", 13);
          await page.until(`!document.querySelector("dialog").open`);
          return [first, await page.evaluate("location.hash"), faults];
        };
        const found = [await place("partn"), await place("rec")];
        await ask();
        await page.type("dialog input", "nothing like it");
        await page.shows("Nothing has this name.");
        await page.key("Escape", "Escape", 27);
        await page.until(`!document.querySelector("dialog").open`);
        return [...found, await page.evaluate("location.hash")];
        "#,
    );
    let expected = json!([
        ["partner provider", "#/provider/partner", []],
        ["Records view", "#/records", []],
        "#/records"
    ]);
    assert_eq!(seen, expected);
}
