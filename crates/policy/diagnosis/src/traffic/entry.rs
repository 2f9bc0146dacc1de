//! An exchange as readers see it: one line for the list, and a document with all details. Both are written
//! by the rules of a recording, so no value is shown that a recording would hide.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::LazyLock;

use egret_clock::rfc3339;
use egret_har::obfuscate::MessageKind;
use egret_har::observed::Phases;
use egret_har::recorder::Recorder;
use egret_har::{Key, Mask, Recording};
use egret_http1::Method;
use egret_items::words;
use egret_json::write_escaped;
use egret_match::CapturingPatterns;
use egret_match::matching::MatchConfig;
use serde::Serialize;

use crate::finished::{Endpoint, Finished, Parsed, exportable};
use crate::record::{Attempt, RecordedExchange};
use crate::traffic::config::{Redact, TrafficConfig};
use crate::traffic::resend::{Resend, ResendRisk};

words! {
    /// The origin of a response.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum AnsweredBy: word {
        /// The provider.
        Provider => "provider",
        /// A cache of Egret's, perhaps after it asked the provider.
        Cache => "cache",
        /// Egret itself: an error, or a remedy that responds.
        Egret => "egret",
        /// The client received no response.
        Nobody => "nobody",
    }
}

impl AnsweredBy {
    pub(crate) fn of(exchange: &RecordedExchange, status: u16) -> Self {
        match exchange.facts {
            _ if status == 0 => Self::Nobody,
            facts if facts.is_generated => Self::Egret,
            facts if facts.is_stored => Self::Cache,
            _ => Self::Provider,
        }
    }
}

/// Writes exchanges for readers.
#[derive(Debug)]
pub(crate) struct Writer {
    recorder: Recorder,
    mask: Mask,
    key: Key,
    redact: Redact,
    recording: Recording,
    url: Vec<u8>,
}

/// A decision of a remedy, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedDecision {
    /// Name of the flow.
    pub flow: String,
    /// Name of the remedy within the flow: `retry`, `limit-2`.
    pub remedy: String,
    /// The decision, as in the field `x-egret-trace`.
    pub decision: String,
    /// `true` if the remedy only reports what it would do.
    pub report: bool,
    /// The decision in words, with its cause where it is known.
    pub text: String,
    /// Description of the remedy, as `egret explain` tells it. Empty if the config has no such
    /// remedy any more.
    pub does: String,
}

impl Writer {
    /// Creates a writer with the rules of `config`.
    pub(crate) fn new(config: &TrafficConfig, recording: Recording, key: &Key) -> Self {
        Self {
            recorder: Recorder::new(key.clone(), &recording),
            mask: Mask::new(key.clone(), &recording),
            key: key.clone(),
            redact: config.redact,
            recording,
            url: Vec::new(),
        }
    }

