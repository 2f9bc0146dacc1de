//! The names under which providers report usage: which members of which objects are read, and as what.

/// A container whose members are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// A list of documents: a stream of Gemini's without events.
    Documents,
    /// A document, or the data of an event.
    Top,
    /// `message` of Anthropic's first event.
    Message,
    /// `response` of OpenAI's last event.
    Response,
    /// `delta` of Cohere's last event.
    Delta,
    /// `x_groq` of Groq's last chunk.
    Groq,
    /// A report that a later one completes.
    FirstUsage,
    /// A report.
    Usage,
    InputDetails,
    CacheWriteDetails,
    OutputDetails,
    CacheCreation,
    ServerTools,
    /// Cohere's figures of what is billed.
    Billed,
    /// Gemini's report.
    Metadata,
    /// Bedrock's report of `InvokeModel`.
    Metrics,
    ToolUsage,
    WebSearch,
    /// A list of [`Entry`](Node::Entry): the calls that an answer of Anthropic's took.
    Iterations,
    /// Lists of entries with a modality and a count.
    InputModalities,
    OutputModalities,
    /// A list of entries with a time and a count.
    CacheDetails,
    /// An object in one of these lists. What it means is known at its end.
    Entry,
}

impl Node {
    /// Returns what an element of this list is. Returns `None` if this is no list.
    pub fn element(self) -> Option<Self> {
        match self {
            Self::Documents => Some(Self::Top),
            Self::Iterations | Self::InputModalities | Self::OutputModalities | Self::CacheDetails => {
                Some(Self::Entry)
            }
            _ => None,
        }
    }

    /// Returns `true` if this reports the usage of the whole call, as far as it has come.
    pub fn is_report(self) -> bool {
        matches!(self, Self::Usage | Self::Metadata | Self::Metrics)
    }
}

/// A figure of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Slot {
    Input,
    Output,
    /// Gemini's sum of everything.
    Total,
    /// Gemini's tokens of tools' results, beside the prompt.
    ToolInput,
    CacheRead,
    CacheWrite,
    CacheWrite5m,
    CacheWrite30m,
    CacheWrite1h,
    CacheWrite12h,
    InputAudio,
    InputImage,
    Reasoning,
    OutputAudio,
    OutputImage,
    Searches,
    AudioMs,
    CostNano,
    /// Usage of Anthropic's iterations that is in no other figure.
    ExtraInput,
    ExtraOutput,
}

/// Number of slots.
pub(crate) const SLOTS: usize = Slot::ExtraOutput as usize + 1;

/// The API that a name of a sum belongs to. If one response has several, the last of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Family {
    #[default]
    None,
    Ollama,
    /// `input_tokens`: Anthropic's and OpenAI's.
    Tokens,
    Chat,
    Cohere,
    Gemini,
    Converse,
    Invoke,
}

/// A figure of an entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntrySlot {
    Input,
    CacheRead,
    CacheWrite,
    Output,
}

/// A short text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    Model,
    Tier,
    Speed,
    /// The type of an event.
    Type,
    /// The type, the modality or the time of an entry.
    Label,
}

/// A member that matters by being there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    /// Anything but `null` is an error.
    Error,
    /// `true` is the end of a stream.
    Done,
}

/// The use of a member's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing.
    Skip,
    /// Nothing: it is the number of the event.
    Counter,
    /// Its members are read.
    Enter(Node),
    /// It is a sum of tokens.
    Sum(Slot, Family),
    /// It is a part of a sum, or a figure of its own.
    Part(Slot),
    /// It is a part that the sum does not include, apart from sums with a name of OpenAI's.
    Beside(Slot),
    /// It is a part that the sum includes for certain.
    Inside(Slot),
    /// It is a figure of an entry.
    Entry(EntrySlot),
    Text(Text),
    Flag(Flag),
    /// It is another document, in Base64.
    Document,
}

