//! Processors of flows.

use std::collections::BTreeMap;

use crate::emit::{self, Figure};
use crate::report::{ItemOutcome, Untranslatable};
use crate::source::{Mapping, cut, scalar_text, scalar_whole};
use crate::yaml::{Node, text};

use super::accounts::template;
use super::diagnoses::label;
use super::flow::{Done, OriginalFlow, ProcessorParts};
use super::graph::{Branch, Processor};
use super::json_path::{CallPath, MessagePart, MessageSide};
use super::quotas::QuotaStrategy;
use super::remedies::{classes, commented, group_by, verdict};
use super::shared::Import;

/// End of the branch of a refusal.
enum RefusalEnd {
    /// To the remedy's own refusal.
    Own,
    /// On: nothing is refused.
    Passes,
    Response(emit::Response),
    /// To a processor that has no equivalent there.
    Other(String),
}

/// Its parts, and what became of the processor.
type Translated = (ProcessorParts, ItemOutcome);

fn lost(reason: impl Into<String>) -> Translated {
    (ProcessorParts::default(), ItemOutcome::Lost(reason.into()))
}

fn remedies(remedies: Vec<Node>, notes: &[String]) -> Translated {
    (ProcessorParts { remedies, diagnoses: Vec::new() }, verdict(notes))
}

fn diagnosis(node: Node, notes: &[String]) -> Translated {
    (ProcessorParts { remedies: Vec::new(), diagnoses: vec![node] }, verdict(notes))
}

impl<'a> Import<'a> {
    pub(super) fn processor(
        &mut self,
        source: &OriginalFlow<'a>,
        processor: &Processor<'a>,
        is_request: bool,
        done: &mut Done,
    ) -> Translated {
        let parameters = &processor.parameters;
        match (processor.kind.as_str(), is_request) {
            ("Limiter", true) => self.limiter(source, processor, done),
            ("Queue", true) => self.queue(source, processor, done),
            ("Filter", _) => match source.filters.get(&processor.key) {
                Some(Err(reason)) => lost(reason.clone()),
                _ => (ProcessorParts::default(), ItemOutcome::Translated),
            },
            ("GenerateResponse", true) => match response(parameters) {
                Ok(response) => remedies(vec![response.fixed()], &[]),
                Err(reason) => lost(reason),
            },
            ("TransformAPICall", _) => self.transform(parameters, is_request),
            ("CustomScript", _) => script(parameters, is_request),
            ("HARCollector", _) => self.har_collector(parameters),
            ("ReadCache", true) => self.read_cache(source, parameters, done),
            ("WriteCache", false) => {
                lost("it needs a `ReadCache` on the request side, which decides the key")
            }
            ("UserDefinedMetrics", _) => metrics(parameters),
            ("UserDefinedTraces", _) => self.traces(parameters),
            ("CountLLMTokens", _) => lost(
                "Egret has no tokeniser: let a quota count what the response reports, \
                 `cost: { request: \"0\", response: \"int(response.body.usage.total_tokens)\" }`",
            ),
            ("AsyncQueue", _) => {
                lost("a call cannot be answered with 202 and fetched later: `queue` lets it wait")
            }
            ("AsyncRetry", _) => {
                lost("a call cannot be repeated after its response: `retry` repeats it before")
            }
            ("MockProcessor", _) => (
                ProcessorParts::default(),
                ItemOutcome::Different("it does nothing but test Lunar, so it is left out".to_owned()),
            ),
            ("QuotaProcessorInc" | "QuotaProcessorDec", _) => {
                (ProcessorParts::default(), ItemOutcome::Different("quotas count by themselves".to_owned()))
            }
            ("Limiter" | "Queue" | "GenerateResponse" | "ReadCache" | "WriteCache" | "Retry", _) => {
                lost("Egret does this on the other side of an exchange alone")
            }
            _ => lost(
                "plugins cannot be loaded: the remedy `script` runs JavaScript, and `transform` changes messages",
            ),
        }
    }

