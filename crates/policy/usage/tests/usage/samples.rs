//! Responses as providers write them, each with the record that they end in.

use data_encoding::BASE64;
use egret_message::{Changes, Fields};
use egret_usage::{UsageRecord, UsageScan, UsageSource};

/// A response of a provider.
#[derive(Clone)]
pub struct Sample {
    pub name: &'static str,
    /// Name and value of its fields.
    pub fields: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
    /// The figures that the record must have, as [`figures`] writes them.
    pub expected: &'static str,
}

pub const JSON: &str = "application/json";
pub const EVENTS: &str = "text/event-stream; charset=utf-8";
pub const AWS: &str = "application/vnd.amazon.eventstream";

/// Writes what a record has: sums, and the parts that are not zero.
pub fn figures(record: &UsageRecord) -> String {
    let word = |text: &Option<Box<str>>| text.as_deref().unwrap_or("-").to_owned();
    let dialect = record.dialect.map_or("-", |dialect| dialect.word());
    let mut text = format!("{dialect} {} {} {}", record.source.word(), record.input, record.output);
    let writes = record.cache_write;
    for (name, figure) in [
        ("read", record.cache_read),
        ("5m", writes.for_5m),
        ("30m", writes.for_30m),
        ("1h", writes.for_1h),
        ("12h", writes.for_12h),
        ("written", writes.other),
        ("audio", record.input_audio),
        ("image", record.input_image),
        ("reasoning", record.reasoning),
        ("audio-out", record.output_audio),
        ("image-out", record.output_image),
        ("searches", record.searches),
        ("ms", record.audio_ms),
        ("cost", record.cost_nano.unwrap_or_default()),
        ("error", u64::from(record.has_error)),
    ] {
        if figure > 0 {
            text = format!("{text} {name}={figure}");
        }
    }
    format!("{text} {} {} {}", word(&record.model), word(&record.tier), word(&record.speed))
}

/// Reads the usage of a response that arrives in these pieces.
pub fn read<'p>(
    fields: &[(&str, &str)],
    pieces: impl IntoIterator<Item = &'p [u8]>,
    is_whole: bool,
) -> Option<UsageRecord> {
    let mut changes = Changes::default();
    for (name, value) in fields {
        changes.add(name.as_bytes(), value.as_bytes());
    }
    let mut scan = UsageScan::of_response(Fields::new(&[], b"", &changes))?;
    pieces.into_iter().for_each(|piece| scan.push(piece));
    Some(scan.finish(is_whole))
}

/// Reads a whole body of that media type.
pub fn read_whole(media_type: &str, body: &[u8]) -> UsageRecord {
    read(&[("content-type", media_type)], [body], true).unwrap()
}

/// Writes a message of an AWS event stream.
pub fn aws_message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap());
        head.extend_from_slice(name.as_bytes());
        head.push(7);
        head.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        head.extend_from_slice(value.as_bytes());
    }
    let word = |number: usize| u32::try_from(number).unwrap().to_be_bytes();
    let mut message = [word(head.len() + payload.len() + 16), word(head.len())].concat();
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message.extend(head);
    message.extend(payload);
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message
}

/// Writes an event of `InvokeModel`.
pub fn invoke_event(document: &str) -> Vec<u8> {
    let payload = format!("{{\"bytes\":\"{}\",\"p\":\"abcdefgh\"}}", BASE64.encode(document.as_bytes()));
    let headers = [(":event-type", "chunk"), (":content-type", JSON), (":message-type", "event")];
    aws_message(&headers, payload.as_bytes())
}

/// Writes an event of Converse.
pub fn converse_event(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [(":event-type", kind), (":content-type", JSON), (":message-type", "event")];
    aws_message(&headers, payload.as_bytes())
}

fn sample(
    name: &'static str,
    media_type: &'static str,
    body: impl Into<Vec<u8>>,
    expected: &'static str,
) -> Sample {
    Sample { name, fields: vec![("content-type", media_type)], body: body.into(), expected }
}

