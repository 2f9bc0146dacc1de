//! `fallback`: calls another provider or path after certain failures, or sends a fixed response.
//!
//! Each fallback makes at most one extra call, and none if an outer one has already made its own, among the
//! flows that match the exchange. So two fallbacks cannot loop, and the number of extra calls is at most the
//! number of fallbacks.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_config::Size;
use egret_message::{Condition, ErrorKind, FLOW_BODY_BYTES_MAX, Fault, Fixed};
use serde_json::Value;

use crate::exchange::{AlternateCall, Exchange};
use crate::local_response::{LocalKind, LocalResponse};
use crate::message_templates::PathTemplate;
use crate::remedies::fixed_response::{FixedResponseConfig, ResponseTemplate};
use crate::remedy::{CompileContext, InnerRemedy, Mode, NamedPart, Needs, Reaction, Remedy, Step};

egret_config::keys! {
    /// Alternative for failed calls. One of `provider`, `path`, `model` and `response` is required; the first
    /// three can be combined.
    #[derive(Eq)]
    pub struct FallbackConfig {
        /// Outcomes of a call that trigger the fallback. The status of an inner remedy's response counts like
        /// the provider's.
        pub on: Vec<Condition> = Condition::provider_failures(),
        /// Refusals by inner remedies that also trigger it, whatever their status.
        pub on_refused: Vec<ErrorKind> = vec![ErrorKind::CircuitOpen, ErrorKind::ProviderThrottled],
        /// Provider to call instead.
        pub provider: Option<String>,
        /// Path to call instead, beginning with `/`. The query is kept. A template: `${params.id}` is a
        /// parameter of the flow's path; slashes in values are encoded.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub path: Option<String>,
        /// Model to ask for instead: the value of the member `model` in the request's JSON body. Without such
        /// a body, or with one of more than `body` bytes, there is no other call.
        pub model: Option<String>,
        /// Response to send instead. Its templates can use the response of the failed call; if there was
        /// none, its status is 0 and its fields are empty. A response that replaces a refusal keeps
        /// `Retry-After`, `RateLimit` and `RateLimit-Policy`, unless `headers` sets these fields.
        pub response: Option<FixedResponseConfig>,
        /// Methods whose calls may be repeated elsewhere in addition to the idempotent ones (RFC 9110
        /// §9.2.2), although the failed provider may have acted on them. A request that no provider has seen
        /// is repeated elsewhere whatever its method.
        pub methods: BTreeSet<String>,
        /// Maximum length of a request body that is kept for the other call. Requests with longer bodies are
        /// not sent elsewhere.
        pub body: Size = Size::from_kib(64),
        /// Sends the credentials of the request, which are meant for the original provider, to the other
        /// provider too. By default, header fields and query parameters that look like credentials by name,
        /// such as `Authorization`, `Cookie` or `api_key`, are removed. Fields that inner remedies and
        /// accounts add are sent in both cases.
        pub forward_credentials: bool,
    }
}

/// Calls an alternative after a failed call.
#[derive(Debug)]
pub struct Fallback {
    on: Vec<Condition>,
    on_refused: Vec<ErrorKind>,
    methods: BTreeSet<String>,
    to: To,
    replay: usize,
    forwards_credentials: bool,
}

#[derive(Debug)]
enum To {
    Call(OtherCall),
    Response(ResponseTemplate),
}

/// The call to make instead.
#[derive(Debug)]
struct OtherCall {
    /// Number and name of the provider, if it is another one.
    provider: Option<(usize, String)>,
    path: Option<PathTemplate>,
    /// The model as JSON.
    model: Option<Arc<[u8]>>,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct FallbackRun {
    /// `true` if another call has been made, by this remedy or by an outer one.
    has_alternate: bool,
    /// The provider that is called if this remedy does nothing, unless it is the request's own.
    provider: Option<usize>,
}

impl Remedy for Fallback {
    type Config = FallbackConfig;
    type Run = FallbackRun;

    fn names(config: &FallbackConfig) -> Vec<NamedPart<'_>> {
        config.provider.iter().map(|provider| NamedPart::Provider(provider)).collect()
    }

