//! The facts of a preset, as its file has them.

use egret_clock::{Timestamp, retry_after};
use egret_config::Duration;
use serde::{Deserialize, Serialize};

use crate::refusal::{Refusal, RefusalRule};

/// The facts about a provider's API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preset {
    /// Name of the provider, for people.
    pub title: String,
    /// The sources of these facts.
    pub sources: Vec<String>,
    /// Date on which they were read, `YYYY-MM-DD`.
    pub checked: String,
    /// The base URL. `None` if each customer has another one.
    pub url: Option<String>,
    /// A base URL as a customer may have it, if there is none for all.
    pub url_example: Option<String>,
    /// Hosts of the API, with `*` for one or more labels; that of `url` need not be named.
    pub hosts: Vec<String>,
    /// The way in which a request carries the credential.
    pub credential: Option<Credential>,
    /// Timeouts that fit the API.
    pub timeouts: PresetTimeouts,
    /// Fields in which responses state the limits.
    pub limits: Vec<LimitFields>,
    /// Places in which a refusal tells the time to wait, in order of precedence.
    pub wait: Vec<Wait>,
    /// Field by which the provider says itself whether a call should be repeated: `true` or `false`.
    pub should_retry: Option<String>,
    /// Statuses of refusals after which the provider has not acted on the request. It may be sent again
    /// whatever its method.
    pub not_acted: Vec<u16>,
    /// Statuses that time ends, beside those that `retry` repeats anyway.
    pub retry: Vec<u16>,
    /// Refusals that time ends, although others with their status have another meaning. The provider has not
    /// acted on the request.
    pub passing: Vec<RefusalRule>,
    /// Statuses of refusals that all customers see alike. They are no fault of an account.
    pub for_everybody: Vec<u16>,
    /// Refusals that time does not end.
    pub lasting: Vec<RefusalRule>,
    /// Field by which the provider recognises a repeated request.
    pub idempotency_key: Option<String>,
    /// The report of usage, for an API of language models.
    pub usage: Option<UsageFacts>,
    /// Facts that Egret cannot see at this provider.
    pub unseen: Vec<String>,
    /// Actions of the provider's own SDK after a refusal that are not those of Egret, with the reason.
    pub unlike_sdk: Vec<String>,
}

/// The way in which a request carries a credential.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// A token in `Authorization` (RFC 6750).
    Bearer,
    /// A user and a password (RFC 7617), with what they are.
    Basic(String),
    /// A key in this header field.
    Header(String),
    /// A signature of AWS for this service.
    Sigv4(String),
}

/// Timeouts that fit an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PresetTimeouts {
    /// Time until the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Time until the next byte.
    pub idle: Option<Duration>,
}

/// The units of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// Calls.
    Requests,
    /// Tokens of language models.
    Tokens,
}

/// Fields in which responses state a limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LimitFields {
    /// Its units.
    pub counts: Counted,
    /// Field with the units that are left.
    pub remaining: String,
    /// Field with the time at which they come back.
    pub reset: Option<String>,
    /// Form of that time, for people. Egret tells the forms apart by themselves.
    pub form: Option<String>,
    /// Value of `remaining` by which the provider says that it does not know.
    pub unknown: Option<String>,
}

/// A place in which a refusal tells the time to wait.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Wait {
    /// A field with milliseconds.
    Milliseconds(String),
    /// A field with seconds, a date, or another form that tells itself.
    Field(String),
    /// A member of the JSON body: a path with `*` for each element of a list.
    Body(String),
    /// A field that tells it in one kind of refusal only.
    FieldOf {
        /// The field.
        field: String,
        /// The kind.
        refusal: RefusalRule,
    },
    /// No place: one kind of refusal always lasts that long.
    TimeOf {
        /// The time.
        time: Duration,
        /// The kind.
        refusal: RefusalRule,
    },
}

impl Wait {
    /// Returns `true` if the body of a refusal matters.
    fn reads_body(&self) -> bool {
        match self {
            Self::Milliseconds(_) | Self::Field(_) => false,
            Self::Body(_) => true,
            Self::FieldOf { refusal, .. } | Self::TimeOf { refusal, .. } => refusal.reads_body(),
        }
    }
}

/// The report of usage of an API of language models.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UsageFacts {
    /// Names of the forms in which it comes.
    pub dialects: Vec<String>,
    /// When a stream reports it.
    pub streams: String,
    /// `true` if a stream of chat completions reports it only if `stream_options.include_usage` asks.
    #[serde(default)]
    pub asked: bool,
    /// The word for the provider with which names of its models begin in tables of prices.
    pub family: Option<String>,
    /// The provider's name in OpenTelemetry's conventions for generative AI (`gen_ai.provider.name`).
    pub gen_ai: String,
}

/// Longest wait that milliseconds in a field can ask for: 31 days.
const WAIT_MS_MAX: u64 = 31 * 86_400_000;

impl Preset {
    /// The word for the provider with which names of its models begin in tables of prices.
    pub fn family(&self) -> Option<&str> {
        self.usage.as_ref()?.family.as_deref()
    }

    /// The provider's name in OpenTelemetry's conventions for generative AI.
    pub fn gen_ai_name(&self) -> Option<&str> {
        Some(&*self.usage.as_ref()?.gen_ai)
    }

    /// Returns `true` if a stream of chat completions reports usage only if it is asked for.
    pub fn reports_when_asked(&self) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.asked)
    }

    /// Returns `true` if the API is at this host, in lower case.
    pub fn is_at(&self, host: &str) -> bool {
        let own = self.url.as_deref().and_then(|url| url.strip_prefix("https://"));
        let own = own.map(|rest| rest.split('/').next().unwrap_or_default());
        own == Some(host) || self.hosts.iter().any(|pattern| is_like(pattern, host))
    }

    /// Returns `true` if the body of a refusal matters.
    pub fn reads_refusals(&self) -> bool {
        self.wait.iter().any(Wait::reads_body)
            || self.lasting.iter().chain(&self.passing).any(RefusalRule::reads_body)
    }

    /// Returns the time before which the provider wants no further call, as a refusal tells it.
    pub fn requested_wait(&self, refusal: &Refusal<'_>, now: Timestamp) -> Option<Timestamp> {
        let fields = refusal.fields;
        let read = |name: &str| retry_after::read(fields.get(name.as_bytes())?, now);
        self.wait.iter().find_map(|wait| match wait {
            Wait::Milliseconds(name) => {
                let text = std::str::from_utf8(fields.get(name.as_bytes())?).ok()?.trim();
                let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
                let wait_ms: u64 = whole.parse().ok()?;
                Some(now + std::time::Duration::from_millis(wait_ms.min(WAIT_MS_MAX)))
            }
            Wait::Field(name) => read(name),
            Wait::Body(path) => retry_after::read(refusal.text_at(path)?.as_bytes(), now),
            Wait::FieldOf { field, refusal: kind } => kind.holds(refusal).then(|| read(field)).flatten(),
            Wait::TimeOf { time, refusal: kind } => kind.holds(refusal).then(|| now + time.get()),
        })
    }
}

/// Returns `true` if a host is one of a pattern, in which `*` stands for one or more labels.
fn is_like(pattern: &str, host: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == host };
    let middle = host.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    middle.is_some_and(|middle| !middle.is_empty() && !middle.starts_with('.') && !middle.ends_with('.'))
}
