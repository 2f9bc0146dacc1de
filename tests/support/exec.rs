//! Commands run by `egret exec`, in a directory with a config and in an environment that says nothing about
//! proxies and authorities.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::direct::direct;
use crate::dns::{Answer, NameServer};
use crate::egret::{Egret, binary, egret};
use crate::intercepted::SecureProvider;
use crate::process::{Directory, in_terminal, run, run_checked};
use crate::provider::{Provider, Request, ok};
use crate::wait;

/// The variables that name a file of authorities.
const FILES: [&str; 14] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "PERL_LWP_SSL_CA_FILE",
    "HTTPLIB2_CA_CERTS",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
];

/// The variables that lead to authorities otherwise.
const SETTINGS: [&str; 2] = ["PHP_INI_SCAN_DIR", "JAVA_TOOL_OPTIONS"];

/// The other variables that `egret exec` sets or reads. The environment of the tests may have some of them.
const VARIABLES: [&str; 22] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "ws_proxy",
    "WS_PROXY",
    "wss_proxy",
    "WSS_PROXY",
    "grpc_proxy",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "NODE_USE_ENV_PROXY",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SSL_CERT_DIR",
    "OPENAI_BASE_URL",
    "ANTHROPIC_BASE_URL",
    "REQUEST_METHOD",
    "NODE_OPTIONS",
    "EGRET_EXEC",
];

/// The variables that lead to authorities. A program without any of them trusts what it does anyway.
pub fn authorities() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().chain(SETTINGS)
}

/// A config without fixed ports: no gateway can be found by it, so every command starts one.
pub const FREE_PORTS: &str = "gateway: { listen: ['127.0.0.1:0'] }\ncontrol: { listen: 127.0.0.1:0 }\n";

/// A directory with a config, in which commands run.
#[derive(Debug)]
pub struct Place {
    /// The directory.
    pub directory: Directory,
    data_dir: PathBuf,
}

impl Place {
    /// Creates it with the config of [`FREE_PORTS`].
    pub fn new() -> Self {
        Self::with(FREE_PORTS)
    }

    /// Creates it with this config.
    pub fn with(config: &str) -> Self {
        let directory = Directory::default();
        directory.write("egret.yaml", config);
        let data_dir = directory.join("egret-data");
        Self { directory, data_dir }
    }

    /// Creates it with the control port, the listener and the data directory of a gateway that runs.
    pub fn of(gateway: &Egret) -> Self {
        let (listen, control) = (gateway.address(), gateway.control());
        let data_dir = gateway.directory().join("egret-data");
        let config = format!(
            "gateway: {{ listen: ['{listen}'] }}\ncontrol: {{ listen: '{control}' }}\ndata_dir: {}\n",
            data_dir.display()
        );
        Self { data_dir, ..Self::with(&config) }
    }

    /// A command of `egret exec` with these options and, behind `--`, this command.
    pub fn exec<const O: usize, const C: usize>(&self, options: [&str; O], command: [&str; C]) -> Command {
        let mut exec = self.options(options);
        exec.arg("--").args(command);
        exec
    }

    /// The same with options only.
    pub fn options<const O: usize>(&self, options: [&str; O]) -> Command {
        let mut exec = egret(["exec", "--config", "egret.yaml"]);
        exec.args(options);
        self.prepare(&mut exec);
        exec
    }

    /// Runs a shell script by `egret exec`, which must succeed, and returns its output.
    pub fn sh<const O: usize>(&self, options: [&str; O], script: &str) -> String {
        run_checked(&mut self.exec(options, ["sh", "-c", script]))
    }

    /// Runs a command of the shell by `egret exec` in a terminal, until the log of its gateway has `word`, a
    /// pattern of grep. Returns what the terminal shows, and the log.
    pub fn in_terminal(&self, options: &str, command: &str, word: &str) -> (String, String) {
        let exec = format!("{} exec --config egret.yaml {options} -- {command}", binary().display());
        let logged = format!("until grep --quiet '{word}' egret-data/exec/*.log; do sleep 0.02; done");
        let mut terminal = in_terminal(&format!("{exec}; {logged}"));
        self.prepare(&mut terminal);
        let shown = run_checked(&mut terminal);
        self.until_gateways_gone();
        let log = self.logs().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        (shown, log)
    }

    /// Makes a command run in the directory and in a neutral environment, with the program under test on the
    /// PATH.
    pub fn prepare(&self, command: &mut Command) {
        for name in authorities().chain(VARIABLES) {
            command.env_remove(name);
        }
        command.current_dir(self.directory.path());
    }

