//! Ollama's chat and completion, streamed as lines of JSON unless the request says otherwise.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use egret_clock::rfc3339;
use serde_json::{Value, json};

use super::dialect::Operation;
use super::framing::{Event, Framing};
use super::generation::Generation;
use super::script::EventScript;

/// The response in one piece.
pub(super) fn unary(call: &Generation) -> Value {
    ended(call, &call.whole_text())
}

/// The response as a stream.
pub(super) fn script(call: &Arc<Generation>) -> EventScript {
    let shared = Arc::clone(call);
    EventScript {
        framing: Framing::Lines,
        first: Vec::new(),
        piece: Box::new(move |piece| Event::unnamed(&line(&shared, &piece.text, false))),
        last: vec![Event::unnamed(&ended(call, ""))],
        error: Event::unnamed(&json!({ "error": "an error was encountered while running the model" })),
        keep_alive: "",
        begins_alive: false,
    }
}

fn line(call: &Generation, text: &str, done: bool) -> Value {
    let created = rfc3339::write(SystemTime::UNIX_EPOCH + Duration::from_secs(call.created));
    let mut line = json!({ "model": call.model, "created_at": created, "done": done });
    if call.operation == Operation::OllamaChat {
        line["message"] = json!({ "role": "assistant", "content": text });
    } else {
        line["response"] = text.into();
    }
    line
}

fn ended(call: &Generation, text: &str) -> Value {
    let mut line = line(call, text, true);
    line["done_reason"] = if call.is_capped { "length" } else { "stop" }.into();
    line["prompt_eval_count"] = call.cost.input.into();
    line["eval_count"] = call.cost.output.into();
    for name in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"] {
        line[name] = 1_000_000.into();
    }
    line
}
