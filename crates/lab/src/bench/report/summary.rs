//! The result as JSON, and the schema of that.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;

use super::Report;
use crate::bench::tally::{Fault, Series};

/// The result of a run of `egret bench`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Summary {
    /// Version of this format: 1. Fields may be added to it; none is taken away or changes its meaning.
    pub version: u32,
    /// The URL asked, or the first of several.
    pub url: String,
    /// When the run began, in seconds since 1970-01-01 UTC.
    pub started: f64,
    /// Requests that came to an end, failed ones included.
    pub requests: u64,
    /// Requests that failed, each once.
    pub failed: u64,
    /// How long it took, in seconds, without the warm-up.
    pub duration_s: f64,
    /// Exchanges at a time.
    pub concurrency: usize,
    /// Threads of the load client.
    pub threads: usize,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes received of responses, heads included.
    pub bytes_received: u64,
    /// Bytes received of bodies.
    pub bytes_body: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Response times in microseconds: from the start of the exchange, in the open model from the moment it was due.
    pub latency_us: Times,
    /// Times of the phases in microseconds.
    pub phases_us: Phases,
    /// How many responses had which status code.
    pub statuses: BTreeMap<String, u64>,
    /// How many requests failed for which reason: `connect`, `send`, `receive` (the connection broke), `closed` (before the
    /// response was whole), `timeout`, `protocol` (no HTTP/1.1), `length` (another than the first response's), `check`.
    pub errors: BTreeMap<String, u64>,
    /// Requests that were due in the open model and never sent, since no connection came free.
    pub unsent: u64,
    /// Requests under way when the time was over; they are not counted.
    pub unfinished: u64,
    /// Each target, where there are several; else none.
    pub targets: Vec<TargetSummary>,
    /// The load client itself.
    pub client: Client,
}

/// Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Times {
    /// The shortest.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub stddev: f64,
    /// The median.
    pub p50: u64,
    /// 75 % took no longer.
    pub p75: u64,
    /// 90 % took no longer.
    pub p90: u64,
    /// 95 % took no longer.
    pub p95: u64,
    /// 99 % took no longer.
    pub p99: u64,
    /// 99.9 % took no longer.
    pub p99_9: u64,
    /// The longest.
    pub max: u64,
}

/// Times of the phases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Phases {
    /// Making a connection, with tunnel and TLS, of those that were made.
    pub connect: Times,
    /// From the request's being sent to the response's first byte.
    pub first_byte: Times,
    /// From start to end: the same as `latency_us`.
    pub total: Times,
    /// How late requests of the open model were sent although a connection was free: the load client's own fault.
    pub sent_late: Times,
}

/// One of several targets.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TargetSummary {
    /// Its URL.
    pub url: String,
    /// Requests whose time was taken.
    pub requests: u64,
    /// Their times in microseconds.
    pub latency_us: Times,
}

/// How the load client itself was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Client {
    /// Share of its time that the busiest thread computed, 0 to 1.
    pub cpu_share: f64,
    /// Whether a thread had no time to spare: then the result is the client's, not the target's.
    pub saturated: bool,
}

impl From<&Series> for Times {
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

impl Report<'_> {
    /// The result for programs.
    pub fn summary(&self, started: SystemTime) -> Summary {
        let (outcome, tally, plan) = (self.outcome, &self.outcome.tally, &self.run.plan);
        let total = Times::from(&tally.total());
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
            threads: plan.threads,
            requests_per_second: outcome.requests_per_second(),
            bytes_received: tally.bytes_received,
            bytes_body: tally.bytes_body,
            bytes_sent: tally.bytes_sent,
            latency_us: total,
            phases_us: Phases {
                connect: tally.connect().into(),
                first_byte: tally.waiting().into(),
                total,
                sent_late: (&tally.lateness).into(),
            },
            statuses: tally.statuses().map(|(status, count)| (status.to_string(), count)).collect(),
            errors: Fault::ALL.map(|fault| (fault.name().to_owned(), tally.faults(fault))).into(),
            unsent: tally.unsent,
            unfinished: tally.unfinished,
            targets: targets.collect(),
            client: Client { cpu_share: outcome.cpu_share, saturated: outcome.saturated },
        }
    }

    /// The result as JSON.
    pub fn json(&self, started: SystemTime) -> String {
        let text = serde_json::to_string_pretty(&self.summary(started));
        // A struct of numbers and texts always becomes JSON.
        text.unwrap_or_default() + "\n"
    }
}

/// The JSON Schema of [`Summary`].
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Summary).to_value();
    schema["title"] = "Result of egret bench".into();
    format!("{schema:#}\n")
}
