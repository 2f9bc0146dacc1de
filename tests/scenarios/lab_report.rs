//! `egret lab report` and `compare`: a page that a browser renders, and the same numbers in the notebook.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use egret_tests::browser::browse_file;
use egret_tests::egret::egret;
use egret_tests::peers::{notebook, python};
use egret_tests::process::{Directory, run, run_checked};
use serde_json::Value;

/// Two cases with different provider times, two scenarios, two rounds: this gives every kind of chart except
/// one.
const EXPERIMENT: &str = "title: Twice around\nprovider: { path: \"/delay/@{delay_s}\" }\n\
    client: { kind: ab, requests: 60, concurrency: 10, warm_up_requests: 10 }\nrounds: 2\n\
    cases: [{ name: short, delay: 10ms }, { name: long, delay: 40ms }]\n\
    scenarios: [{ name: direct }, { name: no-flow, egret: no-flow.yaml }]\n\
    tables: [{ title: Both of them, loaded: short, at_rate: long }]\n";

const NO_FLOW: &str = "gateway: { listen: [{ address: \"127.0.0.1:@{port}\", provider: api }], workers: 1 }\n\
    control: { listen: \"127.0.0.1:@{control_port}\" }\n\
    providers: { api: { url: \"http://127.0.0.1:@{provider_port}\" } }\n";

/// Returns a folder with a report, created once for all tests here.
fn reported() -> &'static Path {
    static RESULTS: OnceLock<PathBuf> = OnceLock::new();
    RESULTS.get_or_init(|| {
        // A static is never dropped, so the folder is in the build directory, and the next run replaces it.
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-report");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("no-flow.yaml"), NO_FLOW).unwrap();
        let file = directory.join("twice.yaml");
        std::fs::write(&file, EXPERIMENT).unwrap();
        let out = directory.join("out");
        let printed = run_checked(egret(["lab", "run"]).arg(file).arg("--out").arg(&out));
        assert!(printed.contains("out/report.html"), "{printed}");
        assert!(
            printed.contains("\nBoth of them\n\n| proxy ") && printed.contains("\n| no-flow |"),
            "{printed}"
        );
        out
    })
}

fn summary(results: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(results.join("summary.json")).unwrap()).unwrap()
}

/// Returns the elements of one chart in a page.
fn chart<'a>(page: &'a str, name: &str) -> &'a str {
    let start = page.find(&format!("data-name=\"{name}\"")).unwrap_or_else(|| panic!("no chart {name}"));
    let end = page[start..].find("</svg>").unwrap();
    &page[start..start + end]
}

#[test]
fn the_report_shows_charts_with_axes_units_legends_and_all_lines() {
    let results = reported();
    let read = r#"return page.evaluate("document.documentElement.outerHTML")"#;
    let page = browse_file(&results.join("report.html"), 1440, read);
    let page = page.as_str().unwrap();
    for (name, lines, names, units) in [
        (
            "provider-time-no-flow",
            4,
            &["direct", "p50", "p90", "p95", "p99"][..],
            ["provider time, ms", "added to direct, ms"],
        ),
        (
            "short-response",
            2,
            &["direct", "no-flow"],
            ["share of requests completed, %", "response time, ms"],
        ),
        ("long-added", 1, &["direct", "no-flow"], ["share of requests completed, %", "added to direct, ms"]),
    ] {
        let chart = chart(page, name);
        assert_eq!(chart.matches("class=\"line ").count(), lines, "{name}");
        assert_eq!(chart.matches("class=\"axis ").count(), 2, "{name}");
        assert!(chart.matches("class=\"tick\"").count() >= 6, "{name}");
        for unit in units {
            assert!(chart.contains(&format!(">{unit}</text>")), "{name}: {unit}");
        }
        for entry in names {
            assert!(
                chart.contains(&format!("y=\"68.0\" text-anchor=\"start\">{entry}</text>")),
                "{name}: {entry}\n{chart}"
            );
        }
    }
    for (name, bars) in [("short-throughput", 2), ("short-cpu", 1), ("long-memory", 1)] {
        assert_eq!(chart(page, name).matches("class=\"bar ").count(), bars, "{name}");
    }
    assert!(page.contains("too few rounds to detect a correlation with provider time"), "{page}");
    assert_eq!(page.matches("<tr><td>").count(), 6);
    assert!(results.join("charts/overview-short.svg").exists());
    let turns = std::fs::read_to_string(results.join("turns.csv")).unwrap();
    assert!(turns.starts_with("round,case,scenario,") && turns.lines().count() == 9, "{turns}");
    for chart in std::fs::read_dir(results.join("charts")).unwrap() {
        let svg = std::fs::read_to_string(chart.unwrap().path()).unwrap();
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.contains("<style>"));
    }
}

