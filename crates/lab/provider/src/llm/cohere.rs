//! Cohere's chat, version 2, which bills other units than it counts.

use std::sync::Arc;

use serde_json::{Value, json};

use super::framing::{Event, Framing};
use super::generation::Generation;
use super::script::EventScript;

/// Tokens of Cohere's own prompt, which are counted and not billed.
const UNBILLED_INPUT: u64 = 66;

/// The response in one piece.
pub(super) fn unary(call: &Generation) -> Value {
    json!({
        "id": call.id,
        "finish_reason": finish_reason(call),
        "message": { "role": "assistant", "content": [{ "type": "text", "text": call.whole_text() }] },
        "usage": usage(call),
    })
}

/// The response as a stream.
pub(super) fn script(call: &Arc<Generation>) -> EventScript {
    let opening =
        json!({ "role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": [] });
    let text = |text: &str| json!({ "message": { "content": { "type": "text", "text": text } } });
    let ended = json!({ "finish_reason": finish_reason(call), "usage": usage(call) });
    let failed = json!({ "finish_reason": "ERROR", "error": "the model had an error" });
    EventScript {
        framing: Framing::Events,
        first: vec![
            Event::typed("message-start", json!({ "id": call.id, "delta": { "message": opening } })),
            Event::typed("content-start", json!({ "index": 0, "delta": text("") })),
        ],
        piece: Box::new(|piece| {
            let delta = json!({ "message": { "content": { "text": piece.text } } });
            Event::typed("content-delta", json!({ "index": 0, "delta": delta }))
        }),
        last: vec![
            Event::typed("content-end", json!({ "index": 0 })),
            Event::typed("message-end", json!({ "delta": ended })),
        ],
        error: Event::typed("message-end", json!({ "delta": failed })),
        keep_alive: ": keep-alive\n\n",
        begins_alive: false,
    }
}

fn finish_reason(call: &Generation) -> &'static str {
    if call.is_capped { "MAX_TOKENS" } else { "COMPLETE" }
}

/// The usage. Its numbers have a fraction, as Cohere's do.
#[expect(clippy::cast_precision_loss, reason = "numbers of tokens are far below 2^53")]
fn usage(call: &Generation) -> Value {
    let cost = call.cost;
    let (input, output) = (cost.input as f64, cost.output as f64);
    json!({
        "billed_units": { "input_tokens": input, "output_tokens": output },
        "tokens": { "input_tokens": (cost.input + UNBILLED_INPUT) as f64, "output_tokens": output },
        "cached_tokens": cost.cache_read as f64,
    })
}