    /// The logs of gateways that were started for commands.
    pub fn logs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.data_dir.join("exec")).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension() == Some(OsStr::new("log"))).collect()
    }

    /// The process ids of gateways that were started for commands here and still run.
    pub fn gateways(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_gateway = |id: &u32| {
            let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let is_serving = command.split(|byte| *byte == 0).any(|word| word == b"__serve-command");
            is_serving
                && std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd == self.directory.path())
        };
        numbers.filter(is_gateway).collect()
    }

    /// Waits until no gateway runs here any more. `exec_gateway_ends` shows how soon that is.
    pub fn until_gateways_gone(&self) {
        wait::until_true("the gateway ends", || self.gateways().is_empty());
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// The names of a [`NamedProvider`] over TLS.
const NAMES: [&str; 5] =
    ["origin.test", "api.openai.com", "api.anthropic.com", "s3.amazonaws.com", "api.stripe.com"];

/// A provider over TLS on a free port. SDKs know it as the API of `OpenAI`, Anthropic, S3 or Stripe, other
/// programs as `https://origin.test` and `http://plain.test`, names that only the gateway's name server has.
/// A remedy sends their calls to the provider.
#[derive(Debug)]
pub struct NamedProvider {
    /// The provider behind the TLS.
    pub origin: Provider,
    /// The name server.
    pub names: NameServer,
    /// A place with the config.
    pub place: Place,
    tls: SecureProvider,
}

impl NamedProvider {
    /// Starts one that responds with the line of the request.
    pub fn start() -> Self {
        Self::with_responses(|request| ok(&request.line))
    }

    /// Does the same with other responses.
    pub fn with_responses(response: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let origin = Provider::with_responses(response);
        let tls = SecureProvider::named(&origin.url(), &NAMES);
        let names = NameServer::start(|name| match name {
            "missing.test" => Answer::NoSuchName,
            _ => Answer::Addresses(vec![Ipv4Addr::new(192, 0, 2, 7)], 60),
        });
        let place = Place::with(&format!(
            "gateway:
  listen: ['127.0.0.1:0']
  egress: {{ deny: [{{ host: denied.test }}, {{ net: 192.0.2.9/32 }}] }}
  {}
control: {{ listen: 127.0.0.1:0 }}
log: {{ level: debug }}
providers:
  origin: {{ url: 'https://origin.test' }}
  plain: {{ url: 'http://plain.test' }}
  openai: {{ url: 'https://api.openai.com' }}
  anthropic: {{ url: 'https://api.anthropic.com' }}
  s3: {{ url: 'https://s3.amazonaws.com' }}
  stripe: {{ url: 'https://api.stripe.com' }}
  real: {{ url: '{}', tls: {{ ca: provider.pem }} }}
flows:
  - name: there
    match: {{ provider: [origin, plain, openai, anthropic, s3, stripe] }}
    remedies: [{{ transform: {{ request: {{ provider: real, forward_credentials: true }} }} }}]
",
            names.config(),
            tls.url()
        ));
        place.directory.write("provider.pem", tls.authority().certificate());
        Self { origin, names, place, tls }
    }

    /// A command that reaches the provider by its names without Egret, and that trusts it by the variables
    /// of the runtimes. Java's are missing.
    pub fn direct(&self) -> Command {
        let place = self.place.directory.path();
        let mut command = direct(&self.place.directory, &NAMES, &self.tls.socket());
        self.place.prepare(&mut command);
        let settings = place.join("php");
        let root = place.join("provider.pem");
        std::fs::create_dir_all(&settings).unwrap();
        let lines = format!("openssl.cafile = \"{0}\"\ncurl.cainfo = \"{0}\"\n", root.display());
        std::fs::write(settings.join("provider.ini"), lines).unwrap();
        command.envs(FILES.map(|name| (name, &root)));
        command.env("PHP_INI_SCAN_DIR", format!(":{}", settings.display()));
        command
    }
}

/// Returns the address of the control port in the mark of a command, `EGRET_EXEC`.
pub fn control_of(mark: &str) -> SocketAddr {
    let address = mark.split_whitespace().next().unwrap_or_default();
    address.parse().unwrap_or_else(|error| panic!("{mark:?} begins with no address: {error}"))
}

/// Returns `true` if this system lets processes make namespaces. Containers often do not.
pub fn has_namespaces() -> bool {
    let has = run(Command::new("unshare").args(["--user", "--net", "true"])).status.success();
    if !has {
        eprintln!("skipped: this system forbids user and network namespaces");
    }
    has
}

/// Returns `true` if something listens there.
pub fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

/// Runs a command that must fail by itself with this exit code. Returns its message.
pub fn refused(command: &mut Command, code: i32) -> String {
    let Output { status, stdout, stderr } = run(command);
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.as_slice()), (Some(code), &b""[..]), "{command:?}: {message}");
    message
}
