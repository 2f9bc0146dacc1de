//! Clients that refuse the gateway's certificate: noticed, counted, and logged with what to do.

use egret_tests::intercepted::{Intercepting, SecureProvider, client_config, config, connection, tunnel};
use egret_tests::peers::curl;
use egret_tests::process::{run, run_checked};
use egret_tests::provider::Provider;
use egret_tests::wait;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;

const LINE: &str = "a client refuses the certificate of an intercepted host";

fn start(origin: &Provider, interception: &str) -> (SecureProvider, Intercepting) {
    let provider = SecureProvider::before(&origin.url());
    let rest = format!("interception: {{ {interception} }}");
    let intercepting = Intercepting::start(&config(&provider, &rest).gateway("workers: 2"), &provider);
    (provider, intercepting)
}

fn lines(intercepting: &Intercepting) -> usize {
    intercepting.egret.log().matches(LINE).count()
}

/// Tries to connect as a client that does not know the authority.
fn refuse(intercepting: &Intercepting, provider: &SecureProvider) {
    let mut client = tunnel(&intercepting.egret, &provider.host());
    let mut roots = RootCertStore::empty();
    let own = provider.authority().certificate();
    roots.add(PemObject::from_pem_slice(own.as_bytes()).unwrap()).unwrap();
    assert!(client.shake_hands(connection(client_config(roots, &["http/1.1"]), "localhost")).is_err());
}

#[test]
fn the_second_consecutive_refusal_is_logged_once() {
    let origin = Provider::plain();
    let (provider, intercepting) = start(&origin, "");
    for count in 1..=4 {
        let refused = run(curl().args(["--proxy", &intercepting.egret.url(), &provider.url()]));
        assert_eq!(refused.status.code(), Some(60), "curl: the certificate cannot be verified");
        wait::until("the refusal is counted", || {
            (intercepting.egret.stat("/interception/refused") == count).then_some(())
        });
    }
    intercepting.egret.until_logged(LINE);
    assert_eq!(lines(&intercepting), 1, "{}", intercepting.egret.log());
    let log = intercepting.egret.log();
    let line = log.lines().find(|line| line.contains(LINE)).unwrap();
    assert!(
        line.contains("SSL_CERT_FILE") && line.contains("unknown_ca") && line.contains("127.0.0.1"),
        "{line}"
    );
    assert_eq!(origin.connections(), 0);
    let metrics = intercepting.egret.control_get("/metrics").text().to_owned();
    assert!(metrics.contains("\negret_intercept_refused_total 4\n"), "{metrics}");
}

#[test]
fn a_request_in_between_is_no_refusal() {
    let origin = Provider::plain();
    let (provider, intercepting) = start(&origin, "");
    for count in 1..=3 {
        refuse(&intercepting, &provider);
        wait::until("the refusal is counted", || {
            (intercepting.egret.stat("/interception/refused") == count).then_some(())
        });
        intercepting.get(&provider, "/").assert_forwarded(200);
    }
    assert_eq!(lines(&intercepting), 0);
}

#[test]
fn connections_that_are_closed_without_a_request_are_refusals_too() {
    let origin = Provider::plain();
    let (provider, intercepting) = start(&origin, "");
    for count in 1..=2 {
        drop(intercepting.client(&provider));
        wait::until("the refusal is counted", || {
            (intercepting.egret.stat("/interception/refused") == count).then_some(())
        });
    }
    intercepting.egret.until_logged("closed without a request");
    intercepting.egret.until_logged("interception.tunnel");
}

#[test]
fn a_refusing_client_fails_unless_tunnelled() {
    let origin = Provider::plain();
    for (interception, passes) in [("", false), ("on_refusal: tunnel", true)] {
        let (provider, intercepting) = start(&origin, interception);
        for count in 1..=2 {
            refuse(&intercepting, &provider);
            wait::until("the refusal is counted", || {
                (intercepting.egret.stat("/interception/refused") == count).then_some(())
            });
        }
        let directory = intercepting.egret.directory();
        let ca = directory.write("own.pem", provider.authority().certificate());
        let mut command = curl();
        command.args(["--proxy", &intercepting.egret.url(), &provider.url(), "--cacert"]).arg(ca);
        if passes {
            assert_eq!(run_checked(&mut command), "hello", "by the provider's own certificate");
        } else {
            assert_eq!(run(&mut command).status.code(), Some(60));
        }
    }
}
