//! Faults of a night, in five groups: the API, the metric, `doctor`, `status` and the page's strip name each
//! of them until it is fixed. `make findings` judges how soon.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use egret_tests::closed_port::ClosedPort;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret};
use egret_tests::found::{Calls, play, while_calling};
use egret_tests::http::Client;
use egret_tests::intercepted::{Intercepting, client_config, connection, tunnel};
use egret_tests::issuer::{StandInIssuer, TokenKey};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::{Peer, Provider, ok};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::wait;
use rcgen::date_time_ymd;
use rustls::RootCertStore;

/// `true` while all that can fail does.
type IsBroken = Arc<AtomicBool>;

/// Time to a response of a provider that is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Steps of the history that tell how fast a provider usually is, and those that do not yet.
const USUAL_STEPS: usize = 6;
/// Calls of a quota of a hundred that come near its end.
const NEAR_END: usize = 92;
/// Bytes that a file of the gateway may have while its disk counts as full.
const FULL_BYTES: &str = "65536";

fn get(egret: &Egret, provider: &str) {
    egret.client().get(egret.address(), &format!("/{provider}/")).response();
}

fn post(egret: &Egret, path: &str, body: &str) {
    let (host, length) = (egret.address(), body.len());
    let fields = format!("Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}");
    egret.client().offer(format!("POST {path} HTTP/1.1\r\n{fields}\r\n\r\n{body}")).response();
}

fn start(config: &Config) -> Egret {
    Egret::start_with(config, |command| {
        command.env("EGRET_TEST_KEY", "0123456789abcdef0123456789abcdef");
    })
}

fn response(status: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
}

/// A provider whose first part of the path says how it fails.
fn origin(is_broken: &IsBroken) -> Provider {
    let is_broken = Arc::clone(is_broken);
    Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            let kind = request.target().split('/').nth(1).unwrap_or_default().to_owned();
            if !respond(peer, &kind, &is_broken) {
                return;
            }
        }
    })
}

