//! Egret's keys, each in one place.

use std::collections::BTreeMap;

use crate::yaml::{Node, list, map, plain, program, text};

/// Longest time that Egret believes a provider's `Retry-After`.
const THROTTLE_MAX_S: u64 = 744 * 3_600;

/// A listener at the address of Lunar's gateway, on loopback.
pub(crate) fn listener(routes_by_query: bool) -> Node {
    let address = plain("127.0.0.1:8000");
    if routes_by_query { map([("address", address), ("route_by_query", plain(true))]) } else { address }
}

/// The products whose clients keep their fields.
pub(crate) fn compat() -> Node {
    list([plain("lunar")])
}

/// Mapping that Lunar's clients send for the gateway alone.
pub(crate) fn private_fields() -> Node {
    const FIELDS: [&str; 4] =
        ["x-lunar-req-id", "x-lunar-sequence-id", "x-lunar-interceptor", "x-lunar-internal"];
    list(FIELDS.map(text))
}

/// The condition of a flow on the response.
pub(crate) fn when_response(expressions: &[String]) -> Option<(&'static str, Node)> {
    crate::draft::conjunction(expressions).map(|expression| ("when_response", text(&expression)))
}

/// A duration, in the largest unit that leaves a whole number.
pub(crate) fn duration(seconds: f64) -> Node {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let millis = (seconds * 1_000.0).round().max(0.0) as u64;
    plain(egret_config::Duration::from_millis(millis))
}

pub(crate) fn size(bytes: u64) -> Node {
    plain(egret_config::Size::from_bytes(bytes))
}

/// `name: { … }`: a remedy or a diagnosis.
fn named<const N: usize>(name: &str, entries: [Option<(&'static str, Node)>; N]) -> Node {
    map([(name, map(entries.into_iter().flatten()))])
}

/// Units of time or of concurrency.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Quota {
    pub limit: u64,
    pub kind: &'static str,
    pub window_s: Option<u64>,
    pub starts_first: bool,
    pub renews: Option<Renewal>,
    pub group_by: Option<String>,
    pub shares: Option<Node>,
    pub parent: Option<String>,
    pub cost: Option<Cost>,
    pub spillover: Option<u64>,
}

/// The moment of the month at which a quota renews.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Renewal {
    pub day: u64,
    pub time: String,
    pub time_zone: String,
}

/// Expressions of a cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    pub request: String,
    pub response: Option<String>,
}

impl Quota {
    /// A quota without windows' details.
    pub fn new(limit: u64, kind: &'static str) -> Self {
        Self { limit, kind, ..Self::default() }
    }

    pub fn node(&self) -> Node {
        let mut entries = vec![("limit", plain(self.limit)), ("kind", plain(self.kind))];
        #[expect(clippy::cast_precision_loss, reason = "a window is far shorter than 2^53 seconds")]
        entries.extend(self.window_s.map(|window| ("window", duration(window as f64))));
        if self.starts_first {
            entries.push(("starts", plain("first")));
        }
        if let Some(Renewal { day, time, time_zone }) = &self.renews {
            entries.push(("period", plain("month")));
            let renews = [("day", plain(day)), ("time", text(time)), ("time_zone", text(time_zone))];
            entries.push(("renews", map(renews)));
        }
        entries.extend(self.group_by.as_ref().map(|by| ("group_by", text(by))));
        entries.extend(self.shares.clone().map(|shares| ("shares", shares)));
        entries.extend(self.parent.as_ref().map(|parent| ("parent", text(parent))));
        if let Some(Cost { request, response }) = &self.cost {
            let response = response.as_ref().map(|response| ("response", text(response)));
            entries.push(("cost", map([Some(("request", text(request))), response].into_iter().flatten())));
        }
        entries.extend(self.spillover.map(|max| ("spillover", map([("max", plain(max))]))));
        map(entries)
    }
}

pub(crate) fn limit(quota: &str, status: Option<u64>) -> Node {
    let status = status.filter(|status| *status != 429).map(|status| ("status", plain(status)));
    named("limit", [Some(("quota", text(quota))), status])
}

/// A limit that counts and refuses nothing.
pub(crate) fn counted(quota: &str) -> Node {
    map([("limit", map([("quota", text(quota))])), ("mode", plain("report"))])
}

