//! Tunnels whose HTTPS the gateway intercepts, and clients that trust its authority.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::egret::{Config, Egret, egret};
use crate::http::{Client, Response};
use crate::peers::Nginx;
use crate::pki::Authority;
use crate::process::{Directory, run_checked};

/// A gateway with an authority of its own that is kept in its directory.
#[derive(Debug)]
pub struct Intercepting {
    /// The gateway.
    pub egret: Egret,
}

/// A provider over TLS, nginx before another one, with an authority of its own.
#[derive(Debug)]
pub struct SecureProvider {
    nginx: Nginx,
    authority: Authority,
}

impl SecureProvider {
    /// Starts it before the provider at `url`.
    pub fn before(url: &str) -> Self {
        Self::named(url, &[])
    }

    /// Does the same with a certificate for more names than `localhost` and `127.0.0.1`.
    pub fn named(url: &str, names: &[&str]) -> Self {
        Self::with(url, names, "")
    }

    /// Does the same with directives of nginx.
    pub fn with(url: &str, names: &[&str], directives: &str) -> Self {
        let authority = Authority::default();
        let upgrade = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection;";
        let location = format!(
            "{directives} client_max_body_size 0; location / {{ proxy_pass {url}; proxy_http_version 1.1; proxy_buffering off; \
             proxy_set_header Host $http_host; {upgrade} }}"
        );
        Self { nginx: Nginx::start_named(&authority, names, &location, listen_in), authority }
    }

    /// A Unix socket on which it listens as well.
    pub fn socket(&self) -> PathBuf {
        socket_in(self.nginx.directory())
    }

    /// Its authority, which is not that of the gateway.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Its URL, by the name `localhost`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("https://{}", self.host())
    }

    /// `localhost` and its port.
    pub fn host(&self) -> String {
        format!("localhost:{}", self.port())
    }

    /// Its port for TLS.
    pub fn port(&self) -> u16 {
        self.nginx.tls_address().port()
    }
}

/// The path of the Unix socket of a provider with this directory.
fn socket_in(directory: &Directory) -> PathBuf {
    directory.join("tls.sock")
}

/// Returns nginx's directive for that socket.
fn listen_in(directory: &Directory) -> String {
    format!("listen unix:{} ssl;", socket_in(directory).display())
}

/// Returns a config whose provider `origin` is this one. `rest` has `interception:` and the keys behind it.
pub fn config(provider: &SecureProvider, rest: &str) -> Config {
    Config::default().provider_with("origin", provider.url(), "tls: { ca: provider.pem }").flows(rest)
}

impl Intercepting {
    /// Starts a gateway with this config before this provider, whose authority it trusts.
    pub fn start(config: &Config, provider: &SecureProvider) -> Self {
        Self::start_with(config, provider, |_| {})
    }

    /// Does the same with a change to the commands, such as their environment.
    pub fn start_with(config: &Config, provider: &SecureProvider, change: impl Fn(&mut Command)) -> Self {
        Self::with_authority(config, |command| {
            let directory = command.get_current_dir().expect("a directory");
            std::fs::write(directory.join("provider.pem"), provider.authority.certificate()).unwrap();
            change(command);
        })
    }

    /// Starts a gateway with this config after it has made its authority. Both commands get this change.
    pub fn with_authority(config: &Config, change: impl Fn(&mut Command)) -> Self {
        let egret = Egret::start_with(config, |command| {
            change(command);
            let mut init = egret(["ca", "init", "--config", "egret.yaml"]);
            init.current_dir(command.get_current_dir().expect("a directory"));
            change(&mut init);
            run_checked(&mut init);
        });
        Self { egret }
    }

    /// The file of the certificate that clients trust.
    pub fn ca(&self) -> PathBuf {
        self.egret.directory().join("egret-data/ca/ca.pem")
    }

    /// The settings of a TLS client that trusts the gateway's authority and nothing else, and offers these
    /// protocols.
    pub fn client_config(&self, protocols: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.ca()).unwrap()).unwrap();
        client_config(roots, protocols)
    }

    /// Opens a tunnel to `authority`, and a TLS connection to `name` in it that trusts the gateway.
    pub fn open(&self, authority: &str, name: &str, protocols: &[&str]) -> io::Result<Client> {
        let mut client = tunnel(&self.egret, authority);
        client.shake_hands(connection(self.client_config(protocols), name))?;
        Ok(client)
    }

    /// Does the same as an HTTP/1.1 client of the provider.
    pub fn client(&self, provider: &SecureProvider) -> Client {
        self.open(&provider.host(), "localhost", &["http/1.1"]).unwrap()
    }

    /// Sends a GET for `path` inside a new tunnel.
    pub fn get(&self, provider: &SecureProvider, path: &str) -> Response {
        self.client(provider).get(provider.host(), path).response()
    }
}

/// The settings of a TLS client.
pub fn client_config(roots: RootCertStore, protocols: &[&str]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

/// Creates a TLS client for `name`.
pub fn connection(config: ClientConfig, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// Opens a tunnel to `authority`, which must succeed.
pub fn tunnel(egret: &Egret, authority: &str) -> Client {
    let mut client = egret.client();
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert_eq!(client.response_to("HEAD").status, 200);
    client
}

/// The first bytes that a TLS client of `name` sends.
pub fn hello(name: &str, protocols: &[&str]) -> Vec<u8> {
    let mut client = connection(client_config(RootCertStore::empty(), protocols), name);
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}
