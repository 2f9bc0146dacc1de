//! Custom values and labels of `metrics`: their sources in an exchange, as configured and compiled.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use egret_match::expression::{Expression, ExpressionValue, Inputs, Scope, Stage};

use super::{BUCKETS_MAX, MetricsLabel};
use crate::context::CompileContext;
use crate::finished::Finished;

/// Maximum number of custom labels of one diagnosis.
const LABELS_MAX: usize = 8;
/// Maximum length of the name of a value or a label.
const NAME_BYTES_MAX: usize = 64;
/// Labels that Egret, Prometheus or OpenTelemetry set themselves.
const RESERVED_LABELS: [&str; 5] = ["flow", "overflow", "le", "quantile", "otel"];

egret_config::keys! {
    /// Source of a number: exactly one of `header`, `request_header` and `cel`.
    #[derive(Eq)]
    pub struct ValueConfig {
        /// Response field. Exchanges without it are not counted.
        pub header: Option<String>,
        /// Request field. Exchanges without it are not counted.
        pub request_header: Option<String>,
        /// CEL expression that evaluates to a number, such as `response.body.usage.total_tokens`.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub cel: Option<String>,
        /// Help text of the metric.
        pub help: String,
    }
}

egret_config::keys! {
    /// A histogram of a number: exactly one of `header`, `request_header` and `cel`, and its buckets.
    pub struct HistogramConfig {
        /// Response field. Exchanges without it are not counted.
        pub header: Option<String>,
        /// Request field. Exchanges without it are not counted.
        pub request_header: Option<String>,
        /// CEL expression that evaluates to a number, such as `response.body.usage.total_tokens`.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub cel: Option<String>,
        /// Upper bounds of the buckets, in ascending order: 1 to 40 numbers, none of them negative.
        pub buckets: Vec<f64>,
        /// Help text of the metric.
        pub help: String,
    }
}

egret_config::keys! {
    /// Source of a label's value: exactly one of `header`, `request_header` and `cel`. The value is empty if
    /// the exchange does not have the field, if the field is not UTF-8, or if the expression fails.
    #[derive(Eq)]
    pub struct LabelConfig {
        /// Response field.
        pub header: Option<String>,
        /// Request field.
        pub request_header: Option<String>,
        /// CEL expression that evaluates to text, such as `request.body.model`.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub cel: Option<String>,
    }
}

/// A number read from exchanges.
#[derive(Debug)]
pub(super) struct Value {
    pub name: String,
    /// Name of the exported metric.
    pub family: String,
    pub help: String,
    pub source: ValueSource<f64>,
}

/// A label read from exchanges.
#[derive(Debug)]
pub(crate) struct Label {
    pub name: String,
    pub source: ValueSource<String>,
}

/// The place in an exchange that a value is read from.
#[derive(Debug)]
pub(crate) enum ValueSource<T> {
    /// Names of header fields, in lower case.
    ResponseField(Box<[u8]>),
    RequestField(Box<[u8]>),
    Expression(Expression<T>),
}

/// The keys of a source in the config.
struct SourceKeys<'a> {
    header: Option<&'a str>,
    request_header: Option<&'a str>,
    cel: Option<&'a str>,
}

impl<T: ExpressionValue> ValueSource<T> {
    /// Returns `true` if it reads a body.
    pub fn reads_bodies(&self) -> bool {
        match self {
            Self::Expression(expression) => {
                expression.needs_request_body() || expression.needs_response_body()
            }
            Self::ResponseField(_) | Self::RequestField(_) => false,
        }
    }

    /// Returns `true` if it reads the usage that responses report.
    pub fn reads_usage(&self) -> bool {
        matches!(self, Self::Expression(expression) if expression.needs_usage())
    }

