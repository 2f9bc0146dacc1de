//! SDKs of language models, unchanged, at the built-in provider: what they report is what its ledger has.

use std::process::Command;

use egret_tests::built_in::BuiltIn;
use egret_tests::process::run_checked;
use serde_json::Value;

use super::peers::PYTHON;

/// Runs a script of Python with the provider's URL in `base`, and returns what it prints and the ledger's
/// totals.
fn run(script: &str) -> (String, Value) {
    let provider = BuiltIn::start(&[]);
    let base = format!("import sys\nbase = sys.argv[1]\n{script}");
    let url = format!("http://{}/llm", provider.address());
    let printed = run_checked(Command::new(PYTHON).args(["-c", &base, &url]));
    (printed, provider.get("/llm/ledger").json()["totals"].clone())
}

#[test]
fn openai_reads_usage_of_every_operation() {
    let (printed, totals) = run(r#"
import openai
cost = {"input": "100", "cached": "30", "output": "12", "reasoning": "4"}
client = openai.OpenAI(base_url=base + "/openai/v1", api_key="k", max_retries=0)
chat = dict(model="m", messages=[{"role": "user", "content": "hi"}], extra_query=cost)
usage = client.chat.completions.create(**chat).usage
print(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens)
chunks = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
print(chunks[-1].usage.completion_tokens, chunks[-1].usage.completion_tokens_details.reasoning_tokens)
with client.responses.stream(model="m", input="hi", extra_query=cost) as stream:
    stream.until_done()
    print(stream.get_final_response().usage.output_tokens)
print(len(client.embeddings.create(model="e", input=["a", "b"], dimensions=4, extra_query=cost).data[1].embedding))
try:
    client.chat.completions.create(model="m", messages=[], extra_query={"refuse": "quota"})
except openai.RateLimitError as error:
    print(error.code)
try:
    list(client.chat.completions.create(model="m", messages=[], stream=True, extra_query=cost | {"error_after": "2"}))
except openai.APIError as error:
    print(error.message)
"#);
    let expected =
        "100 30 12\n12 4\n12\n4\ninsufficient_quota\nThe server had an error while processing your request\n";
    assert_eq!(printed, expected);
    assert_eq!((&totals["calls"], &totals["input"], &totals["output"]), (&6.into(), &500.into(), &42.into()));
}

#[test]
fn anthropic_reads_usage_of_messages_and_their_streams() {
    let (printed, totals) = run(r#"
import anthropic
cost = {"input": "100", "cached": "30", "written": "20", "output": "12"}
client = anthropic.Anthropic(base_url=base + "/anthropic", api_key="k", max_retries=0)
message = dict(model="m", max_tokens=100, messages=[{"role": "user", "content": "hi"}])
usage = client.messages.create(**message, extra_query=cost).usage
print(usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.output_tokens)
for more in ({}, {"gzip": "true"}):
    with client.messages.stream(**message, extra_query=cost | more) as stream:
        usage = stream.get_final_message().usage
        print(usage.input_tokens, usage.output_tokens)
try:
    client.messages.create(**message, extra_query={"refuse": "overloaded"})
except anthropic.APIStatusError as error:
    print(error.status_code, error.body["error"]["type"])
"#);
    assert_eq!(printed, "50 30 20 12\n50 12\n50 12\n529 overloaded_error\n");
    assert_eq!((&totals["input"], &totals["output"]), (&300.into(), &36.into()));
}

#[test]
fn boto3_reads_usage_of_event_streams() {
    let (printed, totals) = run(r#"
import json, boto3
from botocore.config import Config
config = Config(retries={"total_max_attempts": 1})
client = boto3.client("bedrock-runtime", "us-east-1", endpoint_url=base + "/bedrock", config=config,
    aws_access_key_id="id", aws_secret_access_key="key")
def ask(request, **_):
    request.headers.add_header("x-llm", "input=100&cached=30&output=12")
client.meta.events.register("before-sign.bedrock-runtime.*", ask)
call = dict(modelId="anthropic.claude-v1:0", messages=[{"role": "user", "content": [{"text": "hi"}]}])
print(client.converse(**call)["usage"]["inputTokens"])
print(list(client.converse_stream(**call)["stream"])[-1]["metadata"]["usage"]["outputTokens"])
invoked = client.invoke_model_with_response_stream(modelId="anthropic.claude-v1:0", body="{}")
last = json.loads(list(invoked["body"])[-1]["chunk"]["bytes"])
print(last["amazon-bedrock-invocationMetrics"]["inputTokenCount"])
"#);
    assert_eq!(printed, "70\n12\n70\n");
    assert_eq!((&totals["input"], &totals["output"]), (&300.into(), &36.into()));
}
