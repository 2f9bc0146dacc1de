//! Proposes a config with one flow per discovered path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use egret_match::matching::{HostPattern, PathPattern};
use egret_message::OTHER_HOSTS;

use crate::discovered::{Discovered, DiscoveredEndpoint};

/// Maximum number of proposed flows. If there are more paths, the least called ones are left out and the
/// proposal says so.
const FLOWS_MAX: usize = 1_000;
/// Maximum length of a flow's name, with room for a number after it.
const NAME_BYTES_MAX: usize = 56;

/// The subject of a proposed flow: a path of a provider, or of a host without a provider.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProposedPath<'a> {
    provider: &'a str,
    host: &'a str,
    path: &'a str,
}

#[derive(Debug, Default)]
struct Seen<'a> {
    methods: BTreeSet<&'a str>,
    count: u64,
    /// Responses with 429 that said when to try again, as far as both are known.
    throttled: u64,
    /// Calls without a response, or with a status that may not come again.
    failed: u64,
}

/// Statuses that a repeated call may not get again; 0 if there was no response.
const PASSING: [u16; 5] = [0, 500, 502, 503, 504];
/// A flow gets a `retry` if at least this many calls failed, and this share of all.
const FAILED_MIN: u64 = 3;
const FAILED_PER_CALLS: u64 = 100;

/// Returns a YAML config that `egret check` accepts: the providers, and a flow for each path with its
/// methods. It comes from the inventories of flows, which somebody has configured for this, or from that of
/// all exchanges if there are none. An endpoint in several inventories counts as in the one that saw more.
pub fn propose(discovered: &[Discovered]) -> String {
    let (mut paths, mut providers) = (BTreeMap::<ProposedPath<'_>, Seen<'_>>::new(), BTreeMap::new());
    let mut tunnels = BTreeMap::new();
    for endpoint in distinct(discovered) {
        if endpoint.method == TUNNEL {
            tunnels.insert(&*endpoint.host, endpoint.count);
            continue;
        }
        let Some(path) = proposed_path(endpoint) else { continue };
        if path.host.is_empty() {
            providers.insert(path.provider, &*endpoint.url);
        }
        paths.entry(path).or_default().add(endpoint);
    }
    let all = paths.len();
    let mut paths: Vec<(ProposedPath<'_>, Seen<'_>)> = paths.into_iter().collect();
    paths.sort_by(|(one, seen), (other, also)| also.count.cmp(&seen.count).then_with(|| one.cmp(other)));
    paths.truncate(FLOWS_MAX);
    let mut yaml = String::from(
        "# Proposed by Egret from the traffic it has seen, most called paths first. Keep what you need.\n",
    );
    if all > paths.len() {
        let _ = writeln!(yaml, "# Paths left out, because they are called less: {}.", all - paths.len());
    }
    for (host, count) in tunnels {
        let _ = writeln!(yaml, "# Tunnels to {host}, in which Egret cannot see any calls: {count}.");
    }
    if !providers.is_empty() {
        yaml.push_str("providers:\n");
    }
    for (name, url) in providers {
        let _ = writeln!(yaml, "  {}: {{ url: {} }}", quoted(name), quoted(url));
    }
    yaml.push_str(if paths.is_empty() { "flows: []\n" } else { "flows:\n" });
    let mut names = BTreeSet::new();
    for (path, seen) in &paths {
        flow(path, seen, &mut names, &mut yaml);
    }
    yaml
}

/// Returns how often something happened, in words.
fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// The method of a tunnel, which no flow applies to.
const TUNNEL: &str = "CONNECT";

/// Returns each endpoint once.
fn distinct(discovered: &[Discovered]) -> impl Iterator<Item = &DiscoveredEndpoint> {
    let has_flows = discovered.iter().any(|discovered| !discovered.flow.is_empty());
    let chosen = discovered.iter().filter(|discovered| has_flows != discovered.flow.is_empty());
    let mut distinct = BTreeMap::<_, &DiscoveredEndpoint>::new();
    for endpoint in chosen.flat_map(|discovered| &discovered.endpoints) {
        let key = (&endpoint.provider, &endpoint.url, &endpoint.path, &endpoint.method);
        let known = distinct.entry(key).or_insert(endpoint);
        if endpoint.count > known.count {
            *known = endpoint;
        }
    }
    distinct.into_values()
}

