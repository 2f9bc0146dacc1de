//! Durable quotas: counted in a file, however the process ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use egret_tests::egret::{binary, egret};
use egret_tests::http::Client;
use egret_tests::process::{Directory, Process, run};
use egret_tests::provider::Provider;
use egret_tests::wait::{far_from_now, until};

/// Writes the config of a gateway whose calls to `origin` draw from a quota of 20 per day in a file.
fn config(directory: &Directory, origin: &Provider) -> PathBuf {
    let yaml = format!(
        "gateway: {{ listen: ['127.0.0.1:0'], workers: 1 }}\n\
         control: {{ listen: '127.0.0.1:0' }}\n\
         log: {{ format: json }}\n\
         data_dir: {}\n\
         providers: {{ origin: {{ url: '{}' }} }}\n\
         quotas: {{ daily: {{ kind: calendar, period: day, limit: 20, store: file, renews: {{ time: '{}' }} }} }}\n\
         flows: [{{ name: all, remedies: [limit: {{ quota: daily }}] }}]\n",
        directory.join("data").display(),
        origin.url(),
        far_from_now(),
    );
    directory.write("egret.yaml", yaml)
}

fn start(file: &Path) -> (Process, SocketAddr) {
    let process = Process::start(Command::new(binary()).arg("run").arg("--config").arg(file));
    let address = process.until_prints("the gateway listens", |lines| {
        lines.iter().find_map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).ok()?;
            let fields = record.get("fields").unwrap_or(&record);
            fields["message"].as_str()?.starts_with("gateway").then_some(())?;
            fields["address"].as_str()?.parse().ok()
        })
    });
    (process, address)
}

/// Number of `count` calls that are forwarded; the quota rejects the others. A call is repeated if it could
/// not be counted, because the file did not respond for a second.
fn calls(address: SocketAddr, count: usize) -> usize {
    let mut client = Client::connect(address);
    let mut counted = || {
        let response = client.get(address, "/origin/").response();
        (response.field("x-egret-error") != Some("store-unavailable")).then_some(response)
    };
    let responses = (0..count).map(|_| until("the file of the quota responds", &mut counted));
    responses
        .filter(|response| {
            assert!(matches!(response.status, 200 | 429), "{response:?}");
            response.status == 200
        })
        .count()
}

#[test]
fn units_used_before_a_kill_stay_used() {
    for period in ["day", "month"] {
        let (directory, origin) = (Directory::default(), Provider::plain());
        let file = config(&directory, &origin);
        let daily = std::fs::read_to_string(&file).unwrap();
        directory.write("egret.yaml", daily.replace("period: day", &format!("period: {period}")));
        let (mut process, address) = start(&file);
        assert_eq!(calls(address, 8), 8);
        process.signal("KILL");
        assert!(!process.until_ended().success());
        let (_process, address) = start(&file);
        let more = calls(address, 20);
        assert!((10..=12).contains(&more), "{more} more calls in the same {period}");
        assert_eq!(origin.requests().len(), 8 + more);
    }
}

#[test]
fn a_clean_stop_loses_nothing() {
    let (directory, origin) = (Directory::default(), Provider::plain());
    let file = config(&directory, &origin);
    let mut through = 0;
    for count in [7, 6, 20] {
        let (mut process, address) = start(&file);
        through += calls(address, count);
        process.signal("TERM");
        assert!(process.until_ended().success());
    }
    assert_eq!(through, 20);
}

#[test]
fn a_file_that_another_gateway_has_open_is_refused_at_start() {
    let (directory, origin) = (Directory::default(), Provider::plain());
    let file = config(&directory, &origin);
    let (_process, _) = start(&file);
    let output = run(egret(["run", "--config"]).arg(&file));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("quotas.redb") && stderr.contains("give each gateway its own `data_dir`"),
        "{stderr}"
    );
}

#[test]
fn a_reload_that_brings_the_first_durable_quota_opens_the_file() {
    let (directory, origin) = (Directory::default(), Provider::plain());
    let file = config(&directory, &origin);
    let durable = std::fs::read_to_string(&file).unwrap();
    directory.write("egret.yaml", durable.replace("store: file", "store: memory"));
    let (mut process, address) = start(&file);
    assert!(!directory.join("data/quotas.redb").exists());
    directory.write("egret.yaml", &durable);
    process.until_prints("the new config is in force", |lines| {
        lines.iter().any(|line| line.contains("config reloaded")).then_some(())
    });
    assert_eq!(calls(address, 25), 20);
    process.signal("TERM");
    assert!(process.until_ended().success());
    let (_process, address) = start(&file);
    assert_eq!(calls(address, 3), 0);
}
