//! Completes messages about a config by what only the whole config knows: where a misplaced key belongs, and
//! what a section looks like.

use std::net::IpAddr;

use egret_config::{Finding, Problem, Report};
use egret_diagnosis::DiagnosisConfig;
use egret_remedy::RemedyConfig;

/// The key by which a manifest of Kubernetes is known.
const MANIFEST: &str = "apiVersion";

/// Completes the messages of a report.
pub fn complete(mut report: Report) -> Report {
    // The other keys of a manifest of Kubernetes say nothing new.
    if report.findings.iter().any(|finding| finding.problem.path == MANIFEST) {
        report.findings.retain(|finding| finding.problem.path == MANIFEST);
    }
    for Finding { problem, .. } in &mut report.findings {
        complete_problem(problem);
    }
    report
}

fn complete_problem(problem: &mut Problem) {
    if problem.path.ends_with("].accounts") && problem.message.starts_with("expected a mapping") {
        // The section of this name looks otherwise.
        let found = problem.message.split(": write").next().unwrap_or_default();
        problem.message = format!("{found}: write `accounts: {{ use: [a, b] }}`");
        problem.suggestion = None;
    } else if let Some(message) = misplaced(problem) {
        problem.message = message;
        problem.suggestion = None;
    } else if let Some(advice) = ADVICE.iter().find_map(|advice| advice(problem)) {
        problem.message += &advice;
        problem.suggestion = None;
    }
}

/// Functions that complete a message.
const ADVICE: [fn(&Problem) -> Option<String>; 10] =
    [rate, bare, written, example, nothing, calendar, port, address, host, percentage];

/// Advice for keys that go by several names.
const AT_THE_TOP: &str = "it belongs at the top level, without indentation";
const BELOW: &str = "it belongs below the name of its remedy, indented further";
const BESIDE_LIMIT: &str = "it is written `mode: report`, beside `limit`";
const CREDENTIAL: &str =
    "a credential stands under `accounts`, and the remedy `authenticate` adds it to calls";
const FIELDS: &str =
    "a flow sets fields, as in `transform: { request: { headers: { set: { x-name: value } } } }`";
const IN_A_FLOW: &str = "it belongs to a flow, beside its `match`";
const LOG: &str = "the log goes to standard error: redirect that, as in `egret run 2>> egret.log`";
const OF_A_QUOTA: &str = "it belongs to a quota under `quotas`, whose name stands here";
const SHARE: &str = "it is called `share`, as in `share: 0.1` for a tenth";
const UNDER_MATCH: &str = "it belongs under `match`";

