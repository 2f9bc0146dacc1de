//! `type: otlp`: sends spans and metrics to an OpenTelemetry collector as protocol buffers over HTTP
//! (OTLP/HTTP 1.x).

use std::path::PathBuf;

use egret_config::{Problem, Size};
use egret_har::sink::{Content, Exported};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::collector::{self, Batches, CollectorExporter, batch_default, flush_after_default};
use crate::counters::Counters;
use crate::exporter::ExporterContext;
use crate::header_fields::{HeaderFields, header_fields, header_problems};
use crate::http::{Http, HttpResponse};
use crate::open_error::OpenCause;
use crate::otlp::{self, AttributeValue};
use crate::server_url::check_url;
use crate::ship::{SendOutcome, Transport};

/// Sends spans and metrics to a collector that speaks OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpConfig {
    /// URL of the collector, such as `http://127.0.0.1:4318`. `/v1/traces` and `/v1/metrics` are appended to
    /// it.
    pub endpoint: String,
    /// Header fields sent with every request, such as the collector's API key.
    #[serde(default, skip_serializing_if = "HeaderFields::is_empty")]
    pub headers: HeaderFields,
    /// Name of the sender in the collector (`service.name`).
    #[serde(default = "service_name_default")]
    pub service_name: String,
    /// Maximum time that a span or metric waits for others before its batch is sent.
    #[serde(default = "flush_after_default")]
    pub flush_after: egret_config::Duration,
    /// Maximum number of spans and metrics in a batch.
    #[serde(default = "batch_default")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch: u16,
    /// Compresses requests.
    #[serde(default)]
    pub gzip: bool,
    /// Maximum size of the spans and metrics on disk, in `data_dir/spool`, while the collector is
    /// unreachable; the oldest are deleted. At least `16MiB`.
    #[serde(default = "egret_config::kib::<65_536>")]
    pub spool: Size,
    /// PEM file of certificate authorities that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

fn service_name_default() -> String {
    "egret".to_owned()
}

impl OtlpConfig {
    /// Checks rules that the types cannot express.
    pub(crate) fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        if let Err(error) = check_url(&self.endpoint) {
            problems.push(Problem::new(format!("{at}.endpoint"), error.to_string()));
        }
        header_problems(&self.headers, at, problems);
        self.batches().problems(at, problems);
    }

    fn batches(&self) -> Batches {
        Batches { flush_after: self.flush_after, batch: self.batch, spool: self.spool }
    }

    /// Opens an exporter of spans and metrics, and starts its thread.
    pub(crate) fn open(
        &self,
        name: &str,
        counters: Counters,
        context: ExporterContext<'_>,
    ) -> Result<CollectorExporter, OpenCause> {
        let url = check_url(&self.endpoint)?;
        let mut http = Http::new(&url, self.ca.as_deref(), context.upstream_proxy)?;
        http.add_fields(header_fields(&self.headers)?);
        let path = url.path().trim_end_matches('/').to_owned();
        let otlp = Otlp { http, path, config: self.clone(), version: context.version.to_owned() };
        let pack = |exchange: &Exported<'_>| exchange.entry.to_vec();
        CollectorExporter::start(name, Content::Telemetry, pack, self.batches(), counters, context, otlp)
    }
}

struct Otlp {
    http: Http,
    /// Path of the collector's URL, without a slash at the end.
    path: String,
    config: OtlpConfig,
    version: String,
}

impl Otlp {
    /// Sends the spans or the metrics of a batch.
    async fn post(&mut self, kind: u8, parts: Vec<&[u8]>) -> SendOutcome {
        if parts.is_empty() {
            return SendOutcome::Accepted { rejected: 0, bytes: 0, warning: None };
        }
        let path = if kind == otlp::SPAN { "traces" } else { "metrics" };
        let count = parts.len() as u64;
        let resource = [
            ("service.name", AttributeValue::Text(&self.config.service_name)),
            ("service.version", AttributeValue::Text(&self.version)),
        ];
        let body = otlp::request(parts, &resource, &self.version);
        let target = format!("{}/v1/{path}", self.path);
        let judge = |response: &HttpResponse, bytes| interpret(response, count, bytes);
        collector::post(&mut self.http, target, "application/x-protobuf", body, self.config.gzip, judge).await
    }
}

impl Transport for Otlp {
    /// Sends the spans first. If the metrics fail after them, both are sent again.
    async fn send(&mut self, batch: &[Vec<u8>]) -> SendOutcome {
        let of = |wanted: u8| -> Vec<&[u8]> {
            let split = |record: &'_ Vec<u8>| record.split_first().map(|(kind, _)| *kind);
            batch.iter().filter(|record| split(record) == Some(wanted)).map(|record| &record[1..]).collect()
        };
        let (spans, metrics) = (of(otlp::SPAN), of(otlp::METRIC));
        let damaged = (batch.len() - spans.len() - metrics.len()) as u64;
        let (mut rejected, mut bytes, mut warning) = (damaged, 0, None);
        for (kind, parts) in [(otlp::SPAN, spans), (otlp::METRIC, metrics)] {
            match self.post(kind, parts).await {
                SendOutcome::Accepted { rejected: more, bytes: sent, warning: why } => {
                    rejected += more;
                    bytes += sent;
                    warning = why.or(warning);
                }
                other => return other,
            }
        }
        SendOutcome::Accepted { rejected, bytes, warning }
    }
}

/// Interprets the response to `count` spans or metrics (OTLP/HTTP, "Failures").
fn interpret(response: &HttpResponse, count: u64, bytes: u64) -> SendOutcome {
    let part = (200..300).contains(&response.status).then(|| otlp::rejected(&response.body)).flatten();
    let Some((lost, why)) = part else { return collector::interpret(response, count, bytes) };
    // For metrics the collector counts data points, and one lost metric may have many.
    let why: String = why.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let warning = Some(format!("the collector rejected part of a batch: {why}"));
    SendOutcome::Accepted { rejected: lost.min(count), bytes, warning }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_says_what_becomes_of_a_batch() {
        let interpreted = |status, body: &'static [u8]| {
            interpret(&HttpResponse { status, retry_after: None, max_age: None, body: body.into() }, 5, 100)
        };
        let rejected = |outcome| match outcome {
            SendOutcome::Accepted { rejected, .. } => Some(rejected),
            _ => None,
        };
        for (status, body, expected) in [
            (200, &b""[..], Some(0)),
            (202, b"", Some(0)),
            (200, b"\x0a\x02\x08\x02", Some(2)),
            (200, b"\x0a\x02\x08\x09", Some(5)),
            (400, b"", Some(5)),
            (401, b"", Some(5)),
            (429, b"", None),
            (503, b"", None),
        ] {
            assert_eq!(rejected(interpreted(status, body)), expected, "{status} {body:?}");
        }
        assert!(matches!(interpreted(413, b""), SendOutcome::TooLarge));
    }

    #[test]
    fn invalid_settings_are_reported_at_their_keys() {
        let config = serde_json::json!({
            "endpoint": "http://u:p@a", "headers": { "a b": "${env:PATH}" }, "batch": 0, "spool": "1MiB",
        });
        let config: OtlpConfig = serde_json::from_value(config).unwrap();
        let mut problems = Vec::new();
        config.problems("exporters.o", &mut problems);
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(
            paths,
            ["exporters.o.endpoint", "exporters.o.headers.a b", "exporters.o.batch", "exporters.o.spool"]
        );
    }
}
