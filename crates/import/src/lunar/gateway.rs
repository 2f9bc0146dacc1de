//! Settings of the gateway: domains, certificates, the environment and plugins.

use std::collections::BTreeMap;

use egret_config::Position;

use crate::emit;
use crate::report::ItemOutcome;
use crate::source::{Mapping, TextFile, YamlFile, cut};
use crate::yaml::{map, text};

use super::shared::Import;

impl<'a> Import<'a> {
    pub(super) fn gateway(&mut self, file: &'a YamlFile) {
        let root = Mapping::of(&file.name, &file.root, self.findings);
        self.read_exporters(&root);
        self.domains(&root);
        root.unread();
    }

    /// Lists of domains, and client certificates.
    pub(super) fn domains(&mut self, root: &Mapping<'a>) {
        for (key, rule) in [("allowed_domains", "allow"), ("blocked_domains", "deny")] {
            let domains = root.texts(key);
            let Some(at) = root.get(key).map(|node| node.at).filter(|_| !domains.is_empty()) else {
                continue;
            };
            let hosts: Vec<String> = domains.iter().map(|domain| host_pattern(domain)).collect();
            let is_regex = hosts.iter().any(|host| host.starts_with("regex:"));
            if rule == "allow" {
                self.draft.egress.push(("default".to_owned(), crate::yaml::plain("deny")));
            }
            self.draft.egress.push((rule.to_owned(), emit::egress_rules(&hosts)));
            let verdict = match (rule, is_regex) {
                ("allow", false) => ItemOutcome::Different("configured providers are allowed too".to_owned()),
                (_, true) => ItemOutcome::Different(
                    "a regular expression must match the whole host; configured providers are allowed too"
                        .to_owned(),
                ),
                _ => ItemOutcome::Translated,
            };
            self.findings.item(root.file, at, format!("`{key}`"), verdict);
        }
        for key in ["mTLS", "mtls"] {
            for entry in root.each(key) {
                self.client_certificate(entry);
            }
        }
    }

    /// A client certificate for a domain.
    fn client_certificate(&mut self, entry: Mapping<'_>) {
        let host = ["domain", "host", "url"].iter().find_map(|key| entry.text(key));
        let certificate =
            ["cert", "certificate", "cert_file", "certificate_file"].iter().find_map(|key| entry.text(key));
        let key = ["key", "private_key", "key_file"].iter().find_map(|key| entry.text(key));
        let provider = host.as_deref().and_then(|host| self.draft.provider(host));
        let verdict = match (provider, certificate, key) {
            (Some(name), Some(certificate), Some(key)) if !key.contains("PRIVATE KEY") => {
                let key = format!("${{file:{key}}}");
                let tls = map([("certificate", text(&certificate)), ("key", text(&key))]);
                let provider = self.draft.providers.iter_mut().find(|provider| provider.name == name);
                if let Some(provider) = provider {
                    provider.tls = Some(tls);
                }
                ItemOutcome::Different("Egret also verifies the provider's certificate".to_owned())
            }
            _ => ItemOutcome::Lost(
                "write `tls: { certificate: FILE, key: \"${file:FILE}\" }` under the provider by hand"
                    .to_owned(),
            ),
        };
        entry.done("client certificate (`mTLS`)", verdict);
    }

    pub(super) fn plugins(&mut self, file: &'a YamlFile) {
        let verdict = ItemOutcome::Lost(
            "plugins in Go cannot be loaded: the remedy `script` runs JavaScript, and `transform` changes messages"
                .to_owned(),
        );
        self.findings.item(&file.name, file.root.at, "user processors", verdict);
    }

    /// Settings in an environment file. Values are not repeated, because some are secrets.
    pub(super) fn environment(&mut self, file: &'a TextFile) {
        let mut seen = BTreeMap::new();
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim().trim_start_matches("export ");
            let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            seen.insert(
                name.trim().to_owned(),
                (number + 1, value.trim().trim_matches(['"', '\'']).to_owned()),
            );
        }
        for (name, (line, value)) in seen {
            let at = Position { line, column: 1 };
            let verdict = self.variable(&name, &value);
            if let Some(verdict) = verdict {
                self.findings.item(&file.name, at, format!("variable {}", cut(&name)), verdict);
            }
        }
    }

    fn variable(&mut self, name: &str, value: &str) -> Option<ItemOutcome> {
        let is_on = matches!(value.to_ascii_lowercase().as_str(), "1" | "true");
        let seconds = value.parse::<f64>().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
        match (name, seconds) {
            ("LUNAR_REDIRECTION_BY_QUERY_PARAMS", _) => {
                self.draft.routes_by_query = is_on;
                Some(ItemOutcome::Translated)
            }
            ("TLS_PASSTHROUGH_ON", _) => Some(ItemOutcome::Different(
                "CONNECT is served on the gateway's own port, and always".to_owned(),
            )),
            ("LUNAR_CONNECT_TIMEOUT_SEC", Some(seconds)) => {
                self.draft.timeouts.push(("connect".to_owned(), emit::duration(seconds)));
                Some(ItemOutcome::Translated)
            }
            ("LUNAR_SERVER_TIMEOUT_SEC", Some(seconds)) => {
                self.draft.timeouts.push(("first_byte".to_owned(), emit::duration(seconds)));
                Some(ItemOutcome::Translated)
            }
            (name, _) if name.starts_with("LUNAR_") => Some(ItemOutcome::Lost(
                "the importer does not know it; docs/reference/config.md lists Egret's settings".to_owned(),
            )),
            _ => None,
        }
    }
}

/// The pattern of a host: a name, `*.` and a name, or a regular expression.
fn host_pattern(domain: &str) -> String {
    let plain = domain.trim().trim_start_matches('^').trim_end_matches('$').replace("\\.", ".");
    let name =
        plain.strip_prefix(".*.").or_else(|| plain.strip_prefix("*.")).or_else(|| plain.strip_prefix(".+."));
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
    };
    match name {
        Some(name) if is_name(name) => format!("*.{name}"),
        None if is_name(&plain) => plain,
        _ => format!("regex:{}", domain.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::host_pattern;

    #[test]
    fn a_domain_is_a_name_where_it_can_be_one() {
        for (domain, pattern) in [
            ("api.example.com", "api.example.com"),
            ("api\\.example\\.com", "api.example.com"),
            ("^.*\\.example\\.com$", "*.example.com"),
            ("*.example.com", "*.example.com"),
            ("api-[0-9]+\\.example\\.com", "regex:api-[0-9]+\\.example\\.com"),
        ] {
            assert_eq!(host_pattern(domain), pattern, "{domain}");
        }
    }
}
