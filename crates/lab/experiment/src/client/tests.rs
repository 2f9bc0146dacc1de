//! Tests of parsing client output, with output in the form of their releases.

use super::percentiles::PERCENTILES_CSV;
use super::*;
use crate::client_settings::Protocol;
use crate::figures::EventDelays;

/// Creates a directory with a percentile CSV in which row `n` is `n` ms.
fn with_percentiles(name: &str) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("egret-lab-client-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let rows: Vec<String> = (0..=100).map(|percent| format!("{percent},{percent}.000\n")).collect();
    let csv = format!("Percentage served,Time in ms\n{}", rows.concat());
    std::fs::write(directory.join(PERCENTILES_CSV), csv).unwrap();
    directory
}

#[test]
fn abs_report_is_read() {
    let directory = with_percentiles("ab");
    let printed = "Concurrency Level:      100\nTime taken for tests:   1.612 seconds\nComplete requests:      1000\n\
        Failed requests:        3\n   (Connect: 0, Receive: 0, Length: 3, Exceptions: 0)\nNon-2xx responses:      2\n\
        Requests per second:    620.35 [#/sec] (mean)\n";
    let figures = ClientKind::Ab.figures(&directory, printed).unwrap();
    assert_eq!((figures.requests, figures.failed), (1000, 5));
    assert_eq!((figures.duration_s, figures.requests_per_second), (1.612, 620.35));
    assert_eq!((figures.percentiles_ms.len(), figures.percentiles_ms[99]), (101, 99.0));
    assert_eq!(
        ClientKind::Ab.figures(&directory, "").unwrap_err().to_string(),
        "its report has no `Complete requests:`"
    );
    std::fs::write(directory.join(PERCENTILES_CSV), "Percentage served,Time in ms\n0,1\n").unwrap();
    assert!(ClientKind::Ab.figures(&directory, printed).unwrap_err().to_string().contains("101 rows"));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn sieges_json_is_read_behind_its_banner() {
    let printed = "New configuration template added to /root/.siege\n{\t\"transactions\":\t50,\n\"availability\":100.00,\n\
        \"elapsed_time\":\t0.04,\n\"response_time\":\t0.01,\n\"transaction_rate\":\t1250.00,\n\"successful_transactions\": 40,\n\
        \"failed_transactions\":\t2\n}\n";
    let figures = ClientKind::Siege.figures(Path::new("."), printed).unwrap();
    assert_eq!((figures.requests, figures.failed, figures.mean_ms), (50, 12, Some(10.0)));
    assert!(figures.percentiles_ms.is_empty());
    assert!(ClientKind::Siege.figures(Path::new("."), "[error] no").is_err());
}

#[test]
fn wrks_last_line_is_read() {
    let times: Vec<String> = (0..=100).map(|percent| (percent * 10).to_string()).collect();
    let printed = format!(
        "Running 1s test\n{{\"requests\": 2000, \"duration_us\": 1000000, \"failed\": 1, \"mean_us\": 512.5, \"p99_9_us\": 999, \
         \"percentiles_us\": [{}]}}\n",
        times.join(", ")
    );
    let figures = ClientKind::Wrk.figures(Path::new("."), &printed).unwrap();
    assert_eq!(
        (figures.requests_per_second, figures.mean_ms, figures.percentiles_ms[50]),
        (2000.0, Some(0.5125), 0.5)
    );
    assert!(ClientKind::Wrk.figures(Path::new("."), "Segmentation fault").is_err());
}

#[test]
fn benchs_json_is_read() {
    let directory = with_percentiles("bench");
    let json = r#"{ "version": 1, "url": "http://x/", "requests": 100, "duration_s": 2.0, "requests_per_second": 50.0,
        "latency_us": { "mean": 1500.0, "p99_9": 9000 }, "latency_2xx_us": { "p50": 1, "p99": 8000 }, "statuses": { "200": 97, "503": 3 }, "errors": { "connect": 2 },
        "tls_resumed": 7, "bytes_body": 5000, "events": 40, "event_delay_us": { "p50": 11, "p99": 90, "max": 99 },
        "client": { "cpu_share": 0.2, "saturated": false } }"#;
    std::fs::write(directory.join("bench.json"), json).unwrap();
    let figures = ClientKind::Bench.figures(&directory, "").unwrap();
    assert_eq!((figures.requests, figures.failed, figures.p99_9_ms), (100, 5, Some(9.0)));
    assert_eq!((figures.client_saturated, figures.resumed), (Some(false), Some(7)));
    assert_eq!(figures.served_p99_ms, Some(8.0));
    let delays = EventDelays { events: 40, p50_us: 11, p99_us: 90 };
    assert_eq!((figures.bytes_body, figures.event_delays), (Some(5_000), Some(delays)));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn ohas_rows_are_read() {
    let rows: Vec<String> =
        (0..200).map(|row| format!("{}.5,0,0,0.001,0.{:03},110,{}\n", row, row + 1, 200)).collect();
    let heading = "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n";
    let printed = format!("{heading}{}200.5,0,0,0.1,0.5,110,503\n", rows.concat());
    let figures = ClientKind::Oha.figures(Path::new("."), &printed).unwrap();
    assert_eq!((figures.requests, figures.failed, figures.duration_s), (201, 1, 200.5));
    assert_eq!((figures.percentiles_ms.len(), figures.percentiles_ms[50]), (101, 101.0));
    assert!(ClientKind::Oha.figures(Path::new("."), "").unwrap_err().to_string().contains("no rows"));
    let broken = format!("{heading}0,0,0,0,soon,110,200\n");
    assert!(ClientKind::Oha.figures(Path::new("."), &broken).unwrap_err().to_string().contains("soon"));
    assert_eq!(ClientKind::Oha.figures(Path::new("."), heading).unwrap().requests, 0);
}

#[test]
fn h2loads_report_and_log_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let rows: Vec<String> = (1..=200).map(|time| format!("17959\t200\t{time}000\n")).collect();
    let log = directory.path().join("h2load.tsv");
    std::fs::write(&log, format!("{}17959\t503\t201000\n", rows.concat())).unwrap();
    let printed = "finished in 2.01s, 100.50 req/s, 18.04KB/s\n\
        requests: 202 total, 202 started, 202 done, 200 succeeded, 2 failed, 1 errored, 0 timeout\n\
        status codes: 200 2xx, 0 3xx, 0 4xx, 1 5xx\n";
    let figures = ClientKind::H2load.figures(directory.path(), printed).unwrap();
    assert_eq!((figures.requests, figures.failed, figures.duration_s), (201, 2, 2.0));
    assert_eq!((figures.percentiles_ms.len(), figures.percentiles_ms[50]), (101, 101.0));
    let problem = |printed| ClientKind::H2load.figures(directory.path(), printed).unwrap_err().to_string();
    assert_eq!(problem("no route"), "its report has no `finished in`");
    std::fs::write(&log, "17959\t200\tsoon\n").unwrap();
    assert_eq!(problem(printed), "invalid row `17959\t200\tsoon`");
}

