//! Looping requests are detected before they circulate.

use egret_tests::egret::Config;
use egret_tests::provider::Provider;

#[test]
fn two_gateways_that_point_at_each_other_notice() {
    let first = Config::default().start();
    let second = Config::with_origin(format!("{}/origin", first.url())).start();
    first.rewrite(Config::with_origin(format!("{}/origin", second.url())).yaml());
    first.until_logged("reload");
    let response = egret_tests::wait::until("the first gateway knows the second", || {
        let response = first.get("/");
        (response.field("x-egret-error") != Some("unknown-provider")).then_some(response)
    });
    assert_eq!(response.status, 508, "{response:?}");
}

#[test]
fn a_chain_of_gateways_is_no_loop() {
    let origin = Provider::plain();
    let last = Config::with_origin(origin.url()).start();
    let middle = Config::with_origin(format!("{}/origin", last.url())).start();
    let first = Config::with_origin(format!("{}/origin", middle.url())).start();
    let response = first.get("/a");
    response.assert_forwarded(200);
    assert_eq!(origin.only_request().line, "GET /a HTTP/1.1");
    let via = origin.only_request().values("via").join(", ");
    assert_eq!(via.matches("egret").count(), 3, "{via}");
    assert_eq!(response.values("via").join(", ").matches("egret").count(), 3, "{response:?}");
}

#[test]
fn a_loop_is_recognised_by_the_name_in_via() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    egret.get("/").assert_forwarded(200);
    let via = origin.only_request().values("via").join(", ");
    let request =
        format!("GET /origin/again HTTP/1.1\r\nHost: {}\r\nVia: 1.0 other, {via}\r\n\r\n", egret.address());
    egret.client().send(request).response().assert_generated(508, "loop-detected");
    // Another product of the same kind in the chain is not a loop.
    let request =
        format!("GET /origin/other HTTP/1.1\r\nHost: {}\r\nVia: 1.1 egret\r\n\r\n", egret.address());
    egret.client().send(request).response().assert_forwarded(200);
    assert_eq!(origin.requests().len(), 2);
}
