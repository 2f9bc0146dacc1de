//! The built-in provider replays a recording.

use std::time::{Duration, Instant};

use egret_tests::built_in::BuiltIn;
use egret_tests::process::Directory;
use egret_tests::provider_pair::request;

const HAR: &str = r#"{"log": {"version": "1.2", "creator": {"name": "tests", "version": "1"}, "entries": [
  {"startedDateTime": "2026-01-01T00:00:01Z", "time": 80, "cache": {}, "timings": {"send": 0, "wait": 60, "receive": 20},
   "request": {"method": "GET", "url": "https://api.test/v1/items?page=2", "headers": []},
   "response": {"status": 200, "statusText": "OK", "headers": [{"name": "Content-Type", "value": "application/json"},
     {"name": "Content-Encoding", "value": "br"}, {"name": "X-Page", "value": "2"}],
     "content": {"size": 2, "mimeType": "application/json", "text": "[]"}}},
  {"startedDateTime": "2026-01-01T00:00:02Z", "time": 1, "cache": {}, "timings": {"send": 0, "wait": 1, "receive": 0},
   "request": {"method": "POST", "url": "https://api.test/v1/items", "headers": []},
   "response": {"status": 409, "statusText": "Conflict", "headers": [],
     "content": {"size": 3, "mimeType": "image/png", "text": "/wD+", "encoding": "base64"}}}
]}}"#;

#[test]
fn recorded_responses_are_given_to_the_calls_they_were_recorded_for() {
    let directory = Directory::default();
    let file = directory.write("api.har", HAR);
    let provider = BuiltIn::start(&["--har", file.to_str().unwrap()]);
    let page = provider.get("/v1/items?page=2");
    assert_eq!((page.status, page.text(), page.field("x-page")), (200, "[]", Some("2")));
    assert_eq!(page.field("content-encoding"), None, "HAR holds content without its compression");
    let conflict = request("POST", "/v1/items").content("{}").send_to(provider.address());
    assert_eq!((conflict.status, &conflict.body[..]), (409, &[0xff, 0, 0xfe][..]));
    assert_eq!(provider.get("/v1/items").status, 404, "not recorded");
    assert_eq!(provider.get("/get").status, 200, "answered as ever");
}

#[test]
fn recorded_responses_take_as_long_as_they_took() {
    let directory = Directory::default();
    let file = directory.write("api.har", HAR);
    let provider = BuiltIn::start(&["--har", file.to_str().unwrap(), "--har-times"]);
    let started = Instant::now();
    assert_eq!(provider.get("/v1/items?page=2").status, 200);
    assert!(started.elapsed() >= Duration::from_millis(80));
}

#[test]
fn a_file_that_is_no_recording_is_refused_with_its_place() {
    let directory = Directory::default();
    let file = directory.write("broken.har", "{\n \"log\": 1 }");
    let mut command = egret_tests::egret::egret(["provider", "--listen", "127.0.0.1:0", "--har"]);
    let output = egret_tests::process::run(command.arg(&file));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("broken.har") && stderr.contains("line 2"), "{stderr}");
}
