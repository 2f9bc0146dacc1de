//! `transform`: sets, adds and removes header fields, query parameters and members of JSON bodies, replaces
//! members by pseudonyms, and sets the path and the provider.
//!
//! All changes are computed from the message as this remedy received it, before any of them is applied. If
//! one change fails, the remedy fails and changes nothing. Each remedy sees the changes of the remedies
//! before it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::task::{Context, Poll};

use egret_config::Size;
use egret_har::obfuscate::MessageKind;
use egret_har::{Exclusions, Key, Obfuscator};
use egret_http1::{RequestFraming, ResponseFraming};
use egret_json::JsonError;
use egret_json::edit::{Action, JsonEdits};
use egret_match::form::is_same_decoded;
use egret_match::template::{Escape, Template, write_url};
use egret_message::{Changes, FLOW_BODY_BYTES_MAX, Fault, Fields, Json, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exchange::Exchange;
use crate::message_templates::{PathTemplate, field_name_problem};
use crate::remedy::{CompileContext, InnerRemedy, Mode, NamedPart, Needs, Reaction, Remedy, Step};

/// Maximum length of a rendered value.
const FIELD_BYTES_MAX: usize = 16 << 10;

/// Maximum length of a rendered target.
const TARGET_BYTES_MAX: usize = 16 << 10;

/// Maximum total length of all values for one body.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// Maximum total length of the values of one body that are replaced by pseudonyms. Each takes a digest, which
/// the worker computes.
const OBFUSCATED_BYTES_MAX: usize = 64 << 10;

/// Maximum number of changes of one kind.
const CHANGES_MAX: usize = 256;

egret_config::keys! {
    /// Changes to requests and responses. Values are templates; they see the message as it was before this
    /// remedy.
    pub struct TransformConfig {
        /// Changes to the request.
        pub request: RequestChanges,
        /// Changes to the response. If its JSON is changed, the provider is asked for an unencoded response
        /// (`accept-encoding: identity`).
        pub response: ResponseChanges,
        /// Maximum length of a body whose JSON is changed. With a longer body the remedy fails (`on_error`).
        pub body: Size = Size::from_kib(1024),
    }
}

egret_config::keys! {
    /// Changes to a request.
    pub struct RequestChanges {
        /// Provider to call instead of the request's: the name of a configured one, which determines scheme,
        /// host and the beginning of the path. The flows of the original request still apply. A provider
        /// chosen by an outer `fallback` is kept.
        pub provider: Option<String>,
        /// Sends the credentials of the client's request to `provider` too. By default, header fields and
        /// query parameters that look like credentials by name are removed before the other changes are made.
        pub forward_credentials: bool,
        /// Header fields.
        pub headers: TextChanges,
        /// Path to call, beginning with `/`. Slashes in values are encoded.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub path: Option<String>,
        /// Query parameters. Names and values are encoded.
        pub query: TextChanges,
        /// Members of a JSON body.
        pub json: JsonChanges,
    }
}

/// Changes to a response.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseChanges {
    /// Header fields.
    pub headers: TextChanges,
    /// Members of a JSON body.
    pub json: JsonChanges,
}

/// Changes to header fields or parameters, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TextChanges {
    /// Sets a value, replacing all others of that name.
    #[serde(deserialize_with = "egret_config::verbatim")]
    pub set: BTreeMap<String, String>,
    /// Adds a value and keeps others of that name.
    #[serde(deserialize_with = "egret_config::verbatim")]
    pub add: BTreeMap<String, String>,
    /// Removes all values of these names.
    pub remove: Vec<String>,
}

/// Changes to a JSON body, by JSON pointers (RFC 6901): `/user/email`, `/items/0`, `/items/-` for the end of
/// a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JsonChanges {
    /// Sets or replaces a value. Missing parent objects are created. Texts in the value are templates.
    #[serde(deserialize_with = "egret_config::verbatim")]
    pub set: BTreeMap<String, Value>,
    /// Appends a value to a list, or sets a member that does not exist. Any other existing value is kept.
    #[serde(deserialize_with = "egret_config::verbatim")]
    pub add: BTreeMap<String, Value>,
    /// Removes these members.
    pub remove: Vec<String>,
    /// Replaces these values by pseudonyms, after all other changes: every text and number in them, except
    /// empty texts. The pseudonyms are those of recordings, made with the same key (`har.key` in `data_dir`).
    /// A value that does not exist is skipped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub obfuscate: Vec<String>,
}