/// Keys that people look for in a section, by its path without numbers and names.
const ELSEWHERE: [(&str, &str, &str); 67] = [
    ("", "diagnoses", IN_A_FLOW),
    ("", "remedies", IN_A_FLOW),
    ("control", "port", "it is part of `listen`, as in `listen: 127.0.0.1:8001`"),
    ("exporters", "path", "it is called `directory`, and in a bucket `prefix`"),
    (
        "flows",
        "enabled",
        "leave the flow out, or write `mode: report` beside a remedy, which then only reports",
    ),
    ("flows", "host", UNDER_MATCH),
    ("flows", "path", UNDER_MATCH),
    ("flows", "provider", UNDER_MATCH),
    ("flows", "steps", "it is called `remedies`"),
    ("flows", "when", UNDER_MATCH),
    ("flows.match", "model", "write `when: request.body.model == 'NAME'`"),
    ("flows.match", "response", "it is known once there is one: use `when_response` beside `match`"),
    (
        "flows.match",
        "status",
        "it is known once there is a response: write `when_response: response.status >= 500` beside `match`",
    ),
    ("flows.match", "url", "it is written as `host` and `path`"),
    ("flows.remedies", "add-header", FIELDS),
    ("flows.remedies", "attempts", BELOW),
    ("flows.remedies", "backoff", BELOW),
    ("flows.remedies", "consecutive", BELOW),
    ("flows.remedies", "header", FIELDS),
    ("flows.remedies", "headers", FIELDS),
    ("flows.remedies", "max_wait", BELOW),
    ("flows.remedies", "quota", BELOW),
    ("flows.remedies", "set-header", FIELDS),
    ("flows.remedies", "set_headers", FIELDS),
    ("flows.remedies", "ttl", BELOW),
    (
        "flows.remedies.authenticate",
        "accounts",
        "several are a remedy of their own, as in `- accounts: { use: [one, two] }`",
    ),
    ("flows.remedies.circuit-breaker", "failures", "it is called `consecutive`, or `ratio` for a share"),
    ("flows.remedies.circuit-breaker", "threshold", "it is called `consecutive`, or `ratio` for a share"),
    ("flows.remedies.circuit-breaker", "timeout", "it is called `open`"),
    ("flows.remedies.concurrency", "limit", "it is called `max`"),
    ("flows.remedies.fallback", "status", "it belongs under `response`"),
    (
        "flows.remedies.fallback.response",
        "json",
        "it is called `body`, and is a text: `'{\"error\": \"none\"}'`",
    ),
    ("flows.remedies.fault", "percent", SHARE),
    ("flows.remedies.fault", "percentage", SHARE),
    ("flows.remedies.fault", "probability", SHARE),
    ("flows.remedies.fault", "status", "it is called `abort`"),
    (
        "flows.remedies.fixed-response",
        "json",
        "it is called `body`, and is a text: `'{\"error\": \"none\"}'`",
    ),
    ("flows.remedies.limit", "limit", OF_A_QUOTA),
    ("flows.remedies.limit", "mode", BESIDE_LIMIT),
    ("flows.remedies.limit", "report", BESIDE_LIMIT),
    ("flows.remedies.limit", "window", OF_A_QUOTA),
    ("flows.remedies.queue", "limit", OF_A_QUOTA),
    ("flows.remedies.queue", "window", OF_A_QUOTA),
    ("flows.remedies.retry", "delay", "it is written `backoff: { base: 1s }`"),
    ("flows.remedies.retry", "retries", "it is called `attempts`, and counts the first call too"),
    ("flows.remedies.timeout", "connect", "it belongs to the provider: `timeouts: { connect: 1s }`"),
    ("flows.remedies.timeout", "read", "it is called `first_byte`, until the response begins"),
    ("flows.remedies.transform", "headers", "it belongs under `request` or `response`"),
    ("flows.remedies.transform.request", "body", "it is called `json`, whose members are changed one by one"),
    (
        "flows.remedies.transform.request",
        "set_headers",
        "it is written `headers: { set: { x-name: value } }`",
    ),
    (
        "flows.remedies.transform.response",
        "body",
        "it is called `json`, whose members are changed one by one",
    ),
    ("gateway", "interception", AT_THE_TOP),
    ("gateway", "providers", AT_THE_TOP),
    ("gateway", "tls", "it belongs to a listener: `listen: [{ address: 127.0.0.1:8443, tls: { ... } }]`"),
    ("gateway.access_log", "file", "it is called `output`, and takes a path"),
    ("log", "file", LOG),
    ("log", "output", LOG),
    ("providers", "api_key", CREDENTIAL),
    ("providers", "auth", CREDENTIAL),
    ("providers", "bearer", CREDENTIAL),
    ("providers", "headers", FIELDS),
    ("providers", "retries", "a flow repeats calls, with the remedy `retry`"),
    ("providers", "retry", "a flow repeats calls, with the remedy `retry`"),
    ("providers", "token", CREDENTIAL),
    ("providers.tls", "insecure_skip_verify", "it is written `verify: dangerously-off`"),
    ("quotas", "per", "it is called `window`"),
    ("quotas", "rate", "it is written with two keys, as in `limit: 100, window: 1s`"),
];

/// Returns what to write for a key that has another name or place.
fn elsewhere(path: &str) -> Option<String> {
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut steps: Vec<&str> = section.split('.').filter_map(|step| step.split('[').next()).collect();
    if steps.len() > 1 && ["providers", "quotas", "accounts", "exporters"].contains(&steps[0]) {
        steps.remove(1);
    }
    let section = steps.join(".");
    let (_, _, advice) = ELSEWHERE.iter().find(|(at, word, _)| *at == section && *word == key)?;
    Some(format!("unknown key `{key}`: {advice}"))
}

