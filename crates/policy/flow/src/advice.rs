//! Advice about valid flows: what is probably not what was meant. There is no warning about a flow that may
//! be right.

use std::collections::HashMap;

use egret_config::Problem;
use egret_match::expression::{EvaluationError, Expression, Scope, Stage};
use egret_quota::{QuotaConfigs, QuotaKind};
use egret_remedy::{FaultConfig, Mode, NamedPart, RemedyConfig};

use crate::config::FlowConfig;

/// Number of later flows that a flow is compared with, and of remedies that one is.
const COMPARED_MAX: usize = 200;

/// Number of warnings after which the search ends.
const ADVICE_MAX: usize = 100;

/// Returns warnings about valid flows and the quotas that they draw from.
pub fn advise(flows: &[FlowConfig], quotas: &QuotaConfigs) -> Vec<Problem> {
    let mut advice = Vec::new();
    let last_draws = last_draws(flows, quotas);
    let all = Entries { flows, quotas, last_draws: &last_draws };
    for (number, flow) in flows.iter().enumerate() {
        if advice.len() >= ADVICE_MAX {
            break;
        }
        let at = format!("flows[{number}]");
        if flow.remedies.is_empty() && flow.diagnoses.is_empty() {
            let message = "this flow does nothing: give it `remedies` or `diagnoses`, or remove it";
            advice.push(Problem::new(&*at, message));
        }
        advice.extend(endless_faults(flow, &at));
        advice.extend(wished_keys(flow, &at));
        advice.extend(never_matches(flow, &at));
        advice.extend(all.uncounted_calls(number, flow));
        advice.extend(all.unreached(number, flow));
    }
    advice
}

/// Returns a warning for each fault that goes on for ever, as nobody has said that it should.
fn endless_faults(flow: &FlowConfig, at: &str) -> Vec<Problem> {
    let is_endless = |remedy: &RemedyConfig| {
        remedy.mode == Mode::Enforce && remedy.fault.as_ref().is_some_and(FaultConfig::is_endless)
    };
    let remedies = flow.remedies.iter().enumerate().filter(|(_, remedy)| is_endless(remedy));
    let message = "this fault lets calls fail until somebody removes it: end it with `until` or `for`, or write `enabled: false` to switch it on over the API, or `enabled: true` if it is meant to stay";
    remedies.map(|(number, _)| Problem::new(format!("{at}.remedies[{number}].fault"), message)).collect()
}

/// Words that somebody writes who wants Egret to make keys, and that name a header field nobody sends.
const WISHES: [&str; 5] = ["auto", "automatic", "generate", "generated", "make"];

/// Returns a warning for each retry whose field of idempotency keys is rather a wish for some.
fn wished_keys(flow: &FlowConfig, at: &str) -> Vec<Problem> {
    let is_wish = |remedy: &RemedyConfig| {
        let name = remedy.retry.as_ref().and_then(|retry| retry.idempotency_key.header.as_deref());
        name.is_some_and(|name| WISHES.iter().any(|wish| name.eq_ignore_ascii_case(wish)))
    };
    let remedies = flow.remedies.iter().enumerate().filter(|(_, remedy)| is_wish(remedy));
    let message = "this names a header field of the request: write `idempotency_key: { make: true }` if Egret is to make keys";
    remedies
        .map(|(number, _)| Problem::new(format!("{at}.remedies[{number}].retry.idempotency_key"), message))
        .collect()
}

/// Returns a warning if no exchange can match the flow.
fn never_matches(flow: &FlowConfig, at: &str) -> Option<Problem> {
    if flow.matching.sample.get() <= 0.0 {
        let message = "`sample: 0` selects no exchange, so this flow never applies: remove the flow, or raise the share";
        return Some(Problem::new(format!("{at}.match.sample"), message));
    }
    let parameters = flow.matching.parameters();
    let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
    let never = |source: Option<&str>, stage: Stage, key: &str| {
        let compiled = Expression::<bool>::compile(source?, Scope { stage, parameters: &parameters }).ok()?;
        let why = why_never(compiled.constant()?)?;
        let message = format!(
            "this expression names nothing of the exchange and {why}, so the flow never applies: use `request`, or remove the flow"
        );
        Some(Problem::new(format!("{at}.{key}"), message))
    };
    never(flow.matching.when.as_deref(), Stage::Request, "match.when")
        .or_else(|| never(flow.when_response.as_deref(), Stage::Finished, "when_response"))
}

fn why_never(value: Result<bool, EvaluationError>) -> Option<String> {
    match value {
        Ok(true) => None,
        Ok(false) => Some("is always false".to_owned()),
        Err(error) => Some(format!("always fails ({error})")),
    }
}

/// All flows, with the quotas that their remedies draw from.
#[derive(Clone, Copy)]
struct Entries<'a> {
    flows: &'a [FlowConfig],
    quotas: &'a QuotaConfigs,
    /// The numbers of the flow and of the remedy that draw last from each quota.
    last_draws: &'a HashMap<&'a str, (usize, usize)>,
}

/// Finds the last remedies that draw from each quota, or from one that draws from it.
fn last_draws<'a>(flows: &'a [FlowConfig], quotas: &'a QuotaConfigs) -> HashMap<&'a str, (usize, usize)> {
    let mut last = HashMap::new();
    let parent = |name: &&str| quotas.get(*name).and_then(|quota| quota.parent.as_deref());
    for (flow, config) in flows.iter().enumerate() {
        for (number, remedy) in config.remedies.iter().enumerate() {
            for name in remedy.names() {
                let NamedPart::Quota(name) = name else { continue };
                // The config is valid, so there is no cycle.
                for name in std::iter::successors(Some(name), parent) {
                    last.insert(name, (flow, number));
                }
            }
        }
    }
    last
}

