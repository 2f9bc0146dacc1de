//! The page for those who only read: buttons that change something are disabled, with the reason.

use egret_tests::browser::browse;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use serde_json::json;

const FLOWS: &str = "flows:\n\
    - { name: stored, match: { provider: origin }, remedies: [cache, { fault: { abort: 503, enabled: false } }] }\n";

#[test]
fn buttons_that_change_something_are_disabled_for_readers() {
    let origin = Provider::plain();
    let config =
        Config::with_origin(origin.url()).control("read_token: '${env:EGRET_TEST_READ_TOKEN}'").flows(FLOWS);
    let egret = Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_READ_TOKEN", "token-that-only-reads");
    });
    let seen = browse(
        &egret,
        r##"
        await page.look(1440);
        await page.open(`${control}/#token=token-that-only-reads`);
        await page.until("document.querySelector('nav a[aria-current]')");
        const buttons = (...names) => page.evaluate(`[...document.querySelectorAll("button")]
          .filter((button) => ${JSON.stringify(names)}.includes(button.innerText)).map((button) => [button.innerText, button.disabled])`);
        await page.evaluate(`location.hash = "#/flows"`);
        await page.shows("You may only read: a change needs control.token");
        const flows = await buttons("Purge", "Switch on for 10 minutes");
        await page.evaluate(`location.hash = "#/traffic"`);
        await until(`document.querySelector("tbody th a") !== null`, () => fetch(`${gateway}/origin/a`));
        await page.evaluate(`document.querySelector("tbody th a").click()`);
        await page.shows("You may only read");
        const exchange = await buttons("Send again", "Copy as curl");
        const faults = [await page.tooWide(), await page.axe()].flat();
        await page.evaluate(`location.hash = "#/config"`);
        await page.shows("You may only read");
        return [flows, exchange, faults];
        "##,
    );
    let expected = json!([
        [["Purge", true], ["Switch on for 10 minutes", true]],
        [["Copy as curl", false], ["Send again", true]],
        [],
    ]);
    assert_eq!(seen, expected);
}
