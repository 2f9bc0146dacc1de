//! The report's HTML page: verdict, charts, tables, and the test setup. It has no scripts and loads nothing.

use std::fmt::Write;

use egret_measure::statistics::Estimate;

use super::bars::{Bar, BarChart};
use super::bounded_figure::BoundedFigure;
use super::case_summary::{CaseSummary, ProxyKind, ScenarioSummary};
use super::chart_parts::{fitted, note, percentile_axis, percentile_points, point};
use super::format::{plus_minus, thousands};
use super::lines::{Axis, ChartLine, LineChart};
use super::provider_time;
use super::summary::Summary;
use super::svg::{Chart, SERIES, STYLE, Scale, abreast, escape};
use super::text_table::TextTable;
use super::verdict::VERDICT_PERCENTILES;
use crate::config::TableConfig;
use crate::machine::Machine;
use crate::results::{PartMachine, Results};

/// A group of charts.
#[derive(Debug)]
pub(crate) struct Section {
    /// Heading of the group. It names the case if there are several.
    pub heading: String,
    /// The charts.
    pub charts: Vec<Chart>,
}

/// Returns all charts of a summary in display order: first those across the cases, then those of each case.
pub(crate) fn sections(summary: &Summary) -> Vec<Section> {
    let across: Vec<Chart> =
        [provider_time::charts(summary), against_rate(summary)].into_iter().flatten().collect();
    let mut sections = vec![Section { heading: "Across the cases".into(), charts: across }];
    let times = summary.cases.iter().map(|case| {
        (
            case,
            [response(summary, case), added(summary, case), added_at(summary, case)]
                .into_iter()
                .flatten()
                .collect(),
        )
    });
    let costs = summary.cases.iter().map(|case| (case, costs(summary, case)));
    let named = |what: &str, case: &CaseSummary| {
        if summary.cases.len() > 1 { format!("{what}: {}", case.case) } else { what.into() }
    };
    sections.extend(times.map(|(case, charts)| Section { heading: named("Response time", case), charts }));
    sections.extend(costs.map(|(case, charts)| Section { heading: named("Cost", case), charts }));
    let limits = summary.cases.iter().map(|case| (case, limits(summary, case)));
    sections.extend(limits.map(|(case, charts)| Section { heading: named("Rate limits", case), charts }));
    let services = summary.cases.iter().map(|case| (case, services(summary, case)));
    sections.extend(services.map(|(case, charts)| Section { heading: named("Services", case), charts }));
    sections.retain(|section| !section.charts.is_empty());
    sections
}

/// CSS class of a scenario's colour: grey for the baseline; the first series colour goes to the first Egret
/// scenario.
fn class(summary: &Summary, name: &str) -> String {
    if name == summary.baseline {
        return "base".into();
    }
    let first = summary.cases.iter().max_by_key(|case| case.scenarios.len());
    let mut scenarios: Vec<&ScenarioSummary> = first.iter().flat_map(|case| &case.scenarios).collect();
    scenarios.retain(|scenario| scenario.scenario != summary.baseline);
    scenarios.sort_by_key(|scenario| scenario.kind != ProxyKind::Egret);
    let index = scenarios.iter().position(|scenario| scenario.scenario == name).unwrap_or(0);
    let dashed = if index >= SERIES { " dashed" } else { "" };
    format!("s{}{dashed}", index % SERIES)
}

/// Suffix for titles that names the case; empty if there is only one.
fn of_case(summary: &Summary, case: &CaseSummary) -> String {
    if summary.cases.len() > 1 { format!(", {}", case.case) } else { String::new() }
}

/// Draws the response time per percentile.
fn response(summary: &Summary, case: &CaseSummary) -> Option<Chart> {
    let texts = ChartTexts { name: "response", title: "Response time", label: "response time, ms" };
    over_percentiles(summary, case, &texts, None, |scenario| &scenario.response_ms)
}

