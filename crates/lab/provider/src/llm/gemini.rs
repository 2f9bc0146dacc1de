//! Gemini's and Vertex's content generation, whose stream is either events or one JSON array.

use std::sync::Arc;

use serde_json::{Value, json};

use super::dialect::{Dialect, Operation};
use super::framing::{Event, Framing};
use super::generation::Generation;
use super::script::EventScript;

/// The response in one piece.
pub(super) fn unary(call: &Generation) -> Value {
    response(call, &call.whole_text(), Some(finish_reason(call)), call.cost.output)
}

/// The response as a stream. Each element states the usage so far.
pub(super) fn script(call: &Arc<Generation>) -> EventScript {
    let shared = Arc::clone(call);
    let is_events = call.operation == Operation::GenerateStream { events: true };
    let error = json!({ "code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE" });
    EventScript {
        framing: if is_events { Framing::Events } else { Framing::Array },
        first: Vec::new(),
        piece: Box::new(move |piece| Event::unnamed(&response(&shared, &piece.text, None, piece.produced))),
        last: vec![Event::unnamed(&response(call, "", Some(finish_reason(call)), call.cost.output))],
        error: Event::unnamed(&json!({ "error": error })),
        keep_alive: "",
        begins_alive: false,
    }
}

fn finish_reason(call: &Generation) -> &'static str {
    if call.is_capped { "MAX_TOKENS" } else { "STOP" }
}

fn response(call: &Generation, text: &str, finish_reason: Option<&str>, output: u64) -> Value {
    let candidates = (0..call.choices).map(|index| {
        let mut candidate =
            json!({ "index": index, "content": { "role": "model", "parts": [{ "text": text }] } });
        if let Some(reason) = finish_reason {
            candidate["finishReason"] = reason.into();
        }
        candidate
    });
    json!({
        "candidates": candidates.collect::<Vec<_>>(),
        "usageMetadata": usage(call, output),
        "modelVersion": call.model,
        "responseId": call.id,
    })
}

/// The usage with this number of output tokens. Gemini counts thoughts beside the candidates, Vertex among
/// them. Members that would be zero are left out.
fn usage(call: &Generation, output: u64) -> Value {
    let cost = call.cost;
    let candidates = if call.dialect == Dialect::Gemini { output - cost.reasoning } else { output };
    let mut usage = json!({
        "promptTokenCount": cost.input,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": cost.input }],
        "totalTokenCount": cost.input + output,
    });
    for (name, count) in [
        ("candidatesTokenCount", candidates),
        ("cachedContentTokenCount", cost.cache_read),
        ("thoughtsTokenCount", cost.reasoning),
    ] {
        if count > 0 {
            usage[name] = count.into();
        }
    }
    usage
}
