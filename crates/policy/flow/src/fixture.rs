//! Test fixtures: requests built from text, and exchanges that pass through flows in simulated time.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use egret_clock::Timestamp;
use egret_har::Key;
use egret_har::key::KEY_BYTES;
use egret_har::sink::{Content, Exported, Sink};
use egret_http1::{HeadLimits, Method, Progress, RequestHead, ResponseHead};
use egret_store::entries::Filling;
use serde_json::Value;

use crate::accounts::AccountConfigs;
use crate::answer::Answer;
use crate::cache::{Served, Stored};
use crate::chain::{Backward, Onward, RemedyChain, Tells};
use crate::config::FlowConfig;
use crate::diagnosis::{Exports, Family, Keeper};
use crate::exchange::{Exchange, PendingChanges};
use crate::finished::Reader;
use crate::matching::Question;
use crate::message::{Changes, Fields, Request};
use crate::outcome::{CallFailure, Destination, FailureKind, Outcome, Received};
use crate::plan::{DiagnosisCounts, Fate, FlowParts, Flows};
use crate::provider::KnownProvider;
use crate::quota::QuotaConfigs;
use crate::record::{Record, Times, Url};
use crate::refusal::{Fixed, Reason, Refused};
use crate::router::Matches;
use crate::tally::Decision;
use egret_clock::Random;