pub(crate) fn concurrency(max: u64, status: Option<u64>, group_by: Option<&str>) -> Node {
    let status = status.filter(|status| *status != 429).map(|status| ("status", plain(status)));
    named("concurrency", [Some(("max", plain(max))), group_by.map(|by| ("group_by", text(by))), status])
}

/// A queue for a quota.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueRemedy {
    pub quota: String,
    pub size: Option<u64>,
    pub max_wait_s: f64,
    pub status: Option<u64>,
    /// The source of the class, and the classes from the highest priority.
    pub priority: Option<(String, Vec<String>)>,
}

impl QueueRemedy {
    pub fn node(&self) -> Node {
        let priority = self.priority.as_ref().map(|(by, classes)| {
            let classes = list(classes.iter().map(|class| text(class)));
            ("priority", map([("by", text(by)), ("classes", classes)]))
        });
        let status = self.status.filter(|status| *status != 429).map(|status| ("status", plain(status)));
        named(
            "queue",
            [
                Some(("quota", text(&self.quota))),
                self.size.map(|size| ("size", plain(size))),
                Some(("max_wait", duration(self.max_wait_s))),
                status,
                priority,
            ],
        )
    }
}

/// A response written in the config.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Response {
    pub status: u64,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Response {
    fn node(&self) -> Node {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), text(&literal(value))));
        let mut entries = vec![("status", plain(self.status))];
        if !self.headers.is_empty() {
            entries.push(("headers", map(headers)));
        }
        if !self.body.is_empty() {
            entries.push(("body", text(&literal(&self.body))));
        }
        map(entries)
    }

    pub fn fixed(&self) -> Node {
        map([("fixed-response", self.node())])
    }
}

/// The text as a template that stands for itself.
fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// A response in place of refusals by inner remedies.
pub(crate) fn on_refused(reasons: &[&str], response: &Response) -> Node {
    let reasons = list(reasons.iter().map(plain));
    named(
        "fallback",
        [Some(("on", list([]))), Some(("on_refused", reasons)), Some(("response", response.node()))],
    )
}

/// Repeated calls.
#[derive(Debug, Clone)]
pub(crate) struct Retry {
    pub attempts: u64,
    pub on: Vec<String>,
    pub base_s: f64,
    pub factor: f64,
    pub max_s: f64,
}

impl Retry {
    pub fn node(&self) -> Node {
        let mut backoff = vec![("base", duration(self.base_s))];
        backoff.push(("factor", plain(self.factor)));
        backoff.push(("max", duration(self.max_s)));
        backoff.push(("jitter", plain("none")));
        let on = list(self.on.iter().map(plain));
        named(
            "retry",
            [Some(("attempts", plain(self.attempts))), Some(("on", on)), Some(("backoff", map(backoff)))],
        )
    }
}

/// Statuses as a condition: `429`, `5xx`, `502-504`.
pub(crate) fn statuses(from: u64, to: u64) -> String {
    match (from, to) {
        (from, to) if from == to => from.to_string(),
        (from, to) if from % 100 == 0 && to == from + 99 => format!("{}xx", from / 100),
        (from, to) => format!("{from}-{to}"),
    }
}

/// Mapping with which a provider asks for a pause.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throttle {
    pub on: Vec<u64>,
    pub header: Option<String>,
    /// The fields with what remains, and with when it renews.
    pub remaining: Option<(String, String)>,
    pub status: Option<u64>,
    pub group_by: Option<&'static str>,
}

impl Throttle {
    pub fn node(&self) -> Node {
        let on = list(self.on.iter().map(plain));
        let is_other = |header: &&String| !header.eq_ignore_ascii_case("retry-after");
        named(
            "provider-throttle",
            [
                (!self.on.is_empty()).then_some(("on", on)),
                self.header.as_ref().filter(is_other).map(|header| ("header", text(header))),
                self.remaining.as_ref().map(|(remaining, _)| ("remaining_header", text(remaining))),
                self.remaining.as_ref().map(|(_, reset)| ("reset_header", text(reset))),
                #[expect(clippy::cast_precision_loss, reason = "the constant is far below 2^53")]
                Some(("wait_max", duration(THROTTLE_MAX_S as f64))),
                self.status.filter(|status| *status != 429).map(|status| ("status", plain(status))),
                self.group_by.map(|by| ("group_by", text(by))),
            ],
        )
    }
}

