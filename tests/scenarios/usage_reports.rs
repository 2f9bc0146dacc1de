//! `cost.report`: Egret asks for the usage of streams in the client's place, and keeps the report from the
//! client if it is to.

use std::sync::Arc;

use egret_tests::built_in::BuiltIn;
use egret_tests::coded::coded;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::peers::curl;
use egret_tests::process::run_checked;
use egret_tests::provider::{Provider, Request};
use egret_tests::wait::{Watched, until_true, until_value};

/// Tokens that the report tells.
const TOKENS: u64 = 41;

const TEXT: &str =
    "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{}\"}}],\"usage\":null}\n\n";
const REPORT: &str =
    "data: {\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

const STREAM: &str = "{\"model\":\"m\", \"stream\": true}";
const ASKING: &str = "{\"model\":\"m\", \"stream\": true,\"stream_options\":{\"include_usage\":true}}";

const CHAT: &str = "/v1/chat/completions";

/// The way in which a provider frames its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framed {
    Length,
    Chunks,
    Close,
}

/// The stream for a request, with a report if the request asks for one.
fn stream(request: &Request) -> String {
    let is_asked = request.body == ASKING.as_bytes();
    [TEXT, TEXT, if is_asked { REPORT } else { "" }, DONE].concat()
}

/// A provider that answers with a stream.
fn provider(framed: Framed) -> Provider {
    Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            let body = stream(&request);
            let framing = match framed {
                Framed::Length => format!("Content-Length: {}\r\nETag: \"1\"\r\nDigest: d\r\n", body.len()),
                Framed::Chunks => "Transfer-Encoding: chunked\r\n".to_owned(),
                Framed::Close => "Connection: close\r\n".to_owned(),
            };
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n"));
            match framed {
                Framed::Length => {
                    peer.send(body);
                }
                Framed::Chunks => {
                    for piece in body.as_bytes().chunks(7) {
                        peer.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
                    }
                    peer.send("0\r\n\r\n");
                }
                Framed::Close => {
                    peer.send(body);
                    return;
                }
            }
        }
    })
}

/// The flows with a quota that has this `report`, and further remedies before it.
fn flows(report: &str, before: &str) -> String {
    format!(
        "quotas: {{ tokens: {{ limit: 1000, window: 24h, cost: {{ request: '5', usage: tokens, report: {report} }} }} }}\n\
         flows: [{{ name: all, remedies: [{before}limit: {{ quota: tokens }}] }}]\n"
    )
}

fn egret(origin: &Provider, report: &str) -> Egret {
    Config::with_origin(origin.url()).flows(flows(report, "")).start()
}

fn request(egret: &Egret, version: &str, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "POST /origin{CHAT} HTTP/{version}\r\nHost: {}\r\nContent-Type: application/json\r\n{fields}\
         Content-Length: {}\r\n\r\n",
        egret.address(),
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn post(egret: &Egret, version: &str, fields: &str, body: impl AsRef<[u8]>) -> Response {
    egret.client().send(request(egret, version, fields, body)).any_response_to("POST")
}

/// Waits until this many units of the only quota are used.
fn assert_used(egret: &Egret, expected: u64, about: &str) {
    let used = || egret.control_get("/api/v1/quotas").json()["quotas"][0]["groups"][0]["used"].as_u64();
    until_value(&format!("{expected} units are used: {about}"), used, |used| *used == Some(expected));
}

#[test]
fn a_stream_is_metered_although_its_client_has_not_asked() {
    for (report, sent, seen, used) in [
        ("client", STREAM, [TEXT, TEXT, DONE].concat(), 5),
        ("ask", ASKING, [TEXT, TEXT, REPORT, DONE].concat(), TOKENS),
        ("ask-and-hide", ASKING, [TEXT, TEXT, DONE].concat(), TOKENS),
    ] {
        for framed in [Framed::Length, Framed::Chunks, Framed::Close] {
            let origin = provider(framed);
            let egret = egret(&origin, report);
            for (calls, version) in (1..).zip(["1.1", "1.0", "1.1"]) {
                let response = post(&egret, version, "Accept-Encoding: gzip\r\nDigest: d\r\n", STREAM);
                response.assert_forwarded(200);
                let about = format!("{report}, {framed:?}, HTTP/{version}");
                assert_eq!((response.text(), response.cut), (&*seen, false), "{about}");
                let is_hidden = report == "ask-and-hide" && framed == Framed::Length;
                assert_eq!(
                    response.field("etag").is_some_and(|tag| tag.starts_with("W/")),
                    is_hidden,
                    "{about}"
                );
                assert_used(&egret, calls * used, &about);
            }
            let request = &origin.requests()[0];
            assert_eq!(request.body, sent.as_bytes());
            assert_eq!(request.values("content-length"), [sent.len().to_string()]);
            assert_eq!(request.values("digest").is_empty(), report != "client");
            let coding = if report == "ask-and-hide" { "identity" } else { "gzip" };
            assert_eq!(request.values("accept-encoding"), [coding]);
        }
    }
}

#[test]
fn a_client_that_asks_gets_its_report() {
    let origin = provider(Framed::Chunks);
    let egret = egret(&origin, "ask-and-hide");
    let response = post(&egret, "1.1", "", ASKING);
    assert_eq!(response.text(), [TEXT, TEXT, REPORT, DONE].concat());
    assert_used(&egret, TOKENS, "the client has asked");
}

#[test]
fn a_request_that_cannot_be_edited_passes_and_costs_its_reservation() {
    let origin = provider(Framed::Chunks);
    let egret = egret(&origin, "ask-and-hide");
    let body = coded("gzip", STREAM.as_bytes());
    let response = post(&egret, "1.1", "Content-Encoding: gzip\r\n", &body);
    assert_eq!(response.text(), [TEXT, TEXT, DONE].concat());
    assert_eq!(origin.only_request().body, body);
    assert_used(&egret, 5, "coded");
    egret.until_logged("in a request with a content coding");
    post(&egret, "1.1", "", "no JSON");
    assert_used(&egret, 10, "no JSON");
    egret.until_logged("that is no JSON object");
}

#[test]
fn a_coded_stream_passes_unchanged_and_is_metered() {
    let body = coded("gzip", [TEXT, REPORT, DONE].concat().as_bytes());
    let sent = body.clone();
    let origin = Provider::with_responses(move |_| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            sent.len()
        );
        [head.as_bytes(), &sent].concat()
    });
    let egret = egret(&origin, "ask-and-hide");
    let response = post(&egret, "1.1", "", STREAM);
    assert_eq!((response.body, response.fields.iter().any(|field| field.1 == "gzip")), (body, true));
    assert_used(&egret, TOKENS, "coded");
    egret.until_logged("cost.report");
}

