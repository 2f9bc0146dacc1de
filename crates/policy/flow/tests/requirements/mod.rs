//! What is asked of a shared cache, and what is done to see whether it is kept: one row for each requirement, as data, so that the same
//! rows are run on the cache's judgement alone and through a running gateway.
//!
//! A script is a step a line:
//!
//! | line | means |
//! | --- | --- |
//! | `+30` | thirty seconds pass |
//! | `> GET /a \| name: value \| "text"` | a client asks |
//! | `~5` | the provider takes five seconds for its next answer |
//! | `< 200 \| name: value \| "text"` | the provider answers, if it is asked; with the body `body-N` for its Nth answer where none is given |
//! | `< down` | the provider cannot be had |
//! | `< cut \| name: value` | the provider answers 200, and its connection ends in the middle of the body |
//! | `? name: value \| !name` | the request as the provider sees it has that field, or has none of that name |
//! | `= 200 \| name: value \| !name \| "text"` | the client gets that |
//!
//! A `>` without a `<` before its `=` must be answered without the provider; one with a `<` must not be. A line `& ...` is a call that is
//! made afterwards, in the background, with its own `<`. `{now}`, `{now-60}` and `{now+60}` are dates, and in
//! what is expected `*` stands for any text.

mod rows;

pub use rows::ROWS;

/// One requirement.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What it is called, as a test is.
    pub name: &'static str,
    /// Where it stands: `9111 §4.2.3`; `Egret` for what is asked of this cache besides.
    pub section: &'static str,
    /// `MUST`, `MUST NOT`, `SHOULD`, `SHOULD NOT`, `MAY`.
    pub level: &'static str,
    /// What it asks, in our words.
    pub asks: &'static str,
    /// The remedy's config, as JSON.
    pub config: &'static str,
    /// What is done.
    pub script: &'static str,
}

/// A line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Seconds pass.
    Pass(u64),
    /// A client asks: method, path, fields, and a body if one is given.
    Ask(String, String, Vec<String>, Option<String>),
    /// Seconds that the provider takes for its next answer.
    Delay(u64),
    /// The provider's next answer.
    Origin(Origin),
    /// What the provider sees.
    Seen(Vec<String>),
    /// What the client gets.
    Get(u16, Vec<String>, Option<String>),
    /// A call in the background has this answer.
    Later(Origin),
}

/// What the provider does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nothing: it cannot be had.
    Down,
    /// It answers with a status, fields, and a body if one is given.
    Answer(u16, Vec<String>, Option<String>),
    /// It answers with 200 and fields, and breaks off.
    Cut(Vec<String>),
}

impl Row {
    /// The steps of the script, with dates as they are at `now_s`, seconds since 1970, where it begins. `write` writes a date.
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
        status => Origin::Answer(status.parse().unwrap(), fields, body),
    }
}

/// Fields, and the text between quotes that may come after them.
fn with_body(mut parts: Vec<String>) -> (Vec<String>, Option<String>) {
    let is_body = parts.last().is_some_and(|last| last.starts_with('"') && last.ends_with('"'));
    let body = if is_body { parts.pop().map(|body| body[1..body.len() - 1].to_owned()) } else { None };
    (parts, body)
}

/// Whether `text` is as `pattern` has it, in which `*` stands for any text.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(before) else { return false };
    (0..=text.len()).any(|at| text.is_char_boundary(at) && is_like(rest, &text[at..]))
}

/// The first of the expected fields that is not as expected.
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

/// `text` with dates in place of `{now}`, `{now-60}`, `{now+60}`.
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
