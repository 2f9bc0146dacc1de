//! Refusals as each provider words them: those that waiting helps against, and those that it does not.

use std::str::FromStr;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use egret_items::words;
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::limit_fields::seconds;
use crate::respond;

words! {
    /// The reason of a refusal.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum InjectedRefusal: name {
        /// 429: too many calls or tokens. Waiting helps.
        RateLimit => "rate-limit",
        /// The account's budget is used up: 429 as OpenAI (`insufficient_quota`) and Anthropic have it,
        /// otherwise 402. Waiting does not help.
        Quota => "quota",
        /// 402: the account has no credit.
        Payment => "payment",
        /// The provider is overloaded: 529 as Anthropic has it, otherwise 503.
        Overloaded => "overloaded",
        /// 500.
        Error => "error",
    }
}

/// The error for a text that is not the name of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write rate-limit, quota, payment, overloaded or error")]
pub(super) struct UnknownRefusal;

impl FromStr for InjectedRefusal {
    type Err = UnknownRefusal;

    fn from_str(text: &str) -> Result<Self, UnknownRefusal> {
        Self::ALL.into_iter().find(|refusal| refusal.name() == text).ok_or(UnknownRefusal)
    }
}

impl InjectedRefusal {
    /// The response that refuses a call.
    pub fn response(self, dialect: Dialect, id: &str, wait: Duration) -> Response {
        let content = self.content(dialect, id, wait).to_string();
        let mut response = respond::of(self.status(dialect), respond::JSON, content);
        for (name, value) in self.fields(dialect, wait) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
        response
    }

    /// The status of the refusal.
    pub fn status(self, dialect: Dialect) -> StatusCode {
        match self {
            Self::RateLimit => StatusCode::TOO_MANY_REQUESTS,
            Self::Quota if is_quota_429(dialect) => StatusCode::TOO_MANY_REQUESTS,
            Self::Quota | Self::Payment => StatusCode::PAYMENT_REQUIRED,
            Self::Overloaded if dialect == Dialect::Anthropic => {
                StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Error => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The time to wait, if waiting helps, and for Bedrock the kind of error. Gemini tells the time in the
    /// content.
    fn fields(self, dialect: Dialect, wait: Duration) -> Vec<(&'static str, HeaderValue)> {
        if dialect == Dialect::Bedrock {
            return vec![("x-amzn-errortype", HeaderValue::from_static(self.aws_name()))];
        }
        let helps = matches!(self, Self::RateLimit | Self::Overloaded);
        if !helps || matches!(dialect, Dialect::Gemini | Dialect::Vertex) {
            return Vec::new();
        }
        let mut fields = vec![("retry-after", HeaderValue::from(seconds(wait)))];
        if matches!(dialect, Dialect::Openai | Dialect::Azure) {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            fields.push(("retry-after-ms", HeaderValue::from(ms)));
        }
        fields
    }

    fn message(self) -> &'static str {
        match self {
            Self::RateLimit => "Rate limit reached: please try again later",
            Self::Quota => "You exceeded your current quota, please check your plan and billing details",
            Self::Payment => "Insufficient balance",
            Self::Overloaded => "Overloaded",
            Self::Error => "The server had an error while processing your request",
        }
    }

    fn aws_name(self) -> &'static str {
        match self {
            Self::RateLimit => "ThrottlingException",
            Self::Quota => "ServiceQuotaExceededException",
            Self::Payment => "AccessDeniedException",
            Self::Overloaded => "ServiceUnavailableException",
            Self::Error => "InternalServerException",
        }
    }

    fn content(self, dialect: Dialect, id: &str, wait: Duration) -> Value {
        let message = self.message();
        match dialect {
            Dialect::Anthropic => self.of_anthropic(id),
            Dialect::Gemini | Dialect::Vertex => self.of_google(dialect, wait),
            Dialect::Bedrock => json!({ "message": message }),
            Dialect::Cohere => json!({ "id": id, "message": message }),
            Dialect::Ollama => json!({ "error": message }),
            Dialect::Mistral => {
                json!({ "object": "error", "message": message, "type": self.openai_code(), "param": null, "code": null })
            }
            Dialect::Openrouter => {
                json!({ "error": { "code": self.status(dialect).as_u16(), "message": message } })
            }
            _ => {
                let code = self.openai_code();
                let kind = match self {
                    Self::RateLimit => "tokens",
                    Self::Overloaded | Self::Error => "server_error",
                    _ => code,
                };
                json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
            }
        }
    }

    fn openai_code(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limit_exceeded",
            Self::Quota => "insufficient_quota",
            Self::Payment => "insufficient_balance",
            Self::Overloaded => "overloaded",
            Self::Error => "server_error",
        }
    }

