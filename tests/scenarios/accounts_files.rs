//! Secret files: changes are picked up, world-readable files are rejected.

use std::os::unix::fs::{PermissionsExt, symlink};

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use egret_tests::wait;

fn config(origin: &Provider, file: &std::path::Path) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{}}}\" }} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n",
        file.display()
    ))
}

/// Returns the token used by the next call.
fn token(egret: &Egret, origin: &Provider) -> String {
    egret.get("/a").assert_forwarded(200);
    origin.requests().last().unwrap().values("authorization").concat()
}

#[test]
fn a_secret_that_changes_is_picked_up_without_a_signal() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let file = directory.write_secret("token", "first\n");
    let egret = config(&origin, &file).start();
    assert_eq!(token(&egret, &origin), "Bearer first");
    directory.write_secret("token", "second");
    wait::until_true("the second is used", || token(&egret, &origin) == "Bearer second");
    assert_eq!(egret.stat("/reloads_refused"), 0, "{}", egret.log());
}

#[test]
fn a_secret_behind_a_link_that_is_swapped_is_picked_up() {
    // The layout of Kubernetes mounts: token → ..data/token, ..data → ..one.
    let origin = Provider::plain();
    let directory = Directory::default();
    for (name, token) in [("..one", "first"), ("..two", "second")] {
        std::fs::create_dir(directory.join(name)).unwrap();
        let file = directory.join(name).join("token");
        std::fs::write(&file, token).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    symlink("..one", directory.join("..data")).unwrap();
    symlink("..data/token", directory.join("token")).unwrap();
    let egret = config(&origin, &directory.join("token")).start();
    assert_eq!(token(&egret, &origin), "Bearer first");
    symlink("..two", directory.join("..next")).unwrap();
    std::fs::rename(directory.join("..next"), directory.join("..data")).unwrap();
    wait::until_true("the second is used", || token(&egret, &origin) == "Bearer second");
}

#[test]
fn a_secret_that_goes_away_leaves_the_running_config_and_comes_back() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let file = directory.write_secret("token", "first");
    let egret = config(&origin, &file).start();
    std::fs::remove_file(&file).unwrap();
    wait::until_true("the reload is rejected", || egret.stat("/reloads_refused") == 1);
    egret.until_logged("cannot read the secret file");
    assert_eq!(token(&egret, &origin), "Bearer first");
    directory.write_secret("token", "third");
    wait::until_true("the third is used", || token(&egret, &origin) == "Bearer third");
}

#[test]
fn a_file_that_everybody_may_read_is_refused_unless_that_is_wanted() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let file = directory.write_secret("token", "first");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let yaml = config(&origin, &file).yaml();
    let check = |yaml: &str| {
        let config = directory.write("egret.yaml", yaml);
        let checked = run(egret(["check", config.to_str().unwrap()]).env("NO_COLOR", "1"));
        (checked.status.code(), String::from_utf8_lossy(&checked.stderr).into_owned())
    };
    let (code, stderr) = check(&yaml);
    assert_eq!(code, Some(2), "{stderr}");
    let wanted = format!(
        "accounts.main.bearer.token: every user of this machine may read {0}: run `chmod o-r {0}`",
        file.display()
    );
    assert!(stderr.contains(&wanted) && !stderr.contains("first"), "{stderr}");
    assert_eq!(check(&format!("secrets: {{ world_readable: allow }}\n{yaml}")).0, Some(0));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(check(&yaml).0, Some(0));
}
