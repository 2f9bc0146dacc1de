//! Tests of reports on synthetic runs with known figures, by their sentences and charts.

use super::*;
use crate::counters::ProviderCounters;
use crate::fixture::results as run;

fn percent_f64(percent: usize) -> f64 {
    f64::from(u32::try_from(percent).unwrap())
}

fn scenario_f64(scenario: usize) -> f64 {
    percent_f64(scenario)
}

/// A machine that slows down by 10 ms per round. The second scenario adds 0.1 ms plus 0.01 ms per round.
fn drifting(_: usize, scenario: usize, round: u32, percent: usize) -> f64 {
    let round = f64::from(round);
    150.0 + 10.0 * round + percent_f64(percent) / 10.0 + scenario_f64(scenario) * (0.1 + round / 100.0)
}

const TWO: &str =
    "title: t\nprovider: {}\nscenarios: [{ name: direct }, { name: proxy, command: [x] }]\nrounds: 5\n";

#[test]
fn added_latency_is_found_despite_a_drifting_machine() {
    let summary = Summary::of(&run(TWO, 20.0, drifting));
    let proxy = summary.cases[0].scenario("proxy").unwrap();
    assert_eq!((proxy.response_ms.len(), proxy.added_ms.len()), (101, 101));
    assert!((proxy.added_ms[99].value - 0.13).abs() < 1e-9);
    assert_eq!(
        summary.verdict,
        [
            "`proxy` adds 0.130 ms ± 0.020 at p99; adds 0.130 ms ± 0.020 at p95; adds 0.130 ms ± 0.020 at p50 (94 % confidence, 5 rounds)."
        ]
    );
    assert_eq!(summary.doubts, Vec::<String>::new());
    assert_eq!(
        summary.added().unwrap().to_string(),
        "Added to direct\n\n\
         | scenario | p50, ms        | p95, ms        | p99, ms        |\n\
         | -------- | -------------- | -------------- | -------------- |\n\
         | proxy    | +0.130 ± 0.020 | +0.130 ± 0.020 | +0.130 ± 0.020 |\n"
    );
    assert!(proxy.percentiles_csv().starts_with("Percentage served,Time in ms\n0,180.130\n"));
    assert_eq!(proxy.percentiles_csv().lines().count(), 102);
}

#[test]
fn no_difference_and_too_few_rounds_are_called_so() {
    let same = Summary::of(&run(TWO, 20.0, |_, scenario, round, _| {
        150.0 + scenario_f64(scenario) * (f64::from(round) - 3.0) / 10.0
    }));
    assert!(
        same.verdict[0]
            .starts_with("`proxy` shows no measurable difference from direct at p99: +0.00 ms ± 0.20;"),
        "{:?}",
        same.verdict
    );
    let few = Summary::of(&run(&TWO.replace("rounds: 5", "rounds: 3"), 20.0, drifting));
    assert!(few.verdict[0].contains(" at p95 and "), "{:?}", few.verdict);
    assert!(few.verdict[0].ends_with("(3 rounds: too few for a verdict)."), "{:?}", few.verdict);
    assert!(few.doubts[0].contains("Fewer than 5 rounds"), "{:?}", few.doubts);
}

#[test]
fn the_headline_is_a_conclusion() {
    let headline =
        |text: &str, time: fn(usize, usize, u32, usize) -> f64| Summary::of(&run(text, 20.0, time)).headline;
    assert_eq!(headline(TWO, drifting), "`proxy` adds 0.130 ms to direct at p99.");
    let faster = |_: usize, scenario: usize, _: u32, _: usize| 150.0 - scenario_f64(scenario);
    let saved = "Nothing is added to direct at p99: kept connections to the provider save time.";
    assert_eq!(headline(TWO, faster), saved);
    let alike = |_: usize, _: usize, _: u32, _: usize| 150.0;
    assert_eq!(headline(TWO, alike), "No difference from direct could be measured at p99.");
    let few = TWO.replace("rounds: 5", "rounds: 3");
    assert_eq!(headline(&few, drifting), "A first look: too few rounds for a conclusion.");
    let three = TWO.replace("{ name: proxy,", "{ name: other, command: [y] }, { name: proxy,");
    assert_eq!(headline(&three, drifting), "At most 0.260 ms are added to direct at p99 (`proxy`).");
}

