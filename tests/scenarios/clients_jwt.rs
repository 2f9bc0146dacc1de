//! Clients that prove who they are by a token of an OpenID Connect issuer, while it rotates its keys, and
//! while it is down.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::http::Client;
use egret_tests::issuer::{StandInIssuer, TokenKey, key_set};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::{self, Watched};
use serde_json::{Value, json};

/// Number of clients that call without a pause.
const CALLERS: usize = 2;

/// The flow that shows the provider who calls.
const SEEN: &str = "flows:\n\
    \x20 - name: seen\n\
    \x20   remedies: [{ transform: { request: { headers: { set: { x-seen: '${request.consumer}' } } } } }]\n";

/// Starts a provider that responds with the consumer that a flow has written into a field.
fn telling() -> Provider {
    Provider::with_responses(|request| ok(&request.values("x-seen").concat()))
}

/// Starts a gateway whose clients have tokens of the issuer, and waits for its keys, one of which is `key`.
fn start(origin: &Provider, issuer: &StandInIssuer, key: &TokenKey, rest: &str) -> Egret {
    let listen = format!(
        "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: '{}', audience: egret }} }} }}",
        issuer.url()
    );
    let egret = Config::with_origin(origin.url()).listen([&listen]).flows(rest).start();
    wait::until_true("the keys are there", || status(&egret, &key.token(issuer.claims("first"))) == 200);
    egret
}

fn call(egret: &Egret, client: &mut Client, token: &str) -> (u16, String) {
    let token = format!("x-egret-token: {token}\r\n");
    let response = client.request(egret.address(), "GET /origin/a", &token, "").response();
    (response.status, response.text().to_owned())
}

fn status(egret: &Egret, token: &str) -> u16 {
    call(egret, &mut egret.client(), token).0
}

/// Returns the claims with one more, or another.
fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

#[test]
fn a_token_of_the_issuer_proves_its_client() {
    let (origin, key) = (telling(), TokenKey::new("one"));
    let issuer = StandInIssuer::start(&[&key], None);
    let egret = start(&origin, &issuer, &key, SEEN);
    let token = key.token(issuer.claims("checkout"));
    let mut client = egret.client();
    assert_eq!(call(&egret, &mut client, &token), (200, "checkout".to_owned()));
    let bearer = format!(
        "GET {}/a HTTP/1.1\r\nHost: h\r\nProxy-Authorization: Bearer {token}\r\nx-egret-consumer: admin\r\n\r\n",
        origin.url()
    );
    assert_eq!(client.send(bearer).response().text(), "checkout");
    for (name, value, reason) in [
        ("iss", json!("http://127.0.0.1:1"), "jwt-issuer"),
        ("aud", json!("other"), "jwt-audience"),
        ("exp", json!(1_700_000_000), "jwt-expired"),
        ("nbf", json!(4_000_000_000_u64), "jwt-early"),
        ("sub", json!(7), "jwt-name"),
    ] {
        let refused = key.token(with(issuer.claims("checkout"), name, value));
        assert_eq!(call(&egret, &mut client, &refused).0, 407, "{name}");
        let line = format!("egret_client_unproven_total{{reason=\"{reason}\"}} 1\n");
        assert!(egret.control_get("/metrics").text().contains(&line), "{reason}");
    }
    assert_eq!(call(&egret, &mut client, &token).0, 200, "the connection goes on");
    assert!(!String::from_utf8_lossy(&origin.received()).contains(&token));
}

/// The calls of clients that never pause.
#[derive(Default)]
struct Calls {
    token: Mutex<String>,
    is_over: AtomicBool,
    results: Watched<Results>,
}

#[derive(Default)]
struct Results {
    /// Number of calls of each client that were served.
    served: [usize; CALLERS],
    /// The statuses of other responses.
    refused: Vec<u16>,
}

impl Calls {
    /// Calls on one connection until it is over, as client number `number`.
    fn run(&self, egret: &Egret, number: usize) {
        let mut client = egret.client();
        while !self.is_over.load(SeqCst) {
            let token = self.token.lock().unwrap().clone();
            let (status, _) = call(egret, &mut client, &token);
            self.results.change(|results| match status {
                200 => results.served[number] += 1,
                status => results.refused.push(status),
            });
        }
    }