    fn compile(config: &FallbackConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        if config.on.is_empty() && config.on_refused.is_empty() {
            context.problem("on", "must list at least one outcome, like `5xx`, unless `on_refused` is set");
        }
        if config.body.bytes() > FLOW_BODY_BYTES_MAX {
            context.problem("body", "must be at most `16MiB`: it is kept in memory for each exchange");
        }
        context.check_methods(&config.methods);
        let to = To::compile(config, context);
        if context.problems.len() == before {
            check_inner(config, context);
        }
        if context.problems.len() > before {
            return None;
        }
        let replay = usize::try_from(config.body.bytes()).unwrap_or(usize::MAX);
        Some(Self {
            on: config.on.clone(),
            on_refused: config.on_refused.clone(),
            methods: config.methods.clone(),
            to: to?,
            replay,
            forwards_credentials: config.forward_credentials,
        })
    }

    fn describe(&self) -> String {
        let on: Vec<String> = self.on.iter().map(ToString::to_string).collect();
        let to = match &self.to {
            To::Call(OtherCall { provider: Some((_, name)), .. }) => format!("calls {name} instead"),
            To::Call(OtherCall { path: Some(_), .. }) => "calls another path instead".to_owned(),
            To::Call(_) => "asks for another model instead".to_owned(),
            To::Response(response) => format!("responds with {}", response.status()),
        };
        format!("after {}, {to}", on.join(", "))
    }

    fn needs(&self) -> Needs {
        let (replay, request_json) = match &self.to {
            To::Call(call) => (self.replay, if call.model.is_some() { self.replay } else { 0 }),
            To::Response(_) => (0, 0),
        };
        let grpc_status = self.on.iter().any(|on| on.is_of_grpc());
        Needs { request_json, replay, grpc_status, ..Needs::default() }
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut FallbackRun,
        _cx: &mut Context<'_>,
    ) -> Poll<Step> {
        *held = FallbackRun {
            has_alternate: exchange.draft.call.is_alternate,
            provider: exchange.draft.call.provider,
        };
        Poll::Ready(Step::Next)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut FallbackRun) -> Reaction {
        if !self.applies(exchange) {
            return Reaction::Pass;
        }
        let reaction = match &self.to {
            To::Response(response) => response.render(exchange).map(|fixed| {
                let fixed = with_fields_of_refusal(fixed, exchange);
                Reaction::LocalResponse(Box::new(LocalResponse::Fixed(fixed)))
            }),
            To::Call(_) if held.has_alternate || !exchange.may_repeat(&self.methods) => Ok(Reaction::Pass),
            To::Call(call) => self.call_instead(call, held, exchange),
        };
        reaction.unwrap_or_else(Reaction::Fail)
    }
}

/// Fields of a refusal that clients rely on. They stay valid whatever the response says.
const REFUSAL_FIELDS: [&str; 3] = ["Retry-After", "RateLimit-Policy", "RateLimit"];

/// Adds the retry fields of the refusal that `fixed` replaces, except those that `fixed` already has.
fn with_fields_of_refusal(mut fixed: Arc<Fixed>, exchange: &Exchange<'_>) -> Arc<Fixed> {
    let Some(LocalKind::Refused(_)) = exchange.local_kind else { return fixed };
    let Some(refusal) = exchange.response() else { return fixed };
    for name in REFUSAL_FIELDS {
        let is_present = fixed.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some(value) = refusal.fields.get(name.as_bytes()).filter(|_| !is_present) {
            let value = value.to_vec();
            Arc::make_mut(&mut fixed).fields.push((name.into(), value));
        }
    }
    fixed
}

