//! Refusals: which of them time ends, and what their bodies say.

use std::cell::OnceCell;

use egret_message::Fields;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facts::Preset;

/// Maximum size of a refusal's body that is read, in bytes.
pub const REFUSAL_BYTES_MAX: usize = 16 << 10;

/// A kind of refusal. All conditions that are set must hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RefusalRule {
    /// Its status.
    pub status: u16,
    /// A field that it has: its name, or a line with its value.
    pub with: Option<String>,
    /// A field that it does not have.
    pub without: Option<String>,
    /// A member of its JSON body: a path with `*` for each element of a list.
    pub at: Option<String>,
    /// Values of that member.
    #[serde(default)]
    pub is: Vec<String>,
    /// A part of that member's text.
    pub contains: Option<String>,
}

/// A response that refuses a call.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Its status.
    pub status: u16,
    /// Its header fields.
    pub fields: Fields<'a>,
    /// Its body, if it was received before the response is forwarded.
    pub body: Option<&'a [u8]>,
    /// The body as JSON.
    pub document: &'a RefusalDocument,
}

/// The body of a refusal as JSON. It is parsed once, when a fact in it is first asked for.
#[derive(Debug, Default)]
pub struct RefusalDocument(OnceCell<Option<Box<Value>>>);

/// The provider's own advice about repeating a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// It says nothing.
    Unspecified,
    /// The call should be repeated.
    Repeat,
    /// The call should not be repeated.
    Stop,
}

impl RefusalRule {
    /// Returns `true` if the body matters.
    pub(crate) fn reads_body(&self) -> bool {
        self.at.is_some()
    }

    /// Returns `true` if a refusal is of this kind.
    pub(crate) fn holds(&self, refusal: &Refusal<'_>) -> bool {
        let is_it = self.status == refusal.status
            && self.with.as_ref().is_none_or(|line| refusal.has(line))
            && !self.without.as_ref().is_some_and(|line| refusal.has(line));
        if !is_it {
            return false;
        }
        let Some(path) = &self.at else { return true };
        let Some(text) = refusal.text_at(path) else { return false };
        self.is.contains(&text) || self.contains.as_ref().is_some_and(|part| text.contains(part.as_str()))
    }
}

impl Preset {
    /// Returns `true` if time does not end a refusal.
    pub fn is_lasting(&self, refusal: &Refusal<'_>) -> bool {
        self.lasting.iter().any(|rule| rule.holds(refusal))
    }

    /// Returns `true` if time ends a refusal, beside those that `retry` repeats anyway.
    pub fn is_passing(&self, refusal: &Refusal<'_>) -> bool {
        self.passing.iter().any(|rule| rule.holds(refusal))
    }

    /// Returns `true` if the provider has not acted on the request that it refuses.
    pub fn has_not_acted(&self, refusal: &Refusal<'_>) -> bool {
        self.not_acted.contains(&refusal.status) || self.is_passing(refusal)
    }

    /// Returns the provider's own advice about repeating the call.
    pub fn retry_advice(&self, fields: Fields<'_>) -> RetryAdvice {
        let told = self.should_retry.as_ref().and_then(|name| fields.get(name.as_bytes()));
        match told.map(<[u8]>::trim_ascii) {
            Some(b"true") => RetryAdvice::Repeat,
            Some(b"false") => RetryAdvice::Stop,
            _ => RetryAdvice::Unspecified,
        }
    }
}

impl RefusalDocument {
    /// Returns the document in `body`, which must be the same each time. `None` if there is none, or it is
    /// too long.
    fn of(&self, body: Option<&[u8]>) -> Option<&Value> {
        let parse = || {
            let body = body.filter(|body| body.len() <= REFUSAL_BYTES_MAX)?;
            serde_json::from_slice(body).ok().map(Box::new)
        };
        self.0.get_or_init(parse).as_deref()
    }
}

