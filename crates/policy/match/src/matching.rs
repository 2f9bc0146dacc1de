//! Match of a flow: the `match:` key, compiled into predicates that are checked in order.
//!
//! [`Router`](crate::router::Router) finds the matching flows without checking each of them. This module
//! defines the meaning of a match.

mod any_of;
mod cover;
pub(crate) mod host;
pub(crate) mod path;
mod sample;
mod text;

use std::collections::BTreeMap;

use egret_clock::Timestamp;
use egret_config::Problem;
use egret_http1::{Method, is_token};
use egret_message::Request;
use egret_message::grpc::GrpcMethod;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::{EvaluationError, Expression, Inputs, Scope, Stage};
use crate::form::{is_same_decoded, with_decoded};
use crate::parameters::Parameters;

pub use any_of::AnyOf;
pub use host::{HostLabels, HostPattern, HostPatternError, bare};
pub use sample::Percent;

pub use path::decode;
pub use path::{PathPattern, PathPatternError, PathSegments, Readings, SegmentError, SegmentPattern};
use sample::SampledShare;
use text::TextPattern;

egret_config::keys! {
    /// The exchanges that a flow applies to. All given keys must match; a flow without any key matches every
    /// exchange. A list matches if one of its entries does.
    pub struct MatchConfig {
        /// Providers, by their names under `providers`. `-` matches every host that does not belong to a
        /// configured provider.
        #[serde(skip_serializing_if = "is_empty")]
        #[schemars(extend("x-tier" = "everyday"))]
        pub provider: AnyOf,
        /// Target hosts, without port: `api.example.com`, or `*.example.com` for every name below it. In
        /// `{tenant}.example.com` the parameter matches any one label. `regex:` introduces a regular
        /// expression for the whole host, whatever its case.
        #[serde(skip_serializing_if = "is_empty")]
        pub host: AnyOf,
        /// Paths, relative to the provider's URL. A segment is a literal, or a `{parameter}` or `*`, which
        /// match any one segment. A trailing `/*` matches any remainder of the path, including none. `regex:`
        /// introduces a regular expression for the whole path, whose named groups are parameters.
        /// Percent-encoding is decoded before the comparison; repeated and trailing slashes are ignored. A
        /// path that providers may read in several ways (`..`, `%2F`, `;x=1`) matches if one of the readings
        /// does.
        #[serde(skip_serializing_if = "is_empty")]
        #[schemars(extend("x-tier" = "everyday"))]
        pub path: AnyOf,
        /// Methods, case-sensitive. Default: all, including HEAD and OPTIONS.
        #[serde(skip_serializing_if = "is_empty")]
        #[schemars(extend("x-tier" = "everyday"))]
        pub method: AnyOf,
        /// gRPC calls: requests with the content type `application/grpc` or `application/grpc+...`. `{}`
        /// matches all of them.
        pub grpc: Option<GrpcMatchConfig>,
        /// Query parameters and their values, both compared after decoding. `*` matches any text, so `*`
        /// alone requires the parameter to be present; `\*` matches a star. `regex:` introduces a regular
        /// expression for the whole value. If a parameter is repeated, one of its values must match.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub query: BTreeMap<String, AnyOf>,
        /// Header fields and their values, with patterns as under `query`. Names are case-insensitive, values
        /// are case-sensitive.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub header: BTreeMap<String, AnyOf>,
        /// Consumers, by the value of `x-egret-consumer`, with patterns as under `query`.
        #[serde(skip_serializing_if = "is_empty")]
        pub consumer: AnyOf,
        /// Percentage of exchanges that the flow applies to, drawn at random once for each exchange.
        #[serde(skip_serializing_if = "is_all")]
        pub sample: Percent,
        /// A CEL expression that must be true, like `int(request.query.limit) > 100`. It can use `request`
        /// (`method`, `path`, `host`, `provider`, `scheme`, `consumer`, `headers`, `query`, `params`,
        /// `body`), `grpc` (`service`, `method`) and `now`. If it uses `request.body`, the body is buffered
        /// first. If its evaluation fails, the flow does not match and the failure is counted.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub when: Option<String>,
    }
}

