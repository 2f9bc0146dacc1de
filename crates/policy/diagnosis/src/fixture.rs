//! Test fixture: flows with diagnoses, and records of exchanges for them to see.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use egret_clock::Timestamp;
use egret_config::Problem;
use egret_fixture::{Sent, respond, with_request};
use egret_har::Key;
use egret_har::key::KEY_BYTES;
use egret_har::sink::{Content, Exported, Sink};
use egret_match::expression::{Expression, Scope, Stage};
use egret_match::matching::{MatchConfig, MatchInput};
use egret_match::router::{MatchRule, Matches, Router};
use serde_json::{Value, json};

use crate::condition::ResponseCondition;
use crate::context::{Exports, StateStore};
use crate::diagnoses::DiagnosisConfig;
use crate::family::Family;
use crate::finished::RecordReader;
use crate::observers::{DiagnosedFlow, Diagnoses, DiagnosesContext, DiagnosisCounts, HandOver, Record};
use crate::record::{PhaseTimes, Url};

/// The time of the exchanges.
const NOW: Timestamp = Timestamp::from_secs(1_000_000);

/// A sink that keeps everything it receives, and storage for diagnoses.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Vec<KeptExchange>>, Mutex<HashMap<String, Vec<u8>>>);

impl StateStore for Kept {
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
    pub(crate) diagnoses: Arc<Diagnoses>,
    router: Router,
    kept: Arc<Kept>,
    /// Number of conditions without a value.
    failures: Arc<AtomicU64>,
}

impl Archive {
    /// Creates an archive with one flow that has these diagnoses.
    pub(crate) fn with(diagnoses: &Value) -> Self {
        Self::compile(diagnoses, None).unwrap()
    }

    /// Creates an archive with one flow that has these diagnoses and `when_response`.
    pub(crate) fn with_condition(when_response: &str, diagnoses: &Value) -> Self {
        Self::compile_with(diagnoses, Arc::default(), None, Some(when_response)).unwrap()
    }

    /// Returns the problems in the diagnoses of one flow, as `path: message`.
    pub(crate) fn problems(diagnoses: &Value) -> Vec<String> {
        Self::compile(diagnoses, None).err().unwrap_or_default()
    }

    /// Replaces the diagnoses.
    pub(crate) fn reload(&mut self, diagnoses: &Value) {
        *self = Self::compile(diagnoses, Some(self)).unwrap();
    }

    fn compile(diagnoses: &Value, before: Option<&Self>) -> Result<Self, Vec<String>> {
        let kept = before.map_or_else(Arc::default, |before| Arc::clone(&before.kept));
        Self::compile_with(diagnoses, kept, before, None)
    }

    fn compile_with(
        diagnoses: &Value,
        kept: Arc<Kept>,
        before: Option<&Self>,
        when_response: Option<&str>,
    ) -> Result<Self, Vec<String>> {
        let sink: Arc<dyn Sink> = Arc::<Kept>::clone(&kept);
        let keeper: Arc<dyn StateStore> = Arc::<Kept>::clone(&kept);
        let exports = Exports {
            sinks: [("kept".to_owned(), sink)].into(),
            key: Some(Arc::new(Key::new(&[7; KEY_BYTES]))),
            state_store: Some(keeper),
        };
        let matching: MatchConfig = serde_json::from_value(json!({ "path": ["/users/{id}", "/*"] })).unwrap();
        let configs: Vec<DiagnosisConfig> = serde_json::from_value(diagnoses.clone()).unwrap();
        let failures = Arc::<AtomicU64>::default();
        let condition = when_response.map(|source| {
            let scope = Scope { stage: Stage::Finished, parameters: &["id"] };
            ResponseCondition::new(Expression::compile(source, scope).unwrap(), Arc::clone(&failures))
        });
        let condition = condition.as_ref();
        let flow = DiagnosedFlow { name: "f", matching: &matching, diagnoses: &configs, condition };
        let context =
            DiagnosesContext { exports: &exports, secret_names: &Arc::default(), in_force: &Arc::default() };
        let before = before.map(|before| &*before.diagnoses);
        let mut problems = Vec::new();
        let diagnoses = Diagnoses::compile(&[flow], context, 1, before, &mut problems);
        if !problems.is_empty() {
            let text = |problem: &Problem| format!("{}: {}", problem.path, problem.message);
            return Err(problems.iter().map(text).collect());
        }
        let router = Router::compile(&[MatchRule { name: "f", matching: &matching }]).unwrap();
        Ok(Self { diagnoses: Arc::new(diagnoses), router, kept, failures })
    }