#[test]
fn with_bounds_the_headline_is_about_them() {
    let headline = |hold: &str| Summary::of(&run(&format!("{TWO}hold: [{hold}]\n"), 20.0, drifting)).headline;
    let held = "{ scenario: proxy, figures: [proxy_cpu], at_most: 20 }";
    let broken = "{ scenario: proxy, figures: [proxy_cpu], at_most: 19 }";
    assert_eq!(headline(held), "The figure is within its bound.");
    assert_eq!(headline(&format!("{held}, {held}")), "All 2 figures are within their bounds.");
    let one = "1 of 2 figures is beyond its bound: CPU/request of `proxy` in `default`.";
    assert_eq!(headline(&format!("{held}, {broken}")), one);
    assert_eq!(headline(&format!("{broken}, {broken}")), "2 of 2 figures are beyond their bounds.");
}

const DELAYS: &str = "title: t\nprovider: { path: '/delay/@{delay_s}' }\n\
    scenarios: [{ name: direct }, { name: proxy, command: [x] }]\nrounds: 5\n\
    cases: [{ name: a, delay: 200ms }, { name: b, delay: 300ms }, { name: c, delay: 1s }]\n";

#[test]
fn growth_with_provider_time_is_told_from_none() {
    let delays = [0.2, 0.3, 1.0];
    let grows = Summary::of(&run(DELAYS, 20.0, |case, scenario, _, _| {
        delays[case] * 1e3 + scenario_f64(scenario) * (1.0 + 2.0 * delays[case])
    }));
    let p99 = grows.slopes.iter().find(|slope| slope.percentile == 99).unwrap();
    assert!((p99.ms_per_s.value - 2.0).abs() < 1e-9 && (p99.spread_ms - 1.6).abs() < 1e-9, "{p99:?}");
    assert!(
        grows.verdict[0]
            .starts_with("`proxy` is correlated with provider time (per second of it: p50 +2.000 ms ± 0.000"),
        "{:?}",
        grows.verdict
    );
    let level = Summary::of(&run(DELAYS, 20.0, |case, scenario, round, _| {
        let noise = if (case + usize::try_from(round).unwrap()).is_multiple_of(2) { 0.1 } else { -0.1 };
        delays[case] * 1e3 + scenario_f64(scenario) * (1.0 + noise)
    }));
    assert!(
        level.verdict[0].starts_with("`proxy`: no correlation with provider time (per second of it: p50 "),
        "{:?}",
        level.verdict
    );
}

const RATES: &str = "title: t\nprovider: {}\nscenarios: [{ name: direct }, { name: proxy, command: [x] }]\nrounds: 5\n\
    cases: [{ name: a, client: { requests_per_second: 1000 } }, { name: b, client: { requests_per_second: 2000 } },\n\
    { name: c, client: { requests_per_second: 4000 } }]\n";

#[test]
fn the_knee_is_the_last_rate_that_is_carried() {
    let summary = Summary::of(&run(
        RATES,
        20.0,
        |case, scenario, _, _| if case == 2 && scenario == 1 { 80.0 } else { 2.0 },
    ));
    assert_eq!(
        summary.verdict[..2],
        [
            "`direct` sustains 4000 requests/s with p99 within 3 × that of the lowest rate, and no knee was reached.",
            "`proxy` sustains 2000 requests/s with p99 within 3 × that of the lowest rate, and the next rate is beyond its knee.",
        ]
    );
}