/// Stored responses.
#[derive(Debug, Clone, Default)]
pub(crate) struct CacheRemedy {
    pub statuses: Vec<String>,
    pub ttl_s: f64,
    pub post: bool,
    pub headers: Vec<String>,
    pub body: Vec<String>,
    pub max_entry: Option<u64>,
    pub memory: Option<u64>,
}

impl CacheRemedy {
    pub fn node(&self) -> Node {
        let ttl = map(self.statuses.iter().map(|status| (status.as_str(), duration(self.ttl_s))));
        let parts: Vec<(&str, Node)> = [("headers", &self.headers), ("body", &self.body)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(key, names)| (key, list(names.iter().map(|name| text(name)))))
            .collect();
        let methods = ["GET", "HEAD", "POST"].map(plain);
        named(
            "cache",
            [
                Some(("ttl", ttl)),
                Some(("override", plain(true))),
                self.post.then(|| ("methods", list(methods))),
                (!parts.is_empty()).then(|| ("key", map(parts))),
                self.max_entry.map(|bytes| ("max_entry", size(bytes))),
                self.memory.map(|bytes| ("memory", size(bytes))),
            ],
        )
    }
}

pub(crate) fn accounts(names: &[String]) -> Node {
    named("accounts", [Some(("use", list(names.iter().map(|name| text(name)))))])
}

pub(crate) fn authenticate(account: &str) -> Node {
    named("authenticate", [Some(("account", text(account)))])
}

/// A reference to a secret in the environment.
pub(crate) fn environment(name: &str) -> Node {
    text(&format!("${{env:{name}}}"))
}

/// A credential in a header field: a bearer token, or a key with a prefix.
pub(crate) fn account(providers: &[String], header: &str, prefix: &str, variable: &str) -> Node {
    let value = environment(variable);
    let credential = if header.eq_ignore_ascii_case("authorization") && prefix == "Bearer " {
        ("bearer", map([("token", value)]))
    } else {
        let prefix = (!prefix.is_empty()).then(|| ("prefix", text(prefix)));
        let entries = [Some(("header", text(&header.to_ascii_lowercase()))), prefix, Some(("value", value))];
        ("api_key", map(entries.into_iter().flatten()))
    };
    map([("provider", crate::yaml::one_or_list(providers)), credential])
}

pub(crate) fn basic_account(providers: &[String], user: &str, variable: &str) -> Node {
    let basic = map([("user", text(user)), ("password", environment(variable))]);
    map([("provider", crate::yaml::one_or_list(providers)), ("basic", basic)])
}

/// Changes to a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Changes {
    pub set_headers: Vec<(String, String)>,
    pub remove_headers: Vec<String>,
    pub set_query: Vec<(String, String)>,
    pub remove_query: Vec<String>,
    pub path: Option<String>,
    pub provider: Option<String>,
    pub set_json: Vec<(String, Node)>,
    pub remove_json: Vec<String>,
    pub obfuscate: Vec<String>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `transform: { request: … }`, or `response`.
    pub fn node(&self, side: &str) -> Node {
        let texts = |names: &[String]| list(names.iter().map(|name| text(name)));
        let set = |values: &[(String, String)]| {
            map(values.iter().map(|(name, value)| (name.as_str(), text(value))))
        };
        let part = |set: Option<Node>, remove: Option<Node>| {
            let entries = [remove.map(|node| ("remove", node)), set.map(|node| ("set", node))];
            map(entries.into_iter().flatten())
        };
        let mut entries = Vec::new();
        entries.extend(self.provider.as_ref().map(|provider| ("provider", text(provider))));
        let fields = [
            ("headers", &self.set_headers, &self.remove_headers),
            ("query", &self.set_query, &self.remove_query),
        ];
        entries.extend(self.path.as_ref().map(|path| ("path", text(path))));
        for (key, values, names) in fields {
            if !values.is_empty() || !names.is_empty() {
                let set = (!values.is_empty()).then(|| set(values));
                entries.push((key, part(set, (!names.is_empty()).then(|| texts(names)))));
            }
        }
        if !self.set_json.is_empty() || !self.remove_json.is_empty() || !self.obfuscate.is_empty() {
            let json = [
                (!self.remove_json.is_empty()).then(|| ("remove", texts(&self.remove_json))),
                (!self.set_json.is_empty()).then(|| ("set", map(self.set_json.iter().cloned()))),
                (!self.obfuscate.is_empty()).then(|| ("obfuscate", texts(&self.obfuscate))),
            ];
            entries.push(("json", map(json.into_iter().flatten())));
        }
        map([("transform", map([(side, map(entries))]))])
    }
}

