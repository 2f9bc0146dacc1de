//! Anthropic's messages, whose usage counts cached input apart and stands in two events of a stream.

use std::sync::Arc;

use serde_json::{Value, json};

use super::framing::{Event, Framing};
use super::generation::Generation;
use super::script::EventScript;

/// The response in one piece.
pub(super) fn unary(call: &Generation) -> Value {
    let mut message = message(call);
    message["content"] = json!([{ "type": "text", "text": call.whole_text() }]);
    message["stop_reason"] = stop_reason(call).into();
    message["usage"] = usage(call, call.cost.output);
    message
}

/// The response as a stream.
pub(super) fn script(call: &Arc<Generation>) -> EventScript {
    let mut message = message(call);
    message["usage"] = usage(call, call.cost.output.min(1));
    // The output of the last event is that of the whole message, not what came since the first event.
    let mut ended = json!({ "output_tokens": call.cost.output });
    if call.cost.reasoning > 0 {
        ended["output_tokens_details"] = json!({ "thinking_tokens": call.cost.reasoning });
    }
    let delta = json!({ "stop_reason": stop_reason(call), "stop_sequence": null });
    let error = json!({ "error": { "type": "overloaded_error", "message": "Overloaded" } });
    EventScript {
        framing: Framing::Events,
        first: vec![
            Event::typed("message_start", json!({ "message": message })),
            Event::typed(
                "content_block_start",
                json!({ "index": 0, "content_block": { "type": "text", "text": "" } }),
            ),
            Event::typed("ping", json!({})),
        ],
        piece: Box::new(|piece| {
            let delta = json!({ "type": "text_delta", "text": piece.text });
            Event::typed("content_block_delta", json!({ "index": 0, "delta": delta }))
        }),
        last: vec![
            Event::typed("content_block_stop", json!({ "index": 0 })),
            Event::typed("message_delta", json!({ "delta": delta, "usage": ended })),
            Event::typed("message_stop", json!({})),
        ],
        error: Event::typed("error", error),
        keep_alive: "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        begins_alive: false,
    }
}

fn message(call: &Generation) -> Value {
    json!({
        "id": call.id,
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    })
}

fn stop_reason(call: &Generation) -> &'static str {
    if call.is_capped { "max_tokens" } else { "end_turn" }
}

/// The usage with this number of output tokens. Its input excludes what was read from the cache or written.
fn usage(call: &Generation, output: u64) -> Value {
    let cost = call.cost;
    let mut usage = json!({
        "input_tokens": cost.uncached(),
        "cache_read_input_tokens": cost.cache_read,
        "cache_creation_input_tokens": cost.cache_write,
        "cache_creation": {
            "ephemeral_5m_input_tokens": cost.cache_write - cost.cache_write_1h,
            "ephemeral_1h_input_tokens": cost.cache_write_1h,
        },
        "output_tokens": output,
        "service_tier": "standard",
    });
    if cost.reasoning > 0 && output == cost.output {
        usage["output_tokens_details"] = json!({ "thinking_tokens": cost.reasoning });
    }
    usage
}
