//! `type: alf`: sends ALF documents over ZeroMQ or HTTP.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use egret_config::{Problem, Secret, Size};
use egret_har::alf::{self, AlfError, Envelope, Version};
use egret_har::sink::{Content, Exported};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::collector::{self, Batches, CollectorExporter, batch_default, failed, flush_after_default};
use crate::counters::Counters;
use crate::exporter::ExporterContext;
use crate::http::{Http, HttpResponse};
use crate::open_error::OpenCause;
use crate::server_url::check_url;
use crate::ship::{SendOutcome, Transport};
use crate::zmtp::{Push, socket_address};

/// Replacement for the token in printed documents.
const MASK: &str = "***";
/// Time limit for a connection to a ZeroMQ socket, including its handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit for a batch over ZeroMQ. A PULL socket whose owner does not read sends no reply.
const SEND_MAX: Duration = Duration::from_secs(30);

/// Sends each exchange as an ALF document to a collector.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlfConfig {
    /// Connection to the collector.
    pub transport: AlfTransportConfig,
    /// Version of the format.
    #[serde(default)]
    pub version: Version,
    /// Token that identifies the customer to the collector, for exchanges without a token of their own.
    /// Required for 1.0.0 and 1.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_token: Option<Secret>,
    /// Environment, such as `production`, for exchanges without one of their own.
    #[serde(default)]
    pub environment: String,
    /// Documents per HTTP request.
    #[serde(default)]
    pub mode: AlfMode,
    /// Maximum time that a document waits for others before its batch is sent.
    #[serde(default = "flush_after_default")]
    pub flush_after: egret_config::Duration,
    /// Maximum number of documents in a batch.
    #[serde(default = "batch_default")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch: u16,
    /// Compresses documents sent over HTTP.
    #[serde(default)]
    pub gzip: bool,
    /// Maximum size of the documents on disk, in `data_dir/spool`, while the collector is unreachable; the
    /// oldest are deleted. At least `16MiB`.
    #[serde(default = "egret_config::kib::<262_144>")]
    pub spool: Size,
    /// PEM file of certificate authorities that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Prints each document to standard output once the collector has it, on the line after `SENT`. Its token
    /// is not shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub echo: bool,
}

egret_config::keys! {
    /// Connection to a collector. Exactly one of the keys is required.
    #[derive(Eq)]
    pub struct AlfTransportConfig {
        /// Address of a ZeroMQ PULL socket: `tcp://host:port`. The connection is not encrypted.
        pub zeromq: Option<String>,
        /// URL of a collector. The version and `batch` or `single` are appended to it.
        pub http: Option<String>,
    }
}

/// Documents per HTTP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AlfMode {
    /// A list: `POST {url}/{version}/batch`.
    #[default]
    Batch,
    /// One document: `POST {url}/{version}/single`.
    Single,
}

impl AlfConfig {
    /// Checks rules that the types cannot express.
    pub(crate) fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        let mut problem =
            |key: &str, message: String| problems.push(Problem::new(format!("{at}.{key}"), message));
        match (&self.transport.zeromq, &self.transport.http) {
            (Some(address), None) => {
                if let Err(error) = socket_address(address) {
                    problem("transport.zeromq", error.to_string());
                }
            }
            (None, Some(url)) => {
                if let Err(error) = check_url(url) {
                    problem("transport.http", error.to_string());
                }
            }
            _ => problem("transport", "exactly one of `zeromq` and `http` is required".to_owned()),
        }
        self.batches().problems(at, problems);
    }

    fn batches(&self) -> Batches {
        Batches { flush_after: self.flush_after, batch: self.batch, spool: self.spool }
    }

    /// Opens an exporter of ALF documents, and starts its thread.
    pub(crate) fn open(
        &self,
        name: &str,
        counters: Counters,
        context: ExporterContext<'_>,
    ) -> Result<CollectorExporter, OpenCause> {
        let config = self;
        let version = config.version;
        let connection = match (&config.transport.zeromq, &config.transport.http) {
            (Some(address), _) => {
                CollectorConnection::ZeroMq { address: socket_address(address)?.to_owned(), push: None }
            }
            (None, url) => {
                let url = check_url(url.as_deref().unwrap_or_default())?;
                let end = if config.mode == AlfMode::Batch { "batch" } else { "single" };
                let target = format!("{}/{version}/{end}", url.path().trim_end_matches('/'));
                let http = Http::new(&url, config.ca.as_deref(), context.upstream_proxy)?;
                CollectorConnection::Http { http: Box::new(http), target }
            }
        };
        let alf = Alf { connection, version, config: config.clone() };
        CollectorExporter::start(name, Content::Entries, pack, self.batches(), counters, context, alf)
    }
}

