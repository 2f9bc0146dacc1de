//! `fallback`: where a call fails in a named way, goes to another provider or path, or answers itself.
//!
//! Each goes elsewhere once, within the flows that the exchange has been found to belong to, so that no two of them can send a call to
//! and fro.

use egret_config::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Fixed, Local, Reason};
use crate::conditions::{Condition, any_meets};
use crate::exchange::Exchange;
use crate::remedies::fixed_response::{FixedResponse, FixedResponseConfig};
use crate::remedies::retry::BODY_BYTES_MAX;
use crate::remedy::{Needs, Reaction, Remedy, Site};

/// Where calls go that have failed. One of `provider`, `path` and `response` is needed; the first two go together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FallbackConfig {
    /// How a call has to end, answers of remedies further in included: a status of theirs counts as one of the provider.
    pub on: Vec<Condition>,
    /// Refusals of remedies further in that count as well, whatever their status.
    pub on_refused: Vec<Reason>,
    /// The provider that is called instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The path that is called instead, beginning with `/`. The query stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The answer that is given instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<FixedResponseConfig>,
    /// The longest body that is kept so that it can be sent again; requests with longer ones do not go elsewhere.
    pub body: Size,
}

impl Default for FallbackConfig {
    fn default() -> Self {
        Self {
            on: vec![
                Condition::Connect,
                Condition::Timeout,
                Condition::Reset,
                Condition::BadResponse,
                Condition::Status(500, 599),
            ],
            on_refused: vec![Reason::CircuitOpen, Reason::ProviderThrottled],
            provider: None,
            path: None,
            response: None,
            body: Size::from_kib(64),
        }
    }
}

/// Where calls go that have failed.
#[derive(Debug)]
pub struct Fallback {
    on: Vec<Condition>,
    on_refused: Vec<Reason>,
    to: To,
    replay: usize,
}

#[derive(Debug)]
enum To {
    Call { provider: Option<(usize, String)>, path: Option<String> },
    Response(Fixed),
}

/// What is kept of one exchange: whether it has gone elsewhere.
pub type Held = bool;

impl Remedy for Fallback {
    type Config = FallbackConfig;
    type Held = Held;

    fn compile(config: &FallbackConfig, site: &mut Site<'_>) -> Option<Self> {
        let before = site.problems.len();
        if config.on.is_empty() && config.on_refused.is_empty() {
            site.problem("on", "with no way to end, no call ever goes elsewhere: name one, like `5xx`");
        }
        if config.body.bytes() > BODY_BYTES_MAX {
            site.problem("body", "at most `16MiB`: it is kept in memory for each exchange");
        }
        let to = To::compile(config, site);
        if site.problems.len() > before {
            return None;
        }
        let replay = usize::try_from(config.body.bytes()).unwrap_or(usize::MAX);
        Some(Self { on: config.on.clone(), on_refused: config.on_refused.clone(), to: to?, replay })
    }

    fn describe(&self) -> String {
        let on: Vec<String> = self.on.iter().map(ToString::to_string).collect();
        let to = match &self.to {
            To::Call { provider: Some((_, name)), .. } => format!("calls {name} instead"),
            To::Call { provider: None, .. } => "calls another path instead".to_owned(),
            To::Response(fixed) => format!("answers {} itself", fixed.status),
        };
        format!("where a call ends with {}, {to}", on.join(", "))
    }

    fn needs(&self) -> Needs {
        let replay = if matches!(self.to, To::Call { .. }) { self.replay } else { 0 };
        Needs { replay, ..Needs::default() }
    }

    fn response(&self, exchange: &mut Exchange<'_>, gone: &mut Held) -> Reaction {
        if *gone || !self.is_meant(exchange) {
            return Reaction::Pass;
        }
        match &self.to {
            To::Response(fixed) => Reaction::Answer(Box::new(Answer::Fixed(fixed.clone()))),
            To::Call { .. } if !exchange.repeatable => Reaction::Pass,
            To::Call { provider, path } => {
                *gone = true;
                if let Some(path) = path {
                    exchange.draft.target = Some(target(path, exchange));
                }
                if let Some((number, _)) = provider {
                    exchange.draft.call.provider = Some(*number);
                }
                Reaction::Repeat(exchange.now)
            }
        }
    }
}

impl Fallback {
    fn is_meant(&self, exchange: &Exchange<'_>) -> bool {
        let refused = match exchange.answered {
            Some(Local::Refused(reason)) => self.on_refused.contains(&reason),
            Some(Local::Fixed) | None => false,
        };
        refused || any_meets(&self.on, exchange)
    }
}

