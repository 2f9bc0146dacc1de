//! `access-log`: writes one line per exchange, as JSON or from a template, with sensitive values obfuscated.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use egret_clock::rfc3339;
use egret_config::Problem;
use egret_har::obfuscate::MessageKind as Message;
use egret_har::sink::{Content, Exported, Sink};
use egret_har::{Key, Mask, Recording, RecordingConfig};
use egret_items::words;
use egret_json::printable::{is_unprintable, printable_json, push_value};
use egret_json::write_escaped;
use egret_match::matching::{PathPattern, SegmentPattern, decode};
use egret_message::grpc::GrpcStatus;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::CompileContext;
use crate::diagnosis::Diagnosis;
use crate::finished::Finished;

/// Maximum length of a value. Longer values are cut.
const VALUE_BYTES_MAX: usize = 4 * 1024;
/// Maximum length of a template.
const TEMPLATE_BYTES_MAX: usize = 4 * 1024;
/// Maximum number of values in a line.
const PARTS_MAX: usize = 64;

/// Writes a log line for each exchange. A text alone is its `export`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename = "short form: export")]
#[schemars(rename = "AccessLogConfig", transform = egret_config::or_text)]
pub struct AccessLogConfig {
    /// Name of the exporter, under `exporters`. Its type must be `lines` or `stdout`, or `s3` with
    /// `format: lines`.
    pub export: String,
    /// Fields of a JSON line, in order. Empty values are left out. The handbook lists the names.
    #[serde(default = "fields")]
    pub fields: Vec<String>,
    /// Template of a plain-text line, with placeholders such as `${status}` or
    /// `${request.headers.user-agent}`. `$${` is a literal `${`. An empty value is written as `-`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "egret_config::verbatim")]
    pub template: Option<String>,
    /// Replaces every value of a query parameter or header field, and every path segment that the flow's
    /// match does not name literally, by a pseudonym. Pseudonyms are made with a key that only this
    /// installation has.
    #[serde(default = "egret_config::yes")]
    pub obfuscate: bool,
    /// Values that are not obfuscated, as exact paths: `request.headers.accept`, `request.query.page`,
    /// `request.path[0]`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Replaces secrets by pseudonyms even where `obfuscate` does not: values that look like a token, a key,
    /// a card number or an e-mail address, and values with names such as `authorization` or `password`.
    #[serde(default = "egret_config::yes")]
    pub detect_secrets: bool,
    /// Names whose values are replaced like secrets, at any depth: of members, fields, parameters and
    /// cookies. Case, `-` and `_` do not matter. `iban`, `phone`, `ip`, `ipv4`, `ipv6` and `ssn` also replace
    /// values that look like one. At most 256, for `obfuscate: false`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<String>,
}

impl AccessLogConfig {
    fn recording(&self) -> RecordingConfig {
        RecordingConfig {
            obfuscate: self.obfuscate,
            exclude: self.exclude.clone(),
            detect_secrets: self.detect_secrets,
            mask: self.mask.clone(),
            ..RecordingConfig::default()
        }
    }
}

fn fields() -> Vec<String> {
    let names = [
        "time",
        "client",
        "request_id",
        "consumer",
        "provider",
        "method",
        "host",
        "target",
        "status",
        "error",
        "grpc_status",
        "duration_us",
        "provider_us",
        "footprint_us",
        "request_bytes",
        "response_bytes",
        "attempts",
        "remedies",
        "cut_short",
        "intercepted",
    ];
    names.map(str::to_owned).into()
}

/// Writes a log line for each exchange.
#[derive(Debug)]
pub struct AccessLog {
    config: AccessLogConfig,
    line: LineFormat,
    sink: Arc<dyn Sink>,
    /// Paths of the flow's match, by their text.
    patterns: HashMap<String, PathPattern>,
    /// `None` while the config is only checked.
    mask: Option<Box<(Mask, Arc<Key>)>>,
    /// Buffer for a line. Only the diagnosis thread uses it, so the lock is never contended.
    room: Mutex<Vec<u8>>,
}

