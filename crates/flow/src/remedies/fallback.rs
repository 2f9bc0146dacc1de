//! `fallback`: where a call fails in a named way, goes to another provider or path, or answers itself.
//!
//! Each goes elsewhere once, within the flows that the exchange has been found to belong to, so that no two of them can send a call to
//! and fro.

use egret_config::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Local, Reason};
use crate::conditions::{Condition, any_meets};
use crate::exchange::Exchange;
use crate::remedies::fixed_response::{FixedResponseConfig, ResponseTemplate};
use crate::remedies::retry::BODY_BYTES_MAX;
use crate::remedy::{Fault, Needs, Reaction, Remedy, Site};
use crate::template::parts::PathTemplate;

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
    /// The path that is called instead, beginning with `/`. The query stays as it is. A template: `${params.id}` is a parameter of the
    /// flow's path; slashes in values are encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The answer that is given instead. Its templates may look at the response of the failed call: where there was none its status
    /// is 0 and its fields are empty.
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
    Call { provider: Option<(usize, String)>, path: Option<PathTemplate> },
    Response(ResponseTemplate),
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
            To::Response(response) => format!("answers {} itself", response.status()),
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
        let reaction = match &self.to {
            To::Response(response) => {
                response.render(exchange).map(|fixed| Reaction::Answer(Box::new(Answer::Fixed(fixed))))
            }
            To::Call { .. } if !exchange.repeatable => Ok(Reaction::Pass),
            To::Call { provider, path } => {
                *gone = true;
                let provider = provider.as_ref().map(|(number, _)| *number);
                call_instead(provider, path.as_ref(), exchange)
            }
        };
        reaction.unwrap_or_else(Reaction::Fail)
    }
}

/// Has another provider or path called.
fn call_instead(
    provider: Option<usize>,
    path: Option<&PathTemplate>,
    exchange: &mut Exchange<'_>,
) -> Result<Reaction, Fault> {
    if let Some(path) = path {
        exchange.draft.target = Some(target(&path.render(exchange)?, exchange));
    }
    if provider.is_some() {
        exchange.draft.call.provider = provider;
    }
    Ok(Reaction::Repeat(exchange.now))
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
fn target(path: &[u8], exchange: &Exchange<'_>) -> Vec<u8> {
    let query = exchange.request().query.map(|query| [b"?", query].concat()).unwrap_or_default();
    [path, &query].concat()
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
            Some(response) => {
                ResponseTemplate::compile(response, "response.", true, site).map(Self::Response)
            }
            None if elsewhere => {
                let provider = config.provider.as_deref().and_then(|name| provider(name, site));
                let path = config.path.as_deref().and_then(|text| site.path_template("path", text, true));
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        assert_eq!((fixed.status, &*fixed.body), (200, &b"[]"[..]));
        assert_eq!(stage.exchange(GET, "200"), Stand::Response(200));
    }

    fn of_users(fallback: &Value) -> Stage {
        Stage::new(json!({ "flows": [{
            "name": "f", "match": { "path": "/users/{id}" }, "remedies": [{ "fallback": fallback }],
        }]}))
    }

    #[test]
    fn values_in_the_path_stay_segments() {
        let stage = of_users(&json!({ "path": "/people/${params.id}/${response.headers.x-shard}" }));
        let target = |lines: &str| {
            let mut visit = stage.send(lines);
            visit.poll(&stage);
            let stand = visit.response(&stage, "500\nx-shard: 3");
            let target = visit.draft.target.take().map(|target| String::from_utf8(target).unwrap());
            (stand, target)
        };
        let (stand, called) = target("GET https://one.example/users/a%2Fb%3F%20c?d=e");
        assert_eq!(stand, Stand::Repeat(stage.now));
        assert_eq!(called.unwrap(), "/people/a%2Fb%3F%20c/3?d=e");
        // A step up is a failure of the remedy, so that the failed call stays one.
        let (stand, called) = target("GET https://one.example/users/x%2F..%2F..%2Fadmin");
        assert_eq!((stand, called), (Stand::Response(500), None));
    }

    #[test]
    fn an_answer_may_tell_how_the_call_failed() {
        let stage = of_users(&json!({ "response": {
            "headers": { "content-type": "application/json" },
            "body": "{\"id\":\"${params.id}\",\"status\":${response.status}}",
        }}));
        let body = |stand| match stand {
            Stand::Fixed(fixed) => String::from_utf8(fixed.body.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        let get = "GET https://one.example/users/7";
        assert_eq!(body(stage.exchange(get, "502")), r#"{"id":"7","status":502}"#);
        let mut visit = stage.send(get);
        visit.poll(&stage);
        assert_eq!(body(visit.failure(&stage, FailureKind::Connect)), r#"{"id":"7","status":0}"#);
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
