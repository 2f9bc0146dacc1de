//! The gateway's own count equals the bill of the provider, to the token: in every dialect, unary and
//! streamed, plain and compressed, by several clients at once.
//!
//! `make ledger CALLS=10000` makes as many calls in each dialect.

use std::collections::BTreeMap;
use std::thread;

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::spending::used;
use egret_tests::wait::until_value;

/// The dialects, each with its calls: a target below the dialect's base URL, and a body.
const DIALECTS: [(&str, &[(&str, &str)]); 14] = [
    (
        "openai",
        &[
            ("/v1/chat/completions", "{}"),
            ("/v1/chat/completions", ASKED),
            ("/v1/responses", "{}"),
            ("/v1/responses", STREAM),
            ("/v1/embeddings", r#"{"input":"text"}"#),
            ("/v1/images/generations", "{}"),
            ("/v1/images/generations", STREAM),
        ],
    ),
    ("anthropic", &[("/v1/messages", "{}"), ("/v1/messages", STREAM)]),
    (
        "gemini",
        &[
            ("/v1beta/models/gemini-3-flash:generateContent", "{}"),
            ("/v1beta/models/gemini-3-flash:streamGenerateContent", "{}"),
            ("/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse", "{}"),
        ],
    ),
    (
        "vertex",
        &[
            ("/v1/projects/p/locations/l/publishers/google/models/g:generateContent", "{}"),
            ("/v1/projects/p/locations/l/publishers/google/models/g:streamGenerateContent?alt=sse", "{}"),
            ("/v1/projects/p/locations/l/publishers/anthropic/models/c:rawPredict", "{}"),
            ("/v1/projects/p/locations/l/publishers/anthropic/models/c:streamRawPredict", STREAM),
        ],
    ),
    (
        "bedrock",
        &[
            ("/model/anthropic.claude-v1%3A0/invoke", "{}"),
            ("/model/anthropic.claude-v1%3A0/invoke-with-response-stream", "{}"),
            ("/model/meta.llama/invoke", "{}"),
            ("/model/meta.llama/invoke-with-response-stream", "{}"),
            ("/model/amazon.nova/converse", "{}"),
            ("/model/amazon.nova/converse-stream", "{}"),
        ],
    ),
    (
        "azure",
        &[
            ("/openai/deployments/d/chat/completions", "{}"),
            ("/openai/deployments/d/chat/completions", ASKED),
            ("/openai/v1/responses", STREAM),
        ],
    ),
    ("mistral", &[("/v1/chat/completions", "{}"), ("/v1/chat/completions", STREAM)]),
    ("groq", &[("/openai/v1/chat/completions", "{}"), ("/openai/v1/chat/completions", STREAM)]),
    ("cohere", &[("/v2/chat", "{}"), ("/v2/chat", STREAM)]),
    ("deepseek", &[("/chat/completions", "{}"), ("/chat/completions", ASKED)]),
    ("openrouter", &[("/api/v1/chat/completions", "{}"), ("/api/v1/chat/completions", STREAM)]),
    (
        "ollama",
        &[
            ("/api/chat", r#"{"stream":false}"#),
            ("/api/chat", "{}"),
            ("/api/generate", "{}"),
            ("/v1/chat/completions", ASKED),
        ],
    ),
    (
        "vllm",
        &[
            ("/v1/chat/completions", "{}"),
            ("/v1/chat/completions", ASKED),
            (
                "/v1/chat/completions",
                r#"{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#,
            ),
        ],
    ),
    ("llamacpp", &[("/v1/chat/completions", "{}"), ("/v1/chat/completions", ASKED)]),
];

const STREAM: &str = r#"{"stream":true}"#;
/// A stream whose client asks for usage.
const ASKED: &str = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;

/// Dialects that report what was read from a cache, and reasoning, in all of their calls.
const WITH_PARTS: [&str; 6] = ["anthropic", "gemini", "azure", "mistral", "groq", "openrouter"];

/// Calls in each dialect, unless the environment asks for another number.
const CALLS: usize = 28;

/// A gateway in front of these providers, one for each dialect. It counts tokens by provider, and charges
/// them to a quota.
fn egret(providers: &[BuiltIn]) -> Egret {
    let mut config = Config::default();
    for ((dialect, _), provider) in DIALECTS.iter().zip(providers) {
        config = config.provider(dialect, format!("http://{}/llm/{dialect}", provider.address()));
    }
    let quota = "{ limit: 1000000000000, kind: calendar, period: month, group_by: provider, cost: { request: '0', usage: tokens } }";
    let metrics = "{ labels: [provider], tokens: true, counters: { called: { cel: '1' } } }";
    config
        .flows(format!(
            "quotas: {{ tokens: {quota} }}\n\
             flows: [{{ name: all, remedies: [limit: {{ quota: tokens }}], diagnoses: [metrics: {metrics}] }}]\n"
        ))
        .start()
}

/// Tokens of the call with that number: no two calls alike, and each part at times 0 and at times all of it.
fn tokens(number: usize) -> String {
    let input = number * 7919 % 100_003;
    let cached = [0, input / 3, input][number % 3];
    let written = [0, (input - cached) / 2, 0, input - cached][number % 4];
    let output = number * 31 % 97;
    let reasoning = [0, output / 2, output][number / 2 % 3];
    format!("input={input}&cached={cached}&written={written}&output={output}&reasoning={reasoning}")
}

/// Makes the calls of one dialect, one after the other.
fn call(egret: &Egret, dialect: &str, calls: &[(&str, &str)], count: usize) {
    let mut client = egret.client();
    for number in 0..count {
        let (target, body) = calls[number % calls.len()];
        let separator = if target.contains('?') { '&' } else { '?' };
        let gzip = number / calls.len() % 2 == 1;
        client.send(format!(
            "POST /{dialect}{target}{separator}{}&gzip={gzip} HTTP/1.1\r\nhost: {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            tokens(number),
            egret.address(),
            body.len()
        ));
        let response = client.any_response_to("POST");
        assert!(response.status == 200 && !response.cut, "{dialect}{target}: {response:?}");
    }
}

/// Sums of a metric by provider and type.
fn metered(text: &str) -> BTreeMap<(String, String), u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("egret_llm_tokens_total{")) {
        let (labels, value) = line.rsplit_once("} ").unwrap();
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        *sums.entry((label("provider"), label("type"))).or_default() += value.parse::<u64>().unwrap();
    }
    sums
}

