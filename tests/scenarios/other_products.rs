//! Fields and parameters of other products: they count where `gateway.compat` lists the product, and nowhere
//! else.

use egret_tests::egret::Config;
use egret_tests::provider::Provider;

/// A flow that only requests of the consumer `web` match.
const OF_WEB: &str =
    "flows:\n  - name: web\n    match: { consumer: web }\n    remedies: [fixed-response: { status: 403 }]\n";

#[test]
fn a_missing_list_reads_all_and_warns_once_for_each_product() {
    let origin = Provider::plain();
    let egret = Config::default().start();
    let there = origin.address();
    for _ in 0..3 {
        let fields = format!("x-lunar-host: {there}\r\nx-lunar-req-id: 7\r\n");
        let response = egret.get_with("/a", &fields);
        assert_eq!(response.assert_forwarded(200).values("x-egret-request-id"), ["7"]);
    }
    egret.get_with("/a", &format!("Mashape-Host-Override: {there}\r\n")).assert_forwarded(200);
    let log = egret.log_with("\"product\":\"harchiver\"");
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("\"product\":\"lunar\"")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("gateway.compat"), "{log}");
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn fields_of_unlisted_products_reach_neither_routing_nor_flows_nor_the_provider() {
    let (origin, decoy) = (Provider::plain(), Provider::plain());
    let config = Config::with_origin(origin.url()).gateway("compat: []").flows(OF_WEB);
    let egret = config.listen(["{ address: \"127.0.0.1:0\", route_by_query: true }"]).start();
    let there = decoy.address();
    let query = format!("lunar_original_host={there}&b=%2f&lunar_consumer_tag=web");
    let head = format!(
        "POST /origin/a?{query} HTTP/1.1\r\nx-lunar-host: {there}\r\nX-Lunar-Scheme: ftp\r\nHost: {}\r\n\
         Mashape-Host-Override: {there}\r\nx-lunar-consumer-tag: web\r\nmashape-upstream-protocol:\r\n\
         x-lunar-req-id: 7\r\nContent-Length: 4\r\nX-LUNAR-HOST: {there}\r\n\r\nbody",
        egret.address()
    );
    let mut client = egret.client();
    client.send(format!("{head}{head}"));
    for _ in 0..2 {
        let response = client.response();
        assert_ne!(response.assert_forwarded(200).values("x-egret-request-id"), ["7"]);
    }
    for request in origin.requests() {
        assert_eq!(request.target(), format!("/a?{query}"));
        assert_eq!(request.values("host"), [origin.address().to_string()]);
        assert_eq!(request.body, b"body");
        let is_foreign = |name: &str| ["x-lunar-", "mashape-"].iter().any(|start| name.starts_with(start));
        let names = request.fields.iter().map(|(name, _)| name.to_ascii_lowercase());
        assert_eq!(names.filter(|name| is_foreign(name)).collect::<Vec<_>>(), ["x-lunar-req-id"]);
    }
    assert_eq!((origin.requests().len(), decoy.connections()), (2, 0));
}

#[test]
fn a_list_reads_its_own_product_alone() {
    let (origin, decoy) = (Provider::plain(), Provider::plain());
    let egret = Config::default().gateway("compat: lunar").flows(OF_WEB).start();
    let fields = format!(
        "x-lunar-host: {}\r\nMashape-Host-Override: {}\r\nMashape-Upstream-Protocol: https\r\n",
        origin.address(),
        decoy.address()
    );
    egret.get_with("/a", &fields).assert_forwarded(200);
    assert_eq!(origin.only_request().values("mashape-host-override"), [""; 0]);
    assert_eq!(decoy.connections(), 0);
    let of_web = format!("{fields}x-lunar-consumer-tag: web\r\n");
    assert_eq!(egret.get_with("/a", &of_web).status, 403);
}
