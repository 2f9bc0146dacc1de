//! `traces`: sends each exchange to an OpenTelemetry collector as a span, and each call to a provider as a
//! child span.

use std::sync::Arc;

use egret_clock::Random;
use egret_export::otlp::{self, Attribute, AttributeValue as Value, Span, SpanKind};
use egret_har::Key;
use egret_har::sink::{Content, Exported, Sink};
use egret_http1::Method;
use egret_message::trace_context::{Seed, TraceParent};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::CompileContext;
use crate::diagnosis::Diagnosis;
use crate::finished::Finished;
use crate::gen_ai::GenAiCall;
use crate::record::Attempt;

/// Maximum length of a `tracestate`. A longer one is left out (Trace Context §3.3.1.1).
const TRACE_STATE_BYTES_MAX: usize = 512;

/// Sends spans. If the client's trace is not sampled, none are sent. A text alone is its `export`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename = "short form: export")]
#[schemars(rename = "TracesConfig", transform = egret_config::or_text)]
pub struct TracesConfig {
    /// Name of the exporter, under `exporters`. Its type must be `otlp`.
    pub export: String,
}

/// Sends spans.
#[derive(Debug)]
pub struct Traces {
    export: String,
    sink: Arc<dyn Sink>,
    key: Option<Arc<Key>>,
    /// Only the diagnosis thread uses it, so the lock is never contended.
    room: Mutex<Room>,
}

#[derive(Debug, Default)]
struct Room {
    span: Vec<u8>,
    /// Source of ids for exchanges whose remedies have drawn none.
    random: Random,
}

/// The common data of an exchange's spans.
struct Trace<'a> {
    id: [u8; 16],
    state: &'a str,
    seed: Seed,
    /// Id of the client's span.
    parent_id: Option<[u8; 8]>,
}

impl Diagnosis for Traces {
    type Config = TracesConfig;

    fn exporter(config: &TracesConfig) -> Option<&str> {
        Some(&config.export)
    }

    fn compile(config: &TracesConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let sink = context.sink("export", &config.export, Content::Telemetry)?;
        let key = context.exports.key.as_ref().map(Arc::clone);
        Some(Self { export: config.export.clone(), sink, key, room: Mutex::default() })
    }

    fn describe(&self) -> String {
        format!("sends spans to {}", self.export)
    }

    fn see(&self, exchange: &Finished<'_>) {
        let mut room = self.room.lock();
        let Room { span, random } = &mut *room;
        let Some(trace) = Trace::of(exchange, random) else { return };
        self.exchange_span(exchange, &trace, span);
        let attempts = exchange.attempts();
        let model_call = GenAiCall::of(exchange, self.key.as_deref());
        for (number, attempt) in (1..).zip(&attempts) {
            let is_last = number as usize == attempts.len();
            let model_call = model_call.as_ref().filter(|_| is_last);
            self.call_span(exchange, &trace, number, attempt, model_call, span);
        }
    }
}

impl<'a> Trace<'a> {
    /// Returns the trace of an exchange, or `None` if it is not sampled.
    fn of(exchange: &Finished<'a>, random: &mut Random) -> Option<Self> {
        let client = TraceParent::of(exchange.request_fields(b"traceparent"));
        let seed = Seed::from_number(exchange.facts().trace_seed);
        let seed = seed.unwrap_or_else(|| Seed::new(random.draw(), true));
        let is_sampled = client.map_or(seed.is_sampled(), |client| client.is_sampled);
        // Multiple fields form one list; the first is enough here.
        let state = client.and_then(|_| exchange.request_field(b"tracestate"));
        let state = state.filter(|state| state.len() <= TRACE_STATE_BYTES_MAX);
        is_sampled.then(|| Self {
            id: client.map_or_else(|| seed.trace_id(), |client| client.trace_id),
            state: state.and_then(|state| std::str::from_utf8(state).ok()).unwrap_or_default(),
            seed,
            parent_id: client.map(|client| client.parent_id),
        })
    }
}

