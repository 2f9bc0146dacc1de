//! All turns as CSV, one row per turn with every figure, for use with other tools.

use crate::results::{Results, Turn};

/// A column: its name, and the function that reads its value from a turn.
type Column = (&'static str, fn(&Turn) -> Option<String>);

const COLUMNS: [Column; 36] = [
    ("round", |turn| Some(turn.round.to_string())),
    ("case", |turn| Some(turn.case.clone())),
    ("scenario", |turn| Some(turn.scenario.clone())),
    ("started", |turn| Some(turn.started.clone())),
    ("requests", |turn| Some(turn.figures.requests.to_string())),
    ("failed", |turn| Some(turn.figures.failed.to_string())),
    ("duration_s", |turn| rounded(turn.figures.duration_s)),
    ("requests_per_second", |turn| rounded(turn.figures.requests_per_second)),
    ("mean_ms", |turn| rounded(turn.figures.mean_ms?)),
    ("p50_ms", |turn| rounded(turn.percentile_ms(50)?)),
    ("p90_ms", |turn| rounded(turn.percentile_ms(90)?)),
    ("p95_ms", |turn| rounded(turn.percentile_ms(95)?)),
    ("p99_ms", |turn| rounded(turn.percentile_ms(99)?)),
    ("p99_9_ms", |turn| rounded(turn.figures.p99_9_ms?)),
    ("max_ms", |turn| rounded(turn.percentile_ms(100)?)),
    ("goodput_per_second", |turn| rounded(turn.goodput())),
    ("served_p99_ms", |turn| rounded(turn.figures.served_p99_ms?)),
    ("control_slowest_ms", |turn| rounded(turn.control_slowest_ms?)),
    ("proxy_cpu_us_per_request", |turn| cpu(turn, "proxy")),
    ("proxy_cpu_us_per_mb", |turn| rounded(turn.proxy_cpu_us_per_mb()?)),
    ("provider_cpu_us_per_request", |turn| cpu(turn, "provider")),
    ("client_cpu_us_per_request", |turn| cpu(turn, "client")),
    ("proxy_memory_mib", |turn| rounded(turn.proxy_memory_mib()?)),
    ("provider_calls", |turn| Some(turn.counted?.calls.to_string())),
    ("calls_per_request", |turn| rounded(turn.calls_per_request()?)),
    ("provider_admitted", |turn| Some(turn.rate_limit()?.admitted.to_string())),
    ("provider_refused", |turn| Some(turn.rate_limit()?.refused.to_string())),
    ("allowance_used", |turn| rounded(turn.allowance_used()?)),
    ("busiest_window", |turn| rounded(turn.busiest_window()?)),
    ("store_calls_per_request", |turn| rounded(turn.store_calls_per_request()?)),
    ("services_cpu_us_per_request", |turn| {
        turn.services_cpu_us().map(|(_, cpu_us)| cpu_us).reduce(|sum, cpu_us| sum + cpu_us).and_then(rounded)
    }),
    ("events", |turn| Some(turn.figures.event_delays?.events.to_string())),
    ("event_delay_p50_us", |turn| Some(turn.figures.event_delays?.p50_us.to_string())),
    ("event_delay_p99_us", |turn| Some(turn.figures.event_delays?.p99_us.to_string())),
    ("client_saturated", |turn| Some(turn.figures.client_saturated?.to_string())),
    ("load_average", |turn| rounded(turn.load_average)),
];

/// Renders the file. A cell is empty if the turn lacks the figure. Names contain no commas.
pub(crate) fn csv(results: &Results) -> String {
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let mut csv = line(COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect());
    for turn in &results.turns {
        csv += &line(COLUMNS.iter().map(|(_, value)| value(turn).unwrap_or_default()).collect());
    }
    csv
}

#[expect(clippy::unnecessary_wraps, reason = "a column's value may be missing")]
fn rounded(value: f64) -> Option<String> {
    Some(format!("{value:.4}"))
}

fn cpu(turn: &Turn, part: &str) -> Option<String> {
    rounded(turn.processes.get(part)?.cpu_us_per_request)
}
