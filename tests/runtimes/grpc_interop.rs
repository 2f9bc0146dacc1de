//! The cases of gRPC's interoperability tests, with grpc-go's client and server, through each door of Egret
//! and in HTTP/2 on both legs. A quota, a limit of concurrent calls and retries are armed.

use std::process::{Command, Stdio};

use egret_tests::process::{Process, run_checked};
use egret_tests::wait;

use super::doors::{Certified, Door, Doorway};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/tools/grpc_interop/client");
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/tools/grpc_interop/server");

/// All cases of the client, without those that need credentials of a cloud, and without `pick_first_unary`,
/// which needs several servers.
const CASES: [&str; 18] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "orca_per_rpc",
    "orca_oob",
    "rpc_soak",
    "channel_soak",
];

/// The retry also repeats the calls of the cases that ask for the status `unknown`.
const FLOWS: &str = "quotas:
  calls: { limit: 100000, window: 1h, kind: fixed, starts: first }
  at-once: { limit: 100, kind: concurrency }
flows:
  - name: interop
    match: { provider: peer, grpc: {} }
    remedies:
      - retry: { attempts: 2, on: [connect, grpc-unknown, grpc-unavailable], methods: [POST], backoff: { base: 1ms } }
      - limit: { quota: at-once }
      - limit: { quota: calls }
";

/// A balancer of the client that reads reports of load, as the cases of ORCA require.
const LOAD_REPORTS: &str = r#"{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}"#;

/// A running server of grpc-go.
pub struct Server {
    _process: Process,
    port: u16,
    has_tls: bool,
}

impl Server {
    /// Starts it, with TLS if it has a certificate.
    pub fn start(certified: Option<&Certified>) -> Self {
        let mut command = Command::new(SERVER);
        command.args(["-port", "0"]).stdout(Stdio::null());
        if let Some(certified) = certified {
            command.args(["-use_tls", "-tls_cert_file"]).arg(certified.chain());
            command.arg("-tls_key_file").arg(certified.key());
        }
        let process = Process::start(&mut command);
        let port = wait::until("the server listens", || process.listening_ports().first().copied());
        Self { _process: process, port, has_tls: certified.is_some() }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The scheme of its URL.
    pub fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }
}

/// The server, and the gateway before it.
struct Interop {
    doorway: Doorway,
    _server: Server,
}

impl Interop {
    fn start(door: Door, has_tls_provider: bool) -> Self {
        let certified = Certified::default();
        let server = Server::start(has_tls_provider.then_some(&certified));
        let doorway = Doorway::open(door, server.scheme(), server.port(), certified, FLOWS);
        Self { doorway, _server: server }
    }

    /// Runs a case, which must succeed.
    fn run(&self, case: &str) {
        let doorway = &self.doorway;
        let mut command = Command::new(CLIENT);
        doorway.prepare(&mut command);
        let port = doorway.port().to_string();
        command.args(["-test_case", case, "-server_host", doorway.host(), "-server_port", &port]);
        // A second for each call is little on a busy machine.
        command.args(["-soak_per_iteration_max_acceptable_latency_ms", "60000"]);
        command.args(["-soak_overall_timeout_seconds", "600"]);
        if case.starts_with("orca") {
            command.args(["-service_config_json", LOAD_REPORTS]);
        }
        if let Some(ca) = doorway.ca() {
            command.args(["-use_tls", "-use_test_ca", "-ca_file"]).arg(ca);
        }
        run_checked(&mut command);
    }

    /// Number of calls of the client that have ended.
    fn ended(&self) -> u64 {
        let stats = self.doorway.egret.stats();
        let all = stats["providers"].as_array().into_iter().flatten();
        let exchanges = all.filter_map(|provider| provider["exchanges"].as_array()).flatten();
        exchanges.filter_map(|exchanges| exchanges["count"].as_u64()).sum()
    }
}

/// Runs all cases. Asserts that the quota has counted each call, and that none has left anything behind.
fn passes(door: Door, has_tls_provider: bool) {
    let interop = Interop::start(door, has_tls_provider);
    for case in CASES {
        interop.run(case);
        println!("{door:?}, provider over TLS: {has_tls_provider}: {case} passes");
    }
    let (doorway, egret) = (&interop.doorway, &interop.doorway.egret);
    wait::until_true("the client has gone", || egret.stat("/clients/open") == 0);
    wait::until_true("no call is left", || doorway.used("at-once") == 0);
    // A call that the client has cancelled may not have been sent.
    let (used, made) = (doorway.used("calls"), interop.ended() + doorway.repeated());
    assert!(used <= made && made - used <= egret.stat("/clients/gone_cancelled"), "{used} of {made}");
    assert!(doorway.repeated() >= 2, "{}", doorway.repeated());
    let floods = egret.stats()["floods"].clone();
    assert!(floods.as_array().unwrap().iter().all(|flood| flood["count"] == 0), "{floods}");
}

#[test]
fn cases_pass_by_prior_knowledge() {
    passes(Door::Plain, false);
}

#[test]
fn cases_pass_over_tls_on_both_legs() {
    passes(Door::Tls, true);
}

#[test]
fn cases_pass_from_prior_knowledge_to_tls() {
    passes(Door::Plain, true);
}

#[test]
fn cases_pass_from_tls_to_prior_knowledge() {
    passes(Door::Tls, false);
}

#[test]
fn cases_pass_through_interception() {
    passes(Door::Interception, true);
}
