//! The graph of a flow: processors, and the ways from the start to the end.

use std::collections::BTreeMap;

use egret_config::Position;

use crate::report::Untranslatable;
use crate::source::{Mapping, cut};

/// Maximum number of ways through one side of a flow.
const WAYS_MAX: usize = 16;

/// Maximum number of processors on one way.
const STEPS_MAX: usize = 64;

/// A flow as it is written.
#[derive(Debug)]
pub(super) struct Graph<'a> {
    pub processors: BTreeMap<String, Processor<'a>>,
    pub request: Vec<Edge>,
    pub response: Vec<Edge>,
}

/// A processor.
#[derive(Debug)]
pub(super) struct Processor<'a> {
    pub key: String,
    pub kind: String,
    pub parameters: Mapping<'a>,
    pub at: Position,
}

/// An arrow between two places.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    from: FlowPlace,
    to: FlowPlace,
}

/// A place in a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FlowPlace {
    Start,
    End,
    /// A processor, and on the way out of it the condition.
    Processor(String, Option<String>),
}

/// A processor on a way.
#[derive(Debug, Clone)]
pub(super) struct FlowStep {
    pub key: String,
    /// The number of choices before it.
    pub choices: usize,
}

/// A way from the start to its end: processors, and the choices that lead along it.
#[derive(Debug, Clone, Default)]
pub(super) struct Way {
    pub steps: Vec<FlowStep>,
    /// Filters on the way, and whether they hit.
    pub choices: Vec<(String, bool)>,
}

/// The place that a branch leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Branch {
    /// No arrow leaves the processor under this condition.
    Nowhere,
    /// The exchange goes on.
    Passes,
    /// A processor comes next.
    Processor(String),
}

impl<'a> Graph<'a> {
    /// Reads the processors and arrows of a flow.
    pub fn read(fields: &Mapping<'a>) -> Self {
        let mut processors = BTreeMap::new();
        if let Some(listed) = fields.fields("processors") {
            for entry in listed.all() {
                let processor = listed.of_node(entry.node);
                processor.ignore(&["metrics"]);
                let kind = processor.required_text("processor");
                let parameters = processor.parameters("parameters");
                processor.unread();
                let key = entry.key.to_owned();
                processors.insert(key.clone(), Processor { key, kind, parameters, at: entry.key_at });
            }
        }
        let mut graph = Self { processors, request: Vec::new(), response: Vec::new() };
        match fields.fields("flow") {
            None => fields.missing("flow"),
            Some(sides) => {
                graph.request = graph.edges(&sides, "request");
                graph.response = graph.edges(&sides, "response");
                sides.unread();
            }
        }
        graph
    }