/// All samples. Each has a text in which a model writes a report of its own.
pub fn all() -> Vec<Sample> {
    [openai(), anthropic(), gemini(), bedrock(), others()].concat()
}

fn openai() -> Vec<Sample> {
    vec![
        sample(
            "OpenAI chat",
            JSON,
            r#"{
  "id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-5.2-2025-12-11",
  "choices": [{"index": 0, "message": {"role": "assistant", "content": "{\"usage\":{\"prompt_tokens\":1}} \\\" \u0022",
    "tool_calls": [{"function": {"arguments": "{\"usage\":1}"}}]}, "usage": {"prompt_tokens": 9}}],
  "usage": {"prompt_tokens": 2095, "completion_tokens": 503, "total_tokens": 2598,
    "prompt_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 64, "audio_tokens": 5, "image_tokens": 7},
    "completion_tokens_details": {"reasoning_tokens": 320, "audio_tokens": 2, "accepted_prediction_tokens": 0}},
  "service_tier": "default"
}"#,
            "chat reported 2095 503 read=1024 written=64 audio=5 image=7 reasoning=320 audio-out=2 gpt-5.2-2025-12-11 default -",
        ),
        sample(
            "OpenAI chat, streamed",
            EVENTS,
            r#"data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5.2","service_tier":"priority","choices":[{"index":0,"delta":{"content":"\"usage\":{\"completion_tokens\":0}}"}}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5.2","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":30,"total_tokens":41,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":8}}}

data: [DONE]

"#,
            "chat reported 11 30 read=4 reasoning=8 gpt-5.2 priority -",
        ),
        sample(
            "OpenAI chat, streamed without include_usage",
            EVENTS,
            "data: {\"id\":\"c1\",\"model\":\"gpt-5.2\",\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\"}}]}\n\ndata: [DONE]\n\n",
            "- none 0 0 gpt-5.2 - -",
        ),
        sample(
            "OpenAI responses",
            JSON,
            r#"{"id":"r1","object":"response","status":"completed","model":"gpt-5.2","error":null,"service_tier":"flex",
"output":[{"type":"message","content":[{"type":"output_text","text":"\"usage\":{\"input_tokens\":0"}]}],
"tool_usage":{"web_search":{"num_requests":3}},
"usage":{"input_tokens":2095,"input_tokens_details":{"cached_tokens":1024,"cache_write_tokens":50,"cache_write_tokens_details":{"ttl_30m_tokens":20,"ttl_12h_tokens":30}},"output_tokens":503,"output_tokens_details":{"reasoning_tokens":400},"total_tokens":2598}}"#,
            "responses reported 2095 503 read=1024 30m=20 12h=30 reasoning=400 searches=3 gpt-5.2 flex -",
        ),
        sample(
            "OpenAI responses, streamed",
            EVENTS,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r1\",\"model\":\"gpt-5.2\",\"error\":null,\"usage\":null}}\n\n\
             event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"\\\"usage\\\":{\\\"input_tokens\\\":1}\"}\n\n\
             event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-5.2\",\"output\":[{\"usage\":{\"input_tokens\":1}}],\"usage\":{\"input_tokens\":11,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":30,\"output_tokens_details\":{\"reasoning_tokens\":8}}}}\n\n",
            "responses reported 11 30 read=4 reasoning=8 gpt-5.2 - -",
        ),
        sample(
            "OpenAI responses, failed in the stream",
            EVENTS,
            "data: {\"type\":\"response.failed\",\"response\":{\"model\":\"gpt-5.2\",\"error\":{\"code\":\"server_error\",\"usage\":{\"input_tokens\":9}},\"usage\":{\"input_tokens\":11,\"output_tokens\":2}}}\n\n",
            "responses reported 11 2 error=1 gpt-5.2 - -",
        ),
        sample(
            "OpenAI embeddings",
            JSON,
            format!(
                "{{\"object\":\"list\",\"data\":[{{\"embedding\":[{}0.5]}}],\"model\":\"text-embedding-3-small\",\"usage\":{{\"prompt_tokens\":8,\"total_tokens\":8}}}}",
                "-0.0069292834,1e-7,".repeat(40)
            ),
            "chat reported 8 0 text-embedding-3-small - -",
        ),
        sample(
            "OpenAI image, streamed",
            EVENTS,
            "event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\",\"b64_json\":\"AAAA\",\"usage\":{\"input_tokens\":50,\"output_tokens\":50,\"total_tokens\":100,\"input_tokens_details\":{\"text_tokens\":10,\"image_tokens\":40}}}\n\n",
            "responses reported 50 50 image=40 - - -",
        ),
        sample(
            "OpenAI transcription by duration",
            JSON,
            r#"{"text":"hello","usage":{"type":"duration","seconds":9.2}}"#,
            "- reported 0 0 ms=9200 - - -",
        ),
    ]
}

