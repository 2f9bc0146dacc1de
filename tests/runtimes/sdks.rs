//! SDKs of Python, unchanged: they call their provider by its own name.

use egret_tests::exec::NamedProvider;
use egret_tests::provider::ok;

use super::trial::{EXPECTED, Trial, URL};

/// The Python with the SDKs.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/runtimes/bin/python");

/// A response with a body of JSON.
fn json(text: &str) -> Vec<u8> {
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

#[test]
fn boto3() {
    let provider = NamedProvider::with_responses(|request| {
        assert!(request.values("authorization")[0].starts_with("AWS4-HMAC-SHA256 "), "{request:?}");
        ok(
            "<ListAllMyBucketsResult><Buckets><Bucket><Name>a-bucket</Name></Bucket></Buckets></ListAllMyBucketsResult>",
        )
    });
    let script = "import boto3\nfrom botocore.config import Config\n\
        client = boto3.client('s3', 'us-east-1', aws_access_key_id='id', aws_secret_access_key='key',\n\
        \x20   config=Config(retries={'total_max_attempts': 1}))\n\
        print([bucket['Name'] for bucket in client.list_buckets()['Buckets']])";
    let neutral = ["env", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null"];
    Trial::at(provider, &[&neutral[..], &[PYTHON, "-c", script]].concat())
        .reaches("['a-bucket']")
        .reaches_isolated("['a-bucket']")
        .is_explained(&["AWS_CA_BUNDLE"]);
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
    Trial::of(&[PYTHON, "-c", &script(""), URL]).reaches_isolated(EXPECTED);
}