#[test]
fn every_chart_has_its_lines_axes_and_units() {
    let results = run(DELAYS, 20.0, drifting);
    let summary = Summary::of(&results);
    let sections = page::sections(&summary);
    let charts: Vec<_> = sections.iter().flat_map(|section| &section.charts).collect();
    let named = |name: &str| charts.iter().find(|chart| chart.name == name).unwrap().file();
    let count = |text: &str, what: &str| text.matches(what).count();
    for (name, lines, units) in [
        ("provider-time-proxy", 4, ["provider time, ms", "added to direct, ms"]),
        ("provider-times-proxy", 3, ["share of requests completed, %", "added to direct, ms"]),
        ("a-response", 2, ["share of requests completed, %", "response time, ms"]),
        ("a-added", 1, ["share of requests completed, %", "added to direct, ms"]),
    ] {
        let svg = named(name);
        assert_eq!(count(&svg, "<g class=\"line "), lines, "{name}");
        let entries = lines + usize::from(units[1].starts_with("added"));
        assert_eq!(count(&svg, "<g class=\"entry "), entries, "{name}");
        assert!(units.iter().all(|unit| svg.contains(&format!(">{unit}</text>"))), "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        assert_eq!(count(&svg, "<g "), count(&svg, "</g>"), "{name}");
    }
    let overlay = named("provider-times-proxy");
    for delay in ["200 ms", "300 ms", "1000 ms"] {
        assert!(overlay.contains(&format!("data-name=\"{delay}\"")), "{delay}");
    }
    let headings: Vec<&str> = sections[0].charts.iter().map(|chart| chart.name.as_str()).collect();
    assert_eq!(headings, ["provider-times-proxy", "provider-time-proxy"], "side by side");
    assert_eq!(count(&named("c-added-at"), "<g class=\"bar "), 3);
    assert_eq!(count(&named("c-throughput"), "<g class=\"bar "), 2);
    assert_eq!(count(&named("c-cpu"), "<g class=\"bar "), 1);
    let page = page::page(&results, &summary, &sections);
    assert_eq!(count(&page, "<svg "), charts.len());
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("<link"));
}

#[test]
fn bars_of_saved_time_reach_to_the_left_of_zero() {
    let saves = |_: usize, scenario: usize, round: u32, _: usize| {
        150.0 + f64::from(round) * (1.0 - scenario_f64(scenario)) - 2.0 * scenario_f64(scenario)
    };
    let summary = Summary::of(&run(TWO, 20.0, saves));
    assert!(summary.verdict[0].starts_with("`proxy` saves "), "{:?}", summary.verdict);
    let sections = page::sections(&summary);
    let charts = sections.iter().flat_map(|section| &section.charts);
    let svg = charts.clone().find(|chart| chart.name == "default-added-at").unwrap().file();
    for name in ["p50 proxy", "p95 proxy", "p99 proxy"] {
        assert!(svg.contains(&format!("<g class=\"bar s0\" data-name=\"{name}\">")), "{name}");
    }
    assert!(svg.contains("class=\"zero\"") && svg.contains(">−5.00</text>"), "{svg}");
    assert!(!svg.contains("width=\"-"), "no bar has a negative width: {svg}");
    let summary = Summary::of(&run(TWO, 20.0, drifting));
    let sections = page::sections(&summary);
    let mut charts = sections.iter().flat_map(|section| &section.charts);
    assert!(!charts.find(|chart| chart.name == "default-cpu").unwrap().file().contains("\"zero\""));
}

#[test]
fn two_runs_differ_beyond_noise_and_tolerance() {
    let noisy = |offset: f64| {
        move |_: usize, scenario: usize, round: u32, _: usize| {
            10.0 + f64::from(round) / 100.0 + scenario_f64(scenario) * offset
        }
    };
    let a = Summary::of(&run(TWO, 20.0, noisy(1.0)));
    let same = compare(&a, &a, 0.05);
    assert!(
        !same.differs()
            && same
                .to_string()
                .ends_with("do not differ: no figure changed significantly and by more than 5 %.\n")
    );
    let b = Summary::of(&run(TWO, 25.0, noisy(2.0)));
    let worse = compare(&a, &b, 0.05);
    assert!(worse.is_worse(), "{worse}");
    let figures: Vec<&str> =
        worse.differences.iter().filter(|found| found.is_worse(0.05)).map(|found| found.figure).collect();
    assert_eq!(figures, ["added p50 ms", "added p99 ms", "p50 ms", "p99 ms", "CPU µs/request"]);
    let better = compare(&b, &a, 0.05);
    assert!(better.differs() && !better.is_worse(), "{better}");
    assert!(!compare(&a, &b, 0.5).differs());
}

