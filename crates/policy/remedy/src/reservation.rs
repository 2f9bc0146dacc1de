//! The amount of money that is held for a call of a language model until its provider has reported its usage.
//!
//! A bound is never exceeded: the whole input at the dearest rate, and all of the output that the call
//! allows. Bytes bound tokens of plain text only, because a token has at least one byte. A body with anything
//! else is bounded by the model's own maximum. An estimate is what calls have recently cost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use egret_message::Request;
use egret_prices::{ModelPrices, Prices, Rate, Unpriced};
use egret_quota::{Overshoot, Why};
use serde_json::Value;

/// Members whose value is text, or a number or list of such members. Any other member may stand for more
/// tokens than it has bytes: an image, a file, an earlier conversation.
const PLAIN_MEMBERS: [&str; 40] = [
    "model",
    "messages",
    "contents",
    "parts",
    "role",
    "content",
    "text",
    "name",
    "system",
    "instructions",
    "input",
    "prompt_cache_key",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens_to_sample",
    "max_gen_len",
    "maxTokens",
    "maxOutputTokens",
    "candidateCount",
    "num_predict",
    "generationConfig",
    "inferenceConfig",
    "options",
    "temperature",
    "top_p",
    "top_k",
    "topP",
    "topK",
    "n",
    "stop",
    "stop_sequences",
    "stopSequences",
    "seed",
    "stream",
    "stream_options",
    "include_usage",
    "anthropic_version",
    "user",
    "service_tier",
];

/// Pointers to members that declare a maximum of output tokens.
const OUTPUT_CAPS: [&str; 8] = [
    "/max_completion_tokens",
    "/max_tokens",
    "/max_output_tokens",
    "/max_tokens_to_sample",
    "/max_gen_len",
    "/generationConfig/maxOutputTokens",
    "/inferenceConfig/maxTokens",
    "/options/num_predict",
];

/// Pointers to the number of answers that a call asks for.
const ANSWERS: [&str; 3] = ["/n", "/best_of", "/generationConfig/candidateCount"];

/// Tokens that a message or the frame around it may add to its text.
const FRAME_TOKENS: u64 = 64;

/// Output that the first call is expected to have.
const FIRST_OUTPUT: u64 = 1_000;

/// Bytes of text for a token, on average, in an estimate.
const BYTES_PER_TOKEN: u64 = 4;

/// The output tokens that nearly all recent calls have kept within.
#[derive(Debug)]
pub(crate) struct LearnedOutput {
    /// In parts of [`PARTS`], so the number can move by less than a token.
    parts: AtomicU64,
}

/// Parts of a token.
const PARTS: u64 = 256;

impl Default for LearnedOutput {
    fn default() -> Self {
        Self { parts: AtomicU64::new(FIRST_OUTPUT * PARTS) }
    }
}

impl LearnedOutput {
    /// Learns from a call. The number rises fast and falls slowly, in the ratio of 19 to 1: so it settles
    /// where one of twenty calls exceeds it.
    pub fn learn(&self, output: u64) {
        let known = self.parts.load(Relaxed);
        let step = known / 80;
        let is_more = output.saturating_mul(PARTS) > known;
        let next = if is_more { known.saturating_add(step.saturating_mul(19)) } else { known - step };
        self.parts.store(next.max(PARTS), Relaxed);
    }

    fn get(&self) -> u64 {
        self.parts.load(Relaxed).div_ceil(PARTS)
    }
}

/// A call, as far as its price depends on it.
struct PricedCall<'a> {
    model: &'a ModelPrices,
    body: Option<Value>,
    bytes: u64,
}

/// Returns the nano-dollars to hold for a call, or the reason why it must not be made. `family` is the word
/// for the provider in the source of prices.
pub(crate) fn reservation(
    request: &Request<'_>,
    prices: &Prices,
    family: Option<&str>,
    overshoot: Overshoot,
    learned: &LearnedOutput,
) -> Result<u64, Why> {
    // Every call of a model is a POST, or a socket that stays open. Others ask for lists and results.
    if !request.upgrade && matches!(request.method, b"GET" | b"HEAD" | b"OPTIONS" | b"DELETE") {
        return Ok(0);
    }
    let body = request.body.and_then(|body| serde_json::from_slice::<Value>(body).ok());
    let bytes = request.body.map_or(0, |body| u64::try_from(body.len()).unwrap_or(u64::MAX));
    let name = model_of(request.path, body.as_ref());
    let Some(model) = name.as_deref().and_then(|name| prices.of(name, family)) else {
        return match (prices.unpriced(), overshoot) {
            // The provider may still say what the call has cost.
            (Unpriced::Count, Overshoot::Bounded) => Ok(0),
            (Unpriced::Refuse, _) | (_, Overshoot::Never) => Err(Why::Unpriced),
        };
    };
    let call = PricedCall { model, body, bytes };
    match overshoot {
        Overshoot::Never => call.bound().ok_or(Why::Unbounded),
        Overshoot::Bounded => Ok(call.estimate(learned)),
    }
}