/// A remedy among diagnoses, or a diagnosis among remedies; or a key of another section.
fn misplaced(problem: &Problem) -> Option<String> {
    let is_unknown = problem.message.starts_with("unknown key");
    // A word of another product, whose advice does not know the place.
    let is_foreign =
        ["` is Lunar's: ", "` is part of an address: "].iter().any(|word| problem.message.contains(word));
    if let Some(message) = elsewhere(&problem.path).filter(|_| is_unknown || is_foreign) {
        return Some(message);
    }
    if is_unknown && RemedyConfig::KEYS.contains(&problem.path.as_str()) {
        let remedy = &problem.path;
        return Some(format!(
            "`{remedy}` is a remedy: it belongs to a flow, as in `flows: [{{ name: all, remedies: [{remedy}: {{ ... }}] }}]`"
        ));
    }
    let (section, key) = problem.path.rsplit_once('.').filter(|_| is_unknown)?;
    if section.contains("].transform.") && section.ends_with(".headers") && problem.suggestion.is_none() {
        return Some(format!("unknown key `{key}`: write `headers: {{ set: {{ {key}: value }} }}`"));
    }
    let (list, key) = problem.path.rsplit_once("].")?;
    if list.contains("].diagnoses[") && RemedyConfig::KEYS.contains(&key) {
        return Some(format!("`{key}` is a remedy: it belongs under `remedies`"));
    }
    if list.contains("].remedies[") && DiagnosisConfig::KEYS.contains(&key) {
        return Some(format!("`{key}` is a diagnosis: it belongs under `diagnoses`"));
    }
    None
}

/// Sections by the end of their path, and what an entry looks like.
const EXAMPLES: [(&str, &str); 31] = [
    ("providers", "shop: { url: https://api.example.com }"),
    ("quotas", "calls: { limit: 100, window: 1s }"),
    ("accounts", "shop: { provider: shop, bearer: { token: \"${env:SHOP_TOKEN}\" } }"),
    ("exporters", "archive: { type: har, directory: ./har }"),
    ("flows", "- name: shop"),
    ("remedies", "- retry: { attempts: 3 }"),
    ("diagnoses", "- metrics: {}"),
    ("backoff", "backoff: { base: 100ms, max: 5s }"),
    ("basic", "basic: { username: shop, password: \"${env:SHOP_PASSWORD}\" }"),
    ("budget", "budget: { ratio: 0.2 }"),
    ("cache.ttl", "ttl: { 200: 10s }"),
    ("cost", "cost: { request: \"1\", response: \"int(response.body.usage.total_tokens)\" }"),
    ("match", "match: { provider: shop }"),
    ("gateway.listen", "[127.0.0.1:8000]"),
    ("gateway.access_log", "access_log: { output: stdout }"),
    ("interception", "interception: { hosts: [api.example.com] }"),
    ("fallback", "fallback: { response: { status: 200, body: sorry } }"),
    ("api_key", "api_key: { header: x-api-key, value: \"${env:SHOP_KEY}\" }"),
    ("cache", "cache: { ttl: { 200: 60s } }"),
    ("cache.disk", "disk: { size: 20GiB }"),
    ("circuit-breaker", "circuit-breaker: { consecutive: 5, open: 30s }"),
    ("cluster.redis", "redis: { url: \"redis://127.0.0.1:6379\" }"),
    ("control", "control: { listen: 127.0.0.1:8001 }"),
    ("gateway.egress", "egress: { default: deny }"),
    ("gcp", "gcp: { metadata: true }"),
    ("hedge", "hedge: { after: 500ms }"),
    ("learn", "learn: { from: [retry-after] }"),
    ("match.header", "header: { x-tier: gold }"),
    ("match.query", "query: { page: \"1\" }"),
    ("prices", "prices: { file: prices.json }"),
    ("spillover", "spillover: { max: 100 }"),
];