/// Format of a line.
#[derive(Debug)]
enum LineFormat {
    Json(Vec<(String, Placeholder)>),
    Template(Vec<LinePiece>),
}

#[derive(Debug)]
enum LinePiece {
    Text(String),
    Placeholder(Placeholder, Quoting),
}

/// The way in which a template has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    /// Escaped, so that it stays within the quotes or the place that the template has for it.
    Escaped,
    /// As the value of a pair `key=value`: in quotes unless it is plain.
    Pair,
}

/// A value that a line can contain.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Placeholder {
    Builtin(Builtin),
    Field(Message, String),
}

words! {
    /// A value other than a header field.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Builtin: name {
        Time => "time",
        Flow => "flow",
        Endpoint => "endpoint",
        Client => "client",
        Server => "server",
        RequestId => "request_id",
        Consumer => "consumer",
        Provider => "provider",
        Method => "method",
        Scheme => "scheme",
        Host => "host",
        Path => "path",
        Target => "target",
        Status => "status",
        Error => "error",
        GrpcStatus => "grpc_status",
        Generated => "generated",
        CutShort => "cut_short",
        Intercepted => "intercepted",
        Duration => "duration_us",
        Blocked => "blocked_us",
        ProviderTime => "provider_us",
        Footprint => "footprint_us",
        RequestBytes => "request_bytes",
        ResponseBytes => "response_bytes",
        Attempts => "attempts",
        Remedies => "remedies",
    }
}

/// The value of a placeholder.
enum PlaceholderValue {
    Text(String),
    Number(u64),
    /// Written only if `true`.
    Flag(bool),
}

impl Diagnosis for AccessLog {
    type Config = AccessLogConfig;

    fn exporter(config: &AccessLogConfig) -> Option<&str> {
        Some(&config.export)
    }

    fn compile(config: &AccessLogConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let problems = context.problems.len();
        let sink = context.sink("export", &config.export, Content::Lines);
        let line = line(config, context);
        let recording = Recording::compile(&config.recording()).map_err(|errors| {
            for error in errors {
                context.problem(&error.path, error.message);
            }
        });
        if context.problems.len() > problems {
            return None;
        }
        let recording = recording.ok()?.with_secret_names(context.secret_names);
        let paths = context.matching.path.iter();
        let patterns = paths.filter_map(|text| Some((text.clone(), PathPattern::parse(text).ok()?)));
        let mask = context
            .exports
            .key
            .as_ref()
            .map(|key| Box::new((Mask::new((**key).clone(), &recording), Arc::clone(key))));
        Some(Self {
            config: config.clone(),
            line,
            sink: sink?,
            patterns: patterns.collect(),
            mask,
            room: Mutex::default(),
        })
    }

    fn describe(&self) -> String {
        let AccessLogConfig { export, .. } = &self.config;
        format!("writes a line for each exchange to {export}, {}", self.config.recording().manner())
    }

    fn see(&self, exchange: &Finished<'_>) {
        let Some((mask, key)) = self.mask.as_deref() else { return };
        let mut room = self.room.lock();
        room.clear();
        let value = |part: &Placeholder| self.value_of(part, exchange, mask, key);
        match &self.line {
            LineFormat::Json(fields) => {
                room.push(b'{');
                for (name, part) in fields {
                    push_member(name, &value(part), &mut room);
                }
                room.push(b'}');
                if let Cow::Owned(escaped) = printable_json(&String::from_utf8_lossy(&room)) {
                    *room = escaped.into_bytes();
                }
            }
            LineFormat::Template(pieces) => {
                for piece in pieces {
                    match piece {
                        LinePiece::Text(text) => room.extend_from_slice(text.as_bytes()),
                        LinePiece::Placeholder(part, quoting) => push_text(&value(part), *quoting, &mut room),
                    }
                }
            }
        }
        self.sink.put(Exported { entry: &room, client: None, service_token: "", environment: "" });
    }
}

