//! OpenAI's responses, whose stream ends with an event that repeats the whole response.

use std::sync::Arc;

use serde_json::{Value, json};

use super::framing::{Event, Framing};
use super::generation::Generation;
use super::script::EventScript;

/// The response in one piece.
pub(super) fn unary(call: &Generation) -> Value {
    let mut response = response(call, if call.is_capped { "incomplete" } else { "completed" });
    if call.is_capped {
        response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    }
    response["output"] = json!([item(call, "completed", &[part(&call.whole_text())])]);
    response["usage"] = usage(call);
    response
}

/// The response as a stream.
pub(super) fn script(call: &Arc<Generation>) -> EventScript {
    let created = response(call, "in_progress");
    let first = [
        ("response.created", json!({ "response": created })),
        ("response.in_progress", json!({ "response": created })),
        ("response.output_item.added", json!({ "output_index": 0, "item": item(call, "in_progress", &[]) })),
        ("response.content_part.added", within(call, json!({ "part": part("") }))),
    ];
    let first: Vec<Event> = numbered(0, first);
    let shared = Arc::clone(call);
    let before = first.len() as u64;
    let text = call.whole_text();
    let end = if call.is_capped { "response.incomplete" } else { "response.completed" };
    let last = [
        ("response.output_text.done", within(call, json!({ "text": text, "logprobs": [] }))),
        ("response.content_part.done", within(call, json!({ "part": part(&text) }))),
        (
            "response.output_item.done",
            json!({ "output_index": 0, "item": item(call, "completed", &[part(&text)]) }),
        ),
        (end, json!({ "response": unary(call) })),
    ];
    let mut failed = response(call, "failed");
    failed["error"] = json!({ "code": "server_error", "message": "The server had an error" });
    EventScript {
        framing: Framing::Events,
        first,
        piece: Box::new(move |piece| {
            let delta =
                json!({ "delta": piece.text, "logprobs": [], "sequence_number": before + piece.index });
            Event::typed("response.output_text.delta", within(&shared, delta))
        }),
        last: numbered(before + call.pieces(), last),
        error: Event::typed(
            "response.failed",
            json!({ "response": failed, "sequence_number": before + call.pieces() }),
        ),
        keep_alive: ": keep-alive\n\n",
        begins_alive: false,
    }
}

fn numbered<const N: usize>(from: u64, events: [(&'static str, Value); N]) -> Vec<Event> {
    let numbered = events.into_iter().zip(from..).map(|((name, mut data), number)| {
        data["sequence_number"] = number.into();
        Event::typed(name, data)
    });
    numbered.collect()
}

/// Adds the place of the text to an event.
fn within(call: &Generation, mut data: Value) -> Value {
    data["item_id"] = item_id(call).into();
    data["output_index"] = 0.into();
    data["content_index"] = 0.into();
    data
}

fn item_id(call: &Generation) -> String {
    format!("item_{}", call.id)
}

fn item(call: &Generation, status: &str, content: &[Value]) -> Value {
    json!({
        "id": item_id(call),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn response(call: &Generation, status: &str) -> Value {
    json!({
        "id": call.id,
        "object": "response",
        "created_at": call.created,
        "status": status,
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "model": call.model,
        "output": [],
        "parallel_tool_calls": true,
        "service_tier": "default",
        "tool_choice": "auto",
        "tools": [],
        "usage": null,
    })
}

fn usage(call: &Generation) -> Value {
    let cost = call.cost;
    json!({
        "input_tokens": cost.input,
        "input_tokens_details": { "cached_tokens": cost.cache_read, "cache_write_tokens": cost.cache_write },
        "output_tokens": cost.output,
        "output_tokens_details": { "reasoning_tokens": cost.reasoning },
        "total_tokens": cost.total(),
    })
}