/// Changes requests and responses.
#[derive(Debug)]
pub struct Transform {
    request: RequestPlan,
    response: ResponsePlan,
    body_bytes_max: usize,
}

#[derive(Debug)]
struct RequestPlan {
    provider: Option<ProviderPlan>,
    fields: TextPlan,
    path: Option<PathTemplate>,
    query: TextPlan,
    json: JsonPlan,
}

/// The provider to call instead of the request's.
#[derive(Debug)]
struct ProviderPlan {
    number: usize,
    name: String,
    forwards_credentials: bool,
}

#[derive(Debug)]
struct ResponsePlan {
    fields: TextPlan,
    json: JsonPlan,
}

/// Compiled changes to header fields or parameters.
#[derive(Debug)]
struct TextPlan {
    set: Vec<(String, Template)>,
    add: Vec<(String, Template)>,
    remove: Vec<String>,
}

/// Compiled changes to a JSON body.
#[derive(Debug, Default)]
struct JsonPlan {
    edits: JsonEdits,
    values: Vec<Template>,
    len: usize,
    /// The places of values to replace by pseudonyms.
    obfuscated: JsonEdits,
    obfuscated_len: usize,
    /// `None` if there are none, or while a config is only checked.
    obfuscator: Option<Box<Obfuscator>>,
}

/// A name with its rendered value.
type Text<'a> = (&'a str, Cow<'a, [u8]>);

/// A [`TextPlan`] rendered for one message.
struct Texts<'a> {
    set: Vec<Text<'a>>,
    add: Vec<Text<'a>>,
    remove: &'a [String],
}

impl Remedy for Transform {
    type Config = TransformConfig;
    type Run = ();

    fn conflict_with_condition(config: &TransformConfig) -> Option<(&'static str, &'static str)> {
        (config.request != RequestChanges::default())
            .then_some(("request", "the request is already sent when the response is known"))
    }

    fn conflict_with_grpc(config: &TransformConfig) -> Option<(&'static str, &'static str)> {
        let why = "its messages are not JSON";
        let unchanged = JsonChanges::default();
        let keys = [("request.json", &config.request.json), ("response.json", &config.response.json)];
        keys.into_iter().find(|(_, json)| **json != unchanged).map(|(key, _)| (key, why))
    }

    fn switched_provider(config: &TransformConfig) -> Option<&str> {
        config.request.provider.as_deref()
    }

    fn needs_key(config: &TransformConfig) -> bool {
        [&config.request.json, &config.response.json].iter().any(|json| !json.obfuscate.is_empty())
    }

    fn names(config: &TransformConfig) -> Vec<NamedPart<'_>> {
        config.request.provider.iter().map(|provider| NamedPart::Provider(provider)).collect()
    }

    fn compile(config: &TransformConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        let TransformConfig { request, response, body } = config;
        if !(1..=FLOW_BODY_BYTES_MAX).contains(&body.bytes()) {
            context.problem("body", "must be from `1B` to `16MiB`: it is kept in memory for each exchange");
        }
        if *request == RequestChanges::default() && *response == ResponseChanges::default() {
            context.problem("request", "nothing is changed: add a change here, or in `response`");
        }
        let request = RequestPlan {
            provider: ProviderPlan::compile(request, context),
            fields: TextPlan::of_fields(&request.headers, "request.headers", false, context),
            path: request.path.as_deref().and_then(|path| context.path_template("request.path", path, false)),
            query: TextPlan::of_query(&request.query, "request.query", context),
            json: JsonPlan::compile(&request.json, "request.json", false, context),
        };
        let response = ResponsePlan {
            fields: TextPlan::of_fields(&response.headers, "response.headers", true, context),
            json: JsonPlan::compile(&response.json, "response.json", true, context),
        };
        let body_bytes_max = usize::try_from(body.bytes()).unwrap_or(usize::MAX);
        (context.problems.len() == before).then_some(Self { request, response, body_bytes_max })
    }

    fn describe(&self) -> String {
        let RequestPlan { provider, fields, path, query, json } = &self.request;
        let provider = provider.as_ref().map(|provider| format!("the provider to {}", provider.name));
        let path = path.as_ref().map(|_| "the path".to_owned());
        let parts = [
            provider,
            counted(fields.len(), "field"),
            path,
            counted(query.len(), "parameter"),
            json.describe(),
        ];
        let request = side("the request", &parts);
        let ResponsePlan { fields, json } = &self.response;
        let response = side("the response", &[counted(fields.len(), "field"), json.describe()]);
        format!("changes {}", [request, response].into_iter().flatten().collect::<Vec<_>>().join(", and "))
    }

    fn needs(&self) -> Needs {
        let bytes = |json: &JsonPlan| if json.is_empty() { 0 } else { self.body_bytes_max };
        Needs {
            request_json: bytes(&self.request.json),
            response_json: bytes(&self.response.json),
            ..Needs::default()
        }
    }

    fn request(&self, exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        let before = self.request.provider.is_some().then(|| exchange.draft.checkpoint());
        if let Some(provider) = &self.request.provider {
            provider.switch(exchange);
        }
        let changed = self.change_request(exchange);
        if let (Err(_), Some(before)) = (&changed, &before) {
            exchange.draft.restore(before);
        }
        Poll::Ready(changed.map_or_else(Step::Fail, |()| Step::Next))
    }

    fn response(&self, exchange: &mut Exchange<'_>, _held: &mut ()) -> Reaction {
        self.change_response(exchange).map_or_else(Reaction::Fail, |()| Reaction::Pass)
    }
}

