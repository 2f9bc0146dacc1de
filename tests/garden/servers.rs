//! The servers, each with an Egret in front of it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{self, free_port};
use egret_tests::process::{Directory, Process, run_checked};
use egret_tests::wait;

use super::hyper;
use super::raw::{self, Responses};
use super::record::Records;

/// Directory of the peers' programs.
pub(crate) const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/garden");

/// A running server, whose requests are recorded, and an Egret that calls it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) egret: Egret,
    pub(crate) records: Records,
    _process: Option<Process>,
    _directory: Directory,
}

/// The command of a server. It listens on `port`, and one without an application passes requests on to
/// `echo`.
type Start = fn(&Directory, port: u16, echo: SocketAddr) -> Command;

/// The servers that are programs.
const PROGRAMS: [(&str, Start); 12] = [
    ("nginx", nginx),
    ("apache", apache),
    ("haproxy", haproxy),
    ("lighttpd", lighttpd),
    ("envoy", envoy),
    ("node", node),
    ("go", go),
    ("uvicorn-h11", uvicorn_h11),
    ("uvicorn-httptools", uvicorn_httptools),
    ("gunicorn", gunicorn),
    ("jdk", jdk),
    ("puma", puma),
];

/// The names of all servers.
pub(crate) const NAMES: [&str; 13] = [
    "nginx",
    "apache",
    "haproxy",
    "lighttpd",
    "envoy",
    "node",
    "go",
    "uvicorn-h11",
    "uvicorn-httptools",
    "gunicorn",
    "jdk",
    "puma",
    "hyper",
];

impl Server {
    /// Starts the server of that name, and Egret.
    pub(crate) fn start(name: &str) -> Self {
        let directory = Directory::default();
        let records = Records::default();
        let (process, address) = match PROGRAMS.iter().find(|(of, _)| *of == name) {
            Some((_, start)) => {
                let port = free_port();
                let echo = raw::start(&records, &Responses::default());
                let mut command = start(&directory, port, echo);
                let (reader, writer) = std::io::pipe().unwrap();
                let process = Process::start(command.stdout(writer));
                records.read(reader);
                (Some(process), SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            }
            None => (None, hyper::start(&records)),
        };
        wait::until_true(&format!("{name} listens"), || TcpStream::connect(address).is_ok());
        Self { address, egret: gateway(address), records, _process: process, _directory: directory }
    }
}

/// Starts an Egret whose listener belongs to one provider, so that it gets the very bytes that the provider
/// gets.
pub(crate) fn gateway(provider: SocketAddr) -> Egret {
    let config = format!(
        "gateway: {{ listen: [{{ address: '127.0.0.1:0', provider: peer }}], workers: 2 }}\n\
         control: {{ listen: '127.0.0.1:0' }}\nlog: {{ format: json, level: info }}\n\
         providers: {{ peer: {{ url: 'http://{provider}', http: 1 }} }}\n"
    );
    Config::written(config).start()
}

fn nginx(directory: &Directory, port: u16, echo: SocketAddr) -> Command {
    let path = directory.path().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {path}/{kind};\n"))
        .concat();
    let config = format!(
        "daemon off; master_process off; worker_processes 1; pid {path}/pid; error_log /dev/null crit;
         events {{ worker_connections 4096; }}
         http {{
           access_log off; {temporary}
           upstream echo {{ server {echo}; keepalive 64; }}
           server {{
             listen 127.0.0.1:{port} backlog=4096;
             location / {{ proxy_pass http://echo; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
           }}
         }}"
    );
    let file = directory.write("nginx.conf", config);
    peers::nginx(directory, &file)
}

fn apache(directory: &Directory, port: u16, echo: SocketAddr) -> Command {
    let path = directory.path().display();
    let modules: String = ["mpm_event", "authz_core", "proxy", "proxy_http"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let config = format!(
        "{modules}ServerRoot {path}\nPidFile {path}/pid\nDefaultRuntimeDir {path}\nErrorLog /dev/null\nServerName garden
Listen 127.0.0.1:{port}\nMergeSlashes Off\nAllowEncodedSlashes NoDecode\nMaxKeepAliveRequests 0
ThreadLimit 256\nStartServers 1\nServerLimit 1\nThreadsPerChild 256\nMaxRequestWorkers 256
User nobody\nGroup nogroup
ProxyPass / http://{echo}/ nocanon retry=0\n"
    );
    let file = directory.write("apache.conf", config);
    let mut command = Command::new(located("apache2"));
    command.args(["-X", "-f"]).arg(file);
    command
}

fn haproxy(directory: &Directory, port: u16, echo: SocketAddr) -> Command {
    let config = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n http-reuse always
frontend front\n bind 127.0.0.1:{port}\n default_backend echo\nbackend echo\n server echo {echo}\n"
    );
    let file = directory.write("haproxy.cfg", config);
    let mut command = Command::new(located("haproxy"));
    command.args(["-db", "-q", "-f"]).arg(file);
    command
}

fn lighttpd(directory: &Directory, port: u16, echo: SocketAddr) -> Command {
    let path = directory.path().display();
    let config = format!(
        "server.modules = (\"mod_proxy\")\nserver.document-root = \"{path}\"\nserver.bind = \"127.0.0.1\"
server.port = {port}\nserver.max-keep-alive-requests = 100000\nserver.errorlog = \"/dev/null\"
proxy.server = (\"\" => ((\"host\" => \"{}\", \"port\" => {}, \"disable-time\" => 0)))\n",
        echo.ip(),
        echo.port()
    );
    let file = directory.write("lighttpd.conf", config);
    let mut command = Command::new(located("lighttpd"));
    command.args(["-D", "-f"]).arg(file);
    command
}

fn envoy(directory: &Directory, port: u16, echo: SocketAddr) -> Command {
    let address = |address: SocketAddr| {
        format!("{{ socket_address: {{ address: {}, port_value: {} }} }}", address.ip(), address.port())
    };
    let own = address(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let echo = address(echo);
    let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let config = format!(
        "static_resources:
  listeners:
    - address: {own}
      filter_chains:
        - filters:
            - name: http
              typed_config:
                \"@type\": {manager}
                stat_prefix: garden
                http_filters: [{{ name: router, typed_config: {{ \"@type\": {router} }} }}]
                route_config:
                  virtual_hosts: [{{ name: all, domains: ['*'], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: echo }} }}] }}]
  clusters:
    - name: echo
      load_assignment:
        cluster_name: echo
        endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {echo} }} }}] }}]\n"
    );
    let file = directory.write("envoy.yaml", config);
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/bin/envoy"));
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "off", "-c"]).arg(file);
    command
}

