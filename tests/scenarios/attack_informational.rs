//! Informational responses with a body, after which one side's next response is another one than the other's.

use egret_tests::egret::Config;
use egret_tests::provider::{Provider, ok};

#[test]
fn an_informational_response_that_announces_a_body_is_refused() {
    let planted = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nplanted";
    for (status, field) in [
        ("100 Continue", format!("Content-Length: {}", planted.len())),
        ("103 Early Hints", format!("Content-Length: {}", planted.len())),
        ("199 Odd", "Content-Length: 1".to_owned()),
        ("100 Continue", "Transfer-Encoding: chunked".to_owned()),
        ("103 Early Hints", "Transfer-Encoding: chunked".to_owned()),
    ] {
        let head = format!("HTTP/1.1 {status}\r\n{field}\r\n\r\n");
        let origin = Provider::responding([head.as_bytes(), planted.as_bytes(), &ok("own")].concat());
        let egret = Config::with_origin(origin.url()).start();
        let mut client = egret.client();
        for _ in 0..2 {
            let response = client.get(egret.address(), "/origin/").any_response_to("GET");
            response.assert_generated(502, "bad-response");
            assert!(!response.text().contains("planted"), "{status} with {field}: {response:?}");
        }
        assert_eq!(origin.connections(), 2, "{status} with {field}: the connection is not used again");
    }
}