/// Calls `ask` with the request that `lines` describe: `GET https://host/path?query`, then one field per
/// line.
pub(crate) fn with_request<T>(provider: &str, lines: &str, ask: impl FnOnce(&Request<'_>) -> T) -> T {
    let Sent { bytes, head, host, target } = Sent::new(lines);
    let (path, query) =
        target.split_once('?').map_or((target.as_str(), None), |(path, query)| (path, Some(query)));
    let changes = Changes::default();
    let fields = Fields::new(&head.fields, &bytes, &changes);
    ask(&Request {
        provider,
        tls: lines.contains(" https://"),
        host: &host,
        port: 443,
        method: head.method_text.of(&bytes),
        path: path.as_bytes(),
        query: query.map(str::as_bytes),
        fields,
        upgrade: head.upgrade,
        consumer: fields.get(b"x-egret-consumer"),
        body: None,
    })
}

/// A request as received.
#[derive(Debug)]
struct Sent {
    bytes: Vec<u8>,
    head: RequestHead,
    host: String,
    target: String,
}

impl Sent {
    fn new(lines: &str) -> Self {
        let (first, fields) = lines.split_once('\n').unwrap_or((lines, ""));
        let (method, url) = first.split_once(' ').unwrap();
        let (_, rest) = url.split_once("://").unwrap();
        let (host, target) = rest.split_at(rest.find(['/', '?', '*']).unwrap_or(rest.len()));
        let fields = fields.lines().collect::<Vec<_>>().join("\r\n");
        let end = if fields.is_empty() { "\r\n" } else { "\r\n\r\n" };
        let bytes = format!("{method} / HTTP/1.1\r\nHost: {host}\r\n{fields}{end}").into_bytes();
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
        Self { bytes, head, host: host.to_owned(), target: target.to_owned() }
    }
}

/// Providers that flows on a stage may name. Their hosts are their names with `.example`.
const PROVIDERS: [&str; 3] = ["one", "two", "three"];

/// Flows in force, and a clock that only moves when it is set.
#[derive(Debug)]
pub(crate) struct Stage {
    pub flows: Flows,
    pub now: Timestamp,
}

impl Stage {
    /// Creates a stage from `quotas`, `accounts`, `flows` and `data_dir` as in a config.
    pub fn new(config: Value) -> Self {
        Self { flows: compile(config, None).unwrap(), now: Timestamp::from_secs(1_000_000) }
    }

    /// Creates a stage with one flow that matches everything and has these remedies.
    pub fn with(remedies: &Value) -> Self {
        Self::new(serde_json::json!({ "flows": [{ "name": "f", "remedies": remedies }] }))
    }

    /// Replaces the config.
    pub fn reload(&mut self, config: Value) {
        self.flows = compile(config, Some(&self.flows)).unwrap();
    }

    /// Advances the clock.
    pub fn pass_ms(&mut self, time_ms: u64) {
        self.now = self.now + Duration::from_millis(time_ms);
    }

    /// Starts an exchange.
    pub fn send(&self, lines: &str) -> Visit {
        Visit::new(self, lines, 1)
    }

    /// Runs a whole exchange; the provider, if called, sends `response`.
    pub fn exchange(&self, lines: &str, response: &str) -> Stand {
        let mut visit = self.send(lines);
        match visit.poll(self) {
            Stand::Call => {
                let stand = visit.response(self, response);
                visit.end(self);
                stand
            }
            other => other,
        }
    }

    /// Returns the number of times that the remedy with that number made this decision.
    pub fn decided(&self, number: usize, decision: Decision) -> u64 {
        let place = Decision::ALL.iter().position(|other| *other == decision).unwrap();
        self.flows.slots[number].tally.snapshot().decisions[place]
    }
}

/// Returns the problems in the remedies of one flow, as `path: message`.
pub(crate) fn problems(remedies: &Value) -> Vec<String> {
    let config = serde_json::json!({ "flows": [{ "name": "f", "match": { "path": "/users/{id}/*" }, "remedies": remedies }] });
    compile(config, None).err().unwrap_or_default()
}

/// Compiles the flows of a whole config. Returns its problems as `path: message`.
pub(crate) fn compiled(config: Value) -> Result<Flows, Vec<String>> {
    compile(config, None)
}

fn compile(mut config: Value, before: Option<&Flows>) -> Result<Flows, Vec<String>> {
    let quotas = config.get_mut("quotas").map_or(Value::Object(serde_json::Map::default()), Value::take);
    let quotas: QuotaConfigs = serde_json::from_value(quotas).unwrap();
    let accounts = config.get_mut("accounts").map_or(Value::Object(serde_json::Map::default()), Value::take);
    let accounts: AccountConfigs = serde_json::from_value(accounts).unwrap();
    let flows: Vec<FlowConfig> = serde_json::from_value(config["flows"].take()).unwrap();
    let data_dir = config.get("data_dir").and_then(Value::as_str).map(Path::new);
    let config = (flows.as_slice(), &quotas, &accounts, data_dir);
    compile_with(config, &Exports::default(), before)
}

fn compile_with(
    (flows, quotas, accounts, data_dir): (&[FlowConfig], &QuotaConfigs, &AccountConfigs, Option<&Path>),
    exports: &Exports,
    before: Option<&Flows>,
) -> Result<Flows, Vec<String>> {
    let providers = PROVIDERS.map(|name| KnownProvider { name, host: None, tls: true });
    let parts = FlowParts { flows, quotas, accounts, providers: &providers, ledger: None, data_dir, exports };
    Flows::compile(parts, 1, before).map_err(|problems| {
        problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    })
}

/// The state of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It waits for the provider.
    Call,
    /// It waits for a time or a wake-up.
    Wait(Option<Timestamp>),
    /// It has to be polled again at this time.
    Repeat(Timestamp),
    /// A remedy has responded instead of the provider.
    Refused(Refused),
    Fixed(Arc<Fixed>),
    Stored(Served),
    /// The provider's response has passed.
    Response(u16),
    /// The failure of the call has passed.
    Failure(FailureKind),
}

impl Stand {
    /// Returns the reason of a refusal, and the number of milliseconds until a retry makes sense.
    pub fn refusal(&self, stage: &Stage) -> (Reason, Option<u128>) {
        let Self::Refused(refused) = self else { panic!("{self:?} is not a refusal") };
        (refused.reason, refused.retry_at.map(|at| at.since(stage.now).as_millis()))
    }
}

/// An exchange that passes through the flows of a stage.
#[derive(Debug)]
pub(crate) struct Visit {
    sent: Sent,
    provider: &'static str,
    chain: RemedyChain,
    matches: Matches,
    pub draft: PendingChanges,
    pub repeatable: bool,
    /// The body of the request, if the whole body is present.
    pub body: Option<Vec<u8>>,
}

impl Visit {
    /// Returns the number of bytes of the request's body that its remedies must see.
    pub fn body_seen_max(&self) -> usize {
        self.chain.needs().request_body
    }