/// The command line of a client with these settings.
fn command(text: &str, urls: &str) -> String {
    let text = format!("title: t\nprovider: {{}}\nscenarios: [{{ name: a }}]\nclient: {text}\n");
    let experiment = crate::fixture::experiment(&text);
    let client = experiment.client(&experiment.cases[0], &experiment.scenarios[0]);
    let directory = Path::new("DIR");
    let urls: Vec<String> = urls.split(' ').map(str::to_owned).collect();
    let (amount, fields) = (client.amount, &["A: b c".into()]);
    let proxy = client.resume.then_some("h:1");
    let task = ClientTask { client: &client, amount, urls: &urls, proxy, fields, directory };
    let command = client.kind.command(&task);
    let words: Vec<_> = command.arguments.iter().map(|word| word.to_str().unwrap()).collect();
    let body =
        command.files.iter().find(|(name, _)| *name == ".body").map_or(0, |(_, content)| content.len());
    // wrk gets the size of the body and makes the body itself. The payload of a call is in a message.
    let in_file = match client.kind {
        ClientKind::Wrk => 0,
        _ if client.protocol == Protocol::Grpc => client.body_bytes + 7,
        _ if client.json.is_some() => 2,
        _ => client.body_bytes,
    };
    assert_eq!(body as u64, in_file);
    assert!(words.windows(2).any(|pair| pair == ["-H", "A: b c"]), "{words:?}");
    words.join(" ").replacen(" -H A: b c", "", 1)
}

