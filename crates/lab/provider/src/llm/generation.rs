//! A call as its dialect answers it: what was asked, what it costs, and the text.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use serde_json::Value;

use super::cost::Cost;
use super::dialect::{Dialect, Operation};
use super::script::TextPiece;
use crate::error::ProviderError;
use crate::parameters::Parameters;

/// Maximum number of tokens of each kind.
const TOKENS_MAX: usize = 10_000_000;

/// Maximum number of words in a text. A response with more tokens is billed for all of them.
const WORDS_MAX: u64 = 20_000;

/// Maximum number of choices or candidates.
const CHOICES_MAX: u64 = 8;

/// Maximum length in bytes of names that clients choose, in responses and in the ledger.
const NAME_BYTES_MAX: usize = 256;

/// Members that declare a maximum of output tokens.
const OUTPUT_CAPS: [&str; 8] = [
    "/max_completion_tokens",
    "/max_output_tokens",
    "/max_tokens",
    "/max_gen_len",
    "/generationConfig/maxOutputTokens",
    "/generation_config/max_output_tokens",
    "/inferenceConfig/maxTokens",
    "/options/num_predict",
];

/// A call as its dialect answers it.
#[derive(Debug, Clone)]
pub(super) struct Generation {
    pub dialect: Dialect,
    pub operation: Operation,
    /// The model, from the path or the content.
    pub model: String,
    /// Name of the caller, for the ledger.
    pub consumer: String,
    pub streamed: bool,
    pub usage: UsageWish,
    /// Number of choices or candidates.
    pub choices: u64,
    /// `true` if the output ended at its declared maximum.
    pub is_capped: bool,
    pub cost: Cost,
    /// Number of words in the text, at most one for each token that is not reasoning.
    pub words: u64,
    /// Number of words in each event of a stream except the last, at least 1.
    pub words_per_event: u64,
    /// The text begins with what looks like usage.
    pub trap: bool,
    /// Id of the response.
    pub id: String,
    /// Seconds since 1970 (UTC).
    pub created: u64,
    /// The request's content.
    pub content: Value,
}

/// The usage that a request for a stream of chat asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageWish {
    Unasked,
    /// `stream_options.include_usage`.
    AtEnd,
    /// vLLM's `stream_options.continuous_usage_stats`: in each chunk, and at the end.
    Always,
}

impl Generation {
    /// Reads a call. `number` is unique; the model is in the path or in the content.
    pub fn read(
        dialect: Dialect,
        operation: Operation,
        model: Option<&str>,
        parameters: Parameters<'_>,
        content: &Bytes,
        number: u64,
    ) -> Result<Self, ProviderError> {
        let json: Value = serde_json::from_slice(content)
            .map_err(|error| ProviderError::bad_request(format!("the content is not JSON: {error}")))?;
        let text = |pointer: &str| json.pointer(pointer).and_then(Value::as_str);
        let asks = |object: &str, name: &str| json.pointer(object).is_some_and(|it| it[name] == true);
        let whole = |pointer: &str| json.pointer(pointer).and_then(Value::as_u64);
        let choices = whole("/n").or_else(|| whole("/generationConfig/candidateCount")).unwrap_or(1);
        let choices = choices.clamp(1, CHOICES_MAX);
        let cap = OUTPUT_CAPS.iter().filter_map(|pointer| whole(pointer)).max();
        let cap = cap.map(|cap| cap.saturating_mul(choices));
        let has_output = operation != Operation::Embeddings;
        let cost = Cost::read(parameters, content, cap, choices)?;
        let cost = if has_output { cost } else { Cost { output: 0, reasoning: 0, ..cost } };
        let consumer: Option<String> = parameters.parsed("consumer")?;
        let consumer = consumer.as_deref().or_else(|| text("/user")).or_else(|| text("/metadata/user_id"));
        let visible = if operation.has_text() { cost.output - cost.reasoning } else { 0 };
        let words = visible.min(WORDS_MAX);
        let usage = match ["continuous_usage_stats", "include_usage"].map(|it| asks("/stream_options", it)) {
            [true, _] => UsageWish::Always,
            [false, true] => UsageWish::AtEnd,
            [false, false] => UsageWish::Unasked,
        };
        let events = parameters.count("events", TOKENS_MAX, 1..=TOKENS_MAX)? as u64;
        Ok(Self {
            dialect,
            operation,
            model: bounded(model.or_else(|| text("/model")).unwrap_or("default")),
            consumer: bounded(consumer.unwrap_or_default()),
            streamed: operation.streams(json.get("stream").and_then(Value::as_bool)),
            usage,
            choices,
            is_capped: cap.is_some_and(|cap| cap > 0 && cost.output >= cap),
            cost,
            words,
            words_per_event: words.div_ceil(events).max(1),
            trap: parameters.parsed("trap")?.unwrap_or(false),
            id: format!("{}{number:024x}", operation.id_prefix()),
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            content: json,
        })
    }

