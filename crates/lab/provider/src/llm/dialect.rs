//! The dialects: which provider's API a call imitates, and which of its operations.

use egret_items::words;

words! {
    /// A provider of language models, or a server of them. Its name is that in paths and in the ledger.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Dialect: name {
        Anthropic => "anthropic",
        Azure => "azure",
        Bedrock => "bedrock",
        Cohere => "cohere",
        Deepseek => "deepseek",
        Gemini => "gemini",
        Groq => "groq",
        LlamaCpp => "llamacpp",
        Mistral => "mistral",
        Ollama => "ollama",
        Openai => "openai",
        Openrouter => "openrouter",
        Vertex => "vertex",
        Vllm => "vllm",
    }
}

impl Dialect {
    /// Name of the field that carries the id of a response.
    pub fn request_id_field(self) -> &'static str {
        match self {
            Self::Anthropic => "request-id",
            Self::Azure => "apim-request-id",
            Self::Bedrock => "x-amzn-requestid",
            Self::Openrouter => "x-generation-id",
            _ => "x-request-id",
        }
    }
}

/// An operation of an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// OpenAI's chat completions, and those of the many that follow it.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's embeddings.
    Embeddings,
    /// OpenAI's generation of images.
    Images,
    /// Anthropic's messages.
    Messages,
    /// Gemini's `generateContent`.
    Generate,
    /// Gemini's `streamGenerateContent`: events with `alt=sse`, otherwise one JSON array.
    GenerateStream { events: bool },
    /// Bedrock's `InvokeModel`, with the body of the model's vendor.
    Invoke,
    /// Bedrock's `InvokeModelWithResponseStream`.
    InvokeStream,
    /// Bedrock's `Converse`.
    Converse,
    /// Bedrock's `ConverseStream`.
    ConverseStream,
    /// Cohere's chat, version 2.
    CohereChat,
    /// Ollama's chat.
    OllamaChat,
    /// Ollama's completion of a text.
    OllamaGenerate,
}

impl Operation {
    /// Name of the operation in the ledger.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Images => "images",
            Self::Messages => "messages",
            Self::Generate => "generateContent",
            Self::GenerateStream { .. } => "streamGenerateContent",
            Self::Invoke => "invoke",
            Self::InvokeStream => "invoke-with-response-stream",
            Self::Converse => "converse",
            Self::ConverseStream => "converse-stream",
            Self::CohereChat => "v2/chat",
            Self::OllamaChat => "api/chat",
            Self::OllamaGenerate => "api/generate",
        }
    }

    /// Prefix of the ids of its responses.
    pub fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Responses => "resp_",
            Self::Messages => "msg_",
            _ => "gen-",
        }
    }

    /// `true` if its responses have text.
    pub fn has_text(self) -> bool {
        !matches!(self, Self::Embeddings | Self::Images)
    }

    /// Decides whether the response is a stream, given the request's `stream`.
    pub fn streams(self, wished: Option<bool>) -> bool {
        match self {
            Self::GenerateStream { .. } | Self::InvokeStream | Self::ConverseStream => true,
            Self::Generate | Self::Invoke | Self::Converse | Self::Embeddings => false,
            Self::OllamaChat | Self::OllamaGenerate => wished.unwrap_or(true),
            _ => wished.unwrap_or(false),
        }
    }
}
