//! OpenAI's chat completions, in the forms of all that follow it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::framing::{Event, Framing};
use super::generation::{Generation, UsageWish};
use super::script::{EventScript, TextPiece};

/// The price that the dialect `openrouter` states, in nano-dollars per token of input and of output.
const INPUT_NANODOLLARS: u64 = 1_000;
const OUTPUT_NANODOLLARS: u64 = 2_000;

/// The response in one piece.
pub(super) fn unary(call: &Generation) -> Value {
    let choices = (0..call.choices).map(|index| {
        json!({
            "index": index,
            "message": { "role": "assistant", "content": call.whole_text(), "refusal": null },
            "logprobs": null,
            "finish_reason": finish_reason(call),
        })
    });
    let mut response = envelope(call, "chat.completion", &choices.collect::<Vec<_>>());
    response["usage"] = usage(call, call.cost.output);
    match call.dialect {
        Dialect::Groq => response["x_groq"] = json!({ "id": call.id }),
        Dialect::LlamaCpp => response["timings"] = timings(call),
        Dialect::Openai => response["service_tier"] = "default".into(),
        _ => {}
    }
    response
}

/// The response as a stream.
pub(super) fn script(call: &Arc<Generation>) -> EventScript {
    let mut first = Vec::new();
    if call.dialect == Dialect::Azure {
        let mut filtered = chunk(call, &[]);
        filtered["prompt_filter_results"] = json!([{ "prompt_index": 0, "content_filter_results": {} }]);
        first.push(Event::unnamed(&filtered));
    }
    for index in 0..call.choices {
        let delta =
            json!({ "index": index, "delta": { "role": "assistant", "content": "" }, "finish_reason": null });
        let mut opening = chunk(call, &[delta]);
        if call.dialect == Dialect::Groq {
            opening["x_groq"] = json!({ "id": call.id });
        }
        first.push(Event::unnamed(&opening));
    }
    let shared = Arc::clone(call);
    let (keep_alive, begins_alive) = match call.dialect {
        Dialect::Deepseek => (": keep-alive\n\n", true),
        Dialect::Openrouter => (": OPENROUTER PROCESSING\n\n", true),
        _ => (": keep-alive\n\n", false),
    };
    EventScript {
        framing: Framing::Events,
        first,
        piece: Box::new(move |piece| text_chunk(&shared, piece)),
        last: ending(call),
        error: error(call),
        keep_alive,
        begins_alive,
    }
}

fn text_chunk(call: &Generation, piece: &TextPiece) -> Event {
    let index = piece.index % call.choices;
    let delta = json!({ "index": index, "delta": { "content": piece.text }, "logprobs": null, "finish_reason": null });
    let mut chunk = chunk(call, &[delta]);
    if call.usage == UsageWish::Always && call.dialect == Dialect::Vllm {
        chunk["usage"] = usage(call, piece.produced);
    }
    Event::unnamed(&chunk)
}

/// The events after the text: the reason of the end, and usage where the dialect has it.
fn ending(call: &Generation) -> Vec<Event> {
    let finished = (0..call.choices).map(|index| {
        json!({ "index": index, "delta": {}, "logprobs": null, "finish_reason": finish_reason(call) })
    });
    let mut finished = chunk(call, &finished.collect::<Vec<_>>());
    match call.dialect {
        Dialect::Mistral => finished["usage"] = usage(call, call.cost.output),
        Dialect::Groq => {
            finished["x_groq"] = json!({ "id": call.id, "usage": usage(call, call.cost.output) });
        }
        Dialect::LlamaCpp => finished["timings"] = timings(call),
        _ => {}
    }
    let mut events = vec![Event::unnamed(&finished)];
    let always = call.dialect == Dialect::Openrouter;
    if always || (call.usage != UsageWish::Unasked && call.dialect != Dialect::Mistral) {
        let mut told = chunk(call, &[]);
        told["usage"] = usage(call, call.cost.output);
        events.push(Event::unnamed(&told));
    }
    events.push(Event::done());
    events
}

