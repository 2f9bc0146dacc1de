//! A call of a language model in the terms of OpenTelemetry's conventions for generative AI, whose state is
//! "Development". Nothing that a client or a model has written is among them.

use std::borrow::Cow;

use egret_har::Key;
use egret_json::pointer::Pointers;
use egret_match::expression::EXPRESSION_BODY_BYTES_MAX;
use egret_message::request_target::split_target;
use egret_usage::{UsageDialect, UsageRecord};

use crate::finished::{Finished, exportable};

/// A provider or an error that has no name of its own.
const OTHER: &str = "_OTHER";

/// The operation whose calls have no output.
pub(crate) const EMBEDDINGS: &str = "embeddings";

/// A call whose provider has reported tokens.
#[derive(Debug)]
pub(crate) struct GenAiCall<'a> {
    /// `gen_ai.operation.name`.
    pub operation: &'static str,
    /// `gen_ai.provider.name`: the conventions' own for a provider with a preset, else its name in the
    /// config.
    pub provider: &'a str,
    /// `gen_ai.response.model`, in a form that may be exported; empty if the response names none.
    pub response_model: Cow<'a, str>,
    /// `error.type`; empty if the call has not failed.
    pub error: &'static str,
    /// The tokens.
    pub usage: &'a UsageRecord,
}

impl<'a> GenAiCall<'a> {
    /// Returns the call of an exchange. Returns `None` if its response has reported no tokens.
    pub fn of(exchange: &Finished<'a>, key: Option<&Key>) -> Option<Self> {
        let record = exchange.record();
        let usage = record.usage.as_deref()?;
        let model = usage.model.as_deref().unwrap_or_default();
        Some(Self {
            operation: operation(path(exchange), usage.dialect?),
            provider: match (usage.provider, record.provider()) {
                (None, "-") => OTHER,
                (Some(name), _) | (None, name) => name,
            },
            response_model: exportable(model.as_bytes(), key),
            error: error(exchange, usage),
            usage,
        })
    }
}

/// Returns the model that a call asks for, in a form that may be exported: that of its JSON body if all of it
/// was recorded, or of its path. Empty if neither names one.
pub(crate) fn request_model(exchange: &Finished<'_>, key: Option<&Key>) -> String {
    let body = exchange.whole_request_body(EXPRESSION_BODY_BYTES_MAX);
    let found =
        body.and_then(|body| Pointers::new(["/model"]).find(&body)?.into_iter().next()?.map(<[u8]>::to_vec));
    let named = found.and_then(|text| serde_json::from_slice::<String>(&text).ok());
    let name = named.or_else(|| model_in(path(exchange)).map(str::to_owned)).unwrap_or_default();
    exportable(name.as_bytes(), key).into_owned()
}

fn path<'a>(exchange: &Finished<'a>) -> &'a [u8] {
    split_target(exchange.record().relative_target()).0
}

/// Returns the model in the path of Gemini's and Bedrock's APIs.
fn model_in(path: &[u8]) -> Option<&str> {
    let path = std::str::from_utf8(path).ok()?;
    let (_, rest) = path.split_once("/models/").or_else(|| path.split_once("/model/"))?;
    rest.split(['/', ':']).next().filter(|name| !name.is_empty())
}

/// Returns the operation, as far as the path and the form of the report tell it.
fn operation(path: &[u8], dialect: UsageDialect) -> &'static str {
    let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end.as_bytes()));
    let is_response = || path.split(|byte| *byte == b'/').any(|part| part == b"responses");
    if ends(&["/embeddings", "/embed", ":embedContent", ":batchEmbedContents"]) {
        EMBEDDINGS
    } else if dialect == UsageDialect::Gemini || (dialect == UsageDialect::Responses && !is_response()) {
        "generate_content"
    } else if ends(&["/completions", "/api/generate"]) && !ends(&["/chat/completions"]) {
        "text_completion"
    } else {
        "chat"
    }
}

/// Returns the kind of failure; empty if there was none.
fn error(exchange: &Finished<'_>, usage: &UsageRecord) -> &'static str {
    let facts = exchange.facts();
    match (facts.error, exchange.status()) {
        (Some(error), _) => error,
        (None, 500..) => "5xx",
        (None, 400..) => "4xx",
        _ if usage.has_error || facts.is_cut_short => OTHER,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_is_that_of_the_path_and_the_report() {
        for (path, dialect, expected) in [
            ("/v1/chat/completions", UsageDialect::Chat, "chat"),
            ("/v1/completions", UsageDialect::Chat, "text_completion"),
            ("/v1/embeddings", UsageDialect::Chat, "embeddings"),
            ("/v1/responses", UsageDialect::Responses, "chat"),
            ("/v1/responses/resp_1", UsageDialect::Responses, "chat"),
            ("/v1/images/generations", UsageDialect::Responses, "generate_content"),
            ("/v1/messages", UsageDialect::Anthropic, "chat"),
            ("/v1beta/models/g:generateContent", UsageDialect::Gemini, "generate_content"),
            ("/v1beta/models/g:embedContent", UsageDialect::Gemini, "embeddings"),
            ("/model/m/converse", UsageDialect::Converse, "chat"),
            ("/api/generate", UsageDialect::Ollama, "text_completion"),
        ] {
            assert_eq!(operation(path.as_bytes(), dialect), expected, "{path}");
        }
    }

    #[test]
    fn a_model_in_the_path_is_found() {
        assert_eq!(model_in(b"/v1beta/models/gemini-3:generateContent"), Some("gemini-3"));
        assert_eq!(model_in(b"/model/anthropic.claude/converse"), Some("anthropic.claude"));
        assert_eq!(model_in(b"/v1/models/"), None);
        assert_eq!(model_in(b"/v1/chat"), None);
    }
}