/// The gRPC calls that a flow applies to. All given keys must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcMatchConfig {
    /// Services with their packages, like `helloworld.Greeter` or `helloworld.*`, with patterns as under
    /// `query`.
    #[serde(skip_serializing_if = "is_empty")]
    pub service: AnyOf,
    /// Methods of these services, like `SayHello`, with patterns as under `query`. They are case-sensitive.
    #[serde(skip_serializing_if = "is_empty")]
    pub method: AnyOf,
}

fn is_empty(any: &AnyOf) -> bool {
    any.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_all(share: &Percent) -> bool {
    share.is_all()
}

impl MatchConfig {
    /// Returns the names of the parameters that any of its hosts and paths captures. A parameter that the
    /// matching host and path do not have is empty. Invalid patterns are skipped, because compiling the match
    /// reports them.
    pub fn parameters(&self) -> Vec<String> {
        let hosts = self.host.iter().filter_map(|text| HostPattern::parse(text).ok());
        let paths = self.path.iter().filter_map(|text| PathPattern::parse(text).ok());
        let mut names = Vec::new();
        for host in hosts {
            names.extend(host.labels().into_iter().flat_map(HostLabels::names).map(str::to_owned));
        }
        for path in paths {
            names.extend(path.names().map(str::to_owned));
        }
        names
    }
}

/// The input of a match.
#[derive(Debug, Clone, Copy)]
pub struct MatchInput<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// Random number of the exchange. It is the same for every question about the exchange.
    pub roll: u64,
    /// The current time.
    pub now: Timestamp,
    /// `true` if the whole body is present. If it is not, flows whose `when` reads the body stay undecided.
    pub has_body: bool,
}

/// The first predicate that does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch<'a> {
    /// `provider`
    Provider,
    /// `host`
    Host,
    /// `path`
    Path,
    /// `method`
    Method,
    /// `grpc`
    Grpc,
    /// `query`: the parameter with this name.
    Query(&'a str),
    /// `header`: the field with this name.
    Header(&'a str),
    /// `consumer`
    Consumer,
    /// `sample`
    Sample,
    /// `when` is false.
    When,
    /// The evaluation of `when` failed.
    Failed(EvaluationError),
    /// `when` reads a body that is not present yet.
    Undecided,
}

impl Mismatch<'_> {
    /// Explains to a person why a flow with `config` does not match `request`.
    pub fn in_words(self, config: &MatchConfig, request: &Request<'_>) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Provider => {
                format!("its provider is `{}`, not {}", request.provider, list(&config.provider))
            }
            Self::Host => format!("its host is `{}`, not {}", request.host, list(&config.host)),
            Self::Path => format!("its path `{}` does not match {}", text(request.path), list(&config.path)),
            Self::Method => format!("its method is {}, not {}", text(request.method), list(&config.method)),
            Self::Grpc => grpc_in_words(config, request),
            Self::Query(name) => {
                let wanted = config.query.get(name).map(list).unwrap_or_default();
                format!("no query parameter `{name}` has the value {wanted}")
            }
            Self::Header(name) => {
                let wanted = config.header.get(name).map(list).unwrap_or_default();
                format!("no header field `{name}` has the value {wanted}")
            }
            Self::Consumer => match request.consumer() {
                Some(consumer) => {
                    format!("its consumer is `{}`, not {}", text(consumer), list(&config.consumer))
                }
                None => format!("it names no consumer, expected {}", list(&config.consumer)),
            },
            Self::Sample => format!("it is not among the sampled {} %", config.sample.get()),
            Self::When => format!("`{}` is false", config.when.as_deref().unwrap_or_default()),
            Self::Failed(error) => {
                format!("`{}` fails: {error}", config.when.as_deref().unwrap_or_default())
            }
            Self::Undecided => "`when` reads the body, which is not available".to_owned(),
        }
    }
}

