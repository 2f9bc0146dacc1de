//! Each alert of a running gateway is raised by its fault: `promtool` judges real metrics by the rules that
//! ship. Fault after fault has to reach counters, histories and findings, so it takes minutes.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use egret_tests::alerts::{self, Figures, OF_FAULTS, in_repository};
use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::process::run_checked;
use egret_tests::provider::Provider;
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::wait;

/// Lines of the log that these faults lead to, as the page has them.
const LOGGED: [&str; 5] = [
    "Egret responds with an error, and logs the next of this kind in a minute",
    "an account cools down because the provider refuses it",
    "the store of shared quotas failed",
    "the exporter fails",
    "the previous config stays in effect",
];

/// Connections that the gateway accepts.
const CLIENTS_MAX: usize = 40;
/// Calls that are fast, and those that each script makes slow, before it rests: together three of a hundred.
/// Each look at the alerts adds fast ones.
const FAST: usize = 1_900;
const SLOW: usize = 10;
const SCRIPTS: usize = 6;

const FLOWS: &str = "\
accounts: { main: { provider: keyless, bearer: { token: '${env:EGRET_TEST_KEY}' } } }
quotas:
  used: { limit: 10, window: 10h, kind: fixed, starts: first }
  shared: { limit: 1000, window: 1s, store: redis, on_store_error: open }
flows:
  - { name: broken, match: { provider: broken }, remedies: [script: { source: 'function onRequest() { null.a; }' }] }
  - { name: keyless, match: { provider: keyless }, remedies: [accounts: { use: [main], cool_down: { for: 1s, max: 1s } }] }
  - { name: used, match: { provider: used }, remedies: [limit: used] }
  - { name: shared, match: { provider: shared }, remedies: [limit: shared] }
  - { name: away, match: { provider: away }, diagnoses: [traces: { export: away }] }
  - { name: lost, match: { provider: lost }, diagnoses: [traces: { export: refused }] }
";

/// A flow whose script uses all its time.
fn slow_flow(number: usize) -> String {
    format!(
        "  - {{ name: slow-{number}, match: {{ provider: busy, path: /{number} }}, \
         remedies: [script: {{ time: 100ms, source: 'function onRequest() {{ for (;;); }}' }}] }}\n"
    )
}

/// A gateway, and all that its calls need, which fails once `is_broken`.
struct Night {
    is_broken: Arc<AtomicBool>,
    _origin: Provider,
    store: RedisServer,
    _collector: Provider,
    _closed: ClosedPort,
    egret: Egret,
}

impl Night {
    fn begin() -> Self {
        let is_broken = Arc::new(AtomicBool::new(false));
        let (told, refuses) = (Arc::clone(&is_broken), Arc::clone(&is_broken));
        let origin = Provider::with_responses(move |request| {
            response(match request.target().trim_matches('/') {
                "failing" if told.load(SeqCst) => 500,
                "keyless" if told.load(SeqCst) => 401,
                _ => 200,
            })
        });
        let collector =
            Provider::with_responses(move |_| response(if refuses.load(SeqCst) { 400 } else { 200 }));
        let (store, closed) = (RedisServer::start(Flavor::Redis7), ClosedPort::take());
        let sections = format!(
            "cluster: {{ name: tests, member: one, key: '${{env:EGRET_TEST_KEY}}', redis: {} }}\n\
             exporters:\n  away: {{ type: otlp, endpoint: 'http://{}/' }}\n  refused: {{ type: otlp, endpoint: '{}/' }}\n{FLOWS}{}",
            store.config(),
            closed.address(),
            collector.url(),
            (0..SCRIPTS).map(slow_flow).collect::<String>(),
        );
        let names = ["failing", "broken", "busy", "keyless", "used", "shared", "away", "lost", "fast"];
        let config = names.iter().fold(Config::default(), |config, name| {
            config.provider(name, format!("{}/{name}", origin.url()))
        });
        let config = config
            .provider("down", format!("http://{}", closed.address()))
            .gateway(format!("limits: {{ connections: {CLIENTS_MAX} }}"))
            .gateway("timeouts: { drain: 1h }");
        let egret = Egret::start_with(&config.flows(sections), |command| {
            command.env("EGRET_TEST_KEY", "0123456789abcdef0123456789abcdef");
        });
        Self { is_broken, _origin: origin, store, _collector: collector, _closed: closed, egret }
    }

    fn call(&self, provider: &str, count: usize) {
        let mut client = self.egret.client();
        for _ in 0..count {
            client.get(self.egret.address(), &format!("/{provider}")).response();
        }
    }

    /// Lets everything fail.
    fn fall(&mut self) {
        self.is_broken.store(true, SeqCst);
        self.store.kill();
        self.egret.rewrite("providers: { origin: { uri: 'http://a.example' } }\n");
        self.call("used", 10);
    }

    /// Makes calls that fail, and connections that are refused.
    fn fail(&self) {
        for provider in ["failing", "down", "broken", "keyless", "shared", "away", "lost"] {
            self.call(provider, 3);
        }
        let refused = self.egret.stat("/clients/refused");
        let held: Vec<TcpStream> =
            (0..=CLIENTS_MAX).map(|_| TcpStream::connect(self.egret.address()).unwrap()).collect();
        wait::until_true("a client is refused", || self.egret.stat("/clients/refused") > refused);
        drop(held);
        wait::until_true("they have left", || self.egret.stat("/clients/open") == 0);
    }

    /// Leaves few file descriptors.
    fn limit_files(&self) {
        let pid = self.egret.process().id().to_string();
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        run_checked(Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={}:", open + 10)]));
    }
}

fn response(status: u16) -> Vec<u8> {
    format!("HTTP/1.1 {status} Told\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

#[test]
fn each_alert_is_raised_by_its_fault_and_logged() {
    let mut night = Night::begin();
    for provider in ["fast", "shared", "keyless"] {
        night.call(provider, 1);
    }
    let before = Figures::of(&night.egret);
    night.fall();
    night.fail();
    let begin = Figures::of(&night.egret);
    for number in 0..SCRIPTS {
        night.call(&format!("busy/{number}"), SLOW);
    }
    night.call("fast", FAST);
    let missing = |alerts: &[_]| alerts::not_raised([&before, &begin, &Figures::of(&night.egret)], alerts);
    let (of_files, others) = OF_FAULTS.split_last().unwrap();
    let look = || {
        night.fail();
        missing(others)
    };
    wait::until_value("each alert is raised", look, Vec::is_empty);
    night.limit_files();
    assert_eq!(missing(&[*of_files]), [""; 0]);
    night.egret.until_logged("a finding begins: calls to failing fail");
    night.egret.until_logged("the remedy script of flow broken was skipped");
    let page = fs::read_to_string(in_repository("docs/how-to/when-things-break.md")).unwrap();
    for text in LOGGED {
        assert!(page.contains(&format!("`{text}`")), "{text}");
        night.egret.until_logged(text);
    }
}
