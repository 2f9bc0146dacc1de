//! `script`: runs JavaScript on requests and responses, which it may edit, respond to or refuse.
//!
//! Each worker has an engine of its own. A script sees requests before an account's credential is added, and
//! responses after echoes of it are masked. If a call fails, its changes are discarded. A script whose calls
//! keep running out of time rests for a while.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use egret_clock::{Random, Timestamp};
use egret_config::{Duration, Problem, Secret, Size, TextFile};
use egret_http1::{RequestFraming, ResponseFraming};
use egret_message::{Changes, ErrorKind, Fault, Fields, Fixed, Json, Outcome, Refused};
use egret_script::{
    Call, CallError, CompileError, CopiedBody, Decision, Instance, Limits, MessageCopy, Rules, ScriptSide,
};
use parking_lot::Mutex;
use serde::Serialize;
use tracing::warn;

use crate::exchange::Exchange;
use crate::local_response::LocalResponse;
use crate::message_templates::{field_name_problem, is_literal_path};
use crate::remedy::{CompileContext, Needs, Reaction, Remedy, Step};

/// Maximum length of a script in the config. A file may have up to 256 KiB.
const SOURCE_BYTES_MAX: usize = 64 << 10;

/// Maximum of `time`.
const TIME_MAX: Duration = Duration::from_millis(100);

/// Minimum and maximum of `memory`.
const MEMORY_MIB: std::ops::RangeInclusive<u64> = 1..=256;

/// Number of overruns within [`OVERRUNS_WINDOW`] after which a script rests.
const OVERRUNS: usize = 10;
const OVERRUNS_WINDOW: std::time::Duration = std::time::Duration::from_secs(10);

/// Time for which a script rests.
const REST: std::time::Duration = std::time::Duration::from_secs(30);

egret_config::keys! {
    /// A script in JavaScript, in `source` or in a file. It has a function `onRequest(request)` or
    /// `onResponse(request, response)`, or both. A config has at most 64 scripts.
    pub struct ScriptConfig {
        /// The script.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub source: Option<String>,
        /// File with the script, relative to the directory of the config file. A change of the file reloads
        /// the config.
        pub file: Option<TextFile>,
        /// Maximum length of a request's body, and of a response's JSON body, that the script may read and
        /// replace. Such bodies are buffered, and the provider is asked for an unencoded response
        /// (`accept-encoding: identity`). Without this key the script sees no bodies.
        pub bodies: Option<Size>,
        /// Secrets that the script may use, by name: `secrets.name`.
        pub secrets: BTreeMap<String, Secret>,
        /// Processor time of one call, up to `100ms`. A call that takes longer is ended. After ten of them in
        /// 10 seconds, the script rests for 30 seconds. `on_error` decides about the exchanges.
        pub time: Duration = Duration::from_millis(1),
        /// Memory of one engine, from `1MiB` to `256MiB`. Each worker has an engine for each script.
        pub memory: Size = Size::from_kib(8 << 10),
    }
}

/// Runs JavaScript on requests and responses.
#[derive(Debug)]
pub struct Script {
    program: egret_script::Script,
    /// One engine per worker; `None` while it is in use, and after a panic.
    instances: Box<[Mutex<Option<Instance>>]>,
    rest: Arc<Rest>,
    /// Place in the config, for the log.
    place: String,
    body_bytes_max: usize,
    description: String,
}

impl Remedy for Script {
    type Config = ScriptConfig;
    type Run = ();

    fn conflict_with_grpc(config: &ScriptConfig) -> Option<(&'static str, &'static str)> {
        config.bodies.map(|_| ("bodies", "its messages are not text, and may come one after the other"))
    }

