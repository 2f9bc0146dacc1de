//! Status lines that a strict client would reject.

use egret_tests::egret::Config;
use egret_tests::provider::Provider;

#[test]
fn the_space_after_the_status_code_is_added() {
    for (sent, passed_on) in [
        ("HTTP/1.1 200", "HTTP/1.1 200 "),
        ("HTTP/1.1 200 ", "HTTP/1.1 200 "),
        ("HTTP/1.1 200 Fine", "HTTP/1.1 200 Fine"),
        ("HTTP/1.0 200", "HTTP/1.1 200 "),
    ] {
        let origin = Provider::responding(format!("{sent}\r\nContent-Length: 2\r\n\r\nok"));
        let egret = Config::with_origin(origin.url()).start();
        let mut client = egret.client();
        let own = egret.address();
        client.send(format!("GET /origin/ HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n"));
        let received = String::from_utf8(client.rest()).unwrap();
        assert_eq!(received.lines().next(), Some(passed_on), "{received}");
        assert!(received.ends_with("\r\n\r\nok"), "{received}");
    }
}
