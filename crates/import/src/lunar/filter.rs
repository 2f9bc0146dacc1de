//! Filters: of a flow, and of the processor `Filter`, as conditions of Egret's flows.

use std::collections::BTreeMap;

use egret_config::{YamlNode, YamlValue};

use crate::draft::Match;
use crate::emit;
use crate::report::Untranslatable;
use crate::source::{Mapping, cut, scalar_text};

use super::json_path::{CallPath, MessageSide, quoted};
use super::url::{HostAndPath, matches};

/// The methods that a filter without any matches.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];

/// One condition.
#[derive(Debug, Clone)]
struct Criterion {
    /// The key of `match` that says the same, if there is one.
    key: Option<Key>,
    /// The expression that says the same; `None` if none does.
    cel: Option<String>,
    side: MessageSide,
}

#[derive(Debug, Clone)]
enum Key {
    Header(String, String),
    Query(String, String),
    Method(Vec<String>),
    Sample(f64),
    HostAndPath(Box<Match>),
}

/// Conditions that must all hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Criteria {
    all: Vec<Criterion>,
    /// The statuses that it names, as conditions of a retry.
    pub statuses: Vec<String>,
}

/// The filter of a flow: where it applies, and on what else.
#[derive(Debug, Clone, Default)]
pub(super) struct FlowFilter {
    pub targets: Vec<HostAndPath>,
    pub methods: Vec<String>,
    pub criteria: Criteria,
}

/// Reads the filter of a flow or quota. An error is the reason why it cannot be translated.
pub(super) fn flow_filter(filter: &Mapping<'_>) -> Result<FlowFilter, Untranslatable> {
    filter.ignore(&["name"]);
    let urls = [filter.texts("url"), filter.texts("urls")].concat();
    let targets = urls.iter().map(|url| HostAndPath::parse(url)).collect();
    let mut methods = [filter.texts("method"), filter.texts("methods")].concat();
    if methods.is_empty() {
        methods = METHODS.map(str::to_owned).to_vec();
    }
    let criteria = criteria(filter)?;
    filter.unread();
    Ok(FlowFilter { targets, methods, criteria })
}

impl FlowFilter {
    /// The matches of the flow: one for each host.
    pub fn matches(&self) -> Vec<Match> {
        let mut found = matches(&self.targets);
        for matching in &mut found {
            matching.method.clone_from(&self.methods);
            self.criteria.apply(matching);
        }
        found
    }
}

/// Reads the processor `Filter`.
pub(super) fn processor_filter(parameters: &Mapping<'_>) -> Result<Criteria, Untranslatable> {
    let urls = ["url", "urls", "endpoint", "endpoints"].map(|key| parameters.texts(key)).concat();
    let mut found = criteria(parameters)?;
    if !urls.is_empty() {
        found.all.push(urls_criterion(&urls)?);
    }
    let methods = [parameters.texts("method"), parameters.texts("methods")].concat();
    if !methods.is_empty() {
        let cel = any(methods.iter().map(|method| format!("request.method == {}", quoted(method))));
        found.all.push(Criterion {
            key: Some(Key::Method(methods)),
            cel: Some(cel),
            side: MessageSide::Request,
        });
    }
    for header in parameters.texts("header") {
        found.all.push(short_header(&header)?);
    }
    parameters.unread();
    Ok(found)
}