    fn compile(config: &ScriptConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        check_bounds(config, context);
        let (key, text) = source(config, context)?;
        let limits = Limits {
            memory: usize::try_from(config.memory.bytes()).unwrap_or(usize::MAX),
            time: config.time.get(),
        };
        let secrets = config.secrets.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let rules = Rules { field_problem: field_name_problem, is_path: is_literal_path };
        let compiled = egret_script::Script::compile(text, limits, secrets.collect(), rules);
        let program = match compiled {
            Ok(program) => program,
            Err(error) => {
                context.problems.push(located(&error, config, &context.path_of(key)));
                return None;
            }
        };
        if context.problems.len() > before {
            return None;
        }
        let instances = (0..context.workers.max(1)).map(|_| Mutex::new(program.instance().ok()));
        let bodies = config.bodies.map_or(0, Size::bytes);
        Some(Self {
            instances: instances.collect(),
            rest: context.states.keep(|rest: &Rest| rest.text == text, || Rest::new(text.to_owned())),
            place: context.path_of(""),
            body_bytes_max: usize::try_from(bodies).unwrap_or(usize::MAX),
            description: description(config, &program),
            program,
        })
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    /// Runs the script on the request. Its changes remain in the exchange.
    fn rehearse(&self, exchange: &mut Exchange<'_>) -> String {
        if !self.program.has(ScriptSide::Request) {
            return "it has no `onRequest`".to_owned();
        }
        let told = self.call(ScriptSide::Request, exchange, |call, decision, exchange| {
            let told = tell(call, &decision);
            apply_to_request(call, exchange);
            told
        });
        told.unwrap_or_else(|error| match &error {
            CallError::Threw { message, .. } => format!("fails: {error}: {message}"),
            _ => format!("fails: {error}"),
        })
    }

    fn needs(&self) -> Needs {
        let on = |side| if self.program.has(side) { self.body_bytes_max } else { 0 };
        Needs {
            request_body: on(ScriptSide::Request),
            response_json: on(ScriptSide::Response),
            ..Needs::default()
        }
    }

    fn request(&self, exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        if self.body_bytes_max > 0 && self.program.has(ScriptSide::Response) {
            exchange.draft.request.set(b"accept-encoding", b"identity");
        }
        if !self.program.has(ScriptSide::Request) {
            return Poll::Ready(Step::Next);
        }
        let decided = self.run(ScriptSide::Request, exchange, |call, decision, exchange| {
            apply_to_request(call, exchange);
            decision
        });
        Poll::Ready(match decided {
            Ok(Decision::Next) => Step::Next,
            Ok(decision) => Step::LocalResponse(Box::new(local_response(decision))),
            Err(fault) => Step::Fail(fault),
        })
    }

    fn response(&self, exchange: &mut Exchange<'_>, _held: &mut ()) -> Reaction {
        if exchange.response().is_none() || !self.program.has(ScriptSide::Response) {
            return Reaction::Pass;
        }
        let decided = self.run(ScriptSide::Response, exchange, |call, decision, exchange| {
            apply_to_response(call, exchange);
            decision
        });
        match decided {
            Ok(Decision::Next) => Reaction::Pass,
            Ok(decision) => Reaction::LocalResponse(Box::new(local_response(decision))),
            Err(fault) => Reaction::Fail(fault),
        }
    }
}

impl Script {
    /// Returns the counters.
    pub fn snapshot(&self) -> ScriptSnapshot {
        ScriptSnapshot {
            overruns: self.rest.overruns_total.load(Relaxed),
            rests: self.rest.rests_total.load(Relaxed),
        }
    }