impl Transform {
    fn change_request(&self, exchange: &mut Exchange<'_>) -> Result<(), Fault> {
        let texts = self.request.fields.render(exchange)?;
        let target = self.target(exchange)?;
        let body = self.request_body(exchange)?;
        let draft = &mut *exchange.draft;
        if !self.response.json.is_empty() {
            draft.request.set(b"accept-encoding", b"identity");
        }
        if let Some(target) = target {
            draft.target = Some(target.into());
            draft.call.has_secret_target |= self.request.has_secret_target();
        }
        if let Some(body) = body {
            draft.replace_request_body(body);
        }
        texts.write(&mut draft.request);
        self.request.fields.secrets().for_each(|name| draft.request.mark_secret(name.as_bytes()));
        Ok(())
    }

    fn change_response(&self, exchange: &mut Exchange<'_>) -> Result<(), Fault> {
        let Some(response) = exchange.response() else { return Ok(()) };
        let etag = response.fields.get(b"etag").map(<[u8]>::to_vec);
        let texts = self.response.fields.render(exchange)?;
        let body = self.response_body(exchange)?;
        let draft = &mut *exchange.draft;
        if let Some(body) = body {
            draft.replace_response_body(body, etag.as_deref());
        }
        texts.write(&mut draft.response);
        Ok(())
    }

    /// Returns the new path and query, or `None` if they do not change.
    fn target(&self, exchange: &Exchange<'_>) -> Result<Option<Vec<u8>>, Fault> {
        let request = exchange.request();
        let RequestPlan { path, query, .. } = &self.request;
        // `OPTIONS *` asks about the server as a whole.
        if (path.is_none() && query.len() == 0) || request.path == b"*" {
            return Ok(None);
        }
        let mut target = match path {
            Some(path) => path.render(exchange)?.into_owned(),
            None => request.path.to_vec(),
        };
        let query = query.render(exchange)?.write_query(request.query);
        if let Some(query) = query {
            target.push(b'?');
            target.extend_from_slice(&query);
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Fault(format!("the target is longer than {TARGET_BYTES_MAX} bytes").into()));
        }
        Ok(Some(target))
    }

    /// Returns the request's new body, or `None` if it does not change.
    fn request_body(&self, exchange: &Exchange<'_>) -> Result<Option<Vec<u8>>, Fault> {
        let received = &exchange.received;
        if received.head.framing == RequestFraming::None {
            return Ok(None);
        }
        let fields = Fields::received(&received.head.fields, received.bytes);
        self.body(&self.request.json, fields, exchange.request().body, exchange)
    }

    /// Returns the response's new body, or `None` if it does not change.
    fn response_body(&self, exchange: &Exchange<'_>) -> Result<Option<Vec<u8>>, Fault> {
        let Outcome::Response(received) = exchange.outcome else { return Ok(None) };
        let is_part = received.head.status == 206;
        if is_part || received.head.framing == ResponseFraming::None {
            return Ok(None);
        }
        let fields = Fields::received(&received.head.fields, received.bytes);
        let body = exchange.response().and_then(|response| response.body);
        self.body(&self.response.json, fields, body, exchange)
    }

    /// Applies `plan` to a body that was received with `fields`. `body` is its current content, if it is
    /// present. Returns `None` if nothing changes.
    fn body(
        &self,
        plan: &JsonPlan,
        fields: Fields<'_>,
        body: Option<&[u8]>,
        exchange: &Exchange<'_>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        if plan.is_empty() {
            return Ok(None);
        }
        match fields.json() {
            Json::No => return Ok(None),
            Json::Encoded => return Err(Fault("the body has a content coding".into())),
            Json::Plain => {}
        }
        match body {
            Some([]) => Ok(None),
            Some(body) if body.len() <= self.body_bytes_max => plan.apply(body, exchange),
            _ => Err(Fault(
                "the body is longer than `body`, or there was no buffer space for it \
                 (`gateway.limits.gathered`)"
                    .into(),
            )),
        }
    }
}

