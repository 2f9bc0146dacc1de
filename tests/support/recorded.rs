//! Reads the results of recording: counters of diagnoses and exporters, and the written files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::egret::{Egret, egret};
use crate::process::run_checked;
use crate::wait;

/// Counters of exchanges that diagnoses have not recorded.
const LOST: [&str; 4] = ["dropped", "shed", "failed", "queued"];

/// Number of exchanges of the first flow that its first diagnosis counted as `recorded`, `dropped` and so on.
pub fn diagnosed(egret: &Egret, what: &str) -> u64 {
    let flows = egret.control_get("/api/v1/flows").json();
    flows["flows"][0]["diagnoses"][0][what].as_u64().unwrap()
}

/// Waits until `expected` exchanges are recorded; none may be lost.
pub fn until_recorded(egret: &Egret, expected: u64) {
    wait::until_true(&format!("{expected} exchanges are recorded"), || {
        diagnosed(egret, "recorded") >= expected
    });
    assert_eq!(diagnosed(egret, "recorded"), expected);
    assert_eq!(LOST.map(|what| diagnosed(egret, what)), [0; 4], "{LOST:?}");
}

/// Returns the counters of an exporter.
pub fn exporter(egret: &Egret, name: &str) -> Value {
    let all = egret.control_get("/api/v1/exporters").json();
    let found = all["exporters"].as_array().unwrap().iter().find(|exporter| exporter["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {all}")).clone()
}

/// Waits until `probe` accepts an exporter's counters.
pub fn until_exporter(egret: &Egret, name: &str, what: &str, probe: impl Fn(&Value) -> bool) -> Value {
    wait::until_value(what, || exporter(egret, name), probe)
}

/// Number of entries that an exporter has lost.
pub fn lost(exporter: &Value) -> u64 {
    exporter["dropped"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// Number of log lines that contain `text`.
pub fn lines_with(egret: &Egret, text: &str) -> usize {
    egret.log().lines().filter(|line| line.contains(text)).count()
}

/// Returns the visible files below a directory, sorted by path.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let is_hidden = |file: &PathBuf| file.file_name().unwrap().as_encoded_bytes().starts_with(b".");
    every_file(directory).into_iter().filter(|file| !is_hidden(file)).collect()
}

/// Returns all files below a directory, sorted by path.
pub fn every_file(directory: &Path) -> Vec<PathBuf> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() { directories.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// Returns the lines of JSON in the files of an exporter that has ended.
pub fn lines(directory: &Path) -> Vec<Value> {
    let text: Vec<u8> = files(directory).iter().flat_map(|file| content(file)).collect();
    String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the content of a file, decompressed if it is gzip.
pub fn content(file: &Path) -> Vec<u8> {
    let bytes = std::fs::read(file).unwrap();
    if !bytes.starts_with(b"\x1f\x8b") {
        return bytes;
    }
    let mut content = Vec::new();
    MultiGzDecoder::new(&bytes[..]).read_to_end(&mut content).unwrap();
    content
}

/// Returns the entries of HAR files, which must all be valid JSON.
pub fn entries(files: &[PathBuf]) -> Vec<Value> {
    let entries = files.iter().flat_map(|file| {
        let har: Value = serde_json::from_slice(&content(file))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        har["log"]["entries"].as_array().unwrap().clone()
    });
    entries.collect()
}

/// Asserts that `egret har verify` finds every file valid and without secrets.
pub fn assert_verified(files: &[PathBuf]) {
    run_checked(egret(["har", "verify"]).args(files));
}
