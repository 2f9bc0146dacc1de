//! Files of `egret bench`: complete or missing, with a valid schema; and its exit codes.

use std::process::Command;

use egret_tests::bench::{bench, command};
use egret_tests::process::{Directory, Process, in_terminal, run, run_checked, run_to};
use egret_tests::provider::{Provider, ok};
use serde_json::Value;

/// Validates a value against its schema, and checks that the schema describes every member.
fn check(schema: &Value, root: &Value, value: &Value, path: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let Some(properties) = schema["properties"].as_object() else { return };
    for name in schema["required"].as_array().unwrap() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{path}/{name} is missing");
    }
    for (name, value) in value.as_object().unwrap() {
        let schema = properties.get(name).unwrap_or_else(|| panic!("{path}/{name} is not in the schema"));
        assert!(schema.get("description").is_some(), "{path}/{name} is not explained");
        check(schema, root, value, &format!("{path}/{name}"));
    }
}

#[test]
fn the_json_has_what_its_schema_says_and_nothing_else() {
    let provider = Provider::plain();
    let result = egret_tests::bench::summary(&["-k", "-n", "20", "-c", "2", &provider.url()]);
    let schema: Value = serde_json::from_str(&bench(&["--json-schema"]).well().printed).unwrap();
    check(&schema, &schema, &result, "");
    for pointer in [
        "/requests_per_second",
        "/latency_us/p99_9",
        "/phases_us/first_byte/p50",
        "/client/cpu_share",
        "/started",
    ] {
        assert!(result.pointer(pointer).is_some_and(Value::is_number), "{pointer}");
    }
    assert_eq!(result["version"], 1);
}

#[test]
fn histograms_are_a_log_that_tools_read() {
    let provider = Provider::plain();
    let directory = Directory::default();
    let file = directory.join("run.hlog");
    bench(&["-q", "-k", "-n", "20", "--hdr", file.to_str().unwrap(), &provider.url()]).well();
    let log = std::fs::read_to_string(file).unwrap();
    assert!(log.contains("#[StartTime: "), "{log}");
    for tag in ["total", "first_byte", "connect"] {
        let line = log.lines().find(|line| line.starts_with(&format!("Tag={tag},"))).unwrap();
        assert!(line.contains(",HISTFAAA"), "version 2, compressed: {line}");
    }
}

