//! Secrets that are not renewed, and issuers whose keys cannot be fetched: findings begin and end.

use egret_tests::egret::Config;
use egret_tests::found::{until_found, until_over};
use egret_tests::issuer::{StandInIssuer, TokenKey};
use egret_tests::process::Directory;
use egret_tests::provider::Provider;

#[test]
fn a_secret_that_is_not_renewed_is_found_until_it_is() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let file = directory.write_secret("token", "planted-5b1e");
    let flows = format!(
        "secrets: {{ commands: {{ manager: {{ command: [cat, '{}'], lifetime: 1s, timeout: 60s }} }} }}\n\
         accounts: {{ main: {{ provider: origin, bearer: {{ token: '${{exec:manager}}' }} }} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n",
        file.display()
    );
    let config = Config::with_origin(origin.url()).flows(flows);
    let egret = config.start();
    let metric = |value: u32| {
        let line = format!("egret_secret_command_up{{command=\"manager\"}} {value}\n");
        assert!(egret.control_get("/metrics").text().contains(&line), "{line}");
    };
    metric(1);
    std::fs::remove_file(&file).unwrap();
    let found = until_found(&egret, "secret-stale: manager", || {});
    assert_eq!(found["severity"], "warning");
    let evidence = found["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("it ended with exit code 1"), "{found}");
    assert!(!evidence.contains("cat"), "only the log has what the command has written: {found}");
    metric(0);
    directory.write_secret("token", "planted-77c0");
    until_over(&egret, "secret-stale: manager", || {});
    std::fs::remove_file(&file).unwrap();
    let again = until_found(&egret, "secret-stale: manager", || {});
    assert!(again["since_us"].as_u64() > found["since_us"].as_u64(), "{again}");
    egret.rewrite(config.yaml().replace("${exec:manager}", "${env:PATH}"));
    until_over(&egret, "secret-stale: manager", || {});
    assert!(!egret.log().contains("planted") && !again.to_string().contains("planted"));
}

#[test]
fn an_issuer_is_found_while_its_keys_cannot_be_fetched() {
    let (origin, key) = (Provider::plain(), TokenKey::new("one"));
    let issuer = StandInIssuer::start(&[&key], None);
    issuer.go_down();
    let listen = format!(
        "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: '{}', audience: egret }} }} }}",
        issuer.url()
    );
    let egret = Config::with_origin(origin.url()).listen([&listen]).start();
    let name = format!("issuer-failing: {}", issuer.url());
    let found = until_found(&egret, &name, || {});
    assert_eq!(found["severity"], "error");
    assert!(found["summary"].as_str().unwrap().ends_with("so all its tokens are refused"), "{found}");
    let line = format!("egret_issuer_up{{issuer=\"{}\"}} 0\n", issuer.url());
    assert!(egret.control_get("/metrics").text().contains(&line), "{line}");
    issuer.come_back();
    until_over(&egret, &name, || {});
    issuer.go_down();
    // A reload fetches the keys again.
    egret.hang_up();
    let found = until_found(&egret, &name, || {});
    assert_eq!(found["severity"], "warning");
    assert!(found["summary"].as_str().unwrap().ends_with("its last ones stay in use"), "{found}");
    issuer.come_back();
    until_over(&egret, &name, || {});
}
