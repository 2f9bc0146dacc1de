//! `flows/*.yaml`: graphs of processors as flows of Egret.
//!
//! Every way through a graph becomes a flow, whose conditions are the filters on that way.

use std::collections::{BTreeMap, BTreeSet};

use crate::draft::{Flow, Match, SectionKind};
use crate::report::{ItemOutcome, Untranslatable};
use crate::source::{Mapping, YamlFile, cut};
use crate::yaml::Node;

use super::filter::{Criteria, FlowFilter, flow_filter, processor_filter};
use super::graph::{Graph, Way};
use super::shared::Import;
use super::url::HostAndPath;

/// A flow of the original.
#[derive(Debug)]
pub(super) struct OriginalFlow<'a> {
    pub name: String,
    pub file: &'a str,
    pub filter: FlowFilter,
    pub graph: Graph<'a>,
    /// Criteria of its `Filter`s.
    pub filters: BTreeMap<String, Result<Criteria, Untranslatable>>,
    pub request: Vec<Way>,
    pub response: Vec<Way>,
}

/// Remedies and diagnoses of a processor.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessorParts {
    pub remedies: Vec<Node>,
    pub diagnoses: Vec<Node>,
}

/// The translation of a flow's processors, each once.
#[derive(Debug, Default)]
pub(super) struct Done {
    parts: BTreeMap<(bool, String), ProcessorParts>,
    pub seen: BTreeSet<String>,
}

/// A choice at a filter: its key, and `true` if it hits.
type Choice = (String, bool);

/// A part of a translated flow: the choices that lead to it, and what applies there.
#[derive(Debug)]
struct Section {
    choices: Vec<Choice>,
    steps: BTreeSet<String>,
    parts: ProcessorParts,
}

/// Adds the parts of a step to the piece with the same choices, unless another way has brought them there.
fn place(pieces: &mut Vec<Section>, choices: &[Choice], key: &str, parts: ProcessorParts, is_request: bool) {
    let number = pieces.iter().position(|piece| piece.choices == choices).unwrap_or_else(|| {
        pieces.push(Section {
            choices: choices.to_vec(),
            steps: BTreeSet::new(),
            parts: ProcessorParts::default(),
        });
        pieces.len() - 1
    });
    let piece = &mut pieces[number];
    if !piece.steps.insert(key.to_owned()) {
        return;
    }
    // The last one to see a response is the outermost.
    let at = if is_request { piece.parts.remedies.len() } else { 0 };
    piece.parts.remedies.splice(at..at, parts.remedies);
    piece.parts.diagnoses.extend(parts.diagnoses);
}

impl<'a> Import<'a> {
    pub(super) fn flow_files(&mut self, files: &'a [YamlFile]) {
        let mut sources: Vec<(OriginalFlow<'a>, Mapping<'a>)> = Vec::new();
        for file in files {
            let fields = Mapping::of(&file.name, &file.root, self.findings);
            sources.extend(self.source(&fields).map(|source| (source, fields)));
        }
        // Lunar runs a parent's flow before those of what lies below it.
        sources.sort_by_cached_key(|(source, _)| source.filter.targets.iter().map(HostAndPath::depth).min());
        for (source, fields) in sources {
            let verdict = self.flow(&source);
            fields.done(format!("flow `{}`", cut(&source.name)), verdict);
        }
    }

