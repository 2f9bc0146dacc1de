//! Expectations in HTTP/1.0, which a server ignores. Forwarded in HTTP/1.1, the provider would obey them, or
//! refuse the request.

use egret_tests::egret::Config;
use egret_tests::provider::Provider;

#[test]
fn an_expectation_in_http_1_0_is_not_forwarded() {
    for expectation in ["100-continue", "x", ""] {
        let origin = Provider::plain();
        let egret = Config::with_origin(origin.url()).start();
        let own = egret.address();
        let mut client = egret.client();
        client.send(format!(
            "POST /origin/ HTTP/1.0\r\nHost: {own}\r\nExpect: {expectation}\r\nContent-Length: 2\r\n\r\nok"
        ));
        client.response().assert_forwarded(200);
        let request = origin.only_request();
        assert!(request.values("expect").is_empty(), "{request:?}");
        assert_eq!(request.body, b"ok");
    }
}
