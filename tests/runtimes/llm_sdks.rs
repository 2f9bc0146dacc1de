//! SDKs of language models, unchanged: through a base URL of Egret, and under `egret exec --intercept` at the
//! hosts that they know. The usage that each of them prints, that Egret writes down, and that the built-in
//! provider bills is the same.

use std::path::Path;
use std::process::Command;

use egret_tests::built_in::BuiltIn;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::Config;
use egret_tests::exec::Place;
use egret_tests::process::{Process, run_checked};
use egret_tests::recorded::lines;
use serde_json::Value;

use super::javascript::installed;
use super::peers::PYTHON;

/// The dialects of the SDKs, each with the host that its SDKs call unless told otherwise.
const HOSTS: [(&str, &str); 7] = [
    ("openai", "api.openai.com"),
    ("anthropic", "api.anthropic.com"),
    ("gemini", "generativelanguage.googleapis.com"),
    ("mistral", "api.mistral.ai"),
    ("groq", "api.groq.com"),
    ("cohere", "api.cohere.com"),
    ("bedrock", "bedrock-runtime.us-east-1.amazonaws.com"),
];

/// Every call has a line, with its tokens.
const BOOKS: &str = "exporters: { books: { type: lines, directory: ./ledger } }\n";
const LEDGER: &str =
    "{ name: written, diagnoses: [ledger: { export: books, cost: 'usage.input + usage.output' }] }";

/// Begins a program of Python: the base URL, if there is one, and how a call's tokens are told.
const PYTHON_BEGIN: &str = r#"
import sys
base = sys.argv[1] if len(sys.argv) > 1 else None
def at(path):
    return base and base + path
def told(input, output):
    print(int(input), int(output))
messages = [{"role": "user", "content": "Hello"}]
"#;

const PYTHONS: [(&str, &str); 8] = [
    (
        "openai",
        r#"
import openai
client = openai.OpenAI(api_key="k", max_retries=0, base_url=at("/openai/v1"))
usage = client.chat.completions.create(model="m", messages=messages).usage
told(usage.prompt_tokens, usage.completion_tokens)
asked = {"include_usage": True}
*_, last = client.chat.completions.create(model="m", messages=messages, stream=True, stream_options=asked)
told(last.usage.prompt_tokens, last.usage.completion_tokens)
usage = client.responses.create(model="m", input="Hello").usage
told(usage.input_tokens, usage.output_tokens)
with client.responses.stream(model="m", input="Hello") as stream:
    usage = stream.until_done().get_final_response().usage
told(usage.input_tokens, usage.output_tokens)
"#,
    ),
    (
        "openai, asynchronous",
        r#"
import asyncio, openai
async def main():
    async with openai.AsyncOpenAI(api_key="k", max_retries=0, base_url=at("/openai/v1")) as client:
        create = client.chat.completions.create
        usage = (await create(model="m", messages=messages)).usage
        told(usage.prompt_tokens, usage.completion_tokens)
        asked = {"include_usage": True}
        *_, last = [chunk async for chunk in await create(model="m", messages=messages, stream=True, stream_options=asked)]
        told(last.usage.prompt_tokens, last.usage.completion_tokens)
asyncio.run(main())
"#,
    ),
    (
        "anthropic",
        r#"
import anthropic
client = anthropic.Anthropic(api_key="k", max_retries=0, base_url=at("/anthropic"))
usage = client.messages.create(model="m", max_tokens=100, messages=messages).usage
told(usage.input_tokens, usage.output_tokens)
with client.messages.stream(model="m", max_tokens=100, messages=messages) as stream:
    usage = stream.get_final_message().usage
told(usage.input_tokens, usage.output_tokens)
"#,
    ),
    (
        "google-genai",
        r#"
from google import genai
options = {"base_url": at("/gemini"), "api_version": "v1beta"} if base else None
client = genai.Client(api_key="k", http_options=options)
def tell(response):
    usage = response.usage_metadata
    told(usage.prompt_token_count, usage.total_token_count - usage.prompt_token_count)
tell(client.models.generate_content(model="m", contents="Hello"))
*_, last = client.models.generate_content_stream(model="m", contents="Hello")
tell(last)
"#,
    ),
    (
        "mistralai",
        r#"
from mistralai.client import Mistral
client = Mistral(api_key="k", server_url=at("/mistral"))
usage = client.chat.complete(model="m", messages=messages).usage
told(usage.prompt_tokens, usage.completion_tokens)
*_, last = client.chat.stream(model="m", messages=messages)
told(last.data.usage.prompt_tokens, last.data.usage.completion_tokens)
"#,
    ),
    (
        "groq",
        r#"
import groq
client = groq.Groq(api_key="k", max_retries=0, base_url=at("/groq"))
usage = client.chat.completions.create(model="m", messages=messages).usage
told(usage.prompt_tokens, usage.completion_tokens)
*_, last = client.chat.completions.create(model="m", messages=messages, stream=True)
told(last.x_groq.usage.prompt_tokens, last.x_groq.usage.completion_tokens)
"#,
    ),
    (
        "cohere",
        r#"
import cohere
client = cohere.ClientV2(api_key="k", base_url=at("/cohere"))
billed = client.chat(model="m", messages=messages).usage.billed_units
told(billed.input_tokens, billed.output_tokens)
*_, last = client.chat_stream(model="m", messages=messages)
billed = last.delta.usage.billed_units
told(billed.input_tokens, billed.output_tokens)
"#,
    ),
    (
        "boto3",
        r#"
import boto3
client = boto3.client("bedrock-runtime", "us-east-1", endpoint_url=at("/bedrock"), aws_access_key_id="id", aws_secret_access_key="key")
call = dict(modelId="anthropic.claude-v1:0", messages=[{"role": "user", "content": [{"text": "Hello"}]}])
usage = client.converse(**call)["usage"]
told(usage["inputTokens"], usage["outputTokens"])
*_, last = client.converse_stream(**call)["stream"]
told(last["metadata"]["usage"]["inputTokens"], last["metadata"]["usage"]["outputTokens"])
"#,
    ),
];

