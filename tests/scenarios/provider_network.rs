//! The built-in provider simulates distance, a slow line and TLS, alone and combined.

use std::time::{Duration, Instant};

use egret_tests::built_in::BuiltIn;
use egret_tests::peers::curl;
use egret_tests::process::{run, run_checked};
use egret_tests::wait;

#[test]
fn a_round_trip_is_paid_by_the_handshake_and_by_each_exchange() {
    let provider = BuiltIn::start(&["--rtt", "100ms"]);
    let started = Instant::now();
    let mut client = provider.client();
    assert_eq!(client.get("a", "/get").response().status, 200);
    let first = started.elapsed();
    let started = Instant::now();
    assert_eq!(client.get("a", "/get").response().status, 200);
    let second = started.elapsed();
    assert!(first >= Duration::from_millis(200), "handshake and exchange: {first:?}");
    assert!(second >= Duration::from_millis(100), "{second:?}");
}

#[test]
fn a_handshake_of_tls_takes_a_round_trip_more() {
    let provider = BuiltIn::start(&["--rtt", "100ms", "--tls"]);
    let url = format!("https://localhost:{}/get", provider.address().port());
    let authority = provider.directory().join("egret-data/provider-ca.pem");
    let printed = run_checked(
        curl()
            .arg("--cacert")
            .arg(authority)
            .args(["--output", "/dev/null", "--write-out", "%{time_appconnect} %{time_total}"])
            .arg(url),
    );
    let times: Vec<f64> = printed.split(' ').map(|time| time.parse().unwrap()).collect();
    assert!(times[0] >= 0.2 && times[1] >= 0.3, "TCP, TLS and the exchange: {printed}");
}

#[test]
fn tls_is_spoken_with_a_certificate_that_its_authority_vouches_for() {
    let provider = BuiltIn::start(&["--tls", "--tls-ca", "ca/of/provider.pem"]);
    let file = provider.directory().join("ca/of/provider.pem");
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}/anything", provider.address().port());
        let printed = run_checked(curl().arg("--cacert").arg(&file).arg(&url));
        let echo: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(echo["url"], url);
    }
    let untrusted = run(curl().arg(format!("https://localhost:{}/get", provider.address().port())));
    assert_eq!(untrusted.status.code(), Some(60), "clients do not trust it by default");
    let pem = std::fs::read_to_string(file).unwrap();
    assert!(pem.contains("BEGIN CERTIFICATE") && !pem.contains("PRIVATE KEY"));
}

#[test]
fn a_line_carries_no_more_than_its_bandwidth_either_way() {
    let provider = BuiltIn::start(&["--bandwidth", "64KiB"]);
    let mut client = provider.client();
    let started = Instant::now();
    assert_eq!(client.get("a", "/bytes/16384").response().body.len(), 16_384);
    assert!(started.elapsed() >= Duration::from_millis(240), "{:?}", started.elapsed());
    let started = Instant::now();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 16384\r\n\r\n").send(vec![b'x'; 16_384]);
    assert_eq!(client.response().json()["bytes_received"], 16_384);
    assert!(started.elapsed() >= Duration::from_millis(240), "{:?}", started.elapsed());
}

#[test]
fn faults_reach_through_distance_and_tls() {
    let provider = BuiltIn::start(&["--rtt", "10ms"]);
    let mut client = provider.client();
    client.get("a", "/fault/reset");
    let end = std::io::Read::read(&mut client.stream(), &mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
    let secure = BuiltIn::start(&["--tls"]);
    let url = format!("https://localhost:{}/fault/truncate", secure.address().port());
    // curl's words are a partial file, and over HTTP/2 an error of the stream.
    for (version, code) in [("--http1.1", 18), ("--http2", 92)] {
        let output = run(curl().args(["--insecure", version, &url]));
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

#[test]
fn threads_share_the_connections() {
    let provider = BuiltIn::start(&["--threads", "3"]);
    let mut clients: Vec<_> = (0..30).map(|_| provider.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("a", "/get").response().status, 200);
    }
    let tasks = format!("/proc/{}/task", provider.process().id());
    let names: Vec<String> = std::fs::read_dir(tasks)
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("egret-provider")).count(), 3, "{names:?}");
    assert_eq!(provider.counters()["requests"], 30, "all threads count together");
}

#[test]
fn a_client_that_takes_too_long_for_a_head_is_let_go() {
    let provider = BuiltIn::start(&["--head-timeout", "300ms"]);
    let mut half = provider.client();
    half.send("GET /get HTTP/1.1\r\nHost: a\r\nx-slow: ");
    half.assert_closed();
    // This client may be held up before it sends its head. Then it gets no answer, and asks again.
    let (received, took) = wait::until("a client is answered", || {
        let started = Instant::now();
        let received = provider.client().offer("GET /delay/0.5 HTTP/1.1\r\nHost: a\r\n\r\n").rest();
        (!received.is_empty()).then(|| (received, started.elapsed()))
    });
    let received = String::from_utf8(received).unwrap();
    assert!(received.starts_with("HTTP/1.1 200 "), "an answer may take longer: {received}");
    assert_eq!(received.matches("HTTP/1.1 ").count(), 1, "{received}");
    // Half a second until the answer, and the time without another head.
    assert!(took >= Duration::from_millis(750), "{took:?}");
}