    /// Waits until fifty more calls of each client are served, the last ones with the token of now.
    fn until_more(&self) {
        let before = self.results.read(|results| results.served);
        self.results.until("more calls are served", |results| {
            let are_served = results.served.iter().zip(before).all(|(now, before)| *now >= before + 50);
            (are_served || !results.refused.is_empty()).then_some(())
        });
    }
}

/// Ends the calls, also if the test fails.
struct End<'a>(&'a Calls);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

#[test]
fn keys_rotate_and_the_issuer_ends_without_a_refused_call() {
    let (origin, one, two) = (telling(), TokenKey::new("one"), TokenKey::new("two"));
    let issuer = StandInIssuer::start(&[&one], None);
    let egret = start(&origin, &issuer, &one, SEEN);
    let by = |key: &TokenKey, number: u32| key.token(with(issuer.claims("checkout"), "jti", json!(number)));
    let calls = Calls::default();
    *calls.token.lock().unwrap() = by(&one, 1);
    thread::scope(|scope| {
        let end = End(&calls);
        for number in 0..CALLERS {
            let (calls, egret) = (&calls, &egret);
            scope.spawn(move || calls.run(egret, number));
        }
        calls.until_more();
        issuer.publish(&[&one, &two]);
        // The first of these asks for the keys, and is refused itself.
        wait::until_true("the new key is known", || status(&egret, &by(&two, 1)) == 200);
        *calls.token.lock().unwrap() = by(&two, 2);
        calls.until_more();
        issuer.publish(&[&two]);
        egret.hang_up();
        wait::until_true("the old key is forgotten", || status(&egret, &by(&one, 1)) == 407);
        issuer.go_down();
        egret.hang_up();
        egret.until_logged("the keys of an issuer could not be fetched");
        calls.until_more();
        assert_eq!(status(&egret, &by(&two, 3)), 200, "the last keys verify new tokens");
        drop(end);
    });
    calls.results.read(|results| assert_eq!(results.refused, [0_u16; 0]));
    assert!(!egret.log().contains(&by(&two, 2)[..40]), "no token is logged");
}

#[test]
fn tokens_with_unknown_keys_do_not_call_the_issuer_each() {
    let (origin, one, other) = (telling(), TokenKey::new("one"), TokenKey::new("other"));
    let issuer = StandInIssuer::start(&[&one], None);
    let egret = start(&origin, &issuer, &one, SEEN);
    let before = issuer.fetches();
    for number in 0..200 {
        let token = other.token(with(issuer.claims("checkout"), "jti", json!(number)));
        assert_eq!(status(&egret, &token), 407);
    }
    wait::until_true("the first one has asked", || issuer.fetches() > before);
    // A machine that is very slow makes these calls in more than one interval of 30 s.
    assert!(issuer.fetches() - before < 20, "{}", issuer.fetches());
    assert_eq!(status(&egret, &one.token(issuer.claims("checkout"))), 200);
}

#[test]
fn a_quota_by_consumer_counts_by_the_claim() {
    let (origin, key) = (telling(), TokenKey::new("one"));
    let issuer = StandInIssuer::start(&[&key], None);
    let rest = "quotas: { each: { limit: 2, window: 1h, group_by: consumer } }\n\
         flows: [{ name: all, remedies: [{ limit: { quota: each } }] }]\n";
    let egret = start(&origin, &issuer, &key, rest);
    for name in ["checkout", "reports"] {
        let call = |number: u32| status(&egret, &key.token(with(issuer.claims(name), "jti", json!(number))));
        assert_eq!([1, 2, 3].map(call), [200, 200, 429], "{name}");
    }
}