/// Packs an exchange for the queue: client, token and environment, each after its length in 16 bits, and the
/// entry. It contains nothing from the config, so the exporter's own token never reaches the disk.
fn pack(exchange: &Exported<'_>) -> Vec<u8> {
    let client = exchange.client.map(|client| client.to_string()).unwrap_or_default();
    let texts = [&*client, exchange.service_token, exchange.environment];
    let length: usize = texts.iter().map(|text| 2 + text.len()).sum();
    let mut record = Vec::with_capacity(length + exchange.entry.len());
    for text in texts {
        // A header field cannot be longer than its head.
        let text = if u16::try_from(text.len()).is_ok() { text } else { "" };
        record.extend_from_slice(&u16::try_from(text.len()).unwrap_or_default().to_le_bytes());
        record.extend_from_slice(text.as_bytes());
    }
    record.extend_from_slice(exchange.entry);
    record
}

/// Unpacks an exchange. Returns `None` if the record is malformed.
fn unpack(mut record: &[u8]) -> Option<Exported<'_>> {
    let mut text = || {
        let (length, rest) = record.split_first_chunk::<2>()?;
        let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        record = rest;
        std::str::from_utf8(text).ok()
    };
    let (client, service_token, environment) = (text()?, text()?, text()?);
    let client: Option<IpAddr> = client.parse().ok();
    Some(Exported { entry: record, client, service_token, environment })
}

/// Connection to a collector.
enum CollectorConnection {
    ZeroMq { address: String, push: Option<Push> },
    Http { http: Box<Http>, target: String },
}

struct Alf {
    connection: CollectorConnection,
    version: Version,
    config: AlfConfig,
}

/// The documents of a batch, and the records that could not be converted.
#[derive(Default)]
struct Documents {
    texts: Vec<Vec<u8>>,
    /// Text to print once they are sent.
    echo: Vec<u8>,
    rejected: u64,
    warning: Option<String>,
}

/// The reason why a record has no document.
#[derive(Debug, thiserror::Error)]
enum DocumentError {
    #[error("a record is damaged")]
    Damaged,
    #[error("{0}")]
    Alf(AlfError),
}

impl Alf {
    fn documents(&self, batch: &[Vec<u8>]) -> Documents {
        let own = self.config.service_token.as_ref().map_or("", Secret::expose);
        let mut found = Documents::default();
        for record in batch {
            let mut document = Vec::with_capacity(record.len() + 256);
            let written = unpack(record).ok_or(DocumentError::Damaged).and_then(|exchange| {
                let or = |text, own| if str::is_empty(text) { own } else { text };
                let envelope = Envelope {
                    service_token: or(exchange.service_token, own),
                    environment: or(exchange.environment, &self.config.environment),
                    client: exchange.client,
                };
                alf::write(self.version, exchange.entry, &envelope, &mut document)
                    .map_err(DocumentError::Alf)?;
                if self.config.echo {
                    let masked = Envelope { service_token: MASK, ..envelope };
                    found.echo.extend_from_slice(b"SENT\n");
                    alf::write(self.version, exchange.entry, &masked, &mut found.echo)
                        .map_err(DocumentError::Alf)?;
                    found.echo.push(b'\n');
                }
                Ok(())
            });
            match written {
                Ok(()) => found.texts.push(document),
                Err(error) => {
                    found.rejected += 1;
                    found.warning = Some(format!("cannot send an entry as ALF {}: {error}", self.version));
                }
            }
        }
        found
    }
}

impl Transport for Alf {
    async fn send(&mut self, batch: &[Vec<u8>]) -> SendOutcome {
        let Documents { texts: documents, echo, rejected, warning } = self.documents(batch);
        if documents.is_empty() {
            return SendOutcome::Accepted { rejected, bytes: 0, warning };
        }
        let version = self.version;
        let outcome = match &mut self.connection {
            CollectorConnection::ZeroMq { address, push } => {
                push_all(address, push, version, &documents).await
            }
            CollectorConnection::Http { http, target } if self.config.mode == AlfMode::Batch => {
                let body = [b"[", &documents.join(&b","[..])[..], b"]"].concat();
                post(http, target, body, documents.len(), self.config.gzip).await
            }
            CollectorConnection::Http { http, target } => {
                post_each(http, target, documents, self.config.gzip).await
            }
        };
        match outcome {
            SendOutcome::Accepted { rejected: more, bytes, warning: other } => {
                // The reader of standard output may be gone.
                let _ = io::stdout().write_all(&echo);
                SendOutcome::Accepted { rejected: rejected + more, bytes, warning: other.or(warning) }
            }
            other => other,
        }
    }
}

