//! Real peers: go-httpbin and nginx as providers, an authorization server; curl, ab, Python and Node as
//! clients.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use serde_json::{Map, Value};
use socket2::{Domain, Socket, Type};

use crate::http::Client;
use crate::pki::Authority;
use crate::process::{Directory, Process, run_checked};
use crate::wait;

/// The root of the checkout. `make test` installs peers below it.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the path of a program: `installed` in the checkout, or the one on the PATH.
pub fn located(program: &str, installed: &str) -> PathBuf {
    let installed = root().join(installed);
    if installed.exists() {
        return installed;
    }
    found(program).unwrap_or_else(|| panic!("{program} is not installed: run `make test`, which installs it"))
}

/// Returns the path of a program of the system.
pub fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// A running go-httpbin.
#[derive(Debug)]
pub struct Httpbin {
    _process: Process,
    address: SocketAddr,
}

impl Httpbin {
    /// Starts it with limits that allow large bodies.
    pub fn start() -> Self {
        Self::start_with(&["-max-body-size", "16777216"])
    }

    /// Starts it with these arguments, in addition to its address.
    pub fn start_with(arguments: &[&str]) -> Self {
        let mut command = Command::new(located("go-httpbin", ".peers/bin/go-httpbin"));
        command.args(["-host", "127.0.0.1", "-port", "0", "-log-level", "ERROR"]).args(arguments);
        // It reads variables that other programs set too, such as PREFIX.
        command.env_clear();
        let process = Process::start(command.stdout(Stdio::null()));
        let port = wait::until("go-httpbin listens", || process.listening_ports().first().copied());
        Self { _process: process, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A running nginx with a plain and a TLS server.
#[derive(Debug)]
pub struct Nginx {
    _process: Process,
    directory: Directory,
    plain: SocketAddr,
    tls: SocketAddr,
}

impl Nginx {
    /// Starts it with these locations, its files below [`Nginx::directory`]`/www`, and a certificate of
    /// `authority` for `localhost` and `127.0.0.1`.
    pub fn start(authority: &Authority, locations: &str) -> Self {
        Self::start_with(authority, locations, |_| String::new())
    }

    /// Does the same, with more directives for the TLS server, generated from its directory.
    pub fn start_with(
        authority: &Authority,
        locations: &str,
        tls: impl FnOnce(&Directory) -> String,
    ) -> Self {
        Self::start_named(authority, &[], locations, tls)
    }

    /// Does the same with a certificate for more names.
    pub fn start_named(
        authority: &Authority,
        names: &[&str],
        locations: &str,
        tls: impl FnOnce(&Directory) -> String,
    ) -> Self {
        let directory = Directory::default();
        std::fs::create_dir(directory.join("www")).unwrap();
        let leaf = authority.leaf(&[&["localhost", "127.0.0.1"][..], names].concat());
        directory.write("leaf.pem", &leaf.certificate);
        directory.write("leaf.key", &leaf.key);
        let [plain, secure] = [free_port(), free_port()];
        let path = directory.path().display();
        let tls = tls(&directory);
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {path}/{kind};\n"))
            .concat();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 16384; pid {path}/pid; error_log stderr error;
             events {{ worker_connections 8192; }}
             http {{
               access_log off; sendfile on; keepalive_requests 1000000; default_type application/octet-stream;
               {temporary}
               root {path}/www;
               server {{ listen 127.0.0.1:{plain} backlog=4096; {locations} }}
               server {{
                 listen 127.0.0.1:{secure} ssl backlog=4096;
                 ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {path}/leaf.pem; ssl_certificate_key {path}/leaf.key; {tls}
                 {locations}
               }}
             }}"
        );
        let file = directory.write("nginx.conf", config);
        let process = Process::start(&mut nginx(&directory, &file));
        let [plain, tls] = [plain, secure].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        wait::until_true("nginx listens", || {
            TcpStream::connect(plain).is_ok() && TcpStream::connect(tls).is_ok()
        });
        Self { _process: process, directory, plain, tls }
    }

    /// The address of its plain server.
    pub fn address(&self) -> SocketAddr {
        self.plain
    }

    /// The plain server's URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.plain)
    }

    /// The TLS server's URL, without a trailing slash.
    pub fn tls_url(&self) -> String {
        format!("https://localhost:{}", self.tls.port())
    }

    /// The address of its TLS server.
    pub fn tls_address(&self) -> SocketAddr {
        self.tls
    }

    /// Its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

/// Returns the command of nginx with this config, below a directory.
pub fn nginx(directory: &Directory, config: &Path) -> Command {
    let mut command = Command::new(located("nginx", ".peers/bin/nginx"));
    command.args(["-e", "stderr", "-p"]).arg(directory.path()).arg("-c").arg(config).stdout(Stdio::null());
    command
}

/// Returns a port for a program that cannot report the port chosen by the system. It lies below the range of
/// ephemeral ports, so no connection takes it. It stays reserved until this process ends: the program may
/// bind it, because the reservation does not listen and both allow reuse, and no other caller gets it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static RESERVED: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let start = u16::try_from(std::process::id() % 20_000).unwrap();
    let reserve = |port: &u16| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // Allowed before, reuse would permit a port that another caller has reserved.
        let is_free = socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, *port)).into()).is_ok();
        socket.set_reuse_address(true).unwrap();
        RESERVED.lock().unwrap().extend(is_free.then_some(socket));
        is_free
    };
    std::iter::repeat_with(|| 12_000 + (start + NEXT.fetch_add(1, Relaxed)) % 20_000).find(reserve).unwrap()
}

