//! The diagnosis `discovery`: IDs in real traffic are merged, the proposed config is valid and works as
//! described, and neither contains secrets.

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::Provider;
use egret_tests::recorded::{diagnosed, until_recorded};
use egret_tests::secrets::{encoded, secrets};
use egret_tests::wait;
use serde_json::Value;

fn config(url: &str, keys: &str) -> Config {
    Config::with_origin(url)
        .flows(format!("flows:\n- {{ name: all, diagnoses: [discovery: {{ {keys} }}] }}\n"))
}

fn endpoints(egret: &Egret) -> Vec<Value> {
    let discovered = egret.control_get("/api/v1/discovery").json();
    assert_eq!(discovered["flows"][0]["flow"], "all");
    discovered["flows"][0]["endpoints"].as_array().unwrap().clone()
}

fn named<'a>(endpoints: &'a [Value], method: &str, path: &str) -> &'a Value {
    let found = endpoints.iter().find(|endpoint| endpoint["method"] == method && endpoint["path"] == path);
    found.unwrap_or_else(|| panic!("no {method} {path} in {endpoints:#?}"))
}

fn ask(egret: &Egret, method: &str, path: &str) {
    let fields = "X-Egret-Consumer: shop\r\nContent-Length: 0\r\n";
    egret.ask(&format!("{method} /origin{path}"), fields, "");
}

#[test]
fn ids_come_together_and_what_is_proposed_is_a_good_config() {
    let provider = BuiltIn::start(&[]);
    let egret = config(&format!("http://{}", provider.address()), "variety: 5").start();
    let mut sent = 0;
    let mut send = |method: &str, path: &str| {
        ask(&egret, method, path);
        sent += 1;
    };
    for id in 1..=20 {
        send("GET", &format!("/anything/users/{id}"));
        send("POST", &format!("/anything/users/550e8400-e29b-41d4-a716-4466554400{id:02}/orders"));
    }
    for tenant in ["red", "green", "blue", "black", "white", "brown", "grey", "pink"] {
        send("GET", &format!("/anything/tenants/{tenant}/items?page=1"));
    }
    send("GET", "/status/503");
    until_recorded(&egret, sent);
    let found = endpoints(&egret);
    let counted: u64 = found.iter().map(|endpoint| endpoint["count"].as_u64().unwrap()).sum();
    assert_eq!((found.len(), counted), (4, sent));
    let users = named(&found, "GET", "/anything/users/{user_id}");
    assert_eq!((&users["count"], &users["statuses"]["200"]), (&20.into(), &20.into()));
    assert_eq!((&users["provider"], &users["consumers"]["shop"]), (&"origin".into(), &20.into()));
    let [p50, p90, p99] = ["p50_us", "p90_us", "p99_us"].map(|name| users[name].as_u64().unwrap());
    assert!(0 < p50 && p50 <= p90 && p90 <= p99, "{users}");
    assert!(users["first_seen"].as_str() <= users["last_seen"].as_str(), "{users}");
    assert_eq!(named(&found, "POST", "/anything/users/{user_id}/orders")["count"], 20);
    assert_eq!(named(&found, "GET", "/anything/tenants/{tenant_id}/items")["count"], 8);
    assert_eq!(named(&found, "GET", "/status/{status_id}")["statuses"]["503"], 1);

    let proposed = egret.control_get("/api/v1/discovery/flows");
    let yaml = proposed.text().to_owned();
    let directory = Directory::default();
    let file = directory.write("proposed.yaml", &yaml);
    run_checked(egret_command(["check"]).arg(file));
    // The config runs unchanged, and its flows match the traffic that they were made from.
    drop(egret);
    let again = Config::default().flows(yaml).start();
    ask(&again, "GET", "/anything/users/77");
    ask(&again, "DELETE", "/anything/users/77");
    let flows = || again.control_get("/api/v1/flows").json()["flows"].clone();
    wait::until_true("one is recorded", || {
        let flows = flows();
        let users =
            flows.as_array().unwrap().iter().find(|flow| flow["name"] == "origin-anything-users-user_id");
        users.unwrap_or_else(|| panic!("{flows}"))["diagnoses"][0]["recorded"] == 1
    });
}

#[test]
fn an_inventory_outlives_a_restart_where_it_is_kept() {
    let origin = Provider::plain();
    let config = config(&origin.url(), "keep: true");
    let directory = Directory::default();
    let data = format!("data_dir: {}\n", directory.path().display());
    let config =
        config.flows(format!("{data}flows:\n- {{ name: all, diagnoses: [discovery: {{ keep: true }}] }}\n"));
    let mut before = config.start();
    before.get("/users/7").assert_forwarded(200);
    until_recorded(&before, 1);
    let known = endpoints(&before);
    before.terminate();
    assert!(before.until_ended().success());
    let after = config.start();
    assert_eq!(endpoints(&after), known);
    after.get("/users/8").assert_forwarded(200);
    until_recorded(&after, 1);
    assert_eq!(named(&endpoints(&after), "GET", "/users/{user_id}")["count"], 2);
}

#[test]
fn no_secret_is_listed() {
    let origin = Provider::plain();
    let egret = config(&origin.url(), "").start();
    let mut sent = 0;
    for (secret, _) in secrets() {
        for path in [format!("/v1/{}/items", encoded(&secret)), format!("/v1?token={}", encoded(&secret))] {
            egret.get(&path).assert_forwarded(200);
            sent += 1;
        }
    }
    wait::until_true("all are recorded", || diagnosed(&egret, "recorded") == sent);
    for path in ["/api/v1/discovery", "/api/v1/discovery/flows"] {
        let text = egret.control_get(path).text().to_owned();
        assert!(text.contains("/v1/{v1_id}/items"), "{text}");
        for (secret, core) in secrets() {
            assert!(
                !text.contains(&core) && !text.contains(&encoded(&core)),
                "{secret} is in {path}: {text}"
            );
        }
    }
}

#[test]
fn client_programs_are_listed_by_a_private_field() {
    let origin = Provider::plain();
    let egret = config(&origin.url(), "client_field: X-Lunar-Interceptor")
        .gateway("private_fields: [x-lunar-*]")
        .start();
    for interceptor in ["py/1.2", "py/1.2", "ts/3.0"] {
        let request = format!(
            "GET /origin/a HTTP/1.1\r\nHost: {}\r\nX-Lunar-Interceptor: {interceptor}\r\n\r\n",
            egret.address()
        );
        egret.client().send(request).response().assert_forwarded(200);
    }
    until_recorded(&egret, 3);
    let found = endpoints(&egret);
    assert_eq!(found[0]["clients"], serde_json::json!({ "py/1.2": 2, "ts/3.0": 1 }));
    assert!(origin.requests().iter().all(|request| request.values("x-lunar-interceptor").is_empty()));
    let control = egret.control().to_string();
    let table = run_checked(&mut egret_command(["discover", "--control", &control]));
    assert!(table.contains("CLIENTS") && table.contains("py/1.2: 2, ts/3.0: 1"), "{table}");
}
