//! Commands about a running gateway in another terminal, which has none of the variables of its config.

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::exec::Place;
use egret_tests::process::{Process, run, run_checked};
use egret_tests::provider::Provider;
use egret_tests::wait;
use serde_json::Value;

/// Starts a gateway whose config cannot be read without its variables, not even its token.
fn start(origin: &Provider) -> Egret {
    let config = Config::with_origin(origin.url())
        .control("token: '${env:EGRET_TEST_TOKEN}'")
        .provider("other", "https://${env:EGRET_TEST_HOST}/")
        .flows("accounts: { live: { provider: origin, bearer: { token: '${env:EGRET_TEST_KEY}' } } }\n");
    Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_TOKEN", "token-of-the-control-port");
        command.env("EGRET_TEST_HOST", "other.example").env("EGRET_TEST_KEY", "key-of-an-account");
    })
}

#[test]
fn no_variable_of_the_config_is_needed() {
    let origin = Provider::plain();
    let gateway = start(&origin);
    // It serves on a port that the system has chosen.
    let control = gateway.control().to_string();
    let config = std::fs::read_to_string(gateway.directory().join("egret.yaml")).unwrap();
    gateway
        .directory()
        .write("terminal.yaml", config.replace("listen: 127.0.0.1:0", &format!("listen: '{control}'")));
    let command = |name| {
        let mut command = egret([name, "--config", "terminal.yaml"]);
        command.current_dir(gateway.directory().path());
        command
    };
    run_checked(&mut command("health"));
    let tail = Process::printing(&mut command("tail"));
    let fields = format!("Host: {control}\r\nAuthorization: Bearer token-of-the-control-port\r\n");
    let list = || gateway.control_get_with("/api/v1/traffic?limit=0", &fields).json();
    wait::until_true("the command reads", || list()["status"]["readers"] == 1);
    // A worker records exchanges from its next message on, which no response tells.
    wait::until_true("a call is recorded", || {
        gateway.get("/watched").assert_forwarded(200);
        gateway.control_get_with("/api/v1/traffic", &fields).text().contains("/watched")
    });
    tail.until_printed("a call", |lines| lines.iter().any(|line| line.contains("/watched")).then_some(()));
    let is_listed = || run_checked(command("discover").arg("--json")).contains("watched");
    wait::until_true("the call is listed", is_listed);
    let output = run(command("doctor").arg("--json"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["wrong"]), (Some(0), &Value::Array(Vec::new())), "{report}");
    let not_set = report["config_file"]["not_set_here"].as_array().unwrap();
    assert!(not_set.iter().any(|name| name == "EGRET_TEST_HOST"), "{report}");
    assert_eq!(report["config_file"]["valid"], Value::Null, "nobody can tell");
}

/// Commands that need no secret of a config. The first of them stand alone, the others follow
/// `--config FILE`.
const COMMANDS: [(&[&str], &[&str]); 26] = [
    (&["schema"], &[]),
    (&["version"], &[]),
    (&["reference", "config"], &[]),
    (&["completions", "bash"], &[]),
    (&["check", "--no-secrets", "secrets.yaml"], &[]),
    (&["explain", "secrets.yaml", "GET", "/origin/"], &[]),
    (&["explain", "--no-secrets", "--json", "secrets.yaml", "--request", "GET /origin/"], &[]),
    (&["ca", "init", "--force"], &["--config", "secrets.yaml"]),
    (&["health"], &["--config", "terminal.yaml"]),
    (&["status"], &["--config", "terminal.yaml"]),
    (&["reload"], &["--config", "terminal.yaml"]),
    (&["doctor"], &["--config", "terminal.yaml"]),
    (&["doctor", "--full"], &["--config", "terminal.yaml"]),
    (&["doctor", "--json"], &["--config", "terminal.yaml"]),
    (&["discover"], &["--config", "terminal.yaml"]),
    (&["discover", "--json"], &["--config", "terminal.yaml"]),
    (&["discover", "--flows"], &["--config", "terminal.yaml"]),
    (&["tail", "--failed"], &["--config", "terminal.yaml"]),
    (&["tail", "--failed", "--json"], &["--config", "terminal.yaml"]),
    (&["ca", "path"], &["--config", "terminal.yaml"]),
    (&["ca", "show"], &["--config", "terminal.yaml"]),
    (&["ca", "export"], &["--config", "terminal.yaml"]),
    (&["exec"], &["--config", "terminal.yaml", "--", "true"]),
    (&["exec", "--base-urls"], &["--config", "terminal.yaml", "--", "true"]),
    (&["exec", "--print-env"], &["--config", "terminal.yaml"]),
    (&["exec", "--print-env=docker"], &["--config", "terminal.yaml"]),
];