/// Returns a client program without the proxy variables of the caller's environment.
pub(crate) fn client(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    for name in ["http_proxy", "https_proxy", "no_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_ascii_uppercase());
    }
    command
}

/// Returns the PATH, preceded by the peers that `make test` installs.
pub fn path_with_peers() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", root().join(".peers/bin").display())
}

/// Returns the command curl, quiet and with a time limit.
pub fn curl() -> Command {
    let mut command = client(located("curl", ".peers/bin/curl"));
    command.args(["--silent", "--show-error", "--max-time", "240"]);
    command
}

/// Apache's ab.
pub fn ab() -> Command {
    client(located("ab", ".peers/bin/ab"))
}

/// The load client wrk.
pub fn wrk() -> Command {
    client(located("wrk", ".peers/bin/wrk"))
}

/// Runs a Python script with the installed clients and returns its output.
pub fn python(script: &str, arguments: &[&str]) -> String {
    let python = root().join(".venv/bin/python");
    assert!(python.exists(), "the Python clients are not installed: run `make test`, which installs them");
    run_checked(client(python).arg("-c").arg(script).args(arguments))
}

/// Runs a script of `tests/peers/node` behind a proxy and returns its output.
pub fn node(script: &str, proxy: &str, arguments: &[&str]) -> String {
    run_checked(node_script(script).env("HTTP_PROXY", proxy).env("HTTPS_PROXY", proxy).args(arguments))
}

/// Returns the command that runs a script of `tests/peers/node`.
pub fn node_script(script: &str) -> Command {
    let directory = root().join("tests/peers/node");
    assert!(
        ["alf-validator", "oauth2-mock-server"]
            .iter()
            .all(|name| directory.join("node_modules").join(name).exists()),
        "the Node peers are not installed: run `make test`, which installs them"
    );
    let mut command = client(located("node", ".peers/bin/node"));
    command.current_dir(directory).arg(script);
    command
}

/// Executes a notebook of `notebooks/` with these variables; its output is written to `out`.
pub fn notebook(name: &str, variables: &[(&str, &Path)], out: &Path) {
    let python = root().join(".venv/bin/python");
    assert!(python.exists(), "the notebook's Python is not installed: run `make test`, which installs it");
    let mut command = client(python);
    command.args(["-m", "nbconvert", "--execute", "--to", "notebook", "--output-dir"]).arg(out);
    command.envs(variables.iter().copied()).env("MPLBACKEND", "Agg");
    // Each kernel gets its own connection file and each tool its own cache, because tests run in parallel.
    for variable in ["JUPYTER_RUNTIME_DIR", "IPYTHONDIR"] {
        command.env(variable, out);
    }
    // To look for the fonts of the system takes seconds.
    command.env("MPLCONFIGDIR", root().join(".peers/matplotlib"));
    run_checked(command.arg(root().join("notebooks").join(name)));
}

/// A Python program from `tests/peers` that receives from exporters and prints a line for each item received.
#[derive(Debug)]
pub struct Collector {
    process: Process,
    address: String,
}

impl Collector {
    /// Starts it, and waits until it listens.
    pub fn start(script: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(root().join(".venv/bin/python"));
        command.arg(root().join("tests/peers").join(script)).args(arguments);
        let process = Process::start(&mut command);
        let address = process.until_prints("the collector listens", |lines| {
            lines.iter().find_map(|line| Some(line.strip_prefix("listening ")?.to_owned()))
        });
        Self { process, address }
    }

