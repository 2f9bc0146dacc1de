//! `egret bench`: percentiles come from its CSV, the other figures from its JSON. The HDR log is kept with
//! the results.

use std::path::Path;

use egret_measure::statistics::real;
use serde::Deserialize;

use super::grpc;
use super::output_error::OutputError;
use super::percentiles::{PERCENTILES_CSV, percentiles};
use super::task::{ClientCommand, ClientTask, words};
use crate::client_settings::{Amount, Protocol};
use crate::figures::{EventDelays, Figures};

const JSON: &str = "bench.json";

/// Name of the file for the HDR histogram.
const HDR: &str = "latency.hdr";

/// Builds the command line.
pub(crate) fn command(task: &ClientTask<'_>) -> ClientCommand {
    let mut command =
        ClientCommand::new(&["bench", "-q", "-l", "-r", "-c", &task.client.concurrency.to_string()]);
    command.add(match task.amount {
        Amount::Requests(requests) => words(&["-n", &requests.to_string()]),
        Amount::For(duration) => words(&["-t", &duration.as_secs().to_string()]),
    });
    if task.client.protocol != Protocol::Http1 {
        command.add(["--http2", "-m", &task.client.streams.to_string()]);
    }
    if task.client.keep_alive {
        command.add(["-k"]);
    }
    if task.client.threads > 1 {
        command.add(["--threads", &task.client.threads.to_string()]);
    }
    if let Some(rate) = task.client.requests_per_second {
        command.add(["--rate", &rate.to_string()]);
    }
    if task.url().starts_with("https:") {
        // Like the other clients, which do not verify the provider's certificate: no trusted authority has
        // signed it.
        command.add(["--insecure"]);
    }
    if task.client.resume {
        command.add(["--resume"]);
    }
    if task.client.events {
        command.add(["--events"]);
    }
    if let Some(proxy) = task.proxy {
        command.add(["-X", proxy]);
    }
    command.add_fields(task, "-H");
    if task.client.protocol == Protocol::Grpc {
        command.add(["-H", grpc::TRAILERS_FIELD]);
        if task.client.body_bytes > 0 {
            // A call that fails has a status of 200 too, but returns no payload.
            command.add(["--check-body", "x"]);
        }
        command.add_body(task, &["-T", grpc::CONTENT_TYPE], "-p");
    } else {
        let is_json = task.client.json.is_some();
        let content_type = if is_json { "application/json" } else { "application/octet-stream" };
        command.add_body(task, &["-T", content_type], "-p");
    }
    for (option, file) in [("-e", PERCENTILES_CSV), ("--json", JSON), ("--hdr", HDR)] {
        command.add([option.into(), task.directory.join(file).into_os_string()]);
    }
    for url in task.urls.iter().skip(1) {
        command.add(["--target".to_owned(), format!("1={url}")]);
    }
    command.add([task.url()]);
    command
}

#[derive(Deserialize)]
struct Printed {
    requests: u64,
    duration_s: f64,
    requests_per_second: f64,
    bytes_body: Option<u64>,
    latency_us: Latency,
    latency_2xx_us: Option<Delay>,
    #[serde(default)]
    events: u64,
    #[serde(default)]
    event_delay_us: Delay,
    statuses: std::collections::BTreeMap<String, u64>,
    errors: std::collections::BTreeMap<String, u64>,
    tls_resumed: Option<u64>,
    client: Own,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
    p99_9: f64,
}

#[derive(Default, Deserialize)]
struct Delay {
    p50: u64,
    p99: u64,
}

#[derive(Deserialize)]
struct Own {
    saturated: bool,
}

/// Parses the output.
pub(crate) fn figures(directory: &Path) -> Result<Figures, OutputError> {
    let text = std::fs::read_to_string(directory.join(JSON)).map_err(OutputError::File)?;
    let seen: Printed = serde_json::from_str(&text).map_err(|error| OutputError::Json {
        expected: "its JSON does not match the published schema",
        error,
    })?;
    let Delay { p50: p50_us, p99: p99_us } = seen.event_delay_us;
    let delays = EventDelays { events: seen.events, p50_us, p99_us };
    let not_2xx = seen.statuses.iter().filter(|(status, _)| !status.starts_with('2')).map(|(_, count)| count);
    Ok(Figures {
        requests: seen.requests,
        failed: not_2xx.chain(seen.errors.values()).sum(),
        duration_s: seen.duration_s,
        requests_per_second: seen.requests_per_second,
        mean_ms: Some(seen.latency_us.mean / 1e3),
        percentiles_ms: percentiles(directory)?,
        p99_9_ms: Some(seen.latency_us.p99_9 / 1e3),
        served_p99_ms: seen.latency_2xx_us.map(|served| real(served.p99) / 1e3),
        bytes_body: seen.bytes_body,
        event_delays: (seen.events > 0).then_some(delays),
        resumed: seen.tls_resumed,
        client_saturated: Some(seen.client.saturated),
    })
}
