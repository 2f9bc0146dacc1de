//! The usage of a call, in one form for all providers.

use egret_items::words;

/// The usage of one call.
///
/// `input` and `output` are sums. The parts of a sum by cache are disjoint, and so are those by kind of
/// content; no part is more than its sum. What a provider does not tell is 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageRecord {
    /// Tokens of the request, with those read from a cache and written to it.
    pub input: u64,
    /// Part of the input: tokens that were read from a cache.
    pub cache_read: u64,
    /// Part of the input: tokens that were written to a cache.
    pub cache_write: CacheWrites,
    /// Part of the input: tokens of audio.
    pub input_audio: u64,
    /// Part of the input: tokens of images.
    pub input_image: u64,
    /// Tokens of the answer, with those of reasoning that is not shown.
    pub output: u64,
    /// Part of the output: tokens of reasoning.
    pub reasoning: u64,
    /// Part of the output: tokens of audio.
    pub output_audio: u64,
    /// Part of the output: tokens of images.
    pub output_image: u64,
    /// Searches that the provider has made.
    pub searches: u64,
    /// Duration of audio, in milliseconds.
    pub audio_ms: u64,
    /// The cost that the provider tells, in billionths of its currency's unit, rounded up.
    pub cost_nano: Option<u64>,
    /// The cost by the prices of the config, in nano-dollars, rounded up.
    pub priced_nano: Option<u64>,
    /// SHA-256 of the prices by which that was computed: of the table, or of the config's own prices.
    pub priced_by: Option<[u8; 32]>,
    /// The model that has answered, as the provider names it. At most 64 bytes, without control characters.
    pub model: Option<Box<str>>,
    /// The tier that has answered, such as `default`, `priority` or `batch`. At most 16 bytes.
    pub tier: Option<Box<str>>,
    /// The speed that has answered, such as `fast`. At most 16 bytes.
    pub speed: Option<Box<str>>,
    /// The provider's name in OpenTelemetry's conventions, if the caller knows it.
    pub provider: Option<&'static str>,
    /// The rules by which the sums were made. `None` if no tokens were told.
    pub dialect: Option<UsageDialect>,
    /// Origin of the figures.
    pub source: UsageSource,
    /// `true` if the body told an error. A stream can do so behind a status of 200.
    pub has_error: bool,
}

impl UsageRecord {
    /// Returns the cost in nano-dollars: by the prices of the config, else as the provider tells it. Returns
    /// `None` if neither is known.
    pub fn cost(&self) -> Option<u64> {
        self.priced_nano.or(self.cost_nano)
    }

    /// Returns the units of that kind. Returns `None` if they are not known.
    pub fn units(&self, kind: UsageKind) -> Option<u64> {
        let tokens = |tokens: u64| self.dialect.map(|_| tokens);
        match kind {
            UsageKind::Tokens => tokens(self.input.saturating_add(self.output)),
            UsageKind::Input => tokens(self.input),
            UsageKind::Output => tokens(self.output),
            UsageKind::Money => self.cost(),
        }
    }
}

/// A unit of usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageKind {
    /// Input and output together.
    Tokens,
    /// Tokens of the request.
    Input,
    /// Tokens of the answer.
    Output,
    /// Nano-dollars.
    Money,
}

/// Tokens written to a cache, by the time for which they are kept there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheWrites {
    /// For five minutes.
    pub for_5m: u64,
    /// For thirty minutes.
    pub for_30m: u64,
    /// For one hour.
    pub for_1h: u64,
    /// For twelve hours.
    pub for_12h: u64,
    /// For a time that was not told.
    pub other: u64,
}

impl CacheWrites {
    /// Returns the sum.
    pub fn total(self) -> u64 {
        self.for_5m + self.for_30m + self.for_1h + self.for_12h + self.other
    }
}

words! {
    /// Origin of a record's figures.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum UsageSource: word {
        /// The provider has reported them.
        Reported => "reported",
        /// The provider has reported them while it still answered, and then the response broke off or could
        /// not be read further. The call has used at least as much.
        Partial => "partial",
        /// The provider has told nothing.
        #[default]
        None => "none",
    }
}

words! {
    /// The rules by which a provider's figures become sums.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum UsageDialect: word {
        /// Ollama's own API: `prompt_eval_count`, `eval_count`.
        Ollama => "ollama",
        /// OpenAI's Responses API and its images: `input_tokens` includes what was read from a cache.
        Responses => "responses",
        /// Anthropic: `input_tokens` excludes what was read from a cache or written to it.
        Anthropic => "anthropic",
        /// OpenAI's Chat Completions and embeddings, and those who do the same: `prompt_tokens` includes
        /// caches.
        Chat => "chat",
        /// Cohere: `billed_units`.
        Cohere => "cohere",
        /// Gemini: the output is what the total has beside the input, because thoughts are in the candidates
        /// at some endpoints and beside them at others.
        Gemini => "gemini",
        /// Bedrock's Converse: `inputTokens` excludes caches.
        Converse => "converse",
        /// Bedrock's `InvokeModel`: the figures of Bedrock, which exclude caches, whatever the model's vendor
        /// tells.
        Invoke => "invoke",
    }
}
