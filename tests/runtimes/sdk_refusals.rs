//! SDKs of the presets' providers, unchanged, at a provider that refuses their first call: they wait, repeat
//! it or give up. Egret does the same with the preset, for a client that makes the same call once and never
//! repeats it, or the reference page of the presets has the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::exec::Place;
use egret_tests::http::Response;
use egret_tests::process::run_checked;
use egret_tests::provider::{Provider, Request};
use egret_tests::refusals::{REFUSALS, SUCCESSES, response, table};
use serde_json::Value;

use super::javascript::installed;
use super::peers::PYTHON;

/// The page with the reasons for which Egret does something else than an SDK.
const PAGE: &str = include_str!("../../docs/reference/presets.md");

const PYTHON_BEGIN: &str = r#"
import json, sys
from concurrent.futures import ThreadPoolExecutor
messages = [{"role": "user", "content": "Hi"}]
"#;

/// Prints the error of each call, or an empty text.
const PYTHON_END: &str = r#"
def told(url):
    try:
        call(url)
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
urls = sys.argv[1:]
with ThreadPoolExecutor(len(urls)) as pool:
    print(json.dumps(list(pool.map(told, urls))))
"#;

/// A call of the SDK of `OpenAI`.
const OPENAI: &str = r#"
import openai
def call(url):
    client = openai.OpenAI(api_key="k", base_url=url + "/v1")
    client.chat.completions.create(model="m", messages=messages)
"#;

/// The presets, each with a call of the provider's SDK of Python. Where the SDK repeats no call unless it is
/// told to, the call tells it. `DeepSeek` and `OpenRouter` document the use of OpenAI's.
const PYTHONS: [(&str, &str); 13] = [
    ("openai", OPENAI),
    (
        "anthropic",
        r#"
import anthropic
def call(url):
    client = anthropic.Anthropic(api_key="k", base_url=url)
    client.messages.create(model="m", max_tokens=64, messages=messages)
"#,
    ),
    (
        "gemini",
        r#"
from google import genai
from google.genai.types import HttpOptions, HttpRetryOptions
retries = HttpRetryOptions(attempts=3, initial_delay=0.001, jitter=0)
def call(url):
    options = HttpOptions(base_url=url, api_version="v1beta", retry_options=retries)
    client = genai.Client(api_key="k", http_options=options)
    client.models.generate_content(model="m", contents="Hi")
"#,
    ),
    (
        "bedrock",
        r#"
import boto3
def call(url):
    client = boto3.Session().client("bedrock-runtime", "us-east-1", endpoint_url=url, aws_access_key_id="id", aws_secret_access_key="key")
    client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}])
"#,
    ),
    (
        "azure-openai",
        r#"
import openai
def call(url):
    client = openai.AzureOpenAI(api_key="k", azure_endpoint=url, api_version="2024-10-21")
    client.chat.completions.create(model="m", messages=messages)
"#,
    ),
    (
        "mistral",
        r#"
from mistralai.client import Mistral
from mistralai.client.utils import BackoffStrategy, RetryConfig
retries = RetryConfig("backoff", BackoffStrategy(1, 10, 1.5, 60_000, jitter_ms=1), True)
def call(url):
    Mistral(api_key="k", server_url=url, retry_config=retries).chat.complete(model="m", messages=messages)
"#,
    ),
    (
        "groq",
        r#"
import groq
def call(url):
    groq.Groq(api_key="k", base_url=url).chat.completions.create(model="m", messages=messages)
"#,
    ),
    (
        "cohere",
        r#"
import cohere
def call(url):
    cohere.ClientV2(api_key="k", base_url=url).chat(model="m", messages=messages)
"#,
    ),
    (
        "deepseek",
        r#"
import openai
def call(url):
    openai.OpenAI(api_key="k", base_url=url).chat.completions.create(model="m", messages=messages)
"#,
    ),
    ("openrouter", OPENAI),
    (
        "stripe",
        r#"
import stripe
def call(url):
    client = stripe.StripeClient("k", base_addresses={"api": url}, max_network_retries=2)
    client.v1.charges.create({"amount": 2000, "currency": "usd"})
"#,
    ),
    (
        "github",
        r#"
import github
def call(url):
    retries = github.GithubRetry(total=3, secondary_rate_wait=1, max_rate_limit_wait=30)
    client = github.Github(auth=github.Auth.Token("k"), base_url=url, retry=retries)
    client.get_repo("o/r", lazy=True).create_issue("Hi")
"#,
    ),
    (
        "slack",
        r#"
from slack_sdk import WebClient
from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler
def call(url):
    client = WebClient("k", base_url=url + "/", retry_handlers=[RateLimitErrorRetryHandler(2)])
    client.chat_postMessage(channel="C1", text="Hi")
"#,
    ),
];

