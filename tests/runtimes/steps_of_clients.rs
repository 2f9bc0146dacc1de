//! Programs and SDKs of newcomers, in steps: each is run through Egret as it is.

use std::process::Command;

use egret_tests::exec::{NamedProvider, has_namespaces};
use egret_tests::steps::{Steps, judge};

use super::javascript::{FETCH, installed};
use super::peers::{Moto, PYTHON, StripeMock};
use super::scripted;
use super::sdks::json;
use super::trial::{EXPECTED, URL};

#[test]
fn clients_take_no_more_steps_than_documented() {
    judge(
        "make test-clients ONLY=steps_of_clients",
        &[
            ("Intercept Python's requests and httpx", requests_and_httpx),
            ("Catch aiohttp, which reads no proxy variable", aiohttp),
            ("Catch Node 20, which reads no proxy variable", node_20),
            ("Intercept axios", axios),
            ("Intercept OpenAI's SDK", openai),
            ("Intercept Anthropic's SDK", anthropic),
            ("Intercept Stripe's SDK, which has authorities of its own", stripe),
            ("Intercept boto3 with S3", boto3),
        ],
    );
}

/// Runs a program by `egret exec` with these options, in one step. Its output must have `expected`.
fn reaches(steps: &mut Steps, provider: &NamedProvider, options: &[&str], program: &[&str], expected: &str) {
    let mut exec: Command = provider.place.options([]);
    let told = steps.runs(exec.args(options).arg("--").args(program));
    provider.place.until_gateways_gone();
    assert!(told.contains(expected), "{told}");
    let requests = provider.origin.requests();
    assert!(requests.iter().all(|request| !request.values("via").is_empty()), "{requests:?}");
}

fn requests_and_httpx(steps: &mut Steps) {
    let script = "import sys, requests, httpx\n\
                  print([library.get(sys.argv[1]).text for library in (requests, httpx)])";
    let provider = NamedProvider::start();
    reaches(steps, &provider, &["--intercept"], &[scripted::PYTHON, "-c", script, URL], EXPECTED);
    assert_eq!(provider.origin.requests().len(), 2);
}

fn aiohttp(steps: &mut Steps) {
    let script = "import aiohttp, asyncio, sys\n\
                  async def main():\n    async with aiohttp.ClientSession() as session:\n        \
                  async with session.get(sys.argv[1]) as response:\n            print(await response.text())\n\
                  asyncio.run(main())";
    isolated(steps, &[PYTHON, "-c", script, URL]);
}

fn node_20(steps: &mut Steps) {
    isolated(steps, &["node", "--input-type=module", "--eval", FETCH, URL]);
}

/// Runs a program in a namespace, in one step.
fn isolated(steps: &mut Steps, program: &[&str]) {
    if has_namespaces() {
        reaches(steps, &NamedProvider::start(), &["--intercept", "--isolate"], program, EXPECTED);
    }
}

fn axios(steps: &mut Steps) {
    let script = format!(
        "require('{}').get(process.argv.at(-1)).then((response) => console.log(response.data))",
        installed("axios")
    );
    let provider = NamedProvider::start();
    reaches(steps, &provider, &["--intercept"], &["node", "--eval", &script, URL], EXPECTED);
}

fn openai(steps: &mut Steps) {
    let models =
        r#"{"object":"list","data":[{"id":"a-model","object":"model","created":1,"owned_by":"me"}]}"#;
    let provider = NamedProvider::with_responses(move |_| json(models));
    let script = "import openai\nprint([model.id for model in openai.OpenAI(api_key='key', max_retries=0).models.list()])";
    reaches(steps, &provider, &["--intercept"], &[PYTHON, "-c", script], "['a-model']");
}

fn anthropic(steps: &mut Steps) {
    let models = r#"{"data":[{"id":"a-model","type":"model","display_name":"A","created_at":"2026-01-01T00:00:00Z"}],"has_more":false,"first_id":null,"last_id":null}"#;
    let provider = NamedProvider::with_responses(move |_| json(models));
    let script = "import anthropic\nclient = anthropic.Anthropic(api_key='key', max_retries=0)\n\
                  print([model.id for model in client.models.list()])";
    reaches(steps, &provider, &["--intercept"], &[PYTHON, "-c", script], "['a-model']");
}

/// It trusts a list of its own, so a line of the program has to change.
fn stripe(steps: &mut Steps) {
    let mock = StripeMock::start();
    let provider = NamedProvider::with_responses(move |request| mock.response(request));
    let program = "import os, stripe\nstripe.ca_bundle_path = os.environ['SSL_CERT_FILE']\n\
                   client = stripe.StripeClient('sk_test_123', max_network_retries=0)\n\
                   print(client.v1.customers.retrieve('cus_7').id)\n";
    steps.writes(&provider.place.directory.join("program.py"), program);
    reaches(steps, &provider, &["--intercept"], &[PYTHON, "program.py"], "cus_7");
}

fn boto3(steps: &mut Steps) {
    let moto = Moto::start();
    let provider = NamedProvider::with_responses(move |request| moto.response(request));
    let script = "import boto3\nfrom botocore.config import Config\n\
        client = boto3.client('s3', 'us-east-1', aws_access_key_id='id', aws_secret_access_key='key',\n\
        \x20   config=Config(s3={'addressing_style': 'path'}))\n\
        client.create_bucket(Bucket='a-bucket')\n\
        client.put_object(Bucket='a-bucket', Key='a key', Body=b'text')\n\
        print(client.get_object(Bucket='a-bucket', Key='a key')['Body'].read())";
    let neutral =
        ["env", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", PYTHON, "-c", script];
    reaches(steps, &provider, &["--intercept"], &neutral, "b'text'");
}
