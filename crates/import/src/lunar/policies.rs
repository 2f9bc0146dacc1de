//! `policies.yaml`: remedies and diagnoses of endpoints, and those of every call.

use egret_config::YamlNode;

use crate::draft::{Flow, Match, SectionKind};
use crate::report::ItemOutcome;
use crate::source::{Mapping, YamlFile, cut};
use crate::yaml::Node;

use super::remedies::{Placed, Scope};
use super::shared::Import;
use super::url::HostAndPath;

impl<'a> Import<'a> {
    pub(super) fn policies(&mut self, file: &'a YamlFile) {
        let root = Mapping::of(&file.name, &file.root, self.findings);
        self.read_accounts(&root, file);
        self.read_exporters(&root);
        self.domains(&root);
        let endpoints = root.each("endpoints");
        // Endpoints come first, so that every provider is known when a global remedy needs them all.
        let mut flows: Vec<Flow> = Vec::new();
        for endpoint in &endpoints {
            flows.extend(self.endpoint(endpoint));
        }
        if let Some(global) = root.fields("global") {
            let scope = Scope { name: "all".to_owned(), target: None, matching: Match::default() };
            let (outer, inner) = self.scope(&global, &scope);
            global.unread();
            flows.splice(0..0, outer);
            flows.extend(inner);
        }
        self.draft.flows.extend(flows);
        root.unread();
    }

    fn endpoint(&mut self, endpoint: &Mapping<'a>) -> Vec<Flow> {
        let target = HostAndPath::parse(&endpoint.required_text("url"));
        let method = endpoint.required_text("method");
        let matching = Match {
            host: Some(target.host.clone()).filter(|host| !host.is_empty()).into_iter().collect(),
            path: target.path.clone().into_iter().collect(),
            method: Some(method.clone())
                .filter(|method| !matches!(method.as_str(), "" | "*"))
                .into_iter()
                .collect(),
            ..Match::default()
        };
        if let Some(host) = target.authority() {
            let _ = self.draft.provider(&host);
        }
        let path = target.path.as_deref().unwrap_or("");
        let name = format!("{method} {}{path}", target.host);
        let scope = Scope { name, target: Some(target), matching };
        let (outer, inner) = self.scope(endpoint, &scope);
        endpoint.unread();
        outer.into_iter().chain(inner).collect()
    }

    /// Translates the remedies and diagnoses of an endpoint, or of all. Returns the flow that must be
    /// outermost, and the others.
    fn scope(&mut self, fields: &Mapping<'a>, scope: &Scope) -> (Option<Flow>, Vec<Flow>) {
        let mut placed: Vec<Placed> = Vec::new();
        for remedy in fields.each("remedies") {
            placed.extend(self.remedy(remedy, scope));
        }
        let mut diagnoses: Vec<Node> = Vec::new();
        for diagnosis in fields.each("diagnosis") {
            diagnoses.extend(self.diagnosis(diagnosis, scope));
        }
        // The order of the file decides, as in Lunar; retries repeat everything, and credentials come before
        // what depends on them.
        placed.sort_by_key(|placed| placed.rank);
        let (retries, others): (Vec<Placed>, Vec<Placed>) =
            placed.into_iter().partition(|placed| placed.rank == 0 && scope.target.is_none());
        let mut outer = self.flows_of(&format!("{}-retry", scope.name), scope, retries);
        let mut inner = self.flows_of(&scope.name, scope, others);
        match inner.last_mut().filter(|flow| flow.matching == scope.matching) {
            Some(last) => last.diagnoses = diagnoses,
            None if diagnoses.is_empty() => {}
            None => inner.push(self.new_flow(&scope.name, scope, diagnoses)),
        }
        (outer.pop(), inner)
    }

    fn new_flow(&mut self, name: &str, scope: &Scope, diagnoses: Vec<Node>) -> Flow {
        let name = self.draft.name(SectionKind::Flow, name);
        Flow { name, matching: scope.matching.clone(), diagnoses, ..Flow::default() }
    }

    /// Puts remedies into as few flows as their conditions allow.
    fn flows_of(&mut self, name: &str, scope: &Scope, placed: Vec<Placed>) -> Vec<Flow> {
        let mut flows: Vec<Flow> = Vec::new();
        for Placed { node, header, .. } in placed {
            let mut matching = scope.matching.clone();
            matching.header.extend(header);
            if let Some(flow) = flows.last_mut().filter(|flow| flow.matching == matching) {
                flow.remedies.push(node);
            } else {
                let name = self.draft.name(SectionKind::Flow, name);
                flows.push(Flow { name, matching, remedies: vec![node], ..Flow::default() });
            }
        }
        flows
    }

    fn remedy(&mut self, remedy: Mapping<'a>, scope: &Scope) -> Vec<Placed> {
        let name = remedy.required_text("name");
        let enabled = remedy.flag("enabled").unwrap_or(false);
        let Some((kind, config)) = single(&remedy) else { return Vec::new() };
        let what = format!("remedy `{}` ({})", cut(&name), cut(kind));
        if !enabled {
            remedy.done(what, ItemOutcome::Different("it is not enabled, so it is left out".to_owned()));
            return Vec::new();
        }
        let config = Mapping::of(remedy.file, config, self.findings);
        let (placed, verdict) = self.remedy_of_kind(&name, kind, &config, scope);
        if !matches!(verdict, ItemOutcome::Lost(_)) {
            config.unread();
        }
        remedy.done(what, verdict);
        placed
    }

    fn diagnosis(&mut self, diagnosis: Mapping<'a>, scope: &Scope) -> Option<Node> {
        let name = diagnosis.required_text("name");
        let enabled = diagnosis.flag("enabled").unwrap_or(false);
        let export = diagnosis.text("export");
        let (kind, config) = single(&diagnosis)?;
        let what = format!("diagnosis `{}` ({})", cut(&name), cut(kind));
        if !enabled {
            diagnosis.done(what, ItemOutcome::Different("it is not enabled, so it is left out".to_owned()));
            return None;
        }
        let config = Mapping::of(diagnosis.file, config, self.findings);
        let (node, verdict) = self.diagnosis_of_kind(kind, &config, export.as_deref(), scope);
        if !matches!(verdict, ItemOutcome::Lost(_)) {
            config.unread();
        }
        diagnosis.done(what, verdict);
        node
    }
}

/// The only kind in a remedy's or diagnosis' `config`, and its settings.
fn single<'a>(fields: &Mapping<'a>) -> Option<(&'a str, &'a YamlNode)> {
    let Some(config) = fields.fields("config") else {
        fields.missing("config");
        return None;
    };
    if let [entry] = config.all().as_slice() {
        return Some((entry.key, entry.node));
    }
    config.bad(config.at, "`config` must have exactly one key, the kind");
    None
}