    /// The rules for single values.
    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Writes the line of an exchange: an object, without a line end. If it repeats an exchange, `resent_of`
    /// is the number of that one. Returns the status and the time that the client waited.
    pub(crate) fn line(
        &mut self,
        id: u64,
        resent_of: Option<u64>,
        parsed: Parsed<'_>,
        out: &mut Vec<u8>,
    ) -> (u16, u64) {
        let exchange = self.view(parsed);
        let (record, facts) = (exchange.record(), exchange.facts());
        let (status, duration_us) = (exchange.status(), facts.times.total_us());
        out.extend_from_slice(b"{\"type\":\"exchange\",\"id\":");
        // Writing to memory cannot fail.
        let _ = write!(out, "{id},\"started\":\"");
        rfc3339::write_unix_us(facts.started.as_micros(), out);
        out.extend_from_slice(b"\",\"method\":");
        match exchange.method() {
            Method::Other => text(self.mask.word(exchange.method_text()).as_bytes(), out),
            method => text(method.name().as_bytes(), out),
        }
        self.write_url(&exchange, out);
        member(b"host", record.host(), out);
        member(b"provider", record.provider(), out);
        out.extend_from_slice(b",\"flows\":[");
        for (number, flow) in record.flows().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            text(flow.as_bytes(), out);
        }
        out.push(b']');
        member(b"consumer", &self.shown(exchange.consumer().unwrap_or_default()), out);
        member(b"request_id", &self.shown(record.request_id().as_bytes()), out);
        member(b"account", record.account(), out);
        let client = facts.client.map(|client| client.to_string()).unwrap_or_default();
        member(b"client", &client, out);
        let answered_by = AnsweredBy::of(record, status).word();
        let _ = write!(out, ",\"status\":{status},\"answered_by\":\"{answered_by}\",\"error\":");
        match facts.error {
            Some(error) => text(error.as_bytes(), out),
            None => out.extend_from_slice(b"null"),
        }
        if let Some(status) = facts.grpc_status {
            member(b"grpc_status", status.name(), out);
        }
        let _ = write!(
            out,
            ",\"duration_us\":{duration_us},\"footprint_us\":{},\"attempts\":{},\"request_bytes\":{},\"response_bytes\":{}",
            facts.times.footprint_us,
            facts.attempts,
            record.request_body.body_bytes,
            record.response_body.body_bytes,
        );
        member(b"media_type", &self.media_type(&exchange), out);
        let _ = write!(out, ",\"cut_short\":{},\"intercepted\":{}", facts.is_cut_short, facts.is_intercepted);
        if let Some(closed_us) = facts.client_closed_us {
            let _ = write!(out, ",\"client_closed_us\":{closed_us}");
        }
        if let Some(of) = resent_of {
            let _ = write!(out, ",\"resent_of\":{of}");
        }
        out.push(b'}');
        (status, duration_us)
    }

    /// Appends the members of the details, each after a comma.
    pub(crate) fn details(
        &mut self,
        parsed: Parsed<'_>,
        does: &dyn Fn(&str, &str) -> Option<String>,
        out: &mut Vec<u8>,
    ) {
        let exchange = self.view(parsed);
        let Phases { blocked_us, dns_us, connect_us, tls_us, send_us, wait_us, receive_us } =
            exchange.phases();
        let phases = serde_json::json!({
            "blocked_us": blocked_us, "dns_us": dns_us, "connect_us": connect_us, "tls_us": tls_us,
            "send_us": send_us, "wait_us": wait_us, "receive_us": receive_us,
        });
        let decisions = serde_json::json!(explained(&exchange, does));
        let _ = write!(out, ",\"phases\":{phases},\"calls\":[");
        for (number, call) in exchange.attempts().into_iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            self.write_call(&exchange, call, out);
        }
        let _ = write!(out, "],\"decisions\":{decisions}");
        let resend = Resend::of(parsed);
        let resend = serde_json::json!({
            "possible": resend.is_ok(),
            "acts_again": resend.as_ref().is_ok_and(|resend| resend.risk() == ResendRisk::ActsAgain),
            "reason": resend.as_ref().err().map(ToString::to_string),
        });
        let _ = write!(out, ",\"resend\":{resend}");
        out.extend_from_slice(b",\"har\":");
        let mut observed = exchange.observed();
        let flows = exchange.record().flows().collect::<Vec<_>>().join(", ");
        observed.notes.flow = &flows;
        self.recorder.write(&observed, out);
    }

    /// Appends a call to a provider, with its messages if they were recorded.
    fn write_call(&mut self, exchange: &Finished<'_>, call: Attempt, out: &mut Vec<u8>) {
        let Attempt { start_us, end_us, status, error, messages } = call;
        let error = serde_json::json!(error);
        let _ = write!(
            out,
            "{{\"start_us\":{start_us},\"end_us\":{end_us},\"status\":{status},\"error\":{error}"
        );
        exchange.with_messages(messages, |request, response| {
            self.recorder.write_messages(request, response, out);
        });
        out.push(b'}');
    }

    /// Appends `url`, after a comma.
    fn write_url(&mut self, exchange: &Finished<'_>, out: &mut Vec<u8>) {
        let observed = exchange.observed_request();
        self.url.clear();
        self.recorder.write_url(&observed, &mut self.url);
        // A quotation mark within the URL would be escaped.
        let end = memchr::memmem::find(&self.url, b",\"queryString\":").unwrap_or(self.url.len());
        out.extend_from_slice(&self.url[..end]);
    }

    /// Returns a name in the form in which readers see it.
    fn shown<'a>(&self, name: &'a [u8]) -> Cow<'a, str> {
        match self.redact {
            _ if name.is_empty() => "".into(),
            Redact::Off => String::from_utf8_lossy(name),
            Redact::Secrets => self.mask.shown(&exportable(name, Some(&self.key))).into(),
            Redact::All => self.key.text(name).to_string().into(),
        }
    }

    /// Returns the media type of the response, without parameters.
    fn media_type(&self, exchange: &Finished<'_>) -> String {
        let value = exchange.response_field(b"content-type").unwrap_or_default();
        let value = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if value.is_empty() {
            String::new()
        } else {
            self.mask.field(MessageKind::Response, "content-type", value)
        }
    }

    fn view<'a>(&self, parsed: Parsed<'a>) -> Finished<'a> {
        static NO_PATTERNS: LazyLock<CapturingPatterns> =
            LazyLock::new(|| CapturingPatterns::of(&MatchConfig::default()));
        let endpoint = Endpoint { text: "", number: 0, patterns: &NO_PATTERNS };
        let wanted = |media_type: &[u8]| {
            usize::try_from(self.recording.wanted_bytes(media_type)).unwrap_or(usize::MAX)
        };
        parsed.view_for("", endpoint, true, wanted)
    }
}