impl<'a> Seen<'a> {
    fn add(&mut self, endpoint: &'a DiscoveredEndpoint) {
        let with = |status: u16| endpoint.statuses.get(&status).copied().unwrap_or_default();
        self.methods.insert(&endpoint.method);
        self.count += endpoint.count;
        self.throttled += endpoint.retry_after.min(with(429));
        self.failed += PASSING.iter().map(|status| with(*status)).sum::<u64>();
    }

    /// Returns the remedies that the statuses call for, each with its reason.
    fn remedies(&self) -> Vec<(&'static str, String)> {
        let mut remedies = Vec::new();
        if self.failed >= FAILED_MIN && self.failed * FAILED_PER_CALLS >= self.count {
            remedies.push(("retry: {}", format!("no response or 5xx: {}", times(self.failed))));
        }
        if self.throttled > 0 {
            let reason = format!("429 with Retry-After: {}", times(self.throttled));
            remedies.push(("provider-throttle: { on: [429] }", reason));
        }
        remedies
    }
}

/// Returns the subject of a flow for an endpoint, or `None` if no match can name it.
fn proposed_path(endpoint: &DiscoveredEndpoint) -> Option<ProposedPath<'_>> {
    PathPattern::parse(&endpoint.path).ok()?;
    let is_known = endpoint.provider != OTHER_HOSTS;
    if !is_known {
        HostPattern::parse(&endpoint.host).ok()?;
    }
    let host = if is_known { "" } else { &*endpoint.host };
    Some(ProposedPath { provider: &endpoint.provider, host, path: &endpoint.path })
}

fn flow(proposed: &ProposedPath<'_>, seen: &Seen<'_>, names: &mut BTreeSet<String>, yaml: &mut String) {
    let (key, origin) =
        if proposed.host.is_empty() { ("provider", proposed.provider) } else { ("host", proposed.host) };
    let _ = write!(
        yaml,
        "  - name: {}\n    match: {{ {}: {}, path: {}",
        quoted(&name(origin, proposed.path, names)),
        key,
        quoted(origin),
        quoted(proposed.path)
    );
    // Non-standard methods are not distinguished, so such a flow must match all methods.
    if !seen.methods.contains("other") {
        let methods: Vec<String> = seen.methods.iter().map(|method| quoted(method)).collect();
        let _ = write!(yaml, ", method: [{}]", methods.join(", "));
    }
    yaml.push_str(" }\n");
    let remedies = seen.remedies();
    if !remedies.is_empty() {
        yaml.push_str("    remedies:\n");
    }
    for (remedy, reason) in remedies {
        let _ = writeln!(yaml, "      - {remedy}  # {reason}");
    }
    let _ = writeln!(yaml, "    diagnoses: [metrics: {{}}]  # calls: {}", seen.count);
}