#[test]
fn scenarios_of_only_one_run_are_named() {
    let a = Summary::of(&run(TWO, 20.0, drifting));
    let mut b = a.clone();
    b.cases[0].scenarios.pop();
    assert_eq!(compare(&a, &b, 0.05).unmatched, ["default proxy: only in the first"]);
    assert_eq!(compare(&b, &a, 0.05).unmatched, ["default proxy: only in the second"]);
}

/// The verdicts for two scenarios whose times differ by `apart` ms at every percentile.
fn held(apart: f64, hold: &str) -> Vec<BoundedFigure> {
    let text = format!(
        "title: t\nprovider: {{}}\nscenarios: [{{ name: a }}, {{ name: b }}]\nrounds: 7\nhold:\n  - {hold}\n"
    );
    let results = run(&text, 10.0, |_, scenario, round, percent| {
        let own = if scenario == 0 { apart } else { 0.0 };
        100.0 + f64::from(round) + f64::from(u32::try_from(percent).unwrap()) / 10.0 + own
    });
    Summary::of(&results).held
}

#[test]
fn figures_are_held_within_their_bound_and_only_there() {
    let within = "{ scenario: a, beside: [b], figures: [p50, p99], within: { percent: 2, ms: 0.2 } }";
    let near = held(1.0, within);
    assert_eq!(near.len(), 2);
    assert!(near.iter().all(|held| held.holds() && held.is_sure() && held.verdict() == "held"), "{near:?}");
    for apart in [9.0, -9.0] {
        assert!(held(apart, within).iter().all(|held| held.verdict() == "NOT HELD"), "{apart}");
    }
    let ratio = |bound: &str| {
        let hold = format!("{{ scenario: a, beside: [b], figures: [p50], {bound} }}");
        held(10.0, &hold).first().map(|held| (held.holds(), held.bound()))
    };
    assert_eq!(ratio("at_most: 1"), Some((false, "≤ 1.00 ×".into())));
    assert_eq!(ratio("at_most: 1.2"), Some((true, "≤ 1.20 ×".into())));
    assert_eq!(ratio("at_least: 1"), Some((true, "≥ 1.00 ×".into())));
    assert_eq!(ratio("added_ms_at_most: 9.5"), Some((false, "≤ 9.50 ms".into())));
    assert_eq!(ratio("added_ms_at_most: 10.5"), Some((true, "≤ 10.5 ms".into())));
    assert!(held(0.0, "{ scenario: a, beside: [b], figures: [client_cpu], at_most: 1 }").is_empty());
    let added = |bound: &str| {
        let hold = format!("{{ scenario: b, beside: [a], figures: [event_delay_p99], {bound} }}");
        let held = held(0.0, &hold).remove(0);
        format!("{} {} {}", held.verdict(), held.text(), held.bound())
    };
    assert_eq!(added("added_us_at_most: 10"), "held +10.000 µs ± 0.000 ≤ 10.0 µs");
    assert_eq!(added("added_us_at_most: 9"), "NOT HELD +10.000 µs ± 0.000 ≤ 9.00 µs");
}

