//! `egret reload`: lets a running gateway apply its config file again.

use std::fmt::Write as _;
use std::time::Duration;

use egret_service::control_client::ControlClientError;
use egret_settings::failure::Failure;
use egret_settings::output::print;
use serde_json::Value;

use crate::asked_gateway::AskedGateway;

/// Time for the file to settle, and for the config to be applied.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Reloads, and prints what has changed.
pub fn run(asked: &AskedGateway) -> Result<(), Failure> {
    let client = asked.client()?;
    let address = client.address;
    match client.post_within("/api/v1/config/reload", TIMEOUT) {
        Ok(reply) => print(&lines(&serde_json::from_slice(&reply).unwrap_or_default())),
        Err(ControlClientError::Refused { status: 422, detail }) => Err(Failure::Misused(format!(
            "the gateway at {address} refused the config, and the one before stays in effect:\n{detail}"
        ))),
        Err(ControlClientError::Refused { detail, .. }) => {
            Err(Failure::Failed(format!("the gateway at {address} has not reloaded: {detail}")))
        }
        Err(error) => Err(Failure::Failed(format!(
            "cannot ask the gateway at {address}: {error}; is `egret run` running?"
        ))),
    }
}

/// Returns what a reload has changed, what waits for a restart, and the warnings.
fn lines(reply: &Value) -> String {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    let mut lines = match &texts(&reply["applied"])[..] {
        [] => "reloaded: nothing has changed\n".to_owned(),
        changed => format!("reloaded: {} changed\n", changed.join(", ")),
    };
    for key in texts(&reply["restart"]) {
        let _ = writeln!(lines, "`{key}` has changed, but only a restart applies it");
    }
    for warning in reply["warnings"].as_array().into_iter().flatten() {
        let text = |member: &str| warning[member].as_str().unwrap_or_default();
        let _ = writeln!(
            lines,
            "warning: {}:{}: {}: {}",
            text("file"),
            warning["line"],
            text("path"),
            text("message")
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reload_is_described_in_lines() {
        let reply = json!({
            "applied": ["flows", "quotas"],
            "restart": ["gateway.workers"],
            "warnings": [{ "file": "egret.yaml", "line": 3, "path": "flows[0].match.path", "message": "odd" }],
        });
        let expected = "reloaded: flows, quotas changed\n\
                        `gateway.workers` has changed, but only a restart applies it\n\
                        warning: egret.yaml:3: flows[0].match.path: odd\n";
        assert_eq!(lines(&reply), expected);
        assert_eq!(lines(&json!({ "applied": [] })), "reloaded: nothing has changed\n");
    }
}
