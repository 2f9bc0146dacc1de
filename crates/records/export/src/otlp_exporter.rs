//! `type: otlp`: sends spans and metrics to an OpenTelemetry collector as protocol buffers over HTTP
//! (OTLP/HTTP 1.x).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_config::{Problem, Secret, Size};
use egret_har::sink::{Content, Exported, Sink};
use hyper::Method;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::background::gzip;
use crate::counters::{Counters, ExporterSnapshot};
use crate::exporter::{Exporter, ExporterContext};
use crate::http::{Http, HttpRequest, HttpResponse};
use crate::open_error::OpenCause;
use crate::otlp::{self, AttributeValue};
use crate::server_url::check_url;
use crate::ship::{SendOutcome, Shipper, Shipping, Transport};

/// Minimum size of a spool: it has to take everything that waits in memory.
const SPOOL_MIN: Size = Size::from_kib(16 << 10);
/// Maximum number of additional header fields. More would be a mistake.
const HEADERS_MAX: usize = 16;

/// Sends spans and metrics to a collector that speaks OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpConfig {
    /// URL of the collector, such as `http://127.0.0.1:4318`. `/v1/traces` and `/v1/metrics` are appended to
    /// it.
    pub endpoint: String,
    /// Header fields sent with every request, such as the collector's API key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
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
    #[serde(default = "spool_default")]
    pub spool: Size,
    /// PEM file of certificate authorities that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

fn service_name_default() -> String {
    "egret".to_owned()
}

fn flush_after_default() -> egret_config::Duration {
    egret_config::Duration::from_secs(2)
}

fn batch_default() -> u16 {
    1_000
}

fn spool_default() -> Size {
    Size::from_kib(64 << 10)
}

impl OtlpConfig {
    /// Checks rules that the types cannot express.
    pub(crate) fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        let mut problem =
            |key: &str, message: String| problems.push(Problem::new(format!("{at}.{key}"), message));
        if let Err(error) = check_url(&self.endpoint) {
            problem("endpoint", error.to_string());
        }
        for name in self.headers.keys() {
            if HeaderName::try_from(name).is_err() {
                problem(&format!("headers.{name}"), format!("`{name}` is not a valid header field name"));
            }
        }
        if self.headers.len() > HEADERS_MAX {
            problem("headers", format!("more than {HEADERS_MAX} header fields"));
        }
        if self.batch == 0 || self.batch > 10_000 {
            problem("batch", "from 1 to 10000".to_owned());
        }
        if self.spool < SPOOL_MIN {
            problem("spool", format!("at least `{SPOOL_MIN}`"));
        }
    }

    /// Returns the configured header fields. The error does not contain any value.
    fn fields(&self) -> Result<Vec<(HeaderName, HeaderValue)>, OpenCause> {
        let field = |(name, value): (&String, &Secret)| {
            let wrong = || OpenCause::HeaderValue(name.clone());
            let mut sent = HeaderValue::try_from(value.expose()).map_err(|_| wrong())?;
            sent.set_sensitive(true);
            Ok((HeaderName::try_from(name).map_err(|_| wrong())?, sent))
        };
        self.headers.iter().map(field).collect()
    }
}

/// An exporter of spans and metrics.
#[derive(Debug)]
pub(crate) struct OtlpExporter {
    shipper: Shipper,
    counters: Arc<Counters>,
}

impl OtlpExporter {
    /// Opens the exporter and starts its thread.
    pub fn open(
        name: &str,
        config: &OtlpConfig,
        counters: Counters,
        context: ExporterContext<'_>,
    ) -> Result<Self, OpenCause> {
        let url = check_url(&config.endpoint)?;
        let mut http = Http::new(&url, config.ca.as_deref())?;
        http.add_fields(config.fields()?);
        let path = url.path().trim_end_matches('/').to_owned();
        let (config, version) = (config.clone(), context.version.to_owned());
        let shipping = Shipping {
            flush_after: config.flush_after.get().max(Duration::from_millis(10)),
            batch_max: usize::from(config.batch),
            spool: context.data_dir.join("spool").join(name),
            spool_bytes_max: config.spool.bytes(),
        };
        let counters = Arc::new(counters);
        let shipper = Shipper::start(shipping, Arc::clone(&counters), Otlp { http, path, config, version })?;
        Ok(Self { shipper, counters })
    }
}

impl Sink for OtlpExporter {
    fn takes(&self, content: Content) -> bool {
        content == Content::Telemetry
    }

    fn put(&self, exchange: Exported<'_>) {
        self.shipper.put(exchange.entry.to_vec());
    }

    fn tick(&self) {}
}

impl Exporter for OtlpExporter {
    fn close(&self, deadline: Instant) {
        self.shipper.close(deadline);
    }

    fn snapshot(&self) -> ExporterSnapshot {
        self.counters.snapshot()
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
        let (body, fields) = if self.config.gzip { (gzip(&body), &PACKED[..]) } else { (body, &PLAIN[..]) };
        let bytes = body.len() as u64;
        let target = format!("{}/v1/{path}", self.path);
        match self.http.send(HttpRequest { method: Method::POST, target, fields, body: body.into() }).await {
            Ok(response) => interpret(&response, count, bytes),
            Err(error) => SendOutcome::Failed { error: error.to_string(), retry_after: None },
        }
    }
}

const PLAIN: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/x-protobuf")];
const PACKED: [(HeaderName, &str); 2] =
    [(CONTENT_TYPE, "application/x-protobuf"), (CONTENT_ENCODING, "gzip")];

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
    match response.status {
        200..300 => match otlp::rejected(&response.body) {
            // For metrics the collector counts data points, and one lost metric may have many.
            Some((lost, why)) => {
                let why: String =
                    why.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect();
                let warning = Some(format!("the collector rejected part of a batch: {why}"));
                SendOutcome::Accepted { rejected: lost.min(count), bytes, warning }
            }
            None => SendOutcome::Accepted { rejected: 0, bytes, warning: None },
        },
        413 => SendOutcome::TooLarge,
        408 | 425 | 429 | 500.. => SendOutcome::Failed {
            error: format!("the collector responded with status {}", response.status),
            retry_after: response.retry_after,
        },
        status => {
            let warning = Some(format!("the collector rejected a request with status {status}"));
            SendOutcome::Accepted { rejected: count, bytes: 0, warning }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_says_what_becomes_of_a_batch() {
        let interpreted = |status, body: &'static [u8]| {
            interpret(&HttpResponse { status, retry_after: None, body: body.into() }, 5, 100)
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