/// Returns what is done with the member `name` of `node`.
pub(crate) fn member(node: Node, name: &[u8]) -> Use {
    match node {
        Node::Top => top(name),
        Node::Message => match name {
            b"usage" => Use::Enter(Node::FirstUsage),
            b"model" => Use::Text(Text::Model),
            _ => Use::Skip,
        },
        Node::Response => match name {
            b"usage" => Use::Enter(Node::Usage),
            b"usageMetadata" => Use::Enter(Node::Metadata),
            b"tool_usage" => Use::Enter(Node::ToolUsage),
            b"model" | b"modelVersion" => Use::Text(Text::Model),
            b"service_tier" => Use::Text(Text::Tier),
            b"error" => Use::Flag(Flag::Error),
            _ => Use::Skip,
        },
        Node::Delta | Node::Groq => match name {
            b"usage" => Use::Enter(Node::Usage),
            b"error" => Use::Flag(Flag::Error),
            _ => Use::Skip,
        },
        Node::FirstUsage | Node::Usage => usage(name),
        Node::Metadata => metadata(name),
        Node::Metrics => match name {
            b"inputTokenCount" => Use::Sum(Slot::Input, Family::Invoke),
            b"outputTokenCount" => Use::Sum(Slot::Output, Family::Invoke),
            b"cacheReadInputTokenCount" => Use::Beside(Slot::CacheRead),
            b"cacheWriteInputTokenCount" => Use::Beside(Slot::CacheWrite),
            _ => Use::Skip,
        },
        Node::ToolUsage if name == b"web_search" => Use::Enter(Node::WebSearch),
        Node::WebSearch if name == b"num_requests" => Use::Part(Slot::Searches),
        Node::Entry => entry(name),
        _ => detail(node, name),
    }
}

fn top(name: &[u8]) -> Use {
    match name {
        b"usage" => Use::Enter(Node::Usage),
        b"usageMetadata" => Use::Enter(Node::Metadata),
        b"amazon-bedrock-invocationMetrics" => Use::Enter(Node::Metrics),
        b"message" => Use::Enter(Node::Message),
        b"response" => Use::Enter(Node::Response),
        b"delta" => Use::Enter(Node::Delta),
        b"x_groq" => Use::Enter(Node::Groq),
        b"tool_usage" => Use::Enter(Node::ToolUsage),
        b"model" | b"modelVersion" => Use::Text(Text::Model),
        b"service_tier" => Use::Text(Text::Tier),
        b"type" => Use::Text(Text::Type),
        b"error" => Use::Flag(Flag::Error),
        b"done" => Use::Flag(Flag::Done),
        b"sequence_number" => Use::Counter,
        b"prompt_eval_count" => Use::Sum(Slot::Input, Family::Ollama),
        b"eval_count" => Use::Sum(Slot::Output, Family::Ollama),
        b"bytes" => Use::Document,
        _ => Use::Skip,
    }
}

fn usage(name: &[u8]) -> Use {
    match name {
        b"prompt_tokens" => Use::Sum(Slot::Input, Family::Chat),
        b"completion_tokens" => Use::Sum(Slot::Output, Family::Chat),
        b"input_tokens" => Use::Sum(Slot::Input, Family::Tokens),
        b"output_tokens" => Use::Sum(Slot::Output, Family::Tokens),
        b"inputTokens" => Use::Sum(Slot::Input, Family::Converse),
        b"outputTokens" => Use::Sum(Slot::Output, Family::Converse),
        b"cache_read_input_tokens" | b"cacheReadInputTokens" => Use::Beside(Slot::CacheRead),
        b"cache_creation_input_tokens" | b"cacheWriteInputTokens" => Use::Beside(Slot::CacheWrite),
        b"cached_tokens" | b"prompt_cache_hit_tokens" => Use::Inside(Slot::CacheRead),
        b"prompt_tokens_details" | b"input_tokens_details" => Use::Enter(Node::InputDetails),
        b"completion_tokens_details" | b"output_tokens_details" => Use::Enter(Node::OutputDetails),
        b"cache_creation" => Use::Enter(Node::CacheCreation),
        b"cacheDetails" => Use::Enter(Node::CacheDetails),
        b"server_tool_use" => Use::Enter(Node::ServerTools),
        b"iterations" => Use::Enter(Node::Iterations),
        b"billed_units" => Use::Enter(Node::Billed),
        b"service_tier" => Use::Text(Text::Tier),
        b"speed" => Use::Text(Text::Speed),
        b"seconds" | b"prompt_audio_seconds" => Use::Part(Slot::AudioMs),
        b"cost" => Use::Part(Slot::CostNano),
        _ => Use::Skip,
    }
}