#[test]
fn a_cache_before_the_quota_has_a_stream_for_each_wish() {
    let origin = provider(Framed::Chunks);
    let cache = "cache: { methods: [POST], override: true, ttl: { 200: 1h } }, ";
    let egret = Config::with_origin(origin.url()).flows(flows("ask-and-hide", cache)).start();
    for (body, seen) in [
        (STREAM, [TEXT, TEXT, DONE].concat()),
        (ASKING, [TEXT, TEXT, REPORT, DONE].concat()),
        (STREAM, [TEXT, TEXT, DONE].concat()),
    ] {
        assert_eq!(post(&egret, "1.1", "", body).text(), seen, "{body}");
    }
    assert_eq!(origin.requests().len(), 2, "the last one is stored");
}

#[test]
fn a_shared_stream_is_whole_although_its_first_client_leaves() {
    let released = Arc::new(Watched::<bool>::default());
    let held = Arc::clone(&released);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            let rest = [TEXT, REPORT, DONE].concat();
            let length = TEXT.len() + rest.len();
            let fields = format!("Content-Type: text/event-stream\r\nContent-Length: {length}\r\n");
            peer.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n{TEXT}"));
            held.until("the first client has left", |released| released.then_some(()));
            peer.send(rest);
        }
    });
    let cache = "cache: { methods: [POST], override: true, ttl: { 200: 1h }, collapse: { max_wait: 10m } }, ";
    let egret =
        Config::with_origin(origin.url()).gateway("workers: 1").flows(flows("ask-and-hide", cache)).start();
    let (mut first, mut second) = (egret.client(), egret.client());
    until_true("both are connected", || egret.stat("/clients/idle") == 2);
    first.send(request(&egret, "1.1", "", STREAM)).head();
    second.send(request(&egret, "1.1", "", STREAM));
    until_true("both are served", || egret.stat("/clients/idle") == 0);
    first.reset();
    egret.until_logged("a client has closed its connection");
    released.change(|released| *released = true);
    let response = second.response_to("POST");
    assert_eq!(response.assert_forwarded(200).text(), [TEXT, TEXT, DONE].concat());
    assert_eq!(origin.requests().len(), 1);
    assert_used(&egret, TOKENS, "the stream was read to its end");
}

#[test]
fn hidden_reports_are_left_out_in_http2_on_both_sides() {
    let provider = BuiltIn::start(&[]);
    let url = format!("http://{}/llm/openai", provider.address());
    let egret = Config::default()
        .provider_with("origin", url, "http: 2, preset: openai")
        .flows(flows("ask-and-hide", ""))
        .start();
    let target = format!("{}/origin{CHAT}?input=11&output=30&events=9", egret.url());
    let call = |body: &str| {
        let json = "content-type: application/json";
        run_checked(curl().args(["--http2-prior-knowledge", "-H", json, "-d", body, &target]))
    };
    let body = call(STREAM);
    assert!(body.ends_with(DONE) && !body.contains("\"choices\":[],"), "{body}");
    assert_used(&egret, TOKENS, "hidden");
    let whole = call(ASKING);
    assert_eq!(whole.matches("\"choices\":[],").count(), 1, "{whole}");
    assert_eq!(whole.matches("data: ").count(), body.matches("data: ").count() + 1);
    assert_used(&egret, 2 * TOKENS, "asked by the client");
    let bill = provider.get("/llm/ledger?last=0").json()["totals"].clone();
    assert_eq!((&bill["input"], &bill["output"]), (&22.into(), &60.into()));
}