#[test]
fn commands_run_without_the_secrets_of_the_config() {
    let origin = Provider::plain();
    let gateway = start(&origin);
    let directory = gateway.directory();
    let config = std::fs::read_to_string(directory.join("egret.yaml")).unwrap();
    let here = |text: &str| text.replace("listen: 127.0.0.1:0", &format!("listen: '{}'", gateway.control()));
    directory.write("terminal.yaml", here(&config));
    let known: Vec<&str> = config.lines().filter(|line| !line.contains("EGRET_TEST_HOST")).collect();
    directory.write("secrets.yaml", known.join("\n"));
    run_checked(egret(["ca", "init"]).args(["--config", "secrets.yaml"]).current_dir(directory.path()));
    for (command, rest) in COMMANDS {
        run_checked(egret([]).args(command).args(rest).current_dir(directory.path()));
    }
}

#[test]
fn commands_find_the_gateway_that_exec_has_started() {
    let place = Place::new();
    let asked = |name| {
        let mut command = egret([name]);
        place.prepare(&mut command);
        run(&mut command)
    };
    let mut exec = place.exec([], ["sh", "-c", "echo ready; exec sleep 3600"]);
    let command = Process::printing(&mut exec);
    command.until_printed("it runs", |lines| lines.iter().any(|line| line == "ready").then_some(()));
    let status = asked("status");
    let told = String::from_utf8(status.stderr).unwrap();
    assert!(status.status.success() && told.contains("which `egret exec` has started, is asked"), "{told}");
    drop(command);
    place.until_gateways_gone();
    let told = String::from_utf8(asked("status").stderr).unwrap();
    assert!(!told.contains("is asked"), "{told}");
}

#[test]
fn a_command_uses_the_gateway_without_its_variables() {
    let origin = Provider::plain();
    let gateway = start(&origin);
    let place = Place::of(&gateway);
    let data_dir = gateway.directory().join("egret-data");
    place.directory.write(
        "egret.yaml",
        format!(
            "control: {{ listen: '{}', token: '${{env:EGRET_TEST_TOKEN}}' }}\ndata_dir: '{}'\n\
             providers: {{ other: {{ url: 'https://${{env:EGRET_TEST_HOST}}/' }} }}\n\
             accounts: {{ live: {{ provider: other, bearer: {{ token: '${{env:EGRET_TEST_KEY}}' }} }} }}\n",
            gateway.control(),
            data_dir.display()
        ),
    );
    // The key is one of the config's secrets, whatever else of it is missing here.
    let script =
        format!("curl --silent --fail {}/; echo; echo $EGRET_EXEC; echo key=$EGRET_TEST_KEY.", origin.url());
    let printed = run_checked(place.exec([], ["sh", "-c", &script]).env("EGRET_TEST_KEY", "secret"));
    assert!(printed.contains("key=.\n"), "{printed}");
    let mark = format!("{} {}", gateway.control(), data_dir.display());
    assert!(printed.starts_with("hello\n") && printed.contains(&mark), "{printed}");
    assert_eq!(place.logs().len(), 0, "no gateway was started");
}

#[test]
fn a_token_is_named_for_a_gateway_whose_data_directory_is_elsewhere() {
    let origin = Provider::plain();
    let gateway = start(&origin);
    let elsewhere = Place::new();
    let ask = |arguments: &[&str]| {
        let mut discover = egret(["discover", "--json", "--control", &gateway.control().to_string()]);
        elsewhere.prepare(discover.args(arguments).env("TOKEN", "token-of-the-control-port"));
        run(&mut discover)
    };
    let refused = ask(&[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--token"), "{refused:?}");
    let served = ask(&["--token", "${env:TOKEN}"]);
    assert!(served.status.success(), "{served:?}");
    let shown = ask(&["--token", "token-of-the-control-port"]);
    assert_eq!(shown.status.code(), Some(2), "a secret does not stand on the command line");
}