    /// Starts an exchange. `seed` is for its random numbers.
    pub fn new(stage: &Stage, lines: &str, seed: u64) -> Self {
        let sent = Sent::new(lines);
        let provider = PROVIDERS
            .into_iter()
            .find(|name| sent.host.strip_suffix(".example") == Some(name))
            .unwrap_or("-");
        let mut draft = PendingChanges::default();
        draft.random = Random::new(seed);
        let (chain, matches) = Default::default();
        let mut visit = Self { sent, provider, chain, matches, draft, repeatable: true, body: None };
        let mut matches = Matches::default();
        visit.at(stage, Outcome::None, |_, exchange| {
            let question =
                Question { request: &exchange.request(), roll: 0, now: exchange.now, has_body: false };
            stage.flows.find(question, &mut matches);
        });
        visit.matches = matches;
        visit.chain.start(&stage.flows, &visit.matches, Tells { client: true, diagnoses: false });
        visit
    }

    fn at<T>(
        &mut self,
        stage: &Stage,
        outcome: Outcome<'_>,
        act: impl FnOnce(&mut RemedyChain, &mut Exchange<'_>) -> T,
    ) -> T {
        let Sent { bytes, head, host, target } = &self.sent;
        let destination =
            Destination { provider: self.provider, tls: true, host, port: 443, ..Destination::NOWHERE };
        let received = Received { head, bytes, body: self.body.as_deref() };
        let mut exchange =
            Exchange::new(stage.now, destination, received, target.as_bytes(), &mut self.draft);
        exchange.params = stage.flows.params(&self.matches);
        exchange.repeatable = self.repeatable;
        exchange.outcome = outcome;
        act(&mut self.chain, &mut exchange)
    }

    /// Polls the request side.
    pub fn poll(&mut self, stage: &Stage) -> Stand {
        self.poll_with(stage, Waker::noop())
    }

    pub fn poll_with(&mut self, stage: &Stage, waker: &Waker) -> Stand {
        let mut cx = Context::from_waker(waker);
        let onward = self
            .at(stage, Outcome::None, |chain, exchange| chain.poll_request(&stage.flows, exchange, &mut cx));
        match onward {
            Poll::Pending => Stand::Wait(self.draft.take_wake_at()),
            Poll::Ready(Onward::Call) => {
                self.draft.calls += 1;
                Stand::Call
            }
            Poll::Ready(Onward::Answer(answer)) => self.answer(stage, *answer),
        }
    }

    /// Continues with a response: `503`, then one field per line.
    pub fn response(&mut self, stage: &Stage, lines: &str) -> Stand {
        self.response_with(stage, lines, None)
    }

    /// Continues with a response and its body, if there is one.
    pub fn response_with(&mut self, stage: &Stage, lines: &str, body: Option<&[u8]>) -> Stand {
        let head = respond(lines);
        let status = head.1.status;
        let received = Received { head: &head.1, bytes: &head.0, body };
        let backward = self.at(stage, Outcome::Response(&received), |chain, exchange| {
            chain.response(&stage.flows, exchange)
        });
        self.backward(stage, backward, Stand::Response(status))
    }

    /// Continues with the failure of the call.
    pub fn failure(&mut self, stage: &Stage, kind: FailureKind) -> Stand {
        let sent = kind != FailureKind::Connect;
        let outcome = Outcome::Failure(CallFailure { kind, slug: "failed", sent });
        let backward = self.at(stage, outcome, |chain, exchange| chain.response(&stage.flows, exchange));
        self.backward(stage, backward, Stand::Failure(kind))
    }

    fn backward(&mut self, stage: &Stage, backward: Backward, passed: Stand) -> Stand {
        match backward {
            Backward::Pass => passed,
            Backward::Repeat(at) => Stand::Repeat(at),
            Backward::Answer(answer) => self.answer(stage, *answer),
        }
    }

    /// Passes a local response outwards, as for a provider's response.
    fn answer(&mut self, stage: &Stage, answer: Answer) -> Stand {
        let (lines, stand) = match answer {
            Answer::Fixed(fixed) => (fixed.status.to_string(), Stand::Fixed(fixed)),
            Answer::Stored(served) => (served.status().to_string(), Stand::Stored(served)),
            Answer::Refused(refused) => {
                let wait = refused.retry_at.map(|at| at.since(stage.now).as_millis().div_ceil(1_000));
                let after = wait.map_or_else(String::new, |wait| format!("\nretry-after: {wait}"));
                let mut lines = format!("{}{after}", refused.status.unwrap_or(429));
                for (name, value) in &refused.fields {
                    lines.extend(["\n", name, ": ", &String::from_utf8_lossy(value)]);
                }
                (lines, Stand::Refused(refused))
            }
        };
        match self.response(stage, &lines) {
            Stand::Response(_) => stand,
            other => other,
        }
    }

    /// Ends the exchange after the response is complete.
    pub fn end(&mut self, stage: &Stage) {
        self.at(stage, Outcome::None, |chain, exchange| chain.end(&stage.flows, exchange));
    }

    /// Returns the decisions so far.
    pub fn trace(&self) -> &str {
        self.chain.trace().unwrap()
    }

    /// Returns the request as sent to the provider: path and query, the fields, and the body if it is
    /// present.
    pub fn sent(&mut self, stage: &Stage) -> (String, Vec<String>, Option<String>) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        self.at(stage, Outcome::None, |_, exchange| {
            let request = exchange.request();
            let query = request.query.map_or_else(String::new, |query| format!("?{}", text(query)));
            let fields =
                request.fields.iter().map(|(name, value)| format!("{}: {}", text(name), text(value)));
            (text(request.path) + &query, fields.collect(), request.body.map(text))
        })
    }