/// Explains why a request is no gRPC call that `config` matches.
fn grpc_in_words(config: &MatchConfig, request: &Request<'_>) -> String {
    let Some(GrpcMethod { service, method }) = request.grpc() else {
        return "it is no gRPC call: its content type is not `application/grpc`".to_owned();
    };
    let wanted = config.grpc.clone().unwrap_or_default();
    let part = |name: &str, wanted: &AnyOf| {
        if wanted.is_empty() { String::new() } else { format!("{name} {}", list(wanted)) }
    };
    let parts = [part("the service", &wanted.service), part("the method", &wanted.method)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("its gRPC method is `{service}/{method}`, expected {}", parts.join(" and "))
}

/// Formats the alternatives for a sentence.
fn list(alternatives: &AnyOf) -> String {
    const SHOWN_MAX: usize = 5;
    let mut words: Vec<String> =
        alternatives.iter().take(SHOWN_MAX).map(|word| format!("`{word}`")).collect();
    if alternatives.len() > SHOWN_MAX {
        words.push(format!("{} more", alternatives.len() - SHOWN_MAX));
    }
    match words.split_last() {
        Some((last, front)) if !front.is_empty() => format!("{} or {last}", front.join(", ")),
        _ => words.concat(),
    }
}

/// A compiled [`MatchConfig`].
#[derive(Debug)]
pub(crate) struct Matcher {
    pub providers: Box<[Box<str>]>,
    pub hosts: Box<[HostPattern]>,
    pub paths: Box<[PathPattern]>,
    /// `true` if a host has a parameter.
    pub captures_host: bool,
    /// `true` if the host must be checked although the router has found the flow.
    pub rechecks_host: bool,
    methods: Option<Methods>,
    grpc: Option<GrpcPatterns>,
    query: Box<[NamedPatterns]>,
    headers: Box<[NamedPatterns]>,
    consumers: Box<[TextPattern]>,
    sample: Option<SampledShare>,
    when: Option<Expression<bool>>,
}

/// A name, and the patterns of which one must match its value.
#[derive(Debug)]
struct NamedPatterns {
    name: Box<str>,
    values: Box<[TextPattern]>,
}

/// The patterns of gRPC calls. Empty ones match all.
#[derive(Debug)]
struct GrpcPatterns {
    services: Box<[TextPattern]>,
    methods: Box<[TextPattern]>,
}

impl GrpcPatterns {
    fn compile(config: &GrpcMatchConfig, at: &str, problems: &mut Vec<Problem>) -> Self {
        Self {
            services: each(&config.service, &format!("{at}.service"), problems, TextPattern::parse),
            methods: each(&config.method, &format!("{at}.method"), problems, TextPattern::parse),
        }
    }

    fn fits(&self, request: &Request<'_>) -> bool {
        let Some(GrpcMethod { service, method }) = request.grpc() else { return false };
        let fits = |patterns: &[TextPattern], text: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text.as_bytes()))
        };
        fits(&self.services, service) && fits(&self.methods, method)
    }
}

/// A set of methods.
#[derive(Debug, Default)]
struct Methods {
    /// Bit set of the methods that [`Method`] has a variant for.
    known: u16,
    others: Vec<Box<[u8]>>,
}

impl Methods {
    fn contains(&self, name: &[u8]) -> bool {
        match Method::of(name) {
            Method::Other => self.others.iter().any(|other| **other == *name),
            method => self.known & 1 << method.index() != 0,
        }
    }
}

impl Matcher {
    /// Compiles the match of the flow `name`; `at` is its path in the config.
    pub fn compile(config: &MatchConfig, name: &str, at: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let hosts = each(&config.host, &format!("{at}.host"), &mut problems, HostPattern::parse);
        let paths = each(&config.path, &format!("{at}.path"), &mut problems, PathPattern::parse);
        problems.extend(parameter_of_both(&hosts, &paths, at));
        let captures_host = hosts.iter().any(|host| host.labels().is_some());
        let rechecks_host = captures_host || !config.provider.is_empty() && !hosts.is_empty();
        let when = config.when.as_deref().and_then(|source| {
            let parameters = config.parameters();
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            let scope = Scope { stage: Stage::Request, parameters: &parameters };
            let compiled = Expression::compile(source, scope);
            compiled.map_err(|error| problems.push(error.at(format!("{at}.when")))).ok()
        });
        let matcher = Self {
            providers: config.provider.iter().map(|name| name.as_str().into()).collect(),
            hosts,
            paths,
            captures_host,
            rechecks_host,
            methods: methods(&config.method, &format!("{at}.method"), &mut problems),
            grpc: config
                .grpc
                .as_ref()
                .map(|grpc| GrpcPatterns::compile(grpc, &format!("{at}.grpc"), &mut problems)),
            query: named(&config.query, &format!("{at}.query"), &mut problems, |_| None),
            headers: named(&config.header, &format!("{at}.header"), &mut problems, field_name_problem),
            consumers: each(&config.consumer, &format!("{at}.consumer"), &mut problems, TextPattern::parse),
            sample: (!config.sample.is_all()).then(|| SampledShare::new(config.sample, name)),
            when,
        };
        if problems.is_empty() { Ok(matcher) } else { Err(problems) }
    }

