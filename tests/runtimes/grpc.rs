//! gRPC's own channel, which offers HTTP/2 only: inside an intercepted tunnel, its calls pass through flows.
//! In other tunnels they pass unread, with the provider's own certificate.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use egret_tests::direct::direct;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, binary};
use egret_tests::exec::{FREE_PORTS, Place};
use egret_tests::pki::Authority;
use egret_tests::process::{Process, run, run_checked};
use egret_tests::recorder::Recorder;
use egret_tests::wait;
use serde_json::Value;

use super::peers::PYTHON;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/grpc_echo.py");

/// The variable with the authorities that gRPC trusts.
const ROOTS: &str = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH";

/// The output of the client.
const EXPECTED: &str = "hello with ['by the client']\n20 True\n";

/// The output of the client of all kinds of calls, the last of which exceeds the quota.
const KINDS: &str = "b'hello with []'
[b'again', b'again', b'again']
b'one+two'
[b'eno', b'owt']
b'served at try 2'
UNAVAILABLE
";

/// A quota for what goes out before the last call, and retries for the call that needs one.
const FLOWS: &str = "quotas: { calls: { limit: 6, window: 1h } }
flows:
  - name: echoes
    match: { grpc: { service: echo.Echo } }
    remedies:
      - retry: { on: [grpc-unavailable], methods: [POST] }
      - limit: { quota: calls }
";

/// A running server, which only `provider.pem` of its place makes trusted.
struct Server {
    _process: Process,
    place: Place,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let (authority, place) = (Authority::default(), Place::new());
        let leaf = authority.leaf(&["grpc.test"]);
        for (name, pem) in [
            ("provider.pem", authority.certificate()),
            ("leaf.pem", leaf.certificate),
            ("leaf.key", leaf.key),
        ] {
            place.directory.write(name, pem);
        }
        let mut command = Command::new(PYTHON);
        command.args([SCRIPT, "serve", "leaf.pem", "leaf.key"]).arg(place.directory.join("grpc.sock"));
        place.prepare(&mut command);
        let process = Process::start(&mut command);
        let port = process.until_prints("the server listens", |lines| {
            lines.iter().find_map(|line| line.strip_prefix("listening ")?.parse().ok())
        });
        Self { _process: process, place, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    /// Makes a command the client's, which trusts the server.
    fn call(&self, command: Command, target: &str) -> String {
        run_checked(&mut self.client(command, "call", target))
    }

    /// Does the same with calls of this sort, and does not run it.
    fn client(&self, mut command: Command, calls: &str, target: &str) -> Command {
        command.args([PYTHON, SCRIPT, calls, target]).env(ROOTS, self.place.directory.join("provider.pem"));
        command
    }

    /// Writes a config with the server as a provider that Egret trusts, and with more keys of `gateway` and
    /// behind it. Returns the target of a client.
    fn write_config(&self, names: &NameServer, gateway: &str, rest: &str) -> String {
        let target = format!("grpc.test:{}", self.address.port());
        let config = format!(
            "gateway: {{ listen: ['127.0.0.1:0'], {}, {gateway} }}
control: {{ listen: 127.0.0.1:0 }}
log: {{ level: debug }}
providers: {{ grpc: {{ url: 'https://{target}', tls: {{ ca: provider.pem }} }} }}
{rest}",
            names.config()
        );
        self.place.directory.write("egret.yaml", config);
        target
    }

    /// A command of `egret exec` with this option. The command it runs follows.
    fn exec(&self, option: &str) -> Command {
        let mut exec = self.place.options([option]);
        exec.arg("--");
        exec
    }

    /// Starts a command in namespaces in which `grpc.test` leads to the server.
    fn direct(&self) -> Command {
        let mut command =
            direct(&self.place.directory, &["grpc.test"], &self.place.directory.join("grpc.sock"));
        self.place.prepare(&mut command);
        command
    }
}

/// A name server that has the name of the server.
fn names() -> NameServer {
    NameServer::start(|name| match name {
        "grpc.test" => Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60),
        _ => Answer::NoSuchName,
    })
}

/// Returns the bytes behind an empty line.
fn behind_head(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    &bytes[end + 4..]
}

