//! Tests of the options as ab has them, and of the plans that they make.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::fixture;

fn options(change: impl FnOnce(&mut Options)) -> Options {
    fixture::options("http://127.0.0.1:9/x", change)
}

fn refusal(change: impl FnOnce(&mut Options)) -> String {
    let error = options(change).compile().unwrap_err();
    assert!(error.is_misuse(), "{error}");
    error.to_string()
}

#[test]
fn contradictory_options_are_refused() {
    assert!(refusal(|it| it.requests = Some(0)).contains("Invalid number of requests"));
    assert!(refusal(|it| it.concurrency = 2).contains("Cannot use concurrency level greater than total"));
    assert!(refusal(|it| it.concurrency = 20_001).contains("Invalid concurrency"));
    assert!(refusal(|it| it.rate = Some((0.0, 0.0))).contains("--rate"));
    assert!(refusal(|it| it.rate = Some((1.0, 2.0))).contains("add -t"));
    assert!(refusal(|it| it.fields = vec!["a: b\r\nc: d".into()]).contains("-H"));
    assert!(refusal(|it| it.authorization = Some("user".into())).contains("USER:PASSWORD"));
    assert!(refusal(|it| it.url = None).contains("no URL"));
    assert!(refusal(|it| it.method = Some("GE T".into())).contains("-m"));
    assert!(
        refusal(|it| {
            it.head = true;
            it.post = Some("/dev/null".into());
        })
        .contains("Cannot mix HEAD")
    );
}

#[test]
fn time_alone_has_no_cap_unless_ab_is_imitated() {
    let timed = |compat| {
        let options = options(|it| {
            it.time = Some(Duration::from_secs(1));
            it.ab_compat = compat;
        });
        options.compile().unwrap().plan.count
    };
    assert_eq!((timed(false), timed(true)), (None, Some(50_000)));
    assert_eq!(options(|_| {}).compile().unwrap().plan.count, Some(1));
}

#[test]
fn ab_needs_a_slash_and_sends_the_last_cookie() {
    let bare = |compat| {
        options(|it| {
            it.url = Some("http://127.0.0.1:9".into());
            it.cookies = vec!["a=1".into(), "b=2".into()];
            it.ab_compat = compat;
        })
    };
    assert!(bare(true).compile().unwrap_err().to_string().contains("invalid URL"));
    let text = |options: Options| {
        String::from_utf8(options.compile().unwrap().plan.requests[0].bytes.clone()).unwrap()
    };
    assert!(text(bare(false)).contains("Cookie: a=1; b=2\r\n"));
    let mut compat = bare(true);
    compat.url = Some("http://127.0.0.1:9/".into());
    assert!(text(compat).contains("Cookie: b=2\r\n"));
}

#[test]
fn targets_share_requests_by_weight_and_hosts_are_dialled_once() {
    let compiled = options(|it| {
        it.url = None;
        it.targets =
            ["30=http://127.0.0.1:9/a", "10=http://127.0.0.1:9/b"].map(|text| text.parse().unwrap()).to_vec();
    })
    .compile()
    .unwrap();
    assert_eq!((compiled.plan.order.as_slice(), compiled.plan.destinations.len()), (&[0, 0, 1, 0][..], 1));
    assert!("x=http://a/".parse::<Target>().is_err() && "0=http://a/".parse::<Target>().is_err());
}

#[test]
fn a_far_target_needs_consent_above_a_modest_load() {
    // An address for documentation (RFC 5737).
    let far = |change: fn(&mut Options)| {
        options(|it| {
            it.url = Some("http://192.0.2.1/".into());
            change(it);
        })
        .compile()
    };
    assert!(far(|it| it.requests = Some(1_000)).is_ok());
    for change in [
        |it: &mut Options| it.requests = Some(1_001),
        |it: &mut Options| it.time = Some(Duration::from_secs(1)),
        |it: &mut Options| (it.requests, it.concurrency) = (Some(11), 11),
        |it: &mut Options| (it.requests, it.rate) = (Some(11), Some((51.0, 51.0))),
    ] {
        let error = far(change).unwrap_err();
        assert!(error.is_misuse() && error.to_string().contains("--yes"), "{error}");
    }
    assert!(far(|it| (it.requests, it.yes) = (Some(100_000), true)).is_ok());
}

