//! Secrets of every kind, in every part of an exchange: none appears in a file, the log, a metric or a
//! response of the control port.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::http::Client;
use egret_tests::process::run;
use egret_tests::provider::{Provider, Request};
use egret_tests::recorded::{content, diagnosed, entries, every_file, until_exporter};
use egret_tests::secrets::{PlantedSecret, encoded, planted, secrets, texts};
use egret_tests::wait;
use memchr::memmem::Finder;

/// Names the row of the corpus that an exchange belongs to.
const ROW: &str = "X-Row";

/// A secret, the part of it that must not be found, and its position.
#[derive(Debug, Clone)]
struct Row {
    secret: String,
    core: String,
    planted: PlantedSecret,
}

fn rows() -> Vec<Row> {
    let rows = secrets().into_iter().flat_map(|(secret, core)| {
        planted(&secret).into_iter().map(move |planted| Row {
            secret: secret.clone(),
            core: core.clone(),
            planted,
        })
    });
    rows.collect()
}

impl Row {
    fn fields(&self) -> String {
        self.planted.fields.iter().fold(String::new(), |mut lines, (name, value)| {
            let _ = write!(lines, "{name}: {value}\r\n");
            lines
        })
    }

    /// Returns the request with the secret split over chunks.
    fn chunked(&self) -> Vec<u8> {
        let mut chunks = Vec::new();
        for piece in self.planted.body.chunks(7) {
            chunks.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            chunks.extend([piece, b"\r\n"].concat());
        }
        chunks.extend(b"0\r\n\r\n");
        chunks
    }

    /// Sends a request with the secret and receives the response, which contains it too.
    fn send(&self, number: usize, egret: &Egret) {
        let mut client = egret.client();
        let target = if self.planted.target.is_empty() { "/" } else { &self.planted.target };
        let fields = self.fields();
        let (framing, body) = if number.is_multiple_of(2) {
            (format!("Content-Length: {}", self.planted.body.len()), self.planted.body.clone())
        } else {
            ("Transfer-Encoding: chunked".to_owned(), self.chunked())
        };
        let host = egret.address();
        client.send(format!(
            "POST /origin{target} HTTP/1.1\r\nHost: {host}\r\n{ROW}: {number}\r\n{fields}{framing}\r\n\r\n"
        ));
        client.offer(body);
        let response = client.any_response_to("POST");
        response.assert_forwarded(200);
        assert_eq!(response.body, self.planted.body, "{self:?}");
    }

    fn answer(&self, number: usize) -> Vec<u8> {
        let fields = self.fields();
        // A truncated body has a length that is never reached.
        let (framing, body) = match (self.planted.is_cut, number % 2) {
            (true, _) => {
                (format!("Content-Length: {}", self.planted.body.len() + 60), self.planted.body.clone())
            }
            (false, 0) => ("Transfer-Encoding: chunked".to_owned(), self.chunked()),
            (false, _) => (format!("Content-Length: {}", self.planted.body.len()), self.planted.body.clone()),
        };
        [format!("HTTP/1.1 200 OK\r\n{fields}{framing}\r\n\r\n").into_bytes(), body].concat()
    }
}

/// Responds to each request with the text planted in it.
fn provider(rows: Vec<Row>) -> Provider {
    Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            let number = row(&request);
            let sent = peer.send(rows[number].answer(number));
            if !sent || rows[number].planted.is_cut {
                return;
            }
        }
    })
}

fn row(request: &Request) -> usize {
    request.values(ROW)[0].parse().unwrap()
}

/// Uses every exporter; the collector and the store are unreachable, so all data stays in spools.
fn config(url: &str, nobody: SocketAddr, keys: &str) -> Config {
    let mut flows = format!(
        "exporters:\n\
         \x20 har: {{ type: har, directory: ./har }}\n\
         \x20 small: {{ type: har, directory: ./har, rotate: 64KiB, gzip: true }}\n\
         \x20 lines: {{ type: ndjson, directory: ./har }}\n\
         \x20 alf: {{ type: alf, transport: {{ http: 'http://{nobody}' }}, service_token: '${{env:ALF_TOKEN}}', flush_after: 100ms }}\n\
         \x20 store: {{ type: s3, endpoint: 'http://{nobody}', bucket: b, access_key: '${{env:ALF_TOKEN}}', secret_key: '${{env:ALF_TOKEN}}', gzip: false }}\n\
         flows:\n"
    );
    for exporter in EXPORTERS {
        let _ = writeln!(
            flows,
            "- {{ name: {exporter}, diagnoses: [har: {{ export: {exporter}, bodies: 64KiB, media_types: ['*/*']{keys} }}] }}"
        );
    }
    flows += "- { name: again, remedies: [retry: { attempts: 2 }] }\n";
    Config::with_origin(url).flows(flows)
}

const EXPORTERS: [&str; 5] = ["har", "small", "lines", "alf", "store"];

/// Sends requests that are rejected, with the secret in all parts that are read before.
fn send_refused(egret: &Egret, secret: &str) {
    let host = egret.address();
    let (line, url) = (secret.replace('\n', " "), encoded(secret));
    for request in [
        format!("GET /nowhere/{url}?a={url} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {line}\r\n\r\n"),
        format!("GET /{url} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!(
            "GET /origin/{url} HTTP/1.1\r\nHost: {host}\r\nCookie: a={line}\r\nContent-Length: x\r\n\r\n"
        ),
        format!("GET /origin/?{url} HTTP/1.1\r\nHost: {host}\r\nBad Name: {line}\r\n\r\n"),
        format!("GET /origin/?{url} HTTP/9.9\r\nHost: {host}\r\nA: {line}\r\n\r\n"),
        format!("GET http://169.254.169.254/{url}?{url} HTTP/1.1\r\nHost: a\r\nX-Key: {line}\r\n\r\n"),
    ] {
        let mut client = Client::connect(host);
        client.send(request);
        client.any_response_to("GET");
    }
}