    /// Calls the function for one side with an engine of the exchange's worker.
    fn run<T>(
        &self,
        side: ScriptSide,
        exchange: &mut Exchange<'_>,
        take: impl FnOnce(&mut Call, Decision, &mut Exchange<'_>) -> T,
    ) -> Result<T, Fault> {
        if self.rest.is_on(exchange.now) {
            return Err(Fault(RESTS.into()));
        }
        self.call(side, exchange, take).map_err(|error| {
            let is_overrun = matches!(error, CallError::Overrun | CallError::Exhausted);
            if is_overrun && self.rest.note_overrun(exchange.now) {
                warn!(remedy = self.place, cause = %error, "a script rests for 30 seconds");
                return Fault(RESTS.into());
            }
            Fault(error.to_string().into())
        })
    }

    fn call<T>(
        &self,
        side: ScriptSide,
        exchange: &mut Exchange<'_>,
        take: impl FnOnce(&mut Call, Decision, &mut Exchange<'_>) -> T,
    ) -> Result<T, CallError> {
        // Another worker number than any at the start has no engine: the caller is a test.
        let slot = &self.instances[exchange.worker % self.instances.len()];
        let mut slot = slot.lock();
        // Taken out, so that an engine in which the host panicked is not used again.
        let instance = match slot.take() {
            Some(instance) => instance,
            None => self.program.instance()?,
        };
        let seed = exchange.draft.random.draw();
        let filled = std::cell::RefCell::new(&mut *exchange);
        let result = instance.call(
            side,
            |call| self.fill(call, &filled.borrow(), seed),
            |call, decision| take(call, decision, &mut filled.borrow_mut()),
        );
        if !result.as_ref().is_err_and(CallError::spoils) {
            *slot = Some(instance);
        }
        result
    }

    /// Copies what the script may see.
    fn fill(&self, call: &mut Call, exchange: &Exchange<'_>, seed: u64) {
        let request = exchange.request();
        call.request.copy_head(
            &exchange.received.head.fields,
            exchange.received.bytes,
            &exchange.draft.request,
        );
        copy(&mut call.method, request.method);
        copy(&mut call.path, request.path);
        copy(&mut call.host, request.host.as_bytes());
        call.tls = request.tls;
        call.query = request.query.map(<[u8]>::to_vec);
        call.consumer = request.consumer().map(<[u8]>::to_vec);
        call.provider.clear();
        call.provider.push_str(request.provider);
        call.params.clear();
        call.params.extend(exchange.params().iter().map(|(name, value)| (name.to_owned(), value.to_vec())));
        call.now_ms = i64::try_from(exchange.now.as_micros() / 1_000).unwrap_or(i64::MAX);
        call.random = Random::new(seed);
        call.request.copy_body(self.request_body(exchange));
        if call.side == ScriptSide::Response {
            self.fill_response(call, exchange);
        }
    }

    fn fill_response(&self, call: &mut Call, exchange: &Exchange<'_>) {
        let Outcome::Response(received) = exchange.outcome else { return };
        call.response.copy_head(&received.head.fields, received.bytes, &exchange.draft.response);
        call.status = received.head.status;
        call.response.copy_body(self.response_body(exchange));
    }

    fn request_body<'e>(&self, exchange: &'e Exchange<'_>) -> Result<&'e [u8], CopiedBody> {
        let received = &exchange.received;
        if received.head.framing == RequestFraming::None {
            return Err(CopiedBody::None);
        }
        let fields = Fields::received(&received.head.fields, received.bytes);
        // The whole body is kept for the request's side only.
        if !self.program.has(ScriptSide::Request) && self.body_bytes_max > 0 {
            return Err(CopiedBody::Unavailable("the request's body is available in `onRequest` only"));
        }
        self.available(exchange.request().body, fields.is_encoded())
    }

    fn response_body<'e>(&self, exchange: &'e Exchange<'_>) -> Result<&'e [u8], CopiedBody> {
        let Outcome::Response(received) = exchange.outcome else { return Err(CopiedBody::None) };
        if received.head.framing == ResponseFraming::None {
            return Err(CopiedBody::None);
        }
        let fields = Fields::received(&received.head.fields, received.bytes);
        let json = fields.json();
        if self.body_bytes_max > 0 && (json == Json::No || received.head.status == 206) {
            return Err(CopiedBody::Unavailable(
                "the body of a response is available only if it is all JSON",
            ));
        }
        let body =
            self.available(exchange.response().and_then(|response| response.body), json == Json::Encoded);
        // An empty body has nothing to parse.
        body.and_then(|body| if body.is_empty() { Err(CopiedBody::None) } else { Ok(body) })
    }

    fn available<'e>(&self, body: Option<&'e [u8]>, is_encoded: bool) -> Result<&'e [u8], CopiedBody> {
        Err(CopiedBody::Unavailable(match body {
            _ if self.body_bytes_max == 0 => "bodies are available only with `bodies` in the config",
            _ if is_encoded => "the body has a content coding",
            Some(body) if body.len() <= self.body_bytes_max => return Ok(body),
            _ => {
                "the body is longer than `bodies`, or there was no buffer space for it \
                 (`gateway.limits.gathered`)"
            }
        }))
    }
}

fn check_bounds(config: &ScriptConfig, context: &mut CompileContext<'_>) {
    let memory = config.memory.bytes();
    if !(*MEMORY_MIB.start() << 20..=*MEMORY_MIB.end() << 20).contains(&memory) {
        context.problem("memory", "must be from `1MiB` to `256MiB`");
    }
    if config.time.is_zero() || config.time > TIME_MAX {
        context.problem("time", "must be from `1ms` to `100ms`: all exchanges of a worker wait for a call");
    }
    if config.bodies.is_some_and(|bodies| !(1..=memory / 4).contains(&bodies.bytes())) {
        context.problem("bodies", "must be from `1B` to a quarter of `memory`");
    }
}

/// Returns the key and the text of the script. Adds a problem if there is none.
fn source<'c>(config: &'c ScriptConfig, context: &mut CompileContext<'_>) -> Option<(&'static str, &'c str)> {
    let (key, problem) = match (&config.source, &config.file) {
        (Some(source), None) if source.len() <= SOURCE_BYTES_MAX => return Some(("source", source)),
        (None, Some(file)) => return Some(("file", file.text())),
        (Some(_), None) => ("source", "is longer than 64KiB: put the script into a `file`"),
        (Some(_), Some(_)) => ("source", "and `file` exclude each other"),
        (None, None) => ("", "expected a script in `source` or `file`"),
    };
    context.problem(key, problem);
    None
}