/// Returns the decisions of the remedies, in order and in words.
fn explained(exchange: &Finished<'_>, does: &dyn Fn(&str, &str) -> Option<String>) -> Vec<ExplainedDecision> {
    let record = exchange.record();
    let mut failed = record.failed_attempts().iter();
    let decisions = record.remedies().split(", ").filter_map(|text| {
        let (remedy, decision) = text.split_once('=')?;
        let (flow, remedy) = remedy.split_once('/')?;
        let (decision, report) = match decision.strip_suffix(";report") {
            Some(decision) => (decision, true),
            None => (decision, false),
        };
        let text = match decision {
            "next" => "had no effect".to_owned(),
            "wait" => "held the request back".to_owned(),
            "answer" => answer_in_words(exchange),
            "repeat" if !report => match failed.next() {
                Some(call) => match call.error {
                    Some(error) => format!("retried: {error}"),
                    None => format!("retried: status {}", call.status),
                },
                None => "retried".to_owned(),
            },
            "repeat" => "would have retried".to_owned(),
            _ => "could not decide, so its `on_error` applied".to_owned(),
        };
        Some(ExplainedDecision {
            flow: flow.to_owned(),
            remedy: remedy.to_owned(),
            decision: decision.to_owned(),
            report,
            text,
            does: does(flow, remedy).unwrap_or_default(),
        })
    });
    decisions.collect()
}

/// Returns the words for a response in the provider's place.
fn answer_in_words(exchange: &Finished<'_>) -> String {
    let facts = exchange.facts();
    match facts.error {
        Some(error) if facts.is_generated => format!("responded in the provider's place: {error}"),
        _ if facts.is_stored => "responded with a stored response".to_owned(),
        _ => "responded in the provider's place".to_owned(),
    }
}

/// Appends a member with a text, after a comma.
fn member(name: &[u8], value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name);
    out.extend_from_slice(b"\":");
    text(value.as_bytes(), out);
}

/// Appends a text in quotes.
fn text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}