/// Draws the response time that each scenario adds to the baseline, per percentile.
fn added(summary: &Summary, case: &CaseSummary) -> Option<Chart> {
    let base = summary.baseline.as_str();
    let (title, label) = (format!("Added to {base}"), format!("added to {base}, ms"));
    let texts = ChartTexts { name: "added", title: &title, label: &label };
    over_percentiles(summary, case, &texts, Some(base), |scenario| &scenario.added_ms)
}

/// Draws a figure per percentile, with a line for each scenario that has it. `zero` names the line at zero.
fn over_percentiles(
    summary: &Summary,
    case: &CaseSummary,
    texts: &ChartTexts<'_>,
    zero: Option<&str>,
    figure: fn(&ScenarioSummary) -> &[Estimate],
) -> Option<Chart> {
    let ChartTexts { name, title, label } = texts;
    let drawn = case.scenarios.iter().filter(|scenario| !figure(scenario).is_empty());
    let first = drawn.clone().next()?;
    let line = |scenario: &ScenarioSummary| ChartLine {
        name: scenario.scenario.clone(),
        class: class(summary, &scenario.scenario),
        points: percentile_points(figure(scenario)),
    };
    let lines: Vec<ChartLine> = drawn.map(line).collect();
    let chart = LineChart {
        name: format!("{}-{name}", case.case),
        title: format!("{title}{}", of_case(summary, case)),
        note: note(figure(first).first(), first.rounds, "band"),
        x: percentile_axis(),
        y: fitted(label, &lines, if zero.is_some() { &[0.0] } else { &[] }),
        lines,
        marked: false,
        zero: zero.map(str::to_owned),
    };
    Some(chart.draw())
}

/// Draws what each scenario adds to the baseline at the percentiles of the verdict.
fn added_at(summary: &Summary, case: &CaseSummary) -> Option<Chart> {
    let bar = |percent: usize, scenario: &ScenarioSummary| {
        let (name, class) = (&scenario.scenario, class(summary, &scenario.scenario));
        Some(Bar { name: format!("p{percent} {name}"), class, value: *scenario.added_ms.get(percent)? })
    };
    let bars: Vec<Bar> = VERDICT_PERCENTILES
        .into_iter()
        .flat_map(|percent| case.scenarios.iter().filter_map(move |scenario| bar(percent, scenario)))
        .collect();
    let rounds = case.scenarios.iter().map(|scenario| scenario.rounds).min()?;
    let chart = BarChart {
        name: format!("{}-added-at", case.case),
        title: format!("Added to {} at p50, p95 and p99{}", summary.baseline, of_case(summary, case)),
        note: note(bars.first().map(|bar| &bar.value), rounds, "whiskers"),
        label: format!("added to {}, ms", summary.baseline),
        bars,
    };
    (!chart.bars.is_empty()).then(|| chart.draw())
}

/// Draws the response time against the offered rate, one line per scenario, at p50 and p99.
fn against_rate(summary: &Summary) -> Vec<Chart> {
    let rated = summary.by_rate().into_iter().map(|(rate, case)| (f64::from(rate), case));
    let rated: Vec<(f64, &CaseSummary)> = rated.collect();
    if rated.len() < 2 {
        return Vec::new();
    }
    let chart = |percent: usize| {
        let lines: Vec<ChartLine> = rated[0]
            .1
            .scenarios
            .iter()
            .filter(|scenario| !scenario.response_ms.is_empty())
            .map(|scenario| {
                let at =
                    |case: &CaseSummary| Some(*case.scenario(&scenario.scenario)?.response_ms.get(percent)?);
                ChartLine {
                    name: scenario.scenario.clone(),
                    class: class(summary, &scenario.scenario),
                    points: rated.iter().filter_map(|(x, case)| Some(point(*x, &at(case)?))).collect(),
                }
            })
            .collect();
        let values = lines.iter().flat_map(|line| &line.points).flat_map(|point| [point.low, point.high]);
        let least = values.clone().reduce(f64::min).filter(|least| *least > 0.0)?;
        let max = values.reduce(f64::max)?.max(least * 2.0);
        let fastest = rated.last().map_or(1.0, |(rate, _)| *rate);
        let first = rated[0].1.scenarios.first()?;
        let chart = LineChart {
            name: format!("rate-p{percent}"),
            title: format!("Response time against offered rate, p{percent}"),
            note: note(first.response_ms.first(), first.rounds, "whiskers"),
            x: Axis {
                label: "offered rate, requests/s".into(),
                scale: Scale::around([0.0, fastest].into_iter()),
            },
            y: Axis {
                label: format!("p{percent} response time, ms"),
                scale: Scale::Logarithmic(least * 0.8, max * 1.25),
            },
            lines,
            marked: true,
            zero: None,
        };
        Some(chart.draw())
    };
    [50, 99].into_iter().filter_map(chart).collect()
}

