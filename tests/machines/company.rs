//! A company's network, whose only way out is a proxy of another project: Squid, with TLS or without, or a
//! server of SOCKS 5.
//!
//! An application's machine is connected to the proxy's, and that to the providers'. It has no route beyond
//! the proxy's.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use egret_tests::egret::{Config, Egret, binary};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, Process, run, run_checked};
use egret_tests::wait;

use egret_tests::namespace::Namespace;

/// Addresses of the proxy's machine, on both sides, and of the providers' machine.
const GATE: &str = "10.88.1.1";
const GATE_OUTSIDE: &str = "10.88.2.1";
pub const OUTSIDE: &str = "10.88.2.2";

/// The password of the proxy's user `egret`.
pub const PASSWORD: &str = "s3cret";

/// Responds to everything as a token endpoint does, and tells what it was asked for.
const SINK: &str = r#"
import http.server, sys
class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def respond(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b'{"access_token":"token-of-the-test","expires_in":3600,"token_type":"Bearer"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        print("ASKED", self.command, self.path, file=sys.stderr, flush=True)
    do_GET = do_POST = do_PUT = respond
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 9001), Sink)
print("listens", file=sys.stderr, flush=True)
server.serve_forever()
"#;

/// A kind of proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Squid,
    SquidOverTls,
    Socks,
}

/// The network.
#[derive(Debug)]
pub struct Company {
    kind: Gate,
    /// Ends before its namespace.
    proxy: Option<Process>,
    /// Ends before its namespace.
    _providers: [Process; 2],
    sink: Process,
    inside: Namespace,
    gate: Namespace,
    _outside: Namespace,
    files: Directory,
}

impl Company {
    /// Creates the machines, and starts the proxy and the providers: an API at port 9000, the same over TLS
    /// at 9443, and at 9001 a server that takes everything.
    pub fn start(kind: Gate) -> Self {
        let (inside, gate, outside) = (Namespace::create(), Namespace::create(), Namespace::create());
        gate.connect("inside", &format!("{GATE}/24"), &inside, "10.88.1.2/24");
        gate.connect("outside", &format!("{GATE_OUTSIDE}/24"), &outside, &format!("{OUTSIDE}/24"));
        let files = Directory::default();
        files.write("hosts", format!("127.0.0.1 localhost\n{OUTSIDE} api.test\n{OUTSIDE} denied.test\n"));
        let provider = |more: &[&str]| {
            let provider = Process::start(outside.command(binary()).arg("provider").args(more));
            provider.until_prints("the provider listens", |lines| {
                lines.iter().any(|line| line.contains("listen")).then_some(())
            });
            provider
        };
        let ca = files.join("provider-ca.pem");
        let (plain, secure) = (format!("{OUTSIDE}:9000"), format!("{OUTSIDE}:9443"));
        let providers = [
            provider(&["--listen", &plain]),
            provider(&["--listen", &secure, "--tls", "--tls-ca", ca.to_str().unwrap()]),
        ];
        let sink = Process::start(outside.command("python3").args(["-c", SINK, OUTSIDE]));
        sink.until_prints("the server listens", |lines| {
            lines.iter().any(|line| line == "listens").then_some(())
        });
        let authority = Authority::default();
        let leaf = authority.leaf(&[GATE]);
        files.write("gate-ca.pem", authority.certificate());
        files.write("gate.pem", leaf.certificate);
        files.write("gate-key.pem", leaf.key);
        let hash = run_checked(Command::new("openssl").args(["passwd", "-apr1", PASSWORD]));
        files.write("passwd", format!("egret:{hash}"));
        let mut company =
            Self { kind, proxy: None, _providers: providers, sink, inside, gate, _outside: outside, files };
        company.start_proxy();
        company
    }

    /// The path of a file of the network.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    /// The key `upstream_proxy` for Egret.
    pub fn upstream_proxy(&self) -> String {
        let url = match self.kind {
            Gate::Squid => format!("http://{GATE}:3128"),
            Gate::SquidOverTls => format!("https://{GATE}:3129"),
            Gate::Socks => format!("socks5h://{GATE}:1080"),
        };
        let ca = match self.kind {
            Gate::SquidOverTls => format!(", ca: {:?}", self.file("gate-ca.pem")),
            Gate::Squid | Gate::Socks => String::new(),
        };
        format!(
            "upstream_proxy: {{ url: '{url}', username: egret, password: '${{env:PROXY_PASSWORD}}'{ca} }}"
        )
    }