    fn limiter(
        &mut self,
        source: &OriginalFlow<'a>,
        processor: &Processor<'a>,
        done: &mut Done,
    ) -> Translated {
        let parameters = &processor.parameters;
        parameters.ignore(&["header", "limit_per_min"]);
        let id = parameters.required_text("quota_id");
        let refusal = refusal(source, &processor.key, "above_limit", done);
        let (node, reasons): (Node, &[&str]) = match self.draw(&id) {
            None => return lost(format!("no quota is called `{}`, or it was not translated", cut(&id))),
            Some(QuotaStrategy::ByHeaders(throttle)) => (throttle.node(), &["provider-throttled"]),
            Some(QuotaStrategy::Counted { name, is_concurrency }) => {
                if matches!(refusal, RefusalEnd::Passes) {
                    return remedies(vec![emit::counted(&name)], &[]);
                }
                let reasons: &[&str] = if is_concurrency {
                    &["quota-exceeded", "too-many-in-flight"]
                } else {
                    &["quota-exceeded"]
                };
                (emit::limit(&name, None), reasons)
            }
        };
        refusing(node, refusal, reasons, Vec::new())
    }

    fn queue(&mut self, source: &OriginalFlow<'a>, processor: &Processor<'a>, done: &mut Done) -> Translated {
        let parameters = &processor.parameters;
        parameters.ignore(&["redis_queue_size"]);
        let mut notes = Vec::new();
        let id = parameters.required_text("quota_id");
        let refusal = refusal(source, &processor.key, "blocked", done);
        let name = match self.draw(&id) {
            Some(QuotaStrategy::Counted { name, .. }) => name,
            Some(QuotaStrategy::ByHeaders(throttle)) => {
                notes.push("calls are refused, not queued, while the provider asks for a pause".to_owned());
                return refusing(throttle.node(), refusal, &["provider-throttled"], notes);
            }
            None => return lost(format!("no quota is called `{}`, or it was not translated", cut(&id))),
        };
        let max_wait_s = parameters.number("ttl_seconds").unwrap_or(10.0);
        let mut queue = emit::QueueRemedy {
            quota: name,
            size: parameters.whole("queue_size"),
            max_wait_s,
            ..emit::QueueRemedy::default()
        };
        if let Some(header) = parameters.text("priority_group_by_header") {
            let groups =
                parameters.fields("priority_groups").map(|groups| priorities(&groups)).unwrap_or_default();
            queue.priority = classes(&header, groups, max_wait_s, &mut notes);
            notes.push("callers without the field come last; in Lunar they come first".to_owned());
        }
        if let Some(header) = parameters.text("group_by_header") {
            notes.push(format!(
                "the queue has no groups of its own: `group_by: {}` of the quota lets each group go by itself",
                group_by(&header)
            ));
        }
        if matches!(refusal, RefusalEnd::Passes) {
            notes.push("a call that cannot wait is refused; in Lunar it is made".to_owned());
        }
        refusing(queue.node(), refusal, &["queue-full", "queue-timeout", "quota-exceeded"], notes)
    }

    fn transform(&mut self, parameters: &Mapping<'a>, is_request: bool) -> Translated {
        let (mut request, mut response) = (emit::Changes::default(), emit::Changes::default());
        let mut notes = Vec::new();
        let mut set = Vec::new();
        if let Some(values) = parameters.fields("set") {
            set.extend(
                values
                    .all()
                    .into_iter()
                    .map(|pair| (pair.key.to_owned(), scalar_text(pair.node), scalar_whole(pair.node))),
            );
        }
        for (path, value, number) in set {
            let Some(parsed) = CallPath::parse(&path) else {
                return lost(format!("`{}` selects several places, or is none that can be set", cut(&path)));
            };
            let Some(value) = value else {
                return lost(format!("`{}` is set to a list or mapping", cut(&path)));
            };
            let changes = if parsed.side == MessageSide::Request { &mut request } else { &mut response };
            if let Err(reason) = self.set(changes, &parsed, &value, number.is_some()) {
                return lost(reason);
            }
        }
        for (key, is_removal) in [("delete", true), ("obfuscate", false)] {
            for path in parameters.texts(key) {
                let parsed = CallPath::parse(&path);
                let changes = match parsed.as_ref().map(|parsed| parsed.side) {
                    Some(MessageSide::Request) => &mut request,
                    _ => &mut response,
                };
                let is_done = parsed.as_ref().is_some_and(|parsed| {
                    if is_removal { remove(changes, parsed) } else { obfuscate(changes, parsed) }
                });
                if !is_done {
                    return lost(format!(
                        "`{}` cannot be named as one place: see `transform` in the reference",
                        cut(&path)
                    ));
                }
            }
        }
        if !request.obfuscate.is_empty() || !response.obfuscate.is_empty() {
            notes.push(
                "values become pseudonyms under a key of this installation, not a plain SHA-256".to_owned(),
            );
        }
        if !is_request && !request.is_empty() {
            return lost("a request cannot be changed once its response is there");
        }
        let sides = [("request", request), ("response", response)];
        let nodes =
            sides.iter().filter(|(_, changes)| !changes.is_empty()).map(|(side, changes)| changes.node(side));
        remedies(nodes.collect(), &notes)
    }

