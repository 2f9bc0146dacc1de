//! The hosts and endpoints that are called, without any flow: metrics by host, and the list of endpoints.

use std::net::Ipv4Addr;

use egret_tests::browser::browse;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::http::Response;
use egret_tests::process::run;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;
use serde_json::{Value, json};

/// Sends a GET for a host without a configured provider.
fn call(egret: &Egret, host: &str, path: &str, fields: &str) -> Response {
    egret
        .client()
        .send(format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"))
        .response()
}

/// Returns the metrics, once this number of exchanges is counted.
fn metrics(egret: &Egret, exchanges: u64) -> String {
    wait::until("all exchanges are counted", || {
        let text = egret.control_get("/metrics").text().to_owned();
        let samples = text.lines().filter(|line| line.starts_with("egret_exchanges_total{"));
        let counts = samples.filter_map(|sample| sample.rsplit(' ').next()?.parse::<u64>().ok());
        (counts.sum::<u64>() == exchanges).then_some(text)
    })
}

/// Returns the endpoints of the list of all exchanges, once it has this number of calls.
fn endpoints(egret: &Egret, calls: u64) -> Vec<Value> {
    wait::until("all calls are listed", || {
        let discovery = egret.control_get("/api/v1/discovery").json();
        assert_eq!(discovery["flows"][0]["flow"], "", "{discovery}");
        let endpoints = discovery["flows"][0]["endpoints"].as_array()?;
        let counts = endpoints.iter().filter_map(|found| found["count"].as_u64());
        (counts.sum::<u64>() == calls).then(|| endpoints.clone())
    })
}

#[test]
fn metrics_tell_hosts_without_a_configured_provider_apart() {
    let origin = Provider::plain();
    let egret = Config::default().start();
    let port = origin.address().port();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("localhost:{port}")] {
        call(&egret, &host, "/a", "").assert_forwarded(200);
    }
    let metrics = metrics(&egret, 3);
    for (host, count) in [("127.0.0.1", 1), ("localhost", 2)] {
        let line = format!(
            "egret_exchanges_total{{provider=\"-\",host=\"{host}:{port}\",method=\"GET\",status=\"2xx\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    let quantiles = &egret.stats()["quantiles_us"];
    assert!(quantiles[format!("localhost:{port}")]["latency"]["p50"].is_number(), "{quantiles}");
}

#[test]
fn hosts_beyond_the_bound_are_counted_together() {
    let origin = Provider::plain();
    let egret = Config::default().gateway("limits: { hosts_counted: 1 }").start();
    let port = origin.address().port();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        call(&egret, &host, "/a", "").assert_forwarded(200);
    }
    let metrics = metrics(&egret, 3);
    let own = format!(
        "egret_exchanges_total{{provider=\"-\",host=\"127.0.0.1:{port}\",method=\"GET\",status=\"2xx\"}} 2\n"
    );
    assert!(metrics.contains(&own), "{metrics}");
    assert!(
        metrics.contains("egret_exchanges_total{provider=\"-\",method=\"GET\",status=\"2xx\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn endpoints_are_listed_without_a_flow_and_without_values_of_parameters() {
    let origin = Provider::with_responses(|request| {
        if request.target().starts_with("/busy") {
            b"HTTP/1.1 429 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n".to_vec()
        } else {
            ok("a")
        }
    });
    let names = NameServer::start(|name| match name {
        "localhost" => Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60),
        _ => Answer::NoSuchName,
    });
    let egret = Config::with_origin(origin.url()).gateway(names.config()).start();
    // Longer than the fraction of a second in the time of a call.
    let ids = ["47110815", "47120815"];
    for id in ids {
        egret.get(&format!("/users/{id}?key=hidden")).assert_forwarded(200);
    }
    egret.get("/busy").assert_forwarded(429);
    let host = origin.address().to_string().replace("127.0.0.1", "localhost");
    call(&egret, &host, "/other", "x-egret-consumer: shop\r\n").assert_forwarded(200);
    call(&egret, "nowhere.invalid", "/a", "").assert_generated(502, "dns-failed");
    egret.client().get(egret.address(), "/unknown/a").response().assert_generated(404, "unknown-provider");
    let found = endpoints(&egret, 5);
    let told: Vec<_> = found
        .iter()
        .map(|found| {
            let text = |key: &str| found[key].as_str().unwrap();
            let count = found["count"].as_u64().unwrap();
            (text("provider"), text("url").to_owned(), text("path"), count, found["statuses"].to_string())
        })
        .collect();
    let url = origin.url().clone();
    let expected = [
        ("-", format!("http://{host}"), "/other", 1, r#"{"200":1}"#.to_owned()),
        ("-", "http://nowhere.invalid".to_owned(), "/a", 1, r#"{"0":1}"#.to_owned()),
        ("origin", url.clone(), "/busy", 1, r#"{"429":1}"#.to_owned()),
        ("origin", url, "/users/{user_id}", 2, r#"{"200":2}"#.to_owned()),
    ];
    assert_eq!(told, expected);
    assert_eq!((&found[0]["consumers"]["shop"], &found[2]["retry_after"]), (&1.into(), &1.into()));
    let all = egret.control_get("/api/v1/discovery").text().to_owned();
    assert!(![ids[0], ids[1], "hidden"].iter().any(|value| all.contains(value)), "{all}");
    let proposed = egret.control_get("/api/v1/discovery/flows").text().to_owned();
    assert!(
        proposed.contains("- provider-throttle: { on: [429] }  # 429 with Retry-After: once"),
        "{proposed}"
    );
    assert_eq!(egret.control_get("/metrics").status, 200);
}

#[test]
fn a_tunnel_is_listed_with_its_host() {
    let origin = Provider::plain();
    let egret = Config::default().start();
    let address = origin.address();
    let mut client = egret.client();
    client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert_eq!(client.head().status, 200);
    let [tunnel] = &endpoints(&egret, 1)[..] else { panic!("one") };
    assert_eq!((&tunnel["method"], &tunnel["count"]), (&"CONNECT".into(), &1.into()));
    assert_eq!(tunnel["url"], format!("http://{address}"));
}

#[test]
fn the_list_is_off_if_the_config_says_so() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("discovery: false").start();
    egret.get("/a").assert_forwarded(200);
    assert_eq!(egret.control_get("/api/v1/discovery").json()["flows"], serde_json::json!([]));
}

#[test]
fn egret_discover_prints_the_list_or_proposes_flows() {
    let origin = Provider::plain();
    let gateway = Config::with_origin(origin.url()).start();
    gateway.get("/users/7").assert_forwarded(200);
    endpoints(&gateway, 1);
    let control = gateway.control().to_string();
    let printed = |options: &[&str]| {
        let output = run(egret(["discover", "--control", &control]).args(options));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let list = printed(&[]);
    assert!(list.contains(&format!("GET {}/users/{{user_id}}", origin.url())), "{list}");
    assert!(printed(&["--json"]).contains("\"count\":1"));
    let file = gateway.directory().join("proposed.yaml");
    std::fs::write(&file, printed(&["--flows"])).unwrap();
    let checked = run(&mut egret(["check", file.to_str().unwrap()]));
    assert!(checked.status.success(), "{checked:?}");
    drop(gateway);
    let output = run(&mut egret(["discover", "--control", &control]));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is `egret run` running?"), "{output:?}");
}

#[test]
fn the_page_sums_calls_by_consumer() {
    let origin = Provider::with_responses(|request| match request.target() {
        "/busy" => b"HTTP/1.1 429 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("hello"),
    });
    let egret = Config::with_origin(origin.url()).start();
    let send = |consumer: &str, path: &str| {
        let request = format!(
            "GET /origin{path} HTTP/1.1\r\nHost: {}\r\nx-egret-consumer: {consumer}\r\n\r\n",
            egret.address()
        );
        egret.client().send(request).response()
    };
    send("batch", "/a").assert_forwarded(200);
    send("batch", "/busy").assert_forwarded(429);
    send("batch", "/busy").assert_forwarded(429);
    send("web", "/a").assert_forwarded(200);
    endpoints(&egret, 4);
    let inventory = egret.control_get("/api/v1/discovery").json()["flows"][0].clone();
    let rows: Vec<_> = inventory["consumers"].as_array().unwrap().iter().collect();
    assert_eq!((&rows[0]["consumer"], &rows[0]["count"]), (&json!("batch"), &json!(3)));
    assert_eq!((&rows[1]["consumer"], &rows[1]["provider"]), (&json!("web"), &json!("origin")));
    assert_eq!(rows[0]["statuses"], json!({ "200": 1, "429": 2 }));
    let seen = browse(
        &egret,
        r#"
        await open("overview", "origin");
        await page.shows("Consumers");
        await page.shows("66.7 %");
        return [await page.tooWide(), await page.axe()].flat();
        "#,
    );
    assert_eq!(seen, json!([]));
}
