//! The first calls of a newcomer, in steps: the demo, a provider of one's own, programs that nobody changed.

use std::net::Ipv4Addr;
use std::process::Command;

use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, egret};
use egret_tests::exec::{NamedProvider, Place, has_namespaces};
use egret_tests::found::until_found;
use egret_tests::http::Client;
use egret_tests::intercepted::{SecureProvider, tunnel};
use egret_tests::process::{Directory, Process};
use egret_tests::provider::Provider;
use egret_tests::steps::{Steps, assert_all_played, judge};

/// Ports that are free: those of a newcomer are, and a test may take no other.
const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];

#[test]
fn first_calls_take_no_more_steps_than_documented() {
    judge(
        "make test ONLY=steps_of_first_calls",
        &[
            ("See traffic through the demo", see_the_demo),
            ("Call a provider of one's own by its name", call_an_own_provider),
            ("Learn that calls in tunnels pass by the flows", learn_of_tunnels),
            ("Run a program through Egret, unchanged", run_a_program),
            ("Intercept a provider with a private authority", intercept_a_private_authority),
            ("Let a program reach the network through Egret only", isolate_a_program),
            ("Make an authority, and learn how to trust it", make_an_authority),
        ],
    );
}

#[test]
fn every_task_of_the_table_is_played() {
    assert_all_played();
}

/// Returns the word behind `name=` in the first line that has it.
fn printed(process: &Process, name: &str) -> String {
    process.until_prints(name, |lines| {
        let line = lines.iter().find_map(|line| line.split_once(&format!("{name}=")))?;
        Some(line.1.split_whitespace().next()?.trim_matches('"').to_owned())
    })
}

fn see_the_demo(steps: &mut Steps) {
    let directory = Directory::default();
    let demo =
        steps.starts(egret(["run", "--demo"]).args(FREE).env("NO_COLOR", "1").current_dir(directory.path()));
    let url = printed(&demo, "base_url");
    let answer = steps.runs(Command::new("curl").args(["--silent", "--fail", &format!("{url}/get")]));
    assert!(answer.contains("/get"), "{answer}");
}

fn call_an_own_provider(steps: &mut Steps) {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let text = format!("providers: {{ shop: {{ url: '{}' }} }}\n", origin.url());
    steps.writes(&directory.join("egret.yaml"), &text);
    let gateway = steps.starts(egret(["run"]).args(FREE).env("NO_COLOR", "1").current_dir(directory.path()));
    let url = printed(&gateway, "base_url");
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/shop")).unwrap();
    let address = address.parse().unwrap();
    Client::connect(address).get(address, "/shop/orders").response().assert_forwarded(200);
}

fn learn_of_tunnels(steps: &mut Steps) {
    let origin = Provider::plain();
    let host = origin.address();
    let flows = "flows: [{ name: calls, match: { provider: shop }, remedies: [timeout: 1h] }]\n";
    let gateway = Config::default().provider("shop", format!("https://{host}")).flows(flows).start();
    until_found(&gateway, "flows-bypassed: tunnels", || drop(tunnel(&gateway, &host.to_string())));
    let mut status = egret(["status", "--control", &gateway.control().to_string()]);
    let told = steps.ends(status.current_dir(gateway.directory().path()), 1);
    assert!(told.contains("tunnels to a configured provider pass by its flows"), "{told}");
}

fn run_a_program(steps: &mut Steps) {
    let NamedProvider { origin, place, .. } = &NamedProvider::start();
    steps.runs(&mut place.exec([], ["curl", "--silent", "--fail", "http://plain.test/program"]));
    place.until_gateways_gone();
    assert!(!origin.requests()[0].values("via").is_empty(), "{:?}", origin.requests());
}

fn intercept_a_private_authority(steps: &mut Steps) {
    let origin = Provider::plain();
    let provider = SecureProvider::named(&origin.url(), &["company.test"]);
    let names = NameServer::start(|_| Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60));
    // Nothing but the ports and the name server of the test.
    let place = Place::with(&format!(
        "gateway:\n  listen: ['127.0.0.1:0']\n  {}\ncontrol: {{ listen: 127.0.0.1:0 }}\n",
        names.config()
    ));
    let authority = place.directory.write("company.pem", provider.authority().certificate());
    let url = format!("https://company.test:{}/private", provider.port());
    let mut exec = place.exec(["--intercept=company.test"], ["curl", "--silent", "--fail", &url]);
    steps.runs(exec.env("SSL_CERT_FILE", authority));
    place.until_gateways_gone();
    assert!(!origin.requests()[0].values("via").is_empty(), "{:?}", origin.requests());
}

fn isolate_a_program(steps: &mut Steps) {
    if !has_namespaces() {
        return;
    }
    let NamedProvider { origin, place, .. } = &NamedProvider::start();
    let curl = ["curl", "--silent", "--fail", "--noproxy", "*", "https://origin.test/isolated"];
    steps.runs(&mut place.exec(["--isolate", "--intercept"], curl));
    place.until_gateways_gone();
    assert_eq!(origin.requests()[0].target(), "/isolated");
}

fn make_an_authority(steps: &mut Steps) {
    let directory = Directory::default();
    let mut init = egret(["ca", "init", "--host", "api.example.com"]);
    let told = steps.runs(init.current_dir(directory.path()));
    for part in ["api.example.com", "curl --cacert \"$(egret ca path)\"", "egret ca install"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