#[test]
fn a_full_disk_is_a_failure_and_leaves_nothing() {
    let provider = Provider::plain();
    for option in ["-e", "-g", "--json", "--hdr"] {
        let ran = bench(&["-q", "-n", "5", option, "/dev/full", &provider.url()]);
        assert_eq!(ran.code, 1, "{option}: {}", ran.stderr);
        assert!(ran.stderr.contains("/dev/full cannot be written"), "{}", ran.stderr);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_run() {
    let provider = Provider::plain();
    for option in ["-e", "-g", "--json", "--hdr"] {
        let ran = bench(&["-q", "-n", "5", option, "/nowhere/at/all", &provider.url()]);
        assert_eq!((ran.code, provider.requests().len()), (1, 0), "{option}: {}", ran.stderr);
    }
}

#[test]
fn a_provider_that_dies_mid_run_leaves_no_file_that_looks_whole() {
    let directory = Directory::default();
    let file = directory.join("result.json");
    let provider = std::sync::Arc::new(std::sync::Mutex::new(None));
    let own = std::sync::Arc::clone(&provider);
    *provider.lock().unwrap() = Some(Provider::scripted(move |peer| {
        for number in 0.. {
            if peer.request().is_none() {
                return;
            }
            if number == 50 {
                // This drops its listener as well.
                drop(own.lock().unwrap().take());
                return;
            }
            peer.send(ok("hello"));
        }
    }));
    let url = provider.lock().unwrap().as_ref().unwrap().url();
    let ran = bench(&["-q", "-k", "-n", "1000", "--json", file.to_str().unwrap(), &url]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("Test aborted") && ran.stderr.contains("cannot connect"), "{}", ran.stderr);
    assert_eq!(
        ran.value("Complete requests:").parse::<u64>().unwrap() / 10,
        6,
        "the report covers the existing turns"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_run_reports_what_there_is_and_writes_no_file() {
    let provider = Provider::plain();
    let directory = Directory::default();
    let [json, out] = ["result.json", "out"].map(|name| directory.join(name));
    let stdout = std::fs::File::create(&out).unwrap();
    let mut bench = command();
    bench.args(["-k", "-q", "-t", "60", "--json"]).arg(&json).arg(provider.url()).stdout(stdout);
    let mut process = Process::start(&mut bench);
    provider.until_requested(10);
    process.signal("INT");
    assert_eq!(process.until_ended().code(), Some(1));
    assert!(process.stderr().contains("Interrupted"), "{}", process.stderr());
    assert!(std::fs::read_to_string(out).unwrap().contains("Complete requests:"));
    assert!(!json.exists());
}

#[test]
fn thresholds_decide_on_the_exit_code() {
    let provider = Provider::plain();
    let url = provider.url();
    for (condition, code) in [
        ("p99>10s", 0),
        ("rps<0.001", 0),
        ("errors>0", 0),
        ("non_2xx>0%", 0),
        ("p50>0us", 1),
        ("max>=0ms", 1),
        ("rps>1", 1),
        ("errors<=0%", 1),
    ] {
        let ran = bench(&["-q", "-k", "-n", "20", "--fail-if", condition, &url]);
        assert_eq!(ran.code, code, "{condition}: {}", ran.stderr);
        assert_eq!(
            ran.stderr.contains(&format!("Threshold broken: {condition}: measured ")),
            code == 1,
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn progress_is_told_in_ab_s_lines_where_nobody_watches() {
    let provider = Provider::plain();
    let ran = bench(&["-k", "-n", "1000", &provider.url()]).well();
    assert!(ran.stderr.starts_with("Completed 100 requests\nCompleted 200 requests\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("Completed 1000 requests\nFinished 1000 requests\n"), "{}", ran.stderr);
    assert!(!bench(&["-k", "-q", "-n", "1000", &provider.url()]).well().stderr.contains("Completed"));
    assert!(!bench(&["-k", "-n", "150", &provider.url()]).well().stderr.contains("Completed"));
}

#[test]
fn output_may_be_cut_short_by_its_reader() {
    let provider = Provider::plain();
    let script =
        format!("{} bench -q -n 3 {} | head -n 1", egret_tests::egret::binary().display(), provider.url());
    assert!(run_checked(Command::new("sh").args(["-c", &script])).starts_with("This is egret bench"));
    let mut full = command();
    full.args(["-q", "-n", "3", &provider.url()]);
    let device = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(run_to(&mut full, device.into()).status.code(), Some(1));
}

/// The progress bar of a terminal that cannot move its cursor up: one line, overwritten, and removed at the
/// end.
#[test]
fn the_bar_is_one_line_of_a_terminal_and_leaves_nothing_behind() {
    let provider = Provider::plain();
    let egret = command().get_program().to_str().unwrap().to_owned();
    let url = provider.url();
    let shown = |(time, part): (&str, &'static str)| {
        let line = format!("stty cols 60; TERM=dumb exec {egret} bench -k -c 2 -t {time} {url}");
        let output = run(&mut in_terminal(&line));
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.success() && printed.contains(part)).then_some((printed, part))
    };
    // On a busy machine, half a second can be too short for the bar: then it runs longer.
    let runs = [("500ms", " of 0.5 s, "), ("10S", " of 10 s, ")];
    let (printed, part) = runs.into_iter().find_map(shown).expect("a run with a bar");
    let (_, rest) = printed.split_once("(be patient)\r\n").unwrap();
    let (bar, report) = rest.split_once("\r\nServer Software:").unwrap();
    assert!(report.contains("Complete requests:"), "{report}");
    assert!(bar.trim_end_matches("\r\n").lines().count() == 1, "{bar:?}");
    let drawn: Vec<&str> = bar.trim_end().split('\r').filter(|text| !text.is_empty()).collect();
    assert!(drawn.len() >= 2, "{drawn:?}");
    let (last, before) = drawn.split_last().unwrap();
    assert_eq!(last.trim_end(), "\x1b[J", "{drawn:?}");
    for text in before {
        let text = text.strip_suffix("\x1b[J").unwrap();
        assert!(text.contains(part) && text.chars().count() < 60, "{text:?}");
    }
}
