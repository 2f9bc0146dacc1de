//! Parses the provider's reports of its own count from responses.
//!
//! Besides `Retry-After` these are `RateLimit` and `RateLimit-Policy` of the IETF draft (structured fields,
//! RFC 9651), the forms of its earlier versions, and the many variants of `X-RateLimit-*`. If several are
//! present, the strictest applies.

use egret_clock::{Timestamp, retry_after};
use egret_presets::{Counted, Preset};

use super::config::{LearnConfig, LearnFrom};

/// The provider's report in one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Learned {
    /// Number of units left.
    pub remaining: Option<u64>,
    /// Time at which units come back.
    pub reset: Option<Timestamp>,
    /// Time for the next call, from a response that rejected the call.
    pub retry: Option<Timestamp>,
}

/// The fields to read.
#[derive(Debug, Clone, Default)]
pub struct ReportReader {
    retry_after: bool,
    pairs: Vec<FieldPair>,
    rate_limit: bool,
}

/// Names of two fields that tell a count.
#[derive(Debug, Clone, Default)]
struct FieldPair {
    /// The field with the remaining units.
    remaining: Option<String>,
    /// The field with the reset time.
    reset: Option<String>,
    /// Value of `remaining` by which the provider says that it does not know.
    unknown: Option<String>,
}

/// The fields in which a well-known provider states its limits.
#[derive(Debug, Clone, Default)]
pub struct ProviderReaders {
    /// The fields about calls, if there are any.
    pub requests: Option<ReportReader>,
    /// The fields about tokens, if there are any.
    pub tokens: Option<ReportReader>,
}

impl ProviderReaders {
    /// Creates the readers of the fields in `preset`.
    pub fn new(preset: &Preset) -> Self {
        let reader = |counts: Counted| {
            let limits = preset.limits.iter().filter(|limit| limit.counts == counts);
            let pair = |limit: &egret_presets::LimitFields| FieldPair {
                remaining: Some(limit.remaining.clone()),
                reset: limit.reset.clone(),
                unknown: limit.unknown.clone(),
            };
            let pairs: Vec<FieldPair> = limits.map(pair).collect();
            (!pairs.is_empty()).then(|| ReportReader { pairs, ..ReportReader::default() })
        };
        Self { requests: reader(Counted::Requests), tokens: reader(Counted::Tokens) }
    }

    /// Returns the reader of calls, or of tokens if there is none.
    pub fn any(&self) -> Option<&ReportReader> {
        self.requests.as_ref().or(self.tokens.as_ref())
    }
}

/// Maximum number of policies that are read from one field.
const POLICIES_MAX: usize = 16;

impl ReportReader {
    /// Creates a reader of the fields in `config`.
    pub fn new(config: &LearnConfig) -> Self {
        let mut reader = Self::default();
        for from in &config.from {
            match from {
                LearnFrom::RetryAfter => reader.retry_after = true,
                LearnFrom::RateLimit => {
                    reader.rate_limit = true;
                    reader.pair("ratelimit");
                }
                LearnFrom::XRateLimit => {
                    reader.pair("x-ratelimit");
                    reader.pair("x-rate-limit");
                }
            }
        }
        let own = config.headers.iter().map(|headers| FieldPair {
            remaining: headers.remaining.clone(),
            reset: headers.reset.clone(),
            unknown: None,
        });
        reader.pairs.extend(own);
        reader
    }

    fn pair(&mut self, prefix: &str) {
        self.pairs.push(FieldPair {
            remaining: Some(format!("{prefix}-remaining")),
            reset: Some(format!("{prefix}-reset")),
            unknown: None,
        });
    }

    /// Parses the fields of a response; `None` if they contain no report. Of a repeated field the first one
    /// counts.
    pub fn read<'a>(
        &self,
        status: u16,
        fields: &(impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone),
        now: Timestamp,
    ) -> Option<Learned> {
        let find = |name: &str| {
            let is_it = |field: &(&[u8], &[u8])| field.0.eq_ignore_ascii_case(name.as_bytes());
            fields.clone().find(is_it).map(|(_, value)| value)
        };
        let mut learned = Learned::default();
        for FieldPair { remaining, reset, unknown } in &self.pairs {
            let value = |name: &Option<String>| name.as_ref().and_then(|name| find(name));
            if value(remaining).is_some_and(|told| unknown.as_ref().is_some_and(|it| it.as_bytes() == told)) {
                continue;
            }
            let reported = Learned {
                remaining: value(remaining).and_then(units),
                reset: value(reset).and_then(|value| retry_after::read(first_item(value), now)),
                retry: None,
            };
            learned = learned.stricter(reported);
        }
        if self.rate_limit
            && let Some(value) = find("ratelimit")
        {
            learned = learned.stricter(rate_limit(value, now));
        }
        if self.retry_after && matches!(status, 429 | 503) {
            learned.retry = find("retry-after").and_then(|value| retry_after::read(value, now));
        }
        (learned != Learned::default()).then_some(learned)
    }
}