    /// Starts Egret on the application's machine.
    pub fn egret(&self, config: &Config, password: &str) -> Egret {
        Egret::start_with(config, |command| {
            command.env("PROXY_PASSWORD", password).env("SECRET", "secret-of-the-test");
            command.env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "key");
            self.inside.enclose(command);
        })
    }

    /// Runs curl on the application's machine. Returns the status, 0 if there is no response, and the rest of
    /// what it prints.
    pub fn curl(&self, arguments: &[&str]) -> (u16, String) {
        let mut command = self.inside.command("curl");
        command.args(["-s", "-m", "60", "-w", "\n%{http_code} %{http_connect}", "--noproxy", ""]);
        let output = run(command.args(arguments));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, codes) = text.rsplit_once('\n').unwrap_or_default();
        // The last response: that of the proxy, if it opens no tunnel.
        let codes: Vec<u16> = codes.split(' ').filter_map(|code| code.parse().ok()).collect();
        let status = codes.iter().copied().find(|code| *code != 0).unwrap_or_default();
        (status, body.to_owned())
    }

    /// The requests that the server has got that takes everything.
    pub fn asked(&self) -> Vec<String> {
        let stderr = self.sink.stderr();
        stderr.lines().filter_map(|line| line.strip_prefix("ASKED ")).map(str::to_owned).collect()
    }

    /// Everything that the proxy has written about its clients.
    pub fn proxy_log(&self) -> String {
        let file = std::fs::read_to_string(self.file("access.log")).unwrap_or_default();
        file + &self.proxy.as_ref().map(Process::stderr).unwrap_or_default()
    }

    /// Ends the proxy.
    pub fn stop_proxy(&mut self) {
        if let Some(mut proxy) = self.proxy.take() {
            proxy.signal("TERM");
            proxy.until_ended();
        }
    }

    /// Starts the proxy.
    pub fn start_proxy(&mut self) {
        let mut command = match self.kind {
            Gate::Squid | Gate::SquidOverTls => self.squid(),
            Gate::Socks => {
                // It looks names up where the system does.
                let line = format!(
                    "mount --bind '{}' /etc/hosts && exec microsocks -i {GATE} -p 1080 -u egret -P {PASSWORD}",
                    self.file("hosts").display()
                );
                let mut command = self.gate.command("unshare");
                command.args(["--mount", "sh", "-c", &line]);
                command
            }
        };
        self.proxy = Some(Process::start(&mut command));
        let port = match self.kind {
            Gate::Squid => "3128",
            Gate::SquidOverTls => "3129",
            Gate::Socks => "1080",
        };
        let probe = format!("exec 3<>/dev/tcp/{GATE}/{port}");
        wait::until_true("the proxy listens", || {
            run(self.inside.command("bash").args(["-c", &probe])).status.success()
        });
    }

    fn squid(&self) -> Command {
        /// Squid's memory has a name, which must be its own.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let directory = self.files.path().display();
        let config = format!(
            "http_port {GATE}:3128\n\
             https_port {GATE}:3129 tls-cert={directory}/gate.pem tls-key={directory}/gate-key.pem\n\
             pid_filename none\nhosts_file {directory}/hosts\naccess_log stdio:{directory}/access.log\n\
             cache_log /dev/stderr\ncache deny all\npinger_enable off\nshutdown_lifetime 0 seconds\ncoredump_dir {directory}\n\
             auth_param basic program /usr/lib/squid/basic_ncsa_auth {directory}/passwd\n\
             acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n"
        );
        let config = self.files.write("squid.conf", config);
        let name = format!("egrettest{}x{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        // It refuses to run as root, and the directory may be closed to others.
        let mut command = self.gate.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]);
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .args(["squid", "-N", "-n", &name, "-f"])
            .arg(config);
        command
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.stop_proxy();
    }
}
