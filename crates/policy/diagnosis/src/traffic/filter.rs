//! Filters of live traffic: the keys of a flow's match, and how the exchange ended.
//!
//! A filter sees an exchange as readers do, without its secrets: otherwise somebody could find one out by
//! asking for more and more of it.

use egret_clock::Timestamp;
use egret_config::Duration;
use egret_har::Mask;
use egret_har::obfuscate::MessageKind;
use egret_http1::{HeadLimits, MAX_FIELDS, MAX_HEAD, Progress, RequestHead};
use egret_match::matching::{AnyOf, MatchConfig, MatchInput};
use egret_match::router::{MatchRule, Router};
use egret_message::request_target::split_target;
use egret_message::{Fields, Request};

use crate::finished::{Parsed, RecordReader};
use crate::traffic::entry::AnsweredBy;
use crate::traffic::list::TrafficEntry;

/// Maximum number of conditions.
const CONDITIONS_MAX: usize = 64;

/// A condition on exchanges.
#[derive(Debug, Default)]
pub struct TrafficFilter {
    /// The keys of a match. `None` if there are none.
    router: Option<Router>,
    /// Names of the fields that it reads, in lower case.
    fields: Vec<String>,
    /// `true` if it reads the path or the query.
    reads_target: bool,
    flows: Vec<String>,
    statuses: Vec<Statuses>,
    answered_by: Vec<AnsweredBy>,
    errors: Vec<String>,
    slower_than_us: u64,
}

/// A range of status codes; 0 stands for no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Statuses {
    first: u16,
    last: u16,
}

/// The reason why a filter cannot be read. It never repeats the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {message}")]
pub struct FilterError {
    /// The key that is wrong.
    pub key: String,
    /// The reason.
    pub message: String,
}

/// Conditions as they are read.
#[derive(Default)]
struct FilterDraft {
    matching: MatchConfig,
    filter: TrafficFilter,
}

impl TrafficFilter {
    /// Reads a filter from keys and values. A key may be repeated: one of its values must match.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, FilterError> {
        let mut draft = FilterDraft::default();
        for (number, (key, value)) in pairs.into_iter().enumerate() {
            let wrong = |message: String| FilterError { key: shown(key), message };
            if number >= CONDITIONS_MAX {
                return Err(wrong(format!("there are more than {CONDITIONS_MAX} conditions")));
            }
            draft.add(key, value).map_err(wrong)?;
        }
        draft.compile()
    }

    /// Returns `true` if the exchange of an entry meets the filter.
    pub(crate) fn takes(&self, entry: &TrafficEntry, mask: &Mask, reader: &mut RecordReader) -> bool {
        let Self { statuses, answered_by, errors, flows, slower_than_us, .. } = self;
        let (exchange, status) = (&entry.exchange, entry.status);
        let error = exchange.facts.error.unwrap_or_default();
        entry.duration_us >= *slower_than_us
            && (statuses.is_empty() || statuses.iter().any(|range| range.has(status)))
            && (answered_by.is_empty() || answered_by.contains(&AnsweredBy::of(exchange, status)))
            && (errors.is_empty() || errors.iter().any(|wanted| wanted == error))
            && (flows.is_empty() || exchange.flows().any(|flow| flows.iter().any(|wanted| wanted == flow)))
            && self.router.as_ref().is_none_or(|router| {
                let parsed = reader.read(exchange);
                parsed.is_some_and(|parsed| self.matches(router, parsed, mask))
            })
    }

    /// Asks the match about a request without its secrets.
    fn matches(&self, router: &Router, parsed: Parsed<'_>, mask: &Mask) -> bool {
        let record = parsed.record();
        let target = if self.reads_target {
            mask.target(record.relative_target(), |_, _| false).into_bytes()
        } else {
            b"/".to_vec()
        };
        let (path, query) = split_target(&target);
        let Some((head, head_bytes)) = self.head(parsed, mask) else { return false };
        let fields = Fields::received(&head.fields, &head_bytes);
        let request = Request {
            provider: record.provider(),
            tls: record.facts.tls,
            host: record.host(),
            port: record.facts.port,
            method: parsed.method_text(),
            path,
            query,
            fields,
            upgrade: false,
            body: None,
        };
        let question = MatchInput { request: &request, roll: 0, now: Timestamp::default(), has_body: true };
        router.mismatch(0, question).is_none()
    }

    /// Returns a head with the fields that the filter reads, without their secrets.
    fn head(&self, parsed: Parsed<'_>, mask: &Mask) -> Option<(RequestHead, Vec<u8>)> {
        // This version needs no `Host`.
        let mut bytes = b"GET / HTTP/1.0\r\n".to_vec();
        for (name, value) in parsed.request_fields() {
            let name = str::from_utf8(name).unwrap_or_default();
            if self.fields.iter().any(|wanted| name.eq_ignore_ascii_case(wanted)) {
                let value = mask.field(MessageKind::Request, name, value);
                for piece in [name, ": ", &value, "\r\n"] {
                    bytes.extend_from_slice(piece.as_bytes());
                }
            }
        }
        bytes.extend_from_slice(b"\r\n");
        let limits = HeadLimits { start_line: MAX_HEAD, head: MAX_HEAD, fields: MAX_FIELDS };
        let mut head = RequestHead::new();
        let is_read = matches!(head.parse(&bytes, &limits), Ok(Progress::Complete));
        is_read.then_some((head, bytes))
    }
}

