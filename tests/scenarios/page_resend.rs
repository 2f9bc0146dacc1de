//! A call is sent again from the page's view of it.

use egret_tests::browser::browse;
use egret_tests::egret::Config;
use egret_tests::provider::Provider;

const OPEN: &str = r#"
    const show = async (path, init) => {
      await open("traffic", "Exchange");
      const found = `[...document.querySelectorAll("tbody tr")].find((row) => row.innerText.includes("${path}"))`;
      await until(`${found} !== undefined`, () => fetch(`${gateway}/origin${path}`, init));
      await page.evaluate(`${found}.querySelector("a").click()`);
      await page.shows("Where the time went");
    };
"#;

#[test]
fn an_unsafe_call_is_resent_after_confirmation() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let script = r##"
        await show("/safe");
        await page.click("button", "Send again");
        await page.shows("Sent again: the response is 200.");
        await page.click(".message a", "Show the new exchange");
        await page.shows("the first exchange");
        const headers = { "content-type": "application/json", authorization: "Bearer hidden-from-the-page-0123456789" };
        await show("/charges", { method: "POST", headers, body: "{}" });
        await page.click("button", "Send again");
        await page.shows("Send this POST again? The provider may act on it a second time.");
        await page.click("button", "No");
        await page.click("button", "Send again");
        await page.click("button", "Yes");
        await page.shows("Sent again: the response is 200.");
        await page.click(".message a", "Show the new exchange");
        await page.until(`document.body.innerText.includes("the first exchange")`);
        const axe = await page.axe();
        const text = await page.evaluate("document.body.innerText");
        await page.evaluate(`location.hash = "#/traffic"`);
        await page.until(`[...document.querySelectorAll("tbody tr")].filter((row) => row.innerText.includes("sent again")).length === 2`);
        return [text.includes("hidden-from"), axe];
        "##;
    let seen = browse(&egret, &format!("{OPEN}{script}"));
    assert_eq!(seen, serde_json::json!([false, []]));
    let posts = origin.requests().into_iter().filter(|request| request.target() == "/charges");
    for request in posts {
        assert_eq!(request.values("authorization"), ["Bearer hidden-from-the-page-0123456789"]);
    }
}

#[test]
fn the_button_says_why_a_call_cannot_be_sent_again() {
    let origin = Provider::plain();
    for (line, reason) in [
        ("traffic: { bodies: 0B }", "its body was not kept"),
        ("config_changes: off", "the token only reads"),
    ] {
        let egret = Config::with_origin(origin.url()).control(line).start();
        let script = r#"
            await show("/charges", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
            return page.until(`[...document.querySelectorAll("button")].some((button) => button.innerText === "Send again" && button.disabled)
              && document.querySelector(".aside").innerText.includes("cannot be sent again") && document.querySelector(".aside").innerText`);
            "#;
        let seen = browse(&egret, &format!("{OPEN}{script}"));
        assert!(seen.as_str().unwrap().contains(reason), "{seen}");
    }
}