    /// Takes the cache entry that stores the response's body.
    pub fn filling(&mut self) -> Option<Filling<Stored>> {
        self.draft.filling.take()
    }

    /// Returns the response fields that remedies have added.
    pub fn added(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        self.draft.response.added().map(|(name, value)| (text(name), text(value))).collect()
    }
}

fn respond(lines: &str) -> (Vec<u8>, ResponseHead) {
    let (status, fields) = lines.split_once('\n').unwrap_or((lines, ""));
    let fields: String = fields.lines().flat_map(|field| [field, "\r\n"]).collect();
    let bytes = format!("HTTP/1.1 {status} As Is\r\n{fields}\r\n").into_bytes();
    let mut head = ResponseHead::new();
    assert_eq!(head.parse(&bytes, &HeadLimits::default(), Method::Get).unwrap(), Progress::Complete);
    (bytes, head)
}

/// A sink that keeps everything it receives, and storage for diagnoses.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Vec<KeptExchange>>, Mutex<HashMap<String, Vec<u8>>>);

impl Keeper for Kept {
    fn load(&self, name: &str) -> Option<Vec<u8>> {
        self.1.lock().unwrap().get(name).cloned()
    }

    fn save(&self, name: &str, bytes: &[u8]) {
        self.1.lock().unwrap().insert(name.to_owned(), bytes.to_vec());
    }
}

/// An entry with its service token and environment.
type KeptExchange = (Vec<u8>, (String, String));

impl Sink for Kept {
    fn takes(&self, _: Content) -> bool {
        true
    }

    fn put(&self, exchange: Exported<'_>) {
        let whose = (exchange.service_token.to_owned(), exchange.environment.to_owned());
        self.0.lock().unwrap().push((exchange.entry.to_vec(), whose));
    }

    fn tick(&self) {}
}

/// A flow that matches everything and has diagnoses, and the exporter `kept`.
#[derive(Debug)]
pub(crate) struct Archive {
    pub flows: Flows,
    kept: Arc<Kept>,
}

impl Archive {
    /// Creates an archive with one flow that has these diagnoses.
    pub fn with(diagnoses: &Value) -> Self {
        Self::compile(diagnoses, None).unwrap()
    }

    /// Returns the problems in the diagnoses of one flow, as `path: message`.
    pub fn problems(diagnoses: &Value) -> Vec<String> {
        Self::compile(diagnoses, None).err().unwrap_or_default()
    }

    /// Replaces the diagnoses.
    pub fn reload(&mut self, diagnoses: &Value) {
        *self = Self::compile(diagnoses, Some(self)).unwrap();
    }

    fn compile(diagnoses: &Value, before: Option<&Self>) -> Result<Self, Vec<String>> {
        let kept = before.map_or_else(Arc::default, |before| Arc::clone(&before.kept));
        Self::compile_with(diagnoses, kept, before)
    }

