//! `trace`: propagates W3C Trace Context to providers, or starts a trace.

use std::task::{Context, Poll};

use egret_match::matching::Percent;
use egret_message::trace_context::{Seed, TraceParent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::remedy::{CompileContext, Remedy, Step};

/// Gives each call to a provider its own `traceparent`, within the client's trace or a new one. The diagnosis
/// `traces` exports the spans. Place it inside remedies that repeat calls.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TraceConfig {
    /// Percentage of new traces that are sampled. The client's own sampling flag is kept.
    pub sample: Percent,
}

/// Resolution of the sampling decision: one millionth.
const GRAIN: u64 = 1_000_000;

/// Gives calls a `traceparent`.
#[derive(Debug)]
pub struct Trace {
    sample: Percent,
}

impl Remedy for Trace {
    type Config = TraceConfig;
    type Run = ();

    fn compile(config: &TraceConfig, _site: &mut CompileContext<'_>) -> Option<Self> {
        Some(Self { sample: config.sample })
    }

    fn describe(&self) -> String {
        format!("propagates traces and starts new ones, of which {} % are sampled", self.sample.get())
    }

    fn request(&self, exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        let seed = self.seed(exchange);
        let client = TraceParent::of(exchange.request().fields.all(b"traceparent"));
        let draft = &mut *exchange.draft;
        let parent_id = seed.call_id(draft.calls.saturating_add(1));
        let parent = if let Some(client) = client {
            TraceParent { parent_id, ..client }
        } else {
            // It belongs to a trace that cannot be continued (§3.3.1).
            draft.request.remove(b"tracestate");
            TraceParent { trace_id: seed.trace_id(), parent_id, is_sampled: seed.is_sampled() }
        };
        draft.request.set(b"traceparent", &parent.write());
        Poll::Ready(Step::Next)
    }
}

impl Trace {
    /// Returns the seed of the exchange, which is drawn once.
    fn seed(&self, exchange: &mut Exchange<'_>) -> Seed {
        let draft = &mut *exchange.draft;
        if let Some(seed) = Seed::from_number(draft.trace_seed) {
            return seed;
        }
        #[expect(clippy::cast_precision_loss, reason = "a millionth is exact enough")]
        let is_sampled = (draft.random.up_to(GRAIN - 1) as f64) < self.sample.get() * (GRAIN / 100) as f64;
        let seed = Seed::new(draft.random.draw(), is_sampled);
        draft.trace_seed = seed.get();
        seed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use egret_fixture::{TestFlows, TestStep};

    const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn field(fields: &[String], name: &str) -> Vec<String> {
        let value = |field: &String| Some(field.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
        fields.iter().filter_map(value).collect()
    }

    fn sent(harness: &TestFlows, lines: &str) -> Vec<String> {
        let mut exchange = harness.send(lines);
        assert_eq!(exchange.poll(harness), TestStep::Call);
        exchange.sent(harness).1
    }

    #[test]
    fn a_client_s_trace_goes_on_with_a_span_of_its_own() {
        let harness = TestFlows::with(&json!([{ "trace": {} }]));
        let fields =
            sent(&harness, &format!("GET https://one.example/\ntraceparent: {CLIENT}\ntracestate: a=b"));
        let [parent] = &field(&fields, "traceparent")[..] else { panic!("{fields:?}") };
        assert!(parent.starts_with(&CLIENT[..36]) && parent.ends_with("-01"), "{parent}");
        assert_ne!(parent, CLIENT);
        assert_eq!(field(&fields, "tracestate"), ["a=b"]);
        let unsampled = CLIENT.replace("-01", "-00");
        let fields = sent(&harness, &format!("GET https://one.example/\ntraceparent: {unsampled}"));
        assert!(field(&fields, "traceparent")[0].ends_with("-00"));
    }

    #[test]
    fn a_trace_begins_where_there_is_none_that_can_be_read() {
        for (sample, flags) in [(100, "-01"), (0, "-00")] {
            let harness = TestFlows::with(&json!([{ "trace": { "sample": sample } }]));
            for lines in [
                "GET https://one.example/".to_owned(),
                "GET https://one.example/\ntraceparent: nonsense\ntracestate: a=b".to_owned(),
                format!(
                    "GET https://one.example/\ntraceparent: {CLIENT}\ntraceparent: {CLIENT}\ntracestate: a=b"
                ),
            ] {
                let fields = sent(&harness, &lines);
                let [parent] = &field(&fields, "traceparent")[..] else { panic!("{fields:?}") };
                assert!(
                    TraceParent::read(parent.as_bytes()).is_some() && parent.ends_with(flags),
                    "{parent}"
                );
                assert!(
                    !parent.contains(&CLIENT[3..35]) && field(&fields, "tracestate").is_empty(),
                    "{fields:?}"
                );
            }
        }
    }

    #[test]
    fn each_call_has_a_span_of_its_own_in_one_trace() {
        let harness =
            TestFlows::with(&json!([{ "retry": { "attempts": 2, "on": ["5xx"] } }, { "trace": {} }]));
        let mut exchange = harness.send("GET https://one.example/");
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        let first = field(&exchange.sent(&harness).1, "traceparent");
        assert!(matches!(exchange.response(&harness, "503"), TestStep::Repeat(_)));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        let second = field(&exchange.sent(&harness).1, "traceparent");
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_eq!(first[0][..36], second[0][..36]);
        assert_ne!(first, second);
        let seed = Seed::from_number(exchange.draft.trace_seed).unwrap();
        let second = TraceParent::read(second[0].as_bytes()).unwrap();
        assert_eq!((second.trace_id, second.parent_id), (seed.trace_id(), seed.call_id(2)));
    }
}
