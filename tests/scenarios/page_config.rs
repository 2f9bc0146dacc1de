//! The page's editor: completion, descriptions and mistakes in place, the difference, a change that is
//! applied and one that is rolled back.

use egret_tests::browser::browse;
use egret_tests::egret::{Config, Egret};
use serde_json::json;

fn with_limit(limit: u32) -> Config {
    Config::default().flows(format!("quotas:\n  live: {{ limit: {limit}, window: 1h }}\n"))
}

fn limit(egret: &Egret) -> u64 {
    egret.control_get("/api/v1/config").json()["quotas"]["live"]["limit"].as_u64().unwrap()
}

fn file(egret: &Egret) -> String {
    std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap()
}

#[test]
fn an_edit_is_checked_compared_applied_and_rolled_back() {
    let config = with_limit(5).control("config_changes: all");
    let egret = config.start();
    let seen = browse(
        &egret,
        r#"
        await open("config", "egret.yaml");
        const text = `[...document.querySelectorAll(".cm-line")].map((line) => line.textContent).join("\\n")`;
        const before = await page.until(`(${text}).includes("limit: 5") && ${text}`);
        await page.write(before.replace("limit: 5", "limitt: 5"));
        const problem = await page.until(`document.querySelector(".problems.error")?.innerText`);
        const isDisabled = await page.evaluate(`[...document.querySelectorAll("button")].find((button) => button.innerText === "Apply").disabled`);
        const marked = await page.until(`document.querySelector(".cm-lintRange-error")?.textContent`);
        const gutter = await page.evaluate(`document.querySelectorAll(".cm-lint-marker-error").length`);
        await page.click(".problems button", "line");
        const line = await page.until(`document.querySelector(".cm-activeLine")?.textContent.includes("limitt")`);
        await page.write(before.replace("limit: 5", "limit: 6"));
        await page.click("button", "Show changes");
        const lines = `[...document.querySelectorAll(".diff .added, .diff .removed")].map((line) => line.innerText.trim())`;
        const diff = await page.until(`${lines}.length > 0 && ${lines}`);
        await page.click("button", "Apply");
        await page.shows("Applied: quotas.");
        const config = async () => (await fetch(`${control}/api/v1/config`)).json();
        const applied = (await config()).quotas.live.limit;
        await page.click(".acts button", "Roll back");
        await page.click("button", "Yes");
        await page.until(`(${text}).includes("limit: 5")`);
        await page.shows("rolled back");
        return { problem, isDisabled, marked, gutter, line, diff, applied };
        "#,
    );
    let problem = seen["problem"].as_str().unwrap();
    assert!(problem.contains("limitt") && problem.contains("did you mean limit"), "{problem}");
    assert_eq!(seen["isDisabled"], true, "an invalid config cannot be applied");
    assert_eq!(
        (&seen["marked"], &seen["gutter"], &seen["line"]),
        (&json!("limitt:"), &json!(1), &json!(true))
    );
    let diff = seen["diff"].as_array().unwrap();
    assert_eq!(diff.len(), 2, "{diff:?}");
    assert!(diff[0].as_str().unwrap().contains("limit: 5") && diff[1].as_str().unwrap().contains("limit: 6"));
    assert_eq!(seen["applied"], 6);
    assert_eq!((limit(&egret), file(&egret)), (5, config.yaml()));
}

#[test]
fn keys_and_values_are_completed_and_described_from_the_schema() {
    let egret = with_limit(5).start();
    let seen = browse(
        &egret,
        r#"
        await open("config", "egret.yaml");
        await page.until(`document.querySelector(".cm-content") !== null`);
        const options = `[...document.querySelectorAll(".cm-tooltip-autocomplete li")].map((item) => item.innerText)`;
        await page.write("flows:\n  - name: a\n    remedies:\n      - circ");
        await page.key(" ", "Space", 32, 2);
        const keys = await page.until(`(${options}).length > 0 && ${options}`);
        const info = await page.until(`document.querySelector(".cm-completionInfo")?.innerText`);
        // The list takes no key for the first moments.
        await page.pass(100);
        await page.key("Enter", "Enter", 13);
        const line = `[...document.querySelectorAll(".cm-line")].at(-1).textContent`;
        const completed = await page.until(`(${line}).includes("breaker") && ${line}`);
        await page.write("quotas: { live: { limit: 1, window: 1h } }\nflows:\n  - name: a\n    remedies:\n      - limit: { quota: l");
        await page.key(" ", "Space", 32, 2);
        const names = await page.until(`(${options}).length > 0 && ${options}`);
        await page.key("Escape", "Escape", 27);
        await page.write("control:\n  config_changes: ");
        await page.key(" ", "Space", 32, 2);
        const values = await page.until(`(${options}).includes("tune") && ${options}`);
        await page.key("Escape", "Escape", 27);
        const about = await page.until(`document.querySelector(".key-about")?.innerText`);
        await page.point(".cm-line span", "config_changes");
        const hover = await page.until(`document.querySelector(".cm-about")?.innerText`);
        return { keys, info, completed, names, values, about, hover };
        "#,
    );
    let text = |key: &str| seen[key].to_string();
    assert!(text("keys").contains("circuit-breaker"), "{seen}");
    assert!(text("info").contains("failing provider"), "{seen}");
    assert_eq!(seen["completed"], "      - circuit-breaker: ", "{seen}");
    assert!(text("names").contains("live") && text("names").contains("of quotas"), "{seen}");
    assert!(text("values").contains("all"), "{seen}");
    for described in ["about", "hover"] {
        assert!(text(described).contains("The changes of the config that the API accepts"), "{seen}");
    }
}