impl Learned {
    /// Returns the stricter one of two reports of the same response, if there are any.
    #[must_use]
    pub fn of_both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        Some(Self { retry: one.retry.max(other.retry), ..one.stricter(other) })
    }

    /// Returns the report with fewer remaining units; if they are equal, the one with the later reset.
    fn stricter(self, other: Self) -> Self {
        let strictness = |reported: &Self| {
            (reported.remaining.is_some(), std::cmp::Reverse(reported.remaining), reported.reset)
        };
        if strictness(&other) > strictness(&self) { other } else { self }
    }
}

/// Parses `RateLimit`: `"default";r=50;t=30` for each policy, or, in an earlier draft,
/// `limit=100, remaining=50, reset=5`.
fn rate_limit(value: &[u8], now: Timestamp) -> Learned {
    let in_seconds = |value: &[u8]| retry_after::read(value, now);
    let mut strictest = Learned::default();
    let mut dictionary = Learned::default();
    for item in split(value, b',').take(POLICIES_MAX) {
        let mut parts = split(item, b';');
        match parts.next().and_then(pair) {
            Some((b"remaining", value)) => dictionary.remaining = units(value),
            Some((b"reset", value)) => dictionary.reset = in_seconds(value),
            _ => {}
        }
        let mut reported = Learned::default();
        for (key, value) in parts.filter_map(pair) {
            match key {
                b"r" => reported.remaining = units(value),
                b"t" => reported.reset = in_seconds(value),
                _ => {}
            }
        }
        strictest = strictest.stricter(reported);
    }
    strictest.stricter(dictionary)
}

/// Splits `key=value`.
fn pair(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = part.iter().position(|byte| *byte == b'=')?;
    Some((part[..at].trim_ascii(), part[at + 1..].trim_ascii()))
}

/// Splits at separators outside quoted strings.
fn split(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    value.split(move |byte| {
        let is_end = *byte == separator && !quoted;
        if *byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && *byte == b'\\' && !escaped;
        is_end
    })
}

/// Returns the first item of a list, without parameters: `100, 100;w=60`.
fn first_item(value: &[u8]) -> &[u8] {
    // A date contains a comma.
    if value.first().is_some_and(u8::is_ascii_alphabetic) {
        return value;
    }
    let end = value.iter().position(|byte| matches!(byte, b',' | b';')).unwrap_or(value.len());
    value[..end].trim_ascii()
}