#[test]
fn figures_are_held_by_themselves_too() {
    let judged = |hold: &str| {
        held(0.0, hold)
            .iter()
            .map(|held| format!("{} {} {}", held.verdict(), held.text(), held.bound()))
            .collect::<Vec<_>>()
    };
    let of = |scenario: &str, figure: &str, bound: &str| {
        judged(&format!("{{ scenario: {scenario}, figures: [{figure}], {bound} }}"))
    };
    assert_eq!(of("a", "provider_refused", "at_most: 0"), ["held 0 ≤ 0"]);
    assert_eq!(of("b", "provider_refused", "at_most: 0"), ["NOT HELD 100 ≤ 0"]);
    assert_eq!(of("a", "allowance_used", "at_least: 0.98"), ["held 98.00 % ≥ 98.00 %"]);
    assert_eq!(of("b", "calls_per_request", "at_most: 1.05"), ["NOT HELD 1.10 ≤ 1.05"]);
    assert_eq!(of("b", "proxy_cpu_per_mb", "at_most: 500000"), ["held 500000 µs ≤ 500000 µs"]);
    assert_eq!(of("b", "event_delay_p50", "at_most: 19"), ["NOT HELD 20.0 µs ≤ 19.0 µs"]);
    assert_eq!(of("a", "failed_share", "at_most: 0.01"), ["held 0 % ≤ 1.00 %"]);
    assert_eq!(of("a", "p50", "at_most: 110"), ["held, unsure 109 ms (107 ms to 111 ms) ≤ 110 ms"]);
}

#[test]
fn a_rate_limit_that_nothing_came_to_has_let_nothing_through() {
    let text = "title: t\nprovider: {}\nscenarios: [{ name: a }]\n\
        hold: [{ scenario: a, figures: [provider_admitted, allowance_used], at_least: 0.98 }]\n";
    let mut results = run(text, 10.0, |_, _, _, _| 1.0);
    results
        .turns
        .iter_mut()
        .for_each(|turn| turn.counted = Some(ProviderCounters { calls: 0, rate_limit: None }));
    let held = Summary::of(&results).held;
    assert_eq!(held.len(), 2);
    assert!(held.iter().all(|held| held.verdict() == "NOT HELD"), "{held:?}");
}

#[test]
fn where_failures_are_expected_they_are_told_and_no_doubt() {
    let text =
        "title: t\nprovider: {}\nfailures_expected: true\nscenarios: [{ name: direct }, { name: limited }]\n";
    let mut results = run(text, 10.0, |_, _, _, _| 1.0);
    results.turns.iter_mut().for_each(|turn| turn.figures.failed = 250);
    let summary = Summary::of(&results);
    let text = "`limited`: 25.00 % of the requests failed; 1.10 calls to the provider per request, of which it admitted 490 and rejected 100; \
                98.00 % of its allowance used; its busiest window had 1.20 × the limit.";
    assert!(summary.verdict.iter().any(|sentence| sentence == text), "{:?}", summary.verdict);
    assert!(summary.doubts.iter().all(|doubt| !doubt.contains("failed")), "{:?}", summary.doubts);
    let page = page::page(&results, &summary, &page::sections(&summary));
    assert!(page.contains("At the provider") && page.contains("allowance used, %"));
}

#[test]
fn the_work_of_services_is_shown_apart_from_the_proxies() {
    let text = "title: t\nprovider: {}\nfailures_expected: true\nbaseline: alone\nservices: { redis: { kind: redis } }\n\
        scenarios: [{ name: alone, command: [x] }, { name: shared, command: [x], instances: 4, services: [redis] }]\n\
        hold: [{ scenario: shared, figures: [busiest_window], at_most: 1 },\
          { scenario: shared, figures: [store_calls_per_request], at_most: 0.05 }]\n";
    let results = run(text, 10.0, |_, _, _, _| 1.0);
    let summary = Summary::of(&results);
    let held: Vec<_> = summary.held.iter().map(|held| [held.verdict(), &held.text()].join(" ")).collect();
    assert_eq!(held, ["NOT HELD 1.20 × limit", "held 0.040"]);
    let sections = page::sections(&summary);
    let charts: Vec<_> = sections.iter().flat_map(|section| &section.charts).collect();
    let bars = |name: &str| {
        let svg = charts.iter().find(|chart| chart.name == name).unwrap().file();
        svg.split("data-name=\"")
            .skip(1)
            .filter_map(|part| Some(part.split_once('"')?.0.to_owned()))
            .collect::<Vec<_>>()
    };
    let shown = |name: &str, expected: &[&str]| {
        let bars = bars(name);
        assert!(expected.iter().all(|bar| bars.iter().any(|shown| shown == bar)), "{name}: {bars:?}");
    };
    shown("default-busiest-window", &["alone", "shared"]);
    shown("default-services-cpu", &["shared redis"]);
    shown("default-store-calls", &["shared"]);
    assert!(!bars("default-services-cpu").iter().any(|bar| bar.starts_with("alone")));
    let sentence = summary.verdict.iter().find(|sentence| sentence.starts_with("`shared`: ")).unwrap();
    assert!(sentence.ends_with("× the limit; 0.040 calls to the store per request."), "{sentence}");
    let csv = turns::csv(&results);
    assert!(csv.lines().nth(2).unwrap().contains(",1.2000,0.0400,3.0000,"), "{csv}");
}

