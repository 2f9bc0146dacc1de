//! The lines of `egret tail`.
//!
//! Texts of exchanges come from clients and providers, so control characters are never printed: they could
//! command the terminal.

use std::fmt::Write as _;
use std::ops::Range;

use egret_json::printable::printable_line;
use serde_json::Value;

/// Least number of columns for a URL, however narrow the terminal is.
const URL_COLUMNS_MIN: usize = 12;
/// Maximum number of characters of a failed response's body.
const BODY_CHARS_MAX: usize = 400;

/// An exchange, as far as a line shows it.
pub struct Exchange {
    date: String,
    time: String,
    status: u64,
    duration: String,
    method: String,
    url: String,
    notes: Vec<String>,
}

/// The form of the lines.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// With colors.
    pub colors: bool,
    /// To a terminal, whose width is a limit.
    pub is_terminal: bool,
    /// With the date, for calls that may be from another day.
    pub has_dates: bool,
}

impl Exchange {
    /// Reads an exchange of the API.
    pub fn of(value: &Value) -> Self {
        let text = |key: &str| clean(value[key].as_str().unwrap_or_default());
        let number = |key: &str| value[key].as_u64().unwrap_or_default();
        let mut notes = Vec::new();
        match &*text("answered_by") {
            "provider" => {}
            "egret" if value["method"] == "CONNECT" && number("status") / 100 == 2 => {
                notes.push("tunnel".to_owned());
            }
            "egret" if value["error"].is_string() => notes.push(format!("egret: {}", text("error"))),
            by => notes.push(by.to_owned()),
        }
        let grpc_status = text("grpc_status");
        if !matches!(&*grpc_status, "" | "ok") {
            notes.push(format!("grpc: {grpc_status}"));
        }
        if value["cut_short"] == true {
            notes.push("cut short".to_owned());
        }
        if let Some(closed_us) = value["client_closed_us"].as_u64() {
            notes.push(format!("client closed at {}", duration_in_words(closed_us)));
        }
        if number("attempts") > 1 {
            notes.push(format!("{} calls", number("attempts")));
        }
        let flows = value["flows"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let flows = flows.map(clean).collect::<Vec<_>>().join(",");
        if !flows.is_empty() {
            notes.push(format!("flow {flows}"));
        }
        if !text("consumer").is_empty() {
            notes.push(format!("consumer {}", text("consumer")));
        }
        let started = text("started");
        let part = |range: Range<usize>| started.get(range).unwrap_or_default().to_owned();
        Self {
            date: part(0..10),
            time: part(11..23),
            status: number("status"),
            duration: duration_in_words(number("duration_us")),
            method: text("method"),
            url: text("url"),
            notes,
        }
    }
}

impl Style {
    /// Returns the line of an exchange, with a line end.
    pub fn line(self, exchange: &Exchange) -> String {
        let Exchange { date, time, status, duration, method, url, notes } = exchange;
        let time = if self.has_dates { &format!("{date} {time}") } else { time };
        let status_text = if *status == 0 { "---".to_owned() } else { status.to_string() };
        let notes = notes.join("; ");
        let before = format!("{time} {status_text:>3} {duration:>8} {method:<6} ");
        let width = self.width();
        let rest = width.map(|width| width.saturating_sub(before.chars().count()));
        let url = rest.map_or_else(
            || url.clone(),
            |rest| cut(url, rest.saturating_sub(notes.chars().count() + 2).max(URL_COLUMNS_MIN.min(rest))),
        );
        let left = rest.map(|rest| rest.saturating_sub(url.chars().count() + 2));
        let notes = left.map_or_else(|| notes.clone(), |left| cut(&notes, left));
        let mut line = self.painted("2", time);
        let _ = write!(
            line,
            " {} {duration:>8} {method:<6} {url}",
            self.painted(color_of(*status), &format!("{status_text:>3}"))
        );
        if !notes.is_empty() {
            let _ = write!(line, "  {}", self.painted("36", &notes));
        }
        if let Some(width) = width.filter(|width| before.chars().count() > *width) {
            // Not even the columns before the URL fit. Colors would make the cut hard.
            line = cut(before.trim_end(), width);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }

    /// Appends header fields and the decisions of remedies.
    pub fn details(self, details: &Value, out: &mut String) {
        let har = &details["har"];
        for (mark, message) in [(">", &har["request"]), ("<", &har["response"])] {
            for field in message["headers"].as_array().into_iter().flatten() {
                let [name, value] =
                    ["name", "value"].map(|key| clean(field[key].as_str().unwrap_or_default()));
                let _ = writeln!(out, "    {mark} {}: {value}", self.painted("2", &name));
            }
        }
        let content = &har["response"]["content"];
        if let Some(body) = content["text"].as_str().filter(|body| !body.trim().is_empty())
            && content["encoding"].is_null()
            && har["response"]["status"].as_u64().is_some_and(|status| status >= 400)
        {
            let _ = writeln!(out, "    < {}", cut(&clean(body.trim()), BODY_CHARS_MAX));
        }
        for decision in details["decisions"].as_array().into_iter().flatten() {
            let [flow, remedy, text, does] = ["flow", "remedy", "text", "does"]
                .map(|key| clean(decision[key].as_str().unwrap_or_default()));
            let report = if decision["report"] == true { " (report only)" } else { "" };
            let does = if does.is_empty() { String::new() } else { format!(" [{does}]") };
            let _ = writeln!(
                out,
                "    {} {text}{report}{does}",
                self.painted("36", &format!("{remedy} of {flow}"))
            );
        }
    }

    /// Number of columns, if there is a limit.
    fn width(self) -> Option<usize> {
        if !self.is_terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        // A character in the last column may make the terminal wrap.
        (size.ws_col > 1).then(|| usize::from(size.ws_col) - 1)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colors { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns the color of a status.
fn color_of(status: u64) -> &'static str {
    match status / 100 {
        0 => "35",
        2 => "32",
        4 => "33",
        5.. => "31",
        _ => "34",
    }
}

/// Returns a text of an exchange, which has one line in the output.
fn clean(text: &str) -> String {
    printable_line(text).into_owned()
}

/// Returns at most `max` characters of a text, with a mark if some are missing.
fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept = text.chars().take(max.saturating_sub(1));
    kept.chain((max > 0).then_some('…')).collect()
}

/// Returns a duration with three digits.
pub fn duration_in_words(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10),
        10_000..100_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        100_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..100_000_000 => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
        _ => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: Style = Style { colors: false, is_terminal: false, has_dates: false };

    fn exchange() -> Value {
        json!({
            "started": "2026-11-25T14:03:07.123456Z", "method": "GET", "url": "https://a.example/v1/x?y=1",
            "status": 503, "answered_by": "egret", "error": "dns-failed", "duration_us": 12_345, "attempts": 3,
            "flows": ["one", "two"], "consumer": "shop\u{1b}[31m", "cut_short": false,
        })
    }

    #[test]
    fn a_line_says_what_was_called_and_who_answered() {
        assert_eq!(
            PLAIN.line(&Exchange::of(&exchange())),
            "14:03:07.123 503  12.3 ms GET    https://a.example/v1/x?y=1  egret: dns-failed; 3 calls; flow one,two; \
             consumer shop\u{fffd}[31m\n"
        );
        let provider =
            json!({ "answered_by": "provider", "status": 200, "url": "http://b/", "method": "POST" });
        assert_eq!(PLAIN.line(&Exchange::of(&provider)), " 200     0 µs POST   http://b/\n");
        let tunnel = json!({ "answered_by": "egret", "error": null, "status": 200, "url": "c:443", "method": "CONNECT" });
        assert_eq!(PLAIN.line(&Exchange::of(&tunnel)), " 200     0 µs CONNECT c:443  tunnel\n");
        let none = json!({ "answered_by": "nobody", "status": 0 });
        assert!(PLAIN.line(&Exchange::of(&none)).contains(" ---     0 µs"));
    }

    #[test]
    fn failed_calls_have_a_date_and_the_beginning_of_their_body() {
        let line = Style { has_dates: true, ..PLAIN }.line(&Exchange::of(&exchange()));
        assert!(line.starts_with("2026-11-25 14:03:07.123 503 "), "{line}");
        let details = |status: u64, content: Value| {
            let mut out = String::new();
            let har = json!({ "response": { "status": status, "content": content } });
            PLAIN.details(&json!({ "har": har }), &mut out);
            out
        };
        assert_eq!(details(503, json!({ "text": "{\"error\":1}\n" })), "    < {\"error\":1}\n");
        assert_eq!(details(200, json!({ "text": "fine" })), "");
        assert_eq!(details(503, json!({ "text": "AAAA", "encoding": "base64" })), "");
        let long = details(429, json!({ "text": "x".repeat(10_000) }));
        assert_eq!(long.trim_end().chars().count(), "    < ".len() + BODY_CHARS_MAX);
    }

    #[test]
    fn colors_are_those_of_the_status() {
        let line = Style { colors: true, ..PLAIN }.line(&Exchange::of(&exchange()));
        assert!(line.starts_with("\u{1b}[2m14:03:07.123\u{1b}[0m \u{1b}[31m503\u{1b}[0m "), "{line:?}");
    }

    #[test]
    fn details_are_cleaned_too() {
        let mut out = String::new();
        let details = json!({
            "har": { "request": { "headers": [{ "name": "A", "value": "b\u{1b}c" }] }, "response": {} },
            "decisions": [{ "flow": "f", "remedy": "retry", "text": "had no effect", "does": "up to 3 calls", "report": true }],
        });
        PLAIN.details(&details, &mut out);
        assert_eq!(out, "    > A: b\u{fffd}c\n    retry of f had no effect (report only) [up to 3 calls]\n");
    }

    #[test]
    fn a_text_is_cut_with_a_mark() {
        assert_eq!([cut("abc", 3), cut("abcd", 3), cut("abc", 1), cut("abc", 0)], ["abc", "ab…", "…", ""]);
    }

    #[test]
    fn durations_have_three_digits() {
        let words = [7, 1_234, 12_345, 123_456, 1_234_567, 123_456_789].map(duration_in_words);
        assert_eq!(words, ["7 µs", "1.23 ms", "12.3 ms", "123 ms", "1.2 s", "123 s"]);
    }
}