async fn push_all(
    address: &str,
    kept: &mut Option<Push>,
    version: Version,
    documents: &[Vec<u8>],
) -> SendOutcome {
    let prefix = format!("alf_{version} ");
    // A kept connection may have died, which shows only when it is used.
    for is_kept in [true, false] {
        let push = if is_kept { Ok(kept.take()) } else { connect(address).await.map(Some) };
        let mut push = match push {
            Ok(Some(push)) => push,
            Ok(None) => continue,
            Err(error) => return failed(format!("{address}: {error}")),
        };
        let messages = documents.iter().map(|document| [prefix.as_bytes(), document]);
        match timeout(SEND_MAX, push.send(messages)).await {
            Ok(Ok(())) => {
                *kept = Some(push);
                let bytes = documents.iter().map(|document| (prefix.len() + document.len()) as u64).sum();
                return SendOutcome::Accepted { rejected: 0, bytes, warning: None };
            }
            Ok(Err(_)) if is_kept => {}
            Ok(Err(error)) => return failed(format!("{address}: {error}")),
            Err(_) => return failed(format!("{address}: the collector did not read the batch within 30 s")),
        }
    }
    failed(format!("{address}: no connection"))
}

async fn connect(address: &str) -> io::Result<Push> {
    timeout(CONNECT_MAX, Push::connect(address)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Sends documents one by one. After a failure all of them are sent again.
async fn post_each(http: &mut Http, target: &str, documents: Vec<Vec<u8>>, compresses: bool) -> SendOutcome {
    let (mut rejected, mut bytes, mut warning) = (0, 0, None);
    for document in documents {
        match post(http, target, document, 1, compresses).await {
            SendOutcome::Accepted { rejected: more, bytes: sent, warning: why } => {
                rejected += more;
                bytes += sent;
                warning = why.or(warning);
            }
            SendOutcome::TooLarge => {
                rejected += 1;
                warning = Some("the collector rejected a document as too large (413)".to_owned());
            }
            failed @ SendOutcome::Failed { .. } => return failed,
        }
    }
    SendOutcome::Accepted { rejected, bytes, warning }
}

async fn post(
    http: &mut Http,
    target: &str,
    body: Vec<u8>,
    documents: usize,
    compresses: bool,
) -> SendOutcome {
    let judge = |response: &HttpResponse, bytes| interpret(response, documents as u64, bytes);
    collector::post(http, target.to_owned(), "application/json", body, compresses, judge).await
}

/// A collector's response to a batch: `{"errors":[],"sent":5,"saved":5}`.
#[derive(Deserialize)]
struct IngestReport {
    saved: u64,
}

fn interpret(response: &HttpResponse, documents: u64, bytes: u64) -> SendOutcome {
    if response.status != 207 {
        return collector::interpret(response, documents, bytes);
    }
    // Without a count, it is unknown which documents are missing. Sending all again would duplicate the
    // others.
    let report = serde_json::from_slice::<IngestReport>(&response.body);
    let rejected = report.map_or(0, |report| documents.saturating_sub(report.saved));
    let warning = (rejected > 0).then(|| "the collector rejected part of a batch (207)".to_owned());
    SendOutcome::Accepted { rejected, bytes, warning }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_exchange_waits_without_the_exporter_s_token_and_is_unpacked_again() {
        let exchange = Exported {
            entry: b"{}",
            client: Some(IpAddr::from([10, 0, 0, 1])),
            service_token: "its-own",
            environment: "",
        };
        let record = pack(&exchange);
        let again = unpack(&record).unwrap();
        assert_eq!((again.entry, again.client), (exchange.entry, exchange.client));
        assert_eq!((again.service_token, again.environment), ("its-own", ""));
    }

    #[test]
    fn a_response_says_what_becomes_of_a_batch() {
        let interpreted = |status, body: &'static str| {
            interpret(&HttpResponse { status, retry_after: None, max_age: None, body: body.into() }, 5, 100)
        };
        let rejected = |outcome| match outcome {
            SendOutcome::Accepted { rejected, .. } => Some(rejected),
            _ => None,
        };
        for (status, body, expected) in [
            (200, r#"{"errors":[],"sent":5,"saved":5}"#, Some(0)),
            (207, r#"{"errors":["ALF[1] is bad"],"sent":5,"saved":4}"#, Some(1)),
            (207, "?", Some(0)),
            (400, "", Some(5)),
            (401, "", Some(5)),
            (429, "", None),
            (500, "", None),
            (503, "", None),
        ] {
            assert_eq!(rejected(interpreted(status, body)), expected, "{status} {body}");
        }
        assert!(matches!(interpreted(413, ""), SendOutcome::TooLarge));
    }

    proptest! {
        #[test]
        fn no_record_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = unpack(&bytes);
        }
    }
}
