//! The response side of a flow: retries, and what depends on the status.

use crate::report::ItemOutcome;
use crate::yaml::Node;

use super::flow::{Done, OriginalFlow, ProcessorParts};
use super::graph::{FlowStep, Way};
use super::remedies::{repeated, unsafe_method, verdict};
use super::shared::Import;

/// The outcomes that Egret repeats if none are named.
const REPEATED: [&str; 2] = ["429", "502-504"];

impl<'a> Import<'a> {
    /// Translates a processor of a way. Retries go into their own list, because they are outermost.
    pub(super) fn response_step(
        &mut self,
        source: &OriginalFlow<'a>,
        way: &Way,
        step: &FlowStep,
        done: &mut Done,
        retries: &mut Vec<Node>,
    ) -> ProcessorParts {
        let Some(processor) = source.graph.processors.get(&step.key) else {
            return self.step(source, &step.key, false, done);
        };
        let is_conditional = way.choices[..step.choices].iter().any(|(filter, _)| {
            matches!(source.filters.get(filter), Some(Ok(criteria)) if criteria.is_on_response())
        });
        match processor.kind.as_str() {
            "Retry" => {
                if done.seen.insert(step.key.clone()) {
                    retries.push(self.retry(source, way, &step.key));
                }
                ProcessorParts::default()
            }
            // It is read together with its `ReadCache`.
            "WriteCache" if source.has_on_request("ReadCache") => ProcessorParts::default(),
            "CustomScript" if is_conditional => {
                done.seen.insert(step.key.clone());
                let reason = "a script after a filter on the response: ask for the status within the script"
                    .to_owned();
                self.findings.item(
                    source.file,
                    processor.at,
                    source.what(&step.key),
                    ItemOutcome::Lost(reason),
                );
                ProcessorParts::default()
            }
            _ => self.step(source, &step.key, false, done),
        }
    }

    fn retry(&mut self, source: &OriginalFlow<'a>, way: &Way, key: &str) -> Node {
        let processor = &source.graph.processors[key];
        let parameters = &processor.parameters;
        let mut notes = Vec::new();
        let attempts = parameters.required_whole("attempts") + 1;
        let cooldown = parameters.number("cooldown_between_attempts_seconds").unwrap_or(0.0);
        let step = parameters.number("cooldown_multiplier").unwrap_or(0.0);
        let max = parameters.number("maximum_cooldown_seconds");
        parameters.unread();
        let mut on: Vec<String> = source.filter.criteria.statuses.clone();
        for (filter, is_hit) in &way.choices {
            if let (Some(Ok(criteria)), true) = (source.filters.get(filter), *is_hit) {
                on.extend(criteria.statuses.iter().cloned());
            }
        }
        if on.is_empty() {
            on = REPEATED.map(str::to_owned).to_vec();
            notes.push("no filter names the statuses to repeat: 429 and 502 to 504 are".to_owned());
        }
        let (factor, base) = if step > 0.0 {
            notes.push("each wait is twice the one before; in Lunar it grows by the same time".to_owned());
            (2.0, cooldown + step)
        } else {
            (1.0, cooldown)
        };
        notes.extend(unsafe_method(&source.filter.methods));
        notes.push("a `Retry-After` of the provider is obeyed up to 30 s (`retry_after_max`)".to_owned());
        let node = repeated(attempts, on, base, factor, max, &mut notes);
        self.findings.item(source.file, processor.at, source.what(key), verdict(&notes));
        node
    }
}
