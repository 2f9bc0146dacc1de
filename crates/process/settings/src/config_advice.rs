//! Completes messages about a config by what only the whole config knows: where a misplaced key belongs, and
//! what a section looks like.

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
    if let Some(message) = misplaced(problem) {
        problem.message = message;
        problem.suggestion = None;
    } else if let Some(advice) = ADVICE.iter().find_map(|advice| advice(problem)) {
        problem.message += &advice;
        problem.suggestion = None;
    }
}

/// Functions that complete a message.
const ADVICE: [fn(&Problem) -> Option<String>; 6] = [example, calendar, rate, port, percentage, written];

/// Keys that people look for in a section, by its path without numbers and names.
const ELSEWHERE: [(&str, &str, &str); 22] = [
    ("exporters", "path", "it is called `directory`"),
    ("flows", "host", "it belongs under `match`"),
    ("flows", "path", "it belongs under `match`"),
    ("flows", "provider", "it belongs under `match`"),
    ("flows", "steps", "it is called `remedies`"),
    ("flows", "when", "it belongs under `match`"),
    ("flows.match", "response", "it is known once there is one: use `when_response` beside `match`"),
    (
        "flows.match",
        "status",
        "it is known once there is a response: write `when_response: response.status >= 500` beside `match`",
    ),
    ("flows.match", "url", "it is written as `host` and `path`"),
    ("quotas", "per", "it is called `window`"),
    ("quotas", "rate", "it is written with two keys, as in `limit: 100, window: 1s`"),
    (
        "flows.remedies.authenticate",
        "accounts",
        "several are a remedy of their own, as in `- accounts: { use: [one, two] }`",
    ),
    ("flows.remedies.circuit-breaker", "threshold", "it is called `consecutive`, or `ratio` for a share"),
    ("flows.remedies.circuit-breaker", "timeout", "it is called `open`"),
    ("flows.remedies.fallback", "status", "it belongs under `response`"),
    ("flows.remedies.limit", "limit", "it belongs to a quota under `quotas`, whose name stands here"),
    ("flows.remedies.limit", "window", "it belongs to a quota under `quotas`, whose name stands here"),
    ("flows.remedies.queue", "limit", "it belongs to a quota under `quotas`, whose name stands here"),
    ("flows.remedies.queue", "window", "it belongs to a quota under `quotas`, whose name stands here"),
    ("flows.remedies.retry", "delay", "it is written `backoff: { base: 1s }`"),
    ("flows.remedies.retry", "retries", "it is called `attempts`, and counts the first call too"),
    ("providers.tls", "insecure_skip_verify", "it is written `verify: dangerously-off`"),
];

/// Returns what to write for a key that has another name or place.
fn elsewhere(path: &str) -> Option<String> {
    let (section, key) = path.rsplit_once('.')?;
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
    if !problem.message.starts_with("unknown key") {
        return None;
    }
    if let Some(message) = elsewhere(&problem.path) {
        return Some(message);
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
const EXAMPLES: [(&str, &str); 18] = [
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
];

/// Returns an example of the list or mapping that is expected.
fn example(problem: &Problem) -> Option<String> {
    let is_shape =
        problem.message.starts_with("expected a list") || problem.message.starts_with("expected a mapping");
    let section = |end: &str| {
        problem.path == end || problem.path.strip_suffix(end).is_some_and(|before| before.ends_with('.'))
    };
    let (_, example) = EXAMPLES.iter().find(|(end, _)| is_shape && section(end))?;
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

/// A percentage where a ratio is expected.
fn percentage(problem: &Problem) -> Option<String> {
    let key = problem.path.rsplit('.').next()?;
    let is_ratio = key == "ratio" && problem.message.starts_with("must be from 0 to ");
    is_ratio.then(|| ": 50 % is `0.5`".to_owned())
}

/// A rate, such as `100/s`, or a rounded number, such as `10k`, where the limit of a quota is expected.
fn rate(problem: &Problem) -> Option<String> {
    let quota = problem.path.strip_prefix("quotas.")?.strip_suffix(".limit")?;
    let found = problem.message.split_once("found `")?.1.split_once('`')?.0;
    let digits = found.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| !quota.contains('.'))?;
    let window = |unit: &str| Some(format!(": write `limit: {number}, window: 1{unit}`"));
    match found[digits.len()..].trim() {
        "/s" | "/sec" | "/second" | "rps" | " per second" => window("s"),
        "/m" | "/min" | "/minute" | "rpm" | " per minute" => window("m"),
        "/h" | "/hour" | " per hour" => window("h"),
        "/d" | "/day" | " per day" => window("d"),
        "k" | "K" => Some(format!(": write `{}`", number.checked_mul(1_000)?)),
        "M" => Some(format!(": write `{}`", number.checked_mul(1_000_000)?)),
        _ => None,
    }
}

/// Messages that lack the form to write, each with the end of its path and of its text.
const WRITTEN: [(&str, &str, &str); 4] = [
    (".body", "expected a text, found a mapping", ": JSON is a text too, as in `'{\"error\": \"none\"}'`"),
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
    if message == "the key `url` is missing" && problem.path.starts_with("providers.") {
        return Some(": write `url: https://api.example.com`, or the `preset` of the provider".to_owned());
    }
    if problem.path.ends_with("match.path") && message.split('`').nth(1)?.contains(['^', '$', '(', '\\']) {
        let advice = "; a regular expression is for `when`, as in `request.path.matches('^/v1/')`";
        return Some(advice.to_owned());
    }
    let is_meant =
        |(path, text, _): &&(&str, &str, &str)| message.ends_with(text) && problem.path.ends_with(path);
    WRITTEN.iter().find(is_meant).map(|(.., advice)| (*advice).to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_message_says_where_a_key_belongs() {
        for (text, expected) in [
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
            (
                "quotas: { a: { limit: 1, per: 1s } }",
                "quotas.a.per: unknown key `per`: it is called `window`\n",
            ),
            (
                "flows: [{ match: { status: 5xx } }]",
                "unknown key `status`: it is known once there is a response",
            ),
            ("flows: [{ when: 'true' }]", "flows[0].when: unknown key `when`: it belongs under `match`\n"),
            ("exporters: { a: { type: har, url: x } }", "unknown key `url`, expected one of"),
            ("quotas: { a: { limit: 100/s } }", "found `100/s`: write `limit: 100, window: 1s`\n"),
            ("quotas: { a: { limit: 10k, window: 1s } }", "found `10k`: write `10000`\n"),
            (
                "flows: [{ remedies: [{ retry: { backoff: exponential } }] }]",
                ", as in `backoff: { base: 100ms",
            ),
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
            (
                "gateway: { listen: 8000 }",
                "gateway.listen: expected an address like `127.0.0.1:8000` or `unix:",
            ),
            ("gateway: { listen: 9100 }", "found the number `9100`: write `127.0.0.1:9100`\n"),
            (
                "providers: { a: { url: bank.example } }",
                "must start with `http://` or `https://`, as in `https://bank.example`",
            ),
            (
                "providers: { a: https://a.example }\nflows: [{ name: a, remedies: [retry: { budget: { ratio: 50 } }] }]",
                "must be from 0 to 10: 50 % is `0.5`",
            ),
            ("quotas: { a: { limit: 1, group_by: x-tenant } }", "; did you mean `header:x-tenant`?\n"),
            ("quotas: { a: { limit: 1, window: day } }", "did you mean `1d`? For calendar periods write"),
            (
                "quotas: { a: { limit: 1, window: month } }",
                "; for calendar periods write `kind: calendar, period: month`",
            ),
        ] {
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
