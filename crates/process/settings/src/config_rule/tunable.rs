//! The keys whose values `control.config_changes: tune` lets a client change, and the plain values that each
//! of them takes.
//!
//! A key is in the table only if no value of its kind can show a secret, send a request elsewhere, write
//! somewhere, or take effect away from a rule about access, egress or redaction. These look like limits and
//! are not, so they are missing:
//!
//! - `log.level: trace`, at which libraries log what they send;
//! - the sizes and times of `script` and `transform`, and `gateway.limits.gathered`: a message above them
//!   passes unchanged, and these remedies may be what redacts it;
//! - the size of `fallback`, which decides about the requests that go to another provider;
//! - `mode` of remedies that change messages, choose accounts or providers, or refuse, and `match.sample`,
//!   which switches a whole flow off;
//! - `shares.default`, which decides who may call at all;
//! - sizes of what is recorded, and of what exporters keep, since a smaller one deletes recordings.

use std::fmt::{self, Write};

use egret_config::{Duration, Node, Size, YamlValue};

/// A step from a value of a config to one within it.
#[derive(Clone, Copy)]
pub enum PathStep<'a> {
    /// To the value of a mapping's key.
    Key(&'a str),
    /// To an element of a list, by its number.
    Element(usize, Node<'a>),
}

/// A kind of values that mean only themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainValue {
    Number,
    Duration,
    Size,
    Percentage,
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// The mode of a remedy that only limits, delays or repeats.
const MODE: PlainValue = PlainValue::Word(&["enforce", "report"]);

/// The mode of a remedy that may be switched off. Its owner may have had a reason not to switch it on.
const MODE_OFF: PlainValue = PlainValue::Word(&["report"]);

/// The levels at which only Egret's own lines are logged.
const LEVEL: PlainValue = PlainValue::Word(&["error", "warn", "info", "debug"]);

/// The keys by their paths from the root. `{a,b}` stands for two keys and `*` for every key, `[]` for every
/// element of a list and `[retry]` for those with that key.
pub const TUNABLE: [(PlainValue, &[&str]); 8] = [
    (
        PlainValue::Number,
        &[
            "gateway.dns.entries",
            "gateway.limits.{connections,exchanges,requests_per_connection,fields,informational}",
            "gateway.limits.{dynamic_upstreams,hosts_counted}",
            "providers.*.pool.{connections,idle,streams_per_connection}",
            "quotas.*.{limit,burst,groups_max}",
            "quotas.*.spillover.max",
            "flows[].remedies[].accounts.repeat",
            "flows[].remedies[].accounts.use[].weight",
            "flows[].remedies[].circuit-breaker.{consecutive,ratio,min_calls,probes,successes}",
            "flows[].remedies[].concurrency.max",
            "flows[].remedies[].hedge.percentile",
            "flows[].remedies[].hedge.budget.{ratio,min_per_second}",
            "flows[].remedies[].queue.size",
            "flows[].remedies[].retry.attempts",
            "flows[].remedies[].retry.backoff.factor",
            "flows[].remedies[].retry.budget.{ratio,min_per_second}",
            "flows[].remedies[].trace.sample",
            "flows[].diagnoses[].discovery.endpoints_max",
            "flows[].diagnoses[].metrics.series_max",
        ],
    ),
    (
        PlainValue::Duration,
        &[
            "gateway.dns.{ttl_max,ttl_min,negative_ttl,timeout}",
            "gateway.timeouts.{head,keep_alive,half_close,drain,connect,tls,first_byte,idle,total}",
            "providers.*.pool.idle_timeout",
            "providers.*.timeouts.{connect,tls,first_byte,idle,total}",
            "quotas.*.window",
            "quotas.*.learn.wait_max",
            "flows[].remedies[].accounts.cool_down.{for,max}",
            "flows[].remedies[].accounts.wait_max",
            "flows[].remedies[].cache.{heuristic_max,stale_while_revalidate,stale_if_error}",
            "flows[].remedies[].cache.collapse.max_wait",
            "flows[].remedies[].cache.ttl.*",
            "flows[].remedies[].circuit-breaker.{window,open,open_max,retry_after_min}",
            "flows[].remedies[].hedge.after",
            "flows[].remedies[].provider-throttle.{default_wait,wait_max}",
            "flows[].remedies[].queue.max_wait",
            "flows[].remedies[].queue.priority.ageing",
            "flows[].remedies[].retry.{retry_after_max,per_try,overall}",
            "flows[].remedies[].retry.backoff.{base,max}",
            "flows[].remedies[].timeout.{first_byte,first_event,stall,total}",
            "flows[].diagnoses[].metrics.interval",
        ],
    ),
    (
        PlainValue::Size,
        &[
            "gateway.limits.{start_line,head,body_rate}",
            "flows[].remedies[].accounts.body",
            "flows[].remedies[].cache.{max_entry,memory}",
            "flows[].remedies[].cache.disk.size",
            "flows[].remedies[].retry.body",
        ],
    ),
    (PlainValue::Percentage, &["quotas.*.shares.groups.*"]),
    (PlainValue::Switch, &["gateway.request_ids.enabled"]),
    (LEVEL, &["log.level"]),
    (
        MODE,
        &[
            "flows[].remedies[circuit-breaker].mode",
            "flows[].remedies[concurrency].mode",
            "flows[].remedies[hedge].mode",
            "flows[].remedies[limit].mode",
            "flows[].remedies[provider-throttle].mode",
            "flows[].remedies[queue].mode",
            "flows[].remedies[retry].mode",
            "flows[].remedies[timeout].mode",
        ],
    ),
    (MODE_OFF, &["flows[].remedies[cache].mode"]),
];

/// Returns the values that the key at this path takes. `None` if it is not in the table.
pub fn plain_value(path: &[PathStep<'_>]) -> Option<PlainValue> {
    let is_listed = |keys: &[&str]| keys.iter().any(|key| leads_to(key, path));
    TUNABLE.into_iter().find(|(_, keys)| is_listed(keys)).map(|(plain, _)| plain)
}

/// Returns `true` if a path of the table stands for this one.
pub(super) fn leads_to(listed: &str, path: &[PathStep<'_>]) -> bool {
    let mut steps = path.iter();
    let is_met = listed.split('.').all(|part| {
        let (key, element) = match part.split_once('[') {
            Some((key, element)) => (key, element.strip_suffix(']')),
            None => (part, None),
        };
        matches!(steps.next(), Some(PathStep::Key(name)) if is_one_of(key, name))
            && element.is_none_or(|key| {
                let has_key = |node: &Node<'_>| key.is_empty() || node.get(key).is_some();
                matches!(steps.next(), Some(PathStep::Element(_, node)) if has_key(node))
            })
    });
    is_met && steps.next().is_none()
}

fn is_one_of(keys: &str, name: &str) -> bool {
    match keys.strip_prefix('{').and_then(|keys| keys.strip_suffix('}')) {
        Some(keys) => keys.split(',').any(|key| key == name),
        None => keys == "*" || keys == name,
    }
}

/// Returns a path as messages write it.
pub fn text(path: &[PathStep<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        // Writing to a string cannot fail.
        let _ = match step {
            PathStep::Key(name) if text.is_empty() => write!(text, "{name}"),
            PathStep::Key(name) => write!(text, ".{name}"),
            PathStep::Element(number, _) => write!(text, "[{number}]"),
        };
    }
    text
}

impl PlainValue {
    /// Returns `true` for a value of this kind. None of them has a meaning beyond itself.
    pub fn takes(self, value: &YamlValue) -> bool {
        match (self, value) {
            (Self::Number, YamlValue::Unsigned(_)) | (Self::Switch, YamlValue::Bool(_)) => true,
            (Self::Number, YamlValue::Float(number)) => number.is_finite() && *number >= 0.0,
            (Self::Duration, YamlValue::Text(text)) => text.parse::<Duration>().is_ok(),
            (Self::Size, YamlValue::Text(text)) => text.parse::<Size>().is_ok(),
            (Self::Percentage, YamlValue::Text(text)) => is_percentage(text),
            (Self::Word(words), YamlValue::Text(text)) => words.contains(&text.as_str()),
            _ => false,
        }
    }
}

/// Returns `true` for digits, perhaps a point and more digits, and `%`.
fn is_percentage(text: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_suffix('%').is_some_and(|number| match number.split_once('.') {
        Some((whole, fraction)) => is_number(whole) && is_number(fraction),
        None => is_number(number),
    })
}

impl fmt::Display for PlainValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number => f.write_str("a plain number"),
            Self::Duration => f.write_str("a plain duration like `5s`"),
            Self::Size => f.write_str("a plain size like `64KiB`"),
            Self::Percentage => f.write_str("a plain percentage like `75%`"),
            Self::Switch => f.write_str("`true` or `false`"),
            Self::Word([word]) => write!(f, "`{word}`"),
            Self::Word(words) => write!(f, "one of `{}`", words.join("`, `")),
        }
    }
}
