//! The built-in provider speaks HTTP/2 beside HTTP/1.1, and a gRPC service whose calls fail on request.

use egret_tests::built_in::BuiltIn;
use egret_tests::http2::{DATA, END_STREAM, Frame, GOAWAY, HEADERS, Http2Client, RST_STREAM};
use egret_tests::peers::curl;
use egret_tests::process::run_checked;
use serde_json::Value;

/// Calls a method of the echo service with a message of these bytes, and returns the frames of its stream.
fn call(client: &mut Http2Client, stream: u32, method: &str, echo: &str, message: &[u8]) -> Vec<Frame> {
    let path = format!("/egret.provider.Echo/{method}");
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a.test"),
        (":path", &*path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("x-echo", echo),
    ];
    client.headers(stream, &fields, false);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    client.frame(DATA, END_STREAM, stream, &[&[0], &length[..], message].concat());
    let mut frames = Vec::new();
    while let Some(frame) = client.receive() {
        if frame.stream != stream {
            continue;
        }
        let ends = frame.kind == RST_STREAM || [HEADERS, DATA].contains(&frame.kind) && frame.flags & 1 == 1;
        frames.push(frame);
        if ends {
            break;
        }
    }
    frames
}

fn kinds(frames: &[Frame]) -> Vec<u8> {
    frames.iter().map(|frame| frame.kind).collect()
}

#[test]
fn curl_speaks_it_by_prior_knowledge_and_over_tls() {
    let plain = BuiltIn::start(&[]);
    let url = format!("http://{}/anything?a=1", plain.address());
    let printed = run_checked(curl().args([
        "--http2-prior-knowledge",
        "-H",
        "content-type: text/plain",
        "-d",
        "text",
        &url,
    ]));
    let echoed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&echoed["url"], &echoed["data"]), (&url.into(), &"text".into()));
    let secure = BuiltIn::start(&["--tls"]);
    let ca = secure.directory().path().join("egret-data/provider-ca.pem").display().to_string();
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let url = format!("https://{}/status/200", secure.address());
        let arguments = ["--cacert", &ca, option, "-w", "%{http_version} %{num_connects}\n", &url, &url];
        let printed = run_checked(curl().args(arguments));
        assert_eq!(printed, format!("{version} 1\n{version} 0\n"));
    }
}

#[test]
fn one_connection_has_faults_of_single_streams() {
    let provider = BuiltIn::start(&[]);
    let mut client = Http2Client::connect(provider.address());
    for (stream, fault, expected) in [
        (1, "reset?error_code=7", &[RST_STREAM][..]),
        (3, "reset?after=3", &[HEADERS, DATA, RST_STREAM]),
        (5, "truncate", &[HEADERS, DATA, RST_STREAM]),
        (7, "informational?count=2", &[HEADERS, HEADERS, HEADERS, DATA]),
        (9, "wrong-length", &[HEADERS, DATA]),
    ] {
        client.get(stream, provider.address(), &format!("/fault/{fault}"));
        let mut frames = Vec::new();
        while frames.len() < expected.len() {
            frames.extend(client.receive().filter(|frame| frame.stream == stream));
        }
        assert_eq!(kinds(&frames), expected, "{fault}");
        if stream == 1 {
            assert_eq!(frames[0].error(), 7);
        }
    }
    client.get(11, provider.address(), "/fault/half-close");
    // The announcement of the end may come ahead of the response.
    let (mut goaway, mut has_data) = (None, false);
    while goaway.is_none() || !has_data {
        let frame = client.receive().unwrap();
        has_data |= frame.kind == DATA;
        goaway = goaway.or((frame.kind == GOAWAY).then(|| frame.error()));
    }
    assert_eq!(goaway, Some(0));
    let mut client = Http2Client::connect(provider.address());
    client.get(1, provider.address(), "/fault/close");
    assert!(client.rest().iter().all(|frame| frame.stream == 0), "no stream has an end");
}

#[test]
fn grpc_calls_end_as_their_metadata_asks() {
    let provider = BuiltIn::start(&[]);
    let mut client = Http2Client::connect(provider.address());
    // An `EchoRequest` with the payload `hi` and the count 3.
    let message = b"\x0a\x02hi\x10\x03";
    let mut stream = 1;
    let mut kinds_of = |method: &str, echo: &str| {
        let frames = call(&mut client, stream, method, echo, message);
        stream += 2;
        (kinds(&frames), frames)
    };
    let (kinds, frames) = kinds_of("Unary", "delay=10ms");
    assert_eq!(
        (&kinds[..], &frames[1].payload[..]),
        (&[HEADERS, DATA, HEADERS][..], &b"\0\0\0\0\x06\x0a\x02hi\x10\x01"[..])
    );
    assert_eq!(kinds_of("ServerStream", "").0, [HEADERS, DATA, DATA, DATA, HEADERS]);
    assert_eq!(kinds_of("ServerStream", "status=14&after=2").0, [HEADERS, DATA, DATA, HEADERS]);
    assert_eq!(kinds_of("Unary", "status=14&failures=1&key=mine").0, [HEADERS], "trailers-only");
    assert_eq!(kinds_of("Unary", "status=14&failures=1&key=mine").0, [HEADERS, DATA, HEADERS]);
    assert_eq!(kinds_of("Bidi", "cut=7").0, [RST_STREAM]);
    let (kinds, frames) = kinds_of("ServerStream", "cut=8&after=1");
    assert_eq!((&kinds[..], frames[2].error()), (&[HEADERS, DATA, RST_STREAM][..], 8));
    let counted = &provider.counters()["failures"]["mine"];
    assert_eq!(counted, &serde_json::json!({ "failed": 1, "succeeded": 1 }));
    assert!(provider.get("/grpc/echo.proto").text().contains("service Echo {"));
}