/// Does the same as [`PYTHON_BEGIN`] in JavaScript.
const NODE_BEGIN: &str = r#"
const base = process.argv[1];
const at = (path) => base && base + path;
const told = (input, output) => console.log(input, output);
const messages = [{ role: "user", content: "Hello" }];
const lastOf = async (stream) => { let last; for await (const one of stream) last = one; return last; };
"#;

const NODES: [(&str, &str); 5] = [
    (
        "openai",
        r#"
const { OpenAI } = require("openai");
const client = new OpenAI({ apiKey: "k", maxRetries: 0, baseURL: at("/openai/v1") });
const tell = ({ usage }) => told(usage.prompt_tokens, usage.completion_tokens);
tell(await client.chat.completions.create({ model: "m", messages }));
const asked = { stream: true, stream_options: { include_usage: true } };
tell(await lastOf(await client.chat.completions.create({ model: "m", messages, ...asked })));
"#,
    ),
    (
        "@anthropic-ai/sdk",
        r#"
const { Anthropic } = require("@anthropic-ai/sdk");
const client = new Anthropic({ apiKey: "k", maxRetries: 0, baseURL: at("/anthropic") });
const tell = ({ usage }) => told(usage.input_tokens, usage.output_tokens);
tell(await client.messages.create({ model: "m", max_tokens: 100, messages }));
tell(await client.messages.stream({ model: "m", max_tokens: 100, messages }).finalMessage());
"#,
    ),
    (
        "@google/genai",
        r#"
const { GoogleGenAI } = require("@google/genai");
const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: at("/gemini") } });
const tell = ({ usageMetadata: usage }) => told(usage.promptTokenCount, usage.totalTokenCount - usage.promptTokenCount);
tell(await client.models.generateContent({ model: "m", contents: "Hello" }));
tell(await lastOf(await client.models.generateContentStream({ model: "m", contents: "Hello" })));
"#,
    ),
    (
        "@mistralai/mistralai",
        r#"
const { Mistral } = require("@mistralai/mistralai");
const client = new Mistral({ apiKey: "k", serverURL: at("/mistral") });
const tell = ({ usage }) => told(usage.promptTokens, usage.completionTokens);
tell(await client.chat.complete({ model: "m", messages }));
tell((await lastOf(await client.chat.stream({ model: "m", messages }))).data);
"#,
    ),
    (
        "cohere-ai",
        r#"
const { CohereClientV2 } = require("cohere-ai");
const client = new CohereClientV2({ token: "k", environment: at("/cohere") });
const tell = ({ usage: { billedUnits } }) => told(billedUnits.inputTokens, billedUnits.outputTokens);
tell(await client.chat({ model: "m", messages }));
tell((await lastOf(await client.chatStream({ model: "m", messages }))).delta);
"#,
    ),
];

/// Tokens of input and output of calls.
type Calls = Vec<Vec<u64>>;

fn tokens(call: &Value, names: [&str; 2]) -> Vec<u64> {
    names.map(|name| call[name].as_u64().unwrap()).to_vec()
}

/// Asserts that a program has printed what is in Egret's lines. Returns what it has printed.
fn assert_written(about: &str, printed: &str, ledger: &Path) -> Calls {
    let numbers = |line: &str| line.split(' ').map(|number| number.parse().unwrap()).collect();
    let printed: Calls = printed.lines().map(numbers).collect();
    assert!(!printed.is_empty(), "{about}");
    let written = lines(ledger);
    let mut written: Calls =
        written.iter().map(|line| tokens(line, ["input_tokens", "output_tokens"])).collect();
    let mut sorted = printed.clone();
    // Workers hand over their calls apart.
    written.sort_unstable();
    sorted.sort_unstable();
    assert_eq!(written, sorted, "{about}");
    printed
}

