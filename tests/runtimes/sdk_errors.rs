//! The SDKs of OpenAI, Anthropic and AWS print the cause of each error that Egret makes.

use std::collections::BTreeSet;
use std::process::Command;

use egret_tests::failing::{CASES, Case, Failing, Needs, assert_table_is_complete};
use egret_tests::process::run_checked;
use serde_json::{Value, json};

use super::peers::PYTHON;

/// Returns a hook that sets the method of a request, if the case needs another one than that of the call.
const HOOK: &str = "
def method_of(case):
    def set_method(request):
        request.method = case['method'] or request.method
    return set_method
";

/// Reads calls from the first argument, and prints each error as the SDK shows it.
const PRINT: &str = "
import json, sys
for case in json.loads(sys.argv[1]):
    for name, call in calls(case):
        try:
            call()
            print(json.dumps([case['error'], name, 'no error']))
        except Exception as error:
            # OpenAI's SDK leaves the code out of the text.
            print(json.dumps([case['error'], name, str(error) + ' ' + str(getattr(error, 'code', ''))]))
";

const OPENAI: &str = "
import openai
def calls(case):
    client = openai.OpenAI(api_key='key', max_retries=0, base_url=case['url'], default_headers=case['fields'],
        http_client=openai.DefaultHttpxClient(event_hooks={'request': [method_of(case)]}))
    text = 'x' * case['body']
    yield 'openai', (lambda: client.embeddings.create(model='m', input=text)) if text else client.models.list
";

const ANTHROPIC: &str = "
import anthropic
def calls(case):
    client = anthropic.Anthropic(api_key='key', max_retries=0, base_url=case['url'], default_headers=case['fields'],
        http_client=anthropic.DefaultHttpxClient(event_hooks={'request': [method_of(case)]}))
    text = 'x' * case['body']
    def post():
        client.messages.count_tokens(model='m', messages=[{'role': 'user', 'content': text}])
    yield 'anthropic', post if text else client.models.list
";

/// One service for each of AWS's protocols.
const BOTO3: &str = "
import boto3
from botocore.config import Config
config = Config(retries={'total_max_attempts': 1}, s3={'addressing_style': 'path'}, read_timeout=60)
def calls(case):
    def client(service):
        client = boto3.client(service, 'us-east-1', endpoint_url=case['url'], config=config,
            aws_access_key_id='id', aws_secret_access_key='key')
        set_method = method_of(case)
        def edit(request, **_):
            request.headers.update(case['fields'])
            set_method(request)
        client.meta.events.register('before-send.*.*', edit)
        return client
    text = 'x' * case['body']
    if text:
        yield 's3', lambda: client('s3').put_object(Bucket='b', Key='k', Body=text.encode())
        yield 'lambda', lambda: client('lambda').invoke(FunctionName='f', Payload=text.encode())
        yield 'sns', lambda: client('sns').publish(TopicArn='arn:aws:sns:us-east-1:1:t', Message=text)
        return
    if case['unread']:
        yield 'lambda', lambda: client('lambda').list_functions()
        return
    yield 's3', lambda: client('s3').list_buckets()
    yield 'lambda', lambda: client('lambda').list_functions()
    yield 'route53', lambda: client('route53').list_hosted_zones()
    if not case['get']:
        yield 'dynamodb', lambda: client('dynamodb').list_tables()
        yield 'sns', lambda: client('sns').list_topics()
        yield 'ec2', lambda: client('ec2').describe_regions()
        yield 'cloudwatch', lambda: client('cloudwatch').list_metrics()
";

/// Has the SDK of `calls` make the call of each case, and checks what it prints: the name, as `name` writes
/// it, and the cause.
fn assert_printed(format: &str, calls: &str, name: impl Fn(&str) -> String) {
    assert_table_is_complete();
    let mut failing = Failing::start(format);
    let script = format!("{HOOK}{calls}{PRINT}");
    let (mut printed, mut kinds) = (0, BTreeSet::new());
    // With all connections in use, nothing else can be called.
    let (last, others) = CASES.split_last().unwrap();
    for cases in [others, std::slice::from_ref(last)] {
        let calls: Vec<Value> = cases.iter().map(|case| call(&mut failing, case)).collect();
        for line in run_checked(&mut command(&failing, &script, &calls)).lines() {
            let line: Vec<String> = serde_json::from_str(line).unwrap();
            let [error, service, text] = &line[..] else { panic!("{line:?}") };
            let case = CASES.iter().find(|case| case.error == error).unwrap();
            assert!(text.contains(&name(error)), "{service} does not name {error}: {text}");
            assert!(text.contains(case.cause), "{service} does not tell {:?}: {text}", case.cause);
            printed += 1;
            kinds.insert(case.error);
        }
    }
    println!("{format}: {printed} errors of {} kinds printed with their cause", kinds.len());
    assert_eq!(kinds, CASES.iter().map(|case| case.error).collect());
}

fn call(failing: &mut Failing, case: &Case) -> Value {
    let fields: serde_json::Map<String, Value> =
        failing.field(case).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    // Of a head that it cannot read, Egret does not know for which service it is.
    let is_unread =
        matches!(case.error, "not-implemented" | "version-not-supported" | "too-many-connections")
            || matches!(case.needs, Needs::LongField(_) | Needs::LongPath(_));
    let is_get = matches!(case.needs, Needs::Get | Needs::Start(_)) || case.error == "not-cached";
    let method = matches!(case.needs, Needs::Options(..)).then(|| case.method());
    json!({
        "error": case.error, "url": failing.url(case), "body": case.body(), "fields": fields,
        "method": method, "get": is_get, "unread": is_unread,
    })
}

fn command(failing: &Failing, script: &str, calls: &[Value]) -> Command {
    let mut command = Command::new(PYTHON);
    command.args(["-c", script, &json!(calls).to_string()]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy", "https_proxy"]
    {
        command.env_remove(name);
    }
    // Only an intercepted call has an `https` URL.
    command.env("HTTPS_PROXY", failing.egret().url());
    command.env("SSL_CERT_FILE", failing.ca()).env("AWS_CA_BUNDLE", failing.ca());
    command.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_CONFIG_FILE", "/dev/null");
    command
}

#[test]
fn openai_prints_the_cause() {
    assert_printed("openai", OPENAI, str::to_owned);
}

#[test]
fn anthropic_prints_the_cause() {
    assert_printed("anthropic", ANTHROPIC, str::to_owned);
}

#[test]
fn boto3_prints_the_cause_in_every_protocol() {
    assert_printed("aws", BOTO3, |error| {
        let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
        format!("(Egret{})", error.split('-').map(capital).collect::<String>())
    });
}