    fn set(
        &mut self,
        changes: &mut emit::Changes,
        path: &CallPath,
        value: &str,
        is_number: bool,
    ) -> Result<(), Untranslatable> {
        let template = template_of(value);
        match &path.part {
            MessagePart::Header(name) => changes.set_headers.push((name.clone(), template)),
            MessagePart::Query(name) => changes.set_query.push((name.clone(), template)),
            MessagePart::Path => changes.path = Some(template),
            MessagePart::Host => {
                let host = self.draft.provider(value);
                changes.provider = Some(host.ok_or_else(|| format!("`{}` is not a host", cut(value)))?);
            }
            MessagePart::Body(_) => {
                let node = if is_number { crate::yaml::plain(value) } else { text(&template) };
                changes.set_json.push((path.pointer().unwrap_or_default(), node));
            }
            MessagePart::Method | MessagePart::Status | MessagePart::PathParameter(_) => {
                return Err("the method, the status and path parameters cannot be set: a `script` can".into());
            }
        }
        Ok(())
    }

    fn har_collector(&mut self, parameters: &Mapping<'_>) -> Translated {
        let mut notes = Vec::new();
        let mut har = emit::HarDiagnosis {
            export: self.archive(parameters.text("exporter_id").as_deref(), &mut notes),
            obfuscate: parameters.flag("obfuscate_enabled").unwrap_or(false),
            bodies: parameters.whole("transaction_max_size_bytes").unwrap_or(32 << 10).max(1),
            exclude: Vec::new(),
        };
        notes.push("longer bodies are cut; Lunar drops the whole exchange".to_owned());
        for path in parameters.texts("obfuscate_exclusions") {
            match exclusion(&path) {
                Some(path) => har.exclude.push(path),
                None => notes.push(format!("`{}` exempts nothing: it names no single value", cut(&path))),
            }
        }
        if !har.obfuscate {
            notes.push("what looks like a secret is still replaced (`detect_secrets`)".to_owned());
        }
        diagnosis(har.node(), &notes)
    }

    /// The pair of `ReadCache` and `WriteCache`.
    fn read_cache(&self, source: &OriginalFlow<'a>, parameters: &Mapping<'_>, done: &mut Done) -> Translated {
        let writes =
            source.response.iter().flat_map(|way| way.steps.iter().map(move |step| (way, &step.key)));
        let is_write = |key: &str| {
            source.graph.processors.get(key).is_some_and(|processor| processor.kind == "WriteCache")
        };
        let mut writes = writes.filter(|(_, key)| is_write(key));
        let Some((way, key)) = writes.next() else {
            return lost("no `WriteCache` on the response side stores anything");
        };
        let write = &source.graph.processors[key].parameters;
        let mut notes = Vec::new();
        let mut cache = emit::CacheRemedy {
            ttl_s: write.number("ttl_seconds").unwrap_or(600.0),
            max_entry: write
                .text("record_max_size_bytes")
                .and_then(|size| size.parse().ok())
                .filter(|size| *size > 0),
            memory: Some(write.whole("max_cache_size_mb").unwrap_or(100).saturating_mul(1 << 20)),
            post: source.filter.methods == ["POST"],
            ..emit::CacheRemedy::default()
        };
        write.ignore(&["caching_key_parts"]);
        write.unread();
        done.seen.insert(key.clone());
        let write_at = source.graph.processors[key].at;
        self.findings.item(source.file, write_at, source.what(key), ItemOutcome::Translated);
        for (filter, is_hit) in &way.choices {
            if let (Some(Ok(criteria)), true) = (source.filters.get(filter), *is_hit) {
                cache.statuses.extend(criteria.statuses.iter().cloned());
            }
        }
        if cache.statuses.is_empty() {
            cache.statuses.push("200-599".to_owned());
        }
        for part in parameters.texts("caching_key_parts") {
            key_part(&part, &mut cache, &mut notes);
        }
        notes.push("method, URL with its query, and the credential always belong to the key".to_owned());
        if source.filter.methods.len() > 1 {
            notes.push("only responses to GET and HEAD are stored".to_owned());
        }
        remedies(vec![cache.node()], &notes)
    }