/// Responds to a request. Returns `false` if the connection has to end.
fn respond(peer: &mut Peer, kind: &str, is_broken: &IsBroken) -> bool {
    let message = match kind {
        "spent" => {
            let usage =
                r#"{"model":"m-1","usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}"#;
            let fields = format!("Content-Type: application/json\r\nContent-Length: {}", usage.len());
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{usage}").into()
        }
        _ if !is_broken.load(SeqCst) => ok("{}"),
        "resetting" => {
            peer.reset();
            return false;
        }
        "stalling" | "flight" => {
            peer.stall();
            return false;
        }
        "garbled" => b"\0\r\n\r\n".to_vec(),
        "cut" => {
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{");
            peer.stall();
            return false;
        }
        "erring" | "retried" | "circuit" => response("502 No", ""),
        "throttled" => response("429 No", ""),
        "paused" | "cooled" => response("429 No", "Retry-After: 3\r\n"),
        "keyless" => response("401 No", ""),
        "slow" => {
            peer.pause(SLOW);
            ok("{}")
        }
        _ => ok("{}"),
    };
    peer.send(message)
}

/// Adds providers that are paths of the origin.
fn paths_of(origin: &Provider, names: &[&str], config: Config) -> Config {
    names.iter().fold(config, |config, name| config.provider(name, format!("{}/{name}", origin.url())))
}

/// A server with a certificate that has expired while `is_broken`.
fn expiring(authority: &Authority, well: SocketAddr, is_broken: &IsBroken) -> Provider {
    let is_broken = Arc::clone(is_broken);
    let leaf = authority.leaf_with(&["127.0.0.1"], |params| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let expired = leaf.serve("expired");
    Provider::scripted(move |peer| peer.relay_to(if is_broken.load(SeqCst) { expired } else { well }))
}

/// A server that does not speak TLS while `is_broken`.
fn in_clear(well: SocketAddr, is_broken: &IsBroken) -> Provider {
    let is_broken = Arc::clone(is_broken);
    Provider::scripted(move |peer| {
        if !is_broken.load(SeqCst) {
            return peer.relay_to(well);
        }
        peer.take(1);
        peer.send("this is not TLS");
    })
}

#[test]
fn failing_providers_are_named_everywhere_until_they_recover() {
    const FLOWS: &str = "\
flows:
  - { name: retried, match: { provider: retried }, remedies: [fallback: { response: { body: sorry } }, retry: { attempts: 2, backoff: { base: 1ms } }] }
  - { name: cut, match: { provider: cut }, remedies: [transform: { response: { json: { remove: [/a] } }, body: 4KiB }] }
";
    const FAULTS: [(&str, &str); 11] = [
        ("provider-failing: down", "it refuses connections"),
        ("provider-failing: resetting", "provider-closed"),
        ("provider-failing: erring", "the last one: status 502"),
        ("provider-failing: stalling", "first-byte-timeout"),
        ("provider-failing: garbled", "bad-response"),
        ("provider-failing: cut", "idle-timeout"),
        ("provider-failing: nameless", "dns-failed"),
        ("provider-failing: unresolved", "dns-timeout"),
        ("provider-failing: expired", "egret doctor --probe"),
        ("provider-failing: clear", "tls-failed"),
        // Its clients get a fallback.
        ("provider-failing: retried", "the last one: status 502"),
    ];
    let (is_broken, directory, authority) = (IsBroken::default(), Directory::default(), Authority::default());
    directory.write("ca.pem", authority.certificate());
    let (origin, closed) = (origin(&is_broken), RefCell::new(Some(ClosedPort::take())));
    let well = authority.leaf(&["127.0.0.1"]).serve("well");
    let [expired, clear] = [expiring(&authority, well, &is_broken), in_clear(well, &is_broken)];
    let is_named = Arc::clone(&is_broken);
    let names = NameServer::start(move |name| match name {
        _ if !is_named.load(SeqCst) => Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 1),
        "unresolved.test" => Answer::Silence,
        _ => Answer::NoSuchName,
    });
    let (url, port) = (origin.url(), origin.address().port());
    let down = closed.borrow().as_ref().map(ClosedPort::address).unwrap();
    let tls = format!("tls: {{ ca: '{}' }}", directory.join("ca.pem").display());
    let config =
        paths_of(&origin, &["resetting", "erring", "garbled", "retried"], Config::default().flows(FLOWS))
            .provider("down", format!("http://{down}"))
            .provider_with("stalling", format!("{url}/stalling"), "timeouts: { first_byte: 1s }")
            .provider_with("cut", format!("{url}/cut"), "timeouts: { idle: 1s }")
            .provider("nameless", format!("http://nameless.test:{port}/fine"))
            .provider("unresolved", format!("http://unresolved.test:{port}/fine"))
            .provider_with("expired", format!("https://{}", expired.address()), &tls)
            .provider_with("clear", format!("https://{}", clear.address()), &tls)
            .gateway(names.config_within("1s"));
    let (egret, opened) = (config.start(), RefCell::new(None));
    let gets = FAULTS.map(|(name, _)| {
        let (egret, provider) = (&egret, name.split_once(": ").unwrap().1);
        move || get(egret, provider)
    });
    let calls = gets.each_ref().map(|get| get as &(dyn Fn() + Sync));
    let fix = || {
        is_broken.store(false, SeqCst);
        let listener = closed.take().unwrap().open();
        *opened.borrow_mut() = Some(Provider::listening(listener, |peer| {
            while peer.request().is_some() {
                peer.send(ok("{}"));
            }
        }));
    };
    play(&egret, &FAULTS, [&calls; 2], || is_broken.store(true, SeqCst), fix);
}

#[test]
fn providers_that_hold_back_are_named_everywhere_until_they_serve() {
    const FLOWS: &str = "\
accounts: { one: { provider: cooled, bearer: { token: '${env:EGRET_TEST_KEY}' } } }
flows:
  - { name: circuit, match: { provider: circuit }, remedies: [circuit-breaker: { consecutive: 2, open: 1s, open_max: 1s }] }
  - { name: cooled, match: { provider: cooled }, remedies: [accounts: { use: [one] }] }
";
    let is_broken = IsBroken::default();
    let (origin, is_paused) = (origin(&is_broken), Arc::clone(&is_broken));
    let paused = Provider::with_responses(move |_| {
        if is_paused.load(SeqCst) { response("503 Busy", "Retry-After: 5\r\n") } else { ok("") }
    });
    let endpoint = format!("endpoint-excluded: doubled: {}", paused.url());
    let faults = [
        ("provider-throttling: throttled", "429"),
        ("provider-throttling: paused", "429"),
        ("credentials-rejected: keyless", "401 or 403"),
        ("provider-slow: slow", "in the hour before"),
        (&*endpoint, "`Retry-After`"),
        ("circuit-open: circuit", "calls to circuit"),
        ("account-unusable: one", "cools down"),
    ];
    let names = ["throttled", "paused", "keyless", "slow", "circuit", "cooled"];
    let config =
        paths_of(&origin, &names, Config::default().flows(FLOWS)).gateway("workers: 1").provider_with(
            "doubled",
            format!("{}/fine", origin.url()),
            &format!("endpoints: ['{}']", paused.url()),
        );
    let egret = start(&config);
    let call = |provider: &'static str| {
        let egret = &egret;
        move || get(egret, provider)
    };
    let gets = [names.map(call).as_slice(), &["doubled", "slow", "slow", "slow"].map(call)].concat();
    let calls: Vec<&(dyn Fn() + Sync)> = gets.iter().map(|get| get as &(dyn Fn() + Sync)).collect();
    let steps = || egret.control_get("/api/v1/history").json()["times_s"].as_array().unwrap().len();
    while_calling(&[&call("slow")], || {
        wait::until_value("the usual times are known", steps, |steps| *steps >= USUAL_STEPS);
    });
    let set = |value| is_broken.store(value, SeqCst);
    play(&egret, &faults, [calls.as_slice(); 2], || set(true), || set(false));
}

