//! The built-in provider speaks the APIs of language models, and its ledger has what each call was billed.

use egret_tests::built_in::BuiltIn;
use egret_tests::http::{Response, find};
use egret_tests::wait;

/// Tokens of a call in which every part is different.
const COST: &str = "input=100&cached=30&written=20&output=12&reasoning=4";

fn post(provider: &BuiltIn, target: &str, content: &str) -> Response {
    let line = format!("POST {target}");
    let mut client = provider.client();
    client.request("llm.test", &line, "content-type: application/json\r\n", content).any_response_to("POST")
}

#[test]
fn every_dialect_is_billed_what_its_call_asked_for() {
    let provider = BuiltIn::start(&[]);
    let calls = [
        ("/llm/openai/v1/chat/completions", "{}"),
        ("/llm/openai/v1/chat/completions", r#"{"stream":true}"#),
        ("/llm/openai/v1/responses", "{}"),
        ("/llm/openai/v1/responses", r#"{"stream":true}"#),
        ("/llm/openai/v1/images/generations", "{}"),
        ("/llm/anthropic/v1/messages", "{}"),
        ("/llm/anthropic/v1/messages", r#"{"stream":true}"#),
        ("/llm/gemini/v1beta/models/gemini-3-flash:generateContent", "{}"),
        ("/llm/gemini/v1beta/models/gemini-3-flash:streamGenerateContent", "{}"),
        ("/llm/vertex/v1/projects/p/locations/l/publishers/google/models/g:generateContent", "{}"),
        ("/llm/vertex/v1/projects/p/locations/l/publishers/anthropic/models/c:rawPredict", "{}"),
        ("/llm/bedrock/model/anthropic.claude-v1%3A0/invoke", "{}"),
        ("/llm/bedrock/model/anthropic.claude-v1%3A0/invoke-with-response-stream", "{}"),
        ("/llm/bedrock/model/amazon.nova/converse", "{}"),
        ("/llm/bedrock/model/amazon.nova/converse-stream", "{}"),
        ("/llm/azure/openai/deployments/d/chat/completions", "{}"),
        ("/llm/azure/openai/v1/responses", "{}"),
        ("/llm/mistral/v1/chat/completions", r#"{"stream":true}"#),
        ("/llm/groq/openai/v1/chat/completions", r#"{"stream":true}"#),
        ("/llm/cohere/v2/chat", r#"{"stream":true}"#),
        ("/llm/deepseek/chat/completions", r#"{"stream":true}"#),
        ("/llm/openrouter/api/v1/chat/completions", r#"{"stream":true}"#),
        ("/llm/ollama/api/chat", "{}"),
        ("/llm/ollama/api/generate", "{}"),
        ("/llm/vllm/v1/chat/completions", r#"{"stream":true}"#),
        ("/llm/llamacpp/v1/chat/completions", "{}"),
    ];
    for (path, content) in calls {
        let response = post(&provider, &format!("{path}?{COST}"), content);
        assert!(response.status == 200 && !response.cut, "{path}: {response:?}");
    }
    let ledger = provider.get("/llm/ledger").json();
    let totals = &ledger["totals"];
    let count = calls.len() as u64;
    assert_eq!((&totals["calls"], &totals["incomplete"]), (&count.into(), &0.into()));
    for (part, tokens) in
        [("input", 100), ("cache_read", 30), ("cache_write", 20), ("output", 12), ("reasoning", 4)]
    {
        assert_eq!(totals[part], tokens * count, "{part}");
    }
    assert_eq!(ledger["calls"].as_array().unwrap().len(), calls.len());
    let of_bedrock = provider.get("/llm/ledger?dialect=bedrock").json();
    assert_eq!(of_bedrock["totals"]["calls"], 4);
    assert_eq!(of_bedrock["calls"][0]["model"], "anthropic.claude-v1:0");
}

#[test]
fn a_cut_stream_breaks_off_and_is_billed_what_was_sent() {
    let provider = BuiltIn::start(&[]);
    let target = "/llm/openai/v1/chat/completions?output=9&cut_after=4&input=7";
    let cut = post(&provider, target, r#"{"stream":true}"#);
    assert!(cut.status == 200 && cut.cut, "{cut:?}");
    let ledger = provider.get("/llm/ledger").json();
    assert_eq!((&ledger["totals"]["output"], &ledger["totals"]["incomplete"]), (&4.into(), &1.into()));
}

#[test]
fn a_client_that_leaves_is_billed_what_was_made_or_all() {
    let provider = BuiltIn::start(&["--max-duration", "24h"]);
    for (on_leave, output) in [("produced", 1), ("whole", 9)] {
        let mut client = provider.client();
        let target =
            format!("/llm/anthropic/v1/messages?output=9&stall_after=1&stall=1h&on_leave={on_leave}");
        let content = r#"{"stream":true}"#;
        client.send(format!(
            "POST {target} HTTP/1.1\r\nhost: llm.test\r\ncontent-length: {}\r\n\r\n{content}",
            content.len()
        ));
        client.head();
        let mut received = Vec::new();
        while find(&received, b"text_delta").is_none() {
            received.extend(client.bytes(1));
        }
        client.reset();
        let ended = wait::until("the call has ended", || {
            let ledger = provider.get("/llm/ledger").json();
            (ledger["totals"]["left"] == 1 && ledger["under_way"] == 0).then_some(ledger)
        });
        assert_eq!(ended["totals"]["output"], output, "{on_leave}");
        let mut client = provider.client();
        client.send("DELETE /llm/ledger HTTP/1.1\r\nhost: llm.test\r\n\r\n");
        assert_eq!(client.response().status, 204);
    }
}

#[test]
fn the_ledger_is_exempt_from_faults_and_limits() {
    let provider = BuiltIn::start(&["--rate-limit", "0/1h", "--fault", "reset=1"]);
    assert_eq!(provider.get("/llm/ledger").json()["totals"]["calls"], 0);
}