/// Draws requests per second, CPU time per request, and memory.
fn costs(summary: &Summary, case: &CaseSummary) -> Vec<Chart> {
    let throughput = ChartTexts { name: "throughput", title: "Requests per second", label: "requests/s" };
    let cpu = ChartTexts {
        name: "cpu",
        title: "CPU time of the proxy per request",
        label: "CPU time per request, µs",
    };
    let memory =
        ChartTexts { name: "memory", title: "Memory of the proxy", label: "peak proportional set size, MiB" };
    let charts = [
        bars(summary, case, &throughput, |scenario| Some(scenario.requests_per_second)),
        bars(summary, case, &cpu, |scenario| scenario.cpu_us_per_request),
        bars(summary, case, &memory, |scenario| scenario.memory_mib),
    ];
    charts.into_iter().flatten().collect()
}

/// Draws the provider's view of its rate limits: how far they were exceeded, and how much of them was used.
fn limits(summary: &Summary, case: &CaseSummary) -> Vec<Chart> {
    let busiest = ChartTexts {
        name: "busiest-window",
        title: "Calls in the provider's busiest window",
        label: "calls in any window of its length, as a multiple of the limit",
    };
    let used = ChartTexts {
        name: "allowance-used",
        title: "Allowance used",
        label: "calls that the provider admitted, % of those it allows",
    };
    let counted = |scenario: &ScenarioSummary| scenario.counted.clone();
    let charts = [
        bars(summary, case, &busiest, |scenario| counted(scenario)?.busiest_window),
        bars(summary, case, &used, |scenario| Some(percent(&counted(scenario)?.allowance_used?))),
    ];
    charts.into_iter().flatten().collect()
}

/// Draws the work of the services: the calls to stores, and the CPU time.
fn services(summary: &Summary, case: &CaseSummary) -> Vec<Chart> {
    let calls = ChartTexts {
        name: "store-calls",
        title: "Calls to the store per request",
        label: "calls to the store per request",
    };
    let bar = |scenario: &ScenarioSummary, service: &str, value: &Estimate| Bar {
        name: format!("{} {service}", scenario.scenario),
        class: class(summary, &scenario.scenario),
        value: *value,
    };
    let cpu = case.scenarios.iter().flat_map(|scenario| {
        let services = scenario.services_cpu_us_per_request.iter();
        services.map(move |(service, value)| bar(scenario, service, value))
    });
    let cpu = BarChart {
        name: format!("{}-services-cpu", case.case),
        title: format!("CPU time of the services per request{}", of_case(summary, case)),
        note: String::new(),
        label: "CPU time per request, µs".into(),
        bars: cpu.collect(),
    };
    let rounds = case.scenarios.first().map_or(1, |scenario| scenario.rounds);
    let cpu = BarChart { note: note(cpu.bars.first().map(|bar| &bar.value), rounds, "whiskers"), ..cpu };
    let calls = bars(summary, case, &calls, |scenario| scenario.store_calls_per_request);
    calls.into_iter().chain((!cpu.bars.is_empty()).then(|| cpu.draw())).collect()
}