#[test]
fn a_table_puts_load_and_rate_side_by_side() {
    let text = "title: t\nprovider: {}\nclient: { warm_up_requests: 0 }\nscenarios:\n  - { name: direct }\n  - { name: relay, command: [x] }\n\
        \x20 - { name: own, egret: ../../../experiments/configs/no-flow.yaml }\n\
        cases: [{ name: hot }, { name: calm, client: { requests_per_second: 50 } }]\nrounds: 5\n\
        tables: [{ title: All of it, loaded: hot, at_rate: calm }]\n";
    let results = run(text, 10.0, |case, scenario, _, percent| {
        f64::from(u32::try_from((case + 1) * 10 + scenario + percent / 99).unwrap())
    });
    let summary = Summary::of(&results);
    let text = "All of it\n\n\
        | proxy  | CPU µs/request | own ÷ it         | requests/s | p50 µs | p99 µs | p50 µs at 50/s | p99 µs at 50/s | memory MiB |\n\
        | ------ | -------------- | ---------------- | ---------- | ------ | ------ | -------------- | -------------- | ---------- |\n\
        | direct | –              | –                | 500        | 10,000 | 11,000 | 20,000         | 21,000         | –          |\n\
        | relay  | 10.0           | 2.00 (2.00–2.00) | 500        | 11,000 | 12,000 | 21,000         | 22,000         | 8.0        |\n\
        | own    | 20.0           | –                | 500        | 12,000 | 13,000 | 22,000         | 23,000         | 8.0        |\n";
    assert_eq!(summary.tables[0].to_string(), text);
    let overviews = page::overviews(&summary, &results.metadata.experiment.tables);
    let [(name, svg)] = overviews.as_slice() else { panic!("{overviews:?}") };
    assert_eq!((name.as_str(), svg.matches("<svg ").count()), ("overview-hot", 5));
    assert!(svg.contains("Response time at p99, calm") && svg.contains("Memory of the proxy, hot"), "{svg}");
    let page = page::page(&results, &summary, &page::sections(&summary));
    assert!(page.contains("<h2>All of it</h2>") && page.contains("<th>own ÷ it</th>"));
    let csv = turns::csv(&results);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("round,case,scenario,started,requests,"));
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("1,hot,direct,2026-11-22T00:00:01Z,1000,0,2.0000,500.0000,,10.0000,")
    );
    assert_eq!(csv.lines().count(), 1 + 5 * 2 * 3);
    assert!(csv.lines().all(|line| line.matches(',').count() == 35), "{csv}");
}

#[test]
fn an_interval_that_reaches_over_a_bound_leaves_the_verdict_unsure() {
    let of = |value: f64, low: f64, high: f64| {
        let value = egret_measure::statistics::Estimate { value, low, high, confidence: 0.95 };
        let mut held =
            held(0.0, "{ scenario: a, beside: [b], figures: [p50], within: { percent: 1, ms: 1 } }")
                .remove(0);
        (held.least, held.max, held.value) = (Some(-1.0), Some(1.0), value);
        held.verdict()
    };
    assert_eq!(of(0.0, -0.5, 0.5), "held");
    assert_eq!(of(0.0, -0.5, 1.5), "held, unsure");
    assert_eq!(of(2.0, 1.5, 2.5), "NOT HELD");
    assert_eq!(of(2.0, -2.0, 2.5), "NOT HELD, unsure");
}