    fn of_anthropic(self, id: &str) -> Value {
        let kind = match self {
            Self::RateLimit | Self::Quota => "rate_limit_error",
            Self::Payment => "billing_error",
            Self::Overloaded => "overloaded_error",
            Self::Error => "api_error",
        };
        let mut error = json!({ "type": kind, "message": self.message() });
        if self == Self::Quota {
            error["details"] = json!({ "error_code": "enforced_spend_limit_reached" });
        }
        json!({ "type": "error", "error": error, "request_id": id })
    }

    fn of_google(self, dialect: Dialect, wait: Duration) -> Value {
        let status = match self {
            Self::RateLimit | Self::Quota => "RESOURCE_EXHAUSTED",
            Self::Payment => "FAILED_PRECONDITION",
            Self::Overloaded => "UNAVAILABLE",
            Self::Error => "INTERNAL",
        };
        let mut error =
            json!({ "code": self.status(dialect).as_u16(), "message": self.message(), "status": status });
        if self == Self::RateLimit {
            let delay = format!("{}s", seconds(wait));
            error["details"] =
                json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay }]);
        }
        json!({ "error": error })
    }
}

/// Returns `true` if the provider refuses with 429 once a budget is used up.
fn is_quota_429(dialect: Dialect) -> bool {
    use Dialect::{Anthropic, Azure, Bedrock, Gemini, Groq, Mistral, Openai, Vertex};
    matches!(dialect, Anthropic | Azure | Bedrock | Gemini | Groq | Mistral | Openai | Vertex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(refusal: &str, dialect: Dialect) -> (u16, String, String) {
        let refusal: InjectedRefusal = refusal.parse().unwrap();
        let wait = Duration::from_millis(1_500);
        let response = refusal.response(dialect, "id", wait);
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        (response.status().as_u16(), retry_after, refusal.content(dialect, "id", wait).to_string())
    }

    #[test]
    fn a_refusal_tells_a_time_only_if_waiting_helps() {
        for (refusal, dialect, status, retry_after, part) in [
            ("rate-limit", Dialect::Openai, 429, "2", "rate_limit_exceeded"),
            ("quota", Dialect::Openai, 429, "", "insufficient_quota"),
            ("quota", Dialect::Anthropic, 429, "", "enforced_spend_limit_reached"),
            ("overloaded", Dialect::Anthropic, 529, "2", "overloaded_error"),
            ("overloaded", Dialect::Openai, 503, "2", "server_error"),
            ("payment", Dialect::Deepseek, 402, "", "Insufficient balance"),
            ("rate-limit", Dialect::Gemini, 429, "", "\"retryDelay\":\"2s\""),
            ("rate-limit", Dialect::Bedrock, 429, "", "Rate limit"),
            ("error", Dialect::Ollama, 500, "", "error"),
        ] {
            let (found_status, found_after, content) = refused(refusal, dialect);
            assert_eq!((found_status, found_after.as_str()), (status, retry_after), "{refusal} {dialect:?}");
            assert!(content.contains(part), "{content}");
        }
        assert_eq!("nap".parse::<InjectedRefusal>(), Err(UnknownRefusal));
    }
}