/// The share in percent.
fn percent(share: &Estimate) -> Estimate {
    let [value, low, high] = [share.value, share.low, share.high].map(|share| share * 1e2);
    Estimate { value, low, high, ..*share }
}

/// The texts of a chart.
struct ChartTexts<'a> {
    /// Name of the chart, without the case's.
    name: &'a str,
    title: &'a str,
    /// Label of the axis of the values.
    label: &'a str,
}

/// Draws one bar for each scenario that has the figure.
fn bars(
    summary: &Summary,
    case: &CaseSummary,
    texts: &ChartTexts<'_>,
    figure: impl Fn(&ScenarioSummary) -> Option<Estimate>,
) -> Option<Chart> {
    let ChartTexts { name, title, label } = texts;
    let of = |scenario: &ScenarioSummary| {
        let class = class(summary, &scenario.scenario);
        Some(Bar { name: scenario.scenario.clone(), class, value: figure(scenario)? })
    };
    let bars: Vec<Bar> = case.scenarios.iter().filter_map(of).collect();
    let rounds = case.scenarios.first()?.rounds;
    let chart = BarChart {
        name: format!("{}-{name}", case.case),
        title: format!("{title}{}", of_case(summary, case)),
        note: note(bars.first().map(|bar| &bar.value), rounds, "whiskers"),
        label: (*label).into(),
        bars,
    };
    (!chart.bars.is_empty()).then(|| chart.draw())
}

/// Draws one picture per table: the costs at full load, and the response time at a fixed rate. Returns file
/// names and contents.
pub(crate) fn overviews(summary: &Summary, tables: &[TableConfig]) -> Vec<(String, String)> {
    let of = |table: &TableConfig| {
        let mut charts = costs(summary, summary.case(&table.loaded)?);
        let texts = ChartTexts { name: "p99", title: "Response time at p99", label: "response time, ms" };
        let p99 = |scenario: &ScenarioSummary| scenario.response_ms.get(99).copied();
        charts.extend(summary.case(&table.at_rate).and_then(|case| bars(summary, case, &texts, p99)));
        Some((format!("overview-{}", table.loaded), abreast(&charts)))
    };
    tables.iter().filter_map(of).collect()
}

const PAGE_STYLE: &str = include_str!("page/page.css");

/// Renders the page.
pub(crate) fn page(results: &Results, summary: &Summary, sections: &[Section]) -> String {
    let metadata = &results.metadata;
    let title = escape(&summary.title);
    let profile = if summary.quick { "quick profile" } else { "full profile" };
    let started = metadata.started.first().map(String::as_str).unwrap_or_default();
    let version = metadata.versions.get("egret").map(String::as_str).unwrap_or_default();
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         <p class=\"dim\">{} · {profile} · {} · {}, {} cores · {}</p>\n",
        escape(&summary.name),
        escape(started),
        escape(&metadata.machine.processor),
        metadata.machine.cores,
        escape(version),
    );
    let _ = writeln!(html, "<p class=\"headline\">{}</p>", coded(&summary.headline));
    list(&mut html, "verdict", &summary.verdict);
    list(&mut html, "doubts", &summary.doubts);
    for paragraph in metadata.experiment.about.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty())
    {
        let _ = writeln!(html, "<p class=\"about\">{}</p>", coded(paragraph.trim()));
    }
    bounded_figures(&mut html, &summary.held);
    summary.tables.iter().for_each(|table| across(&mut html, table));
    for section in sections {
        let _ = writeln!(html, "<h2>{}</h2>\n<div class=\"charts\">", escape(&section.heading));
        for chart in &section.charts {
            let _ = writeln!(html, "<figure>{}</figure>", chart.inline());
        }
        html += "</div>\n";
    }
    for case in &summary.cases {
        table(&mut html, summary, case);
        if summary.failures_expected {
            at_the_provider(&mut html, summary, case);
        }
    }
    under_test(&mut html, results);
    html += READING;
    html += "</main>\n</body>\n</html>\n";
    html
}