#[test]
fn contradictions_of_the_command_line_are_rejected_as_ab_does() {
    for (change, expected) in [
        ((|it| it.concurrency = 0) as fn(&mut Options), "Invalid concurrency: -c must be from 1 to 20000"),
        (|it| it.threads = 0, "--threads must be from 1 to 256"),
        (|it| it.threads = 257, "--threads must be from 1 to 256"),
        (|it| it.timeout = Duration::ZERO, "-s must be above 0 seconds"),
        (|it| it.time = Some(Duration::ZERO), "-t must be above 0 seconds"),
        (|it| it.rate = Some((1.0, 2e7)), "--rate must be above 0"),
        (|it| it.rate = Some((f64::NAN, 1.0)), "--rate must be above 0"),
        (
            |it| (it.rate, it.ramp_up) = (Some((1.0, 1.0)), Duration::from_secs(1)),
            "--ramp-up applies only without a rate",
        ),
        (
            |it| (it.requests, it.tsv) = (Some(50_000_001), Some("a.tsv".into())),
            "-g keeps each request in memory",
        ),
        (|it| (it.head, it.method) = (true, Some("GET".into())), "Cannot mix -i with -m"),
        (|it| (it.ab_compat, it.chunked) = (true, true), "--chunked requires HTTP/1.1"),
        (|it| it.cookies = vec!["a=1\r\nX: y".into()], "must each be a single line"),
        (|it| it.content_type = "a\nb".into(), "must each be a single line"),
        (|it| it.proxy_authorization = Some("user".into()), "-A and -P take USER:PASSWORD"),
        (|it| (it.har, it.head) = (Some("a.har".into()), true), "--har defines the methods and bodies"),
        (|it| it.targets = vec![it.targets()[0].clone(); 64], "at most 64 targets are allowed"),
        (|it| it.body_lines = Some("/dev/null".into()), "/dev/null: no lines to send"),
        (|it| it.buffer = Some("x".into()), "-b x: expected a number of bytes, or no value"),
        (|it| it.check_status = Some("20".into()), "`20` is not a status code to check"),
    ] {
        let message = refusal(change);
        assert!(message.contains(expected), "{message}\nis not\n{expected}");
    }
}

#[test]
fn a_file_of_requests_has_each_kept() {
    let kept = |file: Option<PathBuf>| options(|it| it.tsv = file).compile().unwrap().plan.samples_max;
    assert_eq!((kept(None), kept(Some("a.tsv".into()))), (0, 1));
}

#[test]
fn a_buffer_has_the_size_that_ab_gives_it_or_none() {
    let bytes = |text: Option<&str>| {
        options(|it| it.buffer = text.map(str::to_owned)).compile().unwrap().plan.socket.buffer_bytes
    };
    assert_eq!([bytes(Some("8192")), bytes(Some("")), bytes(None)], [Some(8_192), None, None]);
}

#[test]
fn the_pace_of_a_run_is_that_of_its_options() {
    let pace = |change: fn(&mut Options)| options(change).compile().unwrap().plan.pace;
    let ramp = Duration::from_secs(3);
    assert_eq!(pace(|it| it.ramp_up = Duration::from_secs(3)), Pace::Closed { ramp_up: ramp });
    assert_eq!(pace(|it| it.rate = Some((5.0, 5.0))), Pace::Open(Rate::constant(5.0)));
    // A changing rate reaches its end with the time, of which the warm-up is a part.
    let changing = pace(|it| {
        (it.rate, it.warmup) = (Some((1.0, 9.0)), Duration::from_secs(2));
        it.time = Some(Duration::from_secs(10));
    });
    assert_eq!(changing, Pace::Open(Rate { from: 1.0, to: 9.0, over: Duration::from_secs(12) }));
}

/// The text of each request, in order of sending, of options whose bodies or recording are in this file.
fn sent(content: &str, change: impl FnOnce(&mut Options, PathBuf)) -> Vec<String> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("egret-bench-options-{}-{number}", std::process::id()));
    std::fs::write(&file, content).unwrap();
    let plan = options(|it| change(it, file.clone())).compile().unwrap().plan;
    std::fs::remove_file(file).unwrap();
    let text = |index: &usize| String::from_utf8(plan.requests[*index].bytes.clone()).unwrap();
    plan.order.iter().map(text).collect()
}

#[test]
fn bodies_come_from_files_with_the_method_that_ab_uses() {
    let post = sent("a=1", |it, file| it.post = Some(file));
    assert!(post[0].starts_with("POST /x HTTP/1.1\r\n") && post[0].ends_with("\r\n\r\na=1"), "{post:?}");
    assert!(post[0].contains("Content-Length: 3\r\nContent-Type: text/plain\r\n"), "{post:?}");
    let put = sent("a=1", |it, file| it.put = Some(file));
    assert!(put[0].starts_with("PUT /x HTTP/1.1\r\n"), "{put:?}");
    let patch = sent("a=1", |it, file| (it.put, it.method) = (Some(file), Some("PATCH".into())));
    assert!(patch[0].starts_with("PATCH /x HTTP/1.1\r\n"), "{patch:?}");
    let head = options(|it| it.head = true).compile().unwrap();
    assert!(head.plan.requests[0].bytes.starts_with(b"HEAD /x HTTP/1.1\r\n"));
    assert!(!head.has_body);
}