pub(crate) fn script(source: &str) -> Node {
    named("script", [Some(("source", program(source)))])
}

pub(crate) fn trace() -> Node {
    map([("trace", map::<&str>([]))])
}

pub(crate) fn traces(exporter: &str) -> Node {
    named("traces", [Some(("export", text(exporter)))])
}

/// An archive of exchanges.
#[derive(Debug, Clone, Default)]
pub(crate) struct HarDiagnosis {
    pub export: String,
    pub obfuscate: bool,
    pub bodies: u64,
    pub exclude: Vec<String>,
}

impl HarDiagnosis {
    pub fn node(&self) -> Node {
        let exclude = list(self.exclude.iter().map(|path| text(path)));
        named(
            "har",
            [
                Some(("export", text(&self.export))),
                Some(("obfuscate", plain(self.obfuscate))),
                Some(("bodies", size(self.bodies))),
                (!self.exclude.is_empty()).then_some(("exclude", exclude)),
            ],
        )
    }
}

/// The source of a number or of a label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Figure {
    Header(String),
    RequestHeader(String),
    Cel(String),
}

impl Figure {
    fn entry(&self) -> (&'static str, Node) {
        match self {
            Self::Header(name) => ("header", text(name)),
            Self::RequestHeader(name) => ("request_header", text(name)),
            Self::Cel(expression) => ("cel", text(expression)),
        }
    }
}

/// Figures of exchanges.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub labels: Option<Vec<&'static str>>,
    pub custom_labels: Vec<(String, Figure)>,
    pub buckets_ms: Vec<f64>,
    pub counters: Vec<(String, Figure)>,
    pub up_down_counters: Vec<(String, Figure)>,
    pub gauges: Vec<(String, Figure)>,
    pub histograms: Vec<(String, Figure, Vec<f64>)>,
}

impl Metrics {
    pub fn node(&self) -> Node {
        let sources = |sources: &[(String, Figure)]| {
            map(sources.iter().map(|(name, source)| (name.clone(), map([source.entry()]))))
        };
        let mut entries = Vec::new();
        entries.extend(self.labels.as_ref().map(|labels| ("labels", list(labels.iter().map(plain)))));
        if !self.custom_labels.is_empty() {
            entries.push(("custom_labels", sources(&self.custom_labels)));
        }
        if !self.buckets_ms.is_empty() {
            entries.push(("buckets", list(self.buckets_ms.iter().map(|bound| duration(bound / 1_000.0)))));
        }
        let sums = [
            ("counters", &self.counters),
            ("up_down_counters", &self.up_down_counters),
            ("gauges", &self.gauges),
        ];
        for (key, values) in sums {
            if !values.is_empty() {
                entries.push((key, sources(values)));
            }
        }
        if !self.histograms.is_empty() {
            let histogram = |(name, source, buckets): &(String, Figure, Vec<f64>)| {
                (name.clone(), map([source.entry(), ("buckets", list(buckets.iter().map(plain)))]))
            };
            entries.push(("histograms", map(self.histograms.iter().map(histogram))));
        }
        map([("metrics", map(entries))])
    }
}

pub(crate) fn har_files(directory: &str) -> Node {
    map([("type", plain("har")), ("directory", text(directory))])
}

pub(crate) fn s3(endpoint: &str, bucket: &str, region: Option<&str>) -> Node {
    let region = region.map(|region| ("region", text(region)));
    let entries = [
        Some(("type", plain("s3"))),
        Some(("endpoint", text(endpoint))),
        Some(("bucket", text(bucket))),
        region,
    ];
    map(entries.into_iter().flatten())
}

pub(crate) fn otlp(endpoint: &str) -> Node {
    map([("type", plain("otlp")), ("endpoint", text(endpoint))])
}

/// A rule of the egress policy.
pub(crate) fn egress_rules(hosts: &[String]) -> Node {
    list(hosts.iter().map(|host| map([("host", text(host))])))
}
