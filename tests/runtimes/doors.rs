//! The doors through which a client of HTTP/2 reaches a gateway: a plain listener, one with TLS, and a tunnel
//! that is intercepted.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run_checked};

/// The name of the provider, which only the gateway's name server has: some clients never ask a proxy for
/// `localhost`.
pub const NAME: &str = "provider.test";

/// The way in which a client reaches the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// A listener with the provider, by prior knowledge.
    Plain,
    /// The same over TLS.
    Tls,
    /// A tunnel that is intercepted.
    Interception,
}

/// A certificate for the provider and for the gateway's own listener.
#[derive(Debug)]
pub struct Certified {
    /// The authority that has issued it.
    pub authority: Authority,
    directory: Directory,
}

impl Default for Certified {
    fn default() -> Self {
        let (directory, authority) = (Directory::default(), Authority::default());
        let leaf = authority.leaf(&["localhost", NAME]);
        directory.write_secret("key.pem", leaf.key);
        directory.write("chain.pem", leaf.certificate);
        directory.write("ca.pem", authority.certificate());
        Self { authority, directory }
    }
}

impl Certified {
    /// The file of the private key.
    pub fn key(&self) -> PathBuf {
        self.directory.join("key.pem")
    }

    /// The file of the certificate.
    pub fn chain(&self) -> PathBuf {
        self.directory.join("chain.pem")
    }

    /// The file of the authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }
}

/// A gateway with one door and one provider.
#[derive(Debug)]
pub struct Doorway {
    /// The gateway.
    pub egret: Egret,
    door: Door,
    provider_port: u16,
    certified: Certified,
    _names: NameServer,
}

impl Doorway {
    /// Starts it before the provider with this scheme and port, and with these quotas and flows.
    pub fn open(door: Door, scheme: &str, provider_port: u16, certified: Certified, flows: &str) -> Self {
        let names = NameServer::start(|name| match name {
            NAME => Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60),
            _ => Answer::NoSuchName,
        });
        let listener = match door {
            Door::Plain => "{ address: '127.0.0.1:0', provider: peer }".to_owned(),
            Door::Tls => format!(
                "{{ address: '127.0.0.1:0', provider: peer, tls: {{ certificate: {}, key: '${{file:{}}}' }} }}",
                certified.chain().display(),
                certified.key().display()
            ),
            Door::Interception => "'127.0.0.1:0'".to_owned(),
        };
        let is_intercepting = door == Door::Interception;
        let config = Config::default()
            .listen([&listener])
            .gateway(names.config())
            .provider_with(
                "peer",
                format!("{scheme}://{NAME}:{provider_port}"),
                &format!("tls: {{ ca: {} }}", certified.ca().display()),
            )
            .flows(format!("{}{flows}", if is_intercepting { "interception: {}\n" } else { "" }));
        let egret = Egret::start_with(&config, |command| {
            let mut init = egret(["ca", "init", "--config", "egret.yaml"]);
            init.current_dir(command.get_current_dir().unwrap());
            if is_intercepting {
                run_checked(&mut init);
            }
        });
        Self { egret, door, provider_port, certified, _names: names }
    }

    /// The host that the client calls.
    pub fn host(&self) -> &'static str {
        if self.door == Door::Interception { NAME } else { "localhost" }
    }

    /// The port that the client calls.
    pub fn port(&self) -> u16 {
        if self.door == Door::Interception { self.provider_port } else { self.egret.address().port() }
    }

    /// The URL that the client calls, without a trailing slash.
    pub fn url(&self) -> String {
        let scheme = if self.door == Door::Plain { "http" } else { "https" };
        format!("{scheme}://{}:{}", self.host(), self.port())
    }

    /// The file of the authority that the client must trust, if there is TLS.
    pub fn ca(&self) -> Option<PathBuf> {
        match self.door {
            Door::Plain => None,
            Door::Tls => Some(self.certified.ca()),
            Door::Interception => Some(self.egret.directory().join("egret-data/ca/ca.pem")),
        }
    }

    /// The URL of the proxy that the client must use, if any.
    pub fn proxy(&self) -> Option<String> {
        (self.door == Door::Interception).then(|| self.egret.url())
    }

    /// Makes a command the client's: its environment names the proxy, and no other.
    pub fn prepare(&self, command: &mut Command) {
        for name in ["http_proxy", "https_proxy", "no_proxy", "all_proxy", "grpc_proxy", "no_grpc_proxy"] {
            command.env_remove(name).env_remove(name.to_ascii_uppercase());
        }
        if let Some(proxy) = self.proxy() {
            command.env("HTTPS_PROXY", &proxy).env("https_proxy", proxy);
        }
    }

    /// Number of units of a quota that are used.
    pub fn used(&self, quota: &str) -> u64 {
        let quotas = self.egret.control_get("/api/v1/quotas").json();
        let mut all = quotas["quotas"].as_array().unwrap().iter();
        let groups = &all.find(|found| found["name"] == quota).unwrap()["groups"];
        groups.as_array().unwrap().iter().filter_map(|group| group["used"].as_u64()).sum()
    }

    /// Number of calls that the first remedy of the first flow has repeated.
    pub fn repeated(&self) -> u64 {
        let flows = self.egret.control_get("/api/v1/flows").json();
        flows["flows"][0]["remedies"][0]["decisions"]["repeat"].as_u64().unwrap()
    }
}
