//! Each dialect, unary and streamed: its usage, its faults, and the ledger beside it.

use std::io::Read as _;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::fixture::{TestProvider, TestResponse, request};
use crate::options::Options;

/// Parameters of a call with a cost in which every part is different.
const COST: &str = "input=100&cached=30&written=20&written_1h=5&output=12&reasoning=4";

/// A path, a request, and the place of usage in the response and, for a stream, in its last event with usage.
type Case = (&'static str, &'static str, &'static str, Value);

fn openai_usage() -> Value {
    json!({ "prompt_tokens": 100, "completion_tokens": 12, "total_tokens": 112 })
}

fn cases() -> Vec<Case> {
    let anthropic = json!({ "input_tokens": 50, "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 20, "output_tokens": 12 });
    let bedrock = json!({ "inputTokens": 50, "outputTokens": 12, "totalTokens": 112,
        "cacheReadInputTokens": 30, "cacheWriteInputTokens": 20 });
    let gemini = json!({ "promptTokenCount": 100, "candidatesTokenCount": 8, "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 30, "totalTokenCount": 112 });
    let vertex = json!({ "candidatesTokenCount": 12, "totalTokenCount": 112 });
    let chat = r#"{"model":"m","stream_options":{"include_usage":true}}"#;
    let vertex_path = "/llm/vertex/v1/projects/p/locations/l/publishers/google/models/m:generateContent";
    vec![
        ("/llm/openai/v1/chat/completions", chat, "/usage", openai_usage()),
        ("/llm/azure/openai/deployments/d/chat/completions", chat, "/usage", openai_usage()),
        ("/llm/azure/openai/v1/chat/completions", chat, "/usage", openai_usage()),
        ("/llm/mistral/v1/chat/completions", "{}", "/usage", openai_usage()),
        (
            "/llm/deepseek/chat/completions",
            chat,
            "/usage",
            json!({ "prompt_cache_hit_tokens": 30, "prompt_cache_miss_tokens": 70 }),
        ),
        ("/llm/openrouter/api/v1/chat/completions", "{}", "/usage", json!({ "cost": 0.000_124 })),
        ("/llm/ollama/v1/chat/completions", chat, "/usage", openai_usage()),
        ("/llm/vllm/v1/chat/completions", chat, "/usage", openai_usage()),
        ("/llm/llamacpp/v1/chat/completions", chat, "/usage", openai_usage()),
        (
            "/llm/openai/v1/responses",
            "{}",
            "/usage",
            json!({ "input_tokens": 100, "output_tokens": 12, "total_tokens": 112 }),
        ),
        (
            "/llm/openai/v1/images/generations",
            "{}",
            "/usage",
            json!({ "input_tokens": 100, "output_tokens": 12 }),
        ),
        ("/llm/anthropic/v1/messages", "{}", "/usage", anthropic),
        ("/llm/gemini/v1beta/models/m:generateContent", "{}", "/usageMetadata", gemini),
        (vertex_path, "{}", "/usageMetadata", vertex),
        ("/llm/bedrock/model/anthropic.claude%3A0/invoke", "{}", "/usage", json!({ "input_tokens": 50 })),
        (
            "/llm/bedrock/model/meta.llama/invoke",
            "{}",
            "",
            json!({ "prompt_token_count": 100, "generation_token_count": 12 }),
        ),
        ("/llm/bedrock/model/amazon.nova/converse", "{}", "/usage", bedrock),
        (
            "/llm/cohere/v2/chat",
            "{}",
            "/usage/billed_units",
            json!({ "input_tokens": 100.0, "output_tokens": 12.0 }),
        ),
        (
            "/llm/ollama/api/chat",
            r#"{"stream":false}"#,
            "",
            json!({ "prompt_eval_count": 100, "eval_count": 12 }),
        ),
        (
            "/llm/ollama/api/generate",
            r#"{"stream":false}"#,
            "",
            json!({ "prompt_eval_count": 100, "eval_count": 12 }),
        ),
    ]
}

fn provider() -> TestProvider {
    TestProvider::new(Options::default())
}

async fn post(provider: &TestProvider, target: &str, content: &'static str) -> TestResponse {
    provider.send(request("POST", target, &[("content-type", "application/json")], content)).await
}

async fn ledger(provider: &TestProvider) -> Value {
    provider.get("/llm/ledger").await.json()
}

/// Asserts that a value has these members.
fn assert_has(value: &Value, members: &Value, context: &str) {
    for (name, member) in members.as_object().unwrap() {
        assert_eq!(&value[name], member, "{name} of {context}: {value}");
    }
}

/// The data of server-sent events; comments and `[DONE]` are left out.
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    lines.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The names and payloads of an AWS event stream, whose sums must be right.
fn aws_events(mut bytes: &[u8]) -> Vec<(String, Value)> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let sum = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum()
    };
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (message, rest) = bytes.split_at(number(bytes) as usize);
        let (body, last) = message.split_at(message.len() - 4);
        assert_eq!((number(&body[8..]), number(last)), (sum(&body[..8]), sum(body)));
        let (fields, payload) = body[12..].split_at(number(&body[4..]) as usize);
        // The first field is the name of the event, or of the exception.
        let value = &fields[1 + usize::from(fields[0]) + 1..];
        let length = usize::from(u16::from_be_bytes([value[0], value[1]]));
        let name = String::from_utf8(value[2..2 + length].to_vec()).unwrap();
        let payload: Value = serde_json::from_slice(payload).unwrap();
        let payload = match payload["bytes"].as_str() {
            Some(inner) => serde_json::from_slice(&BASE64.decode(inner.as_bytes()).unwrap()).unwrap(),
            None => payload,
        };
        events.push((name, payload));
        bytes = rest;
    }
    events
}

#[tokio::test]
async fn each_dialect_states_its_usage_in_its_own_members() {
    for (path, content, pointer, usage) in cases() {
        let provider = provider();
        let response = post(&provider, &format!("{path}?{COST}"), content).await;
        assert_eq!(response.status, 200, "{path}");
        assert_has(response.json().pointer(pointer).unwrap(), &usage, path);
        let ledger = ledger(&provider).await;
        let billed = json!({ "calls": 1, "refused": 0, "incomplete": 0, "input": 100, "cache_read": 30,
            "cache_write": 20, "cache_write_1h": 5, "output": 12, "reasoning": 4 });
        assert_has(&ledger["totals"], &billed, path);
    }
}

#[tokio::test]
async fn a_stream_of_chat_ends_with_usage_and_done() {
    for (path, content, pointer, usage) in cases() {
        if !path.ends_with("/chat/completions") {
            continue;
        }
        let content = if content == "{}" {
            r#"{"stream":true}"#
        } else {
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#
        };
        let response = post(&provider(), &format!("{path}?{COST}"), content).await;
        assert!(response.text().ends_with("data: [DONE]\n\n"), "{path}");
        let events = events(response.text());
        assert_has(events.last().unwrap().pointer(pointer).unwrap(), &usage, path);
        let texts = events.iter().filter(|event| {
            event["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty())
        });
        assert_eq!(texts.count(), 8, "an event for each token that is not reasoning, {path}");
    }
}

#[tokio::test]
async fn usage_of_chat_is_told_only_if_asked_where_the_dialect_asks() {
    let told = |path: &'static str| async move {
        let target = format!("{path}?output=3");
        let response = post(&provider(), &target, r#"{"stream":true}"#).await;
        let told: Vec<Value> =
            events(response.text()).into_iter().map(|event| event["usage"].clone()).collect();
        told.iter().any(|usage| !usage.is_null())
    };
    assert!(
        !told("/llm/openai/v1/chat/completions").await && !told("/llm/deepseek/v1/chat/completions").await
    );
    assert!(
        told("/llm/mistral/v1/chat/completions").await
            && told("/llm/openrouter/api/v1/chat/completions").await
    );
    let groq =
        post(&provider(), "/llm/groq/openai/v1/chat/completions?output=3&input=7", r#"{"stream":true}"#)
            .await;
    let groq = events(groq.text());
    assert_has(
        &groq.last().unwrap()["x_groq"]["usage"],
        &json!({ "prompt_tokens": 7, "completion_tokens": 3 }),
        "groq",
    );
    let asked = r#"{"stream":true,"stream_options":{"continuous_usage_stats":true}}"#;
    let vllm = post(&provider(), "/llm/vllm/v1/chat/completions?output=3", asked).await;
    let counts: Vec<Value> =
        events(vllm.text()).iter().map(|event| event["usage"]["completion_tokens"].clone()).collect();
    assert_eq!(counts, [Value::Null, 1.into(), 2.into(), 3.into(), Value::Null, 3.into()]);
}

#[tokio::test]
async fn each_other_stream_states_its_usage_at_its_end() {
    let target = |path: &str| format!("{path}?{COST}");
    let responses = post(&provider(), &target("/llm/openai/v1/responses"), r#"{"stream":true}"#).await;
    let responses = events(responses.text());
    assert_eq!(responses.last().unwrap()["type"], "response.completed");
    assert_eq!(responses.last().unwrap()["response"]["usage"]["input_tokens_details"]["cached_tokens"], 30);
    for (number, event) in responses.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let anthropic = post(&provider(), &target("/llm/anthropic/v1/messages"), r#"{"stream":true}"#).await;
    let anthropic = events(anthropic.text());
    assert_eq!(anthropic[0]["message"]["usage"]["input_tokens"], 50);
    let delta = anthropic.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(delta["usage"]["output_tokens"], 12);
    let cohere = post(&provider(), &target("/llm/cohere/v2/chat"), r#"{"stream":true}"#).await;
    let cohere = events(cohere.text());
    assert_eq!(cohere.last().unwrap()["delta"]["usage"]["billed_units"]["output_tokens"], 12.0);
    let ollama = post(&provider(), &target("/llm/ollama/api/chat"), "{}").await;
    let lines: Vec<Value> = ollama.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[8]["eval_count"], &lines[7]["done"]), (9, &12.into(), &false.into()));
    let image = post(&provider(), &target("/llm/openai/v1/images/generations"), r#"{"stream":true}"#).await;
    assert_eq!(events(image.text())[1]["usage"]["output_tokens"], 12);
}

#[tokio::test]
async fn a_stream_of_gemini_is_events_or_one_array() {
    let path = "/llm/gemini/v1beta/models/m:streamGenerateContent";
    let sse = post(&provider(), &format!("{path}?alt=sse&{COST}"), "{}").await;
    let array = post(&provider(), &format!("{path}?{COST}"), "{}").await;
    assert_eq!(sse.field("content-type"), "text/event-stream; charset=utf-8");
    for elements in [events(sse.text()), array.json().as_array().unwrap().clone()] {
        assert_eq!(elements.len(), 9);
        assert_eq!(elements[0]["usageMetadata"]["totalTokenCount"], 105);
        assert_eq!(elements[8]["usageMetadata"]["totalTokenCount"], 112);
    }
}

#[tokio::test]
async fn streams_of_bedrock_end_with_metrics() {
    let path = "/llm/bedrock/model/anthropic.claude";
    let invoked = post(&provider(), &format!("{path}/invoke-with-response-stream?{COST}"), "{}").await;
    assert_eq!(invoked.field("content-type"), "application/vnd.amazon.eventstream");
    let invoked = aws_events(&invoked.content);
    assert!(invoked.iter().all(|(name, _)| name == "chunk"));
    let metrics = json!({ "inputTokenCount": 50, "outputTokenCount": 12, "cacheReadInputTokenCount": 30,
        "cacheWriteInputTokenCount": 20 });
    assert_has(&invoked.last().unwrap().1["amazon-bedrock-invocationMetrics"], &metrics, "invoke");
    let meta =
        post(&provider(), "/llm/bedrock/model/meta.llama/invoke-with-response-stream?output=3", "{}").await;
    assert_eq!(aws_events(&meta.content).len(), 4);
    let conversed = post(&provider(), &format!("{path}/converse-stream?{COST}"), "{}").await;
    let conversed = aws_events(&conversed.content);
    let (name, metadata) = conversed.last().unwrap();
    assert_eq!((name.as_str(), &metadata["usage"]["totalTokens"]), ("metadata", &112.into()));
    let unary = post(&provider(), &format!("{path}/invoke?{COST}"), "{}").await;
    assert_eq!(unary.field("x-amzn-bedrock-input-token-count"), "50");
    assert_eq!(unary.field("x-amzn-bedrock-output-token-count"), "12");
    let silent = post(&provider(), &format!("/llm/bedrock/model/ai21.jamba/invoke?{COST}"), "{}").await;
    assert_eq!(silent.field("x-amzn-bedrock-input-token-count"), "");
}

#[tokio::test]
async fn embeddings_cost_input_alone_in_both_forms() {
    let provider = provider();
    let path = "/llm/openai/v1/embeddings?input=9&output=5&reasoning=2";
    let numbers = post(&provider, path, r#"{"input":["a","b"],"dimensions":4}"#).await.json();
    let coded =
        post(&provider, path, r#"{"input":[[1,2]],"dimensions":4,"encoding_format":"base64"}"#).await.json();
    assert_eq!(numbers["data"][1]["embedding"].as_array().unwrap().len(), 4);
    let bytes = BASE64.decode(coded["data"][0]["embedding"].as_str().unwrap().as_bytes()).unwrap();
    let decoded: Vec<f32> =
        bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(json!(decoded), numbers["data"][0]["embedding"]);
    assert_eq!(numbers["usage"], json!({ "prompt_tokens": 9, "total_tokens": 9 }));
    assert_has(
        &ledger(&provider).await["totals"],
        &json!({ "calls": 2, "input": 18, "output": 0 }),
        "ledger",
    );
    assert_eq!(post(&provider, path, r#"{"input":"a","dimensions":9999999}"#).await.status, 400);
}

#[tokio::test]
async fn a_gzip_stream_can_be_read_event_by_event() {
    let path = "/llm/anthropic/v1/messages?output=5";
    let plain = post(&provider(), path, r#"{"stream":true}"#).await;
    let coded = post(&provider(), &format!("{path}&gzip=true"), r#"{"stream":true}"#).await;
    assert_eq!((coded.field("content-encoding"), coded.pieces.len()), ("gzip", plain.pieces.len()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&coded.content[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
    let mut first = vec![0; plain.pieces[0]];
    let mut decoder = flate2::read::GzDecoder::new(&coded.content[..coded.pieces[0]]);
    decoder.read_exact(&mut first).unwrap();
    assert_eq!(first, plain.content[..plain.pieces[0]]);
    let unary = post(&provider(), &format!("{path}&gzip=true"), "{}").await;
    let mut text = String::new();
    flate2::read::GzDecoder::new(&unary.content[..]).read_to_string(&mut text).unwrap();
    assert!(text.contains("\"output_tokens\":5"), "{text}");
}

#[tokio::test]
async fn stamps_are_in_all_server_sent_events_and_nowhere_else() {
    for (path, content, has_stamps) in [
        ("/llm/anthropic/v1/messages?output=5", r#"{"stream":true}"#, true),
        ("/llm/anthropic/v1/messages?output=5", "{}", false),
        ("/llm/ollama/api/chat?output=5", "{}", false),
    ] {
        let plain = post(&provider(), path, content).await;
        let stamped = post(&provider(), &format!("{path}&stamp=true"), content).await;
        let (stamps, rest): (Vec<&str>, Vec<&str>) =
            stamped.text().split_inclusive('\n').partition(|line| line.starts_with(": sent "));
        assert_eq!(stamps.len(), if has_stamps { plain.pieces.len() } else { 0 }, "{path}");
        if has_stamps {
            assert_eq!(rest.concat(), plain.text(), "{path}");
        }
    }
}

#[tokio::test]
async fn an_error_ends_a_stream_and_its_bill() {
    for (path, sign) in [
        ("/llm/openai/v1/chat/completions", "data: {\"error\":"),
        ("/llm/openai/v1/responses", "event: response.failed\n"),
        ("/llm/anthropic/v1/messages", "event: error\n"),
        ("/llm/groq/openai/v1/chat/completions", "\"error\":\"The server had"),
        ("/llm/cohere/v2/chat", "\"finish_reason\":\"ERROR\""),
        ("/llm/ollama/api/chat", "{\"error\":"),
        ("/llm/gemini/v1beta/models/m:streamGenerateContent", "\"status\":\"UNAVAILABLE\""),
        ("/llm/bedrock/model/m/converse-stream", "modelStreamErrorException"),
        ("/llm/bedrock/model/m/invoke-with-response-stream", "modelStreamErrorException"),
    ] {
        let provider = provider();
        let target = format!("{path}?output=9&reasoning=2&error_after=3");
        let response = post(&provider, &target, r#"{"stream":true}"#).await;
        assert_eq!(response.status, 200);
        assert!(String::from_utf8_lossy(&response.content).contains(sign), "{path}");
        let ledger = ledger(&provider).await;
        assert_has(&ledger["totals"], &json!({ "incomplete": 1, "output": 5, "left": 0 }), path);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_takes_the_time_of_its_tokens_and_shows_that_it_lives() {
    let started = tokio::time::Instant::now();
    let target = "/llm/anthropic/v1/messages?output=11&tokens_per_second=10&first_event=3s&keep_alive=1s&stall_after=5&stall=2s";
    let response = post(&provider(), target, r#"{"stream":true}"#).await;
    assert_eq!(started.elapsed().as_millis(), 6_000, "3 s, 10 pauses of 100 ms, 2 s");
    assert!(response.text().starts_with(&"event: ping\ndata: {\"type\": \"ping\"}\n\n".repeat(2)));
    let deepseek = post(&provider(), "/llm/deepseek/chat/completions", r#"{"stream":true}"#).await;
    assert!(deepseek.text().starts_with(": keep-alive\n\ndata: "));
    let started = tokio::time::Instant::now();
    post(&provider(), "/llm/openai/v1/chat/completions?output=10&tokens_per_second=10&first_event=1s", "{}")
        .await;
    assert_eq!(started.elapsed().as_millis(), 2_000);
    let long = post(&provider(), "/llm/ollama/api/chat?output=1000&tokens_per_second=10", "{}").await;
    assert_eq!(long.json()["detail"], "too much time: 100s > 10s");
}

#[tokio::test]
async fn a_text_may_look_like_usage_and_changes_nothing() {
    for (path, content) in [
        ("/llm/openai/v1/chat/completions", r#"{"stream":true}"#),
        ("/llm/anthropic/v1/messages", r#"{"stream":true}"#),
        ("/llm/ollama/api/chat", "{}"),
    ] {
        let trapped = post(&provider(), &format!("{path}?output=3&trap=true"), content).await;
        assert!(trapped.text().contains(r#"{\"usage\":{\"output_tokens\":0}}"#), "{path}");
        let usual = post(&provider(), &format!("{path}?output=3"), content).await;
        assert!(!usual.text().contains(r#"\"usage\""#), "{path}");
    }
}

#[tokio::test]
async fn refusals_cost_nothing_and_limits_are_stated() {
    let provider = provider();
    let path = "/llm/openai/v1/chat/completions?output=5&input=7";
    let refused = post(&provider, &format!("{path}&refuse=quota&refusals=1"), "{}").await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &"insufficient_quota".into()));
    let admitted = post(&provider, &format!("{path}&refuse=quota&refusals=1"), "{}").await;
    assert_eq!((admitted.status, admitted.field("x-ratelimit-remaining-tokens")), (200, "1999988"));
    assert_eq!(admitted.field("x-ratelimit-reset-requests"), "6ms");
    let limited = format!("{path}&limit=1/1h&consumer=a");
    let statuses = [post(&provider, &limited, "{}").await, post(&provider, &limited, "{}").await];
    assert_eq!(
        statuses.each_ref().map(|it| (it.status, it.field("x-ratelimit-remaining-requests"))),
        [(200, "0"), (429, "0")]
    );
    let shown = ledger(&provider).await;
    assert_has(&shown["totals"], &json!({ "calls": 4, "refused": 2, "input": 14, "output": 10 }), "ledger");
    assert_eq!(shown["calls"][1]["id"], admitted.field("x-request-id"));
    let of_a = provider.get("/llm/ledger?consumer=a&last=1").await.json();
    assert_eq!((&of_a["totals"]["calls"], &of_a["calls"][0]["status"]), (&2.into(), &429.into()));
    assert_eq!(provider.send(request("DELETE", "/llm/ledger", &[], "")).await.status, 204);
    assert_eq!(ledger(&provider).await["totals"]["calls"], 0);
}

#[tokio::test]
async fn parameters_may_be_in_a_field_but_the_target_wins() {
    let provider = provider();
    let fields = [("x-llm", "output=5&input=7")];
    let sent =
        request("POST", "/llm/anthropic/v1/messages?output=3", &fields, r#"{"metadata":{"user_id":"u"}}"#);
    assert_eq!(provider.send(sent).await.json()["usage"]["output_tokens"], 3);
    let shown = ledger(&provider).await;
    assert_has(
        &shown["calls"][0],
        &json!({ "input": 7, "output": 3, "consumer": "u", "complete": true }),
        "ledger",
    );
}

#[tokio::test]
async fn a_malformed_call_is_refused() {
    for (target, content) in [
        ("/llm/openai/v1/chat/completions", "{"),
        ("/llm/openai/v1/chat/completions?output=x", "{}"),
        ("/llm/openai/v1/chat/completions?refuse=nap", "{}"),
        ("/llm/openai/v1/chat/completions?on_leave=now", "{}"),
        ("/llm/openai/v1/chat/completions?limit=1", "{}"),
    ] {
        assert_eq!(post(&provider(), target, content).await.status, 400, "{target}");
    }
    for target in
        ["/llm/gemini/v1/models/m:count", "/llm/bedrock/model/m/x", "/llm/azure/openai/deployments/d/x"]
    {
        assert_eq!(post(&provider(), target, "{}").await.status, 404, "{target}");
    }
}