/// Sends every row and stops Egret. Returns the places that contain a secret, and the number of rows that do.
fn found(keys: &str) -> (Vec<String>, usize) {
    let rows = rows();
    let (origin, closed) = (provider(rows.clone()), ClosedPort::take());
    let mut egret = Egret::start_with(&config(&origin.url(), closed.address(), keys), |command| {
        command.env("ALF_TOKEN", "nobody-reads-this");
    });
    for (number, row) in rows.iter().enumerate() {
        row.send(number, &egret);
    }
    for (secret, _) in secrets() {
        send_refused(&egret, &secret);
    }
    let least = rows.len() as u64;
    wait::until_true("all are recorded", || {
        diagnosed(&egret, "recorded") >= least && diagnosed(&egret, "queued") == 0
    });
    until_exporter(&egret, "alf", "documents are spooled", |alf| alf["spooled_bytes"].as_u64().unwrap() > 0);
    let mut places = vec![("log".to_owned(), egret.log())];
    for path in [
        "/metrics",
        "/api/v1/config",
        "/api/v1/stats",
        "/api/v1/flows",
        "/api/v1/quotas",
        "/api/v1/exporters",
    ] {
        places.push((path.to_owned(), egret.control_get(path).text().to_owned()));
    }
    egret.terminate();
    assert!(egret.until_ended().success());
    places[0].1 = egret.log();

    let directory = egret.directory().path();
    let all = every_file(directory);
    for part in ["har/har-", "har/small-", "har/lines-", "spool/alf/", "spool/store/"] {
        assert!(
            all.iter().any(|file| file.display().to_string().contains(part)),
            "nothing in {part}: {all:?}"
        );
    }
    let mut hidden = Vec::new();
    for file in &all {
        let name = file.strip_prefix(directory).unwrap().display().to_string();
        places.push((name.clone(), String::from_utf8_lossy(&content(file)).into_owned()));
        if name.starts_with("har/") && name.contains(".har") {
            for entry in entries(std::slice::from_ref(file)) {
                let mut inside = Vec::new();
                texts(&entry, &mut inside);
                hidden.push((name.clone(), inside.join("\n")));
            }
        }
    }
    places.extend(hidden);
    let archives: Vec<_> =
        all.iter().filter(|file| file.extension().is_some_and(|extension| extension == "har")).collect();
    let verified = run(egret_command(["har", "verify"]).args(archives));
    if !verified.status.success() {
        places.push(("egret har verify".to_owned(), String::from_utf8_lossy(&verified.stdout).into_owned()));
    }
    // Many rows have the same secret, and the places have megabytes.
    let by_secret: BTreeMap<&str, Vec<&str>> = rows
        .iter()
        .map(|row| (row.secret.as_str(), row.core.as_str()))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .map(|(secret, core)| {
            let in_url = encoded(core);
            let finders = [Finder::new(core), Finder::new(&in_url)];
            let is_there = |text: &str| finders.iter().any(|finder| finder.find(text.as_bytes()).is_some());
            let at = places.iter().filter(|(_, text)| is_there(text)).map(|(place, _)| place.as_str());
            (secret, at.collect())
        })
        .collect();
    let leaking = rows.iter().filter(|row| !by_secret[row.secret.as_str()].is_empty()).count();
    let mut leaks: Vec<String> = by_secret
        .iter()
        .flat_map(|(secret, at)| at.iter().map(move |at| format!("{secret:?} in {at}")))
        .collect();
    if !verified.status.success() {
        leaks.push(String::from_utf8_lossy(&verified.stdout).chars().take(2_000).collect());
    }
    leaks.sort();
    leaks.dedup();
    (leaks, leaking)
}

#[test]
fn no_secret_is_left_where_everything_is_obfuscated() {
    assert_eq!(found("").0, [""; 0]);
}

#[test]
fn detectable_secrets_are_hidden_without_obfuscation() {
    assert_eq!(found(", obfuscate: false").0, [""; 0]);
}

#[test]
fn each_is_there_where_nobody_looks_for_it() {
    let (leaks, leaking) = found(", obfuscate: false, detect_secrets: false");
    assert_eq!(leaking, rows().len());
    let of_archives = leaks
        .iter()
        .filter(|leak| ["in har/", "in egret-data/spool/"].iter().any(|place| leak.contains(place)));
    assert!(of_archives.count() > EXPORTERS.len() * secrets().len() / 2);
    for place in ["har/har-", "har/lines-", "spool/alf/", "spool/store/"] {
        assert!(leaks.iter().any(|leak| leak.contains(place)), "{place}: {leaks:?}");
    }
    let elsewhere: Vec<_> = leaks
        .iter()
        .filter(|leak| {
            !leak.contains(" in har/") && !leak.contains(" in egret-data/") && !leak.starts_with("har/")
        })
        .collect();
    assert!(
        elsewhere.iter().all(|leak| !leak.contains(" in log") && !leak.contains(" in /")),
        "{elsewhere:?}"
    );
}
