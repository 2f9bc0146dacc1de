//! Egret's config under construction, in the order in which it is written.

use std::collections::{BTreeMap, BTreeSet};

use crate::emit;
use crate::yaml::{Node, Value, block, document, list, map, one_or_list, plain, text};

/// Longest name that Egret accepts, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Egret's config.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub providers: Vec<Provider>,
    pub quotas: Vec<(String, Node)>,
    pub accounts: Vec<(String, Node)>,
    pub exporters: Vec<(String, Node)>,
    pub flows: Vec<Flow>,
    pub egress: Vec<(String, Node)>,
    pub timeouts: Vec<(String, Node)>,
    /// Clients may name the target in the query.
    pub routes_by_query: bool,
    names: BTreeSet<(SectionKind, String)>,
}

/// A section whose names must differ from one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SectionKind {
    Provider,
    Quota,
    Account,
    Exporter,
    Flow,
}

/// A provider, one for each host.
#[derive(Debug)]
pub(crate) struct Provider {
    pub name: String,
    pub host: String,
    pub tls: Option<Node>,
}

/// A flow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    pub name: String,
    pub comments: Vec<String>,
    pub matching: Match,
    pub remedies: Vec<Node>,
    pub diagnoses: Vec<Node>,
}

/// The conditions of a flow.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Match {
    pub host: Vec<String>,
    pub path: Vec<String>,
    pub method: Vec<String>,
    pub header: BTreeMap<String, String>,
    pub query: BTreeMap<String, String>,
    pub consumer: Vec<String>,
    pub sample: Option<f64>,
    /// Expressions that must all be true.
    pub when: Vec<String>,
    pub when_response: Vec<String>,
}

impl Match {
    fn node(&self) -> Option<Node> {
        let mut entries = Vec::new();
        let lists = [
            ("host", &self.host),
            ("path", &self.path),
            ("method", &self.method),
            ("consumer", &self.consumer),
        ];
        for (key, texts) in lists.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            entries.push((key, one_or_list(texts)));
        }
        for (key, values) in [("header", &self.header), ("query", &self.query)] {
            if !values.is_empty() {
                entries.push((key, map(values.iter().map(|(name, value)| (name.as_str(), text(value))))));
            }
        }
        entries.extend(self.sample.map(|percent| ("sample", plain(percent))));
        entries.extend(conjunction(&self.when).map(|when| ("when", text(&when))));
        (!entries.is_empty()).then(|| map(entries))
    }
}

/// Expressions joined so that all must be true.
pub(crate) fn conjunction(expressions: &[String]) -> Option<String> {
    match expressions {
        [] => None,
        [one] => {
            let inner = one.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            Some(inner.filter(|inner| !inner.contains(['(', ')'])).unwrap_or(one).to_owned())
        }
        several => {
            let grouped =
                |each: &String| if each.contains("||") { format!("({each})") } else { each.clone() };
            Some(several.iter().map(grouped).collect::<Vec<_>>().join(" && "))
        }
    }
}

impl Flow {
    pub fn is_empty(&self) -> bool {
        self.remedies.is_empty() && self.diagnoses.is_empty()
    }

    fn node(&self) -> Node {
        let mut entries = vec![("name", text(&self.name))];
        entries.extend(self.matching.node().map(|matching| ("match", matching)));
        entries.extend(emit::when_response(&self.matching.when_response));
        for (key, nodes) in [("remedies", &self.remedies), ("diagnoses", &self.diagnoses)] {
            if !nodes.is_empty() {
                entries.push((key, open_list(nodes.clone())));
            }
        }
        Node { comments: self.comments.clone(), value: block(entries).value }
    }
}

/// A list whose elements stand on lines of their own.
fn open_list(nodes: Vec<Node>) -> Node {
    let open = |node: Node| match node.value {
        Value::Map(entries, false) => Node { comments: node.comments, value: Value::Map(entries, true) },
        _ => node,
    };
    list(nodes.into_iter().map(open))
}

