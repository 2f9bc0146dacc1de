//! The result of a run as JSON, and its JSON Schema.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;

use super::run_report::RunReport;
use crate::tally::{Fault, Series};

/// The result of a run of `egret bench`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Summary {
    /// Version of this format: 1. Later versions may add fields, but neither remove a field nor change its
    /// meaning.
    pub version: u32,
    /// The requested URL, or the first of several.
    pub url: String,
    /// Start of the run, in seconds since 1970-01-01 UTC.
    pub started: f64,
    /// Requests that ended, failed ones included.
    pub requests: u64,
    /// Failed requests, each counted once.
    pub failed: u64,
    /// Duration of the run in seconds, without the warm-up.
    pub duration_s: f64,
    /// Number of concurrent exchanges.
    pub concurrency: usize,
    /// `HTTP/1.1`, or `HTTP/2`.
    pub protocol: &'static str,
    /// Number of streams on each connection; 1 for HTTP/1.1.
    pub streams: usize,
    /// Threads of the load client.
    pub threads: usize,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes of responses received, heads included.
    pub bytes_received: u64,
    /// Bytes of bodies received.
    pub bytes_body: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Response times in microseconds, from the start of the exchange. In the open model, from the moment it
    /// was due.
    pub latency_us: TimeSummary,
    /// The same of responses with a status of 2xx alone.
    pub latency_2xx_us: TimeSummary,
    /// Times of the phases in microseconds.
    pub phases_us: Phases,
    /// Events of streams whose delay was measured, with `--events`; otherwise 0.
    pub events: u64,
    /// Time in microseconds from the sending of an event to its arrival.
    pub event_delay_us: TimeSummary,
    /// Number of responses with each status code.
    pub statuses: BTreeMap<String, u64>,
    /// Number of failed requests by reason: `connect`, `send`, `receive` (the connection broke), `closed`
    /// (before the response was complete), `timeout`, `protocol` (not HTTP/1.1), `length` (differs from the
    /// first response's), `check`.
    pub errors: BTreeMap<String, u64>,
    /// Connections that resumed a TLS session, with `--resume`.
    pub tls_resumed: u64,
    /// Requests of the open model that were due but never sent, because no connection was free.
    pub unsent: u64,
    /// Requests in progress when the time was over. They are not counted.
    pub unfinished: u64,
    /// The targets, if there are several; otherwise empty.
    pub targets: Vec<TargetSummary>,
    /// The load on the client itself.
    pub client: Client,
}

/// Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Times")]
pub struct TimeSummary {
    /// The shortest time.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub stddev: f64,
    /// The median.
    pub p50: u64,
    /// 75th percentile.
    pub p75: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// The longest time.
    pub max: u64,
}

/// Times of the phases of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Phases {
    /// Time to connect, including tunnel and TLS, of the connections that were made.
    pub connect: TimeSummary,
    /// Time from the start of sending to the first byte of the response.
    pub first_byte: TimeSummary,
    /// Time from start to end: the same as `latency_us`.
    pub total: TimeSummary,
    /// Delay between due time and sending of requests of the open model for which a connection was free. The
    /// load client causes this delay.
    pub sent_late: TimeSummary,
}

/// One of several targets.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TargetSummary {
    /// Its URL.
    pub url: String,
    /// Number of requests with a measured time.
    pub requests: u64,
    /// Response times in microseconds.
    pub latency_us: TimeSummary,
}

/// The load on the client itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Client {
    /// Share of its time that the busiest thread spent computing, 0 to 1.
    pub cpu_share: f64,
    /// `true` if a thread had no time to spare, so the result describes the client and not the target.
    pub saturated: bool,
}

impl From<&Series> for TimeSummary {
    fn from(series: &Series) -> Self {
        Self {
            min: series.min(),
            mean: series.mean(),
            stddev: series.deviation(),
            p50: series.percentile(50.0),
            p75: series.percentile(75.0),
            p90: series.percentile(90.0),
            p95: series.percentile(95.0),
            p99: series.percentile(99.0),
            p99_9: series.percentile(99.9),
            max: series.max(),
        }
    }
}

impl RunReport<'_> {
    /// The result in its machine-readable form.
    pub fn summary(&self, started: SystemTime) -> Summary {
        let (outcome, tally, plan) = (self.outcome, &self.outcome.tally, &self.run.plan);
        let total = TimeSummary::from(&tally.total());
        let targets = self.run.names.iter().zip(tally.by_target()).map(|(url, series)| TargetSummary {
            url: url.clone(),
            requests: series.count(),
            latency_us: series.into(),
        });
        Summary {
            version: 1,
            url: self.run.url.to_string(),
            started: started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            requests: tally.done,
            failed: tally.failed,
            duration_s: outcome.elapsed.as_secs_f64(),
            concurrency: plan.concurrency,
            protocol: if plan.streams.is_some() { "HTTP/2" } else { "HTTP/1.1" },
            streams: plan.streams.unwrap_or(1),
            threads: plan.threads,
            requests_per_second: outcome.requests_per_second(),
            bytes_received: tally.bytes_received,
            bytes_body: tally.bytes_body,
            bytes_sent: tally.bytes_sent,
            latency_us: total,
            latency_2xx_us: (&tally.total_2xx()).into(),
            phases_us: Phases {
                connect: tally.connect().into(),
                first_byte: tally.waiting().into(),
                total,
                sent_late: (&tally.lateness).into(),
            },
            events: tally.event_delays.count(),
            event_delay_us: (&tally.event_delays).into(),
            statuses: tally.statuses().map(|(status, count)| (status.to_string(), count)).collect(),
            errors: Fault::ALL.map(|fault| (fault.name().to_owned(), tally.faults(fault))).into(),
            tls_resumed: tally.resumed,
            unsent: tally.unsent,
            unfinished: tally.unfinished,
            targets: targets.collect(),
            client: Client { cpu_share: outcome.cpu_share, saturated: outcome.saturated },
        }
    }

    /// The result as JSON.
    pub fn json(&self, started: SystemTime) -> String {
        let text = serde_json::to_string_pretty(&self.summary(started));
        // Serializing a struct of numbers and texts does not fail.
        text.unwrap_or_default() + "\n"
    }
}

/// The JSON Schema of `egret bench --json`.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Summary).to_value();
    schema["title"] = "Result of egret bench".into();
    format!("{schema:#}\n")
}
