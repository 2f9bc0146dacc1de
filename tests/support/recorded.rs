//! What has become of recorded exchanges: what diagnoses and exporters have counted, and the files that were written.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::egret::{Egret, egret};
use crate::process::run_well;
use crate::wait;

/// What diagnoses count of exchanges that they have not recorded.
const LOST: [&str; 4] = ["dropped", "shed", "failed", "queued"];

/// How many exchanges of the config's first flow its first diagnosis has `recorded`, `dropped` and so on.
pub fn diagnosed(egret: &Egret, what: &str) -> u64 {
    let flows = egret.control_get("/api/v1/flows").json();
    flows["flows"][0]["diagnoses"][0][what].as_u64().unwrap()
}

/// Waits until so many exchanges are recorded; none is lost.
pub fn until_recorded(egret: &Egret, expected: u64) {
    wait::until_true(&format!("{expected} exchanges are recorded"), || {
        diagnosed(egret, "recorded") >= expected
    });
    assert_eq!(diagnosed(egret, "recorded"), expected);
    assert_eq!(LOST.map(|what| diagnosed(egret, what)), [0; 4], "{LOST:?}");
}

/// What an exporter has counted.
pub fn exporter(egret: &Egret, name: &str) -> Value {
    let all = egret.control_get("/api/v1/exporters").json();
    let found = all["exporters"].as_array().unwrap().iter().find(|exporter| exporter["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {all}")).clone()
}

/// Waits until an exporter's counters are as they should be.
pub fn until_exporter(egret: &Egret, name: &str, what: &str, probe: impl Fn(&Value) -> bool) -> Value {
    wait::until(what, || Some(exporter(egret, name)).filter(&probe))
}

/// All that an exporter has lost.
pub fn lost(exporter: &Value) -> u64 {
    exporter["dropped"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// How often a line of the log holds `text`.
pub fn lines_with(egret: &Egret, text: &str) -> usize {
    egret.log().lines().filter(|line| line.contains(text)).count()
}

/// The files below a directory that can be seen, sorted by path.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let is_hidden = |file: &PathBuf| file.file_name().unwrap().as_encoded_bytes().starts_with(b".");
    every_file(directory).into_iter().filter(|file| !is_hidden(file)).collect()
}

/// The files below a directory, sorted by path.
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

/// What is in a file, decompressed where it is compressed by gzip.
pub fn content(file: &Path) -> Vec<u8> {
    let bytes = std::fs::read(file).unwrap();
    if !bytes.starts_with(b"\x1f\x8b") {
        return bytes;
    }
    let mut content = Vec::new();
    MultiGzDecoder::new(&bytes[..]).read_to_end(&mut content).unwrap();
    content
}

/// The entries of HAR files, each of which is valid JSON.
pub fn entries(files: &[PathBuf]) -> Vec<Value> {
    let entries = files.iter().flat_map(|file| {
        let har: Value = serde_json::from_slice(&content(file))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        har["log"]["entries"].as_array().unwrap().clone()
    });
    entries.collect()
}

/// `egret har verify` finds every file valid and no secret in it.
pub fn assert_verified(files: &[PathBuf]) {
    run_well(egret(["har", "verify"]).args(files));
}
