//! Conditions on the outcome of a call that make a remedy act: `[connect, timeout, 429, 5xx]`.

use std::fmt;
use std::str::FromStr;

use egret_config::text_value;
use schemars::json_schema;

use crate::grpc::GrpcStatus;
use crate::outcome::{FailureKind, Outcome};

/// An outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// No connection could be made.
    Connect,
    /// A time limit was exceeded.
    Timeout,
    /// The connection ended before a response arrived.
    Reset,
    /// The provider sent something that is not a valid response.
    BadResponse,
    /// The status code was in this range, both ends included.
    Status(u16, u16),
    /// The gRPC call has ended with this status.
    Grpc(GrpcStatus),
}

/// Prefix of the statuses of gRPC: `grpc-unavailable`.
const GRPC_PREFIX: &str = "grpc-";

const WORDS: [(&str, Condition); 4] = [
    ("connect", Condition::Connect),
    ("timeout", Condition::Timeout),
    ("reset", Condition::Reset),
    ("bad-response", Condition::BadResponse),
];

impl Condition {
    /// The outcomes that say that a provider does not work.
    pub fn provider_failures() -> Vec<Self> {
        vec![Self::Connect, Self::Timeout, Self::Reset, Self::BadResponse, Self::Status(500, 599)]
    }

    /// Returns `true` if this condition covers every outcome that `other` covers.
    pub fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Status(from, to), Self::Status(other_from, other_to)) => {
                from <= other_from && other_to <= to
            }
            _ => self == other,
        }
    }

    /// Returns `true` if it is about the status of gRPC calls.
    pub fn is_of_grpc(self) -> bool {
        matches!(self, Self::Grpc(_))
    }

    /// Returns `true` if a call met this condition that ended with this status, failure or status of gRPC.
    fn is_met_by(self, status: Option<u16>, failure: Option<FailureKind>, grpc: Option<GrpcStatus>) -> bool {
        match self {
            Self::Status(from, to) => status.is_some_and(|status| (from..=to).contains(&status)),
            Self::Grpc(status) => grpc == Some(status),
            Self::Connect => failure == Some(FailureKind::Connect),
            Self::Timeout => failure == Some(FailureKind::Timeout),
            Self::Reset => failure == Some(FailureKind::Reset),
            Self::BadResponse => failure == Some(FailureKind::BadResponse),
        }
    }
}

/// Returns `true` if the last call's outcome, or the status of a gRPC call if it is known, meets any of
/// `conditions`.
pub fn any_meets(conditions: &[Condition], outcome: &Outcome<'_>, grpc: Option<GrpcStatus>) -> bool {
    let (status, failure) = match outcome {
        Outcome::None => (None, None),
        Outcome::Response(received) => (Some(received.head.status), None),
        Outcome::Failure(failure) => (None, Some(failure.kind)),
    };
    conditions.iter().any(|condition| condition.is_met_by(status, failure, grpc))
}

/// A text that is not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an outcome of a call: expected `connect`, `timeout`, `reset`, `bad-response`, a status from \
     200 to 599, a class like `5xx`, a range like `502-504` or a status of gRPC like `grpc-unavailable`{}",
    meant(.suggestion.as_deref())
)]
pub struct ConditionError {
    text: String,
    /// A similar condition.
    suggestion: Option<String>,
}

fn meant(suggestion: Option<&str>) -> String {
    suggestion.map(|word| format!("; did you mean `{word}`?")).unwrap_or_default()
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        if let Some((_, condition)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*condition);
        }
        // A call that succeeds is nothing to act on.
        let failed = |name: &str| GrpcStatus::named(name).filter(|status| *status != GrpcStatus::Ok);
        if let Some(status) = text.strip_prefix(GRPC_PREFIX).and_then(failed) {
            return Ok(Self::Grpc(status));
        }
        let status = |text: &str| text.parse::<u16>().ok().filter(|status| (200..=599).contains(status));
        let range = match (text.split_once('-'), text.strip_suffix("xx")) {
            (Some((from, to)), _) => status(from).zip(status(to)).filter(|(from, to)| from <= to),
            (None, Some(class)) => class
                .parse::<u16>()
                .ok()
                .filter(|class| (2..=5).contains(class))
                .map(|class| (class * 100, class * 100 + 99)),
            (None, None) => status(text).map(|status| (status, status)),
        };
        range
            .map(|(from, to)| Self::Status(from, to))
            .ok_or_else(|| ConditionError { text: text.to_owned(), suggestion: suggestion(text) })
    }
}

fn suggestion(text: &str) -> Option<String> {
    let words = WORDS.iter().map(|(word, _)| (*word).to_owned());
    let all: Vec<String> = words.chain(grpc_words()).collect();
    egret_config::suggest(text, all.iter().map(String::as_str)).map(str::to_owned)
}

/// The conditions on the status of gRPC calls.
fn grpc_words() -> impl Iterator<Item = String> {
    GrpcStatus::ALL.iter().skip(1).map(|status| Condition::Grpc(*status).to_string())
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(from, to) if from == to => write!(f, "{from}"),
            Self::Status(from, to) if from % 100 == 0 && *to == from + 99 => write!(f, "{}xx", from / 100),
            Self::Status(from, to) => write!(f, "{from}-{to}"),
            Self::Grpc(status) => f.write_str(status.word()),
            word => {
                let known = WORDS.iter().find(|(_, condition)| condition == word);
                f.write_str(known.map_or("", |(name, _)| name))
            }
        }
    }
}

text_value!(
    Condition or number,
    "`connect`, `timeout`, `reset`, `bad-response`, a status, a class like `5xx`, a range like `502-504` or a status \
     of gRPC like `grpc-unavailable`",
    json_schema!({
        "description": "An outcome of a call: `connect`, `timeout`, `reset`, `bad-response`, a status like `429`, a \
                        class like `5xx`, a range like `502-504` or a status of gRPC like `grpc-unavailable`.",
        "type": ["string", "integer"],
        "pattern": format!(
            "^(connect|timeout|reset|bad-response|[2-5]xx|[2-5][0-9][0-9](-[2-5][0-9][0-9])?|{})$",
            grpc_words().collect::<Vec<_>>().join("|")
        ),
        "minimum": 200,
        "maximum": 599,
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_read_and_print_alike() {
        for text in [
            "connect",
            "timeout",
            "reset",
            "bad-response",
            "429",
            "5xx",
            "502-504",
            "grpc-unavailable",
            "grpc-deadline-exceeded",
        ] {
            assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
        }
        assert_eq!("500-599".parse(), Ok(Condition::Status(500, 599)));
        assert_eq!("5xx".parse(), Ok(Condition::Status(500, 599)));
    }

    #[test]
    fn an_unknown_condition_is_refused_with_a_suggestion() {
        for text in ["", "xx", "1xx", "6xx", "199", "600", "504-502", "502-", "-1", "99999", "5XX"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
        for text in
            ["grpc-", "grpc-ok", "grpc-14", "grpc-Unavailable", "grpc-deadline_exceeded", "unavailable"]
        {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
        let similar = "grpc-unavaliable".parse::<Condition>().unwrap_err().to_string();
        assert!(similar.ends_with("did you mean `grpc-unavailable`?"), "{similar}");
        assert!("conect".parse::<Condition>().unwrap_err().to_string().ends_with("did you mean `connect`?"));
    }
}
