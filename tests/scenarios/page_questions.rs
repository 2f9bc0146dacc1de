//! The questions of a night that the page answers, on a telephone, a laptop and a large screen: which
//! consumer, since when, what the provider has said, whether it is slower than before, and whether a change
//! of the config came first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use egret_tests::browser::browse;
use egret_tests::egret::{Config, Egret};
use egret_tests::found::names;
use egret_tests::provider::{Provider, ok};
use egret_tests::timeline::pass;
use egret_tests::wait::{self, SetAtEnd};
use serde_json::{Value, json};

const PACE: Duration = Duration::from_millis(200);
const SLOW: Duration = Duration::from_millis(300);
/// Steps of the history that tell how fast a provider usually is, and those that do not yet.
const USUAL_STEPS: usize = 6;
const SAID: &str = "closed for inventory until six";

const SCRIPT: &str = r#"
const answers = [];
for (const [width, height] of [[390, 844], [1440, 900], [2560, 1440]]) {
  await page.look(width, height);
  await open("overview", "calls to orders fail");
  const faults = [];
  const check = async () => faults.push(...[await page.tooWide(), await page.axe()].flat());
  const all = (selector, read) => page.until(`(([...found]) => found.length > 0 && found.map((each) => ${read}))(document.querySelectorAll(${JSON.stringify(selector)}))`);
  const consumers = await all("table[aria-label=Consumers] tbody tr", "each.innerText");
  const findings = await all(".finding", `[each.querySelector("b").innerText, each.querySelector("time").dateTime, each.textContent]`);
  const events = await all(".events li", `[each.querySelector("time").dateTime, each.innerText]`);
  await page.click(".finding summary", "error");
  await check();
  await page.click("nav a", "Traffic");
  await page.click("table[aria-label^=Failed] a", "GET /v1/orders");
  await page.shows("Where the time went");
  const said = await page.evaluate("document.body.innerText");
  await check();
  answers.push({ width, consumers, findings, events, said, faults });
}
return answers;
"#;

/// A provider that says that it is closed, and one that is slow, once they are `is_broken`.
fn providers(is_broken: &Arc<AtomicBool>) -> [Provider; 2] {
    let [closed, slow] = [(); 2].map(|()| Arc::clone(is_broken));
    let orders = Provider::with_responses(move |_| {
        if !closed.load(SeqCst) {
            return ok("{}");
        }
        let head = "HTTP/1.1 503 Closed\r\nContent-Type: text/plain\r\nContent-Length:";
        format!("{head} {}\r\n\r\n{SAID}", SAID.len()).into_bytes()
    });
    let stock = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            if slow.load(SeqCst) {
                peer.pause(SLOW);
            }
            peer.send(ok("{}"));
        }
    });
    [orders, stock]
}

fn call(egret: &Egret, path: &str, consumer: &str) {
    egret.get_with(path, &format!("X-Egret-Consumer: {consumer}\r\n"));
}

/// Calls both providers until the page has answered. They fail once it is known how fast they usually are.
fn answers() -> Value {
    let (is_broken, is_over) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let [orders, stock] = providers(&is_broken);
    let config = Config::default().provider("orders", orders.url()).provider("stock", stock.url());
    let egret = config.start();
    thread::scope(|scope| {
        let _ending = SetAtEnd(&is_over);
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                call(&egret, "/orders/v1/orders", "checkout");
                call(&egret, "/stock/v1/items", "batch");
                pass(PACE);
            }
        });
        let steps = || egret.control_get("/api/v1/history").json()["times_s"].as_array().map_or(0, Vec::len);
        wait::until_value("the usual times are known", steps, |steps| *steps >= USUAL_STEPS);
        egret.change_config(config.flows("quotas: { live: { limit: 5, window: 1h } }\n").yaml());
        is_broken.store(true, SeqCst);
        let found = || names(&egret);
        wait::until_value("both are found", found, |found| {
            ["provider-failing: orders", "provider-slow: stock"]
                .iter()
                .all(|name| found.iter().any(|is| is == name))
        });
        browse(&egret, SCRIPT)
    })
}

#[test]
fn the_page_answers_the_questions_of_a_night_at_each_width() {
    let answers = answers();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for answer in answers.as_array().unwrap() {
        let width = &answer["width"];
        assert_eq!(answer["faults"], json!([]), "{width}");
        let rows: Vec<String> = answer["consumers"].as_array().unwrap().iter().map(text).collect();
        let of = |name: &str| rows.iter().find(|row| row.contains(name)).unwrap();
        assert!(of("checkout").contains('%') && of("batch").contains("none"), "{width}: {rows:?}");
        let findings = answer["findings"].as_array().unwrap();
        let of = |part: &str| findings.iter().find(|found| text(&found[0]).contains(part)).unwrap();
        let (failing, slow) = (of("calls to orders fail"), of("times as slow as usual"));
        assert!(text(&slow[2]).contains("ms in the hour before"), "{width}: {slow}");
        // Both times are of RFC 3339 in UTC, so their order is that of their texts.
        let events: Vec<[String; 2]> = answer["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| [text(&event[0]), text(&event[1])])
            .collect();
        let applied = events.iter().find(|[_, what]| what.contains("a config was applied")).unwrap();
        assert!(applied[0] <= text(&failing[1]), "{width}: {events:?} {failing}");
        assert!(events.iter().any(|[_, what]| what.contains("calls to orders fail")), "{width}: {events:?}");
        let said = text(&answer["said"]);
        assert!(said.contains(SAID) && said.contains("checkout"), "{width}: {said}");
    }
    assert_eq!(answers.as_array().unwrap().len(), 3);
}