    /// Returns the first predicate that does not match, in the order of the config reference. `readings` are
    /// those of the request's path.
    pub fn mismatch(&self, question: MatchInput<'_>, readings: &Readings) -> Option<Mismatch<'_>> {
        let request = question.request;
        if !self.providers.is_empty() && !self.providers.iter().any(|name| **name == *request.provider) {
            return Some(Mismatch::Provider);
        }
        if !self.has_host(request) {
            return Some(Mismatch::Host);
        }
        let capture = self.capture(readings);
        if !self.paths.is_empty() && capture.is_none() {
            return Some(Mismatch::Path);
        }
        let (pattern, reading) = capture.unwrap_or_default();
        self.mismatch_of_rest(question, || self.parameters(pattern, reading, readings, request.host))
    }

    /// Returns the parameters of a request to `host` whose path matches that pattern in that reading.
    pub fn parameters<'a>(
        &'a self,
        pattern: usize,
        reading: usize,
        readings: &'a Readings,
        host: &'a str,
    ) -> Parameters<'a> {
        let parameters = Parameters::of(self.paths.get(pattern), reading, readings);
        if self.captures_host { parameters.with_host(&self.hosts, host) } else { parameters }
    }

    /// Returns the numbers of the first pattern that matches and of the first reading that it matches.
    pub fn capture(&self, readings: &Readings) -> Option<(usize, usize)> {
        let fits =
            |pattern: &PathPattern| (0..readings.count()).find(|reading| pattern.matches(*reading, readings));
        self.paths.iter().enumerate().find_map(|(at, pattern)| Some((at, fits(pattern)?)))
    }

    /// Returns `true` if the host matches or the flow names no host.
    pub fn has_host(&self, request: &Request<'_>) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(bare(request.host)))
    }

    /// Returns the first predicate that does not match, among those that the router does not index.
    /// `parameters` returns those of the request.
    pub fn mismatch_of_rest<'a>(
        &self,
        question: MatchInput<'_>,
        parameters: impl FnOnce() -> Parameters<'a>,
    ) -> Option<Mismatch<'_>> {
        let request = question.request;
        if self.methods.as_ref().is_some_and(|methods| !methods.contains(request.method)) {
            return Some(Mismatch::Method);
        }
        if self.grpc.as_ref().is_some_and(|grpc| !grpc.fits(request)) {
            return Some(Mismatch::Grpc);
        }
        if let Some(named) = self.query.iter().find(|named| !named.fits_query(request)) {
            return Some(Mismatch::Query(&named.name));
        }
        if let Some(named) = self.headers.iter().find(|named| !named.fits_header(request)) {
            return Some(Mismatch::Header(&named.name));
        }
        let fits_consumer = |consumer: &[u8]| self.consumers.iter().any(|pattern| pattern.matches(consumer));
        if !self.consumers.is_empty() && !request.consumer().is_some_and(fits_consumer) {
            return Some(Mismatch::Consumer);
        }
        if self.sample.is_some_and(|sample| !sample.takes(question.roll)) {
            return Some(Mismatch::Sample);
        }
        self.when.as_ref().and_then(|when| mismatch_of_when(when, question, parameters()))
    }

    /// Number of its patterns that the router asks one after the other.
    pub fn unindexed(&self) -> usize {
        let hosts = self.hosts.iter().filter(|host| match host {
            HostPattern::Exactly(_) | HostPattern::Below(_) => false,
            HostPattern::Labels(labels) => labels.tail().is_empty(),
            HostPattern::Regex(_) => true,
        });
        let paths = self.paths.iter().filter(|path| path.regex().is_some());
        let named = self.query.iter().chain(&self.headers).flat_map(|named| &named.values);
        let grpc = self.grpc.iter().flat_map(|grpc| grpc.services.iter().chain(&grpc.methods));
        let values = named.chain(&self.consumers).chain(grpc).filter(|value| value.is_regex());
        hosts.count() + paths.count() + values.count()
    }

    /// Returns `true` if `when` reads the body.
    pub fn reads_body(&self) -> bool {
        self.when.as_ref().is_some_and(Expression::needs_request_body)
    }
}

