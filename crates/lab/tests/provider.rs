//! The provider over real sockets: what each endpoint answers, and what it refuses.
#![expect(clippy::unwrap_used, reason = "a test that cannot talk to the provider has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use egret_lab::provider::{BODY_BYTES_MAX, Provider};
use serde_json::{Value, json};

/// What came back on a connection that was closed after the answer.
struct Answer {
    status: u16,
    head: String,
    content: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.content).unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn start() -> Provider {
    Provider::start(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

fn connect(provider: &Provider) -> TcpStream {
    let stream = TcpStream::connect(provider.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn call(provider: &Provider, request_line: &str, fields: &str, content: &[u8]) -> Answer {
    let mut stream = connect(provider);
    let head = format!("{request_line} HTTP/1.1\r\nhost: provider.test\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A provider that refuses the content may close before all of it is sent.
    let _ = stream.write_all(content);
    read_answer(stream)
}

fn get(provider: &Provider, path: &str) -> Answer {
    call(provider, &format!("GET {path}"), "", b"")
}

fn read_answer(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let mut content = Vec::new();
    reader.read_to_end(&mut content).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let content =
        if head.contains("transfer-encoding: chunked") { chunks(&content).concat() } else { content };
    Answer { status, head, content }
}

/// The chunks of a whole chunked content.
fn chunks(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    loop {
        let line = bytes.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return chunks;
        }
        chunks.push(bytes[line + 2..line + 2 + size].to_vec());
        bytes = &bytes[line + 2 + size + 2..];
    }
}

#[test]
fn the_index_names_every_endpoint() {
    let provider = start();
    let answer = get(&provider, "/");
    let text = String::from_utf8(answer.content.clone()).unwrap();
    assert_eq!(answer.status, 200);
    for endpoint in ["/get", "/anything", "/headers", "/status/", "/delay/", "/bytes/", "/stream/", "/sse"] {
        assert!(text.contains(endpoint), "{endpoint}");
    }
}

#[test]
fn get_says_what_was_asked_with_every_value_in_a_list() {
    let provider = start();
    let answer = call(&provider, "GET /get?a=1&b=x%20y&a=2", "X-Two: 1\r\nx-two: 2\r\n", b"");
    let echo = answer.json();
    assert_eq!(answer.status, 200);
    assert_eq!(echo["args"], json!({ "a": ["1", "2"], "b": ["x y"] }));
    assert_eq!(echo["headers"]["X-Two"], json!(["1", "2"]));
    assert_eq!(echo["headers"]["Host"], json!(["provider.test"]));
    assert_eq!(echo["method"], "GET");
    assert_eq!(echo["origin"], "127.0.0.1");
    assert_eq!(echo["url"], "http://provider.test/get?a=1&b=x%20y&a=2");
}

#[test]
fn an_absolute_target_is_its_own_url() {
    let provider = start();
    let echo = call(&provider, "GET http://elsewhere.test/get?a=1", "", b"").json();
    assert_eq!(echo["url"], "http://elsewhere.test/get?a=1");
}

#[test]
fn anything_takes_any_method_and_path_and_shows_the_content() {
    let provider = start();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let echo =
            call(&provider, &format!("{method} /anything/a/b"), "content-length: 5\r\n", b"hello").json();
        assert_eq!((&echo["method"], &echo["data"]), (&json!(method), &json!("hello")), "{method}");
    }
    assert_eq!(call(&provider, "HEAD /anything", "", b"").content, b"");
    assert_eq!(call(&provider, "GET /anything", "", b"").status, 200);
}

#[test]
fn chunked_json_content_is_parsed() {
    let provider = start();
    let fields = "transfer-encoding: chunked\r\ncontent-type: application/json; charset=utf-8\r\n";
    let echo = call(&provider, "POST /anything", fields, b"4\r\n{\"a\"\r\n3\r\n:1}\r\n0\r\n\r\n").json();
    assert_eq!((&echo["data"], &echo["json"]), (&json!("{\"a\":1}"), &json!({ "a": 1 })));
    let broken =
        call(&provider, "POST /anything", "content-length: 1\r\ncontent-type: application/json\r\n", b"{");
    assert_eq!(broken.status, 400);
}

#[test]
fn content_that_is_not_text_comes_back_as_a_data_url() {
    let provider = start();
    let echo = call(&provider, "POST /anything", "content-length: 2\r\n", &[0xff, 0x00]).json();
    assert_eq!(echo["data"], "data:application/octet-stream;base64,_wA=");
}

#[test]
fn content_up_to_the_limit_is_taken_and_more_is_refused() {
    let provider = start();
    let content = vec![b'x'; BODY_BYTES_MAX];
    let post = |len: usize, content: &[u8]| {
        call(&provider, "POST /anything", &format!("content-length: {len}\r\n"), content)
    };
    assert_eq!(post(BODY_BYTES_MAX, &content).json()["data"].as_str().unwrap().len(), BODY_BYTES_MAX);
    let refused = post(BODY_BYTES_MAX + 1, b"");
    assert_eq!((refused.status, &refused.json()["status_code"]), (413, &json!(413)));
    let mut chunked = format!("{:x}\r\n", BODY_BYTES_MAX + 1).into_bytes();
    chunked.extend(vec![b'x'; BODY_BYTES_MAX + 1]);
    assert_eq!(call(&provider, "POST /anything", "transfer-encoding: chunked\r\n", &chunked).status, 413);
}

#[test]
fn headers_shows_the_fields_alone() {
    let provider = start();
    let answer = call(&provider, "GET /headers", "X-Request-ID: 7\r\n", b"").json();
    assert_eq!(answer["headers"]["X-Request-Id"], json!(["7"]));
    assert_eq!(answer.as_object().unwrap().len(), 1);
}

#[test]
fn status_answers_with_that_status() {
    let provider = start();
    for code in [200, 204, 301, 304, 404, 429, 500, 599] {
        assert_eq!(get(&provider, &format!("/status/{code}")).status, code);
        assert_eq!(call(&provider, &format!("POST /status/{code}"), "", b"").status, code);
    }
}

#[test]
fn a_status_that_cannot_end_an_exchange_is_refused_in_json() {
    let provider = start();
    for code in ["100", "101", "199", "99", "600", "0", "-1", "65536", "abc"] {
        let answer = get(&provider, &format!("/status/{code}"));
        let error = answer.json();
        assert_eq!(
            (answer.status, &error["status_code"], &error["error"]),
            (400, &json!(400), &json!("Bad Request")),
            "{code}"
        );
        assert!(error["detail"].as_str().unwrap().contains("status code"), "{code}");
    }
}

#[test]
fn delay_answers_no_sooner_than_asked_and_says_so() {
    let provider = start();
    for text in ["0.03", "30ms"] {
        let started = Instant::now();
        let answer = get(&provider, &format!("/delay/{text}"));
        assert!(started.elapsed() >= Duration::from_millis(30));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("server-timing"), Some("initial_delay;dur=30.00;desc=\"initial delay\""));
        assert_eq!(answer.json()["method"], "GET");
    }
}

#[test]
fn a_delay_beyond_ten_seconds_is_refused_at_once() {
    let provider = start();
    for text in ["10.001", "11", "1m", "-1", "NaN", "soon"] {
        let answer = get(&provider, &format!("/delay/{text}"));
        assert_eq!(answer.status, 400, "{text}");
        assert!(answer.json()["detail"].as_str().unwrap().starts_with("invalid duration"), "{text}");
    }
}

#[test]
fn bytes_come_in_the_number_asked_for_with_their_length() {
    let provider = start();
    for n in [0, 1, 7, 65_537, BODY_BYTES_MAX] {
        let answer = get(&provider, &format!("/bytes/{n}"));
        assert_eq!(answer.content.len(), n);
        assert_eq!(answer.field("content-length"), Some(n.to_string().as_str()));
    }
    assert_eq!(get(&provider, "/bytes/100?seed=1").content, get(&provider, "/bytes/100?seed=1").content);
    assert_ne!(get(&provider, "/bytes/100").content, get(&provider, "/bytes/100").content);
    for path in ["/bytes/1048577", "/bytes/-1", "/bytes/x", "/bytes/1?seed=x"] {
        assert_eq!(get(&provider, path).status, 400, "{path}");
    }
}

#[test]
fn a_stream_is_lines_of_json_that_are_numbered() {
    let provider = start();
    let answer = get(&provider, "/stream/5?a=1");
    assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
    let lines: Vec<Value> = answer
        .content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.iter().map(|line| line["id"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(lines[4]["args"], json!({ "a": ["1"] }));
    let longest = get(&provider, "/stream/1000");
    assert_eq!(String::from_utf8(longest.content).unwrap().lines().count(), 100);
    assert_eq!(get(&provider, "/stream/x").status, 400);
}

#[test]
fn events_are_sent_as_they_happen() {
    let provider = start();
    let started = Instant::now();
    let mut stream = connect(&provider);
    stream
        .write_all(b"GET /sse?count=3&duration=9s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut received = String::new();
    let mut reader = BufReader::new(stream);
    while !received.contains("data: {\"id\":0}") {
        reader.read_line(&mut received).unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(4), "the first event waits for no other");
    assert!(received.contains("content-type: text/event-stream"));
}

#[test]
fn events_are_spread_over_the_duration() {
    let provider = start();
    let started = Instant::now();
    let answer = get(&provider, "/sse?count=3&duration=60ms");
    assert!(started.elapsed() >= Duration::from_millis(60));
    assert_eq!(String::from_utf8(answer.content).unwrap().matches("event: ping\n").count(), 3);
    for query in ["count=0", "count=1001", "count=x", "duration=11s"] {
        assert_eq!(get(&provider, &format!("/sse?{query}")).status, 400, "{query}");
    }
}

#[test]
fn an_unknown_path_or_method_is_an_error_in_json() {
    let provider = start();
    assert_eq!(get(&provider, "/no/such").json()["status_code"], 404);
    assert_eq!(call(&provider, "POST /get", "", b"").json()["status_code"], 405);
}

#[test]
fn one_connection_carries_many_exchanges() {
    let provider = start();
    let mut stream = connect(&provider);
    stream.write_all(b"GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\nGET /status/404 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text.matches("HTTP/1.1 ").count(), 2, "{text}");
}

#[test]
fn a_stopped_provider_frees_its_port_though_an_answer_is_under_way() {
    let provider = start();
    let address = provider.address();
    let mut stream = connect(&provider);
    stream.write_all(b"GET /delay/10 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    // An answer on another connection shows that the first has been accepted.
    assert_eq!(get(&provider, "/status/200").status, 200);
    let started = Instant::now();
    provider.stop();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(TcpStream::connect(address).is_err());
}