#[test]
fn each_client_is_called_for_the_same_work() {
    let url = "http://127.0.0.1:9/x";
    for (settings, expected) in [
        (
            "{ requests: 500, concurrency: 5 }",
            "bench -q -l -r -c 5 -n 500 -e DIR/percentiles.csv --json DIR/bench.json --hdr DIR/latency.hdr http://127.0.0.1:9/x",
        ),
        (
            "{ duration: 3s, concurrency: 5, keep_alive: true, threads: 2, requests_per_second: 50, body: 1KiB }",
            "bench -q -l -r -c 5 -t 3 -k --threads 2 --rate 50 -T application/octet-stream -p DIR/.body -e DIR/percentiles.csv \
             --json DIR/bench.json --hdr DIR/latency.hdr http://127.0.0.1:9/x",
        ),
        (
            "{ requests: 500, concurrency: 5, json: '{}', events: true }",
            "bench -q -l -r -c 5 -n 500 --events -T application/json -p DIR/.body -e DIR/percentiles.csv --json DIR/bench.json \
             --hdr DIR/latency.hdr http://127.0.0.1:9/x",
        ),
        // The helper asks for a tunnel where sessions are resumed.
        (
            "{ requests: 500, concurrency: 5, resume: true }",
            "bench -q -l -r -c 5 -n 500 --resume -X h:1 -e DIR/percentiles.csv --json DIR/bench.json --hdr DIR/latency.hdr \
             http://127.0.0.1:9/x",
        ),
        (
            "{ kind: ab, requests: 500, concurrency: 5, keep_alive: true }",
            "-q -l -r -c 5 -n 500 -k -e DIR/percentiles.csv http://127.0.0.1:9/x",
        ),
        // The `-n` after `-t` raises the 50,000 requests that `-t` sets.
        (
            "{ kind: ab, duration: 3s, body: 10B }",
            "-q -l -r -c 100 -t 3 -n 50000000 -T application/octet-stream -p DIR/.body -e DIR/percentiles.csv http://127.0.0.1:9/x",
        ),
        (
            "{ kind: siege, requests: 501, concurrency: 5 }",
            "-b -j -c 5 -r 101 -R DIR/siegerc http://127.0.0.1:9/x",
        ),
        ("{ kind: siege, duration: 3s }", "-b -j -c 100 -t 3S -R DIR/siegerc http://127.0.0.1:9/x"),
        (
            "{ kind: wrk, duration: 3s, keep_alive: true, threads: 2, body: 7B }",
            "-t2 -c100 -d3s -s DIR/figures.lua http://127.0.0.1:9/x -- 7",
        ),
        (
            "{ requests: 500, concurrency: 5, protocol: http2, streams: 20 }",
            "bench -q -l -r -c 5 -n 500 --http2 -m 20 -e DIR/percentiles.csv --json DIR/bench.json --hdr DIR/latency.hdr \
             http://127.0.0.1:9/x",
        ),
        (
            "{ requests: 500, concurrency: 5, protocol: grpc, body: 9B }",
            "bench -q -l -r -c 5 -n 500 --http2 -m 1 -H te: trailers --check-body x -T application/grpc -p DIR/.body \
             -e DIR/percentiles.csv --json DIR/bench.json --hdr DIR/latency.hdr http://127.0.0.1:9/x",
        ),
        (
            "{ kind: h2load, duration: 3s, concurrency: 5, keep_alive: true, protocol: http2, streams: 2, threads: 2 }",
            "-c 5 -m 2 -D 3 -t 2 --log-file DIR/h2load.tsv http://127.0.0.1:9/x",
        ),
        (
            "{ kind: h2load, requests: 500, keep_alive: true, protocol: grpc, body: 9B }",
            "-c 100 -m 1 -n 500 -H te: trailers -H content-type: application/grpc -d DIR/.body --log-file DIR/h2load.tsv \
             http://127.0.0.1:9/x",
        ),
        (
            "{ kind: oha, requests: 500 }",
            "--no-tui --output-format csv --redirect 0 -c 100 -n 500 --disable-keepalive http://127.0.0.1:9/x",
        ),
        (
            "{ kind: oha, duration: 3s, keep_alive: true, body: 5B }",
            "--no-tui --output-format csv --redirect 0 -c 100 -z 3s -m POST -T application/octet-stream -D DIR/.body http://127.0.0.1:9/x",
        ),
    ] {
        assert_eq!(command(settings, url), expected, "{settings}");
    }
    assert!(command("{ requests: 500 }", "https://127.0.0.1:9/").contains(" --insecure "));
}

#[test]
fn requests_are_spread_evenly_over_several_urls() {
    let spread = command("{ requests: 500 }", "http://a/ http://b/ http://c/");
    assert!(spread.ends_with(" --target 1=http://b/ --target 1=http://c/ http://a/"), "{spread}");
}

#[test]
fn figures_that_no_measurement_has_are_refused() {
    let oha = "request-start,request-duration,status\n0,-1,200\n";
    assert_eq!(ClientKind::Oha.figures(Path::new("."), oha).unwrap_err().to_string(), "invalid figure -1000");
    let siege = r#"{"transactions":1,"successful_transactions":1,"failed_transactions":0,"elapsed_time":-0.5,"response_time":0,"transaction_rate":1}"#;
    assert_eq!(
        ClientKind::Siege.figures(Path::new("."), siege).unwrap_err().to_string(),
        "invalid figure -0.5"
    );
}
