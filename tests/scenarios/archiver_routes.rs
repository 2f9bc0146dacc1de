//! `egret archiver`: routing by the header fields of both generations of HARchiver, and the documents that
//! result.

use egret_tests::archiver::Archiver;
use egret_tests::node::assert_fits_schema;
use egret_tests::peers::{Collector, Nginx, curl};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::Provider;
use serde_json::Value;

/// Prefix of each document for the collector.
const ALF: &str = "alf_1.0.0 ";

/// Returns the documents that a collector has received, all valid.
fn documents(collector: &Collector, count: usize) -> Vec<Value> {
    let texts = collector.received(ALF, count);
    let directory = Directory::default();
    let files = texts.iter().enumerate();
    let files: Vec<_> =
        files.map(|(number, text)| directory.write(&format!("{number}.json"), text)).collect();
    assert_fits_schema("1.0.0", &files);
    texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

/// Returns the document of the request whose field `x-number` has that value.
fn numbered<'a>(documents: &'a [Value], number: &str) -> &'a Value {
    let field = serde_json::json!({ "name": "X-Number", "value": number });
    let has_it = |document: &&Value| {
        document["har"]["log"]["entries"][0]["request"]["headers"].as_array().unwrap().contains(&field)
    };
    documents.iter().find(has_it).unwrap_or_else(|| panic!("no document of {number} in {documents:#?}"))
}

#[test]
fn both_generations_of_header_fields_route_and_carry_the_token() {
    let (collector, origin) = (Collector::start("pull.py", &["0"]), Provider::plain());
    let archiver = Archiver::start(&["-host", "127.0.0.1", "-port", collector.port(), "-env", "by-default"]);
    let there = origin.address();
    for fields in [
        format!(
            "Host: {there}\r\nX-Number: 1\r\nMashape-Service-Token: new-token\r\nMashape-Environment: staging\r\n"
        ),
        format!(
            "Host: nowhere.example\r\nX-Number: 2\r\nMashape-Host-Override: {there}\r\nMashape-Upstream-Protocol: http\r\n\
             Service-Token: old-token\r\nX-Real-Ip: 192.0.2.7\r\nX-Forwarded-For: 192.0.2.8\r\n"
        ),
        format!(
            "Host: {there}\r\nX-Number: 3\r\nService-Token: old-token\r\nX-Upstream-Protocol: HTTP\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.8, 192.0.2.9\r\n"
        ),
    ] {
        archiver.get(&fields).assert_forwarded(200);
    }
    for request in origin.requests() {
        for (name, value) in &request.fields {
            let name = name.to_ascii_lowercase();
            assert!(!name.starts_with("mashape") && !value.contains("token"), "{name}: {value}");
            assert!(
                !["service-token", "x-upstream-protocol", "x-forwarded-proto"].contains(&&*name),
                "{name}"
            );
        }
        assert_eq!(request.values("host"), [there.to_string()]);
        let received = match request.values("x-number")[0] {
            "1" => "127.0.0.1",
            "2" => "192.0.2.8, 127.0.0.1",
            _ => "192.0.2.8, 192.0.2.9, 127.0.0.1",
        };
        assert_eq!(request.values("x-forwarded-for"), [received]);
    }
    let documents = documents(&collector, 3);
    for (number, token, environment, client) in [
        ("1", "new-token", "staging", "127.0.0.1"),
        ("2", "old-token", "by-default", "192.0.2.7"),
        ("3", "old-token", "by-default", "192.0.2.8"),
    ] {
        let document = numbered(&documents, number);
        assert_eq!(
            (&document["serviceToken"], &document["environment"]),
            (&token.into(), &environment.into())
        );
        assert_eq!(document["clientIPAddress"], client);
        let request = &document["har"]["log"]["entries"][0]["request"];
        assert_eq!(request["url"], format!("http://{there}/a?b=c"));
        let headers = request["headers"].to_string().to_ascii_lowercase();
        for left_out in ["mashape", "service-token", "x-upstream-protocol", "x-forwarded-proto"] {
            assert!(!headers.contains(left_out), "{left_out} in {headers}");
        }
    }
}

#[test]
fn a_request_keeps_its_named_or_received_scheme() {
    let authority = Authority::default();
    let nginx = Nginx::start(&authority, "location / { return 200 $scheme; }");
    let directory = Directory::default();
    let leaf = authority.leaf(&["localhost"]);
    directory.write("cert.pem", leaf.certificate);
    directory.write("key.pem", leaf.key);
    let ca = directory.write("ca.pem", authority.certificate()).display().to_string();
    let archiver = Archiver::start_in(directory, &["-https", "0"], |command| {
        command.env("SSL_CERT_FILE", &ca);
    });
    let http = format!("http://localhost:{}/", archiver.address().port());
    let https = format!("https://localhost:{}/", archiver.tls_address().port());
    for (url, fields, scheme) in [
        (&http, &[][..], "http"),
        (&http, &["Mashape-Upstream-Protocol: HTTPS"], "https"),
        (&http, &["X-Forwarded-Proto: https"], "https"),
        (&http, &["X-Forwarded-Proto: https", "X-Upstream-Protocol: http"], "http"),
        (&https, &[], "https"),
        (&https, &["X-Upstream-Protocol: HTTP"], "http"),
    ] {
        let port = if scheme == "https" { nginx.tls_address() } else { nginx.address() }.port();
        let host = format!("Host: localhost:{port}");
        let mut command = curl();
        command.args(["-s", "--cacert", &ca, "-H", &host, url]);
        for field in fields {
            command.args(["-H", field]);
        }
        assert_eq!(run_checked(&mut command), scheme, "{url} {fields:?}");
    }
}

#[test]
fn a_target_gets_every_request_with_the_clients_host() {
    let (collector, origin) = (Collector::start("pull.py", &["0"]), Provider::plain());
    let target = origin.address().to_string();
    let options = ["the-token", "-reverse", &target, "-host", "127.0.0.1", "-port", collector.port()];
    let archiver = Archiver::start(&options);
    // The proxy in front speaks TLS with its clients, which does not determine the scheme for the target.
    let fields = "Host: mine.example\r\nX-Number: 1\r\nX-Forwarded-Proto: https\r\n";
    archiver.get(fields).assert_forwarded(200);
    let overridden = "Host: mine.example\r\nX-Number: 2\r\nMashape-Host-Override: other.example:81\r\n";
    archiver.get(overridden).assert_forwarded(200);
    let requests = origin.requests();
    assert_eq!(requests[0].values("host"), ["mine.example"]);
    assert_eq!(requests[0].values("x-forwarded-proto"), ["https"]);
    assert_eq!(requests[1].values("host"), ["other.example:81"]);
    let documents = documents(&collector, 2);
    for (number, url) in [("1", "http://mine.example/a?b=c"), ("2", "http://other.example:81/a?b=c")] {
        let document = numbered(&documents, number);
        assert_eq!(document["har"]["log"]["entries"][0]["request"]["url"], url);
        assert_eq!(document["serviceToken"], "the-token");
    }
}
