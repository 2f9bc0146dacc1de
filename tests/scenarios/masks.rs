//! Masks for records, access logs and live traffic: values by their name and by their look appear in none of
//! them, while other values do and the application receives everything.

use std::path::PathBuf;

use egret_tests::coded::coded;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, Request};
use egret_tests::recorded::{assert_verified, content, files, until_recorded};
use egret_tests::traffic::LiveTraffic;
use serde_json::json;

const MASK: &str = "[full_name, phone, iban, ip]";

/// The parts of values that must not be found, in each of their forms.
const HIDDEN: [&str; 9] = [
    "Lovelace",
    "30 901820",
    "30%20901820",
    "4930901820",
    "DE89370400440532013000",
    "DE89 3704",
    "555-0143",
    "192.0.2.7",
    "42424242",
];

/// Values that nobody masks.
const SHOWN: [&str; 4] = ["order-17", "to be paid", "page=2", "Analytical"];

/// A body with values under masked names at several depths, and with values that masks find by their look.
fn body() -> String {
    json!({
        "id": "order-17",
        "fullName": { "first": "Ada", "last": ["Lovelace"] },
        "list": [{ "PHONE": 42_424_242, "deep": [{ "full-name": "Ada Lovelace", "paid": false }] }],
        "note": "to be paid from DE89 3704 0044 0532 0130 00, call +49 30 901820 or (202) 555-0143",
        "log": "{\"from\":\"192.0.2.7\",\"Full_Name\":\"Lovelace\"}",
        "engine": "Analytical",
    })
    .to_string()
}

/// Responds to a GET in gzip, and to a POST with what it has received.
fn provider() -> Provider {
    Provider::with_responses(|request: &Request| {
        let (coding, body) = if request.body.is_empty() {
            ("Content-Encoding: gzip\r\n", coded("gzip", body().as_bytes()))
        } else {
            ("", request.body.clone())
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{coding}X-Phone: none\r\nPhone: 42424242\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), &body].concat()
    })
}

fn start(origin: &Provider) -> Egret {
    let flows = format!(
        "exporters:\n\
         \x20 archive: {{ type: har, directory: ./har }}\n\
         \x20 access: {{ type: lines, directory: ./access }}\n\
         flows:\n\
         - name: all\n\
         \x20 match: {{ provider: origin }}\n\
         \x20 diagnoses:\n\
         \x20 - har: {{ export: archive, bodies: 64KiB, obfuscate: false, mask: {MASK} }}\n\
         \x20 - access-log: {{ export: access, fields: [target, consumer, request.headers.phone], obfuscate: false, mask: {MASK} }}\n"
    );
    Config::with_origin(origin.url()).flows(flows).control(format!("traffic: {{ mask: {MASK} }}")).start()
}

/// Sends the values in the target, in fields and in a body whose chunks split them.
fn send(egret: &Egret) {
    let target = "/pay/DE89370400440532013000?page=2&full_name=Ada+Lovelace&to=%2B49%2030%20901820&by=+49%2030%20901820";
    let mut request = format!(
        "POST /origin{target} HTTP/1.1\r\nHost: {}\r\nPhone: 42424242\r\nX-From: 192.0.2.7\r\n\
         X-Egret-Consumer: +4930901820\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        egret.address()
    )
    .into_bytes();
    for piece in body().as_bytes().chunks(5) {
        request.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    request.extend(b"0\r\n\r\n");
    let response = egret.client().send(request).response_to("POST");
    response.assert_forwarded(200);
    assert_eq!(response.body, body().as_bytes());
    assert_eq!(egret.get("/order?page=2&phone=42424242").status, 200);
}

/// The content of files as one text.
fn text(files: &[PathBuf]) -> String {
    String::from_utf8(files.iter().flat_map(|file| content(file)).collect()).unwrap()
}

/// Asserts that a text has none of the masked values.
fn assert_masked(place: &str, text: &str) {
    for value in HIDDEN {
        assert!(!text.contains(value), "{place} shows {value}: {text}");
    }
}

#[test]
fn masked_values_are_in_no_record_and_others_are() {
    let origin = provider();
    let mut egret = start(&origin);
    let traffic = LiveTraffic::open(&egret);
    send(&egret);
    let listed = traffic.until("provider=origin", 2);
    for exchange in &listed {
        assert_masked("the list", &exchange.to_string());
        let details = traffic.details(exchange).to_string();
        assert_masked("the details", &details);
        for value in SHOWN {
            assert!(details.contains(value), "the details hide {value}: {details}");
        }
    }
    for query in ["header.phone=42*", "query.full_name=*Lovelace", "path=regex:.*DE89.*", "consumer=*901820"]
    {
        assert_eq!(traffic.exchanges(&format!("provider=origin&{query}")).len(), 0, "{query}");
    }
    until_recorded(&egret, 2);
    egret.terminate();
    assert!(egret.until_ended().success());
    let archives = files(&egret.directory().join("har"));
    assert_verified(&archives);
    let archived = text(&archives);
    assert_masked("the archive", &archived);
    for value in SHOWN {
        assert!(archived.contains(value), "the archive hides {value}: {archived}");
    }
    let access = text(&files(&egret.directory().join("access")));
    assert_masked("the access log", &access);
    assert!(access.contains("page=2") && access.contains("phone=egr_"), "{access}");
}