impl AccessLog {
    fn value_of(
        &self,
        part: &Placeholder,
        exchange: &Finished<'_>,
        mask: &Mask,
        key: &Key,
    ) -> PlaceholderValue {
        let record = exchange.record();
        let facts = exchange.facts();
        let part = match part {
            Placeholder::Builtin(part) => *part,
            Placeholder::Field(message, name) => {
                let value = match message {
                    Message::Request => exchange.request_field(name.as_bytes()),
                    Message::Response => exchange.response_field(name.as_bytes()),
                };
                return text(value.map(|value| mask.field(*message, name, value)).unwrap_or_default());
            }
        };
        match part {
            Builtin::Time => {
                let mut time = Vec::new();
                rfc3339::write_unix_us(facts.started.as_micros(), &mut time);
                text(String::from_utf8(time).unwrap_or_default())
            }
            Builtin::Flow => text(exchange.flow().to_owned()),
            Builtin::Endpoint => text(exchange.endpoint().to_owned()),
            Builtin::Client => text(facts.client.map(|client| client.to_string()).unwrap_or_default()),
            Builtin::Server => text(facts.server.map(|server| server.to_string()).unwrap_or_default()),
            Builtin::RequestId => text(mask.shown(&exchange.exportable_request_id(Some(key)))),
            Builtin::Consumer => text(mask.shown(&exchange.exportable_consumer(Some(key)))),
            Builtin::Provider => text(record.provider().to_owned()),
            Builtin::Method => text(mask.word(exchange.method_text())),
            Builtin::Scheme => text(if facts.tls { "https" } else { "http" }.to_owned()),
            Builtin::Host => text(record.host().to_owned()),
            Builtin::Path => {
                let path = record.target().split(|byte| *byte == b'?').next().unwrap_or_default();
                text(self.target(path, exchange, mask))
            }
            Builtin::Target => text(self.target(record.target(), exchange, mask)),
            Builtin::Status => PlaceholderValue::Number(exchange.status().into()),
            Builtin::Error => text(facts.error.unwrap_or_default().to_owned()),
            Builtin::GrpcStatus => text(facts.grpc_status.map_or("", GrpcStatus::name).to_owned()),
            Builtin::Generated => PlaceholderValue::Flag(facts.is_generated),
            Builtin::CutShort => PlaceholderValue::Flag(facts.is_cut_short),
            Builtin::Intercepted => PlaceholderValue::Flag(facts.is_intercepted),
            Builtin::Duration => PlaceholderValue::Number(facts.times.total_us()),
            Builtin::Blocked => PlaceholderValue::Number(exchange.phases().blocked_us.unwrap_or_default()),
            Builtin::ProviderTime => {
                PlaceholderValue::Number(if facts.attempts > 0 { exchange.phases().wait_us } else { 0 })
            }
            Builtin::Footprint => PlaceholderValue::Number(facts.times.footprint_us),
            Builtin::RequestBytes => PlaceholderValue::Number(record.request_body.body_bytes),
            Builtin::ResponseBytes => PlaceholderValue::Number(record.response_body.body_bytes),
            Builtin::Attempts => PlaceholderValue::Number(facts.attempts.into()),
            Builtin::Remedies => text(record.remedies().to_owned()),
        }
    }