/// Returns a problem if a parameter is in a host and in a path: only one of them could have its value.
fn parameter_of_both(hosts: &[HostPattern], paths: &[PathPattern], at: &str) -> Option<Problem> {
    let mut of_hosts = hosts.iter().filter_map(HostPattern::labels).flat_map(HostLabels::names);
    let twice = of_hosts.find(|name| paths.iter().any(|path| path.names().any(|other| other == *name)))?;
    let message = format!("the parameter `{twice}` is in a host and in a path: rename one of them");
    Some(Problem::new(format!("{at}.path"), message))
}

fn mismatch_of_when(
    when: &Expression<bool>,
    question: MatchInput<'_>,
    parameters: Parameters<'_>,
) -> Option<Mismatch<'static>> {
    if when.needs_request_body() && !question.has_body {
        return Some(Mismatch::Undecided);
    }
    let MatchInput { request, now, .. } = question;
    match when.evaluate(&Inputs {
        request,
        response: None,
        parameters,
        attempt: 1,
        now,
        usage: None,
        ended: None,
    }) {
        Ok(true) => None,
        Ok(false) => Some(Mismatch::When),
        Err(error) => Some(Mismatch::Failed(error)),
    }
}

impl NamedPatterns {
    fn fits_header(&self, request: &Request<'_>) -> bool {
        request.fields.all(self.name.as_bytes()).any(|value| self.fits(value))
    }

    fn fits_query(&self, request: &Request<'_>) -> bool {
        request.parameters().any(|(name, value)| {
            is_same_decoded(name, self.name.as_bytes()) && with_decoded(value, |value| self.fits(value))
        })
    }

    fn fits(&self, value: &[u8]) -> bool {
        self.values.iter().any(|pattern| pattern.matches(value))
    }
}

/// Parses each alternative. A parse error becomes a problem at the alternative's path.
fn each<T, E: std::error::Error>(
    texts: &AnyOf,
    at: &str,
    problems: &mut Vec<Problem>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Box<[T]> {
    let mut parsed = Vec::with_capacity(texts.len());
    for (number, text) in texts.iter().enumerate() {
        match parse(text) {
            Ok(value) => parsed.push(value),
            Err(error) => {
                problems.push(Problem::new(path_of_entry(texts, at, number), error.to_string()));
            }
        }
    }
    parsed.into()
}

/// Returns the path of an alternative. A single alternative may be written without a list.
pub fn path_of_entry(texts: &AnyOf, at: &str, number: usize) -> String {
    if texts.len() == 1 { at.to_owned() } else { format!("{at}[{number}]") }
}

fn named(
    config: &BTreeMap<String, AnyOf>,
    at: &str,
    problems: &mut Vec<Problem>,
    name_problem: impl Fn(&str) -> Option<String>,
) -> Box<[NamedPatterns]> {
    let mut compiled = Vec::with_capacity(config.len());
    for (name, values) in config {
        let at = format!("{at}.{name}");
        if let Some(message) = name_problem(name) {
            problems.push(Problem::new(at.clone(), message));
        }
        compiled.push(NamedPatterns {
            name: name.as_str().into(),
            values: each(values, &at, problems, TextPattern::parse),
        });
    }
    compiled.into()
}

fn methods(config: &AnyOf, at: &str, problems: &mut Vec<Problem>) -> Option<Methods> {
    let mut methods = Methods::default();
    for (number, name) in config.iter().enumerate() {
        let upper = name.to_ascii_uppercase();
        match (Method::of(name.as_bytes()), Method::of(upper.as_bytes())) {
            (Method::Other, Method::Other) if is_token(name.as_bytes()) => {
                methods.others.push(name.as_bytes().into());
            }
            (Method::Other, Method::Other) => {
                let message =
                    format!("`{name}` is not a method: a method is letters, digits and `-`, like `GET`");
                problems.push(Problem::new(path_of_entry(config, at, number), message));
            }
            (Method::Other, meant) => {
                let message = format!("methods are case-sensitive: `{name}` is not {}", meant.name());
                problems.push(
                    Problem::new(path_of_entry(config, at, number), message).suggest(name, [meant.name()]),
                );
            }
            (method, _) => methods.known |= 1 << method.index(),
        }
    }
    (!config.is_empty()).then_some(methods)
}

fn field_name_problem(name: &str) -> Option<String> {
    (!is_token(name.as_bytes())).then(|| format!("`{name}` is not a valid header field name"))
}

#[cfg(test)]
mod tests;
