//! Requests that `egret bench` sends, and its handling of responses.

use egret_tests::bench::{bench, count, summary};
use egret_tests::egret::Config;
use egret_tests::peers::Nginx;
use egret_tests::pki::Authority;
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};

#[test]
fn kept_connections_are_used_again_and_others_are_not() {
    let provider = Provider::plain();
    assert_eq!(count(&summary(&["-k", "-n", "60", "-c", "3", &provider.url()]), "/requests"), 60);
    assert_eq!(provider.connections(), 3);
    summary(&["-n", "10", "-c", "2", &provider.url()]);
    assert_eq!(provider.connections(), 13);
    assert_eq!(provider.requests().last().unwrap().values("connection"), ["close"]);
}

#[test]
fn bodies_in_chunks_and_by_length_and_by_close_are_measured_alike() {
    for (response, kept) in [
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nT: x\r\n\r\n",
            true,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world", true),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world",
            true,
        ),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello world", false),
    ] {
        let provider =
            Provider::scripted(move |peer| while peer.request().is_some() && peer.send(response) && kept {});
        let result = summary(&["-k", "-n", "20", "-c", "2", &provider.url()]);
        assert_eq!((count(&result, "/requests"), count(&result, "/failed")), (20, 0), "{response:?}");
        assert_eq!(count(&result, "/bytes_body"), 220, "{response:?}");
        assert_eq!(count(&result, "/bytes_received"), 20 * response.len() as u64, "{response:?}");
        assert_eq!(provider.connections(), if kept { 2 } else { 20 }, "{response:?}");
    }
}

#[test]
fn a_response_in_single_bytes_is_the_same_response() {
    let provider = Provider::scripted(|peer| {
        while peer.request().is_some() {
            let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
            if !response.iter().all(|byte| peer.send([*byte])) {
                break;
            }
        }
    });
    let result = summary(&["-k", "-n", "5", &provider.url()]);
    assert_eq!((count(&result, "/failed"), count(&result, "/bytes_body")), (0, 15), "{result:#}");
}

#[test]
fn a_kept_connection_that_was_closed_meanwhile_is_no_failure() {
    let provider = Provider::scripted(|peer| {
        // The server announces keep-alive, but closes after three requests.
        for _ in 0..3 {
            if peer.request().is_none() {
                return;
            }
            peer.send(ok("hello"));
        }
    });
    let result = summary(&["-k", "-n", "30", "-c", "2", &provider.url()]);
    assert_eq!((count(&result, "/requests"), count(&result, "/failed")), (30, 0), "{result:#}");
}

#[test]
fn failures_are_told_apart() {
    let broken = |script: fn(&mut egret_tests::provider::Peer)| Provider::scripted(script);
    for (provider, error) in [
        (broken(|peer| drop(peer.request())), "closed"),
        (
            broken(|peer| {
                let _ = peer.request();
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
            }),
            "closed",
        ),
        (
            broken(|peer| {
                let _ = peer.request();
                peer.send("SSH-2.0-nothing\r\n\r\n");
                peer.stall();
            }),
            "protocol",
        ),
        (
            broken(|peer| {
                let _ = peer.request();
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
                peer.stall();
            }),
            "protocol",
        ),
        (
            broken(|peer| {
                let _ = peer.request();
                peer.stall();
            }),
            "timeout",
        ),
        (
            broken(|peer| {
                let _ = peer.request();
                peer.send("HTTP/1.1 200");
                peer.reset();
            }),
            "receive",
        ),
    ] {
        // A busy machine may cause a timeout only where one is expected.
        let timeout = if error == "timeout" { "300ms" } else { "1H" };
        let ran = bench(&["-q", "-n", "2", "-s", timeout, &provider.url()]);
        assert!(
            ran.printed.contains(&format!("Failures:  {error} x 2\n")),
            "{error}:\n{}\n{}",
            ran.printed,
            ran.stderr
        );
        assert_eq!((ran.code, ran.value("Failed requests:")), (1, "2"), "{error}");
    }
}

