//! OpenAI's embeddings, and its images, of which only usage is imitated.

use std::sync::Arc;

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::framing::{Event, Framing};
use super::generation::Generation;
use super::script::EventScript;
use crate::error::ProviderError;

/// Maximum number of numbers in all vectors of a response: about 10 MB of JSON.
const NUMBERS_MAX: usize = 1 << 20;

/// Default length of a vector.
const DIMENSIONS: usize = 1_536;

const IMAGE: &[u8] = include_bytes!("../assets/image.png");

/// The response with a vector for each input.
pub(super) fn embeddings(call: &Generation) -> Result<Value, ProviderError> {
    let asked = &call.content;
    let count = match &asked["input"] {
        // A list of numbers is one input, of tokens.
        Value::Array(inputs) if inputs.first().is_none_or(|first| !first.is_number()) => inputs.len(),
        _ => 1,
    };
    let dimensions =
        asked["dimensions"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(DIMENSIONS);
    if count.saturating_mul(dimensions) > NUMBERS_MAX {
        let problem = format!("{count} vectors of {dimensions} numbers: at most {NUMBERS_MAX} in all");
        return Err(ProviderError::bad_request(problem));
    }
    let in_base64 = asked["encoding_format"] == "base64";
    let vectors = (0..count).map(|index| {
        let numbers = (0..dimensions).map(|at| number(index, at));
        let embedding: Value = if in_base64 {
            let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
            BASE64.encode(&bytes).into()
        } else {
            numbers.collect::<Vec<f32>>().into()
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    Ok(json!({
        "object": "list",
        "data": vectors.collect::<Vec<_>>(),
        "model": call.model,
        "usage": { "prompt_tokens": call.cost.input, "total_tokens": call.cost.input },
    }))
}

/// A number from -1 to 1 with few digits, the same for the same place.
fn number(index: usize, at: usize) -> f32 {
    let steps = u8::try_from((index * 31 + at * 7) % 129).unwrap_or(64);
    (f32::from(steps) - 64.0) / 64.0
}

/// The response with an image.
pub(super) fn image(call: &Generation) -> Value {
    json!({
        "created": call.created,
        "data": [{ "b64_json": BASE64.encode(IMAGE) }],
        "output_format": "png",
        "usage": image_usage(call),
    })
}

/// The stream of an image: a partial one, and the complete one with usage.
pub(super) fn image_script(call: &Arc<Generation>) -> EventScript {
    let image = BASE64.encode(IMAGE);
    let partial = json!({ "b64_json": image, "partial_image_index": 0, "created_at": call.created });
    let complete = json!({ "b64_json": image, "created_at": call.created, "usage": image_usage(call) });
    let failed = json!({ "error": { "type": "server_error", "message": "The server had an error" } });
    EventScript {
        framing: Framing::Events,
        first: vec![Event::typed("image_generation.partial_image", partial)],
        piece: Box::new(|_| Event::unnamed(&Value::Null)), // An image has no text.
        last: vec![Event::typed("image_generation.completed", complete)],
        error: Event::typed("error", failed),
        keep_alive: ": keep-alive\n\n",
        begins_alive: false,
    }
}

fn image_usage(call: &Generation) -> Value {
    let cost = call.cost;
    json!({
        "input_tokens": cost.input,
        "input_tokens_details": { "text_tokens": cost.input, "image_tokens": 0 },
        "output_tokens": cost.output,
        "output_tokens_details": { "text_tokens": 0, "image_tokens": cost.output },
        "total_tokens": cost.total(),
    })
}