#[test]
fn an_issuer_that_is_down_at_the_start_is_asked_again() {
    let (origin, key) = (telling(), TokenKey::new("one"));
    let token = Directory::default();
    let path = token.write_secret("token", "old-token-5b1e");
    let issuer = StandInIssuer::start(&[&key], Some("new-token-5b1e"));
    let listen = format!(
        "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: '{}', audience: egret, token: '${{file:{}}}' }} }} }}",
        issuer.url(),
        path.display()
    );
    let egret = Config::with_origin(origin.url()).listen([&listen]).flows(SEEN).start();
    let log = egret.log_with("the keys of an issuer could not be fetched");
    assert!(log.contains("the server responded with 401") && !log.contains("5b1e"), "{log}");
    let sent = key.token(issuer.claims("checkout"));
    assert_eq!(status(&egret, &sent), 407);
    // The token that Egret fetches the keys with is read again.
    token.write_secret("token", "new-token-5b1e");
    wait::until_true("the keys are there", || status(&egret, &sent) == 200);
}

#[test]
fn keys_are_fetched_over_tls_from_a_server_of_a_trusted_authority() {
    let (origin, key, authority) = (telling(), TokenKey::new("one"), Authority::default());
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let server = authority.leaf(&["localhost"]).serve(key_set(&[&key]).leak());
    let config = |more: &str| {
        let listen = format!(
            "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: 'https://id.example', audience: egret, \
             jwks: 'https://localhost:{}/keys'{more} }} }} }}",
            server.port()
        );
        Config::with_origin(origin.url()).listen([&listen]).flows(SEEN)
    };
    let egret = config("").start();
    let log = egret.log_with("the keys of an issuer could not be fetched");
    assert!(log.contains("invalid peer certificate"), "{log}");
    let token = key.token(json!({ "iss": "https://id.example", "aud": "egret", "sub": "checkout" }));
    assert_eq!(status(&egret, &token), 407);
    egret.rewrite(config(&format!(", ca: '{}'", ca.display())).yaml());
    wait::until_true("the keys are there", || status(&egret, &token) == 200);
}

#[test]
fn tokens_of_the_config_are_accepted_beside_those_of_the_issuer() {
    let (origin, key, directory) = (telling(), TokenKey::new("one"), Directory::default());
    let issuer = StandInIssuer::start(&[&key], None);
    let own = "reports-token-77c0d1e2f3a4b5c6";
    let file = directory.write_secret("reports", own);
    let listen = format!(
        "{{ address: '127.0.0.1:0', clients: {{ tokens: {{ reports: '${{file:{}}}' }}, \
         jwt: {{ issuer: '{}', audience: egret }} }} }}",
        file.display(),
        issuer.url()
    );
    let egret = Config::with_origin(origin.url()).listen([&listen]).flows(SEEN).start();
    let mut client = egret.client();
    assert_eq!(call(&egret, &mut client, own).1, "reports");
    let token = key.token(issuer.claims("checkout"));
    wait::until_true("the keys are there", || call(&egret, &mut client, &token).1 == "checkout");
    assert_eq!(call(&egret, &mut client, "other-token-77c0d1e2f3a4b5c6").0, 407);
}

#[test]
fn a_config_whose_keys_could_be_forged_is_refused() {
    let directory = Directory::default();
    for (keys, expected) in [
        ("issuer: 'http://id.example', audience: egret", "keys are fetched over `https`"),
        ("issuer: a, audience: egret, jwks: 'http://id.example/keys'", "keys are fetched over `https`"),
        ("issuer: a, audience: egret", "not a URL"),
        ("issuer: a, audience: egret, jwks: none.json", "none.json"),
        ("issuer: 'https://id.example', audience: ''", "1 to 1024 bytes"),
        ("issuer: 'https://id.example', audience: a, leeway: 10m", "at most `5m`"),
        ("issuer: 'https://id.example', audiences: a", "audience"),
    ] {
        let yaml = format!(
            "gateway: {{ listen: [{{ address: '127.0.0.1:0', clients: {{ jwt: {{ {keys} }} }} }}] }}\n"
        );
        let file = directory.write("egret.yaml", yaml);
        let output = run(egret(["check", &file.display().to_string()]).env("NO_COLOR", "1"));
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{keys}: {said}");
    }
}