fn error(call: &Generation) -> Event {
    let message = "The server had an error while processing your request";
    Event::unnamed(&match call.dialect {
        Dialect::Groq => {
            let mut chunk = chunk(call, &[]);
            chunk["x_groq"] = json!({ "id": call.id, "error": message });
            chunk
        }
        Dialect::Openrouter => {
            let failed = json!({ "index": 0, "delta": { "content": "" }, "finish_reason": "error" });
            let mut chunk = chunk(call, &[failed]);
            chunk["error"] = json!({ "code": 502, "message": message });
            chunk
        }
        _ => {
            json!({ "error": { "message": message, "type": "server_error", "param": null, "code": null } })
        }
    })
}

fn envelope(call: &Generation, object: &str, choices: &[Value]) -> Value {
    json!({ "id": call.id, "object": object, "created": call.created, "model": call.model, "choices": choices })
}

fn chunk(call: &Generation, choices: &[Value]) -> Value {
    let mut chunk = envelope(call, "chat.completion.chunk", choices);
    let tells_null = matches!(call.dialect, Dialect::Openai | Dialect::Azure | Dialect::Deepseek);
    if call.usage != UsageWish::Unasked && tells_null {
        chunk["usage"] = Value::Null;
    }
    chunk
}

fn finish_reason(call: &Generation) -> &'static str {
    if call.is_capped { "length" } else { "stop" }
}

/// The usage with this number of output tokens. Cached and written tokens are a part of the prompt, and
/// reasoning is a part of the completion.
fn usage(call: &Generation, output: u64) -> Value {
    let cost = call.cost;
    let mut usage = json!({
        "prompt_tokens": cost.input,
        "completion_tokens": output,
        "total_tokens": cost.input + output,
        "prompt_tokens_details": { "cached_tokens": cost.cache_read },
        "completion_tokens_details": { "reasoning_tokens": cost.reasoning },
    });
    match call.dialect {
        Dialect::Openai | Dialect::Azure | Dialect::Openrouter => {
            let details = &mut usage["prompt_tokens_details"];
            details["audio_tokens"] = 0.into();
            details["cache_write_tokens"] = cost.cache_write.into();
            usage["completion_tokens_details"]["audio_tokens"] = 0.into();
        }
        Dialect::Deepseek => {
            usage["prompt_cache_hit_tokens"] = cost.cache_read.into();
            usage["prompt_cache_miss_tokens"] = (cost.input - cost.cache_read).into();
        }
        Dialect::Groq => {
            for name in ["queue_time", "prompt_time", "completion_time", "total_time"] {
                usage[name] = 0.001.into();
            }
        }
        Dialect::Mistral => usage["prompt_audio_seconds"] = Value::Null,
        _ => {}
    }
    if let Some(nanodollars) = stated_cost(call) {
        let dollars = decimal(nanodollars);
        usage["cost"] = dollars.clone();
        usage["cost_details"] = json!({ "upstream_inference_cost": dollars });
    }
    usage
}

/// The cost that the response states, in nano-dollars.
pub(super) fn stated_cost(call: &Generation) -> Option<u64> {
    let cost = call.cost;
    let stated = || cost.input * INPUT_NANODOLLARS + cost.output * OUTPUT_NANODOLLARS;
    (call.dialect == Dialect::Openrouter).then(stated)
}

/// Nano-dollars as a decimal number of dollars. Its digits are the exact ones, because there are fewer than
/// sixteen.
#[expect(clippy::cast_precision_loss, reason = "the sum is below 2^53")]
fn decimal(nanodollars: u64) -> Value {
    (nanodollars as f64 / 1e9).into()
}

fn timings(call: &Generation) -> Value {
    let cost = call.cost;
    json!({
        "cache_n": cost.cache_read,
        "prompt_n": cost.input - cost.cache_read,
        "prompt_ms": 1.0,
        "predicted_n": cost.output,
        "predicted_ms": 1.0,
    })
}