#[test]
fn the_cost_beside_a_peer_is_a_ratio_of_each_round() {
    let text = "title: t\nprovider: {}\nrounds: 5\nscenarios: [{ name: direct }, { name: relay, command: [x] }, \
        { name: own, egret: ../../../experiments/configs/no-flow.yaml }]\n";
    let summary = Summary::of(&run(text, 10.0, |_, scenario, _, _| 10.0 + 5.0 * scenario_f64(scenario)));
    // The proxies use 10 and 20 us per request, and the same memory; their p99 is 15 and 20 ms.
    let sentence = "`own` compared with `relay`: 2.00 × (± 0.00) the CPU per request, 1.00 × (± 0.00) the memory, 1.33 × (± 0.00) the p99.";
    assert_eq!(summary.verdict.last().unwrap(), sentence);
}

#[test]
fn a_client_without_times_is_compared_by_its_rate() {
    let mut results = run(TWO, 20.0, drifting);
    for turn in &mut results.turns {
        turn.figures.percentiles_ms.clear();
        turn.figures.requests_per_second = if turn.scenario == "proxy" { 400.0 } else { 500.0 };
    }
    let summary = Summary::of(&results);
    assert_eq!(summary.verdict, ["`proxy` handles 0.80 × (± 0.00) direct's requests per second."]);
    assert!(
        page::sections(&summary)
            .iter()
            .flat_map(|section| &section.charts)
            .all(|chart| !chart.name.contains("response"))
    );
}

#[test]
fn every_reason_to_doubt_the_figures_is_listed() {
    let mut results = run(&TWO.replace("rounds: 5", "rounds: 3"), 20.0, drifting);
    results.turns.pop();
    results.turns[0].figures.failed = 7;
    results.turns[0].figures.client_saturated = Some(true);
    let metadata = &mut results.metadata;
    (metadata.quick, metadata.load_average_before) = (true, 1.5);
    metadata.pinned.clear();
    metadata.left_out.insert("x".into(), "`x` is not installed".into());
    assert_eq!(
        Summary::of(&results).doubts,
        [
            "Incomplete: 5 of 6 turns were run.",
            "Fewer than 5 rounds: no interval reaches 90 % confidence.",
            "Quick profile: suitable for a first look, not for conclusions.",
            "The machine was busy before the run: load average 1.5 on 2 cores.",
            "Only one core: proxy, provider and client shared it.",
            "default, `direct`: 7 of 3000 requests failed.",
            "The client was the bottleneck in some turns.",
            "`x` was left out: `x` is not installed.",
        ]
    );
}

#[test]
fn a_large_change_is_also_given_as_a_ratio() {
    let change = |factor: f64| {
        let summary = Summary::of(&run(TWO, 20.0, |_, scenario, round, _| {
            (100.0 + f64::from(round)) * if scenario == 0 { 1.0 } else { factor }
        }));
        summary.verdict[0].clone()
    };
    assert!(change(3.0).contains(" at p99, 3.00 × direct; adds "), "{}", change(3.0));
    assert!(change(0.5).starts_with("`proxy` saves ") && change(0.5).contains(", 0.50 × direct"));
    assert!(!change(1.05).contains("× direct"), "less than a tenth");
}

#[test]
fn a_comparison_is_printed_with_its_conclusion() {
    let at = |time: f64, rounds: u32| {
        let text = TWO.replace("rounds: 5", &format!("rounds: {rounds}"));
        Summary::of(&run(&text, 20.0, move |_, _, round, _| time + f64::from(round) / 100.0))
    };
    let worse = compare(&at(10.0, 7), &at(12.0, 7), 0.05).to_string();
    let line = worse.lines().find(|line| line.starts_with("default direct  p99 ms")).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>()[..7],
        ["default", "direct", "p99", "ms", "10.0", "12.0", "+19.9"]
    );
    assert!(line.ends_with("  WORSE"), "{line}");
    assert!(worse.ends_with("by more than 5 %, in the lines marked WORSE.\n"), "{worse}");
    let better = compare(&at(12.0, 7), &at(10.0, 7), 0.05).to_string();
    assert!(better.ends_with("in the lines marked better.\n"), "{better}");
    let few = compare(&at(10.0, 3), &at(12.0, 3), 0.05).to_string();
    assert!(few.ends_with("Too few rounds to decide whether the runs differ.\n"), "{few}");
    let mut other = at(10.0, 7);
    other.cases.clear();
    let none = compare(&at(10.0, 7), &other, 0.05).to_string();
    assert!(none.ends_with("default: only in the first\nThe runs have nothing in common.\n"), "{none}");
}