/// Does the same as [`PYTHON_END`] in JavaScript.
const NODE_END: &str = r#"
const told = (url) => call(url).then(() => "", (error) => String(error) || "an error");
Promise.all(process.argv.slice(1).map(told)).then((all) => console.log(JSON.stringify(all)));
"#;

/// The presets of providers whose SDK of Python repeats no call, with one of Node.
const NODES: [(&str, &str); 3] = [
    (
        "twilio",
        r#"
const twilio = require("twilio");
const call = (url) => {
    const httpClient = new twilio.RequestClient({ autoRetry: true });
    const send = httpClient.request.bind(httpClient);
    httpClient.request = (it) => send({ ...it, uri: it.uri.replace("https://api.twilio.com", url) });
    const client = twilio("AC1", "k", { httpClient });
    return client.messages.create({ to: "+15558675310", from: "+15017122661", body: "Hi" });
};
"#,
    ),
    (
        "shopify",
        r#"
const { createAdminRestApiClient } = require("@shopify/admin-api-client");
const call = async (url) => {
    const storeDomain = "shop.myshopify.com";
    const customFetchApi = (to, options) => fetch(to.replace("https://" + storeDomain, url), options);
    const client = createAdminRestApiClient({ storeDomain, apiVersion: "2026-10", accessToken: "k", customFetchApi });
    const response = await client.post("orders", { data: { order: {} }, retries: 2 });
    if (!response.ok) throw new Error(response.status);
};
"#,
    ),
    (
        "hubspot",
        r#"
const { Client } = require("@hubspot/api-client");
const call = (url) => {
    const client = new Client({ accessToken: "k", basePath: url, numberOfApiCallRetries: 3 });
    return client.crm.contacts.basicApi.update("512", { properties: {} });
};
"#,
    ),
];

/// The outcome of a call whose first attempt is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// It is repeated once that time is over.
    Waits(Duration),
    /// It is repeated after a back-off.
    Repeats,
    GivesUp,
}

impl Action {
    /// Egret's, by a row of the table.
    fn of_egret(row: &Value) -> Self {
        match (row["alone"].as_str().unwrap(), row["wait_ms"].as_u64()) {
            ("waits", Some(wait_ms)) => Self::Waits(Duration::from_millis(wait_ms)),
            ("waits", None) => Self::Repeats,
            ("gives up", None) => Self::GivesUp,
            other => panic!("{other:?}"),
        }
    }

    /// The SDK's, by a row of the table. It is that of Egret unless the row says otherwise, with the reason.
    fn of_sdk(row: &Value) -> Self {
        let egrets = Self::of_egret(row);
        let Some(sdks) = row["sdk"].as_str() else { return egrets };
        let sdks = match sdks {
            "repeats" => Self::Repeats,
            "gives up" => Self::GivesUp,
            other => panic!("{other}"),
        };
        assert_ne!(sdks, egrets, "{row}");
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            one_line(PAGE).contains(row["unlike"].as_str().unwrap()),
            "the page has no such reason: {row}"
        );
        sdks
    }

    /// Asserts that these attempts are those of this action.
    fn assert_taken(self, about: &str, has_succeeded: bool, attempts: &[Attempt]) {
        let is_repeated = self != Self::GivesUp;
        let found = (has_succeeded, attempts.len());
        assert_eq!(found, (is_repeated, 1 + usize::from(is_repeated)), "{about}: {self:?}");
        if let Self::Waits(least) = self {
            let waited = attempts[1].at - attempts[0].at;
            assert!(waited >= least, "{about}: {waited:?} instead of {least:?}");
        }
    }
}

/// A request that the provider has received.
#[derive(Debug, Clone)]
struct Attempt {
    at: Instant,
    request: Request,
}

/// A provider that refuses the first request of each caller. A caller is the first segment of a path,
/// `sdk-N` or `egret-N` for row N of the table.
struct Refusing {
    provider: Provider,
    attempts: Arc<Mutex<BTreeMap<String, Vec<Attempt>>>>,
}

impl Refusing {
    fn start(preset: &str, rows: &[Value]) -> Self {
        let attempts: Arc<Mutex<BTreeMap<String, Vec<Attempt>>>> = Arc::default();
        let (kept, rows) = (Arc::clone(&attempts), rows.to_vec());
        let success = table(SUCCESSES).into_iter().find(|row| row["preset"] == preset).unwrap();
        let provider = Provider::with_responses(move |request| {
            let attempt = Attempt { at: Instant::now(), request: request.clone() };
            let caller = request.target().split('/').nth(1).unwrap().to_owned();
            let row = &rows[caller.rsplit_once('-').unwrap().1.parse::<usize>().unwrap()];
            let mut all = kept.lock().unwrap();
            let attempts = all.entry(caller).or_default();
            attempts.push(attempt);
            if attempts.len() == 1 {
                response(row["status"].as_str().unwrap(), &row["fields"], &row["body"].to_string())
            } else {
                response("200 OK", &Value::Null, success["body"].as_str().unwrap())
            }
        });
        Self { provider, attempts }
    }