/// URLs of a `Filter`, which are regular expressions in Lunar if they are no plain path or host.
fn urls_criterion(urls: &[String]) -> Result<Criterion, Untranslatable> {
    let is_plain = |url: &String| {
        url.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/{}*:%".contains(&byte))
            && !url.contains(".*")
    };
    if let Some(regex) = urls.iter().find(|url| !is_plain(url)) {
        return Err(Untranslatable::from(format!(
            "the URL `{}` is a regular expression: write `path: \"regex:…\"` in a flow's match",
            cut(regex)
        )));
    }
    let targets: Vec<HostAndPath> = urls.iter().map(|url| HostAndPath::parse(url)).collect();
    let found = matches(&targets);
    let [matching] = found.as_slice() else {
        return Err(Untranslatable::from("a filter on several hosts: make a flow for each host"));
    };
    let path = |path: &String| match path.strip_suffix("/*") {
        Some(parent) if !parent.contains('{') => Some(format!(
            "request.path == {} || request.path.startsWith({})",
            quoted(parent),
            quoted(&format!("{parent}/"))
        )),
        None if !path.contains(['{', '*']) => Some(format!("request.path == {}", quoted(path))),
        _ => None,
    };
    let paths: Option<Vec<String>> = matching.path.iter().map(path).collect();
    let hosts = matching.host.iter().map(|host| format!("request.host == {}", quoted(host)));
    let cel = paths.map(|paths| {
        let paths = (!paths.is_empty()).then(|| any(paths));
        all(&hosts.chain(paths).collect::<Vec<_>>())
    });
    let is_pattern = matching.host.iter().any(|host| host.contains(['{', '*']));
    let cel = cel.filter(|cel| !is_pattern && !cel.is_empty());
    Ok(Criterion { key: Some(Key::HostAndPath(Box::new(matching.clone()))), cel, side: MessageSide::Request })
}

/// `name=value`, or a comparison of numbers: `name<=5`.
fn short_header(text: &str) -> Result<Criterion, Untranslatable> {
    let operators = [("<=", "lte"), (">=", "gte"), ("!=", "neq"), ("=", "eq"), ("<", "lt"), (">", "gt")];
    let split = operators.iter().find_map(|(sign, word)| {
        text.split_once(sign).map(|(name, value)| (name.trim(), *word, value.trim()))
    });
    let (name, operation, value) = split.ok_or_else(|| format!("`{}` is not `name=value`", cut(text)))?;
    header(MessageSide::Request, name, operation, value)
}

/// The expression of a value by its name.
type Subject = fn(&str) -> String;

/// The criteria that flows and processors have in common.
fn criteria(fields: &Mapping<'_>) -> Result<Criteria, Untranslatable> {
    let mut found = Criteria::default();
    for (name, operation, value) in conditions(fields, "headers") {
        found.all.push(header(MessageSide::Request, &name, &operation, &value)?);
    }
    let groups: [(&str, MessageSide, Subject); 3] = [
        ("response_headers", MessageSide::Response, |name| {
            format!("response.headers[{}]", quoted(&name.to_ascii_lowercase()))
        }),
        ("query_params", MessageSide::Request, |name| format!("request.query[{}]", quoted(name))),
        ("path_params", MessageSide::Request, |name| format!("request.params[{}]", quoted(name))),
    ];
    for (key, side, subject) in groups {
        found.all.extend(any_of(&conditions(fields, key), key, side, subject)?);
    }
    found.expressions(fields)?;
    for status in [fields.texts("status_code"), fields.texts("status_code_range")].concat() {
        found.statuses.push(status_range(&status)?);
    }
    if !found.statuses.is_empty() {
        let cel = any(found.statuses.iter().map(|status| status_cel(status)));
        found.all.push(Criterion { key: None, cel: Some(cel), side: MessageSide::Response });
    }
    if let Some(percent) = fields.number("sample_percentage").filter(|percent| *percent < 100.0) {
        found.all.push(Criterion { key: Some(Key::Sample(percent)), cel: None, side: MessageSide::Request });
    }
    if fields.get("body").is_some() {
        return Err(Untranslatable::from(
            "a comparison of the whole body: write a condition on its members (`when`)",
        ));
    }
    Ok(found)
}

/// One of these conditions must hold.
fn any_of(
    conditions: &[(String, String, String)],
    key: &str,
    side: MessageSide,
    subject: Subject,
) -> Result<Option<Criterion>, Untranslatable> {
    let parts: Result<Vec<String>, Untranslatable> = conditions
        .iter()
        .map(|(name, operation, value)| compared(&subject(name), operation, value))
        .collect();
    let parts = parts?;
    let key = match conditions {
        [(name, operation, value)] if key == "query_params" && operation == "eq" => {
            Some(Key::Query(name.clone(), value.replace('*', "\\*")))
        }
        _ => None,
    };
    Ok((!parts.is_empty()).then(|| Criterion { key, cel: Some(any(parts)), side }))
}