    /// Its address: `tcp://127.0.0.1:5500`, `http://127.0.0.1:8080`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its port.
    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap_or_default()
    }

    /// Waits for `count` lines that begin with this word, and returns the rest of these lines.
    pub fn received(&self, word: &str, count: usize) -> Vec<String> {
        self.process.until_prints(&format!("{count} times {word}"), |lines| {
            let received: Vec<String> =
                lines.iter().filter_map(|line| Some(line.strip_prefix(word)?.trim().to_owned())).collect();
            (received.len() >= count).then_some(received)
        })
    }
}

/// A running authorization server, which grants tokens to one client.
#[derive(Debug)]
pub struct AuthorizationServer {
    _process: Process,
    url: String,
    orders: SocketAddr,
}

impl AuthorizationServer {
    /// The name and secret of its client.
    pub const CLIENT: [&str; 2] = ["the client", "s3cr3t:of the client/0123456789"];

    /// Starts it.
    pub fn start() -> Self {
        let process = Process::start(node_script("oauth2.mjs").args(Self::CLIENT));
        let address = |word: &str| {
            process.until_prints("the authorization server listens", |lines| {
                lines.iter().find_map(|line| Some(line.strip_prefix(word)?.trim().to_owned()))
            })
        };
        let url = address("listening ");
        let orders = address("orders http://").parse().unwrap();
        Self { _process: process, url, orders }
    }

    /// The URL of its token endpoint.
    pub fn token_url(&self) -> String {
        format!("{}/token", self.url)
    }

    /// Changes its future responses: the lifetime of tokens (`expires_in`), the `status`, and whether
    /// responses are held back (`hold`). Returns the number of responses held back (`held`), and the requests
    /// so far (`told`).
    pub fn order(&self, orders: &Value) -> Value {
        let body = orders.to_string();
        let head =
            format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", self.orders, body.len());
        Client::connect(self.orders).send(head + &body).response().json()
    }

    /// Waits until it holds a response back.
    pub fn until_held(&self) {
        wait::until_true("a response is held back", || self.order(&Value::Object(Map::new()))["held"] == 1);
    }

    /// Returns every answered token request so far: the `status`, the request (`asked`) and the response
    /// (`answer`).
    pub fn received(&self) -> Vec<Value> {
        let Value::Array(received) = self.order(&Value::Object(Map::new()))["received"].take() else {
            return Vec::new();
        };
        received
    }

    /// Does the same, once there are `count` of them.
    pub fn until_received(&self, count: usize) -> Vec<Value> {
        wait::until(&format!("{count} requests for a token"), || {
            Some(self.received()).filter(|received| received.len() >= count)
        })
    }

    /// The tokens that it has granted so far.
    pub fn tokens(&self) -> Vec<String> {
        let received = self.received();
        let tokens = received.iter().filter_map(|received| received["response"]["access_token"].as_str());
        tokens.map(str::to_owned).collect()
    }
}

/// A running S3-compatible store, `rclone serve s3`; its objects are files.
#[derive(Debug)]
pub struct S3 {
    _process: Process,
    port: u16,
    directory: Directory,
}

impl S3 {
    /// The key ID and the secret key that it accepts.
    pub const KEYS: [&str; 2] = ["the-id", "the-key"];

    /// Starts it with a bucket named `bucket`.
    pub fn start() -> Self {
        let directory = Directory::default();
        std::fs::create_dir_all(directory.join("data/bucket")).unwrap();
        let mut command = Command::new(located("rclone", ".peers/bin/rclone"));
        command.args(["serve", "s3", "--config=", "--addr=127.0.0.1:0"]);
        command.arg(format!("--auth-key={}", Self::KEYS.join(","))).arg(directory.join("data"));
        let process = Process::start(command.stdout(Stdio::null()));
        let port = wait::until("rclone listens", || process.listening_ports().first().copied());
        Self { _process: process, port, directory }
    }

    /// Its URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the keys of all objects in the bucket and their paths, in order.
    pub fn objects(&self) -> Vec<(String, PathBuf)> {
        let (bucket, mut objects) = (self.directory.join("data/bucket"), Vec::new());
        let mut directories = vec![bucket.clone()];
        while let Some(directory) = directories.pop() {
            for path in std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
                let key = path.strip_prefix(&bucket).unwrap().display().to_string();
                match (path.is_dir(), key.starts_with('.')) {
                    (true, false) => directories.push(path),
                    (false, false) => objects.push((key, path)),
                    (_, true) => {}
                }
            }
        }
        objects.sort();
        objects
    }
}