    /// The words of the text from one position to another. The position is that of the first word in the
    /// whole text.
    pub fn text(&self, from: u64, to: u64) -> String {
        const WORDS: [&str; 12] = [
            "The ", "white ", "bird ", "stands ", "in ", "the ", "shallow ", "water ", "and ", "waits ",
            "for ", "fish. ",
        ];
        let mut text = String::new();
        if self.trap && from == 0 {
            text.push_str("{\"usage\":{\"output_tokens\":0}} ");
        }
        let all = (from..to).zip(WORDS.iter().cycle().skip(usize::try_from(from % 12).unwrap_or(0)));
        text.extend(all.map(|(_, word)| *word));
        text
    }

    /// The text of the stream's event with this index.
    pub fn piece(&self, index: u64) -> TextPiece {
        let from = (index * self.words_per_event).min(self.words);
        let to = (from + self.words_per_event).min(self.words);
        TextPiece { index, text: self.text(from, to), produced: self.produced(to) }
    }

    /// The whole text.
    pub fn whole_text(&self) -> String {
        self.text(0, self.words)
    }

    /// Number of events that carry the text of a stream.
    pub fn pieces(&self) -> u64 {
        self.words.div_ceil(self.words_per_event)
    }

    /// Number of output tokens that are made once this many words are.
    fn produced(&self, words: u64) -> u64 {
        let visible = self.cost.output - self.cost.reasoning;
        self.cost.reasoning + (visible * words).checked_div(self.words).unwrap_or(visible)
    }
}

impl Cost {
    /// Reads the cost that the call asks for. Without it, the cost follows from the content: a token of input
    /// for four bytes, and 1 to 256 tokens of output for each choice, by its CRC-32, at most the declared
    /// maximum.
    fn read(
        parameters: Parameters<'_>,
        content: &Bytes,
        cap: Option<u64>,
        choices: u64,
    ) -> Result<Self, ProviderError> {
        let read = |name: &str, default: u64| -> Result<u64, ProviderError> {
            let default = usize::try_from(default).unwrap_or(TOKENS_MAX).min(TOKENS_MAX);
            Ok(parameters.count(name, default, 0..=TOKENS_MAX)? as u64)
        };
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let output = ((1 + u64::from(crc.sum() % 256)) * choices).min(cap.unwrap_or(u64::MAX));
        let cost = Self {
            input: read("input", content.len().div_ceil(4) as u64)?,
            cache_read: read("cached", 0)?,
            cache_write: read("written", 0)?,
            cache_write_1h: read("written_1h", 0)?,
            output: read("output", output)?,
            reasoning: read("reasoning", 0)?,
        };
        for (part, whole, is_within) in [
            ("cached and written", "input", cost.cache_read + cost.cache_write <= cost.input),
            ("written_1h", "written", cost.cache_write_1h <= cost.cache_write),
            ("reasoning", "output", cost.reasoning <= cost.output),
        ] {
            if !is_within {
                return Err(ProviderError::parameter(part, format_args!("more than {whole}")));
            }
        }
        Ok(cost)
    }
}

/// The beginning of a text that a client chose.
fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::call::ProviderCall;
    use crate::fixture::request;

    fn read(query: &str, content: &'static str) -> Result<Generation, ProviderError> {
        let call = ProviderCall::new(request("POST", &format!("/x?{query}"), &[], ""), Arc::default());
        let (parameters, content) = (Parameters::of(&call), Bytes::from_static(content.as_bytes()));
        Generation::read(Dialect::Openai, Operation::Chat, None, parameters, &content, 1)
    }

    #[test]
    fn a_cost_follows_from_the_content_unless_it_is_set() {
        let (one, same) = (read("", r#"{"model":"m"}"#).unwrap(), read("", r#"{"model":"m"}"#).unwrap());
        assert_eq!((one.cost, one.cost.input), (same.cost, 4));
        assert!((1..=256).contains(&one.cost.output) && one.model == "m" && !one.is_capped);
        let capped = read("", r#"{"max_tokens":1,"n":3}"#).unwrap();
        assert_eq!((capped.cost.output, capped.choices, capped.is_capped), (3, 3, true));
        let set = read("input=100&cached=60&written=30&written_1h=10&output=50&reasoning=20", "{}").unwrap();
        assert_eq!((set.cost.uncached(), set.cost.total(), set.words), (10, 150, 30));
    }

    #[test]
    fn a_part_above_its_sum_is_refused() {
        for query in
            ["input=5&cached=6", "input=5&cached=3&written=3", "output=1&reasoning=2", "written_1h=1"]
        {
            assert!(read(query, "{}").is_err(), "{query}");
        }
        assert!(read("", "not JSON").is_err());
        assert!(read("output=10000001", "{}").is_err());
    }

    #[test]
    fn pieces_of_the_text_make_up_the_whole() {
        let made = read("output=30&reasoning=3&events=6&trap=true", "{}").unwrap();
        let pieces: Vec<TextPiece> = (0..made.pieces()).map(|index| made.piece(index)).collect();
        assert_eq!(pieces.iter().map(|piece| piece.produced).collect::<Vec<_>>(), [8, 13, 18, 23, 28, 30]);
        let pieces: String = pieces.into_iter().map(|piece| piece.text).collect();
        assert_eq!(pieces, made.whole_text());
        assert!(pieces.starts_with(r#"{"usage":{"output_tokens":0}} The white bird"#), "{pieces}");
    }
}