    /// Reads the value: `None` if the exchange does not have it, an error if it has another type. `parse`
    /// reads the text of a field.
    fn read(
        &self,
        exchange: &Finished<'_>,
        inputs: &Inputs<'_>,
        parse: impl FnOnce(&[u8]) -> Result<T, ()>,
    ) -> Result<Option<T>, ()> {
        match self {
            Self::ResponseField(name) => exchange.response_field(name).map(parse).transpose(),
            Self::RequestField(name) => exchange.request_field(name).map(parse).transpose(),
            Self::Expression(expression) if expression.needs_response() && exchange.status() == 0 => Ok(None),
            Self::Expression(expression) => expression.evaluate(inputs).map(Some).map_err(|_| ()),
        }
    }

    /// Compiles a source, which is at `at` in this diagnosis.
    fn compile(keys: &SourceKeys<'_>, at: &str, context: &mut CompileContext<'_>) -> Option<Self> {
        let mut field = |key: &str, name: &str| {
            if egret_http1::is_token(name.as_bytes()) {
                return Some(name.to_ascii_lowercase().into_bytes().into_boxed_slice());
            }
            context.problem(&format!("{at}.{key}"), format!("`{name}` is not a valid header field name"));
            None
        };
        match (keys.header, keys.request_header, keys.cel) {
            (Some(name), None, None) => field("header", name).map(Self::ResponseField),
            (None, Some(name), None) => field("request_header", name).map(Self::RequestField),
            (None, None, Some(source)) => {
                expression(source, &format!("{at}.cel"), context).map(Self::Expression)
            }
            _ => {
                context.problem(at, "expected exactly one of `header`, `request_header` and `cel`");
                None
            }
        }
    }
}

/// Compiles an expression over a finished exchange, which is at `at` in this diagnosis.
pub(crate) fn expression<T: ExpressionValue>(
    source: &str,
    at: &str,
    context: &mut CompileContext<'_>,
) -> Option<Expression<T>> {
    let parameters = context.matching.parameters();
    let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
    let scope = Scope { stage: Stage::Finished, parameters: &parameters };
    let path = format!("{}.{at}", context.path);
    Expression::compile(source, scope).map_err(|error| context.problems.push(error.at(path))).ok()
}

impl Value {
    /// Reads the number: `None` if the exchange does not have it, an error if it is not a number.
    pub fn number(&self, exchange: &Finished<'_>, inputs: &Inputs<'_>) -> Result<Option<f64>, ()> {
        self.source.read(exchange, inputs, number)
    }

    /// Like [`number`](Self::number). A negative number is an error: a sum of these must not decrease.
    pub fn positive_number(&self, exchange: &Finished<'_>, inputs: &Inputs<'_>) -> Result<Option<f64>, ()> {
        match self.number(exchange, inputs) {
            Ok(Some(number)) if number < 0.0 => Err(()),
            other => other,
        }
    }
}

impl Label {
    /// Reads the text; it is empty if the exchange does not have it.
    pub fn text(&self, exchange: &Finished<'_>, inputs: &Inputs<'_>) -> Result<String, ()> {
        let parse = |text: &[u8]| String::from_utf8(text.to_vec()).map_err(|_| ());
        Ok(self.source.read(exchange, inputs, parse)?.unwrap_or_default())
    }
}

/// Parses the number in a field. Rejects infinity and NaN, which would stay in a sum for ever.
fn number(text: &[u8]) -> Result<f64, ()> {
    let number: Option<f64> = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    number.filter(|number| number.is_finite()).ok_or(())
}

/// Compiles the values under `key`, whose metrics' names end in `ending`.
pub(super) fn values(
    config: &BTreeMap<String, ValueConfig>,
    key: &str,
    ending: &str,
    context: &mut CompileContext<'_>,
) -> Vec<Value> {
    let compile = |(name, value): (&String, &ValueConfig)| {
        let ValueConfig { header, request_header, cel, help } = value;
        let keys = SourceKeys {
            header: header.as_deref(),
            request_header: request_header.as_deref(),
            cel: cel.as_deref(),
        };
        self::value(name, &keys, help, MetricKind { key, ending }, context)
    };
    config.iter().filter_map(compile).collect()
}

