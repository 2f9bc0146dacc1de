//! Programs that an interpreter runs: Python with its libraries, Ruby, PHP.

use egret_tests::exec::NamedProvider;
use egret_tests::process::Directory;

use super::trial::{EXPECTED, Trial, URL};

/// The Python of the checkout, with libraries.
pub(super) const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/bin/python");

#[test]
fn python_urllib() {
    let script = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())";
    Trial::of(&["python3", "-c", script, URL])
        .reaches(EXPECTED)
        .reaches_isolated(EXPECTED)
        .is_explained(&["SSL_CERT_FILE"]);
}

#[test]
fn python_requests_and_httpx() {
    for library in ["requests", "httpx"] {
        let script = format!("import sys, {library}; print({library}.get(sys.argv[1]).text)");
        Trial::of(&[PYTHON, "-c", &script, URL])
            .reaches(EXPECTED)
            .reaches_isolated(EXPECTED)
            .is_explained(&["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]);
    }
}

#[test]
fn pip() {
    let provider = NamedProvider::with_responses(|_| {
        let page = "<!DOCTYPE html><a href=\"demo-1.5.tar.gz\">demo-1.5.tar.gz</a>";
        let fields =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", page.len());
        (fields + page).into_bytes()
    });
    let index = "--index-url=https://origin.test/simple/";
    // The caller may have told pip to look elsewhere as well.
    let neutral = ["env", "--unset=PIP_FIND_LINKS", "PIP_CONFIG_FILE=/dev/null"];
    let pip = [PYTHON, "-m", "pip", "--no-cache-dir", "--retries=0", "index", "versions", index, "demo"];
    Trial::at(provider, &[&neutral[..], &pip].concat())
        .reaches("demo (1.5)")
        .reaches_isolated("demo (1.5)")
        .is_explained(&["REQUESTS_CA_BUNDLE"]);
}

#[test]
fn ruby_net_http() {
    let script = "require 'net/http'; puts Net::HTTP.get(URI(ARGV[0]))";
    Trial::of(&["ruby", "-e", script, URL])
        .reaches(EXPECTED)
        .reaches_isolated(EXPECTED)
        .is_explained(&["SSL_CERT_FILE"]);
}

#[test]
fn php_curl_and_streams() {
    let directory = Directory::default();
    let curl = "<?php $curl = curl_init($argv[1]); curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);\n\
                $text = curl_exec($curl); if ($text === false) { exit(1); } echo $text, \"\\n\";\n";
    let curl = directory.write("curl.php", curl).display().to_string();
    Trial::of(&["php", &curl, URL])
        .reaches(EXPECTED)
        .reaches_isolated(EXPECTED)
        .is_explained(&["PHP_INI_SCAN_DIR"]);
    let streams =
        "<?php $text = file_get_contents($argv[1]); if ($text === false) { exit(1); } echo $text, \"\\n\";\n";
    let streams = directory.write("streams.php", streams).display().to_string();
    // Streams know no proxy.
    Trial::of(&["php", &streams, URL])
        .reaches_isolated(EXPECTED)
        .is_explained_isolated(&["PHP_INI_SCAN_DIR"]);
}
