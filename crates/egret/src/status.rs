//! `egret status`: a running gateway on one screen, with what is wrong now.

use std::fmt::Write as _;

use egret_clock::Timestamp;
use egret_service::control_client::{ControlClient, ControlClientError};
use egret_settings::failure::Failure;
use egret_settings::output::print;
use serde_json::Value;

use crate::asked_gateway::AskedGateway;
use crate::findings::{self, Finding};
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
    print(&format!("gateway at {}, {}", client.address, state.text(findings::now())))?;
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
    wrong: Vec<Finding>,
}

impl GatewayStatus {
    fn of(client: &ControlClient) -> Result<Self, ControlClientError> {
        let read = |path: &str| -> Result<Value, ControlClientError> {
            Ok(serde_json::from_slice(&client.get(path)?).unwrap_or_default())
        };
        let wrong = findings::read(client)?;
        Ok(Self { stats: read("/api/v1/stats")?, gateway: read("/api/v1/gateway")?, wrong })
    }

    fn text(&self, now: Timestamp) -> String {
        let Self { stats, gateway, wrong } = self;
        let version = stats["version"].as_str().unwrap_or_default();
        let ready = if stats["ready"] == true { "ready" } else { "not ready" };
        let uptime = findings::duration(stats["uptime_s"].as_u64().unwrap_or_default());
        let mut text = format!("version {version}: {ready}, up for {uptime}\n");
        let listeners = gateway["listeners"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = listeners.filter_map(|listener| listener["address"].as_str()).collect();
        let _ = writeln!(text, "listens on {}", addresses.join(", "));
        text += &table(stats);
        text += if wrong.is_empty() { "\nnothing is wrong now\n" } else { "\nwrong now:\n" };
        text + &findings::render(wrong, now)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_fits_one_screen() {
        let stats = json!({
            "version": "1.2.3", "ready": true, "uptime_s": 7_500,
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
        let summary = "exporter a fails".to_owned();
        let wrong = vec![Finding { severity: "warning".to_owned(), summary, ..Finding::default() }];
        let text = GatewayStatus { stats, gateway, wrong }.text(Timestamp::default());
        let expected = "version 1.2.3: ready, up for 2 h 5 min\n\
                        listens on 127.0.0.1:8000\n\n\
                        provider                           calls     5xx by Egret       p50       p99\n\
                        shop                                  45       3        2   12.3 ms         –\n\n\
                        wrong now:\n  warning: exporter a fails\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