impl Draft {
    /// Returns a name for Egret that is like `name`, and that nothing else of this kind has.
    pub fn name(&mut self, kind: SectionKind, name: &str) -> String {
        let mut plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' })
            .collect::<String>()
            .split('-')
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("-");
        plain.truncate(NAME_BYTES_MAX - 8);
        if kind == SectionKind::Provider {
            plain.make_ascii_lowercase();
        }
        if plain.is_empty() {
            plain.push_str("unnamed");
        }
        let mut unique = plain.clone();
        let mut number = 1_u32;
        while !self.names.insert((kind, unique.clone())) {
            number += 1;
            unique = format!("{plain}-{number}");
        }
        unique
    }

    /// Returns the name of the provider of a host, which is added if it is new. `None` if the host is a
    /// pattern.
    pub fn provider(&mut self, host: &str) -> Option<String> {
        let host = host.to_ascii_lowercase();
        if let Some(known) = self.providers.iter().find(|provider| provider.host == host) {
            return Some(known.name.clone());
        }
        let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_of_host) {
            return None;
        }
        let name = self.name(SectionKind::Provider, &short_name(&host));
        self.providers.push(Provider { name: name.clone(), host, tls: None });
        Some(name)
    }

    /// Writes the config.
    pub fn yaml(&self, head: &[String]) -> String {
        let mut sections = vec![("gateway".to_owned(), block(self.gateway()))];
        if !self.providers.is_empty() {
            let comment = "Requests that name no scheme are sent over TLS, because these URLs are `https`.";
            let providers = self.providers.iter().map(|provider| (provider.name.clone(), provider.node()));
            sections.push(("providers".to_owned(), block(providers).commented(comment)));
        }
        for (key, entries) in
            [("quotas", &self.quotas), ("accounts", &self.accounts), ("exporters", &self.exporters)]
        {
            if !entries.is_empty() {
                sections.push((key.to_owned(), block(entries.iter().cloned())));
            }
        }
        let flows: Vec<Node> = self.flows.iter().filter(|flow| !flow.is_empty()).map(Flow::node).collect();
        if !flows.is_empty() {
            sections.push(("flows".to_owned(), list(flows)));
        }
        document(head, &sections)
    }

    fn gateway(&self) -> Vec<(String, Node)> {
        let listen = emit::listener(self.routes_by_query);
        let mut entries = vec![("listen".to_owned(), list([listen]))];
        entries.push(("compat".to_owned(), emit::compat()));
        entries.push(("private_fields".to_owned(), emit::private_fields()));
        if !self.egress.is_empty() {
            entries.push(("egress".to_owned(), map(self.egress.iter().cloned())));
        }
        if !self.timeouts.is_empty() {
            entries.push(("timeouts".to_owned(), map(self.timeouts.iter().cloned())));
        }
        entries
    }
}

impl Provider {
    fn node(&self) -> Node {
        let mut entries = vec![("url", text(&format!("https://{}", self.host)))];
        entries.extend(self.tls.clone().map(|tls| ("tls", tls)));
        map(entries)
    }
}

/// The part of a host by which people call its provider: `stripe` of `api.stripe.com`.
fn short_name(host: &str) -> String {
    let host = host.split(':').next().unwrap_or_default();
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return host.to_owned();
    }
    let labels: Vec<&str> = host.split('.').collect();
    match labels.as_slice() {
        ["api" | "www", name, _, ..] | [.., name, _] => (*name).to_owned(),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_differ() {
        let mut draft = Draft::default();
        assert_eq!(draft.name(SectionKind::Flow, "My flow, 2"), "My-flow-2");
        assert_eq!(draft.name(SectionKind::Flow, "My flow 2"), "My-flow-2-2");
        assert_eq!(draft.name(SectionKind::Quota, "My flow 2"), "My-flow-2");
        assert_eq!(draft.name(SectionKind::Flow, "é"), "unnamed");
        assert!(draft.name(SectionKind::Flow, &"x".repeat(200)).len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn a_provider_is_named_as_people_call_it() {
        let mut draft = Draft::default();
        for (host, name) in [
            ("api.stripe.com", "stripe"),
            ("API.stripe.com", "stripe"),
            ("stripe.example", "stripe-2"),
            ("eu.api.box.com", "box"),
            ("localhost:8080", "localhost"),
        ] {
            assert_eq!(draft.provider(host).as_deref(), Some(name), "{host}");
        }
        assert_eq!(draft.provider("{tenant}.example.com"), None);
        assert_eq!(draft.providers.len(), 4);
    }
}