#[test]
fn refusals_by_remedies_are_named_everywhere_until_they_end() {
    const FLOWS: &str = "\
prices: { overrides: { m-1: { input: 1000, output: 10000 } } }
quotas:
  single: { limit: 1, window: 1h, kind: fixed, starts: first }
  used: { limit: 1, window: 10h, kind: fixed, starts: first }
  monthly: { limit: 100, window: 10h, kind: fixed, starts: first }
  budget: { limit: 1, unit: usd, cost: { usage: usd }, kind: calendar, period: month, overshoot: never }
flows:
  - { name: queued, match: { provider: queued }, remedies: [queue: { quota: single, size: 2, max_wait: 12h }] }
  - { name: used, match: { provider: used }, remedies: [limit: used] }
  - { name: monthly, match: { provider: monthly }, remedies: [limit: monthly] }
  - { name: flight, match: { provider: flight }, remedies: [concurrency: { max: 1 }] }
  - { name: refusing, match: { provider: refusing }, remedies: [script: { source: 'function onRequest() { return refuse({ detail: \"no\" }); }' }] }
  - { name: broken, match: { provider: broken }, remedies: [script: { source: 'function onRequest() { null.a; }' }] }
  - { name: spent, match: { provider: spent }, remedies: [limit: budget] }
";
    const FAULTS: [(&str, &str); 8] = [
        ("queue-filling: queued", "is full"),
        ("calls-refused: queued: queue-full", "`queue.size`"),
        ("calls-refused: used: quota-exceeded", "`used`"),
        ("quota-near-end: monthly", "8 of 100 units are left"),
        ("calls-refused: flight: too-many-in-flight", "`concurrency`"),
        ("calls-refused: spent: budget-exceeded", "a budget is spent"),
        ("calls-refused: refusing: script-refused", "a script refuses them"),
        ("remedy-failing: broken / script", "cannot decide"),
    ];
    const ASKED: &str = r#"{"model":"m-1","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}"#;
    let is_broken = IsBroken::new(AtomicBool::new(true));
    let origin = origin(&is_broken);
    let names = ["queued", "used", "monthly", "refusing", "broken", "spent"];
    let config = paths_of(&origin, &names, Config::default()).provider_with(
        "flight",
        format!("{}/flight", origin.url()),
        "timeouts: { first_byte: 1h }",
    );
    let (egret, held) = (config.clone().flows(FLOWS).start(), RefCell::new(Vec::new()));
    let call = |provider: &'static str| {
        let egret = &egret;
        move || get(egret, provider)
    };
    let fall = || {
        for provider in ["queued", "queued", "queued", "flight"] {
            let mut client = egret.client();
            client.get(egret.address(), &format!("/{provider}/"));
            held.borrow_mut().push(client);
        }
        let waiting = || {
            let flows = egret.control_get("/api/v1/flows").json();
            let is_in_flight =
                origin.requests().iter().any(|request| request.target().starts_with("/flight"));
            (flows["flows"][0]["remedies"][0]["queue"]["waiting"].as_u64(), is_in_flight)
        };
        wait::until_value("calls wait", waiting, |waiting| *waiting == (Some(2), true));
        (0..NEAR_END).for_each(|_| get(&egret, "monthly"));
    };
    let fix = || {
        held.borrow_mut().clear();
        is_broken.store(false, SeqCst);
        egret.change_config(config.yaml());
    };
    let [queued, used, flight, refusing, broken, monthly] =
        ["queued", "used", "flight", "refusing", "broken", "monthly"].map(call);
    let spent = || post(&egret, "/spent/v1/chat/completions", ASKED);
    play(
        &egret,
        &FAULTS,
        [
            &[&queued, &used, &flight, &refusing, &broken, &spent],
            &[&queued, &used, &flight, &refusing, &broken, &spent, &monthly],
        ],
        fall,
        fix,
    );
}