const RESTS: &str =
    "the script rests for 30 seconds, after ten calls within 10 seconds that ran out of time or memory";

fn copy(to: &mut Vec<u8>, from: &[u8]) {
    to.clear();
    to.extend_from_slice(from);
}

/// Appends the script's own changes of header fields.
fn append(message: &MessageCopy, changes: &mut Changes) {
    for change in message.changes.iter().skip(message.changes_before()) {
        match (change.value, change.removes) {
            (Some(value), true) => changes.set(change.name, value),
            (Some(value), false) => changes.add(change.name, value),
            (None, _) => changes.remove(change.name),
        }
    }
}

fn apply_to_request(call: &mut Call, exchange: &mut Exchange<'_>) {
    if let Some(body) = call.request.take_body() {
        exchange.draft.replace_request_body(body.into_bytes());
    }
    append(&call.request, &mut exchange.draft.request);
    if call.has_changed_target {
        exchange.draft.target = Some(target(call).into());
    }
}

fn apply_to_response(call: &mut Call, exchange: &mut Exchange<'_>) {
    if let Some(body) = call.response.take_body() {
        let etag = exchange.response().and_then(|response| response.fields.get(b"etag")).map(<[u8]>::to_vec);
        exchange.draft.replace_response_body(body.into_bytes(), etag.as_deref());
    }
    append(&call.response, &mut exchange.draft.response);
}

fn target(call: &Call) -> Vec<u8> {
    match &call.query {
        Some(query) => [&call.path, &b"?"[..], query].concat(),
        None => call.path.clone(),
    }
}

fn local_response(decision: Decision) -> LocalResponse {
    match decision {
        Decision::Respond { status, fields, body } => LocalResponse::Fixed(Arc::new(Fixed {
            status,
            fields: fields.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            body: body.into_bytes(),
        })),
        Decision::Refuse { status, detail } => LocalResponse::Refused(Refused {
            status: Some(status),
            ..Refused::new(ErrorKind::ScriptRefused, detail)
        }),
        // Not reached: the caller goes on.
        Decision::Next => LocalResponse::Refused(Refused::new(ErrorKind::ScriptRefused, "")),
    }
}

