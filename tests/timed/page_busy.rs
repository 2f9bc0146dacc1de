//! The list of calls under load: it stays usable, says that it shows a sample, and holds no traffic up.

use std::time::Instant;

use egret_tests::browser::browse;
use egret_tests::egret::Config;
use egret_tests::load::Load;
use egret_tests::provider::Provider;
use serde_json::Value;

/// Measures the processor time of the page, the tasks that block it and the frames that it draws, while `act`
/// runs.
const MEASURED: &str = r#"
    const measured = async (act) => {
      await page.evaluate(`(() => {
        window.tasks = []; window.frames = 0;
        window.watcher = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)));
        watcher.observe({ entryTypes: ["longtask"] });
        const frame = () => { frames += 1; requestAnimationFrame(frame); };
        requestAnimationFrame(frame);
        window.begun = performance.now();
      })()`);
      const before = await page.cpuMs();
      await act();
      const cpu_ms = (await page.cpuMs()) - before;
      return { cpu_ms, ...(await page.evaluate(`({ seconds: (performance.now() - begun) / 1000, frames, longest_ms: Math.max(0, ...tasks), blocked_ms: tasks.reduce((sum, task) => sum + task, 0) })`)) };
    };
"#;

/// Lines that the page is given.
const LINES_PER_SECOND: f64 = 10_000.0;
/// Largest part of a processor's time that the page may take: beyond it, a page falls behind and does not
/// react. The longest task is only printed, because other programs take the processor too.
const BUSY_MAX: f64 = 0.7;

fn assert_not_busy(seen: &Value) {
    let figure = |name: &str| seen[name].as_f64().unwrap();
    assert!(figure("cpu_ms") < BUSY_MAX * 1_000.0 * figure("seconds"), "{seen}");
    assert!(figure("frames") >= 1.0, "{seen}");
}

#[test]
fn traffic_at_full_speed_is_sampled_with_a_notice() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let load = Load::without_pause(egret.address(), "/origin/busy", 32, true);
    let begun = Instant::now();
    let script = r#"
        await open("traffic", "Traffic");
        const rows = `[...document.querySelectorAll("tbody th")].filter((row) => row.innerText.includes("/busy")).length`;
        await page.until(`${rows} >= 200`);
        const notice = `document.querySelector(".card .title p").innerText`;
        const figures = await measured(() => page.pass(4000));
        const sampled = await page.until(`/one of [\\d,]+ exchanges/.test(${notice}) && ${notice}`);
        await page.click("button", "Pause");
        await page.until(`document.querySelector("button[aria-pressed=true]")?.innerText === "Resume"`);
        const first = `document.querySelector("tbody th a").href`;
        const before = await page.evaluate(first);
        await page.pass(600);
        const isPaused = before === (await page.evaluate(first));
        return { ...figures, notice: sampled, isPaused };
        "#;
    let seen = browse(&egret, &format!("{MEASURED}{script}"));
    let seconds = begun.elapsed().as_secs_f64();
    let tally = load.finish();
    println!(
        "{:.0} exchanges/s with the list open; {seen}",
        f64::from(u32::try_from(tally.completed).unwrap()) / seconds
    );
    assert_eq!((tally.completed, &tally.failures[..]), (tally.sent, &[][..]), "every call has its response");
    assert_not_busy(&seen);
    assert_eq!(seen["isPaused"], true);
}

#[test]
fn the_list_stays_usable_with_ten_thousand_lines_a_second() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let script = r##"
        await open("traffic", "Exchange");
        const found = `document.querySelector("tbody th a")`;
        await until(`${found} !== null`, () => fetch(`${gateway}/origin/real`));
        const line = await page.evaluate(`(async () => {
          const token = sessionStorage.getItem("egret-control-token");
          const response = await fetch("/api/v1/traffic?limit=1", { headers: { authorization: "Bearer " + token } });
          return JSON.stringify((await response.json()).exchanges[0]);
        })()`);
        // The stream from here on: the same call, ten thousand times a second.
        await page.evaluate(`(() => {
          const ask = window.fetch;
          window.given = 0;
          window.fetch = (url, init) => {
            if (!String(url).startsWith("/api/v1/traffic/stream")) return ask(url, init);
            const exchange = ${line}, encoder = new TextEncoder(), begun = performance.now();
            exchange.url = exchange.url.replace("/real", "/given");
            const body = new ReadableStream({
              async pull(controller) {
                await new Promise((resolve) => setTimeout(resolve, 5));
                const due = Math.floor((performance.now() - begun) * 10);
                let lines = "";
                for (; window.given < due; window.given++) lines += JSON.stringify({ ...exchange, id: 1e6 + window.given }) + "\\n";
                if (lines !== "") controller.enqueue(encoder.encode(lines)); else controller.enqueue(encoder.encode("\\n"));
              },
            });
            return Promise.resolve(new Response(body));
          };
        })()`);
        await page.evaluate(`location.hash = "#/overview"`);
        await page.shows("Providers");
        await page.evaluate(`location.hash = "#/traffic"`);
        await page.until(`document.querySelector("tbody th")?.innerText.includes("/given")`);
        const before = await page.evaluate("given");
        const figures = await measured(() => page.pass(4000));
        const given = (await page.evaluate("given")) - before;
        await page.click("button", "Pause");
        await page.until(`document.querySelector("button[aria-pressed=true]") !== null`);
        const rows = await page.evaluate(`document.querySelectorAll("tbody tr").length`);
        const heap = await page.evaluate(`performance.memory.usedJSHeapSize`);
        return { ...figures, given, rows, heap_mib: heap / 2 ** 20 };
        "##;
    let seen = browse(&egret, &format!("{MEASURED}{script}"));
    println!("the page reads lines at full speed: {seen}");
    let figure = |name: &str| seen[name].as_f64().unwrap();
    assert!(figure("given") >= 0.9 * LINES_PER_SECOND * figure("seconds"), "{seen}");
    assert_not_busy(&seen);
    assert!((1.0..=200.0).contains(&figure("rows")) && figure("heap_mib") < 256.0, "{seen}");
}