/// Compiles the histograms, each with its bounds.
pub(super) fn histograms(
    config: &BTreeMap<String, HistogramConfig>,
    context: &mut CompileContext<'_>,
) -> Vec<(Value, Arc<[f64]>)> {
    let compile = |(name, value): (&String, &HistogramConfig)| {
        let HistogramConfig { header, request_header, cel, buckets, help } = value;
        let keys = SourceKeys {
            header: header.as_deref(),
            request_header: request_header.as_deref(),
            cel: cel.as_deref(),
        };
        let is_good = (1..=BUCKETS_MAX).contains(&buckets.len())
            && buckets.iter().all(|bound| bound.is_finite() && *bound >= 0.0)
            && buckets.is_sorted_by(|one, next| one < next);
        if !is_good {
            let message =
                format!("must have 1 to {BUCKETS_MAX} bounds in ascending order, none of them negative");
            context.problem(&format!("histograms.{name}.buckets"), message);
        }
        let value = self::value(name, &keys, help, MetricKind { key: "histograms", ending: "" }, context)?;
        Some((value, buckets.as_slice().into()))
    };
    config.iter().filter_map(compile).collect()
}

/// A kind of metric.
#[derive(Debug, Clone, Copy)]
struct MetricKind<'a> {
    /// The key of its metrics in the config.
    key: &'a str,
    /// The end of their names.
    ending: &'a str,
}

fn value(
    name: &str,
    keys: &SourceKeys<'_>,
    help: &str,
    kind: MetricKind<'_>,
    context: &mut CompileContext<'_>,
) -> Option<Value> {
    let MetricKind { key, ending } = kind;
    let at = format!("{key}.{name}");
    if !is_plain_name(name) {
        context.problem(&at, format!("a name has 1 to {NAME_BYTES_MAX} lower-case letters, digits and `_`"));
    } else if name.ends_with("_total") || name == "failures" {
        let message = "this name is reserved: Egret uses `failures`, and appends `_total` to counters";
        context.problem(&at, message);
    }
    let source = ValueSource::compile(keys, &at, context)?;
    let help = if help.is_empty() { format!("Value of {name} in exchanges.") } else { help.to_owned() };
    // A line break would end the HELP line.
    let help = help.replace(|letter: char| letter.is_control() || letter == '\\', " ");
    Some(Value { name: name.to_owned(), family: format!("egret_custom_{name}{ending}"), help, source })
}

/// Compiles the labels under `key`.
pub(crate) fn labels(
    config: &BTreeMap<String, LabelConfig>,
    key: &str,
    context: &mut CompileContext<'_>,
) -> Vec<Label> {
    if config.len() > LABELS_MAX {
        context.problem(key, format!("more than {LABELS_MAX} labels"));
    }
    let compile = |(name, label): (&String, &LabelConfig)| {
        let at = format!("{key}.{name}");
        let own = MetricsLabel::ALL.map(MetricsLabel::word);
        if !is_plain_name(name) || name.starts_with(|first: char| !first.is_ascii_lowercase()) {
            let message = format!(
                "a label has 1 to {NAME_BYTES_MAX} lower-case letters, digits and `_`, and begins with a letter"
            );
            context.problem(&at, message);
        } else if RESERVED_LABELS.contains(&name.as_str()) || own.contains(&name.as_str()) {
            context.problem(&at, "this label is reserved: choose another name");
        }
        let LabelConfig { header, request_header, cel } = label;
        let keys = SourceKeys {
            header: header.as_deref(),
            request_header: request_header.as_deref(),
            cel: cel.as_deref(),
        };
        Some(Label { name: name.clone(), source: ValueSource::compile(&keys, &at, context)? })
    };
    config.iter().filter_map(compile).collect()
}

fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Names of labels, borrowed for those of Egret.
pub(super) type LabelName = Cow<'static, str>;
