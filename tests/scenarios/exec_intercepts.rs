//! Programs that nobody changed, run by `egret exec --intercept`: remedies apply to their HTTPS.

use egret_tests::exec::{FREE_PORTS, Place};
use egret_tests::intercepted::SecureProvider;
use egret_tests::process::{run, run_checked};
use egret_tests::provider::{Provider, ok};

/// A provider over TLS, which responds with the request line and the field that a remedy adds, and a place
/// whose config has it.
fn before() -> (Provider, SecureProvider, Place) {
    let origin =
        Provider::with_responses(|request| ok(&format!("{} {:?}", request.line, request.values("x-added"))));
    let provider = SecureProvider::before(&origin.url());
    let place = Place::with(&format!(
        "{FREE_PORTS}providers: {{ origin: {{ url: '{}', tls: {{ ca: provider.pem }} }} }}
flows:
  - name: calls
    match: {{ provider: origin }}
    remedies:
      - transform: {{ request: {{ headers: {{ set: {{ x-added: by-a-remedy }} }} }} }}
",
        provider.url()
    ));
    place.directory.write("provider.pem", provider.authority().certificate());
    (origin, provider, place)
}

const EXPECTED: &str = "GET /items/1 HTTP/1.1 [\"by-a-remedy\"]";

#[test]
fn curl_and_wget() {
    let (_origin, provider, place) = before();
    let url = format!("{}/items/1", provider.url());
    let scripts = [
        format!("curl --silent --show-error --fail {url}"),
        format!("wget --quiet --output-document=- {url}"),
    ];
    for script in scripts {
        // GNU's wget knows no variable for authorities, unless it uses OpenSSL.
        if script.starts_with("wget") && !uses_openssl() {
            continue;
        }
        assert_eq!(place.sh(["--intercept"], &script), EXPECTED, "{script}");
    }
    place.until_gateways_gone();
}

fn uses_openssl() -> bool {
    let output = run(std::process::Command::new("wget").arg("--version"));
    String::from_utf8_lossy(&output.stdout).contains("+ssl/openssl")
}

#[test]
fn pythons_own_library() {
    let (_origin, provider, place) = before();
    let script =
        "import sys, urllib.request\nprint(urllib.request.urlopen(sys.argv[1]).read().decode(), end='')";
    let url = format!("{}/items/1", provider.url());
    let mut exec = place.exec(["--intercept"], ["python3", "-c", script, &url]);
    assert_eq!(run_checked(&mut exec), EXPECTED);
}

#[test]
fn requests_and_httpx() {
    let (_origin, provider, place) = before();
    let url = format!("{}/items/1", provider.url());
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/bin/python");
    for library in ["requests", "httpx"] {
        let call = format!("{library}.get(sys.argv[1], timeout=240)");
        let script = format!("import sys, {library}\nprint({call}.text, end='')");
        let mut exec = place.exec(["--intercept"], [python, "-c", &script, &url]);
        assert_eq!(run_checked(&mut exec), EXPECTED, "{library}");
    }
}

#[test]
fn only_named_hosts_are_intercepted() {
    let (_origin, provider, place) = before();
    // The other provider has another port, so it is not the configured one; its host is named in no list.
    let plain = Provider::plain();
    let other = SecureProvider::before(&plain.url());
    let by_address = other.host().replace("localhost", "127.0.0.1");
    let own = place.directory.write("other.pem", other.authority().certificate());
    let script = format!(
        "curl --silent --show-error --fail {}/items/1; echo; \
         curl --silent --show-error --fail --noproxy '' --cacert {} https://{by_address}/",
        provider.url(),
        own.display()
    );
    assert_eq!(place.sh(["--intercept"], &script), format!("{EXPECTED}\nhello"));
}

#[test]
fn a_program_that_does_not_trust_the_authority_is_explained() {
    let (_origin, provider, place) = before();
    let own = place.directory.write("none.pem", egret_tests::pki::Authority::default().certificate());
    let call = format!("curl --silent --cacert {} {}/items/1", own.display(), provider.url());
    // A gateway that gets the processor late may end before it has logged what it refused.
    let logged = "until grep --quiet unknown_ca egret-data/exec/*.log; do sleep 0.02; done";
    let script = format!("{call}; {call}; {logged}; exit 6");
    let output = run(&mut place.exec(["--intercept"], ["sh", "-c", &script]));
    assert_eq!(output.status.code(), Some(6));
    place.until_gateways_gone();
    let [log] = &place.logs()[..] else { panic!("one gateway has a log") };
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("unknown_ca") && log.contains("SSL_CERT_FILE"), "{log}");
}

#[test]
fn without_the_option_the_tunnel_stays_closed() {
    let (_origin, provider, place) = before();
    let call = format!("curl --silent --show-error --fail --cacert provider.pem {}/items/1", provider.url());
    assert_eq!(place.sh([], &call), "GET /items/1 HTTP/1.1 []");
}

#[test]
fn the_authority_ends_with_the_command_and_its_key_is_nowhere() {
    let (_origin, _provider, place) = before();
    let script =
        "cat $SSL_CERT_FILE; curl --silent http://$(echo $EGRET_EXEC | cut -d' ' -f1)/api/v1/gateway";
    let seen = place.sh(["--intercept"], script);
    assert!(seen.contains("BEGIN CERTIFICATE") && seen.contains("\"certificate\":"), "{seen}");
    assert!(!seen.contains("PRIVATE"), "{seen}");
    place.until_gateways_gone();
    let left = run_checked(
        std::process::Command::new("find").arg(place.directory.join("egret-data")).args(["-type", "f"]),
    );
    let others =
        left.lines().filter(|line| !place.logs().iter().any(|log| *log == *std::path::Path::new(line)));
    let others: Vec<&str> = others.filter(|line| line.contains("/ca") || line.contains("/exec/")).collect();
    assert!(others.is_empty(), "{left}");
}