#[test]
fn a_report_consists_of_files_that_agree() {
    let root = tempfile::tempdir().unwrap();
    let mut results = run(DELAYS, 20.0, drifting);
    results.directory = root.path().to_owned();
    let summary = report(&results).unwrap();
    let read = |name: &str| std::fs::read_to_string(root.path().join(name)).unwrap();
    let stored: Summary = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(stored.verdict, summary.verdict);
    assert_eq!(read("turns.csv").lines().count(), 1 + results.turns.len());
    assert!(read("percentiles/a-proxy.csv").starts_with("Percentage served,Time in ms\n0,"));
    let charts = std::fs::read_dir(root.path().join("charts")).unwrap().count();
    let page = read("report.html");
    assert_eq!(page.matches("<figure>").count(), charts);
    assert!(summary.verdict.iter().all(|sentence| page.contains(sentence.split('`').next_back().unwrap())));
}

#[test]
fn the_page_escapes_what_it_did_not_write() {
    let mut results = run(TWO, 20.0, drifting);
    results.metadata.experiment.title = "<b>title</b>".into();
    results.metadata.experiment.about = "first & `code`\n\nsecond".into();
    results.metadata.command = "egret \"<x>\"".into();
    let summary = Summary::of(&results);
    let page = page::page(&results, &summary, &page::sections(&summary));
    assert!(page.contains("<h1>&lt;b&gt;title&lt;/b&gt;</h1>") && !page.contains("<b>"), "{page}");
    assert!(
        page.contains("<p class=\"about\">first &amp; <code>code</code></p>\n<p class=\"about\">second</p>")
    );
    assert!(page.contains("<dd>egret &quot;&lt;x&gt;&quot;</dd>"));
}

#[test]
fn figures_are_compared_with_those_of_another_case() {
    let text = "title: t\nprovider: {}\nclient: { warm_up_requests: 0 }\nscenarios:\n  - { name: direct }\n  - { name: relay, command: [x] }\n\
        cases: [{ name: once }, { name: twice, client: { requests_per_second: 450 } }]\nrounds: 7\n\
        hold:\n  - { scenario: relay, cases: [twice], beside_case: once, figures: [goodput, served_p99], at_least: 0.95 }\n  \
        - { scenario: relay, cases: [twice], figures: [control_slowest], at_most: 100 }\n\
        tables: [{ title: Both, cases: [once, twice], figures: [goodput, control_slowest] }]\n";
    let results = run(text, 10.0, |case, _, _, _| f64::from(u32::try_from(9 + case * 10).unwrap()));
    let summary = Summary::of(&results);
    let held: Vec<_> = summary.held.iter().map(ToString::to_string).collect();
    assert!(held[0].starts_with("held ") && held[0].contains("relay vs once"), "{held:?}");
    assert!(held[1].contains("p99 of 2xx") && held[1].contains("2.00 ×"), "{held:?}");
    assert!(held[2].contains("control API") && held[2].contains("20.0 ms"), "{held:?}");
    let text = "Both\n\n\
        | proxy  | goodput/s, once | goodput/s, twice | control API, once | control API, twice |\n\
        | ------ | --------------- | ---------------- | ----------------- | ------------------ |\n\
        | direct | 500             | 500              | –                 | –                  |\n\
        | relay  | 500             | 500              | 20.0 ms           | 20.0 ms            |\n";
    assert_eq!(summary.tables[0].to_string(), text);
}
