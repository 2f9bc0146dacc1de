//! `egret discover`: shows the endpoints that a running gateway has seen, or proposes flows for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use egret_json::printable::printable_line;
use egret_settings::failure::Failure;
use egret_settings::output::{print, print_json};
use serde::Deserialize;

use crate::asked_gateway::AskedGateway;

/// The output.
#[derive(Debug, Args)]
pub struct DiscoverArguments {
    #[command(flatten)]
    asked: AskedGateway,
    /// Print a config with a flow for each path instead.
    #[arg(long, conflicts_with = "json")]
    flows: bool,
    /// Print the answer of the control API.
    #[arg(long)]
    json: bool,
}

/// The answer of `/api/v1/discovery`, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Discovery {
    flows: Vec<Inventory>,
}

#[derive(Debug, Deserialize)]
struct Inventory {
    flow: String,
    unlisted: u64,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    url: String,
    method: String,
    path: String,
    count: u64,
    statuses: BTreeMap<u16, u64>,
    p50_us: u64,
    p99_us: u64,
    last_seen: String,
    consumers: BTreeMap<String, u64>,
    other_consumers: u64,
    clients: BTreeMap<String, u64>,
    other_clients: u64,
}

/// Prints the endpoints.
pub fn run(arguments: &DiscoverArguments) -> Result<(), Failure> {
    let DiscoverArguments { asked, flows, json } = arguments;
    let client = asked.client()?;
    let path = if *flows { "/api/v1/discovery/flows" } else { "/api/v1/discovery" };
    let failed = |error| {
        Failure::Failed(format!(
            "cannot ask the gateway at {}: {error}; is `egret run` running?",
            client.address
        ))
    };
    let answer = String::from_utf8_lossy(&client.get(path).map_err(failed)?).into_owned();
    if *json {
        return print_json(&answer);
    }
    if *flows {
        return print(&answer);
    }
    let discovery: Discovery = serde_json::from_str(&answer)
        .map_err(|error| Failure::Failed(format!("cannot read the list of endpoints: {error}")))?;
    print(&text(discovery))
}

/// Returns the list for people, the most called endpoints first. Texts of clients are printable in it.
fn text(discovery: Discovery) -> String {
    let mut text = String::new();
    if discovery.flows.is_empty() {
        return "No endpoints are listed: `gateway.discovery` is off, and no flow has the diagnosis `discovery`.\n"
            .to_owned();
    }
    for Inventory { flow, unlisted, mut endpoints } in discovery.flows {
        if !flow.is_empty() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "\nFlow {}:", printable_line(&flow));
        }
        endpoints.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.url.cmp(&other.url)));
        let rows = endpoints.iter().map(row).collect::<Vec<_>>();
        if rows.is_empty() {
            text += "No calls yet. Send traffic through the gateway and ask again.\n";
        } else {
            text += &table(&rows);
        }
        if unlisted > 0 {
            let _ = writeln!(
                text,
                "{unlisted} more exchanges are not listed: too many endpoints, or too many at once."
            );
        }
    }
    text
}

const TITLES: [&str; 8] =
    ["CALLS", "ENDPOINT", "STATUSES", "P50", "P99", "LAST CALL", "CONSUMERS", "CLIENTS"];

fn row(endpoint: &Endpoint) -> [String; 8] {
    let status = |(status, count): (&u16, &u64)| match status {
        0 => format!("none: {count}"),
        status => format!("{status}: {count}"),
    };
    let named = |counts: &BTreeMap<String, u64>, others: u64| {
        let others = (others > 0).then(|| format!("others: {others}"));
        let listed = counts.iter().map(|(name, count)| format!("{name}: {count}"));
        listed.chain(others).collect::<Vec<_>>().join(", ")
    };
    // Seconds are enough for people.
    let last = endpoint.last_seen.get(..19).unwrap_or(&endpoint.last_seen).replace('T', " ");
    let cells = [
        endpoint.count.to_string(),
        format!("{} {}{}", endpoint.method, endpoint.url, endpoint.path),
        endpoint.statuses.iter().map(status).collect::<Vec<_>>().join(", "),
        millis(endpoint.p50_us),
        millis(endpoint.p99_us),
        last,
        named(&endpoint.consumers, endpoint.other_consumers),
        named(&endpoint.clients, endpoint.other_clients),
    ];
    cells.map(|cell| printable_line(&cell).into_owned())
}

fn millis(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

/// Returns aligned columns, without those that are empty in every row.
fn table(rows: &[[String; 8]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default().max(TITLES[column].len())
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    let titles = TITLES.map(str::to_owned);
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if rows.iter().all(|row| row[column].is_empty()) {
                continue;
            }
            let _ = match column {
                0 | 3 | 4 => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(endpoints: &str) -> String {
        let answer = format!(r#"{{"flows": [{{"flow": "", "unlisted": 2, "endpoints": [{endpoints}]}}]}}"#);
        text(serde_json::from_str(&answer).unwrap())
    }

    #[test]
    fn endpoints_are_listed_in_columns_the_most_called_first() {
        let endpoint = |path: &str, count: u64| {
            format!(
                r#"{{"url": "https://a.example", "method": "GET", "path": "{path}", "count": {count},
                "statuses": {{"0": 1, "200": 2}}, "p50_us": 1234, "p99_us": 56789, "consumers": {{"shop": 2}},
                "last_seen": "2026-11-23T10:00:00.123456Z", "other_consumers": 1,
                "clients": {{}}, "other_clients": 0}}"#
            )
        };
        let list = shown(&[endpoint("/a", 3), endpoint("/users/{user_id}", 12)].join(","));
        let expected = "\
CALLS  ENDPOINT                                STATUSES            P50      P99  LAST CALL            CONSUMERS
   12  GET https://a.example/users/{user_id}  none: 1, 200: 2  1.2 ms  56.7 ms  2026-11-23 10:00:00  shop: 2, others: 1
    3  GET https://a.example/a                none: 1, 200: 2  1.2 ms  56.7 ms  2026-11-23 10:00:00  shop: 2, others: 1
2 more exchanges are not listed: too many endpoints, or too many at once.
";
        assert_eq!(list.lines().map(str::trim_end).count(), 4);
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&list), squeezed(expected));
        let columns: Vec<_> =
            list.lines().take(3).map(|line| line.find("2026").or(line.find("LAST"))).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{list}");
    }

    #[test]
    fn client_programs_have_a_column_if_any_are_listed() {
        let list = shown(
            r#"{"url": "https://a.example", "method": "GET", "path": "/a", "count": 1, "statuses": {"200": 1},
            "p50_us": 1, "p99_us": 1, "last_seen": "2026-11-23T10:00:00Z", "consumers": {}, "other_consumers": 0,
            "clients": {"py/1.2": 1}, "other_clients": 0}"#,
        );
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines[0].ends_with("LAST CALL            CLIENTS"), "{list}");
        assert!(lines[1].ends_with("  py/1.2: 1"), "{list}");
    }

    #[test]
    fn an_empty_list_says_what_to_do() {
        assert!(shown("").starts_with("No calls yet."));
        let off = text(serde_json::from_str(r#"{"flows": []}"#).unwrap());
        assert!(off.contains("`gateway.discovery` is off"));
    }
}