/// Returns a unique name from the provider and the words of the path: `stripe-v1-charges-charge_id`.
fn name(origin: &str, path: &str, names: &mut BTreeSet<String>) -> String {
    let mut name = String::new();
    for letter in origin.chars().chain(path.chars()) {
        match letter {
            letter if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.') => name.push(letter),
            '*' => name.push_str("any"),
            '{' | '}' => {}
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(NAME_BYTES_MAX);
    let name = name.trim_end_matches('-');
    let name = if name.is_empty() { "flow" } else { name };
    let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
    let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
    let name = candidates.find(|name| !names.contains(name)).unwrap_or_default();
    names.insert(name.clone());
    name
}

/// Quotes a text as JSON, which is also valid YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(provider: &str, host: &str, method: &str, path: &str, count: u64) -> DiscoveredEndpoint {
        let us = 0;
        DiscoveredEndpoint {
            provider: provider.to_owned(),
            url: format!("https://{host}"),
            host: host.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            count,
            statuses: BTreeMap::new(),
            p50_us: us,
            p90_us: us,
            p99_us: us,
            first_seen: String::new(),
            last_seen: String::new(),
            consumers: BTreeMap::new(),
            other_consumers: 0,
            clients: BTreeMap::new(),
            other_clients: 0,
            retry_after: 0,
        }
    }

    fn proposed(endpoints: Vec<DiscoveredEndpoint>) -> String {
        propose(&[Discovered { flow: "f".to_owned(), endpoints, ..Discovered::default() }])
    }

    #[test]
    fn each_path_has_a_flow_with_its_methods() {
        let yaml = proposed(vec![
            endpoint("stripe", "api.stripe.com", "GET", "/v1/charges/{charge_id}", 2),
            endpoint("stripe", "api.stripe.com", "POST", "/v1/charges/{charge_id}", 1),
            endpoint("-", "a.example", "other", "/a-b/*", 9),
            endpoint("-", "no host", "GET", "/", 9),
        ]);
        let expected = "# Proposed by Egret from the traffic it has seen, most called paths first. \
            Keep what you need.\n\
            providers:\n  \"stripe\": { url: \"https://api.stripe.com\" }\n\
            flows:\n\
            \x20 - name: \"a.example-a-b-any\"\n    match: { host: \"a.example\", path: \"/a-b/*\" }\n    \
            diagnoses: [metrics: {}]  # calls: 9\n\
            \x20 - name: \"stripe-v1-charges-charge_id\"\n    \
            match: { provider: \"stripe\", path: \"/v1/charges/{charge_id}\", method: [\"GET\", \"POST\"] }\n    \
            diagnoses: [metrics: {}]  # calls: 3\n";
        assert_eq!(yaml, expected);
        assert!(proposed(Vec::new()).ends_with("\nflows: []\n"));
    }

    #[test]
    fn remedies_are_proposed_where_the_statuses_call_for_them() {
        let seen = |statuses: &[(u16, u64)], retry_after| DiscoveredEndpoint {
            statuses: statuses.iter().copied().collect(),
            count: statuses.iter().map(|(_, count)| count).sum(),
            retry_after,
            ..endpoint("p", "h", "GET", "/a", 0)
        };
        for (found, expected) in [
            (
                seen(&[(200, 500), (429, 40)], 40),
                Some("provider-throttle: { on: [429] }  # 429 with Retry-After: 40 times"),
            ),
            (seen(&[(200, 500), (429, 40)], 0), None),
            (seen(&[(200, 500), (503, 40)], 40), Some("retry: {}  # no response or 5xx: 40 times")),
            (seen(&[(200, 97), (0, 2), (502, 1)], 0), Some("retry: {}  # no response or 5xx: 3 times")),
            (seen(&[(200, 400), (500, 3)], 0), None),
            (seen(&[(200, 4), (500, 2)], 0), None),
        ] {
            let statuses = found.statuses.clone();
            let yaml = proposed(vec![found]);
            let remedy = yaml.lines().find_map(|line| line.strip_prefix("      - "));
            assert_eq!(remedy, expected, "{statuses:?}");
        }
    }

    #[test]
    fn an_endpoint_in_two_inventories_counts_once_and_flows_come_first() {
        let inventory = |flow: &str, count| Discovered {
            flow: flow.to_owned(),
            endpoints: vec![endpoint("p", "h", "GET", "/a", count)],
            ..Discovered::default()
        };
        let calls = |inventories: &[Discovered]| {
            propose(inventories).lines().last().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        };
        assert_eq!(calls(&[inventory("f", 5), inventory("g", 9), inventory("", 20)]), Some(9));
        assert_eq!(calls(&[inventory("", 20)]), Some(20));
    }

    #[test]
    fn a_tunnel_is_mentioned_because_no_flow_applies_to_it() {
        let yaml = proposed(vec![endpoint("-", "api.example", "CONNECT", "/", 12)]);
        assert!(
            yaml.contains("# Tunnels to api.example, in which Egret cannot see any calls: 12.\nflows: []")
        );
    }

    #[test]
    fn names_are_short_and_differ() {
        let long = format!("/{}", "a".repeat(200));
        let mut names = BTreeSet::new();
        let found: Vec<String> =
            ["/a/b", "/a-b", "/", &long, &long].iter().map(|path| name("p", path, &mut names)).collect();
        assert_eq!(found[..3], ["p-a-b", "p-a-b-2", "p"]);
        assert!(found[3].len() < 64 && found[4] == format!("{}-2", found[3]), "{found:?}");
    }

    #[test]
    fn a_long_proposal_leaves_out_rare_paths() {
        let many = (0..=FLOWS_MAX as u64)
            .map(|number| endpoint("p", "h", "GET", &format!("/w{number}"), number + 1));
        let yaml = proposed(many.collect());
        assert!(
            yaml.contains("# Paths left out, because they are called less: 1.\n")
                && !yaml.contains("\"/w0\"")
        );
        assert_eq!(yaml.matches("- name:").count(), FLOWS_MAX);
    }
}