impl Traces {
    /// Sends the span of the exchange. Attributes are named as in OpenTelemetry's HTTP conventions. Of the
    /// URL, only the parts that the config contains are included.
    fn exchange_span(&self, exchange: &Finished<'_>, trace: &Trace<'_>, room: &mut Vec<u8>) {
        let (record, facts) = (exchange.record(), exchange.facts());
        let status = exchange.status();
        let consumer = exchange.exportable_consumer(self.key.as_deref());
        let request_id = exchange.exportable_request_id(self.key.as_deref());
        let client =
            facts.client.map(|client| client.ip().map_or_else(|| client.to_string(), |ip| ip.to_string()));
        let client = client.unwrap_or_default();
        let mut attributes = common(exchange, record.host(), facts.port);
        attributes.extend([
            ("client.address", Value::Text(&client)),
            ("http.request.body.size", Value::Number(record.request_body.body_bytes)),
            ("http.response.body.size", Value::Number(record.response_body.body_bytes)),
            ("egret.flow", Value::Text(exchange.flow())),
            ("egret.provider", Value::Text(record.provider())),
            ("egret.consumer", Value::Text(&consumer)),
            ("egret.request_id", Value::Text(&request_id)),
            ("egret.remedies", Value::Text(record.remedies())),
            ("egret.attempts", Value::Number(facts.attempts.into())),
            ("egret.footprint_us", Value::Number(facts.times.footprint_us)),
            ("egret.generated", Value::Flag(facts.is_generated)),
            ("egret.intercepted", Value::Flag(facts.is_intercepted)),
        ]);
        // A server span has an error status only for errors of the server.
        let error = facts.error.unwrap_or(if status == 0 { "no-response" } else { "" });
        let is_error = status == 0 || status >= 500;
        outcome(status, error, is_error, &mut attributes);
        let start_us = facts.started.as_micros();
        let name = name(exchange);
        self.put(
            Span {
                trace_id: trace.id,
                span_id: trace.seed.exchange_id(),
                parent_id: trace.parent_id,
                trace_state: trace.state,
                flags: 1,
                name: &name,
                kind: SpanKind::Server,
                start_us,
                end_us: start_us + facts.times.total_us(),
                attributes: &attributes,
                is_error,
            },
            room,
        );
    }

    fn call_span(
        &self,
        exchange: &Finished<'_>,
        trace: &Trace<'_>,
        number: u32,
        attempt: &Attempt,
        model_call: Option<&GenAiCall<'_>>,
        room: &mut Vec<u8>,
    ) {
        let facts = exchange.facts();
        let mut attributes = common(exchange, exchange.record().host(), facts.port);
        attributes.push(("http.request.resend_count", Value::Number(u64::from(number - 1))));
        // A client span has an error status for every unsuccessful response.
        let is_error = attempt.status == 0 || attempt.status >= 400;
        outcome(attempt.status, attempt.error.unwrap_or_default(), is_error, &mut attributes);
        if let Some(call) = model_call {
            attributes.extend(of_model(call));
        }
        let started_us = facts.started.as_micros();
        let name = name(exchange);
        self.put(
            Span {
                trace_id: trace.id,
                span_id: trace.seed.call_id(number),
                parent_id: Some(trace.seed.exchange_id()),
                trace_state: trace.state,
                flags: 1,
                name: &name,
                kind: SpanKind::Client,
                start_us: started_us + attempt.start_us,
                end_us: started_us + attempt.end_us,
                attributes: &attributes,
                is_error,
            },
            room,
        );
    }

    fn put(&self, span: Span<'_>, room: &mut Vec<u8>) {
        let attributes: Vec<Attribute<'_>> =
            span.attributes.iter().filter(|(_, value)| *value != Value::Text("")).copied().collect();
        let span = Span { attributes: &attributes, ..span };
        room.clear();
        room.push(otlp::SPAN);
        otlp::write_span(&span, room);
        self.sink.put(Exported { entry: room, client: None, service_token: "", environment: "" });
    }
}

/// Returns the name of a span, `GET /users/{id}`. As the conventions require, it has no high-cardinality
/// parts.
fn name(exchange: &Finished<'_>) -> String {
    let method = exchange.method();
    let method = if method == Method::Other { "HTTP" } else { method.name() };
    let separator = if exchange.endpoint().is_empty() { "" } else { " " };
    format!("{method}{separator}{}", exchange.endpoint())
}

fn common<'a>(exchange: &Finished<'a>, host: &'a str, port: u16) -> Vec<Attribute<'a>> {
    let method = exchange.method();
    vec![
        ("http.request.method", Value::Text(if method == Method::Other { "_OTHER" } else { method.name() })),
        ("http.route", Value::Text(exchange.endpoint())),
        ("url.scheme", Value::Text(if exchange.facts().tls { "https" } else { "http" })),
        ("server.address", Value::Text(host)),
        ("server.port", Value::Number(port.into())),
    ]
}

