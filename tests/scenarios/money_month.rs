//! A month of twenty teams: the provider's bill, the lines of the ledger, the sums of the page, the metric of
//! the dashboard and the budgets tell the same costs, to the nano-dollar. Prices change twice meanwhile, the
//! answers are in several dialects, and one team spends its budget.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use egret_tests::browser::browse;
use egret_tests::built_in::BuiltIn;
use egret_tests::clock::Clock;
use egret_tests::egret::{Config, Egret};
use egret_tests::process::Directory;
use egret_tests::recorded::lines;
use egret_tests::spending::used;
use egret_tests::wait::until_value;
use serde_json::{Value, json};

const TEAMS: usize = 20;
const DAYS: usize = 31;

/// Calls of each team on a day.
const CALLS: usize = 2;

/// Noon of the first day, 2026-03-01 in UTC, in seconds since 1970.
const FIRST_NOON_S: u64 = 1_772_366_400;
const DAY_S: u64 = 86_400;

/// Days on which prices come into force.
const PRICE_DAYS: [usize; 3] = [0, 11, 20];

/// Providers, whose names are those of their dialects, each with a target below its base URL and a body.
const ANSWERS: [(&str, &str, &str); 7] = [
    ("openai", "/v1/chat/completions?trap=true", r#"{"model":"chat"}"#),
    (
        "openai",
        "/v1/chat/completions?gzip=true",
        r#"{"model":"chat","stream":true,"stream_options":{"include_usage":true}}"#,
    ),
    ("openai", "/v1/responses?trap=true", r#"{"model":"answers","stream":true}"#),
    ("anthropic", "/v1/messages?gzip=true", r#"{"model":"claude"}"#),
    ("anthropic", "/v1/messages?trap=true", r#"{"model":"claude","stream":true}"#),
    ("gemini", "/v1beta/models/gemini:streamGenerateContent?alt=sse", "{}"),
    ("openrouter", "/api/v1/chat/completions?trap=true", r#"{"model":"routed","stream":true}"#),
];

const METRICS: &str = "{ labels: [consumer, provider], tokens: true }";

/// The names that costs are summed by.
const KINDS: [&str; 3] = ["consumer", "model", "provider"];

/// Costs in nano-dollars by kind and name.
type Sums = BTreeMap<(&'static str, String), u64>;

/// Pico-dollars for a token of input, of input read from a cache, written to it briefly and for an hour, and
/// of output. The last model has no price: its provider tells the cost of each call. Prices have odd
/// pico-dollars, so that costs are rounded.
fn prices(period: usize) -> Vec<(&'static str, [u64; 5])> {
    let models = [("chat", 1_250_013), ("answers", 2_000_031), ("claude", 3_000_007), ("gemini", 300_001)];
    let price = |(model, input): (&'static str, u64)| {
        let input = input + 111_111 * period as u64;
        (model, [input, input / 10 + 1, input * 5 / 4, input * 2 + 1, input * 8 + 3])
    };
    models.map(price).into()
}

/// The digest of the table that is in force in a period.
fn digest(period: usize) -> String {
    format!("a{period}").repeat(32)
}

/// A table of prices, as `egret prices import` writes it.
fn table(period: usize) -> String {
    let models: BTreeMap<&str, Value> = prices(period)
        .into_iter()
        .map(|(model, [input, read, written, written_1h, output])| {
            let picodollars = json!({
                "input": input, "cache_read": read, "cache_write": written, "cache_write_1h": written_1h, "output": output,
            });
            (model, json!({ "prices": [{ "picodollars": picodollars }] }))
        })
        .collect();
    let date = format!("2026-03-{:02}", PRICE_DAYS[period] + 1);
    json!({ "format": 1, "source": "a test", "date": date, "sha256": digest(period), "models": models })
        .to_string()
}

/// The gateway in March. Each team has a budget, and the first one uses eight times as much as the others.
fn start(provider: &BuiltIn, clock: &Clock, table: &Path) -> Egret {
    let mut config = Config::default();
    for dialect in ["openai", "anthropic", "gemini", "openrouter"] {
        let url = format!("http://{}/llm/{dialect}", provider.address());
        config = config.provider_with(dialect, url, &format!("preset: {dialect}"));
    }
    let config = config.flows(format!(
        "prices: {{ file: '{}' }}\n\
         exporters: {{ books: {{ type: lines, directory: ./ledger }} }}\n\
         quotas: {{ month: {{ limit: {}, unit: usd, kind: calendar, period: month, group_by: consumer, cost: {{ usage: usd }} }} }}\n\
         flows: [{{ name: models, remedies: [limit: month], diagnoses: [metrics: {METRICS}, ledger: books] }}]\n",
        table.display(),
        8 * CALLS,
    ));
    Egret::start_with(&config, |command| clock.govern(command))
}

/// Makes the calls of a team on a day. Returns the number of those that were not refused.
fn call(egret: &Egret, team: usize, day: usize) -> u64 {
    let mut client = egret.client();
    let mut made = 0;
    for number in (day * CALLS..(day + 1) * CALLS).map(|number| number * TEAMS + team) {
        let (provider, target, body) = ANSWERS[number % ANSWERS.len()];
        let input = number * 7919 % 100_003 * if team == 0 { 8 } else { 1 };
        let cached = [0, input / 3, input / 2][number % 3];
        let written = if provider == "anthropic" { (input - cached) / 2 } else { 0 };
        let output = number * 31 % 197;
        client.send(format!(
            "POST /{provider}{target}&consumer=team-{team:02}&input={input}&cached={cached}&written={written}&written_1h={}\
             &output={output}&reasoning={} HTTP/1.1\r\nhost: {}\r\nx-egret-consumer: team-{team:02}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            written / 3,
            output / 4,
            egret.address(),
            body.len()
        ));
        let response = client.any_response_to("POST");
        assert!(response.status == 200 || team == 0 && response.status == 402, "{target}: {response:?}");
        made += u64::from(response.status == 200);
    }
    made
}

/// Adds the bills of this period, by the provider's ledger from this entry on. Returns the number of entries.
fn add_bills(sums: &mut Sums, provider: &BuiltIn, from: usize, period: usize) -> usize {
    let ledger = provider.get("/llm/ledger?last=100000").json();
    let (calls, prices) = (ledger["calls"].as_array().unwrap(), BTreeMap::from_iter(prices(period)));
    assert_eq!((&ledger["dropped"], &ledger["under_way"]), (&json!(0), &json!(0)));
    for call in calls[from..].iter().filter(|call| call["status"] == 200) {
        let tokens = |part: &str| call[part].as_u64().unwrap();
        let cost = match prices.get(call["model"].as_str().unwrap()) {
            None => call["stated_cost_nanodollars"].as_u64().unwrap(),
            Some([input, read, written, written_1h, output]) => {
                let [cached, wrote, wrote_1h] = ["cache_read", "cache_write", "cache_write_1h"].map(tokens);
                let plain = tokens("input") - cached - wrote;
                let briefly = wrote - wrote_1h;
                let picodollars = plain * input
                    + cached * read
                    + briefly * written
                    + wrote_1h * written_1h
                    + tokens("output") * output;
                picodollars.div_ceil(1_000)
            }
        };
        for (kind, member) in [("consumer", "consumer"), ("model", "model"), ("provider", "dialect")] {
            *sums.entry((kind, call[member].as_str().unwrap().to_owned())).or_default() += cost;
        }
    }
    calls.len()
}

/// Returns the sums that the page reads.
fn spent(egret: &Egret) -> Sums {
    let rows = |kind: &'static str| {
        let spend = egret.control_get(&format!("/api/v1/spend?by={kind}&range=month")).json();
        let rows = spend["rows"].as_array().unwrap().clone();
        rows.into_iter().map(move |row| {
            ((kind, row["name"].as_str().unwrap().to_owned()), row["cost_nanodollars"].as_u64().unwrap())
        })
    };
    KINDS.into_iter().flat_map(rows).collect()
}

/// Returns the sums of the metric that the dashboard's queries read.
fn metered(egret: &Egret) -> Sums {
    let mut sums = Sums::new();
    let metrics = egret.control_get("/metrics");
    let lines =
        metrics.text().lines().filter_map(|line| line.strip_prefix("egret_llm_cost_nanodollars_total{"));
    for (labels, cost) in lines.map(|line| line.rsplit_once("} ").unwrap()) {
        for kind in KINDS {
            let (_, rest) = labels.split_once(&format!("{kind}=\"")).unwrap();
            let name = rest.split_once('"').unwrap().0.to_owned();
            *sums.entry((kind, name)).or_default() += cost.parse::<u64>().unwrap();
        }
    }
    sums
}

/// Returns the sums that the page shows of the last 31 days, and that of all calls.
fn shown(egret: &Egret, calls: u64) -> (Sums, u64) {
    let script = r#"
        await open("spend", "Spend");
        await page.until(`document.querySelector(".figure")`);
        await page.evaluate(`(() => {
          const select = [...document.querySelectorAll("label")].find((found) => found.innerText.startsWith("Time")).querySelector("select");
          select.value = "month";
          select.dispatchEvent(new Event("change", { bubbles: true }));
        })()`);
        await page.shows("in CALLS calls");
        return page.evaluate(`[
          [...document.querySelectorAll("table[aria-label=Spend] tbody tr")].map((row) => [row.cells[0].innerText, row.querySelector("b").title]),
          document.querySelector(".figure").title,
        ]`);
    "#;
    let calls = format!("{},{:03}", calls / 1_000, calls % 1_000);
    let seen = browse(egret, &script.replace("CALLS", &calls));
    let exactly = |title: &Value| -> u64 {
        let digits = title.as_str().unwrap().strip_suffix(" nano-dollars").unwrap().replace(',', "");
        digits.parse().unwrap()
    };
    let rows = seen[0].as_array().unwrap().iter();
    let rows = rows.map(|row| (("consumer", row[0].as_str().unwrap().trim().to_owned()), exactly(&row[1])));
    (rows.collect(), exactly(&seen[1]))
}

/// Stops the gateway. Returns the sums of its lines, and their number by table of prices.
fn written(mut egret: Egret) -> (Sums, BTreeMap<Option<String>, u64>) {
    egret.terminate();
    assert!(egret.until_ended().success());
    let (mut sums, mut tables) = (Sums::new(), BTreeMap::new());
    for line in lines(&egret.directory().join("ledger")) {
        let table = line["price_table"].as_str().map(str::to_owned);
        if let Some(table) = &table {
            let day: usize = line["time"].as_str().unwrap()[8..10].parse().unwrap();
            let period = PRICE_DAYS.iter().rposition(|first| day > *first).unwrap();
            assert_eq!(*table, digest(period), "{line}");
        }
        for kind in KINDS {
            let name = line[kind].as_str().unwrap().to_owned();
            *sums.entry((kind, name)).or_default() += line["cost_nanodollars"].as_u64().unwrap();
        }
        *tables.entry(table).or_default() += 1;
    }
    (sums, tables)
}

#[test]
fn all_who_tell_costs_agree_after_a_month_of_twenty_teams() {
    let (directory, provider) = (Directory::default(), BuiltIn::start(&[]));
    let Some(clock) = Clock::new(&directory, FIRST_NOON_S) else { return };
    let file = directory.write("prices.json", table(0));
    let egret = start(&provider, &clock, &file);
    let (mut billed, mut entries, mut period, made) = (Sums::new(), 0, 0, AtomicU64::new(0));
    for day in 0..DAYS {
        if PRICE_DAYS[1..].contains(&day) {
            entries = add_bills(&mut billed, &provider, entries, period);
            period += 1;
            let before = egret.stat("/reloads");
            directory.write("prices.json", table(period));
            until_value("the prices are in force", || egret.stat("/reloads"), |count| *count > before);
        }
        clock.set(FIRST_NOON_S + day as u64 * DAY_S);
        thread::scope(|scope| {
            for team in 0..TEAMS {
                let (egret, made) = (&egret, &made);
                scope.spawn(move || made.fetch_add(call(egret, team, day), Relaxed));
            }
        });
        // No call is written down after the clock has moved on.
        let summed = || egret.control_get("/api/v1/spend?range=month").json()["total"]["calls"].as_u64();
        let made = Some(made.load(Relaxed));
        until_value("the calls of the day are summed", summed, |summed| *summed == made);
    }
    add_bills(&mut billed, &provider, entries, period);
    let made = made.into_inner();
    until_value("the sums of the page are the bill", || spent(&egret), |spent| *spent == billed);
    until_value("the metric of the dashboard is the bill", || metered(&egret), |metered| *metered == billed);
    let of = |kind: &str| -> BTreeMap<String, u64> {
        let sums = billed.iter().filter(|((of, _), _)| *of == kind);
        sums.map(|((_, name), cost)| (name.clone(), *cost)).collect()
    };
    until_value("the budgets are charged the bill", || used(&egret), |used| *used == of("consumer"));
    let total: u64 = of("model").values().sum();
    let (rows, sum) = shown(&egret, made);
    let teams = billed.iter().filter(|((kind, _), _)| *kind == "consumer");
    assert_eq!((rows, sum), (teams.map(|(name, cost)| (name.clone(), *cost)).collect(), total));
    let (lines, tables) = written(egret);
    assert_eq!(lines, billed);
    assert_eq!((tables.values().sum::<u64>(), tables.len()), (made, PRICE_DAYS.len() + 1), "{tables:?}");
    assert!(made < (TEAMS * DAYS * CALLS) as u64, "one team has spent its budget");
    let dashboard = include_str!("../../packaging/observability/grafana/egret.json");
    for kind in ["consumer", "model"] {
        assert!(dashboard.contains(&format!("sum by ({kind}) (rate(egret_llm_cost_nanodollars_total{{")));
    }
    println!("{made} calls of {TEAMS} teams, {total} nano-dollars, difference 0");
}