impl Fallback {
    /// Makes another call, unless its target is the one that has just failed.
    fn call_instead(
        &self,
        call: &OtherCall,
        held: &mut FallbackRun,
        exchange: &Exchange<'_>,
    ) -> Result<Reaction, Fault> {
        let (to, path, model) = (call.provider.as_ref(), call.path.as_ref(), &call.model);
        let has_secret_path = path.is_some_and(PathTemplate::has_secret);
        let path = path.map(|path| path.render(exchange)).transpose()?.map(Cow::into_owned);
        let failed = exchange.draft.call.provider;
        let own = |number: Option<usize>| match to {
            Some((other, name)) if number.is_none() && exchange.destination.provider == name => Some(*other),
            _ => number,
        };
        let is_same = own(to.map_or(held.provider, |(number, _)| Some(*number))) == own(failed);
        let is_same_path = path.as_deref().is_none_or(|path| path == exchange.request().path);
        if is_same && is_same_path && model.is_none() {
            return Ok(Reaction::Pass);
        }
        if model.as_ref().is_some_and(|model| exchange.body_with_model(model).is_none()) {
            let why =
                "`model` needs a request with a JSON body of at most `body` bytes, without a content coding";
            return Err(Fault(why.into()));
        }
        held.has_alternate = true;
        let provider = to.map(|(number, _)| *number);
        // An outer `transform` may have sent the call to another provider than the request's, with that
        // provider's credentials.
        let is_other = to.is_some_and(|(number, name)| match held.provider {
            Some(other) => other != *number,
            None => exchange.destination.provider != name,
        });
        let without_credentials = is_other && !self.forwards_credentials;
        Ok(Reaction::CallInstead(Box::new(AlternateCall {
            provider,
            path,
            has_secret_path,
            without_credentials,
            model: model.clone(),
        })))
    }

    fn applies(&self, exchange: &Exchange<'_>) -> bool {
        let refused = match exchange.local_kind {
            Some(LocalKind::Refused(reason)) => self.on_refused.contains(&reason),
            Some(LocalKind::Fixed | LocalKind::Stored | LocalKind::Injected) | None => false,
        };
        refused || exchange.meets_any(&self.on)
    }
}

/// Adds a problem if an inner fallback already covers every case of this one.
fn check_inner(config: &FallbackConfig, context: &mut CompileContext<'_>) {
    for InnerRemedy { number, mode, config: other, .. } in context.inner {
        let Some(inner) = other.downcast_ref::<FallbackConfig>().filter(|_| *mode == Mode::Enforce) else {
            if config.on_refused.is_empty() {
                continue;
            }
            // It may refuse a call before any fallback within it sees the refusal.
            return;
        };
        let is_covered = config.on.iter().all(|on| inner.on.iter().any(|other| other.covers(*on)))
            && config.on_refused.iter().all(|reason| inner.on_refused.contains(reason));
        if !is_covered {
            continue;
        }
        if let Some(response) = &inner.response {
            let status = Condition::Status(response.status, response.status);
            if !config.on.iter().any(|on| on.covers(status)) {
                let message = format!(
                    "has no effect: the fallback in `remedies[{number}]` already responds to these outcomes"
                );
                return context.problem("on", message);
            }
        } else if config.response.is_none()
            && (&config.provider, &config.path, &config.model) == (&inner.provider, &inner.path, &inner.model)
        {
            let key = match (&config.provider, &config.path) {
                (Some(_), _) => "provider",
                (None, Some(_)) => "path",
                (None, None) => "model",
            };
            let message =
                format!("repeats the call of the fallback in `remedies[{number}]`, which has already failed");
            return context.problem(key, message);
        }
    }
}

impl To {
    fn compile(config: &FallbackConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let has_call = config.provider.is_some() || config.path.is_some() || config.model.is_some();
        match &config.response {
            Some(_) if has_call => {
                context.problem(
                    "response",
                    "a response and another call exclude each other: use separate list entries",
                );
                None
            }
            Some(response) => {
                ResponseTemplate::compile(response, "response.", true, context).map(Self::Response)
            }
            None if has_call => {
                let provider = config.provider.as_deref().and_then(|name| provider(name, context));
                let keeps_call = provider.is_none() && config.model.is_none();
                let path = config.path.as_deref().and_then(|text| path(text, keeps_call, context));
                let model = config.model.as_deref().and_then(|name| model(name, context));
                Some(Self::Call(OtherCall { provider, path, model }))
            }
            None => {
                context.problem("provider", "one of `provider`, `path`, `model` and `response` is required");
                None
            }
        }
    }
}

