//! The page's editor: mistakes in place, the difference, a change that is applied and one that is rolled
//! back.

use egret_tests::browser::browse;
use egret_tests::egret::{Config, Egret};

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
    let egret = with_limit(5).start();
    let seen = browse(
        &egret,
        r#"
        await open("config", "egret.yaml");
        const before = await page.until(`document.querySelector("textarea")?.value`);
        await page.type("textarea", before.replace("limit: 5", "limitt: 5"));
        const problem = await page.until(`document.querySelector(".problems.error")?.innerText`);
        const isDisabled = await page.evaluate(`[...document.querySelectorAll("button")].find((button) => button.innerText === "Apply").disabled`);
        const marked = await page.evaluate(`document.querySelector(".gutter .bad").innerText`);
        await page.click(".problems button", "line");
        const line = await page.evaluate(`document.activeElement.value.slice(0, document.activeElement.selectionStart).split("\\n").length`);
        await page.type("textarea", before.replace("limit: 5", "limit: 6"));
        await page.click("button", "Show changes");
        const diff = await page.until(`[...document.querySelectorAll(".diff .added, .diff .removed")].map((line) => line.innerText.trim())`);
        await page.click("button", "Apply");
        await page.shows("Applied: quotas.");
        const config = async () => (await fetch(`${control}/api/v1/config`)).json();
        const applied = (await config()).quotas.live.limit;
        await page.click(".acts button", "Roll back");
        await page.click("button", "Yes");
        await page.until(`document.querySelector("textarea").value.includes("limit: 5")`);
        await page.shows("rolled back");
        return { problem, isDisabled, marked, line, diff, applied };
        "#,
    );
    let problem = seen["problem"].as_str().unwrap();
    assert!(problem.contains("limitt") && problem.contains("did you mean limit"), "{problem}");
    assert_eq!(seen["isDisabled"], true, "an invalid config cannot be applied");
    assert_eq!(
        seen["marked"].as_str().unwrap(),
        seen["line"].to_string(),
        "the place leads to the marked line"
    );
    let diff = seen["diff"].as_array().unwrap();
    assert_eq!(diff.len(), 2, "{diff:?}");
    assert!(diff[0].as_str().unwrap().contains("limit: 5") && diff[1].as_str().unwrap().contains("limit: 6"));
    assert_eq!(seen["applied"], 6);
    assert_eq!((limit(&egret), file(&egret)), (5, with_limit(5).yaml()));
}

#[test]
fn a_change_that_the_api_refuses_is_explained() {
    let egret = with_limit(5).start();
    let seen = browse(
        &egret,
        r#"
        await open("config", "egret.yaml");
        const before = await page.until(`document.querySelector("textarea")?.value`);
        await page.type("textarea", before.replace("control:", "control:\n  allowed_hosts: [evil.example]"));
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
        return page.until(`document.querySelector("textarea")?.readOnly && ![...document.querySelectorAll("button")].some((button) => button.innerText === "Apply")`);
        "#,
    );
    assert_eq!(seen, true);
}
