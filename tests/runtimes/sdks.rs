//! SDKs of Python, unchanged: they call their provider by its own name.

use egret_tests::exec::NamedProvider;
use egret_tests::process::run_checked;

use super::peers::{Moto, PYTHON, StripeMock};
use super::trial::{EXPECTED, Trial, URL};

/// A response with a body of JSON.
pub(super) fn json(text: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    (head + text).into_bytes()
}

#[test]
fn openai() {
    let provider = NamedProvider::with_responses(|request| {
        assert_eq!(request.line, "GET /v1/models HTTP/1.1");
        assert_eq!(request.values("authorization"), ["Bearer the-key"]);
        json(r#"{"object":"list","data":[{"id":"a-model","object":"model","created":1,"owned_by":"me"}]}"#)
    });
    let script = "import openai\nprint([model.id for model in openai.OpenAI(api_key='the-key', max_retries=0).models.list()])";
    Trial::at(provider, &[PYTHON, "-c", script])
        .reaches("['a-model']")
        .reaches_isolated("['a-model']")
        .is_explained(&["SSL_CERT_FILE"]);
}

#[test]
fn anthropic() {
    let provider = NamedProvider::with_responses(|request| {
        assert!(request.line.starts_with("GET /v1/models"), "{}", request.line);
        assert_eq!(request.values("authorization"), ["Bearer the-key"]);
        json(
            r#"{"data":[{"id":"a-model","type":"model","display_name":"A","created_at":"2026-01-01T00:00:00Z"}],"has_more":false,"first_id":null,"last_id":null}"#,
        )
    });
    let script = "import anthropic\nclient = anthropic.Anthropic(api_key='the-key', max_retries=0)\n\
                  print([model.id for model in client.models.list()])";
    Trial::at(provider, &[PYTHON, "-c", script])
        .reaches("['a-model']")
        .reaches_isolated("['a-model']")
        .is_explained(&["SSL_CERT_FILE"]);
}

/// moto keeps what it is sent, so it is a whole S3.
#[test]
fn boto3_with_moto() {
    let moto = Moto::start();
    let provider = NamedProvider::with_responses(move |request| {
        assert!(request.values("authorization")[0].starts_with("AWS4-HMAC-SHA256 "), "{request:?}");
        moto.response(request)
    });
    let script = "import boto3\nfrom botocore.config import Config\n\
        client = boto3.client('s3', 'us-east-1', aws_access_key_id='id', aws_secret_access_key='key',\n\
        \x20   config=Config(retries={'total_max_attempts': 1}, s3={'addressing_style': 'path'}))\n\
        client.create_bucket(Bucket='a-bucket')\n\
        client.put_object(Bucket='a-bucket', Key='a key', Body=b'text' * 100_000)\n\
        keys = [entry['Key'] for entry in client.list_objects_v2(Bucket='a-bucket')['Contents']]\n\
        body = client.get_object(Bucket='a-bucket', Key='a key')['Body'].read()\n\
        print(keys, len(body), body == b'text' * 100_000)";
    // The SDK lists its features in the order of a set, which is the same in each run with this seed only.
    let neutral = ["env", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "PYTHONHASHSEED=0"];
    Trial::at(provider, &[&neutral[..], &[PYTHON, "-c", script]].concat())
        .reaches("['a key'] 400000 True")
        .reaches_isolated("['a key'] 400000 True")
        .is_explained(&["AWS_CA_BUNDLE"]);
}

/// Stripe's SDK trusts a list of its own, which no variable changes: it has a setting, or it is given a base
/// URL.
#[test]
fn stripe_with_stripe_mock() {
    let mock = StripeMock::start();
    let provider = NamedProvider::with_responses(move |request| {
        assert_eq!(request.values("authorization"), ["Bearer sk_test_123"]);
        mock.response(request)
    });
    let script = |setting: &str, keyword: &str| {
        format!(
            "import os, stripe\n{setting}\n\
             client = stripe.StripeClient('sk_test_123', max_network_retries=0{keyword})\n\
             intent = client.v1.payment_intents.create({{'amount': 1999, 'currency': 'eur'}})\n\
             print(client.v1.customers.retrieve('cus_7').id, intent.amount, intent.currency)"
        )
    };
    let told = script("stripe.ca_bundle_path = os.environ['SSL_CERT_FILE']", "");
    let trial = [PYTHON, "-c", &told];
    let trial = Trial::at(provider, &trial);
    trial.reaches("cus_7 1999 eur").reaches_isolated("cus_7 1999 eur");
    let based = script("", ", base_addresses={'api': os.environ['http_proxy'] + '/stripe'}");
    let place = &trial.provider().place;
    assert_eq!(run_checked(&mut place.exec([], [PYTHON, "-c", &based])), "cus_7 1999 eur\n");
    let unchanged = script("", "");
    Trial::of(&[PYTHON, "-c", &unchanged]).is_explained(&["stripe.ca_bundle_path"]);
}

/// aiohttp reads the variables only if it is told to; otherwise it is caught in a namespace only.
#[test]
fn aiohttp() {
    let script = |trust_env: &str| {
        format!(
            "import aiohttp, asyncio, sys\n\
             async def main():\n    async with aiohttp.ClientSession({trust_env}) as session:\n        \
             async with session.get(sys.argv[1]) as response:\n            print(await response.text())\n\
             asyncio.run(main())"
        )
    };
    Trial::of(&[PYTHON, "-c", &script("trust_env=True"), URL])
        .reaches(EXPECTED)
        .is_explained(&["SSL_CERT_FILE"]);
    Trial::of(&[PYTHON, "-c", &script(""), URL])
        .reaches_isolated(EXPECTED)
        .is_explained_isolated(&["SSL_CERT_FILE"]);
}