#[test]
fn a_tunnel_carries_each_byte_and_is_counted() {
    let (server, names) = (Server::start(), names());
    assert_eq!(server.call(server.direct(), "grpc.test:443"), EXPECTED, "without Egret");
    let before_server = Recorder::to(server.address);
    let target = format!("grpc.test:{}", before_server.address().port());
    let config = Config::default().gateway(names.config()).gateway("access_log: { output: access.log }");
    let config = config.provider("grpc", format!("https://{target}"));
    let egret = config.flows("interception: { tunnel: [grpc.test] }").start();
    let before_egret = Recorder::to(egret.address());
    // The user's own proxy stays, and is a recorder before the gateway that runs.
    server.place.directory.write(
        "egret.yaml",
        format!(
            "gateway: {{ listen: ['{}'] }}\ncontrol: {{ listen: '{}' }}\n",
            egret.address(),
            egret.control()
        ),
    );
    let mut exec = server.place.options([]);
    exec.env("grpc_proxy", format!("http://{}", before_egret.address()));
    exec.arg("--");
    assert_eq!(server.call(exec, &target), EXPECTED);
    let (client, provider) = (before_egret.only(), before_server.only());
    assert!(client.up.starts_with(format!("CONNECT {target} HTTP/1.1\r\n").as_bytes()));
    assert!(behind_head(&client.up) == provider.up, "the provider received other bytes");
    assert!(behind_head(&client.down) == provider.down, "the client received other bytes");
    assert!(provider.up.len() > 2_000_000 && provider.down.len() > 2_000_000);
    let stat = |name| egret.stat(&format!("/interception/{name}"));
    assert_eq!((stat("provider_tunnels"), stat("connections"), stat("refused")), (1, 0, 0));
    assert_eq!(egret.provider_stat("grpc", "tunnels"), 1);
    let metrics = egret.control_get("/metrics");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("\negret_intercept_bypasses_total 1\n"), "{metrics}");
    let (up, down) = (provider.up.len(), provider.down.len());
    let bytes = format!("upstream_sent_bytes={up} upstream_received_bytes={down}");
    wait::until_true("the access log has the tunnel with its bytes", || {
        let lines = std::fs::read_to_string(egret.directory().join("access.log")).unwrap_or_default();
        lines.lines().any(|line| {
            line.contains("provider=grpc") && line.contains("method=CONNECT") && line.contains(&bytes)
        })
    });
}

#[test]
fn calls_of_every_kind_pass_through_flows() {
    let (server, names) = (Server::start(), names());
    let log = "access_log: { output: access.log, format: json }";
    let target = server.write_config(&names, log, FLOWS);
    assert_eq!(run_checked(&mut server.client(server.exec("--intercept"), "kinds", &target)), KINDS);
    server.place.until_gateways_gone();
    let lines = std::fs::read_to_string(server.place.directory.join("access.log")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |line: &Value| {
        assert_eq!((&line["method"], &line["provider"]), (&"POST".into(), &"grpc".into()), "{line}");
        assert_eq!(line["intercepted"], true, "{line}");
        let values = ["path", "grpc_status", "error"].map(|name| line[name].as_str());
        values.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    let calls: Vec<String> = lines.iter().map(of).collect();
    let expected = [
        "/echo.Echo/Call ok",
        "/echo.Echo/Repeat ok",
        "/echo.Echo/Join ok",
        "/echo.Echo/Stream ok",
        "/echo.Echo/SecondTry ok",
        "/echo.Echo/Call unavailable quota-exceeded",
    ];
    assert_eq!(calls, expected);
}

#[test]
fn a_command_calls_unread_without_interception_or_http2() {
    let (server, names) = (Server::start(), names());
    for (option, http2, told) in [
        ("--intercept", false, "its client offers no version of HTTP that is served"),
        ("--linger=0s", true, "a tunnel leads to a configured provider"),
    ] {
        let target = server.write_config(&names, &format!("http2: {http2}"), "");
        assert_eq!(server.call(server.exec(option), &target), EXPECTED);
        server.place.until_gateways_gone();
        let logs = server.place.logs();
        let logs: Vec<String> = logs.iter().map(|log| std::fs::read_to_string(log).unwrap()).collect();
        assert!(logs.iter().any(|log| log.contains(told)), "{option}: {logs:?}");
    }
    let target = server.write_config(&names, "http2: false", "interception: { unknown: refuse }\n");
    let output = run(&mut server.client(server.exec("--intercept"), "call", &target));
    assert!(!output.status.success(), "it was to be refused: {output:?}");
}

/// The gateway of the command runs in the namespaces as well: in them alone the name has an address.
#[test]
fn a_command_that_knows_no_proxy_is_carried() {
    let server = Server::start();
    let config = format!(
        "{FREE_PORTS}providers: {{ grpc: {{ url: 'https://grpc.test', tls: {{ ca: provider.pem }} }} }}\n"
    );
    server.place.directory.write("egret.yaml", config);
    let mut isolated = server.direct();
    isolated.args([binary(), Path::new("exec")]);
    isolated.args(["--config", "egret.yaml", "--isolate", "--intercept", "--", "env"]);
    for name in ["grpc_proxy", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"] {
        isolated.arg(format!("--unset={name}"));
    }
    assert_eq!(server.call(isolated, "grpc.test:443"), EXPECTED);
}