const READING: &str = include_str!("page/reading.html");

fn list(html: &mut String, class: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = writeln!(html, "<div class=\"card {class}\"><ul>");
    for sentence in sentences {
        let _ = writeln!(html, "<li>{}</li>", coded(sentence));
    }
    *html += "</ul></div>\n";
}

/// Escapes a sentence and turns its backticks into code elements.
fn coded(sentence: &str) -> String {
    let parts = sentence.split('`').enumerate();
    parts
        .map(
            |(index, part)| {
                if index % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) }
            },
        )
        .collect()
}

fn table(html: &mut String, summary: &Summary, case: &CaseSummary) {
    let heading = if summary.cases.len() > 1 { format!("Figures: {}", case.case) } else { "Figures".into() };
    let _ =
        writeln!(html, "<h2>{}</h2>\n<div class=\"card scroll\"><table class=\"figures\">", escape(&heading));
    let baseline = escape(&summary.baseline);
    let _ = writeln!(
        html,
        "<thead><tr><th>scenario</th><th>p50, ms</th><th>p95, ms</th><th>p99, ms</th><th>added to {baseline} at p50, ms</th>\
         <th>at p95, ms</th><th>at p99, ms</th><th>requests/s</th><th>CPU, µs/request</th><th>memory, MiB</th><th>failed</th></tr></thead>\n<tbody>"
    );
    for scenario in &case.scenarios {
        let _ = write!(html, "<tr><td>{}</td>", escape(&scenario.scenario));
        let percentiles = VERDICT_PERCENTILES.map(|percent| scenario.response_ms.get(percent));
        let added = VERDICT_PERCENTILES.map(|percent| scenario.added_ms.get(percent));
        let costs = [
            Some(&scenario.requests_per_second),
            scenario.cpu_us_per_request.as_ref(),
            scenario.memory_mib.as_ref(),
        ];
        for cell in percentiles.into_iter().chain(added).chain(costs) {
            html.push_str(&cell_of(cell));
        }
        let _ = writeln!(html, "<td>{}</td></tr>", scenario.failed);
    }
    *html += "</tbody></table></div>\n";
}

/// Renders a table that spans two cases.
fn across(html: &mut String, table: &TextTable) {
    let cells = |name: &str, row: &[String]| {
        let cells = row.iter().map(|cell| format!("<{name}>{}</{name}>", escape(cell)));
        cells.collect::<String>()
    };
    let title = escape(&table.title);
    let _ = writeln!(html, "<h2>{title}</h2>\n<div class=\"card scroll\"><table class=\"figures\">");
    let _ = writeln!(html, "<thead><tr>{}</tr></thead>\n<tbody>", cells("th", &table.head));
    for row in &table.rows {
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", row));
    }
    *html += "</tbody></table></div>\n";
}

/// Renders the outcome of the requests and the provider's counters.
fn at_the_provider(html: &mut String, summary: &Summary, case: &CaseSummary) {
    let _ = writeln!(
        html,
        "<h2>At the provider{}</h2>\n<div class=\"card scroll\"><table class=\"counted\">\n\
         <thead><tr><th>scenario</th><th>requests failed, %</th><th>calls to the provider</th><th>calls per request</th>\
         <th>admitted</th><th>rejected</th><th>allowance used, %</th><th>busiest window, × limit</th>\
         <th>calls to the store per request</th></tr></thead>\n<tbody>",
        escape(&of_case(summary, case))
    );
    for scenario in &case.scenarios {
        let counted = scenario.counted.as_ref();
        let cells = [
            scenario.failed_share.as_ref().map(percent),
            counted.map(|counted| counted.calls),
            counted.map(|counted| counted.calls_per_request),
            counted.and_then(|counted| counted.admitted),
            counted.and_then(|counted| counted.refused),
            counted.and_then(|counted| counted.allowance_used.as_ref().map(percent)),
            counted.and_then(|counted| counted.busiest_window),
            scenario.store_calls_per_request,
        ];
        let cells = cells.map(|cell| cell_of(cell.as_ref())).concat();
        let _ = writeln!(html, "<tr><td>{}</td>{cells}</tr>", escape(&scenario.scenario));
    }
    *html += "</tbody></table></div>\n";
}

