//! The common part of exporters to collectors: the settings of their batches, the requests, and the meaning
//! of responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_config::{Problem, Size};
use egret_har::sink::{Content, Exported, Sink};
use hyper::Method;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};

use crate::background::gzip;
use crate::counters::{Counters, ExporterSnapshot};
use crate::exporter::{Exporter, ExporterContext};
use crate::http::{Http, HttpRequest, HttpResponse};
use crate::open_error::OpenCause;
use crate::ship::{SendOutcome, Shipper, Shipping, Transport};

/// Minimum size of a spool: it has to take everything that waits in memory.
const SPOOL_MIN: Size = Size::from_kib(16 << 10);

pub(crate) fn flush_after_default() -> egret_config::Duration {
    egret_config::Duration::from_secs(2)
}

pub(crate) fn batch_default() -> u16 {
    1_000
}

/// The settings of batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batches {
    pub flush_after: egret_config::Duration,
    pub batch: u16,
    pub spool: Size,
}

impl Batches {
    /// Checks rules that the types cannot express.
    pub fn problems(self, at: &str, problems: &mut Vec<Problem>) {
        if self.batch == 0 || self.batch > 10_000 {
            problems.push(Problem::new(format!("{at}.batch"), "from 1 to 10000"));
        }
        if self.spool < SPOOL_MIN {
            problems.push(Problem::new(format!("{at}.spool"), format!("at least `{SPOOL_MIN}`")));
        }
    }
}

/// An exporter to a collector.
#[derive(Debug)]
pub(crate) struct CollectorExporter {
    shipper: Shipper,
    counters: Arc<Counters>,
    content: Content,
    /// Makes a record of an exchange.
    pack: fn(&Exported<'_>) -> Vec<u8>,
}

impl CollectorExporter {
    /// Starts the thread of the exporter with this name.
    pub fn start(
        name: &str,
        content: Content,
        pack: fn(&Exported<'_>) -> Vec<u8>,
        batches: Batches,
        counters: Counters,
        context: ExporterContext<'_>,
        transport: impl Transport,
    ) -> Result<Self, OpenCause> {
        let shipping = Shipping {
            flush_after: batches.flush_after.get().max(Duration::from_millis(10)),
            batch_max: usize::from(batches.batch),
            spool: context.data_dir.join("spool").join(name),
            spool_bytes_max: batches.spool.bytes(),
        };
        let counters = Arc::new(counters);
        let shipper = Shipper::start(shipping, Arc::clone(&counters), transport)?;
        Ok(Self { shipper, counters, content, pack })
    }
}

impl Sink for CollectorExporter {
    fn takes(&self, content: Content) -> bool {
        content == self.content
    }

    fn put(&self, exchange: Exported<'_>) {
        self.shipper.put((self.pack)(&exchange));
    }

    fn tick(&self) {}
}

impl Exporter for CollectorExporter {
    fn close(&self, deadline: Instant) {
        self.shipper.close(deadline);
    }

    fn snapshot(&self) -> ExporterSnapshot {
        self.counters.snapshot()
    }
}

/// Posts a body of `count` records. `judge` interprets the response, with the number of bytes sent.
pub(crate) async fn post(
    http: &mut Http,
    target: String,
    content_type: &'static str,
    body: Vec<u8>,
    compresses: bool,
    judge: impl FnOnce(&HttpResponse, u64) -> SendOutcome,
) -> SendOutcome {
    let body = if compresses { gzip(&body) } else { body };
    let bytes = body.len() as u64;
    let fields: [(HeaderName, &str); 2] = [(CONTENT_TYPE, content_type), (CONTENT_ENCODING, "gzip")];
    let fields = &fields[..=usize::from(compresses)];
    match http.send(HttpRequest { method: Method::POST, target, fields, body: body.into() }).await {
        Ok(response) => judge(&response, bytes),
        Err(error) => failed(error.to_string()),
    }
}

pub(crate) fn failed(error: String) -> SendOutcome {
    SendOutcome::Failed { error, retry_after: None }
}

/// Interprets the status of the response to `count` records.
pub(crate) fn interpret(response: &HttpResponse, count: u64, bytes: u64) -> SendOutcome {
    match response.status {
        200..300 => SendOutcome::Accepted { rejected: 0, bytes, warning: None },
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