#[test]
fn refusals_of_clients_are_named_everywhere_until_they_end() {
    const FAULTS: [(&str, &str); 5] = [
        ("calls-refused: denied: egress-denied", "`gateway.egress`"),
        ("calls-refused: unknown-provider", "known providers"),
        ("calls-refused: bad-request", "a rule of HTTP/1.1"),
        ("calls-refused: client-unproven", "do not prove who they are"),
        ("clients-failing: interception", "`egret ca path`"),
    ];
    let (origin, issuer) = (Provider::plain(), StandInIssuer::start(&[&TokenKey::new("one")], None));
    let proven = format!(
        "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: '{}', audience: egret }} }} }}",
        issuer.url()
    );
    let config = Config::default()
        .listen(["'127.0.0.1:0'", &proven])
        .provider("denied", format!("http://localhost:{}", origin.address().port()))
        .flows("interception: { hosts: [refused.invalid] }\n");
    let night = config.clone().gateway("egress: { deny: [{ host: localhost }] }");
    let gateway = Intercepting::with_authority(&night, |_| {});
    let egret = &gateway.egret;
    let [denied, unknown] = ["denied", "nobody-here"].map(|provider| move || get(egret, provider));
    let send = |address: SocketAddr, fields: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n");
        Client::connect(address).offer(request).response();
    };
    let malformed = || send(egret.address(), "x-egret-host: a b\r\n");
    let unproven = || send(egret.listener(1), "");
    let untrusting = || {
        let tls = connection(client_config(RootCertStore::empty(), &["http/1.1"]), "refused.invalid");
        assert!(tunnel(egret, "refused.invalid:443").shake_hands(tls).is_err());
    };
    let fix = || {
        egret.change_config(config.provider("nobody-here", origin.url()).yaml());
    };
    play(
        egret,
        &FAULTS,
        [&[&denied, &unknown, &malformed, &unproven, &untrusting], &[&denied, &unknown]],
        || {},
        fix,
    );
}