    fn compile_with(diagnoses: &Value, kept: Arc<Kept>, before: Option<&Self>) -> Result<Self, Vec<String>> {
        let sink: Arc<dyn Sink> = Arc::<Kept>::clone(&kept);
        let keeper: Arc<dyn Keeper> = Arc::<Kept>::clone(&kept);
        let exports = Exports {
            sinks: [("kept".to_owned(), sink)].into(),
            key: Some(Arc::new(Key::new(&[7; KEY_BYTES]))),
            keeper: Some(keeper),
        };
        let flows = serde_json::json!([{ "name": "f", "match": { "path": ["/users/{id}", "/*"] }, "diagnoses": diagnoses }]);
        let flows: Vec<FlowConfig> = serde_json::from_value(flows).unwrap();
        let before = before.map(|before| &before.flows);
        let parts = (flows.as_slice(), &QuotaConfigs::default(), &AccountConfigs::default(), None);
        let flows = compile_with(parts, &exports, before)?;
        Ok(Self { flows, kept })
    }

    /// Creates the record of an exchange: a request as for [`Stage::send`], and a response as for
    /// [`Visit::response`], or none if it is empty.
    pub fn record(&self, lines: &str, response: &str) -> Record {
        let stage = Stage { flows: Flows::default(), now: Timestamp::from_secs(1_000_000) };
        let visit = Visit::new(&stage, lines, 1);
        let Sent { bytes, host, target, .. } = &visit.sent;
        let mut record = Record::default();
        assert!(self.assign(lines, false, &mut record));
        let target = target.as_bytes();
        let url = Url { tls: true, host, port: 443, base: [b"", b""], target };
        record.set_request(&url, bytes);
        record.set_provider("one");
        if !response.is_empty() {
            record.set_response(|text| text.extend_from_slice(&respond(response).0));
        }
        record.facts.started = stage.now;
        record.facts.times =
            Times { sent_us: 100, first_byte_us: 5_000, ended_us: 5_100, ..Times::default() };
        record
    }

    /// Assigns the flow's diagnoses to `record`, except those that are shed if `sheds`.
    pub fn assign(&self, lines: &str, sheds: bool, record: &mut Record) -> bool {
        let mut matches = Matches::default();
        with_request("one", lines, |request| {
            let question =
                Question { request, roll: 0, now: Timestamp::from_secs(1_000_000), has_body: false };
            self.flows.find(question, &mut matches);
        });
        self.flows.diagnoses.assign(&matches, 0, sheds, record)
    }

    /// Returns the archived entries as text.
    pub fn entries(&self) -> Vec<String> {
        self.put().into_iter().map(|entry| String::from_utf8(entry).unwrap()).collect()
    }

    /// Returns the archived entries as bytes.
    pub fn put(&self) -> Vec<Vec<u8>> {
        self.kept.0.lock().unwrap().iter().map(|(entry, _)| entry.clone()).collect()
    }

    /// Returns the service token and the environment of each entry.
    pub fn origins(&self) -> Vec<(String, String)> {
        self.kept.0.lock().unwrap().iter().map(|(_, whose)| whose.clone()).collect()
    }

    /// Returns the bytes that a diagnosis saved under that name.
    pub fn kept(&self, name: &str) -> Option<Vec<u8>> {
        self.kept.load(name)
    }

    /// Replaces the bytes saved under that name.
    pub fn keep(&self, name: &str, bytes: &[u8]) {
        self.kept.save(name, bytes);
    }

    /// Simulates a restart: another process with the same storage.
    pub fn restarted(&self, diagnoses: &Value) -> Self {
        Self::compile_with(diagnoses, Arc::clone(&self.kept), None).unwrap()
    }

    /// Returns the metrics of the first diagnosis.
    pub fn figures(&self) -> Vec<Family> {
        self.flows.diagnoses.stats(0).remove(0).figures
    }

    /// Returns the counters of each diagnosis.
    pub fn counts(&self) -> Vec<DiagnosisCounts> {
        self.flows.diagnoses.stats(0).iter().map(|stats| stats.counts).collect()
    }
}

/// Hands a record over to its diagnoses.
pub(crate) fn hand_over(record: &Record) {
    record.count(0, Fate::HandedOver);
    record.diagnoses().unwrap().see(record, &mut Reader::default());
}
