//! `fixed-response`: answers in the provider's place with what the config spells out.

use std::collections::BTreeMap;
use std::task::{Context, Poll};

use egret_http1::{KnownField, is_field_value, is_token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Fixed};
use crate::exchange::Exchange;
use crate::remedy::{Remedy, Site, Step};

/// A response that the config spells out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FixedResponseConfig {
    /// The status, 200 to 599.
    pub status: u16,
    /// Header fields.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

impl Default for FixedResponseConfig {
    fn default() -> Self {
        Self { status: 200, headers: BTreeMap::new(), body: String::new() }
    }
}

/// Answers in the provider's place.
#[derive(Debug)]
pub struct FixedResponse {
    response: Fixed,
}

impl Remedy for FixedResponse {
    type Config = FixedResponseConfig;
    type Held = ();

    fn compile(config: &FixedResponseConfig, site: &mut Site<'_>) -> Option<Self> {
        Self::fixed(config, "", site).map(|response| Self { response })
    }

    fn describe(&self) -> String {
        format!("answers {} without calling the provider", self.response.status)
    }

    fn request(&self, _exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        Poll::Ready(Step::Answer(Box::new(Answer::Fixed(self.response.clone()))))
    }
}

impl FixedResponse {
    /// The response that `config` spells out, whose keys stand in a remedy's config with `at` before them.
    pub(crate) fn fixed(config: &FixedResponseConfig, at: &str, site: &mut Site<'_>) -> Option<Fixed> {
        let before = site.problems.len();
        if !(200..=599).contains(&config.status) {
            site.problem(&format!("{at}status"), "a final response has a status from 200 to 599");
        }
        for (name, value) in &config.headers {
            if let Some(problem) = field_problem(name, value) {
                site.problem(&format!("{at}headers.{name}"), problem);
            }
        }
        let fields = config.headers.iter();
        let fields = fields.map(|(name, value)| (name.clone().into(), value.clone().into_bytes())).collect();
        let response = Fixed { status: config.status, fields, body: config.body.clone().into_bytes() };
        (site.problems.len() == before).then_some(response)
    }
}

/// Why a field cannot be put into a message by a config, if it cannot.
pub(crate) fn field_problem(name: &str, value: &str) -> Option<String> {
    if !is_token(name.as_bytes()) {
        return Some(format!("`{name}` is not a field name: letters, digits and some signs, no spaces"));
    }
    let known = KnownField::of(name.as_bytes());
    if known.is_hop_by_hop() || matches!(known, KnownField::ContentLength | KnownField::Host) {
        return Some(format!("`{name}` says how the message is sent on, which is the gateway's affair"));
    }
    (!is_field_value(value.as_bytes())).then(|| "a field value holds no control characters".to_owned())
}