/// Parses a number of units. A negative number counts as 0, and a fraction is dropped.
fn units(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(first_item(value.trim_ascii())).ok()?;
    let (owed, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number =
        |digits: &str| (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    if owed { Some(0) } else { whole.parse().ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::config::LearnHeaders;
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

    fn read(status: u16, fields: &[(&str, &str)]) -> Option<(Option<u64>, Option<u64>, Option<u64>)> {
        let own = LearnHeaders {
            remaining: Some("anthropic-ratelimit-requests-remaining".to_owned()),
            reset: Some("anthropic-ratelimit-requests-reset".to_owned()),
        };
        let mut config = LearnConfig::default();
        config.headers.push(own);
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let learned = ReportReader::new(&config).read(status, &fields, NOW)?;
        let seconds = |time: Option<Timestamp>| time.map(|time| time.since(NOW).as_secs());
        Some((learned.remaining, seconds(learned.reset), seconds(learned.retry)))
    }

    #[test]
    fn every_field_that_tells_a_count_is_read() {
        for (fields, expected) in [
            (
                &[
                    ("X-RateLimit-Limit", "60"),
                    ("X-RateLimit-Remaining", "56"),
                    ("X-RateLimit-Reset", "1795307500"),
                ][..],
                (Some(56), Some(24)),
            ),
            (&[("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "900")], (Some(0), Some(900))),
            (
                &[("x-ratelimit-remaining", "149984"), ("x-ratelimit-reset", "6m0s")],
                (Some(149_984), Some(360)),
            ),
            (
                &[("RateLimit-Limit", "10, 10;w=1"), ("RateLimit-Remaining", "7"), ("RateLimit-Reset", "1")],
                (Some(7), Some(1)),
            ),
            (&[("RateLimit", "limit=100, remaining=50, reset=5")], (Some(50), Some(5))),
            (
                &[("RateLimit", "\"default\";r=50;t=30"), ("RateLimit-Policy", "\"default\";q=100;w=60")],
                (Some(50), Some(30)),
            ),
            (&[("RateLimit", "\"a;r=0, b\";r=500;t=3600, \"burst\"; r=2; t=1")], (Some(2), Some(1))),
            (
                &[
                    ("anthropic-ratelimit-requests-remaining", "3"),
                    ("anthropic-ratelimit-requests-reset", "2026-11-22T00:31:26Z"),
                ],
                (Some(3), Some(10)),
            ),
            (&[("x-ratelimit-remaining", "-1")], (Some(0), None)),
            (&[("x-ratelimit-remaining", "4.5")], (Some(4), None)),
            (&[("x-ratelimit-reset", "Sun, 22 Nov 2026 00:31:26 GMT")], (None, Some(10))),
        ] {
            let (remaining, reset) = expected;
            assert_eq!(read(200, fields), Some((remaining, reset, None)), "{fields:?}");
        }
    }

    #[test]
    fn the_fields_of_a_preset_are_read_in_its_own_form() {
        use egret_presets::PresetName::{Anthropic, AzureOpenai, Groq, Mistral, Openai, Openrouter, Stripe};
        for (name, counts_tokens, fields, expected) in [
            (
                Openai,
                true,
                &[("x-ratelimit-remaining-tokens", "149984"), ("x-ratelimit-reset-tokens", "6m0s")][..],
                Some((Some(149_984), Some(360))),
            ),
            (Openai, false, &[("x-ratelimit-remaining-tokens", "1")], None),
            (
                Anthropic,
                false,
                &[
                    ("anthropic-ratelimit-requests-remaining", "3"),
                    ("anthropic-ratelimit-requests-reset", "2026-11-22T00:31:26Z"),
                ],
                Some((Some(3), Some(10))),
            ),
            (
                Groq,
                true,
                &[("x-ratelimit-remaining-tokens", "5"), ("x-ratelimit-reset-tokens", "2m59.56s")],
                Some((Some(5), Some(179))),
            ),
            (
                AzureOpenai,
                true,
                &[("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")],
                None,
            ),
            (
                AzureOpenai,
                true,
                &[("x-ratelimit-remaining-tokens", "7"), ("x-ratelimit-reset-tokens", "30")],
                Some((Some(7), Some(30))),
            ),
            (
                Mistral,
                true,
                &[("ratelimitbysize-remaining", "32007"), ("ratelimitbysize-reset", "40")],
                Some((Some(32_007), Some(40))),
            ),
            (
                Openrouter,
                false,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795307500000")],
                Some((Some(0), Some(24))),
            ),
            (Stripe, false, &[("x-ratelimit-remaining", "0")], None),
        ] {
            let readers = ProviderReaders::new(name.preset());
            let reader = if counts_tokens { readers.tokens } else { readers.requests };
            let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let learned = reader.and_then(|reader| reader.read(200, &fields, NOW));
            let told = learned.map(|told| (told.remaining, told.reset.map(|at| at.since(NOW).as_secs())));
            assert_eq!(told, expected, "{name}");
        }
    }

    #[test]
    fn a_time_to_try_again_is_read_from_refusals_alone() {
        for (status, expected) in
            [(200, None), (301, None), (429, Some((None, None, Some(7)))), (503, Some((None, None, Some(7))))]
        {
            assert_eq!(read(status, &[("Retry-After", "7")]), expected);
        }
    }

    #[test]
    fn unreadable_fields_report_no_limit() {
        for (name, value) in [
            ("x-ratelimit-remaining", "many"),
            ("x-ratelimit-remaining", ""),
            ("x-ratelimit-remaining", "99999999999999999999"),
            ("x-ratelimit-limit", "60"),
            ("ratelimit", "\"default"),
            ("ratelimit", ";;;,,,=;r=;t=x"),
            ("content-type", "text/plain"),
        ] {
            assert_eq!(read(429, &[(name, value)]), None, "{name}: {value}");
        }
    }

    proptest! {
        #[test]
        fn any_field_is_read_without_a_panic(value in "[\"\\\\;,=rt0-9a-z .-]{0,80}", bytes: Vec<u8>) {
            for name in ["ratelimit", "ratelimit-remaining", "x-ratelimit-reset", "retry-after"] {
                let _ = read(429, &[(name, &value)]);
                let fields = std::iter::once((name.as_bytes(), bytes.as_slice()));
                let _ = ReportReader::new(&LearnConfig::default()).read(503, &fields, NOW);
            }
        }
    }
}
