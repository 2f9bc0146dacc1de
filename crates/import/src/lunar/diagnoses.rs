//! Diagnoses of `policies.yaml`.

use crate::emit::{self, Figure};
use crate::report::ItemOutcome;
use crate::source::{Mapping, cut};
use crate::yaml::Node;

use super::remedies::{Scope, name_list, verdict};
use super::shared::Import;
use super::url::HostAndPath;

/// Bytes of a body that are archived if the original has no limit.
const BODY_BYTES: u64 = 64 << 10;

impl<'a> Import<'a> {
    pub(super) fn diagnosis_of_kind(
        &mut self,
        kind: &str,
        config: &Mapping<'a>,
        export: Option<&str>,
        scope: &Scope,
    ) -> (Option<Node>, ItemOutcome) {
        match kind {
            "har_exporter" => self.har_exporter(config, export, scope),
            "metrics_collector" => self.metrics_collector(config),
            "void" => (None, ItemOutcome::Translated),
            other => {
                let reason = format!("Lunar has no diagnosis `{}` that the importer knows", cut(other));
                (None, ItemOutcome::Lost(reason))
            }
        }
    }

    fn har_exporter(
        &mut self,
        config: &Mapping<'_>,
        export: Option<&str>,
        scope: &Scope,
    ) -> (Option<Node>, ItemOutcome) {
        let mut notes = Vec::new();
        // Egret finds the coding by itself.
        config.ignore(&["request_header_names", "response_header_names"]);
        let mut har = emit::HarDiagnosis {
            export: self.archive(export, &mut notes),
            bodies: config.whole("transaction_max_size").unwrap_or(BODY_BYTES).max(1),
            ..emit::HarDiagnosis::default()
        };
        notes.push("longer bodies are cut; Lunar drops the whole exchange".to_owned());
        if let Some(obfuscate) = config.fields("obfuscate") {
            har.obfuscate = obfuscate.flag("enabled").unwrap_or(false);
            if har.obfuscate {
                // Lunar hides parameters of a path, not the words that its URL names.
                let words = scope.target.iter().flat_map(HostAndPath::literals);
                har.exclude.extend(words.map(|position| format!("request.path[{position}]")));
            }
            if let Some(exclusions) = obfuscate.fields("exclusions") {
                har.exclude.extend(exclude(&exclusions, scope, &mut notes));
                exclusions.unread();
            }
            obfuscate.unread();
        }
        if har.obfuscate {
            notes.push(
                "pseudonyms are made with a key of this installation, not with a plain SHA-256".to_owned(),
            );
        } else {
            notes.push("what looks like a secret is still replaced (`detect_secrets`)".to_owned());
        }
        (Some(har.node()), verdict(&notes))
    }

    fn metrics_collector(&self, config: &Mapping<'_>) -> (Option<Node>, ItemOutcome) {
        let mut notes = vec![
            "the histograms are `egret_flow_exchange_seconds` and its neighbours, in seconds".to_owned(),
        ];
        let mut metrics =
            emit::Metrics { buckets_ms: self.exporters.buckets_ms.clone(), ..emit::Metrics::default() };
        for (key, prefix) in [("request_header_names", "request"), ("response_header_names", "response")] {
            for name in config.texts(key) {
                let source = if prefix == "request" {
                    Figure::RequestHeader(name.clone())
                } else {
                    Figure::Header(name.clone())
                };
                metrics.custom_labels.push((label(&format!("{prefix}_{name}")), source));
            }
        }
        for counter in config.each("counters") {
            let (name, key) = (counter.required_text("name_suffix"), counter.required_text("key"));
            match counter.text("payload").as_deref() {
                Some("response_headers") | None => metrics.counters.push((label(&name), Figure::Header(key))),
                Some(other) => {
                    notes.push(format!("counters of `{}` do not work in Lunar either", cut(other)));
                }
            }
            counter.unread();
        }
        (Some(metrics.node()), verdict(&notes))
    }
}

/// A name for a metric or a label.
pub(super) fn label(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    let plain: String = plain.take(48).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphabetic()) { plain } else { format!("x_{plain}") }
}

/// The values that are not obfuscated, as paths of Egret.
fn exclude(exclusions: &Mapping<'_>, scope: &Scope, notes: &mut Vec<String>) -> Vec<String> {
    let mut paths = name_list(&exclusions.texts("query_params"), "request.query.");
    for name in exclusions.texts("path_params") {
        match scope.target.as_ref().and_then(|target| target.parameter(&name)) {
            Some(position) => paths.push(format!("request.path[{position}]")),
            None => {
                notes.push(format!("the URL has no parameter `{}`, so nothing is exempt by it", cut(&name)));
            }
        }
    }
    paths.extend(name_list(&exclusions.texts("request_headers"), "request.headers."));
    paths.extend(name_list(&exclusions.texts("response_headers"), "response.headers."));
    for (key, side) in [("request_body_paths", "request"), ("response_body_paths", "response")] {
        let cursors = exclusions.texts(key);
        if !cursors.is_empty() {
            notes.push("a path exempts one value; name each value below an object".to_owned());
        }
        paths.extend(cursors.iter().map(|cursor| format!("{side}.body.${}", cursor.replace("[]", "[*]"))));
    }
    paths
}