fn node(_: &Directory, port: u16, _: SocketAddr) -> Command {
    let mut command = Command::new(located("node"));
    command.arg(format!("{SOURCES}/node.mjs")).arg(port.to_string());
    command
}

fn go(directory: &Directory, port: u16, _: SocketAddr) -> Command {
    let program = directory.join("server");
    run_checked(Command::new("go").args(["build", "-o"]).arg(&program).arg(format!("{SOURCES}/server.go")));
    let mut command = Command::new(program);
    command.arg(port.to_string());
    command
}

/// Returns a command of the Python with the servers of Python.
fn python(module: &str, port: u16) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/garden/bin/python"));
    command.args(["-m", module]).current_dir(SOURCES).env("PYTHONDONTWRITEBYTECODE", "1");
    match module {
        "uvicorn" => command
            .args(["reports:asgi", "--no-access-log", "--log-level", "critical", "--lifespan", "off"])
            .arg("--port"),
        _ => command.args(["reports:wsgi", "--log-level", "critical", "--threads", "64", "-b"]),
    };
    command.arg(if module == "uvicorn" { port.to_string() } else { format!("127.0.0.1:{port}") });
    command
}

fn uvicorn_h11(_: &Directory, port: u16, _: SocketAddr) -> Command {
    let mut command = python("uvicorn", port);
    command.args(["--http", "h11"]);
    command
}

fn uvicorn_httptools(_: &Directory, port: u16, _: SocketAddr) -> Command {
    let mut command = python("uvicorn", port);
    command.args(["--http", "httptools"]);
    command
}

fn gunicorn(_: &Directory, port: u16, _: SocketAddr) -> Command {
    python("gunicorn", port)
}

fn jdk(_: &Directory, port: u16, _: SocketAddr) -> Command {
    let mut command = Command::new(located("java"));
    command.arg(format!("{SOURCES}/Server.java")).arg(port.to_string());
    command
}

fn puma(directory: &Directory, port: u16, _: SocketAddr) -> Command {
    let mut command = Command::new(located("puma"));
    command
        .args(["-q", "-t", "64:64", "-b", &format!("tcp://127.0.0.1:{port}")])
        .arg(format!("{SOURCES}/server.ru"));
    command.current_dir(directory.path());
    command
}

/// Returns the path of a program of a Debian package.
pub(crate) fn located(program: &str) -> PathBuf {
    peers::located(program, &format!(".peers/bin/{program}"))
}