/// The path and query that are called, with the path replaced.
fn target(path: &str, exchange: &Exchange<'_>) -> Vec<u8> {
    let query = exchange.request().query.map(|query| [b"?", query].concat()).unwrap_or_default();
    [path.as_bytes(), &query].concat()
}

impl To {
    fn compile(config: &FallbackConfig, site: &mut Site<'_>) -> Option<Self> {
        let elsewhere = config.provider.is_some() || config.path.is_some();
        match &config.response {
            Some(_) if elsewhere => {
                site.problem(
                    "response",
                    "an answer and another call exclude each other: give each an entry of its own",
                );
                None
            }
            Some(response) => FixedResponse::fixed(response, "response.", site).map(Self::Response),
            None if elsewhere => {
                let provider = config.provider.as_deref().and_then(|name| provider(name, site));
                let path = config.path.as_deref().and_then(|text| path(text, site));
                Some(Self::Call { provider, path })
            }
            None => {
                site.problem("provider", "one of `provider`, `path` and `response` is needed");
                None
            }
        }
    }
}

/// The number of the provider that is called instead.
fn provider(name: &str, site: &mut Site<'_>) -> Option<(usize, String)> {
    let Some(number) = site.providers.iter().position(|other| *other == name) else {
        site.dangling("provider", name, "provider");
        return None;
    };
    let from = &site.matching.provider;
    if !from.is_empty() && from.iter().all(|other| other == name) {
        site.problem("provider", format!("the flow is for `{name}` alone, which is the one that fails then"));
        return None;
    }
    Some((number, name.to_owned()))
}

/// The path that is called instead.
fn path(path: &str, site: &mut Site<'_>) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'"' | b'<' | b'>');
    if !path.starts_with('/') || !path.bytes().all(is_plain) {
        site.problem(
            "path",
            "begins with `/` and has no query; what is no letter, digit or sign is percent-encoded",
        );
        return None;
    }
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::exchange::FailureKind;
    use crate::fixture::{Stage, Stand, problems};

    const GET: &str = "GET https://one.example/a?b=c";

    #[test]
    fn a_failed_call_goes_elsewhere_once() {
        let stage = Stage::with(&json!([{ "fallback": { "provider": "two", "path": "/other" } }]));
        assert_eq!(stage.exchange(GET, "404"), Stand::Response(404));
        let mut visit = stage.send(GET);
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.draft.call.provider, None);
        assert_eq!(visit.failure(&stage, FailureKind::Connect), Stand::Repeat(stage.now));
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.draft.call.provider, Some(1));
        assert_eq!(visit.draft.target.as_deref(), Some(&b"/other?b=c"[..]));
        assert_eq!(visit.response(&stage, "500"), Stand::Response(500));
    }

    #[test]
    fn what_cannot_be_sent_again_stays_failed() {
        let stage = Stage::with(&json!([{ "fallback": { "provider": "two" } }]));
        let mut visit = stage.send(GET);
        visit.repeatable = false;
        visit.poll(&stage);
        assert_eq!(visit.response(&stage, "503"), Stand::Response(503));
    }

    #[test]
    fn an_open_circuit_further_in_goes_elsewhere_where_the_circuit_is_another_one() {
        let stage = Stage::with(&json!([
            { "fallback": { "provider": "two", "on": [] } },
            { "circuit-breaker": { "consecutive": 1 } },
        ]));
        assert_eq!(stage.exchange(GET, "500"), Stand::Response(500));
        let mut visit = stage.send(GET);
        assert_eq!(visit.poll(&stage), Stand::Repeat(stage.now));
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.draft.call.provider, Some(1));
        assert_eq!(visit.response(&stage, "200"), Stand::Response(200));
    }

    #[test]
    fn a_fixed_answer_takes_the_place_of_a_failure() {
        let stage = Stage::with(&json!([{ "fallback": { "response": { "status": 200, "body": "[]" } } }]));
        let Stand::Fixed(fixed) = stage.exchange(GET, "502") else { panic!() };
        assert_eq!((fixed.status, fixed.body), (200, b"[]".to_vec()));
        assert_eq!(stage.exchange(GET, "200"), Stand::Response(200));
    }

    #[test]
    fn nonsense_is_refused() {
        let found = problems(&json!([
            { "fallback": {} },
            { "fallback": { "provider": "too", "path": "no" } },
            { "fallback": { "path": "/x", "response": {} } },
            { "fallback": { "response": { "status": 42 } } },
        ]));
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found[4].starts_with("flows[0].remedies[3].fallback.response.status"), "{found:?}");
    }
}
