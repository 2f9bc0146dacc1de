//! `egret explain` and a running gateway, as processes, say the same of some hundreds of requests.

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use serde_json::Value;

/// A request in both forms: the words of `explain`, and the bytes that a client sends.
struct Asked {
    words: Vec<String>,
    bytes: String,
}

fn asked(egret: &Egret, host: &str, path: &str, field: &str, method: &str, is_proxied: bool) -> Asked {
    let address = egret.address();
    let (url, target, sent) = if is_proxied {
        let url = format!("http://{host}{path}");
        (url.clone(), url, host.to_owned())
    } else {
        (format!("http://{address}{path}"), path.to_owned(), address.to_string())
    };
    let mut words = vec!["-r".to_owned(), format!("{method} {url}"), "-H".to_owned(), field.to_owned()];
    words.push("--json".to_owned());
    Asked { words, bytes: format!("{method} {target} HTTP/1.1\r\nHost: {sent}\r\n{field}\r\n\r\n") }
}

fn agree(config: &Config, requests: impl Fn(&Egret) -> Vec<Asked>, origin: &Provider) -> (usize, usize) {
    let egret_running = config.start();
    let address = egret_running.address().to_string();
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config.yaml().replacen("127.0.0.1:0", &address, 1));
    let (mut served, mut refused) = (0, 0);
    for Asked { words, bytes } in requests(&egret_running) {
        let output = run(egret(["explain"]).arg(&file).args(&words));
        let said: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)));
        let before = origin.requests().len();
        let method = bytes.split(' ').next().unwrap();
        let response = egret_running.client().send(&bytes).response_to(method);
        let error = response.field("x-egret-error");
        assert_eq!(said["error"]["error"].as_str(), error, "{bytes}{said:#}");
        assert_eq!(output.status.code(), Some(i32::from(error.is_some())), "{bytes}");
        if error.is_some() {
            assert_eq!(said["error"]["status"], response.status, "{bytes}");
            refused += 1;
            continue;
        }
        served += 1;
        if said["answered_by"] == "remedy" {
            assert_eq!(
                (said["status"].as_u64(), origin.requests().len()),
                (Some(response.status.into()), before)
            );
            continue;
        }
        let received = origin.requests().last().unwrap().clone();
        let base = if said["provider"] == "origin" { "/v1" } else { "" };
        let expected = format!("{base}{}", said["target"].as_str().unwrap());
        let same = |target: &str| target.trim_end_matches('/').to_owned();
        assert_eq!(same(received.target()), same(&expected), "{bytes}{said:#}");
        let flows = said["flows"].as_array().unwrap().iter().filter(|flow| flow["matches"] == true);
        let flows: Vec<&str> = flows.filter_map(|flow| flow["flow"].as_str()).collect();
        assert_eq!(flows, received.values("x-flow"), "{bytes}{said:#}");
    }
    (served, refused)
}

#[test]
fn hundreds_of_requests_end_as_explained() {
    let origin = Provider::plain();
    let server = origin.address();
    let flow = |name: &str, rule: &str| {
        format!(
            "- name: {name}\n  match: {{ {rule} }}\n  remedies: [ {{ transform: {{ request: {{ headers: {{ add: {{ x-flow: {name} }} }} }} }} }} ]\n"
        )
    };
    let flows = [
        "flows:\n".to_owned(),
        flow("users", "path: '/users/{id}'"),
        flow("gold", "header: { x-tier: gold }"),
        flow("origin", "provider: origin, method: [GET, POST]"),
        "- name: tea\n  match: { path: '/tea' }\n  remedies: [ { fixed-response: { status: 418 } } ]\n"
            .to_owned(),
    ];
    let config = |egress: &str| {
        Config::with_origin(format!("http://{server}/v1"))
            .gateway(format!("egress: {egress}"))
            .flows(flows.concat())
    };
    let hosts =
        [server.to_string(), "169.254.169.254".to_owned(), "0x7f.1".to_owned(), "no.example".to_owned()];
    let paths = ["/users/7?a=1", "/v1/users/%37", "/tea", "/v1/../x", "/v1"];
    let own_paths = ["/origin/users/7", "/origin", "/origin//a", "/other/x", "/origin/%2e%2e/x", "/tea"];
    let fields = ["x-tier: gold", "Max-Forwards: 0", "x-egret-scheme: ftp"];
    let requests = |egret: &Egret| {
        let mut requests = Vec::new();
        for (skipped, method) in ["GET", "POST", "OPTIONS"].into_iter().enumerate() {
            // Two of three: all of them show no more, and take half as long again.
            for (_, field) in fields.into_iter().enumerate().filter(|(number, _)| *number != skipped) {
                let proxied = hosts.iter().flat_map(|host| paths.map(|path| (host.as_str(), path, true)));
                // Nobody can look the name up here: only a policy that denies it does not try.
                let own = own_paths.map(|path| ("", path, false));
                for (host, path, is_proxied) in proxied.chain(own) {
                    requests.push(asked(egret, host, path, field, method, is_proxied));
                }
                let named = format!("x-egret-host: {server}\r\n{field}");
                let mut by_field = asked(egret, "", "/v1/users/8", field, method, false);
                by_field.words.extend(["-H".to_owned(), format!("x-egret-host: {server}")]);
                by_field.bytes = by_field.bytes.replace(field, &named);
                requests.push(by_field);
            }
        }
        requests
    };
    let port = server.port();
    let denying = format!(
        "{{ default: deny, allow: [ {{ net: 127.0.0.1/32, ports: [{port}] }} ], deny: [ {{ host: no.example }} ] }}"
    );
    let mut sums = (0, 0);
    for egress in ["{ deny: [ { host: no.example } ] }", &denying] {
        let (served, refused) = agree(&config(egress), requests, &origin);
        sums = (sums.0 + served, sums.1 + refused);
    }
    println!("{} requests were served as explained, {} refused", sums.0, sums.1);
    assert!(sums.0 >= 60 && sums.1 >= 100, "{sums:?}");
}
