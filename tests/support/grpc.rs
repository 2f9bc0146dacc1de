//! gRPC calls through Egret, and providers that answer them. Providers speak HTTP/1.1 with trailers, which
//! has the same messages.

use serde_json::Value;

use crate::egret::Egret;
use crate::peers::node;
use crate::provider::Request;

/// Path of the method that calls are for, without the provider.
pub const METHOD: &str = "/helloworld.Greeter/SayHello";

/// Makes the calls of the list `asked` one after the other: each may have `path`, `fields`, and `sent`, the
/// texts of its messages. Returns what they brought: `status`, `head`, `trailers`, `trailersOnly`, `body`,
/// `messages`, `grpcStatus`, `reset`.
pub fn call(egret: &Egret, asked: &Value) -> Vec<Value> {
    let calls: Vec<Value> = asked.as_array().unwrap().iter().map(with_path).collect();
    serde_json::from_str(&node("grpc.mjs", "", &[&egret.url(), &Value::from(calls).to_string()])).unwrap()
}

/// Makes one call of the provider `origin` with these fields.
pub fn call_with(egret: &Egret, fields: &Value) -> Value {
    call(egret, &serde_json::json!([{ "fields": fields }])).remove(0)
}

fn with_path(asked: &Value) -> Value {
    let mut asked = asked.clone();
    if asked.get("path").is_none() {
        asked["path"] = format!("/origin{METHOD}").into();
    }
    asked
}

/// A response whose head is its trailers too.
pub fn trailers_only(status: u8, message: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nGrpc-Status: {status}\r\nGrpc-Message: {message}\r\n\
         Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// A response with these messages, and with these lines of trailers.
pub fn response(messages: &[&str], trailers: &str) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for message in messages {
        let framed = framed(message);
        bytes.extend(format!("{:x}\r\n", framed.len()).into_bytes());
        bytes.extend(framed);
        bytes.extend(b"\r\n");
    }
    bytes.extend(format!("0\r\n{trailers}\r\n").into_bytes());
    bytes
}

/// A message with the five bytes in front of it that gRPC wants (gRPC over HTTP/2, Length-Prefixed-Message).
pub fn framed(message: &str) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap();
    [&[0], &len.to_be_bytes()[..], message.as_bytes()].concat()
}

/// The successful response to a call: its first message again.
pub fn echo(request: &Request) -> Vec<u8> {
    let message = String::from_utf8_lossy(request.body.get(5..).unwrap_or_default()).into_owned();
    response(&[&message], "grpc-status: 0\r\n")
}
