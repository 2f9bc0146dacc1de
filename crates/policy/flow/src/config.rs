//! Config keys of flows.

use std::collections::HashMap;

use egret_config::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use egret_diagnosis::{DiagnosedFlow, DiagnosisConfig, ResponseCondition};
use egret_match::matching::{HostPattern, MatchConfig, path_of_entry};
use egret_match::router::MatchRule;
use egret_message::{KnownProvider, KnownProviders, OTHER_HOSTS};
use egret_remedy::RemedyConfig;

/// Remedies and diagnoses for the exchanges that match.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowConfig {
    /// Name of the flow in logs and metrics. It must be unique.
    #[schemars(extend("x-tier" = "everyday"))]
    pub name: String,
    /// Exchanges that the flow applies to. Default: all.
    #[serde(rename = "match", default)]
    #[schemars(extend("x-tier" = "everyday"))]
    pub matching: MatchConfig,
    /// A CEL expression about the response. The flow's diagnoses see only exchanges for which it is true, and
    /// its `transform` changes only such responses; no other remedy can be in such a flow. It can use
    /// `request`, `now` and `attempt`, and of `response` the `status` (0 if the client received none),
    /// `headers`, `body` (JSON of up to 64 KiB), `duration_ms`, `provider_ms`, `error` and `generated`, and
    /// `grpc.status`; with `transform`, only `status` and `headers`. If its evaluation fails, it counts as
    /// false and the failure is counted.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "egret_config::verbatim")]
    pub when_response: Option<String>,
    /// Remedies, outermost first: the first one sees the request first and the response last.
    #[serde(default)]
    #[schemars(extend("x-tier" = "everyday"))]
    pub remedies: Vec<RemedyConfig>,
    /// Diagnoses of finished exchanges. They cannot change an exchange.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-tier" = "everyday"))]
    pub diagnoses: Vec<DiagnosisConfig>,
}

impl FlowConfig {
    /// Returns `true` if it needs the key of the pseudonyms.
    pub fn needs_key(&self) -> bool {
        !self.diagnoses.is_empty() || self.remedies.iter().any(RemedyConfig::needs_key)
    }

    /// Returns the flow with its diagnoses alone, and its compiled `condition`.
    pub(crate) fn diagnosed<'a>(&'a self, condition: Option<&'a ResponseCondition>) -> DiagnosedFlow<'a> {
        let Self { name, matching, diagnoses, .. } = self;
        DiagnosedFlow { name, matching, diagnoses, condition }
    }
}

/// Returns the matches of `flows`, for the router.
pub fn match_rules(flows: &[FlowConfig]) -> Vec<MatchRule<'_>> {
    flows.iter().map(|flow| MatchRule { name: &flow.name, matching: &flow.matching }).collect()
}

/// Maximum length of a flow's name.
const NAME_BYTES_MAX: usize = 64;

/// Maximum number of flows in a config.
const FLOWS_MAX: usize = 10_000;

/// Maximum number of scripts in a config. Each takes milliseconds to start, and memory in every worker.
const SCRIPTS_MAX: usize = 64;

/// Returns the problem that there are too many flows or scripts to compile.
pub(crate) fn too_many(flows: &[FlowConfig]) -> Option<Problem> {
    if flows.len() > FLOWS_MAX {
        return Some(Problem::new("flows", format!("more than {FLOWS_MAX} flows")));
    }
    let mut scripts = flows.iter().enumerate().flat_map(|(flow, config)| {
        let remedies = config.remedies.iter().enumerate().filter(|(_, remedy)| remedy.script.is_some());
        remedies.map(move |(number, _)| format!("flows[{flow}].remedies[{number}].script"))
    });
    let place = scripts.nth(SCRIPTS_MAX)?;
    Some(Problem::new(place, format!("all flows together have more than {SCRIPTS_MAX} scripts")))
}

/// Returns the problems in `flows` that neither parsing nor the router finds.
pub fn problems(flows: &[FlowConfig], providers: &[KnownProvider<'_>]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut names = HashMap::new();
    let providers = KnownProviders::new(providers);
    for (number, flow) in flows.iter().enumerate() {
        let at = format!("flows[{number}]");
        check_name(&flow.name, &format!("{at}.name"), &mut problems);
        if let Some(first) = names.insert(flow.name.as_str(), number) {
            let message = format!("the name `{}` is already used by `flows[{first}]`", flow.name);
            problems.push(Problem::new(format!("{at}.name"), message));
        }
        check_providers(&flow.matching, &format!("{at}.match"), &providers, &mut problems);
    }
    problems
}

/// Checks a flow's name. It is a metrics label and part of a header field, so only plain characters are
/// allowed.
fn check_name(name: &str, at: &str, problems: &mut Vec<Problem>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let message = format!("a flow's name is 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`");
        problems.push(Problem::new(at, message));
    }
}

/// Checks that the named providers exist. If the match also names hosts, at least one of the providers must
/// be on one of them.
fn check_providers(
    config: &MatchConfig,
    at: &str,
    providers: &KnownProviders<'_>,
    problems: &mut Vec<Problem>,
) {
    let hosts: Vec<HostPattern> =
        config.host.iter().filter_map(|host| HostPattern::parse(host).ok()).collect();
    let mut may_meet = false;
    for (number, name) in config.provider.iter().enumerate() {
        if name == OTHER_HOSTS {
            may_meet = true;
            continue;
        }
        let Some(provider) = providers.get(name) else {
            let at = path_of_entry(&config.provider, &format!("{at}.provider"), number);
            problems.push(Problem::unknown_name(at, "provider", name, providers.names()));
            may_meet = true;
            continue;
        };
        may_meet |= provider.host.is_none_or(|host| hosts.iter().any(|pattern| pattern.matches(host)));
    }
    let names_both = !config.provider.is_empty() && !config.host.is_empty();
    if names_both && hosts.len() == config.host.len() && !may_meet {
        let message = "none of the named providers is on a named host: the flow would match nothing";
        problems.push(Problem::new(format!("{at}.host"), message));
    }
}

#[cfg(test)]
mod tests;
