//! Requirements of a shared cache and the scripts that test them, one row per requirement. The same rows run
//! against the cache policy alone and through a running gateway.
//!
//! A script has one step per line:
//!
//! | line | meaning |
//! | --- | --- |
//! | `+30` | thirty seconds pass |
//! | `> GET /a \| name: value \| "text"` | a client sends a request |
//! | `~5` | the provider takes five seconds for its next response |
//! | `< 200 \| name: value \| "text"` | the provider's response, if it is called; without a body, the Nth response has the body `body-N` |
//! | `< down` | the provider is unreachable |
//! | `< cut \| name: value` | the provider responds with 200, and its connection ends in the middle of the body |
//! | `? name: value \| !name` | the provider's view of the request has that field, or has no field of that name |
//! | `= 200 \| name: value \| !name \| "text"` | the client receives this response |
//!
//! A `>` without a `<` before its `=` must be served without the provider; one with a `<` must not be. A line
//! `& ...` is a later call in the background, with its own `<`. `{now}`, `{now-60}` and `{now+60}` are dates.
//! In expectations, `*` matches any text.

mod rows;

pub use rows::ROWS;

/// One requirement.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Name, like that of a test.
    pub name: &'static str,
    /// Section of the RFC: `9111 §4.2.3`; `Egret` for additional requirements of this cache.
    pub section: &'static str,
    /// `MUST`, `MUST NOT`, `SHOULD`, `SHOULD NOT`, `MAY`.
    pub level: &'static str,
    /// The requirement in our own words.
    pub asks: &'static str,
    /// Config of the remedy, as JSON.
    pub config: &'static str,
    /// The script.
    pub script: &'static str,
}

/// A line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Seconds pass.
    Pass(u64),
    /// A client sends a request: method, path, fields, and a body if one is given.
    Ask(String, String, Vec<String>, Option<String>),
    /// Seconds until the provider's next response.
    Delay(u64),
    /// The provider's next response.
    Origin(Origin),
    /// Fields that the provider sees.
    Seen(Vec<String>),
    /// The response that the client gets.
    Get(u16, Vec<String>, Option<String>),
    /// The provider's response to a call in the background.
    Later(Origin),
}

/// The behaviour of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It is unreachable.
    Down,
    /// It responds with a status, fields, and a body if one is given.
    LocalResponse(u16, Vec<String>, Option<String>),
    /// It responds with 200 and fields, and closes the connection early.
    Cut(Vec<String>),
}

impl Row {
    /// Parses the steps of the script. Dates are relative to its start at `now_s`, in seconds since 1970.
    /// `write` formats a date.
    pub fn steps(&self, mut now_s: u64, write: impl Fn(u64) -> String) -> Vec<Step> {
        let lines = self.script.lines().map(str::trim).filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let (kind, rest) = line.split_at(1);
                let text = dated(rest.trim(), now_s, &write);
                let mut parts = text.split(" | ").map(str::trim).map(str::to_owned);
                let first = parts.next().unwrap();
                let rest: Vec<String> = parts.collect();
                match kind {
                    "+" => {
                        let seconds = first.parse().unwrap();
                        now_s += seconds;
                        Step::Pass(seconds)
                    }
                    "~" => {
                        let seconds = first.parse().unwrap();
                        now_s += seconds;
                        Step::Delay(seconds)
                    }
                    ">" => {
                        let (method, path) = first.split_once(' ').unwrap();
                        let (fields, body) = with_body(rest);
                        Step::Ask(method.to_owned(), path.to_owned(), fields, body)
                    }
                    "<" => Step::Origin(origin(&first, rest)),
                    "&" => Step::Later(origin(&first, rest)),
                    "?" => Step::Seen(std::iter::once(first).chain(rest).collect()),
                    "=" => {
                        let (fields, body) = with_body(rest);
                        Step::Get(first.parse().unwrap(), fields, body)
                    }
                    _ => panic!("{line}"),
                }
            })
            .collect()
    }
}

fn origin(first: &str, rest: Vec<String>) -> Origin {
    let (fields, body) = with_body(rest);
    match first {
        "down" => Origin::Down,
        "cut" => Origin::Cut(fields),
        status => Origin::LocalResponse(status.parse().unwrap(), fields, body),
    }
}

/// Splits off the quoted text that may follow the fields.
fn with_body(mut parts: Vec<String>) -> (Vec<String>, Option<String>) {
    let is_body = parts.last().is_some_and(|last| last.starts_with('"') && last.ends_with('"'));
    let body = if is_body { parts.pop().map(|body| body[1..body.len() - 1].to_owned()) } else { None };
    (parts, body)
}

/// Returns `true` if `text` matches `pattern`, in which `*` matches any text.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(before) else { return false };
    (0..=text.len()).any(|at| text.is_char_boundary(at) && is_like(rest, &text[at..]))
}

/// Returns the first expected field that does not match.
pub fn unmet<'a>(expected: &'a [String], fields: &[(String, String)]) -> Option<&'a String> {
    expected.iter().find(|line| {
        let wanted = line.strip_prefix('!').unwrap_or(line);
        let is_there = fields.iter().any(|(name, value)| match wanted.split_once(": ") {
            Some((other, pattern)) => name.eq_ignore_ascii_case(other) && is_like(pattern, value),
            None => name.eq_ignore_ascii_case(wanted),
        });
        is_there == line.starts_with('!')
    })
}

/// Replaces `{now}`, `{now-60}` and `{now+60}` in `text` by dates.
fn dated(text: &str, now_s: u64, write: &impl Fn(u64) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{now") {
        let (offset, after) = after.split_once('}').unwrap();
        let offset: i64 = if offset.is_empty() { 0 } else { offset.parse().unwrap() };
        out.push_str(before);
        out.push_str(&write(now_s.checked_add_signed(offset).unwrap()));
        rest = after;
    }
    out + rest
}