#[test]
fn metered_tokens_equal_the_ledger_in_every_dialect() {
    let count = std::env::var("EGRET_CALLS").map_or(CALLS, |count| count.parse().unwrap());
    // A ledger of each dialect's own keeps all of its calls.
    let providers: Vec<BuiltIn> = DIALECTS.iter().map(|_| BuiltIn::start(&[])).collect();
    let egret = egret(&providers);
    thread::scope(|scope| {
        for (dialect, calls) in DIALECTS {
            let egret = &egret;
            scope.spawn(move || call(egret, dialect, calls, count));
        }
    });
    let read = || egret.control_get("/metrics").text().to_owned();
    let is_counted = |text: &str, dialect: &str| {
        text.contains(&format!("egret_custom_called_total{{flow=\"all\",provider=\"{dialect}\"}} {count}\n"))
    };
    let text = until_value("all calls are counted", read, |text| {
        DIALECTS.iter().all(|(dialect, _)| is_counted(text, dialect))
    });
    let metered = metered(&text);
    let mut tokens: BTreeMap<&str, u64> = BTreeMap::new();
    for ((dialect, _), provider) in DIALECTS.into_iter().zip(&providers) {
        let ledger = provider.get("/llm/ledger?last=0").json()["totals"].clone();
        let billed = |part: &str| ledger[part].as_u64().unwrap();
        let metered = |part: &str| metered[&(dialect.to_owned(), part.to_owned())];
        assert_eq!((billed("calls"), billed("refused"), billed("incomplete")), (count as u64, 0, 0));
        let parts: &[&str] = if WITH_PARTS.contains(&dialect) {
            &["input", "output", "cache_read", "reasoning"]
        } else {
            &["input", "output"]
        };
        for part in parts {
            assert_eq!(metered(part), billed(part), "{dialect}: {part}");
        }
        tokens.insert(dialect, billed("input") + billed("output"));
    }
    // A call is settled a moment after its record was handed over.
    until_value(
        &format!("the quota has what was billed: {tokens:?}"),
        || used(&egret),
        |used| tokens.iter().all(|(dialect, billed)| used.get(*dialect) == Some(billed)),
    );
    let total: u64 = tokens.values().sum();
    println!("{} calls, {total} tokens, difference 0", count * DIALECTS.len());
}
