//! `egret lab run` with a proxy that runs already and is named by its URL.

use std::path::PathBuf;
use std::process::Command;

use egret_tests::egret::{Config, egret};
use egret_tests::process::{Directory, run};
use serde_json::Value;

const LUNAR: &str = include_str!("../../experiments/lunar.yaml");
const NO_FLOW: &str = include_str!("../../experiments/configs/no-flow.yaml");

/// Writes the shipped experiment with a faster provider.
fn experiment(directory: &Directory) -> PathBuf {
    std::fs::create_dir(directory.join("configs")).unwrap();
    std::fs::write(directory.join("configs/no-flow.yaml"), NO_FLOW).unwrap();
    directory.write("lunar.yaml", LUNAR.replace("/delay/0.15", "/delay/0.01"))
}

fn lab(directory: &Directory) -> Command {
    let mut command = egret(["lab", "run", "--quick", "--rounds", "1"]);
    command.arg(experiment(directory)).arg("--out").arg(directory.join("out")).env_remove("LUNAR_URL");
    command
}

/// Runs it. Returns exit code and standard error.
fn outcome(command: &mut Command) -> (i32, String) {
    let output = run(command);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_proxy_that_routes_by_header_fields_is_measured_by_its_url() {
    // Egret understands the same fields, so it stands in for the proxy.
    let (gateway, directory) = (Config::default().start(), Directory::default());
    let (code, stderr) = outcome(lab(&directory).env("LUNAR_URL", gateway.url()));
    assert_eq!(code, 0, "{stderr}");
    let turn = |scenario: &str| -> Value {
        let file = directory.join(&format!("out/turns/01-default-{scenario}/turn.json"));
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    };
    let lunar = turn("lunar");
    assert_eq!((&lunar["requests"], &lunar["failed"]), (&2000.into(), &0.into()));
    assert_eq!(lunar["counted"]["calls"], 2000, "all reached the provider");
    assert!(lunar["processes"]["proxy"].is_null() && turn("no-flow")["processes"]["proxy"].is_object());
    // The warm-up and the check before it also passed.
    assert!(gateway.stat("/clients/accepted") >= 2200, "{}", gateway.stats());
    let metadata = std::fs::read_to_string(directory.join("out/metadata.json")).unwrap();
    assert!(metadata.contains(&format!("\"url\": \"{}\"", gateway.url())), "{metadata}");
}

#[test]
fn a_proxy_without_a_url_or_that_does_not_forward_is_told() {
    let directory = Directory::default();
    let (code, stderr) = outcome(&mut lab(&directory));
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("the scenario `lunar`: the environment variable LUNAR_URL is not set"),
        "{stderr}"
    );
    assert!(!directory.join("out.partial").exists());

    let (gateway, directory) = (Config::default().start(), Directory::default());
    let url = format!("{}/elsewhere", gateway.url());
    let (code, stderr) = outcome(lab(&directory).env("LUNAR_URL", &url));
    assert_eq!(code, 1, "{stderr}");
    let expected =
        format!("the proxy at {url} does not forward to the provider: status 404 for /elsewhere/ with");
    assert!(stderr.contains(&expected), "{stderr}");
    assert!(stderr.contains("x-lunar-host: 127.0.0.1:"), "{stderr}");
}