fn anthropic() -> Vec<Sample> {
    vec![
        sample(
            "Anthropic",
            JSON,
            r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-6",
"content":[{"type":"tool_use","name":"t","input":{"usage":{"input_tokens":1,"output_tokens":1}}},{"type":"text","text":"}],\"usage\":{\"output_tokens\":0}"}],
"usage":{"input_tokens":2095,"cache_creation_input_tokens":70,"cache_read_input_tokens":1024,"cache_creation":{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":40},"output_tokens":503,"output_tokens_details":{"thinking_tokens":100},"server_tool_use":{"web_search_requests":2},"service_tier":"standard","speed":"fast"}}"#,
            "anthropic reported 3189 503 read=1024 5m=30 1h=40 reasoning=100 searches=2 claude-opus-4-6 standard fast",
        ),
        sample(
            "Anthropic, streamed",
            EVENTS,
            r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-6","content":[],"usage":{"input_tokens":5,"cache_creation_input_tokens":2,"cache_read_input_tokens":4,"output_tokens":1,"service_tier":"standard"}}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"say \"usage\":{\"output_tokens\":0}"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":null,"output_tokens":30}}

event: message_stop
data: {"type":"message_stop"}

"#,
            "anthropic reported 11 30 read=4 written=2 claude-opus-4-6 standard -",
        ),
        sample(
            "Anthropic with compaction",
            JSON,
            r#"{"type":"message","model":"claude-opus-4-6","content":[],"usage":{"input_tokens":10,"output_tokens":20,"iterations":[
{"type":"compaction","input_tokens":1000,"output_tokens":100,"cache_read_input_tokens":5},{"type":"message","input_tokens":10,"output_tokens":20}]}}"#,
            "anthropic reported 1015 120 claude-opus-4-6 - -",
        ),
        sample(
            "Anthropic, an error in the stream",
            EVENTS,
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-opus-4-6\",\"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\n\
             event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            "anthropic partial 11 1 error=1 claude-opus-4-6 - -",
        ),
    ]
}

fn gemini() -> Vec<Sample> {
    const CHUNKS: [&str; 2] = [
        r#"{"candidates":[{"content":{"parts":[{"text":"\"usageMetadata\":{\"totalTokenCount\":1}"},{"functionCall":{"args":{"usageMetadata":{"promptTokenCount":3}}}}]}}],"usageMetadata":{"promptTokenCount":11,"totalTokenCount":15},"modelVersion":"gemini-3-pro"}"#,
        r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":11,"cachedContentTokenCount":4,"candidatesTokenCount":18,"thoughtsTokenCount":12,"toolUsePromptTokenCount":3,"totalTokenCount":44,"promptTokensDetails":[{"modality":"TEXT","tokenCount":9},{"modality":"AUDIO","tokenCount":2}]},"modelVersion":"gemini-3-pro"}"#,
    ];
    const EXPECTED: &str = "gemini reported 14 30 read=4 audio=2 reasoning=12 gemini-3-pro - -";
    vec![
        sample("Gemini", JSON, CHUNKS[1], EXPECTED),
        sample(
            "Gemini, streamed",
            EVENTS,
            format!("data: {}\r\n\r\ndata: {}\r\n\r\n", CHUNKS[0], CHUNKS[1]),
            EXPECTED,
        ),
        sample(
            "Gemini, streamed as a list",
            JSON,
            format!("[{}\n,\r\n{}\n]", CHUNKS[0], CHUNKS[1]),
            EXPECTED,
        ),
        sample(
            "Gemini with thoughts in the candidates",
            JSON,
            r#"{"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":30,"thoughtsTokenCount":12,"totalTokenCount":41}}"#,
            "gemini reported 11 30 reasoning=12 - - -",
        ),
    ]
}