impl PricedCall<'_> {
    /// Returns the most that the call can cost. `None` if there is no bound.
    fn bound(&self) -> Option<u64> {
        let body = self.body.as_ref()?;
        let plain = is_plain(body).then(|| self.bytes.saturating_add(FRAME_TOKENS));
        let [for_input, for_output] = self.model.dearest();
        // The model's maximum is that of one input. A call for embeddings, or a list of prompts, has many.
        let is_one = for_output > 0 && !body.get("prompt").is_some_and(Value::is_array);
        let input = plain.or(self.model.input_max.filter(|_| is_one))?;
        let output = match for_output {
            // Embeddings declare no maximum, and need none.
            0 => 0,
            _ => self.output_cap().or(self.model.output_max)?.checked_mul(self.answers())?,
        };
        cost(input, for_input)?.checked_add(cost(output, for_output)?)
    }

    /// Returns about what the call will cost.
    fn estimate(&self, learned: &LearnedOutput) -> u64 {
        let input = self.bytes / BYTES_PER_TOKEN;
        let output = self.output_cap().unwrap_or(u64::MAX).min(learned.get());
        let rate = |rate: Rate| self.model.rate(rate, "", input).unwrap_or_default();
        let sum = cost(input, rate(Rate::Input)).zip(cost(output, rate(Rate::Output)));
        sum.map_or(u64::MAX, |(input, output)| input.saturating_add(output))
    }

    /// The largest declared maximum of output tokens.
    fn output_cap(&self) -> Option<u64> {
        let body = self.body.as_ref()?;
        OUTPUT_CAPS.iter().filter_map(|pointer| body.pointer(pointer)?.as_u64()).max()
    }

    /// The number of answers that the call asks for.
    fn answers(&self) -> u64 {
        let asked = |body: &Value| ANSWERS.iter().filter_map(|pointer| body.pointer(pointer)?.as_u64()).max();
        self.body.as_ref().and_then(asked).unwrap_or(1).max(1)
    }
}

/// Returns nano-dollars for tokens at a price in pico-dollars, rounded up.
fn cost(tokens: u64, picodollars: u64) -> Option<u64> {
    u64::try_from((u128::from(tokens) * u128::from(picodollars)).div_ceil(1_000)).ok()
}

/// Returns `true` if a body is made of text that has at least one byte for each token.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(name, value)| match name.as_str() {
            "type" => matches!(value.as_str(), Some("text" | "input_text" | "output_text" | "message")),
            name => PLAIN_MEMBERS.contains(&name) && is_plain(value),
        }),
        Value::Array(values) => values.iter().all(is_plain),
        _ => true,
    }
}

/// Returns the model that a call names: in its body, or in its path as Gemini and Bedrock have it.
fn model_of(path: &[u8], body: Option<&Value>) -> Option<String> {
    if let Some(model) = body.and_then(|body| body.get("model")?.as_str()) {
        return Some(model.to_owned());
    }
    let path = std::str::from_utf8(path).ok()?;
    let (_, rest) = path.split_once("/models/").or_else(|| path.split_once("/model/"))?;
    let name = rest.split(['/', ':']).next().filter(|name| !name.is_empty())?;
    // Bedrock's names have a colon, which its clients encode.
    Some(name.replace("%3A", ":").replace("%3a", ":"))
}

#[cfg(test)]
mod tests {
    use egret_message::{Changes, Fields};
    use egret_prices::PricesConfig;
    use serde_json::json;

    use super::*;

    /// Prices in US dollars for a million tokens: a nano-dollar is a thousandth of such a token.
    fn prices(unpriced: &str) -> Prices {
        let config: PricesConfig = serde_json::from_value(json!({
            "overrides": { "m": { "input": 1, "output": 10, "cache_write": 1.25 } },
            "unpriced": unpriced,
        }))
        .unwrap();
        Prices::compile(&config).unwrap()
    }