/// Returns an example of the list or mapping that is expected.
fn example(problem: &Problem) -> Option<String> {
    let is_shape =
        problem.message.starts_with("expected a list") || problem.message.starts_with("expected a mapping");
    let section = |end: &str| {
        problem.path == end || problem.path.strip_suffix(end).is_some_and(|before| before.ends_with('.'))
    };
    // An entry of a section that has names.
    let is_entry = |name: &str| {
        let rest = problem.path.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        ["accounts", "exporters", "quotas"].contains(&name)
            && rest.is_some_and(|rest| !rest.contains(['.', '[']))
    };
    let (_, example) = EXAMPLES.iter().find(|(end, _)| is_shape && (section(end) || is_entry(end)))?;
    Some(format!(", as in `{example}`"))
}

/// A calendar period where a fixed window is expected.
fn calendar(problem: &Problem) -> Option<String> {
    let word = problem.message.strip_prefix('`')?.split_once("` is not a duration")?.0;
    let period = ["day", "week", "month"].into_iter().find(|period| word.trim_end_matches('s') == *period)?;
    let start = if problem.message.ends_with('?') { " For" } else { "; for" };
    problem
        .path
        .ends_with(".window")
        .then(|| format!("{start} calendar periods write `kind: calendar, period: {period}`"))
}

/// A port where an address is expected.
fn port(problem: &Problem) -> Option<String> {
    let found = problem.message.strip_prefix("expected an address")?.split_once("found the number `")?.1;
    let port: u16 = found.split_once('`')?.0.parse().ok()?;
    Some(format!(": write `127.0.0.1:{port}`"))
}

/// A section whose keys stand beside its name.
fn nothing(problem: &Problem) -> Option<String> {
    (problem.message == "expected a mapping, found nothing")
        .then(|| ": its keys stand below it, indented further".to_owned())
}

/// A percentage where a ratio is expected, or a ratio where a percentage is.
fn percentage(problem: &Problem) -> Option<String> {
    let quoted = |before: &str| problem.message.strip_prefix(before)?.strip_suffix('`');
    if let Some(percent) = quoted("expected a number, found `").and_then(|found| found.strip_suffix('%')) {
        let percent: f64 = percent.trim().parse().ok()?;
        return Some(format!(": write `{}`", percent / 100.0));
    }
    if problem.path.contains(".alerts[")
        && let Some(number) = quoted("expected a text, found the number `")
    {
        let number: f64 = number.parse().ok()?;
        return Some(format!(": write `{}%`", if number <= 1.0 { (number * 100.0).round() } else { number }));
    }
    let key = problem.path.rsplit('.').next()?;
    let is_ratio = key == "ratio" && problem.message.starts_with("must be from 0 to ");
    is_ratio.then(|| ": 50 % is `0.5`".to_owned())
}

/// A rate, such as `100/s`, or a rounded number, such as `10k`, where a quota or its limit is expected.
fn rate(problem: &Problem) -> Option<String> {
    let path = problem.path.strip_prefix("quotas.")?;
    let limit = path.strip_suffix(".limit");
    let found = problem.message.split_once("found `")?.1.split_once('`')?.0;
    let digits = found.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| !limit.unwrap_or(path).contains('.'))?;
    let window = |unit: &str| {
        let keys = format!("limit: {number}, window: 1{unit}");
        Some(if limit.is_some() { format!(": write `{keys}`") } else { format!(": write `{{ {keys} }}`") })
    };
    let rounded = |factor| limit.and_then(|_| Some(format!(": write `{}`", number.checked_mul(factor)?)));
    match found[digits.len()..].trim() {
        "/s" | "/sec" | "/second" | "rps" | " per second" => window("s"),
        "/m" | "/min" | "/minute" | "rpm" | " per minute" => window("m"),
        "/h" | "/hour" | " per hour" => window("h"),
        "/d" | "/day" | " per day" => window("d"),
        "k" | "K" => rounded(1_000),
        "M" => rounded(1_000_000),
        _ => None,
    }
}

/// Remedies that need no key.
const BARE: [&str; 3] = ["cache", "circuit-breaker", "retry"];

/// A remedy that is switched on where its keys are expected.
fn bare(problem: &Problem) -> Option<String> {
    let (list, key) = problem.path.rsplit_once("].")?;
    let is_on =
        ["true", "yes", "on"].iter().any(|word| problem.message.ends_with(&format!("found `{word}`")));
    let is_remedy = list.contains("].remedies[") && BARE.contains(&key);
    (is_on && is_remedy).then(|| format!(": write `- {key}` alone"))
}