    /// The attempts of a caller, in their order.
    fn attempts(&self, caller: &str) -> Vec<Attempt> {
        self.attempts.lock().unwrap().get(caller).cloned().unwrap_or_default()
    }
}

/// Egret with a provider `row-N` for each row.
fn egret(preset: &str, rows: &[Value], refusing: &Refusing) -> Egret {
    let with_row = |config: Config, number: usize| {
        let url = format!("{}/egret-{number}", refusing.provider.url());
        config.provider_with(&format!("row-{number}"), url, &format!("preset: {preset}"))
    };
    let config = (0..rows.len()).fold(Config::default(), with_row);
    config.flows("flows: [{ name: all, remedies: [retry: 3] }]\n").start()
}

/// Sends the request of an SDK through Egret once.
fn send_again(egret: &Egret, number: usize, request: &Request) -> Response {
    let (method, _) = request.line.split_once(' ').unwrap();
    let target = request.target().replacen("sdk", "row", 1);
    let own = ["connection", "content-length", "expect", "host", "transfer-encoding"];
    let is_own = |name: &str| own.iter().any(|own| name.eq_ignore_ascii_case(own));
    let fields = request.fields.iter().filter(|(name, _)| !is_own(name));
    let fields = fields.map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {}\r\n{fields}content-length: {}\r\n\r\n",
        egret.address(),
        request.body.len()
    );
    assert!(target.starts_with(&format!("/row-{number}/")), "{target}");
    egret.client().send([head.as_bytes(), &request.body].concat()).response()
}

/// Runs an SDK with all refusals of its provider, and then makes the same calls through Egret.
fn assert_alike(preset: &str, command: &[&str]) {
    let rows: Vec<Value> = table(REFUSALS).into_iter().filter(|row| row["preset"] == preset).collect();
    let refusing = Refusing::start(preset, &rows);
    let mut program = Command::new(command[0]);
    let place = Place::new();
    place.prepare(&mut program);
    program.args(&command[1..]);
    program.args((0..rows.len()).map(|number| format!("{}/sdk-{number}", refusing.provider.url())));
    let printed: Value = serde_json::from_str(&run_checked(&mut program)).unwrap();
    let egret = egret(preset, &rows, &refusing);
    let compare = |number: usize, row: &Value| {
        let error = printed[number].as_str().unwrap();
        let about = format!("{preset}, {}", row["about"].as_str().unwrap());
        let attempts = refusing.attempts(&format!("sdk-{number}"));
        let (sdks, egrets) = (Action::of_sdk(row), Action::of_egret(row));
        sdks.assert_taken(&format!("the SDK of {about}: {error}"), error.is_empty(), &attempts);
        let response = send_again(&egret, number, &attempts[0].request);
        if egrets == Action::GivesUp {
            response.assert_forwarded(row["status"].as_str().unwrap()[..3].parse().unwrap());
        }
        let attempts = refusing.attempts(&format!("egret-{number}"));
        egrets.assert_taken(&format!("Egret at {about}"), response.status == 200, &attempts);
        println!("{about}: the SDK {sdks:?}, Egret {egrets:?}");
    };
    thread::scope(|scope| {
        for (number, row) in rows.iter().enumerate() {
            scope.spawn(move || compare(number, row));
        }
    });
}

#[test]
fn egret_treats_refusals_as_sdks_of_python_do() {
    let neutral = ["env", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null"];
    for (preset, program) in PYTHONS {
        let program = format!("{PYTHON_BEGIN}{program}{PYTHON_END}");
        assert_alike(preset, &[&neutral[..], &[PYTHON, "-c", &program]].concat());
    }
}

#[test]
fn egret_treats_refusals_as_sdks_of_node_do() {
    let packages = format!("NODE_PATH={}", installed(""));
    let node = installed("node-24/bin/node");
    for (preset, program) in NODES {
        let program = format!("{program}{NODE_END}");
        assert_alike(preset, &["env", &packages, &node, "--input-type=commonjs", "--eval", &program]);
    }
}

#[test]
fn every_preset_has_an_sdk() {
    let preset = |row: &Value| row["preset"].as_str().unwrap().to_owned();
    let presets: BTreeSet<String> = table(REFUSALS).iter().map(preset).collect();
    let compared = PYTHONS.iter().chain(&NODES).map(|(preset, _)| (*preset).to_owned()).collect();
    assert_eq!(presets, compared);
}
