//! One call has one identity: by base URL, as a forward proxy's request and inside an intercepted tunnel, it
//! reaches the provider alike, and the same limits, entries of a cache and records apply.

use egret_tests::egret::Egret;
use egret_tests::http::{Client, Response};
use egret_tests::intercepted::{Intercepting, SecureProvider, config};
use egret_tests::provider::{Provider, Request};
use egret_tests::recorded::{entries, files, until_recorded};
use egret_tests::wait;
use serde_json::Value;

const FLOWS: &str = "interception: {}
quotas: { hourly: { limit: 4, window: 1h } }
accounts: { main: { provider: origin, bearer: { token: '${env:TOKEN}' } } }
exporters: { archive: { type: har, directory: har } }
flows:
  - name: recorded
    match: { provider: origin }
    remedies: [{ accounts: { use: [main] } }]
    diagnoses: [{ har: { export: archive, obfuscate: false } }]
  - name: limited
    match: { provider: origin, path: '/limited/{id}' }
    remedies: [{ limit: { quota: hourly } }]
  - name: cached
    match: { provider: origin, path: '/cached/{id}' }
    remedies: [{ cache: {} }]
";

/// A way to call the provider.
#[derive(Debug, Clone, Copy)]
enum Way {
    BaseUrl,
    Forward,
    Intercepted,
}

const WAYS: [Way; 3] = [Way::BaseUrl, Way::Forward, Way::Intercepted];

/// The outcome of the same requests in one way.
#[derive(Debug, PartialEq)]
struct Outcome {
    responses: Vec<(u16, String)>,
    /// The calls that the provider received: request line, host and credential.
    calls: Vec<(String, Vec<String>, Vec<String>)>,
    /// The entries of the archive.
    records: Vec<Value>,
}

fn connect(way: Way, intercepting: &Intercepting, provider: &SecureProvider) -> Client {
    match way {
        Way::BaseUrl | Way::Forward => intercepting.egret.client(),
        Way::Intercepted => intercepting.client(provider),
    }
}

fn send(client: &mut Client, way: Way, egret: &Egret, provider: &SecureProvider, path: &str) -> Response {
    let request = match way {
        Way::BaseUrl => format!("GET /origin{path} HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address()),
        Way::Forward => format!("GET {}{path} HTTP/1.1\r\nHost: {}\r\n\r\n", provider.url(), provider.host()),
        Way::Intercepted => format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", provider.host()),
    };
    client.send(request).response()
}

/// Returns the part of an entry that depends neither on times nor on the way in which the call was named.
fn record(entry: &Value) -> Value {
    let keys = ["_provider", "_flow", "_remedies", "_attempts", "_account", "_generated", "_error"];
    let mut record: Value = keys.iter().map(|key| ((*key).to_owned(), entry[*key].clone())).collect();
    record["method"] = entry["request"]["method"].clone();
    record["url"] = entry["request"]["url"].clone();
    record["status"] = entry["response"]["status"].clone();
    record["size"] = entry["response"]["content"]["size"].clone();
    record
}

fn run(way: Way) -> Outcome {
    let origin = Provider::with_responses(|request: &Request| {
        let text = request.target().to_owned();
        let length = text.len();
        format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n{text}")
            .into_bytes()
    });
    let provider = SecureProvider::before(&origin.url());
    let intercepting = Intercepting::start_with(&config(&provider, FLOWS), &provider, |command| {
        command.env("TOKEN", "hunter2");
    });
    let egret = &intercepting.egret;
    let mut client = connect(way, &intercepting, &provider);
    let paths =
        ["/cached/1", "/cached/1", "/cached/%31?a=b", "/limited/1", "/limited/2", "/limited/3", "/limited/4"];
    let paths = paths.into_iter().chain(["/limited/5", "/plain"]);
    let mut responses = Vec::new();
    for path in paths {
        let response = send(&mut client, way, egret, &provider, path);
        let text = if response.status == 200 { response.text().to_owned() } else { String::new() };
        responses.push((response.status, text));
    }
    let requests = origin.requests();
    let values = |request: &Request, name: &str| -> Vec<String> {
        request.values(name).into_iter().map(str::to_owned).collect()
    };
    let calls = requests
        .iter()
        .map(|request| (request.line.clone(), values(request, "host"), values(request, "authorization")))
        .map(|(line, hosts, credentials)| {
            // The port differs from run to run.
            let hosts = hosts.into_iter().map(|host| host.replace(&provider.host(), "provider")).collect();
            (line, hosts, credentials)
        })
        .collect();
    until_recorded(egret, responses.len() as u64);
    egret.terminate();
    let records = wait::until("the archive is closed", || {
        let entries = entries(&files(&egret.directory().join("har")));
        (entries.len() == responses.len()).then(|| {
            let is_intercepted = matches!(way, Way::Intercepted);
            assert!(
                entries
                    .iter()
                    .all(|entry| entry["_intercepted"].as_bool().unwrap_or(false) == is_intercepted)
            );
            let text = entries.iter().map(record).collect::<Value>().to_string();
            let records: Value = serde_json::from_str(&text.replace(&provider.host(), "provider")).unwrap();
            records.as_array().cloned().unwrap_or_default()
        })
    });
    Outcome { responses, calls, records }
}

#[test]
fn three_ways_lead_to_the_same_calls_limits_entries_and_records() {
    let [by_base_url, forwarded, intercepted] = WAYS.map(run);
    let statuses: Vec<u16> = by_base_url.responses.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 429, 200]);
    // One of the first three comes from the cache.
    assert_eq!(by_base_url.calls.len(), 7, "{:?}", by_base_url.calls);
    assert!(by_base_url.calls.iter().all(|(_, _, credentials)| credentials == &["Bearer hunter2"]));
    assert_eq!(by_base_url, forwarded);
    assert_eq!(forwarded, intercepted);
}