impl Refusal<'_> {
    /// Returns `true` if it has a field of that name, or with the value of that line.
    fn has(&self, line: &str) -> bool {
        let (name, value) = line.split_once(": ").map_or((line, None), |(name, value)| (name, Some(value)));
        let found = self.fields.get(name.as_bytes()).map(<[u8]>::trim_ascii);
        found.is_some_and(|found| value.is_none_or(|value| found == value.as_bytes()))
    }

    /// Returns the first text or number at a path of the body.
    pub(crate) fn text_at(&self, path: &str) -> Option<String> {
        text_at(self.document.of(self.body)?, path)
    }
}

/// Returns the first text or number at a path of a document.
fn text_at(document: &Value, path: &str) -> Option<String> {
    let mut found = vec![document];
    for part in path.split('/').skip(1) {
        found = match part {
            "*" => found.into_iter().filter_map(Value::as_array).flatten().collect(),
            part => found.into_iter().filter_map(|value| value.get(part)).collect(),
        };
    }
    found.into_iter().find_map(|value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use egret_clock::Timestamp;
    use egret_message::Changes;
    use proptest::prelude::*;

    use super::*;
    use crate::PresetName;

    const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

    fn fields(all: &[(&str, &str)]) -> Changes {
        let mut changes = Changes::default();
        for (name, value) in all {
            changes.add(name.as_bytes(), value.as_bytes());
        }
        changes
    }

    fn refusal<'a>(
        status: u16,
        changes: &'a Changes,
        body: &'a [u8],
        document: &'a RefusalDocument,
    ) -> Refusal<'a> {
        Refusal { status, fields: Fields::new(&[], b"", changes), body: Some(body), document }
    }

    #[test]
    fn refusals_that_waiting_does_not_mend_are_known() {
        use PresetName::{Anthropic, Deepseek, Hubspot, Openai, Openrouter, Stripe};
        let quota = r#"{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}"#;
        let spent = r#"{"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
        let limits = r#"{"error":{"message":"You have reached your specified workspace API usage limits."}}"#;
        for (name, status, told, body, expected) in [
            (Openai, 429, &[][..], quota, true),
            (Openai, 429, &[], r#"{"error":{"code":"rate_limit_exceeded","type":"tokens"}}"#, false),
            (Openai, 429, &[], r#"{"error":{"code":"x","type":"insufficient_quota"}}"#, true),
            (Openai, 429, &[], "{", false),
            (Openai, 400, &[], quota, false),
            (Anthropic, 429, &[], spent, true),
            (Anthropic, 429, &[("retry-after", "3")], spent, false),
            (Anthropic, 400, &[], limits, true),
            (Anthropic, 400, &[], r#"{"error":{"message":"max_tokens is required"}}"#, false),
            (Deepseek, 402, &[], "", true),
            (Openrouter, 402, &[("Retry-After", "3")], "", false),
            (Openrouter, 402, &[], "", true),
            (Hubspot, 429, &[], r#"{"policyName":"DAILY"}"#, true),
            (Stripe, 429, &[], quota, false),
        ] {
            let changes = fields(told);
            let document = RefusalDocument::default();
            let found = name.preset().is_lasting(&refusal(status, &changes, body.as_bytes(), &document));
            assert_eq!(found, expected, "{name} {status} {told:?} {body}");
        }
    }

    #[test]
    fn each_provider_tells_the_wait_in_its_own_form() {
        use PresetName::{
            Anthropic, Bedrock, Cohere, Gemini, Github, Groq, Hubspot, Mistral, Openai, Stripe,
        };
        let secondary = r#"{"message":"You have exceeded a secondary rate limit."}"#;
        let details =
            r#"{"error":{"details":[{"@type":"Help"},{"@type":"RetryInfo","retryDelay":"34.5s"}]}}"#;
        for (name, told, body, expected_ms) in [
            (Openai, &[("retry-after-ms", "1500"), ("retry-after", "9")][..], "", Some(1_500)),
            (Openai, &[("retry-after-ms", "1500.7")], "", Some(1_500)),
            (Openai, &[("retry-after-ms", "soon"), ("retry-after", "9")], "", Some(9_000)),
            (Openai, &[("retry-after-ms", "99999999999999")], "", Some(31 * 86_400_000)),
            (Anthropic, &[("retry-after", "2")], "", Some(2_000)),
            (Gemini, &[], details, Some(34_500)),
            (Gemini, &[], "[", None),
            (Stripe, &[("retry-after-ms", "1500")], "", None),
            (Mistral, &[("retry-after-ms", "1500")], "", Some(1_500)),
            (Groq, &[("retry-after-ms", "1500")], "", Some(1_500)),
            (Cohere, &[("retry-after-ms", "1500")], "", Some(1_500)),
            (Bedrock, &[("x-amz-retry-after", "1500"), ("retry-after", "9")], "", Some(1_500)),
            (Github, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795307482")], "", Some(6_000)),
            (Github, &[("x-ratelimit-remaining", "0")], "", None),
            (Github, &[("x-ratelimit-remaining", "10"), ("x-ratelimit-reset", "1795307482")], "", None),
            (Github, &[], secondary, Some(60_000)),
            (Github, &[("retry-after", "2")], secondary, Some(2_000)),
            (
                Github,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795307482")],
                secondary,
                Some(6_000),
            ),
            (Hubspot, &[], r#"{"policyName":"TEN_SECONDLY_ROLLING"}"#, Some(10_000)),
            (Hubspot, &[], r#"{"message":"You have reached your secondly limit."}"#, Some(1_000)),
            (Hubspot, &[], r#"{"policyName":"DAILY"}"#, None),
        ] {
            let changes = fields(told);
            let document = RefusalDocument::default();
            let wait = name.preset().requested_wait(&refusal(429, &changes, body.as_bytes(), &document), NOW);
            assert_eq!(wait, expected_ms.map(|ms| NOW + Duration::from_millis(ms)), "{name} {told:?}");
        }
    }

    #[test]
    fn a_limit_is_told_from_a_missing_permission() {
        let github = PresetName::Github.preset();
        let (secondary, other) = (r#"{"message":"You have exceeded a secondary rate limit."}"#, "{}");
        for (status, told, body, expected) in [
            (403, &[("Retry-After", "3")][..], other, true),
            (403, &[("x-ratelimit-remaining", "0")], other, true),
            (403, &[("x-ratelimit-remaining", " 0 ")], other, true),
            (403, &[("x-ratelimit-remaining", "00")], other, false),
            (403, &[("x-ratelimit-remaining", "10")], other, false),
            (403, &[], other, false),
            (403, &[], secondary, true),
            (404, &[("retry-after", "3"), ("x-ratelimit-remaining", "0")], secondary, false),
        ] {
            let (changes, document) = (fields(told), RefusalDocument::default());
            let refusal = refusal(status, &changes, body.as_bytes(), &document);
            assert_eq!((github.is_passing(&refusal), github.has_not_acted(&refusal)), (expected, expected));
        }
    }

    #[test]
    fn only_a_plain_wish_is_obeyed() {
        for (value, advice) in [
            ("true", RetryAdvice::Repeat),
            (" false ", RetryAdvice::Stop),
            ("TRUE", RetryAdvice::Unspecified),
        ] {
            let changes = fields(&[("x-should-retry", value)]);
            let told = |name: PresetName| name.preset().retry_advice(Fields::new(&[], b"", &changes));
            assert_eq!(
                (told(PresetName::Openai), told(PresetName::Gemini)),
                (advice, RetryAdvice::Unspecified)
            );
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_a_panic(body: Vec<u8>, text in "[\\[\\]{}\",:a-z/0-9]{0,60}") {
            for name in PresetName::ALL {
                for body in [&body[..], text.as_bytes()] {
                    let (changes, document) = (Changes::default(), RefusalDocument::default());
                    for status in [400, 402, 429] {
                        name.preset().is_lasting(&refusal(status, &changes, body, &document));
                    }
                    name.preset().requested_wait(&refusal(429, &changes, body, &document), NOW);
                }
            }
        }
    }
}