/// The name of a host, or none, where an address is expected.
fn address(problem: &Problem) -> Option<String> {
    let text = problem.message.strip_prefix('`')?.split_once("` is not an address to listen on")?.0;
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    match host {
        "localhost" => Some(format!("; did you mean `127.0.0.1:{port}`?")),
        "" | "*" => Some(format!("; write `127.0.0.1:{port}`, or `0.0.0.0:{port}` for other machines too")),
        _ => None,
    }
}

/// A URL or a network where the name of a host is expected.
fn host(problem: &Problem) -> Option<String> {
    let text = problem.message.strip_prefix('`')?.split_once("` is not a host name")?.0;
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().filter(|host| !host.is_empty())?;
        return Some(format!(": write `{host}`"));
    }
    let (address, length) = text.split_once('/')?;
    let is_network = address.parse::<IpAddr>().is_ok() && length.parse::<u8>().is_ok();
    (is_network && problem.path.starts_with("gateway.egress")).then(|| format!(": write `{{ net: {text} }}`"))
}

/// Messages that lack the form to write, each with the end of its path and of its text.
const WRITTEN: [(&str, &str, &str); 6] = [
    (".bodies", "found `true`", ": write the part of each body that is kept, as in `64KiB`"),
    (".body", "expected a text, found a mapping", ": JSON is a text too, as in `'{\"error\": \"none\"}'`"),
    (".cost", "expected a mapping, found `usd`", ": write `cost: { usage: usd }`, beside `unit: usd`"),
    (".quota", "expected a text, found a mapping", ": the quota stands under `quotas`, and its name here"),
    (".when_response", "expected a text, found a mapping", ": write `when_response: response.status >= 500`"),
    (
        ".priority.classes",
        "must have 1 to 16 classes",
        ", as in `priority: { by: consumer, classes: [checkout, batch] }`",
    ),
];