#[test]
fn each_target_gets_the_lines_in_turn() {
    let lines = sent("one\r\n\ntwo\n", |it, file| {
        (it.url, it.body_lines) = (None, Some(file));
        it.targets =
            ["2=http://127.0.0.1:9/a", "1=http://127.0.0.1:9/b"].map(|text| text.parse().unwrap()).into();
    });
    let short: Vec<String> =
        lines.iter().map(|text| format!("{} {}", &text[5..7], text.rsplit("\r\n").next().unwrap())).collect();
    // The order of the targets, A B A, twice: each target has sent each line as often as the other.
    assert_eq!(short, ["/a one", "/b one", "/a two", "/a one", "/b two", "/a two"]);
}

const RECORDING: &str = r#"{"log":{"version":"1.2","entries":[
    {"startedDateTime":"2026-01-01T00:00:00Z","request":{"method":"POST","url":"http://127.0.0.1:9/first?a=1","headers":[
        {"name":"Host","value":"old"},{"name":"Content-Length","value":"9"},{"name":"content-type","value":"a/b"},
        {"name":"X-Kept","value":"yes"},{"name":"X-Own","value":"recorded"}],"postData":{"text":"body"}},"response":{"status":200}},
    {"startedDateTime":"2026-01-01T00:00:01Z","request":{"method":"GET","url":"http://127.0.0.1:9/second"},"response":{"status":200}}
]}}"#;

#[test]
fn a_recording_is_replayed_without_the_fields_of_its_connection() {
    let requests = sent(RECORDING, |it, file| {
        it.url = None;
        (it.har, it.fields) = (Some(file), vec!["X-Own: mine".into()]);
    });
    assert_eq!(requests.len(), 2);
    assert!(requests[0].starts_with("POST /first?a=1 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n"), "{}", requests[0]);
    assert!(
        requests[0].contains("Content-Length: 4\r\nContent-Type: a/b\r\n") && requests[0].ends_with("body")
    );
    assert!(requests[0].contains("X-Kept: yes\r\nX-Own: mine\r\n") && !requests[0].contains("recorded"));
    assert!(requests[1].starts_with("GET /second HTTP/1.1\r\n"));
    let elsewhere = sent(RECORDING, |it, file| {
        it.url = Some("http://127.0.0.1:8/ignored".into());
        it.har = Some(file);
    });
    assert!(
        elsewhere[0].starts_with("POST /first?a=1 HTTP/1.1\r\nHost: 127.0.0.1:8\r\n"),
        "{}",
        elsewhere[0]
    );
}

#[test]
fn a_proxy_gets_absolute_targets_and_tunnels() {
    let plan = |url: &str| {
        let options = options(|it| {
            it.url = Some(url.into());
            (it.proxy, it.insecure) = (Some("127.0.0.1:8".into()), true);
        });
        options.compile().unwrap().plan
    };
    let plain = plan("http://127.0.0.1:9/x");
    assert!(plain.requests[0].bytes.starts_with(b"GET http://127.0.0.1:9/x HTTP/1.1\r\n"));
    assert_eq!((plain.destinations[0].address.port(), plain.destinations[0].tunnel.is_none()), (8, true));
    let secure = plan("https://127.0.0.1:9/x");
    assert!(secure.requests[0].bytes.starts_with(b"GET /x HTTP/1.1\r\n"));
    let tunnel = secure.destinations[0].tunnel.as_deref().unwrap();
    assert!(tunnel.starts_with(b"CONNECT 127.0.0.1:9 HTTP/1.1\r\n"));
    assert!(secure.destinations[0].tls.is_some());
}

#[test]
fn the_host_field_names_the_server_of_a_certificate() {
    let name = |fields: Vec<String>| {
        let run = options(|it| {
            it.url = Some("https://127.0.0.1:9/".into());
            (it.fields, it.insecure) = (fields, true);
        })
        .compile();
        run.map(|run| run.plan.destinations[0].tls.as_ref().unwrap().1.to_str().into_owned())
    };
    assert_eq!(name(Vec::new()).unwrap(), "127.0.0.1");
    assert_eq!(name(vec!["host: api.test:443".into()]).unwrap(), "api.test");
    assert!(name(vec!["Host: a b".into()]).unwrap_err().to_string().contains("invalid URL `a b`"));
}