/// Asserts that the provider has billed these calls, and that half of them were streamed.
fn assert_billed(about: &str, calls: &Calls, provider: &BuiltIn) {
    let ledger = provider.get("/llm/ledger").json();
    let bills = ledger["calls"].as_array().unwrap();
    let billed: Calls = bills.iter().map(|call| tokens(call, ["input", "output"])).collect();
    assert_eq!(*calls, billed, "{about}");
    let streams = bills.iter().filter(|call| call["streamed"] == true).count();
    assert_eq!(streams * 2, bills.len(), "{about}");
}

/// Runs a program, given a base URL as its last argument. Each dialect's calls go to its URL.
fn by_base_url(about: &str, command: &[&str], url: impl Fn(&str) -> String) -> Calls {
    let config =
        HOSTS.iter().fold(Config::default(), |config, (dialect, _)| config.provider(dialect, url(dialect)));
    let mut egret = config.flows(format!("{BOOKS}flows: [{LEDGER}]\n")).start();
    let mut program = Command::new(command[0]);
    Place::new().prepare(&mut program);
    program.current_dir(egret.directory().path());
    let printed = run_checked(program.args(&command[1..]).arg(egret.url()));
    egret.terminate();
    assert!(egret.until_ended().success());
    assert_written(about, &printed, &egret.directory().join("ledger"))
}

/// Runs a program under `egret exec --intercept`. It calls the hosts that it knows, and a remedy sends its
/// calls to the provider.
fn intercepted(about: &str, command: &[&str], provider: &BuiltIn) -> Calls {
    let names = NameServer::start(|_| Answer::Addresses(vec![[192, 0, 2, 7].into()], 60));
    let (mut providers, mut flows) = (String::new(), String::new());
    for (dialect, host) in HOSTS {
        providers += &format!(
            "  {dialect}: {{ url: 'https://{host}' }}\n  {dialect}-here: {{ url: 'http://{}/llm/{dialect}' }}\n",
            provider.address()
        );
        flows += &format!(
            "  - {{ name: {dialect}, match: {{ provider: {dialect} }}, remedies: [transform: {{ request: {{ provider: {dialect}-here }} }}] }}\n"
        );
    }
    let place = Place::with(&format!(
        "gateway:\n  listen: ['127.0.0.1:0']\n  {}\ncontrol: {{ listen: 127.0.0.1:0 }}\n\
         providers:\n{providers}{BOOKS}flows:\n  - {LEDGER}\n{flows}",
        names.config()
    ));
    let mut exec = place.options(["--intercept", "--linger=200ms", "--"]);
    let printed = run_checked(exec.args(command));
    place.until_gateways_gone();
    assert_written(about, &printed, &place.directory.join("ledger"))
}

/// Runs a program at the built-in provider in both ways.
fn assert_metered(sdk: &str, command: &[&str]) {
    let provider = BuiltIn::start(&[]);
    let url = |dialect: &str| format!("http://{}/llm/{dialect}", provider.address());
    assert_billed(sdk, &by_base_url(sdk, command, url), &provider);
    let provider = BuiltIn::start(&[]);
    assert_billed(sdk, &intercepted(sdk, command, &provider), &provider);
}

/// Calls `act` with the name of each SDK of Python and its program.
fn each_of_python(act: impl Fn(&str, &[&str])) {
    let neutral = ["env", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null"];
    for (sdk, program) in PYTHONS {
        let program = format!("{PYTHON_BEGIN}{program}");
        act(sdk, &[&neutral[..], &[PYTHON, "-c", &program]].concat());
    }
}

#[test]
fn sdks_of_python_are_metered_to_the_token() {
    each_of_python(assert_metered);
}

#[test]
fn sdks_of_node_are_metered_to_the_token() {
    let packages = format!("NODE_PATH={}", installed(""));
    let node = installed("node-24/bin/node");
    for (sdk, program) in NODES {
        let program = format!("(async () => {{{NODE_BEGIN}{program}}})();");
        assert_metered(sdk, &["env", &packages, &node, "--input-type=commonjs", "--eval", &program]);
    }
}

/// Another implementation of the providers' APIs has no ledger, but says what each call has used.
#[test]
fn streams_of_aimock_are_read_as_their_sdks_read_them() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/javascript/aimock.mjs");
    let aimock = Process::start(Command::new("node").arg(program));
    let url = aimock.until_prints("aimock listens", |lines| {
        lines.iter().find(|line| line.starts_with("http://")).cloned()
    });
    each_of_python(|sdk, command| {
        // It does not tell the usage of Mistral and Groq unasked, and boto3 refuses its streams.
        if !["mistralai", "groq", "boto3"].contains(&sdk) {
            by_base_url(sdk, command, |_| url.clone());
        }
    });
}