fn header(side: MessageSide, name: &str, operation: &str, value: &str) -> Result<Criterion, Untranslatable> {
    let name = name.to_ascii_lowercase();
    let subject = if name == "x-lunar-consumer-tag" {
        "request.consumer".to_owned()
    } else {
        format!("request.headers[{}]", quoted(&name))
    };
    let is_field = !subject.ends_with("consumer");
    let key = match operation {
        "eq" if is_field => Some(Key::Header(name, value.replace('*', "\\*"))),
        "exists" if is_field => Some(Key::Header(name, "*".to_owned())),
        "regex" if is_field => {
            let key = Some(Key::Header(name, format!("regex:{}", anchored(value))));
            return Ok(Criterion { key, cel: None, side });
        }
        _ => None,
    };
    Ok(Criterion { key, cel: Some(compared(&subject, operation, value)?), side })
}

/// A regular expression that must match the whole value, from one that may match a part of it.
fn anchored(regex: &str) -> String {
    match (regex.strip_prefix('^'), regex.strip_suffix('$')) {
        (Some(_), Some(_)) => regex.to_owned(),
        (Some(_), None) => format!("(?:{regex}).*"),
        (None, Some(_)) => format!(".*(?:{regex})"),
        (None, None) => format!(".*(?:{regex}).*"),
    }
}

/// A comparison of a text in CEL.
fn compared(subject: &str, operation: &str, value: &str) -> Result<String, Untranslatable> {
    let number = || {
        let number: f64 = value.parse().map_err(|_| format!("`{}` is not a number", cut(value)))?;
        Ok::<String, String>(if number.fract() == 0.0 { format!("{number:.1}") } else { number.to_string() })
    };
    let than = |sign: &str| Ok(format!("({subject} != '' && double({subject}) {sign} {})", number()?));
    match operation {
        "eq" => Ok(format!("{subject} == {}", quoted(value))),
        "neq" => Ok(format!("{subject} != {}", quoted(value))),
        "exists" => Ok(format!("{subject} != ''")),
        "not_exists" => Ok(format!("{subject} == ''")),
        "gt" => than(">"),
        "gte" => than(">="),
        "lt" => than("<"),
        "lte" => than("<="),
        "regex" => Err(Untranslatable::from("a regular expression outside of header fields: CEL has none")),
        other => Err(Untranslatable::from(format!("the operation `{}` is unknown", cut(other)))),
    }
}

/// The conditions in a list of `{ key, value, operation }`, or in a mapping.
fn conditions(fields: &Mapping<'_>, key: &str) -> Vec<(String, String, String)> {
    let Some(node) = fields.get(key) else { return Vec::new() };
    if let YamlValue::Mapping(mapping) = &node.value {
        let text = |node: &YamlNode| scalar_text(node).unwrap_or_default();
        return mapping
            .entries
            .iter()
            .map(|entry| (entry.key.clone(), "eq".to_owned(), text(&entry.node)))
            .collect();
    }
    let condition = |fields: Mapping<'_>| {
        let name = fields.required_text("key");
        let operation = fields.text("operation").unwrap_or_else(|| "eq".to_owned());
        let value = fields.text("value").unwrap_or_default();
        fields.unread();
        (name, operation, value)
    };
    fields.each(key).into_iter().map(condition).collect()
}

/// `200`, or `400-499`.
fn status_range(text: &str) -> Result<String, Untranslatable> {
    let bad = || Untranslatable::from(format!("`{}` is not a status or a range of statuses", cut(text)));
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let parse = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
    let (from, to) = (parse(from)?.max(200), parse(to)?.min(599));
    if from > to {
        return Err(bad());
    }
    Ok(emit::statuses(from, to))
}

fn status_cel(status: &str) -> String {
    let range = match (status.strip_suffix("xx"), status.split_once('-')) {
        (Some(class), _) => (format!("{class}00"), format!("{class}99")),
        (None, Some((from, to))) => (from.to_owned(), to.to_owned()),
        (None, None) => return format!("response.status == {status}"),
    };
    match range {
        (from, to) if to == "599" => format!("response.status >= {from}"),
        (from, to) => format!("(response.status >= {from} && response.status <= {to})"),
    }
}

fn any(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().collect::<Vec<_>>().join(" || ")
}

fn all(parts: &[String]) -> String {
    crate::draft::conjunction(parts).unwrap_or_default()
}