/// Returns the attributes of a call of a language model, by OpenTelemetry's conventions for generative AI.
fn of_model<'a>(call: &'a GenAiCall<'_>) -> [Attribute<'a>; 7] {
    let usage = call.usage;
    [
        ("gen_ai.operation.name", Value::Text(call.operation)),
        ("gen_ai.provider.name", Value::Text(call.provider)),
        ("gen_ai.response.model", Value::Text(&call.response_model)),
        ("gen_ai.usage.input_tokens", Value::Number(usage.input)),
        ("gen_ai.usage.output_tokens", Value::Number(usage.output)),
        ("gen_ai.usage.cache_read.input_tokens", Value::Number(usage.cache_read)),
        ("gen_ai.usage.cache_creation.input_tokens", Value::Number(usage.cache_write.total())),
    ]
}

fn outcome<'a>(status: u16, error: &'a str, is_error: bool, attributes: &mut Vec<Attribute<'a>>) {
    if status != 0 {
        attributes.push(("http.response.status_code", Value::Number(status.into())));
    }
    let class = match status {
        _ if !error.is_empty() => error,
        _ if !is_error => "",
        500.. => "5xx",
        400.. => "4xx",
        _ => "_OTHER",
    };
    attributes.push(("error.type", Value::Text(class)));
}

#[cfg(test)]
mod tests {
    use egret_usage::{UsageDialect, UsageRecord};
    use serde_json::json;

    use crate::fixture::{Archive, hand_over};
    use crate::record::Attempt;

    const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn has(span: &[u8], bytes: &[u8]) -> bool {
        span.windows(bytes.len()).any(|window| window == bytes)
    }

    #[test]
    fn an_exchange_is_a_span_and_so_is_each_call() {
        let archive = Archive::with(&json!([{ "traces": { "export": "kept" } }]));
        let lines =
            format!("GET https://one.example/users/ada?token=s3cr3t\ntraceparent: {CLIENT}\ntracestate: a=b");
        let mut record = archive.record(&lines, "503");
        record.facts.attempts = 2;
        record.note_attempt(Attempt {
            start_us: 10,
            end_us: 20,
            error: Some("connect-refused"),
            ..Attempt::default()
        });
        hand_over(&record);
        let spans = archive.put();
        assert_eq!(spans.len(), 3);
        let trace_id = u128::from_str_radix(&CLIENT[3..35], 16).unwrap().to_be_bytes();
        let client_id = u64::from_str_radix(&CLIENT[36..52], 16).unwrap().to_be_bytes();
        for span in &spans {
            assert!(has(span, &trace_id) && has(span, b"a=b") && has(span, b"GET /users/{id}"));
            assert!(!has(span, b"ada") && !has(span, b"s3cr3t"));
        }
        assert!(has(&spans[0], &client_id) && !has(&spans[1], &client_id) && !has(&spans[2], &client_id));
        assert!(has(&spans[1], b"connect-refused") && has(&spans[2], b"5xx"));
    }

    #[test]
    fn the_last_call_has_the_usage_of_a_language_model() {
        let archive = Archive::with(&json!([{ "traces": { "export": "kept" } }]));
        let mut record = archive.record("POST https://one.example/v1/chat/completions", "200");
        record.facts.attempts = 2;
        record.note_attempt(Attempt { start_us: 10, end_us: 20, status: 503, ..Attempt::default() });
        let usage = UsageRecord {
            input: 11,
            output: 30,
            model: Some("m-1".into()),
            dialect: Some(UsageDialect::Chat),
            ..UsageRecord::default()
        };
        record.usage = Some(Box::new(usage));
        hand_over(&record);
        let spans = archive.put();
        assert!(!has(&spans[0], b"gen_ai.") && !has(&spans[1], b"gen_ai."));
        for text in
            ["gen_ai.operation.name", "chat", "gen_ai.response.model", "m-1", "gen_ai.usage.input_tokens"]
        {
            assert!(has(&spans[2], text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn unsampled_exchanges_are_not_exported() {
        let archive = Archive::with(&json!([{ "traces": { "export": "kept" } }]));
        let unsampled = CLIENT.replace("-01", "-00");
        hand_over(&archive.record(&format!("GET https://one.example/\ntraceparent: {unsampled}"), "200"));
        assert!(archive.put().is_empty());
        let mut record = archive.record("GET https://one.example/", "200");
        record.facts.trace_seed = 4 | 2;
        hand_over(&record);
        assert!(archive.put().is_empty());
        record.facts.trace_seed = 4 | 2 | 1;
        hand_over(&record);
        hand_over(&archive.record("GET https://one.example/", "200"));
        assert_eq!(archive.put().len(), 2);
    }
}
