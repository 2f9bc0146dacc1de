//! Messages of HTTP/2 clients: what the provider receives of them in HTTP/1.1, and what they receive.

use egret_tests::egret::{Config, Egret};
use egret_tests::http2::{DATA, END_STREAM, HEADERS, Http2Client, RST_STREAM};
use egret_tests::peers::node;
use egret_tests::process::run_checked;
use egret_tests::provider::{Provider, Request, ok};
use serde_json::{Value, json};

/// Error codes (RFC 9113 §7).
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;

fn before(origin: &Provider) -> Egret {
    Config::with_origin(origin.url()).gateway("workers: 1").start()
}

/// Does with Node's client what `http2.mjs` calls so.
fn done(egret: &Egret, what: &str) -> Value {
    serde_json::from_str(&node("http2.mjs", "", &[&egret.url(), what])).unwrap()
}

fn fields(request: &Request, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| request.values(name).join("|")).collect()
}

#[test]
fn curl_calls_without_an_upgrade() {
    let origin = Provider::with_responses(|request| ok(&format!("{} {:?}", request.line, request.body)));
    let egret = before(&origin);
    let url = format!("{}/origin/a?q=1", egret.url());
    let mut curl = egret_tests::peers::curl();
    curl.args(["--http2-prior-knowledge", "-w", " %{http_version}\n", "-d", "ab", &url]);
    assert_eq!(run_checked(&mut curl), "POST /a?q=1 HTTP/1.1 [97, 98] 2\n");
    let request = &origin.requests()[0];
    assert_eq!(
        fields(request, &["host", "content-length", "transfer-encoding", "connection", "te"]),
        [&origin.address().to_string(), "2", "", "", ""]
    );
}

#[test]
fn many_calls_share_a_connection() {
    let origin = Provider::with_responses(|request| ok(request.target()));
    let egret = before(&origin);
    let expected: Vec<Value> = (0..90).map(|number| json!([200, format!("/{number}")])).collect();
    assert_eq!(done(&egret, "many"), Value::from(expected));
    assert_eq!(egret.stat("/clients/accepted"), 1);
}

#[test]
fn a_response_to_head_has_a_length_and_no_body() {
    let origin = Provider::responding("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(done(&before(&origin), "head"), json!([200, "5", ""]));
}

#[test]
fn statuses_without_a_body_end_with_their_head() {
    for status in ["204 No Content", "304 Not Modified"] {
        let origin = Provider::responding(format!("HTTP/1.1 {status}\r\n\r\n"));
        let code: u16 = status[..3].parse().unwrap();
        assert_eq!(done(&before(&origin), "bodiless"), json!([code, "", 0]));
    }
}

#[test]
fn bodies_and_trailers_pass_in_both_directions() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            assert_eq!(request.values("transfer-encoding"), ["chunked"]);
            assert_eq!(request.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Grpc-Status\r\n\r\n");
            peer.send("3\r\nabc\r\n");
            peer.send(format!("{:x}\r\n", request.body.len()));
            peer.send(request.body);
            peer.send("\r\n0\r\nGrpc-Status: 7\r\n\r\n");
        }
    });
    assert_eq!(done(&before(&origin), "trailers"), json!([200, "abconetwo", "7", null]));
}

#[test]
fn informational_responses_pass_before_the_final_one() {
    let origin = Provider::responding(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    assert_eq!(done(&before(&origin), "informational"), json!([[103], 200, "ok"]));
}

#[test]
fn a_client_that_expects_100_gets_it_before_it_sends() {
    let origin = Provider::scripted(|peer| {
        let request = peer.request_head().unwrap();
        assert_eq!(request.values("expect"), ["100-continue"]);
        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(peer.take(3).as_deref(), Some(&b"abc"[..]));
        peer.send(ok("ok"));
    });
    assert_eq!(done(&before(&origin), "expecting"), json!([[100], 200, "ok"]));
}

#[test]
fn parts_of_a_cookie_become_one_field() {
    let origin = Provider::with_responses(|request| ok(&request.values("cookie").join("|")));
    assert_eq!(done(&before(&origin), "cookies"), json!([200, "a=1; b=2; c=3"]));
}

#[test]
fn a_response_cut_short_resets_its_stream() {
    let origin = Provider::scripted(|peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
    });
    assert_eq!(done(&before(&origin), "cut"), json!([200, "abc", INTERNAL_ERROR]));
}

#[test]
fn connect_opens_a_tunnel_in_a_stream() {
    let origin = Provider::scripted(|peer| {
        let ping = peer.take(4).unwrap();
        peer.send([&ping[..], b" pong"].concat());
        peer.half_close();
        peer.stall();
    });
    let egret = before(&origin);
    let address = origin.address().to_string();
    let printed = node("http2.mjs", "", &[&egret.url(), "tunnel", &address]);
    assert_eq!(printed.trim(), r#"[200,"ping pong"]"#);
}

#[test]
fn an_error_of_the_gateway_is_an_ordinary_response() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    client.get(1, egret.address(), "/nowhere/");
    assert_eq!(client.until_on(1, HEADERS).status(), Some(404));
    let body = client.until_on(1, DATA);
    assert!(body.flags & END_STREAM != 0 && body.payload.starts_with(b"{"), "{body:?}");
    assert_eq!(egret.generated("unknown-provider"), 1);
    // The connection goes on.
    client.get(3, egret.address(), "/origin/");
    assert_eq!(client.until_on(3, HEADERS).status(), Some(200));
}

#[test]
fn an_early_response_ends_the_upload() {
    let origin = Provider::scripted(|peer| {
        peer.request_head();
        peer.send("HTTP/1.1 400 Too Much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
        peer.half_close();
        peer.stall();
    });
    let egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    let own = egret.address().to_string();
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", &own), (":path", "/origin/")];
    client.headers(1, &fields, false);
    client.frame(DATA, 0, 1, b"part");
    assert_eq!(client.until_on(1, HEADERS).status(), Some(400));
    assert_eq!(client.until_on(1, DATA).payload, b"no");
    assert_eq!(client.until_on(1, RST_STREAM).error(), NO_ERROR);
}