impl ProviderPlan {
    /// Compiles `provider` of the request. Adds a problem if there is no such provider, or if the change has
    /// no effect.
    fn compile(config: &RequestChanges, context: &mut CompileContext<'_>) -> Option<Self> {
        let Some(name) = config.provider.as_deref() else {
            if config.forward_credentials {
                context.problem("request.forward_credentials", "has no effect without `provider`");
            }
            return None;
        };
        let Some(number) = context.providers.iter().position(|other| *other == name) else {
            context.unknown_name("request.provider", name, "provider");
            return None;
        };
        if let Some(problem) = no_effect(name, context) {
            context.problem("request.provider", problem);
            return None;
        }
        Some(Self { number, name: name.to_owned(), forwards_credentials: config.forward_credentials })
    }

    /// Sends the next call to this provider, unless it is the call's own or an outer remedy has made the call
    /// in place of a failed one.
    fn switch(&self, exchange: &mut Exchange<'_>) {
        let call = exchange.draft.call;
        let is_own = match call.provider {
            Some(number) => number == self.number || call.is_alternate,
            None => exchange.destination.provider == self.name,
        };
        if is_own {
            return;
        }
        if !self.forwards_credentials {
            exchange.drop_credentials();
        }
        exchange.draft.call.provider = Some(self.number);
    }
}

/// Returns the reason why sending the calls of the flow to the provider `name` would change nothing.
fn no_effect(name: &str, context: &CompileContext<'_>) -> Option<String> {
    let inner = context.inner.iter().find(|inner| {
        let config = inner.config.downcast_ref::<TransformConfig>();
        inner.mode == Mode::Enforce && config.is_some_and(|config| config.request.provider.is_some())
    });
    if let Some(InnerRemedy { number, .. }) = inner {
        return Some(format!("has no effect: the transform in `remedies[{number}]` sets the provider again"));
    }
    let from = &context.matching.provider;
    let is_own = context.switched_provider.map_or_else(
        || !from.is_empty() && from.iter().all(|other| other == name),
        |switched| switched == name,
    );
    is_own.then(|| format!("has no effect: the calls of the flow already go to `{name}`"))
}

/// Formats a count: `2 fields`. Returns `None` for zero.
fn counted(count: usize, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    }
}

fn side(name: &str, parts: &[Option<String>]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
    (!parts.is_empty()).then(|| format!("{} of {name}", parts.join(", ")))
}

impl TextPlan {
    /// Compiles changes to header fields, whose keys are under `at` in this remedy's config.
    fn of_fields(
        config: &TextChanges,
        at: &str,
        has_response: bool,
        context: &mut CompileContext<'_>,
    ) -> Self {
        let mut templates = |key: &str, changes: &BTreeMap<String, String>| {
            let key = format!("{at}.{key}");
            let template = |(name, value): (&String, &String)| {
                Some((name.clone(), context.field_template(&key, name, value, has_response)?))
            };
            changes.iter().filter_map(template).collect()
        };
        let (set, add) = (templates("set", &config.set), templates("add", &config.add));
        for name in &config.remove {
            if let Some(problem) = field_name_problem(name) {
                context.problem(&format!("{at}.remove"), problem);
            }
        }
        check_names(config, at, str::eq_ignore_ascii_case, context);
        Self { set, add, remove: config.remove.clone() }
    }

    /// Compiles changes to query parameters.
    fn of_query(config: &TextChanges, at: &str, context: &mut CompileContext<'_>) -> Self {
        let mut templates = |key: &str, changes: &BTreeMap<String, String>| {
            let template = |(name, value): (&String, &String)| {
                let key = format!("{at}.{key}.{name}");
                if name.is_empty() {
                    context.problem(&key, "a parameter must have a name");
                }
                Some((name.clone(), context.template(&key, value, Escape::Text, false)?))
            };
            changes.iter().filter_map(template).collect()
        };
        let (set, add) = (templates("set", &config.set), templates("add", &config.add));
        check_names(config, at, |one, other| one == other, context);
        Self { set, add, remove: config.remove.clone() }
    }

