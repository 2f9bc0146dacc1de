//! Bedrock's `InvokeModel`, with the bodies of Anthropic's and Meta's models, and its Converse.

use std::sync::Arc;

use serde_json::{Value, json};

use super::anthropic;
use super::framing::{Event, Framing};
use super::generation::Generation;
use super::script::EventScript;

/// The content of an invocation, in the form of the model's vendor.
pub(super) fn invoke(call: &Generation) -> Value {
    if is_anthropic(call) { anthropic::unary(call) } else { meta(call, &call.whole_text(), true) }
}

/// The header fields that state the usage of an invocation. For AI21's and Cohere's models there are none.
pub(super) fn usage_fields(call: &Generation) -> Vec<(&'static str, u64)> {
    if ["ai21.", "cohere."].iter().any(|vendor| call.model.contains(vendor)) {
        return Vec::new();
    }
    let cost = call.cost;
    vec![
        ("x-amzn-bedrock-input-token-count", cost.uncached()),
        ("x-amzn-bedrock-output-token-count", cost.output),
        ("x-amzn-bedrock-cache-read-input-token-count", cost.cache_read),
        ("x-amzn-bedrock-cache-write-input-token-count", cost.cache_write),
    ]
}

/// The stream of an invocation: the vendor's events, the last with metrics of the invocation.
pub(super) fn invoke_script(call: &Arc<Generation>) -> EventScript {
    let mut script = if is_anthropic(call) { anthropic::script(call) } else { meta_script(call) };
    let chunk = |event: Event| Event { name: "chunk", ..event };
    script.framing = Framing::AwsBytes;
    script.first = script.first.into_iter().map(chunk).collect();
    script.last = script.last.into_iter().map(chunk).collect();
    let piece = script.piece;
    script.piece = Box::new(move |text| chunk(piece(text)));
    if let Some(last) = script.last.last_mut()
        && let Ok(Value::Object(mut data)) = serde_json::from_str(&last.data)
    {
        data.insert("amazon-bedrock-invocationMetrics".to_owned(), metrics(call));
        last.data = Value::Object(data).to_string();
    }
    script.error = Event::exception("modelStreamErrorException", "The model had an error");
    script.keep_alive = "";
    script
}

fn is_anthropic(call: &Generation) -> bool {
    call.model.contains("anthropic.")
}

fn metrics(call: &Generation) -> Value {
    let cost = call.cost;
    json!({
        "inputTokenCount": cost.uncached(),
        "outputTokenCount": cost.output,
        "cacheReadInputTokenCount": cost.cache_read,
        "cacheWriteInputTokenCount": cost.cache_write,
        "invocationLatency": 1,
        "firstByteLatency": 1,
    })
}

fn meta(call: &Generation, text: &str, is_last: bool) -> Value {
    let mut body = json!({ "generation": text, "prompt_token_count": call.cost.input, "stop_reason": null });
    if is_last {
        body["generation_token_count"] = call.cost.output.into();
        body["stop_reason"] = if call.is_capped { "length" } else { "stop" }.into();
    }
    body
}

fn meta_script(call: &Arc<Generation>) -> EventScript {
    let shared = Arc::clone(call);
    let error = Event::exception("modelStreamErrorException", "The model had an error");
    EventScript {
        framing: Framing::AwsBytes,
        first: Vec::new(),
        piece: Box::new(move |piece| Event::unnamed(&meta(&shared, &piece.text, false))),
        last: vec![Event::unnamed(&meta(call, "", true))],
        error,
        keep_alive: "",
        begins_alive: false,
    }
}

/// The response of Converse.
pub(super) fn converse(call: &Generation) -> Value {
    json!({
        "output": { "message": { "role": "assistant", "content": [{ "text": call.whole_text() }] } },
        "stopReason": stop_reason(call),
        "usage": usage(call),
        "metrics": { "latencyMs": 1 },
    })
}

/// The stream of Converse.
pub(super) fn converse_script(call: &Arc<Generation>) -> EventScript {
    EventScript {
        framing: Framing::Aws,
        first: vec![Event::named("messageStart", &json!({ "role": "assistant", "p": "abcd" }))],
        piece: Box::new(|piece| {
            let delta = json!({ "contentBlockIndex": 0, "delta": { "text": piece.text }, "p": "abcdef" });
            Event::named("contentBlockDelta", &delta)
        }),
        last: vec![
            Event::named("contentBlockStop", &json!({ "contentBlockIndex": 0, "p": "ab" })),
            Event::named("messageStop", &json!({ "stopReason": stop_reason(call), "p": "abc" })),
            Event::named("metadata", &json!({ "usage": usage(call), "metrics": { "latencyMs": 1 } })),
        ],
        error: Event::exception("modelStreamErrorException", "The model had an error"),
        keep_alive: "",
        begins_alive: false,
    }
}

fn stop_reason(call: &Generation) -> &'static str {
    if call.is_capped { "max_tokens" } else { "end_turn" }
}

/// The usage of Converse. Its input excludes what was read from the cache or written, the total does not.
fn usage(call: &Generation) -> Value {
    let cost = call.cost;
    json!({
        "inputTokens": cost.uncached(),
        "outputTokens": cost.output,
        "totalTokens": cost.total(),
        "cacheReadInputTokens": cost.cache_read,
        "cacheWriteInputTokens": cost.cache_write,
    })
}