/// Returns the form of a value that is written in another way, or with a unit.
fn written(problem: &Problem) -> Option<String> {
    let message = &problem.message;
    if let Some((_, number)) =
        message.split_once("expected a duration like `250ms` or `5s`, found the number `")
        && let Some(number) = number.strip_suffix('`').filter(|_| problem.suggestion.is_none())
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Some(format!(": write `{number}ms` or `{number}s`"));
    }
    if let Some((_, number)) =
        message.split_once("expected a size like `512B` or `64KiB`, found the number `")
        && let Some(number) = number.strip_suffix('`').filter(|_| problem.suggestion.is_none())
    {
        return Some(format!(": write `{number}B`, `{number}KiB` or `{number}MiB`"));
    }
    if message == "the key `url` is missing" && problem.path.starts_with("providers.") {
        return Some(": write `url: https://api.example.com`, or the `preset` of the provider".to_owned());
    }
    if problem.path.ends_with("match.path") && message.split('`').nth(1)?.contains(['^', '$', '(', '\\']) {
        let advice = "; a regular expression is for `when`, as in `request.path.matches('^/v1/')`";
        return Some(advice.to_owned());
    }
    if let Some((word, _)) =
        message.strip_prefix('`').and_then(|rest| rest.split_once("` is not an outcome of a call"))
    {
        let outcomes: Vec<&str> = word.split(['|', ' ', '/', ';']).filter(|part| !part.is_empty()).collect();
        return (outcomes.len() > 1)
            .then(|| format!("; several are a list, as in `[{}]`", outcomes.join(", ")));
    }
    if let Some((_, number)) = message.split_once("expected a text, found the number `")
        && [".limit", ".queue"].iter().any(|end| problem.path.ends_with(end))
    {
        let limit = number.trim_end_matches('`');
        return Some(format!(
            ": the name of a quota stands here, and `NAME: {{ limit: {limit}, window: 1s }}` under `quotas`"
        ));
    }
    let is_meant =
        |(path, text, _): &&(&str, &str, &str)| message.ends_with(text) && problem.path.ends_with(path);
    WRITTEN.iter().find(is_meant).map(|(.., advice)| (*advice).to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    /// Configs, and what the message about each has.
    const MESSAGES: &[(&str, &str)] = &[
        (
            "flows: [{ name: a, diagnoses: [{ retry: {} }] }]",
            "flows[0].diagnoses[0].retry: `retry` is a remedy: it belongs under `remedies`\n",
        ),
        (
            "flows: [{ name: a, remedies: [{ har: {} }] }]",
            "flows[0].remedies[0].har: `har` is a diagnosis: it belongs under `diagnoses`\n",
        ),
        (
            "flows: [{ name: a, remedies: { retry: {} } }]",
            "remedies: expected a list, found a mapping: put `- ` before each entry, as in `- retry: { attempts: 3 }`",
        ),
        (
            "providers: [{ shop: {} }]",
            "expected a mapping, found a list: write `name: ...` in place of `- ...`, as in `shop: { url: https://api.example.com }`",
        ),
        ("quotas: { a: { limit: 1, per: 1s } }", "quotas.a.per: unknown key `per`: it is called `window`\n"),
        ("flows: [{ match: { status: 5xx } }]", "unknown key `status`: it is known once there is a response"),
        ("flows: [{ when: 'true' }]", "flows[0].when: unknown key `when`: it belongs under `match`\n"),
        ("exporters: { a: { type: har, url: x } }", "unknown key `url`, expected one of"),
        ("quotas: { a: { limit: 100/s } }", "found `100/s`: write `limit: 100, window: 1s`\n"),
        ("quotas: { a: { limit: 10k, window: 1s } }", "found `10k`: write `10000`\n"),
        ("flows: [{ remedies: [{ retry: { backoff: exponential } }] }]", ", as in `backoff: { base: 100ms"),
        (
            "providers: { a: { tls: { insecure_skip_verify: true } } }",
            "it is written `verify: dangerously-off`\n",
        ),
        ("providers: { a: { timeouts: { connect: 500 } } }", "`500`: write `500ms` or `500s`\n"),
        ("providers: { a: {} }", "the key `url` is missing: write `url: https://api.example.com`, or"),
        (
            "flows: [{ remedies: [{ retry: { retries: 3 } }] }]",
            "unknown key `retries`: it is called `attempts`",
        ),
        (
            "flows: [{ remedies: [{ limit: { quota: { limit: 1 } } }] }]",
            "stands under `quotas`, and its name",
        ),
        ("flows: [{ name: a, match: { path: '^/v1/.*' } }]", "a regular expression is for `when`"),
        ("gateway: { listen: { port: 0 } }", "put `- ` before each entry, as in `[127.0.0.1:8000]`\n"),
        ("gateway: { listen: 8000 }", "gateway.listen: expected an address like `127.0.0.1:8000` or `unix:"),
        ("gateway: { listen: 9100 }", "found the number `9100`: write `127.0.0.1:9100`\n"),
        (
            "providers: { a: { url: bank.example } }",
            "must start with `http://` or `https://`, as in `https://bank.example`",
        ),
        (
            "providers: { a: https://a.example }\nflows: [{ name: a, remedies: [retry: { budget: { ratio: 50 } }] }]",
            "must be from 0 to 10: 50 % is `0.5`",
        ),
        (
            "providers:\n  a:\n  url: https://a.example",
            "found nothing: its keys stand below it, indented further\n",
        ),
        (
            "flows:\n  - name: f\n    remedies:\n    - retry:\n      attempts: 3",
            "unknown key `attempts`: it belongs below the name of its remedy, indented further\n",
        ),
        ("retry: { attempts: 3 }", "`retry` is a remedy: it belongs to a flow, as in `flows: [{ name: all"),
        ("gateway: { interception: {} }", "it belongs at the top level, without indentation\n"),
        (
            "flows: [{ name: f, remedies: [limit: { quota: q, report: true }] }]",
            "it is written `mode: report`",
        ),
        ("control: { port: 8001 }", "it is part of `listen`, as in `listen: 127.0.0.1:8001`\n"),
        ("gateway: { access_log: { file: a.log } }", "it is called `output`, and takes a path\n"),
        ("gateway: { egress: deny }", "found `deny`, as in `egress: { default: deny }`\n"),
        ("prices: prices.json", "found `prices.json`, as in `prices: { file: prices.json }`\n"),
        ("flows: [{ remedies: [cache: { disk: 20GiB }] }]", "found `20GiB`, as in `disk: { size: 20GiB }`\n"),
        (
            "quotas: { a: { limit: 5, cost: usd } }",
            "found `usd`: write `cost: { usage: usd }`, beside `unit: usd`\n",
        ),
        ("quotas: { a: { limit: 5, alerts: [80] } }", "found the number `80`: write `80%`\n"),
        ("quotas: { a: { limit: 5, alerts: [0.8] } }", "found the number `0.8`: write `80%`\n"),
        ("flows: [{ remedies: [fault: { share: 20% }] }]", "found `20%`: write `0.2`\n"),
        ("diagnoses: [har]", "unknown key `diagnoses`: it belongs to a flow, beside its `match`\n"),
        ("log: { file: a.log }", "log.file: unknown key `file`: the log goes to standard error"),
        ("exporters: { a: { type: file } }", "`file` is Lunar's: use `har`"),
        ("quotas: { a: 100/s }", "found `100/s`: write `{ limit: 100, window: 1s }`\n"),
        ("quotas: { a: fast }", "found `fast`, as in `calls: { limit: 100, window: 1s }`\n"),
        ("flows: [{ remedies: [cache: true] }]", "found `true`: write `- cache` alone\n"),
        ("flows: [{ remedies: [cache: 60s] }]", "found `60s`, as in `cache: { ttl: { 200: 60s } }`\n"),
        ("flows: [{ remedies: [accounts: [a, b]] }]", "found a list: write `accounts: { use: [a, b] }`\n"),
        ("flows: [{ remedies: [set-header: { a: b }] }]", "a flow sets fields, as in `transform: {"),
        ("flows: [{ remedies: [retry: { on: 5xx|429 }] }]", "as in `[5xx, 429]`\n"),
        ("flows: [{ remedies: [limit: 5] }]", "`NAME: { limit: 5, window: 1s }` under `quotas`\n"),
        ("providers: { a: { api_key: b } }", "a credential stands under `accounts`"),
        ("gateway: { limits: { head: 32 } }", "found the number `32`: write `32B`, `32KiB` or `32MiB`\n"),
        ("gateway: { egress: { allow: [10.0.0.0/8] } }", ": write `{ net: 10.0.0.0/8 }`\n"),
        ("gateway: { egress: { allow: ['https://a.example/b'] } }", ": write `a.example`\n"),
        (
            "flows: [{ remedies: [transform: { request: { headers: { x-a: b } } }] }]",
            "unknown key `x-a`: write `headers: { set: { x-a: value } }`\n",
        ),
        ("gateway: { listen: 'localhost:80' }", "; did you mean `127.0.0.1:80`?\n"),
        ("gateway: { listen: '*:80' }", "write `127.0.0.1:80`, or `0.0.0.0:80` for other machines too\n"),
        ("quotas: { a: { limit: 1, group_by: x-tenant } }", "; did you mean `header:x-tenant`?\n"),
        ("quotas: { a: { limit: 1, window: day } }", "did you mean `1d`? For calendar periods write"),
        (
            "quotas: { a: { limit: 1, window: month } }",
            "; for calendar periods write `kind: calendar, period: month`",
        ),
    ];

    #[test]
    fn a_message_says_where_a_key_belongs() {
        for (text, expected) in MESSAGES {
            let report = Config::parse("egret.yaml", text).unwrap_err().to_string();
            assert!(report.contains(expected), "{report}");
        }
    }

    #[test]
    fn a_manifest_of_kubernetes_is_one_mistake() {
        let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: egret }\ndata: { a: b }\n";
        let report = Config::parse("egret.yaml", manifest).unwrap_err().to_string();
        assert!(report.starts_with("egret.yaml:1:1: apiVersion: `apiVersion` is Kubernetes': "), "{report}");
        assert_eq!(report.matches("egret.yaml:").count(), 1, "{report}");
    }
}