/// Tells what a call did to the request.
fn tell(call: &Call, decision: &Decision) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut told = match decision {
        Decision::Respond { status, body, .. } => {
            return format!("responds with {status} and {} bytes", body.len());
        }
        Decision::Refuse { status, detail } => return format!("refuses the request with {status}: {detail}"),
        Decision::Next => Vec::new(),
    };
    if call.has_changed_target {
        told.push(format!("calls {}", text(&target(call))));
    }
    for change in call.request.changes.iter().skip(call.request.changes_before()) {
        let name = text(change.name);
        told.push(match (change.value, change.removes) {
            (Some(value), true) => format!("sets {name}: {}", text(value)),
            (Some(value), false) => format!("adds {name}: {}", text(value)),
            (None, _) => format!("removes {name}"),
        });
    }
    if let Some(body) = call.request.new_body() {
        told.push(format!("replaces the body by {} bytes", body.len()));
    }
    if told.is_empty() { "changes nothing".to_owned() } else { told.join("; ") }
}

/// Places the error of a script: in the lines of the config, or in the file.
fn located(error: &CompileError, config: &ScriptConfig, path: &str) -> Problem {
    let Some((line, column)) = error.at else { return Problem::new(path, error.message.clone()) };
    if let Some(file) = &config.file {
        return Problem::new(path, format!("{}:{line}:{column}: {error}", file.path()));
    }
    let message = format!("line {line}, column {column} of the script: {error}");
    Problem::new(path, message).within(line, column)
}

fn description(config: &ScriptConfig, program: &egret_script::Script) -> String {
    let mut text = "runs ".to_owned();
    match &config.file {
        Some(file) => text.push_str(file.path()),
        None => text.push_str("a script"),
    }
    let sides = match (program.has(ScriptSide::Request), program.has(ScriptSide::Response)) {
        (true, true) => "requests and responses",
        (true, false) => "requests",
        _ => "responses",
    };
    let ScriptConfig { time, memory, .. } = config;
    let _ = write!(text, " on {sides}, for at most {time} and with {memory} of memory each");
    text
}

/// The overruns of a script, over all workers, and its rest. Survives a reload of the same script.
#[derive(Debug)]
struct Rest {
    text: String,
    /// End of the current or last rest, in microseconds since 1970.
    until_us: AtomicU64,
    /// Times of the last overruns.
    overruns: Mutex<VecDeque<Timestamp>>,
    overruns_total: AtomicU64,
    rests_total: AtomicU64,
}

/// Counters of a script. They survive a reload of the same script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ScriptSnapshot {
    /// Calls that ran out of time or memory.
    pub overruns: u64,
    /// Times that the script began to rest.
    pub rests: u64,
}

impl Rest {
    fn new(text: String) -> Self {
        Self {
            text,
            until_us: AtomicU64::new(0),
            overruns: Mutex::default(),
            overruns_total: AtomicU64::new(0),
            rests_total: AtomicU64::new(0),
        }
    }

    fn is_on(&self, now: Timestamp) -> bool {
        now.as_micros() < self.until_us.load(Relaxed)
    }

    /// Notes an overrun. Returns `true` if the script rests now.
    fn note_overrun(&self, now: Timestamp) -> bool {
        self.overruns_total.fetch_add(1, Relaxed);
        let mut overruns = self.overruns.lock();
        overruns.push_back(now);
        while overruns.front().is_some_and(|first| now.since(*first) > OVERRUNS_WINDOW) {
            overruns.pop_front();
        }
        if overruns.len() < OVERRUNS {
            return false;
        }
        overruns.clear();
        self.until_us.store((now + REST).as_micros(), Relaxed);
        self.rests_total.fetch_add(1, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests;