#[test]
fn parts_that_fail_are_named_everywhere_until_they_work() {
    let (origin, tunneled, directory) = (Provider::plain(), Provider::plain(), Directory::default());
    let secret = directory.write_secret("secret", "a-secret-of-the-night");
    let (issuer, store) = (
        StandInIssuer::start(&[&TokenKey::new("one")], None),
        RefCell::new(RedisServer::start(Flavor::Redis7)),
    );
    issuer.go_down();
    let closed = RefCell::new(Some(ClosedPort::take()));
    let collector = closed.borrow().as_ref().map(ClosedPort::address).unwrap();
    let flows = format!(
        "\
cluster: {{ name: tests, member: one, key: '${{env:EGRET_TEST_KEY}}', redis: {} }}
secrets: {{ commands: {{ manager: {{ command: [cat, '{}'], lifetime: 1s, timeout: 60s }} }} }}
accounts: {{ main: {{ provider: secret, bearer: {{ token: '${{exec:manager}}' }} }} }}
exporters:
  traces: {{ type: otlp, endpoint: 'http://{collector}/' }}
  archive: {{ type: har, directory: ./har }}
quotas: {{ shared: {{ limit: 10, window: 1s, store: redis, on_store_error: closed }} }}
flows:
  - {{ name: shared, match: {{ provider: shared }}, remedies: [limit: shared] }}
  - {{ name: traced, match: {{ provider: traced }}, diagnoses: [traces: {{ export: traces }}] }}
  - {{ name: archived, match: {{ provider: archived }}, diagnoses: [har: {{ export: archive, bodies: 64KiB, media_types: ['*/*'], obfuscate: false }}] }}
  - {{ name: secret, match: {{ provider: secret }}, remedies: [authenticate: main] }}
  - {{ name: bypassed, match: {{ provider: bypassed }}, remedies: [timeout: 1h] }}
",
        store.borrow().config(),
        secret.display()
    );
    let proven = format!(
        "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: '{}', audience: egret }} }} }}",
        issuer.url()
    );
    let names = ["shared", "traced", "archived", "secret"];
    let host = tunneled.address();
    let config = Config::default().listen(["'127.0.0.1:0'", &proven]).flows(flows);
    let config = paths_of(&origin, &names, config).provider("bypassed", format!("https://{host}"));
    let egret = start(&config);
    let (file, opened) = (egret.directory().join("egret.yaml"), RefCell::new(None));
    let [issuer_name, config_name] =
        [format!("issuer-failing: {}", issuer.url()), format!("config-refused: {}", file.display())];
    let faults = [
        (&*issuer_name, "all its tokens are refused"),
        (&*config_name, "`uri`"),
        ("store-away: cluster tests", "check Redis or Valkey"),
        ("calls-refused: shared: store-unavailable", "`on_store_error`"),
        ("exporter-failing: traces", "refused"),
        ("exporter-failing: archive", "check its destination"),
        ("secret-stale: manager", "it ended with exit code 1"),
        ("flows-bypassed: tunnels", "pass by its flows"),
    ];
    let pid = egret.process().id().to_string();
    let limit_files = |bytes: &str| {
        run_checked(Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]));
    };
    let fall = || {
        store.borrow_mut().kill();
        std::fs::remove_file(&secret).unwrap();
        limit_files(FULL_BYTES);
        egret.rewrite("providers: { origin: { uri: 'http://a.example' } }\n");
    };
    let fix = || {
        issuer.come_back();
        store.borrow_mut().restart();
        directory.write_secret("secret", "a-secret-of-the-day");
        limit_files("unlimited");
        let listener = closed.take().unwrap().open();
        *opened.borrow_mut() = Some(Provider::listening(listener, |peer| {
            while peer.request().is_some() {
                peer.send(ok("{}"));
            }
        }));
        egret.rewrite(config.yaml());
    };
    let [shared, traced] = ["shared", "traced"].map(|provider| {
        let egret = &egret;
        move || get(egret, provider)
    });
    let body = "all is well ".repeat(2_000);
    let archived = || post(&egret, "/archived/", &body);
    let bypassing = || drop(tunnel(&egret, &host.to_string()));
    let calls: [Calls<'_>; 2] = [&[&shared, &traced, &archived, &bypassing], &[&shared, &traced, &archived]];
    play(&egret, &faults, calls, fall, fix);
}
