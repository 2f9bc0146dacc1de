//! `egret import harchiver`: the config of a command line.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run, run_checked};

#[test]
fn a_command_line_becomes_a_config_that_passes_check() {
    let line = [
        "import",
        "harchiver",
        "15000",
        "-rev",
        "api.example:81",
        "-c",
        "9",
        "-replays",
        "-host",
        "collector.example",
    ];
    let config = run_checked(&mut egret(line));
    for part in
        ["# ", "exchanges: 9", "bodies: 1MiB", "tcp://collector.example:5500", "http://api.example:81"]
    {
        assert!(config.contains(part), "{part} is not in\n{config}");
    }
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config);
    run_checked(egret(["check"]).arg(file));
}

#[test]
fn its_token_is_named_and_not_shown() {
    let config =
        run_checked(&mut egret(["import", "harchiver", "15000", "my-own-token", "-host", "a.example"]));
    assert!(config.contains("${env:") && !config.contains("my-own-token"), "{config}");
}

#[test]
fn an_ambiguous_option_names_those_that_it_may_be() {
    for command in [&["archiver"][..], &["import", "harchiver"]] {
        let output = run(egret([]).args(command).args(["15000", "-r", "api.example"]));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr.contains("-reverse") && stderr.contains("-replays"), "{stderr}");
    }
}
