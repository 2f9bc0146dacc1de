//! A listener that uses TLS with its clients.

use std::thread;
use std::time::Instant;

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{Httpbin, curl};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::wait;

/// Starts a gateway that listens with and without TLS. Returns it with a directory that contains `ca.pem`.
fn over_tls(authority: &Authority, origin: &str, more: &str) -> (Egret, Directory) {
    let directory = Directory::default();
    directory.write("ca.pem", authority.certificate());
    let config = config(authority, &directory, origin, more);
    (config.start(), directory)
}

fn config(authority: &Authority, directory: &Directory, origin: &str, more: &str) -> Config {
    let leaf = authority.leaf(&["localhost"]);
    let certificate = directory.write("server.pem", leaf.certificate);
    let key = directory.write_secret("server.key", leaf.key);
    let tls = format!(
        "{{ address: \"127.0.0.1:0\", tls: {{ certificate: \"{}\", key: \"${{file:{}}}\" }} }}",
        certificate.display(),
        key.display()
    );
    Config::with_origin(origin).listen(["\"127.0.0.1:0\"", &tls]).gateway(more)
}

fn url(egret: &Egret, path: &str) -> String {
    format!("https://localhost:{}{path}", egret.listener(1).port())
}

#[test]
fn curl_calls_a_provider_by_a_base_url_over_tls() {
    let httpbin = Httpbin::start();
    let authority = Authority::default();
    let (egret, directory) = over_tls(&authority, &httpbin.url(), "workers: 1");
    let ca = directory.join("ca.pem").display().to_string();
    let urls: Vec<String> = (1..=3).map(|n| url(&egret, &format!("/origin/bytes/{n}000?seed=1"))).collect();
    let arguments =
        ["--fail", "--cacert", &ca, "-o", "/dev/null", "-w", "%{size_download} %{num_connects}\n"];
    let mut command = curl();
    for url in &urls {
        command.args(["--next"]).args(arguments).arg(url);
    }
    assert_eq!(run_checked(&mut command), "1000 1\n2000 0\n3000 0\n", "on one connection");
    let posted = run_checked(curl().args(["--cacert", &ca, "-d", "a=b", &url(&egret, "/origin/post")]));
    assert!(posted.contains("\"a\""), "{posted}");
}

#[test]
fn curl_takes_it_for_its_proxy_over_tls_and_tunnels_through_it() {
    let httpbin = Httpbin::start();
    let authority = Authority::default();
    let (egret, directory) = over_tls(&authority, &httpbin.url(), "workers: 1");
    let ca = directory.join("ca.pem").display().to_string();
    let proxy = url(&egret, "");
    for tunnel in [&[][..], &["--proxytunnel"]] {
        let arguments = ["--proxy", &proxy, "--proxy-cacert", &ca, "-o", "/dev/null", "-w", "%{http_code}"];
        let target = format!("{}/get", httpbin.url());
        assert_eq!(run_checked(curl().args(arguments).args(tunnel).arg(target)), "200", "{tunnel:?}");
    }
}

#[test]
fn an_idle_connection_over_tls_uses_no_processor() {
    let httpbin = Httpbin::start();
    let authority = Authority::default();
    let (egret, directory) = over_tls(&authority, &httpbin.url(), "workers: 1");
    let ca = directory.join("ca.pem").display().to_string();
    let target = url(&egret, "/origin/delay/2");
    // While a call is in progress, its connection and pending ones are idle: the worker sleeps.
    let (began, before) = (Instant::now(), egret.process().runnable_times());
    let code =
        run_checked(curl().args(["--cacert", &ca, "-o", "/dev/null", "-w", "%{http_code}"]).arg(target));
    assert_eq!(code, "200");
    let runnable = egret.process().longest_runnable(&before);
    let passed = began.elapsed();
    assert!(runnable < passed / 2, "a thread was ready to run for {runnable:?} of {passed:?}");
}

#[test]
fn clients_without_tls_are_refused_and_counted() {
    let authority = Authority::default();
    let (egret, _directory) = over_tls(&authority, "http://127.0.0.1:9", "timeouts: { head: 1s }");
    let plain = format!("http://localhost:{}/", egret.listener(1).port());
    let failed = run(curl().args(["--max-time", "10", &plain]));
    assert!(!failed.status.success());
    wait::until("the failure is counted", || (egret.stat("/clients/tls_failures") == 1).then_some(()));
    // A silent client gets the timeout of a head.
    let silent = std::net::TcpStream::connect(egret.listener(1)).unwrap();
    wait::until("the silent one is disconnected", || {
        (egret.stat("/clients/tls_failures") == 2).then_some(())
    });
    drop(silent);
    wait::until("nobody is left", || (egret.stat("/clients/open") == 0).then_some(()));
}

#[test]
fn a_renewed_certificate_is_shown_after_a_reload() {
    let httpbin = Httpbin::start();
    let (first, second) = (Authority::default(), Authority::default());
    let (egret, directory) = over_tls(&first, &httpbin.url(), "workers: 1");
    let renewed = second.leaf(&["localhost"]);
    directory.write("server.pem", renewed.certificate);
    directory.write_secret("server.key", renewed.key);
    let ca = directory.write("second.pem", second.certificate()).display().to_string();
    egret.hang_up();
    // The key file is watched too, so it may be reloaded twice.
    wait::until("the reload is done", || (egret.stat("/reloads") >= 1).then_some(()));
    let code = run_checked(curl().args([
        "--cacert",
        &ca,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        &url(&egret, "/origin/get"),
    ]));
    assert_eq!(code, "200");
}

#[test]
fn a_key_that_does_not_fit_is_refused_with_its_place() {
    let authority = Authority::default();
    let directory = Directory::default();
    let yaml = config(&authority, &directory, "http://127.0.0.1:9", "workers: 1").yaml();
    directory.write_secret("server.key", authority.leaf(&["localhost"]).key);
    let file = directory.write("egret.yaml", yaml);
    let checked = run(egret_tests::egret::egret(["check", &file.display().to_string()]).env("NO_COLOR", "1"));
    let stderr = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("tls.key") && stderr.contains("cannot be used with the certificate"), "{stderr}");
}

#[test]
fn many_clients_over_tls_at_once_all_get_their_responses() {
    let httpbin = Httpbin::start();
    let authority = Authority::default();
    let (egret, directory) = over_tls(&authority, &httpbin.url(), "workers: 2");
    let ca = directory.join("ca.pem").display().to_string();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let target = url(&egret, "/origin/bytes/100000?seed=[1-5]");
                let sizes = run_checked(curl().args([
                    "--cacert",
                    &ca,
                    "-o",
                    "/dev/null",
                    "-w",
                    "%{size_download}\n",
                    &target,
                ]));
                assert_eq!(sizes, "100000\n".repeat(5));
            });
        }
    });
}