    /// Masks path and query. The path of the provider's URL and the literal segments of the match stay,
    /// because both are in the config.
    fn target(&self, target: &[u8], exchange: &Finished<'_>, mask: &Mask) -> String {
        let record = exchange.record();
        let prefix = &record.target()[..record.target().len().saturating_sub(record.relative_target().len())];
        let prefix_segments = memchr::memchr_iter(b'/', prefix).count();
        let pattern = self.patterns.get(exchange.endpoint());
        // Position among the non-empty segments, as in matching. After the first segment that differs, none
        // is kept.
        let (index, fits) = (std::cell::Cell::new(0), std::cell::Cell::new(true));
        mask.target(target, |segment_index, segment| {
            if segment_index < prefix_segments {
                return true;
            }
            if segment.is_empty() {
                return false;
            }
            let expected = pattern.and_then(|pattern| pattern.segments().get(index.replace(index.get() + 1)));
            match expected {
                Some(SegmentPattern::Literal(literal)) if fits.get() => {
                    let mut spelt = Vec::new();
                    decode(segment.as_bytes(), |part| spelt.extend_from_slice(part));
                    fits.set(**literal == *spelt);
                    fits.get()
                }
                _ => false,
            }
        })
    }
}

fn text(text: String) -> PlaceholderValue {
    PlaceholderValue::Text(text)
}