#[test]
fn a_browser_paints_the_lines_in_light_and_dark() {
    let directory = Directory::default();
    let page = reported().join("report.html");
    for (scheme, paper, line) in
        [("light", [255, 255, 255], [14, 116, 144]), ("dark", [17, 24, 39], [34, 211, 238])]
    {
        let file = directory.join(&format!("{scheme}.png"));
        let picture = file.to_str().unwrap();
        let script = format!(
            "await page.look(1400, 2200, {scheme:?}); await page.screenshot({picture:?}); return null;"
        );
        browse_file(&page, 1400, &script);
        let script = "import sys, numpy as np\nfrom PIL import Image\n\
            pixels = np.asarray(Image.open(sys.argv[1]).convert('RGB')).astype(int)\n\
            print(*((np.abs(pixels - [int(c) for c in colour.split(',')]).max(axis=2) < 6).sum() for colour in sys.argv[2:]))";
        let [paper, line] =
            [paper, line].map(|colour: [u8; 3]| colour.map(|part| part.to_string()).join(","));
        let counted = python(script, &[picture, &paper, &line]);
        let counts: Vec<u32> = counted.split_ascii_whitespace().map(|count| count.parse().unwrap()).collect();
        assert!(counts[0] > 500_000 && counts[1] > 3_000, "{scheme}: {counted}");
    }
}

#[test]
fn a_phone_shows_everything_or_scrolls_it_in_its_box() {
    let page = reported().join("report.html");
    for width in [390, 1440] {
        let seen = browse_file(
            &page,
            width,
            r#"return await page.evaluate(`(() => {
              const inBox = (found) => found.closest(".scroll, figure");
              const scrolls = (box) => getComputedStyle(box).overflowX === "auto" || box.scrollWidth <= box.clientWidth;
              const all = [...document.querySelectorAll("body *")];
              return {
                page: document.documentElement.scrollWidth <= innerWidth,
                outside: all.filter((found) => !inBox(found) && found.getBoundingClientRect().right > innerWidth + 1).length,
                boxes: [...document.querySelectorAll(".scroll, figure")].filter((box) => !scrolls(box)).length,
                tables: document.querySelectorAll(".scroll table").length,
                letters: Math.min(...[...document.querySelectorAll("svg text")].map((text) => text.getBoundingClientRect().height)),
                headline: document.querySelector(".headline").innerText,
              };
            })()`);"#,
        );
        assert_eq!(
            (&seen["page"], &seen["outside"], &seen["boxes"]),
            (&true.into(), &0.into(), &0.into()),
            "{width}"
        );
        assert!(seen["tables"].as_u64().unwrap() >= 3, "{seen}");
        assert!(seen["letters"].as_f64().unwrap() >= 10.0, "labels of charts are legible: {seen}");
        assert_eq!(seen["headline"], "A first look: too few rounds for a conclusion.");
    }
}

#[test]
fn the_notebook_has_the_same_numbers() {
    let results = reported();
    let directory = Directory::default();
    let numbers = directory.join("numbers.json");
    notebook("footprint.ipynb", &[("RESULTS", results), ("NUMBERS", &numbers)], directory.path());
    let numbers: Value = serde_json::from_str(&std::fs::read_to_string(numbers).unwrap()).unwrap();
    let summary = summary(results);
    let same = |a: &Value, b: &Value, what: &str| {
        let (a, b) = (a.as_f64().unwrap_or_else(|| panic!("{what}: {a}")), b.as_f64().unwrap());
        assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{what}: {a} and {b}");
    };
    for case in summary["cases"].as_array().unwrap() {
        for scenario in case["scenarios"].as_array().unwrap() {
            let name =
                format!("{}/{}", case["case"].as_str().unwrap(), scenario["scenario"].as_str().unwrap());
            let own = &numbers[&name];
            same(&own["requests_per_second"], &scenario["requests_per_second"]["value"], &name);
            let is_direct = scenario["scenario"] == "direct";
            for kind in if is_direct { &["response_ms"][..] } else { &["response_ms", "added_ms"] } {
                for percentile in [50, 90, 99] {
                    for bound in ["value", "low", "high"] {
                        let what = format!("{name} {kind} p{percentile} {bound}");
                        same(
                            &own[kind][percentile.to_string()][bound],
                            &scenario[kind][percentile][bound],
                            &what,
                        );
                    }
                }
            }
            if !is_direct {
                same(&own["cpu_us_per_request"], &scenario["cpu_us_per_request"]["value"], &name);
                same(&own["memory_mib"], &scenario["memory_mib"]["value"], &name);
            }
        }
    }
    let slopes = summary["slopes"].as_array().unwrap();
    assert_eq!(slopes.len(), 4);
    for slope in slopes {
        let name = format!("no-flow/p{}", slope["percentile"]);
        same(&numbers["slopes"][&name], &slope["ms_per_s"]["value"], &name);
    }
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let results = reported();
    let output = run(egret(["lab", "compare"]).arg(results).arg(results));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("long no-flow") && printed.contains("Too few rounds"), "{printed}");
    let empty = Directory::default();
    for mut command in [egret(["lab", "report"]), egret(["lab", "compare", "/no/such"])] {
        let output = run(command.arg(empty.path()));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("not a results folder"), "{stderr}");
    }
}

#[test]
fn a_run_that_is_not_whole_is_reported_as_such() {
    let copy = Directory::default();
    let target = copy.join("half");
    run_checked(Command::new("cp").arg("-r").arg(reported()).arg(&target));
    std::fs::remove_dir_all(target.join("turns/02-long-no-flow")).unwrap();
    let printed = run_checked(egret(["lab", "report"]).arg(&target));
    assert!(printed.contains("Incomplete: 7 of 8 turns were run."), "{printed}");
    assert_eq!(summary(&target)["whole"], false);
}