#[test]
fn another_length_is_a_failure_unless_it_may_vary() {
    let provider = || {
        let answered = std::sync::atomic::AtomicUsize::new(0);
        Provider::with_responses(move |_| {
            let before = answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            ok(&"x".repeat(5 + usize::from(before % 5 == 4)))
        })
    };
    let ran = bench(&["-q", "-k", "-n", "10", &provider().url()]).well();
    assert_eq!((ran.value("Failed requests:"), ran.value("Document Length:")), ("2", "5 bytes"));
    assert!(ran.printed.contains("(Connect: 0, Receive: 0, Length: 2, Exceptions: 0)"));
    let ran = bench(&["-q", "-k", "-l", "-n", "10", &provider().url()]).well();
    assert_eq!((ran.value("Failed requests:"), ran.value("Document Length:")), ("0", "Variable"));
}

#[test]
fn statuses_are_counted_and_many_that_are_not_2xx_are_warned_of() {
    let provider = Provider::with_responses(|request| {
        let status = if request.target() == "/busy" { "503 Busy" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").into_bytes()
    });
    let (fine, busy) = (format!("{}/fine", provider.url()), format!("3={}/busy", provider.url()));
    let ran = bench(&["-q", "-k", "-n", "40", "--target", &busy, &fine]).well();
    assert_eq!(ran.value("Status codes:"), "200 x 10  503 x 30");
    assert_eq!(ran.value("Non-2xx responses:"), "30");
    assert!(ran.stderr.contains("WARNING: 30 of 40 responses are not 2xx"), "{}", ran.stderr);
    let result = summary(&["-k", "-n", "40", "--target", &busy, &fine]);
    assert_eq!((count(&result, "/statuses/503"), count(&result, "/targets/1/requests")), (30, 30));
}

#[test]
fn bodies_come_from_files_whole_by_line_and_in_chunks() {
    let provider = Provider::plain();
    let directory = Directory::default();
    let file = directory.write("bodies", "one\ntwo\nthree\n");
    let (file, url) = (file.to_str().unwrap(), provider.url());
    summary(&["-n", "1", "-p", file, "-T", "text/x", &url]);
    summary(&["-n", "1", "-u", file, "--chunked", &url]);
    summary(&["-k", "-n", "4", "--body-lines", file, &url]);
    let requests = provider.requests();
    assert_eq!(
        (requests[0].line.as_str(), requests[0].body.as_slice()),
        ("POST / HTTP/1.1", &b"one\ntwo\nthree\n"[..])
    );
    assert_eq!(requests[0].values("content-type"), ["text/x"]);
    assert_eq!(
        (requests[1].line.as_str(), requests[1].body.as_slice()),
        ("PUT / HTTP/1.1", &b"one\ntwo\nthree\n"[..])
    );
    assert_eq!(requests[1].values("transfer-encoding"), ["chunked"]);
    let lines: Vec<_> = requests[2..].iter().map(|request| String::from_utf8_lossy(&request.body)).collect();
    assert_eq!(lines, ["one", "two", "three", "one"]);
}

#[test]
fn a_recording_is_sent_again_in_its_order() {
    let provider = Provider::plain();
    let entry = |second: u32, method: &str, path: &str, extra: &str| {
        format!(
            r#"{{ "startedDateTime": "2026-01-01T00:00:0{second}.000Z", "time": 5, "cache": {{}},
            "timings": {{ "send": 1, "wait": 3, "receive": 1 }},
            "request": {{ "method": "{method}", "url": "https://api.example.com{path}", "httpVersion": "HTTP/1.1", "cookies": [],
              "headers": [ {{ "name": "X-Key", "value": "k{second}" }}, {{ "name": "Host", "value": "api.example.com" }} ],
              "queryString": [], "headersSize": -1, "bodySize": -1{extra} }},
            "response": {{ "status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
              "content": {{ "size": 0, "mimeType": "" }}, "redirectURL": "", "headersSize": -1, "bodySize": -1 }} }}"#
        )
    };
    let post = r#", "postData": { "mimeType": "application/json", "text": "{}" }"#;
    let entries = [entry(1, "GET", "/a?b=c", ""), entry(2, "POST", "/d", post)].join(",");
    let directory = Directory::default();
    let har = format!(
        r#"{{ "log": {{ "version": "1.2", "creator": {{ "name": "t", "version": "1" }}, "entries": [{entries}] }} }}"#
    );
    let file = directory.write("recorded.har", har);
    summary(&["-k", "-n", "3", "--har", file.to_str().unwrap(), &provider.url()]);
    let requests = provider.requests();
    let lines: Vec<_> = requests.iter().map(|request| request.line.as_str()).collect();
    assert_eq!(lines, ["GET /a?b=c HTTP/1.1", "POST /d HTTP/1.1", "GET /a?b=c HTTP/1.1"]);
    assert_eq!((requests[1].values("x-key"), requests[1].body.as_slice()), (vec!["k2"], &b"{}"[..]));
    assert_eq!(requests[1].values("host"), [provider.address().to_string()]);
}