/// Appends a member of an object, unless its value is empty.
fn push_member(name: &str, value: &PlaceholderValue, out: &mut Vec<u8>) {
    if matches!(value, PlaceholderValue::Flag(false))
        || matches!(value, PlaceholderValue::Text(text) if text.is_empty())
    {
        return;
    }
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    write_escaped(name.as_bytes(), out);
    out.extend_from_slice(b"\":");
    match value {
        PlaceholderValue::Text(text) => {
            out.push(b'"');
            write_escaped(cut(text).as_bytes(), out);
            out.push(b'"');
        }
        PlaceholderValue::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        PlaceholderValue::Flag(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
    }
}

/// Appends a value to a text line. Escaping keeps it on its line and within its quotes.
fn push_text(value: &PlaceholderValue, quoting: Quoting, out: &mut Vec<u8>) {
    match value {
        PlaceholderValue::Text(text) if text.is_empty() => out.push(b'-'),
        PlaceholderValue::Text(text) if quoting == Quoting::Pair => {
            let mut quoted = String::with_capacity(text.len());
            push_value(cut(text), &mut quoted);
            out.extend_from_slice(quoted.as_bytes());
        }
        PlaceholderValue::Text(text) => {
            let mut escaped = String::with_capacity(text.len());
            for letter in cut(text).chars() {
                match letter {
                    '"' | '\\' => escaped.extend(['\\', letter]),
                    // They could end the line, command a terminal or reorder the text.
                    letter if is_unprintable(letter) => {
                        // Writing to a `String` cannot fail.
                        let _ = write!(escaped, "{}", letter.escape_unicode());
                    }
                    letter => escaped.push(letter),
                }
            }
            out.extend_from_slice(escaped.as_bytes());
        }
        PlaceholderValue::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        PlaceholderValue::Flag(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(VALUE_BYTES_MAX)]
}

fn line(config: &AccessLogConfig, context: &mut CompileContext<'_>) -> LineFormat {
    let Some(template) = &config.template else {
        let mut parts = Vec::new();
        if config.fields.is_empty() || config.fields.len() > PARTS_MAX {
            context.problem("fields", format!("must have 1 to {PARTS_MAX} names"));
        }
        for (index, name) in config.fields.iter().enumerate() {
            if config.fields[..index].contains(name) {
                context.problem(&format!("fields[{index}]"), format!("`{name}` is listed twice"));
            }
            parts.extend(part(name, &format!("fields[{index}]"), context).map(|part| (name.clone(), part)));
        }
        return LineFormat::Json(parts);
    };
    if config.fields != fields() {
        context.problem("fields", "`fields` and `template` exclude each other: remove one of them");
    }
    LineFormat::Template(pieces(template, context))
}

fn pieces(template: &str, context: &mut CompileContext<'_>) -> Vec<LinePiece> {
    let (mut pieces, mut rest) = (Vec::new(), template);
    if template.len() > TEMPLATE_BYTES_MAX || template.contains(char::is_control) {
        let message =
            format!("must be one line of at most {TEMPLATE_BYTES_MAX} bytes, without control characters");
        context.problem("template", message);
        return pieces;
    }
    while let Some(dollar) = rest.find("${") {
        let (before, from) = rest.split_at(dollar);
        if let Some(before) = before.strip_suffix('$') {
            pieces.push(LinePiece::Text(format!("{before}${{")));
            rest = &from[2..];
            continue;
        }
        let Some((name, after)) = from[2..].split_once('}') else {
            context.problem("template", "a `${` has no `}`: write `$${` for a literal `${`");
            return pieces;
        };
        pieces.push(LinePiece::Text(before.to_owned()));
        if let Some(reference) = name.trim().strip_prefix("env:") {
            pieces.extend(environment(reference, context).map(LinePiece::Text));
            rest = after;
            continue;
        }
        let quoting = if before.ends_with('=') { Quoting::Pair } else { Quoting::Escaped };
        let placeholder = part(name.trim(), "template", context);
        pieces.extend(placeholder.map(|placeholder| LinePiece::Placeholder(placeholder, quoting)));
        rest = after;
    }
    pieces.push(LinePiece::Text(rest.to_owned()));
    if pieces.len() > 2 * PARTS_MAX {
        context.problem("template", format!("more than {PARTS_MAX} values"));
    }
    pieces
}

/// Returns the value of an environment variable, as plain text of the line.
fn environment(reference: &str, context: &mut CompileContext<'_>) -> Option<String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let value = egret_config::variable(name, default);
    let value = value.map_err(|error| context.problem("template", error.to_string())).ok()?;
    if value.contains(char::is_control) {
        context.problem("template", format!("the environment variable {name} has control characters"));
        return None;
    }
    Some(value)
}

fn part(name: &str, key: &str, context: &mut CompileContext<'_>) -> Option<Placeholder> {
    let field = [("request.headers.", Message::Request), ("response.headers.", Message::Response)]
        .into_iter()
        .find_map(|(prefix, message)| Some((message, name.strip_prefix(prefix)?)));
    if let Some((message, field)) = field.filter(|(_, field)| egret_http1::is_token(field.as_bytes())) {
        return Some(Placeholder::Field(message, field.to_ascii_lowercase()));
    }
    if let Some(part) = Builtin::ALL.into_iter().find(|part| part.name() == name) {
        return Some(Placeholder::Builtin(part));
    }
    let path = format!("{}.{key}", context.path);
    let message = format!(
        "unknown value `{name}`: use one from the list in the handbook, or a header field like \
         `request.headers.accept`"
    );
    context.problems.push(Problem::new(path, message).suggest(name, Builtin::ALL.map(Builtin::name)));
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{Archive, hand_over};

    fn hidden(text: &str) -> String {
        Key::new(&[7; egret_har::key::KEY_BYTES]).text(text.as_bytes()).to_string()
    }

    #[test]
    fn a_line_is_json_without_what_must_not_be_told() {
        let archive = Archive::with(&json!([{ "access-log": { "export": "kept" } }]));
        let mut record =
            archive.record("GET https://one.example/users/ada?token=s3cr3t\nx-egret-consumer: web", "404");
        record.facts.attempts = 2;
        record.facts.is_cut_short = true;
        record.request_body.body_bytes = 3;
        hand_over(&record);
        let [line] = &archive.entries()[..] else { panic!("one line") };
        let line: Value = serde_json::from_str(line).unwrap();
        let expected = json!({
            "time": "1970-01-12T13:46:40.000000Z", "consumer": "web", "provider": "one", "method": "GET", "host": "one.example",
            "target": format!("/users/{}?token={}", hidden("ada"), hidden("s3cr3t")), "status": 404,
            "duration_us": 5_100, "provider_us": 4_900, "footprint_us": 0, "request_bytes": 3, "response_bytes": 0,
            "attempts": 2, "cut_short": true,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn only_what_the_match_spells_out_stays_of_a_path() {
        let archive = Archive::with(&json!([{ "access-log": { "export": "kept", "fields": ["path"] } }]));
        for (path, expected) in [
            ("/users/7", format!("/users/{}", hidden("7"))),
            ("//users//7/", format!("//users//{}/", hidden("7"))),
            ("/%75sers/7", format!("/%75sers/{}", hidden("7"))),
            ("/x/../users/7", format!("/{}/../{}/{}", hidden("x"), hidden("users"), hidden("7"))),
            ("/users/7/users", format!("/{}/{}/{}", hidden("users"), hidden("7"), hidden("users"))),
        ] {
            hand_over(&archive.record(&format!("GET https://one.example{path}"), "200"));
            let line: Value = serde_json::from_str(archive.entries().last().unwrap()).unwrap();
            assert_eq!(line["path"], expected, "{path}");
        }
    }

    #[test]
    fn a_template_stays_on_its_line_whatever_is_sent() {
        let archive = Archive::with(&json!([{ "access-log": {
            "export": "kept",
            "template": "$${x} ${method} ${target} \"${request.headers.User-Agent}\" ${status} ${error} ${response.headers.x-id}",
            "obfuscate": false,
        } }]));
        hand_over(
            &archive
                .record("GET https://one.example/a?b=c\nuser-agent: a\"b\\c\td", "200\nx-id: \u{e9}\u{2028}"),
        );
        assert_eq!(archive.entries(), ["${x} GET /a?b=c \"a\\\"b\\\\c\\u{9}d\" 200 - \u{e9}\\u{2028}"]);
    }

    #[test]
    fn a_pair_of_a_template_cannot_be_read_as_several() {
        let archive = Archive::with(&json!([{ "access-log": {
            "export": "kept", "template": "consumer=${consumer} target=${target} status=${status}", "obfuscate": false,
        } }]));
        for (consumer, shown) in
            [("web", "web"), ("a status=999", "\"a status=999\""), ("a\" b=\u{202e}", "\"a\\\" b=\\u202e\"")]
        {
            hand_over(
                &archive
                    .record(&format!("GET https://one.example/a?b=c\nx-egret-consumer: {consumer}"), "200"),
            );
            let expected = format!("consumer={shown} target=\"/a?b=c\" status=200");
            assert_eq!(archive.entries().last().unwrap(), &expected);
        }
    }

    #[test]
    fn long_values_are_truncated() {
        let archive = Archive::with(
            &json!([{ "access-log": { "export": "kept", "obfuscate": false, "detect_secrets": false } }]),
        );
        let long = "\u{e9}".repeat(VALUE_BYTES_MAX);
        hand_over(&archive.record(&format!("GET https://one.example/?a={long}"), "200"));
        let line: Value = serde_json::from_str(&archive.entries()[0]).unwrap();
        assert_eq!(line["target"].as_str().unwrap().len(), VALUE_BYTES_MAX);
    }

    #[test]
    fn invalid_settings_are_reported_at_their_keys() {
        let problems = Archive::problems(&json!([
            { "access-log": { "export": "nobody", "fields": ["time", "stats", "time"], "exclude": ["query.page"] } },
            { "access-log": { "export": "kept", "template": "${status" } },
            { "access-log": { "export": "kept", "template": "a\nb" } },
            { "access-log": { "export": "kept", "template": "a", "fields": ["time"] } },
            { "access-log": { "export": "kept", "template": "${request.headers.a b}" } },
        ]));
        let places: Vec<&str> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let expected = [
            "[0].access-log.export",
            "[0].access-log.fields[1]",
            "[0].access-log.fields[2]",
            "[0].access-log.exclude[0]",
            "[1].access-log.template",
            "[2].access-log.template",
            "[3].access-log.fields",
            "[4].access-log.template",
        ]
        .map(|place| format!("flows[0].diagnoses{place}"));
        assert_eq!(places, expected, "{problems:#?}");
        assert!(problems[1].contains("`stats`"), "{problems:#?}");
    }
}
