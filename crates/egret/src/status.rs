//! `egret status`: a running gateway on one screen, with what is wrong now.

use std::fmt::Write as _;

use egret_service::control_client::{ControlClient, ControlClientError};
use egret_settings::failure::Failure;
use egret_settings::output::print;
use serde_json::Value;

use crate::asked_gateway::AskedGateway;
use crate::doctor::{PATHS, cluster_troubles, failing, troubles};
use crate::tail::line::duration_in_words;

/// Prints the state. Fails if something is wrong.
pub fn run(asked: &AskedGateway) -> Result<(), Failure> {
    let client = asked.client()?;
    let state = GatewayStatus::of(&client).map_err(|error| {
        Failure::Failed(format!(
            "cannot ask the gateway at {}: {error}; is `egret run` running?",
            client.address
        ))
    })?;
    print(&format!("gateway at {}, {}", client.address, state.text()))?;
    match state.wrong.len() {
        0 => Ok(()),
        1 => Err(Failure::Failed("1 thing is wrong now".to_owned())),
        count => Err(Failure::Failed(format!("{count} things are wrong now"))),
    }
}

/// The state of a gateway.
struct GatewayStatus {
    stats: Value,
    gateway: Value,
    /// The troubles of this moment.
    wrong: Vec<String>,
}

impl GatewayStatus {
    fn of(client: &ControlClient) -> Result<Self, ControlClientError> {
        let read = |path: &str| -> Result<Value, ControlClientError> {
            Ok(serde_json::from_slice(&client.get(path)?).unwrap_or_default())
        };
        let mut wrong = failing(&read("/api/v1/history")?);
        for (name, path) in PATHS.iter().filter(|(name, _)| *name != "config") {
            let value = &read(path)?[name];
            wrong.extend(troubles(name, value));
            if *name == "cluster" {
                wrong.extend(cluster_troubles(value));
            }
        }
        Ok(Self { stats: read("/api/v1/stats")?, gateway: read("/api/v1/gateway")?, wrong })
    }

    fn text(&self) -> String {
        let Self { stats, gateway, wrong } = self;
        let version = stats["version"].as_str().unwrap_or_default();
        let ready = if stats["ready"] == true { "ready" } else { "not ready" };
        let mut text = format!("version {version}: {ready}, up for {}\n", uptime(&stats["uptime_s"]));
        let listeners = gateway["listeners"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = listeners.filter_map(|listener| listener["address"].as_str()).collect();
        let _ = writeln!(text, "listens on {}", addresses.join(", "));
        let refused = stats["reloads_refused"].as_u64().unwrap_or_default();
        if refused > 0 {
            let _ = writeln!(text, "refused changes of the config, see the log: {refused}");
        }
        text += &table(stats);
        text += if wrong.is_empty() { "\nnothing is wrong now\n" } else { "\nwrong now:\n" };
        for line in wrong {
            let _ = writeln!(text, "  - {line}");
        }
        text
    }
}

/// Returns the providers with their calls since the start.
fn table(stats: &Value) -> String {
    let count = |list: &Value, class: Option<&str>| -> u64 {
        let entries = list.as_array().into_iter().flatten();
        let meant = entries.filter(|entry| class.is_none_or(|class| entry["status"] == class));
        meant.filter_map(|entry| entry["count"].as_u64()).sum()
    };
    let mut table = String::new();
    for provider in stats["providers"].as_array().into_iter().flatten() {
        let name = provider["host"].as_str().or(provider["name"].as_str()).unwrap_or_default();
        let calls = count(&provider["exchanges"], None);
        if calls == 0 {
            continue;
        }
        if table.is_empty() {
            table = format!(
                "\n{:30} {:>9} {:>7} {:>8} {:>9} {:>9}\n",
                "provider", "calls", "5xx", "by Egret", "p50", "p99"
            );
        }
        let generated = count(&provider["generated"], None);
        let failed = count(&provider["exchanges"], Some("5xx")).saturating_sub(generated_5xx(provider));
        let latency = &stats["quantiles_us"][name]["latency"];
        let time =
            |quantile: &str| latency[quantile].as_u64().map_or_else(|| "–".to_owned(), duration_in_words);
        let _ = writeln!(
            table,
            "{name:30} {calls:>9} {failed:>7} {generated:>8} {:>9} {:>9}",
            time("p50"),
            time("p99")
        );
    }
    table
}

/// Returns the number of responses with a status 5xx that Egret generated.
fn generated_5xx(provider: &Value) -> u64 {
    let generated = provider["generated"].as_array().into_iter().flatten();
    generated.filter(|entry| entry["name"] == "5xx").filter_map(|entry| entry["count"].as_u64()).sum()
}

/// Returns a time in its two largest units.
fn uptime(seconds: &Value) -> String {
    let seconds = seconds.as_u64().unwrap_or_default();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_fits_one_screen() {
        let stats = json!({
            "version": "1.2.3", "ready": true, "uptime_s": 7_500, "reloads_refused": 1,
            "quantiles_us": { "shop": { "latency": { "p50": 12_345, "p99": null } } },
            "providers": [
                {
                    "name": "shop", "host": null,
                    "exchanges": [
                        { "method": "GET", "status": "2xx", "count": 40 },
                        { "method": "GET", "status": "5xx", "count": 5 },
                    ],
                    "generated": [{ "name": "5xx", "count": 2 }],
                },
                { "name": "idle", "host": null, "exchanges": [], "generated": [] },
            ],
        });
        let gateway = json!({ "listeners": [{ "address": "127.0.0.1:8000" }] });
        let wrong = vec!["exporter a: down: disk full".to_owned()];
        let text = GatewayStatus { stats, gateway, wrong }.text();
        let expected = "version 1.2.3: ready, up for 2 h 5 min\n\
                        listens on 127.0.0.1:8000\n\
                        refused changes of the config, see the log: 1\n\n\
                        provider                           calls     5xx by Egret       p50       p99\n\
                        shop                                  45       3        2   12.3 ms         –\n\n\
                        wrong now:\n  - exporter a: down: disk full\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn uptimes_have_two_units() {
        let words = [5, 65, 3_700, 90_000].map(|seconds| uptime(&json!(seconds)));
        assert_eq!(words, ["5 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }
}