fn metadata(name: &[u8]) -> Use {
    match name {
        b"promptTokenCount" => Use::Sum(Slot::Input, Family::Gemini),
        b"candidatesTokenCount" => Use::Sum(Slot::Output, Family::Gemini),
        b"totalTokenCount" => Use::Part(Slot::Total),
        b"toolUsePromptTokenCount" => Use::Part(Slot::ToolInput),
        b"cachedContentTokenCount" => Use::Inside(Slot::CacheRead),
        b"thoughtsTokenCount" => Use::Part(Slot::Reasoning),
        b"promptTokensDetails" => Use::Enter(Node::InputModalities),
        b"candidatesTokensDetails" => Use::Enter(Node::OutputModalities),
        _ => Use::Skip,
    }
}

fn detail(node: Node, name: &[u8]) -> Use {
    match (node, name) {
        (Node::InputDetails, b"cached_tokens") => Use::Inside(Slot::CacheRead),
        (Node::InputDetails, b"cache_write_tokens") => Use::Inside(Slot::CacheWrite),
        (Node::InputDetails, b"cache_write_tokens_details") => Use::Enter(Node::CacheWriteDetails),
        (Node::InputDetails, b"audio_tokens") => Use::Part(Slot::InputAudio),
        (Node::InputDetails, b"image_tokens") => Use::Part(Slot::InputImage),
        (Node::CacheWriteDetails, b"ttl_30m_tokens") => Use::Part(Slot::CacheWrite30m),
        (Node::CacheWriteDetails, b"ttl_12h_tokens") => Use::Part(Slot::CacheWrite12h),
        (Node::OutputDetails, b"reasoning_tokens" | b"thinking_tokens") => Use::Part(Slot::Reasoning),
        (Node::OutputDetails, b"audio_tokens") => Use::Part(Slot::OutputAudio),
        (Node::OutputDetails, b"image_tokens") => Use::Part(Slot::OutputImage),
        (Node::CacheCreation, b"ephemeral_5m_input_tokens") => Use::Part(Slot::CacheWrite5m),
        (Node::CacheCreation, b"ephemeral_1h_input_tokens") => Use::Part(Slot::CacheWrite1h),
        (Node::ServerTools, b"web_search_requests") | (Node::Billed, b"search_units") => {
            Use::Part(Slot::Searches)
        }
        (Node::Billed, b"input_tokens") => Use::Sum(Slot::Input, Family::Cohere),
        (Node::Billed, b"output_tokens") => Use::Sum(Slot::Output, Family::Cohere),
        _ => Use::Skip,
    }
}

fn entry(name: &[u8]) -> Use {
    match name {
        b"type" | b"modality" | b"ttl" => Use::Text(Text::Label),
        b"input_tokens" | b"tokenCount" | b"inputTokens" => Use::Entry(EntrySlot::Input),
        b"cache_read_input_tokens" => Use::Entry(EntrySlot::CacheRead),
        b"cache_creation_input_tokens" => Use::Entry(EntrySlot::CacheWrite),
        b"output_tokens" => Use::Entry(EntrySlot::Output),
        _ => Use::Skip,
    }
}