    fn len(&self) -> usize {
        self.set.len() + self.add.len() + self.remove.len()
    }

    /// Iterates over the names whose values contain a secret.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        let all = self.set.iter().chain(&self.add);
        all.filter(|(_, template)| template.has_secret()).map(|(name, _)| name.as_str())
    }

    fn render(&self, exchange: &Exchange<'_>) -> Result<Texts<'_>, Fault> {
        let (set, add) = (render_all(&self.set, exchange)?, render_all(&self.add, exchange)?);
        Ok(Texts { set, add, remove: &self.remove })
    }
}

fn render_all<'a>(
    changes: &'a [(String, Template)],
    exchange: &Exchange<'_>,
) -> Result<Vec<Text<'a>>, Fault> {
    let render = |(name, template): &'a (String, Template)| {
        let value = exchange.render(template)?;
        if value.len() > FIELD_BYTES_MAX {
            return Err(Fault(format!("a value is longer than {FIELD_BYTES_MAX} bytes").into()));
        }
        Ok((name.as_str(), value))
    };
    changes.iter().map(render).collect()
}

/// Adds problems for contradicting changes to one name, and for too many changes.
fn check_names(
    config: &TextChanges,
    at: &str,
    is_same: impl Fn(&str, &str) -> bool,
    context: &mut CompileContext<'_>,
) {
    let TextChanges { set, add, remove } = config;
    if set.len() + add.len() + remove.len() > CHANGES_MAX {
        return context.problem(at, format!("at most {CHANGES_MAX} changes"));
    }
    for (place, name) in set.keys().enumerate() {
        if set.keys().take(place).any(|other| is_same(other, name)) {
            context.problem(&format!("{at}.set.{name}"), "is listed twice: names are case-insensitive");
        }
    }
    for name in remove {
        if set.keys().chain(add.keys()).any(|other| is_same(other, name)) {
            context.problem(
                &format!("{at}.remove"),
                format!("`{name}` is also set or added: `set` alone replaces it"),
            );
        }
    }
}

impl RequestPlan {
    /// Returns `true` if the path or the query gets a secret.
    fn has_secret_target(&self) -> bool {
        self.path.as_ref().is_some_and(PathTemplate::has_secret) || self.query.secrets().next().is_some()
    }
}

impl Texts<'_> {
    /// Adds them to the changes of a message.
    fn write(&self, changes: &mut Changes) {
        for name in self.remove {
            changes.remove(name.as_bytes());
        }
        for (name, value) in &self.set {
            changes.set(name.as_bytes(), value);
        }
        for (name, value) in &self.add {
            changes.add(name.as_bytes(), value);
        }
    }

    /// Builds a query from `query`. Parameters that are not named stay as sent.
    fn write_query(&self, query: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut pairs: Vec<Cow<'_, [u8]>> = Vec::new();
        let mut is_set = vec![false; self.set.len()];
        for pair in query.into_iter().flat_map(|query| query.split(|byte| *byte == b'&')) {
            let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
            let is_named = |other: &str| is_same_decoded(name, other.as_bytes());
            match self.set.iter().position(|(other, _)| is_named(other)) {
                Some(at) if is_set[at] => {}
                Some(at) => {
                    is_set[at] = true;
                    pairs.push(Cow::Owned(parameter(&self.set[at])));
                }
                None if self.remove.iter().any(|other| is_named(other)) => {}
                None => pairs.push(Cow::Borrowed(pair)),
            }
        }
        let missing = self.set.iter().zip(is_set).filter(|(_, is_set)| !is_set).map(|(change, _)| change);
        pairs.extend(missing.chain(&self.add).map(|change| Cow::Owned(parameter(change))));
        (!pairs.is_empty()).then(|| pairs.join(&b'&'))
    }
}

/// Encodes a name and its value for a query.
fn parameter((name, value): &Text<'_>) -> Vec<u8> {
    let mut pair = Vec::new();
    write_url(name.as_bytes(), &mut pair);
    pair.push(b'=');
    write_url(value, &mut pair);
    pair
}