#[test]
fn a_proxy_forwards_and_opens_tunnels() {
    let authority = Authority::default();
    let nginx = Nginx::start(&authority, "location / { return 200 \"secret\"; }");
    let egret = Config::default().start();
    let proxy = egret.address().to_string();
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let ca = ca.to_str().unwrap();
    let plain = summary(&["-k", "-n", "10", "-c", "2", "-X", &proxy, &nginx.url()]);
    assert_eq!((count(&plain, "/failed"), count(&plain, "/statuses/200")), (0, 10));
    let secure = summary(&["-k", "-n", "10", "-c", "2", "-X", &proxy, "--cacert", ca, &nginx.tls_url()]);
    assert_eq!((count(&secure, "/failed"), count(&secure, "/statuses/200")), (0, 10));
    assert_eq!(count(&secure, "/bytes_body"), 60);
    assert!(count(&secure, "/phases_us/connect/p50") > 0);
}

#[test]
fn sessions_are_resumed_only_if_asked_for() {
    let nginx = Nginx::start(&Authority::default(), "location / { return 204; }");
    for protocol in ["TLS1.2", "TLS1.3"] {
        let resumed = |more: &[&str]| {
            let options = ["-n", "40", "-c", "2", "--insecure", "-f", protocol, &nginx.tls_url()];
            let result = summary(&[&options, more].concat());
            assert_eq!((count(&result, "/requests"), count(&result, "/failed")), (40, 0), "{protocol}");
            count(&result, "/tls_resumed")
        };
        assert_eq!(resumed(&[]), 0, "{protocol}");
        // One of the two kept connections may begin when the other one has a session already.
        assert!(resumed(&["-k", "--resume"]) <= 1, "{protocol}");
        // The first connections have no session to resume.
        let count = resumed(&["--resume"]);
        assert!((36..40).contains(&count), "{protocol}: {count}");
    }
}

#[test]
fn a_certificate_is_believed_only_if_it_is_trusted_or_nobody_asks() {
    let nginx = Nginx::start(&Authority::default(), "location / { return 200 \"secret\"; }");
    let url = nginx.tls_url();
    let ran = bench(&["-q", "-n", "20", &url]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("--insecure"), "{}", ran.stderr);
    bench(&["-q", "-n", "5", "--insecure", &url]).well();
    bench(&["-q", "-n", "5", "--ab-compat", &format!("{url}/")]).well();
}

#[test]
fn checks_look_at_status_body_and_fields() {
    let provider = Provider::responding(
        "HTTP/1.1 201 Created\r\nX-Cache: hit\r\nContent-Length: 11\r\n\r\n{\"ok\":true}",
    );
    let url = provider.url();
    for (checks, failed) in [
        (&["--check-status", "2xx", "--check-body", "\"ok\":true", "--check-field", "x-cache: hit"][..], 0),
        (&["--check-status", "200"], 4),
        (&["--check-body", "false"], 4),
        (&["--check-field", "x-cache: miss"], 4),
    ] {
        let directory = Directory::default();
        let file = directory.join("result.json");
        let path = file.to_str().unwrap();
        let ran = bench(&[&["-q", "-k", "-n", "4", "--json", path], checks, &[&url]].concat());
        let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(count(&result, "/errors/check"), failed, "{checks:?}");
        assert_eq!(ran.code, i32::from(failed > 0), "{checks:?}");
    }
}

#[test]
fn siege_s_way_of_working_is_understood() {
    let provider = Provider::plain();
    let url = provider.url();
    let run = |time: &str| bench(&["-c", "3", "-t", time, "-b", &url]);
    // On a busy machine, a second can pass without a response: then it runs longer.
    let ran = ["1S", "10S"].into_iter().map(run).find(|ran| ran.code == 0);
    let ran = ran.unwrap_or_else(|| run("60S")).well();
    let seconds: f64 = ran.value("Time taken for tests:").trim_end_matches(" seconds").parse().unwrap();
    assert!(seconds >= 1.0, "{seconds}");
    assert!(ran.value("Complete requests:").parse::<u64>().unwrap() > 0);
}