    fn held(path: &str, body: &str, overshoot: Overshoot, unpriced: &str) -> Result<u64, Why> {
        held_by("POST", path, body, overshoot, unpriced)
    }

    fn held_by(
        method: &str,
        path: &str,
        body: &str,
        overshoot: Overshoot,
        unpriced: &str,
    ) -> Result<u64, Why> {
        let changes = Changes::default();
        let request = Request {
            provider: "one",
            tls: true,
            host: "one.example",
            port: 443,
            method: method.as_bytes(),
            path: path.as_bytes(),
            query: None,
            fields: Fields::new(&[], b"", &changes),
            upgrade: false,
            body: Some(body.as_bytes()),
        };
        reservation(&request, &prices(unpriced), None, overshoot, &LearnedOutput::default())
    }

    #[test]
    fn a_request_that_calls_no_model_holds_nothing() {
        for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
            assert_eq!(held_by(method, "/v1/models", "", Overshoot::Never, "refuse"), Ok(0), "{method}");
        }
        assert_eq!(held_by("PUT", "/v1/models", "", Overshoot::Never, "refuse"), Err(Why::Unpriced));
    }

    #[test]
    fn text_is_bound_by_its_bytes_and_output_by_its_cap() {
        let body = r#"{"model":"m","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}"#;
        let input = (body.len() as u64 + FRAME_TOKENS) * 1_250;
        assert_eq!(held("/", body, Overshoot::Never, "count"), Ok(input + 20 * 10_000));
        let more = body.replace("20,", "20,\"n\":3,");
        let input = (more.len() as u64 + FRAME_TOKENS) * 1_250;
        assert_eq!(held("/", &more, Overshoot::Never, "count"), Ok(input + 60 * 10_000));
        let gemini = r#"{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":7}}"#;
        let input = (gemini.len() as u64 + FRAME_TOKENS) * 1_250;
        assert_eq!(
            held("/v1/models/m:generateContent", gemini, Overshoot::Never, "count"),
            Ok(input + 70_000)
        );
    }

    #[test]
    fn embeddings_are_bound_by_their_bytes_alone() {
        let config: PricesConfig =
            serde_json::from_value(json!({ "overrides": { "e": { "input": 1, "output": 0 } } })).unwrap();
        let prices = Prices::compile(&config).unwrap();
        let model = prices.of("e", None).unwrap();
        let body = json!({ "model": "e", "input": ["one", "two"] });
        let call = PricedCall { model, body: Some(body), bytes: 100 };
        assert_eq!(call.bound(), Some((100 + FRAME_TOKENS) * 1_000));
    }

    #[test]
    fn content_beyond_plain_text_has_no_bound() {
        for body in [
            r#"{"model":"m","messages":[]}"#,
            r#"{"model":"m","max_tokens":9,"messages":[{"content":[{"type":"image_url"}]}]}"#,
            r#"{"model":"m","max_tokens":9,"previous_response_id":"r"}"#,
            r#"{"model":"m","max_tokens":9,"tools":[]}"#,
        ] {
            assert_eq!(held("/", body, Overshoot::Never, "count"), Err(Why::Unbounded), "{body}");
            assert!(held("/", body, Overshoot::Bounded, "refuse").is_ok(), "{body}");
        }
    }

    #[test]
    fn a_model_without_a_price_is_refused_or_costs_nothing() {
        for (path, body) in [("/", r#"{"model":"other"}"#), ("/", "{"), ("/model/other/converse", "{}")] {
            for (overshoot, unpriced) in
                [(Overshoot::Never, "refuse"), (Overshoot::Never, "count"), (Overshoot::Bounded, "refuse")]
            {
                assert_eq!(held(path, body, overshoot, unpriced), Err(Why::Unpriced), "{body} {unpriced}");
            }
            assert_eq!(held(path, body, Overshoot::Bounded, "count"), Ok(0), "{body}");
        }
    }

    #[test]
    fn the_estimate_settles_where_one_of_twenty_calls_exceeds_it() {
        for most in [40, 1_000, 100_000] {
            let learned = LearnedOutput::default();
            let mut exceeded = 0;
            for call in 0..30_000_u64 {
                let output = call * 7_919 % most;
                exceeded += u32::from(call >= 20_000 && output > learned.get());
                learned.learn(output);
            }
            assert!(
                (200..800).contains(&exceeded),
                "{exceeded} of 10,000 up to {most}, at {}",
                learned.get()
            );
        }
    }
}