fn bedrock() -> Vec<Sample> {
    let invoke = [
        invoke_event(
            r#"{"type":"message_start","message":{"model":"claude-opus-4-6","usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":1}}}"#,
        ),
        invoke_event(
            r#"{"type":"content_block_delta","delta":{"text":"\"amazon-bedrock-invocationMetrics\":{\"inputTokenCount\":1}"}}"#,
        ),
        invoke_event(r#"{"type":"message_delta","usage":{"output_tokens":29}}"#),
        invoke_event(
            r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":5,"outputTokenCount":30,"invocationLatency":900,"firstByteLatency":90,"cacheReadInputTokenCount":4,"cacheWriteInputTokenCount":2}}"#,
        ),
    ];
    let converse = [
        converse_event("messageStart", r#"{"p":"abc","role":"assistant"}"#),
        converse_event(
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"text":"{\"usage\":{\"inputTokens\":0}}"}}"#,
        ),
        converse_event("messageStop", r#"{"stopReason":"end_turn"}"#),
        converse_event(
            "metadata",
            r#"{"metrics":{"latencyMs":900},"usage":{"inputTokens":5,"outputTokens":30,"totalTokens":41,"cacheReadInputTokens":4,"cacheWriteInputTokens":2,"cacheDetails":[{"ttl":"1h","inputTokens":2}]}}"#,
        ),
    ];
    let fields = vec![
        ("content-type", JSON),
        ("x-amzn-bedrock-input-token-count", "5"),
        ("x-amzn-bedrock-output-token-count", "30"),
        ("x-amzn-bedrock-cache-read-input-token-count", "4"),
    ];
    let exception = aws_message(
        &[(":message-type", "exception"), (":exception-type", "throttlingException")],
        br#"{"message":"Too many"}"#,
    );
    vec![
        sample("Bedrock InvokeModel, streamed", AWS, invoke.concat(), "invoke reported 11 30 read=4 written=2 claude-opus-4-6 - -"),
        sample("Bedrock Converse, streamed", AWS, converse.concat(), "converse reported 11 30 read=4 1h=2 - - -"),
        sample(
            "Bedrock Converse",
            JSON,
            r#"{"output":{"message":{"content":[{"toolUse":{"input":{"usage":{"inputTokens":1}}}}]}},"usage":{"inputTokens":5,"outputTokens":30,"totalTokens":41,"cacheReadInputTokens":4,"cacheWriteInputTokens":2}}"#,
            "converse reported 11 30 read=4 written=2 - - -",
        ),
        Sample {
            name: "Bedrock InvokeModel",
            fields,
            body: br#"{"model":"claude-opus-4-6","type":"message","usage":{"input_tokens":9,"output_tokens":9}}"#.into(),
            expected: "invoke reported 9 30 read=4 claude-opus-4-6 - -",
        },
        sample("Bedrock, an exception in the stream", AWS, [&converse[0][..], &exception].concat(), "- none 0 0 error=1 - - -"),
    ]
}

fn others() -> Vec<Sample> {
    vec![
        sample(
            "Cohere",
            JSON,
            r#"{"id":"c1","message":{"role":"assistant","content":[{"type":"text","text":"\"usage\""}]},"usage":{"billed_units":{"input_tokens":11.0,"output_tokens":30,"search_units":1},"tokens":{"input_tokens":500,"output_tokens":40},"cached_tokens":4}}"#,
            "cohere reported 11 30 read=4 searches=1 - - -",
        ),
        sample(
            "Cohere, streamed",
            EVENTS,
            "event: message-start\ndata: {\"type\":\"message-start\",\"delta\":{\"message\":{\"role\":\"assistant\"}}}\n\n\
             event: message-end\ndata: {\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"COMPLETE\",\"usage\":{\"tokens\":{\"input_tokens\":500},\"billed_units\":{\"input_tokens\":11,\"output_tokens\":30}}}}\n\n",
            "cohere reported 11 30 - - -",
        ),
        sample(
            "Groq, streamed",
            EVENTS,
            "data: {\"model\":\"llama-3.3-70b\",\"choices\":[{\"delta\":{}}],\"x_groq\":{\"id\":\"r\",\"usage\":{\"queue_time\":0.1,\"prompt_tokens\":11,\"completion_tokens\":30,\"total_time\":0.2}}}\n\ndata: [DONE]\n\n",
            "chat reported 11 30 llama-3.3-70b - -",
        ),
        sample(
            "Mistral",
            JSON,
            r#"{"model":"voxtral-small","choices":[],"usage":{"prompt_audio_seconds":4,"prompt_tokens":11,"completion_tokens":30,"total_tokens":41}}"#,
            "chat reported 11 30 ms=4000 voxtral-small - -",
        ),
        sample(
            "DeepSeek behind blank lines",
            JSON,
            "\n\n\n{\"model\":\"deepseek-chat\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30,\"prompt_cache_hit_tokens\":4,\"prompt_cache_miss_tokens\":7}}",
            "chat reported 11 30 read=4 deepseek-chat - -",
        ),
        sample(
            "OpenRouter, streamed with comments",
            EVENTS,
            ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\ndata: {\"model\":\"anthropic\\/claude-opus\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30,\"cost\":0.00014,\"cost_details\":{\"upstream_inference_cost\":19}}}\n\ndata: [DONE]\n\n",
            "chat reported 11 30 cost=140000 anthropic/claude-opus - -",
        ),
        sample(
            "Azure OpenAI, streamed behind a chunk of filters",
            EVENTS,
            "data: {\"choices\":[],\"prompt_filter_results\":[{\"usage\":{\"prompt_tokens\":1}}],\"model\":\"\",\"usage\":null}\n\ndata: {\"model\":\"gpt-5.2\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30}}\n\ndata: [DONE]\n\n",
            "chat reported 11 30 gpt-5.2 - -",
        ),
        sample(
            "Ollama, streamed",
            "application/x-ndjson",
            "{\"model\":\"qwen3\",\"message\":{\"content\":\"\\\"eval_count\\\":1}\\n{\",\"tool_calls\":[{\"function\":{\"arguments\":{\"usage\":{\"prompt_tokens\":1}}}}]},\"done\":false}\n{\"model\":\"qwen3\",\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":11,\"eval_count\":30}\n",
            "ollama reported 11 30 qwen3 - -",
        ),
        sample(
            "vLLM with continuous usage",
            EVENTS,
            "data: {\"model\":\"m\",\"choices\":[{}],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":1}}\n\ndata: {\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30}}\n\ndata: [DONE]\n\n",
            "chat reported 11 30 m - -",
        ),
        sample(
            "llama.cpp without a telling media type",
            "text/plain",
            " {\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30},\"timings\":{\"predicted_n\":30}}",
            "chat reported 11 30 - - -",
        ),
        sample(
            "LiteLLM, with names of two providers",
            JSON,
            r#"{"model":"m","usage":{"input_tokens":1,"prompt_tokens":11,"completion_tokens":30,"cache_read_input_tokens":4,"output_tokens":2}}"#,
            "chat reported 11 30 read=4 m - -",
        ),
    ]
}

/// Asserts that a response in these pieces ends in the sample's record.
pub fn assert_reads<'p>(
    sample: &Sample,
    coding: Option<&'static str>,
    pieces: impl IntoIterator<Item = &'p [u8]>,
    about: &str,
) {
    let mut fields = sample.fields.clone();
    fields.extend(coding.map(|coding| ("content-encoding", coding)));
    let record = read(&fields, pieces, true).unwrap();
    assert_eq!(figures(&record), sample.expected, "{}, {about}", sample.name);
    assert!(record.source != UsageSource::Partial || record.has_error, "{}", sample.name);
}
