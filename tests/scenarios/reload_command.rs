//! `egret reload` applies the config file, and prints whether it has changed, or why it was refused.

use std::process::Output;

use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::process::run;
use egret_tests::provider::Provider;

fn reload(egret: &Egret) -> (Option<i32>, String) {
    let mut command = egret_command(["reload", "--control", &egret.control().to_string()]);
    let Output { status, stdout, stderr } = run(command.current_dir(egret.directory().path()));
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_reload_without_a_change_says_so() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let egret = config.start();
    assert_eq!(reload(&egret), (Some(0), "reloaded: nothing has changed\n".to_owned()));
    assert_eq!(egret.stat("/reloads"), 1);
    egret.until_logged("config reloaded");
}

#[test]
fn a_refused_config_is_explained_and_changes_nothing() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    egret.rewrite("providers: { origin: { ulr: x } }\n");
    let (code, message) = reload(&egret);
    assert_eq!(code, Some(2), "{message}");
    for part in ["refused the config, and the one before stays in effect", "unknown key `ulr`"] {
        assert!(message.contains(part), "{message}");
    }
    egret.get("/a").assert_forwarded(200);
}
