//! Explains which flows match a request and why the others do not.

use std::collections::BTreeMap;

use egret_match::matching::{MatchInput, Mismatch};
use egret_match::router::{Matches, Router};
use serde::Serialize;

use crate::config::FlowConfig;

/// A flow's result for a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedFlow {
    /// Name of the flow.
    pub flow: String,
    /// `true` if the flow matches the request.
    pub matches: bool,
    /// The first part of the match that does not fit, in words, if the flow does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The condition on the response that the flow also depends on, if it matches and has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_response: Option<String>,
    /// Percentage of such requests that the flow applies to, if it is less than 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<f64>,
    /// Parameters captured by the flow's path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// Maximum number of rolls tried to find one that is sampled.
const ROLLS_MAX: u64 = 100_000;

/// Evaluates each of `flows` against the request. `router` is compiled from the same flows. A flow that
/// samples exchanges is evaluated as if this one were sampled.
pub fn explain(flows: &[FlowConfig], router: &Router, question: MatchInput<'_>) -> Vec<ExplainedFlow> {
    flows.iter().enumerate().map(|(number, flow)| verdict(number, flow, router, question)).collect()
}

fn verdict(number: usize, flow: &FlowConfig, router: &Router, question: MatchInput<'_>) -> ExplainedFlow {
    let ask = |roll| router.mismatch(number, MatchInput { roll, ..question });
    let is_sampled = |roll: &u64| ask(*roll) != Some(Mismatch::Sample);
    let roll = (0..ROLLS_MAX).find(is_sampled).unwrap_or_default();
    let mismatch = ask(roll);
    let share = flow.matching.sample;
    ExplainedFlow {
        flow: flow.name.clone(),
        matches: mismatch.is_none(),
        why_not: mismatch.map(|mismatch| mismatch.in_words(&flow.matching, question.request)),
        when_response: flow.when_response.clone().filter(|_| mismatch.is_none()),
        sample: (mismatch.is_none() && !share.is_all()).then(|| share.get()),
        parameters: if mismatch.is_none() {
            parameters(number, router, MatchInput { roll, ..question })
        } else {
            BTreeMap::new()
        },
    }
}

fn parameters(number: usize, router: &Router, question: MatchInput<'_>) -> BTreeMap<String, String> {
    let mut matches = Matches::default();
    router.find(question, &mut matches);
    let found = matches.iter().find(|found| found.flow() == number);
    let parameters = found.map(|found| router.parameters(found, &matches)).unwrap_or_default();
    let words = |(name, value): (&str, &[u8])| (name.to_owned(), String::from_utf8_lossy(value).into_owned());
    parameters.iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use egret_clock::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::config::match_rules;
    use crate::fixture::with_request;

    #[test]
    fn each_flow_says_what_it_has_to_do_with_a_request() {
        let flows: Vec<FlowConfig> = serde_json::from_value(json!([
            { "name": "charge", "match": { "provider": "stripe", "path": "/v1/{kind}/{id}", "sample": 1 } },
            { "name": "post", "match": { "method": "POST" } },
            { "name": "never", "match": { "sample": 0 } },
            { "name": "all", "when_response": "response.status >= 500" },
        ]))
        .unwrap();
        let router = Router::compile(&match_rules(&flows)).unwrap();
        let verdicts = with_request("stripe", "GET https://api.stripe.com/v1/charges/7", |request| {
            let question = MatchInput { request, roll: 0, now: Timestamp::default(), has_body: true };
            explain(&flows, &router, question)
        });
        assert_eq!(
            serde_json::to_value(verdicts).unwrap(),
            json!([
                { "flow": "charge", "matches": true, "sample": 1.0, "parameters": { "kind": "charges", "id": "7" } },
                { "flow": "post", "matches": false, "why_not": "its method is GET, not `POST`" },
                { "flow": "never", "matches": false, "why_not": "it is not among the sampled 0 %" },
                { "flow": "all", "matches": true, "when_response": "response.status >= 500" },
            ])
        );
    }
}
