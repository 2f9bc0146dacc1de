//! The header fields in which providers state their limits, each with its own form of the time of reset.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_clock::rfc3339;

use super::dialect::{Dialect, Operation};

/// The state of a provider's limits, after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub requests: Limit,
    pub tokens: Limit,
}

/// The state of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub allowed: u64,
    pub remaining: u64,
    /// Time until the whole limit is available again.
    pub reset: Duration,
}

/// The fields of a dialect. Some dialects have none.
pub(super) fn fields(dialect: Dialect, operation: Operation, limits: Limits) -> Vec<(String, String)> {
    let Limits { requests, tokens } = limits;
    match dialect {
        Dialect::Openai | Dialect::Groq => [("requests", requests), ("tokens", tokens)]
            .into_iter()
            .flat_map(|(name, limit)| {
                [
                    (format!("x-ratelimit-limit-{name}"), limit.allowed.to_string()),
                    (format!("x-ratelimit-remaining-{name}"), limit.remaining.to_string()),
                    (format!("x-ratelimit-reset-{name}"), short(limit.reset)),
                ]
            })
            .collect(),
        Dialect::Anthropic => [("requests", requests), ("tokens", tokens), ("input-tokens", tokens)]
            .into_iter()
            .flat_map(|(name, limit)| {
                // Remaining tokens are told in thousands.
                let unit = if name == "requests" { 1 } else { 1_000 };
                let remaining = limit.remaining / unit * unit;
                [
                    (format!("anthropic-ratelimit-{name}-limit"), limit.allowed.to_string()),
                    (format!("anthropic-ratelimit-{name}-remaining"), remaining.to_string()),
                    (format!("anthropic-ratelimit-{name}-reset"), moment(limit.reset)),
                ]
            })
            .collect(),
        // Azure does not know them for responses.
        Dialect::Azure if operation == Operation::Responses => {
            let names = [("limit", "-1"), ("remaining", "-1"), ("reset", "0")];
            names.map(|(name, value)| (format!("x-ratelimit-{name}-tokens"), value.to_owned())).into()
        }
        Dialect::Azure => vec![
            ("x-ratelimit-limit-tokens".into(), tokens.allowed.to_string()),
            ("x-ratelimit-remaining-tokens".into(), tokens.remaining.to_string()),
            ("x-ratelimit-reset-tokens".into(), seconds(tokens.reset).to_string()),
            ("x-ratelimit-remaining-requests".into(), requests.remaining.to_string()),
        ],
        Dialect::Mistral => vec![
            ("x-ratelimitbysize-limit-minute".into(), tokens.allowed.to_string()),
            ("x-ratelimitbysize-remaining-minute".into(), tokens.remaining.to_string()),
            ("ratelimitbysize-limit".into(), tokens.allowed.to_string()),
            ("ratelimitbysize-remaining".into(), tokens.remaining.to_string()),
            (
                "ratelimitbysize-query-cost".into(),
                tokens.allowed.saturating_sub(tokens.remaining).to_string(),
            ),
            ("ratelimitbysize-reset".into(), seconds(tokens.reset).to_string()),
        ],
        Dialect::Openrouter => {
            let at = (SystemTime::now() + requests.reset).duration_since(UNIX_EPOCH).unwrap_or_default();
            vec![
                ("x-ratelimit-limit".into(), requests.allowed.to_string()),
                ("x-ratelimit-remaining".into(), requests.remaining.to_string()),
                ("x-ratelimit-reset".into(), at.as_millis().to_string()),
            ]
        }
        _ => Vec::new(),
    }
}

/// Whole seconds, rounded up: an earlier retry would fail.
pub(super) fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// A duration from now as RFC 3339 has it, in whole seconds, rounded up.
fn moment(duration: Duration) -> String {
    let at = (SystemTime::now() + duration).duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = rfc3339::write(UNIX_EPOCH + Duration::from_secs(seconds(at)));
    // It is written with a fraction, which is zero.
    text.find('.').map_or_else(|| text.clone(), |dot| format!("{}Z", &text[..dot]))
}

/// A duration as Go writes it: `28ms`, `1s`, `6m0s`, `2m59.56s`.
fn short(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let (hours, minutes, rest_ms) = (ms / 3_600_000, ms / 60_000 % 60, ms % 60_000);
    let fraction = format!("{:03}", rest_ms % 1_000);
    let fraction = match fraction.trim_end_matches('0') {
        "" => String::new(),
        digits => format!(".{digits}"),
    };
    let rest = format!("{}{fraction}s", rest_ms / 1_000);
    match (hours, minutes) {
        (0, 0) => rest,
        (0, minutes) => format!("{minutes}m{rest}"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_written_as_go_does() {
        for (ms, text) in [
            (0, "0ms"),
            (28, "28ms"),
            (1_000, "1s"),
            (360_000, "6m0s"),
            (179_560, "2m59.56s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(short(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn each_dialect_states_its_limits_in_its_own_form() {
        let limit = Limit { allowed: 500_000, remaining: 467_993, reset: Duration::from_millis(1_500) };
        let limits = Limits { requests: limit, tokens: limit };
        let value = |dialect, operation, name: &str| {
            let fields = fields(dialect, operation, limits);
            fields.into_iter().find(|field| field.0 == name).map(|field| field.1)
        };
        let chat = |dialect, name| value(dialect, Operation::Chat, name).unwrap();
        assert_eq!(chat(Dialect::Openai, "x-ratelimit-reset-tokens"), "1.5s");
        assert_eq!(chat(Dialect::Azure, "x-ratelimit-reset-tokens"), "2");
        assert_eq!(chat(Dialect::Mistral, "ratelimitbysize-query-cost"), "32007");
        assert_eq!(chat(Dialect::Openrouter, "x-ratelimit-reset").len(), 13);
        assert_eq!(chat(Dialect::Anthropic, "anthropic-ratelimit-input-tokens-remaining"), "467000");
        assert_eq!(
            chat(Dialect::Anthropic, "anthropic-ratelimit-tokens-reset").len(),
            "2025-01-12T23:11:59Z".len()
        );
        let unknown = value(Dialect::Azure, Operation::Responses, "x-ratelimit-remaining-tokens");
        assert_eq!(unknown.as_deref(), Some("-1"));
        assert!(fields(Dialect::Bedrock, Operation::Converse, limits).is_empty());
    }
}
