//! Trouble of Egret's own parts, and of clients that pass it by: findings begin and end.

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::Config;
use egret_tests::found::{until_found, until_over};
use egret_tests::http::Client;
use egret_tests::provider::Provider;

#[test]
fn a_refused_config_is_found_until_the_file_is_corrected() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let egret = config.start();
    egret.rewrite("providers: { origin: { uri: 'http://a.example' } }\n");
    let file = egret.directory().path().join("egret.yaml");
    let name = format!("config-refused: {}", file.display());
    let found = until_found(&egret, &name, || {});
    assert!(found["evidence"].as_str().unwrap().contains("`uri`"), "{found}");
    egret.rewrite(config.yaml());
    until_over(&egret, &name, || {});
}

#[test]
fn an_exporter_without_its_destination_is_found() {
    let (origin, closed) = (Provider::plain(), ClosedPort::take());
    let flows = format!(
        "exporters: {{ out: {{ type: otlp, endpoint: 'http://{}/' }} }}\n\
         flows: [{{ name: all, diagnoses: [traces: {{ export: out }}] }}]\n",
        closed.address()
    );
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let found = until_found(&egret, "exporter-failing: out", || {
        egret.get("/a").assert_forwarded(200);
    });
    assert!(found["evidence"].as_str().unwrap().contains("refused"), "{found}");
}

#[test]
fn a_tunnel_past_the_flows_of_a_provider_is_found() {
    let origin = Provider::plain();
    let flows = "flows: [{ name: all, match: { provider: origin }, remedies: [timeout: { total: 1h }] }]\n";
    let egret = Config::with_origin(format!("https://{}", origin.address())).flows(flows).start();
    let host = origin.address();
    let found = until_found(&egret, "flows-bypassed: tunnels", || {
        let mut client = Client::connect(egret.address());
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")).head();
    });
    assert_eq!(found["severity"], "warning");
    until_over(&egret, "flows-bypassed: tunnels", || {});
}