impl Criteria {
    /// JSON paths of which one must lead to something, or comparisons with what they lead to.
    fn expressions(&mut self, fields: &Mapping<'_>) -> Result<(), Untranslatable> {
        let mut parts = Vec::new();
        let mut side = MessageSide::Request;
        for node in fields.list("expressions") {
            let (path, operation, value) = if let Some(path) = scalar_text(node) {
                (path, "exists".to_owned(), String::new())
            } else {
                let fields = fields.of_node(node);
                let operation = fields.text("operation").unwrap_or_else(|| "eq".to_owned());
                (fields.required_text("key"), operation, fields.text("value").unwrap_or_default())
            };
            let parsed = CallPath::parse(&path).ok_or_else(|| {
                format!("the expression `{}` selects several places: write it as CEL", cut(&path))
            })?;
            if parsed.side == MessageSide::Response {
                side = MessageSide::Response;
            }
            let subject = parsed.cel();
            parts.push(match (parsed.pointer(), operation.as_str()) {
                (Some(_), "exists") => format!("{subject} != null"),
                (Some(_), "not_exists") => format!("{subject} == null"),
                (Some(_), _) => compared(&format!("string({subject})"), &operation, &value)?,
                (None, _) => compared(&subject, &operation, &value)?,
            });
        }
        if !parts.is_empty() {
            self.all.push(Criterion { key: None, cel: Some(any(parts)), side });
        }
        Ok(())
    }

    pub fn is_on_response(&self) -> bool {
        self.all.iter().any(|criterion| criterion.side == MessageSide::Response)
    }

    /// Adds the conditions to a match.
    pub fn apply(&self, matching: &mut Match) {
        for criterion in &self.all {
            match (&criterion.cel, criterion.side) {
                (Some(cel), MessageSide::Response) => matching.when_response.push(cel.clone()),
                (cel, _) if !criterion.key.as_ref().is_some_and(|key| key.apply(matching)) => {
                    matching.when.extend(cel.clone());
                }
                _ => {}
            }
        }
    }

    /// Adds the opposite of the conditions to a match. An error is the reason why there is none.
    pub fn apply_opposite(&self, matching: &mut Match) -> Result<(), Untranslatable> {
        let parts: Option<Vec<String>> = self.all.iter().map(|criterion| criterion.cel.clone()).collect();
        let parts =
            parts.ok_or("the opposite of a pattern or of a sample cannot be written as a condition")?;
        let mixed =
            self.is_on_response() && self.all.iter().any(|criterion| criterion.side == MessageSide::Request);
        if mixed {
            return Err(Untranslatable::from("the opposite of conditions on request and response together"));
        }
        let opposite = match parts.as_slice() {
            [one] if one.contains(" != ") && !one.contains(['(', '|', '&']) => {
                one.replacen(" != ", " == ", 1)
            }
            [one] if one.contains(" == ") && !one.contains(['(', '|', '&']) => {
                one.replacen(" == ", " != ", 1)
            }
            parts => format!("!({})", all(parts)),
        };
        if self.is_on_response() {
            matching.when_response.push(opposite);
        } else {
            matching.when.push(opposite);
        }
        Ok(())
    }
}

fn add(values: &mut BTreeMap<String, String>, name: &str, value: &str) -> bool {
    let is_new = !values.contains_key(name);
    if is_new {
        values.insert(name.to_owned(), value.to_owned());
    }
    is_new
}

impl Key {
    /// Adds the key to a match. Returns `false` if the match has it already.
    fn apply(&self, matching: &mut Match) -> bool {
        match self {
            Self::Header(name, value) => add(&mut matching.header, name, value),
            Self::Query(name, value) => add(&mut matching.query, name, value),
            Self::Method(methods) => {
                matching.method.clone_from(methods);
                true
            }
            Self::Sample(percent) => {
                let both = matching.sample.map_or(*percent, |other| other * percent / 100.0);
                matching.sample = Some(both);
                true
            }
            Self::HostAndPath(target) => {
                if !target.host.is_empty() {
                    matching.host.clone_from(&target.host);
                }
                matching.path.clone_from(&target.path);
                true
            }
        }
    }
}
