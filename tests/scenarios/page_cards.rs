//! The page's card about the interception of HTTPS, with calls inside of tunnels.

use egret_tests::browser::browse;
use egret_tests::intercepted::{Intercepting, SecureProvider, config};
use egret_tests::provider::Provider;

#[test]
fn the_interception_card_has_the_hosts_the_calls_and_the_root_certificate() {
    let origin = Provider::plain();
    let secure = SecureProvider::before(&origin.url());
    let rest = "interception: { hosts: [api.example], tunnel: [\"*.bank.example\"] }\n";
    let intercepting = Intercepting::start(&config(&secure, rest), &secure);
    for path in ["/a", "/b"] {
        assert_eq!(intercepting.get(&secure, path).status, 200);
    }
    let seen = browse(
        &intercepting.egret,
        r#"
        await open("overview", "Interception of HTTPS");
        const card = `[...document.querySelectorAll(".card")].find((card) => card.innerText.startsWith("Interception"))`;
        const text = await page.until(`${card}.innerText.includes("*.bank.example") && ${card}.innerText`);
        await page.evaluate(`navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }`);
        await page.click("button", "Copy the root certificate");
        return [text, await page.until("window.copied"), await page.axe()];
        "#,
    );
    let text = seen[0].as_str().unwrap();
    for expected in [
        "tunnels served\n2",
        "requests inside\n2",
        "api.example",
        "*.bank.example",
        "the authority is valid for",
    ] {
        assert!(text.contains(expected), "{expected} is missing: {text}");
    }
    let ca = std::fs::read_to_string(intercepting.ca()).unwrap();
    assert_eq!(seen[1].as_str().unwrap().trim(), ca.trim());
    assert!(!seen[1].as_str().unwrap().contains("PRIVATE"));
    assert_eq!(seen[2], serde_json::json!([]));
}

#[test]
fn gateways_without_interception_and_cluster_show_no_cards_for_them() {
    let origin = Provider::plain();
    let egret = egret_tests::egret::Config::with_origin(origin.url()).start();
    let seen = browse(
        &egret,
        r#"
        await open("overview", "Providers");
        await page.until(`performance.getEntriesByName("${control}/api/v1/cluster").length > 0`);
        return page.evaluate(`document.body.innerText.includes("Interception") || document.body.innerText.includes("Cluster")`);
        "#,
    );
    assert_eq!(seen, false);
}