impl FilterDraft {
    /// Adds a condition.
    fn add(&mut self, key: &str, value: &str) -> Result<(), String> {
        let Self { matching, filter } = self;
        let list = || value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned);
        match key {
            "provider" => extend(&mut matching.provider, list()),
            "method" => extend(&mut matching.method, list().map(|method| method.to_ascii_uppercase())),
            // Patterns of these may have commas.
            "host" => extend(&mut matching.host, [value.to_owned()]),
            "path" => extend(&mut matching.path, [value.to_owned()]),
            "consumer" => extend(&mut matching.consumer, [value.to_owned()]),
            "flow" => filter.flows.extend(list()),
            "error" => filter.errors.extend(list()),
            "status" => {
                for part in list() {
                    filter.statuses.push(Statuses::parse(&part).ok_or(
                        "expected a status, a class or a range: `429`, `5xx`, `200-299`, or `none` for no response",
                    )?);
                }
            }
            "answered_by" => {
                for part in list() {
                    let by = AnsweredBy::ALL.into_iter().find(|by| by.word() == part);
                    filter.answered_by.push(by.ok_or("expected `provider`, `cache`, `egret` or `nobody`")?);
                }
            }
            "slower_than" => {
                let least: Duration =
                    value.parse().map_err(|_| "expected a duration like `500ms` or `2s`")?;
                filter.slower_than_us = least.as_millis().saturating_mul(1_000);
            }
            _ => match key.split_once('.') {
                Some(("query", name)) if !name.is_empty() => {
                    extend(matching.query.entry(name.to_owned()).or_default(), [value.to_owned()]);
                }
                Some(("header", name)) if !name.is_empty() => {
                    extend(matching.header.entry(name.to_owned()).or_default(), [value.to_owned()]);
                    filter.fields.push(name.to_ascii_lowercase());
                }
                _ => return Err("there is no such filter".to_owned()),
            },
        }
        Ok(())
    }

    fn compile(self) -> Result<TrafficFilter, FilterError> {
        let Self { matching, mut filter } = self;
        if matching == MatchConfig::default() {
            return Ok(filter);
        }
        if !matching.consumer.is_empty() {
            filter.fields.extend(["x-egret-consumer", "x-lunar-consumer-tag"].map(str::to_owned));
        }
        filter.reads_target = !matching.path.is_empty() || !matching.query.is_empty();
        let rule = MatchRule { name: "filter", matching: &matching };
        let router = Router::compile(&[rule]).map_err(|problems| {
            let first = problems.into_iter().next();
            let (path, message) = first.map(|problem| (problem.path, problem.message)).unwrap_or_default();
            let key = path.strip_prefix("flows[0].match.").unwrap_or(&path).to_owned();
            FilterError { key, message }
        })?;
        Ok(TrafficFilter { router: Some(router), ..filter })
    }
}

/// Adds alternatives.
fn extend(any: &mut AnyOf, more: impl IntoIterator<Item = String>) {
    *any = any.iter().cloned().chain(more).collect();
}

/// Returns the part of an unknown key that may be repeated to the client.
fn shown(key: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
    key.chars().take_while(is_plain).take(40).collect()
}

impl Statuses {
    fn parse(text: &str) -> Option<Self> {
        let status = |text: &str| text.parse().ok().filter(|status| (100..=999).contains(status));
        if text == "none" {
            return Some(Self { first: 0, last: 0 });
        }
        if let Some(class) = text.strip_suffix("xx") {
            let class: u16 = class.parse().ok().filter(|class| (1..=9).contains(class))?;
            return Some(Self { first: class * 100, last: class * 100 + 99 });
        }
        match text.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (status(first)?, status(last)?);
                (first <= last).then_some(Self { first, last })
            }
            None => status(text).map(|status| Self { first: status, last: status }),
        }
    }

    fn has(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_codes_classes_and_ranges() {
        let has = |text: &str, status: u16| Statuses::parse(text).unwrap().has(status);
        assert!(has("429", 429) && !has("429", 428));
        assert!(has("5xx", 500) && has("5xx", 599) && !has("5xx", 499));
        assert!(has("200-299", 204) && !has("200-299", 300));
        assert!(has("none", 0) && !has("none", 200));
        for wrong in ["", "x", "0xx", "xx", "42", "1000", "299-200", "200-", "-5", "5XX", "no"] {
            assert_eq!(Statuses::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wrong_filter_names_its_key_and_not_its_value() {
        let error = |key: &str, value: &str| TrafficFilter::parse([(key, value)]).unwrap_err();
        for (key, value) in [
            ("status", "s3cr3t"),
            ("answered_by", "s3cr3t"),
            ("slower_than", "s3cr3t"),
            ("stat", "s3cr3t"),
            ("header.", "s3cr3t"),
            ("when", "s3cr3t"),
            ("sample", "s3cr3t"),
        ] {
            let error = error(key, value);
            assert_eq!(error.key, key);
            assert!(!error.to_string().contains("s3cr3t"), "{error}");
        }
        assert_eq!(error("path", "no/slash").key, "path");
        assert_eq!(error("no such <key>", "").key, "no");
        let many = std::iter::repeat_n(("provider", "a"), CONDITIONS_MAX + 1);
        assert!(TrafficFilter::parse(many).is_err());
    }
}