/// The most calls that a remedy makes of one.
struct Repeated {
    key: &'static str,
    calls: u32,
}

/// Returns the most calls that a remedy makes of one, if it is more than one.
fn repeated_by(remedy: &RemedyConfig) -> Option<Repeated> {
    if remedy.mode != Mode::Enforce {
        return None;
    }
    let retry = remedy.retry.as_ref().filter(|retry| retry.attempts > 1);
    let by_retry = retry.map(|retry| Repeated { key: "retry", calls: retry.attempts });
    by_retry.or_else(|| remedy.hedge.is_some().then_some(Repeated { key: "hedge", calls: 2 }))
}

/// A remedy, by its numbers.
#[derive(Clone, Copy)]
struct PlacedRemedy<'a> {
    flow: usize,
    number: usize,
    config: &'a RemedyConfig,
}

impl PlacedRemedy<'_> {
    fn path(&self) -> String {
        let path = format!("flows[{}].remedies[{}]", self.flow, self.number);
        match self.config.only_key(&path, &mut Vec::new()) {
            Some(key) => format!("{path}.{key}"),
            None => path,
        }
    }
}

impl<'a> Entries<'a> {
    /// Returns the remedies that every exchange of `flow` passes behind its remedy `number`: the further ones
    /// of the flow, and those of the `later` flows that this one covers.
    fn inside(self, flow: usize, number: usize) -> impl Iterator<Item = PlacedRemedy<'a>> {
        let outer = self.flows.get(flow);
        let covered = move |(_, other): &(usize, &'a FlowConfig)| {
            outer.is_some_and(|outer| outer.matching.covers(&other.matching))
        };
        let own = self.flows.iter().enumerate().skip(flow).take(1);
        let later = self.flows.iter().enumerate().skip(flow + 1).take(COMPARED_MAX).filter(covered);
        let entries = own.chain(later).flat_map(move |(at, other)| {
            let first = if at == flow { number + 1 } else { 0 };
            let remedies = other.remedies.iter().enumerate().skip(first);
            remedies.map(move |(number, config)| PlacedRemedy { flow: at, number, config })
        });
        entries.take(COMPARED_MAX)
    }

    /// Returns a warning for each quota that is drawn from outside of a `retry` or a `hedge`: it does not
    /// count the further calls.
    fn uncounted_calls(self, flow: usize, config: &FlowConfig) -> Vec<Problem> {
        let mut advice = Vec::new();
        for (number, remedy) in config.remedies.iter().enumerate() {
            let drawn = PlacedRemedy { flow, number, config: remedy };
            let names = remedy.names();
            let quota = names
                .iter()
                .find_map(|name| if let NamedPart::Quota(name) = name { Some(*name) } else { None });
            // Slots are held until the last attempt is over, so none is missing.
            let counts_calls = |quota: &str| {
                self.quotas.get(quota).is_some_and(|quota| quota.kind != QuotaKind::Concurrency)
            };
            let Some(quota) = quota.filter(|quota| counts_calls(quota) && remedy.mode == Mode::Enforce)
            else {
                continue;
            };
            let repeats = |entry: PlacedRemedy<'a>| Some((repeated_by(entry.config)?, entry));
            let Some((repeated, entry)) = self.inside(flow, number).find_map(repeats) else { continue };
            if self.is_drawn_again(quota, drawn) {
                continue;
            }
            let Repeated { key, calls } = repeated;
            let place = if entry.flow == flow {
                format!("put this entry behind `{key}`")
            } else {
                let name = self.flows.get(entry.flow).map_or("", |flow| &flow.name);
                format!("put this flow behind the flow `{name}`, whose `{key}` repeats them")
            };
            let further = if key == "retry" { "its retries" } else { "the second one beside it" };
            let message = format!(
                "the quota `{quota}` counts a call and {further} as one, so the provider may get up to {calls} times as many: {place}, and each attempt is counted"
            );
            advice.push(Problem::new(drawn.path(), message).related(entry.path()));
        }
        advice
    }

    /// Returns `true` if a later remedy draws from the same quota, or from one that draws from it.
    fn is_drawn_again(self, quota: &str, drawn: PlacedRemedy<'_>) -> bool {
        self.last_draws.get(quota).is_some_and(|last| *last > (drawn.flow, drawn.number))
    }

    /// Returns warnings about remedies that no exchange reaches, because a `fixed-response` outside of them
    /// responds to all.
    fn unreached(self, flow: usize, config: &FlowConfig) -> Vec<Problem> {
        let mut advice = Vec::new();
        for (number, remedy) in
            config.remedies.iter().enumerate().filter(|(_, remedy)| responds_always(remedy))
        {
            let responds = PlacedRemedy { flow, number, config: remedy };
            let mut warned = None;
            for entry in
                self.inside(flow, number).filter(|entry| warned.replace(entry.flow) != Some(entry.flow))
            {
                let what = if entry.flow == flow { "this remedy" } else { "the remedies of this flow" };
                let message = format!(
                    "no request reaches {what}: `fixed-response` of the flow `{}` responds to all of them before; remove one of the two, or narrow `match` there",
                    config.name
                );
                let path =
                    if entry.flow == flow { entry.path() } else { format!("flows[{}].remedies", entry.flow) };
                advice.push(Problem::new(path, message).related(responds.path()));
            }
        }
        advice
    }
}

/// Returns `true` if the remedy responds to every request. A template may fail for one.
fn responds_always(remedy: &RemedyConfig) -> bool {
    let fixed = remedy.fixed_response.as_ref().filter(|_| remedy.mode == Mode::Enforce);
    fixed.is_some_and(|fixed| {
        !fixed.body.contains("${") && fixed.headers.values().all(|value| !value.contains("${"))
    })
}

#[cfg(test)]
mod tests;