#[test]
fn the_editor_is_left_by_keyboard_and_uses_nonces() {
    let egret = with_limit(5).start();
    let seen = browse(
        &egret,
        r#"
        await open("config", "egret.yaml");
        await page.until(`document.querySelector(".cm-content") !== null`);
        await page.evaluate(`document.querySelector(".cm-content").focus()`);
        const inside = `document.activeElement.closest(".cm-editor") !== null`;
        await page.key("Tab", "Tab", 9);
        const stays = await page.evaluate(inside);
        // After Escape, the editor leaves Tab alone for two seconds.
        const leaves = await until(`!(${inside})`, async () => {
          await page.key("Escape", "Escape", 27);
          await page.key("Tab", "Tab", 9);
        });
        const nonces = [];
        for (const _ of [0, 1]) {
          const response = await fetch(`${control}/`);
          const policy = response.headers.get("content-security-policy");
          const nonce = /'nonce-([0-9a-f]{32})'/.exec(policy)[1];
          nonces.push(nonce, (await response.text()).includes(`nonce="${nonce}"`), policy.includes("unsafe"));
        }
        const others = (await fetch(`${control}/page.js`)).headers.get("content-security-policy");
        const font = await page.evaluate(`getComputedStyle(document.querySelector(".cm-scroller")).fontFamily`);
        return { stays, leaves, nonces, others, font, label: await page.evaluate(`document.querySelector(".cm-content").ariaLabel`) };
        "#,
    );
    assert_eq!((&seen["stays"], &seen["leaves"]), (&json!(true), &json!(true)), "{seen}");
    let nonces = seen["nonces"].as_array().unwrap();
    assert_ne!(nonces[0], nonces[3]);
    assert_eq!(nonces[1..3], [json!(true), json!(false)]);
    assert!(!seen["others"].as_str().unwrap().contains("nonce"), "{seen}");
    assert!(seen["font"].as_str().unwrap().contains("monospace"), "the editor's styles apply: {seen}");
    assert_eq!(seen["label"], "Text of egret.yaml");
}

#[test]
fn a_change_that_the_api_refuses_is_explained() {
    let egret = with_limit(5).start();
    let seen = browse(
        &egret,
        r#"
        await open("config", "egret.yaml");
        const before = await page.until(`document.querySelector(".cm-line") !== null`) && (await page.written());
        await page.write(before.replace("control:", "control:\n  allowed_hosts: [evil.example]"));
        return page.until(`document.querySelector(".problems.error")?.innerText`);
        "#,
    );
    assert!(seen.as_str().unwrap().contains("control"), "{seen}");
    assert_eq!(file(&egret), with_limit(5).yaml());
}

#[test]
fn the_file_is_read_only_where_changes_are_off() {
    let egret = with_limit(5).control("config_changes: off").start();
    let seen = browse(
        &egret,
        r#"
        await open("config", "read-only: control.config_changes is off");
        await page.until(`document.querySelector(".cm-content")?.getAttribute("aria-readonly") === "true"`);
        const before = await page.written();
        await page.write("gone");
        return [(await page.written()) === before, await page.evaluate(`[...document.querySelectorAll("button")].some((button) => button.innerText === "Apply")`)];
        "#,
    );
    assert_eq!(seen, json!([true, false]));
}

#[test]
fn the_config_is_fixed_for_a_token_that_only_reads() {
    let config = with_limit(5).control("read_token: '${env:EGRET_TEST_READ_TOKEN}'");
    let egret = Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_READ_TOKEN", "token-that-only-reads");
    });
    let seen = browse(
        &egret,
        r##"
        await page.look(1440);
        await page.open(`${control}/#token=token-that-only-reads`);
        await page.until("document.querySelector('nav a[aria-current]')");
        await page.evaluate(`location.hash = "#/config"`);
        await page.shows("read-only for you");
        await page.shows("limit: 5");
        // The browser reports the 403 of the check.
        page.errors.length = 0;
        return page.evaluate(`[...document.querySelectorAll("button")].map((button) => button.innerText)`);
        "##,
    );
    let buttons = seen.to_string();
    assert!(!buttons.contains("Apply") && !buttons.contains("Roll back"), "{buttons}");
}