    /// Reads a flow; one that cannot be translated as a whole is reported here.
    fn source(&mut self, fields: &Mapping<'a>) -> Option<OriginalFlow<'a>> {
        let name = fields.required_text("name");
        let graph = Graph::read(fields);
        let filter = match fields.fields("filter").map(|filter| flow_filter(&filter)) {
            Some(Ok(filter)) => Ok(filter),
            Some(Err(reason)) => Err(reason),
            None => {
                fields.missing("filter");
                return None;
            }
        };
        let ways = graph.ways(&graph.request).and_then(|request| Ok((request, graph.ways(&graph.response)?)));
        let (filter, (request, response)) = match filter.and_then(|filter| Ok((filter, ways?))) {
            Ok(found) => found,
            Err(reason) => {
                let what = format!("flow `{}`", cut(&name));
                self.findings.item(fields.file, fields.at, what, ItemOutcome::Lost(reason.into()));
                return None;
            }
        };
        for host in filter.targets.iter().filter_map(HostAndPath::authority) {
            let _ = self.draft.provider(&host);
        }
        let criteria = |(key, processor): (&String, &super::graph::Processor<'a>)| {
            (processor.kind == "Filter").then(|| (key.clone(), processor_filter(&processor.parameters)))
        };
        let filters = graph.processors.iter().filter_map(criteria).collect();
        Some(OriginalFlow { name, file: fields.file, filter, graph, filters, request, response })
    }

    fn flow(&mut self, source: &OriginalFlow<'a>) -> ItemOutcome {
        let mut done = Done::default();
        let mut retries = Vec::new();
        let mut response = Vec::new();
        for way in &source.response {
            for step in &way.steps {
                let parts = self.response_step(source, way, step, &mut done, &mut retries);
                place(&mut response, &way.choices[..step.choices], &step.key, parts, false);
            }
        }
        response.reverse();
        let mut request = Vec::new();
        for way in &source.request {
            for step in &way.steps {
                let parts = self.step(source, &step.key, true, &mut done);
                place(&mut request, &way.choices[..step.choices], &step.key, parts, true);
            }
        }
        self.unreached(source, &done);
        let mut problems = Vec::new();
        for base in source.filter.matches() {
            self.emit_flows(source, &base, &retries, &request, &response, &mut problems);
        }
        problems.dedup();
        if problems.is_empty() { ItemOutcome::Translated } else { ItemOutcome::Lost(problems.join("; ")) }
    }

    /// Returns the parts of a processor, which is translated and reported once.
    pub(super) fn step(
        &mut self,
        source: &OriginalFlow<'a>,
        key: &str,
        is_request: bool,
        done: &mut Done,
    ) -> ProcessorParts {
        if let Some(known) = done.parts.get(&(is_request, key.to_owned())) {
            return known.clone();
        }
        let parts = match source.graph.processors.get(key) {
            None => {
                let verdict =
                    ItemOutcome::Lost("a processor of another flow: copy it into this one".to_owned());
                let what = format!("flow `{}`: processor `{}`", cut(&source.name), cut(key));
                self.findings.item(source.file, source.at(key), what, verdict);
                ProcessorParts::default()
            }
            Some(processor) => {
                let (parts, verdict) = self.processor(source, processor, is_request, done);
                if !matches!(verdict, ItemOutcome::Lost(_)) {
                    processor.parameters.unread();
                }
                if done.seen.insert(key.to_owned()) || !matches!(verdict, ItemOutcome::Translated) {
                    let what = source.what(key);
                    self.findings.item(source.file, processor.at, what, verdict);
                }
                parts
            }
        };
        done.parts.insert((is_request, key.to_owned()), parts.clone());
        parts
    }

    /// Reports processors that no way leads to.
    fn unreached(&self, source: &OriginalFlow<'a>, done: &Done) {
        for (key, processor) in &source.graph.processors {
            if !done.seen.contains(key) {
                let verdict = ItemOutcome::Different("no arrow leads to it, so it is left out".to_owned());
                self.findings.item(source.file, processor.at, source.what(key), verdict);
            }
        }
    }

    fn emit_flows(
        &mut self,
        source: &OriginalFlow<'a>,
        base: &Match,
        retries: &[Node],
        request: &[Section],
        response: &[Section],
        problems: &mut Vec<String>,
    ) {
        let mut on_request = base.clone();
        on_request.when_response.clear();
        let mut flows: Vec<Flow> = Vec::new();
        if !retries.is_empty() {
            flows.push(Flow { matching: on_request.clone(), remedies: retries.to_vec(), ..Flow::default() });
        }
        for piece in request.iter().filter(|piece| !piece.parts.is_empty()) {
            let Some(matching) = source.conditions(&piece.choices, &on_request, problems) else { continue };
            if !matching.when_response.is_empty() || !base.when_response.is_empty() {
                problems.push("its request side depends on the response, which is not known yet".to_owned());
                continue;
            }
            let ProcessorParts { remedies, diagnoses } = piece.parts.clone();
            match flows.last_mut().filter(|flow| flow.matching == matching) {
                Some(flow) => {
                    flow.remedies.extend(remedies);
                    flow.diagnoses.extend(diagnoses);
                }
                None => flows.push(Flow { matching, remedies, diagnoses, ..Flow::default() }),
            }
        }
        for piece in response.iter().filter(|piece| !piece.parts.is_empty()) {
            let Some(matching) = source.conditions(&piece.choices, base, problems) else { continue };
            let ProcessorParts { remedies, diagnoses } = piece.parts.clone();
            match flows.last_mut().filter(|flow| flow.matching == matching) {
                Some(flow) => {
                    flow.remedies.extend(remedies);
                    flow.diagnoses.extend(diagnoses);
                }
                None => flows.push(Flow { matching, remedies, diagnoses, ..Flow::default() }),
            }
        }
        for mut flow in flows {
            flow.name = self.draft.name(SectionKind::Flow, &source.name);
            self.draft.flows.push(flow);
        }
    }
}

impl ProcessorParts {
    pub fn is_empty(&self) -> bool {
        self.remedies.is_empty() && self.diagnoses.is_empty()
    }
}

impl OriginalFlow<'_> {
    /// The place of a processor, or of the first.
    fn at(&self, key: &str) -> egret_config::Position {
        let processor = self.graph.processors.get(key).or_else(|| self.graph.processors.values().next());
        processor.map_or(egret_config::Position { line: 1, column: 1 }, |processor| processor.at)
    }

    /// Returns `true` if a processor of this kind is on a way of the request side.
    pub fn has_on_request(&self, kind: &str) -> bool {
        let is_it =
            |key: &str| self.graph.processors.get(key).is_some_and(|processor| processor.kind == kind);
        self.request.iter().flat_map(|way| &way.steps).any(|step| is_it(&step.key))
    }

    pub fn what(&self, key: &str) -> String {
        let kind = self.graph.processors.get(key).map_or("", |processor| processor.kind.as_str());
        format!("flow `{}`: processor `{}` ({})", cut(&self.name), cut(key), cut(kind))
    }

    /// The conditions of a way; `None` if one of them cannot be written.
    fn conditions(&self, choices: &[Choice], base: &Match, problems: &mut Vec<String>) -> Option<Match> {
        let mut matching = base.clone();
        for (filter, is_hit) in choices {
            let applied = match self.filters.get(filter) {
                Some(Ok(criteria)) if *is_hit => {
                    criteria.apply(&mut matching);
                    Ok(())
                }
                Some(Ok(criteria)) => criteria.apply_opposite(&mut matching),
                Some(Err(reason)) => Err(reason.clone()),
                None => Err(Untranslatable::from("a filter of another flow")),
            };
            if let Err(reason) = applied {
                problems.push(format!("what follows `{}`: {reason}", cut(filter)));
                return None;
            }
        }
        Some(matching)
    }
}