    fn edges(&self, sides: &Mapping<'a>, side: &str) -> Vec<Edge> {
        let edge = |edge: Mapping<'a>| {
            let (from, to) = (self.place(&edge, "from"), self.place(&edge, "to"));
            edge.unread();
            Some(Edge { from: from?, to: to? })
        };
        sides.each(side).into_iter().filter_map(edge).collect()
    }

    fn place(&self, edge: &Mapping<'a>, key: &str) -> Option<FlowPlace> {
        let Some(place) = edge.fields(key) else {
            edge.missing(key);
            return None;
        };
        if let Some(processor) = place.fields("processor") {
            let name = processor.required_text("name");
            // A processor of another flow, as `Flow.processor`, is read where it stands.
            if !self.processors.contains_key(&name) && !name.contains('.') {
                processor.bad(processor.at, format!("no processor is called `{}`", cut(&name)));
            }
            return Some(FlowPlace::Processor(name, processor.text("condition")));
        }
        for kind in ["stream", "flow"] {
            if let Some(stream) = place.fields(kind) {
                stream.ignore(&["name"]);
                return match (stream.text("at").as_deref(), key) {
                    (Some("start" | "end"), "from") if kind == "flow" => Some(FlowPlace::Start),
                    (Some("start"), _) => Some(FlowPlace::Start),
                    (Some("end"), _) => Some(FlowPlace::End),
                    _ => {
                        stream.bad(stream.at, "`at`: expected `start` or `end`");
                        None
                    }
                };
            }
        }
        place.bad(place.at, "expected `stream`, `flow` or `processor`");
        None
    }

    /// Returns every way through a side. An error is the reason why they cannot be followed.
    pub fn ways(&self, edges: &[Edge]) -> Result<Vec<Way>, Untranslatable> {
        let mut ways = Vec::new();
        let mut starts = edges.iter().filter(|edge| edge.from == FlowPlace::Start);
        let Some(first) = starts.next() else { return Ok(ways) };
        if starts.next().is_some() {
            return Err(Untranslatable::from(
                "several arrows leave the start: order the processors in one chain",
            ));
        }
        self.follow(edges, &first.to, Way::default(), &mut ways)?;
        Ok(ways)
    }

    fn follow(
        &self,
        edges: &[Edge],
        place: &FlowPlace,
        mut way: Way,
        ways: &mut Vec<Way>,
    ) -> Result<(), Untranslatable> {
        let FlowPlace::Processor(name, _) = place else {
            ways.push(way);
            return if ways.len() > WAYS_MAX {
                Err(Untranslatable::from(format!("more than {WAYS_MAX} ways lead through it")))
            } else {
                Ok(())
            };
        };
        if way.steps.iter().any(|step| step.key == *name) || way.steps.len() >= STEPS_MAX {
            return Err(Untranslatable::from("the arrows form a circle, or a chain that is too long"));
        }
        way.steps.push(FlowStep { key: name.clone(), choices: way.choices.len() });
        let kind = self.processors.get(name).map_or("", |processor| processor.kind.as_str());
        if kind == "Filter" {
            for (condition, is_hit) in [("hit", true), ("miss", false)] {
                let mut branch = way.clone();
                branch.choices.push((name.clone(), is_hit));
                let next = next(edges, name, condition).unwrap_or(&FlowPlace::End);
                self.follow(edges, next, branch, ways)?;
            }
            return Ok(());
        }
        let condition = match kind {
            "Limiter" => "below_limit",
            "Queue" => "allowed",
            "ReadCache" => "cache_miss",
            "CustomScript" => "success",
            "Retry" => "failed",
            _ => "",
        };
        // What other processors decide is not known; the first arrow is as good as any.
        let first = || edges.iter().find(|edge| edge.from.is(name)).map(|edge| &edge.to);
        let next = if condition.is_empty() { first() } else { next(edges, name, condition) };
        match next {
            Some(next) if kind != "GenerateResponse" => self.follow(edges, next, way, ways),
            _ => self.follow(edges, &FlowPlace::End, way, ways),
        }
    }

    /// The end of a processor's condition on the request side.
    pub fn branch(&self, name: &str, condition: &str) -> Branch {
        match next(&self.request, name, condition) {
            None => Branch::Nowhere,
            Some(FlowPlace::Start | FlowPlace::End) => Branch::Passes,
            Some(FlowPlace::Processor(name, _)) => Branch::Processor(name.clone()),
        }
    }
}

impl FlowPlace {
    fn is(&self, name: &str) -> bool {
        matches!(self, Self::Processor(processor, _) if processor == name)
    }
}

/// The place that an arrow leads to from a processor under a condition, or under none.
fn next<'e>(edges: &'e [Edge], name: &str, condition: &str) -> Option<&'e FlowPlace> {
    let of = |wanted: Option<&str>| {
        let is_it = |edge: &&Edge| matches!(&edge.from, FlowPlace::Processor(from, on) if from == name && on.as_deref() == wanted);
        edges.iter().find(is_it).map(|edge| &edge.to)
    };
    of(Some(condition)).or_else(|| of(None))
}