/// Returns the number of the provider to call instead.
fn provider(name: &str, context: &mut CompileContext<'_>) -> Option<(usize, String)> {
    let Some(number) = context.providers.iter().position(|other| *other == name) else {
        context.unknown_name("provider", name, "provider");
        return None;
    };
    let from = &context.matching.provider;
    if !from.is_empty() && from.iter().all(|other| other == name) {
        context.problem("provider", format!("the flow matches only `{name}`, the provider that has failed"));
        return None;
    }
    Some((number, name.to_owned()))
}

/// Maximum length of a model's name, in bytes.
const MODEL_BYTES_MAX: usize = 256;

/// Returns the model to ask for, as JSON.
fn model(name: &str, context: &mut CompileContext<'_>) -> Option<Arc<[u8]>> {
    if name.is_empty() || name.len() > MODEL_BYTES_MAX {
        context.problem("model", "a model's name has 1 to 256 bytes");
        return None;
    }
    Some(Value::from(name).to_string().into_bytes().into())
}

/// Returns the path to call instead. If it `keeps_call`, everything else stays, so it must differ from the
/// flow's path.
fn path(text: &str, keeps_call: bool, context: &mut CompileContext<'_>) -> Option<PathTemplate> {
    let path = context.path_template("path", text, true)?;
    let from = &context.matching.path;
    if keeps_call && !from.is_empty() && from.iter().all(|other| Some(other.as_str()) == path.as_literal()) {
        context.problem("path", format!("the flow matches only `{text}`, the path that has failed"));
        return None;
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use egret_fixture::{TestFlows, TestStep, problems};
    use egret_message::FailureKind;

    const GET: &str = "GET https://one.example/a?b=c";

    #[test]
    fn a_failed_call_goes_elsewhere_once() {
        let harness = TestFlows::with(&json!([{ "fallback": { "provider": "two", "path": "/other" } }]));
        assert_eq!(harness.exchange(GET, "404"), TestStep::Response(404));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.provider, None);
        assert_eq!(exchange.failure(&harness, FailureKind::Connect), TestStep::Repeat(harness.now));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.provider, Some(1));
        assert_eq!(exchange.draft.target.as_deref(), Some(&b"/other?b=c"[..]));
        assert_eq!(exchange.response(&harness, "500"), TestStep::Response(500));
    }

    #[test]
    fn another_provider_gets_no_credential_of_the_client_unless_that_is_wanted() {
        let get = "GET https://one.example/a?page=2&api%5Fkey=k&b=c&token=t\nAuthorization: Bearer t\nCookie: s=1\nX-Api-Key: k\nAccept: */*\nUser-Agent: u";
        let sent = |fallbacks: &Value, failures: usize| {
            let harness = TestFlows::with(fallbacks);
            let mut exchange = harness.send(get);
            for _ in 0..failures {
                assert_eq!(exchange.poll(&harness), TestStep::Call);
                assert_eq!(exchange.response(&harness, "503"), TestStep::Repeat(harness.now));
            }
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            let (target, fields, _) = exchange.sent(&harness);
            (target, fields)
        };
        let whole = sent(&json!([{ "fallback": { "provider": "two", "forward_credentials": true } }]), 1);
        assert_eq!(whole.0, "/a?page=2&api%5Fkey=k&b=c&token=t");
        assert_eq!(whole.1.len(), 6);
        let bare = sent(&json!([{ "fallback": { "provider": "two" } }]), 1);
        assert_eq!(bare.0, "/a?page=2&b=c");
        assert_eq!(bare.1, ["Host: one.example", "Accept: */*", "User-Agent: u"]);
        let (target, _) = sent(&json!([{ "fallback": { "provider": "two", "path": "/other" } }]), 1);
        assert_eq!(target, "/other?page=2&b=c");
        // The original provider keeps them: with another path, and if an outer fallback leads back to it.
        let (target, fields) = sent(&json!([{ "fallback": { "path": "/other" } }]), 1);
        assert_eq!((&*target, fields.len()), ("/other?page=2&api%5Fkey=k&b=c&token=t", 6));
        let back = json!([
            { "fallback": { "provider": "one", "path": "/back" } },
            { "fallback": { "provider": "two" } },
        ]);
        assert_eq!(sent(&back, 2).1.len(), 6);
        // A field that an inner remedy sets is sent to any provider.
        let (_, fields) = sent(
            &json!([
                { "fallback": { "provider": "two" } },
                { "transform": { "request": { "headers": { "set": { "x-api-key": "two's" } } } } },
            ]),
            1,
        );
        assert_eq!(fields, ["Host: one.example", "Accept: */*", "User-Agent: u", "x-api-key: two's"]);
    }

    #[test]
    fn another_model_takes_the_place_of_the_requests_own() {
        const POST: &str = "POST https://one.example/chat\nContent-Type: application/json";
        let other =
            json!([{ "fallback": { "provider": "two", "model": "small \"2\"", "methods": ["POST"] } }]);
        let harness = TestFlows::with(&other);
        let mut exchange = harness.send(POST);
        exchange.body = Some(br#"{"model": "large", "n": 1}"#.to_vec());
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.response(&harness, "503"), TestStep::Repeat(harness.now));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.provider, Some(1));
        let body = exchange.sent(&harness).2;
        assert_eq!(body.as_deref(), Some(r#"{"model": "small \"2\"", "n": 1}"#));
        assert_eq!(exchange.response(&harness, "503"), TestStep::Response(503));

        // The model alone may change too. Without a JSON body, there is no other call.
        let harness = TestFlows::with(&json!([{ "fallback": { "model": "small", "methods": ["POST"] } }]));
        for (body, step) in [("{}", TestStep::Repeat(harness.now)), ("no JSON", TestStep::Response(503))] {
            let mut exchange = harness.send(POST);
            exchange.body = Some(body.as_bytes().to_vec());
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(exchange.response(&harness, "503"), step, "{body}");
        }
    }

    #[test]
    fn an_unrepeatable_request_gets_no_fallback() {
        let harness = TestFlows::with(&json!([{ "fallback": { "provider": "two" } }]));
        let mut exchange = harness.send(GET);
        exchange.repeatable = false;
        exchange.poll(&harness);
        assert_eq!(exchange.response(&harness, "503"), TestStep::Response(503));
    }

    #[test]
    fn an_unsafe_request_falls_back_only_if_unsent() {
        const POST: &str = "POST https://one.example/";
        let harness = TestFlows::with(&json!([
            { "fallback": { "provider": "two" } },
            { "circuit-breaker": { "consecutive": 1 } },
        ]));
        let mut exchange = harness.send(POST);
        exchange.poll(&harness);
        assert_eq!(exchange.response(&harness, "503"), TestStep::Response(503));
        // The circuit is open now, so nothing is sent.
        assert_eq!(harness.send(POST).poll(&harness), TestStep::Repeat(harness.now));

        let harness = TestFlows::with(&json!([{ "fallback": { "provider": "two" } }]));
        let failed = |kind| {
            let mut exchange = harness.send(POST);
            exchange.poll(&harness);
            exchange.failure(&harness, kind)
        };
        assert_eq!(failed(FailureKind::Connect), TestStep::Repeat(harness.now));
        assert_eq!(failed(FailureKind::Timeout), TestStep::Failure(FailureKind::Timeout));

        let harness = TestFlows::with(&json!([{ "fallback": { "provider": "two", "methods": ["POST"] } }]));
        let mut exchange = harness.send(POST);
        exchange.poll(&harness);
        assert_eq!(exchange.response(&harness, "503"), TestStep::Repeat(harness.now));
    }

    #[test]
    fn an_inner_open_circuit_falls_back() {
        let harness = TestFlows::with(&json!([
            { "fallback": { "provider": "two", "on": [] } },
            { "circuit-breaker": { "consecutive": 1 } },
        ]));
        assert_eq!(harness.exchange(GET, "500"), TestStep::Response(500));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Repeat(harness.now));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.provider, Some(1));
        assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
    }

    #[test]
    fn a_fixed_response_takes_the_place_of_a_failure() {
        let harness =
            TestFlows::with(&json!([{ "fallback": { "response": { "status": 200, "body": "[]" } } }]));
        let TestStep::Fixed(fixed) = harness.exchange(GET, "502") else { panic!() };
        assert_eq!((fixed.status, &*fixed.body), (200, &b"[]"[..]));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
    }

    #[test]
    fn a_substituted_refusal_says_when_to_retry() {
        let harness = |headers: Value| {
            TestFlows::new(json!({
                "quotas": { "q": { "limit": 1, "kind": "fixed", "starts": "first", "window": "10s" } },
                "flows": [{ "name": "f", "remedies": [
                    { "fallback": {
                        "on": [], "on_refused": ["quota-exceeded"],
                        "response": { "status": 420, "headers": headers, "body": "calm down" },
                    } },
                    { "limit": { "quota": "q" } },
                ] }],
            }))
        };
        let fields = |harness: &TestFlows| {
            assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
            let TestStep::Fixed(fixed) = harness.exchange(GET, "200") else { panic!() };
            assert_eq!((fixed.status, &*fixed.body), (420, &b"calm down"[..]));
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let mut fields: Vec<String> =
                fixed.fields.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect();
            fields.sort();
            fields
        };
        let own = harness(json!({}));
        let told = ["RateLimit-Policy: \"q\";q=1;w=10", "RateLimit: \"q\";r=0;t=10", "Retry-After: 10"];
        assert_eq!(fields(&own), told);
        let theirs = harness(json!({ "retry-after": "77", "X-Why": "${response.status}" }));
        assert_eq!(fields(&theirs), [told[0], told[1], "X-Why: 429", "retry-after: 77"]);
        // A response of the provider itself is not a refusal.
        let harness =
            TestFlows::with(&json!([{ "fallback": { "on": [429], "response": { "status": 200 } } }]));
        let TestStep::Fixed(fixed) = harness.exchange(GET, "429\nRetry-After: 5") else { panic!() };
        assert_eq!(fixed.fields, []);
    }

    fn of_users(fallback: &Value) -> TestFlows {
        TestFlows::new(json!({ "flows": [{
            "name": "f", "match": { "path": "/users/{id}" }, "remedies": [{ "fallback": fallback }],
        }]}))
    }

    #[test]
    fn values_in_the_path_stay_segments() {
        let harness = of_users(&json!({ "path": "/people/${params.id}/${response.headers.x-shard}" }));
        let target = |lines: &str| {
            let mut exchange = harness.send(lines);
            exchange.poll(&harness);
            let step = exchange.response(&harness, "500\nx-shard: 3");
            let target =
                exchange.draft.target.take().map(|target| String::from_utf8(target.to_vec()).unwrap());
            (step, target)
        };
        let (step, called) = target("GET https://one.example/users/a%2Fb%3F%20c?d=e");
        assert_eq!(step, TestStep::Repeat(harness.now));
        assert_eq!(called.unwrap(), "/people/a%2Fb%3F%20c/3?d=e");
        // A path that leads upwards is a fault of the remedy, so the failed response stays.
        let (step, called) = target("GET https://one.example/users/x%2F..%2F..%2Fadmin");
        assert_eq!((step, called), (TestStep::Response(500), None));
    }

    /// Returns the providers called one after the other if all of them fail.
    fn called(harness: &TestFlows, lines: &str) -> Vec<Option<usize>> {
        let mut exchange = harness.send(lines);
        let mut called = Vec::new();
        while exchange.poll(harness) == TestStep::Call {
            called.push(exchange.draft.call.provider);
            if !matches!(exchange.response(harness, "503"), TestStep::Repeat(_)) {
                break;
            }
        }
        called
    }

    #[test]
    fn fallbacks_go_outwards_and_never_to_and_fro() {
        let chain = json!([
            { "fallback": { "provider": "three" } },
            { "fallback": { "provider": "one" } },
            { "fallback": { "provider": "two" } },
        ]);
        let harness = TestFlows::with(&chain);
        // A provider that was just called is skipped.
        assert_eq!(called(&harness, "GET https://one.example/"), [None, Some(1), Some(0), Some(2)]);
        assert_eq!(called(&harness, "GET https://two.example/"), [None, Some(0), Some(2)]);
        assert_eq!(called(&harness, "GET https://three.example/"), [None, Some(1), Some(0), Some(2)]);
    }

    #[test]
    fn two_flows_may_stand_in_for_each_other() {
        let flow = |name: &str, to: &str| json!({ "name": name, "match": { "provider": name }, "remedies": [{ "fallback": { "provider": to } }] });
        let harness = TestFlows::new(json!({ "flows": [flow("one", "two"), flow("two", "one")] }));
        assert_eq!(called(&harness, "GET https://one.example/"), [None, Some(1)]);
        assert_eq!(called(&harness, "GET https://two.example/"), [None, Some(0)]);
    }

    #[test]
    fn a_retry_further_out_begins_with_the_own_provider_again() {
        let harness = TestFlows::with(&json!([
            { "retry": { "attempts": 2, "backoff": { "base": "0s" } } },
            { "fallback": { "provider": "two", "path": "/other" } },
            { "retry": { "attempts": 2, "backoff": { "base": "0s" } } },
        ]));
        assert_eq!(
            called(&harness, "GET https://one.example/"),
            [None, None, Some(1), Some(1), None, None, Some(1), Some(1)]
        );
    }

    #[test]
    fn a_fallback_that_leads_back_is_refused() {
        let found = problems(&json!([
            { "fallback": { "provider": "two", "on": ["503"] } },
            { "fallback": { "provider": "two", "on": ["timeout"] } },
            { "fallback": { "provider": "two", "path": "/x" } },
            { "fallback": { "provider": "two", "on": ["5xx"] } },
            { "fallback": { "provider": "two", "on": ["5xx"] }, "mode": "report" },
        ]));
        let place = |number: usize, key: &str| format!("flows[0].remedies[{number}].fallback.{key}: ");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with(&place(0, "provider")) && found[0].contains("`remedies[3]`"),
            "{found:#?}"
        );
        let found = problems(&json!([
            { "fallback": { "path": "/x", "on": ["503"], "on_refused": [] } },
            { "fallback": { "path": "/y", "on": ["200"], "on_refused": [] } },
            { "fallback": { "response": {}, "on": ["2xx", "5xx"] } },
        ]));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with(&place(0, "on")) && found[0].contains("has no effect"), "{found:#?}");
    }

    #[test]
    fn a_response_may_tell_how_the_call_failed() {
        let harness = of_users(&json!({ "response": {
            "headers": { "content-type": "application/json" },
            "body": "{\"id\":\"${params.id}\",\"status\":${response.status}}",
        }}));
        let body = |step| match step {
            TestStep::Fixed(fixed) => String::from_utf8(fixed.body.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        let get = "GET https://one.example/users/7";
        assert_eq!(body(harness.exchange(get, "502")), r#"{"id":"7","status":502}"#);
        let mut exchange = harness.send(get);
        exchange.poll(&harness);
        assert_eq!(body(exchange.failure(&harness, FailureKind::Connect)), r#"{"id":"7","status":0}"#);
    }

    #[test]
    fn nonsense_is_refused() {
        let found = problems(&json!([
            { "fallback": {} },
            { "fallback": { "provider": "too", "path": "no" } },
            { "fallback": { "path": "/x", "response": {} } },
            { "fallback": { "response": { "status": 42 } } },
            { "fallback": { "path": "/${params.none}" } },
            { "fallback": { "path": "${params.id}/a" } },
            { "fallback": { "path": "/a%${params.id}" } },
            { "fallback": { "path": "/a/../b" } },
        ]));
        assert_eq!(found.len(), 9, "{found:?}");
        assert!(found[4].starts_with("flows[0].remedies[3].fallback.response.status"), "{found:?}");
    }
}