/// Renders the bounded figures and their verdicts.
fn bounded_figures(html: &mut String, figures: &[BoundedFigure]) {
    if figures.is_empty() {
        return;
    }
    *html += "<h2>Figures with bounds</h2>\n<div class=\"card scroll\"><table class=\"figures\">\n\
        <thead><tr><th>case</th><th>figure</th><th>scenario</th><th>compared with</th><th>value</th><th>bound</th><th>verdict</th></tr></thead>\n<tbody>";
    for held in figures {
        let BoundedFigure { case, figure, scenario, .. } = held;
        let beside = held.beside.as_deref().unwrap_or("–");
        let cells =
            [case, &figure.to_string(), scenario, beside, &held.text(), &held.bound(), held.verdict()];
        let cells = cells.map(|cell| format!("<td>{}</td>", escape(cell)));
        let _ = writeln!(html, "<tr>{}</tr>", cells.concat());
    }
    *html += "</tbody></table></div>\n";
}

fn cell_of(estimate: Option<&Estimate>) -> String {
    let Some(estimate) = estimate else { return "<td>–</td>".into() };
    let (value, margin) = plus_minus(estimate);
    let value = if estimate.value >= 10_000.0 { thousands(estimate.value) } else { value };
    format!("<td>{value} <small>± {margin}</small></td>")
}

fn under_test(html: &mut String, results: &Results) {
    let metadata = &results.metadata;
    let machine = &metadata.machine;
    let described = |machine: &Machine| {
        let gib = f64::from(u32::try_from(machine.memory_bytes >> 20).unwrap_or(u32::MAX)) / 1024.0;
        format!("{}, {} cores, {gib:.0} GiB", machine.processor, machine.cores)
    };
    let pinned: Vec<String> =
        metadata.pinned.iter().map(|(part, core)| format!("{part} on core {core}")).collect();
    let mut rows = vec![
        ("machine", described(machine)),
        ("system", format!("{}, {}", machine.system, machine.kernel)),
        ("pinned", if pinned.is_empty() { "none".into() } else { pinned.join(", ") }),
        ("load average before", metadata.load_average_before.to_string()),
        ("started", metadata.started.join(", resumed ")),
        ("ended", metadata.ended.clone().unwrap_or_else(|| "not yet".into())),
        ("command", metadata.command.clone()),
        ("Egret's program", metadata.egret.clone()),
    ];
    rows.extend(metadata.commit.clone().map(|commit| ("commit", commit)));
    let part = |part: &PartMachine| {
        let PartMachine { ssh, machine, .. } = part;
        let reached = ssh.as_deref().unwrap_or("the lab's");
        format!("{reached}: {}, {}, {}; {}", machine.host, described(machine), machine.kernel, part.egret)
    };
    let parts = metadata.machines.iter();
    rows.extend(parts.filter_map(|(name, machine)| {
        let row = ["client", "proxy", "provider"].iter().position(|each| each == name)?;
        Some((
            ["machine of the client", "machine of the proxy", "machine of the provider"][row],
            part(machine),
        ))
    }));
    *html += "<h2>Test setup</h2>\n<div class=\"card\"><dl>\n";
    let versions = metadata.versions.iter().map(|(program, version)| (program.as_str(), version.clone()));
    for (name, value) in rows.into_iter().chain(versions) {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
    }
    *html += "</dl></div>\n";
}
