//! Secret files that would block the reader, or are endless.

use egret_tests::egret::{Config, egret};
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::provider::Provider;
use egret_tests::wait;

#[test]
fn a_pipe_in_the_place_of_a_secret_holds_up_no_reload() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let file = directory.write_secret("token", "first");
    let egret = Config::with_origin(origin.url())
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{}}}\" }} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n",
            file.display()
        ))
        .start();
    let token = || {
        egret.get("/a").assert_forwarded(200);
        origin.requests().last().unwrap().values("authorization").concat()
    };
    let pipe = directory.join("pipe");
    run_checked(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe));
    std::fs::rename(&pipe, &file).unwrap();
    egret.hang_up();
    wait::until_true("the reload is rejected", || egret.stat("/reloads_refused") > 0);
    egret.until_logged("it is not a regular file");
    assert_eq!(token(), "Bearer first");
    std::fs::remove_file(&file).unwrap();
    directory.write_secret("token", "second");
    wait::until_true("the second is used", || token() == "Bearer second");
}

#[test]
fn a_file_that_is_too_long_for_a_secret_is_refused() {
    let directory = Directory::default();
    let long = directory.write_secret("long", "a".repeat(5_000_000)).display().to_string();
    let config = directory.write(
        "egret.yaml",
        format!(
            "providers: {{ origin: {{ url: \"https://127.0.0.1:9\" }} }}\n\
             accounts: {{ main: {{ provider: origin, bearer: {{ token: \"${{file:{long}}}\" }} }} }}\n"
        ),
    );
    let checked = run(egret(["check"]).arg(config));
    let stderr = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("it is longer than 65536 bytes"), "{stderr}");
}
