//! Scripts that are made to hold a worker for long.

use std::time::Duration;

use egret_tests::egret::Config;
use egret_tests::provider::Provider;

/// CPU time of a call with a script that may take a millisecond. It is what a busy machine does not change.
const CPU_TIME_MAX: Duration = Duration::from_millis(500);

#[test]
fn a_script_that_passes_long_texts_is_ended() {
    let origin = Provider::plain();
    for statements in [
        "const a = \"x\".repeat(1e6); for (;;) crypto.hmac(\"sha512\", a, a)",
        "const a = \"x\".repeat(1e6); for (;;) crypto.hash(\"sha1\", a)",
        "request.body = \"x\".repeat(1e6); for (;;) request.body",
    ] {
        let flows = format!(
            "flows: [{{ name: scripted, remedies: [{{ script: {{ source: 'function onRequest(request) {{ {statements} }}', \
             time: 1ms, bodies: 1MiB }} }}] }}]\n"
        );
        let egret = Config::with_origin(origin.url()).flows(flows).start();
        let before = egret.process().cpu_time();
        egret.client().send("POST /origin/a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}").response();
        let took = egret.process().cpu_time().saturating_sub(before);
        println!("{took:?} of CPU time: {statements}");
        assert!(took < CPU_TIME_MAX, "{took:?} of CPU time: {statements}");
    }
}