    fn traces(&mut self, parameters: &Mapping<'_>) -> Translated {
        let mut notes = Vec::new();
        let name = parameters.text("trace_exporter_id");
        let export = self.collector(name.as_deref(), &mut notes);
        if parameters.get("custom_trace_attributes").is_some() {
            notes.push("spans have no attributes of their own".to_owned());
        }
        notes.push("the context goes on as W3C `traceparent` alone, without baggage and B3".to_owned());
        let parts = ProcessorParts { remedies: vec![emit::trace()], diagnoses: vec![emit::traces(&export)] };
        (parts, verdict(&notes))
    }
}

/// A remedy, with what happens to the calls that it refuses.
fn refusing(node: Node, refusal: RefusalEnd, reasons: &[&str], mut notes: Vec<String>) -> Translated {
    match refusal {
        RefusalEnd::Response(response) => remedies(vec![emit::on_refused(reasons, &response), node], &notes),
        RefusalEnd::Own => {
            notes.push("no arrow says what a refused call gets: it gets 429".to_owned());
            remedies(vec![node], &notes)
        }
        RefusalEnd::Passes => remedies(vec![node], &notes),
        RefusalEnd::Other(reason) => {
            (ProcessorParts { remedies: vec![node], diagnoses: Vec::new() }, ItemOutcome::Lost(reason))
        }
    }
}

fn refusal(source: &OriginalFlow<'_>, key: &str, condition: &str, done: &mut Done) -> RefusalEnd {
    match source.graph.branch(key, condition) {
        Branch::Nowhere => RefusalEnd::Own,
        Branch::Passes => RefusalEnd::Passes,
        Branch::Processor(name) => match source.graph.processors.get(&name) {
            Some(processor) if processor.kind == "GenerateResponse" => {
                match response(&processor.parameters) {
                    Ok(response) => {
                        done.seen.insert(name);
                        processor.parameters.unread();
                        RefusalEnd::Response(response)
                    }
                    Err(reason) => RefusalEnd::Other(reason.into()),
                }
            }
            _ => RefusalEnd::Other(format!(
                "`{condition}` leads to `{}`: a refused call can only get a response, so it gets 429",
                cut(&name)
            )),
        },
    }
}

fn priorities(groups: &Mapping<'_>) -> Vec<(String, u64)> {
    let group = |pair: crate::source::Pair<'_>| (pair.key.to_owned(), scalar_whole(pair.node).unwrap_or(0));
    groups.all().into_iter().map(group).collect()
}

fn response(parameters: &Mapping<'_>) -> Result<emit::Response, Untranslatable> {
    let status = parameters.whole("status").unwrap_or(200);
    if !(200..=599).contains(&status) {
        return Err(Untranslatable::from(format!(
            "{status} is not the status of a final response, from 200 to 599"
        )));
    }
    let mut response = emit::Response {
        status,
        headers: BTreeMap::new(),
        body: parameters.text("body").unwrap_or_else(|| "OK".to_owned()),
    };
    response.headers.insert("content-type".to_owned(), "text/plain".to_owned());
    for pair in parameters.all() {
        let name = pair.key.to_ascii_lowercase();
        if !matches!(name.as_str(), "status" | "body" | "content-length") {
            response.headers.insert(name, scalar_text(pair.node).unwrap_or_default());
        }
    }
    Ok(response)
}

/// The template of a value: `$NAME` is a variable of the environment, anything else stands for itself.
fn template_of(value: &str) -> String {
    let variable = value.strip_prefix('$').filter(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    });
    match variable.map(str::to_owned).or_else(|| template(value)) {
        Some(name) => format!("${{env:{name}}}"),
        None => value.replace("${", "$${"),
    }
}

fn remove(changes: &mut emit::Changes, path: &CallPath) -> bool {
    match &path.part {
        MessagePart::Header(name) => changes.remove_headers.push(name.clone()),
        MessagePart::Query(name) => changes.remove_query.push(name.clone()),
        MessagePart::Body(steps) if !steps.is_empty() => changes.remove_json.extend(path.pointer()),
        _ => return false,
    }
    true
}

fn obfuscate(changes: &mut emit::Changes, path: &CallPath) -> bool {
    let pointer = path.pointer();
    let is_body = pointer.is_some();
    changes.obfuscate.extend(pointer);
    is_body
}

