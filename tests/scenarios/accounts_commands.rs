//! Secrets that a command prints, and that systemd passes: fetched once, renewed, and kept while the
//! source is away.

use std::path::Path;

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use egret_tests::wait;

/// A config whose account `main` has the secret of the command `manager`: the shell runs `script`.
fn config(origin: &Provider, script: &str, lifetime: &str) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "secrets:\n  commands:\n    manager: {{ command: [sh, -c, '{script}'], lifetime: {lifetime}, timeout: 60s }}\n\
         accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{exec:manager}}\" }} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
    ))
}

/// Returns the token used by the next call, which must not fail.
fn token(egret: &Egret, origin: &Provider) -> String {
    egret.get("/a").assert_forwarded(200);
    origin.requests().last().unwrap().values("authorization").concat()
}

fn reads(file: &Path) -> String {
    format!("cat {}", file.display())
}

#[test]
fn a_command_is_run_again_when_its_lifetime_is_over() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let file = directory.write_secret("token", "first\n");
    let egret = config(&origin, &reads(&file), "1s").start();
    assert_eq!(token(&egret, &origin), "Bearer first");
    directory.write_secret("token", "second");
    wait::until_true("the second is used", || token(&egret, &origin) == "Bearer second");
    assert_eq!(egret.stat("/reloads_refused"), 0, "{}", egret.log());
}

#[test]
fn a_manager_that_is_away_leaves_the_last_secret() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let file = directory.write_secret("token", "first");
    let egret = config(&origin, &reads(&file), "1s").start();
    std::fs::remove_file(&file).unwrap();
    let log = egret.log_with("a secret was not renewed");
    assert!(log.contains("it ended with exit code 1: cat: "), "{log}");
    assert_eq!(token(&egret, &origin), "Bearer first");
    // A reload has no need of it either.
    let before = egret.stat("/reloads");
    egret.hang_up();
    wait::until_true("the config is applied again", || egret.stat("/reloads") > before);
    assert_eq!(token(&egret, &origin), "Bearer first");
    directory.write_secret("token", "third");
    wait::until_true("the third is used", || token(&egret, &origin) == "Bearer third");
    egret.until_logged("the command gives its secret again");
    assert_eq!(egret.log().matches("a secret was not renewed").count(), 1);
    assert_eq!(egret.stat("/reloads_refused"), 0, "{}", egret.log());
}

#[test]
fn a_command_runs_once_for_all_references_and_again_on_request() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let runs = directory.join("runs");
    let script = format!("echo run >> {}; echo first", runs.display());
    let mut yaml = config(&origin, &script, "1d").yaml();
    for number in 0..100 {
        let account = format!(
            "  more-{number}: {{ provider: origin, bearer: {{ token: \"${{exec:manager}}\" }} }}\nflows:"
        );
        yaml = yaml.replacen("flows:", &account, 1);
    }
    let egret = Config::written(yaml.clone()).start();
    let count = || std::fs::read_to_string(&runs).unwrap().lines().count();
    assert_eq!(count(), 1);
    egret.change_config(yaml.replace("level: debug", "level: info"));
    assert_eq!((count(), token(&egret, &origin)), (1, "Bearer first".to_owned()));
    egret.hang_up();
    wait::until_true("it is run again", || count() == 2);
}

#[test]
fn a_command_gets_no_other_secret_and_no_log_shows_its_own() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let seen = directory.join("seen");
    // The file is replaced, because the command is run again while the file is read.
    let script = format!(
        "env > {0}.new; mv {0}.new {0}; echo planted-in-output; echo planted-in-output >&2",
        seen.display()
    );
    let mut yaml = config(&origin, &script, "1s").yaml();
    let account = "  other: { provider: origin, bearer: { token: \"${env:EGRET_TEST_OTHER}\" } }\nflows:";
    yaml = yaml.replacen("flows:", account, 1);
    yaml = yaml.replace("level: debug", "level: trace");
    let egret = Egret::start_with(&Config::written(yaml), |command| {
        command.env("EGRET_TEST_OTHER", "planted-in-variable").env("EGRET_TEST_PLAIN", "plain");
    });
    assert_eq!(token(&egret, &origin), "Bearer planted-in-output");
    let seen = std::fs::read_to_string(&seen).unwrap();
    assert!(seen.contains("EGRET_TEST_PLAIN=plain") && !seen.contains("planted"), "{seen}");
    let response = egret.control_get("/api/v1/config");
    let config = response.text();
    assert!(config.contains("${exec:manager}") && !config.contains("planted-in-variable"), "{config}");
    assert!(!egret.log().contains("planted-in-output\"") && !egret.log().contains("Bearer planted"));
}

#[test]
fn a_config_is_refused_if_a_command_gives_no_secret() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let check = |yaml: &str, option: &str| {
        let config = directory.write("egret.yaml", yaml);
        let mut command = egret(["check", config.to_str().unwrap()]);
        command.args(Some(option).filter(|option| !option.is_empty())).env("NO_COLOR", "1");
        let checked = run(&mut command);
        (checked.status.code(), String::from_utf8_lossy(&checked.stderr).into_owned())
    };
    let fails = config(&origin, "echo hunter2; echo no policy >&2; exit 3", "1h").yaml();
    let (code, stderr) = check(&fails, "");
    let wanted = "accounts.main.bearer.token: the command `manager` of `secrets.commands` gives no secret: it ended with exit code 3: no policy";
    assert!(code == Some(2) && stderr.contains(wanted) && !stderr.contains("hunter2"), "{stderr}");
    assert_eq!(check(&fails, "--no-secrets").0, Some(0));
    let (code, stderr) = check(&fails.replace("exec:manager", "exec:manger"), "--no-secrets");
    assert!(code == Some(2) && stderr.contains("did you mean `manager`?"), "{stderr}");
}

#[test]
fn a_credential_of_systemd_is_a_secret_that_may_change() {
    let origin = Provider::plain();
    let directory = Directory::default();
    directory.write_secret("stripe", "first\n");
    let config = config(&origin, "echo unused", "1h").yaml().replace("exec:manager", "credential:stripe");
    let config = Config::written(config);
    let egret = Egret::start_with(&config, |command| {
        command.env("CREDENTIALS_DIRECTORY", directory.join(""));
    });
    assert_eq!(token(&egret, &origin), "Bearer first");
    directory.write_secret("stripe", "second");
    wait::until_true("the second is used", || token(&egret, &origin) == "Bearer second");
}