impl JsonPlan {
    /// Compiles changes to a JSON body, whose keys are under `at` in this remedy's config.
    fn compile(config: &JsonChanges, at: &str, has_response: bool, context: &mut CompileContext<'_>) -> Self {
        let mut plan = Self::default();
        for (pointer, value) in &config.set {
            let number = plan.values.len();
            plan.insert(pointer, Action::Set(number), &format!("{at}.set.{pointer}"), context);
            plan.value(value, &format!("{at}.set.{pointer}"), has_response, context);
        }
        for (pointer, value) in &config.add {
            let number = plan.values.len();
            plan.insert(pointer, Action::Add(number), &format!("{at}.add.{pointer}"), context);
            plan.value(value, &format!("{at}.add.{pointer}"), has_response, context);
        }
        for pointer in &config.remove {
            plan.insert(pointer, Action::Remove, &format!("{at}.remove"), context);
        }
        for pointer in &config.obfuscate {
            plan.obfuscated_len += 1;
            if let Err(problem) = plan.obfuscated.insert(pointer, Action::Rewrite) {
                context.problem(&format!("{at}.obfuscate"), problem.to_string());
            }
        }
        if plan.len + plan.obfuscated_len > CHANGES_MAX {
            context.problem(at, format!("at most {CHANGES_MAX} changes"));
        }
        if let Some(key) = context.key.filter(|_| plan.obfuscated_len > 0) {
            let obfuscator = Obfuscator::new(Key::clone(key), Exclusions::default());
            plan.obfuscator = Some(Box::new(obfuscator));
        }
        plan
    }

    fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.obfuscated.is_empty()
    }

    fn insert(&mut self, pointer: &str, action: Action, key: &str, context: &mut CompileContext<'_>) {
        self.len += 1;
        if let Err(problem) = self.edits.insert(pointer, action) {
            context.problem(key, problem.to_string());
        }
    }

    /// Adds a value as JSON text, which is a template. Its placeholders are inside quotes, so rendered values
    /// are escaped.
    fn value(&mut self, value: &Value, key: &str, has_response: bool, context: &mut CompileContext<'_>) {
        if has_open_name(value) {
            context.problem(key, "names in a value cannot contain a template (`${`)");
        }
        self.values.extend(context.template(key, &value.to_string(), Escape::Json, has_response));
    }

    fn describe(&self) -> Option<String> {
        let changed = counted(self.len, "member").map(|members| format!("{members} of the JSON"));
        let hidden = counted(self.obfuscated_len, "member")
            .map(|members| format!("{members} of the JSON replaced by pseudonyms"));
        let parts: Vec<String> = changed.into_iter().chain(hidden).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Applies the changes, then replaces values by pseudonyms. Returns `None` if nothing changes.
    fn apply(&self, body: &[u8], exchange: &Exchange<'_>) -> Result<Option<Vec<u8>>, Fault> {
        let edited = if self.edits.is_empty() { None } else { self.edit(body, exchange)? };
        if self.obfuscated.is_empty() {
            return Ok(edited);
        }
        let obfuscated = self.obfuscate(edited.as_deref().unwrap_or(body))?;
        Ok(obfuscated.or(edited))
    }

    fn obfuscate(&self, body: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let obfuscator = self.obfuscator.as_deref().ok_or_else(|| Fault("there is no key".into()))?;
        let mut total = 0;
        let obfuscated = self.obfuscated.apply_with(body, &[], &mut |value, new| {
            total += value.len();
            if total > OBFUSCATED_BYTES_MAX {
                return Err(JsonError::TooLong);
            }
            // Both sides are alike without exclusions.
            let mut hidden = obfuscator.body(MessageKind::Response, "application/json");
            hidden.push(value);
            new.extend_from_slice(&hidden.finish());
            Ok(())
        });
        if total > OBFUSCATED_BYTES_MAX {
            let message =
                format!("the values to obfuscate are longer than {OBFUSCATED_BYTES_MAX} bytes in total");
            return Err(Fault(message.into()));
        }
        obfuscated.map_err(|error| Fault(format!("cannot obfuscate the body: {error}").into()))
    }

    fn edit(&self, body: &[u8], exchange: &Exchange<'_>) -> Result<Option<Vec<u8>>, Fault> {
        let mut values = Vec::with_capacity(self.values.len());
        let mut total = 0;
        for template in &self.values {
            let value = exchange.render(template)?;
            total += value.len();
            if total > VALUES_BYTES_MAX {
                return Err(Fault(
                    format!("the values are longer than {VALUES_BYTES_MAX} bytes in total").into(),
                ));
            }
            values.push(value);
        }
        let values: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
        self.edits
            .apply(body, &values)
            .map_err(|error| Fault(format!("cannot edit the body: {error}").into()))
    }
}

/// Returns `true` if a name in the value looks like a template.
fn has_open_name(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| name.contains("${") || has_open_name(value)),
        Value::Array(list) => list.iter().any(has_open_name),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
