//! The gateway under test with its providers.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use egret_tests::built_in::BuiltIn;
use egret_tests::closed_port::ClosedPort;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret};
use egret_tests::intercepted::{Intercepting, SecureProvider};
use egret_tests::pki::Authority;
use egret_tests::process::Directory;

use super::descriptors::COLLECTOR;

/// Time after which unused connections to providers are closed: soon, so that what is left at rest is known.
const IDLE: &str = "pool: { idle_timeout: 2s }";
/// Time after which servers close those to hosts without a provider, for which the gateway has no such key.
const UNUSED: &str = "10s";

/// A gateway with everything armed, and what it calls.
#[derive(Debug)]
pub(crate) struct World {
    /// The gateway, which has an authority for interception.
    pub(crate) intercepting: Intercepting,
    /// The provider, at every address of loopback.
    pub(crate) plain: BuiltIn,
    /// A server over TLS for every name below `soak.test`, before the provider: nginx.
    pub(crate) named: SecureProvider,
    /// The authority of the gateway's own certificate.
    pub(crate) authority: Authority,
    config: Config,
    secure: BuiltIn,
    /// The server of exporters.
    collector: BuiltIn,
    _names: NameServer,
    _closed: ClosedPort,
    _files: Directory,
}

impl World {
    /// Starts all of them.
    pub(crate) fn start() -> Self {
        let plain = BuiltIn::start_everywhere(&["--head-timeout", UNUSED]);
        let (secure, collector) = (BuiltIn::start(&["--tls"]), BuiltIn::start(&[]));
        let named = SecureProvider::with(
            &format!("http://{}", plain.address()),
            &["*.soak.test"],
            &format!("keepalive_timeout {UNUSED};"),
        );
        let names = NameServer::start(|_| Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 1));
        let (authority, files, closed) = (Authority::default(), Directory::default(), ClosedPort::take());
        let leaf = authority.leaf(&["localhost"]);
        let certificate = files.write("server.pem", leaf.certificate);
        let roots = files.write("roots.pem", named.authority().certificate());
        let key = files.write_secret("server.key", leaf.key);
        let tls = format!(
            "{{ address: '127.0.0.1:0', tls: {{ certificate: {certificate:?}, key: '${{file:{}}}' }} }}",
            key.display()
        );
        let origin = format!("http://{}", plain.address());
        let over_tls = format!("https://localhost:{}", secure.address().port());
        let trusted = format!(
            "tls: {{ ca: {:?}, server_name: localhost }}",
            secure.directory().join("egret-data/provider-ca.pem")
        );
        let config = Config::default()
            .listen(["'127.0.0.1:0'", &tls, "{ address: '127.0.0.1:0', socks5: true }"])
            .gateway(format!("dns: {{ servers: ['{}'], timeout: 5s }}", names.address()))
            .gateway("access_log: { output: stdout }")
            .gateway("timeouts: { keep_alive: 20s, head: 1m }")
            .gateway("limits: { dynamic_upstreams: 200, hosts_counted: 10 }")
            .control("traffic: { entries: 200, memory: 2MiB, failures: 256KiB }")
            .provider_with("origin", &origin, IDLE)
            .provider_with("two", &origin, &format!("http: 2, {IDLE}"))
            .provider_with("secure", &over_tls, &format!("http: 2, {trusted}, {IDLE}"))
            .provider_with("down", format!("http://{}", closed.address()), IDLE)
            .provider_with("llm", format!("{origin}/llm/openai"), &format!("preset: openai, {IDLE}"))
            .flows(include_str!("flows.yaml"));
        let intercepting = Intercepting::with_authority(&config, |command| {
            command.env("SOAK_TOKEN", "a-token-of-the-soak");
            command.env("SOAK_COLLECTOR", format!("http://{}", collector.address()));
            // Memory that is free goes back to the system at once, so what is left is in use, or in pieces.
            command.env("MIMALLOC_PURGE_DELAY", "0");
            command.env("SSL_CERT_FILE", &roots).stdout(Stdio::null());
            // The log is kept in memory. With `debug` it has a line for each response that Egret made itself.
            if command.get_args().next().is_some_and(|word| word == "run") {
                command.args(["--log-level", "info"]);
            }
        });
        Self {
            intercepting,
            plain,
            named,
            authority,
            config,
            secure,
            collector,
            _names: names,
            _closed: closed,
            _files: files,
        }
    }

    /// The gateway.
    pub(crate) fn egret(&self) -> &Egret {
        &self.intercepting.egret
    }

    /// The listener for plain clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.egret().address()
    }

    /// The ports of the servers that the gateway calls, and their names.
    pub(crate) fn servers(&self) -> [(u16, &'static str); 4] {
        let port = |server: &BuiltIn| server.address().port();
        [
            (port(&self.plain), "the provider"),
            (port(&self.secure), "the provider over TLS"),
            (self.named.port(), "nginx"),
            (port(&self.collector), COLLECTOR),
        ]
    }

    /// The config with another limit of a quota: each number is another config.
    pub(crate) fn changed(&self, number: u64) -> String {
        self.config
            .yaml()
            .replace("limit: 200, window: 1s", &format!("limit: {}, window: 1s", 200 + number % 2))
    }
}