    /// Creates the record of an exchange: a request as for [`TestFlows::send`], and a response as for
    /// [`TestExchange::response`], or none if it is empty.
    pub(crate) fn record(&self, lines: &str, response: &str) -> Record {
        let Sent { bytes, host, target, .. } = &Sent::new(lines);
        let mut record = Record::default();
        assert!(self.assign(lines, false, &mut record));
        let target = target.as_bytes();
        let url = Url { tls: true, host, port: 443, base: [b"", b""], target };
        record.set_request(&url, bytes);
        record.set_provider("one");
        if !response.is_empty() {
            record.set_response(|text| text.extend_from_slice(&respond(response).0));
        }
        record.facts.started = NOW;
        record.facts.times =
            PhaseTimes { sent_us: 100, first_byte_us: 5_000, ended_us: 5_100, ..PhaseTimes::default() };
        record
    }

    /// Assigns the flow's diagnoses to `record`, except those that are shed if `sheds`.
    pub(crate) fn assign(&self, lines: &str, sheds: bool, record: &mut Record) -> bool {
        let mut matches = Matches::default();
        with_request("one", lines, |request| {
            let question = MatchInput { request, roll: 0, now: NOW, has_body: false };
            self.router.find(question, &mut matches);
        });
        self.diagnoses.assign(&matches, 0, sheds, record)
    }

    /// Returns the archived entries as text.
    pub(crate) fn entries(&self) -> Vec<String> {
        self.put().into_iter().map(|entry| String::from_utf8(entry).unwrap()).collect()
    }

    /// Returns the archived entries as bytes.
    pub(crate) fn put(&self) -> Vec<Vec<u8>> {
        self.kept.0.lock().unwrap().iter().map(|(entry, _)| entry.clone()).collect()
    }

    /// Returns the service token and the environment of each entry.
    pub(crate) fn origins(&self) -> Vec<(String, String)> {
        self.kept.0.lock().unwrap().iter().map(|(_, whose)| whose.clone()).collect()
    }

    /// Returns the bytes that a diagnosis saved under that name.
    pub(crate) fn kept(&self, name: &str) -> Option<Vec<u8>> {
        self.kept.load(name)
    }

    /// Replaces the bytes saved under that name.
    pub(crate) fn keep(&self, name: &str, bytes: &[u8]) {
        self.kept.save(name, bytes);
    }

    /// Simulates a restart: another process with the same storage.
    pub(crate) fn restarted(&self, diagnoses: &Value) -> Self {
        Self::compile_with(diagnoses, Arc::clone(&self.kept), None, None).unwrap()
    }

    /// Returns the metrics of the first diagnosis.
    pub(crate) fn metrics(&self) -> Vec<Family> {
        self.diagnoses.stats(0).remove(0).metrics
    }

    /// Returns the number of conditions without a value.
    pub(crate) fn condition_failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Returns the counters of each diagnosis.
    pub(crate) fn counts(&self) -> Vec<DiagnosisCounts> {
        self.diagnoses.stats(0).iter().map(|stats| stats.counts).collect()
    }
}

/// Hands a record over to its diagnoses.
pub(crate) fn hand_over(record: &Record) {
    record.count(0, HandOver::HandedOver);
    record.show(&mut RecordReader::default());
}
