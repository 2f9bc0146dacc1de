//! `egret archiver`: destinations of its recordings, and that the token is never exposed.

use std::path::PathBuf;

use egret_tests::archiver::Archiver;
use egret_tests::node::assert_fits_schema;
use egret_tests::peers::{Collector, free_port};
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{assert_verified, content, entries, files};
use serde_json::Value;

const TOKEN: &str = "a-token-that-nobody-may-see";

/// Returns the archives below a directory.
fn archives(directory: &Directory) -> Vec<PathBuf> {
    let mut found = files(directory.path());
    found.retain(|file| file.extension().is_some_and(|extension| extension == "har"));
    found
}

#[test]
fn without_a_collector_there_are_har_files() {
    let origin = Provider::responding(ok("{\"password\":\"none\"}"));
    let mut archiver = Archiver::start(&["-filter-ua", "monitor|^probe", "-replays"]);
    let host = format!("Host: {}\r\n", origin.address());
    let secret = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJlZ3JldCJ9.c2lnbmF0dXJlLW9mLWl0\r\n";
    for agent in ["browser", "A Monitor", "PROBE/1", "no probe"] {
        archiver.get(&format!("{host}{secret}User-Agent: {agent}\r\n")).assert_forwarded(200);
    }
    assert_eq!(origin.requests().len(), 4);
    archiver.until_written("files", 2);
    assert!(archiver.terminate().success());
    let archives = archives(archiver.directory());
    assert_fits_schema("har", &archives);
    assert_verified(&archives);
    let entries = entries(&archives);
    let mut agents: Vec<String> = entries.iter().map(|entry| field(entry, "User-Agent")).collect();
    agents.sort();
    assert_eq!(agents, ["browser", "no probe"]);
    for entry in &entries {
        assert!(!field(entry, "Authorization").contains("eyJ"), "{entry}");
        assert!(entry["response"]["content"]["text"].as_str().unwrap().contains("password"), "{entry}");
    }
}

/// Returns the value of a request's field.
fn field(entry: &Value, name: &str) -> String {
    let fields = entry["request"]["headers"].as_array().unwrap();
    let found =
        fields.iter().find(|field| field["name"] == name).unwrap_or_else(|| panic!("no {name} in {entry}"));
    found["value"].as_str().unwrap().to_owned()
}

#[test]
fn an_absent_collector_gets_all_records_later() {
    let origin = Provider::plain();
    let port = free_port().to_string();
    let archiver = Archiver::start(&[TOKEN, "-host", "127.0.0.1", "-port", &port]);
    let mut client = archiver.client();
    for _ in 0..20 {
        client.get(origin.address(), "/a").response().assert_forwarded(200);
    }
    let collector = Collector::start("pull.py", &[&port]);
    let documents = collector.received("alf_1.0.0 ", 20);
    assert!(documents.iter().all(|document| document.contains(TOKEN)));
}

#[test]
fn the_token_is_neither_printed_nor_logged_nor_kept() {
    let (collector, origin) = (Collector::start("pull.py", &["0"]), Provider::plain());
    let options = [TOKEN, "-debug", "-host", "127.0.0.1", "-port", collector.port(), "-har", "./archives"];
    let mut archiver = Archiver::start(&options);
    let host = format!("Host: {}\r\n", origin.address());
    let brought = "brought-by-a-request";
    archiver.get(&host).assert_forwarded(200);
    archiver.get(&format!("{host}Mashape-Service-Token: {brought}\r\n")).assert_forwarded(200);
    let documents = collector.received("alf_1.0.0 ", 2);
    for token in [TOKEN, brought] {
        assert!(documents.iter().any(|document| document.contains(token)), "{documents:?}");
    }
    archiver.until_written("collector", 2);
    archiver.until_written("files", 2);
    let config = archiver.control_get("/api/v1/config").text().to_owned();
    let metrics = archiver.control_get("/metrics").text().to_owned();
    assert!(archiver.terminate().success());
    let printed = archiver.printed();
    assert!(printed.contains("Service-Token: given\n"), "{printed}");
    let line = printed.lines().find(|line| line.contains("\"target\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["method"], &line["target"]), (&"GET".into(), &"/a?b=c".into()));
    assert_eq!(line["host"], "127.0.0.1");
    let sent = printed.lines().skip_while(|line| *line != "SENT").nth(1).unwrap();
    let sent: Value = serde_json::from_str(sent).unwrap();
    assert_eq!(sent["serviceToken"], "***");
    let mut places = vec![printed, archiver.log(), config, metrics];
    let kept = files(archiver.directory().path());
    assert!(kept.iter().any(|file| file.display().to_string().contains("archives/files-")), "{kept:?}");
    places.extend(kept.iter().map(|file| String::from_utf8_lossy(&content(file)).into_owned()));
    for token in [TOKEN, brought] {
        assert!(places.iter().all(|place| !place.contains(token)), "{token}");
    }
}

#[test]
fn the_printed_config_is_good() {
    let directory = Directory::default();
    let options =
        ["archiver", "0", TOKEN, "-reverse", "api.example", "-host", "collector.example", "-print-config"];
    let printed = egret_tests::process::run_checked(&mut egret_tests::egret::egret(options));
    assert!(!printed.contains(TOKEN), "{printed}");
    let file = directory.write("egret.yaml", printed).display().to_string();
    let checked = run(egret_tests::egret::egret(["check", &file]).env("EGRET_SERVICE_TOKEN", TOKEN));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