/// A value of a record that is not obfuscated.
fn exclusion(path: &str) -> Option<String> {
    let path = path.trim().replace(".path_segments", ".path").replace(".query_param.", ".query.");
    let rest = path.strip_prefix("$.")?;
    let (side, rest) = rest.split_once('.')?;
    if !matches!(side, "request" | "response") {
        return None;
    }
    if let Some(body) = rest.strip_prefix("body") {
        return Some(format!("{side}.body.${body}"));
    }
    if let Some(CallPath { part: MessagePart::Header(name), .. }) = CallPath::parse(&path) {
        return Some(format!("{side}.headers.{name}"));
    }
    let is_known = rest.starts_with("query.")
        || rest == "path[*]"
        || rest.strip_prefix("path[").is_some_and(|index| index.trim_end_matches(']').parse::<u16>().is_ok());
    is_known.then(|| format!("{side}.{rest}"))
}

fn script(parameters: &Mapping<'_>, is_request: bool) -> Translated {
    let source = parameters.required_text("script_text");
    let head =
        if is_request { "function onRequest(request) {" } else { "function onResponse(request, response) {" };
    let body: Vec<String> = source.trim_end().lines().map(|line| format!("  {line}")).collect();
    let note = "the text is Lunar's: its objects have other members than Egret's, so test it";
    let node = emit::script(&format!("{head}\n{}\n}}\n", body.join("\n")));
    let node = commented(node, &[format!("{}.", note.replace("the text", "The text"))]);
    remedies(vec![node], &[note.to_owned()])
}

fn key_part(part: &str, cache: &mut emit::CacheRemedy, notes: &mut Vec<String>) {
    match CallPath::parse(part) {
        Some(CallPath { part: MessagePart::Header(name), side: MessageSide::Request }) => {
            cache.headers.push(name);
        }
        Some(path @ CallPath { part: MessagePart::Body(_), side: MessageSide::Request }) if cache.post => {
            cache.body.extend(path.pointer().filter(|pointer| !pointer.is_empty()));
        }
        Some(CallPath { side: MessageSide::Request, .. }) => {}
        Some(_) | None if part.contains("url") => {}
        Some(_) | None => notes.push(format!("`{}` is not part of the key", cut(part))),
    }
}

fn metrics(parameters: &Mapping<'_>) -> Translated {
    let name = label(&parameters.required_text("metric_name"));
    let kind = parameters.text("metric_type").unwrap_or_else(|| "counter".to_owned());
    let value = parameters.text("metric_value").unwrap_or_else(|| "api_call_count".to_owned());
    let mut notes = vec![format!("it is called `egret_custom_{name}`, with `_total` if it is a counter")];
    let source = match (value.as_str(), CallPath::parse(&value)) {
        ("api_call_count", _) => Figure::Cel("1".to_owned()),
        (_, Some(path)) => path.source(),
        ("api_call_size", None) => {
            return lost("sizes are no value of an expression: `egret_bytes_total` counts them by provider");
        }
        _ => return lost(format!("`{}` selects several places", cut(&value))),
    };
    let mut metrics =
        emit::Metrics { labels: Some(labels(parameters, &mut notes)), ..emit::Metrics::default() };
    match kind.as_str() {
        "counter" => metrics.counters.push((name, source)),
        "gauge" => metrics.gauges.push((name, source)),
        "up_down_counter" => metrics.up_down_counters.push((name, source)),
        "histogram" => {
            let buckets = parameters
                .texts("buckets")
                .iter()
                .filter_map(|bound| bound.parse().ok())
                .collect::<Vec<f64>>();
            let buckets =
                if buckets.is_empty() { vec![1.0, 10.0, 100.0, 1_000.0, 10_000.0] } else { buckets };
            metrics.histograms.push((name, source, buckets));
        }
        other => return lost(format!("`{}` is no type of a metric", cut(other))),
    }
    if let Some(custom) = parameters.fields("custom_metric_labels") {
        for pair in custom.all() {
            match scalar_text(pair.node).as_deref().and_then(CallPath::parse) {
                Some(path) => metrics.custom_labels.push((label(pair.key), path.source())),
                None => notes.push(format!("the label `{}` is left out", cut(pair.key))),
            }
        }
    }
    diagnosis(metrics.node(), &notes)
}

/// Lunar's labels in Egret's words.
fn labels(parameters: &Mapping<'_>, notes: &mut Vec<String>) -> Vec<&'static str> {
    let mut labels = Vec::new();
    for name in parameters.texts("labels") {
        match name.as_str() {
            "http_method" => labels.push("method"),
            "url" => labels.push("endpoint"),
            "status_code" => labels.push("status"),
            "consumer_tag" => labels.push("consumer"),
            "host" => labels.push("provider"),
            "flow_name" => {}
            other => notes.push(format!("the label `{}` is left out", cut(other))),
        }
    }
    labels
}
